"""Compiled code that stands by itself: what a function calls is in its own object code, and seen by nobody else.

LLVM copies the functions that f calls into f's module and optimises them there once more; those that it does not inline stay
as copies, beside f. Numba gives such a copy the linkage of C++'s inline functions, of which a linker keeps the one it meets
first, wherever it stands: they are taken to be alike. They are not, where sums may be reordered. The process that compiles
has met each function by itself before it meets a copy; one that loads f from the cache has not. So the two added in another
order. Here the copies are *internal*: f runs on its own, in every process, whatever was compiled or loaded before it.

So a function that is only ever called by compiled code needs no machine code of its own, nor the wrappers through which Python
and pointers call: it is a *part* (a third of the time of compiling the core). Compiled code copies parts alone: when LLVM makes
object code of a function it rewrites the text for the processor, from which a caller would come out otherwise.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import Linkage, parse_assembly, parse_bitcode
from numba.core import compiler
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

COPY = Linkage.linkonce_odr


def hide(module: Any, where: str) -> dict[str, str]:
    """Make the copies in a module internal; by their new names their names before.

    The loader knows all objects of the process together, and finds an internal function, too, by its name.
    """
    copies = [f for f in module.functions if not f.is_declaration and f.linkage == COPY]
    names = {f"{f.name}.in.{where}": f.name for f in copies}
    for function, name in zip(copies, names, strict=True):
        function.linkage, function.name = Linkage.internal, name
    return names


class SelfContainedLibrary(JITCodeLibrary):
    """The code of one function, its copies of others hidden; in what its callers copy they are copies again."""

    def _finalize_final_module(self) -> None:
        self._hidden = hide(self._final_module, self._name)
        super()._finalize_final_module()

    def _get_module_for_linking(self) -> Any:
        module = super()._get_module_for_linking()
        while self._hidden:
            name, before = self._hidden.popitem()
            function = module.get_function(name)
            function.linkage, function.name = COPY, before
        return module


class Flags(compiler.Flags):
    """Numba's options of one compilation, which it compares 400 times for each function, compared fast."""

    ALL_ALIKE = hash(compiler.Flags())  # Numba hashes the names of the options alone

    def __hash__(self) -> int:
        return self.ALL_ALIKE

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, compiler.Flags):
            return NotImplemented
        options = {*self._values, *other._values}  # of the others both have the default
        return self is other or all(getattr(self, name) == getattr(other, name) for name in options)


class SelfContained(Compiler):
    """Numba's compiler, into a :class:`SelfContainedLibrary`."""

    library: type[JITCodeLibrary] = SelfContainedLibrary

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.flags = Flags(self.state.flags)

    def define_pipelines(self) -> Any:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class LastLibrary(SelfContainedLibrary):
    """The code of a function that compiled ones call by pointer or not at all: beside the object code, no text is kept for them
    to copy, only the names of the functions that are seen, by which Numba finds them when the code is loaded."""

    def serialize_using_object_code(self) -> tuple:
        self._ensure_finalized()
        functions = self._final_module.functions
        seen = [f.name for f in functions if not f.is_declaration and f.linkage != Linkage.internal]
        names = parse_assembly("\n".join(f'@"{name}" = global i8 0' for name in seen))
        return self.name, "object", (self._get_compiled_object(), names.as_bitcode())


class Last(SelfContained):
    """Numba's compiler, into a :class:`LastLibrary`."""

    library = LastLibrary


class WholeLibrary(LastLibrary):
    """The code of one function and all that it calls, optimised together: what is constant in every call is known inside."""

    def _optimize_final_module(self) -> None:
        hide(self._final_module, self._name)
        super()._optimize_final_module()


class Whole(SelfContained):
    """Numba's compiler, into a :class:`WholeLibrary`."""

    library = WholeLibrary


class PartLibrary(JITCodeLibrary):
    """The code of one function as LLVM has it, optimised, for its callers to copy."""

    @classmethod
    def from_bitcode(cls, codegen: Any, name: str, bitcode: bytes) -> PartLibrary:
        """What :meth:`serialize_using_object_code` of a library of that name gave."""
        library = cls(codegen, name)
        library._final_module = parse_bitcode(bitcode)
        library._finalize_final_module()
        return library

    def serialize_using_object_code(self) -> tuple[str, bytes]:
        self._ensure_finalized()
        return self._name, self._final_module.as_bitcode()

    def get_pointer_to_function(self, name: str) -> int:
        """0, which says that there is no such function: nor is there."""
        self._ensure_finalized()
        return 0

    def _finalize_final_module(self) -> None:
        """Numba's, but that of what is here the engine gets the places of the environments only, which Numba then fills."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        names = [gv.name for gv in self._final_module.global_variables if gv.name.startswith("_ZN08NumbaEnv")]
        places = "".join(f'@"{name}" = common global ptr null\n' for name in names)
        self._codegen._add_module(parse_assembly(places))
        self._finalized = True


class Part(SelfContained):
    """Numba's compiler, into a :class:`PartLibrary`."""

    library = PartLibrary

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.flags.no_cpython_wrapper = self.state.flags.no_cfunc_wrapper = True

"""Self-contained compiled code: the callees of a function are in its own object code, hidden from others.

LLVM copies the functions that f calls into f's module and optimises them again. Callees that are not inlined remain as copies
next to f. Numba gives such a copy the linkage of C++ inline functions: a linker keeps the first one it meets, assuming that
all are equal. They are not if sums may be reordered. The process that compiles has met each function before it meets a copy;
one that loads f from the cache has not. The two would then add in different orders. Here the copies are *internal*: f is
independent of whatever was compiled or loaded before it, in every process.

A function that only compiled code calls needs no machine code of its own, and no wrappers for Python and pointers. It is a
*part*, which takes a third of the compile time. Compiled code copies only parts: LLVM rewrites code for the processor when
it generates object code, which would change a caller's result.
"""

from __future__ import annotations

from refhmc.compile.numba_internals import (
    Compiler,
    JITCodeLibrary,
    JITCPUCodegen,
    Linkage,
    ModuleRef,
    compiler,
    parse_assembly,
    parse_bitcode,
)

COPY = Linkage.linkonce_odr


def hide(module: ModuleRef, where: str) -> dict[str, str]:
    """Make the copies in a module internal, and return their old names by their new ones.

    The loader knows all objects of the process, and finds internal functions by name, too.
    """
    copies = [f for f in module.functions if not f.is_declaration and f.linkage == COPY]
    names = {f"{f.name}.in.{where}": f.name for f in copies}
    for function, name in zip(copies, names, strict=True):
        function.linkage, function.name = Linkage.internal, name
    return names


class SelfContainedLibrary(JITCodeLibrary):
    """The code of one function with hidden copies of others; in its callers they are copies again."""

    def _finalize_final_module(self) -> None:
        self._hidden = hide(self._final_module, self._name)
        super()._finalize_final_module()

    def _get_module_for_linking(self) -> ModuleRef:
        module = super()._get_module_for_linking()
        while self._hidden:
            name, before = self._hidden.popitem()
            function = module.get_function(name)
            function.linkage, function.name = COPY, before
        return module


class Flags(compiler.Flags):
    """Numba's options of one compilation, with a fast comparison, since Numba compares them 400 times per function."""

    ALL_ALIKE = hash(compiler.Flags())  # Numba hashes only the names of the options

    def __hash__(self) -> int:
        return self.ALL_ALIKE

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, compiler.Flags):
            return NotImplemented
        options = {*self._values, *other._values}  # all others have their defaults
        return self is other or all(getattr(self, name) == getattr(other, name) for name in options)


class SelfContained(Compiler):
    """Numba's compiler, with a :class:`SelfContainedLibrary`."""

    library: type[JITCodeLibrary] = SelfContainedLibrary

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.state.flags = Flags(self.state.flags)

    def define_pipelines(self) -> list:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class LastLibrary(SelfContainedLibrary):
    """The code of a function that compiled code calls only by pointer, or not at all.

    Only object code is cached, without intermediate code for callers to copy. The names of the visible functions are kept,
    by which Numba finds them when the code is loaded.
    """

    def serialize_using_object_code(self) -> tuple:
        self._ensure_finalized()
        functions = self._final_module.functions
        seen = [f.name for f in functions if not f.is_declaration and f.linkage != Linkage.internal]
        names = parse_assembly("\n".join(f'@"{name}" = global i8 0' for name in seen))
        return self.name, "object", (self._get_compiled_object(), names.as_bitcode())


class Last(SelfContained):
    """Numba's compiler, with a :class:`LastLibrary`."""

    library = LastLibrary


class WholeLibrary(LastLibrary):
    """The code of one function and all its callees, optimised together, so that constants propagate into calls."""

    def _optimize_final_module(self) -> None:
        hide(self._final_module, self._name)
        super()._optimize_final_module()


class Whole(SelfContained):
    """Numba's compiler, with a :class:`WholeLibrary`."""

    library = WholeLibrary


class PartLibrary(JITCodeLibrary):
    """The optimised intermediate code of one function, for its callers to copy."""

    @classmethod
    def from_bitcode(cls, codegen: JITCPUCodegen, name: str, bitcode: bytes) -> PartLibrary:
        """Return the library that :meth:`serialize_using_object_code` serialized."""
        library = cls(codegen, name)
        library._final_module = parse_bitcode(bitcode)
        library._finalize_final_module()
        return library

    def serialize_using_object_code(self) -> tuple[str, bytes]:
        self._ensure_finalized()
        return self._name, self._final_module.as_bitcode()

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, which means that there is no such function."""
        self._ensure_finalized()
        return 0

    def _finalize_final_module(self) -> None:
        """Finalize as Numba does, but pass only the places of the environments to the engine, which Numba fills."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        names = [gv.name for gv in self._final_module.global_variables if gv.name.startswith("_ZN08NumbaEnv")]
        places = "".join(f'@"{name}" = common global ptr null\n' for name in names)
        self._codegen._add_module(parse_assembly(places))
        self._finalized = True


class Part(SelfContained):
    """Numba's compiler, with a :class:`PartLibrary`."""

    library = PartLibrary

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.state.flags.no_cpython_wrapper = self.state.flags.no_cfunc_wrapper = True

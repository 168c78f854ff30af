"""Compiled code that stands by itself: what a function calls is in its own object code, and seen by nobody else.

LLVM copies the functions that f calls into f's module and optimises them there once more; those that it does not inline stay
as copies, beside f. Numba gives such a copy the linkage of C++'s inline functions, of which a linker keeps the one it meets
first, wherever it stands: they are taken to be alike. They are not, where sums may be reordered. The process that compiles
has met each function by itself before it meets a copy; one that loads f from the cache has not. So the two added in another
order. Here the copies are *internal*: f runs on its own, in every process, whatever was compiled or loaded before it.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import Linkage
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


class SelfContained(Compiler):
    """Numba's compiler, into a :class:`SelfContainedLibrary`."""

    library = SelfContainedLibrary

    def define_pipelines(self) -> Any:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class WholeLibrary(SelfContainedLibrary):
    """The code of one function and all that it calls, optimised together: what is constant in every call is known inside."""

    def _optimize_final_module(self) -> None:
        hide(self._final_module, self._name)
        super()._optimize_final_module()


class Whole(SelfContained):
    """Numba's compiler, into a :class:`WholeLibrary`."""

    library = WholeLibrary

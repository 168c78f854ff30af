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


class SelfContainedLibrary(JITCodeLibrary):
    """The code of one function, its copies of others internal; in what its callers copy they are copies again."""

    def _finalize_final_module(self) -> None:
        functions = [f for f in self._final_module.functions if not f.is_declaration and f.linkage == COPY]
        self._copies = [f.name for f in functions]
        for function in functions:
            function.linkage = Linkage.internal
        super()._finalize_final_module()

    def _get_module_for_linking(self) -> Any:
        module = super()._get_module_for_linking()
        for name in self._copies:
            module.get_function(name).linkage = COPY
        return module


class SelfContained(Compiler):
    """Numba's compiler, into a :class:`SelfContainedLibrary`."""

    def define_pipelines(self) -> Any:
        state = self.state
        state.library = SelfContainedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()

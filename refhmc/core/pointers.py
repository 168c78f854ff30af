"""Pointers to compiled functions, within compiled code: who calls by one is not compiled together with the function.

In the code stands a symbol, named after the function's identity (:mod:`refhmc.core.identity`), which the loader looks up in the
process: code that another process kept finds the same function there. So the function is compiled, or loaded, before there is
code that calls it. Of a function that has no identity the address itself stands in the code, which is then not kept.
"""

from __future__ import annotations

import threading
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils
from numba.core.errors import NumbaError, UnsupportedBytecodeError
from numba.extending import intrinsic

from refhmc.core.compiled import Entry
from refhmc.core.identity import identity_of
from refhmc.core.pointer_type import Pointer

_functions: dict[str, Any] = {}  # those that symbols stand for: code that calls them may outlive whoever made it
_lock = threading.RLock()


def by_address(function: Any, signature: Any = None) -> Any:
    """A compiled function, of no arguments, that gives the pointer to another; an :class:`Entry` has a signature already."""
    if isinstance(function, Entry):
        function, signature = function.dispatcher, function.signature()
    if numba.config.DISABLE_JIT:
        return lambda: function
    kind, symbol = Pointer(signature), symbol_of(function, signature)

    @intrinsic
    def pointer(_: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
            if symbol is None:
                address = context.add_dynamic_addr(builder, address_of(function, signature), info=str(function))
            else:
                nothing = ir.FunctionType(ir.VoidType(), ())
                address = builder.bitcast(
                    cgutils.get_or_insert_function(builder.module, nothing, symbol), cgutils.voidptr_t
                )
            made = cgutils.create_struct_proxy(kind)(context, builder)
            made.jit_addr = address
            return made._getvalue()

        return kind(), generate

    return pointer


def symbol_of(function: Any, signature: Any) -> str | None:
    """The symbol that stands for a function in this process; None for one without identity, or that does not compile."""
    identity = identity_of((function, str(signature)))
    if identity is None:
        return None
    symbol = f"refhmc.{identity}"
    with _lock:
        if symbol not in _functions:
            try:
                llvmlite.binding.add_symbol(symbol, address_of(function, signature))
            except (NumbaError, UnsupportedBytecodeError):  # told to whoever compiles what calls it
                return None
            _functions[symbol] = function
    return symbol


def address_of(function: Any, signature: Any) -> int:
    """That of the function itself; through Numba's wrapper for C, the other way, a long one takes twice the time."""
    function.compile(signature)
    found = function.overloads[signature.args]
    return found.library.get_pointer_to_function(found.fndesc.llvm_func_name)

"""Pointers to compiled functions within compiled code, whose callers are not compiled together with the function.

The code contains a symbol, named after the function's identity (:mod:`refhmc.compile.identity`), which the loader looks up in
the process. Code cached by another process finds the same function. The function is therefore compiled, or loaded, before
code that calls it. For a function without identity, the code contains the address itself, and is not cached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numba
from numba.extending import intrinsic

from refhmc.compile.compiled import Entry
from refhmc.compile.identity import identity_of
from refhmc.compile.numba_internals import (
    CPUContext,
    Dispatcher,
    NumbaError,
    Signature,
    UnsupportedBytecodeError,
    add_symbol,
    cgutils,
    ir,
)
from refhmc.compile.pointer_type import Pointer

_functions: dict[str, Dispatcher] = {}  # functions behind symbols: code that calls them may outlive its creator
_lock = threading.RLock()


def by_address(function: Any, signature: Signature | None = None) -> Callable:
    """Return a compiled function without arguments that returns the pointer to another; an :class:`Entry` has a signature."""
    if isinstance(function, Entry):
        function, signature = function.dispatcher, function.signature()
    if numba.config.DISABLE_JIT:
        return lambda: function
    kind, symbol = Pointer(signature), symbol_of(function, signature)

    @intrinsic
    def pointer(_: object) -> tuple[Signature, Callable]:
        def generate(context: CPUContext, builder: ir.IRBuilder, _signature: Signature, _arguments: tuple) -> ir.Value:
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


def symbol_of(function: Dispatcher, signature: Signature) -> str | None:
    """Return the symbol of a function in this process, or None if it has no identity or does not compile."""
    identity = identity_of((function, str(signature)))
    if identity is None:
        return None
    symbol = f"refhmc.{identity}"
    with _lock:
        if symbol not in _functions:
            try:
                add_symbol(symbol, address_of(function, signature))
            except (NumbaError, UnsupportedBytecodeError):  # raised when a caller is compiled
                return None
            _functions[symbol] = function
    return symbol


def address_of(function: Dispatcher, signature: Signature) -> int:
    """Return the address of the function itself; calls through Numba's C wrapper take twice the time for long ones."""
    function.compile(signature)
    found = function.overloads[signature.args]
    return found.library.get_pointer_to_function(found.fndesc.llvm_func_name)

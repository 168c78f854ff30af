"""Numba's type of a pointer to a compiled function, with a cached address.

Numba's own ``FunctionType`` checks a function's signature and looks up its compiled version twice whenever it passes from
Python to compiled code. Entering the sampling loop with a chain's eleven functions takes 85 us, as long as a hundred draws
of a small model. A ``Pointer`` stores the address as an attribute at its first use, which takes 20 us.
"""

from __future__ import annotations

from typing import Any

from numba import types as nb
from numba.extending import NativeValue, register_model, unbox

from refhmc.compile.fingerprint import sha256
from refhmc.compile.numba_internals import Dispatcher, FunctionModel, cgutils, ir


class Pointer(nb.FunctionType):
    """A pointer to a function compiled for ``signature``; called as a ``FunctionType``."""

    @property
    def attribute(self) -> str:
        """The attribute in which a function stores its address for this signature."""
        return f"address_{sha256(str(self.signature))[:16]}"


register_model(Pointer)(FunctionModel)


@unbox(Pointer)
def unbox_pointer(kind: Pointer, function: ir.Value, c: Any) -> NativeValue:
    """Return the address that ``function`` stores, or compute and store it at the first use."""
    builder, api = c.builder, c.pyapi
    found = cgutils.alloca_once(builder, api.pyobj)
    builder.store(api.object_getattr_string(function, kind.attribute), found)
    with builder.if_then(cgutils.is_null(builder, builder.load(found)), likely=False):
        api.err_clear()
        look_up, for_kind = (api.unserialize(api.serialize_object(each)) for each in (keep_address, kind))
        builder.store(api.call_function_objargs(look_up, (function, for_kind)), found)
        api.decref(look_up)
        api.decref(for_kind)
        with builder.if_then(cgutils.is_null(builder, builder.load(found)), likely=False):
            builder.ret(api.get_null_object())
    pointer = cgutils.create_struct_proxy(kind)(c.context, builder)
    pointer.jit_addr = api.long_as_voidptr(builder.load(found))
    pointer.py_addr = builder.ptrtoint(function, c.context.get_value_type(nb.voidptr))
    api.decref(builder.load(found))
    return NativeValue(pointer._getvalue())


def keep_address(function: Dispatcher, kind: Pointer) -> int:
    """Return the address of a function for ``kind``, compiled if necessary, and store it. Raises TypeError."""
    if not hasattr(function, "get_compile_result"):
        raise TypeError(
            f"The function must be compiled by Numba, with the signature {kind.signature}; got {function!r}."
        )
    found = function.get_compile_result(kind.signature)
    returned, wanted = found.signature.return_type, kind.signature.return_type
    if returned != wanted:  # newer versions of Numba raise this themselves
        raise TypeError(f"mismatch of return type: {function!r} must return {wanted}; got {returned}.")
    address = int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))
    setattr(function, kind.attribute, address)
    return address

"""Numba's type of a pointer to a compiled function, with the address looked up once.

As Numba's own ``FunctionType`` a function goes from Python into compiled code only after its signature has been looked at
and its compiled version asked for twice, each time: to enter the sampling loop with a chain's eleven takes 85 us, as long as
a hundred draws of a small model. As a ``Pointer`` it keeps the address as an attribute from the first time on: 20 us.
"""

from __future__ import annotations

from typing import Any

from numba import types as nb
from numba.core import cgutils
from numba.experimental.function_type import FunctionModel
from numba.extending import NativeValue, register_model, unbox

from refhmc.core.fingerprint import sha256


class Pointer(nb.FunctionType):
    """To a function compiled for ``signature``; called as a ``FunctionType`` is."""

    @property
    def attribute(self) -> str:
        """The name under which a function keeps the address that it has for this signature."""
        return f"address_{sha256(str(self.signature))[:16]}"


register_model(Pointer)(FunctionModel)


@unbox(Pointer)
def unbox_pointer(kind: Any, function: Any, c: Any) -> Any:
    """The address that ``function`` keeps or, the first time, is given."""
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


def keep_address(function: Any, kind: Pointer) -> int:
    """The address of a function for ``kind``, compiled if need be, kept with it. Raises TypeError for one that returns another
    type, or is no function of Numba's."""
    if not hasattr(function, "get_compile_result"):
        raise TypeError(f"expected a function that Numba compiles, of the signature {kind.signature}, got {function!r}")
    found = function.get_compile_result(kind.signature)
    returned, wanted = found.signature.return_type, kind.signature.return_type
    if returned != wanted:  # which Numba says itself from some version on
        raise TypeError(f"mismatch of return type: {function!r} returns {returned}, expected {wanted}")
    address = int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))
    setattr(function, kind.attribute, address)
    return address

"""The device of the arrays: "arrays" is NumPy on the CPU, "cupy" an NVIDIA GPU. Neither replaces the other silently."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType

import numpy as np

from refhmc.core.available import available
from refhmc.errors import DeviceError

BUDGET = 2**30  # bytes of draws and statistics that stay on a GPU before they are moved to the host
# Bytes that the transitions of a batch may need. They do not depend on the machine, and neither do the draws.
OF_A_BATCH = {"arrays": 2**28, "cupy": 2**32}


def namespace_of(backend: str) -> ModuleType:
    """Return NumPy, or array-api-compat's CuPy. Raises DeviceError if there is no GPU or CuPy cannot be imported."""
    if backend == "arrays":
        return np
    try:
        import array_api_compat.cupy as xp
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"backend='cupy' needs the packages cupy and array-api-compat ({error}). Install them by pip install "
            "'refhmc[gpu]', or use backend='arrays', which runs the same implementation on the CPU."
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        cupy.arange(2).sum().item()
    except Exception as error:  # CuPy has its own exception for each library of CUDA
        raise DeviceError(
            f"backend='cupy' found no working GPU ({type(error).__name__}: {error}). Use backend='arrays', which runs the same "
            "implementation on the CPU."
        ) from error
    if count < 1:
        raise DeviceError(
            "backend='cupy' found no GPU. Use backend='arrays', which runs the same implementation on the CPU."
        )
    return xp


def error_of_device(error: BaseException) -> DeviceError | None:
    """Return the error to raise instead of one of CuPy's own exceptions, or None for any other."""
    if type(error).__module__.partition(".")[0] not in ("cupy", "cupy_backends"):
        return None
    said = f"({type(error).__name__}: {error})"
    if isinstance(error, MemoryError):
        return DeviceError(f"The GPU is out of memory {said}. Use a smaller chains_at_once, or fewer chains.")
    return DeviceError(
        f"The GPU failed {said}. Restart the process before you use it again, or use backend='arrays', which runs the same "
        "implementation on the CPU."
    )


def memory_there(backend: str) -> int | None:
    """Return the bytes that this process may use, or those that are free on the GPU or kept by CuPy; None if unknown."""
    if backend == "cupy":
        import cupy

        return int(cupy.cuda.runtime.memGetInfo()[0]) + int(cupy.get_default_memory_pool().free_bytes())
    return available()


def describe(backend: str) -> str:
    """Return a description of the device."""
    if backend == "arrays":
        return f"CPU, NumPy {np.__version__}"
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return f"{properties['name'].decode()}, CuPy {cupy.__version__}, CUDA {cupy.cuda.runtime.runtimeGetVersion()}"


def present_device(backend: str) -> Callable[[], AbstractContextManager]:
    """Return a function whose context has, in any thread, the device and the stream that are current now in this thread."""
    if backend == "arrays":
        return contextlib.nullcontext
    import cupy

    device, stream = cupy.cuda.Device(), cupy.cuda.get_current_stream()

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        with device, stream:
            yield

    return context

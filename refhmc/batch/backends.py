"""Where the arrays live: "arrays" is NumPy's on the CPU, "cupy" an NVIDIA GPU, with no silent change from one to the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.core.available import available
from refhmc.errors import DeviceError

BUDGET = 2**30  # bytes of draws and statistics that stay on a GPU before they are moved to the host


def namespace_of(backend: str) -> Any:
    """NumPy, or array-api-compat's CuPy. Raises DeviceError where there is no GPU, ImportError's text included."""
    if backend == "arrays":
        return np
    try:
        import array_api_compat.cupy as xp
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"backend='cupy' needs the packages cupy and array-api-compat ({error}): pip install 'refhmc[gpu]'. "
            "backend='arrays' runs the same text on the CPU."
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        cupy.arange(2).sum().item()
    except Exception as error:  # CuPy has an exception of its own for each library of CUDA
        raise DeviceError(
            f"backend='cupy' found no GPU that works ({type(error).__name__}: {error}). backend='arrays' runs the same text on "
            "the CPU."
        ) from error
    if count < 1:
        raise DeviceError("backend='cupy' found no GPU. backend='arrays' runs the same text on the CPU.")
    return xp


def to_host(x: Any) -> np.ndarray:
    """As a NumPy array"""
    return x.get() if hasattr(x, "get") else np.asarray(x)


def error_of_device(error: BaseException) -> DeviceError | None:
    """What to raise in the place of an exception of CuPy's own, or None for any other."""
    if type(error).__module__.partition(".")[0] not in ("cupy", "cupy_backends"):
        return None
    said = f"({type(error).__name__}: {error})"
    if isinstance(error, MemoryError):
        return DeviceError(f"the GPU has no memory left {said}: take fewer chains, or a smaller max_treedepth")
    return DeviceError(
        f"the GPU failed {said}. The process may have to be started anew before it can be used; backend='arrays' runs the same "
        "text on the CPU"
    )


def memory_there(backend: str) -> int | None:
    """Bytes that this process may take, or those that are free on the GPU; None where the system does not say."""
    if backend == "cupy":
        import cupy

        return int(cupy.cuda.runtime.memGetInfo()[0])
    return available()


def describe(backend: str) -> str:
    """The device, in words."""
    if backend == "arrays":
        return f"CPU, NumPy {np.__version__}"
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return f"{properties['name'].decode()}, CuPy {cupy.__version__}, CUDA {cupy.cuda.runtime.runtimeGetVersion()}"

"""Parts of a split model whose data stay on the host and are copied to the device for each evaluation.

A GPU copies them from page-locked memory, where the data of each part are stored at its first evaluation. The host therefore
has the data twice. While part k is evaluated, the data of the part that is likely to be next are copied on a stream of their
own::

    computing    ... part k - 1, event a, wait for c_k, part k ...
    copying      ... part k, event c_k, wait for a, part k + 1, event c_{k+1} ...

The data lie in memory of the copying stream. Part k + 1 may reuse the memory of part k - 1, but only after event a, when
nothing reads it any longer. The data of two parts at a time are on the device. The likely next part follows the order of the
symmetric split: the next one in the same direction, and back at the first and the last one. If the guess is wrong, the data
are copied when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from refhmc.models.on_arrays import ArrayImplementation
from refhmc.numerics.batched import Array


class StreamedOnArrays(ArrayImplementation):
    """The array implementation of a part. ``evaluate`` copies its data and returns value and gradient."""

    def __init__(self, evaluate: Callable[[Array], tuple[Array, Array]], name: str, dim: int) -> None:
        self.evaluate, self.name, self.dim = evaluate, name, dim

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        return self.evaluate(q)


class Sending:
    """The parts of a split model on a device. ``makers`` create the array implementation of each part in a namespace.

    ``under_way`` holds the number and the array implementation of the part whose data are being copied, and the event that
    ends the copy.
    """

    def __init__(self, makers: Sequence[Callable[..., ArrayImplementation]], xp: ModuleType) -> None:
        self.makers, self.xp, self.on_gpu = makers, xp, "cupy" in getattr(xp, "__name__", "").split(".")
        self.pinned = [FromPinned(xp) for _ in makers]
        self.stream: Any = None
        self.under_way: tuple | None = None
        self.last = 0

    def value_and_gradient(self, m: int, q: Array) -> tuple[Array, Array]:
        """Return L_m(q) and its gradient for part m."""
        if not self.on_gpu:
            return self.makers[m](self.xp).value_and_gradient(q)
        import cupy

        if self.stream is None:
            self.stream = cupy.cuda.Stream(non_blocking=True)  # a blocking stream would wait for the default stream
        computing = cupy.cuda.get_current_stream()
        before = computing.record()
        if self.under_way is None or self.under_way[0] != m:
            self.under_way = None
            self.send(m, before)
        _, text, there = self.under_way  # type: ignore[misc]
        computing.wait_event(there)
        found = text.value_and_gradient(q)
        following, self.last = self.after(m), m
        if following is not None:
            self.send(following, before)  # ``text`` still owns its memory
        return found

    def send(self, m: int, free: object) -> None:
        """Copy the data of part m into memory that is free after the event ``free``."""
        with self.stream:
            self.stream.wait_event(free)
            text = self.makers[m](self.pinned[m])
            self.pinned[m].complete = True
            self.under_way = m, text, self.stream.record()

    def after(self, m: int) -> int | None:
        """Return the part that is likely to be next, or None if there is only one."""
        step = -1 if m < self.last else 1
        return next((k for k in (m + step, m - step) if 0 <= k < len(self.makers)), None)


class FromPinned:
    """The namespace of CuPy for array implementations that are created repeatedly from the same arrays.

    ``asarray`` copies arrays that are requested before the namespace is ``complete`` from page-locked memory.
    """

    def __init__(self, xp: ModuleType) -> None:
        self.xp, self.copies, self.complete = xp, {}, False  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.xp, name)

    def asarray(self, x: object, **options: object) -> Array:
        if isinstance(x, np.ndarray) and x.ndim and x.size:
            if not self.complete:
                self.copies[id(x)] = x, pinned(x)  # keeps x alive, so that no other array has its id
            x = self.copies.get(id(x), (x, x))[1]
        return self.xp.asarray(x, **options)


def pinned(x: np.ndarray) -> np.ndarray:
    """Return a copy in page-locked memory, or x itself if the system has no more; CuPy then copies x each time."""
    import cupy

    try:  # cupyx.empty_pinned uses a pool, which rounds up to a power of two of bytes
        memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(x.nbytes), 0)
    except cupy.cuda.runtime.CUDARuntimeError:
        return x
    copy = np.frombuffer(memory, x.dtype, x.size).reshape(x.shape)
    copy[...] = x
    return copy

"""Parts of a split model whose data stay with the host: they come to the device for an evaluation and are not kept there.

A GPU reads them from page-locked memory, where each part's data are put when it is first evaluated (so the host has them
twice). While part k is evaluated, the data of the one that is likely to be next are on their way, on a stream of their own:

    computing    ... part k - 1, event a, wait for c_k, part k ...
    copying      ... part k, event c_k, wait for a, part k + 1, event c_{k+1} ...

Data are held in memory of the copying stream. What part k - 1 leaves of it part k + 1 may take, but not before a: then nothing
reads it any longer. The data of two parts at a time are on the device. Which part is next: on in the same direction, and at the
first and the last one back, as the symmetric split goes. Where that is wrong, the data are sent when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refhmc.models.on_arrays import TextOnArrays
from refhmc.numerics.batched import Array


class StreamedOnArrays(TextOnArrays):
    """A part. ``evaluate``: its value_and_gradient, with its data sent."""

    def __init__(self, evaluate: Callable[[Array], tuple[Array, Array]], name: str, dim: int) -> None:
        self.evaluate, self.name, self.dim = evaluate, name, dim

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        return self.evaluate(q)


class Sending:
    """``Sending(makers, xp)``: of each part a function of a namespace that makes its text, with its data there.

    ``under_way``: number and text of the part whose data are sent, and the event after which they are there.
    """

    def __init__(self, makers: Sequence[Callable[[Any], TextOnArrays]], xp: Any) -> None:
        self.makers, self.xp, self.on_gpu = makers, xp, "cupy" in getattr(xp, "__name__", "").split(".")
        self.pinned = [FromPinned(xp) for _ in makers]
        self.stream: Any = None
        self.under_way: tuple | None = None
        self.last = 0

    def value_and_gradient(self, m: int, q: Array) -> tuple[Array, Array]:
        """Of part m."""
        if not self.on_gpu:
            return self.makers[m](self.xp).value_and_gradient(q)
        import cupy

        if self.stream is None:
            self.stream = cupy.cuda.Stream(non_blocking=True)  # another would wait for the default stream
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
            self.send(following, before)  # while ``text`` holds its memory
        return found

    def send(self, m: int, free: Any) -> None:
        """The data of part m, into memory that is ``free`` after that event."""
        with self.stream:
            self.stream.wait_event(free)
            text = self.makers[m](self.pinned[m])
            self.pinned[m].complete = True
            self.under_way = m, text, self.stream.record()

    def after(self, m: int) -> int | None:
        """The part that is likely to be next; none where there is one alone."""
        step = -1 if m < self.last else 1
        return next((k for k in (m + step, m - step) if 0 <= k < len(self.makers)), None)


class FromPinned:
    """CuPy's namespace for a text that is made again and again of the same arrays: ``asarray`` sends those that are asked for
    before it is ``complete`` from page-locked copies."""

    def __init__(self, xp: Any) -> None:
        self.xp, self.copies, self.complete = xp, {}, False  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.xp, name)

    def asarray(self, x: Any, **options: Any) -> Array:
        if isinstance(x, np.ndarray) and x.ndim and x.size:
            if not self.complete:
                self.copies[id(x)] = x, pinned(x)  # x is held, so that no other array has its id
            x = self.copies.get(id(x), (x, x))[1]
        return self.xp.asarray(x, **options)


def pinned(x: np.ndarray) -> np.ndarray:
    """A copy in page-locked memory; x itself where the system has no more of it, which CuPy then copies each time."""
    import cupy

    try:  # cupyx.empty_pinned has a pool, which takes the next power of two of bytes
        memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(x.nbytes), 0)
    except cupy.cuda.runtime.CUDARuntimeError:
        return x
    copy = np.frombuffer(memory, x.dtype, x.size).reshape(x.shape)
    copy[...] = x
    return copy

"""m transitions of a foreign kernel from many starts: Y = K^m(X), for all supported call signatures.

    kernel(rng, q) -> q              q is (d,), or (chains, d) if it is batched
    kernel(rng, state) -> state      with init(rng, q) -> state (which may draw a momentum) and read(state) -> q
    an object with .init and .step   the same; ``rng`` may come first or second, as the parameters' names indicate
    run(rng, q, n) -> (n, d)         a whole chain; its last stored draw is Y

``rng`` is a NumPy Generator, or a :class:`refhmc.check.Draws` if the kernel calls methods that only the latter has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.answers import POSITIONS, field, read_position
from refhmc.check.subject.foreign import Foreign, SubjectError
from refhmc.check.subject.shapes import CALL_ERRORS, CallShape, first_working, order_of_two

NOT_STORED = -1


class Iterates(NamedTuple):
    """K X, ... K^m X of the starts X: ``path`` (m, n, d), the number of ``moves`` (n,), and the number of ``stored`` draws.

    In a ``run``, ``moves`` counts draws that differ from the previous one, and ``stored`` is the number of returned rows;
    otherwise it is ``NOT_STORED``. If a run returns another number of rows than m, ``path`` repeats its last row m times.
    """

    path: np.ndarray
    moves: np.ndarray
    stored: int = NOT_STORED

    @property
    def end(self) -> np.ndarray:
        """Positions (n, d) after m transitions."""
        return self.path[-1]


class TransitionOperator(NamedTuple):
    """K^m: ``apply(rng, X, m)`` returns the :class:`Iterates` of ``unit`` starts X (unit, d); it calls ``foreign``.

    ``unit`` is the size of a batch of chains that may affect each other. ``at_once`` is the largest number of starts of a call.
    """

    apply: Callable[[np.random.Generator, np.ndarray, int], Iterates]
    unit: int
    foreign: tuple[Foreign, ...]
    name: str
    stores: bool = False
    at_once: int = 1


def make_operator(
    kernel: Any,
    *,
    run: Callable | None = None,
    init: Callable | None = None,
    read: Callable | None = None,
    batched: bool = False,
    chains: int = 128,
    like: Any = None,
    name: str | None = None,
) -> TransitionOperator:
    """Return the :class:`TransitionOperator` of a kernel with any of the signatures above, else raise TypeError."""
    if run is not None:
        return _of_run(Foreign(run, name, like))
    name = name or getattr(kernel, "__qualname__", None) or type(kernel).__name__
    order: tuple[str, ...] = ("draws", "q")
    start_order = order
    if init is None and not callable(kernel) and hasattr(kernel, "init") and hasattr(kernel, "step"):
        read = read or getattr(kernel, "read", None)
        init, kernel = kernel.init, kernel.step
        order, start_order = order_of_two(kernel), order_of_two(init, last=True)
    subject = Foreign(kernel, name, like)
    start = None if init is None else Foreign(init, f"{name}.init", like)
    shapes: tuple[CallShape, ...] = (CallShape(order, generator=True), CallShape(order))

    def move(rng: np.random.Generator, state: Any) -> Any:
        """Make one move with NumPy's generator, or with :class:`Draws` if the kernel calls methods that only that has."""
        nonlocal shapes
        shape, answer = first_working(
            shapes,
            lambda shape: shape.call(subject, draws=shape.source(rng), q=state),
            subject,
            goes_on=lambda wrong: isinstance(wrong.__cause__, CALL_ERRORS),
        )
        shapes = (shape,)
        return answer

    def apply(rng: np.random.Generator, X: np.ndarray, m: int) -> Iterates:
        x = X if batched else X[0]
        moves, path = np.zeros(len(X), dtype=int), []
        state = x if start is None else CallShape(start_order, generator=True).call(start, draws=rng, q=x)
        for _ in range(m):
            answer = move(rng, state)
            answer = answer if start is None else _state_of(answer, state)
            if read is None:
                y, _ = read_position(subject, answer, x.shape, (x,))
            else:
                y = subject.array(read(answer), x.shape, "the position", (x,)).real
            moves += (y != x).any(axis=-1)
            path.append(np.atleast_2d(y))
            x, state = y, y if start is None else answer
        return Iterates(np.stack(path), moves)

    return TransitionOperator(
        apply, chains if batched else 1, (subject,) if start is None else (subject, start), subject.name
    )


def _of_run(subject: Foreign) -> TransitionOperator:
    def apply(rng: np.random.Generator, X: np.ndarray, m: int) -> Iterates:
        answer = subject.raw(rng, X[0], m)
        array = subject.array(_draws_in(answer), None, "the draws", (X[0], m)).real
        if array.ndim == 1 and X.shape[1] == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != X.shape[1]:
            raise SubjectError(f"{subject.name}: the draws have shape {array.shape} instead of {(m, X.shape[1])}")
        if len(array) == 0:
            return Iterates(np.broadcast_to(X, (m, *X.shape)), np.zeros(1, dtype=int), 0)
        changed = np.any(np.diff(np.vstack([X, array]), axis=0) != 0, axis=-1)
        path = array if len(array) == m else np.broadcast_to(array[-1:], (m, X.shape[1]))
        return Iterates(path[:, None], np.array([changed.sum()]), len(array))

    return TransitionOperator(apply, 1, (subject,), subject.name, stores=True)


def _draws_in(answer: Any) -> Any:
    """Return the draws in the result of a run: the result, its first element, or the entry with a position's name."""
    inner = field(answer, POSITIONS)
    if inner is None and isinstance(answer, tuple) and answer:
        inner = answer[0]
    return answer if inner is None else _draws_in(inner)


def _state_of(answer: Any, before: Any) -> Any:
    """Return the state in an answer; a pair (state, info) is unwrapped if the previous state was not such a pair."""
    if type(answer) is tuple and type(before) is not tuple and answer:
        return answer[0]
    if type(answer) is tuple and type(before) is tuple and len(answer) == 2 and type(answer[0]) is tuple:
        return answer[0]
    return answer

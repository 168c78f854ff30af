"""m transitions of somebody else's kernel from many starts: Y = K^m(X), whatever the shape the kernel has.

    kernel(rng, q) -> q              q is (d,), or (chains, d) if it is batched
    kernel(rng, state) -> state      with init(rng, q) -> state (which draws a momentum, say) and read(state) -> q
    an object with .init and .step   the same; ``rng`` may come first or second, told apart by the parameters' names
    run(rng, q, n) -> (n, d)         a whole chain; its last stored draw is Y

Answers that are a pair (q, more), or carry their position as ``.position``, ``.q``, ``["position"]`` or ``["q"]``, are read.
``rng`` is a NumPy Generator, or a :class:`refhmc.check.Draws` if the kernel asks for what only the latter has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.draws import Draws
from refhmc.check.subject.foreign import Foreign, SubjectError
from refhmc.check.subject.signature import RANDOMNESS, parameters

NOT_STORED = -1


class Iterates(NamedTuple):
    """K X, ... K^m X of the starts X: ``path`` (m, n, d), ``moves`` (n,) that changed the position, ``stored`` draws.

    In a ``run``, ``moves`` counts draws that differ from the one before, and ``stored`` is the number of rows that came back;
    else it is ``NOT_STORED``.
    Of a run with another number of rows than m the ``path`` is its last row, m times.
    """

    path: np.ndarray
    moves: np.ndarray
    stored: int = NOT_STORED

    @property
    def end(self) -> np.ndarray:
        """(n, d), after m transitions."""
        return self.path[-1]


class TransitionOperator(NamedTuple):
    """K^m: ``apply(rng, X, m)`` gives the :class:`Iterates` of ``unit`` starts X (unit, d); ``foreign``: what it calls."""

    apply: Callable[[np.random.Generator, np.ndarray, int], Iterates]
    unit: int
    foreign: tuple[Foreign, ...]
    name: str
    stores: bool = False


def make_operator(
    kernel, *, run=None, init=None, read=None, batched: bool = False, chains: int = 128, like=None, name=None
) -> TransitionOperator:
    """The :class:`TransitionOperator` of a kernel in any of the shapes above; TypeError if it has none of them."""
    if run is not None:
        return _of_run(Foreign(run, name, like))
    name = name or getattr(kernel, "__qualname__", None) or type(kernel).__name__
    if init is None and not callable(kernel) and hasattr(kernel, "init") and hasattr(kernel, "step"):
        read = read or getattr(kernel, "read", None)
        init, kernel = rng_first(kernel.init, last=True), rng_first(kernel.step)
    subject = Foreign(kernel, name, like)
    ask = _with_either_generator(subject)
    if init is None:
        return _of_kernel(subject, ask, read, chains if batched else 0)
    return _of_states(subject, ask, Foreign(init, f"{name}.init", like), read, chains if batched else 0)


def _of_kernel(subject: Foreign, ask: Callable, read: Callable | None, chains: int) -> TransitionOperator:
    def apply(rng, X, m):
        x = X if chains else X[0]
        moves, path = np.zeros(len(X), dtype=int), []
        for _ in range(m):
            y = _real(subject, position_of(ask(rng, x), read), x)
            moves += (y != x).any(axis=-1)
            path.append(np.atleast_2d(y))
            x = y
        return Iterates(np.stack(path), moves)

    return TransitionOperator(apply, chains or 1, (subject,), subject.name)


def _of_states(
    subject: Foreign, ask: Callable, init: Foreign, read: Callable | None, chains: int
) -> TransitionOperator:
    def apply(rng, X, m):
        x = X if chains else X[0]
        moves, path = np.zeros(len(X), dtype=int), []
        state = init.raw(rng, x)
        for _ in range(m):
            state = _state_of(ask(rng, state), state)
            y = _real(subject, position_of(state, read), x)
            moves += (y != x).any(axis=-1)
            path.append(np.atleast_2d(y))
            x = y
        return Iterates(np.stack(path), moves)

    return TransitionOperator(apply, chains or 1, (subject, init), subject.name)


def _of_run(subject: Foreign) -> TransitionOperator:
    def apply(rng, X, m):
        answer = subject.raw(rng, X[0], m)
        array = subject.array(position_of(answer, None), None, "the draws", (X[0], m)).real
        if array.ndim == 1 and X.shape[1] == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != X.shape[1]:
            raise SubjectError(f"{subject.name}: the draws have the shape {array.shape}, wanted {(m, X.shape[1])}")
        if len(array) == 0:
            return Iterates(np.broadcast_to(X, (m, *X.shape)), np.zeros(1, dtype=int), 0)
        changed = np.any(np.diff(np.vstack([X, array]), axis=0) != 0, axis=-1)
        path = array if len(array) == m else np.broadcast_to(array[-1:], (m, X.shape[1]))
        return Iterates(path[:, None], np.array([changed.sum()]), len(array))

    return TransitionOperator(apply, 1, (subject,), subject.name, stores=True)


def _real(subject: Foreign, value, x: np.ndarray) -> np.ndarray:
    return subject.array(value, x.shape, "the position", (x,)).real


def position_of(answer: Any, read: Callable | None):
    """The position in what a kernel gave: by ``read``, or by the names and places that are usual."""
    if read is not None:
        return read(answer)
    for key in ("position", "q"):
        if hasattr(answer, key):
            return getattr(answer, key)
        if isinstance(answer, dict) and key in answer:
            return answer[key]
    if isinstance(answer, tuple) and answer:
        return position_of(answer[0], None) if not np.isscalar(answer[0]) else answer
    return answer


def _state_of(answer, before):
    """The state in an answer: a plain pair (state, info) is unwrapped where the state before was no such pair."""
    if type(answer) is tuple and type(before) is not tuple and answer:
        return answer[0]
    if type(answer) is tuple and type(before) is tuple and len(answer) == 2 and type(answer[0]) is tuple:
        return answer[0]
    return answer


def rng_first(function: Callable, last: bool = False) -> Callable:
    """``function`` called as (rng, x), however its parameters are named and ordered; ``last``: rng second if in doubt."""
    names = [p.name for p in parameters(function).values() if p.default is p.empty]
    if len(names) == 1:
        return function if names[0] in RANDOMNESS else lambda rng, x: function(x)
    second = names[1] in RANDOMNESS if len(names) > 1 else False
    first = bool(names) and names[0] in RANDOMNESS
    if second or (last and not first):
        return lambda rng, x: function(x, rng)
    return function


def _with_either_generator(subject: Foreign) -> Callable:
    """Ask with NumPy's generator; or with :class:`Draws`, if the kernel wants ``flip`` or what else NumPy's has not."""
    draws_wanted = False

    def ask(rng, x):
        """One move of the subject, whichever way it takes its randomness."""
        nonlocal draws_wanted
        if draws_wanted:
            return subject.raw(Draws(rng), x)
        try:
            return subject.raw(rng, x)
        except SubjectError as wrong:
            cause = wrong.__cause__
            if subject.calls > 1 or not isinstance(cause, (AttributeError, TypeError)):
                raise
            try:
                answer = subject.raw(Draws(rng), x)
            except SubjectError:
                raise wrong from cause
            draws_wanted = True
            subject.forget()
            return answer

    return ask

"""One transition of a kernel of any shape on given randomness: the same numbers give the same answer.

    kern(q, p0=, u=)      the momentum (d,) and the uniform (or several) of one transition are handed in
    kernel(draws, q)      it asks a :class:`refhmc.check.Draws`
    kernel(rng, q)        it asks a NumPy generator, behind which there is one
    kernel(draws, q, p)   the same, with a momentum that is kept from transition to transition; gives (q, p)

Which of them it is is found by its parameters' names, then by trying. The answer is a position (d,), or (position,
momentum), or (position, anything else), or an object with ``q`` or ``position``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.draws import Draws, Question, Unscripted, as_generator
from refhmc.check.subject.foreign import Foreign, NotApplicable, SubjectError, to_host
from refhmc.check.subject.signature import parameters, required

MOMENTUM, DRAWS, GENERATOR = "kern(q, p0=, u=)", "kernel(draws, q)", "kernel(rng, q)"
TINY = 2.0**-43
MANY = 64  # uniforms handed to a kern(q, p0=, u=) that wants more than one


class Transition(NamedTuple):
    """Where a kernel went, the momentum it returned if it did, and what it asked."""

    q: np.ndarray
    p: np.ndarray | None
    asked: list[Question]

    def numbers(self, kind: str) -> np.ndarray:
        """All the numbers of a kind that were given out, in order."""
        return np.concatenate([np.zeros(0), *(np.ravel(x.answer) for x in self.asked if x.kind == kind)])


class TransitionRunner(NamedTuple):
    """``kernel`` in the shape ``shape``, in ``dim`` dimensions; ``uniforms`` of them are handed to a kern(q, p0=, u=).

    Not ``recorded``: it takes the bit generator out of NumPy's, so that only the seed is in our hands.
    """

    kernel: Foreign
    shape: str
    dim: int
    keeps_momentum: bool = False
    uniforms: int = 1
    recorded: bool = True

    def run(self, q, script: dict[str, Any] | None = None, seed: int = 0, p=None) -> Transition:
        """One transition from ``q`` on the answers of ``script`` (kind -> answers), then those of the seed."""
        if not self.recorded:
            return self.with_generator(np.random.default_rng(seed), q, p)
        draws = Draws(np.random.default_rng(seed), script)
        q = np.array(q, dtype=float)
        if self.shape == MOMENTUM:
            p0 = draws.normal(self.dim)
            u = [draws.uniform() for _ in range(self.uniforms)]
            arguments: tuple = (q,)
            named: dict[str, Any] = {"p0": p0, "u": u[0] if self.uniforms == 1 else np.array(u)}
        else:
            source: Any = draws if self.shape == DRAWS else as_generator(draws)
            arguments, named = (source, q, *([np.array(p, dtype=float)] if self.keeps_momentum else [])), {}
        with np.errstate(all="ignore"):  # it is asked for extreme noise too
            result = self.kernel.raw(*arguments, **named)
        return Transition(*read_answer(self.kernel, result, self.dim, q), draws.asked)

    def with_generator(self, rng, q, p=None) -> Transition:
        """One transition with NumPy's own generator ``rng``; nothing is recorded (a Draws shape: from ``rng``)."""
        if self.shape == DRAWS:
            source: Any = Draws(rng)
        elif self.shape == GENERATOR:
            source = rng
        else:
            raise NotApplicable(f"a {MOMENTUM} has no generator")
        result = self.kernel.raw(source, np.array(q, dtype=float), *([np.array(p)] if self.keeps_momentum else []))
        return Transition(*read_answer(self.kernel, result, self.dim, q), [])


def read_answer(kernel: Foreign, result, dim: int, q) -> tuple[np.ndarray, np.ndarray | None]:
    """(position, momentum or None) of what a kernel returned; SubjectError if there is no position in it."""
    for name in ("q", "position"):
        if hasattr(result, name):
            return _vector(kernel, getattr(result, name), dim, q), _momentum(getattr(result, "p", None), dim)
    if isinstance(result, (tuple, list)) and result and not _is_vector(result, dim):
        second = result[1] if len(result) > 1 else None
        return read_answer(kernel, result[0], dim, q)[0], _momentum(second, dim)
    return _vector(kernel, result, dim, q), None


def _is_vector(value, dim: int) -> bool:
    try:
        array = to_host(value)
    except Exception:
        return False
    return array.dtype.kind in "fiu" and (array.shape == (dim,) or (dim == 1 and array.shape == ()))


def _momentum(value, dim: int) -> np.ndarray | None:
    numbers = value is not None and not isinstance(value, (bool, int, float, dict)) and _is_vector(value, dim)
    return np.asarray(to_host(value), dtype=float).reshape(dim) if numbers else None


def _vector(kernel: Foreign, value, dim: int, q) -> np.ndarray:
    array = kernel.array(value, (dim,), "the position it returned", [np.asarray(q)])
    if array.dtype.kind == "c":
        raise SubjectError(f"{kernel.name}: the position it returned is complex")
    return array


def find_runner(kernel: Foreign, q: np.ndarray) -> TransitionRunner:
    """The shape of a kernel, by its parameters and by calls from ``q``; SubjectError if none gives a position."""
    dim = len(q)
    if {"p0", "u"} <= set(parameters(kernel.function)):
        attempts = [TransitionRunner(kernel, MOMENTUM, dim), TransitionRunner(kernel, MOMENTUM, dim, uniforms=MANY)]
    else:
        keeps = len(required(kernel.function)) == 3
        # A generator's normal(3) means something else than that of Draws, which refuses a generator's size=.
        attempts = [
            TransitionRunner(kernel, DRAWS, dim, keeps),
            TransitionRunner(kernel, GENERATOR, dim, keeps),
            TransitionRunner(kernel, GENERATOR, dim, keeps, recorded=False),
        ]
    errors: list[SubjectError] = []
    for runner in attempts:
        try:
            runner.run(q, p=np.ones(dim) if runner.keeps_momentum else None)
            if errors:
                kernel.forget()
            return runner
        except SubjectError as wrong:
            errors.append(wrong)
            if not isinstance(wrong.__cause__, (AttributeError, TypeError, IndexError, ValueError, Unscripted)):
                break  # it is not the shape that it complains of
    raise next((w for w in errors if not isinstance(w.__cause__, (AttributeError, TypeError))), errors[0])

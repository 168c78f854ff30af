"""Randomness that a kernel requests one question at a time, so that it can be recorded, replayed or enumerated.

A foreign kernel receives a :class:`Draws` (or, if it uses NumPy's interface, :func:`as_generator` of one) and calls

    normal(n) or normal()     independent standard normals: (n,), or one number
    exponential(n), ...()     independent standard exponentials
    uniform()                 a uniform number in [0, 1)
    flip(log_p)               True with probability min(1, exp(log_p))
    choice(p)                 an index with the probabilities p (an integer k: uniform on 0 ... k - 1)
    permutation(n)            a uniform permutation of 0 ... n - 1

Every question and its answer is stored in ``asked``. Answers come from a script while it has any for the requested kind, then
from ``rng``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

MOST_LISTED = 4096  # largest integer for which a choice has a list of probabilities


class Question(NamedTuple):
    """A request (``kind``) with its ``argument`` (n, log_p, p), and the ``answer``."""

    kind: str
    argument: Any
    answer: Any


class Draws:
    """Source of random numbers that records every request, and can replay given answers.

    A kernel ``kernel(draws, q)`` that takes all its randomness from such an object can be checked deterministically: each
    random decision can be replayed or enumerated. The list ``asked`` contains all requests and answers.

    Parameters
    ----------
    rng : numpy.random.Generator, optional
        Generator of new numbers; defaults to ``numpy.random.default_rng(0)``.
    script : dict, optional
        Answers by kind ("normal", "exponential", "uniform", "flip", "choice", "permutation"), used in order before new
        numbers are drawn. Normals and exponentials are one flat sequence each.

    Examples
    --------
    >>> draws = refhmc.check.Draws(script={"uniform": [0.25], "normal": [1.0, -1.0]})
    >>> draws.uniform(), draws.normal(2).tolist()
    (0.25, [1.0, -1.0])
    >>> draws.count("normal"), [question.kind for question in draws.asked]
    (2, ['uniform', 'normal'])
    """

    def __init__(self, rng: np.random.Generator | None = None, script: dict[str, Any] | None = None) -> None:
        self.rng = np.random.default_rng(0) if rng is None else rng
        self.script = {kind: list(answers) for kind, answers in (script or {}).items()}
        self.asked: list[Question] = []

    def _answer(self, kind: str, argument: Any, fresh: Callable) -> Any:
        waiting = self.script.get(kind)
        answer = waiting.pop(0) if waiting else fresh()
        self.asked.append(Question(kind, argument, answer))
        return answer

    def _vector(self, kind: str, n: int | None, fresh: Callable) -> Any:
        waiting = self.script.get(kind, [])
        count = 1 if n is None else int(n)
        taken = [waiting.pop(0) for _ in range(min(count, len(waiting)))]
        values = np.concatenate([np.asarray(taken, dtype=float), fresh(count - len(taken))])
        answer = float(values[0]) if n is None else values
        self.asked.append(Question(kind, n, answer))
        return answer if n is None else values.copy()

    def normal(self, n: int | None = None) -> Any:
        """Draw standard normal numbers.

        Parameters
        ----------
        n : int, optional
            How many numbers to draw; one number, not an array, if omitted.

        Returns
        -------
        float or ndarray, shape (n,)
            The numbers.
        """
        return self._vector("normal", n, self.rng.standard_normal)

    def exponential(self, n: int | None = None) -> Any:
        """Draw standard exponential numbers.

        Parameters
        ----------
        n : int, optional
            How many numbers to draw; one number, not an array, if omitted.

        Returns
        -------
        float or ndarray, shape (n,)
            The numbers.
        """
        return self._vector("exponential", n, self.rng.standard_exponential)

    def uniform(self) -> float:
        """Draw a uniform number.

        Returns
        -------
        float
            A number in [0, 1).
        """
        return float(self._answer("uniform", None, self.rng.random))

    def flip(self, log_p: float) -> bool:
        """Return True with a given probability.

        Parameters
        ----------
        log_p : float
            Log of the probability; values above 0 mean 1, NaN means 0.

        Returns
        -------
        bool
            True with probability min(1, exp(log_p)).
        """
        log_p = float(log_p)
        p = 0.0 if math.isnan(log_p) else math.exp(min(log_p, 0.0))
        return bool(self._answer("flip", log_p, lambda: self.rng.random() < p))

    def choice(self, p: Any) -> int:
        """Draw an index with given probabilities.

        Parameters
        ----------
        p : array_like, shape (k,), or int
            Probabilities, or an integer k for a uniform index in 0, ..., k - 1. The recorded argument of an integer above 4096,
            such as 2^32 for a seed, is ``range(k)``.

        Returns
        -------
        int
            The index.
        """
        if np.ndim(p) == 0 and int(p) > MOST_LISTED:
            return int(self._answer("choice", range(int(p)), lambda: self.rng.integers(int(p))))
        weights = np.full(int(p), 1.0 / int(p)) if np.ndim(p) == 0 else np.asarray(p, dtype=float)
        cumulated = np.cumsum(weights)
        return int(
            self._answer(
                "choice",
                weights,
                lambda: min(
                    int(np.searchsorted(cumulated, self.rng.random() * cumulated[-1], side="right")), len(weights) - 1
                ),
            )
        )

    def permutation(self, n: int) -> np.ndarray:
        """Draw a uniform permutation.

        Parameters
        ----------
        n : int
            Length.

        Returns
        -------
        ndarray of int, shape (n,)
            A permutation of 0, ..., n - 1.
        """
        answer = self._answer("permutation", int(n), lambda: self.rng.permutation(int(n)))
        return np.array(answer)

    def count(self, kind: str) -> int:
        """Return how many numbers of a kind were drawn.

        Parameters
        ----------
        kind : str
            "normal", "exponential", "uniform", "flip", "choice" or "permutation".

        Returns
        -------
        int
            The number of values, which counts each element of an array.
        """
        return sum(np.size(question.answer) for question in self.asked if question.kind == kind)


def script_of(asked: Sequence[Question], **changed: tuple[int, Any]) -> dict[str, list]:
    """Return a script that gives these answers again; ``changed`` has (place, new answer) by kind."""
    script: dict[str, list] = {}
    for kind, _, answer in asked:
        script.setdefault(kind, []).extend(np.ravel(answer) if kind in ("normal", "exponential") else [answer])
    for kind, (place, value) in changed.items():
        script[kind][place] = value
    return script


class Unscripted(Exception):
    """A request through NumPy's interface that cannot be recorded; the message names it."""


class _Generator(np.random.Generator):
    """NumPy's interface to a :class:`Draws`; created by :func:`as_generator`."""

    def __new__(cls, draws: Draws) -> _Generator:
        return super().__new__(cls, np.random.PCG64(0))  # type: ignore[call-arg]

    def __init__(self, draws: Draws) -> None:
        super().__init__(np.random.PCG64(0))
        self.draws = draws

    def _shaped(self, ask: Callable, size: Any, dtype: Any = np.float64, out: Any = None) -> Any:
        if out is not None:
            out[...] = np.reshape(ask(out.size), out.shape)
            return out
        if size is None:
            return ask(None)
        return np.reshape(ask(int(np.prod(size))), size).astype(dtype, copy=False)

    def _uniforms(self, n: int | None) -> Any:
        if n is None:
            return self.draws.uniform()
        return np.array([self.draws.uniform() for _ in range(n)])

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return self._shaped(self.draws.normal, size, dtype, out)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        size = np.broadcast_shapes(np.shape(loc), np.shape(scale)) or None if size is None else size
        return loc + scale * self.standard_normal(size)

    def multivariate_normal(
        self,
        mean: Any,
        cov: Any,
        size: Any = None,
        check_valid: str = "warn",
        tol: float = 1e-8,
        *,
        method: str = "cholesky",
    ) -> Any:
        shape = () if size is None else (size,) if np.ndim(size) == 0 else tuple(size)
        return mean + self.standard_normal((*shape, len(mean))) @ np.linalg.cholesky(np.asarray(cov)).T

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        return self._shaped(self.draws.exponential, size, dtype, out)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        size = np.shape(scale) or None if size is None else size
        return scale * self.standard_exponential(size)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        size = np.broadcast_shapes(np.shape(loc), np.shape(scale)) or None if size is None else size
        sign = np.where(np.asarray(self.random(size)) < 0.5, -1.0, 1.0)
        return loc + scale * sign * self.standard_exponential(size)

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return self._shaped(self._uniforms, size, dtype, out)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        size = np.broadcast_shapes(np.shape(low), np.shape(high)) or None if size is None else size
        return low + (high - low) * self.random(size)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Any:
        low, high = (0, low) if high is None else (low, high)
        n = int(high) - int(low) + bool(endpoint)
        if size is None:
            return int(low) + self.draws.choice(n)
        return np.reshape([int(low) + self.draws.choice(n) for _ in range(int(np.prod(size)))], size).astype(dtype)

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0, shuffle: bool = True
    ) -> Any:
        if np.ndim(a) == 0 and p is None and replace:
            return self.integers(int(a), size=size)
        values = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        if size is None:
            return values[self.draws.choice(len(values) if p is None else p)]
        if not replace and p is None:
            return np.reshape(values[self.draws.permutation(len(values))[: int(np.prod(size))]], size)
        if not replace:
            raise Unscripted("choice(..., replace=False, p=...)")
        picked = [self.draws.choice(len(values) if p is None else p) for _ in range(int(np.prod(size)))]
        return np.reshape(values[picked], size)

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        if size is not None or int(n) != 1:
            raise Unscripted("binomial of more than one trial")
        return int(self.draws.flip(math.log(p) if p > 0 else -math.inf))

    def permutation(self, x: Any, axis: int = 0) -> Any:
        if np.ndim(x) == 0:
            return self.draws.permutation(int(x))
        return np.take(np.asarray(x), self.draws.permutation(np.shape(x)[axis]), axis=axis)

    def shuffle(self, x: Any, axis: int = 0) -> None:
        x[:] = [x[i] for i in self.draws.permutation(len(x))]

    def __getattribute__(self, name: str) -> Any:
        if name in _NOT_RECORDED:
            raise Unscripted(name)
        return super().__getattribute__(name)


_OWN = {name for name in vars(_Generator) if not name.startswith("__")}
_NOT_RECORDED = {
    name for name in dir(np.random.Generator) if not name.startswith("_") and name not in _OWN and name != "draws"
}


def as_generator(draws: Draws) -> np.random.Generator:
    """Return ``draws`` with NumPy's interface; methods without counterpart in :class:`Draws` raise :class:`Unscripted`.

    Compiled code that extracts the bit generator is not recorded: ``draws.asked`` stays empty.
    """
    return _Generator(draws)

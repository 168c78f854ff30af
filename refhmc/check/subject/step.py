"""One foreign step as a map of phase space: z = (q, p) in (2d,) to z' in (2d,), whatever shape its author gave it.

    step(q, p, eps, n) -> (q, p)            n steps of eps
    step(q, p, eps) -> (q, p)               called n times
    step(draws, q, p, eps[, n]) -> (q, p)   asks `draws` for its randomness (a first parameter named rng: NumPy's interface)

What follows (q, p) in the answer is ignored but for a truth value (``converged``), which is watched: where it differs from
what it is at ordinary points, the step has reported a failure. NaN is such a report too.

:func:`step_outcomes` finds all outcomes of a step's discrete randomness, with their probabilities.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.answers import read_phase_point, truth_value
from refhmc.check.subject.draws import Draws, discrete_answers
from refhmc.check.subject.foreign import Foreign, SubjectError
from refhmc.check.subject.shapes import step_shape


class Step:
    """``step(z, eps, n)``: (2d,) to (2d,), NaN where it reports that it failed. Complex z is passed on as it is.

    ``flipped``: its answers' momenta have the other sign, which is undone here. ``stream``: the seed of what it draws.
    """

    def __init__(self, function: Callable, dim: int, name: str | None = None, like: Any = None) -> None:
        self.foreign = Foreign(function, name, like)
        self.dim = dim
        self.flipped = False
        self.stream = 0
        self.usual: bool | None = None  # its truth value at ordinary points
        self.reported = False  # whether the last answer's truth value was another
        self.shape, self.counts = step_shape(function)

    @property
    def random(self) -> bool:
        """Whether it asks for randomness."""
        return "draws" in self.shape.order

    def __call__(self, z: np.ndarray, eps: float | None, n: int = 1, draws: Draws | None = None) -> np.ndarray:
        """n steps; ``eps`` None: of a step that has its own."""
        if self.random and draws is None:
            draws = Draws(np.random.default_rng(self.stream))
        if self.counts is None:  # to be found by trying
            try:
                end = self._once(z, eps, draws, int(n))
                self.counts = True
                return end
            except SubjectError as wrong:
                if not isinstance(wrong.__cause__, TypeError):
                    raise
                self.counts = False
                self.foreign.forget()
        if self.counts:
            return self._once(z, eps, draws, int(n))
        for _ in range(int(n)):
            z = self._once(z, eps, draws, None)
        return z

    def one_at_a_time(self, z: np.ndarray, eps: float, n: int) -> np.ndarray:
        """n calls of one step each; NaN from the first that fails on."""
        for _ in range(n):
            z = self.quiet(z, eps) if np.isfinite(z).all() else z
        return z

    def _once(self, z: np.ndarray, eps: float | None, draws: Draws | None, n: int | None) -> np.ndarray:
        d = len(z) // 2
        eps, n = (None, None) if eps is None else (float(eps), n)
        asked = [x for x in (z[:d], z[d:], eps, n) if x is not None]
        answer = self.shape.call(self.foreign, draws=draws, q=z[:d], p=z[d:], eps=eps, n=n)
        q, p, more = read_phase_point(self.foreign, answer, (d,), asked)
        flag = truth_value(more)
        self.usual = flag if self.usual is None else self.usual
        self.reported = flag is not None and flag != self.usual
        if self.reported:
            return np.full(2 * d, np.nan)
        end = np.concatenate([q, -p if self.flipped else p])
        if end.dtype.kind == "c" and z.dtype.kind != "c":
            if end.imag.any():
                what = f"{self.foreign.name} answered with complex numbers to real ones"
                raise SubjectError(what, self.case(z, eps or 0.0))
            end = end.real
        return end

    def quiet(self, z: np.ndarray, eps: float, n: int = 1) -> np.ndarray:
        """The same; where it raises, NaN."""
        try:
            return self(z, eps, n)
        except SubjectError:
            return np.full(len(z), np.nan)

    def case(self, z: np.ndarray, eps: float, n: int = 1) -> str:
        """The arguments as a line to paste."""
        d = len(z) // 2
        return f"q={z[:d].tolist()}, p={z[d:].tolist()}, eps={float(eps)!r}, n={int(n)}"


# ------------------------------------------------------------------------------------------ the outcomes of its randomness


class StepOutcome(NamedTuple):
    """One way: its ``probability``, the state it leads to, and whether real numbers were drawn on the way too."""

    probability: float
    z: np.ndarray
    continuous: bool


class _Branch(Draws):
    """Discrete questions are answered along ``path`` (0 where it has ended); ``widths`` are how many answers each had.

    Real numbers are the generator's, ``mirrored`` (1 - u for uniforms, -x for normals) if asked.
    """

    def __init__(self, path: tuple[int, ...], rng: np.random.Generator, mirrored: bool) -> None:
        super().__init__(rng)
        self.path, self.probability, self.mirrored = path, 1.0, mirrored
        self.widths: list[int] = []
        self.continuous = False

    def _answer(self, kind: str, argument: Any, fresh: Callable) -> Any:
        options = discrete_answers(kind, argument)
        if options is None:
            answer, self.continuous = fresh(), True
            return super()._answer(kind, argument, lambda: 1.0 - answer if self.mirrored else answer)
        options = [option for option in options if option[1] > 0]
        k = self.path[len(self.widths)] if len(self.widths) < len(self.path) else 0
        self.widths.append(len(options))
        answer, probability = options[k]
        self.probability *= probability
        return super()._answer(kind, argument, lambda: answer)

    def _vector(self, kind: str, n: int | None, fresh: Callable) -> Any:
        self.continuous = True
        if kind == "normal" and self.mirrored:
            return super()._vector(kind, n, lambda count: -fresh(count))
        return super()._vector(kind, n, fresh)


class TooManyOutcomes(Exception):
    """There are more outcomes than were asked for."""


def step_outcomes(
    step: Step, z: np.ndarray, eps: float, most: int = 750, mirrored: bool = False
) -> Iterator[StepOutcome]:
    """All outcomes of one step from z; raises :class:`TooManyOutcomes` beyond ``most``."""
    if not step.random:
        yield StepOutcome(1.0, step(z, eps), False)
        return
    waiting: list[tuple[int, ...]] = [()]
    for count in itertools.count():
        if not waiting:
            return
        if count >= most:
            raise TooManyOutcomes(f"more than {most} ways for the step's randomness to fall out")
        path = waiting.pop()
        draws = _Branch(path, np.random.default_rng(step.stream), mirrored)
        end = step(z, eps, 1, draws)
        taken = path + (0,) * (len(draws.widths) - len(path))
        for depth in range(len(path), len(draws.widths)):
            waiting += [(*taken[:depth], k) for k in range(1, draws.widths[depth])]
        yield StepOutcome(draws.probability, end, draws.continuous)

"""A foreign step as a map of phase space, z = (q, p) in (2d,) to z' in (2d,), for all supported call signatures.

    step(q, p, eps, n) -> (q, p)            n steps of eps
    step(q, p, eps) -> (q, p)               called n times
    step(draws, q, p, eps[, n]) -> (q, p)   takes its randomness from `draws` (a first parameter named rng: NumPy's interface)

Values after (q, p) in the answer are ignored, except for a truth value (``converged``). If it differs from its value at
ordinary points, the step has reported a failure. NaN is such a report too.

:func:`step_outcomes` finds all outcomes of a step's discrete randomness, with their probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.answers import read_phase_point, truth_value
from refhmc.check.subject.draws import MOST_LISTED, Draws
from refhmc.check.subject.enumeration import MOST_PERMUTED, Answers, Enumerator, OutOfBudget
from refhmc.check.subject.foreign import Foreign, Inconclusive, SubjectError
from refhmc.check.subject.shapes import step_shape


class Step:
    """``step(z, eps, n)``: (2d,) to (2d,), NaN if it reports a failure; complex z is passed unchanged.

    With ``flipped`` the momenta of its answers have the opposite sign, which is corrected here. ``stream`` seeds its draws.
    """

    def __init__(self, function: Callable, dim: int, name: str | None = None, like: Any = None) -> None:
        self.foreign = Foreign(function, name, like)
        self.dim = dim
        self.flipped = False
        self.stream = 0
        self.usual: bool | None = None  # its truth value at ordinary points
        self.reported = False  # whether the truth value of the last answer differed
        self.shape, self.counts = step_shape(function)

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        return "draws" in self.shape.order

    def __call__(self, z: np.ndarray, eps: float | None, n: int = 1, draws: Draws | None = None) -> np.ndarray:
        """Take n steps; ``eps`` is None for a step that has its own."""
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
        """Make n calls of one step each; NaN from the first failure on."""
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
                what = f"{self.foreign.name} returned complex numbers for real arguments"
                raise SubjectError(what, self.case(z, eps or 0.0))
            end = end.real
        return end

    def quiet(self, z: np.ndarray, eps: float, n: int = 1) -> np.ndarray:
        """Take n steps and return NaN if the step raises."""
        try:
            return self(z, eps, n)
        except SubjectError:
            return np.full(len(z), np.nan)

    def case(self, z: np.ndarray, eps: float, n: int = 1) -> str:
        """Return the arguments as a line to paste."""
        d = len(z) // 2
        return f"q={z[:d].tolist()}, p={z[d:].tolist()}, eps={float(eps)!r}, n={int(n)}"


# ------------------------------------------------------------------------------------------ the outcomes of its randomness


class StepOutcome(NamedTuple):
    """One outcome: its ``probability``, its state, and whether continuous random numbers were drawn too."""

    probability: float
    z: np.ndarray
    continuous: bool


class _DiscreteAnswers(Answers):
    """All answers to discrete questions; continuous numbers are the generator's, ``mirrored`` (1 - u, -x) on request."""

    def __init__(self, prefix: Sequence, floor: float, rng: np.random.Generator, mirrored: bool):
        super().__init__(prefix, floor=floor)
        self.rng, self.mirrored, self.continuous = rng, mirrored, False

    def uniform(self) -> float:
        self.continuous = True
        return 1.0 - self.rng.random() if self.mirrored else self.rng.random()

    def choice(self, p: Any) -> int:
        if np.ndim(p) or p <= MOST_LISTED:
            return super().choice(p)
        self.continuous = True  # a seed
        return int(self.rng.integers(int(p)))

    def permutation(self, n: int) -> np.ndarray:
        if n <= MOST_PERMUTED:
            return super().permutation(n)
        self.continuous = True
        return self.rng.permutation(int(n))

    def _vector(self, kind: str, n: int | None, fresh: Callable) -> Any:
        self.continuous = True
        turned = self.mirrored and kind == "normal"
        return Draws._vector(self, kind, n, (lambda count: -fresh(count)) if turned else fresh)


def step_outcomes(step: Step, z: np.ndarray, eps: float, most: int = 750, mirrored: bool = False) -> list[StepOutcome]:
    """Return all outcomes of one step from z; Inconclusive beyond ``most``."""
    if not step.random:
        return [StepOutcome(1.0, step(z, eps), False)]

    def make(prefix: Sequence, floor: float) -> _DiscreteAnswers:
        return _DiscreteAnswers(prefix, floor, np.random.default_rng(step.stream), mirrored)

    def end(draws: _DiscreteAnswers, start: None) -> tuple[tuple[float, ...], bool]:
        return tuple(step(z, eps, 1, draws)), draws.continuous

    ways = Enumerator(end, make, floor=-math.inf)
    ways.most_runs = most
    try:
        return [StepOutcome(leaf.p, np.array(leaf.end[0]), leaf.end[1]) for leaf in ways.law(None)]
    except OutOfBudget:
        raise Inconclusive(f"the step's randomness has more than {most} outcomes") from None

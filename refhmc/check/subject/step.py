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
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.draws import Draws, as_generator
from refhmc.check.subject.foreign import Foreign, SubjectError, to_host
from refhmc.check.subject.signature import GENERATORS, parameters

COUNT_NAMES = ("n", "n_steps", "nsteps", "steps", "num_steps", "n_step", "l", "n_leapfrog", "num_leapfrog_steps")
FLAGS = ("converged", "success", "ok", "failed", "diverging", "diverged")


class Step:
    """``step(z, eps, n)``: (2d,) to (2d,), NaN where it reports that it failed. Complex z is passed on as it is.

    ``flipped``: its answers' momenta have the other sign, which is undone here. ``stream``: the seed of what it draws.
    """

    def __init__(self, function: Callable, dim: int, name: str | None = None, like=None):
        self.foreign = Foreign(function, name, like)
        self.dim = dim
        self.flipped = False
        self.stream = 0
        self.usual: Any = None  # its truth value at ordinary points
        self.reported = False  # whether the last answer's truth value was another
        self.random, self.counts = call_shape(function)

    def __call__(self, z: np.ndarray, eps: float, n: int = 1, draws: Draws | None = None) -> np.ndarray:
        if self.random and draws is None:
            draws = Draws(np.random.default_rng(self.stream))
        if self.counts is None:  # to be found by trying
            try:
                end = self._once(z, eps, draws, (int(n),))
                self.counts = True
                return end
            except SubjectError as wrong:
                if not isinstance(wrong.__cause__, TypeError):
                    raise
                self.counts = False
                self.foreign.forget()
        if self.counts:
            return self._once(z, eps, draws, (int(n),))
        for _ in range(int(n)):
            z = self._once(z, eps, draws, ())
        return z

    def one_at_a_time(self, z: np.ndarray, eps: float, n: int) -> np.ndarray:
        """n calls of one step each; NaN from the first that fails on."""
        for _ in range(n):
            z = self.quiet(z, eps) if np.isfinite(z).all() else z
        return z

    def _once(self, z, eps, draws, count: tuple[int, ...]) -> np.ndarray:
        d = self.dim
        q, p = z[:d], z[d:]
        first = () if not self.random else (draws,) if self.random == "draws" else (as_generator(draws),)
        answer = self.foreign.raw(*first, q, p, float(eps), *count)
        position, momentum, flag = self._taken_apart(answer, (q, p, float(eps), *count))
        if flag is not None and self.usual is None:
            self.usual = flag
        self.reported = flag is not None and flag != self.usual
        shape, asked = (d,), (q, p, float(eps), *count)
        position = self.foreign.array(position, shape, "the position", asked)
        momentum = self.foreign.array(momentum, shape, "the momentum", asked)
        if self.reported:
            return np.full(2 * d, np.nan)
        end = np.concatenate([position, -momentum if self.flipped else momentum])
        if end.dtype.kind == "c" and z.dtype.kind != "c":
            if end.imag.any():
                raise SubjectError(f"{self.foreign.name} answered with complex numbers to real ones", self.case(z, eps))
            end = end.real
        return end

    def _taken_apart(self, answer, asked) -> tuple[Any, Any, bool | None]:
        if hasattr(answer, "q") and hasattr(answer, "p"):
            flags = [getattr(answer, name) for name in FLAGS if hasattr(answer, name)]
            return answer.q, answer.p, _truth(flags)
        try:
            parts = list(answer)
        except TypeError:
            parts = []
        if isinstance(answer, dict) or len(parts) < 2:
            case = self.case(np.concatenate(asked[:2]), asked[2], asked[3] if len(asked) > 3 else 1)
            raise SubjectError(f"{self.foreign.name} answered with a {type(answer).__name__}, not a pair (q, p)", case)
        return parts[0], parts[1], _truth(parts[2:])

    def quiet(self, z: np.ndarray, eps: float, n: int = 1) -> np.ndarray:
        """The same; where it raises, NaN."""
        try:
            return self(z, eps, n)
        except SubjectError:
            return np.full(2 * self.dim, np.nan)

    def case(self, z: np.ndarray, eps: float, n: int = 1) -> str:
        """The arguments as a line to paste."""
        d = self.dim
        return f"q={z[:d].tolist()}, p={z[d:].tolist()}, eps={float(eps)!r}, n={int(n)}"


def _truth(values) -> bool | None:
    for value in values:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        if getattr(value, "dtype", None) is not None and str(value.dtype).endswith("bool") and np.ndim(value) == 0:
            return bool(to_host(value))
    return None


def call_shape(function: Callable) -> tuple[str, bool | None]:
    """Whether it asks for randomness ("", "draws" or "rng"), and whether it takes n (None: to be found by trying)."""
    told = list(parameters(function).values())
    if not told or any(x.kind == x.VAR_POSITIONAL for x in told):
        return "", None
    named = [x for x in told if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    random = ""
    if named and named[0].name.lower() in {"draws", *GENERATORS}:
        random = "draws" if named[0].name.lower() == "draws" else "rng"
        named = named[1:]
    if len(named) < 4:
        return random, False
    required = named[3].default is named[3].empty
    return random, required or named[3].name.lower() in COUNT_NAMES


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

    def __init__(self, path: tuple[int, ...], rng: np.random.Generator, mirrored: bool):
        super().__init__(rng)
        self.path, self.probability, self.mirrored = path, 1.0, mirrored
        self.widths: list[int] = []

    def _answer(self, kind, argument, fresh):
        options = _options(kind, argument)
        if options is None:
            answer = fresh()
            return super()._answer(kind, argument, lambda: 1.0 - answer if self.mirrored else answer)
        k = self.path[len(self.widths)] if len(self.widths) < len(self.path) else 0
        self.widths.append(len(options))
        answer, probability = options[k]
        self.probability *= probability
        return super()._answer(kind, argument, lambda: answer)

    def _vector(self, kind, n, fresh):
        if kind == "normal" and self.mirrored:
            return super()._vector(kind, n, lambda count: -fresh(count))
        return super()._vector(kind, n, fresh)


def _options(kind: str, argument) -> list[tuple[Any, float]] | None:
    if kind == "flip":
        p = 0.0 if math.isnan(argument) else math.exp(min(argument, 0.0))
        return [(answer, chance) for answer, chance in ((True, p), (False, 1.0 - p)) if chance > 0]
    if kind == "choice":
        weights = np.asarray(argument, dtype=float) / np.sum(argument)
        return [(k, float(w)) for k, w in enumerate(weights) if w > 0]
    if kind == "permutation":
        if argument > 6:
            return None
        every = list(itertools.permutations(range(argument)))
        return [(order, 1.0 / len(every)) for order in every]
    return None


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
        real = any(_options(question.kind, question.argument) is None for question in draws.asked)
        yield StepOutcome(draws.probability, end, real)

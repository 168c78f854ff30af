"""What the rows of ``check.integrator`` share: the step, the points, the units, and what is measured more than once.

Units: with t_i those of a pair (q_i, p_i), chosen so that a step turns each pair as a circle where coordinates are of many
sizes, else 1,

    s(q_i) = t_i max_j |q_j / t_j|        s(p_i) = max_j |p_j t_j| / t_i

a scaling that leaves Omega as it is. In these units

    J        the Jacobian of n steps, by complex step or by extrapolated differences; |J| its growth
    noise    how far the answer moves when the start moves by two units in the last place
    solver   n delta (1 + |J|)^2, ten times: what an equation solver of the tolerance delta may leave

A row is a function of the :class:`Examination`, which also keeps what the earlier rows found for the later ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc import differences
from refhmc.check.flow import Energy
from refhmc.check.foreign import Foreign, NotApplicable
from refhmc.check.report import Row
from refhmc.check.steps import Step

SMALL = 1e-3  # relative defects above this are nobody's solver tolerance


class Defect(NamedTuple):
    """``size`` of a defect, the ``limit`` it is held against without the solver's part, ``growth`` |J|, and the ``route``.

    ``lever``: solver's tolerances a step that it may hold: differences divide what the solver leaves by their widths.
    """

    size: float
    limit: float
    growth: float
    route: str = ""
    lever: float = 10.0

    def allowed(self, n: int, delta: float | None) -> float:
        """The limit, and what a solver of the tolerance ``delta`` may leave in n steps."""
        return self.limit + allowance(n, self.growth, delta, self.lever)


class Jacobian(NamedTuple):
    """J of some steps in scaled coordinates, (2d, 2d), its estimated ``error``, ``growth`` |J|, and the ``route`` to it."""

    value: np.ndarray
    error: float
    growth: float
    route: str


@dataclasses.dataclass
class Examination:
    """One step under examination: first what it was called with, then what the rows found.

    ``given``: the caller's points, each (2d,); ``hamiltonian``: H as it was given; ``delta``: the solver's tolerance, 0 if it
    solves nothing, None if that is not known; ``tighter``: the step with another.
    """

    step: Step
    energy: Energy | None
    eps: float
    claims: dict[str, float]
    given: list[np.ndarray]
    hamiltonian: Any
    delta: float | None
    tighter: Callable[[float], Step] | None
    invariants: dict[str, Foreign]
    symmetries: list[tuple[Callable, Callable]]
    seed: int
    notes: list[str]

    points: list[np.ndarray] = dataclasses.field(default_factory=list)
    excluded: str = "the step gave no answer"  # why the later rows cannot be run, if not empty
    slow: float = 1.0  # seconds a call
    unclear: bool = False  # whether p' tends to p or to -p
    repeated: Row | None = None  # the row "deterministic"
    floor: float = 0.0  # defects of reversal up to this were excused: the solver's
    failed: set[str] = dataclasses.field(default_factory=set)
    series: list | None = None  # steps and the flow beside them, from a few points
    orders: list[float] = dataclasses.field(default_factory=list)
    order_held: bool = False
    power: int = 0  # of the first term of the error that should not be there
    rates: tuple[float, float] | None = None
    exchanged: bool = False
    jacobians: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.balance = np.ones(2 * self.d)  # (t, 1/t)

    @property
    def d(self) -> int:
        return self.step.dim

    @property
    def quick(self) -> bool:
        """Whether it answers soon enough for all the cases; an ordinary step in NumPy does by far."""
        return self.slow < 1e-2

    @property
    def coarse(self) -> bool:
        return self.step.foreign.epsilon > 2.0**-52

    @property
    def unit(self) -> float:
        return self.step.foreign.epsilon

    def need(self) -> None:
        """NotApplicable where the step cannot be examined."""
        if self.excluded:
            raise NotApplicable(self.excluded)

    def need_energy(self) -> Energy:
        """H and its gradient; NotApplicable without."""
        self.need()
        if self.energy is None:
            raise NotApplicable("no H was given")
        return self.energy

    def flip(self, z: np.ndarray) -> np.ndarray:
        return np.concatenate([z[: self.d], -z[self.d :]])

    def scale(self, *states: np.ndarray) -> np.ndarray:
        """The largest |q_i|, d times, and the largest |p_i|; in units of ``balance``, where coordinates are of many sizes."""
        halves = [
            max(float(np.abs(z[part] / self.balance[part]).max()) for z in states)
            for part in (slice(0, self.d), slice(self.d, None))
        ]
        return self.balance * np.repeat([x if x > 0 and math.isfinite(x) else 1.0 for x in halves], self.d)

    def apart(self, a: np.ndarray, b: np.ndarray, z: np.ndarray) -> float:
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return 0.0 if np.array_equal(a, b, equal_nan=True) else math.inf
        return float(np.abs((a - b) / self.scale(z, a)).max())

    def jacobian(self, z, eps, n, step: Step | None = None, how: str = "") -> Jacobian | None:
        """J of n steps; None where there is none.

        ``how``: "" by complex step where that can be; "wide" by differences, which do not see what changes below a solver's
        tolerance; "near" by differences that look at the closest neighbourhood only.
        """
        step = step or self.step
        key = (z.tobytes(), eps, n, step, step.stream, how)
        if key not in self.jacobians:
            end = step.quiet(z, eps, n)
            if not np.isfinite(end).all():
                return None
            s = self.scale(z, end)

            def scaled(y):
                return step.quiet(s * y, eps, n) / s

            def derivative(u):
                if self.coarse:  # wide differences, and few: rounding is what limits them
                    found = differences.ridders(lambda t: scaled(z / s + t * u), 0.2, 3)
                    return found._replace(error=max(found.error, 4 * self.unit / 0.05))
                if how == "near":
                    return differences.ridders(lambda t: scaled(z / s + t * u), 2e-3, 6)
                if how == "wide":
                    return differences.ridders(lambda t: scaled(z / s + t * u))
                return differences.along(scaled, z / s, u)

            self.jacobians[key] = _columns(derivative, 2 * self.d)
        return self.jacobians[key]

    def noise(self, z, eps, n, step: Step | None = None) -> float:
        """How much the answer moves when the start moves by two units in the last place."""
        step, rng = step or self.step, np.random.default_rng(1)
        end = step.quiet(z, eps, n)
        moved = [step.quiet(z * (1 + self.unit * rng.integers(-2, 3, 2 * self.d)), eps, n) for _ in range(4)]
        found = [self.apart(end, x, z) for x in moved]
        return max((x for x in found if math.isfinite(x)), default=math.inf)

    def tightened(self, delta: float) -> Step:
        """The step with its solver at another tolerance."""
        assert self.tighter is not None
        step = self.tighter(delta)
        step.flipped = self.step.flipped
        return step

    def shrunk(self, fails: Callable, z: np.ndarray, eps: float, n: int) -> tuple[np.ndarray, float, int]:
        """A simpler case that fails too: fewer steps, then coordinates of few digits, one after the other."""
        left = 60 if self.quick else 10
        for fewer in (1, 2, 3):
            if fewer < n and fails(z, eps, fewer):
                n = fewer
                break
        for k in range(2 * self.d):
            for simple in (0.0, 1.0, round(z[k], 1)):
                if simple == z[k] or left == 0:
                    break
                left -= 1
                trial = z.copy()
                trial[k] = simple
                try:
                    if fails(trial, eps, n):
                        z = trial
                        break
                except Exception:  # not a case then
                    continue
        return z, eps, n


def allowance(n: int, growth: float, delta: float | None, lever: float = 10.0) -> float:
    """What a solver of that tolerance may leave (it stops by the last change)."""
    return 0.0 if not delta else lever * n * delta * (1 + growth) ** 2


def inverse_mass(energy: Energy, z: np.ndarray) -> np.ndarray:
    """The Hessian of H in p, by central differences of the gradient."""
    d, h = energy.dim, 1e-3
    units = np.eye(2 * d)[d:]
    rows = [(energy.gradient(z + h * u)[d:] - energy.gradient(z - h * u)[d:]) / (2 * h) for u in units]
    return 0.5 * (np.array(rows) + np.array(rows).T)


def _columns(derivative: Callable, size: int) -> Jacobian | None:
    """J column by column; None where one is not finite."""
    columns = [derivative(u) for u in np.eye(size)]
    if any(np.shape(c.value) != (size,) or not np.isfinite(c.value).all() for c in columns):
        return None
    value = np.stack([c.value for c in columns], axis=-1)
    route = "Ridders" if any(c.route == "Ridders" for c in columns) else "complex step"
    return Jacobian(value, max(c.error for c in columns), float(np.linalg.norm(value, 2)), route)

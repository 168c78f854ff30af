"""State shared by the rows of ``check.integrator``: the step, the points, the units, and repeated measurements.

Units: t_i is the unit of a pair (q_i, p_i). It is 1, or if the scales of the coordinates differ much, it is chosen such that a
step moves each pair on a circle. Then

    s(q_i) = t_i max_j |q_j / t_j|        s(p_i) = max_j |p_j t_j| / t_i

a scaling that leaves Omega unchanged. In these units

    J        the Jacobian of n steps, by complex step or by extrapolated differences; |J| its growth. In more than
             ``WIDE`` dimensions J V, for a few random directions V
    noise    change of the answer when the start changes by two units in the last place
    solver   10 n delta (1 + |J|)^2, the error that an equation solver of tolerance delta may leave

A row is a function of the :class:`IntegratorExamination`, which also keeps results of earlier rows for later ones.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.examination import Examination
from refhmc.check.integrators.flow import Energy
from refhmc.check.judging import Measured, simplest
from refhmc.check.own import differences
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Foreign, NotApplicable, SubjectError
from refhmc.check.subject.step import Step

MOST_GROWTH = 1e6  # |J| beyond which nothing is measured
SMALL = 1e-3  # relative defects above this are not caused by a solver's tolerance
NEAR = 2e-3  # width of differences in a close neighbourhood
WIDE = 30  # dimensions beyond which J is measured along SKETCH directions
SKETCH = 8
CALM = 0.8  # largest |lambda - 1|, lambda the eigenvalues of J, at which errors follow their leading power of eps


class Defect(NamedTuple):
    """Size of a defect, its limit without the solver's part, the growth |J|, and the route of the derivatives.

    ``lever``: factor of the solver's tolerance per step, since differences divide the solver's error by their widths.
    ``error``: estimated error of the derivatives, along directions of length 1.
    """

    size: float
    limit: float
    growth: float
    route: str = ""
    lever: float = 10.0
    error: float = 0.0

    def allowed(self, n: int, delta: float | None) -> float:
        """Return the limit plus the error that a solver of the tolerance ``delta`` may leave in n steps."""
        return self.limit + allowance(n, self.growth, delta, self.lever)


class Jacobian(NamedTuple):
    """J V of some steps in scaled coordinates, (2d, k), its estimated ``error``, ``growth`` |J|, and the ``route`` to it.

    ``along`` is V (2d, k): the unit vectors, so that J V = J, or random normal vectors; then ``growth`` is the largest seen.
    """

    value: np.ndarray
    error: float
    growth: float
    route: str
    along: np.ndarray

    @property
    def length(self) -> float:
        """Length of the longest direction."""
        return float(np.sqrt((self.along**2).sum(axis=0).max()))


@dataclasses.dataclass
class IntegratorExamination(Examination):
    """One step under examination: first the arguments of the check, then the results of its rows.

    ``given``: the caller's points, each (2d,). ``hamiltonian``: H as given. ``delta``: the solver's tolerance, 0 if nothing is
    solved, None if unknown. ``tighter``: the step with another tolerance.
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
    counter: Foreign | None
    seed: int
    like: Any = None
    dim_given: bool = True
    fixed_work: bool = False  # no time limit

    points: list[np.ndarray] = dataclasses.field(default_factory=list)
    widths: np.ndarray | None = None  # of the momenta, in many dimensions
    wrong_energy: SubjectError | None = None  # exception of H at every point
    excluded: str = "the step gave no answer"  # reason why later rows cannot be run, if not empty
    slow: float = 1.0  # seconds per call
    unclear: bool = False  # whether p' tends to p or to -p
    repeated: Row | None = None  # the row "deterministic"
    floor: float = 0.0  # defects of reversal up to this were attributed to the solver
    failed: set[str] = dataclasses.field(default_factory=set)
    held: set[str] = dataclasses.field(default_factory=set)  # properties of the map that passed
    series: list | None = None  # steps and the true flow, from a few points
    orders: list[float] = dataclasses.field(default_factory=list)  # one per point
    order_held: bool = False
    power: int = 0  # power of the first unexpected term of the error
    rates: tuple[float, float] | None = None  # speeds of positions and momenta at small eps, relative to those of H
    astray: tuple[bool, bool] = (False, False)  # whether positions and momenta move in another direction than along H
    exchanged: bool = False  # whether positions move by the inverse of the right matrix
    jacobians: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        ours = [] if self.energy is None else [self.energy.foreign, *self.energy.given.values()]
        super().__init__(self.step.foreign.name, [self.step.foreign, *ours], self.seed)
        self.balance = np.ones(2 * self.d)  # (t, 1/t)

    @property
    def d(self) -> int:
        return self.step.dim

    @property
    def quick(self) -> bool:
        """Whether a call is fast enough for all cases."""
        return self.fixed_work or self.slow < 1e-2

    @property
    def wide(self) -> bool:
        return self.d > WIDE

    @property
    def costly(self) -> bool:
        """Whether the whole of J takes more than about a second."""
        return self.wide and not self.fixed_work and self.slow * self.d > 0.02

    @property
    def coarse(self) -> bool:
        return self.step.foreign.epsilon > 2.0**-52

    @property
    def unit(self) -> float:
        return self.step.foreign.epsilon

    def need(self) -> None:
        """Raise NotApplicable if the step cannot be examined."""
        if self.excluded:
            raise NotApplicable(self.excluded)

    def need_energy(self) -> Energy:
        """Return H and its gradient; raise NotApplicable without H."""
        self.need()
        if self.wrong_energy is not None:
            raise NotApplicable("H raised: see 'gradient of H'")
        if self.energy is None:
            raise NotApplicable("no H was given")
        return self.energy

    def flip(self, z: np.ndarray) -> np.ndarray:
        return np.concatenate([z[: self.d], -z[self.d :]])

    def scale(self, *states: np.ndarray) -> np.ndarray:
        """Return the largest |q_i|, d times, and the largest |p_i|, in units of ``balance`` for different scales."""
        halves = [
            max(float(np.abs(z[part] / self.balance[part]).max()) for z in states)
            for part in (slice(0, self.d), slice(self.d, None))
        ]
        return self.balance * np.repeat([x if x > 0 and math.isfinite(x) else 1.0 for x in halves], self.d)

    def apart(self, a: np.ndarray, b: np.ndarray, z: np.ndarray) -> float:
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return 0.0 if np.array_equal(a, b, equal_nan=True) else math.inf
        return float(np.abs((a - b) / self.scale(z, a)).max())

    def jacobian(
        self, z: np.ndarray, eps: float, n: int, step: Step | None = None, how: str = "", full: bool = False
    ) -> Jacobian | None:
        """Return J of n steps, or J along a few directions unless ``full``; None without, or if |J| is too large.

        ``how``: "" by complex step if possible; "wide" by differences, which do not see changes below a solver's
        tolerance; "near" by differences in a close neighbourhood.
        """
        step = step or self.step
        sketch = self.wide and not full
        key = (z.tobytes(), eps, n, step, step.stream, how, sketch)
        if key not in self.jacobians:
            derivative = self._derivative(z, eps, n, step, how)
            found = None
            if derivative is not None:
                size = 2 * self.d
                found = _sketch(derivative, size, self.seed) if sketch else _columns(derivative, np.eye(size))
            self.jacobians[key] = None if found is None or found.growth > MOST_GROWTH else found
        return self.jacobians[key]

    def _derivative(
        self, z: np.ndarray, eps: float, n: int, step: Step, how: str
    ) -> Callable[[np.ndarray], differences.Derivative] | None:
        """Return the function u -> J u in scaled coordinates, or None if the step fails at z."""
        end = step.quiet(z, eps, n)
        if not np.isfinite(end).all():
            return None
        s = self.scale(z, end)

        def scaled(y: np.ndarray) -> np.ndarray:
            return step.quiet(s * y, eps, n) / s

        def derivative(u: np.ndarray) -> differences.Derivative:
            """Return J u by differences along u / |u|, and their error, both times |u|."""
            length = np.sqrt(u @ u)  # the width of differences does not depend on |u|
            u = u / length
            if self.coarse:  # few and wide differences, since rounding limits them
                found = differences.ridders(lambda t: scaled(z / s + t * u), 0.2, 3)
                found = found._replace(error=max(found.error, 4 * self.unit / 0.05))
            elif how == "near":
                found = differences.ridders(lambda t: scaled(z / s + t * u), NEAR, 6)
            elif how == "wide":
                found = differences.ridders(lambda t: scaled(z / s + t * u))
            else:
                found = differences.along(scaled, z / s, u)
            return found._replace(value=length * found.value, error=length * found.error)

        return derivative

    def turn(self, z: np.ndarray, eps: float) -> float:
        """Return max |lambda - 1| of the eigenvalues of J, in many dimensions from powers of J - 1; NaN without J."""
        if not self.wide:
            J = self.jacobian(z, eps, 1)
            return math.nan if J is None else float(np.abs(np.linalg.eigvals(J.value) - 1).max())
        derivative = self._derivative(z, eps, 1, self.step, "")
        if derivative is None:
            return math.nan
        u, found = np.random.default_rng(self.seed).standard_normal(2 * self.d), math.nan
        for _ in range(4):
            u /= np.sqrt(u @ u)
            u = derivative(u).value - u
            found = float(np.sqrt(u @ u))
            if not (math.isfinite(found) and found > 0):
                break
        return found

    @functools.cached_property
    def small(self) -> float:
        """Step size, divided by 4 until a step turns phase space by little, so that errors follow powers of it."""
        for k in range(21):
            eps = self.eps / 4**k
            turns = [self.turn(z, eps) for z in self.points[:3]]
            if any(turn <= CALM for turn in turns):
                return eps
        return self.eps  # no size is small enough

    def noise(self, z: np.ndarray, eps: float, n: int, step: Step | None = None) -> float:
        """Return the change of the answer when the start changes by two units in the last place."""
        step, rng = step or self.step, np.random.default_rng(1)
        end = step.quiet(z, eps, n)
        moved = [step.quiet(z * (1 + self.unit * rng.integers(-2, 3, 2 * self.d)), eps, n) for _ in range(4)]
        found = [self.apart(end, x, z) for x in moved]
        return max((x for x in found if math.isfinite(x)), default=math.inf)

    def rounding(self, z: np.ndarray, eps: float, n: int, growth: float, step: Step | None = None) -> float:
        """Return the possible rounding error of n steps: of each, times the growth |J|, and of the start."""
        return (1 + growth) * (64 * self.unit * (n + 1) + 20 * self.noise(z, eps, n, step))

    def tightened(self, delta: float) -> Step:
        """Return the step with another tolerance of its solver."""
        assert self.tighter is not None
        step = self.tighter(delta)
        step.flipped = self.step.flipped
        return step

    def simplest(self, measure: Callable[..., Measured | None], z: np.ndarray, eps: float, n: int) -> str:
        """Return a simpler case that fails by a hundredth of it or more: fewer steps, then coordinates of few digits."""
        first = measure(z, eps, n)

        def fails(z: np.ndarray, n: int) -> bool:
            found = measure(z, eps, n)
            return found is not None and (first is None or found.error > max(found.allowed, 0.01 * first.error))

        n = next((fewer for fewer in (1, 2, 3) if fewer < n and fails(z, fewer)), n)
        return self.step.case(simplest(z, lambda z: fails(z, n), self.tries), eps, n)

    @property
    def tries(self) -> int:
        """Number of simpler cases to try."""
        return 60 if self.quick and not self.wide else 10


def allowance(n: int, growth: float, delta: float | None, lever: float = 10.0) -> float:
    """Return the error that a solver of that tolerance may leave if it stops by the last change."""
    return 0.0 if not delta else lever * n * delta * (1 + growth) ** 2


def _columns(derivative: Callable, along: np.ndarray) -> Jacobian | None:
    """Return J V column by column, or None if one is not finite."""
    columns = [derivative(u) for u in along.T]
    if any(np.shape(c.value) != (len(along),) or not np.isfinite(c.value).all() for c in columns):
        return None
    value = np.stack([c.value for c in columns], axis=-1)
    route = "Ridders" if any(c.route == "Ridders" for c in columns) else "complex step"
    error = max(c.error for c in columns)
    return Jacobian(value, error, _norm(value) if value.shape[0] == value.shape[1] else math.nan, route, along)


def _sketch(derivative: Callable, size: int, seed: int) -> Jacobian | None:
    """Return J V for random normal V, and the growth of those directions and of their images under J."""
    rng = np.random.default_rng([seed, size])
    found = _columns(derivative, rng.standard_normal((size, SKETCH)))
    if found is None:
        return None
    growth, u = 0.0, found.value[:, 0]
    for _ in range(3):
        u = u / np.sqrt(u @ u)
        u = derivative(u).value
        if not np.isfinite(u).all():
            return None
        growth = max(growth, float(np.sqrt(u @ u)))
    lengths = np.sqrt((found.value**2).sum(axis=0) / (found.along**2).sum(axis=0))
    route = f"{found.route}, along {SKETCH} random directions"
    return found._replace(growth=max(growth, float(lengths.max())), route=route)


def _norm(matrix: np.ndarray) -> float:
    """Return the largest singular value; for a large matrix by power iteration, a lower bound within about a percent."""
    if len(matrix) <= 2 * WIDE:
        return float(np.linalg.norm(matrix, 2))
    u, size = np.random.default_rng(len(matrix)).standard_normal(len(matrix)), 0.0
    for _ in range(40):
        u = matrix.T @ (matrix @ u)
        size = float(np.sqrt(u @ u))
        u = u / max(size, 1e-300)
    return math.sqrt(size)

"""``check.integrator``: what a step (q, p) -> (q', p') of Hamilton's equations must be, one row a property.

With S the map of n steps, J its Jacobian, F(q, p) = (q, -p), Omega = [[0, 1], [-1, 0]], phi_t the flow of H:

    reversible      F S F S = 1; of a step that draws, in law: P(z -> z') = P(F z' -> F z) summed over its draws
    symplectic      J' Omega J = Omega              volume          |det J| = 1
    order           |S - phi_eps| ~ eps^(k+1)       small step      S - phi_eps has no terms eps ... eps^k
    elapsed time    dS/deps = the field of H        composition     S of n steps is n times S of one
    energy          |H S - H| ~ eps^k on an orbit   shadow energy   where H is quadratic: log(J)/eps - Omega H'' ~ eps^k

Everything is measured in units of the largest |q_i| and |p_i| of the point (a scaling that leaves Omega as it is). A defect
is held against rounding, which is measured by moving the start by a few units in the last place, times the growth |J|
that it meets; against the error of the derivatives; and against the solver's tolerance where there is one. A solver whose
tolerance is not known is told from a map that is not symplectic by its defect as a function of eps: a power of it, or not.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from refhmc import differences
from refhmc.check.flow import Energy, Term, leading_term, true_flow
from refhmc.check.foreign import (
    SECONDS_PER_CALL,
    Foreign,
    Misconduct,
    NotApplicable,
    Undecided,
    _watched,
    examine,
)
from refhmc.check.integrator_patterns import Findings, typical
from refhmc.check.report import (
    FAIL,
    INEFFICIENT,
    MISCONDUCT,
    NOT_RUN,
    PASS,
    WRONG_LAW,
    Report,
    Row,
    inconclusive,
    judged,
)
from refhmc.check.steps import Step, TooMany, leaves

SMALL = 1e-3  # relative defects above this are nobody's solver tolerance
FAMILIES = ("symplectic", "reversible", "volume", "energy", "order", "exact time")
CLEAR = 10.0  # errors of the fit: a term beyond is believed, if ranges of eps agree on it
NODES = 16  # steps of sizes E/16 ... E, for the expansion of the error in eps
OF_DERIVATIVES = 300.0
LARGE_STEPS = (2.0, 3.0, 4.5, 6.0, 9.0, 13.0, 20.0, 30.0, 45.0)
TIGHT = 1e-11


def integrator(
    step,
    H=None,
    *,
    dim: int | None = None,
    eps: float = 0.1,
    claims: str = "symplectic reversible order=2",
    grad_q: Callable | None = None,
    grad_p: Callable | None = None,
    points: Sequence | None = None,
    tolerance: float | None = None,
    with_tolerance: Callable | None = None,
    invariants: dict[str, Callable] | None = None,
    symmetries: Sequence[tuple[Callable, Callable]] | None = None,
    seed: int = 20261121,
    like=None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Examine ``step``: ``step(q, p, eps, n)``, ``step(q, p, eps)``, either with ``draws`` first; or one of refhmc's
    integrators (with ``H`` a refhmc Hamiltonian), or a pair (Hamiltonian, integrator).

    ``H``: a function of (q, p), an object with ``energy``, or a refhmc Hamiltonian; what needs it is NOT RUN without.
    ``grad_q``, ``grad_p``: its gradients, otherwise found from H. ``claims``: of "symplectic", "reversible", "volume",
    "order=k" (higher passes too), "energy" (conserved to rounding), "exact time"; what is not claimed is never failed.
    ``points``: pairs (q, p) to examine it at, otherwise normal ones. ``tolerance``: of its equation solver, 0 if it has none;
    ``with_tolerance(delta)``: the step with another. ``invariants``: functions of (q, p) that it conserves, by name.
    ``symmetries``: pairs of maps (of q, of p) that it commutes with.

    Raises ValueError for a claim or eps that makes no sense, TypeError for a subject that cannot be called.
    """
    claimed = read_claims(claims)
    if not (math.isfinite(eps) and eps > 0):
        raise ValueError(f"eps must be finite and positive, got {eps!r}")
    step, H, tolerance, with_tolerance, own = _of_refhmc(step, H, tolerance, with_tolerance)
    name = name or own
    given = [np.concatenate([np.atleast_1d(np.asarray(x, dtype=float)) for x in point]) for point in points or ()]
    notes: list[str] = []
    if dim is None:
        dim = getattr(getattr(H, "model", None), "dim", None) or (len(given[0]) // 2 if given else None)
    if dim is None:
        dim = _dimension(step, H, eps, like, seconds_per_call)
        notes.append(f"dim was not given: {dim} found by trying")
    energy = None if H is None else Energy(H, dim, grad_q=grad_q, grad_p=grad_p, like=like)
    test = _Examination(
        step=Step(step, dim, name, like),
        energy=energy,
        eps=float(eps),
        claims=claimed,
        given=given,
        hamiltonian=H,
        delta=tolerance,
        tighter=None if with_tolerance is None else lambda delta: Step(with_tolerance(delta), dim, name, like),
        invariants={k: Foreign(f, k, like) for k, f in (invariants or {}).items()},
        symmetries=list(symmetries or ()),
        seed=seed,
        notes=notes,
    )
    checks = [
        ("answers", test.answers),
        ("momentum convention", test.momentum_convention),
        ("deterministic", test.deterministic),
        ("gradient of H", test.gradient),
        ("reversible", test.reversible),
        ("symplectic", test.symplectic),
        ("volume", test.volume),
        ("composition", test.composition),
        ("order", test.order),
        ("small step", test.small_step),
        ("elapsed time", test.elapsed_time),
        ("energy", test.energy_error),
        ("shadow energy", test.shadow_energy),
        ("invariants", test.conserved),
        ("equivariance", test.equivariance),
        ("delta scaling", test.delta_scaling),
        ("solver failure", test.solver_failure),
    ]
    return examine(
        "integrator",
        test.step.foreign.name,
        checks,
        settings={"dim": dim, "eps": float(eps), "claims": claims},
        seed=seed,
        foreign=[test.step.foreign, *([energy.foreign, *energy.given.values()] if energy else [])],
        notes=lambda: test.notes,
        diagnose=test.diagnose,
        seconds_per_call=seconds_per_call,
    )


def read_claims(claims: str) -> dict[str, float]:
    """ "symplectic order=2" as {"symplectic": 1, "volume": 1, "order": 2}."""
    text = re.sub(r"exact[ _-]time", "exact-time", claims)
    found: dict[str, float] = {}
    for word in text.replace(",", " ").split():
        key, _, value = word.partition("=")
        key = "exact time" if key == "exact-time" else key
        if key not in FAMILIES or (key == "order") != bool(value):
            raise ValueError(f"claims: {word!r} is none of symplectic, reversible, volume, energy, order=k, exact time")
        found[key] = float(value) if value else 1.0
        if key == "order" and not 1 <= found[key] <= 12:
            raise ValueError(f"claims: an order of {value} cannot be examined")
    if "symplectic" in found:
        found["volume"] = 1.0
    return found


def _of_refhmc(step, H, tolerance, with_tolerance):
    """The subject as a plain step where it is one of refhmc's integrators; its solver's tolerance; its name."""
    if isinstance(step, tuple) and len(step) == 2:
        H, step = (step[0], step[1]) if hasattr(step[0], "energy") else (step[1], step[0])
    if callable(step) or type(step).__module__.split(".")[0] != "refhmc":
        return step, H, tolerance, with_tolerance, None
    from refhmc.check.adapters import refhmc_step
    from refhmc.dynamics import make_dynamics

    if not hasattr(H, "model"):
        raise TypeError("one of refhmc's integrators needs H, a refhmc.Hamiltonian")
    make_dynamics(H.model, H.metric, step).compile(H.model.name)  # before the clock runs
    name = type(step).__name__
    base = getattr(step, "base", step)
    delta = getattr(base, "tolerance", 0.0)
    if tolerance is None:
        tolerance = delta
    if with_tolerance is None and delta > 0:

        def with_tolerance(delta):
            tight = dataclasses.replace(base, tolerance=delta)
            return refhmc_step(H, tight if base is step else dataclasses.replace(step, base=tight))

    return refhmc_step(H, step), H, tolerance, with_tolerance, name


def _dimension(step, H, eps, like, seconds) -> int:
    """The first dimension in which the step, and H, give finite answers of the right shape; 2 if none does."""

    def works(d: int) -> bool:
        z = np.round(np.random.default_rng(d).standard_normal(2 * d), 2)
        finite = np.isfinite(Step(step, d, None, like)(z, eps)).all()
        return bool(finite) and (H is None or bool(np.isfinite(Energy(H, d, like=like)(z))))

    for d in (2, 3, 1, 4, 5, 6, 8, 10):
        try:
            if _watched(functools.partial(works, d), seconds):
                return d
        except Misconduct as wrong:
            if "did not come back" in str(wrong):
                break
    return 2


class Defect(NamedTuple):
    """``size`` of a defect, the ``limit`` it is held against without the solver's part, ``growth`` |J|, and the ``route``.

    ``lever``: solver's tolerances a step that it may hold: differences divide what the solver leaves by their widths.
    """

    size: float
    limit: float
    growth: float
    route: str = ""
    lever: float = 10.0


class _Series(NamedTuple):
    """Steps S and the flow from one point at step sizes ``times``: differences from the start in units of ``scale``."""

    z: np.ndarray
    scale: np.ndarray
    times: np.ndarray
    moved: np.ndarray
    error: np.ndarray
    field: np.ndarray
    noise: float
    flow_error: float
    rate: float


class _Examination:
    """What the rows share: the step, the points, and what the earlier ones found."""

    def __init__(
        self, *, step, energy, eps, claims, given, hamiltonian, delta, tighter, invariants, symmetries, seed, notes
    ):
        self.step, self.energy, self.eps, self.claims = step, energy, eps, claims
        self.given, self.hamiltonian, self.delta, self.tighter = given, hamiltonian, delta, tighter
        self.invariants, self.symmetries, self.seed, self.notes = invariants, symmetries, seed, notes
        self.d = step.dim
        self.points: list[np.ndarray] = []
        self.excluded = "the step gave no answer"  # why the later rows cannot be run, if not empty
        self.slow = 1.0  # seconds a call
        self.floor = 0.0  # defects of reversal up to this were excused: the solver's
        self.repeated: Row | None = None
        self.rates: tuple[float, float] | None = None
        self.orders: list[float] = []
        self.exchanged = False
        self.order_held = False
        self.balance = np.ones(2 * self.d)  # (t, 1/t)
        self.failed: set[str] = set()
        self.power = 0  # of the first term of the error that should not be there
        self._jacobians: dict = {}
        self._series: list[_Series] | None = None

    # ------------------------------------------------------------------------------------ points and conventions

    def answers(self) -> Row:
        """Finite, of the right shape, at points where H is finite; chooses the points on the way."""
        rng, tried = np.random.default_rng(self.seed), 0
        found: list[np.ndarray] = []
        refused: list[Misconduct] = []
        candidates = self.given or (self._candidate(rng, k) for k in range(40))
        wanted = len(self.given) or 12
        for z in candidates:
            if len(found) == wanted or (len(refused) >= 4 and not found):
                break
            if self.energy is not None and not self.energy.finite(z):
                continue
            began, tried = time.perf_counter(), tried + 1
            try:
                end = self.step(z, self.eps)
            except Misconduct as wrong:
                refused.append(wrong)
                continue
            self.slow = min(self.slow, time.perf_counter() - began)
            if self.coarse:  # from now on with numbers it can hold
                z = z.astype(np.float32).astype(float)
            if np.isfinite(end).all():
                found.append(z)
        if not found:
            if refused:
                raise refused[0]
            if tried == 0:
                self.excluded = "H is finite at none of the points tried; give points="
                raise Undecided(self.excluded)
            case = self.step.case(z, self.eps)
            why = f"not finite, or reported as failed, at all of {tried} points"
            return Row("answers", FAIL, basis=why, severity=MISCONDUCT, case=case)
        self.excluded = ""
        self.points = found[:4]
        self._convention()
        self.repeated = self._repeated()  # before complex numbers are tried, which a cache might keep
        if not self.excluded:
            self.points = self._calm(found)
        failed = tried - len(found)
        if failed:
            self.notes.append(f"gave no finite answer at {failed} of {tried} points; the others are examined")
        return Row("answers", PASS, basis=f"{len(found)} of {tried} points", severity=MISCONDUCT)

    def _candidate(self, rng: np.random.Generator, k: int) -> np.ndarray:
        """A point of the target's law where that is known; else normal ones of several widths, p to suit the kinetic energy."""
        width = (1.0, 1.0, 0.3, 1.0, 2.5)[k % 5]
        q, p = width * rng.standard_normal(self.d), rng.standard_normal(self.d)
        H = self.hamiltonian
        try:
            draw = getattr(getattr(getattr(H, "model", None), "reference", None), "draw", None)
            if draw is not None:
                q = np.array(draw(rng, 1)[0], dtype=float)
            if hasattr(H, "draw_momentum"):
                p = np.array(H.draw_momentum(q, rng), dtype=float)
            elif self.energy is not None:
                p = np.linalg.solve(np.linalg.cholesky(self._kinetic(np.concatenate([q, 0 * p]))).T, p)
        except Exception:  # not of that kind: the normal ones do
            pass
        z = np.concatenate([q, p])
        return np.array([float(f"{x:.3g}") for x in z])

    def _kinetic(self, z: np.ndarray) -> np.ndarray:
        """The Hessian of H in p, by central differences of the gradient."""
        energy, d, h = self.energy, self.d, 1e-3
        units = np.eye(2 * d)[d:]
        rows = [(energy.gradient(z + h * u)[d:] - energy.gradient(z - h * u)[d:]) / (2 * h) for u in units]
        return 0.5 * (np.array(rows) + np.array(rows).T)

    def _calm(self, found: list[np.ndarray]) -> list[np.ndarray]:
        """Of the points found, those at which a step turns phase space by less than about 0.8: eigenvalues near 1."""
        self._balance(found)
        if self.given:
            return found
        wanted = (6 if self.quick else 3) if self.d <= 10 else 3
        wanted += 4 * ("energy" in self.claims)
        turned: list[tuple[float, int, np.ndarray]] = []
        for k, z in enumerate(found):
            J = self.jacobian(z, self.eps, 1)
            if J is None:
                continue
            turn = float(np.abs(np.linalg.eigvals(J[0]) - 1).max())
            turned.append((max(turn, 0.8), k, z))
            if sum(t <= 0.8 for t, _, _ in turned) == wanted:
                break
        turned.sort(key=lambda entry: entry[:2])
        if not turned:
            return found[:wanted]
        if turned[0][0] > 0.8:
            self.notes.append(f"eps is large here: a step moves phase space by {turned[0][0]:.2g} of itself at least")
        return [z for _, _, z in turned[:wanted]]

    def _balance(self, found: list[np.ndarray]) -> None:
        """Units t_i of q_i and 1/t_i of p_i in which each pair turns as a circle, where they differ by more than 10."""
        d, logs = self.d, []
        for z in found[:3]:
            J = self.jacobian(z, self.eps, 1)
            if J is not None:
                ahead, back = np.diag(J[0][:d, d:]), np.diag(J[0][d:, :d])
                with np.errstate(all="ignore"):
                    logs.append(0.25 * np.log(np.abs(ahead / back)))
        if not logs:
            return
        mean = np.mean(logs, axis=0)
        if np.isfinite(mean).all() and np.ptp(mean) > math.log(10.0):
            t = np.exp(mean - mean.mean())
            self.balance = np.concatenate([t, 1 / t])
            self._jacobians.clear()

    def _convention(self) -> None:
        """Whether p' tends to p or to -p as eps goes to zero."""
        small, d = self.eps * (1e-2 if self.coarse else 1e-4), self.d
        kept, turned = 0, 0
        for z in self.points:
            end = self.step.quiet(z, small)
            if np.isfinite(end).all():
                same, other = np.abs(end[d:] - z[d:]).max(), np.abs(end[d:] + z[d:]).max()
                kept += same < 0.1 * other
                turned += other < 0.1 * same
        self.unclear = (kept == 0) == (turned == 0)
        self.step.flipped = turned > 0 and kept == 0
        if self.step.flipped:
            self.notes.append("the momentum comes back with the other sign: undone here, before all other rows")

    def momentum_convention(self) -> Row:
        self.need()
        name = "momentum convention"
        if self.unclear:
            return inconclusive(name, "as eps goes to 0, p' tends neither to p nor to -p")
        return Row(name, PASS, basis="turned round after the step" if self.step.flipped else "kept as it moves")

    def deterministic(self) -> Row:
        """The same answer to the same question, whatever was asked in between."""
        if self.repeated is None:
            raise NotApplicable(self.excluded)
        return self.repeated

    def _repeated(self) -> Row:
        name, z = "deterministic", self.points[0]
        other = self.points[-1] if len(self.points) > 1 else 0.5 * z
        first = [self.step.quiet(z, self.eps) for _ in range(3)]
        self.step.quiet(other, self.eps)
        again = [self.step.quiet(z, self.eps) for _ in range(2)]
        limit, case = 64 * self.unit, self.step.case(z, self.eps)
        apart = max(self.apart(first[0], x, z) for x in [*first, *again])
        if apart <= limit:
            return judged(name, apart, limit, "64 units of rounding")
        self.excluded = "its answer depends on more than its arguments"
        # What is kept between calls settles when the same is asked again and again; what is drawn does not.
        later = [self.step.quiet(z, self.eps) for _ in range(12)][-2:]
        if self.apart(later[0], later[1], z) <= max(limit, 1e-3 * apart):
            why = "the answer depends on what was asked before: something is kept between calls"
            return Row(name, FAIL, apart, limit, why, WRONG_LAW, case)
        why = "two equal calls differ: give its randomness to it, as step(draws, q, p, eps)"
        return Row(name, FAIL, apart, limit, why, MISCONDUCT, case)

    def gradient(self) -> Row:
        """The gradients given are those of H."""
        if self.energy is None or not self.energy.given:
            raise NotApplicable("no gradients were given")
        self.need()
        worst, limit, at = 0.0, 1e-6, self.points[0]
        halves = {"grad_q": range(self.d), "grad_p": range(self.d, 2 * self.d)}
        for z in self.points[:3]:
            for name, where in halves.items():
                if name not in self.energy.given:
                    continue
                given = self.energy.given[name].vector((self.d,), z[: self.d], z[self.d :])
                found = self.energy.differences(z, where)
                noise = 1e-15 * abs(self.energy(z)) / 1e-3
                size = np.abs(found).max() + np.abs(given).max() + noise * 1e6
                if np.abs(given - found).max() / size > worst:
                    worst, at = float(np.abs(given - found).max() / size), z
        limit = max(limit, 100 * self.energy.error, 1e3 * self.energy.foreign.epsilon)
        self.energy.error = 1e-14
        row = judged(
            "gradient of H",
            worst,
            limit,
            "error of the differences",
            severity=INEFFICIENT,
            case=self.step.case(at, self.eps),
        )
        if row.status == FAIL:
            self.energy.given = {}
            self.notes.append("the gradients given are not those of H: the flow is that of H")
        return row

    # ------------------------------------------------------------------------------------------------ shared tools

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

    def need(self, H: bool = False) -> None:
        if self.excluded:
            raise NotApplicable(self.excluded)
        if H and self.energy is None:
            raise NotApplicable("no H was given")

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

    def jacobian(self, z, eps, n, step: Step | None = None, how: str = ""):
        """(J, its error, |J|, the route) of n steps in scaled coordinates; None where there is none.

        ``how``: "" by complex step where that can be; "wide" by differences, which do not see what changes below a solver's
        tolerance; "near" by differences that look at the closest neighbourhood only.
        """
        step = step or self.step
        key = (z.tobytes(), eps, n, id(step), step.stream, how)
        if key not in self._jacobians:
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

            self._jacobians[key] = _columns(derivative, 2 * self.d)
        return self._jacobians[key]

    def noise(self, z, eps, n, step: Step | None = None) -> float:
        """How much the answer moves when the start moves by two units in the last place."""
        step, rng = step or self.step, np.random.default_rng(1)
        end = step.quiet(z, eps, n)
        moved = [step.quiet(z * (1 + self.unit * rng.integers(-2, 3, 2 * self.d)), eps, n) for _ in range(4)]
        found = [self.apart(end, x, z) for x in moved]
        return max((x for x in found if math.isfinite(x)), default=math.inf)

    def allowance(self, n: int, growth: float, delta: float | None, lever: float = 10.0) -> float:
        """What a solver of that tolerance may leave (it stops by the last change: principle 6 of the kit's plan)."""
        return 0.0 if not delta else lever * n * delta * (1 + growth) ** 2

    # -------------------------------------------------------------------------------------------- geometric defects

    def reversal_defect(self, z, eps, n, step: Step | None = None, how: str = "") -> Defect | None:
        step = step or self.step
        end = step.quiet(z, eps, n)
        back = self.flip(step.quiet(self.flip(end), eps, n)) if np.isfinite(end).all() else end
        J = self.jacobian(z, eps, n, step)
        if not np.isfinite(back).all() or J is None or J[2] > 1e6:
            return None
        growth = J[2]
        s = self.scale(z, end)
        rounding = 64 * self.unit * (n + 1) * (1 + growth) + 20 * (1 + growth) * self.noise(z, eps, n, step)
        return Defect(float(np.abs((back - z) / s).max()), rounding, growth, "rounding x |J|")

    def symplectic_defect(self, z, eps, n, step: Step | None = None, how: str = "") -> Defect | None:
        J = self.jacobian(z, eps, n, step, how)
        if J is None or J[2] > 1e6:
            return None
        value, error, growth, route = J
        d = self.d
        omega = np.block([[np.zeros((d, d)), np.eye(d)], [-np.eye(d), np.zeros((d, d))]])
        limit = 1e-10 * (1 + growth) ** 2 + 20 * math.sqrt(2 * d) * error * (1 + growth)
        return Defect(float(np.abs(value.T @ omega @ value - omega).max()), limit, growth, route, OF_DERIVATIVES)

    def volume_defect(self, z, eps, n, step: Step | None = None, how: str = "") -> Defect | None:
        J = self.jacobian(z, eps, n, step, how)
        if J is None or J[2] > 1e6:
            return None
        value, error, growth, route = J
        _, log_det = np.linalg.slogdet(value)
        inverse = np.linalg.norm(np.linalg.pinv(value), 2)
        limit = 2 * self.d * (1e-10 * (1 + growth) ** 2 + 10 * error * (1 + inverse))
        return Defect(abs(float(log_det)), limit, growth, route, OF_DERIVATIVES)

    def cases(self) -> list[tuple[np.ndarray, float, int]]:
        """Where geometric defects are looked for."""
        some = 2 if self.quick else 1
        found = [(z, self.eps, n) for z in self.points for n in ((1, 3) if some == 2 else (1,))]
        found += [(z, self.eps, 10) for z in self.points[:some]] if self.d <= 30 else []
        return found + [(z, self.eps / 3, 1) for z in self.points[:some]]

    def geometric(self, name: str, measure: Callable[..., Defect | None]) -> Row:
        """The worst case, and whether it is a fault of the map or may be the solver's."""
        self.need()
        claimed, found, streams = name in self.claims, [], (0, 1, 2) if self.step.random else (0,)
        for stream in streams:
            self.step.stream = stream
            for z, eps, n in self.cases():
                defect = measure(z, eps, n)
                if defect is not None:
                    limit = defect.limit + self.allowance(n, defect.growth, self.delta, defect.lever)
                    found.append((defect.size / limit, defect, limit, z, eps, n, stream))
        self.step.stream = 0
        worst = self._believed(measure, found)
        ratio, defect, limit, z, eps, n, self.step.stream = worst
        try:
            if not claimed:
                how = "holds" if ratio <= 1 else "does not hold"
                return Row(name, NOT_RUN, defect.size, basis=f"not claimed; {how} where measured")
            basis = defect.route + (", solver's tolerance" if self.delta else "")
            if ratio <= 1:
                if name == "reversible":
                    self.floor = defect.size
                return judged(name, defect.size, limit, basis)
            return self._at_fault(name, measure, defect, limit, basis, z, eps, n)
        finally:
            self.step.stream = 0

    def _believed(self, measure, found: list[tuple]) -> tuple:
        """The worst of the cases found, but for those that other differences contradict."""
        found.sort(key=lambda entry: -entry[0])
        for k, entry in enumerate(found):
            ratio, defect, limit, z, eps, n, self.step.stream = entry
            contradicted = ratio > 1 and k < 8 and self._contradicted(measure, defect, limit, z, eps, n)
            self.step.stream = 0
            if k == 8 and ratio > 1:
                raise Undecided("derivatives taken in different ways do not agree")
            if not contradicted:
                return entry
        raise Undecided("not measurable at any of the points: no derivative that can be relied on, or |J| above 1e6")

    def _contradicted(self, measure, defect: Defect, limit: float, z, eps, n) -> bool:
        """Whether differences, taken otherwise, do not see the defect: derivatives are believed if they agree.

        The derivative of an iterate that stopped at a tolerance is off by more than the iterate is, and a map with
        jumps has good differences only within a piece.
        """
        if self.coarse or defect.route not in ("complex step", "Ridders"):
            return False
        for how in ("wide", "near") if defect.route == "complex step" else ("near",):
            other = measure(z, eps, n, how=how)
            if other is None:
                continue
            allowed = other.limit + self.allowance(n, other.growth, self.delta, other.lever)
            if other.size <= allowed and allowed < max(4 * limit, 0.1 * defect.size):
                return True
        return False

    def _at_fault(self, name, measure, defect, limit, basis, z, eps, n) -> Row:
        relative = defect.size / (n * (1 + defect.growth) ** 2)
        if self.tighter is not None and not self.delta:
            tight = measure(z, eps, n, step=self._tighter(TIGHT), how="wide")
            if tight is not None and tight.size <= tight.limit + self.allowance(n, tight.growth, TIGHT, tight.lever):
                if name == "reversible":
                    self.floor = defect.size
                why = f"the solver's: {tight.size:.2g} with its tolerance at {TIGHT:g}"
                return Row(name, PASS, defect.size, None, why)
        elif (
            self.delta is None
            and relative < SMALL
            and not any(self._power_law(measure, x) for x in [z, *self.points[:5]])
        ):
            if name == "reversible":
                self.floor = defect.size
            why = (
                "above rounding, and no power of eps: perhaps a solver's tolerance; give tolerance= "
                "(0 if it solves nothing) or with_tolerance="
            )
            return inconclusive(name, why, defect.size)

        def fails(z, eps, n):
            found = measure(z, eps, n)
            return found is not None and found.size > max(
                found.limit + self.allowance(n, found.growth, self.delta, found.lever), 0.01 * defect.size
            )

        self.failed.add(name)
        case = self.step.case(*self.shrunk(fails, z, eps, n))
        return Row(name, FAIL, defect.size, limit, basis, WRONG_LAW, case)

    def _tighter(self, delta: float) -> Step:
        step = self.tighter(delta)
        step.flipped = self.step.flipped
        return step

    def _power_law(self, measure, z) -> bool:
        """Whether the defect of one step grows with eps along a smooth curve, of slope above 0.8 in log-log, to 0.005.

        What an iteration leaves that stops at a tolerance jumps with the number of iterations, and stays below about the
        tolerance at any eps. Six sizes in a row must lie on a parabola.
        """
        x, y = math.log2(1.5) * np.arange(-4, 15), np.full(19, np.nan)
        for k in range(len(x)):
            defect = measure(z, float(self.eps * 2 ** x[k]), 1)
            if defect is None or defect.size > 0.1 * (1 + defect.growth) ** 2:
                break
            if defect.size > 10 * defect.limit:
                y[k] = math.log2(defect.size)
        for k in range(len(x) - 5):
            here, sizes = x[k : k + 6], y[k : k + 6]
            if not sizes.max() > math.log2(5e-3):  # NaN too
                continue
            curve = np.polyfit(here, sizes, 2)
            smooth = np.abs(np.polyval(curve, here) - sizes).max() < 0.3
            if smooth and np.polyval(np.polyder(curve), here).min() > 0.8:
                return True
        return False

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

    def reversible(self) -> Row:
        self.need()
        if self.step.random:
            return self._reversible_in_law()
        return self.geometric("reversible", self.reversal_defect)

    def _reversible_in_law(self) -> Row:
        """For a step that draws: the ways from z to z' have together the probability of the ways back."""
        name, worst, real = "reversible", (0.0, self.points[0]), False
        matches = 0
        for stream, z in enumerate(self.points[:3]):
            self.step.stream = stream
            try:
                ways = list(leaves(self.step, z, self.eps))
                for z_new, there in self._grouped(ways, z):
                    back = 0.0
                    for mirrored in (False, True) if ways[0].continuous else (False,):
                        home = [
                            leaf.probability
                            for leaf in leaves(self.step, self.flip(z_new), self.eps, mirrored=mirrored)
                            if self.apart(self.flip(leaf.z), z, z) <= self._same(z)
                        ]
                        back = min((back, sum(home)), key=lambda x: abs(x - there))
                    matches += 1
                    real = real or ways[0].continuous
                    if abs(back - there) > worst[0]:
                        worst = (abs(back - there), z)
            except TooMany as why:
                raise Undecided(str(why)) from None
            finally:
                self.step.stream = 0
        if matches == 0:
            raise Undecided("no way had a finite end")
        apart, z = worst
        basis = f"|P(z -> z') - P(Fz' -> Fz)| over all ways its draws fall out, {matches} pairs"
        if "reversible" not in self.claims:
            return Row(name, NOT_RUN, apart, basis="not claimed; " + basis)
        if apart > 1e-9 and real:
            raise Undecided("no way back with the same real numbers drawn, nor with their mirror images")
        return judged(name, apart, 1e-9, basis, case=self.step.case(z, self.eps))

    def _same(self, z) -> float:
        J = self.jacobian(z, self.eps, 1)
        growth = 1.0 if J is None else J[2]
        slack = 64 * self.unit * (1 + growth) ** 2 + 20 * (1 + growth) * self.noise(z, self.eps, 1)
        return max(slack + self.allowance(1, growth, self.delta), 1e-9 if self.delta is None else 0.0)

    def _grouped(self, ways, z) -> list[tuple[np.ndarray, float]]:
        """Ends that agree taken together, with their probabilities."""
        groups: list[list[Any]] = []
        for leaf in ways:
            if not np.isfinite(leaf.z).all():
                continue
            for group in groups:
                if self.apart(group[0], leaf.z, z) <= self._same(z):
                    group[1] += leaf.probability
                    break
            else:
                groups.append([leaf.z, leaf.probability])
        return [(end, probability) for end, probability in groups]

    def symplectic(self) -> Row:
        return self.geometric("symplectic", self.symplectic_defect)

    def volume(self) -> Row:
        return self.geometric("volume", self.volume_defect)

    def composition(self) -> Row:
        """n steps in one call are n calls."""
        self.need()
        name = "composition"
        if not self.step.counts:
            raise NotApplicable("the step takes no n")
        if self.step.random:
            raise NotApplicable("the step draws: n steps in one call need not draw as n calls do")

        def measure(z, eps, n, step=None, how=""):
            step = step or self.step
            J = self.jacobian(z, eps, n, step)
            ends = step.quiet(z, eps, n), step.one_at_a_time(z, eps, n)
            if J is None or J[2] > 1e6 or not (np.isfinite(ends[0]).all() and np.isfinite(ends[1]).all()):
                return None
            growth = J[2]
            limit = 64 * self.unit * (n + 1) * (1 + growth) + 20 * (1 + growth) * self.noise(z, eps, n, step)
            return Defect(self.apart(*ends, z), limit, growth, "rounding x |J|")

        worst = None
        for z in self.points[:3]:
            for n in (2, 3, 10, 50) if self.quick else (2, 3):
                defect = measure(z, self.eps, n)
                if defect is not None:
                    limit = defect.limit + self.allowance(n, defect.growth, self.delta, defect.lever)
                    if worst is None or defect.size / limit > worst[0]:
                        worst = (defect.size / limit, defect, limit, z, self.eps, n)
        if worst is None:
            raise Undecided("not measurable at any of the points")
        ratio, defect, limit, z, eps, n = worst
        if ratio <= 1:
            return judged(name, defect.size, limit, defect.route)
        if self.delta is None and defect.size < SMALL * n * (1 + defect.growth) ** 2:
            return inconclusive(name, "above rounding; perhaps a solver's tolerance: give tolerance=", defect.size)

        def fails(z, eps, n):
            found = measure(z, eps, n)
            return n > 1 and found is not None and found.size > max(found.limit, 0.01 * defect.size)

        case = self.step.case(*self.shrunk(fails, z, eps, n))
        return Row(name, FAIL, defect.size, limit, defect.route, INEFFICIENT, case)

    # ----------------------------------------------------------------------------------------- against the true flow

    def series(self) -> list[_Series]:
        """Steps of many sizes and the flow, from up to three points."""
        self.need(H=True)
        if self._series is None:
            self._series, why = [], ""
            for z in self.points[: 3 if self.quick else 2]:
                try:
                    self._series.append(self._followed(z))
                except (Undecided, Misconduct) as reason:
                    why = str(reason)
            if not self._series:
                raise Undecided(why)
        if not self._series:
            raise Undecided("the flow of H could not be followed")
        return self._series

    def _followed(self, z: np.ndarray) -> _Series:
        top = self._longest()
        grids = [top / 2**k * np.arange(1, NODES + 1) / NODES for k in range(3)]
        times = np.unique(np.concatenate([*grids, top / 2.0 ** np.arange(12)]))
        ends = np.array([self._mean(z, float(t)) for t in times])
        good = np.cumprod(np.isfinite(ends).all(axis=1)).astype(bool)  # up to the first that failed
        times, ends = times[good], ends[good]
        if len(times) < 8:
            raise Undecided("the step fails at small eps")
        scale = self.scale(z, *ends[times <= self.eps])
        field = self.energy.field(z) / scale
        rate = 1.0
        if self.step.random:
            start = leading_term(times[:8] / times[7], (ends[:8] - z) / scale, 1, 1e-15, (3, 4)).value / times[7]
            rate = float(start @ field / (field @ field))
            if np.abs(start - rate * field).max() > 1e-3 * np.abs(field).max() or rate <= 0.05:
                rate = 1.0
        with np.errstate(all="ignore"):
            flow, error = true_flow(self.energy, z, rate * times, scale)
        delta = 10 * (self.delta or 0.0) / min(scale.min(), 1.0)
        floor = self.floor if not self.delta else 0.0
        noise = 2 * self.unit + self.noise(z, self.eps, 1) + error + delta + floor
        return _Series(
            z, scale, times, (ends - z) / scale, (ends - flow) / scale, field, noise, error + self.unit, rate
        )

    def _longest(self) -> float:
        """Of the steps held against the flow; single precision shows its order at large ones only."""
        return (8 if self.coarse else 2) * self.eps

    def _mean(self, z: np.ndarray, eps: float) -> np.ndarray:
        """Where a step goes; of one that draws, the mean over the ways its discrete draws fall out."""
        if not self.step.random:
            return self.step.quiet(z, eps)
        try:
            ways = list(leaves(self.step, z, eps, most=130))
        except TooMany as why:
            raise Undecided(str(why)) from None
        return np.sum([leaf.probability * leaf.z for leaf in ways], axis=0)

    def order(self) -> Row:
        """The slope of the error of one step, less one, at the smallest eps at which it stands clear of rounding."""
        self.need(H=True)
        name, found, exact = "order", [], 0
        for series in self.series():
            slope = self._slope(series)
            if slope == math.inf:
                exact += 1
            elif slope is not None:
                found.append((slope, series.z))
        self.orders = [order for order, _ in found]
        if not found:
            if exact:
                self.notes.append("the step is the true flow, to rounding")
                self.order_held = True
                return Row(name, PASS, basis="the error is at rounding for all eps: exact", severity=INEFFICIENT)
            raise Undecided("no range of eps in which the error is neither saturated nor rounding or the solver's")
        least, z = min(found, key=lambda pair: pair[0])
        if "order" not in self.claims:
            return Row(name, NOT_RUN, least, basis="not claimed; measured against the true flow")
        claimed = self.claims["order"]
        if least > claimed + 0.5:
            self.notes.append(f"of order {least:.2f}, more than the {claimed:g} claimed")
        self.order_held = least >= claimed - 0.25
        basis = f"{claimed:g} claimed; slope against the true flow of H, {len(found)} points"
        return judged(
            name,
            least,
            claimed - 0.25,
            basis,
            relation=">=",
            severity=INEFFICIENT,
            case=self.step.case(z, self.eps),
        )

    def _slope(self, series: _Series) -> float | None:
        """The order at one point; infinity where it is exact, None where there is no answer."""
        top = self._longest()
        sizes, errors = [], []
        for k in range(12):
            at = np.flatnonzero(np.isclose(series.times, top / 2**k, rtol=1e-12))
            if len(at):
                sizes.append(top / 2**k)
                errors.append(np.abs(series.error[at[0]]).max())
        clear = [e > 100 * series.noise for e in errors]
        if not any(clear):
            return math.inf if series.noise < 1e-9 else None
        last = len(clear) - 1 - clear[::-1].index(True)
        first = next(k for k in range(last, -1, -1) if k == 0 or not clear[k - 1])
        if last - first < 2:
            return None
        logs = np.log2(errors[first : last + 1])
        slopes = logs[:-1] - logs[1:]
        if abs(slopes[-1] - slopes[-2]) > 0.25:
            return None
        # What is left of the next term halves with eps.
        return float(2 * slopes[-1] - slopes[-2]) - 1

    def small_step(self) -> Row:
        """The terms eps ... eps^k of the error, which the claimed order excludes, by least squares at several ranges of eps.

        A term is believed when the ranges agree on it; a rounded coefficient shows here long before it does in the slope.
        """
        self.need(H=True)
        name = "small step"
        if "order" not in self.claims:
            raise NotApplicable("no order is claimed")
        order = int(self.claims["order"])
        worst, finest = None, math.inf
        for series in self.series():
            for power in range(1, min(order, 6) + 1):
                terms = self._terms(series, power)
                if not terms:
                    break
                E, term = min(terms, key=lambda entry: entry[1].error / entry[0] ** power)
                k = int(np.argmin(np.abs(series.times - E)))
                natural = max(np.abs(series.moved[k] - series.error[k]).max(), E * np.abs(series.field).max())
                size, limit = np.abs(term.value).max() / natural, CLEAR * term.error / natural
                finest = min(finest, limit)
                if self._confirmed(terms, power):
                    if worst is None or size / limit > worst[0] / worst[1]:
                        worst = (size, limit, series.z, power)
                    break
        if worst is not None:
            number, limit, z, self.power = worst
            basis = f"term eps^{self.power} of the error, in parts of the step; what the fit resolves"
            return Row(name, FAIL, number, limit, basis, INEFFICIENT, self.step.case(z, self.eps))
        if not finest < 1e-3:
            raise Undecided("the terms of the error cannot be told from rounding or the solver's tolerance")
        return Row(
            name, PASS, basis=f"no terms up to eps^{order}; seen from {finest:.1g} of a step", severity=INEFFICIENT
        )

    def _terms(self, series: _Series, power: int) -> list[tuple[float, Term]]:
        """The error's term of that power, at ranges of eps of three lengths; what is before it is taken to be zero."""
        found = []
        for k in range(3):
            E = self._longest() / 2**k
            nodes = E * np.arange(1, NODES + 1) / NODES
            at = np.array([np.argmin(np.abs(series.times - t)) for t in nodes])
            if np.abs(series.times[at] - nodes).max() < 1e-9 * E:
                found.append((E, leading_term(nodes / E, series.error[at], power, series.flow_error)))
        return found

    @staticmethod
    def _confirmed(terms, power: int) -> bool:
        """Whether at least two ranges see the same term, and those that do not could not."""
        seen = [(E, c / E**power) for E, (c, error) in terms if np.abs(c).max() > CLEAR * error]
        if len(seen) < 2:
            return False
        _, value = seen[-1]  # the smallest range that sees it
        size = np.abs(value).max()
        for E, (c, error) in terms:
            allowed = CLEAR * error + (0.2 * size * E**power if np.abs(c).max() > CLEAR * error else 0.0)
            if np.abs(c - value * E**power).max() > allowed:
                return False
        return True

    def elapsed_time(self) -> Row:
        """How fast positions move as eps goes to zero, over how fast they move along the flow of H."""
        self.need(H=True)
        name, d, found = "elapsed time", self.d, []
        for series in self.series():
            terms = self._terms(series, 1)
            if not terms:
                continue
            E, term = min(terms, key=lambda entry: entry[1].error / entry[0])
            velocity, force = series.field[:d], series.field[d:]
            extra, blur = term.value / E, CLEAR * term.error / E
            moved = [
                (part @ more) / max(part @ part, 1e-300) for part, more in ((velocity, extra[:d]), (force, extra[d:]))
            ]
            size = np.abs(velocity).max()
            if size > 1e3 * blur:
                found.append((moved[0], moved[1], blur / size, series))
        if not found:
            raise Undecided("too coarse to tell")
        ahead, push, blur, series = max(found, key=lambda entry: abs(entry[0]) / entry[2])
        if self.step.random and any(abs(s.rate - 1) > 1e-9 for *_, s in found):
            low, high = min(s.rate for *_, s in found), max(s.rate for *_, s in found)
            raise NotApplicable(f"the step draws: its time is {low:.3g} to {high:.3g} of eps")
        self.rates = (1 + ahead, 1 + max((entry[1] for entry in found), key=abs))
        self.exchanged = self._is_exchanged(series)
        several = self._rate_of_three(series) if not self.step.random else 1.0
        n = 1
        if abs(several - 1) > max(abs(ahead), 1e-3):
            n, ahead, blur = 3, several - 1, max(blur, 1e-3)
        if not {"order", "exact time"} & self.claims.keys():
            return Row(name, NOT_RUN, abs(ahead), basis="not claimed")
        basis = f"{(1 + ahead) * n * self.eps:.4g} where n*eps = {n * self.eps:.4g} was asked; error of the expansion"
        case = self.step.case(series.z, self.eps, n)
        return judged(name, abs(ahead), blur, basis, severity=INEFFICIENT, case=case)

    def _rate_of_three(self, series: _Series) -> float:
        """The same for three steps, from a few small ones: to about 1e-3."""
        E, d = self.eps / 8, self.d
        x = np.arange(1, 7) / 6
        ends = np.array([self.step.quiet(series.z, float(E * t), 3) for t in x])
        if not np.isfinite(ends).all() or series.noise > 1e-8:
            return 1.0
        start = leading_term(x, (ends - series.z) / series.scale, 1, series.flow_error, (3,)).value[:d] / (3 * E)
        velocity = series.field[:d]
        return float(start @ velocity / max(velocity @ velocity, 1e-300))

    def _is_exchanged(self, series: _Series) -> bool:
        """Whether positions move by the inverse of the Hessian of the kinetic energy in place of the Hessian."""
        d, z = self.d, series.z
        try:
            inverse_mass = self._kinetic(z)
            other = np.linalg.solve(inverse_mass, z[d:]) / series.scale[:d]
        except (Misconduct, np.linalg.LinAlgError):
            return False
        if np.abs(other - series.field[:d]).max() < 0.01 * np.abs(series.field[:d]).max():
            return False
        k = int(np.argmin(np.abs(series.times - self.eps / 32)))
        moved = series.moved[k][:d] / series.times[k]
        return bool(np.abs(moved - other).max() < 0.1 * np.abs(other).max())

    def energy_error(self) -> Row:
        """Conserved to rounding if that is claimed; otherwise its error on an orbit falls as eps^k."""
        self.need(H=True)
        if "energy" in self.claims:
            return self._energy_kept()
        name = "energy"
        if "order" not in self.claims:
            raise NotApplicable("neither order nor conservation is claimed")
        if self.step.random:
            raise NotApplicable("the step draws: each of its ways has an order of its own")
        order, found, kept = self.claims["order"], [], 0
        for z in self.points[: 3 if self.quick else 1]:
            here = self.energy(z)
            sizes = [self._orbit_error(z, self.eps / 2**k, 10 * 2**k) for k in range(3)]
            noise = 1e3 * max(self.unit, self.energy.foreign.epsilon) * (1 + abs(here)) + 100 * (
                self.delta or self.floor
            )
            if not all(math.isfinite(x) for x in sizes):
                continue
            if sizes[0] <= noise:
                kept += 1
                continue
            if sizes[-1] <= noise:
                continue
            slopes = np.log2(np.array(sizes[:-1]) / np.array(sizes[1:]))
            if abs(slopes[0] - slopes[1]) < 0.35:
                found.append((float(2 * slopes[1] - slopes[0]), z))
        if not found:
            if kept:
                return Row(name, PASS, basis="conserved to rounding", severity=INEFFICIENT)
            raise Undecided("no clear slope: eps is too large, or the error is the solver's")
        slope, z = min(found, key=lambda pair: pair[0])
        if slope < order - 0.4 and self.order_held:
            raise Undecided(f"slope {slope:.2f}, though the step has its order: H may not be smooth along the orbit")
        return judged(
            name,
            slope,
            order - 0.4,
            "slope of the largest energy error on an orbit of time 10 eps",
            relation=">=",
            severity=INEFFICIENT,
            case=self.step.case(z, self.eps, 10),
        )

    def _orbit_error(self, z: np.ndarray, eps: float, n: int) -> float:
        here, worst = self.energy(z), 0.0
        for _ in range(n):
            z = self.step.quiet(z, eps)
            if not np.isfinite(z).all():
                return math.inf
            worst = max(worst, abs(self.energy(z) - here))
        return worst

    def _energy_kept(self) -> Row:
        worst = None
        d, unit = self.d, max(self.unit, self.energy.foreign.epsilon)

        def measure(z, eps, n):
            end = self.step.quiet(z, eps, n)
            if not np.isfinite(end).all():
                return None
            before, after = self.energy(z), self.energy(end)
            rest = [abs(self.energy(np.concatenate([x[:d], 0 * x[d:]]))) for x in (z, end)]
            terms = 1 + abs(before) + abs(after) + sum(rest)
            return abs(after - before), 64 * unit * (n + 1) * terms + 10 * n * (self.delta or 0.0) * terms

        for z in self.points:
            for n in (1, 3, 10, 50):
                found = measure(z, self.eps, n)
                if found and (worst is None or found[0] / found[1] > worst[0] / worst[1]):
                    worst = (*found, z, n)
        if worst is None:
            raise Undecided("no finite answer")
        size, limit, z, n = worst
        case = ""
        if size > limit:

            def fails(z, eps, n):
                found = measure(z, eps, n)
                return bool(found) and found[0] > max(found[1], 0.01 * size)

            case = self.step.case(*self.shrunk(fails, z, self.eps, n))
        return judged(
            "energy", size, limit, "claimed to be conserved: rounding of the energy", severity=INEFFICIENT, case=case
        )

    def shadow_energy(self) -> Row:
        """Where H is quadratic: the generator log(J)/eps of the step tends to that of the flow as eps^k."""
        self.need(H=True)
        name, z, d = "shadow energy", self.points[0], self.d
        if "order" not in self.claims or self.step.random or d > 20:
            raise NotApplicable("no order is claimed" if "order" not in self.claims else "the step draws, or d > 20")
        slope = self.energy.gradient
        zero = np.zeros(2 * d)
        if not self.energy.finite(zero):
            raise NotApplicable("H is not quadratic")
        for a in self.points[:3]:
            for t in (-1.0, 0.1, 3.0, 30.0):
                straight = slope(zero) + t * (slope(a) - slope(zero))
                if not np.abs(slope(t * a) - straight).max() < 1e-8 * np.abs(straight).max():
                    raise NotApplicable("H is not quadratic")
        hessian = np.array([slope(e) - slope(zero) for e in np.eye(2 * d)])
        field = np.vstack([hessian[d:], -hessian[:d]])
        sizes = []
        for k in range(1, 5):
            eps = self.eps / 2**k
            J = self.jacobian(z, eps, 1)
            if J is None:
                continue
            s = self.scale(z, self.step.quiet(z, eps))
            wanted = field * s / s[:, None]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "may be inaccurate" by far less than what is measured
                generator = np.real(scipy.linalg.logm(J[0])) / eps
            blur = (
                20 * (J[1] + 1e-15) / eps + 1e2 * self.energy.error + 10 * (self.delta or self.floor) / eps
            ) / np.abs(wanted).max()
            sizes.append((float(np.abs(generator - wanted).max() / np.abs(wanted).max()), blur))
        if len(sizes) < 2:
            raise Undecided("no derivative of the step")
        clear = [size for size, blur in sizes if size > 30 * blur]
        case = self.step.case(z, self.eps)
        if len(clear) < 2:
            if sizes[0][0] < 1e-6:
                return Row(name, PASS, sizes[0][0], basis="at rounding", severity=INEFFICIENT)
            raise Undecided("not clear of rounding or the solver's tolerance")
        fall = math.log2(clear[-2] / clear[-1])
        basis = f"slope of log(J)/eps against the generator of H; apart by {clear[-1]:.2g}"
        return judged(name, fall, self.claims["order"] - 0.25, basis, relation=">=", severity=INEFFICIENT, case=case)

    # ------------------------------------------------------------------------------------------ what its author declares

    def conserved(self) -> Row:
        """The declared invariants, over ten steps, to rounding."""
        self.need()
        if not self.invariants:
            raise NotApplicable("none declared")
        worst, d = None, self.d
        for label, f in self.invariants.items():
            for z in self.points:
                end = self.step.quiet(z, self.eps, 10)
                J = self.jacobian(z, self.eps, 1)
                if not np.isfinite(end).all() or J is None:
                    continue
                before, after = (f.number(x[:d], x[d:]) for x in (z, end))
                slope = np.abs(differences.jacobian(functools.partial(_of_state, f, d), end).value).ravel()
                size = abs(before) + float(slope @ np.abs(end))
                noise = self.noise(z, self.eps, 10) * float(slope @ self.scale(z, end))
                limit = 1000 * self.unit * size + 20 * noise
                limit += self.allowance(10, J[2], self.delta or self.floor) * float(slope.sum())
                if worst is None or abs(after - before) / limit > worst[0]:
                    worst = (abs(after - before) / limit, abs(after - before), limit, label, z)
        if worst is None:
            raise Undecided("no finite answer")
        _, size, limit, label, z = worst
        case = self.step.case(z, self.eps, 10)
        return judged("invariants", size, limit, f"{label}; rounding", severity=INEFFICIENT, case=case)

    def equivariance(self) -> Row:
        """The declared symmetries A: S A = A S."""
        self.need()
        if not self.symmetries:
            raise NotApplicable("none declared")
        worst, d = None, self.d
        for k, (on_q, on_p) in enumerate(self.symmetries):

            def moved(x, on_q=on_q, on_p=on_p):
                return np.concatenate([np.asarray(on_q(x[:d].copy())), np.asarray(on_p(x[d:].copy()))]).astype(float)

            for z in self.points:
                J = self.jacobian(z, self.eps, 1)
                ends = self.step.quiet(z, self.eps, 3), self.step.quiet(moved(z), self.eps, 3)
                if J is None or not all(np.isfinite(x).all() for x in ends):
                    continue
                growth = J[2] ** 3
                limit = 1000 * self.unit * (1 + growth) + 20 * (1 + growth) * self.noise(z, self.eps, 3)
                limit += self.allowance(3, growth, self.delta or self.floor)
                size = self.apart(moved(ends[0]), ends[1], z)
                if worst is None or size / limit > worst[0]:
                    worst = (size / limit, size, limit, k, z)
        if worst is None:
            raise Undecided("no finite answer")
        _, size, limit, k, z = worst
        case = self.step.case(z, self.eps, 3)
        return judged("equivariance", size, limit, f"symmetry {k}; rounding x |J|", severity=INEFFICIENT, case=case)

    # ------------------------------------------------------------------------------------------------- the solver

    def delta_scaling(self) -> Row:
        """With the solver ever tighter the defects of reversal and symplecticity fall with its tolerance."""
        self.need()
        name, z = "delta scaling", self.points[0]
        if self.tighter is None:
            raise NotApplicable("with_tolerance= was not given")
        measures = [
            (k, m)
            for k, m in (("reversible", self.reversal_defect), ("symplectic", self.symplectic_defect))
            if k in self.claims
        ]
        if not measures or self.step.random:
            raise NotApplicable("neither reversible nor symplectic is claimed, or the step draws")
        worst, seen = (0.0, 0.0, 1.0), 0
        for delta in (1e-4, 1e-6, 1e-8, 1e-10):
            step = self._tighter(delta)
            for _, measure in measures:
                defect = measure(z, self.eps, 1, step=step, how="wide")
                if defect is not None:
                    seen += 1
                    limit = defect.limit + self.allowance(1, defect.growth, delta, defect.lever)
                    worst = max(worst, (defect.size / limit, defect.size, limit))
        if not seen:
            raise Undecided("no finite answer with another tolerance")
        case = self.step.case(z, self.eps)
        return judged(
            name,
            worst[1],
            worst[2],
            "rounding + n delta |J|^2 times 10, of derivatives 300; delta 1e-4 ... 1e-10",
            case=case,
        )

    def solver_failure(self) -> Row:
        """At steps too large for a solver: it says so, or what it gives is still reversible.

        Where it is not reversible but symplectic, the equation has several solutions, which no solver can help.
        """
        self.need()
        name = "solver failure"
        if self.delta == 0:
            raise NotApplicable("it solves nothing")
        if self.step.random or "reversible" not in self.claims:
            raise NotApplicable("the step draws, or does not claim to be reversible")
        ordinary = self.symplectic_defect(self.points[0], self.eps, 1)
        if self.failed or ordinary is None or ordinary.size > SMALL * (1 + ordinary.growth) ** 2:
            raise NotApplicable("not reversible, or not symplectic, at ordinary steps either")
        reported = fine = other = unclear = 0
        for z in self.points[: 5 if self.quick else 1]:
            for eps in [self.eps * factor for factor in LARGE_STEPS]:
                kind = self._beyond(z, eps)
                if kind == "wrong":

                    def fails(z, eps, n):
                        return self._beyond(z, eps) == "wrong"

                    z, eps, _ = self.shrunk(fails, z, eps, 1)
                    why = "an answer that is neither reversible nor symplectic, as if it were solved; nothing reported"
                    return Row(name, FAIL, basis=why, case=self.step.case(z, eps))
                reported += kind == "reported"
                fine += kind == "fine"
                other += kind == "other"
                unclear += kind == "unclear"
        if other:
            return inconclusive(
                name, f"symplectic but not reversible in {other} hard cases: its equation has several solutions there"
            )
        if not reported + fine:
            raise Undecided("no hard case could be judged")
        return Row(name, PASS, basis=f"hard cases: {reported} reported, {fine} reversible, {unclear} not clear")

    def _beyond(self, z: np.ndarray, eps: float) -> str:
        """What a step does where a solver may fail."""
        end = self.step.quiet(z, eps)
        back = self.flip(self.step.quiet(self.flip(end), eps)) if np.isfinite(end).all() else end
        if not np.isfinite(back).all():
            return "reported"
        # Above what a solver's tolerance may leave, which is not known if it was not given.
        least = 0.03 if self.delta is None else max(SMALL, 100 * self.delta)
        if self.apart(back, z, z) < least:
            return "fine"
        defect = self.symplectic_defect(z, eps, 1, how="near")
        if defect is None or defect.growth > 1e3 or defect.limit > 0.01 * (1 + defect.growth) ** 2:
            return "unclear"
        if defect.size < least * (1 + defect.growth) ** 2:
            return "other" if defect.growth < 1e2 else "unclear"
        return "wrong" if defect.size > 10 * defect.limit else "unclear"

    def diagnose(self, rows: dict[str, Row]) -> list[str]:
        return typical(
            rows,
            Findings(
                rates=self.rates,
                exchanged=self.exchanged,
                power=self.power,
                orders=self.orders,
                random=bool(self.step.random),
                claims=self.claims,
            ),
        )


def _of_state(f: Foreign, d: int, z: np.ndarray) -> np.ndarray:
    return f.vector((), z[:d], z[d:]).reshape(1)


def _columns(derivative: Callable, size: int):
    """(J, its error, |J|, the route) column by column; None where one is not finite."""
    columns = [derivative(u) for u in np.eye(size)]
    if any(np.shape(c.value) != (size,) or not np.isfinite(c.value).all() for c in columns):
        return None
    value = np.stack([c.value for c in columns], axis=-1)
    route = "Ridders" if any(c.route == "Ridders" for c in columns) else "complex step"
    return value, max(c.error for c in columns), float(np.linalg.norm(value, 2)), route

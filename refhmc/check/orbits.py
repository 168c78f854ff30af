"""``refhmc.check.orbit``: is a tree sampler's law exactly invariant? Asked on single orbits, without sampling.

A transition of NUTS, or of any other sampler that walks along the orbit z_i of a reversible, volume-preserving map and stops at
one of its states, is a Markov matrix K(i -> j) on that orbit. It leaves pi exactly invariant if

    sum_i pi(z_i) K(i -> j) = pi(z_j)        for every j

and K is computed by trying all answers to the random questions the transition asks (:mod:`refhmc.check.enumeration`), from
every state that can reach z_j. Where this fails, the weaker statement that the position's law asks for is looked at too, with
F(q, p) = (q, -p):

    sum_i pi(z_i) (K(z_i -> q_j) + K(F z_i -> q_j)) = 2 pi(z_j)

A row fails only if both do, and ordinary runs confirm the computed K. Orbits: :mod:`refhmc.check.orbit_states`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from refhmc.check import orbit_states as states
from refhmc.check.draws import Draws
from refhmc.check.enumeration import Answers, OutOfBudget
from refhmc.check.foreign import SECONDS_PER_CALL, Foreign, Misconduct, NotApplicable, Undecided, examine, text_of
from refhmc.check.orbit_law import OFF, Finding, Subject, Table, worst_of
from refhmc.check.orbit_shapes import Steps, energy_of, meanings, of_refhmc, shapes_of
from refhmc.check.report import (
    FAIL,
    INCONCLUSIVE,
    INEFFICIENT,
    MISCONDUCT,
    PASS,
    WRONG_LAW,
    Report,
    Row,
    inconclusive,
    judged,
    not_run,
)

SAMPLES = 200  # ordinary runs from a state, to confirm the enumerated law
REFUTED = 1e-10  # chance of their disagreeing by accident
ALPHA = 1e-6  # false alarms of the sampled row


def _settle(subject: Subject, places, eps, depth) -> str:
    """Find out how it wants to be called; what it was called like. Misconduct if no way works."""
    trouble: Exception | None = None
    shapes = shapes_of(subject.foreign.function)
    if not shapes:
        raise NotApplicable("a transition must take draws and q, or draws, q and p")
    for shape in shapes:
        subject.shape = shape
        try:
            for q, p in places:
                source = Answers(symbolic=shape.symbolic)
                subject.read(subject.call(source, q, p, eps, depth))
                for seed in range(3):
                    subject.read(subject.call(Draws(np.random.default_rng(seed)), q, p, eps, depth))
            return str(shape)
        except Misconduct as wrong:
            if isinstance(wrong.__cause__, Undecided):
                trouble = wrong.__cause__
                break
            better = not isinstance(wrong.__cause__, (AttributeError, TypeError))
            worse = trouble is None or isinstance(trouble.__cause__, (AttributeError, TypeError))
            trouble = wrong if trouble is None or (better and worse) else trouble
    raise trouble if trouble is not None else Misconduct("it cannot be called")


def _repeats(subject: Subject, places, eps, depth) -> bool:
    """Whether the same answers give the same end, on a few sequences of answers."""
    for q, p in places:
        for last in range(4):
            ends = []
            for _ in range(2):
                rng = np.random.default_rng(last)
                at, _, offset = subject.read(subject.call(Draws(rng), q, p, eps, depth))
                ends.append(tuple(at.tolist()) if at is not None else offset)
            if ends[0] != ends[1]:
                return False
    return True


# ----------------------------------------------------------------------------------------------------------- the check


def orbit(
    transition,
    leap=None,
    target=None,
    depth: int = 3,
    *,
    eps: float | Sequence[float] | None = None,
    dim: int | None = None,
    H=None,
    p0=None,
    points: Sequence = (),
    threshold: float | None = None,
    seconds: float = 120.0,
    most_runs: int = 60_000,
    seed: int = 20261121,
    like=None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Whether ``transition`` leaves the target's law exactly invariant, on enumerated orbits of ``leap``.

    transition : ``transition(draws, q, p) -> q``, the momentum given; or with the arguments in another order, with a NumPy
        generator in the place of draws, without p (it is then the first normals asked for: unit mass), or a kernel of refhmc.
        It answers q, (q, p), an object with ``q`` or ``position``, or the whole number of steps it moved. All its randomness
        must be asked from draws (:class:`refhmc.check.Draws`). If it has parameters named ``eps`` (step_size, ...) or
        ``depth`` (max_depth, ...), they are given; so are ``leap`` and ``target``.
    leap : ``leap(q, p, eps) -> (q, p)``, or ``leap(q, p)`` with its step bound: the map whose orbit it walks.
    target : a log density q -> number, something with ``log_density(q)`` (unit mass), or the energy H(q, p).
    depth : the tree depth the transition was made with; it can go 2^depth - 1 steps.
    eps : the step of ``leap``, where it takes one; several, if the transition takes it too. H : the energy, if ``target`` is
    not enough. p0 : momentum of the first of ``points``, positions (d,) or pairs (q, p) to be tried before random ones.
    threshold : the limit at which the transition calls a trajectory divergent. Given, a rule that is not the same seen from
    all states of a trajectory fails; left out, it is only looked for at 1000 and mentioned.
    seconds, most_runs : the budget of the enumerations, in time and in transitions run.

    Raises TypeError on arguments that cannot be what they should be; nothing else.
    """
    if hasattr(transition, "step_size") and type(transition).__module__.startswith("refhmc."):
        eps = transition.step_size if eps is None else eps
        depth = min(depth, getattr(transition, "max_treedepth", depth))
        name = name or type(transition).__name__
        transition, leap, H = of_refhmc(type(transition)(**{**vars(transition), "max_treedepth": depth}), target)
    if target is None and H is None:
        raise TypeError("orbit: target or H must be given")
    if not callable(leap):
        raise TypeError(f"orbit: leap must be callable, got {type(leap).__name__}")
    if int(depth) != depth or not 1 <= depth <= 12:
        raise ValueError(f"depth must be a whole number from 1 to 12, got {depth!r}")
    work = _Work(
        transition, leap, target, int(depth), eps, dim, H, p0, points, threshold, seconds, most_runs, seed, like, name
    )
    foreign = [work.foreign, work.steps.foreign, work.energy_foreign]
    settings = {"depth": work.depth, **({} if eps is None else {"eps": eps}), **({} if dim is None else {"dim": dim})}
    return examine(
        "orbit",
        work.foreign.name,
        [
            ("leap reversible", work.leap_reversible),
            ("answers", work.answers),
            ("invariance", work.invariance),
            ("invariance at large steps", work.large_steps),
            ("invariance across a wall", work.wall),
            ("divergence threshold", work.limit),
            ("invariance, sampled", work.sampled),
            ("stays on the orbit", work.stays),
            ("probabilities sum to one", work.sums),
            ("depth", work.depths),
            ("reaches both directions", work.directions),
        ],
        settings=settings,
        seed=seed,
        foreign=foreign,
        notes=work.notes,
        diagnose=work.diagnose,
        seconds_per_call=seconds_per_call,
        false_alarm="enumerated rows: none; confirmed by ordinary runs before they fail (wrongly refuted with chance "
        f"{REFUTED:g}); a sampled row, where there is one: {ALPHA:g}",
    )


class _Work:
    """What the rows of one report share: the subject, the walker, the orbits' tables."""

    def __init__(
        self, transition, leap, target, depth, eps, dim, H, p0, points, threshold, seconds, most_runs, seed, like, name
    ):
        self.foreign = Foreign(transition, name, like)
        self.steps = Steps(leap, like)
        self.energy_foreign, self._energy, self.unit_mass = energy_of(target, H, like)
        self.depth, self.asked_dim, self.p0, self.points, self.threshold = depth, dim, p0, list(points), threshold
        self.model_dim = getattr(target, "dim", None)
        self.seconds, self.most_runs, self.seed = seconds, most_runs, seed
        given = meanings(transition)
        self.takes_eps = "eps" in given
        self.takes_depth = "depth" in given
        self.more = {"leap": leap, "target": target if target is not None else H}
        self.list_of_eps = [None] if eps is None else [float(e) for e in np.atleast_1d(eps)]
        self.walker: states.Walker | None = None
        self._subject: Subject | None = None
        self.ready = self.irreversible = False
        self.tables: list[tuple[str, Table]] = []
        self.furthest = 0
        self.runs = 0
        self.unfinished: list[states.Orbit] = []
        self.said: list[str] = []
        self.pattern: dict[str, Any] = {}
        self.began = time.monotonic()

    # ---- preparation

    def energy(self, q, p) -> float:
        with np.errstate(all="ignore"):
            return float(self._energy(q, p))

    @property
    def subject(self) -> Subject:
        if self._subject is None or self.irreversible:
            raise NotApplicable("there is no orbit to test on")
        return self._subject

    def _dim(self) -> int:
        if self.asked_dim is not None:
            return int(self.asked_dim)
        if self.points:
            return len(
                np.atleast_1d(np.asarray(self.points[0][0] if self._is_pair(self.points[0]) else self.points[0]))
            )
        if isinstance(self.model_dim, (int, np.integer)):
            return int(self.model_dim)
        trouble: Exception | None = None
        for d in (2, 1, 3, *range(4, 33)):
            q, p = 0.1 * np.ones(d), 0.2 * np.ones(d)
            try:
                self.energy(q, p)
                self.steps.ahead(q, p, self.list_of_eps[0])
                return d
            except Misconduct as wrong:
                trouble = trouble or wrong
        raise trouble if trouble is not None else Undecided("the dimension is not known: give dim")

    @staticmethod
    def _is_pair(point) -> bool:
        return isinstance(point, tuple) and len(point) == 2 and np.ndim(point[0]) == 1

    def _prepare(self) -> states.Walker:
        if self.walker is not None:
            return self.walker
        if self.steps.needs_eps and self.list_of_eps == [None]:
            if not self.takes_eps:
                raise NotApplicable("leap takes a step size: give eps, the one the transition walks with")
            self.list_of_eps = [0.25, 0.7, 1.2]
        d = self._dim()
        rng = np.random.default_rng([self.seed, 1])
        centre, scale = self._frame(d, rng)
        momentum = np.ones(d)
        for k, unit in enumerate(np.eye(d)):
            kinetic = self.energy(centre, unit) - self.energy(centre, 0 * unit)
            momentum[k] = 1 / math.sqrt(2 * kinetic) if math.isfinite(kinetic) and kinetic > 0 else 1.0
        coarse = max(self.steps.foreign.epsilon, self.energy_foreign.epsilon)
        walker = states.Walker(self.steps.ahead, self.steps.back, self.energy, centre, scale, momentum, coarse)
        self._subject = Subject(self.foreign, d, self.steps.foreign, self.more)
        self.walker = walker
        return walker

    def _frame(self, d: int, rng) -> tuple[np.ndarray, np.ndarray]:
        """A place where the density is finite, and in which range it falls by half a nat to each side."""

        def f(q):
            return -self.energy(q, np.zeros(d))

        given = [np.asarray(x[0] if self._is_pair(x) else x, dtype=float) for x in self.points]
        tried = [
            *given,
            np.zeros(d),
            np.full(d, 0.5),
            *(s * rng.standard_normal(d) for s in (1, 1, 1, 3, 10, 100)),
            *(s * np.abs(rng.standard_normal(d)) for s in (1, 1, 10)),
        ]
        finite = [(f(q), tuple(q)) for q in tried if math.isfinite(f(q))]
        if not finite:
            raise Undecided("the target is finite nowhere it was tried: give points")
        centre = np.array(max(finite)[1])
        scale = np.ones(d)
        for _ in range(3):
            for k, e in enumerate(np.eye(d)):
                best = f(centre)
                for step in (scale[k], -scale[k], 3 * scale[k], -3 * scale[k], 0.3 * scale[k], -0.3 * scale[k]):
                    value = f(centre + step * e)
                    if value > best + 1e-9:
                        centre, best = centre + step * e, value
                width = scale[k]
                for _ in range(40):
                    fall = best - min(f(centre + width * e), f(centre - width * e))
                    if fall > 2 or not math.isfinite(fall):
                        width *= 0.6
                    elif fall < 0.15 and width < 1e4:
                        width *= 1.6
                    else:
                        break
                scale[k] = width
        return centre, scale

    def _places(self) -> list[tuple[np.ndarray, np.ndarray]]:
        walker, rng = self._prepare(), np.random.default_rng([self.seed, 2])
        places = []
        for _ in range(2):
            q = walker.centre + 0.5 * walker.scale * rng.standard_normal(len(walker.centre))
            if not math.isfinite(self.energy(q, 0 * q)):
                q = walker.centre.copy()
            places.append((q, walker.momentum * rng.standard_normal(len(q))))
        return places

    def _require(self, *, sound: bool = False) -> states.Walker:
        if not self.ready:
            raise NotApplicable("the transition could not be used; see above")
        if sound and self.pattern.get("invariance"):
            raise NotApplicable("it fails on ordinary orbits already")
        return self._prepare()

    # ---- preconditions

    def leap_reversible(self) -> Row:
        walker = self._prepare()
        worst, tolerance = 0.0, 0.0
        for q, p in self._places():
            for eps in self.list_of_eps:
                orbit = states.measured(walker, states.walk(walker, q, p, 2, eps))
                if self.steps.by_sign and not self._undone(orbit) and eps is not None:
                    self.steps.by_sign = False
                    turned = states.measured(walker, states.walk(walker, q, p, 2, eps))
                    orbit = turned if self._undone(turned) else orbit
                size = float(np.nanmax(np.abs(orbit.q)))
                error = (orbit.near - 4096 * walker.unit * size) / 100
                worst, tolerance = max(worst, error / size), max(tolerance, 1e-9, 2.0**16 * walker.unit)
        if not worst <= tolerance:
            self.irreversible = True
            raise Undecided(
                f"leap and its inverse, by {'a negative step' if self.steps.takes_eps else 'turning the momentum'}, "
                f"miss the start by {worst:.2g} of its size: there is no orbit to test on"
            )
        return judged("leap reversible", worst, tolerance, "two steps ahead and back, relative; 2^16 units of rounding")

    def _undone(self, orbit: states.Orbit) -> bool:
        return orbit.near <= 100 * 1e-9 * float(np.nanmax(np.abs(orbit.q))) * max(1.0, self._prepare().unit / 2.0**-52)

    def answers(self) -> Row:
        self._prepare()
        places, depth = self._places(), self.depth if self.takes_depth else None
        with np.errstate(all="ignore"):
            self.said.append(f"called as {_settle(self.subject, places, self.list_of_eps[0], depth)}")
            if not _repeats(self.subject, places, self.list_of_eps[0], depth):
                raise Undecided(
                    "the same answers gave different ends: it has randomness of its own, which cannot be enumerated"
                )
        if "p" not in self.subject.shape.order:
            self.said.append("the first normals asked for are taken as the momentum (unit mass)")
        self.ready = True
        return Row("answers", PASS, basis="a position, and the same one on the same draws")

    # ---- enumerations

    def _guard(self, depth: int) -> int:
        return 2 if depth <= 2 else 1

    def _table(self, kind: str, orbit: states.Orbit | None, depth: int, most: float = math.inf, **more) -> Table | None:
        """K on the orbit; None if it is of no use, or not done with so many runs."""
        walker, guard = self._prepare(), self._guard(depth)
        orbit = states.finished(walker, orbit, self._side(depth))
        if orbit is None:
            return None
        table = Table(self.subject, orbit, depth if self.takes_depth else None, **more)
        table.enumerator.most_runs = min(most, 1.5 * self.most_runs - self.runs)
        table.enumerator.deadline = self.began + self.seconds
        reach = 2**depth - 1
        try:
            furthest = table.compute(reach + guard)
            if furthest > reach:  # it goes further than was said: so must the starts
                furthest = max(furthest, table.compute(min(2 * reach + 1, orbit.n - reach) + guard))
                if furthest > 2 * reach + 1:
                    raise OutOfBudget
        except OutOfBudget:
            self.unfinished.append(orbit)
            return None
        finally:
            self.runs += table.enumerator.runs
        self.furthest = max(self.furthest, furthest)
        if not more:
            self.tables.append((kind, table))
        return table

    def _side(self, depth: int) -> int:
        """States on each side of z_0: as far as two transitions go, and the same again for one that goes further."""
        return 4 * (2**depth - 1) + 2 * self._guard(depth) + 2

    def _own_points(self, depth: int, rng) -> list[states.Orbit]:
        walker, found = self._prepare(), []
        for number, point in enumerate(self.points):
            q, p = point if self._is_pair(point) else (point, None)
            if p is None:
                p = (
                    self.p0
                    if self.p0 is not None and number == 0
                    else walker.momentum * rng.standard_normal(np.size(q))
                )
            for eps in self.list_of_eps:
                found.append(
                    states.walk(walker, np.array(q, dtype=float), np.array(p, dtype=float), 2 * 2**depth, eps, "given")
                )
        return found

    def _examined(self, kind: str, orbits: Sequence[states.Orbit], depth: int, share: float) -> list[Finding]:
        """The findings of the orbits that could be done with this share of the runs; no more after two that fail."""
        found: list[Finding] = []
        last = self.runs + share * self.most_runs
        for orbit in orbits:
            if self.runs >= last or time.monotonic() > self.began + self.seconds or sum(f.fails for f in found) > 1:
                break
            table = self._table(kind, orbit, depth, last - self.runs)
            if table is not None and table.mass_off() <= 1e-12:
                found.append(worst_of(table, self._guard(depth)))
        return found

    def invariance(self) -> list[Row]:
        walker = self._require()
        found: list[Finding] = []
        depths = range(1, self.depth + 1) if self.takes_depth else [self.depth]
        for depth in depths:
            reach, rng = 2**depth - 1, np.random.default_rng([self.seed, 3, depth])
            supply = states.ordinary(walker, 2 * reach + 2, reach + self._guard(depth), self.list_of_eps, rng)
            count = {1: 4, 2: 8, 3: 10}.get(depth, 2)
            orbits = [*self._own_points(depth, rng), *states.varied(supply, count)]
            found += self._examined("regular", orbits, depth, 0.6 if depth == self.depth else 0.2)
            if any(self._stands(f) for f in found if f.fails):
                break  # the smallest depth at which it fails
        if not found:
            self._nothing("of ordinary ones", "flat", "uneven", "given")
        return [self._row("invariance", found, "orbits of ordinary states")]

    def _nothing(self, which: str, *kinds: str):
        off = [t for _, t in self.tables if t.mass_off() > 1e-12]
        if off:
            raise NotApplicable("it leaves the orbit; see 'stays on the orbit'")
        if any(orbit.kind in kinds for orbit in self.unfinished):
            raise Undecided(
                f"no orbit {which} was done in the budget ({self.runs} runs): give a smaller depth, or more seconds"
            )
        raise NotApplicable(f"no orbit {which} was found")

    def large_steps(self) -> Row:
        walker, rng = self._require(sound=True), np.random.default_rng([self.seed, 4])
        depth, reach = self.depth, 2**self.depth - 1
        orbits = states.barriers(walker, 2 * reach + 2, reach, self.list_of_eps, rng)
        orbits = [*orbits[::-1], *states.designs(walker, 2 * reach + 2, reach, self.list_of_eps, rng)]
        found = self._examined("barrier", orbits, depth, 0.25)
        if not found:
            self._nothing("across a barrier, within reach, at this step size,", "barrier")
        failing = [f for f in found if f.fails and self._stands(f)]
        if len(failing) == 1 and self.threshold is None and not self._persists(failing[0]):
            peak = states.height(failing[0].table.orbit, reach)
            return Row(
                "invariance at large steps",
                INCONCLUSIVE,
                failing[0].defect,
                failing[0].tolerance,
                f"on one orbit only, with a peak of {peak:.0f} nats: a divergence rule that depends on where the "
                "trajectory was started does this; give threshold to have it judged",
                case=self._case(failing[0]),
            )
        peaks = [states.height(f.table.orbit, reach) for f in found]
        return self._row(
            "invariance at large steps", found, f"energy peaks of {min(peaks):.0f} to {max(peaks):.0f} nats"
        )

    def _persists(self, finding: Finding) -> bool:
        """Whether it fails on orbits somewhat larger and smaller too, with peaks some per cent higher and lower."""
        walker, orbit = self._prepare(), finding.table.orbit
        depth, reach = self.depth, 2**self.depth - 1
        for factor in (1.02, 0.98, 1.05, 0.95):
            q = walker.centre + factor * (orbit.q[orbit.n] - walker.centre)
            near = states.from_lowest(
                walker,
                states.walk(walker, q, factor * orbit.p[orbit.n], reach, orbit.eps, "barrier"),
                reach,
                2 * reach + 2,
            )
            table = self._table("barrier", near, depth, 0.1 * self.most_runs)
            if table is not None and table.mass_off() <= 1e-12:
                other = worst_of(table, self._guard(depth))
                moved = abs(states.height(table.orbit, reach) - states.height(orbit, reach))
                if moved > 15 and other.fails and self._stands(other):
                    return True
        return False

    def wall(self) -> list[Row]:
        walker, rng = self._require(sound=True), np.random.default_rng([self.seed, 5])
        depth, reach = self.depth, 2**self.depth - 1
        orbits = states.walls(walker, 2 * reach + 2, reach, self.list_of_eps, rng)
        found = self._examined("wall", orbits, depth, 0.15)
        if not found:
            self._nothing("with states of density zero", "wall")
        forbidden = [(f.table.mass_forbidden(), f) for f in found]
        (mass, start), worst = max(forbidden, key=lambda pair: pair[0][0])
        if mass > 1e-14:
            return [
                Row(
                    "invariance across a wall",
                    FAIL,
                    mass,
                    0.0,
                    "probability of ending where the density is zero or not a number",
                    WRONG_LAW,
                    self._start_case(worst.table, start),
                )
            ]
        return [self._row("invariance across a wall", found, "orbits with states of density zero")]

    def limit(self) -> Row:
        walker, rng = self._require(sound=True), np.random.default_rng([self.seed, 6])
        limit = 1000.0 if self.threshold is None else float(self.threshold)
        name, reach = "divergence threshold", 2**self.depth - 1
        orbits = states.at_the_limit(walker, 2 * reach + 2, reach, self.list_of_eps, limit, rng)
        if not orbits:
            raise NotApplicable(f"no orbit within reach rises by {limit:g} nats and comes back, at this step size")
        found = self._examined("limit", orbits, self.depth, 0.15)
        if not found:
            self._nothing(f"with a rise of {limit:g} nats", "limit")
        row = self._row(name, found, f"with a peak {limit:g} + 2 and {limit:g} - 2 nats above two likely states")
        if row.status == FAIL:
            self.pattern["one-sided"] = limit
            if self.threshold is None:
                self.said.append(
                    "its divergence rule depends on where in the trajectory it was started: not invariant where the energy "
                    f"jumps by about {limit:g} nats, a rare thing (the usual rule, H - H(start) > 1000, has it too)"
                )
                return row._replace(status=INCONCLUSIVE, basis=row.basis + "; give threshold to have it judged")
        return row

    # ---- from findings to rows

    def _stands(self, finding: Finding) -> bool:
        """Whether a failing orbit fails for good: in the weaker sense too, with K computed anew, ordinary runs agreeing."""
        verdict = finding.table.stands
        if verdict is None:
            verdict = self._confirmed(finding)
            finding.table.stands = verdict
        return verdict == ""

    def _confirmed(self, finding: Finding) -> str:
        """ "" if it stands, otherwise what speaks against."""
        table = finding.table
        depth = self.depth if table.depth is None else table.depth
        guard = self._guard(depth)
        if table.enumerator.read_values:
            again = self._table("again", table.orbit, depth, 0.25 * self.most_runs, thorough=True)
            if again is not None:
                if not worst_of(again, guard).fails:
                    return "K came out otherwise at a second, more thorough enumeration"
                table = again
        mirrored = self._table("mirrored", table.orbit, depth, mirrored=True)
        if mirrored is not None:
            weaker = [
                abs(0.5 * (table.flow(j) + mirrored.flow(j)) - 1) <= max(table.tolerance(j), mirrored.tolerance(j))
                for j in range(-guard, guard + 1)
                if table.weight(j) > math.exp(-4)
            ]
            if all(weaker):
                self.said.append(
                    "invariant once the momentum is refreshed, or turned about, but not with the momentum kept"
                )
                return "weaker"
        return "" if self._sampling_agrees(table) else "ordinary runs do not follow the enumerated law"

    def _sampling_agrees(self, table: Table) -> bool:
        """Ordinary runs from a few starts, against the enumerated K."""
        rng = np.random.default_rng([self.seed, 7])
        starts = sorted(table.rows, key=lambda i: -table.weight(i))[:2]
        for i in starts:
            law = table.law(i)
            count: dict[Any, int] = {}
            for _ in range(SAMPLES):
                end = table.place(self.subject.sample(rng, *table.start(i), table.orbit.eps, table.depth), i)
                count[end] = count.get(end, 0) + 1
            for end in law.keys() | count.keys():
                p = min(1.0, max(0.0, law.get(end, 0.0)))
                seen = count.get(end, 0)
                tail = _binomial_tail(seen, SAMPLES, p)
                if tail < REFUTED:
                    self.said.append(
                        "ordinary runs do not follow the enumerated law: it has randomness that was not asked for"
                    )
                    return False
        return True

    def _row(self, name: str, found: list[Finding], what: str) -> Row:
        """The row of the worst finding that stands."""
        failing = sorted((f for f in found if f.fails), key=lambda f: (f.table.depth or 0, f.table.enumerator.runs))
        runs = sum(f.table.enumerator.runs for f in found)
        smallest = next((f for f in failing if self._stands(f)), None)
        if smallest is not None:
            worst = max(failing, key=lambda f: f.defect)
            self.pattern[name] = failing
            return Row(
                name,
                FAIL,
                worst.defect,
                worst.tolerance,
                f"|sum_i pi_i K(i -> j) / pi_j - 1|, {len(failing)} of {len(found)} {what}; rounding of the energies",
                WRONG_LAW,
                self._case(smallest),
            )
        doubtful = [f for f in failing if f.table.stands != "weaker"]
        if doubtful:
            return inconclusive(name, str(doubtful[0].table.stands), doubtful[0].defect)
        sound = [f for f in found if not f.fails]
        worst = max(sound, key=lambda f: f.defect / f.tolerance) if sound else failing[0]
        basis = f"|sum_i pi_i K(i -> j) / pi_j - 1|, {len(found)} {what}, {runs} runs; rounding of the energies"
        if not sound:
            return Row(name, PASS, basis=f"for the position's law, {len(found)} {what}, {runs} runs")
        return judged(name, worst.defect, worst.tolerance, basis)

    def _case(self, finding: Finding) -> str:
        """The call that shows it, and the pair of states with the largest one-way flow."""
        table, j = finding.table, finding.j
        k = table.orbit.n + j
        flows = {
            (i, e): table.weight(i, j) * p - table.weight(e, j) * table.law(e).get(i, 0.0)
            for i in table.rows
            for e, p in table.law(i).items()
            if isinstance(e, int) and e in table.rows
        }
        (i, e), _ = max(flows.items(), key=lambda item: abs(item[1]), default=((j, j), 0.0))
        leaf = max((x for x in table.rows.get(i, []) if x.end == e), key=lambda x: x.p, default=None)
        depth = self.depth if table.depth is None else table.depth
        call = (
            (
                f"check.orbit({self.foreign.name}, leap, target, depth={depth}, eps={table.orbit.eps!r}, "
                f"points=[({text_of(table.orbit.q[k])}, {text_of(table.orbit.p[k])})])"
            )
            .replace("points=[([", "points=[(numpy.array([")
            .replace("], [", "]), numpy.array([")
            .replace("])])", "]))])")
        )
        more = f"  # sum_i pi_i K(i -> 0) / pi_0 = {finding.flow:.12g}; least balanced: {i - j} -> {e - j}"
        return call + more + (f" on the answers {_rounded(leaf.answers)}" if leaf is not None else "")

    def _start_case(self, table: Table, i: int) -> str:
        q, p = table.start(i)
        return f"{self.foreign.name}(draws, {text_of(q)}, {text_of(p)})  # eps={table.orbit.eps!r}"

    def stays(self) -> Row:
        self._require()
        name = "stays on the orbit"
        if not self.tables:
            raise NotApplicable("no orbit was enumerated")
        worst = max(self.tables, key=lambda pair: pair[1].mass_off())[1]
        mass = worst.mass_off()
        if mass <= 1e-12:
            return Row(name, PASS, 0.0, 0.0, f"ends off the orbit; {len(self.tables)} orbits")
        i, distance, q = worst.stray or (0, math.nan, ())
        moved = any(
            isinstance(end, int) and end != i
            for _, t in self.tables
            for i in t.rows
            for end in t.law(i)
            if end not in (OFF,)
        )
        case = f"{self._start_case(worst, i)} ends at {list(q)}, {distance:.3g} from the nearest state"
        if self._jittered(worst):
            raise Undecided(
                "where it ends changes with a uniform number continuously: is its step size random? Give a fixed one"
            )
        if moved:
            return Row(
                name,
                FAIL,
                mass,
                0.0,
                "probability of ending off the orbit, from some states; it stays on it from others",
                WRONG_LAW,
                case,
            )
        return Row(
            name,
            FAIL,
            mass,
            0.0,
            "it ends on no state of the orbit of this leap: another step size, or another map",
            MISCONDUCT,
            case,
        )

    def _jittered(self, table: Table) -> bool:
        """Whether an end off the orbit moves when a number that was read is changed a little."""
        for i, leaves in table.rows.items():
            for leaf in leaves:
                if leaf.end != OFF:
                    continue
                for k, answer in enumerate(leaf.answers):
                    if not isinstance(answer, float):
                        continue
                    ends = []
                    for value in (answer, answer + 1e-6 * (0.5 - answer)):
                        table.stray = None
                        run = table.enumerator.run(i, (*leaf.answers[:k], value, *leaf.answers[k + 1 :]))
                        ends.append((run.end, table.stray))
                    if ends[0][0] == ends[1][0] == OFF and ends[0][1] != ends[1][1]:
                        return True
                return False
        return False

    def sums(self) -> Row:
        self._require()
        if not self.tables:
            raise NotApplicable("no orbit was enumerated")
        worst = max(abs(math.fsum(t.law(i).values()) - 1) for _, t in self.tables for i in t.rows)
        return judged("probabilities sum to one", worst, 1e-12, "over all answers, every start")

    def depths(self) -> Row:
        self._require()
        if not self.tables:
            raise NotApplicable("no orbit was enumerated")
        reach = 2**self.depth - 1
        basis = f"steps from the start to the furthest end; 2^{self.depth} - 1"
        if self.furthest <= reach:
            return Row("depth", PASS, self.furthest, reach, basis)
        if self.takes_depth:
            return Row("depth", FAIL, self.furthest, reach, basis + ", the depth it was given", INEFFICIENT)
        return Row(
            "depth", INCONCLUSIVE, self.furthest, reach, basis + ": it goes further than the depth that was stated"
        )

    def directions(self) -> Row:
        self._require()
        moves = [
            (end - i, p) for _, t in self.tables for i in t.rows for end, p in t.law(i).items() if isinstance(end, int)
        ]
        if not moves:
            raise NotApplicable("no orbit was enumerated")
        ahead, behind = sum(p for k, p in moves if k > 0), sum(p for k, p in moves if k < 0)
        self.pattern["ahead"] = ahead / max(ahead + behind, 1e-300)
        mean = sum(abs(k) * p for k, p in moves) / sum(p for _, p in moves)
        self.said.append(
            f"over the orbits it moves {mean:.2g} steps in the mean, {100 * self.pattern['ahead']:.0f} % of the moves ahead"
        )
        if ahead > 0 and behind > 0:
            return Row("reaches both directions", PASS)
        if not ahead and not behind:
            return inconclusive("reaches both directions", "it never moved")
        return inconclusive("reaches both directions", f"only {'ahead of' if ahead else 'behind'} its start")

    def sampled(self) -> Row:
        self._require(sound=True)
        if not self.unfinished:
            raise NotApplicable("the enumerations were complete")
        begin, rng = time.monotonic(), np.random.default_rng([self.seed, 8])
        orbit, reach = self.unfinished[0], 2**self.depth - 1
        table = Table(self.subject, orbit, self.depth if self.takes_depth else None)
        span = min(2 * reach, orbit.n)
        weight = np.array([table.weight(i) for i in range(-span, span + 1)])
        count, runs = np.zeros(2 * span + 1, dtype=int), 0
        while time.monotonic() - begin < 0.2 * self.seconds and runs < 0.3 * self.most_runs:
            i = int(rng.choice(2 * span + 1, p=weight / weight.sum())) - span
            end = table.place(self.subject.sample(rng, *table.start(i), orbit.eps, table.depth), i)
            runs += 1
            if end == OFF:
                raise Undecided("it leaves the orbit")
            if isinstance(end, int) and abs(end) <= span:
                count[end + span] += 1
        inner = range(reach + 1 - span - 1, span - reach + 1) if span > reach else range(0, 1)
        tested = [j for j in inner if weight[j + span] > 0]
        least, expected = 1.0, weight / weight.sum()
        for j in tested:
            seen, p = int(count[j + span]), float(expected[j + span])
            tail = _binomial_tail(seen, runs, p)
            least = min(least, 2 * tail * len(tested))
        top = float(max(expected[j + span] for j in tested))
        shift = (-scipy.special.ndtri(ALPHA / 2 / len(tested)) + 2.33) * math.sqrt(top * (1 - top) / runs) / top
        return judged(
            "invariance, sampled",
            min(1.0, least),
            ALPHA,
            f"p-value of {runs} runs from pi on one orbit; a relative error of "
            f"{shift:.2g} in its likeliest state would be found with probability 0.99",
            relation=">=",
            case=self._start_case(table, 0),
        )

    # ---- words

    def notes(self) -> list[str]:
        said = list(dict.fromkeys(self.said))
        if self.unit_mass:
            said.append("unit mass: H = |p|^2 / 2 - log density")
        seen = self._subject.momentum if self._subject is not None else {}
        if seen.get("turned") and not seen.get("kept"):
            said.append("it answers with the momentum turned about")
        elif seen.get("another", 0) > 0.5 * max(1, sum(seen.values())):
            said.append("the momentum it answers with is not the one of that state")
        if self.runs:
            kinds = {kind: sum(k == kind for k, _ in self.tables) for kind, _ in self.tables}
            said.append(f"{self.runs} runs on {', '.join(f'{n} {kind}' for kind, n in kinds.items())} orbits")
        return said

    def diagnose(self, rows: dict[str, Row]) -> list[str]:
        failing = {name for name, row in rows.items() if row.status == FAIL}
        if "stays on the orbit" in failing and rows["stays on the orbit"].severity == WRONG_LAW:
            return [
                "it goes on from the wrong state: the edges of the tree are mixed up, or a step is taken in the wrong direction"
            ]
        standing = self.pattern.get("invariance", [])
        if standing:
            if rows.get("reaches both directions", not_run("", "")).status == INCONCLUSIVE:
                return ["the tree is grown in one direction only: the start must be able to be anywhere in it"]
            flat = [f for f in standing if f.table.orbit.kind == "flat" and f.defect > 1e-3]
            if flat:
                return [
                    "it fails where all weights are equal: the shape of the tree depends on where it was started (edge "
                    "momenta, U-turn checks of joined subtrees, directions, what a turning subtree leaves behind), or a "
                    "choice ignores the sizes of what it chooses from"
                ]
            return [
                "it fails with unequal weights only: a state or a subtree is taken with the wrong weight, or the weights are "
                "summed wrongly"
            ]
        if failing & {"invariance at large steps", "invariance across a wall"}:
            return [
                "only where trajectories diverge: the proposal of a diverging subtree is kept, its weight is not zero, or the "
                "rule depends on where the trajectory was started"
            ]
        if "divergence threshold" in failing:
            return [
                "the divergence rule compares with the start's energy: it must look at the whole trajectory, as its spread does"
            ]
        return []


def _rounded(answers: tuple) -> list:
    return [float(f"{a:.6g}") if isinstance(a, float) else a for a in answers]


def _binomial_tail(seen: int, n: int, p: float) -> float:
    """The smaller of P(X <= seen) and P(X >= seen), X binomial."""
    p = min(1.0, max(0.0, p))
    above = 1.0 if seen == 0 else float(scipy.special.bdtrc(seen - 1, n, p))
    return min(float(scipy.special.bdtr(seen, n, p)), above)

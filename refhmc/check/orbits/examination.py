"""State shared by the rows of ``check.orbit``: the transition, the map and its energy, and the tables of K.

An orbit z_k = leap^k(z_0), k = -n ... n, is computed far enough to contain every start i that can reach a judged state j, and
every end of it: with depth D, 2^D - 1 steps per transition,

    |j| <= guard,  |i| <= 2^D - 1 + guard,  |end| <= 2 (2^D - 1) + guard

and as much again, so that a transition that goes further than stated is found. K(i -> j) is enumerated start by start within
the budget of runs and seconds; the rest is left to the sampled row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refhmc.check.derivatives.points import find_frame
from refhmc.check.examination import Examination
from refhmc.check.orbits import states
from refhmc.check.orbits.law import Finding, OrbitTransition, Table, worst_of
from refhmc.check.orbits.shapes import Leap, is_pair
from refhmc.check.subject.budget import Budget
from refhmc.check.subject.enumeration import OutOfBudget
from refhmc.check.subject.foreign import DIMENSIONS, Foreign, Inconclusive, NotApplicable
from refhmc.check.subject.shapes import first_working, meanings
from refhmc.check.subject.target import momentum_widths, target_density


class OrbitExamination(Examination):
    """One transition under examination: first the arguments of the check, then the results of its rows.

    ``tables``: every computed K, with its orbit's kind. ``unfinished``: orbits that did not fit into the budget.
    ``contradicted``: ordinary runs did not follow a computed K. ``pattern``: what is typical of a fault, by row.
    """

    def __init__(
        self,
        transition: Any,
        leap: Any,
        target: Any,
        depth: int,
        eps: Any,
        dim: Any,
        H: Any,
        p0: Any,
        points: Any,
        order: Any,
        threshold: float | None,
        seconds: float,
        most_runs: int,
        seed: int,
        like: Any,
        name: str | None,
        keeps_momentum: bool = False,
        make: Callable | None = None,
        gradient: Callable | None = None,
        dense: bool = False,
    ) -> None:
        self.keeps_momentum, self.make, self.gradient, self.dense = keeps_momentum, make, gradient, dense
        self.log_density = getattr(target, "log_density", target if callable(target) else None)
        self.kernel = Foreign(transition, name, like)
        self.order = None if order is None else np.array([int(m) for m in order])
        self.leap = Leap(leap, like)
        law = target_density(target if H is None else H, like=like)
        self.energy_foreign, self.unit_mass = law.foreign[-1], law.energy is None
        self._energy = law.energy or (lambda q, p: 0.5 * float(p @ p) - law.log_pi(q))
        super().__init__(self.kernel.name, (self.kernel, self.leap.foreign, self.energy_foreign), seed)
        self.depth, self.asked_dim, self.p0, self.points, self.threshold = depth, dim, p0, list(points), threshold
        self.model_dim = getattr(target, "dim", None)
        self.most_runs, self.budget = most_runs, Budget(seconds)
        given = meanings(transition)
        self.takes_eps = "eps" in given
        self.takes_depth = "depth" in given
        self.more = {"leap": leap, "target": target if target is not None else H}
        self.list_of_eps = [None] if eps is None else [float(e) for e in np.atleast_1d(eps)]
        self.phase_map: states.PhaseMap | None = None
        self.transition: OrbitTransition | None = None  # with its signature, once there is a phase map
        self.ready = self.irreversible = self.contradicted = False
        self.tables: list[tuple[str, Table]] = []
        self.furthest = 0
        self.runs = 0
        self.unfinished: list[states.Orbit] = []
        self.pattern: dict[str, Any] = {}

    def energy(self, q: np.ndarray, p: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            return float(self._energy(q, p))

    @property
    def subject(self) -> OrbitTransition:
        if self.transition is None or self.irreversible:
            raise NotApplicable("there is no orbit to test on")
        return self.transition

    def prepare(self) -> states.PhaseMap:
        """Return the phase map, created at the first call; choose step sizes if none were given."""
        if self.phase_map is not None:
            return self.phase_map
        if self.leap.needs_eps and self.list_of_eps == [None]:
            if not self.takes_eps:
                raise NotApplicable("leap takes a step size: pass eps, the step size of the transition")
            self.list_of_eps = [0.25, 0.7, 1.2]
        given = [np.array(x[0] if is_pair(x) else x, dtype=float, ndmin=1) for x in self.points]
        d = self._dimension(given)
        rng = np.random.default_rng([self.seed, 1])
        frame = find_frame(lambda q: -self.energy(q, np.zeros(d)), d, None, np.array(given).reshape(-1, d), rng)
        if frame is None:
            raise Inconclusive("the target was finite at none of the points tried; pass points")
        centre, scale = frame
        momentum = momentum_widths(self.energy, centre)
        coarse = max(self.leap.foreign.epsilon, self.energy_foreign.epsilon)
        phase_map = states.PhaseMap(self.leap.ahead, self.leap.back, self.energy, centre, scale, momentum, coarse)
        self.transition = OrbitTransition(self.kernel, d, self.leap.foreign, self.more, self.order)
        self.phase_map = phase_map
        return phase_map

    def _dimension(self, given: list[np.ndarray]) -> int:
        """Return the given dimension, that of the points, that of the target, or the first that works."""
        if self.asked_dim is not None or given:
            return int(len(given[0]) if self.asked_dim is None else self.asked_dim)
        if isinstance(self.model_dim, (int, np.integer)):
            return int(self.model_dim)

        def works(d: int) -> None:
            q, p = 0.1 * np.ones(d), 0.2 * np.ones(d)
            self.energy(q, p)
            self.leap.ahead(q, p, self.list_of_eps[0])

        return first_working(DIMENSIONS, works, self.leap.foreign, self.energy_foreign)[0]

    def test_points(self) -> list[tuple[np.ndarray, np.ndarray]]:
        phase_map, rng = self.prepare(), np.random.default_rng([self.seed, 2])
        test_points = []
        for _ in range(2):
            q = phase_map.centre + 0.5 * phase_map.scale * rng.standard_normal(len(phase_map.centre))
            if not math.isfinite(self.energy(q, 0 * q)):
                q = phase_map.centre.copy()
            test_points.append((q, phase_map.momentum * rng.standard_normal(len(q))))
        return test_points

    def require(self, *, sound: bool = False) -> states.PhaseMap:
        if not self.ready:
            raise NotApplicable("the transition could not be used; see above")
        if sound and self.pattern.get("invariance"):
            raise NotApplicable("it already fails on ordinary orbits")
        if sound and self.contradicted:
            raise NotApplicable("ordinary runs do not follow the enumerated distribution")
        return self.prepare()

    def enumerated(self) -> list[Table]:
        """Return every computed K; raise NotApplicable if there is none."""
        self.require()
        if not self.tables:
            raise NotApplicable("no orbit was enumerated")
        return [table for _, table in self.tables]

    def guard(self, depth: int) -> int:
        return 2 if depth <= 2 else 1

    def table(
        self, kind: str, orbit: states.Orbit | None, depth: int, most: float = math.inf, **more: Any
    ) -> Table | None:
        """Return K on the orbit; None if it is of no use, or does not fit into the runs."""
        phase_map, guard = self.prepare(), self.guard(depth)
        orbit = states.finished(phase_map, orbit, self._side(depth))
        if orbit is None:
            return None
        table = Table(self.subject, orbit, depth if self.takes_depth else None, **more)
        table.enumerator.most_runs = min(most, 1.5 * self.most_runs - self.runs)
        table.enumerator.budget = self.budget
        reach = 2**depth - 1
        try:
            furthest = table.compute(reach + guard)
            if furthest > reach:  # it goes further than stated, and so must the starts
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
        """Return the number of states on each side of z_0: two transitions, and as much again for one that goes further."""
        return 4 * (2**depth - 1) + 2 * self.guard(depth) + 2

    def examined(
        self,
        kind: str,
        orbits: Sequence[states.Orbit],
        depth: int,
        share: float,
        confirm: Callable[[OrbitExamination, Finding], object] = lambda test, finding: None,
    ) -> list[Finding]:
        """Return the findings of the orbits that this share of the runs allows; stop after two that fail.

        ``confirm`` is called with a failing finding before the next orbit, so that a budget that ends later leaves an answer.
        """
        found: list[Finding] = []
        last = self.runs + share * self.most_runs
        for orbit in orbits:
            if self.runs >= last or self.budget.over() or sum(f.fails for f in found) > 1:
                break
            table = self.table(kind, orbit, depth, last - self.runs)
            if table is not None and table.mass_off() <= 1e-12:
                found.append(worst_of(table, self.guard(depth)))
                if found[-1].fails:
                    confirm(self, found[-1])
        return found

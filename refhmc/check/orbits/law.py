"""Distribution K(i -> j) of a transition on the states of one orbit, start by start, and the invariance of pi under it.

    defect(j) = |sum_i pi(z_i) K(i -> j) / pi(z_j) - 1|

Every probability that the transition computes has the rounding error of the energies (``Orbit.blur``). The tolerance of the
defect is therefore 32 blur sum_i pi(z_i) / pi(z_j), plus what was left out of K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.orbits import states
from refhmc.check.subject.answers import field, read_position
from refhmc.check.subject.draws import Draws
from refhmc.check.subject.enumeration import LEFT_OUT, Answers, Enumerator, Leaf, law_of
from refhmc.check.subject.foreign import Foreign, SubjectError
from refhmc.check.subject.shapes import CallShape

OFF = "off the orbit"
NEGLIGIBLE = 1e-25  # of pi(z_i) / pi(z_0): less probable starts are left out


class OrbitTransition:
    """The transition with its signature, and observations during its calls."""

    def __init__(self, foreign: Foreign, dim: int, leap: Foreign, more: dict, order: np.ndarray | None = None) -> None:
        self.foreign, self.dim, self.leap, self.more = foreign, dim, leap, more
        self.order, self.draws_order = order, False  # answer to a permutation, and whether one was requested
        self.shape, self.symbolic = CallShape(("draws", "q", "p")), True
        self.momentum: dict[str, int] = {"kept": 0, "turned": 0, "another": 0}
        self.energy_errors: list[tuple[float, float, tuple]] = []  # gap of a stated error, its tolerance, and the start

    def coarseness(self) -> float:
        """Return the ratio of its rounding unit to the leap's."""
        return max(1.0, self.foreign.epsilon / self.leap.epsilon)

    def call(self, source: Any, q: np.ndarray, p: np.ndarray, eps: float | None, depth: int | None) -> Any:
        """Return one transition on the randomness of ``source``."""
        if "p" not in self.shape.order:
            source.script["normal"] = list(p)
        draw = getattr(source, "permutation", None)
        if isinstance(source, Draws):
            source.permutation = lambda n: self._permutation(draw, n)  # type: ignore[method-assign]
        return self.shape.call(self.foreign, draws=source, q=q, p=p, eps=eps, depth=depth, **self.more)

    def _permutation(self, draw: Any, n: int) -> Any:
        self.draws_order = True
        return self.order.copy() if self.order is not None and len(self.order) == n else draw(n)

    def sample(
        self, rng: np.random.Generator, q: np.ndarray, p: np.ndarray, eps: float | None, depth: int | None
    ) -> Any:
        """Return one ordinary transition."""
        recorded = "p" not in self.shape.order or self.order is not None  # its momentum, or order, is scripted
        return self.call(Draws(rng) if recorded else self.shape.source(rng), q, p, eps, depth)

    def read(self, answer: Any) -> tuple[np.ndarray | None, np.ndarray | None, int | None]:
        """Return (position, momentum, offset from the start) if the answer contains them; None for each that it does not."""
        if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
            return None, None, int(answer)
        q, p = read_position(self.foreign, answer, (self.dim,))
        if not np.isfinite(q).all():
            raise SubjectError(f"{self.foreign.name}: the answer is not finite: {answer!r:.80}")
        return q, p, None

    def note_momentum(self, p: np.ndarray, there: np.ndarray) -> None:
        """Count whether the returned momentum is that of the state ``there``."""
        size = 1e-6 * (np.abs(there).max() + 1e-300)
        kind = "kept" if np.abs(p - there).max() <= size else "turned" if np.abs(p + there).max() <= size else "another"
        self.momentum[kind] += 1


class Table:
    """K on an orbit, start by start, for a transition of given ``depth``; ends are offsets from z_0."""

    def __init__(
        self,
        subject: OrbitTransition,
        orbit: states.Orbit,
        depth: int | None,
        *,
        mirrored: bool = False,
        thorough: bool = False,
        signed: bool = False,
    ) -> None:
        self.subject, self.orbit, self.depth, self.mirrored = subject, orbit, depth, mirrored
        self.signed = signed  # whether an end is an offset and the sign of its momentum
        self.rows: dict[int, list[Leaf]] = {}
        self.stands: str | None = None  # after the confirmation: "" if a failure stands, or the reason against it
        self.turned: Table | None = None  # K from (q, -p), if computed
        self.stray: tuple[int, float, tuple] | None = None
        self.enumerator = Enumerator(self._end, self._answers, thorough=thorough, subject=subject.foreign.function)

    def weight(self, i: int, j: int = 0) -> float:
        """Return pi(z_i) / pi(z_j); zero if the energy is not finite."""
        if abs(i) > self.orbit.n:
            return 0.0
        difference = self.orbit.H(j) - self.orbit.H(i)
        return math.exp(min(difference, 700.0)) if math.isfinite(difference) else 0.0

    def start(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        k = self.orbit.n + i
        return self.orbit.q[k], -self.orbit.p[k] if self.mirrored else self.orbit.p[k]

    def _answers(self, prefix: Sequence, floor: float) -> Answers:
        return Answers(prefix, floor=floor, symbolic=self.subject.symbolic)

    def _end(self, source: Any, i: int) -> Any:
        return self.end_of(self.subject.call(source, *self.start(i), self.orbit.eps, self.depth), i)

    def end_of(self, result: Any, i: int) -> Any:
        """Return the offset of an answer, with the sign of its momentum if the table is signed."""
        end = self.place(result, i)
        return (end, self._sign(result, end)) if self.signed else end

    def _sign(self, result: Any, end: Any) -> int:
        """Return 1 or -1 if the returned momentum is that of the end state or its opposite, otherwise 0."""
        p = self.subject.read(result)[1]
        if p is None or not isinstance(end, int):
            return 0
        there = self.orbit.p[self.orbit.n + end]
        near = 1e-6 * (float(np.abs(there).max()) + 1e-300)
        return next((s for s in (1, -1) if np.abs(p - s * there).max() <= near), 0)

    def place(self, result: Any, i: int) -> int | str:
        """Return the offset of an answer; OFF if it is not a state of the orbit."""
        q, p, offset = self.subject.read(result)
        if offset is not None:
            return i - offset if self.mirrored else i + offset
        assert q is not None
        with np.errstate(invalid="ignore"):
            far = np.abs(self.orbit.q - q).max(axis=1)
        unknown = np.isnan(far)
        if unknown.all():
            return OFF
        far[unknown] = np.inf
        k = int(far.argmin())
        if not far[k] <= self.orbit.near * self.subject.coarseness():
            self.stray = (i, float(far[k]), tuple(q.tolist()))
            return OFF
        if p is not None:
            self.subject.note_momentum(p, self.orbit.p[k])
        self._note_energy_error(result, i, k - self.orbit.n)
        return k - self.orbit.n

    def _note_energy_error(self, result: Any, i: int, j: int) -> None:
        """Compare a stated ``energy_error`` with H(z_j) - H(z_i)."""
        stated, wanted = field(result, ("energy_error",)), self.orbit.H(j) - self.orbit.H(i)
        if stated is not None and math.isfinite(wanted):
            near = 1e-9 + 32 * self.orbit.blur * self.subject.coarseness()
            self.subject.energy_errors.append((abs(float(stated) - wanted), near, (self.start(i), wanted)))

    def compute(self, reach: int) -> int:
        """Fill in the starts around z_0 and return the largest distance of an end; OutOfBudget if it takes too long."""
        furthest = 0
        for i in sorted(range(-reach, reach + 1), key=abs):
            if i in self.rows or self.weight(i) < NEGLIGIBLE:
                continue
            self.enumerator.floor = -40.0 + min(0.0, -math.log(self.weight(i)))
            self.rows[i] = self.enumerator.law(i)
        for i, leaves in self.rows.items():
            furthest = max([furthest, *(abs(leaf.end - i) for leaf in leaves if isinstance(leaf.end, int))])
        return furthest

    def law(self, i: int) -> dict:
        return law_of(self.rows[i]) if i in self.rows else {}

    def flow(self, j: int) -> float:
        """Return sum_i pi(z_i) K(i -> j) / pi(z_j)."""
        return math.fsum(self.weight(i, j) * self.law(i).get(j, 0.0) for i in self.rows)

    def tolerance(self, j: int) -> float:
        """Return the rounding error of :meth:`flow`, since every probability has the rounding error of the energies."""
        mass = math.fsum(self.weight(i, j) for i in self.rows)
        lost = math.fsum(self.weight(i, j) * self.law(i).get(LEFT_OUT, 0.0) for i in self.rows)
        blur = self.orbit.blur * self.subject.coarseness()
        return 32 * blur * mass + lost + self.orbit.n * NEGLIGIBLE * math.exp(4.0)

    def mass_off(self) -> float:
        """Return the largest probability of leaving the orbit."""
        return max((self.law(i).get(OFF, 0.0) for i in self.rows), default=0.0)

    def mass_forbidden(self) -> tuple[float, int]:
        """Return the largest probability of an end of density zero, and its start."""
        worst = (0.0, 0)
        for i in self.rows:
            bad = [
                p
                for end, p in self.law(i).items()
                if isinstance(end, int) and not self.weight(end) > 0 and not math.isfinite(self._energy(end))
            ]
            worst = max(worst, (math.fsum(bad), i))
        return worst

    def _energy(self, k: int) -> float:
        return self.orbit.H(k) if abs(k) <= self.orbit.n else math.nan


class Finding(NamedTuple):
    """The worst state of an orbit: sum_i pi_i K(i -> j) / pi_j, its defect and tolerance."""

    table: Table
    j: int
    flow: float
    tolerance: float

    @property
    def defect(self) -> float:
        return abs(self.flow - 1)

    @property
    def fails(self) -> bool:
        return not self.defect <= self.tolerance


def worst_of(table: Table, guard: int) -> Finding:
    found = [
        Finding(table, j, table.flow(j), table.tolerance(j))
        for j in range(-guard, guard + 1)
        if table.weight(j) > math.exp(-4) and j in table.rows
    ]
    return max(found, key=lambda f: f.defect / f.tolerance if math.isfinite(f.defect) else math.inf)

"""Delayed-rejection HMC of many chains: the transition of :mod:`refhmc.kernels.drhmc`.

A turn is a whole transition. The chains that have rejected a stage make the proposals and ghosts of the next one together.
"""

from __future__ import annotations

from refhmc.batch.chains import Chains, indices
from refhmc.batch.ghmc import KeptMomenta
from refhmc.batch.steps import Mover, Point
from refhmc.batch.streams import Rows
from refhmc.batch.table import pick_point
from refhmc.core import sample_stats as S
from refhmc.kernels.drhmc import log_complement, probability_of
from refhmc.kernels.options import Kernel
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class DRHMCTransitions(KeptMomenta):
    """Transitions of the chains; the numbers of steps include those of ghosts."""

    def __init__(self, chains: Chains, mover: Mover, kernel: Kernel) -> None:
        super().__init__(chains, mover, kernel)
        self.in_the_end = 0

    def uniforms_used(self, rows: Rows) -> Array:
        return super().uniforms_used(rows) + self.reached[rows]

    def proposal(self, rows: Array, point: Point, stage: int) -> Point:
        """Return F Psi_k of the points of the chains ``rows``, from which steps can be made."""
        s = self.settings
        xp, factor = batched.namespace(rows), s["reduction"] ** (stage - 1)
        n, eps, done = self.n[rows], self.eps[rows] / factor, 0 * self.n[rows]
        n = xp.round(n * factor) if s["same_length"] else n
        while xp.any(moving := xp.isfinite(point.energy) & (done < n)):
            (at,) = xp.nonzero(moving)
            there = self.mover.of(self.chains, rows[at])(pick_point(point, at), eps[at])
            self.add_record(rows[at], self.mover)
            point = with_rows(point, at, there)
            done[at] += 1
        self.steps[rows] += done
        return point._replace(z=(point.z[0], -point.z[1]), velocity=-point.velocity)

    def log_rejection(self, rows: Array, point: Point, stages: int) -> Array:
        """Return log prod_k (1 - a_k) of the points for the first ``stages``."""
        xp = batched.namespace(rows)
        total = xp.where(xp.isfinite(point.energy), 0.0, point.energy)
        for stage in range(1, stages + 1):
            (on,) = xp.nonzero(xp.isfinite(total))
            if not on.shape[0]:
                break
            start = pick_point(point, on)
            there = self.proposal(rows[on], start, stage)
            ghosts = self.log_rejection(rows[on], there, stage - 1)
            total[on] += log_complement(probability_of(start.energy - there.energy + ghosts - total[on]))
        return total

    def turn(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        xp = batched.namespace(self.H0)
        all_rows: Array = indices(rows, xp.isfinite(self.H0[rows]) | True)
        H0, zero = self.H0[all_rows], 0 * self.H0[all_rows]
        origin = self.point_of(all_rows)
        H0 = xp.where(xp.isfinite(H0), H0, xp.inf)
        self.put(rows, steps=0 * self.H0[rows], reached=xp.zeros(H0.shape, dtype=xp.int64))
        log_rejection, rate, worst, stage, end = zero + 0.0, zero + 0.0, zero + 0.0, zero + 0.0, origin
        energy = H0 + 0.0
        (left,) = xp.nonzero(xp.isfinite(H0))
        for k in range(1, int(self.settings["max_stages"]) + 1):
            if not left.shape[0]:
                break
            these, start = all_rows[left], pick_point(origin, left)
            self.put(
                these, failed=xp.zeros(left.shape, dtype=xp.bool), not_reversed=xp.zeros(left.shape, dtype=xp.bool)
            )
            self.put(these, indefinite=xp.zeros(left.shape, dtype=xp.bool))
            there = self.proposal(these, start, k)
            error = there.energy - H0[left]
            ghosts = self.log_rejection(these, there, k - 1)
            a = probability_of(ghosts - log_rejection[left] - error)
            accepted = self.chains.bernoulli(these, self.uniforms_used(these), a)
            self.reached[these] += 1
            if k == 1:
                rate[left] = a
            log_rejection[left] = log_rejection[left] + log_complement(a)
            finite = xp.isfinite(error)
            larger = (xp.abs(error) > xp.abs(worst[left])) | ~finite
            worst[left] = xp.where(larger, xp.where(finite, error, xp.inf), worst[left])
            energy[left] = there.energy
            (taken,) = xp.nonzero(accepted)
            stage[left[taken]] = float(k)
            end = with_rows(end, left[taken], pick_point(there, taken))
            left = left[xp.nonzero(~accepted)[0]]
        accepted = stage > 0
        q, p = end.z
        self.chains.move(all_rows, accepted, q, end.log_density, end.gradient)
        self.keep(all_rows, accepted, -p)
        finite, error = xp.isfinite(energy), energy - H0
        failed = self.solver_failed(all_rows)
        far = xp.abs(error) > S.MAX_ENERGY_SPREAD
        outcome = xp.where(finite, xp.where(far, S.DIVERGED, S.REJECTED), self.reason(all_rows))
        return all_rows, {
            "lp": self.chains.log_density[all_rows],
            "energy": xp.where(accepted, energy, H0),
            "energy_error": xp.where(accepted, error, 0.0),
            "max_energy_error": xp.where(xp.isfinite(H0), worst, xp.inf),
            "acceptance_rate": rate,
            "diverging": xp.where(finite, far, ~failed) & ~accepted,
            "step_size": self.eps[all_rows],
            "step_size_nom": self.chains.step_size[all_rows],
            "n_steps": self.steps[all_rows],
            "is_accepted": accepted,
            "outcome": xp.where(accepted, S.ACCEPTED, outcome),
            "stage": stage,
            **self.record_statistics(all_rows),
        }


def with_rows(point: Point, at: Array, there: Point) -> Point:
    """Return the point with other values at the rows ``at``."""

    def put(old: Array, new: Array) -> Array:
        old = batched.namespace(old).asarray(old, copy=True)
        old[at] = new
        return old

    z = tuple(put(*pair) for pair in zip(point.z, there.z, strict=True))
    rest = {name: put(getattr(point, name), getattr(there, name)) for name in point._fields[1:-1]}
    return Point(z, **rest)

"""MCLMC of many chains: the steps of :mod:`refhmc.kernels.mclmc`, each of which is accepted."""

from __future__ import annotations

from refhmc.batch.chains import indices
from refhmc.batch.ghmc import KeptMomenta
from refhmc.batch.malt import numbers_before, step_after_refreshment
from refhmc.batch.streams import Rows
from refhmc.batch.table import where_point
from refhmc.core import sample_stats as S
from refhmc.kernels.ghmc import kept_share
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class MCLMCTransitions(KeptMomenta):
    """The steps of a draw: ``tried`` counts them all, and ``done`` those with an energy."""

    in_the_end = 0

    def share(self, rows: Rows) -> Array:
        return kept_share(self.settings["persistence"], self.chains.step_size[rows][:, None])

    def start(self, rows: Rows) -> None:
        super().start(rows)
        self.put(rows, **dict.fromkeys(("tried", "error", "acceptance"), 0 * self.eps[rows]))

    def turn(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        start, end = step_after_refreshment(self, rows, self.done[rows])
        change = end.energy - start.energy
        xp, n, scale = batched.namespace(change), self.settings["n_steps"], self.settings["energy_variance"]
        finite = xp.isfinite(change)
        change = xp.where(finite, change, 0.0)
        share = xp.exp(-(change**2) / (scale * self.chains.q.shape[-1])) / n
        self.put_point(rows, where_point(finite, end, self.point_of(rows)))
        self.put(
            rows,
            tried=self.tried[rows] + 1,
            done=xp.where(finite, self.done[rows] + 1, self.done[rows]),
            error=self.error[rows] + change,
            acceptance=xp.where(finite, self.acceptance[rows] + share, self.acceptance[rows]),
        )
        there = indices(rows, (self.done[rows] >= n) | ~finite)
        return there, self.end(there) if there.shape[0] else {}

    def uniforms_used(self, rows: Rows) -> Array:
        return numbers_before(self, self.tried[rows])

    def end(self, rows: Array) -> dict[str, Array]:
        assert self.chains.momentum is not None
        point, done, eps = self.point_of(rows), self.done[rows], self.eps[rows]
        xp, (q, p), whole = batched.namespace(done), point.z, done >= self.settings["n_steps"]
        self.chains.move(rows, done > 0, q, point.log_density, point.gradient)
        self.chains.momentum[rows] = xp.where(whole[:, None], p, xp.nan)
        return {
            "lp": self.chains.log_density[rows],
            "energy_error": self.error[rows],
            "acceptance_rate": self.acceptance[rows],
            "diverging": ~whole,
            "step_size": eps,
            "n_steps": done,
            "int_time": done * eps,
            "is_accepted": done > 0,
            "outcome": xp.where(whole, S.ACCEPTED, self.reason(rows)),
        }

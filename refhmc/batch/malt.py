"""MALT of many chains: the transition of :mod:`refhmc.kernels.malt`, with refreshments between the steps."""

from __future__ import annotations

from refhmc.batch.hmc import HMCTransitions
from refhmc.batch.steps import Point
from refhmc.batch.streams import Purpose, Rows
from refhmc.batch.table import where_point
from refhmc.kernels.ghmc import kept_share, refreshed
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


def step_after_refreshment(t: HMCTransitions, rows: Rows, steps: Array) -> tuple[Point, Point]:
    """Return the points from which the next steps are made, and their ends.

    Unless it is the first of the ``steps`` (r,) so far, a step follows p <- a p + sqrt(1 - a^2) n, n ~ N(0, M).
    """
    chains, mover, here = t.chains, t.mover.of(t.chains, rows), t.point_of(rows)
    H, (q, p) = mover.H, here.z
    H.model.forget()
    H.model.know(q, here.log_density, here.gradient)
    first = numbers_before(t, steps)
    normals = chains.streams.normals(rows, chains.transition[rows], Purpose.REFRESHMENT, q.shape[-1], first)
    _, n = mover.at((q, H.draw_momentum(q, normals))).z  # of constant length on the isokinetic dynamics
    a = kept_share(t.settings["persistence"], chains.step_size[rows][:, None])
    start = where_point(steps > 0, mover.at((q, refreshed(n, p, a))), here)
    return start, mover(start, t.eps[rows])


def numbers_before(t: HMCTransitions, steps: Array) -> Array:
    """Return how many numbers of a tape precede the refreshment before the next step; refreshments have d numbers each."""
    xp = batched.namespace(steps)
    return t.used + t.chains.q.shape[-1] * xp.astype(xp.clip(steps - 1, 0, None), xp.int64)


class MALTTransitions(HMCTransitions):
    """Trajectories of the chains. The energy of a point is H0 plus the errors of the steps so far."""

    def moved(self, rows: Rows, last: Array) -> Point:
        start, end = step_after_refreshment(self, rows, self.done[rows])
        return end._replace(energy=self.point_of(rows).energy + (end.energy - start.energy))

    def uniforms_used(self, rows: Rows) -> Array:
        return numbers_before(self, self.n[rows])

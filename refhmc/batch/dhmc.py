"""Discontinuous HMC of many chains: the transition of :mod:`refhmc.kernels.dhmc`, with an own order of J for each chain.

The uniforms of a transition are those of the kernel in their order: those of the jitters, of an order before each step, of the
acceptance. A move asks the model for the change of L, if it has that (:class:`refhmc.array_api.ModelOnArrays`), or once
for L at its end. If all coordinates jump, the changes of a trajectory are added up, and L is evaluated at its end.

If warm-up adapts the jump size separately from the step size, the masses m_j = 1/(r s_j) have a factor r for each chain, the
ratio of its jump size to its step size.
"""

from __future__ import annotations

import copy

from refhmc.batch.hmc import HMCTransitions
from refhmc.batch.memory import Remembering
from refhmc.batch.steps import Point, SolverRecord, StepMaker, StepSizes
from refhmc.batch.streams import Rows
from refhmc.integrators.discontinuous import drifted, jumped, kicked
from refhmc.metrics.base import ConstantMetric
from refhmc.metrics.laplace import LaplaceOnArrays
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class MoveRecord(SolverRecord):
    """Record of the moves of J in a step of each chain.

    It has ``tries``, ``flips`` (moves that were turned back), and ``passing``, the sum of min(1, exp(change of L)). Moves
    after one for which L is not a number do not count.
    """

    def start(self, zeros: Array) -> None:
        """Start a record, with zeros (n,)."""
        super().start(zeros)
        self.tries, self.flips, self.passing, self.defined = zeros, zeros, zeros, zeros == 0

    def move(self, change: Array, through: Array) -> None:
        """Add a move of each chain."""
        xp = batched.namespace(change)
        self.defined = self.defined & (change < xp.inf)
        counted = xp.astype(self.defined, change.dtype)
        self.tries = self.tries + counted
        self.flips = self.flips + xp.where(through, 0.0, counted)
        self.passing = self.passing + xp.where(self.defined, xp.exp(xp.where(change < 0, change, 0.0)), 0.0)


class JumpMover:
    """The step of :mod:`refhmc.integrators.discontinuous` on a :class:`refhmc.batch.memory.Remembering` model.

    It has the interface of :class:`refhmc.batch.steps.Mover`.
    """

    copies, draws, spares, solves = 1, 0, False, False

    def __init__(self, model: Remembering, metric: ConstantMetric) -> None:
        self.H, self.record = LaplaceOnArrays(model, metric), MoveRecord()

    def of(self, chains: StepSizes, rows: Rows) -> JumpMover:
        """Return the mover with the masses of the chains ``rows``."""
        if chains.jump_size is None:
            return self
        mover = copy.copy(self)
        mover.H = self.H._replace(factor=(chains.jump_size[rows] / chains.step_size[rows])[:, None])
        return mover

    def __call__(self, point: Point, eps: Array, order: Array | None = None, wanted: Array | None = None) -> Point:
        """Return the points after a step of sizes ``eps`` (n,), with J in the ``order`` (n, k), or in that of the model."""
        H, model, (q, p), eps = self.H, self.H.model, point.z, eps[:, None]
        if order is None:
            order = batched.namespace(q).asarray([[int(j) for j in model.discontinuous]])
        model.forget()
        model.know(q, point.log_density, point.gradient)
        self.record.start(0 * point.energy)
        q = drifted(H, q, (p := kicked(H, q, p, eps / 2)), eps / 2)
        q, p, log_density = jumped(H, q, p, eps, order, self.record.move)
        if order.shape[-1] == q.shape[-1]:  # L is known, and no coordinate has a gradient
            if model.log_density_change is not None and wanted is not None:
                log_density = self.anew(q, log_density, wanted)
            model.know(q, log_density, point.gradient)
        q = drifted(H, q, p, eps / 2)
        arrived = self.at((q, kicked(H, q, p, eps / 2)))
        model.forget()
        return arrived

    def anew(self, q: Array, log_density: Array, wanted: Array) -> Array:
        """Return L itself instead of a sum of changes for the ``wanted`` chains, so that rounding errors do not accumulate."""
        if not batched.namespace(q).any(wanted):
            return log_density
        return batched.in_place_of(wanted, self.H.model.value_and_gradient(q[wanted])[0], log_density)

    def at(self, z: tuple) -> Point:
        """Return the point at ``z``; the energy is NaN if the step failed."""
        H, (q, p) = self.H, z
        log_density, gradient = H.model.value_and_gradient(q)
        return Point(z, gradient, H.inverse_product(q, p), log_density, H.energy(q, p))


class DHMCTransitions(HMCTransitions):
    """Transitions of HMC with the moves of J on each trajectory: ``tries``, ``flips``, ``passing``."""

    MOVES = ("tries", "flips", "passing")

    def start(self, rows: Rows) -> None:
        """Start the next transition of the chains ``rows``."""
        super().start(rows)
        self.put(rows, **dict.fromkeys(self.MOVES, 0 * self.H0[rows]))

    @property
    def a_step(self) -> int:
        """Number of uniforms per step."""
        return max(len(self.mover.H.model.discontinuous) - 1, 0)

    def uniforms_used(self, rows: Rows) -> Array:
        """Return how many uniforms have been used so far."""
        xp = batched.namespace(self.done)
        return super().uniforms_used(rows) + self.a_step * xp.astype(self.done[rows], xp.int64)

    def order_of(self, rows: Rows) -> Array:
        """Return the order of J for the next step."""
        J = [int(j) for j in self.mover.H.model.discontinuous]
        return batched.random_order(J, self.chains.uniforms(rows, self.uniforms_used(rows), self.a_step))

    def add_record(self, rows: Rows, mover: StepMaker) -> None:
        """Add the record of a step."""
        super().add_record(rows, mover)
        self.put(rows, **{name: getattr(self, name)[rows] + getattr(mover.record, name) for name in self.MOVES})

    def record_statistics(self, rows: Rows) -> dict[str, Array]:
        """Return the statistics of the records by name."""
        tries, flips, passing = (getattr(self, name)[rows] for name in self.MOVES)
        xp, none = batched.namespace(tries), 0.0 * tries + (len(self.mover.H.model.discontinuous) == 0)
        some = xp.where(tries > 0, tries, 1.0)
        return {
            "no_flip_rate": xp.where(tries > 0, 1 - flips / some, none),
            "no_flip_probability": xp.where(tries > 0, passing / some, none),
            **super().record_statistics(rows),
        }

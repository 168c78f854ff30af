"""Static HMC of many chains: the transition of :mod:`refhmc.kernels.hmc`, with trajectories of different lengths.

The uniforms of a transition are those of the kernel in their order: those of the order of a split's parts if it is drawn,
of the jitter of the step size, of that of the length, of the acceptance. As in the compiled kernel, only the last step of a
split needs L: only energies that are not finite end a trajectory, and the energy spread is that of its two ends.
"""

from __future__ import annotations

from refhmc.batch.chains import Chains, indices
from refhmc.batch.steps import Mover, Point
from refhmc.batch.streams import Rows
from refhmc.batch.table import Table
from refhmc.core import sample_stats as S
from refhmc.kernels.hmc import MAX_STEPS, accept
from refhmc.kernels.options import Kernel
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class HMCTransitions(Table):
    """Trajectories of the chains.

    For each chain it has the point, H0, the least and the largest energy and the largest error so far, the numbers of steps
    made and to be made, and the step size. ``used`` is the number of uniforms of a transition before its steps.
    """

    in_the_end = 1  # uniforms after the steps

    def __init__(self, chains: Chains, mover: Mover, kernel: Kernel) -> None:
        self.chains, self.mover = chains, mover
        self.settings = {"jitter": 0.0, "length_jitter": 0.0, "trajectory_length": 0.0, **kernel.settings()}

    def start(self, rows: Rows) -> None:
        """Start the next transition of the chains ``rows``."""
        point = self.momenta(rows)
        xp, H0, nominal = batched.namespace(point.energy), point.energy, self.chains.step_size[rows]
        jitter, length_jitter = self.settings["jitter"], self.settings["length_jitter"]
        used, eps = max(self.mover.draws - 1, 0), nominal
        u = self.chains.uniforms(rows, xp.zeros(H0.shape, dtype=xp.int64), used + (jitter > 0) + (length_jitter > 0))
        if self.mover.draws:
            self.put(rows, order=self.chains.order(rows, self.mover.draws))
        if jitter > 0:
            eps, used = nominal * (1 + jitter * (2 * u[:, used] - 1)), used + 1
        fixed, length = self.settings["n_steps"] > 0, self.settings["trajectory_length"]
        n = 0 * nominal + self.settings["n_steps"] if fixed else length / nominal
        if length_jitter > 0:
            n, used = n * (1 + length_jitter * (2 * u[:, used] - 1)), used + 1
        n = xp.clip(xp.round(n), 1, None if fixed else MAX_STEPS)
        self.used = used
        self.put_point(rows, point)
        self.put(rows, H0=H0, lowest=H0, highest=H0, worst=0 * nominal, done=0 * nominal, eps=eps, n=n)
        self.start_record(rows, self.mover, point)

    def momenta(self, rows: Rows) -> Point:
        """Return the points at which the trajectories start."""
        return self.chains.with_momentum(rows, self.mover)

    def decide(self, rows: Array, rate: Array, error: Array) -> Array:
        """Return whether the proposals are accepted, from their probabilities and energy errors."""
        return self.chains.bernoulli(rows, self.uniforms_used(rows), rate)

    def turn(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Make one step; return the chains whose transition has ended, and its statistics."""
        last = self.done[rows] + 1 >= self.n[rows]
        point = self.moved(rows, last)
        H = point.energy
        xp, H0, worst = batched.namespace(H), self.H0[rows], self.worst[rows]
        finite, error = xp.isfinite(H) & xp.isfinite(H0), H - H0
        known = finite & (last | (not self.mover.spares))
        lowest, highest = self.lowest[rows], self.highest[rows]
        self.put_point(rows, point)
        self.put(
            rows,
            done=self.done[rows] + xp.astype(xp.isfinite(H0), H.dtype),
            lowest=xp.where(known & (lowest > H), H, lowest),
            highest=xp.where(known & (highest < H), H, highest),
            worst=xp.where(known & (xp.abs(error) > xp.abs(worst)), error, worst),
        )
        self.add_record(rows, self.mover)
        there = indices(rows, (self.done[rows] >= self.n[rows]) | ~finite)
        return there, self.end(there) if there.shape[0] else {}

    def moved(self, rows: Rows, last: Array) -> Point:
        """Return the ends of the next steps."""
        return self.mover.of(self.chains, rows)(self.point_of(rows), self.eps[rows], self.order_of(rows), last)

    def uniforms_used(self, rows: Rows) -> Array:
        """Return how many uniforms have been used so far."""
        return 0 * self.chains.transition[rows] + self.used

    def order_of(self, rows: Rows) -> Array | None:
        """Return the order in which the trajectories follow the parts, if it is drawn."""
        return self.order[rows] if self.mover.draws else None

    def end(self, rows: Array) -> dict[str, Array]:
        """Make the Metropolis decision of the chains ``rows``, and return the statistics.

        See :func:`refhmc.kernels.hmc.metropolis_accept`.
        """
        point, H0, eps, done = self.point_of(rows), self.H0[rows], self.eps[rows], self.done[rows]
        q, H = point.z[0], point.energy
        xp = batched.namespace(q)
        rate = accept(q, q, H - H0, 0 * H, done).acceptance_rate
        accepted = self.decide(rows, rate, H - H0)
        finite = xp.isfinite(H) & xp.isfinite(H0)
        self.chains.move(rows, accepted, q, point.log_density, point.gradient)
        failed = self.solver_failed(rows)
        spread = self.highest[rows] - self.lowest[rows] > S.MAX_ENERGY_SPREAD
        outcome = xp.where(finite, xp.where(spread, S.DIVERGED, S.REJECTED), self.reason(rows))
        unbounded = xp.where((H < 0) & xp.isfinite(H0), H - H0, xp.inf)  # a state without energy
        return {
            "lp": self.chains.log_density[rows],
            "energy": xp.where(accepted, H, xp.where(xp.isfinite(H0), H0, xp.inf)),
            "energy_error": xp.where(accepted, H - H0, 0.0),
            "max_energy_error": xp.where(finite | failed, self.worst[rows], unbounded),
            "acceptance_rate": rate,
            "diverging": xp.where(finite, spread, ~failed),
            "step_size": eps,
            "step_size_nom": self.chains.step_size[rows],
            "n_steps": done,
            "int_time": done * eps,
            "index_in_trajectory": xp.where(accepted, done, 0.0),
            "is_accepted": accepted,
            "outcome": xp.where(accepted, S.ACCEPTED, outcome),
            **self.record_statistics(rows),
        }

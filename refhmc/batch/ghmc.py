"""Generalised HMC of many chains: the transition of :mod:`refhmc.kernels.ghmc`, with momenta kept by the chains."""

from __future__ import annotations

from refhmc.batch.chains import Chains
from refhmc.batch.hmc import HMCTransitions
from refhmc.batch.steps import Mover, Point
from refhmc.batch.streams import Rows
from refhmc.kernels.ghmc import NOT_DRAWN, kept_share, refreshed, sliced
from refhmc.kernels.options import Kernel
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class KeptMomenta(HMCTransitions):
    """Trajectories that start with a momentum of which a part was kept: ``start_p`` (n, d)."""

    def __init__(self, chains: Chains, mover: Mover, kernel: Kernel) -> None:
        super().__init__(chains, mover, kernel)
        if chains.momentum is None:
            chains.momentum = chains.q * batched.namespace(chains.q).nan

    def share(self, rows: Rows) -> Array:
        """Return the share of the momentum that is kept, (r, 1)."""
        length = self.settings["n_steps"] * self.chains.step_size[rows]
        return kept_share(self.settings["persistence"], length[:, None])

    def momenta(self, rows: Rows) -> Point:
        point = super().momenta(rows)
        assert self.chains.momentum is not None
        q, n = point.z
        p = refreshed(n, self.chains.momentum[rows], self.share(rows))
        self.put(rows, start_p=p)
        return self.mover.at((q, p))

    def keep(self, rows: Array, accepted: Array, p: Array) -> None:
        """Keep p where accepted, and the reversed momentum of the start elsewhere."""
        assert self.chains.momentum is not None
        self.chains.momentum[rows] = batched.namespace(p).where(accepted[:, None], p, -self.start_p[rows])


class GHMCTransitions(KeptMomenta):
    """Trajectories of the chains, and their slice variables."""

    def __init__(self, chains: Chains, mover: Mover, kernel: Kernel) -> None:
        super().__init__(chains, mover, kernel)
        self.shift = self.settings["slice_shift"]
        if self.shift > 0:
            if chains.slice_variable is None:
                chains.slice_variable = NOT_DRAWN + 0 * chains.log_density
            self.in_the_end = int(batched.namespace(chains.q).any(chains.slice_variable > 1))

    def decide(self, rows: Array, rate: Array, error: Array) -> Array:
        if self.shift == 0:
            return super().decide(rows, rate, error)
        assert self.chains.slice_variable is not None
        v = self.chains.uniforms(rows, self.uniforms_used(rows), 1)[:, 0]
        below, u = sliced(self.chains.slice_variable[rows], v, error, self.shift)
        self.chains.slice_variable[rows] = u
        return below < rate

    def end(self, rows: Array) -> dict[str, Array]:
        p = self.point_of(rows).z[1]
        stats = super().end(rows)
        self.keep(rows, stats["is_accepted"], p)
        if self.chains.slice_variable is not None:
            stats["slice_variable"] = self.chains.slice_variable[rows]
        return stats

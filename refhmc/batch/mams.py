"""MAMS of many chains: the transition of :mod:`refhmc.kernels.mams`, on trajectories of constant speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refhmc.batch.chains import Chains
from refhmc.batch.ghmc import KeptMomenta
from refhmc.batch.hmc import HMCTransitions
from refhmc.batch.steps import Mover, Point
from refhmc.batch.streams import Rows
from refhmc.integrators.microcanonical import check_dimension, drifts_and_turns, projected, splitting_of
from refhmc.integrators.splitting import Splitting
from refhmc.kernels.options import Kernel
from refhmc.metrics.base import HamiltonianOnArrays
from refhmc.numerics.batched import Array


class SphereMover(Mover):
    """Steps of a splitting of the isokinetic dynamics. The energy of a point is -L plus the sum K of the changes so far."""

    def __init__(self, H: HamiltonianOnArrays, integrator: Splitting | None) -> None:
        check_dimension(H.model.dim)
        splitting: Any = splitting_of(integrator)
        super().__init__(H, splitting)
        self.step = drifts_and_turns(splitting.coefficients)

    def __call__(self, point: Point, eps: Array, order: Array | None = None, wanted: Array | None = None) -> Point:
        model = self.H.model
        model.forget()
        model.know(point.z[0], point.log_density, point.gradient)
        self.record.start(0 * eps)
        q, p, change = self.step(self.H, *point.z, eps[..., None])
        arrived = super().at((q, p))
        kinetic = point.energy + point.log_density + change
        model.forget()
        return arrived._replace(energy=kinetic - arrived.log_density + 0 * arrived.energy)

    def at(self, z: tuple, wanted: Array | None = None) -> Point:
        """Return the point at the start of a trajectory, with the projected momentum and K = 0."""
        q, p = z
        point = super().at((q, projected(self.H, q, p)))
        return point._replace(energy=-point.log_density + 0 * point.energy)


class KeptVelocities(KeptMomenta):
    """Trajectories that start with a velocity of which a part was kept."""

    def momenta(self, rows: Rows) -> Point:
        point = super().momenta(rows)
        self.put(rows, start_p=point.z[1])
        return point

    def end(self, rows: Array) -> dict[str, Array]:
        p = self.point_of(rows).z[1]
        stats = super().end(rows)
        self.keep(rows, stats["is_accepted"], p)
        return stats


def mams_transitions(chains: Chains, mover: Mover, kernel: Any) -> HMCTransitions:
    """Return the transitions of the chains."""
    kind: Callable[[Chains, Mover, Kernel], HMCTransitions] = (
        KeptVelocities if kernel.keeps_momentum else HMCTransitions
    )
    return kind(chains, mover, kernel)

"""Kernels: momentum, trajectory, accept."""

from refhmc.kernels.dhmc import DHMC
from refhmc.kernels.gibbs import Gibbs
from refhmc.kernels.hmc import HMC
from refhmc.kernels.nuts import NUTS

__all__ = ["DHMC", "HMC", "NUTS", "Gibbs"]

"""Kernels: draw a momentum, follow a trajectory, accept or reject."""

from refhmc.core.registry import registry
from refhmc.kernels.autostep import AutoStep as AutoStep
from refhmc.kernels.dhmc import DHMC as DHMC
from refhmc.kernels.drhmc import DRHMC as DRHMC
from refhmc.kernels.ghmc import GHMC as GHMC
from refhmc.kernels.gibbs import Gibbs as Gibbs
from refhmc.kernels.gist import GIST as GIST
from refhmc.kernels.hmc import HMC as HMC
from refhmc.kernels.malt import MALT as MALT
from refhmc.kernels.mams import MAMS as MAMS
from refhmc.kernels.mclmc import MCLMC as MCLMC
from refhmc.kernels.nuts import NUTS as NUTS
from refhmc.kernels.stochastic_gradient import SGD as SGD
from refhmc.kernels.stochastic_gradient import SGHMC as SGHMC
from refhmc.kernels.stochastic_gradient import SGLD as SGLD
from refhmc.kernels.tempered import Tempered as Tempered
from refhmc.kernels.walnuts import WALNUTS as WALNUTS

KERNELS = registry(globals())
__all__ = [each.__name__ for each in KERNELS.values()]

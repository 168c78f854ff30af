"""Gibbs alternation: each block of coordinates is moved by its own kernel while all others stay fixed.

    for each block b, in the order given:   q_b <- one transition of b's kernel on the density of q_b given the rest

Each transition keeps the conditional of its block and therefore the joint distribution. So does their sequence. A draw is the
position after all blocks. (The alternation is not reversible as a whole, and need not be.)

Each block has its own metric, integrator and adaptation. The step size is adapted by dual averaging of the block's own
acceptance, and the metric from the block's draws in the same windows (:mod:`refhmc.adaptation`). If the model has no
conditional of its own, that of a block follows from the joint model (:mod:`refhmc.models.conditionals`). Brofos and Lederman
(2021), sec. 4.4, alternate in this way between the latent series of a stochastic-volatility model and its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.registry import registry
from refhmc.kernels.autostep import AutoStep
from refhmc.kernels.blocks import Block, block_name
from refhmc.kernels.dhmc import DHMC
from refhmc.kernels.drhmc import DRHMC
from refhmc.kernels.ghmc import GHMC
from refhmc.kernels.gist import GIST
from refhmc.kernels.hmc import HMC
from refhmc.kernels.malt import MALT
from refhmc.kernels.mams import MAMS
from refhmc.kernels.mclmc import MCLMC
from refhmc.kernels.nuts import NUTS
from refhmc.kernels.options import Kernel, check_kernel, named
from refhmc.kernels.walnuts import WALNUTS

OF_BLOCKS = registry(
    {each.__name__: each for each in (AutoStep, DHMC, DRHMC, GHMC, GIST, HMC, MALT, MAMS, MCLMC, NUTS, WALNUTS)}
)


@dataclass(frozen=True, eq=False)
class Gibbs:
    """Gibbs alternation between blocks of coordinates, each moved by its own kernel.

    One transition from q is::

        for each block b, in the order given:
            q_b <- one transition of b's kernel on the density of q_b given the rest

    Each transition keeps the conditional distribution of its block and therefore the joint distribution. So does their
    sequence. The alternation is not reversible as a whole, and need not be. Each block has its own metric, integrator and
    adaptation.

    Parameters
    ----------
    blocks : mapping
        The kernel of each block, in the order in which the blocks are moved. A kernel is ``HMC(...)``, ``NUTS(...)``,
        ``GHMC(...)``, ``DRHMC(...)``, ``MALT(...)``, ``MAMS(...)``, ``MCLMC(...)``, ``GIST(...)``, ``AutoStep(...)``,
        ``DHMC(...)``, one of your own, or a name such as ``"nuts"``. A block is the name of a variable, a tuple of names, or a
        tuple or range of indices of coordinates. Names of coordinates are for example ``"v"``, ``"x[3]"``, or ``"x"`` for all
        of ``x[0]``, ``x[1]``, .... The name of a constrained variable means all coordinates on which it depends. Each
        coordinate must be in exactly one block. Coordinates with jumps need ``DHMC``.

    Raises
    ------
    ValueError
        If `blocks` is empty, if two blocks are equal or have the same name, or if a name is unknown. When the kernel is first
        used with a model, also if the model does not have a name or index, or if the blocks overlap or leave a coordinate out.
    TypeError
        If the kernel of a block is not a kernel of one transition.

    Notes
    -----
    The statistics have ``lp`` (of the joint model), ``acceptance_rate`` (the mean over the blocks), ``n_steps`` (their sum),
    ``diverging`` and ``is_accepted`` (whether any block did). They also have the statistics of each block with its name at the
    end, for example ``step_size_x``. The names of a block of several variables are joined (``step_size_beta_sigma_phi``). A
    block of indices has its place as its name (``step_size_block0``).

    References
    ----------
    Brofos and Lederman (2021), section 4.4, alternate in this way between the latent series of a
    stochastic-volatility model and its parameters.

    Examples
    --------
    >>> import refhmc
    >>> kernel = refhmc.Gibbs({"v": refhmc.HMC(n_steps=3), "x": refhmc.NUTS()})
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), kernel, draws=100, tune=100, random_seed=1, progressbar=False, raw=True
    ... )
    >>> result.posterior["x"].shape
    (4, 100, 2)
    >>> int(result.sample_stats["n_steps_v"].max())
    3
    """

    name = "gibbs"
    blocks: Mapping

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, Mapping) or not self.blocks:
            raise ValueError(
                f"blocks must map names or indices to kernels; got {self.blocks!r}. "
                'Give for example {"x": refhmc.NUTS()}.'
            )
        plain = {plain_block(block): made(kernel, block) for block, kernel in self.blocks.items()}
        if len(plain) < len(self.blocks):
            raise ValueError(f"blocks must have different coordinates; got {list(self.blocks)}. Remove one of two.")
        object.__setattr__(self, "blocks", plain)
        names = [block_name(block, place) for place, block in enumerate(self.blocks)]
        if len(set(names)) < len(names):
            raise ValueError(f"blocks must have different names; got {names}. Give indices for one of two.")


def plain_block(block: Block) -> Block:
    """Return a block as a checkpoint stores it: indices as Python integers, a range as a tuple."""
    if isinstance(block, np.integer):
        return int(block)
    if isinstance(block, str) or not isinstance(block, Iterable):
        return block
    return tuple(int(part) if isinstance(part, np.integer) else part for part in block)


def made(kernel: Any, block: Block) -> Kernel:
    """Return a block's kernel, given as an object or by a word."""
    what = f"block {block!r}: the kernel"
    if isinstance(kernel, str):
        word, kernel = kernel, named(kernel, what, OF_BLOCKS)
        if kernel is None:
            raise ValueError(f'{what} must be a kernel or its name, such as "nuts"; got {word!r}.')
    check_kernel(kernel, what)
    return kernel

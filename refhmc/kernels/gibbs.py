"""Gibbs alternation: each block of coordinates is moved by a kernel of its own, all others held where they are.

    for each block b, in the order given:   q_b <- one transition of b's kernel on the density of q_b given the rest

Each transition keeps the conditional of its block, hence the joint distribution; so does one after the other. A draw is
the position after all blocks. (The alternation is not reversible as a whole, and need not be.)

Each block has its own metric, integrator and adaptation: the step size by dual averaging of its own acceptance, the metric
from its own draws in the same windows (:mod:`refhmc.adaptation`). Where the model brings no conditional of its own, a
block's follows from the joint model (:mod:`refhmc.models.conditionals`). Brofos and Lederman (2021), sec. 4.4, alternate so
between the latent series of a stochastic-volatility model and its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.registry import registry
from refhmc.kernels.blocks import block_name
from refhmc.kernels.dhmc import DHMC
from refhmc.kernels.hmc import HMC
from refhmc.kernels.nuts import NUTS
from refhmc.kernels.options import check_kernel, named

OF_BLOCKS = registry({"DHMC": DHMC, "HMC": HMC, "NUTS": NUTS})


@dataclass(frozen=True, eq=False)
class Gibbs:
    """``Gibbs({"v": HMC(...), "x": NUTS(...)})``: a kernel for each block, in the order of their turns.

    A block with coordinates that jump is ``DHMC``'s. A kernel can be a word, ``"nuts"``, as in :func:`refhmc.sample`; not
    ``"auto"``, for a model recommends a kernel for all of its coordinates.

    A block is a variable's name, a tuple of names, or a tuple or range of indices of coordinates. Names are those of the
    model's coordinates (``v``, ``x`` for all of ``x[0], x[1], ...``, or ``x[3]``) or of its constrained variables, which
    stand for all coordinates that they depend on (``("beta", "sigma", "phi")``). Together the blocks must be all
    coordinates, each in one.

    ``sample_stats`` has for each draw ``lp`` (of the joint model), ``acceptance_rate`` (the mean over the blocks),
    ``n_steps`` (their sum), ``diverging`` and ``is_accepted`` (any), and each block's own statistics with the block's name
    at their end, ``step_size_x``; a block of several has its names joined, ``step_size_beta_sigma_phi``, one of
    indices its place, ``step_size_block0``.

    Raises TypeError for what is no kernel of one transition, ValueError for no blocks, two alike or of one name, or another
    word; where it is first used with a model, ValueError for names it does not have, and for blocks that overlap or leave a
    coordinate out.
    """

    name = "gibbs"
    blocks: Mapping

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, Mapping) or not self.blocks:
            raise ValueError(f"blocks must map names or indices to kernels, got {self.blocks!r}")
        plain = {plain_block(block): made(kernel, block) for block, kernel in self.blocks.items()}
        if len(plain) < len(self.blocks):
            raise ValueError(f"two blocks are the same coordinates: {list(self.blocks)}")
        object.__setattr__(self, "blocks", plain)
        names = [block_name(block, place) for place, block in enumerate(self.blocks)]
        if len(set(names)) < len(names):
            raise ValueError(f"two blocks have one name: {names}")


def plain_block(block: Any) -> Any:
    """A block as it is written down in a checkpoint: its indices Python's integers, a range a tuple."""
    if isinstance(block, np.integer):
        return int(block)
    if isinstance(block, str) or not isinstance(block, Iterable):
        return block
    return tuple(int(part) if isinstance(part, np.integer) else part for part in block)


def made(kernel: Any, block: Any) -> Any:
    """A block's kernel, given as an object or by a word."""
    what = f"block {block!r}: the kernel"
    if isinstance(kernel, str):
        word, kernel = kernel, named(kernel, what, OF_BLOCKS)
        if kernel is None:
            raise ValueError(f'{what} cannot be {word!r}: name one, such as "nuts"')
    check_kernel(kernel, what)
    return kernel

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

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core import sample_stats as S
from refhmc.core.records import records
from refhmc.kernels.options import check_kernel

if TYPE_CHECKING:
    from refhmc.models.base import Model

# A conditional's log density and energy are known up to what does not depend on the block, which the other blocks change.
NOT_OF_BLOCKS = ("lp", "energy")


@dataclass(frozen=True, eq=False)
class Gibbs:
    """``Gibbs({"v": HMC(...), "x": NUTS(...)})``: a kernel for each block, in the order of their turns.

    A block with coordinates that jump is ``DHMC``'s.

    A block is a variable's name, a tuple of names, or a tuple of indices of coordinates. Names are those of the model's
    coordinates (``v``, ``x`` for all of ``x[0], x[1], ...``, or ``x[3]``) or of its constrained variables, which stand
    for all coordinates that they depend on (``("beta", "sigma", "phi")``). Together the blocks must be all coordinates,
    each in one.

    ``sample_stats`` has for each draw ``lp`` (of the joint model), ``acceptance_rate`` (the mean over the blocks),
    ``n_steps`` (their sum), ``diverging`` and ``is_accepted`` (any), and each block's own statistics with the block's name
    at their end, ``step_size_x``; a block of several has its names joined, ``step_size_beta_sigma_phi``, one of
    indices its place, ``step_size_block0``.

    Raises TypeError for what is no kernel of one transition, ValueError for no blocks or two of one name; where it is first
    used with a model, ValueError for names it does not have, and for blocks that overlap or leave a coordinate out.
    """

    blocks: Mapping

    title = "the Gibbs kernel"

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, Mapping) or not self.blocks:
            raise ValueError(f"blocks must map names or indices to kernels, got {self.blocks!r}")
        for block, kernel in self.blocks.items():
            check_kernel(kernel, f"block {block!r}: the kernel")
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"two blocks have one name: {names}")

    @property
    def names(self) -> list[str]:
        """A name for each block."""
        return [block_name(block, place) for place, block in enumerate(self.blocks)]

    @property
    def kernels(self) -> list:
        return list(self.blocks.values())

    def indices(self, model: Model) -> list[np.ndarray]:
        """The coordinates of each block. Raises ValueError unless they are a partition of the model's."""
        found = [block_indices(model, block) for block in self.blocks]
        times = np.bincount(np.concatenate(found), minlength=model.dim)
        for wrong, what in ((times > 1, "more than one block"), (times == 0, "no block")):
            if wrong.any():
                first = [model.names[i] for i in np.flatnonzero(wrong)[:3]]
                more = f" and {wrong.sum() - 3} more" if wrong.sum() > 3 else ""
                raise ValueError(f"Gibbs on model {model.name!r}: {', '.join(first)}{more} in {what}")
        return found

    def split(self, rows: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
        """Typed statistics of each block by its name, from the core's rows (..., blocks * N_STATS)."""
        parts = rows.reshape(*rows.shape[:-1], len(self.blocks), S.N_STATS)
        triples = zip(self.names, self.kernels, np.moveaxis(parts, -2, 0), strict=True)
        return {name: S.named(part, kernel.statistics) for name, kernel, part in triples}

    def named(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """All statistics of the draws by name."""
        parts = rows.reshape(*rows.shape[:-1], len(self.blocks), S.N_STATS)
        whole: dict[str, Any] = dict(S.named(parts[..., -1, :], ("lp",)))
        of_blocks = records(parts, S.STATS)
        whole["acceptance_rate"] = of_blocks.acceptance_rate.mean(axis=-1)
        whole["n_steps"] = of_blocks.n_steps.sum(axis=-1).astype(np.int64)
        whole["diverging"] = np.any(of_blocks.diverging != 0, axis=-1)
        whole["is_accepted"] = np.any(of_blocks.is_accepted != 0, axis=-1)
        for block, part in self.split(rows).items():
            whole |= {f"{name}_{block}": value for name, value in part.items() if name not in NOT_OF_BLOCKS}
        return whole


def block_name(block: tuple | str, place: int) -> str:
    """``x``, ``beta_sigma_phi``, or ``block0`` for indices."""
    if isinstance(block, str):
        return block
    if isinstance(block, Iterable) and all(isinstance(part, str) for part in block):
        return "_".join(block)
    return f"block{place}"


def block_indices(model: Model, block: Any) -> np.ndarray:
    """The coordinates of a block, in the order it names them. Raises ValueError for what the model does not have."""
    parts = [block] if isinstance(block, str | int | np.integer) else list(block)
    if not parts:
        raise ValueError("a block must have at least one coordinate")
    found: list[int] = []
    for part in parts:
        if isinstance(part, str):
            found += coordinates_of(model, part)
        elif isinstance(part, bool) or not isinstance(part, int | np.integer) or not 0 <= part < model.dim:
            raise ValueError(f"block {block!r}: coordinates are whole numbers from 0 to {model.dim - 1}, got {part!r}")
        else:
            found.append(int(part))
    if len(set(found)) < len(found):
        raise ValueError(f"block {block!r} has a coordinate twice")
    return np.array(found)


def coordinates_of(model: Model, name: str) -> list[int]:
    """The coordinates called ``name`` or ``name[k]``; else those a constrained variable of that name depends on."""
    called = [i for i, each in enumerate(model.names) if each == name or re.sub(r"\[\d+\]$", "", each) == name]
    if called:
        return called
    rng = np.random.default_rng(1)
    base = rng.uniform(-1, 1, model.dim)
    there = model.constrain(base)
    if name not in there:
        known = ", ".join(dict.fromkeys([*(re.sub(r"\[\d+\]$", "", each) for each in model.names), *there]))
        raise ValueError(f"model {model.name!r} has no variable {name!r}; it has {known}")
    moved = model.constrain(base + np.diag(rng.uniform(0.1, 0.5, model.dim)))[name]
    return [i for i in range(model.dim) if not np.array_equal(moved[i], there[name])]

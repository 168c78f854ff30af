"""The blocks of a kernel: the coordinates that are moved together, and the kernel that moves them.

A kernel with ``blocks``, a mapping from blocks to kernels, moves the blocks one after the other (:mod:`refhmc.kernels.gibbs`).
A kernel of one transition has a single block, ``ALL``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core import sample_stats as S
from refhmc.core.hierarchy import coordinates_of
from refhmc.core.protocols import Model
from refhmc.core.records import records

if TYPE_CHECKING:
    from refhmc.kernels.options import AnyKernel, Kernel

Block = str | int | Iterable[str | int]  # a name, an index, or several
ALL = ""  # the block of all coordinates, and its name
# A conditional's log density and energy have an unknown additive constant, which the other blocks change.
NOT_OF_BLOCKS = ("lp", "energy")


def blocks_of(kernel: AnyKernel) -> Mapping[Block, Kernel]:
    """Return a mapping from each block to the kernel that moves it, in their order."""
    return getattr(kernel, "blocks", {ALL: kernel})


def is_tempered(kernel: AnyKernel) -> bool:
    """Return whether the blocks are replicas of all coordinates (:mod:`refhmc.kernels.tempered`)."""
    return hasattr(kernel, "rungs")


def kernels_of(kernel: AnyKernel) -> dict[str, Kernel]:
    """Return the kernels by the names of their blocks."""
    return {block_name(block, place): each for place, (block, each) in enumerate(blocks_of(kernel).items())}


def indices_of(model: Model, kernel: AnyKernel) -> list[np.ndarray]:
    """Return the coordinates of each block. Raises ValueError unless they are a partition of the model's coordinates.

    A replica of tempering has all coordinates.
    """
    if is_tempered(kernel):
        return [np.arange(model.dim)] * len(blocks_of(kernel))
    found = [block_indices(model, block) for block in blocks_of(kernel)]
    times = np.bincount(np.concatenate(found), minlength=model.dim)
    for wrong, what in ((times > 1, "more than one block"), (times == 0, "no block")):
        if wrong.any():
            first = [model.names[i] for i in np.flatnonzero(wrong)[:3]]
            more = f" and {wrong.sum() - 3} more" if wrong.sum() > 3 else ""
            raise ValueError(
                f"blocks of {type(kernel).__name__} must have each coordinate of model {model.name!r} exactly once; "
                f"got {', '.join(first)}{more} in {what}."
            )
    return found


def statistics_of_blocks(kernel: AnyKernel, rows: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Return typed statistics of each block by its name, from the core's rows (..., blocks * N_STATS)."""
    kernels = kernels_of(kernel)
    parts = np.moveaxis(_by_block(rows, len(kernels)), -2, 0)
    return {name: S.named(part, each.statistics) for part, (name, each) in zip(parts, kernels.items(), strict=True)}


def statistics(kernel: AnyKernel, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return all statistics of the draws by name; for several blocks, those of all together and those of each with its name."""
    if is_tempered(kernel):
        return _of_rungs(kernel, rows)
    by_name = statistics_of_blocks(kernel, rows)
    if ALL in by_name:
        return by_name[ALL]
    of_blocks = records(_by_block(rows, len(by_name)), S.STATS)
    whole: dict[str, np.ndarray] = {
        "lp": of_blocks.lp[..., -1].copy(),
        "acceptance_rate": of_blocks.acceptance_rate.mean(axis=-1),
        "n_steps": of_blocks.n_steps.sum(axis=-1).astype(np.int64),
        "diverging": np.any(of_blocks.diverging != 0, axis=-1),
        "is_accepted": np.any(of_blocks.is_accepted != 0, axis=-1),
    }
    for block, part in by_name.items():
        whole |= {f"{name}_{block}": value for name, value in part.items() if name not in NOT_OF_BLOCKS}
    return whole


def rows_of(kernel: AnyKernel, named: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return rows (n, blocks * N_STATS) from which :func:`statistics` makes these, (n,) each; other entries are 0."""
    if is_tempered(kernel):
        return _rows_of_rungs(kernel, named)
    by_block, of = named_by_block(kernel, named), S.STATS.names or ()
    rows = np.zeros((len(next(iter(named.values()))), len(by_block), S.N_STATS))
    for place, values in enumerate(by_block.values()):
        for name, value in values.items():
            rows[:, place, of.index(name)] = value
    if "lp" in named:
        rows[:, -1, of.index("lp")] = named["lp"]
    return rows.reshape(len(rows), -1)


def _of_rungs(kernel: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the statistics of tempering: those of the kernel at the target, and arrays over the temperatures or pairs."""
    K = len(kernel.blocks)
    of_rungs = _by_block(rows, K)
    by_name = records(of_rungs, S.STATS)
    whole = S.named(of_rungs[..., kernel.rungs - 1, :], kernel.kernel.statistics)
    b, replica = by_name.inverse_temperature, by_name.replica.astype(np.int64)
    first = K * (K + 1) // 2 - replica.sum(axis=-1, keepdims=True)
    return whole | {
        "inverse_temperature": np.concatenate([np.zeros_like(b[..., :1]), b], axis=-1),
        "replica": np.concatenate([first, replica], axis=-1),
        "log_ratio": by_name.log_ratio.copy(),
        "next_log_ratio": by_name.next_log_ratio.copy(),
    }


def _rows_of_rungs(kernel: Any, named: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the rows from which :func:`_of_rungs` makes these statistics."""
    K = len(kernel.blocks)
    rows = np.zeros((len(named["replica"]), K, S.N_STATS))
    for name, values in named.items():
        if values.ndim == 1:
            rows[:, kernel.rungs - 1, S.PLACE[name]] = values
        else:
            rows[:, :, S.PLACE[name]] = values[:, -K:]
    return rows.reshape(len(rows), -1)


def named_by_block(kernel: AnyKernel, named: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Return the statistics that :func:`statistics` has made by block again, without those that it omits for blocks."""
    names = list(kernels_of(kernel))
    if names == [ALL]:
        return {ALL: dict(named)}
    ends = {block: f"_{block}" for block in names}
    return {b: {k.removesuffix(end): v for k, v in named.items() if k.endswith(end)} for b, end in ends.items()}


def _by_block(rows: np.ndarray, n_blocks: int) -> np.ndarray:
    """Return the rows with an axis of blocks."""
    return rows.reshape(*rows.shape[:-1], n_blocks, S.N_STATS)


def block_name(block: object, place: int) -> str:
    """Return the name of a block: ``x``, ``beta_sigma_phi``, or ``block0`` for indices."""
    if isinstance(block, str):
        return block
    if isinstance(block, Iterable) and all(isinstance(part, str) for part in block):
        return "_".join(block)
    return f"block{place}"


def block_indices(model: Model, block: Block) -> np.ndarray:
    """Return the coordinates of a block, in its order. Raises ValueError for names and indices that the model does not have."""
    if isinstance(block, str) and block == ALL:
        return np.arange(model.dim)
    parts = [block] if isinstance(block, str | int | np.integer) else list(block)
    if not parts:
        raise ValueError(f"block must have at least one coordinate; got {block!r}. Remove the block.")
    found: list[int] = []
    for part in parts:
        if isinstance(part, str):
            found += coordinates_of(model, part)
        elif isinstance(part, bool) or not isinstance(part, int | np.integer) or not 0 <= part < model.dim:
            raise ValueError(
                f"block {block!r} must have names or whole numbers from 0 to {model.dim - 1}; got {part!r}."
            )
        else:
            found.append(int(part))
    if len(set(found)) < len(found):
        raise ValueError(f"block {block!r} must have each coordinate once; got a coordinate twice.")
    return np.array(found)

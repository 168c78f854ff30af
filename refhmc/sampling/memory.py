"""Draws and statistics of a run without a store: the result's own arrays, which its chains fill.

The core writes a chain's positions into their place at once. Statistics it writes as rows of float64, N_STATS a block of
the kernel, of which a kernel fills some: so many rows as take a mebibyte, which then go to typed columns, and the next ones
come in their stead. So a draw takes what it takes in the result, and nothing is copied at the end.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.kernels.blocks import rows_of, statistics
from refhmc.sampling.journal import Rows

if TYPE_CHECKING:
    from refhmc.models.base import Model

WINDOW = 2**20  # bytes of rows of statistics of one chain
BLOCK = 2**22  # bytes of positions whose constrained values are made at a time


class Memory:
    """``q`` (chains, n, d) and ``stats`` by name, (chains, n): of each chain the iterations from ``first`` to ``total``.

    The system gives memory as it is written to: what is not drawn takes none.
    """

    def __init__(self, kernel: Any, chains: int, dim: int, n_stats: int, first: int, total: int) -> None:
        self.kernel, self.first, self.total, self.n_stats = kernel, first, total, n_stats
        self.chunk = max(1, WINDOW // (8 * n_stats))
        self.q = np.zeros((chains, total - first, dim))
        example = statistics(kernel, np.zeros((1, n_stats)))
        self.stats = {name: np.zeros((chains, total - first), of.dtype) for name, of in example.items()}
        self._taking = [threading.Lock() for _ in range(chains)]

    def window(self, chain: int, iteration: int, stats: np.ndarray) -> Rows:
        """Where the iterations from this one on are written; ``stats``: rows that are free, or too few of them."""
        n = min(self.chunk, self.total - iteration)
        at = iteration - self.first
        return Rows(
            iteration, self.q[chain, at : at + n], stats[:n] if n <= len(stats) else np.zeros((n, self.n_stats))
        )

    def none(self, chain: int, iteration: int) -> Rows:
        """No rows, before this one."""
        at = iteration - self.first
        return Rows(iteration, self.q[chain, at:at], np.zeros((0, self.n_stats)))

    def lock(self, chain: int) -> threading.Lock:
        """Held while a window of the chain is read, or gives way to the next."""
        return self._taking[chain]

    def take(self, chain: int, rows: Rows) -> None:
        """The rows of a window, whose positions are in their place: their statistics go to the columns."""
        if len(rows.stats):
            at = slice(rows.first - self.first, rows.end - self.first)
            for name, values in statistics(self.kernel, rows.stats).items():
                self.stats[name][chain, at] = values

    def between(self, chain: int, first: int, end: int) -> Rows:
        """Iterations of a chain as the core made them, for a checkpoint."""
        at = slice(first - self.first, end - self.first)
        return Rows(
            first,
            self.q[chain, at],
            rows_of(self.kernel, {name: of[chain, at] for name, of in self.stats.items()}),
        )

    def cut(self, chains: list[int], first: int, n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Positions and statistics of ``n`` iterations of some chains: no copies where these are all chains."""
        at = slice(first - self.first, first - self.first + n)

        def part(array: np.ndarray) -> np.ndarray:
            return array[:, at] if len(chains) == len(array) else np.stack([array[k, at] for k in chains])

        return part(self.q), {name: part(of) for name, of in self.stats.items()}


class RowsOfChain(NamedTuple):
    """All that a chain has in memory, as a checkpoint asks for it: some rows at a time."""

    memory: Memory
    chain: int
    first: int

    def between(self, first: int, end: int) -> Rows:
        return self.memory.between(self.chain, first, end)


def constrained(model: Model, q: np.ndarray) -> dict[str, np.ndarray]:
    """``model.constrain`` of positions (chains, n, d), some of them at a time."""
    chains, n, d = q.shape
    if q.nbytes <= BLOCK:
        return model.constrain(q)
    whole: dict[str, np.ndarray] = {}
    several = max(1, BLOCK // (8 * n * d))  # chains, or else draws of one, at a time
    many = n if several > 1 else max(1, BLOCK // (8 * d))
    for k in range(0, chains, several):
        for i in range(0, n, many):
            for name, values in model.constrain(q[k : k + several, i : i + many]).items():
                if name not in whole:
                    whole[name] = np.empty((chains, n, *values.shape[2:]), values.dtype)
                kind = np.result_type(whole[name], values)
                if kind != whole[name].dtype:
                    whole[name] = whole[name].astype(kind)
                whole[name][k : k + several, i : i + many] = values
    return whole

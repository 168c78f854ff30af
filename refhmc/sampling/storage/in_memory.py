"""Draws and statistics of a run without a store: the chains fill the result's own arrays.

The core writes a chain's positions directly into these arrays. It writes statistics as rows of float64, with N_STATS columns
per block of the kernel, into a window of one mebibyte. Full windows are converted to typed columns and reused. So a draw takes
no more memory than in the result, and nothing is copied at the end.
"""

from __future__ import annotations

import threading

import numpy as np

from refhmc.kernels.blocks import rows_of, statistics
from refhmc.kernels.options import AnyKernel
from refhmc.models.base import Model
from refhmc.sampling.chains.task import ChainTask, Saved
from refhmc.sampling.storage.append_only import Rows

WINDOW = 2**20  # bytes of a chain's window of statistics
BLOCK = 2**22  # bytes of positions that are constrained in one call


class Memory:
    """Arrays of a run: ``q`` (chains, n, d) and ``stats`` by name (chains, n, ...), for iterations `first` to `total`.

    The operating system allocates memory when it is written, so that missing draws take none.
    """

    def __init__(self, kernel: AnyKernel, chains: int, dim: int, n_stats: int, first: int, total: int) -> None:
        self.first, self.n_stats = first, n_stats
        self.q = np.zeros((chains, total - first, dim))
        example = statistics(kernel, np.zeros((1, n_stats)))
        self.stats = {name: np.zeros((chains, total - first, *of.shape[1:]), of.dtype) for name, of in example.items()}

    def cut(self, chains: list[int], first: int, n: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return positions and statistics of `n` iterations of some chains, as views if these are all chains."""
        at = slice(first - self.first, first - self.first + n)

        def part(array: np.ndarray) -> np.ndarray:
            return array[:, at] if len(chains) == len(array) else np.stack([array[k, at] for k in chains])

        return part(self.q), {name: part(of) for name, of in self.stats.items()}


class InMemory:
    """Storage of one chain in a :class:`Memory` (:class:`refhmc.sampling.storage.chain_storage.ChainStorage`)."""

    on_disk = False

    def __init__(self, task: ChainTask, memory: Memory) -> None:
        self.task, self.first = task, task.first
        self.q, self.stats = memory.q[task.chain], {name: of[task.chain] for name, of in memory.stats.items()}
        self.none = np.zeros((0, memory.n_stats))
        self.saved: Saved | None = None
        self.unsaved = ""
        self.rows = Rows(task.first, self.q[:0], self.none)
        self._taking = threading.Lock()  # held while a window is read or replaced

    def between(self, first: int, end: int) -> Rows:
        """Return iterations as rows, for a checkpoint."""
        at = slice(first - self.first, end - self.first)
        return Rows(first, self.q[at], rows_of(self.task.kernel, {name: of[at] for name, of in self.stats.items()}))

    def _take(self, rows: Rows) -> None:
        """Write the statistics of a window to the columns; its positions are in place already."""
        if len(rows.stats):
            at = slice(rows.first - self.first, rows.end - self.first)
            for name, values in statistics(self.task.kernel, rows.stats).items():
                self.stats[name][at] = values

    def made(self, done: int) -> Rows:
        """Return the positions of `done` iterations; the columns hold their statistics."""
        with self._taking:
            rows = self.rows
            if done > rows.first:
                self._take(rows.between(rows.first, done))
            if done == self.task.total and len(rows.draws):
                self.rows = Rows(done, self.q[len(self.q) :], self.none)
        return Rows(self.first, self.q[: max(done - self.first, 0)], self.none)

    def make_room(self, done: int) -> bool:
        if done == self.rows.end < self.task.total:
            with self._taking:
                self._take(self.rows)
                at, stats, n_stats = done - self.first, self.rows.stats, self.none.shape[1]
                n = min(max(1, WINDOW // (8 * n_stats)), self.task.total - done)
                stats = stats[:n] if n <= len(stats) else np.zeros((n, n_stats))
                self.rows = Rows(done, self.q[at : at + n], stats)
        return False

    def save(self, saved: Saved, *, now: bool = False) -> None:
        pass

    def close(self, saved: Saved) -> None:
        pass

    def start_of_draws(self) -> np.ndarray:
        tune = self.task.tune
        if self.first < tune <= self.rows.end and len(self.q):
            return self.q[tune - 1 - self.first]
        return np.full(self.task.model.dim, np.nan) if self.saved is None else self.saved.start_of_draws


def constrained(model: Model, q: np.ndarray) -> dict[str, np.ndarray]:
    """Apply ``model.constrain`` to positions (chains, n, d) in blocks."""
    chains, n, d = q.shape
    if q.nbytes <= BLOCK:
        return model.constrain(q)
    whole: dict[str, np.ndarray] = {}
    several = max(1, BLOCK // (8 * n * d))  # chains per call, else draws of one chain
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

"""Estimate of the memory of a run, before any of it is allocated; a run that does not fit is rejected.

Bytes for c chains of n kept iterations in d coordinates:

    draws       c n (8 d + values + statistics): positions, constrained values, the kernel's statistics by type
    matrices    those of dense and Riemannian metrics, for the chains that run at a time
    review      R-hat and effective sample sizes of a part of the draws, flags of all
    generated   groups that the model generates, one of them twice while chains are joined

Groups are generated after the review, so that the run needs ``draws + matrices + max(review, generated)``. With a store, draws
are the rows that wait for the disk. Vectors of d numbers, and the draws that a low-rank metric is adapted to (at most 16 MB per
chain), are left out.

With ``backend="arrays"`` the states of all chains and the transitions of a batch count instead of the review if they need more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from refhmc.backends import Arrays, Numba
from refhmc.batch.backends import BUDGET, OF_A_BATCH, memory_there
from refhmc.batch.draw import NOT_OF_A_DRAW
from refhmc.core.available import available
from refhmc.core.sample_stats import N_STATS
from refhmc.integrators.defaults import resolve
from refhmc.kernels.autostep import AutoStep
from refhmc.kernels.blocks import blocks_of, indices_of, kernels_of, statistics
from refhmc.kernels.gist import GIST
from refhmc.kernels.options import Kernel
from refhmc.metrics.base import for_model
from refhmc.models.base import Model
from refhmc.sampling.chains.compiled_chains import LOOKED_AT
from refhmc.sampling.results.review import MAX_CHAINS, MAX_COLUMNS, values_looked_at
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.in_memory import BLOCK, WINDOW
from refhmc.sampling.storage.store import CHUNK

OF_DENSE = 5  # matrices of a dense metric while it is adapted: the metric, its factor, the scatter, and copies
OF_RIEMANNIAN = 6  # matrices of a metric without ``n_matrices``
# Measured peaks of transitions in arrays, per chain: numbers, vectors of d numbers, and matrices.
OF_CHAIN, VECTORS, MATRICES_IN_ARRAYS = 60, 30, 24
VECTORS_OF_TREE, VECTORS_OF_DEPTH = 50, 7  # in addition, of NUTS
VECTORS_OF_PATH = 450  # in addition, of GIST and AutoStep, which keep the states of their paths
OF_STATE, VECTORS_OF_STATE = 60, 12  # numbers per chain that stay between transitions
OF_MODEL = 3  # arrays that a model has at a time on a device
MOST_OF_MODEL = 2**26  # numbers in one of them, as models' ``largest``
LITTLE = 2**24  # bytes that need no query of the system, which takes half a millisecond
REVIEWED_AT_ONCE, OF_EVERY_DRAW = 10, 2  # numbers per draw: for R-hat, and for all draws reviewed


class Room(NamedTuple):
    """Bytes by use."""

    draws: int
    matrices: int
    review: int
    generated: int

    @property
    def needed(self) -> int:
        return self.draws + self.matrices + max(self.review, self.generated)


def check_memory(spec: RunSpec, values: int | None = None, generated: int = 0) -> None:
    """Raise MemoryError, with the bytes needed and available and with advice, if the run does not fit, on the device or here.

    `values` are the bytes of the constrained values of a position (default: those of the position), `generated` those of
    generated groups.
    """
    room, compiled = room_for(spec, values, generated), isinstance(spec.backend, Numba)
    there = available() if room.needed > LITTLE else None
    if there is not None and room.needed > there:
        todo, of_numba = [], "" if compiled else "backend='numba' with "
        if room._replace(generated=0).needed <= there:
            todo += ["generate=False (and refhmc.generate after the run)"]
        if room.draws > there / 2 and spec.store is None:
            todo += [f"{of_numba}store=FOLDER, which keeps draws on disk"]
            todo += ["save_warmup=False"] if spec.save_warmup else []
            todo += ["fewer draws"]
        if room.matrices > there / 2:
            todo += ["a diagonal metric"]
        if spec.backend.name == "arrays" and room_of_transitions(spec) > there / 2 and chains_at_once(spec) > 1:
            todo += [f"backend=refhmc.Arrays(chains_at_once=N) with N below {chains_at_once(spec):,}"]
        raise MemoryError(
            f"This run needs about {room.needed:,} bytes of memory ({room.draws:,} for draws, {room.matrices:,} for matrices "
            f"of the metric), but only {there:,} are available to this process. Use {' or '.join([*todo, 'fewer chains'])}."
        )
    needed = room_on_device(spec) if spec.backend.name == "cupy" else 0
    there = memory_there("cupy") if needed else None
    if there is not None and needed > there:
        raise MemoryError(
            f"This run needs about {needed:,} bytes on the device for {spec.chains} chains, {chains_at_once(spec)} at a time, "
            f"but only {there:,} are available. Use backend=refhmc.CuPy(chains_at_once=N) with a smaller N, or fewer chains."
        )


def room_for(spec: RunSpec, values: int | None = None, generated: int = 0) -> Room:
    """Return the memory of a run, without that on a device."""
    model, c, d, kept = spec.model, spec.chains, spec.model.dim, spec.draws + spec.kept_warmup
    parts = kernels_of(spec.kernel)
    n_stats = N_STATS * len(parts)
    named = statistics(spec.kernel, np.zeros((1, n_stats)))
    of_draw = 8 * d + (8 * d if values is None else values)
    if not isinstance(spec.backend, Numba):
        of_draw += sum(each.nbytes for name, each in named.items() if name not in NOT_OF_A_DRAW)
        at_once = room_of_transitions(spec) if spec.backend.name == "arrays" else 0
        return Room(c * kept * of_draw, 0, max(of_review(c, spec.draws, d), at_once), generated)
    of_draw += sum(each.nbytes for each in named.values())
    if spec.store is not None:
        row = 8 * (d + n_stats)
        of_draws = c * min(CHUNK, kept * row) + spec.workers * min(CHUNK, kept * of_draw)
        review = 3 * min(LOOKED_AT, c * kept * of_draw) + of_review(c, 0, d)
    else:
        of_draws = c * kept * of_draw + c * min(WINDOW, kept * 8 * n_stats) + 2 * BLOCK
        review = of_review(c, spec.draws, d)
    sizes = [
        8 * matrices_of(model, each) * len(indices) ** 2
        for each, indices in zip(parts.values(), indices_of(model, spec.kernel), strict=True)
    ]
    return Room(of_draws, (spec.workers + 1) * sum(sizes), review, generated)  # the plan also has matrices


def room_on_device(spec: RunSpec) -> int:
    """Return the bytes on the device: transitions, draws before they are moved, and what the model computes on the way."""
    data, (kernel,) = spec.model.data, blocks_of(spec.kernel).values()
    numbers = sum(each.size for each in (data if isinstance(data, tuple) else (data,)) if isinstance(each, np.ndarray))
    of_draw = 8 * (spec.model.dim + len(kernel.statistics))
    draws = spec.chains * max(spec.draws, spec.kept_warmup) * of_draw
    of_model = 8 * OF_MODEL * min(MOST_OF_MODEL, chains_at_once(spec) * numbers)
    return room_of_transitions(spec) + min(BUDGET, draws) + of_model


def room_of_transitions(spec: RunSpec) -> int:
    """Return the bytes of the states of all chains in arrays, and of the transitions of a batch."""
    (kernel,), d = blocks_of(spec.kernel).values(), spec.model.dim
    metric = resolve(kernel.metric, kernel.integrator)[0]
    states = 8 * spec.chains * (OF_STATE + VECTORS_OF_STATE * d)
    dense = 8 * 6 * d**2 * (metric.is_dense and not metric.position_dependent)  # with sums of warm-up, and copies
    return states + dense + chains_at_once(spec) * room_of_chain(kernel, d)


def room_of_chain(kernel: Kernel, d: int) -> int:
    """Return the bytes that the transitions of a chain in arrays need, without those in the model's functions."""
    metric, vectors = resolve(kernel.metric, kernel.integrator)[0], VECTORS
    if hasattr(kernel, "max_treedepth"):
        vectors += VECTORS_OF_TREE + VECTORS_OF_DEPTH * int(kernel.max_treedepth)
    if isinstance(kernel, GIST | AutoStep):
        vectors += VECTORS_OF_PATH
    full = metric.position_dependent and metric.reads[0] is not None
    return 8 * (OF_CHAIN + vectors * d + MATRICES_IN_ARRAYS * full * d**2)


def chains_at_once(spec: RunSpec) -> int:
    """Return how many chains in arrays make their transitions together, the same on every machine."""
    assert isinstance(spec.backend, Arrays)
    (kernel,) = blocks_of(spec.kernel).values()
    most = max(OF_A_BATCH[spec.backend.name] // room_of_chain(kernel, spec.model.dim), 1)
    return min(int(spec.backend.chains_at_once or most), spec.chains)


def matrices_of(model: Model, kernel: Kernel) -> int:
    """Return the number of matrices of a kernel's metric, for one chain."""
    if getattr(kernel, "jumping", False):
        return 0
    metric = for_model(resolve(kernel.metric, kernel.integrator)[0], model)
    if metric.position_dependent:
        return metric.n_matrices(model) if hasattr(metric, "n_matrices") else OF_RIEMANNIAN
    return OF_DENSE * bool(getattr(metric, "is_dense", False))


def of_review(chains: int, draws: int, d: int) -> int:
    """Return the peak memory of the review, in bytes."""
    columns = min(d, MAX_COLUMNS)
    some = min(values_looked_at(columns), min(chains, MAX_CHAINS) * draws)  # per coordinate
    copied = some * columns if columns < d or chains > MAX_CHAINS else 0
    return 8 * (max(OF_EVERY_DRAW * chains * draws, REVIEWED_AT_ONCE * some) + copied)

"""Estimate of the memory of a run, before any of it is allocated; a run that does not fit is rejected.

Bytes for c chains of n kept iterations in d coordinates:

    draws       c n (8 d + values + statistics): positions, constrained values, the kernel's statistics by type
    chains      workspace of the chains that run at a time: points, a tree, matrices of a dense or Riemannian metric, the draws
                of warm-up that "auto" adapts to
    learning    copies of those while a metric is adapted, in all chains that run at a time
    learned     the dense metrics of a result, and their copies for ArviZ
    review      R-hat and effective sample sizes of a part of the draws, flags of all
    generated   groups that the model generates, one of them twice while chains are joined

Draws are written after the metric is adapted, and groups are generated after the review. So the run needs

    chains + max(learning, draws + learned + max(review, generated))

With a store, draws are the rows that wait for the disk. (Windows of statistics take a mebibyte per chain:
:mod:`refhmc.sampling.storage.in_memory`.)

The measured values are the growth of a process' peak memory (``ru_maxrss``) by a run, after a small run that compiled
everything. Two chains run at a time; units are MB:

    run                                                        counted    measured    ratio
    eight schools, 4 x 250,000, with its generated groups          492         476     1.03
    the same with generate=False                                   280         268     1.05
    normal, d = 100, 4 x 100,000                                   689         681     1.01
    the same into a store                                          302    292 to 303   1.00 to 1.03
    the same, 400 x 1,000, backend="arrays"                        710         708     1.00
    d = 1,000, 4 x 1,000, "auto", tune=1000                        114     86 to 104   1.09 to 1.33
    d = 1,000, 4 x 300, "dense"                                    165         162     1.02

(With "auto" it is a matter of chance whether two chains adapt the metric at the same time. With chains that take equal times,
HMC with n_steps=3, 132 MB were measured and 113 MB counted.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.adaptation.length import MOMENTS, N_SUMS, length_windows
from refhmc.adaptation.windows import schedule_array
from refhmc.backends import Numba
from refhmc.batch.backends import memory_there
from refhmc.batch.draw import NOT_OF_A_DRAW
from refhmc.core.available import available
from refhmc.core.sample_stats import FLAGS, N_STATS
from refhmc.core.types import N_POINTS
from refhmc.integrators.defaults import resolve
from refhmc.kernels.blocks import indices_of, kernels_of, statistics
from refhmc.kernels.nuts import INTERVAL_ROWS
from refhmc.kernels.watched import N_LENGTHS, WATCHED_ROWS
from refhmc.metrics.base import AS_STAN, FROM_DRAWS, FROM_PAIRS
from refhmc.metrics.low_rank import LARGEST
from refhmc.sampling.results.from_chains import LOOKED_AT
from refhmc.sampling.results.review import MAX_CHAINS, MAX_COLUMNS, values_looked_at
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.in_memory import BLOCK, WINDOW
from refhmc.sampling.storage.store import CHUNK

if TYPE_CHECKING:
    from refhmc.models.base import Model

POINT = 8  # most rows of a point, with two copies and a metric's vectors
VECTORS = 40  # most vectors of metric, integrator and adaptation
OF_RIEMANNIAN = 6  # matrices of a metric without ``n_matrices``
LITTLE = 2**24  # bytes that need no query of the system, which takes half a millisecond
REVIEWED_AT_ONCE, OF_EVERY_DRAW = 10, 2  # numbers per draw: for R-hat, and for all draws reviewed


class Room(NamedTuple):
    """Bytes by use; ``matrices`` is the share of metrics in ``chains``."""

    draws: int
    chains: int
    matrices: int
    learning: int
    learned: int
    review: int
    generated: int

    @property
    def needed(self) -> int:
        after = self.draws + self.learned + max(self.review, self.generated)
        return self.chains + max(self.learning, after)


def check_memory(spec: RunSpec, values: int | None = None, generated: int = 0) -> None:
    """Raise MemoryError, with the bytes needed and available and with advice, if the run does not fit.

    `values` are the bytes of the constrained values of a position (default: those of the position), `generated` those of
    generated groups.
    """
    if isinstance(spec.backend, Numba):
        check_room(room_for(spec, values, generated), stored=spec.store is not None, kept_warmup=spec.save_warmup)
    else:
        check_room_of_arrays(spec, values, generated)


def room_for(spec: RunSpec, values: int | None = None, generated: int = 0) -> Room:
    """Return the memory of a run in the compiled core."""
    model, c, d, kept = spec.model, spec.chains, spec.model.dim, spec.draws + spec.kept_warmup
    parts = kernels_of(spec.kernel)
    n_stats = N_STATS * len(parts)
    named = statistics(spec.kernel, np.zeros((1, n_stats)))
    of_draw = 8 * d + (8 * d if values is None else values) + sum(each.itemsize for each in named.values())
    at_once = min(spec.workers, c)
    if spec.store is not None:
        row = 8 * (d + n_stats)
        waiting = c * min(CHUNK, kept * row) + at_once * min(CHUNK, kept * of_draw)
        of_draws, reviewed = waiting, 3 * min(LOOKED_AT, c * kept * of_draw)
    else:
        of_draws, reviewed = c * kept * of_draw + c * min(WINDOW, kept * 8 * n_stats) + 2 * BLOCK, 0
    reviewed += of_review(c, 0 if spec.store is not None else spec.draws, d)
    blocks = [
        _block(model, each, len(indices), spec.tune)
        for each, indices in zip(parts.values(), indices_of(model, spec.kernel), strict=True)
    ]
    vectors, matrices, copies, learned = (sum(of_block) for of_block in zip(*blocks, strict=True))
    matrices *= at_once + 1  # the plan also has them
    of_chains = at_once * vectors + matrices
    return Room(of_draws, of_chains, matrices, at_once * copies, c * learned, reviewed, generated)


def of_review(chains: int, draws: int, d: int) -> int:
    """Return the peak memory of the review, in bytes."""
    columns = min(d, MAX_COLUMNS)
    some = min(values_looked_at(columns), min(chains, MAX_CHAINS) * draws)  # per coordinate
    copied = some * columns if columns < d or chains > MAX_CHAINS else 0
    return 8 * (max(OF_EVERY_DRAW * chains * draws, REVIEWED_AT_ONCE * some) + copied)


def _block(model: Model, kernel: Any, d: int, tune: int) -> tuple[int, int, int, int]:
    """Return the bytes of a block: vectors, matrices, copies while it adapts, and adapted metrics in the result."""
    if getattr(kernel, "jumping", False):
        return 8 * d * (VECTORS + N_POINTS * POINT), 0, 0, 0
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    learns, dense = metric.learns, bool(getattr(metric, "is_dense", False))
    vectors = VECTORS + N_POINTS * POINT
    learns_length = getattr(kernel, "learns_length", False) and len(length_windows(tune))
    if learns_length:
        vectors += (N_LENGTHS + 1) * WATCHED_ROWS + MOMENTS.n_vectors + N_LENGTHS * N_SUMS
    else:
        vectors += (int(kernel.settings().get("max_depth", 0)) + 1) * INTERVAL_ROWS
    matrices = copies = 0
    if metric.position_dependent:
        count = metric.n_matrices(model) if hasattr(metric, "n_matrices") else OF_RIEMANNIAN * dense
        matrices = count * d * d
    elif dense:
        matrices = 2 * d * d
        if learns in (FROM_DRAWS, AS_STAN):
            matrices += d * d  # the scatter
            copies = 2 * d * d
    if learns == FROM_PAIRS:
        windows = [stop - start for slow, start, stop in schedule_array(tune, learns).tolist() if slow]
        n = min(max(windows, default=0), LARGEST // d)
        vectors += 2 * n + (0 if dense else min(d, n))  # draws, gradients, directions
        span = min(d, n)
        copies = 6 * n * d + 12 * span * span + (4 * d * d if dense else 0)
    learned = 2 * d * d if dense and learns else 0
    return 8 * d * vectors, 8 * matrices, 8 * copies, 8 * learned


def bytes_of_values(values: Mapping[str, np.ndarray]) -> int:
    """Return the bytes of the constrained values of one position."""
    return sum(each.nbytes for each in map(np.asarray, values.values()))


def check_room(room: Room, *, stored: bool, can_store: bool = True, kept_warmup: bool = False) -> None:
    """Raise MemoryError, with the bytes needed and available and with advice, if the run does not fit."""
    there = available() if room.needed > LITTLE else None
    if there is None or room.needed <= there:
        return
    todo = []
    if room._replace(generated=0).needed <= there:
        todo += ["generate=False (and refhmc.generate after the run)"]
    if room.draws > there / 2 and not stored:
        todo += ["store=FOLDER, which keeps draws on disk"] if can_store else []
        todo += ["save_warmup=False"] if kept_warmup else []
        todo += ["fewer draws"]
    if room.matrices + room.learning + room.learned > there / 2:
        todo += ["a diagonal metric"]
    raise MemoryError(
        f"This run needs about {room.needed:,} bytes of memory ({room.draws:,} for draws, {room.matrices + room.learned:,} for "
        f"matrices of the metric), but only {there:,} are available to this process. Use "
        f"{' or '.join([*todo, 'fewer chains'])}."
    )


def check_room_of_arrays(spec: RunSpec, values: int | None = None, generated: int = 0) -> None:
    """Raise MemoryError if the chains of an array backend do not fit, on the host or on the device."""
    model, kernel, backend, chains, draws = spec.model, spec.kernel, spec.backend.name, spec.chains, spec.draws
    d, kept = model.dim, draws + spec.kept_warmup
    names = [name for name in kernel.statistics if name not in NOT_OF_A_DRAW]
    bytes_of = sum(1 if name in FLAGS else 8 for name in names)
    of_draws = chains * kept * (8 * d + (8 * d if values is None else values) + bytes_of)
    at_a_time = 8 * chains * d * (20 + 5 * int(getattr(kernel, "max_treedepth", 0)))
    metric = resolve(kernel.metric, kernel.integrator)[0]
    if metric.position_dependent:  # the metric, its factor, contractions
        at_a_time += 8 * chains * 6 * d**2
    elif metric.is_dense:  # one for all chains, its factor, and the sums of warm-up and their copies
        at_a_time += 8 * 6 * d**2
    after = max(of_review(chains, draws, d), generated)
    there, on_host = available(), of_draws + max(after, at_a_time if backend == "arrays" else 0)
    if there is not None and on_host > there:
        what = "a smaller max_treedepth, fewer" if at_a_time > of_draws and backend == "arrays" else "fewer draws or"
        raise MemoryError(
            f"This run needs about {on_host:,} bytes of memory ({of_draws:,} for draws), but only {there:,} are available to "
            f"this process. Use {what} chains, or backend='numba' with store=FOLDER, which keeps draws on disk."
        )
    there = memory_there(backend)
    if backend != "arrays" and there is not None and at_a_time > there:
        raise MemoryError(
            f"This run needs about {at_a_time:,} bytes on the device for {chains} chains, but only {there:,} are available. "
            "Use fewer chains or a smaller max_treedepth."
        )

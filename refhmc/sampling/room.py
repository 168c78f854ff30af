"""The memory that a run takes, counted before it is taken, and a run that cannot have it refused.

Of c chains of n kept iterations in d coordinates, in bytes:

    draws       c n (8 d + values + statistics): positions, what the model makes of them, the kernel's statistics by type
    chains      what a chain works in, of as many as run at a time: points, a tree, matrices of a dense or Riemannian metric,
                the draws of warm-up that "auto" learns from
    learning    copies of those, where a metric is learned, in all chains that run at a time
    learned     the dense metrics of a result, and their copies for ArviZ
    review      R-hat and effective sample sizes of a part of the draws, flags of all
    generated   groups that the model generates, one of them twice while chains are joined

Draws are written when the learning is over, and groups generated after the review, so that there are needed

    chains + max(learning, draws + learned + max(review, generated))

With a store, draws are the rows that wait for the disk. (Windows of statistics are a mebibyte a chain:
:mod:`refhmc.sampling.memory`.)

Measured is how much the peak of a process grows (``ru_maxrss``) by a run after a small one that has compiled it; two chains
at a time, MB:

    run                                                        counted    measured    ratio
    eight schools, 4 x 250,000, with its generated groups          492         476     1.03
    the same with generate=False                                   280         268     1.05
    normal, d = 100, 4 x 100,000                                   689         681     1.01
    the same into a store                                          302    292 to 303   1.00 to 1.03
    the same, 400 x 1,000, backend="arrays"                        710         708     1.00
    d = 1,000, 4 x 1,000, "auto", tune=1000                        114     86 to 104   1.09 to 1.33
    d = 1,000, 4 x 300, "dense"                                    165         162     1.02

("auto": what is learned at the same time in two chains is a matter of chance. Chains that all take the same time, HMC with
n_steps=3, were at 132 where 113 were counted.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.adaptation.length import MOMENTS, N_SUMS, length_windows
from refhmc.adaptation.windows import schedule_array
from refhmc.core.available import available
from refhmc.core.sample_stats import N_STATS
from refhmc.core.types import N_POINTS
from refhmc.integrators.defaults import resolve
from refhmc.kernels.blocks import indices_of, kernels_of, statistics
from refhmc.kernels.nuts import INTERVAL_ROWS
from refhmc.kernels.watched import N_LENGTHS, WATCHED_ROWS
from refhmc.metrics.base import AS_STAN, FROM_DRAWS, FROM_PAIRS
from refhmc.metrics.low_rank import LARGEST
from refhmc.sampling.assembly import LOOKED_AT
from refhmc.sampling.memory import BLOCK, WINDOW
from refhmc.sampling.review import MAX_CHAINS, MAX_COLUMNS, values_looked_at
from refhmc.sampling.store import CHUNK

if TYPE_CHECKING:
    from refhmc.models.base import Model

POINT = 8  # rows of a point, those of two copies and of a metric's vectors included, at most
VECTORS = 40  # of metric, integrator and adaptation, at most
OF_RIEMANNIAN = 6  # matrices of a metric that does not say how many it needs
LITTLE = 2**24  # bytes for which the system is not asked, which takes half a millisecond
REVIEWED_AT_ONCE, OF_EVERY_DRAW = 10, 2  # numbers a draw: where R-hat is taken; of all that are looked at


class Room(NamedTuple):
    """Bytes by what takes them; ``matrices``: of ``chains``, those of metrics."""

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


def room_for(
    model: Model,
    kernel: Any,
    draws: int,
    tune: int,
    chains: int,
    *,
    save_warmup: bool = False,
    workers: int = 1,
    store: bool = False,
    values: int | None = None,
    generated: int = 0,
) -> Room:
    """What a run in the compiled core takes; ``values``: bytes of what the model makes of a position, else those of the
    position; ``generated``: those of groups that it generates."""
    c, d, kept = int(chains), model.dim, int(draws) + (int(tune) if save_warmup else 0)
    parts = kernels_of(kernel)
    n_stats = N_STATS * len(parts)
    named = statistics(kernel, np.zeros((1, n_stats)))
    of_draw = 8 * d + (8 * d if values is None else values) + sum(each.itemsize for each in named.values())
    if store:
        row = 8 * (d + n_stats)
        waiting = c * min(CHUNK, kept * row) + min(workers, c) * min(CHUNK, kept * of_draw)
        of_draws, reviewed = waiting, 3 * min(LOOKED_AT, c * kept * of_draw)
    else:
        of_draws, reviewed = c * kept * of_draw + c * min(WINDOW, kept * 8 * n_stats) + 2 * BLOCK, 0
    reviewed += of_review(c, 0 if store else int(draws), d)
    blocks = [
        _block(model, each, len(indices), int(tune))
        for each, indices in zip(parts.values(), indices_of(model, kernel), strict=True)
    ]
    at_once = min(int(workers), c)
    vectors, matrices, copies, learned = (sum(of_block) for of_block in zip(*blocks, strict=True))
    matrices *= at_once + 1  # the plan has them, too
    of_chains = at_once * vectors + matrices
    return Room(of_draws, of_chains, matrices, at_once * copies, c * learned, reviewed, generated)


def of_review(chains: int, draws: int, d: int) -> int:
    """Bytes that a review of so many draws of each chain takes at its peak."""
    columns = min(d, MAX_COLUMNS)
    some = min(values_looked_at(columns), min(chains, MAX_CHAINS) * draws)  # of a coordinate
    copied = some * columns if columns < d or chains > MAX_CHAINS else 0
    return 8 * (max(OF_EVERY_DRAW * chains * draws, REVIEWED_AT_ONCE * some) + copied)


def _block(model: Model, kernel: Any, d: int, tune: int) -> tuple[int, int, int, int]:
    """Bytes of vectors and of matrices of a block of one chain, of what its learning copies, and of what it leaves."""
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
    """Of what a model makes of one position."""
    return sum(each.nbytes for each in map(np.asarray, values.values()))


def check_room(room: Room, *, stored: bool, can_store: bool = True, kept_warmup: bool = False) -> None:
    """Raise MemoryError, with the bytes needed and those available, and what to do. ``stored``: draws go to a disk already."""
    there = available() if room.needed > LITTLE else None
    if there is None or room.needed <= there:
        return
    todo = []
    if room._replace(generated=0).needed <= there:
        todo += ["generate=False, and refhmc.generate of what is wanted after the run"]
    if room.draws > there / 2 and not stored:
        todo += ["store=FOLDER, which keeps draws on the disk"] if can_store else []
        todo += ["save_warmup=False"] if kept_warmup else []
        todo += ["fewer draws"]
    if room.matrices + room.learning + room.learned > there / 2:
        todo += ["a diagonal metric, whose size is that of a position"]
    raise MemoryError(
        f"this run needs about {room.needed:,} bytes of memory, and {there:,} are available to this process "
        f"({room.draws:,} for draws, {room.matrices + room.learned:,} for matrices of the metric). "
        f"Take {', '.join([*todo, 'fewer chains'])}"
    )

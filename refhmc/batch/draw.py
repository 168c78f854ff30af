"""A run of many chains: starts, warm-up, draws and statistics, first on the device and then on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from refhmc.adaptation.windows import warmup_schedule
from refhmc.batch.autostep import AutoStepTransitions
from refhmc.batch.backends import BUDGET
from refhmc.batch.chains import ALL, Chains, batches, copied, run
from refhmc.batch.dhmc import DHMCTransitions, JumpMover
from refhmc.batch.drhmc import DRHMCTransitions
from refhmc.batch.ghmc import GHMCTransitions
from refhmc.batch.gist import GISTTransitions
from refhmc.batch.hmc import HMCTransitions
from refhmc.batch.malt import MALTTransitions
from refhmc.batch.mams import SphereMover, mams_transitions
from refhmc.batch.mclmc import MCLMCTransitions
from refhmc.batch.memory import Remembering
from refhmc.batch.nuts import NUTSTransitions
from refhmc.batch.steps import Mover
from refhmc.batch.streams import Purpose, Streams, keys_of
from refhmc.batch.warmup import (
    DualAveraging,
    is_time,
    learned_metric,
    moments_for,
    refuse_hopeless,
    search_jump_size,
    search_step_size,
    statistics_of_sizes,
)
from refhmc.core import sample_stats as S
from refhmc.errors import InitError, ModelError, ShapeError
from refhmc.integrators.base import ArrayIntegrator
from refhmc.integrators.defaults import resolve
from refhmc.kernels.options import Kernel
from refhmc.metrics import Diagonal
from refhmc.metrics.base import AS_STAN, FROM_GRADIENTS, NOTHING, ArrayMetric, ArrayModel
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, to_host

TRANSITIONS: dict[str, Callable] = {
    "hmc": HMCTransitions,
    "nuts": NUTSTransitions,
    "dhmc": DHMCTransitions,
    "ghmc": GHMCTransitions,
    "drhmc": DRHMCTransitions,
    "malt": MALTTransitions,
    "mams": mams_transitions,
    "mclmc": MCLMCTransitions,
    "gist": GISTTransitions,
    "autostep": AutoStepTransitions,
}
# Counted for the whole run, since a batch evaluates for all of its chains together.
NOT_OF_A_DRAW = ("n_gradient_evaluations", "n_metric_evaluations", "n_contraction_evaluations", "n_density_evaluations")
MAX_TRIES = 100
REPORT_EVERY = 0.1  # seconds
AT_A_TIME = 10  # transitions of a batch before the next batch starts, so that a stopped run has draws of all chains


class Stopped(Exception):
    """Raised if the watch has stopped the run in the middle of a transition, which is not recorded."""


class Options(NamedTuple):
    """Options of a run.

    ``watch(run)`` is called ten times per second, between two evaluations of the model, and returns whether to stop.
    At most ``chains_at_once`` chains are evaluated together, by default all.
    """

    draws: int
    tune: int
    shared_step_size: bool
    keep_warmup: bool
    watch: Callable[[Run], bool]
    budget: int = BUDGET
    chains_at_once: int | None = None


class Recorder:
    """Draws and statistics of ``total`` transitions, on the device for as many as the budget allows, then on the host.

    ``done`` (n,) is the number of recorded transitions.
    """

    def __init__(self, chains: Chains, names: tuple[str, ...], total: int, budget: int) -> None:
        self.xp, (n, d) = batched.namespace(chains.q), chains.q.shape
        self.names, self.total = names, total
        kinds = {**dict.fromkeys(S.COUNTS, np.int64), **dict.fromkeys(S.FLAGS, np.bool_)}
        self.kinds = {name: kinds.get(name, np.float64) for name in names}
        size = n * (8 * d + sum(np.dtype(kind).itemsize for kind in self.kinds.values()))
        self.on_device = self.xp is not np and total > 0
        self.room = max(1, min(total, budget // max(size, 1))) if self.on_device else total
        self.draws, self.stats = np.zeros((n, total, d)), {k: np.zeros((n, total), t) for k, t in self.kinds.items()}
        self.draws_there, self.stats_there = self.draws, self.stats
        if self.on_device:
            self.draws_there = self.xp.zeros((n, self.room, d), dtype=chains.q.dtype)
            self.stats_there = {k: self.xp.zeros((n, self.room), dtype=t) for k, t in self.kinds.items()}
        self.done = self.xp.zeros((n,), dtype=self.xp.int64)
        self.moved = 0

    def record(self, rows: Array, q: Array, stats: dict[str, Array]) -> None:
        """Record a transition of the chains ``rows``."""
        at = self.done[rows] - self.moved
        self.draws_there[rows, at] = q
        for name in self.names:
            self.stats_there[name][rows, at] = stats[name]
        self.done[rows] += 1

    def stretches(self, n: int) -> list[int]:
        """Return the next n transitions in pieces that fit on the device."""
        if not self.on_device:
            return [n]
        first = min(n, self.room - self.waiting)
        whole, rest = divmod(n - first, self.room)
        return [first] * (first > 0) + [self.room] * whole + [rest] * (rest > 0)

    @property
    def waiting(self) -> int:
        """Number of transitions, of the chain with the most, that are on the device only."""
        return int(self.xp.max(self.done)) - self.moved

    def move_if_full(self) -> None:
        """Move the records to the host if the device cannot hold more."""
        if self.on_device and self.waiting >= self.room:
            self.move()

    def move(self) -> None:
        """Move the records from the device to the host."""
        if self.on_device and self.waiting > 0:
            at = slice(self.moved, min(self.moved + self.waiting, self.total))
            n = at.stop - at.start
            self.draws[:, at] = to_host(self.draws_there[:, :n])
            for name in self.names:
                self.stats[name][:, at] = to_host(self.stats_there[name][:, :n])
            self.moved = at.stop

    def give_up(self) -> None:
        """Forget the records on a device that has failed, and keep those on the host."""
        self.on_device, self.done = False, np.full(len(self.draws), self.moved)


class Run:
    """n chains of a kernel on a model's array implementation, in batches that make their transitions one after the other.

    :meth:`warm_up` and :meth:`draw` record in ``warm`` and ``made``. ``divergences`` (n,) are those of draws, and
    ``warmup_divergences`` those of warm-up. Raises Stopped if the watch ends the run.
    """

    def __init__(self, text: ArrayModel, kernel: Any, q: Array, entropy: int, options: Options) -> None:
        xp, n = batched.namespace(q), q.shape[0]
        self.text, self.kernel, self.options = text, kernel, options
        self.metric, self.integrator = resolve(kernel.metric, kernel.integrator)
        if kernel.metric is None and getattr(kernel, "jumping", False):
            self.metric = Diagonal()
        self.names = tuple(name for name in kernel.statistics if name not in NOT_OF_A_DRAW)
        self.evaluations: dict[str, int] = {}
        self.searches_failed, self.tries, self.drawn = 0, 0, 0
        self.divergences, self.last_report = xp.zeros((n,), dtype=xp.int64), time.monotonic()
        self.warmup_divergences = xp.zeros((n,), dtype=xp.int64)
        self.at_once = options.chains_at_once or n
        self.rows = batches(n, self.at_once)
        values = [tuple(map(copied, text.value_and_gradient(q[rows]))) for rows in self.rows]
        L, gradient = (xp.concat(each) for each in zip(*values, strict=True))  # chains are moved in place
        streams = Streams(xp.asarray(keys_of(entropy, n)))
        step_size = xp.full((n,), 1.0 if kernel.step_size is None else float(kernel.step_size), dtype=q.dtype)
        self.chains = Chains(q, L, gradient, step_size, xp.zeros((n,), dtype=xp.int64), streams)
        self.statistics = statistics_of_sizes(kernel, self.metric, text)
        if "jump_size" in self.statistics:
            self.chains.jump_size = step_size + 0.0
        self.batches, self.mover = [self.chains.part(rows) for rows in self.rows], self.mover_for(self.metric)
        self.done, self.warming = xp.zeros((n,), dtype=xp.int64), options.tune > 0
        self.warm = self.made = Recorder(self.chains, self.names, 0, options.budget)

    def mover_for(self, metric: ArrayMetric) -> Mover | JumpMover:
        """Return the object that makes the steps on a metric."""
        self.metric, self.model = metric, Remembering(self.text, look=self.look)
        return mover_for(self.kernel, metric, self.integrator, self.model)

    def count_evaluations(self) -> None:
        """Add the model's evaluations to the counts."""
        for name, count in self.model.counts.items():
            self.evaluations[name] = self.evaluations.get(name, 0) + count
            self.model.counts[name] = 0

    def look(self) -> None:
        """Call the watch, if it is time. Raises Stopped."""
        if time.monotonic() - self.last_report < REPORT_EVERY:
            return
        self.last_report = time.monotonic()
        self.count_evaluations()
        if self.options.watch(self):
            raise Stopped

    def ended(self, rows: Array, stats: dict[str, Array]) -> None:
        """Count transitions of the chains ``rows`` that have ended."""
        xp = batched.namespace(rows)
        self.done[rows] += 1
        made = self.warmup_divergences if self.warming else self.divergences
        made[rows] += xp.astype(stats["diverging"], xp.int64)

    def warm_up(self) -> None:
        """Adapt step size and metric, and record the draws of warm-up if they are kept.

        Without warm-up, find a first step size.
        """
        options, chains, xp = self.options, self.chains, batched.namespace(self.chains.q)
        asked, learns = self.metric, self.metric.learns  # a learned metric does not know how it was learned
        recorder = Recorder(chains, self.names, options.tune if options.keep_warmup else 0, options.budget)
        self.warm = recorder
        statistics, first = self.statistics, self.first_sizes()
        duals = {name: DualAveraging(first[name], target) for name, (_, target) in statistics.items()}
        schedule = warmup_schedule(options.tune) if learns != NOTHING else [("fast", 0, options.tune)]
        for kind, start, stop in schedule:
            positions, gradients = moments_for(asked, chains.q)
            learning = [(positions, "q"), (gradients, "gradient")][: (kind == "slow") * (1 + (gradients is not None))]

            def ended(rows: Array, stats: dict[str, Array], learning: list = learning) -> None:
                for name, dual in duals.items():
                    statistic = stats[statistics[name][0]]
                    if options.shared_step_size:
                        getattr(chains, name)[:] = dual.update(ALL, xp.mean(statistic)[None])
                    else:
                        getattr(chains, name)[rows] = dual.update(rows, statistic)
                for moments, name in learning:
                    moments.add(getattr(chains, name)[rows])
                if options.keep_warmup:
                    recorder.record(rows, chains.q[rows], stats)
                self.ended(rows, stats)

            together = bool(duals) and options.shared_step_size
            for n in [1] * (stop - start) if together else recorder.stretches(stop - start):
                self.run(n, ended, together)
                recorder.move_if_full()
            if duals and is_time(stop, options.tune):
                constant = not (self.metric.position_dependent or isinstance(self.mover, JumpMover))
                refuse_hopeless(chains, self.metric, constant, stop, options.tune)
            if kind == "slow":
                self.count_evaluations()
                learned = learned_metric(self.metric, positions, gradients, learns == AS_STAN)
                self.mover = self.mover_for(learned)
                for batch in self.batches:
                    batch.momentum = None  # the next one is drawn for the new metric
                if learns != FROM_GRADIENTS:
                    first = self.first_sizes()
                    for name, dual in duals.items():
                        dual.restart(first[name])
        for name, dual in duals.items() if options.tune else ():
            getattr(chains, name)[:] = xp.exp(dual.log_step_bar)
        recorder.move()

    def run(self, n: int, ended: Callable, together: bool = False) -> None:
        """Make n transitions of each chain; with ``together``, ``ended`` is called once, when all have ended."""
        xp, kept = batched.namespace(self.chains.q), {}  # type: ignore[var-annotated]
        longest = AT_A_TIME if len(self.rows) > 1 else max(n, 1)

        def keep(rows: Array, stats: dict[str, Array]) -> None:
            for name, values in stats.items():
                kept.setdefault(name, xp.zeros((len(self.chains),), dtype=values.dtype))[rows] = values

        for made in range(0, n, longest):
            for rows, batch in zip(self.rows, self.batches, strict=True):
                transitions = TRANSITIONS[self.kernel.name](batch, self.mover, self.kernel)

                def ended_here(there: Array, stats: dict[str, Array], first: int = rows.start) -> None:
                    (keep if together else ended)(first + there, stats)

                run(transitions, batch, min(longest, n - made), ended_here)
        if together:
            ended(xp.arange(len(self.chains)), kept)

    def first_sizes(self) -> dict[str, Array]:
        """Search the first jump size, then the first step size; (n,), or (1,) if they are shared.

        If all coordinates jump, the step size is the jump size.
        """
        shared, chains, mover, found = self.options.shared_step_size, self.chains, self.mover, {}
        for name in sorted(self.statistics):
            if name == "jump_size" or self.statistics[name][0] == "no_flip_probability":
                sizes, failed = search_jump_size(chains, mover, getattr(chains, name), shared, self.at_once)
            else:
                sizes, self.tries, failed = search_step_size(chains, mover, shared, self.tries, self.at_once)
            found[name] = sizes[:1] + 0.0 if shared else sizes + 0.0
            self.searches_failed += failed
            getattr(chains, name)[:] = sizes
        return found

    def draw(self, draws: int | None = None) -> None:
        """Let each chain draw until it has ``draws``, by default all, with the present step size and metric."""
        options, self.warming = self.options, False
        if self.drawn == 0:
            self.made = Recorder(self.chains, self.names, options.draws, options.budget)
        draws = options.draws if draws is None else draws
        recorder, n, self.drawn = self.made, draws - self.drawn, draws

        def ended(rows: Array, stats: dict[str, Array]) -> None:
            recorder.record(rows, self.chains.q[rows], stats)
            self.ended(rows, stats)

        try:
            for part in recorder.stretches(n):
                self.run(part, ended)
                recorder.move_if_full()
            recorder.move()
        finally:
            self.count_evaluations()


def mover_for(kernel: Kernel, metric: Any, integrator: ArrayIntegrator, model: Remembering) -> Mover | JumpMover:
    """Return the object that makes the kernel's steps."""
    if getattr(kernel, "jumping", False):
        return JumpMover(model, metric)
    if getattr(kernel, "microcanonical", False):
        return SphereMover(metric.on_arrays(model), kernel.integrator)
    return Mover(metric.on_arrays(model), integrator)


def uniform_starts(text: ArrayModel, entropy: int, chains: int, xp: ModuleType) -> Callable[[Array, int], Array]:
    """Return a function that draws starts (r, d) of the chains ``rows``, uniform on (-2, 2)^d, from each chain's own stream."""
    streams = Streams(xp.asarray(keys_of(entropy, chains)))

    def drawn(rows: Array, tried: int) -> Array:
        number = xp.full(rows.shape, tried, dtype=xp.int64)
        return 4 * streams.uniforms(rows, number, Purpose.START, 0 * number, text.dim) - 2

    return drawn


def random_starts(
    drawn: Callable[[Array, int], Array],
    text: ArrayModel,
    metric: ArrayMetric,
    chains: int,
    xp: ModuleType,
    at_once: int,
) -> Array:
    """Return starts (chains, d), drawn up to 100 times if density, gradient or metric is not finite. Raises InitError."""
    rows, starts = xp.arange(chains), xp.zeros((chains, text.dim), dtype=xp.float64)
    for tried in range(MAX_TRIES):
        q = drawn(rows, tried)
        starts[rows] = q
        rows = rows[~fit(text, metric, q, at_once)]
        if not rows.shape[0]:
            return starts
    raise InitError(
        f"No start was found in {MAX_TRIES} tries for {rows.shape[0]} of {chains} chains (the first is chain {int(rows[0])}), "
        "since the log density, the gradient or the metric is not finite. Give initvals with a positive density."
    )


def fit(text: ArrayModel, metric: ArrayMetric, q: Array, at_once: int) -> Array:
    """Return whether chains can start at q (n, d), (n,), for at most ``at_once`` chains at a time.

    Raises ModelError and ShapeError, as :func:`fit_together`.
    """
    parts = [fit_together(text, metric, q[rows]) for rows in batches(q.shape[0], at_once)]
    return batched.namespace(q).concat(parts)


def fit_together(text: ArrayModel, metric: ArrayMetric, q: Array) -> Array:
    """Return whether chains can start at q (n, d), (n,).

    Raises ShapeError if the log density or gradient of the array implementation has a wrong shape, ModelError if they are not
    arrays of real numbers.
    """
    xp = batched.namespace(q)
    answer = text.value_and_gradient(copied(q))
    if not (isinstance(answer, tuple | list) and len(answer) == 2):
        raise ModelError(
            "value_and_gradient of the array implementation must return the log density and the gradient; "
            f"got {answer!r:.80}."
        )
    L, gradient = answer
    for what, found, shape in (("log density", L, q.shape[:1]), ("gradient", gradient, q.shape)):
        kind = getattr(found, "dtype", type(found).__name__)
        if not hasattr(found, "dtype") or "complex" in str(kind):
            raise ModelError(f"The {what} of the array implementation must be an array of real numbers; got {kind}.")
        if tuple(found.shape) != tuple(shape):
            raise ShapeError(
                f"The {what} of the array implementation must have shape {tuple(shape)} at positions {q.shape}; "
                f"got {tuple(found.shape)}."
            )
    for j in text.discontinuous:  # entries that are not read
        gradient = xp.where(xp.arange(q.shape[1]) == int(j), 0.0, gradient)
    energy = metric.on_arrays(text).energy(copied(q), xp.zeros_like(q))
    return xp.isfinite(energy) & xp.all(xp.isfinite(gradient), axis=-1)

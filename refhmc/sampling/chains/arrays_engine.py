"""The engine of ``backend="arrays"`` and ``"cupy"``: all chains in arrays (:mod:`refhmc.batch`)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import numpy as np

from refhmc.backends import Arrays, CuPy
from refhmc.batch.backends import describe, error_of_device, namespace_of, present_device
from refhmc.batch.draw import Options, Recorder, Run, Stopped, fit, random_starts, uniform_starts
from refhmc.batch.streams import Purpose, keys_of
from refhmc.errors import GradientError, SamplingError, WarmupError, _see
from refhmc.integrators.defaults import resolve
from refhmc.kernels.blocks import blocks_of
from refhmc.metrics.base import ArrayModel
from refhmc.models.base import Model
from refhmc.numerics.batched import Array, to_host
from refhmc.sampling.chains.chain import Plan, make_plan
from refhmc.sampling.chains.compiled_chains import NO_STEP_SIZE
from refhmc.sampling.chains.engine import SILENT, Chains, Stoppable, numbers_of_draws
from refhmc.sampling.chains.initialization import check_start_of, given_starts
from refhmc.sampling.checks.array_implementation import array_implementation, check_array_implementation
from refhmc.sampling.checks.memory_estimate import chains_at_once, check_memory
from refhmc.sampling.progress import Progress, ProgressReport
from refhmc.sampling.results.rectangle import groups_of, put_rectangle
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.review import DrawsToReview
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.until import Drawn, in_memory

COMPARED = 4  # starts at which the array implementation is compared with the model's functions


class ArraysEngine(Stoppable):
    """Chains in arrays (:class:`refhmc.sampling.chains.engine.Engine`, which also draws them)."""

    workers = 1

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        assert isinstance(spec.backend, Arrays)
        self.spec, self.xp = spec, namespace_of(spec.backend.name)
        streamed = isinstance(spec.backend, CuPy) and spec.backend.streamed
        with device_errors():
            self.implementation = array_implementation(spec.model, self.xp, streamed)
        check_memory(spec)  # before the matrices of a metric are allocated
        self.at_once = chains_at_once(spec)
        self.plan = make_plan(spec.model, spec.kernel, spec.tune)
        self.attributes: dict[str, object] = {
            "device": describe(spec.backend.name),
            "shared_step_size": spec.backend.shared_step_size,
            "fused": False,
            "starts": [spec.start_origin] * spec.chains,
        }
        with np.errstate(all="ignore"), device_errors():
            self.starts = starts_of(spec, self.implementation, self.plan, self.xp, self.at_once)
            self.first = to_host(self.starts[0])
        self.ended = False
        self.batch: Run | None = None
        self.logs: list = []
        self.device = present_device(spec.backend.name)

    def limits(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def check_starts(self) -> None:
        pass  # they were drawn, or checked, by the array implementation

    def check_implementation(self) -> str | None:
        spec = self.spec
        with np.errstate(all="ignore"), device_errors():
            q = self.starts[:COMPARED]
            return check_array_implementation(spec.model, self.implementation, self.plan, q, spec.preflight)

    def open(self, result: Result) -> Chains:
        n = self.spec.chains
        self.start_of_draws = np.full((n, self.spec.model.dim), np.nan)
        self.progress = Progress(n, self.spec.tune, self.spec.tune + self.spec.draws, n)
        none = np.zeros(n, np.int64)
        self.state = none, none, none, np.zeros(n), np.full(n, np.nan)
        return self

    def draw(self) -> None:
        spec = self.spec
        assert isinstance(spec.backend, Arrays)
        self.logs = [each.core.begin_failures() for each in (spec.model, *getattr(spec.model, "parts", ()))]
        shared = spec.backend.shared_step_size
        options = Options(spec.draws, spec.tune, shared, spec.save_warmup, self._look, chains_at_once=self.at_once)
        try:
            with self.device(), np.errstate(all="ignore"):
                self.batch = Run(self.implementation, spec.kernel, self.starts, spec.entropy, options)
                with contextlib.suppress(Stopped):
                    self.batch.warm_up()
                    self.start_of_draws = to_host(self.batch.chains.q).copy()
                    for draws in numbers_of_draws(spec, self.missing, self._drawn):
                        self.progress.total = spec.tune + draws
                        self.batch.draw(draws)
                        self._look(self.batch)
                        if self.stopped_by:
                            break
        except KeyboardInterrupt:  # raised by the model's functions
            if self.batch is None:
                raise
            self.stop("interrupt")
        except Exception as error:
            self.stop("error")
            of_device = error_of_device(error)
            if of_device is not None:
                raise of_device from error
            if isinstance(error, WarmupError) or self.batch is None:
                raise
            raise failure_of(spec.model, self.batch, error) from error
        finally:
            self.ended = True

    def _drawn(self, n: int) -> Drawn:
        assert self.batch is not None
        self.batch.made.move()
        return in_memory(self.spec.model, self.batch.made.draws[:, :n])

    def _look(self, batch: Run) -> bool:
        """Read the counters of the chains; return whether they shall stop."""
        arrays = batch.done, batch.divergences, batch.warmup_divergences, batch.chains.step_size
        done, divergences, of_warmup, step_size = (to_host(each).copy() for each in arrays)
        gradients = np.full(self.spec.chains, batch.evaluations.get("gradient", 0) / self.spec.chains)
        self.state = done, divergences, of_warmup, gradients, step_size
        if self.spec.max_seconds is not None and self.progress.seconds > self.spec.max_seconds:
            self.stop("time")
        return bool(self.stopped_by)

    def report(self, finished: bool) -> ProgressReport:
        return self.progress.report(*self.state, finished=finished)

    def hanging(self) -> list[str]:
        if not self.is_silent():
            return []
        return [
            f"The chains did not return from a call of the model within {SILENT:g} s after they were asked to stop. The run "
            "waits for them; a second Ctrl-C ends it with the draws so far. Check why the model does not return. "
            f"{_see('review-interrupted')}"
        ]

    def put_draws(self, result: Result) -> None:
        """Put draws, statistics and counts into the result.

        Until the run has ended, its thread alone moves draws from a device, and only those that are on the host are taken.
        """
        if self.batch is None:
            return
        recorders = {True: self.batch.warm, False: self.batch.made}
        lengths = {warmup: lengths_of(recorder, self.ended) for warmup, recorder in recorders.items()}

        def cut(chains: list[int], warmup: bool, n: int) -> dict[str, Any]:
            recorder = recorders[warmup]
            at = slice(None) if len(chains) == len(recorder.draws) else chains
            return groups_of(recorder.draws[at, :n], {name: values[at, :n] for name, values in recorder.stats.items()})

        put_rectangle(result, lengths[False], lengths[True] if self.spec.save_warmup else None, cut)
        if len(set(lengths[False])) > 1:
            result.ragged.update({k: self.batch.made.draws[k, :n] for k, n in enumerate(lengths[False])})
        result.attributes.update(counts(self.batch, self.logs, self.ended))
        result.attributes.update(interrupted=bool(self.stopped_by), stopped_by=self.stopped_by)

    def to_review(self, result: Result) -> DrawsToReview:
        return DrawsToReview(result.draws, result.sample_stats, self.start_of_draws[result.attributes["chains"]])

    def remarks(self, result: Result) -> list[str]:
        failed = self.batch.searches_failed if self.batch is not None else 0
        return [f"The search for an initial step size did not converge in {failed} cases. {NO_STEP_SIZE}"] * bool(
            failed
        )

    def failure(self) -> Exception | None:
        return None

    def put_attributes(self, result: Result) -> bool:
        return False

    def close(self) -> None:
        pass


@contextlib.contextmanager
def device_errors() -> Iterator[None]:
    """Convert errors of CuPy into DeviceErrors."""
    try:
        yield
    except Exception as error:
        of_device = error_of_device(error)
        if of_device is None:
            raise
        raise of_device from error


def starts_of(spec: RunSpec, text: ArrayModel, plan: Plan, xp: ModuleType, at_once: int) -> Array:
    """Return the starts (chains, d) on the device, ``at_once`` of them checked at a time.

    Raises InitError or MetricError for the first invalid one.
    """
    model, chains, entropy = spec.model, spec.chains, spec.entropy
    (kernel,) = blocks_of(spec.kernel).values()
    metric, _ = resolve(kernel.metric, kernel.integrator)
    given = given_starts(model, spec.initvals, chains)
    if given is None:
        drawn = uniform_starts(text, entropy, chains, xp)
        if callable(model.initial):
            drawn = starts_of_model(model.initial, entropy, chains, xp)
        return random_starts(drawn, text, metric, chains, xp, at_once)
    q = xp.asarray(given)
    for k in map(int, np.flatnonzero(~to_host(fit(text, metric, q, at_once)))):
        check_start_of(model, plan, given[k], k)
        raise GradientError(
            f"Chain {k}: the array implementation of model {model.name!r} must be finite at the start, where the model's "
            "functions are finite."
        )
    return q


def starts_of_model(initial: Callable, entropy: int, chains: int, xp: ModuleType) -> Callable:
    """Return the function that draws starts by ``initial``, from each chain's own stream."""
    keys, counter = keys_of(entropy, chains).view(np.uint64), [0, 0, int(Purpose.START), 0]
    generators = [np.random.Generator(np.random.Philox(key=key, counter=counter)) for key in keys]

    def drawn(rows: Array, tried: int) -> Array:
        return xp.asarray(np.array([initial(generators[k]) for k in to_host(rows)], dtype=float))

    return drawn


def lengths_of(recorder: Recorder, ended: bool) -> list[int]:
    """Return the numbers of transitions of the chains that are on the host, where this moves them if the batch has ended."""
    if recorder.on_device and not ended:
        return [recorder.moved] * len(recorder.draws)
    try:
        recorder.move()
        return to_host(recorder.done).tolist()
    except Exception as error:
        if error_of_device(error) is None:
            raise
        recorder.give_up()
        return recorder.done.tolist()


def failure_of(model: Model, batch: Run, error: Exception) -> SamplingError:
    """Return the error to raise if the model raised one, which ends all chains."""
    done, position = to_host(batch.done), model.core.last_position.get(threading.get_ident())
    where = "" if position is None else f" (last position q = {np.array2string(position, threshold=8)})"
    words = str(error).rstrip(".")
    return SamplingError(
        f"The chains stopped after {done.min()} to {done.max()} iterations: {type(error).__name__}: {words}{where}. The draws "
        "so far are in this exception's .partial."
    )


def counts(batch: Run, logs: list, ended: bool) -> dict[str, object]:
    """Return the attributes with counts of evaluations of all chains together, needed or not, and of failed ones.

    It is not known in which chains evaluations failed. The thread of a batch that has not `ended` counts by itself.
    """
    if ended:
        batch.count_evaluations()
    failures = [failure for log in logs for failure in log.found.values()]
    found = {f"n_{name}_evaluations": int(count) for name, count in batch.evaluations.items()}
    changes = found.pop("n_change_evaluations", 0)
    per_chain = {
        "iterations": batch.done,
        "divergences": batch.divergences,
        "warmup_divergences": batch.warmup_divergences,
    }
    try:
        known = {f"{name}_per_chain": to_host(count).tolist() for name, count in per_chain.items()}
    except Exception as error:  # they were lost with the device
        if error_of_device(error) is None:
            raise
        known = {f"{name}_per_chain": [] for name in per_chain}
    return {
        **found,
        **known,
        "n_log_density_evaluations": found.get("n_gradient_evaluations", 0) + changes,
        "failed_chains": [],
        "evaluation_failures": [
            {"message": each.message, "evaluations": each.count, "first_position": each.first.tolist()}
            for each in failures
        ],
        "step_size_searches_failed": batch.searches_failed,
        "began_again_after": [0] * len(batch.chains),
    }

"""The engine of ``backend="arrays"`` and ``"cupy"``: all chains in arrays (:mod:`refhmc.batch`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType

import numpy as np

from refhmc.backends import Arrays, CuPy
from refhmc.batch.backends import describe, error_of_device, namespace_of, present_device, to_host
from refhmc.batch.draw import Options, Run, Stopped, fit, random_starts, uniform_starts
from refhmc.batch.streams import Purpose, keys_of
from refhmc.errors import GradientError, WarmupError, _see
from refhmc.integrators.defaults import resolve
from refhmc.kernels.blocks import blocks_of
from refhmc.metrics.base import ArrayModel
from refhmc.numerics.batched import Array
from refhmc.sampling.chains.chain import Plan, make_plan
from refhmc.sampling.chains.compiled_chains import NO_STEP_SIZE
from refhmc.sampling.chains.engine import SILENT, Chains, Stoppable
from refhmc.sampling.chains.initialization import check_start_of, given_starts
from refhmc.sampling.checks.array_implementation import array_implementation, check_array_implementation
from refhmc.sampling.checks.memory_estimate import check_memory
from refhmc.sampling.progress import Progress, ProgressReport
from refhmc.sampling.results import from_arrays
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.review import DrawsToReview
from refhmc.sampling.spec import RunSpec

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
        self.plan = make_plan(spec.model, spec.kernel, spec.tune)
        self.attributes: dict[str, object] = {
            "device": describe(spec.backend.name),
            "shared_step_size": spec.backend.shared_step_size,
            "fused": False,
            "starts": [spec.start_origin] * spec.chains,
        }
        with np.errstate(all="ignore"), device_errors():
            self.starts = starts_of(spec, self.implementation, self.plan, self.xp)
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
        self.state = none, none, none, np.full(n, np.nan), np.zeros(n)
        return self

    def draw(self) -> None:
        spec = self.spec
        assert isinstance(spec.backend, Arrays)
        self.logs = [each.core.begin_failures() for each in (spec.model, *getattr(spec.model, "parts", ()))]
        options = Options(spec.draws, spec.tune, spec.backend.shared_step_size, spec.save_warmup, self._look)
        try:
            with self.device(), np.errstate(all="ignore"):
                self.batch = Run(self.implementation, spec.kernel, self.starts, spec.entropy, options)
                with contextlib.suppress(Stopped):
                    self.batch.warm_up()
                    self.start_of_draws = to_host(self.batch.chains.q).copy()
                    self.batch.draw()
                    self._look(self.batch)
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
            raise from_arrays.failure_of(spec.model, self.batch, error) from error
        finally:
            self.ended = True

    def _look(self, batch: Run) -> bool:
        """Read the counters of the chains; return whether they shall stop."""
        arrays = batch.done, batch.divergences, batch.warmup_divergences, batch.chains.step_size
        done, divergences, of_warmup, step_size = (to_host(each).copy() for each in arrays)
        gradients = np.full(self.spec.chains, batch.evaluations.get("gradient", 0) / self.spec.chains)
        self.state = done, divergences, of_warmup, step_size, gradients
        if self.spec.max_seconds is not None and self.progress.seconds > self.spec.max_seconds:
            self.stop("time")
        return bool(self.stopped_by)

    def report(self, finished: bool) -> ProgressReport:
        done, divergences, of_warmup, step_size, gradients = self.state
        return self.progress.report(done, divergences, of_warmup, gradients, step_size, finished=finished)

    def hanging(self) -> list[str]:
        if not self.is_silent():
            return []
        return [
            f"The chains did not return from a call of the model within {SILENT:g} s after they were asked to stop. The run "
            "waits for them; a second Ctrl-C ends it with the draws so far. Check why the model does not return. "
            f"{_see('review-interrupted')}"
        ]

    def put_draws(self, result: Result) -> None:
        if self.batch is None:
            return
        from_arrays.put_draws(result, self.batch, self.spec.save_warmup, ended=self.ended)
        result.attributes.update(from_arrays.counts(self.batch, self.logs, ended=self.ended))
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


def starts_of(spec: RunSpec, text: ArrayModel, plan: Plan, xp: ModuleType) -> Array:
    """Return the starts (chains, d) on the device; raises InitError or MetricError for the first invalid one."""
    model, chains, entropy = spec.model, spec.chains, spec.entropy
    (kernel,) = blocks_of(spec.kernel).values()
    metric, _ = resolve(kernel.metric, kernel.integrator)
    given = given_starts(model, spec.initvals, chains)
    if given is None:
        drawn = uniform_starts(text, entropy, chains, xp)
        if callable(model.initial):
            drawn = starts_of_model(model.initial, entropy, chains, xp)
        return random_starts(drawn, text, metric, chains, xp)
    q = xp.asarray(given)
    for k in map(int, np.flatnonzero(~to_host(fit(text, metric, q)))):
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

"""``sample`` with ``backend="arrays"`` or ``"cupy"``: many chains in arrays (:mod:`refhmc.batch`)."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.backends import Arrays, CuPy
from refhmc.batch.backends import describe, error_of_device, memory_there, namespace_of, to_host
from refhmc.batch.chains import copied
from refhmc.batch.draw import NOT_OF_A_DRAW, TRANSITIONS, Options, Run, Stopped, fit, random_starts, uniform_starts
from refhmc.batch.streams import Purpose, keys_of
from refhmc.core.sample_stats import FLAGS
from refhmc.errors import (
    DiscontinuityWarning,
    GradientError,
    MissingArrayImplementationError,
    ModelError,
    PrecisionWarning,
    SamplingError,
    SamplingWarning,
    ShapeError,
    WarmupError,
    _see,
)
from refhmc.integrators.defaults import resolve
from refhmc.metrics import Diagonal
from refhmc.metrics.base import FROM_PAIRS
from refhmc.numerics import batched
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.chains.initialization import check_metrics, check_start, given_starts
from refhmc.sampling.checks import discontinuity
from refhmc.sampling.checks.memory_estimate import bytes_of_values, of_review
from refhmc.sampling.checks.preflight import check_derivatives, check_gradient, rounded_to_single
from refhmc.sampling.checks.user_functions import check_functions, check_variables
from refhmc.sampling.interruption import past_ctrl_c, sigterm_as_ctrl_c
from refhmc.sampling.progress import Progress
from refhmc.sampling.results.from_chains import (
    NO_STEP_SIZE,
    Seen,
    attached,
    begun,
    cut_short,
    inexact_part,
    largest_rectangle,
    put_posterior,
    review_cut_off,
    searched,
)
from refhmc.sampling.results.generated_quantities import check_groups
from refhmc.sampling.results.review import failed_evaluations, review

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.results.result import Result

COMPARED = 4  # starts at which the array implementation is compared with the model's functions
CLOSE = 1e-6  # relative tolerance of the comparison
ROUNDING = 1e-8  # tolerance of differences of L relative to L: order of sums, layers in single precision


def sample_many(
    model: Model,
    kernel: Any,
    *,
    draws: int,
    tune: int,
    chains: int,
    entropy: int,
    initvals: Any,
    backend: Arrays,
    save_warmup: bool,
    preflight: bool,
    display: Any,
    max_seconds: float | None,
    generate: Any,
) -> tuple[Result, list[Warning]]:
    """Return the result and its warnings.

    Raises the errors of :func:`refhmc.sample`, DeviceError, and MissingArrayImplementationError for a model without an array
    implementation on a GPU.
    """
    xp = namespace_of(backend.name)
    check_kernel_of_many(kernel)
    kernel = with_metric_of_many(kernel)
    with device_errors():
        text = text_of(model, xp, isinstance(backend, CuPy) and backend.streamed)
    of_warmup = tune if save_warmup else 0
    check_memory_of_many(model, kernel, draws, of_warmup, chains, backend.name)
    plan = make_plan(model, kernel, tune)
    with np.errstate(all="ignore"), device_errors():
        starts = starts_of(model, kernel, text, plan, initvals, chains, entropy, xp)
        first = to_host(starts[0])
        check_functions(model, plan, first)
        check_variables(model, first)
        groups = check_groups(model, first, generate, chains, draws)
        values = bytes_of_values(model.constrain(first))
        check_memory_of_many(model, kernel, draws, of_warmup, chains, backend.name, values, groups)
        imprecise = check_gradient(model, first) if preflight else None
        if preflight:
            check_derivatives(plan, first)
        coarse = check_text(model, text, plan, starts[:COMPARED], preflight)
        imprecise = imprecise or coarse
    to_say: list[Warning] = [] if imprecise is None else [PrecisionWarning(imprecise)]
    jumps = discontinuity.declared(model, kernel, first)
    result = begun(model, kernel, entropy, draws, tune, preflight)
    result.attributes.update(backend=backend.name, device=describe(backend.name), fused=False)
    result.attributes["shared_step_size"] = backend.shared_step_size
    stopped_by, refused = "", None
    progress = Progress(chains, tune, tune + draws, chains)

    def report(run: Run, finished: bool) -> None:
        arrays = run.done, run.divergences, run.warmup_divergences, run.chains.step_size
        done, divergences, of_warmup, step_size = (to_host(each).copy() for each in arrays)
        gradients = np.full(chains, run.evaluations.get("gradient", 0) / chains)
        display.report(progress.report(done, divergences, of_warmup, gradients, step_size, finished=finished))

    def watch(run: Run) -> bool:
        nonlocal stopped_by, refused
        try:
            report(run, finished=False)
        except Exception as error:
            refused = error
            raise
        if max_seconds is not None and progress.seconds > max_seconds:
            stopped_by = "time"
        return bool(stopped_by)

    options = Options(int(draws), int(tune), backend.shared_step_size, bool(save_warmup), watch)
    run: Run | None = None
    after_warmup = np.full((chains, model.dim), np.nan)
    logs = [each.core.begin_failures() for each in (model, *getattr(model, "parts", ()))]

    def mark_interrupted() -> None:
        nonlocal stopped_by
        if stopped_by == "interrupt":  # the second one
            raise KeyboardInterrupt
        stopped_by = "interrupt"
        result.attributes.update(interrupted=True, stopped_by=stopped_by)

    def put_together() -> None:
        if run is None:
            return
        put_draws_of_many(result, run, save_warmup, stopped_by)
        result.attributes.update(counts(run, logs), sampling_time=progress.seconds)
        put_posterior(result, model)

    try:
        with sigterm_as_ctrl_c(), np.errstate(all="ignore"):
            with device_errors():
                run = Run(text, kernel, starts, entropy, options)
            try:
                with contextlib.suppress(Stopped):
                    run.warm_up()
                    after_warmup = to_host(run.chains.q).copy()
                    run.draw()
            except KeyboardInterrupt:
                stopped_by = "interrupt"
            except Exception as error:
                stopped_by = "error"
                if error is refused or isinstance(error, WarmupError) or error_of_device(error) is not None:
                    raise
                raise failure_of_many(model, run, error) from error
            report(run, finished=True)
            past_ctrl_c(put_together, mark_interrupted)
            to_say += past_ctrl_c(
                lambda: put_warnings_of_many(result, model, kernel, run, after_warmup, jumps, progress),
                mark_interrupted,
                lambda: review_cut_off(result, jumps) + ([] if jumps is None else [DiscontinuityWarning(jumps)]),
            )
            result.warnings[:0] = [] if imprecise is None else [imprecise]
    except BaseException as error:
        carrier = attached(error_of_device(error) or error, result, put_together)
        if carrier is error:
            raise
        raise carrier from error
    return result, to_say


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


def with_metric_of_many(kernel: Any) -> Any:
    """Return the kernel with ``Diagonal()`` for "auto"; raises ValueError for a metric that only "numba" adapts."""
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    if metric.learns != FROM_PAIRS or getattr(kernel, "jumping", False):
        return kernel
    if kernel.metric is None:
        return dataclasses.replace(kernel, metric=Diagonal())
    raise ValueError(
        "metric must be Diagonal(), Dense() or a metric with given values for this backend; got "
        f"{type(metric).__name__}, which is adapted from gradients. Use backend='numba' for it."
    )


def check_kernel_of_many(kernel: Any) -> None:
    """Raise TypeError or ValueError for a kernel or integrator without an array implementation."""
    name = getattr(kernel, "name", type(kernel).__name__)
    if name not in TRANSITIONS:
        raise TypeError(
            f"kernel must be one of {', '.join(map(str.upper, TRANSITIONS))} with backend='arrays' or 'cupy'; got "
            f"{type(kernel).__name__}. Use backend='numba' for it."
        )
    _, integrator = resolve(kernel.metric, kernel.integrator)
    if not hasattr(getattr(integrator, "base", integrator), "on_arrays"):
        raise ValueError(
            f"integrator must have an array implementation; got {type(integrator).__name__}. Use backend='numba' for it."
        )


def text_of(model: Model, xp: Any, streamed: bool = False) -> Any:
    """Return the model's array implementation; with NumPy, else its compiled functions called for each position.

    `streamed` keeps the data of a split model on the host; it raises ValueError for any other model.
    """
    from refhmc.models.base import SplitModel
    from refhmc.models.model_on_arrays import ModelOnArrays

    try:
        if not streamed:
            return model.on_arrays(xp)
        if isinstance(model, SplitModel):
            return model.on_arrays(xp, streamed=True)
        raise ValueError(f"streamed=True needs a split model; got {model.name!r}. Use model.split(M).")
    except MissingArrayImplementationError:
        if xp is not np:
            raise
        return ModelOnArrays(model)


def check_text(model: Model, text: Any, plan: Any, q: Any, values: bool) -> str | None:
    """Compare an array implementation with the model's functions at the positions q (k, d); return a warning or None.

    Raises ModelError if it changes its argument. With `values`, raises GradientError unless all that the metric reads agrees,
    and also differences of L, which a large constant does not hide. The warning is about lower precision.
    """
    from refhmc.models.model_on_arrays import ModelOnArrays

    if isinstance(text, ModelOnArrays):
        return None
    compiled, at = ModelOnArrays(model), to_host(q).copy()
    given = copied(q)
    found = dict(zip(("log density", "gradient"), text.value_and_gradient(given), strict=True))
    if not np.array_equal(to_host(given), at):
        raise ModelError(
            f"The array implementation of model {model.name!r} must not change its argument q in place. Work on a copy."
        )
    if not values:
        return None
    wanted = dict(zip(("log density", "gradient"), compiled.value_and_gradient(at), strict=True))
    M = np.random.default_rng(20261123).standard_normal((*at.shape, model.dim))
    for name in plan.blocks[0].dynamics.metric.reads:
        if name is not None and hasattr(compiled, name):
            more = (M,) if "contraction" in name else ()
            found[name] = getattr(text, name)(copied(q), *(batched.namespace(q).asarray(x) for x in more))
            wanted[name] = getattr(compiled, name)(at, *more)
    for what, theirs in found.items():
        value, right = to_host(theirs), wanted[what]
        if value.shape != right.shape:
            raise ShapeError(
                f"The {what} of the array implementation must have shape {right.shape}; got {value.shape}."
            )
        axes = tuple(range(1, right.ndim))
        distance, size = np.max(np.abs(value - right), axis=axes), np.max(np.abs(right), axis=axes)
        for k in np.flatnonzero(~(distance <= CLOSE * (1 + size))):
            raise GradientError(
                f"The {what} of the array implementation of model {model.name!r} must equal that of the model; they differ by "
                f"{distance[k]:.3g} at {np.array2string(at[k], precision=6, threshold=8)}."
            )
    for what in ("log density", "gradient"):
        value, kind = to_host(found[what]), str(found[what].dtype)
        if kind != str(q.dtype) or (rounded_to_single(value) and not rounded_to_single(wanted[what])):
            return (
                f"The {what} of the array implementation of {model.name!r} has single precision or another dtype than its "
                f"positions (got {kind} for q of {q.dtype}). Its rounding adds to the energy error, which lowers acceptance if "
                f"it is large. Compute in the dtype of q. {_see('precision')}"
            )
    L, right = to_host(found["log density"]), wanted["log density"]
    distance, change = np.abs(L - L[0] - (right - right[0])), np.abs(right - right[0])
    for k in np.flatnonzero(~(distance <= CLOSE * (1 + change) + ROUNDING * np.abs(right))):
        raise GradientError(
            f"The log density of the array implementation of model {model.name!r} must equal that of the model; between two "
            f"starts it changes by {L[k] - L[0]:.9g} instead of {right[k] - right[0]:.9g}, at "
            f"{np.array2string(at[k], precision=6, threshold=8)}."
        )
    return None


def check_memory_of_many(
    model: Model,
    kernel: Any,
    draws: int,
    of_warmup: int,
    chains: int,
    backend: str,
    values: int | None = None,
    generated: int = 0,
) -> None:
    """Raise MemoryError, with the bytes needed and available, before anything is allocated.

    `of_warmup` iterations of warm-up are kept. `values` and `generated` are those of
    :func:`refhmc.sampling.checks.memory_estimate.room_for`.
    """
    chains, draws, d, kept = int(chains), int(draws), model.dim, int(draws) + int(of_warmup)
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
    there, on_host = memory_there("arrays"), of_draws + max(after, at_a_time if backend == "arrays" else 0)
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


def starts_of(
    model: Model, kernel: Any, text: Any, plan: Any, initvals: Any, chains: int, entropy: int, xp: Any
) -> Any:
    """Return the starts (chains, d) on the device; raises InitError or MetricError for the first invalid one."""
    metric, _ = resolve(kernel.metric, kernel.integrator)
    given = given_starts(model, initvals, chains)
    if given is None:
        drawn = uniform_starts(text, entropy, chains, xp)
        if callable(model.initial):
            drawn = starts_of_model(model, entropy, chains, xp)
        return random_starts(drawn, text, metric, chains, xp)
    q = xp.asarray(given)
    for k in map(int, np.flatnonzero(~to_host(fit(text, metric, q)))):
        check_start(model, given[k], k)
        check_metrics(model, plan, given[k], k)
        raise GradientError(
            f"Chain {k}: the array implementation of model {model.name!r} must be finite at the start, where the model's "
            "functions are finite."
        )
    return q


def starts_of_model(model: Model, entropy: int, chains: int, xp: Any) -> Callable:
    """Return the function that draws starts by ``model.initial``, from each chain's own stream."""
    keys, counter = keys_of(entropy, chains).view(np.uint64), [0, 0, int(Purpose.START), 0]
    generators = [np.random.Generator(np.random.Philox(key=key, counter=counter)) for key in keys]

    def drawn(rows: Any, tried: int) -> Any:
        return xp.asarray(np.array([model.initial(generators[k]) for k in to_host(rows)], dtype=float))  # type: ignore[misc]

    return drawn


def failure_of_many(model: Model, run: Run, error: Exception) -> SamplingError:
    """Return the error to raise if the model raised one, which ends all chains."""
    done, position = to_host(run.done), model.core.last_position.get(threading.get_ident())
    where = "" if position is None else f" (last position q = {np.array2string(position, threshold=8)})"
    words = str(error).rstrip(".")
    return SamplingError(
        f"The chains stopped after {done.min()} to {done.max()} iterations: {type(error).__name__}: {words}{where}. The draws "
        "so far are in this exception's .partial."
    )


def put_draws_of_many(result: Result, run: Run, save_warmup: bool, stopped_by: str) -> None:
    """Put draws and statistics into the result: all, or the largest rectangle if chains have different lengths."""
    made, warm = run.made, run.warm
    for recorder in (warm, made):
        try:
            recorder.move()
            to_host(recorder.done)
        except Exception as error:
            if error_of_device(error) is None:
                raise
            recorder.give_up()
    lengths = to_host(made.done)
    chosen, n = largest_rectangle(lengths)
    if save_warmup:
        of_warmup = to_host(warm.done)
        m = int(of_warmup.min())
        if not n:  # the run ended in warm-up
            chosen, m = largest_rectangle(of_warmup)
    at = slice(None) if len(chosen) == len(lengths) else chosen
    groups: dict[str, dict[str, np.ndarray]] = {
        "posterior": {},
        "sample_stats": {name: values[at, :n] for name, values in made.stats.items()},
        "unconstrained_posterior": {"q": made.draws[at, :n]},
    }
    if save_warmup:
        groups["warmup_posterior"] = {}
        groups["warmup_sample_stats"] = {name: values[at, :m] for name, values in warm.stats.items()}
        groups["warmup_unconstrained_posterior"] = {"q": warm.draws[at, :m]}
    if len(set(lengths.tolist())) > 1:
        result.ragged.update({k: made.draws[k, :length] for k, length in enumerate(lengths)})
    result.attributes.update(
        chains=chosen, draws_per_chain=lengths.tolist(), interrupted=bool(stopped_by), stopped_by=stopped_by
    )
    result.groups.update(groups)


def counts(run: Run, logs: list) -> dict[str, Any]:
    """Return the attributes with counts of evaluations of all chains together, needed or not, and of failed ones.

    It is not known in which chains evaluations failed.
    """
    run.count_evaluations()
    failures = [failure for log in logs for failure in log.found.values()]
    found = {f"n_{name}_evaluations": int(count) for name, count in run.evaluations.items()}
    changes = found.pop("n_change_evaluations", 0)
    per_chain = {"iterations": run.done, "divergences": run.divergences, "warmup_divergences": run.warmup_divergences}
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
        "step_size_searches_failed": run.searches_failed,
        "began_again_after": [0] * len(run.chains),
    }


def put_warnings_of_many(
    result: Result,
    model: Model,
    kernel: Any,
    run: Run,
    starts: np.ndarray,
    jumps: str | None,
    progress: Progress,
) -> list[Warning]:
    """Put the warnings of the run into the result and return them."""
    attributes, found = result.attributes, result.warnings
    starts = starts[attributes["chains"]]
    if attributes["interrupted"]:
        found += cut_short(result, progress)
    if run.searches_failed:
        found.append(
            f"The search for an initial step size did not converge in {run.searches_failed} cases. {NO_STEP_SIZE}"
        )
    if not attributes["exact"]:
        found.append(f"The chain is approximate: {inexact_part(kernel).approximation} {_see('approximate-chain')}")
    found += review(
        model.names,
        result.draws,
        {"": result.sample_stats},
        {"": kernel},
        starts,
        attributes["tuning_steps"],
    )
    found += failed_evaluations(attributes["evaluation_failures"])
    to_say: list[Warning] = [SamplingWarning(text) for text in found]
    if jumps is None:
        seen = Seen(result.draws, result.sample_stats, {}, starts, 0, None)
        jumps, more = searched(result, model, kernel, seen, progress.seconds, 1)
        to_say += [SamplingWarning(text) for text in more]
    if jumps is not None:
        found.insert(0, jumps)
        to_say.append(DiscontinuityWarning(jumps))
    return to_say

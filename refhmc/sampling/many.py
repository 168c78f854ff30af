"""``sample`` with ``backend="arrays"`` or ``"cupy"``: many chains at once (:mod:`refhmc.batch`), the same result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.batch.backends import describe, memory_there, namespace_of, to_host
from refhmc.batch.draw import NOT_OF_A_DRAW, TRANSITIONS, Options, Recorder, Run, random_starts
from refhmc.core.sample_stats import FLAGS
from refhmc.errors import DiscontinuityWarning, GradientError, MissingTextError, PrecisionWarning, SamplingWarning
from refhmc.integrators.defaults import resolve
from refhmc.sampling import discontinuity
from refhmc.sampling.assembly import attached, begun, cut_short, inexact_part, largest_rectangle, put_posterior
from refhmc.sampling.chain import make_plan
from refhmc.sampling.initialization import check_metrics, check_start, given_starts
from refhmc.sampling.interruption import sigterm_as_ctrl_c
from refhmc.sampling.preflight import check_derivatives, check_gradient
from refhmc.sampling.progress import ProgressReport
from refhmc.sampling.review import review
from refhmc.sampling.user_functions import check_functions, check_variables

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.result import Result

COMPARED = 4  # starts at which a model's text is held against its functions
CLOSE = 1e-6  # of the size of what is compared


def sample_many(
    model: Model,
    kernel: Any,
    *,
    draws: int,
    tune: int,
    chains: int,
    entropy: int,
    initvals: Any,
    backend: str,
    shared_step_size: bool,
    streamed: bool,
    save_warmup: bool,
    preflight: bool,
    display: Any,
    max_seconds: float | None,
) -> tuple[Result, list[Warning]]:
    """The result, and what to warn of. Raises what :func:`refhmc.sample` does, DeviceError, and MissingTextError on a GPU for a
    model without a text on arrays."""
    xp = namespace_of(backend)
    check_kernel_of_many(kernel)
    text = text_of(model, xp, streamed)
    kept = draws + (tune if save_warmup else 0)
    check_memory_of_many(model, kernel, kept, chains, backend)
    plan = make_plan(model, kernel, tune)
    with np.errstate(all="ignore"):
        starts = starts_of(model, kernel, text, plan, initvals, chains, entropy, xp)
        first = to_host(starts[0])
        check_functions(model, plan, first)
        check_variables(model, first)
        imprecise = check_gradient(model, first) if preflight else None
        if preflight:
            check_derivatives(plan, first)
            check_text(model, text, starts[:COMPARED])
    to_say: list[Warning] = [] if imprecise is None else [PrecisionWarning(imprecise)]
    jumps = discontinuity.declared(model, kernel, first)
    result = begun(model, kernel, entropy, draws, tune, preflight)
    result.attributes.update(backend=backend, device=describe(backend), shared_step_size=bool(shared_step_size))
    begin, stopped_by = time.monotonic(), ""

    def watch(done: np.ndarray, divergences: np.ndarray, gradients: int) -> bool:
        nonlocal stopped_by
        seconds = time.monotonic() - begin
        each = np.full(len(done), gradients / len(done))
        display.report(ProgressReport(done, tune + draws, tune, divergences, each, seconds, False))
        if max_seconds is not None and seconds > max_seconds:
            stopped_by = "time"
        return bool(stopped_by)

    options = Options(int(draws), int(tune), bool(shared_step_size), bool(save_warmup), watch)
    run = Run(text, kernel, starts, entropy, options)
    warm, made = (Recorder(run.chains, run.names, 0, 0) for _ in range(2))
    after_warmup = np.full((chains, model.dim), np.nan)
    try:
        with sigterm_as_ctrl_c(), np.errstate(all="ignore"):
            try:
                warm = run.warm_up()
                if not run.stopped:
                    after_warmup = to_host(run.chains.q).copy()
                    made = run.recorder_of_draws()
                    run.draw(made)
            except KeyboardInterrupt:
                stopped_by = "interrupt"
            seconds = time.monotonic() - begin
            done, divergences = to_host(run.done), to_host(run.divergences)
            gradients = np.full(chains, run.evaluations.get("gradient", 0) / chains)
            display.report(ProgressReport(done, tune + draws, tune, divergences, gradients, seconds, True))
        put_draws_of_many(result, made, warm if save_warmup else None, stopped_by)
        result.attributes.update(counts(run), sampling_time=time.monotonic() - begin)
        put_posterior(result, model)
        to_say += put_warnings_of_many(result, model, kernel, run, after_warmup, jumps)
    except BaseException as error:
        carrier = attached(error, result, lambda: put_draws_of_many(result, made, None, stopped_by))
        if carrier is error:
            raise
        raise carrier from error
    return result, to_say


def check_kernel_of_many(kernel: Any) -> None:
    """Raise TypeError or ValueError for what has no text for many chains."""
    name = getattr(kernel, "name", type(kernel).__name__)
    if name not in TRANSITIONS:
        raise TypeError(
            f"backend='arrays' and 'cupy' have the kernels {', '.join(map(str.upper, TRANSITIONS))}, "
            f"got {type(kernel).__name__}"
        )
    _, integrator = resolve(kernel.metric, kernel.integrator)
    if not hasattr(getattr(integrator, "base", integrator), "on_arrays"):
        raise ValueError(f"{type(integrator).__name__} has no step on arrays")


def text_of(model: Model, xp: Any, streamed: bool = False) -> Any:
    """The model's text on arrays; on NumPy its compiled functions, called for each position, where it has none. ``streamed``:
    of a split model, whose data stay with the host; ValueError for another."""
    from refhmc.models.base import SplitModel
    from refhmc.models.on_arrays import ModelOnArrays

    try:
        if not streamed:
            return model.on_arrays(xp)
        if isinstance(model, SplitModel):
            return model.on_arrays(xp, streamed=True)
        raise ValueError(f"streamed=True goes with a split model, and {model.name!r} is none: give model.split(M)")
    except MissingTextError:
        if xp is not np:
            raise
        return ModelOnArrays(model)


def check_text(model: Model, text: Any, q: Any) -> None:
    """Raise GradientError unless the text makes the log density and the gradient of the model's functions at q (k, d)."""
    values, gradients = (to_host(x) for x in text.value_and_gradient(q))
    for k, at in enumerate(to_host(q)):
        value, gradient = model.core.value_and_gradient(at)
        for what, found, wanted in (("log density", values[k], value), ("gradient", gradients[k], gradient)):
            distance = np.max(np.abs(found - wanted))
            if not distance <= CLOSE * (1 + np.max(np.abs(wanted))):
                raise GradientError(
                    f"the {what} of the text on arrays of model {model.name!r} is not that of the model: they differ by "
                    f"{distance:.3g} at {np.array2string(at, precision=6, threshold=8)}"
                )


def check_memory_of_many(model: Model, kernel: Any, kept: int, chains: int, backend: str) -> None:
    """Raise MemoryError, with the bytes needed and there, before anything is allocated."""
    there = memory_there("arrays")
    names = [name for name in kernel.statistics if name not in NOT_OF_A_DRAW]
    bytes_of = sum(1 if name in FLAGS else 8 for name in names)
    needed = chains * kept * (2 * 8 * model.dim + bytes_of)
    if there is not None and needed > there:
        raise MemoryError(
            f"this run needs about {needed:,} bytes of draws, and the machine has {there:,}: take fewer draws or chains"
        )
    on_device = 8 * chains * model.dim * (20 + 5 * int(getattr(kernel, "max_treedepth", 0)))
    there = memory_there(backend)
    if there is not None and on_device > there:
        raise MemoryError(
            f"{chains} chains need about {on_device:,} bytes at a time, and there are {there:,}: take fewer chains, or a "
            "smaller max_treedepth"
        )


def starts_of(
    model: Model, kernel: Any, text: Any, plan: Any, initvals: Any, chains: int, entropy: int, xp: Any
) -> Any:
    """(chains, d) on the device. Raises InitError or MetricError for the first chain that cannot begin."""
    metric, _ = resolve(kernel.metric, kernel.integrator)
    given = given_starts(model, initvals, chains)
    if given is None and callable(model.initial):
        seeds = [np.random.SeedSequence(entropy, spawn_key=(k,)) for k in range(chains)]
        given = np.array([model.initial(np.random.Generator(np.random.Philox(seed))) for seed in seeds], dtype=float)
    if given is None:
        return random_starts(text, metric, entropy, chains, xp)
    q = xp.asarray(given)
    fit = to_host(xp.isfinite(metric.on_arrays(text).energy(q, 0 * q)) & xp.all(xp.isfinite(text.gradient(q)), axis=-1))
    for k in np.flatnonzero(~fit):
        check_start(model, given[k], int(k))
        check_metrics(model, plan, given[k], int(k))
    return q


def put_draws_of_many(result: Result, made: Recorder, warm: Recorder | None, stopped_by: str) -> None:
    """Draws and statistics: all of them, or the largest rectangle where the chains are of different lengths."""
    made.move()
    lengths = to_host(made.done)
    chosen, n = largest_rectangle(lengths)
    at = slice(None) if len(chosen) == len(lengths) else chosen
    groups: dict[str, dict[str, np.ndarray]] = {
        "posterior": {},
        "sample_stats": {name: values[at, :n] for name, values in made.stats.items()},
        "unconstrained_posterior": {"q": made.draws[at, :n]},
    }
    if warm is not None:
        warm.move()
        m = int(to_host(warm.done).min())
        groups["warmup_posterior"] = {}
        groups["warmup_sample_stats"] = {name: values[at, :m] for name, values in warm.stats.items()}
        groups["warmup_unconstrained_posterior"] = {"q": warm.draws[at, :m]}
    if len(set(lengths.tolist())) > 1:
        result.ragged.update({k: made.draws[k, :length] for k, length in enumerate(lengths)})
    result.attributes.update(
        chains=chosen, draws_per_chain=lengths.tolist(), interrupted=bool(stopped_by), stopped_by=stopped_by
    )
    result.groups.update(groups)


def counts(run: Run) -> dict[str, Any]:
    """Evaluations of the model at a position, of all chains together, whether or not a chain needed its own."""
    found = {f"n_{name}_evaluations": int(count) for name, count in run.evaluations.items()}
    return {
        **found,
        "n_log_density_evaluations": found.get("n_gradient_evaluations", 0),
        "failed_chains": [],
        "evaluation_failures": [],
        "step_size_searches_failed": run.searches_failed,
    }


def put_warnings_of_many(
    result: Result, model: Model, kernel: Any, run: Run, starts: np.ndarray, jumps: str | None
) -> list[Warning]:
    """What of the run deserves a look: into the result, and returned to be warned of."""
    attributes, found = result.attributes, result.warnings
    if attributes["interrupted"]:
        found += cut_short(attributes)
    if run.searches_failed:
        found.append(
            f"The search for a first step size found no end in {run.searches_failed} cases: the energy error of one step does "
            "not depend on its size there. Is the density proper, and its gradient right?"
        )
    if not attributes["exact"]:
        found.append(f"The chain is approximate: {inexact_part(kernel).approximation}")
    found += review(
        model.names,
        result.draws,
        {"": result.sample_stats},
        {"": kernel},
        starts[attributes["chains"]],
        attributes["tuning_steps"],
    )
    to_say: list[Warning] = [SamplingWarning(text) for text in found]
    if jumps is not None:
        found.insert(0, jumps)
        to_say.append(DiscontinuityWarning(jumps))
    return to_say

"""``sample``: seeds, starts, checks, a thread per chain, a watcher, and the result."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from refhmc import compiled, types
from refhmc.chain import Chain, Plan, make_plan, run_draws
from refhmc.checkpoint import Checkpoint, Saved, read_run
from refhmc.errors import CheckpointError, SamplingError, SamplingWarning
from refhmc.kernels import HMC, NUTS
from refhmc.model import Model
from refhmc.point import Q
from refhmc.progress import ProgressReport, make_display
from refhmc.results import Group, Result
from refhmc.sample_stats import N_STATS, named
from refhmc.sampling_warnings import review
from refhmc.starts import check_gradient, check_returns, check_start, given_starts, random_start
from refhmc.types import DIVERGENCES, DRAWS_DONE, GRADIENTS, N_CONTROL, SEARCH_FAILED, STOP

WATCH_EVERY = 0.05  # seconds between two looks at the chains' counters
CHUNK = 256  # draws at a time in warm-up that is written over, and between looks at a checkpoint
SMALL_WARMUP = 2**26  # bytes of warm-up draws that are worth keeping until the end of the run


class ChainRun(NamedTuple):
    """What one chain brings back: plain arrays, so that it can come from another process."""

    draws: np.ndarray
    stats: np.ndarray
    warmup_draws: np.ndarray
    warmup_stats: np.ndarray
    start: np.ndarray  # the position after warm-up
    inverse_mass: np.ndarray
    control: np.ndarray
    error: BaseException | None
    error_position: np.ndarray | None


def chain_generator(entropy: int, chain: int) -> np.random.Generator:
    """The generator of chain k: PCG64(SeedSequence(entropy, spawn_key=(k,))), whatever else is run."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(chain,))))


def run_chain(
    model: Model,
    kernel,
    chain: int,
    entropy: int,
    start: np.ndarray | None,
    draws: int,
    tune: int,
    keep_warmup: bool,
    checkpoint: Checkpoint | None = None,
    control: np.ndarray | None = None,
) -> ChainRun:
    """One chain from its seed, or its checkpoint, to its last draw. The model's exceptions are carried back."""
    control = np.zeros(N_CONTROL, np.int64) if control is None else control
    rng = chain_generator(entropy, chain)
    state = Chain(model, make_plan(model, kernel, tune), rng)
    total = tune + draws
    # A call into the core costs a millisecond: the whole run is one, unless warm-up would need much memory that nobody
    # wants kept, or there is a checkpoint to write now and then.
    kept = tune if keep_warmup or 8 * tune * model.dim <= SMALL_WARMUP else 0
    dropped = tune - kept
    rows, stats = np.zeros((kept + draws, model.dim)), np.zeros((kept + draws, N_STATS))
    start_of_draws, done, saved, error = np.full(model.dim, np.nan), 0, None, None

    def run_to_the_end() -> None:
        nonlocal done, saved, start_of_draws
        scratch = np.zeros((CHUNK, model.dim)), np.zeros((CHUNK, N_STATS))
        while done < total:
            limit = total if done >= dropped else dropped
            size = limit - done if checkpoint is None and done >= dropped else min(CHUNK, limit - done)
            at = slice(done - dropped, done - dropped + size)
            target = (rows[at], stats[at]) if done >= dropped else (scratch[0][:size], scratch[1][:size])
            made = state.run(*target, control)
            done += made
            if done == tune:
                start_of_draws = state.state[Q].copy()
            if made < size:
                return
            if checkpoint is not None:
                n = max(done - dropped, 0)
                saved = Saved(state.to_bytes(), done, rows[:n], stats[:n], start_of_draws, control.copy())
                checkpoint.save(chain, saved)

    try:
        there = checkpoint.load(chain) if checkpoint is not None else None
        if there is None:
            state.start(random_start(model, rng, chain) if start is None else start)
        else:
            if there.done > total:
                raise CheckpointError(
                    f"chain {chain} of the checkpoint has {there.done - tune} draws, asked for {draws}"
                )
            state.restore(there.state)
            done, start_of_draws = there.done, there.start_of_draws
            control[STOP + 1 :] = there.control[STOP + 1 :]
            rows[: len(there.draws)], stats[: len(there.stats)] = there.draws, there.stats
        if tune == 0 and there is None:
            start_of_draws = state.state[Q].copy()
        run_to_the_end()
    except BaseException as caught:  # carried to the caller, who raises it with the draws attached
        error = caught
        done = int(control[DRAWS_DONE])
    if checkpoint is not None and saved is not None:
        checkpoint.save(chain, saved, now=True)
    if kept and done >= tune:
        start_of_draws = rows[tune - 1]
    warm, n = min(done, kept) if keep_warmup else 0, max(done - dropped, kept)
    return ChainRun(
        rows[kept:n],
        stats[kept:n],
        rows[:warm],
        stats[:warm],
        start_of_draws,
        state.mats[0] if len(state.mats) else state.vecs[0],
        control,
        error,
        None if error is None else model.core.last_position,
    )


def sample(
    model: Model,
    kernel=None,
    *,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    cores: int | None = None,
    random_seed: Any = None,
    initvals: Any = None,
    progressbar: bool | Callable[[ProgressReport], None] = True,
    save_warmup: bool = False,
    executor: Any = None,
    backend: str = "numba",
    checkpoint: Any = None,
    max_seconds: float | None = None,
    raw: bool = False,
    preflight: bool = True,
):
    """Draw from a model's distribution.

    Parameters
    ----------
    model : a :class:`refhmc.Model`. kernel : ``HMC(...)`` or ``NUTS(...)``; default ``NUTS()``.
    draws, tune : draws of each chain after, and iterations of, warm-up. Zero draws give an empty result.
    chains, cores : chains, and how many run at a time, a thread each (default: one per processor).
    random_seed : int, sequence of ints, SeedSequence, or Generator (advanced once). Chain k has the stream
        ``SeedSequence(entropy, spawn_key=(k,))`` whatever ``chains``, ``cores``, progress or executor.
    initvals : (d,) or (chains, d), unconstrained. Default: the model's own start, or uniform on (-2, 2).
    progressbar : False, True, or a function of a :class:`refhmc.progress.ProgressReport`.
    save_warmup : keep warm-up in groups ``warmup_*``.
    executor : anything with ``submit``; each chain is one task (no live progress). Never closed here.
    backend : "numba". max_seconds : stop then, with the draws made so far.
    checkpoint : a folder. The run is saved there every few seconds and when it stops; called again with the same
        folder (and model, kernel, warm-up, seed) it goes on from there, bit for bit as if it had never stopped.
        ``random_seed=None`` takes the saved one; ``draws`` may have grown.
    raw : return a :class:`refhmc.Result` of NumPy arrays. preflight : check the gradient before sampling.

    Returns
    -------
    The installed ArviZ's own object, or a :class:`refhmc.Result`. Ctrl-C, or ``max_seconds``, gives what there is,
    marked in the attributes ``interrupted`` and ``stopped_by``; a second Ctrl-C raises at once.

    Raises
    ------
    ShapeError, InitError, ModelError, GradientError, MetricError, ValueError : before sampling.
    SamplingError : the model raised during sampling; ``.partial`` is the result so far, other chains complete.
    """
    begin = time.perf_counter()
    kernel = NUTS() if kernel is None else kernel
    check_arguments(model, kernel, draws, tune, chains, cores, backend, max_seconds)
    check_memory(model, kernel, draws, tune if save_warmup else 0, chains)
    entropy = entropy_of(random_seed, checkpoint)
    display = make_display(progressbar)
    try:
        compiled.announce.append(_announcer(display))
        plan = make_plan(model, kernel, tune)
        warm_up(model, kernel, plan)
        starts = given_starts(model, initvals, chains)
        first = random_start(model, chain_generator(entropy, 0), 0) if starts is None else starts[0]
        check_returns(model, first)
        for chain, start in enumerate([] if starts is None else starts):
            check_start(model, start, chain)
        if preflight:
            check_gradient(model, first)
        store = open_checkpoint(checkpoint, model, kernel, tune, chains, entropy, save_warmup)
        shared = {"model": model, "kernel": kernel, "entropy": entropy, "draws": draws, "tune": tune}
        shared |= {"keep_warmup": save_warmup, "checkpoint": store}
        tasks = [{**shared, "chain": k, "start": None if starts is None else starts[k]} for k in range(chains)]
        # One thread of linear algebra a chain; our own models use none, and the limit takes milliseconds to set.
        with contextlib.nullcontext() if model.core.own else threadpoolctl.threadpool_limits(1):
            if executor is not None:
                submit: Any = executor.submit
                runs = [future.result() for future in [submit(run_chain, **task) for task in tasks]]
                stopped_by = None
            else:
                workers = min(chains, cores or os.cpu_count() or 1)
                runs, stopped_by = run_threads(tasks, workers, tune + draws, tune, display, max_seconds)
    finally:
        compiled.announce.pop()
        display.close()
    attributes = describe(model, kernel, entropy, draws, tune, runs, stopped_by, preflight)
    attributes["sampling_time"] = time.perf_counter() - begin
    result = assemble(model, kernel, runs, save_warmup, attributes)
    for text in result.warnings:
        warnings.warn(text, SamplingWarning, stacklevel=2)
    failed = [k for k, run in enumerate(runs) if run.error is not None]
    if failed and isinstance(runs[failed[0]].error, CheckpointError):
        raise runs[failed[0]].error  # type: ignore[misc]
    if failed:
        _raise_failure(failed[0], runs[failed[0]], result)
    return result if raw else result.to_arviz()


def run_threads(tasks, workers: int, total: int, tune: int, display, max_seconds):
    """Run the chains in threads and watch them; (runs, what stopped them early or None)."""
    control = np.zeros((len(tasks), N_CONTROL), np.int64)
    begin = time.monotonic()
    stopped_by = None

    def report(finished: bool) -> None:
        display.report(
            ProgressReport(
                control[:, DRAWS_DONE].copy(),
                total,
                tune,
                control[:, DIVERGENCES].copy(),
                control[:, GRADIENTS].copy(),
                time.monotonic() - begin,
                finished,
            )
        )

    pool = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="refhmc-chain")
    try:
        futures = [pool.submit(run_chain, **task, control=control[k]) for k, task in enumerate(tasks)]
        waiting = set(futures)
        while waiting:
            try:
                waiting = concurrent.futures.wait(waiting, timeout=WATCH_EVERY).not_done
                if max_seconds is not None and stopped_by is None and time.monotonic() - begin > max_seconds:
                    stopped_by = "time"
                    control[:, STOP] = 1
                report(finished=not waiting)
            except KeyboardInterrupt:
                if stopped_by == "interrupt":  # the second one
                    raise
                stopped_by = "interrupt"
                control[:, STOP] = 1
        return [future.result() for future in futures], stopped_by
    finally:
        control[:, STOP] = 1
        pool.shutdown(wait=stopped_by is None, cancel_futures=True)


def warm_up(model: Model, kernel, plan: Plan) -> None:
    """Compile, or load from the cache, all that the run will call."""
    pointers = zip(model.core.tuple[:3], (types.VALUE_AND_GRADIENT, types.METRIC, types.TRACE), strict=True)
    for function, pointer in pointers:
        compiled.compile_pointer(function, pointer.signature, f"the model {model.name}")
    compiled.compile_pointer(plan.dynamics[1], types.REFRESH.signature, "the momentum draw")
    compiled.compile_pointer(plan.dynamics[2], types.STEP.signature, "the integrator's step")
    compiled.compile_pointer(plan.transition, types.TRANSITION.signature, kernel.title)
    run_draws.compile()


def _announcer(display) -> Callable[[str], None]:
    told: list[str] = []

    def announce(title: str) -> None:
        if not told:
            display.message("refhmc: compiling for the first time on this installation (about half a minute, once)")
            told.append(title)
        display.message(f"refhmc: compiling {title}")

    return announce


# ------------------------------------------------------------------------------------------------ arguments


def check_arguments(model, kernel, draws, tune, chains, cores, backend, max_seconds) -> None:
    """Raise TypeError or ValueError with the name and the value of what cannot be."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a refhmc.Model (or one of refhmc.models, called), got {type(model).__name__}")
    if not isinstance(kernel, HMC | NUTS):
        raise TypeError(f"kernel must be refhmc.HMC(...) or refhmc.NUTS(...), got {kernel!r}")
    for name, value, least in (("draws", draws, 0), ("tune", tune, 0), ("chains", chains, 1), ("cores", cores, 1)):
        if name == "cores" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if backend != "numba":
        raise ValueError(f"backend must be 'numba', got {backend!r}")
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"max_seconds must be positive, got {max_seconds!r}")


def check_memory(model, kernel, draws: int, kept_warmup: int, chains: int) -> None:
    """Raise MemoryError, with the bytes needed and there, before anything is allocated."""
    d = model.dim
    needed = 8 * chains * (2 * (draws + kept_warmup) * (d + N_STATS))
    if getattr(kernel.metric, "is_dense", False):
        needed += 8 * chains * 3 * d * d
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return
    if needed > there:
        raise MemoryError(
            f"this run needs about {needed:,} bytes, and the machine has {there:,}: take fewer draws or chains, or a "
            "diagonal metric"
        )


def open_checkpoint(folder, model, kernel, tune, chains, entropy, save_warmup) -> Checkpoint | None:
    """The checkpoint of this run in ``folder``, new or checked to be the same run; None for None."""
    if folder is None:
        return None
    import refhmc

    run = {
        "refhmc_version": refhmc.__version__,
        "model": model.name,
        "model_fingerprint": model.fingerprint(),
        "kernel": kernel_as_json(kernel),
        "tune": int(tune),
        "chains": int(chains),
        "entropy": str(entropy),
        "save_warmup": bool(save_warmup),
    }
    checkpoint = Checkpoint(folder, run)
    checkpoint.open()
    return checkpoint


def entropy_of(random_seed: Any, checkpoint: Any = None) -> int:
    """The one integer all chains' streams come from; for None a checkpoint's, or drawn from the system."""
    if random_seed is None and checkpoint is not None:
        there = read_run(checkpoint)
        if there is not None:
            return int(there["entropy"])
    if random_seed is None:
        return secrets.randbits(128)
    if isinstance(random_seed, np.random.Generator):
        return int.from_bytes(random_seed.bytes(16), "little")
    if isinstance(random_seed, np.random.RandomState):
        raise TypeError("random_seed cannot be a RandomState: give an int or a numpy.random.Generator")
    if not isinstance(random_seed, np.random.SeedSequence):
        if isinstance(random_seed, float | bool | str):
            raise TypeError(f"random_seed must be an int, got {random_seed!r}")
        if isinstance(random_seed, int | np.integer):
            if random_seed < 0:
                raise ValueError(f"random_seed must not be negative, got {random_seed}")
            return int(random_seed)
        random_seed = np.random.SeedSequence(random_seed)
    words = random_seed.generate_state(4, np.uint32)
    return int.from_bytes(words.astype("<u4").tobytes(), "little")


# --------------------------------------------------------------------------------------------------- result


def describe(model, kernel, entropy, draws, tune, runs, stopped_by, preflight) -> dict[str, Any]:
    """The attributes of a result."""
    import refhmc

    totals = np.sum([run.control for run in runs], axis=0)
    return {
        "refhmc_version": refhmc.__version__,
        "inference_library": "refhmc",
        "kernel": kernel_as_json(kernel),
        "entropy": entropy,
        "model": model.name,
        "model_fingerprint": model.fingerprint(),
        "model_runs_as_python": model.runs_as_python or "",
        "draws": int(draws),
        "tuning_steps": int(tune),
        "draws_per_chain": [len(run.draws) for run in runs],
        "interrupted": stopped_by is not None,
        "stopped_by": stopped_by or "",
        "preflight": bool(preflight),
        "failed_chains": [k for k, run in enumerate(runs) if run.error is not None],
        "n_gradient_evaluations": int(totals[GRADIENTS]),
        "n_log_density_evaluations": int(totals[GRADIENTS]),
        "n_hessian_evaluations": 0,
        "n_trace_evaluations": 0,
        "step_size_searches_failed": int(totals[SEARCH_FAILED]),
    }


def kernel_as_json(kernel) -> str:
    """``{"kernel": "NUTS", "step_size": null, "metric": {...}, ...}``; arrays as lists."""

    def plain(value):
        if dataclasses.is_dataclass(value):
            fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"name": type(value).__name__, **fields}
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    return json.dumps(plain(kernel))


def assemble(model, kernel, runs: list[ChainRun], save_warmup: bool, attributes: dict) -> Result:
    """The result of the chains: all of them, or the largest rectangle when some are shorter."""
    lengths = np.array([len(run.draws) for run in runs])
    kept, n = largest_rectangle(lengths)
    whole = len(set(lengths)) == 1
    groups: dict[str, Group] = {}
    draws = np.stack([runs[k].draws[:n] for k in kept])
    stats = named(np.stack([runs[k].stats[:n] for k in kept]), kernel.statistics)
    groups["posterior"] = model.constrain(draws)
    groups["sample_stats"] = stats
    groups["unconstrained_posterior"] = {"q": draws}
    if save_warmup:
        m = min(len(runs[k].warmup_draws) for k in kept)
        warm = np.stack([runs[k].warmup_draws[:m] for k in kept])
        groups["warmup_posterior"] = model.constrain(warm)
        groups["warmup_sample_stats"] = named(np.stack([runs[k].warmup_stats[:m] for k in kept]), kernel.statistics)
        groups["warmup_unconstrained_posterior"] = {"q": warm}
    attributes = {**attributes, "chains": [int(k) for k in kept]}
    found = review(model.names, draws, stats, np.stack([runs[k].start for k in kept]))
    ragged = {} if whole else {k: run.draws for k, run in enumerate(runs)}
    return Result(groups, attributes, found, ragged)


def largest_rectangle(lengths: np.ndarray) -> tuple[list[int], int]:
    """Which chains to keep, and how many draws of each, so that the most draws are kept."""
    order = np.argsort(-lengths, kind="stable")
    sizes = [(rank + 1) * int(lengths[k]) for rank, k in enumerate(order)]
    best = max(range(len(order)), key=lambda rank: (sizes[rank], rank))
    return sorted(int(k) for k in order[: best + 1]), int(lengths[order[best]])


def _raise_failure(chain: int, run: ChainRun, result: Result) -> None:
    done = int(run.control[DRAWS_DONE])
    error = SamplingError(
        f"chain {chain} stopped at iteration {done}: {type(run.error).__name__}: {run.error}"
        + (f" (last position q = {np.array2string(run.error_position)})" if run.error_position is not None else "")
        + ". The draws so far, and the other chains, are in this exception's .partial"
    )
    error.partial = result
    raise error from run.error

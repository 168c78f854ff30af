"""``sample``: seeds, starts, checks, a thread per chain, a watcher, and the result."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import threadpoolctl

from refhmc import compiled, discontinuity
from refhmc.arguments import check_arguments, check_memory, entropy_of
from refhmc.assembly import assemble, describe, kernel_as_json, raise_failure
from refhmc.chain import make_plan
from refhmc.chain_run import chain_generator, run_chain
from refhmc.checkpoint import Checkpoint
from refhmc.errors import CheckpointError, DiscontinuityWarning, SamplingWarning
from refhmc.kernels import DHMC, NUTS
from refhmc.model import Model
from refhmc.progress import ProgressReport, make_display
from refhmc.starts import check_gradient, check_metric, check_returns, check_start, given_starts, random_start
from refhmc.types import DIVERGENCES, DRAWS_DONE, GRADIENTS, N_CONTROL, STOP

WATCH_EVERY = 0.05  # seconds between two looks at the chains' counters


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
    model : a :class:`refhmc.Model`. kernel : ``HMC(...)``, ``NUTS(...)``, ``DHMC(...)`` or ``Gibbs(...)``; default ``NUTS()``,
        and ``DHMC()`` for a model with discontinuous coordinates.
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
    if kernel is None:
        kernel = DHMC() if isinstance(model, Model) and len(model.discontinuous) else NUTS()
    check_arguments(model, kernel, draws, tune, chains, cores, backend, max_seconds)
    check_memory(model, kernel, draws, tune if save_warmup else 0, chains)
    entropy = entropy_of(random_seed, checkpoint)
    display = make_display(progressbar)
    announcer = _announcer(display)
    try:
        compiled.announce.append(announcer)
        plan = make_plan(model, kernel, tune)
        warm_up(model, kernel, plan)
        begin = time.perf_counter()
        starts, first = checked_starts(model, plan.metric, initvals, chains, entropy, preflight)
        jumps = discontinuity.declared(model, kernel, first)
        if jumps is not None:
            warnings.warn(jumps, DiscontinuityWarning, stacklevel=2)
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
        compiled.announce.remove(announcer)
        display.close()
    attributes = describe(model, kernel, entropy, draws, tune, runs, stopped_by, preflight)
    attributes["sampling_time"] = time.perf_counter() - begin
    result = assemble(model, kernel, runs, save_warmup, attributes)
    for text in result.warnings:
        warnings.warn(text, SamplingWarning, stacklevel=2)
    if jumps is None:
        begun = np.stack([runs[k].start for k in result.attributes["chains"]])
        gradients = attributes["n_gradient_evaluations"]
        jumps = discontinuity.found(model, kernel, result.draws, result.sample_stats, begun, gradients)
        if jumps is not None:
            warnings.warn(jumps, DiscontinuityWarning, stacklevel=2)
    if jumps is not None:
        result.warnings.insert(0, jumps)
    failed = [k for k, run in enumerate(runs) if run.error is not None]
    if failed and isinstance(runs[failed[0]].error, CheckpointError):
        raise runs[failed[0]].error  # type: ignore[misc]
    if failed:
        raise_failure(failed[0], runs[failed[0]], result)
    return result if raw else result.to_arviz()


def checked_starts(model, metric, initvals, chains, entropy, preflight) -> tuple[np.ndarray | None, np.ndarray]:
    """The given starts (chains, d), each checked, or None for random ones, and the first start, where the model is checked."""
    starts = given_starts(model, initvals, chains)
    first = random_start(model, chain_generator(entropy, 0), 0, metric) if starts is None else starts[0]
    check_returns(model, first)
    for chain, start in enumerate([] if starts is None else starts):
        check_start(model, start, chain)
        check_metric(model, metric, start, chain)
    if preflight:
        check_gradient(model, first)
    return starts, first


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


def warm_up(model: Model, kernel, plan) -> None:
    """Compile, or load from the cache, all that the run will call."""
    plan.compile(model.name, kernel.title)


def _announcer(display) -> Callable[[str], None]:
    told: list[str] = []

    def announce(title: str) -> None:
        if not told:
            display.message("refhmc: compiling for the first time on this installation (some 20 seconds, once)")
            told.append(title)
        display.message(f"refhmc: compiling {title}")

    return announce


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

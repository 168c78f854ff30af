"""``sample``: seeds, starts, checks, chains (:mod:`~refhmc.sampling.drawing`), result (:mod:`~refhmc.sampling.assembly`)."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numba

from refhmc.adaptation.adapted import as_stan, begin_from, chains_of, ends_of
from refhmc.core import compiled
from refhmc.core.fingerprint import CHANGES, Fingerprint, classes_in, fingerprint, settled
from refhmc.core.linear_algebra import one_thread
from refhmc.errors import CheckpointWarning, DiscontinuityWarning, PrecisionWarning
from refhmc.models.base import Model
from refhmc.sampling import discontinuity
from refhmc.sampling.arguments import (
    check_arguments,
    check_init,
    check_kinds,
    check_memory,
    check_options,
    entropy_of,
)
from refhmc.sampling.assembly import (
    attached,
    begun,
    failure_of,
    kernel_as_json,
    put_draws,
    put_posterior,
    put_warnings,
    with_partial,
)
from refhmc.sampling.chain import BlockState, make_plan
from refhmc.sampling.chain_run import chain_generator
from refhmc.sampling.checkpoint import Checkpoint, describe_run
from refhmc.sampling.drawing import Drawing, draw_in_executor, draw_in_threads
from refhmc.sampling.generation import check_groups, chosen, put_generated_or_say
from refhmc.sampling.initialization import checked_starts
from refhmc.sampling.interruption import sigterm_as_ctrl_c
from refhmc.sampling.many import sample_many
from refhmc.sampling.progress import ProgressReport, make_display
from refhmc.sampling.recommended import kernel_for
from refhmc.sampling.unknown_arguments import refuse_unknown

if TYPE_CHECKING:
    from refhmc.sampling.progress import _Silent
    from refhmc.sampling.result import Result


def sample(
    model: Model,
    kernel: Any = None,
    *,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    cores: int | None = None,
    random_seed: Any = None,
    initvals: Any = None,
    init: str = "uniform",
    progressbar: bool | Callable[[ProgressReport], None] = True,
    save_warmup: bool = False,
    executor: Any = None,
    backend: str = "numba",
    checkpoint: Any = None,
    max_seconds: float | None = None,
    raw: bool = False,
    preflight: bool = True,
    fuse: bool = False,
    shared_step_size: bool | None = None,
    streamed: bool = False,
    warmup: Any = None,
    generate: Any = None,
    **unknown: Any,
) -> Any | Result:
    """Draw from a model's distribution.

    Parameters
    ----------
    model : a :class:`refhmc.Model`. kernel : ``HMC(...)``, ``NUTS(...)``, ``DHMC(...)`` or ``Gibbs(...)``, or the word for
        one with its defaults, "hmc"; default that of ``model.recommended``, else ``NUTS()``, and ``DHMC()`` for a model with
        discontinuous coordinates.
    draws, tune : draws of each chain after, and iterations of, warm-up. Zero draws give an empty result.
    chains, cores : chains, and how many run at a time, a thread each (default: one per processor).
    random_seed : int, sequence of ints, SeedSequence, or Generator (advanced once). Chain k has the stream
        ``SeedSequence(entropy, spawn_key=(k,))`` whatever ``chains``, ``cores``, progress or executor.
    initvals : (d,) or (chains, d), unconstrained; or constrained values of the variables by name, ``{"mu": 3.0, "tau": 0.5}``,
        enough of them to tell the position, or such a mapping for each chain; nothing is added to them. Default: the model's
        own start, or uniform on (-2, 2).
    init : "uniform": chains begin where ``initvals`` say. "pathfinder": from there each climbs by an optimiser of its own and
        begins with a draw from the best normal on that path (:mod:`refhmc.adaptation.pathfinder`), from the stream
        ``SeedSequence(entropy, spawn_key=(k, 0))``. A chain for which none is found begins as without it, with a warning. The
        result's attribute ``starts`` has "pathfinder", "initvals", "warmup" (its ends), "model" or "uniform" for each chain.
        ValueError for a model with coordinates that jump, and with another backend than "numba".
    progressbar : False, True, or a function of a :class:`refhmc.sampling.progress.ProgressReport`.
    save_warmup : keep warm-up in groups ``warmup_*``.
    executor : anything with ``submit``; each chain is one task (no live progress, no ``max_seconds``). Never closed here.
    backend : "numba", the compiled core, a chain a thread; or many chains at once (:mod:`refhmc.batch`): "arrays", NumPy on the
        CPU, or "cupy", a GPU (DeviceError where there is none), of HMC, NUTS and DHMC. Their streams are another generator's,
        so that their draws differ; chain k has its own whatever ``chains``. A draw has no counts of evaluations, and an
        exception of the model ends all chains. ValueError for an option that the backend does not use: ``cores``,
        ``executor``, ``checkpoint`` and ``fuse`` are of "numba", the next two of the others.
    shared_step_size : of "arrays" and "cupy": warm-up adapts one step size for all chains (True, the default), or one for each.
        The metric is learned from all chains.
    streamed : of "cupy" and a split model: the data of a part are moved to the device for each of its evaluations, from
        page-locked copies on the host, beside the evaluation of the part before. All of them together may be larger than its
        memory, which holds those of two parts at a time.
    max_seconds : stop then, with the draws made so far; in warm-up there are none, and the result's warning says at which
        iteration each chain was, how fast, and how long all of warm-up would take.
    checkpoint : a folder. The run is saved there every few seconds and when it stops; called again with the same
        folder it goes on from there, bit for bit as if it had never stopped. Model (all that its functions reach:
        :mod:`refhmc.core.fingerprint`), kernel, warm-up, starts, seed and the versions of refhmc, Numba, NumPy and Python
        must be the same; ``random_seed=None`` takes the saved seed; ``draws`` may have grown.
    raw : return a :class:`refhmc.Result` of NumPy arrays. preflight : check the gradient
        and each derivative that the metric reads, before sampling.
    warmup : "stan": metrics as Stan's warm-up has them, ``Diagonal()`` where the kernel says none. Or a result of this
        function, raw or ArviZ's: chain k begins with the step size and the metric that chain k (modulo their number) of
        it has learned, and where that ended if there are no ``initvals``; with ``tune=0`` they are used as they are.
    generate : which groups to make after sampling, of those that the model's ``generated`` has
        (:class:`refhmc.Generated`): None, all that fit into 1 GiB, with a warning that names the others; True, all; False,
        none; or names, "log_likelihood". Slow ones show progress, and Ctrl-C leaves out what is not finished.
        :func:`refhmc.generate` makes them later.
    fuse : compile the kernel for this model, integrator and metric (:mod:`refhmc.dynamics.fuse`): 5 to 40 seconds, once, then
        kept; worth it for runs of minutes where an evaluation takes microseconds or less. Draws may differ from those by
        pointer in their last bits, since sums may be added in another order.

    Returns
    -------
    The installed ArviZ's own object, or a :class:`refhmc.Result`. Ctrl-C, SIGTERM (if called in the main thread) or
    ``max_seconds`` gives what there is, marked in the attributes ``interrupted`` and ``stopped_by``; a second Ctrl-C raises.

    Raises
    ------
    ShapeError, InitError, ModelError, GradientError, MetricError, ValueError : before sampling.
    CheckpointError : before sampling: the folder is of another run (what differs is said), damaged (the file is named), or
        being written to.
    SamplingError : the model raised during sampling, other chains are complete; of many chains at once, all have ended.
    Whatever is raised after the first draw, also by ``constrain``, ArviZ, the progress callback, a warning that is an error or
    a second Ctrl-C, has what was drawn as a :class:`refhmc.Result` in its attribute ``partial``.
    """
    refuse_unknown(unknown, sample)
    kernel = kernel_for(model, kernel)
    check_arguments(model, kernel, draws, tune, chains, cores, backend, max_seconds)
    flags = {"save_warmup": save_warmup, "raw": raw, "preflight": preflight, "fuse": fuse, "streamed": streamed}
    check_kinds(progressbar, executor, checkpoint, **flags)
    check_init(init, model)
    chosen(model, generate)  # raises what it does before anything else is done
    learned = None
    usual = "initvals" if initvals is not None else "uniform" if model.initial is None else "model"
    if isinstance(warmup, str) and warmup == "stan":
        kernel = as_stan(kernel)
    elif warmup is not None:
        learned = chains_of(warmup)
        if initvals is None:
            initvals, usual = ends_of(warmup, chains), "warmup"
    if backend != "numba":
        of_the_core = {"cores": cores, "executor": executor, "checkpoint": checkpoint, "fuse": fuse or None}
        of_the_core["warmup"] = learned  # a result; "stan" is a matter of the kernel's metric
        of_the_core["init='pathfinder'"] = init == "pathfinder" or None
        check_options(of_the_core, "backend='numba' only", backend)
        display = make_display(progressbar)
        with contextlib.closing(display):
            result, to_say = sample_many(
                model,
                kernel,
                draws=draws,
                tune=tune,
                chains=chains,
                entropy=entropy_of(random_seed),
                initvals=initvals,
                backend=backend,
                shared_step_size=shared_step_size is None or bool(shared_step_size),
                streamed=streamed,
                save_warmup=save_warmup,
                preflight=preflight,
                display=display,
                max_seconds=max_seconds,
                generate=generate,
            )
        result.attributes["starts"] = [usual] * chains
        try:
            with sigterm_as_ctrl_c():
                for warning in to_say:
                    warnings.warn(warning, stacklevel=2)
                for warning in put_generated_or_say(result, model, generate, progressbar):
                    warnings.warn(warning, stacklevel=2)
                return result if raw else result.to_arviz()
        except BaseException as error:
            carrier = with_partial(error, result)
            if carrier is error:
                raise
            raise carrier from error
    of_many = {"shared_step_size": shared_step_size, "streamed": streamed or None}
    check_options(of_many, "backend='arrays' or 'cupy'", backend)
    check_memory(model, kernel, draws, tune if save_warmup else 0, chains)
    entropy = entropy_of(random_seed, checkpoint)
    display = make_display(progressbar)
    announcer = _Announcer(display)
    compiled.announce.append(announcer)
    store = None
    try:
        # Before any function of the model is called, which may change what it reads.
        parts = None if checkpoint is None else parts_of_run(model, kernel)
        begin = time.perf_counter()
        plan = make_plan(model, kernel, tune, fuse)
        plan.compile(model.name)
        compiled_in, begin = time.perf_counter() - begin, time.perf_counter()
        if announcer.told:
            display.message(f"refhmc: compiled in {compiled_in:.0f} s")
        starts, first, imprecise = checked_starts(model, plan, initvals, chains, chain_generator(entropy, 0), preflight)
        if imprecise is not None:
            warnings.warn(imprecise, PrecisionWarning, stacklevel=2)
        check_groups(model, first, generate, chains, draws)
        jumps = discontinuity.declared(model, kernel, first)
        if jumps is not None:
            warnings.warn(jumps, DiscontinuityWarning, stacklevel=2)
        result = begun(model, kernel, entropy, draws, tune, preflight)
        result.attributes.update(backend=backend, device=f"CPU, Numba {numba.__version__}", shared_step_size=False)
        result.attributes.update(fused=bool(fuse), compilation_time=compiled_in)
        if parts is not None:
            settings = {"tune": int(tune), "chains": int(chains), "entropy": str(entropy), "save_warmup": save_warmup}
            settings["fuse"] = bool(fuse)
            settings["init"] = init
            settings["warmup"] = "" if learned is None else fingerprint({"warmup": learned}).parts["warmup"]
            store = open_checkpoint(checkpoint, model, kernel, parts, starts, tune + draws, settings)
        shared = {"model": model, "kernel": kernel, "entropy": entropy, "draws": draws, "tune": tune}
        shared |= {"keep_warmup": save_warmup, "checkpoint": store, "fuse": fuse, "init": init}
        tasks = [{**shared, "chain": k, "start": None if starts is None else starts[k]} for k in range(chains)]
        if learned is not None:
            begin_from(BlockState(plan.blocks[0]), learned[0])  # raises what the chains would
            tasks = [{**task, "adapted": learned[task["chain"] % len(learned)]} for task in tasks]
        drawing = Drawing(tasks, plan)
    except BaseException:
        if store is not None:
            store.close()
        display.close()
        raise
    finally:
        compiled.announce.remove(announcer)

    def put_together() -> None:
        runs = drawing.runs()
        put_draws(result, kernel, runs, drawing.stopped_by, save_warmup)
        result.attributes["starts"] = [usual if init == "uniform" or run.no_pathfinder else init for run in runs]
        result.attributes["sampling_time"] = time.perf_counter() - begin
        put_posterior(result, model)

    try:
        with sigterm_as_ctrl_c():
            with contextlib.ExitStack() as stack:
                stack.callback(display.close)
                if store is not None:
                    stack.callback(store.close)
                stack.enter_context(one_thread())
                if executor is not None:
                    draw_in_executor(drawing, executor)
                else:
                    draw_in_threads(drawing, min(chains, cores or os.cpu_count() or 1), display, max_seconds)
            put_together()
            runs = drawing.runs()
            to_say = put_warnings(result, model, kernel, runs, jumps, drawing.progress)
            result.warnings[:0] = [] if imprecise is None else [imprecise]
            failure = failure_of(runs)
            try:
                for warning in to_say:
                    warnings.warn(warning, stacklevel=2)
            finally:
                if failure is not None:
                    raise failure
            for warning in put_generated_or_say(result, model, generate, progressbar):
                warnings.warn(warning, stacklevel=2)
            return result if raw else result.to_arviz()
    except BaseException as error:
        carrier = attached(error, result, put_together)
        if carrier is error:
            raise
        raise carrier from error


class _Announcer:
    """Says what is compiled; ``told`` is what it has said."""

    def __init__(self, display: _Silent) -> None:
        self.display = display
        self.told: list[str] = []

    def __call__(self, title: str) -> None:
        if not self.told:
            self.display.message(
                "refhmc: compiling what no earlier run has left (the samplers take some 20 seconds, once)"
            )
        if title not in self.told:  # the parts of a metric have one title
            self.told.append(title)
            self.display.message(f"refhmc: compiling {title}")


def parts_of_run(model: Model, kernel: Any) -> Fingerprint:
    """The parts of the model, and the classes of the kernel, which may be derived from refhmc's."""
    of_model, of_kernel = model.made_of(), fingerprint(classes_in("the kernel", kernel))
    packages = tuple(sorted({*of_model.packages, *of_kernel.packages}))
    return Fingerprint({**of_model.parts, **of_kernel.parts}, packages, of_model.unknown + of_kernel.unknown)


def open_checkpoint(
    folder: str, model: Model, kernel: Any, parts: Fingerprint, starts: Any, total: int, settings: dict
) -> Checkpoint:
    """The checkpoint of this run in ``folder``, new or checked to be the same run. ``parts``: from before the first evaluation.

    Warns of what a checkpoint cannot compare.
    """
    known = settled(parts, parts_of_run(model, kernel))
    settings["compiled"] = (
        model.runs_as_python is None and not numba.config.DISABLE_JIT
    )  # else the last bits may differ
    settings["initvals"] = "random" if starts is None else fingerprint({"initvals": starts}).parts["initvals"]
    checkpoint = Checkpoint(folder, describe_run(model, kernel_as_json(kernel), known, **settings))
    checkpoint.open(total)
    not_compared = [*known.unknown, *(f"{k} ({CHANGES})" for k, v in checkpoint.run["parts"].items() if v == CHANGES)]
    if not_compared:
        text = "A checkpoint cannot tell whether these are as they were when the run began: " + "; ".join(not_compared)
        try:
            warnings.warn(text, CheckpointWarning, stacklevel=3)
        except CheckpointWarning:
            checkpoint.close()
            raise
    return checkpoint

"""Start of a run: check the arguments, compile what it calls, find the starts, and load saved chains."""

from __future__ import annotations

import os
import time
import warnings
from typing import TYPE_CHECKING, Any

import numba

from refhmc.adaptation.adapted import as_stan, begin_from, chains_of, check_dimension, ends_of
from refhmc.compile import compiled
from refhmc.compile.fingerprint import CHANGES, Fingerprint, classes_in, fingerprint, settled
from refhmc.core.signals import held_back
from refhmc.errors import CheckpointWarning, DiscontinuityWarning, PrecisionWarning, _see
from refhmc.models.base import Model
from refhmc.sampling.chains.chain import BlockState, make_plan
from refhmc.sampling.chains.chain_pool import Drawing
from refhmc.sampling.chains.chain_run import ChainTask, chain_generator
from refhmc.sampling.chains.initialization import checked_starts, is_default
from refhmc.sampling.checks import discontinuity
from refhmc.sampling.checks.arguments import check_arguments, check_init, check_kinds, entropy_of, seconds_of
from refhmc.sampling.checks.memory_estimate import bytes_of_values, check_room, room_for
from refhmc.sampling.progress import make_display
from refhmc.sampling.recommended import kernel_for
from refhmc.sampling.results.from_chains import begun, kernel_as_json
from refhmc.sampling.results.generated_quantities import check_groups, chosen
from refhmc.sampling.run import Request, Run
from refhmc.sampling.storage.checkpoint import Checkpoint, describe_run
from refhmc.sampling.storage.store import Store, check_outside_of_stores, states_of

if TYPE_CHECKING:
    from refhmc.sampling.progress import _Silent


def begin_run(
    model: Model,
    kernel: Any,
    *,
    draws: int,
    tune: int,
    chains: int,
    cores: int | None,
    random_seed: Any,
    initvals: Any,
    init: str,
    progressbar: Any,
    save_warmup: bool,
    executor: Any,
    checkpoint: Any,
    store: Any,
    max_seconds: float | None,
    raw: bool,
    preflight: bool,
    fuse: bool,
    warmup: Any,
    generate: Any,
    level: int = 3,
    recover: bool = False,
    force: bool = False,
) -> Run:
    """Start a run in the compiled core; arguments and errors are those of :func:`refhmc.sample`.

    `recover` draws chains with damaged files again. `force` continues a checkpoint of other code. `level` is the stack level of
    the user's call, for warnings.
    """
    flags = {"save_warmup": save_warmup, "raw": raw, "preflight": preflight}
    check_kinds(progressbar, executor, checkpoint, store, **flags)
    kernel, initvals, usual, learned = checked(
        model, kernel, draws, tune, chains, cores, max_seconds, init, initvals, warmup, generate
    )
    if store is not None and generate not in (None, False):
        raise ValueError(
            f"generate must be None or False with store; got {generate!r}. Call refhmc.generate(model, result) after the run."
        )
    workers = min(chains, cores or os.cpu_count() or 1)

    def check_memory(values: int | None = None, generated: int = 0) -> None:
        room = room_for(
            *(model, kernel, draws, tune, chains),
            save_warmup=save_warmup,
            workers=workers,
            store=store is not None,
            values=values,
            generated=generated,
        )
        check_room(room, stored=store is not None, kept_warmup=save_warmup)

    check_memory()  # before the matrices of a metric are allocated
    if checkpoint is not None:
        check_outside_of_stores(checkpoint)
    folder = checkpoint if store is None else states_of(store)
    entropy = entropy_of(random_seed, folder)
    display = make_display(progressbar)
    announcer = _Announcer(display)
    compiled.announce.append(announcer)
    saving = None
    try:
        # Before any function of the model is called, which may change what it reads.
        parts = None if folder is None else parts_of_run(model, kernel)
        begin = time.perf_counter()
        plan = make_plan(model, kernel, tune, fuse)
        plan.compile(model.name)
        compiled_in, begin = time.perf_counter() - begin, time.perf_counter()
        starts, first, imprecise = checked_starts(model, plan, initvals, chains, chain_generator(entropy, 0), preflight)
        if imprecise is not None:
            warnings.warn(imprecise, PrecisionWarning, stacklevel=level)
        groups = check_groups(model, first, generate if store is None else False, chains, draws)
        check_memory(bytes_of_values(model.constrain(first)), groups)
        jumps = discontinuity.declared(model, kernel, first)
        if jumps is not None:
            warnings.warn(jumps, DiscontinuityWarning, stacklevel=level)
        result = begun(model, kernel, entropy, draws, tune, preflight)
        result.attributes.update(backend="numba", device=f"CPU, Numba {numba.__version__}", shared_step_size=False)
        result.attributes.update(fused=bool(fuse), compilation_time=compiled_in)
        if parts is not None:
            settings = {
                "draws": int(draws),
                "tune": int(tune),
                "chains": int(chains),
                "entropy": str(entropy),
                "save_warmup": save_warmup,
            }
            settings["fuse"] = bool(fuse)
            settings["init"] = init
            settings["warmup"] = "" if learned is None else fingerprint({"warmup": learned}).parts["warmup"]
            with held_back():  # so that an interrupt releases the folder
                saving = open_checkpoint(folder, model, kernel, parts, starts, settings, force)
            result.attributes["forced"] = saving.forced
        each = [None] * chains if starts is None else list(starts)
        tasks = [
            ChainTask(model, kernel, k, entropy, each[k], draws, tune, save_warmup, fuse, init) for k in range(chains)
        ]
        if is_default(model, starts):
            tasks = [task._replace(free_start=True) for task in tasks]
        if learned is not None:
            for adapted in learned[:chains]:
                begin_from(BlockState(plan.blocks[0]), adapted)  # raises the errors of the chains here
            tasks = [task._replace(adapted=learned[task.chain % len(learned)]) for task in tasks]
        stored = None
        if store is not None:
            kept = tune if save_warmup else 0
            stored = Store(store, model, kernel, first, plan.n_stats, chains, draws, tune, kept)
        drawing = Drawing(tasks, plan, workers, saving, stored, recover=recover)
        # An error before this point leaves the number of draws in the folder unchanged.
        if saving is not None:
            saving.keep_draws()
        if stored is not None:
            stored.make_room()
        request = Request(
            model,
            kernel,
            usual,
            init,
            save_warmup,
            raw,
            generate,
            progressbar,
            jumps,
            imprecise,
            executor,
            workers,
            seconds_of(max_seconds),
        )
        return Run(request, result, drawing, display, saving, stored)
    except BaseException:
        if saving is not None:
            saving.close()
        display.close()
        raise
    finally:
        compiled.announce.remove(announcer)


def checked(
    model: Model,
    kernel: Any,
    draws: int,
    tune: int,
    chains: int,
    cores: int | None,
    max_seconds: float | None,
    init: str,
    initvals: Any,
    warmup: Any,
    generate: Any,
) -> tuple[Any, Any, str, Any]:
    """Check the arguments; return kernel, starts, the attribute ``starts``, and the state of an earlier warm-up or None.

    Raises the first errors of :func:`refhmc.sample`.
    """
    kernel = kernel_for(model, kernel)
    check_arguments(model, kernel, draws, tune, chains, cores, max_seconds)
    check_init(init, model)
    chosen(model, generate)
    learned = None
    usual = "initvals" if initvals is not None else "uniform" if model.initial is None else "model"
    if isinstance(warmup, str) and warmup == "stan":
        kernel = as_stan(kernel)
    elif warmup is not None:
        learned = chains_of(warmup)
        check_dimension(warmup, model.dim)
        if initvals is None:
            initvals, usual = ends_of(warmup, chains), "warmup"
    return kernel, initvals, usual, learned


class _Announcer:
    """Report compilation in at most two lines: one for the model, one for refhmc's own functions."""

    def __init__(self, display: _Silent) -> None:
        self.display = display
        self.shown: set[str] = set()

    def __call__(self, title: str) -> None:
        of_model = " model " in title and "fused" not in title
        text = "Compiling the model (first run only)" if of_model else "Compiling refhmc (about 20 s, first run only)"
        if text not in self.shown:
            self.shown.add(text)
            self.display.message(text)


def parts_of_run(model: Model, kernel: Any) -> Fingerprint:
    """Return the fingerprint of the model and of the kernel's classes, which may be subclasses of refhmc's."""
    of_model, of_kernel = model.made_of(), fingerprint(classes_in("the kernel", kernel))
    packages = tuple(sorted({*of_model.packages, *of_kernel.packages}))
    return Fingerprint({**of_model.parts, **of_kernel.parts}, packages, of_model.unknown + of_kernel.unknown)


def open_checkpoint(
    folder: Any, model: Model, kernel: Any, parts: Fingerprint, starts: Any, settings: dict, force: bool
) -> Checkpoint:
    """Return the checkpoint of this run in `folder`, new or checked to be of the same run.

    `parts` is the fingerprint from before the first evaluation. Warns of parts that cannot be compared.
    """
    known = settled(parts, parts_of_run(model, kernel))
    settings["compiled"] = (
        model.runs_as_python is None and not numba.config.DISABLE_JIT
    )  # else the last bits may differ
    settings["initvals"] = "random" if starts is None else fingerprint({"initvals": starts}).parts["initvals"]
    checkpoint = Checkpoint(folder, describe_run(model, kernel_as_json(kernel), known, **settings), force=force)
    checkpoint.open(starts)
    not_compared = [*known.unknown, *(f"{k} ({CHANGES})" for k, v in checkpoint.run["parts"].items() if v == CHANGES)]
    if not_compared:
        text = (
            f"The checkpoint cannot compare these parts of the model with a later run: {'; '.join(not_compared)}. If one of "
            "them changes, the run continues with another model without notice. Make sure that they are the same when you "
            f"resume. {_see('checkpoints')}"
        )
        try:
            warnings.warn(text, CheckpointWarning, stacklevel=4)
        except CheckpointWarning:
            checkpoint.close()
            raise
    return checkpoint

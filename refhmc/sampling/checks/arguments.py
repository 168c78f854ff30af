"""Checks of the arguments of ``sample``, which become a :class:`RunSpec`; errors name the argument and its value."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

import numpy as np

from refhmc.adaptation.adapted import as_stan, chains_of, check_dimension, ends_of
from refhmc.backends import Arrays, Numba
from refhmc.core.arguments import flag, is_number
from refhmc.kernels.blocks import blocks_of
from refhmc.kernels.options import AnyKernel, check_kernel
from refhmc.models.base import Model
from refhmc.sampling.chains.executors import is_executor
from refhmc.sampling.chains.initialization import Initvals
from refhmc.sampling.checks.array_kernels import kernel_on_arrays
from refhmc.sampling.checks.seed import Seed, entropy_of
from refhmc.sampling.progress import ProgressReport
from refhmc.sampling.recommended import kernel_for
from refhmc.sampling.results.generated_quantities import GroupChoice, chosen
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.files import StrPath
from refhmc.sampling.storage.store import check_outside_of_stores, states_of

INITS = ("uniform", "pathfinder")


def run_spec(
    model: Model,
    kernel: AnyKernel | str | None,
    *,
    draws: int,
    tune: int,
    chains: int,
    cores: int | None,
    random_seed: Seed | None,
    initvals: Initvals | None,
    init: str,
    progressbar: bool | Callable[[ProgressReport], None],
    save_warmup: bool,
    executor: object,
    backend: Numba | Arrays,
    checkpoint: StrPath | None,
    store: StrPath | None,
    max_seconds: float | None,
    raw: bool,
    preflight: bool,
    warmup: object,
    generate: GroupChoice | None,
    recover: bool = False,
    force: bool = False,
) -> RunSpec:
    """Check the arguments of :func:`refhmc.sample` and return them as a record. Raises TypeError or ValueError."""
    check_kinds(progressbar, executor, checkpoint, store, save_warmup=save_warmup, raw=raw, preflight=preflight)
    found = kernel_for(model, kernel)
    check_arguments(model, found, draws, tune, chains, cores, max_seconds)
    check_init(init, model)
    chosen(model, generate)
    learned = None
    start_origin = "initvals" if initvals is not None else "uniform" if model.initial is None else "model"
    if isinstance(warmup, str) and warmup == "stan":
        found = as_stan(found)
    elif warmup is not None:
        learned = chains_of(warmup, getattr(kernel, "metric", None))
        check_dimension(warmup, model.dim)
        if initvals is None:
            initvals, start_origin = ends_of(warmup, chains), "warmup"
    if isinstance(backend, Arrays):
        of_numba = {"cores": cores, "executor": executor, "checkpoint": checkpoint, "store": store, "warmup": learned}
        check_options({**of_numba, "init='pathfinder'": init == "pathfinder" or None}, backend.name)
        found = kernel_on_arrays(found)
    if store is not None and generate not in (None, False):
        raise ValueError(
            f"generate must be None or False with store; got {generate!r}. Call refhmc.generate(model, result) after the run."
        )
    if checkpoint is not None:
        check_outside_of_stores(checkpoint)
    folder = checkpoint if store is None else states_of(store)
    return RunSpec(
        model=model,
        kernel=found,
        draws=int(draws),
        tune=int(tune),
        chains=int(chains),
        workers=int(min(chains, cores or os.cpu_count() or 1)),
        entropy=entropy_of(random_seed, folder),
        initvals=initvals,
        init=init,
        start_origin=start_origin,
        learned=learned,
        progressbar=progressbar,
        save_warmup=save_warmup,
        executor=executor,
        backend=backend,
        folder=folder,
        store=store,
        max_seconds=seconds_of(max_seconds),
        raw=raw,
        preflight=preflight,
        generate=False if store is not None else generate,
        recover=recover,
        force=force,
    )


def check_arguments(
    model: Model, kernel: AnyKernel, draws: int, tune: int, chains: int, cores: int | None, max_seconds: float | None
) -> None:
    """Raise TypeError or ValueError, with name and value, for an invalid argument."""
    if not isinstance(model, Model):
        raise TypeError(
            "model must be a refhmc.Model or an instance of a class in refhmc.models; got "
            f"{model.__name__ if isinstance(model, type) else type(model).__name__}."
        )
    for each in blocks_of(kernel).values():
        check_kernel(each, "kernel")
    for name, value, least in (("draws", draws, 0), ("tune", tune, 0), ("chains", chains, 1), ("cores", cores, 1)):
        if name == "cores" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be an integer; got {value!r}.")
        if value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}.")
    if max_seconds is not None and not (is_number(max_seconds) and max_seconds > 0):
        raise ValueError(f"max_seconds must be a positive number; got {max_seconds!r}. Use None for no limit.")


def seconds_of(max_seconds: float | None) -> float | None:
    """Return `max_seconds` as a float; None (no limit) for inf and for more than a thread can wait (centuries)."""
    if max_seconds is None or float(max_seconds) > threading.TIMEOUT_MAX:
        return None
    return float(max_seconds)


def check_kinds(progressbar: object, executor: object, checkpoint: object, store: object, **flags: object) -> None:
    """Raise TypeError for arguments of the wrong kind, ValueError for both a checkpoint and a store."""
    for name, value in flags.items():
        flag(name, value)
    if not callable(progressbar):
        flag("progressbar", progressbar)
    if executor is not None and not (is_executor(executor) or callable(executor)):
        raise TypeError(
            "executor must have a method submit or apply_async, or be a function that returns such an object; got "
            f"{executor!r}. Use for example concurrent.futures.ProcessPoolExecutor."
        )
    for name, folder in {"checkpoint": checkpoint, "store": store}.items():
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise TypeError(f"{name} must be the path of a folder; got {folder!r}.")
        if folder is not None and not os.fspath(folder):
            raise ValueError(f"{name} must be the path of a folder; got {folder!r}. Use '.' for the current folder.")
    if checkpoint is not None and store is not None:
        raise ValueError(
            "checkpoint and store cannot be used together; got both. Use store alone, which is also a checkpoint."
        )


def check_init(init: object, model: Model) -> None:
    """Raise ValueError for an unknown `init`, and for Pathfinder with discontinuous coordinates."""
    if not (isinstance(init, str) and init in INITS):
        raise ValueError(
            f"init must be 'uniform' or 'pathfinder'; got {init!r}. Give positions and values as initvals."
        )
    if init == "pathfinder" and len(model.discontinuous):
        names = ", ".join(model.names[j] for j in model.discontinuous[:5])
        raise ValueError(
            f"init='pathfinder' needs a model without discontinuous coordinates; got {model.name!r} with {names}. Give "
            "initvals."
        )


def check_options(given: Mapping[str, object], backend: str) -> None:
    """Raise ValueError if an option of the compiled core is given with another backend."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} needs backend='numba'; got backend={backend!r}. Remove {name}, or change the backend."
            )

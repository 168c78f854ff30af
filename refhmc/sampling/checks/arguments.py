"""Checks of the arguments of ``sample``; errors name the argument and its value."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refhmc.adaptation.adapted import as_stan, chains_of, check_dimension, ends_of
from refhmc.backends import Arrays
from refhmc.batch.draw import TRANSITIONS
from refhmc.core.arguments import flag, is_number
from refhmc.core.other_names import IN_OTHER_WAYS, OF_SAMPLE, our_name
from refhmc.core.registry import options
from refhmc.integrators.defaults import resolve
from refhmc.kernels import DHMC, HMC, KERNELS, NUTS
from refhmc.kernels.blocks import blocks_of, is_tempered
from refhmc.kernels.options import AnyKernel, Kernel, check_kernel, named
from refhmc.metrics import Diagonal
from refhmc.metrics.base import FROM_PAIRS, NOTHING
from refhmc.metrics.low_rank import LARGEST
from refhmc.models.base import Model
from refhmc.sampling.chains.executors import is_executor
from refhmc.sampling.checks.seed import entropy_of
from refhmc.sampling.results.generated_quantities import chosen
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.store import check_outside_of_stores, states_of
from refhmc.sampling.until import Until

INITS = ("uniform", "pathfinder")
TUNE, TUNE_PER_COORDINATE = 1000, 2
ALIKE = 0.75  # least ratio of difflib for a suggestion; "thin" and "chains" have 0.6


def checked(spec: RunSpec) -> RunSpec:
    """Check the arguments of :func:`refhmc.sample`, and return them with what follows from them.

    Raises TypeError or ValueError.
    """
    model, initvals, backend, store, warmup = spec.model, spec.initvals, spec.backend, spec.store, spec.warmup
    check_kinds(spec)
    kernel = kernel_for(model, spec.kernel)
    if spec.kernel is None and isinstance(backend, Arrays) and getattr(model, "fisher_border", None) is not None:
        kernel = NUTS()  # the recommended metric is a full matrix on arrays
    check_arguments(spec, kernel)
    check_init(spec.init, model)
    chosen(model, spec.generate)
    learned = None
    start_origin = "initvals" if initvals is not None else "uniform" if model.initial is None else "model"
    if isinstance(warmup, str) and warmup == "stan":
        kernel = as_stan(kernel)
    elif warmup is not None:
        if is_tempered(kernel):
            raise ValueError(
                'warmup must be None or "stan" for Tempered, which adapts at each temperature; got a result. Give initvals.'
            )
        learned = chains_of(warmup, getattr(spec.kernel, "metric", None))
        check_dimension(warmup, model.dim)
        if initvals is None:
            initvals, start_origin = ends_of(warmup, spec.chains), "warmup"
    if isinstance(backend, Arrays):
        of_numba = {name: getattr(spec, name) for name in ("cores", "executor", "checkpoint", "store")}
        of_numba |= {"warmup": learned, "init='pathfinder'": spec.init == "pathfinder" or None}
        check_options(of_numba, backend.name)
        kernel = kernel_on_arrays(kernel)
    tune = default_tune(model.dim, kernel, learned is not None) if spec.tune is None else int(spec.tune)
    if store is not None and spec.generate not in (None, False):
        raise ValueError(
            f"generate must be None or False with store; got {spec.generate!r}. Call refhmc.generate(model, result) after the "
            "run."
        )
    if spec.checkpoint is not None:
        check_outside_of_stores(spec.checkpoint)
    folder = spec.checkpoint if store is None else states_of(store)
    return spec._replace(
        kernel=kernel,
        draws=int(spec.draws if spec.until is None else spec.until.max_draws),
        first_check=int(spec.draws),
        tune=tune,
        chains=int(spec.chains),
        initvals=initvals,
        start_origin=start_origin,
        warmup=None,  # the result need not be kept
        learned=learned,
        folder=folder,
        workers=int(min(spec.chains, spec.cores or os.cpu_count() or 1)),
        entropy=entropy_of(spec.random_seed, folder),
        max_seconds=seconds_of(spec.max_seconds),
        generate=False if store is not None else spec.generate,
    )


def default_tune(dim: int, kernel: Any, learned: bool) -> int:
    """Return the number of warm-up iterations: more than 1,000 if cheap ones can show all directions to the metric."""
    if learned or not getattr(kernel, "learns_length", False):
        return TUNE
    metric, _ = resolve(kernel.metric, kernel.integrator)
    return max(TUNE, min(TUNE_PER_COORDINATE * dim, LARGEST // dim)) if metric.learns == FROM_PAIRS else TUNE


def check_arguments(spec: RunSpec, kernel: AnyKernel) -> None:
    """Raise TypeError or ValueError, with name and value, for an invalid argument."""
    model, max_seconds = spec.model, spec.max_seconds
    if not isinstance(model, Model):
        raise TypeError(
            "model must be a refhmc.Model or an instance of a class in refhmc.models; got "
            f"{model.__name__ if isinstance(model, type) else type(model).__name__}."
        )
    for each in blocks_of(kernel).values():
        check_kernel(each, "kernel")
    for name, least in {"draws": 0, "tune": 0, "chains": 1, "cores": 1}.items():
        value = getattr(spec, name)
        if name in ("cores", "tune") and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be an integer; got {value!r}.")
        if value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}.")
    check_rule(spec)
    if max_seconds is not None and not (is_number(max_seconds) and max_seconds > 0):
        raise ValueError(f"max_seconds must be a positive number; got {max_seconds!r}. Use None for no limit.")


def check_rule(spec: RunSpec) -> None:
    """Raise TypeError or ValueError if the stopping rule does not fit the run."""
    rule = spec.until
    if rule is None:
        return
    if not isinstance(rule, Until):
        raise TypeError(f"until must be a refhmc.Until; got {rule!r}. Use for example refhmc.Until(ess=400).")
    if rule.max_draws < spec.draws:
        raise ValueError(f"max_draws of until must be at least draws, {spec.draws}; got {rule.max_draws}.")


def seconds_of(max_seconds: float | None) -> float | None:
    """Return `max_seconds` as a float; None (no limit) for inf and for more than a thread can wait (centuries)."""
    if max_seconds is None or float(max_seconds) > threading.TIMEOUT_MAX:
        return None
    return float(max_seconds)


def check_kinds(spec: RunSpec) -> None:
    """Raise TypeError for arguments of the wrong kind, ValueError for both a checkpoint and a store."""
    executor, folders = spec.executor, {"checkpoint": spec.checkpoint, "store": spec.store}
    for name in ("save_warmup", "raw", "preflight"):
        flag(name, getattr(spec, name))
    if not callable(spec.progressbar):
        flag("progressbar", spec.progressbar)
    if executor is not None and not (is_executor(executor) or callable(executor)):
        raise TypeError(
            "executor must have a method submit or apply_async, or be a function that returns such an object; got "
            f"{executor!r}. Use for example concurrent.futures.ProcessPoolExecutor."
        )
    for name, folder in folders.items():
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise TypeError(f"{name} must be the path of a folder; got {folder!r}.")
        if folder is not None and not os.fspath(folder):
            raise ValueError(f"{name} must be the path of a folder; got {folder!r}. Use '.' for the current folder.")
    if None not in folders.values():
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


def kernel_on_arrays(kernel: Any) -> Kernel:
    """Return the kernel with ``Diagonal()`` for "auto", whose adaptation needs backend "numba".

    Raises TypeError or ValueError for a kernel, an integrator or a metric that array backends cannot run.
    """
    name = getattr(kernel, "name", type(kernel).__name__)
    if name not in TRANSITIONS:
        raise TypeError(
            f"kernel must be one of {', '.join(map(str.upper, TRANSITIONS))} with backend='arrays' or 'cupy'; got "
            f"{type(kernel).__name__}. Use backend='numba' for it."
        )
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    if not hasattr(getattr(integrator, "base", integrator), "on_arrays"):
        raise ValueError(
            f"integrator must have an array implementation; got {type(integrator).__name__}. Use backend='numba' for it."
        )
    if metric.learns != NOTHING and not getattr(metric, "learned_values", ()):
        raise ValueError(
            f"metric must name in its attribute learned_values what warm-up learns, for this backend; got "
            f"{type(metric).__name__}, which names nothing. Define it (docs/how_to_add.md), or use backend='numba'."
        )
    if metric.learns != FROM_PAIRS or getattr(kernel, "jumping", False):
        return kernel
    if kernel.metric is None:
        return dataclasses.replace(kernel, metric=Diagonal())
    raise ValueError(
        "metric must be Diagonal(), Dense() or a metric with given values for this backend; got "
        f"{type(kernel.metric).__name__}, which is adapted from gradients. Use backend='numba' for it."
    )


def refuse_unknown(unknown: Mapping[str, object], function: Callable) -> None:
    """Raise TypeError for the first unknown argument."""
    for name in unknown:
        raise TypeError(f"sample() has no argument {name!r}. {advice(name, function)}")


def advice(name: str, function: Callable) -> str:
    """Return a sentence about what to write instead."""
    if name.lower() in IN_OTHER_WAYS:
        words = IN_OTHER_WAYS[name.lower()].rstrip(".")
        return f"{words[0].upper()}{words[1:]}."
    ours = our_name(name)
    if ours in OF_SAMPLE and ours != name:
        return f"Use {ours}."
    takers = [kind for kind in KERNELS.values() if ours in options(kind)]
    if takers:
        first = next((kind for kind in (NUTS, HMC) if kind in takers), takers[0])
        names = ", ".join(kind.__name__ for kind in takers)
        return (
            f"Pass {ours} to the kernel, as in sample(model, {first.__name__}({ours}=...)). Kernels with it: {names}."
        )
    ours_too = [each for each in inspect.signature(function).parameters if each != "unknown"]
    near = difflib.get_close_matches(name, ours_too, 1, ALIKE)
    return f"Did you mean {near[0]}?" if near else f"It has {', '.join(ours_too)}."


def kernel_for(model: Model, kernel: AnyKernel | str | None) -> AnyKernel:
    """Return `kernel`, the kernel of that name, or for None the model's; raises ValueError for an unknown name."""
    found = named(kernel, "kernel", KERNELS) if isinstance(kernel, str) else kernel
    return recommended_kernel(model) if found is None else found


def recommended_kernel(model: Model) -> AnyKernel:
    """Return the kernel of ``model.recommended``, else ``DHMC()`` for discontinuous coordinates, else ``NUTS()``."""
    advice = getattr(model, "recommended", None)
    if advice is not None and advice.kernel:
        metric: dict[str, object] = {"metric": advice.metric} if advice.metric else {}
        return KERNELS[advice.kernel](**metric, **dict(advice.options))
    return DHMC() if len(getattr(model, "discontinuous", ())) else NUTS()

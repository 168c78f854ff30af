"""``resume``: a run goes on from its folder, which says all of it that is not code."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.errors import CheckpointError
from refhmc.sampling.assembly import kernel_as_json
from refhmc.sampling.begin import begin_run
from refhmc.sampling.checkpoint import NOT_RECOVERED, STARTS, STATES, read_run, refuse_links
from refhmc.sampling.files import read_arrays
from refhmc.sampling.initialization import given_starts

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.result import Result


def resume(
    path: Any,
    model: Model | None = None,
    kernel: Any = None,
    *,
    draws: int | None = None,
    recover: bool = False,
    force: bool = False,
    cores: int | None = None,
    progressbar: Any = True,
    executor: Any = None,
    max_seconds: float | None = None,
    raw: bool = False,
    preflight: bool = True,
    warmup: Any = None,
    generate: Any = None,
) -> Any | Result:
    """Go on with a run that was saved, bit for bit as if it had not been stopped, or give it more draws.

    Parameters
    ----------
    path : the folder that was ``checkpoint`` or ``store`` of :func:`refhmc.sample`.
    model : as it was. It may be left out where it is one of refhmc's own with its default arguments; nothing of a model is
        read from the folder. kernel : as it was; it may be left out where it, its metric and its integrator are refhmc's own.
    draws : of each chain, from the beginning; default as many as were asked for.
    recover : chains whose files are damaged are drawn again from their starts and streams, with a warning, and so are what they
        were; without it a damaged file is an error. ``run.json``, which says which run it is, cannot be recovered.
    force : go on though the code of the model or a version has changed since; the result's attribute ``forced`` says what. The
        draws then are of two codes. Kernel, warm-up, seed and number of chains must be as they were.
    warmup : as it was, if it was a result. The other arguments are those of ``sample``.

    Raises
    ------
    CheckpointError : there is no run at ``path``, a file is damaged or of a later format, or this is another run: what
        differs is said. And what ``sample`` raises.
    """
    folder, stored, run = saved_run(path)
    model = model if model is not None else own_model(run, folder)
    kernel = kernel if kernel is not None else own_kernel(run, folder)
    if draws is None and run.get("draws") is None:  # of an older format
        raise CheckpointError(f"{folder} does not say how many draws were asked for: give draws=")
    asked = begin_run(
        model,
        kernel,
        draws=int(run["draws"]) if draws is None else draws,
        tune=run["tune"],
        chains=run["chains"],
        cores=cores,
        random_seed=int(run["entropy"]),
        initvals=saved_starts(folder / STATES if stored else folder, model, run["chains"]),
        init=run["init"],
        progressbar=progressbar,
        save_warmup=run["save_warmup"],
        executor=executor,
        checkpoint=None if stored else path,
        store=path if stored else None,
        max_seconds=max_seconds,
        raw=raw,
        preflight=preflight,
        fuse=run["fuse"],
        warmup=warmup,
        generate=generate,
        recover=recover,
        force=force,
    )
    return asked._wait()


def saved_run(path: Any) -> tuple[pathlib.Path, bool, dict[str, Any]]:
    """The folder, whether it is a store, and what its ``run.json`` says."""
    folder = pathlib.Path(path)
    if folder.is_dir():
        refuse_links(folder)
    stored = (folder / STATES / "run.json").exists()
    run = read_run(folder / STATES if stored else folder)
    if run is None:
        for place in (folder / STATES, folder):
            if any(place.glob("chain-*.npz")):
                raise CheckpointError(f"{place / 'run.json'} is missing, though chains are there. {NOT_RECOVERED}")
        raise CheckpointError(f"{folder} has neither run.json nor {STATES}/run.json: no run was saved there")
    return folder, stored, run


def model_of(path: Any) -> Model:
    """The model of a saved run, if it is one of refhmc's own with its default arguments; else a CheckpointError."""
    folder, _, run = saved_run(path)
    return own_model(run, folder)


def saved_starts(folder: pathlib.Path, model: Model, chains: int) -> np.ndarray | None:
    """Where chains began, if that was given; None where the model says so itself."""
    path = folder / STARTS
    if not path.exists():
        return None
    try:
        starts = read_arrays(path)["starts"]
    except Exception as error:
        raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    own = given_starts(model, None, chains)
    return None if own is not None and np.array_equal(own, starts) else starts


def own_model(run: dict[str, Any], folder: Any) -> Model:
    """One of refhmc's models with its default arguments, by its name. (Whether it is the run's is seen later.)"""
    from refhmc import models

    known = models.by_name()
    likely = str(run["model"]).replace(" ", "-")
    for name in sorted(known, key=lambda name: name != likely):
        model = known[name]()
        if model.name == run["model"]:
            return model
    raise CheckpointError(f"{folder} is of the model {run['model']!r}, which it does not hold: give it as model=")


def own_kernel(run: dict[str, Any], folder: Any) -> Any:
    """The kernel that ``run.json`` describes, of refhmc's own kernels, metrics and integrators."""
    try:
        kernel = made_of(json.loads(run["kernel"]), "kernel")
        same = kernel_as_json(kernel) == run["kernel"]
    except (KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise CheckpointError(
            f"{folder} is of the kernel {run['kernel']}, which is not refhmc's own: give it as kernel="
        )
    return kernel


def made_of(said: Any, name: str = "") -> Any:
    """What :func:`refhmc.sampling.assembly.kernel_as_json` has made a part of."""
    from refhmc import integrators, kernels, metrics

    if isinstance(said, dict):
        places = (kernels, metrics, integrators)
        kind: Any = {name: getattr(each, name) for each in places for name in each.__all__}[said["name"]]
        return kind(**{key: made_of(value, key) for key, value in said.items() if key != "name"})
    if name == "blocks":
        return {tuple(block) if isinstance(block, list) else block: made_of(each) for block, each in said}
    if name == "decay":  # (b, gamma), which are no array
        return said if said is None else tuple(said)
    return np.array(said) if isinstance(said, list) else said

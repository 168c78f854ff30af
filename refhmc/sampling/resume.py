"""Resume a run from its folder, which describes everything but code."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.errors import CheckpointError
from refhmc.models.recipe import model_of_recipe
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
    """Continue a saved run, bit for bit as if it had not been stopped, or give it more draws.

    Parameters
    ----------
    path : path-like
        The folder that was ``checkpoint`` or ``store`` of :func:`refhmc.sample`.
    model : Model, optional
        The run's model. It can be omitted for refhmc's own models if their arguments are numbers, strings and arrays of at
        most 100,000 numbers: ``run.json`` holds the constructor and its arguments. No code is read from the folder.
    kernel : kernel, optional
        The run's kernel. It can be omitted if the kernel, its metric and its integrator are refhmc's own.
    draws : int, optional
        Draws per chain, counted from the beginning. Defaults to the number that was asked for.
    recover : bool, default False
        Draw chains whose files are damaged or invalid again, from their starts and random streams, with a warning; they
        become what they were. ``run.json``, which identifies the run, cannot be recovered.
    force : bool, default False
        Continue although the code of the model or a version has changed. The attribute ``forced`` of the result names the
        changes. Kernel, warm-up, seed and number of chains must agree.
    cores, progressbar, executor, max_seconds, raw, preflight, generate
        As in :func:`refhmc.sample`.
    warmup : Result, optional
        The result that the run's warm-up began from, if there was one.

    Returns
    -------
    InferenceData, DataTree or Result
        As :func:`refhmc.sample` returns it.

    Raises
    ------
    CheckpointError
        There is no run at ``path``; it is of another run (the differences are listed); a file is damaged, invalid, a link,
        or of a later format. A folder from a stranger may be opened: see ``docs/reliability.md``.
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
    """Return one of refhmc's models by the recipe in ``run.json`` or, of an older run, by its name.

    Whether it is the run's is checked later. Raises CheckpointError if refhmc cannot make it.
    """
    from refhmc import models

    if run.get("recipe") is not None:
        try:
            return model_of_recipe(run["recipe"])
        except Exception as error:
            raise CheckpointError(f"the recipe of the model in {folder} is not valid: {error}") from error
    for make in models.by_name().values():
        model: Model = make()
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

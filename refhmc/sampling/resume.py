"""Resume a run from its folder, which describes everything but code."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.backends import Numba
from refhmc.errors import CheckpointError
from refhmc.kernels.options import AnyKernel
from refhmc.models.base import Model
from refhmc.models.recipe import model_of_recipe
from refhmc.sampling.begin import begin
from refhmc.sampling.chains.initialization import given_starts
from refhmc.sampling.checks.arguments import checked, kernel_for
from refhmc.sampling.progress import ProgressReport
from refhmc.sampling.results.generated_quantities import GroupChoice
from refhmc.sampling.results.result import Result
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.checkpoint import NOT_RECOVERED, STARTS, STATES, read_run, refuse_links
from refhmc.sampling.storage.files import StrPath, read_arrays
from refhmc.sampling.storage.kernel_json import kernel_from_json
from refhmc.sampling.until import Until


def resume(
    path: StrPath,
    model: Model | None = None,
    kernel: AnyKernel | str | None = None,
    *,
    draws: int | None = None,
    recover: bool = False,
    force: bool = False,
    cores: int | None = None,
    progressbar: bool | Callable[[ProgressReport], None] = True,
    executor: object = None,
    max_seconds: float | None = None,
    until: Until | None = None,
    raw: bool = False,
    preflight: bool = True,
    warmup: object = None,
    generate: GroupChoice | None = None,
) -> Any | Result:
    """Continue a saved run, bit for bit as if it had not been stopped, or give it more draws.

    Parameters
    ----------
    path : path-like
        The folder that was passed as ``checkpoint`` or ``store`` to :func:`refhmc.sample`.
    model : Model, optional
        The run's model. It can be omitted for refhmc's own models if their arguments are numbers, strings and arrays of at
        most 100,000 numbers: ``run.json`` holds the constructor and its arguments. No code is read from the folder.
    kernel : kernel, optional
        The run's kernel. It can be omitted if the kernel, its metric and its integrator are refhmc's own.
    draws : int, optional
        Draws per chain, counted from the beginning. Defaults to the number, and the rule, that the run was started with.
    recover : bool, default False
        Draw chains with damaged or invalid files again, with a warning. They use their own starts and random streams, so that
        the draws are the same. ``run.json``, which identifies the run, cannot be recovered.
    force : bool, default False
        Continue although the code of the model or a version has changed. The attribute ``forced`` of the result names the
        changes. Kernel, warm-up, seed and number of chains must agree.
    cores : int, optional
        Number of chains that run at a time. Defaults to the number of processors.
    progressbar : bool or callable, default True
        As in :func:`refhmc.sample`.
    executor : object or callable, optional
        Executor that runs the chains, as in :func:`refhmc.sample`.
    max_seconds : float, optional
        Time limit in seconds for this session.
    until : Until, optional
        Stopping rule, as in :func:`refhmc.sample`. It is checked on the draws from the beginning.
    raw : bool, default False
        Return a :class:`refhmc.Result` instead of an ArviZ object.
    preflight : bool, default True
        Check the derivatives before sampling.
    warmup : Result, InferenceData or DataTree, optional
        The earlier result from which warm-up of the run started, if there was one.
    generate : bool, str or sequence of str, optional
        Groups to generate after sampling, as in :func:`refhmc.sample`.

    Returns
    -------
    InferenceData, DataTree or Result
        As :func:`refhmc.sample` returns it.

    Raises
    ------
    CheckpointError
        If there is no run at `path`, if it belongs to another run (the differences are listed), or if a file is damaged,
        invalid, a link, or of a later format.

    See Also
    --------
    sample : Start a run with ``checkpoint`` or ``store``.

    Notes
    -----
    It is safe to open a folder that you received from others: see ``docs/reliability.md``.

    Examples
    --------
    >>> import refhmc, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> options = {"random_seed": 1, "progressbar": False, "raw": True}
    >>> result = refhmc.sample(refhmc.models.Funnel(2), "hmc", draws=50, tune=50, checkpoint=folder, **options)
    >>> refhmc.resume(folder, draws=80, progressbar=False, raw=True).draws.shape
    (4, 80, 3)
    """
    folder, stored, run = saved_run(path)
    model = model if model is not None else own_model(run, folder)
    kernel = kernel_for(model, kernel) if kernel is not None else own_kernel(run, folder)
    if draws is None and until is None:
        until = saved_rule(run, folder)
    spec = RunSpec(
        model,
        kernel,
        draws=run["draws"] if draws is None else draws,
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
        until=until,
        raw=raw,
        preflight=preflight,
        backend=Numba(fuse=run["fuse"]),
        warmup=warmup,
        generate=generate,
        recover=recover,
        force=force,
    )
    return begin(checked(spec))._wait()


def saved_run(path: StrPath) -> tuple[pathlib.Path, bool, dict[str, Any]]:
    """Return the folder, whether it is a store, and the content of its ``run.json``."""
    folder = pathlib.Path(path)
    if folder.is_dir():
        refuse_links(folder)
    stored = (folder / STATES / "run.json").exists()
    run = read_run(folder / STATES if stored else folder)
    if run is None:
        for place in (folder / STATES, folder):
            if any(place.glob("chain-*.npz")):
                raise CheckpointError(f"{place / 'run.json'} is missing, but there are chains. {NOT_RECOVERED}")
        raise CheckpointError(
            f"path must be the folder of a saved run; got {folder}, which has neither run.json nor {STATES}/run.json."
        )
    return folder, stored, run


def model_of(path: StrPath) -> Model:
    """Return the model of a saved run if it is one of refhmc's own; raises CheckpointError otherwise."""
    folder, _, run = saved_run(path)
    return own_model(run, folder)


def saved_starts(folder: pathlib.Path, model: Model, chains: int) -> np.ndarray | None:
    """Return the given starts of a saved run, or None if there were none or they are the model's own."""
    path = folder / STARTS
    if not path.exists():
        return None
    try:
        starts = read_arrays(path)["starts"]
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be read: {type(error).__name__}: {error}. Restore a copy of it."
        ) from error
    own = given_starts(model, None, chains)
    return None if own is not None and np.array_equal(own, starts) else starts


def saved_rule(run: dict[str, Any], folder: pathlib.Path) -> Until | None:
    """Return the stopping rule in ``run.json``; raises CheckpointError if it is invalid."""
    if run.get("until") is None:
        return None
    try:
        return Until(**run["until"])
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"The stopping rule in {folder} is not valid: {error}. Give until=...") from error


def own_model(run: dict[str, Any], folder: pathlib.Path) -> Model:
    """Return one of refhmc's models by the recipe in ``run.json``.

    A later check compares it with the run. Raises CheckpointError if refhmc cannot create it.
    """
    if run.get("recipe") is None:
        raise CheckpointError(
            f"{folder} does not hold the model {run['model']!r}. Give it: refhmc.resume(folder, model=...) in "
            "Python, or refhmc resume FOLDER FILE.py:NAME on the command line."
        )
    try:
        return model_of_recipe(run["recipe"])
    except Exception as error:
        raise CheckpointError(f"The recipe of the model in {folder} is not valid: {error}. Give model=...") from error


def own_kernel(run: dict[str, Any], folder: pathlib.Path) -> AnyKernel:
    """Return the kernel that ``run.json`` describes; raises CheckpointError unless all of it is refhmc's own."""
    kernel = kernel_from_json(run["kernel"])
    if kernel is None:
        raise CheckpointError(f"The kernel of {folder} is not refhmc's own: {run['kernel']}. Give it as kernel=...")
    return kernel

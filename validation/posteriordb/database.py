"""Data and reference draws from a folder with a copy of https://github.com/stan-dev/posteriordb."""

from __future__ import annotations

import json
import math
import pathlib
import zipfile
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from refhmc.diagnostics import ess_of_mean

FOLDER = "posterior_database"
RESULTS = pathlib.Path(__file__).resolve().parent / "results"
LONG_RUNS = RESULTS / "long_runs.json"
DRAWS, SUMMARY, EXACT, LONG_RUN, NONE = "draws", "published means", "exact", "long run", "none"  # kinds of reference


def root(folder: str | pathlib.Path) -> pathlib.Path:
    """Return the folder ``posterior_database`` of a copy of the repository, or of the folder itself."""
    path = pathlib.Path(folder)
    for each in (path / FOLDER, path):
        if (each / "posteriors").is_dir():
            return each
    raise FileNotFoundError(f"The folder must be a copy of posteriordb, with {FOLDER}/posteriors; got {folder}.")


def read_json(path: pathlib.Path) -> Any:
    """Return the contents of a JSON file, or of its zip archive."""
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    with zipfile.ZipFile(path.with_name(path.name + ".zip")) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def entry(folder: str | pathlib.Path, name: str) -> dict[str, Any]:
    """Return posteriordb's description of a posterior."""
    return read_json(root(folder) / "posteriors" / f"{name}.json")


def data_of(folder: str | pathlib.Path, name: str) -> dict[str, Any]:
    """Return the data of a posterior; lists become arrays."""
    found = read_json(root(folder) / "data" / "data" / f"{entry(folder, name)['data_name']}.json")
    return {key: np.array(value) if isinstance(value, list) else value for key, value in found.items()}


def in_stan(folder: str | pathlib.Path, name: str) -> dict[str, Any]:
    """Return the Stan program of a posterior and the names of its parameters."""
    about = entry(folder, name)
    path = root(folder) / "models" / "stan" / f"{about['model_name']}.stan"
    return {"program": path.read_text(encoding="utf-8"), "names": list(about["dimensions"])}


def reference_draws(folder: str | pathlib.Path, name: str) -> dict[str, np.ndarray] | None:
    """Return the reference draws (chain, draw) of each parameter, or None if the folder has none."""
    reference = entry(folder, name)["reference_posterior_name"]
    if reference is None:
        return None
    try:
        chains = read_json(root(folder) / "reference_posteriors" / "draws" / "draws" / f"{reference}.json")
    except FileNotFoundError:
        return None
    return {key: np.array([chain[key] for chain in chains], dtype=float) for key in chains[0]}


# ---------------------------------------------------------------------------------------------------------- references


class Statistic(NamedTuple):
    """The mean of a parameter and its mean square about a fixed centre, with their standard errors."""

    name: str
    mean: float
    mean_error: float
    centre: float
    square: float
    square_error: float


def statistic(name: str, x: np.ndarray, centre: float) -> Statistic:
    """Return the statistic of draws (chain, draw)."""
    both = np.stack([x, (x - centre) ** 2], axis=-1)
    errors = both.std(axis=(0, 1)) / np.sqrt(ess_of_mean(both))
    mean, square = both.mean(axis=(0, 1))
    return Statistic(name, float(mean), float(errors[0]), centre, float(square), float(errors[1]))


def z_scores(reference: Statistic, x: np.ndarray) -> tuple[float, float]:
    """Return the differences of mean and mean square of draws (chain, draw) from a reference, in standard errors."""
    ours = statistic(reference.name, x, reference.centre)
    return (
        (ours.mean - reference.mean) / math.hypot(ours.mean_error, reference.mean_error),
        (ours.square - reference.square) / math.hypot(ours.square_error, reference.square_error),
    )


def published_summary(folder: str | pathlib.Path, reference: str) -> list[Statistic] | None:
    """Return the published means and mean squares, for a copy of the repository without the draws themselves."""
    at = root(folder) / "reference_posteriors" / "summary_statistics"
    try:
        mean, square = (read_json(at / key / key / f"{reference}.json") for key in ("mean_value", "mean_squared_value"))
    except FileNotFoundError:
        return None
    rows = zip(
        mean["names"],
        mean["mean_value"],
        mean["mcse_mean"],
        square["mean_squared_value"],
        square["mcse_mean"],
        strict=True,
    )
    return [Statistic(name, m, error, 0.0, s, square_error) for name, m, error, s, square_error in rows]


def reference_of(folder: str | pathlib.Path, posterior: ModuleType) -> tuple[str, list[Statistic]]:
    """Return the kind of a reference and its statistics; ``none`` and an empty list if there is none."""
    name = posterior.NAME
    draws = reference_draws(folder, name)
    if draws is not None:
        return DRAWS, [statistic(key, x, float(x.mean())) for key, x in draws.items()]
    reference = entry(folder, name)["reference_posterior_name"]
    found = reference and published_summary(folder, reference)
    if found:
        return SUMMARY, found
    if hasattr(posterior, "exact"):
        exact = posterior.exact(data_of(folder, name)).items()
        return EXACT, [Statistic(key, mean, 0.0, mean, variance, 0.0) for key, (mean, variance) in exact]
    stored = json.loads(LONG_RUNS.read_text(encoding="utf-8")) if LONG_RUNS.exists() else {}
    return (LONG_RUN, [Statistic(*row) for row in stored[name]]) if name in stored else (NONE, [])


def store_long_run(folder: str | pathlib.Path, posterior: ModuleType) -> None:
    """Store the statistics of a long run of NumPyro's NUTS, for a posterior without reference draws."""
    import jax
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    program = posterior.in_numpyro(data_of(folder, posterior.NAME))
    options = {"num_warmup": 1000, "num_samples": 2500, "num_chains": 4, "chain_method": "sequential"}
    run = MCMC(NUTS(program, target_accept_prob=0.95), progress_bar=False, **options)
    run.run(jax.random.key(2026))
    values = {key: np.asarray(x) for key, x in run.get_samples(group_by_chain=True).items()}
    rows = [statistic(key, x, float(x.mean())) for key, x in entries(parameters_of(folder, posterior, values)).items()]
    stored = json.loads(LONG_RUNS.read_text(encoding="utf-8")) if LONG_RUNS.exists() else {}
    stored[posterior.NAME] = [[row.name, *(float(f"{x:.8g}") for x in row[1:])] for row in rows]
    LONG_RUNS.parent.mkdir(exist_ok=True)
    LONG_RUNS.write_text(json.dumps(stored) + "\n", encoding="utf-8")


def parameters_of(folder: str | pathlib.Path, posterior: ModuleType, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of posteriordb's parameters, among those of a model."""
    values = values | (posterior.reference_values(values) if hasattr(posterior, "reference_values") else {})
    return {key: values[key] for key in entry(folder, posterior.NAME)["dimensions"] if key in values}


def entries(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the draws of each number by its name in posteriordb, such as ``beta[2]``, counted from 1."""
    return {
        key + (f"[{','.join(str(i + 1) for i in index)}]" if index else ""): np.asarray(x)[(..., *index)]
        for key, x in values.items()
        for index in np.ndindex(np.shape(x)[2:])
    }

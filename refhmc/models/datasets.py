"""The data and published answers shipped with refhmc (origins and licences: ``refhmc/data/LICENSES.md``).

Classification data are the training rows of one fixed split, each column standardised by its mean and *population*
standard deviation over those rows, behind a column of ones.
"""

from __future__ import annotations

import importlib.resources
import json
from typing import Any, NamedTuple

import numpy as np

from refhmc.models.image_files import Images, fashion_mnist, mnist
from refhmc.models.reference import Reference

__all__ = [
    "Classification",
    "Images",
    "Regression",
    "breast_cancer",
    "diabetes",
    "fashion_mnist",
    "heart",
    "mnist",
    "regression_1d",
]

_DATA = importlib.resources.files("refhmc") / "data"


class Classification(NamedTuple):
    """``X`` (n, d) with the ones first, ``y`` (n,) of 0.0 and 1.0, and one name per column of ``X``."""

    X: np.ndarray
    y: np.ndarray
    names: list[str]
    description: str


class Regression(NamedTuple):
    """``X`` (n, inputs) and ``y`` (n,)."""

    X: np.ndarray
    y: np.ndarray
    description: str


def load_json(name: str) -> Any:
    """The contents of ``refhmc/data/<name>.json``."""
    return json.loads((_DATA / f"{name}.json").read_text(encoding="utf-8"))


def posteriordb(name: str) -> dict:
    """A posterior of posteriordb: ``data``, ``names``, ``summary[name]`` of the reference draws, ``correlation``."""
    return load_json(name)


def posteriordb_reference(name: str, variables: list[str]) -> Reference:
    """Moments of the published draws; ``variables`` are posteriordb's names in the order of flattened ``constrain()``.

    The variance is the square of the published sd, so its standard error is 2 sd times that of the sd.
    """
    summaries = posteriordb(name)["summary"]
    mean, sd, mean_se, sd_se = (
        np.array([summaries[v][key] for v in variables]) for key in ("mean", "sd", "mcse_mean", "mcse_sd")
    )
    return Reference(f"posteriordb {name}, published draws", mean, sd**2, mean_se, 2 * sd * sd_se)


def logistic_reference(name: str) -> Reference:
    """Moments of the logistic posterior of a classification data set under the prior beta ~ N(0, I)."""
    answer = load_json("logistic_posteriors")[name]
    mean, variance, mean_se, variance_se = (np.array(answer[key]) for key in ("mean", "var", "mean_se", "var_se"))
    source = f"importance sampling, {answer['n_is']:.0e} draws"
    return Reference(source, mean, variance, mean_se, variance_se)


def jolly_seber_reference() -> Reference:
    """Moments of the posterior of the black-kneed capsid counts: p[1..13], phi[1..12], U[1..13]."""
    answer = load_json("jolly_seber_posterior")["summary"]
    rows = [row for name, row in answer.items() if name.startswith(("p[", "phi[", "U[")) and "*" not in name]
    mean, sd, mean_se, sd_se = (np.array([row[key] for row in rows]) for key in ("mean", "sd", "mcse_mean", "mcse_sd"))
    return Reference("component-wise Metropolis, 4 x 1.2e6 sweeps", mean, sd**2, mean_se, 2 * sd * sd_se)


def _classification(name: str, description: str) -> Classification:
    header, *lines = (_DATA / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    rows = load_json("classification_splits")[name]
    table = np.array([line.split(",") for line in lines], dtype=float)[rows]
    inputs, y = table[:, :-1], table[:, -1]
    scaled = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    X = np.column_stack([np.ones(len(y)), scaled])
    return Classification(X, y, ["intercept", *header.split(",")[:-1]], description)


def breast_cancer() -> Classification:
    """Breast cancer of Ljubljana: X (200, 10); y = 1 where the cancer came back."""
    return _classification("breast_cancer_ljubljana", "UCI breast cancer (Ljubljana), 200 of the 277 complete rows")


def diabetes() -> Classification:
    """Diabetes among the Pima: X (468, 9); y = 1 for a positive test."""
    return _classification("diabetes_pima", "UCI/NIDDK Pima diabetes, 468 of 768 rows")


def heart() -> Classification:
    """Heart disease (Statlog): X (170, 14); y = 1 where disease is present."""
    return _classification("heart_statlog", "UCI Statlog heart, 170 of 270 rows")


def regression_1d() -> Regression:
    """The 400 points on a line of Izmailov et al. (2019), X (400, 1), both columns standardised by mean and population sd."""
    lines = (_DATA / "subspace1d_400.csv").read_text(encoding="utf-8").splitlines()
    table = np.loadtxt(lines, delimiter=",", skiprows=1)
    scaled = (table - table.mean(axis=0)) / table.std(axis=0)
    return Regression(scaled[:, :1], scaled[:, 1], "drbayes' synthetic regression, 400 points")

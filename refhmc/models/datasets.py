"""Data sets and published posteriors that refhmc includes. ``refhmc/data/LICENSES.md`` lists sources and licences.

Classification data are the training rows of one fixed split. Each column is standardised by its mean and *population*
standard deviation over these rows, and a column of ones precedes them.
"""

from __future__ import annotations

import importlib.resources
import json
from typing import NamedTuple

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
    """A data set for binary classification.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Inputs, with a first column of ones.
    y : ndarray of shape (n,)
        Labels 0.0 and 1.0.
    names : list of str
        One name per column of `X`.
    description : str
        Source and number of rows.
    """

    X: np.ndarray
    y: np.ndarray
    names: list[str]
    description: str


class Regression(NamedTuple):
    """A data set for regression.

    Parameters
    ----------
    X : ndarray of shape (n, inputs)
        Inputs.
    y : ndarray of shape (n,)
        Observations.
    description : str
        Source and number of rows.
    """

    X: np.ndarray
    y: np.ndarray
    description: str


def load_json(name: str) -> dict:
    """Return the contents of ``refhmc/data/<name>.json``."""
    return json.loads((_DATA / f"{name}.json").read_text(encoding="utf-8"))


def posteriordb(name: str) -> dict:
    """Return a posterior of posteriordb: ``data``, ``names``, ``summary[name]`` of the reference draws, ``correlation``."""
    return load_json(name)


def posteriordb_reference(name: str, variables: list[str]) -> Reference:
    """Return the moments of the published draws, in the order of ``variables``.

    ``variables`` are the names in posteriordb, in the order of the flattened ``constrain()``. The variance is the square of the
    published standard deviation, so its standard error is 2 sd times that of the standard deviation.
    """
    summaries = posteriordb(name)["summary"]
    mean, sd, mean_se, sd_se = (
        np.array([summaries[v][key] for v in variables]) for key in ("mean", "sd", "mcse_mean", "mcse_sd")
    )
    return Reference(f"posteriordb {name}, published draws", mean, sd**2, mean_se, 2 * sd * sd_se)


def logistic_reference(name: str) -> Reference:
    """Return the moments of the logistic posterior of a classification data set under the prior beta ~ N(0, I)."""
    answer = load_json("logistic_posteriors")[name]
    mean, variance, mean_se, variance_se = (np.array(answer[key]) for key in ("mean", "var", "mean_se", "var_se"))
    source = f"importance sampling, {answer['n_is']:.0e} draws"
    return Reference(source, mean, variance, mean_se, variance_se)


def jolly_seber_reference() -> Reference:
    """Return the moments of the posterior of the black-kneed capsid counts: p[1..13], phi[1..12], U[1..13]."""
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
    """Load the breast cancer data of Ljubljana.

    Returns
    -------
    Classification
        ``X`` has shape (200, 10), and ``y`` is 1 if the cancer recurred. These are 200 of the 277 complete rows.

    References
    ----------
    UCI Machine Learning Repository, Breast Cancer (Ljubljana).

    Examples
    --------
    >>> import refhmc
    >>> data = refhmc.datasets.breast_cancer()
    >>> data.X.shape, data.names[0]
    ((200, 10), 'intercept')
    """
    return _classification("breast_cancer_ljubljana", "UCI breast cancer (Ljubljana), 200 of the 277 complete rows")


def diabetes() -> Classification:
    """Load the diabetes data of Pima women.

    Returns
    -------
    Classification
        ``X`` has shape (468, 9), and ``y`` is 1 for a positive test. These are 468 of 768 rows.

    References
    ----------
    UCI Machine Learning Repository / NIDDK, Pima Indians Diabetes.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.datasets.diabetes().X.shape
    (468, 9)
    """
    return _classification("diabetes_pima", "UCI/NIDDK Pima diabetes, 468 of 768 rows")


def heart() -> Classification:
    """Load the Statlog heart disease data.

    Returns
    -------
    Classification
        ``X`` has shape (170, 14), and ``y`` is 1 if disease is present. These are 170 of 270 rows.

    References
    ----------
    UCI Machine Learning Repository, Statlog (Heart).

    Examples
    --------
    >>> import refhmc
    >>> refhmc.datasets.heart().X.shape
    (170, 14)
    """
    return _classification("heart_statlog", "UCI Statlog heart, 170 of 270 rows")


def regression_1d() -> Regression:
    """Load the synthetic regression data of Izmailov et al. (2019).

    Returns
    -------
    Regression
        400 points, with ``X`` of shape (400, 1). Both columns are standardised by their mean and population standard deviation.

    References
    ----------
    P. Izmailov et al. (2019), Subspace inference for Bayesian deep learning; data of the package drbayes.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.datasets.regression_1d().X.shape
    (400, 1)
    """
    lines = (_DATA / "subspace1d_400.csv").read_text(encoding="utf-8").splitlines()
    table = np.loadtxt(lines, delimiter=",", skiprows=1)
    scaled = (table - table.mean(axis=0)) / table.std(axis=0)
    return Regression(scaled[:, :1], scaled[:, 1], "drbayes' synthetic regression, 400 points")

"""Random sets of rows of the three classification data sets, prepared as the library prepares its own."""

from __future__ import annotations

import json

import numpy as np

import refhmc
from validation.common import ROOT

DATA = ROOT / "refhmc" / "data"
FILES = {5: "breast_cancer_ljubljana", 6: "diabetes_pima", 7: "heart_statlog"}  # by the paper's table
SIZES = {"training": {5: 200, 6: 468, 7: 170}, "test": {5: 77, 6: 300, 7: 100}}  # of Raetsch's benchmarks
CODINGS = ("rank", "alphabetical", "random")


def mode_of(model) -> np.ndarray:
    """The posterior mode, by Newton's method with the Fisher metric."""
    H = refhmc.Hamiltonian(model, refhmc.metrics.Fisher())
    q = np.zeros(model.dim)
    for _ in range(50):
        q = q + np.linalg.solve(H.mass(q), model.gradient(q))
    return q


def table_of(name: str) -> np.ndarray:
    """All rows of a data set, y last."""
    lines = (DATA / f"{name}.csv").read_text(encoding="utf-8").splitlines()[1:]
    return np.array([line.split(",") for line in lines], dtype=float)


def recoded(table: np.ndarray, coding: str, rng: np.random.Generator) -> np.ndarray:
    """The breast cancer data with the categories of every column numbered in another order."""
    if coding == "rank":
        return table
    codes = json.loads((DATA / "breast_cancer_ljubljana_codes.json").read_text(encoding="utf-8"))
    out = table.copy()
    for column, names in enumerate(codes.values()):
        order = np.argsort(np.argsort(names)) if coding == "alphabetical" else rng.permutation(len(names))
        out[:, column] = order[table[:, column].astype(int)]
    return out


def model_of(rows: np.ndarray):
    """The model of a table's rows, y last: columns standardised over these rows, a column of ones put first."""
    X, y = rows[:, :-1], rows[:, -1]
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    return refhmc.models.LogisticRegression(np.column_stack([np.ones(len(y)), X]), y)


def random_set(number: int, size: str, coding: str, rng: np.random.Generator):
    """The model of a random set of rows, prepared like the library's own."""
    table = recoded(table_of(FILES[number]), coding, rng)
    return model_of(table[rng.permutation(len(table))[: SIZES[size][number]]])


def heart_split(part: str):
    """The model of Raetsch's first split of the heart disease data: its 170 rows of "train" or its 100 of "test"."""
    rows = json.loads((DATA / "heart_statlog_fold0.json").read_text(encoding="utf-8"))[part]
    return model_of(table_of(FILES[7])[rows])

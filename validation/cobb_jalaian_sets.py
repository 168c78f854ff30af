"""The data and networks of Cobb and Jalaian (2021), as the validation commands take them.

MNIST, Fashion-MNIST and the 400 points lie where ``--data`` says: ``mnist/mnist.npz``, ``fashion_mnist/fashion_mnist.npz``,
``regression1d/subspace1d_400.csv``. Images are pixels over 255 in single precision.
"""

from __future__ import annotations

import pathlib

import numpy as np

import refhmc
from validation import common

DATA = common.ROOT.parent / "shared" / "data"
OPTION = {"data": {"type": pathlib.Path, "default": DATA, "help": "folder of the data sets (default %(default)s)"}}

TRAINING = 48_000  # the first so many of 60,000; the paper's rule of choice is not published
PRECISION = 110.4439498986428  # of the outputs of the regression
WIDTHS = (1, 100, 100, 1)  # the text says three hidden layers; 10,401 weights and the authors' program have two


def images(folder: pathlib.Path, name: str, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 28, 28) and labels (n,) of "mnist" or "fashion_mnist"."""
    with np.load(folder / name / f"{name}.npz") as file:
        X, y = file[f"x_{split}"], file[f"y_{split}"]
    return X.astype(np.float32) / np.float32(255), y.astype(np.int64)


def regression(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """x (400, 1) and y (400,), each with mean 0 and variance 1."""
    table = np.loadtxt(folder / "regression1d" / "subspace1d_400.csv", delimiter=",", skiprows=1)
    x, y = ((table - table.mean(axis=0)) / table.std(axis=0)).T
    return x[:, None], y


def regression_network(folder: pathlib.Path):
    """The 10,401 weights, prior precision 1."""
    return refhmc.models.MLP(WIDTHS, *regression(folder), activation="relu", output_precision=PRECISION)

"""The data and networks of Cobb and Jalaian (2021), as the validation commands take them.

MNIST and Fashion-MNIST lie where ``--data`` says, as ``mnist/mnist.npz`` and ``fashion_mnist/fashion_mnist.npz``; images are in
single precision. The 400 points are refhmc's own copy.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

import refhmc
from refhmc.models import datasets
from validation import common

DATA = common.ROOT.parent / "shared" / "data"
OPTION: dict[str, Any] = {
    "data": {"type": pathlib.Path, "default": DATA, "help": "folder of the data sets (default %(default)s)"}
}

TRAINING = 48_000  # the first so many of 60,000; the paper's rule of choice is not published
PRECISION = 110.4439498986428  # of the outputs of the regression
WIDTHS = (1, 100, 100, 1)  # the text says three hidden layers; 10,401 weights and the authors' program have two


def images(folder: pathlib.Path, name: str, rows: Any = slice(None), split: str = "train") -> tuple:
    """Images (n, 28, 28) and labels (n,) of "mnist" or "fashion_mnist"."""
    load = {"mnist": datasets.mnist, "fashion_mnist": datasets.fashion_mnist}[name]
    found = load(folder / name / f"{name}.npz", split, rows=rows, dtype=np.float32)
    return found.X, found.y


def regression_network():
    """The 10,401 weights, prior precision 1, on the 400 points, standardised; in single precision, as the program's."""
    data, options = datasets.regression_1d(), {"activation": "relu", "output_precision": PRECISION}
    return refhmc.models.MLP(WIDTHS, data.X, data.y, dtype=np.float32, **options)

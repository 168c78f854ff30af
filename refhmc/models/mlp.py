"""Bayesian multilayer perceptrons: y_n ~ p(y | f(x_n; w)), w ~ N(0, I / lambda) layer by layer.

    a_0 = x        z_l = W_l a_(l-1) + b_l        a_l = s(z_l)        f = z_L

with s an activation (:mod:`refhmc.models.networks.activations`), none after the last layer. Log density and derivatives are
those of :mod:`refhmc.models.networks.network`. Coordinates: W_1 (outputs, inputs) row by row, b_1, W_2, ...

Softmax regression is the network without hidden layers: its log density is concave, its second derivatives do not contain y,
and the Fisher metric is minus the Hessian.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from refhmc.core.arguments import whole_number
from refhmc.models import datasets
from refhmc.models.base import Model
from refhmc.models.inputs import in_precision, number_of_classes, rows_of
from refhmc.models.networks.layers import Dense, Layer
from refhmc.models.networks.model import activation, chosen_likelihood, design, network_model, observations
from refhmc.models.recipe import recreatable


@recreatable
def MLP(
    widths: Sequence[int],
    X: Any,
    y: Any,
    *,
    activation: str = "tanh",
    likelihood: str | None = None,
    prior_precision: Any = 1.0,
    output_precision: float = 1.0,
    dtype: Any = np.float64,
    batch: int | None = None,
    name: str = "mlp",
) -> Model:
    """A network of the given ``widths``, inputs first and outputs last, on X (n, inputs) and y (n,) or (n, outputs).

    activation : "tanh", "relu" or "selu". likelihood : "gaussian", of precision ``output_precision``; "bernoulli", one output
        and labels 0 and 1; "softmax", labels 0, 1, ... None: the softmax for whole numbers and several outputs, else Gaussian.
    prior_precision : of all weights, or one number for each layer.
    dtype : float32 for layers in single precision; log density and prior stay in double.
    batch : rows of data that are in memory at a time, 1,000 by default; ``model.split(M)`` is another matter.

    Variables: ``W1`` (outputs, inputs), ``b1``, ``W2``, ... All derivatives to third order. A derivative with an array of more
    than 2^27 numbers (1 GiB) is absent: matrices above 11,585 weights, third-order tensors above 512. Asking for it raises
    MissingDerivativeError with its memory. Raises ShapeError and ValueError for data that do not fit.
    """
    if len(widths) < 2:
        raise ValueError(f"widths must have two or more numbers, from inputs to outputs; got {widths!r}.")
    widths = [whole_number("widths", width) for width in widths]
    X = rows_of(X, widths[0])
    return network_model(
        *on_data(layers_of(widths, activation), X, y, likelihood, prior_precision, output_precision, dtype, batch, name)
    )


@recreatable
def SoftmaxRegression(
    X: Any,
    y: Any,
    *,
    n_classes: int | None = None,
    prior_precision: Any = 1.0,
    name: str = "softmax regression",
    **options: Any,
) -> Model:
    """P(y = j) proportional to exp(W_j . x + b_j), labels y (n,) 0, ..., n_classes - 1; by default up to the largest one."""
    X = rows_of(X, np.shape(X)[-1] if np.ndim(X) == 2 else 0)
    n_classes = number_of_classes(y, n_classes)
    return MLP(
        [X.shape[1], n_classes], X, y, likelihood="softmax", prior_precision=prior_precision, name=name, **options
    )


@recreatable
def RegressionNetwork(widths: Sequence[int] = (100, 100)) -> Model:
    """The 400 points of :func:`refhmc.datasets.regression_1d`, a ReLU network on them (Cobb and Jalaian 2021, table 2).

    widths : of the hidden layers. Prior precision 1; the output precision is that of the paper's published program.
    """
    X, y, _ = datasets.regression_1d()
    name = "regression network"
    return MLP([1, *widths, 1], X, y, activation="relu", output_precision=110.4439498986428, name=name)


def layers_of(widths: Sequence[int], s: str) -> list[Layer]:
    """Dense layers with activations between them."""
    layers: list[Layer] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [Dense(inputs, outputs), activation(s)]
    return layers[:-1]


def on_data(
    layers: Sequence[Layer],
    X: np.ndarray,
    y: Any,
    likelihood: str | None,
    prior_precision: Any,
    output_precision: float,
    dtype: Any,
    batch: int | None,
    name: str,
) -> tuple:
    """Design, inputs and observations of :func:`refhmc.models.networks.model.network_model`."""
    n_outputs = layers[-1].outputs  # type: ignore[attr-defined]
    p = chosen_likelihood(likelihood, n_outputs, y, output_precision)
    of = design(layers, X.shape[1:], p, prior_precision, dtype, batch, name)
    return of, in_precision("X", X, of.dtype), observations(y, len(X), n_outputs, p, of.dtype)

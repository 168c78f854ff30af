"""Bayesian multilayer perceptrons: y_n ~ p(y | f(x_n; w)), w ~ N(0, I / lambda) layer by layer.

The network is ::

    a_0 = x        z_l = W_l a_(l-1) + b_l        a_l = s(z_l)        f = z_L

with an activation s (:mod:`refhmc.models.networks.activations`), except after the last layer. Log density and derivatives are
those of :mod:`refhmc.models.networks.network`. The coordinates are W_1 (outputs, inputs) row by row, b_1, W_2, and so on.

Softmax regression is the network without hidden layers. Its log density is concave, its second derivatives do not contain y,
and the Fisher metric is minus the Hessian.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from refhmc.core.arguments import whole_number
from refhmc.models import datasets
from refhmc.models.base import Model
from refhmc.models.inputs import in_precision, number_of_classes, rows_of
from refhmc.models.networks.layers import Dense, Layer
from refhmc.models.networks.model import Design, activation, chosen_likelihood, design, network_model, observations
from refhmc.models.recipe import recreatable


@recreatable
def MLP(
    widths: Sequence[int],
    X: ArrayLike,
    y: ArrayLike,
    *,
    activation: str = "tanh",
    likelihood: str | None = None,
    prior_precision: ArrayLike = 1.0,
    output_precision: float = 1.0,
    dtype: DTypeLike = np.float64,
    batch: int | None = None,
    name: str = "mlp",
) -> Model:
    """Return a Bayesian multilayer perceptron.

    The model is ::

        y_n ~ p(y | f(x_n; w)),   w ~ N(0, I / prior_precision)
        a_0 = x        z_l = W_l a_(l-1) + b_l        a_l = s(z_l)        f = z_L

    with an activation s. The variables are ``W1`` of shape (outputs, inputs), ``b1``, ``W2``, and so on. The model has all
    derivatives to third order and the Fisher metric. A derivative whose array would exceed 2^27 numbers (1 GiB) is missing:
    matrices for more than 11,585 weights, third-order tensors for more than 512.

    Parameters
    ----------
    widths : sequence of int
        Widths of the layers, from inputs to outputs.
    X : array_like of shape (n, inputs)
        Inputs.
    y : array_like of shape (n,) or (n, outputs)
        Observations.
    activation : {"tanh", "relu", "selu"}, default "tanh"
        Activation s between the layers.
    likelihood : {"gaussian", "bernoulli", "softmax"}, optional
        "gaussian" with precision `output_precision`; "bernoulli" for one output and labels 0 and 1; "softmax" for labels
        0, 1, .... Defaults to "softmax" for integers and several outputs, otherwise to "gaussian".
    prior_precision : float or array_like, default 1.0
        Precision of the prior of all weights, or one number per layer.
    output_precision : float, default 1.0
        Precision of the observations with a Gaussian likelihood.
    dtype : dtype, default float64
        With float32 the layers use single precision; log density and prior stay in double precision.
    batch : int, optional
        Rows of data that are processed at a time. Defaults to 1,000. It does not split the model.
    name : str, default "mlp"
        Name in messages and results.

    Returns
    -------
    Model
        The model. :func:`refhmc.predict` gives predictions for new inputs.

    Raises
    ------
    refhmc.errors.ShapeError
        If shapes do not fit.
    ValueError
        If values are out of range, or labels are not those of the likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = refhmc.models.MLP([1, 5, 1], X, np.sin(3 * X), output_precision=100.0)
    >>> model.dim, {name: value.shape for name, value in model.constrain(np.zeros(16)).items()}
    (16, {'W1': (5, 1), 'b1': (5,), 'W2': (1, 5), 'b2': (1,)})
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
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_classes: int | None = None,
    prior_precision: ArrayLike = 1.0,
    name: str = "softmax regression",
    **options: Any,
) -> Model:
    """Return a Bayesian softmax regression, a network without hidden layers.

    The model is ::

        P(y = j | x) ~ exp(W_j . x + b_j),      W, b ~ N(0, I / prior_precision)

    The variables are ``W1`` of shape (n_classes, inputs) and ``b1``. The log density is concave, and the Fisher metric is minus
    the Hessian.

    Parameters
    ----------
    X : array_like of shape (n, inputs)
        Inputs.
    y : array_like of shape (n,)
        Labels 0, ..., n_classes - 1.
    n_classes : int, optional
        Number of classes. Defaults to one more than the largest label.
    prior_precision : float or array_like, default 1.0
        Precision of the prior of all weights.
    name : str, default "softmax regression"
        Name in messages and results.
    **options : dict
        Further arguments of :func:`MLP`, such as `dtype` and `batch`.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    refhmc.errors.ShapeError
        If shapes do not fit.
    ValueError
        If labels or values are out of range.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.SoftmaxRegression([[0.1, 0.2], [1.0, -1.0], [0.3, 2.0]], [0, 1, 2]).dim
    9
    """
    X = rows_of(X, np.shape(X)[-1] if np.ndim(X) == 2 else 0)
    n_classes = number_of_classes(y, n_classes)
    return MLP(
        [X.shape[1], n_classes], X, y, likelihood="softmax", prior_precision=prior_precision, name=name, **options
    )


@recreatable
def RegressionNetwork(widths: Sequence[int] = (100, 100)) -> Model:
    """Return a ReLU network on the synthetic regression data.

    The model is that of :func:`MLP` on the 400 points of :func:`refhmc.datasets.regression_1d`, with prior precision 1. The
    output precision is that of the published program of the reference.

    Parameters
    ----------
    widths : sequence of int, default (100, 100)
        Widths of the hidden layers.

    Returns
    -------
    Model
        The model.

    References
    ----------
    A. D. Cobb and B. Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric
    splitting, table 2.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.RegressionNetwork().dim
    10401
    """
    X, y, _ = datasets.regression_1d()
    name = "regression network"
    return MLP([1, *widths, 1], X, y, activation="relu", output_precision=110.4439498986428, name=name)


def layers_of(widths: Sequence[int], s: str) -> list[Layer]:
    """Return dense layers with activations between them."""
    layers: list[Layer] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [Dense(inputs, outputs), activation(s)]
    return layers[:-1]


def on_data(
    layers: Sequence[Layer],
    X: np.ndarray,
    y: ArrayLike,
    likelihood: str | None,
    prior_precision: ArrayLike,
    output_precision: float,
    dtype: DTypeLike,
    batch: int | None,
    name: str,
) -> tuple[Design, np.ndarray, np.ndarray]:
    """Return design, inputs and observations for :func:`refhmc.models.networks.model.network_model`."""
    n_outputs = layers[-1].outputs  # type: ignore[attr-defined]
    p = chosen_likelihood(likelihood, n_outputs, y, output_precision)
    of = design(layers, X.shape[1:], p, prior_precision, dtype, batch, name)
    return of, in_precision("X", X, of.dtype), observations(y, len(X), n_outputs, p, of.dtype)

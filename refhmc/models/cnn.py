"""Bayesian convolutional networks for images.

The layers are ::

    each stage:  convolution, max-pooling, activation        then:  flattening, dense layers with activations between them

The activations are increasing, so pooling before or after them gives the same result; pooling first is cheaper. Log density
and derivatives are those of :mod:`refhmc.models.networks.network`. The coordinates are K_1 (outputs, channels, height, width)
in the order of PyTorch, b_1, K_2, ..., then W and b of the dense layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from refhmc.core.arguments import whole_number
from refhmc.models.base import Model
from refhmc.models.inputs import images, number_of_classes
from refhmc.models.mlp import layers_of, on_data
from refhmc.models.networks.layers import Convolution, Flattening, Layer, MaxPooling, RowsLast
from refhmc.models.networks.model import activation as activation_named
from refhmc.models.networks.model import network_model
from refhmc.models.recipe import recreatable


@recreatable
def CNN(
    X: ArrayLike,
    y: ArrayLike,
    *,
    channels: Sequence[int] = (10, 20),
    dense: Sequence[int] = (100,),
    n_classes: int | None = None,
    side: int = 5,
    pool: int = 2,
    activation: str = "relu",
    prior_precision: ArrayLike = 1.0,
    dtype: DTypeLike = np.float64,
    batch: int | None = 100,
    name: str = "cnn",
) -> Model:
    """Return a Bayesian convolutional network for images.

    The layers are ::

        each stage:  convolution, max-pooling, activation        then:  flattening, dense layers with activations between them

    with a softmax likelihood and priors N(0, I / prior_precision) of the weights. The variables are ``K1`` of shape (outputs,
    channels, height, width), ``b1``, ``K2``, ..., then ``W`` and ``b`` of the dense layers. With the default sizes there are
    38,390 weights for images of 28 x 28 pixels in ten classes.

    Parameters
    ----------
    X : array_like of shape (n, height, width) or (n, channels, height, width)
        Images. The pixels are used without change.
    y : array_like of shape (n,)
        Labels 0, ..., n_classes - 1.
    channels : sequence of int, default (10, 20)
        Numbers of outputs of the convolutions.
    dense : sequence of int, default (100,)
        Widths of the hidden dense layers.
    n_classes : int, optional
        Number of classes. Defaults to one more than the largest label.
    side : int, default 5
        Side of the squares of the convolutions, in pixels.
    pool : int, default 2
        Side of the squares of the max-pooling, in pixels; 1 for none.
    activation : {"tanh", "relu", "selu"}, default "relu"
        Activation.
    prior_precision : float or array_like, default 1.0
        Precision of the prior of all weights, or one number per layer with weights.
    dtype : dtype, default float64
        With float32 the layers use single precision; log density and prior stay in double precision.
    batch : int, default 100
        Images that are processed at a time; None for 1,000. It does not split the model.
    name : str, default "cnn"
        Name in messages and results.

    Returns
    -------
    Model
        The model. :func:`refhmc.predict` gives predictions for new images.

    Raises
    ------
    refhmc.errors.ShapeError
        If images are too small or have another shape.
    ValueError
        If labels, pixels or sizes are out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> images = np.random.default_rng(1).random((3, 8, 8))
    >>> refhmc.models.CNN(images, [0, 1, 1], channels=[2], dense=[], side=3).dim
    58
    """
    X = images(X)
    n_classes = number_of_classes(y, n_classes)
    side, pool = whole_number("side", side), whole_number("pool", pool)
    channels, dense = ([whole_number(k, n) for n in given] for k, given in (("channels", channels), ("dense", dense)))
    layers: list[Layer] = [RowsLast()]
    shape = X.shape[1:]
    for outputs in channels:
        stage: list[Layer] = [Convolution(shape[2], outputs, side), *([MaxPooling(pool)] if pool > 1 else [])]
        layers += [*stage, activation_named(activation)]
        for layer in stage:
            shape = layer.shape_after(shape)
    layers += [Flattening(), *layers_of([int(np.prod(shape)), *dense, n_classes], activation)]
    of, X, y = on_data(layers, X, y, "softmax", prior_precision, 1.0, dtype, batch, name)
    return network_model(of, np.ascontiguousarray(X), y)

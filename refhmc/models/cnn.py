"""Bayesian convolutional networks for images: convolutions with max-pooling, then dense layers.

    each stage:  convolution, max-pooling, activation        then:  flattening, dense layers with activations between them

(The activations are increasing, so that pooling before or after them is the same; before, fewer numbers go through them.)
Log density and derivatives are those of :mod:`refhmc.models.networks.network`. Coordinates: K_1 (outputs, channels, height,
width) in PyTorch's order, b_1, K_2, ..., then W and b of the dense layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
    X: Any,
    y: Any,
    *,
    channels: Sequence[int] = (10, 20),
    dense: Sequence[int] = (100,),
    n_classes: int | None = None,
    side: int = 5,
    pool: int = 2,
    activation: str = "relu",
    prior_precision: Any = 1.0,
    dtype: Any = np.float64,
    batch: int | None = 100,
    name: str = "cnn",
) -> Model:
    """A network on images X (n, height, width) or (n, channels, height, width) with labels y (n,) 0, ..., n_classes - 1.

    channels : outputs of each convolution, of squares of that ``side``; after each the largest of squares of side ``pool`` is
        taken (1: none). dense : widths of the hidden dense layers. By default 38,390 weights on 28 x 28 images in ten classes.
    prior_precision, dtype, batch : as for :func:`refhmc.models.MLP`. The pixels are used as they are.

    Raises ShapeError for images that are too small or of another shape, ValueError for labels, pixels or
    sizes that cannot be.
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

"""A network on data as a :class:`refhmc.Model`: names, starts, shares of the data, and predictions for new inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from refhmc.core.arguments import array_of_numbers, positive, refuse_masked, whole_number
from refhmc.errors import ShapeError
from refhmc.models.base import Model
from refhmc.models.inputs import finite, images, in_precision, labels, rows_of
from refhmc.models.networks.activations import ACTIVATIONS
from refhmc.models.networks.layers import Activation
from refhmc.models.networks.likelihoods import LIKELIHOODS, Bernoulli, Gaussian, Likelihood
from refhmc.models.networks.network import NetworkOnArrays, Posterior

IN_PYTHON = "a network consists of matrix products, which run in NumPy"
MOST = 2**27  # numbers in the largest array of a derivative, one GiB; larger derivatives are absent
ROWS_AT_ONCE = 1000  # default number of rows in a batch


@dataclass(frozen=True)
class Design:
    """All parts of a network except its data; ``prior_precision`` has one number for each layer with weights."""

    layers: tuple
    shape: tuple[int, ...]
    likelihood: Likelihood
    prior_precision: tuple[float, ...]
    dtype: np.dtype
    batch: int
    name: str

    @property
    def weighted(self) -> list:
        return [layer for layer in self.layers if layer.size]


def activation(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}; got {name!r}.")
    return Activation(ACTIVATIONS[name])


def design(
    layers: Sequence,
    shape: tuple[int, ...],
    likelihood: Likelihood,
    prior_precision: ArrayLike,
    dtype: DTypeLike,
    batch: int | None,
    name: str,
) -> Design:
    """Return the checked design. Raises ShapeError if a layer does not fit the one before it, ValueError for other options."""
    after = shape
    for layer in layers:
        after = layer.shape_after(after)
    n = sum(layer.size > 0 for layer in layers)
    precisions = array_of_numbers("prior_precision", prior_precision)
    if precisions.shape not in ((), (n,)) or not (np.isfinite(precisions).all() and (precisions > 0).all()):
        raise ValueError(
            f"prior_precision must be positive and finite, one number or one for each of the {n} layers with weights; got "
            f"{prior_precision!r}."
        )
    if np.dtype(dtype) not in (np.float64, np.float32):
        raise ValueError(f"dtype must be float64 or float32; got {dtype!r}.")
    rows = whole_number("batch", ROWS_AT_ONCE if batch is None else batch)
    each = tuple(float(x) for x in np.broadcast_to(precisions, (n,)))
    return Design(tuple(layers), shape, likelihood, each, np.dtype(dtype), rows, name)


def chosen_likelihood(name: str | None, n_outputs: int, y: ArrayLike, output_precision: float) -> Likelihood:
    """Return a likelihood by name; by default softmax for integers and several outputs, else Gaussian. Raises ValueError."""
    if name is None:
        name = "softmax" if n_outputs > 1 and np.asarray(y).dtype.kind in "iu" and np.ndim(y) == 1 else "gaussian"
    if name not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}; got {name!r}.")
    if name == "bernoulli" and n_outputs != 1:
        raise ValueError(f"likelihood 'bernoulli' needs a network with one output; got {n_outputs}.")
    if name == "softmax" and n_outputs < 2:
        raise ValueError("likelihood 'softmax' needs one output per class, at least 2; got 1.")
    positive("output_precision", output_precision)
    if name != "gaussian" and output_precision != 1:
        raise ValueError(f"output_precision must be left out unless likelihood is 'gaussian'; got likelihood {name!r}.")
    return Gaussian(float(output_precision)) if name == "gaussian" else LIKELIHOODS[name]()


def observations(y: ArrayLike, n: int, n_outputs: int, likelihood: Likelihood, dtype: DTypeLike) -> np.ndarray:
    """Return ``y`` in the form that the likelihood takes. Raises ShapeError or ValueError."""
    if isinstance(likelihood, Gaussian):
        y = finite("y", y)
        y = y[:, None] if y.ndim == 1 else y
        if y.shape != (n, n_outputs):
            raise ShapeError(f"y must have shape ({n}, {n_outputs}), one row per row of X; got {y.shape}.")
        return in_precision("y", y, dtype)
    refuse_masked("y", y)
    y = np.asarray(y)
    if y.shape != (n,):
        raise ShapeError(f"y must have shape ({n},), one label per row of X; got {y.shape}.")
    n_classes = 2 if isinstance(likelihood, Bernoulli) else n_outputs
    y = labels(y, n_classes)
    return y.astype(dtype) if n_outputs == 1 else y


def network_model(
    of: Design, X: np.ndarray, y: np.ndarray, share: float = 1.0, names: Sequence[str] | None = None
) -> Model:
    """Return the model of checked inputs (n, ...) and observations, with ``share`` of the log prior.

    ``names`` are those of the whole model for a part, so that many parts of a large network share the strings.
    """
    names = names or [f"{name}[{i}]" for name, size in sizes(of) for i in range(size)]
    precisions = np.concatenate(
        [np.full(layer.size, share * p) for layer, p in zip(of.weighted, of.prior_precision, strict=True)]
    )
    posterior = Posterior(of.layers, of.likelihood, precisions, of.dtype, of.batch)
    d = posterior.dim
    order_of = {
        "hessian": 2,
        "fisher": 2,
        "third_derivative": 3,
        "fisher_derivative": 3,
        "hessian_contraction": 2,
        "fisher_contraction": 2,
    }
    absent = {key: too_large(d, order) for key, order in order_of.items() if d**order > MOST}
    derivatives: dict[str, Any] = {key: None if key in absent else getattr(posterior, key) for key in order_of}
    return Model(
        d,
        posterior.log_density,
        value_and_gradient=posterior.value_and_gradient,
        **derivatives,
        data=(X, y),
        names=names,
        constrain=partial(by_layer, of),
        name=of.name,
        initial=partial(random_weights, of),
        in_python=IN_PYTHON,
        absent=absent,
        n_rows=len(X),
        part=partial(share_of, of, X, y, share, names),
        outputs=partial(outputs_of, of, posterior),
        likelihood=of.likelihood,
        on_arrays=partial(NetworkOnArrays, of.layers, of.likelihood, precisions, of.dtype, of.name, X, y),
    )


def too_large(d: int, order: int) -> str:
    """Return why d weights have no derivative with d^order numbers in an array."""
    return f"for {d:,} weights it would take {d**order / 2**27:,.1f} GiB, and the limit is {MOST / 2**27:g} GiB"


def share_of(
    of: Design, X: np.ndarray, y: np.ndarray, prior: float, names: Sequence[str], rows: np.ndarray, share: float
) -> Model:
    """Return the same network on some rows; rows of a slice are not copied."""
    start = int(rows[0]) if len(rows) else 0
    run = slice(start, start + len(rows)) if np.array_equal(rows, np.arange(start, start + len(rows))) else rows
    return network_model(of, X[run], y[run], prior * share, names)


def outputs_of(of: Design, posterior: Posterior, q: np.ndarray, X: ArrayLike) -> np.ndarray:
    """Return f(X; q), (n, outputs), for X as users give it. Raises ShapeError."""
    X = images(X) if len(of.shape) == 3 else rows_of(X, of.shape[0])
    if X.shape[1:] != of.shape:
        raise ShapeError(
            f"X must hold images of shape {of.shape} (height, width, channels), as the data; got {X.shape[1:]}."
        )
    return posterior.outputs(np.asarray(q), in_precision("X", X, of.dtype))


def sizes(of: Design) -> list[tuple[str, int]]:
    """Return ``W1``, ``b1``, ...: the arrays of weights in the order of the coordinates, each with its size."""
    shapes = [(f"{key}{k}", shape) for k, layer in enumerate(of.weighted, 1) for key, shape in layer.shapes().items()]
    return [(name, int(np.prod(shape))) for name, shape in shapes]


def by_layer(of: Design, q: np.ndarray) -> dict[str, np.ndarray]:
    """Return the weights (..., d) as the arrays of the layers."""
    arrays, start = {}, 0
    for k, layer in enumerate(of.weighted, 1):
        for key, shape in layer.shapes().items():
            stop = start + int(np.prod(shape))
            arrays[f"{key}{k}"] = q[..., start:stop].reshape(*q.shape[:-1], *shape)
            start = stop
    return arrays


def random_weights(of: Design, rng: np.random.Generator) -> np.ndarray:
    """Return a start (d,): uniform weights within one over the root of the number of inputs, the rule of PyTorch."""
    parts = []
    for layer in of.weighted:
        bound = 1 / np.sqrt(layer.size // next(iter(layer.shapes().values()))[0] - 1)
        parts.append(rng.uniform(-bound, bound, layer.size))
    return np.concatenate(parts)

"""A finite distribution on a grid of integers, embedded in R^d. The log density is constant except for jumps.

With a_n = n or a_n = log(n + 1) (:mod:`refhmc.models.embedding`), ::

    P(N = n) = w[n] / sum w,   n_i = 0, ..., K_i - 1          L(x) = log w[n(x)] - sum_i log(a_{n_i + 1} - a_{n_i})

All its properties can be enumerated.

The data are one row: 1 for a_n = log(n + 1) or 0 for a_n = n, then K_1 ... K_d, then log w in C order.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit
from refhmc.core.arguments import array_of_numbers
from refhmc.errors import ShapeError
from refhmc.models.base import Model
from refhmc.models.embedding import Embedding, linear_integer, log_integer, log_log_width
from refhmc.models.recipe import recreatable
from refhmc.models.reference import Reference

SHIFT = 1


@jit
def integer(x: float, data: np.ndarray) -> int:
    """Return the n of one coordinate."""
    return log_integer(x, SHIFT) if data[0, 0] != 0 else linear_integer(x)


@jit
def log_width(n: int, data: np.ndarray) -> float:
    return log_log_width(n, SHIFT) if data[0, 0] != 0 else 0.0


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    d = q.shape[0]
    place, widths = 0, 0.0
    for i in range(d):
        n, size = integer(q[i], data), int(data[0, 1 + i])
        if n < 0 or n >= size:
            return -math.inf
        place = place * size + n
        widths += log_width(n, data)
    return data[0, 1 + d + place] - widths


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    out[:] = 0.0
    return log_density(q, data)


@jit
def log_density_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float) -> float:
    d = q.shape[0]
    n, before = integer(new_value, data), integer(q[j], data)
    if n < 0 or n >= int(data[0, 1 + j]):
        return -math.inf
    place, stride = 0, 1
    for i in range(d - 1, -1, -1):
        place += stride * integer(q[i], data)
        if i == j:
            move = stride * (n - before)
        stride *= int(data[0, 1 + i])
    first = 1 + d + place
    return data[0, first + move] - data[0, first] - log_width(n, data) + log_width(before, data)


def constrain(q: np.ndarray, embedding: Embedding) -> dict:
    return {"n": embedding.integers(q)}


def draw(rng: np.random.Generator, n_draws: int, probabilities: np.ndarray, embedding: Embedding) -> np.ndarray:
    """Return (n_draws, d) independent positions."""
    places = rng.choice(probabilities.size, size=n_draws, p=probabilities.ravel())
    cells = np.stack(np.unravel_index(places, probabilities.shape), axis=1)
    return embedding.draw_position(rng, cells)


@recreatable
def CellGrid(weights: ArrayLike | None = None, a: str = "n") -> Model:
    """Return a distribution of integers on a grid, embedded in R^d.

    The model is ::

        P(N = n) = w[n] / sum w,   n_i = 0, ..., K_i - 1

    with the embedding of :class:`refhmc.Embedding`. All coordinates are discontinuous. The variable is ``n``, of shape (d,).

    Parameters
    ----------
    weights : array_like of shape (K_1, ..., K_d), optional
        Positive weights w, with at most 8 axes. Defaults to 1 + ((3 i + 5 j) mod 7) on a grid of 4 x 5.
    a : {"n", "log n"}, default "n"
        Borders of the cells: a_n = n or a_n = log(n + 1).

    Returns
    -------
    Model
        The model, with exact moments and draws in ``reference``.

    Raises
    ------
    refhmc.errors.ShapeError
        If `weights` has no axis, an empty axis or more than 8 axes.
    ValueError
        If a weight is not positive and finite, or `a` is neither "n" nor "log n".

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.CellGrid([1.0, 3.0])
    >>> model.reference.mean.tolist(), model.discontinuous.tolist()
    ([0.75], [0])
    """
    if weights is None:
        i, j = np.indices((4, 5))
        weights = 1.0 + (3 * i + 5 * j) % 7
    w = array_of_numbers("weights", weights)
    if not 1 <= w.ndim <= 8 or w.size == 0:
        raise ShapeError(f"weights must have one to eight axes, none of them empty; got shape {w.shape}.")
    if not (np.isfinite(w).all() and (w > 0).all()):
        raise ValueError("weights must be positive and finite; leave out cells of probability zero.")
    d, probabilities = w.ndim, w / w.sum()
    embedding = Embedding((0, None), a=a)
    cells = np.indices(w.shape).reshape(d, -1)
    mean = cells @ probabilities.ravel()
    best = np.array(np.unravel_index(int(np.argmax(w)), w.shape))
    return Model(
        d,
        log_density,
        value_and_gradient=value_and_gradient,
        data=np.concatenate([[float(a == "log n")], w.shape, np.log(probabilities).ravel()]).reshape(1, -1),
        names=[f"x[{i}]" for i in range(d)],
        constrain=functools.partial(constrain, embedding=embedding),
        discontinuous=range(d),
        log_density_change=log_density_change,
        initial=embedding.embed(best),
        name="cell-grid",
        reference=Reference(
            source="enumeration",
            mean=mean,
            variance=((cells - mean[:, None]) ** 2) @ probabilities.ravel(),
            draw=functools.partial(draw, probabilities=probabilities, embedding=embedding),
        ),
    )

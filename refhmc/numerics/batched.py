"""Vectors and matrices with their leading axes left free, ``(..., d)`` and ``(..., d, d)``: what the texts on arrays are
written with (:mod:`refhmc.arrays`), for any namespace of the Python array API.

Nothing is written in place, and a row that has no answer is NaN and leaves the others alone: no function here raises for the
numbers in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any  # of a namespace of the array API

LAST_BITS = 4 * float(np.finfo(float).eps)


def namespace(x: Array) -> Any:
    """The functions that go with an array: NumPy's, JAX's, CuPy's ..."""
    return x.__array_namespace__()


def dot(x: Array, y: Array) -> Array:
    """x'y, (...)"""
    return namespace(x).sum(x * y, axis=-1)


def outer(x: Array, y: Array) -> Array:
    """x y', (..., d, d)"""
    return x[..., :, None] * y[..., None, :]


def times(A: Array, x: Array) -> Array:
    """A x, (..., d)"""
    return (A @ x[..., None])[..., 0]


def rows_times(x: Array, A: Array) -> Array:
    """x'A, (..., k), for one matrix A (d, k): one product for all rows"""
    if x.ndim <= 2:
        return x @ A
    xp = namespace(x)
    return xp.reshape(xp.reshape(x, (-1, x.shape[-1])) @ A, (*x.shape[:-1], A.shape[-1]))


def diagonal_matrix(x: Array) -> Array:
    """(..., d, d) with x on its diagonal"""
    return x[..., None] * namespace(x).eye(x.shape[-1], dtype=x.dtype)


def join(q: Array, p: Array) -> Array:
    """z = (q, p), (..., 2d)"""
    return namespace(q).concat([q, p], axis=-1)


def split(z: Array) -> tuple[Array, Array]:
    """q and p of z = (q, p)"""
    d = z.shape[-1] // 2
    return z[..., :d], z[..., d:]


def pick(x: Array, index: Array) -> Array:
    """x[..., index], another ``index`` (...), a whole number, for each row"""
    xp = namespace(x)
    here = xp.arange(x.shape[-1], dtype=index.dtype) == index[..., None]
    return xp.sum(xp.where(here, x, xp.zeros_like(x)), axis=-1)


def random_order(J: Sequence[int], uniforms: Array) -> Array:
    """A random order of the n indices J, (..., n), from n - 1 uniforms (..., n - 1): Fisher and Yates."""
    xp, n = namespace(uniforms), len(J)
    place = xp.arange(n, dtype=uniforms.dtype)
    order = xp.asarray(J, dtype=xp.int64) + xp.zeros((*uniforms.shape[:-1], n), dtype=xp.int64)
    for k in range(n - 1, 0, -1):
        other = xp.floor(uniforms[..., n - 1 - k] * (k + 1))
        at_other, at_k = pick(order, other)[..., None], order[..., k : k + 1]
        order = xp.where(place == k, at_other, xp.where(place == other[..., None], at_k, order))
    return order


def solve(A: Array, b: Array) -> Array:
    """A^-1 b, (..., d)"""
    return namespace(A).linalg.solve(A, b[..., None])[..., 0]


def cholesky(G: Array) -> Array:
    """L, lower, with L L' = G; NaN where G is not positive definite."""
    xp, d = namespace(G), G.shape[-1]
    columns: list[Array] = []
    for j in range(d):
        c = G[..., :, j]
        for L_k in columns:
            c = c - L_k * L_k[..., j : j + 1]
        c = xp.where(xp.arange(d) < j, 0.0 * c, c)
        columns.append(c / xp.sqrt(c[..., j : j + 1]))
    return xp.stack(columns, axis=-1)


def eigh(H: Array) -> tuple[Array, Array]:
    """Eigenvalues (..., d) and eigenvectors (columns) of symmetric matrices; NaN where H is not finite."""
    xp = namespace(H)
    finite = xp.all(xp.isfinite(H), axis=(-2, -1))
    values, vectors = xp.linalg.eigh(xp.where(finite[..., None, None], H, xp.eye(H.shape[-1], dtype=H.dtype)))
    return xp.where(finite[..., None], values, xp.nan), vectors


def fixed_point(equation: Callable, start: Array, tolerance: float = 1e-6, max_iterations: int = 100) -> Array:
    """x = equation(x), from ``start`` by x_{k+1} = equation(x_k), until no coordinate of a row changes by more than the
    tolerance, or its last bits.

    A row that has converged, or is not finite, stays as it is while the others go on. NaN in those that have not converged
    after ``max_iterations``.
    """
    xp = namespace(start)
    x = start
    going = xp.ones(x.shape[:-1], dtype=xp.bool)
    solved = ~going
    for _ in range(max_iterations):
        image = equation(x)
        change = xp.abs(image - x)
        close = xp.all((change <= tolerance) | (change <= LAST_BITS * xp.abs(x)), axis=-1)
        x = xp.where(going[..., None], image, x)
        solved = solved | (going & close)
        going = going & ~close & xp.all(xp.isfinite(image), axis=-1)
        if not xp.any(going):
            break
    return xp.where(solved[..., None], x, xp.nan)


def iterate(equation: Callable, start: Array, iterations: int) -> Array:
    """:func:`fixed_point` with a fixed number of iterations, whether or not it has converged by then."""
    for _ in range(iterations):
        start = equation(start)
    return start

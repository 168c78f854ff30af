"""Vectors and matrices with free leading axes, ``(..., d)`` and ``(..., d, d)``, for any namespace of the Python array API.

The array implementations (:mod:`refhmc.array_api`) are written with these functions. They write nothing in place. A row without
a result is NaN and does not affect the others, so that no function raises because of the values in an array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

Array = Any  # of a namespace of the array API

LAST_BITS = 4 * float(np.finfo(float).eps)
UNCONVERGED = 1e-5  # residual of eigenvectors relative to the largest eigenvalue, also in float32


def namespace(x: Array) -> ModuleType:
    """Return the functions that belong to an array: NumPy's, JAX's, or else those of array-api-compat."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    import array_api_compat

    return array_api_compat.array_namespace(x)


def to_host(x: Array) -> np.ndarray:
    """Return an array as a NumPy array."""
    return x.get() if hasattr(x, "get") else np.asarray(x)


def elementwise(function: Callable) -> Callable:
    """Return ``function(xp, x, ...)`` of x, ..., which CuPy makes as one kernel.

    The function may use operators, and those functions of the namespace that work entry by entry.
    """

    @functools.cache
    def on(xp: ModuleType) -> Callable:
        def of_namespace(*arguments: Any) -> Any:
            return function(xp, *arguments)

        return xp.fuse(of_namespace) if hasattr(xp, "fuse") else of_namespace

    @functools.wraps(function)
    def call(x: Array, *more: Any) -> Array:
        return on(namespace(x))(x, *more)

    return call


def once(method: Callable) -> Callable:
    """Return ``method(self, q)`` that is computed once for the same array ``q``, if ``self.model`` remembers results.

    See :class:`refhmc.batch.memory.Remembering`.
    """

    @functools.wraps(method)
    def at(self: Any, q: Array) -> Array:
        remember = getattr(self.model, "remember", None)
        return method(self, q) if remember is None else remember(method.__name__, q, functools.partial(method, self, q))

    return at


def kept(method: Callable) -> Callable:
    """Return ``method(self, q)`` that is computed once, since it only depends on the namespace, shape and dtype of q."""

    @functools.wraps(method)
    def constant(self: Any, q: Array) -> Array:
        keep = getattr(self.model, "keep", None)
        return method(self, q) if keep is None else keep(method.__name__, functools.partial(method, self, q))

    return constant


def dot(x: Array, y: Array) -> Array:
    """Return x'y, (...)."""
    xp = namespace(x)
    if (
        xp is np and x.dtype.kind == "f"
    ):  # in one pass, and four to nine times faster; for complex numbers vecdot is another product
        return np.vecdot(x, y)
    return xp.sum(x * y, axis=-1)


def outer(x: Array, y: Array) -> Array:
    """Return x y', (..., d, d)."""
    return x[..., :, None] * y[..., None, :]


def transpose(A: Array) -> Array:
    """Return A', (..., k, d); CuPy before 14 has no A.mT."""
    return A.mT if hasattr(A, "mT") else namespace(A).matrix_transpose(A)


def times(A: Array, x: Array) -> Array:
    """Return A x, (..., d)."""
    return (A @ x[..., None])[..., 0]


def rows_times(x: Array, A: Array) -> Array:
    """Return x'A, (..., k), for one matrix A (d, k), as one product for all rows."""
    if x.ndim <= 2:
        return x @ A
    xp = namespace(x)
    return xp.reshape(xp.reshape(x, (-1, x.shape[-1])) @ A, (*x.shape[:-1], A.shape[-1]))


def diagonal_matrix(x: Array) -> Array:
    """Return matrices (..., d, d) with x on their diagonals."""
    return x[..., None] * namespace(x).eye(x.shape[-1], dtype=x.dtype)


def join(q: Array, p: Array) -> Array:
    """Return z = (q, p), (..., 2d)."""
    return namespace(q).concat([q, p], axis=-1)


def split(z: Array) -> tuple[Array, Array]:
    """Return q and p of z = (q, p)."""
    d = z.shape[-1] // 2
    return z[..., :d], z[..., d:]


def pick(x: Array, index: Array) -> Array:
    """Return x[..., index], with a whole number ``index`` (...) for each row."""
    xp = namespace(x)
    here = xp.arange(x.shape[-1], dtype=index.dtype) == index[..., None]
    return xp.sum(xp.where(here, x, xp.zeros_like(x)), axis=-1)


def random_order(J: Sequence[int], uniforms: Array) -> Array:
    """Return a random order of the n indices J, (..., n), from n - 1 uniforms (..., n - 1) (Fisher and Yates)."""
    xp, n = namespace(uniforms), len(J)
    place = xp.arange(n, dtype=uniforms.dtype)
    order = xp.asarray(J, dtype=xp.int64) + xp.zeros((*uniforms.shape[:-1], n), dtype=xp.int64)
    for k in range(n - 1, 0, -1):
        other = xp.floor(uniforms[..., n - 1 - k] * (k + 1))
        at_other, at_k = pick(order, other)[..., None], order[..., k : k + 1]
        order = xp.where(place == k, at_other, xp.where(place == other[..., None], at_k, order))
    return order


def solve(A: Array, b: Array) -> Array:
    """Return A^-1 b, (..., d)."""
    xp = namespace(A)
    if A.shape[:-1] != b.shape:  # CuPy's solve does not broadcast
        A = xp.broadcast_to(A, (*b.shape, b.shape[-1]))
    return xp.linalg.solve(A, b[..., None])[..., 0]


def cholesky(G: Array) -> Array:
    """Return L, lower, with L L' = G; NaN if G is not positive definite.

    Column by column, L_j = (G_j - sum_{k<j} L_k L_jk) / its j-th entry^(1/2), where the sum is a matrix times a vector.
    The factorisations of NumPy and CuPy raise an error, or return numbers, if one matrix of many has no factor.
    """
    xp, d = namespace(G), G.shape[-1]
    L = xp.zeros_like(G[..., :, :0])
    for j in range(d):
        c = G[..., :, j] - times(L, L[..., j, :])
        c = xp.where(xp.arange(d) < j, 0.0 * c, c)
        L = xp.concat([L, (c / xp.sqrt(c[..., j : j + 1]))[..., None]], axis=-1)
    return L


def eigh(H: Array) -> tuple[Array, Array]:
    """Return eigenvalues (..., d) and eigenvectors (columns) of symmetric matrices; NaN if H is not finite, or without result.

    NumPy raises an error if the iteration does not converge. CuPy returns numbers, so that H Q = Q diag(values) is checked.
    """
    xp = namespace(H)
    right = xp.all(xp.isfinite(H), axis=(-2, -1))
    H = xp.where(right[..., None, None], H, xp.eye(H.shape[-1], dtype=H.dtype))
    values, vectors = xp.linalg.eigh(H)
    if xp is not np:
        gap, size = xp.abs(H @ vectors - vectors * values[..., None, :]), xp.max(xp.abs(values), axis=-1)
        right = right & (xp.max(gap, axis=(-2, -1)) <= UNCONVERGED * size)
    return xp.where(right[..., None], values, xp.nan), vectors


def fixed_point(
    equation: Callable,
    start: Array,
    *known: Array,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    record: Callable | None = None,
    blame: Callable | None = None,
    accelerate: Callable | None = None,
) -> Array:
    """Solve ``x = equation(x, *known)`` for each row by fixed-point iteration.

    The iteration is ``x_{k+1} = equation(x_k, *known)``. A row stops when no coordinate changes by more than the tolerance or
    its last bits, or when it is not finite. When fewer than half of the rows continue, only these are evaluated.

    Parameters
    ----------
    equation : callable
        Function from x (..., d) and the arrays `known` to an array (..., d).
    start : array, shape (..., d)
        First iterate x_0.
    *known : arrays
        Further arguments of the equation, with the rows of x or without rows.
    tolerance : float, default 1e-6
        Largest change of a coordinate, in absolute terms, at which a row is solved.
    max_iterations : int, default 100
        Maximum number of iterations.
    record : callable, optional
        Called with arrays (...): whether each row is solved, its iterations, and its last change.
    blame : callable, optional
        Returns the rows, of those last evaluated, in which the metric is the reason that an image is not finite. `record` is
        called with these rows, too.
    accelerate : callable, optional
        Computes the next iterate. By default this is the image.

    Returns
    -------
    array, shape (..., d)
        The solutions, NaN in rows that are not solved after `max_iterations`.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> refhmc.array_api.fixed_point(np.cos, np.ones((2, 1))).round(4)
    array([[0.7391],
           [0.7391]])
    """
    x, *found, blamed = iterated(equation, start, known, tolerance, max_iterations, blame, accelerate)
    solved = found[0]
    if record is not None:
        record(*found, *(() if blame is None else (blamed,)))
    xp = namespace(start)
    return xp.where(solved[..., None], x, xp.nan)


def iterated(
    equation: Callable,
    x: Array,
    known: Sequence,
    tolerance: float,
    most: int,
    blame: Callable | None = None,
    accelerate: Callable | None = None,
    history: Any = None,
) -> tuple:
    """Return the last iterates (..., d) and, for each row (...), whether it is solved, its iterations, and its last change.

    The last change is set if the row is solved. A fifth result is whether the metric is to blame. ``history`` is the last
    one that ``accelerate`` returned.
    """
    xp = namespace(x)
    going = xp.ones(x.shape[:-1], dtype=xp.bool)
    blamed = ~going
    solved, iterations, residual = ~going, xp.zeros(x.shape[:-1], dtype=x.dtype), xp.zeros(x.shape[:-1], dtype=x.dtype)
    for k in range(1, most + 1):
        image = equation(x, *known)
        change = xp.abs(image - x)
        close = xp.all((change <= tolerance) | (change <= LAST_BITS * xp.abs(x)), axis=-1)
        following, broken = image, going & ~xp.all(xp.isfinite(image), axis=-1)
        if accelerate is not None:
            following, history, back = accelerate(x, image, ~broken, history)
            following, broken = xp.where(close[..., None], image, following), broken & ~back
        x = xp.where(going[..., None], following, x)
        solved = solved | (going & close)
        iterations = xp.where(going, iterations + 1, iterations)
        residual = xp.where(going & close, xp.max(change, axis=-1), residual)
        if blame is not None and xp.any(broken):
            blamed = blamed | (broken & blame())
        if accelerate is not None:
            broken = broken | ~xp.all(xp.isfinite(x), axis=-1)
        going = going & ~close & ~broken
        n = int(xp.sum(xp.astype(going, xp.int64)))
        if n == 0:
            break
        if 2 * n < going.size and k < most:
            (rows,) = xp.nonzero(xp.reshape(going, (-1,)))
            some = [rows_of(value, going.shape, rows) for value in (x, *known)]
            if history is not None:
                history = history.of_rows(functools.partial(rows_of, shape=going.shape, rows=rows))
            rest = iterated(equation, some[0], some[1:], tolerance, most - k, blame, accelerate, history)
            x, solved = in_place_of(going, rest[0], x), in_place_of(going, rest[1], solved)
            iterations = in_place_of(going, rest[2], 0 * iterations) + iterations
            residual, blamed = in_place_of(going, rest[3], residual), in_place_of(going, rest[4], blamed)
            break
    return x, solved, iterations, residual, blamed


def rows_of(value: Array, shape: tuple, rows: Array) -> Array:
    """Return the ``rows`` (r,), counted through the leading ``shape``, of an array (..., k), as (r, k).

    Values that are equal for all rows are returned unchanged.
    """
    if getattr(value, "ndim", 0) < 2:
        return value
    xp, k = namespace(rows), value.shape[-1]
    return xp.take(xp.reshape(xp.broadcast_to(value, (*shape, k)), (-1, k)), rows, axis=0)


def in_place_of(mask: Array, rows: Array, x: Array) -> Array:
    """Return x with its rows at the mask replaced by ``rows`` (r, ...)."""
    xp = namespace(x)
    place = xp.cumulative_sum(xp.reshape(xp.astype(mask, xp.int64), (-1,))) - 1
    taken = xp.reshape(xp.take(rows, xp.where(place > 0, place, 0), axis=0), x.shape)
    return xp.where(mask if x.ndim == mask.ndim else mask[..., None], taken, x)


def iterate(equation: Callable, start: Array, *known: Array, iterations: int) -> Array:
    """Apply an equation a fixed number of times, whether or not the iteration converges.

    Parameters
    ----------
    equation : callable
        Function from x (..., d) and the arrays `known` to an array (..., d).
    start : array, shape (..., d)
        First iterate.
    *known : arrays
        Further arguments of the equation.
    iterations : int
        Number of iterations.

    Returns
    -------
    array, shape (..., d)
        The last iterate.

    See Also
    --------
    fixed_point : Iterates until convergence.
    """
    for _ in range(iterations):
        start = equation(start, *known)
    return start

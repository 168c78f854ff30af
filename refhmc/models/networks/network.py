"""A network on data: the log posterior of its weights, and its derivatives by backpropagation.

The log posterior is ::

    L(w) = sum_n log p(y_n | f(x_n; w)) - 1/2 sum_l lambda_l |w_l|^2

f is a chain of layers (:mod:`refhmc.models.networks.layers`), lambda_l the prior precision of the weights of layer l, and
log p one of :mod:`refhmc.models.networks.likelihoods`. In the forward pass, each layer computes its output and stores what
the backward pass needs. In the backward pass, from df, each layer computes the derivatives by its weights and by its input.
Applied to expansions of w along u and v (:mod:`refhmc.models.networks.expansion`), the same program gives the gradient g and ::

    g_u  = H u                        H the Hessian of L
    g_uv = sum_ij u_i v_j T_ij.       T its derivative
    hessian_contraction(M) = sum_i g_uv with u = e_i, v the i-th row of M

The Fisher metric is that of Gauss-Newton. With J_i = df/dw_i from the forward pass, and V the information of the likelihood, ::

    G_ij = sum_n J_i' V J_j + lambda_i delta_ij
    dG_ij/dw_k = sum_n J_ik' V J_j + J_i' V J_jk + J_i' V_k J_j          J_ik = d^2 f / dw_i dw_k

The contraction of its derivative needs no J_ik. A backward pass along u = e_i from the derivatives of the outputs
f_bar = V (M J + M' J)_i and f_bar_u = J_i' V_f (M J)_i, which are held fixed, gives f_bar' J_ik + f_bar_u' J_k. The sum over
i is the contraction.

Sums over the data run in batches, and passes along many directions in blocks, one after another. The size of an array is
limited to the largest of the numbers of one batch, ``LARGEST``, and one row along one direction. In float32 the weights, the
data and the arithmetic of the layers are in single precision; sums over batches, the log density and the prior are in double
precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refhmc.models.networks.expansion import Expansion, constant, linear
from refhmc.models.networks.layers import Convolution, reshaped
from refhmc.models.networks.likelihoods import Likelihood, slope
from refhmc.models.on_arrays import ArrayImplementation, in_dtype_of, keep_what_is_freed, where_finite
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, namespace

# Limit of the numbers in an array of a pass along many directions, if one direction allows it.
LARGEST = 2**22


def forward(layers: Sequence, w: Expansion, x: Expansion) -> tuple[Expansion, list]:
    """Return f(x; w) and the values that each layer stores."""
    kept, start = [], 0
    for layer in layers:
        part = linear(lambda w, a=start, b=start + layer.size: w[..., a:b], w)  # type: ignore[misc]
        x, own = layer.forward(part, x)
        kept.append(own)
        start += layer.size
    return x, kept


def backward(layers: Sequence, kept: list, f_bar: Expansion) -> list[Expansion]:
    """Return dL/dw of each layer that has weights, from dL/df."""
    w_bars: list[Expansion] = []
    bar = f_bar
    first = next(k for k, layer in enumerate(layers) if layer.size)
    for k in reversed(range(first, len(layers))):
        bar, w_bar = layers[k].backward(kept[k], bar, wants_x=k > first)
        if w_bar is not None:
            w_bars.insert(0, w_bar)
    return w_bars


def stacked(w_bars: list[Expansion], k: int) -> Array:
    """Return entry k of the derivatives of all layers in one vector, (..., d)."""
    parts = [w_bar[k] for w_bar in w_bars]
    xp = namespace(w_bars[0][0])
    lead = np.broadcast_shapes(*(part.shape[:-1] for part in parts if part is not None))
    sizes = [w_bar[0].shape[-1] for w_bar in w_bars]
    whole = [
        xp.zeros((*lead, size), dtype=w_bars[0][0].dtype) if part is None else xp.broadcast_to(part, (*lead, size))
        for part, size in zip(parts, sizes, strict=True)
    ]
    return whole[0] if len(whole) == 1 else xp.concat(whole, axis=-1)


def fisher_bar(likelihood: Likelihood, f: Array, J: Array, M: Array) -> Expansion:
    """Return V (M J + M' J)_i and J_i' V_f (M J)_i, the second None if V does not depend on f.

    f is (..., n, outputs), J (..., d, n, outputs) and M (..., d, d).
    """
    xp = namespace(J)
    flat = reshaped(J, 2, J.shape[-2] * J.shape[-1])
    MJ, both = (xp.reshape(A, J.shape) for A in (M @ flat, M @ flat + batched.transpose(M) @ flat))
    eye, slopes = xp.eye(f.shape[-1], dtype=f.dtype), []
    for k in range(f.shape[-1]):
        V_k = likelihood.information(likelihood.mean((f, xp.broadcast_to(eye[k, ...], f.shape))), (MJ, None))[1]
        slopes.append(None if V_k is None else xp.sum(J * V_k, axis=-1))
    bent = None if slopes[0] is None else xp.stack(slopes, axis=-1)
    return likelihood.information(likelihood.mean((f,)), (both,))[0], bent


class NetworkOnArrays(ArrayImplementation):
    """The array implementation for weights (..., d). The first layer is one matrix product for all positions.

    ``precisions`` (d,) are those of the prior. The layers compute in ``dtype``; sums over the data and results have the
    dtype of q. ``largest`` limits the numbers in an array, if a single row of the data allows it.
    """

    def __init__(
        self,
        layers: Sequence,
        likelihood: Likelihood,
        precisions: np.ndarray,
        dtype: DTypeLike,
        name: str,
        X: np.ndarray,
        y: np.ndarray,
        xp: ModuleType = np,
    ) -> None:
        self.layers, self.likelihood, self.name, self.dim = layers, likelihood, name, len(precisions)
        self.precisions, self.X, self.y = xp.asarray(precisions), xp.asarray(X), xp.asarray(y)
        self.dtype = getattr(xp, np.dtype(dtype).name)
        self.largest = 2**20 if xp is np else 2**26  # fits into the cache of a processor, or occupies a GPU
        self.width = width(layers, X.shape[1:])

    def batches(self, n: int) -> Iterator[tuple[Array, Array]]:
        """Yield inputs and observations, with as many rows at a time as ``largest`` allows for n networks."""
        total, rows = self.X.shape[0], max(1, self.largest // max(1, n * self.width))
        for start in range(0, total, rows):
            stop = min(start + rows, total)
            yield self.X[start:stop, ...], self.y[start:stop, ...]

    def weights(self, q: Array, *directions: Array | None) -> Expansion:
        return linear(lambda w: namespace(q).astype(w, self.dtype), (q, *directions))

    def log_density(self, q: Array) -> Array:
        xp, (precisions,), w = namespace(q), in_dtype_of(q, self.precisions), self.weights(q)
        L = -0.5 * batched.dot(q, precisions * q)
        for X, y in self.batches(math.prod(q.shape[:-1])):
            f, _ = forward(self.layers, w, (X,))
            L = L + xp.sum(self.likelihood.log_density(f[0], y), axis=-1, dtype=q.dtype)
        return L

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        xp, (precisions,), w = namespace(q), in_dtype_of(q, self.precisions), self.weights(q)
        gradient = -precisions * q
        L = 0.5 * batched.dot(q, gradient)
        for X, y in self.batches(math.prod(q.shape[:-1])):
            f, kept = forward(self.layers, w, (X,))
            L = L + xp.sum(self.likelihood.log_density(f[0], y), axis=-1, dtype=q.dtype)
            more = stacked(backward(self.layers, kept, slope(self.likelihood, f, y)), 0)
            gradient = gradient + xp.astype(more, q.dtype, copy=False)
        return L, gradient

    def gradient_along(self, q: Array, *directions: Array) -> Array:
        """Return the gradient of the likelihood differentiated along d directions each, or along pairs of them, (..., d, d)."""
        xp, order = namespace(q), len(directions)
        w = self.weights(q[..., None, :], *directions, *[None] * (2**order - 1 - order))
        total = xp.zeros((*q.shape, self.dim), dtype=q.dtype)
        for X, y in self.batches(math.prod(q.shape)):
            f, kept = forward(self.layers, w, constant(X, order))
            more = stacked(backward(self.layers, kept, slope(self.likelihood, f, y)), 2**order - 1)
            total = total + xp.astype(more, q.dtype, copy=False)
        return total

    def prior(self, q: Array) -> Array:
        """Return the precision matrix of the prior, (d, d)."""
        return batched.diagonal_matrix(*in_dtype_of(q, self.precisions))

    def hessian(self, q: Array) -> Array:
        H = self.gradient_along(q, namespace(q).eye(self.dim, dtype=q.dtype))
        return where_finite(q, H - self.prior(q), 2)

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        xp = namespace(q)
        return where_finite(q, xp.sum(self.gradient_along(q, xp.eye(self.dim, dtype=q.dtype), M), axis=-2), 1)

    def with_jacobian(self, q: Array, X: Array) -> tuple[Array, Array, list]:
        """Return f (..., 1, n, outputs), J (..., d, n, outputs) in the dtype of q, and the values that each layer stores."""
        xp = namespace(q)
        w = self.weights(q[..., None, :], xp.eye(self.dim, dtype=q.dtype))
        outputs, kept = forward(self.layers, w, constant(X, 1))
        f, J = linear(lambda x: xp.astype(x, q.dtype, copy=False), outputs)
        return f, xp.broadcast_to(J, (*q.shape, *J.shape[-2:])), kept

    def fisher(self, q: Array) -> Array:
        xp, G = namespace(q), self.prior(q)
        for X, _ in self.batches(math.prod(q.shape)):
            f, J, _ = self.with_jacobian(q, X)
            VJ = self.likelihood.information(self.likelihood.mean((f,)), (J,))[0]
            J, VJ = (xp.reshape(a, (*a.shape[:-2], a.shape[-2] * a.shape[-1])) for a in (J, VJ))
            G = G + J @ batched.transpose(VJ)
        return where_finite(q, G, 2)

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        xp, total = namespace(q), namespace(q).zeros_like(q)
        for X, _ in self.batches(math.prod(q.shape)):
            f, J, kept = self.with_jacobian(q, X)
            f_bar = self.weights(*fisher_bar(self.likelihood, f, J, M))
            more = stacked(backward(self.layers, kept, f_bar), 1)
            total = total + xp.sum(xp.broadcast_to(more, (*q.shape, self.dim)), axis=-2, dtype=q.dtype)
        return where_finite(q, total, 1)


def width(layers: Sequence, shape: tuple[int, ...]) -> int:
    """Return the largest number of values of one row of data in any layer."""
    most = math.prod(shape)
    for layer in layers:
        before, shape, patches = shape, layer.shape_after(shape), 0
        if isinstance(layer, Convolution):
            patches = layer.channels * layer.rows * layer.side * (before[0] - layer.rows + 1) * shape[1]
        most = max(most, math.prod(shape), patches)
    return most


# Extreme weights overflow. The density is then -inf or NaN, which the chain reports as a divergence.
quiet = np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True)
class Posterior:
    """The functions (q, data) of a model, with data = (inputs, observations).

    ``precisions`` (d,) are those of the prior; ``batch`` is the number of rows at a time. The methods take weights (d,) in
    float64, and return float64.
    """

    layers: tuple
    likelihood: Likelihood
    precisions: np.ndarray
    dtype: np.dtype
    batch: int

    def __post_init__(self) -> None:
        keep_what_is_freed()

    @property
    def dim(self) -> int:
        return len(self.precisions)

    def batches(self, data: tuple, directions: int = 1) -> Iterator[tuple[Array, Array]]:
        """Yield inputs and observations, with as many rows at a time as one batch allows for the number of directions."""
        X, y = data
        rows = max(1, self.batch // directions)
        for start in range(0, len(X), rows):
            yield X[start : start + rows], y[start : start + rows]

    def outputs(self, q: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return f(X; q), (..., n, k), for positions (..., d), all rows at once."""
        return forward(self.layers, (q.astype(self.dtype),), (X,))[0][0]

    @quiet
    def log_density(self, q: np.ndarray, data: tuple) -> float:
        """Return L(q)."""
        w, total = q.astype(self.dtype), -0.5 * float(np.sum(self.precisions * q * q))
        for X, y in self.batches(data):
            f, _ = forward(self.layers, (w,), (X,))
            total += float(np.sum(self.likelihood.log_density(f[0], y), dtype=float))
        return total

    @quiet
    def value_and_gradient(self, q: np.ndarray, data: tuple, out: np.ndarray) -> float:
        """Return L(q), and write dL/dq into ``out``."""
        np.multiply(self.precisions, q, out=out)
        w, total = q.astype(self.dtype), -0.5 * float(out @ q)
        np.negative(out, out=out)
        for X, y in self.batches(data):
            f, kept = forward(self.layers, (w,), (X,))
            total += float(np.sum(self.likelihood.log_density(f[0], y), dtype=float))
            start = 0
            for (part,) in backward(self.layers, kept, slope(self.likelihood, f, y)):
                out[start : start + len(part)] += part
                start += len(part)
        return total

    @quiet
    def gradient_along(self, q: np.ndarray, data: tuple, *directions: np.ndarray) -> np.ndarray:
        """Return the gradient of the likelihood differentiated along one direction or two, (..., d) each."""
        order, last = len(directions), 2 ** len(directions) - 1
        w = (q, *directions, *[None] * (2**order - 1 - order))
        w = linear(lambda x: x.astype(self.dtype), w)
        total = np.zeros(np.broadcast_shapes(*(u.shape for u in directions)))
        for X, y in self.batches(data):
            f, kept = forward(self.layers, w, constant(X, order))
            total += stacked(backward(self.layers, kept, slope(self.likelihood, f, y)), last)
        return total

    def hessian_product(self, q: np.ndarray, data: tuple, v: np.ndarray) -> np.ndarray:
        """Return H(q) v, (..., d), for v (..., d)."""
        return self.gradient_along(q, data, np.asarray(v, dtype=float)) - self.precisions * v

    def in_blocks(self, numbers: int) -> Iterator[slice]:
        """Yield the directions in slices. An array has ``numbers`` for each direction, and at most ``LARGEST``."""
        n = max(1, LARGEST // numbers)
        for start in range(0, self.dim, n):
            yield slice(start, min(start + n, self.dim))

    def numbers(self, data: tuple) -> int:
        """Return about how many numbers an array of one batch has for each direction."""
        width = max(int(np.prod(data[0].shape[1:])), *(layer.size for layer in self.layers), 1)
        return width * min(len(data[0]), self.batch)

    def hessian(self, q: np.ndarray, data: tuple, out: np.ndarray) -> None:
        """Return the Hessian, (d, d), whose row i is H e_i."""
        for rows in self.in_blocks(self.numbers(data)):
            out[rows] = self.hessian_product(q, data, unit_vectors(rows, self.dim))

    def third_derivative(self, q: np.ndarray, data: tuple, out: np.ndarray) -> None:
        """Return the third derivatives, (d, d, d), with [i, j] equal to g_uv for u = e_i, v = e_j."""
        for i in range(self.dim):
            u = unit_vectors(slice(i, i + 1), self.dim)[0]
            for rows in self.in_blocks(self.numbers(data)):
                out[i, rows] = self.gradient_along(q, data, u, unit_vectors(rows, self.dim))

    def hessian_contraction(self, q: np.ndarray, data: tuple, M: np.ndarray, out: np.ndarray) -> None:
        """Return sum_ij M_ij T_ijk."""
        out[:] = 0.0
        for rows in self.in_blocks(self.numbers(data)):
            out += np.sum(self.gradient_along(q, data, unit_vectors(rows, self.dim), M[rows]), axis=0)

    def along(self, q: np.ndarray, *directions: np.ndarray | None) -> Expansion:
        """Return the weights with directions, in the dtype of the layers."""
        return linear(lambda x: x.astype(self.dtype), (q, *directions))

    def most_numbers(self, X: np.ndarray) -> int:
        """Return the most numbers that an array has for each direction on these rows."""
        return max(len(X) * width(self.layers, X.shape[1:]), self.dim)

    def jacobian(self, q: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return f (n, outputs) and J (d, n, outputs), in float64."""
        J: Any = None
        for rows in self.in_blocks(self.most_numbers(X)):
            f, part = forward(self.layers, self.along(q, unit_vectors(rows, self.dim)), constant(X, 1))[0]
            J = np.empty((self.dim, *f.shape)) if J is None else J
            J[rows] = part
        return f.astype(float), J

    @quiet
    def fisher(self, q: np.ndarray, data: tuple, out: np.ndarray) -> None:
        """Return G(q), (d, d)."""
        out[:] = np.diag(self.precisions)
        for X, _ in self.batches(data, self.dim):
            f, J = self.jacobian(q, X)
            VJ = self.likelihood.information(self.likelihood.mean((f,)), (J,))[0]
            out += J.reshape(self.dim, -1) @ VJ.reshape(self.dim, -1).T

    @quiet
    def fisher_derivative(self, q: np.ndarray, data: tuple, out: np.ndarray) -> None:
        """Return the derivatives of G, (d, d, d), with [i, j, k] = dG_ij / dw_k."""
        out[:] = 0.0
        eye = np.eye(self.dim)
        for X, _ in self.batches(data, self.dim**2):
            for rows in self.in_blocks(self.dim * self.most_numbers(X)):
                w = self.along(q, eye, unit_vectors(rows, self.dim)[:, None], None)
                f, J, f_k, J_k = linear(lambda x: x.astype(float), forward(self.layers, w, constant(X, 2))[0])
                if J_k is None:  # the outputs are linear in the weights
                    J_k = np.zeros(1)
                J_k = np.broadcast_to(J_k, (len(f_k), *J.shape))
                VJ, VJ_k = self.likelihood.information(self.likelihood.mean((f, f_k)), (J, J_k))
                out[:, :, rows] += np.einsum("kino,jno->ijk", J_k, VJ) + np.einsum("ino,kjno->ijk", J, VJ_k)

    @quiet
    def fisher_contraction(self, q: np.ndarray, data: tuple, M: np.ndarray, out: np.ndarray) -> None:
        """Return sum_ij M_ij dG_ij / dw_k."""
        out[:] = 0.0
        for X, _ in self.batches(data, self.dim):
            f_bar = fisher_bar(self.likelihood, *self.jacobian(q, X), M)
            for rows in self.in_blocks(self.most_numbers(X)):
                w = self.along(q, unit_vectors(rows, self.dim))
                kept = forward(self.layers, w, constant(X, 1))[1]
                part = linear(lambda x, rows=rows: x[rows].astype(self.dtype), f_bar)  # type: ignore[misc]
                more = stacked(backward(self.layers, kept, part), 1)
                out += np.sum(np.broadcast_to(more, (len(w[1]), self.dim)), axis=0, dtype=float)


def unit_vectors(rows: slice, d: int) -> np.ndarray:
    """Return e_i for i in ``rows``, of shape (k, d)."""
    e = np.zeros((rows.stop - rows.start, d))
    e[np.arange(len(e)), np.arange(rows.start, rows.stop)] = 1.0
    return e

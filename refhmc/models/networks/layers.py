"""Layers of a network, each with a forward and a backward implementation: the chain rule, layer by layer.

A layer computes y from x and its weights w. Let L be a function of the outputs of the network, x_bar = dL/dx, y_bar = dL/dy
and w_bar = dL/dw. From y_bar the layer computes x_bar and w_bar::

                   forward                          backward
    dense          y = x W' + b                     x_bar = y_bar W,   W_bar = y_bar' x,   b_bar = sum_n y_bar
    activation     y = f(x)                         x_bar = f'(x) y_bar
    convolution    y = K patches(x) + b             x_bar = patches'(K' y_bar),   K_bar = y_bar patches(x)'
    max-pooling    y = the largest of a square      x_bar: y_bar at the place of the largest, 0 elsewhere
    flattening     y = x in another shape           x_bar = y_bar in the shape of x            (rows last: the same)

All of them are products and functions of one number. They are implemented for expansions
(:mod:`refhmc.models.networks.expansion`), so that the same code gives derivatives of every order. ``forward`` returns y and
the values that ``backward`` needs.

Rows of data are the axis before the last, (..., n, width). Rows of images are the last axis, (..., channels, height, width,
n), so that operations on one place of all images act on contiguous memory. Leading axes are free. Weights are in the order
and layout of PyTorch: W (outputs, inputs), K (outputs, channels, height, width), then b.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from refhmc.errors import ShapeError
from refhmc.models.networks.expansion import Expansion, function, linear, product, total
from refhmc.numerics.batched import Array, namespace, transpose


class Layer(Protocol):
    """The interface of a layer. ``size`` is its number of weights.

    ``shape_after`` returns the shape of one row of the output from that of the input. The shape of an image is (height,
    width, channels).
    """

    @property
    def size(self) -> int: ...
    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, tuple]: ...
    def backward(self, kept: tuple, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]: ...


def rows_times(a: Array, b: Array) -> Array:
    """Return a b, of shape (..., i, j)."""
    if a.shape[-1] == 1:  # BLAS takes three times as long for one column
        return a * b
    if a.ndim > 2 or b.ndim == 2:
        return a @ b
    # One matrix times many: one product.
    xp, (*lead, j) = namespace(b), transpose(b).shape[:-1]
    columns = transpose(xp.reshape(transpose(b), (-1, b.shape[-2])))
    return xp.moveaxis(xp.reshape(a @ columns, (a.shape[0], *lead, j)), 0, -2)


def columns_times(a: Array, b: Array) -> Array:
    """Return a' b, of shape (..., i, j)."""
    if a.ndim == 2 or b.ndim > 2:
        return transpose(a) @ b
    rows = namespace(a).reshape(transpose(a), (-1, a.shape[-2]))  # many matrices times one: one product
    return namespace(a).reshape(rows @ b, (*transpose(a).shape[:-1], b.shape[-1]))


def stack_times(a: Array, b: Array) -> Array:
    """Return a b, of shape (..., i, j), by one product if there is only one b."""
    if b.ndim > 2:
        return a @ b
    return reshaped(reshaped(a, a.ndim, -1, a.shape[-1]) @ b, 2, *a.shape[:-1], b.shape[-1])


def add_to(x: Array, index: tuple, y: Array) -> Array:
    """Add y to x at an index, in place if arrays are writable; the caller must own x."""
    if hasattr(x, "at"):
        return x.at[index].add(y)
    there = x[index]
    there += y
    return x


def masked(x: Array, here: Array) -> Array:
    """Return x where ``here`` is true, else 0, by a product: ``where`` of NumPy takes four times as long on such masks."""
    return x * namespace(x).astype(here, x.dtype)


def put_into(x: Array, index: tuple, y: Array) -> Array:
    """Put y into x at an index, in place if arrays are writable; the caller must own x."""
    if hasattr(x, "at"):
        return x.at[index].set(y)
    x[index] = y
    return x


def reshaped(x: Array, axes: int, *shape: int) -> Array:
    """Return the array with another shape in place of the last ``axes`` axes."""
    return namespace(x).reshape(x, (*x.shape[: x.ndim - axes], *shape))


def plus(y: Expansion, b: Expansion) -> Expansion:
    """Return y + b, in place if arrays are writable; the caller must own y."""

    def added(y: Array | None, b: Array | None) -> Array | None:
        if y is None or b is None:
            return y if b is None else b
        y += b  # a separate sum would take as long as the product
        return y

    return tuple(map(added, y, b))


def weights_bar(x: Expansion, y_bar: Expansion) -> tuple[Expansion, Expansion]:
    """Return W_bar = y_bar' x and b_bar = sum_n y_bar."""

    def summed(y: Array) -> Array:  # as a product: NumPy takes ten times as long to add up such rows
        return namespace(y).ones(y.shape[-2], dtype=y.dtype) @ y

    return product(columns_times, y_bar, x), linear(summed, y_bar)


def joined(matrix: Expansion, b: Expansion) -> Expansion:
    """Return both in one vector, (..., size). An entry of ``b`` may be zero if that of the matrix is not."""
    size = b[0].shape[-1]

    def join(W: Array | None, b: Array | None) -> Array | None:
        if W is None:
            return None
        xp, flat = namespace(W), reshaped(W, 2, W.shape[-2] * W.shape[-1])
        shape = (*flat.shape[:-1], size)
        return xp.concat([flat, xp.zeros(shape, dtype=W.dtype) if b is None else xp.broadcast_to(b, shape)], axis=-1)

    return tuple(map(join, matrix, b))


@dataclass(frozen=True)
class Dense:
    """The dense layer, y = x W' + b."""

    inputs: int
    outputs: int

    @property
    def size(self) -> int:
        return self.outputs * (self.inputs + 1)

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape != (self.inputs,):
            raise ShapeError(
                f"A dense layer with {self.inputs} inputs needs rows of shape ({self.inputs},); got {shape}."
            )
        return (self.outputs,)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"W": (self.outputs, self.inputs), "b": (self.outputs,)}

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, tuple]:
        n = self.outputs * self.inputs
        W = linear(lambda w: reshaped(w[..., :n], 1, self.outputs, self.inputs), w)
        b = linear(lambda w: w[..., None, n:], w)
        return plus(product(lambda x, W: rows_times(x, transpose(W)), x, W), b), (W, x)

    def backward(self, kept: tuple, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        W, x = kept
        x_bar = product(rows_times, y_bar, W) if wants_x else None
        return x_bar, joined(*weights_bar(x, y_bar))


@dataclass(frozen=True)
class Activation:
    """The activation, y = f(x); ``f(x, order)`` returns f, f', ... (:mod:`refhmc.models.networks.activations`)."""

    f: Callable
    size = 0

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, tuple]:
        f = self.f(x[0], 1 + len(x) // 2)
        return function(f[:-1], x), function(f[1:], x)

    def backward(self, kept: tuple, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        return product(lambda y, slope: y * slope, y_bar, kept), None


@dataclass(frozen=True)
class RowsLast:
    """The conversion of images (..., n, height, width, channels), as given, to (..., channels, height, width, n)."""

    size = 0

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, tuple]:
        def in_one_piece(x: Array) -> Array:  # of memory
            return namespace(x).reshape(namespace(x).reshape(x, (-1,)), x.shape)

        return linear(lambda x: in_one_piece(self.turned(x)), x), ()

    def backward(self, kept: tuple, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        return linear(self.turned, y_bar), None

    def turned(self, x: Array) -> Array:
        """Exchange rows and channels; the operation is its own inverse."""
        k = x.ndim - 4
        return namespace(x).permute_dims(x, (*range(k), k + 3, k + 1, k + 2, k))


@dataclass(frozen=True)
class Convolution:
    """The convolution over squares of side ``side`` that lie inside the image ("valid").

    y[i, j] = sum_ab K[:, :, a, b] x[i + a, j + b] + b. As matrix products: patches(x) has one column for each place, with the
    pixels in ``side`` columns and ``rows`` rows of the image. With all rows of the square at once, y = K patches + b. With one
    row at a time it is a sum over the rows a of the square, y = sum_a K_a patches[a : a + i] + b, in which the patches have
    ``side`` times fewer numbers.
    """

    channels: int
    outputs: int
    side: int

    @property
    def size(self) -> int:
        return self.outputs * (self.channels * self.side**2 + 1)

    @property
    def rows(self) -> int:
        """Return the number of rows of a patch: all if one row has few numbers (for which products are slow), else one."""
        return self.side if self.channels * self.side < 32 else 1

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != 3 or shape[2] != self.channels or min(shape[:2]) < self.side:
            raise ShapeError(
                f"A convolution with {self.channels} channels and squares of side {self.side} needs images of at least this "
                f"size; got shape {shape}. Use larger images, a smaller side or fewer convolutions."
            )
        return (shape[0] - self.side + 1, shape[1] - self.side + 1, self.outputs)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"K": (self.outputs, self.channels, self.side, self.side), "b": (self.outputs,)}

    def patches(self, x: Array) -> Array:
        """Return the patches, of shape (..., channels rows side, height - rows + 1, j, n)."""
        height, j = x.shape[-3] - self.rows + 1, x.shape[-2] - self.side + 1
        places = [x[..., a : a + height, b : b + j, :] for a in range(self.rows) for b in range(self.side)]
        return reshaped(namespace(x).stack(places, axis=-4), 5, self.channels * len(places), height, j, x.shape[-1])

    def starts(self) -> range:
        """Return the first row a of each part of the square."""
        return range(0, self.side, self.rows)

    def parts(self, K: Array) -> list[Array]:
        """Return K_a for each part, of shape (..., outputs, channels rows side)."""
        K = reshaped(K, 1, self.channels, self.side // self.rows, self.rows * self.side)
        return [reshaped(K[..., k, :], 2, self.channels * K.shape[-1]) for k in range(K.shape[-2])]

    def within(self, p: Array) -> list[Array]:
        """Return patches[a : a + i] for each part, of shape (..., channels rows side, i j n)."""
        i = p.shape[-3] + self.rows - self.side
        return [reshaped(p[..., a : a + i, :, :], 3, i * math.prod(p.shape[-2:])) for a in self.starts()]

    def applied(self, K: Array, p: Array) -> Array:
        """Return sum_a K_a patches[a : a + i], of shape (..., outputs, i j n)."""
        y, *more = (stack_times(each, part) for each, part in zip(self.parts(K), self.within(p), strict=True))
        for each in more:
            y += each
        return y

    def weights_bar(self, y_bar: Array, p: Array) -> Array:
        """Return K_bar, of shape (..., outputs, channels side^2), from the parts y_bar patches[a : a + i]'."""
        bars = [stack_times(y_bar, transpose(part)) for part in self.within(p)]
        bars = [reshaped(bar, 1, self.channels, self.rows * self.side) for bar in bars]
        return reshaped(namespace(p).concat(bars, axis=-1), 2, self.channels * self.side**2)

    def inputs_bar(self, K: Array, y_bar: Array, shape: tuple[int, ...]) -> Array:
        """Return K_a' y_bar with each entry added to the place that it comes from; ``shape`` is (height, width, n)."""
        xp, (height, width, n) = namespace(K), shape
        i, j = height - self.side + 1, width - self.side + 1
        lead = np.broadcast_shapes(K.shape[:-2], y_bar.shape[:-2])
        p = xp.zeros((*lead, self.channels, self.rows, self.side, height - self.rows + 1, j, n), dtype=y_bar.dtype)
        for a, part in zip(self.starts(), self.parts(K), strict=True):
            bar = reshaped(transpose(part) @ y_bar, 2, *p.shape[-6:-3], i, j, n)
            p = add_to(p, (..., slice(a, a + i), slice(None), slice(None)), bar)
        x = xp.zeros((*lead, self.channels, height, width, n), dtype=y_bar.dtype)
        for a in range(self.rows):
            for b in range(self.side):
                place = (..., slice(a, a + p.shape[-3]), slice(b, b + j), slice(None))
                x = add_to(x, place, p[..., a, b, :, :, :])
        return x

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, tuple]:
        *_, height, width, n = x[0].shape
        k = self.size - self.outputs
        K = linear(lambda w: reshaped(w[..., :k], 1, self.outputs, k // self.outputs), w)
        b, p = linear(lambda w: w[..., k:, None], w), linear(self.patches, x)
        i, j, outputs = self.shape_after((height, width, self.channels))
        y = plus(product(self.applied, K, p), b)
        return linear(lambda y: reshaped(y, 2, outputs, i, j, n), y), (K, p, (height, width, n))

    def backward(self, kept: tuple, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        K, p, shape = kept
        y_bar = linear(lambda y: reshaped(y, 4, self.outputs, math.prod(y.shape[-3:])), y_bar)
        b_bar = linear(lambda y: y @ namespace(y).ones(y.shape[-1], dtype=y.dtype), y_bar)
        w_bar = joined(product(self.weights_bar, y_bar, p), b_bar)
        return product(lambda K, y: self.inputs_bar(K, y, shape), K, y_bar) if wants_x else None, w_bar


@dataclass(frozen=True)
class MaxPooling:
    """The largest in each square of side ``side``, the first of equal ones; remaining rows and columns are ignored."""

    side: int
    size = 0

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != 3 or min(shape[:2]) < self.side:
            raise ShapeError(
                f"Pooling needs images of at least {self.side} x {self.side} pixels; got shape {shape}. Use a smaller pool."
            )
        return (shape[0] // self.side, shape[1] // self.side, shape[2])

    def places(self, x: Array) -> list[tuple]:
        """Return, for each place in a square, the index that takes it from all squares."""
        height, width = (self.side * (n // self.side) for n in x.shape[-3:-1])
        return [
            (..., slice(a, height, self.side), slice(b, width, self.side), slice(None))
            for a in range(self.side)
            for b in range(self.side)
        ]

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, tuple]:
        xp, places = namespace(x[0]), self.places(x[0])
        values = [x[0][place] for place in places]
        largest = values[0]
        for value in values[1:]:
            largest = xp.maximum(largest, value)
        left, found = xp.ones(largest.shape, dtype=xp.bool), []
        for value in values:
            found.append(left & (value == largest))
            left = left & ~found[-1]

        def picked(x: Array) -> Array:
            return total([masked(x[place], here) for place, here in zip(places, found, strict=True)])

        return (largest, *linear(picked, x[1:])), (found, places, x[0].shape[-3:])

    def backward(self, kept: tuple, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        found, places, shape = kept

        def put(y: Array) -> Array:
            x = namespace(y).zeros((*y.shape[:-3], *shape), dtype=y.dtype)
            for place, here in zip(places, found, strict=True):
                x = put_into(x, place, masked(y, here))
            return x

        return linear(put, y_bar), None


@dataclass(frozen=True)
class Flattening:
    """The conversion of images (..., channels, height, width, n) to rows (..., n, width), channel by channel as in PyTorch."""

    size = 0

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (math.prod(shape),)

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, tuple]:
        shape = x[0].shape[-4:]
        return linear(lambda x: transpose(reshaped(x, 4, math.prod(shape[:3]), shape[3])), x), shape

    def backward(self, kept: tuple, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        return linear(lambda y: reshaped(transpose(y), 2, *kept), y_bar), None

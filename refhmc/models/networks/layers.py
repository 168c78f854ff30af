"""Layers of a network, each with its forward text and beside it the backward one: the chain rule, layer by layer.

A layer makes y from x and its weights w. Let L be what the network's outputs are judged by, x_bar = dL/dx, y_bar = dL/dy and
w_bar = dL/dw. From y_bar the layer makes x_bar and w_bar:

                   forward                          backward
    dense          y = x W' + b                     x_bar = y_bar W,   W_bar = y_bar' x,   b_bar = sum_n y_bar
    activation     y = f(x)                         x_bar = f'(x) y_bar
    convolution    y = patches(x) K' + b            x_bar = patches'(y_bar K),   K_bar = y_bar' patches(x)
    max-pooling    y = the largest of a square      x_bar: y_bar where that was found, 0 elsewhere
    flattening     y = x in another shape           x_bar = y_bar in the shape of x

All of them are products and functions of one number: they are written on expansions (:mod:`refhmc.models.networks.expansion`),
so that the same two texts give derivatives of every order. ``forward`` returns y and what ``backward`` needs.

Rows of data are the axis before the last, (..., n, width); images are (..., n, height, width, channels). The axes in front are
free. Weights are in PyTorch's order and layout: W (outputs, inputs), K (outputs, channels, height, width), then b.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from refhmc.errors import ShapeError
from refhmc.models.networks.expansion import Expansion, function, linear, product, total
from refhmc.numerics.batched import Array, namespace, transpose


class Layer(Protocol):
    """``size``: how many weights it has. ``shape_after``: shape of one row's output from that of its input."""

    @property
    def size(self) -> int: ...
    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]: ...
    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, Any]: ...
    def backward(self, kept: Any, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]: ...


def rows_times(a: Array, b: Array) -> Array:
    """a b, (..., i, j)"""
    if a.shape[-1] == 1:  # BLAS takes three times as long for one column
        return a * b
    if a.ndim > 2 or b.ndim == 2:
        return a @ b
    # One matrix with many: one product.
    xp, (*lead, j) = namespace(b), transpose(b).shape[:-1]
    columns = transpose(xp.reshape(transpose(b), (-1, b.shape[-2])))
    return xp.moveaxis(xp.reshape(a @ columns, (a.shape[0], *lead, j)), 0, -2)


def columns_times(a: Array, b: Array) -> Array:
    """a' b, (..., i, j)"""
    if a.ndim == 2 or b.ndim > 2:
        return transpose(a) @ b
    rows = namespace(a).reshape(transpose(a), (-1, a.shape[-2]))  # many matrices with one, likewise
    return namespace(a).reshape(rows @ b, (*transpose(a).shape[:-1], b.shape[-1]))


def add_to(x: Array, index: tuple, y: Array) -> Array:
    """x with y added at an index, in place where arrays can be written to: x is of the caller's own making."""
    if hasattr(x, "at"):
        return x.at[index].add(y)
    there = x[index]
    there += y
    return x


def masked(x: Array, here: Array) -> Array:
    """x where it is ``here``, else 0: a product, for NumPy's ``where`` takes four times as long on such masks."""
    return x * namespace(x).astype(here, x.dtype)


def put_into(x: Array, index: tuple, y: Array) -> Array:
    """x with y at an index, likewise."""
    if hasattr(x, "at"):
        return x.at[index].set(y)
    x[index] = y
    return x


def reshaped(x: Array, axes: int, *shape: int) -> Array:
    """With another shape in the place of the last so many axes."""
    return namespace(x).reshape(x, (*x.shape[: x.ndim - axes], *shape))


def affine(W: Expansion, b: Expansion, x: Expansion) -> Expansion:
    """x W' + b"""

    def plus(y: Array | None, b: Array | None) -> Array | None:
        if y is None or b is None:
            return y if b is None else b[..., None, :]
        y += b[..., None, :]  # y is new: a sum beside it would take as long as the product
        return y

    return tuple(map(plus, product(lambda x, W: rows_times(x, transpose(W)), x, W), b))


def weights_bar(x: Expansion, y_bar: Expansion) -> tuple[Expansion, Expansion]:
    """W_bar = y_bar' x and b_bar = sum_n y_bar"""

    def summed(y: Array) -> Array:  # as a product: NumPy takes ten times as long to add up such rows
        return namespace(y).ones(y.shape[-2], dtype=y.dtype) @ y

    return product(columns_times, y_bar, x), linear(summed, y_bar)


def joined(matrix: Expansion, b: Expansion) -> Expansion:
    """Both in one vector, (..., size)."""

    def join(W: Array | None, b: Array | None) -> Array | None:
        if W is None or b is None:
            return None
        flat = reshaped(W, 2, W.shape[-2] * W.shape[-1])
        return namespace(W).concat([flat, namespace(b).broadcast_to(b, (*flat.shape[:-1], b.shape[-1]))], axis=-1)

    return tuple(map(join, matrix, b))


@dataclass(frozen=True)
class Dense:
    """y = x W' + b"""

    inputs: int
    outputs: int

    @property
    def size(self) -> int:
        return self.outputs * (self.inputs + 1)

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape != (self.inputs,):
            raise ShapeError(f"a dense layer of {self.inputs} inputs is given rows of shape {shape}")
        return (self.outputs,)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"W": (self.outputs, self.inputs), "b": (self.outputs,)}

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, Any]:
        n = self.outputs * self.inputs
        W = linear(lambda w: reshaped(w[..., :n], 1, self.outputs, self.inputs), w)
        return affine(W, linear(lambda w: w[..., n:], w), x), (W, x)

    def backward(self, kept: Any, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        W, x = kept
        x_bar = product(rows_times, y_bar, W) if wants_x else None
        return x_bar, joined(*weights_bar(x, y_bar))


@dataclass(frozen=True)
class Activation:
    """y = f(x); ``f(x, order)`` gives f, f', ... (:mod:`refhmc.models.networks.activations`)."""

    f: Callable
    size = 0

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, Any]:
        f = self.f(x[0], 1 + len(x) // 2)
        return function(f[:-1], x), function(f[1:], x)

    def backward(self, kept: Any, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        return product(lambda y, slope: y * slope, y_bar, kept), None


@dataclass(frozen=True)
class Convolution:
    """y[i, j] = sum_ab K[:, :, a, b] x[i + a, j + b] + b, for i and j where the square of side ``side`` lies inside: "valid".

    patches(x), (..., n i j, side^2 channels), has in its rows what lies in the square at each place.
    """

    channels: int
    outputs: int
    side: int

    @property
    def size(self) -> int:
        return self.outputs * (self.channels * self.side**2 + 1)

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != 3 or shape[2] != self.channels or min(shape[:2]) < self.side:
            raise ShapeError(
                f"a convolution of {self.channels} channels and side {self.side} is given images of shape {shape}"
            )
        return (shape[0] - self.side + 1, shape[1] - self.side + 1, self.outputs)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"K": (self.outputs, self.channels, self.side, self.side), "b": (self.outputs,)}

    def kernel(self, w: Array) -> Array:
        """K with its axes in the order of a patch, (..., outputs, side^2 channels)."""
        K = reshaped(w[..., : self.size - self.outputs], 1, self.outputs, self.channels, self.side**2)
        return reshaped(transpose(K), 2, self.side**2 * self.channels)

    def in_layout_of_weights(self, K: Array) -> Array:
        """The inverse of :meth:`kernel`, (..., outputs, channels side^2)."""
        return reshaped(transpose(reshaped(K, 1, self.side**2, self.channels)), 2, K.shape[-1])

    def patches(self, x: Array) -> Array:
        n, height, width, _ = x.shape[-4:]
        xp, i, j = namespace(x), height - self.side + 1, width - self.side + 1
        rows = xp.concat([x[..., b : b + j, :] for b in range(self.side)], axis=-1)
        squares = xp.concat([rows[..., a : a + i, :, :] for a in range(self.side)], axis=-1)
        return reshaped(squares, 4, n * i * j, self.side**2 * self.channels)

    def patches_transposed(self, p: Array, shape: tuple[int, ...]) -> Array:
        """Each entry of a patch added to the place it comes from, ``shape`` (height, width, channels).

        By rows, then by columns: what is added at a time is then longer in memory.
        """
        xp, (height, width, _) = namespace(p), shape
        i, j = height - self.side + 1, width - self.side + 1
        squares = reshaped(p, 2, p.shape[-2] // (i * j), i, j, self.side, self.side * self.channels)
        rows = xp.zeros((*squares.shape[:-4], height, j, self.side * self.channels), dtype=p.dtype)
        for a in range(self.side):
            rows = add_to(rows, (..., slice(a, a + i), slice(None), slice(None)), squares[..., a, :])
        rows = reshaped(rows, 1, self.side, self.channels)
        x = xp.zeros((*rows.shape[:-3], width, self.channels), dtype=p.dtype)
        for b in range(self.side):
            x = add_to(x, (..., slice(b, b + j), slice(None)), rows[..., b, :])
        return x

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, Any]:
        n, *shape = x[0].shape[-4:]
        after = self.shape_after(tuple(shape))
        K, p = linear(self.kernel, w), linear(self.patches, x)
        y = affine(K, linear(lambda w: w[..., self.size - self.outputs :], w), p)
        return linear(lambda y: reshaped(y, 2, n, *after), y), (K, p, tuple(shape))

    def backward(self, kept: Any, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        K, p, shape = kept
        rows = linear(lambda y: reshaped(y, 4, math.prod(y.shape[-4:-1]), self.outputs), y_bar)
        K_bar, b_bar = weights_bar(p, rows)
        w_bar = joined(linear(self.in_layout_of_weights, K_bar), b_bar)
        if not wants_x:
            return None, w_bar
        return linear(lambda p: self.patches_transposed(p, shape), product(lambda y, K: y @ K, rows, K)), w_bar


@dataclass(frozen=True)
class MaxPooling:
    """The largest in each square of side ``side``, the first of equal ones; rows and columns left over are not read."""

    side: int
    size = 0

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != 3 or min(shape[:2]) < self.side:
            raise ShapeError(f"pooling over squares of side {self.side} is given images of shape {shape}")
        return (shape[0] // self.side, shape[1] // self.side, shape[2])

    def places(self, x: Array) -> list[tuple]:
        """For each place in a square, the index that takes it out of all squares."""
        height, width = (self.side * (n // self.side) for n in x.shape[-3:-1])
        return [
            (..., slice(a, height, self.side), slice(b, width, self.side), slice(None))
            for a in range(self.side)
            for b in range(self.side)
        ]

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, Any]:
        xp, places = namespace(x[0]), self.places(x[0])
        values = [xp.asarray(x[0][place], copy=True) for place in places]  # each in one piece of memory
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

    def backward(self, kept: Any, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        found, places, shape = kept

        def put(y: Array) -> Array:
            x = namespace(y).zeros((*y.shape[:-3], *shape), dtype=y.dtype)
            for place, here in zip(places, found, strict=True):
                x = put_into(x, place, masked(y, here))
            return x

        return linear(put, y_bar), None


@dataclass(frozen=True)
class Flattening:
    """Images in rows, channel by channel, as PyTorch does."""

    size = 0

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (math.prod(shape),)

    def forward(self, w: Expansion, x: Expansion) -> tuple[Expansion, Any]:
        shape = x[0].shape[-3:]

        def flat(x: Array) -> Array:
            return reshaped(namespace(x).moveaxis(x, -1, -3), 3, math.prod(shape))

        return linear(flat, x), shape

    def backward(self, kept: Any, y_bar: Expansion, wants_x: bool) -> tuple[Expansion | None, Expansion | None]:
        height, width, channels = kept

        def image(y: Array) -> Array:
            return namespace(y).moveaxis(reshaped(y, 1, channels, height, width), -3, -1)

        return linear(image, y_bar), None

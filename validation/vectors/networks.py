"""Posteriors that are a sum over rows of data, which is what a split needs: a Gaussian linear model and small networks.

    L(q) = sum_i log p(y_i | f(x_i; q)) - lambda/2 q.q

``rows(q, c)`` lists the summands of each row, ``prior(q, c)`` those of the prior. With the rows in M batches the parts are
L_m = log p(q) / M + the sum of the rows of batch m. Weights stand in q layer by layer: of a dense layer W (outputs, inputs) row
by row, then b; of a convolution K (outputs, channels, height, width), then b.
"""

from __future__ import annotations

import random

from mpmath import mp, mpf

from validation.vectors.arithmetic import dot
from validation.vectors.targets import Target, plain


def relu(x):
    return x if x > 0 else mpf(0)


def selu(x):
    """With the constants of Klambauer et al. (2017) to 32 digits."""
    scale, alpha = mpf("1.0507009873554804934193349852946"), mpf("1.6732632423543772848170429916717")
    return scale * x if x > 0 else scale * alpha * mp.expm1(x)


# ---------------------------------------------------------------------------------------------------- layers: (x, weights)


class Weights:
    """The weights of a network, taken from q one layer after another."""

    def __init__(self, q):
        self.left = list(q)

    def take(self, n):
        taken, self.left = self.left[:n], self.left[n:]
        return taken

    def matrix(self, rows, columns):
        return [self.take(columns) for _ in range(rows)]


def dense(x, outputs, w):
    """W x + b"""
    W, b = w.matrix(outputs, len(x)), w.take(outputs)
    return [dot(row, x) + shift for row, shift in zip(W, b, strict=True)]


def perceptron(x, widths, activation, w):
    """The outputs of dense layers with activations between them."""
    for k, outputs in enumerate(widths):
        x = dense(x if k == 0 else [activation(a) for a in x], outputs, w)
    return x


def convolution(image, outputs, side, w):
    """y[o][i][j] = sum_cab K[o][c][a][b] x[c][i + a][j + b] + b[o]; ``image`` [channel][row][column]."""
    channels, size = len(image), len(image[0]) - side + 1
    K, b = [[w.matrix(side, side) for _ in range(channels)] for _ in range(outputs)], w.take(outputs)
    square = [(c, s, t) for c in range(channels) for s in range(side) for t in range(side)]

    def at(o, i, j):
        return mp.fsum(K[o][c][s][t] * image[c][i + s][j + t] for c, s, t in square) + b[o]

    return [[[at(o, i, j) for j in range(size)] for i in range(size)] for o in range(outputs)]


def pooled(image, side):
    """The largest of each square; rows and columns left over are not read."""
    n = range(len(image[0]) // side)
    inside = range(side)
    return [
        [[max(plane[side * i + s][side * j + t] for s in inside for t in inside) for j in n] for i in n]
        for plane in image
    ]


# ------------------------------------------------------------------------------------------------------------ likelihoods


def normal(f, y, c):
    return [-c["output_precision"] * (a - b) ** 2 / 2 for a, b in zip(y, f, strict=True)]


def softmax(f, y, c):
    return [f[int(mp.nint(y))], -mp.log(mp.fsum(mp.exp(a) for a in f))]


# ---------------------------------------------------------------------------------------------------------------- targets


def numbers(name, *shape):
    """Multiples of 1/16 in (-2, 2), always the same, in nested lists."""
    rng = random.Random(f"data of {name}")

    def made(n, *rest):
        return [made(*rest) if rest else rng.randrange(-31, 32) / 16 for _ in range(n)]

    return made(*shape)


def network(name, formula, outputs, likelihood, data, dim, spread=1.0):
    """``outputs(x, w)``: f of one row of data x and the weights w."""

    def rows(q, c):
        found = [likelihood(outputs(x, Weights(q)), y, c) for x, y in zip(c["X"], c["y"], strict=True)]
        return found, [-c["prior_precision"] * x * x / 2 for x in q]

    def terms(q, c):
        found, prior = rows(q, c)
        return [*(x for row in found for x in row), *prior]

    return Target(
        name,
        f"{formula}: L = sum_i log p(y_i | f(x_i)) - prior_precision q.q / 2",
        [f"w[{j}]" for j in range(dim)],
        data,
        plain,
        terms,
        [0.0] * dim,
        [spread] * dim,
        [],
        rows=rows,
    )


NORMAL = "log p(y | f) = -output_precision |y - f|^2 / 2"
SOFTMAX = "log p(y | f) = f_y - log sum_j e^f_j, classes counted from 0"
LABELS = [2.0, 0.0, 1.0, 1.0, 0.0, 2.0]

NETWORKS = {
    t.name: t
    for t in (
        network(
            "linear-model",
            f"q = (W (1, 2), b), f = W x + b, {NORMAL}",
            lambda x, w: dense(x, 1, w),
            normal,
            {
                "X": numbers("linear-model", 7, 2),
                "y": numbers("linear-model, y", 7, 1),
                "output_precision": 4.0,
                "prior_precision": 2.0,
            },
            3,
        ),
        network(
            "mlp",
            f"q = (W_1 (3, 2), b_1, W_2 (1, 3), b_2), f = W_2 tanh(W_1 x + b_1) + b_2, {NORMAL}",
            lambda x, w: perceptron(x, (3, 1), mp.tanh, w),
            normal,
            {
                "X": numbers("mlp", 7, 2),
                "y": numbers("mlp, y", 7, 1),
                "output_precision": 4.0,
                "prior_precision": 0.5,
            },
            13,
        ),
        network(
            "mlp-classes",
            "q = (W_1 (3, 2), b_1, W_2 (3, 3), b_2), f = W_2 s(W_1 x + b_1) + b_2, s(x) = l x for x > 0, l a (e^x - 1) for "
            f"x <= 0, l = 1.0507009873554804934193349852946, a = 1.6732632423543772848170429916717, {SOFTMAX}",
            lambda x, w: perceptron(x, (3, 3), selu, w),
            softmax,
            {"X": numbers("mlp-classes", 6, 2), "y": LABELS, "prior_precision": 1.0},
            21,
        ),
        network(
            "softmax-regression",
            f"q = (W (3, 2), b), f = W x + b, {SOFTMAX}",
            lambda x, w: dense(x, 3, w),
            softmax,
            {"X": numbers("softmax-regression", 6, 2), "y": LABELS, "prior_precision": 0.5},
            9,
        ),
        network(
            "cnn",
            "X [image][channel][row][column]; q = (K (2, 2, 2, 2), b_1, W_2 (3, 8), b_2, W_3 (3, 3), b_3): "
            "z[o][i][j] = sum_cab K[o][c][a][b] x[c][i + a][j + b] + b_1[o] (4 x 4), max(0, the largest of each square of "
            f"side 2) flattened [o][i][j], max(0, W_2 . + b_2), f = W_3 . + b_3, {SOFTMAX}",
            lambda x, w: perceptron(
                [relu(a) for plane in pooled(convolution(x, 2, 2, w), 2) for row in plane for a in row], (3, 3), relu, w
            ),
            softmax,
            {"X": numbers("cnn", 4, 2, 5, 5), "y": LABELS[:4], "prior_precision": 1.0},
            57,
            0.5,
        ),
    )
}


# ------------------------------------------------------------------------------------------------------------------ parts


def part(target, batch, M):
    """The target whose log density is that of the rows in ``batch`` and 1/M of the prior's."""

    def terms(q, c):
        rows, prior = target.rows(q, c)
        return [*(x for i in batch for x in rows[i]), *(x / M for x in prior)]

    return target._replace(terms=terms, rows=None)

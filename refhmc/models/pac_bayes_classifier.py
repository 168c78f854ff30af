"""A linear classifier weighted by its errors: the Gibbs posterior of PAC-Bayes theory with the 0-1 loss.

The density is ::

    pi(beta) ~ exp(-n lambda r_n(beta)) N(beta; 0, s^2 I),     n r_n(beta) = sum_i 1{y_i x_i'beta <= 0},  y_i = -1 or 1

A Gibbs posterior minimises the PAC-Bayes bound on the risk, of the form  mean empirical risk + KL(posterior, prior) /
(n lambda)  (Catoni 2007). Apart from the prior, its density is constant on each cell of the arrangement of the n hyperplanes
x_i'beta = 0. Its gradient carries no information, so all coordinates are discontinuous. With lambda = 1 it is the form of
Nishimura, Dunson and Lu (2017), on which the Gram-Hansen notes are based.

The margins g_i = y_i x_i'beta change by y_i x_ij (t - beta_j) if beta_j becomes t. One pass over the data gives the errors
before and after. Two densities would take two passes.

Exact results: the errors depend only on the direction of beta. Therefore ``|beta|^2 / s^2`` is chi-square with d degrees of
freedom and independent of the direction, for any data. For d = 2 the density of the direction is constant on each of the
arcs between the 2 n angles at which a margin changes its sign, and everything is known exactly.

The data are one row for each column of the y_i x_i, a row that begins with lambda, and a row that begins with 1/s^2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit_allocating, jit_sum
from refhmc.core.arguments import positive
from refhmc.models import datasets
from refhmc.models.base import Model
from refhmc.models.inputs import given_together, in_rows
from refhmc.models.logistic_regression import signed_rows
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.models.reference import Reference
from refhmc.numerics.linalg import dot


@jit_sum
def margins(q: np.ndarray, data: np.ndarray, g: np.ndarray) -> None:
    """Write g_i = y_i x_i'beta, four coordinates per pass over the observations."""
    d, n = q.shape[0], g.shape[0]
    g[:] = 0.0
    for k in range(0, d - 3, 4):
        for i in range(n):
            g[i] += (
                q[k] * data[k, i] + q[k + 1] * data[k + 1, i] + q[k + 2] * data[k + 2, i] + q[k + 3] * data[k + 3, i]
            )
    for k in range(d - d % 4, d):
        for i in range(n):
            g[i] += q[k] * data[k, i]


@jit_sum
def count_errors(g: np.ndarray) -> int:
    errors = 0
    for i in range(g.shape[0]):
        errors += g[i] <= 0
    return errors


@jit_allocating
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    d = q.shape[0]
    g = np.empty(data.shape[1])
    margins(q, data, g)
    return -data[d, 0] * count_errors(g) - 0.5 * data[d + 1, 0] * dot(q, q)


@jit_allocating
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    out[:] = 0.0
    return log_density(q, data)


@jit_allocating
def log_density_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float) -> float:
    d, step = q.shape[0], new_value - q[j]
    g = np.empty(data.shape[1])
    margins(q, data, g)
    before = count_errors(g)
    for i in range(g.shape[0]):
        g[i] += step * data[j, i]
    return -data[d, 0] * (count_errors(g) - before) - 0.5 * data[d + 1, 0] * step * (new_value + q[j])


class Arcs:
    """The distribution of the direction of beta in two dimensions: arcs of constant density, from ``start`` to ``stop``."""

    def __init__(self, signed_rows: np.ndarray, inverse_temperature: float, prior_scale: float) -> None:
        normals = np.arctan2(signed_rows[:, 1], signed_rows[:, 0])
        ends = np.sort(np.concatenate([normals + np.pi / 2, normals - np.pi / 2]) % (2 * np.pi))
        self.start, self.stop = ends, np.append(ends[1:], ends[0] + 2 * np.pi)
        middle = 0.5 * (self.start + self.stop)
        errors = np.sum(signed_rows @ np.stack([np.cos(middle), np.sin(middle)]) <= 0, axis=0)
        weight = np.exp(-inverse_temperature * (errors - errors.min())) * (self.stop - self.start)
        self.chance, self.errors, self.scale = weight / weight.sum(), errors, prior_scale

    def reference(self) -> Reference:
        """Return means and variances of the coefficients, with exact draws."""
        a, b = self.start, self.stop
        density = np.where(b > a, self.chance / np.where(b > a, b - a, 1.0), 0.0)
        mean = np.array([density @ (np.sin(b) - np.sin(a)), density @ (np.cos(a) - np.cos(b))])
        second = 0.5 + np.array([1, -1]) * (density @ (np.sin(2 * b) - np.sin(2 * a)) / 4)
        mean = mean * self.scale * np.sqrt(np.pi / 2)
        return Reference("exact sum over the arcs", mean, 2 * self.scale**2 * second - mean**2, draw=self.draw)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return (n, 2) independent exact draws."""
        arc = rng.choice(len(self.chance), n, p=self.chance)
        angle = self.start[arc] + rng.random(n) * (self.stop - self.start)[arc]
        radius = self.scale * np.sqrt(rng.chisquare(2, n))
        return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])


@recreatable
def PACBayesClassifier(
    X: ArrayLike | None = None, y: ArrayLike | None = None, inverse_temperature: float = 1.0, prior_scale: float = 1.0
) -> Model:
    """Return the Gibbs posterior of a linear classifier with the 0-1 loss.

    The density is ::

        pi(beta) ~ exp(-lambda sum_i 1{y_i x_i'beta <= 0}) N(beta; 0, s^2 I),      y_i = -1 or 1

    The variable is ``beta``, of shape (d,). All coordinates are discontinuous.

    Parameters
    ----------
    X : array_like of shape (n, d), optional
        Inputs, used without change. Defaults to the heart disease data, with n = 170 and d = 14.
    y : array_like of shape (n,), optional
        Labels, zeros and ones, to be given together with `X`.
    inverse_temperature : float, default 1.0
        Cost lambda of each error.
    prior_scale : float, default 1.0
        Standard deviation s of the prior of each coefficient.

    Returns
    -------
    Model
        The model. For d = 2, ``reference`` has exact moments and draws.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not fit.
    ValueError
        If only one of `X` and `y` is given, or a value is out of range.

    References
    ----------
    O. Catoni (2007), PAC-Bayesian supervised classification.
    A. Nishimura, D. B. Dunson and J. Lu (2017), Discontinuous Hamiltonian Monte Carlo for sampling discrete parameters.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.PACBayesClassifier([[1.0, 0.2], [1.0, -1.0]], [1, 0])
    >>> model.dim, model.discontinuous.tolist()
    (2, [0, 1])
    """
    if not given_together(X=X, y=y):
        X, y, *_ = datasets.heart()
    rows = signed_rows(X, y)
    cost, prior_scale = positive("inverse_temperature", inverse_temperature), positive("prior_scale", prior_scale)
    d = rows.shape[1]
    reference = Arcs(rows, cost, prior_scale).reference() if d == 2 else None
    return Model(
        d,
        log_density,
        value_and_gradient=value_and_gradient,
        data=in_rows(*rows.T, [cost], [prior_scale**-2.0]),
        names=[f"beta[{j}]" for j in range(d)],
        discontinuous=["beta"],
        log_density_change=log_density_change,
        name="pac-bayes classifier",
        recommended=Recommended("dhmc", "", "its default of 20 steps per draw moves too little", (("n_steps", 40),)),
        reference=reference,
    )

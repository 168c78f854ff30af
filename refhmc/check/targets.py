"""Targets with independent exact draws, on which a sampler can be tested without a second sampler.

::

    name        distribution                                                              drawn by
    funnel      v ~ N(0, 9), x_i | v ~ N(0, e^-v)                                         v, then x
    banana      exp(-a (y - t1 - t2^2)^2 / 2 - b (t1^2 + t2^2) / 2), a = 25, y = 1, b = 1/4  t2 by rejection, then t1
    gaussian    N((0.5, -1), [[1, 0.5], [0.5, 2]])                                        a linear map
    gaussian-d  N(0, Q L Q'), Q a fixed rotation, L of the stated condition               a linear map
    normal-d    N(0, I)
    quartic     exp(-sum x_i^4 / 4)                                                       x^4 / 4 ~ Gamma(1/4), a random sign
    mixture     sum_k w_k N(m_k, s_k^2 I)                                                 k, then x
    student     multivariate t: (1 + |x|^2 / nu)^(-(nu + d) / 2)                          a normal over a root of chi-squared
    rosenbrock  x ~ N(1, 1/2), y | x ~ N(x^2, 1/10)                                       x, then y
    ring        exp(-(|x|^2 - c)^2 / (2 s^2)) in the plane                                |x|^2 a truncated normal, an angle
    cells       constant on each of k^d cells of [-2, 2]^d, zero outside                  a cell, then a uniform point in it
    exponential exp(-sum x_i), all x_i > 0, zero outside

The first three are the funnel, banana and Gaussian of :mod:`refhmc.models`. Functions take points of shape (..., d). Densities
are not normalised. :func:`from_name` reads "funnel", "funnel-5" (dimension 5) and "gaussian-5-1e6" (condition 1e6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

__all__ = [
    "Target",
    "banana",
    "cells",
    "exponential",
    "from_name",
    "funnel",
    "gaussian",
    "mixture",
    "names",
    "normal",
    "quartic",
    "ring",
    "rosenbrock",
    "student_t",
]


class Target(NamedTuple):
    """Distribution on R^dim with its log density, gradient and exact draws.

    Parameters
    ----------
    name : str
        Name of the target.
    dim : int
        Dimension.
    log_density : callable
        ``log_density(q)`` for points of shape (..., dim); the result has shape (...) and is -inf outside the support.
    gradient : callable or None
        ``gradient(q)`` of shape (..., dim), valid inside the support; None if there is no gradient.
    draw : callable
        ``draw(rng, n)`` returns `n` independent draws of shape (n, dim).
    formula : str
        Distribution in words or as a formula.

    Examples
    --------
    >>> import numpy as np
    >>> target = refhmc.check.targets.normal(2)
    >>> float(target.log_density(np.array([1.0, 1.0])))
    -1.0
    >>> target.draw(np.random.default_rng(1), 5).shape
    (5, 2)
    """

    name: str
    dim: int
    log_density: Callable[[np.ndarray], np.ndarray]
    gradient: Callable[[np.ndarray], np.ndarray] | None
    draw: Callable[[np.random.Generator, int], np.ndarray]
    formula: str = ""


def _target(name: str, dim: int, log_density: Callable, gradient: Callable, draw: Callable, formula: str) -> Target:
    """Return a target whose functions do not warn on overflow, since trial points of a sampler may be anywhere."""
    quiet = np.errstate(over="ignore", invalid="ignore")
    return Target(name, dim, quiet(log_density), quiet(gradient), draw, formula)


def funnel(dim: int = 11) -> Target:
    """Return Neal's funnel.

    The orientation is that of :func:`refhmc.models.Funnel`, with the neck at large v::

        q = (v, x),   v ~ N(0, 9),   x_i | v ~ N(0, exp(-v))

    Parameters
    ----------
    dim : int, default 11
        Dimension, at least 2.

    Returns
    -------
    Target
        The funnel in `dim` dimensions.
    """
    _at_least("funnel", dim, 2)

    def log_density(q: np.ndarray) -> Any:
        v, squares = q[..., 0], np.sum(q[..., 1:] ** 2, axis=-1)
        return -v * v / 18 + (dim - 1) * v / 2 - np.exp(v) * squares / 2

    def gradient(q: np.ndarray) -> np.ndarray:
        v, x = q[..., :1], q[..., 1:]
        e = np.exp(v)
        return np.concatenate([-v / 9 + (dim - 1) / 2 - e * np.sum(x * x, axis=-1, keepdims=True) / 2, -e * x], axis=-1)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        v = 3 * rng.standard_normal((n, 1))
        return np.hstack([v, np.exp(-v / 2) * rng.standard_normal((n, dim - 1))])

    return _target(
        f"funnel-{dim}", dim, log_density, gradient, draw, "v ~ N(0, 9), x_i | v ~ N(0, exp(-v)); q = (v, x)"
    )


def banana(a: float = 25.0, y: float = 1.0, b: float = 0.25) -> Target:
    """Return the banana-shaped posterior of :func:`refhmc.models.Banana`.

    The density is proportional to::

        exp(-a (y - t1 - t2^2)^2 / 2 - b (t1^2 + t2^2) / 2)

    Parameters
    ----------
    a : float, default 25.0
        Precision of the mean of the data, n / sd^2 for n observations.
    y : float, default 1.0
        Mean of the data.
    b : float, default 0.25
        Precision of the prior.

    Returns
    -------
    Target
        The banana in two dimensions, q = (t1, t2).
    """
    V = 1 / a + 1 / b
    c = y - b * V / 2
    slope = (math.hypot(c, math.sqrt(2 * V)) - c) / 2

    def log_density(q: np.ndarray) -> Any:
        t1, t2 = q[..., 0], q[..., 1]
        return -a / 2 * (y - t1 - t2 * t2) ** 2 - b / 2 * (t1 * t1 + t2 * t2)

    def gradient(q: np.ndarray) -> np.ndarray:
        t1, t2 = q[..., 0], q[..., 1]
        r = y - t1 - t2 * t2
        return np.stack([a * r - b * t1, (2 * a * r - b) * t2], axis=-1)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        # (u - c)^2 of u = t2^2 lies above its tangent, so a multiple of a normal density bounds that of t2.
        t2 = np.empty(0)
        while len(t2) < n:
            new = math.sqrt(V / (2 * slope)) * rng.standard_normal(2 * n + 100)
            t2 = np.concatenate([t2, new[rng.random(new.shape) < np.exp(-((new**2 - c - slope) ** 2) / (2 * V))]])
        t2 = t2[:n]
        return np.column_stack([a / (a + b) * (y - t2**2) + rng.standard_normal(n) / math.sqrt(a + b), t2])

    formula = f"exp(-{a:g}/2 ({y:g} - t1 - t2^2)^2 - {b:g}/2 (t1^2 + t2^2))"
    return _target("banana", 2, log_density, gradient, draw, formula)


def normal_with(mean: Any, covariance: Any, name: str = "gaussian") -> Target:
    """Return a normal distribution with a given mean and covariance.

    Parameters
    ----------
    mean : array_like, shape (dim,)
        Mean.
    covariance : array_like, shape (dim, dim)
        Covariance, symmetric and positive definite.
    name : str, default "gaussian"
        Name of the target.

    Returns
    -------
    Target
        The distribution N(mean, covariance).

    Raises
    ------
    numpy.linalg.LinAlgError
        If the covariance is not positive definite.
    """
    mean, covariance = np.asarray(mean, dtype=float), np.asarray(covariance, dtype=float)
    factor = np.linalg.cholesky(covariance)
    formula = (
        f"N({mean.tolist()}, {covariance.tolist()})"
        if len(mean) < 4
        else f"N(mean, covariance) in {len(mean)} dimensions"
    )
    return _linear(name, mean, factor, np.linalg.inv(factor), formula)


def gaussian(dim: int = 3, condition: float = 100.0, mean: float = 0.0) -> Target:
    """Return a correlated normal distribution with a given condition number.

    The covariance is Q L Q' with a fixed rotation Q. The eigenvalues L go from condition^(-1/2) to condition^(1/2) in equal
    ratios.

    Parameters
    ----------
    dim : int, default 3
        Dimension.
    condition : float, default 100.0
        Condition number of the covariance.
    mean : float, default 0.0
        Mean of each coordinate.

    Returns
    -------
    Target
        The distribution N(mean, Q L Q').
    """
    _at_least("gaussian", dim, 1)
    roots = np.logspace(-0.25, 0.25, dim, base=condition) if dim > 1 else np.ones(1)
    Q, R = np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, dim)))
    Q = Q * np.sign(np.diag(R))
    formula = f"N({mean:g}, Q L Q'), condition {condition:g}; the covariance is that of target.draw"
    return _linear(f"gaussian-{dim}-{condition:g}", np.full(dim, float(mean)), Q * roots, (Q / roots).T, formula)


def normal(dim: int = 1) -> Target:
    """Return the standard normal distribution N(0, I).

    Parameters
    ----------
    dim : int, default 1
        Dimension.

    Returns
    -------
    Target
        The distribution N(0, I).
    """
    _at_least("normal", dim, 1)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.standard_normal((n, dim))

    return _target(
        f"normal-{dim}", dim, lambda q: -0.5 * np.sum(q * q, axis=-1), lambda q: -np.asarray(q), draw, "N(0, I)"
    )


def _linear(name: str, mean: np.ndarray, factor: np.ndarray, inverse: np.ndarray, formula: str) -> Target:
    """Return the distribution of mean + factor z; ``inverse`` is the inverse of ``factor``."""

    def log_density(q: np.ndarray) -> Any:
        return -0.5 * np.sum(((q - mean) @ inverse.T) ** 2, axis=-1)

    def gradient(q: np.ndarray) -> np.ndarray:
        return -((q - mean) @ inverse.T) @ inverse

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return mean + rng.standard_normal((n, len(mean))) @ factor.T

    return _target(name, len(mean), log_density, gradient, draw, formula)


def quartic(dim: int = 1) -> Target:
    """Return independent coordinates with density proportional to exp(-x^4 / 4).

    Parameters
    ----------
    dim : int, default 1
        Dimension.

    Returns
    -------
    Target
        The quartic distribution.
    """
    _at_least("quartic", dim, 1)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        size = (4 * rng.standard_gamma(0.25, (n, dim))) ** 0.25
        return np.where(rng.random((n, dim)) < 0.5, -size, size)

    return _target(
        f"quartic-{dim}",
        dim,
        lambda q: -0.25 * np.sum(np.asarray(q) ** 4, axis=-1),
        lambda q: -(np.asarray(q) ** 3),
        draw,
        "exp(-sum x^4 / 4)",
    )


def mixture(weights: Any = (0.6, 0.4), means: Any = ((-1.5, 0.0), (1.5, 0.5)), sds: Any = (0.7, 1.0)) -> Target:
    """Return a mixture of isotropic normals, sum_k weights[k] N(means[k], sds[k]^2 I).

    Parameters
    ----------
    weights : array_like, shape (K,), default (0.6, 0.4)
        Weights; they are normalised to sum to 1.
    means : array_like, shape (K, dim), default ((-1.5, 0.0), (1.5, 0.5))
        Means of the components.
    sds : array_like, shape (K,), default (0.7, 1.0)
        Standard deviations of the components.

    Returns
    -------
    Target
        The mixture.
    """
    w, m, s = (np.asarray(x, dtype=float) for x in (weights, means, sds))
    dim = m.shape[1]
    log_w = np.log(w / w.sum()) - dim * np.log(s)

    def parts(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offset = np.asarray(q)[..., None, :] - m
        return offset, log_w - 0.5 * np.sum(offset**2, axis=-1) / s**2

    def log_density(q: np.ndarray) -> Any:
        return np.logaddexp.reduce(parts(q)[1], axis=-1)

    def gradient(q: np.ndarray) -> np.ndarray:
        offset, logs = parts(q)
        share = np.exp(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True))
        return -np.sum((share / s**2)[..., None] * offset, axis=-2)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        k = np.searchsorted(np.cumsum(w / w.sum())[:-1], rng.random(n), side="right")
        return m[k] + s[k, None] * rng.standard_normal((n, dim))

    formula = f"sum of N(m, s^2 I) with weights {w.tolist()}, m {m.tolist()}, s {s.tolist()}"
    return _target("mixture", dim, log_density, gradient, draw, formula)


def student_t(dim: int = 2, nu: float = 5.0) -> Target:
    """Return the multivariate t distribution with location 0 and scale matrix I.

    Parameters
    ----------
    dim : int, default 2
        Dimension.
    nu : float, default 5.0
        Degrees of freedom.

    Returns
    -------
    Target
        The multivariate t distribution.
    """
    _at_least("student", dim, 1)

    def log_density(q: np.ndarray) -> Any:
        return -0.5 * (nu + dim) * np.log1p(np.sum(np.asarray(q) ** 2, axis=-1) / nu)

    def gradient(q: np.ndarray) -> np.ndarray:
        q = np.asarray(q)
        return -(nu + dim) * q / (nu + np.sum(q * q, axis=-1, keepdims=True))

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.standard_normal((n, dim)) / np.sqrt(rng.chisquare(nu, (n, 1)) / nu)

    return _target(f"student-{dim}", dim, log_density, gradient, draw, f"multivariate t, {nu:g} degrees of freedom")


def rosenbrock() -> Target:
    """Return a Rosenbrock-type density in the plane, proportional to exp(-(x - 1)^2 - 5 (y - x^2)^2).

    It factorises into x ~ N(1, 1/2) and y | x ~ N(x^2, 1/10), and is drawn that way.

    Returns
    -------
    Target
        The distribution of q = (x, y).
    """

    def log_density(q: np.ndarray) -> Any:
        x, y = q[..., 0], q[..., 1]
        return -((x - 1) ** 2) - 5 * (y - x * x) ** 2

    def gradient(q: np.ndarray) -> np.ndarray:
        x, y = q[..., 0], q[..., 1]
        return np.stack([-2 * (x - 1) + 20 * x * (y - x * x), -10 * (y - x * x)], axis=-1)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        x = 1 + math.sqrt(0.5) * rng.standard_normal(n)
        return np.column_stack([x, x * x + math.sqrt(0.1) * rng.standard_normal(n)])

    return _target("rosenbrock", 2, log_density, gradient, draw, "exp(-(x - 1)^2 - 5 (y - x^2)^2)")


def ring(c: float = 4.0, s: float = 1.0) -> Target:
    """Return a ring in the plane with density proportional to ``exp(-(|q|^2 - c)^2 / (2 s^2))``.

    In polar coordinates the area element is d(r^2) d(angle) / 2. The target is therefore drawn with a normal r^2, truncated
    at 0, and a uniform angle.

    Parameters
    ----------
    c : float, default 4.0
        Squared radius of the ring.
    s : float, default 1.0
        Width of the ring in ``|q|^2``.

    Returns
    -------
    Target
        The ring.
    """

    def log_density(q: np.ndarray) -> Any:
        return -((np.sum(np.asarray(q) ** 2, axis=-1) - c) ** 2) / (2 * s * s)

    def gradient(q: np.ndarray) -> np.ndarray:
        q = np.asarray(q)
        return -2 * (np.sum(q * q, axis=-1, keepdims=True) - c) / (s * s) * q

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        below = scipy.stats.norm.cdf(-c / s)
        r = np.sqrt(np.maximum(c + s * scipy.stats.norm.ppf(below + (1 - below) * rng.random(n)), 0.0))
        angle = 2 * math.pi * rng.random(n)
        return np.column_stack([r * np.cos(angle), r * np.sin(angle)])

    return _target("ring", 2, log_density, gradient, draw, f"exp(-(|q|^2 - {c:g})^2 / (2 {s:g}^2)) in the plane")


def cells(dim: int = 2, side: int = 4, contrast: float = 2.0) -> Target:
    """Return a density that is constant on each of side^dim equal cells of [-2, 2]^dim, and zero outside.

    Parameters
    ----------
    dim : int, default 2
        Dimension.
    side : int, default 4
        Number of cells along each axis.
    contrast : float, default 2.0
        Range of the log densities of the cells.

    Returns
    -------
    Target
        The piecewise constant distribution; its gradient is zero.
    """
    _at_least("cells", dim, 1)
    number = side**dim
    log_p = contrast * np.random.default_rng(number).permutation(number) / max(number - 1, 1)
    shape = (side,) * dim
    table = log_p.reshape(shape)
    p = np.exp(log_p) / np.exp(log_p).sum()

    def log_density(q: np.ndarray) -> Any:
        q = np.asarray(q, dtype=float)
        place = np.floor((q + 2) * side / 4)
        inside = np.all((place >= 0) & (place < side), axis=-1)
        index = np.clip(np.where(np.isfinite(place), place, 0), 0, side - 1).astype(int)
        return np.where(inside, table[tuple(np.moveaxis(index, -1, 0))], -np.inf)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        cell = np.searchsorted(np.cumsum(p)[:-1], rng.random(n), side="right")
        return (np.stack(np.unravel_index(cell, shape), axis=-1) + rng.random((n, dim))) * 4 / side - 2

    formula = f"constant on {side}^{dim} cells of [-2, 2]^{dim}, -inf outside"
    return _target(f"cells-{dim}", dim, log_density, lambda q: np.zeros_like(np.asarray(q, dtype=float)), draw, formula)


def exponential(dim: int = 1) -> Target:
    """Return independent standard exponentials, with density exp(-sum x) if all x > 0 and zero otherwise.

    Parameters
    ----------
    dim : int, default 1
        Dimension.

    Returns
    -------
    Target
        The exponential distribution.
    """
    _at_least("exponential", dim, 1)

    def log_density(q: np.ndarray) -> Any:
        q = np.asarray(q)
        return np.where(np.all(q > 0, axis=-1), -np.sum(q, axis=-1), -np.inf)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.standard_exponential((n, dim))

    formula = "exp(-sum x), x > 0; -inf outside"
    return _target(
        f"exponential-{dim}", dim, log_density, lambda q: -np.ones_like(np.asarray(q, dtype=float)), draw, formula
    )


_WITH_DIMENSION: dict[str, Callable] = {
    "funnel": funnel,
    "gaussian": gaussian,
    "normal": normal,
    "quartic": quartic,
    "student": student_t,
    "student-t": student_t,
    "cells": cells,
    "exponential": exponential,
}
_PLAIN: dict[str, Callable] = {
    "banana": banana,
    "mixture": mixture,
    "rosenbrock": rosenbrock,
    "ring": ring,
    "gaussian": lambda: normal_with([0.5, -1.0], [[1.0, 0.5], [0.5, 2.0]]),
}


def names() -> list[str]:
    """Return the names that :func:`from_name` knows, without dimensions.

    Returns
    -------
    list of str
        Sorted names.

    Examples
    --------
    >>> "funnel" in refhmc.check.targets.names()
    True
    """
    return sorted({*_PLAIN, *_WITH_DIMENSION})


def from_name(name: str) -> Target:
    """Return the target of a given name.

    Parameters
    ----------
    name : str
        A name such as "funnel", with a dimension such as "funnel-5", or with a second number such as "gaussian-5-1e6"
        (condition 1e6) and "student-2-3" (3 degrees of freedom).

    Returns
    -------
    Target
        The target.

    Raises
    ------
    ValueError
        If there is no such target; the message lists the names.

    Examples
    --------
    >>> refhmc.check.targets.from_name("funnel-5").dim
    5
    """
    text = name.strip().lower().replace("_", "-")
    if text in _PLAIN:
        return _PLAIN[text]()
    if text in _WITH_DIMENSION:
        return _WITH_DIMENSION[text]()
    for base, constructor in _WITH_DIMENSION.items():
        if text.startswith(base + "-"):
            first, _, second = text[len(base) + 1 :].partition("-")
            if first.isdigit() and (not second or base in ("gaussian", "student", "student-t")):
                return constructor(int(first), float(second)) if second else constructor(int(first))
    raise ValueError(
        f"target must be one of {', '.join(names())}, most with a dimension as in 'funnel-5'; got {name!r}."
    )


def resolve(target: Any) -> Target:
    """Return the target that a name, a model or another object stands for.

    Parameters
    ----------
    target : str, Target, refhmc.Model or object
        A name (see :func:`from_name`), a :class:`Target`, a model of refhmc with exact draws, or an object with methods
        ``draw(rng, n)``, which returns an array of shape (n, dim), and ``log_density(q)``, which returns a number. Such an
        object may also have ``gradient``, ``name`` and ``formula``.

    Returns
    -------
    Target
        The target.

    Raises
    ------
    TypeError
        If the object has no exact draws or no log density.
    ValueError
        If there is no target of that name.
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, str):
        return from_name(target)
    reference = getattr(target, "reference", None)
    draw = getattr(target, "draw", None) or getattr(reference, "draw", None)
    if not callable(draw) or not callable(getattr(target, "log_density", None)):
        raise TypeError(
            "target must be a name, or an object with draw(rng, n) and log_density(q); "
            f"got {type(target).__name__}, which does not have both."
        )
    sample = np.asarray(draw(np.random.default_rng(0), 3), dtype=float)
    if sample.ndim != 2 or len(sample) != 3:
        raise TypeError(f"draw(rng, 3) of target must return an array of shape (3, d); got shape {sample.shape}.")
    gradient = getattr(target, "gradient", None)
    name = str(getattr(target, "name", None) or type(target).__name__)
    log_density = for_many(target.log_density, sample)
    formula = str(getattr(target, "formula", ""))
    return Target(name, sample.shape[1], log_density, gradient, draw, formula)


def for_many(function: Callable, sample: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a version of a function of one point that accepts many points.

    Parameters
    ----------
    function : callable
        ``function(q)`` of a point of shape (dim,), which returns a number.
    sample : ndarray, shape (n, dim)
        Points at which to test whether the function accepts several points.

    Returns
    -------
    callable
        `function` itself if it gives the same results for all points of `sample` in one call, else a loop over points.
    """

    def one_by_one(q: np.ndarray) -> Any:
        q = np.asarray(q, dtype=float)
        return np.array([float(function(x.copy())) for x in q]) if q.ndim > 1 else float(function(q))

    expected = one_by_one(sample)
    try:
        together = np.asarray(function(sample.copy()), dtype=float)
    except Exception:
        return one_by_one
    same = together.shape == expected.shape and np.allclose(together, expected, rtol=1e-9, atol=0.0)
    return function if same else one_by_one


def _at_least(name: str, dim: int, least: int) -> None:
    if dim < least:
        raise ValueError(f"dim of {name} must be at least {least}; got {dim}.")

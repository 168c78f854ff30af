"""Independent prior distributions of one number x, for models that combine densities.

Each has ::

    l(x) = log p(x) up to a constant, with three derivatives
    P(x), a precision for the Fisher metric, with its derivative

P is minus the second derivative of the log density in a coordinate in which it is concave. That is x itself, or u = log x
for distributions of positive numbers. The density in u is l + u, and its tensor in x is P = -(d^2 l/du^2) / x^2. For
Student's t, P is the Fisher information about the location. The support of a parameter restricts it to positive numbers
(:mod:`refhmc.parameters`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_part

__all__ = [
    "Beta",
    "Exponential",
    "Flat",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InverseGamma",
    "LogNormal",
    "Normal",
    "Own",
    "Prior",
    "StudentT",
]

FLAT, NORMAL, LOG_NORMAL, GAMMA, INVERSE_GAMMA, STUDENT_T, BETA = range(7)


class Prior(NamedTuple):
    """A prior distribution of one number; use the constructors of this module.

    Parameters
    ----------
    kind : int
        Which distribution.
    a : float, default 0.0
        First parameter.
    b : float, default 1.0
        Second parameter.
    c : float, default 1.0
        Third parameter.
    folded : bool, default False
        Whether it is the distribution of the absolute value.
    """

    kind: int
    a: float = 0.0
    b: float = 1.0
    c: float = 1.0
    folded: bool = False

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> float | np.ndarray:
        """Draw independent values.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of random numbers.
        shape : tuple of int, default ()
            Shape of the result.

        Returns
        -------
        float or ndarray
            The draws.

        Raises
        ------
        ValueError
            If the prior is flat.

        Examples
        --------
        >>> import numpy as np
        >>> from refhmc.models import priors
        >>> priors.HalfNormal(2.0).draw(np.random.default_rng(1), (5,)).min() > 0
        np.True_
        """
        a, b, c = self.a, self.b, self.c
        draws: dict[int, Callable] = {
            NORMAL: lambda: rng.normal(a, b, shape),
            LOG_NORMAL: lambda: rng.lognormal(a, b, shape),
            GAMMA: lambda: rng.gamma(a, 1 / b, shape),
            INVERSE_GAMMA: lambda: b / rng.gamma(a, size=shape),
            STUDENT_T: lambda: a + b * rng.standard_t(c, shape),
            BETA: lambda: rng.beta(a, b, shape),
        }
        if self.kind not in draws:
            raise ValueError("A flat prior is not a distribution and cannot be drawn from; give a proper prior.")
        return abs(draws[self.kind]()) if self.folded else draws[self.kind]()


class Own(NamedTuple):
    """A user-defined prior of all parameters together.

    The functions take the values x of all parameters in one row, of shape (count,), in order. Numba compiles them. The
    contribution to the Fisher metric is minus the Hessian.

    Parameters
    ----------
    log_density : callable
        Function of x that returns log p(x), up to a constant.
    gradient : callable
        Function of x that returns the gradient, of shape (count,).
    hessian : callable, optional
        Function of x that returns the Hessian, of shape (count, count).
    third_derivative : callable, optional
        Function of x that returns the third derivatives, of shape (count, count, count).

    Examples
    --------
    >>> from refhmc.models import priors
    >>> prior = priors.Own(lambda x: -0.5 * (x @ x), lambda x: -x)
    >>> prior.hessian is None
    True
    """

    log_density: Callable
    gradient: Callable
    hessian: Callable | None = None
    third_derivative: Callable | None = None


@jit_part
def normal(x: float, a: float, b: float, out: np.ndarray) -> None:
    z = (x - a) / b
    out[0], out[1], out[2], out[3] = -0.5 * z * z, -z / b, -1 / b**2, 0.0
    out[4], out[5] = 1 / b**2, 0.0


@jit_part
def log_normal(x: float, a: float, b: float, out: np.ndarray) -> None:
    """Write the derivatives, with z the standardised logarithm and dz/dx = 1 / (b x)."""
    z = (math.log(x) - a) / b
    w = 1 / b**2
    out[0] = -0.5 * z * z - math.log(x)
    out[1] = -(1 + z / b) / x
    out[2] = (1 + z / b - w) / x**2
    out[3] = (3 * w - 2 - 2 * z / b) / x**3
    out[4], out[5] = w / x**2, -2 * w / x**3


@jit_part
def gamma(x: float, a: float, b: float, out: np.ndarray) -> None:
    """Write the derivatives for shape a and rate b."""
    out[0] = (a - 1) * math.log(x) - b * x
    out[1], out[2], out[3] = (a - 1) / x - b, -(a - 1) / x**2, 2 * (a - 1) / x**3
    out[4], out[5] = b / x, -b / x**2


@jit_part
def inverse_gamma(x: float, a: float, b: float, out: np.ndarray) -> None:
    """Write the derivatives for shape a and scale b."""
    out[0] = -(a + 1) * math.log(x) - b / x
    out[1] = -(a + 1) / x + b / x**2
    out[2] = (a + 1) / x**2 - 2 * b / x**3
    out[3] = -2 * (a + 1) / x**3 + 6 * b / x**4
    out[4], out[5] = b / x**3, -3 * b / x**4


@jit_part
def student_t(x: float, a: float, b: float, c: float, out: np.ndarray) -> None:
    """Write the derivatives for location a, scale b and c degrees of freedom."""
    z = (x - a) / b
    w = c + z * z
    out[0] = -0.5 * (c + 1) * math.log1p(z * z / c)
    out[1] = -(c + 1) * z / (w * b)
    out[2] = -(c + 1) * (c - z * z) / (w * b) ** 2
    out[3] = (c + 1) * 2 * z * (3 * c - z * z) / (w * b) ** 3
    out[4], out[5] = (c + 1) / (c + 3) / b**2, 0.0


@jit_part
def beta(x: float, a: float, b: float, out: np.ndarray) -> None:
    """Write the derivatives. P is minus the second derivative in the logit, (a + b) x (1 - x), over (dx/dlogit)^2."""
    y = 1 - x
    out[0] = (a - 1) * math.log(x) + (b - 1) * math.log(y)
    out[1] = (a - 1) / x - (b - 1) / y
    out[2] = -(a - 1) / x**2 - (b - 1) / y**2
    out[3] = 2 * (a - 1) / x**3 - 2 * (b - 1) / y**3
    out[4] = (a + b) / (x * y)
    out[5] = -(a + b) * (1 - 2 * x) / (x * y) ** 2


@jit
def log_prior(x: float, law: np.ndarray, out: np.ndarray) -> None:
    """Write l, l', l'', l''', P and P' at x into ``out``, for the distribution (kind, a, b, c)."""
    kind, a, b, c = int(law[0]), law[1], law[2], law[3]
    if kind == NORMAL:
        normal(x, a, b, out)
    elif kind == LOG_NORMAL:
        log_normal(x, a, b, out)
    elif kind == GAMMA:
        gamma(x, a, b, out)
    elif kind == INVERSE_GAMMA:
        inverse_gamma(x, a, b, out)
    elif kind == STUDENT_T:
        student_t(x, a, b, c, out)
    elif kind == BETA:
        beta(x, a, b, out)
    else:
        for i in range(6):
            out[i] = 0.0


# ------------------------------------------------------------------------------------------------- for the user


def positive(distribution: str, **numbers: object) -> None:
    """Raise an error for a number that is not positive and finite.

    Parameters
    ----------
    distribution : str
        Name of the distribution, for the message.
    **numbers : float
        Numbers by the name of the argument.

    Raises
    ------
    ValueError
        If a number is not positive and finite.
    """
    for name, value in numbers.items():
        if not isinstance(value, int | float | np.integer | np.floating) or not 0 < value < math.inf:
            raise ValueError(f"{name} must be a positive number in {distribution}; got {value!r}.")


def Flat() -> Prior:
    """Return a flat prior, with density one over the whole support.

    Returns
    -------
    Prior
        The improper prior. It cannot be drawn from.

    Examples
    --------
    >>> from refhmc.models import priors
    >>> prior = {"mu": priors.Flat(), "sigma": priors.HalfNormal(1.0)}
    """
    return Prior(FLAT)


def Normal(mean: float, sd: float) -> Prior:
    """Return a normal prior, x ~ N(mean, sd).

    Parameters
    ----------
    mean : float
        Mean.
    sd : float
        Standard deviation, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If `sd` is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from refhmc.models import priors
    >>> priors.Normal(0.0, 2.0).draw(np.random.default_rng(1), (3,)).shape
    (3,)
    """
    positive("Normal", sd=sd)
    return Prior(NORMAL, mean, sd)


def HalfNormal(sd: float) -> Prior:
    """Return a half-normal prior, the distribution of abs(N(0, sd)), for positive numbers.

    Parameters
    ----------
    sd : float
        Scale, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If `sd` is not positive.
    """
    positive("HalfNormal", sd=sd)
    return Prior(NORMAL, 0.0, sd, folded=True)


def LogNormal(mean: float, sd: float) -> Prior:
    """Return a log-normal prior, log x ~ N(mean, sd), for positive numbers.

    Parameters
    ----------
    mean : float
        Mean of log x.
    sd : float
        Standard deviation of log x, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If `sd` is not positive.
    """
    positive("LogNormal", sd=sd)
    return Prior(LOG_NORMAL, mean, sd)


def Gamma(shape: float, rate: float) -> Prior:
    """Return a gamma prior with mean shape / rate, for positive numbers.

    Parameters
    ----------
    shape : float
        Shape, positive.
    rate : float
        Rate, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If a parameter is not positive.
    """
    positive("Gamma", shape=shape, rate=rate)
    return Prior(GAMMA, shape, rate)


def Exponential(rate: float) -> Prior:
    """Return an exponential prior with mean 1 / rate, for positive numbers.

    Parameters
    ----------
    rate : float
        Rate, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If `rate` is not positive.
    """
    return Gamma(1.0, rate)


def InverseGamma(shape: float, scale: float) -> Prior:
    """Return an inverse-gamma prior, 1 / x ~ Gamma(shape, rate=scale), for positive numbers.

    Parameters
    ----------
    shape : float
        Shape, positive.
    scale : float
        Scale, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If a parameter is not positive.
    """
    positive("InverseGamma", shape=shape, scale=scale)
    return Prior(INVERSE_GAMMA, shape, scale)


def StudentT(df: float, mean: float, scale: float) -> Prior:
    """Return a Student-t prior, (x - mean) / scale ~ t with df degrees of freedom.

    Parameters
    ----------
    df : float
        Degrees of freedom, positive.
    mean : float
        Location.
    scale : float
        Scale, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If `df` or `scale` is not positive.
    """
    positive("StudentT", df=df, scale=scale)
    return Prior(STUDENT_T, mean, scale, df)


def HalfCauchy(scale: float) -> Prior:
    """Return a half-Cauchy prior, the distribution of the absolute value, for positive numbers.

    Parameters
    ----------
    scale : float
        Scale, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If `scale` is not positive.
    """
    positive("HalfCauchy", scale=scale)
    return Prior(STUDENT_T, 0.0, scale, 1.0, folded=True)


def Beta(a: float, b: float) -> Prior:
    """Return a beta prior for numbers between 0 and 1, with mean a / (a + b).

    Parameters
    ----------
    a : float
        First shape parameter, positive.
    b : float
        Second shape parameter, positive.

    Returns
    -------
    Prior
        The prior.

    Raises
    ------
    ValueError
        If a parameter is not positive.
    """
    positive("Beta", a=a, b=b)
    return Prior(BETA, a, b)

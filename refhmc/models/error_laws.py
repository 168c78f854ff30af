"""Distributions of observations y around the mean m that an ODE predicts, each with at most one parameter s.

Each has ::

    l(y; m, s) = log p(y | m, s), constants included, with derivatives by (m, s) in the order of ``DERIVATIVES``
    I_mm = E[-l_mm] and I_ss = E[-l_ss], the Fisher information, with their derivatives; I_ms = 0 for all of them

A distribution with location and scale is -log s + h(z) with z = (y - m) / s, from which all derivatives follow::

    l_m = -h'/s                      l_s = -(1 + z h')/s
    l_mm = h''/s^2                   l_ms = (h' + z h'')/s^2                l_ss = (1 + 2 z h' + z^2 h'')/s^2
    l_mmm = -h'''/s^3                l_mms = -(2 h'' + z h''')/s^3
    l_mss = -(2 h' + 4 z h'' + z^2 h''')/s^3                                l_sss = -(2 + 6 z h' + 6 z^2 h'' + z^3 h''')/s^3

A distribution of log y is -log y + l(log y; log m, s), by the chain rule in m alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_part
from refhmc.numerics.polygamma import polygamma

__all__ = [
    "ErrorLaw",
    "LogNormal",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "StudentT",
]

DERIVATIVES = ("", "m", "s", "mm", "ms", "ss", "mmm", "mms", "mss", "sss")
INFORMATION = ("mm", "ss", "mm by m", "mm by s", "ss by m", "ss by s")
LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


class ErrorLaw(NamedTuple):
    """A distribution of observations y with mean or location m and a parameter s.

    Use the constructors of this module, or define your own.

    Parameters
    ----------
    name : str
        Name.
    derivatives : callable
        Function of ``(y, m, s, c, out)``, compiled by Numba, that writes log p(y | m, s) and its derivatives by m, s, mm,
        ms, ss, mmm, mms, mss and sss into ``out``. The first is -inf if y is impossible.
    information : callable or None
        Function of ``(m, s, c, out)``, compiled by Numba, that writes the Fisher information I_mm and I_ss, and the
        derivatives of I_mm by m and s and of I_ss by m and s. None for a model without a Fisher metric.
    parameter : str, float or array_like, default 1.0
        The parameter s: the name of a parameter of the model (a number for all columns of y, or one per column), or numbers
        that broadcast to y.
    constant : float, default 0.0
        A known constant c.
    draw : callable, optional
        Function of ``(rng, m, s, c)`` that returns simulated observations of the shape of ``m``.
    support : {"real", "positive", "counts"}, default "real"
        Values that y can have.

    Examples
    --------
    >>> from refhmc.models import error_laws
    >>> error_laws.LogNormal("sigma").support
    'positive'
    """

    name: str
    derivatives: Callable
    information: Callable | None
    parameter: str | ArrayLike = 1.0
    constant: float = 0.0
    draw: Callable | None = None
    support: str = "real"


@jit_part
def location_scale(z: float, s: float, h: float, h1: float, h2: float, h3: float, out: np.ndarray) -> None:
    """Write the ten derivatives of -log s + h(z)."""
    out[0] = h - math.log(s)
    out[1] = -h1 / s
    out[2] = -(1 + z * h1) / s
    out[3] = h2 / s**2
    out[4] = (h1 + z * h2) / s**2
    out[5] = (1 + 2 * z * h1 + z * z * h2) / s**2
    out[6] = -h3 / s**3
    out[7] = -(2 * h2 + z * h3) / s**3
    out[8] = -(2 * h1 + 4 * z * h2 + z * z * h3) / s**3
    out[9] = -(2 + 6 * z * h1 + 6 * z * z * h2 + z**3 * h3) / s**3


@jit_part
def of_logarithm(y: float, m: float, out: np.ndarray) -> None:
    """Convert the derivatives of a distribution at (log y, log m) to those at (y, m)."""
    _, u, _, uu, us, _, uuu, uus, uss, _ = out[:10]
    out[0] -= math.log(y)
    out[1] = u / m
    out[3] = (uu - u) / m**2
    out[4] = us / m
    out[6] = (uuu - 3 * uu + 2 * u) / m**3
    out[7] = (uus - us) / m**2
    out[8] = uss / m


@jit
def normal(y: float, m: float, s: float, c: float, out: np.ndarray) -> None:
    z = (y - m) / s
    location_scale(z, s, -0.5 * z * z - LOG_ROOT_2PI, -z, -1.0, 0.0, out)


@jit
def normal_information(m: float, s: float, c: float, out: np.ndarray) -> None:
    out[0], out[1] = 1 / s**2, 2 / s**2
    out[2], out[3], out[4], out[5] = 0.0, -2 / s**3, 0.0, -4 / s**3


@jit
def log_normal(y: float, m: float, s: float, c: float, out: np.ndarray) -> None:
    if not m > 0 or not s > 0:
        out[:10] = -np.inf
        return
    z = (math.log(y) - math.log(m)) / s
    location_scale(z, s, -0.5 * z * z - LOG_ROOT_2PI, -z, -1.0, 0.0, out)
    of_logarithm(y, m, out)


@jit
def log_normal_information(m: float, s: float, c: float, out: np.ndarray) -> None:
    out[0], out[1] = 1 / (m * s) ** 2, 2 / s**2
    out[2], out[3], out[4], out[5] = -2 / (m**3 * s**2), -2 / (m**2 * s**3), 0.0, -4 / s**3


@jit
def student_t(y: float, m: float, s: float, c: float, out: np.ndarray) -> None:
    """Write the derivatives of Student's t with c degrees of freedom."""
    z = (y - m) / s
    w = c + z * z
    constant = math.lgamma(0.5 * (c + 1)) - math.lgamma(0.5 * c) - 0.5 * math.log(c * math.pi)
    h = constant - 0.5 * (c + 1) * math.log1p(z * z / c)
    third = (c + 1) * 2 * z * (3 * c - z * z) / w**3
    location_scale(z, s, h, -(c + 1) * z / w, -(c + 1) * (c - z * z) / w**2, third, out)


@jit
def student_t_information(m: float, s: float, c: float, out: np.ndarray) -> None:
    a, b = (c + 1) / (c + 3), 2 * c / (c + 3)
    out[0], out[1] = a / s**2, b / s**2
    out[2], out[3], out[4], out[5] = 0.0, -2 * a / s**3, 0.0, -2 * b / s**3


@jit
def poisson(y: float, m: float, s: float, c: float, out: np.ndarray) -> None:
    out[:10] = 0.0
    if not m > 0:
        out[0] = -np.inf
        return
    out[0] = y * math.log(m) - m - math.lgamma(y + 1)
    out[1] = y / m - 1
    out[3] = -y / m**2
    out[6] = 2 * y / m**3


@jit
def poisson_information(m: float, s: float, c: float, out: np.ndarray) -> None:
    out[:6] = 0.0
    out[0], out[2] = 1 / m, -1 / m**2


@jit
def negative_binomial(y: float, m: float, s: float, c: float, out: np.ndarray) -> None:
    """Write the derivatives, with r = (y + s) / (m + s)."""
    if not m > 0 or not s > 0:
        out[:10] = -np.inf
        return
    t = m + s
    r = (y + s) / t
    choose = math.lgamma(y + s) - math.lgamma(s) - math.lgamma(y + 1)
    out[0] = choose + s * math.log(s / t) + y * math.log(m / t)
    out[1] = y / m - r
    out[2] = polygamma(0, y + s) - polygamma(0, s) + math.log(s / t) + 1 - r
    out[3] = -y / m**2 + r / t
    out[4] = (r - 1) / t
    out[5] = polygamma(1, y + s) - polygamma(1, s) + 1 / s + (r - 2) / t
    out[6] = 2 * y / m**3 - 2 * r / t**2
    out[7] = (1 - 2 * r) / t**2
    out[8] = (2 - 2 * r) / t**2
    out[9] = polygamma(2, y + s) - polygamma(2, s) - 1 / s**2 + (3 - 2 * r) / t**2


@jit
def negative_binomial_information(m: float, s: float, c: float, out: np.ndarray) -> None:
    """Write the information about m only, because that about s has no closed form."""
    t = m + s
    out[0], out[1] = 1 / m - 1 / t, 0.0
    out[2], out[3], out[4], out[5] = 1 / t**2 - 1 / m**2, 1 / t**2, 0.0, 0.0


# ---------------------------------------------------------------------------------------------------------- draws


def draw_normal(rng: np.random.Generator, m: np.ndarray, s: np.ndarray, c: float) -> np.ndarray:
    """Draw observations for :func:`Normal`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    m : ndarray
        Means.
    s : ndarray
        Standard deviations.
    c : float
        Not used.

    Returns
    -------
    ndarray
        Observations, with the shape of `m`.
    """
    return rng.normal(m, s)


def draw_log_normal(rng: np.random.Generator, m: np.ndarray, s: np.ndarray, c: float) -> np.ndarray:
    """Draw observations for :func:`LogNormal`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    m : ndarray
        Medians, positive.
    s : ndarray
        Standard deviations of log y.
    c : float
        Not used.

    Returns
    -------
    ndarray
        Observations, with the shape of `m`.
    """
    return m * np.exp(s * rng.standard_normal(np.shape(m)))


def draw_student_t(rng: np.random.Generator, m: np.ndarray, s: np.ndarray, c: float) -> np.ndarray:
    """Draw observations for :func:`StudentT`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    m : ndarray
        Locations.
    s : ndarray
        Scales.
    c : float
        Degrees of freedom.

    Returns
    -------
    ndarray
        Observations, with the shape of `m`.
    """
    return m + s * rng.standard_t(c, np.shape(m))


def draw_poisson(rng: np.random.Generator, m: np.ndarray, s: np.ndarray, c: float) -> np.ndarray:
    """Draw observations for :func:`Poisson`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    m : ndarray
        Means.
    s : ndarray
        Not used.
    c : float
        Not used.

    Returns
    -------
    ndarray
        Observations, with the shape of `m`.
    """
    return rng.poisson(m)


def draw_negative_binomial(rng: np.random.Generator, m: np.ndarray, s: np.ndarray, c: float) -> np.ndarray:
    """Draw observations for :func:`NegativeBinomial`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    m : ndarray
        Means.
    s : ndarray
        Dispersion parameters phi.
    c : float
        Not used.

    Returns
    -------
    ndarray
        Observations, with the shape of `m`.
    """
    return rng.poisson(rng.gamma(s, m / s))


# ---------------------------------------------------------------------------------------------------- for the user


def Normal(sigma: str | ArrayLike) -> ErrorLaw:
    """Return normal errors, y ~ N(m, sigma).

    Parameters
    ----------
    sigma : str, float or array_like
        Standard deviation: the name of a parameter, or known numbers that broadcast to y.

    Returns
    -------
    ErrorLaw
        The distribution of observations.

    Examples
    --------
    >>> from refhmc.models import error_laws
    >>> error_laws.Normal("sigma").parameter
    'sigma'
    """
    return ErrorLaw("Normal", normal, normal_information, sigma, 0.0, draw_normal)


def LogNormal(sigma: str | ArrayLike) -> ErrorLaw:
    """Return log-normal errors, log y ~ N(log m, sigma), for positive m and y.

    Parameters
    ----------
    sigma : str, float or array_like
        Standard deviation of log y: the name of a parameter, or known numbers that broadcast to y.

    Returns
    -------
    ErrorLaw
        The distribution of observations.
    """
    return ErrorLaw("LogNormal", log_normal, log_normal_information, sigma, 0.0, draw_log_normal, "positive")


def StudentT(df: float, sigma: str | ArrayLike) -> ErrorLaw:
    """Return Student-t errors, (y - m) / sigma ~ t with df degrees of freedom.

    Parameters
    ----------
    df : float
        Degrees of freedom, positive.
    sigma : str, float or array_like
        Scale: the name of a parameter, or known numbers that broadcast to y.

    Returns
    -------
    ErrorLaw
        The distribution of observations.

    Raises
    ------
    ValueError
        If `df` is not positive.
    """
    if not df > 0:
        raise ValueError(f"df must be positive in StudentT; got {df!r}.")
    return ErrorLaw("StudentT", student_t, student_t_information, sigma, float(df), draw_student_t)


def Poisson() -> ErrorLaw:
    """Return Poisson errors, y ~ Poisson(m), for counts.

    Returns
    -------
    ErrorLaw
        The distribution of observations.
    """
    return ErrorLaw("Poisson", poisson, poisson_information, 1.0, 0.0, draw_poisson, "counts")


def NegativeBinomial(phi: str | ArrayLike) -> ErrorLaw:
    """Return negative binomial errors, for counts with mean m and variance m + m^2 / phi.

    If `phi` is a parameter of the model, the model has no Fisher metric.

    Parameters
    ----------
    phi : str, float or array_like
        Dispersion: the name of a parameter, or known numbers that broadcast to y.

    Returns
    -------
    ErrorLaw
        The distribution of observations.
    """
    information = None if isinstance(phi, str) else negative_binomial_information
    return ErrorLaw("NegativeBinomial", negative_binomial, information, phi, 0.0, draw_negative_binomial, "counts")

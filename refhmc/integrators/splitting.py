"""Splittings of several stages: kicks and drifts with coefficients that make the energy error small.

With H(q, p) = -L(q) + 1/2 p' M^-1 p, one step of size eps is

    p <- p + b_1 eps dL/dq(q)
    q <- q + a_k eps M^-1 p,     p <- p + b_{k+1} eps dL/dq(q),     k = 1, ..., s

The coefficients b_1, a_1, b_2, ..., a_s, b_{s+1} are the same read backwards, so that the step is reversible and of even order.
It is symplectic, and of order 2 if sum a_k = sum b_k = 1. Order 4 needs two more conditions: the terms in [A, [A, B]] and
[B, [B, A]] of log(e^{b_1 B} e^{a_1 A} ... e^{b_{s+1} B}) vanish. A step of s stages costs s gradients, since the gradient of
the last kick is that of the next step's first kick. ``eps`` is the size of the whole step. The leapfrog with as many gradients
has steps of eps/s.

On a standard normal one step is the matrix (A, B; C, A) of each (q_i, p_i). A trajectory of n steps that starts in stationarity
has the mean energy error, per coordinate,

    E[H_n - H_0] = sin^2(n theta) rho(eps),     cos theta = A,     rho = (B + C)^2 / (2 (1 - A^2))

Blanes, Casas and Sanz-Serna (2014) make the maximum of rho over 0 < eps < s small. McLachlan (1995) and Omelyan, Mryglod and
Folk (2003) minimise the norm of the leading terms of the error, in eps^3 and eps^5, which decide for eps -> 0.
``tests/integrators/test_splitting.py`` finds the coefficients again in both ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.arguments import one_of
from refhmc.core.point import as_point
from refhmc.core.types import as_metric, as_model, as_work
from refhmc.integrators.leapfrog import NO_ROWS
from refhmc.metrics.base import HamiltonianOnArrays, Metric
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot


def palindrome(*first: float) -> tuple[float, ...]:
    """Return b_1, a_1, ..., b_{s+1} from the free ones, b_1, a_1, b_2, ...; each kind adds up to 1.

    The last coefficient of each kind follows from the sum: the one in the middle, and its neighbours.
    """
    s = len(first) + 1
    half = 0.5 - sum(first[1 - s % 2 :: 2])
    middle = 1 - 2 * sum(first[s % 2 :: 2])
    return (*first, half, middle, half, *first[::-1])


class Splitting:
    """Base class of the splittings, explicit methods on constant metrics."""

    order = 2
    symplectic = True
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    layout = NO_ROWS
    constant_metric = True

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The palindrome b_1, a_1, b_2, ..., a_s, b_{s+1} of kicks b and drifts a."""
        raise NotImplementedError

    @property
    def cost(self) -> int:
        """Number of gradients per step."""
        return len(self.coefficients) // 2

    def pointer(self, metric: Metric) -> Callable:
        """Return the compiled step.

        Parameters
        ----------
        metric : object
            The metric.

        Returns
        -------
        callable
            The step for this metric.
        """
        return splitting

    def options(self) -> dict[str, Any]:
        """Return the options of the compiled functions.

        Returns
        -------
        dict of str to float or array
            The value of each option by its name.
        """
        coefficients = np.zeros(LONGEST)
        coefficients[: len(self.coefficients)] = self.coefficients
        return {"n_stages": self.cost, "kicks_and_drifts": coefficients}

    def on_arrays(self) -> Callable:
        """Return the step on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return kicks_and_drifts(self.coefficients)


@dataclass(frozen=True)
class BCSS(Splitting):
    """Splitting of Blanes, Casas and Sanz-Serna with 2, 3 or 4 stages, for large steps.

    With ``H(q, p) = -L(q) + 1/2 p' M^-1 p`` and s stages, one step of size eps is::

        p <- p + b_1 eps dL/dq(q)
        q <- q + a_k eps M^-1 p,    p <- p + b_{k+1} eps dL/dq(q),    k = 1, ..., s

    The coefficients make the largest energy error of the oscillator over 0 < eps < s small. The method is of order 2,
    symplectic, reversible under p -> -p, explicit and exact. It costs s gradients per step. The step size is that of the whole
    step, and about s times that of the leapfrog.

    Parameters
    ----------
    stages : int, default 2
        Number of stages: 2, 3 or 4. With 3 or 4, give the kernel a `step_size` below half the period of the slowest coordinate.

    Raises
    ------
    ValueError
        If `stages` is another number.

    See Also
    --------
    McLachlan, Omelyan : Coefficients for small steps.
    Leapfrog : One stage.

    Notes
    -----
    The mean energy error of a standard normal is at most ``rho(eps)`` per coordinate. The largest ``rho`` for 0 < eps < s is
    0.042 for the leapfrog, and 4e-4, 7.4e-5 and 6.9e-7 for two, three and four stages. The coefficients of two and three
    stages minimise it, to the digits given. With four stages it exceeds the minimum of the same family by 17 %. The steps are
    stable up to 2.63, 4.66 and 5.35. Mici has b_1 = (3 - 3^(1/2)) / 6 = 0.21132 for two stages, and a largest ``rho`` of 5e-4.

    The limits of three and four stages exceed pi, half the period of a standard normal. There the energy error is small, too.
    Warm-up that adapts the step size to an acceptance rate can therefore end at steps that turn q into almost -q, and the
    squares of the coordinates hardly change. Two stages are not stable at such steps.

    References
    ----------
    Blanes, Casas and Sanz-Serna (2014), Numerical integrators for the hybrid Monte Carlo method, equations 6.7 (three stages)
    and 6.8 (four stages).

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    >>> q, p, leapfrog = [1.0], [0.5], refhmc.integrators.Leapfrog()
    >>> a = refhmc.integrate(H, leapfrog, q, p, step_size=0.5, n_steps=30)
    >>> b = refhmc.integrate(H, refhmc.integrators.BCSS(stages=3), q, p, step_size=1.5, n_steps=10)
    >>> a.evaluations == b.evaluations
    True
    >>> bool(abs(b.energy - b.energy[0]).max() < abs(a.energy - a.energy[0]).max() / 2)
    True
    """

    name = "bcss"
    stages: int = 2

    def __post_init__(self) -> None:
        if self.stages not in BCSS_COEFFICIENTS:
            raise ValueError(f"stages must be 2, 3 or 4; got {self.stages!r}. Leapfrog() has one stage.")

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The palindrome b_1, a_1, b_2, ..., a_s, b_{s+1} of kicks b and drifts a."""
        return BCSS_COEFFICIENTS[self.stages]


@dataclass(frozen=True)
class McLachlan(Splitting):
    """McLachlan's splitting with two stages, whose error has the least norm for small steps.

    With ``H(q, p) = -L(q) + 1/2 p' M^-1 p`` and b = 0.1931833275037836, one step of size eps is::

        p <- p + b eps dL/dq(q);             q <- q + eps/2 M^-1 p
        p <- p + (1 - 2b) eps dL/dq(q);      q <- q + eps/2 M^-1 p
        p <- p + b eps dL/dq(q)

    Here b minimises the sum of squares of (1 - 6b) / 24 and (1 - 6b + 6b^2) / 12, the error terms of [A, [A, B]] and
    [B, [B, A]]. The method is of order 2, symplectic, reversible under p -> -p, explicit and exact. It costs two gradients per
    step. The step size is that of the whole step, and about twice that of the leapfrog.

    See Also
    --------
    BCSS : Coefficients for large steps.
    Omelyan : Order 4.

    Notes
    -----
    Omelyan, Mryglod and Folk (2002) found the same coefficient. On a standard normal the steps are stable up to 2.55.

    References
    ----------
    McLachlan (1995), On the numerical integration of ordinary differential equations by symmetric composition methods.

    Examples
    --------
    >>> import refhmc
    >>> method = refhmc.integrators.McLachlan()
    >>> method.order, method.cost
    (2, 2)
    >>> H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    >>> path = refhmc.integrate(H, method, [1.0], [0.0], step_size=0.4, n_steps=10)
    >>> bool(abs(path.energy - path.energy[0]).max() < 1e-3)
    True
    """

    name = "mclachlan"

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The palindrome b_1, a_1, b_2, a_1, b_1 of kicks b and drifts a."""
        return palindrome(0.1931833275037836)


@dataclass(frozen=True)
class Omelyan(Splitting):
    """Splitting of order 4 by Omelyan, Mryglod and Folk, with five stages.

    With ``H(q, p) = -L(q) + 1/2 p' M^-1 p``, one step of size eps of the velocity version is::

        p <- p + b_1 eps dL/dq(q)
        q <- q + a_k eps M^-1 p,    p <- p + b_{k+1} eps dL/dq(q),    k = 1, ..., 5

    The position version starts and ends with a drift and has five kicks. The coefficients satisfy the conditions of order 4.
    Among those that do, they minimise the norm of the error terms of order 5. The method is symplectic, reversible under
    p -> -p, explicit and exact. The step size is that of the whole step, and up to five times that of the leapfrog.

    Parameters
    ----------
    variant : {"velocity", "position"}, default "velocity"
        ``"velocity"``, with a kick first, costs five gradients per step. ``"position"``, with a drift first, costs six, because
        the energy at the end needs the density there. Its error is also larger.

    Raises
    ------
    ValueError
        If `variant` is unknown.

    See Also
    --------
    BCSS : Coefficients for large steps.
    Yoshida, Suzuki : Compositions of order 4.

    Notes
    -----
    On a standard normal the steps are stable up to 3.14 (velocity) and 2.98 (position). The method is meant for small errors.

    References
    ----------
    Omelyan, Mryglod and Folk (2003), Symplectic analytically integrable decomposition algorithms, equations 71 (velocity) and
    72 (position).

    Examples
    --------
    >>> import refhmc
    >>> method = refhmc.integrators.Omelyan()
    >>> method.order, method.cost
    (4, 5)
    >>> H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    >>> path = refhmc.integrate(H, method, [1.0], [0.0], step_size=0.5, n_steps=10)
    >>> bool(abs(path.energy - path.energy[0]).max() < 1e-5)
    True
    """

    name = "omelyan"
    order = 4
    variants = ("velocity", "position")
    variant: str = "velocity"

    def __post_init__(self) -> None:
        one_of("variant", self.variant, self.variants)

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The palindrome b_1, a_1, b_2, ..., b_1 of kicks b and drifts a; b_1 = 0 in the position version."""
        if self.variant == "velocity":
            return palindrome(0.08398315262876693, 0.2539785108410595, 0.6822365335719091, -0.03230286765269967)
        drifts_and_kicks = palindrome(0.2750081212332419, -0.08442961950707149, -0.1347950099106792, 0.3549000571574260)
        return (0.0, *drifts_and_kicks, 0.0)


BCSS_COEFFICIENTS = {
    2: palindrome(0.21178),
    3: palindrome(0.11888010966548, 0.29619504261126),
    4: palindrome(0.071353913450279725904, 0.191667800000000000000, 0.268548791161230105820),
}
LONGEST = 13  # coefficients of the position version of Omelyan


def kicks_and_drifts(coefficients: Sequence[float]) -> Callable:
    """Return the step on arrays of a splitting.

    With the coefficients b_1, a_1, b_2, ..., a_s, b_{s+1} one step of size eps is::

        p <- p + b_1 eps dL/dq(q)
        q <- q + a_k eps M^-1 p,    p <- p + b_{k+1} eps dL/dq(q),    k = 1, ..., s

    Parameters
    ----------
    coefficients : sequence of float
        The coefficients of kicks and drifts in turn, a kick first and last.

    Returns
    -------
    callable
        ``step(H, q, p, eps)`` returns ``(q', p')``, NaN if the density is not finite at a position on the way.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> H = refhmc.array_api.hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]), refhmc.metrics.Identity())
    >>> step = refhmc.array_api.kicks_and_drifts([0.5, 1.0, 0.5])  # the leapfrog
    >>> q, p = step(H, np.ones((3, 1)), np.zeros((3, 1)), 0.1)
    >>> bool(np.array_equal(q, refhmc.array_api.leapfrog(H, np.ones((3, 1)), np.zeros((3, 1)), 0.1)[0]))
    True
    """
    first, *pairs = coefficients

    def step(H: HamiltonianOnArrays, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
        xp = batched.namespace(q)
        p = p + first * eps * H.model.gradient(q)
        for a, b in zip(pairs[::2], pairs[1::2], strict=True):
            q = q + a * eps * H.inverse_product(q, p)
            L, gradient = H.model.value_and_gradient(q)
            p = p + b * eps * xp.where(xp.isfinite(L)[..., None], gradient, xp.nan)
        return q, p

    return step


@jit
def splitting(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make one step of the point ``z`` in place and return H there, NaN if the density is not finite at a stage."""
    _, _, options, _, counters, _ = as_work(work)
    f, point, log_density = as_model(model), as_point(z), 0.0
    kick(point.p, options.kicks_and_drifts[0] * eps, point.gradient)
    for k in range(options.n_stages):
        as_metric(metric).inverse_product(point.p, work, point.velocity)
        kick(point.q, options.kicks_and_drifts[2 * k + 1] * eps, point.velocity)
        counters.gradients += 1
        log_density = f.value_and_gradient(point.q, f.data, point.gradient)
        if not np.isfinite(log_density):
            return math.nan
        kick(point.p, options.kicks_and_drifts[2 * k + 2] * eps, point.gradient)
    as_metric(metric).inverse_product(point.p, work, point.velocity)
    point.log_density[0] = log_density
    return 0.5 * dot(point.p, point.velocity) - log_density


@jit
def kick(x: np.ndarray, h: float, y: np.ndarray) -> None:
    """Set x <- x + h y: a kick of the momentum, or a drift of the position."""
    for i in range(x.shape[0]):
        x[i] += h * y[i]

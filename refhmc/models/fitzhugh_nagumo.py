"""The FitzHugh-Nagumo model of a nerve cell, both states observed with noise (Brofos and Lederman 2021, sec. 4.5).

The model is ::

    dv/dt = c (v - v^3/3 + r)
    dr/dt = -(v - a + b r) / c            theta = (a, b, c) = (theta_1, theta_2, theta_3), each N(0, 1)

    (v, r) = (-1, 1) at time 0;  v_n, r_n ~ N(their values at time t_n, sigma),  n = 1..200, t_n equally spaced on [0, 10]

:mod:`refhmc.models.ode_posterior` has the posterior, the metric (eq. 20) and the derivatives. With z = (v, r, a, b, c) and
e = v - a + b r, the non-zero first, second and third derivatives of the right-hand side are ::

    f_1:   v: c (1 - v^2)    r: c    c: f_1 / c          vv: -2 c v    vc: 1 - v^2    rc: 1
    f_2:   v: -1/c    r: -b/c    a: 1/c    b: -r/c    c: e/c^2
           vc: 1/c^2    rb: -1/c    rc: b/c^2    ac: -1/c^2    bc: r/c^2    cc: -2 e/c^3
    f_1:   vvv: -2c    vvc: -2v
    f_2:   vcc: -2/c^3    rbc: 1/c^2    rcc: -2 b/c^3    acc: 2/c^3    bcc: -2 r/c^3    ccc: 6 e/c^4
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit
from refhmc.core.arguments import array_of_numbers
from refhmc.errors import ShapeError
from refhmc.models.base import Model
from refhmc.models.datasets import load_json
from refhmc.models.ode import normal_posterior
from refhmc.models.ode_solution import ODESolution
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.models.reference import Reference
from refhmc.models.sensitivities import along_path

TRUTH = np.array([0.2, 0.2, 3.0])
START = np.array([-1.0, 1.0])
SIGMA = 0.5


@jit
def rhs(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    v, r = x[0], x[1]
    a, b, c = theta[0], theta[1], theta[2]
    out[0] = c * (v - v * v * v / 3 + r)
    out[1] = -(v - a + b * r) / c


@jit
def jacobian(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    v, r = x[0], x[1]
    a, b, c = theta[0], theta[1], theta[2]
    i = 1 / c
    out[0, 0] = c * (1 - v * v)
    out[0, 1] = c
    out[0, 4] = v - v * v * v / 3 + r
    out[1, 0] = -i
    out[1, 1] = -b * i
    out[1, 2] = i
    out[1, 3] = -r * i
    out[1, 4] = (v - a + b * r) * i * i


@jit
def hessian(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    v, r = x[0], x[1]
    a, b, c = theta[0], theta[1], theta[2]
    i = 1 / c
    out[0, 0, 0] = -2 * c * v
    out[0, 0, 4] = out[0, 4, 0] = 1 - v * v
    out[0, 1, 4] = out[0, 4, 1] = 1
    out[1, 0, 4] = out[1, 4, 0] = i * i
    out[1, 1, 3] = out[1, 3, 1] = -i
    out[1, 1, 4] = out[1, 4, 1] = b * i * i
    out[1, 2, 4] = out[1, 4, 2] = -i * i
    out[1, 3, 4] = out[1, 4, 3] = r * i * i
    out[1, 4, 4] = -2 * (v - a + b * r) * i * i * i


@jit
def put(out: np.ndarray, i: int, j: int, k: int, m: int, value: float) -> None:
    """Write one third derivative of f_i at all orders of its indices."""
    out[i, j, k, m] = out[i, j, m, k] = out[i, k, j, m] = out[i, k, m, j] = out[i, m, j, k] = out[i, m, k, j] = value


@jit
def third(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    v, r = x[0], x[1]
    a, b, c = theta[0], theta[1], theta[2]
    i = 1 / c
    put(out, 0, 0, 0, 0, -2 * c)
    put(out, 0, 0, 0, 4, -2 * v)
    put(out, 1, 0, 4, 4, -2 * i * i * i)
    put(out, 1, 1, 3, 4, i * i)
    put(out, 1, 1, 4, 4, -2 * b * i * i * i)
    put(out, 1, 2, 4, 4, 2 * i * i * i)
    put(out, 1, 3, 4, 4, -2 * r * i * i * i)
    put(out, 1, 4, 4, 4, 6 * (v - a + b * r) * i * i * i * i)


@jit
def equations(u: np.ndarray, t: float, work: np.ndarray) -> None:
    along_path(rhs, jacobian, hessian, third, 2, 2, 3, u, t, work)


def observation_times(n: int = 200) -> np.ndarray:
    """Return ``n`` equally spaced times on [0, 10]."""
    return np.linspace(0.0, 10.0, n)


def solution(times: ArrayLike, tolerance: float = 5e-14) -> ODESolution:
    return ODESolution(
        *(rhs, jacobian, hessian, third),
        parameters=3,
        initial_state=START,
        times=times,
        start_time=0.0,
        tolerance=tolerance,
        solver="auto",
        name="fitzhugh-nagumo",
        equations=equations,
    )


def simulate(rng: np.random.Generator, times: np.ndarray | None = None, sigma: float = SIGMA) -> np.ndarray:
    """Return observations (T, 2) of the solution for a = b = 0.2, c = 3."""
    states = solution(observation_times() if times is None else times).solve(TRUTH, order=0).states
    return states + sigma * rng.standard_normal(states.shape)


@recreatable
def FitzHughNagumo(
    y: ArrayLike | None = None, times: ArrayLike | None = None, sigma: float = SIGMA, tolerance: float = 5e-14
) -> Model:
    """Return the posterior of the parameters of the FitzHugh-Nagumo equations.

    The model is ::

        dv/dt = c (v - v^3/3 + r)
        dr/dt = -(v - a + b r) / c            a, b, c ~ N(0, 1)
        (v, r) = (-1, 1) at time 0;           y_t ~ N((v, r) at time t, sigma)

    The variables are ``a``, ``b`` and ``c``. The model has all derivatives and the Fisher metric. If the ODE has no solution,
    as for most c < 0, the log density is -inf. ``model.data.solve(q, order)`` returns states and sensitivities.

    Parameters
    ----------
    y : array_like of shape (T, 2), optional
        Observations of v and r. Defaults to 200 observations on [0, 10], simulated with a = b = 0.2, c = 3, sigma = 0.5.
    times : array_like of shape (T,), optional
        Times of the observations. Defaults to T equally spaced times on [0, 10].
    sigma : float, default 0.5
        Standard deviation of the observations.
    tolerance : float, default 5e-14
        Relative and absolute error of each step of the solver. With the default, the gradient agrees with the computed density
        to 1e-12; with 1e-12, to 3e-11.

    Returns
    -------
    Model
        The model. Chains start at a = b = 0.2, c = 3. For the default data, ``reference`` has moments by quadrature.

    Raises
    ------
    ValueError
        If `times` or `sigma` is given without `y`, or a value is out of range.
    refhmc.errors.ShapeError
        If the shapes do not fit.

    References
    ----------
    J. A. Brofos and R. R. Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian manifold Hamiltonian
    Monte Carlo, sec. 4.5.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.FitzHughNagumo()
    >>> model.dim, model.data.solve([0.2, 0.2, 3.0], order=1).states.shape
    (3, (200, 2))
    """
    reference = None
    if y is None:
        if times is not None or sigma != SIGMA:
            raise ValueError(
                "times and sigma must be given together with y; give y, or leave all of them out for the default data."
            )
        known = load_json("fitzhugh_nagumo")
        y = known["y"]
        mean, variance, mean_se, variance_se = (np.array(known[key]) for key in Reference._fields[1:5])
        source = "quadrature (python -m validation.fitzhugh_nagumo_posterior)"
        reference = Reference(source, mean, variance, mean_se, variance_se)
    y = array_of_numbers("y", y)
    if y.ndim != 2 or y.shape[1] != 2:
        raise ShapeError(f"y must have shape (T, 2); got {y.shape}.")
    smaller = Recommended("nuts", "", "at 0.8 one draw in 1,000 diverges", (("target_accept", 0.95),))
    options = {"names": ["a", "b", "c"], "initial": TRUTH, "name": "fitzhugh-nagumo", "reference": reference}
    solved = solution(observation_times(len(y)) if times is None else times, tolerance)
    return normal_posterior(solved, y, sigma, np.zeros(3), 1.0, {**options, "recommended": smaller})

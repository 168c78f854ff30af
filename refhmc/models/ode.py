"""The posterior of the parameters of an ODE dx/dt = f(t, x, theta), whose states are observed with noise.

:mod:`refhmc.models.ode_posterior` has the formulas, and :mod:`refhmc.models.sensitivities` the derivatives of the states. For
normal errors with known standard deviation and independent normal priors, theta is the position. With the derivatives S and
W of x, r = y - x, w = 1/sigma^2, P = diag(1 / s^2) and sums over all observations, ::

    y_tj ~ N(x_j(t), sigma_tj),    theta_a ~ N(m_a, s_a)

    gradient = sum w r S - P (theta - m)
    hessian  = sum w (r W - S S') - P
    Fisher   = sum w S S' + P                                       eq. 20 of Brofos and Lederman (2021)
    d Fisher_ab / dtheta_c = sum w (W_ac S_b + S_a W_bc)            Girolami and Calderhead (2011), sec. 10
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.arguments import array_of_numbers
from refhmc.errors import GradientError, ModelError, ShapeError
from refhmc.models.base import Model
from refhmc.models.error_laws import ErrorLaw, Normal
from refhmc.models.ode_posterior import Posterior, functions_of, observations_of, scale_of
from refhmc.models.ode_solution import NO_THIRD, ODESolution, Solution, in_place
from refhmc.models.priors import NORMAL
from refhmc.models.reference import Reference

if TYPE_CHECKING:
    from refhmc.models.priors import Own, Prior

IN_PYTHON = "its ODE may need SciPy's solver"


class Problem(NamedTuple):
    """The data of a model with normal errors: times (T,), y (T, n), its standard deviation s (T, n), and the solution."""

    times: np.ndarray
    y: np.ndarray
    s: np.ndarray
    solution: ODESolution

    def solve(self, theta: np.ndarray, order: int = 2) -> Solution:
        """Return the states and the sensitivities up to ``order`` (0 to 3) at the times: :meth:`ODESolution.solve`."""
        return self.solution.solve(theta, order)


class NormalODE(Model):
    """The posterior for normal errors and priors, with observations at the times with the indices ``at``."""

    def __init__(self, of: Posterior, data: Problem, at: np.ndarray, options: dict[str, Any]) -> None:
        self.of, self.solution, self._given = of, of.solution, (of, data, at, options)
        whole = of.highest == 3
        super().__init__(
            of.solution.p,
            **functions_of(of),
            data=data,
            in_python=IN_PYTHON,
            # for residuals of one sigma, with a hundred times the tolerance as an upper limit of the error of a state
            noise=100 * of.solution.tolerance * np.sum(1 / data.s[~np.isnan(data.y)]),
            absent={} if whole else {"third_derivative": NO_THIRD, "hessian_contraction": NO_THIRD},
            n_rows=len(at),
            part=self.share_of,
            **options,
        )

    def __reduce__(self) -> tuple[Callable, tuple]:
        return NormalODE, self._given

    def share_of(self, rows: np.ndarray, share: float) -> NormalODE:
        """Return the model of the observations at some of the times, with a ``share`` of the log prior.

        The solution is that at all times, so a part costs as much as the whole.
        """
        of, data, at, options = self._given
        y = np.full_like(data.y, np.nan)
        y[at[rows]] = data.y[at[rows]]
        priors = of.priors.copy()
        with np.errstate(divide="ignore"):  # a part without observations
            priors[:, 2] /= np.sqrt(share)
        labels = {key: options[key] for key in options if key not in ("reference", "recommended")}
        return NormalODE(of._replace(priors=priors), data._replace(y=y), at[rows], labels)


def normal_posterior(
    solution: ODESolution,
    y: ArrayLike,
    sigma: ArrayLike,
    prior_mean: np.ndarray,
    prior_scale: ArrayLike,
    options: dict[str, Any],
) -> NormalODE:
    """Return the model for normal errors and priors. ``options`` are those of :class:`refhmc.Model`."""
    y = observations_of(solution.times, y, solution.n)
    data, p = Problem(solution.times, y, scale_of("sigma", sigma, y), solution), solution.p
    prior_scale = np.array(array_of_numbers("prior_scale", prior_scale))
    if prior_scale.shape not in ((), (p,)):
        raise ShapeError(f"prior_scale must be a number or have shape {(p,)}; got {prior_scale.shape}.")
    if not np.isfinite(prior_mean).all() or not (prior_scale > 0).all():
        raise ValueError("prior_mean must be finite, and prior_scale must be positive (inf for a flat prior).")
    priors = np.zeros((p, 4))
    priors[:, 0], priors[:, 1], priors[:, 2] = NORMAL, prior_mean, prior_scale
    indices = np.arange(p), np.full(solution.n, -1)
    of = Posterior(solution, (), solution.n, Normal(data.s), *indices, priors, None, in_python=True)
    return NormalODE(of, data, np.arange(len(y)), options)


def ODE(
    rhs: Callable,
    jacobian: Callable,
    hessian: Callable | None = None,
    third: Callable | None = None,
    *,
    initial_state: Callable | Sequence[float | str] | np.ndarray,
    times: ArrayLike,
    y: ArrayLike,
    parameters: Any = None,
    errors: ErrorLaw | None = None,
    prior: Mapping[str, Prior] | Own | None = None,
    observe: Callable | tuple[Callable, ...] | list[Callable] | None = None,
    events: Sequence = (),
    states: Sequence[str] | None = None,
    sigma: ArrayLike | None = None,
    prior_mean: ArrayLike | None = None,
    prior_scale: ArrayLike = 1.0,
    start_time: float | None = None,
    tolerance: float | None = None,
    max_steps: int = 5000,
    solver: str | None = None,
    names: Sequence[str] | None = None,
    constrain: Callable | None = None,
    initial: ArrayLike | Mapping[str, ArrayLike] | Callable | None = None,
    name: str = "ode",
    reference: Reference | None = None,
) -> Model:
    """Return the posterior of the parameters of a user-defined ODE.

    The model is dx/dt = f(t, x, theta) with observations y at given times. It works with every kernel and has the Fisher
    metric. There are two forms. Give `parameters`, `errors` and `prior` for named parameters. Or give `sigma`, `prior_mean` and
    `prior_scale` for normal errors with known standard deviation and normal priors::

        y_tj ~ N(x_j(t), sigma_tj),    theta_a ~ N(prior_mean_a, prior_scale_a)

    The functions `rhs`, `jacobian`, `hessian` and `third` are plain functions that return an array, or write into a fourth
    argument ``out``, which holds zeros. Numba compiles them if it can. Their derivatives are compared with differences at
    `initial`, at the mean of the prior, or at a draw from it. Below, z = (x, theta), n is the number of states and p the number
    of parameters.

    Parameters
    ----------
    rhs : callable
        The right-hand side f(t, x, theta), of shape (n,).
    jacobian : callable
        Derivatives of f by z, of shape (n, n + p).
    hessian : callable, optional
        Second derivatives of f by z, of shape (n, n + p, n + p), both triangles. With `parameters`, NUTS and HMC on a constant
        metric do not need them.
    third : callable, optional
        Third derivatives of f by z, of shape (n, n + p, n + p, n + p), in all orders of the indices. SoftAbs needs them.
    initial_state : array_like of shape (n,) or callable
        State at the first of `times`, unless `start_time` is given: for each entry a number or the name of a parameter. A
        function of theta returns the state, its derivative (n, p), its second derivative (n, p, p) and, with `third`, its third
        one.
    times : array_like of shape (T,)
        Times of the observations, ascending.
    y : array_like of shape (T, K)
        Observations, NaN if missing. K is n unless `observe` is given.
    parameters : Parameters, optional
        The parameters, a :class:`refhmc.Parameters`. theta holds their values in one row, without those that `errors` names.
    errors : ErrorLaw, optional
        Distribution of observations around the prediction, from ``refhmc.models.error_laws``, such as ``LogNormal("sigma")``.
        Its parameter is a name (one number, or one per column of y) or numbers.
    prior : dict or Own, optional
        For each parameter a distribution of ``refhmc.models.priors``; entries of an array are independent. Or a
        ``refhmc.models.priors.Own``.
    observe : tuple of callable, optional
        The prediction g(t, x, theta), of shape (K,), and its derivatives, as for `rhs`. Defaults to the states x.
    events : sequence of (float, object), default ()
        Times at which the state jumps, and how: see :class:`refhmc.models.ODESolution`.
    states : sequence of str, optional
        Names of the columns of y in the result.
    sigma : array_like of shape (T, n), optional
        Standard deviation of y, or numbers that broadcast to its shape.
    prior_mean : array_like of shape (p,), optional
        Means of the independent normal priors. For positive quantities use logarithms as theta, and `constrain` to convert
        them.
    prior_scale : array_like of shape (p,) or float, default 1.0
        Standard deviations of the priors; inf for a flat prior.
    start_time : float, optional
        Time of the initial state. Defaults to the first of `times`.
    tolerance : float, optional
        Relative and absolute error of each step of the solver, for states and sensitivities. Defaults to 1e-8 with
        `parameters`, otherwise to 1e-10.
    max_steps : int, default 5000
        Limit of the steps from one time to the next. More steps count as a failure.
    solver : {"runge_kutta", "lsoda", "auto"}, optional
        "runge_kutta" is compiled; "lsoda" is that of SciPy, for stiff equations; "auto" uses the second if the first finds no
        solution. Defaults to "runge_kutta" with `parameters`, otherwise to "auto".
    names : sequence of str, optional
        Names of the coordinates, as for :class:`refhmc.Model`; not with `parameters`.
    constrain : callable, optional
        Named values of a position, as for :class:`refhmc.Model`; not with `parameters`.
    initial : array_like, dict or callable, optional
        Starting point, as for :class:`refhmc.Model`; with `parameters` also values by name. The default with `parameters` is,
        for each chain, the best of six ascents from draws of the prior.
    name : str, default "ode"
        Name in messages and results.
    reference : Reference, optional
        Known moments of the posterior.

    Returns
    -------
    Model
        The model, with the derivatives that follow from those given. If the ODE has no solution, the log density is -inf.
        ``model.solution`` is the :class:`refhmc.models.ODESolution`. With `parameters`, results have the groups
        ``log_likelihood``, ``posterior_predictive`` and ``prior``, and everything is compiled if the solver is "runge_kutta".
        Otherwise the model runs as Python, has parts (:meth:`refhmc.Model.split`), and ``model.data.solve(theta, order)``
        returns states and sensitivities. It reports the message of the solver as an :class:`refhmc.errors.EvaluationError`.

    Raises
    ------
    refhmc.errors.ModelError
        If arguments of both forms are mixed, or some are missing.
    refhmc.errors.ShapeError
        If shapes do not fit.
    ValueError
        If values are out of range.
    refhmc.errors.GradientError
        If a derivative is wrong.

    References
    ----------
    J. A. Brofos and R. R. Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian manifold Hamiltonian
    Monte Carlo, eq. 20.
    M. Girolami and B. Calderhead (2011), Riemann manifold Langevin and Hamiltonian Monte Carlo methods, sec. 10.

    Examples
    --------
    Exponential decay with rate theta, observed with standard deviation 0.1:

    >>> import numpy as np
    >>> import refhmc
    >>> model = refhmc.models.ODE(
    ...     lambda t, x, theta: -theta * x,
    ...     lambda t, x, theta: np.array([[-theta[0], -x[0]]]),
    ...     lambda t, x, theta: np.array([[[0.0, -1.0], [-1.0, 0.0]]]),
    ...     initial_state=[1.0], times=[0.0, 1.0, 2.0], y=[[1.0], [0.4], [0.1]],
    ...     sigma=0.1, prior_mean=[1.0],
    ... )
    >>> model.dim, round(float(model.data.solve([1.0]).states[1, 0]), 6)
    (1, 0.367879)
    """
    functions = rhs, jacobian, hessian, third
    how: dict[str, Any] = {"initial_state": initial_state, "times": times, "start_time": start_time, "events": events}
    how |= {"max_steps": max_steps, "name": name}
    if parameters is not None:
        if sigma is not None or prior_mean is not None or names is not None or constrain is not None:
            raise ModelError(
                "sigma, prior_mean, names and constrain must be left out if parameters is given; give errors and prior."
            )
        if errors is None or prior is None:
            raise ModelError(
                "errors and prior must be given together with parameters, such as errors=error_laws.Normal('sigma')."
            )
        if not hasattr(parameters, "ode"):  # models do not import refhmc.Parameters
            raise ModelError(f"parameters must be refhmc.Parameters(...); got {type(parameters).__name__}.")
        how |= {"tolerance": 1e-8 if tolerance is None else tolerance, "solver": solver or "runge_kutta"}
        given: dict[str, Any] = {"y": y, "errors": errors, "prior": prior, "observe": observe, "states": states}
        return parameters.ode(functions, **given, options={"initial": initial, "reference": reference}, **how)
    for key, value in (("errors", errors), ("prior", prior), ("observe", observe), ("states", states)):
        if value is not None:
            raise ModelError(
                f"{key} must be left out unless parameters is given; give parameters=refhmc.Parameters(...)."
            )
    if hessian is None or sigma is None or prior_mean is None:
        raise ModelError("ODE needs parameters, errors and prior, or else hessian, sigma and prior_mean.")
    prior_mean = np.array(array_of_numbers("prior_mean", prior_mean))
    if prior_mean.ndim != 1 or len(prior_mean) < 1:
        raise ShapeError(f"prior_mean must have shape (p,); got {prior_mean.shape}.")
    how |= {"tolerance": 1e-10 if tolerance is None else tolerance, "solver": solver or "auto"}
    solution = ODESolution(*functions, parameters=len(prior_mean), **how)
    options = {"names": names, "constrain": constrain, "initial": initial, "name": name, "reference": reference}
    model = normal_posterior(solution, y, sigma, prior_mean, prior_scale, options)
    theta = prior_mean if model.initial is None or callable(model.initial) else model.initial
    check_derivatives(model.of, theta, lambda z, shift: z + shift * (1 + np.arange(len(z)) / len(z)))
    return model


KEYS: tuple[str, ...] = ("", "jacobian", "hessian", "third")


def check_derivatives(of: Posterior, theta: np.ndarray, moved: Callable[[np.ndarray, float], np.ndarray]) -> None:
    """Raise GradientError if a user's function is not the derivative of the function before it.

    Central differences are taken at the start of the ODE, and at the times of events, for three ``moved(theta, shift)``. Places
    with values that are not finite are skipped.
    """
    solution, n = of.solution, of.solution.n
    checked = [(solution.start_time, solution.functions, n, KEYS)]
    if of.observe:
        checked.append((solution.start_time, of.observe, of.columns, tuple(f"{key} of observe" for key in KEYS)))
    for time, functions in solution.changes:
        checked.append((time, functions, n, tuple(f"{key} of the event at {time:g}" for key in KEYS)))
    for shift in (0.0, 0.05, -0.08):
        near = moved(theta, shift)
        z = np.concatenate([moved(solution.initial_unknowns(near, 0)[:n], shift), near])
        for t, functions, k, what in checked:
            check_function(functions, t, z, k, n, solution.name, what)


def check_function(
    functions: tuple[Callable, ...], t: float, z: np.ndarray, k: int, n: int, name: str, what: tuple[str, ...]
) -> None:
    """Check a function of (t, x, theta) with k values and its derivatives at one place z = (x, theta). Raises GradientError."""
    m, functions = len(z), tuple(in_place(function, False) for function in functions)

    def call(function: Callable, z: np.ndarray, shape: tuple[int, ...]) -> Any:
        out = np.zeros(shape)
        function(t, z[:n].copy(), z[n:].copy(), out)
        return out

    for order in range(1, len(functions)):
        shape = (k, *[m] * order)
        derivative, below = call(functions[order], z, shape), functions[order - 1]
        for j in range(m):
            h = 1e-5 * max(1.0, abs(z[j])) * np.eye(m)[j]
            ahead, behind = (call(below, z + s * h, shape[:-1]) for s in (1, -1))
            difference = (ahead - behind) / (2 * h[j])
            error = np.abs(difference - derivative[..., j])
            size = np.abs(derivative).max() + np.abs(ahead).max()
            if np.isfinite(error).all() and (error > 1e-5 * size + 1e-9).any():
                at = (*np.unravel_index(np.argmax(error), error.shape), j)
                raise GradientError(
                    f"{what[order]}[{', '.join(map(str, at))}] of {name!r} is {derivative[at]:.8g} at x = "
                    f"{z[:n].tolist()}, theta = {z[n:].tolist()}; differences give {difference[at[:-1]]:.8g}."
                )

"""The posterior of the parameters of an ODE dx/dt = f(t, x, theta), whose states are observed with Gaussian noise.

With the sensitivities S and W of x (:mod:`refhmc.models.sensitivities`), the third sensitivities V, r = y - x,
w = 1/sigma^2 (0 for a missing observation), P = diag(1 / s^2) and sums over all observations, ::

    y_tj ~ N(x_j(t), sigma_tj),    theta_a ~ N(m_a, s_a)

    L        = -1/2 sum w r^2 - 1/2 (theta - m)' P (theta - m)
    gradient = sum w r S - P (theta - m)
    hessian  = sum w (r W - S S') - P
    Fisher   = sum w S S' + P                                       eq. 20 of Brofos and Lederman (2021)
    d Fisher_ab / dtheta_c = sum w (W_ac S_b + S_a W_bc)            Girolami and Calderhead (2011), sec. 10
    third_abc = sum w (r V_abc - W_ab S_c - W_ac S_b - W_bc S_a)

One solution of the equations for x, S, W and V at the position gives all of them. V requires the third derivatives of f. The
gradient needs x and S only, and the log density needs x only. In these cases no more is integrated.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.arguments import array_of_numbers
from refhmc.errors import EvaluationError, GradientError, ModelError, ShapeError
from refhmc.models.base import Model
from refhmc.models.error_laws import ErrorLaw
from refhmc.models.ode_solution import NO_THIRD, ODESolution, Solution, in_place, times_of
from refhmc.models.reference import Reference

if TYPE_CHECKING:
    from refhmc.models.priors import Own, Prior

IN_PYTHON = "its ODE may need SciPy's solver"


class Evaluation(NamedTuple):
    """The results at one position, arrays up to ``order`` and None beyond; ``error`` is the reason if there are none."""

    theta: np.ndarray
    order: int
    log_density: float = -np.inf
    gradient: Any = None
    hessian: Any = None
    fisher: Any = None
    fisher_derivative: Any = None
    third_derivative: Any = None
    error: str = ""


def places_of(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``pair[a, b]`` and ``triple[a, b, c]``, the places of pairs and triples in W and V."""
    found = []
    for order in (2, 3):
        place = {each: k for k, each in enumerate(itertools.combinations_with_replacement(range(p), order))}
        places = [place[tuple(sorted(indices))] for indices in np.ndindex(*[p] * order)]
        found.append(np.array(places, dtype=int).reshape([p] * order))
    return found[0], found[1]


class Problem:
    """An ODE, its observations and the prior: the ``data`` of a model. See :func:`ODE` for the arguments."""

    def __init__(
        self, solution: ODESolution, y: np.ndarray, sigma: np.ndarray, prior_mean: np.ndarray, prior_scale: np.ndarray
    ) -> None:
        self.solution, self.times, self.name = solution, solution.times, solution.name
        self.y, self.sigma = y, sigma
        self.prior_mean, self.precision = prior_mean, 1 / np.square(prior_scale)
        self.n, self.p = solution.n, solution.p
        seen = np.isfinite(y)
        self.weights = np.where(seen, 1 / np.square(sigma), 0.0)
        self.seen_y = np.where(seen, y, 0.0)
        self.pair, self.triple = places_of(self.p)
        self._last = threading.local()  # for each thread: the last position, which is needed more than once

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_last"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._last = threading.local()

    def __repr__(self) -> str:
        of = self.solution
        digest = hashlib.sha256(f"{of.start_time} {of.tolerance} {of.max_steps} {of.solver}".encode())
        for array in (self.times, self.y, self.sigma, self.prior_mean, self.precision):
            digest.update(np.ascontiguousarray(array).tobytes())
        for part in (*of.functions, of.start):
            code = getattr(getattr(part, "py_func", part), "__code__", None)
            if code is None:
                digest.update(np.asarray(part, dtype=float).tobytes())
            else:
                digest.update(
                    f"{code.co_code.hex()} {[c for c in code.co_consts if not hasattr(c, 'co_code')]}".encode()
                )
        return (
            f"<ODE problem: {self.n} states, {self.p} parameters, {len(self.times)} times, {digest.hexdigest()[:16]}>"
        )

    def solve(self, theta: np.ndarray, order: int = 2) -> Solution:
        """Return the states and the sensitivities up to ``order`` (0 to 3) at the times: :meth:`ODESolution.solve`."""
        return self.solution.solve(theta, order)

    def evaluate(self, theta: np.ndarray, order: int) -> Evaluation:
        """Return the results at ``theta``, those of the last call if the position is the same. Raises EvaluationError.

        A solution to third order differs in its last digits. It is stored separately, so that a call for the third derivative
        does not change the log density.
        """
        kept = "third" if order > 2 else "evaluation"
        last = getattr(self._last, kept, None)
        if last is None or last.order < order or not np.array_equal(last.theta, theta):
            try:
                with np.errstate(all="ignore"):
                    last = self.evaluation(theta, order)
            except EvaluationError as error:
                last = Evaluation(theta.copy(), order, error=str(error))
            setattr(self._last, kept, last)
        if last.error:
            raise EvaluationError(last.error)
        return last

    def evaluation(self, theta: np.ndarray, order: int) -> Evaluation:
        """Evaluate the formulas in the docstring of the module."""
        states, S, W, V = self.solve(theta, order)
        p, P = self.p, self.precision
        from_mean = theta - self.prior_mean
        r = self.seen_y - states
        wr = self.weights * r
        log_density = float(-0.5 * np.sum(wr * r) - 0.5 * np.sum(P * from_mean**2))
        if S is None:
            return Evaluation(theta.copy(), order, log_density)
        gradient = wr.ravel() @ S.reshape(-1, p) - P * from_mean
        if W is None:
            return Evaluation(theta.copy(), order, log_density, gradient)
        weighted = (self.weights[:, :, None] * S).reshape(-1, p)
        fisher = weighted.T @ S.reshape(-1, p)
        fisher = 0.5 * (fisher + fisher.T) + np.diag(P)
        second = W.reshape(-1, W.shape[2])
        hessian = (wr.ravel() @ second)[self.pair] - fisher
        half = (weighted.T @ second)[:, self.pair]  # [b, a, c]: sum w S_b W_ac
        derivative = half + half.transpose(1, 0, 2)
        known = Evaluation(theta.copy(), order, log_density, gradient, hessian, fisher, derivative)
        if V is None:
            return known
        third = (wr.ravel() @ V.reshape(-1, V.shape[2]))[self.triple] - derivative - half.transpose(1, 2, 0)
        return known._replace(third_derivative=third)


def log_density(q: np.ndarray, problem: Problem) -> float:
    return problem.evaluate(q, 0).log_density


def gradient(q: np.ndarray, problem: Problem) -> np.ndarray:
    return problem.evaluate(q, 1).gradient


def hessian(q: np.ndarray, problem: Problem) -> np.ndarray:
    return problem.evaluate(q, 2).hessian


def third_derivative(q: np.ndarray, problem: Problem) -> np.ndarray:
    return problem.evaluate(q, 3).third_derivative


# The Fisher metric and its derivative are nearly always needed together, so one solution serves both.
def fisher(q: np.ndarray, problem: Problem) -> np.ndarray:
    return problem.evaluate(q, 2).fisher


def fisher_derivative(q: np.ndarray, problem: Problem) -> np.ndarray:
    return problem.evaluate(q, 2).fisher_derivative


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
        State at `start_time`: for each entry a number or the name of a parameter. A function of theta returns the state, its
        derivative (n, p), its second derivative (n, p, p) and, with `third`, its third one.
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
        The model, with the derivatives that follow from those given. If the ODE has no solution, the log density is -inf. With
        `parameters` everything is compiled, results have the groups ``log_likelihood``, ``posterior_predictive`` and ``prior``,
        and ``model.solution`` is the :class:`refhmc.models.ODESolution`. Otherwise ``model.data.solve(theta, order)`` returns
        states and sensitivities, and reports the message of the solver as an :class:`refhmc.errors.EvaluationError`.

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
    if parameters is not None:
        if sigma is not None or prior_mean is not None or names is not None or constrain is not None:
            raise ModelError(
                "sigma, prior_mean, names and constrain must be left out if parameters is given; give errors and prior."
            )
        if errors is None or prior is None:
            raise ModelError(
                "errors and prior must be given together with parameters, such as errors=error_laws.Normal('sigma')."
            )
        if solver == "auto":
            raise ModelError(
                "solver must be 'runge_kutta' (compiled) or 'lsoda' (Python) if parameters is given; got 'auto'."
            )
        if not hasattr(parameters, "ode"):  # models do not import refhmc.Parameters
            raise ModelError(f"parameters must be refhmc.Parameters(...); got {type(parameters).__name__}.")
        return parameters.ode(
            (rhs, jacobian, hessian, third),
            initial_state=initial_state,
            times=times,
            y=y,
            errors=errors,
            prior=prior,
            observe=observe,
            states=states,
            name=name,
            options={"initial": initial, "reference": reference},
            start_time=start_time,
            events=events,
            tolerance=1e-8 if tolerance is None else tolerance,
            max_steps=max_steps,
            solver=solver or "runge_kutta",
        )
    for key, value in (("errors", errors), ("prior", prior), ("observe", observe), ("states", states)):
        if value is not None:
            raise ModelError(
                f"{key} must be left out unless parameters is given; give parameters=refhmc.Parameters(...)."
            )
    if hessian is None or sigma is None or prior_mean is None or events:
        raise ModelError(
            "ODE needs parameters, errors and prior, or else hessian, sigma and prior_mean (without events)."
        )
    problem = make_problem(
        (rhs, jacobian, hessian, third),
        (y, sigma),
        (prior_mean, prior_scale),
        initial_state,
        times,
        start_time,
        tolerance=1e-10 if tolerance is None else tolerance,
        max_steps=max_steps,
        solver=solver or "auto",
        name=name,
    )
    check_derivatives(problem.solution, problem.prior_mean if initial is None else np.asarray(initial, dtype=float))
    labels = {"names": names, "constrain": constrain, "initial": initial, "name": name}
    return make_model(problem, labels, reference=reference)


def make_model(problem: Problem, labels: dict[str, Any], at: np.ndarray | None = None, **options: Any) -> Model:
    """Return the model of a problem, with observations at the times ``at``, by default all.

    ``labels`` are the options of :class:`refhmc.Model` that the parts of a split model share.
    """
    whole = problem.solution.highest == 3
    at = np.arange(len(problem.times)) if at is None else at
    return Model(
        problem.p,
        log_density,
        gradient,
        hessian=hessian,
        third_derivative=third_derivative if whole else None,
        fisher=fisher,
        fisher_derivative=fisher_derivative,
        data=problem,
        in_python=IN_PYTHON,
        # for residuals of one sigma, with a hundred times the tolerance as an upper limit of the error of a state
        noise=100 * problem.solution.tolerance * float(np.sum(np.sqrt(problem.weights))),
        absent={} if whole else {"third_derivative": NO_THIRD, "hessian_contraction": NO_THIRD},
        n_rows=len(at),
        part=functools.partial(share_of, problem, labels, at),
        **labels,
        **options,
    )


def share_of(problem: Problem, labels: dict[str, Any], at: np.ndarray, rows: np.ndarray, share: float) -> Model:
    """Return the model of the observations at some of the times ``at``, with a ``share`` of the log prior of the problem.

    The solution is that at all times, so a part costs as much as the whole.
    """
    y = np.full_like(problem.y, np.nan)
    y[at[rows]] = problem.y[at[rows]]
    with np.errstate(divide="ignore"):  # a flat prior
        scale = 1 / np.sqrt(share * problem.precision)
    own = Problem(problem.solution, y, problem.sigma, problem.prior_mean, scale)
    return make_model(own, labels, at[rows])


def make_problem(
    functions: tuple[Callable, Callable, Callable, Callable | None],
    observed: tuple[ArrayLike, ArrayLike],
    prior: tuple[ArrayLike, ArrayLike],
    initial_state: Callable | Sequence[float | str] | np.ndarray,
    times: ArrayLike,
    start_time: float | None,
    **solver: Any,
) -> Problem:
    """Return a :class:`Problem` from arguments that fit each other. Raises ShapeError or ValueError.

    ``observed`` holds y and sigma, ``prior`` the means and scales. ``solver`` holds further arguments of :class:`ODESolution`.
    """
    (y, sigma), (prior_mean, prior_scale) = observed, prior
    times, y = times_of(times, start_time)[0], np.array(array_of_numbers("y", y))
    if y.ndim != 2 or len(y) != len(times):
        raise ShapeError(f"y must have shape ({len(times)}, number of states); got {y.shape}.")
    if np.isinf(y).any() or np.isnan(y).all():
        raise ValueError("y must have finite observations, with NaN for those that are missing; it has other entries.")
    sigma = np.array(array_of_numbers("sigma", sigma))
    try:
        sigma = np.broadcast_to(sigma, y.shape)
    except ValueError:
        raise ShapeError(f"sigma must broadcast to the shape {y.shape} of y; got shape {sigma.shape}.") from None
    if not (sigma[np.isfinite(y)] > 0).all() or not np.isfinite(sigma[np.isfinite(y)]).all():
        raise ValueError("sigma must be positive and finite; it has other entries.")
    prior_mean = np.array(array_of_numbers("prior_mean", prior_mean))
    if prior_mean.ndim != 1 or len(prior_mean) < 1:
        raise ShapeError(f"prior_mean must have shape (p,); got {prior_mean.shape}.")
    prior_scale = np.array(array_of_numbers("prior_scale", prior_scale))
    if prior_scale.shape not in ((), prior_mean.shape):
        raise ShapeError(f"prior_scale must be a number or have shape {prior_mean.shape}; got {prior_scale.shape}.")
    if not np.isfinite(prior_mean).all() or not (prior_scale > 0).all():
        raise ValueError("prior_mean must be finite, and prior_scale must be positive (inf for a flat prior).")
    if not callable(initial_state):
        initial_state = np.array(array_of_numbers("initial_state", initial_state))
        if initial_state.shape != y.shape[1:] or not np.isfinite(initial_state).all():
            raise ShapeError(
                f"initial_state must be finite numbers of shape {y.shape[1:]}; got shape {initial_state.shape}."
            )
    solution = ODESolution(
        *functions,
        parameters=len(prior_mean),
        initial_state=initial_state,
        times=times,
        start_time=start_time,
        **solver,
    )
    return Problem(solution, y, sigma, prior_mean, np.broadcast_to(prior_scale, prior_mean.shape))


KEYS = ("", "jacobian", "hessian", "third")


def check_derivatives(of: ODESolution, theta: np.ndarray) -> None:
    """Raise GradientError if ``jacobian``, ``hessian`` or ``third`` is not the derivative of the function before it.

    Central differences are taken at the start of the ODE, at three places near ``theta``. Places with values that are not
    finite are skipped.
    """
    for shift in (0.0, 0.05, -0.08):
        moved = theta + shift * (1 + np.arange(of.p) / of.p)
        x = of.initial_unknowns(moved, 0)[: of.n]
        check_function(of.functions, of.start_time, np.concatenate([x + shift, moved]), of.n, of.n, of.name)


def check_function(
    functions: tuple[Callable, ...], t: float, z: np.ndarray, k: int, n: int, name: str, what: tuple[str, ...] = KEYS
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

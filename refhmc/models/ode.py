"""The posterior of an ODE's parameters: dx/dt = f(t, x, theta), its states observed with Gaussian noise.

    y_tj ~ N(x_j(t), sigma_tj),    theta_a ~ N(m_a, s_a);      S, W: the sensitivities of x (:mod:`refhmc.models.sensitivities`)

With V the third sensitivities, r = y - x, w = 1/sigma^2 (0 where there is no observation) and P = diag(1 / s^2), sums over all
observations,

    L        = -1/2 sum w r^2 - 1/2 (theta - m)' P (theta - m)
    gradient = sum w r S - P (theta - m)
    hessian  = sum w (r W - S S') - P
    Fisher   = sum w S S' + P                                       eq. 20 of Brofos and Lederman (2021)
    d Fisher_ab / dtheta_c = sum w (W_ac S_b + S_a W_bc)            Girolami and Calderhead (2011), sec. 10
    third_abc = sum w (r V_abc - W_ab S_c - W_ac S_b - W_bc S_a)

All come out of one solution of the equations for x, S, W and V at the position. V is there where the third derivatives of f
are. The gradient needs x and S only, and the log density alone needs x only: then no more is integrated. SciPy's ``odeint``
(LSODA) does it: of SciPy's solvers it takes the least time by far, at a relative error of 1e-12 too.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types as nb
from numba.core.errors import NumbaError
from scipy.integrate import ODEintWarning, odeint

from refhmc.core import types
from refhmc.core.binding import argument_count, copy_array, first_words
from refhmc.core.compiled import compile_pointer, jit, jit_anew, plain
from refhmc.errors import EvaluationError, GradientError, PythonModelWarning, ShapeError
from refhmc.models.base import Model
from refhmc.models.recommended import Recommended
from refhmc.models.reference import Reference
from refhmc.models.sensitivities import augmented, n_unknowns, work_for

IN_PYTHON = "its ODE is solved by SciPy"
NO_THIRD = "it needs the third derivatives of the right-hand side, ODE(..., third=...)"
EQUATIONS = nb.void(types.VECTOR, nb.float64, types.VECTOR)
_odeint_lock = threading.RLock()  # SciPy's Fortran keeps the state of an integration in global variables


class Solution(NamedTuple):
    """States and sensitivities at the times of observation: (T, n), (T, n, p), for the pairs a <= b (T, n, p(p+1)/2), and for
    the triples a <= b <= c (T, n, p(p+1)(p+2)/6).

    None for what was not asked for.
    """

    states: np.ndarray
    first: np.ndarray | None = None
    second: np.ndarray | None = None
    third: np.ndarray | None = None


class Evaluation(NamedTuple):
    """Everything about one position, arrays as far as ``order`` and None beyond; ``error`` says why there is nothing."""

    theta: np.ndarray
    order: int
    log_density: float = -np.inf
    gradient: Any = None
    hessian: Any = None
    fisher: Any = None
    fisher_derivative: Any = None
    third_derivative: Any = None
    error: str = ""


# ----------------------------------------------------------------------------------------------------- the equations


@jit
def not_given(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """In the place of third derivatives that a user has not given: it is never called."""


def make_equations(functions: tuple[Callable, ...], n: int, p: int) -> Any:
    """``equations(u, t, work)`` of a user's functions, to be compiled: :func:`refhmc.models.sensitivities.augmented`."""
    rhs, jacobian, hessian, third = functions

    def equations(u: np.ndarray, t: float, work: np.ndarray) -> None:
        augmented(rhs, jacobian, hessian, third, n, p, u, t, work)

    return jit_anew(equations)


def in_place(function: Callable, compiled: bool) -> Callable:
    """A user's ``f(t, x, theta)`` or ``f(t, x, theta, out)`` as the latter, to be compiled or as Python."""
    f = function
    if compiled and not hasattr(function, "py_func"):
        f = jit_anew(function)
    elif not compiled:
        f = plain(function)
    if argument_count(function) > 3:
        return f

    copy = copy_array if compiled else np.copyto

    def filling(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
        copy(out, f(t, x, theta))

    return jit_anew(filling) if compiled else filling


def compiled_equations(functions: tuple[Callable, ...], n: int, p: int, name: str) -> Callable:
    """The equations of a user's three or four functions, compiled, or as Python with a warning where Numba cannot."""
    whole = functions if len(functions) == 4 else (*functions, not_given)
    equations = make_equations(tuple(in_place(function, True) for function in whole), n, p)
    try:
        equations.compile(EQUATIONS)
        return fast(equations)
    except NumbaError as error:
        warnings.warn(
            f"the ODE of {name!r} runs as Python (Numba could not compile it: {first_words(error)}), "
            "which takes some fifty times as long",
            PythonModelWarning,
            stacklevel=4,
        )
        in_python = [in_place(function, False) for function in whole]
        as_python = plain(augmented)
        return lambda u, t, work: as_python(*in_python, n, p, u, t, work)


def fast(equations: Any) -> Callable:
    """The compiled equations without Numba's look at the types of the arguments, which takes longer than they do."""
    if numba.config.DISABLE_JIT:
        return equations
    compile_pointer(equations, EQUATIONS, "the equations of an ODE")
    return equations.overloads[equations.signatures[0]].entry_point


# ------------------------------------------------------------------------------------------------------- the problem


class Problem:
    """An ODE, its observations and the prior; see :func:`ODE` for the arguments. It is a model's ``data``."""

    def __init__(
        self,
        functions: tuple[Callable, ...],
        equations: Callable | None,
        start: np.ndarray,
        times: np.ndarray,
        start_time: float,
        y: np.ndarray,
        sigma: np.ndarray,
        prior_mean: np.ndarray,
        prior_scale: np.ndarray,
        tolerance: float,
        max_steps: int,
        name: str,
    ) -> None:
        self.functions, self.own_equations, self.start, self.name = functions, equations, start, name
        self.times, self.start_time = times, start_time
        self.y, self.sigma = y, sigma
        self.prior_mean, self.precision = prior_mean, 1 / np.square(prior_scale)
        self.tolerance, self.max_steps = tolerance, max_steps
        self.n, self.p = y.shape[1], len(prior_mean)
        seen = np.isfinite(y)
        self.weights = np.where(seen, 1 / np.square(sigma), 0.0)
        self.seen_y = np.where(seen, y, 0.0)
        # pair[a, b]: where W holds the pair
        self.pair = np.zeros((self.p, self.p), dtype=int)
        self.pair[np.triu_indices(self.p)] = np.arange(self.p * (self.p + 1) // 2)
        self.pair = np.maximum(self.pair, self.pair.T)
        # triple[a, b, c]: where V does
        ordered = list(itertools.combinations_with_replacement(range(self.p), 3))
        place = {indices: k for k, indices in enumerate(ordered)}
        self.triple = np.array([place[tuple(sorted(abc))] for abc in np.ndindex(self.p, self.p, self.p)], dtype=int)
        self.triple = self.triple.reshape((self.p,) * 3)
        self.highest = 3 if len(functions) == 4 else 2  # order of the sensitivities
        self._begin()

    def _begin(self) -> None:
        self._last = threading.local()  # of each thread: the last position, which is asked for more than once
        if self.own_equations is not None:
            self.equations = fast(self.own_equations)
        else:
            self.equations = compiled_equations(self.functions, self.n, self.p, self.name)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_last", "equations")}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self._begin()

    def __repr__(self) -> str:
        digest = hashlib.sha256(f"{self.start_time} {self.tolerance} {self.max_steps}".encode())
        for array in (self.times, self.y, self.sigma, self.prior_mean, self.precision):
            digest.update(np.ascontiguousarray(array).tobytes())
        for part in (*self.functions, self.start):
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

    def initial_unknowns(self, theta: np.ndarray, order: int) -> np.ndarray:
        """``u`` at the start: the initial state and its derivatives with respect to theta."""
        u = np.zeros(n_unknowns(self.n, self.p, order), dtype=np.result_type(theta, float))
        if not callable(self.start):
            u[: self.n] = self.start
            return u
        x, *derivatives = self.start(theta)
        u[: self.n] = x
        for k in range(1, order + 1):
            each = list(itertools.combinations_with_replacement(range(self.p), k))
            part = slice(n_unknowns(self.n, self.p, k - 1), n_unknowns(self.n, self.p, k))
            u[part] = np.asarray(derivatives[k - 1])[:, *np.array(each).T].ravel()
        return u

    def solve(self, theta: np.ndarray, order: int = 2) -> Solution:
        """The states, and the sensitivities up to ``order`` (0 to 3), at the times of observation.

        Raises EvaluationError, with SciPy's message, where there is no solution; ValueError for order 3 without the third
        derivatives of the right-hand side.
        """
        if order > self.highest:
            raise ValueError(f"sensitivities of order {order} of {self.name!r}: {NO_THIRD}")
        theta = np.ascontiguousarray(theta, dtype=float)
        if not np.isfinite(theta).all():
            raise EvaluationError("the ODE's parameters are not finite")
        u = self.initial_unknowns(theta, order)
        work = work_for(u, theta, self.n)
        slopes, equations = work[: len(u)], self.equations

        def derivative(u: np.ndarray, t: float) -> np.ndarray:
            equations(u, t, work)
            return slopes

        path = self.integrate(derivative, u)
        ends = [n_unknowns(self.n, self.p, k) for k in range(order + 1)]
        parts = [path[:, a:b].reshape(len(path), self.n, -1) for a, b in itertools.pairwise(ends)]
        return Solution(path[:, : self.n], *parts)

    def integrate(self, derivative: Callable, u: np.ndarray) -> np.ndarray:
        """``u`` at the times of observation, (T, len(u))."""
        skip = 0 if self.times[0] == self.start_time else 1
        times = np.concatenate([[self.start_time], self.times]) if skip else self.times
        options = {"rtol": self.tolerance, "atol": self.tolerance, "mxstep": self.max_steps, "full_output": True}
        with _odeint_lock:
            # What SciPy warns of is raised below. (A context that restores the filters would not be safe in threads.)
            warnings.filterwarnings("ignore", category=ODEintWarning, module=r"refhmc\.models\.ode")
            try:
                path, info = odeint(derivative, u, times, **options)
            except ODEintWarning as warning:  # where warnings are errors
                raise EvaluationError(f"odeint: {warning}") from None
            except ZeroDivisionError as error:  # a right-hand side that runs as Python
                raise EvaluationError(f"the right-hand side of the ODE: {error}") from None
        if info["message"] != "Integration successful.":
            raise EvaluationError(f"odeint: {info['message']}")
        if not np.isfinite(path).all():
            raise EvaluationError("odeint: the solution is not finite")
        return path[skip:]

    def evaluate(self, theta: np.ndarray, order: int) -> Evaluation:
        """What is known at ``theta``, from the last call where that was at the same place; raises EvaluationError.

        A solution to third order, whose numbers differ in their last digits, stands beside the others': asking for the third
        derivative leaves the log density as it is.
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
        """The formulas at the head of this file."""
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


def trace(q: np.ndarray, problem: Problem, M: np.ndarray) -> np.ndarray:
    return np.einsum("ab,abc->c", M, problem.evaluate(q, 3).third_derivative)


# Whoever asks for the Fisher metric asks for its derivative next, nearly always: one solution for both.
def fisher(q: np.ndarray, problem: Problem) -> np.ndarray:
    return problem.evaluate(q, 2).fisher


def fisher_derivative(q: np.ndarray, problem: Problem) -> np.ndarray:
    return problem.evaluate(q, 2).fisher_derivative


def fisher_trace(q: np.ndarray, problem: Problem, M: np.ndarray) -> np.ndarray:
    return np.einsum("ab,abc->c", M, problem.evaluate(q, 2).fisher_derivative)


def ODE(
    rhs: Callable,
    jacobian: Callable,
    hessian: Callable,
    third: Callable | None = None,
    *,
    initial_state: Any,
    times: Any,
    y: Any,
    sigma: Any,
    prior_mean: Any,
    prior_scale: Any = 1.0,
    start_time: float | None = None,
    tolerance: float = 1e-10,
    max_steps: int = 5000,
    names: Any = None,
    constrain: Callable | None = None,
    initial: Any = None,
    name: str = "ode",
    reference: Reference | None = None,
) -> Model:
    """The posterior of the parameters of your own ODE, for every kernel and for the Fisher metric.

    Parameters
    ----------
    rhs, jacobian, hessian : f(t, x, theta), (n,); its derivatives with respect to z = (x, theta), (n, n + p); its second
        derivatives, (n, n + p, n + p), both triangles. Plain functions that return an array, or, with a fourth argument
        ``out`` (which holds zeros), write into it. Numba compiles them if it can. They are compared with differences
        here, at ``initial`` or at the prior's mean.
    third : its third derivatives, (n, n + p, n + p, n + p), all orders of the indices; SoftAbs needs them.
    initial_state : (n,), or a function of theta that returns the state at ``start_time``, its derivative (n, p), its
        second derivative (n, p, p) and, with ``third``, its third one. start_time : default the first of ``times``.
    times : (T,), ascending. y : (T, n) observations, NaN where there is none. sigma : their standard deviation, (T, n) or
        what broadcasts to it.
    prior_mean, prior_scale : of the independent normal priors, (p,), or a number for the scale; inf for a flat prior. Use
        logarithms as theta for what must be positive; ``constrain`` (see :class:`refhmc.Model`) turns them back.
    tolerance : relative and absolute error of each integration step, for states and sensitivities alike.
    max_steps : of the solver from one time to the next; more count as a failure.
    names, constrain, initial, name, reference : as for :class:`refhmc.Model`.

    Returns
    -------
    A :class:`refhmc.Model` with gradient, Hessian, Fisher metric and its derivative, and with the third derivative if
    ``third`` is given. ``model.data.solve(theta, order)`` gives states and sensitivities. Where SciPy finds no solution the
    log density is -inf, and SciPy's message is kept: see :class:`refhmc.errors.EvaluationError`.

    Raises
    ------
    ShapeError, ValueError : for arguments that do not fit. GradientError : a derivative of ``rhs`` is wrong.
    """
    problem = make_problem(
        (rhs, jacobian, hessian) if third is None else (rhs, jacobian, hessian, third),
        None,
        initial_state,
        times,
        start_time,
        y,
        sigma,
        prior_mean,
        prior_scale,
        tolerance,
        max_steps,
        name,
    )
    check_derivatives(problem, problem.prior_mean if initial is None else np.asarray(initial, dtype=float))
    return make_model(problem, names, constrain, initial, name, reference)


def make_model(
    problem: Problem,
    names: Any,
    constrain: Callable | None,
    initial: Any,
    name: str,
    reference: Reference | None,
    recommended: Recommended | None = None,
) -> Model:
    """The model of a problem."""
    whole = problem.highest == 3
    return Model(
        problem.p,
        log_density,
        gradient,
        hessian,
        third_derivative if whole else None,
        trace if whole else None,
        fisher,
        fisher_derivative,
        fisher_trace,
        data=problem,
        names=names,
        constrain=constrain,
        initial=initial,
        name=name,
        reference=reference,
        in_python=IN_PYTHON,
        # residuals of one sigma, and a hundred times the tolerance as the error of a state: found to be ample
        noise=100 * problem.tolerance * float(np.sum(np.sqrt(problem.weights))),
        absent={"third_derivative": NO_THIRD, "trace": NO_THIRD},
        recommended=recommended,
    )


def make_problem(
    functions: tuple[Callable, ...],
    equations: Callable | None,
    initial_state: Any,
    times: Any,
    start_time: float | None,
    y: Any,
    sigma: Any,
    prior_mean: Any,
    prior_scale: Any,
    tolerance: float,
    max_steps: int,
    name: str,
) -> Problem:
    """A :class:`Problem` of arguments that fit each other; ShapeError or ValueError.

    ``equations``: refhmc's own, compiled and cached; None: made of the functions.
    """
    times, y = np.array(times, dtype=float), np.array(y, dtype=float)
    if times.ndim != 1 or len(times) < 1 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise ValueError("times must be finite and ascending, (T,)")
    start_time = float(times[0] if start_time is None else start_time)
    if not start_time <= times[0]:
        raise ValueError(f"start_time must not lie after the first of times, {times[0]}, got {start_time}")
    if y.ndim != 2 or len(y) != len(times):
        raise ShapeError(f"y: expected ({len(times)}, number of states), got {y.shape}")
    if np.isinf(y).any() or np.isnan(y).all():
        raise ValueError("y must hold finite observations, and NaN where there is none")
    sigma = np.array(sigma, dtype=float)
    try:
        sigma = np.broadcast_to(sigma, y.shape)
    except ValueError:
        raise ShapeError(f"sigma: {sigma.shape} does not broadcast to y's {y.shape}") from None
    if not (sigma[np.isfinite(y)] > 0).all() or not np.isfinite(sigma[np.isfinite(y)]).all():
        raise ValueError("sigma must be positive and finite")
    prior_mean = np.array(prior_mean, dtype=float)
    if prior_mean.ndim != 1 or len(prior_mean) < 1:
        raise ShapeError(f"prior_mean: expected (p,), got {prior_mean.shape}")
    prior_scale = np.array(prior_scale, dtype=float)
    if prior_scale.shape not in ((), prior_mean.shape):
        raise ShapeError(f"prior_scale: expected a number or {prior_mean.shape}, got {prior_scale.shape}")
    if not np.isfinite(prior_mean).all() or not (prior_scale > 0).all():
        raise ValueError("prior_mean must be finite, prior_scale positive (inf for a flat prior)")
    if not 1e-14 <= tolerance < 1 or max_steps < 1:
        raise ValueError(f"tolerance must lie in [1e-14, 1), max_steps be at least 1, got {tolerance} and {max_steps}")
    if not callable(initial_state):
        initial_state = np.array(initial_state, dtype=float)
        if initial_state.shape != y.shape[1:] or not np.isfinite(initial_state).all():
            raise ShapeError(f"initial_state: expected {y.shape[1:]} finite numbers, got shape {initial_state.shape}")
    return Problem(
        functions,
        equations,
        initial_state,
        times,
        start_time,
        y,
        sigma,
        prior_mean,
        np.broadcast_to(prior_scale, prior_mean.shape),
        float(tolerance),
        int(max_steps),
        name,
    )


def check_derivatives(problem: Problem, theta: np.ndarray) -> None:
    """Raise GradientError, naming the entry, if ``jacobian``, ``hessian`` or ``third`` is not the derivative of the one before.

    Central differences at the start of the ODE, at three places near ``theta``; places where something is not finite are
    left out.
    """
    n, m = problem.n, problem.n + problem.p
    functions = [in_place(function, False) for function in problem.functions]

    def call(function: Any, z: np.ndarray, shape: Any) -> Any:
        out = np.zeros(shape)
        function(problem.start_time, z[:n].copy(), z[n:].copy(), out)
        return out

    for shift in (0.0, 0.05, -0.08):
        moved = theta + shift * (1 + np.arange(problem.p) / problem.p)
        x = problem.initial_unknowns(moved, 0)
        z = np.concatenate([x + shift, moved])
        for order in range(1, len(functions)):
            what, shape = ("jacobian", "hessian", "third")[order - 1], (n, *[m] * order)
            derivative, below = call(functions[order], z, shape), functions[order - 1]
            for k in range(m):
                h = 1e-5 * max(1.0, abs(z[k])) * np.eye(m)[k]
                ahead, behind = (call(below, z + s * h, shape[:-1]) for s in (1, -1))
                difference = (ahead - behind) / (2 * h[k])
                error = np.abs(difference - derivative[..., k])
                size = np.abs(derivative).max() + np.abs(ahead).max()
                if np.isfinite(error).all() and (error > 1e-5 * size + 1e-9).any():
                    at = (*np.unravel_index(np.argmax(error), error.shape), k)
                    raise GradientError(
                        f"{what}[{', '.join(map(str, at))}] of {problem.name!r} is {derivative[at]:.8g} at x = "
                        f"{z[:n].tolist()}, theta = {z[n:].tolist()}, where differences give {difference[at[:-1]]:.8g}"
                    )

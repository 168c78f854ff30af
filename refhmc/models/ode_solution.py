"""The solution of an ODE at given times, with its derivatives by the parameters, for user-defined likelihoods.

The equations are ::

    dx/dt = f(t, x, theta),   x(start) = x_0(theta),   x(t_e+) = e(t_e, x(t_e-), theta) at the fixed times t_e of events

States and sensitivities (:mod:`refhmc.models.sensitivities`) form one system of equations. The solver keeps the error of
each step below the tolerance in all of them::

    solver          method                                                                        threads
    "runge_kutta"   explicit, order 8(5, 3), compiled (:mod:`refhmc.numerics.runge_kutta`)        in parallel
    "lsoda"         SciPy's ``odeint``, Adams or BDF as the equations need: for stiff equations   one at a time, under a lock
    "auto"          the first; the second if the first finds no solution

Equations that Numba cannot compile are solved by "lsoda". A compiled density of a user calls ``solution.states``, ``.first``
and ``.second``, which are compiled functions of theta.
"""

from __future__ import annotations

import functools
import itertools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types as nb
from numpy.typing import ArrayLike
from scipy.integrate import ODEintWarning, odeint

from refhmc.compile.compiled import (
    borrowed,
    compile_pointer,
    entry,
    jit,
    jit_anew,
    jit_bound,
    jit_of_user,
    plain,
    silence_experimental,
)
from refhmc.compile.identity import identity_of
from refhmc.compile.pointer_type import Pointer
from refhmc.compile.pointers import by_address
from refhmc.compile.user_text import compilable
from refhmc.core import types
from refhmc.core.arguments import array_of_numbers
from refhmc.core.point import copy_row
from refhmc.errors import EvaluationError, PythonModelWarning, ShapeError, _see
from refhmc.models.binding.adapters import CANNOT_COMPILE
from refhmc.models.binding.functions import argument_count
from refhmc.models.binding.returned import copy_array, first_words
from refhmc.models.sensitivities import along_path, n_unknowns, work_for, work_length
from refhmc.numerics.runge_kutta import NOT_FINITE, SCRATCH_ROWS, SOLVED, in_words, integrate

NO_THIRD = "it requires the third derivatives of the right-hand side; give ODE(..., third=...)"
EQUATIONS = nb.void(types.VECTOR, nb.float64, types.VECTOR)
POINTER = Pointer(EQUATIONS)
SOLVERS = ("runge_kutta", "lsoda", "auto")
_odeint_lock = threading.RLock()  # SciPy's Fortran keeps the state of an integration in global variables


class Solution(NamedTuple):
    """States and sensitivities at the times of observation; None for orders that were not requested.

    States are (T, n), first sensitivities (T, n, p), second ones (T, n, p(p+1)/2) for the pairs a <= b, and third ones
    (T, n, p(p+1)(p+2)/6) for the triples a <= b <= c.
    """

    states: np.ndarray
    first: np.ndarray | None = None
    second: np.ndarray | None = None
    third: np.ndarray | None = None


# ------------------------------------------------------------------------------------------------- the user's functions


@jit
def not_given(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """Stand in for derivatives that a user has not given; it is never called."""


@jit
def no_change(u: np.ndarray, t: float, work: np.ndarray) -> None:
    """Stand in for events; it is never called."""


def in_place(function: Callable, compiled: bool) -> Callable:
    """Return ``f(t, x, theta)`` or ``f(t, x, theta, out)`` of a user in the second form, for compilation or as Python."""
    f = plain(function)
    if compiled:
        f = compilable(function)
        f = f if hasattr(f, "py_func") else jit_anew(f)
    if argument_count(function) > 3:
        return f

    copy = copy_array if compiled else np.copyto

    def filling(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
        copy(out, f(t, x, theta))

    return jit_anew(filling) if compiled else filling


def make_along(functions: Sequence[Callable], k: int, n: int, p: int, compiled: bool = True) -> Callable:
    """Return ``(u, t, work)``, which calls :func:`along_path` of a function with k values and its derivatives."""
    whole: list[Callable] = [*functions, *[not_given] * (4 - len(functions))]
    f, jacobian, hessian, third = (in_place(function, compiled) for function in whole)
    text: Callable = along_path if compiled else plain(along_path)

    def along(u: np.ndarray, t: float, work: np.ndarray) -> None:
        text(f, jacobian, hessian, third, k, n, p, u, t, work)

    return along


def as_pointer(text: Callable, title: str) -> Callable:
    """Return ``text(u, t, work)``, which closes over compiled functions, compiled for the solver.

    It does not own arrays, so that references to its views are not counted, which would take several times as long as the rest.
    """
    known = [cell.cell_contents for cell in text.__closure__ or () if callable(cell.cell_contents)]
    made = jit_bound(text, known, identity_of((text,)))
    compile_pointer(made, EQUATIONS, title)
    return made


def kept(text: Callable, path: Callable) -> Callable:
    """Return ``text``, which closes over the compiled ``path`` of a solution, for the density of a user and for Python."""
    return jit_of_user(text, (path,), identity_of((text,)))


def fast(equations: Any) -> Callable:
    """Return the compiled equations without the type check of Numba, which takes longer than the equations."""
    if numba.config.DISABLE_JIT:
        return equations
    compile_pointer(equations, EQUATIONS, "the equations of an ODE")
    return equations.overloads[equations.signatures[0]].entry_point


# ----------------------------------------------------------------------------------------------------------- the solver


def solve_signature() -> object:
    times, events, numbers = types.VECTOR, types.MATRIX, (nb.float64, nb.float64, nb.int64)
    return nb.int64(POINTER, POINTER, types.VECTOR, times, events, *numbers, types.MATRIX, types.VECTOR, types.VECTOR)


@entry(solve_signature, "the solver of ODEs")
def solve(
    equations: Callable,
    change: Callable,
    u: np.ndarray,
    times: np.ndarray,
    events: np.ndarray,
    start: float,
    tolerance: float,
    max_steps: int,
    path: np.ndarray,
    work: np.ndarray,
    scratch: np.ndarray,
) -> int:
    """Integrate ``u`` from ``start`` through all events and times, write its values as rows of ``path``; return the outcome.

    A row of ``events`` is the time, whether ``change`` computes the new state, and what is added to it. ``scratch`` has
    SCRATCH_ROWS numbers for each entry of ``u`` and one more, the last time that the solver reached.
    """
    seen, reached = 0, scratch[-1:]
    for j in range(events.shape[0] + 1):
        last = j == events.shape[0]
        end = times[times.shape[0] - 1] if last else events[j, 0]
        stop = seen
        while stop < times.shape[0] and times[stop] <= end:
            stop += 1
        outcome = integrate(
            equations, u, start, end, times[seen:stop], path[seen:stop], tolerance, max_steps, work, scratch, reached
        )
        if outcome != SOLVED:
            return outcome
        seen, start = stop, end
        if not last:
            if events[j, 1] != 0.0:
                change(u, end, work)
                copy_row(u, work[: u.shape[0]])
            for i in range(events.shape[1] - 2):
                u[i] += events[j, 2 + i]
    for t in range(path.shape[0]):
        for i in range(path.shape[1]):
            if not abs(path[t, i]) < np.inf:
                reached[0] = times[t]
                return NOT_FINITE
    return SOLVED


# --------------------------------------------------------------------------------------------------------- the solution


class ODESolution:
    """The states of an ODE at given times and their derivatives by the parameters, for user-defined likelihoods.

    The equations are ::

        dx/dt = f(t, x, theta),   x(start) = x_0(theta),   x(t_e+) = e(t_e, x(t_e-), theta) at the fixed times t_e of events

    The attributes `states`, `first` and `second` are compiled functions of theta, for a compiled density and for Python. They
    need the compiled solver, and return NaN if the ODE has no solution. The method :meth:`solve` is for Python only.

    Parameters
    ----------
    rhs : callable
        The right-hand side f(t, x, theta), of shape (n,), as for :func:`refhmc.models.ODE`.
    jacobian : callable
        Derivatives of f by (x, theta), of shape (n, n + p).
    hessian : callable, optional
        Second derivatives of f, of shape (n, n + p, n + p), for second sensitivities.
    third : callable, optional
        Third derivatives of f, of shape (n, n + p, n + p, n + p), for third sensitivities.
    parameters : int or sequence of str
        Number of parameters, or their names.
    initial_state : array_like of shape (n,) or callable
        State at the first of `times`, unless `start_time` is given: for each entry a number or the name of a parameter. A
        function of theta returns the state, its derivative (n, p), its second derivative (n, p, p) and so on, as many as of
        `rhs` are given.
    times : array_like of shape (T,)
        Times of the solution, ascending.
    start_time : float, optional
        Time of the initial state. Defaults to the first of `times`.
    events : sequence of (float, object), default ()
        Times and changes, in the order of time. A change of shape (n,), such as a dose, is added to the state. A change may
        also be a tuple of functions: the new state e(t, x, theta) and its derivatives, as for `rhs`. An observation at the
        time of an event is of the state before it.
    tolerance : float, default 1e-10
        Relative and absolute error of each step, for states and sensitivities.
    max_steps : int, default 5000
        Limit of the steps from one time to the next. More steps count as a failure.
    solver : {"runge_kutta", "lsoda", "auto"}, default "runge_kutta"
        "runge_kutta" is compiled; "lsoda" is that of SciPy, for stiff equations; "auto" uses the second if the first finds no
        solution.
    name : str, default "ode"
        Name in messages.
    equations : callable, optional
        For built-in models: the compiled system of equations.

    Attributes
    ----------
    n : int
        Number of states.
    p : int
        Number of parameters.
    highest : int
        Highest order of the sensitivities.

    Raises
    ------
    refhmc.errors.ShapeError
        If shapes do not fit.
    ValueError
        If values are out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> solution = refhmc.models.ODESolution(
    ...     lambda t, x, theta: -theta * x,
    ...     lambda t, x, theta: np.array([[-theta[0], -x[0]]]),
    ...     parameters=["rate"], initial_state=[1.0], times=[0.0, 1.0],
    ... )
    >>> found = solution.solve([1.0], order=1)
    >>> found.states.shape, round(float(found.first[1, 0, 0]), 6)
    ((2, 1), -0.367879)
    """

    def __init__(
        self,
        rhs: Callable,
        jacobian: Callable,
        hessian: Callable | None = None,
        third: Callable | None = None,
        *,
        parameters: int | Sequence[str],
        initial_state: Callable | Sequence[float | str] | np.ndarray,
        times: ArrayLike,
        start_time: float | None = None,
        events: Sequence = (),
        tolerance: float = 1e-10,
        max_steps: int = 5000,
        solver: str = "runge_kutta",
        name: str = "ode",
        equations: Callable | None = None,
    ) -> None:
        self.functions = tuple(f for f in (rhs, jacobian, hessian, third) if f is not None)
        self.highest = len(self.functions) - 1  # order of the sensitivities
        self.name, self.own_equations = name, equations  # compiled and cached equations of refhmc
        names = () if isinstance(parameters, int | np.integer) else tuple(parameters)
        self.p = len(names) or int(parameters)  # type: ignore[arg-type]
        self.times, self.start_time = times_of(times, start_time)
        if not 1e-14 <= tolerance < 1 or max_steps < 1:
            raise ValueError(
                f"tolerance must be in [1e-14, 1) and max_steps must be at least 1; got {tolerance} and {max_steps}."
            )
        if solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}; got {solver!r}.")
        self.tolerance, self.max_steps, self.solver = float(tolerance), int(max_steps), solver
        self.start, self.start_from = initial_of(initial_state, names)
        self.n = len(self.start(np.full(self.p, 0.5))[0]) if callable(self.start) else len(self.start)
        self.events, self.changes = events_of(events, self.n, self.start_time, self.times[-1], self.highest)
        self._begin()

    def _begin(self) -> None:
        self.python_equations: Callable | None = None
        along = self.own_equations
        try:
            if along is None:
                text = make_along(self.functions, self.n, self.n, self.p)
                along = as_pointer(text, f"the equations of {self.name}")
            change = self._make_change(True)
        except (*CANNOT_COMPILE, ValueError) as error:  # Numba raises ValueError for some functions
            warnings.warn(
                f"The ODE of {self.name!r} runs as Python, because Numba could not compile it: {first_words(error)}. "
                "Each solution takes about fifty times as long. "
                f"Write the right-hand side with the NumPy functions that Numba supports. {_see('python-models')}",
                PythonModelWarning,
                stacklevel=4,
            )
            self.python_equations = make_along(self.functions, self.n, self.n, self.p, False)
            change = self._make_change(False)
        self._along, self._change = along, change

    def _make_change(self, compiled: bool) -> Callable:
        """Return ``(u, t, work)`` for all events that are functions, distinguished by their times."""
        change: Callable = no_change
        for time, functions in reversed(self.changes):
            change = either(time, make_along(functions, self.n, self.n, self.p, compiled), change, compiled)
        if not compiled or not self.changes:
            return change
        return as_pointer(lambda u, t, work: change(u, t, work), f"the events of {self.name}")

    @property
    def in_python(self) -> bool:
        """Whether SciPy solves the equations."""
        return self.solver == "lsoda" or self.python_equations is not None

    @functools.cached_property
    def _equations(self) -> Callable:
        """The equations for LSODA."""
        return self.python_equations or fast(self._along)

    def __getstate__(self) -> dict[str, object]:
        made = (
            "python_equations",
            "_along",
            "_change",
            "_pointers",
            "_equations",
            "_path",
            "states",
            "first",
            "second",
        )
        return {key: value for key, value in self.__dict__.items() if key not in made}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._begin()

    # -- for Python ---------------------------------------------------------------------------------------------

    def initial_unknowns(self, theta: np.ndarray, order: int) -> np.ndarray:
        """Return the initial state and its derivatives by theta, in one row.

        Parameters
        ----------
        theta : array_like of shape (p,)
            Parameters.
        order : int
            Highest order of the sensitivities.

        Returns
        -------
        ndarray
            State, then the sensitivities row by row.
        """
        n, p = self.n, self.p
        u = np.zeros(n_unknowns(n, p, order), dtype=np.result_type(theta, float))
        if not callable(self.start):
            for i, a in enumerate(self.start_from):
                u[i] = self.start[i] if a < 0 else theta[a]
                if a >= 0 and order:
                    u[n + i * p + a] = 1.0
            return u
        x, *derivatives = self.start(theta)
        u[:n] = x
        for k in range(1, order + 1):
            each = list(itertools.combinations_with_replacement(range(p), k))
            part = slice(n_unknowns(n, p, k - 1), n_unknowns(n, p, k))
            u[part] = np.asarray(derivatives[k - 1])[:, *np.array(each).T].ravel()
        return u

    def solve(self, theta: np.ndarray, order: int = 1) -> Solution:
        """Return the states and the sensitivities at the times.

        Parameters
        ----------
        theta : array_like of shape (p,)
            Parameters.
        order : int, default 1
            Highest order of the sensitivities, 0 to 3.

        Returns
        -------
        Solution
            ``states`` of shape (T, n), ``first`` of shape (T, n, p), ``second`` of shape (T, n, p (p + 1) / 2) for the pairs
            a <= b, and ``third`` of shape (T, n, p (p + 1) (p + 2) / 6) for the triples. Orders above `order` are None.

        Raises
        ------
        refhmc.errors.EvaluationError
            If the ODE has no solution, with the message of the solver.
        ValueError
            If `order` exceeds that of the derivatives of the right-hand side.
        """
        if order > self.highest:
            raise ValueError(
                f"order must be at most {self.highest} for {self.name!r}; got {order}. "
                "Give ODE(..., hessian=..., third=...), the derivatives of the right-hand side up to this order."
            )
        path = self.path(np.ascontiguousarray(theta, dtype=float), order)
        ends = [n_unknowns(self.n, self.p, k) for k in range(order + 1)]
        parts = [path[:, a:b].reshape(len(path), self.n, -1) for a, b in itertools.pairwise(ends)]
        return Solution(path[:, : self.n], *parts)

    def path(self, theta: np.ndarray, order: int) -> np.ndarray:
        """Return states and sensitivities at the times, in rows.

        Parameters
        ----------
        theta : ndarray of shape (p,)
            Parameters.
        order : int
            Highest order of the sensitivities.

        Returns
        -------
        ndarray
            One row per time: the state, then the sensitivities.
        """
        if not np.isfinite(theta).all():
            raise EvaluationError("the parameters of the ODE are not finite")
        u = self.initial_unknowns(theta, order)
        work = work_for(u, theta, self.n)
        if self.in_python:
            return self._by_lsoda(u, work)
        path, scratch, options = np.empty((len(self.times), len(u))), np.empty(SCRATCH_ROWS * len(u) + 1), self._options
        outcome = solve(self._along, self._change, u.copy(), self.times, self.events, *options, path, work, scratch)
        if outcome == SOLVED:
            return path
        if self.solver == "auto":
            return self._by_lsoda(u, work)
        raise EvaluationError(f"runge_kutta: {in_words(outcome, scratch[-1], self.max_steps)}")

    @property
    def _options(self) -> tuple[float, float, int]:
        return self.start_time, self.tolerance, self.max_steps

    def _by_lsoda(self, u: np.ndarray, work: np.ndarray) -> np.ndarray:
        """Return the path from SciPy, from event to event."""
        slopes, equations = work[: len(u)], self._equations

        def derivative(u: np.ndarray, t: float) -> np.ndarray:
            equations(u, t, work)
            return slopes

        parts, start, seen = [], self.start_time, 0
        for time, by_function, *added in [*self.events.tolist(), [self.times[-1], 0.0, *[0.0] * self.n]]:
            stop = np.searchsorted(self.times, time, side="right")
            within = self.times[seen:stop]
            at = np.unique([start, *within, time])
            part = self._odeint(derivative, u, at)
            parts.append(part[np.searchsorted(at, within)])
            u, start, seen = part[-1].copy(), time, stop
            if by_function:
                self._change(u, time, work)
                u = slopes.copy()
            u[: self.n] += added
        return np.concatenate(parts)

    def _odeint(self, derivative: Callable, u: np.ndarray, times: np.ndarray) -> np.ndarray:
        if len(times) == 1:
            return u[None, :]
        options = {"rtol": self.tolerance, "atol": self.tolerance, "mxstep": self.max_steps, "full_output": True}
        with _odeint_lock:
            # Failures raise an error below. (A context that restores the filters would not be safe in threads.)
            warnings.filterwarnings("ignore", category=ODEintWarning, module=r"refhmc\.models\.ode_solution")
            try:
                path, info = odeint(derivative, u, times, **options)
            except ODEintWarning as warning:  # if warnings are errors
                raise EvaluationError(f"odeint: {warning}") from None
            except ZeroDivisionError as error:  # a right-hand side that runs as Python
                raise EvaluationError(f"the right-hand side of the ODE: {error}") from None
        if info["message"] != "Integration successful.":
            raise EvaluationError(f"odeint: {info['message']}")
        if not np.isfinite(path).all():
            raise EvaluationError("odeint: the solution is not finite")
        return path

    # -- for compiled code --------------------------------------------------------------------------------------

    @functools.cached_property
    def _path(self) -> Callable:
        """The compiled function of ``(theta, order)`` that returns states and sensitivities at the times, in rows."""
        silence_experimental()
        n, p, times, events = self.n, self.p, self.times, self.events
        equations, change = (by_address(each, EQUATIONS) for each in (self._along, self._change))
        begin, solver = self._make_begin(), by_address(solve)
        start, tolerance, max_steps = self._options
        lengths = tuple(n_unknowns(n, p, order) for order in range(4))

        @jit_anew
        def path(theta: np.ndarray, order: int) -> np.ndarray:
            length = lengths[order]
            u, work, scratch = (
                np.zeros(length),
                np.zeros(work_length(n, n, p, length)),
                np.empty(SCRATCH_ROWS * length + 1),
            )
            out = np.empty((len(times), length))
            begin(theta, u)
            for a in range(p):
                work[length + a] = theta[a]
            # Copies, because arrays that a compiled function closes over are read-only by their type.
            at, stops = times.copy(), events.copy()
            outcome = solver()(
                *(equations(), change(), borrowed(u), borrowed(at), borrowed(stops), start, tolerance, max_steps),
                *(borrowed(out), borrowed(work), borrowed(scratch)),
            )
            in_use(u, at, stops, work, scratch)
            if outcome != SOLVED:
                out[:] = np.nan
            return out

        return path

    def _make_begin(self) -> Callable:
        """Return ``(theta, u)``, the compiled form of :meth:`initial_unknowns`."""
        n, p = self.n, self.p
        if callable(self.start):
            f = compilable(self.start)
            f = f if hasattr(f, "py_func") else jit_anew(f)
            filling = fill_from(min(len(self.start(np.full(p, 0.5))), self.highest + 1), n, p)
            return jit_anew(lambda theta, u: filling(f(theta), u))
        start, start_from = self.start, self.start_from

        @jit_anew
        def begin(theta: np.ndarray, u: np.ndarray) -> None:
            for i in range(n):
                a = start_from[i]
                u[i] = start[i] if a < 0 else theta[a]
                if a >= 0 and len(u) > n:
                    u[n + i * p + a] = 1.0

        return begin

    @functools.cached_property
    def states(self) -> Callable:
        """The compiled function of theta that returns x, of shape (T, n)."""
        path = self._path
        return kept(lambda theta: path(theta, 0), path)

    @functools.cached_property
    def first(self) -> Callable:
        """The compiled function of theta that returns (x, S), of shapes (T, n) and (T, n, p)."""
        path, n, p = self._path, self.n, self.p

        def first(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            u = path(theta, 1)
            return u[:, :n].copy(), u[:, n:].copy().reshape((len(u), n, p))

        return kept(first, path)

    @functools.cached_property
    def second(self) -> Callable:
        """The compiled function of theta that returns (x, S, W), of shapes (T, n), (T, n, p) and (T, n, p, p)."""
        if self.highest < 2:
            raise ValueError(f"hessian must be given for second sensitivities of {self.name!r}.")
        path, n, p = self._path, self.n, self.p

        def second(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            u = path(theta, 2)
            W = np.empty((len(u), n, p, p))
            for t in range(len(u)):
                at = n + n * p
                for i in range(n):
                    for a in range(p):
                        for b in range(a, p):
                            W[t, i, a, b] = W[t, i, b, a] = u[t, at]
                            at += 1
            return u[:, :n].copy(), u[:, n : n + n * p].copy().reshape((len(u), n, p)), W

        return kept(second, path)


@jit_anew
def in_use(*arrays: np.ndarray) -> None:
    """Keep borrowed arrays alive."""


def either(time: float, here: Callable, elsewhere: Callable, compiled: bool) -> Callable:
    """Return the function that calls ``here`` at that time and ``elsewhere`` otherwise."""
    there = jit_anew(here) if compiled else here

    def change(u: np.ndarray, t: float, work: np.ndarray) -> None:
        if t == time:
            there(u, t, work)
        else:
            elsewhere(u, t, work)

    return jit_anew(change) if compiled else change


def fill_from(count: int, n: int, p: int) -> Callable:
    """Return the compiled function that writes ``count`` arrays from the function of an initial state to their places in u."""

    def states(values: tuple, u: np.ndarray) -> None:
        copy_row(u, values[0])

    def first(values: tuple, u: np.ndarray) -> None:
        states(values, u)
        if len(u) > n:
            for i in range(n):
                copy_row(u[n + i * p :], values[1][i])

    def second(values: tuple, u: np.ndarray) -> None:
        first(values, u)
        at = n + n * p
        if len(u) > at:
            for i in range(n):
                for a in range(p):
                    for b in range(a, p):
                        u[at] = values[2][i, a, b]
                        at += 1

    def third(values: tuple, u: np.ndarray) -> None:
        second(values, u)
        at = n + n * p + n * (p * (p + 1) // 2)
        if len(u) > at:
            for i in range(n):
                for a in range(p):
                    for b in range(a, p):
                        for c in range(b, p):
                            u[at] = values[3][i, a, b, c]
                            at += 1

    states = jit_anew(states)
    first = jit_anew(first)
    second = jit_anew(second)
    return (states, first, second, jit_anew(third))[count - 1]


# -------------------------------------------------------------------------------------------------------- the arguments


def times_of(times: ArrayLike, start_time: float | None) -> tuple[np.ndarray, float]:
    """Return both as numbers. Raises ValueError."""
    times = np.array(array_of_numbers("times", times))
    if times.ndim != 1 or len(times) < 1 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise ValueError("times must be finite and ascending, of shape (T,).")
    start_time = float(times[0] if start_time is None else start_time)
    if not start_time <= times[0]:
        raise ValueError(f"start_time must not be after times[0] = {times[0]}; got {start_time}.")
    return times, start_time


def initial_of(
    initial_state: Callable | Sequence[float | str] | np.ndarray, names: Sequence[str]
) -> tuple[Callable | np.ndarray, np.ndarray]:
    """Return numbers (n,) and the index of the parameter of each, -1 for none; or the function unchanged."""
    if callable(initial_state):
        return initial_state, np.zeros(0, dtype=np.int64)
    each = list(initial_state)
    unknown = [name for name in each if isinstance(name, str) and name not in names]
    if unknown:
        raise ValueError(
            f"initial_state must be numbers or names of parameters ({', '.join(names) or 'none'}); got {unknown[0]!r}."
        )
    start_from = np.array([names.index(v) if isinstance(v, str) else -1 for v in each], dtype=np.int64)
    start = np.array([0.0 if isinstance(v, str) else v for v in each], dtype=float)
    if start.ndim != 1 or not len(start) or not np.isfinite(start).all():
        raise ShapeError(f"initial_state must be finite numbers or names of shape (n,); got {initial_state!r}.")
    return start, start_from


def events_of(events: Sequence, n: int, start: float, end: float, highest: int) -> tuple[np.ndarray, tuple]:
    """Return the rows of ``events`` for :func:`solve`, and (time, functions) of events that are functions. Raises an error."""
    rows: list[list[float]] = []
    changes = []
    for time, change in events:
        if not isinstance(time, int | float | np.integer | np.floating) or not start <= time < np.inf:
            raise ValueError(
                f"events: a time must be a number of at least {start}; got {time!r}. Events whose time depends on the state "
                "or the parameters are not supported."
            )
        if rows and not rows[-1][0] < time:
            raise ValueError(f"events: times must ascend; got {time} after {rows[-1][0]}.")
        if isinstance(change, tuple) and change and all(callable(f) for f in change):
            if len(change) <= highest:
                raise ValueError(
                    f"events: the change at {time} must have the new state and {highest} derivatives; got {len(change)}."
                )
            rows.append([float(time), 1.0, *[0.0] * n])
            changes.append((float(time), change[: highest + 1]))
            continue
        added = np.array(change, dtype=float)
        if added.shape != (n,) or not np.isfinite(added).all():
            raise ShapeError(
                f"events: the change at {time} must be finite numbers ({n},) or functions; got shape {added.shape}."
            )
        rows.append([float(time), 0.0, *added])
    seen = [row for row in rows if row[0] < end]
    return np.array(seen).reshape(len(seen), 2 + n), tuple(c for c in changes if c[0] < end)

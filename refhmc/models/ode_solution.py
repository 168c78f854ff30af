"""The solution of an ODE at given times, with its derivatives by the parameters: for a likelihood of one's own.

    dx/dt = f(t, x, theta),   x(start) = x_0(theta),   x(t_e+) = e(t_e, x(t_e-), theta) at the fixed times t_e of events

States and sensitivities (:mod:`refhmc.models.sensitivities`) are one system of equations, whose solver keeps the error of each
step below the tolerance in all of them:

    solver          method                                                                        threads
    "runge_kutta"   explicit, order 8(5, 3), compiled (:mod:`refhmc.numerics.runge_kutta`)        side by side
    "lsoda"         SciPy's ``odeint``, Adams or BDF as the equations need: for stiff ones        one at a time, under a lock
    "auto"          the first, and where it finds no solution the second

Equations that Numba cannot compile are solved by "lsoda". A user's compiled density calls ``solution.states``, ``.first`` and
``.second``, compiled functions of theta.
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
from scipy.integrate import ODEintWarning, odeint

from refhmc.core import types
from refhmc.core.arguments import array_of_numbers
from refhmc.core.binding import CANNOT_COMPILE, argument_count, copy_array, first_words
from refhmc.core.compiled import (
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
from refhmc.core.identity import identity_of
from refhmc.core.point import copy_row
from refhmc.core.pointer_type import Pointer
from refhmc.core.pointers import by_address
from refhmc.core.user_text import compilable
from refhmc.errors import EvaluationError, PythonModelWarning, ShapeError, _see
from refhmc.models.sensitivities import along_path, n_unknowns, work_for, work_length
from refhmc.numerics.runge_kutta import NOT_FINITE, ROOM, SOLVED, in_words, integrate

NO_THIRD = "it requires the third derivatives of the right-hand side; give ODE(..., third=...)"
EQUATIONS = nb.void(types.VECTOR, nb.float64, types.VECTOR)
POINTER = Pointer(EQUATIONS)
SOLVERS = ("runge_kutta", "lsoda", "auto")
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


# ------------------------------------------------------------------------------------------------- the user's functions


@jit
def not_given(t: float, x: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """In the place of derivatives that a user has not given: it is never called."""


@jit
def no_change(u: np.ndarray, t: float, work: np.ndarray) -> None:
    """In the place of events: it is never called."""


def in_place(function: Callable, compiled: bool) -> Callable:
    """A user's ``f(t, x, theta)`` or ``f(t, x, theta, out)`` as the latter, to be compiled or as Python."""
    f: Any = plain(function)
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
    """``(u, t, work)``, :func:`refhmc.models.sensitivities.along_path` of a function with k values and its derivatives; to be
    compiled, or as Python."""
    whole = (*functions, *[not_given] * (4 - len(functions)))
    f, jacobian, hessian, third = (in_place(function, compiled) for function in whole)
    text: Any = along_path if compiled else plain(along_path)

    def along(u: np.ndarray, t: float, work: np.ndarray) -> None:
        text(f, jacobian, hessian, third, k, n, p, u, t, work)

    return along


def as_pointer(text: Callable, title: str) -> Any:
    """``text(u, t, work)``, which closes over compiled functions, compiled for the solver.

    It owns no array, so that references to its views are not counted, which would take several times as long as the rest.
    """
    known = [cell.cell_contents for cell in text.__closure__ or () if callable(cell.cell_contents)]
    made = jit_bound(text, known, identity_of((text,)))
    compile_pointer(made, EQUATIONS, title)
    return made


def kept(text: Any, path: Any) -> Any:
    """``text``, which closes over a solution's compiled ``path``, for a user's density and for Python."""
    return jit_of_user(text, (path,), identity_of((text,)))


def fast(equations: Any) -> Callable:
    """The compiled equations without Numba's look at the types of the arguments, which takes longer than they do."""
    if numba.config.DISABLE_JIT:
        return equations
    compile_pointer(equations, EQUATIONS, "the equations of an ODE")
    return equations.overloads[equations.signatures[0]].entry_point


# ----------------------------------------------------------------------------------------------------------- the solver


def solve_signature() -> Any:
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
    room: np.ndarray,
) -> int:
    """``u`` from ``start`` through all events and times, its values at the times as rows of ``path``; the outcome.

    A row of ``events``: the time, whether ``change`` makes the new state, what is added to it. ``room``: ROOM numbers for each
    of ``u`` and one more, the time where the solver was at the end.
    """
    seen, reached = 0, room[-1:]
    for j in range(events.shape[0] + 1):
        last = j == events.shape[0]
        end = times[times.shape[0] - 1] if last else events[j, 0]
        stop = seen
        while stop < times.shape[0] and times[stop] <= end:
            stop += 1
        outcome = integrate(
            equations, u, start, end, times[seen:stop], path[seen:stop], tolerance, max_steps, work, room, reached
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
    """The states of an ODE at given times and their derivatives by the parameters, for a likelihood of your own.

    Parameters
    ----------
    rhs, jacobian, hessian, third : as for :func:`refhmc.models.ODE`; derivatives as far as sensitivities are wanted.
    parameters : how many there are, or their names.
    initial_state : (n,), each a number or the name of the parameter that it is; or a function of theta that returns the state
        at ``start_time``, its derivative (n, p), its second derivative (n, p, p) and so on, as many as of ``rhs`` are given.
    times : (T,), ascending. start_time : default the first of them.
    events : (time, change) for each, in the order of time. ``change`` is what is added to the state, (n,), such as a dose, or
        a tuple of functions: the new state e(t, x, theta) and its derivatives, as for ``rhs``. Times are numbers. What is
        observed at the time of an event is the state before it.
    tolerance : relative and absolute error of each integration step, for states and sensitivities alike.
    max_steps : of the solver from one time to the next; more count as a failure.
    solver : "runge_kutta", "lsoda" or "auto" (see the module's text).

    ``states(theta)`` is x (T, n), ``first(theta)`` is (x, S) with S (T, n, p), ``second(theta)`` is (x, S, W) with W
    (T, n, p, p): compiled functions by the compiled solver, for a user's compiled density, and for Python. NaN where there is
    no solution. ``solve(theta, order)`` is for Python alone.

    Raises
    ------
    ShapeError, ValueError : for arguments that do not fit.
    """

    def __init__(
        self,
        rhs: Callable,
        jacobian: Callable,
        hessian: Callable | None = None,
        third: Callable | None = None,
        *,
        parameters: int | Sequence[str],
        initial_state: Any,
        times: Any,
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
        self.name, self.own_equations = name, equations  # refhmc's own, compiled and kept
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
        except (*CANNOT_COMPILE, ValueError) as error:  # Numba's ValueError, of some texts
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

    def _make_change(self, compiled: bool) -> Any:
        """``(u, t, work)`` of all events that are functions, told apart by their times."""
        change: Any = no_change
        for time, functions in reversed(self.changes):
            change = either(time, make_along(functions, self.n, self.n, self.p, compiled), change, compiled)
        if not compiled or not self.changes:
            return change
        return as_pointer(lambda u, t, work: change(u, t, work), f"the events of {self.name}")

    @property
    def in_python(self) -> bool:
        """Whether SciPy solves it."""
        return self.solver == "lsoda" or self.python_equations is not None

    @functools.cached_property
    def _equations(self) -> Callable:
        """For LSODA."""
        return self.python_equations or fast(self._along)

    def __getstate__(self) -> dict[str, Any]:
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

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        self._begin()

    # -- for Python ---------------------------------------------------------------------------------------------

    def initial_unknowns(self, theta: np.ndarray, order: int) -> np.ndarray:
        """``u`` at the start: the initial state and its derivatives with respect to theta."""
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
        """The states, and the sensitivities up to ``order`` (0 to 3), at the times.

        Raises EvaluationError, with the solver's message, where there is no solution; ValueError for an order beyond the
        derivatives of the right-hand side.
        """
        if order > self.highest:
            raise ValueError(f"order must be at most 2 for {self.name!r}; got {order}: {NO_THIRD}.")
        theta = np.ascontiguousarray(theta, dtype=float)
        if not np.isfinite(theta).all():
            raise EvaluationError("the parameters of the ODE are not finite")
        path = self.path(theta, order)
        ends = [n_unknowns(self.n, self.p, k) for k in range(order + 1)]
        parts = [path[:, a:b].reshape(len(path), self.n, -1) for a, b in itertools.pairwise(ends)]
        return Solution(path[:, : self.n], *parts)

    def path(self, theta: np.ndarray, order: int) -> np.ndarray:
        """``u`` at the times, (T, length of u)."""
        u = self.initial_unknowns(theta, order)
        work = work_for(u, theta, self.n)
        if self.in_python:
            return self._by_lsoda(u, work)
        path, room, options = np.empty((len(self.times), len(u))), np.empty(ROOM * len(u) + 1), self._options
        outcome = solve(self._along, self._change, u.copy(), self.times, self.events, *options, path, work, room)
        if outcome == SOLVED:
            return path
        if self.solver == "auto":
            return self._by_lsoda(u, work)
        raise EvaluationError(f"runge_kutta: {in_words(outcome, room[-1], self.max_steps)}")

    @property
    def _options(self) -> tuple[float, float, int]:
        return self.start_time, self.tolerance, self.max_steps

    def _by_lsoda(self, u: np.ndarray, work: np.ndarray) -> np.ndarray:
        """The same by SciPy, from event to event."""
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
            # What SciPy warns of is raised below. (A context that restores the filters would not be safe in threads.)
            warnings.filterwarnings("ignore", category=ODEintWarning, module=r"refhmc\.models\.ode_solution")
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
        return path

    # -- for compiled code --------------------------------------------------------------------------------------

    @functools.cached_property
    def _path(self) -> Any:
        """``(theta, order) -> u`` at the times, (T, length of u), compiled."""
        silence_experimental()
        n, p, times, events = self.n, self.p, self.times, self.events
        equations, change = (by_address(each, EQUATIONS) for each in (self._along, self._change))
        begin, solver = self._make_begin(), by_address(solve)
        start, tolerance, max_steps = self._options
        lengths = tuple(n_unknowns(n, p, order) for order in range(4))

        @jit_anew
        def path(theta: np.ndarray, order: int) -> np.ndarray:
            length = lengths[order]
            u, work, room = np.zeros(length), np.zeros(work_length(n, n, p, length)), np.empty(ROOM * length + 1)
            out = np.empty((len(times), length))
            begin(theta, u)
            for a in range(p):
                work[length + a] = theta[a]
            # Copies, since what a compiled function closes over cannot be written to, by its type.
            at, stops = times.copy(), events.copy()
            outcome = solver()(
                *(equations(), change(), borrowed(u), borrowed(at), borrowed(stops), start, tolerance, max_steps),
                *(borrowed(out), borrowed(work), borrowed(room)),
            )
            in_use(u, at, stops, work, room)
            if outcome != SOLVED:
                out[:] = np.nan
            return out

        return path

    def _make_begin(self) -> Any:
        """``(theta, u)``: :meth:`initial_unknowns`, compiled."""
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
    def states(self) -> Any:
        """Compiled: theta -> x, (T, n)."""
        path = self._path
        return kept(lambda theta: path(theta, 0), path)

    @functools.cached_property
    def first(self) -> Any:
        """Compiled: theta -> (x, S), (T, n) and (T, n, p)."""
        path, n, p = self._path, self.n, self.p

        def first(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            u = path(theta, 1)
            return u[:, :n].copy(), u[:, n:].copy().reshape((len(u), n, p))

        return kept(first, path)

    @functools.cached_property
    def second(self) -> Any:
        """Compiled: theta -> (x, S, W), (T, n), (T, n, p) and (T, n, p, p)."""
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
    """Arrays that were borrowed are still there."""


def either(time: float, here: Callable, elsewhere: Any, compiled: bool) -> Any:
    """``here`` at that time, else ``elsewhere``."""
    there: Any = jit_anew(here) if compiled else here

    def change(u: np.ndarray, t: float, work: np.ndarray) -> None:
        if t == time:
            there(u, t, work)
        else:
            elsewhere(u, t, work)

    return jit_anew(change) if compiled else change


def fill_from(count: int, n: int, p: int) -> Any:
    """Compiled: what an initial state's function returns, ``count`` arrays, to its places in u."""

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


def times_of(times: Any, start_time: float | None) -> tuple[np.ndarray, float]:
    """Both as numbers; ValueError."""
    times = np.array(array_of_numbers("times", times))
    if times.ndim != 1 or len(times) < 1 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise ValueError("times must be finite and ascending, of shape (T,).")
    start_time = float(times[0] if start_time is None else start_time)
    if not start_time <= times[0]:
        raise ValueError(f"start_time must not be after times[0] = {times[0]}; got {start_time}.")
    return times, start_time


def initial_of(initial_state: Any, names: Sequence[str]) -> tuple[Any, np.ndarray]:
    """Numbers (n,), and of which parameter each is, -1 for none; or the function as it is."""
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
    """The rows of ``events`` for :func:`solve`, and (time, functions) of those that are functions; ShapeError, ValueError."""
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

"""The posterior of the values of an ODE's parameters: error distribution, predictions and prior, with all derivatives.

::

    y_tj ~ p(. | m_tj, s_j),   m_t = x(t) or g(t, x(t), theta),   values v = (theta, s) with a prior

With l the log density of one observation as a function of (m, s) (:mod:`refhmc.models.error_laws`), and M, W, V the
derivatives of m by theta (:mod:`refhmc.models.sensitivities`), the log likelihood is a sum over all observations, with the
terms ::

    gradient  by theta   l_m M                            by s   l_s
    hessian   theta^2    l_mm M M' + l_m W                theta s   l_ms M             s^2   l_ss
    third     theta^3    l_mmm M M M + l_mm (W M, three times) + l_m V
              theta^2 s  l_mms M M' + l_ms W              theta s^2   l_mss M          s^3   l_sss
    Fisher    theta^2    I_mm M M'                        s^2   I_ss

The derivative of the Fisher metric follows by the chain rule. The prior is added. For normal errors, the Fisher metric is
eq. 20 of Brofos and Lederman (2021), and its derivative is that of Girolami and Calderhead (2011), sec. 10.

All functions are compiled around the compiled solver. If SciPy may have to solve the equations, they are Python around the same
compiled sums, and each thread keeps its last solution, which serves all derivatives at a position.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types as nb
from numpy.typing import ArrayLike

from refhmc.compile.compiled import borrowed, entry, jit_anew, jit_part
from refhmc.compile.pointer_type import Pointer
from refhmc.compile.pointers import by_address
from refhmc.compile.user_text import compilable
from refhmc.core import types
from refhmc.core.arguments import array_of_numbers
from refhmc.core.point import copy_row
from refhmc.errors import EvaluationError, ShapeError
from refhmc.models.error_laws import ErrorLaw
from refhmc.models.ode_solution import ODESolution, in_use, make_along
from refhmc.models.priors import Own, log_prior
from refhmc.models.sensitivities import pair_of, work_length

DENSITY = nb.void(nb.float64, nb.float64, nb.float64, nb.float64, types.VECTOR)
INFORMATION = nb.void(nb.float64, nb.float64, nb.float64, types.VECTOR)
SCRATCH = 10  # numbers that an error distribution writes

# ---------------------------------------------------------------------------------------------------------- compiled


@jit_part
def add_third(
    l: np.ndarray,  # noqa: E741
    M: np.ndarray,
    W: np.ndarray,
    V: np.ndarray,
    at: np.ndarray,
    e: int,
    T: np.ndarray,
) -> None:
    """Add the third derivatives of one observation to all permutations of the indices."""
    p, triple = M.shape[0], 0
    for a in range(p):
        for b in range(a, p):
            w = W[pair_of(p, a, b)]
            for i in range(b, p):
                bent = w * M[i] + W[pair_of(p, a, i)] * M[b] + W[pair_of(p, b, i)] * M[a]
                put(T, at[a], at[b], at[i], l[6] * M[a] * M[b] * M[i] + l[3] * bent + l[1] * V[triple])
                triple += 1
            if e >= 0:
                put(T, at[a], at[b], e, l[7] * M[a] * M[b] + l[4] * w)
        if e >= 0:
            put(T, at[a], e, e, l[8] * M[a])
    if e >= 0:
        T[e, e, e] += l[9]


@jit_part
def put(T: np.ndarray, a: int, b: int, c: int, value: float) -> None:
    """Add a value at all permutations of three indices."""
    total = T[a, b, c] + value
    T[a, b, c] = T[a, c, b] = T[b, a, c] = T[b, c, a] = T[c, a, b] = T[c, b, a] = total


def terms_signature() -> object:
    integers, arrays = (types.INTEGERS, types.INTEGERS, types.MATRIX), (types.VECTOR, types.MATRIX, types.STACK)
    data = (types.MATRIX, types.MATRIX, types.MATRIX)
    return nb.float64(Pointer(DENSITY), nb.float64, nb.int64, *data, *integers, types.VECTOR, types.VECTOR, *arrays)


@entry(terms_signature, "the posterior of an ODE")
def add_terms(
    density: Callable,
    c: float,
    order: int,
    means: np.ndarray,
    y: np.ndarray,
    fixed: np.ndarray,
    at: np.ndarray,
    at_s: np.ndarray,
    priors: np.ndarray,
    x: np.ndarray,
    l: np.ndarray,  # noqa: E741
    g: np.ndarray,
    H: np.ndarray,
    T: np.ndarray,
) -> float:
    """Return the log density of the values `x`, and add its derivatives up to `order` to g, H and T."""
    p, k = at.shape[0], y.shape[1]
    total = 0.0
    for t in range(y.shape[0]):
        for j in range(k):
            if np.isnan(y[t, j]):
                continue
            e = at_s[j]
            s = fixed[t, j] if e < 0 else x[e]
            density(y[t, j], means[t, j], s, c, l)
            total += l[0]
            if order > 0:
                M = means[t, k + j * p : k + (j + 1) * p]
                for a in range(p):
                    g[at[a]] += l[1] * M[a]
                if e >= 0:
                    g[e] += l[2]
                if order > 1:
                    first = k + k * p + j * (p * (p + 1) // 2)
                    W = means[t, first : first + p * (p + 1) // 2]
                    pair = 0
                    for a in range(p):
                        for b in range(a, p):
                            value = H[at[a], at[b]] + (l[3] * M[a] * M[b] + l[1] * W[pair])
                            H[at[a], at[b]] = H[at[b], at[a]] = value
                            pair += 1
                        if e >= 0:
                            H[at[a], e] += l[4] * M[a]
                            H[e, at[a]] = H[at[a], e]
                    if e >= 0:
                        H[e, e] += l[5]
                    if order > 2:
                        n_triples = p * (p + 1) * (p + 2) // 6
                        past = k + k * p + k * (p * (p + 1) // 2) + j * n_triples
                        add_third(l, M, W, means[t, past : past + n_triples], at, e, T)
    for i in range(x.shape[0]):
        log_prior(x[i], priors[i], l)
        total += l[0]
        if order > 0:
            g[i] += l[1]
        if order > 1:
            H[i, i] += l[2]
        if order > 2:
            T[i, i, i] += l[3]
    return total if total > -np.inf else -np.inf


def information_signature() -> object:
    integers, out = (types.INTEGERS, types.INTEGERS, types.MATRIX), (types.MATRIX, types.STACK)
    data = (types.MATRIX, types.MATRIX, types.MATRIX)
    return nb.void(Pointer(INFORMATION), nb.float64, nb.int64, *data, *integers, types.VECTOR, types.VECTOR, *out)


@entry(information_signature, "the Fisher metric of an ODE")
def add_information(
    information: Callable,
    c: float,
    order: int,
    means: np.ndarray,
    y: np.ndarray,
    fixed: np.ndarray,
    at: np.ndarray,
    at_s: np.ndarray,
    priors: np.ndarray,
    x: np.ndarray,
    l: np.ndarray,  # noqa: E741
    G: np.ndarray,
    D: np.ndarray,
) -> None:
    """Add the Fisher metric of the values to G and, with `order` 2, its derivative to D: D[a, b, c] = dG_ab / dx_c."""
    p, k = at.shape[0], y.shape[1]
    for t in range(y.shape[0]):
        for j in range(k):
            if np.isnan(y[t, j]):
                continue
            e = at_s[j]
            information(means[t, j], fixed[t, j] if e < 0 else x[e], c, l)
            M = means[t, k + j * p : k + (j + 1) * p]
            if e >= 0:
                G[e, e] += l[1]
            for a in range(p):
                for b in range(p):
                    G[at[a], at[b]] += l[0] * M[a] * M[b]
            if order < 2:
                continue
            first = k + k * p + j * (p * (p + 1) // 2)
            W = means[t, first : first + p * (p + 1) // 2]
            if e >= 0:
                D[e, e, e] += l[5]
                for a in range(p):
                    D[e, e, at[a]] += l[4] * M[a]
            for a in range(p):
                for b in range(p):
                    if e >= 0:
                        D[at[a], at[b], e] += l[3] * M[a] * M[b]
                    for i in range(p):
                        bent = W[pair_of(p, a, i)] * M[b] + M[a] * W[pair_of(p, b, i)]
                        D[at[a], at[b], at[i]] += l[2] * M[a] * M[b] * M[i] + l[0] * bent
    for i in range(x.shape[0]):
        log_prior(x[i], priors[i], l)
        G[i, i] += l[4]
        if order > 1:
            D[i, i, i] += l[5]


# ------------------------------------------------------------------------------------------------- functions of values


class Posterior(NamedTuple):
    """The parts that the functions of an ODE's posterior are built from."""

    solution: ODESolution
    observe: tuple[Callable, ...]  # () if the states themselves are observed
    columns: int
    errors: ErrorLaw
    theta: np.ndarray  # indices of the values of the equations, (p,)
    s: np.ndarray  # index of s by column, (K,); -1 for a number
    priors: np.ndarray  # distribution of each value, (count, 4): kind and parameters
    own: Own | None
    in_python: bool

    @property
    def highest(self) -> int:
        """The highest order of the derivatives of the log density."""
        own = 3 if self.own is None else 1 + sum(f is not None for f in self.own[2:])
        return min(self.solution.highest, own)


def compiled(function: Callable) -> Callable:
    """Return a user's function, compiled."""
    f = compilable(function)
    return f if hasattr(f, "py_func") else jit_anew(f)


def same(thing: Any) -> Any:
    return thing


class LastPath:
    """``path(theta, order)`` of a solution, which each thread keeps for the last position.

    A solution of higher order serves lower orders, although it differs in its last digits. A solution of third order is kept
    separately, so that a call for the third derivative does not change the log density.
    """

    def __init__(self, path: Callable) -> None:
        self.path, self._last = path, threading.local()

    def __reduce__(self) -> tuple[Callable, tuple[Callable]]:
        return LastPath, (self.path,)

    def __call__(self, theta: np.ndarray, order: int) -> np.ndarray:
        kept = "third" if order > 2 else "second"
        last: tuple[Any, int, Any, str] = getattr(self._last, kept, (None, -1, None, ""))
        at, its_order, path, error = last
        if its_order < order or not np.array_equal(at, theta):
            try:
                path, error = self.path(theta, order), ""
            except EvaluationError as failure:
                path, error = None, str(failure)
            setattr(self._last, kept, (theta.copy(), order, path, error))
        if error:
            raise EvaluationError(error)
        return path


class Way(NamedTuple):
    """How functions are built: compiled around the compiled solver, or as Python around SciPy's."""

    wrap: Callable
    borrow: Callable
    path: Callable
    fisher_order: int  # order of the solution for the Fisher metric; 2 if its derivative uses the same solution
    terms: Callable
    information: Callable
    pointer: Callable  # (compiled function, signature)


def way_of(of: Posterior) -> Way:
    if of.in_python:
        path = LastPath(of.solution.path)
        return Way(same, same, path, 2, lambda: add_terms, lambda: add_information, lambda f, _: lambda: f)
    return Way(jit_anew, borrowed, of.solution._path, 1, by_address(add_terms), by_address(add_information), by_address)


def own_terms(own: Own | None, wrap: Callable) -> Callable:
    """Return ``(order, x, g, H, T)``: the user's log prior, which adds its derivatives."""
    if own is None:
        return wrap(lambda order, x, g, H, T: 0.0)
    # The gradient stands in for a derivative that is not given, which is never called.
    density, gradient, hessian, third = (compiled(f or own.gradient) for f in own)

    def terms(order: int, x: np.ndarray, g: np.ndarray, H: np.ndarray, T: np.ndarray) -> float:
        if order > 0:
            slope = gradient(x)
            for i in range(len(x)):
                g[i] += slope[i]
        if order > 1:
            H += hessian(x)
        if order > 2:
            T += third(x)
        return density(x)

    return wrap(terms)


def make_means(of: Posterior, way: Way) -> Callable:
    """Return ``(x, times, order)``: the means of the observations and their derivatives, a row per time."""
    k, n, p, path = of.columns, of.solution.n, of.solution.p, way.path
    at = of.theta
    if not of.observe:
        return way.wrap(lambda x, times, order: path(x[at], order))
    along = jit_anew(make_along(of.observe, k, n, p))

    @jit_anew
    def observed(path: np.ndarray, theta: np.ndarray, times: np.ndarray) -> np.ndarray:
        length = path.shape[1]
        size = length // n * k
        work, means = np.zeros(work_length(k, n, p, length)), np.empty((len(times), size))
        for a in range(p):
            work[size + a] = theta[a]
        for t in range(len(times)):
            along(path[t], times[t], work)
            copy_row(means[t], work[:size])
        return means

    def means_at(x: np.ndarray, times: np.ndarray, order: int) -> np.ndarray:
        theta = x[at]
        return observed(path(theta, order), theta, times)

    return way.wrap(means_at)


def functions_of(of: Posterior) -> dict[str, Any]:
    """Return the functions of ``(x, data)`` and ``(x, data, out)`` by their names in :class:`refhmc.Model`, None if missing.

    ``x`` are the values in one row. ``data`` has the fields times (T,), y (T, K) and s (T, K), and ``out`` contains zeros.
    """
    way, c, at, at_s, priors = way_of(of), of.errors.constant, of.theta, of.s, of.priors
    density, terms, borrow = way.pointer(compiled(of.errors.derivatives), DENSITY), way.terms, way.borrow
    means_at, own, count = make_means(of, way), own_terms(of.own, way.wrap), len(priors)

    @way.wrap
    def to_order(order: int, x: np.ndarray, data: Any, g: np.ndarray, H: np.ndarray, T: np.ndarray) -> float:
        means, room = means_at(x, data.times, order), np.empty(SCRATCH)
        # Copies, since arrays in the closure of a compiled function are read-only.
        i, j, table = at.copy(), at_s.copy(), priors.copy()
        value = terms()(
            *(density(), c, order, borrow(means), borrow(data.y), borrow(data.s), borrow(i), borrow(j), borrow(table)),
            *(borrow(x), borrow(room), borrow(g), borrow(H), borrow(T)),
        )
        in_use(means, room, i, j, table)
        return value + own(order, x, g, H, T)

    def log_density(x: np.ndarray, data: Any) -> float:
        return to_order(0, x, data, np.empty(0), np.empty((0, 0)), np.empty((0, 0, 0)))

    def value_and_gradient(x: np.ndarray, data: Any, out: np.ndarray) -> float:
        return to_order(1, x, data, out, np.empty((0, 0)), np.empty((0, 0, 0)))

    def gradient(x: np.ndarray, data: Any, out: np.ndarray) -> None:
        to_order(1, x, data, out, np.empty((0, 0)), np.empty((0, 0, 0)))

    def hessian(x: np.ndarray, data: Any, out: np.ndarray) -> None:
        to_order(2, x, data, np.zeros(count), out, np.empty((0, 0, 0)))

    def third_derivative(x: np.ndarray, data: Any, out: np.ndarray) -> None:
        to_order(3, x, data, np.zeros(count), np.zeros((count, count)), out)

    fisher, fisher_derivative = information_functions(of, way, means_at, own)
    return {
        "log_density": way.wrap(log_density),
        "value_and_gradient": way.wrap(value_and_gradient),
        "gradient": way.wrap(gradient),
        "hessian": way.wrap(hessian) if of.highest >= 2 else None,
        "third_derivative": way.wrap(third_derivative) if of.highest >= 3 else None,
        "fisher": fisher,
        "fisher_derivative": fisher_derivative,
    }


def information_functions(
    of: Posterior, way: Way, means_at: Callable, own: Callable
) -> tuple[Callable | None, Callable | None]:
    """Return ``fisher`` and ``fisher_derivative`` of the values, both or neither."""
    if of.errors.information is None or of.highest < (2 if of.own is None else 3):
        return None, None
    c, at, at_s, priors, borrow, fisher_order = (
        of.errors.constant,
        of.theta,
        of.s,
        of.priors,
        way.borrow,
        way.fisher_order,
    )
    information, add, count = way.pointer(compiled(of.errors.information), INFORMATION), way.information, len(priors)

    @way.wrap
    def to_order(order: int, means: np.ndarray, x: np.ndarray, data: Any, G: np.ndarray, D: np.ndarray) -> None:
        room = np.empty(SCRATCH)
        i, j, table = at.copy(), at_s.copy(), priors.copy()
        add()(
            *(information(), c, order, borrow(means), borrow(data.y), borrow(data.s), borrow(i), borrow(j)),
            *(borrow(table), borrow(x), borrow(room), borrow(G), borrow(D)),
        )
        in_use(means, room, i, j, table)
        H, T = np.zeros((count, count)), np.zeros((count, count, count))
        own(order + 1, x, np.zeros(count), H, T)
        G -= H
        if order > 1:
            D -= T

    def fisher(x: np.ndarray, data: Any, out: np.ndarray) -> None:
        to_order(1, means_at(x, data.times, fisher_order), x, data, out, np.empty((0, 0, 0)))

    def fisher_derivative(x: np.ndarray, data: Any, out: np.ndarray) -> None:
        to_order(2, means_at(x, data.times, 2), x, data, np.zeros((count, count)), out)

    return way.wrap(fisher), way.wrap(fisher_derivative)


# ------------------------------------------------------------------------------------------------------ the arguments


def observations_of(times: np.ndarray, y: ArrayLike, n: int | None) -> np.ndarray:
    """Return y as numbers of shape (T, n). Raises ShapeError or ValueError."""
    y = np.array(array_of_numbers("y", y), order="C")  # a transposed table is in Fortran order
    if y.ndim != 2 or len(y) != len(times) or (n is not None and y.shape[1] != n):
        shape = f"({len(times)}, {'number of states' if n is None else n})"
        raise ShapeError(f"y must have the shape {shape}, with the states in initial_state; got {y.shape}.")
    if np.isinf(y).any() or np.isnan(y).all():
        raise ValueError("y must be finite, with NaN for missing observations; got infinite values or no observation.")
    return y


def scale_of(what: str, s: ArrayLike, y: np.ndarray) -> np.ndarray:
    """Return s as positive numbers of the shape of y. Raises ShapeError or ValueError."""
    given = np.array(array_of_numbers(what, s))
    try:
        scale = np.broadcast_to(given, y.shape).copy()
    except ValueError:
        raise ShapeError(f"{what} must broadcast to the shape {y.shape} of y; got {given.shape}.") from None
    seen = scale[~np.isnan(y)]
    if not ((seen > 0) & (seen < np.inf)).all():
        raise ValueError(f"{what} must be positive and finite; got {s!r}.")
    return scale

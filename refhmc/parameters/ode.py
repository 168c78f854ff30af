"""The posterior of an ODE whose parameters occur in the equations, in the initial state and in the errors, with any prior.

::

    y_tj ~ p(. | m_tj, s_j),   m_t = x(t) or g(t, x(t), theta),   values v = (theta, s) of refhmc.Parameters with a prior

With l the log density of one observation as a function of (m, s) (:mod:`refhmc.models.error_laws`), and M, W, V the
derivatives of m by theta, the log likelihood is a sum over all observations, with the terms ::

    gradient  by theta   l_m M                            by s   l_s
    hessian   theta^2    l_mm M M' + l_m W                theta s   l_ms M             s^2   l_ss
    third     theta^3    l_mmm M M M + l_mm (W M, three times) + l_m V
              theta^2 s  l_mms M M' + l_ms W              theta s^2   l_mss M          s^3   l_sss
    Fisher    theta^2    I_mm M M'                        s^2   I_ss

The derivative of the Fisher metric follows by the chain rule. The prior is added, and :mod:`refhmc.numerics.constraining`
transforms everything from the values to the coordinates. All functions are compiled, so that chains run without the GIL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from numba import types as nb
from numpy.typing import ArrayLike

from refhmc.compile.compiled import borrowed, entry, jit_anew, jit_part
from refhmc.compile.pointer_type import Pointer
from refhmc.compile.pointers import by_address
from refhmc.compile.user_text import compilable
from refhmc.core import types
from refhmc.core.arguments import array_of_numbers
from refhmc.core.point import copy_row
from refhmc.errors import EvaluationError, ModelError, ShapeError
from refhmc.models.base import Model
from refhmc.models.binding.adapters import contract
from refhmc.models.binding.functions import Functions
from refhmc.models.error_laws import ErrorLaw
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.ode import KEYS, check_function
from refhmc.models.ode_solution import NO_THIRD, ODESolution, in_use, make_along, times_of
from refhmc.models.priors import FLAT, Own, Prior, log_prior
from refhmc.models.sensitivities import pair_of, work_for, work_length
from refhmc.parameters.coordinates import Coordinates
from refhmc.parameters.model import OfValues, in_coordinates

LAW = nb.void(nb.float64, nb.float64, nb.float64, nb.float64, types.VECTOR)
INFORMATION = nb.void(nb.float64, nb.float64, nb.float64, types.VECTOR)
SCRATCH = 10  # numbers that an error distribution writes
STARTS, ITERATIONS = 6, 40  # ascents from the prior, and their iterations at most


class Observations(NamedTuple):
    """The data of the model: times (T,), y (T, K), and numbers s (T, K)."""

    times: np.ndarray
    y: np.ndarray
    s: np.ndarray


class Roles(NamedTuple):
    """Indices of the values of the equations (p,), index of s by column (K,), -1 for a number, and priors (count, 4)."""

    theta: np.ndarray
    s: np.ndarray
    priors: np.ndarray


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
    """Add a value once at each different permutation of three indices."""
    T[a, b, c] += value
    if a == b == c:
        return
    if b == c:
        T[b, a, c] += value
        T[b, c, a] += value
    elif a == b:
        T[a, c, b] += value
        T[c, a, b] += value
    else:
        T[a, c, b] += value
        T[b, a, c] += value
        T[b, c, a] += value
        T[c, a, b] += value
        T[c, b, a] += value


def terms_signature() -> object:
    integers, arrays = (types.INTEGERS, types.INTEGERS, types.MATRIX), (types.VECTOR, types.MATRIX, types.STACK)
    data = (types.MATRIX, types.MATRIX, types.MATRIX)
    return nb.float64(Pointer(LAW), nb.float64, nb.int64, *data, *integers, types.VECTOR, types.VECTOR, *arrays)


@entry(terms_signature, "the posterior of an ODE")
def add_terms(
    law: Callable,
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
            law(y[t, j], means[t, j], s, c, l)
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
                            value = l[3] * M[a] * M[b] + l[1] * W[pair]
                            pair += 1
                            H[at[a], at[b]] += value
                            if b > a:
                                H[at[b], at[a]] += value
                        if e >= 0:
                            H[at[a], e] += l[4] * M[a]
                            H[e, at[a]] += l[4] * M[a]
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
    law: ErrorLaw
    roles: Roles
    own: Own | None
    parameters: Coordinates

    @property
    def highest(self) -> int:
        """The highest order of the derivatives of the log density."""
        own = 3 if self.own is None else 1 + sum(f is not None for f in self.own[2:])
        return min(self.solution.highest, own)


def compiled(function: Callable) -> Callable:
    """Return a user's function, compiled."""
    f = compilable(function)
    return f if hasattr(f, "py_func") else jit_anew(f)


def as_it_is(thing: Callable) -> Callable:
    return thing


class Way(NamedTuple):
    """How functions are built: compiled around the compiled solver, or as Python around SciPy's."""

    wrap: Callable
    borrow: Callable
    path: Callable
    terms: Callable
    information: Callable
    pointer: Callable  # (compiled function, signature)


def way_of(solution: ODESolution) -> Way:
    if solution.in_python:
        return Way(
            as_it_is, as_it_is, solution.path, lambda: add_terms, lambda: add_information, lambda f, _: lambda: f
        )
    return Way(jit_anew, borrowed, solution._path, by_address(add_terms), by_address(add_information), by_address)


def no_array(x: np.ndarray) -> None:
    """Stand in for a derivative that is not given; it is never called."""


def own_terms(own: Own | None) -> Callable:
    """Return the compiled ``(order, x, g, H, T)``: the user's log prior, which adds its derivatives."""
    if own is None:
        return jit_anew(lambda order, x, g, H, T: 0.0)
    n = 2 + sum(f is not None for f in own[2:])
    density, gradient, hessian, third = (compiled(f or own.gradient) for f in own)

    def to_first(order: int, x: np.ndarray, g: np.ndarray, H: np.ndarray, T: np.ndarray) -> float:
        if order > 0:
            slope = gradient(x)
            for i in range(len(x)):
                g[i] += slope[i]
        return density(x)

    def to_second(order: int, x: np.ndarray, g: np.ndarray, H: np.ndarray, T: np.ndarray) -> float:
        if order > 1:
            H += hessian(x)
        return first(order, x, g, H, T)

    def to_third(order: int, x: np.ndarray, g: np.ndarray, H: np.ndarray, T: np.ndarray) -> float:
        if order > 2:
            T += third(x)
        return second(order, x, g, H, T)

    first = jit_anew(to_first)
    second = jit_anew(to_second)
    return (first, second, jit_anew(to_third))[n - 2]


def make_means(of: Posterior, way: Way) -> Callable:
    """Return ``(x, times, order)``: the means of the observations and their derivatives, a row per time."""
    k, n, p, path = of.columns, of.solution.n, of.solution.p, way.path
    at = of.roles.theta
    along = jit_anew(make_along(of.observe, k, n, p)) if of.observe else None

    def theta_of(x: np.ndarray) -> np.ndarray:
        theta = np.empty(p)
        for a in range(p):
            theta[a] = x[at[a]]
        return theta

    theta_of = jit_anew(theta_of)
    if along is None:
        return way.wrap(lambda x, times, order: path(theta_of(x), order))

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
        theta = theta_of(x)
        return observed(path(theta, order), theta, times)

    return way.wrap(means_at)


def functions_of(of: Posterior) -> OfValues:
    """Return the functions of the values in one row."""
    way, count, c, (at, at_s, priors) = way_of(of.solution), of.parameters.count, of.law.constant, of.roles
    law, terms, borrow, own = way.pointer(compiled(of.law.derivatives), LAW), way.terms, way.borrow, own_terms(of.own)
    means_at = make_means(of, way)

    @way.wrap
    def to_order(order: int, x: np.ndarray, data: Observations, g: np.ndarray, H: np.ndarray, T: np.ndarray) -> float:
        times, y, s = data
        means, room = means_at(x, times, order), np.empty(SCRATCH)
        # Copies, since arrays in the closure of a compiled function are read-only.
        i, j, laws = at.copy(), at_s.copy(), priors.copy()
        value = terms()(
            *(law(), c, order, borrow(means), borrow(y), borrow(s), borrow(i), borrow(j), borrow(laws)),
            *(borrow(x), borrow(room), borrow(g), borrow(H), borrow(T)),
        )
        in_use(means, room, i, j, laws)
        return value + own(order, x, g, H, T)

    def log_density(x: np.ndarray, data: Observations) -> float:
        return to_order(0, x, data, np.empty(0), np.empty((0, 0)), np.empty((0, 0, 0)))

    def value_and_gradient(rows: np.ndarray, again: np.ndarray, data: Observations, out: np.ndarray) -> float:
        return to_order(1, rows[0], data, out, np.empty((0, 0)), np.empty((0, 0, 0)))

    def gradient(x: np.ndarray, data: Observations, out: np.ndarray) -> None:
        to_order(1, x, data, out, np.empty((0, 0)), np.empty((0, 0, 0)))

    def hessian(x: np.ndarray, data: Observations, out: np.ndarray) -> None:
        to_order(2, x, data, np.zeros(count), out, np.empty((0, 0, 0)))

    def hessian_contraction(x: np.ndarray, data: Observations, M: np.ndarray, out: np.ndarray) -> None:
        T = np.zeros((count, count, count))
        to_order(3, x, data, np.zeros(count), np.zeros((count, count)), T)
        contract(M, T, out)

    made: list[Any] = [way.wrap(f) for f in (log_density, value_and_gradient, gradient)]
    made += [way.wrap(f) if of.highest >= order else None for f, order in ((hessian, 2), (hessian_contraction, 3))]
    made += information_functions(of, way, means_at, own)
    return OfValues(way.wrap(lambda rows: rows[0]), *made)


def information_functions(
    of: Posterior, way: Way, means_at: Callable, own: Callable
) -> tuple[Callable | None, Callable | None]:
    """Return ``fisher`` and ``fisher_contraction`` of the values, both or neither."""
    if of.law.information is None or of.highest < (2 if of.own is None else 3):
        return None, None
    count, c, (at, at_s, priors), borrow = of.parameters.count, of.law.constant, of.roles, way.borrow
    law, add = way.pointer(compiled(of.law.information), INFORMATION), way.information

    @way.wrap
    def to_order(order: int, x: np.ndarray, data: Observations, G: np.ndarray, D: np.ndarray) -> None:
        times, y, s = data
        means, room = means_at(x, times, order), np.empty(SCRATCH)
        i, j, laws = at.copy(), at_s.copy(), priors.copy()
        add()(
            *(law(), c, order, borrow(means), borrow(y), borrow(s), borrow(i), borrow(j), borrow(laws)),
            *(borrow(x), borrow(room), borrow(G), borrow(D)),
        )
        in_use(means, room, i, j, laws)
        H, T = np.zeros((count, count)), np.zeros((count, count, count))
        own(order + 1, x, np.zeros(count), H, T)
        G -= H
        if order > 1:
            D -= T

    def fisher(x: np.ndarray, data: Observations, out: np.ndarray) -> None:
        to_order(1, x, data, out, np.empty((0, 0, 0)))

    def fisher_contraction(x: np.ndarray, data: Observations, M: np.ndarray, out: np.ndarray) -> None:
        D = np.zeros((count, count, count))
        to_order(2, x, data, np.zeros((count, count)), D)
        contract(M, D, out)

    return way.wrap(fisher), way.wrap(fisher_contraction)


# --------------------------------------------------------------------------------------------------------- the model


class ODEModel(Model):
    """A model created by :func:`refhmc.models.ODE`, with attributes ``solution`` (:class:`ODESolution`) and ``parameters``."""

    def __init__(self, of: Posterior, observations: Observations, priors: Mapping[str, Prior], options: dict) -> None:
        self.of, self.solution, self.parameters = of, of.solution, of.parameters
        self._given = (of, observations, priors, options)
        functions = functions_of(of)
        texts = in_coordinates(functions, of.parameters)  # Python around compiled functions
        self._to_compile = Functions(**in_coordinates(functions, of.parameters))
        given: dict[str, Any] = dict(options)
        if isinstance(given.get("initial"), Mapping):
            given["initial"] = of.parameters.unconstrain(given["initial"], "initial")
        elif given.get("initial") is None and priors and all(each.kind != FLAT for each in priors.values()):
            given["initial"] = self.draw_start
        given["dims"] = {**of.parameters.dims, **given.get("dims", {})}
        in_python = "its ODE is solved by SciPy" if of.solution.in_python else ""
        super().__init__(
            of.parameters.dim,
            **texts,
            data=observations,
            names=of.parameters.names,
            constrain=of.parameters.constrain,
            in_python=in_python,
            noise=1000 * of.solution.tolerance * observations.y.size,
            absent={"third_derivative": NO_THIRD, "hessian_contraction": NO_THIRD},
            **given,
        )
        self.unconstrain = of.parameters.unconstrain

    def __reduce__(self) -> tuple[Callable, tuple]:
        return ODEModel, self._given

    @property
    def to_compile(self) -> Functions:
        return self._to_compile

    def draw_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return the best end of several L-BFGS ascents from draws of the prior.

        Oscillating equations have other modes, with curves that miss the observations. A chain that starts in one stays
        there.
        """
        priors = self._given[2]

        def downhill(q: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.core.value_and_gradient(q)
            return (-value if np.isfinite(value) else 1e300), -np.nan_to_num(gradient)

        def ascent() -> scipy.optimize.OptimizeResult:
            q = self.parameters.unconstrain(draw_prior(rng, priors, self.parameters), "prior")
            return scipy.optimize.minimize(downhill, q, jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})

        return min((ascent() for _ in range(STARTS)), key=lambda found: found.fun).x

    def words_at(self, q: np.ndarray) -> str:
        words = super().words_at(q)
        if words:
            return words
        x = np.concatenate([np.ravel(value) for value in self.constrain(q).values()])
        try:
            self.solution.solve(x[self.of.roles.theta], 1)
        except EvaluationError as error:
            return f": {error}"
        return ""


def draw_prior(rng: np.random.Generator, priors: Mapping[str, Prior], parameters: Coordinates) -> dict[str, np.ndarray]:
    """Return values by name, drawn from the prior and truncated to the supports."""
    values = {}
    for name, support in parameters.supports.items():
        for _ in range(1000):
            values[name] = np.asarray(priors[name].draw(rng, support.value_shape))
            if not support.outside(values[name]):
                break
        else:
            raise ModelError(
                f"prior of {name} must overlap its support {support}; got {priors[name]}, with no draw of 1000 inside."
            )
    return values


def means_and_s(values: Mapping[str, np.ndarray], of: Posterior, data: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Return m and s of all observations (T, K) at values by name, NaN if the ODE has no solution."""
    x = np.concatenate([np.ravel(values[name]) for name in of.parameters.supports]).astype(float)
    shape = data.y.shape
    try:
        path = of.solution.path(x[of.roles.theta], 0)
    except EvaluationError:
        return np.full(shape, np.nan), np.ones(shape)
    means = path
    if of.observe:
        along = make_along(of.observe[:1], of.columns, of.solution.n, of.solution.p, False)
        means = np.empty(shape)
        for row, u, t in zip(means, path, data.times, strict=True):
            work = work_for(u, x[of.roles.theta], of.solution.n, of.columns)
            along(u, t, work)
            row[:] = work[: of.columns]
    s = np.where(of.roles.s < 0, data.s, x[of.roles.s])
    return means, s


def seen(values: np.ndarray, data: Observations) -> np.ndarray:
    """Return the values unchanged if everything is observed, and otherwise the observed ones in one row."""
    there = ~np.isnan(data.y)
    return values if there.all() else values[there]


def log_likelihood(values: Mapping[str, np.ndarray], of: Posterior, data: Observations) -> dict[str, np.ndarray]:
    law, room = compiled(of.law.derivatives), np.empty(SCRATCH)
    found = np.full(data.y.shape, np.nan)
    means, s = means_and_s(values, of, data)
    for at in zip(*np.nonzero(~np.isnan(data.y)), strict=True):
        law(data.y[at], means[at], s[at], of.law.constant, room)
        found[at] = room[0]
    return {"y": seen(found, data)}


def posterior_predictive(
    values: Mapping[str, np.ndarray], rng: np.random.Generator, of: Posterior, data: Observations
) -> dict[str, np.ndarray]:
    means, s = means_and_s(values, of, data)
    if np.isnan(means).any() or of.law.draw is None:
        return {"y": seen(np.full(data.y.shape, np.nan), data)}
    return {"y": seen(np.asarray(of.law.draw(rng, means, s, of.law.constant), dtype=float), data)}


def generated_by(of: Posterior, data: Observations, priors: Mapping[str, Prior]) -> GeneratedQuantities:
    """Return the generated groups of the model."""
    bound: dict[str, Any] = {"of": of, "data": data}
    proper = bool(priors) and all(each.kind != FLAT for each in priors.values())
    return GeneratedQuantities(
        log_likelihood=functools.partial(log_likelihood, **bound),
        posterior_predictive=functools.partial(posterior_predictive, **bound) if of.law.draw else None,
        prior=functools.partial(draw_prior, priors=priors, parameters=of.parameters) if proper else None,
        observed_data={"y": seen(data.y, data)},
    )


# ------------------------------------------------------------------------------------------------------ the arguments


def model_of(
    functions: tuple[Callable, ...],
    *,
    parameters: Coordinates,
    initial_state: Callable | Sequence[float | str] | np.ndarray,
    times: ArrayLike,
    y: ArrayLike,
    errors: ErrorLaw,
    prior: Mapping[str, Prior] | Own | None,
    observe: Callable | tuple[Callable, ...] | list[Callable] | None,
    states: Sequence[str] | None,
    name: str,
    options: dict[str, Any],
    **solver: Any,
) -> ODEModel:
    """Return the model with these arguments of :func:`refhmc.models.ODE`, after checking that they agree."""
    if not isinstance(errors, ErrorLaw):
        raise ModelError(
            f"errors must be a distribution of refhmc.models.error_laws, such as Normal('sigma'); got {errors!r}."
        )
    of_errors = errors.parameter if isinstance(errors.parameter, str) else None
    if of_errors is not None and of_errors not in parameters.supports:
        raise ModelError(
            f"errors must name one of the parameters {', '.join(parameters.supports)}; got {errors.name}({of_errors!r})."
        )
    places = {
        name: np.arange(first, first + support.value_count)
        for (name, support), first in zip(parameters.supports.items(), parameters.at, strict=True)
    }
    in_equations = [key for key in parameters.supports if key != of_errors]
    if not in_equations:
        raise ModelError("parameters must include at least one for the equations; got only that of the errors.")
    theta = np.concatenate([places[key] for key in in_equations])
    names = [key if parameters.supports[key].value_shape == () else f"{key}[{i}]"
             for key in in_equations for i in range(parameters.supports[key].value_count)]  # fmt: skip
    observe = () if observe is None else tuple(observe) if isinstance(observe, tuple | list) else (observe,)
    order = sum(f is not None for f in functions) - 1
    if observe and len(observe) <= order:
        raise ModelError(f"observe must be g(t, x, theta) and its {order} derivatives; got {len(observe)} functions.")
    n = None if observe or callable(initial_state) else len(initial_state)
    data, at_s = observations_of(times_of(times, None)[0], y, errors, places.get(of_errors or ""), n)
    laws, own = priors_of(prior, parameters, places)
    solution = ODESolution(*functions, parameters=names, initial_state=initial_state, times=times, name=name, **solver)
    of = Posterior(
        solution, observe[: solution.highest + 1], data.y.shape[1], errors, Roles(theta, at_s, laws), own, parameters
    )
    labels = {} if states is None else {"state": list(states)}
    whole = not np.isnan(data.y).any()
    named = dict(prior) if isinstance(prior, Mapping) else {}
    options = {
        **options,
        "name": name,
        "dims": {"y": ("time", "state") if whole else ("observation",)},
        "coords": {"time": data.times, **labels} if whole else {},
        "generated": generated_by(of, data, named),
    }
    model = ODEModel(of, data, named, options)
    check_derivatives(model)
    return model


def check_derivatives(model: ODEModel) -> None:
    """Raise GradientError if a user's function is not the derivative of the previous one, near the start."""
    of, solution = model.of, model.solution
    if callable(model.initial):
        values = draw_prior(np.random.default_rng(0), model._given[2], model.parameters)
    else:
        values = model.constrain(np.zeros(model.dim) if model.initial is None else model.initial)
    x = np.concatenate([np.ravel(values[name]) for name in of.parameters.supports])
    theta = x[of.roles.theta]
    for shift in (1.0, 1.05, 0.9):
        state = solution.initial_unknowns(shift * theta, 0)[: solution.n]
        z, t = np.concatenate([shift * state, shift * theta]), solution.start_time
        check_function(solution.functions, t, z, solution.n, solution.n, model.name)
        if of.observe:
            what = tuple(f"{key} of observe" for key in KEYS)
            check_function(of.observe, t, z, of.columns, solution.n, model.name, what)
        for time, functions in solution.changes:
            what = tuple(f"{key} of the event at {time:g}" for key in KEYS)
            check_function(functions, time, z, solution.n, solution.n, model.name, what)


def observations_of(
    times: ArrayLike, y: ArrayLike, law: ErrorLaw, places: np.ndarray | None, n: int | None
) -> tuple[Observations, np.ndarray]:
    """Return the data and the index of s of each column. Raises ShapeError or ValueError."""
    times, y = np.array(array_of_numbers("times", times)), np.array(array_of_numbers("y", y))
    if y.ndim != 2 or len(y) != len(times) or (n is not None and y.shape[1] != n):
        raise ShapeError(
            f"y must have the shape ({len(times)}, {'number of states' if n is None else n}); got {y.shape}."
        )
    there = y[~np.isnan(y)]
    if np.isinf(y).any() or not there.size:
        raise ValueError("y must be finite, with NaN for missing observations; got infinite values or no observation.")
    if (law.support == "positive" and not (there > 0).all()) or (
        law.support == "counts" and not ((there >= 0) & (there == np.round(there))).all()
    ):
        raise ValueError(f"y must be {law.support.replace('counts', 'non-negative integers')} for {law.name} errors.")
    k = y.shape[1]
    if places is not None:
        if len(places) not in (1, k):
            raise ShapeError(
                f"errors: {law.parameter} must have 1 entry or {k}, one per column of y; got {len(places)}."
            )
        return Observations(times, y, np.ones(y.shape)), np.broadcast_to(places, (k,)).astype(np.int64)
    s = np.array(array_of_numbers("errors", law.parameter))
    try:
        s = np.broadcast_to(s, y.shape).copy()
    except ValueError:
        raise ShapeError(f"errors must broadcast to the shape {y.shape} of y; got {s.shape}.") from None
    if not (s[~np.isnan(y)] > 0).all() or not np.isfinite(s[~np.isnan(y)]).all():
        raise ValueError(f"errors: the scale of {law.name} must be positive and finite; got {law.parameter!r}.")
    return Observations(times, y, s), np.full(k, -1, dtype=np.int64)


def priors_of(
    prior: Mapping[str, Prior] | Own | None, parameters: Coordinates, places: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, Own | None]:
    """Return the table of priors, a row per value, and the user's own prior. Raises ModelError."""
    laws = np.zeros((parameters.count, 4))
    laws[:, 0] = FLAT
    if isinstance(prior, Own):
        return laws, prior
    if not isinstance(prior, Mapping):
        raise ModelError(
            "prior must be a dictionary of distributions of refhmc.models.priors by parameter, or priors.Own(...)."
        )
    missing = [name for name in parameters.supports if name not in prior]
    unknown = [name for name in prior if name not in parameters.supports]
    if missing or unknown:
        raise ModelError(
            f"prior must have a distribution such as priors.Normal(0, 1) for each parameter; none for {', '.join(missing)}."
            if missing
            else f"prior must be given by names of parameters ({', '.join(parameters.supports)}); got {unknown[0]!r}."
        )
    for name, law in prior.items():
        if not isinstance(law, Prior):
            raise ModelError(f"prior of {name} must be a distribution of refhmc.models.priors; got {law!r}.")
        laws[places[name]] = law[:4]
    return laws, None

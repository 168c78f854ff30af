"""The posterior of an ODE whose parameters have names and supports, with any prior.

:mod:`refhmc.models.ode_posterior` has the posterior of the values, and :mod:`refhmc.numerics.constraining` transforms
everything from the values to the coordinates. All functions are compiled, so that chains run without the GIL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike

from refhmc.errors import EvaluationError, ModelError, ShapeError
from refhmc.models.base import Model
from refhmc.models.binding.adapters import contract
from refhmc.models.binding.functions import Functions
from refhmc.models.error_laws import ErrorLaw
from refhmc.models.generated import GeneratedQuantities
from refhmc.models.ode import IN_PYTHON, check_derivatives
from refhmc.models.ode_posterior import (
    SCRATCH,
    Posterior,
    compiled,
    functions_of,
    observations_of,
    scale_of,
    way_of,
)
from refhmc.models.ode_solution import NO_THIRD, ODESolution, make_along
from refhmc.models.priors import FLAT, Own, Prior
from refhmc.models.sensitivities import work_for
from refhmc.parameters.coordinates import Coordinates
from refhmc.parameters.model import OfValues, in_coordinates

STARTS, ITERATIONS = 6, 40  # ascents from the prior, and their iterations at most


class Observations(NamedTuple):
    """The data of the model: times (T,), y (T, K), and numbers s (T, K)."""

    times: np.ndarray
    y: np.ndarray
    s: np.ndarray


def functions_of_values(of: Posterior) -> OfValues:
    """Return the functions of the values in the form from which those of the coordinates are made."""
    wrap, count, f = way_of(of).wrap, len(of.priors), functions_of(of)
    both = f["value_and_gradient"]

    def contraction_of(tensor: Callable | None) -> Callable | None:
        if tensor is None:
            return None

        def contraction(x: np.ndarray, data: Observations, M: np.ndarray, out: np.ndarray) -> None:
            T = np.zeros((count, count, count))
            tensor(x, data, T)
            contract(M, T, out)

        return wrap(contraction)

    return OfValues(
        wrap(lambda rows: rows[0]),
        f["log_density"],
        wrap(lambda rows, again, data, out: both(rows[0], data, out)),
        f["gradient"],
        f["hessian"],
        contraction_of(f["third_derivative"]),
        f["fisher"],
        contraction_of(f["fisher_derivative"]),
    )


# --------------------------------------------------------------------------------------------------------- the model


class ODEModel(Model):
    """A model created by :func:`refhmc.models.ODE`, with attributes ``solution`` (:class:`ODESolution`) and ``parameters``."""

    def __init__(
        self, of: Posterior, parameters: Coordinates, data: Observations, priors: Mapping[str, Prior], options: dict
    ) -> None:
        self.of, self.solution, self.parameters = of, of.solution, parameters
        self._given = (of, parameters, data, priors, options)
        functions = functions_of_values(of)
        texts = in_coordinates(functions, parameters)  # Python around compiled functions
        self._to_compile = Functions(**in_coordinates(functions, parameters))
        given: dict[str, Any] = dict(options)
        if isinstance(given.get("initial"), Mapping):
            given["initial"] = parameters.unconstrain(given["initial"], "initial")
        elif given.get("initial") is None and priors and all(each.kind != FLAT for each in priors.values()):
            given["initial"] = self.draw_start
        in_python = "its ODE is solved by SciPy" if of.solution.in_python else IN_PYTHON
        given["dims"] = {**parameters.dims, **given.get("dims", {})}
        super().__init__(
            parameters.dim,
            **texts,
            data=data,
            names=parameters.names,
            constrain=parameters.constrain,
            parents=parameters.parents_of_coordinates,
            in_python=in_python if of.in_python else "",
            noise=1000 * of.solution.tolerance * data.y.size,
            absent={"third_derivative": NO_THIRD, "hessian_contraction": NO_THIRD},
            **given,
        )
        self.unconstrain = parameters.unconstrain

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
        priors = self._given[3]

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
        x = in_one_row(self.constrain(q), self.parameters)
        try:
            self.solution.solve(x[self.of.theta], 1)
        except EvaluationError as error:
            return f": {error}"
        return ""


def in_one_row(values: Mapping[str, np.ndarray], parameters: Coordinates) -> np.ndarray:
    return np.concatenate([np.ravel(values[name]) for name in parameters.supports]).astype(float)


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


def means_and_s(x: np.ndarray, of: Posterior, data: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Return m and s of all observations (T, K) at the values x, NaN if the ODE has no solution."""
    shape = data.y.shape
    try:
        path = of.solution.path(x[of.theta], 0)
    except EvaluationError:
        return np.full(shape, np.nan), np.ones(shape)
    means = path
    if of.observe:
        along = make_along(of.observe[:1], of.columns, of.solution.n, of.solution.p, False)
        means = np.empty(shape)
        for row, u, t in zip(means, path, data.times, strict=True):
            work = work_for(u, x[of.theta], of.solution.n, of.columns)
            along(u, t, work)
            row[:] = work[: of.columns]
    s = np.where(of.s < 0, data.s, x[of.s])
    return means, s


def seen(values: np.ndarray, data: Observations) -> np.ndarray:
    """Return the values unchanged if everything is observed, and otherwise the observed ones in one row."""
    there = ~np.isnan(data.y)
    return values if there.all() else values[there]


def log_likelihood(
    values: Mapping[str, np.ndarray], of: Posterior, parameters: Coordinates, data: Observations
) -> dict[str, np.ndarray]:
    density, room = compiled(of.errors.derivatives), np.empty(SCRATCH)
    found = np.full(data.y.shape, np.nan)
    means, s = means_and_s(in_one_row(values, parameters), of, data)
    for at in zip(*np.nonzero(~np.isnan(data.y)), strict=True):
        density(data.y[at], means[at], s[at], of.errors.constant, room)
        found[at] = room[0]
    return {"y": seen(found, data)}


def posterior_predictive(
    values: Mapping[str, np.ndarray],
    rng: np.random.Generator,
    of: Posterior,
    parameters: Coordinates,
    data: Observations,
) -> dict[str, np.ndarray]:
    means, s = means_and_s(in_one_row(values, parameters), of, data)
    if np.isnan(means).any() or of.errors.draw is None:
        return {"y": seen(np.full(data.y.shape, np.nan), data)}
    return {"y": seen(np.asarray(of.errors.draw(rng, means, s, of.errors.constant), dtype=float), data)}


def generated_by(
    of: Posterior, parameters: Coordinates, data: Observations, priors: Mapping[str, Prior]
) -> GeneratedQuantities:
    """Return the generated groups of the model."""
    bound: dict[str, Any] = {"of": of, "parameters": parameters, "data": data}
    proper = bool(priors) and all(each.kind != FLAT for each in priors.values())
    return GeneratedQuantities(
        log_likelihood=functools.partial(log_likelihood, **bound),
        posterior_predictive=functools.partial(posterior_predictive, **bound) if of.errors.draw else None,
        prior=functools.partial(draw_prior, priors=priors, parameters=parameters) if proper else None,
        observed_data={"y": seen(data.y, data)},
    )


# ------------------------------------------------------------------------------------------------------ the arguments


def model_of(
    functions: tuple[Callable, ...],
    *,
    parameters: Coordinates,
    y: ArrayLike,
    errors: ErrorLaw,
    prior: Mapping[str, Prior] | Own | None,
    observe: Callable | tuple[Callable, ...] | list[Callable] | None,
    states: Sequence[str] | None,
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
    if wrong := [each for each in observe if not callable(each)]:
        raise ModelError(
            f"observe must be functions, g(t, x, theta) and its derivatives; got {wrong[0]!r}. To observe some of the "
            "states only, give y a column for each state, with NaN where a state is not observed."
        )
    order = sum(f is not None for f in functions) - 1
    if observe and len(observe) <= order:
        also = "derivative" if order == 1 else f"{order} derivatives"
        raise ModelError(f"observe must be g(t, x, theta) and its {also}; got {len(observe)} function(s).")
    table, own = priors_of(prior, parameters, places)
    solution = ODESolution(*functions, parameters=names, **solver)
    y = observations_of(solution.times, y, None if observe else solution.n)
    s, at_s = scales_of(errors, y, places.get(of_errors or ""))
    data, in_python = Observations(solution.times, y, s), solution.in_python or solution.solver == "auto"
    observe = observe[: solution.highest + 1]
    of = Posterior(solution, observe, y.shape[1], errors, theta, at_s, table, own, in_python)
    labels = {} if states is None else {"state": list(states)}
    whole = not np.isnan(y).any()
    named = dict(prior) if isinstance(prior, Mapping) else {}
    options = {
        **options,
        "name": solution.name,
        "dims": {"y": ("time", "state") if whole else ("observation",)},
        "coords": {"time": data.times, **labels} if whole else {},
        "generated": generated_by(of, parameters, data, named),
    }
    model = ODEModel(of, parameters, data, named, options)
    if callable(model.initial):
        values = draw_prior(np.random.default_rng(0), named, parameters)
    else:
        values = model.constrain(np.zeros(model.dim) if model.initial is None else model.initial)
    check_derivatives(of, in_one_row(values, parameters)[theta], lambda z, shift: (1 + shift) * z)
    return model


def scales_of(errors: ErrorLaw, y: np.ndarray, places: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers s (T, K) and the index of s of each column, -1 for a number. Raises ShapeError or ValueError."""
    there, k = y[~np.isnan(y)], y.shape[1]
    if (errors.support == "positive" and not (there > 0).all()) or (
        errors.support == "counts" and not ((there >= 0) & (there == np.round(there))).all()
    ):
        values = errors.support.replace("counts", "non-negative integers")
        raise ValueError(f"y must be {values} for {errors.name} errors.")
    if places is None:
        return scale_of(f"errors: the scale of {errors.name}", errors.parameter, y), np.full(k, -1)
    if len(places) not in (1, k):
        raise ShapeError(
            f"errors: {errors.parameter} must have 1 entry or {k}, one per column of y; got {len(places)}."
        )
    return np.ones(y.shape), np.broadcast_to(places, (k,)).astype(np.int64)


def priors_of(
    prior: Mapping[str, Prior] | Own | None, parameters: Coordinates, places: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, Own | None]:
    """Return the table of priors, a row per value, and the user's own prior. Raises ModelError."""
    table = np.zeros((parameters.count, 4))
    table[:, 0] = FLAT
    if isinstance(prior, Own):
        return table, prior
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
    for name, each in prior.items():
        if not isinstance(each, Prior):
            raise ModelError(f"prior of {name} must be a distribution of refhmc.models.priors; got {each!r}.")
        table[places[name]] = each[:4]
    return table, None

"""A PyMC model, its derivatives by PyTensor, compiled to Numba and called by pointer, without Python in between.

The density of the unconstrained values and its derivatives are :mod:`refhmc.derived.pytensor_graphs`.

What follows from draws (:mod:`refhmc.models.generated`) is evaluated by PyTensor too, of many draws at a time: the log
likelihood of each observation, predictive draws and the prior.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from refhmc.core.binding import Deferred, first_words
from refhmc.derived.model import DerivedModel
from refhmc.derived.pytensor_graphs import Graphs, density_of, gradient_of, is_random, with_constants
from refhmc.errors import ModelError, ModelWarning
from refhmc.models.generated import GeneratedQuantities

OF_DIFFERENCES = "by differences of the Hessian, to some 1e-12 of it where it changes over lengths of 1"


def from_pymc(model: Any = None, *, differences: bool = False) -> DerivedModel:
    """The posterior of a PyMC model with continuous free variables, ready for every kernel and metric but Fisher's.

    ``model``: a ``pymc.Model``; without one, that of the ``with`` block around the call. Its data and lengths of dimensions are
    taken as they are now, and those of a copy in another process are the same. The variables of the result are PyMC's: free
    ones and deterministics, with their dims and coords. Chains begin within 1 of PyMC's initial point in each coordinate,
    uniformly, as in PyMC.

    ``differences``: the contraction ``hessian_contraction``, which SoftAbs needs, by differences of the Hessian in place of PyTensor's third
    derivatives, which take minutes or more to compile where the density factors a matrix (LKJ, Gaussian processes). It then
    stands in the model's ``approximate`` and in a result's attributes.

    A group of draws is left out, with a ModelWarning, where PyMC cannot draw one of its variables: priors of a ``Flat``,
    predictions of a ``CustomDist`` without ``random``.

    Raises ImportError without PyMC, ModelError for free variables that are discrete, naming them, or for none at all.
    """
    import pymc as pm

    given = pm.modelcontext(model)
    return posterior_of(given, given.coords, differences)


def as_it_was(
    given: Any, shared: list[tuple[Any, np.ndarray]], coords: Mapping[str, Any], differences: bool
) -> DerivedModel:
    """The posterior with these values of ``shared`` variables, which afterwards have those that they have now."""
    now = [(variable, variable.get_value()) for variable, _ in shared]
    try:
        set_values(shared)
        with warnings.catch_warnings(action="ignore", category=ModelWarning):  # the first of them has warned
            return posterior_of(given, coords, differences)
    finally:
        set_values(now)


def set_values(shared: list[tuple[Any, np.ndarray]]) -> None:
    for variable, value in shared:
        variable.set_value(value)


def posterior_of(given: Any, coords: Mapping[str, Any], differences: bool) -> DerivedModel:
    discrete = [rv.name for rv in given.free_RVs if rv.dtype.startswith(("int", "uint", "bool"))]
    if discrete:
        raise ModelError(
            f"model: from_pymc takes continuous free variables, {', '.join(discrete)} are discrete. Sum them out of the "
            "density (pymc_extras.marginalize), or write the model as a refhmc.Model with `discontinuous`."
        )
    if not given.free_RVs:
        raise ModelError("model: the PyMC model has no free variables; there is nothing to sample")
    graphs = Graphs(given)
    value_and_gradient = graphs.value_and_gradient()
    constrain, data = constrained(graphs), data_of(given)
    dims = dims_of(given, data)
    made = DerivedModel(
        graphs.dim,
        density_of(value_and_gradient),
        gradient_of(value_and_gradient),
        Deferred(graphs.hessian),
        hessian_contraction=Deferred(graphs.contraction_by_differences if differences else graphs.hessian_contraction),
        names=graphs.names,
        constrain=constrain,
        value_and_gradient=value_and_gradient,
        initial=functools.partial(near, graphs.initial),
        name=given.name or "PyMC model",
        dims=dims,
        coords=coords_of(coords, dims),
        generated=generated(given, data, lambda: constrain(graphs.initial)),
        known_by=graphs.known_by | ({"its trace": OF_DIFFERENCES} if differences else {}),
        again=(as_it_was, (given, [(each, each.get_value()) for each in graphs.shared], dict(coords), differences)),
    )
    if differences:
        made.approximate = {"hessian_contraction": OF_DIFFERENCES}
    return made


def dims_of(model: Any, data: Mapping[str, Mapping]) -> dict[str, tuple]:
    """The axes of what is in the result; observed ``pm.Data`` and potentials are not, by their own names."""
    variables = {each.name for each in (*model.unobserved_RVs, *model.observed_RVs)}.union(*data.values())
    named = model.named_vars_to_dims.items()
    return {name: axes for name, axes in named if name in variables and None not in axes}


def coords_of(coords: Mapping[str, Any], dims: Mapping[str, tuple]) -> dict[str, list]:
    """The labels of these axes."""
    axes = {axis for each in dims.values() for axis in each}
    return {axis: list(labels) for axis, labels in coords.items() if axis in axes and labels is not None}


def data_of(model: Any) -> dict[str, Any]:
    """The groups ``observed_data`` and ``constant_data``."""
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    used = {id(value) for value in observed.values()}
    others = {each.name: each for each in model.data_vars if id(each) not in used}
    return {
        "observed_data": {name: np.asarray(value.eval()) for name, value in observed.items()},
        "constant_data": {name: np.asarray(value.eval()) for name, value in others.items()},
    }


def generated(model: Any, data: dict[str, Any], values: Callable[[], dict]) -> GeneratedQuantities:
    """The groups that follow from the draws of a PyMC model, of many draws at a time. ``values()``: those of one draw."""
    from pymc.logprob.basic import conditional_logp
    from pytensor.graph.replace import clone_replace

    free, observed = {rv.name: rv for rv in model.free_RVs}, {rv.name: rv for rv in model.observed_RVs}
    prior = OfDraws({}, {rv.name: rv for rv in model.unobserved_RVs})
    draw_prior = (lambda rng: prior({}, rng)) if can_draw(prior, dict, "prior") else None
    if not observed:
        return GeneratedQuantities(prior=draw_prior, **data)
    # Plain variables in the place of free ones: the density's graph would copy random ones.
    given = {rv: rv.type(name) for name, rv in free.items()}
    points = {name: model.rvs_to_values[rv] for name, rv in observed.items()}
    of_given = clone_replace(list(observed.values()), given, rebuild_strict=False)
    terms = conditional_logp(dict(zip(of_given, points.values(), strict=True)))
    inputs = {name: given[rv] for name, rv in free.items()}
    log_likelihood = OfDraws(inputs, {name: terms[value] for name, value in points.items()})
    predictive = OfDraws(free, observed)
    can_predict = can_draw(predictive, values, "posterior_predictive")
    return GeneratedQuantities(
        log_likelihood=lambda values: log_likelihood(values),
        posterior_predictive=(lambda values, rng: predictive(values, rng)) if can_predict else None,
        prior=draw_prior,
        **data,
    )


class OfDraws:
    """PyTensor's graphs as a function of the values of one draw, or of many with one more axis in front."""

    def __init__(self, inputs: dict[str, Any], graphs: dict[str, Any]) -> None:
        from pytensor.graph.replace import clone_replace

        self.names, self.inputs = list(graphs), {name: variable.ndim for name, variable in inputs.items()}
        self.variables = [variable.type(name) for name, variable in inputs.items()]  # in the place of random ones
        clones = clone_replace(list(graphs.values()), dict(zip(inputs.values(), self.variables, strict=True)))
        self.graphs = with_constants(clones)

    @functools.cached_property
    def function(self) -> Any:
        """Compiled when it is first called for."""
        from pymc.pytensorf import compile as compile_random
        from pytensor.graph.replace import vectorize_graph

        many = {variable: add_axis(variable) for variable in self.variables}
        outputs = vectorize_graph(self.graphs, many) if many else self.graphs
        return compile_random(list(many.values()), outputs, mode="FAST_COMPILE", on_unused_input="ignore")

    def __call__(self, values: dict, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        given = {name: np.asarray(values[name]) for name in self.inputs}
        one = all(value.ndim == self.inputs[name] for name, value in given.items())
        if rng is not None:
            streams = [each for each in self.function.get_shared() if is_random(each)]
            for stream, seed in zip(streams, rng.integers(2**63, size=len(streams)), strict=True):
                stream.set_value(np.random.default_rng(seed), borrow=True)
        found = self.function(*(value[None] if one else value for value in given.values()))
        if not given:
            return dict(zip(self.names, found, strict=True))
        n = 1 if one else len(next(iter(given.values())))
        each = [
            value if value.ndim > graph.ndim else np.broadcast_to(value, (n, *value.shape))  # alike for all draws
            for value, graph in zip(found, self.graphs, strict=True)
        ]
        return {name: value[0] if one else value for name, value in zip(self.names, each, strict=True)}

    def refused(self, values: Callable[[], dict]) -> NotImplementedError | None:
        """What PyMC says of a variable that it cannot draw, the others being the ``values``."""
        try:
            self(values(), np.random.default_rng(1))
        except NotImplementedError as error:
            return error
        except Exception:  # the user's own: told where the group is made
            return None
        return None

    def one_by_one(self) -> Iterator[tuple[str, OfDraws]]:
        for name, graph in zip(self.names, self.graphs, strict=True):
            one = copy.copy(self)
            vars(one).pop("function", None)
            one.names, one.graphs = [name], [graph]
            yield name, one


def can_draw(draws: OfDraws, values: Callable[[], dict], group: str) -> bool:
    """Whether PyMC can draw all variables of the group; if not, a warning names the first that it cannot."""
    error = draws.refused(values)
    if error is None:
        return True
    why = first_words(error).split(". ")[0]
    name = next((name for name, one in draws.one_by_one() if one.refused(values)), "a variable")
    warnings.warn(
        f"from_pymc leaves out the group {group}: PyMC cannot draw {name} ({why}). The "
        "posterior does not need it. For the group, use a law that PyMC can draw from, or give a CustomDist `random`.",
        ModelWarning,
        stacklevel=5,
    )
    return False


def add_axis(variable: Any) -> Any:
    import pytensor.tensor as pt

    return pt.tensor(variable.name, dtype=variable.dtype, shape=(None, *variable.type.shape))


def constrained(graphs: Graphs) -> Callable:
    """q (..., d) to the values of free variables and deterministics."""
    inputs = {x.name: x for x in graphs.x}
    of_draws = OfDraws(inputs, dict(zip(graphs.variables, graphs.unobserved, strict=True)))

    def constrain(q: np.ndarray) -> dict[str, np.ndarray]:
        values = graphs.layout.split(np.reshape(q, (-1, q.shape[-1])))
        found = of_draws(dict(zip(inputs, values, strict=True)))
        return {name: value.reshape(q.shape[:-1] + value.shape[1:]) for name, value in found.items()}

    return constrain


def near(start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """PyMC's initial point, moved by less than 1 in each coordinate, (d,)."""
    return start + rng.uniform(-1.0, 1.0, start.shape)

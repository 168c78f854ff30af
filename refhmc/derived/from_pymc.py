"""A PyMC model with derivatives by PyTensor, compiled to Numba and called by pointer, without Python in between.

:mod:`refhmc.derived.pytensor_graphs` has the density of the unconstrained values and its derivatives.

PyTensor also evaluates what follows from draws (:mod:`refhmc.models.generated`), for many draws at a time: the log
likelihood of each observation, predictive draws and prior draws.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core.hierarchy import Parents, parents_of_variables, variable_of
from refhmc.derived.model import DerivedModel
from refhmc.derived.pytensor_graphs import Graphs, density_of, gradient_of, is_random, with_constants
from refhmc.errors import ModelError, ModelWarning, _see
from refhmc.models.binding.functions import Deferred
from refhmc.models.binding.returned import first_words
from refhmc.models.generated import GeneratedQuantities

if TYPE_CHECKING:
    import pymc as pm
    from pytensor.compile.function.types import Function
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.basic import Variable

OF_DIFFERENCES = "by differences of the Hessian, with a relative error of about 1e-12 if it varies on scales of 1"


def from_pymc(model: pm.Model | None = None, *, differences: bool = False) -> DerivedModel:
    """Return the posterior of a PyMC model, for every kernel and metric except Fisher's.

    The variables of the result are PyMC's free variables and deterministics, with their dims and coords. Data and dimension
    lengths keep their values at the time of this call, also in other processes. Chains start within 1 of PyMC's initial
    point in each coordinate, uniformly, as in PyMC. A group of draws is left out, with a ModelWarning, if PyMC cannot draw
    one of its variables: the prior of a ``Flat``, predictions of a ``CustomDist`` without ``random``.

    The model's ``parents`` are the free variables on which the distribution of each free variable depends, directly or
    through deterministics. Potentials do not count.

    Parameters
    ----------
    model : pymc.Model, optional
        The model, with continuous free variables. Defaults to that of the enclosing ``with`` block.
    differences : bool, default False
        Compute ``hessian_contraction``, which SoftAbs requires, by differences of the Hessian. PyTensor's third derivatives
        take minutes or more to compile if the density factors a matrix (LKJ, Gaussian processes). The model's
        ``approximate`` and a result's attributes then list the accuracy.

    Returns
    -------
    Model
        The posterior.

    Raises
    ------
    ImportError
        If PyMC is not installed.
    refhmc.errors.ModelError
        If a free variable is discrete, or if there is none.

    Examples
    --------
    >>> import pymc as pm, refhmc  # doctest: +SKIP
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1, observed=[0.1, 0.5])
    >>> result = refhmc.sample(refhmc.from_pymc(model))  # doctest: +SKIP
    """
    import pymc as pm

    given = pm.modelcontext(model)
    return posterior_of(given, given.coords, differences)


def as_it_was(
    given: pm.Model, shared: list[tuple[SharedVariable, np.ndarray]], coords: Mapping[str, Sequence], differences: bool
) -> DerivedModel:
    """Return the posterior with these values of the shared variables, which are restored afterwards."""
    now = [(variable, variable.get_value()) for variable, _ in shared]
    try:
        set_values(shared)
        with warnings.catch_warnings(action="ignore"):  # the first model has warned
            return posterior_of(given, coords, differences)
    finally:
        set_values(now)


def set_values(shared: list[tuple[SharedVariable, np.ndarray]]) -> None:
    for variable, value in shared:
        variable.set_value(value)


def posterior_of(given: pm.Model, coords: Mapping[str, Sequence], differences: bool) -> DerivedModel:
    discrete = [rv.name for rv in given.free_RVs if rv.dtype.startswith(("int", "uint", "bool"))]
    if discrete:
        raise ModelError(
            f"model must have continuous free variables only; {', '.join(discrete)} are discrete. Sum them out of the "
            "density (pymc_extras.marginalize), or write the model as a refhmc.Model with `discontinuous`."
        )
    if not given.free_RVs:
        raise ModelError("model must have free variables to sample; got a PyMC model with no free variables.")
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
        parents=parents_in(given, graphs.names),
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


def parents_in(model: pm.Model, coordinates: Sequence[str]) -> Parents | None:
    """Return the free variables on which the distribution of each free variable depends, by their names in q.

    PyTensor's graph is followed from the parameters of a distribution upward to the next free or observed variables.
    """
    from pytensor.graph.traversal import walk
    from pytensor.tensor.shape import Shape, Shape_i

    variables = {*map(variable_of, coordinates)}  # an empty variable has no coordinates
    values = {rv: model.rvs_to_values[rv].name for rv in model.free_RVs}
    names = {rv: name for rv, name in values.items() if variable_of(name) in variables}
    ends = {*model.basic_RVs}

    def inputs(variable: Variable) -> list[Variable]:
        of_shape = variable.owner is not None and isinstance(variable.owner.op, Shape | Shape_i)
        return [] if variable in ends or variable.owner is None or of_shape else variable.owner.inputs

    found = {}
    for rv, name in names.items():
        reached = set(walk(rv.owner.inputs, inputs))
        found[name] = [names[each] for each in names if each in reached]
    return parents_of_variables(found)


def dims_of(model: pm.Model, data: Mapping[str, Mapping]) -> dict[str, tuple]:
    """Return the axes of the variables in the result; observed ``pm.Data`` and potentials are not among them."""
    variables = {each.name for each in (*model.unobserved_RVs, *model.observed_RVs)}.union(*data.values())
    named = model.named_vars_to_dims.items()
    return {name: axes for name, axes in named if name in variables and None not in axes}


def coords_of(coords: Mapping[str, Sequence], dims: Mapping[str, tuple]) -> dict[str, list]:
    """Return the labels of these axes."""
    axes = {axis for each in dims.values() for axis in each}
    return {axis: list(labels) for axis, labels in coords.items() if axis in axes and labels is not None}


def data_of(model: pm.Model) -> dict[str, Any]:
    """Return the groups ``observed_data`` and ``constant_data``."""
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    used = {id(value) for value in observed.values()}
    others = {each.name: each for each in model.data_vars if id(each) not in used}
    return {
        "observed_data": {name: np.asarray(value.eval()) for name, value in observed.items()},
        "constant_data": {name: np.asarray(value.eval()) for name, value in others.items()},
    }


def generated(model: pm.Model, data: dict[str, Any], values: Callable[[], dict]) -> GeneratedQuantities:
    """Return the groups that follow from draws, for many draws at a time; `values` returns the values of one draw."""
    from pymc.logprob.basic import conditional_logp
    from pytensor.graph.replace import clone_replace

    free, observed = {rv.name: rv for rv in model.free_RVs}, {rv.name: rv for rv in model.observed_RVs}
    prior = OfDraws({}, {rv.name: rv for rv in model.unobserved_RVs})
    draw_prior = (lambda rng: prior({}, rng)) if can_draw(prior, dict, "prior") else None
    if not observed:
        return GeneratedQuantities(prior=draw_prior, **data)
    # Replace free variables by plain ones: the graph of the density would copy random variables.
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
    """PyTensor graphs as a function of the values of one draw, or of many with an additional axis in front."""

    def __init__(self, inputs: dict[str, Variable], graphs: dict[str, Variable]) -> None:
        from pytensor.graph.replace import clone_replace

        self.names, self.inputs = list(graphs), {name: variable.ndim for name, variable in inputs.items()}
        self.variables = [variable.type(name) for name, variable in inputs.items()]  # instead of random ones
        clones = clone_replace(list(graphs.values()), dict(zip(inputs.values(), self.variables, strict=True)))
        self.graphs = with_constants(clones)

    @functools.cached_property
    def function(self) -> Function:
        """The function, compiled at its first use."""
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
            value if value.ndim > graph.ndim else np.broadcast_to(value, (n, *value.shape))  # the same for all draws
            for value, graph in zip(found, self.graphs, strict=True)
        ]
        return {name: value[0] if one else value for name, value in zip(self.names, each, strict=True)}

    def refused(self, values: Callable[[], dict]) -> NotImplementedError | None:
        """Return PyMC's error for a variable that it cannot draw given the `values`, or None."""
        try:
            self(values(), np.random.default_rng(1))
        except NotImplementedError as error:
            return error
        except Exception:  # an error of the user's code is raised when the group is computed
            return None
        return None

    def one_by_one(self) -> Iterator[tuple[str, OfDraws]]:
        for name, graph in zip(self.names, self.graphs, strict=True):
            one = copy.copy(self)
            vars(one).pop("function", None)
            one.names, one.graphs = [name], [graph]
            yield name, one


def can_draw(draws: OfDraws, values: Callable[[], dict], group: str) -> bool:
    """Return whether PyMC can draw all variables of the group; otherwise warn with the first that it cannot."""
    error = draws.refused(values)
    if error is None:
        return True
    why = first_words(error).split(". ")[0]
    name = next((name for name, one in draws.one_by_one() if one.refused(values)), "a variable")
    warnings.warn(
        f"from_pymc leaves out the group {group}, because PyMC cannot draw {name} ({why}). The posterior does not need "
        "this group. To include it, use a distribution that PyMC can draw from, or give the CustomDist a `random` function. "
        f"{_see('missing-groups')}",
        ModelWarning,
        stacklevel=5,
    )
    return False


def add_axis(variable: Variable) -> Variable:
    import pytensor.tensor as pt

    return pt.tensor(variable.name, dtype=variable.dtype, shape=(None, *variable.type.shape))


def constrained(graphs: Graphs) -> Callable:
    """Return the function from q (..., d) to the values of free variables and deterministics."""
    inputs = {x.name: x for x in graphs.x}
    of_draws = OfDraws(inputs, dict(zip(graphs.variables, graphs.unobserved, strict=True)))

    def constrain(q: np.ndarray) -> dict[str, np.ndarray]:
        values = graphs.layout.split(np.reshape(q, (-1, q.shape[-1])))
        found = of_draws(dict(zip(inputs, values, strict=True)))
        return {name: value.reshape(q.shape[:-1] + value.shape[1:]) for name, value in found.items()}

    return constrain


def near(start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return PyMC's initial point (d,), moved by less than 1 in each coordinate."""
    return start + rng.uniform(-1.0, 1.0, start.shape)

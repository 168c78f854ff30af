"""A PyMC model, its derivatives by PyTensor, compiled to Numba and called by pointer, without Python in between.

Let L(q) be PyMC's log density of the unconstrained values, with the log-Jacobians of its transforms. PyTensor differentiates
once backwards and then along directions:

    g(q) = grad L        h(q, v) = dg(q + s v)/ds = H v        t(q, u, v) = dh(q + s u, v)/ds = D^3 L [u, v, .]     at s = 0

The Hessian's rows are h(q, e_i), and the contraction is trace(M)_k = sum_ij M_ij d H_ij / dq_k = sum_i t(q, M_i, e_i)_k,
with M_i the i-th row of M: d evaluations of one graph each. (Written out row by row the graphs grow with d, and eight schools
take minutes to compile.) h and t are compiled when a metric first reads them.

What is compiled is kept for other processes (:mod:`refhmc.core.compile_cache`) under a digest of the graph as PyTensor has
rewritten it, constants and all, where PyTensor has a name for it, too; PyTensor keeps the code of each operation. Not kept is a
graph with operations of the user's own, with ones that run as Python (LAPACK's among them), or with an array of a megabyte.

What follows from draws (:mod:`refhmc.models.generated`) is evaluated by PyTensor too, of many draws at a time: the log
likelihood of each observation, predictive draws and the prior.
"""

from __future__ import annotations

import copy
import functools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from refhmc.core.binding import Deferred, copy_array, first_words, kept
from refhmc.core.compiled import jit_of_user
from refhmc.core.fingerprint import sha256
from refhmc.core.identity import identity_of_text
from refhmc.derived.model import DerivedModel
from refhmc.errors import ModelError, ModelWarning
from refhmc.models.generated import Generated

UNCHECKED = "local_remove_check_parameter"  # PyMC's rewrite


def from_pymc(model: Any = None) -> DerivedModel:
    """The posterior of a PyMC model with continuous free variables, ready for every kernel and metric but Fisher's.

    ``model``: a ``pymc.Model``; without one, that of the ``with`` block around the call. Its data and lengths of dimensions are
    taken as they are now, and those of a copy in another process are the same. The variables of the result are PyMC's: free
    ones and deterministics, with their dims and coords. Chains begin within 1 of PyMC's initial point in each coordinate,
    uniformly, as in PyMC.

    A group of draws is left out, with a ModelWarning, where PyMC cannot draw one of its variables: priors of a ``Flat``,
    predictions of a ``CustomDist`` without ``random``.

    Raises ImportError without PyMC, ModelError for free variables that are discrete, naming them, or for none at all.
    """
    import pymc as pm

    given = pm.modelcontext(model)
    return posterior_of(given, given.coords)


def as_it_was(given: Any, shared: list[tuple[Any, np.ndarray]], coords: Mapping[str, Any]) -> DerivedModel:
    """The posterior with these values of ``shared`` variables, which afterwards have those that they have now."""
    now = [(variable, variable.get_value()) for variable, _ in shared]
    try:
        set_values(shared)
        with warnings.catch_warnings(action="ignore", category=ModelWarning):  # the first of them has warned
            return posterior_of(given, coords)
    finally:
        set_values(now)


def set_values(shared: list[tuple[Any, np.ndarray]]) -> None:
    for variable, value in shared:
        variable.set_value(value)


def posterior_of(given: Any, coords: Mapping[str, Any]) -> DerivedModel:
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
    constrain, data = graphs.constrain(), data_of(given)
    dims = dims_of(given, data)
    return DerivedModel(
        graphs.dim,
        density_of(value_and_gradient),
        gradient_of(value_and_gradient),
        Deferred(graphs.hessian),
        trace=Deferred(graphs.trace),
        names=graphs.names,
        constrain=constrain,
        value_and_gradient=value_and_gradient,
        initial=functools.partial(near, graphs.initial),
        name=given.name or "PyMC model",
        dims=dims,
        coords=coords_of(coords, dims),
        generated=generated(given, data, lambda: constrain(graphs.initial)),
        known_by=graphs.known_by,
        again=(as_it_was, (given, [(each, each.get_value()) for each in graphs.shared], dict(coords))),
    )


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


def generated(model: Any, data: dict[str, Any], values: Callable[[], dict]) -> Generated:
    """The groups that follow from the draws of a PyMC model, of many draws at a time. ``values()``: those of one draw."""
    from pymc.logprob.basic import conditional_logp
    from pytensor.graph.replace import clone_replace

    free, observed = {rv.name: rv for rv in model.free_RVs}, {rv.name: rv for rv in model.observed_RVs}
    prior = OfDraws({}, {rv.name: rv for rv in model.unobserved_RVs})
    draw_prior = (lambda rng: prior({}, rng)) if can_draw(prior, dict, "prior") else None
    if not observed:
        return Generated(prior=draw_prior, **data)
    # Plain variables in the place of free ones: the density's graph would copy random ones.
    given = {rv: rv.type(name) for name, rv in free.items()}
    points = {name: model.rvs_to_values[rv] for name, rv in observed.items()}
    of_given = clone_replace(list(observed.values()), given, rebuild_strict=False)
    terms = conditional_logp(dict(zip(of_given, points.values(), strict=True)))
    inputs = {name: given[rv] for name, rv in free.items()}
    log_likelihood = OfDraws(inputs, {name: terms[value] for name, value in points.items()})
    predictive = OfDraws(free, observed)
    can_predict = can_draw(predictive, values, "posterior_predictive")
    return Generated(
        log_likelihood=lambda values: log_likelihood(values),
        posterior_predictive=(lambda values, rng: predictive(values, rng)) if can_predict else None,
        prior=draw_prior,
        **data,
    )


def with_constants(graphs: list) -> list:
    """The graphs with shared data and lengths of dimensions as they are now."""
    import pytensor.tensor as pt
    from pytensor.graph.replace import clone_replace

    now = {v: pt.constant(v.get_value(), name=v.name, dtype=v.dtype) for v in shared_in(graphs)}
    return clone_replace(graphs, now, rebuild_strict=False) if now else graphs


def shared_in(graphs: list) -> list:
    """Data and lengths of dimensions, which ``pm.set_data`` changes."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.traversal import ancestors

    return [v for v in ancestors(graphs) if isinstance(v, SharedVariable) and not is_random(v)]


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


def is_random(shared: Any) -> bool:
    from pytensor.tensor.random.type import RandomType

    return isinstance(shared.type, RandomType)


def near(start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """PyMC's initial point, moved by less than 1 in each coordinate, (d,)."""
    return start + rng.uniform(-1.0, 1.0, start.shape)


class OfBoth(Deferred):
    """A function made of a compiled ``value_and_gradient``: it is compiled by itself for compiled callers only; Python runs its
    text."""

    def __init__(self, text: Callable, value_and_gradient: Callable) -> None:
        super().__init__(lambda: kept(text, value_and_gradient))
        self.text = text

    def __call__(self, *arguments: Any) -> Any:
        return self.text(*arguments)


def density_of(value_and_gradient: Callable) -> OfBoth:
    return OfBoth(lambda q, data: value_and_gradient(q, data, np.empty(q.shape[0])), value_and_gradient)


def gradient_of(value_and_gradient: Callable) -> OfBoth:
    def gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        value_and_gradient(q, data, out)

    return OfBoth(gradient, value_and_gradient)


class Graphs:
    """L and its derivatives as PyTensor graphs of one vector q (d,), and what PyMC says of q's coordinates."""

    def __init__(self, model: Any) -> None:
        import pytensor
        from pymc.pytensorf import join_nonshared_inputs

        self.values = [model.rvs_to_values[rv] for rv in model.free_RVs]
        point = model.initial_point()
        self.start = {value.name: np.asarray(point[value.name], dtype=float) for value in self.values}
        self.variables = [rv.name for rv in model.unobserved_RVs]
        unobserved = model.replace_rvs_by_values(model.unobserved_RVs)
        of_values = [model.logp(), *unobserved]
        lengths = [each for each in model.dim_lengths.values() if each is not None]
        self.shared = shared_in(
            [*of_values, *model.basic_RVs, *model.rvs_to_values.values(), *model.data_vars, *lengths]
        )
        graphs, self.q = join_nonshared_inputs(self.start, with_constants(of_values), self.values)
        self.L, *self.unobserved = graphs
        self.g = pytensor.grad(self.L, self.q)

    @property
    def initial(self) -> np.ndarray:
        return np.concatenate([value.ravel() for value in self.start.values()])

    @property
    def dim(self) -> int:
        return len(self.initial)

    @property
    def names(self) -> list[str]:
        """``mu``, ``tau_log__``, ``theta[0]``, ``L[0][1]``: PyMC's names of the unconstrained values."""
        return [
            name + "".join(f"[{i}]" for i in index)
            for name, value in self.start.items()
            for index in np.ndindex(value.shape)
        ]

    def second_order(self) -> tuple:
        """v and h(q, v)"""
        import pytensor.tensor as pt
        from pytensor.gradient import Rop
        from pytensor.graph import rewrite_graph

        v = pt.dvector("v")
        # Put in order first: the graphs that follow from it are rewritten in half the time.
        g = rewrite_graph(self.g, include=["canonicalize", UNCHECKED])
        return v, Rop(g, self.q, v, disconnected_outputs="ignore")

    def third_order(self) -> tuple:
        """u, v and t(q, u, v)"""
        import pytensor.tensor as pt
        from pytensor.gradient import Rop

        u, (v, h) = pt.dvector("u"), self.second_order()
        return u, v, Rop(h, self.q, u, disconnected_outputs="ignore")

    def value_and_gradient(self) -> Callable:
        graph = Compilable([self.q], [self.L, self.g])
        both: Any = graph.function

        def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
            value, gradient = both(q)
            copy_array(out, gradient)
            return value.item()

        return graph.called_by(value_and_gradient)

    def hessian(self) -> Callable:
        v, h = self.second_order()
        graph = Compilable([self.q, v], [h])
        times: Any = graph.function

        def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
            d = q.shape[0]
            e = np.zeros(d)
            for i in range(d):
                e[i] = 1.0
                copy_array(out[i], times(q, e)[0])
                e[i] = 0.0
            for i in range(d):
                for j in range(i):  # alike but for rounding
                    out[i, j] = out[j, i]

        return graph.called_by(hessian)

    def trace(self) -> Callable:
        u, v, t = self.third_order()
        graph = Compilable([self.q, u, v], [t])
        third: Any = graph.function

        def trace(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
            d = q.shape[0]
            e = np.zeros(d)
            out[:] = 0.0
            for i in range(d):
                e[i] = 1.0
                term = third(q, M[i], e)[0]
                for k in range(d):
                    out[k] += term[k]
                e[i] = 0.0

        return graph.called_by(trace)

    @property
    def known_by(self) -> dict[str, Any]:
        """The graph of L as text, and the constants in it."""
        import pytensor

        return {
            "PyTensor's graph of the log density": pytensor.dprint(self.L, file="str", id_type=""),
            "its constants": constants_in([self.L]),
            "PyTensor": pytensor.__version__,
        }

    def constrain(self) -> Callable:
        """q (..., d) to the values of free variables and deterministics."""
        of_draws = OfDraws({"q": self.q}, dict(zip(self.variables, self.unobserved, strict=True)))

        def constrain(q: np.ndarray) -> dict[str, np.ndarray]:
            found = of_draws({"q": np.reshape(q, (-1, q.shape[-1]))})
            return {name: value.reshape(q.shape[:-1] + value.shape[1:]) for name, value in found.items()}

        return constrain


def constants_in(graphs: list) -> list[np.ndarray]:
    from pytensor.graph.basic import Constant
    from pytensor.graph.traversal import ancestors

    constants = [each for each in ancestors(graphs) if isinstance(each, Constant)]
    return [np.asarray(each.data) for each in constants if hasattr(each.data, "shape")]


class Compilable:
    """PyTensor's graph as a Numba ``function`` of the inputs, which returns a tuple; compiled where it is called."""

    def __init__(self, inputs: list, outputs: list) -> None:
        import pytensor

        # Without PyMC's checks of parameters, which raise where one underflows: the density is not finite there, a divergence.
        mode = pytensor.compile.mode.get_mode("NUMBA").including(UNCHECKED)
        made = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
        outer = getattr(made.vm.jit_fn, "py_func", made.vm.jit_fn)
        # What PyTensor's cache stores is a function that calls the graph's: LLVM would have it twice, and ours that calls it.
        inner = outer.__globals__.get("jitable_func") if outer.__code__.co_names == ("jitable_func",) else None
        text = getattr(inner, "py_func", outer)
        self.function = numba.njit(inline="always")(text)
        self.operations = [each for each in text.__globals__.values() if isinstance(each, Dispatcher)]
        self.identity = identity_of_graph(made.maker.fgraph, outer)

    def called_by(self, text: Callable) -> Any:
        """The function of that text, which calls this one, compiled."""
        return jit_of_user(text, (self.function, *self.operations), self.identity)


def identity_of_graph(graph: Any, function: Callable) -> str | None:
    """Under what name the code of a rewritten graph is kept; None where it is not known which code that is.

    PyTensor's name of the ``function`` made of it, a digest of operations, edges and constants; and, so that not all depends
    on that, the graph with its types as text, and the constants once more.
    """
    import pytensor
    from pytensor.link.numba.dispatch import basic

    try:
        from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
    except ImportError:  # earlier ones have no names
        return None
    name = CACHED_SRC_FUNCTIONS.get(function)
    if name is None:
        return None
    text = pytensor.dprint(graph.outputs, file="str", id_type="CHAR", print_type=True)
    text = re.sub(
        r" '[^']*'$", "", text, flags=re.MULTILINE
    )  # the names of variables, some of which are numbered at random
    constants = [
        f"{each.dtype} {each.shape} {sha256(np.ascontiguousarray(each).tobytes())}"
        for each in constants_in(graph.outputs)
    ]
    modules = {type(each).__module__ for each in operations_in(graph)} | modules_of_dispatch(basic)
    return identity_of_text("\n".join([name, text, *constants]), modules)


def operations_in(graph: Any) -> Iterator[Any]:
    """All of them, those within others too: the scalar one of an elementwise one, those of a loop's body."""
    for node in graph.apply_nodes:
        yield from with_inner(node.op)


def with_inner(operation: Any) -> Iterator[Any]:
    yield operation
    if hasattr(operation, "fgraph"):
        yield from operations_in(operation.fgraph)
    for name in ("scalar_op", "core_op"):
        if hasattr(operation, name):
            yield from with_inner(getattr(operation, name))


def modules_of_dispatch(basic: Any) -> set[str]:
    """Where the functions are from that write PyTensor's operations for Numba."""
    written = [each for each in vars(basic).values() if hasattr(each, "registry")]
    return {each.__module__ for generic in written for each in generic.registry.values()}

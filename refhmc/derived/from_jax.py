"""A log density in jax.numpy, or a NumPyro model, with derivatives by JAX's transformations, called as Python.

::

    gradient = grad L      hessian = jacfwd grad L      third_derivative = jacfwd hessian
    hessian_contraction(q, M) = grad_q sum_ij M_ij H_ij(q)

XLA compiles each at its first call. A call goes through Python and costs 10 to 50 microseconds.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.arguments import whole_number
from refhmc.core.hierarchy import Parents, parents_of_variables
from refhmc.derived.model import DerivedModel
from refhmc.errors import ModelError, ModelWarning, ShapeError, _see
from refhmc.models.base import Model
from refhmc.models.generated import GeneratedQuantities

if TYPE_CHECKING:
    import jax
    from numpyro.distributions import Distribution

PYTHON = "its density is compiled by JAX"
# Arguments of refhmc.Model that follow from the log density.
MADE = ("gradient", "hessian", "third_derivative", "hessian_contraction", "value_and_gradient", "data", "in_python")


def from_jax(
    log_density: Callable,
    dim: int,
    *,
    names: Sequence[str] | None = None,
    constrain: Callable | None = None,
    name: str = "JAX model",
    **options: Any,
) -> DerivedModel:
    """Return a model of a log density written in jax.numpy, with derivatives up to third order.

    Parameters
    ----------
    log_density : callable
        ``q -> L(q)``, with q (dim,) unconstrained, written in jax.numpy. Data are constants in its closure.
    dim : int
        Number of coordinates.
    names : sequence of str, optional
        Names of the coordinates, as in :class:`refhmc.Model`.
    constrain : callable, optional
        Values by name at a position, as in :class:`refhmc.Model`. They may be JAX arrays.
    name : str, default "JAX model"
        Name of the model.
    **options : object
        Further options of :class:`refhmc.Model`, such as `initial`, `parents`, `dims`, `coords` and `generated`.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    ImportError
        If JAX is not installed.
    refhmc.errors.ShapeError
        If `dim` is not a positive integer.
    TypeError
        If an option is unknown.
    refhmc.errors.ModelError
        If JAX does not compute in float64, or if `log_density` does not return a real scalar. Call
        ``jax.config.update("jax_enable_x64", True)`` before you create the data.

    Examples
    --------
    >>> import jax, refhmc  # doctest: +SKIP
    >>> jax.config.update("jax_enable_x64", True)  # doctest: +SKIP
    >>> model = refhmc.from_jax(lambda q: -0.5 * q @ q, 2)  # doctest: +SKIP
    >>> result = refhmc.sample(model)  # doctest: +SKIP
    """
    import jax
    import jax.numpy as jnp

    refuse_unknown(options)
    dim = whole_number("dim", dim, error=ShapeError)
    needs_float64()
    like = jax.ShapeDtypeStruct((dim,), jnp.float64)
    found = jax.eval_shape(log_density, like)
    if getattr(found, "shape", None) != () or found.dtype != jnp.float64:
        raise ModelError(f"log_density must return a real float64 scalar for q of the shape ({dim},); got {found}.")
    hessian = jax.jacfwd(jax.grad(log_density))

    def both(q: jax.Array) -> jax.Array:
        """Return gradient and density in one array: the transfer of two arrays to NumPy costs more."""
        value, gradient = jax.value_and_grad(log_density)(q)
        return jnp.append(gradient, value)

    compiled = {
        "L": jax.jit(log_density),
        "both": jax.jit(both),
        "hessian": jax.jit(hessian),
        "third": jax.jit(jax.jacfwd(hessian)),
        "hessian_contraction": jax.jit(jax.grad(lambda q, M: jnp.sum(M * hessian(q)))),
    }

    def value_and_gradient(q: np.ndarray, data: object, out: np.ndarray) -> float:
        found = np.asarray(compiled["both"](q))
        out[:] = found[:-1]
        return found[-1]

    text = jax.make_jaxpr(log_density)(like)
    made = DerivedModel(
        dim,
        lambda q, data: float(compiled["L"](q)),
        lambda q, data: np.asarray(compiled["both"](q))[:-1],
        lambda q, data: np.asarray(compiled["hessian"](q)),
        lambda q, data: np.asarray(compiled["third"](q)),
        lambda q, data, M: np.asarray(compiled["hessian_contraction"](q, M)),
        names=names,
        constrain=None if constrain is None else in_numpy(constrain),
        value_and_gradient=value_and_gradient,
        name=name,
        in_python=PYTHON,
        known_by={
            "JAX's expression of the log density": str(text.jaxpr),
            "its constants": [np.asarray(c) for c in text.consts],
        },
        again=(functools.partial(from_jax, names=names, constrain=constrain, name=name, **options), (log_density, dim)),
        **options,
    )
    if has_solver(text.jaxpr):
        made.approximate["gradient"] = "by the derivative rule of a solver, to the solver's tolerance"
    return made


def has_solver(expression: Any, ruled: bool = False) -> bool:
    """Return whether a function with its own derivative rule (``jax.custom_vjp``) iterates, as ``odeint`` does."""
    import jax

    for equation in expression.eqns:
        inside = ruled or equation.primitive.name.startswith("custom_vjp_call")
        if inside and equation.primitive.name == "while":
            return True
        parts = (getattr(each, "jaxpr", each) for each in jax.tree_util.tree_leaves(equation.params))
        if any(has_solver(part, inside) for part in parts if hasattr(part, "eqns")):
            return True
    return False


def refuse_unknown(options: Mapping[str, object]) -> None:
    """Raise TypeError for the first option that :func:`from_jax` does not take."""
    taken = inspect.signature(from_jax).parameters.keys() - {"options"}
    known = [each for each in inspect.signature(Model).parameters if each in taken or each not in MADE]
    for name in options:
        if name == "data":
            raise TypeError("from_jax() has no argument 'data'. Use a closure, as in lambda q: log_density(q, data).")
        if name in MADE:
            raise TypeError(f"from_jax() has no argument {name!r}, because it follows from log_density. Remove it.")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f". Did you mean {near[0]}?" if near else f". Its arguments: {', '.join(known)}."
            raise TypeError(f"from_jax() has no argument {name!r}{advice}")


def needs_float64() -> None:
    """Raise ModelError unless JAX computes in double precision."""
    import jax.numpy as jnp

    if jnp.result_type(float) != np.float64:
        raise ModelError(
            "JAX must compute in float64; got float32, which does not resolve energies. Call "
            "jax.config.update('jax_enable_x64', True) before you create the data and the model."
        )


def in_numpy(constrain: Callable) -> Callable:
    return lambda q: {name: np.asarray(value) for name, value in constrain(q).items()}


def from_numpyro(model: Callable, *args: Any, **kwargs: Any) -> DerivedModel:
    """Return the posterior of a NumPyro model called with the given arguments, through its potential function.

    The variables are those of NumPyro's samplers: latent sites in their support, and deterministic sites, with the plates as
    dims. A site ``a/b`` of ``numpyro.handlers.scope`` is called ``a.b``, because netCDF does not allow the slash. The log
    likelihood and predictive draws are available for observed sites, but not for ``numpyro.factor``. A site whose values
    depend on latent sites or are drawn (imputed rows, subsamples) is left out of these groups, with a ModelWarning. Chains
    start uniformly on (-2, 2), as in NumPyro. A start at which the density is not finite is replaced, for example because a
    distribution has invalid parameters there.

    The model's ``parents`` are the latent sites on which the distribution of each latent site depends, by NumPyro's
    ``get_dependencies``. They are None if that function cannot trace the model.

    Parameters
    ----------
    model : callable
        The NumPyro model, with continuous latent sites.
    *args : object
        Positional arguments of the model.
    **kwargs : object
        Keyword arguments of the model.

    Returns
    -------
    Model
        The posterior.

    Raises
    ------
    ImportError
        If NumPyro is not installed.
    refhmc.errors.ModelError
        If JAX does not compute in float64, if a latent site is discrete or there is none, or if the support of an
        ImproperUniform site depends on other sites.

    Examples
    --------
    >>> import numpyro, refhmc  # doctest: +SKIP
    >>> model = refhmc.from_numpyro(schools, y, sigma)  # doctest: +SKIP
    >>> result = refhmc.sample(model)  # doctest: +SKIP
    """
    import jax
    import numpyro
    from jax.flatten_util import ravel_pytree
    from numpyro import handlers
    from numpyro.infer.initialization import init_to_uniform
    from numpyro.infer.util import initialize_model

    needs_float64()

    def at_start(seed: int) -> Callable:
        """Return the model with latent sites at starts of a chain, because improper priors cannot be sampled."""
        return handlers.substitute(handlers.seed(model, seed), substitute_fn=init_to_uniform)

    # At a start with invalid parameters, validation raises an error, but not in compiled code, where most densities become NaN.
    with numpyro.validation_enabled(False):
        trace, other = (handlers.trace(at_start(seed)).get_trace(*args, **kwargs) for seed in (0, 1))
    latent = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    discrete = [n for n, site in latent.items() if site["fn"].support.is_discrete]
    if discrete:
        raise ModelError(
            f"model must have continuous latent variables only; {', '.join(discrete)} are discrete. Sum them out of the "
            "density, or write the model as a refhmc.Model with `discontinuous`."
        )
    if not latent:
        raise ModelError("model must have latent variables to sample; got a NumPyro model with no latent variables.")
    moving = [n for n, site in latent.items() if has_moving_bounds(numpyro, site, other.get(n))]
    if moving:
        raise ModelError(
            f"model must not have an ImproperUniform site whose support depends on other sites; {', '.join(moving)} has one, "
            "and NumPyro returns wrong values of it. For an interval use Uniform(low, high), and numpyro.factor with "
            "log(high - low)."
        )
    with numpyro.validation_enabled(False):
        info = initialize_model(jax.random.PRNGKey(0), model, model_args=args, model_kwargs=kwargs)
    start = {n: info.param_info.z[n] for n in latent}
    _, unravel = ravel_pytree(start)
    indices = [(n, index) for n in sorted(start) for index in np.ndindex(np.shape(start[n]))]
    names = [stored(n) + "".join(f"[{i}]" for i in index) for n, index in indices]
    many = jax.jit(jax.vmap(lambda q: info.postprocess_fn(unravel(q))))

    def constrain(q: np.ndarray) -> dict[str, np.ndarray]:
        found = many(np.reshape(q, (-1, len(names))))
        kept = [n for n in trace if n in found]
        return {stored(n): np.reshape(found[n], (*q.shape[:-1], *found[n].shape[1:])) for n in kept}

    observed = observations(numpyro, trace, other)
    made = from_jax(
        lambda q: -info.potential_fn(unravel(q)),
        len(names),
        names=names,
        constrain=constrain,
        parents=parents_in(model, args, kwargs, [n for n in sorted(start) if np.size(start[n]) > 0]),
        name=getattr(model, "__name__", "NumPyro model"),
        dims={
            stored(n): axes for n, site in trace.items() if (n in latent or n in observed) and (axes := plates_of(site))
        },
        generated=generated(numpyro, model, args, kwargs, trace, observed),
    )
    made.again = (functools.partial(from_numpyro, **kwargs), (model, *args))
    return made


def has_moving_bounds(numpyro: ModuleType, site: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    """Return whether a site is an ImproperUniform whose support differs between two traces."""
    import jax

    if other is None or not isinstance(innermost(site["fn"]), numpyro.distributions.ImproperUniform):
        return False
    bounds, others = (jax.tree_util.tree_leaves(innermost(each["fn"]).support) for each in (site, other))
    return not all(same(*pair) for pair in zip(bounds, others, strict=True))


def parents_in(model: Callable, args: tuple, kwargs: dict, latent: Sequence[str]) -> Parents | None:
    """Return the latent sites on which each latent site depends, or None if NumPyro cannot trace the model."""
    from numpyro.infer.inspect import get_dependencies

    try:
        found: dict[str, dict] = get_dependencies(model, args, kwargs)["prior_dependencies"]
    except Exception:  # NumPyro does not trace every model
        return None
    if not found.keys() >= set(latent):
        return None
    return parents_of_variables({stored(n): [stored(each) for each in latent if each in found[n]] for n in latent})


def plates_of(site: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the axis names of a sampled site if every axis is a plate, and otherwise none."""
    frames = sorted(site.get("cond_indep_stack", []), key=lambda frame: frame.dim)
    complete = site["type"] == "sample" and len(frames) == np.ndim(site["value"])
    return tuple(stored(frame.name) for frame in frames) if complete else ()


def stored(site: str) -> str:
    """Return the name of a site or plate in a result: ``a.b`` for ``a/b``, which netCDF does not allow."""
    return site.replace("/", ".")


def observations(numpyro: ModuleType, trace: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the sites whose values are data: those that agree in two traces with different random numbers."""
    sites = {n: s for n, s in trace.items() if s["type"] == "sample" and s["is_observed"]}
    names = [n for n, site in sites.items() if not isinstance(innermost(site["fn"]), numpyro.distributions.Unit)]
    drawn = [n for n in names if n not in other or not same(sites[n]["value"], other[n]["value"])]
    if drawn:
        warnings.warn(
            f"from_numpyro leaves {', '.join(drawn)} out of the log likelihood, predictive draws and observed data, because "
            "the values are drawn or depend on latent sites. The posterior is complete, but these groups are not. Observe the "
            f"data in a separate site to include them. {_see('missing-groups')}",
            ModelWarning,
            stacklevel=3,
        )
    return [n for n in names if n not in drawn]


def innermost(law: Distribution) -> Distribution:
    """Return the distribution inside plates and masks."""
    while hasattr(law, "base_dist"):
        law = law.base_dist
    return law


def same(one: ArrayLike, other: ArrayLike) -> bool:
    return np.shape(one) == np.shape(other) and bool(np.all((one == other) | ((one != one) & (other != other))))


def generated(
    numpyro: ModuleType, model: Callable, args: tuple, kwargs: dict, trace: dict, observed: Sequence[str]
) -> GeneratedQuantities:
    """Return the groups that follow from draws of a NumPyro model; each draw has its own random key."""
    import jax
    from numpyro.handlers import seed, substitute, uncondition
    from numpyro.handlers import trace as traced

    if not observed:
        return GeneratedQuantities()

    def log_likelihood(values: dict) -> dict:
        sites = traced(substitute(seed(model, jax.random.PRNGKey(0)), values)).get_trace(*args, **kwargs)
        return {n: sites[n]["fn"].log_prob(sites[n]["value"]) for n in observed}

    def predictive(values: dict, key: jax.Array) -> dict:
        sites = traced(seed(uncondition(substitute(model, values)), key)).get_trace(*args, **kwargs)
        return {n: sites[n]["value"] for n in observed}

    each, draw = jax.jit(jax.vmap(log_likelihood)), jax.jit(jax.vmap(predictive))
    axes = {n: np.ndim(site["value"]) for n, site in trace.items() if "value" in site}

    def over_draws(function: Callable, values: dict, *keys: Callable) -> dict:
        of_sites = {n: values[stored(n)] for n in trace if stored(n) in values}
        one = all(np.ndim(value) == axes[n] for n, value in of_sites.items())
        rows = {n: value[None] if one else value for n, value in of_sites.items()}
        n_draws = len(next(iter(rows.values())))
        found = function(rows, *(of(n_draws) for of in keys))
        return {stored(n): np.asarray(value[0] if one else value) for n, value in found.items()}

    def posterior_predictive(values: dict, rng: np.random.Generator) -> dict:
        return over_draws(draw, values, lambda n: jax.vmap(jax.random.PRNGKey)(rng.integers(2**63, size=n)))

    return GeneratedQuantities(
        log_likelihood=lambda values: over_draws(each, values),
        posterior_predictive=posterior_predictive,
        observed_data={stored(n): np.asarray(trace[n]["value"]) for n in observed},
    )

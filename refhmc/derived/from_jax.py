"""A log density in jax.numpy, or a NumPyro model, its derivatives by JAX's transformations, called as Python.

    gradient = grad L      hessian = jacfwd grad L      trace(q, M) = grad_q sum_ij M_ij H_ij(q)      third = jacfwd hessian

Each is compiled by XLA when it is first called. A call goes through Python and costs 10 to 50 microseconds (65 to
190 on a virtual machine where the smallest call of JAX costs 26).
"""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from refhmc.core.arguments import whole_number
from refhmc.derived.model import DerivedModel
from refhmc.errors import ModelError, ModelWarning, ShapeError
from refhmc.models.base import Model
from refhmc.models.generated import GeneratedQuantities

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
    """A model of a log density q -> L(q) written in jax.numpy, q (dim,) unconstrained, with derivatives to third order.

    ``names``, ``constrain``, ``name`` and other ``options`` (``initial``, ``dims``, ``coords``, ``generated``, ...) as of
    :class:`refhmc.Model`; the values of ``constrain`` may be JAX's arrays. Data are what ``log_density`` closes over.

    Raises ImportError without JAX; ShapeError for a ``dim`` that is no whole number, TypeError for an option that is none;
    ModelError unless JAX computes in float64 (``jax.config.update("jax_enable_x64", True)``, before the data are made), and
    where ``log_density`` gives no real scalar.
    """
    import jax
    import jax.numpy as jnp

    refuse_unknown(options)
    dim = whole_number("dim", dim, error=ShapeError)
    needs_float64()
    like = jax.ShapeDtypeStruct((dim,), jnp.float64)
    found = jax.eval_shape(log_density, like)
    if getattr(found, "shape", None) != () or found.dtype != jnp.float64:
        raise ModelError(
            f"log_density must return a real number in float64, for q of the shape ({dim},) it returns {found}"
        )
    hessian = jax.jacfwd(jax.grad(log_density))

    def both(q: jax.Array) -> jax.Array:
        """Gradient and density in one array: the way of two back to NumPy costs more."""
        value, gradient = jax.value_and_grad(log_density)(q)
        return jnp.append(gradient, value)

    compiled = {
        "L": jax.jit(log_density),
        "both": jax.jit(both),
        "hessian": jax.jit(hessian),
        "third": jax.jit(jax.jacfwd(hessian)),
        "hessian_contraction": jax.jit(jax.grad(lambda q, M: jnp.sum(M * hessian(q)))),
    }

    def value_and_gradient(q: np.ndarray, data: Any, out: np.ndarray) -> float:
        found = np.asarray(compiled["both"](q))
        out[:] = found[:-1]
        return found[-1]

    text = jax.make_jaxpr(log_density)(like)
    return DerivedModel(
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
            "JAX's text of the log density": str(text.jaxpr),
            "its constants": [np.asarray(c) for c in text.consts],
        },
        again=(functools.partial(from_jax, names=names, constrain=constrain, name=name, **options), (log_density, dim)),
        **options,
    )


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Raise TypeError for the first that a model of JAX's does not take."""
    taken = inspect.signature(from_jax).parameters.keys() - {"options"}
    known = [each for each in inspect.signature(Model).parameters if each in taken or each not in MADE]
    for name in options:
        if name == "data":
            raise TypeError("from_jax() has no argument 'data': close over them, as in lambda q: log_density(q, data)")
        if name in MADE:
            raise TypeError(f"from_jax() has no argument {name!r}: it is made of log_density")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f": did you mean {near[0]}?" if near else f". It has {', '.join(known)}"
            raise TypeError(f"from_jax() has no argument {name!r}{advice}")


def needs_float64() -> None:
    """Raise ModelError unless JAX computes in double precision."""
    import jax.numpy as jnp

    if jnp.result_type(float) != np.float64:
        raise ModelError(
            "JAX computes in float32, in which energies are not resolved: call jax.config.update('jax_enable_x64', True) "
            "before the data and the model are made"
        )


def in_numpy(constrain: Callable) -> Callable:
    return lambda q: {name: np.asarray(value) for name, value in constrain(q).items()}


def from_numpyro(model: Callable, *args: Any, **kwargs: Any) -> DerivedModel:
    """The posterior of a NumPyro model called with these arguments, through its potential function.

    Variables are those that NumPyro's samplers give: latent ones in their support, and deterministics, with dims of plates;
    ``a.b`` what ``numpyro.handlers.scope`` calls ``a/b``, which is no name in a netCDF file.
    Of observed sites the log likelihood and predictive draws can be made; ``numpyro.factor`` is none. One whose values depend
    on latent ones or are drawn (imputed rows, subsamples) is left out of these groups, with a ModelWarning. Chains begin
    uniformly on (-2, 2), as NumPyro's do.

    Raises ImportError without NumPyro, ModelError as :func:`from_jax`, for discrete latent variables, and for none at all.
    """
    import jax
    import numpyro
    from jax.flatten_util import ravel_pytree
    from numpyro import handlers
    from numpyro.infer.util import initialize_model

    needs_float64()
    trace, other = (handlers.trace(handlers.seed(model, seed)).get_trace(*args, **kwargs) for seed in (0, 1))
    latent = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    discrete = [n for n, site in latent.items() if site["fn"].support.is_discrete]
    if discrete:
        raise ModelError(
            f"model: from_numpyro takes continuous latent variables, {', '.join(discrete)} are discrete. Sum them out of the "
            "density, or write the model as a refhmc.Model with `discontinuous`."
        )
    if not latent:
        raise ModelError("model: the NumPyro model has no latent variables; there is nothing to sample")
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
        name=getattr(model, "__name__", "NumPyro model"),
        dims={
            stored(n): axes for n, site in trace.items() if (n in latent or n in observed) and (axes := plates_of(site))
        },
        generated=generated(numpyro, model, args, kwargs, trace, observed),
    )
    made.again = (functools.partial(from_numpyro, **kwargs), (model, *args))
    return made


def plates_of(site: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the axes of a sampled site: all of them where each is a plate's, else none."""
    frames = sorted(site.get("cond_indep_stack", []), key=lambda frame: frame.dim)
    complete = site["type"] == "sample" and len(frames) == np.ndim(site["value"])
    return tuple(stored(frame.name) for frame in frames) if complete else ()


def stored(site: str) -> str:
    """The name of a site, or a plate, in a result: that of ``numpyro.handlers.scope``, ``a/b``, can be in no netCDF file."""
    return site.replace("/", ".")


def observations(numpyro: Any, trace: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The sites whose values are data: those that two traces of different random numbers agree on."""
    sites = {n: s for n, s in trace.items() if s["type"] == "sample" and s["is_observed"]}
    names = [n for n, site in sites.items() if not isinstance(innermost(site["fn"]), numpyro.distributions.Unit)]
    drawn = [n for n in names if n not in other or not same(sites[n]["value"], other[n]["value"])]
    if drawn:
        warnings.warn(
            f"from_numpyro leaves {', '.join(drawn)} out of the log likelihood, predictive draws and observed data: its values "
            "depend on what is drawn. The posterior has it. For the groups, observe the data in a site of their own.",
            ModelWarning,
            stacklevel=3,
        )
    return [n for n in names if n not in drawn]


def innermost(law: Any) -> Any:
    """What a plate or a mask has wrapped."""
    while hasattr(law, "base_dist"):
        law = law.base_dist
    return law


def same(one: Any, other: Any) -> bool:
    return np.shape(one) == np.shape(other) and bool(np.all((one == other) | ((one != one) & (other != other))))


def generated(
    numpyro: Any, model: Callable, args: tuple, kwargs: dict, trace: dict, observed: Sequence[str]
) -> GeneratedQuantities:
    """What follows from draws of a NumPyro model: its data, and functions of one draw or of many; each has a key of its own."""
    import jax
    from numpyro.handlers import seed, substitute, uncondition
    from numpyro.handlers import trace as traced

    if not observed:
        return GeneratedQuantities()

    def log_likelihood(values: dict) -> dict:
        sites = traced(substitute(seed(model, jax.random.PRNGKey(0)), values)).get_trace(*args, **kwargs)
        return {n: sites[n]["fn"].log_prob(sites[n]["value"]) for n in observed}

    def predictive(values: dict, key: Any) -> dict:
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

"""NumPyro: kernels with adaptation off, ensemble kernels, and the transforms of its constraints."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints
from numpyro.infer import AIES, ESS, HMC, NUTS, BarkerMH

import refhmc.check as rc
from validation.conformance.adapters import changes
from validation.conformance.adapters.jax_targets import TARGETS
from validation.conformance.subjects import Subject

PACKAGES = ("jax", "numpyro")
SECONDS = 6  # of processor time per subject
DENSE = np.array([[1.0, 0.3], [0.3, 0.5]])
FIXED = {"adapt_step_size": False, "adapt_mass_matrix": False}


def potential(target):
    return lambda q: -TARGETS[target](q)


def key_of(rng):
    return jax.random.key(int(rng.integers(2**32)))


def chains(kernel, dim):
    """Adapt a kernel of NumPyro to ``kernel(rng, q) -> q`` for an array of chains."""

    def one(key, q):
        first, second = jax.random.split(key)
        state = kernel.init(first, 0, init_params=q, model_args=(), model_kwargs={})
        return kernel.sample(state._replace(rng_key=second), (), {}).z

    kernel.init(jax.random.key(0), 0, init_params=jnp.zeros(dim), model_args=(), model_kwargs={})
    several = jax.jit(jax.vmap(one))
    return lambda rng, q: np.asarray(several(jax.random.split(key_of(rng), len(q)), jnp.asarray(q)))


def ensemble(kernel, n):
    """Adapt an ensemble kernel of NumPyro to ``kernel(rng, q) -> q`` for an array of chains."""

    def moved(keys, q):
        state = kernel.init(keys, 0, init_params=q)
        return kernel.sample(state._replace(rng_key=keys[0]), (), {}).z

    jitted = jax.jit(moved)
    return lambda rng, q: np.asarray(jitted(jax.random.split(key_of(rng), n), jnp.asarray(q)))


def kernel(call, make, target, arguments, label=""):
    """Return a kernel of NumPyro as a subject on one target."""

    def examine():
        made = make(potential_fn=potential(target), **arguments)
        adapted = chains(made, rc.targets.from_name(target).dim)
        seconds, n = (4 * SECONDS, 256) if make is NUTS else (SECONDS, 1024)  # a batch is as slow as its longest tree
        return rc.sampler(adapted, target, seconds=seconds, batched=True, chains=n, name=make.__name__)

    return Subject(f"{make.__name__}{label}, {target}", call, examine, (chains, potential))


def ensemble_kernel(make, moves):
    """Return an ensemble kernel of NumPyro as a subject, with moves of one kind."""
    name = f"{make.__name__}.{moves.__name__}"

    def examine():
        adapted = ensemble(make(potential_fn=potential("quartic-2"), moves={moves(): 1.0}), 32)
        return rc.sampler(adapted, "quartic-2", seconds=SECONDS, ensemble=True, chains=32, name=make.__name__)

    call = f"{make.__name__}(moves={{{name}(): 1.0}})"
    return Subject(f"{name}, quartic-2", call, examine, (ensemble, potential))


def leap_of(transform, place, pick):
    """Adapt a transform of NumPyro to a leap; ``place`` and ``pick`` convert free coordinates to an image and back."""
    jacobian = jax.jit(transform.log_abs_det_jacobian)

    def forward(x):
        y = transform(jnp.asarray(x))
        return pick(y), jacobian(x, y)

    def inverse(free):
        y = jnp.asarray(place(free))
        x = transform.inv(y)
        return x, jacobian(x, y)

    return changes.leap_of(forward, inverse)


def transform(name, constraint, dim, coordinates=changes.WHOLE):
    """Return the transform of a constraint as a subject."""
    T, (place, pick) = biject_to(constraint), coordinates

    def examine():
        return changes.examine(leap_of(T, place, pick), lambda x: pick(T(jnp.asarray(x))), dim, SECONDS, name)

    return Subject(f"biject_to({name})", f"biject_to(constraints.{name})", examine, (leap_of, changes.leap_of))


KERNELS = [
    *(
        kernel(
            f"HMC(step_size={step}, trajectory_length={length}, ...)",
            HMC,
            target,
            {"step_size": step, "trajectory_length": length, **FIXED},
        )
        for target, step, length in (("quartic-1", 1.0, 3.0), ("banana", 0.2, 0.8))
    ),
    *(
        kernel(
            f"NUTS(step_size={step}, max_tree_depth=5, ...)",
            NUTS,
            target,
            {"step_size": step, "max_tree_depth": 5, **FIXED},
        )
        for target, step in (("quartic-2", 0.7), ("banana", 0.2), ("funnel-3", 0.3))
    ),
    kernel(
        "NUTS(step_size=0.7, dense_mass=True, inverse_mass_matrix=matrix, ...)",
        NUTS,
        "quartic-2",
        {"step_size": 0.7, "max_tree_depth": 5, "dense_mass": True, "inverse_mass_matrix": DENSE, **FIXED},
        ", dense metric",
    ),
    *(
        kernel(f"BarkerMH(step_size={step}, ...)", BarkerMH, target, {"step_size": step, **FIXED})
        for target, step in (("quartic-1", 1.0), ("banana", 0.3))
    ),
    ensemble_kernel(AIES, AIES.DEMove),
    ensemble_kernel(AIES, AIES.StretchMove),
    ensemble_kernel(ESS, ESS.DifferentialMove),
    ensemble_kernel(ESS, ESS.GaussianMove),
]
TRANSFORMS = [
    transform("positive", constraints.positive, 2),
    transform("greater_than(1.0)", constraints.greater_than(1.0), 2),
    transform("less_than(1.0)", constraints.less_than(1.0), 2),
    transform("interval(-1.0, 3.0)", constraints.interval(-1.0, 3.0), 2),
    transform("unit_interval", constraints.unit_interval, 2),
    transform("circular", constraints.circular, 2),
    transform("softplus_positive", constraints.softplus_positive, 2),
    transform("ordered_vector", constraints.ordered_vector, 3),
    transform("positive_ordered_vector", constraints.positive_ordered_vector, 3),
    transform("simplex", constraints.simplex, 3, changes.SIMPLEX),
    transform("l1_ball", constraints.l1_ball, 3),
    transform("corr_cholesky", constraints.corr_cholesky, 3, changes.unit_rows(3)),
    transform("corr_matrix", constraints.corr_matrix, 3, changes.symmetric(3, unit_diagonal=True)),
    transform("lower_cholesky", constraints.lower_cholesky, 3, changes.triangle(2)),
    transform("scaled_unit_lower_cholesky", constraints.scaled_unit_lower_cholesky, 3, changes.triangle(2)),
    transform("softplus_lower_cholesky", constraints.softplus_lower_cholesky, 3, changes.triangle(2)),
    transform("positive_definite", constraints.positive_definite, 3, changes.symmetric(2, unit_diagonal=False)),
]
SUBJECTS = TRANSFORMS + KERNELS

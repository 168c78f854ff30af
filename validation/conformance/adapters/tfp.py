"""TensorFlow Probability on JAX: kernels of tfp.mcmc, and bijectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow_probability.substrates.jax as tfp

import refhmc.check as rc
from validation.conformance.adapters import changes
from validation.conformance.adapters.jax_targets import TARGETS
from validation.conformance.subjects import Subject

PACKAGES = ("jax", "tensorflow-probability")
SECONDS = 6  # of processor time per subject
tfb, tfm = tfp.bijectors, tfp.mcmc


def key_of(rng):
    return jax.random.PRNGKey(int(rng.integers(2**32)))


def chains(kernel):
    """Adapt a kernel of tfp.mcmc to ``kernel(rng, q) -> q`` for an array of chains."""

    @jax.jit
    def step(key, q):
        first, second = jax.random.split(key)
        return kernel.one_step(q, kernel.bootstrap_results(q), seed=second)[0]

    return lambda rng, q: np.asarray(step(key_of(rng), jnp.asarray(q)))


def kernel(call, make, target):
    """Return a kernel, ``make(log_density)``, as a subject on one target."""
    name = call.partition("(")[0]

    def examine():
        adapted = chains(make(jax.vmap(TARGETS[target])))
        return rc.sampler(adapted, target, seconds=SECONDS, batched=True, chains=1024, name=name)

    return Subject(f"{name}, {target}", call, examine, (chains,))


def bijector(T, dim, coordinates=changes.WHOLE, event=1):
    """Return a bijector as a subject."""
    place, pick = coordinates

    def forward(x):
        x = jnp.asarray(x)
        return pick(T.forward(x)), T.forward_log_det_jacobian(x, event_ndims=event)

    def inverse(free):
        y = jnp.asarray(place(free))
        return T.inverse(y), -T.inverse_log_det_jacobian(y, event_ndims=np.ndim(y))

    def examine():
        return changes.examine(
            changes.leap_of(forward, inverse), lambda x: pick(T.forward(jnp.asarray(x))), dim, SECONDS, T.name
        )

    name = type(T).__name__
    return Subject(f"bijectors.{name}", f"tfp.bijectors.{name}(...)", examine, (changes.leap_of, bijector))


KERNELS = [
    *(
        kernel(
            f"HamiltonianMonteCarlo(log_density, step_size={step}, num_leapfrog_steps=3)",
            lambda f, step=step: tfm.HamiltonianMonteCarlo(f, step_size=step, num_leapfrog_steps=3),
            target,
        )
        for target, step in (("quartic-1", 1.0), ("banana", 0.2))
    ),
    *(
        kernel(
            f"NoUTurnSampler(log_density, step_size={step}, max_tree_depth=4)",
            lambda f, step=step: tfm.NoUTurnSampler(f, step_size=step, max_tree_depth=4),
            target,
        )
        for target, step in (("quartic-2", 0.7), ("banana", 0.2))
    ),
    kernel(
        "MetropolisAdjustedLangevinAlgorithm(log_density, step_size=0.5)",
        lambda f: tfm.MetropolisAdjustedLangevinAlgorithm(f, step_size=0.5),
        "quartic-2",
    ),
    kernel(
        "UncalibratedLangevin(log_density, step_size=0.5)",
        lambda f: tfm.UncalibratedLangevin(f, step_size=0.5),
        "quartic-2",
    ),
    kernel("RandomWalkMetropolis(log_density)", tfm.RandomWalkMetropolis, "quartic-2"),
    kernel(
        "SliceSampler(log_density, step_size=1.0, max_doublings=5)",
        lambda f: tfm.SliceSampler(f, step_size=jnp.float64(1.0), max_doublings=5),
        "quartic-2",
    ),
    kernel(
        "EllipticalSliceSampler(normal_sampler_fn, log_likelihood_fn)",
        lambda f: tfp.experimental.mcmc.EllipticalSliceSampler(
            normal_sampler_fn=lambda seed: jax.random.normal(seed, (1024, 2)),
            log_likelihood_fn=lambda q: f(q) + 0.5 * jnp.sum(q**2, axis=-1),
        ),
        "quartic-2",
    ),
    kernel(
        "PreconditionedHamiltonianMonteCarlo(log_density, step_size=0.5, num_leapfrog_steps=3, momentum_distribution=...)",
        lambda f: tfp.experimental.mcmc.PreconditionedHamiltonianMonteCarlo(
            f,
            step_size=0.5,
            num_leapfrog_steps=3,
            momentum_distribution=tfp.distributions.MultivariateNormalDiag(jnp.zeros(2), jnp.array([1.0, 2.0])),
        ),
        "quartic-2",
    ),
]
BIJECTORS = [
    bijector(tfb.Exp(), 2),
    bijector(tfb.Softplus(), 2),
    bijector(tfb.Softplus(low=jnp.float64(1.0)), 2),
    bijector(tfb.Sigmoid(low=jnp.float64(-1.0), high=jnp.float64(3.0)), 2),
    bijector(tfb.Softsign(), 2),
    bijector(tfb.Tanh(), 2),
    bijector(tfb.SinhArcsinh(skewness=jnp.float64(0.5), tailweight=jnp.float64(1.5)), 2),
    bijector(tfb.NormalCDF(), 2),
    bijector(tfb.GumbelCDF(), 2),
    bijector(tfb.Ascending(), 3),
    bijector(tfb.SoftmaxCentered(), 3, changes.SIMPLEX),
    bijector(tfb.IteratedSigmoidCentered(), 3, changes.SIMPLEX),
    bijector(tfb.CorrelationCholesky(), 3, changes.unit_rows(3)),
    bijector(
        tfb.FillScaleTriL(diag_bijector=tfb.Softplus(low=jnp.float64(1e-5)), diag_shift=None), 3, changes.triangle(2)
    ),
]
SUBJECTS = BIJECTORS + KERNELS

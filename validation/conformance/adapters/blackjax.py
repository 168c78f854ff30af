"""BlackJAX: integrators as steps and leaps, sampling algorithms as kernels."""

from __future__ import annotations

import functools

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import integrators, metrics

import refhmc.check as rc
from validation.conformance.adapters.jax_targets import TARGETS
from validation.conformance.subjects import Subject

PACKAGES = ("jax", "blackjax")
SECONDS = 12  # of processor time per subject


class Chains:
    """Sampling algorithm of BlackJAX as batched chains with a state."""

    def __init__(self, algorithm):
        self._init = jax.jit(jax.vmap(algorithm.init))
        self._step = jax.jit(jax.vmap(lambda key, state: algorithm.step(key, state)[0]))

    def keys(self, rng, n):
        return jax.random.split(jax.random.key(int(rng.integers(2**32))), n)

    def init(self, rng, q):
        return self._init(jnp.asarray(q), self.keys(rng, len(q)))

    def step(self, rng, state):
        return self._step(self.keys(rng, len(state[0])), state)

    def read(self, state):
        return np.asarray(state[0])


class Orbits(Chains):
    """Periodic orbital sampling, with a point drawn from each orbit by its weights."""

    def __init__(self, algorithm):
        super().__init__(algorithm)
        self._pick = jax.jit(
            jax.vmap(lambda key, orbit: orbit.positions[jax.random.choice(key, len(orbit.weights), p=orbit.weights)])
        )

    def init(self, rng, q):
        return {"orbit": super().init(rng, q), "q": q}

    def step(self, rng, state):
        orbit = super().step(rng, state["orbit"])
        return {"orbit": orbit, "q": self._pick(self.keys(rng, len(orbit.weights)), orbit)}

    def read(self, state):
        return np.asarray(state["q"])


class DrawnMomenta(Chains):
    """Generalised HMC whose first momentum has the distribution that its scale implies."""

    def __init__(self, algorithm, sd):
        super().__init__(algorithm)
        self._sd = sd

    def init(self, rng, q):
        return super().init(rng, q)._replace(momentum=jnp.asarray(self._sd * rng.standard_normal(q.shape)))


def kernel(call, make, target, *, chains=Chains, note=""):
    """Return a sampling algorithm, ``make(log_density)``, as a subject on one target."""
    name = call.partition("(")[0] + note

    def examine():
        adapted = chains(make(TARGETS[target]))
        return rc.sampler(adapted, target, seconds=SECONDS, batched=True, chains=1024, name=name)

    made = getattr(chains, "func", chains)
    return Subject(f"{name}, {target}", call, examine, tuple(c for c in made.__mro__ if c is not object))


def ones(target):
    return jnp.ones(rc.targets.from_name(target).dim)


def hamiltonian(density, kinetic):
    """Return the energy and its derivatives, as arguments of the check."""

    def H(q, p):
        return -density(q) + kinetic(p, q)

    return {"H": jax.jit(H), "grad_q": jax.jit(jax.grad(H)), "grad_p": jax.jit(jax.grad(H, 1))}


def step_of(density, step):
    """Adapt an integrator of BlackJAX to ``step(q, p, eps) -> (q, p)``."""
    jitted = jax.jit(step)

    def one(q, p, eps):
        state = jitted(integrators.new_integrator_state(density, jnp.asarray(q), jnp.asarray(p)), eps)
        return state.position, state.momentum

    return one


def leap_of(density, step, eps):
    """Adapt an isokinetic integrator of BlackJAX to ``leap(q, p) -> (q, p, log_det)``."""
    jitted = jax.jit(step)

    def leap(q, p):
        state = integrators.new_integrator_state(density, jnp.asarray(q), jnp.asarray(p))
        state, kinetic_change = jitted(state, eps)
        return np.asarray(state.position), np.asarray(state.momentum), -float(kinetic_change)

    return leap


def fisher(q):
    """Return the Fisher metric of the banana."""
    return jnp.array([[25.25, 50 * q[1]], [50 * q[1], 100 * q[1] ** 2 + 0.25]])


EUCLIDEAN = metrics.default_metric(jnp.ones(2))
RIEMANNIAN = metrics.default_metric(fisher)
PRECISE = functools.partial(integrators.solve_fixed_point_iteration, convergence_tol=1e-12, max_iters=200)


def points_of(target, metric):
    """Return exact draws of a target with momenta of the metric."""
    starts = rc.targets.from_name(target).draw(np.random.default_rng(1), 12)
    return [(q, np.asarray(metric.sample_momentum(jax.random.key(i), jnp.asarray(q)))) for i, q in enumerate(starts)]


def integrator(name, order, target="banana", metric=EUCLIDEAN, eps=0.02, tolerance=0, note="", **options):
    """Return an integrator as a subject."""
    step = getattr(integrators, name)(TARGETS[target], metric.kinetic_energy, **options)

    def examine():
        return rc.integrator(
            step_of(TARGETS[target], step),
            **hamiltonian(TARGETS[target], metric.kinetic_energy),
            points=points_of(target, metric),
            eps=eps,
            claims=f"symplectic reversible order={order}",
            tolerance=tolerance,
            seconds=2 * SECONDS,
            name=name,
        )

    call = f"integrators.{name}(log_density, metric.kinetic_energy" + ", solver=precise" * bool(options) + ")"
    return Subject(f"{name}{note}, {target}", call, examine, (step_of,))


def isokinetic(name):
    """Return an isokinetic integrator, with the log Jacobian that it implies, as a subject."""
    step = getattr(integrators, name)(TARGETS["banana"])

    def examine():
        leap = leap_of(TARGETS["banana"], step, 0.05)
        return rc.leap(leap, dim=2, returns=("q", "p", "log_det"), sphere=True, seconds=SECONDS, name=name)

    return Subject(f"{name}, banana", f"integrators.{name}(log_density)", examine, (leap_of,))


INTEGRATORS = [
    integrator("velocity_verlet", 2),
    integrator("mclachlan", 2),
    integrator("yoshida", 2),
    integrator("omelyan", 4),
    integrator("implicit_midpoint", 2, "banana", RIEMANNIAN, 0.02, 1e-12, " on a Fisher metric", solver=PRECISE),
    integrator("implicit_midpoint", 2, "quartic-2", EUCLIDEAN, 0.1, 1e-12, " on a constant metric", solver=PRECISE),
    *(isokinetic(f"isokinetic_{name}") for name in ("velocity_verlet", "mclachlan", "yoshida", "omelyan")),
]

LOW_RANK = metrics.LowRankInverseMassMatrix(jnp.array([1.0, 0.5]), jnp.array([[0.6], [0.8]]), jnp.array([0.3]))
DENSE = jnp.array([[1.0, 0.3], [0.3, 0.5]])
PLAIN = "step_size={}, inverse_mass_matrix=ones"


def hmc_like(name, step, target, arguments="", **options):
    call = f"blackjax.{name}(log_density, {PLAIN.format(step)}{arguments})"
    make = functools.partial(getattr(blackjax, name), step_size=step, inverse_mass_matrix=ones(target), **options)
    return kernel(call, make, target)


def on_metric(name, step, metric, label, target, **options):
    call = f"blackjax.{name}(log_density, step_size={step}, inverse_mass_matrix={label}, ...)"
    make = functools.partial(getattr(blackjax, name), step_size=step, inverse_mass_matrix=metric, **options)
    return kernel(call, make, target, note=f", {label} metric")


def likelihood(q):
    """Return the log of the density of the quartic over that of a standard normal."""
    return TARGETS["quartic-2"](q) + 0.5 * jnp.sum(q**2)


def joint(theta, phi):
    """Return a joint log density whose margin in phi is the quartic, and which is normal in theta."""
    return -0.25 * jnp.sum(phi**4) - 0.5 * jnp.sum((theta - phi) ** 2)


STEPS = ", num_integration_steps=3"
KERNELS = [
    *(
        hmc_like("hmc", step, target, STEPS, num_integration_steps=3)
        for target, step in (("quartic-1", 1.0), ("banana", 0.2))
    ),
    *(
        hmc_like("mhmc", step, target, STEPS, num_integration_steps=3)
        for target, step in (("quartic-1", 1.0), ("banana", 0.2))
    ),
    *(hmc_like("dhmc", step, target) for target, step in (("quartic-1", 1.0), ("banana", 0.2))),
    *(hmc_like("dmhmc", step, target) for target, step in (("quartic-1", 1.0), ("banana", 0.2))),
    *(hmc_like("nuts", step, target, max_num_doublings=5) for target, step in (("quartic-2", 0.7), ("banana", 0.2))),
    *(
        on_metric("hmc", 0.2, metric, label, target, num_integration_steps=3)
        for label, metric in (("dense", DENSE), ("low-rank", LOW_RANK))
        for target in ("quartic-2", "banana")
    ),
    *(
        on_metric("nuts", 0.3, metric, label, "quartic-2", max_num_doublings=5)
        for label, metric in (("dense", DENSE), ("low-rank", LOW_RANK))
    ),
    kernel(
        "blackjax.rmhmc(log_density, step_size=0.3, mass_matrix=fisher, num_integration_steps=3)",
        functools.partial(blackjax.rmhmc, step_size=0.3, mass_matrix=fisher, num_integration_steps=3),
        "banana",
    ),
    kernel(
        "blackjax.ghmc(log_density, step_size=0.5, momentum_inverse_scale=1, alpha=0.3, delta=0.3)",
        functools.partial(blackjax.ghmc, step_size=0.5, momentum_inverse_scale=jnp.ones(2), alpha=0.3, delta=0.3),
        "quartic-2",
    ),
    kernel(
        "blackjax.ghmc(log_density, step_size=0.1, momentum_inverse_scale=5, alpha=0.3, delta=0.3)",
        functools.partial(blackjax.ghmc, step_size=0.1, momentum_inverse_scale=5 * jnp.ones(2), alpha=0.3, delta=0.3),
        "quartic-2",
        note=", scale 5",
    ),
    kernel(
        "blackjax.ghmc(log_density, step_size=0.1, momentum_inverse_scale=5, alpha=0.3, delta=0.3)",
        functools.partial(blackjax.ghmc, step_size=0.1, momentum_inverse_scale=5 * jnp.ones(2), alpha=0.3, delta=0.3),
        "quartic-2",
        chains=functools.partial(DrawnMomenta, sd=0.2),
        note=", scale 5, momentum replaced at the start",
    ),
    *(
        kernel(
            f"blackjax.mala(log_density, step_size={step})", functools.partial(blackjax.mala, step_size=step), target
        )
        for target, step in (("quartic-1", 0.5), ("banana", 0.03))
    ),
    *(
        kernel(
            f"blackjax.barker(log_density, step_size={step})",
            functools.partial(blackjax.barker, step_size=step),
            target,
        )
        for target, step in (("quartic-1", 1.0), ("banana", 0.3))
    ),
    on_metric("barker", 0.5, DENSE, "dense", "quartic-2"),
    on_metric("barker", 0.5, lambda q: 1 + q**2, "position-dependent", "quartic-1"),
    kernel(
        "blackjax.orbital_hmc(log_density, step_size=0.5, inverse_mass_matrix=ones, period=6)",
        functools.partial(blackjax.orbital_hmc, step_size=0.5, inverse_mass_matrix=jnp.ones(2), period=6),
        "quartic-2",
        chains=Orbits,
    ),
    kernel(
        "blackjax.mclmc(log_density, L=2.0, step_size=0.5)",
        functools.partial(blackjax.mclmc, L=2.0, step_size=0.5),
        "quartic-2",
    ),
    *(
        kernel(
            f"blackjax.adjusted_mclmc(log_density, step_size=0.4, L_proposal_factor={factor}, num_integration_steps=4)",
            functools.partial(
                blackjax.adjusted_mclmc, step_size=0.4, L_proposal_factor=factor, num_integration_steps=4
            ),
            "quartic-2",
            note=f", factor {factor}",
        )
        for factor in (jnp.inf, 1.25)
    ),
    kernel(
        "blackjax.adjusted_mclmc_dynamic(log_density, step_size=0.4)",
        functools.partial(blackjax.adjusted_mclmc_dynamic, step_size=0.4),
        "quartic-2",
    ),
    kernel(
        "blackjax.elliptical_slice(log_likelihood, mean=zeros, cov=ones)",
        lambda _: blackjax.elliptical_slice(likelihood, mean=jnp.zeros(2), cov=jnp.ones(2)),
        "quartic-2",
    ),
    kernel(
        "blackjax.mgrad_gaussian(log_likelihood, covariance=identity, mean=zeros, step_size=0.5)",
        lambda _: blackjax.mgrad_gaussian(likelihood, jnp.eye(2), jnp.zeros(2), step_size=0.5),
        "quartic-2",
    ),
    kernel("blackjax.slice_sampling(log_density)", blackjax.slice_sampling, "quartic-2"),
    kernel("blackjax.coordinate_slice(log_density)", blackjax.coordinate_slice, "quartic-2"),
    kernel(
        "blackjax.gist_step_size(log_density, ones, initial_step_size=0.5)",
        functools.partial(blackjax.gist_step_size, inverse_mass_matrix=jnp.ones(2), initial_step_size=0.5),
        "quartic-2",
    ),
    kernel(
        "blackjax.gist_trajectory_length(log_density, ones, step_size=0.4)",
        functools.partial(
            blackjax.gist_trajectory_length, inverse_mass_matrix=jnp.ones(2), step_size=0.4, max_num_steps=32
        ),
        "quartic-2",
    ),
    kernel(
        "blackjax.additive_step_random_walk.normal_random_walk(log_density, sigma=0.8)",
        functools.partial(blackjax.additive_step_random_walk.normal_random_walk, sigma=jnp.full(2, 0.8)),
        "quartic-2",
    ),
    kernel(
        "blackjax.irmh(log_density, normal)",
        functools.partial(
            blackjax.irmh,
            proposal_distribution=lambda key: jax.random.normal(key, (2,)),
            proposal_logdensity_fn=lambda start, end: -0.5 * jnp.sum(end.position**2),
        ),
        "quartic-2",
    ),
    kernel(
        "blackjax.laplace_hmc(log_joint, theta, 1.0, ones, 3)",
        lambda _: blackjax.laplace_hmc(joint, jnp.zeros(1), 1.0, jnp.ones(1), 3),
        "quartic-1",
    ),
    kernel(
        "blackjax.laplace_mhmc(log_joint, theta, 1.0, ones, 3)",
        lambda _: blackjax.laplace_mhmc(joint, jnp.zeros(1), 1.0, jnp.ones(1), 3),
        "quartic-1",
    ),
]
SUBJECTS = INTEGRATORS + KERNELS

"""Planted bugs in kernels of JAX with keys and states, each with its correct counterpart; none where JAX is not installed."""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

import refhmc.check as rc

from . import Pair


class State(NamedTuple):
    """State of a chain, or of a batch."""

    position: Any
    log_density: Any


class Algorithm(NamedTuple):
    """Form of an algorithm in BlackJAX: ``init(position)``, ``step(key, state) -> (state, info)``."""

    init: Any
    step: Any


def log_density(q):
    return -0.5 * (q**2).sum(axis=-1)


def hmc(bug=""):
    """Return HMC with one leapfrog step on the normal distribution; ``bug`` is "" or names the fault."""
    import jax
    import jax.numpy as jnp

    def init(position):
        return State(position, log_density(position))

    def step(rng_key, state):
        of_momentum, of_decision = jax.random.split(rng_key)
        if bug == "key twice":
            of_decision = of_momentum
        p = jax.random.normal(of_momentum, state.position.shape)
        eps = 1.2
        middle = p - eps / 2 * state.position
        position = state.position + eps * middle
        end = middle - eps / 2 * position
        new = State(position, log_density(position))
        start_kinetic = 0.0 if bug == "no kinetic energy" else 0.5 * (p**2).sum()
        drop = new.log_density - 0.5 * (end**2).sum() - state.log_density + start_kinetic
        accepted = jnp.log(jax.random.uniform(of_decision)) < drop
        after = State(*(jnp.where(accepted, x, y) for x, y in zip(new, state, strict=True)))
        if bug == "density of the proposal":  # after a rejection, too
            after = after._replace(log_density=new.log_density)
        return after, accepted

    return Algorithm(init, step)


def walks(bug=""):
    """Return random walks of all chains of a batch with their keys."""
    import jax
    import jax.numpy as jnp

    def step(keys, state):
        pairs = jax.vmap(jax.random.split)(jnp.broadcast_to(keys[:1], keys.shape) if bug == "one key" else keys)
        noise = jax.vmap(lambda key: jax.random.normal(key, state.position.shape[1:]))(pairs[:, 0])
        new = State(state.position + noise, log_density(state.position + noise))
        uniforms = jax.vmap(jax.random.uniform)(pairs[:, 1])
        before = jnp.roll(state.log_density, 1) if bug == "density of the neighbour" else state.log_density
        ratio = new.log_density - before
        accepted = jnp.log(uniforms) < (jnp.roll(ratio, 1) if bug == "decision of the neighbour" else ratio)
        return State(
            jnp.where(accepted[:, None], new.position, state.position),
            jnp.where(accepted, new.log_density, state.log_density),
        ), accepted

    return Algorithm(lambda Q: State(Q, log_density(Q)), step)


def walks_with_one_key(bug=""):
    """Return a kernel of positions (n, d) that draws all its numbers from one key; "one uniform" decides for all chains."""
    import jax
    import jax.numpy as jnp

    def step(key, Q):
        one, other = jax.random.split(key)
        new = Q + jax.random.normal(one, (len(Q), Q.shape[1]))
        u = jax.random.uniform(other, () if bug else (len(Q),))
        accepted = jnp.log(u) < log_density(new) - log_density(Q)
        return jnp.where(accepted[:, None], new, Q)

    return step


class KeyInState:
    """Form of a kernel in NumPyro: the state contains the key; "same key" passes the used one on."""

    sample_field = "z"

    def __init__(self, bug=""):
        self.bug = bug

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        class Kept(NamedTuple):
            z: Any
            rng_key: Any

        return Kept(init_params, rng_key)

    def sample(self, state, model_args, model_kwargs):
        import jax
        import jax.numpy as jnp

        kept, one, other = jax.random.split(state.rng_key, 3)
        new = state.z + jax.random.normal(one, state.z.shape)
        accepted = jnp.log(jax.random.uniform(other)) < log_density(new) - log_density(state.z)
        return state._replace(
            z=jnp.where(accepted, new, state.z), rng_key=state.rng_key if self.bug == "same key" else kept
        )


def simulate(rng):
    theta = rng.standard_normal(2)
    return theta, theta + rng.standard_normal((3, 2))


def posterior_walk(bug=""):
    """Return ``given(y)`` for three data with unit variance around theta ~ N(0, I); "no prior" leaves out the latter."""
    import jax
    import jax.numpy as jnp

    def given(y):
        def log_posterior(q):
            return (0.0 if bug else log_density(q)) + log_density(y - q).sum()

        def step(key, state):
            one, other = jax.random.split(key)
            new = state["x"] + 0.6 * jax.random.normal(one, state["x"].shape)
            accepted = jnp.log(jax.random.uniform(other)) < log_posterior(new) - log_posterior(state["x"])
            return {"x": jnp.where(accepted, new, state["x"])}, accepted

        return Algorithm(lambda q: {"x": q}, step)

    return given


def with_data(given, seed):
    return rc.transition_with_data(simulate, given, reversible=True, simulations=600, seconds=120, seed=seed)


def in_double_precision(check, make, bug, **options):
    """Return the report of a check as a function of the seed."""

    def report(seed):
        import jax

        with jax.enable_x64(True):
            return check(make(bug), seed=seed, **options)

    return report


def pair(id, what, check, make, expected, **options):
    wrong, right = (in_double_precision(check, make, bug, **options) for bug in (id, ""))
    return Pair(f"jax {id}", what, wrong, right, expected)


DISTRIBUTION = ("stationarity (e-value)", "distribution (KS/AD)")
PAIRS: list[Pair] = []
if importlib.util.find_spec("jax"):
    NORMAL = {"target": "normal-2", "draws": 16000, "seconds": 120}
    PAIRS = [
        pair("key twice", "one key for momentum and decision", rc.randomness, hmc, ("key reuse",), dim=2),
        pair("same key", "used key passed on in the state", rc.randomness, KeyInState, ("key reuse",), dim=2),
        pair("one key", "one key for all chains", rc.batch, walks, ("streams independent",), dim=2),
        pair("density of the neighbour", "as it says", rc.batch, walks, ("alone equals batch",), dim=2),
        pair("decision of the neighbour", "as it says", rc.batch, walks, ("streams independent",), dim=2),
        pair("no kinetic energy", "kinetic energy at the start left out", rc.sampler, hmc, DISTRIBUTION, **NORMAL),
        pair("density of the proposal", "kept after a rejection", rc.sampler, hmc, DISTRIBUTION, **NORMAL),
        pair(
            "one uniform",
            "for all chains",
            rc.sampler,
            walks_with_one_key,
            ("chains independent",),
            chains=32,
            **NORMAL,
        ),
        pair("no prior", "posterior without the prior", with_data, posterior_walk, ("stationarity", "ranks")),
    ]

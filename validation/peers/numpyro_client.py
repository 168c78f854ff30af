"""NumPyro: its HMC and NUTS with adaptation off, as kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import HMC, NUTS

import refhmc.check as rc
from validation.peers import write_reports
from validation.peers.blackjax_client import TARGETS


def kernel(target: str, make, **options):
    """One of NumPyro's kernels as ``kernel(rng, q)`` for an array of chains."""
    sampler = make(
        potential_fn=lambda q: -TARGETS[target](q), adapt_step_size=False, adapt_mass_matrix=False, **options
    )

    def one(key, q):
        first, second = jax.random.split(key)
        state = sampler.init(first, 0, init_params=q, model_args=(), model_kwargs={})
        return sampler.sample(state._replace(rng_key=second), (), {}).z

    sampler.init(
        jax.random.key(0), 0, init_params=jnp.zeros(rc.targets.from_name(target).dim), model_args=(), model_kwargs={}
    )
    several = jax.jit(jax.vmap(one))

    def called(rng, q):
        return np.asarray(several(jax.random.split(jax.random.key(int(rng.integers(2**32))), len(q)), jnp.asarray(q)))

    return called


def main() -> None:
    reports = []
    for target, step_size in (("gaussian", 0.5), ("funnel", 0.2)):
        for name, make, options in (
            ("HMC", HMC, {"trajectory_length": 8 * step_size}),
            ("NUTS", NUTS, {"max_tree_depth": 6}),
        ):
            chains = kernel(target, make, step_size=step_size, **options)
            reports.append(rc.sampler(chains, target=target, batched=True, name=f"numpyro {name}", seconds=60))
    write_reports("numpyro", ("jax", "numpyro"), reports)


if __name__ == "__main__":
    main()

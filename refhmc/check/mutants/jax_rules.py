"""Planted bugs in custom rules of JAX, each with its correct counterpart; none where JAX is not installed.

The log density and its first gradient are right in all of them. What is wrong shows when the rule is differentiated again, or
under ``vmap``.
"""

from __future__ import annotations

import importlib.util

import refhmc.check as rc
from refhmc.check.report import INEFFICIENT

from . import Pair


def density(bug):
    """Return a logistic log density whose softplus has a custom rule; ``bug`` is "" or names the fault of the rule."""
    import jax
    import jax.numpy as jnp

    X = jnp.array([[1.0, -0.5], [0.3, 2.0], [-1.2, 0.7], [0.4, 0.1]])

    @jax.custom_jvp
    def softplus(x):
        return jnp.logaddexp(x, 0.0)

    @jax.custom_batching.custom_vmap
    def sigmoid_in_batches(x):
        return jax.nn.sigmoid(x)

    @sigmoid_in_batches.def_vmap
    def batch_rule(size, batched, x):
        slopes = jax.nn.sigmoid(x)
        return jnp.broadcast_to(slopes.mean(axis=0), slopes.shape) if bug == "mean of the batch" else slopes, True

    @softplus.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        if bug.endswith("batch"):
            return softplus(x), sigmoid_in_batches(x) * t
        slope = jax.nn.sigmoid(x)
        return softplus(x), (jax.lax.stop_gradient(slope) if bug == "stopped" else slope) * t

    return lambda q: -softplus(X @ q).sum() - 0.5 * (q**2).sum()


def backward(bug):
    """Return a Gaussian log density with a custom reverse rule; ``bug``: the rule keeps a residual outside vmap."""
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def norm(q):
        return 0.5 * (q**2).sum()

    def ahead(q):
        return norm(q), jax.lax.stop_gradient(q) if bug else q

    norm.defvjp(ahead, lambda q, g: (g * q,))
    return lambda q: -norm(q) - jnp.sum(q**4)


def examine(make, bug, **more):
    """Return the report of check.model as a function of the seed."""

    def report(seed):
        import jax
        import jax.numpy as jnp

        with jax.enable_x64(True):  # of this thread: the check must not begin another one
            logp = make(bug)
            return rc.model(logp, jax.grad(logp), dim=2, like=jnp.zeros(1), seed=seed, seconds_per_call=None, **more)

    return report


def pair(id, what, make, wrong, right):
    return Pair(id, what, examine(make, wrong), examine(make, right), ("composition in JAX",), INEFFICIENT)


PAIRS: list[Pair] = []
if importlib.util.find_spec("jax"):
    PAIRS = [
        pair("jax-jvp", "custom_jvp with a slope that is not differentiated", density, "stopped", ""),
        pair("jax-vjp", "custom_vjp with a residual that is not differentiated", backward, True, False),
        pair("jax-vmap", "custom rule with the mean slope of the batch", density, "mean of the batch", "right batch"),
    ]

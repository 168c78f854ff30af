"""Planted bugs in the use of randomness, also in batches of chains, with corrected counterparts, in plain NumPy."""

from __future__ import annotations

import math

import numpy as np

import refhmc.check as rc

from . import Pair

WIDTHS = np.array([1.0, 2.0, 0.5])


def grad(q):
    return -q / WIDTHS**2


def logp(q):
    return -0.5 * np.sum((q / WIDTHS) ** 2, axis=-1)


def leapfrog(q, p, eps, n):
    for _ in range(n):
        p = p + 0.5 * eps * grad(q)
        q = q + eps * p
        p = p + 0.5 * eps * grad(q)
    return q, p


def hmc(momentum, uniform):
    """Return an HMC kernel for one chain with ``momentum(rng)`` and ``uniform(rng)``."""

    def kernel(rng, q):
        p = momentum(rng)
        new_q, new_p = leapfrog(q, p, 0.3, 3)
        drop = logp(new_q) - logp(q) + 0.5 * p @ p - 0.5 * new_p @ new_p
        return new_q if math.log(uniform(rng)) < drop else q

    return kernel


RIGHT = hmc(lambda rng: rng.normal(size=3), lambda rng: rng.random())


def from_the_global_generator():
    return hmc(lambda rng: np.random.normal(size=3), lambda rng: rng.random())  # noqa: NPY002


def own_generator():
    own = np.random.default_rng()
    return hmc(lambda rng: own.normal(size=3), lambda rng: own.random())


def frozen_noise():
    """Kernel with a new generator of the same seed in each call."""
    return hmc(lambda rng: np.random.default_rng(3).normal(size=3), lambda rng: np.random.default_rng(4).random())


def reseeds():
    def momentum(rng):
        np.random.seed(1)  # noqa: NPY002
        return rng.normal(size=3)

    return hmc(momentum, lambda rng: rng.random())


def two_of_three():
    """HMC with the last momentum zero on independent coordinates, so that the last one never moves."""
    return hmc(lambda rng: np.append(rng.normal(size=2), 0.0), lambda rng: rng.random())


class Continued:
    """HMC that continues from a state with a key; ``renewed``: with a new key from the generator of the run."""

    def __init__(self, renewed):
        self.key, self.renewed = 7, renewed

    def __call__(self, rng, q):
        own = np.random.default_rng(rng.integers(2**63) if self.renewed else self.key)
        return RIGHT(own, q)


# --------------------------------------------------------------------------------------------------------------- batches


def batched(uniforms, momenta, *, jitter=0.0, summed=False):
    """HMC on (chains, 3); ``uniforms(rng, chains)``, ``momenta(rng, shape)``.

    With ``jitter`` all chains have one random step size, which is correct; ``summed``: they share the sum of their energies.
    """

    def kernel(rng, q):
        eps = 0.3 * rng.uniform(1 - jitter, 1 + jitter) if jitter else 0.3
        p = momenta(rng, q.shape)
        new_q, new_p = leapfrog(q, p, eps, 3)
        drop = logp(new_q) - logp(q) + 0.5 * np.sum(p * p, axis=-1) - 0.5 * np.sum(new_p * new_p, axis=-1)
        with np.errstate(invalid="ignore"):
            accepted = np.log(uniforms(rng, len(q))) < (drop.sum() if summed else drop)
        return np.where(accepted[:, None], new_q, q)

    return kernel


def own_uniforms(rng, chains):
    return rng.random(chains)


def one_uniform(rng, chains):
    return np.full(chains, rng.random())


def own_momenta(rng, shape):
    return rng.standard_normal(shape)


def one_momentum(rng, shape):
    return np.broadcast_to(rng.standard_normal(shape[-1]), shape)


def half_the_streams(rng, shape):
    """Return uniforms; each pair of chains shares one stream."""
    few = rng.standard_normal(((shape[0] + 1) // 2, shape[1]))
    return np.repeat(few, 2, axis=0)[: shape[0]]


def antithetic(rng, shape):
    """Give every second chain the negated momentum of the one before; from equal initial states they reach different states."""
    p = rng.standard_normal(shape)
    p[1::2] = -p[: 2 * (shape[0] // 2) : 2]
    return p


def one_momentum_scaled(rng, shape):
    """Return the first chain's momentum for all chains, slightly longer in each."""
    return rng.standard_normal(shape)[:1] * (1 + np.arange(shape[0]) / 100)[:, None]


def step_that_stops_together(q, p, eps, n):
    """HMC in which all chains stop when one of them diverges."""
    for _ in range(n):
        new_q, new_p = leapfrog(q, p, eps, 1)
        if not np.all(np.abs(new_q) < 1e6):
            return q, p
        q, p = new_q, new_p
    return q, p


def step_normalised(q, p, eps, n):
    """Scale the gradient by a norm over all chains."""
    for _ in range(n):
        scale = min(1.0, 1.5 / np.sqrt(np.sum(grad(q) ** 2)))
        p = p + 0.5 * eps * scale * grad(q)
        q = q + eps * p
        p = p + 0.5 * eps * scale * grad(q)
    return q, p


def step_in_matrix_products(q, p, eps, n):
    """Select rows by products with a matrix of zeros and ones; 0 times NaN is NaN."""
    q, p = leapfrog(q, p, eps, n)
    chosen = np.eye(len(q))
    return chosen @ q, chosen @ p


def midpoint(freezes):
    """Implicit midpoint rule by iteration to a tolerance; ``freezes``: converged chains stop iterating."""

    def step(q, p, eps, n):
        for _ in range(n):
            at_q, at_p, going = q, p, np.ones(len(q), dtype=bool)
            for _ in range(30):
                new_q, new_p = q + eps / 2 * at_p, p + eps / 2 * grad(at_q)
                change = np.max(np.abs(new_q - at_q) + np.abs(new_p - at_p), axis=-1)
                at_q, at_p = np.where(going[:, None], new_q, at_q), np.where(going[:, None], new_p, at_p)
                there = change < 1e-4
                going = going & ~there if freezes else going & ~np.all(there)
                if not going.any():
                    break
            q, p = 2 * at_q - q, 2 * at_p - p
        return q, p

    return step


def look(kernel, seed):
    return rc.randomness(kernel, dim=3, n=20, seed=seed)


def together(subject, seed):
    return rc.batch(subject, dim=3, chains=4, seed=seed)


def pair_of(name, what, wrong, expected, severity="wrong distribution"):
    return Pair(name, what, lambda s: look(wrong(), s), lambda s: look(RIGHT, s), expected, severity)


def batch_pair(name, what, wrong, right, expected):
    return Pair(name, what, lambda s: together(wrong, s), lambda s: together(right, s), expected)


BATCHED = batched(own_uniforms, own_momenta)
common_step = batched(own_uniforms, own_momenta, jitter=0.2)
PAIRS: list[Pair] = [
    pair_of("M33", "the same noise in every call", frozen_noise, ("fresh every call",)),
    Pair(
        "numpyro#479",
        "a run that continues uses the key of the last one, and not its own",
        lambda s: look(Continued(False), s),
        lambda s: look(Continued(True), s),
        ("fresh every call",),
    ),
    pair_of(
        "global",
        "momenta from the global generator",
        from_the_global_generator,
        ("respects the generator",),
        "inefficient",
    ),
    pair_of("own", "a generator of its own", own_generator, ("respects the generator",), "inefficient"),
    pair_of("reseeds", "it seeds the global generator", reseeds, ("global state",), "inefficient"),
    pair_of("one short", "a coordinate without noise", two_of_three, ("momentum",)),
    batch_pair(
        "P25", "one uniform for all chains", batched(one_uniform, own_momenta), BATCHED, ("decisions independent",)
    ),
    batch_pair(
        "P25b", "one momentum for all chains", batched(own_uniforms, one_momentum), BATCHED, ("streams independent",)
    ),
    batch_pair(
        "P25c",
        "one stream for each two chains",
        batched(own_uniforms, half_the_streams),
        BATCHED,
        ("streams independent",),
    ),
    batch_pair(
        "P25d",
        "momenta of neighbours are antithetic",
        batched(own_uniforms, antithetic),
        BATCHED,
        ("streams independent",),
    ),
    batch_pair(
        "P25e",
        "one momentum for all chains, scaled",
        batched(own_uniforms, one_momentum_scaled),
        common_step,
        ("streams independent",),
    ),
    batch_pair(
        "sum",
        "energies summed over chains",
        batched(own_uniforms, own_momenta, summed=True),
        common_step,
        ("alone equals batch", "divergent neighbour"),
    ),
    batch_pair("stop", "all stop when one diverges", step_that_stops_together, leapfrog, ("divergent neighbour",)),
    batch_pair(
        "spreads", "rows chosen by a matrix product", step_in_matrix_products, leapfrog, ("divergent neighbour",)
    ),
    batch_pair(
        "thaws",
        "a chain that has converged continues to iterate",
        midpoint(False),
        midpoint(True),
        ("alone equals batch",),
    ),
    batch_pair("norm", "a norm over all chains", step_normalised, leapfrog, ("alone equals batch",)),
]

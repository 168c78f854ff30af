"""Planted bugs of explicit samplers on a hierarchical metric, each with its corrected counterpart, in plain NumPy.

The target has four coordinates in three blocks, u, v and (x_1, x_2). The mass matrix of a block depends on earlier ones:

    M_b(q) = sum_k exp(c_k . q) S_k,    H = U + 1/2 sum_b log det M_b + 1/2 sum_b p_b' M_b^-1 p_b

The step has half a kick by U + 1/2 log det M, half flows of the kinetic energies of the blocks from the last to the first, the
same flows in the reverse order, and half a kick. Kailas, Vihola and Wallin (2026), arXiv 2604.09832.
"""

from __future__ import annotations

import functools
import math

import numpy as np

import refhmc.check as rc

from . import Pair
from .integrators import force, potential

BLOCKS = (slice(0, 1), slice(1, 2), slice(2, 4))
UP, DOWN = (0, 1, 2), (2, 1, 0)


def term(S, *c):
    """One term of a mass matrix: S and the coefficients of its exponent."""
    return np.array(S, dtype=float), np.array(c, dtype=float)


TERMS = (
    (term([[1.5]], 0.0, 0.0, 0.0, 0.0),),
    (term([[0.5]], 0.0, 0.0, 0.0, 0.0), term([[1.0]], 0.8, 0.0, 0.0, 0.0)),
    (term([[1.0, 0.3], [0.3, 0.8]], 0.5, 0.4, 0.0, 0.0), term([[0.6, -0.2], [-0.2, 1.2]], 0.3, -0.6, 0.0, 0.0)),
)
LATER = (TERMS[0], (TERMS[1][0], term([[1.0]], 0.8, 0.0, 0.5, 0.0)), TERMS[2])  # the mass of v depends on x_1


def mass(terms, q):
    """Return M_b."""
    return sum(np.exp(c @ q) * S for S, c in terms)


def derivative(terms, q):
    """Return the derivatives of M_b by all coordinates, (4, n, n)."""
    return sum(np.exp(c @ q) * c[:, None, None] * S for S, c in terms)


def energy(q, p, blocks=TERMS, log_det=0.5):
    H = potential(q)
    for terms, block in zip(blocks, BLOCKS, strict=True):
        M = mass(terms, q)
        H = H + log_det * np.linalg.slogdet(M)[1] + 0.5 * p[block] @ np.linalg.solve(M, p[block])
    return H


def metric(q):
    G = np.zeros((4, 4))
    for terms, block in zip(TERMS, BLOCKS, strict=True):
        G[block, block] = mass(terms, q)
    return G


# ---------------------------------------------------------------------------------------------------------------- the step


def block_leapfrog(blocks=TERMS, orders=(DOWN, UP), stale=False, log_det=0.5, kinetic=0.5, known=slice(None)):
    """Return a step, which is right by default.

    ``orders`` has the blocks of the two halves. With ``stale`` all flows of a half use the matrices of its start. ``log_det``
    and ``kinetic`` are factors of the force. Only the terms ``known`` of M_b contribute to its derivative.
    """

    def kick(q, p, t):
        slope = -force(q)
        for terms in blocks:
            inverse = np.linalg.inv(mass(terms, q))
            slope = slope + log_det * np.einsum("ij,kji->k", inverse, derivative(terms[known], q))
        return p - t * slope

    def flow(b, at, q, p, t):
        block, q, p = BLOCKS[b], q.copy(), p.copy()
        v = np.linalg.solve(mass(blocks[b], at), p[block])
        slope = np.einsum("i,kij,j->k", v, derivative(blocks[b][known], at), v)
        q[block] += t * v
        p[: block.start] += t * kinetic * slope[: block.start]
        return q, p

    def step(q, p, eps):
        p = kick(q, p, 0.5 * eps)
        for order in orders:
            at = q
            for b in order:
                q, p = flow(b, at if stale else q, q, p, 0.5 * eps)
        return q, kick(q, p, 0.5 * eps)

    return step


# ------------------------------------------------------------------------------------------------------ momenta and kernel


def momentum(q, z):
    return np.linalg.cholesky(metric(q)) @ z


def momentum_of_inverse(q, z):
    return np.linalg.cholesky(np.linalg.inv(metric(q))) @ z


def hmc(momentum=momentum, log_det=0.5):
    """Return HMC with one step and a momentum from standard normals; ``log_det`` is the factor in energy and force."""
    step = block_leapfrog(log_det=log_det)

    def kernel(draws, q):
        p = momentum(q, draws.normal(4))
        new_q, new_p = step(q, p, 0.7)
        change = energy(q, p, log_det=log_det) - energy(new_q, new_p, log_det=log_det)
        return new_q if math.log(draws.uniform()) < change else q

    return kernel


# ------------------------------------------------------------------------------------------------------------------- pairs


def of_step(blocks=TERMS, **bug):
    return lambda seed: rc.integrator(
        block_leapfrog(blocks, **bug), lambda q, p: energy(q, p, blocks), dim=4, tolerance=0.0, seed=seed
    )


def of_metric(momentum=momentum, **bug):
    given = {"draw_p": lambda rng, q: momentum(q, rng.standard_normal(4)), "H": lambda q, p: energy(q, p, **bug)}
    return lambda seed: rc.metric(metric, **given, logp=lambda q: -potential(q), dim=4, seed=seed)


def of_kernel(**bug):
    return lambda seed: rc.transition(hmc(**bug), lambda q: -potential(q), dim=4, seed=seed, seconds=240.0, n_points=1)


RIGHT, RIGHT_HMC = functools.cache(of_step()), functools.cache(of_kernel())
MAP, BALANCE = ("symplectic",), ("detailed balance", "acceptance")
PAIRS: list[Pair] = [
    Pair("log-det", "1/2 log det M missing in the energy", of_metric(log_det=0.0), of_metric(), ("energy",)),
    Pair(
        "log-det-force",
        "the derivative of 1/2 log det M missing in the force",
        of_step(log_det=0.0),
        RIGHT,
        ("order",),
        "inefficient",
    ),
    Pair(
        "order",
        "earlier blocks move first, with the matrices of the start",
        of_step(orders=(UP, UP), stale=True),
        RIGHT,
        MAP,
    ),
    Pair("stale", "the second half uses the matrices of the first", of_step(stale=True), RIGHT, MAP),
    Pair(
        "one-way", "both halves from the last block to the first", of_step(orders=(DOWN, DOWN)), RIGHT, ("reversible",)
    ),
    Pair("later", "a mass depends on a later block, and its derivative is ignored", of_step(LATER), RIGHT, MAP),
    Pair(
        "momentum", "momentum drawn with M^-1", of_metric(momentum_of_inverse), of_metric(), ("momentum distribution",)
    ),
    Pair("sign", "the kinetic force has the wrong sign", of_step(kinetic=-0.5), RIGHT, MAP),
    Pair("half", "the kinetic force lacks the factor 1/2", of_step(kinetic=1.0), RIGHT, MAP),
    Pair("term", "the derivative of the second term of M is missing", of_step(known=slice(1)), RIGHT, MAP),
    Pair(
        "log-det-kernel",
        "1/2 log det M missing in the energy and its force",
        of_kernel(log_det=0.0),
        RIGHT_HMC,
        BALANCE,
    ),
    Pair(
        "momentum-kernel",
        "momentum drawn with M^-1, in transitions",
        of_kernel(momentum=momentum_of_inverse),
        RIGHT_HMC,
        BALANCE,
    ),
]

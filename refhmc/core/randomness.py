"""The random numbers of a kernel, and the order in which they are used.

A transition takes ``(rng, tape, cursor)``. With an empty tape, all uniforms come from the generator. Otherwise they are read
from the tape in order, so that refhmc or another sampler can replay a transition with recorded randomness. If a uniform is
compared with a probability, the probability replaces it on the tape. The order is part of the specification::

    every transition   d standard normals z for the momentum (p = z (M^-1)^-1/2 or L^-T z; p = R z on a metric that depends on
                       the position, with the root R given in the metric's docstring)
    RandomizedSplit    after the normals, M - 1 uniforms for the order of the M parts, one for each k = M - 1, ..., 1, as DHMC
    HMC                one uniform for the step's jitter (only if jitter > 0); one for the length's (only if
                       length_jitter > 0); one for the acceptance, always
    GHMC               one uniform for the step's jitter, as for HMC; one for the acceptance, or with a slice_shift one for
                       the slice variable u = 2v - 1, in the first transition only. A tape contains the normals z, of which
                       the momentum's refreshment is made, unchanged before the uniforms
    DRHMC              the uniforms of the jitters as for HMC; one for the acceptance of each stage that is reached. A tape
                       contains the normals z before the uniforms
    MALT               one uniform for the step's jitter, as for HMC; before each step but the first, d standard normals for the
                       refreshment (a tape contains them unchanged, in their places); one for the acceptance, always
    MAMS               as HMC. With a persistence a tape contains the normals z before the uniforms
    MCLMC              d standard normals for the refreshment before each step (a tape contains them unchanged)
    GIST               one uniform for the number of steps, and one for the acceptance, always
    AutoStep           two uniforms for the thresholds, and one for the acceptance, always
    DHMC               the uniforms of the jitters as for HMC; before each step, for the order of its n discontinuous
                       coordinates, one for each k = n-1, ..., 1 (entry floor(u (k + 1)) of the order is swapped with
                       entry k); one for the acceptance, always.
                       The discontinuous coordinates use the normals z as p = m sign(z) (-log erfc(|z|/sqrt 2))
    NUTS               for each doubling: one for the direction (forward if u < 1/2); one for each new leaf after the
                       subtree's first (the leaf replaces the subtree's candidate if u < weight / subtree's weight so
                       far); if the subtree is valid, one for the subtree (its candidate becomes the tree's if
                       u < subtree's weight / tree's weight)
    WALNUTS            as NUTS; with extra_halving, also one for each new leaf before that of the leaf itself (one halving
                       more if u < extra_halving), unless no level is accepted
    SGD, SGLD, SGHMC   no momentum, except SGHMC before its first update: d standard normals. Before each pass through the M
                       parts, M - 1 uniforms for their order, as for RandomizedSplit; for each update, d standard normals for
                       its noise (SGD: none). A tape contains these normals unchanged, in their places
    Gibbs              for each block in turn, the randomness of its kernel's transition, with d the block's dimension, and
                       then that of the block's own step-size search if warm-up starts one (before the first, too)
    Tempered           before warm-up, d standard normals for the start at each b between 0 and 1. In each iteration, d standard
                       normals for each replica at b = 0; for each of the others, as a block of Gibbs; then one uniform for
                       each pair of the iteration's parity, from the first reference on
    step-size search   d standard normals for each step size it tries; DHMC's search for a jump size uses none

The generator of chain k is PCG64(SeedSequence(entropy, spawn_key=(k,))). A random start is drawn from it first, uniform on
(-2, 2) for each coordinate. It is drawn again, up to 100 times, if the density or its gradient is not finite, or if a
position-dependent metric is not positive definite. With init="pathfinder", the generator's first child, spawn_key=(k, 0),
provides 25 d standard normals at each iterate of the path, then d for each attempt at a start; the generator itself is not used
for these. The groups that a model generates from draws have further children
(:mod:`~refhmc.sampling.results.generated_quantities`).
"""

from __future__ import annotations

import numpy as np

from refhmc.compile.compiled import jit, jit_inline


@jit_inline
def uniform(randomness: tuple) -> float:
    """Return the next uniform on [0, 1), from the tape if there is one, or from the generator."""
    rng, tape, cursor = randomness
    if tape.shape[0] == 0:
        return rng.random()
    if cursor[0] >= tape.shape[0]:
        raise IndexError("uniforms must have as many numbers as the transition uses; got too few. Give more.")
    cursor[0] += 1
    return tape[cursor[0] - 1]


@jit_inline
def bernoulli(randomness: tuple, probability: float) -> bool:
    """Return True with this probability, which replaces the uniform on a tape; the only random decision of kernels."""
    _, tape, cursor = randomness
    u = uniform(randomness)
    if tape.shape[0] > 0:
        tape[cursor[0] - 1] = probability
    return u < probability


@jit
def fill_normals(rng: np.random.Generator, out: np.ndarray) -> None:
    """Fill `out` with standard normals from the generator, first coordinate first."""
    for i in range(out.shape[0]):
        out[i] = rng.standard_normal()


@jit
def next_normals(randomness: tuple, out: np.ndarray) -> None:
    """Fill `out` with standard normals, first coordinate first, from the tape if there is one, or from the generator."""
    if randomness[1].shape[0] == 0:
        fill_normals(randomness[0], out)
    else:
        for i in range(out.shape[0]):
            out[i] = uniform(randomness)


@jit
def draw_order(randomness: tuple, n: int, rows: np.ndarray) -> None:
    """Write a uniform permutation of 0, ..., n - 1 into the last of the rows (k, d), with d numbers per row.

    (Fisher and Yates, with one uniform for each k = n - 1, ..., 1: entry floor(u (k + 1)) is swapped with entry k.)
    """
    d = rows.shape[1]
    order = rows[rows.shape[0] + -n // d :]
    for k in range(n):
        order[k // d, k % d] = k
    for k in range(n - 1, 0, -1):
        j = min(int(uniform(randomness) * (k + 1)), k)
        order[j // d, j % d], order[k // d, k % d] = order[k // d, k % d], order[j // d, j % d]

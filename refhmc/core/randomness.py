"""Where a kernel's random numbers come from, and in which order they are asked for.

A transition takes ``(rng, tape, cursor)``. With an empty tape every uniform comes from the generator; otherwise they are
read from the tape, in order, so that a transition can be replayed on recorded randomness, by refhmc or by another
sampler; where one was compared with a probability, that is left in its place. The order is part of the specification:

every transition   d standard normals z, the momentum is made from them (p = z (M^-1)^-1/2 or L^-T z;
                   on a metric that depends on the position, p = R z with the root R its text names)
RandomizedSplit    after the normals M - 1 uniforms for the order of the M parts, one for each k = M - 1, ..., 1, as for DHMC
HMC                one uniform for the step's jitter (only if jitter > 0); one for the length's (only if length_jitter > 0);
                   one for the acceptance, always
DHMC               the jitters' uniforms as for HMC; before each step, for the order of its n discontinuous coordinates, one
                   for each k = n-1, ..., 1 (entry floor(u (k + 1)) of the order changes places with entry k); one for the
                   acceptance, always.
                   Of the momentum's normals z the discontinuous coordinates make p = m sign(z) (-log erfc(|z|/sqrt 2))
NUTS               for each doubling: one for the direction (forward if u < 1/2); one for each new leaf after the
                   subtree's first (the leaf replaces the subtree's candidate if u < weight / subtree's weight so
                   far); if the subtree is valid, one for the subtree (its candidate becomes the tree's if
                   u < subtree's weight / tree's weight)
SGD, SGLD, SGHMC   no momentum is drawn, but SGHMC's before its first update: d standard normals. Before each pass through the M
                   parts M - 1 uniforms for their order, as for RandomizedSplit; for each update d standard normals for its
                   noise (SGD: none). A tape has these normals, too, as they are, in their places
Gibbs              for each block in turn, the randomness of its kernel's transition with d the block's dimension, and
                   after it that of the block's own step-size search where warm-up starts one (before the first, too)
step-size search   d standard normals for each step size it tries; DHMC's search for a jump size asks for none

A chain's generator is PCG64(SeedSequence(entropy, spawn_key=(k,))) for chain k; a random start is drawn from it first,
uniform on (-2, 2) for each coordinate, all again (up to 100 times) while the density or its gradient is not finite there, or
a metric that depends on the position is not positive definite. With init="pathfinder" its first child, spawn_key=(k, 0), is
asked for 25 d standard normals at each iterate of the path, then for d at each try of a start; its own is not asked for them.
Groups that a model generates from draws have further children (:mod:`refhmc.sampling.generation`).
"""

from __future__ import annotations

import numpy as np

from refhmc.core.compiled import jit, jit_inline


@jit_inline
def uniform(randomness: tuple) -> float:
    """The next uniform on [0, 1): from the tape if there is one, else from the generator."""
    rng, tape, cursor = randomness
    if tape.shape[0] == 0:
        return rng.random()
    if cursor[0] >= tape.shape[0]:
        raise IndexError("the tape of recorded uniforms is too short for this transition")
    cursor[0] += 1
    return tape[cursor[0] - 1]


@jit_inline
def bernoulli(randomness: tuple, probability: float) -> bool:
    """True with that probability: the one place where a kernel decides anything. A tape is left with it."""
    _, tape, cursor = randomness
    u = uniform(randomness)
    if tape.shape[0] > 0:
        tape[cursor[0] - 1] = probability
    return u < probability


@jit
def fill_normals(rng: np.random.Generator, out: np.ndarray) -> None:
    """Standard normals from the generator, first coordinate first."""
    for i in range(out.shape[0]):
        out[i] = rng.standard_normal()


@jit
def next_normals(randomness: tuple, out: np.ndarray) -> None:
    """Standard normals, first coordinate first: from the tape if there is one, else from the generator."""
    if randomness[1].shape[0] == 0:
        fill_normals(randomness[0], out)
    else:
        for i in range(out.shape[0]):
            out[i] = uniform(randomness)

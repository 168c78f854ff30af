"""One step of whichever integrator: the leapfrog's own text where that is the one, else through its pointer."""

from __future__ import annotations

from refhmc.compiled import jit_inline
from refhmc.integrators.leapfrog import leapfrog


@jit_inline
def advance(dynamics, model, z, eps, vecs, mats):
    """Move the point ``z`` by one step of signed size ``eps``; returns the energy there."""
    if dynamics[0] == 1:
        energy = leapfrog(model, z, eps, vecs, mats)
    else:
        energy = dynamics[2](model, z, eps, vecs, mats)
    return energy

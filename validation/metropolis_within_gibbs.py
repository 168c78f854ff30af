"""Plain random-walk Metropolis within Gibbs on the coordinates of a refhmc model: what DHMC is held against.

A sweep offers each coordinate in turn a normal step and accepts it by the ratio of the densities; the scale of each
coordinate's step is moved in the warm-up towards 44 % of acceptances (Robbins and Monro). Discontinuous coordinates ask the
model for the change of its log density, the others for the log density at the proposal: one call a coordinate either way.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

import refhmc

WANTED = 0.44


class Sweeps(NamedTuple):
    """``draws`` (chain, sweep, d); accepted shares and step scales (chain, d); calls of density or change in a sweep."""

    draws: np.ndarray
    accepted: np.ndarray
    scales: np.ndarray
    calls: int


@numba.njit(nogil=True)
def _run(log_density, change, data, q, jumps, rng, scales, draws, tune):
    d = q.shape[0]
    accepted = np.zeros(d)
    L = log_density(q, data)
    for k in range(tune + draws.shape[0]):
        for j in range(d):
            old = q[j]
            new = old + scales[j] * rng.standard_normal()
            if jumps[j]:
                more = change(q, data, j, new)
            else:
                q[j] = new
                more = log_density(q, data) - L
                q[j] = old
            if np.log(rng.random()) < more:
                q[j] = new
                L += more
            if k < tune:
                scales[j] *= np.exp((min(1.0, np.exp(more)) - WANTED) / (1 + k) ** 0.6)
            else:
                accepted[j] += q[j] == new
        L = log_density(q, data)  # once a sweep, against the rounding of the sum; not counted
        if k >= tune:
            draws[k - tune] = q
    return accepted / draws.shape[0]


def sample(model: refhmc.Model, *, sweeps: int, tune: int, starts: np.ndarray, seed: int) -> Sweeps:
    """One chain from each row of ``starts`` (chains, d), each with a stream of its own."""
    jumps = np.zeros(model.dim, dtype=bool)
    jumps[model.discontinuous] = True
    log_density, change = (getattr(model.functions, key) for key in ("log_density", "log_density_change"))
    chains = []
    for start, stream in zip(starts, np.random.SeedSequence(seed).spawn(len(starts)), strict=True):
        scales, draws = np.full(model.dim, 0.5), np.empty((sweeps, model.dim))
        rng = np.random.Generator(np.random.PCG64(stream))
        accepted = _run(log_density, change, model.core.data, start.copy(), jumps, rng, scales, draws, tune)
        chains.append((draws, accepted, scales))
    return Sweeps(*(np.stack(part) for part in zip(*chains, strict=True)), calls=model.dim)

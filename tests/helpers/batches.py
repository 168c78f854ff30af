"""What the tests of many chains share: chains at given positions, their transitions, their numbers by NumPy's own Philox."""

from __future__ import annotations

import numpy as np

from refhmc.batch.chains import Chains, run
from refhmc.batch.draw import TRANSITIONS, mover_for
from refhmc.batch.memory import Remembering
from refhmc.batch.streams import Streams, keys_of, normals_of
from refhmc.integrators.defaults import resolve
from refhmc.models.model_on_arrays import ModelOnArrays


def chains_at(model, kernel, q, entropy, numbers=None, text=None):
    """Chains ``numbers`` (0, 1, ... by default) of the seed at the rows of q, and their transitions."""
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    remembering = Remembering(ModelOnArrays(model) if text is None else text)
    mover = mover_for(kernel, metric, integrator, remembering)
    n = len(q)
    numbers = np.arange(n) if numbers is None else np.asarray(numbers)
    streams = Streams(keys_of(entropy, int(numbers.max()) + 1)[numbers])
    L, g = remembering.value_and_gradient(q.copy())
    chains = Chains(q.copy(), L.copy(), g.copy(), np.full(n, float(kernel.step_size)), np.zeros(n, np.int64), streams)
    return chains, TRANSITIONS[kernel.name](chains, mover, kernel)


def made(chains, transitions, n):
    """Draws (chain, n, d) and statistics by name, (chain, n)."""
    m, d = chains.q.shape
    draws, stats, done = np.full((m, n, d), np.nan), {}, np.zeros(m, np.int64)

    def ended(rows, found):
        draws[rows, done[rows]] = chains.q[rows]
        for name, values in found.items():
            stats.setdefault(name, np.full((m, n), np.nan))[rows, done[rows]] = values
        done[rows] += 1

    with np.errstate(all="ignore"):
        run(transitions, chains, n, ended)
    return draws, stats


def numbers_of_numpy(entropy, chain, t, purpose, n):
    key = np.random.SeedSequence(entropy, spawn_key=(chain,)).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, t, purpose, 0])).random(n)


def normals_of_numpy(entropy, chain, t, purpose, d):
    return normals_of(numbers_of_numpy(entropy, chain, t, purpose, d + d % 2))[:d]

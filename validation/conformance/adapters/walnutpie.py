"""walnutpie: whole runs with warm-up; the last draw of each chain is a draw from the target if the chain has converged."""

from __future__ import annotations

import numba
import numpy as np
import walnutpie
from numba import types

import refhmc.check as rc
from validation.conformance.subjects import Subject

PACKAGES = ("walnutpie",)
SECONDS = 25  # of processor time per subject
CHAINS = 64


@numba.njit
def quartic(q, gradient):
    total = 0.0
    for i in range(len(q)):
        gradient[i] = -(q[i] ** 3)
        total -= 0.25 * q[i] ** 4
    return total


@numba.njit
def banana(q, gradient):
    r = 1 - q[0] - q[1] ** 2
    gradient[0] = 25 * r - 0.25 * q[0]
    gradient[1] = (50 * r - 0.25) * q[1]
    return -12.5 * r * r - 0.125 * (q[0] ** 2 + q[1] ** 2)


def callback(density, dim):
    """Compile a log density with its gradient to the C function that walnutpie takes."""
    doubles = types.CPointer(types.float64)

    @numba.cfunc(types.int32(types.uintp, doubles, doubles, doubles, types.voidptr))
    def compiled(n, q, gradient, value, data):
        value[0] = density(numba.carray(q, (dim,)), numba.carray(gradient, (dim,)))
        return 0

    return compiled


def runs(density, dim):
    """Adapt runs of walnutpie to ``kernel(rng, q) -> q`` for an array of chains; q is only the number of chains."""
    compiled = callback(density, dim)

    def kernel(rng, q):
        draws = walnutpie.walnuts_pyfunc(
            compiled,
            num_params=dim,
            num_chains=len(q),
            seed=int(rng.integers(2**31)),
            min_warmup_iter=1500,
            max_warmup_iter=1500,
            min_sampling_iter=500,
            max_sampling_iter=500,
        )
        return np.stack([chain[-1] for chain in draws])

    return kernel


def subject(name):

    def examine():
        return rc.sampler(
            runs(TARGETS[name], 2),
            name,
            seconds=SECONDS,
            batched=True,
            chains=CHAINS,
            transitions=1,
            name="walnutpie.walnuts_pyfunc",
            seconds_per_call=None,
        )

    call = "walnutpie.walnuts_pyfunc(compiled_density, max_warmup_iter=1500, max_sampling_iter=500, ...)"
    return Subject(f"walnuts_pyfunc, {name}", call, examine, (runs, callback))


TARGETS = {"quartic-2": quartic, "banana": banana}
SUBJECTS = [subject(name) for name in TARGETS]

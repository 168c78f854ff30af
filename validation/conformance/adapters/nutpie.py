"""nutpie: whole runs with warm-up; the last draw of each chain is a draw from the target if the chain has converged."""

from __future__ import annotations

import numpy as np
import nutpie

import refhmc.check as rc
from validation.conformance.adapters.pymc import model_of
from validation.conformance.subjects import Subject

PACKAGES = ("nutpie", "pymc")
SECONDS = 20  # of processor time per subject
CHAINS = 64


def runs(target, **options):
    """Adapt runs of nutpie to ``kernel(rng, q) -> q`` for an array of chains; q is only the number of chains."""
    compiled = nutpie.compile_pymc_model(model_of(target))

    def kernel(rng, q):
        trace = nutpie.sample(
            compiled, draws=300, tune=800, chains=len(q), seed=int(rng.integers(2**31)), progress_bar=False, **options
        )
        return np.asarray(trace.posterior["q"])[:, -1]

    return kernel


def subject(target, adaptation):
    def examine():
        kernel = runs(target, adaptation=adaptation)
        return rc.sampler(
            kernel,
            target,
            seconds=SECONDS,
            batched=True,
            chains=CHAINS,
            transitions=1,
            name="nutpie.sample",
            seconds_per_call=None,
        )

    call = f'nutpie.sample(model, draws=300, tune=800, adaptation="{adaptation}")'
    return Subject(f"nutpie.sample, {adaptation}, {target}", call, examine, (runs, model_of))


SUBJECTS = [subject(target, adaptation) for target in ("quartic-2", "banana") for adaptation in ("diag", "low_rank")]

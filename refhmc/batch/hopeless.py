"""End the warm-up of many chains if their starts were hopeless (:mod:`refhmc.adaptation.symptoms`).

Chains learn a metric together, so that a lost one spoils the others. The run ends if at least half of them are lost, without
a second attempt, since Pathfinder is a part of the compiled core.
"""

from __future__ import annotations

import numpy as np

from refhmc.adaptation.symptoms import (
    FEWEST,
    WHAT_TO_DO,
    are_frozen,
    are_unresolved,
    frozen,
    typical_step,
    unresolved,
)
from refhmc.batch.backends import to_host
from refhmc.batch.chains import Chains
from refhmc.errors import WarmupError
from refhmc.metrics.base import ConstantMetric

FIRST_LOOK = 250  # iterations of warm-up


def is_time(stop: int, tune: int) -> bool:
    """Return whether chains are looked at after the phase of warm-up that ends at iteration ``stop``."""
    return stop >= FIRST_LOOK or stop == tune >= FEWEST


def refuse_hopeless(chains: Chains, metric: ConstantMetric, leapfrog: bool, done: int, tune: int) -> None:
    """Raise WarmupError if at least half of the chains are lost. ``leapfrog``: their steps are those of a constant metric."""
    q, g, L, step_size = (to_host(each) for each in (chains.q, chains.gradient, chains.log_density, chains.step_size))
    lost, step = are_unresolved(L) & (done >= tune), np.full(q.shape, np.inf)
    if leapfrog:
        inverse_mass = metric.inverse_mass(q.shape[1])
        variances = np.diag(inverse_mass) if inverse_mass.ndim == 2 else inverse_mass
        step = typical_step(variances, step_size[:, None], g)
        still = are_frozen(q, step)
        lost = lost | still.all(axis=1) | (still.any(axis=1) & (done >= tune))
    if 2 * lost.sum() < len(q):
        return
    k = int(np.flatnonzero(lost)[0])
    symptom = frozen([f"q[{i}]" for i in range(q.shape[1])], q[k], step[k]) or unresolved(float(L[k]))
    assert symptom is not None
    raise WarmupError(
        f"{lost.sum()} of {len(q)} chains are lost after {done} iterations of warm-up: in chain {k}, {symptom.text}. "
        f"{WHAT_TO_DO}.",
        k,
    )

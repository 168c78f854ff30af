"""Reversibility of a random step in distribution, for ``check.integrator``.

    P(z -> z') = P(F z' -> F z),    F(q, p) = (q, -p)

Each side is summed over all outcomes of the step's discrete random numbers. A step that also draws continuous numbers is
reversed with the same numbers and with their mirror images; if neither leads back, there is no answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.check.integrators.examination import IntegratorExamination, allowance
from refhmc.check.judging import judged
from refhmc.check.report import NOT_RUN, Row
from refhmc.check.subject.foreign import Inconclusive
from refhmc.check.subject.step import StepOutcome, step_outcomes


def reversible_in_law(test: IntegratorExamination) -> Row:
    """Compare the probability of all outcomes from z to z' with that of the reverse outcomes."""
    found: list[tuple[float, np.ndarray]] = []
    real = False
    for stream, z in enumerate(test.points[:3]):
        test.step.stream = stream
        try:
            outcomes = step_outcomes(test.step, z, test.eps)
            real = real or outcomes[0].continuous
            for z_new, there in _grouped(test, outcomes, z):
                ways = (_way_back(test, z_new, z, m) for m in ((False, True) if outcomes[0].continuous else (False,)))
                found.append((min(there, *(abs(back - there) for back in ways)), z))
        finally:
            test.step.stream = 0
    if not found:
        raise Inconclusive("no outcome had a finite end")
    apart, z = max(found, key=lambda pair: pair[0])
    basis = f"|P(z -> z') - P(Fz' -> Fz)| over all outcomes of its random numbers, {len(found)} pairs"
    if "reversible" not in test.claims:
        return Row("", NOT_RUN, apart, basis="not claimed; " + basis)
    if apart > 1e-9 and real:
        raise Inconclusive("no reverse step with the same continuous random numbers, nor with their mirror images")
    return judged(apart, 1e-9, basis, test.step.case(z, test.eps))


def _way_back(test: IntegratorExamination, z_new: np.ndarray, z: np.ndarray, mirrored: bool) -> float:
    """Return P(F z' -> F z)."""
    outcomes = step_outcomes(test.step, test.flip(z_new), test.eps, mirrored=mirrored)
    return sum(x.probability for x in outcomes if test.apart(test.flip(x.z), z, z) <= _same(test, z))


def _same(test: IntegratorExamination, z: np.ndarray) -> float:
    J = test.jacobian(z, test.eps, 1)
    growth = 1.0 if J is None else J.growth
    slack = 64 * test.unit * (1 + growth) ** 2 + 20 * (1 + growth) * test.noise(z, test.eps, 1)
    return max(slack + allowance(1, growth, test.delta), 1e-9 if test.delta is None else 0.0)


def _grouped(test: IntegratorExamination, outcomes: list[StepOutcome], z: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Return equal ends merged, with their probabilities."""
    groups: list[list[Any]] = []
    for outcome in outcomes:
        if not np.isfinite(outcome.z).all():
            continue
        for group in groups:
            if test.apart(group[0], outcome.z, z) <= _same(test, z):
                group[1] += outcome.probability
                break
        else:
            groups.append([outcome.z, outcome.probability])
    return [(end, probability) for end, probability in groups]

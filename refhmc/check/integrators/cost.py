"""Cost of a step for ``check.integrator``: the author's counter over ten steps of a running trajectory."""

from __future__ import annotations

from refhmc.check.integrators.examination import IntegratorExamination
from refhmc.check.judging import judged
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable

BEGUN, MORE = 2, 10  # steps


def evaluations(test: IntegratorExamination) -> Row:
    """Compare the evaluations per step with the claim; evaluations repeated at a known point count again."""
    test.need()
    if test.counter is None or "evaluations" not in test.claims:
        raise NotApplicable("no counter was given" if test.counter is None else "no number of evaluations is claimed")
    z, counts = test.points[0], []
    for n in (BEGUN, BEGUN + MORE):
        before = test.counter.number()
        test.step(z, test.eps, n)
        counts.append(test.counter.number() - before)
    a_step = (counts[1] - counts[0]) / MORE
    if counts[1] <= 0:
        raise Inconclusive("the counter did not increase")
    basis = f"evaluations per step, over {MORE} steps after the first {BEGUN}"
    return judged(a_step, test.claims["evaluations"], basis, test.step.case(z, test.eps, BEGUN + MORE))

"""Reversal of a step that draws: in law, for ``check.integrator``.

    P(z -> z') = P(F z' -> F z),    F(q, p) = (q, -p)

each side summed over all the ways in which the step's discrete draws can fall out and that lead there. A step that also draws
real numbers is tried back with the same numbers and with their mirror images; if neither leads back nothing is said.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.check.integrators.examination import Examination, allowance
from refhmc.check.report import NOT_RUN, Row, judged
from refhmc.check.subject.foreign import Undecided
from refhmc.check.subject.step import TooMany, leaves


def reversible_in_law(test: Examination) -> Row:
    """For a step that draws: the ways from z to z' have together the probability of the ways back."""
    name, worst, real = "reversible", (0.0, test.points[0]), False
    matches = 0
    for stream, z in enumerate(test.points[:3]):
        test.step.stream = stream
        try:
            ways = list(leaves(test.step, z, test.eps))
            for z_new, there in _grouped(test, ways, z):
                back = 0.0
                for mirrored in (False, True) if ways[0].continuous else (False,):
                    home = [
                        leaf.probability
                        for leaf in leaves(test.step, test.flip(z_new), test.eps, mirrored=mirrored)
                        if test.apart(test.flip(leaf.z), z, z) <= _same(test, z)
                    ]
                    back = min((back, sum(home)), key=lambda x: abs(x - there))
                matches += 1
                real = real or ways[0].continuous
                if abs(back - there) > worst[0]:
                    worst = (abs(back - there), z)
        except TooMany as why:
            raise Undecided(str(why)) from None
        finally:
            test.step.stream = 0
    if matches == 0:
        raise Undecided("no way had a finite end")
    apart, z = worst
    basis = f"|P(z -> z') - P(Fz' -> Fz)| over all ways its draws fall out, {matches} pairs"
    if "reversible" not in test.claims:
        return Row(name, NOT_RUN, apart, basis="not claimed; " + basis)
    if apart > 1e-9 and real:
        raise Undecided("no way back with the same real numbers drawn, nor with their mirror images")
    return judged(name, apart, 1e-9, basis, case=test.step.case(z, test.eps))


def _same(test: Examination, z) -> float:
    J = test.jacobian(z, test.eps, 1)
    growth = 1.0 if J is None else J.growth
    slack = 64 * test.unit * (1 + growth) ** 2 + 20 * (1 + growth) * test.noise(z, test.eps, 1)
    return max(slack + allowance(1, growth, test.delta), 1e-9 if test.delta is None else 0.0)


def _grouped(test: Examination, ways, z) -> list[tuple[np.ndarray, float]]:
    """Ends that agree taken together, with their probabilities."""
    groups: list[list[Any]] = []
    for leaf in ways:
        if not np.isfinite(leaf.z).all():
            continue
        for group in groups:
            if test.apart(group[0], leaf.z, z) <= _same(test, z):
                group[1] += leaf.probability
                break
        else:
            groups.append([leaf.z, leaf.probability])
    return [(end, probability) for end, probability in groups]

"""Properties that the author of a step declares, for ``check.integrator``.

    invariants      I(S^10 z) = I(z)              functions of (q, p)
    equivariance    S^3 A z = A S^3 z             A = (a map of q, a map of p)

The tolerance is rounding, times the slope of I or the growth |J|^3, plus the error that a solver may leave.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from refhmc.check.integrators.examination import IntegratorExamination, allowance
from refhmc.check.judging import Cases, Measured
from refhmc.check.own import differences
from refhmc.check.subject.foreign import Foreign, NotApplicable


def conserved(test: IntegratorExamination) -> Cases:
    """Yield the change of the declared invariants over ten steps."""
    test.need()
    if not test.invariants:
        raise NotApplicable("none declared")
    d = test.d
    for label, f in test.invariants.items():
        for z in test.points:
            end = test.step.quiet(z, test.eps, 10)
            J = test.jacobian(z, test.eps, 1)
            if not np.isfinite(end).all() or J is None:
                continue
            before, after = (f.number(x[:d], x[d:]) for x in (z, end))
            slope = np.abs(differences.jacobian(functools.partial(_of_state, f, d), end).value).ravel()
            size = abs(before) + float(slope @ np.abs(end))
            noise = test.noise(z, test.eps, 10) * float(slope @ test.scale(z, end))
            limit = 1000 * test.unit * size + 20 * noise
            limit += allowance(10, J.growth, test.delta or test.floor) * float(slope.sum())
            yield Measured(abs(after - before), limit, f"{test.step.case(z, test.eps, 10)}  # {label}")
    return "rounding x the invariant's slope"


def equivariance(test: IntegratorExamination) -> Cases:
    """Yield the defect of the declared symmetries A, S A = A S."""
    test.need()
    if not test.symmetries:
        raise NotApplicable("none declared")
    for k, (on_q, on_p) in enumerate(test.symmetries):

        def moved(x: np.ndarray, on_q: Callable = on_q, on_p: Callable = on_p) -> np.ndarray:
            q, p = np.split(x.copy(), 2)
            return np.concatenate([np.asarray(on_q(q)), np.asarray(on_p(p))]).astype(float)

        for z in test.points:
            J = test.jacobian(z, test.eps, 1)
            ends = test.step.quiet(z, test.eps, 3), test.step.quiet(moved(z), test.eps, 3)
            if J is None or not np.isfinite(ends).all():
                continue
            growth = J.growth**3
            limit = 1000 * test.unit * (1 + growth) + 20 * (1 + growth) * test.noise(z, test.eps, 3)
            limit += allowance(3, growth, test.delta or test.floor)
            size = test.apart(moved(ends[0]), ends[1], z)
            yield Measured(size, limit, f"{test.step.case(z, test.eps, 3)}  # symmetry {k}")
    return "rounding x |J|"


def _of_state(f: Foreign, d: int, z: np.ndarray) -> np.ndarray:
    return f.vector((), z[:d], z[d:]).reshape(1)

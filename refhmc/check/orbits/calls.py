"""First calls of ``check.orbit``: whether there is an orbit, and the signature of the transition.

    leap reversible    leap^-1 leap z = z, with the inverse by a negative step or by reversing the momentum
    answers            a position, and the same one for the same random numbers: otherwise they cannot be enumerated

The first holds to 2^16 units of rounding. The transition is tried with several orders of arguments, with and without p.
"""

from __future__ import annotations

import numpy as np

from refhmc.check.judging import passed
from refhmc.check.orbits import states
from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.law import OrbitTransition
from refhmc.check.orbits.shapes import shapes_of
from refhmc.check.report import Row
from refhmc.check.subject.draws import Draws
from refhmc.check.subject.enumeration import Answers
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, SubjectError
from refhmc.check.subject.shapes import CallShape, first_working

Points = list[tuple[np.ndarray, np.ndarray]]


def leap_reversible(test: OrbitExamination) -> Row:
    """Check that the map and its inverse cancel, since otherwise there is no orbit."""
    phase_map = test.prepare()
    worst, tolerance = 0.0, 0.0
    for q, p in test.test_points():
        for eps in test.list_of_eps:
            orbit = states.measured(phase_map, states.orbit_through(phase_map, q, p, 2, eps))
            if test.leap.by_sign and not _undone(test, orbit) and eps is not None:
                test.leap.by_sign = False
                turned = states.measured(phase_map, states.orbit_through(phase_map, q, p, 2, eps))
                orbit = turned if _undone(test, turned) else orbit
            size = float(np.nanmax(np.abs(orbit.q)))
            error = (orbit.near - 4096 * phase_map.unit * size) / 100
            worst, tolerance = max(worst, error / size), max(tolerance, 1e-9, 2.0**16 * phase_map.unit)
    if not worst <= tolerance:
        test.irreversible = True
        way = "a negative step" if test.leap.takes_eps else "reversing the momentum"
        missed = f"miss the start by {worst:.2g} of its size"
        raise Inconclusive(f"leap and its inverse, by {way}, {missed}: there is no orbit to test on")
    return passed("two steps forward and back, relative; 2^16 units of rounding", worst, tolerance)


def _undone(test: OrbitExamination, orbit: states.Orbit) -> bool:
    return orbit.near <= 100 * 1e-9 * float(np.nanmax(np.abs(orbit.q))) * max(1.0, test.prepare().unit / 2.0**-52)


def answers(test: OrbitExamination) -> Row:
    """Find the signature, and check that the transition returns a position, the same one for the same random numbers."""
    test.prepare()
    test_points, depth = test.test_points(), test.depth if test.takes_depth else None
    with np.errstate(all="ignore"):
        test.notes.append(f"called as {_settle(test.subject, test_points, test.list_of_eps[0], depth)}")
        if not _repeats(test.subject, test_points, test.list_of_eps[0], depth):
            why = "the transition has randomness of its own, which cannot be enumerated"
            raise Inconclusive(f"the same random numbers gave different ends: {why}")
    if "p" not in test.subject.shape.order:
        test.notes.append("the first normal numbers are taken as the momentum (unit mass)")
    test.ready = True
    return passed("a position, and the same one for the same random numbers")


def _settle(subject: OrbitTransition, test_points: Points, eps: float | None, depth: int | None) -> str:
    """Find the signature and return it in words; SubjectError if none works."""
    shapes = shapes_of(subject.foreign.function)
    if not shapes:
        raise NotApplicable("a transition must take draws and q, or draws, q and p")

    def works(attempt: tuple[CallShape, bool]) -> None:
        subject.shape, subject.symbolic = attempt
        try:
            for q, p in test_points:
                plain = (Draws(np.random.default_rng(seed)) for seed in range(3))
                for source in (Answers(symbolic=subject.symbolic), *plain):
                    subject.read(subject.call(source, q, p, eps, depth))
        except SubjectError as wrong:
            if isinstance(wrong.__cause__, Inconclusive):
                raise wrong.__cause__ from None
            raise

    (shape, _), _ = first_working(shapes, works, subject.foreign)
    return f"transition({', '.join(shape.order)})" + (" with NumPy's generator" if shape.generator else "")


def _repeats(subject: OrbitTransition, test_points: Points, eps: float | None, depth: int | None) -> bool:
    """Return whether the same answers give the same end, for a few sequences of answers."""
    for q, p in test_points:
        for last in range(4):
            ends = []
            for _ in range(2):
                rng = np.random.default_rng(last)
                at, _, offset = subject.read(subject.call(Draws(rng), q, p, eps, depth))
                ends.append(tuple(at.tolist()) if at is not None else offset)
            if ends[0] != ends[1]:
                return False
    return True

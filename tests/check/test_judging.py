"""Judging of the kit's rows: the worst case counts, NaN is the worst of all, and failing cases are simplified."""

import math

import numpy as np
import pytest

from refhmc.check.examination import rows_of
from refhmc.check.judging import Measured, failed, judged, passed, simplest, worst_of
from refhmc.check.report import CALL_FAILED, INEFFICIENT, WRONG_DISTRIBUTION
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, OutOfTime, SubjectError


def cases(*pairs, basis="of them"):
    """Row function whose cases are known."""
    for k, (error, allowed) in enumerate(pairs):
        yield Measured(error, allowed, f"case {k}")
    return basis


@pytest.mark.parametrize(
    ("pairs", "which", "status"),
    [
        ([(1.0, 4.0), (2.0, 4.0), (1.0, 1.5)], (1.0, 1.5), "PASS"),
        ([(3.0, 1.0), (50.0, 10.0), (5.0, 2.0)], (50.0, 10.0), "FAIL"),
        ([(9.0, 1.0), (math.nan, 1.0), (1e9, 1.0)], (math.nan, 1.0), "FAIL"),
        ([(0.0, 0.0), (1e-300, 0.0)], (1e-300, 0.0), "FAIL"),
        ([(0.0, 0.0), (0.0, 1.0)], (0.0, 0.0), "PASS"),
    ],
)
def test_case_with_largest_excess_is_judged(pairs, which, status):
    row = worst_of(cases(*pairs))
    assert row.status == status
    assert np.array_equal([row.number, row.tolerance], which, equal_nan=True)
    assert row.basis == "of them"
    assert row.case == ("" if status == "PASS" else f"case {pairs.index(which)}")


def test_no_measurement_is_inconclusive():
    with pytest.raises(Inconclusive, match="no finite answer"):
        worst_of(cases())


def test_only_failing_cases_are_simplified():
    asked = []
    assert judged(1.0, 2.0, "", lambda: asked.append("a") or "a").case == ""
    assert judged(3.0, 2.0, "", lambda: asked.append("b") or "b").case == "b"
    assert asked == ["b"]


def test_row_has_name_and_severity_of_its_table_by_default():
    (plain,) = rows_of("a row", lambda: failed("why"), INEFFICIENT)
    assert (plain.name, plain.severity, plain.status) == ("a row", INEFFICIENT, "FAIL")
    (graver,) = rows_of("a row", lambda: failed("why", severity=WRONG_DISTRIBUTION), INEFFICIENT)
    assert graver.severity == WRONG_DISTRIBUTION
    several = rows_of("a row", lambda: [passed("one"), passed("two")._replace(name="another")])
    assert [row.name for row in several] == ["a row", "another"]
    (measured,) = rows_of("a row", lambda: cases((2.0, 1.0)), INEFFICIENT)
    assert (measured.name, measured.severity, measured.case) == ("a row", INEFFICIENT, "case 0")


@pytest.mark.parametrize(
    ("error", "status", "number"),
    [
        (SubjectError("hm", "f(1)"), "FAIL", None),
        (NotApplicable("hm"), "NOT RUN", None),
        (Inconclusive("hm", 3.0), "INCONCLUSIVE", 3.0),
    ],
)
def test_exceptions_of_a_row_are_reported(error, status, number):
    def row():
        yield Measured(0.0, 1.0)
        raise error

    (found,) = rows_of("a row", row)
    assert (found.name, found.status, found.basis, found.number) == ("a row", status, "hm", number)
    assert found.case == ("f(1)" if status == "FAIL" else "")
    assert found.severity == CALL_FAILED or status != "FAIL"


def test_failing_point_is_simplified_while_it_fails():
    def fails(q):
        return q[1] > 0.5

    assert simplest(np.array([3.14159, 2.71828, -1.41421]), fails).tolist() == [0.0, 1.0, 0.0]
    assert simplest(np.array([3.14159, 2.71828, -1.41421]), lambda q: q[1] > 2.5 and q[0] != 0).tolist() == [
        1.0,
        3.0,
        0.0,
    ]


def test_simplification_neither_raises_nor_runs_without_end():
    tried = []

    def raises(q):
        tried.append(q)
        raise (OutOfTime if len(tried) % 2 else ValueError)

    place = np.linspace(2.1, 3.3, 50)
    assert np.array_equal(simplest(place, raises, 12), place)
    assert len(tried) <= 12

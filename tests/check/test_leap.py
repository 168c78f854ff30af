"""``check.leap``: valid maps pass; partial maps, choices and Jacobians that are wrong fail in their row."""

import math

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import leaps as cases


def test_jacobian_on_the_sphere_matches_that_of_angles():
    """In two dimensions u = (cos a, sin a), and the tangent determinant is da'/da."""
    leap = cases.microcanonical()
    q = np.array([0.7, -0.4])

    def moved(angle):
        new_q, u, _ = leap(q, np.array([math.cos(angle), math.sin(angle)]))
        return np.array([*new_q, math.atan2(u[1], u[0])])

    def position(x):
        new_q, u, _ = leap(x, np.array([math.cos(0.9), math.sin(0.9)]))
        return np.array([*new_q, math.atan2(u[1], u[0])])

    h = 1e-5
    columns = [(position(q + h * e) - position(q - h * e)) / (2 * h) for e in np.eye(2)]
    columns.append((moved(0.9 + h) - moved(0.9 - h)) / (2 * h))
    wanted = np.linalg.slogdet(np.stack(columns, axis=-1))[1]
    _, _, declared = leap(q, np.array([math.cos(0.9), math.sin(0.9)]))
    np.testing.assert_allclose(declared, wanted, rtol=1e-6)


def test_wrong_factor_of_the_log_jacobian_is_named():
    report = rc.leap(cases.microcanonical("d - 1 twice"), **cases.VELOCITY)
    assert [row.name for row in report.failures] == ["declared Jacobian"]
    assert "3 times the right one" in report.diagnosis[0]


def test_leap_that_declares_nothing_must_keep_the_volume():
    report = rc.leap(lambda q, p: (2 * q, p) if p[0] > 0 else (q / 2, p), dim=1)
    assert [row.name for row in report.failures] == ["declared Jacobian"]
    assert report.row("same choice").status == "NOT RUN"


def test_number_of_undefined_points_and_the_choices_are_noted():
    report = rc.leap(cases.macro_step(), **cases.MACRO)
    assert report.ok, str(report)
    note = next(note for note in report.notes if "defined at" in note)
    assert "of 400 points; choices" in note


def test_map_that_is_defined_nowhere_is_inconclusive():
    report = rc.leap(lambda q, p: None, dim=2)
    assert report.status == "INCONCLUSIVE"
    assert not report.failures


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda q, p: (q, p, 1.0), "must return None or"),
        (lambda q, p: (q[:1], p), "has shape"),
        (lambda q, p: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_other_answers_are_failed_calls(answer, words):
    report = rc.leap(answer, dim=2)
    assert report.severity == "call failed"
    assert words in str(report)


@pytest.mark.parametrize("wrong", [{"returns": ("q",)}, {"returns": ("q", "p", "r")}, {"dim": 0}, {"seconds": -1.0}])
def test_invalid_arguments_are_rejected(wrong):
    with pytest.raises(ValueError, match="must"):
        rc.leap(lambda q, p: (q, -p), **{"dim": 2, **wrong})


def test_macro_step_of_walnuts_is_a_valid_partial_map():
    model = refhmc.models.Funnel(2)
    kernel = refhmc.WALNUTS(step_size=1.0, max_error=0.3)
    H = refhmc.array_api.hamiltonian(model, refhmc.metrics.Identity())

    def leap(q, p):
        end = kernel.macro_step(H, q, p, 1.0)
        return end if np.isfinite(end).all() else None

    report = rc.leap(leap, dim=model.dim, n_points=60)
    assert report.ok, str(report)
    assert "of 60 points" in report.notes[0]
    assert "defined at 60 of" not in report.notes[0]  # some macro steps are undefined

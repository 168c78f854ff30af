"""``check.integrator``: planted bugs fail in their row, correct code passes even if unusual, and no traceback escapes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.special

import refhmc
import refhmc.check as rc
from refhmc.check.integrators.flow import Energy, leading_term, true_flow
from refhmc.check.integrators.integrator import read_claims
from refhmc.check.mutants import integrators as foreign
from refhmc.check.subject.shapes import CallShape, step_shape
from refhmc.check.subject.step import Step, step_outcomes
from refhmc.integrators import (
    BCSS,
    BlockLeapfrog,
    ExplicitTao,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    McLachlan,
    Omelyan,
    ProjectedTao,
    Suzuki,
    Yoshida,
)
from refhmc.metrics import Fisher, Identity, SoftAbs
from tests.helpers.sweeps import representatives, swept


def failed(report) -> set[str]:
    return {row.name for row in report.failures}


# ----------------------------------------------------------------------------------------------------------- bugs, twins


def test_smallest_case_is_simple_and_fails_when_pasted():
    report = foreign.PAIRS[0].wrong(5)
    case = eval(f"dict({report.row('reversible').case})")
    q, p = np.array(case["q"]), np.array(case["p"])
    assert case["n"] == 1
    assert sum(x != 0 for x in [*q, *p]) <= 2
    end_q, end_p = foreign.one_kick(q, p, case["eps"], 1)
    back_q, _ = foreign.one_kick(end_q, -end_p, case["eps"], 1)
    assert np.abs(back_q - q).max() > 1e-3


# --------------------------------------------------------------------------------------------------------- correct, unusual


@pytest.mark.sweep
def test_reversed_momentum_is_detected_and_noted():
    report = rc.integrator(foreign.verlet_turned, foreign.energy, dim=2)
    assert report.ok, str(report)
    assert any("opposite sign" in note for note in report.notes)


@pytest.mark.sweep
def test_single_precision_has_its_own_tolerances():
    report = rc.integrator(foreign.single, foreign.energy, dim=2)
    assert report.ok, str(report)
    assert "23 bits" in report.notes[0]
    assert report.row("reversible").tolerance > 1e-6


@pytest.mark.sweep
def test_jittered_step_passes_with_its_time_reported():
    report = rc.integrator(foreign.jittered, foreign.energy, dim=2, tolerance=0.0)
    assert report.ok, str(report)
    assert "its time is" in report.row("elapsed time").basis


@pytest.mark.sweep
def test_solver_of_unknown_tolerance_does_not_fail():
    report = rc.integrator(foreign.midpoint(1e-6, 100, True), foreign.curved, dim=2)
    assert not report.failures, str(report)
    assert {"reversible", "symplectic"} & {row.name for row in report.inconclusive}
    told = rc.integrator(foreign.midpoint(1e-6, 100, True), foreign.curved, dim=2, tolerance=1e-6)
    assert told.ok, str(told)
    assert told.row("symplectic").status == "PASS"


@pytest.mark.sweep
def test_a_solver_that_can_be_tightened_is_judged_by_how_its_defect_falls():
    report = rc.integrator(
        foreign.midpoint(1e-6, 100, True),
        foreign.curved,
        dim=2,
        with_tolerance=lambda delta: foreign.midpoint(delta, 200, True),
    )
    assert report.ok, str(report)
    assert report.row("delta scaling").status == "PASS"
    wrong = rc.integrator(
        foreign.end_velocity, foreign.curved, dim=2, with_tolerance=lambda delta: foreign.end_velocity
    )
    assert {"delta scaling", "reversible"} <= failed(wrong), str(wrong)


def test_rows_that_need_an_energy_are_not_run_without_one():
    report = rc.integrator(foreign.leapfrog, dim=2)
    assert report.ok, str(report)
    assert {"order", "elapsed time", "energy"} <= {row.name for row in report.not_run}


@pytest.mark.sweep
def test_unclaimed_properties_never_fail():
    report = rc.integrator(foreign.runge_kutta, foreign.energy, dim=2, claims="order=4")
    assert report.ok, str(report)
    assert report.row("symplectic").status == "NOT RUN"
    assert report.row("symplectic").number > 0


@pytest.mark.sweep
def test_declared_invariants_and_symmetries_are_checked():
    def central(q, p, eps):
        p = p - eps / 2 * q * (1 + q @ q)
        q = q + eps * p
        return q, p - eps / 2 * q * (1 + q @ q)

    def energy(q, p):
        return 0.5 * p @ p + 0.5 * q @ q + 0.25 * (q @ q) ** 2

    def turn(x):
        return np.array([0.6 * x[0] - 0.8 * x[1], 0.8 * x[0] + 0.6 * x[1]])

    angular = {"angular momentum": lambda q, p: q[0] * p[1] - q[1] * p[0]}
    right = rc.integrator(central, energy, invariants=angular, symmetries=[(turn, turn)])
    assert right.ok, str(right)
    assert right.row("invariants").status == right.row("equivariance").status == "PASS"
    wrong = rc.integrator(foreign.leapfrog, foreign.energy, invariants=angular, symmetries=[(turn, turn)])
    assert {"invariants", "equivariance"} <= failed(wrong), str(wrong)
    assert wrong.severity == "inefficient"


def test_an_exact_flow_passes_with_a_note():
    def turn(q, p, t):
        return np.cos(t) * q + np.sin(t) * p, np.cos(t) * p - np.sin(t) * q

    report = rc.integrator(turn, foreign.oscillator, dim=1, claims="symplectic reversible order=2 exact time")
    assert report.ok, str(report)
    assert any("true flow" in note for note in report.notes)


def test_gradient_of_another_energy_is_found():
    report = rc.integrator(
        foreign.leapfrog, foreign.energy, dim=2, grad_q=lambda q, p: -0.9 * foreign.force(q), grad_p=lambda q, p: p
    )
    assert failed(report) == {"gradient of H"}, str(report)


# --------------------------------------------------------------------------------------------------------- maps with jumps

ON_A_JUMP = np.array([1.1, -1.28]), np.array([0.0205, -0.0379])  # ten steps of 0.3 end at the edge of a cell
OFF_THE_JUMPS = np.array([0.528, -0.0695]), np.array([-0.0231, 0.000507])


def of_jumps(step, *points):
    return rc.integrator(
        step, foreign.jump_energy, points=points, eps=0.3, claims="energy reversible volume", tolerance=0.0
    )


@pytest.mark.sweep
def test_a_point_on_a_jump_of_the_map_decides_nothing():
    step = foreign.laplace_step(True)
    only_there = of_jumps(step, ON_A_JUMP)
    assert not only_there.failures, str(only_there)
    assert of_jumps(step, ON_A_JUMP, OFF_THE_JUMPS).row("volume").status == "PASS"


@pytest.mark.sweep
def test_a_map_with_jumps_that_loses_volume_is_found_among_points_on_jumps():
    right = foreign.laplace_step(True)

    def shrinks(q, p, eps, n):
        q, p = right(q, p, eps, n)
        return q, 0.999**n * p

    report = of_jumps(shrinks, ON_A_JUMP, OFF_THE_JUMPS)
    assert report.row("volume").status == "FAIL", str(report)
    assert report.row("volume").number >= 2 * -np.log(0.999) - 1e-9  # one step, two momenta


# ------------------------------------------------------------------------------------- long steps, solvers, many dimensions

SOME_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]


def solved_midpoint(q, p, eps):
    """Make an exact implicit midpoint step on ``ellipse``."""
    half = 0.5 * eps * np.block([[np.zeros((2, 2)), np.eye(2)], [-np.diag(ELLIPSE), np.zeros((2, 2))]])
    z = np.linalg.solve(np.eye(4) - half, (np.eye(4) + half) @ np.concatenate([q, p]))
    return z[:2], z[2:]


ELLIPSE = np.array([1.0, 0.25])


def ellipse(q, p):
    return 0.5 * (ELLIPSE * q * q).sum() + 0.5 * (p * p).sum()


@pytest.mark.parametrize("eps", [5.0, swept(20.0), swept(100.0), swept(1000.0)])
def test_step_of_many_periods_passes(eps):
    report = rc.integrator(solved_midpoint, ellipse, dim=2, eps=eps)
    assert report.ok, str(report)
    assert report.row("shadow energy").status == report.row("order").status == "PASS", str(report)
    assert any("eps is large here" in note for note in report.notes)


@pytest.mark.parametrize("eps", [0.1, swept(20.0)])
def test_a_wrong_force_is_found_at_a_step_of_any_length(eps):
    def weaker(q, p, eps):
        half = 0.5 * eps * np.block([[np.zeros((2, 2)), np.eye(2)], [-0.9 * np.diag(ELLIPSE), np.zeros((2, 2))]])
        z = np.linalg.solve(np.eye(4) - half, (np.eye(4) + half) @ np.concatenate([q, p]))
        return z[:2], z[2:]

    report = rc.integrator(weaker, ellipse, dim=2, eps=eps)
    assert {"order", "shadow energy"} <= failed(report), str(report)


@pytest.mark.parametrize("seed", [0, swept(1)])
def test_solver_that_fails_silently_at_twice_the_step_is_inefficient(seed):
    step = foreign.oscillator_midpoint(100, give_up=False)
    report = rc.integrator(step, foreign.oscillator, dim=2, eps=1.04, tolerance=1e-12, seed=seed)
    row = report.row("solver failure")
    assert row.status == "FAIL", str(report)
    assert row.severity == report.severity == "inefficient"
    assert re.match(r"at 2 eps: \d+ of \d+ points", row.basis), row.basis
    assert "at eps at 300 points of the target and 150 points further out" in row.basis
    assert "1 % of the points would be missed with probability 0.049" in row.basis  # 0.99^300
    assert float(re.search(r"eps=([\d.]+)", row.case)[1]) == pytest.approx(2 * 1.04)


@pytest.mark.parametrize("most", [100, swept(300)])  # 100: the implicit midpoint rule of BlackJAX
@pytest.mark.parametrize("seed", [0, swept(1)])
def test_solver_that_fails_silently_only_beyond_twice_the_step_is_not_a_failure(most, seed):
    """A fixed-point iteration that returns its last iterate is right at the declared step, but has no solution at long ones."""
    tolerance = {100: 1e-6, 300: 1e-10}[most]
    report = foreign.curved_check(foreign.midpoint(tolerance, most, False), seed, tolerance=tolerance)
    row = report.row("solver failure")
    assert report.ok, str(report)
    assert row.status == "INCONCLUSIVE", str(report)
    assert re.match(r"at (3|4.5|6|9|13|20|30|45) eps: \d+ of \d+ points", row.basis), row.basis
    assert "at eps at 300 points of the target and 150 points further out" in row.basis


@pytest.mark.sweep
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_unreported_solver_failure_at_eps_is_wrong_law(seed):
    report = foreign.curved_check(foreign.midpoint(1e-12, 60, False), seed, tolerance=1e-12, eps=0.5)
    assert report.severity == "wrong distribution", str(report)
    if report.row("reversible").status == "PASS":
        assert report.row("solver failure").basis.startswith("at eps: ")


def test_a_solve_that_stops_before_its_declared_tolerance_is_not_called_one_of_several_solutions():
    """Six iterations leave an error of about 1e-6 instead of the declared 1e-10."""
    report = foreign.curved_check(foreign.midpoint(1e-10, 6, False), 0, tolerance=1e-10)
    assert report.row("solver failure").status == "FAIL", str(report)
    assert report.row("solver failure").basis.startswith("at eps: ")


@pytest.mark.sweep
def test_in_many_dimensions_derivatives_are_taken_along_a_few_directions():
    d, calls = 200, []

    def counted(q, p, eps, n):
        calls.append(n)
        for _ in range(n):
            p = p - 0.5 * eps * (q + q**3)
            q = q + eps * p
            p = p - 0.5 * eps * (q + q**3)
        return q, p

    def energy(q, p):
        return 0.5 * (q * q).sum() + 0.25 * (q**4).sum() + 0.5 * (p * p).sum()

    report = rc.integrator(counted, energy, dim=d, seconds=None, grad_q=lambda q, p: q + q**3, grad_p=lambda q, p: p)
    assert report.ok, str(report)
    assert not report.inconclusive, str(report)
    assert "random directions" in report.row("symplectic").basis
    assert len(calls) < 10_000  # and 2d x 16 a Jacobian at 17 places were 108,800


def test_in_many_dimensions_the_fault_of_one_coordinate_is_found():
    def friction(q, p, eps, n):
        for _ in range(n):
            p = p - 0.5 * eps * q
            q = q + eps * p
            p = p - 0.5 * eps * q
            p[17] *= 1 - 1e-5
        return q, p

    slopes = {"grad_q": lambda q, p: q, "grad_p": lambda q, p: p}
    report = rc.integrator(friction, foreign.oscillator, dim=40, tolerance=0.0, seconds=None, **slopes)
    assert {"symplectic", "volume"} <= failed(report), str(report)


# ------------------------------------------------------------------------------------------------- refhmc's own integrators

TIGHT = 1e-12
OWN = {
    "leapfrog": (Leapfrog(), "banana", Identity()),
    "midpoint-endpoint": (ImplicitMidpoint(tolerance=TIGHT), "banana", Fisher()),
    "midpoint-midpoint": (ImplicitMidpoint(variant="midpoint", tolerance=TIGHT), "banana", Fisher()),
    "generalised": (GeneralizedLeapfrog(tolerance=TIGHT), "banana", Fisher()),
    "generalised-naive": (GeneralizedLeapfrog(variant="naive", tolerance=TIGHT), "banana", Fisher()),
    "projected-tao": (ProjectedTao(omega=2.0, tolerance=TIGHT), "banana", Fisher()),
    "bcss": (BCSS(stages=4), "banana", Identity()),
    "mclachlan": (McLachlan(), "banana", Identity()),
    "omelyan": (Omelyan(), "banana", Identity()),
    "yoshida": (Yoshida(Leapfrog()), "banana", Identity()),
    "suzuki": (Suzuki(Leapfrog()), "banana", Identity()),
    "midpoint-softabs": (ImplicitMidpoint(tolerance=TIGHT), "funnel", SoftAbs(alpha=1.0)),
    "generalised-softabs": (GeneralizedLeapfrog(tolerance=TIGHT), "funnel", SoftAbs(alpha=1.0)),
    "midpoint-loose": (ImplicitMidpoint(), "banana", Fisher()),
    "yoshida-midpoint": (Yoshida(ImplicitMidpoint(tolerance=TIGHT)), "banana", Fisher()),
    "block-leapfrog": (BlockLeapfrog(), "funnel", Fisher()),
}


def own(name: str, **more):
    integrator, model, metric = OWN[name]
    model = refhmc.models.Banana() if model == "banana" else refhmc.models.Funnel(2)
    claims = f"symplectic reversible order={integrator.order}"
    return rc.integrator(integrator, refhmc.Hamiltonian(model, metric), eps=0.05, claims=claims, **more)


@pytest.mark.parametrize("name", representatives(OWN, ["leapfrog"]))
def test_all_integrators_of_refhmc_pass(name):
    report = own(name)
    assert report.ok, str(report)


@pytest.mark.sweep
def test_explicit_tao_integrator_is_not_reversible_or_volume_preserving_on_the_diagonal():
    H = refhmc.Hamiltonian(refhmc.models.Banana(), Fisher())
    points = [([0.3, 0.2], [0.5, -0.8]), ([-0.4, 0.6], [1.0, 0.3])]
    report = rc.integrator((H, ExplicitTao(omega=10.0)), eps=0.05, points=points)
    assert {"reversible", "volume"} <= failed(report), str(report)
    assert report.row("order").status != "FAIL"


# ---------------------------------------------------------------------------------------------------------- failed calls


def raises_after_two(q, p, eps, n):
    if n > 2:
        raise ValueError("at most two")
    return foreign.leapfrog(q, p, eps, n)


@pytest.mark.sweep
def test_failed_calls_at_some_n_leave_the_other_rows():
    report = rc.integrator(raises_after_two, foreign.energy, dim=2)
    assert report.row("order").status == report.row("reversible").status == "PASS", str(report)


@pytest.mark.parametrize("claims", ["order", "symplectik", "order=0", "symplectic=2", "order=x"])
def test_invalid_claim_is_rejected(claims):
    with pytest.raises(ValueError):
        rc.integrator(foreign.leapfrog, foreign.energy, dim=2, claims=claims)
    assert read_claims("symplectic, exact time order=3") == {"symplectic": 1, "exact time": 1, "order": 3, "volume": 1}


# ------------------------------------------------------------------------------------------------------ steps, the flow


PLAIN = ("q", "p", "eps", "n")


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda q, p, eps, n: 0, (CallShape(PLAIN), True)),
        (lambda q, p, eps: 0, (CallShape(PLAIN), False)),
        (lambda q, p, eps, gradient=None: 0, (CallShape(PLAIN), False)),
        (lambda q, p, eps, n_steps=1: 0, (CallShape(PLAIN), True)),
        (lambda draws, q, p, eps: 0, (CallShape(("draws", *PLAIN)), False)),
        (lambda rng, q, p, eps, n: 0, (CallShape(("draws", *PLAIN), generator=True), True)),
        (lambda *a: 0, (CallShape(PLAIN), None)),
    ],
)
def test_call_signature_is_read_from_parameter_names(function, shape):
    assert step_shape(function) == shape


@pytest.mark.parametrize("form", [lambda *a: foreign.position_verlet(*a), lambda *a: foreign.leapfrog(*a[:4])])
def test_unclear_signature_is_found_by_trying(form):
    z = np.array([0.3, -0.2, 0.5, 1.0])
    step = Step(form, 2)
    assert np.abs(step(z, 0.1, 3) - step(step(step(z, 0.1), 0.1), 0.1)).max() < 1e-14


def test_all_outcomes_of_random_numbers_are_found():
    def step(draws, q, p, eps):
        k = draws.choice([0.2, 0.3, 0.5])
        if k == 1 and draws.flip(np.log(0.25)):
            k = 7
        return q + k, p

    outcomes = list(step_outcomes(Step(step, 1), np.zeros(2), 0.1))
    assert sorted((round(way.probability, 12), way.z[0]) for way in outcomes) == [
        (0.075, 7),
        (0.2, 0),
        (0.225, 1),
        (0.5, 2),
    ]


def test_the_true_flow_of_the_pendulum_is_exact_to_rounding():
    m, t = 0.64, 2.0  # sin(x/2) = sqrt(m) sn(t, m) from the bottom

    def pendulum(q, p):
        return 0.5 * (p * p).sum() - np.cos(q).sum()

    start = np.array([0.0, 2 * np.sqrt(m)])
    states, error = true_flow(Energy(pendulum, 1), start, [0.5, t], np.ones(2))
    for time_, state in zip((0.5, t), states, strict=True):
        sn, cn, _, _ = scipy.special.ellipj(time_, m)
        assert np.abs(state - [2 * np.arcsin(np.sqrt(m) * sn), 2 * np.sqrt(m) * cn]).max() < 1e-13
    assert error < 1e-13


def test_flow_of_an_energy_without_complex_arguments():
    def rounded_off(q, p):
        return float(0.5 * (np.abs(q) ** 2).sum() + 0.5 * (np.abs(p) ** 2).sum())

    states, error = true_flow(Energy(rounded_off, 1), np.array([1.0, 0.0]), [1.0], np.ones(2))
    assert np.abs(states[0] - [np.cos(1.0), -np.sin(1.0)]).max() < max(1e-10, error)


def test_leading_term_of_a_noisy_curve():
    x = np.arange(1, 17) / 16
    rng = np.random.default_rng(0)
    curve = 3e-9 * x**3 + 0.1 * x**5 * np.exp(x) + 1e-16 * rng.standard_normal(16)
    term = leading_term(0.1 * x / 0.1, curve[:, None] * 1.0, 3, 1e-16)
    assert abs(term.value[0] - 3e-9) < term.error < 3e-9 or abs(term.value[0] - 3e-9) < 5 * term.error

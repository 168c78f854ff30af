"""``check.model`` finds wrong derivatives and densities, and passes unusual correct ones; errors of slopes are bounds."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.derivatives.points import infer_dim, short
from refhmc.check.derivatives.slopes import noise_along, second_along, slope_along, width_along
from refhmc.check.judging import simplest
from refhmc.check.mutants import models as mutants
from refhmc.models.datasets import load_json
from tests.helpers.models import FEW_CALLS
from tests.helpers.riemannian_cases import MODELS
from tests.helpers.sweeps import representatives, swept

PAIRS = {pair.id: pair for pair in mutants.PAIRS}
UNDECIDED = {"eight-schools-centered": ["metric"]}  # its Fisher metric is singular to rounding at a small tau
QUICK_ODD = ("float32", "kink at zero", "-inf outside", "scales 1e-6 to 1e6", "steps")


@pytest.mark.parametrize("name", representatives(QUICK_ODD, ["kink at zero", "-inf outside"]))
def test_unusual_correct_code_passes(name):
    report = mutants.ODD[name](1)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", mutants.ODD)
def test_unusual_correct_code_passes_for_all_seeds(name):
    for seed in range(20):
        report = mutants.ODD[name](seed)
        assert report.ok, str(report)


# These take seconds because of the size of their data; "normal-100" is the model of "gaussian-3".
OURS = {name: make for name, make in MODELS.items() if name != "normal-100"} | {
    "fitzhugh-nagumo": lambda: refhmc.models.FitzHughNagumo(
        load_json("fitzhugh_nagumo")["y"][:20], times=np.linspace(0.0, 1.0, 20)
    ),
}


SEEN = ["banana", "cell-grid"]


@pytest.mark.parametrize("name", representatives(OURS, SEEN))
def test_all_our_models_pass(name):
    report = rc.model(OURS[name]())
    assert report.ok, str(report)
    assert [row.name for row in report.inconclusive] == UNDECIDED.get(name, []), str(report)
    if name in ("jolly-seber", "change-point", "pac-bayes", "cell-grid", "closed-population"):
        assert report.row("change").status == "PASS", str(report)


def test_a_model_which_draws_its_start_passes():
    drawn = []

    def initial(rng):
        drawn.append(rng.standard_normal(2))
        return drawn[-1]

    functions = (lambda q, data: -0.5 * q @ q, lambda q, data: -q, lambda q, data: -np.eye(2))
    report = rc.model(refhmc.Model(2, *functions, initial=initial, in_python=FEW_CALLS))
    assert report.ok, str(report)
    assert drawn


@pytest.mark.sweep
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_network_which_draws_its_start_passes(activation):
    x = np.linspace(-2, 2, 9)
    network = refhmc.models.MLP([1, 2, 1], x[:, None], np.sin(x), activation=activation)
    report = rc.model(network)
    assert report.ok, str(report)
    assert report.row("third derivative").status == report.row("metric derivative").status == "PASS"


# --------------------------------------------------------------------------------------------- densities that jump


class Steps:
    """N(0, 1) in q_0; in q_1 the density of floor(q_1) = 0, 1, 2 or 3 with probabilities .4, .3, .2, .1."""

    levels = np.log([0.4, 0.3, 0.2, 0.1])

    def log_density(self, q):
        return -0.5 * q[0] ** 2 + self.levels[int(q[1])] if 0 <= q[1] < 4 else -np.inf

    def gradient(self, q):
        return np.array([-q[0], 0.0])

    def draw(self, rng, n):
        whole = rng.choice(4, n, p=np.exp(self.levels))
        return np.column_stack([rng.standard_normal(n), whole + rng.random(n)])


def test_a_density_that_jumps_in_the_coordinates_named_passes():
    steps = Steps()
    report = rc.model(steps.log_density, steps.gradient, reference=steps, discontinuous=[1], dim=2)
    assert report.ok, str(report)
    assert report.row("exact draws").status == report.row("gradient").status == "PASS"


def test_undeclared_jump_is_named_and_inconclusive():
    steps = Steps()
    row = rc.model(steps.log_density, steps.gradient, reference=steps, dim=2).row("exact draws")
    assert row.status == "INCONCLUSIVE"
    assert "logp jumps in coordinate 1" in row.basis
    assert "discontinuous=" in row.basis


def test_wrong_smooth_coordinate_is_found_next_to_a_jump():
    steps = Steps()
    report = rc.model(
        steps.log_density, lambda q: np.array([-0.5 * q[0], 0.0]), reference=steps, discontinuous=[1], dim=2
    )
    assert {row.name for row in report.failures} >= {"gradient", "exact draws"}
    assert "[0]" in report.row("gradient").case


def test_no_derivative_is_judged_if_all_coordinates_jump():
    steps = Steps()
    report = rc.model(steps.log_density, steps.gradient, reference=steps, discontinuous=[0, 1], dim=2)
    assert report.row("gradient").status == "NOT RUN"
    assert "jumps in every coordinate" in report.row("gradient").basis
    with pytest.raises(ValueError, match="from 0 to 1"):
        rc.model(steps.log_density, steps.gradient, discontinuous=[2], dim=2)


def step_change(q, j, x):
    """Return L of Steps with q_j = x, minus L."""
    if j == 0:
        return 0.5 * (q[0] ** 2 - x**2)
    return Steps.levels[int(x)] - Steps.levels[int(q[1])] if 0 <= x < 4 else -np.inf


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (step_change, ""),
        (lambda q, j, x: -step_change(q, j, x), ", 1, "),  # the other way round
        swept(lambda q, j, x: max(step_change(q, j, x), -50.0), "changes by -inf"),  # the support forgotten
        swept(lambda q, j, x: step_change(q, j, x) + 1e-9 * (x > 2), ", 1, "),
    ],
)
def test_change_for_discontinuous_hmc(change, words):
    steps = Steps()
    row = rc.model(steps.log_density, steps.gradient, discontinuous=[1], change=change, dim=2).row("change")
    assert row.status == ("FAIL" if words else "PASS")
    assert words in row.case


@pytest.mark.sweep
def test_too_large_tensor_is_not_requested():
    def third(q):
        raise MemoryError

    report = rc.model(lambda q: -0.5 * float(q @ q), lambda q: -q, third=third, dim=500)
    assert report.ok, str(report)
    assert report.row("third derivative").basis.startswith("third has 500^3 ")


# ---------------------------------------------------------------------------------------------------- diagnosis


def test_the_smallest_case_can_be_pasted():
    def gradient(q):
        return np.array([-q[0], 0.5 * q[1], -q[2]])

    report = rc.model(lambda q: -0.5 * q @ q, gradient, dim=3)
    case = report.row("gradient").case
    wrong = eval(case, {"gradient": gradient, "np": np})
    truth = float(case.split(":")[-1])
    assert abs(wrong - truth) > 0.1
    assert case.startswith("gradient(np.array([0.0, ")
    assert "1 of 3 coordinates" in report.diagnosis[0]


def test_a_report_can_be_written_as_json():
    assert json.loads(PAIRS["half"].wrong(1).to_json())["severity"] == "inefficient"


def test_a_derivative_may_be_missing():
    report = rc.model(lambda q: -0.5 * q @ q, dim=2)
    assert report.row("gradient").status == "NOT RUN"
    assert report.row("hessian").status == "NOT RUN"
    assert not report.failures


@pytest.mark.sweep
def test_hessian_is_compared_with_the_density_if_the_gradient_is_wrong():
    report = rc.model(lambda q: -0.5 * q @ q, lambda q: q, lambda q: -np.eye(2), dim=2)
    assert report.row("gradient").status == "FAIL"
    assert report.row("hessian").status == "PASS"
    assert rc.model(lambda q: -0.5 * q @ q, None, lambda q: np.eye(2), dim=2).row("hessian").status == "FAIL"


def test_normaliser_is_not_run_without_reference():
    row = PAIRS["half"].right(1).row("normaliser")
    assert row.status == "NOT RUN"
    assert "constrained" in row.basis


@pytest.mark.sweep
def test_second_implementation_is_compared_up_to_a_constant():
    gradient = mutants.gamma_grad
    right = rc.model(mutants.gamma_logp, gradient, reference=lambda q: mutants.gamma_logp(q) + 3, dim=2)
    wrong = rc.model(mutants.gamma_logp, gradient, reference=lambda q: mutants.gamma_logp(q, 0.0), dim=2)
    assert right.row("normaliser").status == "PASS"
    assert wrong.row("normaliser").status == "FAIL"


# --------------------------------------------------------------------------------------------------- misbehaviour


def normal(q):
    return -0.5 * float(q @ q)


def raises(q):
    raise RuntimeError("no data")


def mutates(q):
    q *= 0.5
    return -q * 2


@pytest.mark.parametrize(
    ("logp", "grad", "row", "words"),
    [
        (raises, None, "answers", "no data"),
        (lambda q: np.nan, lambda q: q, "answers", "not finite"),
        (lambda q: "low", None, "answers", "not an array of numbers"),
        (lambda q: None, None, "answers", "not an array of numbers"),
        (normal, raises, "answers", "no data"),
        (normal, lambda q: -q[:1], "answers", "shape"),
        (normal, lambda q: -q * np.nan, "answers", "not finite where logp is"),
        (normal, mutates, "inputs left alone", "changed"),
        (lambda q: normal(q) + 1j, lambda q: -q, "answers", "complex"),
    ],
)
def test_failed_calls_are_reported_in_a_row(logp, grad, row, words):
    report = rc.model(logp, grad, dim=2)
    assert report.row(row).status == "FAIL"
    assert words in report.row(row).basis
    assert report.severity == "call failed"
    str(report)


def test_gradient_that_hangs_costs_only_its_row():
    def hangs(q):
        if abs(q[0]) > 2.5:
            while True:
                time.sleep(0.01)
        return -q

    report = rc.model(normal, hangs, dim=2, seconds_per_call=0.3)
    assert any("did not return within" in row.basis for row in report.failures)
    assert report.row("answers").status == "PASS"


def test_gradient_not_finite_far_out_is_distinguished_from_overflow():
    def logp(q):
        return float(-np.logaddexp(0, q).sum() - 0.01 * q @ q)

    def naive(q):
        with np.errstate(all="ignore"):
            return -np.exp(q) / (1 + np.exp(q)) - 0.02 * q

    report = rc.model(logp, naive, dim=2)
    assert [row.name for row in report.failures] == ["gradient at large points"]
    assert "not finite" in report.diagnosis[0]


# ------------------------------------------------------------------------------------------- slopes and dimensions


def slope_of(f, x: float):
    x, u = np.array([x]), np.ones(1)

    def g(q):
        return np.asarray(f(q[0]), dtype=float)

    width = width_along(g, x, u)
    return slope_along(g, x, u, width, noise_along(g, x, u * width, 2.0**-52, 1.0), 1.0)


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda x: np.exp(9 * x), lambda x: 9 * np.exp(9 * x)),
        (lambda x: -0.5 * (x / 1e-6) ** 2, lambda x: -x * 1e12),
        (lambda x: -0.5 * (x / 1e6) ** 2, lambda x: -x * 1e-12),
        (lambda x: 1e6 + np.sin(x), np.cos),
        (lambda x: 0.01 * np.tanh(x), lambda x: 0.01 / np.cosh(x) ** 2),
        (lambda x: float(np.float32(np.sin(np.float32(x)))), np.cos),
        (lambda x: np.sin(x) + 1e-7 * np.sin(1e12 * x), np.cos),  # noise of 1e-7
        (
            lambda x: -x * x + np.exp(-0.5 * ((x - 0.3) / 1e-3) ** 2),
            lambda x: -2 * x - (x - 0.3) * 1e6 * np.exp(-0.5 * ((x - 0.3) / 1e-3) ** 2),
        ),
    ],
)
def test_the_error_of_a_slope_is_a_bound(f, slope):
    for x in (-1.25, 0.2998046875, 0.5, 2.0):
        found = slope_of(f, x)
        assert abs(found.value - slope(x)) <= found.error + 1e-15 * abs(slope(x)), (x, found, slope(x))


def test_slope_has_ten_digits_if_the_function_has():
    found = slope_of(lambda x: np.exp(x) * np.sin(3 * x), 0.7)
    assert found.error <= 1e-10 * abs(found.value)


def test_a_kink_shows_both_slopes():
    found = slope_of(lambda x: np.abs(x) + x * x, 0.0)
    assert found.kink
    assert found.left == pytest.approx(-1, abs=1e-3)
    assert found.right == pytest.approx(1, abs=1e-3)
    assert not slope_of(lambda x: np.abs(x) + x * x, 0.5).kink


def test_second_differences_have_a_bound_too():
    value, error = second_along(lambda q: np.cos(q[0]), np.array([0.4]), np.ones(1), 1.0, 1e-16)
    assert abs(value + np.cos(0.4)) <= error <= 1e-5


def test_noise_is_measured_whatever_the_type():
    x, u = np.array([0.7]), np.ones(1)
    assert noise_along(lambda q: np.sin(q[0]), x, u, 2.0**-52) < 1e-15
    single = noise_along(lambda q: float(np.float32(np.sin(q[0]))), x, u, 2.0**-52)
    assert 1e-9 < single < 1e-6


def test_places_are_the_same_number_in_float32():
    q = short(np.random.default_rng(1).standard_normal(100) * 10.0 ** np.arange(-20, 30, 0.5))
    assert np.array_equal(q, q.astype(np.float32).astype(float))


@pytest.mark.parametrize(
    ("possible", "d"),
    [({5}, 5), ({1, 5}, 5), (set(range(1, 65)), 3), (set(range(2, 65)), 3), (set(range(2, 65, 2)), 4), (set(), None)],
)
def test_a_dimension_is_found_from_what_is_accepted(possible, d):
    assert infer_dim(lambda n: [(n,)] if n in possible else None) == d


def test_failing_point_is_simplified():
    q = simplest(np.array([0.37, -2.61, 5.5]), lambda q: q[1] < -2)
    assert q[0] == q[2] == 0.0
    assert q[1] == -3.0

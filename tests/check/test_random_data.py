"""``check.transition_with_data``: correct transitions pass, whatever their reversibility; refhmc's own kernels pass."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import random_data as cases
from tests.helpers.sweeps import swept


def simulate(rng):
    """theta ~ N(0, 1), and three observations with variance 1; the posterior is N(sum y / 4, 1 / 4)."""
    theta = rng.standard_normal(1)
    return theta, theta + rng.standard_normal(3)


def exact(y):
    return lambda rng, theta: np.array([y.sum() / 4 + 0.5 * rng.standard_normal()])


def uniform_pair(rng):
    return rng.random(1), None


def rotation(y):
    """It preserves the uniform distribution, and is not reversible."""
    return lambda rng, theta: (theta + 0.03) % 1.0


def test_rows_are_named_and_state_what_they_would_have_found():
    report = rc.transition_with_data(simulate, exact, reversible=True, simulations=200, seconds=None)
    assert report.status == "PASS"
    assert [row.name for row in report.rows[:3]] == ["answers", "stationarity", "ranks"]
    assert "would be found with probability 0.99" in report.row("ranks").basis
    assert "200 simulations of 19 transitions" in report.row("answers").basis


@pytest.mark.parametrize(("reversible", "status"), [(None, "INCONCLUSIVE"), (False, "PASS"), (True, "FAIL")])
def test_a_transition_that_is_not_reversible_fails_only_if_it_claims_to_be(reversible, status):
    options = {"simulations": 300, "steps": 5, "seconds": None}
    report = rc.transition_with_data(uniform_pair, rotation, reversible=reversible, **options)
    assert report.status == status
    # A won bet ends the simulations, so that few are left for the other row.
    assert report.row("stationarity").status == ("INCONCLUSIVE" if reversible else "PASS")
    assert report.row("ranks").status == {None: "INCONCLUSIVE", False: "NOT RUN", True: "FAIL"}[reversible]


def test_a_wrong_transition_of_unknown_reversibility_fails():
    report = rc.transition_with_data(cases.simulate, cases.langevin(False), simulations=800, seconds=None)
    assert [row.name for row in report.failures] == ["stationarity"]
    assert "does it use the data and the prior" in report.diagnosis[0]
    # The bet is won before the last simulation.
    assert int(report.row("answers").basis.split()[0]) < 800


def test_a_shift_is_reported_with_its_direction():
    def upward(y):
        return lambda rng, theta: exact(y)(rng, theta) + 0.4

    report = rc.transition_with_data(simulate, upward, reversible=True, simulations=400, seconds=None)
    assert report.status == "FAIL"
    said = [row.basis for row in report.failures if "location of theta[0] is" in row.basis]
    assert all("is larger after the transitions" in text for text in said)
    assert said


def test_quantities_that_are_not_numbers_are_no_false_alarm():
    """The quantity is NaN in half of the prior, so that ties of NaN are frequent."""

    def half(theta, y):
        return np.where(theta > 0, np.log(theta), np.nan)

    options = {"reversible": True, "simulations": 300, "steps": 5, "seconds": None}
    assert rc.transition_with_data(simulate, exact, quantities=half, **options).status == "PASS"


def test_a_transition_that_does_not_move_is_inconclusive():
    report = rc.transition_with_data(simulate, lambda y: lambda rng, theta: theta, simulations=150, seconds=None)
    assert report.status == "INCONCLUSIVE"
    assert "no transition moved" in report.row("stationarity").basis


@pytest.mark.parametrize("runs", [12, swept(60)])
def test_bets_on_correct_transitions_are_rarely_won(runs):
    """With alpha = 0.1 each run fails with probability at most 0.1, whenever it ends."""
    lost = 0
    for seed in range(runs):
        options = {"alpha": 0.1, "steps": 3, "simulations": 100, "seconds": None, "seed": seed}
        lost += rc.transition_with_data(simulate, exact, reversible=True, **options).status == "FAIL"
    assert scipy.stats.binom.sf(lost - 1, runs, 0.1) > 1e-6


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", [refhmc.HMC(step_size=0.4, n_steps=3), refhmc.NUTS(step_size=0.4, max_treedepth=3)])
def test_kernels_of_refhmc_pass(kernel):
    def given(y):
        model = refhmc.models.Gaussian([y.sum() / 4], [[0.25]])

        def move(rng, theta):
            return refhmc.transition(model, kernel, theta, rng=rng).q

        return move

    report = rc.transition_with_data(simulate, given, reversible=True, simulations=100, steps=2, seconds=None)
    assert report.status == "PASS"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (lambda y: None, "must return a function of"),
        (lambda y: lambda rng, theta: theta * np.nan, "NaN or infinite"),
        (lambda y: lambda rng, theta: np.zeros(3), "shape (3,) instead of (1,)"),
    ],
)
def test_invalid_answers_fail(given, fault):
    row = rc.transition_with_data(simulate, given, simulations=50).row("answers")
    assert row.status == "FAIL"
    assert fault in row.basis


def test_a_simulator_without_data_fails():
    row = rc.transition_with_data(lambda rng: np.zeros(3), exact).row("answers")
    assert (row.status, "must return the pair" in row.basis) == ("FAIL", True)


@pytest.mark.parametrize(
    ("options", "match"),
    [({"alpha": 2.0}, "alpha must"), ({"steps": 0}, "steps"), ({"simulations": -1}, "simulations")],
)
def test_invalid_arguments(options, match):
    with pytest.raises(ValueError, match=match):
        rc.transition_with_data(simulate, exact, **options)

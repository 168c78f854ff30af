"""``check.grid``: connected and aperiodic kernels pass, others fail in their row, by enumeration or by runs."""

import math

import numpy as np
import pytest

import refhmc.check as rc
from refhmc.check.grids.grid import period
from refhmc.check.mutants import grids as cases


def test_finite_kernel_is_enumerated():
    report = rc.grid(cases.binary_gibbs(cases.linked, 0.8), cases.COINS, cases.linked)
    assert report.ok, str(report)
    assert "enumerated" in report.row("irreducible").basis
    assert report.row("invariance").number <= 1e-15


def test_marginals_may_be_right_although_states_are_never_visited():
    """The kernel that turns all coins keeps each marginal at 1/2; half of the states are the largest class that it visits."""
    report = rc.grid(cases.binary_gibbs(cases.fair, 1), cases.COINS, cases.fair)
    assert report.row("invariance").status == "PASS"
    assert report.row("irreducible").number == 4  # pairs of opposite states
    assert report.row("aperiodic").number == 2


def test_end_off_the_grid_fails():
    report = rc.grid(lambda draws, q: q + 1.0 if draws.flip(math.log(0.5)) else q, [[0.0], [1.0]])
    assert [row.name for row in report.failures] == ["stays on the grid", "irreducible"]


def test_absorbing_states_fail_with_the_states_that_are_not_left():
    def falls(draws, q):
        return np.maximum(q - draws.choice(2), 0.0)

    row = rc.grid(falls, [[0.0], [1.0], [2.0]]).row("irreducible")
    assert row.status == "FAIL"
    assert "stay within 1 of 3 states" in row.case


def test_runs_state_their_number_and_what_they_miss():
    report = rc.grid(cases.exact_hmc(lambda draws: 1.0), cases.LINE)
    assert report.ok, str(report)
    runs = math.ceil(math.log(1e-6 / 64) / math.log(0.98))
    assert f"{runs} runs from each" in report.row("irreducible").basis
    assert report.row("invariance").status == "NOT RUN"


@pytest.mark.parametrize(
    ("edges", "wanted"),
    [
        ([(0, 1), (1, 0)], 2),
        ([(0, 1), (1, 2), (2, 0)], 3),
        ([(0, 1), (1, 2), (2, 0), (0, 0)], 1),
        ([(0, 1), (1, 2), (2, 3), (3, 0), (1, 0)], 2),
        ([(0, 1), (1, 2), (2, 0), (1, 0)], 1),
    ],
)
def test_period_is_that_of_the_powers_of_the_matrix(edges, wanted):
    n = 1 + max(max(edge) for edge in edges)
    K = np.zeros((n, n))
    K[tuple(np.transpose(edges))] = 1
    assert period(K) == wanted
    power, returns = np.eye(n), []
    for m in range(1, 4 * n):
        power = np.minimum(power @ K, 1.0)
        returns += [m] if power[0, 0] > 0 else []
    assert math.gcd(*returns) == wanted


@pytest.mark.parametrize(
    "wrong",
    [{"states": [[0.0]]}, {"states": [0.0, 1.0]}, {"states": [[0.0], [np.nan]]}, {"least": 0.0}, {"seconds": 0.0}],
)
def test_invalid_arguments_are_rejected(wrong):
    with pytest.raises(ValueError, match="must"):
        rc.grid(lambda draws, q: q, **{"states": [[0.0], [1.0]], **wrong})

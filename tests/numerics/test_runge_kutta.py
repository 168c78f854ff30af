"""The Runge-Kutta pair and its steps: order conditions, problems with known solutions, SciPy's solver, failures."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate

from refhmc.compile.compiled import jit_anew, plain
from refhmc.models.ode_solution import EQUATIONS, solve
from refhmc.numerics import dormand_prince
from refhmc.numerics.runge_kutta import NOT_FINITE, SCRATCH_ROWS, SOLVED, TOO_MANY_STEPS, VANISHING_STEP, in_words

TIGHT = 1e-3


def in_python(name):
    return plain(getattr(dormand_prince, name))


def one_step(f, x, t, h):
    """y, the error and the polynomial's values at shares of the step, in plain Python."""
    x = np.array(x, dtype=float)
    K, work, y, room = np.zeros((len(x), dormand_prince.COLUMNS)), np.zeros(len(x)), x * 0, x * 0

    def equations(x, t, work):
        work[:] = f(t, x)

    K[:, 0], K[:, 1] = x, f(t, x)
    error = in_python("step")(equations, t, h, TIGHT, work, K, y)
    in_python("between")(equations, t, h, work, K, room)

    def inside(s):
        out = x * 0
        in_python("at")(s, h, K, out)
        return out

    return y, error, inside


def test_the_order_of_the_pair_and_of_its_polynomial():
    """x' = d t^(d-1), whose solution t^d has no error up to the order, for all formulas; and x' = x by halving the step."""
    for degree in range(1, 9):
        y, error, inside = one_step(lambda t, x, d=degree: np.array([d * t ** (d - 1)]), [1.0], 1.0, 0.5)
        assert y[0] == pytest.approx(1.5**degree, rel=1e-13)
        if degree <= 3:  # both embedded formulas agree
            assert error < 1e-12 / TIGHT
        if degree <= 7:
            for s in (0.2, 0.5, 0.9):
                assert inside(s)[0] == pytest.approx((1 + 0.5 * s) ** degree, rel=1e-12)
    f = lambda t, x: np.array([x[1], -x[0]])  # noqa: E731
    ends, middles = [], []
    for h in (0.8, 0.4):
        y, _, inside = one_step(f, [0.0, 1.0], 0.0, h)
        ends.append(abs(y[0] - np.sin(h)))
        middles.append(abs(inside(0.6)[0] - np.sin(0.6 * h)))
    assert np.log2(ends[0] / ends[1]) == pytest.approx(9, abs=0.4)  # of one step: order + 1
    assert np.log2(middles[0] / middles[1]) > 7.4


def test_one_step_is_scipys():
    f = lambda t, x: np.array([x[0] * (1 - x[1]) + 0.1 * t, x[1] * (x[0] - 1)])  # noqa: E731
    y, _, inside = one_step(f, [1.5, 0.7], 0.3, 0.4)
    other = scipy.integrate.DOP853(f, 0.3, [1.5, 0.7], 2.0, first_step=0.4, rtol=1e-3, atol=1e-3)
    other.step()
    assert other.t == pytest.approx(0.7)
    np.testing.assert_allclose(y, other.y, rtol=1e-14)
    for s in (0.1, 0.45, 0.99):
        np.testing.assert_allclose(inside(s), other.dense_output()(0.3 + 0.4 * s), rtol=1e-13)


# ------------------------------------------------------------------------------------------------------- whole solutions


def solved(f, x, times, events=(), start=0.0, tolerance=1e-10, max_steps=5000):
    """Return the outcome, the path, and the last time of the solver."""
    n = len(x)
    path, room = np.full((len(times), n), np.nan), np.full(SCRATCH_ROWS * n + 1, np.nan)
    rows = np.array(events, dtype=float).reshape(len(events), 2 + n)
    u, times = np.array(x, dtype=float), np.array(times, dtype=float)
    equations = compiled_equations(f)
    outcome = solve(equations, equations, u, times, rows, start, tolerance, max_steps, path, np.zeros(n), room)
    return outcome, path, room[-1]


def compiled_equations(f):
    made = jit_anew(f)
    if hasattr(made, "compile"):
        made.compile(EQUATIONS)
    return made


def pendulum(x, t, work):
    work[0] = x[1]
    work[1] = -np.sin(x[0])


def growth(x, t, work):
    work[0] = x[0] * x[0]


def decay(x, t, work):
    work[0] = -1e6 * (x[0] - np.cos(t))


def sometimes(x, t, work):
    work[0] = np.sqrt(1.0 - t)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-7, 1e-10, 1e-13])
def test_the_error_is_about_the_tolerance_at_every_time(tolerance):
    times = np.sort(np.concatenate([np.linspace(0, 20, 41), [1e-9, 3.3333, 19.99999]]))
    outcome, path, end = solved(pendulum, [1.0, 0.5], times, tolerance=tolerance)
    assert (outcome, end) == (SOLVED, 20.0)
    exact = scipy.integrate.solve_ivp(
        lambda t, x: [x[1], -np.sin(x[0])], (0, 20), [1.0, 0.5], "DOP853", times, rtol=1e-13, atol=1e-14
    )
    assert np.abs(path - exact.y.T).max() < 60 * tolerance + 1e-12


def test_times_before_the_first_step_and_events():
    times = [0.0, 1.0, 2.0]
    outcome, path, _ = solved(pendulum, [0.0, 0.0], times, events=[[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 2.0]])
    assert outcome == SOLVED
    np.testing.assert_array_equal(path[0], [0.0, 0.0])  # before the event at this time
    x = np.array([1.0, 0.0])
    for k, added in ((1, 2.0), (2, 0.0)):
        x = scipy.integrate.solve_ivp(
            lambda t, x: [x[1], -np.sin(x[0])], (0, 1), x, "DOP853", rtol=1e-13, atol=1e-14
        ).y[:, -1]
        np.testing.assert_allclose(path[k], x, rtol=1e-9)
        x = x + [0.0, added]


@pytest.mark.parametrize(
    ("f", "outcome", "end", "words"),
    [
        (growth, VANISHING_STEP, 1.0, "step.* zero at t = 1"),
        (decay, TOO_MANY_STEPS, None, "more than 900 steps.*max_steps.*solver='lsoda'"),
        (sometimes, VANISHING_STEP, 1.0, "step.* zero at t = 1"),
    ],
)
def test_what_has_no_solution_says_where(f, outcome, end, words):
    found, _, reached = solved(f, [1.0], [0.5, 2.0], max_steps=900)
    assert found == outcome
    assert end is None or reached == pytest.approx(end, abs=1e-6)
    with pytest.raises(ValueError, match=words):
        raise ValueError(in_words(found, reached, 900))


def test_a_start_that_is_not_finite():
    for x in (np.nan, np.inf):
        assert solved(growth, [x], [1.0])[0] == NOT_FINITE
        assert solved(growth, [x], [0.0])[0] == NOT_FINITE
    assert "not finite" in in_words(NOT_FINITE, 0.0, 1)

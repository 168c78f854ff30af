"""Solutions of ODEs with sensitivities compared with SciPy on complex parameters, with events solved piece by piece.

SciPy's DOP853 runs on complex numbers. The complex step in theta, Im x(theta + ih e_a) / h, is the derivative of its solution
without cancellation. Second sensitivities are central differences of these, with errors of about 1e-8.
"""

from __future__ import annotations

import pickle
import warnings

import numba
import numpy as np
import pytest
import scipy.integrate

import refhmc
from refhmc.errors import EvaluationError, PythonModelWarning, ShapeError
from refhmc.models import ODESolution

NAMES = ["alpha", "beta", "gamma", "delta", "prey", "predator"]
THETA = np.array([0.55, 0.028, 0.8, 0.024, 34.0, 5.9])
TIMES = np.arange(9.0)


def rhs(t, x, theta):
    return np.array([(theta[0] - theta[1] * x[1]) * x[0], (-theta[2] + theta[3] * x[0]) * x[1]])


def jacobian(t, x, theta, out):
    u, v = x
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = theta[0] - theta[1] * v, -theta[1] * u, u, -u * v
    out[1, 0], out[1, 1], out[1, 4], out[1, 5] = theta[3] * v, -theta[2] + theta[3] * u, -v, u * v


def hessian(t, x, theta, out):
    u, v = x
    for i, j, k, value in (
        *((0, 0, 1, -theta[1]), (0, 0, 2, 1.0), (0, 0, 3, -v), (0, 1, 3, -u)),
        *((1, 0, 1, theta[3]), (1, 1, 4, -1.0), (1, 0, 5, v), (1, 1, 5, u)),
    ):
        out[i, j, k] = out[i, k, j] = value


def cull(t, x, theta):
    """Remove a tenth of the prey and an unknown number of predators."""
    return np.array([0.9 * x[0], x[1] - 0.1 * theta[1] * x[1] ** 2])


def cull_jacobian(t, x, theta, out):
    out[0, 0], out[1, 1], out[1, 3] = 0.9, 1 - 0.2 * theta[1] * x[1], -0.1 * x[1] ** 2


def cull_hessian(t, x, theta, out):
    out[1, 1, 1], out[1, 1, 3], out[1, 3, 1] = -0.2 * theta[1], -0.2 * x[1], -0.2 * x[1]


CULL = (cull, cull_jacobian, cull_hessian)
EVENTS = [(2.0, [5.0, 0.0]), (4.5, CULL), (7.0, [-1.0, 1.0])]


def by_scipy(theta, events=()):
    """Return x at the times, real or complex, from event to event."""
    theta = np.asarray(theta)
    x, found, start = theta[4:], [], 0.0
    for time, change in [*events, (TIMES[-1], np.zeros(2))]:
        within = TIMES[((start if found else -1) < TIMES) & (time >= TIMES)]
        path = scipy.integrate.solve_ivp(
            lambda t, x: rhs(t, x, theta),
            (start, time),
            x,
            "DOP853",
            np.unique([*within, time]),
            rtol=1e-12,
            atol=1e-12,
        ).y.T
        found += list(path[: len(within)])
        x, start = path[-1], time
        x = change[0](time, x, theta) if isinstance(change, tuple) else x + change
    return np.array(found)


def first_by_complex_step(theta, events):
    step = 1e-20
    return np.stack([by_scipy(theta + 1j * step * np.eye(6)[a], events).imag / step for a in range(6)], axis=2)


def far(x, y):
    return np.abs(x - y).max() / np.abs(y).max()


def made(**changes):
    arguments = {"parameters": NAMES, "initial_state": ["prey", "predator"], "times": TIMES, "tolerance": 1e-12}
    return ODESolution(rhs, jacobian, hessian, **{**arguments, **changes})


@pytest.fixture(scope="module")
def solution():
    return made(events=EVENTS)


@pytest.mark.sweep
def test_states_and_sensitivities_through_events(solution):
    x, S, W = solution.second(THETA)
    assert far(x, by_scipy(THETA, EVENTS)) < 1e-10
    assert far(S, first_by_complex_step(THETA, EVENTS)) < 1e-9
    for a in range(6):
        h = 1e-4 * THETA[a] * np.eye(6)[a]
        second = (first_by_complex_step(THETA + h, EVENTS) - first_by_complex_step(THETA - h, EVENTS)) / (2 * h[a])
        assert far(W[:, :, :, a], second) < 1e-6
    np.testing.assert_array_equal(W, W.transpose(0, 1, 3, 2))
    np.testing.assert_allclose(solution.states(THETA), x, rtol=1e-9)
    np.testing.assert_allclose(solution.first(THETA)[1], S, rtol=1e-8, atol=1e-8)


@pytest.mark.sweep
def test_compiled_code_and_python_have_the_same_numbers(solution):
    whole = solution.solve(THETA, 2)
    x, S, W = solution.second(THETA)
    np.testing.assert_array_equal(whole.states, x)
    np.testing.assert_array_equal(whole.first, S)
    np.testing.assert_array_equal(whole.second, W[:, :, *np.triu_indices(6)])
    copy = pickle.loads(pickle.dumps(solution))
    np.testing.assert_array_equal(copy.solve(THETA, 2).second, whole.second)


@pytest.mark.sweep
def test_lsoda_and_a_function_for_the_initial_state(solution):
    def start(theta):
        return theta[4:].copy(), np.eye(6)[4:].copy(), np.zeros((2, 6, 6))

    other = made(events=EVENTS, solver="lsoda", initial_state=start)
    ours, theirs = solution.solve(THETA, 2), other.solve(THETA, 2)
    for a, b in zip(ours[:3], theirs[:3], strict=True):
        assert far(a, b) < 1e-9
    for a, b in zip(other.second(THETA), solution.second(THETA), strict=True):  # compiled: by Runge-Kutta
        np.testing.assert_array_equal(a, b)


@pytest.mark.sweep
def test_user_density_is_compiled_and_its_chains_run_in_parallel(solution, sample):
    plain = made(events=EVENTS, tolerance=1e-8)
    states, first = plain.states, plain.first
    y = by_scipy(THETA, EVENTS) + np.random.default_rng(1).standard_normal((9, 2))

    def log_density(q, y):
        return -0.5 * np.sum((y - states(THETA * np.exp(q))) ** 2) - 0.5 * np.sum(q**2)

    def gradient(q, y):
        theta = THETA * np.exp(q)
        x, S = first(theta)
        g = -q
        for t in range(len(y)):
            for i in range(2):
                g += (y[t, i] - x[t, i]) * S[t, i] * theta
        return g

    model = refhmc.Model(6, log_density, gradient, data=y, initial=np.zeros(6))
    assert model.runs_as_python is None
    assert not model.made_of().unknown
    q = np.full(6, 0.02)
    for a in range(6):
        h = 1e-5 * np.eye(6)[a]
        slope = (model.log_density(q + h) - model.log_density(q - h)) / 2e-5
        assert model.gradient(q)[a] == pytest.approx(slope, rel=1e-4, abs=1e-3)
    options = {"draws": 15, "tune": 10, "chains": 2, "random_seed": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = [sample(model, cores=cores, **options).draws for cores in (1, 2)]
    np.testing.assert_array_equal(*runs)


# ---------------------------------------------------------------------------------------------- where there is none


def square(t, x, theta):
    return theta[:1] * x**2


def square_jacobian(t, x, theta):
    return np.array([[2 * theta[0] * x[0], x[0] ** 2]])


def explosion(**changes):
    arguments = {"parameters": 1, "initial_state": [1.0], "times": [0.0, 1.0], "tolerance": 1e-8}
    return ODESolution(square, square_jacobian, **{**arguments, **changes})


@pytest.mark.sweep
def test_no_solution():
    theta, solution = np.array([1.5]), explosion()
    with pytest.raises(EvaluationError, match=r"runge_kutta.* at t = 0.666667"):
        solution.solve(theta)
    with pytest.raises(EvaluationError, match="(?i)parameters.*finite"):
        solution.solve([np.nan])
    x, S = solution.first(theta)
    assert np.isnan(x).all()
    assert np.isnan(S).all()
    solution.max_steps = 5
    with pytest.raises(EvaluationError, match=r"runge_kutta.*\b5 steps"):
        solution.solve(theta)
    solution.max_steps, solution.solver = 300, "auto"
    with pytest.raises(EvaluationError, match="odeint.*Excess work"):
        solution.solve(theta)


def stiff(t, x, theta):
    return np.array([-1e5 * (x[0] - theta[0] * np.cos(t))])


def stiff_jacobian(t, x, theta):
    return np.array([[-1e5, 1e5 * np.cos(t)]])


@pytest.mark.sweep
def test_stiff_equations_need_lsoda():
    """Explicit steps are limited to 6 / 1e5: one solver fails with an error, the other succeeds."""
    solution = ODESolution(stiff, stiff_jacobian, parameters=1, initial_state=[0.0], times=[0.0, 1.0], tolerance=1e-8)
    with pytest.raises(EvaluationError, match="runge_kutta.* 5000 steps.*solver='lsoda'"):
        solution.solve([2.0])
    exact = (1e10 * np.cos(1) + 1e5 * np.sin(1)) / (1e10 + 1)
    for solver in ("lsoda", "auto"):
        solution.solver = solver
        found = solution.solve([2.0])
        np.testing.assert_allclose(found.states[1], 2 * exact, rtol=1e-7)
        np.testing.assert_allclose(found.first[1, 0], exact, rtol=1e-7)


@pytest.mark.sweep
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_equations_that_numba_cannot_compile():
    with pytest.warns(PythonModelWarning, match="'ode' runs as Python"):
        python = ODESolution(
            lambda *a: square(*a) * float(str(1.0)),
            square_jacobian,
            parameters=1,
            initial_state=[1.0],
            times=[0.0, 1.0],
        )
    assert python.solve([0.5]).states[1, 0] == pytest.approx(2.0, rel=1e-8)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"solver": "euler"}, ValueError, "solver must be.* got 'euler'"),
        ({"initial_state": ["x0"]}, ValueError, "initial_state.*none.* 'x0'"),
        ({"parameters": ["r"], "initial_state": ["x0"]}, ValueError, r"initial_state.*\br\b.* 'x0'"),
        ({"initial_state": [np.inf]}, ShapeError, r"initial_state.*\(n,\).* got \[inf\]"),
        ({"events": [("r", [1.0])]}, ValueError, "events.* got 'r'"),
        ({"events": [(-1.0, [1.0])]}, ValueError, r"events.* 0\.0.* got -1\.0"),
        ({"events": [(0.5, [1.0]), (0.5, [1.0])]}, ValueError, r"events.* got 0\.5 after 0\.5"),
        ({"events": [(0.5, [1.0, 2.0])]}, ShapeError, r"events.* 0\.5.*\(1,\).* got shape \(2,\)"),
        ({"events": [(0.5, (square,))]}, ValueError, r"events.* 0\.5.* 1 derivatives?.* got 1"),
    ],
)
def test_invalid_arguments_are_rejected(changes, error, words):
    with pytest.raises(error, match=words):
        explosion(**changes)

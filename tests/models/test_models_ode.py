"""Posteriors of ODEs: sensitivities, every derivative, sampling, solver failures, invalid input.

The reference integrator is that of Gragg, Bulirsch and Stoer: the modified midpoint rule extrapolated to step zero. It runs
the equations on complex numbers, so that the complex step in theta, Im f(theta + ih e_k) / h, is the derivative of its
solution without cancellation. Compared with it, the solver at tolerance 1e-12 must give states to 1e-10, first sensitivities
to 1e-9 and second ones to 1e-8, relative to the largest of each: an error of one step grows along the path as the
sensitivities do. The derivatives of the posterior are sums of these and must agree to 1e-8.

The random checks are z-scores of all means of a test compared with quadrature. The probability of any failure by chance in
this file is below 1e-6.
"""

from __future__ import annotations

import itertools
import pickle
import warnings

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.compile.compiled import plain
from refhmc.errors import (
    EvaluationError,
    GradientError,
    InitError,
    MissingDerivativeError,
    PythonModelWarning,
    SamplingWarning,
    ShapeError,
)
from refhmc.models import fitzhugh_nagumo as fhn
from refhmc.models.ode import ODE
from refhmc.models.sensitivities import along_path, n_unknowns, work_for
from refhmc.numerics import differences
from tests.helpers.sweeps import representatives

FAMILY_ALPHA = 1e-6
COLUMNS = 6  # of the extrapolation
NORMAL = -0.5 * np.log(2 * np.pi)
POSITIONS = ([0.2, 0.2, 3.0], [0.35, -0.1, 2.6], [-0.1, 0.5, 1.2])


# ------------------------------------------------------------------------------------------- a reference of its own


def gbs(f, u, times):
    """Return u at the times, with one extrapolated step from each to the next."""
    path = [u]
    for t, H in zip(times[:-1], np.diff(times), strict=True):
        table = []
        for column in range(COLUMNS):
            n = 2 * (column + 1)
            h = H / n
            before, here = path[-1], path[-1] + h * f(t, path[-1])
            for m in range(1, n):
                before, here = here, before + 2 * h * f(t + m * h, here)
            row = [0.5 * (here + before + h * f(t + H, here))]
            for j in range(column):
                ratio = ((column + 1) / (column - j)) ** 2
                row.append(row[j] + (row[j] - table[-1][j]) / (ratio - 1))
            table.append(row)
        path.append(table[-1][-1])
    return np.array(path)


rhs, jacobian, hessian, third = (plain(f) for f in (fhn.rhs, fhn.jacobian, fhn.hessian, fhn.third))
equations = plain(along_path)


def solution(theta, order, times):
    """Return x, S, W, V (up to the order) of the reference integrator, for real or complex theta."""
    theta = np.asarray(theta)
    u = np.zeros(n_unknowns(2, 3, order), dtype=theta.dtype)
    u[:2] = fhn.START
    work = work_for(u, theta, 2)

    def f(t, u):
        equations(rhs, jacobian, hessian, third, 2, 2, 3, u, t, work)
        return work[: len(u)].copy()

    path = gbs(f, u, times)
    parts = path[:, 2:8], path[:, 8:20], path[:, 20:]
    return path[:, :2], *(part.reshape(len(times), 2, -1) for part in parts)


def along(theta, k):
    theta = np.asarray(theta, dtype=complex)
    theta[k] += 1j * differences.COMPLEX_STEP
    return theta


def place(*indices):
    """Return the place of a pair or triple of the three parameters in W or V."""
    return list(itertools.combinations_with_replacement(range(3), len(indices))).index(tuple(sorted(indices)))


PLACES = np.array([[place(a, b) for b in range(3)] for a in range(3)])


def far(x, y):
    """Return the largest difference relative to the largest entry."""
    return np.abs(x - y).max() / np.abs(y).max()


@pytest.fixture(scope="module")
def model():
    return refhmc.models.FitzHughNagumo()


@pytest.fixture(scope="module")
def few():
    """Return FitzHugh-Nagumo observed at 26 times."""
    times = fhn.observation_times(26)
    return refhmc.models.FitzHughNagumo(fhn.simulate(np.random.default_rng(3), times), times)


# ------------------------------------------------------------------------------------------------------ derivatives


def test_derivatives_of_the_right_hand_side():
    rng = np.random.default_rng(4)
    for _ in range(5):
        z = rng.standard_normal(5) + np.array([0, 0, 0, 0, 3])
        shapes = ((rhs, (2,)), (jacobian, (2, 5)), (hessian, (2, 5, 5)), (third, (2, 5, 5, 5)))
        value = [np.zeros(shape) for _, shape in shapes]
        for (f, _), out in zip(shapes, value, strict=True):
            f(0.0, z[:2], z[2:], out)
        for k in range(5):
            w = along(z, k)
            for order in (0, 1, 2):
                out = np.zeros(shapes[order][1], dtype=complex)
                shapes[order][0](0.0, w[:2], w[2:], out)
                np.testing.assert_allclose(
                    value[order + 1][..., k], out.imag / differences.COMPLEX_STEP, rtol=1e-13, atol=1e-13
                )


@pytest.mark.sweep
@pytest.mark.parametrize("theta", representatives(POSITIONS, POSITIONS[:1]))
def test_states_and_sensitivities_are_those_of_another_integrator(few, theta):
    times = few.data.times
    states, S, W, V = few.data.solve(theta, 3)
    finer = np.linspace(0, 10, 126)  # every fifth is one of the 26
    assert far(states, solution(np.array(theta), 0, finer)[0][::5]) < 1e-10
    assert len(times) == 26
    for k in range(3):
        x, first, second_order, _ = solution(along(theta, k), 2, finer)
        assert far(S[:, :, k], x[::5].imag / differences.COMPLEX_STEP) < 1e-9
        second = first[::5].imag / differences.COMPLEX_STEP  # d S_a / d theta_k
        for a in range(3):
            pair = place(a, k)
            assert far(W[:, :, pair], second[:, :, a]) < 1e-8
            for b in range(3):
                exact = second_order[::5, :, place(a, b)].imag / differences.COMPLEX_STEP
                assert far(V[:, :, place(a, b, k)], exact) < 1e-7


@pytest.mark.parametrize("theta", representatives(POSITIONS, POSITIONS[:1]))
def test_the_posteriors_derivatives_by_complex_step(few, theta):
    """Independent formulas on the complex solutions of the reference integrator."""
    theta, y, finer = np.array(theta), few.data.y, np.linspace(0, 10, 126)
    fisher, tensor = few.fisher(theta), few.fisher_derivative(theta)
    for k in range(3):
        w = along(theta, k)
        x, S, W, _ = (part[::5] for part in solution(w, 2, finer))
        L = np.sum(NORMAL - np.log(0.5) - 0.5 * ((y - x) / 0.5) ** 2) - 0.5 * np.sum(w**2)
        g = np.einsum("tn,tna->a", (y - x) / 0.25, S) - w
        G = np.einsum("tna,tnb->ab", S, S) / 0.25 + np.eye(3)
        assert abs(few.log_density(theta) - L.real) < 1e-8 * abs(L.real)
        assert (
            abs(few.gradient(theta)[k] - L.imag / differences.COMPLEX_STEP) < 1e-8 * np.abs(few.gradient(theta)).max()
        )
        assert far(few.gradient(theta), g.real) < 1e-8
        assert far(few.hessian(theta)[:, k], g.imag / differences.COMPLEX_STEP) < 1e-8
        assert far(fisher, G.real) < 1e-8
        assert far(tensor[:, :, k], G.imag / differences.COMPLEX_STEP) < 1e-8
        H = np.einsum("tn,tnab->ab", (y - x) / 0.25, W[:, :, PLACES]) - G
        assert far(few.hessian(theta), H.real) < 1e-8
        assert far(few.third_derivative(theta)[:, :, k], H.imag / differences.COMPLEX_STEP) < 1e-7
    M = np.random.default_rng(5).standard_normal((3, 3))
    tensor = few.fisher_derivative(theta)  # of the stored solution, which now has the third sensitivities
    np.testing.assert_allclose(few.fisher_contraction(theta, M), np.einsum("ij,ijk->k", M, tensor), rtol=1e-12)
    contraction = np.einsum("ij,ijk->k", M, few.third_derivative(theta))
    np.testing.assert_allclose(few.hessian_contraction(theta, M), contraction, rtol=1e-12)


def test_the_metrics_derivative_by_extrapolated_differences(few):
    """Ridders' method on the metric itself; its error is that of the solver, about 1e-10, over the width of the differences."""
    theta = np.array(POSITIONS[0])
    tensor = few.fisher_derivative(theta)
    for k in range(3):
        found = differences.ridders(lambda s, k=k: few.fisher(theta + s * np.eye(3)[k]).ravel(), width=0.05, levels=6)
        assert far(tensor[:, :, k].ravel(), found.value) < 1e-6


def test_an_equation_whose_solution_is_known():
    """x = e^lambda exp(-e^kappa t) from t = 0, observed from t = 1 with gaps: all derivatives in closed form."""
    times, rng = np.array([1.0, 1.5, 3.0]), np.random.default_rng(6)
    y = rng.standard_normal((3, 1))
    y[1] = np.nan
    sigma = np.array([[0.3], [1.0], [0.7]])

    def start(theta):
        x = np.exp(theta[1])
        derivatives = [np.zeros((1, *[2] * order)) for order in (1, 2, 3)]
        for each in derivatives:
            each.flat[-1] = x  # all indices 1
        return np.array([x]), *derivatives

    def decay(t, x, theta):
        return -np.exp(theta[0]) * x

    def slopes(t, x, theta):
        k = np.exp(theta[0])
        return np.array([[-k, -k * x[0], 0.0]])

    def curvature(t, x, theta, out):
        k = np.exp(theta[0])
        out[0, 0, 1] = out[0, 1, 0] = -k
        out[0, 1, 1] = -k * x[0]

    def third(t, x, theta, out):
        k = np.exp(theta[0])
        out[0, 0, 1, 1] = out[0, 1, 0, 1] = out[0, 1, 1, 0] = -k
        out[0, 1, 1, 1] = -k * x[0]

    model = ODE(
        decay,
        slopes,
        curvature,
        third,
        initial_state=start,
        start_time=0.0,
        times=times,
        y=y,
        sigma=sigma,
        prior_mean=[0.1, 0.2],
        prior_scale=[2.0, np.inf],
        tolerance=1e-12,
        names=["log_rate", "log_start"],
    )
    q = np.array([-0.3, 0.4])
    seen = np.array([0, 2])
    t, s, obs = times[seen], sigma[seen, 0], y[seen, 0]
    k = np.exp(q[0])
    x = np.exp(q[1] - k * t)
    S = np.stack([-k * t * x, x], axis=1)
    W = np.empty((2, 2, 2))
    W[:, 0, 0], W[:, 1, 1] = (k * t) ** 2 * x - k * t * x, x
    W[:, 0, 1] = W[:, 1, 0] = -k * t * x
    prior, w = np.diag([0.25, 0.0]), 1 / s**2
    r = obs - x
    fisher = np.einsum("t,ta,tb->ab", w, S, S) + prior
    L = np.sum(NORMAL - np.log(s) - 0.5 * w * r**2) - 0.5 * 0.25 * 0.4**2
    assert model.log_density(q) == pytest.approx(L, rel=1e-10)
    np.testing.assert_allclose(model.gradient(q), (w * r) @ S - prior @ (q - [0.1, 0.2]), rtol=1e-9)
    np.testing.assert_allclose(model.hessian(q), np.einsum("t,tab->ab", w * r, W) - fisher, rtol=1e-9)
    np.testing.assert_allclose(model.fisher(q), fisher, rtol=1e-9)
    tensor = np.einsum("t,tac,tb->abc", w, W, S)
    np.testing.assert_allclose(model.fisher_derivative(q), tensor + tensor.transpose(1, 0, 2), rtol=1e-9)
    V, kt = np.empty((2, 2, 2, 2)), k * t  # d/da of e^(-kt) is -kt e^(-kt), k = e^a
    V[:, 0, 0, 0], V[:, 1, 1, 1] = (-(kt**3) + 3 * kt**2 - kt) * x, x
    V[:, 0, 0, 1] = V[:, 0, 1, 0] = V[:, 1, 0, 0] = W[:, 0, 0]
    V[:, 0, 1, 1] = V[:, 1, 0, 1] = V[:, 1, 1, 0] = W[:, 0, 1]
    crossed = np.einsum("t,tab,tc->abc", w, W, S)
    whole = np.einsum("t,tabc->abc", w * r, V) - crossed - crossed.transpose(0, 2, 1) - crossed.transpose(2, 0, 1)
    np.testing.assert_allclose(model.third_derivative(q), whole, rtol=1e-8)
    assert model.data.solve(q, 1).second is None
    assert model.data.solve(q, 2).third is None
    assert model.runs_as_python == "its ODE may need SciPy's solver"


@pytest.mark.sweep
def test_events_with_normal_errors_and_priors():
    """x' = theta x^2 from x = 1 is 1/(1 - theta t). At t = 0.5, 1 is added, and 1/x starts from its new value."""
    model = explosive(events=[(0.5, [1.0])], tolerance=1e-12)
    after = 1 / (1 / (1 / (1 - 0.25) + 1) - 0.25)
    np.testing.assert_allclose(model.data.solve([0.5]).states[:, 0], [1.0, 1 / (1 - 0.25), after], rtol=1e-10)
    gradient = differences.ridders(lambda h: np.array([model.log_density([0.5 + h])]), 0.05, 6).value
    assert model.gradient([0.5])[0] == pytest.approx(gradient[0], rel=1e-6)


@pytest.mark.sweep
def test_the_same_model_through_the_public_helper(few):
    """FitzHugh-Nagumo as a user would write it, with functions that return arrays, and as Python that Numba cannot compile."""

    def f(t, x, theta):
        out = np.zeros(2)
        rhs(t, x, theta, out)
        return out

    arguments = {"initial_state": fhn.START, "times": few.data.times, "y": few.data.y, "sigma": 0.5}
    arguments |= {"prior_mean": np.zeros(3), "tolerance": 1e-12, "initial": fhn.TRUTH}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = ODE(fhn.rhs, fhn.jacobian, fhn.hessian, **arguments)
        with_third = ODE(fhn.rhs, fhn.jacobian, fhn.hessian, fhn.third, **arguments)
    with pytest.warns(PythonModelWarning, match="runs as Python"):
        python = ODE(lambda *a: f(*a) * float(str(1.0)), jacobian, hessian, third, **arguments)
    q = np.array(POSITIONS[1])
    for model in (with_third, python):
        assert far(model.third_derivative(q), few.third_derivative(q)) < 1e-9
    for model in (own, with_third, python):
        assert far(model.fisher_derivative(q), few.fisher_derivative(q)) < 1e-9
        assert far(model.gradient(q), few.gradient(q)) < 1e-9


def test_observations_in_fortran_order_give_the_same_density(few):
    """A transposed table is such an array."""
    arguments = {"initial_state": fhn.START, "times": few.data.times, "sigma": 0.5, "prior_mean": np.zeros(3)}
    arguments["initial"] = fhn.TRUTH
    q = np.array(POSITIONS[1])
    found = [
        ODE(fhn.rhs, fhn.jacobian, fhn.hessian, y=y, **arguments).log_density(q)
        for y in (few.data.y, np.asfortranarray(few.data.y))
    ]
    assert found[0] == found[1]


def test_canonical_data_and_copies(model):
    np.testing.assert_allclose(model.data.y, fhn.simulate(np.random.default_rng(20210205)), rtol=1e-9, atol=1e-9)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.fingerprint() == model.fingerprint()
    q = np.array(POSITIONS[1])
    assert copy.log_density(q) == model.log_density(q)
    other = refhmc.models.FitzHughNagumo(model.data.y, sigma=0.4)
    assert other.fingerprint() != model.fingerprint()


# --------------------------------------------------------------------------------------------------------- sampling


def z_of_means(model, result):
    """Return z of each mean, and of each variance, relative to the reference of the model."""
    az = pytest.importorskip("arviz")
    x = result.draws
    squared = (x - x.mean(axis=(0, 1))) ** 2
    found = []
    for values, truth in ((x, model.reference.mean), (squared, model.reference.variance)):
        ess = np.array([float(az.ess(values[:, :, j], method="mean")) for j in range(3)])
        found.append((values.mean(axis=(0, 1)) - truth) / (values.std(axis=(0, 1)) / np.sqrt(ess)))
    return np.concatenate(found)


BOUND = scipy.stats.norm.isf(FAMILY_ALPHA / 3 / 6 / 2)  # three tests of six z each
FISHER = refhmc.HMC(step_size=0.5, n_steps=3, step_jitter=0.2, metric=refhmc.metrics.Fisher())


def sampled(kernel, sample, **options):
    # A tolerance of 1e-8 moves the log density by 1e-6 and takes half the time.
    loose = refhmc.models.FitzHughNagumo(tolerance=1e-8)
    return sample(loose, kernel, random_seed=20261121, **options)


@pytest.mark.sweep
def test_hmc_on_the_fisher_metric_finds_the_posterior(model, sample):
    result = sampled(FISHER, sample, draws=30, tune=0, chains=4, initvals=model.reference.mean)
    assert result.sample_stats["is_accepted"].mean() > 0.9
    assert (np.abs(z_of_means(model, result)) < BOUND).all()


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [refhmc.NUTS(metric=refhmc.metrics.Dense()), FISHER], ids=["nuts", "fisher"])
def test_more_draws_of_the_posterior(kernel, model, sample):
    result = sampled(kernel, sample, draws=2000, tune=300, chains=4)
    assert (np.abs(z_of_means(model, result)) < BOUND).all()


# ------------------------------------------------------------------------------------------- where there is no solution


def growth(t, x, theta, out):
    out[0] = theta[0] * x[0] ** 2


def growth_jacobian(t, x, theta, out):
    out[0, 0], out[0, 1] = 2 * theta[0] * x[0], x[0] ** 2


def growth_hessian(t, x, theta, out):
    out[0, 0, 0] = 2 * theta[0]
    out[0, 0, 1] = out[0, 1, 0] = 2 * x[0]


def explosive(**changes):
    """Return dx/dt = theta x^2 from x = 1: 1/(1 - theta t), which ends at t = 1/theta, with observations at 0.5 and 1."""
    arguments = {"initial_state": [1.0], "times": [0.0, 0.5, 1.0], "y": [[1.0], [1.5], [2.5]], "sigma": 20.0}
    arguments |= {"prior_mean": [0.7], "prior_scale": 0.4, "initial": [0.5], "names": ["theta"], "tolerance": 1e-8}
    arguments |= {"max_steps": 300}
    return ODE(growth, growth_jacobian, growth_hessian, **{**arguments, **changes})


@pytest.fixture(scope="module")
def bounded():
    return explosive()


EXCESS = "odeint: Excess work done on this call"
KERNELS = {
    "nuts": refhmc.NUTS(step_size=0.4),
    "hmc": refhmc.HMC(step_size=0.2, n_steps=5),
    "fisher": refhmc.HMC(step_size=0.4, n_steps=2, metric=refhmc.metrics.Fisher()),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", representatives(KERNELS, ["hmc"]))
def test_solver_failures_are_recorded_with_the_message(name, bounded, sample, capfd):
    """A failure is a divergence. In an iteration of an implicit step, it is a failure of the solver of that step."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = sample(bounded, KERNELS[name], draws=60, tune=0, chains=2, random_seed=3)
    assert {w.category for w in caught} <= {SamplingWarning}
    failed = result.sample_stats["solver_failed" if name == "fisher" else "diverging"]
    assert failed.any()
    assert (result.draws < 1.0).all()  # where there is a solution
    told = [text for text in result.warnings if EXCESS in text]
    assert len(told) == 1
    assert [str(w.message) for w in caught if EXCESS in str(w.message)] == told
    if name != "fisher":
        assert "could not be evaluated" in next(text for text in result.warnings if "diverged" in text)
    assert not any("not positive definite" in text for text in result.warnings)
    failures = [f for f in result.attributes["evaluation_failures"] if EXCESS in f["message"]]
    assert sum(f["transitions"] for f in failures) <= failed.sum()
    assert sum(f["transitions"] for f in failures) > 0
    assert all(f["first_position"][0] >= 0.99 for f in failures)
    assert "lsoda" not in "".join(capfd.readouterr()).lower()


def test_solver_failures_are_stored_in_the_arviz_object(bounded, sample):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = sample(bounded, KERNELS["hmc"], draws=60, tune=20, chains=1, random_seed=3)
        text = str(result.to_arviz()["posterior"].attrs["evaluation_failures"])
    assert EXCESS in text


@pytest.mark.sweep
def test_start_without_a_solution_is_rejected_with_the_message_of_the_solver(bounded, sample):
    with pytest.raises(InitError, match=rf"start \[1.5\] of chain 0 .*got -inf.*{EXCESS}"):
        sample(bounded, initvals=[1.5])
    with pytest.raises(InitError, match=rf"start \[2.\] of chain 1 .*got -inf.*{EXCESS}"):
        sample(bounded, initvals=[[0.5], [2.0]], chains=2)
    nowhere = explosive(initial_state=[1e9], max_steps=20)  # for negative theta there is a solution
    nowhere.initial = None
    with pytest.raises(InitError, match=rf"No valid start.*{EXCESS}"):
        sample(nowhere)


def test_direct_calls_without_a_solution(bounded):
    model = bounded
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning of SciPy must not become an exception
        assert model.log_density([1.5]) == -np.inf
        assert np.isnan(model.gradient([1.5])).all()
        assert np.isnan(model.fisher([1.5])).all()
        assert model.log_density([np.nan]) == -np.inf
    with pytest.raises(EvaluationError, match=EXCESS):
        model.data.solve([1.5])
    assert np.isfinite(model.log_density([0.5]))


def test_python_functions_may_raise_evaluation_errors(sample):
    def log_density(q, data):
        if q[0] > 1:
            raise EvaluationError("the table ends at 1")
        return -0.5 * float(q @ q)

    model = refhmc.Model(1, log_density, lambda q, data: -q, data={}, in_python="it reads a table")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = sample(model, draws=200, tune=50, chains=2, random_seed=1, initvals=[0.0])
    assert any("the table ends at 1" in str(w.message) for w in caught)
    assert not any(issubclass(w.category, PythonModelWarning) for w in caught)
    assert (result.draws <= 1).all()
    failures = result.attributes["evaluation_failures"]
    assert {f["message"] for f in failures} == {"the table ends at 1"}
    assert any(f["warmup_transitions"] > 0 for f in failures)


# ------------------------------------------------------------------------------------------------- one run, any cut


def test_threads_and_resumed_runs_give_the_same_draws(bounded, sample, tmp_path):
    """The stored last position never affects the draws: they are bit-identical in threads, and if the run is resumed."""
    options = {"tune": 0, "chains": 2, "random_seed": 5}
    kernel = KERNELS["fisher"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = sample(bounded, kernel, draws=7, cores=1, **options)
        threads = sample(bounded, kernel, draws=7, cores=2, **options)
        sample(bounded, kernel, draws=3, checkpoint=tmp_path / "run", **options)
        resumed = sample(bounded, kernel, draws=7, checkpoint=tmp_path / "run", **options)
    assert np.array_equal(whole.draws, threads.draws)
    assert np.array_equal(whole.draws, resumed.draws)


# --------------------------------------------------------------------------------------------------------- invalid input


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"times": [0.0, 1.0, 0.5]}, ValueError, "times must be.*ascending"),
        ({"times": [0.0, 0.5]}, ShapeError, r"^y must.*\(2, .* got.* \(3, 1\)"),
        ({"start_time": 0.2}, ValueError, r"start_time must.* 0\.0.* got 0\.2"),
        ({"y": [1.0, 2.0, 3.0]}, ShapeError, r"^y must.* got.* \(3,\)"),
        ({"y": [[np.inf], [1.0], [1.0]]}, ValueError, "^y must.* finite"),
        ({"y": np.full((3, 1), np.nan)}, ValueError, "^y must.* finite"),
        ({"sigma": 0.0}, ValueError, "sigma must be.* positive"),
        ({"sigma": [1.0, 2.0]}, ShapeError, r"sigma must.*\(3, 1\).* got.* \(2,\)"),
        ({"prior_mean": 0.7}, ShapeError, r"prior_mean must.*\(p,\).* got.* \(\)"),
        ({"prior_mean": [np.nan]}, ValueError, "prior_mean must.* finite"),
        ({"prior_scale": -1.0}, ValueError, "prior_scale must.* positive"),
        ({"prior_scale": [1.0, 2.0]}, ShapeError, r"prior_scale must.* number.* got.* \(2,\)"),
        ({"initial_state": [1.0, 2.0]}, ShapeError, r"y must.* \(3, 2\).* initial_state.* got.* \(3, 1\)"),
        ({"tolerance": 0.0}, ValueError, "tolerance must"),
        ({"max_steps": 0}, ValueError, r"max_steps must.* got .*\b0\b"),
    ],
)
def test_invalid_arguments_are_rejected(changes, error, words):
    with pytest.raises(error, match=words):
        explosive(**changes)


@pytest.mark.sweep
def test_wrong_derivatives_are_named():
    def wrong(t, x, theta, out):
        growth_jacobian(t, x, theta, out)
        out[0, 1] *= 1.01

    def crooked(t, x, theta, out):
        out[0, 0, 0] = 2 * theta[0]
        out[0, 0, 1] = 2 * x[0]

    arguments = {"initial_state": [1.0], "times": [0.0, 1.0], "y": np.ones((2, 1)), "sigma": 1.0, "prior_mean": [0.5]}
    with pytest.raises(GradientError, match=r"jacobian\[0, 1\] of 'ode' is 1\.01 .*differences give 1"):
        ODE(growth, wrong, growth_hessian, **arguments)
    with pytest.raises(GradientError, match=r"hessian\[0, 1, 0\] of 'ode' is 0 "):
        ODE(growth, growth_jacobian, crooked, **arguments)
    with pytest.raises(GradientError, match=r"third\[0, 0, 1, 0\] of 'ode' is 0 .*differences give 2"):
        ODE(growth, growth_jacobian, growth_hessian, lambda t, x, theta, out: None, **arguments)


def test_missing_third_derivatives_are_named(bounded):
    for key in ("third_derivative", "hessian_contraction"):
        assert "ODE(..., third=...)" in bounded.why_absent(key)
        assert pickle.loads(pickle.dumps(bounded)).why_absent(key) == bounded.why_absent(key)
    with pytest.raises(MissingDerivativeError, match=r"third derivatives.*ODE\(\.\.\., third=\.\.\.\)"):
        bounded.third_derivative([0.5])
    with pytest.raises(MissingDerivativeError, match=r"SoftAbs.*ODE\(\.\.\., third=\.\.\.\)"):
        refhmc.Hamiltonian(bounded, refhmc.metrics.SoftAbs(1e6))
    with pytest.raises(ValueError, match="order.* 3"):
        bounded.data.solve([0.5], 3)


@pytest.mark.sweep
def test_softabs_on_an_ode(few):
    """The force from the third derivatives is the slope of the energy, by extrapolated differences."""
    H, q = refhmc.Hamiltonian(few, refhmc.metrics.SoftAbs(alpha=1e-2)), np.array(POSITIONS[0])
    p = H.draw_momentum(q, np.random.default_rng(7))
    for k in range(3):
        found = differences.ridders(lambda s, k=k: H.energy(q + s * np.eye(3)[k], p), width=0.02, levels=6)
        assert H.grad_q(q, p)[k] == pytest.approx(float(found.value), rel=1e-6, abs=1e-6 * np.abs(H.grad_q(q, p)).max())


def test_bad_arguments_of_fitzhugh_nagumo():
    with pytest.raises(ShapeError, match=r"^y must.* \(T, 2\).* got.* \(5, 3\)"):
        refhmc.models.FitzHughNagumo(np.zeros((5, 3)))
    with pytest.raises(ValueError, match="times and sigma.* y"):
        refhmc.models.FitzHughNagumo(sigma=0.1)

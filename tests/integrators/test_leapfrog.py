"""The leapfrog: symplectic, reversible, of order two and of the right speed; the same in each of its three implementations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
from hypothesis import assume, given
from hypothesis import strategies as st

import refhmc
from refhmc.compile import compiled
from refhmc.core.point import GRADIENT, LOG_DENSITY, POINT_ROWS, VELOCITY, P, Q
from refhmc.dynamics.assemble import make_dynamics
from refhmc.dynamics.trajectory import run_trajectory
from refhmc.integrators.leapfrog import leapfrog_by_products, leapfrog_diagonal
from refhmc.metrics import Dense, Diagonal, Identity, euclidean
from tests.helpers.core_records import plain_model
from tests.helpers.leapfrog_cases import ANY_CASE, LEAPFROG, METRICS, case, no_density, no_gradient
from tests.helpers.low_rank_metrics import low_rank_metric
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import representatives


def stable_path(H, q, p, step_size: float, n_steps: int):
    """The trajectory, and the norm of its Jacobian; examples that blow up (round-off is all there is) are left out."""
    path = refhmc.integrate(H, LEAPFROG, q, p, step_size=step_size, n_steps=n_steps)
    assume(np.abs(path.energy).max() < 1e12)
    J = jacobian(H, q, p, step_size, n_steps)
    size = np.linalg.norm(J, 2)
    assume(size < 1e6)
    return path, J, size


def plain_end(H, q, p, eps: float, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The last point of the trajectory, and the energies, by the leapfrog's own code as Python, real or complex."""
    dynamics = make_dynamics(H.model, H.metric, LEAPFROG)
    core = plain_model(H.model.core.tuple)
    step = compiled.plain(leapfrog_by_products if len(dynamics.mats) else leapfrog_diagonal)
    z = np.zeros((POINT_ROWS, len(q)), np.result_type(q, p))
    z[Q], z[P] = q, p
    z[LOG_DENSITY, 0] = core[1](z[Q], core[0], z[GRADIENT])
    energies = [step(core, None, z, eps, dynamics.work(), None) for _ in range(n_steps)]
    return z, np.array(energies)


def jacobian(H, q, p, eps: float, n_steps: int) -> np.ndarray:
    """d(q', p')/d(q, p) of ``n_steps`` steps, (2d, 2d), by complex steps: exact to round-off."""
    d, h = len(q), 1e-30
    columns = []
    for k in range(2 * d):
        start = np.concatenate([q, p]).astype(complex)
        start[k] += 1j * h
        z, _ = plain_end(H, start[:d], start[d:], eps, n_steps)
        columns.append(np.concatenate([z[Q].imag, z[P].imag]) / h)
    return np.array(columns).T


def omega(d: int) -> np.ndarray:
    zero, one = np.zeros((d, d)), np.eye(d)
    return np.block([[zero, one], [-one, zero]])


# -------------------------------------------------------------------------------------------- geometry of the map


@cases(40)
@given(**ANY_CASE)
def test_symplectic(name, metric, seed, step, n_steps):
    H, q, p, step_size = case(name, metric, seed, step)
    _, J, size = stable_path(H, q, p, step_size, n_steps)
    defect = np.abs(J.T @ omega(len(q)) @ J - omega(len(q))).max()
    assert defect <= 1e-14 * size**2
    if size < 1e3:
        sign, log_volume = np.linalg.slogdet(J)
        assert sign == 1
        assert abs(log_volume) <= 1e-14 * size**2


@pytest.mark.sweep
@cases(80)
@given(**ANY_CASE)
def test_reversible(name, metric, seed, step, n_steps):
    H, q, p, step_size = case(name, metric, seed, step)
    there, _, size = stable_path(H, q, p, step_size, n_steps)  # J^-1 = -Omega J' Omega has the same norm
    scale = max(np.abs(there.q).max(), np.abs(there.p).max())
    flipped = refhmc.integrate(H, LEAPFROG, there.q[-1], -there.p[-1], step_size=step_size, n_steps=n_steps)
    backwards = refhmc.integrate(H, LEAPFROG, there.q[-1], there.p[-1], step_size=-step_size, n_steps=n_steps)
    for back, sign in ((flipped, -1), (backwards, 1)):
        assert np.abs(back.q[-1] - q).max() <= 5e-15 * n_steps * size * scale
        assert np.abs(sign * back.p[-1] - p).max() <= 5e-15 * n_steps * size * scale
    # Either way is the same arithmetic but for signs.
    assert np.array_equal(flipped.q, backwards.q)
    assert np.array_equal(flipped.p, -backwards.p)


# ------------------------------------------------------------------------------------------------ the true flow


def true_flow(H, q, p, time: float) -> np.ndarray:
    d = len(q)

    def field(_, y):
        return np.concatenate([H.grad_p(y[:d], y[d:]), -H.grad_q(y[:d], y[d:])])

    solved = scipy.integrate.solve_ivp(field, (0, time), np.concatenate([q, p]), "DOP853", rtol=1e-12, atol=1e-12)
    return solved.y[:, -1]


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize(
    "name", representatives(["gaussian", "banana", "funnel", "eight_schools"], ["gaussian", "funnel"])
)
def test_order_two_against_the_true_flow(name, metric):
    """Over one unit of the fastest local time scale, in 20 and in 40 steps."""
    for seed in range(3):
        H, q, p, time = case(name, metric, seed)
        want = true_flow(H, q, p, time)
        errors = []
        for n in (20, 40):
            got = refhmc.integrate(H, LEAPFROG, q, p, step_size=time / n, n_steps=n)
            errors.append(np.linalg.norm(np.concatenate([got.q[-1], got.p[-1]]) - want))
        assert errors[1] > 1e-9  # well above the reference's own error
        assert 1.9 <= math.log2(errors[0] / errors[1]) <= 2.1


def test_free_motion_takes_the_time_it_should():
    free = refhmc.Model(3, no_density, no_gradient, name="free")
    q, p = np.array([1.0, -2.0, 0.5]), np.array([0.3, 1.0, -2.0])
    for metric in METRICS.values():
        H = refhmc.Hamiltonian(free, metric(3))
        path = refhmc.integrate(H, LEAPFROG, q, p, step_size=0.1, n_steps=50)
        times = 0.1 * np.arange(51)
        np.testing.assert_allclose(path.q, q + times[:, None] * H.grad_p(q, p), rtol=0, atol=1e-13)
        assert np.array_equal(path.p, np.tile(p, (51, 1)))
        np.testing.assert_allclose(path.energy, H.energy(q, p), rtol=1e-15)


def test_the_oscillator_takes_the_time_it_should():
    H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    path = refhmc.integrate(H, LEAPFROG, [1.0], [0.5], step_size=1e-3, n_steps=5000)
    times = 1e-3 * np.arange(5001)
    # The period is off by a factor 1 + h^2/24: 4e-8 of 5.
    np.testing.assert_allclose(path.q[:, 0], np.cos(times) + 0.5 * np.sin(times), rtol=0, atol=1e-6)
    np.testing.assert_allclose(path.p[:, 0], 0.5 * np.cos(times) - np.sin(times), rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------------------ harmonic oscillators


@cases(40)
@given(h=st.floats(0.01, 1.99), s=st.floats(0.05, 20.0), seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 200))
def test_oscillator_in_closed_form(h, s, seed, steps):
    """The map of L steps is [[cos Lt, x sin Lt], [-sin(Lt) / x, cos Lt]] of (q/s, p), with cos t = 1 - h^2/2 and
    x = (1 - h^2/4)^(-1/2); it conserves p^2 + (1 - h^2/4) q^2/s^2."""
    q, p = np.random.default_rng(seed).normal(size=2)
    H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[s * s]]))
    path = refhmc.integrate(H, LEAPFROG, [s * q], [p], step_size=h * s, n_steps=1000)
    t, x = math.acos(1 - h * h / 2), (1 - h * h / 4) ** -0.5
    L = np.arange(steps + 1)
    # Round-off: t loses digits where its cosine is near 1 or -1, the map where x is large.
    tolerance = 1e-14 * steps * x * x / min(h, 1)
    got_q, got_p = path.q[: steps + 1, 0] / s, path.p[: steps + 1, 0]
    np.testing.assert_allclose(got_q, np.cos(L * t) * q + x * np.sin(L * t) * p, rtol=0, atol=tolerance * 10)
    np.testing.assert_allclose(got_p, -np.sin(L * t) / x * q + np.cos(L * t) * p, rtol=0, atol=tolerance * 10)
    shadow = path.p[:, 0] ** 2 + (1 - h * h / 4) * (path.q[:, 0] / s) ** 2
    np.testing.assert_allclose(shadow, shadow[0], rtol=1e-13 * 1000 * x)


def test_stable_up_to_step_two():
    for s in (0.1, 1.0, 7.0):
        H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[s * s]]))
        stable = refhmc.integrate(H, LEAPFROG, [s], [1.0], step_size=1.999 * s, n_steps=1000)
        unstable = refhmc.integrate(H, LEAPFROG, [s], [1.0], step_size=2.001 * s, n_steps=1000)
        assert np.abs(stable.q).max() < 100 * s
        assert np.abs(unstable.q).max() > 1e10 * s


# --------------------------------------------------------------------------------------- energies, texts, metrics


@pytest.mark.sweep
@cases(60)
@given(**ANY_CASE)
def test_energies_are_those_of_the_hamiltonian(name, metric, seed, step, n_steps):
    H, q, p, step_size = case(name, metric, seed, step)
    path, _, _ = stable_path(H, q, p, step_size, n_steps)
    assert path.q.shape == path.p.shape == (n_steps + 1, len(q))
    assert np.array_equal(path.q[0], q)
    assert np.array_equal(path.p[0], p)
    assert path.converged.all()
    assert not path.iterations.any()
    assert path.evaluations == n_steps + 1
    for x, y, energy in zip(path.q, path.p, path.energy, strict=True):
        kinetic = abs(H.energy(x, y) + H.model.log_density(x))
        assert energy == pytest.approx(H.energy(x, y), rel=1e-12, abs=1e-12 * (1 + kinetic))


@pytest.mark.sweep
@cases(40)
@given(**{**ANY_CASE, "metric": st.sampled_from(["identity", "diagonal"])})
def test_a_diagonal_covariance_given_as_dense_is_the_same(name, metric, seed, step, n_steps):
    H, q, p, step_size = case(name, metric, seed, step)
    dense = refhmc.Hamiltonian(H.model, Dense(np.diag(H.metric.inverse_mass(len(q)))))
    a, _, size = stable_path(H, q, p, step_size, n_steps)
    b = refhmc.integrate(dense, LEAPFROG, q, p, step_size=step_size, n_steps=n_steps)
    tolerance = 1e-14 * n_steps * size * max(np.abs(a.q).max(), np.abs(a.p).max())
    np.testing.assert_allclose(a.q, b.q, rtol=0, atol=tolerance)
    np.testing.assert_allclose(a.p, b.p, rtol=0, atol=tolerance)


@cases(40)
@given(**ANY_CASE)
def test_three_texts_agree(name, metric, seed, step, n_steps):
    """The step known to the kernels, the step behind a pointer and the code as Python; and the contents of a point."""
    H, q, p, step_size = case(name, metric, seed, step)
    path, _, size = stable_path(H, q, p, step_size, n_steps)
    kernel = refhmc.HMC(step_size=abs(step_size), n_steps=n_steps, metric=H.metric)
    move = refhmc.transition(H.model, kernel, q, momentum=p * np.sign(step_size), uniforms=[0.0])
    if move.stats["is_accepted"]:
        assert np.array_equal(move.q, path.q[-1])

    dynamics = make_dynamics(H.model, H.metric, LEAPFROG)
    z = np.zeros((POINT_ROWS, len(q)))
    z[Q], z[P] = q, p
    z[LOG_DENSITY, 0], z[GRADIENT] = H.model.core.value_and_gradient(q)
    states, history = np.zeros((n_steps + 1, 2, len(q))), np.zeros((n_steps + 1, 3))
    run_trajectory(dynamics.pointers, dynamics.model, z, step_size, dynamics.work(), dynamics.own(), states, history)
    energies = history[:, 0]

    # The other rows of the point belong to where it is.
    log_density, gradient = H.model.core.value_and_gradient(z[Q].copy())
    assert z[LOG_DENSITY, 0] == log_density
    assert np.array_equal(z[GRADIENT], gradient)
    np.testing.assert_allclose(z[VELOCITY], H.grad_p(z[Q], z[P]), rtol=1e-13, atol=1e-14 * np.abs(z[P]).max())

    plain, plain_energies = plain_end(H, q, p, step_size, n_steps)
    scale = max(np.abs(path.q).max(), np.abs(path.p).max())
    for row in (Q, P):
        np.testing.assert_allclose(plain[row], z[row], rtol=0, atol=1e-14 * n_steps * size * scale)
    assert plain_energies[-1] == pytest.approx(energies[-1], rel=1e-11 * size, abs=1e-11 * size)


@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_the_momentum_has_covariance_m(d):
    """p = A z for standard normals z; the columns of A are the momenta of unit vectors. A A' = M, exactly."""
    rng = np.random.default_rng(d)
    root = rng.normal(size=(d, d + 2)) * np.logspace(-2, 2, d)[:, None]
    covariance = root @ root.T
    gaussian = refhmc.models.Gaussian(np.zeros(d), np.eye(d))
    for metric, M in (
        (Identity(), np.eye(d)),
        (Diagonal(np.diag(covariance)), np.diag(1 / np.diag(covariance))),
        (Dense(covariance), np.linalg.inv(covariance)),
        (low_rank_metric(d), np.linalg.inv(np.atleast_2d(low_rank_metric(d).inverse_mass(d)))),
    ):
        H = refhmc.Hamiltonian(gaussian, metric)
        work = make_dynamics(gaussian, metric, LEAPFROG).work()
        plain_refresh = compiled.plain(euclidean.refresh)
        A = np.empty((d, d))
        for k in range(d):
            z = np.zeros((POINT_ROWS, d))
            energy = plain_refresh(None, None, z, np.eye(d)[k], True, work)
            A[:, k] = z[P]
            assert energy == pytest.approx(0.5, rel=1e-9)  # z'z/2, whatever the metric
            np.testing.assert_allclose(
                z[VELOCITY], H.grad_p(z[Q], z[P]), rtol=1e-9, atol=1e-9 * np.abs(z[VELOCITY]).max()
            )
        units = np.sqrt(np.outer(np.diag(M), np.diag(M)))
        assert np.abs((A @ A.T - M) / units).max() <= 1e-10
        assert np.abs((H.mass() - M) / units).max() <= 1e-10

        # From the same normals, Python's draw and the transition's own are the same.
        z = np.zeros((POINT_ROWS, d))
        normals = np.random.default_rng(7).standard_normal(d)
        plain_refresh(None, None, z, normals, True, work)
        drawn = H.draw_momentum(np.zeros(d), np.random.default_rng(7))
        np.testing.assert_allclose(drawn, A @ normals, rtol=1e-9)
        assert metric.name in ("dense", "low-rank") or np.array_equal(drawn, z[P])
        np.testing.assert_allclose(z[P], A @ normals, rtol=1e-9)
        kernel = refhmc.HMC(step_size=1e-3, n_steps=1, metric=metric)
        got = refhmc.transition(gaussian, kernel, np.zeros(d), rng=np.random.default_rng(7))
        if metric.name == "low-rank":  # sums over directions may be added in another order
            np.testing.assert_allclose(got.momentum, z[P], rtol=1e-13, atol=1e-14)
        else:
            assert np.array_equal(got.momentum, z[P])


@pytest.mark.parametrize(("step_size", "n_steps"), [(0.0, 1), (math.nan, 1), (math.inf, 1), (0.1, -1), (0.1, 1.5)])
def test_refuses_what_is_no_trajectory(step_size, n_steps):
    H, q, p, _ = case("gaussian", "identity", 0)
    with pytest.raises(ValueError, match=f"(step_size|n_steps).*{n_steps if step_size == 0.1 else step_size}"):
        refhmc.integrate(H, LEAPFROG, q, p, step_size=step_size, n_steps=n_steps)


def test_no_steps_is_the_start():
    H, q, p, _ = case("gaussian", "identity", 0)
    path = refhmc.integrate(H, LEAPFROG, q, p, step_size=0.1, n_steps=0)
    assert np.array_equal(path.q, q[None])
    assert path.energy[0] == pytest.approx(H.energy(q, p), rel=1e-14)

"""A user's metric, integrator and kernel, defined in this file, work everywhere without a line in refhmc."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.core import sample_stats as S
from refhmc.core.point import as_point, copy_point
from refhmc.core.records import Layout
from refhmc.core.types import as_dynamics, as_model, as_points, as_work, as_workspace
from refhmc.integrators import ImplicitMidpoint
from refhmc.kernels.hmc import begin, metropolis_accept, not_begun
from refhmc.metrics.base import EUCLIDEAN, SHARED, Riemannian, log_density_at_metric
from refhmc.sampling.results.run_warnings import inexact_part
from tests.helpers.many_starts import from_each

own = numba.njit(nogil=True, error_model="numpy")
MEAN, COVARIANCE = np.array([0.3, -0.5]), np.array([[1.0, 0.4], [0.4, 2.0]])
GAUSSIAN = refhmc.models.Gaussian(MEAN, COVARIANCE)
Q, P = np.array([0.7, -1.1]), np.array([0.4, 0.9])
UNIFORMS = np.full(200, 0.4)

# ------------------------------------------------------------------------------------------ G = diag(1 + q_i^2)

views, euclidean = SHARED.views, EUCLIDEAN.views


@own
def factorise(model, work):
    w = views(work)
    for i in range(w.position.shape[0]):
        w.scales[i] = 1 + w.position[i] ** 2
    as_work(work).cache.log_det_weight = 0.5
    return True


@own
def inverse_product(p, work, out):
    w = views(work)
    for i in range(p.shape[0]):
        out[i] = p[i] / w.scales[i]


@own
def velocity_and_force(model, p, phi, tau, work, v, dH_dq):
    w = views(work)
    inverse_product(p, work, v)
    log_density_at_metric(model, work)
    for i in range(p.shape[0]):
        dH_dq[i] = phi * (w.position[i] / w.scales[i] - w.gradient[i]) - tau * w.position[i] * v[i] ** 2


@own
def draw(normals, work, p):
    w = views(work)
    for i in range(p.shape[0]):
        p[i] = math.sqrt(w.scales[i]) * normals[i]


@dataclass(frozen=True)
class Parabolic(Riemannian):
    reads = (None, None)
    layout = SHARED
    is_dense = False

    @property
    def geometry(self):
        return factorise, inverse_product, velocity_and_force, draw


@own
def cannot_factorise(model, work):
    return False


class NeverFactorised(Parabolic):
    @property
    def geometry(self):
        return cannot_factorise, inverse_product, velocity_and_force, draw


# ------------------------------------------------------------------------------------------ drift, kick, drift


@own
def drift_kick_drift(model, metric, z, eps, work, rows):
    f, point = as_model(model), as_point(z)
    inverse_mass = euclidean(work).inverse_mass
    for i in range(z.shape[1]):
        point.q[i] += 0.5 * eps * inverse_mass[i] * point.p[i]
    f.value_and_gradient(point.q, f.data, point.gradient)
    kinetic = 0.0
    for i in range(z.shape[1]):
        point.p[i] += eps * point.gradient[i]
        point.velocity[i] = inverse_mass[i] * point.p[i]
        point.q[i] += 0.5 * eps * point.velocity[i]
        kinetic += 0.5 * point.p[i] * point.velocity[i]
    point.log_density[0] = f.value_and_gradient(point.q, f.data, point.gradient)
    as_work(work).counters.gradients += 2
    return kinetic - point.log_density[0]


@dataclass(frozen=True)
class DriftKickDrift:
    order = 2
    symplectic = reversible = exact = True
    approximation = ""
    implicit = False
    cost = 2
    layout = Layout("")
    constant_metric = True

    def pointer(self, metric):
        return drift_kick_drift

    def options(self):
        return {}


# ------------------------------------------------------------------------------------------ one step and a decision


@own
def langevin(dynamics, model, workspace, randomness, settings, stats, control):
    points, _, _, rows, work = as_workspace(workspace)
    at, dyn, status = as_points(points), as_dynamics(dynamics), as_work(work).status
    H0 = begin(dynamics, model, workspace, randomness, settings)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    copy_point(at.candidate, at.state)
    H = dyn.step(model, dyn.metric, at.candidate, settings.step_size, work, rows)
    energies = (H0, H, min(H0, H), max(H0, H), H - H0)
    return metropolis_accept(at, randomness, energies, settings.step_size, settings.step_size, 1, status, stats)


@dataclass(frozen=True)
class Langevin:
    step_size: float | None = None
    target_accept: float | None = 0.574
    metric: object = None
    integrator: object = None
    statistics = ("lp", "energy", "acceptance_rate", "diverging", "step_size", "n_steps", "is_accepted", "outcome")

    @property
    def transition(self):
        return langevin

    def settings(self):
        return {}


class TimedLangevin(Langevin):
    statistics = (*Langevin.statistics, "int_time")


@dataclass(frozen=True)
class InTurn:
    """The second coordinate by Langevin's move, then the first by HMC."""

    step_size: float

    @property
    def blocks(self):
        return {(1,): Langevin(step_size=self.step_size), (0,): refhmc.HMC(n_steps=2)}


# ------------------------------------------------------------------------------------------ they work


def assert_law(kernel):
    """Exact draws after three transitions: means, squares and the product of their whitened coordinates.

    Five z values beyond 4.5 occur in one of 29,000 runs. A mean that is off by .08 standard deviations, or a scale by 6 %, is
    detected in four of five.
    """
    rng, n = np.random.default_rng(5), 5_000
    starts = rng.multivariate_normal(MEAN, COVARIANCE, n)
    q, stats = from_each(GAUSSIAN, kernel, starts, 7, 3)
    assert 0.2 < stats["is_accepted"].mean() < 0.9999
    x = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (q - MEAN).T)
    z = [*x.mean(axis=1), *((x**2).mean(axis=1) - 1) / 2**0.5, (x[0] * x[1]).mean()]
    assert np.abs(z).max() * n**0.5 < 4.5


def test_a_metric():
    """Energy, forces and mass follow the formula, steps keep the energy, chains keep the target, and the kit passes it."""
    H, G = refhmc.Hamiltonian(GAUSSIAN, Parabolic()), 1 + Q**2
    energy = -GAUSSIAN.log_density(Q) + 0.5 * P @ (P / G) + 0.5 * np.log(G).sum()
    assert H.energy(Q, P) == pytest.approx(energy, rel=1e-14)
    np.testing.assert_allclose(H.mass(Q), np.diag(G), rtol=1e-14)
    path = refhmc.integrate(H, ImplicitMidpoint(tolerance=1e-12), Q, P, step_size=0.05, n_steps=40)
    assert np.abs(path.energy - path.energy[0]).max() < 1e-3
    kernel = refhmc.NUTS(step_size=0.4, metric=Parabolic())
    assert refhmc.transition(GAUSSIAN, kernel, Q, momentum=P, uniforms=UNIFORMS).outcome in S.OUTCOMES
    refhmc.sample(GAUSSIAN, refhmc.NUTS(metric=Parabolic()), draws=20, tune=20, chains=1, progressbar=False, raw=True)
    assert_law(refhmc.HMC(step_size=0.8, n_steps=3, metric=Parabolic()))
    rc.metric(H.mass, H=H.energy, logp=GAUSSIAN.log_density, grad_q=H.grad_q, grad_p=H.grad_p, dim=2).assert_ok()


def test_a_metric_that_reads_nothing_and_cannot_be_factorised():
    with pytest.raises(refhmc.errors.MetricError, match="NeverFactorised cannot be factorised at q = "):
        refhmc.Hamiltonian(GAUSSIAN, NeverFactorised()).energy(Q, P)


@pytest.mark.sweep
def test_an_integrator():
    """Its steps follow the formula, are reversible, keep the target, and pass the kit; an incomplete one is rejected."""
    H = refhmc.Hamiltonian(GAUSSIAN)
    there = refhmc.integrate(H, DriftKickDrift(), Q, P, step_size=0.2, n_steps=7)
    back = refhmc.integrate(H, DriftKickDrift(), there.q[-1], -there.p[-1], step_size=0.2, n_steps=7)
    np.testing.assert_allclose(back.q[-1], Q, atol=1e-13)
    middle = Q + 0.1 * P
    np.testing.assert_allclose(there.q[1], middle + 0.1 * (P + 0.2 * GAUSSIAN.gradient(middle)), rtol=1e-14)
    kernel = refhmc.NUTS(step_size=0.4, integrator=DriftKickDrift())
    assert refhmc.transition(GAUSSIAN, kernel, Q, momentum=P, uniforms=UNIFORMS).outcome in S.OUTCOMES
    assert_law(refhmc.HMC(step_size=1.0, n_steps=3, integrator=DriftKickDrift()))
    with pytest.raises(ValueError, match="metric must be constant.*DriftKickDrift.*Parabolic"):
        refhmc.HMC(integrator=DriftKickDrift(), metric=Parabolic())
    half = type("Half", (), {name: value for name, value in vars(DriftKickDrift).items() if name != "options"})
    with pytest.raises(TypeError, match="integrator.*Half.*options"):
        refhmc.HMC(integrator=half())

    for options, words in (({"reversal_tolerance": 1e-6}, "Wrong.*CHECK"), ({"colour": 1.0}, "Wrong.*'colour'")):
        wrong = type("Wrong", (DriftKickDrift,), {"options": lambda self, options=options: options})()
        with pytest.raises(TypeError, match=words):
            refhmc.integrate(H, wrong, Q, P, step_size=0.2, n_steps=1)

    def step(q, p, eps):
        path = refhmc.integrate(H, DriftKickDrift(), q, p, step_size=eps, n_steps=1)
        return path.q[-1], path.p[-1]

    rc.integrator(step, H=H.energy, dim=2, eps=0.1, claims="symplectic reversible order=2").assert_ok()


@pytest.mark.sweep
def test_a_kernel():
    """Its move follows the formula and keeps the target, warm-up reaches its target acceptance, and Gibbs accepts it."""
    moved = refhmc.transition(GAUSSIAN, Langevin(step_size=0.5), Q, normals=np.zeros(2), uniforms=[0.0])
    np.testing.assert_allclose(moved.q, Q + 0.125 * GAUSSIAN.gradient(Q), rtol=1e-14)
    assert_law(Langevin(step_size=1.0))
    options = {"chains": 2, "random_seed": 1, "progressbar": False, "raw": True}
    result = refhmc.sample(GAUSSIAN, Langevin(), draws=1000, tune=600, **options)
    assert abs(result.sample_stats["acceptance_rate"].mean() - 0.574) < 0.1
    assert set(result.sample_stats) == set(Langevin.statistics)
    blocks = refhmc.Gibbs({(0,): Langevin(step_size=0.8), (1,): refhmc.NUTS()})
    assert refhmc.sample(GAUSSIAN, blocks, draws=30, tune=30, **options).draws.shape == (2, 30, 2)
    with pytest.raises(TypeError, match="kernel must be.*Langevin"):
        refhmc.sample(GAUSSIAN, Langevin)

    def kern(q, p0, u):
        return refhmc.transition(GAUSSIAN, Langevin(step_size=0.8), q, momentum=p0, uniforms=[u]).q

    rc.transition(kern, refhmc.Hamiltonian(GAUSSIAN), dim=2).assert_ok()


def test_a_kernel_with_a_trajectory_length_and_no_number_of_steps():
    options = {"draws": 20, "tune": 20, "chains": 2, "random_seed": 1, "progressbar": False, "raw": True}
    assert (refhmc.sample(GAUSSIAN, TimedLangevin(step_size=0.8), **options).sample_stats["int_time"] > 0).all()


def test_a_kernel_without_a_name_and_with_an_integrator_that_is_not_exact():
    unchecked = ImplicitMidpoint(reversibility_check=False)
    assert inexact_part(Langevin(step_size=0.8, integrator=unchecked)) is unchecked


@pytest.mark.sweep
def test_a_kernel_of_blocks():
    """It is sampled as the Gibbs kernel of its blocks; blocks that are not a partition are rejected by the kernel's name."""
    options = {"draws": 40, "tune": 40, "chains": 2, "random_seed": 3, "progressbar": False, "raw": True}
    own = refhmc.sample(GAUSSIAN, InTurn(0.8), **options)
    ours = refhmc.sample(GAUSSIAN, refhmc.Gibbs(InTurn(0.8).blocks), **options)
    assert np.array_equal(own.draws, ours.draws)
    assert own.sample_stats.keys() == ours.sample_stats.keys()
    assert {"lp", "step_size_block0", "energy_error_block1"} <= own.sample_stats.keys()
    three = refhmc.models.Gaussian(np.zeros(3), np.eye(3))
    with pytest.raises(ValueError, match=r"InTurn.* in no block"):
        refhmc.sample(three, InTurn(0.8), **options)

"""The explicit integrator for hierarchical metrics: its map, its properties, and the distribution that its chains keep."""

from __future__ import annotations

import dataclasses

import mpmath
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import refhmc
from refhmc.integrators import BlockLeapfrog, Leapfrog, Yoshida
from refhmc.metrics import Dense, Diagonal, Fisher, Hierarchical, SoftAbs
from tests.helpers.hierarchical_cases import FISHER_MODELS, Definition, funnel_metric, random_metric, schools_metric
from tests.helpers.many_starts import from_each

RNG = np.random.default_rng(11)
SCHOOLS = FISHER_MODELS["schools"]
PRECISION = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.4], [0.0, -0.4, 0.5]])
CASES = {
    "funnel, hierarchical": (refhmc.models.Funnel(3), funnel_metric(3)),
    "schools, hierarchical": (SCHOOLS, schools_metric()),
    **{f"{name}, Fisher": (model, Fisher()) for name, model in FISHER_MODELS.items()},
    "normal, three levels": (
        refhmc.models.Gaussian(np.zeros(3), PRECISION),
        random_metric(np.random.default_rng(5), 3, 2, 2),
    ),
    "normal, diagonal": (refhmc.models.Gaussian(np.zeros(3), PRECISION), Diagonal([0.5, 2.0, 1.0])),
    "normal, dense": (refhmc.models.Gaussian(np.zeros(3), PRECISION), Dense(np.linalg.inv(PRECISION))),
}


def start_of(name: str, seed: int = 3):
    model, metric = CASES[name]
    rng, H = np.random.default_rng(seed), refhmc.Hamiltonian(model, metric)
    q = 0.5 * rng.normal(size=model.dim)
    return H, q, H.draw_momentum(q, rng)


def end_of(H, q, p, step_size, n_steps, method=None):
    path = refhmc.integrate(H, method or BlockLeapfrog(), q, p, step_size=step_size, n_steps=n_steps)
    return np.concatenate([path.q[-1], path.p[-1]])


def test_the_case_with_three_levels_has_three():
    assert set(CASES["normal, three levels"][1].levels()) == {0, 1, 2}


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 4), K=st.integers(1, 2), P=st.integers(0, 2))
def test_both_implementations_make_the_step_of_the_definition(seed, d, K, P):
    rng = np.random.default_rng(seed)
    metric, model = random_metric(rng, d, K, P), refhmc.models.Gaussian(np.zeros(d), np.eye(d))
    q, p = 0.5 * rng.normal(size=d), rng.normal(size=d)
    exact = np.concatenate(Definition(metric, lambda x: -mpmath.fsum(y * y for y in x) / 2).step(q, p, 0.125))
    tolerance = {"rtol": 1e-12, "atol": 1e-13 * (1 + np.abs(exact).max())}
    np.testing.assert_allclose(end_of(refhmc.Hamiltonian(model, metric), q, p, 0.125, 1), exact, **tolerance)
    on_arrays = refhmc.array_api.hamiltonian(model, metric)
    stepped = refhmc.array_api.block_leapfrog(on_arrays, q[None], p[None], 0.125)
    np.testing.assert_allclose(np.concatenate(stepped, axis=-1)[0], exact, **tolerance)


@pytest.mark.parametrize("name", ["normal, diagonal", "normal, dense"])
def test_on_a_constant_metric_it_is_the_leapfrog(name):
    H, q, p = start_of(name)
    np.testing.assert_allclose(end_of(H, q, p, 0.2, 10), end_of(H, q, p, 0.2, 10, Leapfrog()), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_compiled_steps_equal_those_on_arrays(name):
    H, q, p = start_of(name)
    on_arrays = refhmc.array_api.hamiltonian(*CASES[name])
    x, y = q[None], p[None]
    for _ in range(5):
        x, y = refhmc.array_api.block_leapfrog(on_arrays, x, y, 0.1)
    np.testing.assert_allclose(np.concatenate([x, y], axis=-1)[0], end_of(H, q, p, 0.1, 5), rtol=1e-12, atol=1e-12)


def test_on_the_funnel_the_fisher_metric_and_its_formula_give_the_same_steps():
    ends = [end_of(*start_of(name), 0.1, 20) for name in ("funnel, hierarchical", "funnel, Fisher")]
    np.testing.assert_allclose(*ends, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_reverse_trajectory_returns_without_a_solver_or_a_check(name):
    """The only error is rounding: 40 steps there and back, in units of the largest coordinate."""
    H, q, p = start_of(name)
    there = end_of(H, q, p, 0.1, 40)
    d = len(q)
    back = end_of(H, there[:d], -there[d:], 0.1, 40)
    scale = 1 + np.abs(there).max()
    np.testing.assert_allclose(back * np.r_[np.ones(d), -np.ones(d)], np.r_[q, p], rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("name", CASES)
def test_the_map_is_symplectic(name):
    """J' Omega J = Omega, with J by central differences of order 4."""
    H, q, p = start_of(name)
    d, h = len(q), 1e-3
    Omega = np.block([[np.zeros((d, d)), np.eye(d)], [-np.eye(d), np.zeros((d, d))]])
    root = np.sqrt(np.diag(H.mass(q)))
    units = np.r_[1 / root, root]
    J = np.zeros((2 * d, 2 * d))
    for k in range(2 * d):
        shift = h * units * (np.arange(2 * d) == k)
        ends = [end_of(H, *np.split(np.r_[q, p] + m * shift, 2), 0.15, 4) for m in (-2, -1, 1, 2)]
        J[:, k] = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h) / units
    np.testing.assert_allclose(J.T @ Omega @ J, Omega, rtol=0, atol=1e-7)
    assert abs(np.linalg.det(J) - 1) < 1e-7


@pytest.mark.parametrize(("method", "order"), [(BlockLeapfrog(), 2), (Yoshida(BlockLeapfrog()), 4)])
@pytest.mark.parametrize("name", [name for name in CASES if "normal, d" not in name])
def test_energy_errors_have_the_order(name, method, order):
    H, q, p = start_of(name)
    errors = []
    for n in (20, 40):
        path = refhmc.integrate(H, method, q, p, step_size=0.8 / n, n_steps=n)
        errors.append(np.abs(path.energy - path.energy[0]).max())
    assert 0.85 * 2**order < errors[0] / errors[1] < 1.2 * 2**order


@pytest.mark.parametrize("kernel", [refhmc.HMC(step_size=0.8, n_steps=5), refhmc.NUTS(step_size=0.8)])
@pytest.mark.parametrize("metric", [funnel_metric(3), Fisher()])
def test_a_draw_costs_one_gradient_per_step(kernel, metric):
    """Also after a rejection: the chain keeps the gradient of its state.

    A step that diverges because a mass overflows has no gradient.
    """
    kernel = dataclasses.replace(kernel, metric=metric, integrator=BlockLeapfrog())
    options = {"draws": 50, "tune": 0, "chains": 1, "random_seed": 1, "raw": True, "progressbar": False}
    stats = refhmc.sample(CASES["funnel, hierarchical"][0], kernel, **options).sample_stats
    whole = ~stats["diverging"]
    assert not stats["is_accepted"][whole].all()
    np.testing.assert_array_equal(stats["n_gradient_evaluations"][whole], stats["n_steps"][whole])


# ------------------------------------------------------------------------------------------------ distribution


def funnel_as_normals(q):
    return np.column_stack([q[:, 0] / 3, np.exp(q[:, :1] / 2) * q[:, 1:]])


class WithoutHalfLogDet(Hierarchical):
    """A planted bug: the energy lacks 1/2 log det M, and the force has it."""

    @property
    def geometry(self):
        return factorise_without_log_det, *super().geometry[1:]


def factorise_without_log_det_python(model, work):
    found = FACTORISE(model, work)
    work[3].log_det_weight = 0.0
    return found


from numba import njit  # noqa: E402

from refhmc.metrics.hierarchical import factorise as FACTORISE  # noqa: E402

factorise_without_log_det = njit(nogil=True, error_model="numpy")(factorise_without_log_det_python)

N_STARTS, FALSE_ALARM = 4000, 1e-7
KERNELS = {
    "HMC": lambda metric: refhmc.HMC(
        step_size=0.5, n_steps=8, length_jitter=0.5, metric=metric, integrator=BlockLeapfrog()
    ),
    "NUTS": lambda metric: refhmc.NUTS(step_size=0.5, max_treedepth=4, metric=metric, integrator=BlockLeapfrog()),
}


def least_p_value(kernel, n_transitions: int = 3) -> float:
    """Exact draws of the funnel, a few transitions each: the least p-value of the normals, their squares and two sums."""
    model = refhmc.models.Funnel(3)
    starts = model.reference.draw(np.random.default_rng(21), N_STARTS)
    ends, _ = from_each(model, kernel, starts, seed=22, n_transitions=n_transitions)
    assert np.mean(np.any(ends != starts, axis=1)) > 0.5
    z = funnel_as_normals(ends)
    values = [scipy.stats.kstest(column, "norm").pvalue for column in z.T]
    values.append(scipy.stats.kstest(np.sum(z**2, axis=1), "chi2", args=(4,)).pvalue)
    values += [scipy.stats.kstest((z[:, 0] + sign * z[:, 1]) / 2**0.5, "norm").pvalue for sign in (1, -1)]
    return min(values) * len(values)


@pytest.mark.parametrize("metric", [funnel_metric(3), Fisher()], ids=["hierarchical", "Fisher"])
@pytest.mark.parametrize("kind", KERNELS)
def test_transitions_keep_the_exact_distribution(kind, metric):
    """With 4,000 starts a Kolmogorov-Smirnov distance of 0.05 is found with a probability above 0.6 at this level."""
    assert least_p_value(KERNELS[kind](metric)) > FALSE_ALARM


def test_the_same_test_finds_a_missing_half_log_det():
    a, parents, c = funnel_metric(3).exponents
    assert least_p_value(KERNELS["HMC"](WithoutHalfLogDet(a, parents, c))) < FALSE_ALARM


@pytest.mark.parametrize("metric", [funnel_metric(3), Fisher()], ids=["hierarchical", "Fisher"])
def test_the_conformance_kit_passes(metric):
    H = refhmc.Hamiltonian(refhmc.models.Funnel(3), metric)
    report = refhmc.check.integrator(BlockLeapfrog(), H, eps=0.05, claims="symplectic reversible order=2")
    assert report.ok, str(report)


# ---------------------------------------------------------------------------------------------- whole runs


def test_it_is_the_default_integrator_of_a_hierarchical_metric_and_has_the_target_of_explicit_methods():
    from refhmc.adaptation.dual_averaging import target_acceptance
    from refhmc.integrators.defaults import resolve

    metric = funnel_metric(3)
    assert isinstance(resolve(metric, None)[1], BlockLeapfrog)
    assert target_acceptance(refhmc.HMC(metric=metric), metric) == 0.9
    assert target_acceptance(refhmc.HMC(metric=Fisher(), integrator=BlockLeapfrog()), Fisher()) == 0.9
    assert target_acceptance(refhmc.HMC(metric=Fisher()), Fisher()) == 0.98


@pytest.mark.parametrize("metric", [SoftAbs(1e6), Fisher()])
def test_a_metric_that_is_not_hierarchical_is_rejected(metric):
    with pytest.raises(ValueError, match="hierarchical"):
        refhmc.sample(
            refhmc.models.Banana(),
            refhmc.HMC(metric=metric, integrator=BlockLeapfrog()),
            draws=5,
            tune=5,
            progressbar=False,
        )


def test_a_resumed_run_equals_the_whole_one(tmp_path):
    options = {"chains": 2, "random_seed": 3, "progressbar": False, "raw": True}
    kernel = refhmc.NUTS(metric=funnel_metric(3))
    whole = refhmc.sample(refhmc.models.Funnel(3), kernel, draws=60, tune=60, **options)
    refhmc.sample(refhmc.models.Funnel(3), kernel, draws=30, tune=60, checkpoint=tmp_path / "run", **options)
    longer = refhmc.resume(tmp_path / "run", draws=60, progressbar=False, raw=True)
    assert np.array_equal(longer.draws, whole.draws)


def test_it_works_in_a_block_of_gibbs_with_a_metric_of_the_block():
    """A transition moves with a probability above 0.5 (measured: 0.99), so that 4 moves or fewer of 50 have one below 1e-9."""
    model = refhmc.models.Funnel(3)
    inner = refhmc.HMC(step_size=0.3, n_steps=3, metric=Hierarchical(np.zeros((1, 3))))
    kernel = refhmc.Gibbs({"v": refhmc.NUTS(step_size=0.5), "x": inner})
    options = {"draws": 50, "tune": 0, "chains": 1, "random_seed": 5, "progressbar": False, "raw": True}
    run = refhmc.sample(model, kernel, initvals=np.array([1.0, 0.1, 0.2, -0.3]), **options)
    assert np.isfinite(run.draws).all()
    assert len(np.unique(run.draws[0, :, 1])) > 5


@pytest.mark.parametrize("metric", [funnel_metric(3), Fisher()], ids=["hierarchical", "Fisher"])
@pytest.mark.parametrize("kernel", [refhmc.HMC, refhmc.NUTS])
def test_both_backends_run(kernel, metric):
    """A transition moves with a probability above 0.5 (measured: 0.99): 40 moves or fewer of 160 have one below 1e-9."""
    chosen = kernel(step_size=0.2, metric=metric, integrator=BlockLeapfrog())
    options = {"draws": 40, "tune": 0, "chains": 4, "random_seed": 5, "progressbar": False, "raw": True}
    for backend in ("numba", "arrays"):
        run = refhmc.sample(refhmc.models.Funnel(3), chosen, backend=backend, **options)
        assert np.isfinite(run.draws).all()
        assert len(np.unique(run.draws[..., 0])) > 40

"""HMC: the acceptance rule on injected randomness, exact acceptance rates, failures, statistics, distribution of the draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.compile import compiled
from refhmc.core import sample_stats as S
from refhmc.core.point import P, Q
from refhmc.core.records import one
from refhmc.kernels.hmc import MAX_STEPS, hmc
from refhmc.metrics import Diagonal, euclidean
from refhmc.sampling.chains.chain import BlockState, make_plan
from tests.helpers.core_records import control_row, plain_dynamics, plain_model
from tests.helpers.laws import (
    JUST_BELOW_ONE,
    LAWS,
    acceptance_by_bisection,
    assert_law_is_kept,
    normal_gradient,
    normal_with_a_wall,
    normals,
)
from tests.helpers.leapfrog_cases import ANY_CASE, LEAPFROG, METRICS, case, model, no_density, no_gradient
from tests.helpers.many_starts import from_each
from tests.helpers.models import FEW_CALLS
from tests.helpers.places import oracles
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import swept

# ------------------------------------------------------------------------------------- transitions from many starts


# ------------------------------------------------------------------------------------------------ the decision


@cases(15)
@given(**ANY_CASE)
def test_acceptance_is_that_of_metropolis(name, metric, seed, step, n_steps):
    """min(1, exp(H0 - H)) with energies computed apart, against the decision, found by bisection on its uniform."""
    H, q, p, step_size = case(name, metric, seed, 0.8 + step)
    kernel = refhmc.HMC(step_size=step_size, n_steps=n_steps, metric=H.metric)
    path = refhmc.integrate(H, LEAPFROG, q, p, step_size=step_size, n_steps=n_steps)
    H0, H1 = H.energy(q, p), path.energy[-1]

    def accepts(u: float) -> bool:
        got = refhmc.transition(H.model, kernel, q, momentum=p, uniforms=[u])
        assert np.array_equal(got.q, path.q[-1] if got.stats["is_accepted"] else q)
        assert got.stats["acceptance_rate"] == pytest.approx(want, abs=tolerance)
        return got.stats["is_accepted"]

    want = min(1.0, math.exp(min(H0 - H1, 0.0))) if math.isfinite(H1) else 0.0
    tolerance = 1e-12 + 1e-14 * (abs(H0) + abs(H1)) * want
    assert acceptance_by_bisection(accepts) == pytest.approx(want, abs=tolerance)


@cases(80)
@given(**ANY_CASE, u=st.floats(0, 1, exclude_max=True), jitter=st.sampled_from([0.0, 0.3, 0.9]), v=st.floats(0, 0.999))
def test_statistics_recomputed(name, metric, seed, step, n_steps, u, jitter, v):
    H, q, p, nominal = case(name, metric, seed, 0.3 + step)
    kernel = refhmc.HMC(step_size=nominal, n_steps=n_steps, metric=H.metric, step_jitter=jitter)
    uniforms = [v, u] if jitter else [u]
    got = refhmc.transition(H.model, kernel, q, momentum=p, uniforms=uniforms)
    stats = got.stats
    assert set(stats) == set(kernel.statistics)
    assert got.uniforms_used == len(uniforms)
    assert list(got.probabilities) == [*uniforms[:-1], stats["acceptance_rate"]]
    assert stats.get("step_size_nom", nominal) == nominal
    assert ("step_size_nom" in stats) == (jitter > 0)
    assert stats["step_size"] == pytest.approx(nominal * (1 + jitter * (2 * v - 1)), rel=1e-15)

    path = refhmc.integrate(H, LEAPFROG, q, p, step_size=float(stats["step_size"]), n_steps=n_steps)
    finite = np.isfinite(path.energy)
    made = n_steps if finite.all() else int(np.argmin(finite))
    errors = path.energy[1 : made + 1] - path.energy[0]
    assert stats["n_steps"] == made
    assert stats["int_time"] == pytest.approx(made * stats["step_size"], rel=1e-15)
    scale = 1e-13 * (1 + np.abs(path.energy[: made + 1]).max())
    acceptance = math.exp(min(-errors[-1], 0)) if finite.all() else 0.0
    assert stats["acceptance_rate"] == pytest.approx(acceptance, abs=1e-12 + scale)
    end = path.q[made] if stats["is_accepted"] else q
    assert np.array_equal(got.q, end)
    assert stats["lp"] == pytest.approx(H.model.log_density(end), rel=1e-12, abs=1e-12)
    if stats["is_accepted"]:
        assert stats["energy"] == pytest.approx(H.energy(path.q[made], path.p[made]), abs=scale)
        assert stats["energy_error"] == pytest.approx(errors[-1], abs=2 * scale)
        assert got.outcome == "accepted"
    else:
        assert stats["energy"] == pytest.approx(H.energy(q, p), abs=scale)
        assert stats["energy_error"] == 0
    if finite.all():
        worst = errors[np.argmax(np.abs(errors))]
        spread = np.ptp(path.energy)
        assert abs(stats["max_energy_error"]) == pytest.approx(abs(worst), abs=2 * scale)
        assert stats["diverging"] == (spread > 1000)
        assert got.outcome == ("accepted" if stats["is_accepted"] else "diverged" if spread > 1000 else "rejected")
    else:
        assert not np.isfinite(stats["max_energy_error"])
        assert stats["diverging"]
        assert got.outcome == "nan"


@cases(20)
@given(**ANY_CASE, u=st.floats(0, 1, exclude_max=True))
def test_compiled_code_and_the_plain_text_agree(name, metric, seed, step, n_steps, u):
    H, q, p, step_size = case(name, metric, seed, step / 2)
    kernel = refhmc.HMC(step_size=step_size, n_steps=n_steps, metric=H.metric, step_jitter=0.2, length_jitter=0.5)
    uniforms = np.array([0.7, 0.2, u])
    got = refhmc.transition(H.model, kernel, q, momentum=p, uniforms=uniforms)
    block = BlockState(make_plan(H.model, kernel, 0).blocks[0])
    block.start(q)
    block.state[P] = p
    block.settings.keep_momentum = 1
    dynamics, core = plain_dynamics(block.plan.dynamics), plain_model(H.model.core.tuple)
    stats, randomness = one(S.STATS), (None, uniforms, np.zeros(1, np.int64))
    settings, control = block.settings[0], control_row()
    outcome = compiled.plain(hmc)(dynamics, core, block.workspace, randomness, settings, stats[0], control)
    assert S.OUTCOMES[outcome] == got.outcome
    np.testing.assert_allclose(block.state[Q], got.q, rtol=1e-11, atol=1e-11 * np.abs(got.q).max())
    for key, value in S.named(stats.view(float), kernel.statistics).items():
        if key != "outcome":
            assert got.stats[key] == pytest.approx(value, rel=1e-11, abs=1e-10), key


# --------------------------------------------------------------------------------------- step, jitter, length


@pytest.mark.parametrize(
    ("length", "step_size", "n_steps"),
    [
        (1.0, 0.1, 10),
        (1.0, 0.3, 3),
        (1.04, 0.1, 10),
        (1.06, 0.1, 11),
        (1.0, 3.0, 1),
        (1e-9, 1.0, 1),
        (1e9, 1e-3, MAX_STEPS),
        (None, 0.1, round(math.pi / 2 / 0.1)),
        (None, 0.01, 157),
    ],
)
def test_a_length_is_rounded_to_whole_steps(length, step_size, n_steps):
    m = model("gaussian")
    for jitter, uniforms in ((0.0, [0.5]), (0.5, [0.9, 0.5])):  # by the nominal step
        kernel = refhmc.HMC(step_size=step_size, trajectory_length=length, step_jitter=jitter)
        got = refhmc.transition(m, kernel, np.zeros(3), momentum=0.1 * np.ones(3), uniforms=uniforms)
        assert got.stats["n_steps"] == n_steps
        assert got.stats["step_size"] == pytest.approx(step_size * (1 + 0.8 * jitter), rel=1e-15)


def test_jitter_is_uniform_and_reported():
    """False alarm: 1e-6 (one Kolmogorov-Smirnov test)."""
    m, kernel = model("gaussian"), refhmc.HMC(step_size=0.4, n_steps=2, step_jitter=0.25)
    _, stats = from_each(m, kernel, np.zeros((2000, 3)), seed=1)
    assert np.all(stats["step_size_nom"] == 0.4)
    u = (stats["step_size"] / 0.4 - 0.75) / 0.5
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-6
    assert np.all(stats["int_time"] == 2 * stats["step_size"])
    _, stats = from_each(m, refhmc.HMC(step_size=0.4, n_steps=2), np.zeros((10, 3)), seed=1)
    assert np.all(stats["step_size"] == 0.4)


def test_jittered_step_and_length_on_recorded_randomness():
    """The step's uniform, the length's, the decision's, in that order; without jitter the decision's alone."""
    m, q, p = model("banana"), np.array([0.3, -0.4]), np.array([0.5, 1.2])
    H = refhmc.Hamiltonian(m, refhmc.metrics.Identity())
    options = {"step_size": 0.04, "n_steps": 3, "metric": H.metric}
    for jitters, uniforms, eps, steps in (
        ({"step_jitter": 0.5, "length_jitter": 0.4}, [0.25, 0.9, 0.0], 0.03, 4),  # 3 (1 + .4 * .8) = 3.96
        ({"length_jitter": 0.4}, [0.9, 0.0], 0.04, 4),
        ({"length_jitter": 0.9}, [0.0, 0.0], 0.04, 1),  # 0.3, and a trajectory has a step at least
        ({"step_jitter": 0.5}, [0.25, 0.0], 0.03, 3),
        ({}, [0.0], 0.04, 3),
    ):
        got = refhmc.transition(m, refhmc.HMC(**options, **jitters), q, momentum=p, uniforms=uniforms)
        path = refhmc.integrate(H, LEAPFROG, q, p, step_size=eps, n_steps=steps)
        assert got.uniforms_used == len(uniforms)
        assert np.array_equal(got.q, path.q[-1])
        assert got.stats["n_steps"] == steps
        assert got.stats["int_time"] == pytest.approx(steps * eps, rel=1e-15)


@pytest.mark.parametrize("L", [1, 2, 5, 6])
def test_a_number_of_steps_uniform_on_1_to_L(L):
    """The settings that the docstring names, with a uniform in each of L equal parts of (0, 1)."""
    m = model("gaussian")
    kernel = refhmc.HMC(step_size=0.2, trajectory_length=0.2 * (L + 1) / 2, length_jitter=L / (L + 1))
    for k in range(1, L + 1):
        for u in ((k - 1 + 1e-9) / L, (k - 0.5) / L, (k - 1e-9) / L):
            got = refhmc.transition(m, kernel, np.zeros(3), momentum=0.1 * np.ones(3), uniforms=[u, 0.5])
            assert got.stats["n_steps"] == k


def test_a_jittered_length_of_a_trajectory_is_bounded():
    kernel = refhmc.HMC(step_size=1e-3, trajectory_length=1.0, length_jitter=0.5)
    got = refhmc.transition(model("gaussian"), kernel, np.zeros(3), momentum=np.ones(3), uniforms=[0.9, 0.5])
    assert got.stats["n_steps"] == MAX_STEPS


def test_a_free_particle_loses_no_energy_and_is_always_accepted():
    free = refhmc.Model(3, no_density, no_gradient, name="free", in_python=FEW_CALLS)
    q, p = np.array([1.0, -2.0, 0.5]), np.array([0.3, 1.0, -2.0])
    for metric in METRICS.values():
        H = refhmc.Hamiltonian(free, metric(3))
        kernel = refhmc.HMC(step_size=0.25, n_steps=8, metric=H.metric)
        got = refhmc.transition(free, kernel, q, momentum=p, uniforms=[JUST_BELOW_ONE])
        np.testing.assert_allclose(got.q, q + 2 * H.grad_p(q, p), rtol=1e-14)
        assert abs(got.stats["energy_error"]) <= 1e-15
        assert got.stats["energy"] == pytest.approx(H.energy(q, p), rel=1e-15)
        assert got.outcome == "accepted"


# ------------------------------------------------------------------------------------------------------- failures


def gradient_with_a_wall(q, data, out):
    out[0] = data if q[0] > 1 else -q[0]


def harmless(q, data):
    return -0.5 * q[0] * q[0]


@pytest.mark.parametrize("what", ["nan", "+inf", swept("-inf"), swept("nan gradient")])
def test_what_is_not_finite_is_never_accepted(what):
    if what == "nan gradient":
        m = refhmc.Model(1, harmless, gradient_with_a_wall, data=np.nan, name="wall", in_python=FEW_CALLS)
    else:
        loss = {"nan": np.nan, "+inf": -np.inf, "-inf": np.inf}[what]
        m = refhmc.Model(1, normal_with_a_wall, normal_gradient, data=loss, name="wall")
    kernel, rng = refhmc.HMC(step_size=0.25, n_steps=6), np.random.default_rng(2)
    crossed = 0
    for u in (0.0, 1e-300, 0.5, JUST_BELOW_ONE):
        for _ in range(10):
            q, p = np.minimum(rng.normal(size=1), 0.95), rng.normal(size=1)
            path = refhmc.integrate(refhmc.Hamiltonian(m), LEAPFROG, q, p, step_size=0.25, n_steps=6)
            got = refhmc.transition(m, kernel, q, momentum=p, uniforms=[u])
            if np.isfinite(path.energy).all():
                assert not got.stats["diverging"]
                continue
            crossed += 1
            assert got.outcome == "nan"
            assert got.stats["diverging"]
            assert np.array_equal(got.q, q)
            assert got.stats["acceptance_rate"] == 0
            assert got.stats["lp"] == m.log_density(q)
            assert got.stats["energy"] == pytest.approx(refhmc.Hamiltonian(m).energy(q, p), rel=1e-14)
            assert got.stats["n_steps"] == np.argmin(np.isfinite(path.energy))
    assert crossed > 5


def test_a_user_s_model_leaves_no_trace_in_the_compiled_core():
    """If a core function were compiled for the types of a user's functions, Numba's disk cache would name their module, and
    every later process would have to import it.
    """
    m = refhmc.Model(1, harmless, normal_gradient, name="a user's")
    for kernel in (refhmc.HMC(step_size=0.1, n_steps=1), refhmc.NUTS(step_size=0.1)):
        refhmc.transition(m, kernel, [0.5], rng=np.random.default_rng(1))
        refhmc.transition(m, kernel, [0.5], normals=[0.3], uniforms=np.full(100, 0.3))
        refhmc.integrate(refhmc.Hamiltonian(m), LEAPFROG, [0.5], [1.0], step_size=0.1, n_steps=2)
        for function in (euclidean.refresh, euclidean.energy, kernel.transition):
            assert not any("Dispatcher" in str(signature) for signature in function.signatures)


def test_a_large_energy_error_flags_but_does_not_cut_the_trajectory():
    """Over the wall and back again within one period: a cut would not be reversible."""
    m = refhmc.Model(1, normal_with_a_wall, normal_gradient, data=2000.0, name="wall")
    q, p = np.array([0.5]), np.array([1.5])
    back = refhmc.transition(m, refhmc.HMC(step_size=0.1, n_steps=63), q, momentum=p, uniforms=[0.5])
    assert back.outcome == "accepted"
    assert back.stats["diverging"]
    assert back.stats["n_steps"] == 63
    assert back.stats["max_energy_error"] == pytest.approx(2000, abs=1)
    beyond = refhmc.transition(m, refhmc.HMC(step_size=0.1, n_steps=8), q, momentum=p, uniforms=[0.0])
    assert beyond.outcome == "diverged"
    assert beyond.stats["diverging"]
    assert beyond.stats["n_steps"] == 8
    assert np.array_equal(beyond.q, q)


# ---------------------------------------------------------------------------------- exact acceptance on Gaussians


def allowed_error(mean: float, n: int, false_alarm: float) -> float:
    """t with P(|average - mean| > t) <= false_alarm for n independent variables in [0, 1] (Bernstein's inequality).

    The variance of such a variable is at most mean (1 - mean). No normal approximation, so that it holds for the rare
    acceptances too.
    """
    L, variance = math.log(2 / false_alarm), max(mean, 0.0) * max(1 - mean, 0.0)
    return (L / 3 + math.sqrt(L * L / 9 + 2 * n * variance * L)) / n


def test_acceptance_on_normals_is_exact():
    """60 targets and steps. False alarm of the whole: 1e-6."""
    rows, n = oracles()["gaussian_leapfrog_acceptance"]["rows"], 20_000
    for k, row in enumerate(rows):
        d = row["d"]
        m = normals(d)
        starts = np.random.default_rng([1, k]).normal(size=(n, d))
        kernel = refhmc.HMC(step_size=row["epsilon"], n_steps=row["L"], metric=refhmc.metrics.Identity())
        ends, stats = from_each(m, kernel, starts, seed=k)
        exact = row["acc_exact"]
        tolerance = allowed_error(exact, n, 1e-6 / len(rows) / 2)
        assert abs(stats["acceptance_rate"].mean() - exact) <= tolerance, row
        assert abs(np.mean(np.any(ends != starts, axis=1)) - exact) <= tolerance, row


def test_acceptance_on_an_uneven_gaussian_is_exact():
    """On unit mass, and in the same problem scaled by the metric. False alarm: 1e-6."""
    row, n = oracles()["gaussian_aniso"], 20_000
    sd = np.array(row["sd"])
    m = refhmc.models.Gaussian(np.zeros(len(sd)), np.diag(sd**2))
    starts = sd * np.random.default_rng(2).normal(size=(n, len(sd)))
    _, stats = from_each(
        m, refhmc.HMC(step_size=row["epsilon"], n_steps=row["L"], metric=Diagonal(1.0)), starts, seed=3
    )
    tolerance = allowed_error(row["acc_exact"], n, 1e-6 / 2)
    assert abs(stats["acceptance_rate"].mean() - row["acc_exact"]) <= tolerance
    # In y = x/sd^2 the target is N(0, 1/sd^2), and M^-1 = 1/sd^4 gives the oscillators the same frequencies.
    scaled = refhmc.models.Gaussian(np.zeros(len(sd)), np.diag(sd**-2))
    kernel = refhmc.HMC(step_size=row["epsilon"], n_steps=row["L"], metric=Diagonal(sd**-4))
    _, stats = from_each(scaled, kernel, starts / sd**2, seed=3)
    assert abs(stats["acceptance_rate"].mean() - row["acc_exact"]) <= tolerance


# ---------------------------------------------------------------------------------------------- laws of the draws


@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("name", sorted(LAWS))
def test_a_transition_keeps_the_exact_law(name, metric):
    """Nine pairs. False alarm of the whole: 1e-6."""
    kernel = refhmc.HMC(step_size=LAWS[name][1], n_steps=5, step_jitter=0.2, metric=METRICS[metric](model(name).dim))
    assert_law_is_kept(name, kernel, 20_000, 1e-6 / 9)


@pytest.mark.parametrize("name", sorted(LAWS))
def test_a_transition_of_random_length_keeps_the_exact_law(name):
    """The number of steps uniform on 1, ..., 9. False alarm of the whole: 1e-6."""
    eps = LAWS[name][1]
    kernel = refhmc.HMC(step_size=eps, trajectory_length=5 * eps, length_jitter=0.9, metric=refhmc.metrics.Identity())
    assert_law_is_kept(name, kernel, 20_000, 1e-6 / 3)

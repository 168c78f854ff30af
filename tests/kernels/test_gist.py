"""GIST: probabilities of all outcomes against the definition, detailed balance, both implementations, exact starts."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.kernels.hmc import trajectory
from refhmc.metrics import Diagonal
from tests.helpers.laws import JUST_BELOW_ONE, LAWS, normal_gradient, normals
from tests.helpers.leapfrog_cases import ANY_CASE, METRICS, case, model
from tests.helpers.many_starts import from_each
from tests.helpers.random_cases import cases
from tests.helpers.self_tuning import (
    EXPLICIT,
    QUICK_EXPLICIT,
    assert_implementations_agree,
    gist_probabilities,
    steps_to_turn,
)
from tests.helpers.sweeps import representatives


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("name", ["funnel", "banana"])
def test_all_outcomes_of_a_transition_have_the_probabilities_of_the_definition(name, fraction):
    """The number of steps is enumerated: the choices, their acceptance probabilities and their positions."""
    m, rng, seen = model(name), np.random.default_rng(3), set()
    eps, inverse_mass = (0.5 if name == "funnel" else 0.25), np.linspace(0.5, 2.0, m.dim)
    kernel = refhmc.GIST(step_size=eps, fraction=fraction, max_steps=8, metric=Diagonal(inverse_mass))
    for _ in range(12):
        q, xi = rng.standard_normal((2, m.dim))
        with np.errstate(all="ignore"):
            expected = gist_probabilities(m, inverse_mass, q, xi / np.sqrt(inverse_mass), eps, fraction, 8)
        for k, (L, (probability, reversible, a, new)) in enumerate(expected.items()):
            assert probability == pytest.approx(1 / len(expected))
            made = refhmc.transition(m, kernel, q, normals=xi, uniforms=[(k + 0.5) / len(expected), 0.0])
            assert made.stats["chosen_steps"] == L
            assert made.stats["is_reversible"] == reversible
            assert made.probabilities[1] == pytest.approx(a, rel=1e-8, abs=1e-12)
            if a > 0:
                np.testing.assert_allclose(made.q, new, rtol=0, atol=1e-9)
                assert made.stats["index_in_trajectory"] == L
            seen.add((reversible, a == 1))
    assert len(seen) == 3 or name == "banana"


@cases(25)
@given(**ANY_CASE, fraction=st.sampled_from([0.0, 0.4, 0.5, 0.8]), u=st.floats(0, 1, exclude_max=True))
def test_moves_are_in_detailed_balance(name, metric, seed, step, n_steps, fraction, u):
    """exp(-H(z)) P(L | z) a(z, L) is the same at both ends; at the other end all numbers of steps are tried."""
    H, q, p, eps = case(name, metric, seed, 0.3 + step)
    kernel = refhmc.GIST(step_size=eps, fraction=fraction, max_steps=3 * n_steps, metric=H.metric)
    there = refhmc.transition(H.model, kernel, q, momentum=p, uniforms=[u, 0.0])
    L = int(there.stats["chosen_steps"])
    if not there.stats["is_accepted"]:
        return
    path = refhmc.integrate(H, refhmc.integrators.Leapfrog(), q, p, step_size=eps, n_steps=L)
    end = path.p[-1]
    size = 1 + np.abs(np.concatenate([q, p, there.q, end])).max()
    np.testing.assert_allclose(there.q, path.q[-1], rtol=0, atol=1e-9 * size**2)

    def flows(q, p):
        """exp(-H) P(L) a by L, relative to the energy at the start."""
        choices = {}
        for k in range(3 * n_steps):
            made = refhmc.transition(H.model, kernel, q, momentum=p, uniforms=[(k + 0.5) / (3 * n_steps), 0.0])
            choices.setdefault(int(made.stats["chosen_steps"]), made.probabilities[1])
        return {n: np.exp(H0 - H.energy(q, p)) * a / len(choices) for n, a in choices.items()}

    H0 = H.energy(q, p)
    here, back = flows(q, p), flows(there.q, -end)
    assert here[L] > 0
    near = 1e-9 * (1 + abs(H0)) * size**2
    assert back[L] == pytest.approx(here[L], rel=near, abs=1e-300)


@pytest.mark.parametrize("name", representatives(EXPLICIT, QUICK_EXPLICIT))
def test_all_implementations_agree(name):
    seen = set()
    for fraction, most in ((0.0, 6), (0.5, 1000), (0.8, 40)):
        options = {"fraction": fraction, "max_steps": most}
        stats = assert_implementations_agree(
            name,
            functools.partial(refhmc.GIST, **options),
            functools.partial(refhmc.array_api.gist, **options),
            2,
        )
        assert stats["n_steps"].max() <= 2 * most
        seen |= set(zip(stats["is_reversible"], stats["is_accepted"], strict=True))
    if name == "leapfrog":
        assert seen == {(False, False), (True, False), (True, True)}


def test_gradients_are_those_of_the_path_and_of_the_states_before_it():
    m, inverse_mass, rng = model("banana"), np.ones(2), np.random.default_rng(5)
    kernel = refhmc.GIST(step_size=0.2, fraction=0.0, metric=Diagonal(inverse_mass))
    longer = 0
    for _ in range(20):
        q, p = rng.standard_normal((2, 2))
        made = refhmc.transition(m, kernel, q, momentum=p, uniforms=[rng.random(), 0.0])
        L, tau = int(made.stats["chosen_steps"]), steps_to_turn(m, inverse_mass, q, p, 0.2, 1024)
        path = refhmc.integrate(
            refhmc.Hamiltonian(m, kernel.metric), refhmc.integrators.Leapfrog(), q, p, step_size=0.2, n_steps=L
        )
        there = steps_to_turn(m, inverse_mass, path.q[-1], -path.p[-1], 0.2, 1024)
        assert made.stats["n_steps"] == tau + max(there - L, 0)
        longer += there > L
    assert longer > 3


def ends_and_error(name, kernel, n):
    """Independent exact draws, three transitions each, and back to independent normals: the least p-value."""
    draw, back = LAWS[name][0]()
    z = np.random.default_rng(1).normal(size=(n, model(name).dim))
    ends, stats = from_each(model(name), kernel, draw(z), seed=2, n_transitions=3)
    return min(scipy.stats.kstest(column, "norm").pvalue for column in back(ends).T), stats


@pytest.mark.parametrize("fraction", [0.0, 0.5])
@pytest.mark.parametrize("name", sorted(LAWS))
def test_three_transitions_keep_the_exact_distribution(name, fraction):
    """Kolmogorov-Smirnov from 20,000 exact starts. False alarm of all cases: 1e-6. Its power is that of the next test."""
    kernel = refhmc.GIST(
        step_size=LAWS[name][1], fraction=fraction, max_steps=30, metric=METRICS["diagonal"](model(name).dim)
    )
    least, stats = ends_and_error(name, kernel, 20_000)
    assert least > 1e-6 / (2 * len(LAWS) * 4)
    assert np.mean(~stats["is_reversible"]) > 0.02
    assert np.mean(stats["is_accepted"]) > 0.2


def test_exact_starts_find_a_missing_ratio():
    """The same starts and steps as above, of the banana, on arrays: without P(L | z') / P(L | z) the p-value is below 1e-12."""
    m, z, (law, eps) = model("banana"), np.random.default_rng(1).normal(size=(20_000, 2)), LAWS["banana"]
    (draw, back), H = law(), refhmc.array_api.hamiltonian(m, METRICS["diagonal"](2))
    rng, worst, leapfrog = np.random.default_rng(2), {}, refhmc.array_api.leapfrog
    for keep in (True, False):
        q = draw(z)
        for _ in range(3):
            p, u = H.draw_momentum(q, rng.standard_normal(q.shape)), rng.random((len(q), 2))
            with np.errstate(all="ignore"):
                made = refhmc.array_api.gist(H, leapfrog, q, p, u, step_size=eps, fraction=0.0, max_steps=30)
                (new, _), _, _ = trajectory(H, leapfrog, (q, p), np.full(len(q), eps), made.parameter)
                accepted = u[:, 1] < np.exp(np.minimum(0, -made.energy_error))
            q = made.q if keep else np.where((accepted & np.isfinite(made.energy_error))[:, None], new, q)
        worst[keep] = min(scipy.stats.kstest(column, "norm").pvalue for column in back(q).T)
    assert worst[True] > 1e-7
    assert worst[False] < 1e-12


@pytest.mark.parametrize("backend", ["numba", "arrays"])
def test_run_with_warm_up_recovers_the_target(backend):
    """Means and variances of a correlated normal, within 6 standard errors from the ESS: false alarm below 1e-7."""
    m = model("gaussian")
    draws, chains = (2000, 4) if backend == "numba" else (150, 20)
    result = refhmc.sample(
        m,
        refhmc.GIST(),
        draws=draws,
        tune=200,
        chains=chains,
        backend=backend,
        random_seed=2,
        raw=True,
        progressbar=False,
    )
    x = (result.draws - m.reference.mean) / np.sqrt(m.reference.variance)
    for moment, mean in ((x, 0.0), (x * x, 1.0)):
        error = moment.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(moment))
        assert (np.abs(moment.mean(axis=(0, 1)) - mean) < 6 * error).all()
    assert 0.65 < result.sample_stats["acceptance_rate"].mean() < 0.99


def normal_in_a_box(q, data):
    return -0.5 * q[0] * q[0] if abs(q[0]) < 1 else -np.inf


def test_a_path_ends_outside_the_support():
    m = refhmc.Model(1, normal_in_a_box, normal_gradient, name="box")
    kernel = refhmc.GIST(step_size=0.3, fraction=0.0, metric=Diagonal(1.0))
    made = refhmc.transition(m, kernel, [0.5], momentum=[1.0], uniforms=[0.0, 0.0])
    assert made.stats["chosen_steps"] == 1
    assert made.stats["is_accepted"]
    assert made.stats["diverging"]
    assert made.stats["max_energy_error"] == np.inf
    out = refhmc.transition(m, kernel, [0.5], momentum=[1.0], uniforms=[JUST_BELOW_ONE, 0.0])
    assert out.outcome == "nan"
    assert out.q == [0.5]
    assert not out.stats["is_reversible"]
    many = refhmc.array_api.transitions(
        m, kernel, np.array([[0.5]] * 2), np.ones((2, 1)), np.array([[0.0, 0], [0.99, 0]])
    )
    assert list(many.q[:, 0]) == [made.q[0], 0.5]
    assert list(many.stats["diverging"]) == [True, True]


def test_invalid_options_are_rejected():
    for options, words in (
        ({"fraction": 1.0}, "fraction"),
        ({"max_steps": 0}, "max_steps"),
        ({"integrator": refhmc.integrators.SymmetricSplit()}, "parts"),
        ({"metric": "softabs"}, "explicit"),
        ({"metric": "softabs", "integrator": refhmc.integrators.ExplicitTao(1.0)}, "two copies"),
    ):
        with pytest.raises(ValueError, match=words):
            refhmc.GIST(**options)


@pytest.mark.sweep  # thousands of transitions
def test_the_kit_does_not_fail_it():
    kernel = refhmc.GIST(step_size=0.7, fraction=0.0, max_steps=8, metric=Diagonal([1.0, 1.0]))
    report = refhmc.check.transition(kernel, refhmc.Hamiltonian(normals(2), kernel.metric), n_points=4, seconds=None)
    assert report.status != "FAIL", report  # the decisions of a kernel with several uniforms are not enumerated
    assert refhmc.check.sampler(kernel, normals(2), draws=2000).status == "PASS"

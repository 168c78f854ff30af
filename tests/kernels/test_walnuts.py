"""WALNUTS: a recursive implementation from the paper, exact invariance by enumeration, the distribution of its draws.

The enumeration starts transitions at every state z from which a state z' can be reached, with all answers to their random
questions, the levels of macro steps included. With pi = exp(-H), it compares

    sum_z pi(z) K(z -> z')   with   pi(z').

The states z are found by macro steps from z' with every level of positive probability, by the implementation in
``tests/helpers/walnuts.py``.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import refhmc
from refhmc import WALNUTS
from refhmc.compile import compiled
from refhmc.core.point import P, Q
from refhmc.core.records import SETTINGS, one
from refhmc.integrators import ImplicitMidpoint, Leapfrog, Yoshida
from refhmc.kernels import walnuts as module
from refhmc.metrics import Dense, Diagonal, Hierarchical, Identity, SoftAbs
from refhmc.sampling.chains.chain import BlockState, make_plan
from tests.helpers.core_records import control_row, plain_dynamics, plain_model, stats_row
from tests.helpers.laws import LAWS, assert_law_is_kept, normal_gradient, normal_with_a_wall
from tests.helpers.leapfrog_cases import METRICS, model
from tests.helpers.sweeps import representatives, swept
from tests.helpers.walnuts import Options, Recursive, Target, chance, path

R2P = 1 / 3
COUNTS = ("index_in_trajectory", "tree_depth", "n_steps", "n_micro_steps", "n_halvings")


def target_of(m, metric=None) -> Target:
    inverse_mass = np.ones(m.dim) if metric is None else np.asarray(metric.variances) * np.ones(m.dim)
    return Target(m.log_density, m.gradient, inverse_mass)


# --------------------------------------------------------------------------------------------------- a recursive twin

# Name of the model, and options: ordinary ones, and some for which few macro steps are defined.
TRANSITIONS = {
    "funnel": ("funnel", Options(0.8, 0.5, 8, 0.0, 5)),
    "funnel, long steps": ("funnel", Options(2.0, 0.2, 8, 0.0, 4)),
    "funnel, R2P": ("funnel", Options(0.8, 0.5, 8, R2P, 5)),
    "funnel, two levels": ("funnel", Options(1.0, 0.5, 1, 0.6, 4)),
    "banana": ("banana", Options(0.6, 0.3, 10, 0.0, 5)),
    "banana, R2P": ("banana", Options(0.6, 0.3, 10, R2P, 5)),
    "gaussian, no halvings": ("gaussian", Options(0.7, 1.0, 0, 0.0, 5)),
    "gaussian, short steps": ("gaussian", Options(0.05, 1.0, 3, 0.0, 3)),
}


@pytest.mark.parametrize("name", representatives(TRANSITIONS, ["funnel", "funnel, R2P", "funnel, two levels"]))
def test_transitions_are_those_of_the_recursive_implementation(name):
    model_name, options = TRANSITIONS[name]
    m, rng = model(model_name), np.random.default_rng(7)
    metric = Diagonal(rng.uniform(0.5, 1.5, m.dim))
    H, kernel = refhmc.array_api.hamiltonian(m, metric), WALNUTS(metric=metric, **options._asdict())
    for _ in range(25):
        q, p, uniforms = rng.normal(size=m.dim), rng.normal(size=m.dim), rng.random(200)
        want = Recursive(target_of(m, metric), q, p, uniforms, options)
        with np.errstate(all="ignore"):
            drawn = want.run()
            ours = refhmc.array_api.walnuts(H, refhmc.array_api.leapfrog, q, p, uniforms, **options._asdict())
        core = refhmc.transition(m, kernel, q, momentum=p, uniforms=uniforms)
        counts = drawn.time, want.depth, len(want.acceptances), want.n_micro_steps, want.n_halvings
        assert tuple(int(core.stats[key]) for key in COUNTS) == counts
        assert tuple(getattr(ours, key) for key in COUNTS) == counts
        assert core.uniforms_used == ours.uniforms_used == want.used
        assert core.stats["n_gradient_evaluations"] == ours.n_gradient_evaluations >= want.n_micro_steps
        assert core.stats["diverging"] == (want.ended in ("diverged", "no level"))
        assert core.stats["reached_max_treedepth"] == (want.ended == "full")
        for got in (core.stats["acceptance_rate"], ours.acceptance_rate):
            assert got == pytest.approx(np.mean(want.acceptances), rel=1e-9, abs=1e-12)
        for got in (core.q, ours.q):
            np.testing.assert_allclose(got, drawn.z[0], rtol=1e-8, atol=1e-8)


def test_the_recursive_implementation_meets_every_ending():
    seen = set()
    for model_name, options in TRANSITIONS.values():
        m, rng = model(model_name), np.random.default_rng(7)
        for _ in range(25):
            q, p = rng.normal(size=m.dim), rng.normal(size=m.dim)
            want = Recursive(target_of(m), q, p, rng.random(200), options)
            with np.errstate(all="ignore"):
                want.run()
            seen.add(want.ended)
    assert {"turned", "not reversible", "no level", "full"} <= seen


def test_without_halvings_and_errors_it_is_nuts():
    """With `max_error` of 1,000, every macro step has level 0."""
    m, rng = model("gaussian"), np.random.default_rng(3)
    for _ in range(20):
        q, p, uniforms = rng.normal(size=m.dim), rng.normal(size=m.dim), rng.random(200)
        options = {"step_size": 0.3, "max_treedepth": 6, "metric": Identity()}
        nuts = refhmc.transition(m, refhmc.NUTS(**options), q, momentum=p, uniforms=uniforms)
        walnuts = refhmc.transition(m, WALNUTS(max_error=1000.0, **options), q, momentum=p, uniforms=uniforms)
        assert np.array_equal(nuts.q, walnuts.q)
        assert nuts.stats["n_steps"] == walnuts.stats["n_micro_steps"] == walnuts.stats["n_gradient_evaluations"]


@pytest.mark.parametrize("integrator", [None, Yoshida(Leapfrog())])
def test_other_metrics_and_integrators_agree_with_the_array_implementation(integrator):
    m, rng = model("banana"), np.random.default_rng(4)
    metric = Dense([[0.5, -0.2], [-0.2, 0.4]])
    options = {"step_size": 1.2, "max_error": 0.4, "extra_halving": R2P, "max_treedepth": 5}
    H, kernel = refhmc.array_api.hamiltonian(m, metric), WALNUTS(metric=metric, integrator=integrator, **options)
    step = refhmc.array_api.leapfrog if integrator is None else integrator.on_arrays()
    halved = 0
    for _ in range(20):
        q, p, uniforms = rng.normal(size=2), rng.normal(size=2), rng.random(200)
        core = refhmc.transition(m, kernel, q, momentum=p, uniforms=uniforms)
        with np.errstate(all="ignore"):
            ours = refhmc.array_api.walnuts(H, step, q, p, uniforms, **options)
        assert tuple(int(core.stats[key]) for key in COUNTS) == tuple(getattr(ours, key) for key in COUNTS)
        np.testing.assert_allclose(core.q, ours.q, rtol=1e-8, atol=1e-8)
        halved = max(halved, ours.n_halvings)
    assert halved >= 2


# -------------------------------------------------------------------------------------------------------- enumeration


class Enumerated:
    """K(z -> .) of the compiled code as ordinary Python; ``replace`` changes functions that it calls."""

    def __init__(self, m, options: Options, **replace) -> None:
        kernel = WALNUTS(metric=Identity(), **options._asdict())
        self.block = BlockState(make_plan(m, kernel, 0).blocks[0])
        self.block.settings.keep_momentum = 1
        self.dynamics, self.model = plain_dynamics(self.block.plan.dynamics), plain_model(m.core.tuple)
        common = {"uniform": lambda randomness: 0.25 if self.decide(0.5) else 0.75}
        common["bernoulli"] = lambda randomness, p: self.decide(min(p, 1.0))
        self.transition = compiled.plain(module.walnuts, **common, **replace)

    def run(self, z) -> np.ndarray:
        self.block.start(z[0])
        self.block.state[P] = z[1]
        with np.errstate(all="ignore"):
            self.transition(
                *(self.dynamics, self.model, self.block.workspace, None, self.block.settings[0]),
                *(stats_row(), control_row()),
            )
        return self.block.state[Q].copy()

    def law(self, z) -> list[tuple[np.ndarray, float]]:
        """The positions after a transition, with their probabilities."""
        law, waiting = [], [[]]
        while waiting:
            answers, probability, asked = waiting.pop(), 1.0, 0

            def decide(p, answers=answers):
                nonlocal probability, asked
                if asked == len(answers):
                    answers.append(p > 0)
                    if 0 < p < 1:
                        waiting.append([*answers[:-1], False])
                yes = answers[asked]
                asked += 1
                probability *= p if yes else 1 - p
                return yes

            self.decide = decide
            law.append((self.run(z), probability))
        return law


def predecessors(target: Target, z, options: Options) -> list:
    """The states from which z can be reached: chains of macro steps with every level that is defined."""
    found = [z]
    for h in (options.step_size, -options.step_size):
        states = [z]
        for _ in range(2**options.max_treedepth - 1):
            ends = []
            for state in states:
                for level in range(options.max_halvings + 2):
                    if chance(target, state, h, level, options) > 0:
                        end = path(target, state, h, level)[0][-1]
                        if chance(target, end, -h, level, options) > 0:
                            ends.append(end)
            found, states = found + ends, ends
    return found


def defect(m, options: Options, seed: int, **replace) -> tuple[float, int]:
    """abs(sum_z pi(z) K(z -> z') / pi(z') - 1), and the number of states z."""
    rng, target = np.random.default_rng(seed), target_of(m)
    z = rng.normal(size=m.dim), rng.normal(size=m.dim)
    kernel, flow = Enumerated(m, options, **replace), 0.0
    with np.errstate(all="ignore"):
        states = predecessors(target, z, options)
    apart = [np.abs(z[0] - other[0]).max() for other in states[1:]]
    assert min(apart, default=1.0) > 1e-4  # states can be distinguished
    for state in states:
        law = kernel.law(state)
        assert sum(p for _, p in law) == pytest.approx(1.0, abs=1e-12)
        there = sum(p for q, p in law if np.abs(q - z[0]).max() < 1e-7)
        flow += there * math.exp(target.energy(z) - target.energy(state))
    return abs(flow - 1), len(states)


ORBITS = {
    "deterministic": ("funnel", Options(0.9, 0.3, 3, 0.0, 2)),
    "deterministic, many levels": ("funnel", Options(0.9, 0.3, 6, 0.0, 3)),
    "randomised": ("funnel", Options(0.9, 0.4, 1, 0.7, 2)),
    "randomised, many levels": ("banana", Options(0.5, 0.3, 5, R2P, 2)),
}
SEEDS = range(6)


@pytest.mark.parametrize("name", representatives(ORBITS, ["deterministic", "randomised"]))
def test_enumerated_orbits_are_invariant(name):
    model_name, options = ORBITS[name]
    found = [defect(model(model_name), options, seed) for seed in SEEDS]
    assert max(each for each, _ in found) < 1e-8
    assert max(n for _, n in found) >= 4


def always_reversible(halvings, extra_halving):
    """The macro step counts whatever level its end would choose."""
    return 1.0


def without_the_ratio(halvings, extra_halving):
    """Weights are exp(-H) only."""
    return 1.0 if compiled.plain(module.chance)(halvings, extra_halving) > 0 else 0.0


def ends_only(dynamics, m, workspace, eps, level, z, H0, limit):
    """The error is that of the ends, so that a macro step and its reverse may accept other levels."""
    H, _ = compiled.plain(module.micro_steps)(dynamics, m, workspace, eps, level, z, H0, math.inf)
    return H, max(H0 - H, 0.0)


WRONG = {
    "no reversibility check": ("deterministic", {"chance": always_reversible}),
    "no reversibility check, randomised": ("randomised", {"chance": always_reversible}),
    "no ratio of the choices": ("randomised", {"chance": without_the_ratio}),
    "a one-sided error": ("deterministic", {"micro_steps": ends_only}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_caught(name):
    orbit, replace = WRONG[name]
    model_name, options = ORBITS[orbit]
    assert any(defect(model(model_name), options, seed, **replace)[0] > 1e-3 for seed in range(20))


@pytest.mark.sweep
def test_the_conformance_kit_passes_it():
    """Orbits end where the macro step is not defined, as at states of density zero."""
    kernel = WALNUTS(step_size=0.9, max_error=0.4, max_halvings=6)
    report = refhmc.check.orbit(kernel, target=refhmc.models.Funnel(2), depth=2)
    assert report.status == "PASS"
    assert report.row("invariance").status == report.row("invariance across a wall").status == "PASS"
    with pytest.raises(ValueError, match="extra_halving must be 0"):
        refhmc.check.orbit(dataclasses.replace(kernel, extra_halving=0.1), target=refhmc.models.Funnel(2))


# ---------------------------------------------------------------------------------------------------- distribution of the draws


@pytest.mark.parametrize("extra_halving", [0.0, R2P])
@pytest.mark.parametrize("name", sorted(LAWS))
def test_a_transition_keeps_the_exact_law(name, extra_halving):
    """Six pairs. False alarm of the whole: 1e-6. The steps are so long that about half of the macro steps are halved."""
    options = {"step_size": 2.5 * LAWS[name][1], "max_error": 0.5, "extra_halving": extra_halving}
    kernel = WALNUTS(metric=METRICS["diagonal"](model(name).dim), **options)
    assert_law_is_kept(name, kernel, 10_000, 1e-6 / 6)


# ------------------------------------------------------------------------------------------------------------- running


@pytest.mark.parametrize("extra_halving", [0.0, swept(R2P)])
def test_the_funnel_has_no_divergences(extra_halving):
    """NUTS diverges here. A divergence needs v < -15, five standard deviations from its mean."""
    options = {"draws": 500, "tune": 500, "random_seed": 1, "raw": True, "progressbar": False}
    result = refhmc.sample(refhmc.models.Funnel(10), WALNUTS(extra_halving=extra_halving), **options)
    stats = result.sample_stats
    assert result.draws[..., 0].min() < -5
    assert not stats["diverging"].any()
    assert sum(result.attributes["warmup_divergences_per_chain"]) == 0
    assert (stats["n_gradient_evaluations"] >= stats["n_micro_steps"]).all()
    assert stats["n_halvings"].max() >= 2
    assert np.array_equal(stats["int_time"], stats["n_steps"] * stats["step_size"])


def test_warm_up_reaches_the_target():
    """The mean acceptance of 2,000 draws. Its standard deviation over seeds is below 0.01."""
    m = refhmc.models.Gaussian(np.zeros(20), np.diag(np.arange(1.0, 21.0)))
    result = refhmc.sample(m, WALNUTS(), draws=500, tune=500, random_seed=2, raw=True, progressbar=False)
    assert 0.7 < result.sample_stats["acceptance_rate"].mean() < 0.9


def test_it_is_a_kernel_of_a_gibbs_block():
    kernel = refhmc.Gibbs({"v": "walnuts", "x": WALNUTS(extra_halving=0.2)})
    result = refhmc.sample(
        refhmc.models.Funnel(2), kernel, draws=50, tune=50, random_seed=1, raw=True, progressbar=False
    )
    assert np.isfinite(result.draws).all()
    assert {"n_micro_steps_v", "n_micro_steps_x"} <= result.sample_stats.keys()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_error": 0.0}, "max_error must be"),
        ({"max_halvings": 21}, "max_halvings must be"),
        ({"extra_halving": 1.0}, "extra_halving must"),
        ({"max_treedepth": 0}, "max_treedepth must be"),
        ({"metric": SoftAbs(1e6)}, "metric must be constant for WALNUTS"),
        ({"metric": Hierarchical()}, "metric must be constant for WALNUTS"),
        ({"metric": Identity(), "integrator": ImplicitMidpoint()}, "integrator must be explicit for WALNUTS"),
    ],
)
def test_invalid_options_are_rejected(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        WALNUTS(**options)


def test_array_backends_reject_it():
    with pytest.raises(TypeError, match="kernel must be one of .* got WALNUTS"):
        refhmc.sample(refhmc.models.Funnel(2), WALNUTS(), backend="arrays", draws=5, tune=5)


@pytest.mark.parametrize(("drop", "outcome"), [(1500.0, "diverged"), (np.nan, "nan")])
def test_a_wall_is_a_divergence_and_never_crossed(drop, outcome):
    m, rng, met = (
        refhmc.Model(1, normal_with_a_wall, normal_gradient, data=drop, name="wall"),
        np.random.default_rng(5),
        0,
    )
    kernel = WALNUTS(step_size=0.3, max_treedepth=5, max_halvings=4)
    for _ in range(60):
        got = refhmc.transition(m, kernel, np.minimum(rng.normal(size=1), 0.9), rng=rng)
        assert got.q[0] <= 1
        met += bool(got.stats["diverging"])
        assert got.outcome == outcome if got.stats["diverging"] else got.outcome in ("accepted", "rejected")
    assert met > 5


def test_settings_are_those_of_the_options():
    kernel = dataclasses.replace(WALNUTS(), max_error=0.7, max_halvings=3, extra_halving=0.25)
    settings = one(SETTINGS)[0]
    for name, value in kernel.settings().items():
        settings[name] = value
    assert (settings.max_error, settings.max_halvings, settings.extra_halving) == (0.7, 3, 0.25)

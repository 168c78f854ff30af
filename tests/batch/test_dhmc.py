"""DHMC of many chains against the textbook and the compiled kernel, alone and in a batch; its distribution and its warm-up."""

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc import DHMC
from refhmc.batch.streams import Purpose
from refhmc.batch.warmup import search_jump_size
from refhmc.metrics import Diagonal, Identity
from tests.helpers.batches import chains_at, made, normals_of_numpy, numbers_of_numpy
from tests.helpers.discontinuous_cases import SWITCH, draw_switch, switch, to_integer
from tests.helpers.sweeps import representatives

ENTROPY, N, T = 11, 30, 5
CHANGES, CLASSIFIER = refhmc.models.ChangePoint(changes=2), refhmc.models.PACBayesClassifier()
FIXED = {"step_jitter": 0.0, "length_jitter": 0.0}
CASES = {
    "change points": (CHANGES, DHMC(step_size=0.5, n_steps=4, metric=Diagonal([0.02, 0.02, 0.02, 0.5, 0.5]))),
    "change points, long": (CHANGES, DHMC(step_size=0.9, n_steps=4, metric=Diagonal([0.05, 0.03, 0.03, 10, 9]))),
    "Jolly-Seber": (refhmc.models.JollySeber(), DHMC(step_size=0.1, n_steps=3, metric=Identity())),
    "all jump": (CLASSIFIER, DHMC(step_size=0.3, n_steps=5, metric=Identity(), **FIXED)),
    "none jumps": (refhmc.models.Funnel(3), DHMC(step_size=0.4, n_steps=5, metric=Identity())),
}


def starts_of(model, n, spread=0.1):
    center = np.zeros(model.dim) if model.initial is None else model.initial
    return center + spread * np.random.default_rng(2).normal(size=(n, model.dim))


@pytest.mark.parametrize("name", representatives(CASES, ["change points"]))
def test_transition_for_transition(name):
    """The textbook's end, and the compiled kernel's statistics (to the rounding of a sum of changes)."""
    model, kernel = CASES[name]
    H = refhmc.array_api.discontinuous_hamiltonian(model, kernel.metric)
    starts = starts_of(model, N)
    draws, stats = made(*chains_at(model, kernel, starts, ENTROPY), T)
    options = {key: getattr(kernel, key) for key in ("step_size", "n_steps", "step_jitter", "length_jitter")}
    for k in range(0, N, 4):
        q = starts[k]
        for t in range(T):
            z = normals_of_numpy(ENTROPY, k, t, Purpose.MOMENTUM, model.dim)
            u = numbers_of_numpy(ENTROPY, k, t, Purpose.KERNEL, 200)
            move = refhmc.array_api.dhmc(H, q, H.draw_momentum(q, z), u, **options)
            assert np.abs(draws[k, t] - move.q).max() <= 1e-12 * (1 + np.abs(q).max()), (k, t)
            assert stats["n_steps"][k, t] == move.n_steps
            core = refhmc.transition(model, kernel, q, normals=z, uniforms=u)
            for key, value in core.stats.items():
                if key in stats:
                    assert stats[key][k, t] == pytest.approx(float(value), rel=1e-8, abs=1e-8), key
            q = draws[k, t]
    jumped = np.isin(model.discontinuous, np.flatnonzero((np.diff(draws, axis=1) != 0).any(axis=(0, 1))))
    assert jumped.all()
    assert stats["is_accepted"].any()


@pytest.mark.sweep
def test_both_kinds_of_moves_and_rejections_are_tested():
    seen = {}
    for name, (model, kernel) in CASES.items():
        seen[name] = made(*chains_at(model, kernel, starts_of(model, N), ENTROPY), T)[1]
    assert all((stats["no_flip_rate"] < 1).any() for name, stats in seen.items() if name != "none jumps")
    assert (seen["none jumps"]["no_flip_rate"] == 1).all()
    assert not seen["change points, long"]["is_accepted"].all()
    assert np.abs(seen["all jump"]["energy_error"]).max() < 1e-9
    assert seen["all jump"]["is_accepted"].all()


@pytest.mark.parametrize("name", representatives(CASES, ["change points", "none jumps"]))
def test_a_chain_is_the_same_alone(name):
    """Bit for bit, with neighbours outside the support or that are not numbers."""
    model, kernel = CASES[name]
    starts = starts_of(model, N)
    starts[::4] *= 50
    starts[1], starts[2, -1] = np.nan, np.inf
    draws, stats = made(*chains_at(model, kernel, starts, ENTROPY), T)
    for k in (0, 1, 2, 3, 4, N - 1):
        alone, its = made(*chains_at(model, kernel, starts[k : k + 1], ENTROPY, [k]), T)
        assert np.array_equal(alone[0], draws[k], equal_nan=True)
        for key, values in its.items():
            assert np.array_equal(values[0], stats[key][k], equal_nan=True), key


def without_change(model):
    """The same density, without the change of it."""
    functions = {key: getattr(model.functions, key) for key in ("log_density", "gradient", "value_and_gradient")}
    return refhmc.Model(model.dim, **functions, data=model.data, discontinuous=model.discontinuous)


@pytest.mark.sweep
def test_a_move_asks_for_the_change_or_for_one_density():
    """If all coordinates jump, only L at a trajectory's end is evaluated in addition, which is exact to the last bit."""
    model, kernel = CASES["all jump"]
    for each, asked in ((model, "change"), (without_change(model), "gradient")):
        chains, transitions = chains_at(each, kernel, starts_of(model, N), ENTROPY)
        text = transitions.mover.H.model
        text.counts["gradient"] = 0
        draws, stats = made(chains, transitions, T)
        ends = N * T if asked == "change" else 0
        assert text.counts[asked] == stats["n_steps"].sum() * model.dim
        assert text.counts["gradient"] == ends + (asked == "gradient") * text.counts[asked]
        if asked == "change":
            assert np.array_equal(stats["lp"].ravel(), text.text.value_and_gradient(draws.reshape(-1, model.dim))[0])


@pytest.mark.parametrize("name", representatives(["change points", "Jolly-Seber", "all jump"], ["change points"]))
def test_by_changes_or_by_densities_the_draws_are_the_same(name):
    """To the rounding of L, of which the changes are a small part."""
    model, kernel = CASES[name]
    found = [made(*chains_at(each, kernel, starts_of(model, N), ENTROPY), T) for each in (model, without_change(model))]
    (draws, stats), (others, theirs) = found
    assert np.allclose(draws, others, rtol=1e-9, atol=1e-9)
    for key in stats:
        assert np.allclose(stats[key], theirs[key], rtol=1e-7, atol=1e-7, equal_nan=True), key


@pytest.mark.sweep
@pytest.mark.parametrize("exact", [True, False])
def test_the_law_is_kept_and_reached(exact):
    """n of 0, ..., 4 with given probabilities, x | n normal: 20,000 independent chains, after 3 transitions from exact draws,
    or after 60 from one point. Six tests each, at 1e-7, if 60 are enough to forget the point."""
    model, n = switch(), 20_000
    kernel = DHMC(step_size=0.6, n_steps=5, metric=Diagonal([1.0, 0.5]))
    starts = draw_switch(np.random.default_rng(5), n) if exact else np.tile(model.initial, (n, 1))
    chains, transitions = chains_at(model, kernel, starts, ENTROPY)
    made(chains, transitions, 3 if exact else 60)
    cells = np.array([to_integer(x) for x in chains.q[:, 1]])
    weights, mean, sd = SWITCH
    counts = np.bincount(cells, minlength=5)
    assert scipy.stats.chisquare(counts, n * weights).pvalue > 1e-7
    for k in range(5):
        assert scipy.stats.kstest(chains.q[cells == k, 0], "norm", (mean[k], sd[k])).pvalue > 1e-7
    assert (chains.q != starts).any(axis=1).mean() > 0.9


def test_the_search_for_a_jump_size_is_that_of_the_definition():
    """An independent implementation, which moves one coordinate at a time, in both directions, in units of its scale.

    The result is the last size before the mean of min(1, exp(change)) crosses 1/2, coming from the first.
    """
    variances = [0.02, 0.02, 0.02, 0.5, 0.7]
    chains, transitions = chains_at(
        CHANGES, DHMC(step_size=1.0, metric=Diagonal(variances)), starts_of(CHANGES, 6, 1.0), 1
    )
    sizes, failed = search_jump_size(chains, transitions.mover, np.full(6, 1.0), shared=False, at_once=6)
    assert failed == 0

    def passing(q, size):
        moves = [sign * size * variances[j] ** 0.5 * np.eye(5)[j] for j in CHANGES.discontinuous for sign in (-1, 1)]
        change = np.array([CHANGES.log_density(q + move) - CHANGES.log_density(q) for move in moves])
        return np.exp(np.minimum(change, 0)).mean()

    for q, size in zip(chains.q, sizes, strict=True):
        other = size * 2 if passing(q, 1.0) < 0.5 else size / 2
        assert (passing(q, size) < 0.5) != (passing(q, 1.0) < 0.5) or size == 1.0
        assert (passing(q, other) < 0.5) == (passing(q, 1.0) < 0.5)
    assert len(set(sizes)) > 1
    together, _ = search_jump_size(chains, transitions.mover, np.full(6, 1.0), shared=True, at_once=4)
    assert len(set(together)) == 1


LONG = {"draws": 200, "tune": 250, "random_seed": 3, "raw": True, "progressbar": False}


def assert_adapted(many, shared):
    assert many.attributes["step_size_searches_failed"] == 0
    for statistic in ("no_flip_probability", "acceptance_rate"):
        assert 0.7 < many.sample_stats[statistic].mean() < 0.95
    sizes = many.sample_stats["step_size_nom"][:, 0]
    assert (len(np.unique(sizes)) == 1) == shared


@pytest.mark.sweep
@pytest.mark.parametrize("shared", [False, True])
def test_sample_adapts_steps_and_jumps(shared):
    """To the targets of acceptance and of the no-flip rate."""
    many = refhmc.sample(
        switch(), chains=40, backend=refhmc.Arrays(shared_step_size=shared), **{**LONG, "draws": 50, "tune": 100}
    )
    assert_adapted(many, shared)


@pytest.mark.sweep
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", ["change point", "switch"])
def test_an_adapted_run_has_the_means(name, shared):
    """The means of 40 independent chains against the compiled kernel's, or the truth, by t-tests: two or three, at 1e-7."""
    model = refhmc.models.ChangePoint() if name == "change point" else switch()
    many = refhmc.sample(model, chains=40, backend=refhmc.Arrays(shared_step_size=shared), **LONG)
    assert_adapted(many, shared)
    means = many.draws.mean(axis=1)
    if name == "switch":
        means = np.column_stack([many.posterior[x].mean(axis=1) for x in ("x", "n")])
        assert scipy.stats.ttest_1samp(means, model.reference.mean).pvalue.min() > 1e-7
    else:
        other = refhmc.sample(model, chains=30, cores=1, **LONG)
        assert scipy.stats.ttest_ind(means, other.draws.mean(axis=1), equal_var=False).pvalue.min() > 1e-7

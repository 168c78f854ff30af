"""Warnings of a result: advice fits the kernel, percentages are exact, and a chain that stands still is stuck."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import refhmc
from refhmc import DHMC, HMC, NUTS, Gibbs
from refhmc.compile import compiled
from refhmc.core.sample_stats import OUTCOMES
from refhmc.errors import MetricError, SamplingWarning
from refhmc.metrics import Dense, Diagonal, DiagonalSoftAbs, Fisher, Identity, LowRank, OuterProductSoftAbs, SoftAbs
from refhmc.sampling.begin import announced
from refhmc.sampling.results.review import DrawsToReview, _mixing, percent, review
from tests.helpers.models import FEW_CALLS
from tests.helpers.sweeps import swept

CHAINS, N = 2, 400


def statistics(n=N, **changes):
    """Return statistics of a healthy run of HMC, (chain, draw), with changes."""
    shape = (CHAINS, n)
    healthy = {
        "diverging": np.zeros(shape, bool),
        "is_accepted": np.ones(shape, bool),
        "outcome": np.full(shape, OUTCOMES.index("accepted")),
        "max_energy_error": np.full(shape, 0.1),
        "energy": np.random.default_rng(1).normal(size=shape),
    }
    return healthy | changes


def reviewed(kernel, tune=100, draws=None, **changes):
    n = N if draws is None else draws.shape[1]
    draws = np.random.default_rng(2).normal(size=(CHAINS, n, 2)) if draws is None else draws
    return review(["a", "b"], kernel, DrawsToReview(draws, statistics(n, **changes), np.full((CHAINS, 2), 9.0)), tune)


def some(count, n=N):
    flags = np.zeros((CHAINS, n), bool)
    flags.ravel()[:: max(1, flags.size // count)] = True
    return flags


def advice_against_divergences(kernel, tune=100, **changes):
    (text,) = [t for t in reviewed(kernel, tune, diverging=some(30), **changes) if "diverged" in t]
    return text


def kernels(make, **options):
    """Return kernels of a kind with each metric that it accepts."""
    metrics = [None, SoftAbs(1e6), DiagonalSoftAbs(1e6), OuterProductSoftAbs(), Fisher(), Dense()]
    return [make(metric=metric, **options) for metric in (metrics if make is not DHMC else [None])]


@pytest.mark.parametrize("make", [HMC, NUTS])
def test_the_warm_up_of_stan_is_advised_where_many_diverge_on_a_metric_from_gradients(make):
    for metric, tune, count, advised in [
        (None, 100, 30, True),
        (None, 100, 2, False),  # few
        (None, 0, 30, False),  # nothing was learned
        (LowRank(), 100, 30, False),  # which warmup="stan" does not change
        (Diagonal(regularization="stan"), 100, 30, False),  # what warmup="stan" uses
        (Dense(), 100, 30, False),
        (SoftAbs(), 100, 30, False),
    ]:
        texts = reviewed(make(metric=metric), tune, diverging=some(count))
        (text,) = [t for t in texts if "diverged" in t]
        assert ('warmup="stan"' in text) == advised


@pytest.mark.parametrize("make", [HMC, NUTS, DHMC])
@pytest.mark.parametrize("infinite", [False, True])
def test_softabs_is_not_recommended_to_those_who_use_it(make, infinite):
    error = np.full((CHAINS, N), np.inf if infinite else 1e4)
    for (step_size, tune), outcome in itertools.product([(None, 100), (0.1, 100), (None, 0)], ["diverged", "nan"]):
        for kernel in kernels(make, step_size=step_size):
            changes = {"max_energy_error": error, "outcome": np.full((CHAINS, N), OUTCOMES.index(outcome))}
            text = advice_against_divergences(kernel, tune, **changes)
            advised = "SoftAbs()" in text
            if kernel.metric is None or isinstance(kernel.metric, Dense):
                assert advised == (make is not DHMC)
            else:
                indefinite = isinstance(kernel.metric, Fisher) and infinite and outcome == "diverged"
                assert advised == indefinite
                assert "Riemannian" not in text
                assert ("not positive definite" in text) == indefinite


@pytest.mark.parametrize("make", [HMC, NUTS, DHMC])
@pytest.mark.parametrize(("step_size", "tune"), [(0.1, 100), (None, 0), (0.1, 0)])
def test_target_accept_is_not_advised_where_the_step_is_fixed(make, step_size, tune):
    still = np.ones((CHAINS, N), bool)
    still[0, 50:300] = False
    for kernel in kernels(make, step_size=step_size):
        texts = reviewed(kernel, tune, diverging=some(30), is_accepted=still)
        texts += reviewed(kernel, tune, is_accepted=np.zeros((CHAINS, N), bool))
        assert any("diverged" in text for text in texts)
        assert any("stuck" in text for text in texts)
        assert not any("target_accept" in text for text in texts)
        assert all("smaller step_size" in text for text in texts if "stuck" in text)
        low = [t for t in reviewed(kernel, tune, no_flip_rate=np.full((CHAINS, N), 0.1)) if "discontinuous" in t]
        assert "target_no_flip" not in low[0]
    for kernel in kernels(make):
        assert any("target_accept" in text for text in reviewed(kernel, diverging=some(30), is_accepted=still))


def test_on_a_funnel_geometry_comes_before_the_step():
    for kernel in kernels(HMC) + kernels(NUTS):
        text = advice_against_divergences(kernel)
        if kernel.metric is not None and kernel.metric.position_dependent:
            assert text.index("target_accept") < text.index("eparametrise")
        else:
            words = [text.index(word) for word in ("Hierarchical", "Riemannian", "eparametrise", "target_accept")]
            assert words == sorted(words)
    # A trajectory that passes the wall diverges at any step size: 372 to 433 of 1,200 transitions with 24 seeds. None
    # diverges with a probability below 1e-100.
    wall = refhmc.Model(
        2,
        lambda q: -0.5 * np.sum(q * q) - 5e5 * max(0.0, q[0] - 1.0) ** 2,
        lambda q: -q - np.array([1e6 * max(0.0, q[0] - 1.0), 0.0]),
    )
    with pytest.warns(SamplingWarning):
        result = refhmc.sample(wall, refhmc.NUTS(), draws=300, tune=300, random_seed=3, progressbar=False, raw=True)
    (text,) = [t for t in result.warnings if "diverged" in t]
    assert text.index("Riemannian metric") < text.index("target_accept")


def test_a_learned_metric_is_not_advised_to_those_who_have_one():
    reached = np.ones((CHAINS, N), bool)
    for kernel in (*kernels(NUTS), NUTS(metric=refhmc.metrics.Diagonal())):
        (text,) = [t for t in reviewed(kernel, reached_max_treedepth=reached) if "max_treedepth" in t]
        assert ('metric="auto"' in text) == isinstance(kernel.metric, refhmc.metrics.Diagonal)
        assert "max_treedepth" in text
        assert ("use a smaller alpha" in text) == isinstance(kernel.metric, SoftAbs | DiagonalSoftAbs)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 4000, "0 %"),
        (4000, 4000, "100 %"),
        (1, 1, "100 %"),
        (3999, 4000, "99.975 %"),
        (3996, 4000, "99.9 %"),
        (3980, 4000, "99.5 %"),
        (1, 4000, "0.025 %"),
        (1, 3000, "0.033 %"),
        (1, 40_000_000, "0.0000025 %"),
        (40, 4000, "1 %"),
        (123, 4000, "3.1 %"),
        (400, 4000, "10 %"),
        (2000, 4000, "50 %"),
        (2, 3, "67 %"),
    ],
)
def test_percentages(part, whole, text):
    assert percent(part, whole) == text


def test_percentages_of_every_size():
    for whole in (7, 100, 4000, 10**6):
        for part in {*range(0, 8), *range(whole - 7, whole + 1), whole // 2, whole // 3}:
            text = percent(part, whole)
            assert "e" not in text
            assert (text == "100 %") == (part == whole)
            assert (text == "0 %") == (part == 0)
            distance = min(part, whole - part) / whole
            assert abs(float(text[:-2]) / 100 - part / whole) <= 0.05 * distance + 1e-15


@pytest.mark.parametrize(("what", "name"), [("diverged", "diverging"), ("solver", "solver_failed")])
def test_all_of_them_are_100_percent(what, name):
    texts = reviewed(HMC(metric=SoftAbs(1e6)), **{name: np.ones((CHAINS, N), bool)})
    (text,) = [t for t in texts if what in t]
    assert f"{CHAINS * N} of {CHAINS * N} transitions (100 %)" in text
    assert "e+0" not in "".join(texts)


def test_energies_that_change_little_are_reported():
    energy = np.random.default_rng(1).normal(size=(CHAINS, N))
    energy[1] = np.cumsum(energy[1])
    (text,) = [text for text in reviewed(NUTS(), energy=energy) if "E-BFMI" in text]
    assert text.startswith("E-BFMI is below 0.3 in 1 of 2 chains (chain 1: 0.0")


# ----------------------------------------------------------------------------------------------------------- stuck


@pytest.mark.parametrize("n", [5, 20, 99, 100, 400])
def test_a_chain_that_never_moves_is_stuck_however_short_the_run(n):
    accepted = np.ones((CHAINS, n), bool)
    accepted[1] = False
    stuck = [
        t for t in reviewed(HMC(), draws=np.random.default_rng(1).normal(size=(CHAINS, n, 2)), is_accepted=accepted)
    ]
    (text,) = [t for t in stuck if "stuck" in t]
    assert text.startswith(f"Chain 1 is stuck: it stood still for all of its {n} draws")


def test_a_chain_that_moved_is_stuck_after_a_hundred_rejections():
    for still, begin in itertools.product((99, 100, 250), (0, 1, 50, 150)):
        accepted = np.ones((CHAINS, N), bool)
        accepted[0, begin : begin + still] = False
        stuck = [t for t in reviewed(HMC(), is_accepted=accepted) if "stuck" in t]
        assert len(stuck) == (still >= 100)
        assert all(t.startswith(f"Chain 0 is stuck: it stood still for {still} draws in a row") for t in stuck)


def test_a_chain_of_accepted_moves_that_change_nothing_is_stuck():
    draws = np.random.default_rng(1).normal(size=(CHAINS, N, 2))
    draws[1] = 9.0  # the start
    (text,) = [t for t in reviewed(HMC(step_size=1e-30), draws=draws) if "stuck" in t]
    assert text.startswith(f"Chain 1 is stuck: it stood still for all of its {N} draws")
    assert "larger step_size" in text


@pytest.mark.parametrize(
    ("rate", "tune", "words"),
    [
        (0.0, 0, "smaller step_size"),
        (0.0, 100, "target_no_flip"),
        (1.0, 0, "larger step_size"),
    ],
)
def test_moves_that_are_turned_back_are_not_too_small(rate, tune, words):
    """If all coordinates are discontinuous, a trajectory of rejected moves ends at its start and is accepted."""
    still = np.full((CHAINS, N, 2), 9.0)
    found = reviewed(DHMC(step_size=None if tune else 1e3), tune, still, no_flip_rate=np.full((CHAINS, N), rate))
    stuck = [text for text in found if "stood still" in text]
    assert len(stuck) == CHAINS
    assert all(words in text for text in stuck)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (HMC(step_size=80.0, n_steps=3, metric=Identity()), "smaller step_size"),
        (NUTS(step_size=1e-18, max_treedepth=2), "larger step_size"),
        swept(Gibbs({"a": HMC(), "b": HMC(step_size=80.0, n_steps=3, metric=Identity())}), "smaller step_size"),
    ],
)
def test_runs_that_do_not_move(normal, sample, kernel, words):
    with pytest.warns(SamplingWarning):
        result = sample(normal, kernel, draws=40, tune=20, chains=2, random_seed=1, initvals=[1.0, 2.0])
    stuck = [text for text in result.warnings if "stuck" in text]
    assert len(stuck) == 2
    assert all("40 draws" in text and words in text for text in stuck)
    assert len(np.unique(result.draws[..., 1])) == 1


# ----------------------------------------------------------------------------------------------- elsewhere than warnings


@pytest.mark.parametrize("metric", [SoftAbs(1e6), OuterProductSoftAbs()])
def test_a_metric_error_does_not_recommend_the_metric_in_use(metric):
    scale = 1e308 if isinstance(metric, SoftAbs) else 1e200
    model = refhmc.Model(
        2,
        lambda q, data: -0.5 * data * np.sum(q * q),
        lambda q, data: -q * data,
        hessian=lambda q, data: -np.array([[1.0, 0.5], [0.5, -1.0]]) * data,
        third_derivative=lambda q, data: np.zeros((2, 2, 2)),
        data=scale,
        in_python=FEW_CALLS,
    )
    with pytest.raises(MetricError, match="double precision") as caught:
        refhmc.Hamiltonian(model, metric).energy(np.ones(2), np.ones(2))
    assert "SoftAbs()" not in str(caught.value)


def test_compilation_is_reported_in_two_lines_at_most():
    shown = []
    display = type("Display", (), {"message": lambda self, text: shown.append(text)})()
    metric = ["the metric SoftAbs"] * 4
    titles = ["the model funnel", "the momentum draw", *metric, "the change in the model funnel", "the sampling loop"]
    with announced(display):
        for title in titles:
            for listener in compiled.announce:
                listener(title)
    assert shown == ["Compiling the model (first run only)", "Compiling refhmc (about 20 s, first run only)"]


def test_the_compilation_report_names_each_part_once(monkeypatch):
    from refhmc.cli.output import compilation_report
    from refhmc.compile.compiled import Compilation

    log = [Compilation("the metric SoftAbs", 0.5, False)] * 4 + [Compilation("the sampling loop", 1.0, False)]
    monkeypatch.setattr(refhmc.compile.compiled, "log", log)
    report = compilation_report()
    assert report.count("the metric SoftAbs") == 1
    assert "3.0 s: the metric SoftAbs 2.0 s, the sampling loop 1.0 s" in report


def test_a_healthy_short_run_is_not_called_stuck(normal, sample):
    """A rejection has a probability below 0.1 at this step size, so that ten in a row have one below 1e-9 per chain."""
    moved_once = np.zeros((CHAINS, 10), bool)
    moved_once[:, 4] = True
    draws = np.random.default_rng(1).normal(size=(CHAINS, 10, 2))
    texts = reviewed(HMC(), draws=draws, is_accepted=moved_once)
    texts += sample(normal, HMC(step_size=0.1, n_steps=10), draws=10, tune=0, random_seed=1).warnings
    assert any("10 draws" in text for text in texts)
    assert not any("stuck" in text for text in texts)


@pytest.mark.sweep
def test_trajectories_at_the_step_limit_are_reported_with_advice_on_alpha():
    """An eigenvalue of the banana's Hessian passes 0, so that the solver sometimes fails at every step size."""
    kernel = refhmc.HMC(metric=refhmc.metrics.SoftAbs(1e6), trajectory_length=3.0)
    with pytest.warns(SamplingWarning, match="1024 steps"):
        result = refhmc.sample(
            refhmc.models.Banana(), kernel, draws=20, tune=250, chains=1, random_seed=1, raw=True, progressbar=False
        )
    cut = int((result.sample_stats["n_steps"] == 1024).sum())
    (said,) = [text for text in result.warnings if "1024 steps" in text]
    assert f"{cut} of 20 trajectories" in said
    assert "smaller alpha" in said


def test_a_solver_that_fails_where_eigenvalues_pass_0_is_told_of_alpha():
    """The solver fails in at least 15 of the 40 transitions with 24 seeds; in none with a probability below 1e-8."""
    kernel = refhmc.HMC(metric=refhmc.metrics.SoftAbs(1e6), step_size=0.1, n_steps=20)
    with pytest.warns(SamplingWarning, match="solver"):
        result = refhmc.sample(
            refhmc.models.Banana(), kernel, draws=40, tune=0, chains=1, random_seed=1, raw=True, progressbar=False
        )
    (said,) = [text for text in result.warnings if "solver" in text]
    assert "alpha=1,000,000" in said
    assert "smaller alpha" in said


def test_few_draws_are_told_from_correlated_ones():
    """Of 4 x 100 independent draws, some of 50 coordinates have fewer than 100 effective ones per chain."""
    rng = np.random.default_rng(1)
    independent = rng.normal(size=(4, 100, 50))
    (text,) = [t for t in _mixing([f"x[{j}]" for j in range(50)], independent, ", CURE,") if "effective" in t]
    assert "There are few draws, so" in text
    assert "Take more draws. " in text
    correlated = np.cumsum(rng.normal(size=(4, 400, 2)), axis=1)
    (text,) = [t for t in _mixing(["a", "b"], correlated, ", CURE,") if "effective" in t]
    assert "The draws are strongly correlated, so" in text
    assert "Take more draws, CURE, or reparametrise" in text


def test_a_very_large_r_hat_is_not_printed():
    """As of chains that do not move: their variance within is rounding."""
    still = np.broadcast_to(np.arange(4.0)[:, None, None], (4, 200, 1)).copy()
    (text,) = [t for t in _mixing(["a"], still, ",") if "R-hat is above 1.01" in t]
    assert "(worst: a, above 100)" in text
    apart = np.arange(4.0)[:, None, None] + np.random.default_rng(3).normal(size=(4, 200, 1))
    assert "above 100" not in "".join(_mixing(["a"], apart, ","))


@pytest.mark.parametrize(
    ("chains", "draws", "warns"), [(1, 200, True), (2, 200, False), (3, 1000, True), (4, 1000, False)]
)
def test_a_short_run_may_have_two_chains(chains, draws, warns):
    options = {"draws": draws, "tune": 100, "chains": chains, "random_seed": 5, "progressbar": False, "raw": True}
    result = refhmc.sample(refhmc.models.Gaussian([0.0], [[1.0]]), **options)
    assert any("run. R-hat compares chains" in text for text in result.warnings) == warns

"""``check.sampler``: wrong distributions are found, unusual correct ones pass, and errors become rows, not tracebacks.

Each statistical assertion here has a false-alarm rate of at most 1e-6 over seeds; the seeds are fixed.
"""

from __future__ import annotations

import json
import time
import types

import numpy as np
import pytest
import scipy.stats

import refhmc
import refhmc.check as rc
from refhmc.check import targets
from refhmc.check.mutants import samplers as planted
from tests.helpers.sweeps import representatives, swept

ALARM = 1e-6
SMOOTH = [
    "funnel-3",
    "banana",
    "gaussian",
    "gaussian-5-1e6",
    "normal-2",
    "quartic-2",
    "mixture",
    "student-3",
    "rosenbrock",
    "ring",
]
NORMAL = targets.normal(2)
LAWS = ("stationarity (e-value)", "distribution (KS/AD)")


def metropolis(rng, q, logp=NORMAL.log_density, scale=1.5):
    """Random walk for one point or many."""
    x = q + scale * rng.standard_normal(q.shape)
    return np.where((np.log(rng.random(q.shape[:-1])) < logp(x) - logp(q))[..., None], x, q)


def failed(report) -> list[str]:
    return [row.name for row in report.failures]


# ------------------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize("name", [*SMOOTH, "exponential-2"])
def test_exact_draws_have_the_distribution_of_the_log_density(name):
    """Stein: E[d log p / dq_j h + dh / dq_j] = 0 for h = q_j / (1 + q_j^2), which is 0 at the edge of the exponential."""
    t = targets.from_name(name)
    q = t.draw(np.random.default_rng(1), 40000)
    terms = t.gradient(q) * q / (1 + q * q) + (1 - q * q) / (1 + q * q) ** 2
    z = terms.mean(axis=0) / (terms.std(axis=0) / np.sqrt(len(q)))
    assert np.abs(z).max() < scipy.stats.norm.isf(ALARM / (2 * t.dim))


@pytest.mark.parametrize("name", [*SMOOTH, "exponential-2"])
def test_a_targets_gradient_is_that_of_its_log_density(name):
    t = targets.from_name(name)
    q, h = t.draw(np.random.default_rng(2), 5), 1e-6
    sides = [(t.log_density(q + h * e) - t.log_density(q - h * e)) / (2 * h) for e in np.eye(t.dim)]
    np.testing.assert_allclose(
        np.stack(sides, axis=-1), t.gradient(q), rtol=1e-5, atol=1e-6 * np.abs(t.gradient(q)).max()
    )
    np.testing.assert_allclose(t.log_density(q[0]), t.log_density(q)[0], rtol=1e-12)


def test_the_cells_are_drawn_with_their_probabilities():
    t = targets.cells(2)
    q = t.draw(np.random.default_rng(3), 40000)
    place = np.floor(q + 2).astype(int) @ [4, 1]
    centres = np.stack(np.unravel_index(np.arange(16), (4, 4)), axis=-1) - 1.5
    p = np.exp(t.log_density(centres))
    assert scipy.stats.chisquare(np.bincount(place, minlength=16), 40000 * p / p.sum()).pvalue > ALARM
    assert t.log_density(np.array([2.5, 0.0])) == -np.inf


@pytest.mark.parametrize("name", ["funnel", "banana", "gaussian"])
def test_targets_that_refhmc_has_too_are_the_same_there(name):
    t, model = targets.from_name(name), refhmc.models.by_name()[name]()
    q = t.draw(np.random.default_rng(4), 6)
    assert np.ptp([model.log_density(x) - t.log_density(x) for x in q]) < 1e-12 * np.abs(t.log_density(q)).max()
    np.testing.assert_array_equal(targets.resolve(model).draw(np.random.default_rng(4), 6), q)


def test_invalid_target_is_rejected():
    with pytest.raises(ValueError, match="target must be one of banana"):
        rc.sampler(metropolis, "nonsense")
    with pytest.raises(TypeError, match="draw"):
        rc.sampler(metropolis, object())
    with pytest.raises(TypeError, match="one of"):
        rc.sampler(metropolis, "normal-2", run=metropolis)
    assert targets.from_name("gaussian-4-1e6").dim == 4


# ------------------------------------------------------------------------------------------------------- right samplers


def jittered(logp, grad):
    def kernel(rng, q):
        return planted.hmc(logp, grad, 0.9 * rng.uniform(0.5, 1.0), int(rng.integers(1, 5)))(rng, q)

    return kernel


def single_precision(logp, grad):
    inner = planted.hmc(logp, grad, 0.7, 3)
    return lambda rng, q: inner(rng, q.astype(np.float32)).astype(np.float32)


def random_order(logp, grad):
    """Metropolis in blocks of one coordinate, in a random order."""

    def kernel(rng, q):
        for j in rng.permutation(q.shape[-1]):
            x = q.copy()
            x[..., j] += rng.standard_normal(q.shape[:-1])
            q = np.where((np.log(rng.random(q.shape[:-1])) < logp(x) - logp(q))[..., None], x, q)
        return q

    return kernel


def gibbs(logp, grad):
    """Gibbs sampler of N((0.5, -1), [[1, 0.5], [0.5, 2]])."""

    def kernel(rng, q):
        a = 0.5 + 0.25 * (q[..., 1] + 1) + np.sqrt(1 - 0.125) * rng.standard_normal(q.shape[:-1])
        b = -1 + 0.5 * (a - 0.5) + np.sqrt(2 - 0.25) * rng.standard_normal(q.shape[:-1])
        return np.stack([a, b], axis=-1)

    return kernel


def delayed(logp, grad):
    """Metropolis with a second, smaller proposal after a rejection, with the ratio for detailed balance (d = 1)."""

    def first(a, b):
        return np.minimum(1.0, np.exp(logp(b) - logp(a)))

    def kernel(rng, q):
        x = q + 4.0 * rng.standard_normal(q.shape)
        y = q + 0.7 * rng.standard_normal(q.shape)
        u = rng.random((2, *q.shape[:-1]))
        width = np.sum((q - x) ** 2 - (y - x) ** 2, axis=-1) / 32
        second = np.exp(logp(y) - logp(q) + width) * (1 - first(y, x)) / np.maximum(1 - first(q, x), 1e-300)
        moved = u[0] < first(q, x)
        return np.where(moved[..., None], x, np.where((~moved & (u[1] < second))[..., None], y, q))

    return kernel


ODD = {
    "jittered step and length": (jittered, "banana"),
    "float32": (single_precision, "gaussian"),
    "random order of the blocks": (random_order, "mixture"),
    "Gibbs": (gibbs, "gaussian"),
    "delayed rejection": (delayed, "student-1"),
    "tiny steps": (lambda logp, grad: lambda rng, q: metropolis(rng, q, logp, 0.01), "funnel-3"),
    "exact independent draws": (lambda t: lambda rng, q: t.draw(rng, len(q)), "quartic-2"),
    "turning the sign": (lambda logp, grad: lambda rng, q: -q, "normal-2"),
    "nearly turning the sign": (lambda logp, grad: lambda rng, q: -0.8 * q + 0.6 * rng.standard_normal(q.shape), "normal-2"),
    "large steps": (lambda logp, grad: lambda rng, q: metropolis(rng, q, logp, 12.0), "normal-2"),
    "a hard wall": (lambda logp, grad: lambda rng, q: metropolis(rng, q, logp, 1.0), "exponential-2"),
    "heavy tails": (lambda logp, grad: lambda rng, q: metropolis(rng, q, logp, 3.0), "student-1"),
    "ill-conditioned": (lambda logp, grad: planted.hmc(logp, grad, 0.04, 5), "gaussian-5-1e6"),
}  # fmt: skip


@pytest.mark.parametrize("what", representatives(ODD, list(ODD)[::3]))
def test_unusual_correct_sampler_passes(what):
    make, target = ODD[what]
    report = rc.sampler(make=make, target=target, batched=True, draws=1100, seconds=20)
    assert report.ok, str(report)
    assert report.row(LAWS[0]).status == "PASS"


@pytest.mark.sweep
def test_persistent_momentum_with_the_right_flip_passes_in_every_shape_of_state():
    t = targets.student_t(2)
    step = planted.persistent(t.log_density, t.gradient, 1.2, 2, 0.4)

    def init(q, rng):
        return types.SimpleNamespace(position=q, momentum=rng.standard_normal(q.shape))

    def stepped(rng, state):
        q, p = step(rng, (state.position, state.momentum))
        return types.SimpleNamespace(position=q, momentum=p), {"info": 1}

    def stepped_state_first(state, rng):
        return stepped(rng, state)[0]

    objects = [types.SimpleNamespace(init=init, step=s) for s in (stepped, stepped_state_first)]
    reports = [rc.sampler(o, t, batched=True, draws=1100) for o in objects]
    reports.append(rc.sampler(step, t, batched=True, draws=1100, **planted.WITH_MOMENTUM))
    for report in reports:
        assert report.ok, str(report)
    assert len({report.row("moves").number for report in reports}) == 1


@pytest.mark.sweep
def test_ensemble_passes_if_declared():
    """Differential evolution: pairs of chains give the direction (in halves, which preserves the product distribution)."""

    def kernel(rng, q):
        q = q.copy()
        half = len(q) // 2
        for mine, other in ((slice(0, half), q[half:]), (slice(half, None), q[:half])):
            i, j = rng.integers(len(other), size=(2, half))
            x = q[mine] + (other[i] - other[j])
            accept = np.log(rng.random(half)) < NORMAL.log_density(x) - NORMAL.log_density(q[mine])
            q[mine] = np.where(accept[:, None], x, q[mine])
        return q

    report = rc.sampler(kernel, NORMAL, ensemble=True, chains=16, draws=600)
    assert report.ok, str(report)
    assert report.row("chains independent").status == "NOT RUN"


@pytest.mark.parametrize("kernel", [swept("hmc"), "nuts"])
def test_kernels_of_refhmc_pass(kernel):
    model = refhmc.models.Gaussian([0.5, -1.0], [[1.0, 0.5], [0.5, 2.0]])
    made = refhmc.HMC(trajectory_length=1.5, step_size=0.9) if kernel == "hmc" else refhmc.NUTS(step_size=0.9)
    report = rc.sampler(made, model, draws=210, seconds=20, transitions=1)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["hmc", "nuts"])
@pytest.mark.parametrize("name", ["Funnel", "Banana"])
def test_kernels_of_refhmc_pass_with_the_whole_budget(kernel, name):
    model = getattr(refhmc.models, name)()
    made = refhmc.HMC(trajectory_length=1.0, step_size=0.1) if kernel == "hmc" else refhmc.NUTS(step_size=0.1)
    report = rc.sampler(made, model, seconds=30)
    assert report.ok, str(report)


def exact_but_lazy(rng, q):
    """Ensemble kernel that keeps half of the points and draws the other half again."""
    return np.where(rng.random(q.shape[:-1])[..., None] < 0.5, q, rng.standard_normal(q.shape))


@pytest.mark.sweep
@pytest.mark.parametrize("runs", [16, 60])
def test_a_correct_kernel_fails_no_more_often_than_alpha(runs):
    """At alpha = 0.2 the failures are at most a quantile of a binomial number of the runs."""
    bad = sum(
        bool(rc.sampler(exact_but_lazy, NORMAL, 0.2, batched=True, draws=1100, seed=s).failures) for s in range(runs)
    )
    assert bad <= scipy.stats.binom.ppf(1 - ALARM, runs, 0.2)


@pytest.mark.slow
def test_a_correct_kernel_fails_no_more_often_than_alpha_in_400_runs():
    bad = sum(
        bool(rc.sampler(exact_but_lazy, NORMAL, 0.05, batched=True, draws=8200, seed=s).failures) for s in range(400)
    )
    assert bad <= scipy.stats.binom.ppf(1 - ALARM, 400, 0.05)


# ------------------------------------------------------------------------------------------------------- wrong samplers


@pytest.mark.sweep
@pytest.mark.parametrize("seed", representatives([1, 2], [1]))
def test_wrong_second_try_is_found_from_few_starts(seed):
    """Bets on the ends of paths alone pass 32,000 starts for either seed."""
    bugs = {bug: planted.batch(planted.delayed, "gaussian", (1.5, 3), (0.5, 2), bug=bug, draws=32000, seed=seed)
            for bug in ("rejections left out", "")}  # fmt: skip
    assert failed(bugs["rejections left out"])[:1] == [LAWS[0]], str(bugs["rejections left out"])
    assert bugs[""].ok, str(bugs[""])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bug", ["rejections left out", "ghost forwards", ""])
@pytest.mark.parametrize("target", ["gaussian", "funnel-3"])
def test_delayed_rejection_of_one_chain_is_found_in_a_minute(target, bug, seed):
    """80,000 starts, a minute on one core."""
    tries = ((1.5, 3), (0.5, 2)) if target == "gaussian" else ((0.5, 3), (0.1, 3))
    t = targets.from_name(target)
    report = rc.sampler(
        planted.delayed(t.log_density, t.gradient, *tries, bug=bug), t, draws=80000, seconds=None, seed=seed
    )
    assert report.ok if not bug else report.severity == "wrong distribution", str(report)


@pytest.mark.sweep
def test_shape_of_the_wrong_distribution_is_reported():
    def narrow(rng, q):
        return 0.9 * rng.standard_normal(q.shape)

    def shifted(rng, q):
        return rng.standard_normal(q.shape) + [0.15, 0.0]

    report = rc.sampler(narrow, NORMAL, batched=True, draws=8000, seconds=None)
    assert "radius" in report.row(LAWS[0]).basis or "too narrow" in " ".join(report.diagnosis), str(report)
    report = rc.sampler(shifted, NORMAL, batched=True, draws=8000, seconds=None)
    assert any("q[0] are too large" in text for text in report.diagnosis), str(report)


@pytest.mark.sweep
def test_printed_power_is_that_of_the_bets():
    """The least shift that is found with probability 0.99 is found in each of three tries; a tenth of it is not."""
    basis = rc.sampler(exact_but_lazy, NORMAL, batched=True, draws=4096, transitions=1).row(LAWS[0]).basis
    shift = float(basis.split("shift of ")[1].split(" sd")[0])
    assert 0.05 < shift < 0.5

    def off(by):
        # The distribution of the chain is shifted by ``by`` sd, and half of the initial states are kept.
        return lambda rng, q: np.where(rng.random((len(q), 1)) < 0.5, q, rng.standard_normal(q.shape) + [by, 0.0])

    found = [
        bool(rc.sampler(off(by), NORMAL, batched=True, draws=4096, transitions=1, seed=s).failures)
        for by in (1.1 * shift, 0.1 * shift)
        for s in range(3)
    ]
    assert found == [True] * 3 + [False] * 3


@pytest.mark.parametrize("distance", [2, 16])
def test_chains_that_share_numbers_are_found_at_any_position(distance):
    """Chains k and k + 2 of four, and the two halves: both of a pair are even, or both odd."""

    def kernel(rng, q):
        k = np.arange(len(q))
        z = rng.standard_normal(q.shape)[k // (2 * distance) * 2 * distance + k % distance]
        return 0.1 * q + np.sqrt(0.99) * z

    report = rc.sampler(kernel, NORMAL, batched=True, chains=32, draws=60_000, transitions=1)
    assert report.row("chains independent").status == "FAIL"
    assert "two halves of the chains agree" in str(report)


def test_chains_may_share_a_random_step_and_a_kernel_may_change_from_call_to_call():
    calls = []

    def kernel(rng, q):
        calls.append(1)
        scale = rng.uniform(0.2, 2.0) if len(calls) % 2 else 6.0
        return metropolis(rng, q, scale=scale)

    report = rc.sampler(kernel, NORMAL, batched=True, chains=32, draws=4000, transitions=1)
    assert report.ok, str(report)
    assert report.row("chains independent").status == "PASS"
    assert "not repeatable" in report.row("distinct answers").basis


@pytest.mark.sweep
def test_a_kernel_that_never_moves_is_inefficient_not_wrong():
    report = rc.sampler(lambda rng, q: q.copy(), "normal-2", batched=True, seconds=1)
    assert failed(report) == ["moves"]
    assert report.severity == "inefficient"
    assert report.row(LAWS[0]).status == "INCONCLUSIVE"


def test_more_functions_see_what_the_usual_ones_do_not():
    """Kernel that preserves every marginal and each pair, but not the product of three signs."""

    def kernel(rng, q):
        x = rng.standard_normal(q.shape)
        wrong = (np.prod(x, axis=-1) < 0) & (rng.random(len(q)) < 0.6)
        x[wrong, 2] *= -1
        return x

    def three(q):
        return np.prod(q, axis=-1)

    blind = rc.sampler(kernel, "normal-3", batched=True, draws=2000, transitions=1)
    seeing = rc.sampler(kernel, "normal-3", batched=True, draws=2000, transitions=1, functions={"three signs": three})
    assert not blind.failures
    assert LAWS[0] in failed(seeing)
    assert "three signs" in seeing.row(LAWS[0]).case


# -------------------------------------------------------------------------------------------------------- call and conduct


def test_with_a_number_of_draws_the_numbers_are_the_same_each_time():
    first, second = (rc.sampler(metropolis, "normal-2", draws=300, seconds=60) for _ in range(2))
    assert first.rows == second.rows
    assert first.settings["pairs"] == 300
    assert json.loads(first.to_json())["ok"] is True


@pytest.mark.sweep
def test_time_limit_is_kept():
    began = time.monotonic()
    report = rc.sampler(metropolis, "normal-2", seconds=0.5)
    assert time.monotonic() - began < 5
    assert not report.failures  # on a machine under load the pairs may be too few for a PASS


def with_flip(draws, q):
    x = q + draws.normal(len(q))
    return x if draws.flip(NORMAL.log_density(x) - NORMAL.log_density(q)) else q


def with_info(rng, q):
    return metropolis(rng, q), {"accepted": True}


def as_dict(rng, q):
    return {"position": metropolis(rng, q)}


@pytest.mark.parametrize("kernel", [with_flip, with_info, as_dict])
def test_a_kernel_may_ask_for_draws_or_answer_with_more_than_the_position(kernel):
    report = rc.sampler(kernel, NORMAL, draws=250)
    assert report.ok, str(report)


def test_a_run_is_judged_by_its_last_draw_and_its_number_of_draws():
    def run(rng, q, n):
        out = []
        for _ in range(n):
            q = metropolis(rng, q)
            out.append(q)
        return out

    report = rc.sampler(run=run, target=NORMAL, draws=250)
    assert report.ok, str(report)
    assert report.row("draw count").status == "PASS"


def test_a_maker_that_raises_is_a_row():
    report = rc.sampler(make=lambda logp, grad: 1 / 0, target="normal-2")
    assert failed(report) == ["conduct of the kernel"]
    assert "ZeroDivisionError" in str(report)


# -------------------------------------------------------------------------------------------------- simulations and ranks


def prior(rng):
    return rng.standard_normal(2)


def simulate(rng, theta):
    return theta[:, None] + rng.standard_normal((2, 5))


def fit(rng, y, *, shift=0.0, scale=1.0, blind=False, rho=0.0, n=60):
    mean, sd = (np.zeros(2), 1.0) if blind else (y.sum(axis=1) / 6, np.sqrt(1 / 6))
    z = rng.standard_normal((n, 2))
    for k in range(1, n if rho else 0):
        z[k] = rho * z[k - 1] + np.sqrt(1 - rho**2) * z[k]
    return mean + sd * (shift + scale * z)


def study(**more):
    return rc.sbc(prior, simulate, lambda rng, y: fit(rng, y, **more), simulations=300, name="fit")


@pytest.mark.parametrize("more", [{}, swept({"rho": -0.5}), swept({"rho": 0.5, "n": 100})])
def test_a_fit_that_draws_from_the_posterior_passes_autocorrelated_or_not(more):
    report = study(**more)
    assert report.ok, str(report)
    assert report.row("ranks").status == "PASS"


def test_too_correlated_draws_give_advice():
    report = study(rho=0.98)
    assert report.row("ranks").status == "INCONCLUSIVE"
    assert not report.failures
    assert "let it return" in report.row("autocorrelation").basis


@pytest.mark.parametrize(
    ("more", "row", "words"),
    [
        ({"shift": 0.6}, "ranks", "too large"),
        swept({"scale": 0.6}, "ranks", "too narrow"),
        swept({"scale": 1.6}, "ranks", "too wide"),
        ({"blind": True}, "ranks that see the data", "ignores"),
    ],
)
def test_fit_of_another_posterior_is_found(more, row, words):
    report = study(**more)
    assert row in failed(report), str(report)
    assert any(words in text for text in report.diagnosis), str(report)


def test_a_quantity_of_the_caller_is_ranked_and_a_fit_that_raises_is_a_row():
    def log_likelihood(theta, y):
        return -0.5 * np.sum((y - theta[:, None]) ** 2)

    def blind(rng, y):
        return rng.standard_normal((40, 2))

    report = rc.sbc(prior, simulate, blind, simulations=120, quantities=log_likelihood)
    assert "ranks that see the data" in failed(report)
    report = rc.sbc(prior, simulate, lambda rng, y: 1 / 0, simulations=50)
    assert failed(report) == ["conduct of the fit"]


def test_too_few_simulations_do_not_pass():
    """Averages and autocorrelation of a posterior twice as wide pass; twenty ranks are too few."""

    def wide(rng, y):
        return y.mean() * 5 / 6 + 0.8 * rng.standard_normal((100, 1))

    def prior(rng):
        return rng.standard_normal(1)

    def simulate(rng, theta):
        return theta + rng.standard_normal(5)

    report = rc.sbc(prior, simulate, wide, simulations=20)
    assert report.status == "INCONCLUSIVE"
    assert [row.status for row in report.rows if row.name.startswith("ranks")] == 2 * ["INCONCLUSIVE"]

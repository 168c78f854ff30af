"""refhmc.check.adaptation: frozen after warm-up, dual averaging, windows, variances."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.adaptation.dual_averaging import DUAL, restart_dual_averaging, update_dual_averaging
from refhmc.adaptation.windows import warmup_schedule
from refhmc.check.adaptations.windows import stan_windows
from refhmc.check.mutants import adaptation as mutants
from refhmc.check.report import INCONCLUSIVE, INEFFICIENT, PASS, WRONG_DISTRIBUTION
from refhmc.core.records import one
from tests.helpers.sweeps import every, swept


def test_continued_adaptation_is_wrong_law_and_missing_average_is_inefficient():
    assert mutants.report(mutants.sampler(stops=False), 1).severity == WRONG_DISTRIBUTION
    assert mutants.report(mutants.sampler(averaged=False), 1).severity == INEFFICIENT


def test_correct_run_passes_all_recorded_rows():
    report = mutants.report(mutants.GOOD, 3)
    for name in (
        "frozen after warm-up",
        "dual averaging",
        "final step is the averaged one",
        "windows",
        "variance estimate",
    ):
        assert report.row(name).status == PASS, report
    assert any("[0, 100, 150, 250]" in note for note in report.notes)


@pytest.mark.parametrize("seed", every(5, range(5)))
def test_a_jittered_step_is_not_adaptation(seed):
    report = mutants.report(mutants.sampler(jitter=True), seed)
    assert not report.failures, report
    assert report.row("frozen after warm-up").status == PASS


def test_a_cycle_of_steps_is_not_adaptation():
    def run(draws, tune, seed):
        step = 0.1 + 0.01 * np.random.default_rng(seed).random()
        return {"step_size": step * np.array([1.0, 0.8, 1.2])[np.arange(draws + tune) % 3]}

    assert rc.adaptation(run).row("frozen after warm-up").status == PASS


def test_other_schemes_fail_only_if_stan_is_claimed():
    def robbins_monro(draws, tune, seed):
        rng, log_step, steps, rates = np.random.default_rng(seed), 0.0, [], []
        for i in range(draws + tune):
            steps.append(math.exp(log_step))
            rates.append(math.exp(-steps[-1]) * rng.uniform(0.5, 1.0))
            log_step += (rates[-1] - 0.5) / (1 + i) ** 0.6 if i < tune else 0.0
        return {"step_size": np.array(steps), "acceptance_rate": np.array(rates)}

    report = rc.adaptation(robbins_monro)
    assert not report.failures
    assert report.row("dual averaging").status == INCONCLUSIVE
    assert rc.adaptation(robbins_monro, claims="dual_averaging").severity == INEFFICIENT


def test_windows_equal_those_of_stan():
    assert stan_windows(1000) == [(75, 100), (100, 150), (150, 250), (250, 450), (450, 950)]
    for tune in range(20, 2000):
        ours = [(a, b) for kind, a, b in warmup_schedule(tune) if kind == "slow"]
        assert stan_windows(tune) == ours


STAN = refhmc.metrics.Diagonal(regularization="stan")


@pytest.mark.parametrize(
    "kernel", [refhmc.NUTS(metric=STAN), refhmc.HMC(n_steps=3, step_jitter=0.2, metric=STAN)], ids=["nuts", "hmc"]
)
def test_warm_up_of_refhmc_as_in_stan_passes(kernel):
    model = refhmc.models.Gaussian(np.zeros(2), np.diag([0.1, 4.0]))
    report = rc.adaptation(kernel, model=model, draws=100, tune=300, claims="dual_averaging")
    assert report.ok, report
    assert report.row("final step is the averaged one").status == PASS


@pytest.mark.parametrize(
    "kernel", [refhmc.NUTS(), swept(refhmc.HMC()), swept(refhmc.NUTS(metric=refhmc.metrics.Dense()))]
)
def test_metric_at_start_of_refhmc_draws_is_judged(kernel):
    model = refhmc.models.Gaussian(np.zeros(2), np.array([[1.0, 0.99], [0.99, 1.0]]))
    report = rc.adaptation(kernel, model=model, draws=100, tune=200)
    assert report.row("frozen after warm-up").status == PASS
    assert "the metric is the same after 10 draws and after 100" in report.notes


def test_metric_not_determined_by_seed_is_inconclusive():
    def run(draws, tune, seed):
        return {"step_size": np.ones(draws), "final_metric": np.random.default_rng().random(2)}

    row = rc.adaptation(run).row("frozen after warm-up")
    assert row.status == INCONCLUSIVE
    assert "the seed does not determine it" in str(row)


def test_run_too_short_to_judge_adaptation_does_not_pass():
    """The step follows the acceptances until the end, so that neither 40 draws nor their number suffices for a PASS."""

    def run(draws, tune, seed):
        rng, q, step, record = np.random.default_rng(seed), 0.0, 1.0, []
        for i in range(tune + draws):
            there = q + step * rng.standard_normal()
            rate = min(1.0, np.exp(0.5 * q * q - 0.5 * there * there))
            q = there if rng.random() < rate else q
            record.append((q, rate, step))
            step *= np.exp((rate - 0.44) / (1 + i) ** 0.6)
        q, rates, steps = np.array(record).T
        return {"q": q[:, None], "acceptance_rate": rates, "step_size": steps}

    report = rc.adaptation(run, draws=40)
    assert report.row("frozen after warm-up").status == "INCONCLUSIVE"
    assert report.row("draw count").status == "PASS"
    assert report.status == "INCONCLUSIVE"
    assert "could not be decided" in report.verdict


def test_missing_metric_is_noted():
    report = rc.adaptation(lambda draws, tune, seed: {"step_size": np.ones(draws)})
    assert "the metric is not recorded: only the step is judged" in report.notes


def test_recursion_and_schedule_of_refhmc_pass():
    def dual_averaging(first, acceptances, target):
        dual, found = one(DUAL)[0], []
        restart_dual_averaging(dual, first)
        for a in acceptances:
            update_dual_averaging(dual, a, target)
            found.append(np.exp([dual.log_step, dual.log_step_bar]))
        return tuple(np.array(found).T)

    report = rc.adaptation(None, dual_averaging=dual_averaging, schedule=warmup_schedule)
    assert report.row("dual averaging function").status == PASS
    assert report.row("windows").status == PASS


def test_records_of_other_forms_are_read():
    def by_name(n_samples, n_warmup, rng):
        return [{"step_size": 0.5, "inv_mass_matrix": np.ones(2)} for _ in range(n_samples + n_warmup)]

    assert rc.adaptation(by_name).row("frozen after warm-up").status == PASS


def test_misbehaving_runs_are_reported_in_rows():
    def raises(draws, tune, seed):
        raise ValueError("no")

    def hangs(draws, tune, seed):
        while True:
            time.sleep(0.01)

    subjects = [
        raises,
        lambda draws, tune, seed: 3,
        lambda draws, tune, seed: {"step_size": np.full(draws + tune, np.nan)},
    ]
    subjects.append(lambda draws, tune, seed: {"step_size": np.ones(7)})
    for run in subjects:
        assert rc.adaptation(run).failures
    assert "did not return within" in rc.adaptation(hangs, seconds_per_call=0.3).failures[0].basis
    with pytest.raises(TypeError):
        rc.adaptation(None)
    with pytest.raises(ValueError, match="claims"):
        rc.adaptation(mutants.GOOD, claims="speed")

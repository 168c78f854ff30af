"""``check.stopping``: refhmc's own rule and correct rules with other estimators pass, others fail in their row."""

from __future__ import annotations

import types

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import stoppings as cases
from refhmc.sampling.chains.engine import numbers_of_draws
from refhmc.sampling.until import in_memory, unmet

MODEL = types.SimpleNamespace(names=["x[0]", "x[1]"], constrain=lambda q: {"x": q})


def as_until(limits, **more):
    mcse = {"x": limits["mcse"]} if "mcse" in limits else None
    return refhmc.Until(ess=limits.get("ess"), rhat=limits.get("rhat"), mcse=mcse, **more)


def own_rule(x, limits):
    return not unmet(as_until(limits), MODEL.names, in_memory(MODEL, x))


def own_run(draw, chains, tune, limits, max_draws):
    """Chains that refhmc's engine stops."""
    x = [[draw(c) for _ in range(tune)][:0] for c in range(chains)]
    until = as_until(limits, max_draws=max_draws)
    spec = types.SimpleNamespace(first_check=100, until=until, model=MODEL, draws=max_draws)
    for n in numbers_of_draws(spec, [], lambda n: in_memory(MODEL, np.array(x)[:, :n])):
        for c in range(chains):
            x[c] += [draw(c) for _ in range(n - len(x[c]))]
    return np.array(x)


def batch_means(x):
    """Return effective sample sizes from means of batches of about sqrt(n) draws."""
    chains, n, d = x.shape
    length = int(np.sqrt(n))
    means = x[:, : n // length * length].reshape(-1, length, d).mean(axis=1)
    return chains * n * x.var(axis=(0, 1), ddof=1) / (length * means.var(axis=0, ddof=1))


def test_until_and_the_engine_pass():
    rc.stopping(own_rule, own_run).assert_ok(strict=True)


@pytest.mark.parametrize("seed", range(3))
def test_other_estimators_pass(seed):
    """The estimates are 5.3 standard deviations from the limits at least, in 400 runs: a false-alarm rate of 1e-7."""
    rc.stopping(cases.rule(ess=batch_means), conditions=["ess"], seed=seed).assert_ok()
    rc.stopping(cases.rule(), conditions=["rhat", "mcse"], seed=seed).assert_ok()


def test_report_states_the_measure_of_the_rule_and_the_cause():
    report = rc.stopping(cases.rule(lambda x: np.full(2, 20_000.0)))
    row = report.row("effective sample size")
    assert row.number == pytest.approx(9, rel=0.02)
    assert "is 2222; the rule's is 2.0" in row.basis
    assert "autocorrelations" in report.diagnosis[0]
    assert "'ess': " in row.case


def test_rows_need_their_conditions_and_a_run():
    report = rc.stopping(cases.rule(), conditions=["mcse"])
    left_out = {row.name for row in report.rows if row.status == "NOT RUN"}
    assert left_out >= {
        "effective sample size",
        "R-hat",
        "chains that disagree",
        "drift",
        "all conditions",
        "end of the run",
    }
    assert report.status == "PASS"


def test_a_run_without_an_end_fails():
    def endless(draw, chains, tune, limits, max_draws):
        while True:
            draw(0)

    row = rc.stopping(cases.rule(), endless).row("end of the run")
    assert row.status == "FAIL"
    assert "more than 12000 draws" in row.basis


@pytest.mark.parametrize("answer", [lambda x, limits: 3, lambda x, limits: x > 0, lambda x: True])
def test_other_answers_are_failed_calls(answer):
    report = rc.stopping(answer)
    assert report.row("answers").status == "FAIL"
    assert report.row("answers").severity == "call failed"


@pytest.mark.parametrize("wrong", [{"conditions": ["R-hat"]}, {"conditions": []}, {"seconds": -1.0}])
def test_invalid_arguments_are_rejected(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        rc.stopping(cases.rule(), **wrong)

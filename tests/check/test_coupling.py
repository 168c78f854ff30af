"""``check.coupling``: correct couplings pass, others fail in their row; refhmc's own coupled chains pass."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import couplings as cases
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.coupled import Pair

STATES = [[[0.0], [1.0]]]


def step(rng, x):
    return 0.5 * x + rng.standard_normal(len(x))


def coupled(rng, x, y):
    z = rng.standard_normal(len(x))
    return 0.5 * x + z, 0.5 * y + z


def test_report_names_the_pair_and_the_cause():
    report = rc.coupling(cases.walk_by_rejection(False), cases.walk, cases.PAIRS_OF_STATES, n=1000)
    assert [row.name for row in report.failures] == ["second margin"]
    assert "is a ratio of the maximal coupling missing" in report.diagnosis[0]
    assert "coupled(" in report.failures[0].case


def test_an_exchange_of_the_chains_fails_in_both_margins():
    report = rc.coupling(lambda rng, x, y: coupled(rng, y, x), step, STATES)
    assert [row.name for row in report.failures] == ["first margin", "second margin"]


def test_chains_with_separate_noise_do_not_stay_together():
    report = rc.coupling(lambda rng, x, y: (step(rng, x), step(rng, y)), step, STATES)
    assert [row.name for row in report.failures] == ["stay together"]


def test_other_answers_are_failed_calls():
    report = rc.coupling(lambda rng, x, y: x, step, STATES)
    assert report.row("answers").status == "FAIL"
    assert report.row("answers").severity == "call failed"


def test_coupled_chains_of_refhmc_pass():
    model = refhmc.models.Gaussian([0.5, -1.0], [[1.0, 0.6], [0.6, 2.0]])
    plan = make_plan(model, refhmc.HMC(step_size=0.9, n_steps=2, step_jitter=0.2), 0)
    plan.blocks[0].compile(model.name)
    pair = Pair(model, plan, None, np.random.default_rng(0))

    def move(rng, x, y, ahead=1):
        pair.rng = rng
        pair.start(x, y, 1, 9, 9)
        pair.times[0] = ahead
        xs, ys = pair.run(np.full(2, 0.8), 0.4, rows=1)
        return xs[0], ys[0]

    def alone(rng, x):
        return move(rng, x, x, ahead=0)[0]

    report = rc.coupling(move, alone, cases.PAIRS_OF_STATES)
    report.assert_ok(strict=True)


@pytest.mark.parametrize(
    "wrong", [{"pairs": [[0.0, 1.0]]}, {"pairs": [[[np.nan], [0.0]]]}, {"n": 50}, {"alpha": 0.0}, {"seconds": -1.0}]
)
def test_invalid_arguments_are_rejected(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        rc.coupling(coupled, step, **{"pairs": STATES, **wrong})

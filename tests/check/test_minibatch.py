"""check.minibatch: unbiased stochastic gradients pass, wrongly scaled ones fail, and so does noise that fits another drift."""

import time

import numpy as np
import pytest

import refhmc.check as rc
from refhmc.check.mutants import minibatches as cases


@pytest.mark.parametrize("pair", cases.PAIRS, ids=lambda pair: pair.id)
def test_the_bug_is_found_and_its_twin_is_not(pair):
    wrong, right = pair.wrong(1), pair.right(1)
    assert {row.name for row in wrong.failures} & set(pair.expected)
    assert wrong.severity == pair.severity
    assert right.ok, str(right)


def test_balanced_batches_hold_every_index_equally_often():
    from refhmc.check.samplers.minibatches import balanced_batches

    batches = list(balanced_batches(11, 4, np.random.default_rng(0)))
    assert np.bincount(np.concatenate(batches)).tolist() == [4] * 11
    assert all(len(set(batch.tolist())) == 4 for batch in batches)


def test_what_is_no_sum_over_the_batch_is_not_failed_but_left_undecided():
    def pairs(q, batch):  # unbiased over all batches, but quadratic in the batch
        data = cases.terms(q, batch)
        n, b = cases.N, len(batch)
        wiggle = np.outer(np.arange(n)[batch] % 2 - 0.5, np.arange(n)[batch] % 3 - 1.0)
        return -cases.PRIOR * q + n / b * data.sum(axis=0) + wiggle.sum() - np.trace(wiggle)

    row = rc.minibatch(pairs, cases.full, cases.N, 6, dim=cases.DIM).row("mean over batches")
    assert row.status == "INCONCLUSIVE"


def test_float32_gradients_are_judged_as_float32():
    good = cases.estimator()
    report = rc.minibatch(lambda q, batch: good(q, batch).astype(np.float32), cases.full, cases.N, 6, dim=cases.DIM)
    assert report.ok
    assert any("bits" in note for note in report.notes)


def test_the_noise_is_read_off_whatever_the_convention():
    notes = " ".join(cases.of_step(cases.HALF)(1).notes) + " ".join(cases.of_step(cases.WHOLE)(1).notes)
    assert "drift 0.5 eps, noise of variance 1 eps" in notes
    assert "drift 1 eps, noise of variance 2 eps" in notes


def hangs(q, batch):
    time.sleep(30)


def mutates(q, batch):
    q += 1
    return cases.full(q)


@pytest.mark.parametrize(
    "bad",
    [
        lambda q, batch: 1 / 0,
        lambda q, batch: q * np.nan,
        lambda q, batch: np.zeros(7),
        lambda q, batch: None,
        hangs,
        mutates,
    ],
    ids=["raises", "nan", "shape", "none", "hangs", "mutates"],
)
def test_misconduct_is_a_row(bad):
    report = rc.minibatch(bad, cases.full, cases.N, 6, dim=cases.DIM, seconds_per_call=0.3)
    assert not report.ok
    assert report.failures


def test_impossible_calls_are_refused():
    with pytest.raises(TypeError):
        rc.minibatch()
    with pytest.raises(TypeError):
        rc.minibatch(cases.estimator())
    with pytest.raises(ValueError):
        rc.minibatch(cases.estimator(), cases.full, 4, 5)

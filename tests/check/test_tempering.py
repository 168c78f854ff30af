"""``check.tempering``: correct swaps and estimates pass, others fail in their row; refhmc's own pass."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import temperings as cases
from refhmc.core.records import records
from refhmc.core.sample_stats import N_STATS, STATS
from refhmc.kernels.tempered import Ladder, log_reference, swap_neighbours
from refhmc.sampling.results.tempering import log_normalizer


def own_swaps(rng, b, V, n):
    """Swaps of refhmc, with the numbers V for the replicas."""
    K = len(b) - 1
    ladder = Ladder(refhmc.Tempered("nuts", rungs=K, learned_rungs=0), 1, 0)
    ladder.replicas[:, -1] = b
    ladder.log_density[:] = V + log_reference(ladder.replicas[0], ladder.replicas[0])  # all positions are 0
    stats = records(np.zeros((K, N_STATS)), STATS)
    for _ in range(n):
        swap_neighbours(ladder.in_loop, (rng, np.zeros(0), np.zeros(1, np.int64)), stats)
        ladder.record.iteration += 1
    return ladder.places


def test_swaps_and_log_z_of_refhmc_pass():
    def log_z(b, V):
        return log_normalizer(b[None], V[None, :, :-1], V[None, :, 1:])

    rc.tempering(own_swaps, log_z, n=5000).assert_ok(strict=True)


def test_report_names_the_cause():
    report = rc.tempering(cases.deterministic(keeps_level=True), n=1000)
    assert [row.name for row in report.failures] == ["stationary"]
    assert "do V move with their replicas" in report.diagnosis[0]
    assert "swaps(" in report.failures[0].case


def test_odd_pairs_may_come_first():
    rc.tempering(cases.deterministic(parity=lambda rng, i: (i + 1) % 2), n=500).assert_ok()


def test_other_acceptance_with_detailed_balance_is_stationary_but_not_the_method():
    """Barker's acceptance keeps the distribution, and rejects half of the swaps between equal V."""

    def barker(db, V, W):
        return -np.logaddexp(0, -db * (V - W))

    report = rc.tempering(cases.deterministic(barker), n=1000)
    assert report.row("stationary").status == "PASS"
    assert report.row("alternates").status == "FAIL"
    assert report.severity == "inefficient"


def test_all_pairs_in_turn_with_present_values_are_stationary():
    report = rc.tempering(cases.whole_sweep(fresh=True), n=1000)
    assert report.row("stationary").status == "PASS"
    assert report.row("alternates").status == "FAIL"


@pytest.mark.parametrize("swaps", [lambda rng, b, V, n: [0, 0, 1, 2], lambda rng, b, V, n: [0, 1], lambda *given: None])
def test_other_answers_are_failed_calls(swaps):
    report = rc.tempering(swaps)
    assert report.row("answers").status == "FAIL"
    assert report.row("answers").severity == "call failed"


def test_estimate_may_be_left_out():
    report = rc.tempering(cases.deterministic(), n=200)
    assert report.row("log Z").status == "NOT RUN"
    assert report.status == "PASS"


@pytest.mark.parametrize("wrong", [{"n": 50}, {"alpha": 0.0}, {"seconds": -1.0}])
def test_invalid_arguments_are_rejected(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        rc.tempering(cases.deterministic(), **wrong)

"""Estimates of the time left for simulated chains with known costs per iteration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from refhmc.sampling.time_left import QUIET, Looks, last_end, seconds_left, seconds_of_warmup

TUNE, TOTAL = 1000, 2000
# Steps of NUTS on 100 normals of condition 1e4, and on stochastic volatility, T = 100: (iteration, steps from there on).
FALLING = [(0, 45), (10, 153), (22, 188), (73, 171), (109, 107), (163, 49), (244, 20), (366, 9), (549, 7)]
LEVEL = [(0, 20), (15, 63), (33, 60), (109, 69), (244, 66), (549, 63), (750, 58), (1000, 53)]


def cost(table, n=TOTAL):
    """Return the seconds (n,) of each iteration, at 1 ms per step."""
    starts, steps = zip(*table, strict=True)
    return 1e-3 * np.repeat(steps, np.diff([*starts, n]))


def played(costs, workers, at, looks=None):
    """Return looks at the times ``at`` of chains with given seconds per iteration, and the end of the last chain.

    ``workers`` chains run at a time, in their order; each waits for the first free worker.
    """
    ends = [np.cumsum(each) for each in costs]
    free, begins = [0.0] * workers, []
    for each in ends:
        begins.append(min(free))
        free[free.index(min(free))] += each[-1]
    looks = Looks(len(costs)) if looks is None else looks
    for t in at:
        done = [int(np.searchsorted(each + begin, t, "right")) for each, begin in zip(ends, begins, strict=True)]
        looks.add(t, done, [7 * n for n in done])
    return looks, max(free)


def test_chains_of_even_pace_end_when_they_do():
    costs = [np.full(TOTAL, c) for c in (0.001, 0.002, 0.004)]
    looks, end = played(costs, 3, np.arange(0.05, 2.0, 0.05))
    assert seconds_left(looks, TUNE, TOTAL, 3) == pytest.approx(end - 1.95, rel=1e-2)
    assert np.allclose(looks.gradients_an_iteration(TUNE), 7)
    looks, _ = played(costs, 3, [9.0], looks)
    assert seconds_left(looks, TUNE, TOTAL, 3) == 0.0


def test_between_two_looks_time_goes_in_proportion():
    rng = np.random.default_rng(1)
    seconds = np.cumsum(rng.uniform(0.1, 1.0, 30))
    iterations = np.cumsum(rng.integers(1, 9, (30, 3)), axis=0)
    gradients = np.cumsum(rng.integers(1, 9, (30, 3)), axis=0)
    looks = Looks(3)
    for t, n, g in zip(seconds, iterations, gradients, strict=True):
        looks.add(t, n, g)
    for i in range(int(iterations[-1].min())):
        when, made = looks.at(np.full(3, i))
        for k in range(3):
            assert when[k] == pytest.approx(np.interp(i, [0, *iterations[:, k]], [0, *seconds]))
            assert made[k] == pytest.approx(np.interp(i, [0, *iterations[:, k]], [0, *gradients[:, k]]))


def test_a_chain_that_stands_still_has_been_there_until_it_moves():
    looks = Looks(1)
    for t, n in enumerate([0, 0, 0, 4, 4, 8], start=1):
        looks.add(float(t), [n], [n])
    assert looks.at(np.array([0]))[0] == 3.0
    assert looks.at(np.array([4]))[0] == 5.0
    assert looks.at(np.array([6]))[0] == 5.5


def said_of(table, seed):
    """Return (share of the time, estimate / time left) for four chains of that cost with random variation."""
    rng = np.random.default_rng(seed)
    costs = [cost(table) * rng.gamma(4.0, 0.25, TOTAL) for _ in range(4)]
    end = max(each.sum() for each in costs)
    at, looks, said = np.linspace(0, end, 101)[1:-1], None, []
    for t in at:
        looks, _ = played(costs, 4, [t], looks)
        left = seconds_left(looks, TUNE, TOTAL, 4)
        said.append((t / end, None if left is None else left / (end - t)))
    return said


@pytest.mark.parametrize("seed", range(3))
def test_there_is_no_estimate_until_the_pace_has_settled(seed):
    """A fifth of the iterations take four fifths of the time; the mean pace would overestimate the rest tenfold."""
    said = said_of(FALLING, seed)
    assert all(each is None for share, each in said if share < 0.7)
    told = [each for _, each in said if each is not None]
    assert len(told) > 10
    assert max(told) < 1.5
    assert min(told) > 2 / 3


@pytest.mark.parametrize("seed", range(3))
def test_an_even_pace_is_known_from_an_eighth_of_the_run_on(seed):
    said = said_of(LEVEL, seed)
    assert all(each is None for share, each in said if share < 0.1)
    told = [each for share, each in said if share >= 0.15]
    assert None not in told
    assert max(told) < 1.5
    assert min(told) > 2 / 3


def test_there_is_no_estimate_in_the_first_iterations():
    costs = [np.full(TOTAL, 0.01)]
    looks, _ = played(costs, 1, [0.01 * (QUIET - 1) + 0.005])
    assert seconds_left(looks, TUNE, TOTAL, 1) is None
    looks, _ = played(costs, 1, [0.01 * QUIET + 0.005], looks)
    assert seconds_left(looks, TUNE, TOTAL, 1) == pytest.approx(0.01 * (TOTAL - QUIET), rel=0.01)
    assert seconds_left(Looks(2), TUNE, TOTAL, 2) is None


def test_of_fifty_draws_on_warm_up_does_not_count():
    costs = [np.repeat([0.1, 0.01], 1000)]
    looks, end = played(costs, 1, np.arange(0.5, 100.4, 0.1))
    assert seconds_left(looks, TUNE, TOTAL, 1) > 3 * (end - 100.4)
    looks, end = played(costs, 1, np.arange(100.4, 103.0, 0.1), looks)
    assert seconds_left(looks, TUNE, TOTAL, 1) == pytest.approx(end - looks.seconds[-1], rel=0.1)
    assert looks.gradients_an_iteration(TUNE) == pytest.approx(7, rel=0.1)


def test_there_is_no_estimate_in_warm_up_if_it_adapts_the_length():
    costs = [np.repeat([0.02, 0.01], 1000)]
    looks, _ = played(costs, 1, np.arange(0.1, 20.4, 0.1))
    assert seconds_left(looks, TUNE, TOTAL, 1, quiet=TUNE + 50) is None
    looks, end = played(costs, 1, np.arange(20.4, 20.8, 0.1), looks)
    assert seconds_left(looks, TUNE, TOTAL, 1, quiet=TUNE + 50) == pytest.approx(end - looks.seconds[-1], rel=0.05)


@pytest.mark.parametrize(("slower", "is_said"), [(1.1, True), (1.5, False), (20.0, False)])
def test_a_chain_that_is_slower_than_those_that_are_known_is_not_taken_for_one_of_them(slower, is_said):
    costs = [np.full(TOTAL, 0.01), np.full(TOTAL, 0.01 * slower)]
    looks, end = played(costs, 2, np.arange(0.1, 10.6, 0.1))
    left = seconds_left(looks, TUNE, TOTAL, 2, quiet=TUNE + 50)
    assert (left is not None) == is_said
    if is_said:
        assert 0.8 < left / (end - looks.seconds[-1]) < 1.1


@pytest.mark.parametrize(
    ("workers", "chains", "now"), [(2, 5, 3.0), (2, 5, 7.0), (1, 3, 4.0), (3, 4, 6.5), (4, 4, 2.0)]
)
def test_chains_that_wait_for_a_worker_take_as_long_as_the_others(workers, chains, now):
    looks, end = played([np.full(TOTAL, 0.002)] * chains, workers, np.arange(0.05, now, 0.05))
    assert seconds_left(looks, TUNE, TOTAL, workers) == pytest.approx(end - looks.seconds[-1], rel=0.05)


def test_the_last_end_of_chains_that_wait_for_a_worker():
    """Simulate the ends of chains one after another."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        workers, n = int(rng.integers(1, 5)), int(rng.integers(0, 6))
        running, waiting = rng.integers(1, 20, int(rng.integers(0, workers + 1))), rng.integers(1, 20, n)
        at_work, queue, clock = list(map(int, running)), list(map(int, waiting)), 0
        for clock in itertools.count():
            at_work = [left for left in at_work if left > clock]
            while queue and len(at_work) < workers:
                at_work.append(clock + queue.pop(0))
            if not at_work:
                break
        assert last_end(running.astype(float), waiting.astype(float), workers) == clock


@pytest.mark.sweep
def test_many_looks_are_thinned_evenly():
    looks, end = played([cost(LEVEL), 1.1 * cost(LEVEL)], 2, np.arange(0.01, 90, 0.01))
    assert len(looks.seconds) <= 257
    assert looks.seconds[0] == 0.0
    assert looks.seconds[-1] == pytest.approx(89.99)
    assert np.diff(looks.seconds).max() < 90 / 60
    assert seconds_left(looks, TUNE, TOTAL, 2) == pytest.approx(end - 89.99, rel=0.1)
    assert Looks(10_000).most == 32


def test_iterations_from_a_checkpoint_took_no_time():
    looks, n, first = Looks(1), 0, 0
    for t in np.arange(0.1, 3.2, 0.1):
        n, first = 600 + int(100 * t), 600 if t > 0.15 else 0  # the counter is read before it is known what was there
        looks.add(t, [n], [40_000 + 7 * (n - 600)], np.array([first]))
    assert looks.made.tolist() == [n - 600]
    assert seconds_left(looks, TUNE, TOTAL, 1) == pytest.approx((TOTAL - n) * 0.01, rel=0.05)
    assert looks.gradients_an_iteration(TUNE) == pytest.approx(7, rel=0.05)


def test_the_time_of_warm_up_is_estimated_at_any_pace():
    costs = [np.full(TOTAL, 0.01), np.full(TOTAL, 0.03), np.full(TOTAL, 0.01)]
    looks, _ = played(costs, 3, [0.5, 1.0, 1.5, 2.005])
    assert seconds_of_warmup(looks, TUNE, 3) == pytest.approx(30.0, rel=0.02)
    assert seconds_left(looks, TUNE, TOTAL, 3) is None
    assert seconds_of_warmup(Looks(3), TUNE, 3) is None
    looks, _ = played(costs[:2], 1, [0.5, 1.0, 2.005])  # the second chain has not begun: as long as the first
    assert seconds_of_warmup(looks, TUNE, 1) == pytest.approx(20.0, rel=0.02)

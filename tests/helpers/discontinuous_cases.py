"""Models with jumps whose law is known, and DHMC's transition integrated over its randomness without sampling error."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import scipy.stats

import refhmc
from refhmc.compile import compiled
from refhmc.core.point import P, Q
from refhmc.integrators import discontinuous as step_text
from refhmc.kernels.dhmc import dhmc
from refhmc.metrics import laplace
from refhmc.sampling.chains.chain import BlockState, make_plan
from tests.helpers.core_records import control_row, stats_row

# ------------------------------------------------------------------------------------------- one smooth, one integer

SWITCH = np.array([[0.1, 0.3, 0.05, 0.35, 0.2], [0.0, 1.0, -1.0, 2.0, 0.5], [1.0, 0.5, 1.0, 0.7, 2.0]])  # w, mean, sd
switch_embedding = refhmc.Embedding(range(5), a="log n")
to_integer, log_width = switch_embedding.to_integer, switch_embedding.log_width


def switch_log_density(q, data):
    n = to_integer(q[1])
    if n < 0 or n >= data.shape[1]:
        return -np.inf
    r = (q[0] - data[1, n]) / data[2, n]
    return np.log(data[0, n]) - 0.5 * r * r - np.log(data[2, n]) - log_width(n)


def switch_gradient(q, data):
    n = min(max(to_integer(q[1]), 0), data.shape[1] - 1)
    return np.array([-(q[0] - data[1, n]) / data[2, n] ** 2, 0.0])


def switch_change(q, data, j, new_value):
    n, before = to_integer(new_value), to_integer(q[1])
    if n < 0 or n >= data.shape[1]:
        return -np.inf
    r, old = (q[0] - data[1, n]) / data[2, n], (q[0] - data[1, before]) / data[2, before]
    change = np.log(data[0, n] / data[0, before]) - np.log(data[2, n] / data[2, before])
    return change - 0.5 * (r * r - old * old) - log_width(n) + log_width(before)


def switch_constrain(q):
    return {"x": q[..., 0], "n": switch_embedding.integers(q[..., 1])}


@functools.cache
def switch(incremental: bool = True):
    """n in 0..4 with probabilities w, x | n normal: a user's model, compiled by Numba."""
    w, mean, sd = SWITCH
    m = w @ mean
    truth = refhmc.Reference(
        source="closed form",
        mean=np.array([m, w @ np.arange(5)]),
        variance=np.array([w @ (sd**2 + mean**2) - m**2, w @ np.arange(5) ** 2 - (w @ np.arange(5)) ** 2]),
        draw=draw_switch,
    )
    return refhmc.Model(
        2,
        switch_log_density,
        switch_gradient,
        data=SWITCH,
        names=["x", "log_n"],
        constrain=switch_constrain,
        discontinuous=["log_n"],
        log_density_change=switch_change if incremental else None,
        initial=[0.0, switch_embedding.embed(1)],
        reference=truth,
        name="switch",
    )


def draw_switch(rng, n_draws: int) -> np.ndarray:
    n = rng.choice(5, size=n_draws, p=SWITCH[0])
    return np.stack([rng.normal(SWITCH[1, n], SWITCH[2, n]), switch_embedding.draw_position(rng, n)], axis=1)


def least_p_of_switch(q: np.ndarray) -> list[float]:
    """Law of the integer, of x given it, and of the place in the cell: three p-values for independent draws (n, 2)."""
    n = switch_embedding.integers(q[:, 1])
    counts = np.bincount(n, minlength=5)
    low, high = switch_embedding.border(n), switch_embedding.border(n + 1)
    return [
        scipy.stats.chisquare(counts, SWITCH[0] * len(q)).pvalue,
        scipy.stats.kstest((q[:, 0] - SWITCH[1, n]) / SWITCH[2, n], "norm").pvalue,
        scipy.stats.kstest((q[:, 1] - low) / (high - low), "uniform").pvalue,
    ]


# ------------------------------------------------------------------------------------------------- two and two

PAIR_WEIGHTS = np.array([[0.1, 0.2, 0.05], [0.15, 0.3, 0.2]])
PAIR_SLOPES = np.array([[1.0, -0.5], [0.3, 0.8]])


def pair_log_density(q, data):
    i, j = math.ceil(q[1]) - 1, math.ceil(q[3]) - 1
    if i < 0 or i > 1 or j < 0 or j > 2:
        return -np.inf
    a, b = q[0] - i - 0.3 * j, q[2] + 0.5 * i - 0.8 * j
    return np.log(data[i, j]) - 0.5 * (a * a + b * b - a * b) / 0.75


def pair_gradient(q, data):
    i, j = math.ceil(q[1]) - 1, math.ceil(q[3]) - 1
    a, b = q[0] - i - 0.3 * j, q[2] + 0.5 * i - 0.8 * j
    return np.array([-(a - 0.5 * b) / 0.75, 0.0, -(b - 0.5 * a) / 0.75, 0.0])


@functools.cache
def pair():
    """Smooth and discontinuous coordinates in turn, no incremental change: normals about means that integers move."""
    return refhmc.Model(4, pair_log_density, pair_gradient, data=PAIR_WEIGHTS, discontinuous=[1, 3], name="pair")


def draw_pair(rng, n_draws: int) -> np.ndarray:
    i, j = np.unravel_index(rng.choice(6, size=n_draws, p=PAIR_WEIGHTS.ravel()), (2, 3))
    z = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=n_draws)
    u, v = 1 - rng.random((2, n_draws))
    return np.stack([z[:, 0] + i + 0.3 * j, i + u, z[:, 1] - 0.5 * i + 0.8 * j, j + v], axis=1)


def least_p_of_pair(q: np.ndarray) -> list[float]:
    i, j = (np.ceil(q[:, k]).astype(int) - 1 for k in (1, 3))
    a, b = q[:, 0] - i - 0.3 * j, q[:, 2] + 0.5 * i - 0.8 * j
    counts = np.bincount(3 * i + j, minlength=6)
    tests = [scipy.stats.chisquare(counts, PAIR_WEIGHTS.ravel() * len(q)).pvalue]
    tests += [scipy.stats.kstest(x, "norm").pvalue for x in (a, b, (b - 0.5 * a) / 0.75**0.5)]
    return tests + [scipy.stats.kstest(q[:, k] - n, "uniform").pvalue for k, n in ((1, i), (3, j))]


# ------------------------------------------------------------------------------ a transition, integrated


class Integrated:
    """The plain text of DHMC's transition on a model without smooth coordinates, one momentum and order at a time.

    ``bug`` makes a wrong :func:`coordinate_step` of the right one.
    """

    def __init__(self, model, step_size: float, n_steps: int, bug=None):
        kernel = refhmc.DHMC(step_size=step_size, n_steps=n_steps, step_jitter=0.0, length_jitter=0.0)
        self.model, self.n_steps, self.block = model, n_steps, BlockState(make_plan(model, kernel, 0).blocks[0])
        tuple_ = self.block.plan.dynamics.model
        self.core = (tuple_[0], compiled.plain(tuple_[1]), *tuple_[2:4], compiled.plain(tuple_[4]))
        plain_change = compiled.plain(step_text.density_change)
        self.moves: list[tuple[int, float, float]] = []

        def recorded(model, z, j, new_value, work):
            change = plain_change(model, z, j, new_value, work)
            self.moves.append((j, abs(z[P, j]), change))
            return change

        move = compiled.plain(step_text.coordinate_step, density_change=recorded)
        move = move if bug is None else bug(move)
        self.step = compiled.plain(step_text.discontinuous, density_change=recorded, coordinate_step=move)
        self.transition = compiled.plain(dhmc)

    def run(self, q, kinetic, signs, uniforms):
        """Where a transition goes, with what probability, and the largest kinetic energies below which, and above which, its
        moves would have gone otherwise, coordinate by coordinate: bounds (d, 2) of a box in which they do not."""
        block, d = self.block, self.model.dim
        self.moves.clear()
        block.start(np.asarray(q, dtype=float))
        block.state[P] = kinetic * signs  # all masses are one
        block.settings.keep_momentum = 1
        stats, tape = stats_row(), np.array([*uniforms, 0.0])  # a uniform of zero accepts what can be
        cursor = np.zeros(1, np.int64)
        dynamics = (2, compiled.plain(laplace.refresh), self.step, None)
        randomness = (None, tape, cursor)
        self.transition(dynamics, self.core, block.workspace, randomness, block.settings[0], stats, control_row())
        assert cursor[0] == len(tape)
        box = np.tile([0.0, np.inf], (d, 1))
        for j, p, change in self.moves:  # the kinetic energy spent so far is the same in the whole box
            threshold = kinetic[j] - p - change
            if p > -change:
                box[j, 0] = max(box[j, 0], threshold)
            else:
                box[j, 1] = min(box[j, 1], threshold)
        return block.state[Q].copy(), stats.acceptance_rate, box

    def from_place(self, q, box_limit: int = 10_000):
        """All ends of transitions from ``q``: yields (end, probability), over signs, orders and kinetic energies."""
        d = self.model.dim
        decks = [np.arange(k + 1) for k in range(d - 1, 0, -1)] * self.n_steps
        for signs in itertools.product((1.0, -1.0), repeat=d):
            for picks in itertools.product(*decks):
                sizes = [len(deck) for deck in decks]
                uniforms = [(pick + 0.5) / size for pick, size in zip(picks, sizes, strict=True)]
                share = 0.5**d / math.prod(sizes)
                boxes, used = [np.tile([0.0, np.inf], (d, 1))], 0
                while boxes:
                    box = boxes.pop()
                    used += 1
                    assert used < box_limit
                    kinetic = box[:, 0] + np.minimum(1.0, 0.5 * (box[:, 1] - box[:, 0]))
                    end, accepted, valid = self.run(q, kinetic, np.array(signs), uniforms)
                    inner = np.stack([np.maximum(box[:, 0], valid[:, 0]), np.minimum(box[:, 1], valid[:, 1])], axis=1)
                    mass = share * np.prod(np.exp(-inner[:, 0]) - np.exp(-inner[:, 1]))
                    yield end, mass * accepted
                    yield q, mass * (1 - accepted)
                    for j in range(d):  # what of the box is left
                        for side in (np.array([box[j, 0], inner[j, 0]]), np.array([inner[j, 1], box[j, 1]])):
                            if math.exp(-side[0]) - math.exp(-side[1]) > 1e-15:
                                rest = box.copy()
                                rest[j] = side
                                boxes.append(rest)
                        box[j] = inner[j]

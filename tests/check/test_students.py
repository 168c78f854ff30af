"""Mistakes of students in their first leapfrog, midpoint rule and NUTS: the diagnosis of the report names each.

The code follows the equations of the book's chapters, and the book shows some of it. One correct version of each passes.
"""

from __future__ import annotations

import numpy as np
import pytest

import refhmc.check as rc
from tests.helpers.sweeps import representatives, swept

STIFFNESS = np.array([[1.0, 0.3], [0.3, 2.0]])
PRECISION = np.array([[1.0, 0.6], [0.6, 2.5]])
EPS = 0.6  # of the trees


def energy(q, p):
    return 0.5 * q @ STIFFNESS @ q + 0.25 * (q @ q) ** 2 + 0.5 * p @ p


def force(q):
    return -STIFFNESS @ q - (q @ q) * q


# ------------------------------------------------------------------------------------------------------------- leapfrogs


def right_leapfrog(q, p, eps):
    p = p + eps / 2 * force(q)
    q = q + eps * p
    return q, p + eps / 2 * force(q)


def full_first_kick(q, p, eps):
    p = p + eps * force(q)
    q = q + eps * p
    return q, p + eps / 2 * force(q)


def half_drift(q, p, eps):
    p = p + eps / 2 * force(q)
    q = q + eps / 2 * p
    return q, p + eps / 2 * force(q)


def no_final_kick(q, p, eps):
    p = p + eps / 2 * force(q)
    return q + eps * p, p


def downhill_is_uphill(q, p, eps):
    p = p - eps / 2 * force(q)
    q = q + eps * p
    return q, p - eps / 2 * force(q)


def gradient_not_renewed(q, p, eps):
    g = force(q)
    p = p + eps / 2 * g
    q = q + eps * p
    return q, p + eps / 2 * g


# -------------------------------------------------------------------------------------------------------- midpoint rules


def field(z):
    return np.concatenate([z[2:], force(z[:2])])


def right_midpoint(q, p, eps):
    z = np.concatenate([q, p])
    new = z
    for _ in range(200):
        old, new = new, z + eps * field((z + new) / 2)
        if np.abs(new - old).max() < 1e-14:
            return new[:2], new[2:]
    return z[:2] * np.nan, z[2:] * np.nan  # not solved, and reported as such


def one_iteration(q, p, eps):
    z = np.concatenate([q, p])
    guess = z + eps * field(z)
    new = z + eps * field((z + guess) / 2)
    return new[:2], new[2:]


def evaluated_at_the_start(q, p, eps):
    new = np.concatenate([q, p]) + eps * field(np.concatenate([q, p]))
    return new[:2], new[2:]


def mean_of_the_ends(q, p, eps):
    z = np.concatenate([q, p])
    new = z
    for _ in range(60):
        new = z + eps * (field(z) + field(new)) / 2
    return new[:2], new[2:]


SAID_OF_STEPS = {
    full_first_kick: "one of the two kicks uses eps",
    half_drift: "the drift uses eps/2",
    no_final_kick: "a half kick is missing",
    downhill_is_uphill: "the sign of the gradient is wrong",
    gradient_not_renewed: "a stage evaluated at the old position",
    one_iteration: "too few iterations of an implicit equation",
    evaluated_at_the_start: "an explicit stage",
    mean_of_the_ends: "the trapezoidal rule",
}


def mark(step):
    return rc.integrator(step, energy, dim=2, eps=0.1, seconds=None)


SEEN = (full_first_kick, gradient_not_renewed)


@pytest.mark.parametrize("step", representatives(SAID_OF_STEPS, SEEN), ids=lambda step: step.__name__)
def test_diagnosis_names_the_mistake_of_a_step(step):
    report = mark(step)
    assert not report.ok
    assert SAID_OF_STEPS[step] in report.diagnosis[0], str(report)


@pytest.mark.parametrize("step", [right_leapfrog, swept(right_midpoint)], ids=lambda step: step.__name__)
def test_correct_step_passes(step):
    report = mark(step)
    assert report.ok, str(report)
    assert not report.diagnosis


# ------------------------------------------------------------------------------------------------------------------ NUTS


def log_density(q):
    return -0.5 * q @ PRECISION @ q


def leap(q, p, eps):
    p = p - eps / 2 * PRECISION @ q
    q = q + eps * p
    return q, p - eps / 2 * PRECISION @ q


def students_nuts(mistake=None):
    """Hoffman and Gelman's Algorithm 3 with candidates chosen while the tree grows, three doublings."""

    def transition(draws, q, p, eps):
        log_slice = log_density(q) - 0.5 * p @ p + np.log1p(-draws.uniform())

        def turns(q_left, p_left, q_right, p_right):
            return (q_right - q_left) @ p_left < 0 or (q_right - q_left) @ p_right < 0

        def build(q, p, direction, level):
            if level == 0:
                q, p = leap(q, p, direction * eps)
                above = log_density(q) - 0.5 * p @ p >= log_slice
                return q, p, q, p, q, 1 if mistake == "no slice" else int(above), True
            q_left, p_left, q_right, p_right, chosen, count, goes_on = build(q, p, direction, level - 1)
            if goes_on:
                if direction < 0:
                    q_left, p_left, _, _, other, more, goes_on = build(q_left, p_left, direction, level - 1)
                else:
                    _, _, q_right, p_right, other, more, goes_on = build(q_right, p_right, direction, level - 1)
                chance = 0.5 if mistake == "evens" else more / max(count + more, 1)
                if more > 0 and draws.uniform() < chance:
                    chosen = other
                count += more
                if mistake != "no check inside":
                    goes_on = goes_on and not turns(q_left, p_left, q_right, p_right)
            return q_left, p_left, q_right, p_right, chosen, count, goes_on

        q_left, p_left, q_right, p_right, chosen, count = q, p, q, p, q, 1
        for level in range(3):
            if draws.uniform() < 0.5:
                end_q, end_p, _, _, other, more, goes_on = build(q_left, p_left, -1, level)
                if mistake != "left edge":
                    q_left, p_left = end_q, end_p
            else:
                _, _, q_right, p_right, other, more, goes_on = build(q_right, p_right, 1, level)
            if (goes_on or mistake == "half kept") and draws.uniform() < more / count:
                chosen = other
            count += more
            if not goes_on or turns(q_left, p_left, q_right, p_right):
                break
        return chosen

    return transition


SAID_OF_TREES = {
    "left edge": "forward and backward extensions differ",
    "no check inside": "a new half that turns inside is used",
    "half kept": "a new half that turns inside is used",
    "no slice": "the choice ignores energies",
    "evens": "with the wrong weight",
}


def mark_tree(transition):
    return rc.orbit(transition, leap, log_density, 3, eps=EPS, dim=2, seconds=None)


@pytest.mark.parametrize("mistake", SAID_OF_TREES)
@pytest.mark.sweep
def test_diagnosis_names_the_mistake_of_nuts(mistake):
    report = mark_tree(students_nuts(mistake))
    assert not report.ok
    assert SAID_OF_TREES[mistake] in report.diagnosis[0], str(report)


@pytest.mark.sweep
def test_correct_nuts_passes():
    report = mark_tree(students_nuts())
    assert report.ok, str(report)
    assert not report.diagnosis

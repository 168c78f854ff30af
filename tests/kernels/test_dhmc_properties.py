"""DHMC's step on random models, masses, places, steps and orders, against an independent implementation of the algorithm.

``plain_step`` uses full densities and NumPy alone, and returns the margin of the closest decision: how far |p_j| / m_j
was from -dL, and whether the log density is the same 1e-9 to either side of each position that it evaluated. A case in which a
decision depends on the last bits is skipped, since only there may rounding change a decision of the reverse step. So is a path
whose leapfrog diverges, on which rounding errors grow without bound.

The path must agree to the rounding of its terms, some units in the last place of the largest number per move. The reversal must
agree to twice that after every further step.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import refhmc
from refhmc.metrics import Diagonal
from tests.helpers.discontinuous_cases import draw_pair, pair, switch
from tests.helpers.random_cases import cases

SEEDS = st.integers(0, 2**32 - 1)
ULP = 2.0**-52
CLOSE = 1e-9


def small_classifier():
    rng = np.random.default_rng(4)
    return refhmc.models.PACBayesClassifier(rng.standard_normal((15, 2)), (rng.random(15) < 0.5).astype(float))


def small_jolly_seber():
    return refhmc.models.JollySeber([9, 12, 7, 5], [9, 11, 7], [5, 6, 2], [0, 4, 5, 4], sigma_B=20.0, U_max=300)


@functools.cache
def model_of(name: str):
    return {
        "grid": refhmc.models.CellGrid,
        "grid-log": lambda: refhmc.models.CellGrid(np.random.default_rng(5).uniform(0.2, 2.0, (3, 4, 2)), a="log n"),
        "classifier": small_classifier,
        "closed": refhmc.models.ClosedPopulation,
        "change-point": lambda: refhmc.models.ChangePoint([3, 5, 2, 4, 6, 1, 0, 1, 2, 0, 0, 1], changes=2),
        "jolly-seber": small_jolly_seber,
        "switch": switch,
        "switch-full": lambda: switch(False),
        "pair": pair,
    }[name]()


NAMES = ("grid", "grid-log", "classifier", "closed", "change-point", "jolly-seber", "switch", "switch-full", "pair")


def start(name: str, rng):
    model = model_of(name)
    if name == "pair":
        return draw_pair(rng, 1)[0]
    if model.reference is not None and model.reference.draw is not None:
        return model.reference.draw(rng, 1)[0]
    return model.initial + 0.05 * rng.standard_normal(model.dim)


def plain_step(model, variances, q, p, eps, order):
    """The step of refhmc/integrators/discontinuous.py's text: (q, p, flips, margin)."""
    q, p, flips, margin = q.copy(), p.copy(), 0, math.inf
    smooth = np.setdiff1d(np.arange(model.dim), model.discontinuous)
    speed = np.sqrt(variances)  # 1/m_j

    def density(x, j=None):
        nonlocal margin
        here = model.log_density(x)
        for side in (-CLOSE, CLOSE) if j is not None else ():
            beside = x.copy()
            beside[j] += side
            near = model.log_density(beside)
            if not (here == near or abs(here - near) < 1e-6 * (1 + abs(here))):
                margin = 0.0
        return here

    p[smooth] += 0.5 * eps * model.gradient(q)[smooth]
    q[smooth] += 0.5 * eps * variances[smooth] * p[smooth]
    for j in order:
        there = q.copy()
        there[j] += eps * math.copysign(speed[j], p[j])
        change = density(there, j) - density(q, j)
        left = abs(p[j]) * speed[j] + change
        margin = min(margin, abs(left) / (1 + abs(change)) if math.isfinite(change) else math.inf)
        if left > 0:
            q, p[j] = there, math.copysign(abs(p[j]) + change / speed[j], p[j])
        else:
            p[j], flips = -p[j], flips + 1
    q[smooth] += 0.5 * eps * variances[smooth] * p[smooth]
    p[smooth] += 0.5 * eps * model.gradient(q)[smooth]
    return q, p, flips, margin


def size_of(H, q, p) -> float:
    """The largest term in play, in energy units or in those of the coordinates."""
    return 1 + abs(H.model.log_density(q)) + abs(H.energy(q, p)) + np.abs(q).max() + np.abs(p).max()


PATHS = {"seed": SEEDS, "eps": st.floats(0.02, 1.2), "n_steps": st.integers(1, 12)}


@pytest.mark.sweep
@cases(100)
@given(name=st.sampled_from(NAMES), **PATHS)
def test_a_path_is_that_of_the_algorithm_and_goes_back(name, seed, eps, n_steps):
    """Back by the momentum reversed, or by the opposite step, each time with the orders reversed and last to first."""
    model, rng = model_of(name), np.random.default_rng(seed)
    variances = rng.uniform(0.2, 2.0, model.dim)
    if name in ("jolly-seber", "closed", "change-point"):
        variances *= 0.02
    H = refhmc.DiscontinuousHamiltonian(model, Diagonal(variances))
    q = q0 = start(name, rng)
    p = p0 = H.draw_momentum(q, rng)
    orders = [rng.permutation(model.discontinuous) for _ in range(n_steps)]
    first, size, flips = H.energy(q, p), size_of(H, q, p), 0
    for order in orders:
        want_q, want_p, turned, margin = plain_step(model, variances, q, p, eps, order)
        assume(margin > CLOSE)
        step = H.step(q, p, eps, order)
        assert (step.tries, step.flips) == (len(model.discontinuous), turned)
        size = max(size, size_of(H, step.q, step.p))
        np.testing.assert_allclose(step.q, want_q, rtol=0, atol=64 * ULP * size)
        np.testing.assert_allclose(step.p, want_p, rtol=0, atol=64 * ULP * size * 20)
        q, p, flips = step.q, step.p, flips + turned
        assume(abs(H.energy(q, p) - first) < 20)
    event("some move turned back" if flips else "none turned back")
    for sign in (-1, 1):
        back_q, back_p = q, sign * p
        for order in reversed(orders):
            assume(plain_step(model, variances, back_q, back_p, sign * -eps, order[::-1])[3] > CLOSE)
            back_q, back_p, *_ = H.step(back_q, back_p, sign * -eps, order[::-1])
        allowed = 64 * ULP * size * 20 * n_steps * len(model.discontinuous) * 2.0**n_steps
        np.testing.assert_allclose(back_q, q0, rtol=0, atol=allowed)
        np.testing.assert_allclose(sign * back_p, p0, rtol=0, atol=allowed)

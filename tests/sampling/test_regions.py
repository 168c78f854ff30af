"""The warning about chains in regions that are far apart: two modes found by different chains, and no false alarm."""

from __future__ import annotations

import re

import numpy as np
import pytest

import refhmc
from refhmc.sampling.results import review

OPTIONS = {"tune": 200, "draws": 200, "random_seed": 3, "progressbar": False, "raw": True}


def two_modes(distance):
    """An equal mixture of two normals with standard deviation 1; the first coordinate of the means is -+ distance / 2."""

    def log_density(q):
        x = q - np.array([0.5 * distance, 0.0])
        y = q + np.array([0.5 * distance, 0.0])
        return np.logaddexp(-0.5 * x @ x, -0.5 * y @ y)

    def gradient(q):
        share = 1 / (1 + np.exp(-distance * q[0]))
        return -(q + np.array([0.5 * distance * (1 - 2 * share), 0.0]))

    return refhmc.Model(2, log_density, gradient, names=["place", "other"])


def text_of(result):
    return [text for text in result.warnings if "far apart" in text]


def test_chains_in_two_modes_are_named_with_the_modes():
    starts = [[-10.0, 0.0], [10.0, 0.0], [10.0, 1.0], [-10.0, 1.0]]
    (text,) = text_of(refhmc.sample(two_modes(20.0), initvals=starts, **OPTIONS))
    found = re.search(
        r"mean of place is (\S+) in chains \[0, 3\], at a mean log density of (\S+), and (\S+) in chains \[1, 2\]", text
    )
    # Of 400 draws each, so that 0.8 is at least ten standard errors even if there are 200 effective draws.
    assert [float(each) for each in found.groups()] == pytest.approx([-10, -1, 10], abs=0.8)


def test_kernels_without_a_log_density_and_blocks_are_reported_too():
    starts = [[-10.0, 0.0], [10.0, 0.0], [10.0, 1.0], [-10.0, 1.0]]
    blocks = refhmc.Gibbs({"place": refhmc.HMC(n_steps=3), "other": refhmc.HMC(n_steps=3)})
    (text,) = text_of(refhmc.sample(two_modes(20.0), blocks, initvals=starts, **OPTIONS))
    assert "in chains [0, 3]" in text
    x = np.random.default_rng(1).normal(size=(4, 100, 2)) + 20 * np.array([0, 1, 1, 0])[:, None, None]
    (text,) = review._apart(["a", "b"], x, None)
    assert "log density" not in text


def test_chains_that_move_between_modes_are_not_reported():
    starts = [[-1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [-1.0, 1.0]]
    assert text_of(refhmc.sample(two_modes(3.0), initvals=starts, **OPTIONS)) == []


def test_the_limit_is_five_standard_deviations_within_a_chain():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 500, 3))
    x = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    lp = np.zeros((4, 500))
    assert review._apart(["a", "b", "c"], x, lp) == []
    for shift, many in ((4.99, 0), (5.01, 1)):
        apart = x + shift * np.array([0, 0, 1.0, 0])[:, None, None] * np.array([0, 1.0, 0])
        assert len(review._apart(["a", "b", "c"], apart, lp)) == many
        assert len(review._apart(["a", "b", "c"], 1e6 * apart - 1e9, lp)) == many  # in any units
    one_wide = x.copy()
    one_wide[:, :, 1] += np.array([0.0, 0.0, 50.0, 0.0])[:, None]
    one_wide[0, :, 1] *= 11  # a chain that sees both regions
    assert review._apart(["a", "b", "c"], one_wide, lp) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_draws_that_are_not_finite_and_chains_that_stand_still_are_left_to_other_warnings(bad):
    x = np.random.default_rng(1).normal(size=(4, 100, 2))
    x[0, 0, 0] = bad
    assert review._apart(["a", "b"], x, np.zeros((4, 100))) == []
    assert review._apart(["a", "b"], np.zeros((4, 100, 2)), np.zeros((4, 100))) == []
    assert review._apart(["a", "b"], x[:1], np.zeros((1, 100))) == []

"""Warnings of runs of many chains: superchains that still differ, and R-hat of all chains."""

from __future__ import annotations

import numpy as np

import refhmc
from refhmc.sampling.chains.initialization import superchains_of
from refhmc.sampling.results import review

OPTIONS = {"draws": 3, "chains": 256, "random_seed": 3, "progressbar": False, "raw": True}
NORMAL = refhmc.models.Gaussian(np.zeros(3), np.eye(3))


def starts():
    return np.repeat(np.random.default_rng(1).normal(scale=3, size=(16, 3)), 16, axis=0)


def about_starts(result):
    return [text for text in result.warnings if "depend on their starts" in text]


def test_chains_that_remember_their_starts_are_reported():
    """A trajectory of length 0.3 keeps cos(0.3) = 0.96 of the start; the starts' variance is nine times that of the normal.

    After five of them, the means of the superchains have the variance 9 x 0.64, and F is far above 100; 5 is significant.
    """
    kernel = refhmc.HMC(step_size=0.1, n_steps=3)
    for backend in ("numba", "arrays"):
        result = refhmc.sample(NORMAL, kernel, tune=0, initvals=starts(), backend=backend, **OPTIONS)
        (text,) = about_starts(result)
        assert "The 16 superchains of 16 chains differ in 3 of 3 coordinates" in text


def test_chains_that_have_forgotten_their_starts_are_not():
    """The false-alarm rate is 1e-6, that of the review. With superchains, few draws are not reported."""
    result = refhmc.sample(NORMAL, "nuts", tune=100, initvals=starts(), backend="arrays", **OPTIONS)
    assert result.warnings == []
    short = refhmc.sample(NORMAL, "nuts", tune=100, backend="arrays", **OPTIONS)
    assert ["Only 3 draws" in text for text in short.warnings] == [True]


def test_superchains_are_equal_groups_of_equal_starts():
    a, b, c = np.eye(3)
    assert superchains_of(np.stack([a, b, a, b])).tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
    for none in ([a, a, a, a], [a, b, c], [a, a, b]):
        assert superchains_of(np.stack(none)) is None
    assert superchains_of(None) is None


def test_rhat_uses_all_chains():
    """Of 1,000 chains, those that are not among the 64 whose ranks are compared have another mean."""
    x = np.random.default_rng(1).normal(size=(1000, 100, 2))
    x[:, :, 1] += 3.0
    x[np.linspace(0, 999, review.MAX_CHAINS).astype(int), :, 1] -= 3.0
    texts = review._mixing(["a", "b"], x, "")
    assert ["R-hat is above 1.01 for 1 of 2 coordinates (worst: b" in text for text in texts] == [True]

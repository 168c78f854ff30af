"""What the tests share: small models, and a sampler without progress."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import refhmc


def normal_log_density(q, data):
    return -0.5 * np.sum(q * q)


def normal_gradient(q, data):
    return -q


@pytest.fixture(scope="session")
def normal():
    """A user's model: a two-dimensional standard normal, compiled by Numba."""
    return refhmc.Model(2, normal_log_density, normal_gradient, names=["a", "b"], name="normal")


@pytest.fixture
def sample():
    """``refhmc.sample`` without progress, giving plain arrays."""
    return functools.partial(refhmc.sample, progressbar=False, raw=True)

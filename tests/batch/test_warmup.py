"""Warm-up of many chains: how the metric is learned stays the same in all windows, and random starts have their own numbers."""

import numpy as np
import pytest

import refhmc
from refhmc.batch.draw import Options, Run
from refhmc.batch.streams import Purpose, Streams, keys_of
from refhmc.metrics import Diagonal
from refhmc.sampling.chains.arrays_engine import starts_of_model
from tests.helpers.batches import numbers_of_numpy

VARIANCES = np.array([1e-4, 1.0, 3e3])


@pytest.mark.parametrize("tune", [60, 400])  # one window, and four
def test_a_metric_from_gradients_is_one_in_every_window(tune):
    """For independent normals sqrt(var q / var dL/dq) is the variance, for any draws; variances of draws would be off by a
    percent.
    """
    model = refhmc.models.Gaussian(np.zeros(3), np.diag(VARIANCES))
    kernel = refhmc.HMC(metric=Diagonal(learn_from="draws and gradients"), n_steps=3)
    starts = np.random.default_rng(1).normal(size=(8, 3)) * VARIANCES**0.5
    run = Run(model.on_arrays(np), kernel, starts, 3, Options(1, tune, True, False, lambda *_: False))
    run.warm_up()
    assert np.abs(run.metric.variances / VARIANCES - 1).max() < 1e-9


def test_a_models_own_starts_share_no_number_with_the_chains():
    """``initial`` draws from the stream of starts; from the kernel's stream, an acceptance would depend on the start."""
    drawn = []

    def initial(rng):
        drawn.append(rng.random(3))
        return drawn[-1]

    model = refhmc.Model(3, lambda q: -0.5 * q @ q, lambda q: -q, initial=initial)
    drawn.clear()
    starts_of_model(model.initial, 11, 2, np)(np.arange(2), 0)
    kernel = Streams(keys_of(11, 2)).uniforms(
        slice(None), np.zeros(2, np.int64), Purpose.KERNEL, np.zeros(2, np.int64), 3
    )
    for k in range(2):
        assert np.array_equal(drawn[k], numbers_of_numpy(11, k, 0, Purpose.START, 3))
        assert not np.isin(drawn[k], kernel).any()

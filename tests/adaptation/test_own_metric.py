"""A user's adapted Euclidean metric, defined in this file, works wherever refhmc's own does, or is rejected by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import refhmc
from refhmc.adaptation.adapted import Adapted, as_dataset, from_dataset
from refhmc.adaptation.from_pairs import HISTORY
from refhmc.metrics import METRICS, Dense, Diagonal, LowRank, Tridiagonal
from refhmc.metrics.base import FROM_DRAWS, NOTHING
from refhmc.metrics.euclidean import Euclidean
from refhmc.sampling.chains.chain import BlockState, make_plan
from refhmc.sampling.storage import saved_state
from tests.helpers.stopping import stop_after

COVARIANCE = np.array([[1.0, 0.4], [0.4, 9.0]])
MODEL = refhmc.models.Gaussian([0.3, -0.5], COVARIANCE)
RUN = {"draws": 60, "tune": 200, "chains": 2, "cores": 1, "random_seed": 9, "progressbar": False}
RAW = {**RUN, "raw": True}
ON_ARRAYS = {name: value for name, value in RAW.items() if name != "cores"} | {"backend": "arrays"}


@dataclass(frozen=True, eq=False)
class Started(Euclidean):
    """A diagonal metric that is adapted from a given start."""

    start: float
    variances: Any = None
    is_dense = False
    learned_values = ("variances",)

    @property
    def learns(self):
        return FROM_DRAWS if self.variances is None else NOTHING

    def inverse_mass(self, dim):
        return np.full(dim, self.start) if self.variances is None else np.array(self.variances, float)


@dataclass(frozen=True, eq=False)
class StartedDense(Started):
    is_dense = True

    def inverse_mass(self, dim):
        if self.variances is None:
            return self.start * np.eye(dim)
        covariance = np.array(self.variances, float)
        return 0.5 * (covariance + covariance.T)  # rounding in warm-up is not symmetric


@dataclass(frozen=True, eq=False)
class Unnamed(Started):
    learned_values = ()


OWN = {Started: Diagonal, StartedDense: Dense}


def started(result):
    return refhmc.sample(MODEL, refhmc.NUTS(metric=result[0]), warmup=result[1], **{**RAW, "tune": 100}).draws


@pytest.mark.parametrize("own", OWN)
def test_it_learns_and_hands_over_what_refhmcs_own_does(own):
    """The draws are those of refhmc's metric with the same start, also from raw results and those of ArviZ."""
    mine, theirs = own(1.0), OWN[own]()
    one, two = (refhmc.sample(MODEL, refhmc.NUTS(metric=each), **RAW) for each in (mine, theirs))
    assert np.array_equal(one.draws, two.draws)
    for a, b in zip(one.adapted, two.adapted, strict=True):
        assert (type(a.metric), a.metric.start, a.metric.learns) == (own, 1.0, NOTHING)
        assert np.array_equal(a.metric.inverse_mass(2), b.metric.inverse_mass(2))
    whole = refhmc.sample(MODEL, refhmc.NUTS(metric=mine), **RUN)
    want = started((theirs, two))
    for result in (one, whole):
        assert np.array_equal(started((mine, result)), want)
        assert np.array_equal(started((own(4.0), result)), want)
        with pytest.raises(ValueError, match="the kernel learns, LowRank"):
            started((LowRank(), result))


def test_a_registered_metric_keeps_its_options_in_a_dataset(monkeypatch):
    monkeypatch.setattr(Started, "name", "started", raising=False)
    monkeypatch.setitem(METRICS, "started", Started)
    learned = [
        Adapted(0.5, Started(4.0, np.array([1.0, variance])), np.zeros((0, len(HISTORY)))) for variance in (2.0, 3.0)
    ]
    for one, two in zip(from_dataset(as_dataset(learned, [0, 1])), learned, strict=True):
        assert (type(one.metric), one.metric.start) == (Started, 4.0)
        assert np.array_equal(one.metric.variances, two.metric.variances)


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("stop", [120, 220])
def test_it_is_resumed_bit_for_bit(own, stop, tmp_path):
    kernel = refhmc.NUTS(metric=own(4.0))
    unbroken = refhmc.sample(MODEL, kernel, **RAW)
    refhmc.sample(MODEL, kernel, **{**RAW, "progressbar": stop_after(stop)}, checkpoint=tmp_path)
    resumed = refhmc.resume(tmp_path, MODEL, kernel, raw=True, progressbar=False)
    assert np.array_equal(resumed.draws, unbroken.draws)
    assert resumed.adapted[0].metric.start == 4.0


@pytest.mark.parametrize("own", OWN)
def test_impossible_values_in_a_checkpoint_are_rejected(own):
    block = BlockState(make_plan(MODEL, refhmc.NUTS(metric=own(1.0)), 100).blocks[0])
    saved_state._check_metric(block)
    block.vecs[0, 0] = -1.0
    with pytest.raises(saved_state._Invalid, match="inverse mass"):
        saved_state._check_metric(block)


@pytest.mark.parametrize("own", OWN)
def test_it_learns_on_arrays(own):
    one, two = (refhmc.sample(MODEL, refhmc.NUTS(metric=each), **ON_ARRAYS) for each in (own(1.0), OWN[own]()))
    assert np.array_equal(one.draws, two.draws)


def test_a_metric_without_names_of_its_values_is_rejected_where_they_are_needed():
    kernel = refhmc.NUTS(metric=Unnamed(1.0))
    for raw in (True, False):
        result = refhmc.sample(MODEL, kernel, **RUN, raw=raw)
        with pytest.raises(ValueError, match=r"values that Unnamed has learned.* attribute learned_values"):
            refhmc.sample(MODEL, kernel, **RUN, warmup=result)
    with pytest.raises(
        ValueError, match=r"got Unnamed, which names nothing.*learned_values|learned_values.*got Unnamed"
    ):
        refhmc.sample(MODEL, kernel, **ON_ARRAYS)


def test_stans_warm_up_needs_an_argument_for_it():
    with pytest.raises(ValueError, match=r"regularization.*got Started"):
        refhmc.sample(MODEL, refhmc.NUTS(metric=Started(1.0)), **RUN, warmup="stan")


def test_kernels_ask_whether_it_is_diagonal():
    one, two = (refhmc.sample(MODEL, refhmc.DHMC(metric=each), **RAW) for each in (Started(1.0), Diagonal()))
    assert np.array_equal(one.draws, two.draws)
    given = Started(1.0, np.array([1.0, 2.0]))
    assert refhmc.SGLD(step_size=0.1, metric=given).metric is given
    for other in (StartedDense(1.0), LowRank(), Tridiagonal([1.0, 1.0], [0.1])):
        with pytest.raises(TypeError, match=f"diagonal.*got {type(other).__name__}"):
            refhmc.DHMC(metric=other)
        with pytest.raises(TypeError, match=f"diagonal.*{type(other).__name__}"):
            refhmc.SGLD(step_size=0.1, metric=other)


@pytest.mark.parametrize("own", OWN)
def test_the_gaussian_split_asks_whether_it_is_constant(own):
    values = [1.0, 2.0] if own is Started else COVARIANCE
    split = refhmc.integrators.GaussianSplit([0.3, -0.5], np.linalg.inv(COVARIANCE))
    runs = [
        refhmc.sample(
            MODEL, refhmc.HMC(n_steps=3, step_size=0.5, integrator=split, metric=metric), **{**RAW, "tune": 0}
        )
        for metric in (own(1.0, values), OWN[own](values))
    ]
    assert np.array_equal(runs[0].draws, runs[1].draws)
    with pytest.raises(refhmc.errors.MetricError, match="adapted for GaussianSplit; got Started"):
        refhmc.sample(MODEL, refhmc.HMC(n_steps=3, integrator=split, metric=own(1.0)), **RAW)

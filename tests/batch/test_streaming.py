"""A split model whose data stay with the host: the same draws, and nothing of the data kept on the device."""

import numpy as np
import pytest

import refhmc
from refhmc.integrators import SymmetricSplit
from refhmc.metrics import Identity
from tests.helpers import fake_device

RNG = np.random.default_rng(8)
MODEL = refhmc.models.LogisticRegression(RNG.normal(size=(60, 3)), RNG.integers(0, 2, 60))
KERNEL = refhmc.HMC(step_size=0.1, n_steps=4, metric=Identity(), integrator=SymmetricSplit())
OPTIONS = {"draws": 6, "tune": 0, "chains": 5, "random_seed": 3, "raw": True, "progressbar": False}


def test_draws_are_the_same_and_data_are_sent_again(monkeypatch):
    split = MODEL.split(4)
    here = refhmc.sample(split, KERNEL, backend="arrays", **OPTIONS)
    fake_device.install(monkeypatch)
    sent = {}
    for streamed in (False, True):
        fake_device.count.clear()
        there = refhmc.sample(split, KERNEL, backend="cupy", streamed=streamed, **OPTIONS)
        sent[streamed] = fake_device.count["to_device"]
        assert np.array_equal(there.draws, here.draws)
    # The array of the rows for each of 2 M - 2 evaluations in 6 x 4 steps, and for the energies.
    assert sent[True] - sent[False] >= 6 * 6 * 4


def test_a_streamed_text_holds_no_array_of_the_device(monkeypatch):
    xp = fake_device.install(monkeypatch)

    def arrays(text) -> int:
        return sum(isinstance(value, fake_device.ndarray) for value in vars(text).values())

    kept, streamed = MODEL.split(4).on_arrays(xp), MODEL.split(4).on_arrays(xp, streamed=True)
    assert sum(arrays(part) for part in kept.parts) > 0
    q = xp.asarray(RNG.normal(size=(2, 3)))
    found, expected = streamed.value_and_gradient(q), kept.value_and_gradient(q)
    assert all(np.array_equal(a.get(), b.get()) for a, b in zip(found, expected, strict=True))
    assert sum(arrays(part) for part in streamed.parts) == 0


def test_a_model_that_is_whole_is_refused():
    with pytest.raises(ValueError, match=r"streamed=True goes with a split model.*split\(M\)"):
        refhmc.sample(MODEL, KERNEL, backend="arrays", streamed=True, **OPTIONS)

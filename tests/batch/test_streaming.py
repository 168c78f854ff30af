"""A split model whose data stay on the host: the same draws, and no data kept on the device.

The data are sent from page-locked memory during the computation. The device without a GPU detects data that are read too early
or overwritten too early.
"""

import numpy as np
import pytest

import refhmc
from refhmc.integrators import RandomizedSplit, SymmetricSplit
from refhmc.metrics import Identity
from tests.helpers import fake_device
from tests.helpers.sweeps import swept

RNG = np.random.default_rng(8)
MODEL = refhmc.models.LogisticRegression(RNG.normal(size=(60, 3)), RNG.integers(0, 2, 60))
KERNEL = refhmc.HMC(step_size=0.1, n_steps=4, metric=Identity(), integrator=SymmetricSplit())
OPTIONS = {"draws": 6, "tune": 0, "chains": 5, "random_seed": 3, "raw": True, "progressbar": False}


@pytest.mark.sweep
def test_draws_are_the_same_and_data_are_sent_again(monkeypatch):
    split = MODEL.split(4)
    here = refhmc.sample(split, KERNEL, backend="arrays", **OPTIONS)
    fake_device.install(monkeypatch)
    sent = {}
    for streamed in (False, True):
        fake_device.count.clear()
        there = refhmc.sample(split, KERNEL, backend=refhmc.CuPy(streamed=streamed), **OPTIONS)
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


def streamed_run(monkeypatch, integrator=None):
    """Draws on NumPy and streamed on the device; what the device counted."""
    kernel = KERNEL if integrator is None else refhmc.HMC(step_size=0.1, n_steps=4, integrator=integrator)
    here = refhmc.sample(MODEL.split(4), kernel, backend="arrays", **OPTIONS)
    fake_device.install(monkeypatch)
    there = refhmc.sample(MODEL.split(4), kernel, backend=refhmc.CuPy(streamed=True), **OPTIONS)
    return here.draws, there.draws, fake_device.count


@pytest.mark.parametrize("integrator", [SymmetricSplit(), swept(RandomizedSplit())])
def test_data_are_sent_from_page_locked_memory_beside_the_computing(integrator, monkeypatch):
    here, there, count = streamed_run(monkeypatch, integrator)
    assert np.array_equal(here, there)
    # A part has one array of data. 2 M - 2 partial gradients a step, or 2 M; the energies once more.
    evaluations = 6 * 4 * (6 if isinstance(integrator, SymmetricSplit) else 8)
    assert count["pinned"] >= evaluations
    if isinstance(integrator, SymmetricSplit):  # the next part is guessed but for where the energies begin and end
        assert count["ahead"] >= 0.9 * evaluations
    assert count["ahead"] <= count["pinned"]


@pytest.mark.parametrize(
    ("stream", "what"), [("computing", "read before it is known"), ("copying", "another stream may still read")]
)
def test_a_wait_that_is_left_out_is_noticed(stream, what, monkeypatch):
    wait = fake_device.Stream.wait_event

    def forgetful(self, event):
        if (self is fake_device.Stream.null) != (stream == "computing"):
            wait(self, event)

    monkeypatch.setattr(fake_device.Stream, "wait_event", forgetful)
    with pytest.raises((RuntimeError, refhmc.errors.SamplingError), match=what):
        streamed_run(monkeypatch)


def test_the_system_has_no_more_page_locked_memory(monkeypatch):
    monkeypatch.setattr(fake_device.PinnedMemory, "most", 100)
    here, there, count = streamed_run(monkeypatch)
    assert np.array_equal(here, there)
    assert count["pinned"] == 0
    assert count["to_device"] > 6 * 4 * 6


def test_streaming_rejects_a_model_without_parts(monkeypatch):
    fake_device.install(monkeypatch)
    with pytest.raises(ValueError, match=r"streamed.*split\(M\)"):
        refhmc.sample(MODEL, KERNEL, backend=refhmc.CuPy(streamed=True), **OPTIONS)

"""The streams of many chains: NumPy's own Philox word for word, in any batch, in any namespace."""

import shutil

import numpy as np
import pytest
import scipy.stats

from refhmc.batch.streams import Purpose, Streams, kernel_on_device, keys_of, normals_of, uniforms
from tests.helpers import fake_device

ENTROPY = 20261123
SOME = np.array([0, 3, 4, 1023])


def of_numpy(chain: int, t: int, purpose: int, n: int) -> np.ndarray:
    key = np.random.SeedSequence(ENTROPY, spawn_key=(chain,)).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, t, purpose, 0])).random(n)


@pytest.mark.parametrize(
    "entropy", [0, 1, 2**32 - 1, 2**32, 2**64 + 3, 2**127 + 12345, 2**128 - 1, 2**130 + 7, 2**200 + 5]
)
def test_keys_are_those_of_numpys_seed_sequence(entropy):
    found = keys_of(entropy, 300)
    for k in (0, 1, 2, 127, 299):
        key = np.random.SeedSequence(entropy, spawn_key=(k,)).generate_state(2, np.uint64)
        assert np.array_equal(found[k].view(np.uint64), key)
    assert len(np.unique(found)) == found.size


@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize("t", [0, 1, 2**33 + 5])
def test_uniforms_are_numpys(purpose, t):
    streams = Streams(keys_of(ENTROPY, 1024))
    found = streams.uniforms(SOME, np.full(4, t), purpose, np.zeros(4, np.int64), 23)
    assert np.array_equal(found, [of_numpy(int(k), t, purpose, 23) for k in SOME])


def test_from_any_number_on_and_in_any_batch():
    streams, first, t = Streams(keys_of(ENTROPY, 1024)), np.array([0, 1, 6, 11]), np.array([7, 0, 2**40, 1])
    found = streams.uniforms(SOME, t, Purpose.KERNEL, first, 9)
    for row in range(4):
        k, begin = int(SOME[row]), int(first[row])
        assert np.array_equal(found[row], of_numpy(k, int(t[row]), 0, begin + 9)[begin:])
        alone = streams.uniforms(SOME[row : row + 1], t[row : row + 1], Purpose.KERNEL, first[row : row + 1], 9)
        assert np.array_equal(alone[0], found[row])


@pytest.mark.parametrize("name", ["numpy", "array_api_strict", "torch", "jax.numpy"])
def test_the_text_on_arrays_makes_the_same_bits(name):
    xp = pytest.importorskip(name)
    if name == "jax.numpy":
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
    keys, t, first = keys_of(ENTROPY, 1024)[SOME], np.array([7, 0, 2**40, 1]), np.array([0, 1, 6, 2**35])
    found = uniforms(*(xp.asarray(x) for x in (keys, t)), Purpose.MOMENTUM, xp.asarray(first), 12)
    expected = Streams(keys).uniforms(slice(None), t, Purpose.MOMENTUM, first, 12)
    assert np.array_equal(np.asarray(found), expected)
    theirs, ours = np.asarray(normals_of(found)), normals_of(expected)
    assert np.all(np.abs(theirs - ours) <= 8 * np.spacing(np.abs(ours)) + 2**-50)  # cos near its zero


def test_the_kernel_of_a_device_makes_the_same_bits():
    """Its code in C is compiled for the CPU, where there is a compiler."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    keys, t, first = keys_of(ENTROPY, 1024)[SOME], np.array([7, 0, 2**40, 1]), np.array([0, 1, 6, 2**35])
    kernel = kernel_on_device(fake_device.ElementwiseKernel)
    number = fake_device.asarray(first[:, None] + np.arange(12))
    columns = (fake_device.asarray(each) for each in (keys[:, :1], keys[:, 1:], t[:, None]))
    found = kernel(*columns, int(Purpose.MOMENTUM), number).get()
    assert np.array_equal(found, Streams(keys).uniforms(slice(None), t, Purpose.MOMENTUM, first, 12))


def test_a_chain_has_the_same_normals_in_any_batch():
    streams, t = Streams(keys_of(ENTROPY, 1024)), np.arange(1024) % 5
    whole = streams.normals(slice(None), t, Purpose.MOMENTUM, 7)
    for row in (0, 1, 511, 1023):
        assert np.array_equal(streams.normals(np.array([row]), t[row : row + 1], Purpose.MOMENTUM, 7)[0], whole[row])


def test_normals_from_any_number_on():
    streams = Streams(keys_of(5, 3))
    t, first = np.array([0, 4, 9]), np.array([0, 3, 6])
    whole, some = (streams.normals(slice(None), t, Purpose.REFRESHMENT, *more) for more in ((12,), (5, first)))
    for row, start in enumerate(first):
        assert np.array_equal(some[row], whole[row, start : start + 5])


def test_the_largest_normal_and_zero():
    assert np.abs(normals_of(np.array([[1 - 2.0**-53, 0.5], [0.0, 0.3]]))).max() < 8.6
    assert np.all(np.isfinite(normals_of(np.zeros((1, 2)))))


def test_normals_and_uniforms_have_their_laws_across_chains_and_transitions():
    """Kolmogorov and Smirnov's test, and neighbours' correlation; seven tests at 1e-7 each."""
    streams, n = Streams(keys_of(ENTROPY, 500)), 500
    z = np.stack([streams.normals(slice(None), np.full(n, t), Purpose.MOMENTUM, 6) for t in range(20)])
    u = np.stack([streams.uniforms(slice(None), np.full(n, t), 0, np.zeros(n, np.int64), 6) for t in range(20)])
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-7
    assert scipy.stats.kstest(u.ravel(), "uniform").pvalue > 1e-7
    for x in (u - 0.5, z):
        for axis in (0, 1) if x is z else (0, 1, 2):
            a, b = (
                np.take(x, range(*ends), axis=axis).ravel() for ends in ((0, x.shape[axis] - 1), (1, x.shape[axis]))
            )
            assert scipy.stats.pearsonr(a, b).pvalue > 1e-7

"""Chunks: a run that is cut anywhere, saved, restored and continued equals the uninterrupted run bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.errors import CheckpointError
from refhmc.kernels.blocks import statistics
from refhmc.sampling.chains.chain import Chain, make_plan
from tests.helpers.kinds_of_chains import KINDS
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import swept

TUNE, DRAWS = 180, 60
KERNELS = {
    "nuts-auto": refhmc.NUTS(),
    "nuts-diagonal": refhmc.NUTS(metric=refhmc.metrics.Diagonal()),
    "nuts-dense-gradients": refhmc.NUTS(metric=refhmc.metrics.Dense(learn_from="draws and gradients")),
    "hmc-low-rank": refhmc.HMC(n_steps=4, metric=refhmc.metrics.LowRank()),
    "nuts-dense": refhmc.NUTS(metric=refhmc.metrics.Dense()),
    "nuts-gradients": refhmc.NUTS(metric=refhmc.metrics.Diagonal(learn_from="draws and gradients")),
    "hmc-jitter": refhmc.HMC(trajectory_length=1.0, step_jitter=0.3, length_jitter=0.5),
    "hmc-learned": refhmc.HMC(),
    "hmc-learned-identity": refhmc.HMC(metric=refhmc.metrics.Identity(), step_jitter=0.1),
}


def new_chain(kernel, seed, model=None, tune=TUNE):
    model = refhmc.models.Funnel(3) if model is None else model
    return Chain(model, make_plan(model, kernel, tune), np.random.default_rng(seed))


def run(chain, n):
    draws, stats = np.zeros((n, chain.model.dim)), np.zeros((n, chain.plan.n_stats))
    assert chain.run(draws, stats) == n
    return draws, stats


@cases(30)
@given(
    kernel=st.sampled_from(sorted(KERNELS)),
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(0, TUNE + DRAWS), max_size=4),
)
def test_a_run_in_chunks_is_the_unbroken_run(kernel, seed, cuts):
    whole = new_chain(KERNELS[kernel], seed)
    whole.start(np.full(4, 0.5))
    expected = run(whole, TUNE + DRAWS)

    chain = new_chain(KERNELS[kernel], seed)
    chain.start(np.full(4, 0.5))
    pieces, at = [], 0
    for cut in [*sorted(cuts), TUNE + DRAWS]:
        pieces.append(run(chain, cut - at))
        saved, at = chain.to_bytes(), cut
        chain = new_chain(KERNELS[kernel], seed + 1).restore(saved)  # another generator, overwritten
    for k in range(2):
        assert np.array_equal(np.concatenate([piece[k] for piece in pieces]), expected[k], equal_nan=True)
    assert chain.to_bytes() == whole.to_bytes()


OF_A_METRIC = ("n_gradient_evaluations", "n_metric_evaluations", "n_contraction_evaluations")


@pytest.mark.parametrize("kind", [swept((kind,)) if kind in ("fisher", "with room") else kind for kind in KINDS])
def test_a_run_of_any_kernel_in_chunks_is_the_unbroken_run(kind):
    """What a metric keeps of its last position never shows in the draws."""
    model, kernel = KINDS[kind]()
    whole = new_chain(kernel, 5, model, 40)
    whole.start(np.linspace(0.5, -0.2, model.dim) if model.initial is None else model.initial)
    chain, pieces = new_chain(kernel, 6, model, 40).restore(whole.to_bytes()), []
    draws, stats = run(whole, 60)
    for n in (7, 1, 22, 15, 15):
        pieces.append(run(chain, n))
        chain = new_chain(kernel, 6, model, 40).restore(chain.to_bytes())
    assert np.array_equal(np.concatenate([piece[0] for piece in pieces]), draws)
    named, again = (statistics(kernel, x) for x in (stats, np.concatenate([piece[1] for piece in pieces])))
    for key, values in named.items():
        # Counts of evaluations may differ by the one that a new chain makes at its first position.
        if key in OF_A_METRIC and "n_metric_evaluations" in named:
            assert np.all(np.abs(values - again[key]) <= 1), key
        else:
            assert np.array_equal(values, again[key], equal_nan=True), key


def test_a_saved_state_of_another_model_is_rejected():
    chain = new_chain(KERNELS["nuts-diagonal"], 1)
    other = refhmc.models.Funnel(5)
    foreign = Chain(other, make_plan(other, KERNELS["nuts-diagonal"], TUNE), np.random.default_rng(1)).to_bytes()
    with pytest.raises(CheckpointError, match=r"state.*\(5, 4\).*\(5, 6\)"):
        chain.restore(foreign)


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"not an archive" + b])
def test_a_damaged_state_is_rejected(damage):
    chain = new_chain(KERNELS["nuts-diagonal"], 1)
    saved = damage(chain.to_bytes())
    with pytest.raises(CheckpointError):
        chain.restore(saved)


def test_a_chain_in_use_takes_on_a_saved_state():
    """Values cached for its own last position must not be used for the saved position."""
    kernel = refhmc.HMC(step_size=0.2, n_steps=5, metric=refhmc.metrics.DiagonalSoftAbs(1e6))
    chains = [new_chain(kernel, seed) for seed in (1, 2)]
    for k, chain in enumerate(chains):
        chain.start(np.array([0.5, -0.3, 0.2, 1.0]) + k)
        run(chain, 6 + k)
    saved = chains[0].to_bytes()
    expected = run(chains[0], 5)
    got = run(chains[1].restore(saved), 5)
    assert np.array_equal(got[0], expected[0])
    assert np.array_equal(got[1][:, :15], expected[1][:, :15])  # the counts of evaluations tell what was known

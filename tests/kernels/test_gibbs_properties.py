"""Gibbs sampling on random partitions, with random kernels: an independent implementation, and what no block may change.

``plain_draw`` is Hamiltonian Monte Carlo of one block after the other in NumPy on the joint gradient, from the generator's own
numbers in the order that refhmc/core/randomness.py states. The draws agree with it to 1e-9 of their size: that of a block needs
the density of the block given the values that the blocks before it have just taken, and no other.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import refhmc
from refhmc import DHMC, HMC, NUTS, Gibbs
from refhmc.kernels.blocks import statistics_of_blocks
from refhmc.metrics import Diagonal, Fisher, SoftAbs
from refhmc.sampling.chains.chain import Chain, make_plan
from refhmc.sampling.chains.task import chain_generator
from tests.helpers.random_cases import cases
from tests.helpers.riemannian_cases import model_of

SEEDS = st.integers(0, 2**32 - 1)
NAMES = ["funnel-3", "gaussian-3", "logistic"]


@functools.cache
def closed():
    return refhmc.models.ClosedPopulation()


def partition(rng, d: int) -> list[list[int]]:
    """Two or three blocks of coordinates in any order."""
    order = rng.permutation(d)
    cuts = np.sort(rng.choice(np.arange(1, d), size=min(d - 1, rng.integers(1, 3)), replace=False))
    return [part.tolist() for part in np.split(order, cuts)]


def gibbs_draws(model, kernel, q, seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    plan = make_plan(model, kernel, 0)
    plan.compile("test")
    chain = Chain(model, plan, chain_generator(seed, 0))
    chain.start(q)
    draws, stats = np.zeros((n, model.dim)), np.zeros((n, plan.n_stats))
    assert chain.run(draws, stats) == n
    return draws, stats


def plain_draw(model, blocks, settings, q, rng):
    """One turn of each block: leapfrog and acceptance; also how near the closest acceptance was to its uniform."""
    q, margin = q.copy(), 1.0
    for block, (eps, n_steps, variances) in zip(blocks, settings, strict=True):
        p = rng.standard_normal(len(block)) / np.sqrt(variances)
        x, r = q.copy(), p.copy()
        for _ in range(n_steps):
            r = r + 0.5 * eps * model.gradient(x)[block]
            x[block] += eps * variances * r
            r = r + 0.5 * eps * model.gradient(x)[block]
        before = 0.5 * np.sum(variances * p * p) - model.log_density(q)
        after = 0.5 * np.sum(variances * r * r) - model.log_density(x)
        u, chance = rng.random(), np.exp(min(before - after, 0.0))
        margin = min(margin, abs(u - chance))
        if u < chance:
            q = x
    return q, margin


@pytest.mark.sweep
@cases(20)
@given(name=st.sampled_from(NAMES), seed=SEEDS)
def test_the_draws_are_those_of_blocks_moved_one_after_the_other(name, seed):
    model, rng = model_of(name), np.random.default_rng(seed)
    blocks = partition(rng, model.dim)
    settings = [(rng.uniform(0.05, 0.5), int(rng.integers(1, 5)), rng.uniform(0.3, 2.0, len(b))) for b in blocks]
    kernel = Gibbs(
        {
            tuple(block): HMC(step_size=eps, n_steps=n, metric=Diagonal(variances))
            for block, (eps, n, variances) in zip(blocks, settings, strict=True)
        }
    )
    q = rng.uniform(-1, 1, model.dim)
    draws, _ = gibbs_draws(model, kernel, q, seed, 4)
    generator = chain_generator(seed, 0)
    for draw in draws:
        q, margin = plain_draw(model, blocks, settings, q, generator)
        assume(margin > 1e-9)
        np.testing.assert_allclose(draw, q, rtol=0, atol=1e-9 * (1 + np.abs(q).max()))


MOVING = {
    "hmc": HMC(step_size=0.2, n_steps=3),
    "nuts": NUTS(step_size=0.2, max_treedepth=3),
    "softabs": HMC(step_size=0.2, n_steps=2, metric=SoftAbs(alpha=1.0)),
    "fisher": NUTS(step_size=0.2, max_treedepth=2, metric=Fisher()),
}


@pytest.mark.sweep
@cases(20)
@given(name=st.sampled_from(NAMES), moving=st.sampled_from(list(MOVING)), seed=SEEDS)
def test_a_block_touches_no_other_coordinate(name, moving, seed):
    """All other blocks take a step so large that it is rejected: their coordinates stay to the last bit.

    And the block that moves goes where its kernel takes it alone, on the conditional at that place.
    """
    model, rng = model_of(name), np.random.default_rng(seed)
    blocks = partition(rng, model.dim)
    stays = HMC(step_size=1e9, n_steps=1)
    kernel = Gibbs({tuple(block): MOVING[moving] if k == 0 else stays for k, block in enumerate(blocks)})
    q = rng.uniform(-1, 1, model.dim)
    draws, stats = gibbs_draws(model, kernel, q, seed, 1)
    accepted = [part["is_accepted"][0] for part in statistics_of_blocks(kernel, stats).values()]
    assert not any(accepted[1:])
    others = np.concatenate(blocks[1:])
    assert np.array_equal(draws[0, others], q[others])
    part = refhmc.conditional(model, blocks[0], q)
    alone = refhmc.transition(part, MOVING[moving], q[blocks[0]], rng=chain_generator(seed, 0))
    assert np.array_equal(draws[0, blocks[0]], alone.q)


@pytest.mark.sweep
@cases(10)
@given(seed=SEEDS)
def test_a_block_that_jumps_beside_a_smooth_one(seed):
    """The integer's block, by DHMC, keeps the smooth coordinate to the last bit, while the smooth block runs on SoftAbs."""
    model, rng = closed(), np.random.default_rng(seed)
    q = model.reference.draw(rng, 1)[0]
    stays = HMC(step_size=1e9, n_steps=1)
    jumps = DHMC(step_size=0.1, n_steps=3)
    draws, _ = gibbs_draws(model, Gibbs({"logit_p": stays, "log_N": jumps}), q, seed, 3)
    assert np.all(draws[:, 0] == q[0])
    smooth = HMC(step_size=0.4, n_steps=3, metric=SoftAbs(1e6))
    draws, stats = gibbs_draws(model, Gibbs({"logit_p": smooth, "log_N": jumps}), q, seed, 5)
    part = refhmc.conditional(model, "logit_p", q)
    alone = refhmc.transition(part, smooth, q[:1], rng=chain_generator(seed, 0))
    assert draws[0, 0] == alone.q[0]
    assert np.isfinite(stats).all()


@pytest.mark.sweep
@cases(30)
@given(name=st.sampled_from(NAMES), seed=SEEDS)
def test_the_energy_of_a_block_is_the_joint_energy(name, seed):
    """Along a path of a block's leapfrog: the differences of its log density are the joint ones, and the path goes back."""
    model, rng = model_of(name), np.random.default_rng(seed)
    block = partition(rng, model.dim)[0]
    q = rng.uniform(-1, 1, model.dim)
    part = refhmc.conditional(model, block, q)
    H, p = refhmc.Hamiltonian(part), rng.standard_normal(len(block))
    leapfrog = refhmc.integrators.Leapfrog()
    path = refhmc.integrate(H, leapfrog, q[block], p, step_size=0.1, n_steps=10)
    full = np.tile(q, (11, 1))
    full[:, block] = path.q
    joint = np.array([model.log_density(x) for x in full])
    energy = 0.5 * np.sum(path.p**2, axis=1) - joint
    scale = 1 + np.abs(joint).max()
    np.testing.assert_allclose(path.energy - path.energy[0], energy - energy[0], rtol=0, atol=1e-12 * scale)
    back = refhmc.integrate(H, leapfrog, path.q[-1], -path.p[-1], step_size=0.1, n_steps=10)
    np.testing.assert_allclose(back.q[-1], q[block], rtol=0, atol=1e-10)
    np.testing.assert_allclose(-back.p[-1], p, rtol=0, atol=1e-10)

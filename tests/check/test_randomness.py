"""refhmc.check.randomness and refhmc.check.batch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import randomness as mutants
from refhmc.check.mutants import transitions
from refhmc.check.report import FAIL, INCONCLUSIVE, NOT_RUN, PASS
from tests.helpers.sweeps import representatives, swept


def test_random_numbers_are_counted():
    report = mutants.look(mutants.RIGHT, 1)
    assert report.ok, report
    assert report.row("kinds and counts").basis == "3 normals, 1 uniform"


def test_the_global_generators_are_put_back():
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    mutants.look(mutants.reseeds(), 1)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_number_without_effect_is_named():
    def kernel(draws, q):
        draws.uniform()
        new = q + draws.normal(2)
        return new if draws.uniform() < np.exp(min(0.0, 0.5 * (q @ q - new @ new))) else q

    report = rc.randomness(kernel, dim=2)
    assert "uniform 1" in report.row("depends on every draw").basis
    assert not report.failures


def test_number_with_two_uses_is_reported():
    def kernel(draws, q):
        u = draws.uniform()
        new = q + (0.5 + u) * draws.normal(2)
        return new if u < np.exp(min(0.0, 0.5 * (q @ q - new @ new))) else q

    assert "uniform 1" in rc.randomness(kernel, dim=2).row("one use of each number").basis


def bent(q):
    """Density without a straight direction, and its gradient."""
    w = q[1] - q[2] ** 2
    return -0.5 * q @ q - 0.1 * q[0] ** 4 - 0.1 * w * w, -q - np.array([0.4 * q[0] ** 3, 0.2 * w, -0.4 * w * q[2]])


def bent_hmc(momentum, uniform):
    def kernel(draws, q):
        p = momentum(draws)
        new_q, new_p = q, p
        for _ in range(3):
            new_p = new_p + 0.2 * bent(new_q)[1]
            new_q = new_q + 0.4 * new_p
            new_p = new_p + 0.2 * bent(new_q)[1]
        drop = bent(new_q)[0] - bent(q)[0] + 0.5 * (p @ p - new_p @ new_p)
        return new_q if uniform(draws, p) < np.exp(min(drop, 0.0)) else q

    return kernel


class OfTheCallBefore:
    """Kernel whose uniform number, or part of the momentum, is that of the last call."""

    def __init__(self, what):
        self.what, self.u, self.z = what, 0.5, np.zeros(3)

    def __call__(self, draws, q):
        z, u = draws.normal(3), draws.uniform()
        p = 0.6 * z + 0.8 * self.z if self.what == "normals" else z
        decides = self.u if self.what == "uniform" else u
        self.z, self.u = z, u
        return bent_hmc(lambda draws: p, lambda draws, p: decides)(draws, q)


def fresh_uniform(draws, p):
    return draws.uniform()


def phi_of_first(draws, p):
    return scipy.special.ndtr(p[0])


def idle_uniform(draws, p):
    draws.uniform()
    return scipy.special.ndtr(p[0])


USED_TWICE = {
    "a normal for two coordinates": bent_hmc(lambda draws: draws.normal(2)[[0, 1, 0]], fresh_uniform),
    "a product of two normals": bent_hmc(
        lambda draws: (z := draws.normal(2))[[0, 1, 0]] * [1.0, 1.0, z[1]], fresh_uniform
    ),
    "a normal that decides": bent_hmc(lambda draws: draws.normal(3), phi_of_first),
    "a normal that decides, a uniform for show": bent_hmc(lambda draws: draws.normal(3), idle_uniform),
    "the last call's uniform": OfTheCallBefore("uniform"),
    "the last call's normals": OfTheCallBefore("normals"),
}


@pytest.mark.parametrize("name", USED_TWICE)
@pytest.mark.parametrize("seed", [1, swept(2), swept(3)])
def test_numbers_used_twice_do_not_pass(name, seed):
    report = rc.randomness(USED_TWICE[name], dim=3, n=20, seed=seed)
    assert report.status == INCONCLUSIVE, report
    assert report.row("one use of each number").status == INCONCLUSIVE


RIGHT = {
    "HMC": (bent_hmc(lambda draws: draws.normal(3), fresh_uniform), 3),
    **{name: (kernel, 2) for name, kernel in transitions.ODD.items()},
    "Gibbs": (transitions.gibbs, 2),
    "independent": (transitions.independent, 2),
    "jitter": (transitions.jittered(False), 2),
    "multinomial": (transitions.multinomial(True), 2),
    "Langevin": (transitions.mala(True), 2),
    "a gradient that is kept": (transitions.CachedGradient(True), 2),
    "a momentum that is kept": (transitions.refreshed(), 2),
}


@pytest.mark.parametrize("name", representatives(RIGHT, ["HMC", "Gibbs", "independent", "multinomial"]))
def test_numbers_that_are_used_once_pass(name):
    kernel, dim = RIGHT[name]
    report = rc.randomness(kernel, dim=dim, n=20, seed=4)
    assert report.ok, report


def test_a_memory_is_not_called_a_global_generator():
    report = rc.randomness(OfTheCallBefore("normals"), dim=3, n=20)
    assert report.row("respects the generator").status == INCONCLUSIVE, report


def test_one_coordinate_at_a_time_does_not_fail():
    def kernel(rng, q):
        new = q.copy()
        new[rng.integers(len(q))] += rng.normal()
        return new if np.log(rng.random()) < 0.5 * (q @ q - new @ new) else q

    assert not rc.randomness(kernel, dim=6).failures


def test_kernels_of_refhmc_pass():
    """Uniforms come from the bit stream in compiled code: only effects of seeds can be observed."""
    model = refhmc.models.Gaussian(np.zeros(2), np.eye(2))
    options = {"step_size": 0.6, "metric": refhmc.metrics.Identity()}
    for kernel in (refhmc.HMC(n_steps=3, **options), refhmc.NUTS(**options)):
        report = rc.randomness(lambda rng, q, k=kernel: refhmc.transition(model, k, q, rng=rng).q, H=model, n=6)
        assert not report.failures, report
        assert report.row("respects the generator").status == PASS
        assert report.row("fresh every call").status == PASS
        assert report.row("kinds and counts").status == NOT_RUN


# -------------------------------------------------------------------------------------------------------------------- batches


def test_batched_step_in_float32_has_float32_tolerances():
    def step(q, p, eps, n):
        q, p = q.astype(np.float32), p.astype(np.float32)
        return tuple(x.astype(np.float32) for x in mutants.leapfrog(q, p, eps, n))

    report = rc.batch(step, dim=3)
    assert report.ok, report
    assert "bits" in report.notes[0]


def test_chains_in_a_loop_that_skip_their_uniform_when_they_diverge_pass():
    """The numbers of later chains shift, which is not a dependence."""

    def kernel(rng, q):
        out = q.copy()
        for k in range(len(q)):
            p = rng.standard_normal(q.shape[1])
            new_q, new_p = mutants.leapfrog(q[k], p, 0.9, 2)
            drop = mutants.logp(new_q) - mutants.logp(q[k]) + 0.5 * p @ p - 0.5 * new_p @ new_p
            if np.isfinite(drop) and np.log(rng.random()) < drop:
                out[k] = new_q
        return out

    report = rc.batch(kernel, dim=3, chains=4)
    assert not report.failures, report
    assert report.row("alone equals batch").status == PASS


def test_equal_decisions_are_found_without_recorded_numbers():
    """The probability of the false alarm is computed from the chains' own frequencies."""

    def kernel(rng, q):
        new = q + rng.standard_normal(q.shape)
        accepted = rng.choice([True, False])
        return new if accepted else q

    report = rc.batch(kernel, dim=2, chains=3)
    assert report.row("decisions independent").status == FAIL


@pytest.mark.sweep
def test_a_common_step_size_is_not_a_shared_decision():
    report = mutants.together(mutants.common_step, 4)
    assert report.row("numbers scale").status == INCONCLUSIVE
    assert not report.failures


def test_shared_noise_is_named():
    """The row names the number, the chains that it moves, and its change."""
    row = mutants.together(mutants.batched(mutants.own_uniforms, mutants.antithetic), 1).row("streams independent")
    assert "one normal (number 1 of its kind) moves the chains [0, 1]" in row.basis
    assert "normal 1: " in row.case


def one_coordinate(rng, shape):
    """The chains share the last momentum."""
    p = rng.standard_normal(shape)
    p[:, -1] = p[0, -1]
    return p


def of_uniforms(rng, shape):
    """Momenta by quantiles; every second chain uses 1 - u."""
    u = rng.random(shape)
    u[1::2] = 1 - u[: 2 * (shape[0] // 2) : 2]
    return scipy.special.ndtri(u)


@pytest.mark.parametrize("momenta", [one_coordinate, swept(of_uniforms)])
def test_noise_that_is_shared_in_part(momenta):
    report = mutants.together(mutants.batched(mutants.own_uniforms, momenta), 1)
    assert report.row("streams independent").status == FAIL, report


def in_common(sizes):
    """Return HMC with a step size, or a length, that is one number for all chains."""

    def kernel(rng, q):
        eps, n = sizes(rng)
        p = rng.standard_normal(q.shape)
        new_q, new_p = mutants.leapfrog(q, p, eps, n)
        drop = mutants.logp(new_q) - mutants.logp(q) + 0.5 * np.sum(p * p - new_p * new_p, axis=-1)
        with np.errstate(invalid="ignore"):
            return np.where((np.log(rng.random(len(q))) < drop)[:, None], new_q, q)

    return kernel


def one_after_another(rng, q):
    """Kernel that runs chain after chain with one transition or three, which changes the count of its numbers."""
    step = mutants.hmc(lambda rng: rng.normal(size=3), lambda rng: rng.random())
    new = []
    for x in q:
        for _ in range(3 if rng.random() < 0.5 else 1):
            x = step(rng, x)
        new.append(x)
    return np.array(new)


@pytest.mark.parametrize(
    ("kernel", "status"),
    [
        (in_common(lambda rng: (0.3 * np.exp(0.1 * rng.normal()), 3)), INCONCLUSIVE),
        swept(in_common(lambda rng: (0.1 * rng.exponential(), 3)), INCONCLUSIVE),
        swept(in_common(lambda rng: (0.3 * rng.uniform(0.8, 1.2), 1 + int(4 * rng.random()))), INCONCLUSIVE),
        swept(in_common(lambda rng: (0.3 * rng.uniform(0.8, 1.2, size=3), 3)), INCONCLUSIVE),
        swept(one_after_another, PASS),
    ],
)
def test_numbers_that_chains_may_share_are_no_failure(kernel, status):
    """All chains share a step or a length, and numbers shift to another chain if one takes fewer."""
    for seed in (1, 2, 3):
        report = mutants.together(kernel, seed)
        assert report.row("streams independent").status == status, report
        assert report.row("decisions independent").status != FAIL, report

"""Coupled chains: each is a chain of the kernel, they meet and stay together, and estimates and bounds are those of the papers.

Each Monte Carlo check fails by chance with a probability below 1e-6 per run of this file.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

import refhmc
from refhmc.sampling.coupled import Mixture, mixture_of, weight

CHANCE = 1e-8  # of one Monte Carlo check
COVARIANCE = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
MEAN = np.array([1.0, 0.0, -2.0])
NORMAL = refhmc.models.Gaussian(MEAN, COVARIANCE)
metrics, integrators = refhmc.metrics, refhmc.integrators
KERNELS = {
    "identity": refhmc.HMC(step_size=0.4, n_steps=4, metric=metrics.Identity()),
    "diagonal, jitter": refhmc.HMC(
        step_size=0.5, n_steps=4, metric=metrics.Diagonal([2.0, 1.0, 0.5]), step_jitter=0.3, length_jitter=0.5
    ),
    "dense, BCSS": refhmc.HMC(
        step_size=0.9, n_steps=2, metric=metrics.Dense(COVARIANCE), integrator=integrators.BCSS(2)
    ),
    "low rank": refhmc.HMC(step_size=0.6, n_steps=3, metric=metrics.LowRank([1.0, 1.0, 0.7], [[0.8, 0.6, 0.0]], [2.0])),
}


def pairs_of(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n pairs of independent exact draws, (2, n, 3)."""
    return MEAN + rng.standard_normal((2, n, 3)) @ np.linalg.cholesky(COVARIANCE).T


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_each_chain_makes_transitions_of_the_kernel(kernel):
    """HMC is bit for bit that of the array backend; the random walk is written out here."""
    rng, n, scale = np.random.default_rng(1), 400, 0.7
    mixture, _ = mixture_of(NORMAL, kernel, scale, 0.5)
    z, normals, uniforms = pairs_of(n, rng), rng.standard_normal((n, 3)), rng.random((n, 4))
    z[1, ::2] = z[0, ::2] + 0.3 * rng.standard_normal((n // 2, 3))
    moved, walks = mixture(z, normals, uniforms), uniforms[:, 0] < 0.5
    used = 1 + (kernel.step_jitter > 0) + bool(kernel.length_jitter)
    for before, after in zip(z, moved, strict=True):
        alone = refhmc.array_api.transitions(
            NORMAL, kernel, before[~walks], normals[~walks], np.ascontiguousarray(uniforms[~walks, 1 : 1 + used])
        )
        np.testing.assert_array_equal(alone.q, after[~walks])
    W = kernel.metric.inverse_mass(3)
    root = np.linalg.cholesky(W if W.ndim == 2 else np.diag(W))
    for k in np.flatnonzero(walks):
        x, y, noise = z[0, k], z[1, k], normals[k]
        apart = np.linalg.solve(root, x - y) / scale
        if uniforms[k, 1] < math.exp(-apart @ noise - apart @ apart / 2):
            other = noise + apart
        else:
            other = (np.eye(3) - 2 * np.outer(apart, apart) / (apart @ apart)) @ noise
        for q, e, after in ((x, noise, moved[0, k]), (y, other, moved[1, k])):
            proposal = q + scale * root @ e
            ratio = math.exp(NORMAL.log_density(proposal) - NORMAL.log_density(q))
            np.testing.assert_allclose(after, proposal if uniforms[k, 2] < ratio else q, rtol=1e-12, atol=1e-12)
    together = (moved[0] == moved[1]).all(axis=1)
    assert 20 < together.sum() < walks.sum()
    assert not together[~walks].any()


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_each_chain_keeps_the_target(kernel):
    """Exact starts remain exact draws, in both chains, along three directions; 24 Kolmogorov-Smirnov tests in this file.

    With 20,000 pairs, a shift of a coordinate by 0.05 standard deviations is found with a probability above 99 %.
    """
    rng, n = np.random.default_rng(2), 20_000
    mixture, _ = mixture_of(NORMAL, kernel, 0.7, 0.5)
    z = pairs_of(n, rng)
    for _ in range(4):
        z = mixture(z, rng.standard_normal((n, 3)), rng.random((n, 4)))
    white = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (z - MEAN).reshape(-1, 3).T).reshape(3, 2, n)
    for chain in range(2):
        for direction in range(3):
            assert scipy.stats.kstest(white[direction, chain], "norm").pvalue > CHANCE


def test_second_proposal_is_normal_and_equal_with_the_largest_probability():
    rng, n, scale = np.random.default_rng(3), 100_000, 0.5
    mixture, _ = mixture_of(NORMAL, KERNELS["dense, BCSS"], scale, 0.5)
    root = np.linalg.cholesky(COVARIANCE)
    for distance in (0.2, 1.0, 3.0):
        direction = np.array([0.6, 0.0, 0.8])
        x = np.array([1.0, 2.0, 3.0])
        y = x - scale * root @ (distance * direction)
        z = np.broadcast_to(np.stack([x, y])[:, None], (2, n, 3))
        proposals = mixture.proposals(z, rng.standard_normal((n, 3)), rng.random(n))
        equal = (proposals[0] == proposals[1]).all(axis=1)
        probability = scipy.special.erfc(distance / math.sqrt(8))
        assert scipy.stats.binomtest(int(equal.sum()), n, probability).pvalue > CHANCE
        for start, proposal in zip((x, y), proposals, strict=True):
            noise = np.linalg.solve(root, (proposal - start).T) / scale
            for along in (*noise, direction @ noise, np.array([0.8, 0.0, -0.6]) @ noise):
                assert scipy.stats.kstest(along, "norm").pvalue > CHANCE


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_chains_that_met_stay_together(kernel):
    rng, n = np.random.default_rng(4), 500
    mixture, _ = mixture_of(NORMAL, kernel, 0.7, 0.3)
    z = np.broadcast_to(pairs_of(n, rng)[:1], (2, n, 3)).copy()
    for _ in range(30):
        before = z
        z = mixture(z, rng.standard_normal((n, 3)), rng.random((n, 4)))
        np.testing.assert_array_equal(z[0], z[1])
        assert (z[0] != before[0]).any()


@pytest.mark.parametrize(("first", "last", "lag"), [(0, 0, 1), (3, 9, 1), (3, 9, 4), (5, 6, 10), (2, 30, 7)])
def test_weights_count_the_differences_of_all_estimators(first, last, lag):
    for t in range(first + lag, 100):
        terms = [(k, j) for k in range(first, last + 1) for j in range(1, 100) if k + j * lag == t]
        assert weight(t, first, last, lag) == pytest.approx(len(terms) / (last - first + 1), abs=1e-15)


@pytest.mark.parametrize(("burn_in", "iterations", "lag"), [(8, 40, 1), (10, 20, 6)])
def test_estimates_from_far_starts_are_unbiased(burn_in, iterations, lag):
    """Ten estimates are within 7 standard errors, for 2,000 pairs, although the draws at burn-in are biased by more than 10.

    If the estimates were normal, a z-score of this test would exceed 7 with a probability of 5e-11. The skewness of their
    mean is below 0.02, which changes this by less than a factor of 10.
    """
    rng, seen = np.random.default_rng(5), []
    A = rng.standard_normal((5, 5))
    covariance, mean = A @ A.T / 5 + 0.3 * np.eye(5), np.arange(5.0)
    made = refhmc.coupled(
        refhmc.models.Gaussian(mean, covariance),
        refhmc.HMC(step_size=0.4, n_steps=1, metric=metrics.Dense(covariance)),
        pairs=2000,
        burn_in=burn_in,
        iterations=iterations,
        lag=lag,
        quantity=lambda q: seen.append(q) or np.concatenate([q, q**2], axis=1),
        walk_share=0.2,
        walk_size=0.05,
        initvals=lambda rng: 6 + rng.standard_normal(5),
        random_seed=5,
    )
    exact = np.concatenate([mean, mean**2 + np.diag(covariance)])
    assert made.unmet == 0
    assert made.estimates.shape == (2000, 10)
    assert np.max(np.abs(made.mean - exact) / made.standard_error) < 7
    assert np.max(np.abs(seen[0].mean(axis=0) - mean) / made.standard_error[:5]) > 10
    np.testing.assert_allclose(made.standard_error, made.estimates.std(axis=0, ddof=1) / math.sqrt(2000), rtol=1e-12)


def test_eight_schools_agree_with_the_reference():
    schools = refhmc.models.EightSchools()
    reference = schools.reference

    def moments(q):
        values = schools.constrain(q)
        return np.concatenate([values["theta"], values["mu"][:, None], values["tau"][:, None]], axis=1)

    made = refhmc.coupled(
        schools,
        refhmc.HMC(step_size=0.4, n_steps=4),
        pairs=1000,
        burn_in=20,
        iterations=100,
        quantity=moments,
        walk_share=0.1,
        random_seed=6,
    )
    error = np.hypot(made.standard_error, reference.mean_se)
    assert made.unmet == 0
    assert np.max(np.abs(made.mean - reference.mean) / error) < 7


class ByTranslation(Mixture):
    """Planted bug: proposals that are not equal have the same normals instead of reflected ones."""

    def proposals(self, z, normals, u):
        right = super().proposals(z, normals, u)
        equal = (right[0] == right[-1]).all(axis=1)[:, None]
        return np.stack([right[0], np.where(equal, right[0], z[-1] + self.walk_size * normals @ self.root.T)])


class OtherRatio(Mixture):
    """Planted bug: the ratio N(z - d) / N(z) in the place of N(z + d) / N(z)."""

    def proposals(self, z, normals, u):
        first, reflected = super().proposals(z, normals, np.full(len(u), 1 - 1e-16))  # (nearly) never equal
        d = np.linalg.solve(self.root, (z[0] - z[1]).T).T / self.walk_size
        equal = np.log(u) < np.sum(d * normals, axis=1) - np.sum(d * d, axis=1) / 2
        return np.stack([first, np.where(equal[:, None], first, reflected)])


class OwnUniforms(Mixture):
    """Planted bug: the second chain has other uniforms in its decisions."""

    def hmc(self, z, normals, uniforms):
        first, second = (
            super(OwnUniforms, self).hmc(z[[k]], normals, u) for k, u in ((0, uniforms), (1, 1 - uniforms))
        )
        return np.concatenate([first, second])


@pytest.mark.parametrize("bug", [None, ByTranslation, OtherRatio, OwnUniforms])
def test_planted_bugs_are_found(bug):
    """The check of the margins finds the first two, and the check that chains stay together the third."""
    rng, n = np.random.default_rng(9), 20_000
    mixture, _ = mixture_of(NORMAL, KERNELS["dense, BCSS"], 0.5, 0.5)
    mixture = mixture if bug is None else bug(*mixture)
    z = np.broadcast_to(np.array([[1.0, 0.2, -2.0], [1.0, 0.7, -2.0]])[:, None], (2, n, 3))
    proposals = mixture.proposals(z, rng.standard_normal((n, 3)), rng.random(n))
    noise = np.linalg.solve(mixture.root, (proposals[1] - z[1]).T) / 0.5
    margins = min(scipy.stats.kstest(along, "norm").pvalue for along in noise) > CHANCE
    z = np.broadcast_to(pairs_of(n, rng)[:1], (2, n, 3))
    moved = mixture(z, rng.standard_normal((n, 3)), rng.random((n, 4)))
    together = bool((moved[0] == moved[1]).all())
    assert (margins, together) == (bug not in (ByTranslation, OtherRatio), bug is not OwnUniforms)


def distances(eps: float, share: float, scale: float, center: float, n: int) -> np.ndarray:
    """Return TV(pi_t, N(0, 1)), t < n, of one leapfrog step or a random walk from N(center, 1), by quadrature on a grid."""
    x = np.linspace(-9, 9, 1801)
    h = x[1] - x[0]
    p = (x - (1 - eps**2 / 2) * x[:, None]) / eps
    end = p - eps / 2 * (x + x[:, None])
    error = (x**2 + end**2 - x[:, None] ** 2 - p**2) / 2
    hmc = scipy.stats.norm.pdf(p) / eps * np.exp(np.minimum(0, -error))
    walk = scipy.stats.norm.pdf(x - x[:, None], scale=scale) * np.exp(np.minimum(0, (x[:, None] ** 2 - x**2) / 2))
    moves = h * ((1 - share) * hmc + share * walk)
    density, target, found = scipy.stats.norm.pdf(x, center), scipy.stats.norm.pdf(x), []
    for _ in range(n):
        found.append(h * np.abs(density - target).sum() / 2)
        density = density @ moves + density * (1 - moves.sum(axis=1))
    np.testing.assert_allclose(target @ moves + target * (1 - moves.sum(axis=1)), target, atol=1e-6)
    return np.array(found)


@pytest.mark.parametrize("lag", [1, 20])
def test_bound_is_above_the_true_distance(lag):
    """The bound, plus 6 standard errors, is above the distance at each iteration; it is not trivial."""
    eps, share, scale, center = 0.6, 0.3, 0.6, 4.0
    made = refhmc.coupled(
        refhmc.models.Gaussian([0.0], [[1.0]]),
        refhmc.HMC(step_size=eps, n_steps=1),
        pairs=2000,
        burn_in=0,
        iterations=lag,
        lag=lag,
        walk_share=share,
        walk_size=scale,
        initvals=lambda rng: center + rng.standard_normal(1),
        random_seed=7,
    )
    T = len(made.total_variation)
    assert made.total_variation[-1] == 0
    for t in range(0, T, 7):
        terms = [sum(tau > t + j * lag for j in range(1, T + 2)) for tau in made.meeting_times]
        assert made.total_variation[t] == pytest.approx(np.mean(terms), abs=1e-12)
    true = distances(eps, share, scale, center, T)
    assert np.all(made.total_variation + 6 * made.total_variation_error + 6 / 2000 >= true)
    if lag > 1:
        assert made.total_variation[0] < 1.5


def test_pairs_that_do_not_meet_give_no_estimate():
    with pytest.warns(refhmc.errors.SamplingWarning, match=r"\d+ of 20 pairs did not meet within 5 iterations"):
        made = refhmc.coupled(
            NORMAL, KERNELS["identity"], pairs=20, burn_in=0, iterations=5, max_iterations=5, random_seed=1
        )
    assert made.unmet == np.sum(made.meeting_times < 0) > 0
    for values in (made.mean, made.standard_error, made.estimates, made.total_variation, made.total_variation_error):
        assert np.isnan(values).all()


def test_result_depends_on_the_seed_only():
    options = {"pairs": 20, "burn_in": 5, "iterations": 10}
    one, two, other = (refhmc.coupled(NORMAL, KERNELS["identity"], random_seed=k, **options) for k in (1, 1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (one.mean != other.mean).all()


def test_gradients_are_counted_once():
    """A trajectory of n steps needs n + 1 gradients."""
    mixture, memory = mixture_of(NORMAL, refhmc.HMC(step_size=0.1, n_steps=7), 0.1, 1e-9)
    rng = np.random.default_rng(8)
    mixture(pairs_of(10, rng), rng.standard_normal((10, 3)), rng.random((10, 4)))
    assert memory.counts["gradient"] == 2 * 10 * 8


def test_starts_have_the_documented_shapes():
    options = {
        "pairs": 3,
        "burn_in": 0,
        "iterations": 0,
        "quantity": lambda q: q[:, 0],
        "random_seed": 1,
        "walk_share": 0.5,
    }
    options["walk_size"] = 1.0
    kernel, q = KERNELS["identity"], np.arange(18.0).reshape(3, 2, 3) / 18
    seen = []
    refhmc.coupled(NORMAL, kernel, **{**options, "quantity": lambda q: seen.append(q.copy()) or q}, initvals=q)
    np.testing.assert_array_equal(seen[0], q[:, 0])
    assert refhmc.coupled(NORMAL, kernel, **options, initvals=[0.0, 1.0, 2.0]).mean.shape == (1,)
    with pytest.raises(refhmc.errors.ShapeError, match=r"\(3,\) or \(3, 2, 3\)"):
        refhmc.coupled(NORMAL, kernel, **options, initvals=q[:2])
    with pytest.raises(refhmc.errors.InitError, match="finite"):
        refhmc.coupled(NORMAL, kernel, **options, initvals=[0.0, np.nan, 0.0])


HMC = KERNELS["identity"]
INVALID = {
    "another kernel": (TypeError, {"kernel": refhmc.NUTS(step_size=0.1)}, "kernel must be refhmc.HMC"),
    "no step size": (ValueError, {"kernel": refhmc.HMC(n_steps=3)}, "step_size of the kernel must be given"),
    "no steps": (ValueError, {"kernel": refhmc.HMC(step_size=0.1)}, "n_steps of the kernel must be given"),
    "Riemannian": (
        ValueError,
        {"kernel": dataclasses.replace(HMC, metric=metrics.SoftAbs())},
        "metric must be constant",
    ),
    "implicit": (
        ValueError,
        {"kernel": dataclasses.replace(HMC, integrator=integrators.ImplicitMidpoint())},
        "integrator must be explicit",
    ),
    "one pair": (ValueError, {"pairs": 1}, "pairs"),
    "burn-in": (ValueError, {"burn_in": -1}, "burn_in"),
    "iterations": (ValueError, {"burn_in": 10, "iterations": 9}, "iterations"),
    "too few": (ValueError, {"iterations": 200, "max_iterations": 199}, "max_iterations"),
    "lag": (ValueError, {"lag": 0}, "lag"),
    "share": (ValueError, {"walk_share": 0.0}, "walk_share must lie between 0 and 1"),
    "size": (ValueError, {"walk_size": 0.0}, "walk_size"),
    "quantity": (refhmc.errors.ShapeError, {"quantity": lambda q: q[0], "burn_in": 0}, "quantity must return"),
}


@pytest.mark.parametrize(("error", "options", "message"), INVALID.values(), ids=INVALID)
def test_invalid_arguments_are_rejected(error, options, message):
    with pytest.raises(error, match=message):
        refhmc.coupled(NORMAL, **{"kernel": HMC, **options})

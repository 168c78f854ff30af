"""R-hat and effective sample size against ArviZ's, column by column, near every limit of their rules."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from refhmc.numerics.convergence import (
    BLOCK,
    ess,
    ess_of_mean,
    mean_ranks,
    nested_rhat,
    rhat,
    rhat_and_ess,
    superchain_variances,
    tail_ess,
)
from tests.helpers.diagnostics_of_arviz import by_arviz
from tests.helpers.sweeps import every

SHAPES = [(m, n) for m in (1, 2, 5) for n in (4, 5, 6, 7, 8, 9, 10, 11, 50, 101)]


def autoregressive(rng, phi, m, n, k=4):
    noise = rng.normal(size=(m, n, k))
    x = noise.copy()
    for t in range(1, n):
        x[:, t] = phi * x[:, t - 1] + np.sqrt(1 - phi**2) * noise[:, t]
    return x


def hard_cases(rng, m, n):
    """Negatively and strongly correlated, with ties, heavy tails, and chains that differ in location and scale."""
    for phi in (-0.9, 0.0, 0.5, 0.999):
        x = autoregressive(rng, phi, m, n)
        apart = np.arange(m)[:, None, None]
        yield from (x, np.round(x, 1), np.round(x), np.exp(5 * x), x + apart, x * (1 + apart))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("m", "n"), every(9, SHAPES))
def test_they_are_arviz_s(m, n):
    for x in hard_cases(np.random.default_rng([m, n]), m, n):
        assert ess(x) == pytest.approx(by_arviz("ess", x), rel=1e-10, nan_ok=True)
        assert ess_of_mean(x) == pytest.approx(by_arviz("ess", x, method="mean"), rel=1e-8, nan_ok=True)
        assert tail_ess(x) == pytest.approx(by_arviz("ess", x, method="tail", prob=(0.05, 0.95)), rel=1e-8, nan_ok=True)
        found, expected = rhat(x), by_arviz("rhat", x)
        of_rounding = (
            expected > 1e12
        )  # chains that stand still at different values: the variance within is 0, or rounding
        assert (found[of_rounding] > 1e12).all()
        assert found[~of_rounding] == pytest.approx(expected[~of_rounding], rel=1e-10, nan_ok=True)


def test_columns_do_not_depend_on_each_other_and_what_is_not_finite_is_not_known():
    x = autoregressive(np.random.default_rng(1), 0.5, 4, 100)
    alone = np.array([[f(x[:, :, j : j + 1])[0] for j in range(4)] for f in (rhat, ess)])
    x[2, 50, 1], x[0, 0, 3] = np.nan, np.inf
    for found, expected in zip((rhat(x), ess(x)), alone, strict=True):
        assert np.array_equal(np.isnan(found), [False, True, False, True])
        assert np.array_equal(found[[0, 2]], expected[[0, 2]])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_never_moves_and_what_is_too_short():
    still = np.full((4, 100, 2), 3.7)
    assert np.array_equal(ess(still), by_arviz("ess", still))
    assert np.isnan(rhat(still)).all()
    assert np.isnan(ess(still[:, :3])).all()
    assert np.isnan(rhat(still[:, :3])).all()
    assert np.isnan(rhat(still[:1] + np.arange(100)[None, :, None])).all()
    assert ess(np.zeros((4, 100, 0))).shape == rhat(np.zeros((4, 100, 0))).shape == (0,)


def test_ties_have_their_mean_rank():
    """As SciPy has them."""
    for x in (
        [[3.0, 1, 3, 2, 3, 1], [2, 2, 2, 2, 2, 2]],
        [[0.0, 0, 0], [0, 1, 2]],
        [[-0.0, 0, 1]],
        [[1.0, 2, 2]],
        [[1.0, 2]],
    ):
        ordered = np.sort(x)
        tied, ranks = mean_ranks(ordered)
        expected = scipy.stats.rankdata(ordered, axis=1)
        assert ranks.tolist() == expected[tied].tolist()
        assert np.array_equal(expected[~tied], (np.zeros(ordered.shape) + np.arange(1, ordered.shape[1] + 1))[~tied])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_columns_in_several_blocks_are_those_by_themselves():
    """More columns than one block has, one of a single value and one that is not finite among them; and a block for each."""
    x = np.random.default_rng(4).normal(size=(4, 50, BLOCK // 200 + 3))
    x[:, :, 7], x[1, 3, -1] = 2.0, np.nan
    both = rhat_and_ess(x)
    for f, found in zip((rhat, ess), both, strict=True):
        assert np.array_equal(found, f(x), equal_nan=True)
        for j in (0, 7, BLOCK // 200 - 1, BLOCK // 200, x.shape[2] - 1):
            assert np.array_equal(found[j : j + 1], f(x[:, :, j : j + 1]), equal_nan=True)
    long = np.random.default_rng(5).normal(size=(2, BLOCK, 2))
    assert np.array_equal(ess(long), [ess(long[:, :, :1])[0], ess(long[:, :, 1:])[0]])


def test_the_caller_s_draws_are_left_alone():
    x = autoregressive(np.random.default_rng(1), 0.5, 4, 100)
    before = x.copy()
    rhat(x), ess(x)
    assert np.array_equal(x, before)


@pytest.mark.parametrize(("K", "M", "n"), [(2, 1, 3), (3, 4, 1), (5, 2, 7)])
def test_nested_rhat_is_that_of_its_definition(K, M, n):
    """Written out for one quantity, with NumPy's sample variances; the chains of a superchain need not be neighbours."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(K, M, n)) + rng.normal(size=(K, 1, 1))
    of_chains = [x[k].mean(axis=1).var(ddof=1) if M > 1 else 0.0 for k in range(K)]
    within = [np.mean([x[k, m].var(ddof=1) for m in range(M)]) if n > 1 else 0.0 for k in range(K)]
    between = np.var([x[k].mean() for k in range(K)], ddof=1)
    expected = np.sqrt(1 + between / np.mean(np.add(of_chains, within)))
    labels = np.repeat(np.arange(K), M)
    order = rng.permutation(K * M)
    for chains, which in ((x.reshape(K * M, n), labels), (x.reshape(K * M, n)[order], labels[order] + 7)):
        both = np.stack([chains, -3 * chains], axis=2)
        assert nested_rhat(both, which) == pytest.approx([expected] * 2, rel=1e-12)


def test_nested_rhat_of_bad_columns_is_nan_and_bad_superchains_are_refused():
    x = np.random.default_rng(1).normal(size=(4, 5, 3))
    x[0, 0, 0], x[:, :, 1] = np.inf, 2.0
    assert np.isnan(nested_rhat(x, [0, 0, 1, 1])).tolist() == [True, True, False]
    for labels in ([0, 0, 0, 0], [0, 1], [0, 0, 0, 1], [[0, 0], [1, 1]]):
        with pytest.raises(ValueError, match="superchains must have one integer per chain"):
            nested_rhat(x, labels)


def test_the_ratio_of_superchains_has_the_f_distribution():
    """Kolmogorov's test of 3,000 runs of independent normal draws; its false-alarm rate is 1e-7."""
    K, M = 5, 4
    rng, labels = np.random.default_rng(2), np.repeat(np.arange(K), M)
    x = rng.normal(size=(K * M, 1, 3000))
    found = superchain_variances(x, labels)
    F = M * found.between / found.of_chains
    assert scipy.stats.kstest(F, scipy.stats.f(K - 1, K * (M - 1)).cdf).pvalue > 1e-7

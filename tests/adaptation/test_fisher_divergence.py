"""The metric of least Fisher divergence: that it is the minimum, that it is exact for normals, and no spurious directions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

from refhmc.adaptation import fisher_divergence
from refhmc.adaptation.fisher_divergence import (
    NOTHING,
    centred,
    directions,
    earlier_than,
    held_out_eigenvalues,
    least_divergence,
    rank,
    root_of_geometric_mean,
    scales,
    span,
    spans_all,
    triangle,
)
from tests.helpers.sweeps import swept


def positive(d: int, rng, condition: float = 1e4) -> np.ndarray:
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return Q * np.logspace(0, np.log10(condition), d) @ Q.T


def geometric_mean(A, B):
    """C with C B C = A, of rows that have these as x'x and s's."""
    T = root_of_geometric_mean(np.linalg.cholesky(A).T, np.linalg.cholesky(B).T)
    return T @ T.T


def matrix(learned) -> np.ndarray:
    """M^-1 of what was learned."""
    s, U = np.sqrt(learned.variances), learned.directions
    return s[:, None] * (np.eye(len(s)) + (U.T * (learned.eigenvalues - 1)) @ U) * s


def condition(learned, covariance) -> float:
    """Return the condition number of the covariance relative to the metric."""
    e = scipy.linalg.eigvalsh(covariance, matrix(learned))
    return float(e[-1] / e[0])


@pytest.mark.parametrize("d", [1, 2, 7])
def test_the_geometric_mean_solves_its_equation(d):
    rng = np.random.default_rng(d)
    A, B = positive(d, rng), positive(d, rng, 1e3)
    C = geometric_mean(A, B)
    np.testing.assert_allclose(C @ B @ C, A, rtol=1e-9, atol=1e-9 * np.abs(A).max())
    root = scipy.linalg.sqrtm(B @ A)  # another way to it
    np.testing.assert_allclose(C, np.linalg.solve(B, root.real), rtol=1e-7, atol=1e-7 * np.abs(C).max())


def test_it_is_where_the_fisher_divergence_is_least():
    """By a numerical minimiser over the Cholesky factor, with draws and scores that belong to no normal."""
    rng = np.random.default_rng(2)
    x = rng.standard_t(4, size=(60, 3)) @ rng.normal(size=(3, 3))
    s = -np.tanh(x) @ np.diag([1.0, 2.0, 0.3]) + 0.1 * rng.normal(size=x.shape)
    A, B = np.cov(x, rowvar=False), np.cov(s, rowvar=False)

    def divergence(entries):
        L = np.zeros((3, 3))
        L[np.tril_indices(3)] = entries
        C = L @ L.T
        return np.trace(C @ B) + np.trace(np.linalg.solve(C, A))

    found = scipy.optimize.minimize(divergence, np.eye(3)[np.tril_indices(3)], method="BFGS", options={"gtol": 1e-9})
    L = np.zeros((3, 3))
    L[np.tril_indices(3)] = found.x
    np.testing.assert_allclose(geometric_mean(A, B), L @ L.T, rtol=1e-5, atol=1e-6)
    for i in range(3):  # and of a diagonal
        one = scipy.optimize.minimize_scalar(lambda c, i=i: c * s[:, i].var() + x[:, i].var() / c, bounds=(1e-3, 1e3))
        assert scales(centred(x), centred(s))[i] == pytest.approx(one.x, rel=1e-4)


@pytest.mark.parametrize(("d", "n"), [(2, 8), (5, 14), (30, 64)])
def test_a_normal_is_learned_without_error_from_any_draws(d, n):
    """From draws of another distribution, too, since the scores suffice. Each half has more draws than dimensions."""
    rng = np.random.default_rng(d)
    covariance = positive(d, rng, 1e6)
    x = rng.uniform(-1, 1, size=(n, d)) * np.logspace(-1, 1, d)
    learned = least_divergence(x, -np.linalg.solve(covariance, x.T).T + 3, np.ones(d), None, True)
    assert condition(learned, covariance) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("d", [10, 100, 300])
def test_few_draws_find_what_sticks_out(d):
    """Three directions of variances 10^4, 100 and 10^-4 among independent coordinates; 40 draws."""
    rng = np.random.default_rng(d)
    e = np.ones(d)
    e[:3] = 1e4, 100, 1e-4
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    covariance, precision = Q * e @ Q.T, Q / e @ Q.T
    x = rng.normal(size=(40, d)) * np.sqrt(e) @ Q.T
    learned = least_divergence(x, -x @ precision, np.ones(d), d, True)
    bare = least_divergence(x, -x @ precision, np.ones(d), d, False)
    assert len(bare.eigenvalues) == 0
    assert condition(learned, covariance) < 0.01 * condition(bare, covariance)
    assert learned.steps_diagonal > 10 * learned.steps


@pytest.mark.parametrize(
    ("d", "n", "m"), [(5, 16, 0), (50, 50, 0), (50, 50, 50), swept(50, 100, 0), swept(200, 200, 0)]
)
def test_chance_makes_no_directions(d, n, m):
    """Independent Student-t coordinates, 20 samples of n draws and m earlier ones each.

    6 % of an eigenvalue's chance values lie beyond its cutoff of three standard errors where x and s are independent; here
    they are not, and fewer do. Fitted to all draws at once, n = d gives many times more: this is what the halves are for.
    """
    held_out = fitted = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        every = rng.standard_t(5, size=(m + n, d))
        scores = -6 * every / (5 + every**2)
        x, s = every[m:], scores[m:]
        learned = least_divergence(x, s, np.ones(d), d, True, earlier=(every[:m], scores[:m]))
        held_out += len(learned.eigenvalues)
        r = np.sqrt(learned.variances)
        z, g = (x - x.mean(0)) / r, (s - s.mean(0)) * r
        fitted += int(np.sum(np.abs(np.log(held_out_eigenvalues(directions(z, g), z, g))) > np.log(2)))
    assert held_out <= 20 * max(1.0, 0.01 * d)
    if n == d:
        assert fitted > 5 * held_out


@pytest.mark.parametrize("d", [60, swept(200)])
def test_earlier_draws_complete_the_directions_of_a_normal(d):
    """The window has too few draws for that. The earlier ones, of a transient, are far away and along another line."""
    rng = np.random.default_rng(d)
    covariance = positive(d, rng, 1e6)
    L, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)
    x = rng.normal(size=(d, d)) @ L.T
    before = (rng.normal(size=(d, d)) + np.linspace(30, 0, d)[:, None]) @ L.T
    options = x, -x @ precision, np.ones(d), d, True
    alone, learned = least_divergence(*options), least_divergence(*options, earlier=(before, -before @ precision))
    assert condition(alone, covariance) > 10
    assert condition(learned, covariance) < 4  # eigenvalues that may be 1 have no direction


def test_earlier_draws_that_are_too_far_away_are_left_out():
    rng = np.random.default_rng(2)
    d, n = 8, 12
    precision = np.linalg.inv(positive(d, rng, 100.0))
    x = rng.normal(size=(n, d))
    before = rng.normal(size=(30, d))
    s, scores = -x @ precision, -before @ precision
    options = x, s, np.ones(d), d, True
    learned = least_divergence(*options, earlier=(before, scores))
    farther, steeper = before[:4].copy(), scores[:4].copy()
    farther[:, 0], farther[1, 2], farther[2], steeper[3] = 1e6, np.nan, 1e300, -np.inf
    for mixed in (
        (np.concatenate([farther, before]), np.concatenate([scores[:4], scores])),
        (np.concatenate([before[:4], before]), np.concatenate([1e6 * scores[:4], scores])),
        (np.concatenate([farther, before]), np.concatenate([steeper, scores])),
    ):
        found = least_divergence(*options, earlier=mixed)
        np.testing.assert_array_equal(matrix(found), matrix(learned))
    alone = least_divergence(*options, earlier=(farther, steeper))
    np.testing.assert_array_equal(matrix(alone), matrix(least_divergence(*options)))


@pytest.mark.parametrize(
    ("start", "stop", "d"), [(5, 10, 2), (5, 10, 100), (475, 950, 10), (475, 950, 200), (975, 1950, 1000)]
)
def test_how_many_earlier_draws_a_window_has(start, stop, d):
    first = earlier_than(start, stop, d)
    for_directions = len(range(first, start)) + len(range(start, stop)[::2])
    assert 0 <= first <= start
    assert first in (0, start) or for_directions == 1.5 * d
    assert for_directions >= 1.5 * d or first == 0


def test_the_rank_is_the_cheapest():
    """Against all subsets of the directions, each with the steps that its own left-over spread makes."""
    rng = np.random.default_rng(4)
    for gradient, _ in itertools.product((5.0, 20.0, 500.0), range(30)):
        eigenvalues, cutoff = np.exp(rng.normal(size=6) * 2), 0.5
        logs = np.log(eigenvalues)
        logs[np.abs(logs) < cutoff] = 0.0
        costs = {}
        for n in range(7):
            for chosen in itertools.combinations(range(6), n):
                left = [0.0, *(logs[i] for i in range(6) if i not in chosen)]
                costs[chosen] = np.exp((max(left) - min(left)) / 2) * (gradient + 4 * n)
        k, steps = rank(eigenvalues, cutoff, gradient)
        order = np.argsort(-np.abs(np.log(eigenvalues)))[:k]
        assert costs[tuple(sorted(order))] == pytest.approx(steps[k] * (gradient + 4 * k), rel=1e-12)
        of_this_order = [costs[tuple(sorted(np.argsort(-np.abs(np.log(eigenvalues)))[:n]))] for n in range(7)]
        assert steps[k] * (gradient + 4 * k) == pytest.approx(min(of_this_order), rel=1e-12)


def test_what_has_not_moved_keeps_what_it_had():
    rng = np.random.default_rng(1)
    x, before = rng.normal(size=(30, 4)), np.array([1.0, 7.0, 3.0, 5.0])
    s = -x.copy()
    x[:, 1], s[:, 2], s[:, 3] = 2.0, 0.0, np.nan
    learned = least_divergence(x, s, before, 4, True)
    assert learned.variances[0] == pytest.approx(1.0)
    assert learned.variances[1:].tolist() == [7.0, 3.0, 5.0]
    assert len(learned.eigenvalues) == 0  # a NaN among the scores: no directions from these


@pytest.mark.parametrize("wrong", ["stuck", "flat", "two values", "large"])
def test_draws_that_tell_little_leave_a_metric(wrong):
    """Positive, finite and orthonormal whatever the draws were."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6))
    s = -x @ rng.normal(size=(6, 6))
    if wrong == "stuck":
        x[:], s[:] = x[0], s[0]
    elif wrong == "flat":
        s[:, 3] = 0.0
    elif wrong == "two values":
        x[:], s[:] = np.where(np.arange(40)[:, None] % 3, x[0], x[1]), np.where(np.arange(40)[:, None] % 3, s[0], s[1])
    else:
        x, s = 1e150 * x, 1e-140 * s
    for most in (6, None):
        learned = least_divergence(x, s, np.ones(6), most, True)
        assert np.all(np.isfinite(matrix(learned)))
        assert np.linalg.eigvalsh(matrix(learned) / np.sqrt(np.outer(*[np.diag(matrix(learned))] * 2)))[0] > 0
        np.testing.assert_allclose(
            learned.directions @ learned.directions.T, np.eye(len(learned.directions)), atol=1e-8
        )


def test_independent_coordinates_of_a_normal_are_not_searched(monkeypatch):
    """For s = -x / scale^2 the diagonal is the solution; a score that differs by 1e-6 of its size starts the search."""
    rng, size, calls = np.random.default_rng(5), np.geomspace(1e-6, 1e6, 30), []
    monkeypatch.setattr(fisher_divergence, "directions", lambda *halves: calls.append(halves) or directions(*halves))
    x = 3 * size + size * rng.normal(size=(80, 30))
    s = (3 * size - x) / size**2
    found = least_divergence(x, s, np.ones(30), None, True)
    np.testing.assert_allclose(found.variances, size**2, rtol=1e-9)
    assert not calls
    assert len(found.eigenvalues) == 0
    s[7, 3] *= 1 + 1e-6
    least_divergence(x, s, np.ones(30), None, True)
    assert len(calls) == 1


def test_directions_are_orthonormal_also_where_draws_repeat():
    rng = np.random.default_rng(3)
    x = np.repeat(rng.normal(size=(6, 40)), 3, axis=0)
    U = directions(x, -2 * x)
    np.testing.assert_allclose(U @ U.T, np.eye(len(U)), atol=1e-10)
    assert len(span(np.concatenate([x, -2 * x]))) == 6


def test_an_estimate_of_the_condition_says_of_the_span_what_singular_values_do():
    """Rows of conditions up to 1e14 and scales up to 1e100, some with a column of zeros or one twice."""
    rng, found = np.random.default_rng(0), []
    for k in range(300):
        r = int(rng.integers(2, 40))
        U = np.linalg.qr(rng.normal(size=(r + int(rng.integers(0, 30)), r)))[0]
        rows = U * 10 ** rng.uniform(-rng.uniform(0, 14), 0, r) @ np.linalg.qr(rng.normal(size=(r, r)))[0]
        rows *= 10.0 ** rng.uniform(-100, 100)
        if k % 4 == 0:
            rows[:, 0] = rows[:, 1] if k % 8 else 0.0
        sizes = np.linalg.svd(rows, compute_uv=False)
        found.append(spans_all(triangle(rows)))
        assert found[-1] == (sizes[-1] > NOTHING * sizes[0])
    assert 50 < sum(found) < 250

"""Metrics of class probabilities compared with loops, including probabilities of 0 and 1, ties and empty bins."""

from __future__ import annotations

import math

import numpy as np
import pytest

import refhmc.uncertainty as u
from refhmc.errors import ShapeError


def cases() -> dict:
    rng = np.random.default_rng(0)
    certain = np.zeros((3, 4, 3))
    certain[..., 1] = 1.0
    disagreeing = np.eye(3)[rng.integers(0, 3, (5, 6))]  # each draw is certain, of its own class
    return {
        "any": (rng.dirichlet(np.ones(4), (7, 25)), rng.integers(0, 4, 25)),
        "by chain and draw": (rng.dirichlet([0.3, 0.2, 0.5], (2, 3, 20)), rng.integers(0, 3, 20)),
        "one draw": (rng.dirichlet([0.3, 0.2, 0.5], 20), rng.integers(0, 3, 20)),
        "certain": (certain, np.array([1, 1, 0, 2])),
        "disagreeing": (disagreeing, rng.integers(0, 3, 6)),
        "ties": (np.full((2, 6, 3), 1 / 3), np.arange(6) % 3),
        "a class never predicted": (rng.dirichlet([5, 5, 0.01], (4, 30)), rng.integers(0, 3, 30)),
        "two classes": (np.stack([p := rng.random((3, 9)), 1 - p], axis=-1), rng.integers(0, 2, 9)),
    }


CASES = cases()
every = pytest.mark.parametrize("name", sorted(CASES))


def written_out(probability, y) -> list[dict]:
    """Compute row by row from the definitions, with mutual information as the mean divergence."""
    draws = np.asarray(probability).reshape(-1, *np.shape(probability)[-2:]).tolist()
    rows = []
    for n, label in enumerate(y.tolist()):
        of_row = [draw[n] for draw in draws]
        S, k = len(of_row), len(of_row[0])
        p = [math.fsum(q[j] for q in of_row) / S for j in range(k)]
        divergences = [math.fsum(q[j] * math.log(q[j] / p[j]) for j in range(k) if q[j] > 0) for q in of_row]
        best = max(range(k), key=lambda j, p=p: (round(p[j], 12), -j))
        rows.append(
            {
                "p": p,
                "entropy": -math.fsum(x * math.log(x) for x in p if x > 0),
                "information": math.fsum(divergences) / S,
                "best": best,
                "right": best == label,
                "loss": -math.log(p[label]) if p[label] > 0 else math.inf,
                "brier": math.fsum((p[j] - (j == label)) ** 2 for j in range(k)),
            }
        )
    return rows


def column(rows, key) -> np.ndarray:
    return np.array([row[key] for row in rows])


@every
def test_values_of_each_row(name):
    probability, y = CASES[name]
    rows = written_out(probability, y)
    close = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(u.predictive_entropy(probability), column(rows, "entropy"), **close)
    np.testing.assert_allclose(u.mutual_information(probability), column(rows, "information"), **close)
    assert (u.mutual_information(probability) >= 0).all()
    left = column(rows, "entropy") - column(rows, "information")
    np.testing.assert_allclose(u.expected_entropy(probability), left, **close)
    assert np.array_equal(u.predicted_class(probability), column(rows, "best"))


@every
def test_means_over_the_rows(name):
    probability, y = CASES[name]
    rows = written_out(probability, y)
    assert u.accuracy(probability, y) == pytest.approx(np.mean(column(rows, "right")), abs=1e-15)
    assert u.negative_log_likelihood(probability, y) == pytest.approx(np.mean(column(rows, "loss")), rel=1e-12)
    assert u.brier_score(probability, y) == pytest.approx(np.mean(column(rows, "brier")), rel=1e-12)


@every
@pytest.mark.parametrize("bins", [1, 4, 15])
def test_calibration(name, bins):
    """Each row is assigned to the bin (m/bins, (m + 1)/bins] that contains it."""
    probability, y = CASES[name]
    rows = written_out(probability, y)
    mean_of_draws = np.mean(np.reshape(probability, (-1, *np.shape(probability)[-2:])), axis=0)
    confidence = [max(row) for row in mean_of_draws.tolist()]
    curve, ece = u.calibration_curve(probability, y, bins), 0.0
    for m in range(bins):
        here = [n for n, c in enumerate(confidence) if m / bins < min(c, 1.0) <= (m + 1) / bins]
        assert curve.upper[m] == (m + 1) / bins
        assert curve.rows[m] == len(here)
        if not here:
            assert np.isnan([curve.confidence[m], curve.accuracy[m]]).all()
            continue
        right = sum(rows[n]["right"] for n in here) / len(here)
        mean = math.fsum(confidence[n] for n in here) / len(here)
        assert curve.accuracy[m] == pytest.approx(right, abs=1e-15)
        assert curve.confidence[m] == pytest.approx(mean, rel=1e-14)
        ece += len(here) / len(y) * abs(right - mean)
    assert curve.rows.sum() == len(y)
    assert u.expected_calibration_error(probability, y, bins) == pytest.approx(ece, rel=1e-12, abs=1e-14)


@every
def test_errors_by_entropy_and_by_class(name):
    probability, y = CASES[name]
    rows = written_out(probability, y)
    wrong = sorted(row["entropy"] for row in rows if not row["right"])
    entropy, share = u.cumulative_entropy(probability, y)
    np.testing.assert_allclose(entropy, wrong, rtol=1e-12, atol=1e-13)
    assert share.tolist() == [(i + 1) / len(wrong) for i in range(len(wrong))]
    matrix = u.mutual_information_matrix(probability, y)
    for i, j in np.ndindex(matrix.mean.shape):
        here = [row["information"] for row, label in zip(rows, y, strict=True) if (label, row["best"]) == (i, j)]
        assert matrix.rows[i, j] == len(here)
        if here:
            assert matrix.mean[i, j] == pytest.approx(math.fsum(here) / len(here), rel=1e-11, abs=1e-13)
        else:
            assert np.isnan(matrix.mean[i, j])


def test_known_values():
    even, y = np.full((2, 6, 3), 1 / 3), np.arange(6) % 3
    np.testing.assert_allclose(u.predictive_entropy(even), math.log(3))
    assert (u.predicted_class(even) == 0).all()
    assert u.accuracy(even, y) == pytest.approx(1 / 3)
    assert u.brier_score(even, y) == pytest.approx(2 / 3)
    assert u.expected_calibration_error(even, y) == pytest.approx(0, abs=1e-15)
    opposed = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])  # two draws, each certain: a bit of information
    assert u.mutual_information(opposed)[0] == pytest.approx(math.log(2))
    assert u.expected_entropy(opposed)[0] == 0
    certain = CASES["certain"][0]
    assert str(u.negative_log_likelihood(certain, np.ones(4, int))) == "0.0"  # and not -0.0
    assert u.negative_log_likelihood(certain, np.array([1, 1, 0, 1])) == math.inf
    assert u.brier_score(certain, np.array([1, 1, 0, 1])) == 0.5
    assert u.cumulative_entropy(certain, np.ones(4, int))[0].shape == (0,)


def test_single_precision_is_a_distribution():
    p = np.random.default_rng(1).dirichlet(np.ones(10), (3, 50)).astype(np.float32)
    y = np.arange(50) % 10
    assert u.brier_score(p, y) == pytest.approx(u.brier_score(p.astype(float) / p.sum(-1, keepdims=True), y), rel=1e-5)


P = np.full((5, 4), 0.25)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: u.predictive_entropy(P[0]), ShapeError, r"probability.*\(..., n, classes\).*\(4,\)"),
        (lambda: u.predictive_entropy(P[:0]), ShapeError, r"probability.*\(0, 4\)"),
        (lambda: u.predictive_entropy(P * 2), ValueError, "probability must .*sum 1"),
        (lambda: u.predictive_entropy(P + [1, -1, 0, 0]), ValueError, "probability must be non-negative"),
        (lambda: u.predictive_entropy(P * np.nan), ValueError, "probability must be non-negative"),
        (
            lambda: u.predictive_entropy([P, P - [[0], [0.1], [0], [0], [0]]]),
            ValueError,
            r"\[0.15.*\[1, 1\]",
        ),
        (lambda: u.calibration_curve(P, np.zeros(5, int), np.nan), ValueError, "bins must be .* got nan"),
        (lambda: u.accuracy(P, np.zeros(4, int)), ShapeError, r"y must .*\(5,\)"),
        (lambda: u.accuracy(P, np.arange(5)), ValueError, r"labels.*3.*y\[4\].*4"),
        (lambda: u.brier_score(P, np.full(5, -1)), ValueError, r"y\[0\].*-1"),
        (lambda: u.calibration_curve(P, np.zeros(5, int), 0), ValueError, "bins must be .*0"),
    ],
)
def test_invalid_arguments_are_rejected(call, error, words):
    with pytest.raises(error, match=words):
        call()

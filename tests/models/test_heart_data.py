"""The heart disease data with the corrected column ``oldpeak``, and the results that depend on it."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import scipy.special
import scipy.stats

import refhmc
from refhmc.models import datasets
from tests.helpers.places import ROOT, SHARED

DATA = ROOT / "refhmc" / "data"
SOURCES = SHARED / "data"
ORIGINS = {"heart_statlog.csv": "classification", "heart_statlog_fold0.json": "classification"}
DIGESTS = {
    "heart_statlog.csv": "42441c444347c72c2eb556304b8f4a4d4881e7b42d7a8b78fc19a56af259ee75",
    "heart_statlog_fold0.json": "f7029beb6ea6f7d4372d9788b8a7c023b6140ab06c81f2f37c26f1f2939c6fcf",
}
# Row, counted from 0, and oldpeak: whole numbers, which the file of KEEL prints like tenths (1.0 and 0.1 as 1).
WHOLE = {
    4: (9, 117),
    3: (76, 163, 227, 248),
    2: (80, 83, 120, 140, 145, 147, 153, 171),
    1: (49, 94, 95, 101, 103, 159, 196, 200, 228, 230, 256, 264),
}


def table() -> np.ndarray:
    return np.genfromtxt(DATA / "heart_statlog.csv", delimiter=",", skip_header=1)


def test_oldpeak_agrees_with_uci():
    rows = table()
    assert rows.shape == (270, 14)
    for value, places in WHOLE.items():
        np.testing.assert_array_equal(rows[list(places), 9], value)
    # UCI gives 1.05, and 1.15 for the standard deviation.
    assert rows[:, 9].mean() == pytest.approx(1.05, abs=1e-12)
    assert rows[:, 9].std(ddof=1) == pytest.approx(1.145, abs=5e-4)


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_files_are_those_of_their_source(name):
    text = (DATA / name).read_text(encoding="utf-8")
    assert hashlib.sha256(text.encode()).hexdigest() == DIGESTS[name]
    source = SOURCES / ORIGINS[name] / name
    if source.exists():  # present next to the development repository only
        assert text == source.read_text(encoding="utf-8")


def test_raetschs_split_is_one_of_the_270_rows():
    split = json.loads((DATA / "heart_statlog_fold0.json").read_text(encoding="utf-8"))
    assert [len(split["train"]), len(split["test"])] == [170, 100]
    assert sorted(split["train"] + split["test"]) == list(range(270))


@pytest.mark.sweep
def test_posterior_is_of_these_data():
    """Moments by independent importance sampling, 60,000 draws of a multivariate t with 8 degrees of freedom at the mode.

    28 z-scores of nearly normal numbers; all |z| < 4.5 except for a false alarm in 2e-4.
    """
    X, y, *_ = datasets.heart()
    answer = datasets.load_json("logistic_posteriors")["heart_statlog"]
    q = np.zeros(14)
    for _ in range(30):
        p = scipy.special.expit(X @ q)
        precision = (X * (p * (1 - p))[:, None]).T @ X + np.eye(14)
        q = q + np.linalg.solve(precision, X.T @ (y - p) - q)
    np.testing.assert_allclose(q, answer["map"], atol=1e-8)
    proposal = scipy.stats.multivariate_t(q, np.linalg.inv(precision), df=8, seed=np.random.default_rng(20261122))
    x = proposal.rvs(60_000)
    fit = X @ x.T
    target = y @ fit - np.logaddexp(0, fit).sum(axis=0) - 0.5 * np.sum(x**2, axis=1)
    ratio = target - proposal.logpdf(x)
    weight = np.exp(ratio - ratio.max())
    weight /= weight.sum()
    for power, value, error in (("mean", "mean", "mean_se"), ("variance", "var", "var_se")):
        f = x if power == "mean" else (x - np.array(answer["mean"])) ** 2
        ours = weight @ f
        spread = np.sqrt(weight**2 @ (f - ours) ** 2)  # of a ratio estimate, by the delta method
        z = (ours - answer[value]) / np.hypot(spread, answer[error])
        assert np.abs(z).max() < 4.5, f"{power}: z = {z}"


def test_classifier_counts_errors_on_these_data():
    """With oldpeak alone, 58 of the 170 training rows are misclassified (62 with the uncorrected column)."""
    q = np.eye(14)[datasets.heart().names.index("oldpeak")]
    rows = table()[datasets.load_json("classification_splits")["heart_statlog"]]
    wrong = np.sum((rows[:, 9] > rows[:, 9].mean()) != (rows[:, -1] == 1))
    assert wrong == 58
    assert refhmc.models.PACBayesClassifier().log_density(q) == pytest.approx(-58 - 0.5, rel=1e-14)

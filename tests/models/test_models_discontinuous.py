"""Jolly-Seber, change points and the PAC-Bayes classifier.

Densities, slopes and changes are compared with independent implementations in high precision, and the exact results with sums
and simulations.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.errors import ShapeError
from refhmc.models.change_point import ChangePoint
from refhmc.models.datasets import diabetes, load_json
from refhmc.models.jolly_seber import JollySeber
from refhmc.models.pac_bayes_classifier import PACBayesClassifier
from tests.helpers.sweeps import swept

mp.mp.dps = 40

# ------------------------------------------------------------------------------ definitions of the models


def jolly_seber_text(q, counts, sigma_B=500, U_max=5000):
    """Return the product of the factors, with occasions from 1 as in the book and chi = 1 - phi (1 - (1 - p) chi)."""
    n, R, r, m, z = (dict(enumerate(counts[key], 1)) for key in ("n", "R", "r", "m", "z"))
    T = len(n)
    sigmoid = [1 / (1 + mp.exp(-x)) for x in q[: 2 * T - 1]]
    p, phi = dict(enumerate(sigmoid[:T], 1)), dict(enumerate(sigmoid[T:], 1))
    U = {i: int(mp.ceil(mp.exp(x))) - 1 for i, x in enumerate(q[2 * T - 1 :], 1)}
    u = {i: n[i] - m[i] for i in n}
    if any(not u[i] <= U[i] <= U_max for i in U):
        return -mp.inf
    density = mp.mpf(1) / U[1]
    for i in range(1, T):
        mean, variance = phi[i] * (U[i] - u[i]), sigma_B**2 + phi[i] * (1 - phi[i]) * (U[i] - u[i])
        density *= mp.exp(-((U[i + 1] - mean) ** 2) / (2 * variance)) / mp.sqrt(variance)
    for i in range(1, T + 1):
        density *= mp.fprod(range(U[i] - u[i] + 1, U[i] + 1)) * p[i] ** u[i] * (1 - p[i]) ** (U[i] - u[i])
    chi = {T: mp.mpf(1)}
    for i in range(T - 1, 0, -1):
        chi[i] = 1 - phi[i] * (1 - (1 - p[i + 1]) * chi[i + 1])
        density *= chi[i] ** (R[i] - r[i])
    for i in range(2, T + 1):
        density *= phi[i - 1] ** (z[i] + m[i]) * (1 - p[i]) ** z[i] * p[i] ** m[i]
    for x in sigmoid:
        density *= x * (1 - x)
    for i in U:
        density /= mp.log(U[i] + 1) - mp.log(U[i])
    return mp.log(density)


def change_point_text(q, y, a=1, b=1):
    K = len(q) // 2
    tau = [0, *(int(mp.ceil(x)) - 1 for x in q[K + 1 :]), len(y)]
    if any(s >= t for s, t in itertools.pairwise(tau)) or tau[1] < 1:
        return -mp.inf
    total = mp.mpf(0)
    for k in range(K + 1):
        rate = mp.exp(q[k])
        total += (a - 1) * mp.log(rate) - b * rate + mp.log(rate)
        total += sum(count * mp.log(rate) - rate for count in y[tau[k] : tau[k + 1]])
    return total


def classifier_text(q, X, y, weight, scale):
    wrong = sum((mp.fdot(row, q) > 0) != bool(label) for row, label in zip(X.tolist(), y, strict=True))
    return -weight * wrong - mp.fsum(v**2 for v in q) / (2 * mp.mpf(scale) ** 2)


CAPSID = load_json("black_kneed_capsid")
CAPSID = {**CAPSID, "m": [0, *CAPSID["m_from_2"]], "z": [0, *CAPSID["z_from_2"]]}
SMALL = {"n": [9, 12, 7, 5], "R": [9, 11, 7], "r": [5, 6, 2], "m": [0, 4, 5, 4], "z": [0, 1, 2, 0]}
COUNTS = [3, 5, 2, 4, 6, 1, 0, 1, 2, 0, 0, 1]
TABLE, LABELS = diabetes().X[:60, 1:5], diabetes().y[:60]


def small_jolly_seber():
    return JollySeber(*(SMALL[key] for key in ("n", "R", "r", "m")), sigma_B=20.0, U_max=300)


CASES = {
    "capsid": (JollySeber, lambda q: jolly_seber_text(q, CAPSID)),
    "four occasions": (small_jolly_seber, lambda q: jolly_seber_text(q, SMALL, 20, 300)),
    "coal": (ChangePoint, lambda q: change_point_text(q, load_json("coal_mining_disasters")["counts"])),
    "three changes": (
        lambda: ChangePoint(COUNTS, changes=3, shape=2.0, rate=0.5),
        lambda q: change_point_text(q, COUNTS, 2, mp.mpf(0.5)),
    ),
    "classifier": (
        lambda: PACBayesClassifier(TABLE, LABELS, inverse_temperature=0.7, prior_scale=2.0),
        lambda q: classifier_text(q, TABLE, LABELS, mp.mpf(0.7), 2),
    ),
}
each = pytest.mark.parametrize("name", [swept(name) if name == "capsid" else name for name in CASES])


def positions(model, count=6, spread=0.5):
    """Return positions of positive density near the start of the model."""
    rng = np.random.default_rng(17)
    start = np.ones(model.dim) if model.initial is None else model.initial
    found = []
    while len(found) < count:
        q = start + spread * rng.standard_normal(model.dim)
        if model.log_density(q) > -np.inf:
            found.append(q)
    return found


@each
def test_log_density_is_that_of_the_definition(name):
    make, text = CASES[name]
    model = make()
    first, *others = positions(model)
    constant = model.log_density(first) - text([mp.mpf(v) for v in first])  # the constant is free
    for q in others:
        expected = float(constant + text([mp.mpf(v) for v in q]))
        assert model.log_density(q) == pytest.approx(expected, rel=1e-12, abs=1e-12 * abs(float(constant)))
        assert model.core.value_and_gradient(q)[0] == model.log_density(q)


@each
def test_incremental_change_is_the_difference_of_two_densities(name):
    make, text = CASES[name]
    model = make()
    rng = np.random.default_rng(3)
    outside = 0
    for q in positions(model, 4):
        for j in model.discontinuous:
            for reach in (0.05, 1.0, 20.0, 200.0):
                other = q.copy()
                other[j] += reach * rng.standard_normal()
                change = model.log_density_change(q, j, other[j])
                expected = text([mp.mpf(v) for v in other]) - text([mp.mpf(v) for v in q])
                assert change == pytest.approx(float(expected), rel=1e-11, abs=1e-10)
                assert model.log_density(other) - model.log_density(q) == pytest.approx(change, rel=1e-9, abs=1e-9)
                outside += change == -np.inf
    assert outside > 0 or name == "classifier"
    assert model.log_density_change(q, j, q[j]) == 0.0


@each
def test_constrained_values_include_the_integers(name):
    make, _ = CASES[name]
    model = make()
    q = np.stack(positions(model)).reshape(2, 3, model.dim)
    values = model.constrain(q)
    for key, value in values.items():
        assert value.shape[:2] == (2, 3)
        np.testing.assert_array_equal(value[1, 2], model.constrain(q[1, 2])[key])
        assert value.dtype == (np.int64 if key in ("U", "year") else np.float64)
    if "U" in values:
        x = q[..., model.discontinuous]
        assert np.all((np.log(values["U"]) < x) & (x <= np.log(values["U"] + 1.0)))


# ---------------------------------------------------------------------------------------------------------- Jolly-Seber


def test_counts_of_the_capsid_agree_with_one_another():
    model = JollySeber()
    u, a, b, unseen, c = model.data[:5]
    np.testing.assert_array_equal(u, CAPSID["u"])
    np.testing.assert_array_equal(a, np.array(CAPSID["n"]) + 1)
    np.testing.assert_array_equal(b, np.array(CAPSID["z"]) - np.array(CAPSID["u"]) + 1)
    np.testing.assert_array_equal(unseen[:-1], np.array(CAPSID["R"]) - np.array(CAPSID["r"]))
    np.testing.assert_array_equal(c[:-1], np.array(CAPSID["z"][1:]) + np.array(CAPSID["m"][1:]) + 1)


def test_jolly_seber_far_out():
    """Probabilities within 1e-260 of 0 and 1, and every U at an end of its support."""
    model = JollySeber()
    for sign in itertools.product((-600.0, 600.0), repeat=2):
        for U in (model.data[0], np.full(13, 5000.0)):
            q = np.concatenate([np.full(13, sign[0]), np.full(12, sign[1]), np.log(U + 0.5)])
            assert np.isfinite(model.log_density(q))
            assert np.isfinite(model.gradient(q)).all()
    q[-1] = np.log(5001.5)
    assert model.log_density(q) == -np.inf
    assert not model.gradient(q).any()


def test_only_the_product_of_the_last_probabilities_is_identified():
    """Without the Jacobians, the weight of U_T and its first captures, the likelihood depends on phi_{T-1} p_T only."""
    model = JollySeber()
    left = []
    for p in (0.4, 0.6, 0.9):
        phi, q = 0.3 / p, model.initial.copy()
        q[12], q[24] = math.log(p / (1 - p)), math.log(phi / (1 - phi))
        V, V_T = model.constrain(q)["U"][-2:] - model.data[0, -2:]
        own = sum(math.log(x * (1 - x)) for x in (p, phi))
        own += model.data[0, 12] * math.log(p) + V_T * math.log(1 - p)
        own += scipy.stats.norm.logpdf(V_T + model.data[0, 12], phi * V, math.sqrt(500.0**2 + phi * (1 - phi) * V))
        left.append(model.log_density(q) - own)
    assert np.ptp(left) < 1e-9


def test_reference_of_the_capsid_is_in_the_order_of_the_variables():
    model = JollySeber()
    summary = load_json("jolly_seber_posterior")["summary"]
    assert model.reference_names[0] == "p[0]"
    for name, mean, variance in zip(model.reference_names, model.reference.mean, model.reference.variance, strict=True):
        base, index = name[:-1].split("[")
        row = summary[f"{base}[{int(index) + 1}]"]
        assert (mean, variance) == (row["mean"], row["sd"] ** 2)
    assert JollySeber(U_max=6000).reference is None


# --------------------------------------------------------------------------------------------------------- change points


def brute_force(y, K, a, b):
    """Return P(tau) and the conditional gamma distributions, one row per tau."""
    T, rows = len(y), []
    for tau in itertools.combinations(range(1, T), K):
        ends = (0, *tau, T)
        pieces = [(a + sum(y[s:t]), b + t - s) for s, t in itertools.pairwise(ends)]
        weight = mp.fprod(mp.gamma(s) / mp.mpf(r) ** s for s, r in pieces)
        rows.append((tau, weight, pieces))
    total = mp.fsum(row[1] for row in rows)
    return [(tau, weight / total, pieces) for tau, weight, pieces in rows]


@pytest.mark.parametrize("K", [1, 2, 3])
def test_change_point_reference_is_the_sum_over_all_changes(K):
    a, b, first = 2.0, 0.5, 1900
    reference = ChangePoint(COUNTS, changes=K, shape=a, rate=b, first_year=first).reference
    rows = brute_force(COUNTS, K, a, b)
    values = [[(mp.mpf(s) / r, mp.mpf(s) * (s + 1) / r**2) for s, r in pieces] for _, _, pieces in rows]
    values = [
        v + [(t + first, mp.mpf(t + first) ** 2) for t in tau] for v, (tau, _, _) in zip(values, rows, strict=True)
    ]
    for k in range(2 * K + 1):
        mean = mp.fsum(row[1] * v[k][0] for row, v in zip(rows, values, strict=True))
        square = mp.fsum(row[1] * v[k][1] for row, v in zip(rows, values, strict=True))
        assert reference.mean[k] == pytest.approx(float(mean), rel=1e-12)
        assert reference.variance[k] == pytest.approx(float(square - mean**2), rel=1e-8)


def test_coal_mining_disasters():
    """Carlin, Gelfand and Smith have the change about 1890, and three and one disasters per year: a sum of 111 terms."""
    known = load_json("coal_mining_disasters")
    y = known["counts"]
    assert (len(y), sum(y)) == (112, 191)
    rows = brute_force(y, 1, 1, 1)
    law = {tau[0]: float(weight) for tau, weight, _ in rows}
    assert max(law, key=law.get) + known["first_year"] in (1891, 1892)
    model = ChangePoint()
    year = sum(law[t] * (t + known["first_year"]) for t in law)
    assert model.reference.mean[2] == pytest.approx(year, rel=1e-12)
    assert model.reference_names == ["rate[0]", "rate[1]", "year[0]"]


def test_change_point_draws_have_the_exact_distribution():
    """Chi-square over the pairs of changes, and the means of the rates; together a false alarm in 1e-5."""
    model, n = ChangePoint(COUNTS, changes=2), 20_000
    q = model.reference.draw(np.random.default_rng(6), n)
    assert np.isfinite([model.log_density(row) for row in q[:500]]).all()
    tau = model.constrain(q)["year"]
    rows = brute_force(COUNTS, 2, 1, 1)
    expected = np.array([float(weight) * n for _, weight, _ in rows])
    observed = np.array([np.sum((tau[:, 0] == s) & (tau[:, 1] == t)) for (s, t), _, _ in rows])
    large = expected >= 10
    pooled = [np.append(x[large], x[~large].sum()) for x in (observed, expected)]
    assert scipy.stats.chisquare(*pooled).pvalue > 5e-6
    rates = np.exp(q[:, :3])
    z = (rates.mean(axis=0) - model.reference.mean[:3]) / np.sqrt(model.reference.variance[:3] / n)
    assert np.all(np.abs(z) < 5.0)


# ------------------------------------------------------------------------------------------------- PAC-Bayes classifier


def two_dimensional():
    X = np.random.default_rng(9).standard_normal((25, 2)) + 0.4
    y = (X @ [1.0, -0.5] + np.random.default_rng(10).standard_normal(25) > 0).astype(float)
    return X, y, PACBayesClassifier(X, y, inverse_temperature=0.8, prior_scale=1.5)


def test_classifier_in_two_dimensions_by_quadrature():
    """Moments over a fine grid of directions; the radius has a Rayleigh distribution, independent of the direction."""
    X, y, model = two_dimensional()
    angle = (np.arange(400_000) + 0.5) * 2 * np.pi / 400_000
    direction = np.column_stack([np.cos(angle), np.sin(angle)])
    wrong = np.sum((X @ direction.T > 0) != (y[:, None] == 1), axis=0)
    weight = np.exp(-0.8 * wrong)
    weight /= weight.sum()
    mean = weight @ direction * 1.5 * np.sqrt(np.pi / 2)
    square = weight @ direction**2 * 2 * 1.5**2
    np.testing.assert_allclose(model.reference.mean, mean, atol=1e-5)
    np.testing.assert_allclose(model.reference.variance, square - mean**2, atol=2e-5)


def test_classifier_draws_in_two_dimensions():
    """Means and variances of 100,000 exact draws; four z-scores with |z| < 4.9, a false alarm in 4e-6."""
    _, _, model = two_dimensional()
    q, n = model.reference.draw(np.random.default_rng(4), 100_000), 100_000
    mean, variance = model.reference.mean, model.reference.variance
    assert np.all(np.abs(q.mean(axis=0) - mean) < 4.9 * np.sqrt(variance / n))
    squares = (q - mean) ** 2
    assert np.all(np.abs(squares.mean(axis=0) - variance) < 4.9 * squares.std(axis=0) / np.sqrt(n))


def test_classifier_counts_what_is_misclassified():
    data = refhmc.models.datasets.heart()
    model = PACBayesClassifier()
    q = np.random.default_rng(1).standard_normal(14)
    wrong = np.mean((data.X @ q > 0) != (data.y == 1))
    assert model.log_density(q) == pytest.approx(-170 * wrong - 0.5 * q @ q, rel=1e-13)


# ------------------------------------------------------------------------------------------------------------- invalid input


@pytest.mark.parametrize(
    "make",
    [
        lambda: JollySeber(n=[5, 6]),
        lambda: JollySeber([5.5, 6.0], [5], [1], [0, 1]),
        lambda: JollySeber([5, 6], [5], [6], [0, 1]),  # more animals seen again than released
        lambda: JollySeber([5, 6], [5], [2], [0, 1]),  # an animal seen again that was never seen
        lambda: JollySeber([5, 6], [5], [6, 1], [0, 6]),
        lambda: JollySeber([5, 6], [5], [1], [1, 1]),
        lambda: JollySeber(U_max=100),
        lambda: JollySeber(sigma_B=0.0),
        lambda: ChangePoint([1, 2, -1]),
        lambda: ChangePoint([1, 2, 0.5]),
        lambda: ChangePoint([[1, 2]]),
        lambda: ChangePoint([1, 2, 3], changes=3),
        lambda: ChangePoint([1, 2, 3], changes=0),
        lambda: ChangePoint([1, 2, 3], shape=0.0),
        lambda: PACBayesClassifier(X=TABLE),
        lambda: PACBayesClassifier(TABLE, LABELS + 1),
        lambda: PACBayesClassifier(TABLE * np.nan, LABELS),
        lambda: PACBayesClassifier(TABLE, LABELS, inverse_temperature=-1.0),
    ],
)
def test_bad_data(make):
    with pytest.raises(ValueError):
        make()


def test_bad_shapes():
    with pytest.raises(ShapeError):
        JollySeber([5, 6, 7], [5], [1], [0, 1])
    with pytest.raises(ShapeError):
        PACBayesClassifier(TABLE, LABELS[:-1])

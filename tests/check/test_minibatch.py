"""``check.minibatch``: unbiased stochastic gradients pass; wrong scales and wrong noise fail."""

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import minibatches as cases
from tests.helpers.sweeps import swept


def test_balanced_batches_contain_every_index_equally_often():
    from refhmc.check.samplers.minibatches import balanced_batches

    batches = list(balanced_batches(11, 4, np.random.default_rng(0)))
    assert np.bincount(np.concatenate(batches)).tolist() == [4] * 11
    assert all(len(set(batch.tolist())) == 4 for batch in batches)


def test_gradient_that_is_not_a_sum_over_the_batch_is_inconclusive():
    def pairs(q, batch):  # unbiased over all batches, but quadratic in the batch
        data = cases.terms(q, batch)
        n, b = cases.N, len(batch)
        wiggle = np.outer(np.arange(n)[batch] % 2 - 0.5, np.arange(n)[batch] % 3 - 1.0)
        return -cases.PRIOR * q + n / b * data.sum(axis=0) + wiggle.sum() - np.trace(wiggle)

    row = rc.minibatch(pairs, cases.full, cases.N, 6, dim=cases.DIM).row("mean over batches")
    assert row.status == "INCONCLUSIVE"


def test_gradient_without_memory_alone_does_not_pass():
    """A mean normalised within each batch is not a sum over the batch, so that no row decides."""
    X = np.random.default_rng(0).standard_normal((500, 3))

    def scaled(q, batch):
        B = X[batch] / X[batch].std(axis=0)
        return -q - (B @ q) @ B

    report = rc.minibatch(scaled, lambda q: -q - (X @ q) @ X, 500, 20, dim=3)
    assert report.row("no memory").status == "PASS"
    assert report.status == "INCONCLUSIVE"


def test_float32_gradients_are_judged_as_float32():
    good = cases.estimator()
    report = rc.minibatch(lambda q, batch: good(q, batch).astype(np.float32), cases.full, cases.N, 6, dim=cases.DIM)
    assert report.ok
    assert any("bits" in note for note in report.notes)


def test_noise_is_reported_for_both_conventions():
    notes = " ".join(cases.of_step(cases.HALF)(1).notes) + " ".join(cases.of_step(cases.WHOLE)(1).notes)
    assert "drift 0.5 eps, noise of variance 1 eps" in notes
    assert "drift 1 eps, noise of variance 2 eps" in notes


def pair(name):
    return next(pair for pair in cases.PAIRS if pair.id == name)


@pytest.mark.parametrize(
    ("name", "words"),
    [("B15", "have 5 answers in turn"), ("B17", "kept between calls"), ("B19", "kept between calls")],
)
def test_memory_is_distinguished_from_randomness(name, words):
    row = pair(name).wrong(3).row("no memory")
    assert words in row.basis
    assert row.severity == "wrong distribution"


def test_own_randomness_is_not_a_memory():
    """Random batches are allowed for a stochastic gradient, so that the row is INCONCLUSIVE."""
    rng, good = np.random.default_rng(0), cases.estimator()
    noisy = rc.minibatch(lambda q, batch: good(q, batch) + rng.normal(size=3), cases.full, cases.N, 6, dim=3)
    assert not noisy.failures
    assert noisy.row("no memory").status == "INCONCLUSIVE"
    parts = cases.split()(2)
    noisy = rc.minibatch(parts=[parts[0], lambda q: parts[1][1](q) + rng.normal(size=3)], full=cases.full, dim=3)
    assert "not a function of q" in noisy.row("no memory").basis


def test_one_split_is_compared_with_the_whole():
    parts = cases.split()(4)
    assert rc.minibatch(parts=parts, full=cases.full, dim=cases.DIM).ok
    assert rc.minibatch(parts=parts, dim=cases.DIM).row("sum of the parts").status == "INCONCLUSIVE"
    missing = rc.minibatch(parts=parts[1:], full=cases.full, dim=cases.DIM)
    assert {row.name for row in missing.failures} == {"sum of the parts"}


def test_failed_splits_are_noted():
    def parts(M):
        if M > 2:
            raise ValueError("two at most")
        return cases.split()(M)

    assert "not split in 3: ValueError: two at most" in rc.minibatch(parts=parts, dim=cases.DIM).notes


@pytest.mark.parametrize("kind", ["logistic", swept("network"), swept("softmax")])
def test_splits_of_refhmc_pass(kind):
    rng = np.random.default_rng(4)
    X, labels = rng.normal(size=(11, 2)), rng.integers(0, 3, 11)
    whole = {
        "logistic": lambda: refhmc.models.LogisticRegression(X, (labels > 0) * 1.0),
        "network": lambda: refhmc.models.MLP([2, 3, 1], X, X[:, 0]),
        "softmax": lambda: refhmc.models.SoftmaxRegression(X, labels),
    }[kind]()
    report = rc.minibatch(parts=whole.split, full=whole, n=11)
    assert report.ok, report
    judged = {row.name for row in report.rows if row.status == "PASS"}
    assert judged >= {"no memory", "sum of the parts", "sum of the potentials", "gradients of the parts"}
    in_order = whole.split(4, order="random")
    assert rc.minibatch(parts=in_order, full=whole).ok
    other = rc.minibatch(parts=[in_order.parts[0], *in_order.parts[:3]], full=whole, dim=whole.dim)
    assert {row.name for row in other.failures} == {"sum of the parts", "sum of the potentials"}


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::refhmc.errors.PrecisionWarning")
def test_float32_inside_float64_answers_does_not_fail_a_split():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(11, 2))
    whole = refhmc.models.MLP([2, 3, 1], X, X[:, 0], dtype=np.float32)
    report = rc.minibatch(parts=whole.split, full=whole, n=11)
    assert report.ok, report
    assert 1e-12 < report.row("sum of the parts").tolerance < 0.02  # of a gradient of size 40
    twice = whole.split(3).parts
    wrong = rc.minibatch(parts=[*twice[:2], twice[1]], full=whole, dim=whole.dim)
    assert {row.name for row in wrong.failures} == {"sum of the parts", "sum of the potentials"}


def test_invalid_arguments_are_rejected():
    with pytest.raises(TypeError):
        rc.minibatch()
    with pytest.raises(TypeError):
        rc.minibatch(cases.estimator())
    with pytest.raises(ValueError):
        rc.minibatch(cases.estimator(), cases.full, 4, 5)
    with pytest.raises(TypeError, match="a sequence of parts"):
        rc.minibatch(parts=3)
    with pytest.raises(ValueError, match="at least one"):
        rc.minibatch(parts=[])

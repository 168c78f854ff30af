"""``check.metric`` finds wrong metrics, derivatives, energies, forces and momenta, and passes unusual correct ones."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check import adapters
from refhmc.check.metrics import momenta
from refhmc.check.metrics.examination import MetricExamination
from refhmc.check.mutants import metrics as mutants
from tests.helpers.riemannian_cases import MODELS, RIEMANNIAN
from tests.helpers.sweeps import one_in, representatives, swept

QUICK_ODD = ("float32", "constant", "direction first, said so", "more normals than coordinates", "barely moving")


@pytest.mark.parametrize("name", representatives(QUICK_ODD, ["constant", "more normals than coordinates"]))
def test_unusual_correct_code_passes(name):
    report = mutants.ODD[name](1)
    assert report.ok, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", mutants.ODD)
def test_unusual_correct_code_passes_for_all_seeds(name):
    for seed in range(20):
        report = mutants.ODD[name](seed)
        assert report.ok, str(report)


@pytest.mark.sweep
def test_our_hamiltonian_passes():
    report = rc.metric(refhmc.Hamiltonian(refhmc.models.Banana(), refhmc.metrics.SoftAbs(alpha=1.0)))
    assert report.ok, str(report)
    passed = {row.name for row in report.rows if row.status == "PASS"}
    assert passed >= {"positive definite", "energy", "force", "velocity", "momentum distribution"}


@pytest.mark.parametrize(("model", "name"), one_in(16, ["banana", "funnel-3", "gaussian-3", "logistic"], RIEMANNIAN))
def test_all_our_metrics_pass(model, name):
    report = rc.metric((MODELS[model](), RIEMANNIAN[name]))
    assert not report.failures, str(report)
    assert report.row("answers").status == "PASS"


@pytest.mark.parametrize(
    "metric",
    [
        swept(refhmc.metrics.Identity()),
        swept(refhmc.metrics.Diagonal(0.7)),
        refhmc.metrics.Dense(np.array([[2.0, 0.5], [0.5, 1.0]])),
    ],
)
def test_our_constant_metrics_pass(metric):
    report = rc.metric((refhmc.models.Banana(), metric))
    assert report.ok, str(report)


@pytest.mark.sweep
def test_a_momentum_that_cannot_be_recorded_is_tested():
    report = rc.metric(mutants.fisher, None, mutants.draw_unrecorded_exchanged, dim=3)
    assert report.row("momentum distribution").status == "FAIL"
    assert any("not recorded" in note for note in report.notes)


@pytest.mark.sweep
def test_momentum_tests_have_the_stated_false_alarm_rate(monkeypatch):
    # 60 repetitions of some 50 tests at 1e-6: a false alarm in one of them has a probability of 6e-5
    subject = MetricExamination({"draw_p": lambda rng, q: rng.standard_normal(2)}, "ijk", None, None, 0, None)
    usable = [(np.zeros(2), np.eye(2), 0.0)]
    monkeypatch.setattr(momenta, "DRAWS", 200)
    for seed in range(60):
        subject.seed = seed
        assert momenta._momentum_by_tests(subject, usable).status == "PASS"


@pytest.mark.parametrize(
    ("arguments", "row", "words"),
    [
        ((lambda q: 1 / 0,), "answers", "ZeroDivisionError"),
        ((lambda q: np.full((2, 2), np.nan),), "answers", "not finite"),
        ((lambda q: np.ones(2),), "answers", "shape"),
        ((lambda q: np.eye(2), lambda q: np.zeros((2, 2))), "answers", "shape"),
        ((lambda q: np.eye(2), None, lambda rng, q: rng.normal(size=3)), "answers", "shape"),
        ((lambda q: np.eye(2) * np.exp(q.fill(0.5) or 0),), "inputs left alone", "changed"),
    ],
)
def test_failed_calls_are_reported_in_a_row(arguments, row, words):
    report = rc.metric(*arguments, dim=2)
    assert report.row(row).status == "FAIL"
    assert words in report.row(row).basis
    assert report.severity == "call failed"
    str(report)


def test_rows_of_omitted_functions_are_not_run():
    report = rc.metric(lambda q: np.eye(2) * (1 + q @ q))
    assert {row.name for row in report.not_run} >= {"derivative", "energy", "force", "momentum distribution"}
    assert report.ok


def test_neither_metric_nor_energy_is_an_error():
    with pytest.raises(TypeError, match="must be given"):
        rc.metric(None)


def test_invalid_index_order_is_rejected():
    with pytest.raises(ValueError, match="permutation"):
        rc.metric(lambda q: np.eye(2), index_order="ijj")


def test_metric_that_diverges_at_the_edge_of_its_domain_passes():
    report = rc.metric(lambda q: np.diag(1 / q**2), dim=2)
    assert not report.failures, str(report)
    assert report.row("positive definite").status == "INCONCLUSIVE"


@pytest.mark.parametrize("bug", [False, True])
def test_momentum_drawn_with_a_32_bit_seed_is_tested(bug):
    """A JAX momentum has one of 2^32 seeds, which must not become a list of 2^32 probabilities (32 GiB)."""

    def mass(q):
        return np.diag(1 + q**2)

    def draw(key, q):
        return np.sqrt(np.diag(mass(q)) * (2.0 if bug else 1.0)) * key.standard_normal(len(q))

    for draw_p in (
        adapters.kernel_with_key(draw, np.random.default_rng),
        lambda rng, q: draw(np.random.default_rng(rng.choice(2**32)), q),
    ):
        row = rc.metric(mass, draw_p=draw_p, dim=2).row("momentum distribution")
        assert row.status == ("FAIL" if bug else "PASS"), str(row)


@pytest.mark.parametrize("size", [swept(1e-4), 1e-12])
@pytest.mark.parametrize("known", [False, True])
def test_derivative_wrong_at_opposite_eigenvalues_is_named(size, known):
    more = {"hessian": mutants.shell_hess} if known else {}
    report = mutants._shell(by_size=size, **more)(3)
    assert {row.name for row in report.failures} == {"derivative at degenerate points"}, str(report)
    assert any("l and -l" in text for text in report.diagnosis)

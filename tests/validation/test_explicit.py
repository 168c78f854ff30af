"""The benchmark of hierarchical posteriors: its models, references, selection and judgements."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats

from validation.benchmarks import explicit, problems
from validation.benchmarks import hierarchical_models as hierarchical
from validation.benchmarks.explicit_targets import schools_reference

STEP = 1e-30  # of the complex step, whose error is of order STEP^2


def log_expit(x):
    """Return log expit(x) for complex arguments, without overflow."""
    sign = np.sign(x.real)
    return np.where(sign < 0, x, 0) - np.log(1 + np.exp(-sign * x))


def bernoulli(y, eta):
    return np.sum(np.where(y > 0, log_expit(eta), log_expit(-eta)))


def normal(x, m, u):
    """Return the log density of N(m, e^u) without its constant."""
    return np.sum(-0.5 * ((x - m) / np.exp(u)) ** 2 - u)


def half_cauchy(u):
    """Return the log density of u = log s, s ~ C+(0, 2), without its constant."""
    return np.sum(u - np.log(1 + np.exp(2 * u) / 4))


def logistic(q, centred):
    J, (x, y, group) = hierarchical.GROUPS, hierarchical.logistic_data()
    a, b, mu, u = q[:J], q[J : 2 * J], q[2 * J : 2 * J + 2], q[2 * J + 2 :]
    prior = normal(a, *((mu[0], u[0]) if centred else (0, 0))) + normal(b, *((mu[1], u[1]) if centred else (0, 0)))
    if not centred:
        a, b = mu[0] + np.exp(u[0]) * a, mu[1] + np.exp(u[1]) * b
    at = group.astype(int)
    return bernoulli(y, a[at] + b[at] * x) + prior + half_cauchy(u) - np.sum((mu / 2) ** 2) / 2


def response(q, centred):
    N, J, y = hierarchical.PERSONS, hierarchical.ITEMS, hierarchical.response_data()
    theta, alpha, b, mu, u = q[:N], q[N : N + J], q[N + J : N + 2 * J], q[N + 2 * J], q[N + 2 * J + 1 :]
    m, scales = (mu, u) if centred else (0, np.zeros(3))
    prior = normal(theta, 0, scales[0]) + normal(alpha, 0, scales[1]) + normal(b, m, scales[2])
    if not centred:
        theta, alpha, b = np.exp(u[0]) * theta, np.exp(u[1]) * alpha, mu + np.exp(u[2]) * b
    return bernoulli(y, np.exp(alpha) * (theta[:, None] - b)) + prior + half_cauchy(u) - (mu / 5) ** 2 / 2


def volatility(q, y_squared):
    """Return the density of eta, log beta, log sigma and atanh phi by the definitions of the built-in model."""
    eta, u, g, a = q[:-3], q[-3], q[-2], q[-1]
    phi, x = np.tanh(a), np.zeros_like(q[:-3])
    for t in range(len(eta)):
        x[t] = phi * x[t - 1] + np.exp(g) * eta[t] if t else np.exp(g) * eta[0] / np.sqrt(1 - phi**2)
    likelihood = np.sum(-u - 0.5 * x - 0.5 * y_squared * np.exp(-x - 2 * u))
    prior = -10 * g - 0.25 * np.exp(-2 * g) + 20 * np.log(1 + phi) + 1.5 * np.log(1 - phi)
    return likelihood - 0.5 * np.sum(eta**2) + prior


T = 20
CASES = {
    "logistic, centred": (lambda: hierarchical.hierarchical_logistic(True), lambda q, _: logistic(q, True)),
    "logistic, non-centred": (lambda: hierarchical.hierarchical_logistic(False), lambda q, _: logistic(q, False)),
    "response, centred": (lambda: hierarchical.item_response(True), lambda q, _: response(q, True)),
    "response, non-centred": (lambda: hierarchical.item_response(False), lambda q, _: response(q, False)),
    "volatility": (lambda: hierarchical.volatility_of_innovations(T), lambda q, data: volatility(q, data[0][:T])),
}


@pytest.mark.parametrize("case", CASES)
def test_gradient_is_the_complex_step_derivative_of_the_definition(case):
    make, density = CASES[case]
    model = make()
    rng = np.random.default_rng(3)
    for q in rng.normal(0, 0.7, (2, model.dim)):
        steps = q + 1j * STEP * np.eye(model.dim)
        expected = np.array([density(each, model.data).imag / STEP for each in steps])
        np.testing.assert_allclose(model.gradient(q), expected, rtol=0, atol=1e-11 * abs(expected).max())
        change = density(q, model.data) - density(0 * q, model.data)
        assert model.log_density(q) - model.log_density(0 * q) == pytest.approx(change, rel=1e-11)


def test_densities_in_jax_are_the_models():
    jax = pytest.importorskip("jax")
    from validation.benchmarks.explicit_targets import TARGETS
    from validation.benchmarks.posteriors import check_same

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        for name in ("funnel 2", "eight schools", "hierarchical logistic", "item response"):
            check_same(TARGETS[name])
    finally:
        jax.config.update("jax_enable_x64", before)


def test_reference_of_the_eight_schools_is_the_mean_on_a_grid():
    """Compare with the trapezoidal rule over mu and log tau; theta is integrated exactly."""
    mu, u = np.linspace(-40, 50, 601)[:, None, None], np.linspace(-30, 12, 2101)[:, None]
    variance = np.square(problems.SIGMA) + np.exp(2 * u)
    log_p = -0.5 * np.sum((problems.Y - mu) ** 2 / variance + np.log(variance), axis=-1)
    log_p = log_p - mu[..., 0] ** 2 / 50 + u[:, 0] - np.log1p(np.exp(2 * u[:, 0]) / 25)
    p = np.exp(log_p - log_p.max()).sum(axis=0)
    for k, (value, error) in enumerate(schools_reference(), start=1):
        assert value == pytest.approx(np.sum(p * u[:, 0] ** k) / p.sum(), rel=1e-8)
        assert error == 0


def run(seed=1, ess=400.0, gradients=10_000, mean=0.0, **more):
    found = {"seed": seed, "ess_scale": ess, "ess_worst": ess, "gradients": gradients, "draw_gradients": gradients // 2}
    found |= {"seconds": 1.0, "draws": 4000, "r_hat": 1.001, "divergences": 0, "warnings": 0}
    return found | {"statistics": [[mean, 0.1]]} | more


def cell(*runs, why=""):
    return {"start_up": 1.0, "runs": list(runs), "why": why, "took": 1.0}


def judge(row, target="funnel 10", reference=((0.0, 0.0),)):
    return explicit.Judge({target: row}, {target: reference}, ("A", "B"), ("A",))


def test_z_scores_pool_the_runs_and_add_the_error_of_the_reference():
    found = cell(run(mean=1.0), run(seed=2, mean=2.0))
    assert explicit.z_scores(found, [[1.0, 0.0]]) == pytest.approx([0.5 / (0.1 / np.sqrt(2))])
    assert explicit.z_scores(found, [[1.0, 0.3]]) == pytest.approx([0.5 / np.sqrt(0.005 + 0.09)])
    assert explicit.z_scores(found, None) == explicit.z_scores(cell(), [[1.0, 0.0]]) == []


def test_critical_value_bounds_the_false_alarms_of_all_rows():
    cells = {"a": {"A": cell(run()), "B": cell()}, "b": {"A": cell(run()), "B": cell(run())}}
    z = explicit.critical_value(cells, {"a": [[0.0, 0.0]], "b": [[0.0, 0.0]]})
    assert (3 + 3) * 2 * scipy.stats.norm.sf(z) == pytest.approx(1e-6)  # runs and pooled statistics


def test_faults_are_biased_means_and_chains_that_disagree():
    right, biased, apart = cell(run(mean=0.4)), cell(run(mean=0.6)), cell(run(), run(seed=2, r_hat=1.02))
    found = judge({"A": right})
    assert found.correct()[0] == "met"
    assert judge({"A": biased}).correct() == ("not met", "funnel 10, A: |z| 6.0")
    assert judge({"A": apart}).correct() == ("not met", "funnel 10, A: R-hat 1.020")
    assert judge({"A": cell(run(mean=float("nan")))}).correct()[0] == "not met"
    assert judge({"B": biased}).correct()[0] == "not measured"


def test_conditions_compare_medians_over_the_seeds():
    row = {
        "A": cell(run(ess=100), run(2, ess=300), run(3, ess=800)),
        "B": cell(run(ess=250)),
        "SoftAbs": cell(run(2, ess=20)),
    }
    found = judge(row)
    assert found.at_least("funnel 10", 20.0) == ("met", "A: 30, after warm-up 60")
    assert found.at_least("funnel 10", 31.0)[0] == "not met"
    assert found.against_softabs("funnel 10", 10.0) == ("met", "A: 15 times")  # of the seed that both have
    assert found.at_least("radon", 1.0)[0] == found.against_softabs("radon", 1.0)[0] == "not measured"


def test_the_non_centred_form_and_peers_set_the_scale():
    row = {"A": cell(run(ess=300)), "non-centred NUTS": cell(run(ess=900)), "nutpie": cell(run(ess=61))}
    assert judge(row).against_non_centred("funnel 10", 1 / 3)[0] == "met"
    assert judge(row).against_peers("funnel 10", 5.0) == ("not met", "A: 4.92 times nutpie")
    row["NumPyro"] = cell(run(ess=200, mean=3.0))  # biased, so its effective draws do not count
    assert judge(row).against_peers("funnel 10", 4.0)[0] == "met"
    row["nutpie"] = cell(why="not installed: nutpie")
    assert judge(row).against_peers("funnel 10", 5.0)[1].endswith("no peer is right (NumPyro: |z| 30.0)")
    assert judge(row).against_peers("funnel 10", 5.0)[0] == "no peer is right"
    assert judge(row).against_peers("funnel 10", 1.5)[0] == "met"


def test_default_is_compared_with_the_one_before_seed_by_seed():
    row = {"default": cell(run(ess=97), run(2, ess=200)), "before": cell(run(ess=100), run(2, ess=100))}
    assert judge(row).against_before("funnel 10", "before", 0.97)[0] == "met"
    row["default"]["runs"][1] |= {"ess_scale": 90.0}
    assert judge(row).against_before("funnel 10", "before", 0.97)[0] == "not met"
    assert judge({}).against_before("funnel 10", "before", 0.97)[0] == "not measured"


def test_defaults_run_in_turn_in_an_order_that_alternates(monkeypatch):
    made = []

    def cell_of(target, sampler, seeds, interpreter, tree):
        made.append((sampler, seeds, tree))
        return cell(run(seeds[0], seconds=200.0 if sampler == "new" else 1.0))

    monkeypatch.setattr(explicit, "cell_of", cell_of)
    found = explicit.cells_in_turn("arK", [1, 2, 3], {"old": "tree", "new": None})
    first, second = ("old", [1], "tree"), ("new", [1], None)
    assert made == [second, first, ("old", [2], "tree"), ("new", [2], None)]  # 400 s are enough
    assert {name: [r["seed"] for r in c["runs"]] for name, c in found.items()} == {"old": [1, 2], "new": [1, 2]}
    assert found["old"]["took"] == 2.0
    assert found["old"]["start_up"] == 1.0


def test_divergences_and_warnings_are_counted():
    row = {"A": cell(run(divergences=4)), "default": cell(run(), run(2, warnings=1))}
    assert judge(row).divergences("funnel 10", 0.001) == ("not met", "A: 0.1 %")
    assert judge(row).every_seed("funnel 10") == ("not met", "no warning at 1 and right at 2 of 2 seeds")
    row["default"] = cell(run(mean=0.59), run(2, mean=-0.59))
    assert judge(row).every_seed("funnel 10") == ("not met", "no warning at 2 and right at 0 of 2 seeds")
    row["default"] = cell(run(mean=0.3), run(2, mean=-0.3))
    assert judge(row).every_seed("funnel 10")[0] == "met"


def test_only_selects_by_words_and_full_names_select_themselves():
    targets, samplers = ["eight schools", "eight schools, non-centred", "arK"], ["default", "default before", "nutpie"]
    assert explicit.selected([], targets, samplers) == [(t, s) for t in targets for s in samplers]
    assert explicit.selected(["eight schools:default"], targets, samplers) == [("eight schools", "default")]
    assert explicit.selected(["eight:nut", ":before"], targets, samplers) == [
        ("eight schools", "default before"),
        ("eight schools", "nutpie"),
        ("eight schools, non-centred", "default before"),
        ("eight schools, non-centred", "nutpie"),
        ("arK", "default before"),
    ]


def test_results_of_several_runs_are_merged_cell_by_cell(tmp_path, monkeypatch):
    first, second = {"a": {"A": cell(run())}}, {"a": {"A": cell(run(2)), "B": cell()}, "b": {"A": cell()}}
    for name, cells in (("PAGE_DATA", first), ("PARTIAL", second)):
        monkeypatch.setattr(explicit, name, tmp_path / name)
        (tmp_path / name).write_text(json.dumps({"cells": cells}))
    assert explicit.kept() == second
    assert explicit.merged(second, first)["a"] == {"A": first["a"]["A"], "B": second["a"]["B"]}


def test_page_has_a_row_for_each_sampler_and_each_condition():
    cells = {"funnel 10": {"default": cell(run(), run(2)), "nutpie": cell(why="not installed: nutpie")}}
    text = explicit.page(cells, {"funnel 10": [[0.0, 0.0]]}, ["funnel 10"], ["arK"])
    lines = [
        [each.strip() for each in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    assert ["default", "40 (40..40)", "80 (80..80)"] in [line[:3] for line in lines]
    assert ["nutpie", "none: not installed: nutpie"] in [[line[0], line[-1]] for line in lines]
    assert ["arK: default, 0.97 of before", "not measured", ""] in lines


def test_runs_with_a_chain_that_never_moved_do_not_count():
    still = run() | {"r_hat": float("nan")}
    cells = {"a": {"A": cell(run(), still), "B": cell(still), "C": cell(run(), run(2), why="late")}}
    found = explicit.of_chains_that_move(cells)["a"]
    assert [len(found[name]["runs"]) for name in "ABC"] == [1, 0, 2]
    assert found["A"]["why"] == found["B"]["why"] == "in 1 more a chain never moved"
    assert found["C"]["why"] == "late"

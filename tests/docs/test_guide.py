"""The examples of the README and the guide are complete, short, and do what they say."""

from __future__ import annotations

import ast
import math
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

import refhmc
from tests.helpers.pages import code_of
from tests.helpers.places import ROOT

GUIDE = "docs/guide/"


def test_the_models_code_runs_and_is_short():
    own = next(block for block in code_of(GUIDE + "own_model.md") if "refhmc.Model(" in block)
    assert len(own.strip().splitlines()) < 30
    names: dict = {}
    exec(compile(own, "guide", "exec"), names)
    model, q = names["model"], np.array([2.0, 0.3])
    assert model.runs_as_python is None
    h = 1e-6 * np.eye(2)
    differences = [(model.log_density(q + e) - model.log_density(q - e)) / 2e-6 for e in h]
    np.testing.assert_allclose(model.gradient(q), differences, rtol=1e-6)


def model_by_hand():
    """Return the names that the guide's model by hand defines, without a run."""
    by_hand = next(block for block in code_of(GUIDE + "own_model.md") if "refhmc.Model(" in block)
    names: dict = {}
    exec(compile(by_hand.partition("result = ")[0], "guide", "exec"), names)
    return names


def test_the_same_model_by_name_is_the_same():
    by_name = next(block for block in code_of(GUIDE + "own_model.md") if "refhmc.Parameters(" in block)
    one = model_by_hand()
    other = dict(one)
    by_name = by_name.partition("result = ")[0].replace("data=y", "data=y, in_python='a few calls'")
    exec(compile(by_name, "guide", "exec"), other)
    for q in np.array([[2.0, 0.3], [-1.0, -2.0]]):
        assert other["model"].log_density(q) == pytest.approx(one["log_density"](q, one["y"]), rel=1e-14)
        np.testing.assert_allclose(other["model"].gradient(q), one["gradient"](q, one["y"]), rtol=1e-13)


def test_the_same_model_by_formula_is_the_same():
    """The generated code agrees with the model by hand, and its further derivatives with differences."""
    pytest.importorskip("sympy", reason="SymPy is not installed (extra sympy)")
    by_formula = next(block for block in code_of(GUIDE + "own_model.md") if "refhmc.from_sympy(" in block)
    one = model_by_hand()
    other = dict(one)
    exec(compile(by_formula.partition("print(")[0], "guide", "exec"), other)
    model = other["model"]
    functions = {node.name for node in ast.parse(model.source).body if isinstance(node, ast.FunctionDef)}
    assert {"log_density", "gradient", "hessian", "third_derivative", "hessian_contraction"} <= functions
    h = 1e-5 * np.eye(2)
    for q in np.array([[2.0, 0.3], [-1.0, -0.5]]):
        assert model.log_density(q) == pytest.approx(one["log_density"](q, one["y"]), rel=1e-14)
        np.testing.assert_allclose(model.gradient(q), one["gradient"](q, one["y"]), rtol=1e-13)
        differences = [(model.gradient(q + e) - model.gradient(q - e)) / 2e-5 for e in h]
        np.testing.assert_allclose(model.hessian(q), differences, rtol=1e-6)
        third = np.stack([(model.hessian(q + e) - model.hessian(q - e)) / 2e-5 for e in h], axis=-1)
        np.testing.assert_allclose(model.third_derivative(q), third, rtol=1e-6, atol=1e-6)
        M = np.array([[1.0, 0.5], [0.5, -2.0]])
        np.testing.assert_allclose(model.hessian_contraction(q, M), np.einsum("ij,ijk", M, third), rtol=1e-6, atol=1e-6)


PRIORS = {
    "Normal(m, s)": (scipy.stats.norm(0.3, 1.7), {"m": 0.3, "s": 1.7}),
    "HalfNormal(s)": (scipy.stats.halfnorm(scale=1.7), {"s": 1.7}),
    "StudentT(nu, m, s)": (scipy.stats.t(4.5, 0.3, 1.7), {"nu": 4.5, "m": 0.3, "s": 1.7}),
    "HalfCauchy(b)": (scipy.stats.halfcauchy(scale=1.7), {"b": 1.7}),
    "Exponential(r)": (scipy.stats.expon(scale=1 / 1.7), {"r": 1.7}),
    "Gamma(a, b)": (scipy.stats.gamma(2.5, scale=1 / 1.7), {"a": 2.5, "b": 1.7}),
    "InverseGamma(a, b)": (scipy.stats.invgamma(2.5, scale=1.7), {"a": 2.5, "b": 1.7}),
    "LogNormal(m, s)": (scipy.stats.lognorm(1.7, scale=np.exp(0.3)), {"m": 0.3, "s": 1.7}),
    "Beta(a, b)": (scipy.stats.beta(2.5, 1.7), {"a": 2.5, "b": 1.7}),
}


def test_priors_of_the_table_are_those_of_scipy():
    page = (ROOT / GUIDE / "own_model.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+\(.*\)) \| `(.*)` \| `(.*)` \|$", page, re.MULTILINE)
    assert {name for name, *_ in rows} == set(PRIORS)
    for name, density, derivative in rows:
        exact, arguments = PRIORS[name]
        terms = [eval(density, {"np": np, "x": x, **arguments}) - exact.logpdf(x) for x in (0.2, 0.9)]
        assert terms[0] == pytest.approx(terms[1], abs=1e-12), name
        difference = (exact.logpdf(0.4 + 1e-5) - exact.logpdf(0.4 - 1e-5)) / 2e-5
        assert eval(derivative, {"np": np, "x": 0.4, **arguments}) == pytest.approx(difference, rel=1e-8), name


def model_that_fails_below_zero(fail):
    """Return a model that runs as Python and calls ``fail`` below zero."""

    def log_density(q):
        return -0.5 * (q[0] - 2) ** 2 if q[0] >= 0 else fail()

    return refhmc.Model(1, log_density, lambda q: 2 - q, initial=[2.0], in_python="a few calls")


def raising(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_positions_without_density_are_divergences(value):
    """As the table "On error" of the page on models has it.

    At least 4 % of the 400 transitions diverge with 24 seeds; none does with a probability below 1e-7.
    """
    model = model_that_fails_below_zero(lambda: value)
    result = refhmc.sample(model, draws=200, tune=100, chains=2, random_seed=1, progressbar=False, raw=True)
    assert result.sample_stats["diverging"].any()
    assert (result.draws >= 0).all()
    assert result.attributes["evaluation_failures"] == []


@pytest.mark.parametrize(
    "error", [refhmc.errors.EvaluationError("no solution"), ZeroDivisionError("x"), OverflowError("x")]
)
def test_positions_without_evaluation_are_reported(error):
    """The trajectories are those of the test above, with its false-alarm rate."""
    model = model_that_fails_below_zero(raising(error))
    result = refhmc.sample(model, draws=200, tune=100, chains=2, random_seed=1, progressbar=False, raw=True)
    assert result.sample_stats["diverging"].any()
    assert (result.draws >= 0).all()
    assert result.attributes["evaluation_failures"]


def test_other_exceptions_end_the_run_with_its_draws():
    with pytest.raises(refhmc.errors.SamplingError, match="broken") as caught:
        refhmc.sample(model_that_fails_below_zero(raising(ValueError("broken"))), random_seed=1, progressbar=False)
    assert isinstance(caught.value.partial, refhmc.Result)


@pytest.mark.sweep
def test_the_example_with_an_integer_agrees_with_the_sum():
    """And agrees with the sum over N: P(N) ~ 1/N N!/(N - y)! B(y + 1, N - y + 1); z below 4.5 is passed by 1 - 7e-6."""
    blocks = code_of(GUIDE + "discrete.md")
    text = next(block for block in blocks if "refhmc.Embedding(" in block).rpartition("result = refhmc.sample(")[0]
    names: dict = {"np": np, "refhmc": refhmc}
    exec(compile(text, "guide", "exec"), names)
    result = refhmc.sample(names["animals"], random_seed=1, progressbar=False, raw=True)
    N = np.arange(20, 500)
    weight = scipy.special.softmax(-np.log(N) + scipy.special.gammaln(N + 1) - scipy.special.gammaln(N + 2))
    inverse = 1 / result.posterior["N"]
    error = inverse.std() / np.sqrt(float(refhmc.diagnostics.ess(inverse[:, :, None])[0]))
    assert abs(inverse.mean() - weight @ (1 / N)) < 4.5 * error
    assert names["animals"].runs_as_python is None


def checks_of_the_guide(*parts):
    """Return what the cells of the page on checking a sampler define, if they contain one of ``parts``."""
    names: dict = {}
    for block in code_of(GUIDE + "check_your_sampler.md"):
        if any(part in block for part in parts):
            exec(compile(block, "guide", "exec"), names)
    return names


def test_the_check_of_a_leapfrog_with_half_a_drift_fails_as_inefficient():
    names = checks_of_the_guide("rc.integrator(")
    assert not names["report"].ok
    assert names["report"].row("elapsed time").status == "FAIL"
    assert names["report"].severity == "inefficient"


@pytest.mark.sweep
def test_the_checks_of_kernels_give_the_verdicts_of_the_guide():
    names = checks_of_the_guide("rc.integrator(", "rc.transition(", "rc.orbit(", "golden_vectors", "make=make")
    assert names["report"].ok  # the transition
    assert names["exact"].ok
    assert names["biased"].severity == "wrong distribution"
    answers = names["answers"]
    assert names["rc"].golden_vectors.compare(answers, op="grad", target="funnel").ok


def test_the_client_of_the_guide_passes(capsys):
    checks_of_the_guide("client.write_text(")
    shown = capsys.readouterr().out
    assert "FAIL" not in shown
    assert shown.count("VERDICT: PASS") == 2
    assert shown.rstrip().endswith("exit status 0")


def test_the_pytest_example_runs(tmp_path):
    """Its kernel and its step with half a drift are those of the cells: one passes, one fails, one is an expected failure."""
    page = (ROOT / GUIDE / "check_your_sampler.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^    # test_my_sampler.py\n(?:(?:    .*)?\n)+", page, re.MULTILINE)
    cells = code_of(GUIDE + "check_your_sampler.md")
    parts = [next(cell for cell in cells if text in cell) for text in ("def leapfrog", "def make")]
    (tmp_path / "my_sampler.py").write_text("\n".join(parts), encoding="utf-8")
    (tmp_path / "test_my_sampler.py").write_text(textwrap.dedent(example), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_my_sampler.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed, 1 xfailed" in done.stdout, done.stdout + done.stderr


def cycles():
    """The guide's model of lynxes and hares, and its lines."""
    blocks = code_of(GUIDE + "differential_equations.md")
    example = next(block for block in blocks if "refhmc.models.ODE(" in block)
    names: dict = {"np": np, "refhmc": refhmc}
    exec(compile(example, "guide", "exec"), names)
    return names["cycles"], [line for line in example.splitlines() if line.strip()]


@pytest.mark.sweep
def test_lynxes_and_hares_are_thirty_lines():
    """The density by SciPy's solver and its law of log-normal errors; the gradient by differences."""
    model, lines = cycles()
    assert len(lines) <= 30
    assert model.runs_as_python is None
    density = []
    for shift in (0.0, 0.1):
        q = np.log([0.55, 0.028, 0.8, 0.024, 34.0, 5.9, 0.25, 0.25]) + shift * np.cos(np.arange(8))
        v, sigma = np.exp(q[:6]), np.exp(q[6:])
        rhs = lambda t, x: [(v[0] - v[1] * x[1]) * x[0], (v[3] * x[0] - v[2]) * x[1]]  # noqa: E731, B023
        x = scipy.integrate.solve_ivp(rhs, (0, 20), v[4:], "DOP853", np.arange(21), rtol=1e-11, atol=1e-11).y.T
        laws = [scipy.stats.norm(1, 0.5), scipy.stats.norm(0.05, 0.05)] * 2 + [scipy.stats.lognorm(1, scale=10)] * 2
        exact = sum(law.logpdf(each) for law, each in zip(laws, v, strict=True)) + q.sum()
        exact += scipy.stats.lognorm(1, scale=np.exp(-1)).logpdf(sigma).sum()
        exact += scipy.stats.lognorm.logpdf(model.data.y, sigma, scale=x).sum()
        density.append(model.log_density(q) - exact)
    assert density[0] == pytest.approx(density[1], abs=1e-5)
    for k in range(8):
        h = 1e-4 * np.eye(8)[k]
        difference = (model.log_density(q + h) - model.log_density(q - h)) / 2e-4
        assert model.gradient(q)[k] == pytest.approx(difference, rel=1e-5, abs=1e-3)


@pytest.mark.sweep
def test_lynxes_and_hares_have_the_published_posterior():
    """Means and mean squares against posteriordb's hudson_lynx_hare-lotka_volterra (10,000 draws of Stan's).

    16 z of two Monte Carlo errors each, at 1e-4 for all (Sidak); 0.02 standard deviations are allowed for Stan's solver, whose
    tolerances there are 1e-5 and 1e-3.
    """
    means = [0.546864499783931, 0.0277472877678081, 0.800095360233122, 0.0240859152534545]
    means += [34.0352224770469, 5.93589713368062, 0.24805686320252, 0.251016914583618]
    means_se = [0.00062626907415417, 4.11604266143508e-05, 0.000884603225898987, 3.50047668143892e-05]
    means_se += [0.0293082761729642, 0.00533872103038814, 0.000439337727695207, 0.000439525598676463]
    squares = [0.3030362900, 0.0007871719, 0.6481388153, 0.0005925775, 1166.9038171313, 35.5163321009]
    squares += [0.0634036795, 0.0649094189]
    squares_se = [0.000702338064, 0.000002383326, 0.001458682363, 0.000001773506, 2.021219162061, 0.064593205736]
    squares_se += [0.000237267243, 0.000238366766]
    model, _ = cycles()
    result = refhmc.sample(model, random_seed=20261123, draws=1000, chains=4, progressbar=False, raw=True)
    assert not result.sample_stats["diverging"].any()
    x = np.concatenate([v.reshape(4, 1000, -1) for v in result.posterior.values()], axis=2)
    bound = scipy.stats.norm.isf((1 - (1 - 1e-4) ** (1 / 16)) / 2)
    for values, published, published_se in ((x, means, means_se), (x**2, squares, squares_se)):
        sd = values.std(axis=(0, 1))
        errors = sd / np.sqrt(refhmc.diagnostics.ess(values))
        z = (values.mean(axis=(0, 1)) - published) / np.hypot(errors, published_se)
        assert (np.abs(z) < bound + 0.02 * sd / np.hypot(errors, published_se)).all()


def top_level(path):
    """Name -> line of the functions and classes of a file, and the line of its first compiled function."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    named = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    compiled = [node.lineno for node in named if any("jit" in ast.unparse(each) for each in node.decorator_list)]
    return {node.name: node.lineno for node in named}, min(compiled, default=math.inf)


def test_where_to_read_lists_the_files_with_array_implementations():
    """They stand above what is compiled. Gibbs and Tempered have none, and NaiveSplit shares that of the leapfrog."""
    page = (ROOT / GUIDE / "where_to_read.md").read_text(encoding="utf-8")
    names: dict = {"refhmc": refhmc}
    cell = next(block for block in code_of(GUIDE + "where_to_read.md") if "Markdown" in block)
    exec(compile(cell.partition("from IPython")[0], "guide", "exec"), names)
    for file, classes in names["files"].items():
        lines, compiled = top_level(ROOT / file)
        functions = ("step", "composed", "kicks_and_drifts", "transition")
        texts = [name for name in lines if name.endswith("OnArrays") or name in functions]
        assert classes in (["`Gibbs`"], ["`Tempered`"], ["`NaiveSplit`"]) or any(
            lines[name] < compiled for name in texts
        ), file
    rows = re.findall(r"^\| .+ \| \[.+\]\(\.\./\.\./(refhmc/.+)\) \| `(.+)` \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for file, name in rows:
        lines, compiled = top_level(ROOT / file)
        assert lines[name] < compiled


def test_the_example_on_arrays_runs():
    blocks = code_of(GUIDE + "where_to_read.md")
    names: dict = {"np": np, "refhmc": refhmc}
    exec(compile(next(block for block in blocks if "refhmc.array_api" in block), "guide", "exec"), names)
    assert names["q"].shape == names["p"].shape == (100, 4)
    assert np.isfinite(names["q"]).all()


@pytest.fixture
def self_tuning():
    """The names of the page's cells about NUTS and about apogees."""
    names: dict = {"np": np, "refhmc": refhmc}
    for cell in code_of(GUIDE + "self_tuning.md")[1:]:
        exec(compile(cell, "guide", "exec"), names)
    return names


def test_nuts_and_apogee_paths_are_self_tuning_that_always_accepts(self_tuning):
    for made in (self_tuning["moves"], self_tuning["paths"]):
        np.testing.assert_allclose([each.probability for each in made], 1.0, rtol=0, atol=1e-9)
        assert len({each.parameter[2] for each in made}) > 5
    rng = np.random.default_rng(2)
    for _ in range(4):  # the probabilities of all parameters add up to 1
        q, p = rng.standard_normal((2, 2)) * np.array([1.0, 3.0])
        orbits = [(a, a + n - 1) for n in (1, 2, 4, 8) for a in range(1 - n, 1)]
        total = sum(np.exp(self_tuning["log_probability"]((a, b, i), q, p)) for a, b in orbits for i in range(a, b + 1))
        assert total == pytest.approx(1.0, abs=1e-12)


def test_doubling_that_looks_only_at_the_whole_orbit_would_not_always_accept(self_tuning):
    """Without the halves the ratio of the orbits' probabilities is not 1, as the page states."""
    state, rng, ratios = self_tuning["state"], np.random.default_rng(3), []

    def turns(q, p, a, b):
        (q_a, p_a), (q_b, p_b) = state(q, p, a), state(q, p, b)
        return a != b and ((q_b - q_a) @ p_a <= 0 or (q_b - q_a) @ p_b <= 0)

    self_tuning |= {"turns": turns, "eps": 1.9}  # two neighbours may turn, and four states not
    parts = [self_tuning[name] for name in ("draw", "log_probability", "move")]
    for _ in range(60):
        q, p = rng.standard_normal((2, 2)) * np.array([[1.0, 3.0], [1.0, 1.0]])
        ratios.append(refhmc.array_api.self_tuning(self_tuning["H"], q, p, 0.5, *parts).probability)
    assert np.min(ratios) == 0


def test_the_gallery_shows_every_model_and_links_files_that_exist():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    models = {name for name in refhmc.models.__all__ if name[0].isupper()} - {"ODESolution", "SplitModel"}
    assert {name for name in models if f"{name}`" not in page} == set()
    links = re.findall(r"\]\((\.\./[^)]+)\)", page)
    assert {link for link in links if not (ROOT / "docs" / link).resolve().is_file()} == set()
    figures = {path.name for path in (ROOT / "validation" / "results").glob("*_figure?.png")}
    assert {name for name in figures if name not in page} == set()


def test_coupled_chains_agree_with_the_known_answers():
    """Means of the page within 6 standard errors (false alarm below 1e-7 for four means)."""
    names: dict = {}
    for block in code_of(GUIDE + "coupled.md"):
        exec(compile(block, "guide", "exec"), names)
    pairs, squares = names["pairs"], names["squares"]
    assert pairs.met.all()
    assert squares.met.all()
    reference = names["model"].reference
    for name in ("mu", "tau"):
        k = names["model"].reference_names.index(name)
        error = math.hypot(pairs.standard_error[name], reference.mean_se[k])
        assert abs(pairs.mean[name] - reference.mean[k]) < 6 * error
    assert np.all(np.abs(squares.mean["x^2"] - [2.0, 3.0]) < 6 * squares.standard_error["x^2"])
    assert pairs.total_variation[0] > 0.5
    assert pairs.total_variation[80:].max(initial=0) < 0.1


def test_tempered_draws_of_the_page_agree_with_the_known_answers():
    """The share of a mode and log Z within 6 standard errors (false alarm below 1e-7 for both)."""
    names: dict = {}
    for block in code_of(GUIDE + "several_modes.md"):
        exec(compile(block, "guide", "exec"), names)
    left = (names["tempered"].draws[:, :, :1] < 0).astype(float)
    error = left.std() / np.sqrt(refhmc.diagnostics.ess_of_mean(left)[0])
    assert abs(left.mean() - 0.2) < 6 * error
    assert abs(names["about"]["log_z"] - math.log(3)) < 6 * names["about"]["log_z_error"]
    assert {0.0, 1.0} >= set((names["by_nuts"].draws[:, :, 0] < 0).mean(axis=1))

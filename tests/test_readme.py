"""The README's model is complete, short, and does what it says."""

from __future__ import annotations

import ast
import math
import re

import numpy as np
import pytest
import scipy.special

import refhmc
from tests.helpers.places import ROOT

README = ROOT / "README.md"


def test_the_models_code_runs_and_is_short():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    own = next(block for block in blocks if "refhmc.Model(" in block)
    assert len(own.strip().splitlines()) < 25
    names: dict = {}
    exec(
        compile(
            own.replace(
                "refhmc.sample(model, random_seed=1)", "refhmc.sample(model, random_seed=1, progressbar=False)"
            ),
            "README",
            "exec",
        ),
        names,
    )
    model, q = names["model"], np.array([2.0, 0.3])
    assert model.runs_as_python is None
    h = 1e-6 * np.eye(2)
    differences = [(model.log_density(q + e) - model.log_density(q - e)) / 2e-6 for e in h]
    np.testing.assert_allclose(model.gradient(q), differences, rtol=1e-6)


def test_the_same_model_by_name_is_the_same():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    by_hand = next(block for block in blocks if "refhmc.Model(" in block).rpartition("print(")[0]
    by_name = next(block for block in blocks if "refhmc.Parameters(" in block).rpartition("refhmc.sample(")[0]
    one: dict = {}
    exec(compile(by_hand, "README", "exec"), one)
    other = dict(one)
    exec(compile(by_name.replace("data=y", "data=y, in_python='a few calls'"), "README", "exec"), other)
    for q in np.array([[2.0, 0.3], [-1.0, -2.0]]):
        assert other["model"].log_density(q) == pytest.approx(one["log_density"](q, one["y"]), rel=1e-14)
        np.testing.assert_allclose(other["model"].gradient(q), one["gradient"](q, one["y"]), rtol=1e-13)


def test_the_derived_text_is_the_one_shown():
    pytest.importorskip("sympy", reason="SymPy is not installed (extra sympy)")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    made = next(block for block in blocks if "refhmc.derive(" in block).rpartition("print(")[0]
    shown = next(block for block in blocks if block.startswith("def hessian(q, data, out):"))
    names: dict = {"np": np, "refhmc": refhmc}
    exec(compile(made, "README", "exec"), names)
    source = ast.parse(names["model"].source)
    (hessian,) = (each for each in source.body if getattr(each, "name", "") == "hessian")
    assert ast.unparse(hessian) == ast.unparse(ast.parse(shown))


def test_the_integers_example_runs():
    """And agrees with the sum over N: P(N) ~ 1/N N!/(N - y)! B(y + 1, N - y + 1); z below 4.5 is passed by 1 - 7e-6."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    text = next(block for block in blocks if "refhmc.Embedding(" in block).rpartition("refhmc.sample(")[0]
    names: dict = {"np": np, "refhmc": refhmc}
    exec(compile(text, "README", "exec"), names)
    result = refhmc.sample(names["animals"], random_seed=1, progressbar=False, raw=True)
    N = np.arange(20, 500)
    weight = scipy.special.softmax(-np.log(N) + scipy.special.gammaln(N + 1) - scipy.special.gammaln(N + 2))
    inverse = 1 / result.posterior["N"]
    error = inverse.std() / np.sqrt(float(refhmc.diagnostics.ess(inverse[:, :, None])[0]))
    assert abs(inverse.mean() - weight @ (1 / N)) < 4.5 * error
    assert names["animals"].runs_as_python is None


def test_the_kits_example_finds_the_slip():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    example = next(block for block in blocks if "rc.integrator(" in block)
    names: dict = {}
    exec(compile(example, "README", "exec"), names)
    assert not names["report"].ok
    assert names["report"].row("elapsed time").status == "FAIL"
    assert names["report"].severity == "inefficient"


def test_the_growth_curve_is_a_model():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    example = next(block for block in blocks if "refhmc.models.ODE(" in block)
    names: dict = {"np": np, "refhmc": refhmc}
    few = "initvals=[1, 1], draws=5, tune=0, chains=1, progressbar=False)"
    assert "initvals=[1, 1])" in example
    exec(compile(example.replace("initvals=[1, 1])", few), "README", "exec"), names)
    model, q = names["growth"], np.array([0.9, 1.1])
    t, (r, K) = np.arange(5.0), q
    x = K / (1 + (K / 0.1 - 1) * np.exp(-r * t))
    exact = -0.5 * np.sum(((names["y"][:, 0] - x) / 0.05) ** 2) - 0.5 * np.sum((q - 1) ** 2)
    np.testing.assert_allclose(model.log_density(q), exact, rtol=1e-7)


def top_level(path):
    """Name -> line of the functions and classes of a file, and the line of its first compiled function."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    named = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    compiled = [node.lineno for node in named if any("jit" in ast.unparse(each) for each in node.decorator_list)]
    return {node.name: node.lineno for node in named}, min(compiled, default=math.inf)


def test_where_to_read_names_texts_that_are_there():
    """Above what is compiled, and for every metric, integrator and kernel."""
    rows = re.findall(r"^\| (.+) \| (`refhmc/.+`) \| (`.+`) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    quoted = re.compile(r"`([^`]+)`")
    for what, files, names in rows:
        first, *rest = quoted.findall(files)
        paths = [ROOT / first, *(ROOT / first).parent.glob("|".join(rest) or "-")]
        tops = [top_level(path) for path in paths]
        for name in quoted.findall(names):
            (line, compiled) = next((lines[name], compiled) for lines, compiled in tops if name in lines)
            assert line < compiled, (what, name)
    told = {name for what, _, _ in rows for name in quoted.findall(what)}
    ours = {
        *refhmc.metrics.METRICS.values(),
        *refhmc.integrators.INTEGRATORS.values(),
        refhmc.HMC,
        refhmc.NUTS,
        refhmc.DHMC,
    }
    assert {each.__name__ for each in ours} <= told


def test_the_example_on_arrays_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {"np": np, "refhmc": refhmc}
    exec(compile(next(block for block in blocks if "refhmc.arrays" in block), "README", "exec"), names)
    assert names["q"].shape == names["p"].shape == (100, 4)
    assert np.isfinite(names["q"]).all()

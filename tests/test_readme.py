"""The README's model is complete, short, and does what it says."""

from __future__ import annotations

import pathlib
import re

import numpy as np

import refhmc

README = pathlib.Path(__file__).parents[1] / "README.md"


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
    few = "refhmc.sample(growth, draws=5, tune=0, chains=1, progressbar=False, "
    exec(compile(example.replace("refhmc.sample(growth, ", few), "README", "exec"), names)
    model, q = names["growth"], np.array([0.9, 1.1])
    t, (r, K) = np.arange(5.0), q
    x = K / (1 + (K / 0.1 - 1) * np.exp(-r * t))
    exact = -0.5 * np.sum(((names["y"][:, 0] - x) / 0.05) ** 2) - 0.5 * np.sum((q - 1) ** 2)
    np.testing.assert_allclose(model.log_density(q), exact, rtol=1e-7)

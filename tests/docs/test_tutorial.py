"""The models of the tutorial are right. ``test_book.py`` runs it as a notebook, and the Sphinx build runs it as a page."""

from __future__ import annotations

import numpy as np

from tests.helpers.pages import code_of
from tests.helpers.places import ROOT

PAGE = "docs/guide/tutorial.md"


def test_gradients_of_tutorial_are_derivatives():
    """Compare with central differences, and the Fisher metric with the Hessian: both agree for a logistic regression."""
    needed = ("predictors =", "parameters =", "def log_density", "def grouped_log_density", "def fisher(")
    table = next(block for block in code_of(PAGE) if "read_csv" in block)
    names: dict = {}
    exec(compile(table.replace("import matplotlib.pyplot as plt", "").replace("heart.head()", ""), PAGE, "exec"), names)
    for block in code_of(PAGE):
        if any(each in block for each in needed):
            exec(compile(block.partition("riemannian_model =")[0], PAGE, "exec"), names)
    X, y, group = names["X"], names["y"], names["group"]
    rng = np.random.default_rng(1)
    for parameters, functions, data in (
        (names["parameters"], (names["log_density"], names["gradient"]), (X, y)),
        (names["grouped_parameters"], (names["grouped_log_density"], names["grouped_gradient"]), (X, y, group)),
    ):
        model = parameters.model(*functions, data=data, in_python="a few calls")
        for q in rng.normal(size=(3, model.dim)):
            steps = 1e-5 * np.eye(model.dim)
            differences = [(model.log_density(q + e) - model.log_density(q - e)) / 2e-5 for e in steps]
            np.testing.assert_allclose(model.gradient(q), differences, rtol=1e-6, atol=1e-6)
    derivatives = {name: names[name] for name in ("fisher", "fisher_contraction")}
    model = names["parameters"].model(
        names["log_density"], names["gradient"], data=(X, y), in_python="a few calls", **derivatives
    )
    q, M = rng.normal(size=model.dim), rng.normal(size=(model.dim, model.dim))
    steps = 1e-5 * np.eye(model.dim)
    hessian = np.array([(model.gradient(q + e) - model.gradient(q - e)) / 2e-5 for e in steps])
    np.testing.assert_allclose(model.fisher(q), -hessian, rtol=1e-6, atol=1e-6)
    contracted = [np.sum(M * (model.fisher(q + e) - model.fisher(q - e))) / 2e-5 for e in steps]
    np.testing.assert_allclose(model.fisher_contraction(q, M + M.T) / 2, contracted, rtol=1e-5, atol=1e-5)


def test_data_of_tutorial_are_licensed():
    licences = (ROOT / "refhmc/data/LICENSES.md").read_text(encoding="utf-8")
    (row,) = [line for line in licences.splitlines() if "`heart_statlog.csv`" in line]
    assert row.endswith("| CC BY 4.0 |")
    assert "CC BY 4.0" in (ROOT / PAGE).read_text(encoding="utf-8")

"""The derivatives of the regression by hand are right. The Sphinx build runs the page."""

from __future__ import annotations

import numpy as np

from tests.helpers.pages import code_of
from tests.helpers.places import ROOT

PAGE = "docs/guide/by_hand.md"


def test_derivatives_of_the_page_are_derivatives():
    """Compare with central differences, and the Fisher metric with the Hessian: both agree for a logistic regression."""
    needed = ("read_csv", "parameters =", "def log_density", "def fisher(")
    names: dict = {}
    for block in code_of(PAGE):
        if any(each in block for each in needed):
            text = block.partition("riemannian_model =")[0].replace("import arviz as az", "")
            exec(compile(text, PAGE, "exec"), names)
    X, y, rng = names["X"], names["y"], np.random.default_rng(1)
    model = names["parameters"].model(names["log_density"], names["gradient"], data=(X, y), in_python="a few calls")
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


def test_data_of_the_pages_are_licensed():
    licences = (ROOT / "refhmc/data/LICENSES.md").read_text(encoding="utf-8")
    (row,) = [line for line in licences.splitlines() if "`heart_statlog.csv`" in line]
    assert row.endswith("| CC BY 4.0 |")
    for page in (PAGE, "docs/guide/tutorial.md"):
        assert "CC BY 4.0" in (ROOT / page).read_text(encoding="utf-8")

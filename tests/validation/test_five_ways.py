"""The five texts of one posterior are the same model to third order, and the page shows them as they are."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from tests.helpers.places import ROOT
from validation.benchmarks.five_ways import PAGE, WAYS, lines_of, model_of, text_of

SLOW = [pytest.param(way, marks=pytest.mark.sweep) for way in ("by_parameters", "by_pymc", "by_jax")]


@pytest.fixture(scope="module")
def by_hand():
    return model_of("by_hand")


@pytest.mark.sweep
@pytest.mark.parametrize("way", ["by_sympy", *SLOW])
def test_each_way_is_the_model_by_hand(by_hand, way):
    """Density up to its constant, gradient, Hessian and trace to 1e-10 of the largest entry; the values that users see."""
    for package in WAYS[way][1]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    model = model_of(way)
    rng = np.random.default_rng(1)
    points = rng.normal(0, 1, (3, 10))
    points[:, 9] = -4.0, 0.7, 4.0
    start = np.zeros(10)
    for q in points:
        M = rng.standard_normal((10, 10))
        change = by_hand.log_density(q) - by_hand.log_density(start)
        assert model.log_density(q) - model.log_density(start) == pytest.approx(change, rel=1e-11)
        for key, arguments in {"gradient": (), "hessian": (), "hessian_contraction": (M,)}.items():
            expected = getattr(by_hand, key)(q, *arguments)
            found = getattr(model, key)(q, *arguments)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * abs(expected).max(), err_msg=key)
    values, expected = model.constrain(points), by_hand.constrain(points)
    assert list(values) == list(expected)
    for name, each in expected.items():
        np.testing.assert_allclose(values[name], each, rtol=1e-12)


@pytest.mark.sweep
def test_the_model_by_hand_is_the_built_in_one(by_hand):
    import refhmc

    built_in = refhmc.models.EightSchools()
    rng = np.random.default_rng(2)
    for q, M in zip(rng.normal(0, 1.5, (3, 10)), rng.standard_normal((3, 10, 10)), strict=True):
        for key, arguments in {"gradient": (), "hessian": (), "hessian_contraction": (M,)}.items():
            expected = getattr(built_in, key)(q, *arguments)
            np.testing.assert_allclose(
                getattr(by_hand, key)(q, *arguments), expected, rtol=0, atol=1e-10 * abs(expected).max()
            )


def test_the_page_shows_the_texts():
    page = PAGE.read_text(encoding="utf-8")
    for way in WAYS:
        assert f"```python\n{text_of(way).strip()}\n```" in page
        assert lines_of(way) > 10
    assert PAGE.is_relative_to(ROOT / "docs")

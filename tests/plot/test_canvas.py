"""Figures have no window, and without Matplotlib every plot names what to install."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import refhmc
from refhmc.plot import canvas
from tests.helpers.made_runs import made_run


def test_no_picture_makes_a_window_or_stays_open(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # whoever imports it fails
    figure = refhmc.plot.overview(made_run())
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert refhmc.plot.pairs(made_run()).figure._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib(monkeypatch, tmp_path):
    canvas.picture_class.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = made_run(implicit=True)
    drawn = [
        refhmc.plot.overview,
        refhmc.plot.pairs,
        refhmc.plot.solver_iterations,
        refhmc.plot.adaptation,
        lambda run: refhmc.plot.report(run, tmp_path / "r"),
    ]
    for draw in drawn:
        with pytest.raises(ImportError, match=r"refhmc\[plot\]"):
            draw(run)
    canvas.picture_class.cache_clear()


def test_limits_contain_the_finite_values():
    low, high = canvas.limits([0.0, 4.0, np.nan], [-1.0, np.inf], share=0.1)
    assert (low, high) == (-1.5, 4.5)
    assert canvas.limits([2.0]) == (1.0, 3.0)
    assert canvas.limits([np.nan]) == (-1.0, 1.0)


def test_contours_are_at_the_levels_of_the_density():
    """For a Gaussian with precision matrix A, u' A u = 1 at the first level, and 4 at the second."""
    S = np.array([[2.0, 0.6], [0.6, 1.0]])
    ax = canvas.new_figure().subplots()
    model = refhmc.models.Gaussian(np.zeros(2), S)
    canvas.density_contours(ax, model, (0, 1), np.zeros(2), (-3.0, 3.0), (-3.0, 3.0))
    (lines,) = ax.collections
    for path, level in zip(lines.get_paths()[:2], (1.0, 4.0), strict=True):
        u = path.vertices
        distance = np.einsum("ni,ij,nj->n", u, np.linalg.inv(S), u)
        np.testing.assert_allclose(distance, level, rtol=0.03)  # of straight pieces on a grid of 0.1


def test_dollar_sign_does_not_start_a_formula():
    figure = refhmc.plot.overview(made_run(d=1, name="$a$_{"))
    assert figure._repr_png_()
    assert figure.axes[0].get_ylabel() == r"\$a\$_{[0]"


def test_a_name_is_never_tex():
    """Even with ``text.usetex``: TeX could read files, and the underscore of ``log_sigma`` would stop it."""
    import matplotlib

    name = r"\input{/etc/passwd}_%"
    with matplotlib.rc_context({"text.usetex": True}):
        figures = [
            refhmc.plot.pairs(made_run(name=name)).figure,
            refhmc.plot.overview(made_run(name=name, model=name)),
        ]
    for figure in figures:
        labels = [label for ax in figure.axes for label in (ax.xaxis.label, ax.yaxis.label)]
        named = [each for each in (*labels, figure._suptitle) if each is not None and name in each.get_text()]
        assert named
        assert not any(each.get_usetex() for each in named)

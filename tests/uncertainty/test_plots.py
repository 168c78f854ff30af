"""Plots show the numbers: the test reads them back from the axes."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import refhmc.uncertainty as u
from refhmc.errors import ShapeError

RNG = np.random.default_rng(0)
P, Y = RNG.dirichlet([1.0, 0.5, 0.2], (4, 40)), RNG.integers(0, 2, 40)


@pytest.fixture
def ax():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    return figure.subplots()


def test_calibration(ax):
    assert u.plot_calibration_curve(P, Y, 10, ax=ax, label="mine") is ax
    curve = u.calibration_curve(P, Y, 10)
    there = curve.rows > 0
    x, height = ax.get_lines()[1].get_data()
    assert np.array_equal(x, curve.confidence[there])
    assert np.array_equal(height, curve.accuracy[there])
    assert ax.get_legend().get_texts()[0].get_text() == f"mine, ECE {u.expected_calibration_error(P, Y, 10):.3f}"


def test_cumulative_entropy(ax):
    u.plot_cumulative_entropy(P, Y, ax=ax, label="mine")
    x, height = ax.get_lines()[0].get_data()
    entropy, share = u.cumulative_entropy(P, Y)
    assert np.array_equal(x[1:-1], entropy)
    assert np.array_equal(height, [0, *share, 1])
    assert x[-1] == np.log(3)
    u.plot_cumulative_entropy(P, u.predicted_class(P), ax=ax)  # nothing is wrong: a line at zero
    assert ax.get_lines()[1].get_ydata().tolist() == [0, 0]


def test_matrix(ax):
    u.plot_mutual_information_matrix(P, Y, names=["a", "b", "c"], ax=ax, vmax=1.0)
    mean, rows = u.mutual_information_matrix(P, Y)
    shown = ax.get_images()[0].get_array()
    assert np.array_equal(shown.mask, rows == 0)
    assert np.array_equal(shown.compressed(), mean[rows > 0])
    assert {text.get_text() for text in ax.texts} == {f"{each:.2f}" for each in mean[rows > 0]}
    assert len(ax.patches) == 3
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b", "c"]


def test_band(ax):
    x, mean, sd = np.array([3.0, 1.0, 2.0]), RNG.normal(size=(2, 5, 3, 1)), np.full((2, 5), 0.4)
    u.plot_band(x[:, None], mean, sd, data=([0.0], [1.0]), ax=ax)
    line, points = ax.get_lines()
    assert line.get_xdata().tolist() == [1, 2, 3]
    np.testing.assert_allclose(line.get_ydata(), mean.mean((0, 1))[[1, 2, 0], 0])
    assert points.get_xydata().tolist() == [[0, 1]]
    wide, narrow = (area.get_paths()[0].vertices for area in ax.collections)
    for vertices, width in ((wide, 2.0), (narrow, 1.0)):
        low, high = u.band(mean, sd, width)
        assert vertices[:, 1].min() == low.min()
        assert vertices[:, 1].max() == high.max()


@pytest.mark.parametrize("x", [np.zeros(2), np.zeros(4), np.zeros((3, 2)), np.zeros((1, 3))])
def test_plot_band_rejects_x_of_another_length(x, ax):
    with pytest.raises(ShapeError, match=r"x must .*\(3,\) or \(3, 1\)"):
        u.plot_band(x, np.zeros((2, 3, 1)), np.ones(2), ax=ax)


def test_new_axes_and_missing_matplotlib(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    new = u.plot_calibration_curve(P, Y)
    assert pyplot.fignum_exists(new.figure.number)
    pyplot.close(new.figure)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"refhmc\[plot\]"):
        u.plot_calibration_curve(P, Y)

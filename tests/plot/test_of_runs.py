"""Plots of runs show the values of the run, whatever its size."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

import refhmc
from refhmc.plot import canvas
from tests.helpers.made_runs import made_run
from tests.helpers.sweeps import representatives

RUN = made_run(chains=3, draws=25, d=2, warmup=60, diverging=[(0, 3), (2, 0), (2, 11)], implicit=True)
SIZES = {
    "no draws": made_run(draws=0, implicit=True),
    "one draw": made_run(draws=1, implicit=True),
    "one chain": made_run(chains=1, implicit=True),
    "one dimension": made_run(d=1, diverging=[(0, 0), (1, 4)], implicit=True),
    "all diverging": made_run(diverging="all", implicit=True),
    "warm-up alone": made_run(draws=0, warmup=20, implicit=True),
    "many chains": made_run(chains=40, draws=8, warmup=8, implicit=True),
}
PICTURES = ("overview", "pairs", "solver_iterations", "adaptation")


@pytest.mark.parametrize("size", representatives(SIZES, ["no draws"]))
@pytest.mark.parametrize("picture", PICTURES)
def test_every_size(picture, size):
    made = getattr(refhmc.plot, picture)(SIZES[size])
    assert (made if hasattr(made, "savefig") else made.figure)._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("picture", representatives(PICTURES, ["pairs"]))
def test_arviz_object_and_arrays_give_the_same_plot(picture, tmp_path):
    RUN.to_arviz().to_netcdf(str(tmp_path / "run.nc"))
    tree = xarray.open_datatree(tmp_path / "run.nc", engine="h5netcdf")
    drawn = [getattr(refhmc.plot, picture)(result) for result in (RUN, RUN.to_arviz(), tree)]
    first, *others = [
        [line.get_xydata() for ax in (each.axes if hasattr(each, "savefig") else [each]) for line in ax.get_lines()]
        for each in drawn
    ]
    assert first
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_at_most_sixteen_chains_are_lines():
    run = made_run(chains=40, draws=8, warmup=8, diverging=[(39, 1)], implicit=True)
    figure = refhmc.plot.overview(run)
    assert figure.get_suptitle() == "a model: 40 chains (16 are drawn) of 8 draws; 1 divergence (red)"
    assert len(figure.axes[0].get_lines()) == 16
    _, beside = refhmc.plot.solver_iterations(run).axes
    assert sum(bar.get_width() for bar in beside.patches) == 320


def named(x, run):
    """Return the run with the variables of the funnel."""
    return refhmc.Result({**run.groups, "posterior": {"v": x[:, :, 0], "x": x[:, :, 1:]}}, run.attributes)


def test_overview_shows_draws_truth_divergences_and_energies():
    x, stats = RUN.posterior["x"], RUN.sample_stats
    figure = refhmc.plot.overview(named(x, RUN), refhmc.models.Funnel(1))
    assert [ax.get_ylabel() for ax in figure.axes[::2]] == ["v", "x[0]", "energy"]
    for along, values in zip(figure.axes[::2], (x[:, :, 0], x[:, :, 1], stats["energy"]), strict=True):
        for chain in range(3):
            np.testing.assert_array_equal(along.get_lines()[chain].get_ydata(), values[chain])
    along, beside = figure.axes[:2]
    ticks, mean = along.get_lines()[3:]
    assert sorted(ticks.get_xdata().tolist()) == [0, 3, 11]
    assert mean.get_ydata() == [0.0, 0.0]
    (band,) = [patch for patch in beside.patches if hasattr(patch, "get_width")]
    assert (band.get_x(), band.get_width()) == pytest.approx((-3.0, 6.0))  # v ~ N(0, 9)
    assert figure.get_suptitle() == "a model: 3 chains of 25 draws; 3 divergences (red)"
    assert len(refhmc.plot.overview(made_run(d=9)).axes) == 14  # six scalars and the energy


def test_truth_without_sd_is_a_line(monkeypatch):
    monkeypatch.setattr("refhmc.plot.overviews.truth_of", lambda model: {"v": (0.25, None)})
    _, beside, *_ = refhmc.plot.overview(named(RUN.posterior["x"], RUN), refhmc.models.Funnel(1)).axes
    assert [line.get_xdata()[0] for line in beside.lines] == [0.25]
    assert not [each for each in beside.patches if each.get_label() == "true sd"]


def test_pairs_shows_draws_and_starts_of_divergences():
    ax = refhmc.plot.pairs(RUN, "x[1]", "x[0]")
    draws, crosses = ax.get_lines()
    x, warm = RUN.posterior["x"], RUN.groups["warmup_posterior"]["x"]
    np.testing.assert_array_equal(draws.get_xydata(), x[:, :, ::-1].reshape(-1, 2))
    starts = np.array([x[0, 2], warm[2, -1], x[2, 10]])[:, ::-1]
    np.testing.assert_array_equal(crosses.get_xydata(), starts)
    assert crosses.get_label() == "starts of divergences: 3"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x[1]", "x[0]")
    with pytest.raises(ValueError, match=r"x and y must .*x and x\[0\].*x\[0\], x\[1\]"):
        refhmc.plot.pairs(RUN, "x", "x[0]")


def test_overview_shows_the_distribution_of_the_energy_and_e_bfmi():
    beside = refhmc.plot.overview(RUN).axes[-1]
    energies = RUN.sample_stats["energy"]
    low, high = np.quantile(energies, [0.001, 0.999])
    for of_chain, patch in zip(energies, beside.patches, strict=True):
        heights, _ = np.histogram(of_chain, 40, (low, high), density=True)
        assert patch.get_path().vertices[:, 1].max() == pytest.approx(heights.max())
    bfmi = [np.sum(np.diff(e) ** 2) / np.sum((e - e.mean()) ** 2) * len(e) / (len(e) - 1) for e in energies]
    assert beside.get_title() == f"E-BFMI {min(bfmi):.2f} to {max(bfmi):.2f}"


@pytest.mark.parametrize(
    ("name", "words"), [("trace", "arviz.plot_trace"), ("energy_transitions", "arviz.plot_energy")]
)
def test_plots_that_arviz_has_are_named_in_the_error(name, words):
    with pytest.raises(AttributeError, match=f"refhmc.plot.{name} has been removed. Use {words}"):
        getattr(refhmc.plot, name)


def test_step_size_is_plotted_without_an_energy():
    run = made_run()
    stats = {name: value for name, value in run.sample_stats.items() if name not in ("energy", "lp")}
    bare = refhmc.Result({**run.groups, "sample_stats": stats}, run.attributes)
    assert refhmc.plot.overview(bare).axes[-2].get_ylabel() == "step size"


def test_solver_iterations_and_failures():
    along, beside = refhmc.plot.solver_iterations(RUN).axes
    stats = RUN.sample_stats
    a_step = stats["solver_iterations"] / stats["n_steps"]
    lines = along.get_lines()
    for chain in range(3):
        np.testing.assert_array_equal(lines[chain].get_ydata(), a_step[chain])
    np.testing.assert_array_equal(lines[3].get_xydata(), [[2, a_step[0, 2]]])
    np.testing.assert_array_equal(lines[4].get_xydata(), [[4, a_step[2, 4]], [5, a_step[2, 5]]])
    assert [line.get_label() for line in lines[3:]] == ["solver failed: 1", "not reversible: 2"]
    assert sum(bar.get_width() for bar in beside.patches) == a_step.size
    with pytest.raises(ValueError, match="implicit integrator"):
        refhmc.plot.solver_iterations(made_run())


def test_adaptation_shows_the_warm_up():
    steps, accepted, windows, variances = refhmc.plot.adaptation(RUN).axes
    warm = RUN.groups["warmup_sample_stats"]
    for chain in range(3):
        np.testing.assert_array_equal(steps.get_lines()[chain].get_ydata(), warm["step_size"][chain])
        np.testing.assert_array_equal(variances.get_lines()[chain].get_ydata(), [1.0 + chain] * 2)
        line = accepted.get_lines()[chain]
        rates = warm["acceptance_rate"][chain]
        assert line.get_xdata().tolist() == list(range(49, 60))
        np.testing.assert_allclose(line.get_ydata(), [rates[k - 49 : k + 1].mean() for k in range(49, 60)])
    levels = [line.get_ydata()[0] for line in steps.get_lines() if line.get_linestyle() == "--"]
    assert levels == [each.step_size for each in RUN.adapted]
    np.testing.assert_array_equal(windows.get_lines()[0].get_xydata(), [[10, 2], [25, 3]])  # on the diagonal
    np.testing.assert_array_equal(windows.get_lines()[1].get_xydata(), [[10, 2], [25, 1.5]])
    assert {text.get_text() for text in windows.texts} == {"1"}
    assert accepted.get_lines()[3].get_label() == "target 0.8"


def test_adaptation_without_saved_warm_up():
    run = made_run()
    run.adapted.clear()
    words = [text.get_text() for ax in refhmc.plot.adaptation(run).axes for text in ax.texts]
    assert sum("save_warmup=True" in each for each in words) == 2
    assert sum("metric" in each for each in words) == 2


def test_given_figure_or_axes_are_used():
    for picture in ("overview", "solver_iterations", "adaptation"):
        given = canvas.new_figure()
        assert getattr(refhmc.plot, picture)(RUN, figure=given) is given
    ax = canvas.new_figure().subplots()
    assert refhmc.plot.pairs(RUN, ax=ax) is ax

"""Integers embedded in the line, and models that jump, with their errors and warnings.

The random checks are two chi-square tests at 1e-5 each, with fixed seeds.
"""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.errors import DiscontinuityWarning, InitError, ModelError, ShapeError
from refhmc.models.embedding import FARTHEST, Embedding
from tests.helpers.discontinuous_cases import (
    SWITCH,
    draw_switch,
    pair,
    switch,
    switch_change,
    switch_gradient,
    switch_log_density,
)
from tests.helpers.models import FEW_CALLS
from tests.helpers.sweeps import swept

SUPPORTS = [range(10, 50), range(1), range(-3, 4), (0, None), (1, None), [7, 8, 9]]


@pytest.mark.parametrize("a", ["n", "log n"])
@pytest.mark.parametrize("support", SUPPORTS, ids=str)
def test_embedding_round_trip(support, a):
    embedding = Embedding(support, a=a)
    n = np.arange(embedding.lowest, 301 if embedding.highest is None else embedding.highest + 1)
    assert np.array_equal(embedding.integers(embedding.embed(n)), n)
    low, high = embedding.border(n), embedding.border(n + 1)
    # Every position in the half-open cell, except within the rounding error of a logarithm at its ends.
    assert np.array_equal(embedding.integers(low + 1e-9 * (high - low)), n)
    assert np.array_equal(embedding.integers(high - 1e-9 * (high - low)), n)
    np.testing.assert_allclose([embedding.log_width(k) for k in n], np.log(high - low), atol=1e-12)
    again = pickle.loads(pickle.dumps(embedding))
    assert repr(again) == repr(embedding)
    assert np.array_equal(again.integers(low + 0.1 * (high - low)), n)


def test_cells_are_closed_above():
    linear = Embedding(range(5))
    assert linear.integers([0.0, 1e-300, 1.0, np.nextafter(1.0, 2), 4.0, 5.0, 5.1]).tolist() == [-1, 0, 0, 1, 3, 4, 5]
    assert Embedding(range(1, 9), a="log n").integers(0.0) == 0  # log 1 is not in the cell of 1


@pytest.mark.parametrize("support", [range(1, 3000), range(-3, 50), (900_000, None)])
def test_a_border_is_in_the_cell_below_it(support):
    """This holds for all integers, although exp(log n) is rounded up for some and down for others."""
    embedding = Embedding(support, a="log n")
    last = embedding.lowest + 3000 if embedding.highest is None else embedding.highest
    n = np.arange(embedding.lowest, last + 1)
    border = embedding.border(n)
    for integers in (embedding.integers, lambda x: [embedding.to_integer(each) for each in x]):
        assert np.array_equal(integers(border), n - 1)
        assert np.array_equal(integers(np.nextafter(border, np.inf)), n)
    whole = np.array([float(n[5]), float(n[6])])
    assert np.array_equal(embedding.border(whole.reshape(2, 1)), border[5:7].reshape(2, 1))


def test_positions_outside_give_integers_outside():
    for a in ("n", "log n"):
        embedding = Embedding(range(3, 8), a=a)
        n = embedding.integers([-np.inf, -1e300, 1e300, np.inf, np.nan])
        assert np.all(np.abs(n) < 2 * FARTHEST)
        assert not embedding.contains(n).any()


def test_widths_are_accurate_for_large_integers():
    """log(n + 1) - log(n) itself has lost all digits at 10^17."""
    embedding = Embedding((1, None), a="log n")
    for n in (1, 10**6, 10**15, 10**17):
        assert embedding.log_width(n) == pytest.approx(math.log(math.log1p(1 / n)), rel=1e-15)


@pytest.mark.parametrize("support", [[1, 3], [], (2.5, 3.5), 3, range(0, 10, 2), [2, 1], "ab"])
def test_support_must_be_consecutive_integers(support):
    with pytest.raises(ValueError, match="^support"):
        Embedding(support)
    with pytest.raises(ValueError, match="a must be.*sqrt n"):
        Embedding(range(3), a="sqrt n")


@pytest.mark.parametrize(("n", "named"), [(9, "9"), (50, "50"), (10.5, "10.5"), ([11, 60, 70], "60")])
def test_integers_outside_the_support_are_rejected(n, named):
    with pytest.raises(ValueError, match=rf"support.* 10 to 49.* got {named}\b"):
        Embedding(range(10, 50)).embed(n)


@pytest.mark.parametrize("a", ["n", "log n"])
def test_the_density_matches_the_probabilities(a):
    """Positions uniform in their cells have the embedded density: any subinterval has the mass that the widths give."""
    embedding = Embedding(range(2, 7), a=a)
    p = np.array([0.1, 0.4, 0.2, 0.05, 0.25])
    rng = np.random.default_rng(1)
    x = embedding.draw_position(rng, rng.choice(5, 20_000, p=p) + 2)
    edges = np.linspace(embedding.border(2), embedding.border(7), 30)
    n = np.arange(2, 7)
    low, high = embedding.border(n), embedding.border(n + 1)
    inside = np.clip(np.minimum.outer(edges[1:], high) - np.maximum.outer(edges[:-1], low), 0, None)
    mass = inside @ (p * np.exp([-embedding.log_width(k) for k in n]))
    assert mass.sum() == pytest.approx(1, abs=1e-12)
    assert scipy.stats.chisquare(np.histogram(x, edges)[0], mass * len(x)).pvalue > 1e-5


# ------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize(
    "model", [switch(), swept(pair()), refhmc.models.CellGrid(a="log n"), refhmc.models.ClosedPopulation()]
)
def test_the_change_is_the_difference_of_two_densities(model):
    rng = np.random.default_rng(2)
    draws = draw_switch(rng, 40) if model.name == "switch" else np.tile([0.3, 1.2, 0.1, 2.5], (40, 1))
    draws = model.reference.draw(rng, 40) if model.reference is not None else draws
    for q in draws:
        j, r = int(rng.choice(model.discontinuous)), q.copy()
        r[j] += rng.normal()
        kept = q.copy()
        want = model.log_density(r) - model.log_density(q)
        assert model.log_density_change(q, j, r[j]) == pytest.approx(want, abs=1e-9 * (1 + abs(want)))
        assert np.array_equal(q, kept)
    with pytest.raises(ShapeError):
        model.log_density_change(draws[0], model.dim, 0.0)


def make(**options):
    return refhmc.Model(2, switch_log_density, switch_gradient, data=SWITCH, **options)


def test_coordinates_by_index_or_name():
    assert make(discontinuous=[1, 0]).discontinuous.tolist() == [0, 1]
    assert make(names=["N[0]", "N[1]"], discontinuous=["N"]).discontinuous.tolist() == [0, 1]
    assert make(names=["N[0]", "x"], discontinuous=["x"]).discontinuous.tolist() == [1]
    assert make().discontinuous.tolist() == []
    for wrong in (["y"], [2], [-1], [True], [0.5]):
        with pytest.raises(ModelError, match="^discontinuous|index of discontinuous"):
            make(discontinuous=wrong)
    for twice in ([0, 1, 1], ["N", 1], ["N", "N[1]"]):
        with pytest.raises(ModelError, match=r"discontinuous.*'N\[1\]'.*coordinate 1"):
            make(names=["N[0]", "N[1]"], discontinuous=twice)
    with pytest.raises(ModelError, match=r"\(q, data, j, new_value\)"):
        make(discontinuous=[1], log_density_change=lambda q: 0.0)


def test_discontinuous_coordinates_are_part_of_the_model():
    models = [make(), make(discontinuous=[1]), make(discontinuous=[1], log_density_change=switch_change)]
    assert len({model.fingerprint() for model in models}) == 3
    again = pickle.loads(pickle.dumps(models[2]))
    assert again.fingerprint() == models[2].fingerprint()
    assert again.discontinuous.tolist() == [1]
    q = draw_switch(np.random.default_rng(1), 1)[0]
    assert again.log_density_change(q, 1, 0.2) == models[2].log_density_change(q, 1, 0.2)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (refhmc.models.CellGrid, ([1.0, 0.0],)),
        (refhmc.models.CellGrid, ([1.0], "m")),
        (refhmc.models.ClosedPopulation, (2, 9, 4)),
    ],
)
def test_invalid_arguments_of_discontinuous_models_are_rejected(function, arguments):
    with pytest.raises(ValueError):
        function(*arguments)


def test_closed_population_agrees_with_the_reference():
    from tests.helpers.places import oracles

    for row in oracles()["closed_capture_M0"]:
        model = refhmc.models.ClosedPopulation(row["T"], row["total_captures"], row["distinct"], row["Nmax"])
        np.testing.assert_allclose(model.reference.mean, [row["E_p"], row["E_N"]], rtol=1e-12)
        assert math.sqrt(model.reference.variance[1]) == pytest.approx(row["sd_N"], rel=1e-10)


def test_closed_population_gradient():
    model = refhmc.models.ClosedPopulation()
    for q in model.reference.draw(np.random.default_rng(3), 10):
        h = np.array([1e-6, 0.0])
        slope = (model.log_density(q + h) - model.log_density(q - h)) / 2e-6
        assert model.gradient(q) == pytest.approx([slope, 0.0], abs=1e-6)


# ---------------------------------------------------------------------------------------------------- invalid input


def test_start_outside_the_support_is_rejected(sample):
    model = refhmc.models.ClosedPopulation()
    with pytest.raises(InitError, match=r"-inf.*outside the support.*log_N = 3\.4"):
        sample(model, initvals=[0.0, 3.4])
    with pytest.raises(InitError, match="start .*chain 0.* 100 points"):
        sample(make_far())


def make_far():
    return refhmc.Model(1, far_log_density, far_gradient, discontinuous=[0], in_python=FEW_CALLS)


def far_log_density(q, data):
    return 0.0 if 100.0 < q[0] < 103.0 else -np.inf


def far_gradient(q, data):
    return np.zeros(1)


def test_gradient_check_uses_smooth_coordinates_only(sample):
    """Just below a jump, a difference across it would look like a wrong gradient."""
    start = [0.0, np.log(2.0) - 1e-9]
    result = sample(switch(), draws=5, tune=5, chains=1, initvals=start)
    assert result.draws.shape == (1, 5, 2)


@pytest.mark.parametrize("kernel", [refhmc.HMC(step_size=0.3), refhmc.NUTS(step_size=0.3, max_treedepth=4)])
def test_smooth_kernel_warns_of_a_declared_jump_once(kernel, sample):
    with pytest.warns(DiscontinuityWarning, match=r"jumps in log_n.* at q = .* at q = .*DHMC\(\)") as seen:
        result = sample(switch(), kernel, draws=20, tune=0, chains=1)
    assert len([w for w in seen if w.category is DiscontinuityWarning]) == 1
    assert "jumps in log_n" in result.warnings[0]
    with pytest.warns(DiscontinuityWarning, match=r"jumps in x\[0\], x\[1\]"):
        sample(refhmc.models.CellGrid(), kernel, draws=20, tune=0, chains=1)


def step_log_density(q, data):
    return -0.5 * np.sum(q * q) - (data if q[0] > 0.3 else 0.0)


def smooth_gradient(q, data):
    return -q


@pytest.mark.parametrize("height", [swept(0.7), swept(3.0), 40.0])
@pytest.mark.parametrize("kernel", [refhmc.HMC, swept(refhmc.NUTS)])
def test_undeclared_jump_is_found(kernel, height, sample):
    """The warning has two adjacent points on both sides of 0.3, and the coordinate in which they differ."""
    model = refhmc.Model(3, step_log_density, smooth_gradient, data=height, names=["a", "b", "c"], name="step")
    with pytest.warns(DiscontinuityWarning) as seen:
        result = sample(model, kernel(), draws=300, tune=300, chains=2, random_seed=3)
    text = str(next(w.message for w in seen if w.category is DiscontinuityWarning))
    assert text in result.warnings
    assert "jumps in a: it is" in text
    points = [np.array(part.split("]")[0].split(","), dtype=float) for part in text.split("q = [")[1:]]
    assert len(points) == 2
    for point in points:
        assert point[0] == pytest.approx(0.3, abs=1e-7)
    assert min(points[0][0], points[1][0]) <= 0.3 <= max(points[0][0], points[1][0])
    assert points[0][0] != points[1][0]


def steep_log_density(q, data):
    return -0.5 * np.sum(q * q) - 3.0 / (1.0 + np.exp(-data * (q[0] - 0.3)))


def steep_gradient(q, data):
    s = 1.0 / (1.0 + np.exp(-data * (q[0] - 0.3)))
    g = -q
    g[0] -= 3.0 * data * s * (1.0 - s)
    return g


@pytest.mark.sweep
def test_steep_density_is_not_reported_as_a_jump(sample):
    model = refhmc.Model(2, steep_log_density, steep_gradient, data=1000.0, name="steep")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DiscontinuityWarning)
        result = sample(model, refhmc.HMC(step_size=0.4, n_steps=3), draws=400, tune=0, chains=2, random_seed=3)
    assert np.abs(result.sample_stats["max_energy_error"]).max() > 1


def test_discontinuous_models_use_dhmc_by_default(sample):
    assert '"name": "DHMC"' in sample(switch(), draws=1, tune=0, chains=1).attributes["kernel"]
    assert '"name": "NUTS"' in sample(refhmc.models.EightSchools(), draws=1, tune=0, chains=1).attributes["kernel"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DiscontinuityWarning)
        sample(switch(), refhmc.DHMC(), draws=20, tune=20, chains=1)


def test_reflected_steps_give_a_warning(sample):
    result = sample(refhmc.models.CellGrid(), refhmc.DHMC(step_size=20.0, n_steps=2), draws=200, tune=0, chains=2)
    assert any("of the moves of discontinuous coordinates were accepted in 2 of 2 chains" in w for w in result.warnings)


# ------------------------------------------------------------------------------------------------- command line


def test_command_line_accepts_dhmc(capsys):
    from refhmc.cli.main import main

    common = ["--draws", "60", "--tune", "60", "--chains", "2", "--seed", "1", "--quiet"]
    assert main(["sample", "cell-grid", *common]) == 0
    assert "cell-grid: 2 chains of 60 draws" in capsys.readouterr().out
    assert main(["sample", "closed-population", "--kernel", "dhmc", "--n-steps", "4", *common]) == 0
    assert "true mean" in capsys.readouterr().out
    assert main(["sample", "cell-grid", "--integrator", "leapfrog", *common]) == 1
    assert "hmc and malt and mams and mclmc and nuts and walnuts" in capsys.readouterr().err
    assert main(["sample", "cell-grid", "--metric", "dense", *common]) == 1
    assert "one at a time" in capsys.readouterr().err

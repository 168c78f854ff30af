"""The tree of a NUTS transition compared with the compiled transition and with an independent search for U-turns."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import refhmc
from refhmc.integrators import ExplicitTao, ImplicitMidpoint
from refhmc.metrics import Fisher, Identity
from tests.helpers.sweeps import representatives, swept

PLAIN = refhmc.models.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
FUNNEL, BANANA = refhmc.models.Funnel(2), refhmc.models.Banana()
TIGHT = ImplicitMidpoint(tolerance=1e-12, max_iterations=200, solver="fixed point", reversibility_check=False)
CASES = {
    "turns": (PLAIN, refhmc.NUTS(step_size=0.3, metric=Identity())),
    "full": (PLAIN, refhmc.NUTS(step_size=0.01, metric=Identity(), max_treedepth=3)),
    "diverges": (FUNNEL, refhmc.NUTS(step_size=3.0, metric=Identity())),
    "auto": (FUNNEL, refhmc.NUTS(step_size=0.2)),
    "implicit": (BANANA, refhmc.NUTS(step_size=0.15, metric=Fisher(), integrator=TIGHT, max_treedepth=5)),
    "two copies": (BANANA, refhmc.NUTS(step_size=0.05, metric=Fisher(), integrator=ExplicitTao(2.0), max_treedepth=4)),
}


def transitions(name, n=6):
    model, kernel = CASES[name]
    rng = np.random.default_rng(3)
    for _ in range(n):
        q = 0.5 * rng.standard_normal(model.dim)
        momentum, uniforms = rng.standard_normal(model.dim) * 2, rng.random(4000)
        made = refhmc.plot.tree(model, kernel, q, momentum=momentum, uniforms=uniforms)
        yield made, refhmc.transition(model, kernel, q, momentum=momentum, uniforms=uniforms)


@pytest.mark.parametrize("name", representatives(CASES, ["turns", "full", "diverges", "implicit"]))
def test_the_recorded_tree_is_the_transition(name):
    for made, core in transitions(name):
        assert made.candidates[-1] == core.stats["index_in_trajectory"]
        assert len(made.candidates) == core.stats["tree_depth"] + 1
        assert len(made.q) == core.stats["n_steps"] + 1
        assert made.move.uniforms_used == core.uniforms_used
        chosen = list(made.time).index(made.candidates[-1])
        np.testing.assert_allclose(made.q[chosen], core.q, rtol=1e-9, atol=1e-9)
        assert made.energy[chosen] - made.energy[0] == pytest.approx(core.stats["energy_error"], abs=1e-8)
        assert (made.move.ended == "full") == core.stats["reached_max_treedepth"]
        assert (made.turned is None) == (made.move.ended != "turned")
        assert len(set(made.time.tolist())) == len(made.time)
        for k, candidate in enumerate(made.candidates):
            assert candidate in made.time[: 2**k]


def may_be_joined(made, a, b):
    """Return the three parts of the criterion for times a..b and their halves; with a unit metric, v = p."""
    p = {int(time): made.p[k] for k, time in enumerate(made.time)}
    rho = np.cumsum([np.zeros(2)] + [p[t] for t in range(a, b + 1)], axis=0)
    m = a + (b - a + 1) // 2 - 1

    def onward(first, last):
        total = rho[last - a + 1] - rho[first - a]
        return total @ p[first] > 0 and total @ p[last] > 0

    return onward(a, b) and onward(a, m + 1) and onward(m, b)


def test_turned_interval():
    """No joined interval turns, except the whole at the end; the reported interval does."""
    seen = collections.Counter()
    for made, _ in transitions("turns", 40):
        whole = int(made.time.min()), int(made.time.max())
        assert not may_be_joined(made, *made.turned)
        kept = len(made.halves) == made.move.tree_depth
        assert (made.turned == whole) == kept
        seen["whole" if kept else "half"] += 1
        joined = {(a, b) for a, b, depth in made.intervals() if depth}
        assert (made.turned in joined) == kept
        for a, b in joined - {made.turned}:
            assert may_be_joined(made, a, b)
        # As many joins as the recursion makes: 2^k - 1 of 2^k states.
        if kept:
            assert len(joined) == made.move.n_steps
    assert seen["whole"] > 3
    assert seen["half"] > 3


def test_marks_of_the_two_panels():
    """Both panels have the same marks; discarded states are hollow, and the turned interval is named."""
    model, kernel = CASES["turns"]
    for seed in range(40):
        rng = np.random.default_rng(seed)
        q, momentum, uniforms = rng.standard_normal(2), rng.standard_normal(2), rng.random(500)
        made = refhmc.plot.tree(model, kernel, q, momentum=momentum, uniforms=uniforms)
        if len(made.halves) > made.move.tree_depth > 1:
            break
    figure = refhmc.plot.nuts_tree(model, kernel, q, momentum=momentum, uniforms=uniforms)
    left, right = figure.axes
    lines = {line.get_label(): line.get_xydata() for line in left.get_lines()}
    n_kept = 2**made.move.tree_depth
    np.testing.assert_array_equal(lines["states of the tree"], made.q[:n_kept])
    np.testing.assert_array_equal(lines["discarded states"], made.q[n_kept:])
    np.testing.assert_array_equal(lines["start"], [q])
    np.testing.assert_array_equal(lines["next state"], [made.move.q])
    leaves = [line.get_xdata() for line in right.get_lines() if line.get_marker() == "o" and line.get_markersize() == 4]
    np.testing.assert_array_equal(np.concatenate(leaves), made.time)
    a, b = made.turned
    (turn,) = right.get_legend().get_texts()
    assert turn.get_text() == f"U-turn from {a} to {b}"
    elbows = [line for line in right.get_lines() if len(line.get_xdata()) == 3]
    assert len(elbows) == 2 * (sum(depth > 0 for _, _, depth in made.intervals()) + 1)
    assert f"{made.move.n_steps} steps, depth {made.move.tree_depth}, ended by a U-turn" in figure.get_suptitle()


@pytest.mark.parametrize("name", [swept("full"), "diverges"])
def test_other_ends_are_drawn(name):
    model, kernel = CASES[name]
    figure = refhmc.plot.nuts_tree(model, kernel, np.full(model.dim, 0.3), rng=1)
    assert figure.axes[1].get_legend() is None
    assert figure._repr_png_()


def test_one_dimension_and_a_figure_of_the_caller():
    model = refhmc.models.Gaussian(np.zeros(1), np.eye(1))
    given = refhmc.plot.canvas.new_figure()
    kernel = refhmc.NUTS(step_size=0.5, metric=Identity())
    assert refhmc.plot.nuts_tree(model, kernel, [0.3], rng=2, figure=given) is given
    assert given.axes[0].get_ylabel() == "momentum"


def test_invalid_arguments_are_rejected():
    model, kernel = CASES["turns"]
    with pytest.raises(TypeError, match=r"kernel must be refhmc\.NUTS"):
        refhmc.plot.tree(model, refhmc.HMC(step_size=0.1), np.zeros(2), rng=0)
    with pytest.raises(ValueError, match="kernel must have a step_size"):
        refhmc.plot.tree(model, refhmc.NUTS(), np.zeros(2), rng=0)
    with pytest.raises(ValueError, match="rng must be given"):
        refhmc.plot.tree(model, kernel, np.zeros(2), momentum=np.ones(2))
    with pytest.raises(ValueError, match="max_treedepth .*14.*20"):
        refhmc.plot.tree(model, refhmc.NUTS(step_size=0.1, max_treedepth=20), np.zeros(2), rng=0)
    with pytest.raises(IndexError):
        refhmc.plot.tree(model, kernel, np.zeros(2), momentum=np.ones(2), uniforms=[0.1])

"""Starts far from the posterior: chains restart or end with an error, and healthy chains are not affected."""

from __future__ import annotations

import concurrent.futures
import re

import numpy as np
import pytest

import refhmc
from refhmc.adaptation import symptoms
from refhmc.core.records import CONTROL, one
from refhmc.errors import SamplingWarning, WarmupError
from refhmc.sampling.chains import far_start
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.chains.chain_run import run_segment
from refhmc.sampling.chains.far_start import look_after
from refhmc.sampling.chains.live_chain import LiveChain
from refhmc.sampling.chains.task import ChainTask
from refhmc.sampling.storage.append_only import Rows
from tests.helpers.far import decay

RUN = {"random_seed": 1, "raw": True, "progressbar": False}
FEW = {**RUN, "tune": 400, "draws": 50, "chains": 2}
TRUTH = np.array([np.log(5e9), np.log(1.3e-9), np.log(4e7)])  # of A, k and sigma in ``decay``


@pytest.fixture(scope="module")
def proper():
    return decay(2.0)


@pytest.fixture(scope="module")
def begun_again(proper):
    with pytest.warns(SamplingWarning, match="4 of 4 chains.*default start"):
        return refhmc.sample(proper, cores=1, **RUN)


def normal(mean, sd):
    """Return N(mean, diag(sd^2))."""
    mean, sd = np.array(mean, dtype=float), np.array(sd, dtype=float)
    return refhmc.Model(len(mean), lambda q: -0.5 * np.sum(((q - mean) / sd) ** 2), lambda q: -(q - mean) / sd**2)


# ------------------------------------------------------------------------------------------------------- a second attempt


def test_chains_in_units_far_from_one_arrive(begun_again):
    """Rounding stops each chain at a log density near -1e17: 240 of 240 chains with 60 other seeds restarted.

    The posterior is near-normal, its mean within 0.005 of the truth of log A and log k and 0.22 of that of log sigma.

    Its standard deviations are 0.003, 0.005 and 0.12, so that means of some 1,000 effective draws are 40 standard errors or
    more inside these bounds. R-hat exceeds 1.05 by chance with a probability below 1e-12. False-alarm rate below 1e-12.
    """
    attributes = begun_again.attributes
    assert attributes["began_again_after"] == [250] * 4
    assert attributes["starts"] == ["uniform"] * 4
    np.testing.assert_allclose(begun_again.draws.mean(axis=(0, 1))[:2], TRUTH[:2], atol=0.05)
    assert abs(begun_again.draws.mean(axis=(0, 1))[2] - TRUTH[2]) < 0.5
    assert refhmc.diagnostics.rhat(begun_again.draws).max() < 1.05
    (text,) = (text for text in begun_again.warnings if "default start" in text)
    assert re.search(r"\[0, 1, 2, 3\].*250 of 1000 iterations", text)
    assert "initvals near plausible values" in text


def test_chains_decide_alone(proper, begun_again):
    """Draws do not depend on the number of chains, threads, or the executor."""
    with pytest.warns(SamplingWarning):
        two = refhmc.sample(proper, chains=2, cores=2, **RUN)
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            sent = refhmc.sample(proper, chains=2, executor=executor, **RUN)
    assert np.array_equal(two.draws, begun_again.draws[:2])
    assert np.array_equal(sent.draws, begun_again.draws[:2])
    assert sent.attributes["began_again_after"] == [250] * 2


def test_a_restart_uses_the_start_of_init_pathfinder(proper):
    """The two runs have the same start, but their first transitions use different random numbers."""
    task = ChainTask(proper, refhmc.NUTS(), 0, 1, None, 10, 400, keep_warmup=True, free_start=True)
    live = begin(task)
    advance(live, 100)
    live._look()
    asked = begin(task._replace(init="pathfinder"))
    assert np.array_equal(live.chain.position, asked.chain.position)
    assert live.plan.blocks[0].windows[-1, 2] == 300


def begin(task, saved=None):
    live = LiveChain(task, make_plan(task.model, task.kernel, task.tune), one(CONTROL)[0])
    assert live.begin(saved)
    return live


def advance(live, done):
    n = done - live.done
    rows = Rows(live.done, np.zeros((n, live.task.model.dim)), np.zeros((n, live.plan.n_stats)))
    assert live.advance(rows)
    return rows.draws


def inject_symptom(monkeypatch):
    """Make the first check find a symptom and a better start."""
    suspicious = symptoms.Symptom(symptoms.SUSPICIOUS, "")
    monkeypatch.setattr(far_start, "symptom_of", lambda chain, control: None if control.far_start else suspicious)
    monkeypatch.setattr(far_start, "far_better", lambda *arguments: (TRUTH, "found"))


KERNELS = {
    "NUTS": refhmc.NUTS(),
    "HMC": refhmc.HMC(),
    "Gibbs": refhmc.Gibbs({("q[0]", "q[1]"): refhmc.NUTS(), "q[2]": refhmc.NUTS()}),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_chain_that_began_again_is_resumed_bit_for_bit(proper, kernel, monkeypatch):
    if kernel is KERNELS["Gibbs"]:  # its chains arrive by themselves
        inject_symptom(monkeypatch)
    task = ChainTask(proper, kernel, 0, 1, None, 20, 400, keep_warmup=True, free_start=True)
    unbroken = begin(task)
    whole = advance(unbroken, task.total)
    assert unbroken.control.far_start == 100
    saved, made, states = None, [], []
    for done in (60, 100, 101, 250, 399, 400, 410, task.total):
        live = begin(task, saved)
        made.append(advance(live, done))
        saved = live.saved()
        states.append(saved)
    assert np.array_equal(np.concatenate(made), whole)
    assert np.array_equal(saved.control, unbroken.control)
    live = begin(task, states[4])  # a state after the second attempt began, made anew from one before it
    assert live.saved_after(399, states[0]).state == states[4].state


def test_a_search_that_does_not_fit_into_a_segment_is_made_in_a_later_one(proper):
    task = ChainTask(proper, refhmc.NUTS(), 0, 1, None, 5, 400, free_start=True)
    plan, live = make_plan(proper, refhmc.NUTS(), 400), begin(task)
    advance(live, 100)
    before = live.saved()
    assert run_segment(task, plan, before, 0.0, patience=0.0).saved.done == 100
    after = run_segment(task, plan, before, 60.0).saved
    assert after.done == task.total
    assert after.control.far_start == 100


def test_a_checkpoint_keeps_that_chains_began_again(proper, tmp_path):
    with pytest.warns(SamplingWarning):
        whole = refhmc.sample(proper, **FEW)
        refhmc.sample(proper, checkpoint=tmp_path, **{**FEW, "draws": 7})
        resumed = refhmc.resume(tmp_path, proper, draws=50, raw=True, progressbar=False)
    assert np.array_equal(resumed.draws, whole.draws)
    assert resumed.attributes["began_again_after"] == whole.attributes["began_again_after"] == [100, 100]
    assert resumed.attributes["n_gradient_evaluations"] == whole.attributes["n_gradient_evaluations"]


# --------------------------------------------------------------------------------------------------------- one sentence


def test_given_starts_are_not_replaced(proper):
    """On some seeds the error comes at the last check, after 400 iterations, without a word about Pathfinder."""
    with pytest.raises(WarmupError, match=r"[Cc]hain 0.* (100|400) iterations .*init='pathfinder'") as error:
        refhmc.sample(proper, initvals=np.zeros(3), **FEW)
    if " 100 iterations" in str(error.value):
        assert re.search("Pathfinder .*log density -71", str(error.value))


def test_a_given_start_that_is_only_far_is_warned_of(monkeypatch):
    """The symptom is injected, because a chain that is only far may arrive before the check."""
    inject_symptom(monkeypatch)
    with pytest.warns(SamplingWarning, match="start .*initvals"):
        result = refhmc.sample(normal(np.zeros(3), np.ones(3)), initvals=np.ones(3), **FEW)
    assert result.attributes["began_again_after"] == [0, 0]


def test_a_run_from_pathfinder_is_given_no_second_one(proper):
    result = refhmc.sample(proper, init="pathfinder", **FEW)
    assert result.attributes["began_again_after"] == [0, 0]


def test_a_short_warmup_ends_with_the_sentence(proper):
    with pytest.raises(WarmupError, match=r"[Cc]hain 0.* 200 iterations .*init='pathfinder'"):
        refhmc.sample(proper, **{**FEW, "tune": 200})


def test_an_improper_posterior_ends_in_warmup():
    """At the default starts the data do not inform k, so that Pathfinder also fails."""
    with pytest.raises(WarmupError, match="log density does not change.* 250"):
        refhmc.sample(decay(np.inf), **RUN)


def test_a_scale_below_the_spacing_of_numbers_ends_in_warmup():
    kernel = refhmc.NUTS(max_treedepth=5)
    with pytest.raises(WarmupError, match=r"q\[0\] = 1000000000.*floating-point numbers"):
        refhmc.sample(normal([1e9, 1e9], [1e-9, 1e-9]), kernel, **FEW)


def test_coordinates_that_jump_have_no_pathfinder(proper):
    """DHMC on a plateau where the log density is -1e19."""
    y = 1e9

    def log_density(q):
        return -0.5 * (y - np.exp(q[0])) ** 2 * 20 - 0.5 * q[1] ** 2

    def gradient(q):
        return np.array([20 * (y - np.exp(q[0])) * np.exp(q[0]), 0.0])

    model = refhmc.Model(2, log_density, gradient, discontinuous=[1], name="plateau")
    with pytest.raises(WarmupError, match=r"200 iterations of warm-up.*log density is -1e\+19.*near 1\b(?!.*init=)"):
        refhmc.sample(model, refhmc.DHMC(), **{**FEW, "tune": 200})


@pytest.mark.parametrize("shared", [True, False])
def test_many_chains_end_with_the_sentence(shared):
    def log_density(q):
        return -10.0 * (1e9 - np.exp(q[0])) ** 2

    def gradient(q):
        return np.array([20 * (1e9 - np.exp(q[0])) * np.exp(q[0])])

    model = refhmc.Model(1, log_density, gradient, name="plateau")
    with pytest.raises(WarmupError, match=r"4 of 4 chains .*60 iterations of warm-up.*chain 0.* log"):
        refhmc.sample(model, backend=refhmc.Arrays(shared_step_size=shared), **{**FEW, "tune": 60, "chains": 4})


# ----------------------------------------------------------------------------------------------------------- healthy runs


def one_standard_deviation_off(mean, sd):
    """Return N(mean, diag(sd^2)) and a start in its typical set."""
    return normal(mean, sd), np.add(mean, sd)


HEALTHY = {
    "shifted": one_standard_deviation_off([1e9, -1e12], [1.0, 1.0]),
    "narrow": one_standard_deviation_off([0.0, 1e-9], [1e-12, 1e-12]),
    "wide": one_standard_deviation_off([1e12, 1e16], [1e12, 1e12]),
    "stiff": one_standard_deviation_off(np.zeros(10), np.geomspace(1e-6, 1.0, 10)),
    "funnel": (refhmc.models.Funnel(5), None),
    "banana": (refhmc.models.Banana(), np.zeros(2)),
}


@pytest.mark.parametrize("kernel", [refhmc.NUTS(), refhmc.HMC()], ids=["NUTS", "HMC"])
@pytest.mark.parametrize(("model", "start"), HEALTHY.values(), ids=HEALTHY)
def test_healthy_chains_have_no_symptom_after_warmup(model, start, kernel):
    """A restart, or the warning about a given start, needs a point whose log density is higher by 1000 + 100 d.

    All starts are within 120 of the highest log density, those of the funnel on (-2, 2) included. An iteration lowers it by at
    most the kinetic energy, chi^2_d / 2, and the accepted energy error. This exceeds x with probability exp(-x), or
    1023 exp(-x) among the states of a tree. So 100 iterations lower it by less than 700 + Gamma(50 d + 100). By Chernoff's
    bound, false alarms have a rate below 1e-20.
    """
    result = refhmc.sample(model, kernel, initvals=start, **FEW)
    assert result.attributes["began_again_after"] == [0, 0]
    assert not any("start" in text for text in result.warnings)


def test_a_chain_that_arrived_by_itself_is_not_restarted():
    """Its metric has the scale of the way from the default start, so that the gradient looks far too large."""
    model, start = HEALTHY["shifted"]
    live = begin(ChainTask(model, refhmc.NUTS(), 0, 1, None, 5, 400, free_start=True))
    live.chain.start(start)
    live.chain.blocks[0].vecs[0] = 1e24
    live.done = 100
    assert "standard deviations from its mode" in far_start.symptom_of(live.chain, live.control).text
    live._look()
    assert live.control.looked == 100
    assert live.control.far_start == 0


@pytest.mark.parametrize(("rise", "restarts"), [(1e5, False), (2e6, True)])
def test_after_a_long_rise_a_smaller_margin_is_enough(rise, restarts):
    """The chain is at 25 standard deviations, L = -312. The margin of 1,100 becomes 110 if L has risen by 10^6."""
    live = begin(ChainTask(normal([0.0], [1.0]), refhmc.NUTS(), 0, 1, None, 5, 400, free_start=True))
    live.chain.start(np.array([25.0]))
    live.control.start_level, live.done = -312.5 - rise, 100
    live._look()
    assert live.control.far_start == (100 if restarts else 0)
    assert (abs(live.chain.position[0]) < 10) == restarts


def test_a_step_size_that_the_user_gives_is_not_judged():
    result = refhmc.sample(normal([1e9], [1.0]), refhmc.HMC(step_size=1e-12, n_steps=1, metric="identity"), **FEW)
    assert result.draws.shape == (2, 50, 1)


def test_when_chains_are_looked_at():
    assert [look_after(tune) for tune in (0, 399, 400, 600, 1000, 100_000)] == [0, 0, 100, 150, 250, 250]


def test_a_chain_with_one_frozen_coordinate_ends_early_only_if_a_better_point_is_known():
    still, moving = np.array([2.0**-60, 2.0**-60]), np.array([2.0**-60, 1.0])
    for step, early in ((still, True), (moving, False)):
        symptom = symptoms.frozen(["a", "b"], np.array([1.0, 1.0]), step)
        assert symptom.ends(100, 400) is early
        assert symptom.ends(100, 400, better=True)
        assert symptom.ends(400, 400)


def test_symptoms_by_hand():
    assert symptoms.unresolved(-(2.0**52)) is not None
    assert symptoms.unresolved(-(2.0**51) + 1) is None
    assert symptoms.unresolved(np.inf) is None
    step = symptoms.typical_step(np.array([4.0]), np.array([0.5]), np.array([3.0]))
    np.testing.assert_allclose(step, [4.0])
    assert symptoms.frozen(["a", "b"], np.array([0.0, 1.0]), np.array([1e-300, 2.0**-56])).text.startswith(
        "a step moves b"
    )
    assert symptoms.frozen(["a"], np.array([1.0]), np.array([2.0**-55])) is None
    assert symptoms.far(3001.0, 3) is not None
    assert symptoms.far(2999.0, 3) is None
    assert symptoms.far(np.nan, 3) is None
    assert symptoms.running_off(["a"], np.array([1e7]), np.array([1e-20])) is not None
    assert symptoms.running_off(["a"], np.array([1e7]), np.array([1e-7])) is None

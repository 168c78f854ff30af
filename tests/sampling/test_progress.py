"""Progress in a terminal, a notebook, a log and a callback; none of them can change or stop a run."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import re
import subprocess
import sys
import types

import numpy as np
import pytest

import refhmc
from refhmc.sampling import progress
from refhmc.sampling.progress import ENOUGH, Progress
from tests.helpers.sweeps import representatives, swept

RUN = {"draws": 40, "tune": 40, "chains": 2, "random_seed": 1}


def report(finished=False, seconds=2.0, done=(30, 80), left=12.3):
    counts = np.array(done), 80, 40, np.array([0, 3]), np.array([1, 6]), np.array([500, 1500])
    return progress.ProgressReport(*counts, np.array([7.0, 15.0]), np.array([0.5, np.nan]), seconds, left, finished)


def test_a_line_reports_draws_divergences_and_the_time_left():
    assert report().line() == "Sampling 2 chains: 110/160 draws, 3 divergences, 12 s left"
    assert (
        report(done=(80, 80), finished=True).line() == "Sampled 2 chains: 160/160 draws, 3 divergences, 2.0 s elapsed"
    )
    assert report(done=(5, 39), left=None).line() == "Warming up 2 chains: 44/160 draws, 7 divergences, 2.0 s elapsed"
    long = report(done=(1200, 2000))._replace(draws_total=4000, divergences=np.array([0, 1]))
    assert long.line() == "Sampling 2 chains: 3,200/8,000 draws, 1 divergence, 12 s left"


def test_of_one_chain_and_before_the_first_iteration():
    begun = report()._replace(step_size=np.array([0.5, 0.25]), gradients_a_draw=np.full(2, np.nan))
    assert begun.pace() == "step sizes 0.25 to 0.5"
    assert begun.pace(1) == "step size 0.25"
    assert report().pace(1) == "15 gradients per draw"
    assert report().diverged(0) == "divergences: 1 in warm-up"
    assert report().diverged(1) == "divergences: 3 in draws, 6 in warm-up"


def test_times_in_words():
    seconds = (0.04, 9.94, 9.96, 99.4, 101.0, 5990.0, 36_000.0)
    assert [progress.duration(s) for s in seconds] == ["0.0 s", "9.9 s", "10.0 s", "99 s", "2 min", "100 min", "10.0 h"]


KERNELS = {
    "numba": refhmc.NUTS(),
    "gibbs": refhmc.Gibbs({"v": refhmc.HMC(step_size=0.5, n_steps=3), "x": refhmc.HMC(step_size=0.6, n_steps=3)}),
    "arrays": refhmc.NUTS(),
}


def quadrant():
    """Return a standard normal on v, x < 1."""
    return refhmc.Model(
        2,
        lambda q: -0.5 * np.sum(q * q) if q.max() < 1 else -np.inf,
        lambda q: -q,
        names=["v", "x"],
        initial=[0.0, 0.0],
    )


@pytest.mark.parametrize("name", representatives(KERNELS, ["numba", "gibbs"]))
def test_divergences_of_warm_up_and_of_draws_are_counted_apart(sample, name):
    """Counts agree with the statistics of each iteration, and so do step size and gradients per draw.

    A trajectory that leaves the support diverges at any step size: at least 29 % of transitions with 24 seeds. None of the 120
    transitions of warm-up diverges with a probability below 1e-17.
    """
    reports, backend = [], "arrays" if name == "arrays" else "numba"
    model, run = quadrant(), {**RUN, "draws": 300, "tune": 60, "save_warmup": True, "backend": backend}
    result = sample(model, KERNELS[name], **run, progressbar=reports.append)
    diverging = [k for k in result.sample_stats if k.startswith("diverging")]
    of_draws, of_warmup = (
        np.any([result.groups[group][k] for k in diverging], axis=0).sum(axis=1)
        for group in ("sample_stats", "warmup_sample_stats")
    )
    assert of_warmup.sum() > 0
    assert of_draws.sum() > 0
    last = reports[-1]
    assert f", divergences: {of_draws.sum()} in draws, {of_warmup.sum()} in warm-up\n" in repr(result)
    assert last.divergences.tolist() == result.attributes["divergences_per_chain"] == of_draws.tolist()
    assert last.warmup_divergences.tolist() == result.attributes["warmup_divergences_per_chain"] == of_warmup.tolist()
    assert last.seconds_left == 0.0
    if name == "gibbs":
        assert np.all(np.isnan(last.step_size))
    else:
        assert np.array_equal(last.step_size, result.sample_stats["step_size"][:, -1])
    if name == "numba":  # all draws, or the last third of them: the run is over within a few looks
        assert last.gradients_a_draw.min() > 1


def test_iterations_from_a_checkpoint_are_counted_once(sample, tmp_path):
    model, run = refhmc.models.Funnel(4), {**RUN, "draws": 300, "tune": 60, "chains": 1}
    whole = sample(model, refhmc.NUTS(), **run, checkpoint=tmp_path / "whole")
    reports = []
    sample(model, refhmc.NUTS(), **{**run, "draws": 100}, checkpoint=tmp_path / "parts")
    parts = sample(model, refhmc.NUTS(), **run, checkpoint=tmp_path / "parts", progressbar=reports.append)
    for name in ("divergences_per_chain", "warmup_divergences_per_chain", "iterations_per_chain"):
        assert parts.attributes[name] == whole.attributes[name]
    assert np.array_equal(parts.draws, whole.draws)
    assert reports[-1].draws_done.tolist() == [360]


def reports_at(progress, monkeypatch, moments, first=0):
    """Return the reports of a progress at moments (seconds, iterations of each chain, gradients of each chain)."""
    now, found = [0.0], []
    monkeypatch.setattr(Progress, "seconds", property(lambda self: now[0]))
    for now[0], done, gradients in moments:
        none = np.zeros(len(done))
        found.append(progress.report(np.array(done), none, none, np.array(gradients), none, first))
    return found


def test_the_time_left_is_that_of_the_remaining_iterations_at_the_recent_rate(monkeypatch):
    """Slow iterations do not count after 30 s. While a chain is in warm-up, the time left is unknown."""
    tune, total = 100, 1000
    slow = [(t, [t, t + 1], [10 * t, 10 * t]) for t in range(1, 160)]
    fast = [(159 + t, [159 + 5 * t, 160 + 5 * t], [1590 + 20 * t] * 2) for t in range(1, 41)]
    found = reports_at(Progress(2, tune, total, 2), monkeypatch, slow + fast)
    known = [each.seconds_left is not None for each in found]
    assert not any(known[: tune + ENOUGH - 1])
    assert all(known[tune + ENOUGH :])
    assert found[155].seconds_left == pytest.approx(total - found[155].draws_done.min(), rel=0.01)
    last = found[-1]
    assert last.seconds_left == pytest.approx((total - last.draws_done.min()) / 5, rel=0.01)
    assert np.allclose(last.gradients_a_draw, 4.0)


def test_iterations_of_an_earlier_session_do_not_count_for_the_rate(monkeypatch):
    moments = [(t, [500 + t], [9000 + 3 * t]) for t in range(1, 20)]
    found = reports_at(progress := Progress(1, 100, 1000, 1), monkeypatch, moments, first=500)
    assert found[-1].seconds_left == pytest.approx(1000 - 519, rel=0.1)
    assert found[-1].gradients_a_draw == pytest.approx(3.0, rel=0.1)
    assert progress.made == 19


def test_lines_come_every_few_seconds_only(capfd, monkeypatch):
    display = progress._Lines()
    for _ in range(50):
        display.report(report())
    assert capfd.readouterr().err == ""
    display.last -= progress.LINE_EVERY
    display.report(report())
    display.report(report())
    display.report(report(finished=True))
    assert len(capfd.readouterr().err.splitlines()) == 2


def test_a_closed_pipe_ends_the_lines_not_the_run(sample, monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stderr", Closed())
    result = sample(refhmc.models.Funnel(2), refhmc.NUTS(), **RUN, progressbar=True)
    assert result.draws.shape == (2, 40, 3)


def test_a_notebook_shows_one_line_updated_in_place(sample, monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))

    def display(data, raw, display_id):
        assert raw
        assert display_id
        return handle

    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    fake = types.ModuleType("IPython.display")
    fake.display = display
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    result = sample(refhmc.models.Funnel(2), refhmc.NUTS(), **RUN, progressbar=True)
    assert "2 chains: 160/160 draws" in shown[-1]
    monkeypatch.undo()
    assert np.array_equal(result.draws, sample(refhmc.models.Funnel(2), refhmc.NUTS(), **RUN).draws)


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are not there on Windows")
def test_a_terminal_has_one_live_line():
    import pty

    parent, child = pty.openpty()
    code = (
        "import refhmc; refhmc.sample(refhmc.models.Funnel(2), refhmc.NUTS(), draws=40, tune=40, chains=2, random_seed=1, "
        "raw=True)"
    )
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stderr=child, env=environment)
    os.close(child)
    shown = b""
    try:
        while piece := os.read(parent, 4096):
            shown += piece
    except OSError:  # the terminal closes with its last user
        pass
    text = shown.decode(errors="replace")
    assert process.wait(timeout=120) == 0, text
    assert re.search(r"Sampled 2 chains: 160/160 draws, \d+ divergences?, [\d.]+ s elapsed", text)
    assert "\x1b[" in text
    lines = [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", each).rstrip("\r") for each in text.split("\n")]
    assert sum(each != "" for each in lines) <= 4  # compilation, and one line that is updated in place


@pytest.mark.sweep
@pytest.mark.parametrize("processes", [1, swept(2)])
def test_chains_can_run_in_other_processes(processes, sample):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        result = sample(refhmc.models.Funnel(2), refhmc.NUTS(), **RUN, executor=pool)
    assert np.array_equal(result.draws, sample(refhmc.models.Funnel(2), refhmc.NUTS(), **RUN).draws)
    assert result.attributes["n_gradient_evaluations"] > 0

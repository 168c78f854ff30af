"""Progress: a terminal, a notebook, a log, a function; none of them can change or stop a run."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import refhmc
from refhmc.sampling import progress
from tests.helpers.sweeps import swept

RUN = {"draws": 40, "tune": 40, "chains": 2, "random_seed": 1}


def report(finished=False, seconds=2.0):
    return progress.ProgressReport(
        np.array([30, 80]), 80, 40, np.array([0, 3]), np.array([500, 1500]), seconds, finished
    )


def test_a_line_says_how_far_it_is():
    line = report().line()
    assert line == (
        "sampling 2 chains: 110/160 draws (69 %), 1 in warm-up, 3 divergences, 1e+03 gradients/s, 2.0 s, 1 s left"
    )
    assert "warm-up" not in report(finished=True).line()
    assert "0 gradients/s" in report(seconds=0.0).line()


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
    assert "sampling 2 chains: 160/160 draws (100 %)" in shown[-1]
    monkeypatch.undo()
    assert np.array_equal(result.draws, sample(refhmc.models.Funnel(2), refhmc.NUTS(), **RUN).draws)


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are not there on Windows")
def test_a_terminal_has_a_live_bar_for_each_chain():
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
    assert "chain 0" in text
    assert "chain 1" in text
    assert "80/80" in text
    assert "\x1b[" in text


@pytest.mark.parametrize("processes", [1, swept(2)])
def test_chains_can_run_in_other_processes(processes, sample):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        result = sample(refhmc.models.Funnel(2), refhmc.NUTS(), **RUN, executor=pool)
    assert np.array_equal(result.draws, sample(refhmc.models.Funnel(2), refhmc.NUTS(), **RUN).draws)
    assert result.attributes["n_gradient_evaluations"] > 0

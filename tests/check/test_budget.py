"""Budgets of the kit: processor seconds of the process and its children, and five times as many of wall-clock time."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import pytest

from refhmc.check.subject import budget as budgets
from refhmc.check.subject.budget import Budget
from refhmc.check.subject.foreign import Foreign, OutOfTime, SubjectHung, watched


class Machine:
    """Machine whose clocks are set by the test."""

    def __init__(self, monkeypatch):
        self.clock = self.processor = self.children = 0.0
        monkeypatch.setattr(budgets.time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(budgets.time, "process_time", lambda: self.processor)
        monkeypatch.setattr(budgets, "_ended_children", lambda: self.children)
        monkeypatch.setattr(budgets, "_running_children", lambda: 0.0)
        monkeypatch.setattr(budgets, "_children", budgets._Children())


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_budget_counts_processor_seconds_and_not_the_load(machine):
    budget = Budget(8.0)
    machine.clock += 30.0  # thirteen other programs run
    machine.processor += 2.5
    assert budget.left() == pytest.approx(8.0 - 6.0)  # a fifth of the clock is more
    machine.processor += 5.0
    assert budget.left() == pytest.approx(0.5)
    machine.processor += 0.6
    assert budget.over()


def test_budget_ends_after_five_times_its_seconds_of_wall_clock(machine):
    budget = Budget(8.0)
    machine.clock += 39.9
    assert not budget.over()
    machine.clock += 0.2
    assert budget.over()


def test_budget_counts_the_children(machine):
    budget = Budget(8.0)
    machine.clock, machine.children = 1.0, 8.5
    assert budget.over()


def test_budget_does_not_decrease_when_a_child_vanishes(machine):
    budget = Budget(8.0)
    machine.clock, machine.children = 1.0, 5.0
    assert budget.left() == pytest.approx(3.0)
    machine.clock, machine.children = 2.0, 0.0
    assert budget.left() == pytest.approx(3.0)


def test_budget_of_none_never_ends(machine):
    machine.processor = machine.clock = 1e9
    assert Budget(None).left() == math.inf


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="running children are read from /proc")
def test_processor_time_of_a_running_child_counts():
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        budget = Budget(0.2)
        while not budget.over():
            assert budget.clock < 60
            time.sleep(0.05)
        assert budget.processor >= 0.2
    finally:
        busy.kill()
        busy.wait()


def test_row_whose_budget_is_over_makes_no_further_call():
    answered = Foreign(lambda x: x, "answered")
    with pytest.raises(OutOfTime):
        watched(lambda: answered.number(1.0), 30.0, Budget(0.0))
    assert answered.calls == 1  # it was asked for, and not made


def test_call_that_hangs_is_found_by_the_clock():
    hanging = Foreign(lambda x: time.sleep(60), "hanging")
    with pytest.raises(SubjectHung):
        watched(lambda: hanging.number(1.0), 0.1)

"""``refhmc selftest``: its order, and its report of failures."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
import types

import pytest

from refhmc.check import mutants, selftest


def test_planned_bugs_come_first_then_all_areas_in_turn():
    pairs = selftest.planted_bugs()
    planned = [pair.id for pair in pairs if pair.id[:3] in selftest.PLANNED]
    assert [pair.id for pair in pairs[: len(planned)]] == sorted(planned, key=lambda name: (len(name) > 3, name))
    assert {name[:3] for name in planned} == set(selftest.PLANNED)
    folder = pathlib.Path(mutants.__file__).parent
    area = {}
    for name in (module.name for module in pkgutil.iter_modules([str(folder)])):
        area |= {id(pair): name for pair in importlib.import_module(f"refhmc.check.mutants.{name}").PAIRS}
    assert {id(pair) for pair in pairs} == set(area)  # areas may have bugs of the same name
    turn = [area[id(pair)] for pair in pairs[len(planned) :]]
    assert len(set(turn[: len(set(turn))])) == len(set(turn))


def report_of(ok: bool, failed: tuple[str, ...] = (), severity: str = ""):
    rows = [types.SimpleNamespace(name=name, status="FAIL") for name in failed]
    return types.SimpleNamespace(ok=ok, failures=rows, severity=severity)


def pair_of(found: bool, twin_fails: bool):
    wrong = report_of(False, ("reversible",) if found else ("order",), "wrong distribution")
    right = report_of(not twin_fails, ("order",) if twin_fails else ())
    return types.SimpleNamespace(
        id="X",
        what="a bug",
        expected=("reversible",),
        severity="wrong distribution",
        wrong=lambda _: wrong,
        right=lambda _: right,
    )


@pytest.mark.parametrize(
    ("own", "found", "twin_fails", "wrong"),
    [(True, True, False, 0), (False, True, False, 1), (True, False, False, 1), (True, True, True, 1)],
)
def test_failures_are_printed_and_set_the_exit_status(monkeypatch, capsys, own, found, twin_fails, wrong):
    beside = types.SimpleNamespace(submit=lambda task: types.SimpleNamespace(result=task))

    class Pool:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return beside

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(selftest, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(selftest, "own_reports", lambda: [("a part", lambda: report_of(own))])
    monkeypatch.setattr(selftest, "planted_bugs", lambda: [pair_of(found, twin_fails)])
    assert selftest.run() == (1 if wrong else 0)
    printed = capsys.readouterr().out
    assert printed.count("FAIL ") == wrong
    assert ("All parts succeeded" in printed) == (wrong == 0)
    assert printed.splitlines()[2].endswith("a part")


@pytest.mark.slow
def test_selftest_succeeds(capsys):
    assert selftest.run() == 0, capsys.readouterr().out

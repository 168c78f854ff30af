"""Status of a report: PASS only if a row about the distribution, the map or the function passed."""

from __future__ import annotations

import json
import pathlib
import re

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.protocol.driver import PASSED, UNDECIDED, exit_status
from refhmc.check.report import DECISIVE, FAIL, INCONCLUSIVE, INEFFICIENT, NOT_RUN, PASS, Report, Row


def report(*rows: tuple[str, str], check="transition", severity="wrong distribution") -> Report:
    return Report(check, "it", {}, 1, tuple(Row(name, status, severity=severity) for name, status in rows))


UNDECISIVE = [
    ("answers", PASS),
    ("stateless", PASS),
    ("acceptance", PASS),
    ("nan energy", PASS),
    ("inputs left alone", PASS),
]
DECIDED = [*UNDECISIVE, ("detailed balance", PASS), ("overflow", INCONCLUSIVE), ("zero-length", NOT_RUN)]


@pytest.mark.parametrize(
    ("rows", "status", "strictly"),
    [
        (UNDECISIVE, INCONCLUSIVE, UNDECIDED),
        ([*UNDECISIVE, ("detailed balance", INCONCLUSIVE), ("stationarity", NOT_RUN)], INCONCLUSIVE, UNDECIDED),
        ([*UNDECISIVE, ("detailed balance", INCONCLUSIVE), ("stationarity", PASS)], PASS, UNDECIDED),
        (DECIDED, PASS, UNDECIDED),
        (DECIDED[:-2], PASS, PASSED),
        ([*DECIDED, ("momentum flip", FAIL)], FAIL, 1),
        ([], INCONCLUSIVE, UNDECIDED),
    ],
)
def test_status_follows_from_decisive_rows(rows, status, strictly):
    it = report(*rows)
    assert it.status == status
    assert it.ok == (status == PASS)
    assert exit_status([it]) == {PASS: 0, FAIL: 1, INCONCLUSIVE: 3}[status]
    assert exit_status([it], strict=True) == strictly
    for name in (name for name, found in rows if found == INCONCLUSIVE):
        assert name in it.verdict
    for strict, code in ((False, exit_status([it])), (True, strictly)):
        if code == 0:
            it.assert_ok(strict)
            continue
        with pytest.raises(rc.ConformanceError, match="VERDICT") as raised:
            it.assert_ok(strict)
        assert isinstance(raised.value, rc.InconclusiveError) == (code == 3)


def test_json_carries_its_versions_the_status_and_which_rows_decide():
    it = json.loads(report(*DECIDED).to_json())
    assert (it["status"], it["ok"], it["schema_version"]) == (PASS, True, 3)
    assert it["kit_version"] == refhmc.__version__
    assert [row["name"] for row in it["rows"] if row["decides"]] == ["detailed balance"]


def test_inefficient_code_is_not_called_exact_without_decisive_rows():
    rows = [("answers", PASS), ("global state", FAIL), ("one use of each number", INCONCLUSIVE)]
    assert "could not be decided" in report(*rows, check="randomness", severity=INEFFICIENT).verdict
    rows[-1] = ("one use of each number", PASS)
    assert report(*rows, check="randomness", severity=INEFFICIENT).verdict == (
        "FAIL (not the claimed method; the draws would still be right)."
    )


def test_every_decisive_row_exists():
    """A renamed row would no longer count. The names are quoted in the modules' source."""
    import refhmc.check

    text = ""
    for file in pathlib.Path(refhmc.check.__path__[0]).rglob("*.py"):
        if file.name != "report.py" and file.parent.name != "mutants":
            text += file.read_text(encoding="utf-8")
    quoted = set(re.findall(r'"([^"\n]+)"', text))
    assert {name for names in DECISIVE.values() for name in names} <= quoted


def identity(q):
    return q


@pytest.mark.parametrize("dim", [0, -1, 1.5, float("nan"), "two"])
def test_invalid_dimension_is_rejected(dim):
    """Without this, check.model(dim=0) would PASS without examining anything."""
    for call in (
        lambda: rc.model(lambda q: -0.5 * q @ q, lambda q: -q, dim=dim),
        lambda: rc.metric(lambda q: np.eye(len(q)), dim=dim),
        lambda: rc.integrator(lambda q, p, eps, n: (q, p), dim=dim),
        lambda: rc.transition(lambda draws, q: q, lambda q: 0.0, dim=dim),
        lambda: rc.randomness(lambda draws, q: q, dim=dim),
        lambda: rc.batch(lambda draws, q: q, dim=dim),
        lambda: rc.orbit(lambda draws, q, p: q, lambda q, p: (q, p), lambda q: 0.0, dim=dim, eps=0.1),
        lambda: rc.minibatch(lambda q, i: q, identity, 4, 2, dim=dim),
    ):
        with pytest.raises(ValueError, match="dim.* at least 1; got"):
            call()


@pytest.mark.parametrize("seconds", [-1, 0.0, float("nan")])
def test_invalid_time_limit_is_rejected(seconds):
    """Without this, check.sampler(seconds=-1) would PASS without any pair."""
    for call in (
        lambda: rc.sampler(lambda rng, q: q, "normal-1", seconds=seconds),
        lambda: rc.transition(lambda draws, q: q, lambda q: 0.0, dim=1, seconds=seconds),
        lambda: rc.orbit(lambda draws, q, p: q, lambda q, p: (q, p), lambda q: 0.0, dim=1, eps=0.1, seconds=seconds),
        lambda: rc.sbc(lambda rng: 0.0, lambda rng, t: t, lambda rng, y: [[y]], seconds=seconds),
    ):
        with pytest.raises(ValueError, match="seconds must be positive.*; got"):
            call()


def test_invalid_counts_are_rejected():
    for call in (
        lambda: rc.transition(lambda draws, q: q, lambda q: 0.0, dim=1, n_points=0),
        lambda: rc.randomness(lambda draws, q: q, dim=1, n=0),
        lambda: rc.batch(lambda draws, q: q, dim=1, chains=0),
        lambda: rc.sampler(lambda rng, q: q, "normal-1", draws=0),
        lambda: rc.sampler(lambda rng, q: q, "normal-1", batched=True, chains=3),
        lambda: rc.adaptation(lambda draws, tune, seed: None, draws=0),
    ):
        with pytest.raises(ValueError, match="must be an integer of at least .*; got"):
            call()

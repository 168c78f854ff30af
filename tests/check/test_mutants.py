"""The conformance kit on code with known faults: every planted bug fails in its row, and no corrected code fails.

The bugs and the corrected codes are in ``refhmc/check/mutants``. A false FAIL would make every report doubtful, so the
corrected codes run with 20 seeds. This is the slow gate; by default the tests of each check run its own pairs with one seed.
The statistical checks have alpha = 1e-6 per call, so that the probability of any false FAIL here is below 1e-3.
"""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from refhmc.check import mutants
from refhmc.check.report import FAIL

AREAS = sorted(module.name for module in pkgutil.iter_modules(mutants.__path__))
PLACED = [(area, pair) for area in AREAS for pair in importlib.import_module(f"refhmc.check.mutants.{area}").PAIRS]
PAIRS = [pair for _, pair in PLACED]
PLANNED = [f"P{n:02d}" for n in range(1, 26)]
SEEDS = range(20)

of_each_pair = pytest.mark.parametrize("pair", PAIRS, ids=[f"{area}-{p.id}-{p.what[:40]}" for area, p in PLACED])


def test_all_the_planned_bugs_are_planted():
    assert {pair.id for pair in PAIRS} >= set(PLANNED)
    assert len({(area, pair.id, pair.what) for area, pair in PLACED}) == len(PLACED)


@of_each_pair
@pytest.mark.slow
def test_planted_bug_fails_as_expected(pair):
    report = pair.wrong(0)
    failed = {row.name for row in report.rows if row.status == FAIL}
    assert failed & set(pair.expected), str(report)
    assert report.severity == pair.severity, str(report)


@of_each_pair
@pytest.mark.slow
def test_corrected_code_does_not_fail(pair):
    for seed in SEEDS:
        report = pair.right(seed)
        assert not report.failures, str(report)
        assert report.ok, str(report)

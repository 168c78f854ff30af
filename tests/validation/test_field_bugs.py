"""The page of public bugs is that of the planted bugs and of their last measurement."""

from __future__ import annotations

from validation import field_bugs
from validation.mutation_score import pairs_of, recorded

BUGS = [bug for section in field_bugs.SECTIONS.values() for bug in section]


def test_page_is_current():
    assert field_bugs.PAGE.read_text(encoding="utf-8") == field_bugs.page()


def test_each_bug_is_planted_once_and_was_found():
    measured = recorded()
    assert len({(bug.area, bug.id) for bug in BUGS}) == len(BUGS)
    for bug in BUGS:
        planted = {pair.id for pair in pairs_of(bug.area)}
        assert bug.id in planted
        assert measured[bug.area, bug.id]["as it should"]
        assert measured[bug.area, bug.id]["false alarms"] == 0


def test_references_are_links():
    assert field_bugs.link("pymc#2866") == "[pymc#2866](https://github.com/pymc-devs/pymc/issues/2866)"
    assert "/commit/052bbe6)" in field_bugs.link("walnutpie 052bbe6")
    assert field_bugs.link("unknown#1") == "unknown#1"

"""A symbol of the book has one meaning: the second ones that a reader stumbled over are gone."""

from __future__ import annotations

import re

import pytest

from tests.helpers.places import ROOT

SECOND_MEANINGS = {
    "acceptance": [r"\\Phi\\left"],  # the normal distribution function; a step is Phi
    "leapfrog": [r"\bT = ", r"I & T"],  # a block of a shear; T is the proposal's map
    "after_nuts": [r"\bT\(z", r"\$K\$", r"\bdK ="],  # a macro step, and a change of the kinetic energy
    "explicit": [r"\bK_"],  # a kinetic energy; K(i -> j) is a transition probability
    "tao": [r"\bK\("],  # an energy
    "fisher_and_softabs": [r"J_\{ij\}", r"\$M = ", r"\$M \\mapsto"],  # divided differences; J is a Jacobian, M a mass
    "discontinuous": [r"\\in J\b", r"\$J\$", r"_I\b"],  # sets of coordinates
    "split": [r"U_M\b", r"\$M"],  # the number of parts
}


@pytest.mark.parametrize("chapter", SECOND_MEANINGS)
def test_second_meanings_are_gone(chapter):
    text = (ROOT / "docs" / "book" / f"{chapter}.md").read_text(encoding="utf-8")
    prose = re.sub(r"```\{code-cell\}.*?```", "", text, flags=re.DOTALL)
    assert [pattern for pattern in SECOND_MEANINGS[chapter] if re.search(pattern, prose)] == []

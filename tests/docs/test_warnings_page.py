"""The page on warnings quotes texts that refhmc has."""

from __future__ import annotations

import ast
import re

import refhmc.errors
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "how_to" / "warnings.md").read_text(encoding="utf-8")


def test_quoted_texts_are_in_the_sources():
    texts = []
    for path in (ROOT / "refhmc").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    quoted = [text for row in re.findall(r"^\| (.*?) \|", PAGE, re.MULTILINE) for text in re.findall(r'"([^"]+)"', row)]
    assert len(quoted) > 20
    assert [text for text in quoted if not any(text in each for each in texts)] == []


def test_every_category_of_warning_is_named():
    ours = {name for name in vars(refhmc.errors) if name.endswith("Warning")}
    assert {name for name in ours if name not in PAGE} <= {
        "DiscontinuityWarning"
    }  # a SamplingWarning, told by its text

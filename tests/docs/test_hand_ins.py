"""Hand-ins of students, right and wrong, are judged by the markers of the book's own exercises (`hand_ins.md`).

The cells of a chapter are read from its page, so that a test marks with what the reader runs. Only imports are executed above
the exercises, and only definitions and assignments in them: a marker does not need the figures.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.helpers.places import ROOT
from tests.helpers.sweeps import representatives

CELL = re.compile(r"^```\{code-cell\} python\n(?:---\n(.*?)^---\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
HAND_IN = re.compile(
    r"^## (\w+) (\d): ([^\n]+)\n\n(?:PASS|Says: ([^\n]+))\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Assign)


@dataclass(frozen=True)
class HandIn:
    chapter: str
    exercise: int
    title: str
    words: str  # of the explanation; "" if the answer is right
    code: str


HAND_INS = [
    HandIn(chapter, int(exercise), title, words, code)
    for chapter, exercise, title, words, code in HAND_IN.findall(
        (ROOT / "tests" / "docs" / "hand_ins.md").read_text(encoding="utf-8")
    )
]


SWEPT = ("acceptance", "nuts", "after_nuts", "reference")  # seconds each: their markers run whole transitions
SHORT = [each for each in HAND_INS if each.chapter not in SWEPT]


def assigns(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name


def run(statements: list[ast.stmt], names: dict[str, Any]) -> None:
    exec(compile(ast.Module(statements, []), "<cell>", "exec"), names)


def opened(chapter: str, exercise: int) -> tuple[dict[str, Any], ast.stmt]:
    """Return the names that a student has at an exercise, and the statement that marks the chapter's attempt."""
    page = (ROOT / "docs" / "book" / f"{chapter}.md").read_text(encoding="utf-8")
    above, section = page.split("\n## Exercises\n")
    before, *exercises = re.split(r"^### \d\. ", section, flags=re.MULTILINE)
    names: dict[str, Any] = {"np": np}
    for _, code in CELL.findall(above):
        imports = [each for each in ast.parse(code).body if isinstance(each, ast.Import | ast.ImportFrom)]
        run([each for each in imports if "matplotlib" not in ast.unparse(each)], names)
    marks = []
    for text in (before, *exercises[:exercise]):
        for head, code in CELL.findall(text):
            if "hide-cell" not in head:
                body = [each for each in ast.parse(code).body if isinstance(each, DEFINITIONS)]
                run([each for each in body if not assigns(each, "report")], names)
                marks = [each for each in body if assigns(each, "report")] or marks
    return names, marks[-1]


def marked(hand_in: HandIn) -> Any:
    """Return the report of the exercise's marker."""
    names, mark = opened(hand_in.chapter, hand_in.exercise)
    answer = ast.parse(hand_in.code).body
    run(answer if any(assigns(each, "report") for each in answer) else [*answer, mark], names)
    return names["report"]


@pytest.mark.parametrize(
    "hand_in", representatives(HAND_INS, SHORT), ids=lambda each: f"{each.chapter} {each.exercise}: {each.title}"
)
def test_a_hand_in_is_judged_rightly_and_its_mistake_is_named(hand_in):
    report = marked(hand_in)
    if not hand_in.words:
        report.assert_ok()
        return
    assert not report.ok
    assert hand_in.words in report.explain()

"""The code of the book's pages."""

from __future__ import annotations

import re

from tests.helpers.places import ROOT

BLOCK = re.compile(
    r"^```(?:python|\{code-cell\} (?:python|ipython3)\n(?:---\n.*?^---|(?::[^\n]*\n)*))\n?(.*?)^```",
    re.DOTALL | re.MULTILINE,
)


def code_of(page: str) -> list[str]:
    """The blocks of Python of a page ("README.md", "docs/guide/discrete.md"), cells and others, without a cell's options."""
    return [block.lstrip("\n") for block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]

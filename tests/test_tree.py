"""The tests are a tree: the folders of the source, helpers in one place, no test module reads another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers.places import ROOT

TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))


def modules_read(path) -> Iterator[str]:
    """Dotted names of what a file imports, with the name taken from each module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_no_file_reads_a_test_module(path):
    tests = {path.stem for path in FILES if path.stem.startswith("test_")}
    assert not [name for name in modules_read(path) if tests & set(name.split("."))]


def test_every_folder_is_one_of_the_source():
    folders = {path.parent.relative_to(TESTS).as_posix() for path in FILES} - {".", "helpers", "validation"}
    assert not [folder for folder in folders if not (ROOT / "refhmc" / folder / "__init__.py").is_file()]

"""Imports follow the order of the packages without cycles, tests follow the folders of the source, and versions agree."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest

from refhmc import _dependencies
from tests.helpers.places import ROOT
from validation import architecture

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
    folders = {path.parent.relative_to(TESTS).as_posix() for path in FILES} - {".", "docs", "helpers", "validation"}
    assert not [folder for folder in folders if not (ROOT / "refhmc" / folder / "__init__.py").is_file()]


def test_imports_follow_the_order_of_the_packages_without_cycles():
    imports = architecture.imports_of(architecture.current_sources())
    assert architecture.upward(imports) == []
    assert architecture.cycles(imports) == []


def test_imports_in_functions_and_for_type_checking_count():
    sources = {
        "refhmc": "",
        "refhmc.core": "",
        "refhmc.core.a": "def f():\n    from refhmc.metrics import b\n",
        "refhmc.metrics": "from . import b\n",
        "refhmc.metrics.b": "import refhmc.core.a\nif TYPE_CHECKING:\n    import refhmc.sampling\n",
        "refhmc.sampling": "import refhmc.metrics\n",
    }
    imports = architecture.imports_of(sources)
    assert imports["refhmc.metrics"] == {"refhmc.metrics.b"}
    assert architecture.upward(imports) == ["refhmc.core.a -> refhmc.metrics.b", "refhmc.metrics.b -> refhmc.sampling"]
    assert architecture.cycles(imports) == [["refhmc.core.a", "refhmc.metrics", "refhmc.metrics.b", "refhmc.sampling"]]
    packages = architecture.between_packages(imports, architecture.package_of)
    assert packages == {"core": {"metrics"}, "metrics": {"core", "sampling"}, "sampling": {"metrics"}}


def test_the_dependencies_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.match(r"[\w-]+", text)[0] for text in project["dependencies"]}
    assert names == {"numpy", "scipy", *_dependencies.DEPENDENCIES}


def test_the_tools_of_a_commit_are_those_of_the_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = set(re.findall(r"\b(?:ruff|mypy)==[\d.]+", (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")))
    assert pinned == set(project["optional-dependencies"]["lint"])

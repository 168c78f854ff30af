"""The version stands in one place; what must repeat it does, and the package's description is whole."""

from __future__ import annotations

import re
import tomllib

import refhmc
from tests.helpers.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_stands_in_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "refhmc.__version__"}
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == refhmc.__version__


def test_the_changelog_has_a_section_for_it():
    sections = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert refhmc.__version__ in sections


def test_every_package_is_in_the_wheel():
    """setuptools finds the folders with an ``__init__.py``; the wheel would silently lack any other."""
    assert PROJECT["tool"]["setuptools"]["packages"] == {"find": {"include": ["refhmc*"]}}
    folders = {path.parent for path in (ROOT / "refhmc").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_python_versions_agree():
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["project"]["requires-python"]).groups()
    told = {text.rpartition(".")[2] for text in PROJECT["project"]["classifiers"] if ":: 3." in text}
    assert told == {str(minor) for minor in range(int(low), int(high))}


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds():
    """Those of ``tests/oldest.txt``, for the library itself and for the extras that the run installs."""
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [
        *PROJECT["project"]["dependencies"],
        *extras["test"],
        *extras["arrays"],
        *extras["store"],
        *extras["plot"],
    ]
    bounds = {re.sub(r"^([\w-]+)>=([\d.]+).*", r"\1==\2", each) for each in wanted}
    lines = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if not line.startswith("#")} == bounds

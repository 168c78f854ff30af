"""Every public name is in the reference of the book, and has a docstring."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import refhmc
from tests.helpers.places import ROOT

PAGES = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
SHOWN = [(module, names.split()) for module, names in re.findall(r"^```\{public\} (\S+)(.*)$", PAGES, re.MULTILINE)]
WHOLE = {module for module, names in SHOWN if not names}


def test_every_name_of_refhmc_is_shown():
    named = {name for module, names in SHOWN if module == "refhmc" for name in names}
    modules = {name for name in refhmc._MODULES if getattr(refhmc, name).__name__ in {module for module, _ in SHOWN}}
    assert set(refhmc.__all__) <= named | modules


def test_public_modules_are_shown_whole():
    """Those of which a few names are public choose them."""
    chosen = {"refhmc.sampling.progress", "refhmc.core.compiled", "refhmc.core.sample_stats", "refhmc.models.embedding"}
    assert {getattr(refhmc, name).__name__ for name in refhmc._MODULES} - chosen <= WHOLE


@pytest.mark.parametrize("module", sorted(WHOLE))
def test_public_names_have_docstrings(module):
    module = importlib.import_module(module)
    names = getattr(module, "__all__", [])
    assert inspect.getdoc(module)
    assert [name for name in names if not inspect.getdoc(getattr(module, name))] == []

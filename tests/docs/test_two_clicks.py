"""From the start page to the code of any integrator in two clicks: links of the book's sources, walked without building it."""

from __future__ import annotations

import inspect
import re

import refhmc
from tests.helpers.places import ROOT


def leads_to(page):
    """The files that a page's links lead to; a toctree's entries are links of the built page, beside every page."""
    text = page.read_text(encoding="utf-8")
    links = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    listed = [line + ".md" for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    shown = [ROOT / file for file in re.findall(r"^```\{lines\} ([^:]+):", text, re.MULTILINE)]
    return {(page.parent / link).resolve() for link in links + listed if "://" not in link and link} | set(shown)


def test_every_integrator_is_two_clicks_from_the_start():
    first = leads_to(ROOT / "docs" / "index.md")
    second = first.union(*(leads_to(page) for page in first if page.suffix == ".md" and page.is_file()))
    files = {ROOT / inspect.getsourcefile(each) for each in refhmc.integrators.INTEGRATORS.values()}
    assert {file.name for file in files if file not in second} == set()

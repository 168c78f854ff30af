"""The book's own machinery: what is wrong in a page is found. That the pages themselves are right is the build's affair
(`python -m sphinx -W --keep-going -b html docs build/docs`), which needs the extra ``docs``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

pytest.importorskip("sphinx", reason="needs the extra docs")
pytest.importorskip("latex2mathml", reason="needs the extra docs")

sys.path.insert(0, str(ROOT / "docs" / "_extensions"))

import built_pages

PAGE = '<html><body id="top"><h1 id="a">A</h1>{}</body></html>'


def faults_of(tmp_path: Path, body: str) -> list[str]:
    (tmp_path / "there.html").write_text(PAGE.format(""), encoding="utf-8")
    (tmp_path / "page.html").write_text(PAGE.format(body), encoding="utf-8")
    return list(built_pages.faults(tmp_path))


@pytest.mark.parametrize(
    "body",
    [
        '<a href="there.html#a">x</a>',
        '<a href="#a">x</a>',
        '<a href="https://example.org/page#b">x</a>',
        '<img src="data:image/png;base64,AAAA">',
    ],
)
def test_links_that_arrive_are_no_faults(tmp_path, body):
    assert faults_of(tmp_path, body) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="nowhere.html">x</a>', "not there"),
        ('<a href="there.html#b">x</a>', "no such anchor"),
        ('<a href="#b">x</a>', "no such anchor"),
        ('<img src="gone.png">', "not there"),
        ('<script src="https://cdn.example.org/x.js"></script>', "from the network"),
        ('<link rel="stylesheet" href="//cdn.example.org/x.css">', "from the network"),
        ('<style>@import "https://example.org/x.css";</style>', "from the network"),
        ('<div style="background: url(https://example.org/x.png)"></div>', "from the network"),
    ],
)
def test_what_is_planted_in_a_page_is_found(tmp_path, body, said):
    assert any(said in fault for fault in faults_of(tmp_path, body)), body


def test_a_style_sheet_that_loads_a_font_from_elsewhere_is_found(tmp_path):
    (tmp_path / "x.css").write_text("@font-face { src: url('https://example.org/x.woff2'); }", encoding="utf-8")
    assert any("x.css" in fault for fault in faults_of(tmp_path, ""))


@pytest.mark.sweep
def test_the_notebooks_run(tmp_path):
    pytest.importorskip("jupytext", reason="needs the extra docs")
    from docs import notebooks

    notebooks.main([str(tmp_path), "--run"])
    assert {file.stem for file in tmp_path.glob("*.ipynb")} == {Path(page).name for page in notebooks.PAGES}

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
import papers

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
        '<a href="there.html#target=funnel&amp;eps=0.1">x</a>',  # a state of the interactive page
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


def test_papers_and_identifiers_become_links_to_their_dois():
    line = papers.linked("Tao (2016), section 2; doi:10.1214/20-BA1221, arXiv:1604.00695.")
    assert "`Tao (2016) <https://doi.org/10.1103/PhysRevE.94.043303>`__, section 2" in line
    assert "<https://doi.org/10.1214/20-BA1221>`__," in line
    assert "<https://doi.org/10.48550/arXiv.1604.00695>`__." in line


def test_every_paper_with_a_doi_is_named_in_a_docstring():
    text = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in (ROOT / "refhmc").rglob("*.py"))
    assert [name for name in papers.DOI if name not in text] == []


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Return the executed notebooks by name."""
    pytest.importorskip("jupytext", reason="needs the extra docs")
    import nbformat

    from docs import notebooks

    folder = tmp_path_factory.mktemp("notebooks")
    notebooks.main([str(folder), "--run"])
    return {file.stem: nbformat.read(file, as_version=4) for file in folder.glob("*.ipynb")}


@pytest.mark.sweep
def test_the_notebooks_run(executed):
    from docs import notebooks

    assert set(executed) == {Path(page).name for page in notebooks.PAGES}


@pytest.mark.sweep
def test_tutorial_shows_what_its_text_announces(executed):
    cells = [cell for cell in executed["tutorial"].cells if cell.cell_type == "code"]

    def output(part):
        (cell,) = [cell for cell in cells if part in cell.source]
        return "".join(each.get("text", "") or each.get("data", {}).get("text/plain", "") for each in cell.outputs)

    assert "VERDICT: PASS" in output("refhmc.check.model")
    for summary in ("az.summary(regression", "az.summary(riemannian"):
        assert "beta[oldpeak]" in output(summary)
    assert "alpha[asymptomatic]" in output("az.summary(hierarchical")
    assert "elpd" in output("az.loo(hierarchical)")
    assert output('first["posterior"]').strip().endswith("300")
    assert output('resumed["posterior"].sizes').strip() == "1000"
    assert output('resumed["posterior"]["beta"] ==').strip() == "True"
    figures = [cell for cell in cells if any("image/png" in each.get("data", {}) for each in cell.outputs)]
    assert len(figures) == 2

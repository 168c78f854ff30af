"""The book's own machinery: what is wrong in a page is found. That the pages themselves are right is the build's affair
(`python -m sphinx -W --keep-going -b html docs build/docs`), which needs the extra ``docs``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

pytest.importorskip("sphinx", reason="needs the extra docs")
pytest.importorskip("latex2mathml", reason="needs the extra docs")
pytest.importorskip("myst_nb", reason="needs the extra docs")

sys.path.insert(0, str(ROOT / "docs" / "_extensions"))

import built_pages
import mathml
import nbformat
import papers
import yaml

from docs import notebooks

BOOK = [page for page in notebooks.PAGES if page.startswith("book/")]

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
    line = papers.linked("M. Tao (2016), section 2; doi:10.1214/20-BA1221, arXiv:1604.00695.")
    assert "`M. Tao (2016) <https://doi.org/10.1103/PhysRevE.94.043303>`__, section 2" in line
    assert "<https://doi.org/10.1214/20-BA1221>`__," in line
    assert "<https://doi.org/10.48550/arXiv.1604.00695>`__." in line


@pytest.mark.parametrize(
    ("text", "said", "id"),
    [
        ("as in Neal (2011), section 3", "Neal (2011)", "neal-2011"),
        ("generalised HMC (Horowitz 1991) has", "Horowitz 1991", "horowitz-1991"),
        (
            "A. Nishimura, D. B. Dunson and J. Lu (2020)",
            "A. Nishimura, D. B. Dunson and J. Lu (2020)",
            "nishimura-2020",
        ),
        ("by Metropolis and others (1953)", "Metropolis and others (1953)", "metropolis-1953"),
        (
            "Bouchard-Cote (2024), Jacob, O'Leary and Atchade\n(2020)",
            "Jacob, O'Leary and Atchade\n(2020)",
            "jacob-2020",
        ),
        ("Cook, Gelman and Rubin (2006)", "Cook, Gelman and Rubin (2006)", "cook-2006"),
    ],
)
def test_citations_are_recognised(text, said, id):
    (found,) = papers.CITED.finditer(text)
    assert (found[0], papers.cited(found).id) == (said, id)


CITATION = re.compile(
    r"((?:[A-Z]\. )*[A-Z][\w'-]+(?:(?:, | and )(?:[A-Z]\. )*(?:De )?[A-Z][\w'-]+)*(?: et al\.| and others)?) "
    r"(?:\((?:19|20)\d\d\)|(?<=\()(?:19|20)\d\d\))"
)


@pytest.mark.parametrize("folder", ["book", "guide", "how_to"])
def test_what_the_pages_cite_is_in_the_bibliography(folder):
    for page in (ROOT / "docs" / folder).glob("*.md"):
        text = " ".join(page.read_text(encoding="utf-8").split())
        known = {found.end() for found in papers.CITED.finditer(text)}
        assert [found[0] for found in CITATION.finditer(text) if found.end() not in known] == [], page


def test_the_bibliography_is_sorted_and_every_entry_is_cited():
    entries = papers.PAPERS
    assert [paper.authors for paper in entries if not paper.doi] == ["Gram-Hansen"]
    assert all(re.fullmatch(r"10\.\d{4,5}/\S+", paper.doi) for paper in entries if paper.doi)
    assert len({paper.doi for paper in entries}) == len({paper.id for paper in entries}) == len(entries)
    order = [(paper.authors.lower().replace(",", ""), paper.year) for paper in entries]
    assert order == sorted(order)
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "refhmc").rglob("*.py")]
    files = [file for file in files if file.stem != papers.BIBLIOGRAPHY and "generated" not in file.parts]
    cited = {
        papers.cited(each).id for file in files for each in papers.CITED.finditer(file.read_text(encoding="utf-8"))
    }
    assert [paper.id for paper in entries if paper.id not in cited] == []


@pytest.mark.parametrize("page", BOOK)
def test_each_figure_has_a_caption_and_is_named_in_the_text(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    heads = re.findall(r"^```\{code-cell\} python\n---\n(.*?)^---$", text, re.MULTILINE | re.DOTALL)
    options = [yaml.safe_load(head) for head in heads]
    drawn = [each["mystnb"] for each in options if "image" in each.get("mystnb", {})]
    assert drawn
    for cell in drawn:
        assert cell["image"]["alt"].endswith(".")
        assert cell["figure"]["caption"].endswith(".")
        hidden = "code_prompt_show" in cell  # in a solution, the figure follows the question
        assert hidden or f"{{numref}}`{cell['figure']['name']}`" in text


@pytest.mark.parametrize(
    ("latex", "spaces"),
    [
        (r"\log x", 1),
        (r"2 \log x", 2),
        (r"\log(x)", 0),
        (r"\log\det G", 2),
        (r"-\log x + \exp y", 2),
        (r"\operatorname{erfc}(x)", 0),
        (r"(a) \min(1, x)", 1),
        (r"\log^2 y", 1),
        (r"\text{for every } j", 0),
    ],
)
def test_names_of_functions_have_the_spaces_of_tex(latex, spaces):
    found = mathml.spaced(mathml.convert(latex))
    assert found.count("<mspace") == spaces
    assert not re.search("<mo[^>]*>[a-z]{2,}</mo>", found)  # an operator would have wider ones


def test_bars_have_no_space_around_them():
    assert mathml.spaced(mathml.convert("|q - x|")).count('lspace="0"') == 2


CONF = """
import sys
sys.path.insert(0, {extensions!r})
extensions = ["myst_parser", "mathml"]
myst_enable_extensions = ["dollarmath"]
html_math_renderer, html_theme = "mathml", "furo"
html_static_path, html_css_files = [{static!r}], ["book.css"]
"""
WIDE = " + ".join(f"x_{{{i}}}" for i in range(40))
PHONE = """() => [...document.querySelectorAll("div.math")].map((div) => {
  const box = (name) => div.querySelector(name).getBoundingClientRect();
  return [box(".equation").right <= box(".eqno").left, box(".eqno").right <= innerWidth, box("math").width > innerWidth];
})"""


def test_equations_and_tables_on_a_phone(tmp_path):
    """A wide equation scrolls beside its number, a wide table scrolls, and the page does not; the shipped font is loaded."""
    from sphinx.cmd.build import build_main

    from tests.helpers import browser

    path = browser.skip_without_browser()
    extensions, static = ROOT / "docs" / "_extensions", ROOT / "docs" / "_static"
    (tmp_path / "conf.py").write_text(CONF.format(extensions=str(extensions), static=str(static)), encoding="utf-8")
    equations = f"$$\n{WIDE} = 0\n$$ (wide)\n\n$$\nx = 0\n$$ (narrow)"
    table = "|".join(f" column_{i} " for i in range(30))
    table = f"|{table}|\n|{'---|' * 30}\n|{table}|"
    (tmp_path / "index.md").write_text(f"# A\n\n{equations}\n\n{table}\n", encoding="utf-8")
    assert build_main(["-q", "-W", "-b", "html", str(tmp_path), str(tmp_path / "out")]) == 0
    with browser.launched(path) as chromium:
        page = chromium.new_page(viewport={"width": 390, "height": 844})
        page.goto((tmp_path / "out" / "index.html").as_uri())
        assert page.evaluate(PHONE) == [[True, True, True], [True, True, False]]
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        wrapper = "getComputedStyle(document.querySelector('table').parentElement).overflowX"
        assert page.evaluate(wrapper) == "auto"
        page.evaluate("document.fonts.ready")
        assert page.evaluate("[...document.fonts].map((font) => [font.family, font.status])") == [
            ["STIX Two Math", "loaded"]
        ]


@pytest.mark.parametrize("page", notebooks.PAGES)
@pytest.mark.parametrize("solutions", [True, False])
def test_a_notebook_is_complete(page, solutions):
    made = notebooks.notebook(page, solutions)
    nbformat.validate(made)
    tags = [cell.metadata.get("tags", []) for cell in made.cells]
    hidden = [cell for cell in made.cells if cell.metadata.get("jupyter", {}).get("source_hidden")]
    text = "\n".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    assert tags[0] == ["install"]
    assert tags.count(["answer"]) == notebooks.text_of(page).count("hide-cell") >= (3 if page in BOOK else 0)
    assert len(hidden) == (tags.count(["answer"]) if solutions else 0)
    assert not re.search(r"\{\w+\}`|^```\{|^\$\$ \(", text, re.MULTILINE)  # what only Sphinx understands
    assert "<a href" not in text
    pages = {f"{Path(each).name}.ipynb" for each in notebooks.PAGES}
    assert set(re.findall(r"\]\(([^)]+)\)", text)) - pages <= set(re.findall(r"https?://[^)]+", text))


def test_references_in_a_notebook_are_numbers():
    (cell,) = [each for each in notebooks.notebook("book/implicit_steps").cells if "Figure 2 " in each.source]
    assert "Figure 2 shows one of these steps" in cell.source
    assert "(2) of acceptance.ipynb" in cell.source


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Return two executed notebooks by name; those of the built pages have the outputs of the pages."""
    pytest.importorskip("pymc", reason="PyMC is not installed (extra pymc)")
    folder = tmp_path_factory.mktemp("notebooks")
    notebooks.main([str(folder), "--run", "--only", "book/leapfrog", "guide/tutorial"])
    return {file.stem: nbformat.read(file, as_version=4) for file in folder.glob("*.ipynb")}


@pytest.mark.sweep
def test_the_notebooks_run(executed):
    assert set(executed) == {"leapfrog", "tutorial"}


@pytest.mark.sweep
def test_tutorial_shows_what_its_text_announces(executed):
    cells = [cell for cell in executed["tutorial"].cells if cell.cell_type == "code"]

    def output(part):
        (cell,) = [cell for cell in cells if part in cell.source]
        return "".join(each.get("text", "") or each.get("data", {}).get("text/plain", "") for each in cell.outputs)

    assert "beta[oldpeak]" in output("az.summary(regression")
    assert "'mu', 'tau_log__'" in output("hierarchical_model.parents")
    assert "alpha[asymptomatic]" in output("az.summary(hierarchical")
    assert "elpd" in output("az.loo(hierarchical)")
    assert output('first["posterior"]').strip().endswith("300")
    assert output('resumed["posterior"].sizes').strip() == "1000"
    assert output('resumed["posterior"]["beta"] ==').strip() == "True"
    figures = [cell for cell in cells if any("image/png" in each.get("data", {}) for each in cell.outputs)]
    assert len(figures) == 2

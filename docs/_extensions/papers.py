"""Link cited papers: in docstrings to their DOIs, in pages to their entries in ``bibliography.md``.

A paper is cited as "Betancourt (2013)", "M. Betancourt (2013)" or "Betancourt 2013". An entry of the bibliography is a line
``- [Betancourt (2013)]{#betancourt-2013}: ... <doi:10...>``. In docstrings, ``doi:10...`` and ``arXiv:...`` become links, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes

BIBLIOGRAPHY = "bibliography"
ENTRY = re.compile(r"^- \[(.+?) \((\d{4})\)\]\{#([\w-]+)\}: (.*)$", re.MULTILINE)
SURNAME = re.compile(r"(?<![\w'-])[A-Z][\w'-]+")
WRITTEN = re.compile(r"\b(doi:(10\.[^\s,;]+[^\s,;.])|arXiv:(\d{4}\.\d{4,5}))")


class Paper(NamedTuple):
    """An entry: what it is cited as, the id of its line, and its DOI, or the empty string."""

    authors: str
    year: str
    id: str
    doi: str


def read() -> list[Paper]:
    """Return the entries of the bibliography."""
    text = (Path(__file__).parents[1] / f"{BIBLIOGRAPHY}.md").read_text(encoding="utf-8")
    return [Paper(*entry, "".join(re.findall(r"<doi:(.+)>", rest))) for *entry, rest in ENTRY.findall(text)]


def pattern(paper: Paper) -> str:
    """Return a regular expression of the ways to cite a paper: surnames may have initials, and lack accents."""
    first, *others = re.split(", | and | et al", paper.authors)
    names = [paper.authors, *(first + more for more in (" et al.", " and others") if len(others) > 1)]
    authors = "|".join(SURNAME.sub(r"(?:[A-Z]\\. ?)*\g<0>", name) for name in names)
    authors = f"(?:{authors})".replace(" ", r"\s+").replace("ô", "[oô]").replace("é", "[eé]").replace("á", "[aá]")
    return rf"(?<![\w'-]){authors}(?:\s+\({paper.year}\)|,?\s+\(?{paper.year}\b)"


PAPERS = read()
CITED = re.compile("|".join(f"(?P<_{i}>{pattern(paper)})" for i, paper in enumerate(PAPERS)))


def cited(found: re.Match) -> Paper:
    """Return the paper of a match of ``CITED``."""
    return PAPERS[int((found.lastgroup or "")[1:])]


def linked(line: str) -> str:
    """Return a line of a docstring with links for the papers, DOIs and arXiv numbers in it."""

    def link(found: re.Match) -> str:
        doi = cited(found).doi
        return f"`{found[0]} <https://doi.org/{doi}>`__" if doi else found[0]

    line = WRITTEN.sub(lambda m: f"`{m[1]} <https://doi.org/{m[2] or '10.48550/arXiv.' + m[3]}>`__", line)
    return CITED.sub(link, line)


def link_references(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Link the papers in a References section; numpydoc has made it a rubric or left its heading."""
    inside = False
    for i, line in enumerate(lines):
        if line.strip() in ("References", ".. rubric:: References"):
            inside = True
        elif line.startswith(".. rubric::") or re.fullmatch(r":?(Examples|Notes|See Also):?", line.strip()):
            inside = False
        elif inside:
            lines[i] = linked(line)


def link_citations(app: Any, doctree: nodes.document, docname: str) -> None:
    """Link the papers that the text of a page cites to their entries."""
    if docname == BIBLIOGRAPHY:
        return
    page = app.builder.get_relative_uri(docname, BIBLIOGRAPHY)
    for text in list(doctree.findall(nodes.Text)):
        above: Any = text.parent
        while above is not None and not isinstance(above, (nodes.reference, nodes.title, nodes.FixedTextElement)):
            above = above.parent
        if above is not None or isinstance(text.parent, (nodes.literal, nodes.math)):
            continue
        parts, end = [], 0
        for found in CITED.finditer(text):
            uri = f"{page}#{cited(found).id}"
            parts += [nodes.Text(text[end : found.start()]), nodes.reference("", found[0], internal=True, refuri=uri)]
            end = found.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def setup(app: Any) -> dict:
    app.connect("autodoc-process-docstring", link_references, priority=600)  # after numpydoc
    app.connect("doctree-resolved", link_citations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

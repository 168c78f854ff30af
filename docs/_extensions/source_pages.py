"""A page for each file of this repository that the documentation links to.

A link to a file of code, as `[leapfrog](../refhmc/integrators/leapfrog.py)`, leads to a page with its numbered lines. One to a
page of results (`../validation/results/brofos_table1.md`) leads to a page with its tables and pictures.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[2]
CODE = {".py", ".cpp", ".rs"}


def page_of(file: str) -> str:
    """Return the name of a file's page."""
    return "source/" + re.sub(r"\.(py|md)$", "", file)


class source_link(nodes.inline):
    """A link to the page of ``file``."""


class LinksToFiles(SphinxTransform):
    """Lead links to files of code, and to pages of results, to their pages instead of to copies to download."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        folder = os.path.dirname(self.env.doc2path(self.env.docname))
        for node in list(self.document.findall(addnodes.download_reference)):
            path = Path(os.path.normpath(os.path.join(folder, node["reftarget"])))
            self.lead(node, path if path.suffix in CODE else None)
        for node in list(self.document.findall(addnodes.pending_xref)):
            if (
                node["reftype"] == "myst"
                and node.get("refdomain") == "doc"
                and node["reftarget"] not in self.env.found_docs
            ):
                path = Path(os.path.normpath(os.path.join(self.env.srcdir, node["reftarget"] + ".md")))
                self.lead(node, path)

    def lead(self, node: nodes.Element, path: Path | None) -> None:
        if path is not None and path.is_file() and path.is_relative_to(ROOT):
            file = path.relative_to(ROOT).as_posix()
            text = node.children or [nodes.Text(path.stem)]
            node.replace_self(source_link("", "", *text, file=file))
            self.env.source_files.setdefault(self.env.docname, set()).add(file)


def resolve(app: Any, doctree: nodes.document, docname: str) -> None:
    """Make the links references to the pages that :func:`pages` writes."""
    for node in list(doctree.findall(source_link)):
        uri = app.builder.get_relative_uri(docname, page_of(node["file"]))
        children = node.children[-1:] if isinstance(node.children[-1], nodes.literal) else node.children
        node.replace_self(nodes.reference("", "", *children, internal=True, refuri=uri))


def pages(app: Any) -> Iterator[tuple[str, dict, str]]:
    """Write a page for each file that is linked to, with numbered lines."""
    formatter = HtmlFormatter(linenos="inline", lineanchors="line", anchorlinenos=True, cssclass="highlight")
    for file in sorted(set().union(*app.env.source_files.values())):
        source = (ROOT / file).read_text(encoding="utf-8")
        if file.endswith(".md"):
            body = rendered(source, (ROOT / file).parent)
        else:
            text = highlight(source, get_lexer_for_filename(file, stripnl=False), formatter)
            body = f'<h1>{file}</h1><div class="source-page">{text}</div>'
        yield page_of(file), {"title": file, "body": body}, "page.html"


def rendered(text: str, folder: Path) -> str:
    """Return Markdown with tables as HTML, with its pictures inside and links to other files as their text."""

    def picture(found: re.Match) -> str:
        file = folder / found[1]
        return (
            f'<img src="data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"'
            if file.is_file()
            else found[0]
        )

    html = MarkdownIt("commonmark").enable("table").render(text)
    html = re.sub(r'<img src="([^":]+)"', picture, html)
    html = re.sub(r'<a href="(?!https?:)[^"]*">(.*?)</a>', r"\1", html)
    html = html.replace("<table>", '<div class="table-wrapper"><table class="docutils">').replace(
        "</table>", "</table></div>"
    )
    return html


def begin(app: Any) -> None:
    app.env.source_files = getattr(app.env, "source_files", {})


def forget(app: Any, env: Any, docname: str) -> None:
    env.source_files.pop(docname, None)


def merge(app: Any, env: Any, docnames: Any, other: Any) -> None:
    env.source_files.update((name, other.source_files[name]) for name in docnames if name in other.source_files)


def setup(app: Any) -> dict:
    app.add_node(source_link)
    app.add_transform(LinksToFiles)
    app.connect("builder-inited", begin)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", resolve)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 3}

"""Lines of this repository in the pages: included by the name of a function, and a page for each file that is linked to.

    ```{lines} refhmc/integrators/leapfrog.py:step
    ```

shows that function, or class, or method (`Leapfrog.on_arrays`), from the file as it is; the page is run anew when the file
changes. Its caption leads to the line in a page with the whole file. So does every link to a file of code, as
`[leapfrog](../refhmc/integrators/leapfrog.py)`; one to a page of results (`../validation/results/brofos_table1.md`)
leads to a page with its tables and pictures.
"""

from __future__ import annotations

import ast
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
from sphinx.errors import SphinxError
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
CODE = {".py", ".cpp", ".rs"}


def place_of(file: str, name: str) -> tuple[int, int]:
    """First and last line of what is called ``name`` ("step", "Class.method") in the file, decorators included."""
    found: Any = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for part in name.split("."):
        inside = [x for x in ast.iter_child_nodes(found) if getattr(x, "name", None) == part]
        if not inside:
            raise SphinxError(f"{file} has no {name}")
        found = inside[-1]
    first = min([found.lineno, *(x.lineno for x in found.decorator_list)])
    return first, found.end_lineno


def page_of(file: str) -> str:
    return "source/" + re.sub(r"\.(py|md)$", "", file)


class source_link(nodes.inline):
    """A link to a file's page; ``file``, ``line`` (0: its top)."""


class Lines(SphinxDirective):
    """``{lines} FILE:NAME``"""

    required_arguments = 1
    final_argument_whitespace = False

    def run(self) -> list[nodes.Node]:
        file, _, name = self.arguments[0].partition(":")
        if not (ROOT / file).is_file():
            raise self.error(f"there is no file {file}")
        first, last = place_of(file, name)
        self.env.note_dependency(str(ROOT / file))
        text = (ROOT / file).read_text(encoding="utf-8").splitlines()[first - 1 : last]
        margin = min(len(line) - len(line.lstrip()) for line in text if line.strip())
        code = nodes.literal_block("", "\n".join(line[margin:] for line in text), language="python", included=True)
        where = f"lines {first} to {last}" if last > first else f"line {first}"
        caption = nodes.caption("", "", link_to(file, first, f"{file}, {where}"))
        return [
            nodes.container("", caption, code, classes=["source-lines", "literal-block-wrapper"], literal_block=True)
        ]


def link_to(file: str, line: int, text: str) -> source_link:
    return source_link("", nodes.Text(text).astext(), nodes.literal("", text), file=file, line=line)


class LinksToFiles(SphinxTransform):
    """A link to a file of code, or to a page of results, leads to its page, not to a copy to be downloaded."""

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
            node.replace_self(source_link("", "", *text, file=file, line=0))


def resolve(app: Any, doctree: nodes.document, docname: str) -> None:
    """Links become references to pages that :func:`pages` makes."""
    files = app.env.source_files
    for node in list(doctree.findall(source_link)):
        files.setdefault(docname, set()).add(node["file"])
        uri = app.builder.get_relative_uri(docname, page_of(node["file"]))
        anchor = f"#line-{node['line']}" if node["line"] else ""
        children = node.children[-1:] if isinstance(node.children[-1], nodes.literal) else node.children
        node.replace_self(nodes.reference("", "", *children, internal=True, refuri=uri + anchor))


def pages(app: Any) -> Iterator[tuple[str, dict, str]]:
    """A page for each file that a page leads to, with its lines numbered."""
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
    """Markdown with tables as HTML: pictures are put into it, links to other files become their text."""

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
    env.source_files.update(getattr(other, "source_files", {}))


def setup(app: Any) -> dict:
    app.add_node(source_link)
    app.add_directive("lines", Lines)
    app.add_transform(LinksToFiles)
    app.connect("builder-inited", begin)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", resolve)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": False, "env_version": 1}

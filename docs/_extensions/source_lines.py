"""Lines of this repository in the pages: included by the name of a function, and a page for each file that is linked to.

    ```{lines} refhmc/integrators/leapfrog.py:step
    ```

shows that function, or class, or method (`Leapfrog.on_arrays`), from the file as it is; the page is run anew when the file
changes. Its caption leads to the line in a page with the whole file. So does every link to a Python file, as
`[leapfrog](../refhmc/integrators/leapfrog.py)`.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx import addnodes
from sphinx.errors import SphinxError
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]


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
    return "source/" + file.removesuffix(".py")


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
    """A link to a Python file leads to its page, not to a copy to be downloaded."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        folder = os.path.dirname(self.env.doc2path(self.env.docname))
        for node in list(self.document.findall(addnodes.download_reference)):
            path = Path(os.path.normpath(os.path.join(folder, node["reftarget"])))
            if path.suffix == ".py" and path.is_file() and path.is_relative_to(ROOT):
                file = path.relative_to(ROOT).as_posix()
                node.replace_self(source_link("", "", *node.children, file=file, line=0))


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
        text = highlight((ROOT / file).read_text(encoding="utf-8"), PythonLexer(stripnl=False), formatter)
        body = f'<h1>{file}</h1><div class="source-page">{text}</div>'
        yield page_of(file), {"title": file, "body": body}, "page.html"


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

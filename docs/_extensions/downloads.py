"""Offer the chapters and the tutorial as notebooks, with the outputs of the build: a link below the title of each page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from docs import notebooks

FOLDER = "notebooks"


def link(app: Any, pagename: str, templatename: str, context: dict, doctree: Any) -> None:
    if pagename in notebooks.PAGES:
        file = app.builder.get_relative_uri(pagename, "index").replace("index.html", "")
        file += f"{FOLDER}/{Path(pagename).name}.ipynb"
        button = f'<p><a class="notebook" href="{file}" download>Download this page as a Jupyter notebook</a></p>'
        context["body"] = context["body"].replace("</h1>", f"</h1>\n{button}", 1)


def write(app: Any, exception: Exception | None) -> None:
    """Write the notebooks; the cells with outputs are those that MyST-NB left beside the pages."""
    if exception is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for page in notebooks.PAGES:
        cells = nbformat.read(Path(app.outdir).parent / "jupyter_execute" / f"{page}.ipynb", as_version=4)
        nbformat.write(notebooks.completed(cells, page), folder / f"{Path(page).name}.ipynb")


def setup(app: Any) -> dict:
    app.connect("html-page-context", link)
    app.connect("build-finished", write, priority=400)  # before the links of the pages are checked
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Check that every block of Python in the pages is run, as a cell or by the test that ``executed_elsewhere`` names.

Code included from the source is exempt. A block that nothing runs is a warning, and so an error of the build.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging

logger = logging.getLogger(__name__)
PYTHON = {"python", "python3", "py", "ipython", "ipython3", "pycon"}


def look(app: Any, doctree: nodes.document) -> None:
    docname = app.env.docname
    if docname in app.config.executed_elsewhere:
        if not (Path(app.srcdir).parent / app.config.executed_elsewhere[docname]).is_file():
            logger.warning("executed_elsewhere: there is no %s", app.config.executed_elsewhere[docname])
        return
    for block in doctree.findall(nodes.literal_block):
        included = str(block.get("source", "")).endswith(".py")  # by literalinclude
        cell = block.parent is not None and "cell_input" in block.parent.get("classes", [])
        if block.get("language") in PYTHON and not cell and not included:
            logger.warning("a block of Python that nothing runs: make it a {code-cell}", location=block)


def setup(app: Any) -> dict:
    app.add_config_value("executed_elsewhere", {}, "env")
    app.connect("doctree-read", look)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Mathematics as MathML, which browsers render without scripts and without the network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)


def mathml(node: nodes.Element, display: str) -> str:
    """Return the node's LaTeX as MathML. LaTeX that cannot be translated is a warning, and so an error of the build."""
    latex = node.astext().strip()
    if r"\\" in latex and r"\begin" not in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    # latex2mathml does not know ``aligned``: use a right-aligned and a left-aligned column.
    latex = latex.replace(r"\begin{aligned}", r"\begin{array}{rl}").replace(r"\end{aligned}", r"\end{array}")
    try:
        text = convert(latex, display=display)
    except Exception as reason:  # of many classes
        logger.warning("no MathML of %r: %r", latex, reason, location=node)
        return ""
    if "\\" in text.split(">", 1)[1]:
        logger.warning("MathML of %r has a command that is not known: %s", latex, text, location=node)
    return text


def visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(mathml(node, "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

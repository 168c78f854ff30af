"""Mathematics as MathML, which browsers render without scripts and without the network."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)
NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ET.register_namespace("", NAMESPACE)
OPENING, CLOSING = set("([{|⟨"), set(")]}|⟩")


def local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def is_function(element: ET.Element) -> bool:
    """Whether an element is the name of a function, as log, with or without a subscript or a superscript."""
    if local(element) in ("msub", "msup", "msubsup"):
        return is_function(element[0])
    text = element.text or ""
    return local(element) in ("mi", "mo") and len(text) > 1 and text.isalpha()


def spaced(text: str) -> str:
    """Return MathML with TeX's thin spaces around names of functions: log x and 2 log x, but log(x); and none around |."""
    tree = ET.fromstring(text)
    for row in tree.iter():
        if local(row) == "mo" and row.text == "|":
            row.attrib |= {"lspace": "0", "rspace": "0"}  # it is a bracket, and not an operator
        if local(row) in ("msub", "msup", "msubsup", "munder", "mover", "munderover", "mfrac", "mroot"):
            continue
        children = list(row)
        for k, child in reversed(list(enumerate(children))):
            if not is_function(child):
                continue
            name = child if local(child) in ("mi", "mo") else child[0]
            name.tag, name.attrib = f"{{{NAMESPACE}}}mi", {}  # an operator would have wider spaces
            thin = ET.Element(f"{{{NAMESPACE}}}mspace", width="0.167em")
            after = children[k + 1] if k + 1 < len(children) else None
            before = children[k - 1] if k else None
            if after is not None and not (local(after) == "mo" and (after.text in OPENING or not is_function(after))):
                row.insert(k + 1, thin)
            if before is not None and not is_function(before) and (local(before) != "mo" or before.text in CLOSING):
                row.insert(k, thin)
    return ET.tostring(tree, encoding="unicode")


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
    return spaced(text)


def visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(f'<div class="equation">{mathml(node, "block")}</div></div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

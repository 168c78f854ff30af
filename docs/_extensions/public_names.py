"""The reference: every public name of a module with its signature, its docstring as it is, and its place in the source.

    ```{public} refhmc.diagnostics
    ```

has the module's own docstring and a section for each name of ``__all__``; of a module without one, for each function and class
that is defined in it. Names after the module's choose among them. A name without a docstring is an error. Docstrings are plain
text, set as such; a class has its public methods and properties beneath.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from source_lines import ROOT, link_to
from sphinx.util.docutils import SphinxDirective

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


def public(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    found = [name for name, value in vars(module).items() if inspect.isclass(value) or inspect.isfunction(value)]
    return [x for x in found if not x.startswith("_") and getattr(module, x).__module__ == module.__name__]


def signature(name: str, value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, BaseException):
        return name
    try:
        text = f"{name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        return name
    text = re.sub(r"<(?:function|factory)[^>]*>", "...", text).replace("'", "")
    return textwrap.fill(text, 96, subsequent_indent=" " * 4, break_long_words=False, break_on_hyphens=False)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, refhmc's own, that have a docstring."""
    for name in sorted({name for base in cls.__mro__ if base.__module__.startswith("refhmc") for name in vars(base)}):
        static = inspect.getattr_static(cls, name)
        value = static.fget if isinstance(static, property) else getattr(static, "__func__", static)
        if not name.startswith("_") and inspect.isfunction(value) and inspect.getdoc(value):
            yield name, static


class Public(SphinxDirective):
    """``{public} MODULE [NAME ...]``"""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        chosen = self.arguments[1].split() if len(self.arguments) > 1 else public(module)
        self.env.note_dependency(module.__file__)
        found: list[nodes.Node] = [self.text(module, self.arguments[0])]
        for name in chosen:
            found += self.entry(self.arguments[0], name, getattr(module, name))
        return found

    def entry(self, module: str, name: str, value: Any) -> list[nodes.Node]:
        full = f"{module}.{name}"
        if not (callable(value) or inspect.ismodule(value)):
            return [nodes.paragraph("", "", nodes.literal("", full), nodes.Text(f" = {value!r}"))]
        title = nodes.rubric("", "", nodes.literal("", full), ids=[full], names=[], classes=["public-name"])
        body = [title]
        if not inspect.ismodule(value):
            body.append(nodes.literal_block("", signature(name, value), language="text", classes=["signature"]))
        body.append(self.text(value, full))
        if inspect.isclass(value):
            for part, static in members(value):
                call = part if isinstance(static, property) else signature(part, getattr(static, "__func__", static))
                method = nodes.definition_list_item(
                    "", nodes.term("", "", nodes.literal("", call)), nodes.definition("", self.text(static, full))
                )
                body.append(nodes.definition_list("", method))
        place = self.place(value)
        return [*body, *([place] if place is not None else [])]

    def text(self, value: Any, full: str) -> nodes.Node:
        """The docstring, in the text's own lines."""
        doc = inspect.getdoc(value.fget if isinstance(value, property) else value)
        if not doc:
            raise self.error(f"{full} has no docstring")
        return nodes.literal_block("", ROLE.sub(r"\1", doc), language="text", classes=["docstring"])

    def place(self, value: Any) -> nodes.Node | None:
        if inspect.ismodule(value):
            file, line = value.__file__, 0
        else:
            try:
                value = inspect.unwrap(getattr(value, "py_func", value))
                file, line = inspect.getsourcefile(value), inspect.getsourcelines(value)[1]
            except (TypeError, OSError):
                return None
        if file is None or not Path(file).is_relative_to(ROOT):
            return None
        name = Path(file).relative_to(ROOT).as_posix()
        return nodes.paragraph("", "", link_to(name, line, f"{name}, line {line}" if line else name))


def setup(app: Any) -> dict:
    app.add_directive("public", Public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

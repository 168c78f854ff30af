"""Write the chapters of the book and the tutorial as notebooks: ``python -m docs.notebooks FOLDER``.

A notebook begins with a cell that installs refhmc. In an exercise, an empty cell for the answer stands before the solution,
which is collapsed, or left out (``--without-solutions``). Equations and figures have numbers, code that a chapter includes from
refhmc is copied into the text, and links lead to the other notebooks. ``--run`` executes each notebook in its own kernel.
"""

from __future__ import annotations

import argparse
import functools
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGES = (*(f"book/{file.stem}" for file in sorted((HERE / "book").glob("*.md"))), "guide/tutorial")
INSTALL = """\
import importlib.util

SOURCE = "."  # the folder of your clone of refhmc
if importlib.util.find_spec("refhmc") is None:
    %pip install -q {SOURCE}[EXTRAS]"""
EXTRAS = {"guide/tutorial": "plot,pymc"}  # default plot
ANSWER = "# Your answer\n"
INCLUDED = re.compile(r"^```\{literalinclude\} \S+\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
EQUATION = re.compile(r"^(\$\$\n.*?)\n\$\$ \(([\w-]+)\)$", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"^    name: (fig-[\w-]+)$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#]*)[^)]*\)")


def text_of(page: str) -> str:
    return (HERE / f"{page}.md").read_text(encoding="utf-8")


@functools.cache
def numbers() -> dict[str, tuple[str, int]]:
    """Return the page and the number there of each equation and figure."""
    found: dict[str, tuple[str, int]] = {}
    for page in PAGES:
        text = text_of(page)
        for labels in ([label for _, label in EQUATION.findall(text)], FIGURE.findall(text)):
            found |= {label: (page, n) for n, label in enumerate(labels, 1)}
    return found


def included(match: re.Match) -> str:
    """Return the source that a directive includes, as a block of Markdown."""
    from sphinx.pycode import ModuleAnalyzer

    options = dict(re.findall(r"^:([\w-]+): *(.*)$", match[1], re.MULTILINE))
    analyzer = ModuleAnalyzer.for_file(HERE.parent / options["caption"], "")
    _, first, last = analyzer.find_tags()[options["pyobject"]]
    lines = analyzer.code.splitlines()
    first += next(k for k, line in enumerate(lines[first - 1 : last]) if options.get("start-at", "") in line)
    above = f"`{options['caption']}`, lines {first} to {last}:"
    return "\n".join([above, "", "```python", *lines[first - 1 : last], "```"])


def markdown(text: str, page: str) -> str:
    """Return the text of a page without what only Sphinx understands."""
    where = numbers()

    def reference(form: str, label: str) -> str:
        there, n = where[label]
        return form.format(n) + ("" if there == page else f" of {Path(there).name}.ipynb")

    def link(match: re.Match) -> str:
        there, _, suffix = match[2].rpartition(".")
        name = Path(there).name
        known = suffix == "md" and name in {Path(each).name for each in PAGES}
        return f"[{match[1]}]({name}.ipynb)" if known else match[1]

    text = INCLUDED.sub(included, text)
    text = EQUATION.sub(lambda m: f"{m[1]} \\tag{{{where[m[2]][1]}}}\n$$", text)
    text = re.sub(r"\{eq\}`([\w-]+)`", lambda m: reference("({})", m[1]), text)
    text = re.sub(r"\{numref\}`([\w-]+)`", lambda m: reference("Figure {}", m[1]), text)
    text = re.sub(r"\{\w+\}`([^`]+)`", r"`\1`", text)
    text = re.sub(r'<a href="\.\./([^"#]+)[^"]*">([^<]+)</a>', r"\2 (`docs/\1`)", text)
    return LINK.sub(link, text)


def completed(cells: Any, page: str, solutions: bool = True) -> dict:
    """Return the notebook of a page.

    Parameters
    ----------
    cells : notebook
        The page as cells of Markdown and of code, with or without outputs.
    page : str
        One of ``PAGES``.
    solutions : bool, default True
        Keep the solutions, collapsed.

    Returns
    -------
    notebook
        For JupyterLab and other programs that show notebooks.
    """
    from nbformat import v4

    install = INSTALL.replace("EXTRAS", EXTRAS.get(page, "plot"))
    where, made = numbers(), [v4.new_code_cell(install, metadata={"tags": ["install"]})]
    for cell in cells.cells:
        if cell.cell_type == "markdown":
            made.append(v4.new_markdown_cell(markdown(cell.source, page)))
            continue
        is_solution = "hide-cell" in cell.metadata.get("tags", [])
        if is_solution:
            made.append(v4.new_code_cell(ANSWER, metadata={"tags": ["answer"]}))
            if not solutions:
                continue
            made.append(v4.new_markdown_cell("**Solution** (the collapsed cell below):"))
        metadata = {"jupyter": {"source_hidden": True, "outputs_hidden": True}} if is_solution else {}
        made.append(v4.new_code_cell(cell.source, outputs=cell.outputs, metadata=metadata))
        if figure := cell.metadata.get("mystnb", {}).get("figure"):
            made.append(v4.new_markdown_cell(f"*Figure {where[figure['name']][1]}.* {figure['caption']}"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=made, metadata={"kernelspec": kernel})


def notebook(page: str, solutions: bool = True) -> dict:
    """Return a page as a notebook, without outputs."""
    from myst_nb.core.read import read_myst_markdown_notebook

    return completed(read_myst_markdown_notebook(text_of(page)), page, solutions)


def executed(page: str, solutions: bool = True) -> dict:
    """Return a page as a notebook with outputs; a cell that raises an exception is an error."""
    from nbclient import NotebookClient

    return NotebookClient(notebook(page, solutions), timeout=600, kernel_name="python3").execute()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=PAGES, default=PAGES, metavar="PAGE", help="these pages only")
    parser.add_argument("--run", action="store_true", help="execute them; a cell that raises an exception is an error")
    parser.add_argument("--without-solutions", action="store_true", help="leave out the solutions of exercises")
    options = parser.parse_args(arguments)
    import nbformat

    options.folder.mkdir(parents=True, exist_ok=True)
    for page in options.only:
        file = options.folder / f"{Path(page).name}.ipynb"
        make = executed if options.run else notebook
        nbformat.write(make(page, not options.without_solutions), file)
        print(file)


if __name__ == "__main__":
    main()

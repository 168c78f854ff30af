"""Write two chapters and the tutorial as notebooks: ``python -m docs.notebooks FOLDER``.

``--run`` executes each in its own kernel. Source code that a chapter includes is copied into it as text. Links are unchanged.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGES = ("book/leapfrog", "book/acceptance", "guide/tutorial")
INCLUDED = re.compile(
    r"^```\{literalinclude\} \S+\n:pyobject: (\S+)\n:caption: (\S+)\n.*?```$", re.MULTILINE | re.DOTALL
)
EQUATION = re.compile(r"^\$\$ \([\w-]+\)$", re.MULTILINE)


def included(match: re.Match) -> str:
    """Return the source that a directive includes, as a block of Markdown."""
    from sphinx.pycode import ModuleAnalyzer

    name, file = match.groups()
    analyzer = ModuleAnalyzer.for_file(HERE.parent / file, "")
    _, first, last = analyzer.find_tags()[name]
    return "\n".join(
        [f"`{file}`, lines {first} to {last}:", "", "```python", *analyzer.code.splitlines()[first - 1 : last], "```"]
    )


def notebook(page: str) -> dict:
    """Return a page as a notebook, without outputs."""
    import jupytext

    text = (HERE / f"{page}.md").read_text(encoding="utf-8")
    text = EQUATION.sub("$$", INCLUDED.sub(included, text))
    text = re.sub(r"\{eq\}`([\w-]+)`", r"(*\1*)", text)
    text = text.replace("kernelspec:\n  name: python3\n", "kernelspec:\n  name: python3\n  display_name: Python 3\n", 1)
    return jupytext.reads(text, fmt="md:myst")


def executed(page: str) -> dict:
    """Return a page as a notebook with outputs; a cell that raises an exception is an error."""
    from nbclient import NotebookClient

    return NotebookClient(notebook(page), timeout=600, kernel_name="python3").execute()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true", help="execute them; a cell that raises an exception is an error")
    options = parser.parse_args(arguments)
    import nbformat

    options.folder.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        file = options.folder / f"{Path(page).name}.ipynb"
        nbformat.write(executed(page) if options.run else notebook(page), file)
        print(file)


if __name__ == "__main__":
    main()

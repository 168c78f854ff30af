"""Two chapters of the book as notebooks: `python -m docs.notebooks FOLDER` writes them, `--run` also executes them.

The source code that a chapter includes is put in as text.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

HERE = Path(__file__).parent
CHAPTERS = ("leapfrog", "acceptance")
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


def notebook(chapter: str) -> dict:
    """The chapter as a notebook, without outputs."""
    import jupytext

    text = (HERE / "book" / f"{chapter}.md").read_text(encoding="utf-8")
    text = EQUATION.sub("$$", INCLUDED.sub(included, text))
    text = re.sub(r"\{eq\}`([\w-]+)`", r"(*\1*)", text)
    text = text.replace("kernelspec:\n  name: python3\n", "kernelspec:\n  name: python3\n  display_name: Python 3\n", 1)
    return jupytext.reads(text, fmt="md:myst")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true", help="execute them; a cell that raises is an error")
    options = parser.parse_args(arguments)
    import nbformat

    options.folder.mkdir(parents=True, exist_ok=True)
    for chapter in CHAPTERS:
        made = notebook(chapter)
        if options.run:
            from nbclient import NotebookClient

            NotebookClient(made, timeout=600, kernel_name="python3").execute()
        nbformat.write(made, options.folder / f"{chapter}.ipynb")
        print(options.folder / f"{chapter}.ipynb")


if __name__ == "__main__":
    main()

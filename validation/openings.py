"""The first lines of the pages of ``results``: reproduced, differs, undecided and why, or what was found.

    python -m validation.openings

Each line is computed by the function ``opening`` of the page's module from the page's JSON file. The command writes the lines
of all recorded pages again and leaves the rest of the pages as it is.
"""

from __future__ import annotations

import importlib
import json
import re

from validation import common

BEGINNING = re.compile(r"\*\*(Reproduced|Differs|Undecided|Found)\*\*: .")


def pages() -> list[str]:
    """Return the names of the recorded pages."""
    return sorted(path.stem for path in common.RESULTS.glob("*.md"))


def module_of(page: str) -> str:
    """Return the name of the module that writes a page."""
    if re.match(r"brofos_table\d", page):
        return "brofos_tables"
    if re.match(r"brofos_figure[234]$", page):
        return "brofos_figures2and3"
    return re.sub(r"_(quick|\d+_passes)$", "", page)


def opening_of(page: str) -> str:
    """Return the first line of a page, computed from its JSON file."""
    data = json.loads((common.RESULTS / f"{page}.json").read_text(encoding="utf-8"))
    return importlib.import_module(f"validation.{module_of(page)}").opening(data)


def main() -> None:
    for page in pages():
        path = common.RESULTS / f"{page}.md"
        title, first, rest = path.read_text(encoding="utf-8").split("\n\n", 2)
        rest = rest if BEGINNING.match(first) else f"{first}\n\n{rest}"
        line = opening_of(page)
        path.write_text(f"{title}\n\n{line}\n\n{rest}", encoding="utf-8")
        print(f"{page}: {line}")


if __name__ == "__main__":
    main()

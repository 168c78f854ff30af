"""Check the built pages: every internal link has a target, and no page loads anything from elsewhere.

A link is valid if its file exists and, if it has an anchor, an element with that id. Links may lead to other sites; scripts,
styles, fonts, images and frames may not. A fragment with an equals sign is the state of the interactive page, not an anchor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sphinx.util import logging

logger = logging.getLogger(__name__)
LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
ELSEWHERE = re.compile(r"(?:https?:)?//")
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """Ids, links and loaded files of one page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.styles = False
        text = file.read_text(encoding="utf-8")
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        found = {key: value or "" for key, value in attributes}
        self.ids |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "link" and found.get("rel") not in ("canonical", "author", "license"):
            self.loaded.append(found.get("href", ""))
        if tag in LOADS:
            self.loaded.append(found.get(LOADS[tag], ""))
        self.loaded += IN_STYLES.findall(found.get("style", ""))
        self.styles = tag == "style"

    def handle_data(self, data: str) -> None:
        if self.styles:
            self.loaded += IN_STYLES.findall(data)


def faults(folder: Path) -> Iterator[str]:
    """Yield the faults of the pages in ``folder``, one sentence each."""
    pages = {file.resolve(): Page(file) for file in sorted(folder.rglob("*.html"))}
    for file, page in pages.items():
        name = file.relative_to(folder.resolve()).as_posix()
        for target in page.loaded:
            if ELSEWHERE.match(target):
                yield f"{name} loads {target} from the network"
        for target in dict.fromkeys([*page.links, *page.loaded]):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
                continue
            there = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchor = unquote(parts.fragment)
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file():
                yield f"{name} leads to {target}, which is not there"
            elif anchor and "=" not in anchor and there in pages and anchor not in pages[there].ids:
                yield f"{name} leads to {target}, but {there.name} has no such anchor"
    for file in sorted(folder.rglob("*.css")):
        for target in IN_STYLES.findall(file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(folder).as_posix()} loads {target} from the network"


def look(app: Any, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        for fault in faults(Path(app.outdir)):
            logger.warning(fault)


def setup(app: Any) -> dict:
    app.connect("build-finished", look)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

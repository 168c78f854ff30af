"""A browser for the page that moves: Chromium as it is installed, driven by Playwright (the extra ``browser``)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.places import ROOT

PAGE = ROOT / "docs" / "moving" / "index.html"
STILL = {"reduced_motion": "reduce"}
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found() -> str | None:
    """The path of a Chromium; None where there is none."""
    return os.environ.get("REFHMC_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def skip_without_browser() -> str:
    """The path of a Chromium; skips the test, with what is missing, where there is none."""
    pytest.importorskip("playwright.sync_api", reason="Playwright is not here: pip install 'refhmc[browser]'")
    path = found()
    if path is None:
        pytest.skip("no Chromium is here: install it, or say where it is in REFHMC_CHROMIUM")
    return path


@contextlib.contextmanager
def launched(path: str) -> Iterator[Any]:
    """The browser, started."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


@contextlib.contextmanager
def opened(chromium: Any, **settings: Any) -> Iterator[Any]:
    """The page, opened as a file; it must write nothing to its console and ask for nothing but files."""
    said: list[str] = []
    page = chromium.new_page(**settings)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or said.append(request.url))
    page.goto(PAGE.as_uri())
    try:
        yield page
    finally:
        page.close()
    assert said == []


def contrast(page: Any, element: str) -> float:
    """Return the contrast of an element's text with its background, by the definition of WCAG 2, opacity included."""
    ink, opacity, paper = page.evaluate(
        """selector => {
            let at = document.querySelector(selector);
            const { color, opacity } = getComputedStyle(at);
            while (at && /rgba\\(0, 0, 0, 0\\)/.test(getComputedStyle(at).backgroundColor)) at = at.parentElement;
            return [color, Number(opacity), getComputedStyle(at).backgroundColor];
        }""",
        element,
    )
    on = [float(x) for x in re.findall(r"[\d.]+", paper)[:3]]
    text = [opacity * float(x) + (1 - opacity) * y for x, y in zip(re.findall(r"[\d.]+", ink)[:3], on, strict=True)]
    light, dark = sorted(map(luminance, (on, text)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(rgb: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

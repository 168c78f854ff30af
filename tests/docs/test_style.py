"""Text that users see is plain English: the words that ``tests/helpers/style.py`` bans, and the length of sentences."""

from __future__ import annotations

import ast

import pytest

from tests.helpers import style
from tests.helpers.places import ROOT

DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS]
SOURCES = [path for path in style.files([ROOT / "refhmc"]) if path.name != "LICENSES.md"]  # which quotes licences


@pytest.mark.parametrize(
    "sentence",
    [
        "The law of the chain is kept.",
        "It makes 3,000 draws a second.",
        "Of these, two remain.",
        "Invalid values are refused.",
        "An object that is no model raises TypeError.",
        "The compiled twin goes on.",
        "What is left is counted.",
    ],
)
def test_banned_words_are_found(sentence):
    assert style.banned(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "The stationary distribution is preserved.",
        "Call `told(x)` and ``law`` as in $law = 1$.",
        "It draws 3,000 samples per second.",
        "What does a divergence mean?",
        "No model is needed.",
    ],
)
def test_plain_sentences_pass(sentence):
    assert style.banned(sentence) == []


def test_long_sentences_are_counted(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(("Word " * 26 + "end. ") * 2 + "Short one. " * 3, encoding="utf-8")
    assert list(style.findings(page)) == [f"{page}: 2 of 5 sentences have more than 25 words"]


def test_messages_and_public_docstrings_are_read():
    tree = ast.parse(
        '"""A law."""\ndef f(x):\n    """Tell."""\n    raise ValueError(f"{x} is refused here")\ndef _g():\n    """A law."""'
    )
    texts = [text for _, text in [*style.docstrings(tree), *style.messages(tree)]]
    assert texts == ["A law.", "Tell.", "x is refused here"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_plain(page):
    assert list(style.findings(page)) == []


def test_messages_and_docstrings_are_plain():
    assert [finding for source in SOURCES for finding in style.findings(source)] == []

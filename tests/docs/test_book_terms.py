"""The book defines its terms before it uses them: a table of the glossary names the chapter of each definition."""

from __future__ import annotations

import re

import pytest

from tests.helpers.places import ROOT

DOCS = ROOT / "docs"
CHAPTERS = re.findall(r"^book/(\w+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
TABLE = (DOCS / "glossary.md").read_text(encoding="utf-8").partition("\n## Terms that the book defines\n")[2]
TERMS = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| \[[^]]+\]\(book/(\w+)\.md\) \|$", TABLE, re.MULTILINE))

# Forms of a term that differ from the term and from its plural in s.
FORMS = {
    "centred": r"(?<!non-)centred",
    "converges": r"converge[sd]?|convergence",
    "divergence": r"(?<!Fisher )(?<!Kullback-Leibler )(?:divergences?|divergent)",
    "Hamiltonian": r"Hamiltonian(?! Monte Carlo)",
    "invariant": r"invarian(?:t|ce)",
    "reversible": r"reversib(?:le|ility)",
    "symplectic": r"symplectic(?:ity)?",
    "trajectory": r"trajector(?:y|ies)",
    "U-turn": r"(?<!No-)U-turns?",
}

# Uses before the definition, in the words of a chapter, and the reasons for them.
LIST = "effective sample size, R-hat, the energy Bayesian fraction of missing information (E-BFMI), divergences and tree depth."
EARLIER = {
    ("flow", "from_metropolis"): [
        "From x to x flows the probability",
        "which is the flow from x to x",
    ],  # of probability
    ("divergence", "is_my_chain_good"): [LIST],  # of what the chapter defines
    ("R-hat", "is_my_chain_good"): [LIST],
    ("tree depth", "is_my_chain_good"): [LIST],
}

# Words in italics that are stressed and not defined.
STRESSED = {
    *("above its start", "ahead", "all", "and", "at the end", "before", "behind", "between", "constant", "earlier"),
    *("ended", "every", "higher", "in distribution", "inside", "later", "more", "the", "this", "where"),
    *("binds", "defined", "naive", "order", "randomised", "split", "symmetric"),  # words of one section or one proof
}

ACRONYMS = {
    "DHMC": "Discontinuous HMC",
    "E-BFMI": "energy Bayesian fraction of missing information",
    "ESS": "effective sample size",
    "GHMC": "generalised HMC",
    "HMC": "Hamiltonian Monte Carlo",
    "MAMS": "Metropolis-adjusted microcanonical sampler",
    "NUTS": "No-U-Turn sampler",
    "NaN": "not a number",
    "WALNUTS": "within-orbit adaptive leapfrog No-U-Turn sampler",
}
NO_ACRONYMS = {"PASS", "FAIL", "INCONCLUSIVE", "IX"}  # verdicts of the kit, and the number of a chapter


def prose(chapter: str, links: bool) -> str:
    """Return the sentences and captions of a chapter, with or without the words of its links."""
    text = (DOCS / "book" / f"{chapter}.md").read_text(encoding="utf-8")
    text = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.DOTALL | re.MULTILINE)
    caption = re.compile(r"^    caption: '(.*)'$", re.MULTILINE)
    text = re.sub(
        r"^```.*?^```$", lambda cell: " ".join(caption.findall(cell[0])), text, flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)  # a heading announces its section
    text = re.sub(r"\$\$.*?\$\$(?: \([\w-]+\))?|\$[^$]*\$|(?:\{[^}]*\})?`[^`]*`", "x", text, flags=re.DOTALL)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)|<a [^>]*>([^<]*)</a>", r"\1\2" if links else "", text)
    return " ".join(text.split())


def uses(term: str, text: str) -> list[re.Match]:
    """Return the places of a term in a text."""
    form = FORMS.get(term, re.escape(term.removesuffix("s")) + "s?")
    return list(re.finditer(rf"(?<![\w-])(?:{form})(?![\w-])", text, re.IGNORECASE))


def around(use: re.Match) -> str:
    return use.string[max(use.start() - 60, 0) : use.end() + 60]


def emphasised(text: str) -> list[str]:
    """Return what is in italics, except the headings of the steps of a proof, which start with a capital letter."""
    return re.findall(r"(?<!\*)\*((?! )[^*]+)\*(?!\*)", text)


def test_table_is_sorted_and_names_chapters():
    assert len(CHAPTERS) == len(list((DOCS / "book").glob("*.md")))
    assert list(TERMS) == sorted(TERMS, key=str.lower)
    assert len(TERMS) == TABLE.count("\n| ") - 1  # the head is a row, too
    assert set(TERMS.values()) <= set(CHAPTERS)
    assert {"kernel", "target", "posterior", "metric", "divergence", "R-hat", "symplectic", "SoftAbs"} <= set(TERMS)


@pytest.mark.parametrize("term", TERMS)
def test_first_use_of_a_term_is_its_definition(term):
    for chapter in CHAPTERS:
        text = prose(chapter, links=False)  # a link leads to the definition
        for words in EARLIER.get((term, chapter), []):
            assert words in text
            text = text.replace(words, "")
        found = uses(term, text)
        if chapter == TERMS[term]:
            assert found
            assert text[found[0].start() - 1] == "*" == text[found[0].end()], around(found[0])
            return
        assert [around(use) for use in found] == [], chapter


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_what_is_in_italics_is_a_term_of_the_table(chapter):
    known = {term.lower() for term in TERMS} | STRESSED
    found = emphasised(prose(chapter, links=False))
    assert [words for words in found if words.lower() not in known and not re.match("[A-Z]", words)] == []


def test_acronyms_are_spelled_out_at_or_before_their_first_use():
    text = " ".join(prose(chapter, links=True) for chapter in CHAPTERS)
    found = set(re.findall(r"(?<![\w-])[A-Z][A-Z-]*[A-Z](?![\w-])|\bNaN\b", text))
    assert found == set(ACRONYMS) | NO_ACRONYMS
    for acronym, words in ACRONYMS.items():
        first = re.search(rf"(?<![\w-]){acronym}(?![\w-])", text)
        assert words.lower() in text[: first.end() + len(words) + 10].replace("*", "").lower(), acronym


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_equations_come_before_references_to_them(chapter):
    before = CHAPTERS[: CHAPTERS.index(chapter)]
    earlier = "".join((DOCS / "book" / f"{each}.md").read_text(encoding="utf-8") for each in before)
    text = (DOCS / "book" / f"{chapter}.md").read_text(encoding="utf-8")
    for reference in re.finditer(r"\{eq\}`([\w-]+)`", text):
        assert f"$$ ({reference[1]})" in earlier + text[: reference.start()], reference[1]

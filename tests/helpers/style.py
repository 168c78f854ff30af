"""Check text that users see: banned words, and the length of sentences.

``python tests/helpers/style.py [PATH ...]`` lists the findings in Markdown pages and in Python files below these paths: public
docstrings (those of names without an underscore) and strings of two words or more, which are messages.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST, SHARE = 25, 0.9  # words of a sentence, and the share of a page's sentences that must not have more

# Expression -> what to write instead. Expressions match whole words, in any case.
BANNED = {
    r"laws?(?! of large numbers)": "distribution",
    r"texts? (of|on|for|that)|texts on arrays": "implementation, array implementation",
    r"twins?": "compiled implementation, counterpart",
    r"(hold|holds|held|holding) [^.]{0,60}? against": "compare with, check against",
    r"way back|taken back|takes? back": "reverse step, reversibility check",
    r"house|rooms?|floors?(?! ?\()|doors?": "package, module, layer, interface",
    r"says?|said|tells?|told|has the word": "report, define, return, raise, decide",
    r"refus(e|es|ed|ing|al)": "reject",
    r"what cannot be": "invalid arguments",
    r"(?<!there )(?<!there\x27s )(is|are|was|were) no (?!longer|more|less|such)\w+": "is not a",
    r"(draws?|ESS|gradients?|evaluations?|steps?|leapfrogs|times|bytes|iterations|samples|%|[nmu]?s|seconds|minutes) an? "
    r"(draw|gradient|second|step|chain|evaluation|iteration|minute|transition|leapfrog|run)": "per",
    r"but for|in the place of|likewise|anew|besides?|as far as": "except, instead of, similarly, again, next to, if",
    r"goes on|go on|going on|went on|begun|mend(s|ed|ing)?|spared?|spares": "continue, resume, started, fixed, skipped",
    r"where (there (is|are|was)|none (is|was)|it is (known|given|asked|wanted|possible|needed))": "if",
    r"friends?|strangers?|slips?": "user-supplied, error",
    r"whosever|wherein|whereof|thereof|thereby|hence(forth)?|ought|save for|alike": "plain words",
    r"a spread": "range",
}
PATTERNS = {re.compile(rf"(?<![\w`'./-])(?:{words})(?![\w`-])", re.I): instead for words, instead in BANNED.items()}
SKIPPED = re.compile(r"``[^`]*``|`[^`]*`|\$[^$]*\$|\]\([^)]*\)|https?://\S+|\{[^{}]*\}|:[a-z]+:`[^`]*`")
ODD_START = re.compile(r"^(Of|Where|What|Whose|Those|Beside|Likewise)\s")


def without_code(text: str) -> str:
    """Return a text without code, mathematics, addresses and fields of format strings."""
    return SKIPPED.sub("x", text)


def banned(text: str) -> list[tuple[str, str]]:
    """Return the banned expressions in a text, each with what to write instead."""
    plain = re.sub(r"\s+", " ", without_code(text))
    found = [(match.group(), instead) for pattern, instead in PATTERNS.items() for match in pattern.finditer(plain)]
    for sentence in sentences(plain):
        start = ODD_START.match(sentence)
        if start and not sentence.endswith("?"):
            found.append((start.group().strip() + " ...", "the subject first"))
    return found


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph."""
    plain = without_code(re.sub(r"\b(e\.g|i\.e|sec|eq|eqs|fig|no|vol|pp|cf|al|vs)\.", r"\1", text))
    return [each.strip() for each in re.split(r"(?<=[.?!])\s+(?=[\"'(*_A-Z`x])", plain) if each.strip()]


def paragraphs(page: str) -> Iterator[str]:
    """Yield the prose of a Markdown page: paragraphs and items of lists, without code, tables, headings and directives."""
    page = re.sub(r"\A---\n.*?\n---\n", "", page, flags=re.S)
    page = re.sub(r"^(`{3,}|~{3,}|:{3,}).*?^\1\s*$", "\n", page, flags=re.S | re.M)
    page = re.sub(r"^\$\$.*?\$\$", "\n", page, flags=re.S | re.M)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.S)
    block: list[str] = []
    for line in [*page.splitlines(), ""]:
        begins_item = re.match(r"\s*([-*+]|\d+\.)\s", line)
        if begins_item or not line.strip() or re.match(r"#|\||    |\[\w+\]:|!\[", line):
            if block:
                yield " ".join(block)
            block = [line[begins_item.end() :]] if begins_item else []
        else:
            block.append(line.strip())


def docstrings(tree: ast.Module, private: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and docstring of a module and of its classes and functions whose names have no leading underscore."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else None
        if text and (private or not getattr(node, "name", "").startswith("_")):
            yield getattr(node, "lineno", 1), text
        todo += [each for each in getattr(node, "body", []) if isinstance(each, ast.ClassDef | ast.FunctionDef)]


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings of two words or more that are not docstrings; fields of f-strings are ``x``."""
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped | parts:
            text = node.value
        else:
            continue
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 2:
            yield node.lineno, text


def findings(path: Path, private: bool = False) -> Iterator[str]:
    """Yield the findings in one file, as lines to print."""
    if path.suffix == ".md":
        long = total = 0
        text = path.read_text("utf-8")
        for line in re.findall(r"^(?:#+ |\|).*$", re.sub(r"^(`{3,}).*?^\1\s*$", "", text, flags=re.S | re.M), re.M):
            for word, instead in (found for cell in line.split("|") for found in banned(cell)):
                yield f"{path}: {word!r} ({instead}): {line[:100]}"
        for paragraph in paragraphs(text):
            for word, instead in banned(paragraph):
                yield f"{path}: {word!r} ({instead}): {paragraph[:100]}"
            counts = [len(each.split()) for each in sentences(paragraph)]
            total, long = total + len(counts), long + sum(count > LONGEST for count in counts)
        if total and long > (1 - SHARE) * total:
            yield f"{path}: {long} of {total} sentences have more than {LONGEST} words"
        return
    source = path.read_text("utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    for line, text in [*docstrings(tree, private), *messages(tree)]:
        if "# old name" in lines[line - 1]:
            continue
        for word, instead in banned(text):
            yield f"{path}:{line}: {word!r} ({instead})"


def files(paths: list[Path]) -> Iterator[Path]:
    """Yield the Markdown and Python files below these paths."""
    for path in paths:
        found = [path] if path.is_file() else [p for p in sorted(path.rglob("*")) if p.suffix in (".md", ".py")]
        yield from (each for each in found if "mutants" not in each.parts and "_build" not in each.parts)


if __name__ == "__main__":
    private = "--private" in sys.argv
    lines = [
        line for path in files([Path(x) for x in sys.argv[1:] if x != "--private"]) for line in findings(path, private)
    ]
    print("\n".join(lines) or "no findings")
    sys.exit(bool(lines))

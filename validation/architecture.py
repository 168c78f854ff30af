"""The house in numbers: modules, lines, arrows and circles of refhmc, today and at another commit.

    python -m validation.architecture [--before 9b0da88] [--write]

A **module** is a file. An **arrow** goes from one module to another that it imports, at its top or inside a function. A
**room** is a folder of ``refhmc``, or a file beside the folders; ``refhmc.check`` is counted by itself, its rooms being its
folders and the files beside them. An arrow between rooms is there if there is one between their modules. A **circle** is a
strongly connected component of more than one: a set in which each can be reached from each.

``--write`` puts the picture in its place in ``docs/architecture.md``. The sources are only read (``ast``);
those of another commit come from ``git archive``.
"""

from __future__ import annotations

import argparse
import ast
import io
import pathlib
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from validation.common import ROOT

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- made by `python -m validation.architecture --write` -->", "<!-- end -->"
# Each room knows only those before it. ``check`` stands beside them, reaches them through the public interface, and is known
# to the command line only.
ORDER = (
    "_deprecated",
    "errors",
    "compile",
    "core",
    "backends",
    "numerics",
    "metrics",
    "integrators",
    "kernels",
    "adaptation",
    "models",
    "parameters",
    "derived",
    "dynamics",
    "diagnostics",
    "batch",
    "sampling",
    "uncertainty",
    "plot",
    "cli",
)

Arrows = dict[str, set[str]]


class House(NamedTuple):
    """Sources by module name, and which module imports which: at its top, and anywhere in it."""

    sources: dict[str, str]
    at_top: Arrows
    anywhere: Arrows


# -------------------------------------------------------------------------------------------------------- reading


def sources_here() -> dict[str, str]:
    """Text of every module, by dotted name, in this copy of the repository."""
    paths = sorted((ROOT / "refhmc").rglob("*.py"))
    return {module_name(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def sources_at(commit: str) -> dict[str, str]:
    """The same at a commit."""
    packed = subprocess.run(["git", "archive", commit, "refhmc"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(".py")]
        return {module_name(pathlib.PurePosixPath(f.name)): archive.extractfile(f).read().decode() for f in files}  # type: ignore[union-attr]


def module_name(path: pathlib.PurePath) -> str:
    """``refhmc/a/b.py`` and ``refhmc/a/b/__init__.py`` are ``refhmc.a.b``."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(name: str, text: str, known: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """The modules among ``known`` that a module imports, and whether it does so at its top."""
    package = text_is_package(name, known)

    def visit(node: ast.AST, top: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue  # not run
            if isinstance(child, ast.Import):
                yield from ((alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    here = name.split(".") if package else name.split(".")[:-1]
                    base = ".".join(here[: len(here) - child.level + 1] + ([base] if base else []))
                for alias in child.names:
                    yield (f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base), top
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from visit(child, top and not inside)

    yield from ((found, top) for found, top in visit(ast.parse(text), True) if found in known and found != name)


def text_is_package(name: str, known: Iterable[str]) -> bool:
    """Whether a module has others inside it."""
    return any(other.startswith(f"{name}.") for other in known)


def house(sources: dict[str, str]) -> House:
    at_top: Arrows = {name: set() for name in sources}
    anywhere: Arrows = {name: set() for name in sources}
    for name, text in sources.items():
        for found, top in imports(name, text, sources):
            anywhere[name].add(found)
            if top:
                at_top[name].add(found)
    return House(sources, at_top, anywhere)


# ------------------------------------------------------------------------------------------------------- counting


def room(name: str) -> str:
    """The first part of a module's name after ``refhmc``; "" of the package itself."""
    return (*name.split("."), "")[1]


def room_of_check(name: str) -> str | None:
    """The same within ``refhmc.check``; None of a module that is not in it."""
    return (*name.split("."), "")[2] if name.split(".")[1:2] == ["check"] else None


def between(arrows: Arrows, part: Callable[[str], str | None]) -> Arrows:
    """The arrows between parts; modules whose part is None are left out."""
    joined: Arrows = {}
    for name, found in arrows.items():
        here = part(name)
        if here is not None:
            joined.setdefault(here, set()).update({part(other) for other in found} - {here, None})  # type: ignore[arg-type]
    return joined


def circles(arrows: Arrows) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component, stack[at:] = stack[at:], []
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def count(arrows: Arrows) -> int:
    return sum(map(len, arrows.values()))


def figures(h: House) -> list[tuple[str, int | str]]:
    """The rows of the table."""
    inside = {name for name in h.sources if room_of_check(name) is not None}
    check = {name: h.sources[name] for name in inside if room_of_check(name) != "mutants"}
    rest = {name: text for name, text in h.sources.items() if name not in inside}

    def lines(texts: dict[str, str]) -> int:
        return sum(text.count("\n") for text in texts.values())

    def within(names: Iterable[str], arrows: Arrows) -> Arrows:
        return {name: arrows[name] & set(names) for name in names}

    house_rooms = between(within(rest, h.anywhere), room)
    check_rooms = between(within(check, h.anywhere), room_of_check)
    doors = [name for name in check if any(other in rest for other in h.anywhere[name])]
    return [
        ("modules without `check`", len(rest)),
        ("lines of them", f"{lines(rest):,}"),
        ("arrows between them", count(within(rest, h.anywhere))),
        ("circles of modules, by what is imported at the top", len(circles(within(rest, h.at_top)))),
        ("circles of modules, with what is imported inside functions", len(circles(within(rest, h.anywhere)))),
        ("rooms", len(house_rooms)),
        ("arrows between rooms", count(house_rooms)),
        ("circles of rooms (largest)", largest(circles(within_rooms(house_rooms)))),
        ("modules of `check`, planted bugs aside", len(check)),
        ("lines of them", f"{lines(check):,}"),
        ("arrows between them", count(within(check, h.anywhere))),
        ("circles of modules", len(circles(within(check, h.anywhere)))),
        ("rooms of `check`", len(check_rooms)),
        ("arrows between them", count(check_rooms)),
        ("circles of rooms (largest)", largest(circles(within_rooms(check_rooms)))),
        ("modules of `check` that import the rest", len(doors)),
    ]


def within_rooms(rooms: Arrows) -> Arrows:
    """Without the package itself, which imports all there is by being the public interface."""
    return {name: found - {""} for name, found in rooms.items() if name}


def largest(found: list[list[str]]) -> str:
    return f"{len(found)} ({max(map(len, found))})" if found else "0"


def upward(h: House) -> list[str]:
    """The arrows that go against :data:`ORDER`, as "module -> module"; none, where the house stands as it should.

    (To import the package itself, for its version or a name of its public interface, is no arrow against the order.)
    """
    place = {"": -1, "check": ORDER.index("cli")} | {name: k for k, name in enumerate(ORDER)}
    return [
        f"{name} -> {other}"
        for name, found in h.anywhere.items()
        for other in sorted(found)
        if room(name) in ORDER and place[room(other)] > place[room(name)]
    ]


# --------------------------------------------------------------------------------------------------------- showing


def reduced(arrows: Arrows) -> Arrows:
    """Without the arrows that follow from others (the transitive reduction): for a picture, of rooms without circles."""

    def reached(node: str) -> set[str]:
        return set().union(*({other} | reached(other) for other in arrows.get(node, ())))

    return {node: found - set().union(*(reached(other) for other in found)) for node, found in arrows.items()}


def picture(arrows: Arrows) -> str:
    """The rooms as a mermaid graph: only the arrows that do not follow from others."""
    shown = arrows if circles(arrows) else reduced(arrows)
    edges = [f"    {name} --> {other}" for name, found in sorted(shown.items()) for other in sorted(found)]
    return "\n".join(["```mermaid", "graph BT", *edges, "```"])


def table(before: str) -> str:
    then, now = house(sources_at(before)), house(sources_here())
    rows = [(what, old, new) for (what, old), (_, new) in zip(figures(then), figures(now), strict=True)]
    return "\n".join(
        ["| | before | today |", "|---|---:|---:|", *(f"| {what} | {old} | {new} |" for what, old, new in rows)]
    )


def picture_of_today() -> str:
    now = house(sources_here())
    rooms = between({name: now.anywhere[name] for name in now.sources if room(name) in ORDER}, room)
    return picture({name: found & set(ORDER) for name, found in rooms.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", default="9b0da88", help="the commit to compare with (default %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT).as_posix()}")
    options = parser.parse_args()
    made = picture_of_today()
    print(table(options.before), made, sep="\n\n")
    for arrow in upward(house(sources_here())):
        print("against the order of the rooms:", arrow)
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        head, tail = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(f"{head}{BEGIN}\n\n{made}\n\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()

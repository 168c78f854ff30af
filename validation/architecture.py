"""Count the modules, imports and cycles of refhmc, today and at another commit, and draw its packages.

    python -m validation.architecture [--before 9b0da88] [--write]

An import counts wherever it is: at the top of a module, inside a function, or for type checking only. A package is a folder
of ``refhmc``, or a file next to the folders. ``refhmc.check`` is counted by itself; its packages are its folders and the files
next to them. A cycle is a set of modules in which each can be reached from each (a strongly connected component).

``--write`` puts the diagram into ``docs/architecture.md``. The sources are parsed and not imported. Those of another commit
come from ``git archive``.
"""

from __future__ import annotations

import argparse
import ast
import io
import pathlib
import subprocess
import tarfile
from collections.abc import Callable, Iterable

from validation.common import ROOT

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- made by `python -m validation.architecture --write` -->", "<!-- end -->"
# Each package imports only those before it. ``check`` uses the public interface, and only the command line imports it.
ORDER = (
    "_dependencies",
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

Sources = dict[str, str]  # text of each module, by dotted name
Imports = dict[str, set[str]]  # imported modules, or packages, by importer


# -------------------------------------------------------------------------------------------------------- reading


def current_sources() -> Sources:
    """Return the sources in this copy of the repository."""
    paths = sorted((ROOT / "refhmc").rglob("*.py"))
    return {module_name(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def sources_at(commit: str) -> Sources:
    """Return the sources at a commit."""
    packed = subprocess.run(["git", "archive", commit, "refhmc"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(".py")]
        return {module_name(pathlib.PurePosixPath(f.name)): archive.extractfile(f).read().decode() for f in files}  # type: ignore[union-attr]


def module_name(path: pathlib.PurePath) -> str:
    """Return the dotted name of a file; ``refhmc/a/b.py`` and ``refhmc/a/b/__init__.py`` are ``refhmc.a.b``."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(sources: Sources) -> Imports:
    """Return the modules among the sources that each of them imports."""
    return {name: imported_names(name, sources) - {name} for name in sources}


def imported_names(name: str, sources: Sources) -> set[str]:
    """Return the names of the modules that the statements of a module import."""
    found = set()
    is_package = any(other.startswith(f"{name}.") for other in sources)
    for node in ast.walk(ast.parse(sources[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".") if is_package else name.split(".")[:-1]
                base = ".".join(parents[: len(parents) - node.level + 1] + ([base] if base else []))
            submodules = (f"{base}.{alias.name}" for alias in node.names)
            found |= {each if each in sources else base for each in submodules}
    return found & sources.keys()


# ------------------------------------------------------------------------------------------------------- counting


def package_of(name: str) -> str:
    """Return the package of a module, which is the empty string for ``refhmc`` itself."""
    return (*name.split("."), "")[1]


def package_of_check(name: str) -> str | None:
    """Return the package within ``refhmc.check``, or None for a module outside it."""
    return (*name.split("."), "")[2] if package_of(name) == "check" else None


def between_packages(imports: Imports, package: Callable[[str], str | None]) -> Imports:
    """Return the imports between packages; modules whose package is None or the whole are left out."""
    joined: Imports = {}
    for name, found in imports.items():
        if package(name):
            joined.setdefault(package(name), set()).update(
                {package(other) for other in found} - {package(name), None, ""}
            )  # type: ignore[arg-type]
    return joined


def cycles(imports: Imports) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(imports.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            start = stack.index(node)
            component, stack[start:] = stack[start:], []
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(imports):
        if node not in index:
            visit(node)
    return found


def upward(imports: Imports) -> list[str]:
    """Return the imports that go against :data:`ORDER`, as "module -> module".

    Every package may import ``refhmc`` itself, for its version or a name of its public interface.
    """
    place = {"": -1, "check": ORDER.index("cli")} | {name: k for k, name in enumerate(ORDER)}
    return [
        f"{name} -> {other}"
        for name, found in imports.items()
        for other in sorted(found)
        if package_of(name) in ORDER and place.get(package_of(other), len(ORDER)) > place[package_of(name)]
    ]


def counts(sources: Sources) -> list[tuple[str, str]]:
    """Return titles and figures: without ``refhmc.check``, and of ``refhmc.check`` without its planted bugs."""
    imports = imports_of(sources)
    check = {name for name in sources if package_of_check(name) not in (None, "mutants")}
    rest = {name for name in sources if package_of(name) != "check"}
    rows = []
    for title, names, package in (("refhmc", rest, package_of), ("refhmc.check", check, package_of_check)):
        within = {name: imports[name] & names for name in names}
        packages = between_packages(within, package)
        rows += [
            (f"{title}: modules", str(len(names))),
            (f"{title}: lines", f"{sum(sources[name].count(chr(10)) for name in names):,}"),
            (f"{title}: imports between modules", str(total(within))),
            (f"{title}: cycles of modules (size of the largest)", largest(cycles(within))),
            (f"{title}: packages", str(len(packages))),
            (f"{title}: imports between packages", str(total(packages))),
            (f"{title}: cycles of packages (size of the largest)", largest(cycles(packages))),
        ]
    return rows


def total(imports: Imports) -> int:
    """Return the number of imports."""
    return sum(map(len, imports.values()))


def largest(found: list[list[str]]) -> str:
    """Return the number of cycles and the size of the largest as text."""
    return f"{len(found)} ({max(map(len, found))})" if found else "0"


# --------------------------------------------------------------------------------------------------------- showing


def reduced(imports: Imports) -> Imports:
    """Return the imports that do not follow from others (the transitive reduction); there must be no cycles."""

    def reached(node: str) -> set[str]:
        return set().union(*({other} | reached(other) for other in imports.get(node, ())))

    return {node: found - set().union(*(reached(other) for other in found)) for node, found in imports.items()}


def diagram(sources: Sources) -> str:
    """Return the imports between packages as a mermaid graph, without those that follow from others."""
    imports = between_packages(imports_of(sources), package_of)
    imports = {name: found & set(ORDER) for name, found in imports.items() if name in ORDER}
    shown = imports if cycles(imports) else reduced(imports)
    edges = [f"    {name} --> {other}" for name, found in sorted(shown.items()) for other in sorted(found)]
    return "\n".join(["```mermaid", "graph BT", *edges, "```"])


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of figures before and today."""
    return "\n".join(["| | before | today |", "|---|---:|---:|", *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", default="9b0da88", help="the commit to compare with (default %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write the diagram to {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    sources = current_sources()
    rows = [(*old, new[1]) for old, new in zip(counts(sources_at(options.before)), counts(sources), strict=True)]
    drawn, imports = diagram(sources), imports_of(sources)
    print(table(rows), drawn, sep="\n\n")
    for cycle in cycles(imports):
        print("cycle:", ", ".join(cycle))
    for each in upward(imports):
        print("against the order of the packages:", each)
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        head, tail = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(f"{head}{BEGIN}\n\n{drawn}\n\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()

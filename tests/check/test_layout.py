"""Layout of the kit: one interface to refhmc, no module that shadows a public function, light imports for NumPy code."""

from __future__ import annotations

import ast

import pytest

import refhmc.check
from tests.helpers.places import ROOT
from validation import architecture

KIT = ROOT / "refhmc" / "check"
FILES = sorted(KIT.rglob("*.py"))


def names_taken(tree: ast.AST):
    """Return every module or name that a file imports, as dotted names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def attributes_of_refhmc(tree: ast.AST):
    """Return every ``refhmc.x`` in the source, whatever its import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "refhmc":
            yield f"refhmc.{node.attr}"


def inside(name: str) -> bool:
    """Return whether a dotted name is the kit's own, an error or the version."""
    return (name + ".").startswith(("refhmc.check.", "refhmc.errors.", "refhmc.__version__."))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(KIT).as_posix())
def test_only_own_reaches_refhmc(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    of_refhmc = {
        name for name in (*names_taken(tree), *attributes_of_refhmc(tree)) if name.partition(".")[0] == "refhmc"
    }
    outside = sorted(name for name in of_refhmc if not inside(name))
    assert bool(outside) == (path == KIT / "own.py"), outside


@pytest.mark.sweep
def test_packages_of_the_kit_have_no_cyclic_imports():
    imports = architecture.imports_of(architecture.current_sources())
    packages = architecture.between_packages(imports, architecture.package_of_check)
    assert {"subject", "examination", "models", "orbits", "own"} <= set(packages)
    assert architecture.cycles(packages) == []


def test_no_module_shadows_a_public_function():
    beside = {path.stem for path in KIT.glob("*.py")} | {path.name for path in KIT.iterdir() if path.is_dir()}
    modules = {"adapters", "golden_vectors", "targets"}
    assert not beside & (set(refhmc.check.__all__) - modules)
    for name in refhmc.check.__all__:
        assert callable(getattr(refhmc.check, name)) != (name in modules)

"""Layout of the kit: one interface to refhmc, no module that shadows a public function, light imports for NumPy code."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap

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


@pytest.mark.sweep
def test_a_numpy_function_needs_neither_numba_nor_arviz():
    text = """
        import sys
        import numpy as np
        import refhmc.check as rc

        reports = [
            rc.model(lambda q: -0.5 * q @ q, lambda q: -q, dim=2),
            rc.metric(lambda q: np.eye(2), dim=2),
            rc.integrator(lambda q, p, eps, n: (q, p), H=lambda q, p: 0.5 * (q @ q + p @ p), dim=2, eps=0.1, seconds=5),
            rc.transition(lambda draws, q: q, lambda q: -0.5 * q @ q, dim=2, n_points=2, seconds=5),
            rc.sampler(lambda rng, q: rng.standard_normal(2), target="gaussian-2", draws=64, seconds=5),
            rc.randomness(lambda draws, q: draws.normal(2), dim=2),
        ]
        assert len(reports) == 6
        loaded = {name.partition(".")[0] for name in sys.modules}
        assert not loaded & {"numba", "llvmlite", "arviz", "xarray"}, loaded
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Example clients in JAX and Torch: they pass, and each planted bug is found by the check meant for it.

JAX and Torch are not among the test requirements: a client is skipped where its library is not installed.
"""

from __future__ import annotations

import importlib.util

import pytest

from tests.helpers.places import ROOT

FOUND_BY = {"gradient": "density", "half-drift": "integrator", "always-accept": "transition"}


def client(library):
    pytest.importorskip(library, reason=f"{library} is not installed")
    path = ROOT / "validation" / "clients" / f"client_{library}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_a_client_is_right(library):
    for check in client(library).checks(seconds=60.0).values():
        assert not check().failures


@pytest.mark.parametrize("bug", FOUND_BY)
@pytest.mark.parametrize("library", ["jax", "torch"])
def test_its_bugs_are_found(library, bug):
    assert client(library).checks(bug, seconds=120.0)[FOUND_BY[bug]]().failures

"""Where the repository is, and the numbers made elsewhere that lie beside it."""

from __future__ import annotations

import functools
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


@functools.cache
def oracles() -> dict:
    """What was computed by other means: exact acceptance rates and the like. Skips the test where it is not there."""
    path = SHARED / "data" / "oracles" / "oracles.json"
    if not path.exists():
        pytest.skip("the shared oracles are not here")
    return json.loads(path.read_text())

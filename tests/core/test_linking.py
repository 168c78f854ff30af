"""A compiled function is the same in the process that compiles it and in those that load it, whatever else they use."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Sums that LLVM orders otherwise in a copy within a caller than in the function by itself.
SUMS = """
import sys
import numba
import numpy as np
from numba import types as nb
from refhmc.core import types
from refhmc.core.compiled import jit, silence_experimental
from refhmc.models import logistic_regression as logistic
from refhmc.numerics import linalg

@jit
def projected(z, w, out):
    logistic.project(z, w, out)
    return linalg.dot(out, out)

PROJECT = nb.FunctionType(nb.void(types.MATRIX, types.VECTOR, types.VECTOR))

@numba.njit(nb.void(PROJECT, types.MATRIX, types.VECTOR, types.VECTOR))
def by_pointer(project, z, w, out):
    project(z, w, out)

def by_themselves():
    by_pointer(logistic.project, z, w, out)
    return linalg.dot(out, out).hex(), [value.hex() for value in out]

silence_experimental()
rng, out = np.random.default_rng(1), np.empty(14)
z, w = rng.standard_normal((14, 270)), rng.standard_normal(270)
before = by_themselves() if "called by themselves before" in sys.argv else None
both = projected(z, w, out)
model = -logistic.log_density(out[:13], z)
values = [value.hex() for value in out]
print("alone", before or by_themselves())
assert before is None or before == by_themselves(), "a copy was taken for the function itself"
print(both.hex(), model.hex(), values, sum(projected.stats.cache_misses.values()))
"""


def python(cache, *arguments):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "REFHMC_CACHE_DIR": str(cache), "PYTHONPATH": path}
    command = [sys.executable, "-P", *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=cache.parent, check=True, capture_output=True, text=True).stdout


def test_compiled_or_loaded_a_sum_has_one_order(tmp_path):
    """Also when the parts were called by themselves before: a linker then has two copies of each to choose from."""
    script = tmp_path / "sums.py"
    script.write_text(SUMS, encoding="utf-8")
    cache = tmp_path / "cache"
    cold, warm, other = (
        python(cache, script, *words).rsplit(maxsplit=1) for words in ([], [], ["called by themselves before"])
    )
    assert [cold[1], warm[1], other[1]] == ["1", "0", "0"]
    assert cold[0] == warm[0] == other[0]  # alone, too, called before or after what has copies of them


@pytest.mark.sweep
@pytest.mark.parametrize("word", ["softabs", "logistic"])
def test_compiled_or_loaded_the_draws_are_the_same(tmp_path, word):
    cold, warm = tmp_path / "cold.json", tmp_path / "warm.json"
    for out in (cold, warm):
        python(tmp_path / "cache", ROOT / "validation" / "pinned_runs.py", "--only", word, "--out", out)
    first, second = (json.loads(out.read_text(encoding="utf-8"))["runs"] for out in (cold, warm))
    assert len(first) >= 4
    assert not any("error" in run for run in first.values())
    assert {name: run["sha256"] for name, run in first.items()} == {name: run["sha256"] for name, run in second.items()}

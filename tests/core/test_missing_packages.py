"""A run with ``raw=True`` needs none of the packages that assemble results, show progress, or find the user's folders."""

import os
import subprocess
import sys

import pytest

from refhmc.compile import compile_cache
from refhmc.errors import CompileCacheWarning

PROGRAM = """
import sys
for name in ("arviz", "xarray", "h5netcdf", "platformdirs", "threadpoolctl", "rich", "array_api_compat"):
    sys.modules[name] = None
import refhmc
for backend in ("numba", "arrays"):
    options = {"draws": 10, "tune": 20, "chains": 2, "random_seed": 1, "raw": True, "backend": backend}
    print(refhmc.sample(refhmc.models.Banana(), **options).draws.shape)
"""


def test_a_raw_run_without_optional_packages():
    environment = {**os.environ, "REFHMC_CACHE_DIR": str(compile_cache.cache_directory().parent)}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.stdout.split("\n")[:2] == ["(2, 10, 2)", "(2, 10, 2)"], done.stderr


def test_compiled_code_is_not_kept_without_platformdirs(monkeypatch):
    monkeypatch.delenv("REFHMC_CACHE_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.warns(CompileCacheWarning, match="platformdirs"):
        assert compile_cache.cache_directory.__wrapped__() is None

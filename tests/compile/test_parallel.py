"""Helper processes compile functions of refhmc into the cache; without them, everything is compiled here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import pytest

from refhmc.compile import compile_cache, parallel
from refhmc.compile.compiled import jit
from refhmc.core import types
from refhmc.metrics import euclidean, laplace

FUNCTIONS = [(euclidean.refresh, types.REFRESH.signature), (laplace.refresh, types.REFRESH.signature)]
SCRIPT = """
import json, multiprocessing, sys, time
from refhmc.compile import compiled, parallel
from refhmc.core import types
from refhmc.metrics import euclidean, laplace

if len(sys.argv) > 1:
    multiprocessing.set_executable(sys.argv[1])
with parallel.helpers_for([(euclidean.refresh, types.REFRESH.signature), (laplace.refresh, types.REFRESH.signature)]):
    if len(sys.argv) == 1:
        while not compiled.is_cached(laplace.refresh, types.REFRESH.signature):
            time.sleep(0.01)
    for k, module in enumerate((euclidean, laplace)):
        compiled.compile_pointer(module.refresh, types.REFRESH.signature, str(k))
print(json.dumps([each.from_cache for each in compiled.log]))
"""


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REFHMC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REFHMC_COMPILE_PROCESSES", "2")
    compile_cache.cache_directory.cache_clear()
    yield compile_cache.cache_directory()
    compile_cache.cache_directory.cache_clear()


@pytest.mark.parametrize("executable", [None, "a failing program", pytest.param("no program", marks=pytest.mark.slow)])
def test_functions_are_compiled_with_and_without_helpers(executable, tmp_path):
    environment = {
        **os.environ,
        "REFHMC_CACHE_DIR": str(tmp_path / "cache"),
        "REFHMC_COMPILE_PROCESSES": "2",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    arguments = []
    if executable is not None:
        program = tmp_path / "program"
        arguments = [str(program)]
    if executable == "a failing program":
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], env=environment, capture_output=True, check=True, timeout=300
    )
    assert json.loads(done.stdout)[1] == (executable is None)
    assert not list((tmp_path / "cache").rglob("*.lock"))


def test_helpers_get_the_last_functions_and_end_with_the_context(empty_cache, monkeypatch):
    given, started = [], []

    def waiting(jobs):
        given.append([(module, name) for module, name, _ in jobs])
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    monkeypatch.setattr(parallel, "is_cached", lambda function, signature: False)
    monkeypatch.setattr(parallel, "start", waiting)
    functions = [*FUNCTIONS, (euclidean.inverse_product, None)]
    with contextlib.suppress(KeyboardInterrupt), parallel.helpers_for(functions):
        with parallel.helpers_for(functions):  # as in another process at the same time
            assert len(started) == 1
        assert started[0].poll() is None
        raise KeyboardInterrupt
    assert [name for _, name in given[0]] == ["inverse_product", "refresh", "refresh"]
    assert given[0][1] == ("refhmc.metrics.laplace", "refresh")
    assert started[0].poll() is not None
    monkeypatch.setenv("REFHMC_COMPILE_PROCESSES", "3")
    with parallel.helpers_for(functions):
        pass
    assert [len(jobs) for jobs in given[1:]] == [2, 1]


def test_no_helper_is_started_for_one_function_or_if_switched_off(empty_cache, monkeypatch):
    monkeypatch.setattr(parallel, "is_cached", lambda function, signature: False)
    monkeypatch.setattr(parallel, "start", None)
    with parallel.helpers_for(FUNCTIONS[:1]):
        pass
    monkeypatch.setenv("REFHMC_COMPILE_PROCESSES", "1")
    with parallel.helpers_for(FUNCTIONS):
        pass
    monkeypatch.setattr(parallel.numba.config, "DISABLE_JIT", 1)
    monkeypatch.setenv("REFHMC_COMPILE_PROCESSES", "2")
    with parallel.helpers_for(FUNCTIONS):
        pass


def test_functions_that_a_helper_cannot_find_are_left_out(empty_cache):
    mine = jit(lambda q: q)
    assert parallel.job_of(mine, types.REFRESH.signature) is None
    assert parallel.job_of(lambda q: q, None) is None
    mine.py_func.__module__, mine.py_func.__qualname__ = "refhmc.metrics.laplace", "refresh"
    assert parallel.job_of(mine, types.REFRESH.signature) is None


def test_number_of_processes(monkeypatch):
    monkeypatch.delenv("REFHMC_COMPILE_PROCESSES", raising=False)
    assert 1 <= parallel.processes() <= parallel.MOST
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert parallel.processes() == 1
    monkeypatch.setenv("REFHMC_COMPILE_PROCESSES", "7")
    assert parallel.processes() == 7

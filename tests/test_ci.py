"""The options of ``tests/conftest.py``, and what ``.ci/run`` takes for granted."""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers import seeds, shards
from tests.helpers.places import ROOT

RUN = (ROOT / ".ci" / "run").read_text(encoding="utf-8") if (ROOT / ".ci" / "run").is_file() else None
run_is_there = pytest.mark.skipif(RUN is None, reason="needs a clone")
IDS = [f"tests/test_{name}.py::test_{k}" for name in ("a", "b", "c") for k in range(300)]


def test_shards_are_disjoint_and_complete():
    for n in (1, 2, 3, 7):
        parts = [[nodeid for nodeid in IDS if shards.contains((k, n), nodeid)] for k in range(1, n + 1)]
        assert sorted(itertools.chain.from_iterable(parts)) == sorted(IDS)
        assert min(map(len, parts)) > 0.7 * len(IDS) / n


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/5", ""])
def test_invalid_shards_are_rejected(text):
    assert shards.parsed("2/3") == (2, 3)
    with pytest.raises(argparse.ArgumentTypeError, match="must be K/N"):
        shards.parsed(text)


def pytest_in(folder, text, *arguments, **variables):
    """Run pytest with this conftest on a file of tests, and return its output."""
    (folder / "test_it.py").write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-rA",
        *arguments,
        str(folder),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **variables}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


SIX = "".join(f"def test_{name}():\n    assert False\n" for name in "abcdef")


@pytest.mark.sweep
def test_each_failure_occurs_in_one_shard_and_the_command_is_printed(tmp_path):
    printed = [pytest_in(tmp_path, SIX, "-m", "not slow", "--shard", f"{k}/2") for k in (1, 2)]
    for k, text in zip((1, 2), printed, strict=True):
        assert f"Repeat with: python -m pytest -m 'not slow' --shard {k}/2" in text
    assert sorted(re.findall(r"FAILED \S*(test_[a-f])", " ".join(printed))) == [f"test_{name}" for name in "abcdef"]


DRAWN = """
import numpy as np, pytest, refhmc
def first(**options):
    options |= {"draws": 1, "tune": 0, "chains": 1, "progressbar": False, "raw": True, "generate": False}
    with np.testing.suppress_warnings() as warnings:
        warnings.filter(refhmc.errors.SamplingWarning)
        return refhmc.sample(refhmc.models.Funnel(1), refhmc.HMC(step_size=0.1, n_steps=1), **options).draws[0, 0, 0]
@pytest.mark.fixed_seed("a number of this seed")
def test_fixed():
    print("fixed", first(random_seed=5))
def test_shifted():
    print("compiled", first(random_seed=5))
    print("arrays", first(random_seed=5, backend="arrays"))
"""


@pytest.mark.sweep
def test_a_shift_gives_the_draws_of_another_seed(tmp_path):
    def drawn(text, shift):
        printed = pytest_in(tmp_path, text, **{seeds.VARIABLE: shift})
        found = dict(re.findall(r"^(fixed|compiled|arrays) (\S+)$", printed, re.MULTILINE))
        assert len(found) == 3, printed
        return found

    here, there, other = drawn(DRAWN, "0"), drawn(DRAWN, "2"), drawn(DRAWN.replace("=5", "=7"), "0")
    assert here["fixed"] == here["compiled"] == there["fixed"]
    assert {**there, "fixed": None} == {**other, "fixed": None}
    assert not set(here.values()) & set(other.values())


def test_streams_are_shifted(monkeypatch):
    monkeypatch.setattr(seeds, "SHIFT", 3)
    for entropy, shifted in ((5, 8), ([1, 2], [1, 2, 3])):
        found, expected = (
            make(entropy, spawn_key=(1,))
            for make, entropy in ((seeds.ShiftedSeedSequence, entropy), (seeds.NumpySeedSequence, shifted))
        )
        assert found.entropy == entropy
        assert np.array_equal(found.generate_state(4), expected.generate_state(4))
    with seeds.shifted(0):
        assert np.array_equal(
            seeds.ShiftedSeedSequence(5).generate_state(2), seeds.NumpySeedSequence(5).generate_state(2)
        )
    assert seeds.SHIFT == 3


@run_is_there
def test_the_first_command_is_that_of_the_readme():
    command = re.search(
        r"^    (python -m pip install .*) && (python -m pytest)$",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.M,
    )
    assert (
        "".join(f"    {part}\n" for part in command.groups())
        in re.search(r"^readme\(\) \{\n.*?^\}", RUN, re.M | re.S)[0]
    )
    assert re.search(r"^part readme\n", RUN, re.M).start() < re.search(r"^part sweeps\n", RUN, re.M).start()


def imported(path):
    """Return the files of refhmc that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    places = [ROOT.joinpath(*name.split(".")) for name in names if name.startswith("refhmc.")]
    return {file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()}


@run_is_there
def test_the_kits_sweeps_run_if_anything_changes_that_it_imports():
    folders = [ROOT / name for name in re.search(r"^KIT=\((.*?)\)", RUN, re.M | re.S)[1].split()]
    todo = set((ROOT / "refhmc" / "check").rglob("*.py"))
    seen = set()
    while todo:
        path = todo.pop()
        seen.add(path)
        todo |= imported(path) - seen
    outside = {
        path.relative_to(ROOT).as_posix() for path in seen if not any(path.is_relative_to(each) for each in folders)
    }
    assert outside == set()
    assert all(folder.exists() for folder in folders)

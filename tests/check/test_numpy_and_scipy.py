"""The kit needs only NumPy and SciPy. `.ci/run bare` runs this file in an environment that has only these and pytest.

Elsewhere all other installed packages are blocked: in each subprocess their import fails as if they were not installed.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BLOCK = """
import sys
from importlib.metadata import packages_distributions
sys.modules.update(dict.fromkeys({"numba", *packages_distributions()} - {"numpy", "scipy", "refhmc"}))
"""
SUBJECTS = """
import numpy as np

def leapfrog(q, p, eps, n):
    for _ in range(n):
        p = p - 0.5 * eps * q**3
        q = q + eps * p
        p = p - 0.5 * eps * q**3
    return q, p

def slow_drift(q, p, eps, n):
    for _ in range(n):
        p = p - 0.5 * eps * q**3
        q = q + 0.5 * eps * p
        p = p - 0.5 * eps * q**3
    return q, p

def energy(q, p):
    return np.sum(q**4) / 4 + p @ p / 2

def hmc(q, p0, u):
    new_q, new_p = leapfrog(q, p0, 0.5, 2)
    return new_q if np.log(u) < energy(q, p0) - energy(new_q, new_p) else q

def kernel(rng, q):
    return hmc(q, rng.standard_normal(q.size), rng.random())
"""
CLIENT = """
import json, sys

def number(x):
    return float.fromhex(x) if isinstance(x, str) and "x" in x else float(x)

for line in sys.stdin:
    request = json.loads(line)
    q = [number(x) for x in request.get("q", [])]
    answers = {
        "capabilities": {"name": "mine", "ops": ["logp", "grad"], "target": "quartic-2"},
        "logp": {"logp": (-sum(x**4 for x in q) / 4).hex()},
        "grad": {"grad": [(-(x**3)).hex() for x in q]},
    }
    refused = {"error": {"code": "not_supported", "message": ""}}
    print(json.dumps({"id": request.get("id"), **answers.get(request["op"], refused)}), flush=True)
"""


@pytest.fixture
def python(tmp_path):
    """Return a function that runs Python without the other packages, beside the module ``mine``."""
    (tmp_path / "mine.py").write_text(SUBJECTS, encoding="utf-8")
    (tmp_path / "client.py").write_text(CLIENT, encoding="utf-8")
    path = os.pathsep.join([*sys.path, str(tmp_path)])

    def run(text):
        command = [sys.executable, "-c", BLOCK + text]
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)

    return run


def command_line(*arguments):
    return f"from refhmc.cli.main import main\nsys.exit(main({list(arguments)}))"


def test_checks_of_functions(python):
    text = """
import numpy as np
import refhmc.check as rc
from mine import energy, hmc, kernel, leapfrog, slow_drift

assert rc.integrator(leapfrog, H=energy, dim=2).ok
assert "order" in [row.name for row in rc.integrator(slow_drift, H=energy, dim=2).failures]
assert rc.transition(hmc, energy, dim=2, seconds=None, n_points=4).ok
assert rc.model(lambda q: -np.sum(q**4) / 4, lambda q: -q**3, dim=2).ok
assert rc.model(lambda q: -np.sum(q**4) / 4, lambda q: q**3, dim=2).status == "FAIL"
assert rc.metric(lambda q: np.eye(2), dim=2).ok
assert rc.randomness(lambda draws, q: draws.normal(2), dim=2).ok
assert rc.sampler(kernel, target="quartic-2", draws=64, seconds=None).status != "FAIL"
"""
    done = python(text)
    assert done.returncode == 0, done.stderr


def test_golden_vectors(python):
    text = """
import refhmc.check as rc

records = list(rc.golden_vectors.records("logp", "funnel"))
answers = [{"id": record.id, **record.exact} for record in records]
assert rc.golden_vectors.compare(answers, op="logp", target="funnel").ok
answers[0] |= {"difference": 1e9}
assert rc.golden_vectors.compare(answers, op="logp", target="funnel").status == "FAIL"
"""
    done = python(text)
    assert done.returncode == 0, done.stderr
    assert python(command_line("vectors", "list", "--op", "grad")).stdout.startswith("grad/")


def test_every_module_of_the_kit_can_be_imported(python):
    text = """
import importlib, pkgutil
import refhmc.check as kit

names = [found.name for found in pkgutil.walk_packages(kit.__path__, "refhmc.check.") if ".mutants." not in found.name]
assert len(names) > 50
for name in names:
    if name != "refhmc.check.pytest_plugin":  # which needs pytest
        importlib.import_module(name)
assert "numba" not in {name for name, module in sys.modules.items() if module}
"""
    done = python(text)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("integrator", "mine:leapfrog", "--target", "quartic-2"), 0),
        (("integrator", "mine:slow_drift", "--H", "mine:energy", "--dim", "2"), 1),
        (("--cmd", f"{sys.executable} client.py", "--what", "model"), 0),
        (("integrator", "mine:leapfrog", "--target", "no-such-target"), 2),
    ],
)
def test_check_on_the_command_line(python, arguments, status):
    done = python(command_line("check", *arguments))
    assert done.returncode == status, done
    assert "Traceback" not in done.stderr
    assert {0: "VERDICT: PASS", 1: "VERDICT: ", 2: "python -m pip install ."}[status] in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "whom"),
    [
        ("import refhmc; refhmc.sample", "refhmc.sample"),
        ("import refhmc; refhmc.Hamiltonian", "refhmc.Hamiltonian"),
        ("import refhmc; refhmc.models.Funnel", "refhmc.models.Funnel"),
        ("import refhmc.kernels", "This module of refhmc"),
        (command_line("sample", "funnel"), "refhmc sample"),
        (command_line("models"), "refhmc.models.RegressionNetwork"),
        (command_line("warmup"), "refhmc.kernels"),
        (command_line("oracle"), "refhmc oracle"),
        (command_line("selftest"), "refhmc selftest"),
    ],
)
def test_the_error_without_numba_names_the_install_command(python, text, whom):
    done = python(text)
    assert done.returncode == 1
    wanted = (
        f"ImportError: {whom} needs numba, which is not installed. Install refhmc with its dependencies: run `python -m"
    )
    assert wanted in done.stderr


def test_info_works_without_numba(python):
    done = python(command_line("info"))
    assert done.returncode == 0
    assert "compile cache none: " in done.stdout

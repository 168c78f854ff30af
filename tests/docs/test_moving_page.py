"""The mathematics of the page that moves, ``docs/moving``: judged by the kit, as that of any other program. Needs Node."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from refhmc.check import golden_vectors
from tests.helpers.places import ROOT

MOVING = ROOT / "docs" / "moving"
NODE = shutil.which("node")
SOLVER_TOLERANCE = 1e-13  # golden.js's

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not here: the page's JavaScript is not run")


def run(*command: str, given: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(command, input=given, capture_output=True, text=True, encoding="utf-8", timeout=300)


def test_its_own_tests_pass():
    done = run(NODE, "--test", str(MOVING / "test/golden.test.js"))
    print("\n".join(line for line in done.stdout.splitlines() if "golden vectors" in line or line.startswith("# ")))
    assert done.returncode == 0, done.stdout


def test_golden_vectors():
    questions = "".join(json.dumps(line) + "\n" for line in golden_vectors.lines())
    done = run(NODE, str(MOVING / "golden.js"), given=questions)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) >= 200
    report = golden_vectors.compare(answers, solver_tolerance=SOLVER_TOLERANCE)
    assert report.ok, str(report)
    assert not report.notes
    print(f"{len(answers)} golden vectors, {sum(row.status == 'PASS' for row in report.rows)} rows")


def checked(*words: str) -> subprocess.CompletedProcess:
    client = " ".join(["node", "docs/moving/client.js", *words])
    command = (sys.executable, "-m", "refhmc", "check", "--cmd", client, "--what", "model,metric,integrator")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=300)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("banana fisher implicit-midpoint", 0),
        ("banana identity leapfrog", 0),
        ("funnel softabs generalized-leapfrog", 0),
        ("banana identity leapfrog --bug half-drift", 1),
        ("banana fisher leapfrog", 1),
    ],
)
def test_the_kit_examines_it(words, status):
    done = checked(*words.split())
    assert done.returncode == status, done.stdout + done.stderr
    if words == "banana fisher leapfrog":  # a curved metric
        failed = {line.split("  ")[1].strip() for line in done.stdout.splitlines() if " FAIL " in line}
        assert {"reversible", "symplectic", "volume"} <= failed

"""A metric, integrator or kernel is registered everywhere by one file and one import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

import refhmc
from tests.helpers.places import ROOT

NEW = {
    "metrics": ("Parabolic", "Fisher", "fisher"),
    "integrators": ("MidpointTwice", "ImplicitMidpoint", "implicit_midpoint"),
    "kernels": ("Langevin", "HMC", "hmc"),
}
KNOWN = """
import json
import refhmc
from refhmc.check.protocol import names
from refhmc.check.protocol.oracle import Oracle
from refhmc.cli.main import build_parser
from refhmc.cli.parts import make_kernel
from refhmc.cli.precompile import variants

asked = ["--metric", "newest-parabolic", "--integrator", "newest-midpointtwice", "--kernel", "newest-langevin"]
kernel = make_kernel(build_parser().parse_args(["sample", "funnel", *asked]), refhmc.models.Funnel(1))
answer = Oracle().answer({"op": "capabilities"})
print(json.dumps({
    "public": [refhmc.metrics.__all__, refhmc.integrators.__all__, refhmc.kernels.__all__],
    "command line": [type(each).__name__ for each in (kernel.metric, kernel.integrator, kernel)],
    "protocol": [type(names.metric("newest_parabolic")).__name__, type(names.method("newest-midpointtwice")).__name__],
    "oracle": [answer["metrics"], answer["methods"]],
    "compiled beforehand": [title for title, _ in variants()],
}))
"""


@pytest.mark.sweep
def test_one_file_and_one_line(tmp_path):
    """The test runs in a copy of the library."""
    shutil.copytree(ROOT / "refhmc", tmp_path / "refhmc", ignore=shutil.ignore_patterns("__pycache__"))
    for room, (name, base, of) in NEW.items():
        folder = tmp_path / "refhmc" / room
        text = f'from refhmc.{room}.{of} import {base}\n\n\nclass {name}({base}):\n    name = "newest_{name.lower()}"\n'
        (folder / "newest.py").write_text(text, encoding="utf-8")
        door = (folder / "__init__.py").read_text(encoding="utf-8")
        line = f"from refhmc.{room}.{of} import {base} as {base}\n"
        assert line in door
        with_it = door.replace(line, f"{line}from refhmc.{room}.newest import {name} as {name}\n")
        (folder / "__init__.py").write_text(with_it, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KNOWN], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    known = json.loads(done.stdout)
    assert [name in names for (name, _, _), names in zip(NEW.values(), known["public"], strict=True)] == [True] * 3
    assert known["command line"] == ["Parabolic", "MidpointTwice", "Langevin"]
    assert known["protocol"] == ["Parabolic", "MidpointTwice"]
    assert "newest_parabolic" in known["oracle"][0]
    assert "newest_midpointtwice" in known["oracle"][1]
    assert "MidpointTwice, midpoint" in known["compiled beforehand"]


def test_a_hyphen_is_an_underscore():
    assert refhmc.metrics.METRICS["diagonal-softabs"] is refhmc.metrics.DiagonalSoftAbs
    assert refhmc.integrators.INTEGRATORS["yoshida"] is refhmc.integrators.Yoshida
    with pytest.raises(KeyError, match="soft-abs|soft_abs"):
        refhmc.metrics.METRICS["soft-abs"]
    names = ["autostep", "dhmc", "drhmc", "ghmc", "gist", "hmc", "malt", "mams", "mclmc", "nuts", "walnuts"]
    assert sorted(refhmc.kernels.KERNELS.made_with()) == names

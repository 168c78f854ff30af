"""``docs/reliability.md``: the tests that it names exist, and tests of rows that belong nowhere else."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import refhmc
from refhmc.errors import SamplingError
from tests.helpers.sweeps import every

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = {"draws": 12, "tune": 20, "chains": 2, "cores": 1, "random_seed": 3, "progressbar": False, "raw": True}

pytestmark = pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")


def test_each_row_names_tests_that_there_are():
    rows = [
        row
        for row in (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").splitlines()
        if row.startswith("| ") and not row.endswith("| test |")
    ]
    assert len(rows) >= 30
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.rsplit("|", 2)[1])
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


class Counted:
    """A normal in Python whose k-th call, with the pre-flight check's, raises."""

    def __init__(self, k, error):
        self.calls, self.k, self.error = 0, k, error

    def log_density(self, q, data):
        self.calls += 1
        if self.calls == self.k:
            raise self.error
        return -0.5 * float(q @ q)

    def model(self):
        return refhmc.Model(2, self.log_density, lambda q, data: -q, in_python="a test")


@pytest.fixture(scope="module")
def whole():
    counted = Counted(0, None)
    result = refhmc.sample(counted.model(), refhmc.HMC(n_steps=3), **RUN, save_warmup=True)
    return result, result.attributes["n_gradient_evaluations"]


@pytest.mark.parametrize("error", [RuntimeError("injected"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
@pytest.mark.parametrize("share", every(9, [0.3, 0.2, 0.4, 0.45, 0.6, 0.5, 0.7, 0.8, 0.9]))
def test_what_is_left_is_a_prefix_of_the_unbroken_run(whole, error, share):
    """Whichever call of the model it comes in: of each chain, warm-up and draws are the beginning of what they would have been.
    Chains run one after another, and after an error of the first the second is whole."""
    expected, calls = whole
    for k in range(int(share * calls), int(share * calls) + 5):
        counted = Counted(k, error)
        if isinstance(error, KeyboardInterrupt):
            partial = refhmc.sample(counted.model(), refhmc.HMC(n_steps=3), **RUN, save_warmup=True)
            assert partial.attributes["interrupted"]
        else:
            with pytest.raises(SamplingError, match="injected") as caught:
                refhmc.sample(counted.model(), refhmc.HMC(n_steps=3), **RUN, save_warmup=True)
            partial = caught.value.partial
            assert len(partial.attributes["failed_chains"]) == 1
        chains = partial.attributes["chains"]
        for group in expected.groups:
            for name, values in partial.groups[group].items():
                n = values.shape[1]
                assert np.array_equal(values, expected.groups[group][name][chains, :n]), (k, group, name)
        for chain, draws in partial.ragged.items():
            assert np.array_equal(draws, expected.draws[chain, : len(draws)])
    assert threading.active_count() < 20


SCRIPT = """
import refhmc
model = refhmc.Model(2, lambda q, data: -0.5 * float(q @ q), lambda q, data: -q, in_python="a test", name="modèle")
result = refhmc.sample(model, refhmc.HMC(n_steps=3), draws=30, tune=30, chains=2, random_seed=1, raw=True)
print(result.draws.shape)
"""


@pytest.mark.sweep
def test_output_in_ascii_to_no_terminal(tmp_path):
    """Progress, a model's name in other letters, warnings: all are written, without codes of a terminal."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
    }
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [b"(2,", b"30,", b"2)"]
    assert done.stderr
    assert b"\x1b" not in done.stderr + done.stdout
    assert b"Traceback" not in done.stderr
    (done.stderr + done.stdout).decode("ascii")

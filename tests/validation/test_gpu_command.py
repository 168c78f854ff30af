"""The command for a GPU: its parts on NumPy, its limits, and how it continues a run that was ended."""

import json
import sys

import pytest

from validation.gpu import __main__ as gpu
from validation.gpu import parts


def run(monkeypatch, folder, *arguments):
    monkeypatch.setattr(
        sys, "argv", ["validation.gpu", "--backend", "arrays", "--quick", "--out", str(folder), *arguments]
    )
    return gpu.main()


def parts_of(folder):
    return json.loads((folder / "arrays_quick.json").read_text())["parts"]


@pytest.mark.sweep
def test_the_parts_run_on_numpy_and_a_second_run_measures_nothing_again(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LIMITS", {"smoke": 600.0, "tests": 600.0, "streaming": 600.0})
    only = ["--only", "smoke", "tests", "streaming"]
    assert run(monkeypatch, tmp_path, *only) == 0
    found = parts_of(tmp_path)
    assert found["smoke"]["transitions of NUTS"] == {"chains": 100, "largest difference": 0.0}
    assert found["smoke"]["sample"].startswith("CPU")
    assert found["streaming"]["gradient, data sent"]["bytes per second"] > 1e6
    lines = (tmp_path / "arrays_quick.jsonl").read_text()
    assert run(monkeypatch, tmp_path, *only) == 0
    assert (tmp_path / "arrays_quick.jsonl").read_text() == lines


@pytest.mark.sweep
def test_rates_on_numpy_and_on_one_core():
    """The rows of the part ``chains`` without the peers."""
    rows = dict(parts.chains("arrays", quick=True))
    for name in parts.PROBLEMS:
        assert rows[f"{name}, 100 chains"]() > 0
    assert rows["funnel 10 + 1, SoftAbs, midpoint, one core"]() > 0
    assert rows["operations per second of a product"]() > 0
    whole = rows["NUTS on eight schools, 100 chains"]()
    assert whole["draws per second"] == pytest.approx(100 * 200 / whole["seconds"])


def test_a_part_is_ended_at_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LIMITS", {"network": 0.01})
    assert run(monkeypatch, tmp_path, "--only", "network") == 1
    report = json.loads((tmp_path / "arrays_quick.json").read_text())
    assert report["states"] == {"network": "ended after 0.01 s"}


def test_nothing_is_started_after_a_failure_of_smoke(tmp_path, monkeypatch):
    started = []

    def failing(part, *_):
        started.append(part)
        return "failed: solve"

    monkeypatch.setattr(gpu, "run_part", failing)
    assert run(monkeypatch, tmp_path) == 1
    assert started == ["smoke"]


def test_rows_that_failed_or_are_of_other_code_are_measured_again(tmp_path, monkeypatch):
    calls = []

    def rows(backend, quick):
        yield "right", lambda: calls.append("right") or 1.0
        yield "wrong", lambda: calls.append("wrong") or 1 / 0
        yield "absent", lambda: calls.append("absent") or __import__("no_such_package")

    monkeypatch.setattr(parts, "smoke", rows)
    report = gpu.Report(tmp_path / "arrays.jsonl", "one")
    gpu.measure("smoke", "arrays", True, report)
    assert report.found("smoke")["right"] == 1.0
    assert report.found("smoke")["wrong"] == {"failed": "ZeroDivisionError: division by zero"}
    assert report.found("smoke")["absent"].startswith("not measured: No module named")
    gpu.measure("smoke", "arrays", True, report)
    assert calls == ["right", "wrong", "absent", "wrong", "absent"]
    later = gpu.Report(report.path, "two")
    gpu.measure("smoke", "arrays", True, later)
    assert calls[5:] == ["right", "wrong", "absent"]
    report.write({})
    found = json.loads((tmp_path / "arrays.json").read_text())["parts"]["smoke"]
    assert found["right"] == {"of an earlier state of the code": 1.0}


def test_a_gpu_that_is_not_there_is_said(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(sys, "argv", ["validation.gpu", "--out", str(tmp_path)])
    assert gpu.main() == 2
    assert "use backend='arrays'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

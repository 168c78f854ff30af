"""The command for a GPU runs to its end on NumPy, and its report says what was measured and what was not."""

import json
import sys

import pytest


@pytest.mark.sweep
def test_the_command_for_a_gpu_runs_on_numpy(tmp_path, monkeypatch):
    import validation.gpu.__main__ as gpu

    arguments = ["validation.gpu", "--backend", "arrays", "--quick", "--only", "limits", "chains", "network"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--out", str(tmp_path)])
    assert gpu.main() == 0
    report = json.loads((tmp_path / "arrays_quick.json").read_text())
    assert report["device"].startswith("CPU")
    assert report["limits"]["bytes_a_second"] > 1e8
    rates = report["chains"]["funnel 10 + 1, SoftAbs, midpoint"]["chain_steps_a_second"]
    assert set(rates) == {"1", "100"}
    assert all(rate > 0 for rate in rates.values())
    assert report["network"]["seconds"] > 0


def test_a_gpu_that_is_not_there_is_said(monkeypatch, capsys, tmp_path):
    import validation.gpu.__main__ as gpu

    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(sys, "argv", ["validation.gpu", "--out", str(tmp_path)])
    assert gpu.main() == 2
    assert "use backend='arrays'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

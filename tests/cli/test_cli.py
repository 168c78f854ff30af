"""Tests of the command line, of the compile cache across processes, and of what ``import refhmc`` loads."""

from __future__ import annotations

import inspect
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import refhmc
from refhmc.cli.main import main
from refhmc.cli.precompile import all_tasks
from tests.helpers.sweeps import swept


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        check=False,
    )


def test_sample_prints_the_truth_and_writes_files(tmp_path, capsys):
    out, plot = tmp_path / "r.nc", tmp_path / "r.png"
    words = f"sample funnel --kernel nuts --seed 3 --draws 300 --tune 300 --max-treedepth 1 --out {out} --plot {plot}"
    assert main(words.split()) == 0
    printed = capsys.readouterr()
    assert "true mean" in printed.out
    assert "x[9]" in printed.out
    assert "9.488" in printed.out  # the x's standard deviation, e^{9/4}
    assert re.search(r"(?m)^warning: .*reached max_treedepth", printed.out)
    assert "ompiled" in printed.out
    assert re.search(r"Sampled 4 chains: 2,400/2,400 draws", printed.err)
    assert re.search(r"(?i)\n.*divergences?\W.*\d+.* warm-up", printed.out)
    assert plot.read_bytes().startswith(b"\x89PNG")
    import xarray as xr

    with xr.open_dataset(out, group="posterior") as posterior:
        assert posterior["x"].shape == (4, 300, 10)


@pytest.mark.sweep
def test_report_written_by_sample_and_from_the_result_file(tmp_path, capsys):
    out, page, again = tmp_path / "r.nc", tmp_path / "r.html", tmp_path / "again.html"
    few = ["--draws", "20", "--tune", "30", "--chains", "2", "--quiet", "--kernel", "nuts", "--seed", "7"]
    assert main(["sample", "funnel", *few, "--out", str(out), "--report", str(page)]) == 0
    assert f"Report written to {page}" in capsys.readouterr().out
    assert main(["report", str(out), "--out", str(again)]) == 0
    assert capsys.readouterr().out == f"Report written to {again}\n"
    first, second = (path.read_text(encoding="utf-8") for path in (page, again))
    assert "true sd" in first
    assert "true sd" in second  # the file names its model
    assert "random_seed=7," in second
    page.unlink()
    assert main(["report", str(out)]) == 0  # next to the file
    assert page.exists()


def test_missing_matplotlib_is_reported_before_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for option in ("--plot", "--report"):
        assert main(["sample", "funnel", "--draws", "1000000000", option, str(tmp_path / "r")]) == 1
        assert 'python -m pip install "refhmc[plot]"' in capsys.readouterr().err


@pytest.mark.sweep
def test_report_samples_a_model(tmp_path, capsys):
    out = tmp_path / "r.html"
    few = ["--draws", "10", "--tune", "20", "--chains", "1", "--quiet", "--seed", "2"]
    assert main(["report", "gaussian", *few, "--out", str(out)]) == 0
    assert re.search(r"1 chain of 10 draws.*20.*warm-up", out.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (".", "refhmc resume . --draws N --report FILE.html"),
        ("tunnel", "MODEL.*'tunnel'"),
        ("run.txt", "run.txt"),
    ],
)
def test_report_rejects_what_is_neither_result_nor_model(named, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.txt").write_text("no netCDF")
    assert main(["report", named]) == 1
    assert re.search(words, capsys.readouterr().err)


@pytest.mark.sweep
def test_out_has_the_groups_and_labels_of_a_model(tmp_path, capsys):
    """The summary has the schools' names; the file has all generated groups, or those of --generate."""
    import xarray as xr

    command = [
        "sample",
        "eight-schools",
        "--draws",
        "60",
        "--tune",
        "60",
        "--chains",
        "2",
        "--seed",
        "1",
        "--quiet",
        "--out",
    ]
    assert main([*command, str(tmp_path / "all.nc")]) == 0
    assert "theta[Phillips Andover]" in capsys.readouterr().out
    with xr.open_datatree(tmp_path / "all.nc") as tree:
        assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "school")
        assert tree["observed_data"]["y"].sel(school="Choate") == 28
        assert tree["prior_predictive"]["y"].shape == (1, 60, 8)
    assert main([*command, str(tmp_path / "one.nc"), "--generate", "log_likelihood"]) == 0
    with xr.open_datatree(tmp_path / "one.nc") as tree:
        assert "log_likelihood" in tree.children
        assert "posterior_predictive" not in tree.children
    assert main([*command[:-1], "--generate", "none"]) == 1
    assert main([*command, str(tmp_path / "no.nc"), "--generate", "loglik"]) == 1
    assert re.search("--generate .*--out.*'loglik'", capsys.readouterr().err, re.DOTALL)


def test_metric_and_integrator_are_selected_by_name(tmp_path, capsys):
    out = tmp_path / "r.nc"
    options = "--kernel hmc --n-steps 5 --metric diagonal-softabs --alpha 100 --integrator generalized-leapfrog"
    sizes = "--tolerance 1e-5 --draws 60 --tune 40 --chains 2 --seed 1 --quiet"
    assert main(["sample", "funnel", *options.split(), *sizes.split(), "--out", str(out)]) == 0
    import xarray as xr

    with xr.open_dataset(out, group="sample_stats") as stats:
        kernel = json.loads(stats.attrs["kernel"])
        assert stats["solver_iterations"].min() >= 0
    assert kernel["metric"] == {"name": "DiagonalSoftAbs", "alpha": 100.0}
    assert kernel["integrator"]["name"] == "GeneralizedLeapfrog"
    assert kernel["integrator"]["tolerance"] == 1e-5


def test_chains_start_from_pathfinder(tmp_path):
    out = tmp_path / "r.nc"
    few = ["--draws", "5", "--tune", "5", "--chains", "2", "--quiet", "--kernel", "nuts", "--out", str(out)]
    assert main(["sample", "funnel", "--init", "pathfinder", *few]) == 0
    import xarray as xr

    with xr.open_dataset(out, group="posterior") as posterior:
        assert json.loads(posterior.attrs["starts"]) == ["pathfinder"] * 2


@pytest.mark.sweep
def test_network_with_split_data_and_its_predictive_band(tmp_path, capsys, monkeypatch):
    """The line about the fit agrees with residuals computed here; the plot gets the data and the draws."""
    from refhmc.plot import predictive

    pictures = []
    drawn = predictive.predictive_band
    monkeypatch.setattr(
        "refhmc.plot.overviews.predictive_band", lambda *given, ax: pictures.append(given) or drawn(*given, ax=ax)
    )
    out, plot = tmp_path / "r.nc", tmp_path / "r.png"
    options = "--widths 6,5 --split 4 --kernel hmc --metric identity --integrator symmetric-split --n-steps 5"
    sizes = "--step-size 2e-3 --draws 12 --tune 0 --chains 2 --seed 1 --quiet"
    arguments = ["sample", "mlp-regression", *options.split(), *sizes.split(), "--out", str(out), "--plot", str(plot)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "regression network in 4 parts: 2 chains of 12 draws" in printed
    assert plot.read_bytes().startswith(b"\x89PNG")
    ((model, result, x, y),) = pictures
    assert [part.n_rows for part in model.parts] == [100] * 4
    data = refhmc.datasets.regression_1d()
    assert np.array_equal(x, data.X)
    W = result.posterior
    hidden = np.maximum(np.einsum("cdij,nj->cdni", W["W1"], x) + W["b1"][:, :, None], 0)
    hidden = np.maximum(np.einsum("cdij,cdnj->cdni", W["W2"], hidden) + W["b2"][:, :, None], 0)
    f = np.einsum("cdij,cdnj->cdni", W["W3"], hidden) + W["b3"][:, :, None]
    error = np.abs(f.mean(axis=(0, 1))[:, 0] - data.y)
    sd = np.sqrt(f.var(axis=(0, 1))[:, 0] + 1 / 110.4439498986428)
    assert f"400 rows of data: RMSE {np.sqrt(np.mean(error**2)):.4f}, NLL" in printed
    assert f"{np.mean(error <= sd):.1%} within one predictive standard deviation" in printed
    assert f"{np.mean(error <= 2 * sd):.1%} within two" in printed
    import xarray as xr

    with xr.open_dataset(out, group="sample_stats") as stats:
        assert json.loads(stats.attrs["kernel"])["integrator"]["name"] == "SymmetricSplit"


@pytest.mark.parametrize(
    ("kernel", "options", "expected", "below"),
    [
        swept(
            "sgd",
            "--momentum 0.9 --decay 100,0.55",
            {"name": "SGD", "momentum": 0.9, "decay": [100.0, 0.55]},
            "step size",
        ),
        ("sgld", "--evaluate-lp --n-steps 3", {"name": "SGLD", "n_steps": 3, "evaluate_lp": True}, "lp"),
        swept(
            "sghmc",
            "--friction 0.2 --noise-estimate 0.1 --cycle 8 --exploration 0.5 --metric identity",
            {
                "name": "SGHMC",
                "friction": 0.2,
                "noise_estimate": 0.1,
                "exploration": 0.5,
                "metric": {"name": "Identity"},
            },
            "step size",
        ),
    ],
)
def test_stochastic_gradient_kernels_by_name(kernel, options, expected, below, tmp_path, capsys, monkeypatch):
    """The result has the kernel of the options and is marked as approximate, also in the printed warning."""
    import xarray as xr

    from refhmc.plot import overviews

    drawn, out = [], tmp_path / "r.nc"
    energy_or_step = overviews.energy_or_step
    monkeypatch.setattr(overviews, "energy_or_step", lambda run: drawn.append(energy_or_step(run)) or drawn[-1])
    arguments = f"sample mlp-regression --widths 3 --split 4 --kernel {kernel} --step-size 1e-7 {options}"
    sizes = f"--draws 6 --tune 2 --chains 2 --seed 1 --quiet --out {out} --plot {tmp_path / 'r.png'}"
    assert main([*arguments.split(), *sizes.split()]) == 0
    printed = capsys.readouterr().out
    assert "regression network in 4 parts: 2 chains of 6 draws" in printed
    assert re.search(f"(?m)^warning: (?=.*approximate).*{kernel.upper()}", printed)
    with xr.open_dataset(out, group="sample_stats") as stats:
        assert stats.attrs["exact"] == 0
        stored = json.loads(stats.attrs["kernel"])
        assert {key: stored[key] for key in expected} == expected
        assert stored["step_size"] == 1e-7
        ((what, shown),) = drawn
        assert what == below
        np.testing.assert_array_equal(shown, stats[below.replace(" ", "_")])


def test_tempering_prints_log_z(capsys):
    assert main(["sample", "banana", "--kernel", "tempered:rungs=3", "--draws", "100", "--tune", "100", "--quiet"]) == 0
    shown = re.search(r"^log Z = (\S+) \+- (\S+), barrier (\S+)$", capsys.readouterr().out, re.MULTILINE)
    assert shown is not None
    assert all(math.isfinite(float(each)) for each in shown.groups())


@pytest.mark.sweep
def test_plot_of_a_kernel_without_an_energy(tmp_path, capsys):
    plot = tmp_path / "r.png"
    sizes = f"--draws 20 --tune 0 --chains 2 --seed 1 --quiet --plot {plot}"
    assert main(["sample", "funnel", "--kernel", "sgld", "--step-size", "0.01", *sizes.split()]) == 0
    assert re.search("(?m)^warning: .*SGLD", capsys.readouterr().out)
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("tunnel", "MODEL .*funnel, banana.*'tunnel'"),
        ("funnel --draws -3", "draws.*-3"),
        ("funnel --init jitter", "init must be 'uniform' or 'pathfinder'.*'jitter'"),
        ("change-point --init pathfinder", "init=.pathfinder.*discontinuous.*change-point"),
        ("funnel --step-size 0", "step_size.*positive.*0.0"),
        (
            "gaussian --n-steps 3",
            "--n-steps belongs to --kernel autostep and dhmc and drhmc and ghmc and hmc and malt and mams and "
            "mclmc and sgd and sghmc and sgld",
        ),
        ("funnel --kernel sgld", "--kernel sgld needs the option step_size"),
        ("funnel --kernel sgld --friction 0.1", "--friction belongs to --kernel sghmc"),
        ("funnel --decay 1,0.5", "--decay belongs to --kernel sgd and sghmc and sgld"),
        ("funnel --kernel sgd --target-accept 0.9", "--target-accept belongs to --kernel autostep and dhmc"),
        (
            "funnel --kernel sgd --step-size 1e-3 --integrator leapfrog",
            "--integrator belongs to --kernel .*hmc and malt and mams and mclmc and nuts",
        ),
        ("funnel --kernel sgd --step-size 1e-3 --metric diagonal", r"Identity\(\).*Diagonal\(variances\).*SGD"),
        ("funnel --kernel sgd --step-size 1 --momentum 1", r"momentum.*\[0, 1\)"),
        ("funnel --metric fisher --integrator leapfrog", "metric must be constant.*Fisher"),
        ("funnel --metric fisher --alpha 2", "--alpha belongs to --metric .*softabs and .*; got --metric fisher"),
        ("gaussian --tolerance 1e-3", "--tolerance belongs to .*midpoint.*; got --integrator leapfrog"),
        ("funnel --metric softabs --tolerance 1e-20", "tolerance.*1e-20"),
        ("funnel --metric softabs --alpha -1", "alpha.*positive.*-1"),
        ("funnel --out no/such/place/r.nc", "no/such/place does not exist"),
        ("funnel --split 2", "(funnel|split).*(split|parts)"),
        ("funnel --widths 2", "--widths belongs to mlp-regression"),
        ("mlp-regression --widths 10,x", "--widths.*'10,x'"),
        ("mlp-regression --widths 4 --split 401", "400 (rows|observations)"),
        ("mlp-regression --widths 4 --integrator symmetric-split", "split"),
        ("banana --kernel hmc --max-treedepth 5", "--max-treedepth belongs to --kernel nuts"),
        ("banana --kernel tempered:kernel=dhmc", "tempered: kernel must be one of autostep, .*'dhmc'"),
        ("banana --kernel nuts --rungs 4", "--rungs belongs to --kernel tempered"),
        ("banana --metric softabs:beta=3", "softabs has no option 'beta'.*alpha"),
        ("banana --metric fisher --integrator explicit-tao", "explicit-tao:omega="),
        ("banana --integrator yoshida", "yoshida:base="),
        ("banana --integrator yoshida:base=verlet", "--integrator yoshida: base .*'verlet'"),
        (
            "banana --integrator yoshida:base=leapfrog --tolerance 1e-3",
            "--tolerance belongs to .*midpoint.*; got --integrator leapfrog",
        ),
        ("banana --store there --out r.nc --generate all", "--generate.*--store.*--checkpoint"),
        (
            "banana --kernel nuts:n_steps=3",
            "--n-steps belongs to --kernel autostep and dhmc and drhmc and ghmc and hmc",
        ),
        ("banana --fuse --backend arrays", "--fuse belongs to --backend numba; got --backend arrays"),
        ("banana --kernel nuts:foo=3", "--kernel nuts has no option 'foo'"),
        ("banana --warmup no-such-file.nc", "--warmup.*'no-such-file.nc'"),
    ],
)
def test_errors_are_printed_without_traceback(arguments, words, capsys):
    assert main(["sample", *arguments.split()]) == 1
    error = capsys.readouterr().err
    assert re.search(words, error)
    assert "Traceback" not in error


def test_usage_errors_exit_with_2(capsys):
    for arguments in (["sample"], ["sample", "funnel", "--kernel", "sgld", "--decay", "1"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


def test_models_and_info(capsys):
    assert main(["models"]) == 0
    listed = capsys.readouterr().out
    assert len(listed.splitlines()) == len(refhmc.models.by_name() | refhmc.models.networks_by_name())
    assert main(["info"]) == 0
    assert f"refhmc {refhmc.__version__}" in capsys.readouterr().out


SECOND_PROCESS = """
import json, refhmc
result = refhmc.sample(refhmc.models.Funnel(2), refhmc.NUTS(), draws=5, tune=5, chains=1, random_seed=1,
progressbar=False, raw=True)
print(json.dumps([[item.title, item.from_cache] for item in refhmc.compile.compiled.log]))
print(json.dumps(result.draws.tolist()))
"""


def test_warmup_compiles_what_the_options_name(capsys):
    assert main(["warmup", "--kernel", "hmc:n_steps=3", "--metric", "identity"]) == 0
    assert re.fullmatch(
        r"\[1/2\] HMC on gaussian: .* s\n\[2/2\] one evaluation .* s\nCached in .*\n", capsys.readouterr().out
    )
    assert main(["warmup", "funnel", "--kernel", "hmc", "--n-steps", "3"]) == 0
    assert re.match(r"\[1/3\] HMC on funnel: .* s\n.*\n\[3/3\] the search for a hierarchy: ", capsys.readouterr().out)
    assert main(["warmup", "funnel", "--kernel", "hmc", "--max-treedepth", "3"]) == 1
    assert "--max-treedepth belongs to --kernel nuts" in capsys.readouterr().err
    assert main(["warmup", "no-such-model"]) == 1
    assert "got 'no-such-model'" in capsys.readouterr().err


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("eight-schools", "refhmc.models.EightSchools()"),
        (
            "funnel --kernel hmc --metric softabs",
            "refhmc.models.Funnel(9), refhmc.HMC(metric=refhmc.metrics.SoftAbs())",
        ),
    ],
)
def test_a_run_after_warmup_compiles_nothing(tmp_path, words, arguments):
    cache = {"REFHMC_CACHE_DIR": str(tmp_path)}
    assert run("-m", "refhmc", "warmup", *words.split(), **cache).returncode == 0
    code = (
        f"import refhmc\nrefhmc.sample({arguments}, random_seed=1, draws=100, progressbar=False)\n"
        "print([each.from_cache for each in refhmc.compile.compiled.log])"
    )
    done = run("-W", "ignore", "-c", code, **cache)
    from_cache = json.loads(done.stdout.lower())
    assert len(from_cache) > 5
    assert all(from_cache)


def test_warmup_of_everything_has_a_plan_for_every_kernel_metric_and_model():
    """Except ``Tempered``, which needs a reference; the plans are made, but not compiled."""
    titles = [title for title, _ in all_tasks()]
    assert len(set(titles)) == len(titles)
    kinds = [*refhmc.kernels.KERNELS.values(), *refhmc.metrics.METRICS.values()]
    assert [kind for kind in kinds if not any(kind.__name__ in title for title in titles)] == [refhmc.Tempered]
    assert {f"model {name}" for name in refhmc.models.by_name()} < set(titles)


def test_import_brings_neither_numba_nor_arviz():
    code = "import sys, refhmc; print([m for m in ('numba', 'arviz', 'scipy', 'matplotlib') if m in sys.modules])"
    assert run("-c", code).stdout.strip() == "[]"


@pytest.mark.sweep
def test_plain_python_gives_the_draws_of_compiled_code():
    compiled = run("-W", "ignore", "-c", SECOND_PROCESS)
    plain = run("-W", "ignore", "-c", SECOND_PROCESS, NUMBA_DISABLE_JIT="1")
    assert plain.returncode == 0, plain.stderr
    draws = [np.array(json.loads(p.stdout.splitlines()[-1])) for p in (compiled, plain)]
    np.testing.assert_allclose(draws[1], draws[0], rtol=1e-9)


@pytest.mark.sweep
def test_warnings_as_errors_do_not_stop_a_healthy_run():
    code = (
        "import refhmc, numpy as np\n"
        "m = refhmc.Model(2, lambda q, data: -0.5 * np.sum(q * q), lambda q, data: -q)\n"
        "r = refhmc.sample(m, random_seed=1, progressbar=False, raw=True)\n"
        "print(r.draws.shape)"
    )
    done = run("-W", "error", "-c", code)
    assert done.stdout.strip() == "(4, 1000, 2)", done.stderr


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform == "win32", reason="signals of this kind are not sent on Windows")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_summarise_what_there_is_and_exit_with_130(number, tmp_path):
    out = tmp_path / "partial.nc"
    arguments = ["-m", "refhmc", "sample", "funnel", "--kernel", "hmc", "--n-steps", "100000", "--draws", "20000"]
    process = subprocess.Popen(
        [sys.executable, *arguments, "--tune", "10", "--seed", "1", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A job in the background ignores SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for line in process.stderr:  # a line of progress: sampling has started
        if "draws" in line:
            break
    process.send_signal(number)
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "true mean" in printed
    assert "Traceback" not in said
    assert out.stat().st_size > 0


# ------------------------------------------------------------------------------------------ models in files, options, JSON

OWN_FILE = """
import numpy as np
import refhmc


def log_density(q):
    return -0.5 * np.sum(q * q)


def gradient(q):
    return -q


normal = refhmc.Model(2, log_density, gradient, name="my normal", in_python="a few calls")


def make():
    return normal


number = 3
"""
FEW = ["--draws", "30", "--tune", "30", "--chains", "2", "--cores", "1", "--seed", "1", "--quiet"]


@pytest.mark.parametrize("name", ["normal", "make"])
def test_model_from_a_file_with_json_output(tmp_path, capsys, name):
    file = tmp_path / "of_mine.py"
    file.write_text(OWN_FILE, encoding="utf-8")
    kernel = ["--kernel", "hmc", "--trajectory-length", "1.5", "--length-jitter", "0.2", "--step-jitter", "0.1"]
    assert main(["sample", f"{file}:{name}", *FEW, *kernel, "--warmup", "stan", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["attributes"]["model"] == "my normal"
    made = json.loads(told["attributes"]["kernel"])
    assert (made["trajectory_length"], made["length_jitter"], made["step_jitter"]) == (1.5, 0.2, 0.1)
    assert set(told["summary"]) == {"q[0]", "q[1]"}
    assert all(isinstance(row["mean"], float | str) for row in told["summary"].values())
    assert told["warnings"]


def test_object_in_a_file_that_is_not_a_model_is_rejected(tmp_path, capsys):
    file = tmp_path / "of_mine_too.py"
    file.write_text(OWN_FILE, encoding="utf-8")
    for given, words in (
        (f"{file}:other", "'other' is not defined"),
        (f"{file}:number", "number is neither a refhmc.Model nor"),
        (f"{tmp_path / 'none.py'}:model", "none.py does not exist"),
    ):
        assert main(["sample", given, *FEW]) == 1
        assert words in capsys.readouterr().err


def test_model_from_a_file_can_import_its_neighbours(tmp_path, capsys):
    (tmp_path / "my_neighbour.py").write_text("name = 'a neighbour'\n", encoding="utf-8")
    (tmp_path / "json.py").write_text(OWN_FILE + "import my_neighbour\nnormal.name = my_neighbour.name\n", "utf-8")
    before, path = sys.modules["json"], list(sys.path)
    assert main(["sample", f"{tmp_path / 'json.py'}:normal", *FEW]) == 0
    assert "a neighbour: 2 chains" in capsys.readouterr().out
    assert sys.modules["json"] is before
    assert sys.path == path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import refhmc\n1 / 0\n", "wrong.py, line 2: ZeroDivisionError: division by zero"),
        ("x = 1\n\ny = (\n", "wrong.py, line 3: SyntaxError: '(' was never closed"),
        ("def model():\n    return {}['a']\n", "wrong.py, line 2: KeyError: 'a'"),
        ("import no_such_neighbour\n", "wrong.py, line 1: ModuleNotFoundError: No module named 'no_such_neighbour'"),
        ("import sys\nsys.exit(3)\n", "wrong.py, line 2: SystemExit: 3"),
    ],
)
def test_exception_in_a_model_file_is_reported_with_its_line(tmp_path, capsys, text, words):
    (tmp_path / "wrong.py").write_text(text, encoding="utf-8")
    assert main(["sample", f"{tmp_path / 'wrong.py'}:model", *FEW]) == 1
    told = capsys.readouterr().err
    assert words in told
    assert len(told.splitlines()) == 1


def taken_by_sample(monkeypatch, *arguments):
    """Return the arguments that the command passes to ``refhmc.sample``."""
    taken = {}

    def sample(model, kernel, **options):
        taken.update(options, model=model, kernel=kernel)
        raise KeyboardInterrupt

    monkeypatch.setattr(refhmc, "sample", sample)
    main(["sample", *arguments])
    return taken


def test_every_argument_of_sample_has_an_option(monkeypatch):
    there = set(inspect.signature(refhmc.sample).parameters) - {"executor", "unknown"}  # an executor is an object
    options = ["--checkpoint", "folder", "--save-warmup", "--no-preflight", "--backend", "cupy", "--own-step-sizes"]
    options += ["--streamed", *["--init", "pathfinder", "--max-seconds", "3"], "--initvals", '{"theta": [0.1, 0.2]}']
    wanted = {"preflight": False, "save_warmup": True, "backend": refhmc.CuPy(shared_step_size=False, streamed=True)}
    wanted |= {"init": "pathfinder", "max_seconds": 3.0, "draws": 30, "chains": 2, "random_seed": 1}
    wanted |= {"initvals": {"theta": [0.1, 0.2]}, "checkpoint": pathlib.Path("folder")}
    options += ["--until", "ess=100, rhat=none, mcse.theta=0.5, max_draws=70"]
    wanted |= {"until": refhmc.Until(ess=100, rhat=None, mcse={"theta": 0.5}, max_draws=70)}
    taken = taken_by_sample(monkeypatch, "banana", *FEW, *options)
    assert set(taken) == there
    assert {key: taken[key] for key in wanted} == wanted


def test_help_has_the_first_sentences_of_the_docstrings(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main(["sample", "--help"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "Number of warm-up iterations per chain, by default 1,000." in " ".join(shown.split())
    assert "Maximum number of doublings, from 1 to 30 (nuts: 10, walnuts: 10)." in " ".join(shown.split())
    assert "`" not in shown.replace("`refhmc models`", "")


@pytest.mark.parametrize(
    ("words", "kernel"),
    [
        ("--kernel nuts:max_treedepth=5,step_size=.1", refhmc.NUTS(max_treedepth=5, step_size=0.1)),
        ("--kernel nuts --metric auto", refhmc.NUTS()),
        ("--metric softabs:alpha=3 --kernel hmc", refhmc.HMC(metric=refhmc.metrics.SoftAbs(alpha=3))),
        (
            "--kernel nuts --metric diagonal:variances=[1,2],learn_from=draws",
            refhmc.NUTS(metric=refhmc.metrics.Diagonal([1, 2], learn_from="draws")),
        ),
        (
            "--kernel nuts --metric dense:learn-from=draws",
            refhmc.NUTS(metric=refhmc.metrics.Dense(learn_from="draws")),
        ),
        (
            "--kernel hmc --metric fisher --integrator explicit-tao:omega=20",
            refhmc.HMC(metric=refhmc.metrics.Fisher(), integrator=refhmc.integrators.ExplicitTao(omega=20)),
        ),
        (
            "--kernel hmc --metric fisher --integrator projected-tao --omega 20 --no-reversibility-check",
            refhmc.HMC(
                metric=refhmc.metrics.Fisher(),
                integrator=refhmc.integrators.ProjectedTao(omega=20.0, reversibility_check=False),
            ),
        ),
        (
            "--kernel hmc --metric fisher --integrator yoshida:base=generalized-leapfrog:variant=naive",
            refhmc.HMC(
                metric=refhmc.metrics.Fisher(),
                integrator=refhmc.integrators.Yoshida(refhmc.integrators.GeneralizedLeapfrog(variant="naive")),
            ),
        ),
        (
            "--kernel hmc --metric fisher --integrator suzuki:base=implicit-midpoint --tolerance 1e-8",
            refhmc.HMC(
                metric=refhmc.metrics.Fisher(),
                integrator=refhmc.integrators.Suzuki(refhmc.integrators.ImplicitMidpoint(tolerance=1e-8)),
            ),
        ),
        (
            "--kernel hmc --metric fisher --integrator implicit-midpoint:max_iterations=9 --tolerance 1e-8",
            refhmc.HMC(
                metric=refhmc.metrics.Fisher(),
                integrator=refhmc.integrators.ImplicitMidpoint(max_iterations=9, tolerance=1e-8),
            ),
        ),
        ("--kernel tempered --rungs 6", refhmc.Tempered(refhmc.NUTS(), rungs=6)),
        (
            "--kernel tempered:kernel=hmc:n_steps=5,rungs=4,reference_scale=[1,2] --metric dense --learned-rungs 0",
            refhmc.Tempered(
                refhmc.HMC(n_steps=5, metric=refhmc.metrics.Dense()),
                rungs=4,
                reference_scale=np.array([1, 2]),
                learned_rungs=0,
            ),
        ),
    ],
)
def test_kernels_metrics_and_integrators_take_any_of_their_options(monkeypatch, words, kernel):
    assert repr(taken_by_sample(monkeypatch, "banana", *words.split())["kernel"]) == repr(kernel)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--metric dense:alpha", "option=value"),
        ("--initvals {", "JSON"),
        ("--until ess=many", "got 'ess=many'"),
        ("--until draws=5", "got 'draws=5'"),
        ("--until ess=-5", "ess must be a number above 0"),
    ],
)
def test_unreadable_option_values_are_named(capsys, words, error):
    with pytest.raises(SystemExit, match="2"):
        main(["sample", "banana", *words.split()])
    assert error in capsys.readouterr().err


@pytest.mark.sweep
def test_run_continues_and_another_reuses_its_adaptation(tmp_path, capsys):
    folder, out = str(tmp_path / "run"), str(tmp_path / "r.nc")
    plain = ["--kernel", "nuts", "--metric", "diagonal", *FEW]
    assert main(["sample", "kidscore", *plain, "--checkpoint", folder, "--out", out]) == 0
    assert main(["sample", "kidscore", *plain, "--checkpoint", folder, "--draws", "40"]) == 0
    assert "2 chains of 40 draws" in capsys.readouterr().out
    again = str(tmp_path / "again.nc")
    assert main(["sample", "kidscore", *plain, "--warmup", out, "--tune", "0", "--out", again]) == 0
    import xarray

    learned, used = (xarray.open_datatree(path, engine="h5netcdf")["adaptation"]["step_size"] for path in (out, again))
    assert used.values.tolist() == learned.values.tolist()


@pytest.mark.parametrize("kind", [swept("checkpoint"), "store"])
def test_resume_continues_from_a_folder(kind, tmp_path, capsys):
    if kind == "store":
        pytest.importorskip("zarr")
    plain = ["--draws", "30", "--tune", "40", "--chains", "2", "--seed", "7", "--quiet", "--json"]
    assert main(["sample", "kidscore", *plain, f"--{kind}", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "run"), "--draws", "50", "--quiet", "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert main(["sample", "kidscore", *plain, "--draws", "50"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert resumed["summary"] == whole["summary"]
    assert resumed["attributes"]["draws_per_chain"] == [50, 50]
    assert main(["resume", str(tmp_path / "nowhere"), "--quiet"]) != 0
    assert "nowhere" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------- output files


def forbid_sampling(monkeypatch):
    """Make the test fail if sampling starts."""
    monkeypatch.setattr(refhmc, "sample", lambda *given, **options: pytest.fail("it was sampled"))


@pytest.mark.parametrize("option", ["--out", "--plot", "--report"])
def test_unwritable_file_is_reported_before_the_run(option, tmp_path, capsys, monkeypatch):
    forbid_sampling(monkeypatch)
    assert main(["sample", "funnel", option, str(tmp_path)]) == 1
    assert f"{tmp_path} is a directory" in capsys.readouterr().err
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: (tmp_path / "no" / "such").open("wb"))
    assert main(["sample", "funnel", option, str(tmp_path / "r.png")]) == 1
    assert re.search("r.png.*No such file", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--checkpoint", "--store", "--out", "--plot", "--report"])
def test_empty_path_is_rejected(option, capsys, monkeypatch):
    forbid_sampling(monkeypatch)
    with pytest.raises(SystemExit, match="2"):
        main(["sample", "funnel", option, ""])
    assert re.search(f"argument {option}: .*empty", capsys.readouterr().err)


def test_unwritable_report_is_reported_before_the_run(tmp_path, capsys, monkeypatch):
    forbid_sampling(monkeypatch)
    assert main(["report", "funnel", "--out", str(tmp_path)]) == 1
    assert "is a directory" in capsys.readouterr().err


def test_plot_has_the_format_of_its_file_name(tmp_path, capsys, monkeypatch):
    few = ["sample", "funnel", "--draws", "5", "--tune", "5", "--chains", "1", "--seed", "1", "--quiet"]
    assert main([*few, "--plot", str(tmp_path / "r.pdf")]) == 0
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")
    assert ": 1 chain of 5 draws in " in capsys.readouterr().out
    forbid_sampling(monkeypatch)
    assert main([*few, "--plot", str(tmp_path / "r.picture")]) == 1
    assert re.search("--plot.*pdf.*'picture'", capsys.readouterr().err)


def test_groups_to_generate_may_have_spaces_after_commas():
    from refhmc.cli.signatures import groups_to_generate

    assert groups_to_generate("log_likelihood, prior") == ["log_likelihood", "prior"]
    assert groups_to_generate(" all") is True


def test_groups_missing_because_of_store_are_named(tmp_path, capsys):
    pytest.importorskip("zarr")
    plain = f"--draws 20 --tune 20 --chains 1 --seed 1 --quiet --out {tmp_path / 'r.nc'}".split()
    assert main(["sample", "eight-schools", *plain, "--store", str(tmp_path / "run")]) == 0
    assert re.search("warning: .*--out.* groups log_likelihood, posterior_predictive, ", capsys.readouterr().out)
    assert main(["sample", "eight-schools", *plain, "--store", str(tmp_path / "other"), "--generate", "none"]) == 0
    assert "groups log_likelihood" not in capsys.readouterr().out


def test_resume_takes_warmup_and_split_of_the_run(tmp_path, capsys):
    plain = ["--kernel", "hmc", "--n-steps", "3", "--tune", "20", "--chains", "1", "--seed", "1", "--quiet", "--json"]
    learned, kids = str(tmp_path / "learned.nc"), ["sample", "kidscore", "--draws", "20", *plain]
    assert main([*kids, "--out", learned]) == 0
    assert main([*kids, "--warmup", learned, "--checkpoint", str(tmp_path / "a")]) == 0
    parts = ["mlp-regression", "--widths", "2", "--split", "2"]
    assert main(["sample", *parts, "--draws", "5", *plain, "--checkpoint", str(tmp_path / "b")]) == 0
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "a"), "--warmup", learned, "--draws", "30", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["attributes"]["draws_per_chain"] == [30]
    assert main(["resume", str(tmp_path / "b"), *parts, "--draws", "8", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["attributes"]["draws_per_chain"] == [8]

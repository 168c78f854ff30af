"""The code in a report reproduces the run."""

from __future__ import annotations

import ast
import json
import math

import numpy as np
import pytest

import refhmc
from refhmc.kernels.blocks import kernels_of
from refhmc.plot.repeated import known_model, repeated, source
from refhmc.plot.runs import run_of
from refhmc.sampling.storage.kernel_json import kernel_as_json
from tests.helpers.made_runs import made_run

SHORT = {"draws": 12, "tune": 15, "chains": 2, "random_seed": 8, "progressbar": False, "raw": True}


def test_code_reproduces_the_run():
    first = refhmc.sample(refhmc.models.Funnel(), refhmc.NUTS(target_accept=0.7), save_warmup=True, **SHORT)
    text = repeated(run_of(first))
    assert "refhmc.models.by_name()['funnel'](),\n    refhmc.NUTS(target_accept=0.7),\n" in text
    said: dict = {}
    exec(text.replace("\n)", "\n    progressbar=False, raw=True)"), said)
    for group in ("unconstrained_posterior", "warmup_unconstrained_posterior"):
        np.testing.assert_array_equal(said["result"].groups[group]["q"], first.groups[group]["q"])


@pytest.mark.parametrize(
    "kernel",
    [
        refhmc.NUTS(),
        refhmc.NUTS(metric=refhmc.metrics.Dense([[1.0, 0.2], [0.2, 0.5]]), step_size=0.1),
        refhmc.HMC(
            metric=refhmc.metrics.SoftAbs(alpha=10.0),
            integrator=refhmc.integrators.ImplicitMidpoint(tolerance=1e-9),
            n_steps=7,
        ),
        refhmc.HMC(integrator=refhmc.integrators.Yoshida(refhmc.integrators.Leapfrog())),
        refhmc.Gibbs({"a": refhmc.NUTS(), ("b", "c"): refhmc.HMC(n_steps=3)}),
        refhmc.DHMC(step_size=0.1, n_steps=5),
        refhmc.SGLD(step_size=0.1, decay=(100.0, 0.55)),
        refhmc.SGHMC(step_size=0.1, friction=1.0),
        refhmc.HMC(metric=refhmc.metrics.SoftAbs(alpha=1.0), integrator=refhmc.integrators.ProjectedTao(omega=1.0)),
    ],
    ids=lambda kernel: kernel_as_json(kernel)[:40],
)
def test_kernels_are_written_as_python(kernel):
    said = kernel_as_json(kernel)
    text = source(kernel)
    assert kernel_as_json(eval(text, {"refhmc": refhmc})) == said
    assert "None" not in text
    assert kernels_of(kernel)


@pytest.mark.parametrize(
    ("backend", "fused", "code"),
    [("numba", 0, "'numba'"), ("numba", 1, "refhmc.Numba(fuse=True)"), ("arrays", 1, "'arrays'"), ("other", 1, None)],
)
def test_backend_of_the_run_is_repeated(backend, fused, code):
    run = made_run()
    run.attributes.update(backend=backend, fused=fused)
    found = [line.strip() for line in repeated(run_of(run)).splitlines() if line.strip().startswith("backend=")]
    assert found == ([f"backend={code},"] if code else [])


def test_unknown_model_and_kernel_become_names():
    run = made_run(model="evil\n import os")
    run.attributes["kernel"] = json.dumps({"name": "Theirs"})
    text = repeated(run_of(run))
    assert "    model,\n    kernel,\n" in text
    compile(text, "report", "exec")
    remarks = [line for line in text.split("\n") if line.startswith("#")]
    assert len(remarks) == 2
    assert "evil" in remarks[0]
    assert known_model(run_of(run)) is None


CODE = "__import__('os').system('x')"
NAMES = {"refhmc", "model", "kernel", "float"}


def code_of(run):
    """Return the names that a run's code uses; everything else in it is a literal or a keyword."""
    tree = ast.parse(repeated(run_of(run)))
    assert [type(each) for each in tree.body] == [ast.Import, ast.Assign]
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    known = {
        *refhmc.kernels.__all__,
        *refhmc.metrics.__all__,
        *refhmc.integrators.__all__,
        "sample",
        "by_name",
        "float",
        "Numba",
    }
    for function in called:
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "()")
        assert name in known | {"()"}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"result"}


@pytest.mark.parametrize(
    "kernel",
    [
        {"name": "NUTS", f"step_size={CODE}, max_treedepth": 3},
        {"name": f"NUTS({CODE}) or refhmc.NUTS"},
        {"name": "NUTS", "step_size": {"name": CODE}},
        {"name": "NUTS", "metric": {"name": "Dense", f"covariance={CODE}, x": [[1.0]]}},
        {"name": "NUTS", "metric": {"name": "Leapfrog"}},  # not a metric
        {"name": "Leapfrog"},  # not a kernel
        {"name": "NUTS", "max_treedepth": [1, {"name": CODE}]},
        {"name": "NUTS", "__class__": 1},
        {"name": "Gibbs", "blocks": [[{CODE: 1}, {"name": "NUTS"}]]},
        {"name": "Gibbs", "blocks": [[["a", "b"], {"name": "NUTS", CODE: 1}]]},
        {"name": "Gibbs", "blocks": {"a": {"name": "NUTS"}}},
        {"name": ["NUTS"]},
        {"name": "KERNELS"},
        {"name": "__all__"},
        [CODE],
        CODE,
        7,
        None,
    ],
    ids=str,
)
def test_a_kernel_that_is_not_one_of_refhmc_becomes_a_comment(kernel):
    run = made_run()
    run.attributes["kernel"] = json.dumps(kernel)
    text = repeated(run_of(run))
    assert "    kernel,\n" in text
    assert code_of(run) <= NAMES


@pytest.mark.parametrize(
    "value",
    [CODE, f"\n{CODE}\n", f"'\r{CODE}\u2028{CODE}\x85", [CODE], {CODE: CODE}, -1, 1e400, "[" * 50_000, "9" * 5000],
    ids=["text", "lines", "other line ends", "list", "dictionary", "negative", "infinite", "deep", "long"],
)
def test_code_in_an_attribute_stays_a_quoted_comment(value, monkeypatch):
    """Each attribute in turn, of a result in memory and in a file."""
    monkeypatch.setattr("refhmc.plot.repeated.known_model", lambda run: None)  # it makes every model
    run = made_run()
    for key in [*run.attributes, "fused"]:
        other = refhmc.Result(run.groups, {**run.attributes, key: value})
        for about in (other, other.to_arviz()):
            assert code_of(about) <= NAMES
            for line in repeated(run_of(about)).splitlines():
                assert CODE not in line or line.startswith("# ")


def test_literals_are_written_as_python_reads_them():
    """Also non-finite numbers, and strings with all kinds of quotes and line ends."""
    for value in (
        None,
        True,
        -3,
        2**70,
        0.1,
        float("inf"),
        float("-inf"),
        "a'\"\n\r\x85\u2028\\",
        [1, ["b", None]],
        ("a", 2),
        (),
    ):
        assert eval(source(value)) == value
    assert math.isnan(eval(source(float("nan"))))
    for value in (np.float64(1.0), object(), [object()], CODE.encode()):
        with pytest.raises(TypeError):
            source(value)


def test_model_with_the_same_name_is_not_confused():
    run = made_run(model="funnel")
    assert known_model(run_of(run)) is None
    run.attributes["model_fingerprint"] = refhmc.models.Funnel().fingerprint()
    word, model = known_model(run_of(run))
    assert (word, model.name, model.dim) == ("funnel", "funnel", 11)

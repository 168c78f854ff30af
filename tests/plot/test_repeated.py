"""The call that a report gives draws the run again."""

from __future__ import annotations

import json

import numpy as np
import pytest

import refhmc
from refhmc.kernels.blocks import kernels_of
from refhmc.plot.repeated import in_python, known_model, repeated
from refhmc.plot.runs import run_of
from refhmc.sampling.assembly import kernel_as_json
from tests.helpers.made_runs import made_run

SHORT = {"draws": 12, "tune": 15, "chains": 2, "random_seed": 8, "progressbar": False, "raw": True}


def test_the_run_again():
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
    ],
    ids=lambda kernel: kernel_as_json(kernel)[:40],
)
def test_kernels_as_python(kernel):
    said = kernel_as_json(kernel)
    text = in_python(json.loads(said))
    assert kernel_as_json(eval(text, {"refhmc": refhmc})) == said
    assert "None" not in text
    assert kernels_of(kernel)


def test_what_is_not_known_is_left_as_a_word():
    run = made_run(model="evil\n import os")
    run.attributes["kernel"] = json.dumps({"name": "Theirs"})
    text = repeated(run_of(run))
    assert "    model,\n    kernel,\n" in text
    compile(text, "report", "exec")
    remarks = [line for line in text.split("\n") if line.startswith("#")]
    assert len(remarks) == 2
    assert "evil" in remarks[0]
    assert known_model(run_of(run)) is None


def test_a_model_of_the_same_name_is_not_taken_for_it():
    run = made_run(model="funnel")
    assert known_model(run_of(run)) is None
    run.attributes["model_fingerprint"] = refhmc.models.Funnel().fingerprint()
    word, model = known_model(run_of(run))
    assert (word, model.name, model.dim) == ("funnel", "funnel", 11)

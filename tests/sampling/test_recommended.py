"""The kernel that a model is meant for is taken where none is given, by ``sample`` and on the command line."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import pytest

import refhmc
from refhmc import diagnostics
from refhmc.cli.main import main
from refhmc.sampling.recommended import recommended_kernel

SHORT = {"draws": 2, "tune": 0, "chains": 1, "random_seed": 1, "progressbar": False, "raw": True}


@pytest.mark.parametrize("name", sorted(refhmc.models.by_name()))
def test_every_built_in_model_names_a_kernel_that_there_is(name):
    model = refhmc.models.by_name()[name]()
    kernel, advice = recommended_kernel(model), model.recommended
    if advice is None:
        assert kernel == (refhmc.DHMC() if len(model.discontinuous) else refhmc.NUTS())
    else:
        assert advice.why
        assert kernel.name == (advice.kernel or "nuts")
        assert not advice.metric or kernel.metric.name == advice.metric


@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_sample_takes_it_and_a_kernel_that_is_given_comes_first():
    def names(kernel=None, model=None):
        result = refhmc.sample(refhmc.models.Banana() if model is None else model, kernel, **SHORT)
        said = json.loads(result.attributes["kernel"])
        return said["name"], (said["metric"] or {}).get("name")

    assert names() == ("HMC", "Fisher")
    assert names(refhmc.NUTS()) == ("NUTS", None)
    assert names(model=refhmc.models.EightSchools()) == ("NUTS", None)
    own = refhmc.Model(
        1, lambda q, data: -0.5 * q[0] ** 2, lambda q, data: -q, recommended=refhmc.Recommended("hmc", "diagonal", "so")
    )
    assert names(model=own) == ("HMC", "Diagonal")
    assert refhmc.models.Banana().recommended == pickle.loads(pickle.dumps(refhmc.models.Banana())).recommended


@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_the_command_says_which_and_why(capsys):
    few = ["--draws", "5", "--tune", "20", "--chains", "1", "--seed", "1", "--quiet"]
    assert main(["sample", "banana", *few]) == 0
    assert "kernel: hmc on fisher, since its ridge is curved" in capsys.readouterr().out
    assert main(["sample", "banana", "--kernel", "nuts", *few]) == 0
    assert "kernel:" not in capsys.readouterr().out
    assert main(["sample", "eight-schools-centered", *few]) == 0
    assert "kernel: nuts, though the centred form is a funnel" in capsys.readouterr().out


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["funnel", "banana"])
def test_the_recommended_kernel_samples_it_rightly(name):
    """The mean of each coordinate and of its square against the known truth, z below 5 of at most 22: false alarm 2e-5. (Plain
    NUTS on the funnel: R-hat 1.1 to 1.4.)"""
    model = refhmc.models.by_name()[name]()
    kernel = dataclasses.replace(recommended_kernel(model))
    result = refhmc.sample(model, kernel, random_seed=4, progressbar=False, raw=True)
    assert diagnostics.rhat(result.draws).max() < 1.02
    exact = model.reference.draw(np.random.default_rng(1), 1_000_000)[:, : model.dim]
    for f in (lambda q: np.tanh(q / 3), lambda q: np.tanh(np.abs(q) / 3)):
        z = (f(result.draws).mean((0, 1)) - f(exact).mean(0)) / np.sqrt(
            f(exact).var(0) / diagnostics.ess(f(result.draws))
        )
        assert np.abs(z).max() < 5

"""``sample`` and the command line use the model's recommended kernel by default."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import scipy.stats
import xarray

import refhmc
from refhmc import diagnostics
from refhmc.cli.main import main
from refhmc.numerics.convergence import ess
from refhmc.sampling.checks.arguments import recommended_kernel
from tests.helpers.posteriors import z_scores
from tests.helpers.sweeps import swept

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
    assert recommended_kernel(refhmc.models.EightSchools()) == refhmc.NUTS(target_accept=0.95)
    own = refhmc.Model(
        1, lambda q, data: -0.5 * q[0] ** 2, lambda q, data: -q, recommended=refhmc.Recommended("hmc", "diagonal", "so")
    )
    assert names(model=own) == ("HMC", "Diagonal")
    volatility = refhmc.models.StochasticVolatility(T=5)
    assert names(model=volatility) == ("HMC", "Fisher")
    on_arrays = refhmc.sample(volatility, backend="arrays", **SHORT)  # where the metric would be a full matrix
    assert json.loads(on_arrays.attributes["kernel"])["name"] == "NUTS"
    assert refhmc.models.Banana().recommended == pickle.loads(pickle.dumps(refhmc.models.Banana())).recommended


@pytest.mark.parametrize("n", [swept(1), 2, swept(3), swept(5)])
def test_a_funnel_of_few_is_sampled_rightly_by_default(n):
    """An eigenvalue of the Hessian changes its sign among the draws.

    The bound on z of v and v^2 is the normal quantile of 1e-6 / 4. 4,000 draws that miss the neck overestimate their ESS by
    a factor of 4, hence the limit of 400: runs of 16,000 draws had an ESS of 1,700 to 3,700. None of 32,000 transitions
    diverged with 8 seeds. At a rate of 1e-4, which these exclude at 95 %, 20 of 4,000 have a probability below 1e-20.
    """
    model = refhmc.models.Funnel(n)
    assert recommended_kernel(model).metric.alpha == 10
    result = refhmc.sample(model, random_seed=4, progressbar=False, raw=True)
    v = result.posterior["v"]
    assert result.sample_stats["diverging"].sum() < 20
    for x, mean, sd in ((v, 0.0, 3.0), (v * v, 9.0, 9 * np.sqrt(2))):
        z = (x.mean() - mean) / (sd / np.sqrt(min(400.0, ess(x[..., None])[0])))
        assert abs(z) < scipy.stats.norm.isf(1e-6 / 4)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_the_command_reports_the_kernel_and_the_reason(capsys, tmp_path):
    few = ["--draws", "5", "--tune", "20", "--chains", "1", "--seed", "1", "--quiet"]
    assert main(["sample", "banana", *few]) == 0
    assert "Kernel: hmc on fisher, because its ridge is curved" in capsys.readouterr().out
    assert main(["sample", "eight-schools", *few]) == 0
    assert "Kernel: nuts with target_accept=0.95, because" in capsys.readouterr().out
    assert main(["sample", "eight-schools", "--target-accept", "0.7", *few]) == 0
    file = tmp_path / "few.py"
    file.write_text("import refhmc\nmodel = refhmc.models.Funnel(2)\n")
    assert main(["sample", f"{file}:model", *few]) == 0
    assert "Kernel: hmc on softabs, because" in capsys.readouterr().out
    assert "Kernel:" not in capsys.readouterr().out
    assert main(["sample", "pac-bayes", *few, "--out", str(tmp_path / "steps.nc")]) == 0
    assert "Kernel: dhmc with n_steps=40, because" in capsys.readouterr().out
    steps = xarray.open_dataset(tmp_path / "steps.nc", group="sample_stats")["n_steps"].values
    assert 32 <= steps.min() <= steps.max() <= 48  # 40, with its jitter of a fifth
    assert main(["sample", "banana", "--kernel", "nuts", *few]) == 0
    assert "Kernel:" not in capsys.readouterr().out
    assert main(["sample", "eight-schools-centered", *few]) == 0
    assert "Kernel: hmc on fisher with integrator=block-leapfrog, because the centred form" in capsys.readouterr().out


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(refhmc.models.by_name()))
def test_by_default_a_built_in_model_is_sampled_rightly_and_without_a_warning(name):
    """A model without this property states why in its recommendation, and its run warns unless it is right.

    The bound on z of means and variances is the normal quantile of 1e-5 / 2m for m of them: false-alarm rate 2e-4 in total.
    R-hat exceeds 1.01 by chance in 3 of 1,000 coordinates with 1,100 effective draws, and in 2 of 10,000 with 1,500 (simulated,
    20,000 autoregressions each; few coordinates of Jolly-Seber and the PAC-Bayes classifier have so few, and some of the
    horseshoe have 500 of 1,000 draws, hence the 4,000). Divergences by chance were counted for eight schools and GARCH: there
    were none in 30 runs.
    """
    model = refhmc.models.by_name()[name]()
    advice = model.recommended
    draws = 4000 if name == "horseshoe" else 1000
    result = refhmc.sample(model, draws=draws, random_seed=2, progressbar=False, raw=True)
    if advice is not None and not advice.kernel:
        assert advice.why
        if result.warnings:
            return
    assert not result.warnings
    assert diagnostics.rhat(result.draws).max() < 1.01
    if name == "funnel":  # its squares have no variance worth the name
        funnel_has_the_moments_of_exact_draws(model, result.draws)
    elif model.reference is not None and model.reference.mean is not None:
        z = z_scores(model, result)
        assert np.abs(z[np.isfinite(z)]).max() < scipy.stats.norm.isf(1e-5 / 2 / len(z))


def funnel_has_the_moments_of_exact_draws(model, draws):
    """The mean of each coordinate and of its size, both bounded by tanh: z below 5 of 22, false alarm 2e-5."""
    exact = model.reference.draw(np.random.default_rng(1), 1_000_000)[:, : model.dim]
    for f in (lambda q: np.tanh(q / 3), lambda q: np.tanh(np.abs(q) / 3)):
        z = (f(draws).mean((0, 1)) - f(exact).mean(0)) / np.sqrt(f(exact).var(0) / diagnostics.ess(f(draws)))
        assert np.abs(z).max() < 5

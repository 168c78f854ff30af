"""The posteriors of posteriordb: on small made-up data, their gradients, and their densities in refhmc and in NumPyro."""

from __future__ import annotations

import re
import sys
import types

import numpy as np
import pytest
import scipy.stats

from tests.helpers.models import FEW_CALLS
from tests.helpers.sweeps import representatives
from validation.posteriordb import database, page, samplers
from validation.posteriordb.posteriors import all_posteriors

POSTERIORS = all_posteriors()
N = 12


def groups(rng, n, J):
    """Return the numbers of groups from 1 on, each group at least once."""
    return np.concatenate([np.arange(1, J + 1), rng.integers(1, J + 1, n - J)])


def made_up(name):
    """Return small data with the names and types of posteriordb's."""
    rng = np.random.default_rng(7)
    n, p, u, x = N, rng.uniform(0.5, 2.0, (8, N)), rng.integers(0, 2, N), rng.normal(size=(N, 3))
    hoops = {"u": p[0], "v": p[1], "alpha": [[4, 2], [2, 4]], "tau": 0.5, "rho": 0.5}
    sizes = ("weight", "diam1", "diam2", "canopy_height", "total_height", "density")
    election = ("partyid7", "real_ideo", "race_adj", "educ1", "gender", "income")
    motor = {"Y": x[:, 0], "Xgp_1": x, "slambda_1": p[:3, :1], "Xgp_sigma_1": x[:, :2], "slambda_sigma_1": p[:2, :1]}
    return {
        "arK": {"y": x[:, 0], "K": 2},
        "arma": {"y": x[:, 0]},
        "bball_drive_event_0": hoops,
        "bball_drive_event_1": hoops,
        "diamonds": {"X": np.column_stack([np.ones(n), x]), "Y": 8 + x @ [1, -1, 0.5] + p[0]},
        "earnings": {"earn": 1000 * p[0], "height": 60 * p[1], "male": u},
        "eight_schools": {"y": rng.integers(-5, 20, n), "sigma": rng.integers(5, 15, n), "J": n},
        "garch": {"y": x[:, 0], "sigma1": 0.5},
        "GLM_Binomial_data": {"C": rng.integers(0, 9, n), "N": np.full(n, 9), "year": x[:, 0]},
        "gp_pois_regr": {"x": np.arange(n), "y": x[:, 0], "k": rng.integers(0, 9, n)},
        "hmm_example": {"y": 5 * p[0]},
        "hudson_lynx_hare": {"ts": np.arange(1, 5), "y_init": np.array([30, 4]), "y": 10 * p[:2, :4].T},
        "kidiq": {"kid_score": 90 * p[0], "mom_hs": u, "mom_iq": 100 * p[1]},
        "kidiq_with_mom_work": {
            "kid_score": 90 * p[0],
            "mom_hs": u,
            "mom_iq": 90 * p[1],
            "mom_work": groups(rng, n, 4),
        },
        "kilpisjarvi_mod": {"x": 50 + 9 * p[0], "y": p[1], "pmualpha": 9, "psalpha": 100, "pmubeta": 0, "psbeta": 0.03},
        "low_dim_gauss_mix": {"y": np.concatenate([x[:, 0] - 3, x[:, 1] + 3])},
        "mcycle_gp": motor,
        "mesquite": {key: p[k] for k, key in enumerate(sizes)} | {"group": u},
        "nes": {key: p[k] for k, key in enumerate(election)} | {"age_discrete": groups(rng, n, 4)},
        "nes_logit_data": {"income": rng.integers(1, 6, n), "vote": u},
        "one_comp_mm_elim_abs": {"D": 30, "V": 2, "times": np.arange(1, 6) / 2, "C_hat": 5 * p[0, :5]},
        "radon_mn": {"J": 3, "county_idx": groups(rng, n, 3), "floor_measure": u, "log_radon": x[:, 0]},
        "rats_data": {"N": 3, "rat": groups(rng, n, 3), "x": 9 * p[0], "y": 150 * p[1], "xbar": 9},
        "Rate_1_data": {"k": 5, "n": 10},
        "Rate_2_data": {"k1": 5, "n1": 10, "k2": 7, "n2": 12},
        "Rate_3_data": {"k1": 5, "n1": 10, "k2": 7, "n2": 12},
        "sblrc": {"X": x, "y": x @ [1, 2, 3] + p[0]},
        "sblri": {"X": x, "y": x @ [1, 2, 3] + p[0]},
        "seeds_data": {"I": n, "x1": u, "x2": 1 - u, "N": np.full(n, 9), "n": rng.integers(0, 9, n)},
        "sesame_data": {"encouraged": u, "watched": rng.integers(0, 2, n)},
        "wells_data": {
            "dist": 50 * p[0],
            "arsenic": p[1],
            "assoc": u,
            "educ": 6 * p[2],
            "switched": rng.integers(0, 2, n),
        },
    }[re.sub(r"nes\d+", "nes", name.partition("-")[0])]


def model_of(name):
    """Return the model on made-up data, in Python."""
    model = POSTERIORS[name].model(made_up(name))
    model.in_python = model.in_python or FEW_CALLS
    return model


@pytest.fixture
def numpyro(monkeypatch):
    jax = pytest.importorskip("jax", reason="JAX is not installed (extra jax)")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield pytest.importorskip("numpyro")
    jax.config.update("jax_enable_x64", before)


def test_there_are_fifty_posteriors_and_each_states_source_and_licence():
    assert len(POSTERIORS) >= 50
    for name, posterior in POSTERIORS.items():
        lines = (posterior.__doc__ or "").splitlines()
        assert any(line.startswith("Source: ") for line in lines), name
        assert any(line.startswith("Licence: ") for line in lines), name
        assert posterior.__name__.endswith(name.replace("-", "_")), name


OF_REFHMC = [name for name, each in POSTERIORS.items() if "from_numpyro" not in each.model.__code__.co_names]
KEPT = ["arma-arma11", "Rate_2_data-Rate_2_model", "eight_schools-eight_schools_centered", "diamonds-diamonds"]


@pytest.mark.parametrize(
    "name", representatives(OF_REFHMC, ["kidiq-kidscore_momhs", "wells_data-wells_dae_model", *KEPT])
)
def test_gradient_agrees_with_differences(name):
    model, step = model_of(name), 1e-5
    for q in 0.3 * np.random.default_rng(1).normal(size=(2, model.dim)):
        found, expected = model.gradient(q), np.empty(model.dim)
        for k, e in enumerate(step * np.eye(model.dim)):
            expected[k] = (model.log_density(q + e) - model.log_density(q - e)) / (2 * step)
        tolerance = 1e-4 if "solution" in vars(model) else 1e-6  # of the ODE solver
        rounding = 1e-16 * abs(model.log_density(q)) / step
        assert np.abs(found - expected).max() < tolerance * np.abs(found).max() + rounding


@pytest.mark.parametrize("name", representatives(OF_REFHMC, ["sblrc-blr", "nes_logit_data-nes_logit_model", *KEPT]))
def test_density_is_that_of_the_numpyro_model_up_to_a_constant(name, numpyro):
    import jax
    import jax.numpy as jnp
    from numpyro.infer.util import initialize_model, unconstrain_fn

    model, program = model_of(name), POSTERIORS[name].in_numpyro(made_up(name))
    info = initialize_model(jax.random.PRNGKey(0), program)
    differences, largest = [], 0.0
    for q in 0.3 * np.random.default_rng(1).normal(size=(3, model.dim)):
        values = {key: jnp.asarray(model.constrain(q)[key]) for key in info.param_info.z}
        theirs = -float(info.potential_fn(unconstrain_fn(program, (), {}, values)))
        differences.append(model.log_density(q) - theirs)
        largest = max(largest, abs(theirs))
    tolerance = 1e-3 if "solution" in vars(model) else 1e-10  # of the ODE solver of JAX
    assert np.ptp(differences) < tolerance * (1 + largest)


@pytest.mark.parametrize("name", representatives(sorted(set(POSTERIORS) - set(OF_REFHMC)), ["garch-garch11"]))
def test_numpyro_model_is_a_model_of_refhmc(name, numpyro):
    model = model_of(name)
    assert np.isfinite(model.log_density(np.zeros(model.dim)))
    assert np.isfinite(model.gradient(np.zeros(model.dim))).all()


def test_z_scores_of_independent_draws_are_standard_normal():
    """200 z-scores of draws from the reference's distribution, by Kolmogorov and Smirnov; the false-alarm rate is 1e-7."""
    rng, scores = np.random.default_rng(3), []
    for _ in range(100):
        x, y = rng.normal(2.0, 3.0, (2, 4, 1000))
        scores += database.z_scores(database.statistic("x", x, float(x.mean())), y)
    assert scipy.stats.kstest(scores, "norm").pvalue > 1e-7
    assert abs(database.z_scores(database.statistic("x", x, 2.0), y + 1.0)[0]) > 5


def test_critical_value_has_the_stated_false_alarm_rate():
    critical = page.critical_value(500)
    assert 500 * 2 * scipy.stats.norm.sf(critical) == pytest.approx(page.FALSE_ALARM)


def test_interval_of_a_median_has_the_stated_probability():
    """Exact, by the binomial distribution of the number of values below the median; the next interval would be too short."""
    for n in (20, 70):
        low, high = page.interval_of_median(list(range(n)))
        assert low + high == n - 1
        assert 2 * scipy.stats.binom.cdf(low, n, 0.5) <= 1 - page.LEVEL < 2 * scipy.stats.binom.cdf(low + 1, n, 0.5)
    assert page.interval_of_median([3.0]) == (3.0, 3.0)


def test_entries_have_the_names_of_posteriordb():
    values = {"mu": np.zeros((4, 10)), "beta": np.arange(80.0).reshape(4, 10, 2)}
    found = database.entries(values)
    assert list(found) == ["mu", "beta[1]", "beta[2]"]
    assert np.array_equal(found["beta[2]"], values["beta"][..., 1])


class FitOfStan:
    """PyStan's fit of two parameters, whose values tell the iteration and the chain; a matrix goes down its columns."""

    param_names, dims = ("mu", "L"), ([], [2, 3])
    n = samplers.TUNE + samplers.DRAWS

    def __getitem__(self, name):
        flat = (np.arange(self.n)[:, None] + 0.1 * np.arange(samplers.CHAINS)).ravel()  # chains vary fastest
        if name == "L":
            rows = [flat + 10_000 * (10 * i + j) for j in range(3) for i in range(2)]
            return np.array(rows).reshape(2, 3, -1, order="F")
        return flat[None] if name == "mu" else np.ones((1, len(flat)))


def test_draws_of_stan_have_their_chains_and_dimensions(monkeypatch):
    built = types.SimpleNamespace(sample=lambda **options: FitOfStan())
    monkeypatch.setitem(sys.modules, "stan", types.SimpleNamespace(build=lambda *program, **options: built))
    clock = iter([1.5, 3.75])
    monkeypatch.setattr(samplers, "seconds_of_pystan", lambda: next(clock))
    found, values = samplers.of_stan(None, {}, "program", ["mu", "L"])(1)()
    assert values["mu"].shape == (4, 1000)
    assert values["mu"][2, 5] == samplers.TUNE + 5 + 0.2
    assert values["L"].shape == (4, 1000, 2, 3)
    assert values["L"][2, 5, 1, 2] == samplers.TUNE + 5 + 0.2 + 120_000
    assert found.draws.shape == (4, 1000, 7)
    assert (found.gradients, found.draw_gradients, found.divergences, found.seconds) == (8000, 4000, 4000, 2.25)


def run_of(ess, z=0.5, r_hat=1.002, seconds=1.0, warnings=()):
    found = {"seed": 1, "seconds": seconds, "gradients": 10_000, "draw_gradients": 5000, "draws": 4000, "ess": ess}
    return found | {
        "ess_of": "mu",
        "r_hat": r_hat,
        "divergences": 0,
        "warnings": list(warnings),
        "z": {"mu": [z, -0.1]},
    }


def cell_of(*runs, shared=False):
    return {"runs": list(runs), "why": "", "reference": "draws", "shared": shared, "took": 1.0}


def test_page_names_wrong_posteriors_and_counts_lost_comparisons(monkeypatch):
    names = ["arma-arma11", "garch-garch11", "sblrc-blr", "sblri-blr"]
    cells = {name: {"refhmc": cell_of(run_of(2000)), "nutpie": cell_of(run_of(1000))} for name in names}
    cells["arma-arma11"]["nutpie-low-rank"] = cell_of(run_of(4000))
    cells["arma-arma11"]["refhmc"] = cell_of(run_of(2000, z=7.0))
    cells["garch-garch11"]["refhmc"] = cell_of(
        run_of(500, r_hat=1.2, warnings=["R-hat is above 1.01 for mu. Draw more."])
    )
    cells["sblri-blr"] = {"refhmc": cell_of(run_of(990), run_of(1010), run_of(980)), "nutpie": cell_of(run_of(1000))}
    assert "1, undecided with fewer than 50 posteriors" in page.text_of(cells, POSTERIORS)
    monkeypatch.setattr(page, "FEWEST", 1)
    text = page.text_of(cells, POSTERIORS)
    assert "R-hat at most 1.01 on 2 of 4 posteriors" in text
    assert "- arma-arma11: mean of mu, |z| 7.0." in text
    assert "- garch-garch11: R-hat up to 1.200 in 1 of 1 runs, 1 with a warning." in text
    rows = [[each.strip() for each in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert [
        "ESS per gradient",
        "default metric",
        "4",
        "1.5 (0.5..2)",
        "0.5",
        "2",
        "2",
        "1, undecided by the interval",
    ] in rows
    assert ["sblri-blr", "nutpie", "0.99", page.WITHIN] in rows
    assert ["garch-garch11", "nutpie", "0.50", ""] in rows
    assert (
        "refhmc has 1 to 3 seeds on 4 posteriors, nutpie has 1 seed on 4 posteriors, nutpie-low-rank has 1 seed" in text
    )
    assert ["ESS per second", "best metric", "1", "0.5 (0.5..0.5)", "0.5", "0.5", "1", "2, not met"] in rows
    assert "ESS per second" not in page.text_of(
        {"arma-arma11": {"refhmc": cell_of(run_of(9), shared=True)}}, POSTERIORS
    )


def test_seconds_of_shared_processors_are_left_out_and_slow_gradients_are_named():
    cells = {
        "arma-arma11": {
            "refhmc": cell_of(run_of(1000, seconds=8.0)),
            "numpyro": cell_of(run_of(900, seconds=2.0)),
            "nutpie": cell_of(run_of(2000, seconds=1e-3), shared=True),
        },
        "sblri-blr": {"refhmc": cell_of(run_of(990), shared=True), "numpyro": cell_of(run_of(1))},
    }
    text = page.text_of(cells, {name: POSTERIORS["sblri-blr"] for name in cells})
    section = text.partition("### ESS per second")[2].partition("## refhmc")[0]
    rows = [[each.strip() for each in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    assert ["arma-arma11", "numpyro", "0.28", "4 times the seconds per gradient"] in rows
    assert "sblri-blr" not in section
    assert "shown for refhmc, numpyro only" in text

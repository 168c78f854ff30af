"""Gibbs sampling: blocks and their conditionals, exact distributions, reproducibility, adaptation of each block, errors.

The statistical tests of this file together raise a false alarm with probability 1e-6 at most, shared out evenly over
``N_COMPARISONS``. The seeds are fixed.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc import HMC, NUTS, Gibbs
from refhmc.errors import CheckpointError, MetricError
from refhmc.integrators import ExplicitTao
from refhmc.kernels.blocks import block_indices, indices_of, kernels_of
from refhmc.metrics import Dense, Diagonal, Fisher, Identity, SoftAbs
from refhmc.sampling.chains.chain import Chain, make_plan
from refhmc.sampling.chains.task import chain_generator
from refhmc.sampling.storage.kernel_json import kernel_as_json
from tests.helpers.laws import LAWS
from tests.helpers.leapfrog_cases import model as model_of_law
from tests.helpers.posteriors import z_scores
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import representatives, swept

FAMILY_ALPHA = 1e-6
FUNNEL = refhmc.models.Funnel(3)
QUIET = {"progressbar": False, "raw": True}

# ------------------------------------------------------------------------------------------------ blocks and names


def test_names_and_indices():
    assert block_indices(FUNNEL, "v").tolist() == [0]
    assert block_indices(FUNNEL, "x").tolist() == [1, 2, 3]
    assert block_indices(FUNNEL, ("x[1]", "v")).tolist() == [2, 0]
    assert block_indices(FUNNEL, [3, 1]).tolist() == [3, 1]
    garch = refhmc.models.GARCH()
    assert block_indices(garch, "alpha1").tolist() == [2]
    assert block_indices(garch, "beta1").tolist() == [2, 3]  # of logit_alpha1 and logit_r
    volatility = refhmc.models.StochasticVolatility(T=5)
    assert block_indices(volatility, ("beta", "sigma", "phi")).tolist() == [5, 6, 7]
    assert list(kernels_of(Gibbs({"x": NUTS(), ("beta", "phi"): NUTS(), (6,): NUTS()}))) == ["x", "beta_phi", "block2"]


def test_blocks_are_plain_and_kernels_can_be_words():
    indices = Gibbs({tuple(np.arange(2)): "nuts", range(2, 4): HMC(n_steps=3), np.int64(4): "hmc"})
    plain = Gibbs({(0, 1): NUTS(), (2, 3): HMC(n_steps=3), 4: HMC()})
    assert indices.blocks == plain.blocks
    assert kernel_as_json(indices) == kernel_as_json(plain)
    assert [each.tolist() for each in indices_of(refhmc.models.Funnel(4), indices)] == [[0, 1], [2, 3], [4]]


def pair(constrain, **options):
    """Return a model with two coordinates and some constrained variables."""
    return refhmc.Model(2, lambda q: 0.0, lambda q: 0.0 * q, constrain=constrain, in_python="a few calls", **options)


def test_an_integer_s_coordinates_are_all_found():
    # It changes where its coordinate leaves a cell, and may lie far from 0.
    jolly_seber = refhmc.models.JollySeber()
    assert block_indices(jolly_seber, "U").tolist() == list(range(25, 38))
    assert refhmc.conditional(jolly_seber, "U", jolly_seber.initial).dim == 13
    kernel = Gibbs({"p": NUTS(), "phi": NUTS(), "U": refhmc.DHMC()})
    assert [len(each) for each in indices_of(jolly_seber, kernel)] == [13, 12, 13]
    assert block_indices(refhmc.models.ChangePoint(changes=2), "year").tolist() == [3, 4]
    far = pair(lambda q: {"n": np.clip(np.ceil(q), 1800, 1900)}, discontinuous=[0, 1], initial=[1850.5, 1801.5])
    assert block_indices(far, "n").tolist() == [0, 1]
    # Nor need the model say that it jumps; and NaN is no change.
    whole = pair(lambda q: {"n": np.floor(q[..., 1]), "x": np.nan * q})
    assert block_indices(whole, "n").tolist() == [1]
    with pytest.raises(ValueError, match="variable 'x'"):
        block_indices(whole, "x")
    # A function that is written for one position, and not for those far away.
    alone = pair(lambda q: {"n": np.array(int(np.exp(float(q[1]))))}, discontinuous=[1])
    assert block_indices(alone, "n").tolist() == [1]


def test_a_variable_that_no_coordinate_changes_is_named():
    constant = pair(lambda q: {"c": np.ones(q.shape[:-1]), "x": q})
    with pytest.raises(ValueError, match=r"variable 'c'.* q\[0\], q\[1\]"):
        block_indices(constant, "c")


@pytest.mark.parametrize(
    ("blocks", "error", "text"),
    [
        ({}, ValueError, "blocks must.*{}"),
        ([NUTS()], ValueError, r"blocks must.*\[NUTS"),
        ({"x": "nutz"}, ValueError, "block 'x'.* nuts.*'nutz'"),
        ({"x": "auto"}, ValueError, "block 'x'.*'auto'"),
        ({(0, 1): NUTS(), range(2): NUTS()}, ValueError, "blocks must.*different coordinates"),
        ({"x": Gibbs({"x": NUTS()})}, TypeError, "block 'x'.*Gibbs"),
        ({"x": NUTS, "v": NUTS()}, TypeError, "block 'x'.*class"),
        ({"a_b": NUTS(), ("a", "b"): NUTS()}, ValueError, "blocks must.*different names.*a_b"),
    ],
)
def test_what_is_no_gibbs_kernel(blocks, error, text):
    with pytest.raises(error, match=text):
        Gibbs(blocks)


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ({"v": NUTS()}, r"x\[0\], x\[1\], x\[2\] in no block"),
        ({"v": NUTS(), ("x", "v"): NUTS()}, "v in more than one block"),
        ({"v": NUTS(), "w": NUTS()}, "variable 'w'.* v, x"),
        ({"v": NUTS(), (1, 2, 4): NUTS()}, r"block \(1, 2, 4\).* 0 to 3.* 4"),
        ({"v": NUTS(), (1, 2, 2): NUTS()}, r"block \(1, 2, 2\).* twice"),
        ({"v": NUTS(), "x": NUTS(), (): NUTS()}, "block must have at least one coordinate"),
    ],
)
def test_blocks_that_are_no_partition(blocks, text):
    with pytest.raises(ValueError, match=text):
        refhmc.sample(FUNNEL, Gibbs(blocks), draws=1, tune=0, chains=1, **QUIET)


@pytest.mark.sweep
def test_refusals_further_on():
    with pytest.raises(TypeError, match=r"refhmc\.conditional"):
        refhmc.transition(FUNNEL, Gibbs({"v": NUTS(), "x": NUTS()}), np.zeros(4), rng=np.random.default_rng(0))
    mixture = refhmc.models.GaussianMixture([0.3, -1.2, 2.4])
    blocks = {(0, 1): HMC(step_size=0.1, metric=Fisher()), (2, 3, 4): NUTS()}
    with pytest.raises(refhmc.errors.MissingDerivativeError, match="fisher"):
        refhmc.sample(mixture, Gibbs(blocks), draws=1, tune=0, chains=1, **QUIET)
    with pytest.raises(MetricError, match="[Cc]hain 0"):
        refhmc.sample(indefinite(), Gibbs({"a": HMC(metric=Fisher()), "b": NUTS()}), draws=1, chains=1, **QUIET)


def indefinite():
    """A user's model whose Fisher metric is negative."""
    return refhmc.Model(
        2,
        lambda q, data: -0.5 * np.sum(q * q),
        lambda q, data: -q,
        fisher=lambda q, data: -np.eye(2),
        fisher_contraction=lambda q, data, M: np.zeros(2),
        names=["a", "b"],
    )


# ------------------------------------------------------------------------------------------------ conditionals


@pytest.mark.sweep
@pytest.mark.parametrize("name", representatives(["funnel", "banana", "python"], ["funnel"]))
def test_conditionals_follow_from_the_joint_model(name):
    model = {"funnel": lambda: FUNNEL, "banana": refhmc.models.Banana, "python": python_funnel}[name]()
    rng = np.random.default_rng(1)
    for block in ([1], [2, 0] if model.dim > 2 else [0]):
        q, moved = rng.normal(size=(2, model.dim))
        part = refhmc.conditional(model, block, q)
        moved[[i for i in range(model.dim) if i not in block]] = q[[i for i in range(model.dim) if i not in block]]
        x, square = moved[block], np.ix_(block, block)
        assert part.log_density(x) == model.log_density(moved)
        assert np.array_equal(part.gradient(x), model.gradient(moved)[block])
        assert part.core.value_and_gradient(x)[0] == model.log_density(moved)
        for key, hessian_contraction in (("hessian", "hessian_contraction"), ("fisher", "fisher_contraction")):
            if model.has(key):
                assert np.array_equal(getattr(part, key)(x), getattr(model, key)(moved)[square])
                M, full = rng.normal(size=(len(block), len(block))), np.zeros((model.dim, model.dim))
                full[square] = M
                assert np.array_equal(
                    getattr(part, hessian_contraction)(x, M), getattr(model, hessian_contraction)(moved, full)[block]
                )
        assert part.names == [model.names[i] for i in block]


def python_funnel():
    """Neal's funnel 3 + 1 as Python that Numba cannot compile."""

    def log_density(q, data):
        return float([-(q[0] ** 2) / 18 - 0.5 * np.exp(q[0]) * np.sum(q[1:] ** 2) + 1.5 * q[0], {}][0])

    def gradient(q, data):
        parts = {"v": -q[0] / 9 - 0.5 * np.exp(q[0]) * np.sum(q[1:] ** 2) + 1.5, "x": -np.exp(q[0]) * q[1:]}
        return np.concatenate([np.atleast_1d(parts[key]) for key in sorted(parts)])

    def hessian(q, data):
        H = -np.exp(q[0]) * np.eye(4)
        H[0, 0] = -1 / 9 - 0.5 * np.exp(q[0]) * np.sum(q[1:] ** 2)
        H[0, 1:] = H[1:, 0] = {"H": -np.exp(q[0]) * q[1:]}["H"]
        return H

    def hessian_contraction(q, data, M):
        e = {"e": np.exp(q[0])}["e"]
        beside, out = M[0, 1:] + M[1:, 0], np.zeros(4)
        out[0] = -0.5 * e * np.sum(q[1:] ** 2) * M[0, 0] - e * beside @ q[1:] - e * np.trace(M[1:, 1:])
        out[1:] = -e * q[1:] * M[0, 0] - e * beside
        return out

    with pytest.warns(refhmc.errors.PythonModelWarning):
        model = refhmc.Model(
            4,
            log_density,
            gradient,
            hessian,
            hessian_contraction=hessian_contraction,
            names=["v", "x[0]", "x[1]", "x[2]"],
            name="python funnel",
        )
        assert model.runs_as_python
    return model


@pytest.mark.sweep
def test_a_python_model_is_sampled_as_the_compiled_one():
    """The same density, once called back as Python: the same draws, to rounding."""
    kernel = Gibbs({"v": HMC(step_size=0.3, n_steps=3, metric=SoftAbs(1e6)), "x": HMC(step_size=0.3, n_steps=3)})
    options = {
        "draws": 5,
        "tune": 0,
        "chains": 1,
        "random_seed": 3,
        "initvals": np.array([0.1, 1.0, -1.0, 0.5]),
        **QUIET,
    }
    python, compiled = (refhmc.sample(model, kernel, **options) for model in (python_funnel(), FUNNEL))
    np.testing.assert_allclose(python.draws, compiled.draws, rtol=1e-9)


# ------------------------------------------------------------------------------------------------ laws of the draws

LAW_KERNELS = {
    "funnel": {
        "euclidean": {"v": HMC(step_size=0.5, n_steps=4, step_jitter=0.2), "x": NUTS(step_size=0.2, max_treedepth=4)},
        "riemannian": {
            "v": NUTS(step_size=0.3, max_treedepth=4, metric=SoftAbs(1.0)),
            "x": HMC(step_size=0.4, n_steps=4, step_jitter=0.3, metric=Fisher()),
        },
        "split x": {
            ("x[0]", "v"): HMC(step_size=0.2, n_steps=5, step_jitter=0.2, metric=SoftAbs(1.0)),
            "x[1]": HMC(step_size=0.2, n_steps=3, step_jitter=0.3),
            "x[2]": NUTS(step_size=0.2, max_treedepth=4),
        },
    },
    "gaussian": {
        "three turns": {
            (0,): HMC(step_size=0.8, n_steps=3, step_jitter=0.3),
            (1,): NUTS(step_size=0.8, max_treedepth=4),
            (2,): HMC(step_size=0.5, n_steps=3, metric=Dense([[0.7]])),
        },
        "two and one": {(2, 0): NUTS(step_size=0.6, metric=Dense([[0.5, 0.1], [0.1, 1.0]])), (1,): HMC(step_size=0.9)},
    },
}
LAW_MODELS = {"funnel": FUNNEL, "gaussian": model_of_law("gaussian")}
CASES = [(name, which) for name in LAW_KERNELS for which in LAW_KERNELS[name]]
N_COMPARISONS = 7 * len(CASES) + 4


@pytest.mark.parametrize(("name", "which"), representatives(CASES, [("gaussian", "two and one")]))
def test_draws_keep_the_exact_law(name, which):
    """Independent exact draws, two draws of the Gibbs sampler each, and back to independent normals: Kolmogorov-Smirnov."""
    draw, back = LAWS[name][0]()
    model = LAW_MODELS[name]
    kernel, n = Gibbs(LAW_KERNELS[name][which]), 3000
    starts = draw(np.random.default_rng(5).normal(size=(n, model.dim)))
    plan = make_plan(model, kernel, 0)
    plan.compile("test")
    chain, ends = Chain(model, plan, chain_generator(6, 0)), np.empty_like(starts)
    draws, stats = np.zeros((2, model.dim)), np.zeros((2, plan.n_stats))
    for k, start in enumerate(starts):
        chain.start(start)
        assert chain.run(draws, stats) == 2
        ends[k] = draws[1]
    z = back(ends)
    assert np.mean(np.any(ends != starts, axis=1)) > 0.8
    pvalues = [scipy.stats.kstest(column, "norm").pvalue for column in z.T]
    pvalues.append(scipy.stats.kstest(np.sum(z**2, axis=1), "chi2", args=(model.dim,)).pvalue)
    pvalues += [scipy.stats.kstest((z[:, 0] + s * z[:, 1]) / 2**0.5, "norm").pvalue for s in (1, -1)]
    assert min(pvalues) > FAMILY_ALPHA / N_COMPARISONS


# ------------------------------------------------------------------------------------- one generator, any cut


@pytest.mark.parametrize("each", [HMC(step_jitter=0.2), NUTS(metric=Dense()), NUTS(step_size=0.3, metric=SoftAbs(1e6))])
def test_one_block_is_its_kernel_bit_for_bit(each):
    options = {"draws": 150, "tune": 150, "chains": 1, "random_seed": 4, **QUIET}
    alone, block = refhmc.sample(FUNNEL, each, **options), refhmc.sample(FUNNEL, Gibbs({("v", "x"): each}), **options)
    assert np.array_equal(alone.draws, block.draws)
    for name, values in alone.sample_stats.items():
        if name not in ("lp", "energy") and not name.startswith("n_"):
            assert np.array_equal(values, block.sample_stats[f"{name}_v_x"], equal_nan=True), name
    np.testing.assert_allclose(block.sample_stats["lp"], alone.sample_stats["lp"], rtol=1e-12)


KERNEL = Gibbs({"v": NUTS(), "x": HMC(metric=Dense(), n_steps=4)})
RUN = {"draws": 600, "tune": 400, "random_seed": 9, **QUIET}


@pytest.fixture(scope="module")
def unbroken():
    return refhmc.sample(FUNNEL, KERNEL, **RUN, chains=2, save_warmup=True)


@pytest.mark.parametrize("stops", [(130, 131), *(swept((stops,)) for stops in [(0,), (300, 700), (950,)])])
def test_stopped_and_resumed_is_unbroken(stops, unbroken, tmp_path):
    options = {"chains": 2, "save_warmup": True, "checkpoint": tmp_path}
    for stop in stops:
        refhmc.sample(FUNNEL, KERNEL, **{**RUN, "progressbar": stop_after(stop)}, **options, cores=1)
    resumed = refhmc.sample(FUNNEL, KERNEL, **{**RUN, "random_seed": None}, **options)
    for group in unbroken.groups:
        for name, values in unbroken.groups[group].items():
            assert np.array_equal(resumed.groups[group][name], values, equal_nan=True), (group, name)
    assert resumed.attributes["n_gradient_evaluations"] == unbroken.attributes["n_gradient_evaluations"]
    with pytest.raises(CheckpointError, match="kernel"):
        refhmc.sample(FUNNEL, Gibbs({"x": HMC(metric=Dense(), n_steps=4), "v": NUTS()}), **RUN, **options)


# ------------------------------------------------------------------------------------------ adaptation, statistics


def test_each_block_adapts_by_itself():
    """Two independent normals of scales 1e-2 and 1e2: step sizes, and metrics, differ by that; a given step stays."""
    model = refhmc.models.Gaussian(np.zeros(3), np.diag([1e-4, 1e4, 1.0]))
    kernel = Gibbs({(0,): HMC(metric=Identity(), n_steps=5), (1,): NUTS(), (2,): HMC(step_size=0.7, n_steps=2)})
    result = refhmc.sample(model, kernel, draws=500, tune=500, chains=2, random_seed=1, save_warmup=True, **QUIET)
    stats, warm = result.sample_stats, result.groups["warmup_sample_stats"]
    assert np.all(stats["step_size_block2"] == 0.7)
    assert np.all(np.ptp(stats["step_size_block0"], axis=1) == 0)
    assert np.all(np.ptp(warm["step_size_block0"], axis=1) > 0)
    assert np.all((stats["step_size_block0"] > 3e-3) & (stats["step_size_block0"] < 3e-2))
    # On its learned metric a normal of any scale has a step of about 1 to 2.
    assert np.all((stats["step_size_block1"] > 0.5) & (stats["step_size_block1"] < 3))


def test_the_metric_of_a_block_is_learned_from_its_own_draws():
    model = refhmc.models.Gaussian(np.zeros(3), np.diag([1e-4, 1e4, 1.0]))
    plan = make_plan(model, Gibbs({(2, 1): NUTS(metric=Dense()), (0,): NUTS()}), 600)
    plan.compile("test")
    chain = Chain(model, plan, chain_generator(1, 0))
    chain.start(np.zeros(3))
    chain.run(np.zeros((600, 3)), np.zeros((600, plan.n_stats)))
    learned = np.diag(chain.blocks[0].mats[0])
    # The last window has over 300 draws: a variance's relative error is about 10 %, six of which are allowed.
    np.testing.assert_allclose(learned, [1.0, 1e4], rtol=0.6)
    np.testing.assert_allclose(chain.blocks[1].vecs[0], [1e-4], rtol=0.6)


def test_statistics_of_the_draw_and_of_the_blocks(unbroken):
    stats = unbroken.sample_stats
    assert stats["diverging"].dtype == bool
    assert stats["n_steps"].dtype == np.int64
    assert np.array_equal(stats["diverging"], stats["diverging_v"] | stats["diverging_x"])
    assert np.array_equal(stats["n_steps"], stats["n_steps_v"] + stats["n_steps_x"])
    np.testing.assert_allclose(
        stats["acceptance_rate"], (stats["acceptance_rate_v"] + stats["acceptance_rate_x"]) / 2, rtol=1e-15
    )
    lp = [[FUNNEL.log_density(q) for q in chain] for chain in unbroken.draws]
    np.testing.assert_allclose(stats["lp"], lp, rtol=1e-12, atol=1e-12)
    assert "tree_depth_v" in stats
    assert "tree_depth_x" not in stats
    settings = json.loads(unbroken.attributes["kernel"])
    assert [block for block, _ in settings["blocks"]] == ["v", "x"]
    assert unbroken.attributes["exact"]
    assert set(unbroken.posterior) == {"v", "x"}


@pytest.mark.sweep
def test_warnings_name_the_block():
    kernel = Gibbs(
        {
            "v": HMC(step_size=0.1, n_steps=3, metric=SoftAbs(1e6), integrator=ExplicitTao(10.0)),
            "x": HMC(step_size=500.0, n_steps=3),
        }
    )
    result = refhmc.sample(FUNNEL, kernel, draws=200, tune=0, chains=2, random_seed=2, **QUIET)
    assert not result.attributes["exact"]
    assert any("approximate" in text for text in result.warnings)
    assert any(text.startswith("Block x: Chain 0 is stuck: it stood still") for text in result.warnings)


def test_a_diagonal_metric_from_gradients_and_arviz():
    kernel = Gibbs({"v": NUTS(metric=Diagonal(learn_from="draws and gradients")), "x": HMC()})
    result = refhmc.sample(FUNNEL, kernel, draws=50, tune=100, chains=2, random_seed=2, progressbar=False)
    assert {"v", "x"} <= set(result["posterior"].data_vars)
    assert "step_size_v" in result["sample_stats"].data_vars


# --------------------------------------------------------------------------------------- blocks that jump


def test_a_block_that_jumps_has_the_joint_models_change():
    animals = refhmc.models.ClosedPopulation()
    q = np.array(animals.initial, dtype=float)
    J = animals.discontinuous.tolist()
    part = refhmc.conditional(animals, J, q)
    assert part.discontinuous.tolist() == [0]
    for new in (q[J[0]] - 0.3, q[J[0]] + 0.8, q[J[0]] + 40.0):
        assert part.log_density_change(q[J], 0, new) == animals.log_density_change(q, J[0], new)
    smooth = [i for i in range(animals.dim) if i not in J]
    assert len(refhmc.conditional(animals, smooth, q).discontinuous) == 0


def test_discontinuous_hmc_alternating_with_nuts_finds_the_exact_posterior():
    animals = refhmc.models.ClosedPopulation()
    J = tuple(animals.discontinuous.tolist())
    smooth = tuple(i for i in range(animals.dim) if i not in J)
    kernel = Gibbs({smooth: NUTS(), J: refhmc.DHMC(n_steps=10)})
    result = refhmc.sample(animals, kernel, draws=4000, tune=500, chains=4, random_seed=5, **QUIET)
    assert not [text for text in result.warnings if "jumps" in text]
    z = z_scores(animals, result)
    assert np.abs(z).max() < scipy.stats.norm.isf(FAMILY_ALPHA / N_COMPARISONS / 2), z


def test_a_block_that_jumps_under_a_smooth_kernel_is_warned_of():
    animals = refhmc.models.ClosedPopulation()
    J = tuple(animals.discontinuous.tolist())
    smooth = tuple(i for i in range(animals.dim) if i not in J)
    with pytest.warns(refhmc.errors.DiscontinuityWarning, match="NUTS"):
        kernel = Gibbs({smooth: NUTS(step_size=0.1), J: NUTS(step_size=0.1)})
        refhmc.sample(animals, kernel, draws=2, tune=0, chains=1, random_seed=1, **QUIET)

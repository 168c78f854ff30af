"""``refhmc.sample`` with ``backend="arrays"`` has the guarantees of the compiled core."""

import types
import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import refhmc
from refhmc import DHMC, HMC, NUTS, Gibbs
from refhmc.batch.draw import NOT_OF_A_DRAW, TRANSITIONS
from refhmc.errors import (
    DiscontinuityWarning,
    EvaluationError,
    GradientError,
    InitError,
    MetricError,
    ModelError,
    PrecisionWarning,
    SamplingError,
    SamplingWarning,
    ShapeError,
)
from refhmc.metrics import Dense, Fisher, SoftAbs
from tests.helpers.models import FEW_CALLS
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import representatives, swept

GAUSSIAN = refhmc.models.Gaussian([1.0, -2.0], [[1.0, 0.6], [0.6, 2.0]])
FUNNEL = refhmc.models.Funnel(2)
FIXED = HMC(step_size=0.3, n_steps=3, metric=Dense(np.eye(2)))
MANY = {"backend": "arrays", "random_seed": 5}
SHORT = {**MANY, "draws": 10, "tune": 12, "chains": 3}


def log_density(q, data):
    return -0.5 * np.sum(q * q)


def gradient(q, data):
    return -q


def squares(q):
    """Return -q'q / 2 by a list, which Numba does not compile for unknown data."""
    return -0.5 * sum(float(x) ** 2 for x in q)


def in_python(f, **options):
    """Return a two-dimensional model with the log density f(q) and the gradient of a standard normal, run as Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = refhmc.Model(2, lambda q, data: f(q), lambda q, data: -q, data={"not": object()}, **options)
        assert model.runs_as_python is not None
    return model


# ------------------------------------------------------------------------------------- what comes back


KERNELS = {
    "hmc": HMC(n_steps=3),
    "hmc, jitter": HMC(step_jitter=0.3, n_steps=3),
    "hmc, riemannian": HMC(n_steps=2, metric=SoftAbs(1e6)),
    "nuts": NUTS(max_treedepth=4),
    "nuts, riemannian": NUTS(max_treedepth=2, metric=Fisher()),
}


@pytest.mark.parametrize("name", representatives(KERNELS, ["hmc", "nuts"]))
def test_groups_names_shapes_and_dtypes_are_the_compiled_cores(name, sample):
    kernel, options = KERNELS[name], {"save_warmup": True}
    here = sample(FUNNEL, kernel, **SHORT, **options)
    there = sample(FUNNEL, kernel, **{**SHORT, "backend": "numba"}, **options)
    assert list(here.groups) == list(there.groups)
    for group, values in there.groups.items():
        mine = {k: (v.shape, v.dtype) for k, v in here.groups[group].items()}
        wanted = {k: (v.shape, v.dtype) for k, v in values.items() if k not in NOT_OF_A_DRAW}
        assert mine == wanted, group
    assert set(there.attributes) ^ set(here.attributes) == {"compilation_time"}  # docs/statistics.md says why
    assert there.attributes["backend"] == "numba"
    assert there.attributes["shared_step_size"] is False  # each chain adapts its own
    for key in here.attributes:
        assert type(here.attributes[key]) is type(there.attributes[key]), key
    assert here.attributes["draws_per_chain"] == [10] * 3
    assert here.attributes["n_gradient_evaluations"] > 0


def test_arviz():
    for options in ({}, {"save_warmup": True}):
        idata = refhmc.sample(GAUSSIAN, FIXED, progressbar=False, **SHORT, **options)
        assert idata.posterior.sizes["chain"] == 3
        assert idata.posterior.sizes["draw"] == 10
        assert idata.posterior.attrs["backend"] == "arrays"
        assert hasattr(idata, "warmup_posterior") == bool(options)


@pytest.mark.parametrize("name", ["hmc, jitter", swept("nuts")])
def test_the_same_seed_makes_the_same_draws(name, sample):
    a, b = (sample(FUNNEL, KERNELS[name], **SHORT, progressbar=silent) for silent in (False, lambda report: None))
    c = sample(FUNNEL, KERNELS[name], **{**SHORT, "random_seed": 6})
    assert np.array_equal(a.draws, b.draws)
    assert not np.array_equal(a.draws, c.draws)
    generators = [np.random.default_rng(3) for _ in range(2)]
    x, y = (sample(FUNNEL, KERNELS[name], **{**SHORT, "random_seed": each}) for each in generators)
    assert np.array_equal(x.draws, y.draws)
    assert generators[0].bit_generator.state != np.random.default_rng(3).bit_generator.state


@pytest.mark.parametrize("kernel", [HMC(step_size=0.3, n_steps=4, length_jitter=0.8), swept(NUTS(step_size=0.4))])
def test_a_chain_does_not_depend_on_the_others(kernel, sample):
    """Without warm-up chains share nothing, so that they are equal bit for bit, random starts included."""
    runs = [sample(FUNNEL, kernel, draws=8, tune=0, chains=n, **MANY) for n in (1, 3, 17)]
    for run in runs[:2]:
        n = len(run.draws)
        assert np.array_equal(run.draws, runs[2].draws[:n])
        for name, values in run.sample_stats.items():
            assert np.array_equal(values, runs[2].sample_stats[name][:n]), name


def test_step_sizes_shared_and_ones_own(sample):
    shared, own = (sample(FUNNEL, HMC(n_steps=3), **SHORT, shared_step_size=each) for each in (True, False))
    sizes = [run.sample_stats["step_size"] for run in (shared, own)]
    assert len(np.unique(sizes[0])) == 1
    assert [len(np.unique(row)) for row in sizes[1]] == [1] * 3
    assert len(np.unique(sizes[1])) == 3


def test_without_warm_up_a_first_step_size_is_searched(sample):
    """The search multiplies or divides by 2, starting from 1, until the acceptance of one step crosses 0.8."""
    run = sample(
        refhmc.models.Gaussian(np.zeros(3), 1e-4 * np.eye(3)), HMC(n_steps=3), draws=4, tune=0, chains=5, **MANY
    )
    assert np.all(run.sample_stats["step_size"] < 0.05)
    assert np.all(np.log2(run.sample_stats["step_size"]) % 1 == 0)


@pytest.mark.parametrize("kernel", [HMC(n_steps=2), NUTS(max_treedepth=2)])
def test_no_draws_and_no_warm_up(kernel, sample):
    for draws, tune in ((0, 0), (0, 6), (4, 0), (1, 1)):
        run = sample(FUNNEL, kernel, **{**SHORT, "draws": draws, "tune": tune}, save_warmup=True)
        assert run.draws.shape == (3, draws, 3)
        assert run.groups["warmup_unconstrained_posterior"]["q"].shape == (3, tune, 3)
        assert run.attributes["draws_per_chain"] == [draws] * 3
    refhmc.sample(FUNNEL, kernel, progressbar=False, **{**SHORT, "draws": 0})


# ---------------------------------------------------------------------------------------------- ending


def test_ctrl_c_after_warm_up(sample):
    """Chains have different lengths, so that groups hold the largest rectangle and ``ragged`` every draw."""
    kernel, many = NUTS(step_size=0.3), {**MANY, "draws": 4000, "tune": 0, "chains": 40}
    with pytest.warns(SamplingWarning):
        run = sample(FUNNEL, kernel, **many, progressbar=stop_after(1))
    lengths = run.attributes["draws_per_chain"]
    assert run.attributes["stopped_by"] == "interrupt"
    assert len(set(lengths)) > 1
    chosen, n = run.attributes["chains"], run.draws.shape[1]
    assert run.draws.shape[0] == len(chosen)
    assert n == min(lengths[k] for k in chosen)
    assert len(chosen) * n == max((np.array(lengths) >= m).sum() * m for m in lengths)
    for row, k in enumerate(chosen):
        assert np.array_equal(run.draws[row], run.ragged[k][:n])
    assert [len(run.ragged[k]) for k in range(40)] == lengths
    whole = sample(FUNNEL, kernel, **{**many, "draws": n})
    assert np.array_equal(whole.draws[chosen], run.draws)
    left_out = [text for text in run.warnings if "left out" in text]
    assert len(left_out) == (len(chosen) < 40)
    assert all(len(text) < 1000 for text in run.warnings)


def test_a_progress_callback_that_raises(sample):
    def callback(report):
        if report.draws_done.max() >= 3:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        sample(GAUSSIAN, FIXED, **{**SHORT, "draws": 100_000, "tune": 0}, progressbar=callback)
    assert raised.value.partial.draws.shape[1] >= 3
    assert raised.value.partial.posterior.keys() == {"x"}


def test_a_progress_callback_receives_reports():
    reports = []
    refhmc.sample(GAUSSIAN, FIXED, **SHORT, raw=True, progressbar=reports.append)
    assert reports[-1].finished
    assert reports[-1].draws_done.tolist() == [22] * 3
    assert (reports[-1].draws_total, reports[-1].tune) == (22, 12)
    assert reports[-1].gradients.sum() > 0


# ---------------------------------------------------------------------------------------------- starts


def test_starts_that_are_given(sample):
    one = np.array([0.5, -0.5])
    for given in (one, np.tile(one, (3, 1)), one.tolist()):
        run = sample(GAUSSIAN, FIXED, **{**SHORT, "tune": 0}, initvals=given)
        assert np.array_equal(run.draws, sample(GAUSSIAN, FIXED, **{**SHORT, "tune": 0}, initvals=one).draws)
    starts = np.arange(6.0).reshape(3, 2)
    before = starts.copy()
    sample(GAUSSIAN, FIXED, **SHORT, initvals=starts)
    assert np.array_equal(starts, before)


def test_a_start_outside_the_support(sample):
    model = in_python(lambda q: squares(q) if q[0] < 2 else -np.inf)
    starts = np.zeros((4, 2))
    starts[2, 0] = 3.0
    with pytest.raises(InitError, match=r"log density.*chain 2.*-inf.*outside the support"):
        sample(model, FIXED, **{**SHORT, "chains": 4}, initvals=starts)
    starts[1, 1] = np.nan
    with pytest.raises(InitError, match=r"[Cc]hain 1.*q\[1\].*nan"):
        sample(model, FIXED, **{**SHORT, "chains": 4}, initvals=starts)


def test_a_start_without_a_metric(sample):
    model = refhmc.Model(1, lambda q, d: -(q[0] ** 4), lambda q, d: -4 * q**3, hessian=lambda q, d: np.diag(-12 * q**2),
                         hessian_contraction=lambda q, d, M: -24 * q * M[0], fisher=lambda q, d: np.array([[q[0]]]),
                         fisher_contraction=lambda q, d, M: M[0], in_python=FEW_CALLS)  # fmt: skip
    with pytest.raises(MetricError, match="[Cc]hain 1"):
        sample(model, HMC(n_steps=2, metric=Fisher()), **SHORT, initvals=[[1.0], [-1.0], [2.0]], preflight=False)


def test_random_starts_are_tried_again(sample):
    """The density is positive on a quarter of the square, so that 40 chains need several tries."""
    model = in_python(lambda q: squares(q) if min(q) > 0 else -np.inf)
    run = sample(model, HMC(step_size=1e-3, n_steps=1), draws=1, tune=0, chains=40, **MANY, preflight=False)
    assert np.all(run.draws > -0.02)
    nowhere = in_python(lambda q: -np.inf)
    with pytest.raises(InitError, match=r"100 .*3 of 3 chains.*chain 0"):
        sample(nowhere, FIXED, **SHORT)


def test_starts_of_the_model(sample):
    """Each chain draws starts from its own generator until the density is positive."""

    def initial(rng):
        return rng.uniform(-1, 1, 2)

    model = in_python(lambda q: squares(q) if q[0] > 0 else -np.inf, initial=initial)
    kernel = HMC(step_size=1e-6, n_steps=1)
    few, more = (sample(model, kernel, draws=1, tune=0, chains=n, **MANY, preflight=False).draws for n in (4, 30))
    assert np.array_equal(few, more[:4])
    assert len(np.unique(more)) == more.size
    assert np.all(more[:, 0, 0] > -1e-4)


# --------------------------------------------------------------------------------------------- refusals


def test_kernels_and_options_without_array_implementation_are_rejected(sample):
    others = {"dhmc": DHMC(), "sgld": refhmc.SGLD(step_size=0.1) if hasattr(refhmc, "SGLD") else None}
    for name, kernel in others.items():
        if kernel is not None and name not in TRANSITIONS:
            with pytest.raises(TypeError, match=type(kernel).__name__):
                sample(GAUSSIAN, kernel, **SHORT)
    with pytest.raises(TypeError, match="Gibbs"):
        sample(GAUSSIAN, Gibbs({("x[0]",): HMC(n_steps=2), ("x[1]",): NUTS()}), **SHORT)
    executor = types.SimpleNamespace(submit=print)
    for name, value in {"cores": 2, "executor": executor, "checkpoint": "folder"}.items():
        with pytest.raises(ValueError, match=f"{name}.*backend='numba'.*'arrays'"):
            sample(GAUSSIAN, FIXED, **SHORT, **{name: value})
    for backend, name in {("arrays", "fuse"), ("numba", "streamed"), ("numba", "shared_step_size")}:
        with pytest.raises(ValueError, match=f"{name}.*'{backend}'"):
            sample(GAUSSIAN, FIXED, **{**SHORT, "backend": backend}, **{name: True})
    with pytest.raises(ValueError, match="backend must"):
        sample(GAUSSIAN, FIXED, **{**SHORT, "backend": "jax"})
    with pytest.raises(TypeError, match="shared_step_size must .*got 'no'"):
        sample(GAUSSIAN, FIXED, **SHORT, shared_step_size="no")


def test_memory_is_checked_before_it_is_allocated(sample, monkeypatch):
    for options in ({"draws": 10**12}, {"chains": 10**13, "draws": 0}, {"tune": 10**12, "save_warmup": True}):
        with pytest.raises(MemoryError, match="bytes"):
            sample(GAUSSIAN, NUTS(), **{**SHORT, **options})
    with pytest.raises(MemoryError, match="bytes"):
        sample(GAUSSIAN, NUTS(), **{**SHORT, "draws": np.int64(2**62)})
    wide = refhmc.models.Gaussian(np.zeros(300), np.eye(300))
    many = {**SHORT, "draws": 0, "chains": 10**6, "backend": refhmc.Arrays(chains_at_once=10**6)}
    with pytest.raises(MemoryError, match="chains_at_once.*fewer chains"):  # 300 x 300 matrices of a million chains
        sample(wide, HMC(metric=Fisher()), **many)


# ------------------------------------------------------------------------------------------ users' models


def test_users_functions(sample):
    """Functions compiled by Numba or run as Python give the same draws, and for a normal those of its array implementation."""
    compiled = refhmc.Model(2, log_density, gradient)
    kernel = HMC(step_size=0.4, n_steps=3)
    runs = [sample(model, kernel, **{**SHORT, "tune": 0}).draws for model in (compiled, in_python(squares))]
    runs.append(sample(refhmc.models.Gaussian(np.zeros(2), np.eye(2)), kernel, **{**SHORT, "tune": 0}).draws)
    assert np.allclose(runs[0], runs[1], rtol=0, atol=1e-13 * np.abs(runs[0]).max())
    assert np.allclose(runs[0], runs[2], rtol=0, atol=1e-13 * np.abs(runs[0]).max())


@pytest.mark.parametrize("kernel", [FIXED, swept(NUTS(step_size=0.3, max_treedepth=3))])
def test_a_function_that_raises_in_mid_run(kernel, sample):
    def f(q):
        calls.append(0)
        if len(calls) > 1500:
            raise RuntimeError("of mine")
        return squares(q)

    calls = []
    with pytest.raises(SamplingError, match=r"RuntimeError: of mine \(last position q = \[") as raised:
        sample(in_python(f), kernel, **{**SHORT, "draws": 10_000, "tune": 0})
    partial = raised.value.partial
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert partial.draws.shape[1] > 5
    assert partial.posterior["q"].shape == partial.draws.shape
    assert partial.attributes["n_gradient_evaluations"] > 100


@pytest.mark.sweep
def test_failed_evaluations_are_reported(sample):
    """Failed evaluations count as density zero: the mean is that of a truncated normal, E q[0] = -0.138 for q[0] < 1.5.

    The bound of 5 standard errors has a false-alarm rate of 3e-7."""

    def f(q):
        if q[0] > 1.5:
            raise EvaluationError("q[0] is too large")
        return squares(q)

    with pytest.warns(SamplingWarning, match=r"could not be evaluated at \d+ positions.*q = .*q\[0\] is too large"):
        run = sample(
            in_python(f), HMC(step_size=0.5, n_steps=3), **{**SHORT, "draws": 400, "tune": 0}, initvals=[0.0, 0.0]
        )
    (failure,) = run.attributes["evaluation_failures"]
    assert failure["evaluations"] > 10
    assert failure["first_position"][0] > 1.5
    assert np.all(run.draws[..., 0] <= 1.5)
    assert run.sample_stats["diverging"].any()
    x = run.draws[..., 0]
    ess = refhmc.diagnostics.ess(run.draws[:, :, :1])[0]
    assert abs(x.mean() + 0.13879) < 5 * x.std() / np.sqrt(ess)


@pytest.mark.sweep
def test_a_density_that_jumps(sample):
    step = refhmc.Model(2, lambda q, d: -0.5 * np.sum(q * q) - (3.0 if q[0] > 0.3 else 0.0), lambda q, d: -q)
    with pytest.warns(DiscontinuityWarning, match="jumps"):
        run = sample(step, HMC(step_size=0.3, n_steps=4), **{**SHORT, "draws": 100, "tune": 0})
    assert "jumps" in run.warnings[0]
    declared = refhmc.Model(2, lambda q, d: -0.5 * np.sum(q * q) - (3.0 if q[0] > 0.3 else 0.0), lambda q, d: -q,
                            discontinuous=[0])  # fmt: skip
    with pytest.warns(DiscontinuityWarning, match=r"jumps in q\[0\]"):
        sample(declared, HMC(step_size=0.3, n_steps=4), **{**SHORT, "tune": 0})


@pytest.mark.sweep
def test_five_thousand_chains(sample):
    """Warnings stay short, however many chains they are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [
            sample(FUNNEL, HMC(step_size=30.0, n_steps=2), draws=6, tune=0, chains=5000, **MANY),
            sample(FUNNEL, NUTS(step_size=0.01, max_treedepth=1), draws=3, tune=0, chains=5000, **MANY),
            sample(FUNNEL, NUTS(step_size=0.4), draws=50, tune=0, chains=5000, **MANY, progressbar=stop_after(1)),
            sample(GAUSSIAN, HMC(n_steps=2), draws=3, tune=20, chains=5000, **MANY),
        ]
    for run in cases:
        assert all(len(text) < 1500 for text in run.warnings), max(run.warnings, key=len)
    assert cases[0].warnings
    assert len(set(cases[2].attributes["draws_per_chain"])) > 1


# ------------------------------------------------------------------------------------------ texts on arrays


class Text(refhmc.array_api.ArrayImplementation):
    """Array implementation of a standard normal in two dimensions."""

    dim = 2

    def value_and_gradient(self, q):
        return -0.5 * (q**2).sum(axis=-1), -q


def with_text(text, **options):
    return refhmc.Model(2, log_density, gradient, on_arrays=lambda xp: text(), **options)


def test_a_text_of_ones_own(sample):
    run = sample(with_text(Text), FIXED, **{**SHORT, "tune": 0})
    there = sample(refhmc.Model(2, log_density, gradient), FIXED, **{**SHORT, "tune": 0})
    assert np.allclose(run.draws, there.draws, rtol=0, atol=1e-13 * np.abs(run.draws).max())


def broken(**methods):
    return type("Broken", (Text,), methods)


def in_place(self, q):
    q *= 1.0 + 1e-9
    return Text.value_and_gradient(self, q)


def of_all(self, q):
    """Return a log density that is summed over chains."""
    return -0.5 * (q**2).sum() + 0 * q[:, 0], -q


KEPT = np.zeros((3, 2))


def in_one_buffer(self, q):
    """Return the gradient in an array that is kept and reused."""
    out = KEPT if q.shape == KEPT.shape else np.empty_like(q)
    np.negative(q, out=out)
    return -0.5 * (q**2).sum(axis=-1), out


@pytest.mark.parametrize(
    ("method", "error", "words"),
    [
        (lambda self, q: (-0.4 * (q**2).sum(axis=-1), -q), GradientError, "log density.* array implementation"),
        (lambda self, q: (-0.5 * (q**2).sum(axis=-1), q), GradientError, "gradient.* array implementation"),
        (of_all, GradientError, "log density.* array implementation"),
        (lambda self, q: (-0.5 * (q**2), -q), ShapeError, r"log density .*\(3,\).*got.*\(3, 2\)"),
        (lambda self, q: (-0.5 * (q**2).sum(axis=-1), -q[:, :1]), ShapeError, r"\(3, 2\).*got.*\(3, 1\)"),
        (lambda self, q: (-0.5 * (q**2).sum(axis=-1)[:, None], -q), ShapeError, r"\(3,\).*got.*\(3, 1\)"),
        (lambda self, q: (np.nan * q[:, 0], -q), GradientError, "[Cc]hain 0.* array implementation .*finite"),
        (in_place, ModelError, "array implementation .*q.* in place"),
        (
            lambda self, q: ((-0.5 * (q**2).sum(axis=-1)).tolist(), -q),
            ModelError,
            "log density .*got list",
        ),
        (lambda self, q: (-0.5 * (q**2).sum(axis=-1), -q + 0j), ModelError, "gradient .*complex128"),
        (lambda self, q: -q[:, 0], ModelError, "log density and the gradient.*array"),
    ],
)
def test_a_text_that_is_wrong(method, error, words, sample):
    with pytest.raises(error, match=words):
        sample(with_text(broken(value_and_gradient=method)), FIXED, **SHORT, initvals=[0.3, -0.4])
    if error is not GradientError or "finite" in words:  # values are compared in the pre-flight only
        with pytest.raises(error, match=words):
            sample(with_text(broken(value_and_gradient=method)), FIXED, **SHORT, initvals=[0.3, -0.4], preflight=False)


def far_down(q, data):
    return log_density(q, data) - 2e5


def single(x):
    return np.asarray(x, dtype=np.float32)


def far_down_on_arrays(q):
    return -0.5 * (q**2).sum(axis=-1) - 2e5, -q


def test_a_constant_hides_no_wrong_log_density(sample):
    """The constant is 2e5; one millionth of it is larger than the difference."""
    wrong = broken(value_and_gradient=lambda self, q: (-0.51 * (q**2).sum(axis=-1) - 2e5, -q))
    for text, raises in ((broken(value_and_gradient=lambda self, q: far_down_on_arrays(q)), False), (wrong, True)):
        model = refhmc.Model(2, far_down, gradient, on_arrays=lambda xp, text=text: text())
        expected = pytest.raises(GradientError, match="log density.*between two starts") if raises else nullcontext()
        with expected:
            sample(model, FIXED, **SHORT)


@pytest.mark.parametrize(
    "values",
    [
        lambda L, g: (single(L), g),
        lambda L, g: (L, single(g)),
        swept(lambda L, g: (L, single(g).astype(float))),
    ],
)
def test_a_text_of_single_precision_is_a_warning(values):
    text = broken(value_and_gradient=lambda self, q: values(*far_down_on_arrays(q)))
    model = refhmc.Model(2, far_down, gradient, on_arrays=lambda xp: text())
    with pytest.warns(PrecisionWarning, match="array implementation of 'model'.*single precision"):
        run = refhmc.sample(model, FIXED, **SHORT, raw=True, progressbar=False)
    assert any("single precision" in words for words in run.warnings)


@pytest.mark.sweep
def test_a_matrix_of_a_text_that_is_wrong(sample):
    def model(fisher):
        text = broken(fisher=fisher, fisher_contraction=lambda self, q, M: 0 * q)
        return with_text(text, fisher=lambda q, d: np.eye(2), fisher_contraction=lambda q, d, M: np.zeros(2))

    kernel = HMC(n_steps=2, step_size=0.3, metric=Fisher())
    right, wrong = (lambda self, q, s=s: s * np.broadcast_to(np.eye(2), (*q.shape, 2)) for s in (1.0, 2.0))
    sample(model(right), kernel, **SHORT)
    with pytest.raises(GradientError, match="fisher.* array implementation"):
        sample(model(wrong), kernel, **SHORT)


def test_a_text_may_use_one_buffer(sample):
    """Its return values are copied before chains write into them."""
    texts = [broken(value_and_gradient=f) for f in (in_one_buffer, Text.value_and_gradient)]
    a, b = (sample(with_text(text), FIXED, **{**SHORT, "tune": 0}) for text in texts)
    assert np.array_equal(a.draws, b.draws)


# ---------------------------------------------------------------------------------------- known truths


@pytest.mark.parametrize("kernel", [HMC(length_jitter=0.5), swept(NUTS(max_treedepth=4))])
def test_means_of_a_gaussian(kernel, sample):
    """Means and second moments agree within 5.5 standard errors: false-alarm rate 2e-7 per kernel."""
    run = sample(GAUSSIAN, kernel, draws=60, tune=60, chains=60, **MANY)
    x = run.draws
    both = np.concatenate([x, x**2, x[..., :1] * x[..., 1:]], axis=2)
    truth = [1.0, -2.0, 2.0, 6.0, -2.0 + 0.6]
    error = both.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(both))
    assert np.all(np.abs(both.mean(axis=(0, 1)) - truth) < 5.5 * error)


@pytest.mark.sweep
@pytest.mark.parametrize("shared", [True, swept(False)])
def test_means_of_eight_schools(shared, sample):
    """Ten means agree with posteriordb's draws within 5 standard errors, theirs included: false-alarm rate 6e-6."""
    model, kernel = refhmc.models.EightSchools(), NUTS(max_treedepth=5, target_accept=0.9)
    run = sample(model, kernel, draws=50, tune=100, chains=50, **MANY, shared_step_size=shared)
    of_theta, *others = (run.posterior[name] for name in ("theta", "mu", "tau"))
    means = np.concatenate([of_theta, *(x[..., None] for x in others)], axis=2)
    error = means.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(means))
    of_reference = means.std(axis=(0, 1)) / np.sqrt(1e4)  # 10,000 independent draws
    assert np.all(np.abs(means.mean(axis=(0, 1)) - model.reference.mean) < 5 * np.hypot(error, of_reference))


@pytest.mark.sweep
def test_means_of_a_logistic_regression(sample):
    """Against quadrature on a grid, within 5 standard errors (two means at most: false alarm 1.2e-6)."""
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(25, 1)), rng.integers(0, 2, 25)
    model = refhmc.models.LogisticRegression(X, y)
    d = model.dim
    t = np.linspace(-6, 6, 61)
    grid = np.stack(np.meshgrid(*[t] * d, indexing="ij"), axis=-1).reshape(-1, d)
    L = np.array([model.log_density(q) for q in grid])
    weight = np.exp(L - L.max())
    truth = weight @ grid / weight.sum()
    run = sample(model, NUTS(max_treedepth=4), draws=50, tune=80, chains=40, **MANY)
    error = run.draws.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(run.draws))
    assert np.all(np.abs(run.draws.mean(axis=(0, 1)) - truth) < 5 * error)

"""Fused kernels, compiled for one model, integrator and metric, make the same draws as those called by pointer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from numba import types as nb
from numba.core import imputils
from numba.core.typing import templates
from numba.extending import lower_builtin, overload, overload_attribute, overload_method

import refhmc
from refhmc.compile.compile_cache import cache_directory
from refhmc.compile.fingerprint import sha256
from refhmc.compile.identity import identity_of
from refhmc.errors import CheckpointError, ModelError, SamplingError, ShapeError
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog, ImplicitMidpoint, Leapfrog, Yoshida
from refhmc.metrics import Dense, Fisher, Identity, OuterProductSoftAbs, SoftAbs
from refhmc.models import Banana, ChangePoint, Funnel, Gaussian, LogisticRegression
from refhmc.sampling.chains.chain import make_plan
from tests.helpers.sweeps import swept

numba_only = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
UNCHECKED = ImplicitMidpoint(reversibility_check=False)
UNCHECKED_LEAPFROG = GeneralizedLeapfrog(reversibility_check=False)
SILENT = {"raw": True, "progressbar": False, "chains": 1, "random_seed": 5}


def cauchy_log_density(q, data):
    return -np.sum(np.log1p(((q - data[0]) / data[1]) ** 2))


def cauchy_gradient(q, data):
    z = (q - data[0]) / data[1]
    return -2 * z / (1 + z * z) / data[1]


def cauchy(scale=2.0, log_density=cauchy_log_density):
    """A user's model."""
    data = (np.array([0.5, -1.0]), float(scale))
    return refhmc.Model(dim=2, log_density=log_density, gradient=cauchy_gradient, data=data)


def draws(model, kernel, fuse, n=200, tune=0):
    return refhmc.sample(model, kernel, draws=n, tune=tune, backend=refhmc.Numba(fuse=fuse), **SILENT)


def regression():
    rng = np.random.default_rng(1)
    return LogisticRegression(rng.standard_normal((40, 3)), (rng.random(40) < 0.5).astype(float))


# Where no sum may be reordered, and where some may: a tolerance on the first draw, before rounding has grown.
SAME, LAST_BITS = 0.0, 1e-11
CASES = {
    "a user's model, with warm-up": (cauchy, lambda: refhmc.HMC(n_steps=5), SAME),
}
MORE = {
    "DHMC": (ChangePoint, lambda: refhmc.DHMC(), SAME),
    "NUTS": (cauchy, lambda: refhmc.NUTS(step_size=0.5), SAME),
    "checked midpoint on Fisher": (Banana, lambda: refhmc.HMC(step_size=0.1, n_steps=8, metric=Fisher()), SAME),
    "NUTS on a dense metric": (regression, lambda: refhmc.NUTS(metric=Dense()), LAST_BITS),
    "a composition": (
        lambda: Gaussian(np.zeros(2), np.eye(2)),
        lambda: refhmc.HMC(step_size=0.3, n_steps=5, integrator=Yoshida(Leapfrog())),
        SAME,
    ),
    "generalised leapfrog": (
        Banana,
        lambda: refhmc.HMC(step_size=0.1, n_steps=8, metric=Fisher(), integrator=UNCHECKED_LEAPFROG),
        SAME,
    ),
    "explicit Tao": (
        Banana,
        lambda: refhmc.HMC(step_size=0.05, n_steps=8, metric=Fisher(), integrator=ExplicitTao(20.0)),
        SAME,
    ),
    "SoftAbs": (
        lambda: Funnel(2),
        lambda: refhmc.HMC(step_size=0.3, n_steps=5, metric=SoftAbs(1e6), integrator=UNCHECKED),
        LAST_BITS,
    ),
    "the outer product": (
        lambda: Funnel(3),
        lambda: refhmc.HMC(step_size=0.1, n_steps=5, metric=OuterProductSoftAbs(), integrator=UNCHECKED),
        LAST_BITS,
    ),
    "Gibbs": (
        Banana,
        lambda: refhmc.Gibbs({(0,): refhmc.HMC(step_size=0.3, n_steps=3), (1,): refhmc.NUTS(step_size=0.5)}),
        SAME,
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("case", [*CASES, *(pytest.param(name, marks=pytest.mark.sweep) for name in MORE)])
def test_fused_draws_are_those_by_pointer(case):
    model, kernel, tolerance = (CASES | MORE)[case]
    tune = 100 if case.startswith(("a user's", "DHMC")) else 0
    by_pointer, fused = (draws(model(), kernel(), how, tune=tune) for how in (False, True))
    assert not by_pointer.attributes["fused"]
    assert fused.attributes["fused"]
    if tolerance == SAME:
        np.testing.assert_array_equal(fused.draws, by_pointer.draws)
        for name, values in by_pointer.sample_stats.items():
            np.testing.assert_array_equal(fused.sample_stats[name], values, err_msg=name)
    else:
        scale = 1 + np.abs(by_pointer.draws[0, 0])
        assert np.all(np.abs(fused.draws[0, 0] - by_pointer.draws[0, 0]) <= tolerance * scale)


@pytest.mark.parametrize(("metric", "integrator"), [(Identity(), Leapfrog()), swept(Fisher(), ImplicitMidpoint())])
def test_a_fused_trajectory_is_that_by_pointer(metric, integrator):
    H, q, p = refhmc.Hamiltonian(Banana(), metric), np.array([0.3, 0.4]), np.array([1.0, -2.0])
    one, other = (refhmc.integrate(H, integrator, q, p, step_size=0.1, n_steps=20, fuse=how) for how in (False, True))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.sweep
def test_chains_in_an_executor_are_fused_too():
    with ThreadPoolExecutor(2) as pool:
        one, other = (
            refhmc.sample(
                cauchy(),
                refhmc.HMC(n_steps=5),
                draws=50,
                tune=50,
                backend=refhmc.Numba(fuse=True),
                executor=executor,
                **SILENT | {"chains": 2},
            )
            for executor in (None, pool)
        )
    np.testing.assert_array_equal(one.draws, other.draws)


# ------------------------------------------------------------------------------------------ kept between processes

PROGRAM = """
import importlib, json, sys
import refhmc
from refhmc.compile import compiled
sys.path.insert(0, {folder!r})
found = []
for name in {names!r}:
    result = refhmc.sample(importlib.import_module(name).model, refhmc.HMC(step_size=0.4, n_steps=4), draws=50, tune=0,
                           backend=refhmc.Numba(fuse=True), chains=1, random_seed=1, raw=True, progressbar=False)
    found.append(result.draws.tobytes().hex())
print("RESULT", json.dumps([[c.from_cache for c in compiled.log if "fused" in c.title], found]))
"""
THEIRS = """
import numba, numpy as np, refhmc
SCALE = {scale}
@numba.njit
def half(z):
    return -0.5 * SCALE * z
def log_density(q, data):
    return float(np.sum(half(q * q)))
def gradient(q, data):
    return 2.0 * half(q)
model = refhmc.Model(dim=2, log_density=log_density, gradient=gradient)
"""


def in_a_process(folder, *names):
    """Whether each model's kernel was in the cache, and the draws."""
    environment = os.environ | {"REFHMC_CACHE_DIR": str(cache_directory().parent), "PYTHONDONTWRITEBYTECODE": "1"}
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.format(folder=str(folder), names=names)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in answer.stdout.splitlines() if line.startswith("RESULT"))
    return json.loads(line.removeprefix("RESULT"))


@pytest.mark.sweep
@numba_only
def test_fused_code_is_kept_until_something_that_it_calls_changes(tmp_path):
    """A global that a callee reads is in the compiled code: with another value it is another function.

    The two are made by processes that do the same things, so that Numba gives both functions one number. A process that loads
    both must distinguish them, and still do so for the first after it has loaded the second.
    """
    odd = 1 + int(sha256(str(tmp_path))[:6], 16) / 2**24  # a value that nobody compiled before
    for name, scale in (("one", odd), ("other", odd + 0.5)):
        (tmp_path / f"{name}.py").write_text(THEIRS.format(scale=scale))
    (kept, [one]), (kept_other, [other]) = in_a_process(tmp_path, "one"), in_a_process(tmp_path, "other")
    assert kept == kept_other == [False]
    assert one != other
    assert in_a_process(tmp_path, "one", "other", "one") == [[True, True], [one, other, one]]


OVERLOADED = """
from numba.extending import overload
import numpy as np, refhmc
SCALE = {scale}
def half(z):
    return -0.5 * globals()["SCALE"] * z
@overload(half)
def compiled_half(z):
    return lambda z: -0.5 * {scale} * z
def log_density(q, data):
    return float(half(np.sum(q * q)))
def gradient(q, data):
    return 2.0 * half(q)
model = refhmc.Model(dim=2, log_density=log_density, gradient=gradient)
"""


@pytest.mark.sweep
@numba_only
def test_an_overload_that_was_edited_is_compiled_again(tmp_path):
    """No name in the log density leads to it, nor to the value that the Python function reads."""
    results = []
    for scale in (1.0, 2.0):
        (tmp_path / "overloaded.py").write_text(OVERLOADED.format(scale=scale))
        results.append(in_a_process(tmp_path, "overloaded"))
    assert [kept for kept, _ in results] == [[False], [False]]
    assert results[0][1] != results[1][1]


@pytest.fixture
def numbas_registries():
    """Restore Numba's registries after the test."""
    typed, lowered = templates.builtin_registry, imputils.builtin_registry
    lists = [typed.functions, typed.attributes, typed.globals, lowered.functions]
    lengths = list(map(len, lists))
    yield
    for each, n in zip(lists, lengths, strict=True):
        del each[n:]


def stand_in(x):
    raise NotImplementedError


@pytest.mark.parametrize(
    "how",
    [
        overload(stand_in),
        overload_method(nb.Array, "half"),
        overload_attribute(nb.Array, "half"),
        lower_builtin(stand_in, nb.float64),
    ],
    ids=["overload", "method", "attribute", "lowering"],
)
@numba_only
def test_what_numba_is_told_by_the_users_code_is_not_kept(how, numbas_registries):
    assert identity_of((cauchy_gradient,)) is not None
    how(lambda x: lambda x: 0.5 * x)
    assert identity_of((cauchy_gradient,)) is None
    assert identity_of((Banana().core.tuple[1],)) is not None


def test_what_cannot_be_looked_into_is_not_kept():
    class Opaque:
        def __call__(self):
            return 1.0

        def __reduce__(self):
            raise TypeError("no")

    opaque = Opaque()

    def text(x):
        return x if opaque is not None else -x

    assert identity_of((text,)) is None
    assert identity_of((cauchy_gradient,)) is not None


# ------------------------------------------------------------------------------------------ refused, carried, compared


def test_a_model_that_runs_as_python_is_refused():
    model = refhmc.Model(
        dim=2, log_density=lambda q, data: -float(q @ q), gradient=lambda q, data: -2 * q, in_python="wanted"
    )
    if numba.config.DISABLE_JIT:
        assert draws(model, refhmc.HMC(step_size=0.3, n_steps=2), True, n=3).draws.shape == (1, 3, 2)
    else:
        for each in (model, refhmc.models.SplitModel([model, model])):
            with pytest.raises(ModelError, match="fuse.*Python.*wanted"):
                draws(each, refhmc.HMC(step_size=0.3, n_steps=2), True)


class Misshapen(Fisher):
    """Its rows are one entry too long."""

    def __init__(self, which):
        self.__dict__["which"] = which

    def stacks(self, model, leapfrog):
        stacks = list(super().stacks(model, leapfrog))
        shape = stacks[self.which].shape
        stacks[self.which] = np.zeros((*shape[:-1], shape[-1] + 1))
        return tuple(stacks)


@pytest.mark.parametrize(("which", "said"), [(0, r"vecs.*\(k, 2\).*\(\d+, 3\)"), (1, r"mats.*\(k, 2, 2\).* 2, 3\)")])
def test_a_metric_whose_rows_have_another_width_is_refused(which, said):
    """Fused code takes the width for granted."""
    kernel = refhmc.HMC(step_size=0.1, n_steps=2, metric=Misshapen(which))
    assert make_plan(Banana(), kernel, 0, fuse=False).blocks
    with pytest.raises(ShapeError, match=said):
        make_plan(Banana(), kernel, 0, fuse=True)


def far_out(q, data):
    if q[0] > 3.0:
        raise ValueError("beyond what is tabulated")
    return -0.5 * np.sum(q * q)


@pytest.mark.sweep
def test_what_the_model_raises_is_carried_out_of_fused_code():
    model = refhmc.Model(dim=2, log_density=far_out, gradient=lambda q, data: -q)
    with pytest.raises(SamplingError, match="beyond what is tabulated") as raised:
        draws(model, refhmc.HMC(step_size=1.0, n_steps=3), True, n=5000)
    assert 0 < raised.value.partial.draws.shape[1] < 5000


@pytest.mark.sweep
def test_a_checkpoint_is_of_one_binding(tmp_path):
    """The last bits may differ."""
    kernel = refhmc.HMC(step_size=0.4, n_steps=4)
    refhmc.sample(cauchy(), kernel, draws=20, tune=0, checkpoint=tmp_path, **SILENT)
    with pytest.raises(CheckpointError, match="fuse.*True.*False"):
        refhmc.sample(
            cauchy(), kernel, draws=30, tune=0, checkpoint=tmp_path, backend=refhmc.Numba(fuse=True), **SILENT
        )

"""Stan models through BridgeStan, compared with a hand-written model.

``Stan`` has BridgeStan's interface (compared with the library if it is installed) and the densities of refhmc's centred
eight schools. With a Stan toolchain (the sources of BridgeStan in the folder ``BRIDGESTAN``, httpstan, and a C++ compiler), a
test also runs Stan's own code. It is compiled by the commands of ``docs/how_to/stan_programs.md``.
"""

from __future__ import annotations

import inspect
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import refhmc
from refhmc.errors import InitError, ShapeError

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how_to" / "stan_programs.md"
PROGRAM = """
data { int J; vector[J] y; vector[J] sigma; }
parameters { vector[J] theta; real mu; real<lower=0> tau; }
transformed parameters { matrix[2, 2] pairs = [[theta[1], theta[2]], [theta[3], theta[4]]]; }
model { mu ~ normal(0, 5); tau ~ cauchy(0, 5); theta ~ normal(mu, tau); y ~ normal(theta, sigma); }
"""
Y, SIGMA = [28.0, 8, -3, 7, -1, 1, 18, 12], [15.0, 10, 16, 11, 9, 11, 10, 18]
PAIRS = [(1, 1), (2, 1), (1, 2), (2, 2)]  # Stan goes down the columns
inside = threading.Lock()
ALONE = {"random_seed": 1, "raw": True, "progressbar": False}


class Stan:
    """A model for one thread, as BridgeStan's are by default: two simultaneous evaluations are an error."""

    made = "STAN_THREADS=false\nBRIDGESTAN_AD_HESSIAN=true"

    def __init__(self, model_lib, data=None, *, seed=1234, warn=True):
        self.lib_path, self.data, self.seed = str(model_lib), data or "", seed
        self.by_hand = refhmc.models.EightSchools(centered=True)

    def name(self):
        return "schools_model"

    def model_info(self):
        return self.made

    def param_unc_num(self):
        return 10

    def param_unc_names(self):
        return [*(f"theta.{j}" for j in range(1, 9)), "mu", "tau"]

    def param_names(self, *, include_tp=False, include_gq=False):
        return self.param_unc_names() + [f"pairs.{i}.{j}" for i, j in PAIRS] * include_tp

    def param_constrain(self, theta_unc, *, include_tp=False, include_gq=False, out=None, rng=None):
        q = theta_unc
        return np.concatenate([q[:9], np.exp(q[9:]), q[[0, 2, 1, 3]] if include_tp else []])

    def param_unconstrain(self, theta, *, out=None):
        if theta[9] < 0:
            raise RuntimeError("tau is negative")
        return np.append(theta[:9], np.log(theta[9]))

    def log_density(self, theta_unc, *, propto=True, jacobian=True):
        return self.log_density_gradient(theta_unc)[0]

    def log_density_gradient(self, theta_unc, *, propto=True, jacobian=True, out=None):
        assert inside.acquire(blocking=False)
        try:
            time.sleep(0)
            if theta_unc[9] > 8:
                raise RuntimeError("normal_lpdf: scale is too large")
            return self.by_hand.log_density(theta_unc), self.by_hand.gradient(theta_unc)
        finally:
            inside.release()

    def log_density_hessian(self, theta_unc, *, propto=True, jacobian=True, out_grad=None, out_hess=None):
        return *self.log_density_gradient(theta_unc), self.by_hand.hessian(theta_unc)


class ByDifferences(Stan):
    made = "STAN_THREADS=true\nBRIDGESTAN_AD_HESSIAN=false"

    def log_density_hessian(self, theta_unc, **options):
        noise = 1e-10 * np.random.default_rng(abs(hash(theta_unc.tobytes()))).uniform(-1, 1, (10, 10))
        return 0.0, 0.0, self.by_hand.hessian(theta_unc) * (1 + noise)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("stan") / "schools.so"
    path.write_bytes(b"compiled")
    return path


@pytest.fixture(scope="module")
def model(library):
    return refhmc.from_bridgestan(Stan(library, '{"J": 8}'))


def test_stub_has_the_interface_of_bridgestan():
    theirs = pytest.importorskip("bridgestan", reason="BridgeStan is not installed (extra stan)").StanModel
    for name, ours in inspect.getmembers(Stan, inspect.isfunction):
        wanted = inspect.signature(getattr(theirs, name)).parameters
        for each in inspect.signature(ours).parameters.values():
            assert wanted[each.name].kind == each.kind, (name, each)


def test_derivatives_are_those_by_hand(model):
    by_hand = refhmc.models.EightSchools(centered=True)
    for log_tau in (-4.0, 0.3, 5.0):
        rng = np.random.default_rng(1)
        q, M = np.append(rng.normal(0, 3, 9), log_tau), rng.standard_normal((10, 10))
        assert model.log_density(q) == by_hand.log_density(q)
        np.testing.assert_array_equal(model.gradient(q), by_hand.gradient(q))
        np.testing.assert_allclose(model.hessian(q), by_hand.hessian(q), rtol=1e-14)
        wanted = by_hand.hessian_contraction(q, M)
        np.testing.assert_allclose(model.hessian_contraction(q, M), wanted, rtol=0, atol=1e-8 * abs(wanted).max())
    assert model.approximate == {"hessian_contraction": "by differences of the Hessian, with relative error 3e-11"}


def test_hessian_by_differences_is_labelled_and_uses_wider_steps(library):
    made, by_hand = refhmc.from_bridgestan(ByDifferences(library)), refhmc.models.EightSchools(centered=True)
    assert set(made.approximate) == {"hessian_contraction", "hessian"}
    q, M = np.append(np.linspace(-3, 3, 9), 0.5), np.ones((10, 10))
    wanted = by_hand.hessian_contraction(q, M)
    np.testing.assert_allclose(made.hessian_contraction(q, M), wanted, rtol=0, atol=1e-5 * abs(wanted).max())


def test_names_values_and_inverse_transform(model):
    assert model.names == [*(f"theta[{j}]" for j in range(8)), "mu", "tau"]
    q = np.arange(20.0).reshape(2, 10) / 10
    values = model.constrain(q)
    assert {name: each.shape for name, each in values.items()} == {
        "theta": (2, 8),
        "mu": (2,),
        "tau": (2,),
        "pairs": (2, 2, 2),
    }
    np.testing.assert_array_equal(values["pairs"][0], [[0.0, 0.1], [0.2, 0.3]])
    own = {name: values[name][1] for name in ("theta", "mu", "tau")}
    np.testing.assert_allclose(model.unconstrain(own, "initvals"), q[1], rtol=1e-15)
    for given, error, words in (
        ({"mu": 1.0}, InitError, "finite values .*theta, tau"),
        ({**own, "eta": 1.0}, ShapeError, "theta, mu, tau.*'eta'"),
        ({**own, "theta": 1.0}, ShapeError, r"theta must have the shape \(8,\)"),
        ({**own, "tau": -1.0}, InitError, "tau is negative"),
    ):
        with pytest.raises(error, match=words):
            model.unconstrain(given, "initvals")


def test_another_process_and_another_library(model, library, tmp_path):
    again = pickle.loads(pickle.dumps(model))
    assert again.fingerprint() == model.fingerprint()
    assert again.approximate == model.approximate
    (tmp_path / "other.so").write_bytes(b"another library")
    for other in (Stan(tmp_path / "other.so", '{"J": 8}'), Stan(library, '{"J": 9}')):
        assert refhmc.from_bridgestan(other).fingerprint() != model.fingerprint()


def test_chains_take_turns_and_stan_errors_are_divergences(model):
    start = np.append(np.zeros(9), 7.9)
    kernel = refhmc.HMC(step_size=1.5, n_steps=3)
    result = refhmc.sample(model, kernel, draws=20, tune=0, chains=4, cores=4, initvals=start, **ALONE)
    (approximate,) = result.attributes["approximate_derivatives"]
    assert re.search("^hessian_contraction by differences of the Hessian.*3e-11$", approximate)
    assert result.sample_stats["diverging"].any()
    assert "Stan: normal_lpdf: scale is too large" in str(result.warnings)


def test_rmhmc_runs(model):
    kernel = refhmc.HMC(step_size=0.1, n_steps=3, metric=refhmc.metrics.SoftAbs(alpha=10.0))
    few = {"draws": 10, "tune": 0, "chains": 1, "initvals": np.append(np.zeros(9), 1.0)}
    by_stan, by_hand = (
        refhmc.sample(each, kernel, **few, **ALONE) for each in (model, refhmc.models.EightSchools(centered=True))
    )
    np.testing.assert_allclose(by_stan.draws, by_hand.draws, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def own_code(tmp_path_factory):
    """Stan's own eight schools, compiled as the page on Stan programs says."""
    bridgestan = pytest.importorskip("bridgestan", reason="BridgeStan is not installed (extra stan)")
    pytest.importorskip("httpstan", reason="httpstan, which has Stan's compiler and headers, is not installed")
    if "BRIDGESTAN" not in os.environ or not shutil.which("g++"):
        pytest.skip("no Stan toolchain: BRIDGESTAN names the folder of BridgeStan's sources, and g++ is needed")
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "model.stan").write_text(PROGRAM, encoding="utf-8")
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    paths = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(["bash", "-ec", commands], cwd=folder, env={**os.environ, "PATH": paths}, check=True)
    return bridgestan.StanModel(str(folder / "model.so"), json.dumps({"J": 8, "y": Y, "sigma": SIGMA}))


@pytest.mark.sweep
def test_stans_own_code_has_the_derivatives_by_hand(own_code):
    made = refhmc.from_bridgestan(own_code)
    by_hand, rng = refhmc.models.EightSchools(centered=True), np.random.default_rng(1)
    q, M = rng.normal(0, 2, 10), rng.standard_normal((10, 10))
    np.testing.assert_allclose(made.gradient(q), by_hand.gradient(q), rtol=1e-12)
    np.testing.assert_allclose(made.hessian(q), by_hand.hessian(q), rtol=0, atol=1e-12 * abs(by_hand.hessian(q)).max())
    np.testing.assert_allclose(
        made.hessian_contraction(q, M),
        by_hand.hessian_contraction(q, M),
        rtol=0,
        atol=1e-8 * abs(by_hand.hessian_contraction(q, M)).max(),
    )
    assert made.constrain(q)["pairs"].tolist() == [[q[0], q[1]], [q[2], q[3]]]


@pytest.mark.sweep
def test_stans_own_code_is_sampled_as_the_model_by_hand(own_code):
    kernel = refhmc.HMC(step_size=0.1, n_steps=5)
    few = {"draws": 20, "tune": 0, "chains": 2, "initvals": np.append(np.zeros(9), 1.0)}
    by_stan, by_hand = (
        refhmc.sample(each, kernel, **few, **ALONE)
        for each in (refhmc.from_bridgestan(own_code), refhmc.models.EightSchools(centered=True))
    )
    np.testing.assert_allclose(by_stan.draws, by_hand.draws, rtol=0, atol=1e-8)

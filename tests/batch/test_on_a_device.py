"""``sample(backend="cupy")`` on a device without a GPU (:mod:`tests.helpers.fake_device`).

No array of the device is mixed with the host's, the draws are those of ``backend="arrays"`` bit for bit, and the number of
times that Python waits for the device is counted.
"""

import itertools
import sys

import numpy as np
import pytest

import refhmc
from refhmc import DHMC, DRHMC, GHMC, GIST, HMC, MALT, MCLMC, NUTS, AutoStep
from refhmc.batch import draw, steps
from refhmc.errors import DeviceError, MissingArrayImplementationError
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog, ProjectedTao, RandomizedSplit, SymmetricSplit
from refhmc.metrics import Dense, Diagonal, Fisher, SoftAbs, Tridiagonal
from refhmc.numerics import batched
from refhmc.sampling.chains.arrays_engine import ArraysEngine
from tests.helpers import fake_device
from tests.helpers.sweeps import one_in, representatives, swept

FUNNEL, BANANA = refhmc.models.Funnel(2), refhmc.models.Banana()
RUN = {"draws": 3, "tune": 5, "chains": 4, "random_seed": 3}
SHALLOW = {"max_treedepth": 3}
RNG = np.random.default_rng(8)
X, Y = RNG.normal(size=(30, 3)), RNG.integers(0, 2, 30)
LOGISTIC = refhmc.models.LogisticRegression(X, Y)


class Stairs(refhmc.array_api.ArrayImplementation):
    """L = -x^2/2 - |floor y|, which jumps in y."""

    dim, discontinuous = 2, (1,)

    def value_and_gradient(self, q):
        xp = batched.namespace(q)
        L = -0.5 * q[..., 0] ** 2 - xp.abs(xp.floor(q[..., 1]))
        return L, xp.where(xp.arange(2) == 0, -q, 0.0 * q)


STAIRS = refhmc.Model(
    2,
    lambda q, d: -0.5 * q[0] ** 2 - abs(np.floor(q[1])),
    lambda q, d: np.array([-q[0], 0.0]),
    discontinuous=[1],
    on_arrays=lambda xp: Stairs(),
)

CASES = {
    "dhmc": (STAIRS, DHMC(n_steps=3)),
    "nuts": (FUNNEL, NUTS(**SHALLOW)),
    "ghmc": (FUNNEL, GHMC(slice_shift=0.2)),
    "drhmc": (FUNNEL, DRHMC(n_steps=1, persistence=0.5)),
    "malt": (FUNNEL, MALT(trajectory_length=1.0, step_jitter=0.2)),
    "mclmc": (FUNNEL, MCLMC(n_steps=3)),
    "gist": (FUNNEL, GIST()),
    "autostep": (FUNNEL, AutoStep()),
    "nuts, dense": (FUNNEL, NUTS(**SHALLOW, metric=Dense())),
    "nuts, from gradients": (BANANA, NUTS(**SHALLOW, metric=Diagonal(learn_from="draws and gradients"))),
    "nuts, fisher": (BANANA, NUTS(max_treedepth=2, metric=Fisher())),
    "nuts, logistic": (LOGISTIC, NUTS(**SHALLOW)),
    "hmc, jitters": (FUNNEL, HMC(step_jitter=0.2, length_jitter=0.5)),
    "hmc, softabs": (FUNNEL, HMC(n_steps=2, metric=SoftAbs(1e6))),
    "hmc, generalised": (LOGISTIC, HMC(n_steps=2, metric=Fisher(), integrator=GeneralizedLeapfrog())),
    "hmc, two copies": (FUNNEL, HMC(n_steps=2, metric=SoftAbs(1e6), integrator=ExplicitTao(omega=3.0))),
    "hmc, projected": (FUNNEL, HMC(n_steps=2, metric=SoftAbs(1e6), integrator=ProjectedTao(omega=0.5))),
    "hmc, split": (LOGISTIC.split(3), HMC(n_steps=3, integrator=SymmetricSplit())),
    "hmc, random split": (LOGISTIC.split(3), HMC(n_steps=3, integrator=RandomizedSplit())),
    "hmc, schools": (refhmc.models.EightSchools(), HMC(n_steps=3)),
    "hmc, volatility": (
        refhmc.models.StochasticVolatility(RNG.normal(size=6)),
        HMC(n_steps=2, metric=Tridiagonal(np.full(9, 2.0), np.full(8, 0.3))),
    ),
    "hmc, softmax": (refhmc.models.SoftmaxRegression(X, Y), HMC(n_steps=3)),
    "hmc, network": (refhmc.models.MLP([3, 4, 2], X, Y), HMC(n_steps=3)),
    "hmc, gaussian": (refhmc.models.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 2.0]])), HMC(n_steps=3)),
}


@pytest.fixture
def device(monkeypatch):
    """The device; and x'y is summed in the same order on NumPy, where numpy.vecdot has another (:func:`batched.dot`)."""
    pytest.importorskip("array_api_compat")
    monkeypatch.setattr(np, "vecdot", lambda x, y: np.sum(x * y, axis=-1))
    return fake_device.install(monkeypatch)


def equal(a, b):
    """All groups of two results, bit for bit."""
    assert a.groups.keys() == b.groups.keys()
    for group in a.groups:
        for name, values in a.groups[group].items():
            assert values.dtype == b.groups[group][name].dtype, (group, name)
            assert np.array_equal(values, b.groups[group][name], equal_nan=True), (group, name)


# All kinds of kernels and metrics; of the splits and the projection, which are compiled for seconds, the rest.
SOME = ["dhmc", "ghmc", "drhmc", "malt", "mclmc", "gist", "autostep", "nuts, fisher"]


@pytest.mark.parametrize("name", representatives(CASES, SOME))
def test_the_draws_are_those_of_numpy(name, sample, device):
    model, kernel = CASES[name]
    for shared in (True, False) if name == "nuts" else (True,):
        options = {**RUN, "save_warmup": True, "shared_step_size": shared}
        here = sample(model, kernel, backend="arrays", **options)
        there = sample(model, kernel, backend="cupy", **options)
        equal(here, there)
        assert there.attributes["device"] == "FakeDevice, CuPy 0.0, CUDA 13000"
        assert there.attributes["backend"] == "cupy"


def test_dense_metric_without_broadcasting(device):
    """CuPy's solve takes matrices and vectors of the same leading axes only; the device's does, too."""
    q = device.asarray(RNG.normal(size=(4, 3)))
    with pytest.raises(ValueError, match="a must have"):
        device.linalg.solve(device.eye(3), q[..., None])


@pytest.mark.parametrize(("kernel", "shared"), one_in(4, [NUTS(**SHALLOW), HMC(n_steps=2)], [True, False]))
def test_draws_are_streamed_to_the_host(kernel, shared, sample, device, monkeypatch):
    """With a budget of two draws of all chains, and of less than one, the draws are those that stay."""
    options = {**RUN, "draws": 7, "tune": 7, "save_warmup": True, "shared_step_size": shared, "backend": "cupy"}
    stay = sample(FUNNEL, kernel, **options)
    rooms = []
    move = draw.Recorder.move

    def watched(self):
        if self.on_device:
            rooms.append(self.room)
        move(self)

    monkeypatch.setattr(draw.Recorder, "move", watched)
    names = [name for name in kernel.statistics if name not in draw.NOT_OF_A_DRAW]
    a_draw = RUN["chains"] * sum(1 if name in draw.S.FLAGS else 8 for name in [*names, "v", "x[0]", "x[1]"])
    for budget, room in ((2 * a_draw, 2), (1, 1)):
        rooms.clear()
        monkeypatch.setattr(draw.Options.__new__, "__defaults__", (budget, None))
        equal(sample(FUNNEL, kernel, **options), stay)
        assert set(rooms) == {room}
        assert len(rooms) >= 2 * 7 // room


def test_batches_on_the_device_make_the_same_draws(sample, device):
    runs = [sample(FUNNEL, NUTS(**SHALLOW), **RUN, backend=refhmc.CuPy(chains_at_once=each)) for each in (2, None)]
    assert RUN["chains"] > 2
    equal(*runs)


def test_a_run_that_is_stopped_on_the_device(sample, device, monkeypatch):
    """Chains of different lengths are moved to the host in the middle of a stretch."""
    monkeypatch.setattr(draw, "REPORT_EVERY", 0.0)
    options = {**RUN, "draws": 50, "tune": 0}
    kernel = NUTS(step_size=0.4, **SHALLOW)
    own, runs = ArraysEngine._look, []
    for name in ("arrays", "cupy"):
        looks = itertools.count()

        def look(self, batch, looks=looks):
            if next(looks) == 60:
                self.stop("interrupt")
            return own(self, batch)

        monkeypatch.setattr(ArraysEngine, "_look", look)
        runs.append(sample(FUNNEL, kernel, **options, backend=name))
    equal(*runs)
    assert runs[1].attributes["stopped_by"] == "interrupt"
    assert 0 < max(runs[1].attributes["draws_per_chain"]) < 50


# Synchronisations and transfers of a turn, a step of every chain, at most: HMC asks who has ended; NUTS who has a valid leaf,
# who is chosen, who joins (once a level of the tree and once more), who has grown (on which side), who goes on, who has ended.
# Measured, with 4 and with 12 chains: HMC 1.1 and 1.1, NUTS 8.6 and 10.4.
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("kernel", "most"),
    [(HMC(step_size=0.2, n_steps=8), 1.2), (NUTS(step_size=0.3, max_treedepth=4), 10.5)],
)
def test_how_often_python_waits_for_the_device(kernel, most, sample, device, monkeypatch):
    turns, call = [], steps.Mover.__call__

    def counted(self, *arguments):
        turns.append(0)
        return call(self, *arguments)

    monkeypatch.setattr(steps.Mover, "__call__", counted)
    monkeypatch.setattr(draw, "REPORT_EVERY", 1e9)
    options = {"tune": 0, "random_seed": 3, "backend": "cupy", "preflight": False}
    found = []
    for chains, draws in ((4, 2), (4, 12), (12, 12)):
        turns.clear()
        fake_device.count.clear()
        sample(FUNNEL, kernel, draws=draws, chains=chains, **options)
        found.append((len(turns), dict(fake_device.count)))
    turns_more = found[1][0] - found[0][0]
    more = {name: found[1][1][name] - found[0][1].get(name, 0) for name in found[1][1]}
    assert turns_more >= 70
    assert more["synchronisations"] <= most * turns_more
    assert more["to_device"] == 0
    assert more["to_host"] == 0
    # Three times the chains: what is done is a matter of turns, not of chains.
    n_turns, counts = found[2]
    assert counts["synchronisations"] - found[0][1]["synchronisations"] <= most * (n_turns - found[0][0])
    assert counts["to_host"] == found[1][1]["to_host"]
    assert counts["to_device"] == found[1][1]["to_device"]


def test_a_step_of_the_randomised_split_waits_once_per_part(device):
    """Each row has its own order, and Python must know how many rows each part has."""
    from refhmc.batch.backends import namespace_of

    M, xp = 5, namespace_of("cupy")
    rng, model = np.random.default_rng(8), LOGISTIC.split(M)
    q, p = rng.normal(size=(2, 40, model.dim))
    orders = np.array([rng.permutation(M) for _ in range(40)])
    H = refhmc.array_api.hamiltonian(model, refhmc.metrics.Identity(), xp)
    arguments = [xp.asarray(each) for each in (q, p, np.full((40, 1), 0.1), orders)]
    refhmc.array_api.randomized_split(H, *arguments)
    fake_device.count.clear()
    there = refhmc.array_api.randomized_split(H, *arguments)
    assert fake_device.count["synchronisations"] == 0
    assert fake_device.count["to_host"] == M
    on_host = refhmc.array_api.hamiltonian(model, refhmc.metrics.Identity())
    for mine, expected in zip(there, refhmc.array_api.randomized_split(on_host, q, p, 0.1, orders), strict=True):
        np.testing.assert_allclose(batched.to_host(mine), expected, rtol=1e-12, atol=1e-14)


# --------------------------------------------------------------------------------------- no device, no text


def test_cupy_is_missing(sample, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"cupy and array-api-compat.*pip install 'refhmc\[gpu\]'"):
        sample(FUNNEL, HMC(n_steps=2), **RUN, backend="cupy")


def test_there_is_no_driver(sample, device):
    class CUDARuntimeError(RuntimeError):
        pass

    def none():
        raise CUDARuntimeError(
            "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
        )

    device.cuda.runtime.getDeviceCount = none
    with pytest.raises(DeviceError, match=r"GPU \(CUDARuntimeError: cudaErrorInsufficientDriver.*'arrays'"):
        sample(FUNNEL, HMC(n_steps=2), **RUN, backend="cupy")
    device.cuda.runtime.getDeviceCount = lambda: 0
    with pytest.raises(DeviceError, match=r"no GPU\..*'arrays'"):
        sample(FUNNEL, HMC(n_steps=2), **RUN, backend="cupy")


@pytest.mark.sweep
def test_a_model_without_a_text_is_refused_by_name(sample, device):
    mine = refhmc.Model(1, lambda q, d: -0.5 * q[0] ** 2, lambda q, d: -q, name="mine")
    for model in (mine, refhmc.models.GARCH()):
        with pytest.raises(MissingArrayImplementationError, match=f"{model.name}.*Funnel"):
            sample(model, HMC(n_steps=2), **RUN, backend="cupy")
        sample(model, HMC(n_steps=2, step_size=0.01), **{**RUN, "tune": 0}, backend="arrays")


def test_memory_of_the_device(sample, device):
    """The device reports 1 GiB, and CuPy keeps 1 MiB for later arrays."""
    with pytest.raises(MemoryError, match="1,074,790,400.*chains"):
        sample(FUNNEL, NUTS(), **{**RUN, "chains": 10**6, "draws": 1}, backend="cupy")


# --------------------------------------------------------------------------------------- lost, out of memory


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("save_warmup", [False, swept(True)])
def test_a_device_that_fails_in_mid_run(sample, device, monkeypatch, lost, save_warmup):
    """After the tenth draw it is out of memory, or it does not answer any more, and the draws on the host are left.

    The draws are the beginning of those of the whole run.
    """
    monkeypatch.setattr(draw.Options.__new__, "__defaults__", (1000, None))  # bytes on the device: a draw or two
    options = {**RUN, "draws": 30, "tune": 4, "save_warmup": save_warmup}
    kernel = HMC(n_steps=2, step_size=0.1)
    whole = sample(FUNNEL, kernel, **options, backend="cupy")
    real = draw.Recorder.record
    made = []

    def record(self, rows, q, stats):
        made.append(len(self.draws))
        if len(made) == 4 + 10:
            if lost:
                monkeypatch.setattr(fake_device.ndarray, "get", failing)
                failing(None)
            raise fake_device.OutOfMemoryError("Out of memory allocating 1,024 bytes")
        real(self, rows, q, stats)

    def failing(self):
        raise fake_device.CUDARuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    monkeypatch.setattr(draw.Recorder, "record", record)
    words = r"GPU failed \(CUDARuntimeError: cudaErrorLaunchFailure" if lost else "GPU.*OutOfMemoryError.*fewer chains"
    with pytest.raises(DeviceError, match=words) as caught:
        sample(FUNNEL, kernel, **options, backend="cupy")
    partial = caught.value.partial
    n = partial.draws.shape[1]
    assert 0 < n < 30
    assert np.array_equal(partial.draws, whole.draws[:, :n])
    assert np.array_equal(partial.posterior["x"], whole.posterior["x"][:, :n])


def test_a_device_without_memory_for_the_start(sample, device, monkeypatch):
    def none(*arguments, **keywords):
        raise fake_device.OutOfMemoryError("Out of memory allocating 1,024 bytes")

    monkeypatch.setattr(draw, "Recorder", none)
    with pytest.raises(DeviceError, match="GPU.*OutOfMemoryError"):
        sample(FUNNEL, HMC(n_steps=2, step_size=0.1), **RUN, backend="cupy")

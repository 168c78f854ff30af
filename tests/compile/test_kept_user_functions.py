"""Code compiled from a user's functions is cached under a name of everything that it depends on."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import numba
import numpy as np
import pytest

import refhmc
from refhmc.compile import compile_cache, compiled
from refhmc.compile.compile_cache import OF_MODELS, cache_directory, remove_oldest
from refhmc.errors import ModelError
from refhmc.models.binding import adapters, packing
from tests.helpers.sweeps import representatives, swept

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
Y = np.array([1.0, 2.0, 4.0])
TEXT = """
import numpy as np
from numba import njit
{globals}
def helper(x):
    return {helper}
def log_density(q, y):
    return -0.5 * np.sum((y - helper(q[0])) ** 2)
def gradient(q, y):
    return np.array([np.sum(y - helper(q[0])) * {slope}])
"""
PLAIN = {"globals": "scale = 2.0", "helper": "scale * x", "slope": "scale"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Use a cache for this test only."""
    monkeypatch.setenv("REFHMC_CACHE_DIR", str(tmp_path / "cache"))
    cache_directory.cache_clear()
    forget_process()
    yield tmp_path
    cache_directory.cache_clear()
    forget_process()


def forget_process():
    """Forget all compiled code, as in a new process."""
    for each in (*vars(adapters).values(), *vars(packing).values()):
        if hasattr(each, "cache_clear"):
            each.cache_clear()


def model_of(data=Y, **words):
    module = types.ModuleType("users")
    exec(TEXT.format(**{**PLAIN, **words}), module.__dict__)
    return refhmc.Model(1, module.log_density, module.gradient, data=data)


def from_cache(model, q=0.3):
    """Return whether everything was loaded; the values agree with plain Python."""
    forget_process()
    before = len(compiled.log)
    value, slope = model.log_density([q]), model.gradient([q])
    assert model.runs_as_python is None
    f, g = (getattr(model.functions, key) for key in ("log_density", "gradient"))
    assert value == pytest.approx(f(np.array([q]), model.data), rel=1e-15)
    np.testing.assert_allclose(slope, g(np.array([q]), model.data), rtol=1e-15)
    loaded = {each.from_cache for each in compiled.log[before:]}
    assert len(loaded) == 1
    return loaded.pop()


def test_code_of_the_same_source_is_loaded():
    assert not from_cache(model_of())
    assert from_cache(model_of())
    assert from_cache(model_of(data=Y + 1))  # the values of the data are no part of the code


@pytest.mark.parametrize(
    "words",
    [
        {"helper": "scale * x + 0.0 * x * x"},
        swept({"globals": "scale = 2.5"}),
        swept({"globals": "scale = np.float32(2.0)"}),
        swept({"data": np.array([1.0, 2.0])}),
        swept({"data": np.array([1, 2, 4])}),
        swept({"globals": "scale = 3.0\nhelp = njit(lambda x: 3.0 * x)", "helper": "help(x)", "slope": "3.0"}),
    ],
)
def test_changed_dependencies_are_compiled_again(words):
    assert not from_cache(model_of())
    assert not from_cache(model_of(**words))
    assert from_cache(model_of(**words))
    assert from_cache(model_of())


@pytest.mark.sweep
def test_code_with_an_address_is_not_cached():
    """Numba refers to a large array by its address in the process."""
    words = {"globals": "scale = 2.0\nlarge = np.full(200_000, 2.0)", "helper": "large[7] * x"}
    for _ in range(2):
        assert not from_cache(model_of(**words))


@pytest.mark.sweep
def test_python_within_compiled_code_is_not_cached():
    """It may read names of its module, which another process may not have."""
    boxed = "@njit\ndef boxed(x):\n    with objmode(v='float64'):\n        v = 2.0 * x\n    return v\n"
    words = {"globals": f"from numba import objmode\nscale = 2.0\n{boxed}", "helper": "boxed(x)"}
    for _ in range(2):
        assert not from_cache(model_of(**words))


@pytest.mark.sweep
def test_wrong_return_shape_is_rejected_each_time():
    for _ in range(2):
        forget_process()
        model = refhmc.Model(1, model_of().functions.log_density, lambda q, y: np.ones((1, 1)), data=Y)
        with pytest.raises(ModelError, match="gradient must return an array of 1 axes"):
            model.gradient([0.3])


def test_recently_used_files_are_kept(tmp_path):
    for k in range(6):
        (tmp_path / f"{k}").touch()
        os.utime(tmp_path / f"{k}", (k, k))
    remove_oldest(tmp_path, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3", "4", "5"]


@pytest.mark.sweep
def test_number_of_cached_files_is_limited(folder, monkeypatch):
    monkeypatch.setattr(compile_cache, "MOST", 3)
    for scale in range(3):
        from_cache(model_of(globals=f"scale = {scale + 1}.0"))
    assert len(list((cache_directory() / OF_MODELS).iterdir())) <= 3


HOMELESS = {
    "exec": "exec(text, {})",
    "another name": "import runpy; runpy.run_path(file, run_name='nowhere')",
}
ENDS = """
import refhmc, warnings
warnings.simplefilter("error")
from refhmc.compile import compiled
from refhmc.errors import EvaluationError
@njit
def checked(x):
    if x > 100:
        raise ValueError("too far", x)
    return x
inner = helper
def helper(x):
    return checked(inner(x))
data = np.array([1.0, 2.0, 4.0])
hand = refhmc.Model(1, log_density, gradient, data=data)
def of_values(v, y):
    return -0.5 * np.sum((y - v.mu) ** 2) / v.tau
def slopes(v, y):
    return np.array([np.sum(y - v.mu) / v.tau, 0.5 * np.sum((y - v.mu) ** 2) / v.tau**2])
P = refhmc.Parameters(mu=refhmc.parameters.Real(), tau=refhmc.parameters.Positive())
by_name = P.model(of_values, slopes, data=data)
import sympy
x = sympy.symbols("x")
derived = refhmc.from_sympy(-x**4 / 4 - x**2, name="quartic")
values = [derived.log_density([0.5]), *derived.gradient([0.5]), *derived.hessian_contraction([0.5], np.ones((1, 1)))]
values += [hand.log_density([0.3]), *hand.gradient([0.3]), by_name.log_density([0.3, 0.1]), *by_name.gradient([0.3, 0.1])]
try:
    hand.log_density([60.0])
except ValueError as error:
    values.append(error.args)
print(values, all(each.from_cache for each in compiled.log))
"""


@pytest.mark.sweep
@pytest.mark.parametrize("home", representatives(HOMELESS, ["exec"]))
def test_functions_without_module_are_loaded_in_another_process(folder, home):
    """Without a warning, with the same values and exceptions."""
    (folder / "text.py").write_text(TEXT.format(**PLAIN) + ENDS, encoding="utf-8")
    run = f"file = {str(folder / 'text.py')!r}; text = open(file).read(); {HOMELESS[home]}"
    first, second = (
        subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True).stdout.rpartition("]")
        for _ in range(2)
    )
    assert first[0] == second[0]
    assert "('too far', 120.0)" in first[0]
    assert (first[2].strip(), second[2].strip()) == ("False", "True")


@pytest.mark.sweep
def test_another_process_makes_the_same_draws(folder):
    text = TEXT.format(**PLAIN) + (
        "import refhmc, hashlib\n"
        "from refhmc.compile import compiled\n"
        "m = refhmc.Model(1, log_density, gradient, data=np.array([1.0, 2.0, 4.0]))\n"
        "r = refhmc.sample(m, draws=200, tune=200, random_seed=1, raw=True, progressbar=False)\n"
        "print(hashlib.sha256(r.draws.tobytes()).hexdigest(), all(each.from_cache for each in compiled.log))\n"
    )
    (folder / "run.py").write_text(text, encoding="utf-8")
    printed = [
        subprocess.run([sys.executable, str(folder / "run.py")], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    (first, compiled_first), (second, loaded) = map(str.split, printed)
    assert first == second
    assert (compiled_first, loaded) == ("False", "True")


ODE = """
import numpy as np
import refhmc
from refhmc.compile import compiled
from refhmc.models import error_laws, priors
scale = {scale}
def growth(x, r):
    return scale * r * x * (1 - x)
def rhs(t, x, theta):
    return np.array([growth(x[0], theta[0]) + 0.0 * {text}])
def jacobian(t, x, theta):
    return np.array([[scale * theta[0] * (1 - 2 * x[0]), scale * x[0] * (1 - x[0])]])
P, times = refhmc.Parameters(r=refhmc.parameters.Positive()), np.arange(4.0)
model = refhmc.models.ODE(rhs, jacobian, parameters=P, initial_state=[0.1], times=times, y=np.full((4, 1), 0.3),
                          errors=error_laws.Normal(0.1), prior=dict(r=priors.LogNormal(0, 1)),
                          events=[(1.5, (lambda t, x, theta: 0.9 * x, lambda t, x, theta: np.array([[0.9, 0.0]])))])
x, S = model.solution.first(np.array([0.7]))
values = [model.log_density([0.2]), *model.gradient([0.2]), x[3, 0], S[3, 0, 0]]
h = 1e-4
slope = (model.log_density([0.2 + h]) - model.log_density([0.2 - h])) / (2 * h)
assert abs(slope - values[1]) < 1e-5 * abs(slope), (slope, values[1])
print(values, all(each.from_cache for each in compiled.log))
"""


@pytest.mark.sweep
def test_an_ode_is_loaded_in_another_process(folder):
    """Right-hand side, solver and posterior are loaded; another source or global is compiled again."""
    printed = {}
    for run, words in enumerate(({}, {}, {"scale": 1.5}, {"text": "x[0]"}, {"scale": 1.5})):
        (folder / "ode.py").write_text(ODE.format(**{"scale": 1.0, "text": "t", **words}), encoding="utf-8")
        done = subprocess.run([sys.executable, str(folder / "ode.py")], capture_output=True, text=True, check=True)
        printed[run] = done.stdout.rpartition("]")[::2]
    values, loaded = zip(*printed.values(), strict=True)
    assert [each.strip() for each in loaded] == ["False", "True", "False", "False", "True"]
    assert values[0] == values[1] == values[3]
    assert values[2] == values[4] != values[0]

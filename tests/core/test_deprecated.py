"""Old names still work in this release, with a FutureWarning that gives the new name."""

from __future__ import annotations

import importlib
import re
import warnings

import numpy as np
import pytest

import refhmc

SHORT = {"draws": 4, "tune": 4, "chains": 1, "random_seed": 1, "progressbar": False, "raw": True}
M = np.array([[1.0, 2.0], [0.0, 3.0]])


def log_density(q):
    return -0.25 * np.sum(q**4)


def gradient(q):
    return -(q**3)


def hessian(q):
    return np.diag(-3 * q**2)


def contraction(q, M):
    return -6 * q * np.diag(M)


def fisher(q):
    return np.diag(1 + q**2)


def fisher_contraction(q, M):
    return 2 * q * np.diag(M)


def values_contraction(values, M):
    return (-6 * values.x * np.diag(M),)


def values_fisher_contraction(values, M):
    return (2 * values.x * np.diag(M),)


def model(**options):
    return refhmc.Model(2, log_density, gradient, hessian, fisher=fisher, in_python="a few calls", **options)


def named_model(**options):
    parameters = refhmc.Parameters(x=refhmc.parameters.Real(shape=2))
    return parameters.model(
        lambda values: log_density(values.x),
        lambda values: (gradient(values.x),),
        lambda values: hessian(values.x),
        fisher=lambda values: fisher(values.x),
        in_python="a few calls",
        **options,
    )


def renamed(old, new):
    """Expect a FutureWarning that gives the old and the new name, in this order."""
    return pytest.warns(FutureWarning, match=f"{re.escape(old)}.*{re.escape(new)}")


NAMES = {
    ("refhmc", "derive"): ("refhmc", "from_sympy"),
    ("refhmc", "Generated"): ("refhmc", "GeneratedQuantities"),
    ("refhmc", "arrays"): ("refhmc", "array_api"),
    ("refhmc.errors", "MissingTextError"): ("refhmc.errors", "MissingArrayImplementationError"),
    ("refhmc.check", "model_and_sampler"): ("refhmc.check", "sbc"),
}


@pytest.mark.parametrize(("old", "new"), NAMES.items(), ids=lambda pair: ".".join(pair))
def test_old_names_give_the_new_objects(old, new):
    with renamed(".".join(old), ".".join(new)) as caught:
        found = getattr(importlib.import_module(old[0]), old[1])
    assert found is getattr(importlib.import_module(new[0]), new[1])
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("old", "home", "new"),
    [
        ("progress", "refhmc.sampling.progress", "refhmc.ProgressReport"),
        ("compiled", "refhmc.compile.compiled", "not public"),
        ("sample_stats", "refhmc.core.sample_stats", "refhmc.diagnostics.OUTCOMES"),
    ],
)
def test_modules_that_are_no_longer_public_are_still_found(old, home, new):
    with renamed(f"refhmc.{old}", new) as caught:
        assert getattr(refhmc, old) is importlib.import_module(home)
    assert caught[0].filename == __file__
    assert old not in dir(refhmc)


@pytest.mark.parametrize("name", [name for _, name in NAMES.values()])
def test_new_names_give_no_warning(name):
    home = next(home for home, new in NAMES.values() if new == name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(importlib.import_module(home), name) is not None


@pytest.mark.parametrize("name", ["sympy", "Arrays_", "trace"])
def test_unknown_names_are_attribute_errors(name):
    for module in (refhmc, refhmc.errors, refhmc.check):
        with pytest.raises(AttributeError, match=name):
            getattr(module, name)


ARGUMENTS = {
    "model-trace": (model, "trace", "hessian_contraction", contraction),
    "model-fisher_trace": (model, "fisher_trace", "fisher_contraction", fisher_contraction),
    "parameters-trace": (named_model, "trace", "hessian_contraction", values_contraction),
    "parameters-fisher_trace": (named_model, "fisher_trace", "fisher_contraction", values_fisher_contraction),
}


@pytest.mark.parametrize(("make", "old", "new", "function"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_old_arguments_and_methods_of_a_model(make, old, new, function):
    q = np.array([0.5, -1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        today = make(**{new: function})
        expected = getattr(today, new)(q, M)
    with renamed(f"{old}=", f"{new}=") as caught:
        former = make(**{old: function})
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(getattr(former, new)(q, M), expected)
    with renamed(f".{old}()", f".{new}()") as caught:
        np.testing.assert_array_equal(getattr(today, old)(q, M), expected)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("make", "old", "new", "function"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_both_names_of_an_argument_are_rejected(make, old, new, function):
    with pytest.raises(TypeError, match=f"{old} .*{new}"):
        make(**{old: function, new: function})


def test_old_word_of_a_metric_is_its_regularization():
    for kind in (refhmc.metrics.Diagonal, refhmc.metrics.Dense):
        with renamed('learn_from="draws as Stan"', 'regularization="stan"') as caught:
            former = kind(learn_from="draws as Stan")
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            assert repr(former) == repr(kind(learn_from="draws", regularization="stan"))


@pytest.mark.parametrize(
    ("options", "backend", "new"),
    [
        ({"fuse": False}, refhmc.Numba(), "refhmc.Numba(fuse="),
        (
            {"backend": "arrays", "shared_step_size": False},
            refhmc.Arrays(shared_step_size=False),
            "refhmc.Arrays(shared_step_size=",
        ),
    ],
    ids=["fuse", "shared_step_size"],
)
@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_old_options_of_sample_belong_to_the_backend(options, backend, new):
    target, kernel = refhmc.models.Funnel(2), refhmc.HMC(n_steps=2)
    with renamed(f"{next(name for name in options if name != 'backend')}=", new) as caught:
        former = refhmc.sample(target, kernel, **options, **SHORT)
    assert [each.filename for each in caught if each.category is FutureWarning] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        today = refhmc.sample(target, kernel, backend=backend, **SHORT)
    np.testing.assert_array_equal(former.draws, today.draws)


def test_option_of_another_backend_is_rejected():
    """An option of another backend is a ValueError, whether the backend is an object or a name."""
    for backend in ("numba", refhmc.Numba()):
        with pytest.raises(ValueError, match=r"streamed .*refhmc\.CuPy.*'numba'"):
            refhmc.sample(refhmc.models.Funnel(2), refhmc.HMC(n_steps=2), backend=backend, streamed=True, **SHORT)

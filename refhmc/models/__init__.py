"""Built-in models with known properties, one file each. A model is imported when it is first used."""

from __future__ import annotations

from collections.abc import Callable

from refhmc._dependencies import import_module

_HOME = {
    "Gaussian": "gaussian",
    "Banana": "banana",
    "Funnel": "funnel",
    "LogisticRegression": "logistic_regression",
    "BreastCancer": "logistic_regression",
    "Diabetes": "logistic_regression",
    "Heart": "logistic_regression",
    "EightSchools": "eight_schools",
    "LinearRegression": "linear_regression",
    "VaryingIntercepts": "hierarchical_regression",
    "Horseshoe": "hierarchical_regression",
    "AR": "ar",
    "GARCH": "garch",
    "GaussianMixture": "gaussian_mixture",
    "GaussianProcessRegression": "gaussian_process_regression",
    "JollySeber": "jolly_seber",
    "ChangePoint": "change_point",
    "PACBayesClassifier": "pac_bayes_classifier",
    "CellGrid": "cell_grid",
    "ClosedPopulation": "closed_population",
    "StochasticVolatility": "stochastic_volatility",
    "FitzHughNagumo": "fitzhugh_nagumo",
    "ODE": "ode",
    "ODESolution": "ode_solution",
    "MLP": "mlp",
    "RegressionNetwork": "mlp",
    "SoftmaxRegression": "mlp",
    "CNN": "cnn",
    "SplitModel": "base",
}

__all__ = [*_HOME, "by_name", "networks_by_name"]


def __getattr__(name: str) -> Callable:
    if name not in _HOME:
        raise AttributeError(f"module 'refhmc.models' has no attribute {name!r}. Its models are {', '.join(_HOME)}.")
    value = getattr(import_module(f"refhmc.models.{_HOME[name]}", f"refhmc.models.{name}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def by_name() -> dict:
    """Return the constructors of all models with their default data, by command-line name.

    No two models share a ``name``.

    Returns
    -------
    dict of str to callable
        Functions without arguments that return a :class:`refhmc.Model`.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.by_name()["funnel"]().dim
    11
    """

    def maker(constructor: str, *arguments: object, **options: object) -> Callable:
        return lambda: __getattr__(constructor)(*arguments, **options)

    return {
        "funnel": maker("Funnel"),
        "banana": maker("Banana"),
        "gaussian": maker("Gaussian", [0.5, -1.0], [[1.0, 0.5], [0.5, 2.0]]),  # as in Brofos and Lederman (2021)
        "normal-100": maker(
            "Gaussian", [0.0] * 100, [[float(i == j) for i in range(100)] for j in range(100)], name="normal-100"
        ),
        "eight-schools": maker("EightSchools"),
        "eight-schools-centered": maker("EightSchools", centered=True),
        "breast-cancer": maker("BreastCancer"),
        "diabetes": maker("Diabetes"),
        "heart": maker("Heart"),
        "kidscore": maker("LinearRegression"),
        "radon": maker("VaryingIntercepts"),
        "radon-centered": maker("VaryingIntercepts", centered=True),
        "horseshoe": maker("Horseshoe"),
        "horseshoe-noncentered": maker("Horseshoe", centered=False),
        "ar": maker("AR"),
        "garch": maker("GARCH"),
        "gaussian-mixture": maker("GaussianMixture"),
        "gaussian-process": maker("GaussianProcessRegression"),
        "jolly-seber": maker("JollySeber"),
        "change-point": maker("ChangePoint"),
        "pac-bayes": maker("PACBayesClassifier"),
        "cell-grid": maker("CellGrid"),
        "closed-population": maker("ClosedPopulation"),
        "stochastic-volatility": maker("StochasticVolatility"),
        "fitzhugh-nagumo": maker("FitzHughNagumo"),
    }


def networks_by_name() -> dict:
    """Return the constructors of networks, by command-line name.

    Returns
    -------
    dict of str to callable
        Functions of the widths of the hidden layers, which have a default.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.networks_by_name()["mlp-regression"]([5]).dim
    16
    """
    return {"mlp-regression": __getattr__("RegressionNetwork")}

"""What follows from a model's draws beside its variables: the groups that ArviZ's functions read.

With y the observations, theta the constrained values of a draw:

    log_likelihood          log p(y_i | theta), a number for each observation, constants included: for az.loo and az.compare
    posterior_predictive    y' ~ p(y | theta), one for each draw: for posterior predictive checks
    prior                   theta ~ p(theta)
    prior_predictive        y' ~ p(y | theta) of these: by the function of posterior_predictive, unless it has its own
    observed_data           y
    constant_data           what else the model was given, such as the inputs of a regression

Where observations depend on each other given theta, log p(y_i | theta) is what the model says it is: in a time series, of y_i
given those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from refhmc.core.arguments import refuse_masked
from refhmc.core.named_axes import check_storable
from refhmc.errors import ModelError

DATA = ("observed_data", "constant_data")


# A function of draws may take many at once. It does where it then gives, for some of them, what it gives for each.
COMPARED, CLOSE = 20, 1e-9  # how many of them at most; relative


class GeneratedQuantities(NamedTuple):
    """Functions that make groups of a result, and its data. All of them are optional.

    ``log_likelihood(values)`` and ``posterior_predictive(values, rng)`` get the values of one draw, a dictionary of arrays by
    name, as ``constrain`` gives them, and return a dictionary of arrays; so does ``prior_predictive``. ``prior(rng)`` draws the
    values of all variables once. ``rng`` is a ``numpy.random.Generator``. A function that takes arrays with one more axis in
    front, of many draws, and gives what it gives for each of them, is called for many at a time.

    ``observed_data``, ``constant_data``: dictionaries of arrays. Observations have the same name in all groups.
    """

    log_likelihood: Callable[[dict], Mapping] | None = None
    posterior_predictive: Callable[[dict, np.random.Generator], Mapping] | None = None
    prior: Callable[[np.random.Generator], Mapping] | None = None
    prior_predictive: Callable[[dict, np.random.Generator], Mapping] | None = None
    observed_data: Mapping[str, Any] = {}
    constant_data: Mapping[str, Any] = {}

    @property
    def made(self) -> dict[str, Callable]:
        """Group -> function, of those there are, in the order in which they are made."""
        predictive = self.prior_predictive
        if predictive is None and self.prior is not None:
            predictive = self.posterior_predictive
        functions = {
            "log_likelihood": self.log_likelihood,
            "posterior_predictive": self.posterior_predictive,
            "prior": self.prior,
            "prior_predictive": predictive,
        }
        return {name: function for name, function in functions.items() if function is not None}

    @property
    def data(self) -> dict[str, dict[str, np.ndarray]]:
        """The two groups of data, without those that are empty."""
        return {name: dict(getattr(self, name)) for name in DATA if getattr(self, name)}


def generated_of(given: Any) -> GeneratedQuantities:
    """``generated`` as a user gives it, a dictionary or a :class:`GeneratedQuantities`, with its data as arrays. Raises ModelError."""
    if given is None:
        return GeneratedQuantities()
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in GeneratedQuantities._fields]
        if unknown:
            raise ModelError(
                f"generated: there is no group {unknown[0]!r}, there are {', '.join(GeneratedQuantities._fields)}"
            )
        given = GeneratedQuantities(**given)
    if not isinstance(given, GeneratedQuantities):
        raise ModelError(f"generated must be a refhmc.GeneratedQuantities or a dictionary, got {type(given).__name__}")
    for name in GeneratedQuantities._fields[:4]:
        function = getattr(given, name)
        if function is not None and not callable(function):
            raise ModelError(f"generated: {name} must be a function, got {type(function).__name__}")
    if given.prior_predictive is not None and given.prior is None:
        raise ModelError("generated: prior_predictive needs prior, whose draws it is given")
    observed, constant = (_arrays(name, getattr(given, name)) for name in DATA)
    return given._replace(observed_data=observed, constant_data=constant)


def frozen(value: Any) -> np.ndarray:
    """The array, a copy that cannot be written to; one that cannot be written to as it is."""
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return value
    copy = np.array(value)
    copy.setflags(write=False)
    return copy


def _arrays(group: str, given: Any) -> dict[str, np.ndarray]:
    if not isinstance(given, Mapping):
        raise ModelError(f"generated: {group} must be a dictionary of arrays, got {type(given).__name__}")
    refuse_masked(f"generated: {group}", given, ModelError)
    found = {name: frozen(value) for name, value in given.items()}
    for name, value in found.items():
        check_storable(f"generated: {group}", name)
        if value.dtype.kind not in "fiubcU":
            raise ModelError(f"generated: {name!r} of {group} must be numbers or strings, it is {value.dtype}")
    return found

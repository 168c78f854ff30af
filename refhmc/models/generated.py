"""Quantities that follow from the draws of a model: the groups that the functions of ArviZ read.

With observations y and the constrained values theta of a draw::

    log_likelihood          log p(y_i | theta) of each observation, constants included: for az.loo and az.compare
    posterior_predictive    y' ~ p(y | theta), one per draw: for posterior predictive checks
    prior                   theta ~ p(theta)
    prior_predictive        y' ~ p(y | theta) of these, by the function of posterior_predictive unless there is one
    observed_data           y
    constant_data           other data, such as the inputs of a regression

If observations depend on each other given theta, the model defines log p(y_i | theta). For a time series it is that of y_i
given the values before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.arguments import refuse_masked
from refhmc.core.named_axes import check_storable
from refhmc.errors import ModelError

DATA = ("observed_data", "constant_data")


# A function is called for many draws at once if its results for some of them agree with those of single calls.
COMPARED, CLOSE = 20, 1e-9  # number of draws that are compared; relative tolerance


class GeneratedQuantities(NamedTuple):
    """Functions that compute groups of a result from its draws, and the data of the model.

    All fields are optional. The functions get the values of one draw, a dictionary of arrays by name as ``constrain`` returns
    them, and a ``numpy.random.Generator``. They return dictionaries of arrays. A function may also accept arrays with one
    more leading axis, for many draws. If its results agree with those of single draws, it is called for many draws at a
    time.

    Parameters
    ----------
    log_likelihood : callable, optional
        Function of ``values`` that returns log p(y_i | theta) of each observation, constants included.
    posterior_predictive : callable, optional
        Function of ``(values, rng)`` that returns simulated observations.
    prior : callable, optional
        Function of ``rng`` that returns one draw of all variables from the prior.
    prior_predictive : callable, optional
        Function of ``(values, rng)`` that returns observations simulated from a draw of the prior. Defaults to
        `posterior_predictive`.
    observed_data : mapping of str to array_like, optional
        Observations. They have the same names in all groups.
    constant_data : mapping of str to array_like, optional
        Other data, such as the inputs of a regression.

    See Also
    --------
    refhmc.generate : Compute these groups for a finished run.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> y = np.array([0.3, -1.2])
    >>> generated = refhmc.GeneratedQuantities(
    ...     log_likelihood=lambda values: {"y": -0.5 * (y - values["mu"]) ** 2 - 0.5 * np.log(2 * np.pi)},
    ...     posterior_predictive=lambda values, rng: {"y": values["mu"] + rng.standard_normal(2)},
    ...     observed_data={"y": y},
    ... )
    >>> list(generated.made), list(generated.data)
    (['log_likelihood', 'posterior_predictive'], ['observed_data'])
    """

    log_likelihood: Callable[[dict], Mapping] | None = None
    posterior_predictive: Callable[[dict, np.random.Generator], Mapping] | None = None
    prior: Callable[[np.random.Generator], Mapping] | None = None
    prior_predictive: Callable[[dict, np.random.Generator], Mapping] | None = None
    observed_data: Mapping[str, ArrayLike] = {}
    constant_data: Mapping[str, ArrayLike] = {}

    @property
    def made(self) -> dict[str, Callable]:
        """The functions by the name of the group that they compute, in the order of computation."""
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
        """The groups of data that are not empty."""
        return {name: dict(getattr(self, name)) for name in DATA if getattr(self, name)}


def generated_of(given: GeneratedQuantities | Mapping[str, Any] | None) -> GeneratedQuantities:
    """Return the quantities that a user gives, a dictionary or an object, with data as arrays. Raises ModelError."""
    if given is None:
        return GeneratedQuantities()
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in GeneratedQuantities._fields]
        if unknown:
            raise ModelError(
                f"generated has no group {unknown[0]!r}; the groups are {', '.join(GeneratedQuantities._fields)}."
            )
        given = GeneratedQuantities(**given)
    if not isinstance(given, GeneratedQuantities):
        raise ModelError(f"generated must be a refhmc.GeneratedQuantities or a dictionary; got {type(given).__name__}.")
    for name in GeneratedQuantities._fields[:4]:
        function = getattr(given, name)
        if function is not None and not callable(function):
            raise ModelError(f"generated: {name} must be a function; got {type(function).__name__}.")
    if given.prior_predictive is not None and given.prior is None:
        raise ModelError("generated: prior_predictive needs prior, which draws the values that it takes; give both.")
    observed, constant = (_arrays(name, getattr(given, name)) for name in DATA)
    return given._replace(observed_data=observed, constant_data=constant)


def frozen(value: object) -> np.ndarray:
    """Return the array if it is read-only, otherwise a read-only copy."""
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return value
    copy = np.array(value)
    copy.setflags(write=False)
    return copy


def _arrays(group: str, given: object) -> dict[str, np.ndarray]:
    if not isinstance(given, Mapping):
        raise ModelError(f"generated: {group} must be a dictionary of arrays; got {type(given).__name__}.")
    refuse_masked(f"generated: {group}", given, ModelError)
    found = {name: frozen(value) for name, value in given.items()}
    for name, value in found.items():
        check_storable(f"generated: {group}", name)
        if value.dtype.kind not in "fiubcU":
            raise ModelError(f"generated: {name!r} of {group} must be numbers or strings; got {value.dtype}.")
    return found

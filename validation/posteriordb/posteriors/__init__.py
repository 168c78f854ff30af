"""One file per posterior.

A file states the posterior in its docstring, with the source and the licence, and defines

- ``NAME``: the name in posteriordb;
- ``model(data)``: the model of refhmc for the data set, a dict as in posteriordb;
- ``in_numpyro(data)``: the same posterior as a NumPyro model without arguments, for peers. Its unconstrained coordinates are
  those of ``model``, perhaps in another order, so that both densities are equal up to a constant;
- ``reference_values(values)``, optional: posteriordb's parameters by name, from the values of ``model`` by name;
- ``exact(data)``, optional: mean and variance of each parameter, if posteriordb has no reference draws and they are known;
- ``WHY_NOT``, optional: why refhmc makes fewer effective draws than the best peer;
- ``HARD``, optional: why z-scores or R-hat of NUTS may be above their limits.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def all_posteriors() -> dict[str, ModuleType]:
    """Return the module of each posterior by its name in posteriordb."""
    found = [importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
    return {module.NAME: module for module in sorted(found, key=lambda module: module.NAME.lower())}

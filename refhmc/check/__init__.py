"""The conformance kit: check your own derivative, metric, integrator, kernel or sampler against the mathematics.

::

    import refhmc.check as rc
    print(rc.integrator(my_step, H=my_energy, dim=3, eps=0.1))
    rc.sampler(my_kernel, target="funnel").assert_ok()

Every check returns a :class:`Report`. Deterministic checks carry most of the weight; statistical checks come last.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {  # each in a directory in the plural, so that no submodule overwrites a function of this package
    "integrator": "integrators.integrator",
    "model": "models.model",
    "metric": "metrics.metric",
    "transition": "transitions.transition",
    "orbit": "orbits.orbit",
    "leap": "leaps.leap",
    "grid": "grids.grid",
    "coupling": "couplings.coupling",
    "tempering": "temperings.tempering",
    "stopping": "stoppings.stopping",
    "sampler": "samplers.sampler",
    "adaptation": "adaptations.adaptation",
    "batch": "reproducibility.batch",
    "randomness": "reproducibility.randomness",
    "sbc": "samplers.simulations",
    "transition_with_data": "samplers.random_data",
    "minibatch": "samplers.minibatches",
    "Report": "report",
    "Row": "report",
    "ConformanceError": "report",
    "InconclusiveError": "report",
    "Draws": "subject.draws",
}
CHECKS = tuple(name for name in _HOME if name.islower())
_MODULES = {"adapters": "adapters", "golden_vectors": "vectors.golden", "targets": "targets"}

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"refhmc.check.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"refhmc.check.{_MODULES[name]}")
    elif name == "model_and_sampler":
        from refhmc.check.own import warn_of_old_name

        warn_of_old_name("refhmc.check.model_and_sampler", "refhmc.check.sbc")
        return __getattr__("sbc")
    else:
        raise AttributeError(f"module 'refhmc.check' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

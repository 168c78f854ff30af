"""The conformance kit: hold your own derivative, metric, integrator, kernel or sampler against the mathematics.

    import refhmc.check as rc
    print(rc.integrator(my_step, H=my_energy, dim=3, eps=0.1))
    rc.sampler(my_kernel, target="funnel").assert_ok()

Every check returns a :class:`Report`. Deterministic checks come first and carry the weight; the statistical one is last.
"""

from __future__ import annotations

import importlib

_HOME = {
    "integrator": "integrators",
    "model": "models",
    "metric": "metrics",
    "transition": "transitions",
    "orbit": "orbits",
    "sampler": "samplers",
    "adaptation": "adaptations",
    "batch": "batches",
    "randomness": "recorded_randomness",
    "model_and_sampler": "simulations",
    "minibatch": "minibatches",
    "Report": "report",
    "Row": "report",
    "ConformanceError": "report",
    "InconclusiveError": "report",
    "Draws": "draws",
}
_MODULES = ("adapters", "golden_vectors", "targets")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(importlib.import_module(f"refhmc.check.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"refhmc.check.{name}")
    else:
        raise AttributeError(f"module 'refhmc.check' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

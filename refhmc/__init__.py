"""refhmc: reference Hamiltonian Monte Carlo, with every derivative written by hand.

    import refhmc
    result = refhmc.sample(refhmc.models.Funnel())

Everything is imported when it is first used, so that ``import refhmc`` takes a few milliseconds.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_HOME = {
    "sample": "refhmc.sampling",
    "Model": "refhmc.model",
    "Embedding": "refhmc.embedding",
    "Reference": "refhmc.reference",
    "Result": "refhmc.results",
    "DHMC": "refhmc.kernels",
    "HMC": "refhmc.kernels",
    "NUTS": "refhmc.kernels",
    "Gibbs": "refhmc.kernels",
    "Hamiltonian": "refhmc.hamiltonian",
    "DiscontinuousHamiltonian": "refhmc.discontinuous",
    "conditional": "refhmc.conditionals",
    "Trajectory": "refhmc.trajectory",
    "integrate": "refhmc.trajectory",
    "transition": "refhmc.replay",
}
_MODULES = (
    "check",
    "metrics",
    "integrators",
    "models",
    "kernels",
    "errors",
    "diagnostics",
    "progress",
    "datasets",
    "embedding",
    "compiled",
    "sample_stats",
)

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str):
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"refhmc.{name}")
    else:
        raise AttributeError(f"module 'refhmc' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

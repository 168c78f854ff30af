"""refhmc: reference Hamiltonian Monte Carlo, with every derivative written by hand.

    import refhmc
    result = refhmc.sample(refhmc.models.Funnel())

Everything is imported when it is first used, so that ``import refhmc`` takes a few milliseconds.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # that of ``typing``, which takes longer to import than all that is needed here
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOME = {
    "resume": "refhmc.sampling.resume",
    "sample": "refhmc.sampling.sample",
    "start": "refhmc.sampling.sample",
    "predict": "refhmc.sampling.prediction",
    "generate": "refhmc.sampling.generation",
    "Model": "refhmc.models.base",
    "Generated": "refhmc.models.generated",
    "Parameters": "refhmc.parameters",
    "Embedding": "refhmc.models.embedding",
    "Reference": "refhmc.models.reference",
    "Recommended": "refhmc.models.recommended",
    "Result": "refhmc.sampling.result",
    "DHMC": "refhmc.kernels",
    "HMC": "refhmc.kernels",
    "NUTS": "refhmc.kernels",
    "Gibbs": "refhmc.kernels",
    "SGD": "refhmc.kernels",
    "SGLD": "refhmc.kernels",
    "SGHMC": "refhmc.kernels",
    "Hamiltonian": "refhmc.dynamics.hamiltonian",
    "DiscontinuousHamiltonian": "refhmc.dynamics.discontinuous",
    "conditional": "refhmc.models.conditionals",
    "Trajectory": "refhmc.dynamics.trajectory",
    "integrate": "refhmc.dynamics.trajectory",
    "transition": "refhmc.sampling.transition",
    "derive": "refhmc.derived.from_sympy",
    "from_pymc": "refhmc.derived.from_pymc",
    "from_bridgestan": "refhmc.derived.from_bridgestan",
    "from_jax": "refhmc.derived.from_jax",
    "from_numpyro": "refhmc.derived.from_jax",
}
_MODULES = {
    **{
        name: f"refhmc.{name}"
        for name in (
            "check",
            "metrics",
            "integrators",
            "models",
            "kernels",
            "errors",
            "diagnostics",
            "uncertainty",
            "plot",
            "parameters",
        )
    },
    "progress": "refhmc.sampling.progress",
    "arrays": "refhmc.arrays",
    "datasets": "refhmc.models.datasets",
    "embedding": "refhmc.models.embedding",
    "compiled": "refhmc.core.compiled",
    "sample_stats": "refhmc.core.sample_stats",
}

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'refhmc' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

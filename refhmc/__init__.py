"""refhmc: reference Hamiltonian Monte Carlo, with hand-written derivatives.

::

    import refhmc
    result = refhmc.sample(refhmc.models.Funnel())

Every name is imported at its first use, so that ``import refhmc`` takes a few milliseconds. ``refhmc.check`` only needs NumPy
and SciPy. An error about another package that is missing names the install command.
"""

from __future__ import annotations

from refhmc._dependencies import import_module

TYPE_CHECKING = False  # that of ``typing``, which takes longer to import than the rest of this module
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOME = {
    "resume": "refhmc.sampling.resume",
    "sample": "refhmc.sampling.sample",
    "start": "refhmc.sampling.sample",
    "Until": "refhmc.sampling.until",
    "predict": "refhmc.sampling.results.prediction",
    "generate": "refhmc.sampling.results.generated_quantities",
    "Model": "refhmc.models.base",
    "GeneratedQuantities": "refhmc.models.generated",
    "Parameters": "refhmc.parameters",
    "Embedding": "refhmc.models.embedding",
    "Reference": "refhmc.models.reference",
    "Recommended": "refhmc.models.recommended",
    "Result": "refhmc.sampling.results.result",
    "ProgressReport": "refhmc.sampling.progress",
    "Numba": "refhmc.backends",
    "Arrays": "refhmc.backends",
    "CuPy": "refhmc.backends",
    "DHMC": "refhmc.kernels",
    "HMC": "refhmc.kernels",
    "GHMC": "refhmc.kernels",
    "DRHMC": "refhmc.kernels",
    "MALT": "refhmc.kernels",
    "MAMS": "refhmc.kernels",
    "MCLMC": "refhmc.kernels",
    "GIST": "refhmc.kernels",
    "AutoStep": "refhmc.kernels",
    "NUTS": "refhmc.kernels",
    "WALNUTS": "refhmc.kernels",
    "Gibbs": "refhmc.kernels",
    "Tempered": "refhmc.kernels",
    "SGD": "refhmc.kernels",
    "SGLD": "refhmc.kernels",
    "SGHMC": "refhmc.kernels",
    "Hamiltonian": "refhmc.dynamics.hamiltonian",
    "DiscontinuousHamiltonian": "refhmc.dynamics.discontinuous",
    "conditional": "refhmc.models.conditionals",
    "Trajectory": "refhmc.dynamics.trajectory",
    "integrate": "refhmc.dynamics.trajectory",
    "transition": "refhmc.sampling.transition",
    "coupled": "refhmc.sampling.coupled",
    "Coupled": "refhmc.sampling.coupled",
    "from_sympy": "refhmc.derived.from_sympy",
    "from_pymc": "refhmc.derived.from_pymc",
    "from_bridgestan": "refhmc.derived.from_bridgestan",
    "from_jax": "refhmc.derived.from_jax",
    "from_numpyro": "refhmc.derived.from_jax",
}
_MODULES = {
    **{
        name: f"refhmc.{name}"
        for name in (
            "array_api",
            "backends",
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
    "datasets": "refhmc.models.datasets",
    "embedding": "refhmc.models.embedding",
}
# Old names, which still work in this release, with their replacements.
_RENAMED = {"derive": "from_sympy", "Generated": "GeneratedQuantities", "arrays": "array_api"}
_NO_LONGER_PUBLIC = {
    "progress": ("refhmc.sampling.progress", "refhmc.ProgressReport"),
    "compiled": ("refhmc.compile.compiled", "refhmc.compile.compiled, which is not public"),
    "sample_stats": ("refhmc.core.sample_stats", "refhmc.diagnostics.OUTCOMES for the codes of outcomes"),
}

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name], f"refhmc.{name}"), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name], f"refhmc.{name}")
    elif name in _RENAMED or name in _NO_LONGER_PUBLIC:
        from refhmc._deprecated import warn_of_old_name

        home, new = _NO_LONGER_PUBLIC.get(name, ("", f"refhmc.{_RENAMED.get(name)}"))
        warn_of_old_name(f"refhmc.{name}", new)
        return import_module(home, new) if home else __getattr__(_RENAMED[name])
    else:
        raise AttributeError(f"module 'refhmc' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

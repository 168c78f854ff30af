"""Interface from the conformance kit to refhmc: no other file of the kit imports the library.

    PUBLIC      public objects: ``own.models.Funnel(2)``, ``own.integrate(...)``
    INTERNAL    internal modules, which only the golden vectors and the protocol need

Both are imported on first use, so that a check of a NumPy function loads neither Numba nor compiled code.
``refhmc.numerics.differences`` only needs NumPy. Errors, the version and the package data are imported directly.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from typing import Any

import numpy as np

import refhmc
from refhmc._dependencies import import_module
from refhmc._dependencies import missing_dependency as missing_dependency
from refhmc._deprecated import warn_of_old_name as warn_of_old_name
from refhmc.numerics import differences as differences

PUBLIC = {
    *(
        "HMC",
        "NUTS",
        "GHMC",
        "DRHMC",
        "MALT",
        "MAMS",
        "MCLMC",
        "WALNUTS",
        "GIST",
        "AutoStep",
        "SGD",
        "SGLD",
        "SGHMC",
        "Hamiltonian",
        "DiscontinuousHamiltonian",
        "Model",
        "Reference",
    ),
    *("array_api", "integrators", "metrics", "models", "integrate", "sample", "transition"),
}
INTERNAL = {
    "compiled": "refhmc.compile.compiled",
    "records": "refhmc.core.records",
    "defaults": "refhmc.integrators.defaults",
    "dual_averaging": "refhmc.adaptation.dual_averaging",
    "welford": "refhmc.adaptation.welford",
    "windows": "refhmc.adaptation.windows",
}


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(refhmc, name)
    if name in INTERNAL:
        return import_module(INTERNAL[name], INTERNAL[name])
    raise AttributeError(f"module 'refhmc.check.own' has no attribute {name!r}")


def is_compiled() -> bool:
    """Return whether Numba is installed, without which refhmc has no models, metrics, integrators and kernels."""
    return importlib.util.find_spec("numba") is not None


# ------------------------------------------------------------------------------------------------ objects of the caller


def is_integrator(value: Any) -> bool:
    """Return whether ``value`` is an integrator for :func:`refhmc.integrate` rather than a step function."""
    return not callable(value) and all(hasattr(value, claim) for claim in ("order", "symplectic", "reversible"))


def is_kernel(value: Any) -> bool:
    """Return whether ``value`` is a kernel for :func:`refhmc.sample` rather than a function."""
    one = callable(getattr(value, "transition", None)) and hasattr(value, "statistics")
    return not callable(value) and (one or hasattr(value, "blocks"))


def evaluation(H: Any) -> Any:
    """Return ``(q, p) -> (H, dH/dp, dH/dq)`` in one call if ``H`` is a :class:`refhmc.Hamiltonian`, else None."""
    loaded = sys.modules.get("refhmc.dynamics.hamiltonian")  # if it is not loaded, H is not one of its classes
    return H._evaluate if loaded is not None and type(H) is loaded.Hamiltonian else None


# ------------------------------------------------------------------------------------------------ compiled and derived


def compile_step(H: Any, integrator: Any) -> None:
    """Compile a step and the energy, so that the time limit of a check does not include compilation."""
    from refhmc.dynamics.assemble import make_dynamics

    make_dynamics(H.model, H.metric, integrator).compile(H.model.name)
    with contextlib.suppress(Exception):  # a step that raises here also raises in its examination
        q = np.zeros(H.model.dim)
        p = H.draw_momentum(q, np.random.default_rng(0))
        refhmc.integrate(H, integrator, q, p, step_size=1e-3, n_steps=1)
        H.energy(q, p)


def with_jumps(model: Any, coordinates: tuple[int, ...]) -> Any:
    """Return ``model`` declared as discontinuous along ``coordinates``, whether it is or not."""
    functions = {key: getattr(model.functions, key) for key in ("log_density", "gradient", "value_and_gradient")}
    return refhmc.Model(model.dim, **functions, data=model.data, discontinuous=coordinates, name=model.name)

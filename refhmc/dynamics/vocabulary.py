"""Metrics and integrators by the names they have on the command line, in the protocol and in the golden vectors.

Hyphens and underscores are the same: "generalized-leapfrog" is "generalized_leapfrog".
"""

from __future__ import annotations

from typing import Any

METRICS = {
    "identity": "Identity",
    "diagonal": "Diagonal",
    "dense": "Dense",
    "fisher": "Fisher",
    "softabs": "SoftAbs",
    "diagonal_softabs": "DiagonalSoftAbs",
    "outer_product_softabs": "OuterProductSoftAbs",
    "diagonal_outer_product_softabs": "DiagonalOuterProductSoftAbs",
}
INTEGRATORS = {
    "leapfrog": "Leapfrog",
    "implicit_midpoint": "ImplicitMidpoint",
    "generalized_leapfrog": "GeneralizedLeapfrog",
    "explicit_tao": "ExplicitTao",
    "projected_tao": "ProjectedTao",
    "yoshida": "Yoshida",
    "suzuki": "Suzuki",
}


def metric_class(name: str) -> type[Any]:
    """The class of :mod:`refhmc.metrics` of that name; KeyError if there is none."""
    import refhmc

    return getattr(refhmc.metrics, METRICS[name.replace("-", "_")])


def integrator_class(name: str) -> type[Any]:
    """The class of :mod:`refhmc.integrators` of that name; KeyError if there is none."""
    import refhmc

    return getattr(refhmc.integrators, INTEGRATORS[name.replace("-", "_")])

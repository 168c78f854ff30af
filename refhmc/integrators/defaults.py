"""The metric and the integrator that a kernel takes where it is given none, and which two go together."""

from __future__ import annotations

from typing import Any

from refhmc.integrators import ImplicitMidpoint, Leapfrog
from refhmc.metrics import Diagonal, Identity, LowRank


def resolve(metric: Any, integrator: Any) -> tuple:
    """Metric and integrator with the defaults for what is None; TypeError or ValueError for what cannot be."""
    if metric is None:
        metric = default_metric(getattr(integrator, "base", integrator))
    _require(
        metric, "metric", "refhmc.metrics", ("geometry", "refresh", "reads", "stacks", "options", "position_dependent")
    )
    if integrator is None:
        integrator = ImplicitMidpoint() if metric.position_dependent else Leapfrog()
    _require(
        integrator, "integrator", "refhmc.integrators", ("pointer", "layout", "options", "order", "exact", "implicit")
    )
    part = getattr(integrator, "base", integrator)
    if metric.position_dependent and getattr(part, "constant_metric", False):
        name = "leapfrog" if isinstance(part, Leapfrog) else type(part).__name__
        raise ValueError(
            f"the {name} needs a constant mass matrix: on {type(metric).__name__}, which depends on the position, its steps "
            "are neither symplectic nor reversible. Use ImplicitMidpoint, GeneralizedLeapfrog or ProjectedTao."
        )
    return metric, integrator


def default_metric(integrator: Any) -> Any:
    """What "auto" is: a metric of low rank, which begins diagonal and learns directions where they pay; ``Diagonal()`` for an
    integrator that never has the whole gradient, ``Identity()`` for one that has the metric in it."""
    if getattr(integrator, "fixed_metric", False):
        return Identity()
    return Diagonal() if getattr(integrator, "follows_parts", False) else LowRank()


def _require(given: Any, what: str, where: str, names: tuple[str, ...]) -> None:
    lacks = [name for name in names if not hasattr(given, name)]
    if isinstance(given, type) or lacks:
        said = f"the class {given.__name__}: call it" if isinstance(given, type) else type(given).__name__
        missing = f", which lacks {', '.join(lacks)}" if lacks and len(lacks) < len(names) else ""
        raise TypeError(f"{what} must be one of {where}, got {said}{missing}")

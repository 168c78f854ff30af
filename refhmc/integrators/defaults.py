"""Defaults of a kernel's metric and integrator, and which two fit together."""

from __future__ import annotations

from refhmc.integrators import BlockLeapfrog, ImplicitMidpoint, Leapfrog
from refhmc.integrators.base import Integrator
from refhmc.metrics import Diagonal, Hierarchical, Identity, LowRank
from refhmc.metrics.base import Metric
from refhmc.metrics.hierarchical import identity


def resolve(metric: Metric | None, integrator: Integrator | None) -> tuple:
    """Return metric and integrator, with the defaults for None. Raises TypeError or ValueError for invalid combinations.

    A learned ``Hierarchical()`` begins as ``LowRank()``.
    """
    if isinstance(metric, Hierarchical) and metric.learns:
        if integrator is not None:
            resolve(identity(1), integrator)
        metric = LowRank()
    if metric is None:
        metric = default_metric(getattr(integrator, "base", integrator))
    _require(
        metric, "metric", "refhmc.metrics", ("geometry", "refresh", "reads", "stacks", "options", "position_dependent")
    )
    if integrator is None:
        integrator = default_integrator(metric)
    _require(
        integrator, "integrator", "refhmc.integrators", ("pointer", "layout", "options", "order", "exact", "implicit")
    )
    part = getattr(integrator, "base", integrator)
    if metric.position_dependent and getattr(part, "constant_metric", False):
        name = "the leapfrog" if isinstance(part, Leapfrog) else type(part).__name__
        raise ValueError(
            f"metric must be constant for {name}; got {type(metric).__name__}, which depends on the position. With it the "
            "steps are neither symplectic nor reversible. Use ImplicitMidpoint, GeneralizedLeapfrog or ProjectedTao."
        )
    return metric, integrator


def default_integrator(metric: Metric) -> Integrator:
    """Return the integrator for "auto": explicit if the metric allows it."""
    if isinstance(metric, Hierarchical):
        return BlockLeapfrog()
    return ImplicitMidpoint() if metric.position_dependent else Leapfrog()


def default_metric(integrator: Integrator | None) -> Metric:
    """Return the metric for "auto".

    This is a metric of low rank, which starts diagonal and learns those directions that pay. (Kernels then look for a
    hierarchy, :mod:`refhmc.adaptation.from_pairs`.) It is ``Diagonal()`` for an
    integrator that never has the whole gradient, and ``Identity()`` for one that contains the metric.
    """
    if getattr(integrator, "fixed_metric", False):
        return Identity()
    return Diagonal() if getattr(integrator, "follows_parts", False) else LowRank()


def _require(given: object, what: str, where: str, names: tuple[str, ...]) -> None:
    """Raise TypeError unless the object has the attributes of its protocol."""
    lacks = [name for name in names if not hasattr(given, name)]
    if isinstance(given, type) or lacks:
        said = f"the class {given.__name__}. Give an object" if isinstance(given, type) else type(given).__name__
        missing = f", which has no {', '.join(lacks)}" if lacks and len(lacks) < len(names) else ""
        raise TypeError(f"{what} must be an object of {where} or your own; got {said}{missing}.")

"""The metric and the integrator that a kernel takes where it is given none, and which two go together."""

from __future__ import annotations

from refhmc.integrators import INTEGRATORS, ImplicitMidpoint, Leapfrog
from refhmc.metrics import METRICS, Diagonal


def resolve(metric, integrator) -> tuple:
    """Metric and integrator with the defaults for what is None; TypeError or ValueError for what cannot be."""
    metric = Diagonal() if metric is None else metric
    if not isinstance(metric, METRICS):
        raise TypeError(f"metric must be one of refhmc.metrics, got {type(metric).__name__}")
    if integrator is None:
        integrator = ImplicitMidpoint() if metric.position_dependent else Leapfrog()
    if not isinstance(integrator, INTEGRATORS):
        raise TypeError(f"integrator must be one of refhmc.integrators, got {type(integrator).__name__}")
    if metric.position_dependent and isinstance(getattr(integrator, "base", integrator), Leapfrog):
        raise ValueError(
            f"the leapfrog needs a constant mass matrix: on {type(metric).__name__}, which depends on the position, its steps "
            "are neither symplectic nor reversible. Use ImplicitMidpoint, GeneralizedLeapfrog or ProjectedTao."
        )
    return metric, integrator

"""What the kernels' options have in common: step size, target acceptance, metric, integrator."""

from __future__ import annotations

import math

from refhmc.integrators import Leapfrog
from refhmc.metrics import Dense, Diagonal, Identity


def check_options(kernel) -> None:
    """Raise ValueError or TypeError, with the name and the value, for an option that cannot be."""
    step_size = kernel.step_size
    if step_size is not None and not (step_size > 0 and math.isfinite(step_size)):
        raise ValueError(f"step_size must be positive and finite, got {step_size!r}")
    target = kernel.target_accept
    if target is not None and not 0 < target < 1:
        raise ValueError(f"target_accept must lie between 0 and 1, got {target!r}")
    if not isinstance(kernel.metric, Identity | Diagonal | Dense | None):
        raise TypeError(f"metric must be one of refhmc.metrics, got {type(kernel.metric).__name__}")
    if not isinstance(kernel.integrator, Leapfrog | None):
        raise TypeError(f"integrator must be one of refhmc.integrators, got {type(kernel.integrator).__name__}")

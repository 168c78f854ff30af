"""Named parameters with supports: the user gives the density of constrained values, refhmc adds the transforms.

::

    from refhmc.parameters import Parameters, Positive, Real
    parameters = Parameters(mu=Real(), tau=Positive(), theta=Real(shape=8, dims="school"))
    model = parameters.model(log_density, gradient, data=(y, sigma))

:mod:`refhmc.parameters.supports` lists the supports with their coordinates.
"""

from __future__ import annotations

from refhmc.parameters.parameters import Parameters
from refhmc.parameters.supports import (
    Above,
    Below,
    CholeskyCorrelation,
    Interval,
    Ordered,
    Positive,
    Real,
    Simplex,
    Support,
)

__all__ = [
    "Above",
    "Below",
    "CholeskyCorrelation",
    "Interval",
    "Ordered",
    "Parameters",
    "Positive",
    "Real",
    "Simplex",
    "Support",
]

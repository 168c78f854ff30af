"""What is known exactly, or nearly so, about a model's distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Reference(NamedTuple):
    """Known truth about a model. Fields that are not known are ``None``.

    ``mean`` and ``variance`` are vectors over the *constrained* values, flattened in the order in which
    ``model.constrain`` names them (``model.reference_names`` spells that order out). The standard errors are zero
    where the truth is exact, and those of the published reference draws where it is not.
    ``draw(rng, n)`` gives (n, d) independent exact draws of the unconstrained position.
    """

    source: str
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None
    mean_se: np.ndarray | float = 0.0
    variance_se: np.ndarray | float = 0.0
    draw: Callable[[np.random.Generator, int], np.ndarray] | None = None

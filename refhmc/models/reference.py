"""Known moments and exact draws of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Reference(NamedTuple):
    """Known moments and exact draws of a model.

    Parameters
    ----------
    source : str
        Origin of the values, such as "closed form".
    mean : ndarray, optional
        Means of the constrained values, flattened in the order of ``model.reference_names``. None if they are not known.
    variance : ndarray, optional
        Variances of the same values. None if they are not known.
    mean_se : ndarray or float, default 0.0
        Standard errors of `mean`: zero if exact, otherwise those of the published draws.
    variance_se : ndarray or float, default 0.0
        Standard errors of `variance`.
    draw : callable, optional
        Function of ``(rng, n)`` that returns ``n`` independent exact draws of the unconstrained position, of shape (n, d).

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> reference = refhmc.models.Funnel(2).reference
    >>> reference.draw(np.random.default_rng(1), 5).shape
    (5, 3)
    """

    source: str
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None
    mean_se: np.ndarray | float = 0.0
    variance_se: np.ndarray | float = 0.0
    draw: Callable[[np.random.Generator, int], np.ndarray] | None = None

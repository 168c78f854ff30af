"""Kernels that the array backends can run."""

from __future__ import annotations

import dataclasses
from typing import Any

from refhmc.batch.draw import TRANSITIONS
from refhmc.integrators.defaults import resolve
from refhmc.kernels.options import Kernel
from refhmc.metrics import Diagonal
from refhmc.metrics.base import FROM_PAIRS, NOTHING


def kernel_on_arrays(kernel: Any) -> Kernel:
    """Return the kernel with ``Diagonal()`` for "auto", whose adaptation needs backend "numba".

    Raises TypeError or ValueError for a kernel, an integrator or a metric that array backends cannot run.
    """
    name = getattr(kernel, "name", type(kernel).__name__)
    if name not in TRANSITIONS:
        raise TypeError(
            f"kernel must be one of {', '.join(map(str.upper, TRANSITIONS))} with backend='arrays' or 'cupy'; got "
            f"{type(kernel).__name__}. Use backend='numba' for it."
        )
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    if not hasattr(getattr(integrator, "base", integrator), "on_arrays"):
        raise ValueError(
            f"integrator must have an array implementation; got {type(integrator).__name__}. Use backend='numba' for it."
        )
    if metric.learns != NOTHING and not getattr(metric, "learned_values", ()):
        raise ValueError(
            f"metric must name in its attribute learned_values what warm-up learns, for this backend; got "
            f"{type(metric).__name__}, which names nothing. Define it (docs/how_to_add.md), or use backend='numba'."
        )
    if metric.learns != FROM_PAIRS or getattr(kernel, "jumping", False):
        return kernel
    if kernel.metric is None:
        return dataclasses.replace(kernel, metric=Diagonal())
    raise ValueError(
        "metric must be Diagonal(), Dense() or a metric with given values for this backend; got "
        f"{type(metric).__name__}, which is adapted from gradients. Use backend='numba' for it."
    )

"""The kernel of ``sample`` if its argument is None or a name."""

from __future__ import annotations

from typing import Any

from refhmc.kernels import DHMC, KERNELS, NUTS
from refhmc.kernels.options import named
from refhmc.metrics import METRICS


def kernel_for(model: Any, kernel: Any) -> Any:
    """Return `kernel`, the kernel of that name, or for None the model's; raises ValueError for an unknown name."""
    if isinstance(kernel, str):
        kernel = named(kernel, "kernel", KERNELS)
    return recommended_kernel(model) if kernel is None else kernel


def recommended_kernel(model: Any) -> Any:
    """Return the kernel of ``model.recommended``, else ``DHMC()`` for discontinuous coordinates, else ``NUTS()``."""
    advice = getattr(model, "recommended", None)
    if advice is not None and advice.kernel:
        metric: dict[str, Any] = {"metric": advice.metric} if advice.metric else {}
        if advice.metric_options:
            metric = {"metric": METRICS[advice.metric](**dict(advice.metric_options))}
        return KERNELS[advice.kernel](**metric, **dict(advice.options))
    return DHMC() if len(getattr(model, "discontinuous", ())) else NUTS()

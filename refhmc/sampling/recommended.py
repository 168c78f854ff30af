"""The kernel of ``sample`` if its argument is None or a name."""

from __future__ import annotations

from refhmc.kernels import DHMC, KERNELS, NUTS
from refhmc.kernels.options import AnyKernel, named
from refhmc.metrics import METRICS
from refhmc.models.base import Model


def kernel_for(model: Model, kernel: AnyKernel | str | None) -> AnyKernel:
    """Return `kernel`, the kernel of that name, or for None the model's; raises ValueError for an unknown name."""
    found = named(kernel, "kernel", KERNELS) if isinstance(kernel, str) else kernel
    return recommended_kernel(model) if found is None else found


def recommended_kernel(model: Model) -> AnyKernel:
    """Return the kernel of ``model.recommended``, else ``DHMC()`` for discontinuous coordinates, else ``NUTS()``."""
    advice = getattr(model, "recommended", None)
    if advice is not None and advice.kernel:
        metric: dict[str, object] = {"metric": advice.metric} if advice.metric else {}
        if advice.metric_options:
            metric = {"metric": METRICS[advice.metric](**dict(advice.metric_options))}
        return KERNELS[advice.kernel](**metric, **dict(advice.options))
    return DHMC() if len(getattr(model, "discontinuous", ())) else NUTS()

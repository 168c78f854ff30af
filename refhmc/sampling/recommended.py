"""The kernel that ``sample`` takes where it is given none."""

from __future__ import annotations

from typing import Any

from refhmc.kernels import DHMC, KERNELS, NUTS
from refhmc.metrics import METRICS


def recommended_kernel(model: Any) -> Any:
    """That of ``model.recommended``; else ``DHMC()`` where coordinates jump, and ``NUTS()``."""
    advice = getattr(model, "recommended", None)
    if advice is not None and advice.kernel:
        metric = {"metric": METRICS[advice.metric]()} if advice.metric else {}
        return KERNELS[advice.kernel](**metric, **dict(advice.options))
    return DHMC() if len(getattr(model, "discontinuous", ())) else NUTS()

"""The kernel that ``sample`` takes where it is given none, or a word."""

from __future__ import annotations

from typing import Any

from refhmc.kernels import DHMC, KERNELS, NUTS


def kernel_for(model: Any, kernel: Any) -> Any:
    """``kernel``, or that which its name, "nuts", or for None the model says. Raises ValueError for another word."""
    if kernel is None:
        return recommended_kernel(model)
    if not isinstance(kernel, str):
        return kernel
    there = KERNELS.made_alone()
    if kernel.lower() not in there:
        raise ValueError(f"kernel must be a kernel of refhmc's or one of the words {', '.join(there)}; got {kernel!r}")
    return KERNELS[kernel.lower()]()


def recommended_kernel(model: Any) -> Any:
    """That of ``model.recommended``; else ``DHMC()`` where coordinates jump, and ``NUTS()``."""
    advice = getattr(model, "recommended", None)
    if advice is not None and advice.kernel:
        metric = {"metric": advice.metric} if advice.metric else {}
        return KERNELS[advice.kernel](**metric, **dict(advice.options))
    return DHMC() if len(getattr(model, "discontinuous", ())) else NUTS()

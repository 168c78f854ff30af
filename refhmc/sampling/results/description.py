"""The attributes of a result that describe its run."""

from __future__ import annotations

from typing import Any

from refhmc.integrators.defaults import resolve
from refhmc.kernels.blocks import blocks_of
from refhmc.kernels.options import AnyKernel
from refhmc.sampling.results.result import Result
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.kernel_json import kernel_as_json


def without_draws(spec: RunSpec) -> Result:
    """Return a result without draws, with the attributes that describe the run."""
    import refhmc

    model = spec.model
    attributes = {
        "refhmc_version": refhmc.__version__,
        "inference_library": "refhmc",
        "kernel": kernel_as_json(spec.kernel),
        "entropy": spec.entropy,
        "model": model.name,
        "model_fingerprint": model.fingerprint(),
        "model_runs_as_python": model.runs_as_python or "",
        "draws": spec.draws,
        "tuning_steps": spec.tune,
        "preflight": bool(spec.preflight),
        "exact": inexact_part(spec.kernel) is None,
        "adaptation": "",
        "backend": spec.backend.name,
    }
    if approximate := getattr(model, "approximate", None):
        attributes["approximate_derivatives"] = [f"{name} {how}" for name, how in approximate.items()]
    return Result({}, attributes, dims=model.dims, coords=model.coords)


def inexact_part(kernel: AnyKernel) -> Any:
    """Return the first of the kernel's blocks, or of their integrators, that is not exact; None if there is none."""
    for part in blocks_of(kernel).values():
        integrator = resolve(part.metric, part.integrator)[1]
        if not getattr(part, "exact", True):
            return part
        is_nuts = getattr(part, "name", "") == "nuts"
        if not (integrator.exact or (is_nuts and getattr(integrator, "exact_in_nuts", False))):
            return integrator
    return None

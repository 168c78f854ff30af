"""From the arguments of a run to the run: prepare an engine, and check the model before the first draw."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import numpy as np

from refhmc.backends import Numba
from refhmc.compile import compiled
from refhmc.core import arviz
from refhmc.errors import DiscontinuityWarning, PrecisionWarning
from refhmc.sampling.chains.arrays_engine import ArraysEngine
from refhmc.sampling.chains.compiled_engine import CompiledEngine
from refhmc.sampling.chains.engine import Engine
from refhmc.sampling.checks import discontinuity
from refhmc.sampling.checks.memory_estimate import check_memory
from refhmc.sampling.checks.preflight import check_derivatives, check_gradient
from refhmc.sampling.checks.user_functions import check_functions, check_variables
from refhmc.sampling.progress import Display, make_display
from refhmc.sampling.results.generated_quantities import check_groups
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.run_warnings import inexact_part
from refhmc.sampling.run import Run
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.kernel_json import kernel_as_json
from refhmc.sampling.until import check_names


def begin(spec: RunSpec) -> Run:
    """Return a run that is ready to draw. Raises the errors of :func:`refhmc.sample` before the first draw.

    Warnings name the line that called the caller.
    """
    model, display = spec.model, make_display(spec.progressbar)
    with contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(display.close)
        if not spec.raw:
            arviz.prepare()  # before the first draw, so that a missing or interrupted import costs no draws
        with announced(display):
            engine: Engine = CompiledEngine(spec) if isinstance(spec.backend, Numba) else ArraysEngine(spec)
            if_it_fails.callback(engine.close)
            check_functions(model, engine.plan, engine.first)
            engine.check_starts()
            check_variables(model, engine.first)
            imprecise = check_gradient(model, engine.first) if spec.preflight else None
            if spec.preflight:
                check_derivatives(engine.plan, engine.first)
            imprecise = engine.check_implementation() or imprecise
            if imprecise is not None:
                warnings.warn(imprecise, PrecisionWarning, stacklevel=3)
            generated = check_groups(model, engine.first, spec.generate, spec.chains, spec.draws)
            values = model.constrain(engine.first)
            if spec.until is not None:
                check_names(spec.until, values)
            check_memory(spec, sum(np.asarray(each).nbytes for each in values.values()), generated)
            jumps = discontinuity.declared(model, spec.kernel, engine.first)
            if jumps is not None:
                warnings.warn(jumps, DiscontinuityWarning, stacklevel=3)
            result = without_draws(spec)
            result.attributes.update(engine.attributes)
            chains = engine.open(result)
        if_it_fails.pop_all()
    return Run(spec, chains, result, display, imprecise, jumps)


@contextlib.contextmanager
def announced(display: Display) -> Iterator[None]:
    """Report compilation in at most two lines: one for the model, one for refhmc's own functions."""
    shown: set[str] = set()

    def announce(title: str) -> None:
        of_model = " model " in title and "fused" not in title
        text = "Compiling the model (first run only)" if of_model else "Compiling refhmc (about 20 s, first run only)"
        if text not in shown:
            shown.add(text)
            display.message(text)

    compiled.announce.append(announce)
    try:
        yield
    finally:
        compiled.announce.remove(announce)


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

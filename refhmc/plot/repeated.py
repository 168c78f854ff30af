"""The call of ``refhmc.sample`` that reproduces a run, written from the attributes of its result.

The result may be an untrusted file, and the reader will run the code. The code therefore consists only of names that refhmc
defines and of literals. Any other string of the file appears in a comment, quoted and on one line.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc import integrators, kernels, metrics
from refhmc.backends import BACKENDS, Numba
from refhmc.plot.runs import Run
from refhmc.sampling.storage.kernel_json import kernel_from_json

if TYPE_CHECKING:
    from refhmc.models.base import Model


def known_model(run: Run) -> tuple[str, Model] | None:
    """Return the built-in model with the run's name and fingerprint, and its command-line name, or None."""
    from refhmc import models

    for word, make in models.by_name().items():
        model = make()
        if (model.name, model.fingerprint()) == tuple(map(run.attributes.get, ("model", "model_fingerprint"))):
            return word, model
    return None


def repeated(run: Run) -> str:
    """Return Python code that reproduces the run, bit for bit with the same versions on the same kind of machine.

    A model or kernel that is not built in becomes a name with a comment.
    """
    about, known = run.attributes, known_model(run)
    remarks = []
    if known is None:
        model = "model"
        remarks.append(
            f"model: use the model {about.get('model', 'the model')!r}, with model.fingerprint() "
            f"{about.get('model_fingerprint', 'not known')!r}"
        )
    else:
        model = f"refhmc.models.by_name()[{known[0]!r}]()"
    own = kernel_from_json(about.get("kernel", ""))
    if own is None:
        remarks.append(f"kernel: use {about.get('kernel', 'the kernel of the run')!r}")
    kernel = "kernel" if own is None else source(own)
    backend, starts = about.get("backend"), about.get("starts", ())
    given = {
        "draws": about.get("draws", run.shape[1]),
        "tune": about.get("tuning_steps"),
        "chains": len(about.get("iterations_per_chain", run.chains)),
        "random_seed": int(about["entropy"]) if "entropy" in about else None,
        "init": "pathfinder" if "pathfinder" in starts else None,
        "backend": Numba(fuse=True)
        if (backend, about.get("fused")) == ("numba", 1)
        else backend
        if backend in BACKENDS
        else None,
        "save_warmup": True if any(name.startswith("warmup_") for name in run.groups) else None,
    }
    if {"initvals", "warmup"} & set(starts):
        remarks.append("also pass initvals= or warmup= of the run")
    if about.get("stopped_by"):
        remarks.append(f"the run was stopped by {about['stopped_by']!r}; this call completes it")
    options = "".join(f"    {key}={source(value)},\n" for key, value in given.items() if value is not None)
    notes = "".join(f"# {remark}\n" for remark in remarks)
    return f"import refhmc\n\n{notes}result = refhmc.sample(\n    {model},\n    {kernel},\n{options})\n"


def source(value: Any) -> str:
    """Return the source of a kernel, metric or integrator without its defaults, of a dictionary of these, or of a literal.

    A literal is None, a bool, number or string, or an array, list or tuple of these. Raises TypeError for anything else.
    """
    if isinstance(value, Numba):
        return f"refhmc.{value!r}"
    if dataclasses.is_dataclass(value):
        name = type(value).__name__
        where = next(f"{each.__name__}." for each in (kernels, metrics, integrators) if name in each.__all__)
        fields = {field.name: (getattr(value, field.name), field.default) for field in dataclasses.fields(value)}
        given = [f"{key}={source(each)}" for key, (each, default) in fields.items() if not is_default(each, default)]
        return f"{where.replace('.kernels', '')}{name}({', '.join(given)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{source(key)}: {source(each)}" for key, each in value.items()) + "}"
    if isinstance(value, np.ndarray):
        return source(value.tolist())
    if type(value) is float and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if type(value) is list:
        return f"[{', '.join(map(source, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(source, value))}{',' * (len(value) == 1)})"
    raise TypeError(f"{type(value).__name__} is not a literal")


def is_default(value: object, default: object) -> bool:
    return value is None or (type(value) is type(default) and value == default)

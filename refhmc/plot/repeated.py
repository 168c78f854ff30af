"""The call of ``refhmc.sample`` that reproduces a run, written from the attributes of its result.

The result may be an untrusted file, and the reader will run the code. The code therefore consists only of names that refhmc
defines and of literals. Any other string of the file appears in a comment, quoted and on one line.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from refhmc import integrators, kernels, metrics
from refhmc.backends import BACKENDS, Numba
from refhmc.plot.runs import Run

if TYPE_CHECKING:
    from refhmc.models.base import Model

# Package of the class that a dictionary describes, by parameter. A kernel is the outermost one, or that of a block.
PLACES = {
    "kernel": ("refhmc", kernels),
    "metric": ("refhmc.metrics", metrics),
    "integrator": ("refhmc.integrators", integrators),
    "base": ("refhmc.integrators", integrators),
}


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
    try:
        kernel = call(json.loads(about["kernel"]), "kernel")
    except (KeyError, TypeError, ValueError, RecursionError):
        kernel = "kernel"
        remarks.append(f"kernel: use {about.get('kernel', 'the kernel of the run')!r}")
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
    options = "".join(f"    {key}={literal(value)},\n" for key, value in given.items() if value is not None)
    notes = "".join(f"# {remark}\n" for remark in remarks)
    return f"import refhmc\n\n{notes}result = refhmc.sample(\n    {model},\n    {kernel},\n{options})\n"


def call(described: Mapping[str, Any], parameter: str) -> str:
    """Return the constructor call of a kernel, metric or integrator that ``kernel_as_json`` describes, without defaults.

    Raises KeyError, TypeError or ValueError for anything but the name of a class of refhmc, its parameters and literals.
    """
    where, package = PLACES[parameter]
    name = described["name"]
    if name not in package.__all__:
        raise KeyError(name)
    fields = {field.name: field for field in dataclasses.fields(getattr(package, name)) if field.init}
    arguments = []
    for key, value in described.items():
        if key == "name":
            continue
        if key not in fields:
            raise KeyError(key)
        if not is_default(value, fields[key].default):
            arguments.append(f"{fields[key].name}={argument(value, key)}")
    return f"{where}.{name}({', '.join(arguments)})"


def argument(value: Any, parameter: str) -> str:
    """Return the source of one argument: a call, the dictionary of a Gibbs kernel's blocks, or a literal."""
    if parameter == "blocks":
        pairs = [(tuple(block) if isinstance(block, list) else block, kernel) for block, kernel in value]
        return "{" + ", ".join(f"{literal(block)}: {call(kernel, 'kernel')}" for block, kernel in pairs) + "}"
    return call(value, parameter) if isinstance(value, dict) else literal(value)


def literal(value: object) -> str:
    """Return the source of None, a bool, number, string or Numba backend, or a list or tuple of these, or raise TypeError."""
    if type(value) is float and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, Numba):
        return f"refhmc.{value!r}"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if type(value) is list:
        return f"[{', '.join(map(literal, value))}]"
    if type(value) is tuple:
        return f"({''.join(literal(each) + ', ' for each in value).rstrip()})"
    raise TypeError(f"{type(value).__name__} is not a literal")


def is_default(value: object, default: object) -> bool:
    return value is None or (type(value) is type(default) and value == default)

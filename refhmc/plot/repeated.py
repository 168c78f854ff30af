"""How a run is made again: its attributes as a call of ``refhmc.sample``."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from refhmc import integrators, kernels, metrics
from refhmc.plot.runs import Run

if TYPE_CHECKING:
    from refhmc.models.base import Model

PLACES = (("refhmc", kernels), ("refhmc.metrics", metrics), ("refhmc.integrators", integrators))


def known_model(run: Run) -> tuple[str, Model] | None:
    """Of refhmc's own models with their canonical data the one that the run is of, by its fingerprint, and what the command
    line calls it; None if it is another."""
    from refhmc import models

    for word, make in models.by_name().items():
        model = make()
        if (model.name, model.fingerprint()) == tuple(map(run.attributes.get, ("model", "model_fingerprint"))):
            return word, model
    return None


def repeated(run: Run) -> str:
    """Python that draws the run again, bit for bit with the same versions on the same kind of machine.

    What the run does not hold, a model or kernel that is not refhmc's own, is left as a word with a remark.
    """
    about, known = run.attributes, known_model(run)
    remarks = []
    if known is None:
        model = "model"
        remarks.append(
            f"# model: {about.get('model', 'the model')!r} as it was; model.fingerprint() is "
            f"{about.get('model_fingerprint', 'not known')!r}"
        )
    else:
        model = f"refhmc.models.by_name()[{known[0]!r}]()"
    try:
        kernel = in_python(json.loads(about["kernel"]))
    except (KeyError, TypeError, ValueError):
        kernel = "kernel"
        remarks.append(f"# kernel: {about.get('kernel', 'as it was')}")
    given = {
        "draws": about.get("draws", run.shape[1]),
        "tune": about.get("tuning_steps"),
        "chains": len(about.get("iterations_per_chain", run.chains)),
        "random_seed": seed_of(about),
        "init": "pathfinder" if "pathfinder" in about.get("starts", ()) else None,
        "backend": None if about.get("backend") in (None, "numba") else about["backend"],
        "fuse": True if about.get("fused") else None,
        "save_warmup": True if any(name.startswith("warmup_") for name in run.groups) else None,
    }
    if {"initvals", "warmup"} & set(about.get("starts", ())):
        remarks.append("# initvals=, or warmup=: as they were")
    if about.get("stopped_by"):
        remarks.append(f"# the run was stopped by {about['stopped_by']}; this draws all that was asked for")
    options = "".join(f"    {key}={value!r},\n" for key, value in given.items() if value is not None)
    notes = "".join(" ".join(remark.split()) + "\n" for remark in remarks)
    return f"import refhmc\n\n{notes}result = refhmc.sample(\n    {model},\n    {kernel},\n{options})\n"


def seed_of(about: dict[str, Any]) -> int | None:
    """A seed that is larger than a file's integers is text there."""
    return None if "entropy" not in about else int(about["entropy"])


def in_python(said: Any, name: str = "") -> str:
    """The text that makes what ``kernel_as_json`` has told of a kernel, a metric or an integrator, defaults left out.

    Raises KeyError for what is not refhmc's own.
    """
    if isinstance(said, dict):
        where, kind = next(
            ((where, getattr(room, said["name"])) for where, room in PLACES if said["name"] in room.__all__),
            (None, None),
        )
        if kind is None:
            raise KeyError(said["name"])
        defaults = {field.name: field.default for field in dataclasses.fields(kind)}
        given = {key: value for key, value in said.items() if key != "name" and not same(value, defaults.get(key))}
        return f"{where}.{said['name']}({', '.join(f'{key}={in_python(value, key)}' for key, value in given.items())})"
    if name == "blocks":
        pairs = [f"{tuple(block) if isinstance(block, list) else block!r}: {in_python(each)}" for block, each in said]
        return "{" + ", ".join(pairs) + "}"
    return repr(said)


def same(value: Any, default: Any) -> bool:
    return value is None or (type(value) is type(default) and value == default)

"""Open the checkpoint of a run, and compare the run with what is in it."""

from __future__ import annotations

import warnings
from typing import Any

import numba

from refhmc.compile.fingerprint import CHANGES, Fingerprint, classes_in, fingerprint, settled
from refhmc.errors import CheckpointWarning, _see
from refhmc.models.base import Model
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.checkpoint import Checkpoint, describe_run
from refhmc.sampling.storage.kernel_json import kernel_as_json


def parts_of_run(model: Model, kernel: Any) -> Fingerprint:
    """Return the fingerprint of the model and of the kernel's classes, which may be subclasses of refhmc's."""
    of_model, of_kernel = model.made_of(), fingerprint(classes_in("the kernel", kernel))
    packages = tuple(sorted({*of_model.packages, *of_kernel.packages}))
    return Fingerprint({**of_model.parts, **of_kernel.parts}, packages, of_model.unknown + of_kernel.unknown)


def open_checkpoint(spec: RunSpec, parts: Fingerprint, starts: Any) -> Checkpoint:
    """Return the checkpoint of a run in its folder, new or checked to be of the same run.

    `parts` is the fingerprint from before the first evaluation. Warns of parts that cannot be compared.
    """
    model, kernel = spec.model, spec.kernel
    known = settled(parts, parts_of_run(model, kernel))
    settings = {
        "draws": spec.draws,
        "tune": spec.tune,
        "chains": spec.chains,
        "entropy": str(spec.entropy),
        "save_warmup": spec.save_warmup,
        "fuse": spec.fuse,
        "init": spec.init,
        "warmup": "" if spec.learned is None else fingerprint({"warmup": spec.learned}).parts["warmup"],
    }
    settings["compiled"] = (
        model.runs_as_python is None and not numba.config.DISABLE_JIT
    )  # else the last bits may differ
    settings["initvals"] = "random" if starts is None else fingerprint({"initvals": starts}).parts["initvals"]
    checkpoint = Checkpoint(
        spec.folder, describe_run(model, kernel_as_json(kernel), known, **settings), force=spec.force
    )
    checkpoint.open(starts)
    not_compared = [*known.unknown, *(f"{k} ({CHANGES})" for k, v in checkpoint.run["parts"].items() if v == CHANGES)]
    if not_compared:
        text = (
            f"The checkpoint cannot compare these parts of the model with a later run: {'; '.join(not_compared)}. If one of "
            "them changes, the run continues with another model without notice. Make sure that they are the same when you "
            f"resume. {_see('checkpoints')}"
        )
        try:
            warnings.warn(text, CheckpointWarning, stacklevel=5)
        except CheckpointWarning:
            checkpoint.close()
            raise
    return checkpoint

"""Kernels as JSON, which a checkpoint and a result hold, and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from refhmc import integrators, kernels, metrics
from refhmc.kernels import KERNELS
from refhmc.kernels.options import AnyKernel


def kernel_as_json(kernel: object) -> str:
    """Return ``{"kernel": "NUTS", "step_size": null, "metric": {...}, ...}``, with arrays as lists."""

    def plain(value: object) -> object:
        if dataclasses.is_dataclass(value):
            fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"name": type(value).__name__, **fields}
        if isinstance(value, Mapping):  # a list, since the order of the blocks matters
            return [[list(key) if isinstance(key, tuple) else key, plain(each)] for key, each in value.items()]
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    return json.dumps(plain(kernel))


# Package of the class that a dictionary describes, by parameter. A kernel is the outermost one, or that of a block.
PLACES = {"kernel": kernels, "metric": metrics, "integrator": integrators, "base": integrators}


def kernel_from_json(text: str) -> AnyKernel | None:
    """Return the kernel that :func:`kernel_as_json` described, or None unless all of it is refhmc's own."""
    try:
        kernel = part_of(json.loads(text), "kernel")
        own = isinstance(kernel, tuple(KERNELS.values())) and kernel_as_json(kernel) == text
    except Exception:  # a file may have values that a class does not expect
        return None
    return kernel if own else None


def part_of(described: Any, name: str) -> Any:
    """Return the kernel, metric, integrator or option called `name`, for its decoded text."""
    if isinstance(described, dict):
        if described["name"] not in PLACES[name].__all__:
            raise KeyError(described["name"])
        kind = getattr(PLACES[name], described["name"])
        return kind(**{key: part_of(value, key) for key, value in described.items() if key != "name"})
    if name == "blocks" and not all(isinstance(each[-1], dict) for each in described or [[None]]):
        return described  # of a metric: names
    if name == "blocks":
        return {tuple(of) if isinstance(of, list) else of: part_of(each, "kernel") for of, each in described}
    if name == "decay":  # the pair (b, gamma)
        return described if described is None else tuple(described)
    return np.array(described) if isinstance(described, list) else described

"""Kernels as JSON, which a checkpoint and a result hold, and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from refhmc import integrators, kernels, metrics


def kernel_as_json(kernel: Any) -> str:
    """Return ``{"kernel": "NUTS", "step_size": null, "metric": {...}, ...}``, with arrays as lists."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"name": type(value).__name__, **fields}
        if isinstance(value, Mapping):  # a list, since the order of the blocks matters
            return [[list(key) if isinstance(key, tuple) else key, plain(each)] for key, each in value.items()]
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    return json.dumps(plain(kernel))


def kernel_from_description(described: Any, name: str = "") -> Any:
    """Return the kernel, metric or integrator that :func:`kernel_as_json` described, for its decoded text."""
    if isinstance(described, dict):
        places = (kernels, metrics, integrators)
        kind: Any = {name: getattr(each, name) for each in places for name in each.__all__}[described["name"]]
        return kind(**{key: kernel_from_description(value, key) for key, value in described.items() if key != "name"})
    if name == "blocks":
        return {
            tuple(block) if isinstance(block, list) else block: kernel_from_description(each)
            for block, each in described
        }
    if name == "decay":  # the pair (b, gamma)
        return described if described is None else tuple(described)
    return np.array(described) if isinstance(described, list) else described

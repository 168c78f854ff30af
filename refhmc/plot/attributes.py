"""The attributes of a run that reports and plots use, with their types.

A file may come from an untrusted source. An attribute with an unexpected type is dropped before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

DIGITS = 1000  # longest seed: int() of a longer string is slow or rejected by Python


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def is_number(value: object) -> bool:
    return isinstance(value, int | float)


def is_flag(value: object) -> bool:
    return value in (0, 1) if isinstance(value, int | float) else False


def is_seed(value: object) -> bool:
    """Return whether it is a whole number or its digits: a file holds a large one as text."""
    digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= DIGITS
    return digits or is_whole(value)


def is_list_of(each: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(each, value))


TYPES: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("model", "model_fingerprint", "kernel", "adaptation", "backend", "device"), is_text),
    **dict.fromkeys(("stopped_by", "refhmc_version", "created_at"), is_text),
    **dict.fromkeys(("draws", "tuning_steps", "n_gradient_evaluations"), is_whole),
    **dict.fromkeys(("sampling_time", "compilation_time"), is_number),
    **dict.fromkeys(("exact", "fused"), is_flag),
    **dict.fromkeys(("chains", "iterations_per_chain"), is_list_of(is_whole)),
    **dict.fromkeys(("divergences_per_chain", "warmup_divergences_per_chain"), is_list_of(is_whole)),
    "starts": is_list_of(is_text),
    "entropy": is_seed,
}


def checked(attributes: Mapping[str, object]) -> dict[str, Any]:
    """Return the attributes without those of ``TYPES`` that have another type."""
    return {key: value for key, value in attributes.items() if key not in TYPES or TYPES[key](value)}

"""Reading the answers of steps and kernels: positions and momenta in any of the usual forms.

a position       q, (q, more), (q, p), an object or a mapping with q or position (and p or momentum), or one of these inside
a phase point    (q, p), (q, p, more), an array (2, d), an object with q and p
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refhmc.check.subject.foreign import Foreign, SubjectError, call_text, to_host

POSITIONS = ("q", "position", "x", "theta", "state", "z")
MOMENTA = ("p", "momentum", "r")
FLAGS = ("converged", "success", "ok", "failed", "diverging", "diverged")


def read_position(
    foreign: Foreign, answer: Any, shape: tuple[int, ...], asked: Sequence = ()
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the position in an answer, of ``shape``, and the momentum or None; SubjectError if there is no position.

    ``asked`` are the arguments of the call, for the error message.
    """
    q = _fitting(foreign, answer, shape)
    if q is not None:
        return q, None
    inner, beside = field(answer, POSITIONS), field(answer, MOMENTA)
    if inner is None and isinstance(answer, (tuple, list)) and answer:
        inner, beside = answer[0], answer[1] if len(answer) > 1 else None
    if inner is None:
        if foreign.array(answer, shape, "the returned position", asked).dtype.kind == "c":
            raise SubjectError(f"{foreign.name}: the returned position is complex")
        raise SubjectError(f"{foreign.name} returned a {type(answer).__name__} instead of a position")
    q, p = read_position(foreign, inner, shape, asked)
    number = isinstance(beside, (bool, int, float))  # for example a probability
    return q, _fitting(foreign, beside, shape) if p is None and not number else p


def field(answer: Any, names: Sequence[str]) -> Any:
    """Return the first of these entries of a mapping, or attributes of an object, that exists; else None."""
    values = (answer.get(n) if hasattr(answer, "keys") else getattr(answer, n, None) for n in names)
    return next((value for value in values if value is not None and not callable(value)), None)


def _fitting(foreign: Foreign, value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return ``value`` as real numbers of ``shape``, or None if it is something else."""
    if value is None or isinstance(value, (str, dict, bool)):
        return None
    try:
        array = foreign.array(value, shape, "")
    except SubjectError:
        return None
    return None if array.dtype.kind == "c" else array


def read_phase_point(
    foreign: Foreign, answer: Any, shape: tuple[int, ...], asked: Sequence
) -> tuple[np.ndarray, np.ndarray, list]:
    """Return position and momentum in a step's answer, each of ``shape``, and all further parts of the answer."""
    if hasattr(answer, "q") and hasattr(answer, "p"):
        parts = [answer.q, answer.p, *(getattr(answer, name) for name in FLAGS if hasattr(answer, name))]
    else:
        try:
            parts = [] if isinstance(answer, dict) else list(answer)
        except TypeError:
            parts = []
    if len(parts) < 2:
        what = f"{foreign.name} returned a {type(answer).__name__} instead of a pair (q, p)"
        raise SubjectError(what, call_text(foreign.name, asked))
    return (
        foreign.array(parts[0], shape, "the position", asked),
        foreign.array(parts[1], shape, "the momentum", asked),
        parts[2:],
    )


def truth_value(values: Sequence) -> bool | None:
    """Return the first truth value among them, or None."""
    for value in values:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        if getattr(value, "dtype", None) is not None and str(value.dtype).endswith("bool") and np.ndim(value) == 0:
            return bool(to_host(value))
    return None

"""What a step or a kernel of somebody else's answered: positions and momenta, wherever it put them.

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
    """The position in an answer, of ``shape``, and the momentum beside it; SubjectError where there is no position.

    ``asked``: the arguments of the call, for the error.
    """
    q = _fitting(foreign, answer, shape)
    if q is not None:
        return q, None
    inner, beside = field(answer, POSITIONS), field(answer, MOMENTA)
    if inner is None and isinstance(answer, (tuple, list)) and answer:
        inner, beside = answer[0], answer[1] if len(answer) > 1 else None
    if inner is None:
        if foreign.array(answer, shape, "the position it returned", asked).dtype.kind == "c":
            raise SubjectError(f"{foreign.name}: the position it returned is complex")
        raise SubjectError(f"{foreign.name}: the answer is a {type(answer).__name__}, not a position")
    q, p = read_position(foreign, inner, shape, asked)
    number = isinstance(beside, (bool, int, float))  # a probability, say
    return q, _fitting(foreign, beside, shape) if p is None and not number else p


def field(answer: Any, names: Sequence[str]) -> Any:
    """The first of these entries of a mapping, or attributes of an object, that it has; else None."""
    values = (answer.get(n) if hasattr(answer, "keys") else getattr(answer, n, None) for n in names)
    return next((value for value in values if value is not None and not callable(value)), None)


def _fitting(foreign: Foreign, value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """``value`` as real numbers of ``shape``; None if it is something else."""
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
    """The position and the momentum in a step's answer, each of ``shape``, and what came with them."""
    if hasattr(answer, "q") and hasattr(answer, "p"):
        parts = [answer.q, answer.p, *(getattr(answer, name) for name in FLAGS if hasattr(answer, name))]
    else:
        try:
            parts = [] if isinstance(answer, dict) else list(answer)
        except TypeError:
            parts = []
    if len(parts) < 2:
        what = f"{foreign.name} answered with a {type(answer).__name__}, not a pair (q, p)"
        raise SubjectError(what, call_text(foreign.name, asked))
    return (
        foreign.array(parts[0], shape, "the position", asked),
        foreign.array(parts[1], shape, "the momentum", asked),
        parts[2:],
    )


def truth_value(values: Sequence) -> bool | None:
    """The first truth value among them; None if there is none."""
    for value in values:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        if getattr(value, "dtype", None) is not None and str(value.dtype).endswith("bool") and np.ndim(value) == 0:
            return bool(to_host(value))
    return None

"""Positions at which a model could not be evaluated: message, count, iterations, and the first position.

A model that runs as Python reports this by raising :class:`refhmc.errors.EvaluationError`. Its log density is then -inf, and
its derivatives are NaN, so that the transition is a divergence. Each thread has its own log of messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

MAX_MESSAGES = 20  # different messages; the rest are counted together
OTHERS = "(other messages)"


@dataclass
class Failure:
    """``count`` positions with this ``message``, their ``iterations`` (from 0, warm-up included), and the ``first`` (d,)."""

    message: str
    first: np.ndarray
    count: int = 0
    iterations: list[int] = field(default_factory=list)


def merged(one: Iterable[Failure], other: Iterable[Failure]) -> tuple[Failure, ...]:
    """Merge the failures of two parts of a chain."""
    found = {each.message: each for each in one}
    for each in other:
        before = found.get(each.message)
        if before is not None:
            each.first, each.count = before.first, before.count + each.count
            each.iterations[:0] = before.iterations
        found[each.message] = each
    return tuple(found.values())


class FailureLog:
    """The failures of one chain, or of calls outside chains (`control` None: no iterations are recorded)."""

    def __init__(self, control: np.record | None = None) -> None:
        self.control = control
        self.found: dict[str, Failure] = {}
        self.last_position: np.ndarray | None = None
        self.last_message = ""

    def record(self, q: np.ndarray, message: str) -> None:
        """Record a failure at `q`; one position counts once, however many derivatives are evaluated there."""
        if self.last_position is not None and np.array_equal(q, self.last_position):
            return
        self.last_position, self.last_message = q.copy(), message
        key = message if message in self.found or len(self.found) < MAX_MESSAGES else OTHERS
        failure = self.found.setdefault(key, Failure(key, q.copy()))
        failure.count += 1
        if self.control is not None:
            iteration = int(self.control.draws_done)
            if failure.iterations[-1:] != [iteration]:
                failure.iterations.append(iteration)

    def words_at(self, q: np.ndarray) -> str:
        """Return ": " and the message at `q`, if the last failure was there, or an empty string."""
        failed_here = self.last_position is not None and np.array_equal(q, self.last_position)
        return f": {self.last_message}" if failed_here else ""

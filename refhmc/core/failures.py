"""Positions at which a model said that it could not be evaluated: its words, how often, in which iterations, where first.

A model that runs as Python says so by raising :class:`refhmc.errors.EvaluationError`. Its log density is -inf there, and
its derivatives are not numbers, so that whatever led there is a divergence; the words are kept here, a log for each thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from refhmc.core.records import DRAWS_DONE

MAX_MESSAGES = 20  # different ones; the rest are counted together
OTHERS = "(other messages)"


@dataclass
class Failure:
    """``count`` positions where the model said ``message``, in ``iterations`` (from 0, warm-up included), ``first`` at (d,)."""

    message: str
    first: np.ndarray
    count: int = 0
    iterations: list[int] = field(default_factory=list)


class FailureLog:
    """The failures of one chain, or of calls outside of any (``control`` None: no iterations are noted)."""

    def __init__(self, control: np.ndarray | None = None) -> None:
        self.control = control
        self.found: dict[str, Failure] = {}
        self.last_position: np.ndarray | None = None
        self.last_message = ""

    def record(self, q: np.ndarray, message: str) -> None:
        """Note a failure at ``q``; one position counts once, however many derivatives are asked for there."""
        if self.last_position is not None and np.array_equal(q, self.last_position):
            return
        self.last_position, self.last_message = q.copy(), message
        key = message if message in self.found or len(self.found) < MAX_MESSAGES else OTHERS
        failure = self.found.setdefault(key, Failure(key, q.copy()))
        failure.count += 1
        if self.control is not None:
            iteration = int(self.control[DRAWS_DONE])
            if failure.iterations[-1:] != [iteration]:
                failure.iterations.append(iteration)

    def words_at(self, q: np.ndarray) -> str:
        """ ": " and what the model said at ``q``, if that is where it failed last; else nothing."""
        failed_here = self.last_position is not None and np.array_equal(q, self.last_position)
        return f": {self.last_message}" if failed_here else ""

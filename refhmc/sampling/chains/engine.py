"""An engine prepares the chains that make the draws of a run; what comes before and after is the same for all engines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from refhmc.sampling.chains.chain import Plan
from refhmc.sampling.progress import Progress, ProgressReport
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.review import DrawsToReview
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.until import Drawn, Shortfall, next_number, unmet

SILENT = 10.0  # seconds after which a chain that was asked to stop, but does not return from its model, is reported


class Stoppable:
    """Something that can be asked to stop: ``stopped_by`` is "interrupt", "time", "stop", "error" or "".

    ``missing`` is what the last check of a stopping rule did not find met.
    """

    def __init__(self) -> None:
        self.missing: list[Shortfall] = []
        self.stopped_by, self._stopped_at, self._said = "", math.inf, False

    def stop(self, why: str) -> None:
        """Ask the chains to stop within one evaluation of the model."""
        if not self.stopped_by:
            self.stopped_by, self._stopped_at = why, time.monotonic()

    @property
    def seconds_since_stop(self) -> float:
        """Seconds since the first request to stop; -inf if there was none."""
        return time.monotonic() - self._stopped_at

    def is_silent(self) -> bool:
        """Return True at the first call later than ``SILENT`` seconds after a stop."""
        before, self._said = self._said, self._said or self.seconds_since_stop > SILENT
        return self._said and not before


def numbers_of_draws(spec: RunSpec, missing: list[Shortfall], drawn: Callable[[int], Drawn]) -> Iterator[int]:
    """Yield numbers of draws that each chain shall make in all, one without a rule, and otherwise until the rule is met.

    The caller lets the chains draw, and ends the iteration if they were stopped. ``drawn(n)`` returns the first n draws of all
    chains. `missing` is filled with what the last check did not find met.
    """
    draws = spec.first_check
    while True:
        yield draws
        if spec.until is None:
            return
        missing[:] = unmet(spec.until, spec.model.names, drawn(draws))
        if not missing or draws == spec.draws:
            return
        draws = next_number(draws, missing, spec.draws)


class Engine(Protocol):
    """Chains of a run, prepared when the engine is created.

    ``first`` (d,) is the start of the first chain, at which the model's functions are checked.
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def first(self) -> np.ndarray: ...

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of the result that describe the engine."""

    def check_starts(self) -> None:
        """Raise InitError or MetricError for an invalid start."""

    def check_implementation(self) -> str | None:
        """Compare another implementation of the model with its functions; return a warning or None."""

    def open(self, result: Result) -> Chains:
        """Create the chains, and the files that they are saved in."""

    def close(self) -> None:
        """Release the files."""


class Chains(Protocol):
    """Chains of a run that are drawn; a :class:`Stoppable`."""

    stopped_by: str
    missing: list[Shortfall]

    @property
    def progress(self) -> Progress: ...

    @property
    def workers(self) -> int:
        """Number of threads that evaluate the model at the same time."""

    def limits(self) -> AbstractContextManager[None]:
        """Return a context that the thread that waits for the draws holds."""

    def draw(self) -> None:
        """Run all chains, until they are complete or stopped."""

    def stop(self, why: str) -> None:
        """Ask the chains to stop within one evaluation of the model."""

    def report(self, finished: bool) -> ProgressReport:
        """Return the present state of the chains."""

    def hanging(self) -> list[str]:
        """Return, once, warnings about chains that do not return from the model after a stop."""

    def put_draws(self, result: Result) -> None:
        """Put draws, statistics and counts into the result."""

    def to_review(self, result: Result) -> DrawsToReview:
        """Return the draws to review."""

    def remarks(self, result: Result) -> list[str]:
        """Return the warnings that are not about draws."""

    def failure(self) -> Exception | None:
        """Return the exception to raise after the result is complete, or None."""

    def put_attributes(self, result: Result) -> bool:
        """Write the attributes of the result to a store; return whether there is one."""

    def close(self) -> None:
        """Release the files."""

"""Progress of a run: live in a terminal or a notebook, a line every few seconds elsewhere, or a function of yours.

The chains never report; a watcher reads their counters, so that the draws cannot depend on it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.sampling.time_left import QUIET, Looks, seconds_left, seconds_of_warmup

LINE_EVERY = 5.0  # seconds between lines when the output is not a terminal
MAX_BARS = 32
SHOWN_AFTER, COUNT_EVERY = 1.0, 0.25  # seconds, of what is counted after sampling
JUDGE_EVERY = 0.25  # seconds between two estimates of what is left: one takes a millisecond of the processor


class ProgressReport(NamedTuple):
    """What a progress callback receives, several times a second and once at the end."""

    draws_done: np.ndarray  # per chain, warm-up included
    draws_total: int  # per chain, warm-up included
    tune: int  # how many of them are warm-up
    divergences: np.ndarray  # per chain, of the draws
    warmup_divergences: np.ndarray  # per chain
    gradients: np.ndarray  # per chain
    gradients_a_draw: np.ndarray  # per chain, of its last iterations; NaN before the first
    step_size: np.ndarray  # per chain, now; NaN where it is not known, or of several blocks
    seconds: float
    seconds_left: float | None  # None where it is not known (:mod:`refhmc.sampling.time_left`)
    finished: bool

    @property
    def phase(self) -> str:
        """Of all chains, "warm-up" or "sampling"; or how many are still in warm-up."""
        warming, chains = int((self.draws_done < self.tune).sum()), len(self.draws_done)
        if warming in (0, chains):
            return "warm-up" if warming else "sampling"
        return f"sampling, {warming} of {chains} chains in warm-up"

    def diverged(self, chains: Any = ...) -> str:
        """Divergences of ``chains``, of the draws and of warm-up apart."""
        draws, warmup = int(self.divergences[chains].sum()), int(self.warmup_divergences[chains].sum())
        if (self.draws_done[chains] < self.tune).all():
            return f"divergences: {warmup} in warm-up"
        return told_apart(draws, warmup)

    def pace(self, chains: Any = ...) -> str:
        """The present step size of ``chains``, or the range, and the gradients that a draw takes."""
        steps, gradients = (np.atleast_1d(each[chains]) for each in (self.step_size, self.gradients_a_draw))
        steps, gradients = (each[np.isfinite(each)] for each in (steps, gradients))
        low, high = (f"{each:.3g}" for each in (steps.min(initial=np.inf), steps.max(initial=0.0)))
        size = f"step size {low}" if low == high else f"step sizes {low} to {high}"
        return joined(size * bool(len(steps)), f"{gradients.mean():.3g} gradients a draw" if len(gradients) else "")

    def time(self) -> str:
        """How long the run has taken and, where it is known, still takes."""
        left = None if self.finished else self.seconds_left
        return joined(duration(self.seconds), "" if left is None else f"about {duration(left)} left")

    def line(self) -> str:
        """One line of text for all chains."""
        done, total = int(self.draws_done.sum()), self.draws_total * len(self.draws_done)
        share = 100 * done / total if total else 100
        rate = self.gradients.sum() / self.seconds if self.seconds > 0 else 0.0
        where = f"{self.phase}: {len(self.draws_done)} chains, {done}/{total} iterations ({share:.0f} %)"
        return joined(where, self.diverged(), self.pace(), f"{rate:.3g} gradients/s", self.time())


def told_apart(divergences: int, warmup_divergences: int) -> str:
    """Divergences of draws and of warm-up, which do not count against the draws."""
    return f"divergences: {divergences} in draws, {warmup_divergences} in warm-up"


def count(n: int, noun: str) -> str:
    """1 chain, 2 chains"""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def joined(*parts: str) -> str:
    """Those there are, with commas"""
    return ", ".join(filter(None, parts))


def duration(seconds: float) -> str:
    """8.2 s, 41 s, 12 min, 3.5 h"""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Progress:
    """What was seen of a run so far, and what can be said of it.

    ``workers`` chains run at a time; ``quiet`` as in :func:`refhmc.sampling.time_left.seconds_left`.
    """

    def __init__(self, chains: int, tune: int, total: int, workers: int, quiet: int = QUIET) -> None:
        self.tune, self.total, self.workers, self.quiet = tune, total, workers, quiet
        self.looks, self.begin = Looks(chains), time.monotonic()
        self.judged, self.of_a_draw = -JUDGE_EVERY, np.full(chains, np.nan)
        self.left: float | None = None

    @property
    def seconds(self) -> float:
        """Since the run began"""
        return time.monotonic() - self.begin

    @property
    def seconds_seen(self) -> float:
        """The same at the last report"""
        return float(self.looks.seconds[-1])

    def report(
        self,
        done: np.ndarray,
        divergences: np.ndarray,
        warmup_divergences: np.ndarray,
        gradients: np.ndarray,
        step_size: np.ndarray,
        first: Any = 0,
        finished: bool = False,
    ) -> ProgressReport:
        """The chains as they are now; ``first``: iterations that they had made before this run."""
        seconds, tune = self.seconds, self.tune
        self.looks.add(seconds, done, gradients, first)
        if finished or seconds >= self.judged + JUDGE_EVERY:
            self.judged, self.of_a_draw = seconds, self.looks.gradients_an_iteration(tune)
            self.left = 0.0 if finished else seconds_left(self.looks, tune, self.total, self.workers, self.quiet)
        left = None if self.left is None else max(self.left - (seconds - self.judged), 0.0)
        counts = done, self.total, tune, divergences, warmup_divergences, gradients
        return ProgressReport(*counts, self.of_a_draw, step_size, seconds, left, finished)

    def seconds_of_warmup(self) -> float | None:
        """What the whole of warm-up takes at its present pace; None where it is not known."""
        return seconds_of_warmup(self.looks, self.tune, self.workers)


class _Lines:
    """A line now and then, for logs. A closed pipe ends the lines, not the run."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def message(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)

    def report(self, report: ProgressReport) -> None:
        if report.finished or time.monotonic() - self.last >= LINE_EVERY:
            self.last = time.monotonic()
            self.message(report.line())

    def count(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.last >= LINE_EVERY:
            self.last = time.monotonic()
            self.message(counted(what, done, total))

    def close(self) -> None:
        pass


class _Terminal:
    """One live bar per chain, by rich, unless they are many; and one for all, with the time that is left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=False)),  # of 80 columns it takes two lines
            console=Console(stderr=True),
        )
        self.tasks: list = []
        self.counts: dict = {}
        self.progress.start()

    def message(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def report(self, report: ProgressReport) -> None:
        chains = len(report.draws_done)
        rows = [(f"chain {k}", k) for k in range(chains if chains <= MAX_BARS else 0)]
        if not self.tasks:
            self.tasks = [self.progress.add_task(name, total=report.draws_total, note="") for name, _ in rows]
            self.tasks.append(self.progress.add_task("all", total=report.draws_total * chains, note=""))
        for task, (_, k) in zip(self.tasks, rows, strict=False):
            phase = "warm-up" if report.draws_done[k] < report.tune else "sampling"
            note = joined(phase, report.diverged(k), report.pace(k))
            self.progress.update(task, completed=int(report.draws_done[k]), note=note)
        note = report.time() if rows else joined(report.phase, report.diverged(), report.pace(), report.time())
        self.progress.update(self.tasks[-1], completed=int(report.draws_done.sum()), note=note)

    def count(self, what: str, done: int, total: int) -> None:
        if what not in self.counts:
            self.counts[what] = self.progress.add_task(what, total=total, note="")
        self.progress.update(self.counts[what], completed=done, total=total)

    def close(self) -> None:
        self.progress.stop()


class _Notebook:
    """One line of plain text, updated in place: it needs no widgets and survives the notebook's export."""

    def __init__(self) -> None:
        from IPython.display import display

        self.handle = display({"text/plain": ""}, raw=True, display_id=True)

    def message(self, text: str) -> None:
        self.handle.update({"text/plain": text}, raw=True)

    def report(self, report: ProgressReport) -> None:
        self.message(report.line())

    def count(self, what: str, done: int, total: int) -> None:
        self.message(counted(what, done, total))

    def close(self) -> None:
        pass


class _Silent:
    def message(self, text: str) -> None:
        pass

    def count(self, what: str, done: int, total: int) -> None:
        pass

    def report(self, report: ProgressReport) -> None:
        pass

    def close(self) -> None:
        pass


class _Callback(_Silent):
    def __init__(self, callback: Callable[[ProgressReport], None]) -> None:
        self.callback = callback

    def report(self, report: ProgressReport) -> None:
        self.callback(report)


class Counter:
    """What is made after sampling, group by group: shown where it takes more than a second, and then several times a second."""

    def __init__(self, progressbar: Any) -> None:
        self.progressbar = progressbar
        self.display: Any = None
        self.next = time.monotonic() + SHOWN_AFTER

    def part(self, what: str, done: int, parts: int) -> Callable[[int, int], None]:
        """To be called with how much there is of the part of the number ``done``, all parts being of one size."""
        return lambda n, size: self.count(what, done * size + n, parts * size)

    def count(self, what: str, done: int, total: int) -> None:
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + COUNT_EVERY
        self.display = self.display or make_display(self.progressbar)
        self.display.count(what, done, total)

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *error: object) -> None:
        if self.display is not None:
            self.display.close()


def counted(what: str, done: int, total: int) -> str:
    """log_likelihood: 1200/4000 draws (30 %)"""
    return f"{what}: {done}/{total} draws ({100 * done / total:.0f} %)"


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def make_display(progressbar: bool | Callable[[ProgressReport], None]) -> Any:
    """The display for ``sample``'s ``progressbar``: False, True, or a function of a :class:`ProgressReport`."""
    if callable(progressbar):
        return _Callback(progressbar)
    if not progressbar:
        return _Silent()
    if in_notebook():
        return _Notebook()
    if sys.stderr is not None and sys.stderr.isatty():
        return _Terminal()
    return _Lines()

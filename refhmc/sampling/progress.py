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

LINE_EVERY = 5.0  # seconds between lines when the output is not a terminal
MAX_BARS = 32


class ProgressReport(NamedTuple):
    """What a progress callback receives, several times a second and once at the end."""

    draws_done: np.ndarray  # per chain, warm-up included
    draws_total: int  # per chain, warm-up included
    tune: int  # how many of them are warm-up
    divergences: np.ndarray  # per chain, warm-up included
    gradients: np.ndarray  # per chain
    seconds: float
    finished: bool

    def line(self) -> str:
        """One line of text for all chains."""
        done, total = int(self.draws_done.sum()), self.draws_total * len(self.draws_done)
        share = 100 * done / total if total else 100
        warming = int((self.draws_done < self.tune).sum())
        phase = f", {warming} in warm-up" if warming and not self.finished else ""
        rate = self.gradients.sum() / self.seconds if self.seconds > 0 else 0.0
        left = "" if self.finished or not done else f", {(total - done) * self.seconds / done:.0f} s left"
        return (
            f"sampling {len(self.draws_done)} chains: {done}/{total} draws ({share:.0f} %){phase}, "
            f"{int(self.divergences.sum())} divergences, {rate:.3g} gradients/s, {self.seconds:.1f} s{left}"
        )


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

    def close(self) -> None:
        pass


class _Terminal:
    """One live bar per chain, by rich; one for all where they are many."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.tasks: list = []
        self.progress.start()

    def message(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def report(self, report: ProgressReport) -> None:
        if len(report.draws_done) > MAX_BARS:
            if not self.tasks:
                total = report.draws_total * len(report.draws_done)
                self.tasks.append(self.progress.add_task(f"{len(report.draws_done)} chains", total=total, note=""))
            note = f"{int(report.divergences.sum())} divergences"
            self.progress.update(self.tasks[0], completed=int(report.draws_done.sum()), note=note)
            return
        while len(self.tasks) < len(report.draws_done):
            name = f"chain {len(self.tasks)}"
            self.tasks.append(self.progress.add_task(name, total=report.draws_total, note=""))
        for task, done, diverged in zip(self.tasks, report.draws_done, report.divergences, strict=True):
            phase = "warm-up" if done < report.tune else "sampling"
            note = f"{phase}, {int(diverged)} divergences"
            self.progress.update(task, completed=int(done), note=note)

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

    def close(self) -> None:
        pass


class _Silent:
    def message(self, text: str) -> None:
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

"""Progress of a run: a live line in a terminal or a notebook, a line every few seconds elsewhere, or a callback.

The chains do not report anything. A watcher reads their counters, so that draws cannot depend on it.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from rich.progress import TaskID
from numpy.typing import ArrayLike

LINE_EVERY = 5.0  # seconds between lines if the output is not a terminal
SHOWN_AFTER, COUNT_EVERY = 1.0, 0.25  # seconds, for steps after sampling
RECENT, MOMENT = 30.0, 0.25  # seconds from which the present rate is computed, and between two moments of them
ENOUGH = 50  # draws of a chain before its rate is taken as that of the rest


class Moment(NamedTuple):
    """Iterations and gradients of the chains at a time."""

    seconds: float
    done: np.ndarray
    gradients: np.ndarray


ChosenChains = int | slice | np.ndarray | Sequence[int] | EllipsisType  # which chains a text describes


class ProgressReport(NamedTuple):
    """Progress of a run, as passed to a progress callback several times per second and once at the end.

    Parameters
    ----------
    draws_done : ndarray of int, shape (chains,)
        Iterations of each chain so far, including warm-up.
    draws_total : int
        Iterations per chain, including warm-up.
    tune : int
        Iterations of warm-up per chain.
    divergences : ndarray of int, shape (chains,)
        Divergences after warm-up.
    warmup_divergences : ndarray of int, shape (chains,)
        Divergences in warm-up.
    gradients : ndarray of int, shape (chains,)
        Evaluations of the gradient.
    gradients_a_draw : ndarray of shape (chains,)
        Gradients per iteration in the last 30 seconds; NaN for a chain without iterations in that time.
    step_size : ndarray of shape (chains,)
        Present step size; NaN if it is unknown or if the kernel has several blocks.
    seconds : float
        Time since the start of the run in seconds.
    seconds_left : float or None
        Estimate of the time left in seconds, at the rates of the last 30 seconds. None while a chain is in warm-up.
    finished : bool
        Whether this is the last report.

    Examples
    --------
    >>> import refhmc
    >>> reports = []
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), draws=50, tune=50, random_seed=1, progressbar=reports.append, raw=True
    ... )
    >>> reports[-1].draws_done.tolist(), reports[-1].phase
    ([100, 100, 100, 100], 'sampling')
    """

    draws_done: np.ndarray
    draws_total: int
    tune: int
    divergences: np.ndarray
    warmup_divergences: np.ndarray
    gradients: np.ndarray
    gradients_a_draw: np.ndarray
    step_size: np.ndarray
    seconds: float
    seconds_left: float | None
    finished: bool

    @property
    def phase(self) -> str:
        """Phase of the chains: "warm-up", "sampling", or a text with the number of chains in warm-up."""
        warming, chains = int((self.draws_done < self.tune).sum()), len(self.draws_done)
        if warming in (0, chains):
            return "warm-up" if warming else "sampling"
        return f"sampling, {warming} of {chains} chains in warm-up"

    def diverged(self, chains: ChosenChains = ...) -> str:
        """Describe the divergences of draws and of warm-up separately.

        Parameters
        ----------
        chains : int, slice or array_like of int, optional
            Chains to count. Defaults to all.

        Returns
        -------
        str
            A text such as "divergences: 3 in draws, 7 in warm-up".
        """
        draws, warmup = int(self.divergences[chains].sum()), int(self.warmup_divergences[chains].sum())
        if (self.draws_done[chains] < self.tune).all():
            return f"divergences: {warmup} in warm-up"
        return told_apart(draws, warmup)

    def pace(self, chains: ChosenChains = ...) -> str:
        """Describe the present step sizes and the gradients per draw.

        Parameters
        ----------
        chains : int, slice or array_like of int, optional
            Chains to describe. Defaults to all.

        Returns
        -------
        str
            A text such as "step size 0.5, 15 gradients per draw", without unknown parts.
        """
        steps, gradients = (np.atleast_1d(each[chains]) for each in (self.step_size, self.gradients_a_draw))
        steps, gradients = (each[np.isfinite(each)] for each in (steps, gradients))
        low, high = (f"{each:.3g}" for each in (steps.min(initial=np.inf), steps.max(initial=0.0)))
        size = f"step size {low}" if low == high else f"step sizes {low} to {high}"
        return joined(size * bool(len(steps)), f"{gradients.mean():.3g} gradients per draw" if len(gradients) else "")

    def time(self) -> str:
        """Describe the time that the run takes.

        Returns
        -------
        str
            The estimated time left, such as "12 s left"; the time since the start if that is unknown or the run is finished.
        """
        left = None if self.finished else self.seconds_left
        return f"{duration(self.seconds)} elapsed" if left is None else f"{duration(left)} left"

    def line(self) -> str:
        """Describe the progress of all chains in one line.

        Returns
        -------
        str
            A text such as "Sampling 4 chains: 3,200/8,000 draws, 2 divergences, 12 s left". Draws include warm-up; divergences
            do not, except while all chains are in warm-up.
        """
        done, total, chains = int(self.draws_done.sum()), self.draws_total * len(self.draws_done), len(self.draws_done)
        warming = int((self.draws_done < self.tune).sum())
        verb = "Sampled" if self.finished else "Warming up" if warming == chains else "Sampling"
        diverged = int((self.warmup_divergences if warming == chains else self.divergences).sum())
        progress = f"{verb} {count(chains, 'chain')}: {done:,}/{total:,} draws"
        return joined(progress, count(diverged, "divergence"), self.time())


def told_apart(divergences: int, warmup_divergences: int) -> str:
    """Describe the divergences of draws and of warm-up separately."""
    return f"divergences: {divergences} in draws, {warmup_divergences} in warm-up"


def count(n: int, noun: str) -> str:
    """Return "1 chain" or "2 chains"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def joined(*parts: str) -> str:
    """Join the parts that are not empty by commas."""
    return ", ".join(filter(None, parts))


def duration(seconds: float) -> str:
    """Return a time as in "8.2 s", "41 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Progress:
    """History of a run, from which reports are made. `workers` chains run at a time."""

    def __init__(self, chains: int, tune: int, total: int, workers: int) -> None:
        self.tune, self.total, self.workers, self.begin = tune, total, workers, time.monotonic()
        self.seconds_seen, self.made = 0.0, 0  # until the last report: seconds, iterations of this session
        self.recent: collections.deque[Moment] = collections.deque()

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return time.monotonic() - self.begin

    def report(
        self,
        done: np.ndarray,
        divergences: np.ndarray,
        warmup_divergences: np.ndarray,
        gradients: np.ndarray,
        step_size: np.ndarray,
        first: ArrayLike = 0,
        finished: bool = False,
    ) -> ProgressReport:
        """Return a report on the chains; `first` are their iterations from a checkpoint."""
        now = Moment(self.seconds, np.asarray(done), np.asarray(gradients))
        self.seconds_seen, self.made = now.seconds, int(np.sum(np.maximum(now.done - first, 0)))
        if not self.recent:
            self.recent.append(Moment(0.0, first + 0 * now.done, np.where(np.equal(first, 0), 0, now.gradients)))
        if len(self.recent) < 2 or now.seconds - self.recent[-2].seconds >= MOMENT:
            self.recent.append(now)
        else:
            self.recent[-1] = now
        while len(self.recent) > 2 and now.seconds - self.recent[1].seconds >= RECENT:
            self.recent.popleft()
        past = self.recent[0]
        iterations = now.done - past.done
        of_a_draw = np.where(iterations > 0, (now.gradients - past.gradients) / np.maximum(iterations, 1), np.nan)
        counts = now.done, self.total, self.tune, divergences, warmup_divergences, now.gradients
        left = 0.0 if finished else self.seconds_left(now.done)
        return ProgressReport(*counts, of_a_draw, step_size, now.seconds, left, finished)

    def seconds_for(self, iterations: np.ndarray) -> float | None:
        """Return the time of further iterations (chains,) at the rates of the last 30 s; None if these are unknown.

        The slowest chain ends last, unless chains wait for others.
        """
        past, now = self.recent[0], self.recent[-1]
        rates = (now.done - past.done) / max(now.seconds - past.seconds, 1e-9)
        moving = rates > 0
        if not moving.any():
            return None
        return float(max(np.max(iterations[moving] / rates[moving]), np.sum(iterations) / np.sum(rates)))

    def seconds_left(self, done: np.ndarray) -> float | None:
        """Return the time until all chains end; None while a chain is in warm-up, whose iterations take longer than draws."""
        unfinished = done < self.total
        if not (done[unfinished] >= self.tune + ENOUGH).all():
            return None
        return self.seconds_for(self.total - done)

    def seconds_of_warmup(self) -> float | None:
        """Return the time of all of warm-up at its present rate; None if that is unknown."""
        left = self.seconds_for(np.maximum(self.tune - self.recent[-1].done, 0)) if self.recent else None
        return None if left is None else self.seconds_seen + left


class Display:
    """Display of progress; this one shows nothing."""

    def message(self, text: str) -> None:
        pass

    def report(self, report: ProgressReport) -> None:
        pass

    def count(self, what: str, done: int, total: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Lines(Display):
    """A line every few seconds, for logs. A closed pipe ends the lines, but not the run."""

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


class _Terminal(Display):
    """A live line, by rich, with a bar."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=10)
        self.progress = Progress(*columns, console=Console(stderr=True))
        self.tasks: dict[str, TaskID] = {}
        self.progress.start()

    def message(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def report(self, report: ProgressReport) -> None:
        total = report.draws_total * len(report.draws_done)
        self._show("draws", report.line(), int(report.draws_done.sum()), total)

    def count(self, what: str, done: int, total: int) -> None:
        self._show(what, counted(what, done, total), done, total)

    def _show(self, name: str, text: str, done: int, total: int) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.progress.add_task(text, total=total)
        self.progress.update(self.tasks[name], description=text, completed=done, total=total)

    def close(self) -> None:
        self.progress.stop()


class _Notebook(Display):
    """A line of plain text, updated in place; it needs no widgets and is part of an exported notebook."""

    def __init__(self) -> None:
        from IPython.display import display

        self.handle = display({"text/plain": ""}, raw=True, display_id=True)

    def message(self, text: str) -> None:
        self.handle.update({"text/plain": text}, raw=True)

    def report(self, report: ProgressReport) -> None:
        self.message(report.line())

    def count(self, what: str, done: int, total: int) -> None:
        self.message(counted(what, done, total))


class _Callback(Display):
    def __init__(self, callback: Callable[[ProgressReport], None]) -> None:
        self.callback = callback

    def report(self, report: ProgressReport) -> None:
        self.callback(report)


class Counter:
    """Progress of the groups generated after sampling, shown if this takes more than a second."""

    def __init__(self, progressbar: bool | Callable) -> None:
        self.progressbar = progressbar
        self.display: Display | None = None
        self.next = time.monotonic() + SHOWN_AFTER

    def part(self, what: str, done: int, parts: int) -> Callable[[int, int], None]:
        """Return a callback (n, size) for part number `done` of `parts` equal parts."""
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
    """Return a line such as "Generating log_likelihood: 1,200/4,000 draws"."""
    return f"Generating {what}: {done:,}/{total:,} draws"


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def make_display(progressbar: bool | Callable[[ProgressReport], None]) -> Display:
    """Return the display for ``progressbar``: False, True, or a function of a :class:`ProgressReport`."""
    if callable(progressbar):
        return _Callback(progressbar)
    if not progressbar:
        return Display()
    if in_notebook():
        return _Notebook()
    if sys.stderr is not None and sys.stderr.isatty():
        return _Terminal()
    return _Lines()

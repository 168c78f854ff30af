"""A run as an object that draws in the background, reports its progress and returns its result."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from refhmc.core.signals import held_back
from refhmc.errors import SamplingError, SamplingWarning
from refhmc.sampling.chains.engine import Chains
from refhmc.sampling.interruption import past_ctrl_c, sigterm_as_ctrl_c
from refhmc.sampling.progress import Display, ProgressReport
from refhmc.sampling.results.generated_quantities import put_generated_or_say
from refhmc.sampling.results.rectangle import put_posterior
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.run_warnings import put_warnings, review_cut_off
from refhmc.sampling.results.tempering import put_tempering
from refhmc.sampling.spec import RunSpec

WATCH_EVERY = 0.05  # seconds between two readings of the chains' counters
AT_EXIT = 5.0  # seconds that a process waits at its end for runs without a call of wait()


class Run:
    """Run in the background, as returned by :func:`refhmc.start`.

    All methods can be called from any thread. A run is stopped when the process ends, unless you wait for it.

    See Also
    --------
    start : Start a run in the background.

    Examples
    --------
    >>> import refhmc
    >>> run = refhmc.start(
    ...     refhmc.models.Funnel(2), draws=100, tune=100, random_seed=1, progressbar=False, raw=True
    ... )
    >>> result = run.wait()
    >>> run.finished, result.draws.shape
    (True, (4, 100, 3))
    """

    def __init__(
        self,
        spec: RunSpec,
        chains: Chains,
        result: Result,
        display: Display,
        imprecise: str | None,
        jumps: str | None,
    ) -> None:
        self._spec, self._chains, self._result, self._display = spec, chains, result, display
        self._imprecise, self._jumps = imprecise, jumps  # warnings from before the first draw
        self._begin = time.perf_counter()
        self._error: BaseException | None = None
        self._over, self._waiting = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._answer: Any = None
        self._raised: BaseException | None = None

    def __repr__(self) -> str:
        report = self.progress()
        state = (
            "finished" if report.finished else f"stopped by {self._chains.stopped_by}" if self.stopped else "running"
        )
        done, total = int(report.draws_done.sum()), len(report.draws_done) * report.draws_total
        return f"Run of {self._spec.model.name!r}: {state}, {done} of {total} iterations"

    @property
    def stopped(self) -> bool:
        """Whether the run was asked to stop or reached its time limit."""
        return bool(self._chains.stopped_by)

    @property
    def finished(self) -> bool:
        """Whether all chains are complete or stopped."""
        return self._over.is_set()

    def progress(self) -> ProgressReport:
        """Return the present state of the chains.

        Returns
        -------
        ProgressReport
            Draws, divergences and gradients per chain, and the time left.
        """
        return self._chains.report(self.finished)

    def stop(self) -> None:
        """Ask the chains to stop within one evaluation of the model; :meth:`wait` then returns the draws so far."""
        if not self.finished:
            self._chains.stop("stop")

    def peek(self) -> Result:
        """Return a copy of the draws so far.

        The draws are not reviewed, so that there are no warnings. There are no draws while all chains are in warm-up.

        Returns
        -------
        Result
            The largest rectangle of complete draws, as after a stop.
        """
        begun = self._result
        result = Result({}, dict(begun.attributes), dims=begun.dims, coords=begun.coords)
        self._chains.put_draws(result)
        for name in [] if self._spec.store is not None else list(result.groups):
            result.groups[name] = {key: values.copy() for key, values in result.groups[name].items()}
        result.ragged.update({k: draws.copy() for k, draws in result.ragged.items()})
        put_posterior(result, self._spec.model)
        return result

    def wait(self) -> Any | Result:
        """Wait for the chains and return the result.

        Progress is shown if the run was started with a progress bar. Ctrl-C and, in the main thread, SIGTERM end the run, and
        the draws so far are returned. After the last draw they only end the review of the draws. A second Ctrl-C raises
        KeyboardInterrupt. A second call returns the same object, or raises the same exception.

        Returns
        -------
        InferenceData, DataTree or Result
            As :func:`refhmc.sample` returns it.

        Raises
        ------
        SamplingError
            If the model raised an exception. The other errors are those of :func:`refhmc.sample`.
        """
        return self._wait()

    def _wait(self) -> Any | Result:
        """Wait for the result, at the same stack depth in ``sample`` and ``wait``, so that warnings name the user's line."""
        try:
            with sigterm_as_ctrl_c(), self._waiting:
                if self._raised is not None:
                    raise self._raised
                if self._answer is None:
                    self._watch_and_assemble()
                return self._answer
        except BaseException as error:
            if error is self._raised:
                raise
            self._give_up()
            self._raised = attached(error, self._result, self._put_together)
            if self._raised is error:
                raise
            raise self._raised from error

    def _give_up(self) -> None:
        """Stop chains that still run; if none was started, release the folder."""
        if self._thread is None:
            self._chains.close()
        elif not self.finished:
            self._chains.stop("error")

    def _begin_drawing(self) -> Run:
        """Start drawing unless it was started before."""
        if self._thread is None:
            with held_back():
                _unfinished.add(self)
                self._thread = threading.Thread(target=self._draw, name="refhmc-run", daemon=True)
                self._thread.start()
        return self

    # ------------------------------------------------------------------------------------------------ in the background

    def _draw(self) -> None:
        """Run all chains to their end, in a thread of its own."""
        try:
            self._chains.draw()
        except BaseException as error:
            self._error = error
        finally:
            with contextlib.suppress(OSError):
                self._chains.close()
            self._over.set()
            _unfinished.discard(self)

    # ----------------------------------------------------------------------------------------- in the thread that waits

    def _watch(self) -> None:
        """Show progress until the chains have ended; Ctrl-C stops them, and a second one is raised."""
        with contextlib.closing(self._display):
            try:
                while not self._look():
                    pass
            except BaseException as error:
                self._chains.stop("error")
                while not isinstance(error, KeyboardInterrupt) and not self._has_ended():
                    pass
                raise
        if self._error is not None:
            raise self._error

    def _look(self) -> bool:
        """Wait a little, then show progress; return whether the chains have ended."""
        over = False
        try:
            self._begin_drawing()
            over = self._has_ended()
            with held_back():
                report = self._chains.report(finished=over)
            self._display.report(report)
            for text in [] if over else self._chains.hanging():
                warnings.warn(SamplingWarning(text), stacklevel=6)
        except KeyboardInterrupt:
            if self._chains.stopped_by == "interrupt":  # the second one
                raise
            self._chains.stop("interrupt")
            self._chains.stopped_by = "interrupt"
        return over

    def _has_ended(self) -> bool:
        """Wait for the chains for a moment; return whether they have ended."""
        with held_back():  # an event that is interrupted may never be set
            return self._over.wait(WATCH_EVERY)

    def _mark_interrupted(self) -> None:
        """Mark the run as interrupted after the last draw; raise KeyboardInterrupt for a second Ctrl-C."""
        if self._chains.stopped_by == "interrupt":
            raise KeyboardInterrupt
        self._chains.stopped_by = "interrupt"
        self._result.attributes.update(interrupted=True, stopped_by="interrupt")

    def _put_together(self) -> None:
        self._chains.put_draws(self._result)
        if (rule := self._spec.until) is not None:
            draws, missing = self._chains.progress.total - self._spec.tune, [each.text for each in self._chains.missing]
            self._result.attributes.update(draws=draws, until=rule.as_json(), until_unmet=missing)
        put_tempering(self._result)
        self._result.attributes["sampling_time"] = time.perf_counter() - self._begin
        put_posterior(self._result, self._spec.model)

    def _review(self) -> list[Warning]:
        return put_warnings(self._result, self._spec, self._chains, self._jumps)

    def _watch_and_assemble(self) -> None:
        spec, chains, result = self._spec, self._chains, self._result
        with chains.limits():  # OpenMP's number of threads belongs to this thread
            self._watch()
        past_ctrl_c(self._put_together, self._mark_interrupted)
        to_say = past_ctrl_c(self._review, self._mark_interrupted, lambda: review_cut_off(result, self._jumps))
        result.warnings[:0] = [] if self._imprecise is None else [self._imprecise]
        failure = chains.failure()
        try:
            for warning in to_say:
                warnings.warn(warning, stacklevel=4)
        finally:
            if failure is not None:
                raise failure
        if not chains.put_attributes(result):
            for warning in put_generated_or_say(result, spec.model, spec.generate, spec.progressbar):
                warnings.warn(warning, stacklevel=4)
        self._answer = result if spec.raw else past_ctrl_c(result.to_arviz, self._mark_interrupted)


_unfinished: weakref.WeakSet[Run] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop all runs before the process ends, because a thread in compiled code must not outlive the code."""
    left = list(_unfinished)
    impatient = any(run._chains.stopped_by == "interrupt" for run in left)  # there was a second Ctrl-C
    for run in left:
        run.stop()
    end = time.monotonic() + (AT_EXIT / 10 if impatient else AT_EXIT)
    for run in left:
        if run._thread is not None:
            run._thread.join(max(0.0, end - time.monotonic()))


def attached(error: BaseException, result: Result, put_together: Callable[[], None]) -> BaseException:
    """Return the exception with `result` as its attribute ``partial``, after ``put_together()`` if it has no draws yet.

    If the exception accepts no attribute, return a SamplingError to be raised from it.
    """
    carrier = with_partial(error, result)
    if not result.groups:
        with contextlib.suppress(BaseException), sigterm_as_ctrl_c():  # groups that cannot be assembled are left out
            put_together()
    return carrier


def with_partial(error: Any, result: Result) -> BaseException:
    """Return the exception with its attribute and a note about it, or a SamplingError if it accepts none."""
    try:
        error.partial = result
        if not isinstance(error, SamplingError):  # its own message mentions the attribute
            error.add_note("The draws so far are in this exception's attribute .partial, a refhmc.Result.")
        return error
    except Exception:
        return with_partial(
            SamplingError(f"{type(error).__name__}: {error}. The draws so far are in .partial."), result
        )

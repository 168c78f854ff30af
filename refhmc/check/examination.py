"""Examination: the record that the rows of a check share, and the report that they form.

Each check derives its own record from :class:`Examination`. Its rows are functions of that record. They run in order, each in a
thread under a time limit (``subject/foreign.py``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from refhmc.check.judging import Cases, failed, worst_of
from refhmc.check.report import CALL_FAILED, CONDUCT, FAIL, PASS, WRONG_DISTRIBUTION, Report, Row, inconclusive, not_run
from refhmc.check.subject.budget import Budget
from refhmc.check.subject.foreign import (
    SECONDS_PER_CALL,
    Foreign,
    Inconclusive,
    NotApplicable,
    OutOfTime,
    SubjectError,
    SubjectHung,
    first_line,
    quiet,
    watched,
)

MOST_HANGS = 2  # after this number of hangs, the remaining rows are not run
SECONDS_TO_BEGIN = 2.0  # least time of the first row: without it nothing can be judged

Function = Callable[[Any], "Row | Sequence[Row] | Cases"]
Rows = Sequence[tuple[str, Function] | tuple[str, Function, str]]


class Examination:
    """Record that the rows of one report share.

    `title` is the name of the subject in the report, `foreign` are the functions whose precision and conduct it states.
    `settings` and `seed` appear in its first line, `notes` below its rows.
    """

    def __init__(self, title: str, foreign: Sequence[Foreign], seed: int) -> None:
        self.title, self.foreign, self.seed = title, list(foreign), seed
        self.settings: dict[str, Any] = {}
        self.notes: list[str] = []

    def report(
        self,
        check: str,
        rows: Rows,
        *,
        diagnose: Callable[[Any, dict[str, Row]], Sequence[str]] = lambda test, rows: (),
        remarks: Callable[[Any], Sequence[str]] = lambda test: test.notes,
        seconds_per_call: float | None = SECONDS_PER_CALL,
        seconds: float | None = None,
        share: float = 1.0,
        false_alarm: str | None = None,
    ) -> Report:
        """Run ``rows`` and return the report: each has a name, a function of this record, and optionally a severity.

        A function may raise :class:`SubjectError` (FAIL), :class:`NotApplicable` (NOT RUN) or :class:`Inconclusive`. An error
        in the check itself is INCONCLUSIVE too, with its message. ``diagnose(record, rows by name)`` returns what the rows are
        typical of, one sentence per cause. ``remarks(record)`` returns the notes after all rows.

        ``seconds`` is the budget of all rows (``subject/budget.py``; None: no limit). Each may take ``share`` of the remaining
        time. A row that is not finished then is INCONCLUSIVE. A row without any time left is NOT RUN, unless it
        needs no foreign call.
        """
        with quiet():
            found = _rows(rows, self, seconds_per_call, seconds, share)
        changed = next((f.mutated for f in self.foreign if f.mutated), "")
        if changed:
            why = "the call changed one of its arguments"
            found.append(Row(CONDUCT, FAIL, basis=why, severity=CALL_FAILED, case=changed))
        elif any(f.calls for f in self.foreign):
            found.append(Row(CONDUCT, PASS))
        said = list(_guarded(functools.partial(remarks, self), "notes"))
        for f in self.foreign:
            if f.raised is not None and not any(f.raised.what in row.basis for row in found):
                at = f.raised.case if len(f.raised.case) <= 120 else f.raised.case[:117] + "..."
                said.append(f"{f.raised.what} ({f.raised.times} of {f.calls} calls; first: {at})")
        coarse = max((f.epsilon for f in self.foreign), default=2.0**-52)
        if coarse > 2.0**-52:
            bits = -round(np.log2(coarse))
            kind = {23: " (float32)", 10: " (float16)", 7: " (bfloat16)"}.get(bits, "")
            said.insert(0, f"results have {bits} bits{kind}: judged with tolerances of that precision")
        likely = _guarded(functools.partial(diagnose, self, {row.name: row for row in found}), "diagnosis")
        more = {} if false_alarm is None else {"false_alarm": false_alarm}
        return Report(check, self.title, self.settings, self.seed, tuple(found), tuple(said), tuple(likely), **more)


def _rows(
    checks: Rows, test: Examination, seconds_per_call: float | None, seconds: float | None, share: float
) -> list[Row]:
    """Return the rows of the checks, within their time."""
    rows: list[Row] = []
    hangs, budget = 0, Budget(seconds)
    for name, function, *severity in checks:
        if hangs >= MOST_HANGS:
            rows.append(not_run(name, f"the subject hung {hangs} times"))
            continue
        left = max(budget.left(), 0.0)
        part = Budget(share * left if rows else max(share * left, SECONDS_TO_BEGIN))
        given = f"time limit of {seconds:g} s" if seconds is not None else ""
        try:
            job = functools.partial(rows_of, name, functools.partial(function, test), *severity)
            rows += watched(job, seconds_per_call, part)
        except SubjectHung as wrong:
            hangs += 1
            rows.append(Row(name, FAIL, basis=str(wrong), severity=CALL_FAILED, case=wrong.case))
        except OutOfTime:
            why = inconclusive(name, f"not finished within its share of the {given}")
            rows.append(not_run(name, f"{given} reached") if left == 0 else why)
    return rows


def rows_of(name: str, job: Callable[[], Row | Sequence[Row] | Cases], severity: str = WRONG_DISTRIBUTION) -> list[Row]:
    """Return the rows of a function under their name, with exceptions in words; OutOfTime is left to the caller."""
    try:
        found = job()
        found = worst_of(found) if isinstance(found, Generator) else found
        rows = [found] if isinstance(found, Row) else list(found)
    except SubjectError as wrong:
        rows = [failed(str(wrong), wrong.case, severity=CALL_FAILED)]
    except NotApplicable as reason:
        rows = [not_run(name, str(reason))]
    except Inconclusive as reason:
        rows = [inconclusive(name, str(reason), reason.number)]
    except Exception as error:
        what, whose = f"{type(error).__name__}: {first_line(error)}", _raised_in(error)
        rows = [inconclusive(name, f"the check itself raised {what}")]
        if whose:
            rows = [failed(f"{whose} raised {what}", severity=CALL_FAILED)]
    return [row._replace(name=row.name or name, severity=row.severity or severity) for row in rows]


def _raised_in(error: BaseException) -> str:
    """Return the name of the unwatched function outside the kit that raised an exception, or an empty string."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((str(trace.tb_frame.f_globals.get("__name__", "")), trace.tb_frame.f_code.co_qualname))
        trace = trace.tb_next
    frames = [("" if module.startswith("refhmc.check.mutants") else module, name) for module, name in frames]
    own = max((k for k, (module, _) in enumerate(frames) if module.startswith("refhmc.check")), default=-1)
    libraries = {"numpy", "scipy", "refhmc", *sys.stdlib_module_names}
    theirs = [name for module, name in frames[own + 1 :] if module.partition(".")[0] not in libraries]
    return theirs[0] if theirs and own >= 0 else ""


def _guarded(function: Callable[[], Sequence[str]], what: str) -> Sequence[str]:
    """Return the result of ``function``, or a sentence about its exception: never a traceback from inside the kit."""
    try:
        return function()
    except Exception as error:
        return [f"the {what} raised {type(error).__name__}: {first_line(error)}"]

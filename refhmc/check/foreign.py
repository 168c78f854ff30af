"""Calling code that is not ours: whatever arrays it speaks, and whatever it does.

A :class:`Foreign` passes copies, converts what comes back to float64 on the host, and notes what it sees: the precision of
the answers, whether an input was changed. What goes wrong is a :class:`Misconduct`, which :func:`examine` turns into a row.

Each check runs in a thread of its own with a clock beside it, so that a call that hangs costs its row and no more. (A call
that hangs inside compiled code *and* holds the interpreter's lock cannot be interrupted: drive such a program from outside,
with ``refhmc check --cmd``.)
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refhmc.check.report import CONDUCT, FAIL, INCONCLUSIVE, MISCONDUCT, NOT_RUN, PASS, Report, Row

SECONDS_PER_CALL = 30.0
MOST_HANGS = 2  # after so many, what is left is not run


class Misconduct(Exception):
    """The foreign code raised, hung, or answered with something else; ``case`` is the call as Python text."""

    def __init__(self, what: str, case: str = ""):
        super().__init__(what)
        self.case = case


class NotApplicable(Exception):
    """Raised by a check that does not apply, with the reason: its row is NOT RUN."""


class Undecided(Exception):
    """Raised by a check that finds no answer, with the reason: its row is INCONCLUSIVE."""


class _Abandoned(BaseException):
    """Raised inside a thread nobody waits for any more."""


class _Clock:
    """When the present foreign call began, in the thread that runs a check."""

    def __init__(self):
        self.began: float | None = None
        self.call: tuple[str, Sequence] = ("", ())


_here = threading.local()


def to_host(value) -> np.ndarray:
    """A NumPy array of anything with ``__array__``, DLPack or Torch's ``detach``; its dtype is kept."""
    for method in ("detach", "cpu"):  # Torch: a tensor may require its gradient, or lie on a device
        if hasattr(value, method):
            value = getattr(value, method)()
    if type(value).__module__.split(".")[0] == "cupy":
        value = value.get()
    array = np.asarray(value)
    if array.dtype == object and hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    return array


def like_of(like) -> Callable[[np.ndarray], Any]:
    """How to make the author's arrays: ``like`` is None (NumPy), a function, a module or an example array."""
    if like is None:
        return lambda x: x
    if isinstance(like, np.ndarray):
        return lambda x: x.astype(like.dtype)
    if hasattr(like, "new_tensor"):  # a Torch tensor: its dtype and device
        return lambda x: like.new_tensor(x.tolist())
    if hasattr(like, "__array_namespace__") or type(like).__module__.split(".")[0] in ("jax", "jaxlib", "cupy"):
        space = like.__array_namespace__()
        return lambda x: space.asarray(x, dtype=like.dtype)
    if callable(like):
        return like
    if hasattr(like, "asarray"):
        return like.asarray
    raise TypeError(f"like: a function, a module or an example array, got {type(like).__name__}")


def text_of(value) -> str:
    """A value as Python text that gives it back."""
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    return repr(value)


def call_text(name: str, arguments: dict | Sequence) -> str:
    """A call as a line to paste."""
    items = arguments.items() if isinstance(arguments, dict) else [("", a) for a in arguments]
    return f"{name}({', '.join((f'{key}=' if key else '') + text_of(value) for key, value in items)})"


class Foreign:
    """A function of somebody else's.

    ``epsilon`` is the unit of rounding of the coarsest array it returned so far; ``mutated`` the call that changed its
    input, if one did; ``calls`` how many there were.
    """

    def __init__(self, function: Callable, name: str | None = None, like=None):
        if not callable(function):
            raise TypeError(f"{name or 'the subject'} must be callable, got {type(function).__name__}")
        self.function = function
        self.name = str(name or getattr(function, "__qualname__", type(function).__name__))
        self.convert = like_of(like)
        self.epsilon = 2.0**-52
        self.mutated = ""
        self.calls = 0

    def raw(self, *arguments, **keywords):
        """Call it with copies of the arrays among the arguments; Misconduct if it raises."""
        copies = [self._copy(a) for a in arguments]
        named = {key: self._copy(a) for key, a in keywords.items()}
        clock = getattr(_here, "clock", None)
        self.calls += 1
        if clock is not None:
            clock.call, clock.began = (self.name, arguments), time.monotonic()
        try:
            result = self.function(*copies, **named)
        except (Misconduct, KeyboardInterrupt, _Abandoned):
            raise
        except BaseException as error:  # a foreign sys.exit() too
            case = call_text(self.name, [a for a in arguments if _plain(a)])
            raise Misconduct(f"{self.name} raised {type(error).__name__}: {_first_line(error)}", case) from error
        finally:
            if clock is not None:
                clock.began = None
        if not self.mutated:
            pairs = [*zip(arguments, copies, strict=True), *((keywords[k], named[k]) for k in keywords)]
            for before, after in pairs:
                if isinstance(before, np.ndarray) and not np.array_equal(
                    np.asarray(before, dtype=to_host(after).dtype), to_host(after), equal_nan=True
                ):
                    self.mutated = call_text(self.name, [a for a in arguments if _plain(a)])
        return result

    def _copy(self, argument):
        return self.convert(argument.copy()) if isinstance(argument, np.ndarray) else argument

    def array(self, value, shape: tuple[int, ...] | None, what: str, arguments: Sequence = ()) -> np.ndarray:
        """``value`` as float64 of ``shape`` (None: any); Misconduct if it is something else. Complex stays complex."""

        def case() -> str:
            return call_text(self.name, [a for a in arguments if _plain(a)])

        try:
            array = to_host(value)
        except Exception as error:
            kind = type(value).__name__
            raise Misconduct(
                f"{self.name}: {what} is a {kind} that is no array ({_first_line(error)})", case()
            ) from error
        if array.dtype == object or array.dtype.kind not in "fiubc":
            raise Misconduct(f"{self.name}: {what} is a {type(value).__name__}, not an array of numbers", case())
        if array.dtype.kind == "f" and array.dtype.itemsize < 8:
            self.epsilon = max(self.epsilon, float(np.finfo(array.dtype).eps))
        if shape is not None and array.shape != shape:
            if array.size == int(np.prod(shape)) and array.size == 1:
                array = array.reshape(shape)  # (1,) for a number, or a number for (1,)
            else:
                raise Misconduct(f"{self.name}: {what} has the shape {array.shape}, wanted {shape}", case())
        return array.astype(complex if array.dtype.kind == "c" else float)

    def number(self, *arguments, **keywords) -> float:
        """Call it for one real number."""
        value = self.array(self.raw(*arguments, **keywords), (), "the answer", arguments)
        return float(value.real) if value.dtype.kind == "c" else float(value)

    def vector(self, shape, *arguments, **keywords) -> np.ndarray:
        """Call it for an array of ``shape``."""
        return self.array(self.raw(*arguments, **keywords), shape, "the answer", arguments)


def _plain(value) -> bool:
    return isinstance(value, (np.ndarray, int, float, str, tuple, list, type(None)))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


# ------------------------------------------------------------------------------------------------- running the checks


def watched(job: Callable[[], Any], seconds: float | None):
    """``job()`` in a thread; Misconduct when a foreign call in it takes longer than ``seconds``."""
    if seconds is None:
        return job()
    clock, done, box = _Clock(), threading.Event(), {}

    def run():
        _here.clock = clock
        try:
            box["value"] = job()
        except _Abandoned:
            pass
        except BaseException as error:
            box["error"] = error
        finally:
            done.set()

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), daemon=True, name="refhmc-check")
    thread.start()
    try:
        while not done.wait(0.02):
            began = clock.began
            if began is not None and time.monotonic() - began > seconds:
                called, arguments = clock.call
                case = call_text(called, [a for a in arguments if _plain(a)])
                raise Misconduct(f"did not come back within {seconds:g} s", case)
    finally:
        if not done.is_set():  # end it at its next line of Python, if it has one
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Abandoned))
    if "error" in box:
        raise box["error"]
    return box["value"]


Check = tuple[str, Callable[[], "Row | Sequence[Row]"]]


def examine(
    check: str,
    subject: str,
    checks: Sequence[Check],
    *,
    settings: dict,
    seed: int,
    foreign: Sequence[Foreign] = (),
    notes: Callable[[], Sequence[str]] = lambda: (),
    diagnose: Callable[[dict[str, Row]], Sequence[str]] = lambda rows: (),
    seconds_per_call: float | None = SECONDS_PER_CALL,
    false_alarm: str | None = None,
) -> Report:
    """Run ``checks``, pairs of a name and a function without arguments that gives a row (or rows), and report.

    A check may raise :class:`Misconduct` (FAIL), :class:`NotApplicable` (NOT RUN) or :class:`Undecided` (INCONCLUSIVE).
    An error of its own is INCONCLUSIVE too, naming it. ``foreign``: whose precision and conduct the report states.
    """
    rows: list[Row] = []
    hangs = 0
    for name, function in checks:
        if hangs >= MOST_HANGS:
            rows.append(Row(name, NOT_RUN, basis=f"the subject hung {hangs} times"))
            continue
        try:
            found = watched(function, seconds_per_call)
            rows.extend([found] if isinstance(found, Row) else found)
        except Misconduct as wrong:
            hangs += "did not come back" in str(wrong)
            rows.append(Row(name, FAIL, basis=str(wrong), severity=MISCONDUCT, case=wrong.case))
        except NotApplicable as reason:
            rows.append(Row(name, NOT_RUN, basis=str(reason)))
        except Undecided as reason:
            rows.append(Row(name, INCONCLUSIVE, basis=str(reason)))
        except Exception as error:
            why = f"the check itself met {type(error).__name__}: {_first_line(error)}"
            rows.append(Row(name, INCONCLUSIVE, basis=why))
    if foreign:
        changed = next((f.mutated for f in foreign if f.mutated), "")
        if changed:
            why = "an argument is not what it was before the call"
            rows.append(Row(CONDUCT, FAIL, basis=why, severity=MISCONDUCT, case=changed))
        elif any(f.calls for f in foreign):
            rows.append(Row(CONDUCT, PASS))
    said = list(_guarded(notes, "notes"))
    coarse = max((f.epsilon for f in foreign), default=2.0**-52)
    if coarse > 2.0**-52:
        bits = -round(np.log2(coarse))
        kind = {23: " (float32)", 10: " (float16)", 7: " (bfloat16)"}.get(bits, "")
        said.insert(0, f"answers have {bits} bits{kind}: judged with tolerances of that precision")
    by_name = {row.name: row for row in rows}
    more = {} if false_alarm is None else {"false_alarm": false_alarm}
    likely = _guarded(lambda: diagnose(by_name), "diagnosis")
    return Report(check, subject, settings, seed, tuple(rows), tuple(said), tuple(likely), **more)


def _guarded(function: Callable[[], Sequence[str]], what: str) -> Sequence[str]:
    """What ``function`` says, or that it could not: never a traceback from inside the kit."""
    try:
        return function()
    except Exception as error:
        return [f"the {what} met {type(error).__name__}: {_first_line(error)}"]

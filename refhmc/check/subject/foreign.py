"""Calls of foreign code, with any array type and any behaviour.

A :class:`Foreign` passes copies, converts results to float64 on the host, and records the precision of the results, whether an
input was changed, and the first exception. Faults are a :class:`SubjectError`, which ``examination.py`` turns into a row. An
exception that a check expects and passes over becomes a note of the report.

Each check runs in its own thread under a time limit, so that a call that hangs only costs its row. A call that hangs inside
compiled code *and* holds the interpreter's lock cannot be interrupted; run such a program with ``refhmc check --cmd``. The time
limit also enforces a check's budget: when it is spent, the next foreign call raises :class:`OutOfTime`. A row may catch it to
judge the results so far. A row that makes no such call soon is abandoned.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.budget import Budget, Stopwatch

SECONDS_PER_CALL = 30.0
IDLE = 0.02  # processor seconds per wall-clock second: a call that uses less is idle, even on a loaded machine
SECONDS_OF_GRACE = 1.0  # beyond a row's time, for a running foreign call
SECONDS_TO_JUDGE = 15.0  # and for the evaluation of the answers by the kit
DIMENSIONS = (2, 3, *range(4, 33), 1)  # dimensions that are tried if the subject does not define its own


class SubjectError(Exception):
    """Fault of the foreign code: an exception, a hang or an invalid answer; ``case`` is the call as Python text."""

    def __init__(self, what: str, case: str = "") -> None:
        super().__init__(what)
        self.case = case


class SubjectHung(SubjectError):
    """A foreign call that exceeded the time limit, raised where the thread is awaited, so that no row catches it."""


class NotApplicable(Exception):
    """Raised by a check that does not apply, with the reason: its row is NOT RUN."""


class Inconclusive(Exception):
    """Raised by a check that finds no answer, with the reason (and a ``number``): its row is INCONCLUSIVE."""

    def __init__(self, why: str, number: float | None = None) -> None:
        super().__init__(why)
        self.number = number


class OutOfTime(BaseException):
    """Raised instead of a foreign call when a row's time is over; no ``except Exception`` stops it."""


class _Abandoned(BaseException):
    """Raised inside a thread that is no longer awaited."""


class _Clock:
    """Time of the current foreign call in the thread of a check, and the row's ``budget``."""

    def __init__(self, budget: Budget) -> None:
        self.running: Stopwatch | None = None
        self.call: tuple[str, Sequence] = ("", ())
        self.budget = budget


class Raised(NamedTuple):
    """First exception of a function in words, the call that raised it, and the number of exceptions."""

    what: str
    case: str
    times: int


_here = threading.local()


def to_host(value: Any) -> np.ndarray:
    """Return a NumPy array of anything with ``__array__``, DLPack or PyTorch's ``detach``; the dtype is unchanged."""
    for method in ("detach", "cpu"):  # PyTorch tensors may require a gradient, or be on a device
        if hasattr(value, method):
            value = getattr(value, method)()
    if type(value).__module__.split(".")[0] == "cupy":
        value = value.get()
    array = np.asarray(value)
    if array.dtype == object and hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    return array


def like_of(like: Any) -> Callable[[np.ndarray], Any]:
    """Return a function that creates the author's arrays; ``like`` is None (NumPy), a function, a module or an array."""
    if like is None:
        return lambda x: x
    if isinstance(like, np.ndarray):
        return lambda x: x.astype(like.dtype)
    if hasattr(like, "new_tensor"):  # a PyTorch tensor: its dtype and device
        return lambda x: like.new_tensor(x.tolist())
    if hasattr(like, "__array_namespace__") or type(like).__module__.split(".")[0] in ("jax", "jaxlib", "cupy"):
        space = like.__array_namespace__()
        return lambda x: space.asarray(x, dtype=like.dtype)
    if callable(like):
        return like
    if hasattr(like, "asarray"):
        return like.asarray
    raise TypeError(f"like must be a function, a module or an example array; got {type(like).__name__}.")


def text_of(value: Any) -> str:
    """Return a Python expression that evaluates to a value."""
    if isinstance(value, np.ndarray):
        return repr(value.tolist())
    return repr(value)


def call_text(name: str, arguments: dict | Sequence) -> str:
    """Return a call as a line to paste; arguments without such text are left out."""
    items = arguments.items() if isinstance(arguments, dict) else [("", a) for a in arguments]
    texts = ((f"{key}=" if key else "") + text_of(value) for key, value in items if _plain(value))
    return f"{name}({', '.join(texts)})"


class Foreign:
    """A function written by the author of the subject.

    ``epsilon`` is the rounding unit of the coarsest array returned so far. ``mutated`` is the call that changed its
    input, if any. ``calls`` is their number; ``raised`` the first exception on real arguments. With ``in_dimensions`` the last
    axis of the first array is the dimension, which the message about an exception states.
    """

    def __init__(
        self, function: Callable, name: str | None = None, like: Any = None, *, in_dimensions: bool = True
    ) -> None:
        if not callable(function):
            raise TypeError(f"{name or 'the subject'} must be callable; got {type(function).__name__}.")
        self.function = function
        self.name = str(name or getattr(function, "__qualname__", type(function).__name__))
        self.convert = like_of(like)
        self.epsilon = 2.0**-52
        self.mutated = ""
        self.calls = 0
        self.raised: Raised | None = None
        self.in_dimensions = in_dimensions

    def another(self, function: Callable | None = None) -> Foreign:
        """Return ``function`` (default: its own) with the same name and arrays, whose calls are not recorded here."""
        made = Foreign(self.function if function is None else function, self.name)
        made.convert, made.in_dimensions = self.convert, self.in_dimensions
        return made

    def forget(self) -> None:
        """Forget exceptions of calls with signatures that the function need not support."""
        self.raised = None

    def raw(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it with copies of the arrays among the arguments; SubjectError if it raises."""
        copies = [self._copy(a) for a in arguments]
        named = {key: self._copy(a) for key, a in keywords.items()}
        clock = getattr(_here, "clock", None)
        self.calls += 1
        if clock is not None:
            if clock.budget.over():
                raise OutOfTime
            clock.call, clock.running = (self.name, arguments), Stopwatch()
        try:
            with np.errstate(all="ignore"):  # it is also called at extreme points, and judged by its answers
                result = self.function(*copies, **named)
        except (SubjectError, KeyboardInterrupt, OutOfTime, _Abandoned):
            raise
        except BaseException as error:  # includes a foreign sys.exit()
            case = call_text(self.name, arguments)
            what = f"{self.name} raised {type(error).__name__}{self._where(arguments, keywords)}: {first_line(error)}"
            own = type(error).__module__.startswith("refhmc.check")  # an exception of the kit that passes through
            if not own and not any(_is_complex(a) for a in arguments):  # complex arguments may be rejected
                self.raised = Raised(*(self.raised or (what, case))[:2], self.raised.times + 1 if self.raised else 1)
            raise SubjectError(what, case) from error
        finally:
            if clock is not None:
                clock.running = None
        if not self.mutated:
            pairs = [*zip(arguments, copies, strict=True), *((keywords[k], named[k]) for k in keywords)]
            if any(isinstance(before, np.ndarray) and _changed(before, after) for before, after in pairs):
                self.mutated = call_text(self.name, arguments)
        return result

    def _where(self, arguments: Sequence, keywords: dict) -> str:
        """Return " at dim = 3" if the call has a dimension."""
        arrays = [a for a in (*arguments, *keywords.values()) if isinstance(a, np.ndarray) and a.ndim]
        return f" at dim = {arrays[0].shape[-1]}" if arrays and self.in_dimensions else ""

    def _copy(self, argument: Any) -> Any:
        return self.convert(argument.copy()) if isinstance(argument, np.ndarray) else argument

    def array(self, value: Any, shape: tuple[int, ...] | None, what: str, arguments: Sequence = ()) -> np.ndarray:
        """Return ``value`` as float64 of ``shape`` (None: any), or complex; SubjectError if it is something else."""

        def case() -> str:
            return call_text(self.name, arguments)

        try:
            array = to_host(value)
        except Exception as error:
            kind = type(value).__name__
            raise SubjectError(
                f"{self.name}: {what} is a {kind}, which cannot be converted to an array ({first_line(error)})", case()
            ) from error
        if array.dtype == object or array.dtype.kind not in "fiubc":
            raise SubjectError(f"{self.name}: {what} is a {type(value).__name__}, not an array of numbers", case())
        if array.dtype.kind == "f" and array.dtype.itemsize < 8:
            self.epsilon = max(self.epsilon, float(np.finfo(array.dtype).eps))
        if shape is not None and array.shape != shape:
            if array.size == int(np.prod(shape)) and array.size == 1:
                array = array.reshape(shape)  # (1,) for a number, or a number for (1,)
            else:
                raise SubjectError(f"{self.name}: {what} has shape {array.shape} instead of {shape}", case())
        return array.astype(complex if array.dtype.kind == "c" else float)

    def number(self, *arguments: Any, **keywords: Any) -> float:
        """Return the result of a call as one real number."""
        value = self.array(self.raw(*arguments, **keywords), (), "the answer", arguments)
        return float(value.real) if value.dtype.kind == "c" else float(value)

    def vector(self, shape: tuple[int, ...] | None, *arguments: Any, **keywords: Any) -> np.ndarray:
        """Return the result of a call as an array of ``shape``."""
        return self.array(self.raw(*arguments, **keywords), shape, "the answer", arguments)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings about overflow, NaN and the like, since values that are not finite are judged instead."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def elsewhere(wrong: SubjectError, dim: int | None, works: Callable[[int], Any]) -> SubjectError:
    """Return ``wrong``, which was raised in ``dim`` dimensions; if ``works`` succeeds in another dimension, name that."""
    if dim is None:
        return wrong
    for d in DIMENSIONS:
        try:
            if d != dim and works(d) is not False:
                return SubjectError(f"{wrong}; is dim wrong? It works with dim = {d}", wrong.case)
        except (SubjectError, Inconclusive):
            continue
    return wrong


def _changed(before: np.ndarray, after: Any) -> bool:
    """Return whether a function changed the copy that it received."""
    if type(after) is np.ndarray and after.dtype == before.dtype and after.shape == before.shape:
        return after.tobytes() != before.tobytes() and not np.array_equal(before, after, equal_nan=True)
    after = to_host(after)
    return not np.array_equal(np.asarray(before, dtype=after.dtype), after, equal_nan=True)


def _is_complex(value: Any) -> bool:
    return isinstance(value, (complex, np.ndarray)) and np.iscomplexobj(value)


def _plain(value: Any) -> bool:
    return isinstance(value, (np.ndarray, int, float, str, tuple, list, type(None)))


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


# ------------------------------------------------------------------------------------------------- running the checks


def time_left() -> float:
    """Return the remaining budget of the current row in seconds."""
    clock = getattr(_here, "clock", None)
    return math.inf if clock is None else clock.budget.left()


def _hangs(call: Stopwatch, seconds: float) -> bool:
    """Return whether a call exceeds ``seconds`` of wall-clock time if the process is idle, else of its budget."""
    idle = call.processor < IDLE * call.clock
    return call.clock > seconds and (idle or call.spent() > seconds)


def watched(job: Callable[[], Any], seconds: float | None, budget: Budget | None = None) -> Any:
    """Run ``job()`` in a thread; raise SubjectError if a foreign call in it takes longer than ``seconds``.

    :class:`OutOfTime` is raised if the job is not finished within ``budget``. If ``seconds`` is None, no thread is
    used, and a call that hangs blocks.
    """
    budget = budget or Budget()
    clock, done, box = _Clock(budget), threading.Event(), {}

    def run() -> None:
        before, _here.clock = getattr(_here, "clock", None), clock
        try:
            with np.errstate(all="ignore"):  # of this thread
                box["value"] = job()
        except _Abandoned:
            pass
        except BaseException as error:
            box["error"] = error
        finally:
            _here.clock = before
            done.set()

    if seconds is None:
        run()
    else:
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(run,), daemon=True, name="refhmc-check")
        thread.start()
        try:
            while not done.wait(0.02):
                running = clock.running
                if running is not None and _hangs(running, seconds):
                    raise SubjectHung(f"did not return within {seconds:g} s", call_text(*clock.call))
                if budget.left() < -(SECONDS_TO_JUDGE if running is None else SECONDS_OF_GRACE):
                    raise OutOfTime
        finally:
            if not done.is_set():  # end it at its next line of Python, if it reaches one
                identity = ctypes.c_ulong(thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(_Abandoned))
    if "error" in box:
        raise box["error"]
    return box["value"]

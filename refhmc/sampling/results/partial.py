"""An exception carries the draws so far in its attribute ``partial``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from refhmc.errors import SamplingError
from refhmc.sampling.interruption import sigterm_as_ctrl_c
from refhmc.sampling.results.result import Result


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

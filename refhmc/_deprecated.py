"""Old names: those that this release still accepts give a FutureWarning, and others name their replacement."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


def warn_of_old_name(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that `old` has the new name `new`."""
    warnings.warn(
        f"{old} is now {new}. The old name works in this release and will be removed in the next.",
        FutureWarning,
        stacklevel=stacklevel,
    )


def removed(old: str, new: str) -> AttributeError:
    """Return the error for a name that another library's function replaces."""
    return AttributeError(f"{old} has been removed. Use {new}.")


def renamed_arguments(**names: str) -> Callable[[Callable], Callable]:
    """Let a function accept keyword arguments under their old names, ``old="new"``.

    Raises TypeError if an argument is given under both names.
    """

    def accept(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for old in given.keys() & names.keys():
                new = names[old]
                if new in given:
                    raise TypeError(f"{old} is the old name of {new}; got both. Remove {old}.")
                warn_of_old_name(f"{old}=", f"{new}=")
                given[new] = given.pop(old)
            return function(*args, **given)

        return call

    return accept


def renamed_method(old: str, new: str) -> Callable:
    """Return a method that calls ``new`` and warns that ``old`` is its old name."""

    def call(self: Any, *args: Any, **given: Any) -> Any:
        warn_of_old_name(f".{old}()", f".{new}()")
        return getattr(self, new)(*args, **given)

    call.__name__, call.__doc__, call.replaced_by = old, f"Old name of ``{new}``.", new  # type: ignore[attr-defined]
    return call

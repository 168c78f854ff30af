"""Validation of counts and time limits that the caller of a check passes, before anything is run."""

from __future__ import annotations


def require_counts(least: int = 1, **counts: float | None) -> None:
    """Raise ValueError unless each is None or an integer of at least ``least``."""
    for name, value in counts.items():
        try:
            sound = value is None or (int(value) == value and value >= least)
        except (TypeError, ValueError, OverflowError):
            sound = False
        if not sound:
            raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}.")


def require_times(**times: float | None) -> None:
    """Raise ValueError unless each is None (no limit) or a positive number of seconds."""
    for name, value in times.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive or None; got {value!r}.")

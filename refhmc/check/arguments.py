"""What the caller of a check hands in as counts and times: what makes no sense is a ValueError, before anything is run."""

from __future__ import annotations


def require_counts(least: int = 1, **counts: float | None) -> None:
    """ValueError unless each is a whole number of at least ``least``, or None (left out)."""
    for name, value in counts.items():
        try:
            sound = value is None or (int(value) == value and value >= least)
        except (TypeError, ValueError, OverflowError):
            sound = False
        if not sound:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def require_times(**times: float | None) -> None:
    """ValueError unless each is a positive number of seconds, or None (no limit)."""
    for name, value in times.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive, or None, got {value!r}")

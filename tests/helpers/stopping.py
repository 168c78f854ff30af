"""A run that is stopped."""

from __future__ import annotations


def stop_after(iterations):
    """A progress callback that plays Ctrl-C once."""
    told = []

    def callback(report):
        if not told and not report.finished and report.draws_done.max() >= iterations:
            told.append(True)
            raise KeyboardInterrupt

    return callback

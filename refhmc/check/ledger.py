"""Ledger of evidence from repeated runs: a file of e-values, and their product per test and version of the code.

An e-value is a number e >= 0 with E[e] <= 1 if the code is right. Independent runs (each with a fresh seed) give
e_1, e_2, ... whose product

    E_n = e_1 e_2 ... e_n

is a supermartingale that starts at 1. By Ville's inequality P(E_n >= 1/alpha for some n) <= alpha, for any number of runs and
any stopping rule. A bias too small for the budget of one run is found after many.

This holds if every run enters the ledger once, whatever it showed. A seed that the file already has for a test and version is
not counted again. Another version of the code starts again from E_0 = 1. Within a version the k-th test in the file gets the
share 6 / (pi k)^2 of the ledger's alpha, and keeps it. The shares sum to alpha over any number of tests.

Lines are only appended to the file. Each has one JSON object:

    {"test": "tests/test_mine.py::test_funnel", "version": "5f0c...", "seed": 7, "log_e": -0.31, "log_product": 1.92,
     "alpha": 6e-7, "time": "2026-11-21T03:00:00+00:00"}

Programs that write at the same time wait for each other (a lock on ``FILE.lock``). A line truncated by a crash is ignored.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

LEAST_LOG_E = -700.0  # of one run, so that a product stays finite
SECONDS_FOR_LOCK = 60.0


class Entry(NamedTuple):
    """One run of one test, with the product of all runs so far and the test's share of alpha."""

    test: str
    version: str
    seed: int
    log_e: float
    log_product: float
    alpha: float
    time: str = ""

    @property
    def crossed(self) -> bool:
        """Whether the product has reached 1 / alpha."""
        return self.log_product >= -math.log(self.alpha)


class Ledger:
    """Ledger in the file ``path``, which is created by the first entry; ``alpha`` is for all tests of a version."""

    def __init__(self, path: str | pathlib.Path, alpha: float) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1; got {alpha!r}.")
        self.path = pathlib.Path(path)
        self.alpha = alpha

    def entries(self) -> list[Entry]:
        """Return the entries of the file in order; invalid lines are ignored."""
        with contextlib.suppress(FileNotFoundError), open(self.path, encoding="utf-8", errors="replace") as file:
            return [entry for entry in map(_entry, file) if entry is not None]
        return []

    def add(self, test: str, version: str, seed: int, log_e: float) -> Entry:
        """Append the e-value of a run and return the entry with the product; a known seed is not counted again.

        Raises ValueError for an invalid e-value (NaN or infinite), and OSError if the file cannot be written.
        """
        log_e = float(log_e)
        if math.isnan(log_e) or log_e == math.inf:
            raise ValueError(f"log_e must be a number below infinity; got {log_e}.")
        log_e = max(log_e, LEAST_LOG_E)
        with _locked(self.path):
            entries = self.entries()
            nights = [entry for entry in entries if (entry.test, entry.version) == (test, version)]
            for entry in nights:
                if entry.seed == seed:
                    return nights[-1]
            alpha = nights[-1].alpha if nights else self._share(entries, version)
            product = (nights[-1].log_product if nights else 0.0) + log_e
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            entry = Entry(test, version, int(seed), log_e, product, alpha, now)
            self._append(json.dumps(entry._asdict()))
        return entry

    def _share(self, entries: list[Entry], version: str) -> float:
        k = 1 + len({entry.test for entry in entries if entry.version == version})
        return self.alpha * share(k)

    def _append(self, text: str) -> None:
        with open(self.path, "ab+") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a line truncated by a crash
                    text = "\n" + text
            file.write((text + "\n").encode())
            file.flush()
            os.fsync(file.fileno())


def share(k: int) -> float:
    """Return 6 / (pi k)^2, the share of the k-th test in a budget, k = 1, 2, ...; the shares sum to 1."""
    return 6.0 / (math.pi * k) ** 2


def _entry(text: str) -> Entry | None:
    try:
        found = json.loads(text)
        entry = Entry(**{name: found[name] for name in Entry._fields})
        return entry if entry.alpha > 0 and math.isfinite(entry.log_product) else None
    except (ValueError, TypeError, KeyError):
        return None


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Hold the lock of ``path``, which the system releases if this process dies; TimeoutError after a minute."""
    with open(path.with_name(path.name + ".lock"), "a+b") as file:
        until = time.monotonic() + SECONDS_FOR_LOCK
        while not _lock(file):
            if time.monotonic() > until:
                raise TimeoutError(
                    f"Cannot lock {path}: another program has held its lock for {SECONDS_FOR_LOCK:g} s. "
                    "Stop that program or use another file."
                )
            time.sleep(0.02)
        try:
            yield
        finally:
            _unlock(file)


if sys.platform == "win32":
    import msvcrt

    def _lock(file: Any) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: Any) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: Any) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock(file: Any) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)

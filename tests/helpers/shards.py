"""Fixed parts of the tests: ``--shard 2/4`` runs the second of four.

The part of a test is computed from its name alone, so that a new test does not move the others.
"""

from __future__ import annotations

import argparse
import re
import zlib


def parsed(text: str) -> tuple[int, int]:
    """Return (2, 3) for "2/3"."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"--shard must be K/N with 1 <= K <= N, such as 2/3; got {text!r}.")
    return int(match[1]), int(match[2])


def contains(shard: tuple[int, int], nodeid: str) -> bool:
    """Return whether a test belongs to a shard."""
    return zlib.crc32(nodeid.encode()) % shard[1] + 1 == shard[0]

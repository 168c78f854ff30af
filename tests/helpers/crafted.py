"""Saved states that are changed, with valid checksums, as a stranger could write them."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.sampling.storage.files import checksum_of_arrays, read_arrays

Arrays = dict[str, Any]


def read_state(path: pathlib.Path) -> tuple[Arrays, Arrays]:
    """Return the arrays of the chain's state, and those of the file that holds it, without the checksum."""
    outer = read_arrays(path)
    outer.pop("checksum")
    return read_arrays(io.BytesIO(outer["state"].tobytes())), outer


def write_state(path: pathlib.Path, state: Arrays, outer: Arrays) -> None:
    """Write both, with the checksum that belongs to them."""
    buffer = io.BytesIO()
    np.savez(buffer, **state)
    outer = {**outer, "state": np.frombuffer(buffer.getvalue(), np.uint8)}
    outer["checksum"] = np.array(checksum_of_arrays(outer))
    buffer = io.BytesIO()
    np.savez(buffer, **outer)
    path.write_bytes(buffer.getvalue())


def craft(folder: pathlib.Path, change: Callable[[Arrays, Arrays], Any], chain: int = 0) -> None:
    """Apply ``change(state, outer)`` to a chain of a checkpoint."""
    path = folder / f"chain-{chain}.npz"
    state, outer = read_state(path)
    change(state, outer)
    write_state(path, state, outer)

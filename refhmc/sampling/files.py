"""Files of arrays and of JSON with checksums, written so that a crash leaves the one before."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from refhmc.core.fingerprint import sha256

NOT_IN_IT = ("checksum", "draws")

_reading = threading.Lock()


def read_arrays(file: Any) -> dict[str, Any]:
    """The arrays of an ``.npz`` file, given by its path or open, read by one thread at a time.

    NumPy parses their headers with ``ast``; where two threads do, CPython before 3.11.8 may raise SystemError (gh-106905).
    """
    with _reading, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def checksum_of_run(run: Mapping[str, Any]) -> str:
    """SHA-256 of all of ``run.json`` but itself, and how many draws were asked for, which may grow."""
    return sha256(json.dumps({key: run[key] for key in run if key not in NOT_IN_IT}, sort_keys=True))


def checksum_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {arrays[name].shape} ".encode())
        digest.update(array.view(np.uint8).data if array.size and array.ndim else array.tobytes())
    return digest.hexdigest()


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Write beside the target, flush to disk, rename: an old file stays whole until the new one is."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

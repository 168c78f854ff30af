"""Files of arrays and of JSON with checksums, written so that a crash leaves the previous version."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import threading
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO

import numpy as np

from refhmc.compile.fingerprint import sha256
from refhmc.compile.regular_files import open_regular

NOT_IN_IT = ("checksum", "draws", "until")

StrPath = str | os.PathLike[str]

_reading = threading.Lock()


def read_arrays(file: pathlib.Path | IO[bytes]) -> dict[str, np.ndarray]:
    """Return the arrays of an uncompressed ``.npz`` file, given by its path or open. Nothing is unpickled.

    One thread at a time reads: NumPy parses headers with ``ast``, and if two threads do that, CPython before 3.11.8 may
    raise SystemError (gh-106905).
    """
    if isinstance(file, pathlib.Path):
        with open_regular(file, "rb") as opened:
            return read_arrays(opened)
    with _reading, zipfile.ZipFile(file) as archive:
        # refhmc never compresses; a small compressed file could fill the memory.
        packed = [each.filename for each in archive.infolist() if each.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise ValueError(f"{packed[0]} is compressed, but refhmc writes uncompressed files only")
    file.seek(0)
    with _reading, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def checksum_of_run(run: Mapping[str, object]) -> str:
    """Return the SHA-256 of ``run.json`` without the checksum itself, and without what may change in another session."""
    return sha256(json.dumps({key: run[key] for key in run if key not in NOT_IN_IT}, sort_keys=True))


def checksum_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {arrays[name].shape} ".encode())
        digest.update(array.view(np.uint8).data if array.size and array.ndim else array.tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary path for a new file, which replaces `path` at the end, or is removed after an exception."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # left by a killed process with this ID; a link is removed, not followed
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Write a file and flush it to disk, so that the old file exists until the new one is complete."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_arrays(path: pathlib.Path, **arrays: np.ndarray) -> None:
    """Write an uncompressed ``.npz`` file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())

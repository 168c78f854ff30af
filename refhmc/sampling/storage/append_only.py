"""The rows of one chain on disk: an append-only file of blocks with checksums.

A block is little-endian and consists of

- the eight bytes ``RFHMCROW``;
- unsigned 64-bit integers: the iteration of its first row, the numbers of rows n, coordinates d and statistics s;
- n d doubles, the positions, and n s doubles, the statistics;
- the SHA-256 of all of this, 32 bytes.

Blocks, and their rows, are contiguous. Bytes behind the length given to a reader were left by a crash and are overwritten.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import struct
import sys
from collections.abc import Iterable
from typing import IO, NamedTuple

import numpy as np

from refhmc.compile.regular_files import open_regular

MAGIC = b"RFHMCROW"
HEADER = struct.Struct("<8s4Q")
SUM = hashlib.sha256().digest_size


class Rows(NamedTuple):
    """Consecutive iterations of a chain, (n, d) and (n, s); ``first`` is the number of the first one, with warm-up."""

    first: int
    draws: np.ndarray
    stats: np.ndarray

    @property
    def end(self) -> int:
        return self.first + len(self.draws)

    def copied(self) -> Rows:
        return Rows(self.first, self.draws.copy(), self.stats.copy())

    def between(self, first: int, end: int) -> Rows:
        """Return views of the iterations from `first` up to, but without, `end`."""
        at = slice(first - self.first, end - self.first)
        return Rows(first, self.draws[at], self.stats[at])


def append(path: pathlib.Path, length: int, blocks: Iterable[Rows]) -> int:
    """Write blocks to disk after the first `length` bytes, and return the new length; OSError leaves these bytes intact."""
    with open_regular(path, "r+b" if os.path.lexists(path) else "xb") as file:
        file.seek(length)
        file.truncate()
        for rows in blocks:
            n, d = rows.draws.shape
            parts: list[bytes | memoryview] = [HEADER.pack(MAGIC, rows.first, n, d, rows.stats.shape[1])]
            parts += [np.ascontiguousarray(each, "<f8").data.cast("B") for each in rows[1:] if each.size]
            digest = hashlib.sha256()
            for part in parts:
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def read(path: pathlib.Path, length: int, d: int, s: int) -> Rows | None:
    """Return all rows in the first ``length`` bytes, or None if there are none.

    Raises ValueError, with what is wrong with the file, unless every row has ``d`` coordinates and ``s`` statistics.
    """
    if not length:
        return None
    with open_regular(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < length:
            raise ValueError(f"it has {size} bytes instead of {length}")
        headers = _headers(file, length)
        first, n = headers[0][1], sum(header[2] for header in headers)
        if headers[0][3:] != (d, s):
            raise ValueError(f"its rows have {headers[0][3:]} numbers instead of {(d, s)}")
        rows, at = Rows(first, np.empty((n, d)), np.empty((n, s))), 0
        file.seek(0)
        for header in headers:
            if header[1:2] + header[3:] != (first + at, d, s):
                raise ValueError(f"the block of iteration {header[1]} does not follow the block before it")
            _read_block(file, header, rows.between(first + at, first + at + header[2]))
            at += header[2]
    return rows


def _headers(file: IO[bytes], length: int) -> list[tuple]:
    """Return the headers of all blocks; each is checked with its block."""
    found, at = [], 0
    while at < length:
        file.seek(at)
        content = file.read(HEADER.size)
        header = HEADER.unpack(content) if len(content) == HEADER.size else (b"",)
        if header[0] != MAGIC:
            raise ValueError(f"no block starts at byte {at}")
        at += HEADER.size + 8 * header[2] * (header[3] + header[4]) + SUM
        found.append(header)
    if at != length:
        raise ValueError(f"its last block ends at byte {at} instead of {length}")
    return found


def _read_block(file: IO[bytes], header: tuple, rows: Rows) -> None:
    digest = hashlib.sha256(file.read(HEADER.size))
    for each in (rows.draws, rows.stats):
        if each.size:
            file.readinto(each.data.cast("B"))  # type: ignore[attr-defined]
            digest.update(each.data.cast("B"))
    if file.read(SUM) != digest.digest():
        raise ValueError(f"the block of iteration {header[1]} does not match its checksum")
    if sys.byteorder != "little":
        for each in (rows.draws, rows.stats):
            each.byteswap(inplace=True)

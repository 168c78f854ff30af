"""MNIST and Fashion-MNIST from files, in the publishers' idx format or as npz.

An idx file: two zero bytes, one for the type of its numbers (8: unsigned bytes), one for how many dimensions, the dimensions as
big-endian 32-bit numbers, then the numbers, the last index fastest. It may be compressed by gzip.
"""

from __future__ import annotations

import gzip
import io
import math
import pathlib
import struct
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np

DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
UNSIGNED_BYTE = 8
STEMS = {"train": "train", "test": "t10k"}  # of the published files


class Images(NamedTuple):
    """``X`` (n, height, width) in [0, 1] and labels ``y`` (n,) 0, 1, ..., as ``CNN`` takes them; the classes' names."""

    X: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]


def mnist(path: Any, subset: str = "train", *, rows: Any = slice(None), dtype: Any = np.float64) -> Images:
    """The handwritten digits, from files of one's own: pixels k / 255.

    path : the folder with the four published idx files (``train-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte``, ..., with
        ``.gz`` or without); a npz file with ``x_train``, ``y_train``, ``x_test`` and ``y_test``; or a pair of idx files, images
        and labels. subset : "train" or "test". rows : a slice or indices, taken before the pixels become numbers of ``dtype``.

    Raises FileNotFoundError; ValueError, with the file's name, for one that is cut short or something else.
    """
    return load(path, subset, rows, dtype, DIGITS)


def fashion_mnist(path: Any, subset: str = "train", *, rows: Any = slice(None), dtype: Any = np.float64) -> Images:
    """Pictures of clothes, in the same formats as :func:`mnist`."""
    return load(path, subset, rows, dtype, CLOTHES)


def load(path: Any, subset: str, rows: Any, dtype: Any, names: tuple[str, ...]) -> Images:
    if subset not in STEMS:
        raise ValueError(f"subset must be 'train' or 'test', got {subset!r}")
    if isinstance(path, tuple | list):
        files = [pathlib.Path(each) for each in path]
        if len(files) != 2:
            raise ValueError(
                f"give one folder, one npz file, or two idx files, images and labels; got {len(files)} files"
            )
        pixels, y = (read_idx(file, n) for file, n in zip(files, (3, 1), strict=True))
    elif pathlib.Path(path).is_dir():
        pixels, y = (read_idx(find(pathlib.Path(path), f"{STEMS[subset]}-{kind}", n), n) for kind, n in KINDS)
    else:
        pixels, y = read_npz(pathlib.Path(path), subset)
    if pixels.ndim != 3 or y.shape != pixels.shape[:1]:
        raise ValueError(f"{path}: images must be (n, height, width) and labels (n,), got {pixels.shape} and {y.shape}")
    if pixels.dtype != np.uint8 or y.dtype.kind not in "iu":
        raise ValueError(f"{path}: pixels must be bytes and labels whole numbers, got {pixels.dtype} and {y.dtype}")
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < len(names):
        raise ValueError(f"{path}: labels are 0, ..., {len(names) - 1}, got {int(y.min())} to {int(y.max())}")
    X = pixels[rows].astype(dtype)
    X /= 255
    return Images(X, y[rows].astype(np.int64), names)


KINDS = (("images", 3), ("labels", 1))


def find(folder: pathlib.Path, stem: str, dimensions: int) -> pathlib.Path:
    """The file of the published name, or with a dot in it, as some copies have it; compressed or not."""
    name = f"{stem}-idx{dimensions}-ubyte"
    for each in (name, name.replace("-idx", ".idx")):
        for suffix in ("", ".gz"):
            if (folder / (each + suffix)).is_file():
                return folder / (each + suffix)
    raise FileNotFoundError(f"{folder} has no file {name} or {name}.gz")


def read_idx(path: pathlib.Path, dimensions: int) -> np.ndarray:
    """Unsigned bytes with so many dimensions. Raises ValueError."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: damaged or cut short: {error}") from error
    header = 4 + 4 * dimensions
    expected = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if content[:4] != expected:
        raise ValueError(
            f"{path}: begins with {content[:4].hex(' ')}, an idx file of this kind with {expected.hex(' ')}"
        )
    if len(content) < header:
        raise ValueError(f"{path}: cut short: {len(content)} bytes, {header} in the header alone")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise ValueError(f"{path}: {len(content) - header:,} bytes of data where {shape} are {math.prod(shape):,}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def read_npz(path: pathlib.Path, subset: str) -> tuple[np.ndarray, np.ndarray]:
    """``x_train`` and ``y_train``, or those of the test set. Raises ValueError, FileNotFoundError."""
    content = io.BytesIO(path.read_bytes())
    try:
        with np.load(content) as arrays:
            return arrays[f"x_{subset}"], arrays[f"y_{subset}"]
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: not a npz file, damaged or cut short: {error}") from error

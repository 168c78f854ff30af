"""MNIST and Fashion-MNIST from files, in the published idx format or as npz.

An idx file has two zero bytes, one byte for the type of its numbers (8: unsigned bytes), one for the number of dimensions,
the dimensions as big-endian 32-bit numbers, and then the numbers, with the last index fastest. It may be compressed by gzip.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import pathlib
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

File = str | os.PathLike[str]
Files = File | list[File] | tuple[File, ...]
Rows = slice | Sequence[int] | np.ndarray

DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
UNSIGNED_BYTE = 8
STEMS = {"train": "train", "test": "t10k"}  # of the published files


class Images(NamedTuple):
    """Labelled images, as :func:`refhmc.models.CNN` takes them.

    Parameters
    ----------
    X : ndarray of shape (n, height, width)
        Pixels in [0, 1].
    y : ndarray of shape (n,)
        Labels 0, 1, ....
    names : tuple of str
        Names of the classes.
    """

    X: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]


def mnist(path: Files, subset: str = "train", *, rows: Rows = slice(None), dtype: DTypeLike = np.float64) -> Images:
    """Load the MNIST handwritten digits from files.

    refhmc does not include or download the files. Pixels k become k / 255.

    Parameters
    ----------
    path : path-like or pair of path-like
        One of the following:

        - the folder with the four published idx files, ``train-images-idx3-ubyte`` and so on, with or without ``.gz``
        - an npz file with ``x_train``, ``y_train``, ``x_test`` and ``y_test``
        - a pair of idx files, images and labels
    subset : {"train", "test"}, default "train"
        Which images.
    rows : slice or array_like of int, default slice(None)
        Rows to keep. They are selected before pixels are converted to `dtype`.
    dtype : dtype, default float64
        Type of the pixels.

    Returns
    -------
    Images
        Pixels, labels and names of the ten classes.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is truncated or has another format. The message has the name of the file.

    Examples
    --------
    >>> import numpy as np, pathlib, refhmc, tempfile
    >>> arrays = {"x_train": np.zeros((5, 28, 28), np.uint8), "y_train": np.arange(5)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "mnist.npz"
    ...     np.savez(path, **arrays)
    ...     images = refhmc.datasets.mnist(path, rows=slice(3))
    >>> images.X.shape, images.y.tolist()
    ((3, 28, 28), [0, 1, 2])
    """
    return load(path, subset, rows, dtype, DIGITS)


def fashion_mnist(
    path: Files, subset: str = "train", *, rows: Rows = slice(None), dtype: DTypeLike = np.float64
) -> Images:
    """Load the Fashion-MNIST pictures of clothes from files.

    refhmc does not include or download the files. Pixels k become k / 255.

    Parameters
    ----------
    path : path-like or pair of path-like
        Files in the formats of :func:`mnist`.
    subset : {"train", "test"}, default "train"
        Which images.
    rows : slice or array_like of int, default slice(None)
        Rows to keep. They are selected before pixels are converted to `dtype`.
    dtype : dtype, default float64
        Type of the pixels.

    Returns
    -------
    Images
        Pixels, labels and names of the ten classes.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is truncated or has another format. The message has the name of the file.

    See Also
    --------
    mnist : The formats, with an example.
    """
    return load(path, subset, rows, dtype, CLOTHES)


def load(path: Files, subset: str, rows: Rows, dtype: DTypeLike, names: tuple[str, ...]) -> Images:
    """Return the images in files of one of the supported formats."""
    if subset not in STEMS:
        raise ValueError(f"subset must be 'train' or 'test'; got {subset!r}.")
    if isinstance(path, tuple | list):
        files = [pathlib.Path(each) for each in path]
        if len(files) != 2:
            raise ValueError(
                f"path must be a folder, an npz file, or two idx files (images and labels); got {len(files)} files."
            )
        pixels, y = (read_idx(file, n) for file, n in zip(files, (3, 1), strict=True))
    elif pathlib.Path(path).is_dir():
        pixels, y = (read_idx(find(pathlib.Path(path), f"{STEMS[subset]}-{kind}", n), n) for kind, n in KINDS)
    else:
        pixels, y = read_npz(pathlib.Path(path), subset)
    if pixels.ndim != 3 or y.shape != pixels.shape[:1]:
        raise ValueError(
            f"{path}: images must have shape (n, height, width) and labels (n,); got {pixels.shape} and {y.shape}."
        )
    if pixels.dtype != np.uint8 or y.dtype.kind not in "iu":
        raise ValueError(f"{path}: pixels must be bytes and labels whole numbers; got {pixels.dtype} and {y.dtype}.")
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < len(names):
        raise ValueError(f"{path}: labels must be 0, ..., {len(names) - 1}; got {int(y.min())} to {int(y.max())}.")
    X = pixels[rows].astype(dtype)
    X /= 255
    return Images(X, y[rows].astype(np.int64), names)


KINDS = (("images", 3), ("labels", 1))


def find(folder: pathlib.Path, stem: str, dimensions: int) -> pathlib.Path:
    """Return the file with the published name, or with a dot in it as in some copies, compressed or not."""
    name = f"{stem}-idx{dimensions}-ubyte"
    for each in (name, name.replace("-idx", ".idx")):
        for suffix in ("", ".gz"):
            if (folder / (each + suffix)).is_file():
                return folder / (each + suffix)
    raise FileNotFoundError(
        f"path must be a folder with the published files; {folder} has no file {name} or {name}.gz."
    )


def read_idx(path: pathlib.Path, dimensions: int) -> np.ndarray:
    """Return unsigned bytes with that number of dimensions. Raises ValueError."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: the file is damaged or truncated: {error}.") from error
    header = 4 + 4 * dimensions
    expected = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if content[:4] != expected:
        raise ValueError(
            f"{path}: an idx file of this kind must start with {expected.hex(' ')}; got {content[:4].hex(' ')}."
        )
    if len(content) < header:
        raise ValueError(f"{path}: the file is truncated: it has {len(content)} bytes, and its header has {header}.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise ValueError(
            f"{path}: the file has {len(content) - header:,} bytes of data; its shape {shape} needs {math.prod(shape):,}."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def read_npz(path: pathlib.Path, subset: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of the subset, such as ``x_train`` and ``y_train``. Raises ValueError or FileNotFoundError."""
    content = io.BytesIO(path.read_bytes())
    try:
        with np.load(content) as arrays:
            return arrays[f"x_{subset}"], arrays[f"y_{subset}"]
    except KeyError as error:
        raise ValueError(f"{path}: the npz file lacks an array: {error.args[0]}.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: the file is not an npz file, or it is damaged: {error}.") from error

"""Inputs and observations as users give them, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.core.arguments import array_of_numbers, refuse_masked, whole_number
from refhmc.core.data import from_table
from refhmc.errors import ShapeError


def in_precision(what: str, x: np.ndarray, dtype: Any) -> np.ndarray:
    """Finite ``x`` as numbers of ``dtype``; ValueError where one of them is too large for it."""
    largest = max(x.max(), -x.min())
    if largest > np.finfo(dtype).max:
        raise ValueError(f"{what} must be finite in {np.dtype(dtype)}; one of its numbers has the size {largest:.4g}")
    return x.astype(dtype)


def finite(what: str, x: Any) -> np.ndarray:
    """``x`` as numbers, all finite; ValueError says where the first is that is not."""
    x = array_of_numbers(what, x)
    if not np.isfinite(x).all():
        wrong = np.argwhere(~np.isfinite(x))[0]
        raise ValueError(f"{what} must be finite; {what}{[int(i) for i in wrong]} is {x[tuple(wrong)]}")
    return x


def rows_of(X: Any, width: int) -> np.ndarray:
    """``X`` (n, width), n at least 1. Raises ShapeError, ValueError."""
    X = finite("X", X)
    if X.ndim != 2 or X.shape[1] != width or len(X) == 0:
        raise ShapeError(f"X must be (n, {width or 'features'}), got {X.shape}")
    return X


def images(X: Any) -> np.ndarray:
    """(n, height, width) or (n, channels, height, width) as (n, height, width, channels). Raises ShapeError, ValueError."""
    X = finite("X", X)
    X = X[:, None] if X.ndim == 3 else X
    if X.ndim != 4 or len(X) == 0:
        raise ShapeError(f"X must be (n, height, width) or (n, channels, height, width), got {X.shape}")
    return np.moveaxis(X, 1, -1)


def labels(y: Any, n_classes: int) -> np.ndarray:
    """Whole numbers 0, ..., n_classes - 1; ValueError names the first that is none of them."""
    y = np.asarray(from_table("y", y))
    if y.dtype.kind not in "biuf":
        raise ValueError(f"labels are whole numbers 0, ..., {n_classes - 1}, got an array of {y.dtype}")
    wrong = np.flatnonzero(~((y >= 0) & (y < n_classes) & (y == np.floor(y))))
    if len(wrong):
        raise ValueError(f"labels are 0, ..., {n_classes - 1}; y[{wrong[0]}] is {y[wrong[0]]}")
    return y.astype(np.int64)


def number_of_classes(y: Any, given: int | None) -> int:
    """``given``, or one more than the largest label. Raises ValueError."""
    if given is not None:
        return whole_number("n_classes", given, 2)
    refuse_masked("y", y)
    y = np.asarray(from_table("y", y))
    if y.dtype.kind not in "biuf" or not (np.isfinite(y) & (y >= 0)).all():
        raise ValueError(f"labels are whole numbers 0, 1, ..., got an array of {y.dtype}: {y.ravel()[:5].tolist()} ...")
    return int(np.max(y, initial=0)) + 1

"""Checks of inputs and observations that users give."""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.core.arguments import array_of_numbers, refuse_masked, whole_number
from refhmc.core.data import from_table
from refhmc.errors import ShapeError


def in_precision(what: str, x: np.ndarray, dtype: Any) -> np.ndarray:
    """Return finite ``x`` as numbers of ``dtype``. Raises ValueError if a number is too large for it."""
    largest = max(x.max(), -x.min())
    if largest > np.finfo(dtype).max:
        raise ValueError(f"{what} must be finite in {np.dtype(dtype)}; got a number of size {largest:.4g}.")
    return x.astype(dtype)


def finite(what: str, x: Any) -> np.ndarray:
    """Return ``x`` as an array of finite numbers. Raises ValueError with the place of the first that is not finite."""
    x = array_of_numbers(what, x)
    if not np.isfinite(x).all():
        wrong = np.argwhere(~np.isfinite(x))[0]
        raise ValueError(f"{what} must be finite; {what}{[int(i) for i in wrong]} is {x[tuple(wrong)]}.")
    return x


def rows_of(X: Any, width: int) -> np.ndarray:
    """Return ``X`` of shape (n, width) with n at least 1. Raises ShapeError or ValueError."""
    X = finite("X", X)
    if X.ndim != 2 or X.shape[1] != width or len(X) == 0:
        raise ShapeError(f"X must have shape (n, {width or 'features'}) with n >= 1; got {X.shape}.")
    return X


def images(X: Any) -> np.ndarray:
    """Return images as an array (n, height, width, channels). Raises ShapeError or ValueError."""
    X = finite("X", X)
    X = X[:, None] if X.ndim == 3 else X
    if X.ndim != 4 or len(X) == 0:
        raise ShapeError(f"X must have shape (n, height, width) or (n, channels, height, width); got {X.shape}.")
    return np.moveaxis(X, 1, -1)


def labels(y: Any, n_classes: int) -> np.ndarray:
    """Return labels 0, ..., n_classes - 1 as integers. Raises ValueError with the first other entry."""
    y = np.asarray(from_table("y", y))
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y must be labels 0, ..., {n_classes - 1}; got an array of {y.dtype}.")
    wrong = np.flatnonzero(~((y >= 0) & (y < n_classes) & (y == np.floor(y))))
    if len(wrong):
        raise ValueError(f"y must be labels 0, ..., {n_classes - 1}; y[{wrong[0]}] is {y[wrong[0]]}.")
    return y.astype(np.int64)


def number_of_classes(y: Any, given: int | None) -> int:
    """Return ``given``, or one more than the largest label. Raises ValueError."""
    if given is not None:
        return whole_number("n_classes", given, 2)
    refuse_masked("y", y)
    y = np.asarray(from_table("y", y))
    if y.dtype.kind not in "biuf" or not (np.isfinite(y) & (y >= 0)).all():
        raise ValueError(f"y must be labels 0, 1, ...; got an array of {y.dtype} that starts {y.ravel()[:5].tolist()}.")
    return int(np.max(y, initial=0)) + 1

"""Checks of inputs and observations that users give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from refhmc.core.arguments import array_of_numbers, refuse_masked, whole_number
from refhmc.core.data import from_table
from refhmc.errors import ShapeError


def in_precision(what: str, x: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """Return finite ``x`` as numbers of ``dtype``. Raises ValueError if a number is too large for it."""
    largest = max(x.max(), -x.min())
    if largest > np.finfo(dtype).max:
        raise ValueError(f"{what} must be finite in {np.dtype(dtype)}; got a number of size {largest:.4g}.")
    return x.astype(dtype)


def finite(what: str, x: object) -> np.ndarray:
    """Return ``x`` as an array of finite numbers. Raises ValueError with the place of the first that is not finite."""
    x = array_of_numbers(what, x)
    if not np.isfinite(x).all():
        wrong = np.argwhere(~np.isfinite(x))[0]
        raise ValueError(f"{what} must be finite; {what}{[int(i) for i in wrong]} is {x[tuple(wrong)]}.")
    return x


def given_together(**arguments: object) -> bool:
    """Return whether the arguments are given. Raises ValueError if only some of them are."""
    given = [value is not None for value in arguments.values()]
    if any(given) and not all(given):
        *first, last = arguments
        every, none = ("both", "neither") if len(arguments) == 2 else ("all", "none")
        raise ValueError(
            f"{', '.join(first)} and {last} must be given together; give {every}, or {none} for the default data."
        )
    return all(given)


def vector(what: str, x: object, least: int = 1) -> np.ndarray:
    """Return a copy of a vector of at least ``least`` finite numbers. Raises ShapeError or ValueError."""
    x = np.array(array_of_numbers(what, x))
    if x.ndim != 1 or len(x) < least:
        raise ShapeError(f"{what} must be a vector of {least} or more finite numbers; got shape {x.shape}.")
    return finite(what, x)


def vectors(**arguments: object) -> list[np.ndarray]:
    """Return copies of vectors of finite numbers that have the same length. Raises ShapeError or ValueError."""
    found = [np.array(array_of_numbers(what, x)) for what, x in arguments.items()]
    if found[0].ndim != 1 or any(x.shape != found[0].shape for x in found):
        shapes = " and ".join(str(x.shape) for x in found)
        raise ShapeError(f"{' and '.join(arguments)} must be vectors of the same length; got shapes {shapes}.")
    return [vector(what, x) for what, x in zip(arguments, found, strict=True)]


def counts(what: str, x: object, length: int | None = None) -> np.ndarray:
    """Return a vector of whole numbers of at least 0, as floats. Raises ShapeError or ValueError."""
    x = array_of_numbers(what, x)
    if x.ndim != 1 or (length is not None and len(x) != length):
        of = "" if length is None else f" of length {length}"
        raise ShapeError(f"{what} must be a vector{of}; got shape {x.shape}.")
    if not np.all((x >= 0) & (x == np.floor(x)) & np.isfinite(x)):
        raise ValueError(f"{what} must be whole numbers of at least 0; it has other entries.")
    return x


def in_rows(*rows: np.ndarray | Sequence[float]) -> np.ndarray:
    """Return one matrix of the rows, the data of a model; zeros follow the entries of shorter rows."""
    data = np.zeros((len(rows), max(map(len, rows))))
    for row, entries in zip(data, rows, strict=True):
        row[: len(entries)] = entries
    return data


def columns_of(X: object) -> list[str] | None:
    """Return the names of the columns of a data frame; None for anything else."""
    return [str(each) for each in X.columns] if hasattr(X, "columns") else None


def design(X: object, inputs: Sequence[str] | None, intercept: bool = False) -> tuple[np.ndarray, list[str] | None]:
    """Return inputs as an array of finite numbers, with a column of ones before them for an intercept, and the columns' names.

    The names are ``inputs``, by default those of a data frame, and None for an array without an intercept. Raises ShapeError or
    ValueError.
    """
    names = columns_of(X) if inputs is None else [str(each) for each in inputs]
    X = finite("X", X)
    if X.ndim != 2:
        raise ShapeError(f"X must have shape (n, d); got {X.shape}.")
    if names is not None and len(names) != X.shape[1]:
        raise ShapeError(f"inputs must name the {X.shape[1]} columns of X; got {len(names)} names.")
    if not intercept:
        return X, names
    return with_ones(X), ["intercept", *(names or [f"x{j}" for j in range(X.shape[1])])]


def with_ones(X: np.ndarray) -> np.ndarray:
    """Return ``X`` (n, d) with a column of ones before it."""
    return np.column_stack([np.ones(len(X)), X])


def rows_of(X: object, width: int, intercept: bool = False) -> np.ndarray:
    """Return ``X`` of shape (n, width) with n at least 1, with the ones of an intercept. Raises ShapeError or ValueError."""
    if intercept:
        return with_ones(rows_of(X, width - 1))
    X = finite("X", X)
    if X.ndim != 2 or X.shape[1] != width or len(X) == 0:
        raise ShapeError(f"X must have shape (n, {width or 'features'}) with n >= 1; got {X.shape}.")
    return X


def images(X: object) -> np.ndarray:
    """Return images as an array (n, height, width, channels). Raises ShapeError or ValueError."""
    X = finite("X", X)
    X = X[:, None] if X.ndim == 3 else X
    if X.ndim != 4 or len(X) == 0:
        raise ShapeError(f"X must have shape (n, height, width) or (n, channels, height, width); got {X.shape}.")
    return np.moveaxis(X, 1, -1)


def labels(y: object, n_classes: int) -> np.ndarray:
    """Return labels 0, ..., n_classes - 1 as integers. Raises ValueError with the first other entry."""
    y = np.asarray(from_table("y", y))
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y must be labels 0, ..., {n_classes - 1}; got an array of {y.dtype}.")
    wrong = np.flatnonzero(~((y >= 0) & (y < n_classes) & (y == np.floor(y))))
    if len(wrong):
        raise ValueError(f"y must be labels 0, ..., {n_classes - 1}; y[{wrong[0]}] is {y[wrong[0]]}.")
    return y.astype(np.int64)


def number_of_classes(y: object, given: int | None) -> int:
    """Return ``given``, or one more than the largest label. Raises ValueError."""
    if given is not None:
        return whole_number("n_classes", given, 2)
    refuse_masked("y", y)
    y = np.asarray(from_table("y", y))
    if y.dtype.kind not in "biuf" or not (np.isfinite(y) & (y >= 0)).all():
        raise ValueError(f"y must be labels 0, 1, ...; got an array of {y.dtype} that starts {y.ravel()[:5].tolist()}.")
    return int(np.max(y, initial=0)) + 1

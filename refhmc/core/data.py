"""Data as users have them: lists, tuples of lists and tables become arrays; strings are rejected by name.

A table is recognised by its methods, so that pandas is not imported: it has ``to_numpy`` and, if it is a frame, ``columns``. A
column has one of NumPy's numeric types or one of pandas' nullable ones, whose missing values become NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NUMERIC = "iufbc"


def as_data(what: str, data: object, error: type[Exception] = ValueError) -> Any:
    """Return ``data`` with lists and tables as arrays: itself, the entries of a tuple, and the values of a dict.

    Anything else is returned unchanged. A list whose entries do not fit into one array becomes a tuple of arrays. Raises
    ``error``, naming the place, for strings and for other objects in a list or a table. In a dict, a list that does not hold
    numbers stays as it is: it may be an option.
    """
    if isinstance(data, tuple):
        labels = [f"{what}.{name}" for name in getattr(data, "_fields", ())] or [
            f"{what}[{i}]" for i in range(len(data))
        ]
        entries = [as_data(label, each, error) for label, each in zip(labels, data, strict=True)]
        if all(new is old for new, old in zip(entries, data, strict=True)):
            return data
        return type(data)(*entries) if hasattr(data, "_fields") else tuple(entries)
    if type(data) is dict:
        values = {key: of_dict(f"{what}[{key!r}]", each, error) for key, each in data.items()}
        return data if all(values[key] is each for key, each in data.items()) else values
    if isinstance(data, list):
        return from_list(what, data, error)
    return from_table(what, data, error)


def of_dict(what: str, value: object, error: type[Exception]) -> object:
    """Return a value of a dict, with a list of numbers or a table as an array."""
    if not isinstance(value, list):
        return from_table(what, value, error)
    try:
        return from_list(what, value, error)
    except error:
        return value


def from_list(what: str, data: list, error: type[Exception]) -> np.ndarray | tuple:
    """Return a list as an array or, if its entries differ in shape, as a tuple of arrays."""
    entries = [as_data(f"{what}[{i}]", each, error) if not np.isscalar(each) else each for i, each in enumerate(data)]
    try:
        array = np.asarray(entries)
    except ValueError:
        return as_data(what, tuple(entries), error)
    if array.dtype.kind not in NUMERIC:
        wrong = next((i for i, each in enumerate(entries) if np.asarray(each).dtype.kind not in NUMERIC), 0)
        raise error(
            f"{what} must hold numbers; {what}[{wrong}] is {data[wrong]!r:.60}. Encode it as a number, or remove it."
        )
    return array


def from_table(what: str, data: Any, error: type[Exception] = ValueError) -> Any:
    """Return a frame (n, columns), a series or an index (n,) as an array; return anything else unchanged.

    Raises ``error``, naming the column, if one does not hold numbers; also for an array of strings.
    """
    if isinstance(data, np.ndarray):
        if data.dtype.kind in "US":
            raise error(f"{what} must hold numbers; got an array of {data.dtype}. Encode its values as numbers.")
        return data
    if not hasattr(data, "to_numpy"):
        return data
    if not hasattr(data, "columns"):
        return numbers_of(what, data, error)
    names = list(data.columns)
    if not names:
        return np.zeros((len(data), 0))
    by_place = getattr(data, "iloc", None)  # two columns may have one name
    columns = [data[name] if by_place is None else by_place[:, i] for i, name in enumerate(names)]
    return np.column_stack(
        [numbers_of(f"{what}[{name!r}]", each, error) for name, each in zip(names, columns, strict=True)]
    )


def numbers_of(what: str, column: Any, error: type[Exception]) -> np.ndarray:
    """Return a column as an array of numbers."""
    values = np.asarray(column.to_numpy())
    kind = getattr(column, "dtype", values.dtype)
    if values.dtype.kind == "O" and getattr(kind, "kind", "O") in ("i", "u", "f", "b"):  # a nullable type of pandas
        values = column.to_numpy(dtype=float, na_value=np.nan)
    if values.dtype.kind not in NUMERIC:
        first = f", as {values.flat[0]!r:.40}" if values.size else ""
        raise error(f"{what} must hold numbers; got {kind}{first}. Encode it as a number, or remove it.")
    return values

"""The variables of a model: names of its coordinates, and values that ``constrain`` computes for many positions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from refhmc.core.arguments import whole_number
from refhmc.core.named_axes import SAMPLES, check_storable
from refhmc.errors import ModelError, ShapeError
from refhmc.models.generated import CLOSE, COMPARED


def check_names(names: Sequence[str]) -> None:
    """Raise ShapeError if a coordinate has the name of a variable with entries, such as ``x`` next to ``x[1]``."""
    there = set(names)
    for name in names:
        check_storable("names", name, ShapeError)
        if name in SAMPLES:
            raise ShapeError(f"names must not include {name!r}, which is an axis of every result; choose another name.")
        base = re.sub(r"\[\d+\]$", "", name)
        if base != name and base in there:
            raise ShapeError(
                f"names must not use {base!r} for a coordinate and for the variable of {name!r}; rename one of them."
            )


def gather_by_name(names: Sequence[str], q: np.ndarray) -> dict[str, np.ndarray]:
    """Return variables by name from coordinates by name; ``base[0], base[1], ...`` become vectors."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        match = re.fullmatch(r"(.+)\[(\d+)\]", name)
        base = match[1] if match and int(match[2]) == len(groups.get(match[1], [])) else name
        groups.setdefault(base, []).append(i)
    return {
        base: q[..., indices[0]] if base == names[indices[0]] else q[..., indices] for base, indices in groups.items()
    }


def indices_of(coordinates: Sequence[int | str] | None, names: Sequence[str]) -> np.ndarray:
    """Return the sorted indices of coordinates given by index, name, or name without index. Raises ModelError."""
    found: list[int] = []
    for each in coordinates if coordinates is not None else ():
        if isinstance(each, str):
            named = [i for i, name in enumerate(names) if each in (name, re.sub(r"\[\d+\]$", "", name))]
            if not named:
                raise ModelError(f"discontinuous must name coordinates of {names}; got {each!r}.")
            found += named
        else:
            found.append(whole_number("an index of discontinuous", each, 0, len(names) - 1, ModelError))
    twice = [i for i in found if found.count(i) > 1] if len(set(found)) < len(found) else []
    if twice:
        raise ModelError(
            f"discontinuous must name each coordinate once; got {names[twice[0]]!r} (coordinate {twice[0]}) twice."
        )
    return np.array(sorted(found), dtype=np.int64)


def constrained_rows(constrain: Callable, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the constrained values of each row, by one call if the function broadcasts."""
    for several in (rows[:2], rows):
        together = _constrained_together(constrain, several)
        if together is None:
            break
        if len(several) == len(rows):
            return together
    singles = [constrain(row.copy()) for row in rows]
    return {key: np.stack([np.asarray(s[key]) for s in singles]) for key in singles[0]}


def _constrained_together(constrain: Callable, rows: np.ndarray) -> dict[str, np.ndarray] | None:
    """Return the constrained values from one call, or None if some differ from those of single calls."""
    some = np.linspace(0, len(rows) - 1, min(len(rows), COMPARED)).astype(int)
    singles = [constrain(rows[k].copy()) for k in some]
    few = {key: np.stack([np.asarray(s[key]) for s in singles]) for key in singles[0]}
    try:
        together = {key: np.asarray(value) for key, value in constrain(rows.copy()).items()}
        alike = together.keys() == few.keys() and all(
            together[k].shape == (len(rows), *few[k].shape[1:])
            and np.allclose(together[k][some], few[k], rtol=CLOSE, atol=0.0, equal_nan=True)
            for k in few
        )
    except Exception:  # the function handles one position only
        return None
    return together if alike else None

"""The hierarchy of a model: the parents of its variables, the blocks that follow, and the coordinates of a variable.

A variable is the group of coordinates whose names differ in their indices only: ``theta`` for ``theta[0], theta[1], ...``.
Its parents are the variables on which its conditional prior depends. They form a directed acyclic graph. The depth of a
variable is the number of edges of the longest path that leads to it::

    depth(v) = 0                                          if v has no parents
    depth(v) = 1 + max over parents p of v of depth(p)    otherwise

The variables of one depth are a block, and all parents of a variable are in earlier blocks.
"""

from __future__ import annotations

import graphlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from refhmc.core.protocols import Model
from refhmc.errors import ModelError, ShapeError

Parents = dict[str, tuple[str, ...]]
# Approximate lengths of moves of a coordinate that may change a variable by jumps.
STEPS = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)


def variable_of(name: str) -> str:
    """Return the variable of a coordinate: its name without indices."""
    return re.sub(r"(\[\d+\])+$", "", name)


def parents_of(given: object, variables: Iterable[str]) -> Parents:
    """Return the parents of each variable, in the order of `variables`; a string is the name of one parent.

    Raises ModelError for a wrong type, and ShapeError for unknown names and for cycles.
    """
    if not isinstance(given, Mapping):
        raise ModelError(f"parents must be a dictionary of names by variable; got {type(given).__name__}.")
    found: Parents = dict.fromkeys(variables, ())
    for variable, names in given.items():
        names = (names,) if isinstance(names, str) else names
        if not isinstance(names, Iterable):
            raise ModelError(f"parents[{variable!r}] must be names of variables; got {names!r}.")
        names = tuple(names)
        for name in (variable, *names):
            if name not in found:
                raise ShapeError(f"parents must contain names of variables ({', '.join(found)}); got {name!r}.")
        found[variable] = tuple(dict.fromkeys(names))
    try:
        graphlib.TopologicalSorter(found).prepare()
    except graphlib.CycleError as error:
        raise ShapeError(f"parents must not form a cycle; got {' -> '.join(error.args[1])}.") from None
    return found


def parents_of_variables(given: Mapping[str, Iterable[str]]) -> Parents | None:
    """Return the parents of variables from those of names that may have indices, or None if the variables form a cycle.

    Names such as ``x[0]`` and ``x[1]`` are one variable, which is not its own parent.
    """
    found: dict[str, list[str]] = {}
    for name, parents in given.items():
        variable = variable_of(name)
        found.setdefault(variable, []).extend(each for each in map(variable_of, parents) if each != variable)
    try:
        return parents_of(found, found)
    except ShapeError:
        return None


def blocks_of(model: Model) -> list[list[str]] | None:
    """Return the variables by depth, each block in the order of the model, or None if the parents are not known."""
    if model.parents is None:
        return None
    depth: dict[str, int] = {}
    for name in graphlib.TopologicalSorter(model.parents).static_order():
        depth[name] = 1 + max((depth[parent] for parent in model.parents[name]), default=-1)
    return [[name for name in model.parents if depth[name] == k] for k in range(max(depth.values()) + 1)]


def parents_within(model: Model, names: Sequence[str]) -> Parents | None:
    """Return the parents of some coordinates, by `names`, among the variables of these coordinates."""
    if model.parents is None:
        return None
    kept = dict.fromkeys(map(variable_of, names))
    return {each: tuple(parent for parent in model.parents[each] if parent in kept) for each in kept}


def coordinates_of(model: Model, name: str) -> list[int]:
    """Return the coordinates called ``name`` or ``name[...]``, or else those that change the constrained variable ``name``.

    The latter are found by moving one coordinate at a time. Raises ValueError if the model does not have the name, or if no
    coordinate changes the variable.
    """
    called = [i for i, each in enumerate(model.names) if each == name or each.startswith(f"{name}[")]
    if called:
        return called
    rng = np.random.default_rng(1)
    places = [rng.uniform(-1, 1, model.dim)]
    there = model.constrain(places[0])
    if name not in there:
        known = ", ".join(dict.fromkeys([*map(variable_of, model.names), *there]))
        raise ValueError(f"Model {model.name!r} has no variable {name!r}. Its variables are {known}.")
    changes = changed_by(model, name, places[0], np.arange(model.dim), rng.uniform(0.1, 0.5, model.dim))
    # An integer changes only if its coordinate leaves a cell, which a short move from one place may not show.
    places.append(rng.uniform(-1, 1, model.dim))
    if model.initial is not None:
        places.insert(0, np.array(model.initial(rng) if callable(model.initial) else model.initial, dtype=float))
    steps = np.zeros(model.dim, bool)
    steps[model.discontinuous] = True
    steps |= bool(np.all(there[name] == np.rint(there[name])))
    for place, size in itertools.product(places, (0.3, *STEPS)):
        of_this_size = ~changes & (steps | (size < STEPS[0]))
        if not of_this_size.any():
            continue
        for sign in (1, -1):
            which = np.flatnonzero(of_this_size)
            try:
                changes |= changed_by(model, name, place, which, sign * size * rng.uniform(0.7, 1.3, len(which)))
            except Exception:  # the function may not be defined at a position this far away
                break
    if not changes.any():
        raise ValueError(
            f"No coordinate of model {model.name!r} changes its variable {name!r}. Name the coordinates instead, "
            f"{', '.join(model.names[:3])}{', ...' if model.dim > 3 else ''}, or give their indices."
        )
    return [int(i) for i in np.flatnonzero(changes)]


def changed_by(model: Model, name: str, q: np.ndarray, which: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Return whether moving each coordinate of ``q`` (d,) changes a constrained variable; (d,), False except for ``which``."""
    positions = np.repeat(q[None], len(which) + 1, axis=0)
    positions[np.arange(len(which)), which] += moves
    with np.errstate(all="ignore"):
        values = np.asarray(model.constrain(positions)[name])
    same = (values == values[-1]) | ((values != values) & (values[-1] != values[-1]))  # NaN outside the support
    found = np.zeros(model.dim, bool)
    found[which] = ~same[:-1].reshape(len(which), -1).all(axis=1)
    return found

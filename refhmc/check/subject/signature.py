"""What the parameters of somebody's function say of how it wants to be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable

GENERATORS = {
    "rng",
    "generator",
    "gen",
    "random_state",
    "prng",
    "rnd",
}  # a parameter of these names is NumPy's generator
RANDOMNESS = GENERATORS | {"draws", "random", "key", "rng_key", "seed"}  # ... or another source of random numbers


def parameters(function: Callable) -> dict[str, inspect.Parameter]:
    """A function's parameters by name; none where it does not tell."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def required(function: Callable) -> list[inspect.Parameter]:
    """The positional parameters that have no default."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [x for x in parameters(function).values() if x.default is x.empty and x.kind in by_position]

"""One transition of a kernel of JAX given data, compiled once for all data of one shape.

A transition draws a state at theta, moves it, and reads its position. A momentum in the state is therefore drawn again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.check.subject.foreign import Foreign, SubjectError
from refhmc.check.subject.keyed import (
    ALONE,
    SEEDS,
    VMAPPED,
    Keyed,
    author_of,
    compiled,
    keyed_or_none,
    new_state,
    within,
)


class KeyedTransition:
    """``(y, rng, theta) -> theta`` for the kernels that ``given(y)`` returns, of which ``keyed`` is one."""

    def __init__(self, given: Foreign, keyed: Keyed, like: Any) -> None:
        jax = sys.modules["jax"]

        def one(y: Any, seeds: tuple[int, int], theta: Any) -> Any:
            author = author_of(given.function(y), len(theta), like=like)
            key = jax.random.fold_in(keyed.make_key(seeds[0]), seeds[1])
            first, second = jax.random.split(key)
            state = author.init(first, theta)
            after = new_state(author.step(None if keyed.keeps_key else second, state), state, given.name)
            return jax.numpy.concatenate([jax.numpy.ravel(x) for x in jax.tree_util.tree_leaves(keyed.part(after))])

        self.step = given.another(within(keyed.inside, compiled(jax, one)))
        self.note = f"called with JAX keys; the position is {keyed.where}"

    def __call__(self, y: Any, rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
        first, second = (int(seed) for seed in rng.integers(SEEDS, size=2))
        return self.step.vector(theta.shape, y, (first, second), theta)


def keyed_transition(given: Foreign, simulate: Callable[[], Any], like: Any) -> KeyedTransition | None:
    """Return the transition if ``given`` returns kernels of JAX, else None; ``simulate()`` returns (theta, y)."""
    if "jax" not in sys.modules:
        return None
    try:
        theta, y = simulate()
        kernel, theta = given.another().raw(y), np.atleast_1d(np.asarray(theta, dtype=float))
    except Exception:
        return None  # the check itself reports it
    Q = np.stack([theta, theta + 0.01])
    keyed = keyed_or_none(kernel, Q, like=like, name=given.name, at_once=len(Q), chains=len(Q))
    if keyed is None:
        return None
    if keyed.way not in (VMAPPED, ALONE):
        raise SubjectError(f"{given.name} must return a kernel of one chain; got one of a batch")
    return KeyedTransition(given, keyed, like)

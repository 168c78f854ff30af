"""Rows of ``check.batch`` for kernels of JAX, whose keys are known.

For states s_1, ..., s_n and keys k_1, ..., k_n, f(k, s) denotes the positions after one transition of a batch. A batch with its
keys, and a kernel of one chain under ``vmap``, must satisfy

    alone equals batch       f(k, s)_i = f(k_i, s_i), for a kernel of one chain without vmap
    order of chains          f(k, s) in another order is f of keys and states in that order
    streams independent      k_i changes the answer of chain i, and of no other chain

A key may change all chains if they share a random step size. But the other chains need keys that change nothing else. The rows
without keys are those of ``numbered_batch.py``: a neighbour that is not finite, equal answers from equal starts, and decisions.

Rounding may turn a decision: in single precision one chain of all batches may differ, in double precision none.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from refhmc.check.examination import Rows
from refhmc.check.judging import failed, passed
from refhmc.check.report import FAIL, Row
from refhmc.check.reproducibility import numbered_batch as numbered
from refhmc.check.subject.draws import Draws
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, call_text
from refhmc.check.subject.keyed import ALONE, ONE_KEY, VMAPPED, Keyed, keyed_in, new_state

BATCHES = 20


class KeyedBatchExamination(numbered.BatchExamination):
    """A kernel of JAX under examination, for ``chains`` chains."""

    def __init__(self, keyed: Keyed, dim: int, chains: int, points: Any, rounding: float | None, seed: int) -> None:
        super().__init__(keyed.step, dim, chains, 0.0, 0, points, rounding, seed)
        self.keyed, self.foreign = keyed, list(keyed.foreign)
        self.single = keyed.step.another(keyed.compiled_step())
        self._changes: np.ndarray | None = None

    def need(self, kernel: bool | None = None) -> None:
        super().need(kernel)
        if self.keyed.way == ALONE:
            raise NotApplicable("JAX cannot trace it, so that it is only called for one chain at a time")

    def kernel(self, q: np.ndarray, draws: Draws) -> np.ndarray:
        return self.keyed.after(draws.rng, q)

    def need_own_keys(self) -> None:
        self.need()
        if self.keyed.way == ONE_KEY:
            raise NotApplicable("the chains have no keys of their own")
        if self.keyed.keeps_key and not hasattr(self.started(0)[2], "rng_key"):
            raise NotApplicable("the key in the state is not named rng_key")

    def need_keys(self) -> None:
        self.need_own_keys()
        if np.any(self.changes().sum(axis=1) > 1):
            raise NotApplicable("a key is shared by several chains (see 'streams independent')")

    def started(self, number: int, *, equal: bool = False) -> tuple[np.ndarray, Any, Any]:
        """Return positions, keys and states of a batch; with ``equal`` all chains start at one position."""
        rng = np.random.default_rng([self.seed, 60, number])
        Q = self.states(number)[0]
        if equal:
            Q[:] = Q[0]
        return Q, self.keyed.keys(rng, self.chains), self.keyed.states(self.keyed.keys(rng, self.chains), Q)

    def after(self, keys: Any, states: Any) -> np.ndarray:
        """Return the positions after one transition with given keys."""
        return self.keyed.read(self.keyed.move(keys, states))

    def differing(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return which chains of two batches differ."""
        same = np.isclose(one, other, rtol=0.0, atol=self.tolerance(other), equal_nan=True)
        return ~np.all(same, axis=1)

    def changes(self) -> np.ndarray:
        """Return whether key j changes the answer of chain k, (chains, chains), from equal starts."""
        if self._changes is None:
            n, jax = self.chains, sys.modules["jax"]
            self._changes = np.zeros((n, n), dtype=bool)
            for number in range(BATCHES):
                _, keys, states = self.started(number, equal=True)
                others = self.keyed.keys(np.random.default_rng([self.seed, 61, number]), n)
                before = self.after(keys, states)
                for j in range(n):
                    mixed = jax.numpy.where(_column(np.arange(n) == j, keys), others, keys)
                    self._changes[j] |= self.differing(self.after(mixed, states), before)
        return self._changes

    @property
    def turned(self) -> int:
        """Number of chains whose decision may be turned by rounding."""
        return int(self.subject.epsilon > 2.0**-52)


def examination(
    kernel: Any, dim: int | None, chains: int, points: Any, rounding: float | None, seed: int, **options: Any
) -> KeyedBatchExamination | None:
    """Return the examination of a kernel that takes keys of JAX, or None; ``options`` are those of ``find_keyed``."""
    given = None if points is None else np.atleast_2d(np.asarray(points, dtype=float))
    chains, dim = (chains, dim) if given is None else given.shape

    def place(d: int) -> np.ndarray:
        return 0.7 * np.random.default_rng(seed).standard_normal((chains, d)) if given is None else given

    keyed = keyed_in(kernel, dim, numbered.TRIED, place, chains=chains, at_once=chains, **options)
    return None if keyed is None else KeyedBatchExamination(keyed, keyed.dim, chains, given, rounding, seed)


def _answers(test: KeyedBatchExamination) -> Row:
    Q, _ = test.states(0)
    test.call = numbered.GENERATED  # a kernel, for the rows of numbered_batch.py
    got = test.kernel(Q, Draws(np.random.default_rng(0)))
    test.notes.append(test.keyed.note)
    if not np.isfinite(got).all():
        return failed("not finite, from finite arguments", call_text(test.subject.name, [Q]))
    return passed(f"{got.shape}")


def _judged(test: KeyedBatchExamination, wrong: int, case: str, what: str) -> Row:
    basis = f"chains with {what}, of {BATCHES * test.chains}"
    if wrong > test.turned:
        return failed(basis, case, float(wrong), float(test.turned))
    return passed(basis, float(wrong), float(test.turned))


def _alone(test: KeyedBatchExamination) -> Row:
    """Compare each chain of a batch with the chain alone."""
    test.need_keys()
    wrong, case = 0, ""
    for number in range(BATCHES):
        Q, keys, states = test.started(number)
        together = test.after(keys, states)
        alone = np.concatenate([_single(test, keys, states, k) for k in range(test.chains)])
        found = np.flatnonzero(test.differing(alone, together))
        if len(found) and not case:
            k = int(found[0])
            case = f"{call_text(test.subject.name, [Q])}, chain {k}: {together[k].tolist()}; alone {alone[k].tolist()}"
        wrong += len(found)
    return _judged(test, wrong, case, "another answer in the batch")


def _single(test: KeyedBatchExamination, keys: Any, states: Any, k: int) -> np.ndarray:
    """Return the position (1, d) of chain k, from the function of one chain if there is one."""
    tree, n = sys.modules["jax"].tree_util, test.chains
    if test.keyed.way != VMAPPED:
        part = tree.tree_map(lambda x: x[k : k + 1] if np.shape(x)[:1] == (n,) else x, states)
        return test.after(keys[k : k + 1], part)
    state = tree.tree_map(lambda x: x[k], states)
    after = new_state(test.single.raw(keys[k], state), state, test.single.name)
    return test.keyed.read(tree.tree_map(lambda x: x[None], after))


def _order(test: KeyedBatchExamination) -> Row:
    """Compare permuted chains, with their keys, with the permuted answer."""
    test.need_keys()
    wrong, case, jax = 0, "", sys.modules["jax"]
    for number in range(BATCHES):
        Q, keys, states = test.started(number)
        order = np.roll(np.random.default_rng([test.seed, 50, number]).permutation(test.chains), 1)
        permuted = jax.tree_util.tree_map(lambda x: x[order] if np.shape(x)[:1] == (test.chains,) else x, states)  # noqa: B023
        found = test.differing(test.after(keys[order], permuted), test.after(keys, states)[order])
        if found.any() and not case:
            case = f"{call_text(test.subject.name, [Q])} in the order {order.tolist()}"
        wrong += int(found.sum())
    return _judged(test, wrong, case, "another answer in another order")


def _streams(test: KeyedBatchExamination) -> Row:
    """Check that each chain has a key of its own, and that equal starts lead to different points."""
    row = numbered._streams(test)
    if row.status == FAIL:
        return row
    try:
        test.need_own_keys()
    except NotApplicable:
        return row
    changes = test.changes()
    several = np.flatnonzero(changes.sum(axis=1) > 1)
    if not len(several):
        return row
    own = changes & (changes.sum(axis=1) == 1)[:, None]
    without = np.flatnonzero(changes.any(axis=0) & ~own.any(axis=0))
    why = f"the key of chain {several[0]} changes the chains {np.flatnonzero(changes[several[0]]).tolist()}"
    if len(without) > numbered.COMMON:
        case = call_text(test.subject.name, [test.states(0)[0]])
        return failed(f"{why}; chains without a key that changes only them", case, float(len(without)), 0.0)
    raise Inconclusive(f"{why}: right for a common step size, wrong for noise")


def _column(chosen: np.ndarray, keys: Any) -> np.ndarray:
    """Return ``chosen`` (n,) with as many axes as the keys have."""
    return chosen.reshape(-1, *(1,) * (keys.ndim - 1))


def _counted(test: KeyedBatchExamination) -> Row:
    raise NotApplicable("the numbers that are drawn from a key cannot be counted")


ROWS: Rows = (
    ("answers", _answers),
    ("alone equals batch", _alone),
    ("order of chains", _order),
    ("divergent neighbour", numbered._neighbour),
    ("numbers scale", _counted),
    ("streams independent", _streams),
    ("decisions independent", numbered._decisions),
)

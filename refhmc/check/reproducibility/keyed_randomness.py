"""Rows of ``check.randomness`` for kernels of JAX, whose random numbers follow from a key.

    respects the generator   the same key gives the same answer, whatever the state of NumPy's and Python's generators
    global state             these generators are unchanged
    fresh every call         two keys from the same q give different answers
    key reuse                no key is used twice in a transition, by JAX's own check, or by the next one

The first two call the functions of the author without ``jit``, which would freeze numbers of other generators. The numbers that
follow from a key are not recorded, so that the rows of ``recorded_randomness.py`` about single numbers are not run.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from refhmc.check.examination import Rows
from refhmc.check.judging import failed, passed
from refhmc.check.report import INEFFICIENT, Row
from refhmc.check.reproducibility import recorded_randomness as recorded
from refhmc.check.subject.foreign import DIMENSIONS, NotApplicable, SubjectError, call_text, first_line
from refhmc.check.subject.keyed import BATCHED, ONE_KEY, Keyed, is_key, keyed_in, new_state
from refhmc.check.subject.target import TargetDensity

CHAINS = 4  # of a batch
NOT_RECORDED = "the numbers that are drawn from a key cannot be changed one at a time"


class KeyedRandomnessExamination(recorded.RandomnessExamination):
    """A kernel of JAX under examination."""

    def __init__(self, keyed: Keyed, target: TargetDensity | None, points: Any, n: int, seed: int) -> None:
        super().__init__(keyed.step, target, keyed.dim, points, n, seed)
        self.keyed = keyed
        self.foreign += [keyed.init]

    def need(self) -> Any:
        if self.points is None:
            raise NotApplicable("it did not answer")

    def again(self, q: np.ndarray, seed: int) -> np.ndarray:
        return self.keyed.after(np.random.default_rng([self.seed, seed]), q[None])[0]

    def as_written(self, q: np.ndarray, seed: int) -> np.ndarray:
        """Return the leaves of the author's answer from q, without ``jit`` and ``vmap``, as one array."""
        state = self.begin(q, self.key(seed, 0))
        answer = self.kernel.another(self.keyed.author_step).raw(self.key(seed, 1), state)
        leaves = sys.modules["jax"].tree_util.tree_leaves(answer)
        arrays = (np.ravel(np.asarray(x)) for x in leaves if not is_key(x))
        return np.concatenate([x.astype(float) for x in arrays if x.dtype.kind in "fiub"])

    def key(self, *numbers: int) -> Any:
        """Return the argument of the author's functions: a key, or a batch of keys."""
        jax, rng = sys.modules["jax"], np.random.default_rng([self.seed, 2, *numbers])
        with self.keyed.inside():
            key = self.keyed.make_key(int(rng.integers(2**31)))
            return jax.random.split(key, CHAINS) if self.keyed.way == BATCHED else key

    def begin(self, q: np.ndarray, key: Any) -> Any:
        """Return the author's state at q."""
        batch = self.keyed.way in (BATCHED, ONE_KEY)
        start = self.keyed.init.another(self.keyed.author_init)
        return start.raw(key, np.tile(q, (CHAINS, 1)) if batch else q)


def examination(
    kernel: Any, target: TargetDensity | None, dim: int | None, points: Any, n: int, seed: int, **options: Any
) -> KeyedRandomnessExamination | None:
    """Return the examination of a kernel that takes keys of JAX, or None; ``options`` are those of ``find_keyed``."""
    given = None if points is None else np.atleast_2d(np.asarray(points, dtype=float))
    dim = given.shape[1] if given is not None else dim if dim is not None or target is None else target.dim

    def place(d: int) -> np.ndarray:
        return 0.5 * np.random.default_rng(seed).standard_normal((CHAINS, d)) if given is None else given

    keyed = keyed_in(kernel, dim, DIMENSIONS, place, chains=CHAINS, at_once=1, **options)
    return None if keyed is None else KeyedRandomnessExamination(keyed, target, given, n, seed)


def _answers(test: KeyedRandomnessExamination) -> Row:
    test.choose_starts(test.keyed.dim)
    test.notes.append(test.keyed.note)
    for k in range(test.n):
        q = test.starts()[k % len(test.starts())]
        if not np.isfinite(test.again(q, k)).all():
            return failed("the new position is not finite", call_text(test.kernel.name, [q]))
    return passed(f"positions ({test.keyed.dim},), {test.n} times")


def _respects(test: KeyedRandomnessExamination) -> list[Row]:
    """Check that a key determines the answer, and that the global generators neither matter nor change."""
    test.need()
    q = test.starts()[0]
    answers: list[np.ndarray] = []
    untouched = recorded.unchanged(lambda: answers.append(test.as_written(q, 0)), test.text)
    recorded._set_global(2)
    answers.append(test.as_written(q, 0))
    row = passed("the same key gives the same answer, bit for bit")
    if not np.array_equal(answers[0], answers[1], equal_nan=True):
        row = failed("the same key gives another answer: it uses another generator", test.text)
    return [row, untouched._replace(name="global state")]


def _reuse(test: KeyedRandomnessExamination) -> Row:
    """Run transitions under JAX's check of keys."""
    test.need()
    jax = sys.modules["jax"]
    if not hasattr(jax, "debug_key_reuse"):
        raise NotApplicable("this version of JAX has no jax_debug_key_reuse")
    if test.keyed.make_key is not jax.random.key:
        raise NotApplicable("it only works with keys of jax.random.PRNGKey, which JAX does not follow")
    where, q, keeps = "init", test.starts()[0], test.keyed.keeps_key
    step = test.kernel.another(test.keyed.compiled_step())
    try:
        with jax.debug_key_reuse(True):
            # A branch that was not taken may use a key of the state, which would count as used in the transition.
            state = jax.tree_util.tree_map(
                lambda x: jax.random.clone(x) if is_key(x) else x, test.begin(q, test.key(7))
            )
            where = "a transition"
            after = new_state(step.raw(None if keeps else test.key(8), state), state, step.name)
    except SubjectError as wrong:
        reused = wrong.__cause__
        if reused is None or type(reused).__name__ != "KeyReuseError":
            raise NotApplicable(f"JAX could not follow the keys ({first_line(wrong)})") from None
        return failed(f"a key is used twice in {where}: {first_line(reused)}", test.text)
    if (
        keeps
        and hasattr(state, "rng_key")
        and np.array_equal(*(jax.random.key_data(x.rng_key) for x in (state, after)))
    ):
        return failed(
            "a transition leaves the key in the state as it was, so that the next one uses it again", test.text
        )
    return passed("init and a transition under jax_debug_key_reuse")


def _not_recorded(test: KeyedRandomnessExamination) -> Row:
    raise NotApplicable(NOT_RECORDED)


ROWS: Rows = [
    ("answers", _answers),
    ("respects the generator", _respects, INEFFICIENT),
    ("fresh every call", recorded._fresh),
    ("key reuse", _reuse),
    *(
        (name, _not_recorded)
        for name in ("kinds and counts", "momentum", "depends on every draw", "one use of each number")
    ),
]

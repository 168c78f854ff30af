"""First calls of ``check.transition``: the kernel's signature, the distribution of its noise, and the points.

    pi(q)        from H, a target or a log density; the points are typical of it (``typical_points`` in ``subject/target.py``)
    phi(q, w)    the noise: for a kern(q, p0=, u=) its momentum, exp(-H(q, w)), as w = L z, L L' the mass; else normal

Rows: answers, deterministic given randomness.
"""

from __future__ import annotations

import contextlib
import math
import time

import numpy as np

from refhmc.check.judging import failed, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, call_text
from refhmc.check.subject.target import momentum_root, typical_points
from refhmc.check.subject.transition import MOMENTUM, TINY, TransitionRunner, find_dimension, find_runner
from refhmc.check.transitions.balance import Setting
from refhmc.check.transitions.examination import TransitionExamination


def answers(test: TransitionExamination) -> Row:
    """Find the signature, the dimension and the points; the row is about a finite position of the right shape."""
    given = test.given

    def start(dim: int) -> np.ndarray:
        q = 0.1 + 0.1 * np.arange(dim) if given is None or dim != given.shape[1] else given[0]
        test.target.log_pi(q)
        return q

    test.dim, runner = find_dimension(test.kernel, test.dim, start, *test.target.foreign)
    test.notes.append(f"called as {runner.shape}" + (", with a momentum that is kept" if runner.keeps_momentum else ""))
    few = max(test.n_points, 4)
    test.points = typical_points(test.target.log_pi, test.dim, few, test.rng(1)) if given is None else given
    if not np.isfinite(test.target.log_pi(start(test.dim))):
        # If the density is zero, a kernel may stay without drawing any random number.
        runner = find_runner(test.kernel, test.points[0])
    test.runner = runner = runner._replace(sphere=test.sphere and runner.keeps_momentum)
    test.setting = _setting(test, runner, test.points[0])
    bad, test.cost = None, math.inf
    for k, q in enumerate(test.points):
        z = test.rng(2, k).standard_normal(test.dim)
        script = {"normal": list(test.setting.normals(z)), "uniform": [0.5]}
        began = time.perf_counter()
        end = runner.run(q, script, seed=k, p=z).q
        test.cost = min(test.cost, time.perf_counter() - began)  # the least, since the machine may be busy
        bad = bad if np.isfinite(end).all() else q
    if bad is not None:
        return failed("the new position is not finite", call_text(runner.kernel.name, [bad]))
    return passed(f"positions ({test.dim},)")


def _setting(test: TransitionExamination, runner: TransitionRunner, q: np.ndarray) -> Setting:
    """Return the distribution of the noise, its kind, and the end of [0, 1) that accepts."""
    log_pi, energy, root = test.target.log_pi, test.target.energy, np.eye(len(q))
    given = energy if runner.shape == MOMENTUM else None
    if given is not None:
        with contextlib.suppress(Inconclusive):
            found = momentum_root(given, q)
            root = found if np.isfinite(found).all() else root

    def log_noise(q: np.ndarray, w: np.ndarray) -> float:
        return -given(q, w) if given is not None else log_pi(q) - 0.5 * w @ w

    recorded = runner.recorded and runner.shape != MOMENTUM
    frees = recorded and not any(x.kind == "normal" for x in runner.run(q, p=q).asked)
    path = runner.run(q, {"uniform": [TINY]}, p=q).path
    between = 0 if path is None else len(path)
    sphere = recorded and not frees and _only_direction(test, runner, q)
    setting = Setting(runner, log_pi, log_noise, root, frees, TINY, test.seed, test.delta, None, False, between, sphere)
    if not recorded or frees or runner.keeps_momentum:
        return setting
    noises = (1.5 * test.rng(21, k).standard_normal(64) for k in range(2))
    if not any(setting.together(q, z) for z in noises):
        return setting
    test.notes.append("several uniforms decide together: balance is examined at given values of them first")
    return setting._replace(held=True)


def _only_direction(test: TransitionExamination, runner: TransitionRunner, q: np.ndarray) -> bool:
    """Return whether the move depends on the direction of the normals only; twice the numbers have it exactly."""
    z = test.rng(22).standard_normal(8 * len(q))
    once, twice = (runner.run(q, {"normal": list(x), "uniform": [TINY]}, p=q).q for x in (z, 2 * z))
    return np.array_equal(once, twice) and not np.array_equal(once, q)


def deterministic(test: TransitionExamination) -> Row:
    """Check that two calls on the same numbers return the same point."""
    runner, setting = test.need()
    for k, q in enumerate(test.points[:3]):
        z = test.rng(3, k).standard_normal(test.dim)
        script = {"normal": list(setting.normals(z)), "uniform": [0.3]}
        first, second = (runner.run(q, script, seed=k, p=z) for _ in range(2))
        if not np.array_equal(first.q, second.q, equal_nan=True):
            test.remembers = "two calls on the same numbers differ"
            if runner.shape == MOMENTUM:
                raise Inconclusive(
                    "two calls on the same q, p0 and u differ: the kernel has randomness or a memory of its own"
                )
            if not first.asked:
                raise Inconclusive(f"{test.remembers}, and no number was drawn: the kernel has randomness of its own")
            why = "the kernel keeps a state (let it take and return that state: q, p) or has randomness of its own"
            raise Inconclusive(f"{test.remembers}: {why}")
    return passed()

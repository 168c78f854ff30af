"""Memory of a kernel: whether earlier calls affect a transition.

A Markov kernel is K(q, .), independent of earlier calls. Here the same questions are asked after histories as they occur in a
chain (the call that led to q, alone and followed by rejected ones), then after jumps, each on a fresh copy of the kernel if it
can be copied. Keeping something may be harmless, such as a partially refreshed momentum. It is a fault if

    the same proposal q -> q' is accepted with another probability after another history

An old gradient or momentum in the proposal can be compensated by other noise; then the decision must be the same. If the
number of earlier calls matters and not their content, several rules alternate. Each of them may be right, so that
the row is INCONCLUSIVE.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import scipy.optimize

from refhmc.check.judging import failed, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, SubjectError, call_text
from refhmc.check.subject.outcomes import LOWER, Outcome, answers
from refhmc.check.subject.transition import MOMENTUM, TINY, Transition, TransitionRunner
from refhmc.check.transitions.balance import Setting
from refhmc.check.transitions.examination import TransitionExamination, moved, noise_size

SLOW_COPY, SLOW_CALL = 2e-3, 3e-3  # seconds
IN_A_ROW = 40  # repeated calls to see whether they are counted; fewer for a slow kernel


def stateless(test: TransitionExamination) -> Row:
    """Check that earlier calls do not matter, with histories of a chain, then with jumps, on copies if possible."""
    if test.runner is None or test.setting is None:
        raise NotApplicable("the kernel did not answer")
    runner, setting = test.runner, test.setting
    if runner.keeps_momentum:
        raise NotApplicable("the kernel keeps a momentum, which is an argument")

    def remembers(what: str, why: str) -> NoReturn:
        test.remembers = what
        raise Inconclusive(what + why)

    inside = " (a momentum kept inside?): let it take and return q and p"
    counted, more = _counted(test, runner, setting)
    if counted:
        remembers(
            "the answer depends on the number of earlier calls", f", {counted}: alternating rules? See check.sampler"
        )
    for k, (q, chains, elsewhere) in enumerate(_histories(test, runner, setting)):
        z = 1.6 * test.rng(4, k).standard_normal(64)
        scripts = _probes(test, setting._replace(run=_after(test, runner, chains[0])), q, z)

        def seen(chain: History, q: np.ndarray = q, scripts: list = scripts) -> np.ndarray:
            return np.array([_after(test, runner, chain)(q, x, seed).q for x, seed in scripts])

        first = seen(chains[0])
        after = [seen(chain) for chain in chains[1:]]
        if not np.array_equal(first, seen(chains[0]), equal_nan=True):
            remembers("the kernel remembers more than the last call", inside)
        other = (c for c, s in zip(chains[1:], after, strict=True) if not np.array_equal(first, s, equal_nan=True))
        for chain in other:
            test.remembers = "the answer depends on the previous call"
            return _memory(test, q, z[: noise_size(setting, q)], chains[0], chain)
        if not np.array_equal(first, seen(elsewhere), equal_nan=True):
            jump = "the previous call, from elsewhere, matters: the kernel takes q for its last point"
            remembers(jump, "; within a chain no fault was found")
    if more:
        remembers("the kernel remembers more than the last call", inside)
    return passed("the same answers, just below and above its thresholds, after other calls")


def _counted(test: TransitionExamination, runner: TransitionRunner, setting: Setting) -> tuple[str, bool]:
    """Return which of many equal calls in a row differ, if only by their number, and whether any later one differs.

    A counter is distinguished from other memories by two histories of different calls, which it treats equally.
    """
    calls, more = IN_A_ROW if test.cost <= SLOW_CALL else 6, False
    for k, scale in enumerate((1.6, 3.0, 5.0, 7.0) if test.cost <= SLOW_CALL else (1.6,)):
        with contextlib.suppress(SubjectError):  # noise that is rarely so large may be rejected
            q = test.points[k % len(test.points)]
            fresh = setting._replace(run=_after(test, runner, []))
            for script, seed in _probes(test, fresh, q, scale * test.rng(20, k).standard_normal(64)):
                copy = _fresh(test, runner)
                seen = [copy.run(q, script, seed).q.tobytes() for _ in range(calls)]
                turn = next((n for n in range(2, calls) if seen[n] != seen[n - 1]), 0)
                if not turn:
                    continue
                more = True
                where = f"call {turn + 1} differs from call {turn}"
                if not test.copies:
                    return where, more
                ends = []
                for key in (21, 22):
                    at = test.points[(k + key) % len(test.points)]
                    filler = [(at, _call(setting, test.rng(key).standard_normal(64), 0.5))]
                    ends.append(
                        [_after(test, runner, filler * n)(q, script, seed).q.tobytes() for n in (turn - 1, turn)]
                    )
                if ends[0] == ends[1] and ends[0][0] != ends[0][1]:
                    return where, more
    return "", more


History = list[tuple[np.ndarray, dict]]


def _histories(
    test: TransitionExamination, runner: TransitionRunner, setting: Setting
) -> list[tuple[np.ndarray, list[History], History]]:
    """Return for some points q of the kernel: the call that led there, alone and followed by rejected ones; a jump."""
    found = []
    for k, start in enumerate(test.points[: 1 if test.cost > SLOW_CALL else 3]):
        rng = test.rng(5, k)
        arrive = _call(setting, rng.standard_normal(test.dim), TINY)
        q = _fresh(test, runner).run(start, arrive, setting.seed).q
        if not np.isfinite(q).all():
            continue
        chains: list[History] = [[(start, arrive)]]
        for scale in (1.0, 1.3, 1.6, 2.0, 2.5, 3.0):
            z = scale * rng.standard_normal(test.dim)
            for u in (1 - TINY, TINY):
                stay = _call(setting, z, u)
                stays = np.array_equal(_after(test, runner, [(start, arrive)])(q, stay, setting.seed).q, q)
                if stays and len(chains) < 3:
                    chains.append([(start, arrive), (q, stay)])
        far = test.points[(k + 1) % len(test.points)]
        found.append((q, chains, [(far, _call(setting, rng.standard_normal(test.dim), TINY))]))
    return found


def _call(setting: Setting, z: np.ndarray, u: float) -> dict:
    """Return the script of a call on the noise ``z`` that answers ``u`` to decisions."""
    script = {"uniform": [u], "exponential": [-math.log(u)], "flip": [u < 0.5]}
    return {**script, **({} if setting.frees else {"normal": list(setting.normals(z))})}


def _after(test: TransitionExamination, runner: TransitionRunner, history: History) -> Callable[..., Transition]:
    """Return a run with the calls of ``history`` before it, on a fresh copy of the kernel."""

    def run(q: np.ndarray, script: dict, seed: int) -> Transition:
        copy = _fresh(test, runner)
        for start, before in history:
            copy.run(start, before, test.seed)
        return copy.run(q, script, seed)

    return run


def _fresh(test: TransitionExamination, runner: TransitionRunner) -> TransitionRunner:
    """Return a copy of the kernel with its state, or the kernel itself if it cannot be copied, or not quickly."""
    if test.copies is None:
        test.copies = _copies_quickly(runner.kernel.function) and _copy_answers(test, runner)
    return _copied(runner) if test.copies else runner


def _copied(runner: TransitionRunner) -> TransitionRunner:
    return runner._replace(kernel=runner.kernel.another(_copy_of(runner.kernel.function)))


def _copy_answers(test: TransitionExamination, runner: TransitionRunner) -> bool:
    """Return whether a copy can be called: a copied :class:`numpy.errstate`, for example, cannot."""
    try:
        _copied(runner).run(test.points[0], seed=test.seed)
    except SubjectError:
        return False
    return True


def _copies_quickly(function: Callable) -> bool:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        try:
            if _copy_of(function) is function:
                return False
        except Exception:
            return False
        times.append(time.perf_counter() - began)
    return min(times) <= SLOW_COPY


def _copy_of(function: Any) -> Any:
    if isinstance(function, types.FunctionType):
        if not function.__closure__:
            return function
        cells = tuple(types.CellType(copy.deepcopy(cell.cell_contents)) for cell in function.__closure__)
        code, name = function.__code__, function.__name__
        made = types.FunctionType(code, function.__globals__, name, function.__defaults__, cells)
        made.__kwdefaults__ = function.__kwdefaults__
        return made
    return copy.deepcopy(function)


def _probes(test: TransitionExamination, setting: Setting, q: np.ndarray, z: np.ndarray) -> list[tuple[dict, int]]:
    """Return scripts (and seeds) that lead to each outcome, just below and above each threshold; else random ones."""
    try:
        z = z[: noise_size(setting, q)]
        found = setting.outcomes(q, z)
    except Inconclusive:
        return [(_several(test, setting, k), k) for k in range(6)]
    paths = [outcome.path for outcome in found]
    for outcome in found:
        if outcome.decisions == 1 and outcome.path[-1].key == LOWER:
            for u in (outcome.probability * (1 - 1e-9), outcome.probability * (1 + 1e-9)):
                answer = -math.log(u) if outcome.path[-1].kind == "exponential" else u
                paths.append((*outcome.path[:-1], outcome.path[-1]._replace(answer=answer)))
    normals = {} if setting.frees else {"normal": list(setting.normals(z))}
    return [({**answers(path, z if setting.frees else None), **normals}, setting.seed) for path in paths]


def _several(test: TransitionExamination, setting: Setting, k: int) -> dict:
    """Return random numbers for a kern(q, p0=, u=) with several uniforms; other kernels draw theirs from the seed."""
    if setting.runner.shape != MOMENTUM:
        return {}
    rng = test.rng(16, k)
    return {
        "normal": list(setting.normals(rng.standard_normal(setting.runner.dim))),
        "uniform": list(rng.random(setting.runner.uniforms)),
    }


def _memory(test: TransitionExamination, q: np.ndarray, z: np.ndarray, one: History, other: History) -> Row:
    """Decide whether the previous call affects only the decision, which is wrong, or the proposal too.

    A momentum of the previous call that is part of this one's can be compensated by other noise, and then the decision is the
    same. An old gradient can be compensated as well, but the decision differs.
    """
    assert test.runner is not None
    assert test.setting is not None
    first, second = (test.setting._replace(run=_after(test, test.runner, h)) for h in (one, other))
    spelt = call_text(test.kernel.name, [q]) + f"  # after one call, or another, from {other[0][0].tolist()}"
    why = "the same proposal from the same q is accepted with another probability after another call of the same chain"
    moves = False
    for k in range(6):
        x = z if k == 0 else 1.6 * test.rng(17, k).standard_normal(len(z))
        a, b = moved(first.outcomes(q, x)), moved(second.outcomes(q, x))
        if a is not None and b is not None and not np.array_equal(a.transition.q, b.transition.q):
            moves = True
            b = _made_up_for(second, q, x, a, b)
            if b is None:
                continue
        change = abs((0.0 if a is None else a.probability) - (0.0 if b is None else b.probability))
        if change > 1e-6:
            return failed(why, spelt, change, 1e-6)
    test.remembers = "the proposal depends on the previous call" if moves else "the answer depends on the previous call"
    raise Inconclusive(test.remembers + " (a momentum kept inside?)")


def _made_up_for(setting: Setting, q: np.ndarray, z: np.ndarray, a: Outcome, b: Outcome) -> Outcome | None:
    """Return the outcome of ``setting`` on noise with which it makes the move ``a``; None if there is none."""

    def gap(x: np.ndarray) -> np.ndarray:
        return setting.gone(q, x, b.path)[: len(q)] - a.transition.q

    solved = scipy.optimize.root(gap, z, method="hybr", options={"xtol": 1e-12}).x
    reached = np.abs(gap(solved)).max() <= 1e-9 * (1 + np.abs(q).max())
    return moved(setting.outcomes(q, solved)) if reached else None

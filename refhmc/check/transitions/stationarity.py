"""The row "stationarity" of ``check.transition``: whether a transition preserves the distribution, if detailed balance fails.

    E e^r = 1    over the moves that end at one point, r the log ratio of forward and reverse moves; for kernels that never stay
    E w (f(K x) - f(x)) = 0    with x weighted to have the distribution pi

Both are described in ``transitions/stationarity_tests.py``. The first is exact. The second has the stated power, which is
small: it only gives a PASS together with the exact rows of a kernel that keeps its momentum, whose state is (q, p).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from refhmc.check.judging import failed, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, SubjectError, call_text
from refhmc.check.subject.outcomes import FREE
from refhmc.check.subject.target import momentum_root
from refhmc.check.subject.transition import MOMENTUM
from refhmc.check.transitions.balance import Path, Setting
from refhmc.check.transitions.examination import TransitionExamination
from refhmc.check.transitions.stationarity_tests import (
    FINE,
    GOAL,
    LIMIT,
    ROUGH,
    Integral,
    Moves,
    Weighed,
    bet_on_reversal,
    integrate_reversal,
    weigh_moves,
)


def stationarity(test: TransitionExamination, setting: Setting) -> Row:
    """Check that a transition preserves the distribution, if detailed balance decides nothing."""
    suspicion, setting = "", setting._replace(between=0)
    held = [] if setting.frees else [FREE]  # with a number fixed at one value, it is not the whole kernel
    broken = next(
        (x for x in test.pairs if x.state == "mismatch" and x.full and not any(s.key in held for s in x.outcome.path)),
        None,
    )
    if broken is not None and not test.decides:
        whole: list[Integral] = []
        size, path = len(broken.z), broken.outcome.path
        moves = Moves(setting, path, size, test.rng(8))
        for x in integrate_reversal(moves, test.points, test.part(0.5)):
            gap, tolerance = abs(x.value - 1), ROUGH + 4 * x.error
            basis = "|E e^r - 1| for moves that end at one point, by quadrature; 1e-4 and its error"
            if tolerance < 0.5 and (gap if x.complete else x.value - 1) > tolerance:
                return failed(basis, call_text(test.kernel.name, [x.at]), gap, tolerance)
            whole.append(x)
        if len(whole) > 1 and all(x.complete and x.error <= ROUGH for x in whole):
            gap, tolerance = max(abs(x.value - 1) for x in whole), FINE * min(1.0, _reach(test, setting, path, size))
            basis = f"|E e^r - 1| by quadrature, at {len(whole)} points; {FINE:g}, times a move's squared length"
            if gap <= tolerance:
                return passed(basis, gap, tolerance)
            suspicion = f"{basis}: {gap:.2g}, above the tolerance {tolerance:.2g}"
        wealth = bet_on_reversal(moves._replace(rng=test.rng(8)), test.points, test.part(0.3))
        text = f"wealth of a bet that E e^r > 1 for moves to {np.round(wealth.at, 3).tolist()}; mean {wealth.mean:.4g}"
        basis = f"{text}; {wealth.moves} moves"
        if wealth.value >= GOAL:
            return failed(basis, call_text(test.kernel.name, [wealth.at]), wealth.value, GOAL, relation="<")
        suspicion = basis if wealth.value > 100 else suspicion
    found = _weighed(test, _mover(test, setting))
    told = _told(test, found)
    if told is not None:
        return told
    if suspicion:
        raise Inconclusive(suspicion)
    return _not_refuted(found, ["detailed balance"])


def _weighed(
    test: TransitionExamination, move: Callable, root: Callable | None = None, sphere: bool = False
) -> Weighed:
    assert test.dim is not None
    try:
        return weigh_moves(move, test.target.log_pi, test.dim, test.rng(15), test.part(0.3), root, sphere)
    except SubjectError as wrong:
        raise Inconclusive(f"from a point in the tails: {wrong}") from None


def _not_refuted(found: Weighed, wanting: list[str]) -> Row:
    """Return a PASS only together with exact rows, since weighted moves have little power; ``wanting`` did not pass."""
    basis = (
        f"largest z of {found.moves} weighted moves, which would have shown a change of {found.least:.2g} sd per move"
    )
    if wanting:
        raise Inconclusive(f"{basis}; not sufficient without {', '.join(wanting)}: see check.sampler", found.z)
    return passed(basis, found.z, LIMIT)


def stationarity_of_both(test: TransitionExamination, wanting: list[str]) -> Row:
    """Return the row for (q, p) of a kernel that keeps its momentum; ``wanting`` are exact rows that did not pass."""
    runner, _ = test.need()

    energy = None if test.sphere else test.target.energy
    root_at = functools.partial(momentum_root, energy)

    def move(x: np.ndarray, seed: int, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        transition = runner.run(x, None, seed, p)
        if transition.p is None:
            raise Inconclusive("the kernel does not return a momentum")
        return transition.q, transition.p

    roots = [root_at(q) for q in test.points]
    constant = max(np.abs(L - roots[0]).max() for L in roots) <= 1e-9 * np.abs(roots[0]).max()
    found = _weighed(test, move, (lambda q: roots[0]) if constant else root_at, test.sphere)
    return _told(test, found) or _not_refuted(found, wanting)


def _told(test: TransitionExamination, found: Weighed) -> Row | None:
    """Return a FAIL from weighted moves alone, or None; Inconclusive if they cannot be judged."""
    if found.least == 0:
        raise Inconclusive(f"none of {found.moves} moves changed the position: is everything rejected?")
    if math.isnan(found.z):
        raise Inconclusive(f"the weights of {found.moves} moves are too uneven")
    if found.z >= LIMIT:
        basis = f"z of the mean change of {found.what} in {found.moves} weighted moves"
        return failed(basis, f"{test.kernel.name}: {found.moves} moves", found.z, LIMIT)
    return None


def _reach(test: TransitionExamination, setting: Setting, path: Path, size: int) -> float:
    """Return the mean squared length of a move in standard deviations, which relates errors of one move to those of all."""
    rng, spread = test.rng(19), test.points.std(axis=0) + 1e-300
    moves = [(setting.gone(q, rng.standard_normal(size), path) - q) / spread for q in test.points]
    return float(np.mean(np.square(moves)))


def _mover(test: TransitionExamination, setting: Setting) -> Callable:
    """Return ``move(x, seed)`` with fresh randomness; a kern(q, p0=, u=) receives a momentum drawn at x."""
    runner, energy = setting.runner, test.target.energy

    def move(x: np.ndarray, seed: int) -> np.ndarray:
        script = None
        if runner.shape == MOMENTUM and energy is not None:
            z = np.random.default_rng(seed).standard_normal(len(x))
            script = {"normal": list(momentum_root(energy, x) @ z)}
            seed += 1
        return runner.run(x, script, seed).q

    return move

"""Noise on which a kernel never moves: check that the reverse move is never taken either.

Let the noise z be rejected with certainty, and let z(t) = z_0 + t (z - z_0) lead to it from an accepted noise z_0. At the
last t* before rejection, P = P(z(t*)) is found by bisection. If P is not tiny, the decision jumps there, and

    F(q, z(t* + h))  is known by extrapolation, from t* - h, t* - 2h and t* - 3h: call it q'.

If some w near the reverse of z(t* - h) leads from q' to q with probability > 0, then this move has no reverse: all noise near
z(t* + h), from which it would start, is rejected. This happens if only the rise of the energy is bounded, which violates
detailed balance. With a bound on |H' - H|, a proposal outside the support, or a solver that fails both ways, the move from q'
to q is rejected too.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.check.subject.foreign import Inconclusive, OutOfTime, SubjectError
from refhmc.check.subject.outcomes import Outcome, Path
from refhmc.check.transitions.balance import (
    Pairing,
    Setting,
    frees_of,
    map_of,
    probability_at,
    reversed_trail,
    roots_of,
)
from refhmc.check.transitions.examination import TransitionExamination, moved

MOST = 10  # number of such noises that are examined
SEEN = 1e-3  # least probability that counts as a jump
STEP = 1e-3  # h, in z
WITHIN = (10, 30, 100)  # distances from rejected noise, in steps, at which derivatives can be taken
ROUGH = 1e-3  # tolerance of the two sides' logarithms with the rough differences that are possible there
BISECTIONS = 30

ONE_WAY, BOTH_WAYS, NONE, OPEN = "one way", "both ways", "none", "open"


def look_at_refusals(
    test: TransitionExamination,
    setting: Setting,
    rng: np.random.Generator,
    outcomes: list[tuple[np.ndarray, np.ndarray, list[Outcome]]],
) -> None:
    """Count the kinds of rejected noise in ``test.refused``; append moves without a reverse to ``test.one_way``."""
    refused = [(q, z) for q, z, found in outcomes if moved(found) is None]
    looked_at = refused[:MOST]
    test.noises = len(outcomes) - len(refused) + len(looked_at)
    for q, z in looked_at:
        taken = [w for p, w, found in outcomes if np.array_equal(p, q) and moved(found) is not None]
        try:
            x = _across(setting, q, z, taken, rng)
        except OutOfTime:
            test.refused[OPEN] += 1
            raise
        except (SubjectError, Inconclusive):  # noise that is rarely so large may be rejected
            x = OPEN
        test.refused[x if isinstance(x, str) else ONE_WAY] += 1
        if isinstance(x, Pairing):
            test.one_way.append(x)


def _across(
    setting: Setting, q: np.ndarray, z: np.ndarray, taken: list[np.ndarray], rng: np.random.Generator
) -> Pairing | str:
    """Return the kind of a rejected noise, or a move that has no reverse."""
    far = max(1.0, float(np.abs(z).max()))
    others = [0.5 * z, 0.25 * z, -z / far, *(rng.standard_normal(len(z)) for _ in range(4))]
    near_first = [*sorted(taken, key=lambda w: float(np.linalg.norm(w - z))), *others]
    start, outcome = next(
        ((w, x) for w in near_first for x in [moved(setting.outcomes(q, w))] if x is not None), (z, None)
    )
    if outcome is None:
        return OPEN
    path, along = outcome.path, (z - start) / np.linalg.norm(z - start)

    def goes(w: np.ndarray) -> bool:
        return not np.abs(setting.gone(q, w, path)[: len(q)] - q).max() <= setting.rounding(q)

    low, high = 0.0, float(np.linalg.norm(z - start))
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if goes(start + middle * along) else (low, middle)
    behind = [start + (low - k * STEP) * along for k in (1, 2, 3)]
    a, b, c = (setting.gone(q, w, path) for w in behind)
    trail, beyond = 6 * a - 8 * b + 3 * c, start + (low + STEP) * along  # the parabola through them, 2h further on
    to, goal = trail[: len(q)], reversed_trail(q, trail)
    if not (np.isfinite(trail).all() and setting.log_pi(to) - setting.log_pi(a[: len(q)]) > math.log(SEEN)):
        return NONE  # there is no density, or it jumps
    x: Pairing | str = OPEN
    for within in WITHIN:
        if x == OPEN and low > within * STEP:
            x = _balanced(setting, q, start + (low - within * STEP) * along, path, rng)
    if isinstance(x, str):
        return x
    if any(goes(beyond + 0.1 * STEP * e) for unit in np.eye(len(z)) for e in (unit, -unit)):
        return OPEN  # a boundary that is not smooth
    assert x.back is not None
    near = _near(setting, to)
    for w in roots_of(setting, to, goal, x.back, np.arange(len(z)), path, near, rng, 2)[0]:
        found = [y for y in setting.outcomes(to, w, frees_of(path)) if y.moved]
        P = probability_at(found, q, near)
        if np.abs(w - x.back).max() < 0.1 * far and P > SEEN:
            return Pairing(to, w, found[0], "mismatch", math.inf, 0.0, -x.r, P, q, beyond, x.full)
    return BOTH_WAYS


def _balanced(setting: Setting, q: np.ndarray, z: np.ndarray, path: Path, rng: np.random.Generator) -> Pairing | str:
    """Return a balanced reverse of a move close to rejected noise, where the wide differences of ``pair`` do not fit."""
    found = [y for y in setting.outcomes(q, z, frees_of(path)) if y.moved]
    last = next((y for y in found if _like(y.path, path)), None)
    if last is None:
        return OPEN
    to, near, active = last.transition.q, _near(setting, q), np.arange(len(z))
    P = probability_at(found, to, near)
    if P < SEEN:
        return NONE
    there = map_of(setting, q, z, path, quick=True)
    goal = reversed_trail(q, setting.trail(last.transition))
    for w in roots_of(setting, to, goal, z, active, path, near, rng)[0]:
        back = map_of(setting, to, w, path, quick=True)
        r = setting.log_density(to, w) - back.log_volume - setting.log_density(q, z) + there.log_volume
        P_back = probability_at([y for y in setting.outcomes(to, w, frees_of(path)) if y.moved], q, near)
        if math.isfinite(r) and P_back > 0 and abs(math.log(P / P_back) - r) < ROUGH:
            return Pairing(q, z, last, "match", r=r, probability=P, to=to, back=w, full=len(z) == len(goal))
    return OPEN


def _near(setting: Setting, q: np.ndarray) -> float:
    return float((1e-7 + 1e3 * setting.runner.kernel.epsilon + 100 * setting.delta) * (1 + np.abs(q).max()))


def _like(a: Path, b: Path) -> bool:
    """Return whether the decisions are equal, except the last, which may be certain."""
    return [s.key for s in a[:-1]] == [s.key for s in b[:-1]] and len(a) == len(b)

"""A kernel whose momentum is kept from transition to transition, refreshed in part: p <- alpha p + sqrt(1 - alpha^2) xi.

    acceptance       P = min(1, exp(H(q, p) - H(q', p'))) with the momenta it returns; H is even in p
    momentum flip    a move that is taken keeps p's direction and a rejected one turns it, or the other way round

Horowitz (1991). Which direction a returned momentum has is found by setting out from there: one of p and -p leads back.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.check.balance import Setting
from refhmc.check.decisions import Leaf
from refhmc.check.foreign import call_text
from refhmc.check.played import MOMENTUM, Player
from refhmc.check.report import FAIL, PASS, WRONG_LAW, Row, inconclusive, not_run
from refhmc.check.transition_case import CLEAR, Case, moved


def extended_acceptance(case: Case) -> Row:
    """P = min(1, exp(H(q, p) - H(q', p'))) with the momenta it returns; H is even in p."""
    _, setting = case.need()
    energy = case.law.energy
    standard = energy is None
    if energy is None:

        def energy(q, p):
            return -case.law.log_pi(q) + 0.5 * p @ p

    gaps: list[tuple[float, float, np.ndarray]] = []
    for k, q in _many(case):
        p, z = case.rng(9, k).standard_normal((2, len(q)))
        if len(gaps) >= case.n_points:
            break
        both = _two_ways(case, setting, q, p, z)
        if both is None:
            continue
        taken, left = both
        case.decides = True
        before, after = energy(q, _known(left)), energy(taken.played.q, _known(taken))
        r, size = before - after, 1 + abs(before)
        tolerance = 1e-10 + 256 * case.kernel.epsilon * size + 10 * case.delta * size
        rules = [abs(taken.probability - rule) for rule in (min(1.0, math.exp(min(r, 0.0))), 1 / (1 + math.exp(-r)))]
        gaps.append((min(rules), tolerance, q))
    if len(gaps) < CLEAR:
        return inconclusive("acceptance", f"it both took and rejected the proposal at {len(gaps)} points only")
    gap, tolerance, q = max(gaps, key=lambda g: g[0] / g[1])
    if gap <= tolerance:
        return Row("acceptance", PASS, gap, tolerance, f"by bisection, at {len(gaps)} points; rounding of H")
    if standard:
        return inconclusive(
            "acceptance", "it is not min(1, exp(-dH)) with p'p/2 for the kinetic energy: hand in H", gap
        )
    return Row(
        "acceptance", FAIL, gap, tolerance, "by bisection; rounding of H", WRONG_LAW, call_text(case.kernel.name, [q])
    )


def _extended_leaves(case: Case, setting: Setting, q, p, z) -> list[Leaf]:
    assert case.player is not None
    player = case.player
    return setting._replace(play=lambda q, script, seed: player.play(q, script, seed, p)).leaves(q, z)


def _two_ways(case: Case, setting: Setting, q, p, z) -> tuple[Leaf, Leaf] | None:
    """(taken, rejected), or None if only one of them occurs or there is no momentum in the answer."""
    found = _extended_leaves(case, setting, q, p, z)
    taken, left = moved(found), next((leaf for leaf in found if not leaf.moved), None)
    if taken is None or left is None or taken.played.p is None or left.played.p is None:
        return None
    return taken, left


def _known(leaf: Leaf) -> np.ndarray:
    assert leaf.played.p is not None
    return leaf.played.p


def _many(case: Case):
    """(k, point), again and again: a rejection is needed, which may be rare."""
    return ((k, case.points[k % len(case.points)]) for k in range(8 * case.n_points))


def momentum_flip(case: Case) -> Row:
    """Taken moves keep the direction and rejected ones turn it, or the other way round; see Horowitz (1991)."""
    player, setting = case.need()
    if not player.keeps_momentum:
        return _returned_momentum(case, player, setting)
    d = len(case.points[0])
    votes: list[tuple[float, float]] = []
    kept: list[float] = []
    for k, q in _many(case):
        p, z = case.rng(9, k).standard_normal((2, d))
        if len(votes) >= case.n_points or len(kept) >= 2 * case.n_points:
            break
        both = _two_ways(case, setting, q, p, z)
        if both is None:
            continue
        taken, left = both

        def momentum(p, z, q=q, path=left.path):
            script = {"normal": list(z), **{s.kind: [s.answer] for s in path}}
            return player.play(q, script, setting.seed, p).p

        by_p = np.array([(momentum(p + e, z) - left.played.p) for e in 1e-3 * np.eye(d)]).T / 1e-3
        by_z = np.array([(momentum(p, z + e) - left.played.p) for e in 1e-3 * np.eye(d)]).T / 1e-3
        if not np.isfinite(by_p).all() or abs(np.linalg.det(by_z)) < 1e-12:
            continue
        alpha = np.trace(by_p) / d
        kept.append(abs(alpha))
        if abs(alpha) < 1e-6:
            continue
        votes.append((math.copysign(1.0, alpha), _direction(case, setting, q, (p, z), taken, left, by_p, by_z, alpha)))
    if kept and max(kept) < 1e-6:
        return Row("momentum flip", PASS, basis="the momentum is drawn anew each time: its sign does not matter")
    decided = [(s, t) for s, t in votes if t]
    if len(decided) < CLEAR:
        return inconclusive("momentum flip", f"the directions could be told at {len(decided)} points only")
    wrong = [s == t for s, t in decided]
    how = {True: "keeps", False: "turns"}
    text = f"a move taken {how[decided[0][1] > 0]} the momentum's direction, a rejection {how[decided[0][0] > 0]} it"
    case.notes.append(text)
    if all(wrong):
        return Row(
            "momentum flip",
            FAIL,
            basis=f"{text}: one of the two must turn it",
            case=call_text(case.kernel.name, [case.points[0]]),
        )
    return (
        Row("momentum flip", PASS, basis=text)
        if not any(wrong)
        else inconclusive("momentum flip", "now this, now that")
    )


def _direction(case: Case, setting: Setting, q, start, taken: Leaf, left: Leaf, by_p, by_z, alpha) -> float:
    """+1 if the momentum returned with a move taken points along it, -1 if against it, 0 if that cannot be told.

    Set out from its end with noise that makes the momentum minus (or plus) the one returned: which leads back?
    """
    assert case.player is not None
    to, p_end = taken.played.q, taken.played.p
    assert p_end is not None
    assert left.played.p is not None
    # A rejection gives s (A p + B z) with s = sign(alpha), known at (p, z).
    gaps = []
    for goal in (-p_end, p_end):
        z = start[1] + np.linalg.solve(
            by_z, math.copysign(1.0, alpha) * goal - left.played.p - by_p @ (p_end - start[0])
        )
        script = {"normal": list(z), **{s.kind: [s.answer] for s in taken.path}}
        gaps.append(np.abs(case.player.play(to, script, setting.seed, p_end).q - q).max())
    small = 1e-6 * (1 + np.abs(to - q).max())
    return 1.0 if gaps[0] < small < gaps[1] else -1.0 if gaps[1] < small < gaps[0] else 0.0


def _returned_momentum(case: Case, player: Player, setting: Setting) -> Row:
    """Which momentum a kern(q, p0=, u=) returns, for whoever keeps it."""
    if player.shape != MOMENTUM:
        return not_run("momentum flip", "no momentum is kept")
    for k, q in enumerate(case.points):
        z = case.rng(10, k).standard_normal(len(q))
        p0 = setting.normals(z)
        stay = next((x for x in setting.leaves(q, z) if not x.moved), None)
        if stay is None or stay.played.p is None:
            continue
        same, turned = (np.array_equal(stay.played.p, s * p0) for s in (1, -1))
        text = "p0" if same else "-p0" if turned else "neither p0 nor -p0"
        case.notes.append(f"after a rejection it returns {text} as the momentum")
        return Row(
            "momentum flip",
            PASS,
            basis=f"returns {text} after a rejection; p0 is handed in anew, so it does not matter",
        )
    return not_run("momentum flip", "no momentum is returned")

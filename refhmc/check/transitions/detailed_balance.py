"""Detailed balance of a kernel, from single transitions on given randomness, and its acceptance rule.

    pi(q) phi(w) P / |dq'/dw|    is the same for a move and its reverse (``transitions/balance.py``)
    acceptance                   P = min(1, e^r), r the log ratio of both sides without P; other balanced rules pass too
    rejection                    an outcome that does not follow the proposal is the start, or a move in its own right
    never taken                  if it always stays, the reverse is not taken either (``transitions/refusals.py``)

The conditions for a FAIL are in ``transitions/transition.py``.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from refhmc.check.examination import rows_of
from refhmc.check.judging import failed, passed
from refhmc.check.report import FAIL, INCONCLUSIVE, Row, not_run
from refhmc.check.subject.budget import Budget
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, OutOfTime, SubjectError
from refhmc.check.subject.outcomes import FREE, LOWER, UPPER, WHOLE, Outcome
from refhmc.check.subject.transition import GENERATOR, MOMENTUM, TINY
from refhmc.check.transitions.balance import COARSE, Pairing, Setting, pair, probability_at
from refhmc.check.transitions.examination import CLEAR, TransitionExamination, noise_size
from refhmc.check.transitions.momentum import in_time, kept_momentum
from refhmc.check.transitions.refusals import BOTH_WAYS, NONE, OPEN, look_at_refusals
from refhmc.check.transitions.stationarity import stationarity
from refhmc.check.transitions.velocity import kept_velocity

Outcomes = list[tuple[np.ndarray, np.ndarray, list[Outcome]]]  # of points and noises
RAYS = 6  # directions in which the noise is scaled up
LIKELY, MOST_UNLIKELY = 0.5, 4  # number of less probable moves that are examined per direction
SPARSE = 6  # on a ray with likely moves only, one in this many scales is examined: a lower bound may exist
MOST_RELEASED = 8  # number of moves that are examined again over all values of the uniforms that were held
EFFORT = 4  # times as many searches for a reverse move before a mismatch of a kernel that chooses among moves
FAR = 5.0  # nats of the two sides' ratio: if other moves match, a larger mismatch is rather a missed reverse move


def detailed_balance(test: TransitionExamination) -> list[Row]:
    """Return the row, or the rows for a kernel that keeps its momentum."""
    runner, setting = test.need()
    if runner.keeps_momentum:
        rows = kept_velocity(test) if test.sphere else kept_momentum(test)
        return [*rows, not_run("detailed balance", "the kernel keeps a momentum: see the rows before")]
    rows = rows_of("detailed balance", lambda: _pair_all(test, setting))
    if rows[-1].status == INCONCLUSIVE and not any(row.status == FAIL for row in rows):
        rows.append(in_time("stationarity", lambda: stationarity(test, test.setting or setting)))
    return rows


def _pair_all(test: TransitionExamination, setting: Setting) -> list[Row]:
    """Pair moves with their reverses at ``n_points`` points, at more of them if some mismatch."""
    outcomes: Outcomes = [_outcomes_at(test, setting, k) for k in range(min(test.n_points, 4))]
    end = _accepting_end([found for _, _, found in outcomes])
    if end != setting.takes:
        setting = test.setting = setting._replace(takes=end)
        outcomes = []
    rng = test.rng(6)
    _pair_points(test, setting, rng, outcomes, list(outcomes))
    if not test.pairs:
        raise Inconclusive("the kernel did not move from any of the points")
    if not _refuted(test):
        try:
            _pair_edges(test, setting, rng, outcomes)
            if 0 < _against(test) < CLEAR:
                _pair_points(test, setting, rng, outcomes, [])
        except OutOfTime:
            test.notes.append("detailed balance: there was no time left for large noise")
        with contextlib.suppress(OutOfTime):
            look_at_refusals(test, setting, rng, outcomes)
    return [
        *rows_of("acceptance", lambda: _acceptance_row(test)),
        *rows_of("rejection returns the start", lambda: _rejection_row(test, outcomes)),
        *rows_of("detailed balance", lambda: _balance_row(test)),
    ]


def _against(test: TransitionExamination) -> int:
    """Return the number of noises with a move that mismatches."""
    return len({x.z.tobytes() for x in test.pairs if x.state == "mismatch"})


def _pair_points(
    test: TransitionExamination, setting: Setting, rng: np.random.Generator, outcomes: Outcomes, ready: Outcomes
) -> None:
    """Pair typical moves: at ``n_points`` points, or at up to 16 times as many if some mismatch but too few to judge.

    ``ready`` has the outcomes at the first points, if they are known.
    """
    budget = Budget(test.seconds)
    whole, apart = setting._replace(held=False), 0
    for k in range(test.paired, 16 * test.n_points):
        against, holding = _against(test), sum(x.state == "match" for x in test.pairs)
        if _refuted(test):
            break
        undecided = (k > 0 and holding < CLEAR) or not test.decides or bool(_never_held(test))
        enough = (16 if setting.held or 0 < against < CLEAR else 4 if undecided else 1) * test.n_points
        if k >= enough or (k >= CLEAR and budget.over()):
            break
        test.paired = k + 1
        try:
            if k >= len(ready):
                outcomes.append(_outcomes_at(test, setting, k))
            q, z, found = ready[k] if k < len(ready) else outcomes[-1]
            if k >= test.n_points and not test.decides and not any(outcome.decisions for outcome in found):
                continue  # only examined to see whether the kernel ever decides
            test.decides = test.decides or any(outcome.decisions for outcome in found)
            for outcome in _different(found, setting.rounding(q))[:4]:
                x = _paired(test, setting, q, z, outcome, found, rng)
                if setting.held and x.state != "match":
                    apart += 1
                    x = _without_holding(whole, x, rng) if apart <= MOST_RELEASED else x._replace(state="open")
                test.pairs.append(x)
        except OutOfTime:
            if len(test.pairs) < CLEAR:
                raise
            break


def _paired(
    test: TransitionExamination,
    setting: Setting,
    q: np.ndarray,
    z: np.ndarray,
    outcome: Outcome,
    found: list[Outcome],
    rng: np.random.Generator,
) -> Pairing:
    """Return the pairing of a move, with a second search before one of the first few mismatches.

    A kernel that chooses among moves (a number of steps, a step size) may choose by other numbers at the other end. Then a
    reverse move can be missed.
    """
    x = pair(setting, q, z, outcome, found, rng)
    chooses = not setting.held and sum(step.key != FREE for step in outcome.path) > 1
    if x.state == "mismatch" and chooses and _against(test) < CLEAR:
        return pair(setting, q, z, outcome, found, rng, EFFORT)
    return x


def _pair_edges(test: TransitionExamination, setting: Setting, rng: np.random.Generator, outcomes: Outcomes) -> None:
    """Pair moves on larger and larger noise: improbable moves, and outcomes of a new kind.

    A rule that is wrong only where little is accepted (a lower bound), or after a rejection, does not show at typical moves.
    A pair without an answer is kept only if its kind has none, since reverse moves of large noise are missed.
    """
    budget = Budget(test.seconds)
    met = {_kind(test, x.outcome) for x in test.pairs}
    new: Counter = Counter()
    for ray in range(RAYS):
        if budget.over():
            raise OutOfTime
        q = test.points[ray % len(test.points)]
        direction = test.rng(18, ray).standard_normal(noise_size(setting, q))
        unlikely = 0
        with contextlib.suppress(SubjectError):  # noise that is rarely so large may be rejected
            for step, scale in enumerate(np.geomspace(1.2, 12.0, 24), 1):
                noise = test.rng(18, ray, step).standard_normal(len(direction)) if setting.sphere else scale * direction
                held = tuple(test.rng(20, ray, step).random(8)) if setting.held else ()
                found = setting.outcomes(q, noise, held)
                outcomes.append((q, noise, found))
                moves = [x for x in _different(found, setting.rounding(q)) if np.isfinite(x.transition.q).all()]
                unlikely += any(outcome.probability < LIKELY for outcome in moves)
                if not moves or unlikely > 2 * MOST_UNLIKELY:
                    break
                sparse = unlikely == 0 and step % SPARSE == 0
                for outcome in moves:
                    kind = _kind(test, outcome)
                    new[kind] += kind not in met
                    passed_over = not sparse and (outcome.probability > LIKELY or unlikely % 2 == 0)
                    if not outcome.decisions or (new[kind] > CLEAR if kind not in met else passed_over):
                        continue
                    test.decides = True
                    x = _paired(test, setting, q, noise, outcome, found, rng)
                    if setting.held and x.state != "match":
                        continue
                    if kind not in met or x.state == "match" or (x.state == "mismatch" and x.mismatch <= FAR):
                        test.pairs.append(x)
                    elif math.log(x.probability) > x.r + COARSE:
                        test.too_probable.append(x.probability)


def _refuted(test: TransitionExamination) -> bool:
    """Return whether further moves cannot change the verdict, since more than enough are not in balance."""
    wrong = {x.z.tobytes() for x in test.pairs if x.state == "mismatch" and x.mismatch <= FAR}
    return len(wrong) >= 2 * CLEAR and test.decides and _orbit_like(test)


def _without_holding(setting: Setting, x: Pairing, rng: np.random.Generator) -> Pairing:
    """Return the pairing of the same move over all values of the uniforms that were held.

    The cells of two uniforms may be missed where they are narrow, so that a small mismatch decides nothing.
    """
    found = setting.outcomes(x.q, x.z)
    to = x.outcome.transition.q
    outcome = next((y for y in found if np.abs(y.transition.q - to).max() <= setting.rounding(x.q)), None)
    if outcome is None:
        return x._replace(state="open")
    over_all = pair(setting, x.q, x.z, outcome, found, rng)
    small = over_all.state == "mismatch" and over_all.mismatch < COARSE
    return over_all._replace(state="open") if small else over_all


def _outcomes_at(test: TransitionExamination, setting: Setting, k: int) -> tuple[np.ndarray, np.ndarray, list[Outcome]]:
    """Return the k-th point and noise with every outcome."""
    q = test.points[k % len(test.points)]
    z = (1.0, 1.6, 1.0, 2.2)[k % 4] * test.rng(7, k).standard_normal(noise_size(setting, q))
    return q, z, setting.outcomes(q, z, tuple(test.rng(20, k).random(8)) if setting.held else ())


def _accepting_end(all_found: Sequence[list[Outcome]]) -> float:
    """Return the end of [0, 1) at which the last decision accepts the proposal."""
    votes = [0, 0]
    for found in all_found:
        for outcome in found:
            if outcome.moved and outcome.path and outcome.decisions == 1:
                votes[outcome.path[-1].key == UPPER] += outcome.path[-1].key != WHOLE
    return 1 - TINY if votes[1] > votes[0] else TINY


def _different(found: list[Outcome], rounding: float) -> list[Outcome]:
    """Return one outcome per point to which the kernel may move."""
    kept: list[Outcome] = []
    for outcome in sorted(found, key=lambda x: -x.probability):
        if outcome.moved and probability_at(kept, outcome.transition.q, rounding) == 0:
            kept.append(outcome)
    return kept


def _point(test: TransitionExamination, x: Pairing) -> str:
    """Return a call as text: the start, the noise, and the least uniform."""
    assert test.setting is not None
    noise = test.setting.normals(x.z)
    if test.runner is not None and test.runner.shape == MOMENTUM:
        return f"{test.kernel.name}({x.q.tolist()}, p0={noise.tolist()}, u=...)"
    kind = "uniform" if test.setting.frees else "normal"
    values = [float(0.5 * math.erfc(-v / math.sqrt(2))) for v in x.z] if test.setting.frees else noise.tolist()
    source = f"Draws(script={{{kind!r}: {values}}})"
    if test.runner is not None and test.runner.shape == GENERATOR:
        source = f"as_generator({source})"
    return f"{test.kernel.name}({source}, {x.q.tolist()})"


def _orbit_like(test: TransitionExamination) -> bool:
    """Return whether every move depends on all of its noise, unlike updates in parts, which need not be reversible."""
    frees = test.setting is not None and test.setting.frees
    few = all(frees or sum(step.key == FREE for step in x.outcome.path) <= 2 for x in test.pairs)
    return few and all(x.full for x in test.pairs)


def _balance_row(test: TransitionExamination) -> Row:
    pairs = test.pairs
    matched = [x for x in pairs if x.state == "match"]
    wrong = [x for x in pairs if x.state == "mismatch"]
    unclear = [x for x in pairs if x.state == "open"]
    if matched:  # if some match, a large mismatch is rather a missed reverse move
        unclear += [x for x in wrong if x.mismatch > FAR]
        wrong = [x for x in wrong if x.mismatch <= FAR]
    wrong += test.one_way  # an infinite mismatch without a missed root
    basis = "1e-7 + (errors of differences and root, precision) x |J^-1|"
    if wrong and len({x.z.tobytes() for x in wrong}) >= CLEAR and _orbit_like(test) and test.decides:
        worst = max(wrong, key=lambda x: x.mismatch if math.isfinite(x.mismatch) else 1e3)
        smallest = min(wrong, key=lambda x: float(np.abs(x.q).sum() + np.abs(x.z).sum()))
        number = min(worst.mismatch, 1e3)
        basis = f"log ratio of both sides at {len(wrong)} of {len(pairs) + len(test.one_way)} moves; {basis}"
        if test.one_way:
            basis = f"{len(test.one_way)} moves whose reverse is never taken; {basis}"
        return failed(basis, _point(test, smallest), number, worst.tolerance)
    if wrong:
        why = f"violated at {len(wrong)} of {len(pairs) + len(test.one_way)} moves, too few to judge"
        if not test.decides:
            why = "violated, and the kernel never decides: it is either right and not reversible, or wrong"
        elif not _orbit_like(test):
            why = "violated, but the kernel updates in parts, which may be right and not reversible: see check.sampler"
        raise Inconclusive(why, max(min(x.mismatch, 1e3) for x in wrong))
    again, times = Counter(round(p, 9) for p in test.too_probable).most_common(1)[0] if test.too_probable else (0.0, 0)
    if times >= CLEAR:  # single ones are rather missed reverse moves
        why = f"{times} moves have the same probability {again:.3g}, but should have different, smaller ones"
        raise Inconclusive(why)
    refused = test.refused
    if refused[OPEN]:
        settled = refused[BOTH_WAYS] + refused[NONE]
        why = f"rejected with certainty at {refused.total()} of {test.noises} examined noises"
        why = f"{why}: for {refused[OPEN]} of them it is unknown whether the reverse is rejected too"
        if refused[OPEN] >= CLEAR and not settled:
            raise Inconclusive(why)
        test.notes.append(f"detailed balance: {why}")
    if unclear and test.setting is not None and test.setting.held:
        why = f"{len(unclear)} of {len(pairs)} moves are not in balance at given values of the uniforms that decide together"
        raise Inconclusive(f"{why}, and it is unknown whether they are over all values", len(unclear))
    never = _never_held(test)
    if len(matched) >= CLEAR and len(matched) >= 2 * len(unclear) and not never:
        worst = max(matched, key=lambda x: x.mismatch / x.tolerance)
        if unclear:
            why = f"{len(unclear)} have no answer: {unclear[0].why}"
            test.notes.append(f"detailed balance: {len(matched)} moves match, {why}")
        least = min(x.probability for x in matched)
        low, high = (f"{r:.2g}" for r in (min(x.r for x in matched), max(x.r for x in matched)))
        what = f"{len(matched)} moves, of probability {least:.2g} to 1, r from {low} to {high}"
        return passed(f"{what}; {basis}", worst.mismatch, worst.tolerance)
    why = (never or unclear)[0].why if never or unclear else "too few moves"
    raise Inconclusive(f"{len(matched)} of {len(pairs)} moves match, none is refuted: {why}")


def _kind(test: TransitionExamination, outcome: Outcome) -> tuple:
    """Return the kind of an outcome: its decisions, except an acceptance at the end, which may be certain."""
    taken = UPPER if test.setting is not None and test.setting.takes > 0.5 else LOWER
    keys = tuple(step.key for step in outcome.path if step.key not in (FREE, WHOLE))
    return keys[:-1] if keys[-1:] == (taken,) else keys


def _never_held(test: TransitionExamination) -> list[Pairing]:
    """Return moves of a kind (accepted; rejected, and yet moved; ...) of which none was found in balance."""
    held = {_kind(test, x.outcome) for x in test.pairs if x.state == "match"}
    return [x for x in test.pairs if x.state != "match" and _kind(test, x.outcome) not in held]


def _acceptance_row(test: TransitionExamination) -> Row:
    """Compare P with min(1, e^r), for one decision and one proposal."""
    known = [x for x in test.pairs if math.isfinite(x.r) and x.state != "open"]
    if not known:
        raise Inconclusive("no move with a known reverse")
    ends = {x.outcome.path[-1:] and x.outcome.path[-1].key for x in known}
    if any(x.outcome.decisions > 1 for x in known) or len(ends) > 2:
        raise NotApplicable("more than one decision: detailed balance is judged for each outcome")
    if test.one_way:
        ratios = sorted(math.exp(min(0.0, -x.r)) for x in test.one_way)
        why = f"P = 0 at {len(ratios)} noises at which e^r is about {ratios[0]:.2g} to {ratios[-1]:.2g}"
        raise Inconclusive(f"{why}, although its reverse is taken: see detailed balance")
    gaps = [(abs(x.probability - min(1.0, math.exp(min(x.r, 0.0)))), x) for x in known]
    gap, worst = max(gaps, key=lambda item: item[0] / item[1].tolerance)
    basis = f"by bisection, compared with min(1, e^r) at {len(known)} moves"
    if all(g <= x.tolerance for g, x in gaps):
        return passed(basis, gap, worst.tolerance)
    if all(x.state == "match" for x in known):
        rule = "Barker's rule" if fits(known, lambda x: 1 / (1 + math.exp(-x.r))) else "a rule other than Metropolis's"
        return passed(f"{rule}; it is in detailed balance")
    if not test.decides or not _orbit_like(test):
        raise Inconclusive("it is not min(1, e^r); the other rows decide whether that is wrong", gap)
    if len({x.z.tobytes() for x in known if x.state == "mismatch"}) < CLEAR:
        raise Inconclusive("it is not min(1, e^r), but at too few moves to judge", gap)
    return failed(basis, _point(test, worst), gap, worst.tolerance)


def fits(known: list[Pairing], formula: Callable[[Pairing], float]) -> bool:
    """Return whether the acceptance probabilities are those of a formula."""
    try:
        return all(abs(x.probability - formula(x)) <= max(10 * x.tolerance, 1e-6) for x in known)
    except (OverflowError, ValueError):
        return False


def _rejection_row(test: TransitionExamination, outcomes: Outcomes) -> Row:
    """Check that an outcome other than the proposal is the start, or a move in its own right."""
    assert test.setting is not None
    stays = [(q, outcome) for q, _, found in outcomes for outcome in found if outcome.decisions and not outcome.moved]
    if stays:
        gaps = [float(np.abs(outcome.transition.q - q).max()) for q, outcome in stays]
        q = stays[int(np.argmax(gaps))][0]
        return passed(f"{len(stays)} times; rounding", max(gaps), test.setting.rounding(q) if max(gaps) > 0 else 0.0)
    if not test.decides:
        raise NotApplicable("nothing was rejected")
    # It decides, and moves both ways: check whether one of the two is not in balance.
    groups: dict[tuple, list[Pairing]] = {}
    for x in test.pairs:
        if x.outcome.decisions == 1:
            groups.setdefault(_kind(test, x.outcome), []).append(x)
    bad = [g for g in groups.values() if sum(x.state == "mismatch" for x in g) >= CLEAR and all(x.full for x in g)]
    thresholds = {round(x.probability, 9) for x in test.pairs}
    if bad and len(groups) >= 2 and len(thresholds) > len(groups) and _orbit_like(test):
        x = min(bad[-1], key=lambda y: y.probability)
        gap = float(np.abs(x.outcome.transition.q - x.q).max())
        why = "the result of a rejection is neither the start nor a move in balance"
        return failed(why, _point(test, x), gap, 0.0)
    raise NotApplicable("every outcome is a move")

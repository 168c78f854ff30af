"""Kinks and jumps of a log density along lines, and its values outside the support."""

from __future__ import annotations

import numpy as np

from refhmc.check.derivatives.points import in_box, short
from refhmc.check.judging import failed, passed, simplest
from refhmc.check.models.examination import ModelExamination, noise_of_logp
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, text_of


def smooth_row(s: ModelExamination) -> Row:
    """Search lines for kinks: the interval with the largest second difference is halved repeatedly."""
    s.need()
    some = s.directions()[0]
    rng = np.random.default_rng([s.seed, 5])
    lines, found = 0, []
    for n in range(4):
        z = rng.standard_normal(len(s.frame.centre)) if n else some * 1.5
        u = s.frame.scales * z * s.smooth
        begin = s.frame.centre + 0.1 * s.frame.scales * rng.standard_normal(len(z))
        t = np.linspace(-2.0, 2.0, 121) + 0.001 * rng.uniform()
        sharpest = _sharpest(s, begin, u, t)
        if sharpest is None:
            continue
        lines += 1
        kind, at = sharpest
        if kind:
            found.append(f"a {kind} near q = {text_of(np.round(begin + at * u, 6))}")
    if not lines:
        raise Inconclusive("logp is finite on no line")
    if found:
        why = f"{found[0]} ({len(found)} of {lines} lines): not an error, but energy errors do not fall with the step there"
        raise Inconclusive(why)
    return passed(f"no kink or jump found on {lines} lines")


def jump_along(s: ModelExamination, begin: np.ndarray, u: np.ndarray) -> np.ndarray | None:
    """Return a point on begin + x u, |x| <= 1, at which logp jumps, or None."""
    kind, at = _sharpest(s, begin, u, np.linspace(-1.0, 1.0, 121)) or ("", 0.0)
    return begin + at * u if kind == "jump" else None


def _sharpest(s: ModelExamination, begin: np.ndarray, u: np.ndarray, t: np.ndarray) -> tuple[str, float] | None:
    """Return "kink", "jump" or "", and the position, for the interval of begin + t u with the largest second difference.

    None if logp is finite at few of its points.
    """
    logp = s.at("logp")

    def f(x: float) -> float:
        return float(np.real(logp(begin + x * u)))

    values = np.array([f(x) for x in t])
    finite = np.isfinite(values)
    if finite.sum() < 20:
        return None
    largest = np.abs(values[finite]).max()
    noise = 64 * noise_of_logp(s) * max(1.0, float(largest))
    bend = np.abs(np.diff(values, n=2))
    bend = np.where(np.isfinite(bend), bend, -1.0)
    # Compared with its neighbours, since a steep but smooth function bends over many intervals.
    around = np.maximum(np.roll(bend, 3), np.roll(bend, -3)) + 1e-12 * largest + 1e-300
    i = int(np.argmax(np.where(bend > 0, bend / around, -1.0)))
    low, high = t[i], t[i + 2]
    h, first = 0.5 * (high - low), bend[i]
    width = h
    for _ in range(16):
        x = np.linspace(low, high, 5)
        v = np.array([f(y) for y in x])
        if not np.isfinite(v).all():
            return "", 0.0
        second = np.abs(v[:-2] - 2 * v[1:-1] + v[2:])
        j = int(np.argmax(second))
        low, high, h = x[j], x[j + 2], 0.5 * h
    last = float(second[j])
    if last < 16 * noise or first <= 0:
        return "", 0.0
    power = np.log(first / last) / np.log(width / h)  # 0 for a jump, 1 for a kink, 2 for a smooth function
    return ("jump" if power < 0.5 else "kink" if power < 1.5 else ""), 0.5 * (low + high)


def support_row(s: ModelExamination) -> Row:
    """Check that logp is -inf outside the support and finite inside, without exceptions."""
    s.need()
    if s.support is None:
        raise NotApplicable("no support was given")
    outside, unknown = _test_points_outside(s), 0
    if not outside:
        raise Inconclusive("no point outside the support was found")
    for q in outside:
        value = float(s.strictly("logp", q))
        if np.isfinite(value) or value == np.inf:
            simple = simplest(q, lambda x: not s.inside(x) and float(s.at("logp")(x)) > -np.inf)
            return failed("logp is not -inf outside the support", s.call("logp", simple), float(value))
        unknown += np.isnan(value)
        if "grad" in s.functions:
            s.functions["grad"].raw(q)  # may return anything, but must not raise
    rng = np.random.default_rng([s.seed, 6])
    within = [] if callable(s.support) else [in_box(s.support, s.dim, rng.uniform(-1, 1, s.dim)) for _ in range(20)]
    lost = [q for q in within if not np.isfinite(s.strictly("logp", q))]
    why = f"logp is not finite at {len(lost)} of 20 points inside"
    if len(lost) > 10:
        return failed(why, s.call("logp", lost[0]))
    if unknown:
        raise Inconclusive(f"logp is NaN instead of -inf at {unknown} of {len(outside)} points outside")
    if lost:
        raise Inconclusive(f"{why}, e.g. {s.call('logp', lost[0])}")
    return passed(f"-inf at {len(outside)} points outside")


def _test_points_outside(s: ModelExamination) -> list[np.ndarray]:
    rng, found = np.random.default_rng([s.seed, 7]), []
    base = [s.frame.centre, *s.ordinary[:4]]
    if not callable(s.support):
        low, high = (np.broadcast_to(np.asarray(x, dtype=float), (s.dim,)) for x in s.support)
        for q in base[:3]:
            for k in range(s.dim):
                for edge, sign in ((low[k], -1.0), (high[k], 1.0)):
                    for gap in (1e-6, 0.1, 1.0, 30.0) if np.isfinite(edge) else ():
                        new = q.copy()
                        new[k] = edge + sign * gap * (1.0 if gap > 1e-3 else max(1.0, abs(edge)))
                        found.append(new)
        return [q for q in found if not s.inside(q)][:200]
    for size in (0.3, 1.0, 3.0, 10.0, 100.0, 1000.0):
        for q in base:
            for z in (rng.standard_normal(s.dim), rng.choice([-1.0, 1.0]) * np.eye(s.dim)[int(rng.integers(s.dim))]):
                found.append(short(q + size * s.frame.scales * z))
                found.append(short(q + size * z))
    return [q for q in found if not s.inside(q)][:100]

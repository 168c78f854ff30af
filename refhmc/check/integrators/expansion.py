"""Comparison of a step with the true flow phi of H as its size eps goes to zero, for ``check.integrator``.

    S(eps) - phi(eps) = c_1 eps + ... + c_k eps^k + c_(k+1) eps^(k+1) + ...

    order           the slope of |S - phi| in eps, minus one, at eps for which it is clearly above rounding
    small step      c_1 = ... = c_k = 0 for a claimed order k, each coefficient by least squares at ranges [0, E] of eps
    elapsed time    dS/deps at 0 is the field (dH/dp, -dH/dq): 1 + c_1 along it is the time that passes per eps

For a random step, S is the mean over the outcomes of its discrete random numbers, and phi runs at the speed of that mean.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from refhmc.check.integrators.examination import IntegratorExamination
from refhmc.check.integrators.flow import Energy, Term, leading_term, true_flow
from refhmc.check.judging import failed, judged, passed
from refhmc.check.report import NOT_RUN, Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, OutOfTime, SubjectError
from refhmc.check.subject.step import step_outcomes
from refhmc.check.subject.target import inverse_mass

CLEAR = 10.0  # a term above this multiple of the fit's error is accepted if ranges of eps agree on it
NODES = 16  # steps of sizes E/16 ... E, for the expansion of the error in eps


class Series(NamedTuple):
    """Steps S and the flow from one point at step sizes ``times``, as differences from the start in units of ``scale``."""

    z: np.ndarray
    scale: np.ndarray
    times: np.ndarray
    moved: np.ndarray
    error: np.ndarray
    field: np.ndarray
    noise: float
    flow_error: float
    rate: float


def followed(test: IntegratorExamination) -> list[Series]:
    """Return steps of many sizes and the flow, from up to three points."""
    H = test.need_energy()
    if test.series is None:
        test.series, why = [], ""
        for z in test.points[: 1 if test.wide else 3 if test.quick else 2]:
            try:
                test.series.append(_series(test, H, z))
            except (Inconclusive, SubjectError) as reason:
                why = str(reason)
            except OutOfTime:
                why = f"the flow of H could not be computed in time{'' if H.given else '; pass grad_q and grad_p to save time'}"
                break
        if not test.series:
            raise Inconclusive(why)
    if not test.series:
        raise Inconclusive("the flow of H could not be computed")
    return test.series


def _series(test: IntegratorExamination, H: Energy, z: np.ndarray) -> Series:
    """Return steps from z at three grids of eps for the fits, and at powers of two for the slope."""
    top = _longest(test)
    grids = [top / 2**k * np.arange(1, NODES + 1) / NODES for k in range(3)]
    times = np.unique(np.concatenate([*grids, top / 2.0 ** np.arange(12)]))
    ends = np.array([_mean(test, z, float(t)) for t in times])
    good = np.cumprod(np.isfinite(ends).all(axis=1)).astype(bool)  # up to the first that failed
    times, ends = times[good], ends[good]
    if len(times) < 8:
        raise Inconclusive("the step fails at small eps")
    scale = test.scale(z, *ends[times <= test.small])
    field = H.field(z) / scale
    rate = 1.0
    if test.step.random:
        start = leading_term(times[:8] / times[7], (ends[:8] - z) / scale, 1, 1e-15, (3, 4)).value / times[7]
        rate = float(start @ field / (field @ field))
        if np.abs(start - rate * field).max() > 1e-3 * np.abs(field).max() or rate <= 0.05:
            rate = 1.0
    with np.errstate(all="ignore"):
        flow, error = true_flow(H, z, rate * times, scale)
    delta = 10 * (test.delta or 0.0) / min(scale.min(), 1.0)
    floor = test.floor if not test.delta else 0.0
    noise = 2 * test.unit + test.noise(z, test.small, 1) + error + delta + floor
    return Series(z, scale, times, (ends - z) / scale, (ends - flow) / scale, field, noise, error + test.unit, rate)


def _longest(test: IntegratorExamination) -> float:
    """Return the longest step compared with the flow; single precision only shows its order at large steps.

    In many dimensions the flow is computed for a shorter time, since each slope takes 2d calls if only H is known.
    """
    return (8 if test.coarse else 0.5 if test.wide else 2) * test.small


def _mean(test: IntegratorExamination, z: np.ndarray, eps: float) -> np.ndarray:
    """Return the end of a step; for a random step the mean over the outcomes of its discrete random numbers."""
    if not test.step.random:
        return test.step.quiet(z, eps)
    outcomes = step_outcomes(test.step, z, eps, most=130)
    return outcomes[0].z + np.sum([x.probability * (x.z - outcomes[0].z) for x in outcomes], axis=0)


def order(test: IntegratorExamination) -> Row:
    """Measure the slope of the error of one step, minus one, at the smallest eps at which it is above rounding."""
    test.need_energy()
    slopes = [(slope, series.z) for series in followed(test) if (slope := _slope(test, series)) is not None]
    found = [(slope, z) for slope, z in slopes if slope < math.inf]
    test.orders = [order for order, _ in found]
    if slopes and not found:
        test.notes.append("the step equals the true flow, to rounding")
        test.order_held = True
        return passed("the error is at rounding for all eps: exact")
    if not found:
        raise Inconclusive(
            "no range of eps in which the error is neither saturated nor dominated by rounding or the solver"
        )
    least, z = min(found, key=lambda pair: pair[0])
    if "order" not in test.claims:
        return Row("", NOT_RUN, least, basis="not claimed; measured against the true flow")
    claimed = test.claims["order"]
    if least > claimed + 0.5:
        test.notes.append(f"order {least:.2f}, more than the claimed {claimed:g}")
    test.order_held = least >= claimed - 0.25
    basis = f"claimed: {claimed:g}; slope against the true flow of H, {len(found)} points"
    return judged(least, claimed - 0.25, basis, test.step.case(z, test.small), relation=">=")


def _slope(test: IntegratorExamination, series: Series) -> float | None:
    """Return the order at one point; infinity if the step is exact, None without answer."""
    top = _longest(test)
    errors = []
    for k in range(12):
        at = np.flatnonzero(np.isclose(series.times, top / 2**k, rtol=1e-12))
        if len(at):
            errors.append(np.abs(series.error[at[0]]).max())
    clear = [e > 100 * series.noise for e in errors]
    if not any(clear):
        return math.inf if series.noise < 1e-9 else None
    last = len(clear) - 1 - clear[::-1].index(True)
    first = next(k for k in range(last, -1, -1) if k == 0 or not clear[k - 1])
    if last - first < 2:
        return None
    logs = np.log2(errors[first : last + 1])
    slopes = logs[:-1] - logs[1:]
    if abs(slopes[-1] - slopes[-2]) > 0.25:
        return None
    # The remainder of the next term halves with eps.
    return float(2 * slopes[-1] - slopes[-2]) - 1


def small_step(test: IntegratorExamination) -> Row:
    """Fit the terms eps ... eps^k of the error, which the claimed order excludes, at several ranges of eps.

    A term is accepted if the ranges agree on it. A rounded coefficient shows here long before it shows in the slope.
    """
    test.need_energy()
    if "order" not in test.claims:
        raise NotApplicable("no order is claimed")
    order = int(test.claims["order"])
    worst, finest = None, math.inf
    for series in followed(test):
        for power in range(1, min(order, 6) + 1):
            terms = _terms(test, series, power)
            if not terms:
                break
            E, term = min(terms, key=lambda entry: entry[1].error / entry[0] ** power)
            k = int(np.argmin(np.abs(series.times - E)))
            natural = max(np.abs(series.moved[k] - series.error[k]).max(), E * np.abs(series.field).max())
            size, limit = np.abs(term.value).max() / natural, CLEAR * term.error / natural
            finest = min(finest, limit)
            if _confirmed(terms, power):
                if worst is None or size / limit > worst[0] / worst[1]:
                    worst = (size, limit, series.z, power)
                break
    if worst is not None:
        number, limit, z, test.power = worst
        basis = f"term eps^{test.power} of the error, relative to the step; tolerance: resolution of the fit"
        return failed(basis, test.step.case(z, test.small), number, limit)
    if not finest < 1e-3:
        raise Inconclusive("the terms of the error cannot be distinguished from rounding or the solver's tolerance")
    return passed(f"no terms up to eps^{order}; resolution {finest:.1g} of a step")


def _terms(test: IntegratorExamination, series: Series, power: int) -> list[tuple[float, Term]]:
    """Return the error's term of that power at three ranges of eps; lower powers are assumed to be zero."""
    found = []
    for k in range(3):
        E = _longest(test) / 2**k
        nodes = E * np.arange(1, NODES + 1) / NODES
        at = np.array([np.argmin(np.abs(series.times - t)) for t in nodes])
        if np.abs(series.times[at] - nodes).max() < 1e-9 * E:
            found.append((E, leading_term(nodes / E, series.error[at], power, series.flow_error)))
    return found


def _confirmed(terms: list[tuple[float, Term]], power: int) -> bool:
    """Return whether at least two ranges see the same term, and the others could not see it."""
    seen = [(E, c / E**power) for E, (c, error) in terms if np.abs(c).max() > CLEAR * error]
    if len(seen) < 2:
        return False
    _, value = seen[-1]  # the smallest range that sees it
    size = np.abs(value).max()
    for E, (c, error) in terms:
        allowed = CLEAR * error + (0.2 * size * E**power if np.abs(c).max() > CLEAR * error else 0.0)
        if np.abs(c - value * E**power).max() > allowed:
            return False
    return True


def elapsed_time(test: IntegratorExamination) -> Row:
    """Compare the speed of positions as eps goes to zero with their speed along the flow of H."""
    test.need_energy()
    d, found, astray = test.d, [], np.zeros(2, dtype=bool)
    for series in followed(test):
        terms = _terms(test, series, 1)
        if not terms:
            continue
        E, term = min(terms, key=lambda entry: entry[1].error / entry[0])
        velocity, force = series.field[:d], series.field[d:]
        extra, blur = term.value / E, CLEAR * term.error / E
        moved = [(part @ more) / max(part @ part, 1e-300) for part, more in ((velocity, extra[:d]), (force, extra[d:]))]
        aside = [
            np.abs(more - rate * part).max() > max(0.02 * np.abs(part).max(), 10 * blur)
            for rate, part, more in zip(moved, (velocity, force), (extra[:d], extra[d:]), strict=True)
        ]
        size = np.abs(velocity).max()
        if size > 1e3 * blur:
            astray |= aside
            found.append((moved[0], moved[1], blur / size, series))
    if not found:
        raise Inconclusive("the expansion is too inaccurate")
    ahead, push, blur, series = max(found, key=lambda entry: abs(entry[0]) / entry[2])
    if test.step.random and any(abs(s.rate - 1) > 1e-9 for *_, s in found):
        low, high = min(s.rate for *_, s in found), max(s.rate for *_, s in found)
        raise NotApplicable(f"the step is random: its time is {low:.3g} to {high:.3g} of eps")
    test.rates = (1 + ahead, 1 + max((entry[1] for entry in found), key=abs))
    test.astray = (bool(astray[0]), bool(astray[1]))
    test.exchanged = abs(ahead) > 1e-3 and _is_exchanged(test, series)
    several, error = _rate_of_three(test, series) if not test.step.random else (1.0, 0.0)
    n = 1
    if abs(several - 1) > max(abs(ahead), 1e-3, error):
        n, ahead, blur = 3, several - 1, max(blur, 1e-3, error)
    if not {"order", "exact time"} & test.claims.keys():
        return Row("", NOT_RUN, abs(ahead), basis="not claimed")
    basis = f"elapsed {(1 + ahead) * n * test.small:.4g} for n*eps = {n * test.small:.4g}; tolerance: error of the expansion"
    return judged(abs(ahead), blur, basis, test.step.case(series.z, test.small, n))


def _rate_of_three(test: IntegratorExamination, series: Series) -> tuple[float, float]:
    """Return the relative speed over three steps, from a few small ones, and the error of the fit."""
    E, d = test.small / 8, test.d
    x = np.arange(1, 7) / 6
    ends = np.array([test.step.quiet(series.z, float(E * t), 3) for t in x])
    if not np.isfinite(ends).all() or series.noise > 1e-8:
        return 1.0, 0.0
    start = leading_term(x, (ends - series.z) / series.scale, 1, series.flow_error, (3,))
    velocity = series.field[:d]
    size = max(velocity @ velocity, 1e-300)
    return float(start.value[:d] @ velocity / (3 * E * size)), CLEAR * start.error / (3 * E * float(np.sqrt(size)))


def _is_exchanged(test: IntegratorExamination, series: Series) -> bool:
    """Return whether positions move by the inverse of the Hessian of the kinetic energy instead of the Hessian."""
    H, d, z = test.need_energy(), test.d, series.z
    try:
        other = np.linalg.solve(inverse_mass(H.foreign.number, z[:d]), z[d:]) / series.scale[:d]
    except (SubjectError, np.linalg.LinAlgError):
        return False
    if np.abs(other - series.field[:d]).max() < 0.01 * np.abs(series.field[:d]).max():
        return False
    k = int(np.argmin(np.abs(series.times - test.small / 32)))
    moved = series.moved[k][:d] / series.times[k]
    return bool(np.abs(moved - other).max() < 0.1 * np.abs(other).max())

"""Edge cases of a kernel: zero length, energies that overflow or are NaN, a shifted log density, other units.

    zero-length        a trajectory of length 0 is accepted with probability 1, since it has no energy error
    nan energy         a proposal at which log pi, or its gradient, is NaN (or -inf) is rejected
    overflow           the same for noise that is too large, up to normals of 1e200
    shift invariance   log pi + c, c = 1e4 and -1e4: the same outcomes with the same probabilities
    equivariance       the same end in other units (``check/equivariance.py``)

A density can only be modified if ``make(log_density, gradient)`` builds the kernel, and units only if it takes an inverse mass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from refhmc.check import equivariance
from refhmc.check.equivariance import inverse, times
from refhmc.check.judging import Cases, Measured, failed, judged, passed
from refhmc.check.own import differences
from refhmc.check.report import FAIL, WRONG_DISTRIBUTION, Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, SubjectError, call_text
from refhmc.check.subject.outcomes import FREE, Outcome, answers
from refhmc.check.subject.shapes import meanings, needed_by
from refhmc.check.subject.transition import MOMENTUM, TINY, TransitionRunner
from refhmc.check.transitions.balance import Setting, on_line, probability_at
from refhmc.check.transitions.examination import TransitionExamination, moved, noise_size


def zero_length(test: TransitionExamination) -> Row:
    """Check that a trajectory of almost no length is accepted."""
    runner, setting = test.need()
    known = meanings(runner.kernel.function)
    if "eps" not in known:
        raise NotApplicable("the kernel has no step size (eps=, step_size=)")
    step = known["eps"].name
    kernel = runner.kernel.another(lambda *a, **k: runner.kernel.function(*a, **{**k, step: 1e-9}))
    short = setting._replace(runner=runner._replace(kernel=kernel))
    least, at = 1.0, test.points[0]
    for k, q in enumerate(test.points):
        found = short.outcomes(q, test.rng(11, k).standard_normal(len(q)))
        taken = sum(outcome.probability for outcome in found if outcome.moved)
        if taken < least:
            least, at = taken, q
    basis = f"acceptance probability of a trajectory with {step}=1e-9"
    return judged(least, 1 - 1e-6, basis, call_text(runner.kernel.name, {"q": at, step: 1e-9}), relation=">=")


def overflow(test: TransitionExamination) -> Row:
    """Check noise so large that energies overflow to NaN."""
    runner, setting = test.need()
    if not test.decides or setting.frees:
        raise NotApplicable("the kernel does not accept or reject, or does not draw normals")
    q = test.points[0]
    for size in (1e80, 1e160, 1e200):
        got = _gone_astray(test, runner, setting, q, size)
        if got is not None:
            why = f"with normals of size {size:g} it moves to a log density of {got[1]}: it accepts a NaN energy"
            raise Inconclusive(why + "; this is wrong if the density can be NaN (see make)")
    return passed("normals up to 1e200 never lead to a point without a finite density")


def _gone_astray(
    test: TransitionExamination, runner: TransitionRunner, setting: Setting, q: np.ndarray, size: float, key: int = 0
) -> tuple[np.ndarray, float, float] | None:
    """Return (end, log density, u) if noise of ``size`` leads to a point without a finite density."""
    z = size * test.rng(12, key).standard_normal(64)
    w = setting.normals(z[: len(q)]) if runner.shape == MOMENTUM else z
    for u in (TINY, 0.5, 1 - TINY):
        script = {"normal": list(w), "uniform": [u], "exponential": [-math.log(u)]}
        with np.errstate(all="ignore"):
            try:
                got = runner.run(q, script, setting.seed, p=z[: len(q)]).q
            except SubjectError:
                continue  # it raises
            if np.array_equal(got, q):
                continue
            value = test.target.log_pi(got) if np.isfinite(got).all() else math.nan
        if not math.isfinite(value):
            return got, value, u
    return None


def _made(test: TransitionExamination) -> tuple[Callable, Callable, Callable | None]:
    """Return the function that builds the kernel, the log density and the gradient; NotApplicable if unknown."""
    if test.make is None:
        raise NotApplicable("needs make, a function of (log_density, gradient) that returns the kernel")
    if test.log_density is None:
        raise NotApplicable("needs log_density together with make")
    make = test.make
    if needed_by(make) == 3:  # with the diagonal of the inverse mass
        return (
            (lambda density, slope: make(density, slope, np.ones(len(test.points[0])))),
            test.log_density,
            test.gradient,
        )
    return make, test.log_density, test.gradient


def _rebuilt(
    runner: TransitionRunner, make: Callable, log_density: Callable, gradient: Callable | None
) -> TransitionRunner:
    return runner._replace(kernel=runner.kernel.another(make(log_density, gradient)))


def nan_energy(test: TransitionExamination) -> Row:
    """Check that a proposal is rejected if the log density is NaN or -inf near it, or its gradient is NaN.

    Without ``make``, search for proposals that leave the support by themselves.
    """
    runner, setting = test.need()
    for k, q in enumerate(test.points if test.decides and not setting.frees else []):
        for size in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
            astray = _gone_astray(test, runner, setting, q, size, 100 + k)
            if astray is not None:
                why = f"it moved to {astray[0].tolist()}, where the log density is {astray[1]}"
                text = f"{call_text(runner.kernel.name, [q])}  # normals {size:g} times as large, u={astray[2]!r}"
                return failed(why, text)
    make, base, slope = _made(test)
    raised, tried = "", 0
    for k, q in enumerate(test.points[:4]):
        z = test.rng(13, k).standard_normal(noise_size(setting, q))
        proposal = moved(setting.outcomes(q, z))
        if proposal is None:
            continue
        to = proposal.transition.q
        radius = 1e-6 * np.abs(to - q).max()

        def spoiled(f: Callable, bad: float, to: np.ndarray = to, radius: float = radius) -> Callable:
            def g(x: np.ndarray, *more: Any) -> Any:
                value = f(x, *more)
                return value if np.abs(np.asarray(x, dtype=float) - to).max() > radius else bad + 0.0 * value

            return g

        faults = [
            ("log density is nan", spoiled(base, math.nan), slope),
            ("log density is -inf", spoiled(base, -math.inf), slope),
        ]
        if slope is not None:
            faults.append(("gradient is nan", base, spoiled(slope, math.nan)))
        for what, log_density, gradient in faults:
            spoilt = _rebuilt(runner, make, log_density, gradient)
            for u in (TINY, 0.5, 1 - TINY):
                try:
                    with np.errstate(all="ignore"):
                        got = spoilt.run(q, _deciding(setting, proposal, z, u), setting.seed, p=z).q
                except SubjectError as wrong:
                    raised = str(wrong)
                    continue
                tried += 1
                if (what[0] == "l" and np.abs(got - to).max() <= radius) or not np.isfinite(got).all():
                    text = f"{call_text(runner.kernel.name, [q])}  # proposal {to.tolist()}, u={u!r}"
                    return failed(f"it accepted a proposal although the {what} there", text)
    if raised and tried == 0:
        raise Inconclusive(f"the kernel stops: {raised}")
    if not tried:
        raise Inconclusive("there was no proposal to modify")
    if raised:
        test.notes.append(f"nan energy: {raised}")
    return passed(f"NaN and -inf at the proposal, rejected {tried} times")


def _deciding(setting: Setting, outcome: Outcome, z: np.ndarray, u: float) -> dict:
    """Return the script of ``outcome`` with ``u`` for its decisions; flips and choices keep the kernel's probabilities."""
    kept = [s for s in outcome.path if s.kind not in ("flip", "choice") or s.key == FREE]
    path = tuple(
        s if s.key == FREE else s._replace(answer=-math.log(u) if s.kind == "exponential" else u) for s in kept
    )
    script = answers(path, z if setting.frees else None)
    return script if setting.frees else {**script, "normal": list(setting.normals(z))}


def shift_invariance(test: TransitionExamination) -> Cases:
    """Yield changes of the outcomes' probabilities when 1e4 is added to log pi, or subtracted."""
    make, base, slope = _made(test)
    runner, setting = test.need()
    for k, q in enumerate(test.points[:3]):
        z = test.rng(14, k).standard_normal(noise_size(setting, q))
        plain, near = setting.outcomes(q, z), 1e-9 * (1 + float(np.abs(q).max()))
        text = f"{call_text(runner.kernel.name, [q])}  # log density shifted by 1e4"
        for shift in (1e4, -1e4):
            kernel = _rebuilt(runner, make, lambda x, shift=shift: base(x) + shift, slope)
            other = setting._replace(runner=kernel).outcomes(q, z)
            for outcome in [*plain, *other]:
                to = outcome.transition.q
                change = probability_at(plain, to, near) - probability_at(other, to, near)
                yield Measured(abs(change), 64 * test.kernel.epsilon * 1e4, text)
    return "change of a probability; rounding of 1e4"


def change_of_units(test: TransitionExamination) -> Row:
    """Check that the transition ends at the same point in other units (``check/equivariance.py``)."""
    test.need()
    if test.make is None or needed_by(test.make) != 3:
        raise NotApplicable("needs make, a function of (log_density, gradient, inverse_mass) that returns the kernel")
    rows = [_in_units(test, a) for a in equivariance.changes(len(test.points[0]), test.dense)]
    return next((row for row in rows if row.status == FAIL), rows[-1])


def _in_units(test: TransitionExamination, a: np.ndarray) -> Row:
    """Return the row for one change of units A."""
    (runner, _), d = test.need(), len(test.points[0])
    pair = (equivariance.made(test.make, test.log_density, test.gradient, x) for x in (np.ones(d), a))
    plain, scaled = (runner._replace(kernel=runner.kernel.another(f)) for f in pair)
    Q = np.eye(d)  # other kernels draw normals, and have their own root of the mass
    if a.ndim == 2 and runner.shape != MOMENTUM:
        if runner.keeps_momentum:
            raise NotApplicable("the kernel keeps its momentum, and its root of the mass is not known")
        Q = _change_of_normals(test, plain, scaled, a)

    def ends() -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
        for k in range(equivariance.RUNS):
            q, z = test.points[k % len(test.points)], test.rng(15, k).standard_normal(d)
            p = z if runner.sphere else times(inverse(a).T, z)  # a unit velocity is that of coordinates with M = 1
            given = p if runner.shape == MOMENTUM else np.linalg.solve(Q, z)
            end, other = (
                one.run(at, {"normal": list(w)}, k, x)
                for one, at, w, x in ((plain, q, z, z), (scaled, times(a, q), given, p))
            )
            yield end.q, other.q, call_text(runner.kernel.name, [q])

    row, gap = equivariance.equivariant(ends(), a), float(np.abs(Q @ Q.T - np.eye(d)).max())
    if row.status == FAIL or gap <= 1e-6:
        return row
    why = "|Q Q' - 1|, where normals w with a dense mass give the ends of Q w with M = 1: the momentum is not from N(0, M)"
    return failed(why, f"make(..., {times(a, a.T).tolist()})", gap, 1e-6, severity=WRONG_DISTRIBUTION)


def _change_of_normals(
    test: TransitionExamination, plain: TransitionRunner, scaled: TransitionRunner, a: np.ndarray
) -> np.ndarray:
    """Return Q with y'(w) = A q'(Q w) for the ends on small normals, orthogonal if both transitions are right."""
    q = test.points[0]

    def slope(one: TransitionRunner, at: np.ndarray) -> np.ndarray:
        def end(w: np.ndarray) -> np.ndarray:
            return one.run(at, {"normal": list(w), "uniform": [TINY]}, test.seed).q

        zero = np.zeros(len(q))
        return np.stack([differences.ridders(on_line(end, zero, e), 0.1, 6).value for e in np.eye(len(q))], -1)

    return np.linalg.solve(times(a, slope(plain, q)), slope(scaled, times(a, q)))

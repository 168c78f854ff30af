"""First calls of ``check.integrator``: the points of the examination, and the conditions for measuring anything.

Points: those given, or draws of a target with exact draws, or normal points of several widths, with momenta from
exp(-K), K the kinetic energy. Points are kept if the step answers there and changes them little,

    max |lambda - 1| <= 0.8,    lambda the eigenvalues of the Jacobian J

since errors do not follow their leading power of eps further out. If the scales of the pairs (q_i, p_i) differ by
more than ten, J[q_i, p_i] / J[p_i, q_i] = t_i^4 gives the units t_i in which each pair moves on a circle.

Rows: answers, momentum convention (p' -> p or -p as eps -> 0), deterministic, gradient of H.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np

from refhmc.check.integrators.examination import CALM, IntegratorExamination
from refhmc.check.integrators.flow import Energy
from refhmc.check.judging import Cases, Measured, failed, passed, worst_of
from refhmc.check.report import CALL_FAILED, FAIL, Row
from refhmc.check.subject.foreign import DIMENSIONS, Inconclusive, NotApplicable, SubjectError, elsewhere
from refhmc.check.subject.step import Step
from refhmc.check.subject.target import momentum_root, momentum_widths


def answers(test: IntegratorExamination) -> Row:
    """Check for finite answers of the right shape at points with finite H, and choose the points."""
    found, refused, tried = _found(test)
    if test.energy is not None and tried == 0 and test.energy.refusal is not None:
        # H raised everywhere: rows that need it are not run, the others are.
        test.wrong_energy, test.energy = _in_words(test, test.energy.refusal), None
        found, refused, tried = _found(test)
    if not found:
        if refused:
            raise _in_words(test, refused[0])
        if tried == 0:
            test.excluded = "H was finite at none of the points tried; pass points"
            raise Inconclusive(test.excluded)
        case = test.step.case((test.given or [candidate(test, np.random.default_rng(test.seed), 0)])[0], test.eps)
        why = f"not finite, or reported as failed, at all {tried} points"
        return failed(why, case)
    test.excluded = ""
    test.points = found[:4]
    _convention(test)
    test.repeated = _repeated(test)  # before complex numbers are tried, which a cache might keep
    if not test.excluded:
        test.points = _calm(test, found)
    if tried > len(found):
        lost = f"{tried - len(found)} of {tried} points"
        test.notes.append(f"no finite answer at {lost}; the others are examined")
    return passed(f"{len(found)} of {tried} points")


def _found(test: IntegratorExamination) -> tuple[list[np.ndarray], list[SubjectError], int]:
    """Return points at which the step answers, its exceptions at others, and the number of tries with finite H."""
    rng, tried = np.random.default_rng(test.seed), 0
    found: list[np.ndarray] = []
    refused: list[SubjectError] = []
    candidates = test.given or (candidate(test, rng, k) for k in range(40))
    wanted = len(test.given) or (12 if not test.wide else 6)
    for z in candidates:
        if len(found) == wanted or (len(refused) >= 4 and not found):
            break
        if test.energy is not None and not test.energy.finite(z):
            if test.energy.refusal is not None and test.energy.refusals >= 4 and not tried:
                break
            continue
        began, tried = time.perf_counter(), tried + 1
        try:
            end = test.step(z, test.eps)
        except SubjectError as wrong:
            refused.append(wrong)
            continue
        test.slow = min(test.slow, time.perf_counter() - began)
        if test.coarse:  # from now on use numbers of its precision
            z = z.astype(np.float32).astype(float)
        if np.isfinite(end).all():
            found.append(z)
    return found, refused, tried


def answers_in(d: int, step: Any, H: Any, eps: float, like: Any = None) -> bool:
    """Return whether the step and H give finite answers of the right shape in ``d`` dimensions."""
    z = np.round(np.random.default_rng(d).standard_normal(2 * d), 2)
    try:
        finite = np.isfinite(Step(step, d, None, like)(z, eps)).all()
        return bool(finite) and (H is None or bool(np.isfinite(Energy(H, d, like=like)(z))))
    except SubjectError:
        return False


def _in_words(test: IntegratorExamination, wrong: SubjectError) -> SubjectError:
    """Return the error with information on the dimension: another one that works, or that none was found."""
    step, like = test.step.foreign.function, test.like
    told = elsewhere(wrong, test.d, lambda d: answers_in(d, step, test.hamiltonian, test.eps, like))
    if told is wrong and not test.dim_given:
        more = f"; dim was not given, and no dim from 1 to {max(DIMENSIONS)} works"
        return SubjectError(f"{wrong}{more}", wrong.case)
    return told


def candidate(test: IntegratorExamination, rng: np.random.Generator, k: int) -> np.ndarray:
    """Return a draw of the target if possible, else a normal point; the momentum suits the kinetic energy."""
    width = (1.0, 1.0, 0.3, 1.0, 2.5)[k % 5]
    q: np.ndarray = width * rng.standard_normal(test.d)
    p: np.ndarray = rng.standard_normal(test.d)
    H = test.hamiltonian
    try:
        draw = getattr(getattr(getattr(H, "model", None), "reference", None), "draw", None)
        if draw is not None:
            q = np.array(draw(rng, 1)[0], dtype=float)
        if hasattr(H, "draw_momentum"):
            p = np.array(H.draw_momentum(q, rng), dtype=float)
        elif test.energy is not None and test.wide:
            if test.widths is None:  # those of one position suffice for the others
                test.widths = momentum_widths(test.energy.foreign.number, q)
            p = p * test.widths
        elif test.energy is not None:
            p = momentum_root(test.energy.foreign.number, q) @ p
    except Exception:  # not a Hamiltonian of this kind: use the normal numbers
        pass
    z = np.concatenate([q, p])
    return np.array([float(f"{x:.3g}") for x in z])


def _calm(test: IntegratorExamination, found: list[np.ndarray]) -> list[np.ndarray]:
    """Return the points at which a step changes phase space by less than about 0.8: eigenvalues near 1."""
    _balance(test, found)
    if test.given:
        return found
    wanted = (6 if test.quick else 3) if test.d <= 10 else 3
    wanted += 4 * ("energy" in test.claims)
    turned: list[tuple[float, int, np.ndarray]] = []
    for k, z in enumerate(found):
        turn = test.turn(z, test.eps)
        if math.isnan(turn):
            continue
        turned.append((max(turn, CALM), k, z))
        if sum(t <= CALM for t, _, _ in turned) == wanted:
            break
    turned.sort(key=lambda entry: entry[:2])
    if not turned:
        return found[:wanted]
    if turned[0][0] > CALM:
        test.notes.append(
            f"eps is large here: a step changes phase space by at least {turned[0][0]:.2g} of itself; the dependence of errors "
            "on eps is measured with smaller values"
        )
    return [z for _, _, z in turned[:wanted]]


def _balance(test: IntegratorExamination, found: list[np.ndarray]) -> None:
    """Set units t_i of q_i and 1/t_i of p_i in which each pair moves on a circle, if they differ by more than 10."""
    d, logs = test.d, []
    if test.costly:
        return  # it needs all of J
    for z in found[: 1 if test.wide else 3]:
        J = test.jacobian(z, test.eps, 1, full=True)
        if J is not None:
            ahead, back = np.diag(J.value[:d, d:]), np.diag(J.value[d:, :d])
            with np.errstate(all="ignore"):
                logs.append(0.25 * np.log(np.abs(ahead / back)))
    if not logs:
        return
    mean = np.mean(logs, axis=0)
    if np.isfinite(mean).all() and np.ptp(mean) > math.log(10.0):
        t = np.exp(mean - mean.mean())
        test.balance = np.concatenate([t, 1 / t])
        test.jacobians.clear()


def _convention(test: IntegratorExamination) -> None:
    """Find out whether p' tends to p or to -p as eps goes to zero."""
    small, d = test.eps * (1e-2 if test.coarse else 1e-4), test.d
    kept, turned = 0, 0
    for z in test.points:
        end = test.step.quiet(z, small)
        if np.isfinite(end).all():
            same, other = np.abs(end[d:] - z[d:]).max(), np.abs(end[d:] + z[d:]).max()
            kept += same < 0.1 * other
            turned += other < 0.1 * same
    test.unclear = (kept == 0) == (turned == 0)
    test.step.flipped = turned > 0 and kept == 0
    if test.step.flipped:
        test.notes.append("the step returns the momentum with the opposite sign; corrected before all other rows")


def momentum_convention(test: IntegratorExamination) -> Row:
    test.need()
    if test.unclear:
        raise Inconclusive("as eps goes to 0, p' tends neither to p nor to -p")
    return passed("reversed after the step" if test.step.flipped else "not reversed")


def deterministic(test: IntegratorExamination) -> Row:
    """Check that equal calls give equal answers, whatever was called in between."""
    if test.repeated is None:
        raise NotApplicable(test.excluded)
    return test.repeated


def _repeated(test: IntegratorExamination) -> Row:
    z = test.points[0]
    other = test.points[-1] if len(test.points) > 1 else 0.5 * z
    first = [test.step.quiet(z, test.eps) for _ in range(3)]
    test.step.quiet(other, test.eps)
    again = [test.step.quiet(z, test.eps) for _ in range(2)]
    limit, case = 64 * test.unit, test.step.case(z, test.eps)
    apart = max(test.apart(first[0], x, z) for x in [*first, *again])
    if apart <= limit:
        return passed("64 units of rounding", apart, limit)
    test.excluded = "the answer does not only depend on the arguments"
    # Values kept between calls settle when the same call is repeated; random values do not.
    later = [test.step.quiet(z, test.eps) for _ in range(12)][-2:]
    if test.apart(later[0], later[1], z) <= max(limit, 1e-3 * apart):
        why = "the answer depends on earlier calls: something is kept between calls"
        return failed(why, case, apart, limit)
    why = "two equal calls differ: pass the randomness to the step, as in step(draws, q, p, eps)"
    return failed(why, case, apart, limit, severity=CALL_FAILED)


def gradient(test: IntegratorExamination) -> Row:
    """Check that the given gradients are those of H, and that H answers."""
    energy = test.energy
    if test.wrong_energy is not None:
        raise test.wrong_energy
    if energy is None or not energy.given:
        raise NotApplicable("no gradients were given")
    test.need()
    row = worst_of(_gradients(test, energy))
    energy.error = 1e-14
    if row.status == FAIL:
        energy.given = {}
        test.notes.append("the given gradients are not those of H; the flow uses H")
    return row


def _gradients(test: IntegratorExamination, energy: Energy) -> Cases:
    halves = {"grad_q": range(test.d), "grad_p": range(test.d, 2 * test.d)}
    for z, name in itertools.product(test.points[:3], energy.given):
        given = energy.given[name].vector((test.d,), z[: test.d], z[test.d :])
        found = energy.differences(z, halves[name])
        size = np.abs(found).max() + np.abs(given).max() + 1e-6 * abs(energy(z))
        allowed = max(1e-6, 100 * energy.error, 1e3 * energy.foreign.epsilon)
        yield Measured(np.abs(given - found).max() / size, allowed, test.step.case(z, test.eps))
    return "error of the differences"

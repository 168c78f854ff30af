"""Quantities derived from a metric: log determinant, inverse, kinetic energy, energy, velocity and force.

dH/dp = G^-1 p = v          dH/dq_k = -dL/dq_k + 1/2 tr(G^-1 dG/dq_k) - 1/2 v' dG/dq_k v
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refhmc.check.derivatives.claims import Claim, claim_at, directions_at, row_of
from refhmc.check.derivatives.examination import ROUNDING
from refhmc.check.judging import Cases, Measured, judged, passed, worst_of
from refhmc.check.metrics.examination import MetricExamination, Usable, usable_test_points
from refhmc.check.own import differences
from refhmc.check.report import FAIL, Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, text_of


def _share(gap: np.ndarray, of: np.ndarray) -> float | None:
    """Return c if gap = c of + constant, to a thousandth; else None."""
    gap, of = gap - gap.mean(), of - of.mean()
    if of @ of < 1e-12 or gap @ gap == 0:
        return None
    c = float(gap @ of / (of @ of))
    return c if np.abs(gap - c * of).max() <= 1e-3 * np.abs(gap).max() else None


def log_det_row(s: MetricExamination) -> Row:
    """Compare the given log |G| with that of G itself, up to a constant."""
    s.need("log_det")
    usable = usable_test_points(s)
    said = np.array([float(s.strictly("log_det", q)) for q, _, _ in usable])
    right = np.array([float(np.linalg.slogdet(G)[1]) for _, G, _ in usable])
    bound = np.array([blur for _, _, blur in usable]) + ROUNDING * s.epsilon("log_det") * (1 + np.abs(right))
    gap, basis = said - right, "rounding x condition"
    shift = float(np.median(gap))
    if np.all(np.abs(gap) <= bound):
        i = int(np.argmax(np.abs(gap) / bound))
        return passed(basis, abs(gap[i]), bound[i])
    if np.all(np.abs(gap - shift) <= 2 * bound):
        if np.ptp(right) <= 1e-6:
            why = f"off by {shift:.6g}, which is harmless for a constant metric, but it is not the log determinant"
            raise Inconclusive(why)
        return passed(f"up to the constant {shift:.6g}", np.ptp(gap), bound.max())
    share = _share(gap, right)
    if share is not None:
        many = f"{1 + share:.4g} times the right value (a sum of logs of a root's diagonal needs a factor of two)"
        s.found.append(f"log det: {'minus a half of it is returned' if abs(share + 1.5) < 0.01 else many}")
    i = int(np.argmax(np.abs(gap - shift) / bound))
    case = f"{s.call('log_det', usable[i][0])}  # {said[i]:.9g}; log det of G: {right[i]:.9g}"
    return judged(abs(gap[i] - shift), bound[i], basis, case)


def solve_row(s: MetricExamination) -> Cases:
    """Yield the error of the given G^-1 p, multiplied by G."""
    s.need("solve")
    for q, G, blur in usable_test_points(s):
        v = s.momenta(q, 1)[0]
        said, right = s.strictly("solve", q, v), np.linalg.solve(G, v)
        size = float(np.sqrt(max(float(v @ right), 1e-300)))
        off = said - right
        number = float(np.sqrt(max(float(off @ G @ off), 0.0))) / size
        if number > blur and np.abs(said - G @ v).max() <= 1e-6 * np.abs(G @ v).max():
            s.found.append("inverse product: it multiplies by G")
        yield Measured(number, blur, f"{s.call('solve', q, v)}  # {text_of(said)}; G^-1 v: {text_of(right)}")
    return "relative in the norm of G; rounding x condition"


def kinetic(s: MetricExamination) -> Row:
    """Compare H(q, p) - H(q, 0) with 1/2 p' G^-1 p."""
    s.need("H")
    tests: list[tuple[float, float, float]] = []
    row = worst_of(_kinetic_energies(s, tests))
    if row.status == FAIL:
        if s.main == "H":
            raise Inconclusive("H is not quadratic in p, so that it does not define a metric")
        said, right, turned = np.array(tests).T
        ratio = said / right
        if np.ptp(ratio) <= 1e-6 * np.abs(ratio).max():
            s.found.append(f"kinetic energy: {ratio.mean():.6g} times the right value")
        elif np.all(np.abs(said - turned) <= 1e-6 * np.abs(turned)):
            s.found.append("kinetic energy: G is used instead of its inverse")
    return row


def _kinetic_energies(s: MetricExamination, tests: list[tuple[float, float, float]]) -> Cases:
    """Yield errors, and append the given value, the right one, and 1/2 p' G p to ``tests``."""
    for q, G, blur in usable_test_points(s, 6):
        zero = np.zeros(len(q))
        here = float(s.strictly("H", q, zero))
        for p in s.momenta(q, 3):
            said, right = float(s.strictly("H", q, p)) - here, float(0.5 * p @ np.linalg.solve(G, p))
            # A G computed from H carries the rounding of its differences.
            bound = blur * right + 1e3 * s.epsilon("H") * (abs(here) + right + 1) * (1 if s.main == "G" else 100)
            tests.append((said, right, 0.5 * p @ G @ p))
            case = f"{s.call('H', q, p)} - {s.call('H', q, zero)}  # {said:.9g}; 1/2 p' G^-1 p: {right:.9g}"
            yield Measured(abs(said - right), bound, case)
    return "rounding x condition"


def total_energy(s: MetricExamination) -> Row:
    """Check that H(q, 0) + L(q) - 1/2 log det G(q) is the same at all q."""
    s.need("H", "logp")
    usable = usable_test_points(s, 10)
    if len(usable) < 3:
        raise Inconclusive("fewer than three points to compare")
    if s.main == "H":
        _quadratic(s, usable)
    zero = np.zeros(s.dim)
    H = np.array([float(s.strictly("H", q, zero)) for q, _, _ in usable])
    L = np.array([float(s.strictly("logp", q)) for q, _, _ in usable])
    half = np.array([0.5 * np.linalg.slogdet(G)[1] for _, G, _ in usable])
    gap = H + L - half
    rounding = 1e3 * s.epsilon("H", "logp", "G") * (np.abs(H) + np.abs(L) + np.abs(half) + 1)
    bound = rounding * (1 if s.main == "G" else 1e3) + np.array([blur for _, _, blur in usable])
    middle = float(np.median(gap))
    ratio = np.abs(gap - middle) / bound
    i, j = int(np.argmax(ratio)), int(np.argmin(np.abs(gap - middle)))
    if ratio[i] > 1:
        share, other = _share(gap, half), _share(gap, L)
        words = {
            1: "log det G without the factor 1/2",
            -1: "1/2 log det G is missing",
            -2: "1/2 log det G is subtracted, not added",
        }
        if share is not None:
            plain = words.get(round(share)) if abs(share - round(share)) < 1e-3 else None
            s.found.append(f"energy: {plain or f'{1 + share:.4g} times 1/2 log det G instead of once'}")
        elif other is not None:
            s.found.append(f"energy: {other - 1:.4g} times the log density instead of minus one times")
    case = f"{s.call('H', usable[i][0], zero)} - {s.call('H', usable[j][0], zero)}  # off by {gap[i] - gap[j]:.9g}"
    return judged(
        abs(gap[i] - middle), bound[i], "range of H + L - 1/2 log det G over points; rounding x condition", case
    )


def _quadratic(s: MetricExamination, usable: Usable) -> None:
    for q, G, _ in usable[:3]:
        for p in s.momenta(q, 2):
            said = float(s.strictly("H", q, 2 * p)) - float(s.strictly("H", q, np.zeros(len(q))))
            right = 2 * p @ np.linalg.solve(G, p)
            if abs(said - right) > 1e-6 * (abs(right) + 1):
                raise Inconclusive("H is not quadratic in p, so that it does not define a metric")


def _total(s: MetricExamination) -> Callable:
    """Return H as given, or computed from logp and G."""
    if "H" in s.functions:
        return s.at("H")
    if "logp" not in s.functions:
        raise NotApplicable("neither H nor logp was given")
    logp, mass = s.at("logp"), s.at("G")

    def total(q: np.ndarray, p: np.ndarray) -> float:
        G = mass(q)
        if not np.isfinite(G).all() or np.iscomplexobj(G):
            return np.nan
        sign, volume = np.linalg.slogdet(G)
        return -logp(q) + 0.5 * p @ np.linalg.solve(G, p) + 0.5 * volume if sign > 0 else np.nan

    return total


def slope_of_energy(s: MetricExamination, name: str, key: str) -> Row:
    """Compare the given dH/dq or dH/dp with differences of H."""
    s.need(key)
    total, found = _total(s), []
    of = s.epsilon(*(("H",) if "H" in s.functions else ("G", "logp")))
    for q, G, _ in usable_test_points(s, 4):
        p = s.momenta(q, 1)[0]
        along_q = key == "grad_q"
        at, scales = (q, s.frame.scales) if along_q else (p, np.sqrt(np.diag(G)))

        def both(x: np.ndarray, q: np.ndarray = q, p: np.ndarray = p) -> tuple[np.ndarray, np.ndarray]:
            return (x, p) if key == "grad_q" else (q, x)

        u = directions_at(len(q), scales, np.random.default_rng([s.seed, 7]))
        f, claimed = (lambda x, both=both: total(*both(x))), (lambda x, both=both: s.at(key)(*both(x)))
        claim = claim_at(f, claimed, at, u, scales, epsilon=of, claim_epsilon=s.epsilon(key), least=1.0)
        found.append((claim, q, p))
    s.claims[name] = [c for c, _, _ in found]

    def case(c: Claim, index: tuple[int, ...]) -> str:
        _, q, p = next(entry for entry in found if entry[0] is c)
        u = c.directions[index[-1]]
        at = f"[{int(np.argmax(np.abs(u)))}]" if np.count_nonzero(u) == 1 else f" @ np.array({text_of(u)})"
        return f"{s.call(key, q, p)}{at}  # {c.value[index]:.9g}; differences of H: {c.truth[index]:.9g}"

    row = row_of(s.claims[name], case)
    if row.status == FAIL and key == "grad_q":
        _parts_of_force(s, found)
    return row


def _parts_of_force(s: MetricExamination, found: list[tuple[Claim, np.ndarray, np.ndarray]]) -> None:
    """Find the multiples of -dL/dq, 1/2 tr(G^-1 dG) and -1/2 v' dG v in the force, by least squares over points."""
    if "logp" not in s.functions or any(len(c.directions) != len(c.q) for c, _, _ in found):
        return
    columns, said = [], []
    for claim, q, p in found:
        flat, G, dG = differences.jacobian(s.at("logp"), q).value, s.mass(q), differences.jacobian(s.mass, q).value
        v, inverse = np.linalg.solve(G, p), np.linalg.inv(G)
        trace, square = np.einsum("ij,ijk->k", inverse, dG), np.einsum("i,ijk,j->k", v, dG, v)
        columns.append(np.stack([-flat, 0.5 * trace, -0.5 * square], axis=1))
        said.append(claim.value)
    X, y = np.concatenate(columns), np.concatenate(said)
    if not np.isfinite(X).all() or not np.isfinite(y).all() or np.linalg.matrix_rank(X) < 3:
        return
    c, *_ = np.linalg.lstsq(X, y, rcond=None)
    if np.abs(X @ c - y).max() > 1e-3 * np.abs(y).max():
        s.found.append("force: not a linear combination of its three terms")
        return
    terms = ("-dL/dq", "1/2 tr(G^-1 dG/dq)", "-1/2 v' dG/dq v")
    texts = [f"{text} has factor {x:.3g}" for text, x in zip(terms, c, strict=True) if abs(x - 1) > 0.01]
    if texts:
        s.found.append("force: " + ", ".join(texts))

"""Hessian, third derivative and metric, each against differences of what it is the derivative of, and their contractions."""

from __future__ import annotations

import numpy as np

from refhmc.check.derivatives.claims import Claim, claim_at, row_of
from refhmc.check.derivatives.slopes import noise_along, second_along, width_along
from refhmc.check.judging import simplest
from refhmc.check.models.examination import ModelExamination, test_points_of, widths_at
from refhmc.check.report import FAIL, INEFFICIENT, WRONG_LAW, Row, judged
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, text_of


def _tensor_claims(s: ModelExamination, lower: str, higher: str, most: int = 6) -> list[Claim]:
    """Claims of a derivative of a vector or matrix, in units of the lengths on which logp bends."""
    return [_tensor_claim(s, lower, higher, q) for q in test_points_of(s, most)]


def _tensor_claim(
    s: ModelExamination, lower: str, higher: str, q: np.ndarray, directions: np.ndarray | None = None
) -> Claim:
    assert s.frame is not None
    widths = widths_at(s, q)
    unit = 1.0 / widths
    if lower != "grad":
        unit = np.maximum(np.outer(unit, unit), 1e-300)
        if lower == "metric":
            diagonal = np.sqrt(np.abs(np.diag(s.at("metric")(q))))
            unit = np.maximum(np.outer(diagonal, diagonal), unit)
    rng = np.random.default_rng([s.seed, 3])
    u = s.directions(rng) if directions is None else directions
    starts = np.where(np.count_nonzero(u, axis=1) == 1, np.abs(u) @ widths, 0.1)
    return claim_at(
        s.at(lower),
        s.at(higher),
        q,
        u,
        starts,
        unit=unit,
        epsilon=s.epsilon(lower),
        claim_epsilon=s.epsilon(higher),
        growth=4.0,
    )


def _tensor_case(s: ModelExamination, lower: str, higher: str, claim: Claim, index: tuple[int, ...]) -> str:
    u = claim.directions[index[-1]]
    if np.count_nonzero(u) != 1:
        return f"{s.call(higher, claim.q)} @ np.array({text_of(u)})"

    def entry(q):
        return _tensor_claim(s, lower, higher, q, u[None])

    q = simplest(claim.q, lambda q: s.good(q) and bool(entry(q).excess()[index[:-1]][0] > 1), most=25)
    final, k = entry(q), int(np.argmax(np.abs(u)))
    at = ", ".join(map(str, (*index[:-1], k)))
    said, truth = final.value[index[:-1]][0], final.truth[index[:-1]][0]
    return f"{s.call(higher, q)}[{at}]  # {said:.9g}; differences of {s.names[lower]}: {truth:.9g}"


def hessian_row(s: ModelExamination) -> Row:
    s.need("hess")
    if "grad" in s.functions and "gradient" not in s.failed:
        return derivative_row(s, "hessian", "grad", "hess")
    return _hessian_of_logp(s)


def _hessian_of_logp(s: ModelExamination) -> Row:
    """Against second differences of logp itself, along the coordinates and in pairs of them."""
    number, tolerance, case, test_points = 0.0, np.inf, "", test_points_of(s, 5)
    for q in test_points:
        widths, said = widths_at(s, q), s.strictly("hess", q)
        noise = noise_along(s.at("logp"), q, widths * s.smooth / np.sqrt(len(q)), s.epsilon("logp"), 1.0)
        unit = np.eye(len(q)) * widths
        pairs = [(i, j) for i in np.flatnonzero(s.smooth) for j in np.flatnonzero(s.smooth[: i + 1])]
        for i, j in pairs if len(pairs) <= 100 else [pairs[n] for n in s.rng.choice(len(pairs), 100, replace=False)]:
            u = unit[i] + unit[j] if i != j else unit[i]
            truth, error = second_along(s.at("logp"), q, u, width_along(s.at("logp"), q, u, start=0.5), noise)
            bound = error + 1e-5 * max(abs(float(truth)), 1.0)
            if error > 0.1 * max(abs(float(truth)), 1.0):
                continue
            off = abs(u @ said @ u - truth)
            if not off / bound <= number:
                number, tolerance = float(off / bound), 1.0
                case = f"{s.call('hess', q)}[{i}, {j}]  # u'Hu is {u @ said @ u:.9g}, second differences of logp {truth:.9g}"
    if tolerance == np.inf and number == 0.0:
        tolerance = 1.0
    return judged(
        "hessian",
        number,
        tolerance,
        "second differences of logp, in units of their error",
        severity=INEFFICIENT,
        case=case,
    )


def derivative_row(s: ModelExamination, name: str, lower: str, higher: str) -> Row:
    """A tensor against the differences of the one below it."""
    if lower not in s.functions and higher in s.functions:
        raise NotApplicable(f"no {lower} was given to compare it with")
    s.need(higher, lower)
    severity = INEFFICIENT if higher == "hess" else WRONG_LAW
    found = _tensor_claims(s, lower, higher)
    s.claims[name] = found
    return row_of(name, found, severity, lambda c, i: _tensor_case(s, lower, higher, c, i))


def symmetric_row(s: ModelExamination, name: str, key: str, severity: str) -> Row:
    """Derivatives of one function do not depend on the order of their indices."""
    s.need(key)
    number, case = 0.0, ""
    for q in test_points_of(s, 8):
        widths, T = widths_at(s, q), s.strictly(key, q)
        scaled = T
        for axis in range(T.ndim):
            scaled = scaled * widths.reshape([-1 if a == axis else 1 for a in range(T.ndim)])
        noise = noise_along(s.at(key), q, widths * s.smooth / np.sqrt(len(q)), s.epsilon(key))
        weight = np.abs(scaled).max(initial=1.0) / np.maximum(np.abs(T).max(initial=0.0), 1e-300)
        allowed = 64 * s.epsilon(key) * np.abs(scaled).max(initial=1.0)
        if np.isfinite(noise).all():
            allowed += 64 * float(noise.max(initial=0.0)) * weight
        for order in [(1, 0)] if T.ndim == 2 else [(1, 0, 2), (0, 2, 1)]:
            off = float(np.abs(scaled - np.transpose(scaled, order)).max(initial=0.0))
            if not off / allowed <= number:
                number = off / allowed
                gap = np.abs(scaled - np.transpose(scaled, order))
                at = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), T.shape))
                other = tuple(at[order.index(a)] for a in range(T.ndim))
                case = f"T = {s.call(key, q)}; T[{at}], T[{other}]  # {T[at]:.9g}, {T[other]:.9g}"
    return judged(name, number, 1.0, "in units of rounding and measured noise", severity=severity, case=case)


def trace_row(s: ModelExamination, name: str, tensor: str, lower: str) -> Row:
    """sum_ij M[i, j] T[i, j, k] against the tensor, or against differences of sum_ij M[i, j] lower[i, j]."""
    key = {"third": "trace", "metric_derivative": "metric_trace"}[tensor]
    s.need(key)
    if lower not in s.functions:
        raise NotApplicable(f"no {lower} was given to compare it with")
    assert s.dim is not None
    assert s.frame is not None
    rng = np.random.default_rng([s.seed, 4])
    found = []
    for q in test_points_of(s, 5):
        widths = widths_at(s, q)
        M = rng.standard_normal((s.dim, s.dim))
        M = (M + M.T) * np.outer(widths, widths)  # symmetric: that is what it is used for
        value, contract = s.at(lower), s.functions[key]

        def contracted(x, value=value, M=M):
            return np.einsum("ij,ij->", M, value(x))

        def claimed(x, contract=contract, M=M):
            return contract.vector((len(x),), x, M)

        u = s.directions(rng)
        starts = np.where(np.count_nonzero(u, axis=1) == 1, np.abs(u) @ widths, 0.1)
        size = float(np.abs(M * value(q)).sum())
        found.append(
            claim_at(
                contracted,
                claimed,
                q,
                u,
                starts,
                unit=max(size, 1.0),
                epsilon=s.epsilon(lower),
                claim_epsilon=contract.epsilon,
                least=size,
                growth=4.0,
            )
        )
    return row_of(name, found, WRONG_LAW, lambda c, i: f"{s.names[key]}(np.array({text_of(c.q)}), M)")


def metric_row(s: ModelExamination) -> Row:
    """Symmetric, positive definite at the places; :func:`refhmc.check.metric` looks closer."""
    s.need("metric")
    worst, case = np.inf, ""
    for q in test_points_of(s, 20):
        G = s.strictly("metric", q)
        if not np.isfinite(G).all():
            return Row("metric", FAIL, basis="not finite", severity=WRONG_LAW, case=s.call("metric", q))
        rounding = 64 * s.epsilon("metric") * len(q)
        root = np.sqrt(np.abs(np.diag(G))) + 1e-300
        scaled = G / np.outer(root, root)
        if np.abs(scaled - scaled.T).max() > rounding * max(1.0, np.abs(scaled).max()):
            return Row(
                "metric",
                FAIL,
                float(np.abs(scaled - scaled.T).max()),
                rounding,
                "not symmetric",
                WRONG_LAW,
                s.call("metric", q),
            )
        least = float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[0])
        if least < worst:
            worst, case = least, s.call("metric", q)
    rounding = 64 * s.epsilon("metric") * (s.dim or 1)
    if abs(worst) <= rounding:
        raise Inconclusive(f"singular to rounding at {case}")
    basis = "least eigenvalue with a unit diagonal; 64 units of rounding times d"
    return judged("metric", worst, rounding, basis, relation=">", severity=WRONG_LAW, case=case)

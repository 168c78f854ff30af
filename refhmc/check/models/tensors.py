"""Hessian, third derivative, metric and their contractions, compared with differences of the functions below them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from refhmc.check.derivatives.claims import Claim, claim_at, row_of
from refhmc.check.derivatives.examination import least_eigenvalue
from refhmc.check.derivatives.slopes import second_along, width_along
from refhmc.check.judging import Cases, Measured, failed, judged
from refhmc.check.models.examination import ModelExamination, widths_at
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, text_of


def _tensor_claim(
    s: ModelExamination, lower: str, higher: str, q: np.ndarray, directions: np.ndarray | None = None
) -> Claim:
    """Return the comparison of a derivative of a vector or matrix, in units of the lengths on which logp bends."""
    widths = widths_at(s, q)
    unit = 1.0 / widths
    if lower != "grad":
        unit = np.maximum(np.outer(unit, unit), 1e-300)
        if lower == "metric":
            diagonal = np.sqrt(np.abs(np.diag(s.at("metric")(q))))
            unit = np.maximum(np.outer(diagonal, diagonal), unit)
    u = s.directions(np.random.default_rng([s.seed, 3])) if directions is None else directions
    units: dict[str, Any] = {"unit": unit, "epsilon": s.epsilon(lower), "claim_epsilon": s.epsilon(higher)}
    return claim_at(s.at(lower), s.at(higher), q, u, widths, start=0.1, growth=4.0, **units)


def hessian_row(s: ModelExamination) -> Row | Cases:
    s.need("hess")
    if "grad" in s.functions and "gradient" not in s.failed:
        return derivative_row(s, "hessian", "grad", "hess")
    return _hessian_of_logp(s)


def _hessian_of_logp(s: ModelExamination) -> Cases:
    """Yield errors from second differences of logp itself, along the coordinates and pairs of them."""
    logp = s.at("logp")
    for q in s.test_points(5):
        widths, said = widths_at(s, q), s.strictly("hess", q)
        noise, unit = s.noise_of("logp", q, widths, 1.0), np.eye(len(q)) * widths
        pairs = [(i, j) for i in np.flatnonzero(s.smooth) for j in np.flatnonzero(s.smooth[: i + 1])]
        for i, j in pairs if len(pairs) <= 100 else [pairs[n] for n in s.rng.choice(len(pairs), 100, replace=False)]:
            u = unit[i] + unit[j] if i != j else unit[i]
            truth, error = second_along(logp, q, u, width_along(logp, q, u, start=0.5), noise)
            size = max(abs(float(truth)), 1.0)
            if error <= 0.1 * size:
                numbers = f"u'Hu is {u @ said @ u:.9g}, second differences of logp {truth:.9g}"
                case = f"{s.call('hess', q)}[{i}, {j}]  # {numbers}"
                yield Measured(abs(u @ said @ u - truth) / (error + 1e-5 * size), 1.0, case)
    return "second differences of logp, in units of their error"


def derivative_row(s: ModelExamination, name: str, lower: str, higher: str) -> Row:
    """Compare a tensor with the differences of the one below it."""
    if lower not in s.functions and higher in s.functions:
        raise NotApplicable(f"{lower} was not given, which it is compared with")
    s.need(higher, lower)
    claim = functools.partial(_tensor_claim, s, lower, higher)
    return s.claim_row(name, s.test_points(6), higher, lower, claim, most=25)


def symmetric_row(s: ModelExamination, key: str) -> Cases:
    """Yield the asymmetry of a derivative in its indices."""
    s.need(key)
    for q in s.test_points(8):
        widths, T = widths_at(s, q), s.strictly(key, q)
        scaled = T
        for axis in range(T.ndim):
            scaled = scaled * widths.reshape([-1 if a == axis else 1 for a in range(T.ndim)])
        noise, largest = s.noise_of(key, q, widths), np.abs(scaled).max(initial=1.0)
        allowed = 64 * s.epsilon(key) * largest
        if np.isfinite(noise).all():
            allowed += 64 * float(noise.max(initial=0.0)) * largest / max(np.abs(T).max(initial=0.0), 1e-300)
        for order in [(1, 0)] if T.ndim == 2 else [(1, 0, 2), (0, 2, 1)]:
            gap = np.abs(scaled - np.transpose(scaled, order))
            at = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), T.shape))
            other = tuple(at[order.index(a)] for a in range(T.ndim))
            case = f"T = {s.call(key, q)}; T[{at}], T[{other}]  # {T[at]:.9g}, {T[other]:.9g}"
            yield Measured(gap.max(initial=0.0) / allowed, 1.0, case)
    return "in units of rounding and measured noise"


def trace_row(s: ModelExamination, tensor: str, lower: str) -> Row:
    """Compare sum_ij M[i, j] T[i, j, k] with differences of sum_ij M[i, j] lower[i, j]."""
    key = {"third": "trace", "metric_derivative": "metric_trace"}[tensor]
    s.need(key)
    if lower not in s.functions:
        raise NotApplicable(f"{lower} was not given, which it is compared with")
    rng = np.random.default_rng([s.seed, 4])
    value, contract = s.at(lower), s.functions[key]
    found = []
    for q in s.test_points(5):
        widths = widths_at(s, q)
        M = rng.standard_normal((s.dim, s.dim))
        M = (M + M.T) * np.outer(widths, widths)  # symmetric, as in its use
        size = float(np.abs(M * value(q)).sum())

        def contracted(x: np.ndarray, M: np.ndarray = M) -> np.ndarray:
            return np.einsum("ij,ij->", M, value(x))

        def claimed(x: np.ndarray, M: np.ndarray = M) -> np.ndarray:
            return contract.vector((len(x),), x, M)

        units: dict[str, Any] = {
            "unit": max(size, 1.0),
            "epsilon": s.epsilon(lower),
            "claim_epsilon": contract.epsilon,
            "least": size,
        }
        u = s.directions(rng)
        found.append(claim_at(contracted, claimed, q, u, widths, start=0.1, growth=4.0, **units))
    return row_of(found, lambda c, i: f"{s.names[key]}(np.array({text_of(c.q)}), M)")


def metric_row(s: ModelExamination) -> Row:
    """Check that the metric is symmetric and positive definite; :func:`refhmc.check.metric` examines it more closely."""
    s.need("metric")
    least = []
    for q in s.test_points(20):
        G, case = s.strictly("metric", q), s.call("metric", q)
        if not np.isfinite(G).all():
            return failed("not finite", case)
        value, rounding = least_eigenvalue(G, s.epsilon("metric"))
        root = np.sqrt(np.abs(np.diag(G))) + 1e-300
        off = float(np.abs((G - G.T) / np.outer(root, root)).max())
        if off > rounding * max(1.0, float(np.abs(G / np.outer(root, root)).max())):
            return failed("not symmetric", case, off, rounding)
        least.append((value, rounding, case))
    worst, rounding, case = min(least)
    if abs(worst) <= rounding:
        raise Inconclusive(f"singular to rounding at {case}")
    return judged(
        worst, rounding, "least eigenvalue with a unit diagonal; 64 units of rounding times d", case, relation=">"
    )

"""A model's conformance: is each derivative that of the one below it, and is it the density it is meant to be?

    gradient[i] = dL/dq_i      hess[i, j] = d gradient[i] / dq_j      third[i, j, k] = d hess[i, j] / dq_k

Differences of the caller's own functions are the truth, with an error that is measured where it is used
(``derivatives/slopes.py``, ``derivatives/claims.py``): in float32 for a subject that answers in it.

Not judged rightly: a function that answers in float64 and computes in float32, as networks with ``dtype=np.float32`` do. The
right gradient of an MLP on tanh or ReLU FAILs at large points, and one on ReLU at others, too. Examine networks in float64:
those on ReLU and SELU pass.

What no derivative can show is a density that is consistently another one: ``models/densities.py``.

How grave a failure is. A leapfrog whose force is *any* function of q preserves volume and can be reversed: a wrong gradient
under a Metropolis step leaves the law right and rejects more (inefficient), and so does a wrong Hessian as the raw material
of a metric. A third derivative, or a metric's, that is not the derivative of what it belongs to makes a step on a metric that
depends on the position non-symplectic, so that its acceptance probability is not the right one: wrong law. So is a wrong
density.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refhmc.check.arguments import require_counts
from refhmc.check.derivatives.examination import warm_up
from refhmc.check.derivatives.patterns import clipped, pattern_far_out, pattern_of_gradient, pattern_of_tensor
from refhmc.check.examination import Rows
from refhmc.check.models.answers import answers_row, answers_stay_row, deterministic_row
from refhmc.check.models.change import change_row
from refhmc.check.models.composition import composition_row
from refhmc.check.models.densities import STEIN_RATE, exact_draws_row, normaliser_row
from refhmc.check.models.edges import smooth_row, support_row
from refhmc.check.models.examination import ModelExamination, functions_of
from refhmc.check.models.gradient import gradient_row, large_row, precision_row
from refhmc.check.models.tensors import derivative_row, hessian_row, metric_row, symmetric_row, trace_row
from refhmc.check.report import FAIL, INEFFICIENT, MISCONDUCT, Report, Row
from refhmc.check.subject.foreign import SECONDS_PER_CALL


def model(
    logp: Any,
    grad: Any = None,
    hess: Any = None,
    third: Any = None,
    metric: Any = None,
    support: Any = None,
    *,
    dim: int | None = None,
    metric_derivative: Any = None,
    trace: Any = None,
    metric_trace: Any = None,
    reference: Any = None,
    constrained: tuple[Callable, Callable] | None = None,
    normalised: bool = False,
    discontinuous: Sequence[int] | None = None,
    change: Any = None,
    points: Any = None,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Hold a log density and its derivatives against each other, and against what is known of it.

    Parameters
    ----------
    logp : q (d,) -> a number, -inf outside the support; or -> (number, gradient) with ``grad`` left out; or a
        :class:`refhmc.Model`, or any object with ``log_density`` and ``gradient``, which brings its other functions along.
    grad, hess, third : q -> (d,), (d, d), (d, d, d): the derivatives of L itself, not of -L.
    metric, metric_derivative : q -> (d, d) and (d, d, d), [i, j, k] = d metric[i, j] / dq_k.
    trace, metric_trace : (q, M) -> (d,): sum_ij M[i, j] third[i, j, k], and the same of the metric's derivative.
    support : where L is finite: q -> bool, or a pair (low, high) of numbers or (d,) arrays.
    dim : d; found by trial where it is left out.
    reference : what is known: a function (or an object with ``log_density``) that L should equal up to a constant, and/or an
        object with ``draw(rng, n)``, exact draws (n, d) of q.
    constrained : (log density of x, q -> x): L should be that density carried over to q.
    normalised : L claims to integrate to one (d <= 2).
    discontinuous : indices of the coordinates in which L jumps (needs ``dim``): derivatives are taken along the others only.
    change : (q, j, x) -> L(q with q_j = x) - L(q), as discontinuous HMC uses it.
    points : further places (n, d) to look at; the first is where the search for a centre begins.

    A :class:`refhmc.Model` brings its ``dim``, ``reference``, ``discontinuous`` and ``initial`` along.

    Returns a :class:`Report`. TypeError for a subject that is not callable, ValueError for points of another shape, for
    indices of no coordinate, and for a ``dim`` below one.
    """
    require_counts(dim=dim)
    if discontinuous is None:
        discontinuous = getattr(logp, "discontinuous", ())
    if points is None:
        points = getattr(logp, "initial", None)
        points = points(np.random.default_rng(seed)) if callable(points) else points
    given = {"grad": grad, "hess": hess, "third": third, "metric": metric, "metric_derivative": metric_derivative}
    given |= {"trace": trace, "metric_trace": metric_trace, "change": change}
    dim = dim if dim is not None else getattr(logp, "dim", None)
    s = ModelExamination(functions_of(logp, given), support, points, seed, like, discontinuous, dim)
    if s.discontinuous:
        if dim is None:
            raise ValueError("discontinuous= needs dim=")
        if not all(0 <= k < s.dim for k in s.discontinuous):
            raise ValueError(f"discontinuous: indices are whole numbers from 0 to {s.dim - 1}, got {s.discontinuous}")
    s.leave_out_large_tensors()
    if hasattr(logp, "core"):  # one of ours: what it compiles at its first calls is not the subject's time
        warm_up(s.functions, s.dim or 1)
    s.reference = reference if reference is not None else getattr(logp, "reference", None)
    checks: Rows = [
        ("answers", answers_row),
        ("deterministic", deterministic_row),
        ("earlier answers stay", answers_stay_row),
        ("gradient", lambda s: gradient_row(s, "gradient", s.ordinary), INEFFICIENT),
        (
            "gradient at asymmetric points",
            lambda s: gradient_row(s, "gradient at asymmetric points", s.asymmetric),
            INEFFICIENT,
        ),
        ("gradient at large points", large_row, INEFFICIENT),
        ("gradient precision", precision_row, INEFFICIENT),
        ("hessian", hessian_row, INEFFICIENT),
        ("hessian symmetric", lambda s: symmetric_row(s, "hess"), INEFFICIENT),
        ("third derivative", lambda s: derivative_row(s, "third derivative", "hess", "third")),
        ("third derivative symmetric", lambda s: symmetric_row(s, "third")),
        ("trace", lambda s: trace_row(s, "third", "hess")),
        ("metric", metric_row),
        ("metric derivative", lambda s: derivative_row(s, "metric derivative", "metric", "metric_derivative")),
        ("metric trace", lambda s: trace_row(s, "metric_derivative", "metric")),
        ("composition in JAX", composition_row, INEFFICIENT),
        ("smooth", smooth_row, INEFFICIENT),
        ("support", support_row),
        ("change", change_row),
        ("normaliser", lambda s: normaliser_row(s, constrained, normalised)),
        ("exact draws", exact_draws_row),
    ]
    s.title = name or s.title
    return s.report(
        "model",
        checks,
        diagnose=_diagnose,
        seconds_per_call=seconds_per_call,
        false_alarm=f"deterministic checks: none; exact draws: at most {STEIN_RATE:g} (all its tests together)",
    )


# ----------------------------------------------------------------------------------------------------------- diagnosis


def _diagnose(s: ModelExamination, rows: dict[str, Row]) -> list[str]:
    failed = {name for name, row in rows.items() if row.status == FAIL and row.severity != MISCONDUCT}
    said = []
    ordinary = [c for n in ("gradient", "gradient at asymmetric points") for c in s.claims.get(n, ())]
    every = [*ordinary, *s.claims.get("gradient at large points", ())]
    clip = clipped(every) if failed & {"gradient", "gradient at large points"} else ""
    if clip:
        said.append(clip)
    elif failed & {"gradient", "gradient at asymmetric points"} and ordinary:
        said.append(pattern_of_gradient(ordinary))
    elif "gradient at large points" in failed:
        said.append(pattern_far_out(s.claims["gradient at large points"]))
    if "gradient precision" in failed:
        digits = f"good to {rows['gradient precision'].number:.0e} only, everywhere"
        said.append(f"the gradient is {digits}: a constant or a part in float32, or a difference quotient")
    for name in ("hessian", "third derivative", "metric derivative"):
        if name in failed and name in s.claims:
            text = pattern_of_tensor(s.claims[name])
            said += [f"{name}: {text}"] if text else []
    if "third derivative symmetric" in failed and "third derivative" not in failed:
        said.append("third derivative: its indices do not commute")
    said += sorted(text for text in s.failed if " " in text)
    return [text for text in said if text]

"""``check.model``: whether each derivative is that of the function below it, and the density the intended one.

    gradient[i] = dL/dq_i      hess[i, j] = d gradient[i] / dq_j      third[i, j, k] = d hess[i, j] / dq_k

Differences of the caller's own functions are the truth, with an error that is measured at each point
(``derivatives/slopes.py``, ``derivatives/claims.py``), in float32 for a subject that returns float32.

Limitation: functions that compute in float32 and return float64, such as networks with ``dtype=np.float32``. The
right gradient of an MLP with tanh or ReLU units FAILs at large points, and with ReLU at others too. Examine networks in
float64: those with ReLU and SELU units pass.

Derivatives cannot show that the density is consistently another one; see ``models/densities.py``.

Severity: a leapfrog whose force is *any* function of q preserves volume and is reversible. With a wrong gradient, a
Metropolis step keeps the distribution right and rejects more (inefficient), and so does a wrong Hessian in the construction
of a metric. A third derivative, or a metric's derivative, that does not belong to its function makes steps with a
position-dependent metric non-symplectic, so that the acceptance probability is wrong (wrong distribution). A wrong density
has the same effect.
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
from refhmc.check.report import CALL_FAILED, FAIL, INEFFICIENT, Report, Row
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
    """Check a log density and its derivatives for consistency.

    The rows of the report verify, with L = logp::

        gradient[i] = dL/dq_i        hess[i, j] = d gradient[i]/dq_j        third[i, j, k] = d hess[i, j]/dq_k
        metric_derivative[i, j, k] = d metric[i, j]/dq_k
        trace(q, M)[k] = sum_ij M[i, j] third[i, j, k],  and the same for the metric's derivative
        change(q, j, x) = L(q with q_j = x) - L(q)

    at ordinary, asymmetric and large points, with differences of the given functions as reference. Further rows check symmetry,
    float64 precision, -inf outside the support, kinks, and compositions in JAX. A consistently wrong density, such as one
    without the Jacobian of a transform, is only found with `constrained`, `reference` or `normalised`. Functions that
    compute in float32 but return float64 may fail; use float64. The severity of a wrong gradient or Hessian is "inefficient",
    since a Metropolis step corrects it. All rows are deterministic, except that of exact draws, which fails for a correct
    model with probability at most 1e-6.

    Parameters
    ----------
    logp : callable or object
        Log density ``logp(q)``: a number, -inf outside the support; `q` has shape (dim,). It may also return the pair (number,
        gradient) if `grad` is omitted. A :class:`refhmc.Model`, or an object with ``log_density`` and ``gradient``, provides
        its other functions too; a model also its ``dim``, ``reference``, ``discontinuous`` and ``initial``.
    grad : callable, optional
        Gradient ``grad(q)`` of L (not of -L), of shape (dim,).
    hess : callable, optional
        Hessian ``hess(q)`` of L, of shape (dim, dim).
    third : callable, optional
        Third derivative ``third(q)`` of L, of shape (dim, dim, dim).
    metric : callable, optional
        Metric ``metric(q)`` of shape (dim, dim), such as the Fisher information.
    support : callable or (low, high), optional
        Domain of L: ``support(q)`` returns a bool, or bounds as numbers or arrays of shape (dim,).
    dim : int, optional
        Dimension of q; found by trying if omitted.
    metric_derivative : callable, optional
        ``metric_derivative(q)`` of shape (dim, dim, dim).
    trace : callable, optional
        Contraction ``trace(q, M)`` of the third derivative with a symmetric matrix M, of shape (dim,).
    metric_trace : callable, optional
        Contraction ``metric_trace(q, M)`` of the metric's derivative, of shape (dim,).
    reference : callable or object, optional
        Known density: a function, or an object with ``log_density``, that equals L up to a constant. An object with
        ``draw(rng, n)``, exact draws of shape (n, dim), adds a test of the gradient by Stein's identity.
    constrained : (callable, callable), optional
        Pair (log density of x, transform q -> x): L must be this density transformed to q, with the log Jacobian.
    normalised : bool, default False
        Whether exp L must integrate to one (dim at most 2).
    discontinuous : sequence of int, optional
        Coordinates in which L jumps; derivatives are taken along the others. Needs `dim`.
    change : callable, optional
        ``change(q, j, x)`` returns L(q with q_j = x) - L(q), as used by discontinuous HMC.
    points : array_like, shape (n, dim), optional
        Further points of the examination; the first is the start of the search for a centre.
    seed : int, default 20261121
        Seed of the points.
    like : callable, module or array, optional
        Array type of the arguments: a conversion function, a module with ``asarray``, or an example array. NumPy float64 by
        default.
    name : str, optional
        Name of the subject in the report.
    seconds_per_call : float or None, default 30.0
        A call that takes longer is a FAIL. None means no limit.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    TypeError
        If an argument is not callable.
    ValueError
        If `points`, `discontinuous` or `dim` is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> def logp(q):  # Gumbel distribution
    ...     return -q[0] - np.exp(-q[0])
    >>> refhmc.check.model(logp, lambda q: -1 + np.exp(-q), dim=1).status
    'PASS'
    >>> report = refhmc.check.model(logp, lambda q: 1 - np.exp(-q), dim=1)  # the sign is wrong
    >>> report.row("gradient").status, report.severity
    ('FAIL', 'inefficient')
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
            raise ValueError("dim must be given if discontinuous is; got None.")
        if not all(0 <= k < s.dim for k in s.discontinuous):
            raise ValueError(f"discontinuous must have integers from 0 to {s.dim - 1}; got {s.discontinuous}.")
    s.leave_out_large_tensors()
    if hasattr(logp, "core"):  # an object of refhmc: compilation does not count as the subject's time
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
        false_alarm=f"deterministic checks: none; exact draws: at most {STEIN_RATE:g} (all tests together)",
    )


# ----------------------------------------------------------------------------------------------------------- diagnosis


def _diagnose(s: ModelExamination, rows: dict[str, Row]) -> list[str]:
    failed = {name for name, row in rows.items() if row.status == FAIL and row.severity != CALL_FAILED}
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
        digits = f"correct to {rows['gradient precision'].number:.0e} only, everywhere"
        said.append(f"the gradient is {digits}: a constant or a part in float32, or a difference quotient")
    for name in ("hessian", "third derivative", "metric derivative"):
        if name in failed and name in s.claims:
            text = pattern_of_tensor(s.claims[name])
            said += [f"{name}: {text}"] if text else []
    if "third derivative symmetric" in failed and "third derivative" not in failed:
        said.append("third derivative: its indices do not commute")
    said += sorted(text for text in s.failed if " " in text)
    return [text for text in said if text]

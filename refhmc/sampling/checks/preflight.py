"""Check, before the first draw, of each derivative D that the kernel reads, against the function F that it belongs to.

A tensor is checked through a scalar. A vector v and a symmetric matrix M are drawn at random, in units of the widths of
:mod:`refhmc.numerics.line_integrals`, so that an error in any single entry shows:

    F = L                 D = gradient
    F = v . gradient      D = hessian v               (the Fisher metric is an expectation and cannot be checked)
    F = M : G             D = contraction(q, M),      G the Hessian or the Fisher metric

The functions called are those of the compiled kernel: a ``hessian_contraction`` derived from ``third_derivative`` shows errors
of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core.types import JUMPING
from refhmc.errors import GradientError, MetricError, ModelError, _see
from refhmc.metrics.base import for_model
from refhmc.models.base import Model
from refhmc.models.binding.functions import FULL_TENSOR
from refhmc.numerics.line_integrals import TOLERANCE, Claim, disagreement, widths_and_directions

if TYPE_CHECKING:
    from refhmc.sampling.chains.chain import Plan

SEED = 20261121  # of the directions, the same in every run
LOW_PRECISION = 2.0**-32  # relative noise of the log density; in double precision it is far smaller
NAMED = 50  # coordinates tested one by one to locate an error
ASYMMETRY = 1e-6
CHANGES = 3  # discontinuous coordinates tested


def check_gradient(model: Model, q: np.ndarray) -> str | None:
    """Raise GradientError unless the gradient is the derivative of the log density near `q`, (d,).

    Discontinuous coordinates do not change. This takes 13 + min(d, 16) gradients and seven log densities, more if L is strongly
    curved within a width. For a split model, only the first part is checked, because all parts use the same functions. Returns
    a warning if the density has low precision, or if the gradient is that of a solver and differs, else None.
    """
    if getattr(model, "made_alike", False):
        model = model.parts[0]  # type: ignore[attr-defined]
    with np.errstate(all="ignore"):
        return _check_gradient(_Subject(model, q))


def check_derivatives(plan: Plan, q: np.ndarray) -> None:
    """Check the derivatives that the metrics of a run's `plan` read, and the change of the log density that DHMC reads.

    Each block is checked with the others at the start, in about 14 evaluations per function. Raises GradientError, and
    MetricError for a Hessian or Fisher metric that is not symmetric.
    """
    with np.errstate(all="ignore"):
        for block in plan.blocks:
            part, x, pointers = block.conditional.model, q[block.conditional.indices], block.pointers_at(q)
            if block.dynamics.metric.position_dependent:
                _check_metric(_Subject(part, x, pointers), block.dynamics.metric)
            elif block.dynamics.pointers[0] == JUMPING and part.functions.log_density_change is not None:
                _check_change(_Subject(part, x, pointers))


class _Subject:
    """Model at its start q, with cached log densities and gradients, and the directions to check.

    `pointers` are those of the compiled core; without them, the model's own functions are called.
    """

    def __init__(self, model: Model, q: np.ndarray, pointers: tuple | None = None) -> None:
        self.model, self.q, self.pointers = model, q, pointers
        self.free = np.setdiff1d(np.arange(model.dim), model.discontinuous)
        self.rng = np.random.default_rng(SEED)
        self.values: dict[bytes, float] = {}
        self.gradients: dict[bytes, np.ndarray] = {}
        self._know(q, self._at(q, value=True, slope=True))
        self.widths, self.directions = widths_and_directions(self.log_density, self.gradient, q, self.free, self.rng)

    def log_density(self, q: np.ndarray) -> float:
        if q.tobytes() not in self.values:
            self._know(q, _or_nan(lambda: self._at(q, value=True), (np.nan, None)))
        return self.values[q.tobytes()]

    def gradient(self, q: np.ndarray) -> np.ndarray:
        """Return the gradient, with zeros for discontinuous coordinates."""
        if q.tobytes() not in self.gradients:
            self._know(q, _or_nan(lambda: self._at(q, slope=True), (None, np.nan)))
        return self.gradients[q.tobytes()]

    def _know(self, q: np.ndarray, found: tuple) -> None:
        value, slope = found
        if value is not None:
            self.values[q.tobytes()] = value
        if slope is not None:
            slope = slope * np.ones(self.model.dim)
            slope[self.model.discontinuous] = 0.0
            self.gradients[q.tobytes()] = slope

    def _at(self, q: np.ndarray, value: bool = False, slope: bool = False) -> tuple:
        """Return log density and gradient, each None if it was neither requested nor computed with the other."""
        if self.pointers is not None:
            out = np.zeros(self.model.dim)
            return self.pointers[1](q.copy(), self.pointers[0], out), out
        if self.model.functions.value_and_gradient is not None:  # the core calls this instead of ``gradient``
            return self.model.core.value_and_gradient(q)
        return self.model.log_density(q) if value else None, self.model.gradient(q) if slope else None

    def hold(self, claim: Claim) -> float:
        """Raise GradientError if the claim fails along a direction; return the largest relative noise of F."""
        noise = 0.0
        for u in self.directions:
            wrong, met = disagreement(claim, self.q, u)
            noise = max(noise, met)
            if wrong is None:
                continue
            where = [
                j for j in self.free[:NAMED] if disagreement(claim, self.q, self.widths * _unit(self.model.dim, j))[0]
            ]
            named = f" (in {', '.join(self.model.names[j] for j in where[:5])})" if where else ""
            raise GradientError(
                f"The {claim.name} of model {self.model.name!r} must be the derivative of the {claim.of}; it is not at q = "
                f"{_short(self.q)}{named}. Along {_short(wrong.direction)} the {claim.name} gives "
                f"{wrong.segment.integral:.10g}, but differences of the {claim.of} give {wrong.segment.change:.10g}. Correct "
                f"the {claim.name}, or use preflight=False to skip this check."
            )
        return noise


def _unit(dim: int, j: int) -> np.ndarray:
    unit = np.zeros(dim)
    unit[j] = 1.0
    return unit


def _filled(function: Callable, *arguments: Any, out: np.ndarray) -> np.ndarray:
    """Return the array that a function of the core writes."""
    function(*arguments, out)
    return out


def _or_nan(evaluate: Callable, nan: Any = np.nan) -> Any:
    """Return the value, or NaN if the user's function raises: the positions checked may lie outside the support."""
    try:
        return evaluate()
    except ModelError:
        raise
    except Exception:
        return nan


def _check_gradient(s: _Subject) -> str | None:
    model = s.model
    if len(s.free) == 0:
        return None
    values = [s.log_density(x) for x in (s.q, *(s.q + s.directions))]
    single = rounded_to_single(values)
    coarse = 2.0**-24 * np.nanmax(np.abs(values)) if single else 0.0

    def value(q: np.ndarray) -> tuple[float, float]:
        return s.log_density(q), abs(s.log_density(q))

    claim = Claim("gradient", "log density", value, s.gradient, max(model.noise, coarse))
    if "gradient" in getattr(model, "approximate", ()):
        return _solver_error(s, claim)
    noise = s.hold(claim)
    size = abs(values[0])
    if not single and noise * size <= max(LOW_PRECISION * size, model.noise):
        if not rounded_to_single(np.concatenate([g[s.free] for g in s.gradients.values()])):
            return None
        what, digits = "gradient", 7.0
    else:
        what, digits = "log density", 7.0 if single else -np.log10(noise)
    return (
        f"The {what} of {model.name!r} is accurate to only {digits:.0f} digits, as if computed in single precision (float32), "
        "and was checked to that accuracy. Its rounding adds to the energy error, which lowers acceptance if it is large. "
        f"Compute in float64 (in JAX: jax.config.update('jax_enable_x64', True)). {_see('precision')}"
    )


def _solver_error(s: _Subject, claim: Claim) -> str | None:
    """Return a warning if the claim fails, for a gradient that is right only to the tolerance of a solver."""
    wrong = [found.segment for u in s.directions if (found := disagreement(claim, s.q, u)[0])]
    if not wrong:
        return None
    share = max(abs(each.change - each.integral) / each.size for each in wrong)
    return (
        f"The gradient of {s.model.name!r} differs by {share:.0e} of its size from differences of the log density at the first "
        "start, because a solver such as odeint has its own derivative rule, which is accurate only to the solver's tolerance. "
        "This adds to the energy error, which lowers acceptance if it is large. Use smaller rtol and atol, or "
        f"initvals nearer to the posterior. {_see('solver-tolerance')}"
    )


def rounded_to_single(values: Any) -> bool:
    """Return whether all values are single-precision numbers, and not all of them short ones such as integers."""
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values) & (values != 0)]
    if len(values) < 3 or np.any(values.astype(np.float32) != values):
        return False
    mantissas, _ = np.frexp(values)
    return bool(np.any(mantissas * 2.0**16 != np.round(mantissas * 2.0**16)))


def _check_metric(s: _Subject, metric: Any) -> None:
    """Check the derivatives that a position-dependent metric reads."""
    assert s.pointers is not None
    model, (data, _, matrix, hessian_contraction, _) = s.model, s.pointers
    metric = for_model(metric, model)
    diagonal = model.has_diagonals and getattr(metric, "reads_diagonals", False)
    of, contraction = metric.reads
    if contraction is not None and getattr(model.functions, contraction) is None:
        contraction = FULL_TENSOR[contraction]
    v = s.rng.standard_normal(model.dim) * s.widths
    n_rows = 1 if diagonal else 3 if of == "bordered_fisher" else 0  # 0: the full matrix
    if n_rows:
        M = s.rng.standard_normal((n_rows, model.dim)) * s.widths**2
    else:
        M = s.rng.standard_normal((model.dim, model.dim)) * np.outer(s.widths, s.widths)
        M = 0.5 * (M + M.T)

    def at(q: np.ndarray) -> np.ndarray:
        return _or_nan(lambda: _filled(matrix, q.copy(), data, out=np.zeros(M.shape))) * np.ones(M.shape)

    def contracted(q: np.ndarray) -> tuple[float, float]:
        G = M * at(q)
        return float(G.sum()), float(np.abs(G).sum())

    def traced(q: np.ndarray) -> np.ndarray:
        return _or_nan(
            lambda: _filled(hessian_contraction, q.copy(), data, M.copy(), out=np.zeros(model.dim))
        ) * np.ones(model.dim)

    def along_v(q: np.ndarray) -> tuple[float, float]:
        terms = v * s.gradient(q)
        return float(terms.sum()), float(np.abs(terms).sum())

    if not n_rows:
        _check_symmetric(s, of, at(s.q))
    if of == "hessian" and not n_rows:
        s.hold(Claim("hessian", "gradient", along_v, lambda q: at(q) @ v))
    if contraction is not None:
        s.hold(Claim(contraction, of, contracted, traced))


def _check_symmetric(s: _Subject, name: str, G: np.ndarray) -> None:
    scaled = G * np.outer(s.widths, s.widths)
    off = np.abs(scaled - scaled.T)
    if off.max(initial=0.0) > ASYMMETRY * np.abs(scaled).max(initial=0.0):
        i, j = np.unravel_index(int(np.argmax(off)), off.shape)
        raise MetricError(
            f"The {name} of model {s.model.name!r} must be symmetric; at q = {_short(s.q)} entry [{i}, {j}] is {G[i, j]:.10g} "
            f"and [{j}, {i}] is {G[j, i]:.10g}."
        )


def _check_change(s: _Subject) -> None:
    """Compare ``log_density_change`` with the difference of two log densities."""
    assert s.pointers is not None
    model, (data, _, _, _, change), here = s.model, s.pointers, s.log_density(s.q)
    for j in s.rng.permutation(model.discontinuous)[:CHANGES]:
        for sign in (-1.0, 1.0):
            moved = s.q.copy()
            moved[j] += sign * s.rng.uniform(0.5, 1.0) * max(1.0, abs(moved[j]) / 8)
            there = s.log_density(moved)
            found, truth = float(change(s.q.copy(), data, int(j), moved[j], here)), there - here
            blur = (2.0**-22 if rounded_to_single([here, there, found]) else 2.0**-40) * (abs(here) + abs(there))
            if np.isnan(truth) or found == truth or abs(found - truth) <= TOLERANCE * abs(truth) + blur:
                continue
            raise GradientError(
                f"log_density_change of model {model.name!r} must be the change of the log density; at q = {_short(s.q)}, with "
                f"{model.names[j]} changed to {moved[j]:.10g}, it returns {found:.10g} instead of {truth:.10g}. Correct it, or "
                "use preflight=False to skip this check."
            )


def _short(q: np.ndarray) -> str:
    return np.array2string(q, precision=6, threshold=8, separator=", ")

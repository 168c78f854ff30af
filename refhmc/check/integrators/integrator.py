"""``check.integrator``: properties of a step (q, p) -> (q', p') of Hamilton's equations, one row per property.

    points.py       points of the examination, and conditions for measuring anything
    geometry.py     reversible, inverse, symplectic, volume, composition: properties of the map for any H
    expansion.py    order, small step, elapsed time: compared with the true flow of H as eps goes to zero
    energy.py       energy, shadow energy: along the orbit
    invariants.py   properties that the author declares      solver.py   the equation solver of an implicit step
    cost.py         evaluations per step, by the author's counter

This module has the function, the claims, and the rows in their order, each a function of the
:class:`IntegratorExamination`, whose module defines the units.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refhmc.check import own
from refhmc.check.adapters import refhmc_step
from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Rows
from refhmc.check.integrators.cost import evaluations
from refhmc.check.integrators.energy import energy_error, shadow_energy
from refhmc.check.integrators.examination import IntegratorExamination
from refhmc.check.integrators.expansion import elapsed_time, order, small_step
from refhmc.check.integrators.flow import Energy
from refhmc.check.integrators.geometry import composition, inverse, reversible, symplectic, volume
from refhmc.check.integrators.invariants import conserved, equivariance
from refhmc.check.integrators.patterns import typical
from refhmc.check.integrators.points import answers, answers_in, deterministic, gradient, momentum_convention
from refhmc.check.integrators.solver import delta_scaling, solver_failure
from refhmc.check.report import CALL_FAILED, INEFFICIENT, Report
from refhmc.check.subject.foreign import DIMENSIONS, SECONDS_PER_CALL, Foreign, SubjectHung, quiet, watched
from refhmc.check.subject.step import Step

FAMILIES = ("symplectic", "reversible", "inverse", "volume", "energy", "order", "exact time", "evaluations")
ROWS: Rows = (
    ("answers", answers, CALL_FAILED),
    ("momentum convention", momentum_convention),
    ("deterministic", deterministic),
    ("gradient of H", gradient, INEFFICIENT),
    ("reversible", reversible),
    ("inverse", inverse),
    ("symplectic", symplectic),
    ("volume", volume),
    ("composition", composition, INEFFICIENT),
    ("order", order, INEFFICIENT),
    ("small step", small_step, INEFFICIENT),
    ("elapsed time", elapsed_time, INEFFICIENT),
    ("energy", energy_error, INEFFICIENT),
    ("shadow energy", shadow_energy, INEFFICIENT),
    ("invariants", conserved, INEFFICIENT),
    ("equivariance", equivariance, INEFFICIENT),
    ("delta scaling", delta_scaling),
    ("solver failure", solver_failure),
    ("evaluations", evaluations, INEFFICIENT),
)


def integrator(
    step: Any,
    H: Any = None,
    *,
    dim: int | None = None,
    eps: float = 0.1,
    claims: str = "symplectic reversible order=2",
    grad_q: Callable | None = None,
    grad_p: Callable | None = None,
    points: Sequence | None = None,
    tolerance: float | None = None,
    with_tolerance: Callable | None = None,
    invariants: dict[str, Callable] | None = None,
    symmetries: Sequence[tuple[Callable, Callable]] | None = None,
    counter: Callable[[], int] | None = None,
    seconds: float | None = 60.0,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check an integrator step of Hamilton's equations.

    One call makes n steps z' = S(z) of size eps in phase space, z = (q, p). With F(q, p) = (q, -p), the Jacobian J = dS/dz and
    Omega = [[0, 1], [-1, 0]], the claims are, as rows of the report::

        reversible        F S F S = 1; for a random step P(z -> z') = P(F z' -> F z)
        inverse           S(-eps) S(eps) = 1
        symplectic        J' Omega J = Omega
        volume            log |det J| = 0
        composition       n steps in one call are n calls
        order             |S - phi| = O(eps^(k+1)), phi the true flow of H
        small step        no terms eps, ..., eps^k in S - phi
        elapsed time      S moves at the speed of the flow of H
        energy            |H(S^n z) - H(z)| falls as eps^k, or is at rounding
        shadow energy     log(J)/eps tends to the generator of the flow as eps^k, for quadratic H
        invariants, equivariance, delta scaling, solver failure, evaluations

    The check finds missing or wrongly scaled kicks and drifts, wrong stage points, rounded coefficients, unconverged solvers
    and state kept between calls. It measures at a few points, so it cannot find faults in regions that no point reaches.
    It does not examine acceptance; for that use :func:`transition`. All rows are deterministic: a correct step passes with
    every seed. A defect that a solver's tolerance might explain is INCONCLUSIVE, not FAIL.

    Parameters
    ----------
    step : callable, refhmc integrator or tuple
        ``step(q, p, eps, n) -> (q, p)`` makes `n` steps, ``step(q, p, eps) -> (q, p)`` makes one; `q` and `p` have shape
        (dim,). A random step takes :class:`Draws` as first argument `draws`, or a NumPy generator as `rng`. Other objects: an
        integrator of refhmc (with a :class:`refhmc.Hamiltonian` as `H`), or a pair (Hamiltonian, integrator).
    H : callable or object, optional
        Energy ``H(q, p)``, an object with a method ``energy``, or a :class:`refhmc.Hamiltonian`. Rows that need H are NOT RUN
        without it.
    dim : int, optional
        Dimension of q. By default it is taken from `H` or `points`, or found by trying.
    eps : float, default 0.1
        Step size.
    claims : str, default "symplectic reversible order=2"
        Words out of "symplectic", "reversible", "volume", "order=k" (a higher order passes too), "energy" (conserved to
        rounding), "exact time", "inverse" (a step of -eps undoes one of eps with the same random numbers, as trees need) and
        "evaluations=k" (at most k per step of a running trajectory). Properties that are not claimed cannot fail.
    grad_q : callable, optional
        ``grad_q(q, p)`` returns dH/dq; computed from `H` by default.
    grad_p : callable, optional
        ``grad_p(q, p)`` returns dH/dp; computed from `H` by default.
    points : sequence of (q, p), optional
        Points of the examination; by default normal points, or draws from a model with exact draws.
    tolerance : float, optional
        Tolerance of the step's equation solver; 0 if it solves nothing.
    with_tolerance : callable, optional
        ``with_tolerance(delta)`` returns the step with another tolerance.
    invariants : dict of str to callable, optional
        Functions of (q, p) that the step conserves, by name.
    symmetries : sequence of (callable, callable), optional
        Pairs of maps (of q, of p) that commute with the step.
    counter : callable, optional
        ``counter()`` returns the number of evaluations so far, in any unit. A symmetric step of a split into M parts takes
        2M - 2 partial gradients if neighbouring stages are merged.
    seconds : float or None, default 60.0
        Budget in processor seconds; the check also ends after five times this wall-clock time. Each row may use half of the
        remaining time; unfinished rows are INCONCLUSIVE or NOT RUN. None means no limit and the same work on any machine.
    seed : int, default 20261121
        Seed of the points.
    like : callable, module or array, optional
        Array type of the arguments of `step`: a conversion function, a module with ``asarray``, or an example array. NumPy
        float64 by default.
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
    ValueError
        If a claim, `eps`, `dim` or `seconds` is invalid.
    TypeError
        If the step cannot be called.

    Examples
    --------
    >>> def leapfrog(q, p, eps, n):  # H = (q^2 + p^2) / 2
    ...     for _ in range(n):
    ...         p = p - eps / 2 * q
    ...         q = q + eps * p
    ...         p = p - eps / 2 * q
    ...     return q, p
    >>> report = refhmc.check.integrator(leapfrog, lambda q, p: (q @ q + p @ p) / 2, dim=2, tolerance=0)
    >>> report.status, report.row("symplectic").status, report.row("order").status
    ('PASS', 'PASS', 'PASS')
    """
    require_counts(dim=dim)
    claimed = read_claims(claims)
    if not (math.isfinite(eps) and eps > 0):
        raise ValueError(f"eps must be finite and positive; got {eps!r}.")
    require_times(seconds=seconds)
    step, H, tolerance, with_tolerance, label = _of_refhmc(step, H, tolerance, with_tolerance)
    name = name or label
    given = [np.concatenate([np.atleast_1d(np.asarray(x, dtype=float)) for x in point]) for point in points or ()]
    found_dim = False
    dim_given = dim is not None
    if dim is None:
        dim = getattr(getattr(H, "model", None), "dim", None) or (len(given[0]) // 2 if given else None)
    if dim is None:
        with quiet():
            known = _dimension(step, H, eps, like, seconds_per_call)
        dim = known or DIMENSIONS[0]
        found_dim = known is not None
    energy = None if H is None else Energy(H, dim, grad_q=grad_q, grad_p=grad_p, like=like)
    test = IntegratorExamination(
        step=Step(step, dim, name, like),
        energy=energy,
        eps=float(eps),
        claims=claimed,
        given=given,
        hamiltonian=H,
        delta=tolerance,
        tighter=None if with_tolerance is None else lambda delta: Step(with_tolerance(delta), dim, name, like),
        invariants={k: Foreign(f, k, like) for k, f in (invariants or {}).items()},
        symmetries=list(symmetries or ()),
        counter=None if counter is None else Foreign(counter, "counter", like, in_dimensions=False),
        seed=seed,
        like=like,
        dim_given=dim_given,
        fixed_work=seconds is None,
    )
    if found_dim:
        test.notes.append(f"dim was not given; dim = {dim} was found by trying")
    test.settings = {"dim": dim, "eps": float(eps), "claims": claims}
    return test.report(
        "integrator", ROWS, diagnose=typical, seconds_per_call=seconds_per_call, seconds=seconds, share=0.5
    )


def read_claims(claims: str) -> dict[str, float]:
    """Return "symplectic order=2" as {"symplectic": 1, "volume": 1, "order": 2}."""
    text = re.sub(r"exact[ _-]time", "exact-time", claims)
    found: dict[str, float] = {}
    for word in text.replace(",", " ").split():
        key, _, value = word.partition("=")
        key = "exact time" if key == "exact-time" else key
        if key not in FAMILIES or (key in ("order", "evaluations")) != bool(value):
            known = ", ".join(f"{name}=k" if name in ("order", "evaluations") else name for name in FAMILIES)
            raise ValueError(f"claims must consist of {known}; got {word!r}.")
        found[key] = float(value) if value else 1.0
        if key == "order" and not 1 <= found[key] <= 12:
            raise ValueError(f"order in claims must be from 1 to 12; got {value}.")
    if "symplectic" in found:
        found["volume"] = 1.0
    return found


def _of_refhmc(step: Any, H: Any, tolerance: Any, with_tolerance: Any) -> tuple:
    """Return an integrator of refhmc as a plain step, with its Hamiltonian, its solver's tolerance and its name."""
    if isinstance(step, tuple) and len(step) == 2:
        H, step = (step[0], step[1]) if hasattr(step[0], "energy") else (step[1], step[0])
    if not own.is_integrator(step):
        return step, H, tolerance, with_tolerance, None
    if not hasattr(H, "model"):
        raise TypeError(f"H must be a refhmc.Hamiltonian for an integrator of refhmc; got {type(H).__name__}.")
    own.compile_step(H, step)
    name = type(step).__name__
    base = getattr(step, "base", step)
    delta = getattr(base, "tolerance", 0.0)
    if tolerance is None:
        tolerance = delta
    if with_tolerance is None and delta > 0:

        def with_tolerance(delta: float) -> Callable:
            tight = dataclasses.replace(base, tolerance=delta)
            return refhmc_step(H, tight if base is step else dataclasses.replace(step, base=tight))

    return refhmc_step(H, step), H, tolerance, with_tolerance, name


def _dimension(step: Any, H: Any, eps: float, like: Any, seconds: float | None) -> int | None:
    """Return the first dimension in which step and H give finite answers of the right shape, or None."""
    for d in DIMENSIONS:
        try:
            if watched(functools.partial(answers_in, d, step, H, eps, like), seconds):
                return d
        except SubjectHung:
            break
    return None

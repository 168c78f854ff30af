"""``check.integrator``: what a step (q, p) -> (q', p') of Hamilton's equations must be, one row a property.

    points.py       where it is examined; what must hold before anything is measured
    geometry.py     reversible, inverse, symplectic, volume, composition: of the map, whatever its H
    expansion.py    order, small step, elapsed time: beside the true flow of H as eps goes to zero
    energy.py       energy, shadow energy: along the orbit
    invariants.py   what its author declares      solver.py   the equation solver of an implicit step
    cost.py         evaluations a step, by its author's counter

Here: the call, what its author claims, and the rows in their order, each a function of the :class:`IntegratorExamination`,
whose file says in which units all is measured.
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
from refhmc.check.report import INEFFICIENT, MISCONDUCT, Report
from refhmc.check.subject.foreign import DIMENSIONS, SECONDS_PER_CALL, Foreign, SubjectHung, quiet, watched
from refhmc.check.subject.step import Step

FAMILIES = ("symplectic", "reversible", "inverse", "volume", "energy", "order", "exact time", "evaluations")
ROWS: Rows = (
    ("answers", answers, MISCONDUCT),
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
    """Examine ``step``: ``step(q, p, eps, n)``, ``step(q, p, eps)``, either with ``draws`` first; or one of refhmc's
    integrators (with ``H`` a refhmc Hamiltonian), or a pair (Hamiltonian, integrator).

    ``H``: a function of (q, p), an object with ``energy``, or a refhmc Hamiltonian; what needs it is NOT RUN without.
    ``grad_q``, ``grad_p``: its gradients, otherwise found from H. ``claims``: of "symplectic", "reversible", "volume",
    "order=k" (higher passes too), "energy" (conserved to rounding), "exact time", "inverse" (a step of -eps undoes one of eps,
    on the same draws, as a tree's leaves backward in time need), "evaluations=k" (at most k a step, once it is going); what is
    not claimed is never failed.
    ``points``: pairs (q, p) to examine it at, otherwise normal ones. ``tolerance``: of its equation solver, 0 if it has none;
    ``with_tolerance(delta)``: the step with another. ``invariants``: functions of (q, p) that it conserves, by name.
    ``symmetries``: pairs of maps (of q, of p) that it commutes with. ``counter()``: the evaluations made so far, whatever its
    author counts (partial gradients of a split: 2M - 2 a symmetric step, where neighbours are merged). ``seconds`` is
    the budget in processor seconds of this process and its children; five times as many by the clock end it too. Each row may
    take a half of what those before have left. What is not done then is INCONCLUSIVE or NOT RUN. None means no limit, and the
    same work on any machine.

    Raises ValueError for a claim, eps or seconds that makes no sense, TypeError for a subject that cannot be called.
    """
    require_counts(dim=dim)
    claimed = read_claims(claims)
    if not (math.isfinite(eps) and eps > 0):
        raise ValueError(f"eps must be finite and positive, got {eps!r}")
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
        test.notes.append(f"dim was not given: {dim} found by trying")
    test.settings = {"dim": dim, "eps": float(eps), "claims": claims}
    return test.report(
        "integrator",
        ROWS,
        diagnose=typical,
        seconds_per_call=seconds_per_call,
        seconds=seconds,
        share=0.5,
    )


def read_claims(claims: str) -> dict[str, float]:
    """ "symplectic order=2" as {"symplectic": 1, "volume": 1, "order": 2}."""
    text = re.sub(r"exact[ _-]time", "exact-time", claims)
    found: dict[str, float] = {}
    for word in text.replace(",", " ").split():
        key, _, value = word.partition("=")
        key = "exact time" if key == "exact-time" else key
        if key not in FAMILIES or (key in ("order", "evaluations")) != bool(value):
            known = ", ".join(f"{name}=k" if name in ("order", "evaluations") else name for name in FAMILIES)
            raise ValueError(f"claims: {word!r} is none of {known}")
        found[key] = float(value) if value else 1.0
        if key == "order" and not 1 <= found[key] <= 12:
            raise ValueError(f"claims: an order of {value} cannot be examined")
    if "symplectic" in found:
        found["volume"] = 1.0
    return found


def _of_refhmc(step: Any, H: Any, tolerance: Any, with_tolerance: Any) -> tuple:
    """The subject as a plain step where it is one of refhmc's integrators; its solver's tolerance; its name."""
    if isinstance(step, tuple) and len(step) == 2:
        H, step = (step[0], step[1]) if hasattr(step[0], "energy") else (step[1], step[0])
    if not own.is_integrator(step):
        return step, H, tolerance, with_tolerance, None
    if not hasattr(H, "model"):
        raise TypeError("one of refhmc's integrators needs H, a refhmc.Hamiltonian")
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
    """The first dimension in which the step, and H, give finite answers of the right shape; None if none does."""
    for d in DIMENSIONS:
        try:
            if watched(functools.partial(answers_in, d, step, H, eps, like), seconds):
                return d
        except SubjectHung:
            break
    return None

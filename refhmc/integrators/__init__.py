"""Integrators: one step (q, p) -> (q', p') of Hamilton's equations, and what each promises.

``order``: of the method. ``symplectic``, ``reversible``: of the map (q, p) -> (q', p'), for the implicit ones to the solver's
tolerance. ``exact``: whether a chain made with it, and accepted on its energy error, keeps the target. ``cost``:
evaluations of (dH/dp, dH/dq) a step, None where the solver decides; for the leapfrog these are gradients.

An implicit method's ``tolerance`` is the largest change of a coordinate in the last iteration (in absolute terms, as in
the papers). A solve that has not converged after ``max_iterations`` is never used: the transition is rejected with the
outcome ``solver_failed``. ``solver``: "fixed point", or "anderson" (:mod:`refhmc.integrators.solver`).
Where q is of size s, p is of size 1/s, so that a tolerance that is loose for one of them is strict for the other. The midpoint
rule and the projection solve for both at once. The generalised leapfrog solves for q alone: at s = 1e-4 most of its steps do
not return, and are rejected; scale the coordinates to order one for it.

At steps near the local time scale a solve may converge from z to z', and from z' not, or to another point than z. A chain
that uses such steps is biased. ``reversibility_check=True``, the default, takes every step back and rejects, with the
outcome ``not_reversible``, a step that does not return to within 100 tolerances; it doubles the cost. Anderson's acceleration
is then given at most 25 iterations: in those that took more, whether a solve converged depended on the last digits of its
start. Near the edge of solvability, of 20,923 steps that were used, 20,920 were used from their end too
(``tests/test_reversibility.py``): such rare steps aside, a chain is exact to the tolerance. With
``reversibility_check=False``, as in the papers, ``exact`` is False and the result says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from refhmc.core.types import (
    CHECK_REVERSAL,
    FIRST_SUBSTEP,
    MAX_ITERATIONS,
    MEMORY,
    N_SUBSTEPS,
    OMEGA,
    TOLERANCE,
)
from refhmc.metrics import Tridiagonal

LEAST_TOLERANCE = 1e-14  # a coordinate of size 1 has its last bits at 2e-16; the sums that make it lose some
REVERSAL_TOLERANCES = 100
ANDERSON_MEMORY = 4
ANDERSON_ITERATIONS = 25


@dataclass(frozen=True)
class Leapfrog:
    """The leapfrog on a Euclidean metric, :mod:`refhmc.integrators.leapfrog`. ``cost``: gradients a step."""

    order = 2
    symplectic = True
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1

    def pointer(self, metric):
        """The compiled step for that metric."""
        from refhmc.integrators.leapfrog import leapfrog_dense, leapfrog_diagonal

        if isinstance(metric, Tridiagonal):
            from refhmc.metrics.tridiagonal import leapfrog

            return leapfrog
        return leapfrog_dense if metric.is_dense else leapfrog_diagonal

    def options(self) -> dict[int, float]:
        return {N_SUBSTEPS: 1, FIRST_SUBSTEP: 1.0}


@dataclass(frozen=True)
class Discontinuous:
    """DHMC's own, not to be chosen for another kernel: :mod:`refhmc.integrators.discontinuous`. ``reversible``: with the order
    of the coordinates reversed. It keeps volume; it is not symplectic, each coordinate being moved with the others held."""

    order = 2
    symplectic = False
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1

    def pointer(self, metric):
        from refhmc.integrators.discontinuous import discontinuous

        return discontinuous

    def options(self) -> dict[int, float]:
        return {N_SUBSTEPS: 1, FIRST_SUBSTEP: 1.0}


class _Implicit:
    """What the implicit methods have in common: the solver's options."""

    order = 2
    symplectic = True
    reversible = True
    implicit = True
    cost = None
    tolerance: float
    max_iterations: int
    solver: str
    reversibility_check: bool

    def __post_init__(self):
        tolerance, most = self.tolerance, self.max_iterations
        if not (isinstance(tolerance, int | float) and LEAST_TOLERANCE <= tolerance < math.inf):
            raise ValueError(
                f"tolerance must be at least {LEAST_TOLERANCE:g}, which float64 can still reach, and finite; "
                f"got {tolerance!r}"
            )
        if isinstance(most, bool) or int(most) != most or most < 1:
            raise ValueError(f"max_iterations must be a whole number of at least 1, got {most!r}")
        if self.solver not in ("fixed point", "anderson"):
            raise ValueError(f"solver must be 'fixed point' or 'anderson', got {self.solver!r}")
        variants = getattr(self, "variants", None)
        if variants and self.variant not in variants:  # type: ignore[attr-defined]
            raise ValueError(f"variant must be one of {variants}, got {self.variant!r}")  # type: ignore[attr-defined]

    @property
    def exact(self) -> bool:
        return self.reversibility_check

    @property
    def approximation(self) -> str:
        """What makes a chain approximate, and the remedy; empty if nothing does."""
        if self.exact:
            return ""
        return (
            f"{type(self).__name__}(reversibility_check=False) uses steps without trying the way back. Where a solve converges "
            "from (q, p) to (q', p') and not back, accepting on the energy error does not keep the target. "
            "reversibility_check=True, the default, rejects such steps."
        )

    def options(self) -> dict[int, float]:
        anderson = self.solver == "anderson"
        limited = anderson and self.reversibility_check
        return {
            TOLERANCE: self.tolerance,
            MAX_ITERATIONS: min(self.max_iterations, ANDERSON_ITERATIONS) if limited else self.max_iterations,
            MEMORY: ANDERSON_MEMORY if anderson else 0,
            CHECK_REVERSAL: REVERSAL_TOLERANCES * self.tolerance if self.reversibility_check else 0.0,
            N_SUBSTEPS: 1,
            FIRST_SUBSTEP: 1.0,
        }


@dataclass(frozen=True)
class GeneralizedLeapfrog(_Implicit):
    """The generalised leapfrog, naive (G.L.F.(a)) or cached (G.L.F.(b)): :mod:`refhmc.integrators.generalized_leapfrog`."""

    variant: str = "cached"
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "fixed point"
    reversibility_check: bool = True
    variants = ("cached", "naive")

    def pointer(self, metric):
        from refhmc.integrators import generalized_leapfrog as text

        return text.generalized_leapfrog_cached if self.variant == "cached" else text.generalized_leapfrog_naive


@dataclass(frozen=True)
class ImplicitMidpoint(_Implicit):
    """The implicit midpoint rule, solved for the endpoint (I.M.(a)) or the midpoint (I.M.(b)):
    :mod:`refhmc.integrators.implicit_midpoint`."""

    variant: str = "endpoint"
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "fixed point"
    reversibility_check: bool = True
    variants = ("endpoint", "midpoint")

    def pointer(self, metric):
        from refhmc.integrators import implicit_midpoint as text

        return text.implicit_midpoint_endpoint if self.variant == "endpoint" else text.implicit_midpoint_midpoint


@dataclass(frozen=True)
class ExplicitTao:
    """Tao's explicit integrator on two copies of phase space, bound together by ``omega``; the copies are dropped at the
    end of a trajectory, so that a chain is approximate: :mod:`refhmc.integrators.explicit_tao`."""

    omega: float
    order = 2
    symplectic = False
    reversible = False
    exact = False
    implicit = False
    extended = True
    cost = 4
    approximation = (
        "the map that ExplicitTao makes of (q, p) neither keeps volume nor reverses, so accepting on its energy error does "
        "not keep the target, however many draws are taken. ProjectedTao is the exact form; "
        "refhmc.diagnostics.volume_violation measures the error."
    )

    def __post_init__(self):
        _check_omega(self.omega)

    def pointer(self, metric):
        from refhmc.integrators.explicit_tao import explicit_tao

        return explicit_tao

    def options(self) -> dict[int, float]:
        return {OMEGA: self.omega, N_SUBSTEPS: 1, FIRST_SUBSTEP: 1.0}


@dataclass(frozen=True)
class ProjectedTao(_Implicit):
    """Tao's integrator projected back onto (q, p), exact: :mod:`refhmc.integrators.projected_tao`.

    The projection binds the copies, so that omega = 0 is as good as any. Its iteration converges at smaller steps than the
    other methods'; Anderson's acceleration, the default here, helps. omega * step_size = pi/2 is singular.
    """

    omega: float
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "anderson"
    reversibility_check: bool = True

    def __post_init__(self):
        _check_omega(self.omega)
        super().__post_init__()

    def pointer(self, metric):
        from refhmc.integrators.projected_tao import projected_tao

        return projected_tao

    def options(self) -> dict[int, float]:
        return {**super().options(), OMEGA: self.omega}


class _Composition:
    """Several steps of a symmetric method of order 2, of sizes that make one of order 4."""

    order = 4
    base: Any

    def __post_init__(self):
        if isinstance(self.base, _Composition) or not isinstance(self.base, INTEGRATORS):
            raise TypeError(f"the base of a composition must be an integrator of order 2, got {self.base!r}")

    def __getattr__(self, name: str):
        if name.startswith("_") or name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)

    @property
    def cost(self):
        return None if self.base.cost is None else len(self.parts) * self.base.cost

    def options(self) -> dict[int, float]:
        parts = {FIRST_SUBSTEP + k: part for k, part in enumerate(self.parts)}
        return {**self.base.options(), N_SUBSTEPS: len(self.parts), **parts}


@dataclass(frozen=True)
class Yoshida(_Composition):
    """Order 4 from three steps, (w, 1 - 2w, w) with w = 1/(2 - 2^(1/3)); Yoshida (1990). The middle one goes back."""

    base: Any

    @property
    def parts(self) -> tuple[float, ...]:
        w = 1 / (2 - 2 ** (1 / 3))
        return (w, 1 - 2 * w, w)


@dataclass(frozen=True)
class Suzuki(_Composition):
    """Order 4 from five steps, (u, u, 1 - 4u, u, u) with u = 1/(4 - 4^(1/3)); Suzuki (1990). Smaller steps, smaller error."""

    base: Any

    @property
    def parts(self) -> tuple[float, ...]:
        u = 1 / (4 - 4 ** (1 / 3))
        return (u, u, 1 - 4 * u, u, u)


def _check_omega(omega) -> None:
    if not (isinstance(omega, int | float) and 0 <= omega < math.inf):
        raise ValueError(f"omega must be finite and not negative, got {omega!r}")


INTEGRATORS = (Leapfrog, GeneralizedLeapfrog, ImplicitMidpoint, ExplicitTao, ProjectedTao, Yoshida, Suzuki)

__all__ = [integrator.__name__ for integrator in INTEGRATORS]

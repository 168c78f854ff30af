"""What every integrator states of itself, and the options that the implicit ones have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from refhmc.core.arguments import is_number, one_of, whole_number
from refhmc.core.point import POINT_ROWS
from refhmc.core.records import Layout
from refhmc.numerics import batched
from refhmc.numerics.batched_anderson import accelerated

LEAST_TOLERANCE = 1e-14  # a coordinate of size 1 has its last bits at 2e-16; the sums that make it lose some
REVERSAL_TOLERANCES = 100
ANDERSON_MEMORY = 4
ANDERSON_ITERATIONS = 25
# The rows of an integrator begin with those of the check (:mod:`refhmc.integrators.step`): where a step began, its end.
CHECK = Layout(f"start[2] end[{POINT_ROWS}]")


class Integrator(Protocol):
    """What refhmc asks of an integrator, its own or somebody else's (``docs/how_to_add.md``).

    The claims, as in :mod:`refhmc.integrators`. ``pointer(metric)``: the compiled step for a metric, of the signature
    ``types.STEP``. ``layout``: rows of its own, which begin with :data:`CHECK` if it is to be checked. ``options``: entries
    of the record of that name. It may say ``constant_metric = True``, that it asks for M^-1 alone, ``fixed_metric``, that this
    must not be adapted, ``point_rows``, and ``rows_for(model, metric)``, its rows as they are at first.
    """

    order: int
    symplectic: bool
    reversible: bool
    exact: bool
    approximation: str
    implicit: bool
    cost: int | None
    layout: Layout

    def pointer(self, metric: Any) -> Any: ...
    def options(self) -> dict[str, float]: ...


class Implicit:
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
    layout: Layout

    def __post_init__(self) -> None:
        tolerance = self.tolerance
        if not (is_number(tolerance) and LEAST_TOLERANCE <= tolerance < math.inf):
            raise ValueError(
                f"tolerance must be at least {LEAST_TOLERANCE:g}, which float64 can still reach, and finite; "
                f"got {tolerance!r}"
            )
        whole_number("max_iterations", self.max_iterations)
        one_of("solver", self.solver, ("fixed point", "anderson"))
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

    def options(self) -> dict[str, float]:
        anderson = self.solver == "anderson"
        limited = anderson and self.reversibility_check
        return {
            "tolerance": self.tolerance,
            "max_iterations": min(self.max_iterations, ANDERSON_ITERATIONS) if limited else self.max_iterations,
            "anderson_memory": ANDERSON_MEMORY if anderson else 0,
            "reversal_tolerance": REVERSAL_TOLERANCES * self.tolerance if self.reversibility_check else 0.0,
        }

    @property
    def fixed_point(self) -> Callable:
        """The solver of the array implementation, with the same options as the compiled one."""
        options = self.options()
        memory = int(options["anderson_memory"])
        return partial(
            batched.fixed_point,
            tolerance=self.tolerance,
            max_iterations=int(options["max_iterations"]),
            accelerate=partial(accelerated, memory=memory) if memory else None,
        )

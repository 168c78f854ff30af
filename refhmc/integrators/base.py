"""The properties that every integrator declares, and the options that the implicit ones share."""

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

LEAST_TOLERANCE = 1e-14  # a coordinate of size 1 has its last bit at 2e-16, and sums lose some bits
REVERSAL_TOLERANCES = 100
ANDERSON_MEMORY = 4
ANDERSON_ITERATIONS = 25
# The rows of an integrator begin with those of the check (:mod:`refhmc.integrators.step`): start and end of a step.
CHECK = Layout(f"start[2] end[{POINT_ROWS}]")


class Integrator(Protocol):
    """Protocol of an integrator, refhmc's or a user's (``docs/how_to_add.md``).

    The claims are those of :mod:`refhmc.integrators`. ``pointer(metric)`` returns the compiled step for a metric, of the
    signature ``types.STEP``. ``layout`` has the integrator's own rows, which begin with :data:`CHECK` if its steps are to
    be checked. ``options`` returns entries of the record of that name. Optional attributes are ``constant_metric = True``
    (only M^-1 is needed), ``fixed_metric`` (the metric must not be adapted), ``point_rows``, and ``rows_for(model,
    metric)``, which returns the initial rows.
    """

    order: int
    symplectic: bool
    reversible: bool
    implicit: bool
    layout: Layout

    @property
    def exact(self) -> bool: ...
    @property
    def approximation(self) -> str: ...
    @property
    def cost(self) -> int | None: ...
    def pointer(self, metric: Any) -> Callable: ...
    def options(self) -> dict[str, float]: ...


class Implicit:
    """Base class of the implicit methods, with the options of the solver."""

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
                f"tolerance must be at least {LEAST_TOLERANCE:g}, the least that float64 can reach, and finite; "
                f"got {tolerance!r}."
            )
        whole_number("max_iterations", self.max_iterations)
        one_of("solver", self.solver, ("fixed point", "anderson"))
        variants = getattr(self, "variants", None)
        if variants and self.variant not in variants:  # type: ignore[attr-defined]
            raise ValueError(f"variant must be one of {variants}; got {self.variant!r}.")  # type: ignore[attr-defined]

    @property
    def exact(self) -> bool:
        """Whether a chain keeps the target: True with the reversibility check."""
        return self.reversibility_check

    @property
    def approximation(self) -> str:
        """Why a chain is approximate, and the remedy; empty if it is exact."""
        if self.exact:
            return ""
        return (
            f"{type(self).__name__}(reversibility_check=False) uses steps without a reversibility check. If a solve converges "
            "from (q, p) to (q', p') but not back, the draws do not keep the target distribution. Use "
            "reversibility_check=True, the default, which rejects such steps."
        )

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
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
        """Solver of the array implementation, with the same options as the compiled one."""
        options = self.options()
        memory = int(options["anderson_memory"])
        return partial(
            batched.fixed_point,
            tolerance=self.tolerance,
            max_iterations=int(options["max_iterations"]),
            accelerate=partial(accelerated, memory=memory) if memory else None,
        )

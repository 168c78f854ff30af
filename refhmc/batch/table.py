"""State of a kernel for each chain: arrays by name, with one entry per chain, written at the rows of the chains concerned."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from refhmc.batch.chains import copied
from refhmc.batch.steps import RECORD, Point, StepMaker
from refhmc.batch.streams import Rows
from refhmc.core import sample_stats as S
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class Table:
    """Arrays as attributes.

    ``point`` is a :class:`refhmc.batch.steps.Point`. The results of the solves of a transition have the names of
    :class:`refhmc.batch.steps.SolverRecord`.
    """

    point: Point

    if TYPE_CHECKING:  # the other arrays, by their names

        def __getattr__(self, name: str) -> Array: ...

    def put(self, rows: Rows, **values: Array) -> None:
        """Write values to the rows; values of all chains replace the arrays."""
        for name, value in values.items():
            if isinstance(rows, slice):
                setattr(self, name, copied(value))
            else:
                getattr(self, name)[rows] = value

    def put_point(self, rows: Rows, point: Point, name: str = "point") -> None:
        """Write a point to the rows of the point of that name."""
        if isinstance(rows, slice):
            setattr(self, name, of_each(copied, point))
            return
        for mine, values in zip(flat(getattr(self, name)), flat(point), strict=True):
            mine[rows] = values

    def point_of(self, rows: Rows, name: str = "point") -> Point:
        """Return the point of that name at the rows."""
        point = getattr(self, name)
        return point if isinstance(rows, slice) else pick_point(point, rows)

    def start_record(self, rows: Rows, mover: StepMaker, point: Point) -> None:
        """Start the record of a transition with that of the momentum, and the metric's condition number."""
        riemannian = getattr(mover.H.metric, "position_dependent", False)
        self.put(rows, condition=mover.H.condition(point.z[0]) if riemannian else point.energy * 0 + 1)
        self.put(rows, **{name: getattr(mover.record, name) for name in RECORD})

    def add_record(self, rows: Rows, mover: StepMaker) -> None:
        """Add the record of a step, if the integrator solves equations."""
        if not mover.solves:
            return
        record = mover.record
        xp = batched.namespace(record.iterations)
        flags = ("failed", "not_reversed", "indefinite")
        together = {"iterations": xp.add, **dict.fromkeys(flags, xp.logical_or)}
        for name in RECORD:
            join = together.get(name, xp.maximum)
            self.put(rows, **{name: join(getattr(self, name)[rows], getattr(record, name))})

    def solver_failed(self, rows: Rows) -> Array:
        """Return whether a solve failed or a step was not reversed."""
        return self.failed[rows] | self.not_reversed[rows]

    def reason(self, rows: Rows) -> Array:
        """Return the outcome of a step without an energy."""
        xp = batched.namespace(self.point.energy)
        failed = xp.where(self.solver_failed(rows), S.SOLVER_FAILED, S.NAN)
        failed = xp.where(self.not_reversed[rows], S.NOT_REVERSIBLE, failed)
        return xp.where(self.indefinite[rows], S.DIVERGED, failed)

    def record_statistics(self, rows: Rows) -> dict[str, Array]:
        """Return the statistics of the records, by the names of :mod:`refhmc.core.sample_stats`."""
        return {
            "metric_cond": self.condition[rows],
            "solver_iterations": self.iterations[rows],
            "solver_residual": self.residual[rows],
            "solver_failed": self.solver_failed(rows),
            "reversibility_error": self.reversal_error[rows],
        }


def flat(point: Point) -> tuple:
    """Return the arrays of a point."""
    return *point.z, *point.part, *point[1:-1]


def of_each(f: Callable, *points: Point) -> Point:
    """Apply f to the points' first arrays, to their second ones, and so on."""
    values = [f(*arrays) for arrays in zip(*map(flat, points), strict=True)]
    n, m = len(points[0].z), len(points[0].z) + len(points[0].part)
    gradient, velocity, log_density, energy = values[m:]
    return Point(tuple(values[:n]), gradient, velocity, log_density, energy, tuple(values[n:m]))


def pick_point(point: Point, rows: Rows) -> Point:
    """Return the point of some rows."""
    return of_each(lambda x: x[rows], point)


def where_point(mask: Array, a: Point, b: Point) -> Point:
    """Return ``a`` at the mask, and ``b`` elsewhere."""
    xp = batched.namespace(mask)
    return of_each(lambda x, y: xp.where(mask[:, None] if x.ndim == 2 else mask, x, y), a, b)

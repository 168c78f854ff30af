"""What a kernel knows of each chain on its way: arrays by name, an entry for each, written at the rows of those concerned."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from refhmc.batch.chains import copied
from refhmc.batch.steps import RECORD, Point
from refhmc.core import sample_stats as S
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class Table:
    """The arrays are attributes; ``point`` is a :class:`refhmc.batch.steps.Point`, and what the solves of a transition came to
    has the names of :class:`refhmc.batch.steps.SolverRecord`."""

    point: Point

    if TYPE_CHECKING:  # the other arrays, by their names

        def __getattr__(self, name: str) -> Array: ...

    def put(self, rows: Any, **values: Any) -> None:
        """Into the rows; what is of all chains takes the place of what was."""
        for name, value in values.items():
            if isinstance(rows, slice):
                setattr(self, name, copied(value))
            else:
                getattr(self, name)[rows] = value

    def put_point(self, rows: Any, point: Point, name: str = "point") -> None:
        """Into the rows of the point of that name."""
        if isinstance(rows, slice):
            setattr(self, name, of_each(copied, point))
            return
        for mine, values in zip(flat(getattr(self, name)), flat(point), strict=True):
            mine[rows] = values

    def point_of(self, rows: Any, name: str = "point") -> Point:
        point = getattr(self, name)
        return point if isinstance(rows, slice) else pick_point(point, rows)

    def start_record(self, rows: Any, mover: Any, point: Point) -> None:
        """A transition begins with what the record of the momentum has; and the metric's condition number there."""
        riemannian = getattr(mover.H.metric, "position_dependent", False)
        self.put(rows, condition=mover.H.condition(point.z[0]) if riemannian else point.energy * 0 + 1)
        self.put(rows, **{name: getattr(mover.record, name) for name in RECORD})

    def add_record(self, rows: Any, mover: Any) -> None:
        """What the record of a step has, too, where the integrator solves anything."""
        if not mover.solves:
            return
        record = mover.record
        xp = batched.namespace(record.iterations)
        flags = ("failed", "not_reversed", "indefinite")
        together = {"iterations": xp.add, **dict.fromkeys(flags, xp.logical_or)}
        for name in RECORD:
            join = together.get(name, xp.maximum)
            self.put(rows, **{name: join(getattr(self, name)[rows], getattr(record, name))})

    def solver_failed(self, rows: Any) -> Array:
        return self.failed[rows] | self.not_reversed[rows]

    def reason(self, rows: Any) -> Array:
        """The outcome of a step without an energy"""
        xp = batched.namespace(self.point.energy)
        failed = xp.where(self.solver_failed(rows), S.SOLVER_FAILED, S.NAN)
        failed = xp.where(self.not_reversed[rows], S.NOT_REVERSIBLE, failed)
        return xp.where(self.indefinite[rows], S.DIVERGED, failed)

    def record_statistics(self, rows: Any) -> dict[str, Array]:
        """By the names of :mod:`refhmc.core.sample_stats`."""
        return {
            "metric_cond": self.condition[rows],
            "solver_iterations": self.iterations[rows],
            "solver_residual": self.residual[rows],
            "solver_failed": self.solver_failed(rows),
            "reversibility_error": self.reversal_error[rows],
        }


def flat(point: Point) -> tuple:
    return *point.z, *point.part, *point[1:-1]


def of_each(f: Callable, *points: Point) -> Point:
    """f of the points' first arrays, of their second ones, ..."""
    values = [f(*arrays) for arrays in zip(*map(flat, points), strict=True)]
    n, m = len(points[0].z), len(points[0].z) + len(points[0].part)
    gradient, velocity, log_density, energy = values[m:]
    return Point(tuple(values[:n]), gradient, velocity, log_density, energy, tuple(values[n:m]))


def pick_point(point: Point, rows: Any) -> Point:
    return of_each(lambda x: x[rows], point)


def where_point(mask: Array, a: Point, b: Point) -> Point:
    """``a`` where the mask says, else ``b``"""
    xp = batched.namespace(mask)
    return of_each(lambda x, y: xp.where(mask[:, None] if x.ndim == 2 else mask, x, y), a, b)

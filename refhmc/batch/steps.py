"""A step of an integrator for many chains, and the values at its end; for an implicit integrator with the reversibility check.

A step of several parts ends at the first part whose end has no energy, as :func:`refhmc.integrators.step.integrator_step`.
Later solves do not count for this chain.

The check is that of :func:`refhmc.integrators.step.checked_step`. A step z -> z' counts if the step of -eps from z' returns
to z to within 100 tolerances of the solver. If it misses z by more than one tolerance, or took a different number of
iterations, a third step from there must come to z' again. The reverse step is followed to its end here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from refhmc.batch.streams import Rows
from refhmc.integrators.base import ArrayIntegrator
from refhmc.metrics.base import HamiltonianOnArrays
from refhmc.numerics import batched
from refhmc.numerics.batched import LAST_BITS, Array
from refhmc.numerics.fixed_point import ALIKE


class Point(NamedTuple):
    """Points of n chains.

    ``z`` = (q, p), with the copies if the integrator moves two, (n, d) each; dL/dq and v = dH/dp (n, d); L and H (n,).
    ``part`` has L_m (n,) and dL_m/dq (n, d) of the part with which a split's step ends and starts.
    """

    z: tuple
    gradient: Array
    velocity: Array
    log_density: Array
    energy: Array
    part: tuple = ()


RECORD = ("iterations", "residual", "reversal_error", "failed", "not_reversed", "indefinite")


class SolverRecord:
    """Results of the solves of a step of each chain.

    These are ``iterations``; ``residual``, the largest last change of a coordinate in a solve that converged; whether a
    solve has ``failed``; whether the step was ``not_reversed``, and otherwise its ``reversal_error``; and whether it met an
    ``indefinite`` metric, which is a divergence and not a failure of the solver.
    """

    def start(self, zeros: Array) -> None:
        """Start a record, with zeros (n,)."""
        self.iterations, self.residual, self.reversal_error = zeros, zeros, zeros
        self.failed = self.not_reversed = self.indefinite = zeros > 0
        self.only: Array | None = None  # mask (n,) of the chains that are solved for, unless these are all

    def __call__(self, solved: Array, iterations: Array, residual: Array, indefinite: Array | None = None) -> None:
        """Add a solve."""
        indefinite = ~solved & False if indefinite is None else indefinite
        if self.only is not None:
            zero = 0 * self.iterations
            iterations, residual = (batched.in_place_of(self.only, x, zero) for x in (iterations, residual))
            solved = batched.in_place_of(self.only, solved, ~self.only)
            indefinite = batched.in_place_of(self.only, indefinite, zero > 0)
        self.iterations = self.iterations + iterations
        self.residual = batched.namespace(solved).maximum(self.residual, residual)
        self.indefinite = self.indefinite | (indefinite & ~self.failed)
        self.failed = self.failed | (~solved & ~self.indefinite)

    def lose(self, H: HamiltonianOnArrays, q: Array, lost: Array) -> None:
        """Record whether steps that end at q without an energy, ``lost`` (n,), are due to a solver or to the metric."""
        lost = lost & ~self.failed & ~self.not_reversed
        indefinite = getattr(H, "indefinite", None)
        if indefinite is not None and batched.namespace(q).any(lost):
            self.indefinite = self.indefinite | (lost & indefinite(q))

    def kept(self) -> dict[str, Array]:
        """Return the values by name."""
        return {name: getattr(self, name) for name in RECORD}

    def put_back(self, mask: Array, kept: dict[str, Array]) -> None:
        """Restore the ``kept`` values at the mask."""
        xp = batched.namespace(mask)
        for name, values in kept.items():
            setattr(self, name, xp.where(mask, values, getattr(self, name)))


class StepSizes(Protocol):
    """Protocol of chains that have their own step sizes, and jump sizes if DHMC adapts them separately."""

    step_size: Array
    jump_size: Array | None


class StepMaker(Protocol):
    """Protocol of the object that makes the steps of all chains: :class:`Mover`, and the one of discontinuous HMC."""

    H: Any  # a Hamiltonian on arrays
    record: Any  # a SolverRecord
    copies: int
    draws: int
    spares: bool
    solves: bool

    def of(self, chains: StepSizes, rows: Rows) -> StepMaker: ...
    def at(self, z: tuple) -> Point: ...
    def __call__(self, point: Point, eps: Array, order: Array | None = None, wanted: Array | None = None) -> Point: ...


class Mover:
    """The integrator's step on the Hamiltonian H of a :class:`refhmc.batch.memory.Remembering` model.

    ``draws`` is the number of parts that the integrator follows in an order drawn for each trajectory. ``spares`` is True
    if its steps do not need the model's L and gradient, as those that follow the parts of a split.
    """

    def __init__(self, H: HamiltonianOnArrays, integrator: ArrayIntegrator) -> None:
        self.H, self.integrator = H, integrator
        base: Any = getattr(integrator, "base", integrator)
        self.parts, self.step = getattr(integrator, "parts", (1.0,)), base.on_arrays()
        self.copies = 2 if base.name == "explicit_tao" else 1
        self.record, self.solves = SolverRecord(), base.implicit
        follows = getattr(base, "follows_parts", False)
        self.draws = base.drawn_parts(H.model) if follows else 0
        self.spares, H.model.by_parts = follows, follows
        shared = base.shared_part(len(H.model.parts)) if follows else None
        self.shared = None if shared is None else H.model.parts[shared]
        if base.implicit:
            indefinite = getattr(H, "indefinite", None)
            # The last position for which the model was asked is that of the metric.
            blame = None if indefinite is None else lambda: indefinite(H.model.asked)
            self.step = partial(self.step, solve=partial(base.fixed_point, record=self.record, blame=blame))
            if base.reversibility_check:
                tolerances = base.tolerance, base.options()["reversal_tolerance"]
                self.step = checked(self.step, *tolerances, self.record)

    def of(self, chains: StepSizes, rows: Rows) -> Mover:
        """Return the mover for the chains ``rows``; they all have the same metric."""
        return self

    def __call__(self, point: Point, eps: Array, order: Array | None = None, wanted: Array | None = None) -> Point:
        """Return the points after a step of signed sizes ``eps`` (n,), through the parts in the ``order`` (n, M), if drawn.

        The energy is computed for the ``wanted`` chains (n,), or for all.
        """
        model, z = self.H.model, point.z
        model.forget()
        if self.shared is not None:
            self.shared.know(z[0], *point.part)
        if not self.spares:
            model.know(z[0], point.log_density, point.gradient)
        self.record.start(0 * eps)
        step = self.step if order is None else partial(self.step, order=order)
        wanted = wanted if self.spares else None
        z = step(self.H, *z, self.parts[0] * eps[..., None])
        for part in self.parts[1:]:
            z, ended = self.going_on(z, wanted)
            kept = self.record.kept()
            z = step(self.H, *z, part * eps[..., None])
            self.record.put_back(ended, kept)
        arrived = self.at(z, wanted)
        self.record.lose(self.H, z[0], ~batched.namespace(eps).isfinite(arrived.energy))
        model.forget()
        return arrived

    def going_on(self, z: tuple, wanted: Array | None) -> tuple[tuple, Array]:
        """Return z between two parts of a step, and the mask of the chains that have ended.

        These have no energy there, and NaN in z.
        """
        energy = self.at(z, wanted).energy
        xp = batched.namespace(energy)
        ended = ~xp.isfinite(energy)
        self.record.lose(self.H, z[0], ended)
        # If all continue they keep their arrays, at which the model's values are remembered.
        return (tuple(xp.where(ended[:, None], xp.nan, x) for x in z) if xp.any(ended) else z), ended

    def at(self, z: tuple, wanted: Array | None = None) -> Point:
        """Return the point at ``z``: H = phi + tau and its parts, NaN if the step failed.

        L is left out of the energy of chains for which it is not ``wanted``.
        """
        H, (q, p) = self.H, z[:2]
        xp = batched.namespace(q)
        log_density, gradient = H.model.value_and_gradient(q) if wanted is None else self.values(q, wanted)
        v = H.inverse_product(q, p)
        energy = H.half_log_det(q) - log_density + batched.dot(p, v) / 2
        energy = xp.where(xp.all(xp.isfinite(q), axis=-1), energy, xp.nan)
        part = () if self.shared is None else self.shared.value_and_gradient(q)
        return Point(z, gradient, v, log_density, energy, part)

    def values(self, q: Array, wanted: Array) -> tuple[Array, Array]:
        """Return L and dL/dq of the wanted chains, and 0 for the others."""
        model, xp = self.H.model, batched.namespace(q)
        if xp.all(wanted):
            return model.value_and_gradient(q)
        zero = xp.zeros_like(q)
        if not xp.any(wanted):
            return zero[:, 0], zero
        L, gradient = model.value_and_gradient(model.some(q, wanted))
        return batched.in_place_of(wanted, L, zero[:, 0]), batched.in_place_of(wanted, gradient, zero)


def checked(step: Callable, tolerance: float, reversal_tolerance: float, record: SolverRecord) -> Callable:
    """Return the step that is NaN if its reverse step does not return."""

    def there_and_back(H: HamiltonianOnArrays, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
        xp, start = batched.namespace(q), batched.join(q, p)
        before, failed = record.iterations, record.failed
        end = step(H, q, p, eps)
        there, failed_there, indefinite_there = record.iterations - before, record.failed, record.indefinite
        back = batched.join(*step(H, *end, -eps))
        ways = there, record.iterations - before - there
        arrives, error = is_at(back, start, reversal_tolerance)
        least, most = (xp.where((ways[0] < ways[1]) ^ flip, *ways) for flip in (False, True))
        doubtful = arrives & ((most > ALIKE * least + 2) | ~is_at(back, start, tolerance)[0])
        if xp.any(doubtful):
            (rows,) = xp.nonzero(doubtful)
            some = [batched.rows_of(x, doubtful.shape, rows) for x in (*batched.split(back), eps)]
            record.only = doubtful
            again = batched.in_place_of(doubtful, batched.join(*step(H, *some)), back)
            record.only = None
            at_end, error_there = is_at(again, batched.join(*end), reversal_tolerance)
            arrives = arrives & (at_end | ~doubtful)
            error = xp.where(doubtful & at_end & (error_there > error), error_there, error)
        record.failed, record.indefinite = failed | failed_there, indefinite_there
        record.lose(H, end[0], ~arrives)
        record.not_reversed = record.not_reversed | (~arrives & ~record.failed & ~record.indefinite)
        error = xp.where(arrives, error, 0.0)
        record.reversal_error = xp.where(error > record.reversal_error, error, record.reversal_error)
        return tuple(xp.where(arrives[..., None], x, xp.nan) for x in end)  # type: ignore[return-value]

    return there_and_back


def is_at(z: Array, target: Array, tolerance: float) -> tuple[Array, Array]:
    """Return whether each coordinate of z is within the tolerance, or its last bits, of the target; and the distance."""
    xp = batched.namespace(z)
    distance = xp.abs(z - target)
    near = (distance <= tolerance) | (distance <= LAST_BITS * xp.abs(target))
    return xp.all(near, axis=-1), xp.max(distance, axis=-1)

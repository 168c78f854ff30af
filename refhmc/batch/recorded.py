"""One transition of many chains on recorded random numbers, for replay and for comparison with other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from refhmc.batch.chains import ALL, Chains, copied, run
from refhmc.batch.draw import TRANSITIONS, mover_for
from refhmc.batch.memory import Remembering
from refhmc.batch.streams import Purpose, Rows
from refhmc.errors import ShapeError
from refhmc.integrators.defaults import resolve
from refhmc.kernels.options import Kernel
from refhmc.metrics.base import ArrayModel
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@dataclass
class Recorded:
    """Recorded numbers, with the interface of :class:`refhmc.batch.streams.Streams`.

    They are the ``given`` normals (n, d), a ``tape`` (n, k) of uniforms and of the normals of refreshments between steps, and
    the ``probabilities`` with which its uniforms were compared (n, k), NaN for the others.
    """

    given: Array
    tape: Array
    probabilities: Array

    def uniforms(self, rows: Rows, transition: Array, purpose: Purpose, first: Array, count: int) -> Array:
        """Return uniforms from the tape; its last number stands for those beyond the end, which is checked afterwards."""
        xp, tape = batched.namespace(self.tape), self.tape[rows]
        last = tape.shape[1] - 1
        columns = [batched.pick(tape, xp.clip(first + k, None, last))[:, None] for k in range(count)]
        return xp.concat(columns, axis=1) if columns else tape[:, :0]

    def normals(self, rows: Rows, transition: Array, purpose: Purpose, count: int, first: Array | None = None) -> Array:
        """Return the given normals, or those on the tape from number ``first`` (r,) on."""
        return self.given[rows] if first is None else self.uniforms(rows, transition, purpose, first, count)

    def compared(self, rows: Rows, number: Array, probability: Array, asked: Array | bool = True) -> None:
        """Record that uniform ``number`` (r,) was compared with that probability (r,), if it was ``asked`` for."""
        xp, before = batched.namespace(self.tape), self.probabilities[rows]
        here = (xp.arange(before.shape[1]) == number[:, None]) & xp.broadcast_to(xp.asarray(asked), number.shape)[
            :, None
        ]
        self.probabilities[rows] = xp.where(here, probability[:, None], before)


class Transitions(NamedTuple):
    """Result of one transition of many chains on recorded random numbers.

    Parameters
    ----------
    q : array, shape (n, d)
        Positions after the transition.
    stats : dict of str to array, shape (n,)
        Statistics of the chains by name.
    uniforms_used : array of int, shape (n,)
        Number of uniforms that each chain used.
    probabilities : array, shape (n, k)
        Probabilities with which the uniforms were compared. NaN for those of jitters and orders, and for unused ones.
    momentum : array, shape (n, d), or None
        Momenta after the transition, of a kernel that keeps them.

    See Also
    --------
    refhmc.array_api.transitions : Returns it.
    """

    q: Array
    stats: dict[str, Array]
    uniforms_used: Array
    probabilities: Array
    momentum: Array | None = None


def transitions(
    text: ArrayModel,
    kernel: Kernel,
    q: Array,
    normals: Array,
    uniforms: Array,
    momentum: Array | None = None,
    slice_variable: Array | None = None,
) -> Transitions:
    """Make one transition of each chain from q (n, d), with momenta from the normals (n, d), on the uniforms (n, k).

    Both are in the order of :mod:`refhmc.core.randomness`. ``text`` has the model's functions on arrays. Raises TypeError
    for a kernel without an implementation for many chains, ValueError if its step size is not fixed or a chain needs more
    than k uniforms, and ShapeError.
    """
    xp, name = batched.namespace(q), getattr(kernel, "name", "")
    if name not in TRANSITIONS:
        raise TypeError(
            f"kernel must be one of {', '.join(map(str.upper, TRANSITIONS))} for many chains; got {type(kernel).__name__}."
        )
    if kernel.step_size is None:
        raise ValueError(
            f"step_size of {name.upper()} must be given for a single transition, which adapts nothing; got None."
        )
    if q.ndim != 2 or normals.shape != q.shape or uniforms.ndim != 2 or uniforms.shape[0] != q.shape[0]:
        raise ShapeError(
            "q, normals and uniforms must have shapes (n, d), (n, d) and (n, k); "
            f"got {q.shape}, {normals.shape} and {uniforms.shape}."
        )
    n, recorded = q.shape[0], Recorded(normals, uniforms, xp.full(uniforms.shape, xp.nan, dtype=q.dtype))
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    L, gradient = (copied(x) for x in text.value_and_gradient(q))
    sizes = xp.full((n,), float(kernel.step_size), dtype=q.dtype)
    chains = Chains(copied(q), L, gradient, sizes, xp.zeros((n,), dtype=xp.int64), recorded)
    chains.momentum = None if momentum is None else copied(momentum)
    chains.slice_variable = None if slice_variable is None else copied(slice_variable)
    made = TRANSITIONS[name](chains, mover_for(kernel, metric, integrator, Remembering(text)), kernel)
    stats: dict[str, Array] = {}

    def ended(rows: Array, found: dict[str, Array]) -> bool:
        for key, values in found.items():
            stats.setdefault(key, xp.zeros((n,), dtype=values.dtype))[rows] = values
        return False

    run(made, chains, 1, ended)
    used = made.uniforms_used(ALL) + made.in_the_end
    if int(xp.max(used)) > uniforms.shape[1]:
        raise ValueError(
            f"uniforms must have {int(xp.max(used))} numbers per chain for this transition; got {uniforms.shape[1]}."
        )
    return Transitions(
        chains.q,
        {key: stats[key] for key in kernel.statistics if key in stats},
        used,
        recorded.probabilities,
        chains.momentum,
    )

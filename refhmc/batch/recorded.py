"""One transition of many chains on recorded numbers, so that it can be replayed, or be held against another program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from refhmc.batch.chains import ALL, Chains, copied, run
from refhmc.batch.draw import TRANSITIONS, mover_for
from refhmc.batch.memory import Remembering
from refhmc.batch.streams import Purpose
from refhmc.errors import ShapeError
from refhmc.integrators.defaults import resolve
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@dataclass
class Recorded:
    """In the place of :class:`refhmc.batch.streams.Streams`: ``given`` normals (n, d), ``tape`` of uniforms (n, k), and the
    ``probabilities`` that these were compared with (n, k), NaN where none was."""

    given: Array
    tape: Array
    probabilities: Array

    def uniforms(self, rows: Any, transition: Array, purpose: Purpose, first: Array, count: int) -> Array:
        """Beyond the tape's end its last number: whether it was used is looked at in the end."""
        xp, tape = batched.namespace(self.tape), self.tape[rows]
        last = tape.shape[1] - 1
        columns = [batched.pick(tape, xp.clip(first + k, None, last))[:, None] for k in range(count)]
        return xp.concat(columns, axis=1) if columns else tape[:, :0]

    def normals(self, rows: Any, transition: Array, purpose: Purpose, count: int) -> Array:
        return self.given[rows]

    def compared(self, rows: Any, number: Array, probability: Array, asked: Any = True) -> None:
        """Uniform ``number`` (r,) with that probability (r,), where it was ``asked`` for."""
        xp, before = batched.namespace(self.tape), self.probabilities[rows]
        here = (xp.arange(before.shape[1]) == number[:, None]) & xp.broadcast_to(xp.asarray(asked), number.shape)[
            :, None
        ]
        self.probabilities[rows] = xp.where(here, probability[:, None], before)


class Transitions(NamedTuple):
    """Of each chain: where it is, ``q`` (n, d); its statistics by name (n,); how many uniforms it took; what each of them was
    compared with, (n, k), NaN for those of jitters and orders and those not taken."""

    q: Array
    stats: dict[str, Array]
    uniforms_used: Array
    probabilities: Array


def transitions(text: Any, kernel: Any, q: Array, normals: Array, uniforms: Array) -> Transitions:
    """One transition of each chain from q (n, d), its momentum made from the normals (n, d), on the uniforms (n, k), both in
    the order of :mod:`refhmc.core.randomness`. ``text``: the model's functions on arrays.

    Raises TypeError for a kernel without a text for many chains, ValueError where its step size is not fixed or a chain asks
    for more than k uniforms, ShapeError.
    """
    xp, name = batched.namespace(q), getattr(kernel, "name", "")
    if name not in TRANSITIONS:
        raise TypeError(f"many chains have {', '.join(map(str.upper, TRANSITIONS))}, got {type(kernel).__name__}")
    if kernel.step_size is None:
        raise ValueError(f"a single transition adapts nothing: give {name.upper()} a step_size")
    if q.ndim != 2 or normals.shape != q.shape or uniforms.ndim != 2 or uniforms.shape[0] != q.shape[0]:
        raise ShapeError(
            f"q, normals and uniforms: expected (n, d), (n, d), (n, k), got {q.shape}, {normals.shape}, {uniforms.shape}"
        )
    n, recorded = q.shape[0], Recorded(normals, uniforms, xp.full(uniforms.shape, xp.nan, dtype=q.dtype))
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    L, gradient = (copied(x) for x in text.value_and_gradient(q))
    sizes = xp.full((n,), float(kernel.step_size), dtype=q.dtype)
    chains = Chains(copied(q), L, gradient, sizes, xp.zeros((n,), dtype=xp.int64), recorded)
    made = TRANSITIONS[name](chains, mover_for(kernel, metric, integrator, Remembering(text)), kernel)
    stats: dict[str, Array] = {}

    def ended(rows: Array, found: dict[str, Array]) -> bool:
        for key, values in found.items():
            stats.setdefault(key, xp.zeros((n,), dtype=values.dtype))[rows] = values
        return False

    run(made, chains, 1, ended)
    used = made.uniforms_used(ALL) + made.in_the_end
    if int(xp.max(used)) > uniforms.shape[1]:
        raise ValueError(f"a chain asks for {int(xp.max(used))} uniforms, and there are {uniforms.shape[1]} for each")
    return Transitions(
        chains.q, {key: stats[key] for key in kernel.statistics if key in stats}, used, recorded.probabilities
    )

"""n chains between their transitions, and the loop that takes each of them through its own.

In each pass every chain makes one step of the integrator. A chain that has finished its transition starts the next one
immediately, with its own random numbers (:mod:`refhmc.batch.streams`). No chain waits for another's trajectory, and none
depends on another. Chains only meet when something is learned from all of them.

Arrays are written in place here, at the rows of the chains concerned, which NumPy, CuPy and PyTorch allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from refhmc.batch.steps import Point, StepMaker
from refhmc.batch.streams import Purpose, RandomNumbers, Rows, Streams
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

ALL = slice(None)


@dataclass
class Chains:
    """State of n chains.

    It has each chain's position with L and dL/dq there, its step size, the number of its next transition and its stream. If
    DHMC adapts the jump size separately, it also has this. Kernels that keep the momentum have it, NaN before it is drawn, and
    GHMC has Neal's slice variable, 2 before it is drawn.
    """

    q: Array
    log_density: Array
    gradient: Array
    step_size: Array
    transition: Array
    streams: RandomNumbers
    jump_size: Array | None = None
    momentum: Array | None = None
    slice_variable: Array | None = None

    def __len__(self) -> int:
        return self.q.shape[0]

    def part(self, rows: slice) -> Chains:
        """Return the chains ``rows``, whose arrays are views of these."""
        assert isinstance(self.streams, Streams)
        arrays = {name: x[rows] for name, x in vars(self).items() if name != "streams" and x is not None}
        return Chains(**arrays, streams=Streams(self.streams.keys[rows]))

    def uniforms(self, rows: Rows, first: Array, count: int) -> Array:
        """Return uniforms of the present transition, from number ``first`` (r,) on."""
        return self.streams.uniforms(rows, self.transition[rows], Purpose.KERNEL, first, count)

    def bernoulli(self, rows: Rows, number: Array, probability: Array, asked: Array | bool = True) -> Array:
        """Return True with that probability (r,), by the uniform of that number.

        All random decisions of a chain are made here.
        """
        self.streams.compared(rows, number, probability, asked)
        return self.uniforms(rows, number, 1)[:, 0] < probability

    def order(self, rows: Rows, parts: int) -> Array:
        """Return a random order of the parts of a split, (r, M), from the first M - 1 uniforms of the present transition."""
        first = 0 * self.transition[rows]
        return batched.random_order(range(parts), self.uniforms(rows, first, parts - 1))

    def with_momentum(
        self, rows: Rows, mover: StepMaker, purpose: Purpose = Purpose.MOMENTUM, number: Array | None = None
    ) -> Point:
        """Return the chains with fresh momenta p ~ N(0, G(q)), from the numbers of their transition or of that ``number``."""
        mover = mover.of(self, rows)
        H, q = mover.H, copied(self.q[rows])
        number = self.transition[rows] if number is None else number
        mover.record.start(0 * self.log_density[rows])
        H.model.forget()
        H.model.know(q, self.log_density[rows], self.gradient[rows])
        p = H.draw_momentum(q, self.streams.normals(rows, number, purpose, q.shape[-1]))
        return mover.at((q, p) * mover.copies)

    def move(self, rows: Rows, accepted: Array, q: Array, log_density: Array, gradient: Array) -> None:
        """Move those of the chains ``rows`` that are ``accepted`` to q."""
        xp = batched.namespace(q)
        self.q[rows] = xp.where(accepted[:, None], q, self.q[rows])
        self.gradient[rows] = xp.where(accepted[:, None], gradient, self.gradient[rows])
        self.log_density[rows] = xp.where(accepted, log_density, self.log_density[rows])


class ChainTransitions(Protocol):
    """Protocol of the transitions of a kernel, of all chains at once."""

    def start(self, rows: Rows) -> None:
        """Start the next transition of the chains ``rows``."""

    def turn(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Make one step of the chains ``rows``; return those whose transition has ended, and their statistics."""


def copied(x: Array) -> Array:
    """Return a copy."""
    return batched.namespace(x).asarray(x, copy=True)


def batches(n: int, size: int) -> list[slice]:
    """Return the rows of n chains in as few batches of at most ``size`` as possible, of nearly equal sizes."""
    number = -(-n // size)
    return [slice(n * k // number, n * (k + 1) // number) for k in range(number)]


def indices(rows: Rows, mask: Array) -> Array:
    """Return the numbers of those of the chains ``rows`` in the mask."""
    (found,) = batched.namespace(mask).nonzero(mask)
    return found if isinstance(rows, slice) else rows[found]


def run(transitions: ChainTransitions, chains: Chains, n: int, ended: Callable) -> None:
    """Make n transitions of each chain, and call ``ended(rows, stats)`` for chains that have finished one."""
    xp = batched.namespace(chains.q)
    left = xp.full((len(chains),), n, dtype=xp.int64)
    if n == 0:
        return
    rows: Rows = ALL
    transitions.start(rows)
    while True:
        there, stats = transitions.turn(rows)
        if not there.shape[0]:
            continue
        chains.transition[there] += 1
        left[there] -= 1
        ended(there, stats)
        on = there[left[there] > 0]
        if on.shape[0] < there.shape[0]:
            (rows,) = xp.nonzero(left > 0)
            if not rows.shape[0]:
                return
        if on.shape[0]:
            transitions.start(ALL if on.shape[0] == len(chains) else on)

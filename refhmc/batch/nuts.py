"""NUTS of many chains: the transition of :mod:`refhmc.kernels.nuts`, with a tree for each chain.

The recursion is unrolled. After leaf k = 0, 1, ... of a subtree its completed intervals are the binary digits of k + 1, the
largest first. They wait in ``waiting``, at most max_treedepth intervals per chain. A new leaf is an interval by itself, which
joins one waiting before it for each trailing one of k. Intervals are kept in the order in which they are made, since the
criterion is the same in both directions of time.

A chain asks for its uniforms one by one, in the order of the kernel: direction, each leaf after the first, subtree. If the
order of a split's parts is drawn, its uniforms come first. Leaves backward in time use the reversed order.
"""

from __future__ import annotations

import math

from refhmc.batch.chains import Chains, indices
from refhmc.batch.steps import Mover, Point
from refhmc.batch.streams import Rows
from refhmc.batch.table import Table, where_point
from refhmc.core import sample_stats as S
from refhmc.kernels.nuts import LARGEST_LOG_WEIGHT, LEAST_HALF, NUTS, followed
from refhmc.metrics.base import hyperparameters_of
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

RHO, P_FIRST, V_FIRST, P_LAST, V_LAST, SUM_V = range(6)  # of intervals (r, 6, d)


class NUTSTransitions(Table):
    """Trees of the chains.

    For each chain it has the ``point`` that moves; the ends of its trajectory, ``first`` and ``last`` in time, and its
    interval, ``whole``; the ``waiting`` intervals of the subtree, ``n_waiting`` of them; the state ``chosen`` so far and
    the subtree's ``candidate``, with their places in time; weights, energies and counts; ``turned``, and the ``outcome`` at
    the end.
    """

    def __init__(self, chains: Chains, mover: Mover, kernel: NUTS) -> None:
        self.chains, self.mover, self.max_depth = chains, mover, int(kernel.max_treedepth)
        xp, (n, d) = batched.namespace(chains.q), chains.q.shape
        self.hierarchical = hyperparameters_of(mover.H.metric, mover.H.model) is not None
        self.waiting = xp.zeros((n, self.max_depth, 6, d), dtype=chains.q.dtype)
        self.everyone = xp.arange(n)

    def start(self, rows: Rows) -> None:
        """Start the next transition of the chains ``rows``."""
        point = self.chains.with_momentum(rows, self.mover)
        H0, xp = point.energy, batched.namespace(point.energy)
        zero, none = xp.zeros(H0.shape, dtype=H0.dtype), xp.zeros(H0.shape, dtype=xp.int64)
        for name in ("first", "last", "chosen", "candidate", "point"):
            self.put_point(rows, point, name)
        self.put(rows, whole=self.interval_of(point), H0=H0, lowest=H0, highest=H0, weight=zero + 1, sum_accept=zero)
        self.put(rows, index=none, first_index=none, last_index=none, depth=none, n_leaves=none, outcome=none)
        self.put(rows, used=none + max(self.mover.draws - 1, 0))
        if self.mover.draws:
            self.put(rows, order=self.chains.order(rows, self.mover.draws))
        self.put(rows, turned=none > 0)
        self.start_record(rows, self.mover, point)
        self.start_doubling(rows)

    in_the_end = 0

    def uniforms_used(self, rows: Rows) -> Array:
        """Return how many uniforms have been used so far."""
        return self.used[rows]

    def decides(self, rows: Rows, probability: Array, asked: Array | bool = True) -> Array:
        """Decide by the next uniform of each chain's transition, which is used up only when ``used`` is increased."""
        return self.chains.bernoulli(rows, self.used[rows], probability, asked)

    def start_doubling(self, rows: Rows) -> None:
        """Start a new half of the trajectory, forward or backward in time at random."""
        forward = self.decides(rows, 0 * self.H0[rows] + 0.5)
        xp, used = batched.namespace(forward), self.used[rows]
        zero = xp.zeros(used.shape, dtype=self.H0.dtype)
        self.put(rows, used=used + 1, sign=xp.where(forward, zero + 1, zero - 1))
        self.put_point(rows, where_point(forward, self.point_of(rows, "last"), self.point_of(rows, "first")))
        self.put(rows, leaf=0 * used, n_waiting=0 * used, candidate_index=0 * used)
        self.put(rows, new_weight=zero, new_lowest=zero + math.inf, new_highest=zero - math.inf)

    def turn(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Add one leaf; return the chains whose transition has ended, and its statistics."""
        order = self.order[rows] if self.mover.draws else None
        point = self.mover(self.point_of(rows), self.sign[rows] * self.chains.step_size[rows], order)
        self.put_point(rows, point)
        self.add_record(rows, self.mover)
        valid = self.add_leaf(rows, point)
        self.wait(rows, point)
        self.join_waiting(indices(rows, valid))
        leaf = self.leaf[rows]
        self.put(rows, leaf=leaf + 1)
        alive = valid & ~self.turned[rows]
        complete = alive & (leaf + 1 == 2 ** self.depth[rows])
        grown = indices(rows, complete)
        over = ~alive
        if grown.shape[0]:
            self.add_subtree(grown)
            over = over | (complete & (self.turned[rows] | (self.outcome[rows] != S.ACCEPTED)))
            over = over | (complete & (self.depth[rows] == self.max_depth))
            again = indices(rows, complete & ~over)
            if again.shape[0]:
                self.start_doubling(again)
        there = indices(rows, over)
        return there, self.end(there) if there.shape[0] else {}

    def add_leaf(self, rows: Rows, point: Point) -> Array:
        """Weigh the new states and choose among them; return whether their energies are within 1,000 of the other new ones."""
        xp, H, H0 = batched.namespace(point.energy), point.energy, self.H0[rows]
        begun, leaf = xp.isfinite(H0), self.leaf[rows]
        finite = begun & xp.isfinite(H)
        drop = xp.where(finite, H0 - H, -math.inf)
        lowest, highest = self.new_lowest[rows], self.new_highest[rows]
        lowest, highest = xp.where(finite & (lowest > H), H, lowest), xp.where(finite & (highest < H), H, highest)
        valid = finite & (highest - lowest <= S.MAX_ENERGY_SPREAD)
        outcome = xp.where(finite, xp.where(valid, S.ACCEPTED, S.DIVERGED), self.reason(rows))
        accepted = xp.exp(xp.where(drop < 0, drop, 0.0))
        self.put(
            rows,
            outcome=outcome,
            new_lowest=lowest,
            new_highest=highest,
            lowest=xp.minimum(self.lowest[rows], lowest),
            highest=xp.maximum(self.highest[rows], highest),
            n_leaves=self.n_leaves[rows] + xp.astype(begun, leaf.dtype),
            sum_accept=self.sum_accept[rows] + accepted,
        )
        weight = xp.where(valid, xp.exp(xp.where(drop < LARGEST_LOG_WEIGHT, drop, LARGEST_LOG_WEIGHT)), 0.0)
        total = self.new_weight[rows] + weight
        asks = valid & (leaf > 0)
        taken = self.decides(rows, xp.where(total > 0, weight / xp.where(total > 0, total, 1.0), 0.0), asks)
        chosen = indices(rows, valid & (taken | (leaf == 0)))
        self.put(rows, new_weight=total, used=self.used[rows] + xp.astype(asks, leaf.dtype))
        if chosen.shape[0]:
            self.put_point(chosen, self.point_of(chosen), "candidate")
            self.candidate_index[chosen] = self.leaf[chosen] + 1
        return valid

    def interval_of(self, point: Point) -> Array:
        """Return the interval of one state."""
        p, v = followed(self.mover.H, point.z[1]), point.velocity
        return batched.namespace(p).stack([p, p, v, p, v, v], axis=1)

    def wait(self, rows: Rows, point: Point) -> None:
        """Let each new state wait as an interval by itself."""
        self.waiting[self.everyone[rows], self.n_waiting[rows]] = self.interval_of(point)
        self.put(rows, n_waiting=self.n_waiting[rows] + 1)

    def join_waiting(self, rows: Array) -> None:
        """Join the complete intervals, until one turns."""
        xp, digits = batched.namespace(rows), self.leaf[rows]
        going, n_states = digits % 2 == 1, 1
        while True:
            (on,) = xp.nonzero(going)
            if not on.shape[0]:
                return
            rows, digits = rows[on], digits[on]
            n = self.n_waiting[rows]
            a, b = self.waiting[rows, n - 2], self.waiting[rows, n - 1]
            turned = self.turns(rows, a, b, n_states)
            self.waiting[rows, n - 2] = joined(a, b)
            self.n_waiting[rows] = n - 1
            self.turned[rows] = turned
            digits, n_states = digits // 2, 2 * n_states
            going = ~turned & (digits % 2 == 1)

    def turns(self, rows: Array, a: Array, b: Array, n_states: Array | int) -> Array:
        """Return whether the halves A and B, of ``n_states`` each, may not be joined, (r,)."""
        return halves_turn(a, b, n_states * self.chains.step_size[rows]) if self.hierarchical else turns(a, b)

    def add_subtree(self, rows: Array) -> None:
        """Add complete subtrees as halves of the trajectory, and choose their candidates by weight."""
        xp, weight, forward = batched.namespace(self.H0), self.weight[rows], self.sign[rows] > 0
        taken = self.decides(rows, self.new_weight[rows] / weight)
        first, last, at = self.first_index[rows], self.last_index[rows], self.candidate_index[rows]
        n_new = self.leaf[rows]
        index = xp.where(forward, last + at, first - at)
        self.put_point(
            rows, where_point(taken, self.point_of(rows, "candidate"), self.point_of(rows, "chosen")), "chosen"
        )
        for name, side in (("last", forward), ("first", ~forward)):
            grown = indices(rows, side)
            self.put_point(grown, self.point_of(grown), name)
        whole, half = self.whole[rows], self.waiting[rows, 0]
        a = xp.where(forward[:, None, None], whole, reverse(whole))
        whole = joined(a, half)
        spread = self.highest[rows] - self.lowest[rows] > S.MAX_ENERGY_SPREAD
        self.put(
            rows,
            index=xp.where(taken, index, self.index[rows]),
            last_index=xp.where(forward, last + n_new, last),
            first_index=xp.where(forward, first, first - n_new),
            used=self.used[rows] + 1,
            weight=weight + self.new_weight[rows],
            depth=self.depth[rows] + 1,
            whole=xp.where(forward[:, None, None], whole, reverse(whole)),
            turned=self.turns(rows, a, half, n_new),
            outcome=xp.where(spread, S.DIVERGED, S.ACCEPTED),
        )

    def end(self, rows: Array) -> dict[str, Array]:
        """Move the chains to their chosen states, and return the statistics."""
        xp, chosen, H0 = batched.namespace(self.H0), self.point_of(rows, "chosen"), self.H0[rows]
        H, eps, index, outcome = (
            self.point.energy[rows],
            self.chains.step_size[rows],
            self.index[rows],
            self.outcome[rows],
        )
        n = xp.astype(self.n_leaves[rows], H0.dtype)
        begun, moved = xp.isfinite(H0), index != 0
        self.chains.move(rows, moved, chosen.z[0], chosen.log_density, chosen.gradient)
        lost = (outcome == S.NAN) | ((outcome == S.DIVERGED) & ~xp.isfinite(H))
        up, down = self.highest[rows] - H0, self.lowest[rows] - H0
        worst = xp.where(lost, xp.where((H < 0) & begun, H - H0, xp.inf), xp.where(up > -down, up, down))
        done = outcome == S.ACCEPTED
        return {
            "lp": self.chains.log_density[rows],
            "energy": xp.where(begun, chosen.energy, xp.inf),
            "energy_error": xp.where(begun, chosen.energy - H0, 0.0),
            "max_energy_error": xp.where(begun, worst, xp.inf),
            "acceptance_rate": xp.where(n > 0, self.sum_accept[rows] / n, 0.0),
            "diverging": (outcome == S.DIVERGED) | (outcome == S.NAN),
            "step_size": eps,
            "n_steps": n,
            "int_time": n * eps,
            "tree_depth": self.depth[rows],
            "reached_max_treedepth": (self.depth[rows] == self.max_depth) & ~self.turned[rows] & done,
            "index_in_trajectory": index,
            "is_accepted": moved,
            "outcome": xp.where(done & ~moved, S.REJECTED, outcome),
            **self.record_statistics(rows),
        }


def joined(a: Array, b: Array) -> Array:
    """Return the interval of A and B, which follows it."""
    xp = batched.namespace(a)
    rho, sum_v = a[:, RHO] + b[:, RHO], a[:, SUM_V] + b[:, SUM_V]
    return xp.stack([rho, a[:, P_FIRST], a[:, V_FIRST], b[:, P_LAST], b[:, V_LAST], sum_v], axis=1)


def reverse(a: Array) -> Array:
    """Return the interval read from the other end."""
    xp = batched.namespace(a)
    return xp.stack([a[:, RHO], a[:, P_LAST], a[:, V_LAST], a[:, P_FIRST], a[:, V_FIRST], a[:, SUM_V]], axis=1)


def turns(a: Array, b: Array) -> Array:
    """Return whether A and B may not be joined, (r,), by the criterion of :mod:`refhmc.kernels.nuts`."""

    def onward(rho: Array, v_first: Array, v_last: Array) -> Array:
        return (batched.dot(rho, v_first) > 0) & (batched.dot(rho, v_last) > 0)

    whole = onward(a[:, RHO] + b[:, RHO], a[:, V_FIRST], b[:, V_LAST])
    with_first = onward(a[:, RHO] + b[:, P_FIRST], a[:, V_FIRST], b[:, V_FIRST])
    with_last = onward(a[:, P_LAST] + b[:, RHO], a[:, V_LAST], b[:, V_LAST])
    return ~(whole & with_first & with_last)


def halves_turn(a: Array, b: Array, time: Array) -> Array:
    """Return the same on a hierarchical metric, for halves that last the times ``time`` (r,)."""
    rho = a[:, RHO] + b[:, RHO]
    onward = (batched.dot(rho, a[:, SUM_V]) > 0) & (batched.dot(rho, b[:, SUM_V]) > 0)
    return (time >= LEAST_HALF) & ~onward

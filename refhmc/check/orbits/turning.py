"""States of an orbit on which a tree may end, by the rules of NUTS alone.

A tree is doubled to either side. A new half with a part that turns is discarded and ends the trajectory. A whole tree that
turns ends it and keeps its states. Three rules decide whether z_a ... z_b, joined from z_a ... z_m and the rest, turns:

    span      (q_b - q_a) . p_a < 0  or  (q_b - q_a) . p_b < 0                     Hoffman and Gelman (2014)
    sum       rho . p_a <= 0  or  rho . p_b <= 0,  rho = p_a + ... + p_b           Betancourt (2017)
    joined    the same of z_a ... z_(m+1) and of z_m ... z_b, too                  Stan

with unit mass.
"""

from __future__ import annotations

from collections.abc import Callable

from refhmc.check.orbits.law import Table

Rule = Callable[[int, int, int], bool]  # of a, m, b


def rules(table: Table) -> list[Rule]:
    """Return the three rules, for states by their offsets from z_0."""
    n, q, p = table.orbit.n, table.orbit.q, table.orbit.p

    def span(a: int, m: int, b: int) -> bool:
        way = q[n + b] - q[n + a]
        return way @ p[n + a] < 0 or way @ p[n + b] < 0

    def sum_turns(a: int, b: int) -> bool:
        rho = p[n + a : n + b + 1].sum(axis=0)
        return rho @ p[n + a] <= 0 or rho @ p[n + b] <= 0

    return [
        span,
        lambda a, m, b: sum_turns(a, b),
        lambda a, m, b: sum_turns(a, b) or sum_turns(a, m + 1) or sum_turns(m, b),
    ]


def may_end(turns: Rule, start: int, depth: int) -> set[int]:
    """Return the offsets at which a transition from ``start`` may end."""
    found = {start}

    def whole(a: int, b: int) -> bool:  # no part of it turns
        m = (a + b) // 2
        return a == b or (whole(a, m) and whole(m + 1, b) and not turns(a, m, b))

    def grow(a: int, b: int, level: int) -> None:
        size = 2**level
        for first, last in ((b + 1, b + size), (a - size, a - 1)):
            if not whole(first, last):
                continue
            found.update(range(first, last + 1))
            low, high = min(a, first), max(b, last)
            if level + 1 < depth and not turns(low, (low + high) // 2, high):
                grow(low, high, level + 1)

    grow(start, start, 0)
    return found


def ends_beyond_a_turn(table: Table, depth: int) -> bool:
    """Return whether, by each of the rules, it ends where no tree that discards turning halves can end."""
    return all(
        any(
            p > 1e-12 and isinstance(end, int) and end not in may_end(turns, i, depth)
            for i in table.rows
            for end, p in table.law(i).items()
        )
        for turns in rules(table)
    )

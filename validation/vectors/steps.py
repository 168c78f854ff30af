"""One step of each integrator on a point (q, p), equations as in refhmc's manual, solved to all digits.

leapfrog               p+ = p + e/2 g(q);  q' = q + e M^-1 p+;  p' = p+ + e/2 g(q')                 constant metrics
implicit-midpoint      z' = z + e f((z + z')/2),  f = (dH/dp, -dH/dq)
generalized-leapfrog   p+ = p - e/2 H_q(q, p+);  q' = q + e/2 (H_p(q, p+) + H_p(q', p+));  p' = p+ - e/2 H_q(q', p+)
block-leapfrog         p+ = p - e/2 dphi/dq, phi = -L + log det(G)/2;  F_top(e/2) ... F_1(e/2) F_0(e) F_1(e/2) ... F_top(e/2);
                       p' = p+ - e/2 dphi/dq;  F_b(h): q_b += h v, p_j += h/2 v' (dM_b/dq_j) v for j of lower levels,
                       M_b the block of G of the coordinates of level b, v = M_b^-1 p_b
explicit-tao           A(e/2) B(e/2) C(e) B(e/2) A(e/2) on two copies (q, p), (x, y), which start alike;
                       A: p -= h H_q(q, y), x += h H_p(q, y);   B: q += h H_p(x, p), y -= h H_q(x, p)
                       C: (q - x, p - y) turn by the angle 2 omega h, their sums stay
projected-tao          the same after (q, p, q, p) + (m_q, m_p, -m_q, -m_p), and the same shift again, for the shift m
                       that brings the copies together
bcss(s), mclachlan,    p += b_1 e g(q), then q += a_k e M^-1 p, p += b_{k+1} e g(q) for k = 1, ..., s, with the palindromes
omelyan                b_1, a_1, ..., b_{s+1} of ``PALINDROMES``, of which each kind adds up to 1
yoshida, suzuki        3 or 5 steps of a base of sizes w, 1 - 2w, w, w = 1/(2 - 2^(1/3)), or
                       u, u, 1 - 4u, u, u, u = 1/(4 - 4^(1/3)), in units of e
"""

from __future__ import annotations

import functools

from mpmath import cbrt, mp, mpf

from validation.vectors.arithmetic import dot, inverse, newton, times
from validation.vectors.fields import derivatives_of, geometry, slope, velocity


class Dynamics:
    """What a step needs to know: target, its data, metric, rounding."""

    def __init__(self, target, c, metric, noise):
        self.target, self.c, self.metric, self.noise = target, c, metric, noise

    def at(self, q, force=True):
        return geometry(self.target, self.c, self.metric, q, self.noise, force)

    def field(self, q, p):
        """H_p, H_q"""
        here = self.at(q)
        return velocity(here, p, self.noise), slope(here, p, self.noise)

    def gradient(self, q):
        return derivatives_of(self.target, self.c, q, 1, self.noise)[1]


def add(x, h, y):
    return [a + h * b for a, b in zip(x, y, strict=True)]


def leapfrog(on, z, e):
    q, p = z
    p = add(p, e / 2, on.gradient(q))
    q = add(q, e, velocity(on.at(q), p, on.noise))
    return q, add(p, e / 2, on.gradient(q))


# The first coefficients, up to those that follow from the sums; "d": the first one is a drift.
PALINDROMES = {
    "bcss(2)": ("k", "0.21178"),
    "bcss(3)": ("k", "0.11888010966548", "0.29619504261126"),
    "bcss(4)": ("k", "0.071353913450279725904", "0.1916678", "0.268548791161230105820"),
    "mclachlan": ("k", "0.1931833275037836"),
    "omelyan": ("k", "0.08398315262876693", "0.2539785108410595", "0.6822365335719091", "-0.03230286765269967"),
    "omelyan(position)": (
        *("d", "0.2750081212332419", "-0.08442961950707149"),
        *("-0.1347950099106792", "0.3549000571574260"),
    ),
}


def coefficients_of(name):
    """Whether a palindrome begins with a kick ("k") or a drift ("d"), and its coefficients."""
    moves, *free = PALINDROMES[name]
    first = [mpf(x) for x in free]
    s = len(first) + 1
    rest = [mpf(1) - 2 * sum(first[k % 2 :: 2]) for k in (s - 1, s)]
    return moves, [*first, rest[0] / 2, rest[1], rest[0] / 2, *first[::-1]]


def splitting(name, on, z, e):
    q, p = z
    moves, sizes = coefficients_of(name)
    for k, size in enumerate(sizes):
        h = on.noise(size) * e
        if (k % 2 == 0) == (moves == "k"):
            p = on.noise.each(add(p, h, on.gradient(q)))
        else:
            q = on.noise.each(add(q, h, velocity(on.at(q), p, on.noise)))
    return q, p


def implicit_midpoint(on, z, e):
    q, p = z
    start, d = q + p, len(q)

    def image(x):
        middle = [(a + b) / 2 for a, b in zip(start, x, strict=True)]
        v, s = on.field(middle[:d], middle[d:])
        return add(q, e, v) + add(p, -e, s)

    end = newton(image, start, on.noise)
    return end[:d], end[d:]


def generalized_leapfrog(on, z, e):
    q, p = z
    here = on.at(q)
    half = newton(lambda x: add(p, -e / 2, slope(here, x, on.noise)), p, on.noise)
    first = velocity(here, half, on.noise)

    def image(x):
        return add(add(q, e / 2, first), e / 2, velocity(on.at(x, force=False), half, on.noise))

    end = newton(image, q, on.noise)
    return end, add(half, -e / 2, slope(on.at(end), half, on.noise))


def block_leapfrog(on, z, e):
    q, p = z
    at_rest, top = [mpf(0)] * len(q), max(on.metric.levels)
    p = add(p, -e / 2, slope(on.at(q), at_rest, on.noise))
    for b in range(top, 0, -1):
        q, p = block_flow(on, b, q, p, e / 2)
    q, p = block_flow(on, 0, q, p, e)
    for b in range(1, top + 1):
        q, p = block_flow(on, b, q, p, e / 2)
    return q, add(p, -e / 2, slope(on.at(q), at_rest, on.noise))


def block_flow(on, b, q, p, h):
    """The exact flow of p_b' M_b^-1 p_b / 2."""
    at, levels = on.at(q), on.metric.levels
    block = [i for i, level in enumerate(levels) if level == b]

    def part(G):
        return [[G[i][j] for j in block] for i in block]

    v = on.noise.each(times(inverse(part(at.G)), [p[i] for i in block]))
    force = [dot(v, times(part(dG), v)) if level < b else mpf(0) for dG, level in zip(at.dG, levels, strict=True)]
    moved = list(q)
    for i, x in zip(block, v, strict=True):
        moved[i] += h * x
    return on.noise.each(moved), on.noise.each(add(p, h / 2, force))


def tao(on, copies, e, omega):
    """One step on the doubled phase space."""
    q, p, x, y = copies

    def flow_a(h):
        nonlocal p, x
        v, s = on.field(q, y)
        p, x = add(p, -h, s), add(x, h, v)

    def flow_b(h):
        nonlocal q, y
        v, s = on.field(x, p)
        q, y = add(q, h, v), add(y, -h, s)

    flow_a(e / 2)
    flow_b(e / 2)
    c, s = mp.cos(2 * omega * e), mp.sin(2 * omega * e)
    dq, dp = add(q, -1, x), add(p, -1, y)
    turned_q, turned_p = add([c * a for a in dq], s, dp), add([c * a for a in dp], -s, dq)
    sum_q, sum_p = add(q, 1, x), add(p, 1, y)
    q, x = [a / 2 for a in add(sum_q, 1, turned_q)], [a / 2 for a in add(sum_q, -1, turned_q)]
    p, y = [a / 2 for a in add(sum_p, 1, turned_p)], [a / 2 for a in add(sum_p, -1, turned_p)]
    flow_b(e / 2)
    flow_a(e / 2)
    return q, p, x, y


def projected_tao(on, z, e, omega):
    q, p = z
    d = len(q)

    def after(shift):
        m, n = shift[:d], shift[d:]
        return tao(on, (add(q, 1, m), add(p, 1, n), add(q, -1, m), add(p, -1, n)), e, omega)

    def image(shift):
        a, b, x, y = after(shift)
        return add(shift, mpf("-0.25"), add(add(a, -1, x) + add(b, -1, y), 2, shift))

    shift = newton(image, [mpf(0)] * (2 * d), on.noise)
    a, b, x, y = after(shift)
    return [t / 2 for t in add(a, 1, x)], [t / 2 for t in add(b, 1, y)]


def parts(composition, noise):
    """The sizes of a composition's steps."""
    if composition == "yoshida":
        w = noise(1 / (2 - cbrt(2)))
        return [w, 1 - 2 * w, w]
    if composition == "suzuki":
        u = noise(1 / (4 - cbrt(4)))
        return [u, u, 1 - 4 * u, u, u]
    return [mpf(1)]


SINGLE = {
    "leapfrog": leapfrog,
    "implicit-midpoint": implicit_midpoint,
    "generalized-leapfrog": generalized_leapfrog,
    "block-leapfrog": block_leapfrog,
    **{name: functools.partial(splitting, name) for name in PALINDROMES},
}


def path(on, integrator, composition, omega, q, p, e, n):
    """The point after each of n steps, the start first."""
    sizes, points = parts(composition, on.noise), [(q, p)]
    copies = (q, p, q, p)
    for _ in range(n):
        z = points[-1]
        for size in sizes:
            h = on.noise(size * e)
            if integrator == "explicit-tao":
                copies = tuple(on.noise.each(list(part)) for part in tao(on, copies, h, omega))
                z = copies[:2]
            elif integrator == "projected-tao":
                z = projected_tao(on, z, h, omega)
            else:
                z = SINGLE[integrator](on, z, h)
            z = (on.noise.each(z[0]), on.noise.each(z[1]))
        points.append(z)
    return points

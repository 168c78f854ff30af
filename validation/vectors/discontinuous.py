"""The step of discontinuous HMC: smooth coordinates I by the leapfrog, the others, J, one after the other in a given order.

    H = -L(q) + sum_I p_i^2 / (2 M_i) + sum_J |p_j| / m_j

    p_I += e/2 dL/dq_I;   q_I += e/2 p_I / M_I
    j in J:  q* = q + e sign(p_j)/m_j along j,  U = L(q) - L(q*);   if |p_j|/m_j > U:  q = q*,  p_j -= sign(p_j) m_j U
                                                                    otherwise:         p_j = -p_j
    q_I += e/2 p_I / M_I;   p_I += e/2 dL/dq_I

L need not jump for the equations to hold, so that any target will do; ``staircase`` does jump, and has an end.
"""

from __future__ import annotations

from mpmath import inf, mp, mpf


def path(on, jumping, q, p, e, orders):
    """The point after each step, the start first; (M_I^-1 and 1/m_J together); and the least |(|p_j|/m_j - U)|."""
    noise, d = on.noise, len(q)
    smooth = [i for i in range(d) if i not in jumping]
    rates = on.metric.inverse or [mpf(1)] * d
    points, margin = [(q, p)], inf

    def value(x):
        return mp.fsum(noise.each(on.target.terms(x, on.c)))

    for order in orders:
        q, p = list(q), list(p)
        if smooth:
            kick(on, smooth, q, p, e / 2)
            drift(noise, smooth, rates, q, p, e / 2)
        for j in order:
            sign = mp.sign(p[j])
            there = [*q[:j], noise(q[j] + e * sign * rates[j]), *q[j + 1 :]]
            rise = value(q) - value(there)
            margin = min(margin, abs(abs(p[j]) * rates[j] - rise))
            if abs(p[j]) * rates[j] > rise:
                q, p[j] = there, noise(p[j] - sign * rise / rates[j])
            else:
                p[j] = -p[j]
        if smooth:
            drift(noise, smooth, rates, q, p, e / 2)
            kick(on, smooth, q, p, e / 2)
        points.append((q, p))
    return points, rates, margin


def kick(on, smooth, q, p, h):
    g = on.gradient(q)
    for i in smooth:
        p[i] = on.noise(p[i] + h * g[i])


def drift(noise, smooth, rates, q, p, h):
    for i in smooth:
        q[i] = noise(q[i] + h * rates[i] * p[i])


def energy(on, jumping, rates, q, p):
    """H"""
    kinetic = [abs(x) * r if i in jumping else x * x * r / 2 for i, (x, r) in enumerate(zip(p, rates, strict=True))]
    return on.noise(mp.fsum(kinetic)) - mp.fsum(on.noise.each(on.target.terms(q, on.c)))

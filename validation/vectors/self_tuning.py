"""Transitions of GIST and AutoStep with the leapfrog, randomness given.

gist      z_k is the state k steps after z. tau(z) is the least k <= max_steps with (q_k - q) . p_k <= 0 or
          |H(z_k) - H(z)| > 1000. With l(z) = max(1, floor(fraction tau)) and m(z) = tau - l + 1 choices, L = l + floor(u_1 m).
          y is z_L with p reversed. Accepted if u_2 < a, where a = min(1, exp(H(z) - H(y)) m(z) / m(y)) if
          l(y) <= L <= tau(y), else 0.
autostep  a = min(u_1, u_2) and b = max(u_1, u_2). r_j(z) = exp(-|H(z') - H(z)|), or min(1, exp(H(z) - H(z'))) unless
          symmetric, where z' is n steps of size 2^j e from z. j(z): if r_0 > b, the last j = 0, 1, ... such that r_0, ..., r_j
          are all > b; if r_0 < a, the first j = -1, -2, ... with r_j >= a; else 0; at most max_doublings in either direction. y
          is z' for j(z), with p reversed. Accepted if u_3 < min(1, exp(H(z) - H(y))) and j(y) = j(z).

``chosen``: L, or j(z). ``acceptance_rate``: the probability with which the last uniform is compared. The margin is the least
distance of a decision from its limit.
"""

from __future__ import annotations

from mpmath import mp, mpf

from validation.vectors.arithmetic import dot
from validation.vectors.kept_momenta import energy, moved, reversed_momentum


class Margin:
    """The least distance so far."""

    def __init__(self):
        self.least = mpf(1)

    def less(self, a, b, size=1):
        self.least = min(self.least, abs(a - b) / size)
        return a < b


def outcome(z, y, a, chosen, uniforms, margin):
    accepted = margin.less(uniforms[-1], a)
    out = {"q": y[0] if accepted else z[0], "accepted": int(accepted), "acceptance_rate": a, "chosen": chosen}
    return {**out, "uniforms_used": len(uniforms)}, margin.least


def gist(on, args, q, p, e, uniforms):
    """The fields of the record, and the margin."""
    z, margin = (q, p), Margin()
    low, tau = choices(on, args, z, e, margin)
    place = uniforms[0] * (tau - low + 1)
    margin.least = min(margin.least, place - mp.floor(place), mp.ceil(place) - place)
    L = low + int(mp.floor(place))
    end, error = moved(on, z, e, L)
    y = reversed_momentum(end)
    low_there, tau_there = choices(on, args, y, e, margin)
    possible = low_there <= L <= tau_there
    ratio = mpf(tau - low + 1) / (tau_there - low_there + 1)
    return outcome(z, y, min(mpf(1), mp.exp(-error) * ratio) if possible else mpf(0), L, uniforms, margin)


def choices(on, args, z, e, margin):
    """l(z) and tau(z)."""
    here, end, H0 = z, z, energy(on, z)
    for tau in range(1, args["max_steps"] + 1):  # noqa: B007
        end, _ = moved(on, end, e, 1)
        away = [a - b for a, b in zip(end[0], here[0], strict=True)]
        onward = margin.less(0, dot(away, end[1]), mp.norm(away) * mp.norm(end[1]))
        if not onward or abs(energy(on, end) - H0) > 1000:
            break
    place = mpf(args["fraction"]) * tau
    return max(1, int(mp.floor(place))), tau


def autostep(on, args, q, p, e, uniforms):
    """The fields of the record, and the margin."""
    z, margin = (q, p), Margin()
    band = min(uniforms[:2]), max(uniforms[:2])
    j = exponent(on, args, z, e, band, margin)
    end, error = moved(on, z, e * mpf(2) ** j, args["n"])
    y = reversed_momentum(end)
    same = exponent(on, args, y, e, band, margin) == j
    return outcome(z, y, min(mpf(1), mp.exp(-error)) if same else mpf(0), j, uniforms, margin)


def exponent(on, args, z, e, band, margin):
    """j(z)."""
    low, high = band

    def ratio(j):
        error = moved(on, z, e * mpf(2) ** j, args["n"])[1]
        return mp.exp(-abs(error)) if args["symmetric"] else min(mpf(1), mp.exp(-error))

    first, j = ratio(0), 0
    grows, shrinks = margin.less(high, first), margin.less(first, low)
    if grows:
        while j < args["max_doublings"] and margin.less(high, ratio(j + 1)):
            j += 1
    if shrinks:
        j = -1
        while j > -args["max_doublings"] and margin.less(ratio(j), low):
            j -= 1
    return j

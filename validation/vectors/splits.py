"""The steps that follow the parts of a split, with a constant metric. With g_m the gradient of log density m of M:

naive-split        p+ = p + e/2 sum_m g_m(q);  q' = q + e M^-1 p+;  p' = p+ + e/2 sum_m g_m(q')
randomized-split   in the order s_1, ..., s_M:  p += e/2 g_s(q);  q += e/M M^-1 p;  p += e/2 g_s(q)
symmetric-split    D = 2 (M - 1);  for m = 1, ..., M:  p += e/2 g_m(q);  if m < M:  q += e/D M^-1 p
                   then for m = M, ..., 1:             p += e/2 g_m(q);  if m > 1:  q += e/D M^-1 p
                   With M = 1, where nothing is left to drift, it is the leapfrog.

In a transition the order of a randomised split is drawn once. NUTS goes back in time by the inverse map: -e, and the order from
its end.
"""

from __future__ import annotations

from mpmath import mp, mpf

from validation.vectors import transitions
from validation.vectors.fields import derivatives_of, velocity
from validation.vectors.networks import part
from validation.vectors.steps import add


def gradient(on, batches, m, q):
    """g_m"""
    return derivatives_of(part(on.target, batches[m], len(batches)), on.c, q, 1, on.noise)[1]


def gradients(on, batches, q):
    """All of them."""
    return [gradient(on, batches, m, q) for m in range(len(batches))]


def stages(name, M, order):
    """A step as kicks by half of its size, each named by its part, and drifts, named by their share of it."""
    everyone, drift = list(range(M)), "drift"
    if name == "naive-split" or (name == "symmetric-split" and M == 1):
        return [*everyone, (drift, mpf(1)), *everyone]
    if name == "randomized-split":
        return [stage for m in order for stage in (m, (drift, mpf(1) / M), m)]
    if name == "symmetric-split":
        there = [stage for m in everyone for stage in (m, (drift, mpf(1) / (2 * (M - 1))))][:-1]
        return [*there, *reversed(there)]
    raise ValueError(f"no integrator {name!r} that follows the parts of a split")


def path(on, name, batches, order, q, p, e, n):
    """The point after each of n steps, the start first."""
    at, noise, points = on.at(q), on.noise, [(q, p)]
    for _ in range(n):
        for stage in stages(name, len(batches), order):
            if isinstance(stage, tuple):
                q = noise.each(add(q, stage[1] * e, velocity(at, p, noise)))
            else:
                p = noise.each(add(p, e / 2, gradient(on, batches, stage, q)))
        points.append((q, p))
    return points


def transition(on, args, q, p, e, uniforms):
    """HMC or NUTS: the fields of the record, and the margin."""
    batches, order, used = args["rows"], None, 0
    if args["integrator"] == "randomized-split":
        used = len(batches) - 1
        order = drawn_order(len(batches), uniforms[:used])
    if args["kernel"] == "hmc":
        end = path(on, args["integrator"], batches, order, q, p, e, args["n"])[-1]
        out, margin = transitions.decided(on, (q, p), end, uniforms[used])
    else:

        def step(z, e):
            way = order if order is None or e > 0 else order[::-1]
            return path(on, args["integrator"], batches, way, *z, e, 1)[-1]

        out, margin = transitions.Nuts(on, q, p, e, uniforms[used:], args["max_depth"], step).run()
    return {**out, "uniforms_used": used + out["uniforms_used"]}, margin


def drawn_order(M, uniforms):
    """Fisher and Yates: for k = M - 1, ..., 1 the entry floor(u (k + 1)) changes places with entry k."""
    order = list(range(M))
    for k, u in zip(range(M - 1, 0, -1), uniforms, strict=True):
        j = int(mp.floor(u * (k + 1)))
        order[j], order[k] = order[k], order[j]
    return order

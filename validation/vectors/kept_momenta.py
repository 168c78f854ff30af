"""Transitions of kernels that keep their momentum, randomness given: p is the momentum after the transition.

First p <- a p + sqrt(1 - a^2) M^1/2 z with the normals z. Then

ghmc     n steps to (q', p'); the end is accepted if u < min(1, r), r = exp(H - H'). With a shift s of the slice variable w:
         w <- w + s, less 2 if that is 1 or more; accepted if |w| < r, and then w <- w/r. A rejection gives (q, -p).
drhmc    stage k = 1, ..., K: n r^(k-1) steps of size e/r^(k-1) (``same_length``; otherwise n steps) and p' <- -p', from the
         same state x each time. The end y is accepted, with p' reversed again, if u_k < a_k(x),

             a_k(x) = min(1, exp(H(x) - H(y)) prod_{i<k} (1 - a_i(y)) / prod_{i<k} (1 - a_i(x))).

         If no stage accepts, the chain stays and p is reversed.

mams     M^1/2 z, and then p, are multiplied by a number, so that p' M^-1 p = d; n steps of a splitting whose kicks turn p:

             s^2 = g' M^-1 g,  D = h d^(1/2) s / (d - 1),  c = g' M^-1 p / (s d^(1/2)),  N = cosh D + c sinh D,
             p' = (p + d^(1/2) g / s (sinh D + c (cosh D - 1))) / N,  K <- K + (d - 1) log N

         accepted if u < exp(L(q') - L(q) - K). A rejection gives (q, -p).

The products are computed as they stand. The margin is the least distance of a decision from its limit.
"""

from __future__ import annotations

from mpmath import mp, mpf

from validation.vectors.arithmetic import dot
from validation.vectors.fields import energy_at, velocity
from validation.vectors.steps import add, coefficients_of, path


def refreshed(on, a, p, normals):
    """a p + sqrt(1 - a^2) M^1/2 z, M diagonal."""
    W = [mpf(1)] * len(p) if on.metric.inverse is None else on.metric.inverse
    b = mp.sqrt(1 - a * a)
    return on.noise.each([a * x + b * z / mp.sqrt(w) for x, z, w in zip(p, normals, W, strict=True)])


def moved(on, z, e, n):
    """The end of n steps, and H there less H here."""
    end = path(on, "leapfrog", None, None, *z, e, n)[-1]
    return end, energy(on, end) - energy(on, z)


def energy(on, z):
    return energy_at(on.target, on.c, on.metric, *z, on.noise)


def reversed_momentum(z):
    return z[0], [-x for x in z[1]]


def ghmc(on, args, q, p, normals, uniforms, variable, e):
    """The fields of the record, and the margin."""
    z = q, refreshed(on, on.noise(mpf(args["persistence"])), p, normals)
    end, error = moved(on, z, e, args["n"])
    ratio = mp.exp(-error)
    out = {"acceptance_rate": min(mpf(1), ratio), "uniforms_used": len(uniforms)}
    if variable is None:
        accepted, margin = uniforms[0] < ratio, abs(uniforms[0] - out["acceptance_rate"])
    else:
        w = variable + mpf(args["slice_shift"])
        w = w - 2 if w >= 1 else w
        accepted, margin = abs(w) < ratio, abs(abs(w) - ratio)
        out["slice_variable"] = w / ratio if accepted else w
    out["q"], out["p"] = end if accepted else reversed_momentum(z)
    return {**out, "accepted": int(accepted)}, margin


def projected(on, q, p):
    """P times a number, so that p' M^-1 p = d."""
    factor = mp.sqrt(len(p) / dot(p, velocity(on.at(q), p, on.noise)))
    return on.noise.each([factor * x for x in p])


def turned(on, q, p, h):
    """P after a turn, and the change of K."""
    d, g = mpf(len(p)), on.gradient(q)
    s = mp.sqrt(dot(g, velocity(on.at(q), g, on.noise)))
    D, c = h * mp.sqrt(d) * s / (d - 1), dot(g, velocity(on.at(q), p, on.noise)) / (s * mp.sqrt(d))
    N = on.noise(mp.cosh(D) + c * mp.sinh(D))
    towards = mp.sqrt(d) / s * (mp.sinh(D) + c * (mp.cosh(D) - 1))
    return on.noise.each([x / N for x in add(p, towards, g)]), (d - 1) * mp.log(N)


def refreshed_velocity(on, a, q, p, normals):
    """a p + sqrt(1 - a^2) M^1/2 z, each of the two and the sum multiplied by a number."""
    n = projected(on, q, refreshed(on, mpf(0), [mpf(0)] * len(q), normals))
    return projected(on, q, add([a * x for x in p], mp.sqrt(1 - a * a), n))


def isokinetic_step(on, integrator, x, u, e):
    """The end of a step of a splitting, and the change of K."""
    K = mpf(0)
    for k, size in enumerate(coefficients_of(integrator)[1]):
        h = on.noise(size) * e
        if k % 2 == 0:
            u, change = turned(on, x, u, h)
            K += change
        else:
            x = on.noise.each(add(x, h, velocity(on.at(x), u, on.noise)))
    return x, u, K


def mams(on, args, q, p, normals, uniforms, e):
    """The fields of the record, and the margin."""
    zero = [mpf(0)] * len(q)
    p = refreshed_velocity(on, on.noise(mpf(args["persistence"])), q, p, normals)
    x, u, K = q, p, mpf(0)
    for _ in range(args["n"]):
        x, u, change = isokinetic_step(on, args["integrator"], x, u, e)
        K += change
    ratio = mp.exp(energy(on, (q, zero)) - energy(on, (x, zero)) - K)
    out = {"acceptance_rate": min(mpf(1), ratio), "uniforms_used": len(uniforms)}
    accepted = uniforms[0] < ratio
    out["q"], out["p"] = (x, u) if accepted else reversed_momentum((q, p))
    return {**out, "accepted": int(accepted)}, abs(uniforms[0] - out["acceptance_rate"])


def drhmc(on, args, q, p, normals, uniforms, e):
    """The fields of the record, and the margin."""
    z = q, refreshed(on, on.noise(mpf(args["persistence"])), p, normals)
    margin, found = mpf(1), []
    for k in range(1, args["max_stages"] + 1):
        there, a = stage(on, args, z, k, e, found)
        found.append(a)
        u = uniforms[k - 1]
        margin = min(margin, abs(u - a))
        if u < a:
            break
    else:
        k, there = 0, z
    q, p = reversed_momentum(there)
    return {"q": q, "p": p, "stage": k, "probabilities": found, "uniforms_used": len(found)}, margin


def stage(on, args, z, k, e, earlier):
    """The proposal of stage k from z, its momentum reversed, and a_k, where ``earlier`` are a_1, ..., a_{k-1}."""
    r = args["reduction"]
    n = args["n"] * r ** (k - 1) if args["same_length"] else args["n"]
    end, error = moved(on, z, e / mpf(r) ** (k - 1), n)
    there = reversed_momentum(end)
    ghosts: list = []
    for i in range(1, k):
        ghosts.append(stage(on, args, there, i, e, ghosts)[1])
    ratio = mp.exp(-error) * mp.fprod(1 - a for a in ghosts) / mp.fprod(1 - a for a in earlier)
    return there, min(mpf(1), ratio)

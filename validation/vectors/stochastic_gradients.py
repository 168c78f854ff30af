"""Minibatch updates as the papers write them, in their own variables: g is the gradient of the whole as minibatch m estimates
it, M g_m, W = M^-1, diagonal, and each update ends with q <- q + v.

sgd      v <- mu v + eps_t W g                                                                            (mu: momentum)
sgld     v = eps_t/2 W g + sqrt(eps_t W) z                                                         Welling and Teh (2011)
sghmc    v <- (1 - alpha) v + eta g + sqrt(2 (alpha - beta) eta) z,  eta = eps_t^2 W               Chen et al. (2014)

Between two updates it is p that is kept, v = h_t W p with h_t^2 = eps_t, eps_t/2 and eps_t^2. Steps, and the noise of an update
in the exploration of its cycle:

eps_t = eps (1 + t/b)^-gamma     or     eps (cos(pi (t mod T)/T) + 1)/2,  z = 0 while (t mod T)/T < exploration
"""

from __future__ import annotations

from mpmath import mp, mpf

from validation.vectors.splits import drawn_order, gradient

WITH_NOISE = ("sgld", "sghmc")


def step_size(args, eps, t):
    """eps_t"""
    if "decay" in args:
        b, gamma = map(mpf, args["decay"])
        return eps * mp.power(1 + t / b, -gamma)
    if "cycle" in args:
        return eps * mp.cos(mp.pi * (t % args["cycle"]) / (2 * args["cycle"])) ** 2
    return eps


def noisy(args, t):
    """Whether the t-th update has noise."""
    exploring = "exploration" in args and t % args["cycle"] < mpf(args["exploration"]) * args["cycle"]
    return args["kernel"] in WITH_NOISE and not exploring


def updates(on, args, q, p, eps, uniforms, normals):
    """The fields of the record after n updates."""
    batches, d, noise, left = args["rows"], len(q), on.noise, list(normals)
    M, uniforms = len(batches), list(uniforms)
    W = [mpf(1)] * d if on.metric.inverse is None else on.metric.inverse
    constants = {key: noise(mpf(args.get(key, 0))) for key in ("momentum", "friction", "noise_estimate")}
    for t in range(args["n"]):
        if t % M == 0:
            order, uniforms = drawn_order(M, uniforms[: M - 1]), uniforms[M - 1 :]
        e = noise(step_size(args, eps, t))
        g = [M * x for x in gradient(on, batches, order[t % M], q)]
        z = left.pop(0) if noisy(args, t) else [mpf(0)] * d
        if args["kernel"] == "sgd":
            h = [mp.sqrt(e) * w for w in W]
            v = [constants["momentum"] * a * b + e * w * s for a, b, w, s in zip(h, p, W, g, strict=True)]
        elif args["kernel"] == "sgld":
            h = [mp.sqrt(e / 2) * w for w in W]
            v = [e / 2 * w * s + mp.sqrt(e * w) * x for w, s, x in zip(W, g, z, strict=True)]
        else:
            alpha, beta = constants["friction"], constants["noise_estimate"]
            h, eta = [e * w for w in W], [e * e * w for w in W]
            size = [mp.sqrt(2 * (alpha - beta) * x) for x in eta]
            v = [(1 - alpha) * a * b for a, b in zip(h, p, strict=True)]
            v = [a + b * s + c * x for a, b, s, c, x in zip(v, eta, g, size, z, strict=True)]
        v = noise.each(v)
        q, p = noise.each([a + b for a, b in zip(q, v, strict=True)]), [a / b for a, b in zip(v, h, strict=True)]
    assert not left
    assert not uniforms
    return {"q": q, "p": p, "uniforms_used": uniforms_of(args)}


def uniforms_of(args):
    """M - 1 for each pass."""
    M = len(args["rows"])
    return -(-args["n"] // M) * (M - 1)

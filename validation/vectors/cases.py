"""Which records there are: inputs only. New ones are added at the end of their list, so that the numbers of old ones stay.

Points are short doubles (12 bits) from a fixed stream for each target and purpose.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from itertools import pairwise

from mpmath import mp, mpf

from validation.vectors import fields, stochastic_gradients, transitions
from validation.vectors.arithmetic import Exact, combine, digits, eigen, tensors
from validation.vectors.fields import Metric
from validation.vectors.networks import NETWORKS
from validation.vectors.records import FORMAT_VERSION, answer, hexed
from validation.vectors.steps import PALINDROMES, Dynamics
from validation.vectors.targets import JUMPING, SCHOOLS, TARGETS

ALPHAS = (1e-3, 1.0, 1e3, 1e8)
SOFT = ("softabs", "diagonal-softabs", "outer-product-softabs", "diagonal-outer-product-softabs")
HIERARCHICAL = {  # v before x; log tau before the rest; x[2] before x[0] before x[1], with two terms and two parents
    "funnel": {
        "metric": "hierarchical",
        "constants": [[math.log(1 / 9 + 3 / 2), 0.0, 0.0, 0.0]],
        "parents": [[0, 0, 0, 0]],
        "coefficients": [[[0.0, 1.0, 1.0, 1.0]]],
    },
    "eight-schools-centred": {  # likelihood and prior; the mass 2 J + 1/2 of log tau in equal parts
        "metric": "hierarchical",
        "constants": [
            [*(-2 * math.log(s) for s in SCHOOLS["sigma"]), math.log(1 / 25), math.log(3.25)],
            [0.0, 0.0, 0.0, math.log(3), math.log(3.25)],
        ],
        "parents": [[4, 4, 4, 4, 4]],
        "coefficients": [[[0.0, 0.0, 0.0, 0.0, 0.0]], [[-2.0, -2.0, -2.0, -2.0, 0.0]]],
    },
    "gaussian": {
        "metric": "hierarchical",
        "constants": [[0.5, -0.25, 0.125], [-1.0, 0.75, -0.5]],
        "parents": [[2, 2, 0], [2, 0, 0]],
        "coefficients": [[[0.75, 0.5, 0.0], [0.0, -0.375, 0.0]], [[-0.5, 0.25, 0.0], [0.0, 0.625, 0.0]]],
    },
}
LEVELS = {"funnel": [0, 1, 1, 1], "eight-schools-centred": [1, 1, 1, 1, 0], "gaussian": [1, 2, 0]}
RIEMANNIAN = ("implicit-midpoint", "generalized-leapfrog", "explicit-tao", "projected-tao")


def short(x, bits=12):
    """The nearest double of so many bits."""
    if x == 0:
        return 0.0
    m, e = math.frexp(float(x))
    return math.ldexp(round(m * 2**bits), e - bits)


class Stream:
    """Numbers for one target and purpose."""

    def __init__(self, *words):
        self.rng = random.Random(" ".join(map(str, words)))

    def uniform(self, low=-1.0, high=1.0):
        return short(low + (high - low) * self.rng.random())

    def vector(self, d, size=1.0):
        return [self.uniform(-size, size) for _ in range(d)]

    def point(self, target, share=1.0):
        return [
            short(c + share * s * (2 * self.rng.random() - 1))
            for c, s in zip(target.centre, target.spread, strict=True)
        ]


class Numbering:
    """Records with their ids."""

    def __init__(self, target: str | None = None):
        self.counts: dict = {}
        self.target = target

    def targets(self, *names):
        """Those of ``names`` (none: all) that are asked for."""
        return [(TARGETS | NETWORKS)[name] for name in names or TARGETS if self.target in (None, name)]

    def __call__(self, op, target, args, **inputs):
        n = self.counts[op, target] = self.counts.get((op, target), 0) + 1
        name = f"{op}/{target}/{n:04d}"
        return {"v": FORMAT_VERSION, "id": name, "op": op, "target": target, "args": hexed(args), **hexed(inputs)}


def of_file(file: str, target: str | None = None) -> Iterator[dict]:
    """The records of one file (of one target), without their answers."""
    return (r for r in MAKERS[file](Numbering(target)) if target in (None, r["target"]))


def models(new):
    for target in new.targets():
        stream = Stream("models", target.name)
        points = target.special + [stream.point(target) for _ in range(4)]
        for q in points:
            yield new("logp", target.name, {}, q=q, reference=target.centre)
        for op in ("grad", "hess", "third"):
            for q in points:
                yield new(op, target.name, {}, q=q)
        if target.information is not None:
            for op in ("fisher", "fisher_derivative"):
                for q in points:
                    yield new(op, target.name, {}, q=q)


def soft_settings(target):
    """Points and SoftAbs metrics: every alpha at the first special point, one more at two others."""
    stream = Stream("metrics", target.name)
    points = [*target.special[:2], stream.point(target, 0.7)]
    for name in SOFT:
        for k, q in enumerate(points):
            for alpha in ALPHAS if k == 0 or name == "softabs" else (1.0,):
                yield q, {"metric": name, "alpha": alpha}
    yield (
        points[-1],
        {"metric": "outer-product-softabs", "alpha": printed_alpha(target, points[-1]), "as_published": True},
    )


def printed_alpha(target, q):
    """So that alpha g.g is about 2: the printed formula overflows in double precision where it is large."""
    with digits(18):
        g = tensors(lambda x: mp.fsum(target.terms(x, target.ready(Exact()))), combine(mpf, q), 1)[1]
        return short(2 / mp.fdot(g, g), 6)


def metrics(new):
    for target in new.targets():
        for q, args in soft_settings(target):
            yield new("metric", target.name, args, q=q)
    for target in new.targets(*HIERARCHICAL):
        stream = Stream("hierarchical", target.name)
        for _ in range(2):
            yield new("metric", target.name, HIERARCHICAL[target.name], q=stream.point(target))
        for args in (HIERARCHICAL[target.name], {"metric": "fisher"}):
            for _ in range(2):
                q, z = stream.point(target, 0.7), [short(stream.rng.gauss(0.0, 1.0)) for _ in target.centre]
                yield new("momentum", target.name, args, q=q, normals=z)


def momentum(target, args, q, stream):
    """Of the size that N(0, G(q)) gives."""
    with digits(18):
        at = geometry(target, args, q)
        return [short(math.sqrt(at.G[i][i]) * stream.uniform(-1.5, 1.5)) for i in range(len(q))]


def geometry(target, args, q):
    return fields.geometry(target, target.ready(Exact()), metric_of(args), combine(mpf, q), Exact(), force=False)


def metric_of(args):
    terms = tuple(args[key] for key in ("constants", "parents", "coefficients")) if "parents" in args else None
    soft = args.get("alpha"), args.get("as_published", False)
    return Metric(args["metric"], *soft, args.get("inverse_mass"), terms, args.get("levels"))


def forces(new):
    for target in new.targets():
        stream = Stream("forces", target.name)
        for q, args in soft_settings(target):
            yield new("dH", target.name, args, q=q, p=momentum(target, args, q, stream))
        if target.information is not None:
            for _ in range(2):
                q, args = stream.point(target, 0.7), {"metric": "fisher"}
                yield new("dH", target.name, args, q=q, p=momentum(target, args, q, stream))
    for target in new.targets(*HIERARCHICAL):
        stream, args = Stream("hierarchical forces", target.name), HIERARCHICAL[target.name]
        for _ in range(2):
            q = stream.point(target, 0.7)
            yield new("dH", target.name, args, q=q, p=momentum(target, args, q, stream))


def stable_step(target, q, share):
    """``share`` over the root of the largest curvature."""
    with digits(18):
        H = tensors(lambda x: mp.fsum(target.terms(x, target.ready(Exact()))), combine(mpf, q), 2)[2]
        return short(share / mp.sqrt(max(map(abs, eigen(H)[0]))), 6)


def constant_metrics(target, stream):
    """Identity, a diagonal and a dense M^-1 of the scale of the target's spread."""
    d, s = target.dim, target.spread
    variances = [short(x * x * (1 + stream.uniform(-0.5, 0.5)), 6) for x in s]
    dense = [
        [short(v if i == j else 0.25 * s[i] * s[j] * (-1) ** (i + j) / (1 + abs(i - j)), 6) for j in range(d)]
        for i, v in enumerate(variances)
    ]
    return (
        {"metric": "identity"},
        {"metric": "diagonal", "inverse_mass": variances},
        {"metric": "dense", "inverse_mass": dense},
    )


def scaled_step(target, args, q, share):
    """The same for a constant metric: the curvature is measured in units of M^-1."""
    with digits(18):
        c, at = target.ready(Exact()), geometry(target, args, q)
        H = tensors(lambda x: mp.fsum(target.terms(x, c)), combine(mpf, q), 2)[2]
        size = max(mp.fsum(abs(x) for x in row) for row in H)
        return short(share / mp.sqrt(size * max(mp.fsum(abs(x) for x in row) for row in at.inverse)), 6)


def curved_metrics(target):
    yield {"metric": "softabs", "alpha": 4.0}
    if target.information is not None:
        yield {"metric": "fisher"}


def one_step(new, target, args, stream, share=0.25, **more):
    """A record of steps; another point, then a smaller step, where plain iteration would not solve the equations."""
    constant = args["metric"] in ("identity", "diagonal", "dense")
    for k in range(20):
        q, size = stream.point(target, 0.5), share * 0.5 ** (k // 3)
        eps = scaled_step(target, args, q, 2 * size) if constant else short(size, 6)
        ask = {**args, "eps": eps, **more}, {"q": q, "p": momentum(target, args, q, stream)}
        try:
            trial = answer(Numbering()("step", target.name, ask[0], **ask[1]), wanted=18)[0]
        except (ArithmeticError, MemoryError):  # no solution, or exp of something huge on the way
            continue
        if abs(trial["energy_error"]) > 10:
            continue
        return new("step", target.name, ask[0], **ask[1])
    raise RuntimeError(f"no step of {more['integrator']} on {target.name}")


def steps(new):
    for target in new.targets():
        stream = Stream("leapfrog", target.name)
        for args in constant_metrics(target, stream):
            for n in (1, 5):
                yield one_step(new, target, args, stream, integrator="leapfrog", n=n)
        for composition in ("yoshida", "suzuki"):
            args = constant_metrics(target, stream)[1]
            yield one_step(new, target, args, stream, integrator="leapfrog", composition=composition, n=2)
        for args in curved_metrics(target):
            for integrator in RIEMANNIAN:
                omega = {"omega": 1.5} if integrator.endswith("tao") else {}
                yield one_step(new, target, args, stream, 0.125, integrator=integrator, n=1, **omega)
    for target in new.targets("gaussian", "banana"):
        stream = Stream("constant metrics", target.name)
        for integrator in RIEMANNIAN:
            omega = {"omega": 0.5} if integrator.endswith("tao") else {}
            args = constant_metrics(target, stream)[2]
            yield one_step(new, target, args, stream, 0.125, integrator=integrator, n=2, **omega)
    for target in new.targets("banana", "funnel"):
        stream = Stream("other metrics", target.name)
        for metric in SOFT[1:]:
            for integrator in RIEMANNIAN:
                omega = {"omega": 1.0} if integrator.endswith("tao") else {}
                args = {"metric": metric, "alpha": 1.0}
                yield one_step(new, target, args, stream, 0.0625, integrator=integrator, n=1, **omega)
        for integrator in RIEMANNIAN:
            omega = {"omega": 1.0} if integrator.endswith("tao") else {}
            args = {"metric": "softabs", "alpha": 1e6}
            yield one_step(new, target, args, stream, 0.125, integrator=integrator, n=3, **omega)
            for composition in ("yoshida", "suzuki"):
                args = {"metric": "softabs", "alpha": 4.0}
                more = {"integrator": integrator, "composition": composition, "n": 1, **omega}
                yield one_step(new, target, args, stream, 0.125, **more)
    for target in new.targets(*HIERARCHICAL):
        stream, levels = Stream("block leapfrog", target.name), {"levels": LEVELS[target.name]}
        for args in (HIERARCHICAL[target.name], {"metric": "fisher"}):
            for n in (1, 3) if args["metric"] == "hierarchical" or target.name != "gaussian" else ():
                yield one_step(new, target, {**args, **levels}, stream, integrator="block-leapfrog", n=n)
        more = {"integrator": "block-leapfrog", "composition": "yoshida", "n": 1}
        yield one_step(new, target, {**HIERARCHICAL[target.name], **levels}, stream, 0.125, **more)
    for target in new.targets("gaussian", "banana", "funnel"):
        stream = Stream("splittings", target.name)
        for integrator, args in zip(PALINDROMES, itertools.cycle(constant_metrics(target, stream))):
            for n in (1, 3):
                yield one_step(new, target, args, stream, integrator=integrator, n=n)


def discontinuous_steps(new):
    """On smooth targets too: the equations do not ask whether L jumps."""
    for target in [*new.targets(), *(t for t in JUMPING.values() if new.target in (None, t.name))]:
        stream = Stream("discontinuous", target.name)
        last, inverse = target.dim - 1, {"metric": "diagonal", "inverse_mass": [short(s, 6) for s in target.spread]}
        sets = [[last], [0, last], list(range(target.dim))] if target.name in TARGETS else [[1]]
        for jumping in sets:
            for args, n in (({"metric": "identity"}, 1), (inverse, 3)):
                yield discontinuous_step(new, target, args, stream, jumping, n)


def discontinuous_step(new, target, args, stream, jumping, n):
    """A record whose decisions have a margin, and whose energy error is moderate."""
    for k in range(60):
        q, p = stream.point(target, 0.5), stream.vector(target.dim, 1.5)
        orders = [stream.rng.sample(jumping, len(jumping)) for _ in range(n)]
        ask = {**args, "discontinuous": jumping, "orders": orders, "eps": short(0.5 * 0.7 ** (k // 4), 6)}
        if any(x == 0 for x in p):
            continue
        trial, facts = answer(Numbering()("discontinuous_step", target.name, ask, q=q, p=p), wanted=18)
        if facts["margin"] > LEAST_MARGIN and abs(trial["energy_error"]) < 5:
            return new("discontinuous_step", target.name, ask, q=q, p=p)
    raise RuntimeError(f"no discontinuous step on {target.name}")


LEAST_MARGIN = 1e-4  # far above any tolerance


def decided(draw):
    """The first of ``draw()``'s records whose decisions have a margin."""
    for _ in range(200):
        try:
            record, margin = draw()
        except (ArithmeticError, MemoryError):  # as in one_step
            continue
        if margin > LEAST_MARGIN:
            return record
    raise RuntimeError("no record with a margin")


def transitions_of_hmc(new, target, stream, args, **more):
    def draw():
        q, n = stream.point(target, 0.6), more["n"]
        constant = args["metric"] in ("identity", "diagonal", "dense")
        eps = scaled_step(target, args, q, 1.25) if constant else short(0.25, 6)
        p, u = momentum(target, args, q, stream), stream.uniform(0.0, 1.0)
        with digits(18):
            on = Dynamics(target, target.ready(Exact()), metric_of(args), Exact())
            points = combine(mpf, q), combine(mpf, p)
            out, margin = transitions.hmc(on, more["integrator"], None, None, *points, mpf(eps), n, mpf(u))
        ask = {"kernel": "hmc", **args, "eps": eps, **more}
        # A uniform below a probability of 1 is no decision; a rejection by hundreds overflows elsewhere.
        return (ask, q, p, u), margin if abs(out["energy_error"]) < 20 else 0

    ask, q, p, u = decided(draw)
    return new("transition", target.name, ask, q=q, p=p, uniforms=[u])


def transitions_of_nuts(new, target, stream, args, share, max_depth):
    def draw():
        q = stream.point(target, 0.6)
        eps, p = scaled_step(target, args, q, share), momentum(target, args, q, stream)
        uniforms = [stream.uniform(0.0, 1.0) for _ in range(2 ** (max_depth + 1) + 2 * max_depth)]
        with digits(18):
            on = Dynamics(target, target.ready(Exact()), metric_of(args), Exact())
            numbers = combine(mpf, q), combine(mpf, p), mpf(eps)
            out, margin = transitions.Nuts(on, *numbers, uniforms, max_depth).run()
        ask = {"kernel": "nuts", **args, "eps": eps, "max_depth": max_depth}
        return (ask, q, p, uniforms[: out["uniforms_used"]]), margin

    ask, q, p, uniforms = decided(draw)
    return new("transition", target.name, ask, q=q, p=p, uniforms=uniforms)


def transitions_of_walnuts(new, target, stream, args, share, **options):
    """One that reads more than two uniforms, and whose macro steps are decided with a margin."""
    ask = {"kernel": "walnuts", **args, **options}

    def draw():
        q = stream.point(target, 0.6)
        eps, p = scaled_step(target, args, q, share), momentum(target, args, q, stream)
        uniforms = [stream.uniform(0.0, 1.0) for _ in range(2 ** (options["max_depth"] + 2) + 2)]
        inputs = {"q": q, "p": p, "uniforms": uniforms}
        out, facts = answer(Numbering()("transition", target.name, {**ask, "eps": eps}, **inputs), wanted=18)
        fit = out["uniforms_used"] > 4 and abs(out["energy_error"]) < 20 and out["index_in_trajectory"] != 0
        return (eps, q, p, uniforms[: out["uniforms_used"]]), facts["margin"] if fit else 0

    eps, q, p, uniforms = decided(draw)
    return new("transition", target.name, {**ask, "eps": eps}, q=q, p=p, uniforms=uniforms)


def transitions_records(new):
    for target in new.targets():
        stream = Stream("transitions", target.name)
        for args in constant_metrics(target, stream):
            for n in (1, 4, 10):
                yield transitions_of_hmc(new, target, stream, args, integrator="leapfrog", n=n)
        for args in constant_metrics(target, stream):
            for share, depth in ((1.5, 3), (1.0, 3), (0.75, 4), (0.5, 5), (0.25, 2)):
                yield transitions_of_nuts(new, target, stream, args, share, depth)
    for target in new.targets("banana", "funnel"):
        stream = Stream("transitions, softabs", target.name)
        for integrator in RIEMANNIAN[:2]:
            args = {"metric": "softabs", "alpha": 4.0}
            yield transitions_of_hmc(new, target, stream, args, integrator=integrator, n=2)
    for target in new.targets("funnel", "eight-schools-centred"):
        stream = Stream("transitions, block leapfrog", target.name)
        for args in (HIERARCHICAL[target.name], {"metric": "fisher"}):
            args = {**args, "levels": LEVELS[target.name]}
            yield transitions_of_hmc(new, target, stream, args, integrator="block-leapfrog", n=2)
    for target in new.targets("banana", "funnel"):
        stream = Stream("transitions, splittings", target.name)
        for integrator in PALINDROMES:
            yield transitions_of_hmc(new, target, stream, {"metric": "identity"}, integrator=integrator, n=3)
        stream = Stream("transitions, walnuts", target.name)
        for args in constant_metrics(target, stream):
            for extra in (0.0, 0.25):
                options = {"max_depth": 3, "max_error": 0.25, "max_halvings": 6, "extra_halving": extra}
                yield transitions_of_walnuts(new, target, stream, args, 2.0, **options)
    yield from kept_transitions(new, KEPT, "kept transitions")
    yield from kept_transitions(new, KEPT_VELOCITIES, "kept velocities")
    yield from self_tuned_transitions(new)
    yield from transitions_with_refreshments(new)


SELF_TUNED = (  # options; uniforms; the share of the step size of a standard normal
    ("gist", {"fraction": 0.0, "max_steps": 12}, 2, 0.75),
    ("gist", {"fraction": 0.625, "max_steps": 12}, 2, 0.75),
    ("gist", {"fraction": 0.5, "max_steps": 3}, 2, 0.5),
    ("autostep", {"n": 1, "symmetric": True, "max_doublings": 6}, 3, 2.0),
    ("autostep", {"n": 3, "symmetric": False, "max_doublings": 6}, 3, 1.25),
    ("autostep", {"n": 2, "symmetric": True, "max_doublings": 1}, 3, 0.5),
)


def self_tuned_transitions(new):
    """Accepted, rejected by its uniform, and not reversible."""
    for target in new.targets("banana", "funnel"):
        stream = Stream("transitions, self-tuning", target.name)
        metrics = constant_metrics(target, stream)
        for k, (kernel, options, n_uniforms, share) in enumerate(SELF_TUNED):
            for way in range(3 if k % 3 < 2 else 2):
                args = {"kernel": kernel, **metrics[(k + way) % len(metrics)], **options}
                yield self_tuned_transition(new, target, stream, args, n_uniforms, share, way)


def self_tuned_transition(new, target, stream, args, n_uniforms, share, way):
    def draw():
        q = stream.point(target, 0.6)
        inputs = {"q": q, "p": momentum(target, args, q, stream)}
        inputs["uniforms"] = [stream.uniform(0.0, 1.0) for _ in range(n_uniforms)]
        asks = {**args, "eps": scaled_step(target, args, q, share)}
        out, facts = answer(Numbering()("transition", target.name, asks, **inputs), wanted=18)
        fit = (out["acceptance_rate"] == 0) == (way == 2) and out["accepted"] == (way == 0)
        fit = fit and (way == 2 or out["acceptance_rate"] > 1e-6)
        return (asks, inputs), facts["margin"] if fit else 0

    asks, inputs = decided(draw)
    return new("transition", target.name, asks, **inputs)


KEPT = (  # options; the share of the step size of a standard normal
    ("ghmc", {"n": 1, "persistence": 0.75}, 1.875),
    ("ghmc", {"n": 3, "persistence": 0.5, "slice_shift": 0.25}, 1.75),
    ("drhmc", {"n": 2, "persistence": 0.0, "max_stages": 2, "reduction": 4, "same_length": True}, 2.5),
    ("drhmc", {"n": 1, "persistence": 0.75, "max_stages": 3, "reduction": 2, "same_length": True}, 3.5),
    ("drhmc", {"n": 1, "persistence": 0.875, "max_stages": 4, "reduction": 2, "same_length": False}, 4.5),
)


KEPT_VELOCITIES = (
    ("mams", {"n": 1, "persistence": 0.75, "integrator": "mclachlan"}, 2.0),
    ("mams", {"n": 2, "persistence": 0.5, "integrator": "bcss(2)"}, 2.0),
)


def kept_transitions(new, kinds, title):
    for target in new.targets("gaussian", "banana"):
        stream = Stream(title, target.name)
        metrics = [args for args in constant_metrics(target, stream) if args["metric"] != "dense"]
        for late in (False, True):
            for k, (kernel, options, share) in enumerate(kinds):
                of = metrics[(k + late) % len(metrics)]
                yield kept_transition(new, target, of, stream, kernel, options, share, late)


def kept_transition(new, target, args, stream, kernel, options, share, late):
    """Decisions with a margin: GHMC and MAMS accept, or reject if ``late``; DRHMC reaches stage 2, or 3 if ``late``."""
    args = {"kernel": kernel, **args, "integrator": "leapfrog", **options}

    def draw():
        q = stream.point(target, 0.6)
        inputs = {"q": q, "p": momentum(target, args, q, stream)}
        inputs["normals"] = [short(stream.rng.gauss(0.0, 1.0)) for _ in q]
        inputs["uniforms"] = [stream.uniform(0.0, 1.0) for _ in range(options.get("max_stages", 1))]
        if "slice_shift" in options:
            inputs["uniforms"], inputs["slice_variable"] = [], stream.uniform()
        asks = {**args, "eps": scaled_step(target, args, q, share)}
        out, facts = answer(Numbering()("kept_transition", target.name, asks, **inputs), wanted=18)
        found = out.get("probabilities", [out.get("acceptance_rate")])
        reaches = min(3, options.get("max_stages", 3)) if late else 2
        fit = out["uniforms_used"] >= reaches if kernel == "drhmc" else out["accepted"] != late
        fit = fit and all(a > 1e-6 for a in found)
        return (asks, inputs), facts["margin"] if fit else 0

    asks, inputs = decided(draw)
    return new("kept_transition", target.name, asks, **inputs)


MALT = ({"n": 3, "persistence": 0.75}, 1.5), ({"n": 2, "persistence": 0.0}, 1.75)
MCLMC = (
    ({"n": 1, "persistence": 0.75, "integrator": "bcss(2)"}, 2.0),
    ({"n": 3, "persistence": 0.5, "integrator": "mclachlan"}, 1.5),
)


def transitions_with_refreshments(new):
    """MALT, accepted and rejected, and MCLMC."""
    for target in new.targets("gaussian", "banana"):
        stream = Stream("transitions, refreshments", target.name)
        metrics = [args for args in constant_metrics(target, stream) if args["metric"] != "dense"]
        for k, (options, share) in enumerate(MALT):
            for accepted in (1, 0):
                args = {"kernel": "malt", **metrics[(k + accepted) % 2], **options}
                yield malt_transition(new, target, stream, args, share, accepted)
        for args in metrics:
            for options, share in MCLMC:
                q = stream.point(target, 0.6)
                inputs = {"q": q, "p": momentum(target, args, q, stream), "uniforms": []}
                inputs["normals"] = [normals_of(stream, q) for _ in range(options["n"])]
                ask = {"kernel": "mclmc", **args, "eps": scaled_step(target, args, q, share), **options}
                yield new("kept_transition", target.name, ask, **inputs)


def normals_of(stream, q):
    return [short(stream.rng.gauss(0.0, 1.0)) for _ in q]


def malt_transition(new, target, stream, args, share, accepted):
    def draw():
        q = stream.point(target, 0.6)
        inputs = {"q": q, "p": momentum(target, args, q, stream), "uniforms": [stream.uniform(0.0, 1.0)]}
        inputs["normals"] = [normals_of(stream, q) for _ in range(args["n"] - 1)]
        asks = {**args, "eps": scaled_step(target, args, q, share)}
        out, facts = answer(Numbering()("transition", target.name, asks, **inputs), wanted=18)
        fit = out["accepted"] == accepted and 1e-6 < out["acceptance_rate"] < 1
        return (asks, inputs), facts["margin"] if fit else 0

    asks, inputs = decided(draw)
    return new("transition", target.name, asks, **inputs)


def networks(new):
    for target in new.targets(*NETWORKS):
        stream = Stream("networks", target.name)
        points = [stream.point(target) for _ in range(4)]
        for q in points:
            yield new("logp", target.name, {}, q=q, reference=target.centre)
        for q in points:
            yield new("grad", target.name, {}, q=q)
        for q in points[:2] if target.dim <= 13 else ():
            yield new("hess", target.name, {}, q=q)


SPLIT = {"linear-model": 0.25, "logistic": 0.5, "mlp": 0.125, "softmax-regression": 0.25, "cnn": 0.125}  # eps
PARTS = (1, 2, 3, 5)  # none of which but 1 divides the 7 rows of the first and the third; 3 not the 10 of the second
SPLITTING = ("naive-split", "randomized-split", "symmetric-split")


def batches(target, M, stream):
    """The rows in M batches whose sizes differ by at most one: as they come, or (``stream``) in another order."""
    n = len(target.data["y"])
    rows = list(range(n)) if stream is None else stream.rng.sample(range(n), n)
    ends = [-(-n * m // M) for m in range(M + 1)]
    return [rows[a:b] for a, b in pairwise(ends)]


def splits(new):
    for target in new.targets(*SPLIT):
        stream, metrics = Stream("splits", target.name), constant_metrics(target, Stream("splits, M", target.name))
        small = target.name in ("linear-model", "logistic", "mlp")
        for M in PARTS[1:] if small else (2,):
            rows = batches(target, M, stream if M == 2 else None)
            yield new("partial_grad", target.name, {"rows": rows}, q=stream.point(target))
        for i, M in enumerate(PARTS if small else (3,)):
            for k, integrator in enumerate(SPLITTING):
                yield split_step(new, target, metrics[(i + k) % 3], stream, integrator, M)
    yield from split_transitions(new)


def split_step(new, target, args, stream, integrator, M):
    """One or three steps; every other time in batches that are mixed."""
    q, n = stream.point(target, 0.5), stream.rng.choice((1, 3))
    args = {**args, "integrator": integrator, "rows": batches(target, M, stream.rng.choice((None, stream)))}
    if integrator == "randomized-split":
        args["order"] = stream.rng.sample(range(M), M)
    p = momentum(target, args, q, stream)
    return new("split_step", target.name, {**args, "eps": SPLIT[target.name], "n": n}, q=q, p=p)


FRICTION = {"friction": 0.25}
BASELINES = (  # options; the share of SPLIT that is the step, squared where the step is no time
    ("sgd", {"momentum": 0.75}, 0.5),
    ("sgd", {"decay": [8.0, 0.5]}, 0.5),
    ("sgld", {}, 0.5),
    ("sgld", {"decay": [8.0, 0.5]}, 0.5),
    ("sgld", {"cycle": 5, "exploration": 0.25}, 0.5),
    ("sghmc", FRICTION, 0.5),
    ("sghmc", {**FRICTION, "noise_estimate": 0.125, "cycle": 4}, 0.5),
    ("sghmc", {**FRICTION, "cycle": 4, "exploration": 0.5}, 0.5),
)


def split_transitions(new):
    for target in new.targets(*SPLIT):
        stream = Stream("split transitions", target.name)
        metrics = constant_metrics(target, Stream("splits, M", target.name))
        small = target.name in ("linear-model", "logistic", "mlp")
        for i, M in enumerate(PARTS[1:] if small else (3,)):
            for k, integrator in enumerate(SPLITTING):
                yield split_transition(new, target, metrics[(i + k) % 3], stream, integrator, M, n=1 + 2 * (k % 2))
        for k, integrator in enumerate(SPLITTING if small else ()):
            yield split_transition(new, target, metrics[k], stream, integrator, 3, max_depth=3)
        for i, (kernel, options, share) in enumerate(BASELINES):
            for M in (1 + i % 3, 5 - 2 * (i % 2)) if small else (3,) * (i % 3 == 2):
                yield minibatch_updates(new, target, metrics[i % 2], stream, kernel, options, share, M)
        for M in (2, 3) if small else ():
            yield split_transition(new, target, metrics[1], stream, "randomized-split", M, backward=True, max_depth=3)


def split_transition(new, target, args, stream, integrator, M, backward=False, **more):
    """HMC, or NUTS where ``max_depth`` is given: decided with a margin, and an energy error that others can represent;
    ``backward``: to a state before the start."""
    kernel = {"kernel": "nuts" if "max_depth" in more else "hmc"}
    rows = batches(target, M, stream.rng.choice((None, stream)))
    args = {**kernel, **args, "integrator": integrator, "rows": rows, "eps": SPLIT[target.name], **more}
    length = M - 1 + (1 if "n" in more else 2 ** (more["max_depth"] + 1) + 2 * more["max_depth"])

    def draw():
        q = stream.point(target, 0.5)
        inputs = {"q": q, "p": momentum(target, args, q, stream)}
        uniforms = [stream.uniform(0.0, 1.0) for _ in range(length)]
        asked = Numbering()("split_transition", target.name, args, **inputs, uniforms=uniforms)
        out, facts = answer(asked, wanted=18)
        fit = abs(out["energy_error"]) < 20 and (not backward or out["index_in_trajectory"] < -1)
        return {**inputs, "uniforms": uniforms[: out["uniforms_used"]]}, facts["margin"] if fit else 0

    return new("split_transition", target.name, args, **decided(draw))


def minibatch_updates(new, target, args, stream, kernel, options, share, M):
    """Two passes and a part of a third."""
    n, eps = 2 * M + 1, share * SPLIT[target.name]
    args = {"kernel": kernel, **args, **options, "rows": batches(target, M, stream.rng.choice((None, stream))), "n": n}
    args["eps"] = short(eps if kernel == "sghmc" else eps**2, 6)
    q = stream.point(target, 0.5)
    inputs = {"q": q, "p": momentum(target, args, q, stream)}
    uniforms = [stream.uniform(0.0, 1.0) for _ in range(stochastic_gradients.uniforms_of(args))]
    noisy = [t for t in range(n) if stochastic_gradients.noisy(args, t)]
    normals = [[short(stream.rng.gauss(0.0, 1.0)) for _ in q] for _ in noisy]
    return new("split_transition", target.name, args, **inputs, uniforms=uniforms, normals=normals)


TUNES = (
    *range(0, 32),
    50,
    75,
    99,
    *range(100, 112),
    *range(148, 206),
    224,
    225,
    226,
    250,
    299,
    300,
    301,
    349,
    350,
    375,
)
TUNES += (
    399,
    400,
    401,
    449,
    450,
    499,
    500,
    501,
    600,
    649,
    650,
    750,
    899,
    900,
    999,
    1000,
    1001,
    1500,
    2000,
    5000,
    10000,
)


def adaptation(new):
    for tune in TUNES:
        yield new("warmup_schedule", "stan", {"tune": tune, "rule": "stan"})
    for tune in TUNES:
        yield new("warmup_schedule", "stretched", {"tune": tune, "rule": "stretched"})
    stream = Stream("dual averaging")
    for initial, target, length in ((1.0, 0.8, 10), (0.125, 0.65, 25), (2.5, 0.95, 40), (0.5, 0.8, 5), (1e-3, 0.9, 30)):
        acceptances = [stream.uniform(0.0, 1.0) for _ in range(length)]
        yield new("dual_averaging", "stan", {"initial": initial, "target_accept": target}, acceptances=acceptances)
    yield new("dual_averaging", "stan", {"initial": 1.0, "target_accept": 0.8}, acceptances=[1.0] * 8 + [0.0] * 8)
    for n, d, centre in ((2, 1, 0.0), (5, 2, 0.0), (12, 3, 0.0), (25, 4, 1.0), (10, 2, 1024.0)):
        draws = [[short(centre + x, 20) for x in stream.vector(d, 3.0)] for _ in range(n)]
        yield new("welford", "stan", {}, draws=draws)


MAKERS = {
    "models": models,
    "metrics": metrics,
    "forces": forces,
    "steps": steps,
    "discontinuous": discontinuous_steps,
    "transitions": transitions_records,
    "adaptation": adaptation,
    "networks": networks,
    "splits": splits,
}

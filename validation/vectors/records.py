"""From a record's inputs to its answer, its tolerance, and the line in the file.

A record in the making is a dict: op, target, args, and inputs as they stand in the file, all real numbers as C99 hex strings.
Its answer depends on nothing else, so that a stored record can be made anew by itself.

Tolerance of a field: SAFETY times the largest deviation, over the field's numbers and PROBES runs with simulated rounding
(:mod:`~validation.vectors.arithmetic`), and at least SAFETY units of the field's size. The perturbations are independent, so
that a probe's deviation is about the root of the sum of squares of all the single errors' effects. Where two errors
dominate, which is the worst case, a probe lies below a tenth of that with probability 0.2, all of them with 6e-5, and the
factor 64 then still leaves 6 times it.
``gain``: by how much a field may move for each unit of error that a solver leaves in its unknowns, likewise with factor 16.
"""

from __future__ import annotations

import json

from mpmath import mp, mpf

from validation.vectors import (
    adaptation,
    discontinuous,
    fields,
    kept_momenta,
    refreshments,
    self_tuning,
    splits,
    steps,
    stochastic_gradients,
    transitions,
)
from validation.vectors.arithmetic import DIGITS, UNIT, Exact, Rounding, Unsolved, along, combine, digits, tensors
from validation.vectors.fields import Metric
from validation.vectors.networks import NETWORKS
from validation.vectors.targets import JUMPING, TARGETS

FORMAT_VERSION = 1
PRINTED = 36
PROBES, SOLVER_PROBES = 6, 4
PROBE_DIGITS = 30
SAFETY, SOLVER_SAFETY = 64, 16
SOLVER_DELTA = mpf(10) ** -12
IMPLICIT = ("implicit-midpoint", "generalized-leapfrog", "projected-tao")


class Disagreement(ArithmeticError):
    """Two routes to the same number differ."""


def parsed(value):
    """Hex strings anywhere in a record's inputs as floats."""
    if isinstance(value, str) and "0x" in value:
        return float.fromhex(value)
    if isinstance(value, list):
        return [parsed(item) for item in value]
    return {key: parsed(item) for key, item in value.items()} if isinstance(value, dict) else value


def hexed(value):
    """The way back."""
    if isinstance(value, float):
        return shortest(value.hex())
    if isinstance(value, list):
        return [hexed(item) for item in value]
    return {key: hexed(item) for key, item in value.items()} if isinstance(value, dict) else value


def shortest(text):
    """Without the mantissa's last zeros."""
    if "." not in text:
        return text
    mantissa, exponent = text.split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


# ---------------------------------------------------------------------------------------------------------- answers


class Question:
    """A record's inputs as the operations want them, at the present precision and with its rounding."""

    def __init__(self, record, noise):
        self.record, self.noise = record, noise
        self.args = parsed(record["args"])
        known = TARGETS | JUMPING | NETWORKS
        if record["target"] not in known and "q" in record:
            raise ValueError(f"no target {record['target']!r}; there are: {', '.join(known)}")
        self.target = known.get(record["target"])
        self.c = self.target.ready(noise) if self.target else None

    def vector(self, key):
        return self.noise.each(combine(mpf, parsed(self.record[key])))

    @property
    def metric(self):
        inverse = self.args.get("inverse_mass")
        if inverse is not None:
            inverse = self.noise.each(combine(mpf, inverse))
            if self.args["metric"] == "dense":
                inverse = [[inverse[max(i, j)][min(i, j)] for j in range(len(inverse))] for i in range(len(inverse))]
        terms = None
        if self.args["metric"] == "hierarchical":
            constants, coefficients = (
                self.noise.each(combine(mpf, self.args[key])) for key in ("constants", "coefficients")
            )
            terms = constants, self.args["parents"], coefficients
        soft = self.args.get("alpha"), self.args.get("as_published", False)
        return Metric(self.args["metric"], *soft, inverse, terms, self.args.get("levels"))

    @property
    def log_density(self):
        weights = [self.noise(mpf(1)) for _ in self.target.terms(self.vector("q"), self.c)]
        return lambda x: mp.fdot(weights, self.target.terms(x, self.c))

    def stepping(self):
        """(dynamics, integrator, composition, omega) and the step's size."""
        args, e = self.args, self.noise(mpf(self.args["eps"]))
        omega = None if "omega" not in args else self.noise(mpf(args["omega"]))
        on = steps.Dynamics(self.target, self.c, self.metric, self.noise)
        return (on, args.get("integrator", "leapfrog"), args.get("composition"), omega), e


def logp(ask):
    f, q = ask.log_density, ask.vector("q")
    # Rounding scales with the terms, so the reference point has its own.
    return {"difference": ask.noise(f(q)) - ask.noise(ask.log_density(ask.vector("reference")))}


def derivative(order):
    def answer(ask):
        values = tensors(ask.log_density, ask.vector("q"), order)
        # A derivative that vanishes is computed from lower ones, and as precise as they are.
        return {DERIVATIVES[order]: values[order]}, {"scale": max(map(size, values[1:]))}

    return answer


DERIVATIVES = {1: "grad", 2: "hess", 3: "third"}


def partial_grad(ask):
    """Of each part of a split, by itself."""
    on = steps.Dynamics(ask.target, ask.c, None, ask.noise)
    return {"partial_grad": splits.gradients(on, ask.args["rows"], ask.vector("q"))}


def fisher(ask):
    return {"fisher": ask.noise.matrix(ask.target.information(ask.vector("q"), ask.c))}


def fisher_derivative(ask):
    q = ask.vector("q")
    planes = [along(lambda x: ask.target.information(x, ask.c), q, k) for k in range(len(q))]
    planes = [ask.noise.matrix(plane) for plane in planes]
    d = range(len(q))
    scale = size(ask.target.information(q, ask.c))
    return {"fisher_derivative": [[[planes[k][i][j] for k in d] for j in d] for i in d]}, {"scale": scale}


def metric(ask):
    at = fields.geometry(ask.target, ask.c, ask.metric, ask.vector("q"), ask.noise, force=False)
    return {"metric": at.G, "log_det": at.log_det}, {"scale": {"log_det": mpf(len(at.G))}}


def momentum(ask):
    """p = C z, C the lower Cholesky factor of G."""
    q, z = ask.vector("q"), ask.vector("normals")
    at = fields.geometry(ask.target, ask.c, ask.metric, q, ask.noise, force=False)
    C = mp.cholesky(mp.matrix(at.G))
    return {"p": [mp.fsum(C[i, j] * z[j] for j in range(i + 1)) for i in range(len(z))]}


def force(ask):
    """From differences of H, and compared with the formulas' answer; with rounding, by the formulas."""
    q, p = ask.vector("q"), ask.vector("p")
    at = fields.geometry(ask.target, ask.c, ask.metric, q, ask.noise)
    H = fields.energy(at, p, ask.noise)
    answer = {"dq": fields.slope(at, p, ask.noise), "dp": fields.velocity(at, p, ask.noise)}
    parts = {"dq": size([abs(x) for x in at.g]), "dp": mpf(0)}
    if type(ask.noise) is Exact:
        dq, dp = fields.field_by_differences(ask.target, ask.c, ask.metric, q, p, ask.noise)
        for key, other in (("dq", dq), ("dp", dp)):
            gap = size(combine(lambda a, b: a - b, answer[key], other))
            if gap > mpf(10) ** -45 * (1 + size(other)):
                raise Disagreement(f"{ask.record['id']}: {key} by formula and by differences of H: {mp.nstr(gap, 3)}")
        answer = {"dq": dq, "dp": dp}
    return answer, {"H": H, "scale": parts}


def step(ask):
    stepping, e = ask.stepping()
    on = stepping[0]
    points = steps.path(*stepping, ask.vector("q"), ask.vector("p"), e, ask.args["n"])
    return moved(on, points)


def split_step(ask):
    (on, integrator, *_), e = ask.stepping()
    batches, order = ask.args["rows"], ask.args.get("order")
    return moved(on, splits.path(on, integrator, batches, order, ask.vector("q"), ask.vector("p"), e, ask.args["n"]))


def moved(on, points):
    """The fields of a step, from the points of its path."""
    (q, p), (q0, p0) = points[-1], points[0]
    H, H0 = (fields.energy_at(on.target, on.c, on.metric, *z, on.noise) for z in ((q, p), (q0, p0)))
    scale = {"energy_error": abs(H0)}
    return {"q": q, "p": p, "energy_error": H - H0}, {"H": H, "scale": scale}


def discontinuous_step(ask):
    (on, *_), e = ask.stepping()
    jumping = ask.args["discontinuous"]
    points, rates, margin = discontinuous.path(on, jumping, ask.vector("q"), ask.vector("p"), e, ask.args["orders"])
    H0, H = (discontinuous.energy(on, jumping, rates, *z) for z in (points[0], points[-1]))
    out = dict(zip("qp", points[-1], strict=True)) | {"energy_error": H - H0}
    return out, {"margin": margin, "H": H, "scale": {"energy_error": abs(H0)}}


def transition(ask):
    stepping, e = ask.stepping()
    q, p, uniforms = ask.vector("q"), ask.vector("p"), [mpf(u) for u in parsed(ask.record["uniforms"])]
    if ask.args["kernel"] == "hmc":
        out, margin = transitions.hmc(*stepping, q, p, e, ask.args["n"], uniforms[0])
    elif ask.args["kernel"] == "walnuts":
        options = (ask.args[key] for key in ("max_depth", "max_error", "max_halvings", "extra_halving"))
        out, margin = transitions.Walnuts(stepping[0], q, p, e, uniforms, *options).run()
    elif ask.args["kernel"] in ("gist", "autostep"):
        out, margin = getattr(self_tuning, ask.args["kernel"])(stepping[0], ask.args, q, p, e, uniforms)
    elif ask.args["kernel"] == "malt":
        out, margin = refreshments.malt(stepping[0], ask.args, q, p, ask.vector("normals"), uniforms, e)
    else:
        out, margin = transitions.Nuts(stepping[0], q, p, e, uniforms, ask.args["max_depth"]).run()
    return out, {"margin": margin, "scale": {"acceptance_rate": mpf(1), "energy_error": mpf(1)}}


def split_transition(ask):
    (on, *_), e = ask.stepping()
    q, p, uniforms = ask.vector("q"), ask.vector("p"), [mpf(u) for u in parsed(ask.record["uniforms"])]
    if ask.args["kernel"] in ("hmc", "nuts"):
        out, margin = splits.transition(on, ask.args, q, p, e, uniforms)
        return out, {"margin": margin, "scale": {"acceptance_rate": mpf(1), "energy_error": mpf(1)}}
    return stochastic_gradients.updates(on, ask.args, q, p, e, uniforms, ask.vector("normals"))


def kept_transition(ask):
    (on, *_), e = ask.stepping()
    q, p, normals = ask.vector("q"), ask.vector("p"), ask.vector("normals")
    uniforms = [mpf(u) for u in parsed(ask.record["uniforms"])]
    if ask.args["kernel"] == "mclmc":
        return refreshments.mclmc(on, ask.args, q, p, normals, e), {"scale": {"energy_error": mpf(1)}}
    if ask.args["kernel"] == "ghmc":
        variable = mpf(parsed(ask.record["slice_variable"])) if "slice_variable" in ask.record else None
        out, margin = kept_momenta.ghmc(on, ask.args, q, p, normals, uniforms, variable, e)
    elif ask.args["kernel"] == "mams":
        out, margin = kept_momenta.mams(on, ask.args, q, p, normals, uniforms, e)
    else:
        out, margin = kept_momenta.drhmc(on, ask.args, q, p, normals, uniforms, e)
    scale = dict.fromkeys(("acceptance_rate", "probabilities", "slice_variable"), mpf(1))
    return out, {"margin": margin, "scale": scale}


def dual_averaging(ask):
    args, noise = ask.args, ask.noise
    acceptances = [noise(mpf(a)) for a in parsed(ask.record["acceptances"])]
    return adaptation.dual_averaging(noise(mpf(args["initial"])), noise(mpf(args["target_accept"])), acceptances, noise)


def warmup_schedule(ask):
    rule = {"stan": adaptation.stan_windows, "stretched": adaptation.stretched_windows}[ask.args["rule"]]
    return {"phases": rule(ask.args["tune"])}


def welford(ask):
    return adaptation.variances(ask.vector("draws"), ask.noise)


OPERATIONS = {
    "logp": logp,
    "grad": derivative(1),
    "partial_grad": partial_grad,
    "hess": derivative(2),
    "third": derivative(3),
    "fisher": fisher,
    "fisher_derivative": fisher_derivative,
    "metric": metric,
    "momentum": momentum,
    "dH": force,
    "step": step,
    "split_step": split_step,
    "discontinuous_step": discontinuous_step,
    "transition": transition,
    "split_transition": split_transition,
    "kept_transition": kept_transition,
    "dual_averaging": dual_averaging,
    "warmup_schedule": warmup_schedule,
    "welford": welford,
}


DIFFERENCES = {"logp": 1, "grad": 1, "partial_grad": 1, "hess": 2, "fisher": 1, "fisher_derivative": 2, "momentum": 1}


def differences(record):
    """How many differences of differences a record takes at most."""
    constant = record["args"].get("metric") in ("identity", "diagonal", "dense")
    return 1 if constant else DIFFERENCES.get(record["op"], 3)


def size(value):
    """The largest absolute value in nested lists."""
    return max(map(size, value), default=mpf(0)) if isinstance(value, list) else abs(value)


def answer(record, noise=None, wanted=DIGITS):
    """(fields, facts) of a record at ``wanted`` digits; facts may hold H, margin and scale."""
    noise = Exact() if noise is None else noise
    if record["op"] not in OPERATIONS:
        raise ValueError(f"no op {record['op']!r}; there are: {', '.join(OPERATIONS)}")
    with digits(wanted, differences(record)):
        result = OPERATIONS[record["op"]](Question(record, noise))
        out, facts = result if isinstance(result, tuple) else (result, {})
        scales = facts.pop("scale", {})
        scales = scales if isinstance(scales, dict) else dict.fromkeys(out, scales)
        facts["scale"] = {key: max(size(out[key]), scales.get(key, 0)) for key in out if is_real(out[key])}
        return out, facts


def is_real(value):
    """Whether a field holds real numbers (not counts, names)."""
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, mpf)


# ------------------------------------------------------------------------------------------------------- the record


def tolerances(record, exact, out, scale):
    """(tol, gain) by field; ``exact`` is the run that gave ``out``."""
    tol = {key: SAFETY * UNIT * scale[key] for key in scale}
    for k in range(PROBES):
        probe, _ = answer(record, Rounding(f"{record['id']} {k}").follow(exact), PROBE_DIGITS)
        for key in tol:
            tol[key] = max(tol[key], SAFETY * size(combine(lambda a, b: a - b, probe[key], out[key])))
    gain = None
    if record["args"].get("integrator") in IMPLICIT:
        gain = dict.fromkeys(tol, mpf(0))
        for k in range(SOLVER_PROBES):
            noise = Unsolved(f"{record['id']} solver {k}", SOLVER_DELTA).follow(exact)
            probe, _ = answer(record, noise, PROBE_DIGITS)
            for key in gain:
                moved = size(combine(lambda a, b: a - b, probe[key], out[key])) / SOLVER_DELTA
                gain[key] = max(gain[key], SOLVER_SAFETY * moved)
    return tol, gain


def shown(value, scale):
    """Numbers as decimal strings; what lies below the precision of the whole field is zero."""
    if isinstance(value, list):
        return [shown(item, scale) for item in value]
    if not isinstance(value, mpf):
        return value
    if abs(value) <= mpf(10) ** -(DIGITS - 12) * max(scale, 1):
        return "0"
    return mp.nstr(value, PRINTED, strip_zeros=False, min_fixed=-4, max_fixed=9)


def printed(out, scale):
    """The record's ``out``."""
    with mp.workdps(DIGITS):
        return {key: shown(value, scale.get(key, mpf(0))) for key, value in out.items()}


def made(record):
    """The whole record: ``record`` with out, tol and what else there is."""
    exact = Exact()
    out, facts = answer(record, exact)
    tol, gain = tolerances(record, exact, out, facts["scale"])
    margin = facts.get("margin")
    if margin is not None and margin < mpf(10) ** -6:
        raise Disagreement(f"{record['id']}: a decision is made by a margin of {mp.nstr(margin, 3)}")
    full = {**record, "out": printed(out, facts["scale"]), "tol": {key: short(x) for key, x in tol.items()}}
    if gain is not None:
        full["gain"] = {key: short(x) for key, x in gain.items()}
    if "H" in facts:
        full["H"] = shown(facts["H"], mpf(1))
    if margin is not None:
        full["margin"] = short(margin)
    return full


def short(x):
    return float(mp.nstr(x, 3))


def agrees(record, wanted=DIGITS):
    """Whether a stored record's answer comes out again: the same text, or at another precision the same 34 digits."""
    out, facts = answer(record, wanted=wanted)
    if wanted == DIGITS:
        return printed(out, facts["scale"]) == record["out"]
    with digits(DIGITS):
        for key, value in out.items():
            if key not in facts["scale"]:
                if value != record["out"][key]:
                    return False
                continue
            gap = size(combine(lambda a, b: a - mpf(b), value, record["out"][key]))
            if gap > mpf(10) ** -34 * max(facts["scale"][key], mpf(10) ** -12):
                return False
    return True


def line(record):
    return json.dumps(record, separators=(",", ":"), allow_nan=False)

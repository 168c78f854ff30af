"""Answers of refhmc to the golden vectors, which were computed independently of it."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from refhmc.check import own
from refhmc.check.operations import OPERATIONS
from refhmc.check.protocol import names
from refhmc.check.report import Report
from refhmc.check.vectors import golden

SOLVER_TOLERANCE = 1e-14  # least tolerance of refhmc's solver; the vectors' gain converts it into an error of the step


@functools.cache
def model(name: str) -> Any:
    """Return refhmc's model of that name."""
    m, data = own.models, golden.targets()[name].data
    makers = {
        "gaussian": lambda: m.Gaussian(data["mean"], data["covariance"]),
        "banana": lambda: m.Banana(data["y"], data["sigma_y"], data["sigma_theta"]),
        "funnel": lambda: m.Funnel(3),
        "logistic": lambda: m.LogisticRegression(data["X"], data["y"], data["prior_scale"]),
        "eight-schools": lambda: m.EightSchools(y=data["y"], sigma=data["sigma"]),
        "eight-schools-centred": lambda: m.EightSchools(True, y=data["y"], sigma=data["sigma"]),
        "linear-regression": lambda: m.LinearRegression(data["X"], data["y"]),
        "ar": lambda: m.AR(data["y"], 2),
        "garch": lambda: m.GARCH(data["y"], data["sigma1"]),
        "gaussian-mixture": lambda: m.GaussianMixture(data["y"]),
        "gaussian-process": lambda: m.GaussianProcessRegression(data["x"], data["y"]),
        "linear-model": lambda: m.MLP([2, 1], data["X"], data["y"], **precisions(data)),
        "mlp": lambda: m.MLP([2, 3, 1], data["X"], data["y"], **precisions(data)),
        "mlp-classes": lambda: m.MLP(
            [2, 3, 3], data["X"], data["y"].astype(int), activation="selu", **precisions(data)
        ),
        "softmax-regression": lambda: m.SoftmaxRegression(data["X"], data["y"].astype(int), **precisions(data)),
        "cnn": lambda: m.CNN(
            data["X"], data["y"].astype(int), channels=(2,), side=2, dense=(3,), n_classes=3, **precisions(data)
        ),
    }
    return makers[name]()


def precisions(data: dict) -> dict:
    return {key: data[key] for key in ("output_precision", "prior_precision") if key in data}


@functools.cache
def split(name: str, rows: str) -> Any:
    """Return the same model with its data in batches, given as a JSON list."""
    return names.split(model(name), json.loads(rows))


def metric(args: dict) -> Any:
    """Return refhmc's metric with these arguments."""
    given = ("alpha", "as_published", "constants", "parents", "coefficients")
    options = {key: as_json(args[key]) for key in given if key in args}
    if "inverse_mass" in args:
        options["variances" if args["metric"] == "diagonal" else "covariance"] = args["inverse_mass"]
    return names.metric({"name": args["metric"], **options})


def of_parts(args: dict) -> str:
    """Return the batches in the form that :func:`split` takes."""
    return json.dumps([[int(i) for i in batch] for batch in args["rows"]])


def integrator(args: dict) -> Any:
    """Return refhmc's integrator with these arguments and a tight tolerance."""
    wanted = {"name": args["integrator"], **({"omega": args["omega"]} if "omega" in args else {})}
    if "order" in args:
        wanted["one_order"] = [int(m) for m in args["order"]]
    if "composition" in args:
        wanted = {"name": args["composition"], "base": wanted}
    return names.method(wanted, tolerance=SOLVER_TOLERANCE, max_iterations=1000)


def of_model(op: str) -> Callable[[golden.Record], dict]:
    """Return a function that answers with one of a model's methods."""
    return lambda r: {op: getattr(model(r.target), OPERATIONS[op].attribute)(r.inputs["q"])}


def logp(r: golden.Record) -> dict:
    L = model(r.target).log_density
    return {"difference": L(r.inputs["q"]) - L(r.inputs["reference"])}


def mass(r: golden.Record) -> dict:
    G = own.Hamiltonian(model(r.target), metric(r.args)).mass(r.inputs["q"])
    return {"metric": G, "log_det": np.linalg.slogdet(G).logabsdet}


def momentum(r: golden.Record) -> dict:
    kernel = own.HMC(step_size=0.1, n_steps=1, metric=metric(r.args))
    there = own.transition(model(r.target), kernel, r.inputs["q"], normals=r.inputs["normals"], uniforms=[0.5])
    return {"p": there.momentum}


def force(r: golden.Record) -> dict:
    H = own.Hamiltonian(model(r.target), metric(r.args))
    return {"dq": H.grad_q(r.inputs["q"], r.inputs["p"]), "dp": H.grad_p(r.inputs["q"], r.inputs["p"])}


def partial_grad(r: golden.Record) -> dict:
    parts = split(r.target, of_parts(r.args)).parts
    return {"partial_grad": np.array([part.gradient(r.inputs["q"]) for part in parts])}


def moved(r: golden.Record, of: Any) -> dict:
    """Return the state after n steps on the model ``of``."""
    H, a = own.Hamiltonian(of, metric(r.args)), r.args
    t = own.integrate(H, integrator(a), r.inputs["q"], r.inputs["p"], step_size=a["eps"], n_steps=a["n"])
    if not t.converged.all():
        raise ArithmeticError(f"The implicit equation of {r.id} could not be solved.")
    return {"q": t.q[-1], "p": t.p[-1], "energy_error": t.energy[-1] - t.energy[0]}


def staircase_log_density(q: np.ndarray, data: tuple) -> float:
    log_w, mean, s = data
    n = math.floor(q[1])
    if n < 0 or n >= log_w.shape[0]:
        return -np.inf
    return log_w[n] - 0.5 * ((q[0] - mean[n]) / s[n]) ** 2 - math.log(s[n])


def staircase_gradient(q: np.ndarray, data: tuple) -> np.ndarray:
    _, mean, s = data
    n = math.floor(q[1])
    return np.array([(mean[n] - q[0]) / s[n] ** 2, 0.0])


@functools.cache
def jumping(name: str, coordinates: tuple[int, ...]) -> Any:
    """Return the target as a model with declared discontinuities; the equations do not depend on whether it has any."""
    if name == "staircase":
        data = golden.targets()[name].data
        parts = tuple(data[key] for key in ("log_w", "mean", "s"))
        functions = {"log_density": staircase_log_density, "gradient": staircase_gradient}
        return own.Model(2, **functions, data=parts, discontinuous=coordinates, name=name)
    return own.with_jumps(model(name), coordinates)


def discontinuous_step(r: golden.Record) -> dict:
    a, coordinates = r.args, tuple(int(j) for j in r.args["discontinuous"])
    of = jumping(r.target, coordinates)
    sizes = np.array(a.get("inverse_mass", np.ones(of.dim)))
    sizes[list(coordinates)] **= 2  # variances of refhmc; 1/m_j is their square root
    H = own.DiscontinuousHamiltonian(of, own.metrics.Diagonal(sizes))
    q, p = r.inputs["q"], r.inputs["p"]
    for order in a["orders"]:
        q, p, _, _ = H.step(q, p, a["eps"], order)
    return {"q": q, "p": p, "energy_error": H.energy(q, p) - H.energy(r.inputs["q"], r.inputs["p"])}


def moved_by_kernel(r: golden.Record, of: Any) -> dict:
    """Return the answer for one transition of HMC, MALT, NUTS, WALNUTS, GIST or AutoStep on the model ``of``."""
    a = r.args
    options = {"step_size": a["eps"], "metric": metric(a)} | (
        {"integrator": integrator(a)} if "integrator" in a else {}
    )
    normals = r.inputs.get("normals", np.zeros(0)).ravel()
    if a["kernel"] == "hmc":
        kernel = own.HMC(n_steps=a["n"], **options)
    elif a["kernel"] == "malt":
        kernel = own.MALT(n_steps=a["n"], persistence=a["persistence"], **options)
    elif a["kernel"] == "walnuts":
        options |= {key: a[key] for key in ("max_error", "max_halvings", "extra_halving")}
        kernel = own.WALNUTS(max_treedepth=a["max_depth"], **options)
    elif a["kernel"] == "gist":
        kernel = own.GIST(fraction=a["fraction"], max_steps=a["max_steps"], **options)
    elif a["kernel"] == "autostep":
        options |= {"symmetric": bool(a["symmetric"]), "max_doublings": a["max_doublings"]}
        kernel = own.AutoStep(n_steps=a["n"], **options)
    else:
        kernel = own.NUTS(max_treedepth=a["max_depth"], **options)
    tape = np.concatenate([normals, r.inputs["uniforms"]])
    t = own.transition(of, kernel, r.inputs["q"], momentum=r.inputs["p"], uniforms=tape)
    if a["kernel"] in ("gist", "autostep"):
        return self_tuned(t)
    out = {"q": t.q, "acceptance_rate": t.stats["acceptance_rate"], "uniforms_used": t.uniforms_used - len(normals)}
    if a["kernel"] in ("hmc", "malt"):
        out["accepted"] = bool(t.stats["is_accepted"])
        return out  # the energy error of a rejected proposal is not stored
    return out | {key: t.stats[key] for key in ("energy_error", "tree_depth", "n_steps", "index_in_trajectory")}


def self_tuned(t: Any) -> dict:
    """Return the answer of GIST or AutoStep; ``chosen`` is the number of steps, or the exponent of the step size."""
    exponent = np.log2(t.stats["step_size"] / t.stats.get("step_size_nom", t.stats["step_size"]))
    return {
        "q": t.q,
        "acceptance_rate": t.probabilities[-1],
        "uniforms_used": t.uniforms_used,
        "accepted": bool(t.stats["is_accepted"]),
        "chosen": int(t.stats.get("chosen_steps", exponent)),
    }


def split_transition(r: golden.Record) -> dict:
    of = split(r.target, of_parts(r.args))
    return moved_by_kernel(r, of) if r.args["kernel"] in ("hmc", "nuts") else moved_by_minibatches(r, of)


def kept_transition(r: golden.Record) -> dict:
    """Return the answer for one transition of GHMC, DRHMC, MAMS or MCLMC."""
    a, given = r.args, ("persistence", "slice_shift", "max_stages", "reduction", "same_length")
    options = {name: a[name] for name in given if name in a}
    options |= {"integrator": integrator(a)} if a["kernel"] in ("mams", "mclmc") else {}
    kind = {"ghmc": own.GHMC, "drhmc": own.DRHMC, "mams": own.MAMS, "mclmc": own.MCLMC}[a["kernel"]]
    kernel = kind(step_size=a["eps"], n_steps=a["n"], metric=metric(a), **options)
    normals, *refreshments = np.atleast_2d(r.inputs["normals"])
    numbers = {"normals": normals, "uniforms": np.concatenate([*refreshments, r.inputs["uniforms"], [0.5]])}
    more = {"slice_variable": r.inputs["slice_variable"]} if "slice_variable" in r.inputs else {}
    t = own.transition(model(r.target), kernel, r.inputs["q"], momentum=r.inputs["p"], **numbers, **more)
    out = {"q": t.q, "p": t.kept_momentum, "uniforms_used": t.uniforms_used - sum(map(len, refreshments))}
    if a["kernel"] == "mclmc":
        return {**out, "energy_error": t.stats["energy_error"]}
    if a["kernel"] == "drhmc":
        return {**out, "stage": int(t.stats["stage"]), "probabilities": t.probabilities}
    out |= {"acceptance_rate": t.stats["acceptance_rate"], "accepted": bool(t.stats["is_accepted"])}
    return out | ({"slice_variable": t.stats["slice_variable"]} if more else {})


def moved_by_minibatches(r: golden.Record, of: Any) -> dict:
    """Return n updates: q by the compiled kernel, p by its array implementation; both read uniforms before normals."""
    a, kinds = r.args, {"sgd": own.SGD, "sgld": own.SGLD, "sghmc": own.SGHMC}
    given = ("cycle", "exploration", "momentum", "friction", "noise_estimate")
    options = {name: a[name] for name in given if name in a} | {"metric": metric(a)}
    options |= {"decay": tuple(a["decay"])} if "decay" in a else {}
    kernel = kinds[a["kernel"]](step_size=a["eps"], n_steps=a["n"], **options)
    M, uniforms, normals = len(a["rows"]), iter(r.inputs["uniforms"]), iter(r.inputs["normals"])
    tape: list = []
    for t in range(a["n"]):
        tape.extend(itertools.islice(uniforms, M - 1 if t % M == 0 else 0))
        tape.extend(next(normals) if kernel.c > 0 and not kernel.explores(t) else ())
    q, p, numbers = r.inputs["q"], r.inputs["p"], np.array(tape or [0.0])
    there = own.transition(of, kernel, q, momentum=p, uniforms=numbers)
    text = own.array_api.stochastic_gradient(kernel, own.array_api.hamiltonian(of, kernel.metric), q, p, numbers)
    return {"q": there.q, "p": text.p, "uniforms_used": there.uniforms_used - r.inputs["normals"].size}


def dual_averaging(r: golden.Record) -> dict:
    recursion = own.dual_averaging
    state = own.records.one(recursion.DUAL)[0]
    out: dict[str, list] = {"step_size": [], "averaged": []}
    recursion.restart_dual_averaging(state, r.args["initial"])
    for a in r.inputs["acceptances"]:
        recursion.update_dual_averaging(state, a, r.args["target_accept"])
        out["step_size"].append(np.exp(state.log_step))
        out["averaged"].append(np.exp(state.log_step_bar))
    return out


def warmup_schedule(r: golden.Record) -> dict:
    return {"phases": [list(phase) for phase in own.windows.warmup_schedule(r.args["tune"])]}


def welford(r: golden.Record) -> dict:
    draws = r.inputs["draws"]
    n, d = draws.shape
    mean, scatter = np.zeros(d), np.zeros((d, d))
    for k, q in enumerate(draws, 1):
        own.welford.update_welford(mean, scatter, q, k)
    vecs, mats = np.zeros((2, d)), np.zeros((2, d, d))
    own.compiled.plain(own.welford.learn_metric)(scatter, n, True, (vecs, mats, None, None, None, None))
    return {"mean": mean, "covariance": scatter / (n - 1), "regularised": mats[0]}


ANSWERS = {
    "logp": logp,
    **{op: of_model(op) for op in ("grad", "hess", "third", "fisher", "fisher_derivative")},
    "partial_grad": partial_grad,
    "metric": mass,
    "momentum": momentum,
    "dH": force,
    "step": lambda r: moved(r, model(r.target)),
    "split_step": lambda r: moved(r, split(r.target, of_parts(r.args))),
    "discontinuous_step": discontinuous_step,
    "transition": lambda r: moved_by_kernel(r, model(r.target)),
    "split_transition": split_transition,
    "kept_transition": kept_transition,
    "dual_averaging": dual_averaging,
    "warmup_schedule": warmup_schedule,
    "welford": welford,
}


def as_json(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def answered(records: Iterable[golden.Record]) -> Iterator[str]:
    """Yield lines of a results file, as another program would write them."""
    for r in records:
        out = {key: as_json(np.asarray(value)) for key, value in ANSWERS[r.op](r).items() if r.op != "warmup_schedule"}
        yield json.dumps({"id": r.id, "out": out or ANSWERS[r.op](r)})


def own_results(op: str, every: int = 1) -> Iterator[str]:
    """Yield lines of a results file for every ``every``-th record (for windows: those stretched as in refhmc)."""
    stretched = "stretched" if op == "warmup_schedule" else None
    return answered(itertools.islice(golden.records(op, stretched), 0, None, every))


def report(every: int = 1) -> Report:
    """Return the comparison of refhmc's answers with every ``every``-th record of each operation."""
    lines = (line for op in ANSWERS for line in own_results(op, every))
    return golden.compare(lines, solver_tolerance=SOLVER_TOLERANCE)

"""``refhmc oracle``: a program that answers requests line by line with the results of a correct implementation.

The format of the lines is in ``protocol/messages.py``, the operations are those of ``operations.py``. ``target``, ``metric``
and ``method`` have names as in ``protocol/names.py``. L is the log density up to a constant,
H = -L + p' G^-1 p / 2 + log det G / 2 (without the log det if G is constant).

Each answer has ``digits``, the significant digits of its decimal strings; ``hex``, the same numbers as hex floats; and
``tol``, the largest difference of a correct program in float64 in any number of the answer (``protocol/conditions.py``). It
takes a few more evaluations; ``"tol": false`` in a request omits it. ``parts`` splits the target, for methods that
use its parts. ``u`` is read in the order of
:mod:`refhmc.core.randomness`; with ``bits``, the directions of NUTS's doublings (1 forward, 0 backward), ``u`` only has the
other uniforms.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import numpy as np

from refhmc import __version__
from refhmc.check import own
from refhmc.check.operations import OPERATIONS
from refhmc.check.protocol import conditions, names
from refhmc.check.protocol.messages import (
    BAD_REQUEST,
    DIGITS,
    FAILED,
    LIMITS,
    NOT_SUPPORTED,
    VERSION,
    Rejection,
    array,
    decimals,
    error,
    hexes,
    identity_of,
    line,
    number,
    parse,
)

SOLVER_TOLERANCES = (1e-14, 1e-13, 1e-12, 1e-10, 1e-8)  # the first that the solver reaches is used
SOLVER_ITERATIONS = 1000
KERNELS = ("hmc", "nuts", "walnuts", "ghmc", "drhmc", "malt", "mams", "mclmc", "gist", "autostep")
MOST_JACOBIANS = 20_000_000  # largest number of entries of the Jacobians for the tolerance of a trajectory


def serve(lines: TextIO | None = None, out: TextIO | None = None) -> int:
    """Answer requests until the input ends or the reader disappears, and return the exit status 0."""
    lines, out = lines or sys.stdin, out or sys.stdout
    for stream in (lines, out):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    oracle = Oracle()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as that a target runs as Python: of no use to a program
            for text in _lines(lines):
                if text.strip():
                    out.write(oracle.answer_text(text))
                    out.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):  # so that the interpreter's own flush at the end is silent
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
    return 0


def _lines(stream: TextIO) -> Iterator[str]:
    """Yield the lines of a stream; a line that is too long is truncated to a length that is still too long."""
    most = LIMITS["line"] + 1
    while text := stream.readline(most):
        rest = text
        while rest and not rest.endswith("\n") and len(text) == most:
            rest = stream.readline(2**16)
        yield text


class Oracle:
    """Answers requests; between them it only keeps the e-processes of ``evidence``, by their keys."""

    def __init__(self) -> None:
        self.evidence: dict[str, Any] = {}

    def answer_text(self, text: str) -> str:
        """Return the answer to one line, as a line."""
        answer = self.answer_line(text)
        try:
            return line(answer)
        except (ValueError, RecursionError) as failure:  # something that JSON cannot represent
            return line(error(answer.get("id"), FAILED, f"the answer cannot be written as JSON: {failure}"))

    def answer_line(self, text: str) -> dict:
        """Return the answer to one line, whatever its contents."""
        if len(text) > LIMITS["line"]:
            return error(None, BAD_REQUEST, f"a line must have at most {LIMITS['line']} characters")
        try:
            request = parse(text)
        except Rejection as refusal:
            return error(None, refusal.code, str(refusal))
        return self.answer(request)

    def answer(self, request: dict) -> dict:
        """Return the answer to one request; errors are answers too."""
        identity = None
        try:
            identity = identity_of(request)
            with np.errstate(all="ignore"):
                return {"id": identity, **self._results(request)}
        except Rejection as refusal:
            return error(identity, refusal.code, str(refusal))
        except NotImplementedError as missing:  # a derivative that the model does not have
            return error(identity, NOT_SUPPORTED, str(missing))
        except Exception as failure:
            return error(identity, FAILED, f"{type(failure).__name__}: {failure}")

    def _results(self, request: dict) -> dict:
        if request.get("v", VERSION) != VERSION:
            raise Rejection(BAD_REQUEST, f"v must be {VERSION}, the version of the protocol")
        op = request.get("op")
        if op == "batch":
            return {"answers": [self.answer(item) for item in _requests(request)]}
        if op == "evidence":
            return self._evidence(request)
        if not isinstance(op, str) or op not in OPS:
            named = op[:40] if isinstance(op, str) else type(op).__name__
            known = ", ".join((*OPS, "batch", "evidence"))
            raise Rejection(NOT_SUPPORTED, f"op must be one of {known}; got {named!r}")
        return OPS[op](request)

    def _evidence(self, request: dict) -> dict:
        from refhmc.check.samplers.pair_evidence import PairEvidence

        key, model = str(request.get("key", "")), _model(request)
        starts, ends = _field(request, "starts", 2), _field(request, "ends", 2)
        if starts.shape != ends.shape or starts.shape[1:] != (model.dim,):
            raise Rejection(
                BAD_REQUEST, f"starts and ends must have shape (m, {model.dim}); got {starts.shape}, {ends.shape}"
            )
        known = self.evidence.get(key)
        if known is None or request.get("reset"):
            try:
                known = self.evidence[key] = model, PairEvidence(model)
            except TypeError:
                raise Rejection(NOT_SUPPORTED, f"there are no exact draws from {request['target']!r}") from None
        if known[0] is not model:
            raise Rejection(BAD_REQUEST, f"the key {key!r} has evidence on another target; send reset, or another key")
        process = known[1]
        process.add(starts, ends)
        values = {"e": math.exp(min(process.log_value, 700.0)), "log_e": process.log_value}
        return {**_numbers({**values, "log_e_max": process.log_largest}), "pairs": process.pairs}


# ------------------------------------------------------------------------------------------------------- the operations


def capabilities(request: dict) -> dict:
    """Return the capabilities of this program."""
    return {
        "v": VERSION,
        "name": "refhmc",
        "version": __version__,
        "ops": [*OPS, "batch", "evidence"],
        "targets": names.known_targets(),
        "metrics": list(own.metrics.METRICS),
        "methods": list(own.integrators.INTEGRATORS),
        "kernels": list(KERNELS),
        "eps": "0.1",
        "digits": DIGITS,
        "limits": LIMITS,
    }


def of_model(op: str) -> Callable[[dict], dict]:
    """Return a function that answers with a model's method: L(q), dL/dq, or the second derivatives of L."""
    return lambda request: _of_q(request, op, getattr(_model(request), OPERATIONS[op].attribute))


def partial_grad(request: dict) -> dict:
    """Return the gradients of the parts of the target, one row per part."""
    if "parts" not in request:
        raise Rejection(BAD_REQUEST, "the field parts is missing")
    parts = _split(request).parts
    _answerable(len(parts) * _model(request).dim, "the gradients")
    return _of_q(request, "partial_grad", lambda q: np.array([part.gradient(q) for part in parts]))


def metric(request: dict) -> dict:
    """Return G(q), and its derivatives if requested."""
    H, q = _hamiltonian(request), _vector(request, "q")
    if request.get("derivative"):
        _answerable(len(q) ** 3, "dG")
    found = _of_q(request, "G", H.mass)
    if request.get("derivative"):
        columns = [own.differences.ridders(functools.partial(_mass_along, H, q, u)) for u in np.eye(len(q))]
        more = _numbers({"dG": np.stack([column.value for column in columns], axis=-1)})
        found = {**found, **more, "hex": {**found["hex"], **more["hex"]}}
        if "tol" in found:
            found["tol"] = f"{max(float(found['tol']), 10 * max(column.error for column in columns)):.3g}"
    return found


def _mass_along(H: Any, q: np.ndarray, u: np.ndarray, t: float) -> np.ndarray:
    return H.mass(q + t * u)


def dH(request: dict) -> dict:
    """Return H and its two gradients."""
    H, q, p = _hamiltonian(request), _vector(request, "q"), _vector(request, "p")
    d, evaluate = len(q), own.evaluation(H)

    def everything(z: np.ndarray) -> np.ndarray:
        energy, velocity, slope = evaluate(z[:d], z[d:])
        return np.concatenate([[energy], slope, velocity])

    z = np.concatenate([q, p])
    value = everything(z)
    found = _numbers({"H": value[0], "dHdq": value[1 : d + 1], "dHdp": value[d + 1 :]})
    return _with_tol(request, found, lambda: conditions.of_value(everything, z, value, conditions.roundings(H.model)))


def step(request: dict) -> dict:
    """Return the state after n steps."""
    path, tol, tol_H = _trajectory(request, _count(request, "n", 1))
    found = _numbers({"q": path.q[-1], "p": path.p[-1], "H": path.energy[-1]})
    return {**found, **tol, **tol_H}


def orbit(request: dict) -> dict:
    """Return the states before and after the given one."""
    n, n_back = _count(request, "n", 1), _count(request, "n_back", 0)
    _answerable(2 * (n + n_back + 1) * _model(request).dim, "the states")
    ahead, tol, _ = _trajectory(request, n)
    behind, tol_behind, _ = _trajectory(request, n_back, -1.0)
    rows = [np.concatenate([b[:0:-1], a]) for b, a in zip(behind[:3], ahead[:3], strict=True)]
    found = _numbers(dict(zip(("q", "p", "H"), rows, strict=True)))
    return {**found, **({"tol": max((tol["tol"], tol_behind["tol"]), key=float)} if tol else {})}


def transition(request: dict) -> dict:
    """Return one transition of one of the ``KERNELS`` on the given randomness."""
    H, q, eps = _hamiltonian(request), _vector(request, "q"), _step_size(request)
    kernel = str(request.get("kernel", "hmc")).lower()
    default = "bcss" if kernel in ("mams", "mclmc") else _default_method(H)
    wanted = names.method(request.get("method") or default, **_solver(0))
    more: dict[str, Any]
    options: dict[str, Any] = {"step_size": abs(eps), "metric": H.metric, "integrator": wanted}
    if kernel == "hmc":
        make, more = own.HMC, {"n_steps": _count(request, "n", 1)}
    elif kernel == "nuts":
        make, more = own.NUTS, {"max_treedepth": _count(request, "max_depth", 10, LIMITS["depth"])}
    elif kernel == "walnuts":
        make, more = own.WALNUTS, {"max_treedepth": _count(request, "max_depth", 10, LIMITS["depth"])}
        more["max_halvings"] = _count(request, "max_halvings", 12)
        more |= {key: number(request[key]) for key in ("max_error", "extra_halving") if key in request}
    elif kernel in ("malt", "mams", "mclmc"):
        make, more = (
            {"malt": own.MALT, "mams": own.MAMS, "mclmc": own.MCLMC}[kernel],
            {"n_steps": _count(request, "n", 1)},
        )
        more |= {"persistence": number(request["persistence"])} if "persistence" in request else {}
    elif kernel in ("ghmc", "drhmc"):
        make, more = own.GHMC if kernel == "ghmc" else own.DRHMC, {"n_steps": _count(request, "n", 1)}
        given = ("persistence",) if kernel == "ghmc" else ("persistence", "reduction")
        more |= {name: number(request[name]) for name in given if name in request}
        if kernel == "drhmc":
            more |= {
                "max_stages": _count(request, "max_stages", 3),
                "same_length": bool(request.get("same_length", True)),
            }
    elif kernel == "gist":
        make, more = own.GIST, {"max_steps": _count(request, "max_steps", 1024)}
        more |= {"fraction": number(request["fraction"])} if "fraction" in request else {}
    elif kernel == "autostep":
        make, more = own.AutoStep, {"n_steps": _count(request, "n", 1)}
        more["max_doublings"] = _count(request, "max_doublings", 10)
        more["symmetric"] = bool(request.get("symmetric", True))
    else:
        raise Rejection(NOT_SUPPORTED, f"kernel must be one of {', '.join(KERNELS)}; got {kernel!r}")
    source = {
        "momentum": _field(request, "p0", 1) if "p0" in request else None,
        "normals": _field(request, "normals", 1) if "normals" in request else None,
        "uniforms": _tape(request, kernel),
        "rng": np.random.default_rng(_seed(request)) if "seed" in request else None,
    }
    try:
        went = own.transition(H.model, make(**more, **options), q, **source)
    except (ValueError, TypeError, IndexError) as wrong:
        raise Rejection(BAD_REQUEST, str(wrong)) from None
    accept = went.stats.get("acceptance_rate", float(went.stats["is_accepted"]))
    values = {"q": went.q, "p0": went.momentum, "accept": accept}
    if "is_reversible" in went.stats:
        values["accept"] = went.probabilities[-1]
    found = _numbers(values if went.kept_momentum is None else {**values, "p": went.kept_momentum})
    told = {"outcome": went.outcome, "n_steps": int(went.stats["n_steps"]), "uniforms_used": went.uniforms_used}
    moved = int(went.stats.get("index_in_trajectory", went.stats["n_steps"] if went.stats.get("is_accepted") else 0))
    if went.kept_momentum is not None or kernel in ("malt", "mams"):
        return {**found, **told}
    level = int(went.stats.get("n_halvings", 0))  # a macro step has at most 2^level steps
    replay = {**request, "p": hexes(went.momentum), "eps": abs(eps) / 2**level}
    tol = _trajectory(replay, abs(moved) << level, 1.0 if moved >= 0 else -1.0)[1] if moved else _no_tol(request)
    return {**found, **told, **tol}


def draw_exact(request: dict) -> dict:
    """Return independent exact draws from the target."""
    model, n = _model(request), _count(request, "n", 1)
    if model.reference is None or model.reference.draw is None:
        raise Rejection(NOT_SUPPORTED, f"there are no exact draws from {request['target']!r}")
    _answerable(n * model.dim, "the draws")
    return _numbers({"q": model.reference.draw(np.random.default_rng(_seed(request)), n)})


OPS = {
    "capabilities": capabilities,
    **{op: of_model(op) for op in ("logp", "grad", "hess")},
    "partial_grad": partial_grad,
    "metric": metric,
    "dH": dH,
    "step": step,
    "orbit": orbit,
    "transition": transition,
    "draw_exact": draw_exact,
}

# ------------------------------------------------------------------------------------------------- requests and answers


def _of_q(request: dict, name: str, f: Callable[[np.ndarray], Any]) -> dict:
    """Return f(q) as the field ``name``."""
    q = _vector(request, "q")
    value = np.asarray(f(q))
    C = conditions.roundings(_model(request))
    return _with_tol(request, _numbers({name: value}), lambda: conditions.of_value(f, q, value, C))


def _trajectory(request: dict, n: int, sign: float = 1.0) -> tuple[Any, dict, dict]:
    """Return the trajectory of n steps, its tolerance and that of its last energy, as parts of an answer."""
    H, q, p, eps = _hamiltonian(request), _vector(request, "q"), _vector(request, "p"), sign * _step_size(request)
    wanted = request.get("method") or _default_method(H)
    d = len(q)
    if request.get("tol") is not False and n * (2 * d) ** 2 > MOST_JACOBIANS:
        why = f"{n} steps in {d} dimensions are too many for a tolerance"
        raise Rejection(BAD_REQUEST, f'{why}; send fewer, or "tol": false')
    for delta in SOLVER_TOLERANCES:
        integrator = names.method(wanted, **_solver(delta))
        if H.metric.position_dependent and getattr(getattr(integrator, "base", integrator), "constant_metric", False):
            raise Rejection(BAD_REQUEST, f"method {wanted} does not support a metric that depends on the position")
        try:
            path = own.integrate(H, integrator, q, p, step_size=eps, n_steps=n)
        except (TypeError, ValueError) as wrong:
            raise Rejection(FAILED, str(wrong)) from None
        if path.converged.all() or not integrator.implicit:
            break
    if not path.converged.all():
        raise Rejection(FAILED, f"the solve of step {int(np.argmin(path.converged)) + 1} did not converge")
    if not integrator.implicit:
        delta = 0.0
    if n == 0 or request.get("tol") is False:
        return path, _no_tol(request), {}
    if not np.isfinite(path.q).all() or not np.isfinite(path.p).all():
        return path, {"tol": "inf"}, {}

    def run(z: np.ndarray) -> np.ndarray:
        moved = own.integrate(H, integrator, z[:d], z[d:], step_size=eps, n_steps=n)
        return np.concatenate([moved.q, moved.p], axis=1)

    C, states = conditions.roundings(H.model), np.concatenate([path.q, path.p], axis=1)
    tol = conditions.of_path(run, states[0], states, C, delta)
    energy, velocity, slope = own.evaluation(H)(path.q[-1], path.p[-1])
    moved_by = float(np.abs(np.concatenate([velocity, slope])).sum())
    rounding = conditions.of_value(lambda z: H.energy(z[:d], z[d:]), states[-1], energy, C)
    return path, {"tol": f"{tol:.3g}"}, {"tol_H": f"{moved_by * tol + rounding:.3g}"}


def _solver(delta: float) -> dict:
    return {"tolerance": delta or SOLVER_TOLERANCES[2], "max_iterations": SOLVER_ITERATIONS}


def _default_method(H: Any) -> str:
    return own.defaults.resolve(H.metric, None)[1].name


def _tape(request: dict, kernel: str) -> np.ndarray | None:
    """Return the uniforms in the order in which the kernel uses them, with NUTS's directions inserted."""
    if "u" not in request:
        return None
    u = _field(request, "u", 1) if isinstance(request["u"], list) else np.array([number(request["u"])])
    if kernel != "nuts" or "bits" not in request:
        return u
    bits = request["bits"] if isinstance(request["bits"], list) else [request["bits"]]
    if len(bits) > LIMITS["depth"]:
        raise Rejection(BAD_REQUEST, f"bits must have at most {LIMITS['depth']} entries; got {len(bits)}")
    tape: list[float] = []
    for doubling, bit in enumerate(bits):  # a direction, the leaves after the first, the subtree
        tape.append(0.25 if number(bit) else 0.75)
        tape += [float(x) for x in u[: 2**doubling]]
        u = u[2**doubling :]
    return np.array(tape)


def _with_tol(request: dict, found: dict, tol: Callable[[], float]) -> dict:
    return found if request.get("tol") is False else {**found, "tol": f"{tol():.3g}"}


def _no_tol(request: dict) -> dict:
    return {} if request.get("tol") is False else {"tol": "0"}


def _numbers(values: dict) -> dict:
    """Return numbers and arrays in the form of an answer: decimals, and hex floats."""
    texts = {name: decimals(value) for name, value in values.items()}
    return {**texts, "hex": {name: hexes(value) for name, value in values.items()}, "digits": DIGITS}


def _requests(request: dict) -> list:
    requests = request.get("requests")
    if not isinstance(requests, list) or not all(isinstance(item, dict) for item in requests):
        raise Rejection(BAD_REQUEST, "requests must be a list of objects")
    if any(item.get("op") == "batch" for item in requests):
        raise Rejection(BAD_REQUEST, "requests must not contain another batch")
    return requests


def _model(request: dict) -> Any:
    if "target" not in request:
        raise Rejection(BAD_REQUEST, "the field target is missing")
    return names.target(request["target"], request.get("args"))


def _split(request: dict) -> Any:
    """Return the target, split into the requested parts if there are any."""
    return names.split(_model(request), request["parts"]) if "parts" in request else _model(request)


def _hamiltonian(request: dict) -> Any:
    wanted = request.get("metric")
    if isinstance(wanted, str) and "alpha" in request:
        wanted = {"name": wanted, "alpha": request["alpha"]}
    try:
        return own.Hamiltonian(_split(request), names.metric(wanted))
    except ValueError as wrong:  # a mass matrix of another shape, or not positive definite
        raise Rejection(BAD_REQUEST, str(wrong)) from None


def _field(request: dict, name: str, rank: int) -> np.ndarray:
    if name not in request:
        raise Rejection(BAD_REQUEST, f"the field {name} is missing")
    try:
        return array(request[name], rank)
    except Rejection as refusal:
        raise Rejection(BAD_REQUEST, f"{name}: {refusal}") from None


def _vector(request: dict, name: str) -> np.ndarray:
    value, dim = _field(request, name, 1), _model(request).dim
    if value.shape != (dim,):
        raise Rejection(BAD_REQUEST, f"{name} must have {dim} numbers; got {len(value)}")
    return value


def _step_size(request: dict) -> float:
    if "eps" not in request:
        raise Rejection(BAD_REQUEST, "the field eps is missing")
    eps = number(request["eps"])
    if not np.isfinite(eps) or eps == 0:
        raise Rejection(BAD_REQUEST, f"eps must be finite and not zero; got {eps}")
    return eps


def _seed(request: dict) -> int | None:
    seed = request.get("seed")
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        raise Rejection(BAD_REQUEST, "seed must be an integer of at least 0")
    return seed


def _count(request: dict, name: str, default: int, most: int = LIMITS["n"]) -> int:
    value = number(request.get(name, default))
    if not 0 <= value <= most or value != int(value):
        raise Rejection(BAD_REQUEST, f"{name} must be an integer from 0 to {most}; got {value:g}")
    return int(value)


def _answerable(count: int, what: str) -> None:
    if count > LIMITS["numbers"]:
        raise Rejection(BAD_REQUEST, f"{what} have {count} numbers; an answer has at most {LIMITS['numbers']}")

"""Targets, metrics and integrators by the names they have in the protocol and on the command line.

    target      a name of ``refhmc models`` ("funnel"), with arguments of its constructor ({"n": 2}) if they are not the
                default ones; or a name of ``targets.py`` ("funnel-5", "quartic-2", "gaussian-3-1e4"). Without Numba, only
                the latter are known, without arguments
    metric      "identity", "softabs", "softabs(1e6)", or {"name": "dense", "covariance": [[...], ...]}, or
                {"name": "hierarchical", "constants": [k][i], "parents": [p][i], "coefficients": [k][p][i]}: the masses are
                M_i = sum_k exp(constants[k][i] + sum_p coefficients[k][p][i] q_j), j = parents[p][i], counted from 0
    method      "leapfrog", "implicit_midpoint", "block_leapfrog", "yoshida(leapfrog)", or
                {"name": "projected_tao", "omega": 10}
    parts       for a target that can be split: the number of parts, or a list of lists of its rows, each row once

Hyphens and underscores are equivalent. Unknown names are rejected with a list of the known ones.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import re
from typing import Any

import numpy as np

from refhmc.check import own, targets
from refhmc.check.protocol.messages import BAD_REQUEST, LIMITS, NOT_SUPPORTED, Rejection, array, number

# Constructors of the targets that accept arguments.
_CONSTRUCTORS = {
    "funnel": "Funnel",
    "banana": "Banana",
    "gaussian": "Gaussian",
    "eight-schools": "EightSchools",
    "kidscore": "LinearRegression",
    "ar": "AR",
    "garch": "GARCH",
    "gaussian-mixture": "GaussianMixture",
    "gaussian-process": "GaussianProcessRegression",
}


def known_targets() -> list[str]:
    """Return the names of the targets; those of ``targets.py`` may be followed by a dimension."""
    return list(dict.fromkeys([*own.models.by_name(), *targets.names()]))


def target(name: Any, arguments: Any = None) -> Any:
    """Return the model of that name; Rejection if there is none, or its constructor does not accept the arguments."""
    if not isinstance(name, str):
        raise Rejection(BAD_REQUEST, f"target must be a name; got a {type(name).__name__}")
    if arguments is not None and not isinstance(arguments, dict):
        raise Rejection(BAD_REQUEST, f'args must be an object such as {{"n": 2}}; got a {type(arguments).__name__}')
    return _target(name.lower().replace("_", "-"), json.dumps(arguments or {}, sort_keys=True))


@functools.lru_cache(maxsize=64)
def _target(name: str, arguments: str) -> Any:
    _not_too_large("the number in the target's name", *(int(x[:12]) for x in re.findall(r"-(\d+)", name)[:1]))
    given = {key: _plain(value) for key, value in json.loads(arguments).items()}
    if not own.is_compiled():
        return _without_models(name, given)
    known = own.models.by_name()
    if name in known and not given:
        return known[name]()
    if name not in known:
        try:
            law = targets.from_name(name)
        except ValueError:
            known_names = ", ".join(known_targets())
            raise Rejection(NOT_SUPPORTED, f"target must be one of {known_names}; got {name!r}") from None
        if not given:
            return own.models.Funnel(law.dim - 1) if name.startswith("funnel") else model_of(law)
    if name not in _CONSTRUCTORS:
        raise Rejection(BAD_REQUEST, f"args are not accepted by the target {name!r}")
    constructor = getattr(own.models, _CONSTRUCTORS[name])
    sizes = [key for key, x in inspect.signature(constructor).parameters.items() if str(x.annotation).startswith("int")]
    for key in sizes:
        _not_too_large(key, given.get(key))
    try:
        return constructor(**given)
    except (TypeError, ValueError, np.linalg.LinAlgError) as error:
        raise Rejection(BAD_REQUEST, f"args of {name!r}: {error}") from None


def _without_models(name: str, given: dict) -> targets.Target:
    """Return a target of ``targets.py``, which needs no model of refhmc; ImportError for others."""
    if not given:
        with contextlib.suppress(ValueError):
            return targets.from_name(name)
    raise own.missing_dependency("numba", f"The target {name!r}" + (" with args" if given else ""))


def _not_too_large(what: str, *sizes: Any) -> None:
    for size in sizes:
        if isinstance(size, (int, float)) and not size <= LIMITS["dim"]:
            raise Rejection(BAD_REQUEST, f"{what} must be at most {LIMITS['dim']}; got {size:g}")


def model_of(law: targets.Target) -> Any:
    """Return a target of ``targets.py`` as a refhmc model, without derivatives beyond the gradient."""

    def log_density(q: np.ndarray, data: Any) -> float:
        return float(law.log_density(q))

    def gradient(q: np.ndarray, data: Any) -> np.ndarray:
        return np.asarray(law.gradient(q), dtype=float)  # type: ignore[misc]

    reference = own.Reference(source=law.formula, draw=law.draw)
    # The data are not of a compiled type, so that it runs as Python.
    return own.Model(law.dim, log_density, gradient, data={"law": law}, name=law.name, reference=reference)


def split(model: Any, parts: Any) -> Any:
    """Return the model in parts; Rejection if it cannot be split, or not in this way."""
    if model.part is None:
        raise Rejection(NOT_SUPPORTED, f"the target {model.name!r} cannot be split into parts of its data")
    try:
        if not isinstance(parts, list):
            M = number(parts)
            return model.split(int(M) if M.is_integer() else M)
        rows = [array(batch, 1).astype(int) for batch in parts]
        if not all(map(len, rows)) or sorted(i for batch in rows for i in batch) != list(range(model.n_rows)):
            raise ValueError(f"parts must contain each of the rows 0, ..., {model.n_rows - 1} once, and no empty part")
        return own.models.SplitModel([model.part(batch, 1 / len(rows)) for batch in rows], model)
    except ValueError as error:
        raise Rejection(BAD_REQUEST, str(error)) from None


def metric(wanted: Any = None) -> Any:
    """Return the metric of that description; None is the identity."""
    kind, options = _described("identity" if wanted is None else wanted, own.metrics.METRICS, "metric")
    parents = options.get("parents")
    if isinstance(parents, np.ndarray) and np.array_equal(parents, np.round(parents)) and np.isfinite(parents).all():
        options["parents"] = parents.astype(int)
    return _made(kind, options)


def method(wanted: Any, **solver: Any) -> Any:
    """Return the integrator of that description; ``solver`` has options for an implicit one without options."""
    kind, options = _described("leapfrog" if wanted is None else wanted, own.integrators.INTEGRATORS, "method")
    takes = inspect.signature(kind).parameters
    if "base" in takes:
        options["base"] = method(options.get("base", "leapfrog"), **solver)
    if "one_order" in options:
        options["one_order"] = tuple(int(m) for m in np.atleast_1d(options["one_order"]))
    return _made(kind, {**{key: value for key, value in solver.items() if key in takes}, **options})


def _described(wanted: Any, known: dict, what: str) -> tuple[Any, dict[str, Any]]:
    """Return the class and the options of a description; the value in parentheses is the first option."""
    options: dict[str, Any] = {}
    if isinstance(wanted, dict):
        options = {key: _plain(value) for key, value in wanted.items() if key not in ("name", "base")}
        if not number(options.get("max_iterations", 0)) <= LIMITS["n"]:
            raise Rejection(BAD_REQUEST, f"max_iterations must be at most {LIMITS['n']}")
        options |= {"base": wanted["base"]} if "base" in wanted else {}
        wanted = wanted.get("name")
    parts = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", wanted) if isinstance(wanted, str) else None
    if parts is None:
        raise Rejection(BAD_REQUEST, f"{what} must be a name or an object with a name; got {json.dumps(wanted)[:60]}")
    name, known = _one_way(parts[1]), {_one_way(name): kind for name, kind in known.items()}
    if name not in known:
        raise Rejection(NOT_SUPPORTED, f"{what} must be one of {', '.join(known)}; got {parts[1]!r}")
    if parts[2]:
        first = next(iter(inspect.signature(known[name]).parameters), "argument")
        options[first] = parts[2] if first in ("base", "variant") else number(parts[2])
    return known[name], options


def _one_way(name: str) -> str:
    """Return the name with underscores."""
    return name.lower().replace("-", "_")


def _made(kind: Any, options: dict) -> Any:
    try:
        return kind(**options)
    except (TypeError, ValueError) as error:
        raise Rejection(BAD_REQUEST, f"{kind.name}: {error}") from None


def _plain(value: Any) -> Any:
    """Return a value of a request as an argument; numbers and arrays may be strings, integers and booleans are kept."""
    if isinstance(value, list):
        return array(value)
    if isinstance(value, str):
        try:
            return number(value)
        except Rejection:
            return value  # a word, such as solver = "anderson"
    return value

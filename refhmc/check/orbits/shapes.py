"""The shapes in which others write a transition along an orbit, its map and its target, by the names of the arguments.

    transition    (draws, q, p), (q, p, draws), (draws, q); NumPy's generator for draws; eps, depth, leap, target by name
    its answer    q, (q, p), (state, info), an object or a dict with q or position, the whole number of steps moved
    leap          (q, p, eps) or (q, p) or (q, p, eps, n), to (q, p) or an object with q and p
    target        a log density q -> number, something with log_density(q), an energy H(q, p), something with energy(q, p)

What the names do not say is found by trying.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from refhmc.check import adapters, own
from refhmc.check.subject.foreign import Foreign, SubjectError
from refhmc.check.subject.signature import GENERATORS, parameters, required

NAMES = {
    "draws": "draws draw rng generator gen random random_state randomness rand prng source stream state_rng rnd key",
    "q": "q q0 x x0 z0 theta position pos current start point params",
    "p": "p p0 r r0 v v0 mom momentum momenta velocity rho0",
    "eps": "eps epsilon step_size stepsize dt h eps0",
    "depth": "depth max_depth max_treedepth max_tree_depth maxdepth max_doublings tree_depth j_max",
    "leap": "leap leapfrog integrator integrate leapfrog_step map",
    "target": "target model logp log_density log_prob logpdf log_p density hamiltonian energy H",
    "n": "n n_steps steps num_steps L",
}
MEANING = {name: what for what, names in NAMES.items() for name in names.split()}


def _meaning(name: str) -> str | None:
    return MEANING.get(name, MEANING.get(name.lower()))


def meanings(function: Callable) -> dict[str, inspect.Parameter]:
    """What the function's parameters are, by their names: "q" -> the parameter, ..."""
    found: dict[str, inspect.Parameter] = {}
    for parameter in parameters(function).values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            meaning = _meaning(parameter.name)
            if meaning is not None:
                found.setdefault(meaning, parameter)
    return found


def needed_by(function: Callable) -> int | None:
    """How many positional arguments it must have; None where that is not known."""
    told = parameters(function).values()
    return None if not told or any(p.kind == p.VAR_POSITIONAL for p in told) else len(required(function))


class Shape(NamedTuple):
    """How the transition is called: the ``order`` of its first arguments, names of further ones, what draws it wants."""

    order: tuple[str, ...]
    named: dict[str, str]
    generator: bool
    symbolic: bool = True

    def __str__(self) -> str:
        return f"transition({', '.join(self.order)})" + (" with NumPy's generator" if self.generator else "")


def shapes_of(transition: Callable) -> list[Shape]:
    """In which ways to try to call it, the likeliest first."""
    known, needed, told = meanings(transition), needed_by(transition), parameters(transition).values()
    empty = inspect.Parameter.empty
    named: dict[str, str] = {m: known[m].name for m in ("eps", "depth") if m in known}
    named |= {m: known[m].name for m in ("leap", "target") if m in known and known[m].default is empty}
    positional = [p for p in told if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    meant = [_meaning(p.name) for p in positional]
    first = tuple(m for m in meant if m in ("draws", "q", "p"))
    orders: list[tuple[str, ...]] = []
    if "draws" in first and "q" in first and tuple(meant[: len(first)]) == first:
        orders.append(first)
    for order in (("draws", "q", "p"), ("q", "p", "draws"), ("draws", "q"), ("q", "draws")):
        if order not in orders and (
            needed is None or needed - sum(known[m].default is empty for m in named) == len(order)
        ):
            orders.append(order)
    wants = any(p.name.lower() in GENERATORS for p in told)
    modes = [(wants, True), (not wants, True), (wants, False), (not wants, False)]
    return [Shape(order, named, generator, symbolic) for order in orders for generator, symbolic in modes]


def read_end(result, dim: int) -> tuple[np.ndarray | None, np.ndarray | None, int | None]:
    """(position, momentum, offset from the start) as far as the transition's answer holds them."""
    if isinstance(result, (bool, np.bool_)) or result is None or isinstance(result, str):
        return None, None, None
    if isinstance(result, (int, np.integer)):
        return None, None, int(result)
    if isinstance(result, dict):
        lower = {str(key).lower(): value for key, value in result.items()}
        q = next((lower[k] for k in NAMES["q"].split() if k in lower), None)
        return None if q is None else _vector(q, dim), _vector(lower.get("p", lower.get("momentum")), dim), None
    vector = _vector(result, dim)
    if vector is not None:
        return vector, None, None
    for name in ("q", "position", "x", "theta", "state", "z"):
        if hasattr(result, name):
            q, p, offset = read_end(getattr(result, name), dim)
            other = next((getattr(result, n) for n in ("p", "momentum", "r") if hasattr(result, n)), None)
            return q, _vector(other, dim) if p is None else p, offset
    if isinstance(result, (tuple, list)) and result:
        q, p, offset = read_end(result[0], dim)
        if p is None and q is not None and len(result) > 1:
            p = _vector(result[1], dim)
        return q, p, offset
    return None, None, None


def _vector(value, dim: int) -> np.ndarray | None:
    if value is None or isinstance(value, (dict, str)):
        return None
    try:
        array = Foreign(lambda: value).vector(None)
    except SubjectError:
        return None
    if array.dtype.kind == "c":
        return None
    if array.shape == (dim,):
        return array
    return array.reshape(dim) if array.size == dim and array.shape in ((), (1, dim), (dim, 1)) else None


def energy_of(target, H, like) -> tuple[Foreign, Callable[[np.ndarray, np.ndarray], float], bool]:
    """The foreign function, the energy H(q, p) from it, and whether the mass was taken to be one."""
    whole = H if H is not None else target
    for name in ("energy", "hamiltonian"):
        if (
            not inspect.isfunction(whole)
            and callable(getattr(whole, name, None))
            and needed_by(getattr(whole, name)) == 2
        ):
            foreign = Foreign(getattr(whole, name), f"{type(whole).__name__}.{name}", like)
            return foreign, foreign.number, False
    for name in ("log_density", "logp", "log_prob", "logpdf", "logdensity"):
        if callable(getattr(whole, name, None)):
            return _of_density(Foreign(getattr(whole, name), name, like))
    if not callable(whole):
        raise TypeError(f"target: something with log_density(q), or a function H(q, p), got {type(whole).__name__}")
    foreign = Foreign(whole, "H" if H is not None else None, like)
    return _of_density(foreign) if H is None and needed_by(whole) == 1 else (foreign, foreign.number, False)


def _of_density(density: Foreign) -> tuple[Foreign, Callable, bool]:
    return density, lambda q, p: 0.5 * float(p @ p) - density.number(q), True


class Steps:
    """The foreign leap as ``ahead(q, p, eps)`` and ``back(q, p, eps)``; ``takes_eps`` whether it is told the step."""

    def __init__(self, leap: Callable, like):
        self.foreign = Foreign(leap, None, like)
        known, needed = meanings(leap), needed_by(leap)
        self.takes_eps = "eps" in known or needed == 3 or (needed is not None and needed > 3)
        self.needs_eps = (needed or 2) >= 3
        self.more = (1,) if needed == 4 else ()
        self.by_sign = self.takes_eps  # back by a negative step; otherwise by turning the momentum

    def _call(self, q, p, eps):
        arguments = (q, p) if eps is None or not self.takes_eps else (q, p, float(eps), *self.more)
        result = self.foreign.raw(*arguments)
        if hasattr(result, "q") and hasattr(result, "p"):
            result = (result.q, result.p)
        if not isinstance(result, (tuple, list)) and np.shape(result)[:1] != (2,):
            raise SubjectError(f"{self.foreign.name}: the answer is a {type(result).__name__}, wanted (q, p)")
        return tuple(
            self.foreign.array(x, q.shape, what, arguments) for x, what in zip(result, ("q", "p"), strict=False)
        )

    def ahead(self, q, p, eps):
        return self._call(q, p, eps)

    def back(self, q, p, eps):
        if self.by_sign and eps is not None:
            return self._call(q, p, -eps)
        new_q, new_p = self._call(q, -p, eps)
        return new_q, -new_p


def tape_transition(run: Callable, most: int = 64) -> Callable:
    """``run(q, p, tape) -> (q, used)``, which reads its uniforms from an array and says how many, as a transition.

    The tape holds ``most`` numbers; those that were not asked for yet are filled up with one half, and are asked for, one
    at a time, if the run used them. For a kernel of refhmc: ``run`` calls ``own.transition(..., uniforms=tape)``.
    """

    def transition(draws, q, p):
        known = [float(draws.uniform()) for _ in range(getattr(draws, "scripted", 0))]
        while True:
            tape = np.full(max(most, len(known) + 1), 0.5)
            tape[: len(known)] = known
            end, used = run(q, p, tape)
            if used > len(tape):
                raise IndexError(f"more than {len(tape)} uniforms were used")
            if used <= len(known):
                return end
            known.append(float(draws.uniform()))

    return transition


def of_refhmc(kernel, target):
    """A kernel of refhmc as (transition, leap, energy) on a model of refhmc: compiled code, on tapes of uniforms.

    The leapfrog on the identity metric is written out here, another way to the same states; other maps are refhmc's own.
    """
    metric = own.metrics.Identity() if kernel.metric is None else kernel.metric
    integrator = own.integrators.Leapfrog() if kernel.integrator is None else kernel.integrator
    model = getattr(target, "model", target)
    kernel = type(kernel)(**{**vars(kernel), "metric": metric, "integrator": integrator})
    if type(metric) is own.metrics.Identity and type(integrator) is own.integrators.Leapfrog:

        def leap(q, p, eps):
            half = p + 0.5 * eps * model.gradient(q)
            new = q + eps * half
            return new, half + 0.5 * eps * model.gradient(new)

        def energy(q, p):
            return 0.5 * float(p @ p) - model.log_density(q)

    else:
        H = own.Hamiltonian(model, metric)
        several, energy = adapters.refhmc_step(H, integrator), H.energy

        def leap(q, p, eps):
            return several(q, p, eps, 1)

    def run(q, p, tape):
        end = own.transition(model, kernel, q, momentum=p, uniforms=tape)
        return end.q, end.uniforms_used

    # Compiled here: no row is to wait for it.
    with contextlib.suppress(Exception):
        leap(np.zeros(model.dim), np.ones(model.dim), kernel.step_size)
        run(np.zeros(model.dim), np.ones(model.dim), np.full(64, 0.5))
    return tape_transition(run, 2 ** (getattr(kernel, "max_treedepth", 3) + 1)), leap, energy

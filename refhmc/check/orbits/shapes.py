"""Call signatures of a transition along an orbit, and of its map.

    transition    (draws, q, p), (q, p, draws), (draws, q); NumPy's generator for draws; eps, depth, leap, target by name
    leap          (q, p, eps) or (q, p) or (q, p, eps, n), to (q, p)
    points        positions q, or pairs (q, p)

Names and what is tried: ``subject/shapes.py``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refhmc.check import adapters, own
from refhmc.check.subject.foreign import Foreign
from refhmc.check.subject.shapes import CallShape, meaning_of, meanings, needed_by, positional, wants_generator
from refhmc.check.subject.step import Step


def shapes_of(transition: Callable) -> list[tuple[CallShape, bool]]:
    """Return signatures to try, the most probable first, and whether a uniform may stay undecided until it is compared."""
    known, needed = meanings(transition), needed_by(transition)
    empty = inspect.Parameter.empty
    named: dict[str, str] = {m: known[m].name for m in ("eps", "depth") if m in known}
    named |= {m: known[m].name for m in ("leap", "target") if m in known and known[m].default is empty}
    meant = [meaning_of(p.name) for p in positional(transition)]
    first = tuple(m for m in meant if m in ("draws", "q", "p"))
    orders: list[tuple[str, ...]] = []
    if "draws" in first and "q" in first and tuple(meant[: len(first)]) == first:
        orders.append(first)
    for order in (("draws", "q", "p"), ("q", "p", "draws"), ("draws", "q"), ("q", "draws")):
        if order not in orders and (
            needed is None or needed - sum(known[m].default is empty for m in named) == len(order)
        ):
            orders.append(order)
    wants = wants_generator(transition)
    modes = [(wants, True), (not wants, True), (wants, False), (not wants, False)]
    return [(CallShape(order, named, generator), symbolic) for order in orders for generator, symbolic in modes]


def is_pair(point: Any) -> bool:
    """Return whether a point is a pair (q, p)."""
    return isinstance(point, tuple) and len(point) == 2 and np.ndim(point[0]) == 1


class Leap:
    """The foreign leap as ``ahead(q, p, eps)`` and ``back(q, p, eps)``; ``takes_eps``: whether it receives the step."""

    def __init__(self, leap: Callable, like: Any) -> None:
        self.step = Step(leap, 0, None, like)  # any dimension
        known, needed = meanings(leap), needed_by(leap)
        self.takes_eps = "eps" in known or (needed or 2) >= 3
        self.needs_eps = (needed or 2) >= 3
        self.by_sign = self.takes_eps  # back by a negative step; otherwise by reversing the momentum

    @property
    def foreign(self) -> Foreign:
        """Function of the author."""
        return self.step.foreign

    def ahead(self, q: np.ndarray, p: np.ndarray, eps: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the state after (q, p)."""
        end = self.step(np.concatenate([q, p]), eps if self.takes_eps else None)
        return end[: len(q)], end[len(q) :]

    def back(self, q: np.ndarray, p: np.ndarray, eps: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the state before (q, p)."""
        if self.by_sign and eps is not None:
            return self.ahead(q, p, -eps)
        new_q, new_p = self.ahead(q, -p, eps)
        return new_q, -new_p


def tape_transition(run: Callable, most: int) -> Callable:
    """Return ``run(q, p, tape) -> (answer, thresholds)``, which compares uniforms of an array with numbers, as a transition.

    ``thresholds``, one per used uniform, state where the distribution of the end may have a break. They are
    verified: the end is that of a run on u = t if u >= t was answered, and on the number before t if u < t was.
    """

    def on(q: Any, p: Any, decided: Sequence[float]) -> tuple:
        tape = np.full(most, 0.5)
        tape[: len(decided)] = decided
        return run(np.array(q), np.array(p), tape)

    @functools.lru_cache(4 * most)
    def thresholds(q: tuple, p: tuple, decided: tuple) -> list[float]:
        return np.asarray(on(q, p, decided)[1]).tolist()

    def transition(draws: Any, q: Any, p: np.ndarray) -> Any:
        uniforms = [draws.uniform() for _ in range(most)]
        if all(isinstance(u, float) for u in uniforms):
            return on(q, p, uniforms)[0]
        decided: list[float] = []
        known = thresholds(tuple(q), tuple(p), ())
        while len(decided) < len(known):
            t = known[len(decided)]
            below = uniforms[len(decided)] < t
            decided.append(min(max(np.nextafter(t, 0) if below else t, 0.0), np.nextafter(1, 0)))
            if below != (t > 0.5):  # the run on one half took the other branch
                known = thresholds(tuple(q), tuple(p), tuple(decided))
        return on(q, p, decided)[0]

    return transition


def of_refhmc(kernel: Any, target: Any) -> Any:
    """Return NUTS or WALNUTS of refhmc as (transition, leap, energy) on a model of refhmc: compiled code, on tapes of uniforms.

    The leapfrog with the identity metric is implemented here independently; other maps are refhmc's own. For an
    integrator that draws an order of parts per trajectory one order is used, not the parts' own: each order must leave the
    distribution invariant.
    """
    metric = own.metrics.Identity() if kernel.metric is None else kernel.metric
    metric, integrator = own.defaults.resolve(metric, kernel.integrator)
    model = getattr(target, "model", target)
    kernel = type(kernel)(**{**vars(kernel), "metric": metric, "integrator": integrator})
    order = np.roll(np.arange(adapters.drawn_parts(kernel, model)), 1)
    first = adapters.uniforms_of(order)
    plain = type(metric) is own.metrics.Identity and type(integrator) is own.integrators.Leapfrog
    if plain and not hasattr(kernel, "macro_step"):

        def leap(q: np.ndarray, p: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
            half = p + 0.5 * eps * model.gradient(q)
            new = q + eps * half
            return new, half + 0.5 * eps * model.gradient(new)

        def energy(q: np.ndarray, p: np.ndarray) -> float:
            return 0.5 * float(p @ p) - model.log_density(q)

    elif hasattr(kernel, "macro_step"):
        if kernel.extra_halving > 0:
            raise ValueError(f"extra_halving must be 0 for a check on orbits; got {kernel.extra_halving!r}.")
        on_arrays, energy = own.array_api.hamiltonian(model, metric), own.Hamiltonian(model, metric).energy

        def leap(q: np.ndarray, p: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
            with np.errstate(all="ignore"):
                return kernel.macro_step(on_arrays, q, p, eps)

    else:
        H = own.Hamiltonian(model, metric)
        if len(order):
            integrator = type(integrator)(one_order=tuple(int(m) for m in order))
        several, energy = adapters.refhmc_step(H, integrator), H.energy

        def leap(q: np.ndarray, p: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
            return several(q, p, eps, 1)

    def run(q: np.ndarray, p: np.ndarray, tape: np.ndarray) -> tuple[dict, np.ndarray]:
        end = own.transition(model, kernel, q, momentum=p, uniforms=np.concatenate([first, tape]))
        # A direction has the uniform itself as its entry: undecided it is 1/2, which is its threshold.
        return {"q": end.q, "energy_error": end.stats["energy_error"]}, end.probabilities[len(first) :]

    # Compiled here, so that no row has to wait for it.
    with contextlib.suppress(Exception):
        leap(np.zeros(model.dim), np.ones(model.dim), kernel.step_size)
        run(np.zeros(model.dim), np.ones(model.dim), np.full(64, 0.5))
    return tape_transition(run, 2 ** (kernel.max_treedepth + 1)), leap, energy

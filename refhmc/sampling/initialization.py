"""Where chains begin, and the checks before the first draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.adaptation.pathfinder import pathfinder
from refhmc.core.arguments import not_finite_in, refuse_complex, refuse_masked
from refhmc.core.linear_algebra import one_thread
from refhmc.core.records import DENSITIES, GRADIENTS, STOP
from refhmc.dynamics.hamiltonian import Hamiltonian
from refhmc.errors import InitError, MetricError, ModelError, ShapeError
from refhmc.models.base import Model
from refhmc.models.conditionals import conditional
from refhmc.sampling.named_starts import are_named, starts_by_name
from refhmc.sampling.preflight import check_derivatives, check_gradient
from refhmc.sampling.user_functions import check_functions, check_variables

if TYPE_CHECKING:
    from refhmc.sampling.chain import Plan

MAX_TRIES = 100


def given_starts(model: Model, initvals: Any, chains: int) -> np.ndarray | None:
    """``initvals`` as (chains, d), by name too, or the model's own start repeated, or None: each is drawn."""
    if initvals is None:
        return None if model.initial is None or callable(model.initial) else np.tile(model.initial, (chains, 1))
    refuse_masked("initvals", initvals, InitError)
    if are_named(initvals):
        return starts_by_name(model, initvals, chains)
    refuse_complex("initvals", initvals, ShapeError)
    try:
        starts = np.array(initvals, dtype=float)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"initvals must be ({model.dim},) or ({chains}, {model.dim}) numbers: {error}") from error
    if starts.ndim == 0 and model.dim == 1:
        starts = starts.reshape(1)
    if starts.shape == (model.dim,):
        starts = np.tile(starts, (chains, 1))
    if starts.shape != (chains, model.dim):
        raise ShapeError(f"initvals: expected ({model.dim},) or ({chains}, {model.dim}), got {starts.shape}")
    return starts


def is_default(model: Model, starts: np.ndarray | None) -> bool:
    """Return whether chains begin where they do without ``initvals``, even if those were given.

    (A run that is resumed by its folder alone does not know whether they were.)
    """
    own = None if model.initial is None or callable(model.initial) else model.initial
    return starts is None or (own is not None and bool(np.all(starts == own)))


def check_start(model: Model, q: np.ndarray, chain: int) -> None:
    """Raise InitError, naming chain, coordinate and value, unless everything is finite at ``q``."""
    bad = np.flatnonzero(~np.isfinite(q))
    if bad.size:
        raise InitError(f"chain {chain}: the start has {model.names[bad[0]]} = {q[bad[0]]}")
    value, gradient = model.core.value_and_gradient(q)
    gradient[model.discontinuous] = 0.0
    if value == np.inf:
        raise ModelError(f"chain {chain}: the log density is +inf at the start {_short(q)}: the density is improper")
    if not np.isfinite(value):
        words = model.core.words_at(q)
        if value == -np.inf and not words:
            coordinates = ", ".join(f"{model.names[j]} = {q[j]:.6g}" for j in model.discontinuous[:5])
            words = f": it is outside the support{f' (discontinuous: {coordinates})' if coordinates else ''}"
        raise InitError(f"chain {chain}: the log density at the start {_short(q)} is {value}{words}{_of_data(model)}")
    bad = np.flatnonzero(~np.isfinite(gradient))
    if bad.size:
        where = model.names[bad[0]]
        words = model.core.words_at(q)
        raise InitError(
            f"chain {chain}: the gradient at the start {_short(q)} is {gradient[bad[0]]} for {where}{words}{_of_data(model)}"
        )


def check_metrics(model: Model, plan: Plan, q: np.ndarray, chain: int) -> None:
    """Raise MetricError, naming the least eigenvalue, unless each metric that depends on the position is positive at ``q``."""
    for block in plan.blocks:
        indices, metric = block.conditional.indices, block.dynamics.metric
        if not metric.position_dependent:
            continue
        try:
            Hamiltonian(conditional(model, indices, q), metric).energy(q[indices], np.zeros(len(indices)))
        except MetricError as error:
            raise MetricError(f"chain {chain}: {error}") from None


def random_start(
    model: Model, plan: Plan, rng: np.random.Generator, chain: int, control: np.ndarray | None = None
) -> np.ndarray:
    """Draw a start by the model, or uniform on (-2, 2)^d.

    Raises InitError or MetricError where no draw can be used, Stopped where ``control`` asks for a stop.
    """
    if callable(model.initial):
        initial = model.initial
        draw, whence = (lambda: np.asarray(initial(rng), dtype=float)), "drawn by the model"
    else:
        draw, whence = (lambda: rng.uniform(-2, 2, model.dim)), "uniform on (-2, 2)"
    return first_usable(model, plan, draw, chain, whence, control)


def first_usable(
    model: Model,
    plan: Plan,
    draw: Callable[[], np.ndarray],
    chain: int,
    whence: str,
    control: np.ndarray | None = None,
) -> np.ndarray:
    """The first of up to 100 draws at which density, gradient and metric can be used; else InitError, or MetricError where it
    was the metric that was not positive definite in the last try. ``whence``: for the message."""
    not_finite = {"log density": 0, "gradient": 0}
    not_positive: MetricError | None = None
    for _ in range(MAX_TRIES):
        if control is not None and control[STOP]:
            raise Stopped
        q = draw()
        value, gradient = model.core.value_and_gradient(q)
        gradient[model.discontinuous] = 0.0
        not_positive = None
        if not np.isfinite(value):
            not_finite["log density"] += 1
        elif not np.all(np.isfinite(gradient)):
            not_finite["gradient"] += 1
        else:
            try:
                check_metrics(model, plan, q, chain)
                return q
            except MetricError as error:
                not_positive = error
    if not_positive is not None:
        raise not_positive
    counts = ", ".join(f"{what} {count} times" for what, count in not_finite.items())
    said = model.core.words_at(q)
    raise InitError(
        f"chain {chain}: no start found in {MAX_TRIES} tries, {whence}; not finite: {counts}{said}. "
        f"Give initvals where the density is positive{_of_data(model)}."
    )


def _of_data(model: Model) -> str:
    """A likely reason for a density that is not finite."""
    words = not_finite_in("data", model.data)
    return f"; of the model's data, {words}" if words else ""


class Stopped(Exception):
    """The run was stopped before a start was found."""


def pathfinder_start(
    model: Model, plan: Plan, q: np.ndarray, rng: np.random.Generator, chain: int, control: np.ndarray
) -> tuple[np.ndarray | None, str]:
    """A draw from the normal that Pathfinder finds from ``q``; or ``q`` itself, and why; or None, if the run was stopped.

    Its evaluations are counted in ``control``, whose ``STOP`` ends it. Whatever the model raises, far from where it is meant to
    be evaluated, is a reason to begin at ``q``.
    """

    def count(what: int) -> None:
        if control[STOP]:
            raise Stopped
        control[what] += 1

    def log_density(q: np.ndarray) -> float:
        count(DENSITIES)
        return model.core.log_density(q)

    def value_and_gradient(q: np.ndarray) -> tuple[float, np.ndarray]:
        count(GRADIENTS)
        return model.core.value_and_gradient(q)

    try:
        with np.errstate(all="ignore"), one_thread():
            normal, _, _, why = pathfinder(log_density, value_and_gradient, q, rng)
            if normal is None:
                return q, why
            draw = normal.draw
            return first_usable(
                model, plan, lambda: draw(rng.standard_normal(model.dim)), chain, "of a normal", control
            ), ""
    except Stopped:
        return None, ""
    except (InitError, MetricError):
        return q, f"of its normal, none of {MAX_TRIES} draws can be used"
    except Exception as error:
        return q, f"{type(error).__name__}: {error}".rstrip(".")


def checked_starts(
    model: Model,
    plan: Plan,
    initvals: Any,
    chains: int,
    rng: np.random.Generator,
    preflight: bool,
) -> tuple[np.ndarray | None, np.ndarray, str | None]:
    """The given starts (chains, d), each checked, or None for random ones; the first chain's, from its generator ``rng`` if
    need be, where the model is checked; and what to warn of."""
    starts = given_starts(model, initvals, chains)
    first = random_start(model, plan, rng, 0) if starts is None else starts[0]
    check_functions(model, plan, first)
    for chain, start in enumerate([] if starts is None else starts):
        check_start(model, start, chain)
        check_metrics(model, plan, start, chain)
    check_variables(model, first)
    imprecise = None
    if preflight:
        imprecise = check_gradient(model, first)
        check_derivatives(plan, first)
    return starts, first, imprecise


def _short(q: np.ndarray) -> str:
    return np.array2string(q, precision=6, threshold=8, separator=", ")

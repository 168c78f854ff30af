"""Where chains begin, and the checks before the first draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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
    if are_named(initvals):
        return starts_by_name(model, initvals, chains)
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
        words = model.core.failures().words_at(q)
        if value == -np.inf and not words:
            coordinates = ", ".join(f"{model.names[j]} = {q[j]:.6g}" for j in model.discontinuous[:5])
            words = f": it is outside the support{f' (discontinuous: {coordinates})' if coordinates else ''}"
        raise InitError(f"chain {chain}: the log density at the start {_short(q)} is {value}{words}")
    bad = np.flatnonzero(~np.isfinite(gradient))
    if bad.size:
        where = model.names[bad[0]]
        words = model.core.failures().words_at(q)
        raise InitError(
            f"chain {chain}: the gradient at the start {_short(q)} is {gradient[bad[0]]} for {where}{words}"
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


def random_start(model: Model, plan: Plan, rng: np.random.Generator, chain: int) -> np.ndarray:
    """Drawn by the model, or uniform on (-2, 2)^d; again, up to 100 times, while density, gradient or metric cannot be used;
    else InitError, or MetricError where it was the metric that was not positive definite in the last try."""
    not_finite = {"log density": 0, "gradient": 0}
    not_positive: MetricError | None = None
    for _ in range(MAX_TRIES):
        q = rng.uniform(-2, 2, model.dim) if model.initial is None else np.asarray(model.initial(rng), dtype=float)
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
    said = model.core.failures().words_at(q)
    raise InitError(
        f"chain {chain}: no start found in {MAX_TRIES} tries, uniform on (-2, 2); not finite: {counts}{said}. "
        "Give initvals where the density is positive."
    )


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

"""Starts of the chains, and the checks before the first draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from refhmc.adaptation.pathfinder import pathfinder
from refhmc.core.arguments import not_finite_in, refuse_complex, refuse_masked, with_finite_numbers
from refhmc.core.linear_algebra import one_thread
from refhmc.dynamics.hamiltonian import Hamiltonian
from refhmc.errors import InitError, MetricError, ModelError, ShapeError
from refhmc.models.base import Model
from refhmc.models.binding.core import Core
from refhmc.models.conditionals import conditional
from refhmc.sampling.chains.named_starts import Named, are_named, starts_by_name

if TYPE_CHECKING:
    from refhmc.sampling.chains.chain import Plan

MAX_TRIES = 100


Initvals = ArrayLike | Named | Sequence[Named]  # argument initvals of sample


def given_starts(model: Model, initvals: Initvals | None, chains: int) -> np.ndarray | None:
    """Return `initvals` as (chains, d), else the model's own start repeated, or None if starts are random."""
    if initvals is None:
        return None if model.initial is None or callable(model.initial) else np.tile(model.initial, (chains, 1))
    refuse_masked("initvals", initvals, InitError)
    if are_named(initvals):
        return starts_by_name(model, initvals, chains)
    refuse_complex("initvals", initvals, ShapeError)
    try:
        starts = np.array(initvals, dtype=float)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            f"initvals must be numbers of shape ({model.dim},) or ({chains}, {model.dim}): {error}."
        ) from error
    if starts.ndim == 0 and model.dim == 1:
        starts = starts.reshape(1)
    if starts.shape == (model.dim,):
        starts = np.tile(starts, (chains, 1))
    if starts.shape != (chains, model.dim):
        raise ShapeError(f"initvals must have shape ({model.dim},) or ({chains}, {model.dim}); got {starts.shape}.")
    return starts


def superchains_of(starts: np.ndarray | None) -> np.ndarray | None:
    """Return the superchain of each chain, (chains,), if several chains begin at each of several ``starts`` (chains, d).

    None if all chains begin at the same point or at different ones, or if the numbers of chains differ.
    """
    if starts is None:
        return None
    _, labels, sizes = np.unique(starts, axis=0, return_inverse=True, return_counts=True)
    return labels.reshape(-1) if 1 < len(sizes) < len(starts) and np.all(sizes == sizes[0]) else None


def is_default(model: Model, starts: np.ndarray | None) -> bool:
    """Return whether the starts are those without `initvals`, even if those were given.

    (A run that is resumed from its folder does not know whether they were given.)
    """
    own = None if model.initial is None or callable(model.initial) else model.initial
    return starts is None or (own is not None and bool(np.all(starts == own)))


def check_start(model: Model, q: np.ndarray, chain: int) -> None:
    """Raise InitError, naming chain, coordinate and value, unless everything is finite at ``q``."""
    bad = np.flatnonzero(~np.isfinite(q))
    if bad.size:
        raise InitError(f"The start of chain {chain} must be finite; got {model.names[bad[0]]} = {q[bad[0]]}.")
    value, gradient = model.core.value_and_gradient(q)
    gradient[model.discontinuous] = 0.0
    if value == np.inf:
        raise ModelError(
            f"The log density at the start {_short(q)} of chain {chain} must be finite; got +inf. The density is improper."
        )
    if not np.isfinite(value):
        words = model.words_at(q).rstrip(".")
        if value == -np.inf and not words:
            coordinates = ", ".join(f"{model.names[j]} = {q[j]:.6g}" for j in model.discontinuous[:5])
            words = f" (outside the support{f'; discontinuous: {coordinates}' if coordinates else ''})"
        raise InitError(
            f"The log density at the start {_short(q)} of chain {chain} must be finite; got {value}{words}"
            f"{_remedy(model, [q], 'Give initvals inside the support')}."
        )
    bad = np.flatnonzero(~np.isfinite(gradient))
    if bad.size:
        where = model.names[bad[0]]
        words = model.words_at(q).rstrip(".")
        raise InitError(
            f"The gradient at the start {_short(q)} of chain {chain} must be finite; got {gradient[bad[0]]} for {where}{words}"
            f"{_remedy(model, [q], 'Give other initvals, or correct the gradient')}."
        )


def check_metrics(model: Model, plan: Plan, q: np.ndarray, chain: int) -> None:
    """Raise MetricError, with the least eigenvalue, unless each position-dependent metric is positive definite at `q`."""
    for block in plan.blocks:
        indices, metric = block.conditional.indices, block.dynamics.metric
        if not metric.position_dependent:
            continue
        try:
            Hamiltonian(conditional(model, indices, q), metric).energy(q[indices], np.zeros(len(indices)))
        except MetricError as error:
            raise MetricError(f"Chain {chain}: {error}") from None


def check_start_of(model: Model, plan: Plan, q: np.ndarray, chain: int) -> None:
    """Raise InitError or MetricError unless the model and each metric can be evaluated at `q`."""
    check_start(model, q, chain)
    check_metrics(model, plan, q, chain)


def random_start(
    model: Model, plan: Plan, rng: np.random.Generator, chain: int, control: np.record | None = None
) -> np.ndarray:
    """Draw a start from the model's own distribution, or uniformly from (-2, 2)^d.

    Raises InitError or MetricError if no draw can be used, Stopped if ``control`` requests a stop.
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
    control: np.record | None = None,
) -> np.ndarray:
    """Return the first of up to 100 draws with a finite density and gradient and a positive definite metric.

    Raises InitError, or MetricError if the last draw failed because of the metric. `whence` describes the draws in the message.
    """
    not_finite = {"log density": 0, "gradient": 0}
    not_positive: MetricError | None = None
    tried: list[np.ndarray] = []
    for _ in range(MAX_TRIES):
        if control is not None and control.stop:
            raise Stopped
        q = draw()
        tried.append(q)
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
    words = model.words_at(q).rstrip(".")
    raise InitError(
        f"No valid start was found for chain {chain} among {MAX_TRIES} points {whence}; not finite: {counts}{words}"
        f"{_remedy(model, tried, 'Give initvals where the density is positive')}."
    )


def _remedy(model: Model, starts: Sequence[np.ndarray], otherwise: str) -> str:
    """Return the end of a message: that the data are the cause, if they are, and what to do."""
    where = not_finite_in("data", model.data)
    if where and _work_with(with_finite_numbers(model.data), model, starts):
        return f", because {where}. Remove or replace such entries, or leave them out of the log density and gradient"
    return f". {otherwise}"


def _work_with(data: object, model: Model, starts: Sequence[np.ndarray]) -> bool:
    """Return whether log density and gradient are finite at one of the starts with other data of the same types."""
    if model.core.own:  # its constructor checks the data, and packs whole numbers as bits
        return False
    in_python = model.runs_as_python or ""
    try:
        core = Core(
            model.functions, data, dim=model.dim, name=model.name, to_compile=model.to_compile, in_python=in_python
        )
        for q in starts:
            value, gradient = core.value_and_gradient(q)
            gradient[model.discontinuous] = 0.0
            if np.isfinite(value) and np.all(np.isfinite(gradient)):
                return True
    except Exception:  # of the user's functions, with data that the user did not give
        return False
    return False


class Stopped(Exception):
    """The run was stopped before a start was found."""


def pathfinder_start(
    model: Model, plan: Plan, q: np.ndarray, rng: np.random.Generator, chain: int, control: np.record
) -> tuple[np.ndarray, str]:
    """Return a draw from the normal that Pathfinder finds from `q`, or `q` and the reason.

    Evaluations are counted in `control`. If the model raises an exception, the chain starts at `q`. Raises Stopped if
    ``control`` requests a stop.
    """

    def count(what: str) -> None:
        if control.stop:
            raise Stopped
        control[what] += 1

    def log_density(q: np.ndarray) -> float:
        count("densities")
        return model.core.log_density(q)

    def value_and_gradient(q: np.ndarray) -> tuple[float, np.ndarray]:
        count("gradients")
        return model.core.value_and_gradient(q)

    try:
        with np.errstate(all="ignore"), one_thread():
            normal, _, _, why = pathfinder(log_density, value_and_gradient, q, rng)
            if normal is None:
                return q, why
            draw = normal.draw
            return first_usable(
                model, plan, lambda: draw(rng.standard_normal(model.dim)), chain, "from a normal", control
            ), ""
    except Stopped:
        raise
    except (InitError, MetricError):
        return q, f"none of {MAX_TRIES} draws from its normal can be used"
    except Exception as error:
        return q, f"{type(error).__name__}: {error}".rstrip(".")


def _short(q: np.ndarray) -> str:
    return np.array2string(q, precision=6, threshold=8, separator=", ")

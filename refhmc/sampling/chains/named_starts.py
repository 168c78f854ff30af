"""Starts given by name in constrained values: the position q at which ``constrain`` returns them.

A model created by :class:`refhmc.Parameters` has the inverse. Any other model only has the map from q to its variables x. Then
q is found by the iteration of Levenberg and Marquardt for

    min_q sum_k ((x_k(q) - v_k) / s_k)^2,    s_k = |v_k|, or 1 if v_k is 0

from q = 0, with a Jacobian by differences: (J'J + lambda diag J'J) step = -J'r. lambda is divided by 10 after a step that
reduces the sum and multiplied by 10 otherwise. A solution has a relative error of at most 1e-8 in each value, and J has full
rank, so that every coordinate is determined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.arguments import array_of_numbers
from refhmc.errors import InitError, ShapeError
from refhmc.models.base import Model

MAX_ITERATIONS, DIFFERENCE, TOLERANCE = 300, 1e-6, 1e-8


Named = Mapping[str, ArrayLike]  # values of variables by name


def are_named(initvals: object) -> TypeGuard[Named | Sequence[Named]]:
    """Return whether starts are given by name: as one mapping, or one for each chain."""
    return isinstance(initvals, Mapping) or (
        isinstance(initvals, Sequence) and len(initvals) > 0 and all(isinstance(each, Mapping) for each in initvals)
    )


def starts_by_name(model: Model, initvals: Named | Sequence[Named], chains: int) -> np.ndarray:
    """Return the starts (chains, d) from a mapping of names to values, or from one for each chain.

    Raises ShapeError for unknown names, wrong shapes or a wrong number of mappings. Raises InitError for values that the
    variables cannot have, or that do not determine every coordinate.
    """
    if isinstance(initvals, Mapping):
        return np.tile(position_of(model, initvals), (chains, 1))
    if len(initvals) != chains:
        raise ShapeError(f"initvals must be one mapping, or one for each of {chains} chains; got {len(initvals)}.")
    return np.stack([position_of(model, each) for each in initvals])


def position_of(model: Model, values: Mapping) -> np.ndarray:
    """Return the position (d,) at which the model's variables have these values."""
    if model.unconstrain is not None:
        return model.unconstrain(values, "initvals")
    there = model.constrain(np.zeros(model.dim))
    unknown = [name for name in values if name not in there]
    if unknown:
        raise ShapeError(
            f"initvals must name variables of model {model.name!r}; got {unknown[0]!r}. It has {', '.join(there)}."
        )
    wanted = {name: _numbers(name, value, np.shape(there[name])) for name, value in values.items()}
    whole = [name for name in wanted if np.asarray(there[name]).dtype.kind in "iub"]
    if whole:
        raise InitError(
            f"initvals must name continuous variables; got the integer {whole[0]} of model {model.name!r}. Give the "
            "unconstrained position, (d,) or (chains, d)."
        )
    v = np.concatenate([wanted[name].ravel() for name in wanted]) if wanted else np.zeros(0)
    scale = np.where(v == 0, 1.0, abs(v))

    def residuals(q: np.ndarray) -> np.ndarray:
        x = model.constrain(q)
        lead = q.shape[:-1]
        parts = [np.asarray(x[name], dtype=float).reshape(*lead, -1) for name in wanted]
        return (np.concatenate(parts, axis=-1) - v) / scale if parts else np.zeros((*lead, 0))

    with np.errstate(all="ignore"):
        q, J = least_squares(residuals, np.zeros(model.dim))
        missed = abs(residuals(q))
    if missed.size and not missed.max() <= TOLERANCE:
        first = int(np.argmax(np.nan_to_num(missed, nan=np.inf)))
        owners = [name for name in wanted for _ in range(wanted[name].size)]
        raise InitError(
            f"initvals: {owners[first]} = {v[first]:.6g} is outside the range of the variable, very near its end, or "
            "inconsistent with the other values. Give a value inside, or the unconstrained position."
        )
    free = np.linalg.norm(J, axis=0) == 0
    if free.any() or np.linalg.matrix_rank(J) < model.dim:
        rest = [model.names[i] for i in np.flatnonzero(free)[:5]] or ["a combination of coordinates"]
        raise InitError(
            f"initvals: {', '.join(values) or 'no name'} does not determine {', '.join(rest)}. Give all variables "
            f"({', '.join(there)}), or the unconstrained position."
        )
    return q


def least_squares(residuals: Callable[[np.ndarray], np.ndarray], q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the q of least squares, and the Jacobian there."""
    damping, r = 1e-3, residuals(q)
    for _ in range(MAX_ITERATIONS):
        J = jacobian(residuals, q)
        if not np.isfinite(J).all() or abs(r).max(initial=0.0) <= 1e-13:
            break
        normal = J.T @ J
        weights = np.diag(normal)
        step = np.linalg.lstsq(normal + damping * np.diag(np.where(weights > 0, weights, 1.0)), -J.T @ r, rcond=None)[0]
        moved = residuals(q + step)
        if np.isfinite(moved).all() and moved @ moved < r @ r:
            q, r, damping = q + step, moved, max(damping / 10, 1e-15)
        elif damping > 1e12:
            break
        else:
            damping *= 10
    return q, jacobian(residuals, q)


def jacobian(residuals: Callable[[np.ndarray], np.ndarray], q: np.ndarray) -> np.ndarray:
    """Return the Jacobian (k, d) by central differences."""
    h = DIFFERENCE * np.maximum(1.0, abs(q))
    return ((residuals(q + np.diag(h)) - residuals(q - np.diag(h))) / (2 * h[:, None])).T


def _numbers(name: str, value: ArrayLike, shape: tuple) -> np.ndarray:
    array = array_of_numbers(f"initvals: {name}", value, ShapeError)
    if array.shape != shape:
        raise ShapeError(f"initvals: {name} must have shape {shape}; got {array.shape}.")
    if not np.isfinite(array).all():
        raise InitError(f"initvals: {name} must be finite; got {value!r}.")
    return array

"""Possible difference of two correct float64 programs: the tolerance that accompanies each of the oracle's answers.

A function f of q, evaluated in floating point, differs from f by a few units of rounding of its inputs and of its
result:

    |f^ - f| <= C u (1 + |f| + sum_k |df/dq_k| |q_k|),        u = 2^-53,   C = 64 + the number of data

A trajectory z_0, ..., z_n makes such an error at every step, and an implicit one also that of its solver, delta. The
error at step k is propagated by the Jacobian J_{k -> n}:

    tol = sum_k |J_{k+1 -> n}| (C u (1 + |J_{k -> k+1}|) (1 + |z|) + 10 delta)

|.| is the 2-norm, |z| the largest along the trajectory. The Jacobians J_{0 -> k} are central differences, those that
start later are J_{k -> n} = J_{0 -> n} J_{0 -> k}^-1, where the inverse of a symplectic J is -W J' W with
W = [[0, 1], [-1, 0]].
The 10 is for a solver that stops when its last change was delta: its error is kappa / (1 - kappa) of that, with kappa its
contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

UNIT = 2.0**-53
ROUNDINGS = 64
SOLVER = 10.0
WIDTH = 1e-6  # of central differences, since a condition is only needed to a digit or two


def roundings(model: Any) -> float:
    """Return C of a model: 64 plus the number of its data."""
    parts = model.data if isinstance(model.data, tuple) else (model.data,)
    return ROUNDINGS + sum(np.size(part) for part in parts if part is not None)


def of_value(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, value: np.ndarray | float, C: float) -> float:
    """Return the tolerance of ``value`` = f(x), the same for all its entries; infinite if one of them is not finite."""
    if not np.isfinite(value).all():
        return float("inf")
    moved = sum(float(np.abs(slope).max(initial=0.0) * abs(x_k)) for slope, x_k in zip(_slopes(f, x), x, strict=True))
    return float(C * UNIT * (1.0 + np.abs(value).max(initial=0.0) + moved))


def of_path(run: Callable[[np.ndarray], np.ndarray], z: np.ndarray, path: np.ndarray, C: float, delta: float) -> float:
    """Return the tolerance of ``path[-1]``, for the states ``path`` = run(z), (n + 1, 2d), of a trajectory from ``z``."""
    jacobians = np.stack(list(_slopes(run, z)), axis=-1)  # J_{0 -> k} for all k, (n + 1, 2d, 2d)
    d = len(z) // 2
    last, size = jacobians[-1], 1.0 + float(np.linalg.norm(path, axis=1).max())
    total = float(C * UNIT * size)
    for k in range(len(path) - 1):
        one_step = jacobians[k + 1] @ _inverse(jacobians[k], d)
        onwards = last @ _inverse(jacobians[k + 1], d)
        local = C * UNIT * (1.0 + np.linalg.norm(one_step, 2)) * size + SOLVER * delta
        total += max(1.0, float(np.linalg.norm(onwards, 2))) * float(local)
    return float(total)


def _slopes(f: Callable[[np.ndarray], Any], x: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the central difference of f along each coordinate."""
    for step in np.diag(WIDTH * np.maximum(1.0, np.abs(x))):
        yield (np.asarray(f(x + step)) - np.asarray(f(x - step))) / (2 * step.max())


def _inverse(J: np.ndarray, d: int) -> np.ndarray:
    """Return the inverse of a symplectic matrix of four blocks [[A, B], [C, D]]: [[D', -B'], [-C', A']]."""
    A, B, C, D = J[:d, :d], J[:d, d:], J[d:, :d], J[d:, d:]
    return np.block([[D.T, -B.T], [-C.T, A.T]])

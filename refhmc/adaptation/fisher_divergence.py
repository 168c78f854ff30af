"""A metric of low rank learned from draws and gradients: the one of least Fisher divergence.

Let x be draws of a density with scores s = dL/dq, and take S = C^-1, the normal with the covariance C, for what it is like. The
Fisher divergence between the two is, up to a constant,

    D(C) = tr(C cov s) + tr(C^-1 cov x),      least where  C (cov s) C = cov x

(set the derivative, cov s - C^-1 (cov x) C^-1, to zero): C is the geometric mean of cov x and (cov s)^-1. For a normal density
s = -C^-1 (x - mean) exactly, whichever and however few the draws, so that d + 1 draws give C without error: no other rule that
reads draws alone does that. Restricted to a diagonal it is C_ii = sqrt(var x_i / var s_i); restricted to the span of a
direction u, lambda = sqrt(var(u . x) / var(u . s)). The idea is nutpie's; Seyboldt, Carlson and Carpenter (2026).

**Scales.** S = diag(C_ii)^1/2 as above; all that follows is in the coordinates S^-1 x, S s.

**Directions.** In the span of a half of the draws and scores (every second one), orthonormalised, the geometric mean of
cov x + g I and (cov s + g I)^-1. Where either does not fill that span g = 1e-5, which keeps a direction at 1 that neither has
seen; else g = 0. Its eigenvectors are the directions u_j.

**Eigenvalues** from the other half: lambda_j = sqrt(var(u_j . x) / var(u_j . s)). With fewer draws than dimensions the
first half sees, of a density that is not normal, directions that are not there; their eigenvalue in the other half is near 1.
(Fitted to all draws, independent Student-t5 coordinates, d = 50 and n = 50, are given 9 directions and the condition 10.8^2
for 1.3^2; by halves none.)

**How many.** A trajectory takes steps in proportion to sqrt(largest / least of the eigenvalues left out, and 1), and a
step costs a gradient and 4 k multiplications a coordinate. The rank k, largest |log lambda| first, is the minimiser of

    sqrt(spread left) (gradient + 4 k)

where a gradient is taken for the multiplications a coordinate that reading the model's data once makes, and some more: what the
clock says would make draws depend on the machine. An eigenvalue that may be 1, |log lambda| < 3 / sqrt(n) for n held-out draws
(the standard deviation of log lambda is 1/sqrt(n) where x and s are independent, and less otherwise), is taken for 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

REGULARISER, FEWEST, STANDARD_ERRORS = 1e-5, 8, 3.0
SMALLEST, LARGEST = 1e-150, 1e150  # of a variance, whose square has to be a number
LARGEST_EIGENVALUE = 1e20  # of the scaled draws, and of their inverse: beyond it all is rounding
NOTHING = 1e-10  # a size beside the largest that is one of rounding


class Learned(NamedTuple):
    """S^2 (d,), the rows u_j (k, d), lambda (k,), and the steps of a trajectory, in units of those without any spread, on the
    diagonal metric alone and on this one."""

    variances: np.ndarray
    directions: np.ndarray
    eigenvalues: np.ndarray
    steps_diagonal: float
    steps: float


def least_divergence(
    draws: np.ndarray, scores: np.ndarray, before: np.ndarray, most: int | None, looks: bool, gradient: float = 20.0
) -> Learned:
    """The metric of ``draws`` and ``scores`` (n, d) with at most ``most`` directions, and none unless it ``looks`` for them.

    ``most=None``: with all of them, whatever they cost. ``gradient``: what one costs, in multiplications a coordinate. A
    coordinate in which either has not moved keeps its variance of ``before``.
    """
    x, s = centred(draws), centred(scores)
    variances = scales(x, s, before)
    d, none = draws.shape[1], (np.zeros((0, draws.shape[1])), np.zeros(0))
    if not looks or d < 2 or most == 0 or len(draws) < FEWEST:
        return Learned(variances, *none, 1.0, 1.0)
    root = np.sqrt(variances)
    x, s = x / root, s * root
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(s))):
        return Learned(variances, *none, 1.0, 1.0)
    U = directions(x[::2], s[::2])
    eigenvalues = held_out_eigenvalues(U, x[1::2], s[1::2])
    cutoff = STANDARD_ERRORS / np.sqrt(len(x) // 2)
    k, steps = rank(eigenvalues, cutoff, gradient)
    if most is None:
        return Learned(variances, U, eigenvalues, float(steps[0]), 1.0)
    k = min(k, most)
    order = np.argsort(-np.abs(np.log(eigenvalues)), kind="stable")[:k]
    return Learned(variances, U[order], eigenvalues[order], float(steps[0]), float(steps[k]))


def centred(rows: np.ndarray) -> np.ndarray:
    """Less their mean, (n, d)"""
    with np.errstate(all="ignore"):
        return rows - rows.sum(axis=0) / len(rows)


def scales(x: np.ndarray, s: np.ndarray, otherwise: np.ndarray | float = 1.0) -> np.ndarray:
    """sqrt(var x / var s) of each column of centred rows (n, d), (d,); ``otherwise`` where that is no size."""
    with np.errstate(all="ignore"):
        found = np.sqrt((np.sum(x * x, axis=0) / len(x)) / (np.sum(s * s, axis=0) / len(s)))
    return np.where((found > SMALLEST) & (found < LARGEST), found, otherwise)  # a NaN is neither


def directions(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Orthonormal rows (r, d): the eigenvectors of the regularised geometric mean in the span of x and s (n, d)."""
    n, d = x.shape
    Q = None if 2 * n >= d else span(np.concatenate([x / np.linalg.norm(x), s / np.linalg.norm(s)]))
    x, s = (centred(each) if Q is None else centred(each) @ Q.T for each in (x, s))
    r = x.shape[1]
    if n <= r or not (spans_all(x) and spans_all(s)):  # as rows: each'each / n + g I
        x, s = (np.concatenate([each, np.sqrt(n * REGULARISER) * np.eye(r)]) for each in (x, s))
    U = np.linalg.svd(root_of_geometric_mean(x, s))[0].T
    return np.ascontiguousarray(U) if Q is None else U @ Q


def span(rows: np.ndarray) -> np.ndarray:
    """Orthonormal rows of the span of ``rows``, by QR with pivots."""
    Q, R, _ = scipy.linalg.qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(R))
    return np.ascontiguousarray(Q[:, sizes > NOTHING * sizes[0]].T)


def spans_all(rows: np.ndarray) -> bool:
    """Whether n >= r rows (n, r) span all dimensions: the least singular value is more than rounding beside the largest.

    Where LAPACK's estimate of the condition of R, of rows = Q R, is far from that bound it tells; at r = 175 it takes a
    fortieth of the time of the singular values.
    """
    R: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    inverse_condition, _ = scipy.linalg.lapack.dtrcon(R.T, uplo="L")  # in the 1-norm, which is within r of the other
    if inverse_condition > 100 * len(R) * NOTHING:
        return True
    sizes = np.linalg.svd(R, compute_uv=False)
    return bool(sizes[-1] > NOTHING * sizes[0])


def root_of_geometric_mean(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """T (r, r) with C = T T', C (s's) C = x'x, of rows x and s (n, r).

    With s = Q R (QR) and x R' = W diag(e) V' (SVD): C = R^-1 V diag(e) V' R^-T. No covariance is formed, whose condition would
    be that of the rows squared.
    """
    R: np.ndarray = np.linalg.qr(s, mode="r")  # type: ignore[assignment]
    _, e, V = np.linalg.svd(x @ R.T, full_matrices=False)
    return np.linalg.solve(R, V.T * np.sqrt(e))


def held_out_eigenvalues(U: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """lambda of each row of U, (r,); 1 where a variance is zero, or nothing beside the other."""
    found = scales(centred(x @ U.T), centred(s @ U.T))
    return np.where((found > 1 / LARGEST_EIGENVALUE) & (found < LARGEST_EIGENVALUE), found, 1.0)


def rank(eigenvalues: np.ndarray, cutoff: float, gradient: float) -> tuple[int, np.ndarray]:
    """How many of the eigenvalues are worth a direction each, and the steps with the 0, 1, 2, ... farthest from 1."""
    logs = np.log(eigenvalues)
    order = np.argsort(-np.abs(logs), kind="stable")
    logs = np.where(np.abs(logs) < cutoff, 0.0, logs)[order]
    left = np.append(logs, 0.0)[::-1]  # from the last one on
    highest = np.maximum.accumulate(np.maximum(left, 0.0))[::-1]
    lowest = np.minimum.accumulate(np.minimum(left, 0.0))[::-1]
    steps = np.exp((highest - lowest) / 2)
    return int(np.argmin(steps * (gradient + 4 * np.arange(len(steps))))), steps

"""A metric of low rank learned from draws and gradients: the one of least Fisher divergence.

Let x be draws of a density with scores s = dL/dq, and approximate it by the normal with the covariance C. The Fisher divergence
between the two is, up to a constant,

    D(C) = tr(C cov s) + tr(C^-1 cov x),      least for  C (cov s) C = cov x

(set the derivative, cov s - C^-1 (cov x) C^-1, to zero): C is the geometric mean of cov x and (cov s)^-1. For a normal density
s = -C^-1 (x - mean) exactly, for any draws and any number of them, so that d + 1 draws give C without error. No other rule that
reads draws alone does that. Restricted to a diagonal it is C_ii = sqrt(var x_i / var s_i); restricted to the span of a
direction u, lambda = sqrt(var(u . x) / var(u . s)). The idea is nutpie's; Seyboldt, Carlson and Carpenter (2026).

**Scales.** S = diag(C_ii)^1/2 as above; everything below is in the coordinates S^-1 x, S s.

**Directions.** Take the span of half of the draws and scores (every second one), orthonormalised. In it, compute the geometric
mean of cov x + g I and (cov s + g I)^-1. If one of the two does not fill that span, g = 1e-5, which keeps a direction at 1 that
neither has seen; otherwise g = 0. The eigenvectors of the mean are the directions u_j.

**Earlier draws.** d + 1 different draws determine all directions of a normal wherever they are, but half of a window may be
fewer. Draws from before the window are then used for the directions, too, until there are 3/2 d. (A chain repeats draws.) Those
more than 100 times as far from the mean of the window as its own draws are left out, and so are those with such scores.

**Eigenvalues** come from the other half: lambda_j = sqrt(var(u_j . x) / var(u_j . s)). If there are fewer draws than dimensions
and the density is not normal, the first half finds spurious directions. Their eigenvalues in the other half are near 1. (Fitted
to all draws, independent Student-t5 coordinates, d = 50 and n = 50, get 9 directions and the condition 10.8^2 instead of 1.3^2;
with halves, none.)

**How many.** The number of steps of a trajectory is proportional to sqrt(largest / least of the eigenvalues left out, and 1). A
step costs a gradient and 4 k multiplications per coordinate. The rank k, largest |log lambda| first, is the minimiser of

    sqrt(spread left) (gradient + 4 k)

The cost of a gradient is taken as the multiplications per coordinate for reading the model's data once, and some more. A
measured time would make the draws depend on the machine. An eigenvalue that may be 1, |log lambda| < 3 / sqrt(n) for n held-out
draws, is replaced by 1. (The standard deviation of log lambda is 1/sqrt(n) if x and s are independent, and less otherwise.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.linalg

REGULARISER, FEWEST, STANDARD_ERRORS = 1e-5, 8, 3.0
FOR_DIRECTIONS, FARTHEST = 1.5, 100.0  # draws per coordinate; distance of earlier draws in units of those of the window
SMALLEST, LARGEST = 1e-150, 1e150  # of a variance, whose square must not overflow
LARGEST_EIGENVALUE = 1e20  # of the scaled draws, and of their inverse: beyond this all is rounding
NOTHING = 1e-10  # a size relative to the largest that is due to rounding


class Learned(NamedTuple):
    """S^2 (d,), the rows u_j (k, d), lambda (k,), and the steps of a trajectory on the diagonal metric alone and on this one.

    The steps are in units of those for equal scales.
    """

    variances: np.ndarray
    directions: np.ndarray
    eigenvalues: np.ndarray
    steps_diagonal: float
    steps: float


def least_divergence(
    draws: np.ndarray,
    scores: np.ndarray,
    before: np.ndarray,
    most: int | None,
    looks: bool,
    gradient: float = 20.0,
    earlier: tuple[np.ndarray, np.ndarray] | None = None,
) -> Learned:
    """Return the metric of ``draws`` and ``scores`` (n, d) with at most ``most`` directions, or none if ``looks`` is False.

    ``most=None`` keeps all of them, whatever their cost. ``gradient`` is the cost of one, in multiplications per coordinate. A
    coordinate in which draws or scores do not vary keeps its variance of ``before``. ``earlier`` has the draws and scores
    (m, d) from before the window.
    """
    x, s = centred(draws), centred(scores)
    variances = scales(x, s, before)
    d, none = draws.shape[1], (np.zeros((0, draws.shape[1])), np.zeros(0))
    if not looks or d < 2 or most == 0 or len(draws) < FEWEST:
        return Learned(variances, *none, 1.0, 1.0)
    root = np.sqrt(variances)
    x, s = x / root, s * root
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(s))) or are_opposite(x, s):
        return Learned(variances, *none, 1.0, 1.0)
    half = x[::2], s[::2]
    if earlier is not None:
        with np.errstate(all="ignore"):
            there = (earlier[0] - draws.mean(axis=0)) / root, (earlier[1] - scores.mean(axis=0)) * root
            half = with_earlier(half, *there)
    U = directions(*half)
    eigenvalues = held_out_eigenvalues(U, x[1::2], s[1::2])
    cutoff = STANDARD_ERRORS / np.sqrt(len(x) // 2)
    k, steps = rank(eigenvalues, cutoff, gradient)
    if most is None:
        return Learned(variances, U, eigenvalues, float(steps[0]), 1.0)
    k = min(k, most)
    order = np.argsort(-np.abs(np.log(eigenvalues)), kind="stable")[:k]
    return Learned(variances, U[order], eigenvalues[order], float(steps[0]), float(steps[k]))


def centred(rows: np.ndarray) -> np.ndarray:
    """Return the rows minus their mean, (n, d)."""
    with np.errstate(all="ignore"):
        return rows - np.einsum("td->d", rows) / len(rows)  # half the time of a sum


def are_opposite(x: np.ndarray, s: np.ndarray) -> bool:
    """Return whether s = -x up to rounding, as for a normal with independent coordinates, which has no directions."""
    return bool(np.abs(x + s).max() <= NOTHING * np.abs(x).max())


def scales(x: np.ndarray, s: np.ndarray, otherwise: np.ndarray | float = 1.0) -> np.ndarray:
    """Return sqrt(var x / var s) of each column of centred rows (n, d), (d,); ``otherwise`` if that is not a finite size."""
    with np.errstate(all="ignore"):
        found = np.sqrt((np.einsum("td,td->d", x, x) / len(x)) / (np.einsum("td,td->d", s, s) / len(s)))
    return np.where((found > SMALLEST) & (found < LARGEST), found, otherwise)  # a NaN is neither


def earlier_than(start: int, stop: int, d: int) -> int:
    """Return the first iteration whose draw is used by the window ``start`` to ``stop``, at most ``start``."""
    return max(0, start - max(0, math.ceil(FOR_DIRECTIONS * d) - (stop - start + 1) // 2))


def with_earlier(half: tuple[np.ndarray, np.ndarray], x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows x and s of ``half`` with the earlier ones before them that are not too far away."""
    near = np.ones(len(x), dtype=bool)
    for rows, of_window in ((x, half[0]), (s, half[1])):
        near &= squares(rows) <= FARTHEST**2 * squares(of_window).max()  # False for NaN
    return np.concatenate([x[near], half[0]]), np.concatenate([s[near], half[1]])


def squares(rows: np.ndarray) -> np.ndarray:
    """Return the squared lengths of rows (n, d), (n,)."""
    return np.einsum("td,td->t", rows, rows)


def directions(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return orthonormal rows (r, d): the eigenvectors of the regularised geometric mean in the span of x and s (n, d)."""
    n, d = x.shape
    Q = None if 2 * n >= d else span(np.concatenate([x / np.linalg.norm(x), s / np.linalg.norm(s)]))
    x, s = (centred(each) if Q is None else centred(each) @ Q.T for each in (x, s))
    r = x.shape[1]
    R = triangle(s)
    if n <= r or not (spans_all(triangle(x)) and spans_all(R)):  # as rows: each'each / n + g I
        x, s = (np.concatenate([each, np.sqrt(n * REGULARISER) * np.eye(r)]) for each in (x, s))
        R = triangle(s)
    U = np.linalg.svd(root_of_geometric_mean(x, R))[0].T
    return np.ascontiguousarray(U) if Q is None else U @ Q


def span(rows: np.ndarray) -> np.ndarray:
    """Return orthonormal rows of the span of ``rows``, by QR with pivots."""
    Q, R, _ = scipy.linalg.qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(R))
    return np.ascontiguousarray(Q[:, sizes > NOTHING * sizes[0]].T)


def triangle(rows: np.ndarray) -> np.ndarray:
    """Return R of rows = Q R."""
    R: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    return R


def spans_all(R: np.ndarray) -> bool:
    """Return whether n >= r rows Q R (n, r) span all dimensions: whether the least singular value is more than rounding.

    LAPACK's estimate of the condition of R is enough if it is far from the bound. At r = 175 it takes a fortieth of the time
    of the singular values.
    """
    inverse_condition, _ = scipy.linalg.lapack.dtrcon(R.T, uplo="L")  # in the 1-norm, which is within r of the other
    if inverse_condition > 100 * len(R) * NOTHING:
        return True
    sizes = np.linalg.svd(R, compute_uv=False)
    return bool(sizes[-1] > NOTHING * sizes[0])


def root_of_geometric_mean(x: np.ndarray, R: np.ndarray) -> np.ndarray:
    """Return T (r, r) with C = T T', C (s's) C = x'x, of rows x and s = Q R (n, r).

    With x R' = W diag(e) V' (SVD): C = R^-1 V diag(e) V' R^-T. No covariance is computed, since its condition would be the
    square of that of the rows.
    """
    _, e, V = np.linalg.svd(x @ R.T, full_matrices=False)
    return np.linalg.solve(R, V.T * np.sqrt(e))


def held_out_eigenvalues(U: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return lambda of each row of U, (r,); 1 if a variance is zero, or negligible relative to the other."""
    found = scales(centred(x @ U.T), centred(s @ U.T))
    return np.where((found > 1 / LARGEST_EIGENVALUE) & (found < LARGEST_EIGENVALUE), found, 1.0)


def rank(eigenvalues: np.ndarray, cutoff: float, gradient: float) -> tuple[int, np.ndarray]:
    """Return how many eigenvalues are worth a direction, and the steps with the 0, 1, 2, ... eigenvalues farthest from 1."""
    logs = np.log(eigenvalues)
    order = np.argsort(-np.abs(logs), kind="stable")
    logs = np.where(np.abs(logs) < cutoff, 0.0, logs)[order]
    left = np.append(logs, 0.0)[::-1]  # from the last one on
    highest = np.maximum.accumulate(np.maximum(left, 0.0))[::-1]
    lowest = np.minimum.accumulate(np.minimum(left, 0.0))[::-1]
    steps = np.exp((highest - lowest) / 2)
    return int(np.argmin(steps * (gradient + 4 * np.arange(len(steps))))), steps

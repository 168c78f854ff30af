"""Metrics learned from draws, or from draws and gradients: running moments of a window, and the metric from them.

**Covariance** (Welford): with n draws of a window, shrunk towards 1/1000 of the sample variance of each coordinate,

    n/(n + 5) C + 5/(n + 5) 10^-3 diag(C)

Stan's rule has I instead of diag(C); both agree if every variance is 1. With I a variance of 10^-9 is raised to 10^-5
(n = 500), and the remaining condition is 10^4; with diag(C) the rule does not depend on units. (A shrinkage of the
correlations by Ledoit and Wolf's intensity, about 2/n of them, is least in the Frobenius norm, which does not see small
eigenvalues: the least one of a correlation of 0.9999 would be raised tenfold.) A coordinate whose draws are all equal
keeps its variance. ``regularization="stan"`` is Stan's own rule.

**From gradients** (``Diagonal(learn_from="draws and gradients")``, the idea of nutpie): M^-1_ii = sqrt(var q_i / var dL/dq_i),
the diagonal that minimises the Fisher divergence between the scaled target and a standard normal. For independent normals
var q = s^2 and var dL/dq = s^-2 for *any* two or more draws, so that no shrinkage is needed. The windows are the same, but dual
averaging continues through them without a restart, since the metric hardly changes at their ends. The realised acceptance is
then closer to its target.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.adaptation.fisher_divergence import LARGEST, SMALLEST
from refhmc.compile.compiled import invariant, jit
from refhmc.core.types import as_work
from refhmc.metrics.euclidean import dense, diagonal
from refhmc.numerics.linalg import cholesky

SHRINK_COUNT, SHRINK_TO = 5.0, 1e-3


@jit
def update_welford(mean: np.ndarray, scatter: np.ndarray, q: np.ndarray, count: int) -> None:
    """Update running mean and scatter; ``count`` includes ``q``. ``scatter`` has one row (the diagonal) or d.

    mean_n = mean_{n-1} + (q - mean_{n-1}) / n,    scatter_n = scatter_{n-1} + (1 - 1/n) (q - mean_{n-1})(q - mean_{n-1})'
    """
    invariant(count >= 1)
    d, share = q.shape[0], 1.0 / count
    if scatter.shape[0] == d and d > 1:
        for i in range(d):
            scaled = (1 - share) * (q[i] - mean[i])
            for j in range(d):
                scatter[i, j] += scaled * (q[j] - mean[j])
    else:
        for i in range(d):
            scatter[0, i] += (1 - share) * (q[i] - mean[i]) ** 2
    for i in range(d):
        mean[i] += share * (q[i] - mean[i])


@jit
def learn_from_gradients(scatter: np.ndarray, gradient_scatter: np.ndarray, work: np.ndarray) -> None:
    """Set M^-1 = diag sqrt(var q / var dL/dq); a coordinate in which either is constant keeps its value."""
    w = diagonal(work)
    for i in range(scatter.shape[1]):
        ratio = math.sqrt(scatter[0, i] / gradient_scatter[0, i])
        if SMALLEST < ratio < LARGEST:  # also False for a NaN
            w.inverse_mass[i] = ratio
            w.root[i] = 1 / math.sqrt(ratio)


@jit
def learn_metric(scatter: np.ndarray, count: int, as_stan: bool, work: np.ndarray) -> None:
    """Set M^-1 to the regularised (co)variance of a window."""
    w, is_diagonal = diagonal(work), as_work(work).mats.shape[0] == 0
    keep = count / (count + SHRINK_COUNT)
    add = SHRINK_TO * SHRINK_COUNT / (count + SHRINK_COUNT)
    d = scatter.shape[1]
    if count < 2:
        return
    if is_diagonal:
        for i in range(d):
            variance = scatter[0, i] / (count - 1)
            if as_stan or variance > 0:
                w.inverse_mass[i] = keep * variance + add * (1.0 if as_stan else variance)
                w.root[i] = 1 / math.sqrt(w.inverse_mass[i])
    else:
        M_inverse = dense(work).M_inverse
        for i in range(d):
            variance, before = scatter[i, i] / (count - 1), M_inverse[i, i]
            for j in range(d):
                M_inverse[i, j] = keep * scatter[i, j] / (count - 1)
            if as_stan or variance > 0:
                M_inverse[i, i] += add * (1.0 if as_stan else variance)
            else:
                M_inverse[i, i] = before
            w.inverse_mass[i] = M_inverse[i, i]
            w.root[i] = 1 / math.sqrt(w.inverse_mass[i])
        cholesky(M_inverse, dense(work).L)

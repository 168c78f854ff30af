"""A Fisher metric that is tridiagonal except for one row and column: all operations cost O(d).

Let j be the coordinate of the border. It is eliminated last:

    G = L D L',     L unit lower, with l_i = L_i,i-1 and the row f_i = L_ji:
    l_i = b_{i-1} / D_{i-1},    D_i = a_i - l_i b_{i-1}
    h_i = c_i - l_i h_{i-1},    f_i = h_i / D_i,    D_j = a_j - sum_i h_i f_i

(a the diagonal of G, b the entries next to it, c row j, with b_{j-1} = b_j = c_j = 0). A path with a common level has such a
precision, and so has a block diagonal matrix of several paths. Velocities and momenta are

    v = G^-1 p:       y_i = p_i - l_i y_{i-1},    y_j = p_j - sum_i f_i y_i
                      v_j = y_j / D_j,            v_i = y_i / D_i - l_{i+1} v_{i+1} - f_i v_j
    p = L D^1/2 z:    s_i = D_i^1/2 z_i,          p_i = s_i + l_i s_{i-1},    p_j = s_j + sum_i f_i s_i

The force contracts dG/dq with M = 1/2 (G^-1 - v v'), of which only the entries of the pattern of G matter. In S = G^-1 they
follow from S = D^-1 L^-1 + (I - L') S, from the last i to the first (Takahashi, Fagan and Chin 1973):

    S_jj = 1/D_j,   S_ij = -l_{i+1} S_{i+1,j} - f_i S_jj,   S_i,i+1 = -l_{i+1} S_{i+1,i+1} - f_i S_{i+1,j}
    S_ii = 1/D_i - l_{i+1} S_i,i+1 - f_i S_ij

The loops run over all i and leave j out without a branch, because its l, l_{j+1} and f are zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refhmc.compile.compiled import jit, jit_products, plain
from refhmc.core import sample_stats as S
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.metrics.base import HIERARCHY, log_density_at_metric
from refhmc.numerics.linalg import EPSILON

# ``scales`` is 1/D. ``bands``, ``inverse`` and ``weights`` have the rows a, b and c; ``border`` begins with j.
LAYOUT = Layout("bands[3] l f inverse[3] weights[3] border", after=HIERARCHY)
rows = LAYOUT.rows


@jit_products
def factorise_bordered(bands: np.ndarray, j: int, r: np.ndarray, l: np.ndarray, f: np.ndarray) -> int:  # noqa: E741
    """Compute 1/D, l and f; return d, or the index of a pivot that is not positive and finite, which is left in ``r``."""
    d, h, corner = r.shape[0], 0.0, bands[0, j]
    l[0] = 0.0
    for i in range(d):
        pivot = bands[0, i]
        if i > 0:
            l[i] = bands[1, i - 1] * r[i - 1]
            pivot -= bands[1, i - 1] ** 2 * r[i - 1]  # does not wait for l_i
        if not 0 < pivot < math.inf:  # also a NaN
            r[i] = pivot
            return i
        r[i] = 1 / pivot
        h = bands[2, i] - l[i] * h
        f[i] = h * r[i]
        corner -= h * f[i]
    if not 0 < corner < math.inf:
        r[j] = corner
        return j
    r[j] = 1 / corner
    return d


@jit_products
def solve_bordered(j: int, r: np.ndarray, l: np.ndarray, f: np.ndarray, p: np.ndarray, out: np.ndarray) -> None:  # noqa: E741
    """Set out = G^-1 p."""
    y = corner = 0.0
    for i in range(p.shape[0]):
        y = p[i] - l[i] * y
        out[i] = y
        corner += f[i] * y
    out[j] -= corner
    at_j, v, below = out[j] * r[j], 0.0, 0.0
    for i in range(p.shape[0] - 1, -1, -1):
        v = out[i] * r[i] - below * v - f[i] * at_j
        below = l[i]
        out[i] = v


@jit_products
def invert_bordered(j: int, r: np.ndarray, l: np.ndarray, f: np.ndarray, out: np.ndarray) -> None:  # noqa: E741
    """Write the entries of G^-1 that the pattern of G has, as rows like those of G."""
    at_jj = r[j]
    diagonal = border = below = 0.0
    for i in range(r.shape[0] - 1, -1, -1):
        beside = -below * diagonal - f[i] * border
        border = -below * border - f[i] * at_jj
        diagonal = r[i] - below * beside - f[i] * border
        below = l[i]
        out[0, i], out[1, i], out[2, i] = diagonal, beside, border


def block_of(model: Any, q: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the rows and columns `of` of G at q, (m, m), without the other entries."""
    bands, j = np.zeros((3, len(q))), model.fisher_border
    plain(model.functions.bordered_fisher)(q, model.data, bands)
    row, column = of[:, None], of
    beside = np.where(abs(row - column) == 1, bands[1, np.minimum(row, column)], 0.0)
    border = np.where(row == j, bands[2, column], 0.0) + np.where(column == j, bands[2, row], 0.0)
    return np.diag(bands[0, of]) + beside + border


@jit
def factorise(model: tuple, work: tuple) -> bool:
    """Compute G at the metric's position and its factors; return False if it has none.

    DIVERGED is noted if G is indefinite by more than rounding.
    """
    vecs, mats, _, cache, _, status = as_work(work)
    f, w, d = as_model(model), rows(vecs), vecs.shape[1]
    f.metric(w.position, f.data, w.bands)
    cache.log_det_weight = -0.5
    i = factorise_bordered(w.bands, int(w.border[0]), w.scales, w.l, w.f)
    if i == d:
        return True
    if math.isfinite(w.scales[i]) and abs(w.scales[i]) > 4 * d * EPSILON * abs(w.bands[0, i]):
        status.failure = S.DIVERGED
    return False


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = G^-1 p."""
    w = rows(as_work(work).vecs)
    solve_bordered(int(w.border[0]), w.scales, w.l, w.f, p, out)


@jit
def velocity_and_force(
    model: tuple, p: np.ndarray, phi: float, tau: float, work: tuple, v: np.ndarray, dH_dq: np.ndarray
) -> None:
    """Compute v = G^-1 p, and phi dphi/dq + tau dtau/dq by one contraction with the entries of the pattern."""
    vecs, mats, _, cache, counters, _ = as_work(work)
    f, w, d = as_model(model), rows(vecs), p.shape[0]
    j = int(w.border[0])
    if tau != 0:
        inverse_product(p, work, v)
        at_j = v[j]
        for i in range(d):
            w.weights[0, i] = -0.5 * tau * v[i] * v[i]
            w.weights[2, i] = -tau * v[i] * at_j
        for i in range(d - 1):  # an entry next to the diagonal stands for two entries of M
            w.weights[1, i] = -tau * v[i] * v[i + 1]
    else:
        for row in w.weights:
            for i in range(d):
                row[i] = 0.0
    if phi != 0 and cache.has_force == 0:
        invert_bordered(j, w.scales, w.l, w.f, w.inverse)
        cache.has_force = 1
    if phi != 0:
        for i in range(d):
            w.weights[0, i] += 0.5 * phi * w.inverse[0, i]
            w.weights[1, i] += phi * w.inverse[1, i]
            w.weights[2, i] += phi * w.inverse[2, i]
    f.hessian_contraction(w.position, f.data, w.weights, dH_dq)
    counters.contractions += 1
    if phi != 0:
        log_density_at_metric(model, work)
        for i in range(d):
            dH_dq[i] -= phi * w.gradient[i]


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, G) from standard normals."""
    w = rows(as_work(work).vecs)
    before = corner = 0.0
    for i in range(p.shape[0]):
        scaled = normals[i] / math.sqrt(w.scales[i])
        p[i] = scaled + w.l[i] * before
        corner += w.f[i] * scaled
        before = scaled
    p[int(w.border[0])] += corner

"""A hierarchical metric learned from draws and gradients: which coordinates scale which, and how.

Let x be draws of a density with scores s = dL/dq. Given earlier coordinates x_<i, the scores of a smooth density satisfy

    E[s_i | x_<i] = 0,      E[s_i^2 | x_<i] = -E[d^2 L/dq_i^2 | x_<i] = M_i(x_<i)

(integrate by parts twice), so that the right mass of coordinate i is the conditional variance of its score. (In the funnel,
s_i = -e^v x_i and M_i = e^v.) Whether a coordinate j scales a coordinate i is therefore a question about the squared scores
s_i^2, and needs no Hessian.

**Screening.** r_ji is the correlation of x_j and log s_i^2. The logarithm turns a factor into a shift, and its left tail is
cut. If s_i = M_i^1/2 z with z standard normal, and log M_i = c x_j has the standard deviation w, then
r_ji = w / (w^2 + pi^2/2)^1/2, and s_i has the kurtosis 3 exp(w^2). Coordinates with a kurtosis below ``KURTOSIS`` are not
looked at. A coordinate j is a *hyperparameter* if one |r_ji| exceeds max(``least``, ``CHANCE`` / sqrt(n)); independent draws
exceed the latter in one of 10^11 pairs. All i with |r_ji| > max(``least`` / 2, ``WEAK`` / sqrt(n)) are then its children.
``LEAST`` = 1/3 is w = 0.8: the masses one standard deviation up and down differ by a factor of 5.

**Order.** Hyperparameters come first, those with the largest sum of |r| to their children minus that from their parents at the
beginning. A coordinate has earlier hyperparameters as parents only, and at most ``PARENTS``, those of the largest |r|. The
parents therefore form no cycle.

**Coefficients.** s_i^2 has the mean M_i and, for normal z, the variance 2 M_i^2. Its quasi-likelihood is that of a gamma
regression, -1/2 of

    sum_t (s_ti^2 / M_ti + log M_ti),     M_ti = exp(a + c'u_t)   or   exp(a_0) + exp(a + c'u_t)

where u are the parents in standard units; up to a constant it is also the mean Kullback-Leibler divergence of N(0, M_i) from
the scores. The second form is the sum of a constant precision, that of a likelihood, and of one that the parents scale, that of
a prior. It is taken if it lowers the sum by more than ``WORTH``. Both are fitted by Fisher scoring with the penalty
1/2 ``RIDGE`` |c|^2, as much as one draw says about c.

**Masses without parents.** Hyperparameters have the mean of s_i^2. With less mass they would follow the oscillations of their
children (in the funnel it is 1/9 + n/2, and not the marginal precision 1/9). All others have sqrt(var s_i / var x_i), as in
:mod:`refhmc.adaptation.fisher_divergence`.
"""

from __future__ import annotations

import numpy as np

from refhmc.metrics.hierarchical import PARENTS, TERMS, Hierarchical

LEAST, LEAST_OF_AUTO, CHANCE, WEAK = 1 / 3, 0.45, 7.0, 3.0
KURTOSIS = 3.5
TAIL = 4.0  # log s^2 is cut at so much below its mean, where 1.4 % of the logarithms of chi^2 are
WORTH, RIDGE, FEWEST = 4.0, 1.0, 50
ITERATIONS, HALVINGS, ENOUGH = 30, 12, 1e-5


def learn_hierarchy(
    draws: np.ndarray,
    scores: np.ndarray,
    variances: np.ndarray,
    earlier: np.ndarray | None = None,
    least: float = LEAST,
) -> Hierarchical | None:
    """Return the metric of ``draws`` and ``scores`` (n, d); None if no coordinate scales another.

    ``variances`` (d,) are those of the best constant diagonal metric. ``earlier`` (d, d) says whether coordinate j may be a
    parent of i.
    """
    n, d = draws.shape
    if n < FEWEST or d < 2:
        return None
    with np.errstate(all="ignore"):
        squares = scores**2
        size = squares.mean(axis=0)
        mixed = np.mean(squares**2, axis=0) > KURTOSIS * size**2
        if not mixed.any() or not np.all(np.isfinite(size)):
            return None
        center, scale = draws.mean(axis=0), draws.std(axis=0)
        x = (draws - center) / scale
        r = np.zeros((d, d))
        r[:, mixed] = np.abs(correlations(x, squares[:, mixed]))
    r[~np.isfinite(r) | np.eye(d, dtype=bool)] = 0.0
    parents, matters = parents_of(r if earlier is None else r * earlier, n, least)
    children = np.flatnonzero(matters.any(axis=0))
    if not len(children):
        return None
    of, used = parents[:, children], matters[:, children]
    most = int(used.sum(axis=0).max())
    a, c = best_fit(squares[:, children] / size[children], x[:, of[:most]] * used[:most])
    constants, coefficients = np.full((TERMS, d), -np.inf), np.zeros((TERMS, PARENTS, d))
    constants[1], above = -np.log(variances), np.unique(of[used])
    constants[1, above] = np.log(size[above])
    c = c / scale[of[:most]]
    a[1] -= np.sum(c * center[of[:most]], axis=0)
    constants[:, children] = a + np.log(size[children])
    coefficients[1, :most, children] = c.T
    return Hierarchical(constants, parents, coefficients)


def correlations(x: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return the correlations (d, m) of x (n, d), in standard units, and the logarithms of the squares (n, m)."""
    y = np.log(squares)
    there = np.isfinite(y)
    low = np.sum(np.where(there, y, 0.0), axis=0) / there.sum(axis=0) - TAIL
    y = np.where(there, np.maximum(y, low), low)
    y -= y.mean(axis=0)
    return x.T @ (y / y.std(axis=0)) / len(x)


def parents_of(r: np.ndarray, n: int, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the parents j(p, i), (P, d), for n draws with the absolute correlations r (d, d), and which of them there are."""
    d = len(r)
    hyper = (r > max(least, CHANCE / np.sqrt(n))).any(axis=1)
    links = np.where((r > max(least / 2, WEAK / np.sqrt(n))) & hyper[:, None], r, 0.0)
    surplus = np.where(hyper, links.sum(axis=1) - links.sum(axis=0), -np.inf)
    place = np.empty(d, int)
    place[np.argsort(-surplus, kind="stable")] = np.arange(d)
    links[place[:, None] >= place] = 0.0
    parents, most = np.zeros((PARENTS, d), int), min(PARENTS, d)
    parents[:most] = np.argsort(-links, axis=0, kind="stable")[:most]
    return parents, np.concatenate([np.take_along_axis(links, parents[:most], axis=0) > 0, parents[most:] > 0])


def best_fit(e: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (a_0, a), (2, m), and c (P, m) of the better form for each column of e (n, m), with the parents u (n, P, m)."""
    P, m = u.shape[1:]
    start = np.concatenate([np.log(e.mean(axis=0))[None], np.zeros((P, m))])
    one, of_one = fit(e, u, start)
    low = np.quantile(one[0] + np.sum(one[1:] * u, axis=1), 0.05, axis=0)
    two, of_two = fit(e, u, np.concatenate([low[None], one]))
    takes = of_two < of_one - WORTH
    return np.where(takes, two[:2], np.stack([np.full(m, -np.inf), one[0]])), np.where(takes, two[2:], one[1:])


def log_masses(theta: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log M and a + c'u, (n, m), of the parameters (a, c) or (a_0, a, c)."""
    P = u.shape[1]
    scaled = theta[-P - 1] + np.sum(theta[-P:] * u, axis=1)
    return (scaled if len(theta) == P + 1 else np.logaddexp(theta[0], scaled)), scaled


def fit(e: np.ndarray, u: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters of least penalised loss from ``start``, and the loss, (m,)."""
    n, P, m = u.shape
    theta, n_terms = start.copy(), len(start) - P
    penalty = np.r_[RIDGE / 10, np.zeros(n_terms)][-n_terms:] if n_terms > 1 else np.zeros(1)
    penalty, aim = np.r_[penalty, np.full(P, RIDGE)], np.concatenate([start[:n_terms], np.zeros((P, m))])

    def loss(theta: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            eta = log_masses(theta, u)[0]
            found = np.sum(e * np.exp(-eta) + eta, axis=0) + 0.5 * penalty @ (theta - aim) ** 2
        return np.where(np.isfinite(found), found, np.inf)

    now = loss(theta)
    for _ in range(ITERATIONS):
        eta, scaled = log_masses(theta, u)
        w = np.exp(scaled - eta)[:, None]
        slopes = np.concatenate([*([1 - w] if n_terms > 1 else []), w, w * u], axis=1)  # of log M, (n, parameters, m)
        with np.errstate(all="ignore"):
            gradient = np.sum(slopes * (1 - e * np.exp(-eta))[:, None], axis=0) + penalty[:, None] * (theta - aim)
        S = np.ascontiguousarray(slopes.transpose(2, 1, 0))
        information = S @ S.transpose(0, 2, 1) + np.diag(penalty + 1e-9 * n)
        step = np.linalg.solve(information, gradient.T[..., None])[..., 0].T
        size = np.ones(m)
        for _ in range(HALVINGS):
            there = loss(theta - size * step)
            if np.all(there <= now):
                break
            size = np.where(there <= now, size, size / 2)
        better = there < now
        gained = np.where(better, now - there, 0.0)
        theta, now = np.where(better, theta - size * step, theta), now - gained
        if gained.max() < ENOUGH * n:
            break
    return theta, now

"""A hierarchical metric learned from draws and gradients: which coordinates scale which, and how.

Let x be draws of a density with scores s = dL/dq. Given earlier coordinates x_<i, the scores of a smooth density satisfy

    E[s_i | x_<i] = 0,      E[s_i^2 | x_<i] = -E[d^2 L/dq_i^2 | x_<i] = M_i(x_<i)

(integrate by parts twice), so that the right mass of coordinate i is the conditional variance of its score. (In the funnel,
s_i = -e^v x_i and M_i = e^v.) Whether a coordinate j scales a coordinate i is therefore a question about the squared scores
s_i^2, and needs no Hessian.

**Screening.** r_ji is the correlation of x_j and log s_i^2. The logarithm turns a factor into a shift, and its left tail is
cut. If s_i = M_i^1/2 z with z standard normal, and log M_i = c x_j has the standard deviation w, then r_ji = w / (w^2 +
pi^2/2)^1/2, and s_i has the kurtosis 3 exp(w^2). Coordinates whose kurtosis is less than halfway between 3 and that for |r| =
``LEAST`` are not looked at. (On many posteriors none is left, and the search ends here.) A coordinate j may be a
*hyperparameter* if one |r_ji| exceeds ``LEAST`` and ``CHANCE`` standard errors; independent draws exceed the latter in one of
10^6 pairs (``CHANCE_WIDE`` above d = ``WIDEST``, with as many pairs). That with the largest sum of these |r_ji| is one, and all
i whose |r_ji| exceeds ``LEAST`` / 2 and ``WEAK`` standard errors are its children. Their log s_i^2 are replaced by the
residuals of a regression on it, and the search is repeated until no other is found. (In the centred eight schools, each theta
is correlated with the squared scores of the others, but no longer if log tau is taken into account.) ``LEAST`` = 0.2 is w =
0.45: the masses one standard deviation up and down differ by a factor of 2.5.

The draws of a chain are not independent. If x_j and the part of log s_i^2 that does not depend on x_j are autoregressive with
the autocorrelations a and b at lag one, the standard error of r_ji is ((1 + ab) / (1 - ab) / n)^1/2. Here b is (rho - r_ji^2 a)
/ (1 - r_ji^2), with rho the autocorrelation of log s_i^2. (With 1 / sqrt(n) instead, some intercepts of a regression with
varying intercepts were taken for hyperparameters.)

**What it is worth.** If log M_i = w_i x_j for its children i, then x_j in standard units has the precision 1 + I_j,
I_j = 1/2 sum_i w_i^2, given the children (the information of normals on their scale), where its marginal precision is 1. With a
constant metric it cannot move farther than that between two draws of the momentum, however long the trajectories are. On a
hierarchical metric, trajectories are as long as hyperparameters need, and correlations between levels are lost. This pays
only if I_j of one of them exceeds ``HELD``. (In a two-parameter item response model the slopes scale the difficulties, but I
is at most 0.6. Without this condition NUTS had 9 and 4 effective draws per 1,000 gradients, and 20 and 17 with it. In a
regularised horseshoe I was at most 3.2 and mostly below 1: 0.7 and 0.3 became 5.2 and 6.3. In the centred eight schools I is 5
to 50, in regressions with varying intercepts 8 to 46. There the hierarchical metric made 0.8 to 28 times as many as the
constant one, 1.6 in the median of ten pairs of runs. Once there is one, it must have the hyperparameters with a smaller I, too.
In the centred horseshoe, trajectories of HMC without these took 800 steps in place of 50, and diverged.)

The coordinates of a variable, such as theta[0], theta[1], ..., usually have the same parents, and their mean of log s_i^2 has
far less noise than one of them. If the covariance w of that mean with x_j exceeds ``CHANCE`` standard errors, and is large
enough, then j may be a hyperparameter. If it is one, then all coordinates of the variable are its children if w exceeds
``WEAK`` standard errors, and half of that size. A variable is looked at as a whole if the share ``SHARE`` of its coordinates
has such a kurtosis. Then w must correspond to ``LEAST``. For a variable of m coordinates for which I = m w^2/2 exceeds ``HELD``
with a lower w, that is enough. Such a variable is looked at if the logarithm of the mean of s_i^2 / E[s_i^2] over its
coordinates has a variance above 2/m, which is that of independent normals, plus w^2/2. (In a model of stochastic volatility
with m = 1,000, w = 0.22, and 0.34 effective draws of the scale per 1,000 gradients of HMC became 1.7.)

**Order.** Hyperparameters come first, those with the largest sum of |r| to their children minus that from their parents at the
beginning. A coordinate has earlier hyperparameters as parents only, and at most ``PARENTS``, those of the largest |r|. The
parents therefore form no cycle.

**Coefficients.** s_i^2 has the mean M_i and, for normal z, the variance 2 M_i^2. Its quasi-likelihood is that of a gamma
regression, -1/2 of

    sum_t (s_ti^2 / M_ti + log M_ti),     M_ti = exp(a + c'u_t)   or   exp(a_0) + exp(a + c'u_t)

where u are the parents in standard units; up to a constant it is also the mean Kullback-Leibler divergence of N(0, M_i) from
the scores. The second form is the sum of a constant precision, that of a likelihood, and of one that the parents scale, that of
a prior. It is taken if it lowers the sum by more than ``WORTH``. Both are fitted by Fisher scoring with the penalty
1/2 ``RIDGE`` |c|^2, as much as one draw contributes to it. Children of the same parents, such as the groups of a hierarchical
model, often have the same c. Their fits are therefore repeated with the penalty 1/2 |c - mean c|^2 / w, where w is the variance
of c between them: the variance of the fitted c less that of their errors, as in a model with random effects.

**Masses without parents.** Hyperparameters have the mean of s_i^2. With less mass they would follow the oscillations of their
children (in the funnel it is 1/9 + n/2, and not the marginal precision 1/9). All others have sqrt(var s_i / var x_i), as in
:mod:`refhmc.adaptation.fisher_divergence`.

**Correlations.** Given the lower levels, D^-1/2 s has the covariance C, the correlations of the precision, if they do not
change with the hyperparameters. (The draws are not used: their mean changes with the hyperparameters.) The eigenvectors of C in
every second draw are the directions u_j of a level, and 1 / mean (u_j . D^-1/2 s)^2 over the other draws is lambda_j, if |log
lambda_j| exceeds three standard errors, 3 (2/n)^1/2 for n held-out draws. Above level 0, lambda_j is between 1/2 and 2: where
hyperparameters make the correlations weaker, a larger one lets steps diverge (in the centred eight schools 0.2 % of the
transitions without a limit, and 0.003 % with this one). A level with more than ``WIDEST`` coordinates has too few scores for
the eigenvectors of C. Its directions and eigenvalues are those of least Fisher divergence of D^1/2 (x - mean x) and D^-1/2 s,
as many as :mod:`refhmc.adaptation.fisher_divergence` finds worth their cost, at most ``MOST_OF_MANY``. There only those are
limited whose log (u_j . D^-1/2 s)^2 has a correlation above ``LEAST`` with a hyperparameter. (In the model of stochastic
volatility, log beta and the mean of all log variances h are slow together. Without the direction of that mean, whose eigenvalue
is 500 to 800, HMC had 26 effective draws of log beta in 4,000, and with it 1,500.)

**Choice.** If no coordinate scales another, the metric of low rank is used. The search then costs the sums of s_i^2 and s_i^4
and, for the coordinates that are looked at, one compiled pass over the logarithms and their correlations. In that pass all
standard errors are 1 / sqrt(n), the least possible ones. Usually it excludes that a hyperparameter can be found, and the search
ends. (On five posteriors with d = 3 to 10, a search took 20 to 45 microseconds, and six searches per chain 0.4 to 2 % of the
time of a run with 1,000 + 1,000 iterations.) Above d = ``WIDEST`` this pass is left out. The metric of low rank is also used if
it describes the scores better, by the mean of

    s' M^-1 s + log det M,

twice the Kullback-Leibler divergence of N(0, M) from the scores, up to a constant. (In a Poisson regression on a Gaussian
process, the length scale changes the masses, but correlations that a hierarchy cannot have matter far more.)

A lower value than a hierarchy usually reaches is known before it is fitted. If log M_i is normal with the standard deviation
w_i, then log E[M_i] - E[log M_i] = w_i^2 / 2. With all correlations C within levels, and no errors, the mean is therefore

    d + sum over levels of log det E[s s'] - sum_i w_i^2 / 2,      w_i^2 = sum_j r_ji^2 / (1 - sum_j r_ji^2) pi^2 / 2.

If the metric of low rank is below it, the fit is left out. (With fewer draws than coordinates it is -inf.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numba import types as nb

from refhmc.adaptation.fisher_divergence import (
    STANDARD_ERRORS,
    Learned,
    centred,
    directions,
    held_out_eigenvalues,
    rank,
    scales,
)
from refhmc.compile.compiled import entry, jit
from refhmc.core import types
from refhmc.core.point import copy_row
from refhmc.metrics.hierarchical import PARENTS, TERMS, WIDEST, Hierarchical, levels_of, most_directions
from refhmc.numerics.linalg import cholesky, solve_lower, solve_lower_transposed

LEAST, CHANCE, CHANCE_WIDE, WEAK = 0.2, 5.0, 6.0, 3.0  # ``CHANCE_WIDE`` above d = ``WIDEST``
SHARE = 0.25  # of the coordinates of a variable that must have the least kurtosis for all of them to be looked at
LARGEST_CHANGE = 2.0  # of an eigenvalue above level 0
STEP = 100.0  # multiplications per coordinate in a step, without directions
TAIL = 8.0  # log s^2 is cut at so much below its mean, where 0.8 % of the logarithms of chi^2 are
WORTH, RIDGE, RIDGE_OF_CONSTANT, TINY = 4.0, 1.0, 0.1, 1e-9
FEWEST, FEWEST_MEMBERS, LOW = 50, 3, 0.05
HELD = 3.0  # I_j of one hyperparameter at least
FEWEST_WEAK = 31  # coordinates of a model with a variable whose least w is below that of ``LEAST``
ITERATIONS, HALVINGS, ENOUGH = 30, 12, 1e-5


def learn_hierarchy(
    draws: np.ndarray,
    scores: np.ndarray,
    earlier: np.ndarray | None = None,
    variables: np.ndarray | None = None,
    constant: Callable[[], Learned] | None = None,
) -> Hierarchical | None:
    """Return the metric of ``draws`` and ``scores`` (n, d); None if no coordinate scales another, or if ``constant`` is better.

    ``earlier`` (d, d) is True where coordinate j may be a parent of i. ``variables`` (d,) are numbers of the variables that the
    coordinates belong to. ``constant()`` is the constant metric to which the hierarchy is compared, if one is found.
    """
    n, d = draws.shape
    if n < FEWEST or d < 2:
        return None
    draws, scores = np.ascontiguousarray(draws), np.ascontiguousarray(scores)  # compiled code relies on it
    with np.errstate(all="ignore"):
        squares = scores**2
        size = np.einsum("td->d", squares) / n
        r = links(draws, squares, size, earlier, variables)
    if r is None:
        return None
    parents, matters = parents_of(r)
    children = np.flatnonzero(matters.any(axis=0))
    if not len(children):
        return None
    to_beat = math.inf
    if constant is not None:
        other = constant()
        to_beat = mean_divergence(1 / other.variances, other.directions, other.eigenvalues, scores)
        if predicted_divergence(scores, r, levels_of(parents, matters)) > to_beat:
            return None
    of, used = parents[:, children], matters[:, children]
    most = int(used.sum(axis=0).max())
    of, used = of[:most], used[:most]
    center, scale = draws.mean(axis=0), draws.std(axis=0)
    u = np.ascontiguousarray(((draws[:, of] - center[of]) / scale[of] * used).transpose(2, 1, 0))
    e = np.ascontiguousarray((squares[:, children] / size[children]).T)
    groups = np.unique(np.where(used, of, -1), axis=1, return_inverse=True)[1].reshape(-1)
    a, c = fitted(e, u, groups)
    constants, coefficients = np.full((TERMS, d), -np.inf), np.zeros((TERMS, PARENTS, d))
    constants[1], above = -np.log(scales(centred(draws), centred(scores))), np.unique(of[used])
    constants[1, above] = np.log(size[above])
    c = np.where(used, c.T / scale[of], 0.0)
    constants[:, children] = a.T + np.log(size[children])
    constants[1, children] -= np.sum(c * center[of], axis=0)
    coefficients[1, :most, children] = c.T
    metric = with_correlations(Hierarchical(constants, parents, coefficients), draws, scores)
    return metric if mean_divergence(metric.masses(draws), *metric.low_rank(d), scores) < to_beat else None


def links(
    draws: np.ndarray,
    squares: np.ndarray,
    size: np.ndarray,
    earlier: np.ndarray | None,
    variables: np.ndarray | None,
) -> np.ndarray | None:
    """Return |r| (d, d) of hyperparameters with the coordinates that they scale, 0 elsewhere; None if there are none.

    ``squares`` (n, d) are the s^2, with the means ``size`` (d,).
    """
    n, d = draws.shape
    is_mixed = np.einsum("td,td->d", squares, squares) / n > least_kurtosis() * size**2
    if not is_mixed.any() and (variables is None or d < FEWEST_WEAK):
        return None
    variable = np.full(d, -1) if variables is None else may_be_scaled(squares, size, is_mixed, variables)
    looked_at = np.flatnonzero(is_mixed | (variable >= 0))
    if not len(looked_at) or not np.isfinite(size).all():
        return None
    members = np.bincount(variable[variable >= 0])
    if d <= WIDEST:
        among = np.ascontiguousarray(np.zeros((0, 0), bool) if earlier is None else earlier)
        room = np.zeros(n), np.zeros((3 + len(members), d))
        if not may_be_found(draws, squares, looked_at, variable, among, LEAST, least_change(members), *room):
            return None
    x = draws - np.einsum("td->d", draws) / n
    variances = np.einsum("td,td->d", x, x) / n
    x /= np.sqrt(variances)
    y, own = logarithms(squares[:, looked_at]), np.flatnonzero(is_mixed)
    wholes = [variable[looked_at] == v for v in range(len(members))]
    y = np.column_stack([y[:, is_mixed[looked_at]], *(y[:, each].mean(axis=1) for each in wholes)])
    of = np.r_[own, [looked_at[each][0] for each in wholes]].astype(int)
    possible = np.isfinite(y[0]) & ((np.arange(d)[:, None] != of) | (np.arange(len(of)) >= len(own)))
    possible &= True if earlier is None else earlier[:, of]
    found = screened(x, y, possible, variable[own], members)
    r = np.zeros((d, d))
    r[:, own] = found[:, : len(own)]
    for v in range(len(members)):
        r[:, variable == v] = np.fmax(r[:, variable == v], found[:, len(own) + v, None])
    np.fill_diagonal(r, 0.0)
    return r if r.any() else None


def with_correlations(metric: Hierarchical, draws: np.ndarray, scores: np.ndarray) -> Hierarchical:
    """Return the metric with directions within its levels, from draws and scores (n, d)."""
    levels, is_hyper, root = metric.levels(), metric.hyperparameters(), np.sqrt(metric.masses(draws))
    x, s = centred(draws) * root, scores / root
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(s))):
        return metric
    rows, found = [np.zeros((0, draws.shape[1]))], [np.zeros(0)]
    for level in range(levels.max() + 1):
        of = np.flatnonzero((levels == level) & np.any(s != 0, axis=0))
        if len(of) > WIDEST:
            of = of[~is_hyper[of]]
            U, eigenvalues = of_many(x[:, of], s[:, of], level > 0, centred(draws[:, is_hyper]))
        else:
            U, eigenvalues = of_scores(s[:, of], level > 0)
        rows.append(np.zeros((len(U), draws.shape[1])))
        rows[-1][:, of] = U
        found.append(eigenvalues)
    U, eigenvalues = np.concatenate(rows), np.concatenate(found)
    most = np.argsort(-np.abs(np.log(eigenvalues)), kind="stable")[: most_directions(draws.shape[1])]
    return replace(metric, directions=U[most], eigenvalues=eigenvalues[most])


def of_scores(s: np.ndarray, is_above: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return directions (k, d) and eigenvalues (k,) of scaled scores (n, d) of a level, which ``is_above`` another or not."""
    s = s / np.sqrt(np.mean(s**2, axis=0))
    U = np.linalg.eigh(s[::2].T @ s[::2])[1].T
    precisions = np.mean((s[1::2] @ U.T) ** 2, axis=0)
    matters = np.abs(np.log(precisions)) > STANDARD_ERRORS * np.sqrt(2 / (len(s) // 2))
    most = LARGEST_CHANGE if is_above else np.inf
    return U[matters], np.clip(1 / precisions[matters], 1 / most, most)


def of_many(x: np.ndarray, s: np.ndarray, is_above: bool, hyper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of the many scaled draws and scores (n, d) of a level, from which ``hyper`` (n, h) were removed."""
    U = directions(x[::2], s[::2])
    eigenvalues = held_out_eigenvalues(U, x[1::2], s[1::2])
    k, _ = rank(eigenvalues, STANDARD_ERRORS / np.sqrt(len(x) // 2), STEP)
    chosen = np.argsort(-np.abs(np.log(eigenvalues)), kind="stable")[:k]
    U, eigenvalues = U[chosen], eigenvalues[chosen]
    w, size = covariances(hyper / hyper.std(axis=0), logarithms((s @ U.T) ** 2))
    most = np.where(np.any(w / size > LEAST, axis=0) & is_above, LARGEST_CHANGE, np.inf)
    return U, np.clip(eigenvalues, 1 / most, most)


def predicted_divergence(scores: np.ndarray, r: np.ndarray, levels: np.ndarray) -> float:
    """Return the mean divergence with r (d, d) and levels (d,) that the docstring of the module derives under "Choice"."""
    n, d = scores.shape
    explained = np.minimum(np.sum(r * r, axis=0), 0.99)
    of_levels = [np.flatnonzero(levels == level) for level in range(levels.max() + 1)]
    if n < max(map(len, of_levels)):
        return -math.inf
    log_det = sum(np.linalg.slogdet(scores[:, of].T @ scores[:, of] / n)[1] for of in of_levels)
    return float(d + log_det - np.sum(explained / (1 - explained)) * np.pi**2 / 4)


def mean_divergence(D: np.ndarray, U: np.ndarray, eigenvalues: np.ndarray, s: np.ndarray) -> float:
    """Return the mean of s' M^-1 s + log det M over scores s (n, d).

    M^-1 = D^-1/2 (I + U' (Lambda - I) U) D^-1/2 with D, (n, d) or (d,), and the rows U.
    """
    z, n = s / np.sqrt(D), len(s)
    squares = np.sum(z * z) + np.sum((z @ U.T) ** 2 @ (eigenvalues - 1))
    return float(squares / n + np.sum(np.log(np.broadcast_to(D, s.shape))) / n - np.sum(np.log(eigenvalues)))


@entry(
    lambda: nb.boolean(
        *(types.MATRIX, types.MATRIX, types.INTEGERS, types.INTEGERS, nb.boolean[:, ::1], nb.float64),
        *(types.VECTOR, types.VECTOR, types.MATRIX),
    ),
    "the search for a hierarchy",
)
def may_be_found(
    draws: np.ndarray,
    squares: np.ndarray,
    looked_at: np.ndarray,
    variable: np.ndarray,
    earlier: np.ndarray,
    least: float,
    least_w: np.ndarray,
    y: np.ndarray,
    room: np.ndarray,
) -> bool:
    """Return whether :func:`screened` could find something if all standard errors were 1/sqrt(n), the least possible ones.

    ``squares`` (n, d) are the s^2. ``earlier`` (d, d) restricts the pairs, or is empty. ``least_w`` (k,) are the least w of
    whole variables. ``y`` (n,) and ``room`` (3 + k, d) are zeros, and overwritten.
    """
    n, d = draws.shape
    bound, center, scale, w, sums = max(least, CHANCE / math.sqrt(n)), room[0], room[1], room[2], room[3:]
    for t in range(n):
        for j in range(d):
            center[j] += draws[t, j] / n
    for t in range(n):
        for j in range(d):
            scale[j] += (draws[t, j] - center[j]) ** 2
    for j in range(d):
        scale[j] = math.sqrt(scale[j] / n)
    for i in looked_at:
        mean, size, there, low = 0.0, 0.0, 0, 0.0
        for t in range(n):
            if squares[t, i] > 0:
                y[t] = math.log(squares[t, i])
                low += y[t]
                there += 1
            else:
                y[t] = -math.inf
        low = low / max(there, 1) - TAIL
        for t in range(n):
            y[t] = max(y[t], low)
            mean += y[t] / n
        w[:] = 0.0
        for t in range(n):
            y[t] -= mean
            size += y[t] ** 2
            for j in range(d):
                w[j] += (draws[t, j] - center[j]) * y[t]
        size = math.sqrt(size / n)
        for j in range(d):
            covariance = abs(w[j]) / n
            is_possible = j != i and (earlier.shape[0] == 0 or earlier[j, i])
            if is_possible and covariance > bound * size * scale[j]:
                return True
            if variable[i] >= 0 and scale[j] > 0:
                sums[variable[i], j] += covariance / scale[j]
    for v in range(sums.shape[0]):
        members = 0
        for i in range(d):
            members += variable[i] == v
        for j in range(d):
            if sums[v, j] > least_w[v] * members:
                return True
    return False


def screened(
    x: np.ndarray,
    y: np.ndarray,
    possible: np.ndarray,
    variable: np.ndarray,
    members: np.ndarray,
) -> np.ndarray:
    """Return |r| (d, m + V) of hyperparameters among x (n, d) with the columns of y that they scale; 0 elsewhere.

    ``y`` (n, m + V) has the log s^2 of m coordinates, then the means over the ``members`` (V,) of each variable; overwritten.
    ``variable`` (m,) is that of a coordinate, or -1. ``possible`` (d, m + V) restricts the pairs. All r are 0 unless I_j of one
    hyperparameter exceeds ``HELD``.
    """
    (n, d), m, V = x.shape, len(variable), len(members)
    is_whole, part = np.arange(m + V) >= m, np.flatnonzero(variable >= 0)
    least = np.r_[np.full(m, LEAST), correlation_of(least_change(members))]
    weights = np.r_[np.ones(m), members - np.bincount(variable[part], minlength=V)]
    r, is_hyper, changed = np.zeros((d, m + V)), np.zeros(d, bool), np.ones(m + V, bool)
    own, strong_own, linked_own = np.zeros_like(r), np.zeros_like(r, bool), np.zeros_like(r, bool)
    persistence, chance, most = autocorrelations(x), CHANCE if d <= WIDEST else CHANCE_WIDE, 0.0  # the largest I_j
    while changed.any():
        w, size = covariances(x, y[:, changed])
        now, whole, bound = w / size, is_whole[changed], least[changed]
        error = errors(now, persistence, y[:, changed])
        is_linked = now > WEAK * error
        value = np.where(whole, np.where(is_linked, correlation_of(w), 0.0), now)
        own[:, changed] = value
        strong_own[:, changed] = (value > bound) & (now > chance * error)
        linked_own[:, changed] = (value > bound / 2) & is_linked
        found, strong, linked = own.copy(), strong_own.copy(), linked_own.copy()
        above = m + variable[part]  # what holds for a variable holds for its coordinates
        found[:, part] = np.fmax(own[:, part], own[:, above])
        strong[:, part] |= strong_own[:, above]
        linked[:, part] |= linked_own[:, above]
        strong &= possible & ~is_hyper[:, None]
        if not strong.any():
            break
        j = np.argmax(np.sum(found * weights, axis=1, where=strong))
        changed = possible[j] & linked[j]
        r[j, changed], is_hyper[j] = found[j, changed], True
        most = max(most, np.sum(log_mass_of(found[j]) ** 2 * weights, where=changed) / 2)
        y[:, changed] -= x[:, j, None] * (x[:, j] @ y[:, changed] / n)
    return r if most > HELD else np.zeros_like(r)


def may_be_scaled(squares: np.ndarray, size: np.ndarray, is_mixed: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """Return numbers of the variables that are looked at as a whole, from 0 on, (d,); -1 for coordinates of the others.

    ``squares`` (n, d) have the means ``size`` (d,), and ``is_mixed`` (d,) is True where the kurtosis is large.
    """
    members = np.bincount(variables)
    w = least_change(members)
    is_whole = (members >= FEWEST_MEMBERS) & (members < len(variables))
    chosen = is_whole & (np.bincount(variables, is_mixed) >= SHARE * members)
    for v in np.flatnonzero(is_whole & ~chosen & (w < log_mass_of(LEAST))):
        of = variables == v
        mean = np.log(squares[:, of] @ (1 / size[of]))
        chosen[v] = np.var(mean) > 2 / members[v] + 0.5 * w[v] ** 2
    return np.where(chosen, np.cumsum(chosen) - 1, -1)[variables]


def least_change(members: np.ndarray) -> np.ndarray:
    """Return the least w of variables with so many coordinates, (V,)."""
    return np.minimum(log_mass_of(LEAST), np.sqrt(2 * HELD / np.maximum(members, 1)))


def correlation_of(w: Any) -> Any:
    """Return the correlation of x_j and log s_i^2 if log M_i = c x_j has the standard deviation w."""
    return w / np.sqrt(w**2 + np.pi**2 / 2)


def log_mass_of(r: Any) -> Any:
    """Return the standard deviation w of log M_i for such a correlation."""
    return r * math.pi / np.sqrt(2 * (1 - r**2))


def least_kurtosis() -> float:
    """Return the kurtosis halfway between that of a normal and that for |r| = ``LEAST``."""
    return 1.5 + 1.5 * math.exp(log_mass_of(LEAST) ** 2)


def logarithms(squares: np.ndarray) -> np.ndarray:
    """Return the logarithms of the squares (n, m) minus their means, with the left tail cut."""
    y = np.log(squares)
    low = np.einsum("tm->m", y) / len(y) - TAIL
    if not np.all(np.isfinite(low)):  # a score is zero
        there = np.isfinite(y)
        low = np.sum(y, axis=0, where=there) / there.sum(axis=0) - TAIL
    y = np.maximum(y, low)
    return centred(y)


def covariances(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return |covariances| (d, m) of x (n, d), in standard units, and y (n, m), of mean 0, and the standard deviations of y."""
    return np.abs(x.T @ y) / len(x), np.sqrt(np.einsum("tm,tm->m", y, y) / len(x))


def autocorrelations(y: np.ndarray) -> np.ndarray:
    """Return the autocorrelations (m,) of y (n, m), of mean 0, at lag one; at least 0."""
    return np.maximum(np.einsum("tm,tm->m", y[1:], y[:-1]) / np.einsum("tm,tm->m", y, y), 0.0)


def errors(r: np.ndarray, persistence: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the standard errors (d, m) of correlations r (d, m) with y (n, m); ``persistence`` (d,) is that of x."""
    squared = np.minimum(r * r, 0.99)
    rest = np.maximum(autocorrelations(y) - squared * persistence[:, None], 0.0) / (1 - squared)
    both = np.minimum(rest * persistence[:, None], 0.99)
    return np.sqrt((1 + both) / ((1 - both) * len(y)))


def parents_of(r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the parents j(p, i), (P, d), for correlations r (d, d) with hyperparameters, and which of them there are."""
    d, links, hyper = len(r), r.copy(), r.any(axis=1)
    surplus = np.where(hyper, links.sum(axis=1) - links.sum(axis=0), -np.inf)
    place = np.empty(d, int)
    place[np.argsort(-surplus, kind="stable")] = np.arange(d)
    links[place[:, None] >= place] = 0.0
    parents, most = np.zeros((PARENTS, d), int), min(PARENTS, d)
    parents[:most] = np.argsort(-links, axis=0, kind="stable")[:most]
    return parents, np.concatenate([np.take_along_axis(links, parents[:most], axis=0) > 0, parents[most:] > 0])


def fitted(e: np.ndarray, u: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (a_0, a), (m, 2), and c (m, P) of the children with squared scores e (m, n) and parents u (m, P, n).

    Children of the same ``groups`` (m,) have the same parents.
    """
    m, P, n = u.shape
    room = np.zeros((2 + P, 2 + P)), np.zeros((6 + P, 2 + P))
    first = [best_form(*each, room) for each in zip(e, u, strict=True)]
    theta, errors = np.array([each for each, _ in first]), np.array([error for _, error in first])
    c = theta[:, 2:].copy()
    for group in np.unique(groups):
        members = groups == group
        if members.sum() >= FEWEST_MEMBERS:
            noise = np.mean(errors[members] ** 2, axis=0)
            between = np.maximum(np.var(c[members], axis=0, ddof=1) - noise, noise / members.sum())
            for i in np.flatnonzero(members):
                fit(e[i], u[i], theta[i], np.mean(c[members], axis=0), 1 / between, *room)
    return theta[:, :2], theta[:, 2:]


def best_form(e: np.ndarray, u: np.ndarray, room: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return (a_0, a, c) of the better form for squared scores e (n,) and parents u (P, n), and the standard errors of c."""
    zeros = np.zeros(len(u))
    penalty = zeros + RIDGE
    one = np.r_[-np.inf, np.log(e.mean()), zeros]
    loss = fit(e, u, one, zeros, penalty, *room)
    # The variance of a squared normal is twice that of the gamma distribution for which this is the information.
    lower = np.tril(room[0][1:, 1:])
    errors = np.sqrt(2 * np.diag(np.linalg.inv(lower + np.tril(lower, -1).T))[1:])
    two = one.copy()
    two[0] = np.quantile(one[1] + one[2:] @ u, LOW)
    return (two if fit(e, u, two, zeros, penalty, *room) < loss - WORTH else one), errors


@entry(
    lambda: nb.float64(
        types.VECTOR, types.MATRIX, types.VECTOR, types.VECTOR, types.VECTOR, types.MATRIX, types.MATRIX
    ),
    "the fit of a hierarchy",
)
def fit(
    e: np.ndarray,
    u: np.ndarray,
    theta: np.ndarray,
    aim: np.ndarray,
    penalty: np.ndarray,
    information: np.ndarray,
    room: np.ndarray,
) -> float:
    """Minimise the loss by Fisher scoring from ``theta`` = (a_0, a, c), in place; return the least loss.

    With a_0 = -inf the constant term is left out. The penalty is 1/2 sum_p ``penalty``_p (c_p - ``aim``_p)^2, and a_0 is held
    near its start. ``information`` (2 + P, 2 + P) is that of the last position that was left. ``room`` (6 + P, 2 + P) is
    overwritten.
    """
    gradient, step, there, slopes, L, low = room[0], room[1], room[2], room[3], room[4:], theta[0]
    now = loss_of(e, u, theta, low, aim, penalty)
    for _ in range(ITERATIONS):
        slope_of(e, u, theta, low, aim, penalty, slopes, gradient, information)
        if not cholesky(information, L):
            break
        copy_row(step, gradient)
        solve_lower(L, step)
        solve_lower_transposed(L, step)
        size, next_loss = 1.0, math.inf
        for _ in range(HALVINGS):
            for i in range(theta.shape[0]):
                there[i] = theta[i] - size * step[i]
            next_loss = loss_of(e, u, there, low, aim, penalty)
            if next_loss <= now:
                break
            size *= 0.5
        if not next_loss <= now:
            break
        gain, now = now - next_loss, next_loss
        copy_row(theta, there)
        if gain < ENOUGH * e.shape[0]:
            break
    return now


@jit
def log_mass(theta: np.ndarray, u: np.ndarray, t: int) -> tuple[float, float]:
    """Return log M at draw t, and the share of M that the parents scale."""
    scaled = theta[1]
    for p in range(u.shape[0]):
        scaled += theta[2 + p] * u[p, t]
    if theta[0] == -math.inf:
        return scaled, 1.0
    more = max(theta[0], scaled) + math.log1p(math.exp(-abs(theta[0] - scaled)))
    return more, math.exp(scaled - more)


@jit
def loss_of(e: np.ndarray, u: np.ndarray, theta: np.ndarray, low: float, aim: np.ndarray, penalty: np.ndarray) -> float:
    """Return the penalised loss; inf if it is not finite."""
    loss = 0.5 * RIDGE_OF_CONSTANT * (theta[0] - low) ** 2 if low > -math.inf else 0.0
    for p in range(u.shape[0]):
        loss += 0.5 * penalty[p] * (theta[2 + p] - aim[p]) ** 2
    for t in range(e.shape[0]):
        eta, _ = log_mass(theta, u, t)
        loss += e[t] * math.exp(-eta) + eta
    return loss if math.isfinite(loss) else math.inf


@jit
def slope_of(
    e: np.ndarray,
    u: np.ndarray,
    theta: np.ndarray,
    low: float,
    aim: np.ndarray,
    penalty: np.ndarray,
    slopes: np.ndarray,
    gradient: np.ndarray,
    information: np.ndarray,
) -> None:
    """Compute the gradient of the loss, and its expected second derivative."""
    k = theta.shape[0]
    gradient[:], information[:] = 0.0, 0.0
    for t in range(e.shape[0]):
        eta, share = log_mass(theta, u, t)
        slopes[0], slopes[1] = 1 - share, share
        for p in range(k - 2):
            slopes[2 + p] = share * u[p, t]
        left = 1 - e[t] * math.exp(-eta)
        for i in range(k):
            gradient[i] += slopes[i] * left
            for j in range(i + 1):
                information[i, j] += slopes[i] * slopes[j]
    for p in range(k - 2):
        gradient[2 + p] += penalty[p] * (theta[2 + p] - aim[p])
        information[2 + p, 2 + p] += penalty[p]
    information[1, 1] += TINY
    information[0, 0] += RIDGE_OF_CONSTANT
    if low > -math.inf:
        gradient[0] += RIDGE_OF_CONSTANT * (theta[0] - low)

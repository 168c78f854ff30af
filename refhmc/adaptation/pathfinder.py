"""Pathfinder: a normal approximation of a density exp(L(q)), from the path of an optimiser that climbs it.

This is the single-path algorithm of Zhang, Carpenter, Gelman and Vehtari, "Pathfinder: Parallel quasi-Newton variational
inference", JMLR 23 (2022). From a distant start, the path passes the region with most of the probability and continues to the
mode. In many dimensions there is little probability near the mode. Each iterate defines a normal. The one with the greatest
ELBO, that is the least KL(normal || density), is used.

**Inverse Hessian.** With s_k = q_k+1 - q_k and y_k = g_k - g_k+1 (g = dL/dq) of the last J = 6 pairs, the columns of S and Y,

    Sigma = diag(alpha) + beta gamma beta',     beta = [diag(alpha) Y, S],
    gamma = [[0, -R^-1], [-R^-T, R^-T (E + Y' diag(alpha) Y) R^-1]],     R = triu(S'Y),  E = diag(S'Y)

is the BFGS update of diag(alpha) with each pair in turn (Byrd, Nocedal and Schnabel 1994). alpha starts at 1, and each pair
updates it, too (Gilbert and Lemarechal 1989). 1/alpha becomes the diagonal of the BFGS update, by that pair, of
diag(alpha)^-1 a/b, a multiple that fits y,

    1/alpha_i  <-  a / (b alpha_i) + y_i^2 / b - a s_i^2 / (b c alpha_i^2),
    a = y' diag(alpha) y,  b = y's,  c = s' diag(alpha)^-1 s.

A pair without curvature, b <= 1e-12 y'y, is ignored.

**Path.** q_l+1 = q_l + t Sigma_l g_l: L-BFGS that starts from that diagonal in each iteration. (The paper's L-BFGS starts
from a multiple of the identity and therefore needs a second estimate.) t is found by doubling and bisection (Lewis and
Overton 2013) for

    L(q_l+1) >= L(q_l) + 1e-4 t g_l' Sigma_l g_l     and     g_l+1' Sigma_l g_l <= 0.9 g_l' Sigma_l g_l,

starting from 1, and at the first iterate from a step of length 1 or less. A trial at which L or its gradient is not finite
counts as too far, since a support may end there or a function overflow. (SciPy's L-BFGS-B, version 1.17, stays at its start in
this case and reports convergence.)

**Normal.** N(q_l + Sigma_l g_l, Sigma_l). With diag(alpha)^-1/2 beta = Q P (QR) and C C' = I + P gamma P' (Cholesky),

    phi = mean + diag(alpha)^1/2 (z + Q (C - I) Q'z),     log det Sigma = sum_i log alpha_i + 2 sum_j log C_jj

with z standard normal. The ELBO, mean of L(phi) - log normal(phi), is estimated from K = 25 draws, as in Stan. (With the
paper's 5, the greatest estimate on eight schools comes by chance from a normal that reaches far into the neck.) The path
ends after 50 successive normals that are not better than the best so far. The paper continues to the end of the path, which
is far away on a funnel.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

HISTORY, DRAWS, PATIENCE, MAX_ITERATIONS = 6, 25, 50, 1000
CURVATURE, SUFFICIENT, FLATTER = 1e-12, 1e-4, 0.9
TOLERANCE = 1e-8  # of L: less than the ELBO can resolve
MAX_TRIALS = 60  # of one step, each half or twice the one before

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]


class InverseHessian(NamedTuple):
    """Sigma by its factors: alpha (d,), beta (d, 2m), gamma (2m, 2m)."""

    alpha: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray

    def product(self, v: np.ndarray) -> np.ndarray:
        """Return Sigma v."""
        return self.alpha * v + self.beta @ (self.gamma @ (self.beta.T @ v))


class Iterate(NamedTuple):
    """q (d,), L and its gradient (d,) there, and the inverse Hessian estimated from the path up to it."""

    q: np.ndarray
    value: float
    gradient: np.ndarray
    inverse_hessian: InverseHessian


class Normal(NamedTuple):
    """A normal by its mean (d,), alpha (d,), Q (d, r) and C (r, r)."""

    mean: np.ndarray
    alpha: np.ndarray
    Q: np.ndarray
    C: np.ndarray

    def draw(self, z: np.ndarray) -> np.ndarray:
        """Return the draws (..., d) made from the standard normals z (..., d)."""
        along = z @ self.Q
        return self.mean + np.sqrt(self.alpha) * (z + (along @ self.C.T - along) @ self.Q.T)

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Return the log densities, (...), of the draws made from z."""
        log_det = np.sum(np.log(self.alpha)) + 2 * np.sum(np.log(np.diag(self.C)))
        return -0.5 * (log_det + np.sum(z * z, axis=-1) + z.shape[-1] * math.log(2 * math.pi))


class Found(NamedTuple):
    """The normal with the greatest ELBO on a path of ``iterates``; None, with the reason in ``why``, if there is none."""

    normal: Normal | None
    elbo: float
    iterates: int
    why: str = ""


def pathfinder(
    log_density: Callable[[np.ndarray], float],
    value_and_gradient: Evaluate,
    q: np.ndarray,
    rng: np.random.Generator,
) -> Found:
    """Return the normal found from the start q (d,), where L and its gradient are finite.

    ``rng`` draws K d standard normals at each iterate. Exceptions of the functions are not caught.
    """
    best, best_elbo, at, n = None, -math.inf, 0, 0
    for n, iterate in enumerate(path(value_and_gradient, q), 1):
        normal, z = normal_at(iterate), rng.standard_normal((DRAWS, len(q)))
        if normal is None:
            continue
        L = np.array([log_density(phi) for phi in normal.draw(z)])
        elbo = float(np.mean(L - normal.log_density(z)))
        if elbo > best_elbo and math.isfinite(elbo):
            best, best_elbo, at = normal, elbo, n
        elif best is not None and n >= at + PATIENCE:
            break
    if best is not None:
        return Found(best, best_elbo, n)
    why = f"none of the {n} normals on its path has a finite ELBO" if n else "its path has no step that climbs"
    return Found(None, -math.inf, n, why)


def path(value_and_gradient: Evaluate, q: np.ndarray) -> Iterator[Iterate]:
    """Yield the iterates after the start q (d,), until L does not change, no step climbs, or 1,000 are made."""
    value, gradient = value_and_gradient(q)
    alpha, pairs = np.ones(len(q)), deque[tuple[np.ndarray, np.ndarray]](maxlen=HISTORY)
    inverse_hessian = factors(alpha, pairs)
    for l in range(MAX_ITERATIONS):  # noqa: E741
        direction = inverse_hessian.product(gradient)
        size = 1.0 if l else 1 / max(1.0, float(np.linalg.norm(gradient)))
        there = climb(value_and_gradient, q, value, gradient, direction, size)
        if there is None:
            return
        s, y, gain = there[0] - q, gradient - there[2], there[1] - value
        if s @ y > CURVATURE * (y @ y):
            alpha = next_diagonal(alpha, s, y)
            pairs.append((s, y))
        inverse_hessian = factors(alpha, pairs)
        q, value, gradient = there
        yield Iterate(q, value, gradient, inverse_hessian)
        if gain <= TOLERANCE * max(1.0, abs(value)):
            return


def climb(
    value_and_gradient: Evaluate, q: np.ndarray, value: float, gradient: np.ndarray, direction: np.ndarray, t: float
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Return the first q + t direction that meets both conditions, with L and its gradient there; None if there is none.

    The sizes are t, and those that follow by doubling and bisection.
    """
    slope = gradient @ direction
    if not slope > 0:
        return None
    low, high = 0.0, math.inf
    for _ in range(MAX_TRIALS):
        there = q + t * direction
        value_there, gradient_there = value_and_gradient(there)
        finite = math.isfinite(value_there) and bool(np.all(np.isfinite(gradient_there)))
        if not (finite and value_there >= value + SUFFICIENT * t * slope):
            high = t
        elif gradient_there @ direction > FLATTER * slope:
            low = t
        else:
            return there, value_there, gradient_there
        t = (low + high) / 2 if high < math.inf else 2 * t
    return None


def next_diagonal(alpha: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return alpha (d,) after the pair s, y (d,)."""
    a, b, c = y @ (alpha * y), y @ s, s @ (s / alpha)
    return 1 / (a / (b * alpha) + y**2 / b - a * (s / alpha) ** 2 / (b * c))


def factors(alpha: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray]]) -> InverseHessian:
    """Return Sigma of diag(alpha) and the pairs (s, y), the oldest first."""
    m = len(pairs)
    if m == 0:
        return InverseHessian(alpha, np.zeros((len(alpha), 0)), np.zeros((0, 0)))
    S, Y = np.stack([s for s, _ in pairs], axis=1), np.stack([y for _, y in pairs], axis=1)
    products = S.T @ Y
    inverse_R = np.linalg.inv(np.triu(products))
    scaled = alpha[:, None] * Y
    middle = inverse_R.T @ (np.diag(np.diag(products)) + Y.T @ scaled) @ inverse_R
    gamma = np.block([[np.zeros((m, m)), -inverse_R], [-inverse_R.T, middle]])
    return InverseHessian(alpha, np.concatenate([scaled, S], axis=1), gamma)


def normal_at(iterate: Iterate) -> Normal | None:
    """Return N(q + Sigma g, Sigma), or None if rounding errors in the factors leave no valid covariance."""
    q, _, gradient, inverse_hessian = iterate
    alpha, beta, gamma = inverse_hessian
    try:
        Q, P = np.linalg.qr(beta / np.sqrt(alpha)[:, None])
        C = np.linalg.cholesky(np.eye(len(P)) + P @ gamma @ P.T)
    except np.linalg.LinAlgError:
        return None
    return Normal(q + inverse_hessian.product(gradient), alpha, Q, C)

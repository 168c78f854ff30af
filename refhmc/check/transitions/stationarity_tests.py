"""Two tests of stationarity for kernels whose moves are not in detailed balance, which alone does not make them wrong.

**Time reversal.** A kernel with density k that never stays preserves pi if and only if its reversal integrates to one, at every
q':

    E exp(r) = 1,   q ~ k(q', .),   exp(r) = pi(q) k(q, q') / (pi(q') k(q', q)).

In up to three dimensions that is an integral over the normals v with q = F(q', v), computed by Gauss-Hermite quadrature of two
orders, whose difference gives the error. Otherwise, since exp(r) >= 0, the wealth prod (1 + lambda (exp(r_i) - 1)) of a
gambler, 0 <= lambda < 1, exceeds 1/alpha with probability at most alpha, whatever the distribution of r. The point q' and the
stake lambda are chosen on other moves than those of the bet.

**Weighted moves.** With x drawn from any g (here Student's t around the bulk of pi), w = pi / g and a bounded f,

    E w (f(K x) - f(x)) = 0,

whatever the constant of pi. The statistic is the mean over its standard error, without the one in 200 draws that contribute
most, and only if no single draw has more than a tenth of the sum of squares. f is tanh of each coordinate, of its distance
from the centre, and of the log density, all standardised. With a momentum that is kept, p ~ N(0, L(q) L(q)') goes with each
x, and f is also tanh of r = L^-1 p, of |r| and of r times the standardised coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.subject.budget import Budget
from refhmc.check.subject.outcomes import Path
from refhmc.check.subject.target import typical_points
from refhmc.check.transitions.balance import Setting, map_of, roots_of

GOAL = 1e6
PILOT = 12
ORDERS = {1: (16, 24), 2: (8, 11), 3: (5, 7)}  # of the quadrature, by the number of normals
ROUGH = 1e-4  # an integral that differs from one by more is not one
FINE = 1e-6  # one that differs by less is one, for moves as long as the width of the distribution
MOST_WAYS = 0.02  # largest effect of other moves to the same point on the integral
MOST_BETS = 1500
LOOKS = (1000, 3000, 9000)
LIMIT = 7.0  # of |z|: below 1e-9 for all functions and looks if z is normal
MOST_SHARE = 0.1


class Wealth(NamedTuple):
    """The gambler's wealth, the number of moves, and the mean of exp(r) at the chosen point ``at``."""

    value: float
    moves: int
    mean: float
    at: np.ndarray


class Integral(NamedTuple):
    """E exp(r) at ``at``, with its estimated ``error``; a lower bound if not ``complete``, that is if a node failed."""

    value: float
    error: float
    at: np.ndarray
    complete: bool


class Moves(NamedTuple):
    """Moves F(q, v) of a kernel without decisions along one ``path``, where v is ``size`` standard normals."""

    setting: Setting
    path: Path
    size: int
    rng: np.random.Generator

    def noises(self, start: np.ndarray, goal: np.ndarray, v: np.ndarray, starts: int) -> list[np.ndarray]:
        """Return noises that lead from ``start`` to ``goal``, searched from ``v``."""
        near = 1e-8 * (1 + np.abs(goal).max())
        return roots_of(self.setting, start, goal, v, np.arange(len(v)), self.path, near, self.rng, starts)[0]

    def log_density(self, start: np.ndarray, noises: Sequence[np.ndarray]) -> float:
        """Return the log of the kernel's density at the end of ``noises``; -inf if there are none."""
        setting, here = self.setting, self.setting.log_pi(start)
        volumes = [map_of(setting, start, z, self.path, quick=True).log_volume for z in noises]
        parts = [setting.log_density(start, z) - here - volume for z, volume in zip(noises, volumes, strict=True)]
        return float(np.logaddexp.reduce(parts)) if parts else -math.inf

    def more_ways(self, q: np.ndarray) -> float:
        """Return the largest growth of the log density at the end of a move by other noises that lead there."""
        most = 0.0
        for _ in range(4):
            v = self.rng.standard_normal(self.size)
            to = self.setting.gone(q, v, self.path)
            if not np.isfinite(to).all():
                continue
            found = self.noises(q, to, -v, 6)
            if len(found) > 1:
                growth = self.log_density(q, found) - self.log_density(q, [v])
                most = max(most, growth if math.isfinite(growth) else 0.0)
        return most

    def ratio(self, q_end: np.ndarray, v: np.ndarray, branches: int) -> float | None:
        """Return exp(r) for one v: the density of the moves from q = F(q', v) back to q' over that of the moves there."""
        q = self.setting.gone(q_end, v, self.path)
        if np.array_equal(q, q_end) or not np.isfinite(q).all():
            return None
        there = self.log_density(q_end, [v])
        if branches > 1:
            there = self.log_density(q_end, self.noises(q_end, q, -v, 6))
        starts = (6,) if branches > 1 else (1, 6)
        noises = next((found for n in starts if (found := self.noises(q, q_end, v, n))), [])
        r = self.setting.log_pi(q) + self.log_density(q, noises) - self.setting.log_pi(q_end) - there
        return math.exp(min(r, 50.0)) if math.isfinite(there) and not math.isnan(r) else None

    def random_ratio(self, q_end: np.ndarray, branches: int) -> float | None:
        """Return the ratio for a random v."""
        return self.ratio(q_end, self.rng.standard_normal(self.size), branches)


def integrate_reversal(moves: Moves, points: np.ndarray, seconds: float) -> Iterator[Integral]:
    """Yield E exp(r) at some points, one after the other; none if it cannot be computed."""
    size = moves.size
    more = moves.more_ways(points[0]) if size in ORDERS else math.inf
    if more > MOST_WAYS:
        return
    budget = Budget(seconds)
    middle = points.mean(axis=0)
    for at in (middle, points[1], middle + 1.5 * (points[0] - middle), points[2]):
        values, complete = [], True
        for order in ORDERS[size]:
            nodes, weights = np.polynomial.hermite_e.hermegauss(order)
            weights = weights / weights.sum()
            total = 0.0
            for index in np.ndindex(*(order,) * size):
                share = float(np.prod(weights[list(index)]))
                if share < 1e-9:
                    continue
                if budget.over():
                    return
                ratio = moves.ratio(at, nodes[list(index)], 1)
                complete = complete and bool(ratio)
                total += share * (ratio or 0.0)
            values.append(total)
        yield Integral(values[1], abs(values[1] - values[0]) + more, at, complete)


def bet_on_reversal(moves: Moves, points: np.ndarray, seconds: float) -> Wealth:
    """Apply the first test without quadrature."""
    budget = Budget(seconds)
    middle = points.mean(axis=0)
    candidates = [*points[:4], *(middle + 1.7 * (points[:3] - middle)), middle]
    branches = 2 if moves.more_ways(points[0]) > 1e-9 else 1
    value, chosen, stake, mean = 1.0, middle, 0.0, 1.0
    best = -math.inf
    for q_end in candidates:
        pilot = np.array([moves.random_ratio(q_end, branches) or 0.0 for _ in range(PILOT)])
        gain, spread = pilot.mean() - 1, pilot.var() + 1e-12
        if gain > 0 and gain * gain / spread > best:
            best, chosen, stake = gain * gain / spread, q_end, min(0.5, 0.5 * gain / spread)
        if budget.over() and best > 0:
            break
    log_wealth, total, n = 0.0, 0.0, 0
    while stake > 0 and log_wealth < math.log(GOAL) and n < MOST_BETS and not budget.over():
        ratio = moves.random_ratio(chosen, branches)
        ratio = 1.0 if ratio is None else ratio
        log_wealth += math.log1p(stake * (ratio - 1))
        total, n = total + ratio, n + 1
    if n:
        value, mean = math.exp(min(log_wealth, 700.0)), total / n
    return Wealth(value, n, mean, chosen)


class Weighed(NamedTuple):
    """The largest |z|, its function, the number of moves, and the least change of f (in sd) that would have been found.

    ``z`` is NaN if the weights are too uneven, ``least`` zero if nothing moved.
    """

    z: float
    what: str
    moves: int
    least: float


def weigh_moves(
    move: Callable,
    log_pi: Callable,
    dim: int,
    rng: np.random.Generator,
    seconds: float,
    mass_root: Callable | None = None,
    sphere: bool = False,
) -> Weighed:
    """Apply the second test to ``move(x, seed) -> K(x)``; with ``mass_root(q) = L(q)``, ``move(x, seed, p)`` returns p too.

    With ``sphere`` the momenta are unit vectors, with a uniform distribution.
    """
    budget = Budget(seconds)
    walked = typical_points(log_pi, dim, 120, rng, thin=10)
    centre, spread = walked.mean(axis=0), walked.std(axis=0) + 1e-9
    root = np.linalg.cholesky(1.7 * np.cov(walked, rowvar=False).reshape(dim, dim) + 1e-6 * np.diag(spread**2))
    levels = np.array([log_pi(x) for x in walked])
    tested = min(dim, 10)

    def features(x: np.ndarray, p: Any = None) -> np.ndarray:
        u = (x - centre)[:tested] / spread[:tested]
        level = (log_pi(x) - levels.mean()) / (levels.std() + 1e-9)
        found = [np.tanh(u), np.tanh(np.abs(u) - 0.7), [math.tanh(level) if not math.isnan(level) else -1.0]]
        if p is not None and mass_root is not None:
            r = (math.sqrt(dim) * p if sphere else np.linalg.solve(mass_root(x), p))[:tested]
            found += [np.tanh(r), np.tanh(np.abs(r) - 0.7), np.tanh(r * u)]
        return np.concatenate(found)

    names = [f"position {i}" for i in range(tested)] + [f"spread of {i}" for i in range(tested)] + ["log density"]
    for what in ("momentum {}", "spread of momentum {}", "position {0} times momentum {0}"):
        names += [what.format(i) for i in range(tested)]
    weights, changes, sizes = [], [], []
    for k in range(LOOKS[-1]):
        t = rng.standard_normal(dim)
        scale = math.sqrt(5 / rng.chisquare(5))
        x = centre + scale * root @ t
        log_w = log_pi(x) + 0.5 * (5 + dim) * math.log1p(scale**2 * t @ t / 5)
        if math.isfinite(log_w):
            p = () if mass_root is None else (mass_root(x) @ rng.standard_normal(dim),)
            p = tuple(each / np.linalg.norm(each) for each in p) if sphere else p
            before = features(x, *p)
            to = move(x, int(rng.integers(2**31)), *p)
            after = features(to) if mass_root is None else features(*to)
            weights.append(log_w)
            changes.append(after - before)
            sizes.append(before)
        timed_out = budget.over()
        if k + 1 in LOOKS or timed_out:
            found = _judge(np.array(weights), np.array(changes), np.array(sizes), names)
            if timed_out or found.z >= LIMIT:
                return found
    return found


def _judge(log_weights: Any, changes: Any, sizes: Any, names: Sequence[str]) -> Weighed:
    if not changes.any():
        return Weighed(0.0, "", len(log_weights), 0.0)
    if len(log_weights) < 300:
        return Weighed(math.nan, "", len(log_weights), math.nan)
    w = np.exp(log_weights - log_weights.max())[:, None]
    terms = w * changes
    squares = np.sum(terms * terms, axis=0)
    uneven = np.max(terms * terms, axis=0) > MOST_SHARE * squares
    towards = np.sort(terms * np.sign(terms.sum(axis=0)), axis=0)
    kept = towards[: len(towards) - len(towards) // 200]
    z = np.maximum(kept.sum(axis=0), 0.0) / np.sqrt(np.maximum(squares, 1e-300))
    # The weighted standard deviation of each f, for the least change that would have been found.
    total = w.sum()
    spread = np.sqrt(np.sum(w * (sizes - np.sum(w * sizes, axis=0) / total) ** 2, axis=0) / total) + 1e-12
    least = float(np.max(LIMIT * np.sqrt(squares) / total / spread))
    if np.all(uneven):
        return Weighed(math.nan, "", len(w), least)
    z = np.where(uneven, 0.0, z)
    return Weighed(float(z.max()), names[int(z.argmax())], len(w), least)

"""The length of the trajectories of HMC and MAMS, learned in warm-up to maximise the least effective sample size per step.

For a function f of the position, a start q_0 from the stationary distribution and the state q_l at distance l on the
trajectory,

    R_f(L) = E[min(1, exp(H_0 - H_l)) (f(q_l) - f(q_0))^2] / (2 var f),    l uniform on L (1 - j), ..., L (1 + j)

is 1 - rho, where rho is the autocorrelation at lag one of HMC of length L and jitter j. R_f is half the expected squared
jump of f in units of its variance (Pasarica and Gelman 2010, Statistica Sinica 20, 343-364). If all autocorrelations of f
were powers of rho, as those of a normal's coordinates are, a draw would be worth 1 / tau_f independent ones. In a
reversible chain it is worth at most that (Jensen on the spectrum, where (1 + x) / (1 - x) is convex):

    tau_f = (1 + rho) / (1 - rho) = (2 - R_f) / R_f

The functions are |u_i| and u_i, which grows with q_i and is bounded, so that both moments can be estimated with heavy tails:

    u_i = x / (1 + |x| / s_i),    x = q_i - c_i

with center c and scale s_i, the mean of |x|. The distance |u_i| sees moves that turn q to its opposite without changing the
radius. (So do the squares of ChEES, Hoffman, Radul and Sountsov 2021, which have no variance in a heavy tail.) The mean
of n draws of a normal has the standard error s (tau_q / n)^(1/2), their standard deviation s (tau_|q| / (2n))^(1/2). With n(L)
the mean number of steps of a trajectory, the length is

    argmin_L  n(L) max_i max(tau_{u_i}, tau_{|u_i|} / 2)

For a standard normal, with q and q^2 for u and |u|, that is 1.83 without jitter, where tau is 0.6 and 1.1 (at pi/2: 1 and 1).

**Kept velocity.** MAMS keeps the share a of its velocity, and reverses it after a rejection. Suppose that trajectories turn
(q, u) by an angle, as on a normal, and are accepted with a probability w that does not depend on the state. Then the mean of
(q, u) after a transition is A (q, u), and the sum of the autocorrelations of q is the upper left entry of (I - A)^-1. The same
holds for q^2 and (q^2, q u, u^2). With the R of u_i and of |u_i| from above,

    tau_u   = 2 (1 + a - 2 a w + a R) / ((1 + a) R) - 1
    tau_|u| = 2 ((1 - a m)(1 - a^2 (1 - R)) + 2 a^3 R (w - R)) / ((1 - a^2)(1 + a) R) - 1,    m = 2 (w - R) - 1

which is (2 - R) / R for a = 0. A large a makes draws of q nearly antithetic and those of q^2 slower. For a = 1/2 and w = 1, a
single step is the best trajectory of a standard normal if it turns by an angle of 0.9 to 2.4. The criterion is then 0.8 to 1.5.

**Jitter** is j = 1/2, unless the user gives one. Consider normals whose scales fill 1, ..., r evenly in their logarithm. The
best length by this criterion, with squares for distances, gives this many draws per length of the largest scale:

    j          0     0.1   0.3   0.5   0.7   0.95
    r = 1      0.93  0.92  0.85  0.74  0.65  0.56
    r = 10     0.07  0.09  0.29  0.41  0.46  0.47

**Procedure.** From iteration 25 of warm-up (or an eighth of it, if it is shorter than 200) to its last phase, a window has 25
trajectories, or half as many as came before it. A quarter of them looks ahead if L grew in the last window, and otherwise a
sixteenth, but at least 25. These have the length L' (1 + j (2u - 1)) with L' = max(3/2 L, L + eps), and all others have the
length L (1 + j (2u - 1)). At the end of the window L becomes the best of the lengths between L' / 4 and L' that are four per
octave. Here var f is the variance over the window, and c and s are those of the one before (in the first window c is its first
state, and u = x). L therefore grows if it is too short, to at most L' per window, and the first windows need not have seen the
whole distribution. If the longest trajectory has 1,024 steps, L does not change, and trajectories are cut there.

**Recording.** Consider the lengths l_k = l_last 2^((k - K + 1)/4), k < K, four per octave over five octaves, and the
n(l_k) = round(l_k / eps) steps that trajectories of these lengths have, at least one and at most 1,024, where eps is the step
size before jitter. The position after n(l_k) steps is recorded with its acceptance min(1, exp(H0 - H)), which is 0 if the
trajectory ended before because of an energy that is not finite. Nothing is recorded for lengths that the trajectory was not
meant to reach.

With a metric that is learned, which makes the variances one, or that depends on the position, which makes the curvature about
one, L is at least its initial value pi/2 if a = 0. It then need not grow again when the metric has set the scale. Also, tau at
lag one, which is a lower bound, may underestimate the slowest scale. After the last window trajectories have the length L and
the jitter j. Warm-ups of less than 30 iterations learn no length: it is pi/2 without jitter. Each chain learns from its own
trajectories only. Measurements are in ``validation/benchmarks/results/trajectory_length.md``.

**Hyperparameters** are slow, since they are as heavy as all their children require. Their block of the mass matrix, M_0, that
of level 0, is constant. On a normal with the covariance C_0 the squared angular frequencies are the eigenvalues of
(M_0 C_0)^-1, so that a quarter of the longest period is pi/2 times the square root of

    max_x  x'C_0 x / x'M_0^-1 x  >=  max_i  s_i^2 / (M_0^-1)_ii

The right-hand side, for x along the axes, is the largest ratio of the standard deviations s_i of a coordinate and of its
velocity. It is exact for a diagonal M_0 and independent coordinates. L is at least pi/2 times its square root, if that exceeds
the initial value. (In the funnel with n = 100 this is 33. A criterion that starts from short trajectories stays at 2 to 5.)

When a hierarchical metric is learned, the s_i are those of the draws from which it is. If the least length then exceeds the
present one, the window begins again. For a metric that is not learned, they are (pi/2)^1/2 times the means of |q_i - c_i| of
each window but the first, whose c_i is a single state. There the least length is at most 2 L, since early windows may be far
from the distribution. (In the horseshoe a window from iteration 50 asked for the length 97, and all later ones for 5.) MAMS
has only constant metrics.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types as nb

from refhmc.adaptation.windows import warmup_schedule
from refhmc.compile.compiled import jit, jit_inline, plain
from refhmc.core import types
from refhmc.core.point import as_point, copy_row
from refhmc.core.records import REAL, WHOLE, Layout, one, record_type
from refhmc.core.types import as_points, as_workspace
from refhmc.kernels.hmc import MAX_STEPS, hmc, hmc_with
from refhmc.kernels.mams import mams, mams_with
from refhmc.metrics.bordered import block_of
from refhmc.metrics.fisher import Fisher
from refhmc.metrics.hierarchical import Hierarchical

N_LENGTHS, AN_OCTAVE = 20, 4
DEFAULT_JITTER = 0.5
FIRST, SMALLEST, SHORTEST_TUNE = 25, 25, 30
LOOK_AHEAD, LARGEST_GROWTH = 1.5, 2.0  # the latter of the least length, per window
AFTER_GROWTH, OTHERWISE = 4, 16  # trajectories from one that looks ahead to the next, if there are enough
N_CANDIDATES = 2 * AN_OCTAVE + 1
FEWEST = 5  # trajectories that have reached a length, for it to count
NORMAL = math.sqrt(math.pi / 2)  # standard deviation of a normal in units of its mean distance from the mean
LEAST_TAU = 0.05  # an estimate may be 0 or negative

# The present length, and its lower limit; the number of trajectories in this window, and from one that looks ahead to the next.
LENGTH = record_type({"length": REAL, "least": REAL, "count": WHOLE, "apart": WHOLE})
KEPT = 3  # moments that the next window keeps, the first ones
MOMENTS = Layout("center rate slowness mean distance mean_odd scatter_odd mean_even scatter_even")
SLOWNESS = int(MOMENTS.vectors["slowness"])
moments_of = MOMENTS.rows
N_SUMS = 6
# LENGTH; moments (9, d): c, 1/s (0: not known), (M_0^-1)_ii^-1/2 (0 above level 0), means of q - c and of |q - c|, means and
# scatters of u and of |u|; sums (K, 6, d), for each length: w (u_l - u_0)^2, w (|u_l| - |u_0|)^2, and in the first column of
# the other rows how many trajectories reached it, their steps and acceptances w, and the weight of their mean in an average
# over lengths; the windows.
LEARNER = nb.Tuple((numba.from_dtype(LENGTH), types.MATRIX, types.STACK, types.MATRIX_OF_INTEGERS))


def begin_length(d: int, settings: np.recarray, windows: np.ndarray, sets_the_scale: bool) -> tuple:
    """Return the record, the moments and the sums of a learner at its start, without rows if it has no windows.

    With ``sets_the_scale``, the metric has the scale of the distribution. The length is then at least the present one, unless
    a part of the velocity is kept.
    """
    known, at = one(LENGTH), int(len(windows) > 0)
    known.length, known.apart = settings.trajectory_length, AFTER_GROWTH
    known.least = settings.trajectory_length if sets_the_scale and settings.persistence == 0 else 0.0
    return known, np.zeros((at * MOMENTS.n_vectors, d)), np.zeros((at * N_LENGTHS, N_SUMS, d))


def length_windows(tune: int) -> np.ndarray:
    """Return (k, 2) integers: the first iteration of each window and the one after its last; empty if warm-up is too short."""
    if tune < SHORTEST_TUNE:
        return np.zeros((0, 2), np.int64)
    start, end = min(FIRST, tune // 8), warmup_schedule(tune)[-1][1]
    windows = []
    while start < end:
        size = max(SMALLEST, start // 2)
        stop = start + size if start + 2 * size <= end else end
        windows.append((start, stop))
        start = stop
    return np.array(windows, dtype=np.int64)


class Watched(NamedTuple):
    """A length's position (d,), and in the first columns its acceptance and its number of steps (0 if not reached)."""

    q: Any
    acceptance: Any
    n_steps: Any


WATCHED_ROWS = len(Watched._fields)


@jit_inline
def as_watched(rows: np.ndarray) -> Watched:
    """Return named views of the rows of a length."""
    return Watched(rows[0], rows[1], rows[2])


@jit
def watched_length(longest: float, k: int) -> float:
    """Return l_k; the last one is ``longest``."""
    return longest * 2.0 ** ((k - N_LENGTHS + 1) / AN_OCTAVE)


@jit
def steps_of(length: float, step_size: float) -> int:
    """Return the number of steps of a trajectory of a given length."""
    return int(min(max(round(length / step_size), 1), MAX_STEPS))


@jit
def record(path: np.ndarray, settings: Any, q: np.ndarray, drop: float, done: int) -> None:
    """Record the position after ``done`` steps, with H0 - H = ``drop``, for the lengths that it is the first to reach.

    ``path`` (K + 1, 3, d) has the lengths, then the start with the number of lengths reached so far.
    """
    if settings.watched == 0:
        return
    reached = as_watched(path[N_LENGTHS]).n_steps
    k = int(reached[0])
    while k < N_LENGTHS and steps_of(watched_length(settings.longest, k), settings.step_size) <= done:
        there = as_watched(path[k])
        copy_row(there.q, q)
        there.acceptance[0] = math.exp(min(drop, 0.0)) if math.isfinite(drop) else 0.0
        there.n_steps[0] = steps_of(watched_length(settings.longest, k), settings.step_size)
        k += 1
    reached[0] = k


@jit
def hmc_recording(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition of HMC, which in the windows of warm-up records states along its trajectory."""
    begin_path(workspace, settings)
    return hmc_with(record, dynamics, model, workspace, randomness, settings, stats, control)


@jit
def mams_recording(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition of MAMS, which in the windows of warm-up records states along its trajectory."""
    begin_path(workspace, settings)
    return mams_with(record, dynamics, model, workspace, randomness, settings, stats, control)


# The transitions that record, by those that do not.
RECORDING = {hmc: hmc_recording, mams: mams_recording}


@jit
def begin_path(workspace: tuple, settings: Any) -> None:
    """Record the start of a trajectory, if states along it are recorded."""
    points, path, _, _, _ = as_workspace(workspace)
    if settings.watched > 0:
        path[:, 1:, 0] = 0.0
        copy_row(path[N_LENGTHS, 0], as_point(as_points(points).state).q)


@jit
def adapt_length(learner: tuple, path: np.ndarray, iteration: int, settings: Any) -> None:
    """Use the trajectory of the ``iteration``-th draw of warm-up (from 0), and set the length of the next trajectory."""
    known, moments, sums, windows = learner
    last = windows.shape[0] - 1
    for k in range(last + 1):
        start, stop = windows[k, 0], windows[k, 1]
        if start <= iteration < stop:
            if iteration == windows[0, 0]:
                copy_row(moments_of(moments).center, path[N_LENGTHS, 0])
            take_path(known, moments, sums, path)
            if iteration == stop - 1:
                scale = NORMAL * slowest(moments_of(moments).slowness, moments_of(moments).distance)
                if k > 0 and scale > 0:
                    known.least = min(max(scale, 1.0) * math.pi / 2, LARGEST_GROWTH * known.length)
                before, known.length = known.length, max(best_length(known, moments, sums, settings), known.least)
                known.apart = AFTER_GROWTH if known.length > before else OTHERWISE
                begin_window(known, moments, sums)
        if iteration == start - 1 or (iteration == stop - 1 and k < last):
            begin_watching(known, settings)
    settings.trajectory_length = next_length(known, windows, iteration + 1, settings)
    if iteration == windows[last, 1] - 1:
        settings.watched = 0


@jit
def begin_watching(known: Any, settings: Any) -> None:
    """Record along the next trajectories, at lengths beyond the present one."""
    settings.watched = 1
    longer = max(LOOK_AHEAD * known.length, known.length + settings.step_size)
    settings.longest = longer * (1 + settings.length_jitter)


@jit
def longer_length(settings: Any) -> float:
    """Return L', the length of the trajectories that look ahead."""
    return settings.longest / (1 + settings.length_jitter)


@jit
def next_length(known: Any, windows: np.ndarray, iteration: int, settings: Any) -> float:
    """Return the length before jitter of the trajectory of an iteration: L' for those that look ahead, otherwise L."""
    for k in range(windows.shape[0]):
        start, stop = windows[k, 0], windows[k, 1]
        apart = min(max((stop - start) // SMALLEST, 1), known.apart)
        if start <= iteration < stop and (iteration - start) % apart == 0:
            return longer_length(settings)
    return known.length


def slowness_of(metric: Any, model: Any, q: np.ndarray) -> np.ndarray:
    """Return 1 / (M_0^-1)_ii^1/2 of the coordinates of level 0, and 0 for all others, (d,); all are 0 without levels."""
    if isinstance(metric, Hierarchical):
        U, eigenvalues = metric.low_rank(len(q))
        slowness = np.sqrt(metric.masses(q) / (1 + (eigenvalues - 1) @ U**2))
        return np.where(metric.levels() == 0, slowness, 0.0)
    slowness = np.zeros(len(q))
    if isinstance(metric, Fisher) and model.fisher_levels is not None:
        of = np.flatnonzero(model.fisher_levels == 0)
        block = model.fisher(q)[np.ix_(of, of)] if model.fisher_border is None else block_of(model, q, of)
        try:
            variances = np.diag(np.linalg.inv(block))
        except np.linalg.LinAlgError:
            return slowness
        slowness[of] = np.where(variances > 0, variances, np.inf) ** -0.5
    return slowness


@jit
def slowest(slowness: np.ndarray, s: np.ndarray) -> float:
    """Return max_i s_i / (M_0^-1)_ii^1/2; 0 without coordinates of level 0."""
    most = 0.0
    for i in range(s.shape[0]):
        most = max(most, s[i] * slowness[i])
    return most


def lengthen(learner: tuple, iteration: int, settings: Any, scale: float) -> None:
    """Set the least length to ``scale`` pi/2, but at least pi/2, and begin the present window again if the length changes.

    ``iteration`` is that of the next transition.
    """
    known, moments, sums, windows = learner
    known.least = max(scale, 1.0) * math.pi / 2
    if known.length >= known.least:
        return
    known.length, known.count = known.least, 0
    moments[KEPT:], sums[:] = 0.0, 0.0
    if settings.watched:
        plain(begin_watching)(known, settings)
    settings.trajectory_length = plain(next_length)(known, windows, iteration, settings)


@jit
def bounded(x: float, rate: float) -> float:
    """Return u."""
    return x / (1 + rate * abs(x))


@jit
def take_path(known: Any, moments: np.ndarray, sums: np.ndarray, path: np.ndarray) -> None:
    """Add the start of a trajectory to the moments, by Welford's recursion, and the squared jumps along it to the sums."""
    m, q0 = moments_of(moments), path[N_LENGTHS, 0]
    known.count += 1
    share = 1.0 / known.count
    for i in range(q0.shape[0]):
        x = q0[i] - m.center[i]
        odd = bounded(x, m.rate[i])
        m.mean[i] += share * (x - m.mean[i])
        m.distance[i] += share * (abs(x) - m.distance[i])
        m.scatter_odd[i] += (1 - share) * (odd - m.mean_odd[i]) ** 2
        m.mean_odd[i] += share * (odd - m.mean_odd[i])
        m.scatter_even[i] += (1 - share) * (abs(odd) - m.mean_even[i]) ** 2
        m.mean_even[i] += share * (abs(odd) - m.mean_even[i])
    for k in range(N_LENGTHS):
        there = as_watched(path[k])
        w = there.acceptance[0]
        if there.n_steps[0] == 0:
            continue
        sums[k, 2, 0] += 1
        sums[k, 3, 0] += there.n_steps[0]
        sums[k, 4, 0] += w
        if w > 0:
            for i in range(q0.shape[0]):
                here = bounded(q0[i] - m.center[i], m.rate[i])
                odd = bounded(there.q[i] - m.center[i], m.rate[i])
                sums[k, 0, i] += w * (odd - here) ** 2
                sums[k, 1, i] += w * (abs(odd) - abs(here)) ** 2


@jit
def begin_window(known: Any, moments: np.ndarray, sums: np.ndarray) -> None:
    """Set center and scale from the window that has ended, and all other sums to zero."""
    m = moments_of(moments)
    for i in range(moments.shape[1]):
        m.center[i] += m.mean[i]
        m.rate[i] = 1 / m.distance[i] if m.distance[i] > 0 else 0.0
    moments[KEPT:], sums[:], known.count = 0.0, 0.0, 0


@jit
def best_length(known: Any, moments: np.ndarray, sums: np.ndarray, settings: Any) -> float:
    """Return the length of least cost; the present one if nothing was accepted, or if the longest trajectory was cut."""
    best, least = known.length, math.inf
    if steps_of(settings.longest, settings.step_size) == MAX_STEPS:
        return best
    for k in range(N_LENGTHS - N_CANDIDATES, N_LENGTHS):
        length = watched_length(longer_length(settings), k)
        cost = cost_of(length, known.count, moments, sums, settings)
        if cost < least:
            best, least = length, cost
    return best


@jit
def cost_of(length: float, count: int, moments: np.ndarray, sums: np.ndarray, settings: Any) -> float:
    """Return n(L) max tau.

    In the average over the lengths L (1 - j) to L (1 + j) the weight of l_k is its grid step, which is proportional to l_k.
    """
    m, j, total, steps, worst = moments_of(moments), settings.length_jitter, 0.0, 0.0, 0.0
    accepted, a = 0.0, settings.persistence
    for k in range(N_LENGTHS):
        sums[k, 5, 0] = 0.0
        at = watched_length(settings.longest, k)
        if 0.999 * length * (1 - j) <= at <= 1.001 * length * (1 + j) and sums[k, 2, 0] >= FEWEST:
            sums[k, 5, 0] = at / sums[k, 2, 0]
            total += at
            steps += sums[k, 5, 0] * sums[k, 3, 0]
            accepted += sums[k, 5, 0] * sums[k, 4, 0]
    if total == 0:
        return math.inf
    for i in range(moments.shape[1]):
        for row, scatter, halves in ((0, m.scatter_odd[i], 1.0), (1, m.scatter_even[i], 2.0)):
            if scatter > 0:
                jump = 0.0
                for k in range(N_LENGTHS):
                    jump += sums[k, 5, 0] * sums[k, row, i]
                R = jump / (2 * scatter / (count - 1) * total)
                tau = autocorrelation_time(R, accepted / total, a, row == 1) if R > 0 else math.inf
                worst = max(worst, max(tau, LEAST_TAU) / halves)
    return steps / total * worst if worst > 0 else math.inf


@jit
def autocorrelation_time(R: float, w: float, a: float, even: bool) -> float:
    """Return tau of u, or of |u| if ``even``, with the persistence a."""
    if not even:
        return 2 * (1 + a - 2 * a * w + a * R) / ((1 + a) * R) - 1
    rest = max(w - R, 0.0)  # estimates of R may be larger than w
    minor = (1 - a * (2 * rest - 1)) * (1 - a**2 * (1 - R)) + 2 * a**3 * R * rest
    return 2 * minor / ((1 - a**2) * (1 + a) * R) - 1

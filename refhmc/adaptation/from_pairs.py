"""End of a window in which draws and gradients are kept: the metric learned from them replaces the last one.

This happens between two transitions, outside the compiled loop. If a hierarchy is found, and describes the scores better than
a metric of low rank (:mod:`refhmc.adaptation.hierarchy`), it becomes the metric, with its explicit integrator. Otherwise it is
the metric of low rank that has the least Fisher divergence (:mod:`refhmc.adaptation.fisher_divergence`). After
``EARLY`` iterations, directions are searched for in up to ``FEW`` coordinates. In more, and before, they are searched for if
trajectories of NUTS are longer than those of a normal with equal scales (:func:`short`), or if the lengths of the kernel's
trajectories do not show what a better metric would save. Short trajectories do not show that there are no directions: a
hierarchical model of 85 groups has 7 steps per trajectory without any, and with four of them it has 7 steps and 1.5 times as
many effective draws.

Draws and gradients give the scales of a normal distribution. If tails are heavy, as those of the scales of a horseshoe prior,
they give those of its narrow centre, where the gradients are large, and trajectories that come from the tails diverge. If
transitions diverged often (:func:`often`) in a window that ends in the second half of warm-up, and no hierarchy was found, the
default metric is therefore learned from the variances of the draws alone, as in Stan.

Before the first window M^-1 = diag(1 / |dL/dq|) at the start. For a normal with standard deviation s, this is s^2 one unit from
its mean.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from refhmc.adaptation.fisher_divergence import LARGEST, Learned, earlier_than, least_divergence
from refhmc.adaptation.hierarchy import learn_hierarchy
from refhmc.adaptation.length import lengthen, slowest, slowness_of
from refhmc.core.point import GRADIENT, Q
from refhmc.metrics.base import put_hyperparameters
from refhmc.metrics.euclidean import FIRST_DIRECTION, LOW_RANK
from refhmc.metrics.hierarchical import FIRST, Hierarchical
from refhmc.metrics.low_rank import put_low_rank

# Columns of the history, one row per window: iterations and step size so far, steps per trajectory in the window, directions
# (-1 if the scales are those of the draws), and the predicted steps of a trajectory, in units of those for equal scales, on the
# diagonal alone and on the metric.
HISTORY = ("iteration", "step_size", "n_steps", "rank", "steps_diagonal", "steps")
SHORT, WIDE = 15.0, 150  # the least value of :func:`short`, and the largest dimension with that value
EARLY, FIRST_DEPTH, EARLY_DEPTH = 75, 6, 8  # iterations, and how deep trees are before the first metric, and until then
FEW = 200  # with at most this many coordinates, directions are always searched for after the first ``EARLY`` iterations
PYTHON = 1e4  # multiplications in the time of a gradient in Python
FLAT = 1e-10  # a gradient below this has no information on the scale: the coordinate is at its mode
ANOTHER = 4.0  # a metric that changes a variance by this factor needs another step size
CONDITION = 1e12  # largest condition of a dense metric after scaling: then M^-1 L^-T L^-1 is 1 to within 1e-4
OFTEN, MANY = 0.01, 5  # the share and the number of divergent transitions of a window that are often
SPREAD, RANK = int(LOW_RANK.vectors["spread"]), int(LOW_RANK.vectors["rank"])


def begin_learning(block: Any) -> None:
    """Set the first metric at the start, 1 / |dL/dq|, or 1 if that is not finite, and shallow trees."""
    block.settings[0].max_depth = depth_at(block.plan, 0, False)
    size = np.abs(block.state[GRADIENT])
    with np.errstate(all="ignore"):
        variances = np.where((size > FLAT) & (size < LARGEST), 1 / size, 1.0)
    put(block, Learned(variances, np.zeros((0, len(size))), np.zeros(0), 1.0, 1.0))


def learn_if_due(block: Any) -> bool:
    """Learn the metric of a window that has ended; return False if none has."""
    progress, settings, windows = fields(block.progress), fields(block.settings), block.plan.windows
    due, d = int(progress["due"]), block.kept.shape[1]
    if not due:
        return False
    _, start, stop = map(int, windows[due - 1])
    begin = max(earlier_than(start, stop, d), stop - len(block.kept))
    kept, n = np.arange(begin, stop) % len(block.kept), stop - max(start, begin)
    length = stop - (int(windows[due - 2, 2]) if due > 1 else 0)
    steps = float(progress["steps"]) / length
    diverges = stop > block.plan.warmup[0].tune / 2 and often(int(progress["divergences"]), length)
    progress["due"], progress["steps"], progress["divergences"] = 0, 0.0, 0
    settings["keep_momentum"] = 0  # the next one is drawn for the new metric
    if progress["given"] and stop <= EARLY:
        return True
    draws, scores = block.kept[kept[-n:]], block.kept_gradients[kept[-n:]]
    earlier = block.kept[kept[:-n]], block.kept_gradients[kept[:-n]]
    was_hierarchical, search = bool(progress["hierarchical"]), block.plan.hierarchical
    dense = block.dynamics.metric.is_dense
    first = (block.plan.dynamics.vecs if was_hierarchical else block.vecs)[0].copy()
    most = None if dense else block.plan.dynamics.vecs.shape[0] - FIRST_DIRECTION
    constant = cache(
        lambda looks=True: least_divergence(draws, scores, first, most, looks, cost_of_gradient(block), earlier)
    )
    if search is not None and not progress["from_draws"]:
        found = learn_hierarchy(draws, scores, search.earlier, search.variables, constant)
        if found is not None:
            before = block.dynamics.metric.from_rows(block.vecs, block.mats)
            put_hierarchy(block, found)
            if len(block.length_moments):
                slowness = slowness_of(found, block.plan.conditional.model, block.state[Q])
                lengthen(block.learner, stop, block.settings[0], slowest(slowness, draws.std(axis=0)))
            progress["restart"] = not isinstance(before, Hierarchical) or other_masses(before, found, draws) > ANOTHER
            block.history[due - 1] = stop, settings["step_size"], steps, 0, 1.0, 1.0
            settings["max_depth"] = depth_at(block.plan, stop, bool(progress["given"]))
            return True
    if was_hierarchical:
        block.change_metric(False)
        if len(block.length_moments):
            lengthen(block.learner, stop, block.settings[0], 1.0)
    is_default, is_last = search is not None and search.kernel.metric is None, not windows[due:, 0].any()
    if is_default and diverges and (is_last or not was_hierarchical):
        progress["from_draws"] = 1
    looks = dense or rank_of(block) > 0 or steps > short(d) or not block.plan.chooses_length
    looks = looks or (stop > EARLY and d <= FEW)
    learned = constant() if looks else constant(False)
    if progress["from_draws"]:
        learned = of_draws(draws, learned.variances)
    old = inverse_mass_of(block)
    put(block, learned)
    rank = -1 if progress["from_draws"] else len(learned.eigenvalues)
    block.history[due - 1] = stop, settings["step_size"], steps, rank, learned.steps_diagonal, learned.steps
    settings["max_depth"] = depth_at(block.plan, stop, bool(progress["given"]))
    another = was_hierarchical or progress["from_draws"] or change(old, inverse_mass_of(block)) > ANOTHER
    progress["restart"] = another
    return True


def often(divergences: int, iterations: int) -> bool:
    """Return whether so many divergences in so many iterations show that the metric is wrong somewhere."""
    return divergences >= MANY and divergences > OFTEN * iterations


def of_draws(draws: np.ndarray, otherwise: np.ndarray) -> Learned:
    """Return the metric of the variances of the draws; of a coordinate that has not moved, the variance in `otherwise`."""
    variances, d = draws.var(axis=0, ddof=1), draws.shape[1]
    return Learned(np.where(variances > 0, variances, otherwise), np.zeros((0, d)), np.zeros(0), 1.0, 1.0)


def put_hierarchy(block: Any, learned: Hierarchical) -> None:
    """Change to a hierarchical metric, and write it to the rows of the metric and of the integrator."""
    block.change_metric(True)
    rows = learned.rows(block.vecs.shape[1])
    block.vecs[FIRST : FIRST + len(rows)] = rows
    block.cache[0].factorised = 0
    put_levels(block)


def put_levels(block: Any) -> None:
    """Write the levels and hyperparameters of the block's hierarchical metric to the rows of integrator and metric."""
    part = getattr(block.dynamics.integrator, "base", block.dynamics.integrator)
    metric = block.dynamics.metric.from_rows(block.vecs, block.mats)
    put_hyperparameters(block.vecs, metric.hyperparameters())
    if hasattr(part, "rows_for"):
        block.own[:] = part.rows_for(block.plan.conditional.model, metric)


def other_masses(old: Hierarchical, new: Hierarchical, draws: np.ndarray) -> float:
    """Return the largest factor, either way, between the masses of two metrics, as a geometric mean over draws."""
    return float(np.exp(np.abs(np.mean(np.log(old.masses(draws) / new.masses(draws)), axis=0)).max()))


def fields(one: np.recarray) -> np.void:
    """Return the record of an array of one, whose fields are read by name twenty times faster than as attributes."""
    return one.view(np.ndarray)[0]


def allowed_depth(most: int, iteration: int) -> int:
    """Return how deep trees may be in warm-up, before the first metric is learned and for some time after.

    Long trajectories are not worth their gradients then, since a few draws are informative wherever they are. The depth of MAMS
    is the binary logarithm of its largest number of steps.
    """
    if iteration < EARLY:
        return min(most, EARLY_DEPTH if iteration else FIRST_DEPTH)
    return most


def depth_at(plan: Any, iteration: int, given: bool) -> int:
    """Return how deep trees of NUTS may be after ``iteration`` iterations; ``given``: warm-up began with a metric."""
    stops = plan.windows[plan.windows[:, 0] != 0, 2]  # of the windows in which the metric is learned
    past = stops[(stops <= iteration) & (stops > (EARLY if given else 0))]
    if not len(past):
        return plan.max_depth if given else allowed_depth(plan.max_depth, 0)
    # In a short warm-up no later window would remove the limit.
    return plan.max_depth if past[-1] == stops[-1] else allowed_depth(plan.max_depth, int(past[-1]))


def short(d: int) -> float:
    """Return the number of steps of a trajectory above which a better metric can save much.

    On a normal with independent coordinates and equal scales, a step is proportional to d^-1/4.
    """
    return SHORT * max(1.0, (d / WIDE) ** 0.25)


def cost_of_gradient(block: Any) -> float:
    """Return the cost of a gradient in multiplications per coordinate.

    This is at least 20 and two for each number of the model's data, and more if the model runs as Python.
    """
    model, data = block.plan.conditional.model, block.pointers[0]
    return 20.0 + 2 * data.size / model.dim + (PYTHON / model.dim if model.runs_as_python else 0.0)


def inverse_mass_of(block: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return S^2 (d,), the rows v_j = S u_j (k, d) and lambda_j - 1 (k,) of a metric of low rank, or of a dense one."""
    if block.dynamics.metric.is_dense:
        return rows_of(block.mats[0])
    k = rank_of(block)
    return block.vecs[0].copy(), block.vecs[FIRST_DIRECTION : FIRST_DIRECTION + k].copy(), block.vecs[SPREAD, :k].copy()


def rows_of(M_inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the same for a matrix, with S^2 its diagonal and the eigenvectors of the correlations.

    The correlations are used because widely different scales do not disturb them.
    """
    root = np.sqrt(np.diag(M_inverse))
    e, U = np.linalg.eigh(M_inverse / root / root[:, None])
    return np.diag(M_inverse).copy(), U.T * root, e - 1


def change(old: tuple, new: tuple) -> float:
    """Return the largest factor between w' M^-1 w of two metrics, either way, for w along their axes and directions."""

    def forms(W: np.ndarray, of: tuple) -> np.ndarray:
        variances, V, spread = of
        return W**2 @ variances + (W @ V.T) ** 2 @ spread

    ratios = []
    for variances, V, _ in (each for each in (old, new) if len(each[1])):
        W = V / variances  # S^-1 u_j
        ratios.append(np.abs(np.log(forms(W, new) / forms(W, old))))
    (a, V, x), (b, U, y) = old, new
    axes = np.abs(np.log((b + y @ U**2) / (a + x @ V**2)))
    return float(np.exp(max(each.max(initial=0.0) for each in (*ratios, axes))))


def rank_of(block: Any) -> int:
    """Return the number of directions of the present metric; 0 for a dense one."""
    return 0 if block.dynamics.metric.is_dense else int(block.vecs[RANK, 0])


def put(block: Any, learned: Learned) -> None:
    """Write the learned metric to the rows, or the matrices, of the block; an invalid one is not written."""
    variances, U, eigenvalues = learned.variances, learned.directions, learned.eigenvalues
    if not block.dynamics.metric.is_dense:
        put_low_rank(block.vecs, variances, U * np.sqrt(variances), eigenvalues)
        return
    L = cholesky_factor(learned)
    M_inverse = L @ L.T
    size = np.diag(M_inverse)
    if np.all(np.isfinite(M_inverse)) and np.all(np.diag(L) > 0):
        block.mats[0], block.mats[1], block.vecs[0], block.vecs[1] = M_inverse, L, size, size**-0.5


def cholesky_factor(learned: Learned) -> np.ndarray:
    """Return L, lower, of M^-1 = S (I + U' (Lambda - I) U) S = L L', where the rows of U are the directions.

    M^-1 = A'A with the rows Lambda^1/2 U S and, if U is not square, (I - U'U) S; A = Q R gives L = R'. The sum is not
    computed, because the least eigenvalues of a correlation near 1 would cancel in it. M^-1 itself, from which velocities
    are computed, has them to within the rounding of the largest. If Lambda has a condition above 10^12, the least ones are
    therefore raised. Otherwise momenta from the distribution that L defines would have another energy.
    """
    U, root, found = learned.directions, np.sqrt(learned.variances), learned.eigenvalues
    A = U * np.sqrt(np.clip(found, found.max(initial=1.0) / CONDITION, CONDITION))[:, None]
    if len(U) < len(root):
        A = np.concatenate([A, np.eye(len(root)) - U.T @ U])
    R: np.ndarray = np.linalg.qr(A * root, mode="r")  # type: ignore[assignment]
    return (R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]).T

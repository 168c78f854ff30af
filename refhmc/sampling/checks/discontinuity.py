"""Detect jumps of a log density that the kernel assumes to be smooth, with a point on either side of the jump.

Along a segment a smooth log density obeys L(b) - L(a) = 1/2 (g(a) + g(b)) . (b - a) + O(|b - a|^3). The search halves the
segment and keeps the half that violates this more. If L is smooth, the violation vanishes; if L jumps, the search closes in
on the jump: after thirty halvings the difference that remains is the jump. A kernel that crosses a jump has a large energy
error at every step size. So the search uses the draws with the largest energy errors: the segment to the draw itself, which
may lie beyond a jump, and the segment along its trajectory, which may have been rejected because of one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from refhmc.errors import _see
from refhmc.kernels.blocks import blocks_of, indices_of
from refhmc.kernels.options import AnyKernel
from refhmc.models.conditionals import conditional
from refhmc.sampling.results.position_changes import moved
from refhmc.sampling.results.review import DrawsToReview

if TYPE_CHECKING:
    from refhmc.models.base import Model

T = TypeVar("T")
PARTS, PARTS_AFTER, HALVINGS = 16, 8, 30  # before a run, and after it
LEAST_JUMP = 0.05
LEAST_JUMP_RELATIVE = 1e-6  # relative to the log density; single precision inside a model causes smaller jumps
SEGMENTS = 24
MOST_EVALUATIONS = 100  # of the model, in the search after a run
SHARE_OF_RUN, LEAST_SECONDS = (
    0.05,
    0.1,
)  # time limit of the search: share of the run's time, and at least so many seconds
ENOUGH_HALVINGS = (
    10  # a difference that remains after these is a jump: for a smooth function it becomes 8^10 times smaller
)
REACH = (0.5, 2.0, 8.0, 32.0)


class Jump(NamedTuple):
    """Two points, (d,), next to each other, and the log densities there."""

    before: np.ndarray
    after: np.ndarray
    log_density_before: float
    log_density_after: float

    def __str__(self) -> str:
        q, to = (np.array2string(x, precision=12, threshold=8, separator=", ") for x in (self.before, self.after))
        return f"it is {self.log_density_before:.6g} at q = {q} and {self.log_density_after:.6g} at q = {to}"

    def coordinates(self, model: Model, value_at: Callable[[np.ndarray], float]) -> list[int]:
        """Return the coordinates that cause the jump alone, among the first hundred, until the evaluations are used up."""
        found = []
        for i in range(min(model.dim, 100)):
            q = self.before.copy()
            q[i] = self.after[i]
            try:
                change = value_at(q) - self.log_density_before
            except SpentError:
                break
            if abs(change) > 0.5 * abs(self.log_density_after - self.log_density_before):
                found.append(i)
        return found


class SpentError(Exception):
    """The search has made all the evaluations of the model that it may make."""


class Budget:
    """Evaluations of the model that the search may make after a run.

    They are at most 100, and take at most 5 % of the run's seconds, or a tenth of a second if that is longer. ``cost``:
    seconds of an evaluation in the run. ``made``: how many were made; ``short_of_time``: the seconds ended the search.
    """

    def __init__(self, seconds: float, cost: float) -> None:
        self.left, self.made, self.cost, self.short_of_time = MOST_EVALUATIONS, 0, cost, False
        self.end = time.monotonic() + max(SHARE_OF_RUN * seconds, LEAST_SECONDS)

    def spend(self, evaluate: Callable[[np.ndarray], T], q: np.ndarray) -> T:
        """Return ``evaluate(q)``. Raises SpentError if that is one too many, or would take too long."""
        begin = time.monotonic()
        self.short_of_time = self.left > 0 and begin + self.cost > self.end
        if self.left <= 0 or self.short_of_time:
            raise SpentError
        self.left, self.made = self.left - 1, self.made + 1
        answer = evaluate(q)
        self.cost = time.monotonic() - begin
        return answer


Probe = Callable[[np.ndarray], tuple[np.ndarray, float, np.ndarray]]  # q, and the log density and its gradient there


def _violation(a: tuple[np.ndarray, float, np.ndarray], b: tuple[np.ndarray, float, np.ndarray]) -> float:
    """Return how far the difference of two log densities is from the trapezoidal rule; 0 if it is not finite."""
    with np.errstate(all="ignore"):
        difference = b[1] - a[1] - 0.5 * float((a[2] + b[2]) @ (b[0] - a[0]))
    return abs(difference) if np.isfinite(difference) else 0.0


def jump_between(probe: Probe, a: np.ndarray, b: np.ndarray, parts: int = PARTS) -> Jump | None:
    """Return the jump of the log density on the segment from ``a`` to ``b``, (d,) each, or None; the largest if several.

    Raises SpentError if the probe's budget ends before that is known.
    """
    points = [probe(a + t * (b - a)) for t in np.linspace(0.0, 1.0, parts + 1)]
    k = int(np.argmax([_violation(*pair) for pair in itertools.pairwise(points)]))
    low, high = points[k], points[k + 1]
    size = max(LEAST_JUMP, LEAST_JUMP_RELATIVE * max((abs(x[1]) for x in points if np.isfinite(x[1])), default=0.0))
    for done in range(HALVINGS):
        if _violation(low, high) < size:
            return None
        try:
            middle = probe(0.5 * (low[0] + high[0]))
        except SpentError:
            if done < ENOUGH_HALVINGS:
                raise
            break
        if _violation(low, middle) >= _violation(middle, high):
            high = middle
        else:
            low = middle
    if not abs(high[1] - low[1]) >= size:
        return None
    return Jump(low[0], high[0], float(low[1]), float(high[1]))


def declared(model: Model, kernel: AnyKernel, q: np.ndarray) -> str | None:
    """Return the warning for a kernel for smooth densities on a model with declared discontinuous coordinates, or None.

    `q` is a start. In each block the search for a jump begins there, along the first of these coordinates.
    """
    if len(model.discontinuous) == 0:
        return None
    blocks = zip(indices_of(model, kernel), blocks_of(kernel).values(), strict=True)
    texts = (_declared(conditional(model, block, q), each, q[block]) for block, each in blocks)
    return next((text for text in texts if text), None)


def _declared(model: Model, kernel: AnyKernel, q: np.ndarray) -> str | None:
    J = model.discontinuous
    if getattr(kernel, "jumping", False) or len(J) == 0:
        return None
    both, jump = model.core.value_and_gradient, None
    for reach in (s * r for r in REACH for s in (1, -1)):
        end = q.copy()
        end[J[0]] += reach * max(1.0, abs(q[J[0]]) / 8)
        jump = jump or jump_between(lambda q: (q, *both(q)), q, end)
    names = ", ".join(model.names[j] for j in J[:5]) + (f" and {len(J) - 5} more" if len(J) > 5 else "")
    return message(model, kernel, names, jump, "Use refhmc.DHMC().")


def message(model: Model, kernel: AnyKernel, names: str, jump: Jump | None, advice: str) -> str:
    """Return the warning, which is the same before and after a run."""
    return (
        f"The log density of {model.name!r} jumps{f' in {names}' if names else ''}{f': {jump}' if jump else ''}. "
        f"{type(kernel).__name__} follows the gradient, which does not see jumps, so trajectories that cross one are often "
        f"rejected at any step size, although the draws stay exact. {advice} {_see('discontinuities')}"
    )


def size_of(error: np.ndarray) -> np.ndarray:
    """Return the absolute energy errors, with 0 for those that are not finite."""
    return np.nan_to_num(np.abs(error), posinf=0.0)


def largest_of(errors: np.ndarray) -> np.ndarray:
    """Return the indices of the largest errors in the flattened array; ties go to the first."""
    sizes = size_of(errors).ravel()
    np.negative(sizes, out=sizes)
    n = min(SEGMENTS // 2, sizes.size)
    bound = np.partition(sizes, n - 1)[n - 1]
    some = np.flatnonzero(sizes <= bound)
    return some[np.argsort(sizes[some], kind="stable")[:n]]


def found(model: Model, kernel: AnyKernel, to_review: DrawsToReview, budget: Budget) -> str | None:
    """Return the warning if the log density is found to jump after a run of a kernel for smooth densities, or None."""
    draws, stats, starts, _, _ = to_review
    if (
        len(blocks_of(kernel)) > 1
        or getattr(kernel, "jumping", False)
        or model.core.own
        or len(model.discontinuous)
        or draws.shape[1] < 2
        or "energy_error" not in stats
    ):
        return None
    both = model.core.value_and_gradient
    try:
        for a, b in segments(draws, stats, starts):
            jump = jump_between(lambda q: (q, *budget.spend(both, q)), a, b, PARTS_AFTER)
            if jump is not None:
                named = jump.coordinates(model, lambda q: budget.spend(model.log_density, q))
                where = ", ".join(model.names[i] for i in named)
                advice = "Name the coordinates in refhmc.Model(..., discontinuous=...) and use refhmc.DHMC()."
                return message(model, kernel, where, jump, advice)
    except Exception:  # the budget is used up, or the model raised at a point that the run did not visit
        return None
    return None


def segments(
    draws: np.ndarray, stats: Mapping[str, np.ndarray], starts: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the segments to search, in decreasing order of energy error."""
    of_draw, of_trajectory = (largest_of(stats[name]) for name in ("energy_error", "max_energy_error"))
    chains_of, ends = np.nonzero(moved(draws, starts)[:, 1:])  # moves from one draw to the next
    for n, flat in enumerate(np.stack([of_draw, of_trajectory], axis=1).ravel()):
        chain, k = np.unravel_index(flat, draws.shape[:2])
        a, b = draws[chain, k - 1] if k else starts[chain], draws[chain, k]
        if size_of(stats["max_energy_error"][chain, k]) < LEAST_JUMP:
            continue
        if np.array_equal(a, b):  # rejected: the proposal is unknown, so another move is used, in either direction
            if len(ends) == 0:
                continue
            j = (n * 7919) % len(ends)
            other = draws[chains_of[j], ends[j] + 1] - draws[chains_of[j], ends[j]]
            b = a + (2.0 if n % 4 < 2 else -2.0) * other
        elif n % 2:  # the error occurred along the trajectory, which may have gone farther in either direction
            a, b = a - 2 * (b - a), b + 2 * (b - a)
        yield a, b


def cut_off(budget: Budget) -> list[str]:
    """Return the warning of a search that its time limit ended."""
    if not budget.short_of_time:
        return []
    return [
        f"The search for jumps of the log density ended after {budget.made} evaluations of the model, at its limit of "
        f"{100 * SHARE_OF_RUN:.0f} % of the run's time. A jump may have gone unnoticed. Take more draws to extend the search. "
        f"{_see('discontinuities')}"
    ]

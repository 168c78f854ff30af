"""Where a log density jumps that a kernel takes for smooth: warned of, with two points on either side of the jump.

Along a segment a smooth log density obeys L(b) - L(a) = 1/2 (g(a) + g(b)) . (b - a) + O(|b - a|^3). Halving the segment and
keeping the half that violates this more makes the violation vanish if L is smooth, and close in on a jump if there is one:
after thirty halvings what is left of the difference is the jump. A kernel that crosses one sees its energy error spike,
whatever the step, so the segments between the draws with the largest energy errors are searched: of the draw itself, which
may lie beyond a jump, and along its trajectory, which may have been turned down because of one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.kernels.blocks import blocks_of, indices_of
from refhmc.models.conditionals import conditional
from refhmc.sampling.moves import moved

if TYPE_CHECKING:
    from refhmc.models.base import Model

PARTS, HALVINGS = 16, 30
LEAST_JUMP = 0.05
LEAST_JUMP_RELATIVE = 1e-6  # to the log density: what single precision inside a model may jump by
SEGMENTS, SHARE_OF_RUN, LEAST_EVALUATIONS = 24, 0.02, 600
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

    def coordinates(self, model: Any) -> list[int]:
        """Those that make the jump by themselves, among the first hundred."""
        found = []
        for i in range(min(model.dim, 100)):
            q = self.before.copy()
            q[i] = self.after[i]
            change = model.log_density(q) - self.log_density_before
            if abs(change) > 0.5 * abs(self.log_density_after - self.log_density_before):
                found.append(i)
        return found


class _Probe:
    """The model's log density and gradient, counted."""

    def __init__(self, model: Model, limit: int) -> None:
        self.model, self.left = model, limit

    def __call__(self, q: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        self.left -= 1
        value, gradient = self.model.core.value_and_gradient(q)
        return q, value, gradient


def _violation(a: tuple[np.ndarray, float, np.ndarray], b: tuple[np.ndarray, float, np.ndarray]) -> float:
    """How far the difference of two log densities is from the trapezoidal rule; 0 where one is not finite."""
    with np.errstate(all="ignore"):
        difference = b[1] - a[1] - 0.5 * float((a[2] + b[2]) @ (b[0] - a[0]))
    return abs(difference) if np.isfinite(difference) else 0.0


def jump_between(probe: _Probe, a: np.ndarray, b: np.ndarray) -> Jump | None:
    """The jump of the log density on the segment from ``a`` to ``b``, (d,) each, if there is one; the largest if several."""
    points = [probe(a + t * (b - a)) for t in np.linspace(0.0, 1.0, PARTS + 1)]
    k = int(np.argmax([_violation(*pair) for pair in itertools.pairwise(points)]))
    low, high = points[k], points[k + 1]
    size = max(LEAST_JUMP, LEAST_JUMP_RELATIVE * max((abs(x[1]) for x in points if np.isfinite(x[1])), default=0.0))
    for _ in range(HALVINGS):
        if _violation(low, high) < size:
            return None
        middle = probe(0.5 * (low[0] + high[0]))
        if _violation(low, middle) >= _violation(middle, high):
            high = middle
        else:
            low = middle
    if not abs(high[1] - low[1]) >= size:
        return None
    return Jump(low[0], high[0], float(low[1]), float(high[1]))


def declared(model: Model, kernel: Any, q: np.ndarray) -> str | None:
    """What to say when a kernel for smooth densities is given a model that names its discontinuous coordinates; or None.

    ``q`` is a start; in each block a jump is looked for from there along the first of those coordinates.
    """
    if len(model.discontinuous) == 0:
        return None
    blocks = zip(indices_of(model, kernel), blocks_of(kernel).values(), strict=True)
    said = (_declared(conditional(model, block, q), each, q[block]) for block, each in blocks)
    return next((text for text in said if text), None)


def _declared(model: Model, kernel: Any, q: np.ndarray) -> str | None:
    J = model.discontinuous
    if getattr(kernel, "jumping", False) or len(J) == 0:
        return None
    jump, probe = None, _Probe(model, 0)
    for reach in (s * r for r in REACH for s in (1, -1)):
        end = q.copy()
        end[J[0]] += reach * max(1.0, abs(q[J[0]]) / 8)
        jump = jump or jump_between(probe, q, end)
    names = ", ".join(model.names[j] for j in J[:5]) + (f" and {len(J) - 5} more" if len(J) > 5 else "")
    return message(model, kernel, names, jump, "Use refhmc.DHMC().")


def message(model: Any, kernel: Any, names: str, jump: Jump | None, advice: str) -> str:
    """The warning, the same before a run and after it."""
    return (
        f"The log density of {model.name!r} jumps{f' in {names}' if names else ''}{f': {jump}' if jump else ''}. "
        f"{type(kernel).__name__} follows the gradient, which does not see jumps: their energy errors do not shrink with the "
        f"step. The draws are exact, each trajectory being accepted or rejected, but jumps are crossed blindly. {advice}"
    )


def size_of(error: Any) -> Any:
    """Of an energy error, 0 where it is not finite: nothing can be learned there."""
    return np.nan_to_num(np.abs(error), posinf=0.0)


def largest_of(errors: np.ndarray) -> np.ndarray:
    """Where the largest are, of all chains: places in the flat array, the first ones among equals."""
    sizes = size_of(errors).ravel()
    np.negative(sizes, out=sizes)
    n = min(SEGMENTS // 2, sizes.size)
    bound = np.partition(sizes, n - 1)[n - 1]
    some = np.flatnonzero(sizes <= bound)
    return some[np.argsort(sizes[some], kind="stable")[:n]]


def found(model: Model, kernel: Any, draws: np.ndarray, stats: Any, starts: np.ndarray, gradients: int) -> str | None:
    """What to say when the log density turns out to jump after a run of a kernel for smooth densities; or None.

    ``draws`` (chain, draw, d), ``starts`` (chain, d) where the first draws began; ``gradients`` of the run, of which a
    fiftieth more, at least 600, is spent on the search.
    """
    if (
        len(blocks_of(kernel)) > 1
        or getattr(kernel, "jumping", False)
        or model.core.own
        or len(model.discontinuous)
        or draws.shape[1] < 2
        or "energy_error" not in stats
    ):
        return None
    of_draw, of_trajectory = (largest_of(stats[name]) for name in ("energy_error", "max_energy_error"))
    largest = np.stack([of_draw, of_trajectory], axis=1).ravel()
    probe = _Probe(model, max(LEAST_EVALUATIONS, int(SHARE_OF_RUN * gradients)))
    chains_of, ends = np.nonzero(moved(draws, starts)[:, 1:])  # of the moves from one draw to the next
    for n, flat in enumerate(largest):
        chain, k = np.unravel_index(flat, draws.shape[:2])
        a, b = draws[chain, k - 1] if k else starts[chain], draws[chain, k]
        worst = size_of(stats["max_energy_error"][chain, k])
        if worst < LEAST_JUMP or probe.left < PARTS:
            continue
        if np.array_equal(a, b):  # rejected: the way it did not get is not known, so another move's, there or back
            if len(ends) == 0:
                continue
            j = (n * 7919) % len(ends)
            other = draws[chains_of[j], ends[j] + 1] - draws[chains_of[j], ends[j]]
            b = a + (2.0 if n % 4 < 2 else -2.0) * other
        elif n % 2:  # the error was met on the way, which may have led farther, either way
            a, b = a - 2 * (b - a), b + 2 * (b - a)
        try:
            jump = jump_between(probe, a, b)
        except Exception:  # of the model, at a point where the run has not been
            return None
        if jump is not None:
            where = ", ".join(model.names[i] for i in jump.coordinates(model))
            advice = "Name the coordinates in refhmc.Model(..., discontinuous=...) and use refhmc.DHMC()."
            return message(model, kernel, where, jump, advice)
    return None

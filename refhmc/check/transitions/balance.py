"""Detailed balance of a kernel that is only observed from outside, in terms of densities.

On noise w with density phi (standard normals, or a momentum) an outcome of the kernel (``subject/outcomes.py``)
is a smooth map q' = F(q, w) that is taken with probability P. With the reverse noise w', F(q', w') = q, the kernel is
reversible if

    pi(q) phi(q, w) P / |det dF/dw (q, w)|  =  pi(q') phi(q', w') P' / |det dF/dw (q', w')|.

F's derivatives are extrapolated differences, w' is found by Powell's method from several starts, P and P' by bisection.
With r the logarithm of the ratio of the two sides without P, Metropolis's rule is P = min(1, e^r), and
r = H(q, w) - H(q', w') for Hamiltonian moves.

With less noise than dimensions the ends (q, q') form a surface. Both sides are then densities on it, and the volume of
(q, w) -> (q, F(q, w)), sqrt(det G'G) with its derivative G, replaces the determinant. A kernel may only use the direction of
its normals, as microcanonical ones do. Then w is a point of the sphere through the normals, with dw the measure of its surface.

A kernel that refreshes its momentum during a trajectory has more noise than dimensions, and many w' lead back. It can return
x, the positions between the steps. Balance is then examined for paths: F is (q', x), and w' must lead from q' back to q
through the same positions in reverse order. Balance of paths implies balance of their ends.

A kernel that decides before it moves (a drawn number of steps, a step size from one of several bands) may need other answers
for the reverse move than for the move, or may decide otherwise on the way to the root. It is therefore searched along the paths
of all outcomes that are seen at both ends, and each Newton step continues along the path that ends closest to the goal.
Without a matching reverse, the equation must still hold for the sums of both sides over all moves from q to q', and back,
since the acceptance may use a proposal density that is a sum.

Tolerance of the logarithms: 1e-7 plus |J^-1| times the estimated errors of the differences, the root's residual, the precision
of the answers and the solver's delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special

from refhmc.check.own import differences
from refhmc.check.subject.foreign import Inconclusive, SubjectError
from refhmc.check.subject.outcomes import (
    FREE,
    LOWER,
    ROUNDING,
    WHOLE,
    Outcome,
    Path,
    answers,
    as_uniform,
    decide_together,
    outcomes,
)
from refhmc.check.subject.transition import MOMENTUM, Transition, TransitionRunner

FLOOR = 1e-7
WIDTHS, LEVELS = (0.1, 0.02, 0.004), 6
STARTS, THOROUGH = 6, 24  # searches for a reverse move: 24 miss one that a quarter of them finds with probability 2e-3
SLACK = 5.0  # of the energies of two moves
CLOSE = 1e-9  # relative accuracy to which a probability is confirmed without bisection
COARSE = 0.05  # a larger tolerance decides nothing
MOST_NEWTON = 12
MOST_WAYS = 40  # number of paths along which a reverse move is searched; with more, none is called missing


class Setting(NamedTuple):
    """A kernel and its target: ``log_pi(q)``, and ``log_noise(q, w)``, the log density of the noise as in the script.

    ``root``: w = root z for the normals z that are varied. ``frees``: the noise consists of uniforms, w = Phi(z).
    ``takes`` is the uniform that accepts a proposal. ``delta`` is the solver's tolerance, ``epsilon`` a rounding.
    If ``held``, uniforms that decide together are fixed. A kernel that is in balance given their values is in balance, but a
    kernel that is not need not be wrong.
    """

    runner: TransitionRunner
    log_pi: Callable[[np.ndarray], float]
    log_noise: Callable[[np.ndarray, np.ndarray], float]
    root: np.ndarray
    frees: bool
    takes: float
    seed: int
    delta: float
    run: Callable | None = None  # replaces runner.run: with a history
    held: bool = False  # uniforms that decide together are fixed
    between: int = 0  # number of positions between the steps that the kernel returns
    sphere: bool = False  # the move depends on z / |z| only, and |z| is held

    def rounding(self, q: np.ndarray) -> float:
        """Return the distance by which a trajectory that returns to ``q`` may miss it."""
        return 1e3 * self.runner.kernel.epsilon * (1 + float(np.abs(q).max()))

    def at_length(self, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return ``x``, scaled to the length of ``z`` if only the direction matters."""
        return x * (np.linalg.norm(z) / max(float(np.linalg.norm(x)), 1e-300)) if self.sphere else x

    def newton_step(self, J: np.ndarray, gap: np.ndarray) -> np.ndarray:
        """Return the least change of the noise that closes ``gap``; on a sphere J has rank n - 1."""
        return np.linalg.lstsq(J, gap, rcond=1e-6 if self.sphere else None)[0]

    def normals(self, z: np.ndarray) -> np.ndarray:
        return self.root @ z if self.runner.shape == MOMENTUM else z

    def transition(self, q: np.ndarray, z: np.ndarray, path: Path) -> Transition:
        """Return the transition from ``q`` on noise ``z`` along ``path``."""
        script = answers(path, z if self.frees else None)
        # Questions after the path get the answers that usually accept a proposal.
        for kind, answer in (("uniform", self.takes), ("exponential", -math.log(self.takes)), ("flip", True)):
            script[kind] = [*script.get(kind, []), *(answer,) * 4]
        if not self.frees:
            script["normal"] = list(self.normals(z))
        return (self.run or self.runner.run)(q, script, self.seed)

    def gone(self, q: np.ndarray, z: np.ndarray, path: Path) -> np.ndarray:
        """Return the :meth:`trail` of :meth:`transition`; NaN if the kernel raises for noise far from any it would draw."""
        try:
            return self.trail(self.transition(q, z, path))
        except SubjectError:
            return np.full(len(q) * (1 + self.between), np.nan)

    def trail(self, transition: Transition) -> np.ndarray:
        """Return the end, followed by the positions between the steps; NaN for these if their number is another one."""
        rows, size = transition.path, self.between * len(transition.q)
        known = rows is not None and rows.size == size
        return np.concatenate([transition.q, rows.ravel() if known and rows is not None else np.full(size, np.nan)])

    def outcomes(self, q: np.ndarray, z: np.ndarray, frees: tuple[float, ...] = ()) -> list[Outcome]:
        """Return every outcome from ``q`` on ``z``; ``frees`` are the values of the free numbers, as uniforms."""
        if not self.runner.recorded:
            raise Inconclusive("the kernel's randomness cannot be recorded (compiled code uses the bit generator)")
        if self.runner.uniforms > 1:
            raise Inconclusive(
                "the kernel takes several uniforms; write it as kernel(draws, q) to enumerate its decisions"
            )
        fixed = [] if self.frees else list(self.normals(z))
        values = tuple(scipy.special.ndtr(z)) if self.frees else frees

        def run(script: dict) -> Transition:
            return (self.run or self.runner.run)(q, {**script, "normal": [*fixed]}, self.seed)

        def free(k: int) -> float:
            return values[k] if k < len(values) else 0.25 + 0.5 * ((0.37 + 0.618034 * k) % 1.0)

        return outcomes(run, q, free, self.takes, self.rounding(q), self.held)

    def together(self, q: np.ndarray, z: np.ndarray) -> bool:
        """Return whether several uniforms decide together from ``q`` on ``z``."""
        script = {"normal": list(self.normals(z))}
        return decide_together(lambda more: self.runner.run(q, {**more, **script}, self.seed), q, self.takes)

    def log_density(self, q: np.ndarray, z: np.ndarray) -> float:
        """Return log pi(q) phi(q, w), up to a constant."""
        return self.log_pi(q) - 0.5 * z @ z if self.frees else self.log_noise(q, self.normals(z))


class Map(NamedTuple):
    """dF/dw (m, n) at a point, the log volume of the columns in ``active``, its error, |J^-1|, and dF/dq or None."""

    jacobian: np.ndarray
    log_volume: float
    error: float
    inverse: float
    by_q: np.ndarray | None = None


def map_of(setting: Setting, q: np.ndarray, z: np.ndarray, path: Path, active: Any = None, quick: bool = False) -> Map:
    """Return the derivative of the outcome ``path`` with respect to its noise, and to q if the noise has fewer dimensions."""

    def moved(x: np.ndarray) -> np.ndarray:
        to = setting.gone(q, x, path)
        return np.full(len(to), np.nan) if np.array_equal(to[: len(q)], q) else to

    def derivative(f: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> tuple[np.ndarray, float]:
        columns, error = [], 0.0
        for unit in np.eye(len(at)):
            if quick:
                h = 2e-3
                near, far = (f(at + k * h * unit) - f(at - k * h * unit) for k in (1, 2))
                columns.append((8 * near - far) / (12 * h))
            else:
                slope = _slope(setting, on_line(f, at, unit), q)
                columns.append(np.broadcast_to(slope.value, len(q) * (1 + setting.between)))
                error = max(error, slope.error)
        return np.stack(columns, axis=-1), error

    (J, error), by_q = derivative(moved, z), None
    if np.count_nonzero(np.abs(J).max(axis=0)) - setting.sphere < len(J):
        by_q, more = derivative(lambda x: setting.gone(x, z, path), q)
        error = max(error, more)
    return volume_of(J, error, active, by_q, z if setting.sphere else None)


def _slope(setting: Setting, f: Callable[[float], np.ndarray], q: np.ndarray) -> differences.Derivative:
    """Return df/dt at 0 from the widest differences that agree with a narrow one; infinite error if none does.

    Wide differences can lie on both sides of the noises on which the kernel decides as at t = 0. Their slope is then that of
    another move, without any sign of an error.
    """
    rounding = setting.rounding(q) / 1e3
    h = max(1e-5, setting.runner.kernel.epsilon ** (1 / 3))
    narrow = (f(h) - f(-h)) / (2 * h)
    allowed = 1e-4 * np.abs(narrow).max(initial=0.0) + 10 * (rounding + setting.delta) / h
    for width in WIDTHS:
        slope = differences.ridders(f, width, LEVELS)
        if np.abs(slope.value - narrow).max(initial=0.0) <= allowed:
            return slope
    return slope._replace(error=np.inf)


def on_line(f: Callable, at: np.ndarray, direction: np.ndarray) -> Callable[[float], np.ndarray]:
    return lambda t: f(at + t * direction)


def volume_of(
    jacobian: np.ndarray,
    error: float,
    active: Any = None,
    by_q: np.ndarray | None = None,
    z: np.ndarray | None = None,
) -> Map:
    """Return the map with log |det J|, or the volume of (q, w) -> (q, F) if J has more rows than columns.

    If ``z`` is given, the noise moves on the sphere through it.
    """
    J = jacobian if active is None else jacobian[:, active]
    if z is not None:
        J = J @ scipy.linalg.null_space(z[None])
    sizes = np.linalg.svd(J, compute_uv=False) if J.size and np.isfinite(J).all() else np.zeros(1)
    if J.shape[1] > J.shape[0] or sizes[-1] <= 1e-9 * sizes[0]:
        return Map(jacobian, -np.inf, np.inf, np.inf, by_q)
    inverse = 1 / sizes[-1]
    if by_q is not None and J.shape[1] < J.shape[0]:
        if not np.isfinite(by_q).all():
            return Map(jacobian, -np.inf, np.inf, np.inf, by_q)
        d = by_q.shape[1]
        graph = np.block([[np.eye(d), np.zeros((d, J.shape[1]))], [by_q, J]])
        sizes = np.linalg.svd(graph, compute_uv=False)
    return Map(jacobian, float(np.log(sizes).sum()), float(inverse * error * len(sizes)), float(inverse), by_q)


class Pairing(NamedTuple):
    """A move and its reverse: the log ``mismatch`` of the two sides, its tolerance, r, and P.

    The ``state`` is "match", "mismatch" (no root matches, and none was missed) or "open" (neither).
    """

    q: np.ndarray
    z: np.ndarray
    outcome: Outcome
    state: str
    mismatch: float = np.nan
    tolerance: float = np.nan
    r: float = np.nan
    probability: float = np.nan
    to: np.ndarray | None = None
    back: np.ndarray | None = None
    full: bool = True  # all noise moves the position, and in all directions
    why: str = ""
    returns: float = np.nan  # P'
    error: float = np.nan  # relative, of P


def reversed_trail(q: np.ndarray, trail: np.ndarray) -> np.ndarray:
    """Return the trail of the move along the same positions in reverse order, which ends at ``q``."""
    rows = trail[len(q) :].reshape(-1, len(q))[::-1]
    return np.concatenate([q, rows.ravel()])


def probability_at(found: list[Outcome], to: np.ndarray, near: float) -> float:
    """Return the probability of all outcomes at ``to``."""
    return float(sum(x.probability for x in found if np.abs(x.transition.q - to).max() <= near))


def error_at(found: list[Outcome], to: np.ndarray, near: float) -> float:
    """Return the relative error of :func:`probability_at`."""
    there = [x for x in found if np.abs(x.transition.q - to).max() <= near]
    total = math.fsum(x.probability for x in there)
    return math.fsum(x.probability * x.error for x in there) / total if total > 0 else math.inf


def pair(
    setting: Setting,
    q: np.ndarray,
    z: np.ndarray,
    outcome: Outcome,
    found: list[Outcome],
    rng: np.random.Generator,
    effort: int = 1,
) -> Pairing:
    """Return the reverse of ``outcome``, one of the outcomes ``found`` from ``q`` on ``z``, and the mismatch.

    Before a mismatch is reported, ``effort`` times 24 searches look for other reverse moves.
    """
    to, path = outcome.transition.q, outcome.path
    size = len(q) * (1 + setting.between)
    if not np.isfinite(to).all():
        return Pairing(q, z, outcome, "open", why="the move ended at a point that is not finite")
    here = map_of(setting, q, z, path)
    sizes = np.abs(here.jacobian).max(axis=0) if here.jacobian.size else np.zeros(0)
    active = np.flatnonzero((sizes > 1e-9 * sizes.max(initial=0.0)) | setting.sphere)
    full = len(active) == len(z) == size
    subsets = [active] if len(active) <= size else [active[:size], active[-size:]]
    near = (1e-7 + 1e3 * setting.runner.kernel.epsilon + 100 * setting.delta) * (1 + np.abs(q).max())
    there = [x for x in found if x.moved]
    P, error = probability_at(there, to, near), error_at(there, to, near)
    why = "no reverse move was found"
    best = Pairing(q, z, outcome, "open", to=to, probability=P, full=full, why=why, error=error)
    many = "more normals than coordinates move it: return the positions between its steps as path"
    for subset in subsets:
        at = volume_of(here.jacobian, _error_of(here), subset, here.by_q, z if setting.sphere else None)
        if not math.isfinite(at.log_volume):
            best = best._replace(full=False, why="the noise does not move it in independent directions")
            continue
        forward = setting.log_density(q, z) - at.log_volume
        several, others = decides_first(found), []
        ways = _different([path, *map(_open_end, found)]) if several else [path, *_others(setting, path, found)]
        own = 0
        for moves, converged in _reverse_moves(setting, best, subset, ways, several, near, rng):
            for x in moves:
                pairing = _compare(setting, best, forward, at, x.z, subset, x.way, near)
                if pairing.state == "match":
                    return pairing
                others.append(pairing)
            own += converged
        clear = [x for x in others if x.mismatch > 10 * x.tolerance and x.tolerance < COARSE]
        if own and len(clear) == len(others) and len(subsets) == 1:
            ways = _all_ways(setting, best, found, rng, effort) if several else []
            few = len(ways) <= MOST_WAYS
            pairing = _thoroughly(setting, best, forward, at, subset, ways, near, rng, effort) if few else best
            if pairing.state != "open":
                return pairing
        if others:
            why = "no matching reverse move was found" if len(subsets) == 1 else many
            best = min(others, key=lambda x: x.mismatch)._replace(why=why)
    return best


class _Move(NamedTuple):
    """A noise, the path along which it makes a move, and a number that is different for free numbers in another order."""

    z: np.ndarray
    way: Path
    order: int = 0


def _reverse_moves(
    setting: Setting, best: Pairing, subset: Any, ways: list[Path], several: bool, near: float, rng: np.random.Generator
) -> Iterator[tuple[list[_Move], int]]:
    """Yield reverse moves as they are found, each once, with the number of searches along the first path that succeeded.

    With ``several`` paths to choose from, each search may change its path.
    """
    q, z, to = best.q, best.z, best.to
    assert to is not None
    goal, p = reversed_trail(q, setting.trail(best.outcome.transition)), best.outcome.transition.p
    if p is not None and len(p) == len(subset) == len(z) and np.isfinite(p).all():
        z = p  # a returned momentum is a guess of the reverse noise, up to its sign and the root of the mass
    if several:
        moves = [_Move(x, ways[0]) for x in roots_of(setting, to, goal, z, subset, ways[0], near, rng, 1)[0]]
        yield moves, len(moves)
        for starts in (1, STARTS):
            new = searches(setting, to, goal, [z], ways, subset, near, rng, starts)[0]
            new = [x for x in new if not _known(x, moves)]
            moves += new
            yield new, len(new)
        return
    for k, way in enumerate(ways):
        tried: list[np.ndarray] = []
        for starts in (1, STARTS):
            roots, converged = roots_of(setting, to, goal, z, subset, way, near, rng, starts)
            yield [_Move(x, way) for x in roots[len(tried) :]], converged if k == 0 else 0
            tried = roots


def _known(x: _Move, moves: list[_Move]) -> bool:
    return any(x.order == other.order and np.abs(x.z - other.z).max() <= 1e-3 for other in moves)


def _thoroughly(
    setting: Setting,
    best: Pairing,
    forward: float,
    at: Map,
    subset: Any,
    ways: list[Path],
    near: float,
    rng: np.random.Generator,
    effort: int,
) -> Pairing:
    """Decide whether every reverse move differs, and whether none was missed, before a mismatch is reported.

    It also searches along the path with its free numbers reversed, as an order that is drawn may require, or along ``ways``.

    A reversible kernel has as many moves forward as backward, so that finding fewer backward is not enough. Moves that
    take noise with an energy far from that of the forward move (unstable leapfrogs) are not counted.
    """
    q, to, z = best.q, best.to, best.z
    assert to is not None
    change = abs(setting.log_pi(to) - setting.log_pi(q))
    most = z @ z + 2 * (change + SLACK)

    def moves(start: np.ndarray, goal: np.ndarray, guesses: list[np.ndarray]) -> tuple[list[_Move], bool]:
        """Return the moves from ``start`` to ``goal``, and whether most searches succeeded."""
        kept: list[_Move] = []
        settled = True
        if ways:
            new, share = searches(setting, start, goal, guesses, ways, subset, near, rng, effort * THOROUGH)
            return [x for x in new if not x.z @ x.z > most], share >= 0.5
        for guess in guesses:
            for order, way in enumerate(_paths_of(setting, best.outcome.path)):
                noises, converged = roots_of(setting, start, goal, guess, subset, way, near, rng, THOROUGH)
                settled = settled and converged >= THOROUGH // 2
                new = [_Move(x, way, order) for x in noises]
                kept += [x for x in new if not (x.z @ x.z > most or _known(x, kept))]
        return kept, settled

    trail = setting.trail(best.outcome.transition)
    backs, settled = moves(to, reversed_trail(q, trail), [z])
    compared = [_compare(setting, best, forward, at, x.z, subset, x.way, near) for x in backs]
    matching = [x for x in compared if x.state == "match"]
    if matching:
        return matching[0]
    clear = [x for x in compared if x.mismatch > 10 * x.tolerance and x.tolerance < COARSE]
    # For a map on which most searches fail, some moves are not found.
    if not compared or len(clear) < len(compared) or not settled:
        return best
    theres = [_Move(z, best.outcome.path, 0)]
    guesses = [z, *(-x.back for x in compared if x.back is not None)]
    theres += [x for x in moves(q, trail, guesses)[0] if not _known(x, theres)]
    if len(theres) > len(compared):
        return best
    closest = min(clear, key=lambda x: x.mismatch)
    if len(compared) == 1:
        return closest._replace(state="mismatch")
    gap, tolerance = _gap_of_sums(setting, best, forward, compared, theres[1:], subset, near)
    if gap <= tolerance < COARSE:
        return closest._replace(state="match", mismatch=gap, tolerance=tolerance)
    if gap > 10 * tolerance and tolerance < COARSE:
        return closest._replace(state="mismatch", mismatch=min(gap, closest.mismatch))
    return best


def _gap_of_sums(
    setting: Setting, best: Pairing, forward: float, backs: list[Pairing], more: list[_Move], subset: Any, near: float
) -> tuple[float, float]:
    """Return the mismatch of both sides, summed over the moves there (``best`` and ``more``) and back, and its tolerance."""
    assert best.to is not None
    there, tolerance = [math.log(best.probability)], max(x.tolerance for x in backs)
    for x in more:
        at = map_of(setting, best.q, x.z, x.way, subset)
        found = [y for y in setting.outcomes(best.q, x.z, frees_of(x.way)) if y.moved]
        P = probability_at(found, best.to, near)
        if P > 0:
            there.append(setting.log_density(best.q, x.z) - at.log_volume - forward + math.log(P))
            tolerance = max(tolerance, 10 * at.error)
    back = [x.r + math.log(x.returns) for x in backs if x.returns > 0]
    gap = abs(np.logaddexp.reduce(there) - np.logaddexp.reduce(back)) if back else math.inf
    return float(gap), float(tolerance)


def _error_of(at: Map) -> float:
    return at.error / max(at.inverse * len(at.jacobian), 1e-300) if math.isfinite(at.inverse) else np.inf


def decides_first(found: list[Outcome]) -> bool:
    """Return whether the kernel decides something before it accepts or rejects."""
    return any(sum(step.key != FREE for step in x.path) > 1 for x in found)


def _others(setting: Setting, path: Path, found: list[Outcome]) -> list[Path]:
    """Return the paths of the other outcomes, then the path with its free numbers reversed."""
    return [*(x.path for x in found if x.moved and x.path != path)][:5] + _paths_of(setting, path)[1:]


def _all_ways(
    setting: Setting, best: Pairing, found: list[Outcome], rng: np.random.Generator, effort: int
) -> list[Path]:
    """Return the paths of all decisions that are seen at both ends on several noises, with all orders of free numbers."""
    path, z = best.outcome.path, best.z
    assert best.to is not None
    seen = [path, *(_open_end(x) for x in found)]
    noises = [(best.to, -z), (best.to, z), (best.q, rng.standard_normal(len(z)))]
    noises += [(at, rng.standard_normal(len(z))) for at in (best.to, best.q) for _ in range(4 * (effort - 1))]
    for start, noise in noises:
        seen += [_open_end(x) for x in setting.outcomes(start, noise, frees_of(path))]
    return [x for way in _different(seen) for x in _paths_of(setting, way)]


def _open_end(x: Outcome) -> Path:
    """Return the path of an outcome without a rejection at its end."""
    rejects = (
        not x.moved and x.path and x.path[-1].kind in ("uniform", "exponential", "flip") and x.path[-1].key != WHOLE
    )
    return x.path[:-1] if rejects else x.path


def _different(paths: list[Path]) -> list[Path]:
    """Return the paths without those that are questions and answers of another, except for acceptances at the end."""
    kept: list[Path] = []
    for path in paths:
        if not any(_same(path, other) for other in kept):
            kept.append(path)
    return kept


def _paths_of(setting: Setting, path: Path) -> list[Path]:
    """Return the path, and the same with its free numbers mirrored, in reversed order, or both; uniforms that are held stay."""
    paths = [path]
    free = [] if setting.held else [step for step in path if step.key == FREE]
    if free:
        mirrored = [s._replace(answer=1 - s.answer) if s.kind == "uniform" else s for s in free]
        turned = [s._replace(answer=np.asarray(s.answer)[::-1]) if s.kind == "permutation" else s for s in free]
        same_kinds = [s.kind for s in free] == [s.kind for s in free[::-1]]
        for new in [mirrored, turned, *([free[::-1], turned[::-1]] if same_kinds else [])]:
            waiting = list(new)
            turned_path = tuple(waiting.pop(0) if step.key == FREE else step for step in path)
            if not any(_same(turned_path, other) for other in paths):
                paths.append(turned_path)
    return paths


def _same(a: Path, b: Path) -> bool:
    """Return whether two paths ask and answer the same, as far as the shorter goes; the rest of the longer one accepts."""
    if any(x.kind != y.kind or not np.array_equal(x.answer, y.answer) for x, y in zip(a, b, strict=False)):
        return False
    return all(step.key in (LOWER, WHOLE, True) for step in (*a[len(b) :], *b[len(a) :]))


def frees_of(path: Path) -> tuple[float, ...]:
    """Return the fixed numbers on ``path``, as uniforms."""
    return tuple(as_uniform(step) for step in path if step.key == FREE and step.kind in ("uniform", "exponential"))


def roots_of(
    setting: Setting,
    start: np.ndarray,
    goal: np.ndarray,
    z: np.ndarray,
    active: Any,
    path: Path,
    near: float,
    rng: np.random.Generator,
    starts: int = STARTS,
) -> tuple[list[np.ndarray], int]:
    """Return different noises with which ``path`` leads from ``start`` to ``goal``, and the number of starts that succeeded."""
    roots: list[np.ndarray] = []
    converged = 0
    spread = max(1.0, float(np.linalg.norm(z)) / (2 * math.sqrt(len(z))))  # reverse moves of large noise are far apart

    def whole(x: np.ndarray) -> np.ndarray:
        full = z.copy()
        full[active] = x
        return setting.at_length(z, full)

    def residual(x: np.ndarray) -> np.ndarray:
        to = setting.gone(start, whole(x), path)
        gap = np.where(np.isfinite(to), to - goal, 1e10)
        return np.append(gap, np.linalg.norm(x) / np.linalg.norm(z) - 1) if setting.sphere else gap

    first = (-z[active], z[active], np.zeros(len(active)))
    for k in range(starts):
        x = first[k] if k < 3 else spread * (1.0, 2.0, 3.0)[k % 3] * rng.standard_normal(len(active))
        if len(active) == len(goal) and not setting.sphere:
            options = {"xtol": 1e-12, "eps": setting.runner.kernel.epsilon}
            solved = scipy.optimize.root(residual, x, method="hybr", options=options).x
        else:
            solved = scipy.optimize.least_squares(residual, x, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=60).x
        if np.abs(residual(solved)[: len(goal)]).max() > near:
            continue
        converged += 1
        if not any(np.abs(whole(solved) - other).max() <= 1e-3 for other in roots):
            roots.append(whole(solved))
        if k == 2 and len(roots) == 1 and converged == 3 and starts <= STARTS:
            break
    return roots, converged


def searches(
    setting: Setting,
    start: np.ndarray,
    goal: np.ndarray,
    guesses: list[np.ndarray],
    ways: list[Path],
    active: Any,
    near: float,
    rng: np.random.Generator,
    starts: int,
) -> tuple[list[_Move], float]:
    """Return the different moves from ``start`` to ``goal`` along any of ``ways``, and the share of searches that succeeded.

    Newton's method starts along every way whose end differs, and continues after each step along the one that ends closest.
    """
    found: list[_Move] = []
    tries = converged = 0

    def residuals(x: np.ndarray) -> list[np.ndarray]:
        gaps = [setting.gone(start, x, way) - goal for way in ways]
        return [np.where(np.isfinite(gap), gap, 1e10) for gap in gaps]

    def size(gap: np.ndarray) -> float:
        return float(np.abs(gap).max())

    def search(x: np.ndarray, k: int, gap: np.ndarray) -> tuple[np.ndarray, int] | None:
        h = 1e-6 ** (0.5 if setting.runner.kernel.epsilon > 1e-10 else 1.0)
        for _ in range(MOST_NEWTON):
            if size(gap) <= 0.01 * near:
                break
            slopes = []
            for i in active:
                unit = np.zeros(len(x))
                unit[i] = h
                slopes.append(
                    (setting.gone(start, x + unit, ways[k]) - setting.gone(start, x - unit, ways[k])) / (2 * h)
                )
            J = np.stack(slopes, axis=-1)
            if not np.isfinite(J).all():
                return None
            step = np.zeros(len(x))
            step[active] = setting.newton_step(J, gap)
            for shrink in (1.0, 0.5, 0.25):
                gaps = residuals(setting.at_length(x, x - shrink * step))
                best = min(range(len(ways)), key=lambda i: size(gaps[i]))
                if size(gaps[best]) < size(gap):
                    break
            else:
                break
            x, k, gap = setting.at_length(x, x - shrink * step), best, gaps[best]
        return (x, k) if size(gap) <= near else None

    z = guesses[0]
    spread = max(1.0, float(np.linalg.norm(z)) / (2 * math.sqrt(len(z))))
    noises = [-z, z, 0.0 * z, *(x for y in guesses[1:] for x in (y, -y))][: max(starts, 1)]
    for n in range(len(noises), starts):
        x = z.copy()
        x[active] = spread * (1.0, 2.0, 3.0)[n % 3] * rng.standard_normal(len(active))
        noises.append(setting.at_length(z, x))
    for x in noises:
        gaps = residuals(x)
        ends: list[np.ndarray] = []
        for k, gap in enumerate(gaps):
            stays = np.abs((gap + goal)[: len(start)] - start).max() <= setting.rounding(start)
            if stays or size(gap) >= 1e10 or any(np.abs(gap - end).max() <= near for end in ends):
                continue
            ends.append(gap)
            tries += 1
            root = search(x, k, gap)
            if root is None:
                continue
            converged += 1
            move = _Move(root[0], ways[root[1]])
            if not _known(move, found):
                found.append(move)
    return found, converged / max(tries, 1)


def _compare(
    setting: Setting, best: Pairing, forward: float, at: Map, z_back: np.ndarray, active: Any, path: Path, near: float
) -> Pairing:
    """Return the comparison of both sides of the equation for one root."""
    q, to, P = best.q, best.to, best.probability
    assert to is not None
    goal = reversed_trail(q, setting.trail(best.outcome.transition))
    there = map_of(setting, to, z_back, path, active)
    left = setting.gone(to, z_back, path) - goal
    J = there.jacobian[:, active]
    if np.isfinite(J).all() and math.isfinite(there.log_volume):  # one Newton step with the accurate derivative
        better = z_back.copy()
        better[active] -= setting.newton_step(J, left)
        better = setting.at_length(z_back, better)
        rest = setting.gone(to, better, path) - goal
        if np.abs(rest).max() <= np.abs(left).max():
            if np.abs(better - z_back).max() > 1e-9:  # near a fold the volume changes fast
                there = map_of(setting, to, better, path, active)
            z_back, left = better, rest
    r = setting.log_density(to, z_back) - there.log_volume - forward
    wanted = min(1.0, P * math.exp(-min(max(r, -700.0), 700.0)))
    confirmed = _is_probability(setting, to, z_back, path, best.outcome, goal, near, wanted)
    P_back, error_back = wanted, ROUNDING / wanted if wanted > 0 else math.inf
    if not confirmed:
        back = [x for x in setting.outcomes(to, z_back, frees_of(path)) if x.moved]
        P_back, error_back = probability_at(back, q, near), error_at(back, q, near)
    mismatch = abs(math.log(P) - r - math.log(P_back)) if P_back > 0 else np.inf
    kernel = setting.runner.kernel
    size = 1 + abs(forward) + abs(setting.log_density(to, z_back))
    root = there.inverse * (np.abs(left).max() + 10 * setting.delta + 8 * kernel.epsilon * np.abs(to).max())
    tolerance = (
        FLOOR
        + 10 * (at.error + there.error)
        + 10 * (1 + np.abs(z_back).max()) * root
        + 64 * kernel.epsilon * size
        + 4 * (best.error + (error_back if P_back > 0 else 0.0))
        + 10 * setting.delta * (at.inverse + there.inverse)
    )
    state = "match" if mismatch <= tolerance < COARSE else "open"
    return best._replace(state=state, mismatch=mismatch, tolerance=tolerance, r=r, back=z_back, why="", returns=P_back)


def _is_probability(
    setting: Setting,
    start: np.ndarray,
    z: np.ndarray,
    path: Path,
    outcome: Outcome,
    goal: Any,
    near: float,
    wanted: float,
) -> bool:
    """Return whether one uniform leads to ``goal`` just below ``wanted`` and not above, which avoids a bisection."""
    last = path[-1] if path else None
    if last is None or last.kind != "uniform" or last.key not in (LOWER, WHOLE) or outcome.decisions > 1:
        return False
    if setting.takes > 0.5 or wanted <= 1e-6:
        return False

    def arrives(u: float) -> bool:
        return bool(np.abs(setting.gone(start, z, (*path[:-1], last._replace(answer=u))) - goal).max() <= near)

    low, high = wanted * (1 - CLOSE), wanted * (1 + CLOSE)
    return arrives(min(low, 1 - 1e-15)) and arrives(0.5 * wanted) and (high >= 1 or not arrives(high))

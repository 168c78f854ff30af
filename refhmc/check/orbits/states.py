"""Orbits of a reversible map, in particular those on which faults of a tree sampler show.

An orbit is z_k = leap^k(z_0), k = -n ... n, with energies H(z_k). A transition along it is judged at the states around
z_0. Its possible faults depend on the kind of states:

    flat       energies equal to a millionth or less: only the shape of the tree matters, not the weights
    uneven     energies that differ by some nats: weights matter too
    barrier    low states on both sides of a peak of tens to thousands of nats: diverging trajectories are cut off
    wall       states of density zero (energy infinite or NaN) among others

z_0 always has a low energy, so that pi(z_i) / pi(z_0) is never large and rounding errors stay small. A barrier is best seen on
an orbit that is nearly its own mirror image, z_{-k} = (q_k, -p_k), as it is exactly through a state with p = 0. A small p there
sets the difference of the two valleys, and the size of q the height of the peak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from refhmc.check.subject.foreign import SubjectError

DROP = 300.0  # nats by which a state two transitions away may lie below z_0: naive weights must not overflow
LOWER = 8.0  # the same for a state that a transition reaches
NEAR = 12.0  # nats within which another state counts as equally likely as z_0
BARRIERS = ((12.0, 60.0), (60.0, 300.0), (300.0, 950.0), (1100.0, 1700.0), (1700.0, 3000.0), (3000.0, 1e5))


class Orbit(NamedTuple):
    """States ``q``, ``p`` (2n + 1, d) and their ``energy``, with z_0 in the middle; ``eps`` and ``kind`` for information.

    ``near``: the distance by which rounding may move a copy of a state. ``blur``: the rounding error of its energy.
    """

    q: np.ndarray
    p: np.ndarray
    energy: np.ndarray
    eps: float | None
    kind: str = ""
    near: float = math.nan
    blur: float = math.nan

    @property
    def n(self) -> int:
        return len(self.energy) // 2

    def H(self, k: int) -> float:
        """Return the energy of z_k."""
        return float(self.energy[self.n + k])

    def around(self, reach: int) -> np.ndarray:
        """Return the energies of z_-reach ... z_reach."""
        return self.energy[self.n - reach : self.n + reach + 1]


class PhaseMap(NamedTuple):
    """``ahead(q, p, eps)`` and ``back(q, p, eps)``, inverse to each other, and ``energy(q, p)`` (NaN if undefined).

    ``centre`` and ``scale`` (d,) describe the bulk of the density, ``momentum`` (d,) the size of a momentum; ``unit`` is the
    rounding unit.
    """

    ahead: Callable
    back: Callable
    energy: Callable
    centre: np.ndarray
    scale: np.ndarray
    momentum: np.ndarray
    unit: float


def orbit_through(
    phase_map: PhaseMap, q: np.ndarray, p: np.ndarray, n: int, eps: float | None, kind: str = ""
) -> Orbit:
    """Return the orbit through (q, p), n states to each side; NaN beyond a state that is not finite."""
    d = len(q)
    states = np.full((2 * n + 1, 2, d), np.nan)
    states[n] = q, p
    for step, sign in ((phase_map.ahead, 1), (phase_map.back, -1)):
        for k in range(1, n + 1):
            new = step(*states[n + sign * (k - 1)], eps)
            if not np.isfinite(new).all():
                break
            states[n + sign * k] = new
    energy = np.array([phase_map.energy(*z) if np.isfinite(z).all() else np.nan for z in states])
    return Orbit(states[:, 0], states[:, 1], energy, eps, kind)


def measured(phase_map: PhaseMap, orbit: Orbit) -> Orbit:
    """Return the orbit with ``near`` and ``blur``, from a run along it and back again."""
    known = np.flatnonzero(np.isfinite(orbit.q).all(axis=1))
    first, last = known[0], known[-1]
    unit = phase_map.unit
    low = orbit.energy <= orbit.H(0) + 2 * NEAR
    strayed = blur = 0.0
    for step, indices in (
        (phase_map.back, range(last - 1, first - 1, -1)),
        (phase_map.ahead, range(first + 1, last + 1)),
    ):
        begin = last if step is phase_map.back else first
        q, p = orbit.q[begin], orbit.p[begin]
        for k in indices:
            q, p = step(q, p, orbit.eps)
            if not np.isfinite([q, p]).all():
                break
            strayed = max(strayed, float(np.abs(q - orbit.q[k]).max()))
            if low[k]:
                blur = max(blur, abs(phase_map.energy(q, p) - orbit.energy[k]))
    size = float(np.abs(orbit.q[known]).max(initial=1e-300))
    sums = [abs(orbit.energy[k]) + abs(phase_map.energy(orbit.q[k], 0 * orbit.p[k])) for k in np.flatnonzero(low)]
    blur = 4 * blur + 8 * unit * (1 + max(sums))
    return orbit._replace(near=100 * strayed + 4096 * unit * size, blur=blur)


def separation(orbit: Orbit) -> float:
    """Return the least distance between two of its positions."""
    q = orbit.q[np.isfinite(orbit.q).all(axis=1)]
    apart = np.abs(q[:, None] - q[None]).max(axis=2)
    return float(apart[~np.eye(len(q), dtype=bool)].min(initial=np.inf))


def usable(orbit: Orbit, reach: int) -> bool:
    """Return whether z_0 has a density, and no state within reach, or anywhere, has a much higher one."""
    here = orbit.H(0)
    if not math.isfinite(here) or (orbit.energy < here - DROP).any():
        return False
    return not (orbit.around(min(reach + 2, orbit.n)) < here - LOWER).any()


def from_lowest(
    phase_map: PhaseMap, q: np.ndarray, p: np.ndarray, eps: float | None, reach: int, n: int, kind: str = ""
) -> Orbit | None:
    """Return the orbit through (q, p) with its lowest state within ``reach`` as z_0, n to each side; None if unusable."""
    orbit = orbit_through(phase_map, q, p, reach, eps, kind)
    energy = np.where(np.isfinite(orbit.energy), orbit.energy, np.inf)
    if not np.isfinite(energy).any():
        return None
    k = int(np.argmin(energy))
    moved = orbit_through(phase_map, orbit.q[k], orbit.p[k], n, eps, kind)
    return moved if usable(moved, reach) else None


def finished(phase_map: PhaseMap, orbit: Orbit | None, n: int) -> Orbit | None:
    """Return the orbit with n states to each side, measured; None if its states cannot be distinguished."""
    if orbit is None or not math.isfinite(orbit.H(0)):
        return None
    orbit = orbit_through(phase_map, orbit.q[orbit.n], orbit.p[orbit.n], n, orbit.eps, orbit.kind)
    orbit = measured(phase_map, orbit)
    return orbit if 20 * orbit.near < separation(orbit) else None


def turning(orbit: Orbit) -> int:
    """Return the number of steps from z_0 after which the trajectory turns back; 2n + 1 if it does not."""
    for k in range(1, orbit.n + 1):
        way = orbit.q[orbit.n + k] - orbit.q[orbit.n]
        if not (way @ orbit.p[orbit.n + k] > 0 and way @ orbit.p[orbit.n] > 0):
            return k
    return 2 * orbit.n + 1


# ------------------------------------------------------------------------------------------------ search for orbits


def _tried(make: Callable[..., Orbit | None], *arguments: Any) -> Orbit | None:
    """Return the orbit; None if the map or the density raises that far out."""
    try:
        return make(*arguments)
    except SubjectError:
        return None


def _scattered(
    phase_map: PhaseMap, of_q: float, of_p: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return a random position and momentum of these sizes."""
    q, p = rng.standard_normal((2, len(phase_map.centre)))
    return phase_map.centre + of_q * phase_map.scale * q, of_p * phase_map.momentum * p


def ordinary(phase_map: PhaseMap, n: int, reach: int, steps: Sequence, rng: np.random.Generator) -> Iterator[Orbit]:
    """Yield random orbits, flat and uneven, of many turning times."""
    for trial in range(400):
        size = (1.0, 1e-3, 2.0, 0.5, 4.0, 1e-2, 8.0, 1.5)[trial % 8]
        q, p = _scattered(phase_map, size, min(size, 2.0), rng)
        orbit = _tried(from_lowest, phase_map, q, p, steps[trial // 8 % len(steps)], reach, n)
        if orbit is None or not np.isfinite(orbit.energy).all():
            continue
        spread = float(np.ptp(orbit.around(2 * reach)))
        if spread <= 10:
            yield orbit._replace(kind="flat" if spread <= 1e-4 else "uneven")


def varied(orbits: Iterator[Orbit], count: int) -> list[Orbit]:
    """Return ``count`` of them: a third of them flat, with turning times as different as possible."""
    found: list[Orbit] = []
    taken: dict = {}
    waiting: list[tuple[tuple, Orbit]] = []
    for orbit in orbits:
        key: tuple = (orbit.kind, min(int(math.log2(turning(orbit)) * 2), 9))
        if taken.get(key, 0) == 0:
            taken[key] = 1
            found.append(orbit)
        else:
            waiting.append((key, orbit))
        if len(found) >= 2 * count or len(found) + len(waiting) >= 4 * count:
            break
    flat = [o for o in found if o.kind == "flat"][: max(1, count // 3)]
    uneven = [o for o in found if o.kind == "uneven"][: count - len(flat)]
    rest = [o for _, o in waiting if o.kind == "uneven"]
    chosen = (flat + uneven + rest)[:count]
    return sorted(chosen, key=lambda o: o.kind == "flat") if len(chosen) < 2 else _alternating(chosen)


def _alternating(orbits: list[Orbit]) -> list[Orbit]:
    """Return uneven and flat orbits alternately, early turns first, since their trees are small.

    The budget may end anywhere.
    """
    early = sorted(orbits, key=turning)
    flat, uneven = [o for o in early if o.kind == "flat"], [o for o in early if o.kind != "flat"]
    mixed = []
    while flat or uneven:
        mixed += [group.pop(0) for group in (uneven, flat) if group]
    return mixed


def height(orbit: Orbit, reach: int) -> float:
    """Return the highest finite energy within reach, above that of z_0."""
    energy = orbit.around(reach)
    return float(energy[np.isfinite(energy)].max() - orbit.H(0))


def across(orbit: Orbit, reach: int, limit: float) -> int:
    """Return a score for states as likely as z_0 with a peak of ``limit`` nats, or density zero, in between."""
    energy = orbit.around(reach) - orbit.H(0)
    peak = ~(energy <= limit)
    if not peak.any():
        return 0
    near = [int(k) - reach for k in np.flatnonzero(np.abs(energy) <= NEAR) if k != reach]
    between = sum(bool(peak[min(k, 0) + reach : max(k, 0) + reach + 1].any()) for k in near)
    return 10 * between + len(near)


class Mirror(NamedTuple):
    """Start of mirrored orbits: q = centre + size * direction, step ``eps``; the valley is ``valley`` steps away."""

    direction: np.ndarray
    size: float
    eps: float | None
    valley: int
    peak: float


def mirrors(
    phase_map: PhaseMap, reach: int, steps: Sequence[float | None], rng: np.random.Generator
) -> Iterator[Mirror]:
    """Yield states at rest with a valley within reach on both sides, for sizes from small to large."""
    if reach < 2:
        return
    for eps in steps:
        for direction in (*_axes(phase_map), *rng.standard_normal((2, len(phase_map.centre)))):
            for size in np.geomspace(1.0, 2e4, 40):
                found = _valley(phase_map, direction, size, eps, reach)
                if found is not None:
                    yield Mirror(direction, size, eps, *found)


def _axes(phase_map: PhaseMap) -> np.ndarray:
    """Return directions of the largest and the least curvature at the centre, in units of the scale, (2, d) or fewer."""
    d, width = len(phase_map.centre), 0.3

    def f(z: np.ndarray) -> float:
        return phase_map.energy(phase_map.centre + phase_map.scale * z, np.zeros(d))

    if d > 20:
        return np.eye(d)[:1]
    pairs = [(i, j) for i in range(d) for j in range(i + 1)]
    curvature = np.zeros((d, d))
    e = width * np.eye(d)
    for i, j in pairs:
        mixed = f(e[i] + e[j]) - f(e[i] - e[j]) - f(e[j] - e[i]) + f(-e[i] - e[j])
        curvature[i, j] = curvature[j, i] = mixed / (4 * width**2)
    # M^-1/2 (Hessian) M^-1/2: along its eigenvectors a trajectory of a quadratic stays on a line.
    size = phase_map.scale * phase_map.momentum
    symmetric = curvature / np.outer(size, size)
    if not np.isfinite(symmetric).all():
        return np.eye(d)[:1]
    directions = np.linalg.eigh(symmetric)[1].T / size
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions[[-1, 0]] if d > 1 else directions


def _valley(
    phase_map: PhaseMap, direction: np.ndarray, size: float, eps: float | None, reach: int
) -> tuple[int, float] | None:
    q, p = phase_map.centre + size * phase_map.scale * direction, np.zeros(len(direction))
    try:
        energy = [phase_map.energy(q, p)]
        for _ in range(reach):
            q, p = phase_map.ahead(q, p, eps)
            energy.append(phase_map.energy(q, p))
    except SubjectError:
        return None
    if not np.isfinite(energy).all():
        return None
    k = 1 + int(np.argmin(energy[1 : reach // 2 + 1]))
    return (k, energy[0] - energy[k]) if energy[0] - energy[k] > NEAR and min(energy) > energy[k] - 5 else None


def leaning(phase_map: PhaseMap, mirror: Mirror, n: int, difference: float, rng: np.random.Generator) -> Orbit | None:
    """Return the mirrored orbit with a small momentum, so that its two valleys differ by ``difference`` nats."""
    q = phase_map.centre + mirror.size * phase_map.scale * mirror.direction
    push = phase_map.momentum * rng.standard_normal(len(q))
    k, trial = mirror.valley, 1e-4 * mirror.size

    def apart(t: float) -> float:
        orbit = orbit_through(phase_map, q, t * push, k, mirror.eps)
        return orbit.H(k) - orbit.H(-k)

    slope = apart(trial) / trial
    if not math.isfinite(slope) or abs(slope * mirror.size) < 2 * difference:
        return None
    rest = orbit_through(phase_map, q, difference / slope * push, k, mirror.eps)
    low = k if rest.H(k) < rest.H(-k) else -k
    orbit = orbit_through(phase_map, rest.q[k + low], rest.p[k + low], n, mirror.eps, "barrier")
    return orbit if usable(orbit, k) else None


def barriers(
    phase_map: PhaseMap, n: int, reach: int, steps: Sequence[float | None], rng: np.random.Generator
) -> list[Orbit]:
    """Return at most one orbit per height in ``BARRIERS``."""
    best: dict[int, tuple[int, Orbit]] = {}
    done: dict[int, int] = {}

    def consider(orbit: Orbit | None) -> None:
        if orbit is None:
            return
        for slot, (low, high) in enumerate(BARRIERS):
            if low < height(orbit, reach) <= high:
                score = across(orbit, reach, low)
                if score > (best[slot][0] if slot in best else 0):
                    best[slot] = (score, orbit._replace(kind="barrier"))

    for mirror in mirrors(phase_map, reach, steps, rng):
        slot = next((s for s, (low, high) in enumerate(BARRIERS) if low < mirror.peak <= high), None)
        if slot is None or done.get(slot, 0) >= 3:
            continue
        done[slot] = done.get(slot, 0) + 1
        consider(_tried(leaning, phase_map, mirror, n, 1.2, rng))
    for trial in range(48 if len(best) < 4 else 0):
        size = float(np.geomspace(1.0, 300.0, 16)[trial % 16])
        q, p = _scattered(phase_map, size, (0.1, 1.0, size)[trial // 16], rng)
        consider(_tried(from_lowest, phase_map, q, p, steps[trial % len(steps)], reach, n))
    return [best[slot][1] for slot in sorted(best)]


def designed(
    phase_map: PhaseMap,
    n: int,
    reach: int,
    eps: float | None,
    low: dict[int, float],
    peak: int,
    rise: float,
    rng: np.random.Generator,
    tries: int = 40,
    all_above: bool = False,
) -> Orbit | None:
    """Return an orbit with H(k) = H(0) + low[k] for each k of ``low``, and H(peak) = H(0) + rise, by least squares.

    It starts with momenta along the softest direction, so that it does not turn immediately. With ``all_above``, the
    other states that :func:`usable` examines must not lie below z_0 either.
    """
    d, axes = len(phase_map.centre), _axes(phase_map)
    size = math.sqrt(rise) * rng.uniform(1.0, 3.0)
    push = rng.choice([0.0, 1.5]) * axes[-1] * phase_map.scale * phase_map.momentum
    begin = size * np.concatenate([rng.standard_normal(d), rng.standard_normal(d) + push])
    others = set(range(-reach - 2, reach + 3)) - {0, peak, *low} if all_above else set[int]()
    first, last = min(0, peak, *low, *others), max(0, peak, *low, *others)

    def energies(x: np.ndarray) -> dict[int, float]:
        z = {0: (phase_map.centre + phase_map.scale * x[:d], phase_map.momentum * x[d:])}
        for k in range(1, last + 1):
            z[k] = phase_map.ahead(*z[k - 1], eps)
        for k in range(-1, first - 1, -1):
            z[k] = phase_map.back(*z[k + 1], eps)
        return {k: phase_map.energy(*z[k]) for k in (0, peak, *low, *others)}

    def misses(x: np.ndarray) -> np.ndarray:
        H = energies(x)
        values = [*(H[k] - H[0] - wanted for k, wanted in low.items()), (H[peak] - H[0] - rise) / (0.003 * rise)]
        values += [min(0.0, H[k] - H[0]) for k in others]
        return np.nan_to_num(np.clip(values, -1e6, 1e6), nan=1e6)

    found = scipy.optimize.least_squares(misses, begin, x_scale=size, max_nfev=tries, xtol=1e-12, ftol=1e-8)
    if np.abs(found.fun).max() > 3:
        return None
    orbit = orbit_through(
        phase_map, phase_map.centre + phase_map.scale * found.x[:d], phase_map.momentum * found.x[d:], n, eps, "barrier"
    )
    return orbit if usable(orbit, reach) else None


def designs(
    phase_map: PhaseMap, n: int, reach: int, steps: Sequence[float | None], rng: np.random.Generator, count: int = 6
) -> Iterator[Orbit]:
    """Yield orbits of two or three likely states within reach of each other, with a peak between or next to them."""
    d, found = len(phase_map.centre), 0
    for trial in range(3 * count if reach > 2 else 0):
        if d > 1 and trial % 3 < 2:  # two neighbours, a peak, another: unequal halves on its sides
            k = int(rng.integers(3, reach + 1))
            low, peak = {1: float(rng.uniform(-2, 2)), k: float(rng.uniform(-2, 2))}, int(rng.integers(2, k))
        else:
            k, peak = (int(x) for x in rng.permutation(np.arange(1, reach + 1))[:2])
            low = {k: float(rng.uniform(-2, 2))}
        rise = (1300.0, 2000.0, 100.0, 1200.0, 1600.0, 500.0)[trial % 6]
        orbit = _tried(designed, phase_map, n, reach, steps[trial % len(steps)], low, peak, rise, rng)
        if orbit is not None:
            found += 1
            yield orbit
        if found == count:
            break


def walls(
    phase_map: PhaseMap, n: int, reach: int, steps: Sequence[float | None], rng: np.random.Generator, count: int = 3
) -> list[Orbit]:
    """Return orbits with states of density zero near z_0 and likely ones too."""
    found: list[tuple[int, Orbit]] = []
    for trial in range(120):
        size = (1.0, 2.0, 0.5, 4.0, 16.0, 100.0)[trial % 6]
        q, p = _scattered(phase_map, size, (1.0, 0.3, size)[trial // 6 % 3], rng)
        eps = steps[trial % len(steps)]
        orbit = _tried(orbit_through, phase_map, q, p, 2, eps)
        if orbit is None or np.isfinite(orbit.energy).all():
            continue
        orbit = _tried(from_lowest, phase_map, q, p, eps, reach, n)
        if orbit is None or np.isfinite(orbit.around(reach)).all():
            continue
        likely = int((orbit.around(reach) <= orbit.H(0) + NEAR).sum()) - 1
        if likely:
            found.append((likely + across(orbit, reach, math.inf), orbit._replace(kind="wall")))
        if len(found) >= 8:
            break
    found.sort(key=lambda pair: -pair[0])
    return [orbit for _, orbit in found[:count]]


def at_the_limit(
    phase_map: PhaseMap,
    n: int,
    reach: int,
    steps: Sequence[float | None],
    limit: float,
    rng: np.random.Generator,
    count: int = 4,
) -> list[Orbit]:
    """Return barriers whose peak is more than ``limit`` above one likely state, and less above another."""
    found: list[Orbit] = []
    for trial in range(4 * count if reach > 2 else 0):
        k = int(rng.integers(2, reach + 1))
        peak = int(rng.integers(1, k))
        eps = steps[trial % len(steps)]
        orbit = _tried(designed, phase_map, n, reach, eps, {k: 4.0}, peak, limit + 2, rng, 25, True)
        if orbit is not None and orbit.H(peak) - orbit.H(0) > limit > orbit.H(peak) - orbit.H(k):
            found.append(orbit._replace(kind="limit"))
        if len(found) == count:
            break
    return found

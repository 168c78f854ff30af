"""GIST of many chains: the transition of :mod:`refhmc.kernels.gist`.

A turn is a whole transition, so that the chains of a turn wait for the one with the longest path.
"""

from __future__ import annotations

from typing import NamedTuple

from refhmc.batch.chains import Chains, indices
from refhmc.batch.drhmc import with_rows
from refhmc.batch.steps import Mover, Point
from refhmc.batch.streams import Rows
from refhmc.batch.table import Table, pick_point, where_point
from refhmc.core import sample_stats as S
from refhmc.kernels.drhmc import probability_of
from refhmc.kernels.gist import drawn_lengths, has_turned, log_probability_of, lowest_lengths
from refhmc.kernels.hmc import accept
from refhmc.kernels.options import Kernel
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class Tuned(NamedTuple):
    """Parameters that were drawn, and their moves.

    It has log P(t | z), the ends z' with their momenta not reversed, the least and the largest energy and the error of largest
    magnitude, the step sizes, the energy errors to which warm-up adapts, and more statistics.
    """

    log_probability: Array
    end: Point
    lowest: Array
    highest: Array
    worst: Array
    eps: Array
    first_error: Array
    more: dict[str, Array]


class SelfTunedTransitions(Table):
    """Transitions of Gibbs self-tuning; ``draws`` is the number of uniforms before the decision."""

    draws = 1
    in_the_end = 0

    def __init__(self, chains: Chains, mover: Mover, kernel: Kernel) -> None:
        self.chains, self.mover, self.settings = chains, mover, kernel.settings()

    def start(self, rows: Rows) -> None:
        """Start the next transition of the chains ``rows``."""
        point = self.chains.with_momentum(rows, self.mover)
        self.put_point(rows, point)
        none = 0 * self.chains.transition[rows]
        self.put(rows, H0=point.energy, steps=0 * point.energy, used=none)
        self.start_record(rows, self.mover, point)

    def uniforms_used(self, rows: Rows) -> Array:
        """Return how many uniforms have been used so far."""
        return self.used[rows]

    def step(self, rows: Array, point: Point, eps: Array, at: Array) -> Point:
        """Return the points of the chains ``rows`` after a step of the chains at the mask ``at``, which is counted."""
        (on,) = batched.namespace(at).nonzero(at)
        if not on.shape[0]:
            return point
        self.steps[rows[on]] += 1
        return with_rows(point, on, self.mover.of(self.chains, rows[on])(pick_point(point, on), eps[on]))

    def draw_and_move(self, rows: Array, start: Point, uniforms: Array) -> Tuned:
        """Draw the parameters and make their moves."""
        raise NotImplementedError

    def log_probability_back(self, rows: Array, start: Point, tuned: Tuned) -> Array:
        """Return log P(t' | z'), -inf where H(z') is not finite."""
        raise NotImplementedError

    def turn(self, rows: Rows) -> tuple[Array, dict[str, Array]]:
        """Make a whole transition; return the chains and its statistics."""
        xp = batched.namespace(self.H0)
        begun = indices(rows, xp.isfinite(self.H0[rows]))
        lost = indices(rows, ~xp.isfinite(self.H0[rows]))
        if not lost.shape[0]:
            return begun, self.moved(begun)
        stats = self.not_begun(lost)
        if begun.shape[0]:
            stats = {name: xp.concat([values, stats[name]]) for name, values in self.moved(begun).items()}
        return xp.concat([begun, lost]), stats

    def moved(self, rows: Array) -> dict[str, Array]:
        """Make the transitions of the chains ``rows``, whose energies are finite, and return the statistics."""
        xp, start, H0 = batched.namespace(self.H0), self.point_of(rows), self.H0[rows]
        none = 0 * self.chains.transition[rows]
        tuned = self.draw_and_move(rows, start, self.chains.uniforms(rows, none, self.draws))
        back, H = self.log_probability_back(rows, start, tuned), tuned.end.energy
        accepted = self.chains.bernoulli(
            rows, none + self.draws, probability_of(back - tuned.log_probability - (H - H0))
        )
        self.put(rows, used=none + self.draws + 1)
        self.chains.move(rows, accepted, tuned.end.z[0], tuned.end.log_density, tuned.end.gradient)
        finite, wide = xp.isfinite(H), tuned.highest - tuned.lowest > S.MAX_ENERGY_SPREAD
        outcome = xp.where(finite, xp.where(wide, S.DIVERGED, S.REJECTED), self.reason(rows))
        return {
            "lp": self.chains.log_density[rows],
            "energy": xp.where(accepted, H, H0),
            "energy_error": xp.where(accepted, H - H0, 0.0),
            "max_energy_error": xp.where(finite, tuned.worst, xp.where(H < 0, H - H0, xp.inf)),
            "acceptance_rate": accept(H0, H0, tuned.first_error, 0 * H0, H0).acceptance_rate,
            "diverging": wide | ~finite,
            "step_size": tuned.eps,
            "step_size_nom": self.chains.step_size[rows],
            "n_steps": self.steps[rows],
            "is_accepted": accepted,
            "is_reversible": back > -xp.inf,
            "outcome": xp.where(accepted, S.ACCEPTED, outcome),
            **{name: xp.where(accepted | (name == "chosen_steps"), x, 0.0) for name, x in tuned.more.items()},
            **self.record_statistics(rows),
        }

    def not_begun(self, rows: Array) -> dict[str, Array]:
        """Return the statistics of transitions whose start has no finite energy."""
        xp, zero = batched.namespace(self.H0), 0 * self.steps[rows]
        none, reason = zero > 0, self.reason(rows)
        return {
            **dict.fromkeys(("energy", "max_energy_error"), zero + xp.inf),
            **dict.fromkeys(("energy_error", "acceptance_rate", "n_steps"), zero),
            **dict.fromkeys(("chosen_steps", "index_in_trajectory"), zero),
            **dict.fromkeys(("step_size", "step_size_nom"), self.chains.step_size[rows]),
            **dict.fromkeys(("is_accepted", "is_reversible"), none),
            "lp": self.chains.log_density[rows],
            "diverging": ~none,
            "outcome": reason,
            **self.record_statistics(rows),
        }


class GISTTransitions(SelfTunedTransitions):
    """Transitions with a drawn number of steps; the paths are kept."""

    def draw_and_move(self, rows: Array, start: Point, uniforms: Array) -> Tuned:
        xp, H0, eps = batched.namespace(self.H0), start.energy, self.chains.step_size[rows]
        point, path, tau, moving = start, [start], 0 * H0, xp.isfinite(H0)
        lowest, highest, worst = H0, H0, 0 * H0
        while xp.any(moving):
            point = self.step(rows, point, eps, moving)
            path.append(point)
            tau = tau + moving
            error = point.energy - H0
            finite = xp.isfinite(error)
            highest = xp.where(finite, xp.maximum(highest, point.energy), xp.inf)
            lowest = xp.where(finite, xp.minimum(lowest, point.energy), lowest)
            worst = xp.where(finite, xp.where(xp.abs(error) > xp.abs(worst), error, worst), xp.inf)
            moving = (
                moving & ~has_turned(start.z[0], point.z[0], point.z[1], error) & (tau < self.settings["max_depth"])
            )
        low = lowest_lengths(tau, self.settings["fraction"])
        L = drawn_lengths(uniforms[:, 0], low, tau)
        end = start
        for k, state in enumerate(path):
            end = where_point(k == L, state, end)
        self.path = tuple(xp.stack(rows) for rows in zip(*((*z.z, z.energy) for z in path), strict=True))
        more = {"chosen_steps": L, "index_in_trajectory": L}
        return Tuned(log_probability_of(L, low, tau), end, lowest, highest, worst, eps, end.energy - H0, more)

    def log_probability_back(self, rows: Array, start: Point, tuned: Tuned) -> Array:
        xp, (q, p, energy), end, L = batched.namespace(self.H0), self.path, tuned.end, tuned.more["chosen_steps"]
        fraction, every = self.settings["fraction"], xp.arange(L.shape[0])
        tau, moving, impossible = 0 * L, xp.isfinite(end.energy), ~xp.isfinite(end.energy)
        point, k = start, 0
        while xp.any(moving):
            k += 1
            tau = tau + moving
            impossible = impossible | (moving & (lowest_lengths(tau, fraction) > L))
            moving = moving & ~impossible
            known = k <= L
            point = self.step(rows, point, -tuned.eps, moving & ~known)
            at = xp.astype(xp.where(known, L - k, 0.0), xp.int64)
            here, there = (xp.where(known[:, None], x[at, every], y) for x, y in zip((q, p), point.z, strict=True))
            error = xp.where(known, energy[at, every], point.energy) - end.energy
            turned = has_turned(end.z[0], here, -there, error)
            moving = moving & ~turned & (tau < self.settings["max_depth"])
        log_probability = log_probability_of(L, lowest_lengths(tau, fraction), tau)
        return xp.where(impossible, -xp.inf, log_probability)

"""AutoStep of many chains: the transition of :mod:`refhmc.kernels.autostep`. A turn is a whole transition."""

from __future__ import annotations

from refhmc.batch.gist import SelfTunedTransitions, Tuned
from refhmc.batch.steps import Point
from refhmc.batch.table import where_point
from refhmc.kernels.autostep import chosen_exponent, ratio_of, thresholds
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class AutoStepTransitions(SelfTunedTransitions):
    """Transitions with a chosen step size; ``parameter`` has the exponents and thresholds of the present turn."""

    draws = 2

    def trial(self, rows: Array, start: Point, eps: Array, asked: Array) -> Point:
        """Return the points after n steps of the chains at the mask ``asked``."""
        xp, point = batched.namespace(eps), start
        for _ in range(int(self.settings["n_steps"])):
            point = self.step(rows, point, eps, asked & xp.isfinite(point.energy))
        return point

    def draw_and_move(self, rows: Array, start: Point, uniforms: Array) -> Tuned:
        xp, H0, eps = batched.namespace(self.H0), start.energy, self.chains.step_size[rows]
        low, high = thresholds(uniforms[:, 0], uniforms[:, 1])
        trials: list[tuple[Array, Point]] = []

        def ratio(j: Array, asked: Array) -> Array:
            there = self.trial(rows, start, 2.0**j * eps, asked)
            trials.append((xp.where(asked, j, xp.nan), there))
            return ratio_of(there.energy - H0, self.settings["symmetric"] > 0)

        j = chosen_exponent(ratio, 0 * H0, low, high, int(self.settings["max_doublings"]))
        end = start
        for exponents, there in trials:
            end = where_point(exponents == j, there, end)
        self.parameter, H = (j, low, high), end.energy
        error = xp.where(xp.isfinite(H), H - H0, 0.0)
        bounds = xp.minimum(H, H0), xp.maximum(H, H0)
        return Tuned(0 * H0, end, *bounds, error, 2.0**j * eps, trials[0][1].energy - H0, {})

    def log_probability_back(self, rows: Array, start: Point, tuned: Tuned) -> Array:
        xp, H, symmetric = batched.namespace(self.H0), tuned.end.energy, self.settings["symmetric"] > 0
        j, low, high = self.parameter
        back, known = -self.chains.step_size[rows], ratio_of(start.energy - H, symmetric)
        possible = xp.isfinite(H)

        def ratio(k: Array, asked: Array) -> Array:
            there = self.trial(rows, tuned.end, 2.0**k * back, asked & (k != j) & possible)
            return xp.where(k == j, known, ratio_of(there.energy - H, symmetric))

        most = int(self.settings["max_doublings"])
        same = chosen_exponent(ratio, 0 * H, low, high, most, wanted=j) == j
        return xp.where(same & possible, 0.0, -xp.inf)

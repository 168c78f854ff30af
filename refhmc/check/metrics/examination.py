"""A metric under examination: its functions, the points, and the results so far."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from refhmc.check.derivatives.examination import ROUNDING, DerivativeExamination
from refhmc.check.derivatives.points import short
from refhmc.check.derivatives.slopes import width_along
from refhmc.check.subject.foreign import Inconclusive


class MetricExamination(DerivativeExamination):
    """One metric under examination: G(q), its derivative, and quantities derived from it."""

    nowhere = "the metric is not finite at any of the points tried"
    ranks: ClassVar = dict.fromkeys(("G", "hessian"), 2) | {"dG": 3, "H": 0, "logp": 0, "log_det": 0}
    ranks |= dict.fromkeys(("grad_q", "grad_p", "solve"), 1)

    def __init__(
        self, functions: dict, index_order: str, support: Any, points: Any, seed: int, like: Any, dim: int | None = None
    ) -> None:
        super().__init__(functions, support, points, seed, like, dim)
        self.main = "G" if "G" in self.functions else "H"
        self.title = self.names.get(self.main, "a metric")
        self.order = index_order
        self.simple: list[np.ndarray] = []
        self.opposite: list[np.ndarray] = []  # points where two eigenvalues of the Hessian are l and -l
        self.found: list[str] = []

    @property
    def unit(self) -> float:
        """Rounding unit of G."""
        return self.epsilon("G", "H")

    def answer(self, key: str, *arguments: np.ndarray) -> np.ndarray:
        answer = super().answer(key, *arguments)
        # dG to [i, j, k]: axis m of the answer is the one named index_order[m]
        return np.transpose(answer, [self.order.index(letter) for letter in "ijk"]) if key == "dG" else answer

    def mass(self, q: np.ndarray) -> np.ndarray:
        """Return G(q), computed from H if it is not given; NaN if it raises."""
        return self.at("G")(q) if "G" in self.functions else mass_of_energy(self, q)

    def within(self, q: np.ndarray) -> bool:
        """Return whether q belongs to the domain, if that is known."""
        return self.inside(q) and ("logp" not in self.functions or bool(np.isfinite(self.at("logp")(q))))

    def good(self, q: np.ndarray) -> bool:
        return self.within(q) and bool(np.isfinite(self.mass(q)).all())

    def momenta(self, q: np.ndarray, n: int) -> list[np.ndarray]:
        """Return momenta of the size of the metric at q."""
        rng = np.random.default_rng([self.seed, 1])
        root = np.sqrt(np.abs(np.diag(self.mass(q))))
        return [short(root * rng.standard_normal(len(q))) for _ in range(n)]


def mass_of_energy(s: MetricExamination, q: np.ndarray) -> np.ndarray:
    """Return G(q) with G^-1 from second differences of H in p, which are exact for a quadratic.

    NaN if G^-1, scaled to a unit diagonal, has an eigenvalue that cannot be distinguished from zero: H does not define G there.
    """
    d, H = len(q), s.at("H")
    zero, here = np.zeros(d), H(q, np.zeros(d))
    widths = [width_along(lambda p: H(q, p), zero, u, unit=max(1.0, abs(float(here)))) for u in np.eye(d)]
    steps = np.eye(d) * np.array(widths)
    single = np.array([0.5 * (H(q, u) + H(q, -u)) - here for u in steps])
    A, largest = np.zeros((d, d)), max(abs(float(here)), np.abs(single).max())
    for i in range(d):
        A[i, i] = 2 * single[i] / widths[i] ** 2
        for j in range(i):
            both = 0.5 * (H(q, steps[i] + steps[j]) + H(q, -steps[i] - steps[j])) - here
            A[i, j] = A[j, i] = (both - single[i] - single[j]) / (widths[i] * widths[j])
            largest = max(largest, abs(both))
    unknown = np.full((d, d), np.nan)
    if not np.isfinite(A).all() or not single.all():
        return unknown
    root = np.sqrt(np.abs(np.diag(A)))
    least = np.abs(np.linalg.eigvalsh(A / np.outer(root, root))).min()
    rounding = ROUNDING * d * s.epsilon("H") * largest / np.abs(single).min()
    return np.linalg.inv(A) if least > rounding else unknown


Usable = list[tuple[np.ndarray, np.ndarray, float]]


def usable_test_points(s: MetricExamination, most: int = 8) -> Usable:
    """Return points with their G and the error of derived quantities from rounding, by the condition of G."""
    found, keys = [], ("G", "H", "logp", "solve", "log_det", "draw_p", "grad_p")
    for q in s.test_points(most):
        G = s.mass(q)
        values = np.linalg.eigvalsh(0.5 * (G + G.T)) if np.isfinite(G).all() else np.zeros(1)
        blur = ROUNDING * len(q) * s.epsilon(*keys) * float(values[-1] / values[0]) if values[0] > 0 else np.inf
        if blur < 0.01:
            found.append((q, G, blur))
    if not found:
        raise Inconclusive("the metric is not positive definite, or too ill-conditioned, at every point")
    return found

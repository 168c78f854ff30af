"""A model under examination: its functions, the points, and the results so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from refhmc.check.derivatives.claims import ALL_COORDINATES, Claim, directions_at
from refhmc.check.derivatives.examination import DerivativeExamination
from refhmc.check.derivatives.slopes import noise_along, width_along
from refhmc.check.subject.foreign import NotApplicable

ATTRIBUTES = {
    "logp": "log_density",
    "grad": "gradient",
    "hess": "hessian",
    "third": "third_derivative",
    "metric": "fisher",
    "metric_derivative": "fisher_derivative",
    "trace": "hessian_contraction",
    "metric_trace": "fisher_contraction",
    "change": "log_density_change",
}
LARGEST_TENSOR = 2**26  # numbers, half a GiB


def functions_of(logp: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the caller's functions by name; a model object provides those that are not given."""
    given = {"logp": logp, **given}
    if hasattr(logp, "log_density"):
        has = getattr(logp, "has", lambda attribute: hasattr(logp, attribute))
        for key in (key for key in ATTRIBUTES if given[key] is None or key == "logp"):
            given[key] = getattr(logp, ATTRIBUTES[key]) if has(ATTRIBUTES[key]) else None
    return given


class ModelExamination(DerivativeExamination):
    """One model under examination: a log density and the functions given as its derivatives."""

    nowhere = "logp is not finite at any of the points tried"
    ranks: ClassVar = {"logp": 0, "grad": 1, "hess": 2, "metric": 2, "third": 3, "metric_derivative": 3}

    def __init__(
        self,
        functions: dict,
        support: Any,
        points: Any,
        seed: int,
        like: Any,
        jumps: Iterable[int],
        dim: int | None = None,
    ) -> None:
        super().__init__(functions, support, points, seed, like, dim)
        self.discontinuous = sorted({int(k) for k in jumps})
        self.seen: dict[tuple, Claim] = {}
        self.widths: dict[bytes, np.ndarray] = {}
        self.failed: set[str] = set()
        self.too_large: set[str] = set()
        self.reference: Any = None

    def leave_out_large_tensors(self) -> None:
        """Leave out tensors of d^3 numbers if they are too large."""
        if self.dim**3 > LARGEST_TENSOR:
            self.too_large |= {"third", "metric_derivative"} & set(self.functions)
            self.functions = {key: f for key, f in self.functions.items() if key not in self.too_large}

    @property
    def smooth(self) -> np.ndarray:
        """Mask (d,), False at coordinates in which logp is known to jump, along which no derivative is taken."""
        mask = np.ones(self.dim, dtype=bool)
        mask[self.discontinuous] = False
        return mask

    def directions(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return directions (K, d) of derivatives: every coordinate, or with ``rng`` a selection in many dimensions."""
        if not self.smooth.any():
            raise NotApplicable("logp jumps in every coordinate")
        if rng is None:
            return np.eye(self.dim)[self.smooth]
        return directions_at(self.dim, self.frame.scales, rng, self.smooth)

    def good(self, q: np.ndarray) -> bool:
        return self.inside(q) and bool(np.isfinite(self.at("logp")(q)))

    def test_points(self, most: int) -> list[np.ndarray]:
        """Return fewer points for tensors, since every entry costs a call."""
        return super().test_points(most if self.dim <= ALL_COORDINATES else 2)

    def need(self, *keys: str) -> None:
        for key in (key for key in keys if key in self.too_large):
            raise NotApplicable(f"{key} has {self.dim}^3 entries; examine it in fewer dimensions")
        super().need(*keys)
        if not self.ordinary:  # a frame may exist nevertheless
            raise NotApplicable(self.nowhere)

    def noise_of(self, key: str, q: np.ndarray, widths: np.ndarray, least: float = 0.0) -> np.ndarray:
        """Return the errors of a function near q, with every coordinate moved by about its width."""
        return noise_along(self.at(key), q, widths * self.smooth / np.sqrt(len(q)), self.epsilon(key), least)


def noise_of_logp(s: ModelExamination) -> float:
    """Return the largest noise at a few points, relative to max(1, |logp|)."""
    logp, u = s.at("logp"), s.frame.scales * s.smooth / np.sqrt(s.dim)
    test_points = s.asymmetric[:2] + s.ordinary[:1]
    return max(float(noise_along(logp, q, u, 2.0**-52) / max(1.0, abs(float(logp(q))))) for q in test_points)


def widths_at(s: ModelExamination, q: np.ndarray) -> np.ndarray:
    """Return the lengths on which logp bends along the coordinates at q, or the frame's if it jumps there."""
    logp, key = s.at("logp"), q.tobytes()
    if key not in s.widths:
        triples = zip(np.eye(len(q)), s.frame.scales, s.smooth, strict=True)
        s.widths[key] = np.array([width_along(logp, q, u, start=w) if smooth else w for u, w, smooth in triples])
    return s.widths[key]

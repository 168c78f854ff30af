"""A model under examination: its functions, where they are looked at, and what has been found so far."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.check.derivatives.claims import ALL_COORDINATES, Claim, directions_at
from refhmc.check.derivatives.examination import DerivativeExamination
from refhmc.check.derivatives.points import inside_test
from refhmc.check.derivatives.slopes import noise_along, width_along
from refhmc.check.subject.foreign import Foreign, NotApplicable, SubjectError


def functions_of(
    logp, grad, hess, third, metric, metric_derivative, trace, metric_trace, change=None
) -> dict[str, Any]:
    """The caller's functions by name, those of a model object where they are not given themselves."""
    given = {
        "logp": logp,
        "grad": grad,
        "hess": hess,
        "third": third,
        "metric": metric,
        "metric_derivative": metric_derivative,
        "trace": trace,
        "metric_trace": metric_trace,
        "change": change,
    }
    if not hasattr(logp, "log_density"):
        return given
    attributes = {
        "logp": "log_density",
        "grad": "gradient",
        "hess": "hessian",
        "third": "third_derivative",
        "metric": "fisher",
        "metric_derivative": "fisher_derivative",
        "trace": "trace",
        "metric_trace": "fisher_trace",
        "change": "log_density_change",
    }
    has = getattr(logp, "has", lambda attribute: hasattr(logp, attribute))
    for key, attribute in attributes.items():
        if given[key] is None or key == "logp":
            given[key] = getattr(logp, attribute) if has(attribute) else None
    return given


def warm_up(functions: dict[str, Foreign], dim: int) -> None:
    """Call each once, off the clock."""
    q = np.zeros(dim)
    pair, matrix = (q, q), (q, np.eye(dim))
    arguments = {
        "change": (q, 0, 0.5),
        "trace": matrix,
        "metric_trace": matrix,
        "H": pair,
        "grad_q": pair,
        "grad_p": pair,
    }
    for key, function in functions.items():
        with contextlib.suppress(Exception):
            function.function(*((np.random.default_rng(0), q) if key == "draw_p" else arguments.get(key, (q,))))


LARGEST_TENSOR = 2**26  # numbers, half a GiB


class ModelExamination(DerivativeExamination):
    """One model under examination: a log density, and what is claimed to be derived from it."""

    nowhere = "no place is known at which logp is finite"

    def __init__(self, functions, support, points, seed, like, discontinuous=()):
        super().__init__(functions, support, points, seed, like)
        self.discontinuous = sorted({int(k) for k in discontinuous})
        self.seen: dict[tuple, Claim] = {}
        self.widths: dict[bytes, np.ndarray] = {}
        self.failed: set[str] = set()
        self.too_large: set[str] = set()
        self.reference = None

    # -- what the functions answer; NaN where they raise, unless ``strictly``

    def shape(self, key: str) -> tuple[int, ...]:
        rank = {"logp": 0, "grad": 1, "hess": 2, "metric": 2, "third": 3, "metric_derivative": 3}[key]
        return (self.dim or 0,) * rank

    def leave_out_large_tensors(self) -> None:
        """Those of d^3 numbers, where that is too many."""
        if (self.dim or 0) ** 3 > LARGEST_TENSOR:
            self.too_large |= {"third", "metric_derivative"} & set(self.functions)
            self.functions = {key: f for key, f in self.functions.items() if key not in self.too_large}

    @property
    def smooth(self) -> np.ndarray:
        """(d,), False at the coordinates in which logp is known to jump: no derivative is taken along those."""
        mask = np.ones(self.dim or 0, dtype=bool)
        mask[self.discontinuous] = False
        return mask

    def directions(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """(K, d), to take derivatives along: with ``rng`` some of many coordinates, without it every one."""
        assert self.frame is not None
        assert self.dim is not None
        if not self.smooth.any():
            raise NotApplicable("logp jumps in every coordinate")
        if rng is None:
            return np.eye(self.dim)[self.smooth]
        return directions_at(self.dim, self.frame.scales, rng, self.smooth)

    def strictly(self, key: str, q: np.ndarray) -> np.ndarray:
        answer = self.functions[key].vector(self.shape(key), q)
        if answer.dtype.kind == "c":
            raise SubjectError(f"{self.names[key]} answers a real question with a complex number", self.call(key, q))
        return answer

    def at(self, key: str) -> Callable[[np.ndarray], np.ndarray]:
        """The function of that name, complex where it is asked so; NaN where it raises or answers in another shape."""
        function, shape = self.functions[key], self.shape(key)

        def answer(q):
            try:
                value = function.vector(shape, q)
            except SubjectError:
                return np.full(shape, np.nan)
            return value if np.iscomplexobj(q) else value.real

        return answer

    def good(self, q: np.ndarray) -> bool:
        return inside_test(self.support)(q) and bool(np.isfinite(self.at("logp")(q)))

    def need(self, *keys: str) -> None:
        for key in (key for key in keys if key in self.too_large):
            raise NotApplicable(f"{key} has {self.dim}^3 numbers: look at it in fewer dimensions")
        super().need(*keys)
        if not self.ordinary:  # there may be a frame
            raise NotApplicable(self.nowhere)


def noise_of_logp(s: ModelExamination) -> float:
    """Relative to max(1, |logp|), the largest of a few places."""
    assert s.frame is not None
    logp, u = s.at("logp"), s.frame.scales * s.smooth / np.sqrt(len(s.frame.scales))
    test_points = s.asymmetric[:2] + s.ordinary[:1]
    return max(float(noise_along(logp, q, u, 2.0**-52) / max(1.0, abs(float(logp(q))))) for q in test_points)


def widths_at(s: ModelExamination, q: np.ndarray) -> np.ndarray:
    """The lengths on which logp bends along the coordinates at q; where it jumps, the frame's."""
    assert s.frame is not None
    logp, key = s.at("logp"), q.tobytes()
    if key not in s.widths:
        triples = zip(np.eye(len(q)), s.frame.scales, s.smooth, strict=True)
        s.widths[key] = np.array([width_along(logp, q, u, start=w) if smooth else w for u, w, smooth in triples])
    return s.widths[key]


def test_points_of(s: ModelExamination, most: int) -> list[np.ndarray]:
    """Fewer for tensors, whose every entry costs; asymmetric ones first."""
    test_points = [*s.asymmetric, *s.ordinary]
    most = most if (s.dim or 1) <= ALL_COORDINATES else 2
    if len(test_points) <= most:
        return test_points
    return [*s.asymmetric[: min(2, most - 1)], *s.ordinary[: max(1, most - 2)]]

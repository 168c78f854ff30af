"""Order 4 from order 2: several steps of a symmetric method, of sizes c_1 eps, c_2 eps, ... that add up to eps.

With sum c_k = 1 and sum c_k^3 = 0 the terms of third order cancel (Yoshida 1990; Suzuki 1990). The steps are made by
:mod:`refhmc.integrators.step`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from refhmc.numerics.batched import Array


class Composition:
    """Several steps of a symmetric method of order 2, of sizes that make one of order 4."""

    order = 4
    base: Any

    def __post_init__(self) -> None:
        if getattr(self.base, "order", None) != 2 or not hasattr(self.base, "pointer"):
            raise TypeError(f"the base of a composition must be an integrator of order 2, got {self.base!r}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)

    @property
    def cost(self) -> Any:
        return None if self.base.cost is None else len(self.parts) * self.base.cost

    def options(self) -> dict[str, float]:
        return self.base.options()

    def on_arrays(self) -> Callable:
        """Its step on arrays, of as many arrays as the base's."""
        return composed(self.base.on_arrays(), self.parts)


@dataclass(frozen=True)
class Yoshida(Composition):
    """Order 4 from three steps, (w, 1 - 2w, w) with w = 1/(2 - 2^(1/3)); Yoshida (1990). The middle one goes back."""

    name = "yoshida"
    base: Any

    @property
    def parts(self) -> tuple[float, ...]:
        w = 1 / (2 - 2 ** (1 / 3))
        return (w, 1 - 2 * w, w)


@dataclass(frozen=True)
class Suzuki(Composition):
    """Order 4 from five steps, (u, u, 1 - 4u, u, u) with u = 1/(4 - 4^(1/3)); Suzuki (1990). Smaller steps, smaller error."""

    name = "suzuki"
    base: Any

    @property
    def parts(self) -> tuple[float, ...]:
        u = 1 / (4 - 4 ** (1 / 3))
        return (u, u, 1 - 4 * u, u, u)


def composed(step: Callable, parts: Sequence[float]) -> Callable:
    """The step on arrays that is made of ``step`` with c_1 eps, c_2 eps, ..."""

    def steps(H: Any, *z_and_eps: Array) -> tuple:
        *z, eps = z_and_eps
        for part in parts:
            z = step(H, *z, part * eps)
        return tuple(z)

    return steps

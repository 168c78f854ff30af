"""Integrators: one step (q, p) -> (q', p') of Hamilton's equations, and what each promises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Leapfrog:
    """The leapfrog on a Euclidean metric, :mod:`refhmc.integrators.leapfrog`. ``cost``: gradients a step."""

    order = 2
    symplectic = True
    reversible = True
    exact = True
    cost = 1

    def pointer(self, metric):
        """The compiled step for that metric."""
        from refhmc.integrators.leapfrog import leapfrog_dense, leapfrog_diagonal

        return leapfrog_dense if metric.is_dense else leapfrog_diagonal


__all__ = ["Leapfrog"]

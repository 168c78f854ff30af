"""The naive split: the leapfrog, whose gradient is a sum over the parts of the data evaluated one after another.

    p <- p - eps/2 sum_m dU_m/dq;     q <- q + eps M^-1 p;     p <- p - eps/2 sum_m dU_m/dq

(Cobb and Jalaian 2021, eq. 8.) The step is the leapfrog's to the rounding of that sum, and its text is
:mod:`refhmc.integrators.leapfrog`; what a split model changes is that only one part is in memory at a time. M partial
gradients a step.
"""

from __future__ import annotations

from dataclasses import dataclass

from refhmc.integrators.leapfrog import Leapfrog


@dataclass(frozen=True)
class NaiveSplit(Leapfrog):
    """The leapfrog on ``model.split(M)``, by its own name."""

    name = "naive-split"

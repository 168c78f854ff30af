"""The naive split: the leapfrog, whose gradient is a sum over the parts of the data evaluated one after another.

    p <- p - eps/2 sum_m dU_m/dq;     q <- q + eps M^-1 p;     p <- p - eps/2 sum_m dU_m/dq

(Cobb and Jalaian 2021, eq. 8.) The step is that of the leapfrog up to the rounding of the sum, and uses the implementation of
:mod:`refhmc.integrators.leapfrog`. With a split model only one part is in memory at a time. M partial gradients per step.
"""

from __future__ import annotations

from dataclasses import dataclass

from refhmc.integrators.leapfrog import Leapfrog


@dataclass(frozen=True)
class NaiveSplit(Leapfrog):
    """The leapfrog for a split model, named after its place among the splits.

    With U = -L = sum_m U_m over the parts of ``model.split(M)``, one step of size eps is::

        p <- p - eps/2 sum_m dU_m/dq;     q <- q + eps M^-1 p;     p <- p - eps/2 sum_m dU_m/dq

    The method is the leapfrog: of order 2, symplectic, reversible, explicit and exact. It costs M partial gradients per
    step, and only one part of the data is in memory at a time.

    See Also
    --------
    SymmetricSplit : Moves the position after each part.
    RandomizedSplit : Moves the position after each part, with the parts in a random order.

    References
    ----------
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric splitting,
    equation 8.

    Examples
    --------
    >>> import refhmc
    >>> method = refhmc.integrators.NaiveSplit()
    >>> method.order, method.reversible, method.exact
    (2, True, True)
    """

    name = "naive-split"

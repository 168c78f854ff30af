"""Order 4 from order 2: several steps of a symmetric method, of sizes c_1 eps, c_2 eps, ... that add up to eps.

With sum c_k = 1 and sum c_k^3 = 0 the terms of third order cancel (Yoshida 1990; Suzuki 1990). The compiled steps are made by
:mod:`refhmc.integrators.step`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from refhmc.integrators.base import ArrayIntegrator
from refhmc.metrics.base import HamiltonianOnArrays
from refhmc.numerics.batched import Array


class Composition:
    """Base class of the compositions: several steps of a symmetric method of order 2 that make one step of order 4."""

    order = 4
    base: ArrayIntegrator

    def __post_init__(self) -> None:
        if getattr(self.base, "order", None) != 2 or not hasattr(self.base, "pointer"):
            raise TypeError(f"base must be an integrator of order 2; got {self.base!r}. Give for example Leapfrog().")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)

    @property
    def cost(self) -> int | None:
        """Number of evaluations per step; None if the solver decides."""
        return None if self.base.cost is None else len(self.parts) * self.base.cost

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions, those of the base.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return self.base.options()

    def on_arrays(self) -> Callable:
        """Return the step on arrays, which takes as many arrays as that of the base.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return composed(self.base.on_arrays(), self.parts)


@dataclass(frozen=True)
class Yoshida(Composition):
    """Method of order 4 composed of three steps of a symmetric method of order 2.

    A step of size eps consists of steps of sizes c_1 eps, c_2 eps and c_3 eps, of which the middle one goes backward in time::

        (c_1, c_2, c_3) = (w, 1 - 2w, w),      w = 1 / (2 - 2^(1/3))

    They satisfy sum c_k = 1 and sum c_k^3 = 0. The composition has order 4. It is symplectic, reversible and exact if its base
    is.

    Parameters
    ----------
    base : object
        An integrator of `refhmc.integrators` of order 2.

    Raises
    ------
    TypeError
        If `base` is not an integrator of order 2.

    See Also
    --------
    Suzuki : Five steps with a smaller error.

    References
    ----------
    Yoshida (1990), Construction of higher order symplectic integrators.

    Examples
    --------
    >>> import refhmc
    >>> method = refhmc.integrators.Yoshida(refhmc.integrators.Leapfrog())
    >>> method.order, method.cost
    (4, 3)
    >>> H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    >>> path = refhmc.integrate(H, method, [1.0], [0.0], step_size=0.1, n_steps=10)
    >>> bool(abs(path.energy - path.energy[0]).max() < 1e-5)
    True
    """

    name = "yoshida"
    base: ArrayIntegrator

    @property
    def parts(self) -> tuple[float, ...]:
        """The sizes c_k of the steps, relative to the whole step."""
        w = 1 / (2 - 2 ** (1 / 3))
        return (w, 1 - 2 * w, w)


@dataclass(frozen=True)
class Suzuki(Composition):
    """Method of order 4 composed of five steps of a symmetric method of order 2.

    A step of size eps consists of steps of sizes c_k eps::

        (c_1, ..., c_5) = (u, u, 1 - 4u, u, u),      u = 1 / (4 - 4^(1/3))

    They satisfy sum c_k = 1 and sum c_k^3 = 0. The steps and the error are smaller than those of ``Yoshida``. The
    composition has order 4. It is symplectic, reversible and exact if its base is.

    Parameters
    ----------
    base : object
        An integrator of `refhmc.integrators` of order 2.

    Raises
    ------
    TypeError
        If `base` is not an integrator of order 2.

    See Also
    --------
    Yoshida : Three steps.

    References
    ----------
    Suzuki (1990), Fractal decomposition of exponential operators.

    Examples
    --------
    >>> import refhmc
    >>> method = refhmc.integrators.Suzuki(refhmc.integrators.Leapfrog())
    >>> method.order, method.cost
    (4, 5)
    >>> H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    >>> path = refhmc.integrate(H, method, [1.0], [0.0], step_size=0.1, n_steps=10)
    >>> bool(abs(path.energy - path.energy[0]).max() < 1e-6)
    True
    """

    name = "suzuki"
    base: ArrayIntegrator

    @property
    def parts(self) -> tuple[float, ...]:
        """The sizes c_k of the steps, relative to the whole step."""
        u = 1 / (4 - 4 ** (1 / 3))
        return (u, u, 1 - 4 * u, u, u)


def composed(step: Callable, parts: Sequence[float]) -> Callable:
    """Compose a step on arrays of several steps.

    Parameters
    ----------
    step : callable
        The step, ``step(H, q, p, eps)``, or one with more arrays between `H` and `eps`.
    parts : sequence of float
        The sizes c_1, c_2, ... of the steps, relative to the whole step.

    Returns
    -------
    callable
        The composed step, with the same arguments as `step`.
    """

    def steps(H: HamiltonianOnArrays, *z_and_eps: Array) -> tuple:
        *z, eps = z_and_eps
        for part in parts:
            z = step(H, *z, part * eps)
        return tuple(z)

    return steps

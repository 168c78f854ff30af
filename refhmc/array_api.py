"""Array implementations of all metrics, integrators and kernels, with free leading axes (..., d).

They follow the mathematical notation, and work with any namespace of the Python array API::

    H = refhmc.array_api.hamiltonian(refhmc.models.Funnel(3), refhmc.metrics.SoftAbs())
    p = H.draw_momentum(q, rng.standard_normal(q.shape))                        # q: (..., d), any number of chains
    q, p = refhmc.array_api.implicit_midpoint(H, q, p, 0.1)
    moves = refhmc.array_api.hmc(H, refhmc.integrators.GeneralizedLeapfrog().on_arrays(), q, p, u, step_size=0.1, n_steps=10)

Each array implementation is in the file of the compiled implementation, which is tested against it
(``tests/integrators/test_array_texts.py``, ``tests/kernels/test_array_transitions.py``). They are plain Python, which a
debugger can step through. A chain whose solver fails, or that has no metric at its position, is NaN from then on. Other
chains are not affected. NumPy then warns of invalid values; ``np.errstate(all="ignore")`` silences it.

The steps of the implicit integrators have no reversibility check. The functions of this module solve them by plain
fixed-point iteration. The step that an integrator's ``on_arrays()`` returns uses the ``solver`` of the integrator with its
options.
"""

from __future__ import annotations

from typing import Any

from refhmc.batch.recorded import Transitions
from refhmc.batch.recorded import transitions as transitions_of_text
from refhmc.integrators.composition import composed
from refhmc.integrators.discontinuous import step as discontinuous
from refhmc.integrators.explicit_tao import step as explicit_tao
from refhmc.integrators.gaussian_split import step as gaussian_split
from refhmc.integrators.generalized_leapfrog import step as generalized_leapfrog
from refhmc.integrators.implicit_midpoint import step as implicit_midpoint
from refhmc.integrators.implicit_midpoint import step_by_midpoint as implicit_midpoint_by_midpoint
from refhmc.integrators.leapfrog import step as leapfrog
from refhmc.integrators.projected_tao import step as projected_tao
from refhmc.integrators.randomized_split import step as randomized_split
from refhmc.integrators.symmetric_split import step as symmetric_split
from refhmc.kernels.dhmc import transition as dhmc
from refhmc.kernels.hmc import transition as hmc
from refhmc.kernels.nuts import transition as nuts
from refhmc.kernels.stochastic_gradient import transition as stochastic_gradient
from refhmc.metrics.base import HamiltonianOnArrays
from refhmc.metrics.laplace import LaplaceOnArrays
from refhmc.models.base import Model
from refhmc.models.on_arrays import ModelOnArrays, TextOnArrays
from refhmc.numerics.batched import fixed_point, iterate

__all__ = [
    "HamiltonianOnArrays",
    "LaplaceOnArrays",
    "ModelOnArrays",
    "TextOnArrays",
    "Transitions",
    "composed",
    "dhmc",
    "discontinuous",
    "discontinuous_hamiltonian",
    "explicit_tao",
    "fixed_point",
    "gaussian_split",
    "generalized_leapfrog",
    "hamiltonian",
    "hmc",
    "implicit_midpoint",
    "implicit_midpoint_by_midpoint",
    "iterate",
    "leapfrog",
    "nuts",
    "projected_tao",
    "randomized_split",
    "stochastic_gradient",
    "symmetric_split",
    "transitions",
]


def hamiltonian(model: Any, metric: Any, xp: Any = None) -> HamiltonianOnArrays:
    """Return the Hamiltonian H(q, p) of a model and a metric, for arrays (..., d).

    Parameters
    ----------
    model : Model
        The model. Also an object with its functions on arrays, such as :class:`ModelOnArrays` or :class:`TextOnArrays`.
    metric : Metric
        The metric.
    xp : module, optional
        Array namespace for the model's array implementation and its data (:meth:`refhmc.Model.on_arrays`). Defaults to the
        model's compiled functions, on NumPy.

    Returns
    -------
    HamiltonianOnArrays
        The Hamiltonian.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> H = refhmc.array_api.hamiltonian(refhmc.models.Funnel(1), refhmc.metrics.Identity())
    >>> H.energy(np.zeros((5, 2)), np.ones((5, 2))).shape
    (5,)
    """
    return metric.on_arrays(functions_of(model, xp))


def discontinuous_hamiltonian(model: Any, metric: Any, xp: Any = None) -> LaplaceOnArrays:
    """Return the Hamiltonian of discontinuous HMC, with Laplace momenta.

    Parameters
    ----------
    model : Model
        The model. Also an object with its functions on arrays, such as :class:`ModelOnArrays` or :class:`TextOnArrays`.
    metric : Identity or Diagonal
        The metric, ``Identity()`` or ``Diagonal(variances)``.
    xp : module, optional
        Array namespace for the model's array implementation and its data (:meth:`refhmc.Model.on_arrays`). Defaults to the
        model's compiled functions, on NumPy.

    Returns
    -------
    LaplaceOnArrays
        The Hamiltonian.
    """
    return LaplaceOnArrays(functions_of(model, xp), metric)


def transitions(model: Any, kernel: Any, q: Any, normals: Any, uniforms: Any, xp: Any = None) -> Transitions:
    """Run one transition of many chains with given random numbers.

    The transition is that of ``sample(..., backend="arrays")``.

    Parameters
    ----------
    model : Model
        The model. Also an object with its functions on arrays, such as :class:`ModelOnArrays` or :class:`TextOnArrays`.
    kernel : HMC, NUTS or DHMC
        Kernel with a step size.
    q : array of shape (n, d)
        Positions of n chains, in a namespace with writable arrays.
    normals : array of shape (n, d)
        Normal random numbers, for the momenta.
    uniforms : array of shape (n, k)
        Uniform random numbers, in the order of :mod:`refhmc.core.randomness`.
    xp : module, optional
        Array namespace for the model's array implementation and its data (:meth:`refhmc.Model.on_arrays`). Defaults to the
        model's compiled functions, on NumPy.

    Returns
    -------
    Transitions
        New positions, statistics and the random numbers used.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> rng, q = np.random.default_rng(1), np.zeros((5, 2))
    >>> kernel = refhmc.HMC(step_size=0.1, n_steps=3)
    >>> moves = refhmc.array_api.transitions(
    ...     refhmc.models.Funnel(1), kernel, q, rng.standard_normal(q.shape), rng.random((5, 8))
    ... )
    >>> moves.q.shape
    (5, 2)
    """
    return transitions_of_text(functions_of(model, xp), kernel, q, normals, uniforms)


def functions_of(model: Any, xp: Any) -> Any:
    """Return a model's functions on arrays."""
    if not isinstance(model, Model):
        return model
    return ModelOnArrays(model) if xp is None else model.on_arrays(xp)

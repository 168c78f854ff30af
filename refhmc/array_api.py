"""Array implementations of all metrics, integrators and kernels, for any namespace of the Python array API.

They have the names of the mathematics and free leading axes, ``(..., d)``::

    H = refhmc.array_api.hamiltonian(refhmc.models.Funnel(3), refhmc.metrics.SoftAbs())
    p = H.draw_momentum(q, rng.standard_normal(q.shape))                        # q: (..., d), any number of chains
    q, p = refhmc.array_api.implicit_midpoint(H, q, p, 0.1)
    moves = refhmc.array_api.hmc(H, refhmc.integrators.GeneralizedLeapfrog().on_arrays(), q, p, u, step_size=0.1, n_steps=10)

Each function is defined next to its compiled counterpart, which is tested against it
(``tests/integrators/test_array_integrators.py``, ``tests/kernels/test_array_transitions.py``). They are plain Python, so that a
debugger can step through them. A chain for which a solver fails, or whose metric cannot be factorised, is NaN from there
on, and other chains are not affected. (NumPy then warns of invalid values; ``np.errstate(all="ignore")`` silences it.)

The steps of the implicit integrators have no reversibility check. The functions of this module solve them by plain fixed-point
iteration. The step that an integrator's ``on_arrays()`` returns uses the integrator's ``solver`` and its options.
"""

from __future__ import annotations

from types import ModuleType

from refhmc.batch.recorded import Transitions
from refhmc.batch.recorded import transitions as transitions_of_text
from refhmc.integrators.block_leapfrog import step as block_leapfrog
from refhmc.integrators.composition import composed
from refhmc.integrators.discontinuous import step as discontinuous
from refhmc.integrators.explicit_tao import step as explicit_tao
from refhmc.integrators.gaussian_split import step as gaussian_split
from refhmc.integrators.generalized_leapfrog import step as generalized_leapfrog
from refhmc.integrators.implicit_midpoint import step as implicit_midpoint
from refhmc.integrators.implicit_midpoint import step_by_midpoint as implicit_midpoint_by_midpoint
from refhmc.integrators.leapfrog import step as leapfrog
from refhmc.integrators.microcanonical import drifts_and_turns
from refhmc.integrators.projected_tao import step as projected_tao
from refhmc.integrators.randomized_split import step as randomized_split
from refhmc.integrators.splitting import kicks_and_drifts
from refhmc.integrators.symmetric_split import step as symmetric_split
from refhmc.kernels.autostep import transition as autostep
from refhmc.kernels.dhmc import transition as dhmc
from refhmc.kernels.drhmc import transition as drhmc
from refhmc.kernels.ghmc import transition as ghmc
from refhmc.kernels.gist import self_tuning
from refhmc.kernels.gist import transition as gist
from refhmc.kernels.hmc import transition as hmc
from refhmc.kernels.malt import transition as malt
from refhmc.kernels.mams import transition as mams
from refhmc.kernels.mclmc import transition as mclmc
from refhmc.kernels.nuts import transition as nuts
from refhmc.kernels.options import Kernel
from refhmc.kernels.stochastic_gradient import transition as stochastic_gradient
from refhmc.kernels.walnuts import transition as walnuts
from refhmc.metrics import Diagonal, Identity
from refhmc.metrics.base import ArrayMetric, ArrayModel, HamiltonianOnArrays
from refhmc.metrics.laplace import LaplaceOnArrays
from refhmc.models.base import Model
from refhmc.models.model_on_arrays import ModelOnArrays
from refhmc.models.on_arrays import ArrayImplementation
from refhmc.numerics.batched import Array, fixed_point, iterate

__all__ = [
    "ArrayImplementation",
    "HamiltonianOnArrays",
    "LaplaceOnArrays",
    "ModelOnArrays",
    "Transitions",
    "autostep",
    "block_leapfrog",
    "composed",
    "dhmc",
    "discontinuous",
    "discontinuous_hamiltonian",
    "drhmc",
    "drifts_and_turns",
    "explicit_tao",
    "fixed_point",
    "gaussian_split",
    "generalized_leapfrog",
    "ghmc",
    "gist",
    "hamiltonian",
    "hmc",
    "implicit_midpoint",
    "implicit_midpoint_by_midpoint",
    "iterate",
    "kicks_and_drifts",
    "leapfrog",
    "malt",
    "mams",
    "mclmc",
    "nuts",
    "projected_tao",
    "randomized_split",
    "self_tuning",
    "stochastic_gradient",
    "symmetric_split",
    "transitions",
    "walnuts",
]


def hamiltonian(model: Model | ArrayModel, metric: ArrayMetric, xp: ModuleType | None = None) -> HamiltonianOnArrays:
    """Return the Hamiltonian of a model on a metric, on arrays (..., d).

    Parameters
    ----------
    model : Model or object
        The model, or an object with the methods of :class:`ModelOnArrays` and :class:`ArrayImplementation`.
    metric : object
        A metric of `refhmc.metrics`.
    xp : namespace, optional
        Namespace of the array API for the model's own array implementation, with its data there
        (:meth:`refhmc.Model.on_arrays`). By default the model's compiled functions are used, on NumPy.

    Returns
    -------
    HamiltonianOnArrays
        The Hamiltonian, its derivatives and the momentum draw.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> H = refhmc.array_api.hamiltonian(refhmc.models.Funnel(3), refhmc.metrics.SoftAbs())
    >>> q = np.full((5, 4), 0.5)
    >>> p = H.draw_momentum(q, np.ones((5, 4)))
    >>> q, p = refhmc.array_api.implicit_midpoint(H, q, p, 0.1)
    >>> q.shape, H.energy(q, p).shape
    ((5, 4), (5,))
    """
    return metric.on_arrays(functions_of(model, xp))


def discontinuous_hamiltonian(
    model: Model | ArrayModel, metric: Identity | Diagonal, xp: ModuleType | None = None
) -> LaplaceOnArrays:
    """Return the Hamiltonian of discontinuous HMC, with the Laplace momentum, on arrays (..., d).

    Parameters
    ----------
    model : Model or object
        The model, or an object with its functions on arrays.
    metric : Identity or Diagonal
        The metric.
    xp : namespace, optional
        Namespace of the array API for the model's own array implementation, as in :func:`hamiltonian`.

    Returns
    -------
    LaplaceOnArrays
        The Hamiltonian, the velocity and the momentum draw.
    """
    return LaplaceOnArrays(functions_of(model, xp), metric)


def transitions(
    model: Model | ArrayModel,
    kernel: Kernel,
    q: Array,
    normals: Array,
    uniforms: Array,
    xp: ModuleType | None = None,
    *,
    momentum: Array | None = None,
    slice_variable: Array | None = None,
) -> Transitions:
    """Make one transition of many chains on given random numbers.

    The transition is that of ``refhmc.sample`` with ``backend="arrays"``. The random numbers are used in the order of
    :mod:`refhmc.core.randomness`.

    Parameters
    ----------
    model : Model or object
        The model, or an object with its functions on arrays.
    kernel : HMC, NUTS, DHMC, GHMC, DRHMC, MALT, MAMS, MCLMC, GIST or AutoStep
        The kernel, with a step size.
    q : array, shape (n, d)
        Positions of the chains.
    normals : array, shape (n, d)
        Standard normals, from which the momenta are made.
    uniforms : array, shape (n, k)
        Uniforms on [0, 1). For MALT and MCLMC, also the standard normals of the later refreshments, in their places.
    xp : namespace, optional
        Namespace of the array API for the model's own array implementation, as in :func:`hamiltonian`. Its arrays must be
        writable.
    momentum : array, shape (n, d), optional
        Momenta after the last transition, for a kernel that keeps them. By default all of the momenta is drawn.
    slice_variable : array, shape (n,), optional
        Slice variables after the last transition, for GHMC with a `slice_shift`. By default they are drawn.

    Returns
    -------
    Transitions
        Positions after the transition, statistics, and the use of the uniforms.

    Raises
    ------
    TypeError
        If the kernel has no implementation for many chains.
    ValueError
        If the kernel has no step size, or if a chain needs more than k uniforms.
    refhmc.errors.ShapeError
        If the arrays do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> q, kernel = np.zeros((3, 2)), refhmc.HMC(step_size=0.1, n_steps=2)
    >>> moved = refhmc.array_api.transitions(refhmc.models.Funnel(1), kernel, q, np.ones((3, 2)), np.full((3, 1), 0.5))
    >>> moved.q.shape, moved.uniforms_used
    ((3, 2), array([1, 1, 1]))
    """
    kept = (momentum, slice_variable)
    return transitions_of_text(functions_of(model, xp), kernel, q, normals, uniforms, *kept)


def functions_of(model: Model | ArrayModel, xp: ModuleType | None) -> ArrayModel:
    """Return a model's functions on arrays."""
    if not isinstance(model, Model):
        return model
    return ModelOnArrays(model) if xp is None else model.on_arrays(xp)


def __getattr__(name: str) -> type:
    if name != "TextOnArrays":
        raise AttributeError(f"module 'refhmc.array_api' has no attribute {name!r}")
    from refhmc._deprecated import warn_of_old_name

    warn_of_old_name("refhmc.array_api.TextOnArrays", "refhmc.array_api.ArrayImplementation")
    return ArrayImplementation

"""The texts on arrays, in one place: every metric, integrator and kernel in the mathematics' own names, with leading axes left
free, ``(..., d)``, for any namespace of the Python array API.

    H = refhmc.array_api.hamiltonian(refhmc.models.Funnel(3), refhmc.metrics.SoftAbs())
    p = H.draw_momentum(q, rng.standard_normal(q.shape))                        # q: (..., d), as many chains as you like
    q, p = refhmc.array_api.implicit_midpoint(H, q, p, 0.1)
    moves = refhmc.array_api.hmc(H, refhmc.integrators.GeneralizedLeapfrog().on_arrays(), q, p, u, step_size=0.1, n_steps=10)

Each stands in the file of what it is the text of, above the compiled one, which is tested against it
(``tests/integrators/test_array_texts.py``, ``tests/kernels/test_array_transitions.py``). They are plain Python: a debugger
steps through them. A chain that a solver fails for, or that has no metric where it stands, is NaN from there on, and no other
chain is touched. (NumPy then warns of what is not a number; ``np.errstate(all="ignore")`` silences it.)

The steps of the implicit integrators have no reversibility check. The functions of this module solve them by plain fixed-point
iteration; the step that an integrator's ``on_arrays()`` returns uses the integrator's ``solver`` and its options.
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
    """H(q, p) of a model on a metric, (..., d). ``model``: a :class:`refhmc.Model`; or an object with its functions on
    arrays, as :class:`ModelOnArrays` and :class:`TextOnArrays` have them.

    ``xp``: None for the model's compiled functions, on NumPy; a namespace for its own text, with its data there
    (:meth:`refhmc.Model.on_arrays`).
    """
    return metric.on_arrays(functions_of(model, xp))


def discontinuous_hamiltonian(model: Any, metric: Any, xp: Any = None) -> LaplaceOnArrays:
    """That of discontinuous HMC, with the Laplace momentum; ``metric``: ``Identity()`` or ``Diagonal(variances)``."""
    return LaplaceOnArrays(functions_of(model, xp), metric)


def transitions(model: Any, kernel: Any, q: Any, normals: Any, uniforms: Any, xp: Any = None) -> Transitions:
    """One transition of many chains, of the kernel as ``sample(..., backend="arrays")`` runs it, on given numbers: q and the
    normals (n, d), the uniforms (n, k), in the order of :mod:`refhmc.core.randomness`.

    ``kernel``: HMC, NUTS or DHMC with a step size. ``model``, ``xp``: as in :func:`hamiltonian`; arrays of a namespace that can
    be written to. What is raised: :func:`refhmc.batch.recorded.transitions`.
    """
    return transitions_of_text(functions_of(model, xp), kernel, q, normals, uniforms)


def functions_of(model: Any, xp: Any) -> Any:
    """A model's functions on arrays."""
    if not isinstance(model, Model):
        return model
    return ModelOnArrays(model) if xp is None else model.on_arrays(xp)

"""Two ways to bind the source code of a kernel to a model.

A kernel calls the metric, the step and the model through its arguments. **By pointer**, these are typed pointers, and the
kernel is compiled once for all models. **Fused**, they are the functions themselves. The kernel is then compiled for this
kernel, integrator, metric, model and dimension, and LLVM can optimise across all of them. The pointers that the loops call
do not change: a fused transition, or step, has the signature of one by pointer and reads only the data from its pointers.

A kernel on a diagonal metric with the leapfrog, whose steps cost less than a call through a pointer, always has these two fused
and the model by pointer. This is also compiled only once.

The arithmetic is the same code in the same order. Only sums that may be reordered (:func:`refhmc.compile.compiled.jit_sum`,
``jit_products``) may be rounded differently when LLVM compiles them in another context. If neither the metric nor the model has
such sums in the force, trajectories are identical to those by pointer. The energy has one, p . v, so that its last bits may
differ, and with them an adapted step size and, rarely, a decision. Otherwise draws may differ in the last bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numba
import numpy as np

from refhmc.compile.compiled import jit_bound, of_width
from refhmc.compile.identity import identity_of
from refhmc.errors import ModelError, ShapeError
from refhmc.models.binding.trampolines import python_value_and_gradient

if TYPE_CHECKING:
    from refhmc.dynamics.assemble import Dynamics
    from refhmc.models.base import Model


KEPT = functools.lru_cache(maxsize=256)  # per process


@KEPT
def fused_transition(transition: Callable, dynamics: tuple, functions: tuple, d: int) -> Callable:
    """Return a transition for which the dynamics, the model's four ``functions`` and its dimension are known."""
    value_and_gradient, metric, hessian_contraction, change = functions
    rows, matrices = of_width(d), of_width(d, 2)

    def fused(
        _: tuple,
        model: tuple,
        workspace: tuple,
        randomness: tuple,
        settings: np.record,
        stats: np.record,
        control: np.record,
    ) -> int:
        known = (model[0], value_and_gradient, metric, hessian_contraction, change)
        points, tree, normals, own, (vecs, mats, options, cache, counters, status) = workspace
        work = (rows(vecs), matrices(mats), options, cache, counters, status)
        space = (rows(points), rows(tree), rows(normals), rows(own), work)
        return transition(dynamics, known, space, randomness, settings, stats, control)

    return bound(fused, transition, dynamics, functions, d)


@KEPT
def transition_with(transition: Callable, dynamics: tuple) -> Callable:
    """Return a transition for which the dynamics are known, with the model by pointer."""

    def with_dynamics(
        _: tuple,
        model: tuple,
        workspace: tuple,
        randomness: tuple,
        settings: np.record,
        stats: np.record,
        control: np.record,
    ) -> int:
        return transition(dynamics, model, workspace, randomness, settings, stats, control)

    return bound(with_dynamics, transition, dynamics)


@KEPT
def fused_step(step: Callable, metric: tuple, functions: tuple, d: int) -> Callable:
    """Return an integrator's step for which the metric, the model's four ``functions`` and its dimension are known."""
    value_and_gradient, metric_of_model, hessian_contraction, change = functions
    rows, matrices = of_width(d), of_width(d, 2)

    def fused(model: tuple, _: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
        known = (model[0], value_and_gradient, metric_of_model, hessian_contraction, change)
        vecs, mats, options, cache, counters, status = work
        space = (rows(vecs), matrices(mats), options, cache, counters, status)
        return step(known, metric, rows(z), eps, space, rows(own))

    return bound(fused, step, metric, functions, d)


def with_fused_step(dynamics: Dynamics, model: Model) -> Dynamics:
    """Return a model's dynamics with a fused step. Raises the errors of :func:`functions_to_fuse`."""
    kind, refresh, step, metric = dynamics.pointers
    fused = fused_step(step, metric, functions_to_fuse(model, dynamics), model.dim)
    return dynamics._replace(pointers=(kind, refresh, fused, metric))


def bound(function: Callable, *known: object) -> Callable:
    """Return ``function``, compiled, which closes over the objects in ``known``.

    It is cached on disk if these objects can be identified.
    """
    return jit_bound(function, [each for each in flat(known) if callable(each)], identity_of(known))


def functions_to_fuse(model: Model, dynamics: Dynamics) -> tuple:
    """Return the four functions of a model's tuple.

    Raises ModelError if they run as Python, and ShapeError for a metric whose rows do not have the width of the model,
    which fused code does not check.
    """
    pointers, d = dynamics.model, model.dim
    for name, stack, shape in (("vecs", dynamics.vecs, (d,)), ("mats", dynamics.mats, (d, d))):
        if stack.shape[1:] != shape:
            wanted = ", ".join(map(str, ("k", *shape)))
            raise ShapeError(
                f"{name} of the metric {type(dynamics.metric).__name__} must have shape ({wanted}) for a model of dimension "
                f"{d} and fuse=True; got {stack.shape}."
            )
    why = model.runs_as_python
    if pointers[1] is python_value_and_gradient:
        why = why or "because one of its derivatives cannot be compiled"
    if why and not numba.config.DISABLE_JIT:
        raise ModelError(
            f"fuse must be False for model {model.name!r}, which runs as Python ({why}). "
            "Only compiled functions can be fused with the kernel."
        )
    return pointers[1:]


def flat(known: object) -> list:
    """Return the elements of nested tuples."""
    return [part for each in known for part in flat(each)] if isinstance(known, tuple) else [known]

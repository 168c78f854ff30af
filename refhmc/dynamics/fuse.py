"""Two bindings of one text.

The text of a kernel calls the metric, the step and the model through what it is handed. **By pointer** it is handed typed
pointers: it is compiled once, for every model. **Fused** it is handed the functions themselves: it is compiled for this
kernel, integrator, metric, model and dimension, and LLVM sees through all of them. The pointers that the loops call stay as
they are: a fused transition, or step, has the signature of one by pointer and reads no more than the data out of the pointers
it is given.

A kernel on a diagonal metric with the leapfrog, whose steps cost less than a call through a pointer, is always handed these
two, and the model by pointer: this is compiled once, too.

The arithmetic is the same text in the same order. Only sums that may be reordered (:func:`refhmc.core.compiled.jit_sum`,
``jit_products``) may be rounded otherwise when LLVM compiles them in another place. Where neither the metric nor the model has
any of these in the force, trajectories are those by pointer bit for bit; the energy has one, p . v, so that its last bits may
differ, and by them what depends on it: an adapted step size, rarely a decision. Otherwise draws may differ in the last bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from refhmc.core.binding import python_value_and_gradient
from refhmc.core.compiled import jit_bound, of_width
from refhmc.core.identity import identity_of
from refhmc.errors import ModelError, ShapeError

if TYPE_CHECKING:
    from refhmc.dynamics.assemble import Dynamics
    from refhmc.models.base import Model


KEPT = functools.lru_cache(maxsize=256)  # of the process


@KEPT
def fused_transition(transition: Callable, dynamics: tuple, functions: tuple, d: int) -> Any:
    """A transition with the dynamics, the model's four ``functions`` and its dimension known."""
    value_and_gradient, metric, hessian_contraction, change = functions
    rows, matrices = of_width(d), of_width(d, 2)

    def fused(
        _: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
    ) -> int:
        known = (model[0], value_and_gradient, metric, hessian_contraction, change)
        points, tree, normals, own, trajectory, (vecs, mats, options, cache, counters, status) = workspace
        work = (rows(vecs), matrices(mats), options, cache, counters, status)
        space = (rows(points), rows(tree), rows(normals), rows(own), trajectory, work)
        return transition(dynamics, known, space, randomness, settings, stats, control)

    return bound(fused, transition, dynamics, functions, d)


@KEPT
def transition_with(transition: Callable, dynamics: tuple) -> Any:
    """A transition with the dynamics known, and the model by pointer."""

    def with_dynamics(
        _: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
    ) -> int:
        return transition(dynamics, model, workspace, randomness, settings, stats, control)

    return bound(with_dynamics, transition, dynamics)


@KEPT
def fused_step(step: Callable, metric: tuple, functions: tuple, d: int) -> Any:
    """An integrator's step with the metric, the model's four ``functions`` and its dimension known."""
    value_and_gradient, metric_of_model, hessian_contraction, change = functions
    rows, matrices = of_width(d), of_width(d, 2)

    def fused(model: tuple, _: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
        known = (model[0], value_and_gradient, metric_of_model, hessian_contraction, change)
        vecs, mats, options, cache, counters, status = work
        space = (rows(vecs), matrices(mats), options, cache, counters, status)
        return step(known, metric, rows(z), eps, space, rows(own))

    return bound(fused, step, metric, functions, d)


def with_fused_step(dynamics: Dynamics, model: Model) -> Dynamics:
    """A model's dynamics whose step is fused. Raises what :func:`functions_to_fuse` does."""
    kind, refresh, step, metric = dynamics.pointers
    fused = fused_step(step, metric, functions_to_fuse(model, dynamics), model.dim)
    return dynamics._replace(pointers=(kind, refresh, fused, metric))


def bound(function: Callable, *known: Any) -> Any:
    """``function``, which closes over what is in ``known``; kept on disk if it can be said what these functions are."""
    return jit_bound(function, [each for each in flat(known) if callable(each)], identity_of(known))


def functions_to_fuse(model: Model, dynamics: Dynamics) -> tuple:
    """The four functions of a model's tuple. Raises ModelError where they are called back as Python, ShapeError for a metric
    whose rows are not as wide as the model: fused code does not look."""
    pointers, d = dynamics.model, model.dim
    for name, stack, shape in (("vecs", dynamics.vecs, (d,)), ("mats", dynamics.mats, (d, d))):
        if stack.shape[1:] != shape:
            wanted = ", ".join(map(str, ("k", *shape)))
            raise ShapeError(
                f"fuse=True: {name} of the metric {type(dynamics.metric).__name__} must have the shape ({wanted}) "
                f"of a model of dimension {d}, has {stack.shape}"
            )
    why = model.runs_as_python
    if pointers[1] is python_value_and_gradient:
        why = why or "one of its derivatives cannot be compiled"
    if why and not numba.config.DISABLE_JIT:
        raise ModelError(
            f"fuse=True: model {model.name!r} runs as Python, {why}: there is nothing to compile into the kernel"
        )
    return pointers[1:]


def flat(known: Any) -> list:
    """What is in nested tuples."""
    return [part for each in known for part in flat(each)] if isinstance(known, tuple) else [known]

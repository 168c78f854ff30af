"""The distribution of some coordinates of a model, a *block*, given all others: what Gibbs sampling alternates between.

Up to a constant its log density is that of the joint model at the full position, so its gradient is a part of the joint
gradient, its Hessian a block of the joint Hessian, and with a matrix M of the block filled up by zeros

    sum_ij M_ij d hessian_ij / dq_k,  i, j, k in the block,     is a part of the joint ``hessian_contraction``

and so for the Fisher metric, and for the change of the log density where a coordinate jumps: every conditional follows from
the joint model, at the joint model's cost. A model may bring conditionals written by hand, which are cheaper or have a
better metric (:mod:`refhmc.models.stochastic_volatility`).

A conditional is a model of its own whose data hold what it must know of the other coordinates. ``condition(q, data)``
writes that: it is all that happens between two blocks.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numba.core.errors import NumbaError

from refhmc.core.binding import (
    DERIVATIVES,
    python_contraction,
    python_metric,
    python_value_and_gradient,
)
from refhmc.core.compiled import jit, jit_anew
from refhmc.kernels.blocks import block_indices
from refhmc.models.base import Model

# What a conditional cannot be made from without forming a tensor of the joint model.
DERIVED = ("hessian", "fisher", "hessian_contraction", "fisher_contraction")


class Conditional(NamedTuple):
    """``indices`` (m,) of the block; its ``model``; ``condition(q, data)``, which takes the rest over into the model's data."""

    indices: np.ndarray
    model: Model
    condition: Callable


# The data of a general conditional, one row: dim of the joint model, of the block, rows and columns of the joint data;
# then the full position, the block's indices, a gradient, and the joint data.
JOINT_DIM, BLOCK_DIM, ROWS, COLUMNS = range(4)
POSITION = 4


@jit
def condition_generally(q: np.ndarray, data: np.ndarray) -> None:
    for i in range(q.shape[0]):
        data[0, POSITION + i] = q[i]


@jit
def condition_nothing(q: np.ndarray, data: np.ndarray) -> None:
    """For the block of all coordinates."""


@jit_anew
def parts(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The full position, the block's indices (as floats), the gradient's place and the joint data."""
    d, m = int(data[0, JOINT_DIM]), int(data[0, BLOCK_DIM])
    rows, columns = int(data[0, ROWS]), int(data[0, COLUMNS])
    first, second, third = POSITION + d, POSITION + d + m, POSITION + 2 * d + m
    joint = data[0, third : third + rows * columns].reshape(rows, columns)
    return data[0, POSITION:first], data[0, first:second], data[0, second:third], joint


@jit_anew
def place(x: np.ndarray, q: np.ndarray, block: np.ndarray) -> None:
    for i in range(x.shape[0]):
        q[int(block[i])] = x[i]


def restricted_value_and_gradient(joint: Callable) -> tuple[Callable, Callable, Callable]:
    """log_density, gradient and value_and_gradient of a block from the joint model's pointer."""

    def value_and_gradient(x: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        q, block, full, joint_data = parts(data)
        place(x, q, block)
        value = joint(q, joint_data, full)
        for i in range(x.shape[0]):
            out[i] = full[int(block[i])]
        return value

    both = jit_anew(value_and_gradient)

    def log_density(x: np.ndarray, data: np.ndarray) -> Any:
        return both(x, data, np.empty_like(x))

    def gradient(x: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        both(x, data, out)

    return jit_anew(log_density), jit_anew(gradient), both


def restricted_matrix(joint: Callable, code: int) -> Callable:
    """A block of the joint Hessian or Fisher metric. ``code``: a Python model is told which one by its data."""

    def matrix(x: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        q, block, full, joint_data = parts(data)
        place(x, q, block)
        if code >= 0:
            joint_data[0, 1] = code
        G = np.zeros((q.shape[0], q.shape[0]))
        joint(q, joint_data, G)
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                out[i, j] = G[int(block[i]), int(block[j])]

    return jit_anew(matrix)


def restricted_contraction(joint: Callable, code: int) -> Callable:
    """The contraction of a block's matrix with the derivative of that of the joint model."""

    def contraction(x: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
        q, block, full, joint_data = parts(data)
        place(x, q, block)
        if code >= 0:
            joint_data[0, 2] = code
        filled = np.zeros((q.shape[0], q.shape[0]))
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                filled[int(block[i]), int(block[j])] = M[i, j]
        joint(q, joint_data, filled, full)
        for i in range(x.shape[0]):
            out[i] = full[int(block[i])]

    return jit_anew(contraction)


def restricted_change(joint: Callable) -> Callable:
    """``log_density_change`` of a block from the joint model's change, in the protocol of the core."""

    def change(x: np.ndarray, data: np.ndarray, j: int, new_value: float) -> Any:
        q, block, _, joint_data = parts(data)
        place(x, q, block)
        return joint(q, joint_data, int(block[j]), new_value, 0.0)

    return jit_anew(change)


class Restricted(NamedTuple):
    """The functions of a model's blocks, of all alike (which block is said by the data), and the joint data."""

    functions: dict[str, Any]
    joint_data: np.ndarray


_made: weakref.WeakKeyDictionary[Model, Restricted] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def restricted(model: Model) -> Restricted:
    """Made once for each model, since they are compiled anew in each process."""
    with _lock:
        if model not in _made:
            try:
                _made[model] = _restricted(model, as_python=model.core.why_python is not None)
            except NumbaError:
                _made[model] = _restricted(model, as_python=True)
        return _made[model]


def _restricted(model: Model, as_python: bool) -> Restricted:
    core = model.core
    keys = [key for key in DERIVED if model.has(key)]
    pointer = python_value_and_gradient if as_python else core.tuple[1]
    log_density, gradient, value_and_gradient = restricted_value_and_gradient(pointer)
    functions: dict[str, Any] = {
        "log_density": log_density,
        "gradient": gradient,
        "value_and_gradient": value_and_gradient,
    }
    for key in keys:
        restrict, trampoline = (
            (restricted_matrix, python_metric)
            if DERIVATIVES[key][1] == 2
            else (restricted_contraction, python_contraction)
        )
        if as_python:
            functions[key] = restrict(trampoline, list(DERIVATIVES).index(key))
        else:
            functions[key] = restrict(core._pointer(key), -1)
    if model._functions["log_density_change"] is not None and not as_python:
        _, joint, _, _, change = core.tuple_for_changes
        if joint is core.tuple[1]:  # compiled, too; else a block has the full density
            functions["log_density_change"] = restricted_change(change)
    return Restricted(functions, core.data_for_trampolines() if as_python else core.data)


def general_conditional(model: Model, indices: np.ndarray) -> Conditional:
    """The conditional of any block of any model, restricted from the joint functions."""
    functions: dict[str, Any]
    functions, joint_data = restricted(model)
    d, m = model.dim, len(indices)
    header = [d, m, *joint_data.shape]
    data = np.concatenate([header, np.zeros(d), indices, np.zeros(d), joint_data.ravel()])[None, :]
    names = [model.names[i] for i in indices]
    jumps = np.flatnonzero(np.isin(indices, model.discontinuous)).tolist()
    if not jumps:
        functions = {key: f for key, f in functions.items() if key != "log_density_change"}
    block = Model(
        m, **functions, data=data, names=names, discontinuous=jumps, name=f"{model.name}, {m} of {d} coordinates"
    )
    block.joint = model
    return Conditional(indices, block, condition_generally)


def conditional_of(model: Model, indices: Iterable[int]) -> Conditional:
    """The conditional of a block: the model's own, where it has one written by hand, else the general one.

    The block of all coordinates in their order is the model itself.
    """
    indices = np.array(list(indices), dtype=np.int64)
    if np.array_equal(indices, np.arange(model.dim)):
        return Conditional(indices, model, condition_nothing)
    for own in model.conditionals:
        if np.array_equal(indices, own.indices):
            return own
    return general_conditional(model, indices)


def conditional(model: Model, block: Any, q: np.ndarray) -> Model:
    """The model of a block of ``model``'s coordinates, all others held at their values in ``q``, (d,).

    ``block`` is a name, a tuple of names or a sequence of indices, as in :class:`refhmc.Gibbs`. The position of the new
    model is the block's part of q. Log densities differ from the joint model's by a constant. Raises ShapeError, ValueError.
    """
    q = model._position(q)
    indices, fresh, condition = conditional_of(model, block_indices(model, block))
    if fresh is model:
        return model
    at_q = copy.copy(fresh)
    at_q.data, at_q.joint, at_q.held = fresh.data.copy(), model, (model, indices, q.copy())
    condition(q, at_q.data)
    return at_q

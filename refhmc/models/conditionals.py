"""The distribution of a *block* of coordinates given all others, which Gibbs sampling alternates between.

Up to a constant, its log density is that of the joint model at the full position. Its gradient is therefore a part of the
joint gradient, and its Hessian is a block of the joint Hessian. With a matrix M of the block, filled up by zeros, ::

    sum_ij M_ij d hessian_ij / dq_k,  i, j, k in the block

is a part of the joint ``hessian_contraction``. The same is true of the Fisher metric and of the change of the log density.
Every conditional thus follows from the joint model, at the cost of the joint model. A model may provide hand-written
conditionals that are cheaper or have a better metric (:mod:`refhmc.models.stochastic_volatility`).

A conditional is a model of its own. Its data hold what it needs of the other coordinates, which ``condition(q, data)``
writes between the updates of two blocks.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_anew
from refhmc.core.hierarchy import parents_within
from refhmc.kernels.blocks import block_indices
from refhmc.models.base import Model
from refhmc.models.binding.adapters import CANNOT_COMPILE
from refhmc.models.binding.functions import DERIVATIVES
from refhmc.models.binding.trampolines import (
    code_of,
    data_for_trampolines,
    python_contraction,
    python_metric,
    python_value_and_gradient,
)

# Derivatives that a conditional takes from the joint model. Full third derivatives would need a tensor of the joint model.
DERIVED = ("hessian", "fisher", "hessian_contraction", "fisher_contraction")


class Conditional(NamedTuple):
    """The distribution of a block of coordinates given all others.

    ``indices`` (m,) are those of the block, ``model`` is its model, and ``condition(q, data)`` writes the other coordinates of
    the full position ``q`` into the data of the model.
    """

    indices: np.ndarray
    model: Model
    condition: Callable


# The data of a general conditional are one row: dimension of the joint model and of the block, rows and columns of the joint
# data, the full position, the indices of the block, a gradient, and the joint data.
JOINT_DIM, BLOCK_DIM, ROWS, COLUMNS = range(4)
POSITION = 4


@jit
def condition_generally(q: np.ndarray, data: np.ndarray) -> None:
    for i in range(q.shape[0]):
        data[0, POSITION + i] = q[i]


@jit
def condition_nothing(q: np.ndarray, data: np.ndarray) -> None:
    """Do nothing, for the block of all coordinates."""


@jit_anew
def parts(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the full position, the indices of the block (as floats), the space for a gradient and the joint data."""
    d, m = int(data[0, JOINT_DIM]), int(data[0, BLOCK_DIM])
    rows, columns = int(data[0, ROWS]), int(data[0, COLUMNS])
    first, second, third = POSITION + d, POSITION + d + m, POSITION + 2 * d + m
    joint = data[0, third : third + rows * columns].reshape(rows, columns)
    return data[0, POSITION:first], data[0, first:second], data[0, second:third], joint


@jit_anew
def place(x: np.ndarray, q: np.ndarray, block: np.ndarray) -> None:
    for i in range(x.shape[0]):
        q[int(block[i])] = x[i]


def restricted_value_and_gradient(joint: Callable) -> tuple[Callable, Callable]:
    """Return log_density and value_and_gradient of a block, from the pointer of the joint model."""

    def value_and_gradient(x: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        q, block, full, joint_data = parts(data)
        place(x, q, block)
        value = joint(q, joint_data, full)
        for i in range(x.shape[0]):
            out[i] = full[int(block[i])]
        return value

    both = jit_anew(value_and_gradient)

    def log_density(x: np.ndarray, data: np.ndarray) -> float:
        return both(x, data, np.empty_like(x))

    return jit_anew(log_density), both


def restricted_matrix(joint: Callable, code: int) -> Callable:
    """Return a block of the joint Hessian or Fisher metric. ``code`` selects the function of a Python model."""

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
    """Return the contraction of the matrix of a block, from that of the joint model."""

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
    """Return ``log_density_change`` of a block, from the change of the joint model."""

    def change(x: np.ndarray, data: np.ndarray, j: int, new_value: float) -> float:
        q, block, _, joint_data = parts(data)
        place(x, q, block)
        return joint(q, joint_data, int(block[j]), new_value, 0.0)

    return jit_anew(change)


class Restricted(NamedTuple):
    """Functions that serve all blocks of a model (the data select the block), and the joint data."""

    functions: dict[str, Callable]
    joint_data: np.ndarray


_made: weakref.WeakKeyDictionary[Model, Restricted] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def restricted(model: Model) -> Restricted:
    """Return the functions of the blocks of a model, which are compiled once per model and process."""
    with _lock:
        if model not in _made:
            try:
                _made[model] = _restricted(model, as_python=model.core.why_python is not None)
            except CANNOT_COMPILE:
                _made[model] = _restricted(model, as_python=True)
        return _made[model]


def _restricted(model: Model, as_python: bool) -> Restricted:
    core = model.core
    keys = [key for key in DERIVED if model.has(key)]
    pointer = python_value_and_gradient if as_python else core.tuple[1]
    log_density, value_and_gradient = restricted_value_and_gradient(pointer)
    functions: dict[str, Callable] = {"log_density": log_density, "value_and_gradient": value_and_gradient}
    for key in keys:
        restrict, trampoline = (
            (restricted_matrix, python_metric)
            if DERIVATIVES[key][1] == 2
            else (restricted_contraction, python_contraction)
        )
        if as_python:
            functions[key] = restrict(trampoline, int(code_of(key)))
        else:
            functions[key] = restrict(core.pointer(key), -1)
    if model.functions.log_density_change is not None and not as_python:
        _, joint, _, _, change = core.tuple_for_changes
        if joint is core.tuple[1]:  # compiled; otherwise a block uses the full density
            functions["log_density_change"] = restricted_change(change)
    return Restricted(functions, data_for_trampolines(core) if as_python else core.data)


def general_conditional(model: Model, indices: np.ndarray) -> Conditional:
    """Return the conditional of any block of any model, restricted from the joint functions."""
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
        m,
        **functions,
        data=data,
        names=names,
        discontinuous=jumps,
        parents=parents_within(model, names),
        name=f"{model.name}, {m} of {d} coordinates",
    )
    block.joint = model
    return Conditional(indices, block, condition_generally)


def conditional_of(model: Model, indices: Iterable[int]) -> Conditional:
    """Return the conditional of a block: a hand-written one of the model if there is one, otherwise the general one.

    The conditional of all coordinates in their order is the model itself.
    """
    indices = np.array(list(indices), dtype=np.int64)
    if np.array_equal(indices, np.arange(model.dim)):
        return Conditional(indices, model, condition_nothing)
    for own in model.conditionals:
        if np.array_equal(indices, own.indices):
            return own
    return general_conditional(model, indices)


def conditional(model: Model, block: Any, q: np.ndarray) -> Model:
    """Return the distribution of a block of coordinates, given the other coordinates.

    Up to a constant, its log density is that of the joint model at the full position. Its derivatives are parts of the joint
    derivatives.

    Parameters
    ----------
    model : Model
        The joint model.
    block : str, tuple of str or sequence of int
        Name of a variable, several names, or indices of coordinates, as in :class:`refhmc.Gibbs`.
    q : array_like of shape (d,)
        Full position. Coordinates outside the block are fixed at their values in `q`.

    Returns
    -------
    Model
        The model of the block. Its position is the part of `q` in the block.

    Raises
    ------
    refhmc.errors.ShapeError
        If `q` does not have shape (d,).
    ValueError
        If `block` does not name coordinates of the model.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Funnel(3)
    >>> scale = refhmc.conditional(model, "v", [0.0, 1.0, 1.0, 1.0])
    >>> scale.dim, float(scale.gradient([0.0])[0]) == float(model.gradient([0.0, 1.0, 1.0, 1.0])[0])
    (1, True)
    """
    q = model._position(q)
    indices, fresh, condition = conditional_of(model, block_indices(model, block))
    if fresh is model:
        return model
    at_q = copy.copy(fresh)
    at_q.data, at_q.joint, at_q.held = fresh.data.copy(), model, (model, indices, q.copy())
    condition(q, at_q.data)
    return at_q

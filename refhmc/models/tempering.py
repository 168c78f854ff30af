"""The log density of a replica of parallel tempering, (1 - b) log r(q) + b log pi(q), with a normal r.

It is a model of its own, which serves all temperatures. Its data hold the means and standard deviations of r, then b, then the
data of pi. ``condition(row, data)`` copies the first three from the row of a replica (:mod:`refhmc.kernels.tempered`).
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable

import numpy as np

from refhmc.compile.compiled import jit, jit_anew
from refhmc.kernels.tempered import LOG_2PI
from refhmc.models.base import Model
from refhmc.models.binding.adapters import CANNOT_COMPILE
from refhmc.models.binding.trampolines import data_for_trampolines, python_value_and_gradient
from refhmc.models.conditionals import Conditional


@jit
def condition_on_rung(row: np.ndarray, data: np.ndarray) -> None:
    """Copy the reference and b of a replica."""
    d = row.shape[0] // 3
    for i in range(row.shape[0] - d):
        data[0, i] = row[d + i]


def tempered_functions(target: Callable) -> tuple[Callable, Callable]:
    """Return log_density and value_and_gradient of a replica, from the pointer of the model."""

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        d = q.shape[0]
        b, rows, columns = data[0, 2 * d], int(data[0, 2 * d + 1]), int(data[0, 2 * d + 2])
        first = 2 * d + 3
        value, reference = target(q, data[0, first : first + rows * columns].reshape(rows, columns), out), 0.0
        for i in range(d):
            mean, scale = data[0, i], data[0, d + i]
            z = (q[i] - mean) / scale
            reference -= 0.5 * z * z + math.log(scale) + 0.5 * LOG_2PI
            out[i] = b * out[i] - (1 - b) * z / scale
        return (1 - b) * reference + b * value

    both = jit_anew(value_and_gradient)

    def log_density(q: np.ndarray, data: np.ndarray) -> float:
        return both(q, data, np.empty_like(q))

    return jit_anew(log_density), both


_made: weakref.WeakKeyDictionary[Model, Conditional] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def tempered(model: Model) -> Conditional:
    """Return the density of the replicas of a model, which is compiled once per model and process."""
    with _lock:
        if model not in _made:
            try:
                _made[model] = _tempered(model, as_python=model.core.why_python is not None)
            except CANNOT_COMPILE:
                _made[model] = _tempered(model, as_python=True)
        return _made[model]


def _tempered(model: Model, as_python: bool) -> Conditional:
    d, core = model.dim, model.core
    log_density, both = tempered_functions(python_value_and_gradient if as_python else core.tuple[1])
    of_target = data_for_trampolines(core) if as_python else core.data
    data = np.concatenate([np.zeros(d), np.ones(d), [1.0], of_target.shape, of_target.ravel()])[None, :]
    name = f"{model.name}, tempered"
    own = Model(d, log_density, value_and_gradient=both, data=data, names=model.names, name=name)
    return Conditional(np.arange(d), own, condition_on_rung)

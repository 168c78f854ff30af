"""Compiled functions in the protocol of the core that call a model's functions as Python.

They find the model by a number in the first entry of their data. Two more entries have the indices of the derivatives that
they call as the model's metric and as its contraction.
"""

from __future__ import annotations

import itertools
import threading
import weakref

import numba
import numpy as np

from refhmc.compile.compiled import jit, jit_calling_python
from refhmc.models.binding.functions import DERIVATIVES
from refhmc.models.binding.python_functions import PythonFunctions

_models: weakref.WeakValueDictionary[int, PythonFunctions] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_lock = threading.Lock()


def data_for_trampolines(
    functions: PythonFunctions, metric: str | None = None, hessian_contraction: str | None = None
) -> np.ndarray:
    """Return the data with which trampolines call these functions; they do not keep the functions alive."""
    with _lock:
        number = next(_numbers)
    _models[number] = functions
    return np.array([[float(number), code_of(metric), code_of(hessian_contraction)]])


def code_of(key: str | None) -> float:
    """Return the number by which data select a derivative, or -1 for none."""
    return -1.0 if key is None else float(list(DERIVATIVES).index(key))


def _call_value_and_gradient(number: float, q: np.ndarray, out: np.ndarray) -> float:
    return _models[int(number)].called_value_and_gradient(q, out)


@jit_calling_python
def python_value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    number = data[0, 0]
    with numba.objmode(value="float64"):
        value = _call_value_and_gradient(number, q, out)
    return value


def _call_metric(number: float, key: float, q: np.ndarray, out: np.ndarray) -> None:
    _models[int(number)].called_derivative(int(key), q, out)


@jit_calling_python
def python_metric(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    number, key = data[0, 0], data[0, 1]
    with numba.objmode():
        _call_metric(number, key, q, out)


def _call_contraction(number: float, key: float, q: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    _models[int(number)].called_derivative(int(key), q, out, M)


@jit_calling_python
def python_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    number, key = data[0, 0], data[0, 2]
    with numba.objmode():
        _call_contraction(number, key, q, M, out)


def _call_change(number: float, q: np.ndarray, j: int, new_value: float, present: float) -> float:
    return _models[int(number)].called_change(q, j, new_value, present)


@jit_calling_python
def python_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, present: float) -> float:
    number = data[0, 0]
    with numba.objmode(change="float64"):
        change = _call_change(number, q, j, new_value, present)
    return change


@jit
def no_metric(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    raise NotImplementedError("This model has no metric.")


@jit
def no_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    raise NotImplementedError("This model has no contraction.")


@jit
def no_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, log_density: float) -> float:
    if q.shape[0] > 0:  # always true; the return below gives Numba the type
        raise NotImplementedError("This model has no change of the log density.")
    return log_density

"""The types that cross from Python into the compiled core.

Each tuple that crosses a pointer is anonymous; the first line of a function that reads it assigns names. Each tuple starts
with something that is not a function, because versions of Numba differ in whether they accept tuples of different functions.

A **model** in the core is its data and four typed function pointers::

    data                                         one float64 matrix, with a layout chosen by the model
    value_and_gradient(q, data, out) -> L(q)     writes dL/dq to out
    metric(q, data, out)                         Fisher metric, or the Hessian of L for SoftAbs
    hessian_contraction(q, data, M, out)         out[n] = sum_ij M[i,j] d metric[i,j] / dq[n]
    change(q, data, j, x, L) -> L' - L           L' the log density with x for q_j (q itself for j = -1), L that of q

(One array, because each word passed through a pointer costs time. All chains read the same array, unless the model requests
``scratch_rows`` in it for writing: :class:`refhmc.Model`.)

A **metric** consists of operations at a position (:mod:`refhmc.metrics.base`), four pointers::

    factorise(model, work) -> bool               G at the metric's position; False if it is not positive definite
    inverse_product(p, work, out)                out = G^-1 p
    velocity_and_force(model, p, phi, tau, work, v, dH_dq)
                                                 v = G^-1 p, and phi d(potential)/dq + tau d(kinetic energy)/dq;
                                                 v may be left as it is if tau = 0
    draw(normals, work, p)                       p ~ N(0, G) from standard normals

A **dynamics** is a kind (below), two pointers and the metric. ``refresh`` draws the momentum at a point
(:mod:`refhmc.core.point`) from given standard normals, or keeps it. ``step`` moves the point by one step of the integrator.
Both return the energy H of the point, or NaN with the reason in ``status.failure``.

**Work** is the memory of the metric, stacks ``vecs`` (k, d) and ``mats`` (k, d, d), with the records options, cache,
counters and status (:mod:`refhmc.core.records`). The integrator has its own rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numba import types as nb

from refhmc.compile.compiled import jit_inline, silence_experimental
from refhmc.compile.pointer_type import Pointer
from refhmc.core import records
from refhmc.core.sample_stats import STATS

silence_experimental()

VECTOR = nb.float64[::1]
MATRIX = nb.float64[:, ::1]
STACK = nb.float64[:, :, ::1]
INTEGERS = nb.int64[::1]
MATRIX_OF_INTEGERS = nb.int64[:, ::1]

OPTIONS, CACHE, COUNTERS, STATUS, SETTINGS, CONTROL, STATS_ROW = (
    numba.from_dtype(kind)
    for kind in (
        records.OPTIONS,
        records.CACHE,
        records.COUNTERS,
        records.STATUS,
        records.SETTINGS,
        records.CONTROL,
        STATS,
    )
)

DATA = MATRIX
VALUE_AND_GRADIENT = Pointer(nb.float64(VECTOR, DATA, VECTOR))
METRIC_OF_MODEL = Pointer(nb.void(VECTOR, DATA, MATRIX))
CONTRACTION = Pointer(nb.void(VECTOR, DATA, MATRIX, VECTOR))
CHANGE = Pointer(nb.float64(VECTOR, DATA, nb.int64, nb.float64, nb.float64))
MODEL = nb.Tuple((DATA, VALUE_AND_GRADIENT, METRIC_OF_MODEL, CONTRACTION, CHANGE))
WORK = nb.Tuple((MATRIX, STACK, OPTIONS, CACHE, COUNTERS, STATUS))

METRIC = nb.Tuple(
    (
        nb.int64,
        Pointer(nb.boolean(MODEL, WORK)),
        Pointer(nb.void(VECTOR, WORK, VECTOR)),
        Pointer(nb.void(MODEL, VECTOR, nb.float64, nb.float64, WORK, VECTOR, VECTOR)),
        Pointer(nb.void(VECTOR, WORK, VECTOR)),
    )
)
REFRESH = Pointer(nb.float64(MODEL, METRIC, MATRIX, VECTOR, nb.boolean, WORK))
STEP = Pointer(nb.float64(MODEL, METRIC, MATRIX, nb.float64, WORK, MATRIX))

# Kinds of dynamics. JUMPING: with the momentum of discontinuous HMC (:mod:`refhmc.metrics.laplace`).
SMOOTH, JUMPING = range(2)
DYNAMICS = nb.Tuple((nb.int64, REFRESH, STEP, METRIC))
RANDOMNESS = nb.Tuple((nb.npy_rng, VECTOR, INTEGERS))
WORKSPACE = nb.Tuple((STACK, STACK, VECTOR, MATRIX, WORK))
# Copies the other coordinates of a full position to the data of a conditional (:mod:`refhmc.models.conditionals`).
CONDITION = Pointer(nb.void(VECTOR, DATA))
# transition(dynamics, model, workspace, randomness, settings, stats, control) -> outcome
TRANSITION = Pointer(nb.int64(DYNAMICS, MODEL, WORKSPACE, RANDOMNESS, SETTINGS, STATS_ROW, CONTROL))


class Model(NamedTuple):
    data: np.ndarray
    value_and_gradient: Callable
    metric: Callable
    hessian_contraction: Callable
    change: Callable


class Metric(NamedTuple):
    kind: int
    factorise: Callable
    inverse_product: Callable
    velocity_and_force: Callable
    draw: Callable


class Work(NamedTuple):
    vecs: np.ndarray
    mats: np.ndarray
    options: np.record
    cache: np.record
    counters: np.record
    status: np.record


class Dynamics(NamedTuple):
    kind: int
    refresh: Callable
    step: Callable
    metric: tuple


class Workspace(NamedTuple):
    """``points`` (k, rows, d), ``tree`` (k, rows, d), ``normals`` (d,), and ``own``, the integrator's rows."""

    points: np.ndarray
    tree: np.ndarray
    normals: np.ndarray
    own: np.ndarray
    work: tuple


@jit_inline
def as_model(model: tuple) -> Model:
    data, value_and_gradient, metric, hessian_contraction, change = model
    return Model(data, value_and_gradient, metric, hessian_contraction, change)


@jit_inline
def as_metric(metric: tuple) -> Metric:
    kind, factorise, inverse_product, velocity_and_force, draw = metric
    return Metric(kind, factorise, inverse_product, velocity_and_force, draw)


@jit_inline
def as_work(work: tuple) -> Work:
    vecs, mats, options, cache, counters, status = work
    return Work(vecs, mats, options, cache, counters, status)


@jit_inline
def as_dynamics(dynamics: tuple) -> Dynamics:
    kind, refresh, step, metric = dynamics
    return Dynamics(kind, refresh, step, metric)


@jit_inline
def as_workspace(workspace: tuple) -> Workspace:
    points, tree, normals, own, work = workspace
    return Workspace(points, tree, normals, own, work)


# Points of the workspace: the chain's state, the ends of the trajectory, two candidates for the next state; start of a macro
# step of WALNUTS, and its trial steps.
class Points(NamedTuple):
    state: np.ndarray
    left: np.ndarray
    right: np.ndarray
    candidate: np.ndarray
    spare: np.ndarray
    start: np.ndarray
    trial: np.ndarray


N_POINTS = len(Points._fields)


@jit_inline
def as_points(points: np.ndarray) -> Points:
    return Points(points[0], points[1], points[2], points[3], points[4], points[5], points[6])

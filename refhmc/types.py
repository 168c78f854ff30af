"""The types that cross from Python into the compiled core.

A **model** in the core is a tuple of four: three typed function pointers and the data they read,

    value_and_gradient(q, data, out) -> L(q)     writes dL/dq into out
    metric(q, data, out)                         Fisher metric, or the Hessian of L for SoftAbs
    trace(q, data, M, out)                       out[n] = sum_ij M[i,j] d metric[i,j] / dq[n]
    data                                         one float64 matrix, laid out as the model likes

(One array, because a call through a pointer pays for every word it passes.)

A **dynamics** is a flag (below) and two pointers: ``refresh`` draws the momentum at a point (:mod:`refhmc.point`) from given
standard normals, ``step`` moves the point by one step of the integrator. Both return the energy H of the point.
The two workspaces ``vecs`` (k, d) and ``mats`` (k, d, d) carry what the metric keeps: for a Euclidean
one, row 0 of ``vecs`` is the diagonal of M^-1, row 1 one over its root, and ``mats`` (empty when the metric is diagonal)
holds M^-1 and its Cholesky factor.
"""

from __future__ import annotations

from numba import types as nb

from refhmc.compiled import silence_experimental

silence_experimental()

VECTOR = nb.float64[::1]
MATRIX = nb.float64[:, ::1]
STACK = nb.float64[:, :, ::1]
INTEGERS = nb.int64[::1]
MATRIX_OF_INTEGERS = nb.int64[:, ::1]

DATA = MATRIX
VALUE_AND_GRADIENT = nb.FunctionType(nb.float64(VECTOR, DATA, VECTOR))
METRIC = nb.FunctionType(nb.void(VECTOR, DATA, MATRIX))
TRACE = nb.FunctionType(nb.void(VECTOR, DATA, MATRIX, VECTOR))
MODEL = nb.Tuple((VALUE_AND_GRADIENT, METRIC, TRACE, DATA))

REFRESH = nb.FunctionType(nb.float64(MODEL, MATRIX, VECTOR, MATRIX, STACK))
STEP = nb.FunctionType(nb.float64(MODEL, MATRIX, nb.float64, MATRIX, STACK))

# What a transition works on. ``inlined`` says that ``step`` is the leapfrog on a diagonal metric, which the kernels
# carry a copy of: a call through a pointer would cost as much as the step itself (53 against 25 ns at d = 2).
DYNAMICS = nb.Tuple((nb.int64, REFRESH, STEP))
RANDOMNESS = nb.Tuple((nb.npy_rng, VECTOR, INTEGERS))
WORKSPACE = nb.Tuple((STACK, STACK, MATRIX, STACK, VECTOR))  # points, tree, vecs, mats, totals
# transition(dynamics, model, workspace, randomness, H0, settings, stats, control) -> outcome
TRANSITION = nb.FunctionType(nb.int64(DYNAMICS, MODEL, WORKSPACE, RANDOMNESS, nb.float64, VECTOR, VECTOR, INTEGERS))

# Points of the workspace: the chain's state, the ends of the trajectory, two candidates for the next state.
STATE, LEFT, RIGHT, CANDIDATE, SPARE = range(5)
N_POINTS = 5
N_TOTALS = 8

# Entries of ``settings``.
SET_STEP_SIZE, SET_JITTER, SET_N_STEPS, SET_TRAJECTORY, SET_MAX_DEPTH = range(5)
N_SETTINGS = 5

# Entries of ``control``, one row a chain, shared with the thread that watches: progress goes out, a stop comes in.
STOP, DRAWS_DONE, DIVERGENCES, GRADIENTS, SEARCH_FAILED = range(5)
N_CONTROL = 8  # a cache line, so that chains do not slow each other down

"""The types that cross from Python into the compiled core, and the rows of a phase-space point.

A **model** in the core is a tuple of four: three typed function pointers and the data they read,

    value_and_gradient(q, data, out) -> L(q)     writes dL/dq into out
    metric(q, data, out)                         Fisher metric, or the Hessian of L for SoftAbs
    trace(q, data, M, out)                       out[n] = sum_ij M[i,j] d metric[i,j] / dq[n]
    data                                         one float64 matrix, laid out as the model likes

(One array, because a call through a pointer pays for every word it passes.)

A **point** is a (5, d) matrix with the rows named below: everything that the next step needs, so that
a trajectory can be taken up again at either end without evaluating the model twice.

A **dynamics** is a pair of pointers: ``refresh`` draws the momentum at a point from given standard
normals, ``step`` moves the point by one step of the integrator. Both return the energy H of the point.
The two workspaces ``vecs`` (k, d) and ``mats`` (k, d, d) carry what the metric keeps: for a Euclidean
one, row 0 of ``vecs`` is the diagonal of M^-1 and ``mats`` (empty when the metric is diagonal) holds M^-1
and its Cholesky factor.
"""

from __future__ import annotations

from numba import types as nb

# Rows of a point.
Q, P, GRADIENT, VELOCITY, LOG_DENSITY = range(5)
POINT_ROWS = 5  # LOG_DENSITY uses the first column only

VECTOR = nb.float64[::1]
MATRIX = nb.float64[:, ::1]
STACK = nb.float64[:, :, ::1]
INTEGERS = nb.int64[::1]

DATA = MATRIX
VALUE_AND_GRADIENT = nb.FunctionType(nb.float64(VECTOR, DATA, VECTOR))
METRIC = nb.FunctionType(nb.void(VECTOR, DATA, MATRIX))
TRACE = nb.FunctionType(nb.void(VECTOR, DATA, MATRIX, VECTOR))
MODEL = nb.Tuple((VALUE_AND_GRADIENT, METRIC, TRACE, DATA))

REFRESH = nb.FunctionType(nb.float64(MODEL, MATRIX, VECTOR, MATRIX, STACK))
STEP = nb.FunctionType(nb.float64(MODEL, MATRIX, nb.float64, MATRIX, STACK))

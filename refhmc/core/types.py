"""The types that cross from Python into the compiled core.

A **model** in the core is a tuple of four: three typed function pointers and the data they read,

    value_and_gradient(q, data, out) -> L(q)     writes dL/dq into out
    metric(q, data, out)                         Fisher metric, or the Hessian of L for SoftAbs
    trace(q, data, M, out)                       out[n] = sum_ij M[i,j] d metric[i,j] / dq[n]
    data                                         one float64 matrix, laid out as the model likes

(One array, because a call through a pointer pays for every word it passes. All chains read the same one, unless the model
asks for ``room`` in it to write to: :class:`refhmc.Model`.)

A **geometry** is what a metric offers at a position (:mod:`refhmc.metrics.base`), four pointers:

    settle(model, vecs, mats, notes) -> bool     factorise G at the position vecs[HERE]; False if it is not positive
    velocity(p, vecs, mats, notes, out)          out = G^-1 p
    field(model, p, phi, tau, vecs, mats, notes, velocity, slope)
                                                 G^-1 p, and phi d(potential)/dq + tau d(kinetic energy)/dq
    draw(normals, vecs, mats, notes, p)          p ~ N(0, G) from standard normals

A **dynamics** is a flag (below), two pointers, the geometry, and ``notes``: ``refresh`` draws the momentum at a point
(:mod:`refhmc.core.point`) from given standard normals, ``step`` moves the point by one step of the integrator. Both return the
energy H of the point, NaN with the reason in ``notes[FAILURE]`` where there is none.

The two workspaces ``vecs`` (k, d) and ``mats`` (k, d, d) carry what the metric keeps: for a Euclidean
one, row 0 of ``vecs`` is the diagonal of M^-1, row 1 one over its root, and ``mats`` (empty when the metric is diagonal)
holds M^-1 and its Cholesky factor (for a tridiagonal one see :mod:`refhmc.metrics.tridiagonal`). Rows from 2 on are
scratch of the metric at its present position and of the integrator.
``notes`` holds the options of metric and integrator, and what the solves and evaluations of a transition came to.
"""

from __future__ import annotations

from numba import types as nb

from refhmc.core.compiled import silence_experimental

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

GEOMETRY = nb.Tuple(
    (
        nb.FunctionType(nb.boolean(MODEL, MATRIX, STACK, VECTOR)),
        nb.FunctionType(nb.void(VECTOR, MATRIX, STACK, VECTOR, VECTOR)),
        nb.FunctionType(nb.void(MODEL, VECTOR, nb.float64, nb.float64, MATRIX, STACK, VECTOR, VECTOR, VECTOR)),
        nb.FunctionType(nb.void(VECTOR, MATRIX, STACK, VECTOR, VECTOR)),
    )
)
REFRESH = nb.FunctionType(nb.float64(MODEL, GEOMETRY, MATRIX, VECTOR, MATRIX, STACK, VECTOR))
STEP = nb.FunctionType(nb.float64(MODEL, GEOMETRY, MATRIX, nb.float64, MATRIX, STACK, VECTOR))

# What a transition works on. The flag INLINED says that ``step`` is the leapfrog on a diagonal metric, which the kernels
# carry a copy of: a call through a pointer would cost as much as the step itself (53 against 25 ns at d = 2). JUMPING says
# that the momentum is that of discontinuous HMC (:mod:`refhmc.metrics.laplace`), and the model's ``metric`` its change.
THROUGH_POINTERS, INLINED, JUMPING = range(3)
DYNAMICS = nb.Tuple((nb.int64, REFRESH, STEP, GEOMETRY, VECTOR))
RANDOMNESS = nb.Tuple((nb.npy_rng, VECTOR, INTEGERS))
WORKSPACE = nb.Tuple((STACK, STACK, MATRIX, STACK, VECTOR))  # points, tree, vecs, mats, totals
# Takes the other coordinates of a full position over into the data of a conditional (:mod:`refhmc.models.conditionals`).
CONDITION = nb.FunctionType(nb.void(VECTOR, DATA))
# transition(dynamics, model, workspace, randomness, H0, settings, stats, control) -> outcome
TRANSITION = nb.FunctionType(nb.int64(DYNAMICS, MODEL, WORKSPACE, RANDOMNESS, nb.float64, VECTOR, VECTOR, INTEGERS))

# Rows of ``vecs`` that all metrics share: the position the metric is settled at, dL/dq there, and the numbers s_i of which
# 1/2 log det G = notes[LOG_DET_WEIGHT] sum_i log s_i.
HERE, GRADIENT_HERE, SCALES = 2, 3, 4
# Rows from here on belong to the integrator, those after them to the metric.
INTEGRATOR_ROWS = 5
METRIC_ROWS = 24

# Entries of ``notes``. Options of the metric, of the solver, of the integrator:
ALPHA, AS_PUBLISHED, TOLERANCE, MAX_ITERATIONS, MEMORY, CHECK_REVERSAL, OMEGA, N_SUBSTEPS, FIRST_SUBSTEP = range(9)
# of discontinuous HMC: how many coordinates jump, and whether their moves need the full density;
N_DISCONTINUOUS, FULL_DENSITY = range(13, 15)
READS_BANDS = 15  # whether a tridiagonal metric takes its bands from the model
# what is known at vecs[HERE]: whether the metric is settled (1), or failed to (-1), and the parts that are made when
# they are first needed; pairs of Anderson's history; the condition of the metric that the last momentum was drawn from.
SETTLED, HAS_VALUE, HAS_MORE, LOG_DENSITY_HERE, LOG_DET_WEIGHT, PAIRS, METRIC_CONDITION = range(16, 23)
# what happened since the counts were last set to zero: why there is no energy, iterations and largest residual of the
# solves, largest reversal error; evaluations, N_FIELDS those of (dH/dp, dH/dq).
FAILURE, ITERATIONS, RESIDUAL, REVERSAL, N_GRADIENTS, N_METRICS, N_TRACES, N_FIELDS = range(24, 32)
# Of discontinuous HMC: densities, or changes of one, evaluated without the gradient; moves tried; those turned back;
# the sum over the moves of min(1, exp(change)).
N_DENSITIES, TRIES, FLIPS, PASSING = range(32, 36)
N_NOTES = 36

# Points of the workspace: the chain's state, the ends of the trajectory, two candidates for the next state.
STATE, LEFT, RIGHT, CANDIDATE, SPARE = range(5)
N_POINTS = 5
N_TOTALS = 8

# Entries of ``settings``.
SET_STEP_SIZE, SET_JITTER, SET_N_STEPS, SET_TRAJECTORY, SET_MAX_DEPTH = range(5)
SET_LENGTH_JITTER, SET_JUMP_SIZE = range(5, 7)
N_SETTINGS = 7

# Entries of ``control``, one row a chain, shared with the thread that watches: progress goes out, and there comes in a stop,
# which ends a transition where it is, or a pause, which ends the loop after it.
STOP, PAUSE, DRAWS_DONE, DIVERGENCES, GRADIENTS, SEARCH_FAILED, METRICS, TRACES, DENSITIES = range(9)
N_CONTROL = 16  # two cache lines, so that chains do not slow each other down

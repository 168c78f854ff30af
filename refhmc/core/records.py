"""Records of the compiled core: what crosses a pointer, by name.

Two kinds. A **record** is a handful of numbers that compiled code writes to: options, what is cached, counts, the statistics of
a draw. It is a NumPy structured scalar, passed by reference, one word a pointer; ``one`` makes one. A **layout** names the
rows of a stack of vectors (k, d) and of matrices (k, d, d): the rows are allotted here, one after another, so that two
owners cannot overlap, and ``views`` gives them as a NamedTuple. Naming costs nothing: views that are not used are not made.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.core.compiled import jit_template

REAL, WHOLE = np.float64, np.int64


def record_type(fields: dict[str, Any], size: int | None = None) -> np.dtype:
    """The type of a record with the given fields, each REAL, WHOLE or (REAL, (n,)), in ``size`` bytes if given."""
    kinds: Any = [(name, *kind) if isinstance(kind, tuple) else (name, kind) for name, kind in fields.items()]
    plain = np.dtype(kinds)
    if size is None:
        return as_record(plain)
    parts: Any = {"names": list(plain.names or ()), "formats": [], "offsets": [], "itemsize": size}
    for name in plain.names or ():
        kind, offset = (plain.fields or {})[name][:2]
        parts["formats"].append(kind)
        parts["offsets"].append(offset)
    return as_record(np.dtype(parts))


def as_record(kind: np.dtype) -> np.dtype:
    """The same, whose scalars are records already: an array of them becomes one by name in a third of the time."""
    return np.dtype((np.record, kind))


def one(kind: np.dtype) -> np.recarray:
    """An array of one record of zeros; ``[0]`` is the record itself, which compiled code takes."""
    return np.zeros(1, kind).view(np.recarray)


def records(array: np.ndarray, kind: np.dtype) -> np.recarray:
    """``array``, whose last axis holds the numbers of one record each, as an array of records."""
    return np.ascontiguousarray(array).view(kind)[..., 0].view(np.recarray)


# Of the metric, the solver, the integrator; set when they are put together.
OPTIONS = record_type(
    {
        "alpha": REAL,
        "as_published": WHOLE,
        "reads_bands": WHOLE,  # a tridiagonal metric takes its bands from the model
        "tolerance": REAL,
        "max_iterations": WHOLE,
        "anderson_memory": WHOLE,
        "reversal_tolerance": REAL,  # 0: steps are not checked
        "omega": REAL,
        "cached": WHOLE,  # the generalised leapfrog keeps what does not change
        "n_substeps": WHOLE,
        "substeps": (REAL, (5,)),  # parts of a step, of a composition
        "n_discontinuous": WHOLE,
        "reads_density": WHOLE,  # a move of discontinuous HMC needs the full density
        "drawn_parts": WHOLE,  # of a split model, whose order is drawn anew for each trajectory; 0: none is
        "spares_energy": WHOLE,  # the energy at the end of a step costs evaluations that the step itself does not need
    }
)
# What is known at the metric's position. ``factorised``: 1, or 0, or minus the reason why it cannot be.
CACHE = record_type(
    {
        "factorised": WHOLE,
        "has_log_density": WHOLE,
        "has_force": WHOLE,  # what only forces need
        "log_density": REAL,
        "log_det_weight": REAL,  # 1/2 log det G = weight sum_i log scales_i
        "pairs": WHOLE,  # of Anderson's history
    }
)
# Evaluations since they were last set to zero; ``fields`` those of (dH/dp, dH/dq). Of discontinuous HMC: densities, or
# changes of one, without the gradient; moves tried; those turned back; the sum over the moves of min(1, exp(change)).
COUNTERS = record_type(
    {
        "iterations": WHOLE,
        "gradients": WHOLE,
        "metrics": WHOLE,
        "contractions": WHOLE,
        "fields": WHOLE,
        "densities": WHOLE,
        "tries": WHOLE,
        "flips": WHOLE,
        "passing": REAL,
    }
)
# Why there is no energy (0: there is); the largest residual of the solves and the largest reversal error; the condition of
# the metric that the last momentum was drawn from. Of a way back: the iterations of the way there (0: the way back must not be
# broken off), and whether it was broken off because it is bound to arrive. ``energy_spared``: the kernel does not ask for the
# energy at the end of this step; what the step returns then is finite where the point is, and nothing else.
STATUS = record_type(
    {
        "failure": WHOLE,
        "residual": REAL,
        "reversal_error": REAL,
        "condition": REAL,
        "iterations_there": WHOLE,
        "bound_to_arrive": WHOLE,
        "energy_spared": WHOLE,
    }
)

# Of a kernel. ``watched``: warm-up looks at the states at lengths up to ``longest`` (:mod:`refhmc.kernels.watched`).
# ``keep_momentum``: the state has its momentum already. From ``updates`` on, of stochastic gradients: the updates made so far;
# what :mod:`refhmc.kernels.stochastic_gradient` calls a and c; h^2 / eps (0: h = eps); b, gamma, T; the share of a cycle
# without noise; whether lp is asked for.
SETTINGS = record_type(
    {
        "step_size": REAL,
        "jitter": REAL,
        "n_steps": WHOLE,
        "trajectory_length": REAL,
        "length_jitter": REAL,
        "watched": WHOLE,
        "longest": REAL,
        "max_depth": WHOLE,
        "jump_size": REAL,
        "keep_momentum": WHOLE,
        "updates": WHOLE,
        "momentum": REAL,
        "noise": REAL,
        "squared_by": REAL,
        "decay_offset": REAL,
        "decay_power": REAL,
        "cycle": WHOLE,
        "exploration": REAL,
        "evaluates_lp": WHOLE,
    }
)
# What NUTS sums up over the leaves of a trajectory; ``worst``: an energy error that is not finite.
TRAJECTORY = record_type({"n_leaves": WHOLE, "sum_accept": REAL, "lowest": REAL, "highest": REAL, "worst": REAL})
# Progress goes out, and there comes in a stop, which ends a transition where it is, or a pause, which ends the loop after it.
# ``divergences`` are those of draws; ``first``: iterations from a checkpoint; ``step_size``: of a kernel without blocks;
# ``without_metric``: transitions of warm-up that met a metric that is not positive definite (counted outside compiled code).
# ``looked``: the iteration after which warm-up last looked for a hopeless start. ``far_start``: the one after which the chain
# began again from a better start; negative if that start was found and not taken; 0 otherwise.
# Shared with the thread that watches: two cache lines a chain, so that chains do not slow each other down.
CONTROL = record_type(
    {
        "stop": WHOLE,
        "pause": WHOLE,
        "draws_done": WHOLE,
        "divergences": WHOLE,
        "gradients": WHOLE,
        "search_failed": WHOLE,
        "metrics": WHOLE,
        "contractions": WHOLE,
        "densities": WHOLE,
        "warmup_divergences": WHOLE,
        "first": WHOLE,
        "step_size": REAL,
        "without_metric": WHOLE,
        "looked": WHOLE,
        "far_start": WHOLE,
    },
    size=128,
)
# The same seen from Python, where it is a row of integers, or of floats for the step size.
STOP, PAUSE, DRAWS_DONE, DIVERGENCES, GRADIENTS, SEARCH_FAILED, METRICS, CONTRACTIONS, DENSITIES = range(9)
WARMUP_DIVERGENCES, FIRST, STEP_SIZE, WITHOUT_METRIC, LOOKED, FAR_START = range(9, len(CONTROL.names or ()))
N_CONTROL = CONTROL.itemsize // 8


class Layout:
    """Rows of a stack by name: ``vectors`` and ``matrices`` are names, ``x[2]`` for two rows, after those of ``after``.

    ``n_vectors`` and ``n_matrices`` are how many there are in all. Two compiled functions give them as a NamedTuple, a row (d,)
    or (d, d), several (k, d): ``views(work)`` out of a metric's work, whose first two are the stacks, ``rows(vecs)``, where
    there are vectors only, out of the stack. (For compiled text: from Python, call ``compiled.plain`` of them.) The NamedTuple
    stays in the function that made it: its class is another one in code that comes from the cache, and is not recognised.
    """

    vectors: dict[str, str]
    matrices: dict[str, str]
    n_vectors: int
    n_matrices: int

    def __init__(self, vectors: str, matrices: str = "", after: Layout | None = None) -> None:
        before = ({}, 0, {}, 0) if after is None else (after.vectors, after.n_vectors, after.matrices, after.n_matrices)
        self.vectors, self.n_vectors = allot(vectors, *before[:2])
        self.matrices, self.n_matrices = allot(matrices, *before[2:])
        of_vectors = {name: f"vecs[{index}]" for name, index in self.vectors.items()}
        of_matrices = {name: f"mats[{index}]" for name, index in self.matrices.items()}
        self.views = named("views(work)", "vecs, mats = work[0], work[1]", of_vectors | of_matrices)
        self.rows = named("rows(vecs)", "", of_vectors)


def named(head: str, first: str, fields: dict[str, str]) -> Callable:
    """The compiled function ``head`` that returns the NamedTuple of ``fields``."""
    names: dict[str, Any] = {"Views": collections.namedtuple("Views", tuple(fields))}  # type: ignore[misc]
    exec(f"def {head}:\n    {first}\n    return Views({', '.join(fields.values())})\n", names)
    return jit_template(names[head.partition("(")[0]])


def allot(names: str, given: dict[str, str], start: int) -> tuple[dict[str, str], int]:
    """Rows for ``names`` from ``start`` on, beside those ``given``: by name the index or slice, and the number of rows."""
    rows = dict(given)
    for each in names.split():
        name, _, count = each.rstrip("]").partition("[")
        assert name not in rows, f"two rows are called {name}"
        n = int(count or 1)
        rows[name] = f"{start}:{start + n}" if count else f"{start}"
        start += n
    return rows, start

"""Records of the compiled core: named values that cross a pointer.

There are two kinds. A **record** is a handful of numbers that compiled code writes: options, caches, counts, the statistics
of a draw. It is a NumPy structured scalar, passed by reference as one word; ``one`` creates one. A **layout** names the rows
of stacks of vectors (k, d) and matrices (k, d, d). The rows are allotted here one after another, so that two owners cannot
overlap, and ``views`` returns them as a NamedTuple. Names cost nothing: unused views are not created.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.compile.compiled import jit_template

REAL, WHOLE = np.float64, np.int64


def record_type(fields: dict[str, type | tuple], size: int | None = None) -> np.dtype:
    """Return the type of a record with these fields, each REAL, WHOLE or (REAL, (n,)), in ``size`` bytes if given."""
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
    """Return the same type with scalars that are records, which speeds up access by name by a factor of three."""
    return np.dtype((np.record, kind))


def one(kind: np.dtype) -> np.recarray:
    """Return an array of one record of zeros; ``[0]`` is the record itself, which compiled code takes."""
    return np.zeros(1, kind).view(np.recarray)


def records(array: np.ndarray, kind: np.dtype) -> np.recarray:
    """Return ``array``, whose last axis contains the numbers of one record each, as an array of records."""
    return np.ascontiguousarray(array).view(kind)[..., 0].view(np.recarray)


# Options of metric, solver and integrator, set when they are combined.
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
        "substeps": (REAL, (5,)),  # fractions of a step, for a composition
        "n_stages": WHOLE,
        "kicks_and_drifts": (REAL, (13,)),  # coefficients of a splitting
        "n_discontinuous": WHOLE,
        "reads_density": WHOLE,  # a move of discontinuous HMC needs the full density
        "drawn_parts": WHOLE,  # parts of a split model with a new random order per trajectory; 0: none
        "n_terms": WHOLE,  # of a hierarchical metric: terms of each mass, and parents of each coordinate
        "n_parents": WHOLE,
        "hyperparameters": WHOLE,  # NUTS follows the coordinates that are not marked in the metric's row ``ignored``
        "spares_energy": WHOLE,  # the energy after a step costs evaluations that the step does not need
    }
)
# Cached values at the metric's position. ``factorised``: 1, 0, or minus the reason for a failure.
CACHE = record_type(
    {
        "factorised": WHOLE,
        "has_log_density": WHOLE,
        "has_force": WHOLE,  # values that only forces need
        "log_density": REAL,
        "log_det_weight": REAL,  # 1/2 log det G = weight sum_i log scales_i
        "pairs": WHOLE,  # length of Anderson's history
    }
)
# Evaluations since the last reset; ``fields`` counts (dH/dp, dH/dq). For discontinuous HMC: densities, or
# changes of one, without gradients; attempted moves; reflected moves; the sum of min(1, exp(change)) over moves.
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
# Reason for a missing energy (0: none); largest residual of the solves and largest reversal error; the condition of
# the metric that the last momentum was drawn from. For a reverse step: the iterations of the forward step (0: it must not be
# broken off), and whether it was broken off because it is bound to arrive. ``energy_spared``: the kernel does not ask for the
# energy at the end of this step; what the step returns then is finite where the point is, and nothing else.
# ``log_ratio_before``, ``log_ratio_after``: WALNUTS's factors of the weights at the first and the last state of the trajectory.
# ``kinetic``: K of the microcanonical samplers, minus the log of the Jacobian of the trajectory so far.
STATUS = record_type(
    {
        "failure": WHOLE,
        "residual": REAL,
        "reversal_error": REAL,
        "condition": REAL,
        "iterations_there": WHOLE,
        "bound_to_arrive": WHOLE,
        "energy_spared": WHOLE,
        "log_ratio_before": REAL,
        "log_ratio_after": REAL,
        "kinetic": REAL,
    }
)

# Settings of a kernel. ``watched``: warm-up records states at lengths up to ``longest`` (:mod:`refhmc.adaptation.length`).
# ``max_depth``: of a tree, or the binary logarithm of the largest number of steps. ``keep_momentum``: the state already has a
# momentum. GHMC, DRHMC, MAMS and MCLMC keep the share ``persistence`` of it (negative: the default); with 0 they draw all of
# it. ``energy_variance``: of a step of MCLMC, per coordinate. ``slice_variable``: Neal's u of GHMC, 2 before it is drawn. From
# ``updates`` on, for stochastic gradients: the updates so far; a and c of :mod:`refhmc.kernels.stochastic_gradient`; h^2 / eps
# (0: h = eps); b, gamma, T; the share of a cycle without noise; whether lp is evaluated.
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
        "max_error": REAL,
        "max_halvings": WHOLE,
        "extra_halving": REAL,
        "jump_size": REAL,
        "keep_momentum": WHOLE,
        "persistence": REAL,
        "energy_variance": REAL,
        "slice_shift": REAL,
        "slice_variable": REAL,
        "max_stages": WHOLE,
        "reduction": REAL,
        "same_length": WHOLE,
        "fraction": REAL,
        "max_doublings": WHOLE,
        "symmetric": WHOLE,
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
# Output: progress. Input: a stop, which ends a transition immediately, or a pause, which ends the loop after it.
# ``divergences``: after warm-up; ``first``: iterations from a checkpoint; ``step_size``: for a kernel without blocks;
# ``without_metric``: warm-up transitions with a metric that is not positive definite (counted outside compiled code).
# ``looked``: iteration after which warm-up last checked for a hopeless start. ``far_start``: iteration after which the chain
# restarted from a better start; negative if that start was found but not used; 0 otherwise. ``start_level``: log density at the
# start of a chain with one block.
# Shared with the monitoring thread: two cache lines per chain, so that chains do not slow each other down.
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
        "start_level": REAL,
    },
    size=128,
)
N_CONTROL = CONTROL.itemsize // 8  # integers of a saved record


def set_counts(control: np.record, counts: np.record) -> None:
    """Copy all of a ``CONTROL`` except the requests to stop and to pause."""
    for name in (CONTROL.names or ())[2:]:
        control[name] = counts[name]


class Layout:
    """Rows of a stack by name, placed after those of ``after``.

    ``vectors`` and ``matrices`` are names; ``x[2]`` stands for two rows. ``n_vectors`` and ``n_matrices`` are the total
    numbers. Two compiled functions return them as a NamedTuple of rows (d,) or (d, d), or of several (k, d). ``views(work)``
    takes a metric's work, which starts with the two stacks. ``rows(vecs)`` takes the stack, if there are only vectors. (They
    are for compiled code; from Python, call ``compiled.plain`` of them.) The NamedTuple must stay in the function that
    created it: its class differs in cached code.
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
    """Return the compiled function ``head`` that returns the NamedTuple of ``fields``."""
    names: dict[str, Any] = {"Views": collections.namedtuple("Views", tuple(fields))}  # type: ignore[misc]
    exec(f"def {head}:\n    {first}\n    return Views({', '.join(fields.values())})\n", names)
    return jit_template(names[head.partition("(")[0]])


def allot(names: str, given: dict[str, str], start: int) -> tuple[dict[str, str], int]:
    """Return index or slice by name, adding ``names`` from row ``start`` on to those ``given``, and the number of rows."""
    rows = dict(given)
    for each in names.split():
        name, _, count = each.rstrip("]").partition("[")
        assert name not in rows, f"two rows are called {name}"
        n = int(count or 1)
        rows[name] = f"{start}:{start + n}" if count else f"{start}"
        start += n
    return rows, start

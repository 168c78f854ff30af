"""Validation of a chain's saved state before compiled code reads it.

A checksum shows that a file is unchanged, but not who wrote it. So every field of a state is compared with what the kernel,
the model and the number of iterations imply, and an impossible value raises CheckpointError with the field's name. Fields
without a second source, such as the position or the sums of the adaptation, must be finite and agree with the rows on disk and
with the model's density there.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from refhmc.adaptation.from_pairs import depth_at
from refhmc.adaptation.length import AFTER_GROWTH, KEPT, LOOK_AHEAD, MOMENTS, OTHERWISE, next_length
from refhmc.compile.compiled import plain
from refhmc.core import types
from refhmc.core.point import GRADIENT, LOG_DENSITY, POINT_ROWS, P, Q
from refhmc.core.records import CONTROL, SETTINGS, records
from refhmc.core.sample_stats import COUNTS, FLAGS, N_STATS, OUTCOMES, STATS
from refhmc.errors import CheckpointError
from refhmc.kernels.tempered import Ladder
from refhmc.metrics.base import FROM_PAIRS, NOTHING
from refhmc.metrics.euclidean import FIRST_DIRECTION, is_plain
from refhmc.metrics.hierarchical import FIRST, PARENTS, TERMS, Hierarchical
from refhmc.metrics.laplace import LAYOUT
from refhmc.metrics.low_rank import ROWS, LowRank
from refhmc.metrics.tridiagonal import BANDED, Tridiagonal
from refhmc.sampling.chains.chain import BlockState, Chain, Plan
from refhmc.sampling.chains.far_start import look_after, shortened
from refhmc.sampling.chains.task import ChainTask, Saved, chain_generator
from refhmc.sampling.storage.append_only import Rows

# Two compiled copies of a density may round differently, but not by more than this.
DENSITY, RELATIVE = 1e-3, 1e-6
SAME = 1e-8  # relative tolerance of numbers that are functions of each other
ANOTHER_STREAM = "it belongs to another chain or seed (the increment identifies the stream)"


def check_saved(saved: Saved, rows: Rows | None, task: ChainTask, plan: Plan, *, same_code: bool) -> None:
    """Raise CheckpointError, with the name of a field, unless a chain can be in this state after ``saved.done`` iterations.

    `rows` are those of its last iterations, if a file has them. With `same_code`, the model's functions are unchanged, so that
    the density can be compared.
    """
    try:
        _check_progress(saved, task)
        if rows is not None:
            _check_rows(rows)
        restarted = max(int(saved.control.far_start), 0)  # a second attempt has a plan for the rest of warm-up
        if restarted:
            plan, task = shortened(plan, task.tune - restarted), task._replace(adapted=None)
        generator = chain_generator(task.entropy, task.chain)
        stream = generator.bit_generator.state
        chain = Chain(task.model, plan, generator).restore(saved.state)
        _require(generator.bit_generator.state["state"]["inc"] == stream["state"]["inc"], "generator", ANOTHER_STREAM)
        for k, block in enumerate(chain.blocks):
            # The last block of a second leg makes no transitions.
            idle = chain.ladder is not None and chain.ladder.target <= k == len(chain.blocks) - 1
            done = 0 if idle else saved.done - restarted
            with _named(block.plan.name):
                _check_block(block, done, task if k == 0 else task._replace(adapted=None))
                if not chain.alone and chain.ladder is None and saved.done:
                    there = chain.position[block.plan.conditional.indices]
                    _require(np.array_equal(block.state[Q], there), "state", "its position differs from the chain's")
        _require_finite(position=chain.position)
        if chain.ladder is not None:
            _check_ladder(chain.ladder, saved.done - restarted)
        if rows is not None and len(rows.draws):
            _require(np.array_equal(rows.draws[-1], chain.position), "position", "it differs from the last row")
        if same_code and chain.alone and not chain.blocks[0].plan.minibatches:
            _check_density(chain)
    except _Invalid as error:
        raise CheckpointError(
            f"The saved state of chain {task.chain} is not valid: {error}. Use refhmc.resume(..., recover=True) to draw it "
            "again."
        ) from None


class _Invalid(Exception):
    pass


@contextlib.contextmanager
def _named(block: str) -> Iterator[None]:
    """Prefix an error with the name of the block."""
    try:
        yield
    except _Invalid as error:
        raise _Invalid(f"block {block}: {error}" if block else str(error)) from None


def _require(holds: bool | np.bool_, field: str, why: str) -> None:
    if not holds:
        raise _Invalid(f"{field}: {why}")


def _require_finite(**fields: ArrayLike) -> None:
    for name, values in fields.items():
        _require(np.all(np.isfinite(values)), name, "must be finite")


def _check_progress(saved: Saved, task: ChainTask) -> None:
    """Check the counts of the run and the position after warm-up."""
    d, control = task.model.dim, saved.control
    _require(saved.done >= 0, "done", f"must not be negative; got {saved.done}")
    most = dict.fromkeys(set(CONTROL.names or ()) - {"stop", "pause", "step_size", "far_start", "start_level"}, 2**62)
    most |= {
        "divergences": saved.done,
        "warmup_divergences": task.tune,
        "first": saved.done,
        "without_metric": task.tune,
    }
    for name, limit in most.items():
        _require(0 <= control[name] <= limit, "control", f"{name} must be from 0 to {limit}; got {control[name]}")
    _require(np.isfinite(control.start_level), "control", "start_level must be finite")
    done = control.draws_done
    _require(done == saved.done, "control", f"must count {saved.done} iterations; got {done}")
    first = look_after(task.tune)
    restarted, looks = int(control.far_start), {0, first, first + look_after(task.tune - first)}
    valid = restarted in (0, first, -first) and abs(restarted) <= saved.done and (restarted <= 0 or task.free_start)
    _require(valid and control.looked in looks, "control", f"chains do not restart after {restarted} iterations")
    start = saved.start_of_draws
    _require(start.shape == (d,) and start.dtype == np.float64, "start_of_draws", f"must be numbers of shape ({d},)")
    known = saved.done >= task.tune
    _require(
        np.all(np.isfinite(start) if known else np.isnan(start)),
        "start_of_draws",
        "does not fit the number of iterations",
    )


def _check_rows(rows: Rows) -> None:
    """Check that draws are finite, and that counts and flags are integers in their ranges."""
    _require_finite(draws=rows.draws)
    by_name = records(rows.stats.reshape(len(rows.stats), rows.stats.shape[1] // N_STATS, N_STATS), STATS)
    most = {**dict.fromkeys(COUNTS, 2.0**53), **dict.fromkeys(FLAGS, 1.0), "outcome": len(OUTCOMES) - 1.0}
    for name, limit in most.items():
        values = by_name[name]
        least = -limit if name == "index_in_trajectory" else 0.0
        whole = (values >= least) & (values <= limit) & (values == np.floor(values))
        _require(np.all(whole), f"stats.{name}", f"must be integers from {least:g} to {limit:g}")


def _check_ladder(ladder: Ladder, done: int) -> None:
    """Check the replicas, their temperatures and the reference."""
    _require_finite(replicas=ladder.replicas, rejections=ladder.rejections, moments=ladder.moments)
    b, d, count, m = ladder.replicas[:, -1], ladder.moments.shape[1], len(ladder.replicas), ladder.record[0].target
    _require(m == ladder.target, "record.target", f"must be {ladder.target}")
    monotone = b[0] == 0 and b[m] == 1 and np.all(np.diff(b[: m + 1]) > 0) and np.all(np.diff(b[m:]) < 0)
    _require(
        monotone and (m + 1 == count or b[-1] == 0),
        "replicas",
        "temperatures must increase from 0 to 1, and decrease to 0 on a second leg",
    )
    _require(np.all(ladder.replicas[:, 2 * d : -1] > 0), "replicas", "standard deviations must be positive")
    _require(np.array_equal(np.sort(ladder.places), np.arange(count)), "places", "must be a permutation")
    _require(ladder.record[0].iteration == done, "record.iteration", f"must be {done}")
    _require(0 <= ladder.record[0].count <= done, "record.count", f"must be from 0 to {done}")


def _check_block(block: BlockState, done: int, task: ChainTask) -> None:
    _check_adaptation(block, done, task.adapted is not None)
    _check_settings(block, done, task)
    _check_counters(block)
    _check_metric(block)
    if block.plan.minibatches:
        _check_order(block)
    if block.settings[0].keep_momentum:
        _require_finite(state=block.state[P])
    _require_finite(state=block.state[Q])


def _check_adaptation(block: BlockState, done: int, given: bool) -> None:
    """Check the state of the adaptation."""
    progress, windows, learns = block.progress[0], block.plan.windows, block.plan.warmup[0].learns
    inside = [done - start for slow, start, stop in windows if slow and start <= done < stop]
    expected = {"iteration": done, "in_window": 0, "due": 0, "given": int(given)}
    if inside and learns != FROM_PAIRS:
        expected["in_window"] = inside[0]
    for name, value in expected.items():
        _require(progress[name] == value, f"progress.{name}", f"must be {value}; got {progress[name]}")
    _require(progress.restart in (0, 1), "progress.restart", f"must be 0 or 1; got {progress.restart}")
    most = int(block.plan.hierarchical is not None)
    _require(
        0 <= progress.hierarchical <= most, "progress.hierarchical", f"must be 0 to {most}; got {progress.hierarchical}"
    )
    _require(0 <= progress.steps < math.inf, "progress.steps", f"must not be negative; got {progress.steps}")
    _require(
        0 <= progress.divergences <= done, "progress.divergences", f"must be 0 to {done}; got {progress.divergences}"
    )
    _require(0 <= progress.from_draws <= most, "progress.from_draws", f"must be 0 to {most}; got {progress.from_draws}")
    used = min(done, len(block.kept))
    _require_finite(
        mean=block.mean,
        scatter=block.scatter,
        gradient_scatter=block.gradient_scatter,
        kept=block.kept[:used],
        kept_gradients=block.kept_gradients[:used],
        history=block.history,
        length_moments=block.length_moments,
        length_sums=block.length_sums,
    )
    for name, matrix in (("scatter", block.scatter), ("gradient_scatter", block.gradient_scatter)):
        variances = np.diag(matrix) if len(matrix) > 1 else matrix
        _require(np.all(variances >= 0), name, "sums of squares must not be negative")
    ends = windows[: len(block.history), 2] * windows[: len(block.history), 0]
    noted = block.history[:, 0]
    _require(np.all((noted == 0) | ((noted == ends) & (ends <= done))), "history", "a window has not ended yet")
    for name, dual in (("dual", block.dual[0]), ("jump_dual", block.jump_dual[0])):
        _require_finite(**{f"{name}.{field}": dual[field] for field in dual.dtype.names})
        _require(dual.count >= 0, f"{name}.count", f"must not be negative; got {dual.count}")
    length, fresh = block.length[0], BlockState(block.plan).length[0]
    _require(0 <= length.count <= done, "length.count", f"must be at most {done}; got {length.count}")
    known = AFTER_GROWTH, OTHERWISE
    _require(length.apart in known, "length.apart", f"must be one of {known}; got {length.apart}")
    _require(
        fresh.least <= length.least < math.inf, "length.least", f"must be {fresh.least} or more; got {length.least}"
    )
    _require(0 <= length.length < math.inf, "length.length", f"must be finite; got {length.length}")
    if len(block.length_moments):
        rows = slice(int(MOMENTS.vectors["rate"]), KEPT)  # rates and slowness
        _require(np.all(block.length_moments[rows] >= 0), "length_moments", "rates must not be negative")


def _check_settings(block: BlockState, done: int, task: ChainTask) -> None:
    """Check that settings are the kernel's own, or consistent with the adaptation."""
    plan, settings, own, adapted = block.plan, block.settings[0], block.plan.settings[0], task.adapted
    warmup, dual, given, windows = plan.warmup[0], block.dual[0], bool(block.progress[0].given), plan.length_windows
    expected = {name: own[name] for name in SETTINGS.names or ()}
    positive = {"step_size", "jump_size"}
    expected["max_depth"] = depth_at(plan, done, given) if len(block.kept) else plan.max_depth
    if warmup.adapt_step and (done or given):
        with np.errstate(over="ignore"):
            expected["step_size"] = np.exp(dual.log_step_bar if done >= warmup.tune > 0 else dual.log_step)
    if plan.dynamics.pointers[0] == types.JUMPING:
        expected["jump_size"] = settings.jump_size
    expected["watched"] = watched = bool(len(windows)) and windows[0, 0] <= done < windows[-1, 1]
    if adapted is not None and adapted.length is not None and plan.learns_jitter:
        expected["length_jitter"] = adapted.jitter or own.length_jitter
    if plan.learns_length and (len(windows) or adapted is not None):
        expected["trajectory_length"] = plain(next_length)(block.length[0], windows, done, settings)
        positive.add("trajectory_length")
    least = LOOK_AHEAD * block.length[0].length * (1 + settings.length_jitter) if watched else 0.0
    expected["longest"] = max(settings.longest, (1 - SAME) * least)
    if plan.keeps_momentum:
        expected["keep_momentum"] = np.clip(settings.keep_momentum, 0, int(done > 0))
        drawn = done > 0 and settings.slice_variable != own.slice_variable
        expected["slice_variable"] = np.clip(settings.slice_variable, -1, 1) if drawn else own.slice_variable
    if plan.minibatches:
        parts = max(int(plan.dynamics.options[0].drawn_parts), 1)
        expected["updates"] = np.clip(settings.updates, done, done * int(own.n_steps or parts))
    for name, value in expected.items():
        near = SAME * value if name in ("step_size", "longest") else 0.0
        same = settings[name] == value or abs(settings[name] - value) <= near
        _require(same and settings[name] < math.inf, f"settings.{name}", f"must be {value}; got {settings[name]}")
    for name in positive:
        _require(settings[name] > 0, f"settings.{name}", f"must be positive; got {settings[name]}")


def _check_counters(block: BlockState) -> None:
    """Check counts and flags, some of which are indices of arrays."""
    counters, status, cache = block.counters[0], block.status[0], block.cache[0]
    for name in counters.dtype.names:
        _require(0 <= counters[name] < 2**62, f"counters.{name}", f"must not be negative; got {counters[name]}")
    ranges = {"failure": 16, "iterations_there": 2**31, "bound_to_arrive": 1, "energy_spared": 1}
    for name, most in ranges.items():
        _require(0 <= status[name] <= most, f"status.{name}", f"must be 0 to {most}; got {status[name]}")
    for name, least, most in (
        ("factorised", -16, 1),
        ("has_log_density", 0, 1),
        ("has_force", 0, 1),
        ("pairs", 0, 2**31),
    ):
        _require(least <= cache[name] <= most, f"cache.{name}", f"must be {least} to {most}; got {cache[name]}")
    weights = -0.5, 0.0, 0.5
    _require(cache.log_det_weight in weights, "cache.log_det_weight", f"must be one of {weights}")


def _check_order(block: BlockState) -> None:
    """Check the order of a split model's parts, which are indices of its data."""
    parts = int(block.dynamics.options[0].drawn_parts)
    order = block.state[POINT_ROWS:].ravel()[:parts]
    drawn = np.array_equal(np.sort(order), np.arange(parts))
    _require(drawn or (block.settings[0].updates == 0 and not order.any()), "state", "must hold an order of the parts")
    _require_finite(state=block.state[P])


def _check_metric(block: BlockState) -> None:
    """Check the rows of a constant metric: the kernel's own, or possible adapted values."""
    metric, vecs, mats = block.dynamics.metric, block.vecs, block.mats
    fresh = block.dynamics
    if block.dynamics.pointers[0] == types.JUMPING:
        _check_masses_of_jumps(block)
    elif type(metric) is Tridiagonal:
        if metric.diagonal is not None:
            same = np.array_equal(vecs[: BANDED.n_vectors], fresh.vecs[: BANDED.n_vectors])
            _require(same and np.array_equal(mats, fresh.mats), "vecs", "they are not the kernel's metric")
    elif block.progress[0].hierarchical:
        assert isinstance(metric, Hierarchical)
        _check_hierarchy(metric.from_rows(vecs, mats).rows(vecs.shape[1]), vecs[FIRST:])
    elif isinstance(metric, LowRank):
        _check_inverse_mass(vecs, mats)
        _check_directions(vecs)
    elif is_plain(metric):
        if metric.learns == NOTHING:
            same = np.array_equal(vecs[:2], fresh.vecs[:2]) and np.array_equal(mats, fresh.mats)
            _require(same, "vecs", "they are not the kernel's metric")
        else:
            _check_inverse_mass(vecs, mats)


def _check_hierarchy(used: np.ndarray, there: np.ndarray) -> None:
    """Check that the rows are those of the metric that they describe, which restoring has checked, except for computed ones."""
    roots = TERMS + 2 * PARENTS + TERMS * PARENTS
    computed = [*range(TERMS + PARENTS, TERMS + 2 * PARENTS), roots]  # slopes and M^1/2
    used, there = (np.delete(rows[: len(used)], computed, axis=0) for rows in (used, there))
    same = np.isclose(used, there, rtol=SAME, atol=0) | (used == there)
    _require(np.all(same), "vecs", "they are not a hierarchical metric")


def _check_inverse_mass(vecs: np.ndarray, mats: np.ndarray) -> None:
    """Check that M^-1 > 0 has the given root and, if it is dense, the factor L with M^-1 = L L'."""
    size, root = vecs[0], vecs[1]
    _require(np.all((size > 0) & np.isfinite(size)), "vecs", "the inverse mass must be positive and finite")
    _require(np.allclose(root * np.sqrt(size), 1, rtol=SAME), "vecs", "the root does not fit the inverse mass")
    if len(mats) == 0:
        return
    M_inverse, L = mats[0], mats[1]
    _require_finite(mats=mats)
    scale = np.sqrt(size)
    off = np.abs(M_inverse - L @ L.T) / scale / scale[:, None]
    fits = np.all(np.diag(L) > 0) and not np.triu(L, 1).any() and np.all(np.diag(M_inverse) > 0)
    same = np.allclose(np.diag(M_inverse), size, rtol=SAME)
    _require(fits and same and off.max() < 1e-6, "mats", "the inverse mass matrix does not fit its factor")


def _check_directions(vecs: np.ndarray) -> None:
    """Check that there are not too many directions, that they are orthonormal, and that they fit their eigenvalues."""
    rows = ROWS(vecs)
    rank = rows.rank[0]
    most = min(vecs.shape[0] - FIRST_DIRECTION, vecs.shape[1])
    _require(0 <= rank <= most and rank == int(rank), "vecs", f"the rank must be at most {most}; got {rank}")
    k = int(rank)
    eigenvalues, U = 1 + rows.spread[:k], vecs[FIRST_DIRECTION : FIRST_DIRECTION + k] * vecs[1]
    _require_finite(vecs=vecs[: FIRST_DIRECTION + k])
    _require(np.all(eigenvalues > 0), "vecs", "eigenvalues must be positive")
    fits = np.abs(1 + rows.shrink[:k] - eigenvalues**-0.5) <= 1e-6 * eigenvalues**-0.5
    off = np.abs(U @ U.T - np.eye(k)).max(initial=0.0)
    _require(np.all(fits) and off < 1e-6, "vecs", "directions do not fit their eigenvalues")


def _check_masses_of_jumps(block: BlockState) -> None:
    row = {name: block.vecs[int(at)] for name, at in LAYOUT.vectors.items()}
    fresh = block.dynamics.vecs
    same = np.array_equal(row["jumps"], fresh[int(LAYOUT.vectors["jumps"])])
    _require(same, "vecs", "the discontinuous coordinates differ from the model's")
    J = np.flatnonzero(row["jumps"])
    order = row["order"][: len(J)]
    _require(np.array_equal(np.sort(order), J), "vecs", "the order of the discontinuous coordinates is not valid")
    for name in ("inverse_mass", "root", "scale"):
        _require(np.all((row[name] > 0) & np.isfinite(row[name])), "vecs", f"{name} must be positive and finite")
    inverse_root = np.where(row["jumps"] != 0, row["inverse_mass"], np.sqrt(row["inverse_mass"]))
    _require(np.allclose(row["root"] * inverse_root, 1, rtol=SAME), "vecs", "the root does not fit the mass")


def _check_density(chain: Chain) -> None:
    """Check that the saved log density and gradient are the model's at the position."""
    block = chain.blocks[0]
    try:
        L, gradient = chain.model.core.value_and_gradient(chain.position.copy())
    except Exception as error:
        raise _Invalid(f"position: the model raises {type(error).__name__} there: {error}") from None
    kept = float(block.state[LOG_DENSITY, 0])
    near = abs(kept - L) <= DENSITY + RELATIVE * max(abs(kept), abs(L))
    _require(near, "state", f"its log density is {kept:.6g}, but the model returns {L:.6g} at its position")
    integrator = block.dynamics.integrator
    follows_parts = getattr(getattr(integrator, "base", integrator), "follows_parts", False)  # gradient of one part
    if block.dynamics.pointers[0] != types.JUMPING and not follows_parts:
        size = np.abs(gradient).max(initial=0.0)
        off = np.abs(block.state[GRADIENT] - gradient).max(initial=0.0)
        _require(off <= DENSITY + RELATIVE * size, "state", "its gradient differs from the model's at its position")

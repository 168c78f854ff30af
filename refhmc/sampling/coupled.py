"""Pairs of HMC chains that meet: unbiased estimates, and a bound on the distance to stationarity.

Two chains X and Y have the same kernel K, and starts from the same distribution. X is L iterations ahead. A coupled kernel
moves (X_t, Y_{t-L}) so that each chain alone moves by K, and so that they meet exactly, at tau = min{t >= L: X_t = Y_{t-L}}.
After that, they are one chain. K is a mixture (Heng and Jacob 2019). With probability 1 - gamma it makes a transition of HMC,
and with probability gamma one of random-walk Metropolis::

    HMC           the same normals, jitters and uniform for both chains, which contracts their distance where the target is
                  log-concave
    random walk   xi ~ N(0, I);  x* = x + s xi;  y* = x* with probability min(1, N(xi + z; 0, I) / N(xi; 0, I)),
                  z = (x - y) / s;  otherwise y* = y + s (xi - 2 (xi . z) z / |z|^2).  The same uniform accepts both

The proposals are maximally coupled: P(x* = y*) = 1 - TV(N(x, s^2), N(y, s^2)) = erfc(|z| / sqrt 8). The reflection moves the
rest of the first distribution to the rest of the second (Jacob, O'Leary and Atchade 2020; Bou-Rabee, Eberle and Zimmer 2020).
The scales s are `proposal_scale` times the standard deviations of the metric, sqrt(diag M^-1).

With h_t = h(X_t) and T = m - k + 1, the estimate of E h is (Jacob et al., with a lag L as in Biswas, Jacob and Vanetti 2019)::

    H_{k:m} = 1/T sum_{t=k}^{m} h_t + 1/T sum_{t=k+L}^{tau-1} w_t (h_t - h(Y_{t-L}))
    w_t = floor((t - k) / L) - ceil(max(L, t - m) / L) + 1

w_t counts the pairs (l, j >= 1) with t = l + jL and k <= l <= m. The bound is (Biswas et al. 2019)::

    TV(distribution of X_t, target) <= E max(0, ceil((tau - L - t) / L))
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types as nb
from numpy.typing import ArrayLike

from refhmc.adaptation.adapted import adapted_of, as_rows, begin_from, chains_of, check_dimension, has_constant_rows
from refhmc.compile.compiled import entry, jit
from refhmc.core import types
from refhmc.core.arguments import positive, whole_number
from refhmc.core.point import Q, as_point, copy_row, copy_state
from refhmc.core.randomness import fill_normals
from refhmc.core.records import CONTROL, one
from refhmc.core.sample_stats import STATS
from refhmc.core.types import as_dynamics, as_model, as_points, as_work, as_workspace
from refhmc.errors import SamplingWarning, ShapeError
from refhmc.kernels.hmc import HMC, metropolis_probability
from refhmc.sampling.chains.chain import BlockState, Plan, make_plan, reset_counters
from refhmc.sampling.chains.initialization import check_start_of, given_starts, random_start
from refhmc.sampling.chains.task import chain_generator
from refhmc.sampling.checks.seed import Seed, entropy_of

if TYPE_CHECKING:
    from refhmc.models.base import Model

JITTERS_AND_ACCEPTANCE = 3  # most uniforms of a transition of HMC, without the order of the parts of a split model
ROWS = 1024  # iterations per call of the compiled loop

# The kernel of both chains; and one chain: the model, the workspace with the state, and a tape of uniforms to replay.
KERNEL = nb.Tuple((types.SETTINGS, types.TRANSITION, types.DYNAMICS))
CHAIN = nb.Tuple((types.MODEL, types.WORKSPACE, types.RANDOMNESS))


class Coupled(NamedTuple):
    """Result of :func:`coupled`.

    Parameters
    ----------
    meeting_times : ndarray of int, shape (pairs,)
        Iterations tau of the leading chains at which the pairs met, or `max_iterations` for a pair that did not meet.
    met : ndarray of bool, shape (pairs,)
        Whether each pair met.
    estimates : dict of str to ndarray, shape (pairs, ...)
        Unbiased estimate H_{k:m} of each expectation, from each pair; NaN for a pair that did not meet.
    mean : dict of str to ndarray
        Means of the estimates over the pairs. They are NaN if any pair did not meet, because those that met are a selection.
    standard_error : dict of str to ndarray
        Standard errors of these means, from the independent pairs.
    total_variation : ndarray, shape (n,)
        Estimated bound on the total variation distance between the distribution of a chain after t = 0, 1, ... iterations and
        the target. It is NaN if any pair did not meet, and 0 after the last entry.
    total_variation_error : ndarray, shape (n,)
        Standard errors of the bound. If no pair contributes, both are 0. With 95 % probability, fewer than a share of
        3 / pairs of all pairs contribute there.
    n_gradients : ndarray of int, shape (pairs,)
        Numbers of gradients that both chains of each pair used.
    lag : int
        The lag L.
    """

    meeting_times: np.ndarray
    met: np.ndarray
    estimates: dict[str, np.ndarray]
    mean: dict[str, np.ndarray]
    standard_error: dict[str, np.ndarray]
    total_variation: np.ndarray
    total_variation_error: np.ndarray
    n_gradients: np.ndarray
    lag: int


@jit
def replay_hmc(
    kernel: tuple, chain: tuple, normals: np.ndarray, uniforms: np.ndarray, stats: np.record, control: np.record
) -> None:
    """Make one transition of HMC on recorded random numbers, as :func:`refhmc.transition` does."""
    settings, transition, dynamics = kernel
    model, workspace, replayed = chain
    points, _, own_normals, _, work = as_workspace(workspace)
    dyn = as_dynamics(dynamics)
    copy_row(own_normals, normals)
    copy_row(replayed[1], uniforms)
    replayed[2][0] = 0
    reset_counters(as_work(work).counters, as_work(work).status, control)
    dyn.refresh(model, dyn.metric, as_points(points).state, own_normals, True, work)
    # The settings keep this momentum, and so the transition takes no numbers from the generator.
    transition(dynamics, model, workspace, replayed, settings, stats, control)


@jit
def propose_together(x: np.ndarray, y: np.ndarray, scale: np.ndarray, normals: np.ndarray, u: float) -> bool:
    """Write proposals from the positions x[0] and y[0] into x[1] and y[1]; return whether they are equal.

    Each proposal is normal with the standard deviations `scale`. The two are maximally coupled.
    """
    d, squared, along = scale.shape[0], 0.0, 0.0
    for i in range(d):
        z = (x[0, i] - y[0, i]) / scale[i]
        squared += z * z
        along += z * normals[i]
    together = squared == 0 or u < math.exp(min(-along - squared / 2, 0.0))
    for i in range(d):
        x[1, i] = x[0, i] + scale[i] * normals[i]
        if together:
            y[1, i] = x[1, i]
        else:
            z = (x[0, i] - y[0, i]) / scale[i]
            y[1, i] = y[0, i] + scale[i] * (normals[i] - 2 * along / squared * z)
    return together


@jit
def accept_walk(chain: tuple, proposal: np.ndarray, u: float, control: np.record) -> None:
    """Take the proposal of the random walk with probability min(1, exp(L(proposal) - L))."""
    model, workspace, _ = chain
    points, _, _, _, work = as_workspace(workspace)
    f, at = as_model(model), as_points(points)
    candidate = as_point(at.candidate)
    copy_row(candidate.q, proposal)
    candidate.log_density[0] = f.value_and_gradient(candidate.q, f.data, candidate.gradient)
    control.gradients += 1
    if u < metropolis_probability(candidate.log_density[0] - as_point(at.state).log_density[0]):
        copy_state(at.state, at.candidate)
        as_work(work).cache.factorised = 0


@jit
def are_equal(x: np.ndarray, y: np.ndarray) -> bool:
    """Return whether two positions are equal in all coordinates."""
    equal = True
    for i in range(x.shape[0]):
        equal = equal and x[i] == y[i]
    return equal


@entry(
    lambda: nb.int64(
        KERNEL,
        CHAIN,
        CHAIN,
        nb.npy_rng,
        types.VECTOR,
        types.STACK,
        types.VECTOR,
        nb.float64,
        types.INTEGERS,
        types.MATRIX,
        types.MATRIX,
        types.STATS_ROW,
        types.CONTROL,
    ),
    "coupled chains",
)
def run_pair(
    kernel: tuple,
    ahead: tuple,
    behind: tuple,
    rng: np.random.Generator,
    scale: np.ndarray,
    proposals: np.ndarray,
    uniforms: np.ndarray,
    walk_probability: float,
    times: np.ndarray,
    xs: np.ndarray,
    ys: np.ndarray,
    stats: np.record,
    control: np.record,
) -> int:
    """Fill `xs` with X_t and `ys` with Y_{t-L}, one iteration per row, and return the number of rows.

    `times` are the iteration t, the lag L, the meeting time (0: not met), the last iteration if the chains have met, and the
    last one in any case. Before the lag, and after the meeting, only X moves.
    """
    x = as_point(as_points(as_workspace(ahead[1]).points).state).q
    y = as_point(as_points(as_workspace(behind[1]).points).state).q
    normals, of_x, of_y = proposals[0, 2], proposals[0], proposals[1]
    for row in range(xs.shape[0]):
        if control.stop or times[0] >= times[4] or (times[2] > 0 and times[0] >= times[3]):
            return row
        both = times[2] == 0 and times[0] >= times[1]
        walks = rng.random() < walk_probability
        fill_normals(rng, normals)
        for i in range(uniforms.shape[0]):
            uniforms[i] = rng.random()
        if walks:
            copy_row(of_x[0], x)
            copy_row(of_y[0], y if both else x)
            propose_together(of_x, of_y, scale, normals, uniforms[0])
            accept_walk(ahead, of_x[1], uniforms[1], control)
            if both:
                accept_walk(behind, of_y[1], uniforms[1], control)
        else:
            replay_hmc(kernel, ahead, normals, uniforms, stats, control)
            if both:
                replay_hmc(kernel, behind, normals, uniforms, stats, control)
        times[0] += 1
        if times[2] == 0 and times[0] >= times[1] and are_equal(x, y):
            times[2] = times[0]
        copy_row(xs[row], x)
        copy_row(ys[row], x if times[2] > 0 else y)
    return xs.shape[0]


class Pair:
    """Two chains with the kernel of a block, ``X`` ahead of ``Y`` by a lag, and their random numbers.

    The order of the numbers of an iteration is: a uniform for the choice of the kernel, d normals, and the uniforms. The random
    walk uses the first uniform for its proposals and the second for its acceptance. HMC uses them as on a tape.
    """

    def __init__(self, model: Model, plan: Plan, adapted: Any, rng: np.random.Generator) -> None:
        (block,) = plan.blocks
        self.rng, self.X, self.Y = rng, BlockState(block), BlockState(block)
        for chain in (self.X, self.Y):
            if adapted is not None:
                begin_from(chain, adapted)
            chain.settings.keep_momentum = 1
        n = JITTERS_AND_ACCEPTANCE + int(self.X.options[0].drawn_parts)
        self.uniforms, self.proposals = np.zeros(n), np.zeros((2, 3, model.dim))
        self.tapes = [(rng, np.zeros(n), np.zeros(1, np.int64)) for _ in range(2)]
        self.stats, self.control, self.times = one(STATS), one(CONTROL), np.zeros(5, np.int64)

    def start(self, x: np.ndarray, y: np.ndarray, lag: int, until: int, most: int) -> None:
        """Set the starts, the lag L, and the last iterations: `until` if the chains have met, `most` in any case."""
        self.X.start(x)
        self.Y.start(y)
        self.times[:] = 0, lag, 0, until, most
        self.control.gradients = 2

    def run(self, scale: np.ndarray, walk_probability: float, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
        """Make up to so many iterations and return X_t and Y_{t-L} after each; the rows are empty after the last."""
        xs, ys = np.empty((2, rows, len(scale)))
        kernel = self.X.settings[0], self.X.transition, self.X.dynamics.pointers
        ahead, behind = (
            (chain.pointers, chain.workspace, tape) for chain, tape in zip((self.X, self.Y), self.tapes, strict=True)
        )
        made = run_pair(
            kernel,
            ahead,
            behind,
            self.rng,
            scale,
            self.proposals,
            self.uniforms,
            walk_probability,
            self.times,
            xs,
            ys,
            self.stats[0],
            self.control[0],
        )
        return xs[:made], ys[:made]

    @property
    def n_gradients(self) -> int:
        """Gradients of both chains so far."""
        waiting = self.X.counters[0].gradients + self.Y.counters[0].gradients
        return int(self.control[0].gradients + waiting)


def weights(t: np.ndarray, k: int, m: int, lag: int) -> np.ndarray:
    """Return w_t of the module docstring, and 0 before k + lag."""
    return np.where(t >= k + lag, (t - k) // lag + -np.maximum(lag, t - m) // lag + 1, 0)


def bound_on_total_variation(meeting_times: np.ndarray, lag: int, t: np.ndarray) -> np.ndarray:
    """Return max(0, ceil((tau - L - t) / L)) for each pair and iteration, (pairs, t)."""
    return np.maximum(0, -((t + lag - meeting_times[:, None]) // lag))


def standard_deviations(block: BlockState) -> np.ndarray:
    """Return sqrt(diag M^-1), or ones for a metric that depends on the position."""
    d, metric = block.state.shape[1], adapted_of(block).metric
    if not has_constant_rows(metric):
        return np.ones(d)
    variances, directions, excess = as_rows(metric, d)
    return np.sqrt(variances + excess @ directions**2)


def starts_of_pairs(model: Model, initvals: ArrayLike | None, pairs: int) -> np.ndarray | None:
    """Return the starts, (pairs, 2, d), or None if they are random."""
    if initvals is not None:
        initvals = np.asarray(initvals)
        if initvals.ndim > 1:
            if initvals.shape != (pairs, 2, model.dim):
                raise ShapeError(
                    f"initvals must have shape ({model.dim},) or ({pairs}, 2, {model.dim}); got {initvals.shape}."
                )
            initvals = initvals.reshape(-1, model.dim)
    starts = given_starts(model, initvals, 2 * pairs)
    return None if starts is None else starts.reshape(pairs, 2, model.dim)


def values_of(model: Model, function: Callable | None, q: np.ndarray) -> dict[str, np.ndarray]:
    """Return the functions whose expectations are estimated, with one row per position."""
    values = model.constrain(q)
    if function is None:
        return values
    made = {name: np.asarray(value, dtype=float) for name, value in function(values).items()}
    for name, value in made.items():
        if value.shape[:1] != (len(q),):
            raise ShapeError(
                f"function must return {len(q)} rows, one per draw, for {name!r}; got shape {value.shape}."
            )
    return made


def estimate_of(pair: Pair, run: Callable, values: Callable, k: int, m: int) -> dict[str, np.ndarray]:
    """Run a pair to its end and return H_{k:m} of each function."""
    total: dict[str, np.ndarray] = {}

    def add(of: dict[str, np.ndarray], w: np.ndarray) -> None:
        for name, value in of.items():
            total[name] = total.get(name, 0.0) + np.tensordot(w / (m - k + 1), value, 1)

    xs = ys = pair.X.state[Q][None].copy()
    first = 0
    while len(xs):
        t = first + np.arange(len(xs))
        averaged = (k <= t) & (t <= m)
        w = weights(t, k, m, int(pair.times[1]))
        corrects = (w > 0) & np.any(xs != ys, axis=1)
        if averaged.any():
            add(values(xs[averaged]), np.ones(np.count_nonzero(averaged)))
        if corrects.any():
            add(values(xs[corrects]), w[corrects])
            add(values(ys[corrects]), -w[corrects])
        first += len(xs)
        xs, ys = run()
    return total


def coupled(
    model: Model,
    kernel: HMC | None = None,
    *,
    pairs: int = 100,
    lag: int = 100,
    k: int = 200,
    m: int = 1000,
    max_iterations: int = 100_000,
    function: Callable[[dict[str, np.ndarray]], dict[str, ArrayLike]] | None = None,
    warmup: object = None,
    walk_probability: float = 0.05,
    proposal_scale: float = 1e-2,
    initvals: ArrayLike | None = None,
    random_seed: Seed | None = None,
    cores: int | None = None,
) -> Coupled:
    """Run pairs of HMC chains that meet, for unbiased estimates and a bound on the burn-in.

    The chains of a pair use the same random numbers, and one of them is `lag` iterations ahead. After they have met, the
    estimate H_{k:m} of the pair has the exact expectation, from however far the chains started. The meeting times bound the
    total variation distance between a chain after t iterations and the target.

    Parameters
    ----------
    model : Model
        The model, without discontinuous coordinates.
    kernel : HMC, optional
        The kernel. Without `warmup` it must have a step size; its metric is used as given, and its trajectory length defaults
        to pi/2. The default is ``HMC()``, which needs `warmup`.
    pairs : int, default 100
        Number of independent pairs, at least 2.
    lag : int, default 100
        Number of iterations L by which the first chain is ahead. A larger lag gives a sharper bound. It costs
        nothing if chains meet before `m`.
    k : int, default 200
        First iteration in the estimate. It should be a large quantile of the meeting times.
    m : int, default 1000
        Last iteration in the average; it should be several times `k`. A pair runs until it has met and reached `m`.
    max_iterations : int, default 100000
        Iterations after which a pair is given up, at least `m` and more than `lag`.
    function : callable, optional
        Function from the constrained values by name, with one row per draw, to a dictionary of arrays with one row per draw.
        Their expectations are estimated. Defaults to the constrained values themselves.
    warmup : Result, InferenceData or DataTree, optional
        Earlier result of :func:`refhmc.sample` with this model, metric and integrator. Step size, metric and trajectory length
        of its first chain are used by all pairs. Positions are not used.
    walk_probability : float, default 0.05
        Probability gamma, in (0, 1), of a transition of the random walk. Only the random walk lets chains meet.
    proposal_scale : float, default 0.01
        Standard deviation of the random walk, in units of the metric's standard deviations. For a metric that depends on the
        position, the units are those of the unconstrained coordinates.
    initvals : array_like, shape (d,) or (pairs, 2, d), optional
        Unconstrained starts of all chains or of the two chains of each pair. Both chains of a pair must have the same
        distribution. Defaults to the starts of :func:`refhmc.sample`.
    random_seed : int, sequence of int, SeedSequence or Generator, optional
        Seed. Pair k uses the random stream of chain k. By default the seed comes from the operating system.
    cores : int, optional
        Number of pairs that run at a time, each in a thread. Defaults to the number of processors.

    Returns
    -------
    Coupled
        Meeting times, estimates with standard errors, the bound on the total variation, and numbers of gradients.

    Raises
    ------
    TypeError
        If `kernel` is not :class:`refhmc.HMC`.
    ValueError
        If a number is out of range, if the kernel has no step size and there is no `warmup`, or if `warmup` does not fit.
    ShapeError, InitError
        If the starts have another shape, or if the density is not finite there.

    Warns
    -----
    SamplingWarning
        If pairs did not meet within `max_iterations`. Means and bound are NaN then, because the pairs that met are a selection.

    See Also
    --------
    sample : Draw, and learn a step size and a metric.

    Notes
    -----
    Chains meet soon if the target is log-concave outside a small region, and if trajectories are neither much shorter nor much
    longer than a quarter of a period (pi/2 in units of the metric's standard deviations). Between separate modes they rarely
    meet. A pair whose meeting time exceeds `m` has an estimate of large variance; increase `k` and `m`.

    References
    ----------
    - Heng and Jacob (2019), Unbiased Hamiltonian Monte Carlo with couplings, Biometrika 106.
    - Jacob, O'Leary and Atchade (2020), Unbiased Markov chain Monte Carlo methods with couplings, JRSS B 82.
    - Biswas, Jacob and Vanetti (2019), Estimating convergence of Markov chains with L-lag couplings, NeurIPS 32.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 3.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> kernel = refhmc.HMC(step_size=0.5, n_steps=3)
    >>> made = refhmc.coupled(model, kernel, pairs=20, k=100, m=300, random_seed=1)
    >>> bool(made.met.all()), made.estimates["x"].shape
    (True, (20, 2))
    """
    kernel = HMC() if kernel is None else kernel
    if not isinstance(kernel, HMC):
        raise TypeError(f"kernel must be a refhmc.HMC; got {kernel!r}. Give HMC(...), or omit it and give warmup.")
    if kernel.step_size is None and warmup is None:
        raise ValueError(
            "step_size of the kernel must be given without warmup; got None. Give one, or an earlier result."
        )
    pairs, lag = whole_number("pairs", pairs, 2), whole_number("lag", lag, 1)
    k = whole_number("k", k, 0)
    m = whole_number("m", m, k)
    max_iterations = whole_number("max_iterations", max_iterations, max(m, lag + 1))
    gamma = positive("walk_probability", walk_probability)
    if gamma >= 1:
        raise ValueError(f"walk_probability must lie in (0, 1); got {walk_probability!r}.")
    cores = min(whole_number("cores", os.cpu_count() or 1 if cores is None else cores), pairs)
    size, entropy = positive("proposal_scale", proposal_scale), entropy_of(random_seed)
    plan, adapted = make_plan(model, kernel, 0), None
    if warmup is not None:
        check_dimension(warmup, model.dim)
        adapted = chains_of(warmup, kernel.metric)[0]
    starts = starts_of_pairs(model, initvals, pairs)
    first = Pair(model, plan, adapted, chain_generator(entropy, 0))
    plan.blocks[0].compile(model.name)
    first.X.dynamics.compile(model.name)
    run_pair.compile()
    scale = size * standard_deviations(first.X)

    def run(pair: int) -> tuple[int, bool, dict[str, np.ndarray], int]:
        rng = chain_generator(entropy, pair)
        two = Pair(model, plan, adapted, rng)
        x, y = (random_start(model, plan, rng, pair) for _ in range(2)) if starts is None else starts[pair]
        if starts is not None:
            for q in (x, y):
                check_start_of(model, plan, q, pair)
        two.start(x, y, lag, m, max_iterations)
        estimate = estimate_of(two, partial(two.run, scale, gamma), partial(values_of, model, function), k, m)
        met = bool(two.times[2])
        if not met:
            estimate = {name: np.full_like(value, np.nan) for name, value in estimate.items()}
        return int(two.times[2]) if met else max_iterations, met, estimate, two.n_gradients

    with ThreadPoolExecutor(cores) as threads:
        found = list(threads.map(run, range(pairs)))
    times, met = np.array([each[0] for each in found]), np.array([each[1] for each in found])
    if not met.all():
        warnings.warn(
            f"{np.count_nonzero(~met)} of {pairs} pairs did not meet within {max_iterations:,} iterations. The means and the "
            "bound are NaN, because the pairs that met are a selection. Increase max_iterations, or use a kernel that mixes "
            "better (see docs/guide/coupled.md).",
            SamplingWarning,
            stacklevel=2,
        )
    estimates = {name: np.array([each[2][name] for each in found]) for name in found[0][2]}
    bound = (
        bound_on_total_variation(times, lag, np.arange(max(times.max() - lag + 1, 1)))
        + np.where(met, 0, np.nan)[:, None]
    )
    return Coupled(
        times,
        met,
        estimates,
        {name: each.mean(axis=0) for name, each in estimates.items()},
        {name: each.std(axis=0, ddof=1) / math.sqrt(pairs) for name, each in estimates.items()},
        bound.mean(axis=0),
        bound.std(axis=0, ddof=1) / math.sqrt(pairs),
        np.array([each[3] for each in found]),
        lag,
    )

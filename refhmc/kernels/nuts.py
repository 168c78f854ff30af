"""NUTS: the No-U-Turn sampler with multinomial selection and the generalised criterion.

From the point z0 = (q, p) a trajectory is doubled, forward or backward in time at random, until it turns back on itself.
Consider an interval of states z_a ... z_b with rho = p_a + ... + p_b and the velocities v = M^-1 p (or G(q)^-1 p). The
interval *turns* if rho . v_a <= 0 or rho . v_b <= 0. Two halves A, B = z_a ... z_m, z_{m+1} ... z_b may be joined unless

    the whole turns                    rho_A + rho_B      with   v_a, v_b
    A and the first state of B turn    rho_A + p_{m+1}    with   v_a, v_{m+1}
    B and the last state of A turn     p_m + rho_B        with   v_m, v_b

(Without the last two, 100 independent normals resonate: at step 0.2, 337 steps per draw instead of 25.) A new subtree is
discarded, and the trajectory ends, if its own halves, or their halves, may not be joined. If only the whole trajectory turns,
it ends and the subtree is kept. Within a subtree a state is drawn with probability proportional to exp(-H). The candidate of
the subtree replaces that of the tree with probability min(1, W_subtree / W_tree).

Hoffman and Gelman (2014); Betancourt (2017), A conceptual introduction to HMC, appendix A; the criterion for joining halves is
that of Stan's pull request 2800. An energy spread of more than 1,000 over the trajectory, or an energy that is not finite,
also ends it (see ``sample_stats``). Like the U-turn criterion, this rule depends on the interval but not on its starting point,
so that the transition leaves exp(-H) exactly invariant.

If the masses of some coordinates depend on others, the *hyperparameters* (``Hierarchical``, and ``Fisher`` on a model that
declares its levels), the criterion is another one. The other coordinates oscillate with period about 2 pi, and a sum over all
coordinates stops at half a period of them, long before the hyperparameters turn, which have larger masses. Products are
therefore sums over the hyperparameters only. Their velocities oscillate, too, since the kinetic energies of the others, with
period about pi, are forces on them. Instead of velocities at the two ends, the criterion takes the sums s_A and s_B of the
velocities in the two halves, and halves that last less than half this period are always joined. With n states in each half,
A + B turns if

    n eps >= pi / 2   and   (rho . s_A <= 0   or   rho . s_B <= 0),      rho = rho_A + rho_B

The proof of invariance needs only that the criterion is a function of the interval and of the step size, the same in both
directions of time, which this is. Measurements are in ``validation/benchmarks/results/u_turn.md`` and ``explicit.md``.

There are two implementations. On arrays, :func:`transition` builds the subtree by recursion, as in the papers. The compiled
one builds it leaf by leaf: after leaf k the completed intervals are the binary digits of k + 1.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import invariant, jit, jit_inline, jit_part, jit_sum
from refhmc.core import sample_stats as S
from refhmc.core.arguments import whole_number
from refhmc.core.point import add_row, as_point, copy_point, copy_row, copy_state, swap_rows
from refhmc.core.randomness import bernoulli, uniform
from refhmc.core.types import as_points, as_work, as_workspace
from refhmc.integrators.step import integrator_step
from refhmc.kernels.hmc import begin, not_begun
from refhmc.kernels.options import check_options, solver_statistics, with_advice
from refhmc.metrics.base import HIERARCHY, HamiltonianOnArrays, hyperparameters_of
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

# exp(H0 - H) of a state must not overflow; at stationarity a drop of 700 has probability e^-700.
LARGEST_LOG_WEIGHT = 700.0
LEAST_HALF = math.pi / 2  # time of a half on a hierarchical metric, from which on the trajectory may turn
hierarchy = HIERARCHY.views


@with_advice
@dataclass(frozen=True, kw_only=True)
class NUTS:
    """The No-U-Turn sampler, which chooses the length of each trajectory.

    From (q, p), p ~ N(0, M), a trajectory is doubled, forward or backward in time at random, until it turns back on itself.
    With rho the sum of the momenta of the states z_a, ..., z_b and v their velocities M^-1 p (or G(q)^-1 p), an interval
    turns if::

        rho . v_a <= 0   or   rho . v_b <= 0

    Two halves are joined unless their union turns. They are also not joined if the first half turns with the first state of
    the second, or the second half with the last state of the first. Within a half a state is drawn with probability
    proportional to exp(-H). The candidate of the new half replaces the present one with probability min(1, W_new / W_old),
    where W are sums of these weights. The transition leaves exp(-H) exactly invariant.

    If the masses of some coordinates depend on others, the hyperparameters, then products are sums over the hyperparameters
    only, and the sums of the velocities in the two halves replace the velocities at the two ends. Halves that last less than
    pi/2 are always joined. This holds for ``Hierarchical``, and for ``Fisher`` if the model declares `fisher_levels`.

    Parameters
    ----------
    step_size : float, optional
        Step size of the integrator. By default it is adapted in warm-up until the acceptance rate is `target_accept`.
    max_treedepth : int, default 10
        Maximum number of doublings, from 1 to 30. A draw takes at most ``2**max_treedepth - 1`` steps.
    metric : object or str, optional
        A metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is :class:`refhmc.metrics.LowRank`,
        which starts diagonal and adds directions in warm-up if they reduce the cost. If `integrator` is not given and warm-up
        detects a funnel, the metric becomes :class:`refhmc.metrics.Hierarchical`, with explicit Riemannian steps. In a block of
        Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, ``"auto"`` is an adapted ``Diagonal()``.
    integrator : object or str, optional
        An integrator of `refhmc.integrators`, or its name in lower case. Defaults to ``Leapfrog()``, or to
        ``ImplicitMidpoint()`` if the metric depends on the position, or to ``BlockLeapfrog()`` for ``Hierarchical``.
    target_accept : float, optional
        Target acceptance rate, in (0, 1). Defaults to 0.8. If the metric depends on the position, the default is 0.9, and 0.98
        if the integrator is implicit or approximate.

    Raises
    ------
    ValueError
        If a number is out of range, if a name is unknown, or if the integrator does not fit the metric.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    HMC : Trajectories of a given or learned length.
    DHMC : For densities with jumps.

    References
    ----------
    - Hoffman and Gelman (2014), The No-U-Turn sampler, Algorithm 6, here with multinomial weights.
    - Betancourt (2017), A conceptual introduction to Hamiltonian Monte Carlo, appendix A.
    - The criterion for joining two halves is that of Stan's pull request 2800.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> kernel = refhmc.NUTS(max_treedepth=4)
    >>> result = refhmc.sample(model, kernel, draws=100, tune=100, random_seed=1, progressbar=False, raw=True)
    >>> result.draws.shape
    (4, 100, 2)
    >>> bool(result.sample_stats["n_steps"].max() <= 15)
    True
    """

    name = "nuts"
    step_size: float | None = None
    max_treedepth: int = 10
    metric: object = None
    integrator: object = None
    target_accept: float | None = None

    def __post_init__(self) -> None:
        check_options(self)
        whole_number("max_treedepth", self.max_treedepth, 1, 30)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw."""
        return (
            *(
                "lp",
                "energy",
                "energy_error",
                "max_energy_error",
                "acceptance_rate",
                "diverging",
                "step_size",
                "n_steps",
            ),
            *("int_time", "tree_depth", "reached_max_treedepth", "index_in_trajectory", "is_accepted", "outcome"),
            *solver_statistics(self),
        )

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return nuts

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {"max_depth": self.max_treedepth}


# ------------------------------------------------------------------------------------- recursive implementation, on arrays


class State(NamedTuple):
    """A state of the trajectory: z = (q, p), with the copies if the step moves two; v = dH/dp; H; and its time in steps.

    ``p`` is the momentum that the criterion follows. The weight of the state is exp(log_ratio - H), with log_ratio 0 in NUTS.
    """

    z: tuple
    p: Array
    v: Array
    energy: float
    time: int
    log_ratio: float = 0.0


class Interval(NamedTuple):
    """Part of the trajectory: its first and last states in time, and the sums of its momenta and of its velocities."""

    first: State
    last: State
    rho: Array
    sum_v: Array

    @property
    def n(self) -> int:
        """Number of states."""
        return self.last.time - self.first.time + 1


class Ended(Exception):
    """Raised if the new half is discarded, with the reason."""


@dataclass
class NewStates:
    """The states of one doubling: their energies, the sum of their weights, and the one drawn by weight."""

    energies: list[float]
    weight: float = 0.0
    drawn: Any = None  # a State, from the first on


def of_state(state: State) -> Interval:
    """Return the interval of one state."""
    return Interval(state, state, state.p, state.v)


def joined(a: Interval, b: Interval) -> Interval:
    """Return A + B, where B follows A."""
    return Interval(a.first, b.last, a.rho + b.rho, a.sum_v + b.sum_v)


def halves_turn(a: Interval, b: Interval, eps: float) -> bool:
    """Return whether A and B may not be joined on a hierarchical metric, where the step size is ``eps``."""
    rho = a.rho + b.rho
    onward = bool(batched.dot(rho, a.sum_v) > 0) and bool(batched.dot(rho, b.sum_v) > 0)
    return a.n * abs(eps) >= LEAST_HALF and not onward


def turns(a: Interval, b: Interval) -> bool:
    """Return whether A and B, which follows it, may not be joined."""

    def onward(rho: Array, first: State, last: State) -> bool:
        return bool(batched.dot(rho, first.v) > 0) and bool(batched.dot(rho, last.v) > 0)

    whole = onward(a.rho + b.rho, a.first, b.last)
    with_first, with_last = onward(a.rho + b.first.p, a.first, b.first), onward(a.last.p + b.rho, a.last, b.last)
    return not (whole and with_first and with_last)


def followed(H: HamiltonianOnArrays, p: Array) -> Array:
    """Return the momenta p, on a hierarchical metric with zeros for all but the hyperparameters."""
    mask = hyperparameters_of(H.metric, H.model)
    return p if mask is None else p * batched.namespace(p).asarray(mask, dtype=p.dtype)


def criterion_of(H: HamiltonianOnArrays, eps: float) -> Callable[[Interval, Interval], bool]:
    """Return the criterion: whether two halves may not be joined."""
    return turns if hyperparameters_of(H.metric, H.model) is None else partial(halves_turn, eps=eps)


def state_at(H: HamiltonianOnArrays, z: tuple, time: int) -> State:
    """Return the state of z = (q, p), with the copies if there are any."""
    q, p = z[:2]
    return State(z, followed(H, p), H.inverse_product(q, p), float(H.energy(q, p)), time)


def spread(energies: list) -> float:
    """Return the difference of the largest and the least energy."""
    return max(energies) - min(energies)


def build_tree(
    move: Callable[[State, float], State],
    edge: State,
    eps: float,
    depth: int,
    H0: float,
    new: NewStates,
    tape: list[float],
    turns: Callable[[Interval, Interval], bool] = turns,
) -> Interval:
    """Return the interval of the 2^depth states beyond ``edge``, and add them to ``new``. Raises Ended.

    ``move(edge, eps)`` returns the next state, and ``turns(a, b)`` whether two halves may not be joined.
    """
    if depth == 0:
        state = move(edge, eps)
        new.energies.append(state.energy)
        if not math.isfinite(state.energy):
            raise Ended("no energy")
        if spread(new.energies) > S.MAX_ENERGY_SPREAD:
            raise Ended("diverged")
        weight = math.exp(min(H0 - state.energy + state.log_ratio, LARGEST_LOG_WEIGHT))
        new.weight += weight
        if new.drawn is None or tape.pop() < (weight / new.weight if new.weight > 0 else 0.0):
            new.drawn = state
        return of_state(state)
    near = build_tree(move, edge, eps, depth - 1, H0, new, tape, turns)
    far = build_tree(move, near.last if eps > 0 else near.first, eps, depth - 1, H0, new, tape, turns)
    a, b = (near, far) if eps > 0 else (far, near)
    if turns(a, b):
        raise Ended("turned")
    return joined(a, b)


class Trajectory(NamedTuple):
    """A complete trajectory: the state drawn, the number of doublings kept, all new energies, and why it ended."""

    drawn: State
    depth: int
    energies: list[float]
    ended: str


def trajectory(
    move: Callable[[State, float], State],
    start: State,
    eps: float,
    max_depth: int,
    tape: list[float],
    turns: Callable[[Interval, Interval], bool] = turns,
) -> Trajectory:
    """Return the trajectory from ``start``, doubled until it turns, with a state drawn from it."""
    chosen, H0 = start, start.energy
    whole, weight, depth, ended = of_state(chosen), 1.0, 0, "full"
    energies: list[float] = []
    while depth < max_depth and ended == "full":
        forward, new = tape.pop() < 0.5, NewStates([])
        edge, signed = (whole.last, eps) if forward else (whole.first, -eps)
        try:
            half = build_tree(move, edge, signed, depth, H0, new, tape, turns)
            if tape.pop() < new.weight / weight:
                chosen = new.drawn
            a, b = (whole, half) if forward else (half, whole)
            whole, weight, depth = joined(a, b), weight + new.weight, depth + 1
            ended = "turned" if turns(a, b) else "full"
            if spread([H0, *energies, *new.energies]) > S.MAX_ENERGY_SPREAD:
                ended = "diverged"
        except Ended as reason:
            ended = str(reason)
        energies += new.energies
    return Trajectory(chosen, depth, energies, ended)


class Move(NamedTuple):
    """Result of one transition of NUTS on arrays.

    Parameters
    ----------
    q : array, shape (d,)
        Position after the transition.
    index_in_trajectory : int
        Position of the draw on the trajectory, in signed steps from its start.
    energy_error : float
        H - H0 of the draw.
    acceptance_rate : float
        Mean of min(1, exp(H0 - H)) over all new states.
    tree_depth : int
        Number of doublings whose new half was kept.
    n_steps : int
        Number of steps.
    uniforms_used : int
        How many of the uniform random numbers were used.
    ended : str
        Why the trajectory ended: "turned", "full" at the greatest depth, "diverged" if the energies spread by more than 1,000,
        or "no energy".
    """

    q: Array
    index_in_trajectory: int
    energy_error: float
    acceptance_rate: float
    tree_depth: int
    n_steps: int
    uniforms_used: int
    ended: str


def transition(
    H: HamiltonianOnArrays,
    step: Callable,
    q: Array,
    p: Array,
    uniforms: Sequence[float],
    *,
    step_size: float,
    max_treedepth: int = 10,
    copies: int = 1,
) -> Move:
    """Make one transition of NUTS for one chain, on arrays, by recursion.

    This is Hoffman and Gelman's Algorithm 6 with multinomial weights and the generalised U-turn criterion.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
    step : callable
        One step of an integrator, from its ``on_arrays()``.
    q : array, shape (d,)
        Position.
    p : array, shape (d,)
        Momentum, which was just drawn.
    uniforms : sequence of float
        Uniform random numbers, used in the order in which the transition needs them.
    step_size : float
        Step size.
    max_treedepth : int, default 10
        Maximum number of doublings.
    copies : int, default 1
        2 for a `step` that moves two copies of (q, p), as that of ``ExplicitTao`` does.

    Returns
    -------
    Move
        Position after the transition, its statistics, and why the trajectory ended.
    """
    tape = [float(u) for u in uniforms][::-1]

    def move(edge: State, eps: float) -> State:
        return state_at(H, step(H, *edge.z, eps), edge.time + (1 if eps > 0 else -1))

    recorded, start = len(tape), state_at(H, (q, p) * copies, 0)
    criterion = criterion_of(H, step_size)
    drawn, depth, energies, ended = trajectory(move, start, step_size, max_treedepth, tape, criterion)
    accepted = [math.exp(min(start.energy - E, 0.0)) if math.isfinite(E) else 0.0 for E in energies]
    rate, used = sum(accepted) / len(accepted), recorded - len(tape)
    return Move(drawn.z[0], drawn.time, drawn.energy - start.energy, rate, depth, len(energies), used, ended)


# ------------------------------------------------------------------------------------------------- compiled implementation


class Extension(enum.IntEnum):
    """How a doubling of the trajectory ended. Only a VALID one may be followed by another."""

    VALID = 0
    TURNING = 1
    DIVERGING = 2
    NO_ENERGY = 3
    INTERRUPTED = 4
    NOT_REVERSIBLE = 5  # a macro step of WALNUTS


class Leaf(NamedTuple):
    """A new state: whether it may be one, its energy, its weight exp(H0 - H), and its term of the acceptance rate."""

    extension: Extension
    energy: float
    weight: float
    accept: float


class Leaves(NamedTuple):
    """Totals of the states that steps arrived at; ``worst`` is an energy error that is not finite, or 0."""

    n: int
    sum_accept: float
    lowest: float
    highest: float
    worst: float


class Subtree(NamedTuple):
    """A new half: how it ended, the sum of its weights, the energy of its candidate, and the index of it, from 1 on."""

    extension: Extension
    weight: float
    energy: float
    draw: int
    leaves: Leaves


class Tree(NamedTuple):
    """The trajectory: the sum of its weights, energy and index of its candidate, index of its first state, and doublings."""

    weight: float
    energy: float
    draw: int
    first: int
    depth: int


class IntervalRows(NamedTuple):
    """Rows (d,) of an interval: the sum of its momenta, and momentum and velocity at its first and last states.

    On a hierarchical metric only the sum of its momenta, and that of its velocities in ``sum_v``, are used.
    """

    rho: np.ndarray
    p_first: np.ndarray
    v_first: np.ndarray
    p_last: np.ndarray
    v_last: np.ndarray
    sum_v: np.ndarray


INTERVAL_ROWS = len(IntervalRows._fields)


@jit_inline
def as_interval(rows: np.ndarray) -> IntervalRows:
    """Return named views of the rows of an interval."""
    return IntervalRows(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5])


@jit_sum
def is_turning(first: np.ndarray, second: np.ndarray, v_last: np.ndarray) -> bool:
    """Return whether A + B, or A + first of B, or last of A + B turns; ``first`` and ``second`` are the intervals A and B.

    ``v_last`` is the velocity at the last state of B, which need not have been copied into B yet.
    """
    a, b = as_interval(first), as_interval(second)
    whole_a = whole_b = first_a = first_b = last_a = last_b = 0.0
    for i in range(first.shape[1]):
        whole = a.rho[i] + b.rho[i]
        whole_a += whole * a.v_first[i]
        whole_b += whole * v_last[i]
        with_first = a.rho[i] + b.p_first[i]
        first_a += with_first * a.v_first[i]
        first_b += with_first * b.v_first[i]
        with_last = a.p_last[i] + b.rho[i]
        last_a += with_last * a.v_last[i]
        last_b += with_last * v_last[i]
    return not (whole_a > 0 and whole_b > 0 and first_a > 0 and first_b > 0 and last_a > 0 and last_b > 0)


@jit_inline
def followed_momentum(z: np.ndarray, scratch: np.ndarray, work: tuple) -> np.ndarray:
    """Return the momentum of the point ``z``, on a hierarchical metric with zeros for all but the hyperparameters."""
    p = as_point(z).p
    if as_work(work).options.hyperparameters != 0:
        mask_momentum(p, work, scratch)
        p = scratch
    return p


@jit
def mask_momentum(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out <- p, with zeros for the coordinates that are marked as ignored."""
    ignored = hierarchy(work).ignored
    for i in range(p.shape[0]):
        out[i] = p[i] if ignored[i] == 0 else 0.0


@jit_sum
def states_are_turning(first: np.ndarray, p: np.ndarray, velocity: np.ndarray) -> bool:
    """Return :func:`is_turning` for the first state of ``first`` and another state, for which its three parts are equal."""
    a = as_interval(first)
    whole_a = whole_b = 0.0
    for i in range(p.shape[0]):
        whole = a.p_first[i] + p[i]
        whole_a += whole * a.v_first[i]
        whole_b += whole * velocity[i]
    return not (whole_a > 0 and whole_b > 0)


@jit_inline
def make_leaf(rows: np.ndarray, p: np.ndarray, velocity: np.ndarray) -> None:
    """Write the interval of a single state."""
    interval = as_interval(rows)
    copy_row(interval.rho, p)
    copy_row(interval.p_first, p)
    copy_row(interval.v_first, velocity)
    copy_row(interval.p_last, p)
    copy_row(interval.v_last, velocity)
    copy_row(interval.sum_v, velocity)


@jit_inline
def append(first: np.ndarray, second: np.ndarray) -> None:
    """Set A <- A + B, where the interval B comes after A."""
    a, b = as_interval(first), as_interval(second)
    add_row(a.rho, b.rho)
    add_row(a.sum_v, b.sum_v)
    copy_row(a.p_last, b.p_last)
    copy_row(a.v_last, b.v_last)


@jit_inline
def reverse(rows: np.ndarray) -> None:
    """Read the interval from its other end; the criterion is the same in both directions of time."""
    interval = as_interval(rows)
    swap_rows(interval.p_first, interval.p_last)
    swap_rows(interval.v_first, interval.v_last)


@jit
def add_leaf(tree: np.ndarray, leaf: int, p: np.ndarray, velocity: np.ndarray) -> bool:
    """Add a leaf and join intervals of the same size, 1, 2, 4, ...; return False if a union of two turns.

    The completed intervals that wait for another of their size are in ``tree[0], tree[1], ...``. Their number is the number
    of ones in the binary digits of ``leaf``, and each join is a carry in leaf + 1. Only the first rows of a single state
    are filled.
    """
    top, digits = 0, leaf
    while digits:
        top += digits & 1
        digits >>= 1
    if leaf & 1 == 0:
        interval = as_interval(tree[top])
        copy_row(interval.p_first, p)
        copy_row(interval.v_first, velocity)
        return True
    top -= 1
    if states_are_turning(tree[top], p, velocity):
        return False
    interval = as_interval(tree[top])
    copy_row(interval.rho, p)
    add_row(interval.rho, interval.p_first)
    digits = leaf >> 1
    while digits & 1:
        top -= 1
        if is_turning(tree[top], tree[top + 1], velocity):
            return False
        add_row(as_interval(tree[top]).rho, as_interval(tree[top + 1]).rho)
        digits >>= 1
    invariant(top >= 0)
    interval = as_interval(tree[top])
    copy_row(interval.p_last, p)
    copy_row(interval.v_last, velocity)
    return True


@jit
def halves_are_turning(first: np.ndarray, second: np.ndarray, n: int, eps: float) -> bool:
    """Return :func:`halves_turn` for two intervals of ``n`` states each."""
    if n * abs(eps) < LEAST_HALF:
        return False
    a, b = as_interval(first), as_interval(second)
    to_a = to_b = 0.0
    for i in range(first.shape[1]):
        rho = a.rho[i] + b.rho[i]
        to_a += rho * a.sum_v[i]
        to_b += rho * b.sum_v[i]
    return not (to_a > 0 and to_b > 0)


@jit
def add_leaf_of_hierarchy(tree: np.ndarray, leaf: int, p: np.ndarray, velocity: np.ndarray, eps: float) -> bool:
    """Do the same as :func:`add_leaf` on a hierarchical metric, for which only sums over intervals are needed."""
    top, digits = 0, leaf
    while digits:
        top += digits & 1
        digits >>= 1
    interval = as_interval(tree[top])
    copy_row(interval.rho, p)
    copy_row(interval.sum_v, velocity)
    digits, n = leaf, 1
    while digits & 1:
        top -= 1
        if halves_are_turning(tree[top], tree[top + 1], n, eps):
            return False
        a, b = as_interval(tree[top]), as_interval(tree[top + 1])
        add_row(a.rho, b.rho)
        add_row(a.sum_v, b.sum_v)
        digits, n = digits >> 1, 2 * n
    invariant(top >= 0)
    return True


@jit_part
def together(first: Leaves, second: Leaves) -> Leaves:
    """Return the totals of both."""
    lowest, highest = min(first.lowest, second.lowest), max(first.highest, second.highest)
    return Leaves(first.n + second.n, first.sum_accept + second.sum_accept, lowest, highest, second.worst)


@jit_part
def one_step(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    eps: float,
    z: np.ndarray,
    H0: float,
    settings: np.record,
    stats: np.record,
) -> Leaf:
    """Move ``z`` to the next state of NUTS, by one step of the integrator."""
    _, _, _, own, work = as_workspace(workspace)
    H = integrator_step(dynamics, model, z, eps, work, own, True)
    if not math.isfinite(H):
        return Leaf(Extension.NO_ENERGY, H, 0.0, 0.0)
    weight = math.exp(min(H0 - H, LARGEST_LOG_WEIGHT))
    return Leaf(Extension.VALID, H, weight, min(1.0, weight))


@jit_inline
def build_subtree(
    move: Callable,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    eps: float,
    depth: int,
    z: np.ndarray,
    candidate: np.ndarray,
    H0: float,
    settings: np.record,
    stats: np.record,
    control: np.record,
) -> Subtree:
    """Build a subtree of 2^depth states from the point ``z``, which ``move`` takes from state to state, to its far end.

    The first of the intervals in the workspace becomes that of the subtree, and ``candidate`` its candidate.
    """
    _, intervals, scratch, _, work = as_workspace(workspace)
    extension, weight, energy, draw = Extension.VALID, 0.0, H0, 0
    hierarchical = as_work(work).options.hyperparameters != 0
    leaves = Leaves(0, 0.0, math.inf, -math.inf, 0.0)
    for leaf in range(1 << depth):
        if control.stop:
            extension = Extension.INTERRUPTED
            break
        ending, H, leaf_weight, accept = move(dynamics, model, workspace, randomness, eps, z, H0, settings, stats)
        if ending != Extension.VALID:
            extension, worst = ending, 0.0
            if ending == Extension.NO_ENERGY:
                worst = S.error_without_energy(H, H0, 0.0, S.reason(as_work(work).status))
            leaves = together(leaves, Leaves(1, accept, math.inf, -math.inf, worst))
            break
        leaves = together(leaves, Leaves(1, accept, H, H, 0.0))
        if leaves.highest - leaves.lowest > S.MAX_ENERGY_SPREAD:
            extension = Extension.DIVERGING
            break
        weight += leaf_weight
        # Weights far below the start's underflow to zero; the first such leaf stays the candidate.
        if leaf == 0 or bernoulli(randomness, leaf_weight / weight if weight > 0 else 0.0):
            copy_state(candidate, z)
            energy, draw = H, leaf + 1
        p, v = followed_momentum(z, scratch, work), as_point(z).velocity
        if hierarchical:
            may_join = add_leaf_of_hierarchy(intervals, leaf, p, v, eps)
        else:
            may_join = add_leaf(intervals, leaf, p, v)
        if not may_join:
            extension = Extension.TURNING
            break
    if depth == 0:
        make_leaf(intervals[0], followed_momentum(z, scratch, work), as_point(z).velocity)
    invariant(extension != Extension.VALID or (leaves.n == 1 << depth and 1 <= draw <= leaves.n))
    invariant(leaves.sum_accept <= leaves.n and weight >= 0)
    return Subtree(extension, weight, energy, draw, leaves)


@jit_part
def doubled(tree: Tree, half: Subtree, forward: bool, chosen: bool) -> Tree:
    """Return the trajectory with a new half, whose candidate replaces that of the trajectory if it is ``chosen``."""
    weight, energy, draw, first, depth = tree
    size = 1 << depth
    if chosen:
        energy, draw = half.energy, first + size - 1 + half.draw if forward else first - half.draw
    return Tree(weight + half.weight, energy, draw, first if forward else first - size, depth + 1)


@jit
def summarise(
    tree: Tree,
    leaves: Leaves,
    extension: Extension,
    H0: float,
    settings: np.record,
    status: np.record,
    stats: np.record,
) -> int:
    """Fill in the statistics of a transition and return its outcome."""
    invariant(tree.first <= tree.draw < tree.first + (1 << tree.depth))
    invariant(leaves.n >= (1 << tree.depth) - 1 and tree.weight >= 1)
    outcome = S.ACCEPTED if tree.draw != 0 else S.REJECTED
    if extension == Extension.DIVERGING:
        outcome = S.DIVERGED
    elif extension == Extension.NO_ENERGY:
        outcome = S.reason(status)
    up, down = leaves.highest - H0, leaves.lowest - H0
    largest = up if up > -down else down
    stats.energy = tree.energy
    stats.energy_error = tree.energy - H0
    stats.max_energy_error = largest if math.isfinite(leaves.worst) else leaves.worst
    stats.acceptance_rate = leaves.sum_accept / leaves.n
    stats.diverging = S.is_divergence(outcome)
    stats.step_size = stats.step_size_nom = settings.step_size
    stats.n_steps, stats.int_time = leaves.n, leaves.n * settings.step_size
    stats.tree_depth = tree.depth
    stats.reached_max_treedepth = extension == Extension.VALID
    stats.index_in_trajectory = tree.draw
    stats.is_accepted = tree.draw != 0
    return outcome


@jit_inline
def trajectory_of(
    move: Callable,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: np.record,
    stats: np.record,
    control: np.record,
) -> int:
    """Make one transition from the state, with a fresh momentum, and return its outcome; ``move`` makes the next states."""
    points, intervals, scratch, _, work = as_workspace(workspace)
    at, status = as_points(points), as_work(work).status
    H0 = begin(dynamics, model, workspace, randomness, settings)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    copy_point(at.left, at.state)
    copy_point(at.right, at.state)
    copy_state(at.candidate, at.state)
    candidate, spare = at.candidate, at.spare
    whole, half = intervals[settings.max_depth], intervals[0]
    make_leaf(whole, followed_momentum(at.state, scratch, work), as_point(at.state).velocity)

    tree, leaves = Tree(1.0, H0, 0, 0, 0), Leaves(0, 0.0, H0, H0, 0.0)
    extension, facing_forward = Extension.VALID, True
    while tree.depth < settings.max_depth and extension == Extension.VALID:
        forward = uniform(randomness) < 0.5
        eps, edge = (settings.step_size, at.right) if forward else (-settings.step_size, at.left)
        subtree = build_subtree(
            move, dynamics, model, workspace, randomness, eps, tree.depth, edge, spare, H0, settings, stats, control
        )
        extension, leaves = subtree.extension, together(leaves, subtree.leaves)
        if extension != Extension.VALID:
            break
        chosen = bernoulli(randomness, subtree.weight / tree.weight)
        if chosen:
            candidate, spare = spare, candidate
        tree = doubled(tree, subtree, forward, chosen)
        if forward != facing_forward:
            reverse(whole)
            facing_forward = forward
        if as_work(work).options.hyperparameters != 0:
            turning = halves_are_turning(whole, half, 1 << (tree.depth - 1), eps)
        else:
            turning = is_turning(whole, half, as_interval(half).v_last)
        if turning:
            extension = Extension.TURNING
        append(whole, half)
        if leaves.highest - leaves.lowest > S.MAX_ENERGY_SPREAD:
            extension = Extension.DIVERGING
    if extension == Extension.INTERRUPTED:
        return S.INTERRUPTED
    copy_state(at.state, candidate)
    stats.lp = as_point(at.state).log_density[0]
    return summarise(tree, leaves, extension, H0, settings, status, stats)


@jit
def nuts(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: np.record,
    stats: np.record,
    control: np.record,
) -> int:
    """Make one transition of NUTS."""
    return trajectory_of(one_step, dynamics, model, workspace, randomness, settings, stats, control)

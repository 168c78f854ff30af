"""NUTS: the No-U-Turn sampler with multinomial selection and the generalised criterion.

From the point z0 = (q, p) a trajectory is doubled, forward or backward in time at random, until it turns back on itself.
Write the states of an interval of it as z_a ... z_b, rho = p_a + ... + p_b, v = M^-1 p (or G(q)^-1 p) the velocities. The
interval *turns* if rho . v_a <= 0 or rho . v_b <= 0. Two halves A, B = z_a ... z_m, z_{m+1} ... z_b may be joined unless

    the whole turns                rho_A + rho_B             against  v_a, v_b
    A with B's first state does    rho_A + p_{m+1}           against  v_a, v_{m+1}
    B with A's last state does     p_m + rho_B               against  v_m, v_b

(without the last two, independent normals resonate: 932 steps a draw where 15 to 31 are right). A new subtree whose own
halves, or their halves, may not be joined is thrown away and the trajectory ends; if only the whole turns, it ends with
the subtree kept. The next state is drawn with probability proportional to exp(-H) within a subtree, and the subtree's
candidate takes the tree's place with probability min(1, W_subtree / W_tree).

Hoffman and Gelman (2014); Betancourt (2017), A conceptual introduction to HMC, appendix A; the joined criterion is that
of Stan's pull request 2800. An energy spread of more than 1,000 over the trajectory, or an energy that is not finite,
ends it too (see ``sample_stats``); like the U-turn, the rule looks at an interval and not at where it was started from,
so that the transition leaves exp(-H) exactly invariant.

The subtree is built leaf by leaf, without recursion: after leaf k the completed intervals are the binary digits of k + 1,
and ``tree[level]`` holds the one of 2^level states with the rows below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from refhmc import sample_stats as S
from refhmc.compiled import jit, jit_sum
from refhmc.integrators.advance import advance
from refhmc.kernels.options import check_options
from refhmc.point import LOG_DENSITY, VELOCITY, P, add_row, copy_point, copy_row, copy_state
from refhmc.randomness import flip, uniform
from refhmc.types import CANDIDATE, GRADIENTS, LEFT, RIGHT, SET_MAX_DEPTH, SET_STEP_SIZE, SPARE, STATE, STOP

# Rows of an interval: sum of momenta; momentum and velocity at its first and at its last state.
RHO, P_FIRST, V_FIRST, P_LAST, V_LAST = range(5)
INTERVAL_ROWS = 5

# exp(H0 - H) of a state must not overflow; at stationarity a drop of 700 has probability e^-700.
LARGEST_LOG_WEIGHT = 700.0


@dataclass(frozen=True, kw_only=True)
class NUTS:
    """The No-U-Turn sampler.

    step_size : the step; ``None`` adapts it in warm-up to ``target_accept``.
    max_treedepth : at most 2^max_treedepth - 1 steps a draw.
    metric, integrator : default ``Diagonal()``, adapted, and ``Leapfrog()``. target_accept : default 0.8.
    """

    step_size: float | None = None
    max_treedepth: int = 10
    metric: object = None
    integrator: object = None
    target_accept: float | None = None

    def __post_init__(self):
        check_options(self)
        if int(self.max_treedepth) != self.max_treedepth or not 1 <= self.max_treedepth <= 30:
            raise ValueError(f"max_treedepth must be a whole number from 1 to 30, got {self.max_treedepth!r}")

    statistics = (
        *("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size", "n_steps"),
        *("int_time", "tree_depth", "reached_max_treedepth", "index_in_trajectory", "is_accepted", "outcome"),
    )
    title = "the NUTS kernel"

    @property
    def transition(self):
        return nuts

    def settings(self) -> dict[int, float]:
        return {SET_MAX_DEPTH: self.max_treedepth}


@jit_sum
def may_join_states(p_a, v_a, p_b, v_b):
    """Whether two single states may be joined: the three conditions are one."""
    at_a = at_b = 0.0
    for i in range(p_a.shape[0]):
        at_a += (p_a[i] + p_b[i]) * v_a[i]
        at_b += (p_a[i] + p_b[i]) * v_b[i]
    return at_a > 0 and at_b > 0


@jit_sum
def may_join(a, b, first, last):
    """Whether neither A + B, nor A + first of B, nor last of A + B turns.

    ``a`` is A's interval. Of B, ``b`` has the sum of momenta, ``first`` the first state, and ``last`` is the last point.
    """
    whole_a = whole_b = first_a = first_b = last_a = last_b = 0.0
    for i in range(a.shape[1]):
        whole = a[RHO, i] + b[RHO, i]
        whole_a += whole * a[V_FIRST, i]
        whole_b += whole * last[VELOCITY, i]
        with_first = a[RHO, i] + first[P_FIRST, i]
        first_a += with_first * a[V_FIRST, i]
        first_b += with_first * first[V_FIRST, i]
        with_last = a[P_LAST, i] + b[RHO, i]
        last_a += with_last * a[V_LAST, i]
        last_b += with_last * last[VELOCITY, i]
    return whole_a > 0 and whole_b > 0 and first_a > 0 and first_b > 0 and last_a > 0 and last_b > 0


@jit
def join(tree, level, z):
    """Make ``tree[level]`` of the intervals at the levels below, each joined to those after it, and of the point ``z``.

    False where two may not be joined. What has been joined so far begins where the level joined last begins, and ends
    with ``z``; a single state, level 0, is its own sum, first and last, and keeps the first three rows only.
    """
    joined = tree[level]
    if level == 0:
        copy_row(joined[RHO], z[P])
        copy_row(joined[P_FIRST], z[P])
        copy_row(joined[V_FIRST], z[VELOCITY])
        return True
    leaf = tree[0]
    if not may_join_states(leaf[P_FIRST], leaf[V_FIRST], z[P], z[VELOCITY]):
        return False
    copy_row(joined[RHO], z[P])
    add_row(joined[RHO], leaf[RHO])
    for lower in range(1, level):
        if not may_join(tree[lower], joined, tree[lower - 1], z):
            return False
        add_row(joined[RHO], tree[lower, RHO])
    first = tree[level - 1]
    copy_row(joined[P_FIRST], first[P_FIRST])
    copy_row(joined[V_FIRST], first[V_FIRST])
    copy_row(joined[P_LAST], z[P])
    copy_row(joined[V_LAST], z[VELOCITY])
    return True


@jit
def append(a, b, z):
    """a <- a + b: the interval ``b``, which ends with the point ``z``, comes after ``a``."""
    add_row(a[RHO], b[RHO])
    copy_row(a[P_LAST], z[P])
    copy_row(a[V_LAST], z[VELOCITY])


@jit
def turn_round(a):
    """Read the interval from its other end; the criterion is the same in both directions of time."""
    for i in range(a.shape[1]):
        a[P_FIRST, i], a[P_LAST, i] = a[P_LAST, i], a[P_FIRST, i]
        a[V_FIRST, i], a[V_LAST, i] = a[V_LAST, i], a[V_FIRST, i]


@jit
def grow(dynamics, model, workspace, randomness, eps, depth, edge, spare, H0, control):
    """Grow a subtree of 2^depth states from ``points[edge]``, which moves to its far end, in building order.

    ``tree[depth]`` becomes the subtree's interval, ``points[spare]`` its candidate; ``totals`` is added to.
    Returns (outcome, weight, candidate's energy, candidate's index from 1): ``ACCEPTED`` for a valid subtree,
    ``REJECTED`` for one that turns.
    """
    points, tree, vecs, mats, totals = workspace
    z = points[edge]
    weight, chosen_energy, chosen = 0.0, H0, 0
    for leaf in range(1 << depth):
        if control[STOP]:
            return S.INTERRUPTED, weight, chosen_energy, chosen
        H = advance(dynamics, model, z, eps, vecs, mats)
        totals[N_LEAVES] += 1
        if abs(H - H0) > abs(totals[WORST]) or not math.isfinite(H):
            totals[WORST] = H - H0
        if not math.isfinite(H):
            return S.NAN, weight, chosen_energy, chosen
        leaf_weight = math.exp(min(H0 - H, LARGEST_LOG_WEIGHT))
        totals[SUM_ACCEPT] += min(1.0, leaf_weight)
        totals[LOWEST], totals[HIGHEST] = min(totals[LOWEST], H), max(totals[HIGHEST], H)
        totals[SUB_LOWEST], totals[SUB_HIGHEST] = min(totals[SUB_LOWEST], H), max(totals[SUB_HIGHEST], H)
        if totals[SUB_HIGHEST] - totals[SUB_LOWEST] > S.MAX_ENERGY_SPREAD:
            return S.DIVERGED, weight, chosen_energy, chosen

        weight += leaf_weight
        if leaf == 0 or flip(randomness, leaf_weight / weight):
            copy_state(points[spare], z)
            chosen_energy, chosen = H, leaf + 1

        # The completed intervals of sizes 1, 2, 4, ... are joined as far as the binary counter carries.
        level = 0
        while (leaf >> level) & 1:
            level += 1
        if not join(tree, level, z):
            return S.REJECTED, weight, chosen_energy, chosen
    return S.ACCEPTED, weight, chosen_energy, chosen


# Entries of ``totals``: running sums over the leaves of the trajectory; extreme energies of it and of the new subtree.
N_LEAVES, SUM_ACCEPT, WORST, LOWEST, HIGHEST, SUB_LOWEST, SUB_HIGHEST = range(7)


@jit
def nuts(dynamics, model, workspace, randomness, H0, settings, stats, control):
    """One transition from ``points[STATE]``, whose momentum is fresh and whose energy is ``H0``; the outcome."""
    points, tree, _, _, totals = workspace
    max_depth = int(settings[SET_MAX_DEPTH])
    copy_point(points[LEFT], points[STATE])
    copy_point(points[RIGHT], points[STATE])
    copy_state(points[CANDIDATE], points[STATE])
    candidate, spare = CANDIDATE, SPARE
    whole = tree[max_depth]
    for row in (RHO, P_FIRST, P_LAST):
        copy_row(whole[row], points[STATE, P])
    for row in (V_FIRST, V_LAST):
        copy_row(whole[row], points[STATE, VELOCITY])
    totals[N_LEAVES] = totals[SUM_ACCEPT] = totals[WORST] = 0.0
    totals[LOWEST] = totals[HIGHEST] = H0

    weight, energy, index = 1.0, H0, 0
    first, last = 0, 0  # indices of the trajectory's ends
    depth, outcome, turned, facing_forward = 0, S.ACCEPTED, False, True
    while depth < max_depth and outcome == S.ACCEPTED and not turned:
        totals[SUB_LOWEST], totals[SUB_HIGHEST] = math.inf, -math.inf
        forward = uniform(randomness) < 0.5
        eps = settings[SET_STEP_SIZE] if forward else -settings[SET_STEP_SIZE]
        edge = RIGHT if forward else LEFT
        outcome, new_weight, new_energy, new_index = grow(
            dynamics, model, workspace, randomness, eps, depth, edge, spare, H0, control
        )
        if outcome != S.ACCEPTED:
            break
        if flip(randomness, new_weight / weight):
            candidate, spare = spare, candidate
            energy, index = new_energy, last + new_index if forward else first - new_index
        weight += new_weight
        if forward != facing_forward:
            turn_round(whole)
            facing_forward = forward
        new = tree[depth]
        turned = not may_join(whole, new, new, points[edge])
        append(whole, new, points[edge])
        if forward:
            last += 1 << depth
        else:
            first -= 1 << depth
        if totals[HIGHEST] - totals[LOWEST] > S.MAX_ENERGY_SPREAD:
            outcome = S.DIVERGED
        else:
            depth += 1
    n_leaves = int(totals[N_LEAVES])
    control[GRADIENTS] += n_leaves
    if outcome == S.INTERRUPTED:
        return outcome

    copy_state(points[STATE], points[candidate])
    diverging = outcome == S.DIVERGED or outcome == S.NAN
    stats[S.LP] = points[STATE, LOG_DENSITY, 0]
    stats[S.ENERGY] = energy
    stats[S.ENERGY_ERROR] = energy - H0
    stats[S.MAX_ENERGY_ERROR] = totals[WORST]
    stats[S.ACCEPTANCE_RATE] = totals[SUM_ACCEPT] / n_leaves
    stats[S.DIVERGING] = diverging
    stats[S.STEP_SIZE] = stats[S.STEP_SIZE_NOM] = settings[SET_STEP_SIZE]
    stats[S.N_STEPS], stats[S.INT_TIME] = n_leaves, n_leaves * settings[SET_STEP_SIZE]
    stats[S.TREE_DEPTH] = depth
    stats[S.REACHED_MAX_TREEDEPTH] = depth == max_depth and not turned
    stats[S.INDEX_IN_TRAJECTORY] = index
    stats[S.IS_ACCEPTED] = index != 0
    if diverging:
        return outcome
    return S.ACCEPTED if index != 0 else S.REJECTED

"""Planted bugs of tree samplers, each with its corrected counterpart, in plain NumPy.

Four samplers, all with ``transition(..., q, p)`` on a given momentum: the recursive multinomial NUTS (Betancourt's, with the
checks of joined subtrees), an iterative one that looks at stored states, Hoffman and Gelman's slice sampler with doubling, and
the static trajectory with a random window. Every known bug is an option of the sampler.
"""

from __future__ import annotations

import functools
import math

import numpy as np

import refhmc.check as rc

from . import Pair

# ------------------------------------------------------------------------------------------------------- the targets

LIMIT = 1000.0  # of the energy: divergence
PRECISION = np.array([[1.0, 0.6], [0.6, 2.5]])


def log_gaussian(q):
    return -0.5 * q @ PRECISION @ q


def grad_gaussian(q):
    return -PRECISION @ q


def log_quartic(q):
    return -0.25 * np.sum(q**4) - 0.3 * q[0] * q[-1]


def grad_quartic(q):
    return -(q**3) - 0.3 * (np.eye(len(q))[0] * q[-1] + np.eye(len(q))[-1] * q[0])


def log_walled(q):
    """Log density of a truncated normal: NaN for q_0 > 0.8, where the gradient remains finite."""
    return -0.5 * q @ q if q[0] < 0.8 else np.nan


def grad_walled(q):
    return -q


def leapfrog(grad):
    def leap(q, p, eps):
        half = p + 0.5 * eps * grad(q)
        new = q + eps * half
        return new, half + 0.5 * eps * grad(new)

    return leap


class Sampler:
    """``size`` is the largest depth of a tree, or the number of steps; the options are bugs or unusual correct variants."""

    def __init__(self, log_density, grad, eps, size, **options):
        self.log_density, self.leap, self.eps, self.size, self.o = log_density, leapfrog(grad), eps, size, options

    def joint(self, q, p):
        return self.log_density(q) - 0.5 * p @ p


# ---------------------------------------------------------------------------------------------- recursive multinomial NUTS


class Tree:
    """Part of a trajectory from left to right: edges, sum of momenta, proposal, log of the summed weights."""

    def __init__(self, q, p, energy0, energy):
        self.left = self.right = (q, p)
        self.first = self.last = self.rho = p.copy()
        self.proposal = q
        self.log_weight = energy0 - energy
        self.highest = self.lowest = energy
        self.diverged = False
        self.bad = False  # a U-turn or divergence within the subtree: discard it, and do not double again


def turns(rho, p_first, p_last):
    return rho @ p_first <= 0 or rho @ p_last <= 0


class MultinomialNUTS(Sampler):
    """``transition(draws, q, p)``."""

    def energy(self, q, p):
        if self.o.get("kinetic_sign"):
            return -self.log_density(q) - 0.5 * p @ p
        return -self.joint(q, p)

    def leaf(self, q, p, sign):
        q, p = self.leap(q, p, sign * self.eps)
        energy = self.energy(q, p)
        reference = self.start_energy
        if self.o.get("subtree_start_energy"):
            reference = self.edge_energy
        tree = Tree(q, p, reference, energy)
        if not np.isfinite(energy):
            tree.bad = tree.diverged = not self.o.get("nan_goes_on")
            tree.log_weight = -np.inf
            if self.o.get("nan_accepted"):
                tree.bad, tree.log_weight = False, 0.0
            tree.highest = tree.lowest = reference
        elif self.o.get("one_sided") and energy - self.start_energy > LIMIT:
            tree.bad = tree.diverged = True
        return tree

    def joined(self, a, b, sign):
        """Return the tree of a followed by b in the order of building, without selecting a proposal."""
        left, right = (a, b) if sign > 0 else (b, a)
        tree = Tree(a.left[0], a.rho, 0.0, 0.0)
        tree.rho = left.rho + right.rho
        tree.left, tree.right = left.left, right.right
        tree.first, tree.last = left.first, right.last
        if self.o.get("stale_inner_edge"):
            tree.first, tree.last = (left.first, a.last) if sign > 0 else (a.first, right.last)
        tree.log_weight = np.logaddexp(a.log_weight, b.log_weight)
        tree.highest, tree.lowest = max(a.highest, b.highest), min(a.lowest, b.lowest)
        tree.proposal = a.proposal
        tree.bad = a.bad or b.bad
        if not self.o.get("one_sided") and tree.highest - tree.lowest > LIMIT:
            tree.bad = tree.diverged = True
        if self.o.get("wrong_rho"):
            tree.rho = a.rho + a.rho
        rho = tree.rho
        turned = turns(rho, tree.first, tree.last)
        if not self.o.get("no_cross_checks"):
            turned = turned or turns(left.rho + right.first, left.first, right.first)
            turned = turned or turns(left.last + right.rho, left.last, right.last)
        tree.turned = turned
        return tree

    def build(self, draws, edge, sign, depth):
        if depth == 0:
            return self.leaf(*edge, sign)
        a = self.build(draws, edge, sign, depth - 1)
        if a.bad:
            return a
        b = self.build(draws, a.right if sign > 0 else a.left, sign, depth - 1)
        if b.bad and not self.o.get("keep_diverging"):
            b.proposal = a.proposal
            return b
        tree = self.joined(a, b, sign)
        log_p = b.log_weight - tree.log_weight
        if self.o.get("biased_inside"):
            log_p = b.log_weight - a.log_weight
        if self.o.get("equal_leaves"):
            log_p = math.log(0.5)
        if self.o.get("weight_lost_on_reject"):
            if draws.flip(log_p):
                tree.proposal = b.proposal
            else:
                tree.log_weight = a.log_weight
        elif draws.flip(log_p):
            tree.proposal = b.proposal
        tested = depth > self.o.get("smallest_depth", 0) or self.o.get("smallest_subtrees_tested")
        if tested and not self.o.get("ignore_subtrees"):
            tree.bad = tree.bad or tree.turned
        return tree

    def direction(self, draws, depth, proposal):
        if self.o.get("always_forward"):
            return 1
        if self.o.get("directions_first"):
            return self.signs[depth]
        return 1 if draws.flip(math.log(self.o.get("p_forward", 0.5))) else -1

    def __call__(self, draws, q, p):
        self.start_energy = self.edge_energy = self.energy(q, p)
        tree = Tree(q, p, self.start_energy, self.start_energy)
        smallest = self.o.get("smallest_depth", 0)  # trees up to it are not tested
        if self.o.get("directions_first"):
            self.signs = [1 if draws.flip(math.log(0.5)) else -1 for _ in range(self.size)]
        for depth in range(self.size):
            sign = self.direction(draws, depth, tree.proposal)
            edge = tree.right if sign > 0 else tree.left
            if self.o.get("from_the_start") and depth > 0:
                edge = (q, p)
            if self.o.get("wrong_edge_momentum") and sign > 0 and depth > 0 and tree.left[0] is not q:
                edge = (edge[0], tree.left[1])
            self.edge_energy = self.energy(*edge)
            size = depth if not self.o.get("short_subtree") else max(depth - 1, 0)
            new = self.build(draws, edge, sign, size)
            if new.bad and depth < smallest and not new.diverged:
                continue  # with another direction
            if new.bad:
                kept = self.o.get("keep_invalid") or (self.o.get("keep_diverging") and new.diverged)
                if kept and draws.flip(new.log_weight - tree.log_weight):
                    tree.proposal = new.proposal
                break
            whole = self.joined(tree, new, sign)
            log_p = new.log_weight - tree.log_weight
            if self.o.get("uniform"):
                log_p = new.log_weight - whole.log_weight
            if self.o.get("inverse"):
                log_p = tree.log_weight - new.log_weight
            if self.o.get("always_new"):
                log_p = 0.0
            if self.o.get("half_as_often"):
                log_p = log_p + math.log(0.5)
            if self.o.get("lazy"):
                log_p = min(log_p, 0.0) + math.log(0.5)
            if draws.flip(log_p):
                whole.proposal = new.proposal
            if self.o.get("sum_of_logs"):
                whole.log_weight = max(tree.log_weight, new.log_weight)
            if self.o.get("old_edge_after_left") and sign < 0:
                whole.left = (whole.left[0], tree.left[1])
            if self.o.get("stale_rho_after_left") and sign < 0:
                whole.rho = tree.rho
            tree = whole
            turned = tree.turned and depth >= smallest and not self.o.get("merged_not_tested")
            if tree.bad or turned:
                break
        if self.o.get("extra_metropolis"):
            end = tree.proposal
            return end if draws.flip(self.log_density(end) - self.log_density(q)) else q
        return tree.proposal


# ------------------------------------------------------------------------------------------- iterative, with stored states


class IterativeNUTS(Sampler):
    """``transition(rng, q, p)`` for NumPy's generator: the trajectory as lists, with U-turn tests on its dyadic parts."""

    def turned(self, states):
        rho = np.sum([p for _, p in states], axis=0)
        if self.o.get("position_criterion"):
            rho = states[-1][0] - states[0][0]
        return turns(rho, states[0][1], states[-1][1])

    def answer(self, chosen, p):
        """Return the position, or position and momentum if that is kept; ``p`` is the initial momentum."""
        q, end, forward = chosen
        if self.o.get("momentum of the start"):
            return q, p
        if "energy_error" in self.o:
            error = self.joint(*self.start) - self.joint(q, end)
            return {"q": q, "energy_error": -error if self.o["energy_error"] == "log weight" else error}
        if self.o.get("reversed backwards") and not forward:
            return q, -end
        return (q, end) if self.o.get("kept") else q

    def __call__(self, rng, q, p):
        self.start = (q, p)
        states, energies = [self.start], [-self.joint(q, p)]
        start, chosen, log_weight = energies[0], (q, p, True), 0.0
        for depth in range(self.size):
            forward = rng.random() < 0.5
            new, new_energies, proposal, weight, bad = [], [], None, -np.inf, False
            at = states[-1] if forward else states[0]
            for leaf in range(2**depth):
                at = self.leap(*at, self.eps if forward else -self.eps)
                energy = -self.joint(*at)
                new.append(at)
                new_energies.append(energy)
                if not np.isfinite(energy):
                    bad = True
                    break
                weight = np.logaddexp(weight, start - energy)
                log_p = start - energy - weight
                if self.o.get("reservoir_off"):
                    log_p = -math.log(leaf + 1)
                last = rng.random()
                if math.log(last) < log_p:
                    proposal = (*at, forward)
                if self.o.get("even leaves turn") and leaf % 2 == 0:
                    bad = True
                size = 2
                while (leaf + 1) % size == 0:
                    piece = new[-size:]
                    if self.turned(piece if forward else piece[::-1]) and not (self.o.get("skips_pairs") and size == 4):
                        bad = True
                    size *= 2
            everything = energies + new_energies
            if bad or max(everything) - min(everything) > LIMIT:
                break
            if (last if self.o.get("uniform used twice") else rng.random()) < np.exp(weight - log_weight):
                chosen = proposal
            log_weight = np.logaddexp(log_weight, weight)
            states, energies = (states + new, everything) if forward else (new[::-1] + states, everything)
            if self.turned(states):
                break
        return self.answer(chosen, p)


class ScaledNUTS(IterativeNUTS):
    """``transition(rng, q, p)`` with an inverse mass m, diagonal or dense: velocity m p, and U-turns by rho' M^-1 p <= 0."""

    def __init__(self, log_density, grad, eps, size, mass, **options):
        super().__init__(log_density, grad, eps, size, **options)
        self.m = mass = np.diag(mass) if np.ndim(mass) == 1 else mass

        def leap(q, p, eps):
            half = p + 0.5 * eps * grad(q)
            new = q + eps * mass @ half
            return new, half + 0.5 * eps * grad(new)

        self.leap = leap

    def joint(self, q, p):
        return self.log_density(q) - 0.5 * p @ self.m @ p

    def turned(self, states):
        rho, m = np.sum([p for _, p in states], axis=0), self.m
        if self.o.get("mass ignored"):
            m = np.eye(len(rho))
        if self.o.get("diagonal only"):
            m = np.diag(np.diag(m))
        if self.o.get("inverse mass twice"):
            rho = states[-1][0] - states[0][0]  # M^-1 rho times the length, to which M^-1 is applied again
        return turns(rho, m @ states[0][1], m @ states[-1][1])


# -------------------------------------------------------------------------------- original algorithm, with a slice variable


class SliceNUTS(Sampler):
    """Hoffman and Gelman's algorithm 3: ``transition(q, p, rng)``; a slice variable, and equal weights within the slice."""

    def stops(self, left, right):
        way = right[0] - left[0]
        return way @ left[1] < 0 or way @ right[1] < 0

    def moved_left(self, old, new):
        return (new[0], old[1]) if self.o.get("stale_left") else new

    def build(self, rng, z, log_u, sign, depth):
        if depth == 0:
            q, p = self.leap(*z, sign * self.eps)
            joint = self.joint(q, p)
            count = 1 if self.o.get("slice_ignored") else int(log_u <= joint)
            keep_going = bool(log_u - LIMIT < joint) if not self.o.get("tight") else count == 1
            self.diverged = not keep_going
            return (q, p), (q, p), q, count, keep_going
        left, right, end, n, go = self.build(rng, z, log_u, sign, depth - 1)
        if not go:
            return left, right, end, n, False
        if sign < 0:
            new, _, end2, n2, go2 = self.build(rng, left, log_u, sign, depth - 1)
            left = self.moved_left(left, new)
        else:
            _, right, end2, n2, go2 = self.build(rng, right, log_u, sign, depth - 1)
        if rng.random() < (n2 / max(n + n2, 1) if not self.o.get("old_over_new") else n / max(n + n2, 1)):
            end = end2
        return left, right, end, n + n2, go2 and not self.stops(left, right)

    def __call__(self, q, p, rng):
        joint = self.joint(q, p)
        log_u = joint + np.log(rng.random()) if not self.o.get("no_log") else joint - rng.random()
        left = right = (q, p)
        n, go, depth, end = 1, True, 0, q
        while go and depth < self.size:
            sign = 1 if rng.random() < 0.5 else -1
            if sign < 0:
                edge, _, new, n_new, go = self.build(rng, left, log_u, sign, depth)
                left = self.moved_left(left, edge)
            else:
                _, right, new, n_new, go = self.build(rng, right, log_u, sign, depth)
            kept = self.o.get("keep_invalid") or (self.o.get("keep_diverging") and self.diverged)
            if (go or kept) and rng.random() < n_new / n:
                end = new
            n += n_new
            go = go and not self.stops(left, right)
            depth += 1
        return end


# --------------------------------------------------------------------------------------------------- the static trajectory


class StaticMultinomial(Sampler):
    """Static multinomial HMC with L steps, a random number of them backward: ``transition(draws, q, p)`` -> (q, p)."""

    def __call__(self, draws, q, p):
        before = draws.choice(self.size + 1) if not self.o.get("one_way") else 0
        if self.o.get("never_last"):
            before = draws.choice(self.size)
        states = [(q, p)]
        for _ in range(before):
            states.insert(0, self.leap(*states[0], -self.eps))
        for _ in range(self.size - before):
            states.append(self.leap(*states[-1], self.eps))
        log_w = np.array([self.joint(*z) for z in states])
        log_w[~np.isfinite(log_w)] = -np.inf
        weights = np.exp(log_w - log_w.max())
        k = draws.choice(weights / weights.sum())
        if self.o.get("shifted_index"):
            k = max(k - 1, 0)
        end = states[k]
        if self.o.get("extra_metropolis") and not draws.flip(log_w[k] - self.joint(q, p)):
            end = (q, p)
        return end


class EndPoint(Sampler):
    """Metropolis HMC with L steps forward; correct if the momentum is refreshed."""

    def __call__(self, draws, q, p):
        a, b = q, p
        for _ in range(self.size):
            a, b = self.leap(a, b, self.eps)
        log_ratio = self.joint(a, b) - self.joint(q, p)
        if self.o.get("sign"):
            log_ratio = -log_ratio
        if self.o.get("reversed always"):
            return (a, -b) if draws.flip(log_ratio) else (q, -p)
        return (a, -b) if draws.flip(log_ratio) else (q, p)


# -------------------------------------------------------------------------------------------------------------- the pairs


@functools.cache
def examined(seed, sampler, density, grad, eps, depth, said_depth, threshold, keeps, options):
    """Return the report on one sampler; cached, since several bugs share one corrected sampler."""

    def make(density, grad, mass):
        return sampler(density, grad, eps, depth, mass, **dict(options))

    scaled = sampler is ScaledNUTS
    subject = make(density, grad, np.ones(2)) if scaled else sampler(density, grad, eps, depth, **dict(options))
    return rc.orbit(
        subject,
        leapfrog(grad),
        density,
        depth=said_depth or depth,
        eps=eps,
        dim=2,
        seed=seed,
        name=sampler.__name__,
        threshold=threshold,
        keeps_momentum=keeps,
        **({"make": make, "gradient": grad, "dense": True} if scaled else {}),
    )


def run(sampler, density, grad, eps, depth, said_depth=None, threshold=None, keeps=False, **options):
    """Return a function of the seed that examines that sampler."""
    given = tuple(sorted(options.items()))
    return lambda seed: examined(seed, sampler, density, grad, eps, depth, said_depth, threshold, keeps, given)


GAUSSIAN = (log_gaussian, grad_gaussian)
QUARTIC = (log_quartic, grad_quartic)
WALLED = (log_walled, grad_walled)


def pair(
    id,
    what,
    sampler,
    bug,
    target=GAUSSIAN,
    eps=0.6,
    depth=2,
    expected=("invariance",),
    severity="wrong distribution",
    **more,
):
    """Return the pair of a sampler with an option and without it."""
    options = bug if isinstance(bug, dict) else {bug: True}
    wrong = run(sampler, *target, eps, depth, **options, **more)
    return Pair(id, what, wrong, run(sampler, *target, eps, depth, **more), expected, severity)


M, L, S = MultinomialNUTS, IterativeNUTS, SliceNUTS
EITHER = ("invariance", "stays on the orbit")
LARGE = ("invariance at large steps",)
PAIRS = [
    pair(
        "P19",
        "after a left extension the old edge momentum is kept",
        M,
        "old_edge_after_left",
        eps=0.9,
        expected=EITHER,
    ),
    pair(
        "P19b",
        "after a left extension the next one uses the left edge's momentum",
        M,
        "wrong_edge_momentum",
        expected=EITHER,
    ),
    pair("P20", "the proposal of a diverging subtree is kept", M, "keep_diverging", eps=1.0, expected=LARGE),
    pair("P20b", "the proposal of a turning or diverging subtree is kept", M, "keep_invalid", QUARTIC, eps=0.5),
    pair("M1", "sum of momenta not updated after a left extension", M, "stale_rho_after_left", eps=0.6, depth=3),
    pair("M11a", "the weight of a subtree is lost if its proposal is not taken", M, "weight_lost_on_reject"),
    pair("M11b", "the new tree starts at the start of the old one", M, "from_the_start", expected=EITHER),
    pair(
        "M11c",
        "the energies of a subtree are relative to the edge from which it starts",
        M,
        "subtree_start_energy",
        QUARTIC,
        eps=0.5,
    ),
    pair("M11d", "leaves of a subtree drawn with equal weights", M, "equal_leaves", QUARTIC, eps=0.5),
    pair("M11e", "biased progressive sampling inside subtrees too", M, "biased_inside", QUARTIC, eps=0.5),
    pair(
        "M12a",
        "a Metropolis test follows the multinomial choice on a static trajectory",
        StaticMultinomial,
        "extra_metropolis",
        QUARTIC,
        eps=0.5,
        depth=3,
        said_depth=2,
    ),
    pair("M12b", "a static trajectory extends in one direction", StaticMultinomial, "one_way", depth=3, said_depth=2),
    pair(
        "M12c",
        "the index of the choice on a static trajectory is shifted by one",
        StaticMultinomial,
        "shifted_index",
        depth=3,
        said_depth=2,
    ),
    pair(
        "M18",
        "the U-turn checks of joined subtrees use momenta of another edge",
        M,
        "stale_inner_edge",
        eps=0.5,
        depth=3,
    ),
    pair(
        "M20",
        "one-sided divergence limit",
        M,
        {"one_sided": True},
        eps=0.9,
        expected=("divergence threshold",),
        threshold=1000.0,
    ),
    pair("T01", "the tree grows forward only", M, "always_forward"),
    pair("T02", "forward three times in four", M, {"p_forward": 0.75}, expected=("invariance",)),
    pair("T03", "subtree taken with the inverse ratio", M, "inverse", QUARTIC, eps=0.5),
    pair("T04", "a new subtree is always taken", M, "always_new"),
    pair("T05", "subtree taken half as often", M, "half_as_often"),
    pair("T06", "log-weights joined by their maximum", M, "sum_of_logs"),
    pair("T07", "sum of momenta of a joined subtree is twice the first half's", M, "wrong_rho", eps=0.6, depth=3),
    pair("T08", "a tree that does not double", M, "short_subtree", eps=0.3),
    pair(
        "T09",
        "NaN energies count as the energy of the start",
        M,
        "nan_accepted",
        WALLED,
        eps=0.6,
        expected=("invariance across a wall",),
    ),
    pair("T10", "leaves chosen by number instead of weight", L, "reservoir_off", QUARTIC, eps=0.5),
    pair("T11", "slice: states below the slice count", S, "slice_ignored", QUARTIC, eps=0.5),
    pair("T12", "slice: the subtree's proposal chosen by the other half's size", S, "old_over_new", QUARTIC, eps=0.6),
    pair("T13", "slice: level uniform below the log density", S, "no_log", QUARTIC, eps=0.5),
    pair("T14", "slice: the proposal of a turning subtree is kept", S, "keep_invalid", QUARTIC, eps=0.6),
    pair(
        "T15",
        "static trajectory whose window never has the start last",
        StaticMultinomial,
        "never_last",
        depth=3,
        said_depth=2,
    ),
    pair("T16", "multinomial NUTS with a Metropolis step on top", M, "extra_metropolis"),
    pair("T17", "HMC accepts with the wrong sign", EndPoint, "sign", QUARTIC, eps=0.5, depth=3, said_depth=2),
    pair(
        "AdvancedHMC 2ab8aff",
        "the momentum is kept, and reversed after moves as well as rejections",
        EndPoint,
        "reversed always",
        QUARTIC,
        eps=0.7,
        depth=3,
        said_depth=2,
        keeps=True,
        expected=("kept momentum",),
    ),
    pair(
        "tree backwards",
        "momentum of states behind the start reversed, and kept",
        L,
        "reversed backwards",
        QUARTIC,
        eps=0.5,
        keeps=True,
        expected=("kept momentum",),
        kept=True,
    ),
    pair(
        "tree start",
        "the momentum of the start of the trajectory is kept",
        L,
        "momentum of the start",
        QUARTIC,
        eps=0.5,
        keeps=True,
        expected=("kept momentum",),
        kept=True,
    ),
    pair(
        "pymc#1787",
        "the U-turn criterion ignores the mass",
        ScaledNUTS,
        "mass ignored",
        eps=0.9,
        expected=("equivariance",),
        severity="inefficient",
    ),
    pair(
        "walnutpie 052bbe6",
        "the U-turn criterion applies the inverse mass twice",
        ScaledNUTS,
        "inverse mass twice",
        eps=0.9,
        expected=("equivariance",),
        severity="inefficient",
    ),
    Pair(
        "nuts-rs 1ebe1cb",
        "the energy error that is reported is the log weight H(start) - H(end)",
        run(IterativeNUTS, *GAUSSIAN, 0.6, 2, energy_error="log weight"),
        run(IterativeNUTS, *GAUSSIAN, 0.6, 2, energy_error="right"),
        ("energy error",),
        "inefficient",
    ),
    pair(
        "dense diagonal",
        "the U-turn criterion uses the diagonal of a dense inverse mass",
        ScaledNUTS,
        "diagonal only",
        eps=0.9,
        expected=("equivariance",),
        severity="inefficient",
    ),
    pair("blackjax#18", "the merged trajectory is not tested for a U-turn", M, "merged_not_tested", eps=0.9),
    pair(
        "blackjax#53",
        "the number that decides between states of a subtree also decides whether the subtree is taken",
        L,
        "uniform used twice",
        QUARTIC,
        eps=0.5,
    ),
    pair("CUQIpy#449", "the kinetic energy has the wrong sign", M, "kinetic_sign"),
    Pair(
        "nuts-rs be2c293",
        "a tree below its smallest depth continues after a subtree that turned",
        run(M, *GAUSSIAN, 0.9, 2, smallest_depth=2, smallest_subtrees_tested=True),
        run(M, *GAUSSIAN, 0.9, 2, smallest_depth=2),
        ("invariance",),
    ),
    pair("T19", "no U-turn checks inside subtrees", M, {"ignore_subtrees": True}, eps=0.9),
]

# Right, although unusual.
ODD = {
    "uniform progressive sampling": run(M, *QUARTIC, 0.5, 2, uniform=True),
    "subtrees taken half as often as they could be": run(M, *QUARTIC, 0.5, 2, lazy=True),
    "no checks across subtrees": run(M, *GAUSSIAN, 0.5, 3, no_cross_checks=True),
    "all directions first": run(M, *GAUSSIAN, 0.9, 2, directions_first=True),
    "a one-sided limit of 1000": run(M, *GAUSSIAN, 0.9, 2, one_sided=True),
    "a one-sided limit of 1000, large steps": run(M, *QUARTIC, 0.8, 2, one_sided=True),
    "log of a uniform, iterative": run(L, *QUARTIC, 0.5, 2),
    "the distance between the edges instead of the sum": run(L, *GAUSSIAN, 0.9, 2, position_criterion=True),
    "slice": run(S, *GAUSSIAN, 0.9, 2),
    "slice, whose tree stops at the slice": run(S, *QUARTIC, 0.5, 2, tight=True),
    "plain HMC": run(EndPoint, *QUARTIC, 0.5, 3, said_depth=2),
    "a wall": run(M, *WALLED, 0.6, 2),
    "a wall that is walked through": run(M, *WALLED, 0.6, 2, nan_goes_on=True),
}

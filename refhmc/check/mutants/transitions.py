"""Planted bugs of a single transition, with corrected counterparts, in plain NumPy."""

from __future__ import annotations

import functools
import math

import numpy as np

import refhmc.check as rc

from . import Pair
from .leaps import microcanonical
from .samplers import delayed, langevin

PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]])


def logp(q):
    """Log density of a skewed distribution in the plane."""
    return -0.5 * q @ PRECISION @ q - 0.1 * q[0] ** 4


def grad(q):
    return -PRECISION @ q - np.array([0.4 * q[0] ** 3, 0.0])


def leapfrog(q, p, eps, n, grad=grad):
    p = p + 0.5 * eps * grad(q)
    for k in range(n):
        q = q + eps * p
        p = p + (eps if k < n - 1 else 0.5 * eps) * grad(q)
    return q, p


def energy(q, p):
    return -logp(q) + 0.5 * p @ p


EPS, STEPS = 0.45, 3


def hmc(draws, q):
    p = draws.normal(2)
    new_q, new_p = leapfrog(q, p, EPS, STEPS)
    return new_q if math.log(draws.uniform()) < energy(q, p) - energy(new_q, new_p) else q


# --------------------------------------------------------------------------------------------------- acceptance rules


def with_rule(accept):
    """HMC whose decision is ``accept(u, H0, H1, q, p, new_q, new_p)``."""

    def kernel(draws, q):
        p = draws.normal(2)
        new_q, new_p = leapfrog(q, p, EPS, STEPS)
        u = draws.uniform()
        return new_q if accept(u, energy(q, p), energy(new_q, new_p), q, p, new_q, new_p) else q

    return kernel


def always(u, H0, H1, *state):
    return u < math.exp(min(0.0, H1 - H1))


def no_minus(u, H0, H1, *state):
    return -math.log(u) < H0 - H1


def other_sign(u, H0, H1, *state):
    return math.log(u) < H1 - H0


def position_for_momentum(u, H0, H1, q, p, new_q, new_p):
    return math.log(u) < energy(q, q) - H1


def without_kinetic(u, H0, H1, q, p, new_q, new_p):
    return math.log(u) < logp(new_q) - logp(q)


def barker(u, H0, H1, *state):
    return u < 1 / (1 + math.exp(H1 - H0))


def reversed_sense(u, H0, H1, *state):
    return 1 - u < math.exp(min(0.0, H0 - H1))


def capped(both):
    """Reject if the energy increases by 0.3; ``both``: also if it decreases by as much, which is correct."""

    def accept(u, H0, H1, *state):
        return (abs(H1 - H0) if both else H1 - H0) < 0.3 and math.log(u) < H0 - H1

    return accept


def floored(lowest):
    """Limit the decrease of energy from below, so that large errors are accepted too often."""
    return lambda u, H0, H1, *state: u < math.exp(min(0.0, max(H0 - H1, lowest)))


class LastMomentum:
    """HMC whose energy before the move uses the momentum of the previous transition."""

    def __init__(self, stale):
        self.p, self.stale = np.zeros(2), stale

    def __call__(self, q, p0, u):
        before = energy(q, self.p if self.stale else p0)
        new_q, new_p = leapfrog(q, p0, EPS, STEPS)
        self.p = p0
        return new_q if u < math.exp(min(0.0, before - energy(new_q, new_p))) else q


class CachedGradient:
    """HMC that keeps the gradient at the end of the last trajectory, even if that end was rejected."""

    def __init__(self, refreshed):
        self.at, self.gradient, self.refreshed = None, None, refreshed

    def __call__(self, rng, q):
        if self.gradient is None or (self.refreshed and not np.array_equal(self.at, q)):
            self.at, self.gradient = q.copy(), grad(q)
        p = rng.standard_normal(2)
        new_q, new_p = q, p
        g = self.gradient
        for _ in range(STEPS):
            new_p = new_p + 0.5 * EPS * g
            new_q = new_q + EPS * new_p
            g = grad(new_q)
            new_p = new_p + 0.5 * EPS * g
        self.at, self.gradient = new_q.copy(), g
        return new_q if math.log(rng.random()) < energy(q, p) - energy(new_q, new_p) else q


def last_leapfrog_state(draws, q):
    p = draws.normal(2)
    states = [(q, p)]
    for _ in range(STEPS):
        states.append(leapfrog(*states[-1], EPS, 1))
    if math.log(draws.uniform()) < energy(q, p) - energy(*states[-1]):
        return states[-1][0]
    return states[-2][0]


# ------------------------------------------------------------------------------------------------------- faulty energies


def make_hmc(clamp):
    def make(log_density, gradient):
        def kernel(rng, q):
            p = rng.normal(size=2)
            new_q, new_p = leapfrog(q, p, EPS, STEPS, gradient)
            error = log_density(q) - 0.5 * p @ p - log_density(new_q) + 0.5 * new_p @ new_p
            if clamp:
                reject = rng.uniform() > np.exp(-error)  # False for NaN
            else:
                reject = not rng.uniform() < np.exp(-error)
            return q if reject else new_q

        return kernel

    return make


def gamma_logp(q):
    """Return a log density that is NaN, with NumPy's warning, for a negative first coordinate."""
    with np.errstate(all="ignore"):
        return 2 * np.log(q[0]) - 3 * q[0] - 0.5 * q[1] ** 2


def gamma_grad(q):
    return np.array([2 / q[0] - 3, -q[1]])


def make_walk(log_scale):
    """Return a random walk with a ratio of densities that overflow although their logarithms do not."""

    def make(log_density, gradient):
        def kernel(rng, q):
            new = q + 0.8 * rng.standard_normal(2)
            if log_scale:
                return new if math.log(rng.random()) < log_density(new) - log_density(q) else q
            with np.errstate(all="ignore"):
                return new if rng.random() * np.exp(log_density(q)) < np.exp(log_density(new)) else q

        return kernel

    return make


# --------------------------------------------------------------------------------------------------- other kinds of moves


def mala(hastings):
    return langevin(logp, grad, 0.35, bug="" if hastings else "no proposal density")


def jittered(after):
    """HMC with a jittered step size; ``after``: drawn only after the comparison of energies."""

    def kernel(draws, q):
        eps = EPS * (0.8 + 0.4 * draws.uniform())
        p = draws.normal(2)
        new_q, new_p = leapfrog(q, p, EPS if after else eps, STEPS)
        accepted = math.log(draws.uniform()) < energy(q, p) - energy(new_q, new_p)
        return leapfrog(q, p, eps, STEPS)[0] if accepted else q

    return kernel


def multinomial(both_ways):
    """Multinomial HMC on four states; the trajectory must extend to both sides of the initial state at random."""

    def kernel(draws, q):
        p = draws.normal(2)
        back = draws.choice(4) if both_ways else 0
        path = [leapfrog(q, -p, EPS, back)] if back else [(q, -p)]
        path[0] = (path[0][0], -path[0][1])
        for _ in range(3):
            path.append(leapfrog(*path[-1], EPS, 1))
        H = np.array([energy(*z) for z in path])
        H = np.where(np.isnan(H), np.inf, H)
        weights = np.exp(H.min() - H)  # far out each factor alone would be 0
        return path[draws.choice(weights / weights.sum())][0]

    return kernel


LONG = 0.8
BANDS = (0.3, 0.6), (0.5, 0.9), (0.2, 0.97)


@functools.cache
def gist(bug="", by_choice=True):
    """HMC with a number of steps drawn uniformly from those up to the U-turn; wrong with a ``bug``.

    The number is drawn as a choice, or by a uniform u: 1 + floor(u n).
    """

    def turning_time(q, p):
        state, k = leapfrog(q, p, LONG, 1), 1
        while k < 4 and (state[0] - q) @ state[1] > 0:
            state, k = leapfrog(*state, LONG, 1), k + 1
        return k

    def kernel(draws, q):
        p = draws.normal(2)
        n = turning_time(q, p)
        among = 4 if bug == "wrong set" else n
        steps = 1 + (draws.choice(among) if by_choice else int(draws.uniform() * among))
        new_q, new_p = leapfrog(q, p, LONG, steps)
        n_back = turning_time(q, -p) if bug == "wrong end" else turning_time(new_q, -new_p)
        ratio = n / n_back if steps <= n_back else 0.0
        if bug in ("no ratio", "numerator"):
            ratio = 1.0 if bug == "no ratio" else 1 / n_back
        accepted = draws.uniform() < ratio * math.exp(energy(q, p) - energy(new_q, new_p))
        return new_q if accepted else q

    return kernel


@functools.cache
def autostep(bug="", by_choice=True):
    """Langevin with a step that is doubled or halved until its ratio is in a band; wrong with a ``bug``.

    The band is one of three, or between two uniforms. With a "new band" for the check it is correct: the probabilities of the
    exponent at both ends enter as a product.
    """

    def exponent(q, p, low, high, most=3):
        def ratio(k):
            return math.exp(-abs(energy(q, p) - energy(*leapfrog(q, p, EPS * 2.0**k, 1))))

        k = 0
        if ratio(0) > high:
            while k < most and ratio(k + 1) > high:
                k += 1
        else:
            while k > -most and ratio(k) < low:
                k -= 1
        return k

    def band(draws):
        return BANDS[draws.choice(3)] if by_choice else sorted((draws.uniform(), draws.uniform()))

    def kernel(draws, q):
        p = draws.normal(2)
        limits = band(draws)
        k = exponent(q, p, *limits)
        new_q, new_p = leapfrog(q, p, EPS * 2.0**k, 1)
        if bug == "new band":
            limits = band(draws)
        most = 1 if bug == "short search" else 3
        same = bug == "no check" or exponent(new_q, new_p if bug == "no flip" else -new_p, *limits, most) == k
        return new_q if same and math.log(draws.uniform()) < energy(q, p) - energy(new_q, new_p) else q

    return kernel


@functools.cache
def refreshed(order="first", *, alpha=0.8, excess=1.0, curved=0.0, floor=0.0, turned="rejections", eps=EPS):
    """Horowitz's HMC; ``order`` of refreshment: "first", "last" or "both"; ``turned``: "rejections" or "moves" reverse p.

    Wrong if the noise has ``excess`` variance, the step is ``curved``, the acceptance probability has a ``floor``, or neither
    or "both" reverse p.
    """

    def refreshment(draws, p):
        return alpha * p + excess * math.sqrt(1 - alpha**2) * draws.normal(2)

    def kernel(draws, q, p):
        p = refreshment(draws, p) if order != "last" else p
        new_q, new_p = leapfrog(q, p, eps * (1 + curved * math.tanh(q[0])), STEPS)
        accepted = draws.uniform() < max(floor, math.exp(min(0.0, energy(q, p) - energy(new_q, new_p))))
        q, p, outcome = (new_q, new_p, "moves") if accepted else (q, p, "rejections")
        p = -p if turned in (outcome, "both") else p
        return q, refreshment(draws, p) if order != "first" else p

    return kernel


MASS_INVERSE = np.array([[1.5, 0.7], [0.7, 0.8]])


def dense_momentum(right):
    """p ~ N(0, M): L^-T u with L L' = M^-1, not L^-1 u."""
    L = np.linalg.cholesky(MASS_INVERSE)
    root = np.linalg.inv(L).T if right else np.linalg.inv(L)

    def kernel(draws, q):
        p = root @ draws.normal(2)
        new_q, new_p = q, p + 0.5 * 0.3 * grad(q)
        for k in range(3):
            new_q = new_q + 0.3 * MASS_INVERSE @ new_p
            new_p = new_p + (0.3 if k < 2 else 0.15) * grad(new_q)
        drop = logp(new_q) - logp(q) + 0.5 * (p @ MASS_INVERSE @ p - new_p @ MASS_INVERSE @ new_p)
        return new_q if math.log(draws.uniform()) < drop else q

    return kernel


def make_massive(power):
    """Return a function that makes HMC with a diagonal inverse mass, whose drift has this power of it."""

    def make(log_density, gradient, inverse_mass):
        def kernel(draws, q):
            p = draws.normal(2) / np.sqrt(inverse_mass)
            new_q, new_p = q, p + 0.5 * EPS * gradient(q)
            for k in range(STEPS):
                new_q = new_q + EPS * inverse_mass**power * new_p
                new_p = new_p + (EPS if k < STEPS - 1 else 0.5 * EPS) * gradient(new_q)
            kinetic = 0.5 * (p @ (inverse_mass * p) - new_p @ (inverse_mass * new_p))
            return new_q if math.log(draws.uniform()) < log_density(new_q) - log_density(q) + kinetic else q

        return kernel

    return make


def make_dense(bug=""):
    """Return a function that makes HMC with an inverse mass C, a diagonal or a matrix; p ~ N(0, C^-1)."""

    def make(log_density, gradient, inverse_mass):
        C = np.diag(inverse_mass) if np.ndim(inverse_mass) == 1 else np.asarray(inverse_mass)
        root = np.linalg.cholesky(np.linalg.inv(C))
        root = {"transposed": root.T, "diagonal": np.diag(np.diag(C) ** -0.5)}.get(bug, root)
        drift = np.diag(np.diag(C)) if bug == "diagonal drift" else C

        def kernel(draws, q):
            p = root @ draws.normal(2)
            new_q, new_p = q, p + 0.5 * EPS * gradient(q)
            for k in range(STEPS):
                new_q = new_q + EPS * drift @ new_p
                new_p = new_p + (EPS if k < STEPS - 1 else 0.5 * EPS) * gradient(new_q)
            ratio = log_density(new_q) - log_density(q) + 0.5 * (p @ C @ p - new_p @ C @ new_p)
            return new_q if math.log(draws.uniform()) < ratio else q

        return kernel

    return make


def dense_report(bug, seed):
    make = make_dense(bug)
    return report(make(logp, grad, np.ones(2)), seed, make=make, dense=True, **DENSITY)


# --------------------------------------------------------------------------------------------- unusual, but correct


def delaying(right):
    """Delayed-rejection HMC: a second try with smaller steps and the same momentum (Modi and others 2023)."""
    return delayed(logp, grad, (0.9, 2), (0.3, 2), bug="" if right else "rejections left out")


@functools.cache
def delaying_kept(bug="", alpha=0.7, first=(1.1, 2), second=(0.4, 2)):
    """Delayed rejection with a kept momentum (Turok, Modi and Carpenter 2024); the momentum is reversed after rejections.

    With z' the second proposal, a(z) the acceptance probability of the first one from z, and F z the state with p reversed,
    the second one is accepted with probability

        min(1, pi(z') (1 - a(F z')) / (pi(z) (1 - a(z))))
    """

    def rise(q, p, at=None):
        """Energy error of the first proposal from (q, p), relative to the energy ``at``."""
        return energy(*leapfrog(q, p, *first)) - (energy(q, p) if at is None else at)

    def kernel(draws, q, p):
        p = alpha * p + math.sqrt(1 - alpha**2) * draws.normal(2)
        new_q, new_p = leapfrog(q, p, *first)
        chance = math.exp(-max(rise(q, p), 0.0))
        if draws.uniform() < chance:
            return new_q, new_p
        new_q, new_p = leapfrog(q, p, *second)
        at = energy(q, p) if bug == "ghost density" else None
        there = math.exp(-max(rise(new_q, new_p if bug == "ghost forwards" else -new_p, at), 0.0))
        ghost = (1 - there) / (1 - chance)
        if bug == "no ghost":
            ghost = 1.0
        if bug == "ghost on one side":
            ghost = 1 - there
        if bug == "start on one side":
            ghost = 1 / (1 - chance)
        accepted = draws.uniform() < ghost * math.exp(energy(q, p) - energy(new_q, new_p))
        return (new_q, new_p) if accepted else (q, -p)

    return kernel


def gibbs(draws, q):
    """Gibbs sampler of a normal, one coordinate after the other: correct, but not reversible."""
    q = q.copy()
    for i in (0, 1):
        q[i] = -PRECISION[i, 1 - i] / PRECISION[i, i] * q[1 - i] + draws.normal() / math.sqrt(PRECISION[i, i])
    return q


def independent(draws, q):
    return np.linalg.solve(np.linalg.cholesky(PRECISION).T, draws.normal(2))


def box_walk(draws, q):
    """Metropolis with uniform proposals, without normals."""
    new = q + np.array([draws.uniform() - 0.5, draws.uniform() - 0.5])
    return new if draws.uniform() < math.exp(min(0.0, logp(new) - logp(q))) else q


def single(draws, q):
    """float32 throughout."""
    return np.asarray(hmc(draws, q.astype(np.float32)), dtype=np.float32)


def either_way(draws, q):
    """A random sign of the step."""
    eps = EPS if draws.uniform() < 0.5 else -EPS
    p = draws.normal(2)
    new_q, new_p = leapfrog(q, p, eps, STEPS)
    return new_q if draws.flip(energy(q, p) - energy(new_q, new_p)) else q


def unadjusted(draws, q):
    """Langevin step without a Metropolis decision, which has another distribution."""
    h = 0.3
    return q + h * grad(q) + math.sqrt(2 * h) * draws.normal(2)


def normal_logp(q):
    return -0.5 * q @ PRECISION @ q


# ------------------------------------------------------------------------------------------- small or rare errors


def ruled(chance):
    """HMC with the acceptance probability ``chance(decrease of energy)``."""
    return with_rule(lambda u, H0, H1, *state: u < chance(min(H0 - H1, 0.0)))


def in_parts(chance, choose=None):
    """Metropolis on all coordinates in order, or on one drawn with the probabilities ``choose(q)``."""

    def kernel(draws, q):
        for i in (0, 1) if choose is None else (draws.choice(np.array(choose(q))),):
            new = q.copy()
            new[i] += 0.9 * draws.normal()
            q = new if draws.uniform() < chance(min(0.0, logp(new) - logp(q))) else q
        return q

    return kernel


def moved_on(draws, q):
    """HMC that adds a small noise to accepted proposals."""
    new = hmc(draws, q)
    return q if np.array_equal(new, q) else new + 0.1 * draws.normal(2)


def slow_langevin(draws, q):
    return q + 0.001 * grad(q) + math.sqrt(0.002) * draws.normal(2)


def tree(temperature):
    """Multinomial HMC on a trajectory doubled three times in random directions."""

    def kernel(draws, q):
        left = right = (q, draws.normal(2))
        states = [left]
        for depth in range(3):
            forwards, new = draws.flip(math.log(0.5)), []
            for _ in range(2**depth):
                if forwards:
                    right = leapfrog(*right, EPS, 1)
                else:
                    new_q, new_p = leapfrog(left[0], -left[1], EPS, 1)
                    left = (new_q, -new_p)
                new.append(right if forwards else left)
            states += new
        H = np.array([energy(*z) for z in states]) / temperature
        weights = np.exp(H.min() - H)
        return states[draws.choice(weights / weights.sum())][0]

    return kernel


def unseen(temperature):
    """Random walk whose numbers come from the bit stream."""

    def kernel(rng, q):
        rng = np.random.Generator(rng.bit_generator)
        new = q + 0.9 * rng.standard_normal(2)
        return new if math.log(rng.random()) < (logp(new) - logp(q)) / temperature else q

    return kernel


# ------------------------------------------------------------ randomness on the way, and velocities of constant length


def malt(bug="", kept=0.6, steps=3):
    """Return trajectories with p <- a p + sqrt(1 - a^2) z between leapfrog steps, decided by the sum of the steps' errors."""
    new = {"no root": 1 - kept**2}.get(bug, math.sqrt(1 - kept**2))

    def kernel(draws, q):
        x, p = q, draws.normal(2)
        start, error, path = energy(x, p), 0.0, []
        for k in range(steps):
            if k > 0:
                path.append(x)
                p = kept * p + new * draws.normal(2)
            before = 0.0 if bug == "last step" and k < steps - 1 else energy(x, p)
            x, p = leapfrog(x, p, EPS, 1)
            error = 0.0 if bug == "last step" and k < steps - 1 else error + energy(x, p) - before
        if bug == "refreshments":
            error = energy(x, p) - start
        return {"q": x if math.log(draws.uniform()) < -error else q, "path": path}

    return kernel


def potential(q):
    """Return the function whose gradient is ``leaps.slope``."""
    return 0.5 * float(q**2 @ (1 + 0.5 * np.arange(len(q)))) + q[0] * q[1] / 3


def mams(bug="", declared="", steps=2):
    """Metropolis-adjusted microcanonical steps with a new velocity; ``declared`` is a bug of their log Jacobian."""
    leap = microcanonical(declared)

    def kernel(draws, q):
        z = draws.normal(3)
        x, u, log_det = q, z / np.linalg.norm(z), 0.0
        for _ in range(2 + (draws.uniform() < 0.5) if steps is None else steps):
            x, u, change = leap(x, u)
            log_det += change
        ratio = potential(q) - potential(x) + {"": 1.0, "no Jacobian": 0.0, "inverse": -1.0}[bug] * log_det
        return x if math.log(draws.uniform()) < ratio else q

    return kernel


def kept_velocity(bug="", declared="", steps=2, kept=0.6):
    """Return the same with a velocity that is kept in part, u <- a u + (1 - a^2)^(1/2) z / |z|, divided by its length.

    ``steps=None`` draws 2 or 3 of them.
    """
    leap = microcanonical(declared)

    def kernel(draws, q, u):
        z = draws.normal(3)
        if bug == "one axis more":
            z = z * np.array([5.0, 1.0, 1.0])
        if bug == "positive":
            z = np.abs(z)
        u = kept * u + math.sqrt(1 - kept**2) * z / np.linalg.norm(z)
        x, v, log_det = q, u if bug == "length" else u / np.linalg.norm(u), 0.0
        u = v
        for _ in range(2 + (draws.uniform() < 0.5) if steps is None else steps):
            x, v, change = leap(x, v)
            log_det += change
        if bug == "half a turn":  # the last turn is left out
            x, v = x + 0.3 * v, v
        ratio = potential(q) - potential(x) + {"no Jacobian": 0.0, "inverse": -1.0}.get(bug, 1.0) * log_det
        if bug == "slack":  # small errors are ignored
            ratio = 0.0 if ratio > -0.05 else ratio
        if bug == "floor":
            ratio = max(ratio, math.log(0.2))
        if math.log(draws.uniform()) < ratio:
            return x, -v if bug == "always turned" else v
        return q, u if bug == "no flip" else -u

    return kernel


NEARLY = {
    "floor .02": ruled(lambda r: max(0.02, math.exp(r))),
    "floor .001": ruled(lambda r: max(0.001, math.exp(r))),
    "clipped in parts": in_parts(lambda r: min(0.99, math.exp(r))),
    "floor in parts": in_parts(lambda r: max(0.02, math.exp(r))),
    "temperature 1.01 in parts": in_parts(lambda r: math.exp(r / 1.01)),
    "temperature of one coordinate": in_parts(lambda r: math.exp(r / 1.05), lambda q: (0.5, 0.5)),
    "a choice that depends on q": in_parts(
        math.exp, lambda q: (0.5 + 0.2 * math.tanh(q[0]), 0.5 - 0.2 * math.tanh(q[0]))
    ),
    "noise after acceptance": moved_on,
    "slow Langevin": slow_langevin,
    "tree, temperature 1.05": tree(1.05),
    "unseen, temperature 1.05": unseen(1.05),
}  # each is biased, and was once reported as PASS


class TakesTurns:
    """Kernel that applies ``other`` once every ``period`` calls, and ``first`` otherwise."""

    def __init__(self, first, other, period):
        self.first, self.other, self.period, self.calls = first, other, period, 0

    def __call__(self, draws, q):
        self.calls += 1
        return (self.other if self.calls % self.period == 0 else self.first)(draws, q)


ODD = {
    "delayed rejection": delaying(True),
    "Barker's rule": with_rule(barker),
    "uniforms near one accept": with_rule(reversed_sense),
    "Metropolis coordinate by coordinate": in_parts(math.exp),
    "uniform proposals": box_walk,
    "thresholds drawn again": autostep("new band"),
    "a random direction": either_way,
    "float32": single,
}


def report(kernel, seed, H=logp, **more):
    # The time limit allows for load: one or two seconds suffice, a few more if nothing is in balance.
    return rc.transition(kernel, H, seed=seed, **{"dim": 2, "seconds": 240.0, "n_points": 4, **more})


@functools.cache
def right_report(kernel, seed, more):
    """Return the report on corrected code; many bugs have the same."""
    return report(kernel, seed, **dict(more))


def pair_of(name, what, wrong, right, expected, **more):
    return Pair(
        name,
        what,
        lambda s: report(wrong(), s, **more),
        lambda s: right_report(right(), s, tuple(more.items())),
        expected,
    )


BALANCE = ("detailed balance", "acceptance")
DENSITY = {"log_density": logp, "gradient": grad}
PAIRS: list[Pair] = [
    pair_of(
        "P16",
        "the energy before the move uses the previous transition's momentum",
        lambda: LastMomentum(True),
        lambda: LastMomentum(False),
        ("stateless",),
        H=energy,
    ),
    pair_of(
        "P18",
        "a NaN energy error is accepted",
        lambda: make_hmc(True)(gamma_logp, gamma_grad),
        lambda: make_hmc(False)(gamma_logp, gamma_grad),
        ("nan energy",),
        H=gamma_logp,
    ),
    Pair(
        "M21",
        "a NaN energy is accepted (found by modifying the density)",
        lambda s: report(make_hmc(True)(logp, grad), s, make=make_hmc(True), **DENSITY),
        lambda s: report(make_hmc(False)(logp, grad), s, make=make_hmc(False), **DENSITY),
        ("nan energy",),
    ),
    Pair(
        "M32",
        "the density is exponentiated before the ratio is taken",
        lambda s: report(make_walk(False)(logp, grad), s, make=make_walk(False), **DENSITY),
        lambda s: report(make_walk(True)(logp, grad), s, make=make_walk(True), **DENSITY),
        ("shift invariance",),
    ),
    pair_of("M4", "kinetic energy of the position", lambda: with_rule(position_for_momentum), lambda: hmc, BALANCE),
    pair_of("M6", "always accepts", lambda: with_rule(always), lambda: hmc, ("stationarity",)),
    pair_of(
        "M7",
        "no minus sign in the logarithm of the uniform",
        lambda: with_rule(no_minus),
        lambda: hmc,
        (*BALANCE, "stationarity"),
    ),
    pair_of("sign", "exp(+dH)", lambda: with_rule(other_sign), lambda: hmc, BALANCE),
    pair_of("no kinetic", "kinetic energy missing", lambda: with_rule(without_kinetic), lambda: hmc, BALANCE),
    pair_of("clip", "the energy error is clipped", lambda: with_rule(floored(-0.05)), lambda: hmc, BALANCE, n_points=8),
    pair_of(
        "cap",
        "an increase of the energy is capped, a decrease is not",
        lambda: with_rule(capped(False)),
        lambda: with_rule(capped(True)),
        ("detailed balance",),
    ),
    pair_of(
        "floor", "an acceptance of at least .61", lambda: with_rule(floored(-0.5)), lambda: hmc, BALANCE, seconds=30.0
    ),
    pair_of(
        "M9",
        "a rejection goes back one leapfrog step only",
        lambda: last_leapfrog_state,
        lambda: hmc,
        ("rejection returns the start", "detailed balance", "stationarity"),
    ),
    pair_of(
        "M12",
        "a trajectory extended in one direction only",
        lambda: multinomial(False),
        lambda: multinomial(True),
        BALANCE,
    ),
    pair_of(
        "M2",
        "momentum with the covariance of the inverse mass",
        lambda: dense_momentum(False),
        lambda: dense_momentum(True),
        BALANCE,
    ),
    pair_of("M23", "stale gradient", lambda: CachedGradient(False), lambda: CachedGradient(True), ("stateless",)),
    pair_of("M27", "no Hastings term", lambda: mala(False), lambda: mala(True), BALANCE),
    pair_of(
        "jitter", "the step is jittered after the decision", lambda: jittered(True), lambda: jittered(False), BALANCE
    ),
    pair_of(
        "flip",
        "a kept momentum is not reversed",
        lambda: refreshed(turned=""),
        lambda: refreshed(),
        ("momentum flip",),
        H=energy,
    ),
    pair_of(
        "flip both",
        "a kept momentum is reversed after moves and rejections",
        lambda: refreshed(turned="both"),
        lambda: refreshed(),
        ("momentum flip",),
        H=energy,
    ),
    pair_of(
        "AdvancedHMC#280",
        "the momentum becomes a p + (1 - a^2) z, without a square root",
        lambda: refreshed(excess=math.sqrt(1 - 0.8**2)),
        lambda: refreshed(),
        ("momentum refreshment",),
        H=energy,
    ),
    Pair(
        "mass twice",
        "the inverse mass is applied twice in the drift",
        lambda s: report(make_massive(2)(logp, grad, np.ones(2)), s, make=make_massive(2), **DENSITY),
        lambda s: report(make_massive(1)(logp, grad, np.ones(2)), s, make=make_massive(1), **DENSITY),
        ("equivariance",),
        severity="inefficient",
    ),
    *(
        Pair(
            f"dense {bug}",
            f"with a dense inverse mass, {what}",
            functools.partial(dense_report, bug),
            functools.partial(dense_report, ""),
            ("equivariance",),
            severity=severity,
        )
        for bug, what, severity in (
            ("transposed", "the momentum is L' z with L L' the mass", "wrong distribution"),
            ("diagonal", "the momentum has the mass of its diagonal", "wrong distribution"),
            ("diagonal drift", "the drift uses its diagonal only", "inefficient"),
        )
    ),
    *(
        pair_of(
            f"refresh {order}",
            f"a kept momentum gets 1 % too much noise ({order})",
            lambda order=order: refreshed(order, excess=1.01),
            lambda order=order: refreshed(order),
            ("momentum refreshment",),
            H=energy,
        )
        for order in ("first", "last", "both")
    ),
    pair_of(
        "kept curved",
        "a step that depends on the position, the momentum kept",
        lambda: refreshed(curved=0.02),
        lambda: refreshed(turned="moves"),
        ("volume",),
        H=energy,
    ),
    pair_of(
        "kept floor",
        "an acceptance of at least .02, the momentum kept",
        lambda: refreshed(floor=0.02),
        lambda: refreshed("last", turned="moves"),
        ("acceptance",),
        H=energy,
    ),
    pair_of(
        "DR",
        "a second try without the rejection probabilities",
        lambda: delaying(False),
        lambda: delaying(True),
        BALANCE,
    ),
    *(
        pair_of(
            f"GIST {bug}, {'choice' if by_choice else 'uniform'}",
            f"a drawn number of steps {what}",
            lambda bug=bug, by_choice=by_choice: gist(bug, by_choice),
            lambda by_choice=by_choice: gist("", by_choice),
            BALANCE,
        )
        for bug, what in (
            ("no ratio", "without the ratio of its probabilities"),
            ("numerator", "with its probability at the end, but not that at the start"),
            ("wrong set", "from 1 to 4, accepted as if it were from those up to the U-turn"),
            ("wrong end", "whose backward time to the U-turn is that of the start"),
        )
        for by_choice in (True, False)
    ),
    *(
        pair_of(
            f"AutoStep {bug}, {'bands' if by_choice else 'uniforms'}",
            f"a chosen step size {what}",
            lambda bug=bug, by_choice=by_choice: autostep(bug, by_choice),
            lambda by_choice=by_choice: autostep("", by_choice),
            BALANCE,
        )
        for bug, what, by_choice in (
            ("no check", "without the reversibility check", True),
            ("no flip", "whose reversibility check does not reverse the momentum", True),
            ("no flip", "whose reversibility check does not reverse the momentum", False),
            ("short search", "whose reversibility check searches among fewer sizes", True),
        )
    ),
    *(
        pair_of(
            f"DR kept {bug}",
            f"a second try with a kept momentum, {what}",
            lambda bug=bug: delaying_kept(bug),
            delaying_kept,
            ("acceptance",),
            H=energy,
        )
        for bug, what in (
            ("no ghost", "without the rejection probabilities"),
            ("ghost on one side", "with the rejection probability of the ghost only"),
            ("start on one side", "with the rejection probability of the start only"),
            ("ghost forwards", "whose ghost starts with the momentum not reversed"),
            ("ghost density", "whose ghost is compared with the energy of the start"),
        )
    ),
    *(
        pair_of(
            f"MALT {bug}",
            f"a momentum refreshed between steps, {what}",
            lambda bug=bug: malt(bug),
            malt,
            BALANCE,
            H=energy,
        )
        for bug, what in (
            ("refreshments", "whose energy error includes the refreshments"),
            ("no root", "with (1 - a^2) z as the new part"),
            ("last step", "with the energy error of the last step only"),
        )
    ),
    *(
        pair_of(
            f"MAMS {bug or declared}",
            f"a microcanonical trajectory {what}",
            lambda bug=bug, declared=declared, steps=steps: mams(bug, declared, steps),
            lambda steps=steps: mams(steps=steps),
            BALANCE,
            H=lambda q: -potential(q),
            dim=3,
        )
        for bug, declared, steps, what in (
            ("no Jacobian", "", 2, "accepted without its Jacobian"),
            ("inverse", "", None, "of drawn length, accepted with the inverse of its Jacobian"),
            ("", "d", 2, "with d instead of d - 1 in its log Jacobian"),
            ("", "d - 1 twice", 2, "with the factor d - 1 twice in its log Jacobian"),
        )
    ),
    *(
        pair_of(
            f"kept velocity {bug or declared}",
            f"a microcanonical trajectory with a kept velocity {what}",
            lambda bug=bug, declared=declared, steps=steps: kept_velocity(bug, declared, steps),
            lambda steps=steps: kept_velocity(steps=steps),
            rows,
            H=lambda q: -potential(q),
            dim=3,
            sphere=True,
        )
        for bug, declared, steps, rows, what in (
            ("no Jacobian", "", 2, ("acceptance",), "accepted without its Jacobian"),
            ("inverse", "", None, ("acceptance",), "of drawn length, accepted with the inverse of its Jacobian"),
            ("", "d", 2, ("acceptance",), "with d instead of d - 1 in its log Jacobian"),
            ("floor", "", 2, ("acceptance",), "accepted with a probability of at least .2"),
            ("slack", "", 2, ("acceptance",), "accepted if the log ratio is above -.05"),
            ("no flip", "", 2, ("momentum flip",), "that is not reversed after a rejection"),
            ("always turned", "", None, ("momentum flip",), "that is reversed after moves and rejections"),
            ("length", "", 2, ("on the sphere",), "that is not divided by its length"),
            ("half a turn", "", 2, ("reversible",), "and a drift after its last turn"),
            ("one axis more", "", 2, ("stationarity",), "whose new part prefers an axis"),
            ("positive", "", 2, ("stationarity",), "whose new part is positive"),
        )
    ),
    pair_of("ULA", "Langevin's proposal is always accepted", lambda: unadjusted, lambda: mala(True), ("stationarity",)),
    pair_of(
        "exact",
        "exact draws of another distribution",
        lambda: lambda d, q: 1.1 * independent(d, q),
        lambda: independent,
        ("stationarity",),
        H=normal_logp,
    ),
    pair_of(
        "Gibbs",
        "a conditional variance instead of its root",
        lambda: lambda d, q: gibbs(d, q) * np.array([1.0, 1.15]),
        lambda: gibbs,
        ("stationarity",),
        H=normal_logp,
        seconds=60.0,
    ),
]

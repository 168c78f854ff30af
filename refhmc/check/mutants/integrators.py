"""Planted bugs of integrators, each with its corrected counterpart, in plain NumPy."""

from __future__ import annotations

import numpy as np

import refhmc.check as rc

from . import Pair

# ------------------------------------------------------------------------------------------------------------- targets

QUARTIC = "U = q.q/2 + sum q^4/4 + q_0 q_1/2 on the identity"


def potential(q):
    return 0.5 * (q * q).sum() + 0.25 * (q**4).sum() + 0.5 * q[0] * q[1]


def force(q):
    slope = q + q**3
    slope[0] = slope[0] + 0.5 * q[1]
    slope[1] = slope[1] + 0.5 * q[0]
    return -slope


def energy(q, p):
    return potential(q) + 0.5 * (p * p).sum()


def banana(q, p):
    return 0.5 * q[0] ** 2 + 2.0 * (q[1] - q[0] ** 2) ** 2 + 0.5 * (p * p).sum()


def banana_force(q):
    bend = q[1] - q[0] * q[0]
    return -np.array([q[0] - 8.0 * q[0] * bend, 4.0 * bend])


def oscillator(q, p):
    return 0.5 * (q * q).sum() + 0.5 * (p * p).sum()


MASS = np.array([[2.0, 0.6], [0.6, 0.5]])
INVERSE = np.linalg.inv(MASS)


def dense_energy(q, p):
    return potential(q) + 0.5 * p @ INVERSE @ p


def curved(q, p):
    """q.q/2 + sum (p_i^2/g_i + log g_i)/2, g_i = 1 + q_i^2."""
    g = 1.0 + q * q
    return 0.5 * (q * q).sum() + 0.5 * (p * p / g + np.log(g)).sum()


def curved_q(q, p):
    g = 1.0 + q * q
    return q + q / g - q * p * p / (g * g)


def curved_p(q, p):
    return p / (1.0 + q * q)


def examine(step, H, seed, **more):
    return rc.integrator(step, H, dim=more.pop("dim", 2), seed=seed, **more)


def curved_check(step, seed, **more):
    return examine(step, curved, seed, grad_q=curved_q, grad_p=curved_p, **{"tolerance": 1e-13, **more})


# ------------------------------------------------------------------------------------------------- explicit, separable


def kick_drift_kick(force, velocity=lambda p: p):
    """Return a leapfrog step for another force or another velocity."""

    def step(q, p, eps, n):
        for _ in range(n):
            p = p + 0.5 * eps * force(q)
            q = q + eps * velocity(p)
            p = p + 0.5 * eps * force(q)
        return q, p

    return step


def leapfrog(q, p, eps, n):
    p = p + 0.5 * eps * force(q)
    for i in range(n):
        q = q + eps * p
        p = p + (eps if i < n - 1 else 0.5 * eps) * force(q)
    return q, p


def one_kick(q, p, eps, n):  # P01
    for _ in range(n):
        p = p + eps * force(q)
        q = q + eps * p
    return q, p


def oscillator_step(drift):
    return kick_drift_kick(lambda q: -q, lambda p: drift * p)


def cayley(drift):
    """Make an exact implicit midpoint step of the oscillator: a rotation by 2 atan(eps/2), for any step size."""

    def step(q, p, eps):
        half = 0.5 * eps * np.array([[0.0, drift], [-1.0, 0.0]])
        return tuple(np.linalg.solve(np.eye(2) - half, np.eye(2) + half) @ np.stack([q, p]))

    return step


def composed(weights):
    def step(q, p, eps, n):
        for _ in range(n):
            for w in weights:
                q, p = leapfrog(q, p, w * eps, 1)
        return q, p

    return step


W = 1.0 / (2.0 - 2.0 ** (1.0 / 3.0))
YOSHIDA = composed((W, 1.0 - 2.0 * W, W))
ROUNDED = composed((1.351207, -1.702414, 1.351207))  # P05


def kicks_and_drifts(b, a):
    """Return a step with kicks of b and drifts of a in turn, a kick first and last."""

    def step(q, p, eps, n):
        for _ in range(n):
            p = p + b[0] * eps * force(q)
            for drift, kick in zip(a, b[1:], strict=True):
                q = q + drift * eps * p
                p = p + kick * eps * force(q)
        return q, p

    return step


def five_stages(b1=0.08398315262876693, a1=0.2539785108410595, b2=0.6822365335719091, a2=-0.03230286765269967):
    """Return the method of order 4 of Omelyan, Mryglod and Folk (2003)."""
    b3, a3 = 0.5 - b1 - b2, 1.0 - 2.0 * (a1 + a2)
    return kicks_and_drifts((b1, b2, b3, b3, b2, b1), (a1, a2, a3, a2, a1))


B1, A1 = 0.11888010966548, 0.29619504261126
THREE_STAGES = kicks_and_drifts((B1, 0.5 - B1, 0.5 - B1, B1), (A1, 1.0 - 2.0 * A1, A1))
NOT_PALINDROMIC = kicks_and_drifts((B1, 0.5 - B1, B1, 0.5 - B1), (A1, 1.0 - 2.0 * A1, A1))
DRIFTS_TOO_LONG = kicks_and_drifts((B1, 0.5 - B1, 0.5 - B1, B1), (A1, 1.0 - A1, A1))


def runge_kutta(q, p, eps):
    def f(q, p):
        return p, force(q)

    a, b = f(q, p)
    c, d = f(q + eps / 2 * a, p + eps / 2 * b)
    e, g = f(q + eps / 2 * c, p + eps / 2 * d)
    h, k = f(q + eps * e, p + eps * g)
    return q + eps / 6 * (a + 2 * c + 2 * e + h), p + eps / 6 * (b + 2 * d + 2 * g + k)


def explicit_midpoint(q, p, eps):
    middle_q, middle_p = q + eps / 2 * p, p + eps / 2 * force(q)
    return q + eps * middle_p, p + eps * force(middle_q)


dense_leapfrog = kick_drift_kick(force, lambda p: INVERSE @ p)
mass_for_inverse = kick_drift_kick(force, lambda p: MASS @ p)
uphill = kick_drift_kick(lambda q: -force(q))


def twice(q, p, eps, n):
    return leapfrog(q, p, 2.0 * eps, n)


def squared(q, p, eps, n):
    return leapfrog(q, p, eps * eps, n)


def turned_between(q, p, eps, n):
    for _ in range(n):
        p = p + 0.5 * eps * force(q)
        q = q + eps * p
        p = -p
        p = p + 0.5 * eps * force(q)
    return q, p


def deaf_to_n(q, p, eps, n):
    return leapfrog(q, p, eps, 1)


def inner_half_kicks(q, p, eps, n):
    for i in range(n):
        if i == 0:
            p = p + 0.5 * eps * force(q)
        q = q + eps * p
        p = p + 0.5 * eps * force(q)
    return q, p


def drift_after_both(q, p, eps):
    p = p + 0.5 * eps * force(q)
    p = p + 0.5 * eps * force(q)
    q = q + eps * p
    return q, p


def in_place(q, p, eps, n):
    for _ in range(n):
        p += 0.5 * eps * force(q)
        q += eps * p
        p += 0.5 * eps * force(q)
    return q, p


class Cached:
    """Leapfrog that keeps the last force; ``where``: only for the position at which it was evaluated."""

    def __init__(self, where):
        self.where, self.q, self.last = where, None, None

    def step(self, q, p, eps):
        if self.q is None or (self.where and not np.array_equal(self.q, q)):
            self.last = force(q)
        p = p + 0.5 * eps * self.last
        self.q = q + eps * p
        self.last = force(self.q)
        return self.q.copy(), p + 0.5 * eps * self.last


class Splitting:
    """Half kick, drift, half kick, with one array for the force, which is evaluated after each drift.

    ``first``: it is also evaluated before the first kick, where the array has no values, or those of the last call.
    """

    def __init__(self, first):
        self.first, self.forces = first, None

    def step(self, q, p, eps, n):
        if self.first or self.forces is None:
            self.forces = force(q) if self.first else np.zeros_like(q)
        for _ in range(n):
            p = p + 0.5 * eps * self.forces
            q = q + eps * p
            self.forces = force(q)
            p = p + 0.5 * eps * self.forces
        return q, p


def friction(q, p, eps, n):
    q, p = leapfrog(q, p, eps, n)
    return q, p * (1.0 - 1e-6) ** n


def clipped(q):
    """Force of bounded length; correct, because it depends on q only, although it is not a gradient."""
    f = force(q)
    return f / np.maximum(1.0, np.sqrt((f * f).sum()) / 1.5)


def two_solutions(q, p, eps, n):
    """Velocity Verlet with the final force evaluated at a predicted position."""
    for _ in range(n):
        f = force(q)
        predicted = q + eps * p
        q = q + eps * p + 0.5 * eps * eps * f
        p = p + 0.5 * eps * (f + force(predicted))
    return q, p


def banana_missing_term(q):
    bend = q[1] - q[0] * q[0]
    return -np.array([q[0] - 4.0 * q[0] * bend, 4.0 * bend])


# ----------------------------------------------------------------------------------------------- correct, but unusual


def verlet_turned(q, p, eps, n):
    """Leapfrog that returns -p, so that it is its own inverse."""
    q, p = leapfrog(q, p, eps, n)
    return q, -p


def position_verlet(q, p, eps):
    q = q + 0.5 * eps * p
    p = p + eps * force(q)
    return q + 0.5 * eps * p, p


def single(q, p, eps, n):
    q, p, eps = q.astype(np.float32), p.astype(np.float32), np.float32(eps)
    for _ in range(n):
        p = p + np.float32(0.5) * eps * force(q)
        q = q + eps * p
        p = p + np.float32(0.5) * eps * force(q)
    return q, p


def jittered(draws, q, p, eps):
    eps = eps * (0.9 + 0.2 * draws.uniform())
    p = p + 0.5 * eps * force(q)
    q = q + eps * p
    return q, p + 0.5 * eps * force(q)


def with_failures(q, p, eps):
    """Implicit step that reports whether it converged."""
    q, p = leapfrog(q, p, eps, 1)
    return q, p, bool(np.abs(q).max() < 20.0)


# ------------------------------------------------------------------------------------------------ implicit, G(q) = 1 + q^2


def solved(f, x, tolerance=1e-13, most=200):
    for _ in range(most):
        new = f(x)
        if np.abs(new - x).max() < tolerance:
            return new
        x = new
    return np.full_like(x, np.nan)


def generalised(q, p, eps, slope=curved_q, last=None):
    """Generalised leapfrog; ``last``: the position of the last kick, if it is not the end."""
    half = solved(lambda x: p - eps / 2 * slope(q, x), p)
    v = curved_p(q, half)
    new = solved(lambda x: q + eps / 2 * (v + curved_p(x, half)), q)
    return new, half - eps / 2 * slope(new if last is None else last, half)


def last_kick_at_old(q, p, eps):  # P03
    return generalised(q, p, eps, last=q)


def end_velocity(q, p, eps):  # P04
    half = solved(lambda x: p - eps / 2 * curved_q(q, x), p)
    new = solved(lambda x: q + eps * curved_p(x, half), q)
    return new, half - eps / 2 * curved_q(new, half)


def explicit_curved(q, p, eps):
    """Explicit leapfrog for H that is not separable."""
    p = p - eps / 2 * curved_q(q, p)
    q = q + eps * curved_p(q, p)
    return q, p - eps / 2 * curved_q(q, p)


def few_iterations(q, p, eps):
    half = p
    for _ in range(4):
        half = p - eps / 2 * curved_q(q, half)
    new, v = q, curved_p(q, half)
    for _ in range(4):
        new = q + eps / 2 * (v + curved_p(new, half))
    return new, half - eps / 2 * curved_q(new, half)


def midpoint(tolerance, most, give_up, velocity=curved_p, slope=curved_q):
    """The implicit midpoint rule; with ``give_up``, return NaN if the iteration does not converge."""

    def step(q, p, eps):
        a, b = q, p
        for _ in range(most):
            c, d = 0.5 * (q + a), 0.5 * (p + b)
            with np.errstate(all="ignore"):
                x, y = q + eps * velocity(c, d), p - eps * slope(c, d)
            change = max(abs(x - a).max(), abs(y - b).max())
            a, b = x, y
            if change < tolerance:
                return a, b
        return (a * np.nan, b * np.nan) if give_up else (a, b)

    return step


def oscillator_midpoint(most, give_up):
    """Return the same step for an oscillator of frequency one; its iteration converges for eps < 2."""
    return midpoint(1e-12, most, give_up, lambda q, p: p, lambda q, p: q)


def trapezoidal(q, p, eps):
    z, d = np.concatenate([q, p]), len(q)

    def field(z):
        return np.concatenate([curved_p(z[:d], z[d:]), -curved_q(z[:d], z[d:])])

    new = solved(lambda x: z + eps / 2 * (field(z) + field(x)), z)
    return new[:d], new[d:]


def without_log_det(q, p, eps):
    """dH/dq without the derivative of log det G / 2."""
    return generalised(q, p, eps, lambda q, p: q - q * p * p / (1.0 + q * q) ** 2)


# --------------------------------------------------------------------------------- Tao's explicit integrator, two copies

BINDING = 3.0


def extended_energy(Q, P):
    """H(q, y) + H(x, p) + omega/2 (|q - x|^2 + |p - y|^2) with Q = (q, x), P = (p, y)."""
    q, x, p, y = Q[:1], Q[1:], P[:1], P[1:]
    return curved(q, y) + curved(x, p) + 0.5 * BINDING * (((q - x) ** 2).sum() + ((p - y) ** 2).sum())


def tao(angle):
    """Tao's method; ``angle(omega, eps)`` is the angle of the rotation of the coupling."""

    def step(Q, P, eps, n):
        q, x, p, y = Q[:1], Q[1:], P[:1], P[1:]
        c, s = np.cos(angle(BINDING, eps)), np.sin(angle(BINDING, eps))
        for _ in range(n):
            p, x = p - eps / 2 * curved_q(q, y), x + eps / 2 * curved_p(q, y)
            q, y = q + eps / 2 * curved_p(x, p), y - eps / 2 * curved_q(x, p)
            u, v, a, b = q + x, p + y, q - x, p - y
            a, b = c * a + s * b, c * b - s * a
            q, x, p, y = 0.5 * (u + a), 0.5 * (u - a), 0.5 * (v + b), 0.5 * (v - b)
            q, y = q + eps / 2 * curved_p(x, p), y - eps / 2 * curved_q(x, p)
            p, x = p - eps / 2 * curved_q(q, y), x + eps / 2 * curved_p(q, y)
        return np.concatenate([q, x]), np.concatenate([p, y])

    return step


# ---------------------------------------------------------------------------------------------------------- split steps


def piece(k, q, p, eps):
    """Exact flow of one term of H: the drift of one coordinate or the kick of one term of the potential."""
    q, p = q.copy(), p.copy()
    if k < len(q):
        q[k] = q[k] + eps * p[k]
    elif k < 2 * len(q):
        j = k - len(q)
        p[j] = p[j] - eps * (q[j] + q[j] ** 3)
    else:
        p[0], p[1] = p[0] - 0.5 * eps * q[1], p[1] - 0.5 * eps * q[0]
    return q, p


def fresh_order(draws, q, p, eps):
    for k in draws.permutation(2 * len(q) + 1):
        q, p = piece(k, q, p, eps)
    return q, p


def fresh_order_numpy(rng, q, p, eps):
    order = rng.permutation(3)  # drifts, then kicks of each coordinate, then the coupling, or in another order
    for k in order:
        for j in [(0, 1), (2, 3), (4,)][k]:
            q, p = piece(j, q, p, eps)
    return q, p


class OrderOfTheChain:  # P22
    def __init__(self):
        self.order = None

    def step(self, draws, q, p, eps):
        if self.order is None:
            self.order = draws.permutation(2 * len(q) + 1)
        for k in self.order:
            q, p = piece(k, q, p, eps)
        return q, p


def biased_direction(draws, q, p, eps):
    """Step that selects one direction three times as often as the other."""
    order = range(2 * len(q) + 1)
    for k in order if draws.flip(np.log(0.75)) else reversed(order):
        q, p = piece(k, q, p, eps)
    return q, p


# ------------------------------------------------------------------------------------- discontinuities, Laplace momenta


def cells(q):
    """Piecewise constant potential."""
    return 0.7 * np.abs(np.floor(q)).sum() + 0.4 * np.abs(np.floor(q[0]) - np.floor(q[1]))


def jump_energy(q, p):
    return cells(q) + np.abs(p).sum()


def laplace_step(returns):
    """Update the coordinates in order and in reverse order; ``returns``: decreases of the potential increase the momentum."""

    def move(k, q, p, eps):
        new = q.copy()
        new[k] = q[k] + eps * np.sign(p[k])
        rise = cells(new) - cells(q)
        p = p.copy()
        if abs(p[k]) > rise:
            if rise > 0 or returns:
                p[k] = p[k] - np.sign(p[k]) * rise
            return new, p
        p[k] = -p[k]
        return q, p

    def step(q, p, eps, n):
        for _ in range(n):
            for k in [*range(len(q)), *reversed(range(len(q)))]:
                q, p = move(k, q, p, 0.5 * eps)
        return q, p

    return step


def jumps(returns):
    return smooth(laplace_step(returns), jump_energy, eps=0.3, claims="energy reversible volume", tolerance=0.0)


# --------------------------------------------------------------------------------------------------------------- pairs


def smooth(step, H=energy, **more):
    return lambda seed: examine(step, H, seed, **more)


def stateful(make, **more):
    """Examine the method ``step`` of ``make()``, which has a new state for each report."""
    return lambda seed: examine(make().step, energy, seed, **more)


def bent(step, **more):
    return lambda seed: curved_check(step, seed, **more)


FOURTH = "symplectic reversible order=4"
FIRST = "symplectic reversible order=1"

PAIRS: list[Pair] = [
    Pair(
        "P01", "leapfrog: full kick at the start, none at the end", smooth(one_kick), smooth(leapfrog), ("reversible",)
    ),
    Pair(
        "P02",
        "the drift of a leapfrog step uses eps/2",
        smooth(oscillator_step(0.5), oscillator),
        smooth(oscillator_step(1.0), oscillator),
        ("order", "shadow energy"),
        "inefficient",
    ),
    Pair(
        "P03",
        "generalised leapfrog: last kick at the old position",
        bent(last_kick_at_old),
        bent(generalised),
        ("reversible",),
    ),
    Pair(
        "P04",
        "generalised leapfrog: velocity of the end point only",
        bent(end_velocity),
        bent(generalised),
        ("reversible",),
    ),
    Pair(
        "P05",
        "Yoshida's coefficients rounded to six digits",
        smooth(ROUNDED, claims=FOURTH),
        smooth(YOSHIDA, claims=FOURTH),
        ("small step",),
        "inefficient",
    ),
    Pair(
        "integrator-digits",
        "splitting of order 4: digits of a coefficient exchanged",
        smooth(five_stages(b2=0.6822635335719091), claims=FOURTH),
        smooth(five_stages(), claims=FOURTH),
        ("small step",),
        "inefficient",
    ),
    Pair(
        "integrator-coefficient",
        "splitting of order 4: a coefficient without its sign",
        smooth(five_stages(a2=0.03230286765269967), claims=FOURTH),
        smooth(five_stages(), claims=FOURTH),
        ("order",),
        "inefficient",
    ),
    Pair(
        "integrator-palindrome",
        "splitting of three stages that is not a palindrome",
        smooth(NOT_PALINDROMIC),
        smooth(THREE_STAGES),
        ("reversible",),
    ),
    Pair(
        "integrator-drifts",
        "splitting of three stages whose drifts do not add up to 1",
        smooth(DRIFTS_TOO_LONG),
        smooth(THREE_STAGES),
        ("order",),
        "inefficient",
    ),
    Pair(
        "P06",
        "the last iterate of the solver is used at its iteration limit",
        bent(midpoint(1e-12, 60, False), tolerance=1e-12, eps=0.5),
        bent(midpoint(1e-12, 60, True), tolerance=1e-12, eps=0.5),
        ("solver failure", "reversible"),
    ),
    Pair(
        "integrator-unreported",
        "solver reaches its iteration limit at twice the step only",
        smooth(oscillator_midpoint(100, False), oscillator, tolerance=1e-12, eps=1.04),
        smooth(oscillator_midpoint(100, True), oscillator, tolerance=1e-12, eps=1.04),
        ("solver failure",),
        "inefficient",
    ),
    Pair(
        "integrator-long-steps",
        "drift of eps/2, at steps of many periods",
        smooth(cayley(0.5), oscillator, eps=20.0),
        smooth(cayley(1.0), oscillator, eps=20.0),
        ("order", "shadow energy", "elapsed time"),
        "inefficient",
    ),
    Pair(
        "P07",
        "Tao: binding angle omega eps",
        smooth(tao(lambda omega, eps: omega * eps), extended_energy),
        smooth(tao(lambda omega, eps: 2 * omega * eps), extended_energy),
        ("order", "energy"),
        "inefficient",
    ),
    Pair(
        "P22",
        "random order of blocks drawn once",
        stateful(OrderOfTheChain, claims=FIRST),
        smooth(fresh_order, claims=FIRST),
        ("reversible", "deterministic"),
    ),
    Pair("P23", "a downhill jump does not return kinetic energy", jumps(False), jumps(True), ("energy", "reversible")),
    Pair(
        "integrator-rk4",
        "Runge-Kutta claimed symplectic",
        smooth(runge_kutta, claims=FOURTH),
        smooth(YOSHIDA, claims=FOURTH),
        ("symplectic", "reversible"),
    ),
    Pair(
        "integrator-explicit-midpoint",
        "explicit midpoint",
        smooth(explicit_midpoint),
        smooth(position_verlet),
        ("symplectic",),
    ),
    Pair(
        "integrator-mass",
        "mass instead of its inverse",
        smooth(mass_for_inverse, dense_energy),
        smooth(dense_leapfrog, dense_energy),
        ("order",),
        "inefficient",
    ),
    Pair("integrator-sign", "sign of the gradient", smooth(uphill), smooth(verlet_turned), ("order",), "inefficient"),
    Pair(
        "integrator-twice", "advances twice the step", smooth(twice), smooth(leapfrog), ("elapsed time",), "inefficient"
    ),
    Pair("integrator-squared", "eps squared", smooth(squared), smooth(with_failures), ("elapsed time",), "inefficient"),
    Pair(
        "integrator-turned",
        "momentum reversed between half steps",
        smooth(turned_between),
        smooth(verlet_turned),
        ("order",),
    ),
    Pair("integrator-n", "n ignored", smooth(deaf_to_n), smooth(leapfrog), ("composition",), "inefficient"),
    Pair(
        "integrator-inner-kicks",
        "half kicks inside",
        smooth(inner_half_kicks),
        smooth(leapfrog),
        ("composition",),
        "inefficient",
    ),
    Pair(
        "integrator-both-kicks",
        "both half kicks before the drift",
        smooth(drift_after_both),
        smooth(position_verlet),
        ("reversible",),
    ),
    Pair(
        "integrator-in-place",
        "changes the caller's arrays",
        smooth(in_place),
        smooth(leapfrog),
        ("inputs left alone",),
        "call failed",
    ),
    Pair(
        "integrator-stale",
        "force of the last call used again",
        stateful(lambda: Cached(False)),
        stateful(lambda: Cached(True)),
        ("deterministic",),
    ),
    Pair(
        "Molly.jl#203",
        "the first kick uses the array of the force before it is evaluated",
        stateful(lambda: Splitting(False)),
        stateful(lambda: Splitting(True)),
        ("deterministic",),
    ),
    Pair(
        "integrator-friction",
        "momentum loses a millionth per step",
        smooth(friction, tolerance=0.0),
        smooth(single),
        ("volume",),
    ),
    Pair(
        "integrator-clipped",
        "force bounded in length: not a gradient",
        smooth(kick_drift_kick(clipped)),
        smooth(jittered),
        ("symplectic",),
    ),
    Pair(
        "integrator-predicted",
        "last force at a predicted position",
        smooth(two_solutions),
        smooth(leapfrog),
        ("reversible",),
    ),
    Pair(
        "integrator-term",
        "a factor 2 missing in one term of the force",
        smooth(kick_drift_kick(banana_missing_term), banana),
        smooth(kick_drift_kick(banana_force), banana),
        ("order",),
    ),
    Pair(
        "integrator-explicit-curved",
        "leapfrog on a non-separable H",
        bent(explicit_curved),
        bent(generalised),
        ("symplectic",),
    ),
    Pair(
        "integrator-few-iterations",
        "four iterations without a convergence test",
        bent(few_iterations, tolerance=None),
        bent(midpoint(1e-9, 100, True), tolerance=1e-9),
        ("reversible", "symplectic"),
    ),
    Pair(
        "integrator-trapezoidal",
        "trapezoidal rule claimed symplectic",
        bent(trapezoidal),
        bent(midpoint(1e-13, 100, True)),
        ("symplectic",),
    ),
    Pair(
        "integrator-log-det",
        "force without log det G",
        bent(without_log_det),
        bent(generalised),
        ("order",),
        "inefficient",
    ),
    Pair(
        "integrator-biased",
        "a direction more probable than its reverse",
        smooth(biased_direction, claims=FIRST),
        smooth(fresh_order_numpy, claims=FIRST),
        ("reversible",),
    ),
]

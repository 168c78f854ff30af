"""Planted bugs of leaps that may be undefined, or that change the volume, with corrected counterparts, in plain NumPy.

The names of the pairs are those of the public reports: a repository and its issue, or a commit.
"""

from __future__ import annotations

import math

import numpy as np

import refhmc.check as rc

from . import Pair

# -------------------------------------------------------------------------------------------------- microcanonical steps


def slope(q):
    """Gradient of L = sum q_i^2 (1 + i/2) / 2 + q_0 q_1 / 3, minus the log density."""
    g = q * (1 + 0.5 * np.arange(len(q)))
    g[0], g[1] = g[0] + q[1] / 3, g[1] + q[0] / 3
    return g


def microcanonical(bug="", eps=0.7):
    """Return half a velocity update, a position update, and half a velocity update; u is a unit vector.

    With e = -g/|g| and delta = eps |g| / (d - 1), Robnik and others (2023) have

        u' = (u + e (sinh delta + (e.u) (cosh delta - 1))) / (cosh delta + (e.u) sinh delta)
        log |det du'/du| = -(d - 1) log(cosh delta + (e.u) sinh delta)
    """

    def velocity(q, u, eps):
        g, d = slope(q), len(q)
        size = np.linalg.norm(g)
        e, delta = -g / size, eps * size / (d - 1)
        along = e @ u
        stretch = np.cosh(delta) + along * np.sinh(delta)
        new = u + e * (np.sinh(delta) + along * (np.cosh(delta) - 1))
        log_det = -(d - 1) * np.log(stretch)
        if bug == "d - 1 twice":
            log_det = (d - 1) * log_det
        if bug == "no tangential term":  # u' with zeta = exp(-delta) is proportional to e (...) + 2 zeta u
            new = new - u
        if bug == "d":
            log_det = log_det * d / (d - 1)
        return (new if bug == "not normalised" else new / np.linalg.norm(new)), log_det

    def leap(q, u):
        u, first = velocity(q, u, 0.5 * eps)
        q = q + eps * u
        u, second = velocity(q, u, 0.5 * eps)
        return q, u, first + second

    return leap


# ------------------------------------------------------------------------------------------------------ Lagrangian steps


def lagrangian(bug="", eps=0.3):
    """Return the explicit step of Lan and others (2015, section 3.3) for G = 1 + f f', f the gradient of a function h.

    Omega(v)_ij = sum_k Gamma^i_kj v^k = (G^-1 f)_i (h'' v)_j, and each half of the velocity's step has

        (1 + eps/2 Omega(v)) v' = v - eps/2 G^-1 dphi
        |det dv'/dv| = |det(1 - eps/2 Omega(v')) / det(1 + eps/2 Omega(v))|
    """

    def half(q, v):
        f, curvature = np.sin(q) + 0.3 * q.sum(), np.diag(np.cos(q)) + 0.3
        raised = f / (1 + f @ f)
        force = q - f * (f @ q) / (1 + f @ f)

        def matrix(v, sign):
            return np.eye(len(q)) + sign * 0.5 * eps * np.outer(raised, curvature @ v)

        new = np.linalg.solve(matrix(v, 1), v - 0.5 * eps * force)
        ahead, behind = (np.linalg.slogdet(x)[1] for x in (matrix(new, -1), matrix(v, 1)))
        return new, (ahead + behind if bug == "sign" else behind - ahead if bug == "inverse" else ahead - behind)

    def leap(q, v):
        v, first = half(q, v)
        q = q + eps * v
        v, second = half(q, v)
        return q, v, 0.0 if bug == "volume" else first + second

    return leap


# ---------------------------------------------------------------------------------------------------------- macro steps


def funnel_energy(q, p):
    return 0.5 * (q[0] ** 2 / 9 + q[1] ** 2 * np.exp(-q[0]) + q[0] + p @ p)


def funnel_force(q):
    return np.array([-q[0] / 9 + 0.5 * q[1] ** 2 * np.exp(-q[0]) - 0.5, -q[1] * np.exp(-q[0])])


LEAST, HALVINGS = 2, 4  # micro steps of the coarsest macro step, and how often it may be halved


def micro(q, p, eps, count):
    """Return the end of some leapfrog steps, and the range of their energies."""
    energies = [funnel_energy(q, p)]
    for _ in range(count):
        p = p + 0.5 * eps * funnel_force(q)
        q = q + eps * p
        p = p + 0.5 * eps * funnel_force(q)
        energies.append(funnel_energy(q, p))
    return q, p, np.ptp(energies) if np.isfinite(energies).all() else math.inf


def macro_step(bug="", eps=1.6, tolerance=0.3):
    """Return a macro step of 2, 4, 8, 16 or 32 micro steps: the smallest number whose energy error is below a tolerance.

    It is defined if the same number would be chosen from its end.
    """

    def chosen(q, p, least, halvings):
        """Return the smallest number with a small energy error, and its end; None if there is none."""
        for level in range(halvings + 1):
            count = least * 2**level
            *end, error = micro(q, p, eps / count, count)
            if error <= tolerance:
                return count, *end
        return None

    def leap(q, p):
        found = chosen(q, p, 1 if bug == "least ignored" else LEAST, HALVINGS)
        if found is None:
            return None
        count, new_q, new_p = found
        settings = {"reverse below least": (1, 5), "swapped": (HALVINGS, LEAST), "least ignored": (1, HALVINGS)}
        back = chosen(new_q, -new_p, *settings.get(bug, (LEAST, HALVINGS)))
        if bug != "cut short" and (back is None or back[0] != count):
            return None
        return new_q, new_p, count

    return leap


# -------------------------------------------------------------------------------------------------------------- the pairs


def pair(id, what, make, bug, expected, severity="wrong distribution", **more):
    def report(bug, seed):
        return rc.leap(make(bug), seed=seed, name=make.__name__, **more)

    return Pair(id, what, lambda seed: report(bug, seed), lambda seed: report("", seed), expected, severity)


VELOCITY = {"dim": 4, "returns": ("q", "p", "log_det"), "sphere": True, "n_points": 40}
LAGRANGIAN = {"dim": 3, "returns": ("q", "p", "log_det"), "n_points": 40}
MACRO = {"dim": 2, "returns": ("q", "p", "choice"), "choices": (2, 4, 8, 16, 32), "n_points": 400}
JACOBIAN = ("declared Jacobian",)
PAIRS = [
    pair(
        "blackjax#625",
        "the change of the kinetic energy is multiplied by d - 1 twice",
        microcanonical,
        "d - 1 twice",
        JACOBIAN,
        **VELOCITY,
    ),
    pair("sphere d", "d instead of d - 1 in the log Jacobian", microcanonical, "d", JACOBIAN, **VELOCITY),
    pair(
        "mcmc-demo#18",
        "the term 2 zeta u is missing",
        microcanonical,
        "no tangential term",
        ("reversible", *JACOBIAN),
        **VELOCITY,
    ),
    pair(
        "mcmc-demo#23",
        "the velocity is not normalised",
        microcanonical,
        "not normalised",
        ("on the sphere",),
        **VELOCITY,
    ),
    pair("LMC sign", "a factor of the determinant has the wrong sign", lagrangian, "sign", JACOBIAN, **LAGRANGIAN),
    pair("LMC inverse", "the inverse determinant", lagrangian, "inverse", JACOBIAN, **LAGRANGIAN),
    pair("LMC volume", "no determinant", lagrangian, "volume", JACOBIAN, **LAGRANGIAN),
    pair(
        "walnuts#17",
        "the check of the reverse choice is cut short",
        macro_step,
        "cut short",
        ("same choice", "reverse defined"),
        **MACRO,
    ),
    pair(
        "walnutpie 7139781",
        "the reverse search goes below the least number of micro steps",
        macro_step,
        "reverse below least",
        ("reverse defined",),
        **MACRO,
    ),
    pair(
        "walnutpie#46",
        "the reverse search exchanges the number of halvings and the least number of micro steps",
        macro_step,
        "swapped",
        ("reverse defined",),
        **MACRO,
    ),
    pair(
        "walnutpie#57",
        "the least number of micro steps is ignored",
        macro_step,
        "least ignored",
        ("choices",),
        severity="inefficient",
        **MACRO,
    ),
]

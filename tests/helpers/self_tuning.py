"""Independent implementations of GIST and AutoStep for one state, from the papers, and what their tests share."""

from __future__ import annotations

import math

import numpy as np

import refhmc
from tests.helpers.array_cases import CASES, QUICK, begin
from tests.helpers.kept_momenta import leapfrog

EXPLICIT = [name for name in CASES if name.startswith(("leapfrog", "yoshida", "bcss", "omelyan", "block"))]
QUICK_EXPLICIT = [name for name in QUICK if name in EXPLICIT]


def energy(model, inverse_mass, q, p):
    return -model.log_density(q) + 0.5 * np.sum(p * p * inverse_mass)


def steps_to_turn(model, inverse_mass, q, p, eps, most):
    """The first k for which q_k moves back towards q, each state computed from the start."""
    H0 = energy(model, inverse_mass, q, p)
    for k in range(1, most + 1):
        q_k, p_k, _, H = leapfrog(model, inverse_mass, q, p, eps, k)
        onward = np.dot(q_k - q, p_k) > 0
        if not onward or not abs(H - H0) <= 1000:
            return k
    return most


def gist_probabilities(model, inverse_mass, q, p, eps, fraction, most):
    """By L: its probability, whether it is possible at the other end, the acceptance probability, and the proposal."""
    tau = steps_to_turn(model, inverse_mass, q, p, eps, most)
    found = {}
    for L in range(max(1, int(fraction * tau)), tau + 1):
        new, end, H0, H = leapfrog(model, inverse_mass, q, p, eps, L)
        tau_there = steps_to_turn(model, inverse_mass, new, -end, eps, most)
        here, there = (range(max(1, int(fraction * t)), t + 1) for t in (tau, tau_there))
        a = min(1.0, math.exp(min(H0 - H, 700.0)) * len(here) / len(there)) if L in there and math.isfinite(H) else 0.0
        found[L] = 1 / len(here), L in there and math.isfinite(H), a, new
    return found


def exponent(model, inverse_mass, q, p, eps, n, low, high, most, symmetric):
    """The exponent of AutoStep, as in Algorithm 2, with logarithms."""

    def log_ratio(j):
        _, _, H0, H = leapfrog(model, inverse_mass, q, p, eps * 2.0**j, n)
        if not math.isfinite(H):
            return -math.inf
        return -abs(H - H0) if symmetric else H0 - H

    direction = 1 if min(0, log_ratio(0)) > math.log(high) else -1 if log_ratio(0) < math.log(low) else 0
    j = 0
    while direction and abs(j) < most:
        j += direction
        if direction > 0 and not min(0, log_ratio(j)) > math.log(high):
            return j - 1
        if direction < 0 and not log_ratio(j) < math.log(low):
            return j
    return j


def autostep_probability(model, inverse_mass, q, p, eps, n, low, high, most, symmetric):
    """The exponent, whether it is the same at the other end, the acceptance probability, and the proposal."""
    options = (eps, n, low, high, most, symmetric)
    j = exponent(model, inverse_mass, q, p, *options)
    new, end, H0, H = leapfrog(model, inverse_mass, q, p, eps * 2.0**j, n)
    if not math.isfinite(H) or exponent(model, inverse_mass, new, -end, *options) != j:
        return j, False, 0.0, new
    return j, True, math.exp(min(0.0, H0 - H)), new


def assert_implementations_agree(name, kernel_of, on_arrays, n_uniforms, near=1e-7):
    """The compiled kernel, many chains on arrays and the array implementation, on the same numbers; returns the statistics.

    Counts and decisions are equal; positions, energies and probabilities agree to ``near``, relative to 1 + their size.
    """
    model, metric, integrator, eps, H, q, normals, p, uniforms, _ = begin(name)
    kernel = kernel_of(step_size=eps, metric=metric, integrator=integrator)
    uniforms = uniforms[:, :n_uniforms]
    with np.errstate(all="ignore"):
        many = refhmc.array_api.transitions(model, kernel, q, normals, uniforms)
        one = on_arrays(H, integrator.on_arrays(), q, p, uniforms, step_size=eps)
    for k in range(len(q)):
        core = refhmc.transition(model, kernel, q[k], normals=normals[k], uniforms=uniforms[k])
        assert core.uniforms_used == many.uniforms_used[k] == n_uniforms
        for q_there in (many.q[k], one.q[k]):
            assert np.abs(core.q - q_there).max() <= near * (1 + np.abs(core.q).max())
        for a in (many.probabilities[k, -1], one.probability[k]):
            assert abs(core.probabilities[-1] - a) <= near
        assert core.stats["is_reversible"] == one.is_reversible[k]
        for key, value in core.stats.items():
            if key not in ("metric_cond", *COUNTED_TOGETHER):
                other = many.stats[key][k]
                assert value == other or abs(value - other) <= near * (1 + abs(value)), (k, key, value, other)
    return many.stats


COUNTED_TOGETHER = ("n_gradient_evaluations", "n_metric_evaluations", "n_contraction_evaluations", "solver_iterations")

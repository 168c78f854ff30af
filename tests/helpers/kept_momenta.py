"""What the tests of kernels that keep their momentum share: a leapfrog, and both implementations on the same numbers."""

from __future__ import annotations

import numpy as np

import refhmc


def leapfrog(model, inverse_mass, q, p, eps, n):
    """n steps from (q, p) with a diagonal M^-1, from the definition, and H at both ends."""

    def energy(q, p):
        return -model.log_density(q) + 0.5 * np.sum(p * p * inverse_mass)

    H0 = energy(q, p)
    for _ in range(n):
        p = p + eps / 2 * model.gradient(q)
        q = q + eps * inverse_mass * p
        p = p + eps / 2 * model.gradient(q)
    return q, p, H0, energy(q, p)


def assert_arrays_are_compiled(model, kernel, q, p, normals, uniforms, slice_variable=None, near=1e-9):
    """One transition of each row by the arrays of many chains and by the compiled kernel; returns the former.

    Counts and decisions are equal; positions, momenta and energies agree to ``near``, relative to 1 + their size.
    """
    kept = {} if p is None else {"momentum": p}
    kept |= {} if slice_variable is None else {"slice_variable": slice_variable}
    with np.errstate(all="ignore"):
        mine = refhmc.array_api.transitions(model, kernel, q, normals, uniforms, **kept)
    for k in range(len(q)):
        given = {name: values[k] for name, values in kept.items()}
        core = refhmc.transition(model, kernel, q[k], normals=normals[k], uniforms=uniforms[k], **given)
        assert core.uniforms_used == mine.uniforms_used[k]
        for one, other in ((core.q, mine.q[k]), (core.kept_momentum, mine.momentum[k])):
            assert np.abs(one - other).max() <= near * (1 + np.abs(one).max())
        for name, value in core.stats.items():
            if name not in ("solver_residual", "reversibility_error", *COUNTED_TOGETHER):
                other = mine.stats[name][k]
                assert value == other or abs(value - other) <= near * (1 + abs(value)), (k, name, value, other)
    return mine


COUNTED_TOGETHER = ("n_gradient_evaluations", "n_metric_evaluations", "n_contraction_evaluations", "solver_iterations")

"""Transitions with a refreshment of the momentum before each step but the first, or before each, randomness given.

malt     n steps of the leapfrog. Before each but the first, p <- a p + sqrt(1 - a^2) M^1/2 z with the next row z of normals.
         The end is accepted if u < min(1, exp(-E)), where E is the sum over the steps of the change of H in the step.
mclmc    n steps of the isokinetic dynamics (see :mod:`validation.vectors.kept_momenta`), all accepted. Before each, M^1/2 z is
         multiplied by a number, so that p' M^-1 p = d, and then a p + sqrt(1 - a^2) M^1/2 z is. E is the sum over the steps of
         the change of -L, plus K.
"""

from __future__ import annotations

from mpmath import mp, mpf

from validation.vectors.kept_momenta import energy, isokinetic_step, moved, refreshed, refreshed_velocity


def malt(on, args, q, p, normals, uniforms, e):
    """The fields of the record, and the margin."""
    a, z, error = on.noise(mpf(args["persistence"])), (q, p), mpf(0)
    for i in range(args["n"]):
        if i > 0:
            z = z[0], refreshed(on, a, z[1], normals[i - 1])
        z, change = moved(on, z, e, 1)
        error += change
    probability = min(mpf(1), mp.exp(-error))
    accepted = uniforms[0] < probability
    out = {"q": z[0] if accepted else q, "accepted": int(accepted), "acceptance_rate": probability}
    return {**out, "energy_error": error, "uniforms_used": 1}, abs(uniforms[0] - probability)


def mclmc(on, args, q, p, normals, e):
    """The fields of the record."""
    a, error, zero = on.noise(mpf(args["persistence"])), mpf(0), [mpf(0)] * len(q)
    for z in normals:
        p, before = refreshed_velocity(on, a, q, p, z), energy(on, (q, zero))
        q, p, K = isokinetic_step(on, args["integrator"], q, p, e)
        error += energy(on, (q, zero)) - before + K
    return {"q": q, "p": p, "energy_error": error, "uniforms_used": 0}

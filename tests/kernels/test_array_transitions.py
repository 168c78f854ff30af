"""The kernels' array implementations against the compiled kernels, transition by transition on recorded random numbers.

Trees, decisions and counts are equal. Positions agree to 1e-12 kappa, where kappa is the condition of the steps that lead there
(``tests/helpers/array_texts.py``), and energies, from which the probabilities are computed, to 1e-9 (measured: 1e-12). DHMC's
map has no derivative across a jump: its positions agree to 1e-12 (1 + |q|). A decision could differ if a uniform or a product
rho . v were within rounding of its limit, which does not occur here.
"""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.metrics import Diagonal
from refhmc.numerics import batched
from tests.helpers.array_cases import CASES, CHAINS, QUICK, begin
from tests.helpers.array_texts import condition
from tests.helpers.sweeps import representatives


def limits(T, step, q, p, eps, n, copies):
    """1e-12 kappa of the position after n steps (n < 0: backwards)."""

    def steps(z):
        z = batched.split(z) * copies
        for _ in range(abs(n)):
            z = step(T, *z, eps if n > 0 else -eps)
        return batched.join(z[0], z[1])

    return 1e-12 * condition(steps, batched.join(q, p))[: q.shape[-1]]


@pytest.mark.parametrize("name", representatives(CASES, QUICK))
def test_nuts(name):
    model, metric, integrator, eps, T, q, normals, p, uniforms, copies = begin(name)
    step, seen = integrator.on_arrays(), set()
    kernel = refhmc.NUTS(step_size=eps, max_treedepth=5, metric=metric, integrator=integrator)
    for k in range(CHAINS):
        with np.errstate(all="ignore"):
            mine = refhmc.array_api.nuts(
                T, step, q[k], p[k], uniforms[k], step_size=eps, max_treedepth=5, copies=copies
            )
        core = refhmc.transition(model, kernel, q[k], normals=normals[k], uniforms=uniforms[k])
        for key in ("index_in_trajectory", "tree_depth", "n_steps"):
            assert getattr(mine, key) == core.stats[key], key
        assert mine.uniforms_used == core.uniforms_used
        assert (mine.ended == "full") == core.stats["reached_max_treedepth"]
        assert (mine.ended in ("diverged", "no energy")) == (core.outcome not in ("accepted", "rejected"))
        assert abs(mine.acceptance_rate - core.stats["acceptance_rate"]) < 1e-9
        assert abs(mine.energy_error - core.stats["energy_error"]) < 1e-9
        away = np.abs(mine.q - core.q)
        assert (away <= limits(T, step, q[k], p[k], eps, mine.index_in_trajectory, copies)).all()
        seen.add(mine.ended)
    wanted = {"leapfrog, far too large": "diverged", "leapfrog, small": "full", "generalized, too large": "no energy"}
    assert wanted.get(name, "turned") in seen


@pytest.mark.parametrize("name", representatives(CASES, QUICK))
def test_hmc_many_chains(name):
    model, metric, integrator, eps, T, q, normals, p, uniforms, copies = begin(name)
    step, options = integrator.on_arrays(), {"step_size": eps, "n_steps": 5, "step_jitter": 0.2, "length_jitter": 0.6}
    with np.errstate(all="ignore"):
        mine = refhmc.array_api.hmc(T, step, q, p, uniforms, copies=copies, **options)
        alone = refhmc.array_api.hmc(T, step, q[3], p[3], uniforms[3], copies=copies, **options)
    kernel = refhmc.HMC(metric=metric, integrator=integrator, **options)
    for k in range(CHAINS):
        core = refhmc.transition(model, kernel, q[k], normals=normals[k], uniforms=uniforms[k])
        assert core.uniforms_used == 3
        assert mine.is_accepted[k] == core.stats["is_accepted"]
        assert mine.n_steps[k] == core.stats["n_steps"]
        assert abs(mine.acceptance_rate[k] - core.stats["acceptance_rate"]) < 1e-9
        jittered = eps * (1 + 0.2 * (2 * uniforms[k, 0] - 1))
        n = int(mine.n_steps[k]) if mine.is_accepted[k] else 0
        assert (np.abs(mine.q[k] - core.q) <= limits(T, step, q[k], p[k], jittered, n, copies)).all()
    assert len(set(mine.n_steps)) > 1
    for together, one in zip(mine, alone, strict=True):
        assert np.allclose(together[3], one, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_hmc_without_jitter_asks_for_one_uniform():
    model, metric, _, eps, T, q, normals, p, uniforms, _ = begin("leapfrog")
    mine = refhmc.array_api.hmc(T, refhmc.array_api.leapfrog, q, p, uniforms[:, :1], step_size=eps, n_steps=3)
    kernel = refhmc.HMC(step_size=eps, n_steps=3, metric=metric)
    for k in range(CHAINS):
        core = refhmc.transition(model, kernel, q[k], normals=normals[k], uniforms=uniforms[k, :1])
        assert core.uniforms_used == 1
        assert mine.is_accepted[k] == core.stats["is_accepted"]
        assert np.abs(mine.q[k] - core.q).max() < 1e-12


JUMPING = {
    "change points": (lambda: refhmc.models.ChangePoint(changes=2), 0.03),
    "Jolly-Seber": (refhmc.models.JollySeber, 0.1),
    "all coordinates": (refhmc.models.PACBayesClassifier, 0.2),
    "none": (lambda: refhmc.models.Funnel(3), 0.3),
}


@pytest.mark.parametrize("jitters", [{}, {"step_jitter": 0.2, "length_jitter": 0.5}], ids=["fixed", "jittered"])
@pytest.mark.parametrize("name", representatives(JUMPING, ["change points"]))
def test_dhmc_many_chains(name, jitters):
    make, scale = JUMPING[name]
    model, rng = make(), np.random.default_rng(5)
    metric = Diagonal((scale * rng.uniform(0.5, 1.5, model.dim)) ** 2)
    T = refhmc.array_api.discontinuous_hamiltonian(model, metric)
    start = model.initial if model.initial is not None else np.zeros(model.dim)
    normals, uniforms = rng.standard_normal((4, model.dim)), rng.random((4, 400))
    q, options = (
        start + 0.0 * normals,
        {"step_size": 0.5, "n_steps": 6, "step_jitter": 0.0, "length_jitter": 0.0, **jitters},
    )
    p = T.draw_momentum(q, normals)
    mine = refhmc.array_api.dhmc(T, q, p, uniforms, **options)
    H = refhmc.DiscontinuousHamiltonian(model, metric)
    for k in range(4):
        assert np.allclose(p[k], H._draw(q[k], normals[k]), rtol=1e-14, atol=0)
        assert np.allclose(T.inverse_product(q, p)[k], H.grad_p(q[k], p[k]), rtol=1e-14, atol=0)
        core = refhmc.transition(
            model, refhmc.DHMC(metric=metric, **options), q[k], normals=normals[k], uniforms=uniforms[k]
        )
        a_step = max(len(model.discontinuous) - 1, 0)
        assert core.uniforms_used == len(jitters) + a_step * mine.n_steps[k] + 1
        assert mine.is_accepted[k] == core.stats["is_accepted"]
        assert mine.n_steps[k] == core.stats["n_steps"]
        assert abs(mine.acceptance_rate[k] - core.stats["acceptance_rate"]) < 1e-9
        assert (np.abs(mine.q[k] - core.q) <= 1e-12 * (1 + np.abs(core.q))).all()
    assert (mine.q != q).any()

"""The array implementations use only the array API: in another namespace they give the same numbers as on NumPy.

``array-api-strict`` rejects whatever the standard does not have; JAX has arrays that cannot be written to. Each is tested
if it is installed.
"""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog, ImplicitMidpoint, Leapfrog, ProjectedTao, Suzuki
from refhmc.metrics import (
    Dense,
    Diagonal,
    DiagonalOuterProductSoftAbs,
    DiagonalSoftAbs,
    Fisher,
    OuterProductSoftAbs,
    SoftAbs,
    Tridiagonal,
)
from refhmc.numerics import batched
from tests.helpers.sweeps import every

METRICS = [
    Diagonal([0.5, 0.7, 1.0]),
    Dense([[1.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 0.5]]),
    Tridiagonal([2.0, 2.0, 1.0], [0.5, -0.5]),
    Fisher(),
    SoftAbs(alpha=1.0),
    DiagonalSoftAbs(alpha=1.0),
    OuterProductSoftAbs(alpha=0.1),
    OuterProductSoftAbs(alpha=0.01, as_published=True),
    DiagonalOuterProductSoftAbs(alpha=0.1),
]
INTEGRATORS = [
    Leapfrog(),
    ImplicitMidpoint(),
    ImplicitMidpoint(variant="midpoint"),
    GeneralizedLeapfrog(),
    GeneralizedLeapfrog(solver="anderson"),
    ExplicitTao(omega=2.0),
    ProjectedTao(omega=0.5),
    Suzuki(ImplicitMidpoint()),
]


class Funnel:
    """Neal's funnel, of :mod:`refhmc.models.funnel`, as an array implementation."""

    discontinuous = (1, 2)

    def parts(self, q):
        xp = batched.namespace(q)
        e, S = xp.exp(q[..., :1]), xp.sum(q[..., 1:] ** 2, axis=-1)[..., None]
        return xp, e, S, xp.arange(q.shape[-1]) == 0

    def log_density(self, q):
        _, e, S, _ = self.parts(q)
        v = q[..., :1]
        return (-(v**2) / 18 + (q.shape[-1] - 1) / 2 * v - e * S / 2)[..., 0]

    def gradient(self, q):
        xp, e, S, first = self.parts(q)
        return xp.where(first, -q / 9 + (q.shape[-1] - 1) / 2 - e * S / 2, -e * q)

    def hessian(self, q):
        xp, e, S, first = self.parts(q)
        x = xp.where(first, 0.0, q)
        border = batched.outer(xp.where(first, 1.0, 0.0 * q), -e * x)
        return border + border.mT + batched.diagonal_matrix(xp.where(first, -1 / 9 - e * S / 2, -e))

    def hessian_contraction(self, q, M):
        xp, e, S, first = self.parts(q)
        x, M_v = xp.where(first, 0.0, q), M[..., 0, :]
        M_xx = xp.sum(xp.where(first, 0.0, xp.linalg.diagonal(M)), axis=-1)[..., None]
        along_v = -M_v[..., :1] * e * S / 2 - 2 * e * batched.dot(M_v, x)[..., None] - e * M_xx
        return xp.where(first, along_v, -M_v[..., :1] * e * q - 2 * e * M_v)

    def fisher(self, q):
        xp, e, _, first = self.parts(q)
        return batched.diagonal_matrix(xp.where(first, 1 / 9 + (q.shape[-1] - 1) / 2, e))

    def fisher_contraction(self, q, M):
        xp, e, _, first = self.parts(q)
        M_xx = xp.sum(xp.where(first, 0.0, xp.linalg.diagonal(M)), axis=-1)[..., None]
        return xp.where(first, e * M_xx, 0.0)


@pytest.fixture(params=["array_api_strict", "jax.numpy"])
def xp(request):
    module = pytest.importorskip(request.param)
    if request.param == "jax.numpy":
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
    return module


RNG = np.random.default_rng(2)
Q, NORMALS, UNIFORMS = 0.4 * RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3)), RNG.random((4, 40))


def same(theirs, mine):
    return np.allclose(np.asarray(theirs), mine, rtol=1e-12, atol=1e-12)


def test_the_funnel_is_the_models():
    model, text = refhmc.array_api.ModelOnArrays(refhmc.models.Funnel(2)), Funnel()
    M = NORMALS[:, :, None] * NORMALS[:, None, :]
    for name, extra in (("log_density", ()), ("gradient", ()), ("hessian", ()), ("fisher", ())):
        assert same(getattr(model, name)(Q, *extra), getattr(text, name)(Q, *extra)), name
    assert same(model.hessian_contraction(Q, M), text.hessian_contraction(Q, M))
    assert same(model.fisher_contraction(Q, M), text.fisher_contraction(Q, M))


@pytest.mark.parametrize("metric", every(2, METRICS), ids=lambda metric: type(metric).__name__)
def test_steps_and_hmc(xp, metric):
    H = refhmc.array_api.hamiltonian(Funnel(), metric)
    q, normals, uniforms = (xp.asarray(each) for each in (Q, NORMALS, UNIFORMS))
    p, P = H.draw_momentum(q, normals), H.draw_momentum(Q, NORMALS)
    assert same(p, P)
    assert same(H.mass(q), H.mass(Q))
    for integrator in INTEGRATORS:
        if metric.position_dependent and isinstance(integrator, Leapfrog):
            continue
        copies, step = 2 if isinstance(integrator, ExplicitTao) else 1, integrator.on_arrays()
        theirs, mine = step(H, *(q, p) * copies, 0.05), step(H, *(Q, P) * copies, 0.05)
        assert all(same(a, b) for a, b in zip(theirs, mine, strict=True))
        assert not np.isnan(mine[0]).any()
    options = {"step_size": 0.1, "n_steps": 3, "step_jitter": 0.1, "length_jitter": 0.5}
    step = refhmc.array_api.implicit_midpoint
    theirs = refhmc.array_api.hmc(H, step, q, p, uniforms, **options)
    assert all(
        same(a, b) for a, b in zip(theirs, refhmc.array_api.hmc(H, step, Q, P, UNIFORMS, **options), strict=True)
    )


def test_nuts_and_dhmc(xp):
    H = refhmc.array_api.hamiltonian(Funnel(), Diagonal([0.5, 0.7, 1.0]))
    q, normals, uniforms = (xp.asarray(each) for each in (Q, NORMALS, UNIFORMS))
    step = refhmc.array_api.leapfrog
    for k in range(4):
        theirs = refhmc.array_api.nuts(H, step, q[k, :], normals[k, :], uniforms[k, :], step_size=0.3, max_treedepth=3)
        mine = refhmc.array_api.nuts(H, step, Q[k], NORMALS[k], UNIFORMS[k], step_size=0.3, max_treedepth=3)
        assert same(theirs.q, mine.q)
        assert theirs.uniforms_used == mine.uniforms_used
    H = refhmc.array_api.discontinuous_hamiltonian(Funnel(), Diagonal([0.5, 0.7, 1.0]))
    p, P = H.draw_momentum(q, normals), H.draw_momentum(Q, NORMALS)
    assert same(p, P)
    options = {"step_size": 0.1, "n_steps": 5, "length_jitter": 0.5}
    theirs = refhmc.array_api.dhmc(H, q, p, uniforms, **options)
    assert all(same(a, b) for a, b in zip(theirs, refhmc.array_api.dhmc(H, Q, P, UNIFORMS, **options), strict=True))

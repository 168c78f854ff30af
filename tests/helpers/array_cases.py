"""Models, metrics and integrators on which the kernels' array implementations are compared with the compiled ones."""

from __future__ import annotations

import numpy as np

import refhmc
from refhmc.integrators import (
    BCSS,
    BlockLeapfrog,
    ExplicitTao,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    Omelyan,
    ProjectedTao,
    Yoshida,
)
from refhmc.metrics import Dense, Diagonal, Fisher, Identity, SoftAbs
from tests.helpers.hierarchical_cases import chain_metric, funnel_metric
from tests.helpers.riemannian_cases import model_of

TIGHT = {"tolerance": 1e-12, "max_iterations": 200, "solver": "fixed point", "reversibility_check": False}
# model, metric, integrator, step: gentle ones, and some at which energies blow up and solves fail.
CASES = {
    "leapfrog": ("funnel-3", Diagonal(0.7), Leapfrog(), 0.3),
    "leapfrog, far too large": ("funnel-3", Identity(), Leapfrog(), 1.5),
    "leapfrog, dense": ("banana", Dense([[0.3, -0.1], [-0.1, 0.4]]), Leapfrog(), 0.1),
    "leapfrog, small": ("gaussian-3", Identity(), Leapfrog(), 0.01),
    "yoshida": ("logistic", Identity(), Yoshida(Leapfrog()), 0.5),
    "midpoint on Fisher": ("banana", Fisher(), ImplicitMidpoint(**TIGHT), 0.1),
    "midpoint on SoftAbs": ("funnel-3", SoftAbs(alpha=1.0), ImplicitMidpoint(variant="midpoint", **TIGHT), 0.2),
    "generalized on Fisher": ("funnel-3", Fisher(), GeneralizedLeapfrog(**TIGHT), 0.2),
    "generalized, too large": ("funnel-3", SoftAbs(alpha=1.0), GeneralizedLeapfrog(**TIGHT), 1.4),
    "bcss": ("logistic", Dense([[1.0, 0.3, 0.0], [0.3, 0.7, -0.2], [0.0, -0.2, 2.0]]), BCSS(stages=3), 0.9),
    "omelyan, too large": ("funnel-3", Identity(), Omelyan(), 3.0),
    "block leapfrog": ("funnel-3", funnel_metric(3), BlockLeapfrog(), 0.4),
    "block leapfrog on Fisher": ("funnel-3", Fisher(), BlockLeapfrog(), 0.4),
    "block leapfrog, three levels": ("gaussian-3", chain_metric(3), BlockLeapfrog(), 0.5),
    "explicit Tao": ("funnel-3", Fisher(), ExplicitTao(omega=2.0), 0.1),
    "projected Tao": ("logistic", Fisher(), ProjectedTao(omega=0.5, **TIGHT), 0.1),
}
# Each way to end, and an implicit method.
QUICK = ["leapfrog", "leapfrog, far too large", "leapfrog, small", "midpoint on Fisher", "block leapfrog, three levels"]
CHAINS = 8


def begin(name):
    model_name, metric, integrator, eps = CASES[name]
    model, rng = model_of(model_name), np.random.default_rng(11)
    T = refhmc.array_api.hamiltonian(model, metric)
    q = model.reference.draw(rng, CHAINS) if model.reference is not None else rng.standard_normal((CHAINS, model.dim))
    normals, uniforms = rng.standard_normal(q.shape), rng.random((CHAINS, 400))
    copies = 2 if isinstance(integrator, ExplicitTao) else 1
    return model, metric, integrator, eps, T, q, normals, T.draw_momentum(q, normals), uniforms, copies

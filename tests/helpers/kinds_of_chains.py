"""A model and a kernel of each kind of chain, whose states hold different things."""

from __future__ import annotations

import numpy as np

import refhmc
from refhmc import DHMC, DRHMC, GHMC, GIST, HMC, MALT, MAMS, MCLMC, NUTS, SGD, SGHMC, SGLD, WALNUTS, AutoStep, Gibbs
from refhmc.integrators import GeneralizedLeapfrog, ImplicitMidpoint, ProjectedTao
from refhmc.metrics import Dense, Diagonal, Fisher, SoftAbs
from tests.helpers.discontinuous_cases import switch


def on_softabs(integrator):
    return lambda: (refhmc.models.Funnel(3), NUTS(metric=SoftAbs(1e6), integrator=integrator, max_treedepth=5))


def on_parts(kernel):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(12, 2)), rng.integers(0, 2, 12)
    return lambda: (refhmc.models.LogisticRegression(X, y).split(4), kernel)


KINDS = {
    "softabs": lambda: (refhmc.models.Funnel(2), HMC(n_steps=5, metric=SoftAbs(1e6))),
    "fisher": lambda: (refhmc.models.Banana(), NUTS(metric=Fisher())),
    "with room": lambda: (refhmc.models.Heart(), HMC(n_steps=2, metric=Fisher())),
    "midpoint": on_softabs(ImplicitMidpoint()),
    "generalised leapfrog": on_softabs(GeneralizedLeapfrog()),
    "generalised leapfrog, checked": on_softabs(GeneralizedLeapfrog(variant="naive", reversibility_check=True)),
    "projection": on_softabs(ProjectedTao(omega=2.0, solver="anderson")),
    "dhmc": lambda: (switch(), DHMC()),
    "dhmc, all jump": lambda: (refhmc.models.CellGrid(a="log n"), DHMC()),
    "ghmc": lambda: (refhmc.models.Funnel(2), GHMC(metric=Dense())),
    "ghmc, slice variable": lambda: (refhmc.models.Banana(), GHMC(slice_shift=0.1, metric=Fisher(), persistence=0.5)),
    "drhmc": lambda: (refhmc.models.Funnel(2), DRHMC(n_steps=2, persistence=0.7, length_jitter=0.5)),
    "gist": lambda: (refhmc.models.Funnel(2), GIST(metric=Dense())),
    "gibbs, self-tuning": lambda: (refhmc.models.Funnel(2), Gibbs({"v": AutoStep(), "x": GIST(max_steps=20)})),
    "malt": lambda: (refhmc.models.Banana(), MALT(trajectory_length=1.0, metric=Fisher())),
    "mams": lambda: (refhmc.models.Banana(), MAMS()),
    "mams, new velocities": lambda: (refhmc.models.Funnel(2), MAMS(n_steps=2, persistence=0.0, metric=Dense())),
    "mclmc": lambda: (refhmc.models.Funnel(2), MCLMC(n_steps=2)),
    "gibbs, kept momenta": lambda: (
        refhmc.models.Funnel(2),
        Gibbs({"v": GHMC(slice_shift=0.2), "x": DRHMC(n_steps=2)}),
    ),
    "gibbs": lambda: (refhmc.models.Funnel(2), Gibbs({"v": NUTS(), "x": HMC(n_steps=3, metric=Dense())})),
    # From the middle of a pass: three updates a transition, four parts.
    "walnuts": lambda: (refhmc.models.Funnel(2), WALNUTS(extra_halving=0.3)),
    "sgd, momentum": on_parts(SGD(step_size=0.003, momentum=0.8, n_steps=3, metric=Diagonal([0.3, 2.0]))),
    "sgld, decaying": on_parts(SGLD(step_size=0.02, n_steps=3, metric=Diagonal([0.3, 2.0]), decay=(7.0, 0.6))),
    "sghmc, cyclic": on_parts(SGHMC(step_size=0.1, friction=0.3, n_steps=3, cycle=5, metric=Diagonal([0.3, 2.0]))),
}

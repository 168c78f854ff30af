"""mici: the time that one step of its integrators advances, for a free particle with unit metric."""

import mici
import numpy as np

STEP = 0.1


def metric(q):
    return np.identity(1)


def vjp_metric(q):
    return lambda m: np.zeros(1)


system = mici.systems.DenseRiemannianMetricSystem(
    neg_log_dens=lambda q: 0.0,
    grad_neg_log_dens=lambda q: np.zeros(1),
    metric_func=metric,
    vjp_metric_func=vjp_metric,
)
start = mici.states.ChainState(pos=np.array([0.0]), mom=np.array([1.0]), dir=1)
print(f"Expected: a particle of unit speed moves by {STEP} in a step of {STEP}.")
for name in ("ImplicitMidpointIntegrator", "ImplicitLeapfrogIntegrator"):
    end = getattr(mici.integrators, name)(system, step_size=STEP).step(start)
    print(f"Obtained, {name}: {end.pos[0]:.12f}")

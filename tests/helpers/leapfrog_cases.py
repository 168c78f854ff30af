"""What the tests of the leapfrog and of the kernels on constant metrics share: models, metrics, cases."""

from __future__ import annotations

import functools
import math

import numpy as np
from hypothesis import strategies as st

import refhmc
from refhmc.metrics import Dense, Diagonal, Identity
from tests.helpers.low_rank_metrics import low_rank_metric

LEAPFROG = refhmc.integrators.Leapfrog()


def correlated(scales, rho: float = 0.5) -> np.ndarray:
    """The covariance s_i s_j rho^|i - j|."""
    scales = np.asarray(scales, dtype=float)
    return np.outer(scales, scales) * rho ** np.abs(np.subtract.outer(np.arange(len(scales)), np.arange(len(scales))))


METRICS = {
    "identity": lambda d: Identity(),
    "diagonal": lambda d: Diagonal(np.linspace(0.5, 2.0, d)),
    "dense": lambda d: Dense(correlated(np.linspace(0.7, 1.4, d))),
    "low-rank": low_rank_metric,
}


MODELS = {
    "gaussian": lambda: refhmc.models.Gaussian([0.5, -1.0, 2.0], correlated([1.0, 0.5, 2.0])),
    "normals": lambda: refhmc.models.Gaussian(np.zeros(100), np.eye(100)),
    "banana": refhmc.models.Banana,
    "funnel": lambda: refhmc.models.Funnel(3),
    "eight_schools": refhmc.models.EightSchools,
}


@functools.cache
def model(name: str):
    return MODELS[name]()


ANY_CASE = {
    "name": st.sampled_from(["gaussian", "banana", "funnel", "eight_schools"]),
    "metric": st.sampled_from(sorted(METRICS)),
    "seed": st.integers(0, 2**32 - 1),
    "step": st.floats(0.01, 1.0),  # in units of the fastest local time scale at the start: stable there below 2
    "n_steps": st.integers(1, 12),
}


def case(name: str, metric: str, seed: int, step: float = 1.0):
    """Hamiltonian, position, momentum, and a step size in units of the fastest local time scale."""
    m, rng = model(name), np.random.default_rng(seed)
    H = refhmc.Hamiltonian(m, METRICS[metric](m.dim))
    q = rng.normal(size=m.dim)
    curvature = np.linalg.solve(H.mass(), m.hessian(q))
    return H, q, H.draw_momentum(q, rng), step / math.sqrt(np.abs(np.linalg.eigvals(curvature)).max())


def no_density(q, data):
    return 0.0


def no_gradient(q, data, out):
    out[:] = 0.0

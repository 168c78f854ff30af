"""Runs that no sampler has made: arrays of known numbers, to see what a picture or a report makes of them."""

from __future__ import annotations

import json

import numpy as np

import refhmc
from refhmc.adaptation.adapted import Adapted
from refhmc.core.sample_stats import NOT_REVERSIBLE, SOLVER_FAILED
from refhmc.metrics import Diagonal


def made_run(
    chains=2, draws=30, d=2, *, warmup=0, diverging=(), implicit=False, warnings=(), model="a model", name="x"
):
    """A Result of standard normals, value ``name`` (chains, draws, d). ``diverging``: (chain, draw), or "all"."""
    rng = np.random.default_rng(5)

    def groups(n):
        q = rng.standard_normal((chains, n, d))
        stats = {
            "lp": -0.5 * (q**2).sum(axis=2),
            "energy": rng.gamma(d, size=(chains, n)),
            "acceptance_rate": rng.random((chains, n)),
            "diverging": np.zeros((chains, n), bool),
            "step_size": rng.random((chains, n)) + 0.1,
            "n_steps": rng.integers(1, 8, (chains, n)),
            "outcome": np.zeros((chains, n), np.int64),
        }
        if implicit:
            stats["solver_iterations"] = stats["n_steps"] * rng.integers(3, 9, (chains, n))
            if n > 5:
                stats["outcome"][0, 2], stats["outcome"][-1, 4:6] = SOLVER_FAILED, NOT_REVERSIBLE
        return {"posterior": {name: q}, "sample_stats": stats, "unconstrained_posterior": {"q": q}}

    found = groups(draws)
    if warmup:
        found |= {f"warmup_{key}": group for key, group in groups(warmup).items()}
    flags = found["sample_stats"]["diverging"]
    if diverging == "all":
        flags[:] = True
    for each in () if diverging == "all" else diverging:
        flags[each] = True
    history = np.array([[10.0, 0.5, 7.0, 0.0, 2.0, 2.0], [25.0, 0.4, 7.0, 1.0, 3.0, 1.5]])
    adapted = [Adapted(0.3 + 0.1 * k, Diagonal(np.full(d, 1.0 + k)), history) for k in range(chains)]
    attributes = {
        "refhmc_version": refhmc.__version__,
        "kernel": json.dumps({"name": "NUTS", "step_size": None, "max_treedepth": 10, "target_accept": 0.8}),
        "entropy": 2**70 + 1,
        "model": model,
        "model_fingerprint": "0" * 64,
        "draws": draws,
        "tuning_steps": 40,
        "exact": True,
        "backend": "numba",
        "device": "CPU",
        "draws_per_chain": [draws] * chains,
        "iterations_per_chain": [draws + 40] * chains,
        "divergences_per_chain": flags.sum(axis=1).tolist(),
        "warmup_divergences_per_chain": [0] * chains,
        "chains": list(range(chains)),
        "stopped_by": "",
        "starts": ["uniform"] * chains,
        "sampling_time": 1.25,
        "n_gradient_evaluations": 12345,
    }
    return refhmc.Result(found, attributes, list(warnings), adapted=adapted)

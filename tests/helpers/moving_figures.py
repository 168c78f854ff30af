"""What refhmc says of a map that the page that moves shows: energy error, volume of a small cloud, way back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import refhmc
from refhmc import integrators, metrics
from refhmc.check.vectors.own_answers import jumping
from refhmc.dynamics.discontinuous import DiscontinuousHamiltonian

FRAME = 1e-4  # trajectory.js's


class Figures(NamedTuple):
    energy_error: float
    largest_energy_error: float
    volume: float
    way_back: float


@functools.cache
def model(name: str) -> Any:
    if name == "gaussian":
        return refhmc.models.Gaussian(np.zeros(2), np.array([[1, 1.2], [1.2, 2.25]]))
    if name == "banana":
        return refhmc.models.Banana(np.ones(20), 2.0, 2.0)
    return refhmc.models.Funnel(1) if name == "funnel" else jumping("staircase", (1,))


def by_refhmc(state: dict) -> Figures:
    """The figures of the page's state, by refhmc's compiled steps."""
    energy, states = made(state)
    q, p = np.array(state["q"]), np.array(state["p"])
    there = states(q, p)
    errors = np.array([energy(*z) for z in there]) - energy(q, p)
    end = there[-1]
    back = states(end[0], -end[1])[-1] * np.array([[1.0], [-1.0]])
    z = np.concatenate([q, p])
    ends = [
        [np.concatenate(states(*np.split(z + sign * h, 2))[-1]) for sign in (1, -1)] for h in FRAME * np.eye(len(z))
    ]
    columns = [(ahead - behind) / (2 * FRAME) for ahead, behind in ends]
    return Figures(errors[-1], np.abs(errors).max(), abs(np.linalg.det(columns)), np.abs(back - np.stack([q, p])).max())


def made(state: dict) -> tuple[Callable, Callable]:
    """H(q, p), and states(q, p): where the steps lead, (n + 1, 2, d)."""
    of, eps, n = model(state["target"]), state["eps"], state["n"]
    if state["integrator"] == "discontinuous":
        jumps = DiscontinuousHamiltonian(of)
        return jumps.energy, iterated(lambda q, p: jumps.step(q, p, eps, [1])[:2], n)
    metric = {
        "identity": metrics.Identity,
        "fisher": metrics.Fisher,
        "softabs": lambda: metrics.SoftAbs(state["alpha"]),
    }[state["metric"]]()
    H = refhmc.Hamiltonian(of, metric)
    if state["integrator"] == "leapfrog" and metric.position_dependent:  # which refhmc refuses

        def step(q: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            p = p - eps / 2 * H.grad_q(q, p)
            q = q + eps * H.grad_p(q, p)
            return q, p - eps / 2 * H.grad_q(q, p)

        return H.energy, iterated(step, n)
    solver = {
        "tolerance": state["tolerance"],
        "max_iterations": state["maxIterations"],
        "solver": "fixed point",
        "reversibility_check": False,
    }
    integrator = {
        "leapfrog": integrators.Leapfrog,
        "explicit-tao": lambda: integrators.ExplicitTao(state["omega"]),
        "projected-tao": lambda: integrators.ProjectedTao(state["omega"], **solver),
        "implicit-midpoint": lambda: integrators.ImplicitMidpoint(**solver),
        "generalized-leapfrog": lambda: integrators.GeneralizedLeapfrog(**solver),
    }[state["integrator"]]()

    def states(q: np.ndarray, p: np.ndarray) -> np.ndarray:
        t = refhmc.integrate(H, integrator, q, p, step_size=eps, n_steps=n)
        assert t.converged.all()
        return np.stack([t.q, t.p], axis=1)

    return H.energy, states


def iterated(step: Callable, n: int) -> Callable:
    def states(q: np.ndarray, p: np.ndarray) -> np.ndarray:
        z = [(q, p)]
        for _ in range(n):
            z.append(step(*z[-1]))
        return np.array(z)

    return states

"""What refhmc says of a map that the page that moves shows: energy error, volume of a small cloud, way back."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import refhmc
from refhmc import integrators, metrics
from refhmc.check.vectors.own_answers import jumping
from refhmc.dynamics.discontinuous import DiscontinuousHamiltonian

FRAME = 2e-5
COVARIANCE = np.array([[1, 1.2], [1.2, 2.25]])


def run(*command: str, given: str = "") -> subprocess.CompletedProcess:
    """Run a command, for instance of Node, with `given` as its input."""
    return subprocess.run(command, input=given, capture_output=True, text=True, encoding="utf-8", timeout=300)


class Figures(NamedTuple):
    energy_error: float
    largest_energy_error: float
    volume: float
    way_back: float


@functools.cache
def model(name: str) -> Any:
    if name == "gaussian":
        return refhmc.models.Gaussian(np.zeros(2), COVARIANCE)
    if name == "banana":
        return refhmc.models.Banana(np.ones(20), 2.0, 2.0)
    return refhmc.models.Funnel(1) if name == "funnel" else jumping("staircase", (1,))


def hierarchical(name: str) -> tuple:
    """The constants, parents and coefficients of the page's hierarchical metric.

    A gamma regression of the squared derivative in q_2 on q_1 minimises E[g_2^2 / M_2 + log M_2], M_2 = exp(a + c q_1). The
    mean over the banana is a sum over a grid, and M_1 = E[g_1^2]. On the funnel this is the Fisher metric.
    """
    parents = np.zeros((1, 2), int)
    if name == "funnel":
        return np.log([[1 / 9 + 1 / 2, 1.0]]), parents, np.array([[[0.0, 1.0]]])
    q = np.stack(np.meshgrid(np.linspace(-16, 8, 1201), np.linspace(-6, 6, 601), indexing="ij"), axis=-1)
    L, g = model(name).on_arrays(np).value_and_gradient(q)
    weight = np.exp(L - L.max())
    weight /= weight.sum()
    x = np.stack([np.ones(len(q)), q[:, 0, 0]])
    probability, squares = weight.sum(axis=1), np.sum(weight * g[..., 1] ** 2, axis=1)
    coefficients = np.array([np.log(squares.sum()), 0.0])
    for _ in range(20):  # Newton's method on a convex function
        ratio = squares * np.exp(-coefficients @ x)
        coefficients -= np.linalg.solve((x * ratio) @ x.T, x @ (probability - ratio))
    return (
        np.array([[np.log(np.sum(weight * g[..., 0] ** 2)), coefficients[0]]]),
        parents,
        np.array([[[0.0, coefficients[1]]]]),
    )


def by_refhmc(state: dict) -> Figures:
    """The figures of the page's state, by refhmc's compiled steps."""
    energy, states = made(state)
    q, p = np.array(state["q"]), np.array(state["p"])
    there = states(q, p)
    errors = np.array([energy(*z) for z in there]) - energy(q, p)
    end = there[-1]
    back = states(end[0], -end[1])[-1] * np.array([[1.0], [-1.0]])
    if state["integrator"] == "explicit-tao":  # its steps are not maps of (q, p) alone
        volume = stretch(states, there[0])
    else:
        one_step = made({**state, "n": 1})[1]
        volume = np.prod([stretch(one_step, z) for z in there[:-1]])
    return Figures(errors[-1], np.abs(errors).max(), volume, np.abs(back - np.stack([q, p])).max())


def stretch(states: Callable, start: np.ndarray) -> float:
    """Return |det dz'/dz| of the map from ``start`` to the last of the states, from central differences."""
    z = np.concatenate(start)
    ends = [
        [np.concatenate(states(*np.split(z + sign * h, 2))[-1]) for sign in (1, -1)] for h in FRAME * np.eye(len(z))
    ]
    return abs(np.linalg.det([(ahead - behind) / (2 * FRAME) for ahead, behind in ends]))


def made(state: dict) -> tuple[Callable, Callable]:
    """H(q, p), and states(q, p): where the steps lead, (n + 1, 2, d)."""
    of, eps, n = model(state["target"]), state["eps"], state["n"]
    if state["integrator"] == "discontinuous":
        jumps = DiscontinuousHamiltonian(of)
        return jumps.energy, iterated(lambda q, p: jumps.step(q, p, eps, [1])[:2], n)
    metric = {
        "identity": metrics.Identity,
        "diagonal": lambda: metrics.Diagonal(
            {"gaussian": [1, 2.25], "banana": [1.5, 1], "funnel": [9, 1]}[state["target"]]
        ),
        "dense": lambda: metrics.Dense(COVARIANCE),
        "fisher": metrics.Fisher,
        "softabs": lambda: metrics.SoftAbs(state["alpha"]),
        "hierarchical": lambda: metrics.Hierarchical(*hierarchical(state["target"])),
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
        "block-leapfrog": integrators.BlockLeapfrog,
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

"""WALNUTS written from the paper in plain Python, by recursion on lists of states, without code of refhmc.

``chance`` is the distribution of the level, and ``Recursive`` the algorithm with the U-turn criterion of refhmc's NUTS.
The energy is -L(q) + 1/2 sum_i m_i p_i^2, with m the inverse masses. A macro step that is not defined ends the trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Target(NamedTuple):
    """A log density, its gradient, and the inverse masses (d,)."""

    log_density: Callable
    gradient: Callable
    inverse_mass: np.ndarray

    def energy(self, z) -> float:
        q, p = z
        return float(0.5 * p @ (self.inverse_mass * p) - self.log_density(q))


class Options(NamedTuple):
    step_size: float
    max_error: float
    max_halvings: int
    extra_halving: float
    max_treedepth: int


def leapfrog(target: Target, z, eps: float):
    q, p = z
    p = p + 0.5 * eps * target.gradient(q)
    q = q + eps * target.inverse_mass * p
    return q, p + 0.5 * eps * target.gradient(q)


def path(target: Target, z, h: float, level: int) -> tuple[list, list[float]]:
    """The 2^level + 1 states of a macro step and their energies, up to the first that is not finite."""
    states, energies = [z], [target.energy(z)]
    for _ in range(2**level):
        states.append(leapfrog(target, states[-1], h / 2**level))
        energies.append(target.energy(states[-1]))
        if not math.isfinite(energies[-1]):
            break
    return states, energies


def accepts(energies: list[float], max_error: float) -> bool:
    return all(map(math.isfinite, energies)) and max(energies) - min(energies) <= max_error


def needed(target: Target, z, h: float, options: Options) -> int | None:
    """The smallest level that is accepted, or None."""
    levels = range(options.max_halvings + 1)
    return next((k for k in levels if accepts(path(target, z, h, k)[1], options.max_error)), None)


def chance(target: Target, z, h: float, level: int, options: Options) -> float:
    """p(level | z), for steps of length h, which may be negative."""
    least, r = needed(target, z, h, options), options.extra_halving
    return 0.0 if least is None else {0: 1 - r, 1: r}.get(level - least, 0.0)


class Ended(Exception):
    pass


class State(NamedTuple):
    z: tuple
    v: np.ndarray
    energy: float
    log_weight: float
    time: int


class Recursive:
    """One transition on recorded uniforms; ``run`` returns the state drawn, and the attributes count."""

    def __init__(self, target: Target, q, p, uniforms, options: Options) -> None:
        self.target, self.options, self.uniforms, self.used = target, options, uniforms, 0
        H0 = target.energy((q, p))
        self.start = State((q, p), target.inverse_mass * p, H0, 0.0, 0)
        self.acceptances, self.n_micro_steps, self.n_halvings, self.depth = [], 0, 0, 0
        self.ended = "full"

    def uniform(self) -> float:
        self.used += 1
        return self.uniforms[self.used - 1]

    def macro_step(self, edge: State, sign: int) -> State:
        """w' / w = exp(H - H') p(level | z', backwards) / p(level | z, forwards)."""
        target, options, h = self.target, self.options, sign * self.options.step_size
        change = path(target, edge.z, h, 0)[1][-1] - edge.energy
        self.acceptances.append(math.exp(-max(change, 0)) if math.isfinite(change) else 0.0)
        level = needed(target, edge.z, h, options)
        if level is None:
            raise Ended("no level")
        if options.extra_halving > 0:
            level += self.uniform() < options.extra_halving
        states, energies = path(target, edge.z, h, level)
        if not math.isfinite(energies[-1]):
            raise Ended("no level")
        forwards = chance(target, edge.z, h, level, options)
        backwards = chance(target, states[-1], -h, level, options)
        if backwards == 0:
            raise Ended("not reversible")
        self.n_micro_steps += 2**level
        self.n_halvings = max(self.n_halvings, level)
        weight = edge.log_weight + edge.energy - energies[-1] + math.log(backwards / forwards)
        q, p = states[-1]
        return State((q, p), target.inverse_mass * p, energies[-1], weight, edge.time + sign)

    def may_join(self, A: list[State], B: list[State]) -> bool:
        def onward(states, *ends):
            rho = sum(state.z[1] for state in states)
            return all(rho @ end.v > 0 for end in ends)

        a, b = A[0], B[-1]
        return onward(A + B, a, b) and onward([*A, B[0]], a, B[0]) and onward([A[-1], *B], A[-1], b)

    def grow(self, edge: State, sign: int, depth: int) -> list[State]:
        """The 2^depth states beyond the edge, in order of time."""
        if depth == 0:
            state = self.macro_step(edge, sign)
            self.new.append(state)
            if max(s.energy for s in self.new) - min(s.energy for s in self.new) > 1000:
                raise Ended("diverged")
            weights = np.array([math.exp(s.log_weight) for s in self.new])
            if len(self.new) == 1 or self.uniform() < weights[-1] / weights.sum():
                self.candidate = state
            return [state]
        near = self.grow(edge, sign, depth - 1)
        far = self.grow(near[-1] if sign > 0 else near[0], sign, depth - 1)
        A, B = (near, far) if sign > 0 else (far, near)
        if not self.may_join(A, B):
            raise Ended("turned")
        return A + B

    def run(self) -> State:
        tree, drawn = [self.start], self.start
        while self.depth < self.options.max_treedepth and self.ended == "full":
            sign, self.new = (1 if self.uniform() < 0.5 else -1), []
            try:
                half = self.grow(tree[-1] if sign > 0 else tree[0], sign, self.depth)
            except Ended as reason:
                self.ended = str(reason)
                break
            before = sum(math.exp(state.log_weight) for state in tree)
            if self.uniform() < sum(math.exp(state.log_weight) for state in half) / before:
                drawn = self.candidate
            A, B = (tree, half) if sign > 0 else (half, tree)
            tree, self.depth = A + B, self.depth + 1
            if not self.may_join(A, B):
                self.ended = "turned"
            elif max(s.energy for s in tree) - min(s.energy for s in tree) > 1000:
                self.ended = "diverged"
        return drawn

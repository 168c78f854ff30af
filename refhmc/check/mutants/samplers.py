"""Samplers with one planted bug each, and their corrected counterparts, in plain NumPy.

Most take many chains at a time, (chains, d), for speed; the tree samplers and the runs take one.
"""

from __future__ import annotations

import functools

import numpy as np

import refhmc.check as rc

from . import Pair
from .orbits import SliceNUTS

ENOUGH = 1100  # pairs with which a corrected counterpart is examined


def quiet(function):
    """Suppress overflow warnings, since such trajectories are rejected."""
    return np.errstate(all="ignore")(function)


def hmc(logp, grad, eps, steps, *, bug="", dense=None):
    """Leapfrog HMC for (..., d); ``dense``: a mass matrix."""

    @quiet
    def kernel(rng, q):
        shape, d = q.shape, q.shape[-1]
        M = np.eye(d) if dense is None else dense
        factor = np.linalg.cholesky(M)
        z = rng.standard_normal(shape)
        if bug == "one momentum for all":
            z = np.broadcast_to(rng.standard_normal(d), shape)
        p0 = z @ (np.linalg.inv(factor) if bug == "inverse factor" else factor.T)
        velocity = np.linalg.inv(M)
        x, p = q.copy(), p0.copy()
        for _ in range(steps):
            p = p + eps / 2 * grad(x)
            x = x + eps * p @ velocity
            p = p + eps / 2 * grad(x)
        before, after = (0.5 * np.sum(v * (v @ velocity), axis=-1) for v in (p0, p))
        if bug == "no kinetic energy":
            before = after = 0.0
        log_ratio = logp(x) - logp(q) + before - after
        if bug == "ratio inverted":
            log_ratio = -log_ratio
        log_u = np.log(rng.random() if bug == "one uniform for all" else rng.random(shape[:-1]))
        accept = ~(log_u > log_ratio) if bug == "nan accepted" else log_u < log_ratio
        return np.where(np.asarray(accept)[..., None], x, q)

    return kernel


def persistent(logp, grad, eps, steps, refresh, *, bug=""):
    """Horowitz's HMC with partial refreshment; the momentum must be reversed after a rejection."""

    @quiet
    def kernel(rng, state):
        q, p0 = state
        fresh = rng.standard_normal(q.shape)
        if bug == "energy with the last momentum":
            old, p0 = p0, fresh
        else:
            p0 = old = np.sqrt(1 - refresh**2) * p0 + refresh * fresh
        x, p = q, p0
        for _ in range(steps):
            p = p + eps / 2 * grad(x)
            x = x + eps * p
            p = p + eps / 2 * grad(x)
        log_ratio = logp(x) - logp(q) + 0.5 * np.sum(old * old - p * p, axis=-1)
        accept = (np.log(rng.random(q.shape[:-1])) < log_ratio)[..., None]
        rejected = p0 if bug == "no flip" else -p0
        return np.where(accept, x, q), np.where(accept, p, rejected)

    return kernel


def riemannian(logp, grad, eps, steps, *, share):
    """Generalised leapfrog with G = diag(1 + q^2); ``share`` is the factor of log det G in the energy; one half is correct."""

    def force(q, p):
        G = 1 + q * q
        return grad(q) + q * p * p / G**2 - 2 * share * q / G

    def energy(q, p):
        G = 1 + q * q
        return -logp(q) + np.sum(share * np.log(G) + 0.5 * p * p / G, axis=-1)

    @quiet
    def kernel(rng, q):
        p0 = np.sqrt(1 + q * q) * rng.standard_normal(q.shape)
        x, p = q, p0
        for _ in range(steps):
            half = p
            for _ in range(30):
                half = p + eps / 2 * force(x, half)
            y = x
            for _ in range(30):
                y = x + eps / 2 * half * (1 / (1 + x * x) + 1 / (1 + y * y))
            x, p = y, half + eps / 2 * force(y, half)
        accept = np.log(rng.random(q.shape[:-1])) < energy(q, p0) - energy(x, p)
        return np.where(accept[..., None], x, q)

    return kernel


def on_log_scale(kernel):
    """Return a kernel for q > 0 that runs a kernel for z = log q."""
    return lambda rng, q: np.exp(kernel(rng, np.log(q)))


def log_scale(jacobian):
    """The standard exponential's log density and gradient in z = log q, with or without the Jacobian of the transform."""

    def logp(z):
        return np.sum(jacobian * z - np.exp(z), axis=-1)

    def grad(z):
        return jacobian - np.exp(z)

    return logp, grad


def walk_run(logp, scale, *, keep):
    """Return a run of random-walk Metropolis; ``keep``: "all", "accepted" (until there are n) or "accepted of n"."""

    def run(rng, q, n):
        kept, tried = [], 0
        while len(kept) < n and not (keep == "accepted of n" and tried == n):
            x = q + scale * rng.standard_normal(q.shape)
            accept = np.log(rng.random()) < logp(x) - logp(q)
            q, tried = (x if accept else q), tried + 1
            if accept or keep == "all":
                kept.append(q)
        return np.array(kept).reshape(-1, len(q))

    return run


def walk_with_two_generators(logp, scale, *, apart):
    """Return a run of random-walk Metropolis with one generator for proposals and one for decisions, with ``apart`` seeds."""

    def run(rng, q, n):
        seed, draws = int(rng.integers(2**63)), []
        proposals, decisions = np.random.default_rng(seed), np.random.default_rng([seed, 1] if apart else seed)
        for _ in range(n):
            x = q + scale * proposals.standard_normal(q.shape)
            q = x if np.log(decisions.random()) < logp(x) - logp(q) else q
            draws.append(q)
        return np.array(draws)

    return run


def adapting_run(logp, *, frozen):
    """Return a run of random-walk Metropolis that fits its scale to the last five draws, during warm-up only or always."""

    def run(rng, q, n):
        draws, scale = [q], 2.4
        for _ in range(n):
            if not frozen:
                scale = 0.05 + np.sqrt(np.mean(np.square(draws[-5:])))
            x = q + scale * rng.standard_normal(q.shape)
            q = x if np.log(rng.random()) < logp(x) - logp(q) else q
            draws.append(q)
        return np.array(draws[1:])

    return run


class HalfLine:
    """Independent Gamma(2, 1): by its formula the log density is NaN where a coordinate is negative."""

    name, law = "gamma", "q exp(-q), q > 0"

    @quiet
    def log_density(self, q):
        return np.sum(np.log(q) - q, axis=-1)

    def gradient(self, q):
        return 1 / q - 1

    def draw(self, rng, n):
        return rng.standard_gamma(2.0, (n, 2))


def delayed(logp, grad, first, second, *, bug=""):
    """Delayed-rejection HMC: a second try with smaller steps after a rejection; ``first``, ``second``: (step size, steps).

    The acceptance ratio of the second try contains the probabilities that the first try is rejected, from the initial state and
    from the second proposal with its momentum reversed.
    """

    def leap(x, p, eps, steps):
        for _ in range(steps):
            p = p + eps / 2 * grad(x)
            x = x + eps * p
            p = p + eps / 2 * grad(x)
        return x, p

    def energy(x, p):
        return -logp(x) + 0.5 * np.sum(p * p, axis=-1)

    def chance(x, p):
        drop = energy(x, p) - energy(*leap(x, p, *first))
        return np.exp(np.minimum(np.where(np.isnan(drop), -np.inf, drop), 0.0))

    @quiet
    def kernel(rng, q):
        p = rng.standard_normal(q.shape)
        (x, _), (y, r) = leap(q, p, *first), leap(q, p, *second)
        here, there = chance(q, p), chance(y, r if bug == "ghost forwards" else -r)
        rejected = 1.0 if bug == "rejections left out" else (1 - there) / np.maximum(1 - here, 1e-300)
        u, v = rng.random((2, *q.shape[:-1]))
        taken = u < here
        second_taken = ~taken & (v < np.exp(energy(q, p) - energy(y, r)) * rejected)
        return np.where(taken[..., None], x, np.where(second_taken[..., None], y, q))

    return kernel


def discontinuous(logp, grad, steps, *, bug=""):
    """Discontinuous HMC with Laplace momenta, one coordinate at a time; a jump changes |p| by its height."""

    def kernel(rng, q):
        x, p = q.copy(), rng.laplace(size=q.shape)
        eps = rng.uniform(0.3, 0.9, size=q.shape)
        for _ in range(steps):
            for j in rng.permutation(q.shape[-1]):
                trial = x.copy()
                trial[..., j] += eps[..., j] * np.sign(p[..., j])
                rise = logp(x) - logp(trial)
                over = np.abs(p[..., j]) > rise
                cost = np.maximum(rise, 0.0) if bug == "downhill for nothing" else rise
                paid = p[..., j] - np.sign(p[..., j]) * np.where(over, cost, 0.0)
                p[..., j] = np.where(over, paid, -p[..., j])
                x = np.where(over[..., None], trial, x)
        return x

    return kernel


def langevin(logp, grad, eps, *, bug=""):
    """Langevin proposal with a Metropolis test, with or without the densities of the proposal in the ratio."""

    @quiet
    def kernel(rng, q):
        x = q + eps * grad(q) + np.sqrt(2 * eps) * rng.standard_normal(q.shape)
        there = -np.sum((x - q - eps * grad(q)) ** 2, axis=-1) / (4 * eps)
        back = -np.sum((q - x - eps * grad(x)) ** 2, axis=-1) / (4 * eps)
        log_ratio = logp(x) - logp(q) + (0.0 if bug == "no proposal density" else back - there)
        return np.where((np.log(rng.random(q.shape[:-1])) < log_ratio)[..., None], x, q)

    return kernel


def box_walk(logp, grad, scale, *, bug=""):
    """Random walk on a box; the bug draws the proposal again until it is inside."""

    def kernel(rng, q):
        x = q + scale * rng.standard_normal(q.shape)
        while bug == "redraw" and not np.all(inside := np.isfinite(logp(x))):
            x = np.where(inside[..., None], x, q + scale * rng.standard_normal(q.shape))
        return np.where((np.log(rng.random(q.shape[:-1])) < logp(x) - logp(q))[..., None], x, q)

    return kernel


DISTRIBUTION = ("stationarity (e-value)", "distribution (KS/AD)")


def batch(make, target, *arguments, bug="", draws=None, seed, **more):
    """Examine a kernel for many chains."""
    t, name = rc.targets.resolve(target), getattr(make, "__name__", "hmc")
    kernel = make(t.log_density, t.gradient, *arguments, bug=bug)
    return rc.sampler(kernel, t, batched=True, draws=draws, seconds=60, seed=seed, name=name, **more)


def of(id, what, wrong, right, *, expected=DISTRIBUTION, draws=ENOUGH):
    """Return a pair of partial calls of a check."""
    return Pair(id, what, lambda seed: wrong(seed=seed), lambda seed: right(seed=seed, draws=draws), expected)


def pair(id, what, bug, make, target, *arguments, expected=DISTRIBUTION, **more):
    """Return a pair of kernels for many chains that differ by ``bug``."""
    right = functools.partial(batch, make, target, *arguments, **more)
    return of(id, what, functools.partial(right, bug=bug), right, expected=expected)


# Options for kernels whose state is (q, p).
WITH_MOMENTUM = {"init": lambda rng, q: (q, rng.standard_normal(q.shape)), "read": lambda state: state[0]}


def riemannian_of(share):
    t = rc.targets.from_name("normal-2")
    return functools.partial(
        rc.sampler, riemannian(t.log_density, t.gradient, 0.4, 4, share=share), t, batched=True, seconds=60
    )


def log_scale_of(jacobian):
    kernel = on_log_scale(hmc(*log_scale(jacobian), 0.5, 4))
    return functools.partial(rc.sampler, kernel, "exponential-2", batched=True, seconds=60)


def walk_run_of(keep):
    t = rc.targets.from_name("normal-1")
    return functools.partial(rc.sampler, run=walk_run(t.log_density, 3.0, keep=keep), target=t, seconds=60)


def two_generators_of(apart):
    t = rc.targets.from_name("normal-1")
    run = walk_with_two_generators(t.log_density, 2.4, apart=apart)
    return functools.partial(rc.sampler, run=run, target=t, seconds=60)


def adapting_run_of(frozen):
    t = rc.targets.from_name("normal-1")
    return functools.partial(rc.sampler, run=adapting_run(t.log_density, frozen=frozen), target=t, seconds=60)


def half_line_of(bug):
    t = HalfLine()
    return functools.partial(rc.sampler, hmc(t.log_density, t.gradient, 0.5, 4, bug=bug), t, batched=True, seconds=60)


def nuts_of(bug, target, eps):
    t = rc.targets.from_name(target)
    nuts = SliceNUTS(t.log_density, t.gradient, eps, 6, **({bug: True} if bug else {}))

    @quiet
    def kernel(rng, q):
        return nuts(q, rng.standard_normal(len(q)), rng)

    return functools.partial(rc.sampler, kernel, t, seconds=60)


MASS = np.array([[1.5, 0.6], [0.6, 0.8]])

PAIRS: list[Pair] = [
    of("P08", "log det G without the factor 1/2, in force and energy", riemannian_of(1.0), riemannian_of(0.5)),
    of("P13", "the log transform's Jacobian is missing", log_scale_of(0.0), log_scale_of(1.0)),
    pair(
        "P16",
        "the energy before the move uses the previous momentum",
        "energy with the last momentum",
        persistent,
        "gaussian",
        0.6,
        3,
        0.7,
        **WITH_MOMENTUM,
    ),
    of(
        "P17",
        "rejected draws are not stored again, n are returned",
        walk_run_of("accepted"),
        walk_run_of("all"),
        draws=500,
    ),
    of(
        "P17-count",
        "rejected draws are not stored again",
        walk_run_of("accepted of n"),
        walk_run_of("all"),
        expected=("draw count",),
        draws=500,
    ),
    of(
        "ran#1038",
        "the generators of proposals and of decisions have the same seed",
        two_generators_of(False),
        two_generators_of(True),
        draws=500,
    ),
    of("P18", "a NaN energy error is accepted", half_line_of("nan accepted"), half_line_of(""), expected=("support",)),
    of(
        "P19",
        "the left end has the momentum of another state",
        nuts_of("stale_left", "normal-10", 0.4),
        nuts_of("", "normal-10", 0.4),
        draws=210,  # a PASS needs at least 200 pairs
    ),
    of(
        "P20",
        "the proposal of a subtree that diverged is kept",
        nuts_of("keep_diverging", "exponential-1", 0.5),
        nuts_of("", "exponential-1", 0.5),
        draws=210,  # a PASS needs at least 200 pairs
    ),
    of("P21", "the scale is still tuned after the warm-up", adapting_run_of(False), adapting_run_of(True), draws=300),
    pair("P23", "a downhill crossing does not return energy", "downhill for nothing", discontinuous, "cells-2", 4),
    pair(
        "P25",
        "one uniform for all chains",
        "one uniform for all",
        hmc,
        "gaussian",
        1.0,
        3,
        expected=("chains independent",),
    ),
    pair(
        "P25-momentum",
        "one momentum for all chains",
        "one momentum for all",
        hmc,
        "gaussian",
        1.0,
        3,
        expected=("chains independent",),
    ),
    pair(
        "S01", "the flip after a rejection is missing", "no flip", persistent, "student-2", 1.6, 2, 0.4, **WITH_MOMENTUM
    ),
    pair("S02", "the proposal's densities are missing", "no proposal density", langevin, "mixture", 0.3),
    pair("S03", "a proposal outside the support is drawn again", "redraw", box_walk, "cells-2", 0.8),
    pair(
        "DR",
        "a second try without the rejection probabilities",
        "rejections left out",
        delayed,
        "gaussian",
        (1.5, 3),
        (0.5, 2),
    ),
    pair(
        "DR-ghost",
        "the momentum from the end is not reversed",
        "ghost forwards",
        delayed,
        "funnel-3",
        (0.5, 3),
        (0.1, 3),
    ),
    pair("S04", "the kinetic energy is missing", "no kinetic energy", hmc, "normal-2", 0.6, 3),
    pair(
        "S05",
        "the acceptance ratio is inverted",
        "ratio inverted",
        hmc,
        "quartic-2",
        0.6,
        3,
        expected=(*DISTRIBUTION, "support"),  # it runs away
    ),
    pair(
        "S06",
        "momentum drawn with the wrong factor of a dense mass",
        "inverse factor",
        functools.partial(hmc, dense=MASS),
        "gaussian",
        0.7,
        3,
    ),
]

"""Right subjects of every check, with every function that a check calls in the caller's hands.

``CASES`` are (check, functions by name, a call with them): a test puts one that raises, or answers NaN, in the place of one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import refhmc.check as rc


class Case(NamedTuple):
    """``run(functions)`` gives the report of ``check``; ``functions`` are right ones."""

    check: str
    functions: dict[str, Callable]
    run: Callable[[dict], rc.Report]


def named(function: Callable, name: str, like: Callable) -> Callable:
    """``function`` with that name, and with the signature of ``like``."""
    function.__signature__ = inspect.signature(like)
    function.__name__ = function.__qualname__ = name
    return function


def logp(q):
    return -0.5 * (q @ q)


def grad(q):
    return -q


def hess(q):
    return -np.eye(len(q))


def third(q):
    return np.zeros((len(q),) * 3)


def trace(q, M):
    return np.zeros(len(q))


def H(q, p):
    return 0.5 * (q @ q + p @ p)


def grad_q(q, p):
    return 1.0 * q


def grad_p(q, p):
    return 1.0 * p


def leap(q, p, eps):
    p = p - eps / 2 * q
    q = q + eps * p
    return q, p - eps / 2 * q


def step(q, p, eps, n):
    for _ in range(n):
        q, p = leap(q, p, eps)
    return q, p


def with_momentum(q, *, p0, u):
    end, p = step(q, p0, 0.3, 3)
    return end if u < np.exp(H(q, p0) - H(end, p)) else q


def walk(rng, q):
    new = q + 0.7 * rng.standard_normal(q.shape)
    return new if np.log(rng.uniform()) < logp(new) - logp(q) else q


def make(log_density, gradient):
    def made(rng, q):
        new = q + 0.7 * rng.standard_normal(q.shape)
        return new if np.log(rng.uniform()) < log_density(new) - log_density(q) else q

    return made


def tree(draws, q, p, eps, depth):
    """One of all states of a doubled trajectory, each with its weight."""
    states = [(q, p)]
    for k in range(depth):
        sign = 1 if draws.flip(np.log(0.5)) else -1
        for _ in range(2**k):
            state = leap(*states[-1 if sign > 0 else 0], sign * eps)
            states = [*states, state] if sign > 0 else [state, *states]
    energies = np.array([H(*z) for z in states])
    weights = np.where(np.isfinite(energies), np.exp(np.nanmin(energies) - energies), 0.0)
    return states[draws.choice(weights / weights.sum())][0]


def G(q):
    return np.diag(1 + q * q)


def dG(q):
    found = np.zeros((len(q),) * 3)
    for i in range(len(q)):
        found[i, i, i] = 2 * q[i]
    return found


def curved(q, p):
    g = 1 + q * q
    return 0.5 * (q @ q) + 0.5 * (p * p / g + np.log(g)).sum()


def curved_q(q, p):
    g = 1 + q * q
    return q + q / g - q * p * p / g**2


def curved_p(q, p):
    return p / (1 + q * q)


def draw_p(rng, q):
    return np.sqrt(1 + q * q) * rng.standard_normal(len(q))


def log_det(q):
    return np.log(1 + q * q).sum()


def solve(q, v):
    return v / (1 + q * q)


def change(q, j, x):
    return 0.5 * (q[j] ** 2 - x**2)


def batched_kernel(draws, q):
    return q + 0.1 * draws.normal(q.size).reshape(q.shape)


def adaptive(draws, tune, seed):
    return {"step_size": np.full(draws + tune, 0.1)}


def prior(rng):
    return rng.standard_normal(1)


def simulate(rng, theta):
    return theta + rng.standard_normal(5)


def fit(rng, y):
    return rng.normal(y.sum() / 6, 6**-0.5, (50, 1))


def quantities(theta, y):
    return np.array([((y - theta) ** 2).sum()])


DATA = np.random.default_rng(0).standard_normal((12, 2))


def batch_gradient(q, indices):
    return -q + 12 / len(indices) * (DATA[indices] - q).sum(axis=0)


def full(q):
    return -q + (DATA - q).sum(axis=0)


def langevin(draws, q, eps):
    return q - eps / 2 * q + np.sqrt(eps) * draws.normal(len(q))


def init(rng, q):
    return q


def read(state):
    return state


def first(q):
    return q[..., 0]


def energy_as_invariant(q, p):
    return q[0] * p[1] - q[1] * p[0]


def turned(x):
    return -x


def tightened(delta):
    return step


CASES = [
    Case("integrator", {"step": step, "H": H}, lambda f: rc.integrator(f["step"], f["H"])),
    Case(
        "integrator",
        {
            "step": step,
            "H": H,
            "grad_q": grad_q,
            "grad_p": grad_p,
            "invariant": energy_as_invariant,
            "symmetry": turned,
            "with_tolerance": tightened,
        },
        lambda f: rc.integrator(
            f["step"],
            f["H"],
            dim=2,
            grad_q=f["grad_q"],
            grad_p=f["grad_p"],
            invariants={"invariant": f["invariant"]},
            symmetries=[(f["symmetry"], f["symmetry"])],
            with_tolerance=f["with_tolerance"],
            tolerance=1e-9,
        ),
    ),
    Case(
        "model",
        {"logp": logp, "grad": grad, "hess": hess, "third": third, "trace": trace},
        lambda f: rc.model(f["logp"], f["grad"], f["hess"], f["third"], trace=f["trace"], dim=2),
    ),
    Case("model", {"logp": logp, "grad": grad}, lambda f: rc.model(f["logp"], f["grad"])),
    Case(
        "model",
        {"density": logp, "carried": turned, "change": change},
        lambda f: rc.model(
            logp, grad, dim=2, constrained=(f["density"], f["carried"]), change=f["change"], discontinuous=[1]
        ),
    ),
    Case(
        "metric",
        {
            "G": G,
            "dG": dG,
            "draw_p": draw_p,
            "H": curved,
            "logp": logp,
            "grad_q": curved_q,
            "grad_p": curved_p,
            "log_det": log_det,
            "solve": solve,
            "hessian": hess,
        },
        lambda f: rc.metric(**f, dim=2),
    ),
    Case(
        "metric",
        {"H": curved, "dH": lambda q, p: (curved_q(q, p), curved_p(q, p))},
        lambda f: rc.metric(None, H=f["H"], dH=f["dH"], dim=2),
    ),
    Case("transition", {"kern": with_momentum, "H": H}, lambda f: rc.transition(f["kern"], f["H"], dim=2)),
    Case("transition", {"kern": walk, "logp": logp}, lambda f: rc.transition(f["kern"], f["logp"])),
    Case(
        "transition",
        {"make": make},
        lambda f: rc.transition(make(logp, grad), logp, log_density=logp, gradient=grad, make=f["make"], dim=2),
    ),
    Case(
        "orbit",
        {"transition": tree, "leap": leap, "logp": logp},
        lambda f: rc.orbit(f["transition"], f["leap"], f["logp"], 1, eps=0.3),
    ),
    Case(
        "orbit",
        {"transition": tree, "leap": leap, "H": H},
        lambda f: rc.orbit(f["transition"], f["leap"], None, 1, eps=0.3, dim=2, H=f["H"]),
    ),
    Case(
        "sampler",
        {"kernel": walk, "init": init, "read": read, "function": first},
        lambda f: rc.sampler(
            f["kernel"],
            "normal-2",
            draws=200,
            seconds=60,
            init=f["init"],
            read=f["read"],
            functions={"function": f["function"]},
        ),
    ),
    Case("sampler", {"make": make}, lambda f: rc.sampler(make=f["make"], target="normal-2", draws=200, seconds=60)),
    Case("batch", {"step": step}, lambda f: rc.batch(f["step"])),
    Case("batch", {"kernel": batched_kernel}, lambda f: rc.batch(f["kernel"], dim=2)),
    Case("randomness", {"kernel": walk, "H": logp}, lambda f: rc.randomness(f["kernel"], H=f["H"])),
    Case("adaptation", {"run": adaptive}, lambda f: rc.adaptation(f["run"])),
    Case(
        "sbc",
        {"prior": prior, "simulate": simulate, "fit": fit, "quantities": quantities},
        lambda f: rc.sbc(**f, simulations=60),
    ),
    Case("minibatch", {"gradient": batch_gradient, "full": full}, lambda f: rc.minibatch(**f, n=12, batch_size=4)),
    Case("minibatch", {"step": langevin}, lambda f: rc.minibatch(step=f["step"], precision=np.eye(2))),
]

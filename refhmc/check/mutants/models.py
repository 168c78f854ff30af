"""Planted bugs of log densities and derivatives, each with its corrected counterpart, and unusual code that is right."""

from __future__ import annotations

import functools
import math

import numpy as np

import refhmc.check as rc

from . import Pair

# ---------------------------------------------------------------------- a logistic regression with a normal prior

_DATA = np.random.default_rng(7)
X = np.column_stack([np.ones(20), _DATA.standard_normal((20, 2))])
Y = (_DATA.random(20) < 0.5).astype(float)


def logistic_logp(b):
    eta = X @ b
    return Y @ eta - np.logaddexp(0, eta).sum() - 0.5 * b @ b / 4


def logistic_grad_without_prior(b):
    return X.T @ (Y - 1 / (1 + np.exp(-(X @ b))))


def logistic_grad(b):
    return logistic_grad_without_prior(b) - b / 4


def logistic_hess(b):
    p = 1 / (1 + np.exp(-(X @ b)))
    return -(X.T * (p * (1 - p))) @ X - np.eye(3) / 4


def logistic_third(b, last=X):
    p = 1 / (1 + np.exp(-(X @ b)))
    return -np.einsum("n,ni,nj,nk->ijk", p * (1 - p) * (1 - 2 * p), X, X, last)


# ----------------------------------------------------------------------------------- Neal's funnel and the banana


def funnel_logp(q):
    v, x = q[0], q[1:]
    return -(v**2) / 18 + len(x) * v / 2 - 0.5 * np.exp(v) * (x**2).sum()


def funnel_grad(q):
    v, x = q[0], q[1:]
    g = np.empty_like(q)
    g[0] = -v / 9 + len(x) / 2 - 0.5 * np.exp(v) * (x**2).sum()
    g[1:] = -np.exp(v) * x
    return g


def funnel_grad_clipped(q):
    return np.clip(funnel_grad(q), -10, 10)


NINTH = np.float32(1 / 9)


def funnel_grad_single_constant(q):
    g = funnel_grad(q)
    g[0] += q[0] / 9 - q[0] * float(NINTH)
    return g


def funnel_logp_single_constant(q):
    return funnel_logp(q) + q[0] ** 2 / 18 - 0.5 * float(NINTH) * q[0] ** 2


def funnel_grad_through_single(q):
    return funnel_grad(q).astype(np.float32).astype(np.float64)


def banana_logp(q):
    a, b = q
    return -(a**2) / 2 - (b - a**2 + 1) ** 2 / 0.5


def banana_grad(q):
    a, b = q
    r = (b - a**2 + 1) / 0.25
    return [-a + 2 * a * r, -r]


def banana_grad_half(q):
    return [0.5 * g for g in banana_grad(q)]


def banana_hess(q):
    a, b = q
    return np.array([[-1 + 8 * (b - a**2 + 1) - 16 * a**2, 8 * a], [8 * a, -4.0]])


# ------------------------------------------------------------------- an autoregressive prior: a tridiagonal gradient


def chain_logp(x):
    return -0.5 * x[0] ** 2 - 0.5 * ((x[1:] - 0.8 * x[:-1]) ** 2).sum() / 0.36


def chain_grad(x, shift=0):
    g = np.zeros(len(x))
    e = (x[1:] - 0.8 * x[:-1]) / 0.36
    g[0] -= x[0]
    g[1:] -= e
    g[: len(e)] += 0.8 * np.roll(e, shift)
    return g


# ----------------------------------------------------------- s ~ Gamma(3, 1) as a function of q = log s, and a normal


def gamma_logp_of_s(x):
    return 2 * np.log(x[0]) - x[0] - 0.5 * (x[1] - 1) ** 2


def gamma_transform(q):
    return np.array([np.exp(q[0]), q[1]])


def gamma_logp(q, jacobian=1.0):
    return gamma_logp_of_s(gamma_transform(q)) + jacobian * q[0]


def gamma_grad(q, jacobian=1.0):
    return np.array([2 - np.exp(q[0]) + jacobian, -(q[1] - 1)])


class GammaDraws:
    @staticmethod
    def draw(rng, n):
        return np.column_stack([np.log(rng.gamma(3.0, size=n)), rng.normal(1, 1, n)])


def gamma_logp_normalised(q, jacobian=1.0):
    return gamma_logp(q, jacobian) - math.log(2) - 0.5 * math.log(2 * math.pi)


# ----------------------------------------------------------------------------------------------- state across calls


class Buffered:
    """Gradient that returns its own working array."""

    def __init__(self, copy):
        self.g, self.copy = np.zeros(3), copy

    def __call__(self, q):
        self.g[:] = funnel_grad(q)
        return self.g.copy() if self.copy else self.g


class Cached:
    """Gradient of a regression that uses the linear predictor of the last log density."""

    def __init__(self, refresh):
        self.eta, self.refresh = np.zeros(20), refresh

    def logp(self, b):
        self.eta = X @ b
        return Y @ self.eta - np.logaddexp(0, self.eta).sum() - b @ b / 8

    def grad(self, b):
        eta = X @ b if self.refresh else self.eta
        return X.T @ (Y - 1 / (1 + np.exp(-eta))) - b / 4


def cached(refresh, seed):
    subject = Cached(refresh)
    return rc.model(subject.logp, subject.grad, dim=3, seed=seed)


HALVES = np.random.default_rng(1)


def minibatch_logp(b):
    chosen = HALVES.choice(20, 10, replace=False)
    eta = X[chosen] @ b
    return 2 * (Y[chosen] @ eta - np.logaddexp(0, eta).sum()) - b @ b / 8


# -------------------------------------------------------------------------------------------------- bounded support


def beta_logp(q, bounded=True):
    if bounded and not 0 < q[0] < 1:
        return -np.inf
    return np.log(abs(q[0])) + 2 * np.log(abs(1 - q[0])) - 0.5 * q[1] ** 2


def beta_grad(q):
    return np.array([1 / q[0] - 2 / (1 - q[0]), -q[1]])


BETA_BOX = ([0.0, -np.inf], [1.0, np.inf])


def strict_logp(q):
    return math.log(q[0]) - q[0]  # math.log raises for q <= 0


# --------------------------------------------------------------------------------------------- unusual, but correct


def single_logp(q):
    q = np.asarray(q, np.float32)
    return np.float32(-0.5) * np.sum(q * q * np.array([1, 4, 0.25], np.float32))


def single_grad(q):
    return -np.asarray(q, np.float32) * np.array([1, 4, 0.25], np.float32)


def hidden_single_logp(q):
    return float(single_logp(q))


def hidden_single_grad(q):
    return single_grad(q).astype(float)


SCALES = np.array([1e-6, 1.0, 1e6])


def laplace_logp(q):
    return -np.abs(q).sum()


def laplace_grad(q):
    return -np.sign(q)


def student_logp(q):
    return -2.5 * np.log1p((q**2).sum() / 3)


def student_grad(q):
    return -5 / 3 * q / (1 + (q**2).sum() / 3)


def walls_logp(q):
    """Return the log density of a normal plus a step function, whose gradient is zero."""
    return -0.5 * q @ q - float(np.floor(q[0]))


def _model(*arguments, **options):
    return lambda seed: rc.model(*arguments, seed=seed, **options)


ODD = {
    "float32": _model(single_logp, single_grad, dim=3),
    "float32 inside float64 answers, both": _model(hidden_single_logp, hidden_single_grad, dim=3),
    "gradient as a list": _model(banana_logp, banana_grad, banana_hess),
    "gradient as a tuple, 0-d log density": _model(lambda q: np.array(banana_logp(q)), lambda q: tuple(banana_grad(q))),
    "log density of one element": _model(lambda q: np.array([banana_logp(q)]), banana_grad),
    "value and gradient together": _model(lambda q: (funnel_logp(q), funnel_grad(q))),
    "large additive constant": _model(lambda q: funnel_logp(q) + 1e6, funnel_grad),
    "-inf outside": _model(beta_logp, beta_grad, support=BETA_BOX),
    "-inf outside, support not said": _model(beta_logp, beta_grad, dim=2),
    "kink at zero": _model(laplace_logp, laplace_grad, dim=2),
    "scales 1e-6 to 1e6": _model(lambda q: -0.5 * ((q / SCALES) ** 2).sum(), lambda q: -q / SCALES**2),
    "steep funnel": _model(
        lambda q: -0.5 * q[0] ** 2 - 0.5 * np.exp(8 * q[0]) * q[1] ** 2 + 4 * q[0],
        lambda q: np.array([-q[0] - 4 * np.exp(8 * q[0]) * q[1] ** 2 + 4, -np.exp(8 * q[0]) * q[1]]),
    ),
    "heavy tails": _model(student_logp, student_grad, dim=3),
    "far from the origin": _model(lambda q: -0.5 * ((q - 1e5) ** 2).sum() / 4, lambda q: -(q - 1e5) / 4, dim=3),
    "steps": _model(walls_logp, lambda q: -q, dim=2),
    "integers in, naive sigmoid": _model(logistic_logp, logistic_grad, logistic_hess, logistic_third),
    "float32 constant in both": _model(funnel_logp_single_constant, funnel_grad_single_constant, dim=3),
}


GAMMA = {"constrained": (gamma_logp_of_s, gamma_transform)}
LOGISTIC = _model(logistic_logp, logistic_grad, logistic_hess, logistic_third)
FUNNEL = _model(funnel_logp, funnel_grad, dim=3)
INEFFICIENT, CALL_FAILED = "inefficient", "call failed"


def _without_jacobian(logp=gamma_logp, **known):
    return tuple(
        _model(functools.partial(logp, jacobian=j), functools.partial(gamma_grad, jacobian=j), dim=2, **known)
        for j in (0.0, 1.0)
    )


PAIRS: list[Pair] = [
    Pair(
        "P13", "Jacobian of a log transform missing in logp and gradient", *_without_jacobian(**GAMMA), ("normaliser",)
    ),
    Pair("P13-draws", "the same, found by exact draws", *_without_jacobian(reference=GammaDraws), ("exact draws",)),
    Pair(
        "P13-integral",
        "the same, found by quadrature",
        *_without_jacobian(gamma_logp_normalised, normalised=True),
        ("normaliser",),
    ),
    Pair(
        "P14",
        "gradient clipped at 10",
        _model(funnel_logp, funnel_grad_clipped, dim=3),
        FUNNEL,
        ("gradient at large points",),
        INEFFICIENT,
    ),
    Pair(
        "P14-norm",
        "length of the gradient clipped at 10",
        _model(logistic_logp, lambda b: logistic_grad(b) * min(1, 10 / np.linalg.norm(logistic_grad(b)))),
        LOGISTIC,
        ("gradient at large points",),
        INEFFICIENT,
    ),
    Pair(
        "P15",
        "float32 constant inside a float64 gradient",
        _model(funnel_logp, funnel_grad_single_constant, dim=3),
        ODD["float32 constant in both"],
        ("gradient precision",),
        INEFFICIENT,
    ),
    Pair(
        "single-gradient",
        "gradient rounded to float32 internally",
        _model(funnel_logp, funnel_grad_through_single, dim=3),
        FUNNEL,
        ("gradient precision",),
        INEFFICIENT,
    ),
    Pair(
        "sign",
        "gradient of the potential",
        _model(logistic_logp, lambda b: -logistic_grad(b)),
        LOGISTIC,
        ("gradient",),
        INEFFICIENT,
    ),
    Pair(
        "half",
        "gradient a half",
        _model(banana_logp, banana_grad_half),
        ODD["gradient as a list"],
        ("gradient",),
        INEFFICIENT,
    ),
    Pair(
        "prior",
        "prior missing in the gradient",
        _model(logistic_logp, logistic_grad_without_prior),
        LOGISTIC,
        ("gradient",),
        INEFFICIENT,
    ),
    Pair(
        "off-by-one",
        "neighbour's term off by one in a tridiagonal gradient",
        _model(chain_logp, functools.partial(chain_grad, shift=1), dim=5),
        _model(chain_logp, chain_grad, dim=5),
        ("gradient",),
        INEFFICIENT,
    ),
    Pair(
        "parametrisation",
        "gradient with respect to s, not to log s",
        _model(gamma_logp, lambda q: np.array([3 / np.exp(q[0]) - 1, -(q[1] - 1)]), dim=2),
        _model(gamma_logp, gamma_grad, dim=2),
        ("gradient",),
        INEFFICIENT,
    ),
    Pair(
        "hessian-sign",
        "Hessian of -logp",
        _model(logistic_logp, logistic_grad, lambda b: -logistic_hess(b)),
        LOGISTIC,
        ("hessian",),
        INEFFICIENT,
    ),
    Pair(
        "third",
        "third derivative not symmetric",
        _model(logistic_logp, logistic_grad, logistic_hess, functools.partial(logistic_third, last=X**2)),
        LOGISTIC,
        ("third derivative", "third derivative symmetric"),
    ),
    Pair(
        "buffer",
        "gradient returns its working array",
        _model(funnel_logp, Buffered(False), dim=3),
        _model(funnel_logp, Buffered(True), dim=3),
        ("earlier answers stay",),
        CALL_FAILED,
    ),
    Pair(
        "cache",
        "gradient uses values of logp from another point",
        functools.partial(cached, False),
        functools.partial(cached, True),
        ("deterministic", "gradient"),
        INEFFICIENT,
    ),
    Pair(
        "minibatch",
        "log density of a random half of the data",
        _model(minibatch_logp, logistic_grad, dim=3),
        LOGISTIC,
        ("deterministic",),
    ),
    Pair(
        "support",
        "finite outside its support",
        _model(functools.partial(beta_logp, bounded=False), beta_grad, support=BETA_BOX, dim=2),
        ODD["-inf outside"],
        ("support",),
    ),
    Pair(
        "raises-outside",
        "raises outside its support",
        _model(strict_logp, lambda q: 1 / q - 1, support=(0.0, np.inf), dim=1),
        _model(lambda q: strict_logp(q) if q[0] > 0 else -np.inf, lambda q: 1 / q - 1, support=(0.0, np.inf), dim=1),
        ("support",),
        CALL_FAILED,
    ),
    Pair(
        "indefinite",
        "Hessian of a banana as its metric",
        _model(banana_logp, banana_grad, banana_hess, metric=lambda q: -banana_hess(q)),
        _model(logistic_logp, logistic_grad, logistic_hess, metric=lambda b: -logistic_hess(b)),
        ("metric",),
    ),
]

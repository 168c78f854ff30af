"""Planted bugs that other projects reported, with corrected counterparts, in plain NumPy.

These have no place among the bugs of one area; ``docs/bugs_of_the_field.md`` lists them with their references.
"""

from __future__ import annotations

import functools
import math

import numpy as np

import refhmc.check as rc

from . import Pair, random_data
from .orbits import IterativeNUTS
from .samplers import DISTRIBUTION, ENOUGH, WITH_MOMENTUM
from .transitions import BALANCE, EPS, STEPS, energy, grad, hmc, leapfrog, logp, pair_of

# --------------------------------------------------------------------------------------------------- Metropolis ratios


def mala(bug="", tau=0.3, noise="normal"):
    """Langevin's proposal x = q + tau/2 grad log pi(q) + sqrt(tau) z, for normal z or independent t_2.

    The Metropolis ratio has the proposal's density there and back, log g((x - q - tau/2 grad log pi(q)) / sqrt(tau)), g that
    of the noise; wrong with a ``bug``.
    """
    drift, variance = (tau, 4 * tau) if bug == "another step" else (0.5 * tau, tau)

    def log_density_of_noise(z):
        if noise == "normal" or bug == "normal density":
            return -0.5 * z @ z
        return -1.5 * np.sum(np.log1p(z**2 / 2))

    def log_proposal(new, old):
        return log_density_of_noise((new - old - drift * grad(old)) / math.sqrt(variance))

    def kernel(draws, q):
        z = draws.normal(2) if noise == "normal" else np.array([student(draws.uniform()), student(draws.uniform())])
        x = q + 0.5 * tau * grad(q) + math.sqrt(tau) * z
        correction = log_proposal(q, x) - log_proposal(x, q)
        if bug == "exchanged":
            correction = -correction
        return x if math.log(draws.uniform()) < logp(x) - logp(q) + correction else q

    return kernel


def student(u):
    """Return the quantile u of a t distribution with two degrees of freedom."""
    return (2 * u - 1) / math.sqrt(2 * u * (1 - u))


def barker_proposal(symmetric, scale=0.8):
    """Livingstone and Zanella's proposal: q + b z, where b = 1 with probability 1 / (1 + exp(-z d log pi(q))), else -1.

    Its densities there and back have the ratio prod_i (1 + exp(-y_i g_i(q))) / (1 + exp(y_i g_i(x))), with y = x - q and g the
    gradient of log pi; ``symmetric`` leaves it out.
    """

    def kernel(draws, q):
        z, g = scale * draws.normal(2), grad(q)
        signs = np.array([1.0 if draws.flip(-np.logaddexp(0, -a)) else -1.0 for a in z * g])
        x = q + signs * z
        y = x - q
        correction = np.sum(np.logaddexp(0, -y * g) - np.logaddexp(0, y * grad(x)))
        ratio = logp(x) - logp(q) + (0.0 if symmetric else correction)
        return x if math.log(draws.uniform()) < ratio else q

    return kernel


def last_step(draws, q):
    """HMC that compares the last two states of the trajectory, and goes back to the last but one."""
    before = leapfrog(q, draws.normal(2), EPS, STEPS - 1)
    after = leapfrog(*before, EPS, 1)
    return after[0] if math.log(draws.uniform()) < energy(*before) - energy(*after) else before[0]


MASS = np.array([2.0, 0.5])


def massive(variance):
    """HMC with the kinetic energy p' M p / 2 of N(0, M^-1), whose momentum has the given variances."""

    def kernel(draws, q):
        p = np.sqrt(variance) * draws.normal(2)
        x, r = q, p
        for _ in range(3):
            r = r + 0.15 * grad(x)
            x = x + 0.3 * MASS * r
            r = r + 0.15 * grad(x)
        drop = logp(x) - logp(q) + 0.5 * (p @ (MASS * p) - r @ (MASS * r))
        return x if math.log(draws.uniform()) < drop else q

    return kernel


# ------------------------------------------------------------------------------------------- Jacobians of transforms


def two_gammas(summed):
    """Log density of q_i = log s_i for s_i ~ Gamma(3, 1): each element log pi(s_i) + q_i; ``summed``: + sum_j q_j."""

    def log_density(q):
        of_elements = 2 * q - np.exp(q)
        return float(np.sum(of_elements + (np.sum(q) if summed else q)))

    return log_density


def two_gammas_grad(summed):
    return lambda q: 2 - np.exp(q) + (2.0 if summed else 1.0)


def sigmoid(q):
    return 1 / (1 + np.exp(-q))


def beta_of_x(x):
    return float(np.sum(np.log(x) + 2 * np.log1p(-x)))


def log_sigmoid(q):
    return -np.logaddexp(0.0, -q)


def beta_of_logit(jacobian_at):
    """Log density of q = logit x for x_i ~ Beta(2, 3), with log |dx/dq| = log s(q) + log s(-q) taken at ``jacobian_at(q)``."""

    def log_density(q):  # log(1 - x) would cancel at large q
        at = jacobian_at(q)
        return float(np.sum(log_sigmoid(q) + 2 * log_sigmoid(-q) + log_sigmoid(at) + log_sigmoid(-at)))

    return log_density


def beta_of_logit_grad(at_x):
    def gradient(q):
        x = sigmoid(q)
        jacobian = (1 - 2 * sigmoid(x)) * x * (1 - x) if at_x else 1 - 2 * x
        return 1 - x - 2 * x + jacobian

    return gradient


def model(log_density, gradient, constrained):
    return lambda seed: rc.model(log_density, gradient, dim=2, constrained=constrained, seed=seed)


GAMMAS = (lambda s: float(np.sum(2 * np.log(s) - s)), np.exp)
BETAS = (beta_of_x, sigmoid)


# -------------------------------------------------------------------------------------------- transitions given data


def subset_of_data(theta, y):
    """Log posterior in which one fixed subset, scaled up, stands for all data."""
    return random_data.log_prior(theta) + len(y) / 2 * random_data.log_likelihood(theta, y[:2])


def dispersion_twice(theta, y):
    """Log posterior whose likelihood, which has the dispersion already, is divided by it."""
    return random_data.log_prior(theta) + random_data.log_likelihood(theta, y) * math.exp(-2 * theta[1])


def simulate_shares(rng):
    z = rng.standard_normal(2)
    return sigmoid(z), rng.normal(z, 1.0)


def shares_likelihood(x, y):
    return -0.5 * float(np.sum((y - np.log(x / (1 - x))) ** 2))


def shares(sign):
    """Log posterior of x in (0, 1)^2 with a logit-normal prior, whose log Jacobian -log x (1 - x) has the given sign."""

    def log_density(x, y):
        if not np.all((x > 0) & (x < 1)):
            return -np.inf
        prior = -0.5 * np.sum(np.log(x / (1 - x)) ** 2) - sign * np.sum(np.log(x) + np.log1p(-x))
        return float(prior) + shares_likelihood(x, y)

    return random_data.walk(log_density, width=0.25)


@functools.cache
def shares_report(sign, seed):
    given = shares(sign)
    return rc.transition_with_data(
        simulate_shares, given, reversible=True, seconds=None, quantities=shares_likelihood, seed=seed
    )


# ---------------------------------------------------------------------------------------------- a discrete variable

SUPPORT = np.array([[1.0], [2.0], [3.0]])
LOG_WEIGHTS = {1.0: 0.0, 2.0: 0.7, 3.0: -0.4}


def log_weight(k):
    return LOG_WEIGHTS.get(float(k[0]), -np.inf)


def one_of_three(values):
    """Metropolis on the support {1, 2, 3} with a proposal drawn from ``values``, accepted by the weights of its index."""

    def kernel(draws, k):
        i = draws.choice(3)
        new = np.array([values[i]])
        ratio = log_weight(SUPPORT[i]) - max(log_weight(k), -10.0)
        return new if draws.flip(ratio) else k

    return kernel


@functools.cache
def discrete_report(values, seed):
    return rc.grid(one_of_three(values), SUPPORT, log_weight, seed=seed, least=0.02)


# ------------------------------------------------------------------------------------------------- whole samplers


class ThreeNormals:
    """Mixture of three normals that overlap: the marginal of q for a component k."""

    name, law = "three normals", "sum_k w_k N(m_k, s_k^2)"
    log_w, m, s = np.log([0.5, 0.3, 0.2]), np.array([-1.0, 0.5, 2.0]), np.array([1.0, 0.7, 1.3])

    def joint(self, q):
        """Return the log densities of (q, k) for every k, in the last axis."""
        return self.log_w - np.log(self.s) - 0.5 * ((q - self.m) / self.s) ** 2

    def log_density(self, q):
        return np.logaddexp.reduce(self.joint(q), axis=-1)

    def draw(self, rng, n):
        k = rng.choice(3, size=n, p=np.exp(self.log_w))
        return rng.normal(self.m[k], self.s[k])[:, None]

    def component(self, rng, q):
        """Return q with a draw of its component."""
        return q, np.argmax(self.joint(q) + rng.gumbel(size=(len(q), 3)), axis=-1)


def mixed_hmc(target, proposal_energy, eps=0.6, rounds=3):
    """Mixed HMC (Zhou 2020) for q and k: half a leapfrog step, an update of k, half a leapfrog step, some times over.

    The update proposes another component k' in proportion to its probability given q, and its kinetic energy e ~ Exp(1) pays
    for D = log (1 - pi_k') - log (1 - pi_k). It is exact, so that the final test only has the energy error of the leapfrog
    steps, the change of the energy without those by the updates, U(k') - U(k); with ``proposal_energy`` wrongly without D.
    """

    def leap(q, p, k):
        m, s = target.m[k][:, None], target.s[k][:, None]
        half = p - 0.25 * eps * (q - m) / s**2
        q = q + 0.5 * eps * half
        return q, half - 0.25 * eps * (q - m) / s**2

    def kernel(rng, state):
        q, k = state
        n, rows = len(q), np.arange(len(q))
        p, e = rng.standard_normal(q.shape), rng.exponential(size=n)
        x, c, r, change = q, k, p, np.zeros(n)
        for _ in range(rounds):
            x, r = leap(x, r, c)
            logs = target.joint(x)
            chance = np.exp(logs - np.logaddexp.reduce(logs, axis=-1)[:, None])
            others = np.where(np.arange(3) == c[:, None], -np.inf, logs)
            new = np.argmax(others + rng.gumbel(size=(n, 3)), axis=-1)
            pays = np.log1p(-chance[rows, new]) - np.log1p(-chance[rows, c])
            goes = e > pays
            rise = pays if proposal_energy else logs[rows, c] - logs[rows, new]
            e, change = np.where(goes, e - pays, e), change + np.where(goes, rise, 0.0)
            x, r = leap(x, r, np.where(goes, new, c))
            c = np.where(goes, new, c)
        error = target.joint(q)[rows, k] - target.joint(x)[rows, c] + 0.5 * np.sum(r * r - p * p, axis=-1) - change
        accept = np.log(rng.random(n)) < -error
        return np.where(accept[:, None], x, q), np.where(accept, c, k)

    return kernel


def mixed_report(proposal_energy, seed, draws=None):
    t = ThreeNormals()
    kernel = mixed_hmc(t, proposal_energy)
    more = {"init": t.component, "read": lambda state: state[0], "draws": draws, "seconds": 60, "seed": seed}
    return rc.sampler(kernel, t, batched=True, name="mixed_hmc", **more)


def baoab(t, last_twice, eps=0.05, friction=1.0):
    """Langevin steps in two parts, half a kick to the last drift, and half a kick; ``last_twice``: the second part is both."""
    c = math.exp(-friction * eps)

    def most(rng, q, p):
        p = p + 0.5 * eps * t.gradient(q)
        q = q + 0.5 * eps * p
        p = c * p + math.sqrt(1 - c * c) * rng.standard_normal(p.shape)
        return q + 0.5 * eps * p, p

    def kick(rng, q, p):
        return q, p + 0.5 * eps * t.gradient(q)

    def kernel(rng, state):
        return kick(rng, *(kick if last_twice else most)(rng, *state))

    return kernel


def baoab_report(last_twice, seed):
    t = rc.targets.from_name("gaussian")
    return rc.sampler(
        baoab(t, last_twice), t, batched=True, draws=ENOUGH, seconds=60, seed=seed, name="baoab", **WITH_MOMENTUM
    )


def stored_states_report(bug, seed):
    t = rc.targets.from_name("normal-2")
    nuts = IterativeNUTS(t.log_density, t.gradient, 0.6, 4, **{bug: True})

    def kernel(rng, q):
        return nuts(rng, q, rng.standard_normal(len(q)))

    return rc.sampler(kernel, t, draws=320, seconds=60, seed=seed, name="IterativeNUTS")


NORMALISER = ("normaliser",)
PAIRS: list[Pair] = [
    pair_of(
        "blackjax#653",
        "Langevin's proposal densities there and back are exchanged",
        lambda: mala("exchanged"),
        mala,
        BALANCE,
    ),
    pair_of(
        "BAT.jl#532",
        "Langevin's proposal has drift tau/2 and variance tau, but its density tau and 4 tau",
        lambda: mala("another step"),
        mala,
        BALANCE,
    ),
    pair_of(
        "BAT.jl#564",
        "Langevin's proposal has noise of a t distribution, its correction that of a normal",
        lambda: mala("normal density", noise="t"),
        lambda: mala(noise="t"),
        (*BALANCE, "stationarity"),
    ),
    pair_of(
        "CalibrateEmulateSample#448",
        "Barker's proposal is accepted as if it were symmetric",
        lambda: barker_proposal(True),
        lambda: barker_proposal(False),
        BALANCE,
    ),
    pair_of(
        "Pigeons.jl#135",
        "the momentum is from N(0, M), the leapfrog steps and the energy are for N(0, M^-1)",
        lambda: massive(MASS),
        lambda: massive(1 / MASS),
        BALANCE,
    ),
    pair_of(
        "keanu#33",
        "a rejection returns the last state but one, with which the energy is compared",
        lambda: last_step,
        lambda: hmc,
        (*BALANCE, "rejection returns the start", "stationarity"),
    ),
    Pair(
        "pymc#800",
        "the sum of the log Jacobians is added to the log density of each element",
        model(two_gammas(True), two_gammas_grad(True), GAMMAS),
        model(two_gammas(False), two_gammas_grad(False), GAMMAS),
        NORMALISER,
    ),
    Pair(
        "aeppl#30",
        "the Jacobian of a transform is taken at the transformed value",
        model(beta_of_logit(sigmoid), beta_of_logit_grad(True), BETAS),
        model(beta_of_logit(lambda q: q), beta_of_logit_grad(False), BETAS),
        NORMALISER,
    ),
    Pair(
        "NoLimits.jl#283",
        "the log Jacobian of a logit-normal prior has the wrong sign",
        functools.partial(shares_report, -1),
        functools.partial(shares_report, 1),
        ("ranks", "stationarity"),
    ),
    random_data.pair(
        "numpyro#1293", "one subset stands for all data in all transitions", random_data.walk(subset_of_data)
    ),
    random_data.pair("gam#680", "the dispersion is counted twice", random_data.walk(dispersion_twice)),
    Pair(
        "numpyro#1834",
        "a discrete variable is proposed by its index, not by its value",
        functools.partial(discrete_report, (0.0, 1.0, 2.0)),
        functools.partial(discrete_report, (1.0, 2.0, 3.0)),
        ("stays on the grid", "irreducible", "invariance"),
    ),
    Pair(
        "numpyro#826",
        "the final test of mixed HMC subtracts the energy of proposals instead of the change of the potential",
        functools.partial(mixed_report, True),
        functools.partial(mixed_report, False, draws=ENOUGH),
        DISTRIBUTION,
    ),
    Pair(
        "SGMCMCJax#69",
        "the second part of a Langevin step is used in place of the first, so that the position never moves",
        functools.partial(baoab_report, True),
        functools.partial(baoab_report, False),
        ("moves",),
        "inefficient",
    ),
    Pair(
        "aehmc#45",
        "a leaf that completes no subtree counts as a U-turn",
        functools.partial(stored_states_report, "even leaves turn"),
        functools.partial(stored_states_report, ""),
        ("moves",),
        "inefficient",
    ),
]

"""Planted bugs of stochastic gradients and of their samplers, in plain NumPy."""

from __future__ import annotations

import numpy as np

import refhmc.check as rc

from . import Pair

N, DIM = 30, 3
rng = np.random.default_rng(7)
X = rng.standard_normal((N, DIM))
Y = (rng.random(N) < 0.5).astype(float)
PRIOR = 0.25
COVARIANCE = np.array([[2.0, 0.6], [0.6, 0.5]])
PRECISION = np.linalg.inv(COVARIANCE)


def terms(q, rows):
    """Gradients of the log likelihood of single observations in logistic regression."""
    return (Y[rows] - 1 / (1 + np.exp(-X[rows] @ q)))[:, None] * X[rows]


def full(q):
    return -PRIOR * q + terms(q, np.arange(N)).sum(axis=0)


def estimator(bug=None):
    def gradient(q, batch):
        data = terms(q, batch)
        scale = N / len(batch)
        if bug == "inverse":
            scale = len(batch) / N
        if bug == "unscaled":
            scale = 1.0
        if bug == "last left out":
            data, scale = data[:-1], N / (len(batch) - 1) * (len(batch) - 1) / len(batch)
        prior = -PRIOR * q
        if bug == "prior scaled too":
            prior = prior * scale
        if bug == "prior missing":
            prior = 0 * q
        return prior + scale * data.sum(axis=0)

    return gradient


CENTRE = np.array([0.3, -0.2, 0.1])
AT_CENTRE = terms(CENTRE, np.arange(N)).sum(axis=0)


def control_variate(q, batch):
    """Return a correct gradient with a control variate: its difference from the gradient at a fixed centre."""
    return -PRIOR * q + AT_CENTRE + N / len(batch) * (terms(q, batch) - terms(CENTRE, batch)).sum(axis=0)


def with_repeats(q, batch):
    """Return a correct gradient for any order of indices, with or without repetition."""
    counts = np.bincount(batch, minlength=N)
    return -PRIOR * q + N / counts.sum() * counts @ terms(q, np.arange(N))


# -------------------------------------------------------------------------------------------------------- batches of a split


def likelihood(q, rows):
    """Log likelihood of single observations in logistic regression."""
    return Y[rows] * (X[rows] @ q) - np.log1p(np.exp(X[rows] @ q))


def split(bug=None):
    """Return a function from M to M parts, pairs of a log density and its gradient."""

    def parts(M):
        rows = np.array_split(np.arange(N), M)
        if bug == "remainder":
            rows = [np.arange(m * (N // M), (m + 1) * (N // M)) for m in range(M)]
        share = 1.0 if bug == "prior" else 1.0 / M
        made = []
        for m in range(M):
            of_gradient = rows[m - 1] if bug == "another's" else rows[m]
            in_density = M * share if bug == "prior of the potential" else share

            def density(q, own=rows[m], share=in_density):
                return -0.5 * share * PRIOR * q @ q + likelihood(q, own).sum()

            def gradient(q, own=of_gradient):
                return -share * PRIOR * q + terms(q, own).sum(axis=0)

            made.append((density, gradient))
        return made

    return parts


def bound_late(M):
    """Return parts that read the loop variable when called, so that all use the last batch."""
    made = []
    for batch in np.array_split(np.arange(N), M):
        made.append(lambda q: -PRIOR / M * q + terms(q, batch).sum(axis=0))  # noqa: B023
    return made


def bound_early(M):
    return [
        lambda q, batch=batch: -PRIOR / M * q + terms(q, batch).sum(axis=0) for batch in np.array_split(np.arange(N), M)
    ]


def handed_out(M):
    """Return parts that use the next batch in each call."""
    batches, asked = np.array_split(np.arange(N), M), [0]

    def gradient(q):
        asked[0] += 1
        return -PRIOR / M * q + terms(q, batches[asked[0] % M]).sum(axis=0)

    return [gradient] * M


def network(q, inputs, targets):
    """Gradient of the log likelihood of y ~ N(v tanh(a x + b), 1/9), x (n,); q = (a, b, v)."""
    hidden = np.tanh(q[0] * inputs + q[1])
    error = 9 * (targets - q[2] * hidden)
    inner = error * q[2] * (1 - hidden**2)
    return np.array([inner @ inputs, inner.sum(), error @ hidden])


INPUTS, TARGETS = np.sort(rng.normal(1.0, 2.0, N)), rng.normal(size=N)


class Normalised:
    """Network whose inputs are normalized by the "batch" mean, a "running" mean of batches, or the mean of all data."""

    def __init__(self, by, momentum=0.1):
        self.by, self.momentum, self.mean, self.deviation = by, momentum, INPUTS.mean(), INPUTS.std()

    def normalised(self, x):
        if self.by == "running":
            self.mean += self.momentum * (x.mean() - self.mean)
            self.deviation += self.momentum * (x.std() - self.deviation)
        mean, deviation = (x.mean(), x.std()) if self.by == "batch" else (self.mean, self.deviation)
        return (x - mean) / (deviation + 1e-3)

    def part(self, rows, share, scale=1.0):
        return lambda q: -share * PRIOR * q + scale * network(q, self.normalised(INPUTS[rows]), TARGETS[rows])

    def parts(self, M):
        return [self.part(rows, 1 / M) for rows in np.array_split(np.arange(N), M)]

    def full(self, q):
        return self.part(np.arange(N), 1.0)(q)

    def estimate(self, q, batch):
        return self.part(batch, 1.0, N / len(batch))(q)


# ------------------------------------------------------------------------------------------------------------------- steps


def gaussian(q):
    return -PRECISION @ (q - 1.0)


def langevin(drift, variance):
    def step(rng, q, eps):
        return q + drift * eps * gaussian(q) + rng.normal(scale=np.sqrt(variance(eps)), size=len(q))

    return step


def preconditioned(wrong):
    root = np.linalg.cholesky(COVARIANCE)

    def step(draws, q, eps):
        noise = draws.normal(len(q))
        return q + 0.5 * eps * COVARIANCE @ gaussian(q) + np.sqrt(eps) * (noise if wrong else root @ noise)

    return step


def with_friction(factor, friction=2.0):
    def step(draws, q, p, eps):
        q = q + eps * p
        p = p + eps * gaussian(q) - eps * friction * p + np.sqrt(factor * friction * eps) * draws.normal(len(q))
        return q, p

    return step


def scale_for_variance(draws, q, p, eps):
    """Return a step whose noise has standard deviation 2 eps friction; this should be the variance."""
    q = q + eps * p
    return q, p + eps * gaussian(q) - 2.0 * eps * p + 2.0 * eps * 2.0 * draws.normal(len(q))


def noise_in_the_loss(wrong):
    """Step against the gradient of U + s z'q for z ~ N(0, I): s = sqrt(2 / eps), wrongly 2 eps."""

    def step(draws, q, eps):
        scale = 2 * eps if wrong else np.sqrt(2 / eps)
        return q - eps * (-gaussian(q) + scale * draws.normal(len(q)))

    return step


TEMPERATURE = 3.0


def tempered(wrong, friction=2.0):
    """Step with friction for the density to the power 1 / T: noise of variance 2 T F eps, wrongly with T^2."""
    factor = TEMPERATURE**2 if wrong else TEMPERATURE
    return with_friction(2 * factor, friction)


def splitting(draws, q, p, eps):
    """Correct: half kick, half drift, exact friction, half drift, half kick."""
    p = p + 0.5 * eps * gaussian(q)
    q = q + 0.5 * eps * p
    c = np.exp(-1.5 * eps)
    p = c * p + np.sqrt(1 - c * c) * draws.normal(len(p))
    q = q + 0.5 * eps * p
    return q, p + 0.5 * eps * gaussian(q)


def of_gradient(gradient, size=6):
    return lambda seed: rc.minibatch(gradient, full, N, size, dim=DIM, seed=seed)


def of_step(step, temperature=1.0):
    return lambda seed: rc.minibatch(full=gaussian, step=step, precision=PRECISION / temperature, dim=2, seed=seed)


def of_split(parts):
    return lambda seed: rc.minibatch(full=full, n=N, parts=parts, dim=DIM, seed=seed)


def of_network(by, size=None):
    """Examine a network for every M; ``size``: the size of the batches."""

    def examine(seed):
        net = Normalised(by)
        if size is None:
            return rc.minibatch(parts=net.parts, dim=DIM, seed=seed)
        return rc.minibatch(net.estimate, net.full, N, size, dim=DIM, seed=seed)

    return examine


HALF, WHOLE = langevin(0.5, lambda eps: eps), langevin(1.0, lambda eps: 2 * eps)
MEAN, LAW = ("mean over batches",), ("stationary as eps -> 0",)
SUM, MEMORY = ("sum of the parts",), ("no memory",)
PAIRS = [
    Pair("P24", "data scaled by n/N instead of N/n", of_gradient(estimator("inverse")), of_gradient(estimator()), MEAN),
    Pair("P24b", "noise eps instead of sqrt(2 eps)", of_step(langevin(1.0, lambda e: e * e)), of_step(WHOLE), LAW),
    Pair("B01", "batch not scaled up", of_gradient(estimator("unscaled"), 2), of_gradient(estimator(), 2), MEAN),
    Pair(
        "B02",
        "prior scaled with the batch",
        of_gradient(estimator("prior scaled too")),
        of_gradient(control_variate),
        MEAN,
    ),
    Pair("B03", "prior missing", of_gradient(estimator("prior missing")), of_gradient(with_repeats), MEAN),
    Pair(
        "B04", "last of the batch left out", of_gradient(estimator("last left out")), of_gradient(estimator(), 1), MEAN
    ),
    Pair("B05", "drift eps with noise of variance eps", of_step(langevin(1.0, lambda e: e)), of_step(HALF), LAW),
    Pair(
        "B06",
        "the drift is preconditioned, the noise is not",
        of_step(preconditioned(True)),
        of_step(preconditioned(False)),
        LAW,
    ),
    Pair(
        "B07",
        "noise of the friction without the factor 2",
        of_step(with_friction(1.0)),
        of_step(with_friction(2.0)),
        LAW,
    ),
    Pair(
        "B08",
        "the noise has variance eps^2 for a drift of eps/2",
        of_step(langevin(0.5, lambda e: e * e)),
        of_step(splitting),
        LAW,
    ),
    Pair(
        "B09",
        "noise with standard deviation 2 eps friction instead of variance",
        of_step(scale_for_variance),
        of_step(with_friction(2.0)),
        LAW,
    ),
    Pair(
        "csgmcmc#1",
        "the noise in the loss has standard deviation 2 eps instead of sqrt(2 / eps)",
        of_step(noise_in_the_loss(True)),
        of_step(noise_in_the_loss(False)),
        LAW,
    ),
    Pair(
        "blackjax#540",
        "the noise at temperature T has T times the standard deviation, not sqrt(T) times",
        of_step(tempered(True), TEMPERATURE),
        of_step(tempered(False), TEMPERATURE),
        LAW,
    ),
    Pair("B10", "prior counted once in each of M parts", of_split(split("prior")), of_split(split()), SUM),
    Pair(
        "B11",
        "prior of the potential counted M times, of the gradient once",
        of_split(split("prior of the potential")),
        of_split(split()),
        ("sum of the potentials",),
    ),
    Pair("B12", "remaining rows dropped", of_split(split("remainder")), of_split(split()), SUM),
    Pair("B13", "each part on the last batch", of_split(bound_late), of_split(bound_early), SUM),
    Pair(
        "B14",
        "gradient of another batch than the potential",
        of_split(split("another's")),
        of_split(split()),
        ("gradients of the parts",),
    ),
    Pair("B15", "each call uses the next batch", of_split(handed_out), of_split(bound_early), MEMORY),
    Pair("B16", "inputs normalised by their batch, in a split", of_network("batch"), of_network("all"), SUM),
    Pair("B17", "inputs normalised by a running mean, in a split", of_network("running"), of_network("all"), MEMORY),
    Pair("B18", "inputs normalised by their batch", of_network("batch", 2), of_network("all", 2), MEAN),
    Pair("B19", "inputs normalised by a running mean", of_network("running", 6), of_network("all", 6), MEMORY),
]

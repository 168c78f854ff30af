"""Planted bugs of warm-up, with corrected counterparts: a small HMC with Stan's adaptation, in plain NumPy."""

from __future__ import annotations

import functools
import math

import numpy as np

import refhmc.check as rc

from . import Pair

SCALES = np.array([0.2, 1.0, 5.0])


class DualAveraging:
    """Nesterov's dual averaging; ``two_steps``: the average mixes the last two steps, and not itself with the last one."""

    def __init__(self, eps, target=0.8, first_count=0, gamma=0.05, two_steps=False):
        self.mu, self.target, self.gamma, self.two_steps = math.log(10 * eps), target, gamma, two_steps
        self.count, self.h, self.log_eps, self.log_bar = first_count, 0.0, math.log(eps), 0.0

    def update(self, accept):
        self.count += 1
        w = 1 / (self.count + 10)
        self.h = (1 - w) * self.h + w * (self.target - accept)
        before = self.log_eps if self.two_steps else self.log_bar
        self.log_eps = self.mu - math.sqrt(self.count) / self.gamma * self.h
        eta = self.count**-0.75
        self.log_bar = eta * self.log_eps + (1 - eta) * before


class Variance:
    """Welford's sums."""

    def __init__(self, d):
        self.n, self.mean, self.m2 = 0, np.zeros(d), np.zeros(d)

    def add(self, q):
        self.n += 1
        delta = q - self.mean
        self.mean += delta / self.n
        self.m2 += delta * (q - self.mean)

    def result(self, shrink=True):
        var = self.m2 / (self.n - 1)
        return self.n / (self.n + 5) * var + 1e-3 * 5 / (self.n + 5) if shrink else var


class Jittered:
    """Steps within 10 % of a nominal one; the adapted step is the nominal one, or wrongly the ``drawn`` one."""

    def __init__(self, nominal, adapted="nominal"):
        self.nominal = self.drawn = nominal
        self.adapted = adapted

    def adapt(self, eps):
        setattr(self, self.adapted, eps)

    def draw(self, rng):
        self.drawn = self.nominal * rng.uniform(0.9, 1.1)
        return self.drawn


def sampler(
    *,
    stops=True,
    metric_stops=True,
    averaged=True,
    averages_early=False,
    target=0.8,
    accept_or_not=False,
    first_step=lambda rng, q: 0.1,
    empty_average=False,
    exchanged=False,
    shrink=True,
    jitter=False,
    gamma=0.05,
    restarts=True,
    last=50,
    integrator=None,
):
    """Return ``run(draws, tune, seed)`` of HMC on a normal distribution with standard deviations ``SCALES``.

    ``last`` is the number of iterations after the last window. If there are none, ``empty_average`` takes the average of the
    recursion that starts there. With an ``integrator``, its nominal step is recorded.
    """

    def run(draws, tune, seed):
        rng = np.random.default_rng(seed)
        q, inverse = 0.1 * np.ones(3), np.ones(3)
        average = DualAveraging(first_step(rng, q), target, gamma=gamma)
        window, steps = Variance(3), integrator and integrator(0.1)
        learns = {stop for kind, _, stop in schedule(True, last)(tune) if kind == "slow"}
        record = {name: [] for name in ("step_size", "inverse_metric", "acceptance_rate", "q")}
        final = 0.1
        for i in range(tune + draws):
            adapting = i < tune or not stops
            eps = math.exp(average.log_bar if averages_early and average.count else average.log_eps)
            eps = eps if adapting else final
            recorded = eps
            if steps is not None:
                steps.adapt(eps)
                recorded, eps = steps.nominal, steps.draw(rng)
            if jitter:
                recorded = eps = eps * rng.uniform(0.9, 1.1)
            p = rng.standard_normal(3) / np.sqrt(inverse)
            new_q, new_p = q, p - 0.5 * eps * q / SCALES**2
            for k in range(4):
                new_q = new_q + eps * inverse * new_p
                new_p = new_p - (eps if k < 3 else 0.5 * eps) * new_q / SCALES**2
            old = 0.5 * np.sum((q / SCALES) ** 2) + 0.5 * np.sum(inverse * p * p)
            new = 0.5 * np.sum((new_q / SCALES) ** 2) + 0.5 * np.sum(inverse * new_p * new_p)
            accept = math.exp(min(0.0, old - new)) if math.isfinite(new) else 0.0
            if rng.random() < accept:
                q = new_q
                accept = 1.0 if accept_or_not else accept
            else:
                accept = 0.0 if accept_or_not else accept
            for name, value in zip(record, (recorded, inverse.copy(), accept, q.copy()), strict=True):
                record[name].append(value)
            if adapting:
                average.update(accept)
            if 75 <= i < tune - last or (not metric_stops and i >= tune):
                window.add(q)
            if i + 1 in learns or (not metric_stops and i >= tune and (i - tune) % 50 == 49):
                inverse = window.result(shrink)
                inverse = 1 / inverse if exchanged else inverse
                window = Variance(3) if restarts else window
                if i + 1 != tune or empty_average:
                    average = DualAveraging(math.exp(average.log_eps), target, gamma=gamma)
            if i + 1 == tune:
                final = math.exp(average.log_bar if averaged else average.log_eps)
        return {name: np.array(values) for name, values in record.items()}

    return run


def reasonable_step(kinetic):
    """Hoffman and Gelman's algorithm 4, the initial step by one leapfrog step; ``kinetic``: with the kinetic energy."""

    def first(rng, q):
        eps, p, direction = 1.0, rng.standard_normal(len(q)), 0

        def log_ratio(eps):
            half = p - 0.5 * eps * q / SCALES**2
            new = q + eps * half
            end = half - 0.5 * eps * new / SCALES**2
            return 0.5 * np.sum((q / SCALES) ** 2 - (new / SCALES) ** 2) + kinetic * 0.5 * (p @ p - end @ end)

        direction = 1 if log_ratio(eps) > math.log(0.5) else -1
        while direction * log_ratio(eps) > direction * math.log(0.5) and 1e-6 < eps < 1e6:
            eps *= 2.0**direction
        return eps

    return first


def pooled(in_turn, chains=4):
    """Return a run of chains with a common step; their mean acceptance updates it once, or their acceptances ``in_turn``."""

    def run(draws, tune, seed):
        rng = np.random.default_rng(seed)
        q, average, record = 0.1 * np.ones((chains, 3)), DualAveraging(0.1), {"step_size": [], "acceptance_rate": []}
        for i in range(tune + draws):
            eps = math.exp(average.log_eps if i < tune else average.log_bar)
            p = rng.standard_normal((chains, 3))
            x, r = q, p - 0.5 * eps * q / SCALES**2
            for k in range(4):
                x = x + eps * r
                r = r - (eps if k < 3 else 0.5 * eps) * x / SCALES**2
            drop = 0.5 * np.sum((q / SCALES) ** 2 - (x / SCALES) ** 2 + p * p - r * r, axis=1)
            accept = np.exp(np.minimum(drop, 0.0))
            q = np.where((rng.random(chains) < accept)[:, None], x, q)
            record["step_size"].append(eps)
            record["acceptance_rate"].append(accept.mean())
            if i < tune:
                for a in accept if in_turn else [accept.mean()]:
                    average.update(a)
        return {name: np.array(values) for name, values in record.items()}

    return run


def metric_at_the_end(run):
    """Return the same run, but record only the metric of the last iteration."""

    def told(draws, tune, seed):
        record = run(draws, tune, seed)
        return {**record, "final_metric": record.pop("inverse_metric")[-1]}

    return told


def dual_averaging(count=0, gamma=0.05, mu=10.0, two_steps=False):
    def steps(first, acceptances, target):
        state = DualAveraging(first, target, count, gamma, two_steps)
        state.mu = math.log(mu * first)
        found = []
        for a in acceptances:
            state.update(a)
            found.append((math.exp(state.log_eps), math.exp(state.log_bar)))
        return np.array(found).T

    return steps


def schedule(doubling, last=50):
    """Return the number of iterations in each window: 75, then the slow windows, then 50 or ``last``."""

    def phases(n):
        start, window, found = 75, 25, [("fast", 0, 75)]
        while start < n - last:
            stop = start + window
            if stop + 2 * window > n - last:
                stop = n - last
            found.append(("slow", start, stop))
            start, window = stop, 2 * window if doubling else window
        return [*found, ("fast", n - last, n)]

    return phases


def variance(ddof, shrink_to=1e-3, twice=False):
    """Return the regularised variance; ``twice``: the mean of the squares, and not their sum, is divided by n - 1."""

    def estimate(draws):
        n = len(draws)
        var = draws.var(axis=0, ddof=ddof) / (n if twice else 1)
        return n / (n + 5) * var + shrink_to * 5 / (n + 5)

    return estimate


def naive_variance(draws):
    n = len(draws)
    var = (np.sum(draws**2, axis=0) - np.sum(draws, axis=0) ** 2 / n) / (n - 1)
    return n / (n + 5) * var + 1e-3 * 5 / (n + 5)


def report(run, seed, **more):
    return rc.adaptation(run, seed=seed, draws=200, tune=300, **more)


GOOD = sampler()


def pair_of(name, what, wrong, expected, severity="inefficient", *, right=GOOD, **more):
    return Pair(name, what, lambda s: report(wrong, s, **more), lambda s: report(right, s, **more), expected, severity)


def functions(name, what, key, wrong, right, expected):
    def one(f):
        return lambda s: rc.adaptation(None, seed=s, **{key: f})

    return Pair(name, what, one(wrong), one(right), expected, "inefficient")


FROZEN = (("frozen after warm-up",), "wrong distribution")
PAIRS: list[Pair] = [
    pair_of("P21", "the step is adapted after warm-up", sampler(stops=False), *FROZEN),
    pair_of("P21b", "the metric is adapted after warm-up", sampler(metric_stops=False), *FROZEN),
    pair_of(
        "P21c",
        "the metric is adapted after warm-up; only the last is recorded",
        metric_at_the_end(sampler(metric_stops=False)),
        *FROZEN,
        right=metric_at_the_end(GOOD),
    ),
    pair_of(
        "M25",
        "the last step is used after warm-up, not the averaged one",
        sampler(averaged=False),
        ("final step is the averaged one",),
    ),
    pair_of("M24", "mass and inverse exchanged", sampler(exchanged=True), ("metric used as inverse mass",)),
    pair_of(
        "unshrunk", "variances without regularisation", sampler(shrink=False), ("variance estimate",), claims="variance"
    ),
    pair_of(
        "not restarted", "Welford's sums are not reset after a window", sampler(restarts=False), ("variance estimate",)
    ),
    pair_of("gamma", "another gamma than claimed", sampler(gamma=0.5), ("dual averaging",), claims="dual_averaging"),
    functions(
        "counter",
        "the counter starts one step late",
        "dual_averaging",
        dual_averaging(count=1),
        dual_averaging(),
        ("dual averaging function",),
    ),
    functions(
        "mu", "mu = log eps", "dual_averaging", dual_averaging(mu=1.0), dual_averaging(), ("dual averaging function",)
    ),
    functions("equal windows", "windows do not double", "schedule", schedule(False), schedule(True), ("windows",)),
    functions("ddof", "divided by n", "variance", variance(0), variance(1), ("variance function",)),
    functions(
        "walnutpie#27",
        "the average mixes the last two steps, and not itself with the last step",
        "dual_averaging",
        dual_averaging(two_steps=True),
        dual_averaging(),
        ("dual averaging function",),
    ),
    functions(
        "walnutpie#67",
        "the mean of the squares is divided by n - 1",
        "variance",
        variance(1, twice=True),
        variance(1),
        ("variance function",),
    ),
    pair_of(
        "mcx#40",
        "the averaged step is used during adaptation",
        sampler(averages_early=True),
        ("dual averaging",),
        claims="dual_averaging",
    ),
    pair_of(
        "AdvancedHMC#220",
        "the jittered step is adapted, and not the nominal one",
        sampler(integrator=functools.partial(Jittered, adapted="drawn")),
        ("dual averaging",),
        right=sampler(integrator=Jittered),
        claims="dual_averaging",
    ),
    pair_of(
        "stan#3023",
        "warm-up ends with a window, and the average of the recursion after it is used",
        sampler(last=0, empty_average=True),
        ("final step is the averaged one",),
        right=sampler(last=0),
        claims="dual_averaging",
    ),
    pair_of(
        "blackjax#217",
        "the target acceptance is .65 instead of the .8 that is claimed",
        sampler(target=0.65),
        ("dual averaging",),
        claims="dual_averaging",
    ),
    pair_of(
        "blackjax#1003",
        "the acceptances of several chains update the step one after the other, not once by their mean",
        pooled(True),
        ("dual averaging",),
        right=pooled(False),
        claims="dual_averaging",
    ),
    pair_of(
        "blackjax#116",
        "the acceptance statistic is not the expected value: here 0 or 1, not the probability",
        sampler(accept_or_not=True),
        ("acceptance statistic",),
        claims="dual_averaging",
    ),
    functions("cancellation", "squares minus square", "variance", naive_variance, variance(1), ("variance function",)),
]

# No row finds these.
NOT_FOUND = [
    pair_of(
        "keanu#346",
        "the initial step is found without the momentum",
        sampler(first_step=reasonable_step(False)),
        (),
        "",
        right=sampler(first_step=reasonable_step(True)),
        claims="dual_averaging",
    ),
]

"""Planted bugs in stopping rules and in runs that use them, with corrected counterparts, in plain NumPy."""

from __future__ import annotations

import functools

import numpy as np

import refhmc.check as rc

from . import Pair


def halves(x):
    """Return the chains cut into halves."""
    n = x.shape[1] // 2
    return np.concatenate([x[:, :n], x[:, x.shape[1] - n :]])


def whole(x):
    return x


def size(x, times=2):
    """Effective sample size of draws (chain, draw) by Geyer's initial positive sequence, with the variance between chains."""
    m, n = x.shape
    if n < 4:
        return np.nan
    centred = x - x.mean(axis=1, keepdims=True)
    gamma = np.fft.irfft(np.abs(np.fft.rfft(centred, 2 * n)) ** 2, 2 * n)[:, :n].mean(axis=0) / n
    within = gamma[0] * n / (n - 1)
    total = gamma[0] + (x.mean(axis=1).var(ddof=1) if m > 1 else 0)
    rho = 1 - (within - gamma) / total
    rho = rho[: 2 * (n // 2)]
    pairs = rho[::2] + rho[1::2]
    ends = np.flatnonzero(~(pairs > 0))
    tau = -1 + times * pairs[: ends[0] if len(ends) else None].sum()
    return m * n / tau if tau > 0 else np.nan


def sizes(x, times=2, cut=halves):
    return np.array([size(cut(x[:, :, k]), times) for k in range(x.shape[2])])


def added(x):
    """The sum of the sizes of single chains."""
    return sum(sizes(x[c : c + 1]) for c in range(len(x)))


def present(x):
    """The same without chains of size NaN."""
    return np.nansum([sizes(x[c : c + 1]) for c in range(len(x))], axis=0)


def ratios(x, cut=halves, power=0.5):
    """R-hat of Gelman and Rubin, split."""
    y = cut(x)
    if y.shape[1] < 2:
        return np.full(x.shape[2], np.nan)
    n = y.shape[1]
    return ((n - 1) / n + y.mean(axis=1).var(axis=0, ddof=1) / y.var(axis=1, ddof=1).mean(axis=0)) ** power


def errors(x, of=lambda variance, size: np.sqrt(variance / size)):
    return of(x.var(axis=(0, 1), ddof=1), sizes(x))


def rule(
    ess=sizes, rhat=ratios, mcse=errors, worst=(np.min, np.max), hold=all, meets=lambda value, limit: value >= limit
):
    """A rule with measures (d,), the worst of them, and the comparison of it with its limit."""

    def met(x, limits):
        least, most = worst
        with np.errstate(all="ignore"):
            found = [meets(least(ess(x)), limits["ess"])] if "ess" in limits else []
            found += [meets(-most(rhat(x)), -limits["rhat"])] if "rhat" in limits else []
            found += [meets(-most(mcse(x)), -limits["mcse"])] if "mcse" in limits else []
        return bool(hold(found))

    return met


def run(counted=0, looks=whole, kept=whole, ends=lambda n, most: n >= most, alone=False, met=None):
    """Chains that draw 100 at a time until the rule is met.

    The rule sees `looks` of the draws, and the run returns `kept` of them. `counted` draws of the warm-up are among them, and
    chains end `alone` if each ends when its own draws meet the rule.
    """
    met = met or rule()

    def drawn(draw, chains, tune, limits, most):
        x = [[draw(c) for _ in range(tune)][tune - counted :] for c in range(chains)]
        running, n = set(range(chains)), 0
        while running and not ends(n, most):
            added = min(100, most - n) or 1
            n += added
            for c in running:
                x[c] += [draw(c) for _ in range(added)]
            if alone:
                running = {c for c in running if not met(looks(np.array([x[c]])), {"ess": limits["ess"] / chains})}
            elif met(looks(np.array(x)), limits):
                break
        shortest = min(map(len, x))
        return kept(np.array([each[:shortest] for each in x]))

    return drawn


def pair(id, what, wrong, right, expected, severity="inefficient", of="rule"):
    def report(subject, seed):
        if of == "rule":
            return rc.stopping(subject, seed=seed)
        return rc.stopping(rule(), subject, seed=seed)

    report = functools.cache(report)
    return Pair(id, what, lambda seed: report(wrong, seed), lambda seed: report(right, seed), (expected,), severity)


RIGHT, RUN = rule(), run()

PAIRS = [
    pair("first chain", "the size of the first chain", rule(lambda x: sizes(x[:1])), RIGHT, "effective sample size"),
    pair(
        "all draws",
        "the number of draws for the effective one",
        rule(lambda x: np.full(x.shape[2], x.shape[0] * x.shape[1])),
        RIGHT,
        "effective sample size",
    ),
    pair(
        "once",
        "autocorrelations are counted once",
        rule(lambda x: sizes(x, times=1)),
        RIGHT,
        "effective sample size",
    ),
    pair(
        "first coordinate",
        "the first coordinate decides",
        rule(worst=(lambda v: v[0], lambda v: v[0])),
        RIGHT,
        "effective sample size",
    ),
    pair(
        "mean",
        "the mean over the coordinates decides",
        rule(worst=(np.mean, np.mean)),
        RIGHT,
        "effective sample size",
    ),
    pair("direction", "<= for >=", rule(meets=lambda v, limit: v <= limit), RIGHT, "effective sample size"),
    pair("added", "the sizes of single chains are added", rule(added), RIGHT, "chains that disagree"),
    pair("still", "chains without a size are left out", rule(present), RIGHT, "chains that disagree"),
    pair("square", "R-hat without its root", rule(rhat=lambda x: ratios(x, power=1.0)), RIGHT, "R-hat"),
    pair("whole", "R-hat of whole chains", rule(rhat=lambda x: ratios(x, cut=whole)), RIGHT, "drift"),
    pair(
        "no root",
        "the standard error without the root of the size",
        rule(mcse=lambda x: errors(x, lambda variance, size: np.sqrt(variance) / size)),
        RIGHT,
        "standard error",
    ),
    pair(
        "variance",
        "the variance of the mean for its standard error",
        rule(mcse=lambda x: errors(x, lambda variance, size: variance / size)),
        RIGHT,
        "standard error",
    ),
    pair(
        "independent",
        "the standard error of independent draws",
        rule(mcse=lambda x: x.std(axis=(0, 1), ddof=1) / np.sqrt(x.shape[0] * x.shape[1])),
        RIGHT,
        "standard error",
    ),
    pair("not a number", "not < for >=", rule(meets=lambda v, limit: not v < limit), RIGHT, "undefined measures"),
    pair("any", "one condition is enough", rule(hold=any), RIGHT, "all conditions"),
    pair(
        "alone",
        "each chain ends by itself, and the longer ones are cut",
        run(alone=True),
        RUN,
        "draws of the run",
        "wrong distribution",
        of="run",
    ),
    pair(
        "warm-up",
        "the draws of the warm-up count",
        run(counted=200),
        RUN,
        "draws of the run",
        "wrong distribution",
        of="run",
    ),
    pair(
        "before the last",
        "the draws of the last part are lost",
        run(kept=lambda x: x[:, :-100]),
        RUN,
        "draws of the run",
        "wrong distribution",
        of="run",
    ),
    pair(
        "last part",
        "the rule sees the last part only",
        run(looks=lambda x: x[:, -100:]),
        RUN,
        "end of the run",
        of="run",
    ),
    pair(
        "repeated",
        "the rule sees all chains three times",
        run(looks=lambda x: np.concatenate([x, x, x])),
        RUN,
        "end of the run",
        of="run",
    ),
    pair("limit", "> for >= in the largest number", run(ends=lambda n, most: n > most), RUN, "most draws", of="run"),
]

"""Whether runs of several samplers have the same means."""

from __future__ import annotations

import numpy as np
import scipy.stats

from refhmc import diagnostics


def assert_same_means(runs, names, alarm=1e-5):
    """Of each pair of runs (name -> (chain, draw, ...)), the means of all m entries of the variables ``names`` differ by less
    than the normal quantile of alarm / 2m standard errors: false alarm ``alarm`` a pair."""
    figures = [moments({name: np.asarray(run[name]) for name in names}) for run in runs]
    for a in range(len(runs)):
        for b in range(a):
            (m, e), (n, f) = figures[a], figures[b]
            z = (m - n) / np.hypot(e, f)
            assert abs(z).max() < scipy.stats.norm.isf(alarm / (2 * len(z))), (a, b, z)


def moments(run):
    """Means and their standard errors, of all entries of all variables."""
    columns = np.concatenate([v.reshape(*v.shape[:2], -1) for v in run.values()], axis=2)
    return columns.mean(axis=(0, 1)), columns.std(axis=(0, 1)) / np.sqrt(diagnostics.ess(columns))

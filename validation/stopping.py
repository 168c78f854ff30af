"""The bias of estimates at the end of runs with a stopping rule: ``python -m validation.stopping [--runs 1000]``.

The target is the standard normal distribution in five dimensions. Each run has four chains with 200 iterations of warm-up. They
draw until a rule is met, which is checked from the first number of draws on. The chains of HMC with single steps are strongly
autocorrelated, those of NUTS are not. For the mean of each coordinate, z is the mean divided by its estimated standard error.
The table has

- draws: of a chain, median and range;
- coverage: how often the mean is within 1.96 estimated standard errors of 0 (95 % if these are right and the mean is normal);
- sd of z (1 if the standard errors are right);
- sd: the mean of the estimated standard deviations of the coordinate, whose true value is 1;
- the same for runs of fixed length, with as many draws as the median.

"+-" is a standard error over the runs (of whole runs; the coordinates of a run are averaged first). The last column is the
number of runs that ended at the limit, `max_draws`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import refhmc
from refhmc import Until, diagnostics
from validation import common, judging

NAME = "stopping"
D = 5
SINGLE_STEPS = refhmc.HMC(step_size=0.5, n_steps=1, metric=refhmc.metrics.Identity())
ERROR = {"x": 0.05}


class Case(NamedTuple):
    kernel: object
    first: int
    rule: Until


CASES = {
    "NUTS, ESS 400 and R-hat 1.01": Case(refhmc.NUTS(), 50, Until(max_draws=20_000)),
    "NUTS, standard error 0.05": Case(refhmc.NUTS(), 50, Until(ess=None, rhat=None, mcse=ERROR, max_draws=20_000)),
    "single steps, ESS 400 and R-hat 1.01": Case(SINGLE_STEPS, 50, Until(max_draws=20_000)),
    "single steps, standard error 0.05": Case(
        SINGLE_STEPS, 50, Until(ess=None, rhat=None, mcse=ERROR, max_draws=20_000)
    ),
    "single steps, ESS 40, from 10 draws on": Case(SINGLE_STEPS, 10, Until(ess=40, rhat=None, max_draws=20_000)),
    "single steps, R-hat 1.05, from 10 draws on": Case(SINGLE_STEPS, 10, Until(ess=None, rhat=1.05, max_draws=20_000)),
}


class Runs(NamedTuple):
    """Draws per chain of each run, and z and standard deviation of each coordinate."""

    draws: np.ndarray
    z: np.ndarray
    sd: np.ndarray
    at_limit: int


def made(runs: int, sample: Callable[[int], refhmc.Result]) -> Runs:
    draws, z, sd, at_limit = [], [], [], 0
    for seed in range(runs):
        result = sample(seed)
        q = result.draws
        draws.append(q.shape[1])
        sd.append(q.std(axis=(0, 1), ddof=1))
        z.append(q.mean(axis=(0, 1)) / sd[-1] * np.sqrt(diagnostics.ess_of_mean(q)))
        at_limit += bool(result.attributes.get("until_unmet"))
    return Runs(np.array(draws), np.array(z), np.array(sd), at_limit)


def with_error(values: np.ndarray) -> str:
    """The mean of (runs, coordinates) with the standard error of the means of the runs."""
    of_runs = values.mean(axis=1)
    return f"{of_runs.mean():.3f} +- {of_runs.std(ddof=1) / np.sqrt(len(of_runs)):.3f}"


def row(name: str, found: Runs) -> dict:
    middle, least, most = int(np.median(found.draws)), found.draws.min(), found.draws.max()
    return {
        "rule": name,
        "draws": f"{middle} ({least}..{most})",
        "coverage": with_error(np.abs(found.z) < 1.96),
        "sd of z": f"{np.sqrt(np.mean(found.z**2)):.3f}",
        "sd": with_error(found.sd),
        "at the limit": found.at_limit,
    }


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    covered = [float(row["coverage"].split()[0]) for row in data["rows"]]
    ruled, fixed = (f"{min(values):.3f} to {max(values):.3f}" for values in (covered[::2], covered[1::2]))
    return judging.line(
        "Found",
        f"95 % intervals cover the mean in {ruled} of the runs that a rule stops, and in {fixed} of fixed runs.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    warnings.simplefilter("ignore")
    model = refhmc.models.Gaussian(np.zeros(D), np.eye(D))
    options = {"tune": 200, "cores": 1, "raw": True, "progressbar": False, "preflight": False, "generate": False}
    rows = []
    for name, (kernel, first, rule) in CASES.items():
        ruled = made(
            runs,
            lambda seed, k=kernel, n=first, u=rule: refhmc.sample(
                model, k, draws=n, until=u, random_seed=seed, **options
            ),
        )
        n = int(np.median(ruled.draws))
        fixed = made(
            runs, lambda seed, k=kernel, n=n: refhmc.sample(model, k, draws=n, random_seed=runs + seed, **options)
        )
        rows += [row(name, ruled), row(f"{n} draws", fixed)]
        print(rows[-2:], flush=True)
    text = "\n\n".join((__doc__ or "").split("\n\n")[1:])
    table = common.markdown(list(rows[0]), [list(each.values()) for each in rows])
    common.write_results(NAME, "Stopping rules", f"{runs} runs of each.\n\n{text}\n{table}", {"rows": rows}, opening)


if __name__ == "__main__":
    main()

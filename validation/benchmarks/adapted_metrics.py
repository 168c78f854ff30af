"""How fast warm-up learns the metric of a normal: ``python -m validation.benchmarks.adapted_metrics [--most 1000]``.

NUTS on normals of d dimensions, condition 100, axes in random directions; warm-up of 100 to 4,000 iterations, the metric as it
stands at its end. A trajectory takes steps in proportion to the square root of the condition that the metric leaves, that of
M^-1 C^-1 for the covariance C; its logarithm is the error of a metric that can be C. With n draws in the last window, were
they independent, the rules promise:

    Dense, from draws                   2 log((1 + r)/(1 - r)), r = sqrt(d/n) < 1: the edges of the spectrum of a sample's
                                        covariance (Marchenko and Pastur 1967); 4 r for n much larger than d
    Dense, from draws and gradients     none once n > 2 (d + 1): half of the draws fix C
    LowRank                             6 / sqrt(n/2) at most, n > 2 (d + 1), if all directions pay: eigenvalues within three
                                        standard errors of 1 are taken for 1
    Diagonal, from draws                sqrt(2/n), the sd of log M^-1_ii about log C_ii
    Diagonal, from draws and gradients  sqrt((1 - k_i)/n), its sd about log sqrt(C_ii / P_ii) for P = C^-1, since x_i and the
                                        score's entry i have the correlation sqrt(k_i), k_i = 1/(C_ii P_ii)

In brackets what is promised; "none": nothing. n follows from the schedules (``refhmc/adaptation/windows.py``). Medians over
four chains, of more than 100 dimensions one. Left out is what takes hours: of 1,000 dimensions more than 1,000 iterations, and
Dense from fewer draws than dimensions, whose trajectories are 1,023 steps.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import warnings
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc.adaptation.fisher_divergence import STANDARD_ERRORS
from refhmc.adaptation.windows import growing_windows, warmup_schedule
from refhmc.metrics import Dense, Diagonal, LowRank
from validation.benchmarks import common
from validation.benchmarks.posteriors import covariance

CONDITION = 100.0
LENGTHS = (100, 200, 500, 1000, 2000, 4000)
BOTH = "draws and gradients"
RULES: dict[str, Any] = {
    "Dense, from draws": Dense(),
    "Dense, from draws and gradients": Dense(learn_from=BOTH),
    "LowRank (auto)": LowRank(),
    "Diagonal, from draws": Diagonal(),
    "Diagonal, from draws and gradients": Diagonal(learn_from=BOTH),
}


def last_window(rule: Any, tune: int) -> int:
    """Draws in it."""
    from_pairs = isinstance(rule, LowRank) or (isinstance(rule, Dense) and rule.learn_from == BOTH)
    windows = growing_windows(tune) if from_pairs else warmup_schedule(tune)
    return [stop - start for kind, start, stop in windows if kind == "slow"][-1]


def inverse_mass(metric: Any) -> np.ndarray:
    """M^-1 (d, d)"""
    if isinstance(metric, Dense):
        return np.asarray(metric.covariance)
    if isinstance(metric, Diagonal):
        return np.diag(metric.variances)
    V = np.asarray(metric.directions) * np.sqrt(metric.variances)
    return np.diag(metric.variances) + (V.T * (np.asarray(metric.eigenvalues) - 1)) @ V


def error(rule: Any, metric: Any, C: np.ndarray, P: np.ndarray) -> float:
    M_inverse = inverse_mass(metric)
    if isinstance(rule, Diagonal):
        limit = np.diag(C) if rule.learn_from == "draws" else np.sqrt(np.diag(C) / np.diag(P))
        return float(np.std(np.log(np.diag(M_inverse) / limit)))
    L = np.linalg.cholesky(C)
    left = np.linalg.eigvalsh(np.linalg.solve(L, np.linalg.solve(L, M_inverse).T))
    return float(np.log(left[-1] / left[0]))


def promised(rule: Any, n: int, C: np.ndarray, P: np.ndarray) -> str:
    d = len(C)
    if isinstance(rule, Diagonal):
        if rule.learn_from == "draws":
            return f"{np.sqrt(2 / n):.2g}"
        return f"{np.sqrt(np.mean(1 - 1 / (np.diag(C) * np.diag(P))) / n):.2g}"
    if isinstance(rule, Dense) and rule.learn_from == "draws":
        r = np.sqrt(d / n)
        return f"{2 * np.log((1 + r) / (1 - r)):.2g}" if r < 1 else "none"
    if n <= 2 * (d + 1):
        return "none"
    return f"< {2 * STANDARD_ERRORS / np.sqrt(n // 2):.2g}" if isinstance(rule, LowRank) else "0"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=1000, help="dimensions")
    options = parser.parse_args()
    common.pin_to_one_core()
    warnings.simplefilter("ignore")
    about = common.machine(["refhmc", "numba", "numpy"])
    rows, figures = [], {}
    for d in (10, 30, 100, 300, 1000):
        if d > options.most:
            continue
        C = covariance(d, CONDITION)
        P, model = np.linalg.inv(C), refhmc.models.Gaussian(np.zeros(d), C)
        for name, rule in RULES.items():
            cells = []
            for tune in LENGTHS:
                if d >= 1000 and (tune > 1000 or name == "Dense, from draws"):
                    cells.append("")
                    continue
                chains = 4 if d <= 100 else 1
                own = {"draws": 1, "tune": tune, "chains": chains, "random_seed": 1, "raw": True, "progressbar": False}
                adapted = refhmc.sample(model, refhmc.NUTS(metric=rule), **own).adapted
                errors = [error(rule, each.metric, C, P) for each in adapted]
                n = last_window(rule, tune)
                figures[f"{name}, d = {d}, {tune} iterations"] = {"window": n, "errors": errors}
                cells.append(f"{np.median(errors):.2g} ({promised(rule, n, C, P)})")
            rows.append([name, str(d), *cells])
            print(rows[-1], flush=True)
    what = "\n\n".join((__doc__ or "").split("\n\n")[1:])
    header = ["rule", "d", *(f"{tune:,} iterations" for tune in LENGTHS)]
    text = f"{what}\n\n{common.table(header, rows)}"
    common.report("adapted_metrics", "The metric at the end of warm-up, on normals", text, {"figures": figures}, about)


if __name__ == "__main__":
    main()

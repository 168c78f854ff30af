"""Shahbaba's split beside the leapfrog on logistic regressions: acceptance, and effective draws for a thousand gradients.

    python -m validation.gaussian_split

Static HMC with the unit metric from the mode m, 4 chains of 1,000 draws. Steps are multiples of 2 / omega, where the leapfrog
becomes unstable in the Gaussian at the mode (omega^2 the largest eigenvalue of its precision J), jittered by 10 %; a trajectory
is as near as it gets to a quarter of the period of the slowest direction. Effective draws are those of the worst coordinate.
"""

from __future__ import annotations

import math

import numpy as np

import refhmc
from refhmc.integrators import GaussianSplit, Leapfrog
from validation import common, judging

NAME = "gaussian_split"
MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
CHAINS, DRAWS = 4, 1000
LEAST_ACCEPTANCE = 0.05  # below it an effective sample size means nothing


def simulated() -> refhmc.Model:
    """5,000 rows of 20 normal columns, coefficients from the prior: close to normal, as with many data."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5000, 20))
    y = rng.random(5000) < 1 / (1 + np.exp(-X @ rng.normal(size=20)))
    return refhmc.models.LogisticRegression(X, y.astype(float), name="simulated, 5,000 rows")


def measured(model: refhmc.Model) -> list[dict]:
    split = GaussianSplit.at_mode(model)
    omega = np.sqrt(np.linalg.eigvalsh(split.precision))
    rows = []
    for multiple in MULTIPLES:
        eps = multiple * 2 / omega[-1]
        n_steps = max(1, round(math.pi / 2 / omega[0] / eps))
        row: dict = {"model": model.name, "multiple": multiple, "step_size": eps, "n_steps": n_steps}
        for name, integrator in (("leapfrog", Leapfrog()), ("split", split)):
            kernel = refhmc.HMC(
                step_size=eps, n_steps=n_steps, step_jitter=0.1, metric=refhmc.metrics.Identity(), integrator=integrator
            )
            options = {"draws": DRAWS, "tune": 50, "chains": CHAINS, "random_seed": 1, "raw": True, "cores": 1}
            try:
                run = refhmc.sample(model, kernel, initvals=split.mean, progressbar=False, **options)
            except refhmc.errors.WarmupError:  # every transition of a chain diverged
                row[name] = {"acceptance": 0.0, "effective": math.nan}
                continue
            rate = float(run.sample_stats["acceptance_rate"].mean())
            effective = 1000 * refhmc.diagnostics.ess(run.draws).min() / (CHAINS * DRAWS * n_steps)
            row[name] = {"acceptance": rate, "effective": effective if rate > LEAST_ACCEPTANCE else math.nan}
        rows.append(row)
    return rows


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    best: dict[str, dict[str, float]] = {}
    for row in data["rows"]:
        of_model = best.setdefault(row["model"], {"leapfrog": 0.0, "split": 0.0})
        for name in of_model:
            of_model[name] = max(of_model[name], row[name]["effective"] or 0.0)
    ratios = [found["split"] / found["leapfrog"] for found in best.values()]
    return judging.line(
        "Found",
        f"at the best step of each, the split has {min(ratios):.1f} to {max(ratios):.1f} times the effective draws of the "
        f"leapfrog ({len(ratios)} models).",
    )


def main() -> None:
    models = (refhmc.models.Heart(), refhmc.models.BreastCancer(), refhmc.models.Diabetes(), simulated())
    rows = [row for model in models for row in measured(model)]
    lines = []
    for row in rows:
        each = [row[name] for name in ("leapfrog", "split")]
        effective = ["–" if math.isnan(x["effective"]) else f"{x['effective']:.0f}" for x in each]
        shown = [f"{x['acceptance']:.3f}" for x in each] + effective
        lines.append([row["model"], row["multiple"], f"{row['step_size']:.3f}", row["n_steps"], *shown])
    header = ["model", "step / limit", "step", "steps", "accepted, leapfrog", "split", "effective, leapfrog", "split"]
    text = (__doc__ or "").split("\n\n", 2)[2] + "\n" + common.markdown(header, lines)
    common.write_results(NAME, "Shahbaba's split beside the leapfrog", text, {"rows": rows}, opening)


if __name__ == "__main__":
    main()

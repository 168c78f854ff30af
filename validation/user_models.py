"""Models as users bring them, by refhmc and by nutpie.

    python -m validation.user_models [--only NAME ...] [--draws N] [--page]

The models are those of ``user_models_in_pymc.py``. Both libraries take the same PyMC model, with 4 chains, seed 1, 1,000 draws
after 1,000 iterations of warm-up, and their defaults otherwise. More draws may decide the models that this leaves undecided.

For each entry x of a variable or deterministic of the model, u is the rank of a draw among those of both runs, divided by their
number. The means of u and of |u - 1/2| are compared, which tell location and spread apart and have moments for every posterior:

    z = (mean_1 - mean_2) / sqrt(v_1 / ESS_1 + v_2 / ESS_2)

with the variance v and the effective sample size of u, or of |u - 1/2|, in each run. A model differs if an |z| exceeds the
value that all |z| of the page stay below with probability 0.999 (Sidak) if the posteriors are the same. It is undecided if one
run has an R-hat above 1.01 or an effective sample size below 400. "Told" is the difference of location, in standard deviations
of a normal posterior, that the entry with the fewest effective draws would show with probability 0.8. Effective draws per
gradient are the least of the free variables' entries over all gradients, warm-up included. Seconds are not compared here. The
runs need PyMC (extra ``pymc``) and nutpie.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.special
import scipy.stats

import refhmc
from refhmc import diagnostics
from validation import common, judging

NAME = "user_models"
TITLE = "Models of users: refhmc and nutpie on the same PyMC models"
MARK = "user model: "
SEED, ALARM, POWER = 1, 1e-3, 0.8
LARGEST_R_HAT, LEAST_ESS = 1.01, 400
LIMIT = 1800  # seconds of a model


def entries(values: Mapping[str, Any], names: list[str]) -> dict[str, np.ndarray]:
    """Return the draws (chain, draw) of each entry of these variables that is not constant."""
    found = {}
    for name in names:
        x = np.asarray(values[name], dtype=float)
        for index in np.ndindex(x.shape[2:]):
            entry = x[(..., *index)]
            if np.ptp(entry) > 1e-9 * np.abs(entry).max():
                found[name + (f"[{','.join(map(str, index))}]" if index else "")] = entry
    return found


def scores(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Return z of location and of spread of two runs (chain, draw), and the standard error of the location, in ranks."""
    u = scipy.stats.rankdata(np.concatenate([x.ravel(), y.ravel()])) / (x.size + y.size)
    one, other = u[: x.size].reshape(x.shape), u[x.size :].reshape(y.shape)
    found = []
    for transform in (lambda v: v, lambda v: abs(v - 0.5)):
        runs = [transform(v) for v in (one, other)]
        error = np.sqrt(sum(v.var() / diagnostics.ess(v[..., None])[0] for v in runs))
        found.append(((runs[0].mean() - runs[1].mean()) / error, error))
    return found[0][0], found[1][0], found[0][1]


def by_refhmc(model: Any, draws: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of the variables, and what the run tells of itself."""
    ours = refhmc.from_pymc(model)
    with warnings.catch_warnings(action="ignore"):
        result = refhmc.sample(
            ours, draws=draws, random_seed=SEED, raw=True, progressbar=False, generate=False, cores=1
        )
    told = {
        "gradients": result.attributes["n_gradient_evaluations"],
        "divergences": int(result.sample_stats["diverging"].sum()),
        "warnings": [text.split(". ")[0] for text in result.warnings],
        "adaptation": result.attributes["adaptation"],
        "dim": ours.dim,
    }
    return result.posterior, told


def by_nutpie(model: Any, draws: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of the variables, and what the run tells of itself."""
    import nutpie

    with warnings.catch_warnings(action="ignore"):
        compiled = nutpie.compile_pymc_model(model)
        found = nutpie.sample(compiled, draws=draws, tune=1000, chains=4, cores=1, seed=SEED, progress_bar=False)
    gradients = sum(int(group["n_steps"].sum()) for group in (found.warmup_sample_stats, found.sample_stats))
    return found.posterior, {"gradients": gradients, "divergences": int(found.sample_stats["diverging"].sum())}


def measure(name: str, draws: int) -> dict[str, Any]:
    """Run both libraries on a model and compare them."""
    logging.disable(logging.INFO)
    from validation.user_models_in_pymc import MODELS

    function, source = MODELS[name]
    model = function()
    names = [each.name for each in (*model.free_RVs, *model.deterministics)]
    row: dict[str, Any] = {"name": name, "text": function.__doc__, "source": source, "draws": draws}
    found = {}
    for library, run in (("refhmc", by_refhmc), ("nutpie", by_nutpie)):
        values, told = run(model, draws)
        found[library] = entries(values, names)
        free = np.stack(
            [x for key, x in found[library].items() if key.split("[")[0] in names[: len(model.free_RVs)]], axis=-1
        )
        row[library] = told | {"r_hat": float(diagnostics.rhat(free).max()), "ess": float(diagnostics.ess(free).min())}
    z = {key: scores(found["refhmc"][key], y) for key, y in found["nutpie"].items()}
    worst = max(z, key=lambda key: max(map(abs, z[key][:2])))
    row |= {"comparisons": 2 * len(z), "z": [round(float(x), 2) for x in z[worst][:2]], "of": worst}
    row["error"] = max(float(each[2]) for each in z.values())
    pooled = {key: np.hypot(found["refhmc"][key].std(), y.std()) / np.sqrt(2) for key, y in found["nutpie"].items()}
    row["apart"] = max(
        float(abs(found["refhmc"][key].mean() - y.mean()) / pooled[key]) for key, y in found["nutpie"].items()
    )
    return row


def critical(rows: list[dict]) -> float:
    """Return the value that all |z| stay below with probability 1 - ALARM if the posteriors are the same."""
    m = sum(row["comparisons"] for row in rows)
    return float(-scipy.stats.norm.ppf(-np.expm1(np.log1p(-ALARM) / m) / 2))


def verdict(row: dict, limit: float) -> str:
    """Return whether the two runs agree."""
    for library in ("refhmc", "nutpie"):
        if row[library]["r_hat"] > LARGEST_R_HAT or row[library]["ess"] < LEAST_ESS:
            return f"undecided: {library} has not converged"
    return "agrees" if max(map(abs, row["z"])) < limit else "differs"


def verdicts(data: dict) -> list[str]:
    limit = critical(data["rows"])
    return [verdict(row, limit) for row in data["rows"]]


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    rows = data["rows"]
    z, n = max(max(map(abs, row["z"])) for row in rows), sum(row["comparisons"] for row in rows)
    text = f"Of {n:,} z-scores the largest is {z:.1f}, allowed {critical(rows):.1f}."
    return judging.opening(verdicts(data), "comparisons", text)


def table(data: dict) -> str:
    """Return the table of the page."""
    body = []
    for row, said in zip(data["rows"], verdicts(data), strict=True):
        ours, theirs = row["refhmc"], row["nutpie"]
        # The mean of a rank changes by 1 / (2 sqrt(pi)) per standard deviation by which a normal distribution is moved.
        told = (critical(data["rows"]) + scipy.stats.norm.ppf(POWER)) * row["error"] * 2 * np.sqrt(np.pi)
        runs = [f"{each['r_hat']:.3f}; {each['ess']:,.0f}; {each['divergences']:,}" for each in (ours, theirs)]
        per = [1e3 * each["ess"] / each["gradients"] for each in (ours, theirs)]
        z = max(map(abs, row["z"]))
        body.append(
            [
                f"`{row['name']}`: {row['text'].rstrip('.')}",
                row["source"],
                ours["dim"],
                f"{row['draws']:,}",
                *runs,
                f"{per[0]:.2f}; {per[1]:.2f}",
                len(ours["warnings"]),
                f"{z:.1f} ({row['of']})",
                f"{row['apart']:.3f}",
                f"{told:.2f}",
                said,
            ]
        )
    header = [
        "model",
        "kind of model treated in",
        "unknowns",
        "draws of a chain",
        "refhmc: R-hat; ESS; divergences",
        "nutpie: the same",
    ]
    header += [
        "ESS per 1,000 gradients, refhmc; nutpie",
        "warnings of refhmc",
        "largest z",
        "largest difference of means, sd",
    ]
    return common.markdown([*header, "told", "verdict"], body)


def write(rows: list[dict], about: dict | None = None) -> None:
    data = {"rows": rows, "allowed": critical(rows)}
    said = [
        f"- `{row['name']}`: {'; '.join([*row['refhmc']['warnings'], row['refhmc']['adaptation']])}"
        for row in rows
        if row["refhmc"]["warnings"] or row["refhmc"]["adaptation"]
    ]
    per = [[each["ess"] / each["gradients"] for each in (row["refhmc"], row["nutpie"])] for row in rows]
    ratios = [ours / theirs for ours, theirs in per]
    summary = (
        f"Effective draws per gradient, refhmc by nutpie: median {np.median(ratios):.2f}, least {min(ratios):.2f}, largest "
        f"{max(ratios):.2f}, of one run each."
    )
    text = [(__doc__ or "").split("\n\n", 2)[2].strip(), table(data), summary]
    text += [
        "What refhmc said of its runs, the first sentence of each warning and what warm-up chose:",
        "\n".join(said),
    ]
    common.write_results(NAME, TITLE, "\n\n".join(text), data, opening, about)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="models, default all")
    parser.add_argument("--draws", type=int, default=1000, help="of each chain (default %(default)s)")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    parser.add_argument("--measure", metavar="NAME", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        print(MARK + json.dumps(common.plain(measure(chosen.measure, chosen.draws))), flush=True)
        return
    recorded = common.RESULTS / f"{NAME}.json"
    old = json.loads(recorded.read_text(encoding="utf-8")) if recorded.exists() else {"rows": [], "about": None}
    rows = {row["name"]: row for row in old["rows"]}
    if chosen.page:
        write([*rows.values()], old["about"])
        return
    from validation.user_models_in_pymc import MODELS

    for name in chosen.only or MODELS:  # each in a process of its own, whose memory and compiled functions end with it
        command = [sys.executable, "-m", "validation.user_models", "--measure", name, "--draws", str(chosen.draws)]
        done = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, timeout=LIMIT)
        found = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
        if not found:
            print(name, "failed:", (done.stderr.strip().splitlines() or [""])[-1], flush=True)
            continue
        rows[name] = json.loads(found[0][len(MARK) :])
        print(name, rows[name]["z"], rows[name]["of"], flush=True)
        write([rows[each] for each in MODELS if each in rows])


if __name__ == "__main__":
    main()

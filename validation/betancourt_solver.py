"""Why Betancourt (2013) accepts less at a smaller step (0.805 at 0.49, Table II): the solver's threshold, tested.

    python -m validation.betancourt_solver

DiagonalSoftAbs on the funnel 50 + 1, generalised leapfrog at the paper's step 0.49, four runs of 500 draws from exact draws,
integration times 15 and 25, several tolerances of the solver. The threshold delta of Algorithm 1 is not printed; an early
version of the published program makes five iterations, whatever the change. An implicit map solved loosely is neither
symplectic nor reversible, conserves less of H, and accepts less.
Implicit steps are unchecked, as the paper's program takes them (reversibility_check=False): not exact.
"""

from __future__ import annotations

import numpy as np

import refhmc
from refhmc.integrators import GeneralizedLeapfrog
from validation import betancourt_runs as runs
from validation import common, judging

NAME = "betancourt_solver"
TOLERANCES = (1e-6, 1e-3, 1e-2, 0.03, 0.1, 0.3)
STEP, PAPER = 0.49, 0.805
CHAINS, DRAWS = 4, 500


def acceptance(length: float, tolerance: float) -> dict:
    """Acceptance rate over the chains, and the share of proposals whose solve failed."""
    model = refhmc.models.Funnel(runs.N)
    starts = model.reference.draw(np.random.default_rng(1), CHAINS)
    loose = GeneralizedLeapfrog(tolerance=tolerance, reversibility_check=False)
    kernel = runs.diagonal(loose, trajectory_length=length, step_size=STEP)
    done = common.run_chains(model, kernel, draws=DRAWS, chains=CHAINS, seed=3, starts=starts, cores=1)
    rate = common.over_trials(done.stats["acceptance_rate"].mean(axis=1))
    return {
        "integration_time": length,
        "tolerance": tolerance,
        "acceptance": rate,
        "solver_failed": float(done.stats["solver_failed"].mean()),
    }


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    where = []
    for length in dict.fromkeys(row["integration_time"] for row in data["rows"]):
        rows = [row for row in data["rows"] if row["integration_time"] == length]
        loose = [f"{row['tolerance']:g}" for row in rows if row["acceptance"]["value"] < PAPER]
        where.append(f"{loose[0] if loose else 'no tolerance'} at integration time {length:g}")
    return judging.line(
        "Found", f"the acceptance falls below the printed {PAPER} at a tolerance of {' and of '.join(where)}."
    )


def main() -> None:
    found = [acceptance(length, tolerance) for length in (15.0, 25.0) for tolerance in TOLERANCES]
    rows = [
        (f"{row['integration_time']:g}", f"{row['tolerance']:g}", str(row["acceptance"]), f"{row['solver_failed']:.3f}")
        for row in found
    ]
    text = (__doc__ or "").split("\n\n", 2)[2] + "\n"
    text += common.markdown(["integration time", "tolerance", f"acceptance (paper: {PAPER})", "solver failed"], rows)
    for length in (15.0, 25.0):
        rates = [row["acceptance"].value for row in found if row["integration_time"] == length]
        within = [f"{t:g}" for t, rate in zip(TOLERANCES, rates, strict=True) if rate < PAPER]
        crossed = f"falls below the paper's at {within[0]}" if within else "stays above the paper's"
        text += f"\n\nAt time {length:g} the acceptance {crossed}."
    common.write_results(NAME, "The solver's threshold in Betancourt (2013), Table II", text, {"rows": found}, opening)


if __name__ == "__main__":
    main()

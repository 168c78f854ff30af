"""How far the maps of Cobb et al.'s Table 1 are from reversible and from keeping volume, on the funnel 10 + 1.

    python -m validation.cobb_violations

For trajectories of 25 steps from 20 exact draws: |(q, p) - (q'', p'')| after a trajectory there and back, and |det J - 1| of
one step (central differences, increment 1e-5); medians and the 90th percentile over those draws where the map is
defined, and how many those are. The explicit map is that on (q, p), the copies started equal and dropped at the end. Steps are
unchecked (reversibility_check=False): what a check would refuse is what is measured.
"""

from __future__ import annotations

import numpy as np

import refhmc
from refhmc.integrators import ExplicitTao, ProjectedTao
from refhmc.metrics import SoftAbs
from validation import cobb_runs as runs
from validation import common, judging
from validation.cobb_published import PublishedExplicit

NAME = "cobb_violations"
DRAWS = 20


def maps() -> dict:
    tao, published = ExplicitTao(omega=runs.OMEGA), PublishedExplicit(omega=runs.OMEGA)
    projected = ProjectedTao(omega=runs.OMEGA, tolerance=1e-6, reversibility_check=False)
    return {
        "implicit, published threshold, step 0.15": (runs.implicit(), 0.15),
        "implicit, tolerance 1e-6, step 0.15": (runs.implicit(1e-6), 0.15),
        "explicit, program's binding, step 0.14": (published, 0.14),
        "explicit, Tao's binding, step 0.14": (tao, 0.14),
        "explicit, Tao's binding, step 0.035": (tao, 0.035),
        "projected Tao, step 0.14": (projected, 0.14),
        "projected Tao, step 0.035": (projected, 0.035),
    }


def measure(integrator, step: float) -> dict:
    model, rng = refhmc.models.Funnel(runs.N), np.random.default_rng(5)
    H = refhmc.Hamiltonian(model, SoftAbs(alpha=1e6))
    back, volume = [], []
    for q in model.reference.draw(rng, DRAWS):
        p = H.draw_momentum(q, rng)
        with np.errstate(all="ignore"):
            back.append(refhmc.diagnostics.reversibility_violation(H, integrator, q, p, step_size=step, n_steps=runs.L))
            options = {"step_size": step, "n_steps": 1, "increment": 1e-5}
            volume.append(refhmc.diagnostics.volume_violation(H, integrator, q, p, **options))
    found = {}
    for name, values in (("reversal", back), ("volume", volume)):
        x = np.array(values)[np.isfinite(values)]
        found[name] = {"defined": len(x), "quantiles": np.quantile(x, [0.5, 0.9]) if len(x) else [np.nan, np.nan]}
    return found


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    names = {
        "implicit": "implicit, published threshold, step 0.15",
        "explicit": "explicit, program's binding, step 0.14",
    }
    medians = [f"{data['maps'][name]['reversal']['quantiles'][0]:.2g} ({short})" for short, name in names.items()]
    return judging.line(
        "Found",
        f"the published maps are not reversible: trajectories miss their starts by {' and '.join(medians)}, medians.",
    )


def main() -> None:
    found = {name: measure(*what) for name, what in maps().items()}
    rows = [
        (
            name,
            *(text for part in parts.values() for text in (*(f"{x:.2g}" for x in part["quantiles"]), part["defined"])),
        )
        for name, parts in found.items()
    ]
    header = ["map", "reversal, median", "90 %", f"of {DRAWS}", "volume of a step, median", "90 %", f"of {DRAWS}"]
    text = (__doc__ or "").split("\n\n", 2)[2] + "\n" + common.markdown(header, rows)
    common.write_results(
        NAME, "Reversibility and volume of the maps of Cobb et al.'s Table 1", text, {"maps": found}, opening
    )


if __name__ == "__main__":
    main()

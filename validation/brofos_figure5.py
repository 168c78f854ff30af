"""Figure 5 of Brofos and Lederman (2021): energy errors on a Gaussian whose metric is its precision (their appendix E).

q ~ N((1/2, -1), S), S = ((1, 1/2), (1/2, 2)), metric S^-1, ten steps of 0.01, 0.1 and 1. H is quadratic, so the implicit
midpoint rule conserves it (theorem 2) but for the solver's tolerance. The generalized leapfrog is here the leapfrog on two
coordinates of frequency 1, whose mean energy error over L steps of size h is known:

    E[H' - H] = 2 h^4 sin^2(L t) / (32 (1 - h^2/4)),        cos t = 1 - h^2/2
"""

from __future__ import annotations

import math

import numpy as np

import refhmc
from refhmc.dynamics.trajectory import integrate
from validation import judging
from validation.brofos_tables import UNCHECKED, integrator
from validation.common import command_line, markdown, over_trials, save_figure, write_results

MEAN, COVARIANCE = np.array([0.5, -1.0]), np.array([[1.0, 0.5], [0.5, 2.0]])
STEPS, N_STEPS = (0.01, 0.1, 1.0), 10
METHODS = (("I.M.(a)", 1e-6), ("I.M.(a)", 1e-9), ("G.L.F.(a)", 1e-6))
NEIGHBOURHOOD = (1e-12, 1e-8)  # what we take "in the neighborhood of 1e-10" to mean, for a median


def energy_errors(H, step: float, method: str, tolerance: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """H' - H of ``n`` trajectories from draws of the joint law."""
    out = np.empty(n)
    solver = integrator(method, tolerance)
    for k, q in enumerate(rng.multivariate_normal(MEAN, COVARIANCE, n)):
        path = integrate(H, solver, q, H.draw_momentum(q, rng), step_size=step, n_steps=N_STEPS)
        out[k] = path.energy[-1] - path.energy[0]
    return out


def mean_error(h: float) -> float:
    """The leapfrog's mean energy error, the formula above."""
    t = math.acos(1 - h**2 / 2)
    return 2 * h**4 * math.sin(N_STEPS * t) ** 2 / (32 * (1 - h**2 / 4))


def row_of(step: float, method: str, tolerance: float, errors: np.ndarray) -> dict:
    """The figures of one histogram; for the leapfrog with the mean that theory gives."""
    mean = over_trials(errors)
    row = {"step_size": step, "method": method, "tolerance": tolerance, "draws": len(errors), "mean": mean}
    row |= {"median_size": float(np.median(np.abs(errors))), "largest": float(np.abs(errors).max())}
    if method.startswith("G"):
        row |= {"mean_in_theory": mean_error(step), "z": (mean.value - mean_error(step)) / mean.error}
    return row


def draw(found: dict, name: str) -> None:
    """Histograms of |H' - H| on a logarithmic scale, as in the paper."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(1, len(STEPS), figsize=(10, 3), sharex=True, sharey=True)
    for axis, step in zip(axes, STEPS, strict=True):
        for method, tolerance in METHODS:
            sizes = np.log10(np.maximum(np.abs(found[step, method, tolerance]), 1e-17))
            label = f"{method}, tolerance {tolerance:.0e}"
            axis.hist(sizes, bins=np.arange(-17, 2, 0.25), alpha=0.6, density=True, label=label)
        axis.set(title=f"step {step}", xlabel="log10 |H' - H|")
    axes[0].legend(fontsize=6)
    picture.tight_layout()
    save_figure(picture, name)
    plt.close(picture)


def claims_of(rows: list[dict]) -> dict:
    """The paper's two claims, checked: for each tolerance, and for the leapfrog."""
    sizes = {case: [r["median_size"] for r in rows if (r["method"], r["tolerance"]) == case] for case in METHODS}
    leapfrog = sizes[METHODS[-1]]
    out: dict = {"leapfrog's error grows with the step": leapfrog == sorted(leapfrog)}
    for case in METHODS[:-1]:
        ratios = [math.log10(b / max(a, 1e-17)) for a, b in zip(sizes[case], leapfrog, strict=True)]
        name = f"implicit midpoint, tolerance {case[1]:.0e}"
        out[f"{name}: medians near 1e-10"] = all(NEIGHBOURHOOD[0] <= x <= NEIGHBOURHOOD[1] for x in sizes[case])
        out[f"{name}: orders of magnitude below the leapfrog's"] = [round(x, 1) for x in ratios]
    return out


def report(rows: list[dict], chosen, name: str) -> None:
    """Write the table and the claims."""
    header = [
        "step",
        "method",
        "tolerance",
        "median of the error's size",
        "largest",
        "mean error",
        "mean in theory",
        "z",
    ]
    body = []
    for r in rows:
        cells = [r["step_size"], r["method"], f"{r['tolerance']:.0e}", f"{r['median_size']:.1e}", f"{r['largest']:.1e}"]
        theory = [f"{r['mean_in_theory']:.2e}", f"{r['z']:+.1f}"] if "z" in r else ["0, but for the tolerance", "–"]
        body.append([*cells, f"{r['mean'].value:.2e} ± {r['mean'].error:.0e}", *theory])
    claims = claims_of(rows)
    text = [
        f"`python -m validation.brofos_figure5`: {chosen.draws} trajectories a case, ten steps, seed {chosen.seed}. "
        f"{UNCHECKED}",
        'The paper: "for every step-size, the energy conservation of the implicit midpoint method is in the neighborhood of '
        '1e-10 whereas the generalized leapfrog has energy conservation that degrades with larger steps". It does not say '
        "which tolerance that is for: the implicit midpoint's error is what the tolerance leaves, so it is near 1e-10 for "
        "1e-9, not for the 1e-6 of the tables.",
        f"![figure]({name}.png)",
        markdown(header, body),
        "Claims: " + "; ".join(f"{claim}: {value}" for claim, value in claims.items()) + ".",
    ]
    title = "Figure 5 of Brofos and Lederman (2021): energy errors on a Gaussian"
    write_results(name, title, "\n\n".join(text), {"command": vars(chosen), "rows": rows, "claims": claims}, opening)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    claims, near = data["claims"], ": medians near 1e-10"
    met = {name.removesuffix(near).rpartition(" ")[2]: held for name, held in claims.items() if name.endswith(near)}
    held = [claims["leapfrog's error grows with the step"], any(met.values())]
    yes, no = (" or ".join(name for name, held in met.items() if held is which) or "none" for which in (True, False))
    because = f"Tolerances with errors near 1e-10: {yes}; without: {no}. The paper does not name its tolerance."
    return judging.opening(["holds" if each else "does not hold" for each in held], "claims", because)


def make(chosen) -> None:
    """Run, draw and write the figure."""
    H = refhmc.Hamiltonian(refhmc.models.Gaussian(MEAN, COVARIANCE), refhmc.metrics.Fisher())
    rng = np.random.default_rng(chosen.seed)
    cases = [(step, *method) for step in STEPS for method in METHODS]
    found = {case: energy_errors(H, *case, chosen.draws, rng) for case in cases}
    name = "brofos_figure5" + ("_quick" if chosen.quick else "")
    draw(found, name)
    rows = [row_of(*case, found[case]) for case in cases]
    report(rows, chosen, name)
    print(claims_of(rows))


if __name__ == "__main__":
    make(command_line(__doc__, trials=1))

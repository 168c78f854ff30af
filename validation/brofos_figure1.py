"""Figure 1 of Brofos and Lederman (2021): trajectories of H = q^2/2 + p^2/2 by the leapfrog and the implicit midpoint rule.

From (1, 0), with h the step (stable for h < 2), the iterates are known:

    leapfrog             q_n = cos n t,  p_n = -sqrt(1 - h^2/4) sin n t,   cos t = 1 - h^2/2
    implicit midpoint    q_n = cos n s,  p_n = -sin n s,                   tan(s/2) = h/2

The leapfrog's lie on an ellipse: H falls to 1 - h^2/4 of its value at q = 0. The midpoint rule's lie on the circle H = 1/2, at
another pace than the flow's (s < h), as the leapfrog's are (t > h).
"""

from __future__ import annotations

import math

import numpy as np

import refhmc
from refhmc.dynamics.trajectory import integrate
from refhmc.integrators import ImplicitMidpoint, Leapfrog
from validation import judging
from validation.brofos_tables import UNCHECKED
from validation.common import command_line, markdown, save_figure, write_results

STEPS = (0.5, 1.2, 1.8)
SHOWN = 25  # steps in the picture
TOLERANCE = 1e-13
INTEGRATORS = {
    "leapfrog": (Leapfrog(), refhmc.metrics.Identity()),
    "implicit midpoint": (
        ImplicitMidpoint(tolerance=TOLERANCE, max_iterations=1000, reversibility_check=False),
        refhmc.metrics.Fisher(),
    ),
}


def iterates(name: str, h: float, n: int) -> np.ndarray:
    """(q_k, p_k) for k = 0..n, (n + 1, 2)."""
    integrator, metric = INTEGRATORS[name]
    H = refhmc.Hamiltonian(refhmc.models.Gaussian(np.zeros(1), np.eye(1)), metric)
    path = integrate(H, integrator, np.ones(1), np.zeros(1), step_size=h, n_steps=n)
    return np.column_stack([path.q[:, 0], path.p[:, 0]])


def known(name: str, h: float, n: int) -> np.ndarray:
    """The same by the formulas."""
    k = np.arange(n + 1)
    if name == "leapfrog":
        t = math.acos(1 - h**2 / 2)
        return np.column_stack([np.cos(k * t), -math.sqrt(1 - h**2 / 4) * np.sin(k * t)])
    s = 2 * math.atan(h / 2)
    return np.column_stack([np.cos(k * s), -np.sin(k * s)])


def row_of(name: str, h: float, n: int) -> dict:
    """What a trajectory of n steps says."""
    z = iterates(name, h, n)
    H = 0.5 * np.sum(z**2, axis=1)
    pace = math.acos(1 - h**2 / 2) if name == "leapfrog" else 2 * math.atan(h / 2)
    return {
        "integrator": name,
        "step_size": h,
        "steps": n,
        "largest_deviation": float(np.abs(H / H[0] - 1).max()),
        "most_in_theory": h**2 / 4 if name == "leapfrog" else 0.0,
        "largest_change_in_a_step": float(np.abs(np.diff(H) / H[:-1]).max()),
        "from_the_formulas": float(np.abs(z - known(name, h, n)).max()),
        "farthest": float(np.sqrt(2 * H).max()),
        "angle_of_a_step": pace / h,
    }


def claims_of(rows: list[dict]) -> dict[str, bool]:
    """The paper's claims. On the level set of the iterate before: to ten tolerances of the solves, relatively."""
    leapfrog, midpoint = ([row for row in rows if row["integrator"] == name] for name in INTEGRATORS)
    return {
        "both integrators are stable": all(row["farthest"] < 1.01 for row in rows),
        "the leapfrog deviates from the level set": all(row["largest_deviation"] > 0.01 for row in leapfrog),
        "every iterate of the implicit midpoint rule lies on that of the one before": all(
            row["largest_change_in_a_step"] < 10 * TOLERANCE for row in midpoint
        ),
    }


def draw(name: str) -> None:
    """Level sets as faint circles, iterates joined by lines."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(2, len(STEPS), figsize=(3 * len(STEPS), 6), sharex=True, sharey=True)
    angle = np.linspace(0, 2 * np.pi, 200)
    for across, integrator in zip(axes, INTEGRATORS, strict=True):
        for axis, h in zip(across, STEPS, strict=True):
            for radius in np.arange(0.25, 1.3, 0.25):
                axis.plot(radius * np.cos(angle), radius * np.sin(angle), color="tab:blue", alpha=0.25)
            axis.plot(*iterates(integrator, h, SHOWN).T, "o-", color="tab:red", markersize=3, linewidth=0.5)
            axis.set(title=f"{integrator}, step {h}", aspect="equal")
        across[0].set_ylabel("p")
    for axis in axes[-1]:
        axis.set_xlabel("q")
    picture.tight_layout()
    save_figure(picture, name)
    plt.close(picture)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    return judging.opening(["holds" if held else "does not hold" for held in data["claims"].values()], "claims")


def make(chosen) -> None:
    """Run, draw and write the figure."""
    rows = [row_of(name, h, chosen.draws) for name in INTEGRATORS for h in STEPS]
    claims = claims_of(rows)
    name = "brofos_figure1" + ("_quick" if chosen.quick else "")
    draw(name)
    header = ["integrator", "step", "H off its start by at most", "in theory at most", "H changes in a step by at most"]
    header += ["z off the formula by at most", "angle of a step over the step"]
    body = [
        [row["integrator"], row["step_size"], f"{row['largest_deviation']:.2e}", f"{row['most_in_theory']:.4g}"]
        + [f"{row['largest_change_in_a_step']:.1e}", f"{row['from_the_formulas']:.1e}", f"{row['angle_of_a_step']:.4f}"]
        for row in rows
    ]
    text = [
        f"`python -m validation.brofos_figure1`: H = q²/2 + p²/2 from (1, 0), {chosen.draws:,} steps of each size (in the "
        f"picture {SHOWN}); the paper names no step size. Solves to {TOLERANCE:.0e}. {UNCHECKED} H's changes are "
        "relative.",
        'The paper: "Both integrators are stable but the leapfrog integrator deviates from the level sets of the Hamiltonian '
        "(faint blue circles) whereas every iterate of the implicit midpoint integrator lies on the same energy level set as "
        'the previous one".',
        f"![figure]({name}.png)",
        markdown(header, body),
        f"Verdict: {'agrees' if all(claims.values()) else 'differs'}. "
        + "; ".join(f"{claim}: {'yes' if held else 'no'}" for claim, held in claims.items())
        + f" (to {10 * TOLERANCE:.0e}, ten tolerances; what the solves leave adds up over the steps). The leapfrog's deviation "
        "is at most h²/4, that of its ellipse. Neither moves at the flow's pace, an angle of 1.",
    ]
    title = "Figure 1 of Brofos and Lederman (2021): level sets of a quadratic Hamiltonian"
    write_results(name, title, "\n\n".join(text), {"command": vars(chosen), "rows": rows, "claims": claims}, opening)
    print(claims)


if __name__ == "__main__":
    make(command_line(__doc__, trials=1, draws=10_000))

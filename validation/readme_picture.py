"""The README's picture: one start on the banana, followed by the leapfrog and by the implicit midpoint rule on the Fisher metric.

    python -m validation.readme_picture
"""

from __future__ import annotations

import pathlib

import numpy as np

import refhmc

HERE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "_static" / "banana.png"


def main() -> None:
    import matplotlib.figure

    banana = refhmc.models.Banana()
    q = np.array([0.05, 1.0])
    ways = {
        "leapfrog, unit metric": (refhmc.metrics.Identity(), refhmc.integrators.Leapfrog(), 0.03, [0.4, -0.6]),
        "implicit midpoint, Fisher metric": (refhmc.metrics.Fisher(), refhmc.integrators.ImplicitMidpoint(), 0.1, None),
    }
    figure = matplotlib.figure.Figure(figsize=(8, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, (name, (metric, integrator, eps, p)) in zip(panels, ways.items(), strict=True):
        H = refhmc.Hamiltonian(banana, metric)
        momentum = np.array(p) if p else H.mass(q) @ np.array([0.4, -0.6])
        t = refhmc.integrate(H, integrator, q, momentum, step_size=eps, n_steps=40)
        refhmc.plot.trajectory(t, H=H, ax=axis)
        error = np.ptp(t.energy)
        axis.set_title(f"{name}: energy varies by {error:.2g}", fontsize=9)
    panels[0].set(xlim=(-1.6, 1.0), ylim=(-1.6, 1.6))
    figure.savefig(HERE, dpi=90)


if __name__ == "__main__":
    main()

"""The README's picture: one start on the banana, followed by the leapfrog and by the midpoint rule on the Fisher metric.

python -m validation.readme_picture
"""

from __future__ import annotations

import pathlib

import numpy as np

import refhmc
from refhmc.plot.canvas import density_contours

HERE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "_static" / "banana.png"


def main() -> None:
    import matplotlib.figure

    banana = refhmc.models.Banana()
    q, v = np.array([0.05, 1.0]), np.array([0.4, -0.6])
    ways = {
        "leapfrog, unit metric": (refhmc.metrics.Identity(), refhmc.integrators.Leapfrog(), 0.1, 40, v),
        "implicit midpoint, Fisher metric": (
            refhmc.metrics.Fisher(),
            refhmc.integrators.ImplicitMidpoint(),
            0.1,
            40,
            v,
        ),
    }
    figure = matplotlib.figure.Figure(figsize=(8, 3.4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, (name, (metric, integrator, eps, n, velocity)) in zip(panels, ways.items(), strict=True):
        H = refhmc.Hamiltonian(banana, metric)
        t = refhmc.integrate(H, integrator, q, H.mass(q) @ velocity, step_size=eps, n_steps=n)
        density_contours(axis, banana, [0, 1], q, (-1.7, 1.3), (-1.7, 1.7))
        refhmc.plot.metric_ellipses(H, t, every=2, scale=0.15, ax=axis)
        axis.set_title(name, fontsize=10)
    panels[0].set(xlim=(-1.7, 1.3), ylim=(-1.7, 1.7))
    panels[0].get_legend().remove()
    figure.savefig(HERE, dpi=90)


if __name__ == "__main__":
    main()

"""The FitzHugh-Nagumo posterior of the canonical data by quadrature: the numbers in the model's ``reference``.

With theta = mode + C z, C C' the inverse of the negative Hessian at the mode, moments are sums over an equidistant grid in z
(the trapezoidal rule, which converges exponentially for such a density), as far out as the density is not negligible. Its
error: what changes from grid to finer grid. Other modes are looked for from draws of the prior.
"""

from __future__ import annotations

import numpy as np

import refhmc
from validation import judging
from validation.brofos_table4 import mode_of
from validation.common import command_line, markdown, write_results

GRIDS = ((1.0, 36.0), (0.8, 30.0), (0.6, 36.0))  # width, depth


def moments(model, mode, C, width: float, depth: float) -> dict:
    """Mean (3,) and covariance (3, 3) over all grid points that are reached from the mode by way of points at which the log
    density is less than ``depth`` below it."""
    top = model.log_density(mode)
    below = {(0, 0, 0): 0.0}
    front = [(0, 0, 0)]
    while front:
        reached = []
        for point in front:
            for neighbour in np.array(point) + np.vstack([np.eye(3, dtype=int), -np.eye(3, dtype=int)]):
                key = tuple(map(int, neighbour))
                if key not in below:
                    below[key] = top - model.log_density(mode + width * C @ neighbour)
                    if below[key] < depth:
                        reached.append(key)
        front = reached
    theta = mode + width * np.array(list(below)) @ C.T
    weights = np.exp(-np.array(list(below.values())))
    weights /= weights.sum()
    mean = weights @ theta
    covariance = (weights[:, None] * (theta - mean)).T @ (theta - mean)
    return {"width": width, "depth": depth, "points": len(theta), "mean": mean, "covariance": covariance}


def other_modes(model, mode, n: int, rng) -> list[dict]:
    """Where Fisher scoring ends from the best of ``n`` draws of the prior, if not at ``mode``."""
    starts = rng.standard_normal((n, 3))
    L = np.array([model.log_density(q) for q in starts])
    found: list[dict] = []
    for q in starts[np.argsort(-L)[: n // 10]]:
        for _ in range(100):
            if not np.isfinite(model.fisher(q)).all():
                break
            step = np.linalg.solve(model.fisher(q), model.gradient(q))
            while not model.log_density(q + step) > model.log_density(q) and np.abs(step).max() > 1e-9:
                step = step / 2
            q = q + step
            if np.abs(step).max() < 1e-7:
                break
        known = [mode, *[other["at"] for other in found]]
        if all(np.abs(q - x).max() > 1e-3 for x in known):
            found.append({"at": q, "log_density_below_mode": model.log_density(mode) - model.log_density(q)})
    return found


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    finest = data["grids"][-1]
    other = data["grids"][max(len(data["grids"]) - 2, 0)]
    sd = np.sqrt(np.diag(finest["covariance"]))
    apart = np.max(np.abs(np.subtract(finest["mean"], other["mean"])) / sd)
    return judging.line(
        "Found", f"the means of the two finest grids are at most {apart:.0e} posterior standard deviations apart."
    )


def main(chosen) -> None:
    """Quadrature, other modes, result file."""
    model = refhmc.models.FitzHughNagumo()
    mode = mode_of(model)
    C = np.linalg.cholesky(np.linalg.inv(-model.hessian(mode)))
    rows = [moments(model, mode, C, *grid) for grid in (GRIDS[:1] if chosen.quick else GRIDS)]
    best = rows[-1]
    names = model.names
    table = markdown(
        ["grid width", "depth", "points", *[f"mean {n}" for n in names], *[f"sd {n}" for n in names]],
        [
            [r["width"], r["depth"], r["points"]]
            + [f"{x:.12g}" for x in [*r["mean"], *np.sqrt(np.diag(r["covariance"]))]]
            for r in rows
        ],
    )
    others = other_modes(model, mode, 50 if chosen.quick else chosen.starts, np.random.default_rng(chosen.seed))
    words = "; ".join(
        f"{np.array2string(o['at'], precision=4)} at {o['log_density_below_mode']:.0f} below" for o in others
    )
    text = [
        f"`python -m validation.fitzhugh_nagumo_posterior`: mode {np.array2string(mode, precision=10)}.",
        table,
        f"Other stationary points of Fisher scoring from the best tenth of {chosen.starts} draws of the prior: "
        f"{words or 'none'}. (In units of the log density.)",
    ]
    name = "fitzhugh_nagumo_posterior" + ("_quick" if chosen.quick else "")
    data = {"mode": mode, "mean": best["mean"], "covariance": best["covariance"], "grids": rows, "other_modes": others}
    write_results(name, "The FitzHugh-Nagumo posterior of the canonical data", "\n\n".join(text), data, opening)
    print(repr(best["mean"]), repr(np.diag(best["covariance"])), words)


if __name__ == "__main__":
    starts = {"type": int, "default": 500, "help": "draws of the prior from which other modes are looked for"}
    main(command_line(__doc__, starts=starts))

"""Cobb, Baydin, Markham and Roberts (2019), figure 1 (three samplers from a far start) and figure 7 (the binding Omega).

    python -m validation.cobb_figures

Model: logistic regression with one weight and a bias, log joint sum_i log sigma(+-w'x_i) - beta/2 |w|^2, x_i = (x, 1),
x ~ N(0, 1), y_i ~ Bernoulli(sigma(w_i . x_i)) with w_i ~ N((2, 0), 0.3 I) drawn for each observation. N and beta are not in the
text: N = 500, beta = 1 here. The metric is the Fisher metric with the prior's precision.

Figure 7: from (0, 0), 40 steps of 0.012 (and 400 and 4,000, for the long run), the same momentum for all; the distance from an
accurate reference (generalised leapfrog, step / 10, tolerance 1e-12), relative to the diagonal of the box it fills. Omega = 0
and 472 are the text's, those between are ours. Both Tao's binding and the published program's are run. The binding turns by
the angle 2 Omega 0.012 in a step; only its remainder modulo 2 pi matters, and near pi the explicit map is unstable.

Figure 1: from w = 10, b = 0, with the only settings that the paper prints for this model (appendix D.1): HMC L = 1, step 0.2;
both Riemannian samplers L = 3, step 0.04 (a time of 0.12, where the mode is some 40 standard deviations away); and beside them
L = 10 for both, steps 0.05 and 0.1. The implicit sampler has six iterations at most in each solve and goes on all the same in
the paper; here a solve that has not converged to 1e-3 in six is rejected. Implicit steps are unchecked, as the paper's
(reversibility_check=False). Times are processor seconds of compiled code.
"""

from __future__ import annotations

import math

import numpy as np

import refhmc
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog, ProjectedTao
from refhmc.metrics import Fisher, Identity
from validation import common, judging
from validation.cobb_published import PublishedExplicit, binding_matrix

NAME = "cobb_figures"
SEED = 2019
N_DATA, BETA = 500, 1.0
MEAN = np.array([2.0, 0.0])
STEP, LENGTHS = 0.012, (40, 400, 4000)
OMEGAS = (0.0, 1.0, 10.0, 100.0, 472.0)
DRAWS, TRIALS = 500, 20


def make_model():
    """The data as the paper says, with a fixed seed."""
    rng = np.random.default_rng(SEED)
    X = np.c_[rng.standard_normal(N_DATA), np.ones(N_DATA)]
    weights = MEAN + math.sqrt(0.3) * rng.standard_normal((N_DATA, 2))
    y = rng.random(N_DATA) < 1 / (1 + np.exp(-np.sum(weights * X, axis=1)))
    return refhmc.models.LogisticRegression(X, y.astype(float), prior_scale=BETA**-0.5)


def mode_of(model) -> tuple[np.ndarray, np.ndarray]:
    """The mode and the covariance there, by Newton's method."""
    q = MEAN.copy()
    for _ in range(50):
        q = q - np.linalg.solve(model.hessian(q), model.gradient(q))
    return q, np.linalg.inv(-model.hessian(q))


# ---------------------------------------------------------------------------------------------------------- figure 7


def distances(path: np.ndarray, reference: np.ndarray) -> dict:
    """The largest and the last distance from the reference, over the diagonal of the reference's box."""
    gap = np.linalg.norm(path - reference, axis=1) / float(np.linalg.norm(np.ptp(reference, axis=0)))
    return {"largest": float(np.max(gap)), "last": float(gap[-1])}


def omega_sweep(model) -> dict:
    """For each length and integrator: distance from the reference, energy error, acceptance."""
    H, q0 = refhmc.Hamiltonian(model, Fisher()), np.zeros(2)
    p0 = H.draw_momentum(q0, np.random.default_rng(SEED + 1))
    fine = GeneralizedLeapfrog(tolerance=1e-12, max_iterations=1000, reversibility_check=False)
    schemes = {"implicit": GeneralizedLeapfrog(tolerance=1e-9, reversibility_check=False)}
    for omega in OMEGAS:
        schemes[f"Tao, Omega = {omega:g}"] = ExplicitTao(omega=omega)
        schemes[f"program, Omega = {omega:g}"] = PublishedExplicit(omega=omega)
        schemes[f"projected, Omega = {omega:g}"] = ProjectedTao(omega=omega, tolerance=1e-9, reversibility_check=False)
    found = {}
    for steps in LENGTHS:
        reference = refhmc.integrate(H, fine, q0, p0, step_size=STEP / 10, n_steps=10 * steps).q[::10]
        rows = {"reference": {"path": reference}}
        for name, integrator in schemes.items():
            whole = refhmc.integrate(H, integrator, q0, p0, step_size=STEP, n_steps=steps)
            error = float(whole.energy[-1] - whole.energy[0])
            accept = math.exp(min(0.0, -error)) if math.isfinite(error) else 0.0
            rows[name] = {**distances(whole.q, reference), "energy_error": error, "acceptance": accept, "path": whole.q}
        found[steps] = rows
    return found


# ---------------------------------------------------------------------------------------------------------- figure 1


def samplers() -> dict:
    riemannian = {"step_size": 0.04, "n_steps": 3, "metric": Fisher()}
    six = GeneralizedLeapfrog(tolerance=1e-3, max_iterations=6, reversibility_check=False)
    converged = GeneralizedLeapfrog(tolerance=1e-6, reversibility_check=False)
    return {
        "HMC": refhmc.HMC(step_size=0.2, n_steps=1, metric=Identity()),
        "implicit": refhmc.HMC(integrator=six, **riemannian),
        "explicit, Tao": refhmc.HMC(integrator=ExplicitTao(omega=10.0), **riemannian),
        "explicit, program": refhmc.HMC(integrator=PublishedExplicit(omega=10.0), **riemannian),
        "HMC, L = 10": refhmc.HMC(step_size=0.05, n_steps=10, metric=Identity()),
        "implicit, L = 10": refhmc.HMC(step_size=0.1, n_steps=10, metric=Fisher(), integrator=converged),
    }


def race(model, name: str, kernel, mode, covariance) -> dict:
    """Draws, and seconds, until the chain is within two standard deviations of the mode (Mahalanobis), over the trials."""
    starts = np.tile([10.0, 0.0], (TRIALS, 1))
    chains = common.run_chains(model, kernel, draws=DRAWS, chains=TRIALS, seed=SEED, starts=starts, cores=1, warm=True)
    options = {"chains": 1, "seed": SEED, "starts": starts[:1], "warm": False}
    long, short = (common.run_chains(model, kernel, draws=n, **options).seconds for n in (20_000, 100))
    seconds = (long - short) / 19_900
    away = chains.draws - mode
    squares = np.einsum("cdi,ij,cdj->cd", away, np.linalg.inv(covariance), away)
    arrived = [int(np.argmax(row < 4)) + 1 if (row < 4).any() else DRAWS + 1 for row in squares]
    paths = [np.vstack([[10.0, 0.0], chains.draws[k, : min(n, DRAWS)]]) for k, n in enumerate(arrived)]
    detours = [np.linalg.norm(np.diff(p, axis=0), axis=1).sum() / np.linalg.norm(p[-1] - p[0]) for p in paths]
    return {
        "acceptance": float(chains.stats["acceptance_rate"].mean()),
        "draws_to_the_mode": common.over_trials(arrived),
        "arrived": int(np.sum(np.array(arrived) <= DRAWS)),
        "path_over_straight_line": common.over_trials(detours),
        "largest_bias_on_the_way": common.over_trials([np.abs(p[:, 1]).max() for p in paths]),
        "milliseconds_to_the_mode": 1e3 * seconds * float(np.mean(arrived)),
        "seconds_of_a_draw": seconds,
        "path": chains.draws[0],
    }


# ------------------------------------------------------------------------------------------------------------ claims


def claims(sweep: dict, races: dict) -> list[tuple[str, str, str, str]]:
    """The captions' claims, what decides them, verdict."""

    def gap(kind: str, omega: float, steps: int) -> float:
        return sweep[steps][f"{kind}, Omega = {omega:g}"]["largest"]

    def both(omega):
        parts = [f"{kind} " + ", ".join(f"{gap(kind, omega, n):.2g}" for n in LENGTHS) for kind in ("Tao", "program")]
        return "; ".join(parts) + f" ({', '.join(map(str, LENGTHS))} steps)"

    last = LENGTHS[-1]
    best = min(gap("Tao", omega, last) for omega in OMEGAS[1:4])
    ours = f"best {best:.2g}, implicit {sweep[last]['implicit']['largest']:.2g} ({last} steps)"
    rows = [
        ("7", "Ω = 0 leaves the implicit path", both(0), yes(gap("Tao", 0, last) > 0.05)),
        ("7", "between, there are Ω that agree", ours, yes(best < 0.05)),
        ("7", "Ω = 472 leaves it", both(472), yes(gap("Tao", 472, last) > 0.05 and gap("program", 472, last) > 0.05)),
    ]
    draws = {name: found["draws_to_the_mode"] for name, found in races.items()}
    detour = {name: found["path_over_straight_line"] for name, found in races.items()}
    milli = {name: common.number(found["milliseconds_to_the_mode"]) for name, found in races.items()}
    cost = {name: found["seconds_of_a_draw"] for name, found in races.items()}
    cheap = (
        f"implicit {cost['implicit'] / cost['HMC']:.1f}, explicit {cost['explicit, Tao'] / cost['HMC']:.1f} times HMC's"
    )
    ratio = cost["explicit, Tao"] / cost["implicit"]
    return rows + [
        ("1", "geometry brings the chain to the mode in fewer draws", several(draws), pair(draws)),
        ("1", "HMC takes the more circuitous route (path / straight line)", several(detour), pair(detour)),
        (
            "1",
            "HMC is the cheapest a draw (paper: 31 and 19 times)",
            cheap,
            yes(cost["HMC"] < min(cost["implicit"], 1)),
        ),
        ("1", "explicit takes 0.61 of the implicit's time", f"{ratio:.2f}", yes(0.4 < ratio < 0.8)),
        ("1", "milliseconds to the mode", several(milli), "no claim"),
    ]


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    claims = [(figure, verdict) for figure, _, _, verdict in data["claims"] if verdict != "no claim"]
    return judging.opening([verdict for _, verdict in claims], "claims", judging.tallies(by_figure(claims), "claims"))


def by_figure(claims: list) -> dict[str, list[str]]:
    """Return the verdicts of each figure; the figure comes first in a claim and its verdict last."""
    found: dict[str, list[str]] = {}
    for figure, *_, verdict in claims:
        found.setdefault(f"figure {figure.rstrip('ab')}", []).append(verdict)
    return dict(sorted(found.items()))


def yes(good: bool) -> str:
    return "holds" if good else "does not hold"


def several(found: dict) -> str:
    return "; ".join(f"{name}: {value}" for name, value in found.items())


def pair(found: dict) -> str:
    """Whether the implicit sampler's figure is below HMC's, with the printed settings and at L = 10."""
    printed, longer = (found["implicit" + more].value < found["HMC" + more].value for more in ("", ", L = 10"))
    return f"{yes(printed)} with the settings of appendix D.1; {yes(longer)} at L = 10"


# -------------------------------------------------------------------------------------------------------------- main


def main() -> None:
    from validation.cobb_pictures import draw_race, draw_sweep

    model = make_model()
    mode, covariance = mode_of(model)
    sweep = omega_sweep(model)
    races = {name: race(model, name, kernel, mode, covariance) for name, kernel in samplers().items()}
    draw_sweep(sweep)
    draw_race(races, mode, covariance)
    checked = claims(sweep, races)
    angles = {f"{omega:g}": 2 * omega * STEP for omega in OMEGAS}
    determinants = {key: float(np.linalg.det(binding_matrix(angle))) for key, angle in angles.items()}
    rows = [
        (
            steps,
            name,
            f"{row['largest']:.3g}",
            f"{row['last']:.3g}",
            f"{row['energy_error']:.3g}",
            f"{row['acceptance']:.2f}",
        )
        for steps, found in sweep.items()
        for name, row in found.items()
        if name != "reference"
    ]
    header = ["steps", "integrator", "largest distance", "last", "energy error", "acceptance"]
    text = common.markdown(["figure", "claim", "ours", "verdict"], checked)
    spread = np.sqrt(np.diag(covariance))
    text += f"\n\nMode {np.round(mode, 3).tolist()}, standard deviations {np.round(spread, 3).tolist()}.\n\n"
    text += common.markdown(header, rows) + "\n\n" + (__doc__ or "").split("\n\n", 2)[2]
    text += "\n\nPictures: cobb_figure1.png, cobb_figure7.png."
    strip = {steps: {k: drop(row) for k, row in found.items()} for steps, found in sweep.items()}
    data = {
        "claims": checked,
        "mode": mode,
        "binding_angle": angles,
        "program_determinant_one_coordinate": determinants,
    }
    data |= {"sweep": strip, "races": {k: drop(x) for k, x in races.items()}}
    common.write_results(NAME, "Cobb et al. (2019), figures 1 and 7", text, data, opening)


def drop(row: dict) -> dict:
    return {key: value for key, value in row.items() if key != "path"}


if __name__ == "__main__":
    main()

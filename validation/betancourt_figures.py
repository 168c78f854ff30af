"""Betancourt (2013), figures 2 to 10: trajectories, autocorrelations and histograms of v, and what the captions claim.

    python -m validation.betancourt_figures

Trajectories start as in the published program, with the papers' sign of v: v = -3.5, x uniform on (-5, 5), step 0.01, 5,000
steps. Along them

    V = -L(q),    T = 1/2 p' G^-1 p,    1/2 log det G = H - V - T

The half-period of the longest oscillation is that of the lowest peak of the spectrum of v(t) (Hann's window) with at least a
hundredth of the largest peak's power. The paper does not define it. It is the median over trajectories from the program's
start with fresh momenta, and over trajectories from exact draws of the funnel. The time at which v(0) and v(t), over the
latter, are least correlated decides how long a trajectory should be.

Rules of the verdicts:

- "T/2 = t": the half-period from the figure's start is within 20 % of t.
- "Held to (n+1)/2" and "limited": the range of V is below twice (n+1)/2, for exact draws in the median. "Not bound" is the
  opposite.
- "Consistent with N(0, 9)": z of E v and of E v^2 are below 3. "Biased": z of E v is above 3. Both are undecided if the chain
  could have missed a shift of v by half a standard deviation, with a probability above 10 %. This needs an ESS of 74.
- "One step suits": H changes by less than 0.1. "Almost the same expanse": at least 70 % of the range.
- "Far below": less than half. "A random walk": ESS below 5 % of the draws. "Small": a step below 0.1.

Each chain and each trajectory in a picture is one run; a comparison of two of them has no standard error.
Implicit steps are unchecked, as the paper's program takes them (reversibility_check=False): not exact.
"""

from __future__ import annotations

import argparse
import json
import math

import numpy as np
import scipy.stats

import refhmc
from refhmc.integrators import GeneralizedLeapfrog, Leapfrog
from refhmc.metrics import DiagonalOuterProductSoftAbs, DiagonalSoftAbs, Identity, SoftAbs
from validation import betancourt_runs as runs
from validation import common, judging

NAME = "betancourt_figures"
STEP, STEPS, EVERY = 0.01, 5000, 10
LOOSE = GeneralizedLeapfrog(tolerance=1e-3, reversibility_check=False)
HALF = (runs.N + 1) / 2
SEED = 2013


def kinds() -> dict:
    """Metric and integrator of each trajectory."""
    return {
        "emhmc": (Identity(), Leapfrog()),
        "softabs": (SoftAbs(alpha=runs.ALPHA), GeneralizedLeapfrog(reversibility_check=False)),
        "diagonal": (DiagonalSoftAbs(alpha=runs.ALPHA), GeneralizedLeapfrog(reversibility_check=False)),
        "outer": (DiagonalOuterProductSoftAbs(alpha=1.0), GeneralizedLeapfrog(reversibility_check=False)),
    }


def chain_kernels() -> dict:
    """Kernel, warm-up and draws of each figure's chain."""
    adapted = {"step_size": None, "n_steps": None, "trajectory_length": 8.0, "target_accept": 0.65}
    return {
        "emhmc_adapted": (runs.emhmc(**adapted), 1000, 10_000),
        "emhmc": (runs.emhmc(), 100, 10_000),
        "softabs": (runs.softabs(LOOSE), 200, 500),
        "diagonal": (runs.diagonal(), 1000, 1000),
        "outer": (runs.outer_product(), 500, 500),
    }


# ------------------------------------------------------------------------------------------------------ trajectories


def program_start(rng) -> np.ndarray:
    return np.r_[-3.5, rng.uniform(-5, 5, runs.N)]


def energies(H, trajectory, every: int) -> dict[str, np.ndarray]:
    """V, T, 1/2 log det G and H at every ``every``-th state."""
    found = {"V": [], "T": [], "half_log_det": [], "H": []}
    for q, p, energy in zip(*(part[::every] for part in trajectory[:3]), strict=True):
        if not np.isfinite(q).all():
            break
        V, T = -H.model.log_density(q), 0.5 * float(p @ H.grad_p(q, p))
        for name, value in zip(found, (V, T, energy - V - T, energy), strict=True):
            found[name].append(float(value))
    return {name: np.array(values) for name, values in found.items()}


def one_trajectory(name: str) -> dict:
    """The figure's trajectory: v and the energies over time."""
    metric, integrator = kinds()[name]
    model, rng = refhmc.models.Funnel(runs.N), np.random.default_rng(SEED)
    H = refhmc.Hamiltonian(model, metric)
    q = program_start(rng)
    p = H.draw_momentum(q, rng)
    whole = refhmc.integrate(H, integrator, q, p, step_size=STEP, n_steps=STEPS)
    parts = energies(H, whole, EVERY)
    n = len(parts["H"])
    return {"time": STEP * EVERY * np.arange(n), "v": whole.q[::EVERY, 0][:n], **parts}


def slowest_half_period(step: float, v: np.ndarray) -> float | None:
    """Half the period of the lowest peak of the spectrum with a hundredth of the largest peak's power."""
    power = np.abs(np.fft.rfft((v - v.mean()) * np.hanning(len(v)))) ** 2
    inside = power[1:-1]
    peaks = 1 + np.flatnonzero((inside > power[:-2]) & (inside >= power[2:]) & (inside > 0.01 * power.max()))
    return len(v) * step / (2 * float(peaks[0])) if len(peaks) else None


def follow(name: str, starts: np.ndarray, length: float, step: float) -> tuple[np.ndarray, list[float]]:
    """v(t) of a trajectory from each start, and the range of V along it; those that fail are left out."""
    metric, integrator = kinds()[name]
    integrator = LOOSE if name == "softabs" else integrator
    model, rng = refhmc.models.Funnel(runs.N), np.random.default_rng(SEED + 2)
    H = refhmc.Hamiltonian(model, metric)
    paths, potentials = [], []
    for q in starts:
        p = H.draw_momentum(q, rng)
        path = refhmc.integrate(H, integrator, q, p, step_size=step, n_steps=round(length / step))
        if np.isfinite(path.q).all():
            paths.append(path.q[:, 0])
            potentials.append(float(np.ptp([-model.log_density(x) for x in path.q[::20]])))
    return np.array(paths), potentials


def periods(name: str, count: int, length: float, step: float) -> dict:
    """Half-period from the program's start; correlation of v(0) and v(t), and ranges, from exact draws."""
    rng = np.random.default_rng(SEED + 1)
    paths, _ = follow(name, np.tile(program_start(rng), (count, 1)), length, step)
    halves = [x for x in (slowest_half_period(step, v) for v in paths) if x is not None]
    v, potentials = follow(name, refhmc.models.Funnel(runs.N).reference.draw(rng, count), length, step)
    typical = [x for x in (slowest_half_period(step, path) for path in v) if x is not None]
    together = np.mean(v[:, :1] * v, axis=0) / np.mean(v[:, 0] ** 2) if len(v) else np.ones(1)
    return {
        "trajectories": [len(paths), len(v)],
        "time": length,
        "half_period_median": float(np.median(halves)) if halves else None,
        "half_period_quartiles": [float(x) for x in np.quantile(halves, [0.25, 0.75])] if halves else None,
        "half_period_median_exact_draws": float(np.median(typical)) if typical else None,
        "time_of_least_correlation": float(step * np.argmin(together)),
        "least_correlation": float(together.min()),
        "range_of_v_median": float(np.median(np.ptp(v, axis=1))) if len(v) else None,
        "range_of_V_median": float(np.median(potentials)) if potentials else None,
    }


# ------------------------------------------------------------------------------------------------------------ chains


def chain(name: str) -> dict:
    """The figure's chain: v, autocorrelations to lag 1,000 (or half the draws), the fit to N(0, 9)."""
    kernel, tune, draws = chain_kernels()[name]
    made = runs.run(kernel, SEED, tune, draws)
    lags = min(1000, draws // 2)
    facts = {key: value for key, value in made.facts.items() if "second" not in key or "moment" in key}
    return {
        "v": made.v,
        "rho": runs.autocorrelations(made.v, lags),
        "highest_v": float(made.v.max()),
        "lowest_v": float(made.v.min()),
        **facts,
    }


LIMIT, SHIFT = 3.0, 0.5  # |z| that differs; the shift of v, in standard deviations, that a verdict must be able to find
ENOUGH = ((LIMIT + scipy.stats.norm.isf(1 - judging.POWER)) / SHIFT) ** 2  # ESS


def consistent(facts: dict) -> str:
    """Return whether both moments of v are within three standard errors of those of N(0, 9)."""
    z = (facts["z_mean"], facts["z_second_moment"])
    if facts["ess"] < ENOUGH or None in z:
        return f"undecided: a shift of v by {detectable(facts):.1f} standard deviations could be missed"
    return yes(max(map(abs, z)) < LIMIT)


def detectable(facts: dict) -> float:
    """Return the shift of v, in standard deviations, that the chain would have found with probability POWER."""
    return SHIFT * math.sqrt(ENOUGH / facts["ess"])


def biased(facts: dict) -> str:
    """Return whether v is too large in the mean."""
    too_large = facts["z_mean"] is not None and facts["z_mean"] > LIMIT
    return consistent(facts) if facts["ess"] < ENOUGH else yes(too_large)


def yes(good: bool) -> str:
    return "holds" if good else "does not hold"


# ------------------------------------------------------------------------------------------------------------ claims


def claims(ranges: dict, period: dict, chains: dict) -> list[dict]:
    """Each caption's claim, the figure that decides it, and whether it holds."""
    dV = {name: period[name]["range_of_V_median"] for name in ranges}
    words = {name: f"ΔV = {found['V']:.1f}, median of exact draws {dV[name]:.1f}" for name, found in ranges.items()}
    dv = {name: found["v"] for name, found in ranges.items()}
    rho = {name: float(found["rho"][1]) for name, found in chains.items()}
    z = {
        name: f"z of E v {fact['z_mean'] or math.nan:.1f}, of E v² {fact['z_second_moment'] or math.nan:.1f}; "
        f"v in ({fact['lowest_v']:.1f}, {fact['highest_v']:.1f}), ESS {fact['ess']:.0f} of {fact['draws']}"
        for name, fact in chains.items()
    }
    reach = chains["emhmc_adapted"]["highest_v"]
    outer = chains["outer"]
    list_of = [
        (2, "adapted EMHMC misses the neck: no draw has v > 5", f"highest v {reach:.1f}", reach < 5.0),
        (
            2,
            "adapted EMHMC: v inconsistent with N(0, 9)",
            z["emhmc_adapted"],
            opposite(consistent(chains["emhmc_adapted"])),
        ),
        (
            3,
            f"EMHMC: ΔV held to about (n+1)/2 = {HALF}",
            words["emhmc"],
            max(dV["emhmc"], ranges["emhmc"]["V"]) < 2 * HALF,
        ),
        (3, "EMHMC: T/2 ≈ 8", half(period["emhmc"]), near(period["emhmc"], 8)),
        (4, "EMHMC by hand is consistent with N(0, 9)", z["emhmc"], consistent(chains["emhmc"])),
        (5, "SoftAbs: ΔV not bound to (n+1)/2", words["softabs"], dV["softabs"] > 2 * HALF),
        (
            5,
            "SoftAbs: one step suits the whole path",
            f"range of H {ranges['softabs']['H']:.2g}",
            ranges["softabs"]["H"] < 0.1,
        ),
        (5, "SoftAbs: T/2 ≈ 25", half(period["softabs"]), near(period["softabs"], 25)),
        (6, "SoftAbs: consistent with N(0, 9)", z["softabs"], consistent(chains["softabs"])),
        (
            6,
            "SoftAbs: autocorrelation far below EMHMC's",
            lag1(rho, "softabs", "emhmc"),
            2 * rho["softabs"] < rho["emhmc"],
        ),
        (7, "diagonal explores almost the same expanse", widths(dv), dv["diagonal"] > 0.7 * dv["softabs"]),
        (8, "diagonal: consistent with N(0, 9)", z["diagonal"], consistent(chains["diagonal"])),
        (
            8,
            "diagonal: autocorrelation above SoftAbs's",
            lag1(rho, "diagonal", "softabs"),
            rho["diagonal"] > rho["softabs"],
        ),
        (
            9,
            "outer product: ΔV limited",
            words["outer"],
            dV["outer"] < 2 * HALF,
        ),
        (10, "outer product: a random walk", z["outer"], outer["ess"] < 0.05 * outer["draws"]),
        (10, "outer product: biased to large v", f"mean v {outer['mean']:.2f}, {z['outer']}", biased(outer)),
        (10, "outer product: small steps", f"step {outer['step_size']:.2g}", outer["step_size"] < 0.1),
    ]
    return [
        {"figure": n, "claim": text, "ours": ours, "verdict": good if isinstance(good, str) else yes(good)}
        for n, text, ours, good in list_of
    ]


def half(period: dict) -> str:
    first, typical = (period["half_period_median" + more] or math.nan for more in ("", "_exact_draws"))
    least = f"least correlation {period['least_correlation']:.2f} at t = {period['time_of_least_correlation']:.0f}"
    return f"{first:.1f} from the figure's start, {typical:.1f} from exact draws; {least}"


def near(period: dict, theirs: float) -> bool:
    """Return whether the half-period from the figure's start is within 20 % of the printed one."""
    ours = period["half_period_median"]
    return ours is not None and abs(ours / theirs - 1) < 0.2


def opposite(verdict: str) -> str:
    return {"holds": "does not hold", "does not hold": "holds"}.get(verdict, verdict)


def lag1(rho: dict, one: str, other: str) -> str:
    return f"lag 1: {rho[one]:.3f} against {rho[other]:.3f}"


def widths(dv: dict) -> str:
    return f"range of v {dv['diagonal']:.1f} against {dv['softabs']:.1f}"


# -------------------------------------------------------------------------------------------------------------- main


def make() -> None:
    from validation.betancourt_pictures import draw_chains, draw_trajectories

    paths = {name: one_trajectory(name) for name in kinds()}
    draw_trajectories(paths)
    print("trajectories done", flush=True)
    plan = {
        "emhmc": (12, 100.0, 0.01),
        "softabs": (12, 120.0, 0.1),
        "diagonal": (40, 120.0, 0.05),
        "outer": (8, 50.0, 0.01),
    }
    period = {name: periods(name, *settings) for name, settings in plan.items()}
    print("periods done", flush=True)
    chains = {}
    for name in chain_kernels():
        chains[name] = chain(name)
        print(name, "done", flush=True)
    draw_chains(chains)
    small = {k: {key: x for key, x in c.items() if key != "v"} | {"rho": c["rho"][:51]} for k, c in chains.items()}
    ranges = {name: {key: float(np.ptp(x)) for key, x in path.items()} for name, path in paths.items()}
    write(ranges, period, small)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    groups: dict[str, list[str]] = {}
    for claim in data["claims"]:
        groups.setdefault(f"figure {claim['figure']}", []).append(claim["verdict"])
    because = f"{judging.tallies(groups, 'claims')} Chains of undecided ones have too few effective draws."
    return judging.opening([claim["verdict"] for claim in data["claims"]], "claims", because)


def write(ranges: dict, period: dict, chains: dict, facts: dict | None = None) -> None:
    checked = claims(ranges, period, chains)
    rows = [(c["figure"], c["claim"], c["ours"], c["verdict"]) for c in checked]
    text = common.markdown(["figure", "claim", "ours", "verdict"], rows)
    text += (
        "\n\n" + (__doc__ or "").split("\n\n", 2)[2] + "\nPictures: betancourt_trajectories.png, betancourt_chains.png."
    )
    data = {"claims": checked, "ranges_along_the_trajectory": ranges, "periods": period, "chains": chains}
    common.write_results(NAME, "Betancourt (2013), figures 2 to 10", text, data, opening, facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--report", action="store_true", help="only write the report again, from the recorded figures")
    if parser.parse_args().report:
        stored = json.loads((common.RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))
        write(stored["ranges_along_the_trajectory"], stored["periods"], stored["chains"], stored["about"])
    else:
        make()


if __name__ == "__main__":
    main()

"""Cobb, Baydin, Markham and Roberts (2019), figures 5 and 6: logistic regression with eleven parameters (appendix D.1).

    python -m validation.cobb_logistic

Printed are the number of parameters, the steps and lengths (HMC L = 1, step 0.2; implicit and explicit L = 3, step 0.04; figure
5a with L = 30, 100 iterations), and how data are made. **Not in the text**, and chosen here: N = 500 rows, x ~ N(0, I) and a
bias, weights ~ N(m, 0.3 I) drawn for each row with m = (2, ..., 2, 0), as in its example with one weight; a test set made
alike; beta = 1 in figure 5 and 0.1, 1, 10, 100 in figure 6; Omega = 1 (for the acceptance with others see below); what is
recorded (here all positions, as the program does, so that a lag is an integrator step); and the metric's unit. The program
divides the Fisher metric by a constant of the caller's. With none, the posterior's frequency is about 1 and half its period
pi / 0.04 = 79 steps; with N = 500 it is 22 and half its period 3.5 steps, which is what "L less than half the period" and L = 3
ask for. So both are run, G and G / N.

The paper's samplers: HMC; the generalised leapfrog, unchecked, six iterations at most, threshold 0.001 on max(delta^2), solves
that have not converged rejected; the program's explicit map. All start at the mode. Figure 5 with the decision of Metropolis
and Hastings. Figure 6 with it, a draw being the state after each transition, and with the chain of the program
(cobb_program.py), which is not restored after a rejection and records all positions of accepted trajectories.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

import refhmc
from refhmc.diagnostics import autocovariances, geyer_ess
from refhmc.integrators import Leapfrog
from refhmc.metrics import Fisher, Identity
from validation import cobb_runs as runs
from validation import common, judging
from validation.cobb_figures import by_figure
from validation.cobb_program import Rule, chain
from validation.cobb_published import PublishedExplicit
from validation.comparing import smaller
from validation.judging import ALARM, POWER, level

NAME = "cobb_logistic"
SEED, N_DATA, WEIGHTS, OMEGA = 11, 500, 10, 1.0
MEAN = np.r_[np.full(WEIGHTS, 2.0), 0.0]
BETAS = (0.1, 1.0, 10.0, 100.0)
LONG, TRIALS, LAGS, TRANSITIONS = 30, 3, 60, 300
RULES = {"Metropolis": Rule(), "program": Rule(restores=False, whole=True)}


# ------------------------------------------------------------------------------------------------- model and samplers


def log_density(w, data):
    """sum_i log sigma(z_i . w) - beta/2 |w|^2, z_i = +-x_i the rows of ``data`` but the last, (beta, unit, 0, ...)."""
    m = data[:-1] @ w
    return np.sum(np.minimum(m, 0.0) - np.log1p(np.exp(-np.abs(m)))) - 0.5 * data[-1, 0] * np.sum(w * w)


def gradient(w, data):
    m = data[:-1] @ w
    return data[:-1].T @ (1 / (1 + np.exp(m))) - data[-1, 0] * w


def fisher(w, data):
    """(sum_i v_i z_i z_i' + beta I) / unit, v = sigma(m) sigma(-m) = e / (1 + e)^2, e = exp(-|m|)."""
    Z = np.ascontiguousarray(data[:-1])
    e = np.exp(-np.abs(Z @ w))
    G = Z.T @ (Z * (e / (1 + e) ** 2).reshape(-1, 1))
    for i in range(len(w)):
        G[i, i] += data[-1, 0]
    return G / data[-1, 1]


def fisher_contraction(w, data, M):
    """sum_jk M_jk dG_jk/dw, dv/dm = -v tanh(m/2) = -v sign(m) (1 - e) / (1 + e)."""
    Z = np.ascontiguousarray(data[:-1])
    m = Z @ w
    e = np.exp(-np.abs(m))
    change = -np.sign(m) * e * (1 - e) / (1 + e) ** 3
    return Z.T @ (change * np.sum((Z @ np.ascontiguousarray(M)) * Z, axis=1)) / data[-1, 1]


def make_data(rng) -> tuple[np.ndarray, np.ndarray]:
    """Rows (x, 1) and labels, weights drawn anew for each row."""
    X = np.c_[rng.standard_normal((N_DATA, WEIGHTS)), np.ones(N_DATA)]
    weights = MEAN + math.sqrt(0.3) * rng.standard_normal(X.shape)
    return X, rng.random(N_DATA) < 1 / (1 + np.exp(-np.sum(weights * X, axis=1)))


def make_model(beta: float, unit: float = 1.0) -> refhmc.Model:
    X, y = make_data(np.random.default_rng(SEED))
    last = np.zeros(len(MEAN))
    last[:2] = beta, unit
    data = np.vstack([np.where(y, 1.0, -1.0)[:, None] * X, last])
    return refhmc.Model(
        len(MEAN),
        log_density,
        gradient,
        fisher=fisher,
        fisher_contraction=fisher_contraction,
        data=data,
        name="logistic regression",
    )


def mode_of(model) -> np.ndarray:
    """By Newton's method from 0, with the Fisher metric times its unit for minus the Hessian."""
    w, unit = np.zeros(model.dim), model.data[-1, 1]
    for _ in range(50):
        w = w + np.linalg.solve(unit * model.fisher(w), model.gradient(w))
    return w


def kernel(name: str, steps: int) -> refhmc.HMC:
    """A sampler of the paper with so many steps."""
    if name == "HMC":
        return refhmc.HMC(step_size=0.2, n_steps=steps, metric=Identity(), integrator=Leapfrog())
    integrator = runs.implicit(most=6) if name.startswith("implicit") else PublishedExplicit(omega=OMEGA)
    return refhmc.HMC(step_size=0.04, n_steps=steps, metric=Fisher(), integrator=integrator)


SAMPLERS = {"HMC": 1.0, "implicit, G": 1.0, "explicit, G": 1.0, "implicit, G / N": N_DATA, "explicit, G / N": N_DATA}
PRINTED = {name: 1 if name == "HMC" else 3 for name in SAMPLERS}


def bindings() -> dict[float, float]:
    """Acceptance of the explicit scheme, G / N and L = 3, by Omega."""
    model = make_model(1.0, N_DATA)
    at = mode_of(model)
    kernels = {
        omega: dataclasses.replace(kernel("explicit", 3), integrator=PublishedExplicit(omega=omega))
        for omega in (0.0, 1.0, 10.0, 30.0, 100.0)
    }
    return {omega: chain(model, one, Rule(), at, 300, SEED).acceptance for omega, one in kernels.items()}


# ---------------------------------------------------------------------------------------------------------- figure 5


def memory(name: str, steps: int) -> dict:
    """Autocorrelations of the recorded positions, mean over coordinates and runs, and steps per effective draw of each run."""
    model = make_model(1.0, SAMPLERS[name])
    start, transitions = mode_of(model), 100 * LONG // steps
    rho, cost, acceptance = [], [], []
    for k in range(TRIALS):
        done = chain(model, kernel(name, steps), Rule(whole=True), start, transitions, (SEED, k))
        gamma = autocovariances(done.recorded[None])
        rho.append(np.mean(gamma[: LAGS + 1] / gamma[0], axis=1))
        cost.append(len(done.recorded) / float(np.min(geyer_ess(done.recorded[None]))))
        acceptance.append(done.acceptance)
    mean = np.mean(rho, axis=0)
    rises = np.flatnonzero(np.diff(mean) > 0)
    first = int(rises[0]) if len(rises) else None
    return {
        "rho": mean,
        "first_minimum": first,
        "lowest": common.over_trials(np.array(rho)[:, first if first is not None else LAGS]),
        "steps_per_effective_draw": cost,
        "acceptance": common.over_trials(acceptance),
    }


# ---------------------------------------------------------------------------------------------------------- figure 6


def posterior(name: str, beta: float, rule: str) -> dict:
    """Of each run: mean and spread of the draws, and the share of the test set that the predictive mean gets right."""
    model, (X, y) = make_model(beta, SAMPLERS[name]), make_data(np.random.default_rng(SEED + 1))
    start = mode_of(model)
    means, spread, accuracy, acceptance = [], [], [], []
    for k in range(TRIALS):
        done = chain(model, kernel(name, PRINTED[name]), RULES[rule], start, TRANSITIONS, (SEED, k))
        w = done.recorded[len(done.recorded) // 10 :]
        means.append(w.mean(axis=0))
        spread.append(float(np.exp(np.mean(np.log(w.std(axis=0))))))
        predicted = np.mean(1 / (1 + np.exp(-X @ w[:: max(len(w) // 500, 1)].T)), axis=1)
        accuracy.append(float(np.mean((predicted > 0.5) == y)))
        acceptance.append(done.acceptance)
    return {
        "mean": np.mean(means, axis=0),
        "from_zero": common.over_trials(np.linalg.norm(means, axis=1)),
        "from_m": common.over_trials(np.linalg.norm(np.array(means) - MEAN, axis=1)),
        "spread": spread,
        "accuracy": accuracy,
        "acceptance": common.over_trials(acceptance),
        "draws": w[:: max(len(w) // 500, 1)][:, :5],
    }


# -------------------------------------------------------------------------------------------------------------- main


def claims(memories: dict, posteriors: dict) -> list[list[str]]:
    """Figure, claim, ours, verdict."""
    rows, m = [], 2 * len(SAMPLERS) + 4 * len(BETAS)
    for name in SAMPLERS:
        found = memories[name][LONG]
        low, at = found["lowest"], found["first_minimum"]
        swings = low.value + 3 * low.error < 0
        rows.append(["5a", f"{name}: L = 30 oscillates", f"least autocorrelation {low}", yes(swings)])
        fits = at is not None and at >= PRINTED[name]
        words = "none within 60 steps" if at is None else f"half a period is {at} steps"
        rows.append(["5a", f"{name}: L = {PRINTED[name]} is less than half the period", words, yes(fits)])
        short, long = (memories[name][steps]["steps_per_effective_draw"] for steps in (PRINTED[name], LONG))
        ratio, word = smaller(short, long, m)
        rows.append(["5b", f"{name}: fewer steps per effective draw than with L = 30", f"ratio {ratio}", word])
    exact = posteriors["implicit, G / N"]
    for key, title, falls in (("from_zero", "0", True), ("from_m", "m", False)):
        values = [exact[beta]["Metropolis"][key].value for beta in BETAS]
        ordered = all((a > b) == falls for a, b in itertools.pairwise(values))
        text = ", ".join(common.number(value) for value in values)
        what = "larger beta draws the mean to 0" if falls else "smaller beta brings the mean nearer to m"
        rows.append(["6", what, f"distance from {title} at beta = {', '.join(map(str, BETAS))}: {text}", yes(ordered)])
    for beta in BETAS:
        for rule in RULES:
            hmc, explicit = (posteriors[name][beta][rule] for name in ("HMC", "explicit, G / N"))
            ratio, word = smaller(explicit["spread"], hmc["spread"], m)
            rows.append(["6", f"beta = {beta}, {rule}: HMC spreads more than explicit RMHMC", f"ratio {ratio}", word])
            wrong = [1 - np.array(x["accuracy"]) for x in (explicit, hmc)]
            ratio, word = smaller(*wrong, m)
            rows.append(
                ["6", f"beta = {beta}, {rule}: explicit RMHMC errs less on the test set", f"ratio {ratio}", word]
            )
    return rows


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    verdicts = [verdict for *_, verdict in data["claims"]]
    because = f"{judging.tallies(by_figure(data['claims']), 'claims')} Undecided ones have few runs, or runs without a figure."
    return judging.opening(verdicts, "claims", because)


def yes(good: bool) -> str:
    return "holds" if good else "does not hold"


def figures(posteriors: dict) -> str:
    rows = []
    for name, by_beta in posteriors.items():
        for beta, by_rule in by_beta.items():
            for rule, found in by_rule.items():
                spread, accuracy = common.over_trials(found["spread"]), common.over_trials(found["accuracy"])
                cells = [name, beta, rule, str(found["acceptance"]), str(found["from_zero"]), str(found["from_m"])]
                rows.append([*cells, str(spread), f"{accuracy.value:.4f} ± {accuracy.error:.4f}"])
    header = ["sampler", "beta", "chain", "acceptance", "mean's distance from 0", "from m", "spread", "test accuracy"]
    return common.markdown(header, rows)


def memory_table(memories: dict) -> str:
    rows = []
    for name, by_length in memories.items():
        for steps, found in by_length.items():
            cost = common.over_trials(found["steps_per_effective_draw"])
            half = "–" if found["first_minimum"] is None else found["first_minimum"]
            rows.append([name, steps, str(found["acceptance"]), half, str(found["lowest"]), str(cost)])
    header = [
        "sampler",
        "L",
        "acceptance",
        "lag of the first minimum",
        "autocorrelation there",
        "steps per effective draw",
    ]
    return common.markdown(header, rows)


def main() -> None:
    from validation.cobb_pictures import draw_memory, draw_priors

    memories: dict = {}
    for name in SAMPLERS:
        memories[name] = {steps: memory(name, steps) for steps in (LONG, PRINTED[name])}
        print(name, "figure 5", flush=True)
    posteriors: dict = {}
    for name in ("HMC", "implicit, G / N", "explicit, G / N"):
        posteriors[name] = {beta: {rule: posterior(name, beta, rule) for rule in RULES} for beta in BETAS}
        print(name, "figure 6", flush=True)
    checked = claims(memories, posteriors)
    draw_memory(memories)
    draw_priors(posteriors, MEAN)
    m = 2 * len(SAMPLERS) + 4 * len(BETAS)
    rule = (
        f"{TRIALS} runs of each: 100 transitions (figure 5; 1,000 or 3,000 with L = 3 or 1), {TRANSITIONS} (figure 6). "
        f'"Oscillates": the mean autocorrelation falls below 0 by three standard errors. Ratios are decided at p < '
        f'{level(m):.2g} = 1 - (1 - {ALARM})^(1/{m}), "told" is the factor found with probability {POWER:.0%}. Spread: '
        "geometric mean of the standard deviations of the eleven parameters."
    )
    parts = [
        (__doc__ or "").split("\n\n", 2)[2].strip(),
        common.markdown(["figure", "claim", "ours", "verdict"], checked),
    ]
    swept = bindings()
    sweep = "; ".join(f"{omega:g}: {rate:.2f}" for omega, rate in swept.items())
    parts += [rule, memory_table(memories), figures(posteriors)]
    parts += [
        f"Acceptance of the explicit scheme with G / N, L = 3, beta = 1, by Omega: {sweep}.",
        "Pictures: cobb_figure5.png, cobb_figure6.png.",
    ]
    slim = {
        name: {
            beta: {rule: {k: v for k, v in x.items() if k != "draws"} for rule, x in by.items()}
            for beta, by in rows.items()
        }
        for name, rows in posteriors.items()
    }
    data = {"claims": checked, "figure5": memories, "figure6": slim, "acceptance_by_omega": swept}
    title = "Cobb et al. (2019), figures 5 and 6: logistic regression with eleven parameters"
    common.write_results(NAME, title, "\n\n".join(parts), data, opening)


if __name__ == "__main__":
    main()

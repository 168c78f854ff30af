"""Tempering on targets with two modes: ``python -m validation.tempering [--runs 20] [--seeds 25]``.

The targets have two modes in d dimensions, w N(-5 e_1, s^2 I) + (1 - w) N(5 e_1, I). They are normalised, so that log Z = 0.
In the first, w = 0.2 and s = 1. In the second, w = 0.5 and s = 0.5: at small b, the narrow mode has a small share. Each run
has four chains with 1,000 iterations of warm-up and 1,000 draws. The columns are

- share: the mean share of draws in the left mode over the runs, with its standard error (exact: w);
- lost: how many chains of all runs have less than 1 % of their draws in one of the modes;
- warned: how many runs warn that R-hat is above 1.01;
- ESS: w (1 - w) divided by the mean squared error of this share over the runs, and the same per 1,000 gradients of a run, with
  warm-up;
- log Z: the mean over the runs with its standard error, the spread over the runs, and the spread divided by the stated error;
- the mean barrier of the first leg, and the mean number of round trips of a chain between the first reference and the target.

Chains of NUTS do not cross. The share that they report is that of the chains that started in the left mode.

"10 and 5 rungs" has a leg from the first reference and one from the fitted reference, the default. "10 rungs" has the first
leg only.

The adaptive tempered SMC of BlackJAX has 4,000 particles from N(0, 5^2), a target ESS of 90 %, and 5 transitions of HMC with
5 steps of size 0.5 s at each temperature, chosen for the known scales of these targets. Its share is that of the weighted
particles. The rows are left out if BlackJAX is not installed.

The last target is the mixture ``low_dim_gauss_mix`` of posteriordb. z is the error of a mean or a variance divided by its
standard error. The table has the largest absolute z over all seeds, and the number of seeds with an R-hat above 1.05.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import math
import warnings
from typing import Any, NamedTuple

import numpy as np

import refhmc
from refhmc import NUTS, Tempered, diagnostics
from validation import common, judging

NAME = "tempering"
HALF, LOST, CHAINS = 5.0, 0.01, 4
OPTIONS: dict[str, Any] = {"chains": CHAINS, "raw": True, "progressbar": False, "preflight": False, "generate": False}
KERNELS = {
    "NUTS": NUTS(),
    "4 rungs": Tempered(NUTS(), rungs=4, learned_rungs=0),
    "10 rungs": Tempered(NUTS(), rungs=10, learned_rungs=0),
    "4 and 4 rungs": Tempered(NUTS(), rungs=4, learned_rungs=4),
    "10 and 5 rungs": Tempered(NUTS()),
}


class Target(NamedTuple):
    """Dimension, share of the left mode, and its standard deviation."""

    d: int
    share: float
    scale: float


TARGETS = (Target(2, 0.2, 1.0), Target(10, 0.2, 1.0), Target(50, 0.2, 1.0), Target(5, 0.5, 0.5), Target(10, 0.5, 0.5))


class Run(NamedTuple):
    """Share of the left mode, chains that lost a mode, whether R-hat is above 1.01, log Z and its error, and others."""

    share: float
    lost: float
    warned: float
    log_z: float
    error: float
    gradients: int
    barrier: float = math.nan
    trips: float = math.nan


def two_modes(target: Target) -> refhmc.Model:
    """Return the model of a target."""
    d, share, scale = target
    of_right = math.log(1 - share) - 0.5 * d * math.log(2 * math.pi)
    of_left = of_right + math.log(share / (1 - share)) - d * math.log(scale)
    precision, half = scale**-2.0, HALF

    def value_and_gradient(q: np.ndarray, data: None, out: np.ndarray) -> float:
        rest = 0.0
        for i in range(1, q.shape[0]):
            rest += q[i] * q[i]
        left = of_left - 0.5 * precision * (rest + (q[0] + half) ** 2)
        right = of_right - 0.5 * (rest + (q[0] - half) ** 2)
        top = max(left, right)
        total = math.exp(left - top) + math.exp(right - top)
        in_left = math.exp(left - top) / total
        for i in range(q.shape[0]):
            out[i] = -(precision * in_left + 1 - in_left) * q[i]
        out[0] += half * (1 - in_left - precision * in_left)
        return top + math.log(total)

    def log_density(q: np.ndarray, data: None) -> float:
        return value_and_gradient(q, data, np.empty_like(q))

    return refhmc.Model(
        d, log_density, value_and_gradient=value_and_gradient, gradient=None, name=f"two modes, d = {d}"
    )


def run_of(model: refhmc.Model, kernel: object, seed: int) -> Run:
    result = refhmc.sample(model, kernel, random_seed=seed, **OPTIONS)
    about, shares = result.attributes, (result.draws[:, :, 0] < 0).mean(axis=1)
    found = [about.get(name, math.nan) for name in ("log_z", "log_z_error")]
    trips = float(np.mean(about.get("round_trips", math.nan)))
    lost = int((np.minimum(shares, 1 - shares) < LOST).sum())
    warned, barrier = any(text.startswith("R-hat is above") for text in result.warnings), about.get("barrier", math.nan)
    return Run(float(shares.mean()), lost, warned, *found, about["n_gradient_evaluations"], barrier, trips)


def smc_of_blackjax(target: Target, runs: int) -> list[Run]:
    """Return runs of the adaptive tempered SMC of BlackJAX."""
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.smc import extend_params, resampling

    jax.config.update("jax_enable_x64", True)
    particles, transitions, steps, scale, d = 4000, 5, 5, 5.0, target.d
    constant = -0.5 * d * math.log(2 * math.pi)

    def log_reference(q: Any) -> Any:
        return constant - d * math.log(scale) - 0.5 * jnp.sum((q / scale) ** 2)

    def log_target(q: Any) -> Any:
        rest = jnp.sum(q[1:] ** 2)
        left = -0.5 * ((q[0] + HALF) ** 2 + rest) / target.scale**2 - d * math.log(target.scale)
        terms, shares = [left, -0.5 * ((q[0] - HALF) ** 2 + rest)], [target.share, 1 - target.share]
        return constant + jax.scipy.special.logsumexp(jnp.array(terms), b=jnp.array(shares))

    smc = blackjax.adaptive_tempered_smc(
        log_reference,
        lambda q: log_target(q) - log_reference(q),
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        extend_params(
            {"step_size": 0.5 * target.scale, "inverse_mass_matrix": jnp.ones(d), "num_integration_steps": steps},
        ),
        resampling.systematic,
        0.9,
        num_mcmc_steps=transitions,
    )
    step, made = jax.jit(smc.step), []
    for seed in range(runs):
        key, of_start = jax.random.split(jax.random.key(seed))
        state, log_z, n = smc.init(scale * jax.random.normal(of_start, (particles, d))), 0.0, 0
        while float(state.tempering_param) < 1:
            key, of_step = jax.random.split(key)
            state, info = step(of_step, state)
            log_z, n = log_z + float(info.log_likelihood_increment), n + 1
        share = float(jnp.sum(state.weights * (state.particles[:, 0] < 0)))
        made.append(Run(share, math.nan, math.nan, log_z, math.nan, particles * n * transitions * steps))
    return made


def row(target: Target, name: str, runs: list[Run]) -> dict:
    """Return a row of the first table."""
    share, lost, warned, log_z, error, gradients, barrier, trips = np.array(runs).T
    n, exact = len(runs), target.share
    ess = exact * (1 - exact) / np.mean((share - exact) ** 2)
    crosses = name != "NUTS"
    sd = log_z.std(ddof=1)
    return {
        "d": target.d,
        "w": exact,
        "s": target.scale,
        "method": name,
        "share": f"{share.mean():.3f} +- {share.std(ddof=1) / math.sqrt(n):.3f}",
        "lost": f"{lost.sum():.0f} of {CHAINS * n}" if np.isfinite(lost).all() else "none",
        "warned": f"{warned.sum():.0f} of {n}" if np.isfinite(warned).all() else "none",
        "ESS": f"{ess:.0f}" if crosses else "none",
        "gradients": f"{gradients.mean():,.0f}",
        "ESS per 1,000 gradients": f"{1000 * ess / gradients.mean():.2f}" if crosses else "none",
        "log Z": f"{log_z.mean():.4f} +- {sd / math.sqrt(n):.4f}" if crosses else "none",
        "spread of log Z": f"{sd:.4f}" if crosses else "none",
        "spread / stated": f"{sd / error.mean():.2f}" if np.isfinite(error).all() else "none",
        "barrier": f"{barrier.mean():.2f}" if np.isfinite(barrier).all() else "none",
        "round trips": f"{trips.mean():.0f}" if np.isfinite(trips).all() else "none",
    }


def z_scores(model: refhmc.Model, result: refhmc.Result) -> np.ndarray:
    """Return z of each mean and of each variance."""
    x = np.concatenate([v.reshape(*v.shape[:2], -1) for v in result.posterior.values()], axis=2)
    truth, squares = model.reference, (x - x.mean(axis=(0, 1))) ** 2
    assert truth is not None
    z = []
    for values, theirs, error in ((x, truth.mean, truth.mean_se), (squares, truth.variance, truth.variance_se)):
        own = values.std(axis=(0, 1)) / np.sqrt(diagnostics.ess_of_mean(values))
        z.append((values.mean(axis=(0, 1)) - np.asarray(theirs)) / np.hypot(own, error))
    return np.concatenate(z)


def mixture(seeds: int) -> list[dict]:
    """Return the rows of the second table."""
    model, rows = refhmc.models.GaussianMixture(), []
    for name, kernel in {"NUTS": NUTS(), "Tempered, 6 and 3 rungs": Tempered(NUTS(), rungs=6, learned_rungs=3)}.items():
        found = [refhmc.sample(model, kernel, random_seed=seed, **OPTIONS) for seed in range(seeds)]
        z = np.array([np.abs(z_scores(model, each)).max() for each in found])
        rhat = np.array([diagnostics.rhat(each.draws).max() for each in found])
        ess = np.mean([diagnostics.ess(each.draws).min() for each in found])
        gradients = np.mean([each.attributes["n_gradient_evaluations"] for each in found])
        log_z = [each.attributes.get("log_z", math.nan) for each in found]
        errors = [each.attributes.get("log_z_error", math.nan) for each in found]
        tempered = bool(np.isfinite(log_z).all())
        rows.append(
            {
                "kernel": name,
                "largest z": f"{z.max():.1f}",
                "seeds with z above 4": int((z > 4).sum()),
                "seeds with R-hat above 1.05": int((rhat > 1.05).sum()),
                "mean of the least ESS": f"{ess:.0f}",
                "gradients": f"{gradients:,.0f}",
                "log Z": f"{np.mean(log_z):.3f} +- {np.std(log_z, ddof=1) / math.sqrt(seeds):.3f}"
                if tempered
                else "none",
                "spread / stated": f"{np.std(log_z, ddof=1) / np.mean(errors):.2f}" if tempered else "none",
            }
        )
        print(rows[-1], flush=True)
    return rows


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    chains = {
        method: [int(row["lost"].split()[0]) for row in data["rows"] if row["method"] == method]
        for method in ("10 rungs", "10 and 5 rungs")
    }
    shares = [
        abs(float(row["share"].split()[0]) - row["w"]) for row in data["rows"] if row["method"] == "10 and 5 rungs"
    ]
    lost = ", ".join(f"{', '.join(map(str, each))} with {method}" for method, each in chains.items())
    return judging.line(
        "Found",
        f"the mean share of a mode by the default differs by at most {max(shares):.3f} from the exact one; chains that lost "
        f"a mode on the {len(shares)} targets: {lost}.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=25)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for target in TARGETS:
        model = two_modes(target)
        for name, kernel in KERNELS.items():
            rows.append(row(target, name, [run_of(model, kernel, seed) for seed in range(chosen.runs)]))
            print(rows[-1], flush=True)
        if importlib.util.find_spec("blackjax"):
            version = importlib.metadata.version("blackjax")
            rows.append(row(target, f"BlackJAX {version}, tempered SMC", smc_of_blackjax(target, chosen.runs)))
            print(rows[-1], flush=True)
    of_mixture = mixture(chosen.seeds)
    text = "\n\n".join((__doc__ or "").split("\n\n")[1:])
    tables = [common.markdown(list(each[0]), [list(row.values()) for row in each]) for each in (rows, of_mixture)]
    page = f"{chosen.runs} runs of each, and {chosen.seeds} seeds of the mixture.\n\n{text}\n" + "\n\n".join(tables)
    common.write_results(NAME, "Tempering", page, {"rows": rows, "mixture": of_mixture}, opening)


if __name__ == "__main__":
    main()

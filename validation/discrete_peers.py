"""Discontinuous HMC beside NumPyro's samplers of discrete parameters: ``python -m validation.discrete_peers [--quick]``.

Effective draws for each evaluation of the density on a change point (111 possible years), a closed population (up to 5,000
animals), and Jolly-Seber (13 integers up to 5,000), by refhmc's DHMC, by plain Metropolis within Gibbs, and by NumPyro's
DiscreteHMCGibbs and MixedHMC, which try all values of a discrete site in turn, or, as ``random_walk``, one drawn evenly.

An evaluation is a gradient (one for each step of a trajectory), a log density, or a change of it by one coordinate. Needs
NumPyro (extra ``peers``). The samplers' draws are held against the exact answers, too.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable

import numpy as np

import refhmc
from refhmc.models.closed_population import probabilities
from refhmc.models.datasets import load_json
from validation import judging, metropolis_within_gibbs
from validation.common import command_line, effective_sizes, markdown, over_trials, write_results

CHAINS = 4
AGREE = 1.1  # chains with a largest R-hat below it
MOST_VALUES = 20_000  # a draw of a sampler that tries them all, one after the other


@dataclasses.dataclass
class Problem:
    """``values`` turns refhmc's draws or NumPyro's samples into one array (chain, draw, k) of comparable numbers.

    ``truth``: name, mean and its standard error of the first of them. ``sizes``: supports of the discrete sites.
    """

    name: str
    model: refhmc.Model
    peer: Callable
    values: Callable[[dict], np.ndarray]
    truth: tuple[str, float, float]
    sizes: tuple[int, ...]


# ------------------------------------------------------------------------------------------- the models in NumPyro's words


def change_point_problem() -> Problem:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y = np.array(load_json("coal_mining_disasters")["counts"])

    def peer():
        rate = numpyro.sample("rate", dist.Gamma(1.0, 1.0).expand([2]))
        k = numpyro.sample("k", dist.DiscreteUniform(0, len(y) - 2))
        numpyro.sample("y", dist.Poisson(jnp.where(jnp.arange(len(y)) <= k, rate[0], rate[1])), obs=y)

    def values(named):
        year = named["year"][..., 0] if "year" in named else named["k"] + 1852
        return np.concatenate([year[..., None], named["rate"]], axis=-1).astype(float)

    model = refhmc.models.ChangePoint()
    truth = ("E(year)", float(model.reference.mean[2]), 0.0)
    return Problem("change point", model, peer, values, truth, (len(y) - 1,))


def closed_population_problem() -> Problem:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import gammaln

    T, captures, distinct, largest = 5, 60, 38, 5000

    def peer():
        p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
        N = numpyro.sample("k", dist.DiscreteUniform(0, largest - distinct)) + distinct
        ways = gammaln(N + 1.0) - gammaln(N - distinct + 1.0) - jnp.log(N)
        numpyro.factor("data", ways + captures * jnp.log(p) + (T * N - captures) * jnp.log1p(-p))

    def values(named):
        N = named["N"] if "N" in named else named["k"] + distinct
        return np.stack([np.log(N), named["p"]], axis=-1)

    model = refhmc.models.ClosedPopulation(T, captures, distinct, largest)
    truth = float(probabilities(T, captures, distinct, largest) @ np.log(np.arange(distinct, largest + 1)))
    return Problem("closed population", model, peer, values, ("E(log N)", truth, 0.0), (largest - distinct + 1,))


def jolly_seber_problem() -> Problem:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import gammaln

    known = load_json("black_kneed_capsid")
    n, u = np.array(known["n"]), np.array(known["u"])
    m, z = np.array([0, *known["m_from_2"]]), np.array([0, *known["z_from_2"]])
    unseen, T = np.array(known["R"]) - np.array(known["r"]), len(known["n"])

    def peer():
        p = numpyro.sample("p", dist.Uniform(0.0, 1.0).expand([T]))
        phi = numpyro.sample("phi", dist.Uniform(0.0, 1.0).expand([T - 1]))
        U = jnp.stack([u[i] + numpyro.sample(f"k{i:02d}", dist.DiscreteUniform(0, 5000 - u[i])) for i in range(T)])
        V = U - u
        variance = 500.0**2 + phi * (1 - phi) * V[:-1]
        total = jnp.sum(-0.5 * ((U[1:] - phi * V[:-1]) ** 2 / variance + jnp.log(variance))) - jnp.log(U[0])
        total += jnp.sum(gammaln(U + 1.0) - gammaln(V + 1.0) + n * jnp.log(p) + (V + z) * jnp.log1p(-p))
        chi = 1.0
        for i in range(T - 2, -1, -1):
            chi = (1 - phi[i]) + phi[i] * (1 - p[i + 1]) * chi
            total += unseen[i] * jnp.log(chi)
        numpyro.factor("data", total + jnp.sum((z[1:] + m[1:]) * jnp.log(phi)))

    def values(named):
        U = named["U"] if "U" in named else np.stack([u[i] + named[f"k{i:02d}"] for i in range(T)], axis=-1)
        return np.concatenate([np.log(U), named["p"], named["phi"]], axis=-1)

    row = load_json("jolly_seber_posterior")["summary"]["log U[1]"]
    truth = ("E(log U_1)", row["mean"], row["mcse_mean"])
    return Problem("Jolly-Seber", refhmc.models.JollySeber(), peer, values, truth, tuple(5001 - u))


# ---------------------------------------------------------------------------------------------------------- the samplers


def ours(problem: Problem, draws: int, seed: int, **options) -> tuple[np.ndarray, float]:
    """Values and evaluations a draw of DHMC."""
    result = refhmc.sample(
        problem.model,
        refhmc.DHMC(**options),
        draws=draws,
        tune=2000,
        chains=CHAINS,
        cores=1,
        random_seed=seed,
        progressbar=False,
        raw=True,
    )
    evaluations = float(np.mean(result.sample_stats["n_density_evaluations"]))
    return problem.values(problem.model.constrain(result.draws)), evaluations


def metropolis(problem: Problem, draws: int, seed: int) -> tuple[np.ndarray, float]:
    starts = np.tile(problem.model.initial, (CHAINS, 1))
    run = metropolis_within_gibbs.sample(problem.model, sweeps=draws, tune=draws // 5, starts=starts, seed=seed)
    return problem.values(problem.model.constrain(run.draws)), float(run.calls)


def numpyro_gibbs(problem: Problem, draws: int, seed: int, **options) -> tuple[np.ndarray, float]:
    """DiscreteHMCGibbs: NUTS, and each discrete site in turn."""
    from numpyro.infer import NUTS, DiscreteHMCGibbs

    kernel = DiscreteHMCGibbs(NUTS(problem.peer), **options)
    tries = len(problem.sizes) if options.get("random_walk") else sum(problem.sizes) - len(problem.sizes)
    return _numpyro(problem, kernel, draws, seed, tries)


def numpyro_mixed(problem: Problem, draws: int, seed: int, updates: int, **options) -> tuple[np.ndarray, float]:
    """MixedHMC: a trajectory of length pi/2 with ``updates`` discrete moves on the way."""
    from numpyro.infer import HMC, MixedHMC

    kernel = MixedHMC(HMC(problem.peer, trajectory_length=np.pi / 2), num_discrete_updates=updates, **options)
    tries = updates if options.get("random_walk") else updates * (np.mean(problem.sizes) - 1)
    return _numpyro(problem, kernel, draws, seed, tries)


def _numpyro(problem: Problem, kernel, draws: int, seed: int, tries: float) -> tuple[np.ndarray, float]:
    import jax
    from numpyro.infer import MCMC

    mcmc = MCMC(
        kernel,
        num_warmup=min(1000, draws // 2),
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), extra_fields=("hmc_state.num_steps",))
    steps = np.asarray(mcmc.get_extra_fields()["hmc_state.num_steps"], dtype=float)
    named = {key: np.asarray(x) for key, x in mcmc.get_samples(group_by_chain=True).items()}
    return problem.values(named), float(steps.mean() + tries)


def samplers(problem: Problem, draws: int) -> dict[str, tuple[Callable | None, dict, int]]:
    """Name: function, options, draws. Where a draw would try tens of thousands of values the function is None: not run."""
    sites, many = len(problem.sizes), sum(problem.sizes)
    few = draws if many < 1000 else max(10, draws // 10)
    walk = {"modified": True, "random_walk": True}
    exhaustive = many < MOST_VALUES
    return {
        "refhmc DHMC, 20 steps (default)": (ours, {}, draws),
        "refhmc DHMC, length pi/2": (ours, {"trajectory_length": np.pi / 2}, draws),
        "Metropolis within Gibbs": (metropolis, {}, 5 * draws),
        "NumPyro DiscreteHMCGibbs": (numpyro_gibbs if exhaustive else None, {"modified": True}, few),
        "NumPyro DiscreteHMCGibbs, random walk": (numpyro_gibbs, walk, draws),
        "NumPyro MixedHMC": (numpyro_mixed if exhaustive else None, {"modified": True, "updates": sites}, few),
        "NumPyro MixedHMC, random walk": (numpyro_mixed, {**walk, "updates": 10 * sites}, draws),
    }


def measure(problem: Problem, draws: int, seed: int) -> list[dict]:
    """A row for each sampler; one that fails says how."""
    rows = []
    for name, (sampler, options, number) in samplers(problem, draws).items():
        row: dict = {"sampler": name, "draws": number}
        if sampler is None:
            row |= {"draws": 0, "evaluations": float(sum(problem.sizes))}
            rows.append(row)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values, evaluations = sampler(problem, row["draws"], seed, **options)
        except Exception as failure:  # a peer that cannot do it is a result
            row["failure"] = f"{type(failure).__name__}: {str(failure).splitlines()[0][:160]}"
        else:
            sizes = effective_sizes(values)
            row["evaluations"] = evaluations
            row["first"] = over_trials(1000 * sizes[..., 0] / (row["draws"] * evaluations))
            row["least"] = over_trials(1000 * sizes.min(axis=1) / (row["draws"] * evaluations))
            row["least_per_draw"] = float(sizes.min(axis=1).mean() / row["draws"])
            _, truth, error = problem.truth
            own = values[..., 0].std() / np.sqrt(max(sizes[..., 0].sum(), 1.0))
            row["mean"] = float(values[..., 0].mean())
            row["z"] = float((row["mean"] - truth) / np.hypot(own, error))
            # A chain that visits one value, or four that disagree, has no effective sample size that means anything.
            row["moves"] = float(np.mean(np.diff(values[..., 0], axis=1) != 0))
            row["rhat"] = float(refhmc.diagnostics.rhat(values).max())
        rows.append(row)
        print(problem.name, {key: str(value) for key, value in row.items()}, flush=True)
    return rows


def table(problem: Problem, rows: list[dict]) -> str:
    what, truth, _ = problem.truth
    header = [
        "sampler",
        "draws",
        "evaluations a draw",
        f"ESS({what[2:-1]}) / 1,000",
        "least ESS / 1,000",
        "the first row's is",
    ]
    header += [f"{what}; exact {truth:.3f}", "z", "changes of it", "largest R-hat"]
    lines = []
    reference = rows[0]["least"].value if "least" in rows[0] else float("nan")
    for row in rows:
        if "failure" in row:
            lines.append([row["sampler"], f"{CHAINS} x {row['draws']:,}", row["failure"], *[""] * 7])
            continue
        if row["draws"] == 0:
            most = 1000 / row["evaluations"]
            line = [row["sampler"], "not run", f"{row['evaluations']:,.0f}"]
            words = f"at most {most:.3f}, if draws were independent"
            lines.append([*line, words, words, f"at least {reference / most:.0f} times", *["–"] * 4])
            continue
        useful = row["rhat"] < AGREE
        line = [row["sampler"], f"{CHAINS} x {row['draws']:,}", f"{row['evaluations']:,.0f}"]
        line += [str(row["first"]), str(row["least"])] if useful else ["chains disagree", "–"]
        line += [f"{reference / row['least'].value:.1f} times" if useful else "–"]
        lines.append([*line, f"{row['mean']:.3f}", f"{row['z']:+.1f}", f"{row['moves']:.1%}", f"{row['rhat']:.3f}"])
    return markdown(header, lines)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    words = []
    for problem, (default, *others) in ((name, rows) for name, rows in data.items() if name != "about"):
        sizes = [
            row["least"]["value"]
            for row in others
            if row.get("least") and row["rhat"] < AGREE and not row["sampler"].startswith("refhmc")
        ]
        words.append(
            f"{default['least']['value'] / max(sizes):.2f} ({problem})"
            if sizes
            else f"no other's chains agree ({problem})"
        )
    return judging.line(
        "Found",
        "the least ESS per evaluation of refhmc's default, relative to the best other sampler whose chains agree: "
        f"{', '.join(words)}.",
    )


def main() -> None:
    chosen = command_line(__doc__, trials=CHAINS, draws=1_500, only={"nargs": "*", "help": "problems by first word"})
    import jax
    import numpyro

    numpyro.enable_x64()
    foot = (
        f"ArviZ's bulk ESS of a chain by itself, with standard errors over {CHAINS} chains; the least is over all parameters "
        "(logs of population sizes). NumPyro's in the modified form; MixedHMC with as many discrete updates as sites, ten "
        "times as many in the random walk. A sampler that tries all values is not run "
        f"where they are more than {MOST_VALUES:,}: its figures follow from their number. "
        f"NumPyro {numpyro.__version__}, JAX {jax.__version__}, double precision. Warm-up, and MixedHMC's gradients after a "
        "discrete move, are not counted."
    )
    _, first, second = __doc__.split("\n\n", 2)
    parts, data = [first, second.strip()], {}
    for make in (change_point_problem, closed_population_problem, jolly_seber_problem):
        problem = make()
        if chosen.only and not problem.name.lower().startswith(tuple(word.lower() for word in chosen.only)):
            continue
        data[problem.name] = measure(problem, chosen.draws, chosen.seed)
        sites = f"{len(problem.sizes)} integers" if len(problem.sizes) > 1 else "one integer"
        parts.append(f"## {problem.name[0].upper()}{problem.name[1:]} ({sites} of up to {max(problem.sizes):,} values)")
        parts.append(table(problem, data[problem.name]))
        if not (chosen.quick or chosen.only):  # again after each problem: the last takes longest
            text = "\n\n".join([*parts, foot])
            write_results(
                "discrete_peers", "Discontinuous HMC beside samplers of discrete parameters", text, data, opening
            )
    print(*parts, foot, sep="\n\n")


if __name__ == "__main__":
    main()

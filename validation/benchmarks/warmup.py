"""What warm-up makes of real geometries, beside peers: ``python -m validation.benchmarks.warmup [--seeds 5] [--most 25]
[--cores 2] [--only years ...]``.

Four chains of 1,000 iterations of warm-up and 1,000 draws, one after another on one core, target acceptance 0.8, trees
of depth 10 at most. refhmc's NUTS with its defaults, and with Stan's warm-up; nutpie with its diagonal and its low-rank
metric on the same compiled functions; NumPyro with a diagonal and a dense metric, and BlackJAX's Metropolis-adjusted
microcanonical sampler as it is there (4 chains of 1,000 + 5,000 transitions of two steps each on average, target 0.9), on the
log density in jax.numpy, which has been compiled. Of each run: the least effective sample size of a coordinate for 1,000
gradients, those of warm-up included, and for a second of sampling, warm-up included. Medians over the seeds, and their
range; steps a draw; the largest R-hat. All samplers of a problem take a seed in turn: five seeds, and as many as 25 while a
sampler has run less than 20 s; one that has run 120 s takes no other, and one whose run took longer than 120 s is stopped
and has no figure. With ``--cores 2`` two problems run side by
side. Problems that a run leaves out keep their figures; when each was measured, and of which commit, stands below the tables.

A ratio is that of refhmc to the peer with the best median, of each seed that both have; beside its median stands an interval
that holds the median in 94 of 100 cases at least: of five pairs their range, of more those of the sorted ratios between which
the binomial law puts it; of fewer pairs there is none.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import queue
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import diagnostics
from validation.benchmarks import common, samplers
from validation.benchmarks.median import median_interval
from validation.benchmarks.nutpie_models import nutpie_model, read_trace
from validation.benchmarks.posteriors import POSTERIORS, Posterior, check_same
from validation.two_trees import git

CAP, QUICK, COMPILING, MICROCANONICAL = 120.0, 20.0, 600.0, 5000
CONFIDENCE = 15 / 16
READY = "ready"
KEPT = common.RESULTS / "warmup.json"
Run = samplers.Run


class Figures(NamedTuple):
    """Of one run: least ESS for 1,000 gradients and for a second, steps a draw, largest R-hat, seconds."""

    by_gradient: float
    by_second: float
    steps: float
    rhat: float
    seconds: float


def of_refhmc(posterior: Posterior, warmup: str | None = None) -> Callable[[int], Run]:
    model = posterior.model()
    options: dict[str, Any] = {"cores": 1, "raw": True, "progressbar": False, "warmup": warmup, "max_seconds": CAP}

    def run(seed: int, **more: int) -> Run:
        result = refhmc.sample(model, refhmc.NUTS(), random_seed=seed, **options, **more)
        if result.interrupted:
            raise TimeoutError
        about = result.attributes
        steps = int(result.sample_stats["n_steps"].sum())
        return Run(result.draws, about["n_gradient_evaluations"], steps, about["sampling_time"])

    run(0, draws=1, tune=30)
    return run


def of_nutpie(posterior: Posterior, low_rank: bool = False) -> Callable[[int], Run]:
    """The model's own compiled value and gradient, in nutpie."""
    import nutpie

    model = posterior.model()
    compiled = nutpie_model(model.core.tuple[1], model.core.tuple[0], model.dim)
    options = {"cores": 1, "progress_bar": False, "target_accept": 0.8, "maxdepth": 10, "return_raw_trace": True}
    options |= {"low_rank_modified_mass_matrix": True} if low_rank else {}

    def run(seed: int, draws=samplers.DRAWS, tune=samplers.TUNE, chains=samplers.CHAINS) -> Run:
        begin = time.perf_counter()
        trace = nutpie.sample(compiled, draws=draws, tune=tune, chains=chains, seed=seed, **options)
        seconds = time.perf_counter() - begin
        found, steps, gradients = read_trace(trace)
        return Run(found, gradients, steps, seconds)

    run(0, 1, 1, 1)
    return run


def of_jax(posterior: Posterior, chain_of: Callable, **options: Any) -> Callable[[int], Run]:
    """One of JAX's samplers, its program compiled, on the log density that :func:`check_same` found to be the model's."""
    check_same(posterior)
    run = samplers.jax_runs(chain_of(posterior.log_density(), posterior.model().dim, **options))

    def timed(seed: int) -> Run:
        begin = time.perf_counter()
        read = run(seed)
        seconds = time.perf_counter() - begin
        return read()._replace(seconds=seconds)

    return timed


def microcanonical_chain(log_density: Callable, dim: int) -> Callable:
    """BlackJAX's adjusted microcanonical sampler with its own tuning; a step of its integrator takes two gradients."""
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.mcmc import adjusted_mclmc_dynamic as microcanonical

    lengths = microcanonical.make_random_trajectory_length_fn(True)
    kernel = microcanonical.build_kernel(integration_steps_fn=lengths)

    def tuned(rng_key, state, logdensity_fn, step_size, inverse_mass_matrix, integration_steps_params):
        return kernel(rng_key, state, logdensity_fn, step_size, jnp.inf, inverse_mass_matrix, integration_steps_params)

    def chain(key):
        start_key, init_key, warm_key, draw_key = jax.random.split(key, 4)
        start = jax.random.uniform(start_key, (dim,), minval=-2.0, maxval=2.0)
        state = blackjax.adjusted_mclmc_dynamic.init(start, log_density, init_key)
        state, found, warm_steps = blackjax.adjusted_mclmc_find_L_and_step_size(
            tuned, log_density, 5 * samplers.TUNE, state, warm_key, target=0.9
        )

        def draw(state, key):
            length = (found.L / found.step_size,)
            state, info = tuned(key, state, log_density, found.step_size, found.inverse_mass_matrix, length)
            return state, (state.position, info.num_integration_steps)

        _, (draws, steps) = jax.lax.scan(draw, state, jax.random.split(draw_key, MICROCANONICAL))
        return draws, 2 * warm_steps, 2 * steps.sum()

    return chain


STAN, OWN = "refhmc, Stan's warm-up", "refhmc"
SAMPLERS: dict[str, Callable[[Posterior], Callable[[int], Run]]] = {
    OWN: of_refhmc,
    STAN: lambda posterior: of_refhmc(posterior, "stan"),
    "nutpie": of_nutpie,
    "nutpie, low rank": lambda posterior: of_nutpie(posterior, True),
    "NumPyro": lambda posterior: of_jax(posterior, samplers.numpyro_chain),
    "NumPyro, dense": lambda posterior: of_jax(posterior, samplers.numpyro_chain, dense=True),
    "BlackJAX, microcanonical": lambda posterior: of_jax(posterior, microcanonical_chain),
}
SAME_FUNCTIONS = ("nutpie", "nutpie, low rank")
OWN_GRADIENTS = ("NumPyro", "NumPyro, dense")
# What is compared, by which figure, with whom.
RATIOS = {
    "ESS a gradient / best": ("by_gradient", (*SAME_FUNCTIONS, *OWN_GRADIENTS, STAN)),
    "ESS a second / best of nutpie, same functions": ("by_second", SAME_FUNCTIONS),
    "ESS a second / best of NumPyro, its gradients": ("by_second", OWN_GRADIENTS),
}


def serve(problem: str, sampler: str, core: int | None, connection: Any) -> None:
    """In a process of its own: make ready, say so, then answer seeds with figures."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    warnings.simplefilter("ignore")
    try:
        run = SAMPLERS[sampler](POSTERIORS[problem]())
    except Exception as failure:
        connection.send(f"failed: {type(failure).__name__}")
        raise
    connection.send(READY)
    while True:
        try:
            seed = connection.recv()
        except EOFError:
            return
        try:
            found: Run = run(seed)
        except TimeoutError:
            connection.send(None)
            continue
        except Exception as failure:
            connection.send(f"failed: {type(failure).__name__}")
            raise
        draws = np.asarray(found.draws)
        ess, rhat = float(diagnostics.ess(draws).min()), float(diagnostics.rhat(draws).max())
        assert found.seconds is not None
        steps = found.draw_gradients / (draws.shape[0] * draws.shape[1])
        connection.send(Figures(1000 * ess / found.gradients, ess / found.seconds, steps, rhat, found.seconds))


class Sampler:
    """A process that runs one sampler on one problem, ended where it is late."""

    def __init__(self, problem: str, sampler: str, core: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(problem, sampler, core, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.found: list[Figures] = []
        answer = self.answer(COMPILING)
        self.over = answer != READY
        self.why_none = answer if self.over and answer else f"none in {CAP:.0f} s"

    def answer(self, seconds: float) -> Any:
        try:
            return self.connection.recv() if self.connection.poll(seconds) else None
        except EOFError:
            return None

    def take(self, seed: int, enough: bool) -> None:
        """Run a seed; no other after it if the sampler has run as long as is allowed, less where there are ``enough``."""
        self.connection.send(seed)
        figures = self.answer(1.25 * CAP)  # R-hat and ESS are of this time, too
        if isinstance(figures, str):
            self.why_none, figures = figures, None
        if figures is not None and figures.seconds <= CAP:
            self.found.append(figures)
        self.over = figures is None or sum(each.seconds for each in self.found) > (QUICK if enough else CAP)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


Found = dict[str, list[Figures] | str]  # of each sampler its figures, seed by seed, or why it has none


def measured(problem: str, seeds: int, most: int, core: int | None) -> Found:
    """The samplers in turn, in another order for each seed."""
    running = {name: Sampler(problem, name, core) for name in SAMPLERS}
    for seed in range(1, max(seeds, most) + 1):
        for name in np.random.default_rng(seed).permutation(list(running)):
            if not running[name].over:
                running[name].take(seed, seed >= seeds)
            if running[name].over:
                running[name].stop()
    for each in running.values():
        each.stop()
    return {name: each.found or each.why_none for name, each in running.items()}


def ratios(found: Found) -> dict[str, tuple[str, list[float]]]:
    """Of each comparison: the best peer, and refhmc's figure over its, seed by seed."""
    compared = {}
    for title, (figure, names) in RATIOS.items():
        runs = {name: found[name] for name in (OWN, *names)}
        there = {k: [getattr(each, figure) for each in v] for k, v in runs.items() if not isinstance(v, str)}
        peers = [name for name in names if name in there]
        if OWN in there and peers:
            best = max(peers, key=lambda name: float(np.median(there[name])))
            compared[title] = best, [a / b for a, b in zip(there[OWN], there[best], strict=False)]
    return compared


def spread(values: Any) -> str:
    return f"{min(values):.3g}..{max(values):.3g}"


def rows_of(problem: str, found: Found) -> list[list[str]]:
    rows = []
    for sampler, runs in found.items():
        if isinstance(runs, str):
            rows.append([problem, sampler, runs, "", "", "", "", "", "0"])
            continue
        each = np.array(runs)
        rate, per_second, steps, _, _ = np.median(each, axis=0)
        figures = [f"{rate:.3g}", spread(each[:, 0]), f"{per_second:.3g}", spread(each[:, 1]), f"{steps:.1f}"]
        rows.append([problem, sampler, *figures, f"{each[:, 3].max():.3f}", str(len(runs))])
    return rows


def measured_before() -> tuple[dict[str, Found], dict[str, str]]:
    """The figures of the last page, and of each problem when and where they were measured."""
    if not KEPT.exists():
        return {}, {}
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    figures = {
        problem: {k: v if isinstance(v, str) else [Figures(*each) for each in v] for k, v in found.items()}
        for problem, found in kept["figures"].items()
    }
    return figures, kept["measured"]


def write(figures: dict[str, Found], measured: dict[str, str], about: dict[str, Any]) -> None:
    """The page: the ratios, with their median and the least, all figures, and whence they are."""
    figures = {problem: figures[problem] for problem in POSTERIORS if problem in figures}
    compared = {problem: ratios(found) for problem, found in figures.items()}
    table = []
    for problem, each in compared.items():
        said = {}
        for title, (best, r) in each.items():
            middle, low, high = median_interval(r, CONFIDENCE)
            limits = f"{low:.3g}..{high:.3g}" if low > 0 else f"{len(r)} pairs"
            said[title] = f"{middle:.2f} ({limits}), {best}"
        table.append([problem, *(said.get(title, "none of both in time") for title in RATIOS)])
    medians = [[np.median(each[title][1]) for each in compared.values() if title in each] for title in RATIOS]
    table.append(["*median; least*", *(f"{np.median(m):.2f}; {min(m):.2f}" for m in medians)])
    header = ["problem", "sampler", "ESS / 1,000 gradients", "range", "ESS / s", "range", "steps", "R-hat", "seeds"]
    rows = [row for problem, found in figures.items() for row in rows_of(problem, found)]
    what = "\n\n".join(" ".join(part.split()) for part in (__doc__ or "").split("\n\n")[1:])
    whence = [
        f"{when}: {'; '.join(p for p in figures if measured[p] == when)}." for when in sorted({*measured.values()})
    ]
    tables = common.table(["problem", *RATIOS], table), common.table(header, rows)
    text = "\n\n".join([what, *tables, "Measured " + " ".join(whence)])
    common.report(
        "warmup", "Warm-up beside peers'", text, {"measured": measured, "figures": figures, "ratios": compared}, about
    )


def is_meant(name: str, word: str) -> bool:
    return word == name if word in POSTERIORS else word in name


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=25, help="seeds of a sampler whose runs are short")
    parser.add_argument("--cores", type=int, default=1, help="problems at the same time, each on a core of its own")
    parser.add_argument("--only", nargs="*", help="problems, by their names or by words in them")
    options = parser.parse_args()
    os.environ |= common.environment()
    about = common.machine(["refhmc", "nutpie", "numpyro", "blackjax", "jax", "numba", "numpy"])
    names = [name for name in POSTERIORS if not options.only or any(is_meant(name, word) for word in options.only)]
    free: queue.Queue = queue.Queue()
    pinned = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else [None] * options.cores
    for core in pinned[-options.cores :]:
        free.put(core)

    def on_a_core(problem: str) -> Found:
        core = free.get()
        try:
            found = measured(problem, options.seeds, options.most, core)
        finally:
            free.put(core)
        print(common.table(["problem", *["" for _ in range(8)]], rows_of(problem, found)), flush=True)
        return found

    with concurrent.futures.ThreadPoolExecutor(options.cores) as pool:
        figures = dict(zip(names, pool.map(on_a_core, names), strict=True))
    about["cores_used"] = options.cores
    before, when = measured_before()
    now = f"{about['date']} at {git('describe', '--always', '--dirty')}"
    write(before | figures, when | dict.fromkeys(names, now), about)


if __name__ == "__main__":
    main()

"""One library on one problem, in a process of its own: ``python -m validation.benchmarks.samplers nutpie normal ...``.

Every library runs NUTS with target acceptance 0.8, trees of depth 10 at most, and a diagonal mass matrix it adapts
itself, 1,000 + 1,000 iterations of each of four chains, one chain after another on one core. Each ``prepare_*`` does all
that is done once (imports, compiling, a first draw) and gives a function of the seed that samples and returns a function
that reads the :class:`Run`; only the first is timed for the sampling figures. A process samples with several seeds until
it has taken a second or two, since the fast problems take milliseconds.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import sys
import time
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common, problems
from validation.benchmarks.nutpie_models import nutpie_model, read_trace

TUNE, DRAWS, CHAINS = 1000, 1000, 4
ENOUGH_SECONDS, MOST_RUNS = 2.0, 10
STUCK, MAX_R_HAT = 100, 1.05  # equal draws in a row; beyond either, a run is an error and no figure
RESULT_MARK = "RESULT "


class Run(NamedTuple):
    """The draws of the unconstrained coordinates (chain, draw, dimension) and the gradients they took."""

    draws: object
    gradients: int  # warm-up and draws
    draw_gradients: int  # after warm-up
    seconds: float | None = None  # of sampling, where the library tells; otherwise that of the whole call
    divergences: int | None = None  # after warm-up, and the warnings of the call, if the library reports them
    warnings: int | None = None


def prepare_refhmc(problem: str, learn_from: str = "draws"):
    """refhmc: the compiled sampler, the model's derivatives written by hand, a diagonal metric."""
    import refhmc

    model = problems.refhmc_model(problem)
    options = {"cores": 1, "raw": True, "progressbar": False, "generate": False}  # as peers do not
    refhmc.sample(model, draws=1, tune=0, chains=1, random_seed=0, **options)

    kernel = refhmc.NUTS(target_accept=0.8, metric=refhmc.metrics.Diagonal(learn_from=learn_from))

    def run(seed: int):
        result = refhmc.sample(model, kernel, draws=DRAWS, tune=TUNE, chains=CHAINS, random_seed=seed, **options)
        return lambda: read(result)

    def read(result) -> Run:
        steps = int(result.sample_stats["n_steps"].sum())
        about = result.attributes  # sampling_time: checks, warm-up and draws; not the R-hat and ESS of its warnings
        return Run(result.draws, about["n_gradient_evaluations"], steps, about["sampling_time"])

    return run


def prepare_nutpie(problem: str):
    """nutpie, from derivatives written by hand."""
    import nutpie

    gradient, data = problems.gradient_numba(problem)
    model = nutpie_model(gradient, data, problems.DIMENSIONS[problem])
    options = {"cores": 1, "progress_bar": False, "target_accept": 0.8, "maxdepth": 10, "return_raw_trace": True}
    nutpie.sample(model, draws=1, tune=1, chains=1, seed=0, **options)

    def run(seed: int):
        trace = nutpie.sample(model, draws=DRAWS, tune=TUNE, chains=CHAINS, seed=seed, **options)
        return lambda: read(trace)

    def read(trace) -> Run:
        draws, steps, all_steps = read_trace(trace)
        return Run(draws, all_steps, steps)

    return run


def prepare_numpyro(problem: str):
    """NumPyro, the log density in jax.numpy."""
    return jax_runs(numpyro_chain(problems.log_density_jax(problem), problems.DIMENSIONS[problem]))


def numpyro_chain(log_density, dim: int, dense: bool = False, n_draws: int = DRAWS):
    """NumPyro's NUTS, warm-up and draws of a chain as one program (its ``run()`` compiles again each time)."""
    import jax
    from numpyro.infer.hmc import hmc

    init, step = hmc(lambda q: -log_density(q), algo="NUTS")

    def chain(key):
        key, start_key = jax.random.split(key)
        start = jax.random.uniform(start_key, (dim,), minval=-2.0, maxval=2.0)
        state = init(start, TUNE, target_accept_prob=0.8, max_tree_depth=10, dense_mass=dense, rng_key=key)

        def warm(state, _):
            state = step(state)
            return state, state.num_steps

        def draw(state, _):
            state = step(state)
            return state, (state.z, state.num_steps)

        state, warm_steps = jax.lax.scan(warm, state, None, TUNE)
        _, (draws, steps) = jax.lax.scan(draw, state, None, n_draws)
        return draws, warm_steps.sum(), steps.sum()

    return chain


def prepare_blackjax(problem: str):
    """BlackJAX's window adaptation and NUTS, warm-up and draws of a chain as one compiled program."""
    import blackjax
    import jax

    log_density, dim = problems.log_density_jax(problem), problems.DIMENSIONS[problem]

    def steps_only(state, info, adaptation_state):
        return info.num_integration_steps

    warmup = blackjax.window_adaptation(
        blackjax.nuts,
        log_density,
        is_mass_matrix_diagonal=True,
        target_acceptance_rate=0.8,
        max_num_doublings=10,
        adaptation_info_fn=steps_only,
    )

    def chain(key):
        start_key, warm_key, draw_key = jax.random.split(key, 3)
        start = jax.random.uniform(start_key, (dim,), minval=-2.0, maxval=2.0)
        (state, parameters), warm_steps = warmup.run(warm_key, start, TUNE)
        step = blackjax.nuts(log_density, **parameters).step

        def draw(state, key):
            state, info = step(key, state)
            return state, (state.position, info.num_integration_steps)

        _, (draws, steps) = jax.lax.scan(draw, state, jax.random.split(draw_key, DRAWS))
        return draws, warm_steps.sum(), steps.sum()

    return jax_runs(chain)


def jax_runs(chain):
    """Compile the program of one chain; the function that runs it for each of the chains in turn."""
    import jax
    import numpy as np

    program = jax.jit(chain).lower(jax.random.key(0)).compile()

    def run(seed: int):
        keys = jax.random.split(jax.random.key(seed), CHAINS)
        parts = [jax.block_until_ready(program(keys[k])) for k in range(CHAINS)]
        return lambda: read(parts)

    def read(parts) -> Run:
        draws = np.stack([np.asarray(p[0]) for p in parts])
        assert draws.dtype == np.float64
        after = sum(int(p[2]) for p in parts)
        return Run(draws, after + sum(int(p[1]) for p in parts), after)

    return run


LIBRARIES = {
    "refhmc": prepare_refhmc,
    "refhmc-gradients": functools.partial(prepare_refhmc, learn_from="draws and gradients"),
    "nutpie": prepare_nutpie,
    "NumPyro": prepare_numpyro,
    "BlackJAX": prepare_blackjax,
}


def examine(draws) -> dict[str, object]:
    """Bulk ESS over the coordinates and R-hat; ``error`` when a chain is stuck or the chains disagree."""
    import arviz
    import numpy as np

    error = ""
    for k, chain in enumerate(draws):
        same = np.all(chain[1:] == chain[:-1], axis=1)
        longest = max((len(run) for run in "".join("1" if s else "0" for s in same).split("0")), default=0)
        if not np.isfinite(chain).all():
            error = f"chain {k} is not finite"
        elif longest >= STUCK - 1 or np.any([len(np.unique(column)) < 2 for column in chain.T]):
            error = f"chain {k} is stuck for {longest + 1} draws"
    data = {f"q{i}": draws[:, :, i] for i in range(draws.shape[2])}
    data = arviz.convert_to_dataset(data)
    ess = arviz.ess(data, method="bulk").to_array().to_numpy()
    r_hat = float(arviz.rhat(data).to_array().to_numpy().max())
    if not error and not r_hat <= MAX_R_HAT:
        error = f"R-hat {r_hat:.3f}"
    return {"ess_min": float(ess.min()), "ess_mean": float(ess.mean()), "max_r_hat": r_hat, "error": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("problem", choices=problems.DIMENSIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--started", type=float, default=None, help="when the process was started (time.time())")
    arguments = parser.parse_args()
    started = time.time() if arguments.started is None else arguments.started
    run = LIBRARIES[arguments.library](arguments.problem)
    start_up = time.time() - started
    runs, spent = [], 0.0
    while len(runs) < MOST_RUNS and (spent < ENOUGH_SECONDS or not runs):
        begin, begin_processor = time.perf_counter(), time.process_time()
        finish = run(arguments.seed + len(runs))
        wall, processor = time.perf_counter() - begin, time.process_time() - begin_processor
        spent += wall
        runs.append((wall, processor, finish()))
    out = []
    for wall, processor, (draws, gradients, draw_gradients, seconds) in runs:
        found = {"seconds": seconds or wall, "wall_seconds": wall, "processor_seconds": processor}
        found |= {"gradients": gradients, "draw_gradients": draw_gradients}
        out.append(found | examine(draws))
    print(RESULT_MARK + json.dumps({"start_up": start_up, "runs": out}))


if __name__ == "__main__":
    common.pin_to_one_core()
    main()

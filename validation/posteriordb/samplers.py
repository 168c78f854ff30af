"""The samplers on one posterior: refhmc's default, and NUTS of NumPyro, nutpie and Stan on the same posterior.

Each makes 4 chains, one after another on one core, with 1,000 iterations of warm-up and 1,000 draws. A sampler prepares: it
imports, compiles and makes a first draw. It returns a function of the seed that samples and returns a function that reads the
run and its values by name. Only the sampling is timed.
"""

from __future__ import annotations

import functools
import os
import pathlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import refhmc
from validation.benchmarks import samplers
from validation.benchmarks.nutpie_models import nutpie_model, read_trace
from validation.benchmarks.samplers import CHAINS, DRAWS, TUNE, Run

LIMIT = 300.0  # seconds of one run


def flat_density(program: Callable) -> tuple[Callable, int]:
    """Return the log density of a NumPyro model as a function of one vector, and its length."""
    import jax
    from jax.flatten_util import ravel_pytree
    from numpyro.infer.util import initialize_model

    info = initialize_model(jax.random.PRNGKey(0), program)
    start, unravel = ravel_pytree(info.param_info.z)
    return lambda q: -info.potential_fn(unravel(q)), len(start)


def of_refhmc(posterior: ModuleType, data: dict[str, Any]) -> Callable:
    """Return the default sampler on the model; no option is chosen for a posterior."""
    model = posterior.model(data)
    options = {"cores": 1, "raw": True, "generate": False, "progressbar": False, "max_seconds": LIMIT}
    warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)

    def run(seed: int, **lengths: int) -> Callable:
        result = refhmc.sample(model, random_seed=seed, **options, **lengths)
        return lambda: read(result)

    def read(result: Any) -> tuple[Run, dict]:
        if result.interrupted:
            raise TimeoutError(f"no result in {LIMIT:.0f} s")
        statistics = result.sample_stats
        gradients = statistics.get("n_gradient_evaluations", statistics["n_steps"])
        total = result.attributes["n_gradient_evaluations"]
        divergences = int(statistics["diverging"].sum())
        found = Run(result.draws, total, int(gradients.sum()), divergences=divergences, warnings=result.warnings)
        return found, model.constrain(result.draws)

    run(0, draws=4, tune=1000, chains=2)  # a whole warm-up compiles the metric that it changes to
    return run


def of_numpyro(posterior: ModuleType, data: dict[str, Any], dense: bool = False) -> Callable:
    """Return NumPyro's NUTS with the gradient by JAX, a chain compiled as one program."""
    program = posterior.in_numpyro(data)
    sample = samplers.jax_runs(samplers.numpyro_chain(*flat_density(program), dense))
    constrain = refhmc.from_numpyro(program).constrain

    def run(seed: int) -> Callable:
        finish = sample(seed)

        def read() -> tuple[Run, dict]:
            found = finish()
            return found, constrain(np.asarray(found.draws))

        return read

    return run


def of_nutpie(posterior: ModuleType, data: dict[str, Any], low_rank: bool = False) -> Callable:
    """Return nutpie with refhmc's compiled density and gradient, or with JAX's if the model of refhmc is not compiled."""
    import nutpie

    model = posterior.model(data)
    if model.in_python:
        program = posterior.in_numpyro(data)
        model, compiled = refhmc.from_numpyro(program), jax_model(*flat_density(program))
    else:
        compiled = nutpie_model(*model.core.tuple[1::-1], model.dim)
    options = {"cores": 1, "progress_bar": False, "target_accept": 0.8, "maxdepth": 10, "return_raw_trace": True}
    options |= {"low_rank_modified_mass_matrix": True} if low_rank else {}

    def run(seed: int, draws: int = DRAWS, tune: int = TUNE, chains: int = CHAINS) -> Callable:
        trace = nutpie.sample(compiled, draws=draws, tune=tune, chains=chains, seed=seed, **options)

        def read() -> tuple[Run, dict]:
            draws, steps, all_steps = read_trace(trace)
            return Run(draws, all_steps, steps), model.constrain(draws)

        return read

    run(0, 1, 1, 1)
    return run


def of_stan(posterior: ModuleType, data: dict[str, Any], program: str, names: list[str]) -> Callable:
    """Return Stan's own NUTS by PyStan, with the draws of the named parameters of posteriordb's Stan program."""
    import stan

    def run(seed: int) -> Callable:
        built = stan.build(program, data=data, random_seed=seed)  # compiled once
        begin = seconds_of_pystan()
        fit = built.sample(num_chains=CHAINS, num_warmup=TUNE, num_samples=DRAWS, save_warmup=True)
        seconds = seconds_of_pystan() - begin
        return lambda: read(fit, seconds)

    def by_chain(fit: Any, name: str) -> np.ndarray:
        dims = tuple(fit.dims[fit.param_names.index(name)]) if name in fit.param_names else ()
        return np.moveaxis(fit[name].reshape(*dims, TUNE + DRAWS, CHAINS), (-1, -2), (0, 1))

    def read(fit: Any, seconds: float) -> tuple[Run, dict]:
        # posteriordb lists some names that its program does not have.
        there = [name for name in names if name in fit.param_names]
        values = {name: by_chain(fit, name)[:, TUNE:] for name in there}
        steps, divergent = (by_chain(fit, name) for name in ("n_leapfrog__", "divergent__"))
        draws = np.concatenate([x.reshape(CHAINS, DRAWS, -1) for x in values.values()], axis=-1)
        draw_steps, divergences = int(steps[:, TUNE:].sum()), int(divergent[:, TUNE:].sum())
        return Run(draws, int(steps.sum()), draw_steps, seconds, divergences), values

    return run


def seconds_of_pystan() -> float:
    """Return the processor seconds that the sampling processes of PyStan have used so far (Linux)."""
    from httpstan.services_stub import executor

    total = 0
    for process in executor._processes:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])  # user and system time, in ticks
    return total / os.sysconf("SC_CLK_TCK")


def jax_model(log_density: Callable, dim: int) -> Any:
    """Return a model of nutpie with the gradient by JAX."""
    import jax
    from nutpie.compiled_pyfunc import from_pyfunc

    both = jax.jit(jax.value_and_grad(log_density))

    def density(q: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = both(q)
        return float(value), np.asarray(gradient)

    return from_pyfunc(
        dim,
        lambda: density,
        lambda *seeds: lambda q: {"q": np.array(q)},
        [np.dtype(np.float64)],
        [(dim,)],
        ["q"],
        make_initial_point_fn=lambda seed: np.random.default_rng(seed).uniform(-2, 2, dim),
    )


SAMPLERS: dict[str, Callable] = {
    "refhmc": of_refhmc,
    "numpyro": of_numpyro,
    "numpyro-dense": functools.partial(of_numpyro, dense=True),
    "nutpie": of_nutpie,
    "nutpie-low-rank": functools.partial(of_nutpie, low_rank=True),
    "stan": of_stan,
}
PEERS = tuple(name for name in SAMPLERS if name != "refhmc")
DEFAULTS = ("numpyro", "nutpie", "stan")  # the peers with their default metric

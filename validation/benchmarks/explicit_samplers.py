"""The samplers of :mod:`validation.benchmarks.explicit`.

A sampler prepares a target: it imports, compiles and makes a first draw. It returns a function of the seed that samples and
returns a function that reads the :class:`validation.benchmarks.samplers.Run`. Only the second one is timed. All samplers make
four chains, one after another on one core, with 1,000 iterations of warm-up.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import refhmc
from validation.benchmarks import samplers
from validation.benchmarks.explicit_targets import Target
from validation.benchmarks.nutpie_models import nutpie_model, read_trace
from validation.benchmarks.posteriors import check_same
from validation.benchmarks.samplers import CHAINS, TUNE, Run

LIMIT = 300.0  # seconds of one run


class Unavailable(Exception):
    """A sampler does not apply to a target, for the reason given."""


# ------------------------------------------------------------------------------------------------------------- refhmc


def run_of_refhmc(
    target: Target, model: refhmc.Model, kernel: Any, first_tune: int = TUNE
) -> Callable[[int], Callable[[], Run]]:
    options = {"cores": 1, "raw": True, "progressbar": False, "generate": False, "max_seconds": LIMIT}
    warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)

    def run(seed: int, draws: int = target.draws, tune: int = TUNE, chains: int = CHAINS):
        result = refhmc.sample(model, kernel, draws=draws, tune=tune, chains=chains, random_seed=seed, **options)
        return lambda: read(result)

    def read(result) -> Run:
        if result.interrupted:
            raise Unavailable(f"no result in {LIMIT:.0f} s")
        statistics = result.sample_stats
        gradients = statistics.get("n_gradient_evaluations", statistics["n_steps"])
        return Run(
            result.draws,
            result.attributes["n_gradient_evaluations"],
            int(gradients.sum()),
            divergences=int(statistics["diverging"].sum()),
            warnings=len(result.warnings),
        )

    # A whole warm-up compiles the metric that it changes to. The diagnostics of several chains import what they need.
    run(0, draws=4, tune=first_tune, chains=2)
    return run


def default(target: Target):
    return run_of_refhmc(target, target.model(), None)


def learned(target: Target, kernel: str):
    """From draws and gradients alone, without the graph of the model."""
    model = target.model()
    model.parents = None
    return run_of_refhmc(target, model, getattr(refhmc, kernel)(metric=refhmc.metrics.Hierarchical()))


def by_fisher(target: Target, kernel: str):
    model = target.model()
    if getattr(model, "fisher_levels", None) is None:
        raise Unavailable("the model declares no fisher_levels")
    return run_of_refhmc(target, model, getattr(refhmc, kernel)(metric="fisher", integrator="block_leapfrog"), 30)


def by_graph(target: Target):
    """The parents of the model's variables give the order of the blocks."""
    model = target.model()
    if not model.parents:
        raise Unavailable("the model declares no parents")
    return run_of_refhmc(target, model, refhmc.HMC(metric=refhmc.metrics.Hierarchical()))


def non_centred(target: Target):
    if target.non_centred is None:
        raise Unavailable("one form only")
    return run_of_refhmc(target, target.non_centred(), refhmc.NUTS(), 30)


def softabs(target: Target):
    model = target.model()
    if not model.has("hessian_contraction"):
        raise Unavailable("the model has no Hessian and contraction")
    return run_of_refhmc(target, model, refhmc.HMC(metric="softabs"), 30)


# -------------------------------------------------------------------------------------------------------------- peers


def nutpie(target: Target):
    """The model's own compiled density and gradient in nutpie."""
    import nutpie

    model = target.model()
    compiled = nutpie_model(model.core.tuple[1], model.core.tuple[0], model.dim)
    options = {"cores": 1, "progress_bar": False, "target_accept": 0.8, "maxdepth": 10, "return_raw_trace": True}

    def run(seed: int, draws: int = target.draws, tune: int = TUNE, chains: int = CHAINS):
        trace = nutpie.sample(compiled, draws=draws, tune=tune, chains=chains, seed=seed, **options)

        def read() -> Run:
            found, steps, all_steps = read_trace(trace)
            return Run(found, all_steps, steps)

        return read

    run(0, 1, 1, 1)
    return run


def walnutpie(target: Target, starts: np.ndarray | None = None):
    """The model's own compiled density and gradient in walnutpie, as a C function compiled by Numba.

    ``starts`` (chain, d) replaces its random starts.

    walnutpie reports no gradients, so the C function counts its calls in the last of the user's numbers. Chains therefore run
    one after another, and with lengths that are fixed, as those of the other samplers.
    """
    import numba
    import walnutpie
    from numba import types as nb

    model = target.model()
    value_and_gradient, data, dim = model.core.tuple[1], model.core.tuple[0], model.dim
    rows, columns = data.shape
    numbers = np.append(data.ravel(), 0.0)
    pointer = nb.CPointer(nb.float64)

    @numba.cfunc(nb.int32(nb.uint64, pointer, pointer, pointer, nb.voidptr), error_model="numpy")
    def log_density(n, q, out, value, user):
        given = numba.carray(user, (rows * columns + 1,), np.float64)
        given[rows * columns] += 1
        packed = given[: rows * columns].reshape((rows, columns))
        numba.carray(value, (1,))[0] = value_and_gradient(numba.carray(q, (dim,)), packed, numba.carray(out, (dim,)))
        return 0

    function = walnutpie.logp_cfunc_type(log_density.address), numbers.ctypes.data_as(ctypes.c_void_p)

    def run(seed: int, draws: int = target.draws, tune: int = TUNE, chains: int = CHAINS):
        numbers[-1], found = 0.0, []
        lengths = {"min_warmup_iter": tune, "max_warmup_iter": tune}
        lengths |= {"min_sampling_iter": draws, "max_sampling_iter": draws}
        for k in range(chains):
            start = None if starts is None else starts[k]
            options = {"num_params": dim, "inits": start, "num_chains": 1, "seed": seed, "id": k + 1, **lengths}
            found += walnutpie.walnuts_pyfunc(function, **options)
        gradients = int(numbers[-1])
        share = draws / (draws + tune)  # the draws' own gradients are not known
        return lambda: Run(np.stack([np.asarray(each) for each in found]), gradients, round(share * gradients))

    run(0, 10, 50, 1)
    return run


def numpyro(target: Target):
    """NumPyro's NUTS on the log density in jax.numpy, compiled for four chains in turn."""
    check_same(target)
    dim = target.model().dim
    return samplers.jax_runs(samplers.numpyro_chain(target.log_density(), dim, n_draws=target.draws))


class Sampler(NamedTuple):
    """`prepare` of a target; whether only targets with a funnel are of interest; and the package needed, if any."""

    prepare: Callable[[Target], Callable]
    funnels_only: bool = False
    peer: str = ""


BEFORE, DEFAULT = "default before", "default"
LEARNED = ("learned, HMC", "learned, NUTS")
SAMPLERS: dict[str, Sampler] = {
    BEFORE: Sampler(default),
    DEFAULT: Sampler(default),
    LEARNED[0]: Sampler(lambda target: learned(target, "HMC")),
    LEARNED[1]: Sampler(lambda target: learned(target, "NUTS")),
    "Fisher, HMC": Sampler(lambda target: by_fisher(target, "HMC"), funnels_only=True),
    "Fisher, NUTS": Sampler(lambda target: by_fisher(target, "NUTS"), funnels_only=True),
    "graph, HMC": Sampler(by_graph, funnels_only=True),
    "non-centred NUTS": Sampler(non_centred, funnels_only=True),
    "SoftAbs": Sampler(softabs, funnels_only=True),
    "nutpie": Sampler(nutpie, peer="nutpie"),
    "walnutpie": Sampler(walnutpie, peer="walnutpie"),
    "NumPyro": Sampler(numpyro, peer="numpyro"),
}

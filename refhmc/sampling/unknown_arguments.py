"""An argument that ``sample`` does not have: what it is called here, or what it belongs to."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from refhmc.core.registry import options
from refhmc.kernels import HMC, KERNELS, NUTS

# What PyMC, Stan, NumPyro, BlackJAX and nutpie call them.
OF_SAMPLE = {
    "random_seed": ("seed", "rng", "rng_key", "random_state", "rng_seed"),
    "draws": ("n_draws", "num_draws", "n_samples", "num_samples", "samples", "iter_sampling", "n_iter"),
    "tune": ("n_tune", "num_tune", "warm_up", "n_warmup", "num_warmup", "iter_warmup", "burn", "burn_in", "burnin"),
    "chains": ("n_chains", "num_chains"),
    "cores": ("n_cores", "num_cores", "n_jobs", "threads", "parallel_chains"),
    "progressbar": ("progress", "progress_bar", "show_progress"),
    "initvals": ("inits", "start", "starts", "initial", "initial_points", "init_params", "initial_position"),
    "max_seconds": ("timeout", "max_time"),
    "save_warmup": ("discard_tuned_samples", "include_warmup", "store_warmup"),
}
OF_A_KERNEL = {
    "step_size": ("stepsize", "epsilon", "eps", "step_scale"),
    "target_accept": ("adapt_delta", "target_accept_prob", "target_acceptance_rate", "target_acceptance"),
    "max_depth": ("max_treedepth", "max_tree_depth", "maxdepth", "tree_depth"),
    "n_steps": ("num_steps", "num_integration_steps", "path_steps"),
    "metric": ("mass_matrix", "inverse_mass_matrix", "inv_metric", "dense_mass", "scaling"),
}


def refuse_unknown(unknown: dict[str, Any], function: Callable) -> None:
    """Raise TypeError for the first of them, if there is one."""
    for name in unknown:
        raise TypeError(f"sample() has no argument {name!r}{advice(name, function)}")


def advice(name: str, function: Callable) -> str:
    """What to write instead, as far as it can be guessed."""
    known = {word: ours for ours, words in (OF_SAMPLE | OF_A_KERNEL).items() for word in words}
    ours = known.get(name.lower(), name.lower())
    if ours in OF_SAMPLE and ours != name:
        return f": it is called {ours}"
    takers = [kind for kind in KERNELS.values() if ours in options(kind)]
    if takers:
        first = next((kind for kind in (NUTS, HMC) if kind in takers), takers[0])
        names = ", ".join(kind.__name__ for kind in takers)
        return f": {ours} is the kernel's, as in sample(model, {first.__name__}({ours}=...)); {names} have it"
    ours_too = [each for each in inspect.signature(function).parameters if each != "unknown"]
    near = difflib.get_close_matches(name, ours_too, 1)
    return f": did you mean {near[0]}?" if near else f". It has {', '.join(ours_too)}"

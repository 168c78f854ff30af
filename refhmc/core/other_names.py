"""Names in PyMC, Stan, NumPyro, BlackJAX and nutpie of the arguments of ``sample`` and the options of kernels."""

from __future__ import annotations

OF_SAMPLE = {
    "random_seed": ("seed", "rng", "rng_key", "random_state", "rng_seed"),
    "draws": ("n_draws", "num_draws", "n_samples", "num_samples", "samples", "iter_sampling", "n_iter"),
    "tune": ("n_tune", "num_tune", "warm_up", "n_warmup", "num_warmup", "iter_warmup", "burn", "burn_in", "burnin"),
    "chains": ("n_chains", "num_chains"),
    "cores": ("n_cores", "num_cores", "n_jobs", "threads", "parallel_chains"),
    "progressbar": ("progress", "progress_bar", "show_progress"),
    "initvals": ("inits", "start", "starts", "initial", "initial_points", "init_params", "initial_position"),
    "max_seconds": ("timeout", "max_time"),
    "save_warmup": ("include_warmup", "store_warmup"),
}
OF_A_KERNEL = {
    "step_size": ("stepsize", "epsilon", "eps", "step_scale"),
    "target_accept": ("adapt_delta", "target_accept_prob", "target_acceptance_rate", "target_acceptance"),
    "max_treedepth": ("max_depth", "max_tree_depth", "maxdepth", "tree_depth"),
    "n_steps": ("num_steps", "num_integration_steps", "path_steps"),
    "metric": ("mass_matrix", "inverse_mass_matrix", "inv_metric", "dense_mass", "scaling"),
}
# Arguments that refhmc handles differently, or with the opposite meaning.
IN_OTHER_WAYS = {
    "thin": "all draws are kept; select every k-th, such as result.sel(draw=slice(None, None, k))",
    "coords": "labels of axes belong to the model: refhmc.Model(..., dims=..., coords=...)",
    "trace": "draws are in the result; store=FOLDER writes them to disk during the run",
    "discard_tuned_samples": "it has the opposite meaning of save_warmup; save_warmup=True keeps warm-up",
    "return_inferencedata": "the result is an ArviZ object, or arrays with raw=True",
    "step": "the kernel is the second argument: sample(model, NUTS())",
}
IN_OTHER_WAYS |= {"thinning": IN_OTHER_WAYS["thin"], "dims": IN_OTHER_WAYS["coords"]}


def our_name(name: str) -> str:
    """Return refhmc's name for another library's `name`, or `name` in lower case if it is unknown."""
    known = {word: ours for ours, words in (OF_SAMPLE | OF_A_KERNEL).items() for word in words}
    return known.get(name.lower(), name.lower())

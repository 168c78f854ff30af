"""What in a finished run deserves a look: each a sentence of what, how many, where, why, and what to do."""

from __future__ import annotations

import numpy as np

from refhmc import diagnostics
from refhmc.sample_stats import OUTCOMES

MIN_DRAWS, MIN_CHAINS = 100, 4
MAX_RHAT, MIN_ESS_PER_CHAIN, MIN_BFMI, MAX_DEPTH_SHARE = 1.01, 100, 0.3, 0.05
STUCK_DRAWS = 100
MAX_COLUMNS = 2000  # R-hat and ESS of more coordinates than this are taken of an even selection


def review(
    names: list[str],
    draws: np.ndarray,
    stats: dict[str, np.ndarray],
    starts: np.ndarray,
    unevaluated: np.ndarray | None = None,
) -> list[str]:
    """Warnings for unconstrained ``draws`` (chain, draw, d) with their statistics; ``starts`` (chain, d).

    ``unevaluated`` (chain, draw): whether the model said in that transition that it could not be evaluated.
    """
    chains, n, _ = draws.shape
    if n == 0:
        return []
    found = _divergences(
        names, draws, stats, starts, np.zeros((chains, n), bool) if unevaluated is None else unevaluated
    )
    found += _unsolved(stats)
    found += _stuck(stats)
    found += _max_depth(stats)
    if n < MIN_DRAWS:
        return [*found, f"Only {n} draws a chain: too few for R-hat and effective sample size; take at least 100."]
    found += _energy(stats)
    found += _mixing(names, draws)
    if chains < MIN_CHAINS:
        many = f"Only {chains} chains" if chains > 1 else "Only one chain"
        found.append(f"{many}: R-hat compares chains and is unreliable below 4; run chains=4.")
    return found


def _per_chain(flags: np.ndarray) -> str:
    return ", ".join(f"chain {k}: {int(c)}" for k, c in enumerate(flags.sum(axis=1)) if c)


def _divergences(names, draws, stats, starts, unevaluated) -> list[str]:
    diverging = stats["diverging"]
    count = int(diverging.sum())
    if not count:
        return []
    # A transition starts at the draw before. Where do the diverging ones start, against the rest?
    before = np.concatenate([starts[:, None, :], draws[:, :-1, :]], axis=1)
    there, everywhere = before[diverging], draws.reshape(-1, draws.shape[2])
    spread = everywhere.std(axis=0)
    distance = np.abs(there.mean(axis=0) - everywhere.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    k = int(np.argmax(distance))
    where = (
        f"They start near {names[k]} = {there[:, k].mean():.3g} "
        f"(all draws: {everywhere[:, k].mean():.3g} +- {spread[k]:.3g})"
    )
    said = int((diverging & unevaluated).sum())
    is_nan = stats["outcome"] == OUTCOMES.index("nan")
    nan = int((is_nan & ~unevaluated).sum())
    advice = "Raise target_accept, reparametrise (non-centred), or use a Riemannian metric."
    why = f"{nan} met an energy that is not finite" if nan else "the curvature there is too high for the step size"
    no_metric = int((diverging & ~is_nan & ~unevaluated & ~np.isfinite(stats["max_energy_error"])).sum())
    if no_metric > 0:
        why = f"{no_metric} met a metric that is not positive definite"
        advice = "refhmc.metrics.SoftAbs() is positive definite everywhere."
    if said:
        why = f"{said} met a position where the model could not be evaluated" + (
            f", in the others {why}" if said < count else ""
        )
        advice = "What the model said is in a warning of its own."
    return [
        f"{count} of {diverging.size} transitions ({100 * count / diverging.size:.2g} %) diverged after warm-up "
        f"({_per_chain(diverging)}). {where}; {why}, so that region is explored too little and results may be biased. {advice}"
    ]


def failed_evaluations(failures: list[dict]) -> list[str]:
    """A sentence for every message of a model's own; ``failures`` as in the result's attribute ``evaluation_failures``."""
    found = []
    for message in dict.fromkeys(failure["message"] for failure in failures):
        same = [failure for failure in failures if failure["message"] == message]
        evaluations, warm, after = (
            sum(failure[key] for failure in same) for key in ("evaluations", "warmup_transitions", "transitions")
        )
        many = f"{evaluations} positions" if evaluations > 1 else "1 position"
        first = ", ".join(f"{x:.4g}" for x in same[0]["first_position"])
        found.append(
            f"The model could not be evaluated at {many}, in {after} transitions after warm-up and {warm} of warm-up "
            f"(chains {[failure['chain'] for failure in same]}; first at q = [{first}]): {message.rstrip('.')}. "
            "They count as positions of density zero. If they lie where the posterior has mass, the draws are biased; else a "
            "smaller step_size, a start nearer to the posterior or a narrower prior avoids them."
        )
    return found


def _unsolved(stats) -> list[str]:
    if "solver_failed" not in stats or not stats["solver_failed"].any():
        return []
    failed = stats["solver_failed"]
    count, back = int(failed.sum()), int((stats["outcome"] == OUTCOMES.index("not_reversible")).sum())
    what = f"of which {back} made a step that did not reverse" if back else "an implicit step had no solution in time"
    return [
        f"{count} of {failed.size} transitions ({100 * count / failed.size:.2g} %) were rejected because the integrator's "
        f"solver failed ({_per_chain(failed)}), {what}: the step is too large where the metric changes fast. The other draws "
        "are valid. Take a smaller step_size, or more max_iterations where they only converge slowly."
    ]


def _stuck(stats) -> list[str]:
    moved = stats["is_accepted"]
    found = []
    for k, row in enumerate(moved):
        still = np.diff(np.flatnonzero(np.concatenate([[True], row, [True]]))).max() - 1
        if still >= STUCK_DRAWS:
            found.append(
                f"Chain {k} stood still for {still} draws in a row: its effective sample size is meaningless. The step "
                "size is too large where it stands; raise target_accept or start elsewhere."
            )
    return found


def _max_depth(stats) -> list[str]:
    if "reached_max_treedepth" not in stats:
        return []
    reached = stats["reached_max_treedepth"]
    worst = float(reached.mean(axis=1).max())
    if worst <= MAX_DEPTH_SHARE:
        return []
    return [
        f"{int(reached.sum())} of {reached.size} trajectories ({_per_chain(reached)}) were still going on at "
        "max_treedepth: the draws are valid but each costs much and moves little, since the scales differ widely. Use a "
        "dense metric, reparametrise, or raise max_treedepth."
    ]


def _energy(stats) -> list[str]:
    bfmi = diagnostics.e_bfmi(stats["energy"])
    low = [f"chain {k}: {b:.2f}" for k, b in enumerate(bfmi) if b < MIN_BFMI]
    if not low:
        return []
    return [
        f"E-BFMI below {MIN_BFMI} in {len(low)} of {len(bfmi)} chains ({', '.join(low)}): a fresh momentum changes the "
        "energy too little to reach the tails. Reparametrise the heavy-tailed part of the model."
    ]


def _mixing(names, draws) -> list[str]:
    chains, n, d = draws.shape
    columns = np.unique(np.linspace(0, d - 1, min(d, MAX_COLUMNS)).astype(int))
    x = draws[:, :, columns]
    found = []
    if chains > 1:
        rhat = diagnostics.rhat(x)
        bad = np.flatnonzero(~(rhat <= MAX_RHAT))
        if bad.size:
            worst = bad[np.argmax(np.nan_to_num(rhat[bad], nan=np.inf))]
            found.append(
                f"R-hat above {MAX_RHAT} for {bad.size} of {len(columns)} coordinates (worst: {names[columns[worst]]}, "
                f"{rhat[worst]:.3f}): the chains do not agree yet, so their averages cannot be trusted. Take more draws, "
                "or look for several modes."
            )
    ess = diagnostics.ess(x)
    bad = np.flatnonzero(~(ess >= MIN_ESS_PER_CHAIN * chains))
    if bad.size:
        worst = bad[np.argmin(np.nan_to_num(ess[bad], nan=-np.inf))]
        found.append(
            f"Effective sample size below {MIN_ESS_PER_CHAIN} a chain for {bad.size} of {len(columns)} coordinates "
            f"(worst: {names[columns[worst]]}, {ess[worst]:.0f} in all): the draws are strongly correlated, and R-hat and "
            "quantiles are unreliable. Take more draws or reparametrise."
        )
    return found

"""What in a finished run deserves a look: each a sentence of what, how many, where, why, and what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refhmc import diagnostics
from refhmc.core.sample_stats import OUTCOMES
from refhmc.integrators import GeneralizedLeapfrog
from refhmc.integrators.defaults import resolve
from refhmc.kernels.watched import MAX_STEPS
from refhmc.metrics import DiagonalSoftAbs, Fisher, SoftAbs
from refhmc.metrics.base import FROM_PAIRS
from refhmc.sampling.moves import moved, starts_of

MIN_DRAWS, MIN_CHAINS = 100, 4
MAX_RHAT, MIN_ESS_PER_CHAIN, MIN_BFMI, MAX_DEPTH_SHARE = 1.01, 100, 0.3, 0.05
ENOUGH_CHAINS = 16  # of more chains no more effective draws are asked for than of these
# Rejections in a row that are called stuck: in a chain that moved before or after, and in one that never moved. (Of a healthy
# chain, acceptance 0.65, the first 5 are rejections once in 200.)
STUCK_DRAWS, NEVER_MOVED_DRAWS = 100, 5
MIN_NO_FLIP = 0.3
# A share of rejections by a solver costs as much of the effective draws. Below this one it is in the statistics alone, if
# the other draws are known to be valid.
FEW_UNSOLVED = 0.005
MAX_NAMED = 8  # chains that a sentence names
MAX_COLUMNS, MAX_CHAINS = 2000, 64  # of more coordinates or chains, R-hat and ESS are taken of an even selection
# Draws of a coordinate, of all chains, of which R-hat and ESS are taken, and numbers in all: of more, of every so many.
# (Thinning leaves an ESS below as many draws as there are as it is, and a run that was stopped is waited for.)
FEWEST_VALUES, MAX_VALUES, MAX_NUMBERS = 2**13, 2**17, 2**22


def review(
    names: list[str],
    draws: np.ndarray,
    blocks: dict[str, dict[str, np.ndarray]],
    kernels: dict[str, object],
    starts: np.ndarray,
    tune: int,
    unevaluated: np.ndarray | None = None,
    thinned: np.ndarray | None = None,
) -> list[str]:
    """Warnings for unconstrained ``draws`` (chain, draw, d) after ``tune`` iterations of warm-up; ``starts`` (chain, d).

    ``blocks``: the statistics, of each block by its name, or of the one kernel under the name ""; ``kernels`` likewise.
    ``unevaluated`` (chain, draw): whether the model said in that transition that it could not be evaluated. ``thinned``
    (chain, fewer, d): every so many of all draws, for R-hat and effective sample size, where ``draws`` are not all.
    """
    chains, n, _ = draws.shape
    if n == 0:
        return []
    said = np.zeros((chains, n), bool) if unevaluated is None else unevaluated
    changed = moved(draws, starts)
    found = []
    for block, stats in blocks.items():
        kernel = kernels[block]
        fixed = tune == 0 or kernel.step_size is not None  # type: ignore[attr-defined]
        of_block = _divergences(names, draws, starts, stats, said, kernel, fixed)
        of_block += _unsolved(stats, kernel)
        of_block += _stuck(changed, stats, fixed)
        of_block += _max_depth(stats, kernel)
        of_block += _cut_short(stats, kernel)
        of_block += _flips(stats, fixed)
        of_block += _exploring(stats)
        found += [f"Block {block}: {text}" for text in of_block] if block else of_block
    if n < MIN_DRAWS:
        return [*found, f"Only {n} draws a chain: too few for R-hat and effective sample size; take at least 100."]
    if "" in blocks:  # a block's energy changes with the other blocks too
        found += _energy(blocks[""])
    found += _mixing(names, draws if thinned is None else thinned)
    if chains < MIN_CHAINS:
        many = f"Only {chains} chains" if chains > 1 else "Only one chain"
        found.append(f"{many}: R-hat compares chains and is unreliable below 4; run chains=4.")
    return found


def percent(part: int, whole: int) -> str:
    """``part`` of ``whole``, with two digits of the distance to 0 or 100: "0.03 %", "37 %", "99.97 %"; "100 %" is all."""
    share = 100 * part / whole
    nearest = min(share, 100 - share)
    digits = max(0, 1 - math.floor(math.log10(nearest))) if nearest > 0 else 0
    text = f"{share:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} %"


def some(texts: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(texts) - MAX_NAMED
    return ", ".join(texts[:MAX_NAMED]) + (f" and {more} more chains" if more > 0 else "")


def listed(chains: list[int]) -> str:
    """[0, 3, 5], and how many more there are."""
    more = len(chains) - MAX_NAMED
    return f"{chains[:MAX_NAMED]}" + (f" and {more} more" if more > 0 else "")


def _per_chain(flags: np.ndarray) -> str:
    return some([f"chain {k}: {int(c)}" for k, c in enumerate(flags.sum(axis=1)) if c])


def _divergences(
    names: list[str],
    draws: np.ndarray,
    starts: np.ndarray,
    stats: dict[str, np.ndarray],
    unevaluated: np.ndarray,
    kernel: Any,
    fixed: bool,
) -> list[str]:
    diverging = stats["diverging"]
    count = int(diverging.sum())
    if not count:
        return []
    # Where do the diverging transitions start, against the rest?
    there, everywhere = starts_of(draws, starts, diverging), draws.mean(axis=(0, 1))
    spread = np.array([draws[:, :, j].std() for j in range(draws.shape[2])])
    distance = np.abs(there.mean(axis=0) - everywhere) / np.where(spread > 0, spread, np.inf)
    k = int(np.argmax(distance))
    where = f"They start near {names[k]} = {there[:, k].mean():.3g} (all draws: {everywhere[k]:.3g} +- {spread[k]:.3g})"
    said = int((diverging & unevaluated).sum())
    is_nan = stats["outcome"] == OUTCOMES.index("nan")
    nan = int((is_nan & ~unevaluated).sum())
    advice = _against_divergences(kernel, fixed)
    why = f"{nan} met an energy that is not finite" if nan else "the curvature there is too high for the step size"
    worst = stats.get("max_energy_error", np.zeros(diverging.shape))
    no_metric = int((diverging & ~is_nan & ~unevaluated & ~np.isfinite(worst)).sum())
    if no_metric > 0:
        why = f"{no_metric} met a metric that could not be computed, the derivatives being too large or not finite"
        if isinstance(kernel.metric, Fisher):
            why = f"{no_metric} met a metric that is not positive definite"
            advice = "refhmc.metrics.SoftAbs() is positive definite everywhere."
    if said:
        why = f"{said} met a position where the model could not be evaluated" + (
            f", in the others {why}" if said < count else ""
        )
        advice = "What the model said is in a warning of its own."
    return [
        f"{count} of {diverging.size} transitions ({percent(count, diverging.size)}) diverged after warm-up "
        f"({_per_chain(diverging)}). {where}; {why}, so that region is explored too little and results may be biased. {advice}"
    ]


def _against_divergences(kernel: Any, fixed: bool) -> str:
    """What to do, what helps most first: a smaller step comes last where warm-up chose it, since no step suits a funnel."""
    if getattr(kernel, "minibatches", False):
        return "Take a smaller step_size."
    if kernel.metric is not None and kernel.metric.position_dependent:
        smaller = "take a smaller step_size" if fixed else "raise target_accept"
        return f"Reparametrise (non-centred), or {smaller}."
    euclidean = "reparametrise (non-centred)"
    if not getattr(kernel, "jumping", False):
        euclidean += " or use a Riemannian metric, such as refhmc.metrics.SoftAbs()"
    if fixed:
        return (
            "Take a smaller step_size, or let warm-up find it (step_size=None, tune > 0). Where the scale varies, as in a "
            f"funnel, {euclidean}."
        )
    return (
        f"Where the scale varies, as in a funnel, {euclidean}: no step suits all of it. Raise target_accept where they are few "
        "and lie scattered."
    )


def failed_evaluations(failures: list[dict]) -> list[str]:
    """A sentence for every message of a model's own; ``failures`` as in the result's attribute ``evaluation_failures``, with
    chains and transitions where these are known. What was met in warm-up alone is in that attribute, and no warning."""
    found = []
    for message in dict.fromkeys(failure["message"] for failure in failures):
        same = [failure for failure in failures if failure["message"] == message]
        evaluations, warm, after = (
            sum(failure.get(key, 0) for failure in same) for key in ("evaluations", "warmup_transitions", "transitions")
        )
        in_which = chains_of = ""
        if "chain" in same[0]:
            if after == 0:
                continue
            in_which = f", in {after} transitions after warm-up and {warm} of warm-up"
            chains_of = f"chains {listed([failure['chain'] for failure in same])}; "
        many = f"{evaluations} positions" if evaluations > 1 else "1 position"
        first = ", ".join(f"{x:.4g}" for x in same[0]["first_position"])
        found.append(
            f"The model could not be evaluated at {many}{in_which} ({chains_of}first at q = [{first}]): "
            f"{message.rstrip('.')}. They count as positions of density zero. If they lie where the posterior has mass, the "
            "draws are biased; else a smaller step_size, a start nearer to the posterior or a narrower prior avoids them."
        )
    return found


def _unsolved(stats: dict[str, np.ndarray], kernel: Any) -> list[str]:
    if "solver_failed" not in stats or not stats["solver_failed"].any():
        return []
    failed = stats["solver_failed"]
    if "reversibility_error" in stats and failed.mean() < FEW_UNSOLVED:
        return []
    count, back = int(failed.sum()), int((stats["outcome"] == OUTCOMES.index("not_reversible")).sum())
    what = f"of which {back} made a step that did not reverse" if back else "an implicit step had no solution in time"
    alone = isinstance(getattr(kernel.integrator, "base", kernel.integrator), GeneralizedLeapfrog)  # solves for q alone
    # Only steps that were taken back are known to be ones that the way back would have taken too.
    if "reversibility_error" in stats:
        rest = "The other draws are valid: each of their steps was taken back."
    else:
        rest = "The other draws may be biased, since their steps were not taken back (reversibility_check=False)."
    return [
        f"{count} of {failed.size} transitions ({percent(count, failed.size)}) were rejected because the integrator's "
        f"solver failed ({_per_chain(failed)}), {what}: the step is too large where the metric changes fast. {rest} "
        "Take a smaller step_size, or more max_iterations where they only converge slowly."
        + f" {smoother(kernel)}".rstrip()
        + (" GeneralizedLeapfrog needs coordinates of order one; ImplicitMidpoint does not." if back and alone else "")
    ]


def smoother(kernel: Any) -> str:
    """For a metric that smooths |eigenvalue of the Hessian| over 1/alpha: what a smaller alpha is good for; else nothing."""
    metric, _ = resolve(kernel.metric, kernel.integrator)
    if not isinstance(metric, SoftAbs | DiagonalSoftAbs):
        return ""
    return (
        f"{type(metric).__name__}(alpha={metric.alpha:,.10g}) changes within {1 / metric.alpha:.1g} of where an eigenvalue "
        "of the Hessian passes 0, which no step resolves: if eigenvalues change sign there, take a smaller alpha."
    )


def _cut_short(stats: dict[str, np.ndarray], kernel: Any) -> list[str]:
    """Of trajectories whose length is given or learned: those that ended at MAX_STEPS before it."""
    if "int_time" not in stats or "tree_depth" in stats or kernel.n_steps is not None:
        return []
    cut = stats["n_steps"] >= MAX_STEPS
    if cut.mean() <= MAX_DEPTH_SHARE:
        return []
    step, length = float(np.median(stats["step_size"][cut])), float(np.median(stats["int_time"][cut]))
    why = smoother(kernel) or "Reparametrise, take a metric that knows the scales, or give n_steps."
    return [
        f"{int(cut.sum())} of {cut.size} trajectories ({_per_chain(cut)}) ended at {MAX_STEPS} steps, the most that are made "
        f"for a trajectory_length: at a step size of {step:.2g} they are {length:.2g} long. {why}"
    ]


def _stuck(changed: np.ndarray, stats: dict[str, np.ndarray], fixed: bool) -> list[str]:
    accepted = stats["is_accepted"]
    found: list[str] = []
    for k, row in enumerate(accepted & changed):
        ends = np.flatnonzero(np.concatenate([[True], row, [True]]))  # a stretch of rejections lies between two of them
        lengths = np.diff(ends) - 1
        still, begin = int(lengths.max()), int(ends[lengths.argmax()])
        never = not row.any()
        if still < (NEVER_MOVED_DRAWS if never else STUCK_DRAWS):
            continue
        there = slice(begin, begin + still)
        # A trajectory of discontinuous coordinates whose every move is turned back ends where it began, and is accepted.
        turned_back = "no_flip_rate" in stats and stats["no_flip_rate"][k, there].mean() < 0.5
        if accepted[k, there].any() and not turned_back:
            why = "The step is too small to change the position in double precision; take a larger step_size."
        elif fixed:
            why = "The step size is too large where it stands; take a smaller step_size or start elsewhere."
        else:
            target = "target_no_flip" if turned_back else "target_accept"
            why = f"The step size is too large where it stands; start elsewhere, or raise {target}."
        if len(found) == MAX_NAMED:
            found.append("More chains stood still: see is_accepted in the statistics.")
            break
        row_of = f"{still} draws in a row{', all that it made' if never else ''}"
        found.append(
            f"Chain {k} stood still for {row_of}: it is stuck, and its effective sample size is meaningless. {why}"
        )
    return found


def _max_depth(stats: dict[str, np.ndarray], kernel: Any) -> list[str]:
    if "reached_max_treedepth" not in stats:
        return []
    reached = stats["reached_max_treedepth"]
    worst = float(reached.mean(axis=1).max())
    if worst <= MAX_DEPTH_SHARE:
        return []
    metric, _ = resolve(kernel.metric, kernel.integrator)
    learned = metric.is_dense or metric.position_dependent or metric.learns == FROM_PAIRS
    dense = "" if learned else 'Use the metric "auto", or '
    advice = f"{dense}reparametrise, or raise max_treedepth."
    return [
        f"{int(reached.sum())} of {reached.size} trajectories ({_per_chain(reached)}) were still going on at "
        "max_treedepth: the draws are valid but each costs much and moves little, since the scales differ widely. "
        f"{advice[0].upper()}{advice[1:]}"
    ]


def _flips(stats: dict[str, np.ndarray], fixed: bool) -> list[str]:
    if "no_flip_rate" not in stats:
        return []
    rates = stats["no_flip_rate"].mean(axis=1)
    low = [f"chain {k}: {rate:.2f}" for k, rate in enumerate(rates) if rate < MIN_NO_FLIP]
    if not low:
        return []
    smaller = "Take a smaller one, or let warm-up adapt it (step_size=None)" if fixed else "Raise target_no_flip"
    return [
        f"Fewer than {100 * MIN_NO_FLIP:.0f} % of the moves of the discontinuous coordinates got through in {len(low)} of "
        f"{len(rates)} chains ({some(low)}): the step is too large for them. {smaller}, or scale them alike."
    ]


def _exploring(stats: dict[str, np.ndarray]) -> list[str]:
    if "exploring" not in stats or not stats["exploring"].any():
        return []
    exploring = stats["exploring"]
    return [
        f"{int(exploring.sum())} of {exploring.size} draws are of the exploration of a cycle, which has no noise: leave "
        "them out, they are exploring in the statistics. R-hat and effective sample sizes below are of all draws."
    ]


def _energy(stats: dict[str, np.ndarray]) -> list[str]:
    if "energy" not in stats:
        return []
    bfmi = diagnostics.e_bfmi(stats["energy"])
    low = [f"chain {k}: {b:.2f}" for k, b in enumerate(bfmi) if b < MIN_BFMI]
    if not low:
        return []
    return [
        f"E-BFMI below {MIN_BFMI} in {len(low)} of {len(bfmi)} chains ({some(low)}): a fresh momentum changes the "
        "energy too little to reach the tails. Reparametrise the heavy-tailed part of the model."
    ]


def values_looked_at(columns: int) -> int:
    """Draws of each of so many coordinates, of all chains together, of which R-hat and effective sample size are taken."""
    return max(FEWEST_VALUES, min(MAX_VALUES, MAX_NUMBERS // max(1, columns)))


def _mixing(names: list[str], draws: np.ndarray) -> list[str]:
    chains, d = min(len(draws), MAX_CHAINS), draws.shape[2]
    columns = np.unique(np.linspace(0, d - 1, min(d, MAX_COLUMNS)).astype(int))
    x = draws[:, :: -(-draws.shape[1] * chains // values_looked_at(len(columns)))]
    if chains < len(x):
        x = x[np.linspace(0, len(x) - 1, chains).astype(int)]
    if len(columns) < d:
        x = x[:, :, columns]
    found = []
    rhat, ess = diagnostics.rhat_and_ess(x)
    if chains > 1:
        bad = np.flatnonzero(~(rhat <= MAX_RHAT))
        if bad.size:
            worst = bad[np.argmax(np.nan_to_num(rhat[bad], nan=np.inf))]
            found.append(
                f"R-hat above {MAX_RHAT} for {bad.size} of {len(columns)} coordinates (worst: {names[columns[worst]]}, "
                f"{rhat[worst]:.3f}): the chains do not agree yet, so their averages cannot be trusted. Take more draws, "
                "or look for several modes."
            )
    least = MIN_ESS_PER_CHAIN * min(chains, ENOUGH_CHAINS)
    asked = f"{MIN_ESS_PER_CHAIN} a chain" if chains <= ENOUGH_CHAINS else f"{least} in {chains} chains"
    bad = np.flatnonzero(~(ess >= least))
    if bad.size:
        worst = bad[np.argmin(np.nan_to_num(ess[bad], nan=-np.inf))]
        found.append(
            f"Effective sample size below {asked} for {bad.size} of {len(columns)} coordinates "
            f"(worst: {names[columns[worst]]}, {ess[worst]:.0f} in all): the draws are strongly correlated, and R-hat and "
            "quantiles are unreliable. Take more draws or reparametrise."
        )
    return found

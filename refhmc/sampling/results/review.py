"""Warnings about a finished run: what happened and how often, why it matters, and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from refhmc import diagnostics
from refhmc.core.sample_stats import OUTCOMES
from refhmc.errors import _see
from refhmc.integrators import GeneralizedLeapfrog
from refhmc.integrators.defaults import resolve
from refhmc.kernels.blocks import kernels_of, named_by_block
from refhmc.kernels.hmc import MAX_STEPS
from refhmc.kernels.nuts import NUTS
from refhmc.kernels.options import AnyKernel, Kernel
from refhmc.kernels.tempered import Tempered
from refhmc.metrics import DiagonalSoftAbs, Fisher, SoftAbs
from refhmc.metrics.base import FROM_PAIRS
from refhmc.numerics.convergence import of_columns, ratio_of_scales, superchain_variances
from refhmc.sampling.results.position_changes import moved, starts_of

MIN_DRAWS, MIN_CHAINS = 100, 4
EXPLORATORY = 1000  # runs of two or three chains with fewer draws are not warned of the number of chains
MOST_SHOWN = 100.0  # R-hat
FEW_DRAWS_SHARE = 0.25  # effective draws per draw above which draws are few, and not strongly correlated
MAX_RHAT, MIN_ESS_PER_CHAIN, MIN_BFMI, MAX_DEPTH_SHARE = 1.01, 100, 0.3, 0.05
MANY_DIVERGENCES = 0.01  # share above which warmup="stan" is advised
ENOUGH_CHAINS = 16  # more chains than these do not raise the required number of effective draws
# Consecutive rejections that count as stuck, in a chain that moves at other times and in one that never moves. (In a healthy
# chain with acceptance 0.65, the first 5 iterations are all rejections once in 200 runs.)
STUCK_DRAWS, NEVER_MOVED_DRAWS = 100, 5
MIN_NO_FLIP = 0.3
# Rejections by a solver reduce the effective draws by their share. Below this share there is no warning, provided that the
# other draws are known to be valid.
FEW_UNSOLVED = 0.005
# On hierarchical models it makes two to four times the effective draws per gradient (`results/explicit.md` of the benchmarks).
MORE_EFFICIENT = ", use refhmc.HMC(), which makes more effective draws per gradient in hierarchical models,"
APART = 5.0  # standard deviations within a chain, between means of chains; see `_apart`
FALSE_ALARM = 1e-6  # of the comparison of superchains, for all coordinates together
MAX_NAMED = 8  # chains listed in a message
# Beyond these, R-hat and ESS use an even selection of coordinates and chains. R-hat of the values, not their ranks, uses all
# chains.
MAX_COLUMNS, MAX_CHAINS = 2000, 64
# Limits on the draws per coordinate (all chains together) and on all numbers that R-hat and ESS use; beyond them, draws are
# thinned. (Thinning does not change an ESS that is smaller than the number of draws left, and a stopped run ends sooner.)
FEWEST_VALUES, MAX_VALUES, MAX_NUMBERS = 2**13, 2**17, 2**22


class DrawsToReview(NamedTuple):
    """Draws of the chains (chain, draw, d), their statistics and the positions before the first one.

    With a store, these are the last draws, and ``thinned`` is a thinned copy of all draws, for R-hat and effective sample size.
    ``unevaluated`` (chain, draw) marks transitions in which the model could not be evaluated; None if that is unknown.
    """

    draws: np.ndarray
    stats: Mapping[str, np.ndarray]
    starts: np.ndarray
    unevaluated: np.ndarray | None = None
    thinned: np.ndarray | None = None


def review(
    names: list[str], kernel: AnyKernel, to_review: DrawsToReview, tune: int, superchains: np.ndarray | None = None
) -> list[str]:
    """Return the warnings for the draws of a kernel after `tune` iterations of warm-up.

    ``superchains`` (chains,) are groups of chains that began at the same point, if any. Statistics of tempering are those of
    its kernel at the target.
    """
    if replicas := isinstance(kernel, Tempered):
        kernel = kernel.kernel
    draws, _, starts, unevaluated, thinned = to_review
    chains, n, _ = draws.shape
    if n == 0:
        return []
    failed = np.zeros((chains, n), bool) if unevaluated is None else unevaluated
    changed, blocks, kernels = moved(draws, starts), named_by_block(kernel, to_review.stats), kernels_of(kernel)
    found = []
    for block, stats in blocks.items():
        own = kernels[block]
        fixed = tune == 0 or own.step_size is not None
        of_block = _divergences(names, draws, starts, stats, failed, own, fixed)
        of_block += _unsolved(stats, own) if "solver_failed" in stats else []
        of_block += _stuck(changed, stats, fixed)
        of_block += _max_depth(stats, own) if "reached_max_treedepth" in stats else []
        of_block += _cut_short(stats, own)
        of_block += _flips(stats, fixed) if "no_flip_rate" in stats else []
        of_block += _exploring(stats["exploring"]) if "exploring" in stats else []
        found += [f"Block {block}: {text}" for text in of_block] if block else of_block
    x = draws if thinned is None else thinned
    if superchains is not None:
        found += _starts_remain(names, x, superchains)
    if n < MIN_DRAWS and superchains is not None and chains > MAX_CHAINS:
        return found  # chains that have forgotten their starts are so many independent draws
    if n < MIN_DRAWS:
        return [
            *found,
            f"Only {n} draws per chain were taken. R-hat and effective sample size need at least {MIN_DRAWS}, so they were not "
            f"computed. Take at least {MIN_DRAWS} draws per chain. {_see('few-draws')}",
        ]
    # A block's energy also changes with the other blocks; that of a kept momentum changes slowly by construction.
    if "energy" in blocks.get("", {}) and not getattr(kernel, "keeps_momentum", False):
        found += _energy(blocks[""]["energy"])
    is_nuts = any(isinstance(each, NUTS) for each in kernels.values())
    found += _mixing(names, x, MORE_EFFICIENT if is_nuts and not replicas else "", replicas)
    found += _apart(names, x, to_review.stats.get("lp"), replicas)
    if chains < (MIN_CHAINS if n >= EXPLORATORY else 2):
        many = f"Only {chains} chains were" if chains > 1 else "Only one chain was"
        found.append(
            f"{many} run. R-hat compares chains and is unreliable with fewer than {MIN_CHAINS}. Use chains={MIN_CHAINS} or "
            f"more. {_see('few-chains')}"
        )
    return found


def percent(part: int, whole: int) -> str:
    """Return a share with two digits of its distance to 0 or 100: "0.03 %", "37 %", "99.97 %"; only all is "100 %"."""
    share = 100 * part / whole
    nearest = min(share, 100 - share)
    digits = max(0, 1 - math.floor(math.log10(nearest))) if nearest > 0 else 0
    text = f"{share:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} %"


def some(texts: list[str]) -> str:
    """Join the first texts by commas, and add how many more chains there are."""
    more = len(texts) - MAX_NAMED
    return ", ".join(texts[:MAX_NAMED]) + (f" and {more} more chains" if more > 0 else "")


def listed(chains: list[int]) -> str:
    """Return the first chains as in "[0, 3, 5]", and how many more there are."""
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
    kernel: Kernel,
    fixed: bool,
) -> list[str]:
    diverging = stats["diverging"]
    count = int(diverging.sum())
    if not count:
        return []
    # Compare the starts of diverging transitions with all draws.
    there, everywhere = starts_of(draws, starts, diverging), draws.mean(axis=(0, 1))
    spread = np.array([draws[:, :, j].std() for j in range(draws.shape[2])])
    distance = np.abs(there.mean(axis=0) - everywhere) / np.where(spread > 0, spread, np.inf)
    k = int(np.argmax(distance))
    where = f"near {names[k]} = {there[:, k].mean():.3g} (all draws: {everywhere[k]:.3g} +- {spread[k]:.3g})"
    failed = int((diverging & unevaluated).sum())
    is_nan = stats["outcome"] == OUTCOMES.index("nan")
    nan = int((is_nan & ~unevaluated).sum())
    advice = _against_divergences(kernel, fixed, count > MANY_DIVERGENCES * diverging.size)
    why, section = "the step size is too large for the curvature there", "divergences"
    if nan:
        why, section = f"{nan} met an energy that is not finite", "energy-not-finite"
    worst = stats.get("max_energy_error", np.zeros(diverging.shape))
    no_metric = int((diverging & ~is_nan & ~unevaluated & ~np.isfinite(worst)).sum())
    if no_metric > 0:
        why = f"{no_metric} met a metric that could not be computed, because derivatives are too large or not finite"
        section = "energy-not-finite"
        if isinstance(kernel.metric, Fisher):
            why, section = f"{no_metric} met a metric that is not positive definite", "metric-not-positive-definite"
            advice = "Use refhmc.metrics.SoftAbs(), which is positive definite everywhere."
    if failed:
        others = f", and in the others {why}" if failed < count else ""
        why, section = (
            f"{failed} reached a position where the model could not be evaluated{others}",
            "evaluation-errors",
        )
        advice = "Read the warning that quotes the model's own message."
    return [
        f"{count} of {diverging.size} transitions ({percent(count, diverging.size)}) diverged after warm-up "
        f"({_per_chain(diverging)}), {where}. That region is explored too little and results may be biased, because {why}. "
        f"{advice} {_see(section)}"
    ]


def _against_divergences(kernel: Kernel, fixed: bool, many: bool = False) -> str:
    """Return the advice, most effective first. No step size suits all of a funnel, but a metric may.

    With a metric learned from the draws alone from the beginning, fewer transitions may diverge.
    """
    if getattr(kernel, "minibatches", False):
        return "Use a smaller step_size."
    if kernel.metric is not None and kernel.metric.position_dependent:
        smaller = "Use a smaller step_size" if fixed else "Raise target_accept"
        return f"{smaller}, or reparametrise the model (non-centred)."
    varying = "reparametrise (non-centred)"
    if not getattr(kernel, "jumping", False):
        varying = (
            "use refhmc.HMC(metric=refhmc.metrics.Hierarchical()), which learns how they vary, or a Riemannian metric such as "
            "refhmc.metrics.SoftAbs(), or reparametrise (non-centred)"
        )
    if fixed:
        return (
            "Use a smaller step_size, or let warm-up adapt it (step_size=None, tune > 0); if scales vary, as in a funnel, "
            f"{varying}."
        )
    advice = f"If scales vary, as in a funnel, {varying}; if the divergences are few and scattered, raise target_accept"
    # A metric that the user chose keeps its own windows with warmup="stan".
    if many and kernel.metric is None and resolve(None, kernel.integrator)[0].learns == FROM_PAIRS:
        return f'{advice}; if neither helps, use warmup="stan", which learns the metric from the draws alone.'
    return f"{advice}."


def failed_evaluations(failures: list[dict]) -> list[str]:
    """Return a warning for each message of the model; `failures` is the result's attribute ``evaluation_failures``.

    Failures in warm-up alone are only in that attribute.
    """
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
            in_which = f", in {after} transitions after warm-up and {warm} in warm-up"
            chains_of = f"chains {listed([failure['chain'] for failure in same])}; "
        many = f"{evaluations} positions" if evaluations > 1 else "1 position"
        first = ", ".join(f"{x:.4g}" for x in same[0]["first_position"])
        found.append(
            f"The model could not be evaluated at {many}{in_which} ({chains_of}first at q = [{first}]): "
            f"{message.rstrip('.')}. These positions count as having density zero, which biases the draws if the posterior has "
            "mass there. Correct the model if it has; otherwise use a smaller step_size, a start nearer to the posterior or a "
            f"narrower prior. {_see('evaluation-errors')}"
        )
    return found


def _unsolved(stats: dict[str, np.ndarray], kernel: Kernel) -> list[str]:
    failed, checked = stats["solver_failed"], "reversibility_error" in stats
    if not failed.any() or (checked and failed.mean() < FEW_UNSOLVED):
        return []
    count, back = int(failed.sum()), int((stats["outcome"] == OUTCOMES.index("not_reversible")).sum())
    what = f"{back} of them made a step that did not reverse" if back else "an implicit step had no solution in time"
    alone = isinstance(getattr(kernel.integrator, "base", kernel.integrator), GeneralizedLeapfrog)  # solves for q alone
    rest = "the other draws may be biased, because reversibility_check=False skips the check of each step"
    if checked:  # a step is only known to be reversible if it was reversed
        rest = "the other draws are valid, because each of their steps passed the reversibility check"
    return [
        f"{count} of {failed.size} transitions ({percent(count, failed.size)}) were rejected because the integrator's "
        f"solver failed ({_per_chain(failed)}); {what}. The step is too large where the metric changes fast; {rest}. "
        "Use a smaller step_size, or more max_iterations if the iteration only converges slowly."
        + f" {smoother(kernel)}".rstrip()
        + (" GeneralizedLeapfrog needs coordinates of order one; ImplicitMidpoint does not." if back and alone else "")
        + f" {_see('solver-failures')}"
    ]


def smoother(kernel: Kernel) -> str:
    """Return the advice on alpha for a metric that smooths the absolute eigenvalues of the Hessian over 1/alpha, else ""."""
    metric, _ = resolve(kernel.metric, kernel.integrator)
    if not isinstance(metric, SoftAbs | DiagonalSoftAbs):
        return ""
    return (
        f"{type(metric).__name__}(alpha={metric.alpha:,.10g}) changes within {1 / metric.alpha:.1g} of points where an "
        "eigenvalue of the Hessian passes 0, which no step size resolves; if eigenvalues change sign, use a smaller alpha."
    )


def _cut_short(stats: dict[str, np.ndarray], kernel: Kernel) -> list[str]:
    """Warn of trajectories that reached MAX_STEPS before their given or adapted length."""
    if "int_time" not in stats or "tree_depth" in stats or getattr(kernel, "n_steps", None) is not None:
        return []
    cut = stats["n_steps"] >= MAX_STEPS
    if cut.mean() <= MAX_DEPTH_SHARE:
        return []
    step, length = float(np.median(stats["step_size"][cut])), float(np.median(stats["int_time"][cut]))
    of_alpha = smoother(kernel)
    advice = of_alpha or "Reparametrise the model, use a metric that adapts to the scales, or set n_steps."
    return [
        f"{int(cut.sum())} of {cut.size} trajectories ({_per_chain(cut)}) ended at the limit of {MAX_STEPS} steps before they "
        f"reached their trajectory_length. At a step size of {step:.2g} they are only {length:.2g} long, so draws are more "
        f"correlated than intended. {advice} {_see('softabs-alpha' if of_alpha else 'trajectory-length')}"
    ]


def _stuck(changed: np.ndarray, stats: dict[str, np.ndarray], fixed: bool) -> list[str]:
    accepted = stats["is_accepted"]
    found: list[str] = []
    for k, row in enumerate(accepted & changed):
        ends = np.flatnonzero(np.concatenate([[True], row, [True]]))  # each run of rejections lies between two ends
        lengths = np.diff(ends) - 1
        still, begin = int(lengths.max()), int(ends[lengths.argmax()])
        never = not row.any()
        if still < (NEVER_MOVED_DRAWS if never else STUCK_DRAWS):
            continue
        there = slice(begin, begin + still)
        # A trajectory of discontinuous coordinates whose moves are all turned back ends at its start, and is accepted.
        turned_back = "no_flip_rate" in stats and stats["no_flip_rate"][k, there].mean() < 0.5
        if accepted[k, there].any() and not turned_back:
            why, advice = "steps are too small to change the position in double precision", "Use a larger step_size."
        elif fixed:
            why, advice = "step size is too large there", "Use a smaller step_size or start elsewhere."
        else:
            target = "target_no_flip" if turned_back else "target_accept"
            why, advice = "step size is too large there", f"Start elsewhere, or raise {target}."
        if len(found) == MAX_NAMED:
            found.append(
                "More chains stood still than are listed above. Their effective sample sizes are meaningless, too. See "
                f"is_accepted in the sample statistics. {_see('stuck-chain')}"
            )
            break
        row_of = f"all of its {still} draws" if never else f"{still} draws in a row"
        found.append(
            f"Chain {k} is stuck: it stood still for {row_of}. Its {why}, and its effective sample size is meaningless. "
            f"{advice} {_see('stuck-chain')}"
        )
    return found


def _max_depth(stats: dict[str, np.ndarray], kernel: Kernel) -> list[str]:
    reached = stats["reached_max_treedepth"]
    worst = float(reached.mean(axis=1).max())
    if worst <= MAX_DEPTH_SHARE:
        return []
    metric, _ = resolve(kernel.metric, kernel.integrator)
    learned = metric.is_dense or metric.position_dependent or metric.learns == FROM_PAIRS
    advice = "Reparametrise" if learned else 'Use metric="auto", reparametrise'
    if jumps := smoother(kernel):
        advice = f"{jumps} Otherwise reparametrise"
    return [
        f"{int(reached.sum())} of {reached.size} trajectories ({_per_chain(reached)}) reached max_treedepth. "
        "The draws are valid, but each costs much and moves little, because the scales differ widely. "
        f"{advice}, or raise max_treedepth. {_see('softabs-alpha' if jumps else 'tree-depth')}"
    ]


def _flips(stats: dict[str, np.ndarray], fixed: bool) -> list[str]:
    rates = stats["no_flip_rate"].mean(axis=1)
    low = [f"chain {k}: {rate:.2f}" for k, rate in enumerate(rates) if rate < MIN_NO_FLIP]
    if not low:
        return []
    smaller = "Use a smaller step_size, let warm-up adapt it (step_size=None)" if fixed else "Raise target_no_flip"
    return [
        f"Fewer than {100 * MIN_NO_FLIP:.0f} % of the moves of discontinuous coordinates were accepted in {len(low)} of "
        f"{len(rates)} chains ({some(low)}). The step is too large for these coordinates, so they move slowly. {smaller}, or "
        f"give them similar scales. {_see('discontinuous-moves')}"
    ]


def _exploring(exploring: np.ndarray) -> list[str]:
    if not exploring.any():
        return []
    return [
        f"{int(exploring.sum())} of {exploring.size} draws belong to the exploration stage of a cycle, which adds no noise. "
        "They are not draws from the posterior, but R-hat and effective sample sizes include them. Leave out the draws that "
        f"are marked exploring in the sample statistics. {_see('exploration')}"
    ]


def _energy(energy: np.ndarray) -> list[str]:
    bfmi = diagnostics.e_bfmi(energy)
    low = [f"chain {k}: {b:.2f}" for k, b in enumerate(bfmi) if b < MIN_BFMI]
    if not low:
        return []
    return [
        f"E-BFMI is below {MIN_BFMI} in {len(low)} of {len(bfmi)} chains ({some(low)}). A new momentum changes the energy too "
        "little to reach the tails, so they may be explored too little. Reparametrise the heavy-tailed part of the model. "
        f"{_see('e-bfmi')}"
    ]


def some_ratio(rhat: float) -> str:
    """Return R-hat as text; the size of a very large one, of chains that hardly move, has no meaning."""
    return f"above {MOST_SHOWN:g}" if rhat > MOST_SHOWN else f"{rhat:.3f}"


def _apart(names: list[str], draws: np.ndarray, lp: np.ndarray | None, replicas: bool = False) -> list[str]:
    """Return the warning about chains in regions that are far apart, with mean log densities if these are known.

    For each coordinate, the means of the chains are sorted. Two neighbours are far apart if their distance is more than
    ``APART`` times the largest standard deviation within a chain.
    """
    with np.errstate(all="ignore"):  # values that are not finite
        means, sds = draws.mean(axis=1), draws.std(axis=1)
    if len(means) < 2 or not (np.isfinite(means).all() and np.isfinite(sds).all()):
        return []
    gaps = np.diff(np.sort(means, axis=0), axis=0)
    widest = gaps.max(axis=0)
    ratios = np.divide(widest, sds.max(axis=0), out=np.zeros(len(widest)), where=sds.max(axis=0) > 0)
    j = int(np.argmax(ratios))
    if not ratios[j] > APART:
        return []
    limit = np.sort(means[:, j])[gaps[:, j].argmax()]
    sides = [np.flatnonzero(side).tolist() for side in (means[:, j] <= limit, means[:, j] > limit)]
    levels = ["" if lp is None else f", at a mean log density of {lp[side].mean():.4g}" for side in sides]
    where = [
        f"{means[side, j].mean():.3g} in chains {listed(side)}{level}"
        for side, level in zip(sides, levels, strict=True)
    ]
    what_to_do = (
        "take more rungs, a longer warm-up or more draws."
        if replicas
        else "use refhmc.Tempered, or Ordered for parameters that can be exchanged. Or some chains have not left their starts: "
        'use init="pathfinder" or initvals.'
    )
    return [
        f"The chains are in regions that are far apart: the mean of {names[j]} is {where[0]}, and {where[1]}. The distance is "
        f"{ratios[j]:.0f} times the largest standard deviation within a chain. The density may have several modes, and the "
        f"chains do not move between them, so that shares of draws are not probabilities: {what_to_do} {_see('regions-apart')}"
    ]


def values_looked_at(columns: int) -> int:
    """Return how many draws per coordinate, all chains together, R-hat and effective sample size use."""
    return max(FEWEST_VALUES, min(MAX_VALUES, MAX_NUMBERS // max(1, columns)))


def columns_looked_at(d: int) -> np.ndarray:
    """Return the coordinates that R-hat and effective sample size use: all, or an even selection."""
    return np.unique(np.linspace(0, d - 1, min(d, MAX_COLUMNS)).astype(int))


def _starts_remain(names: list[str], draws: np.ndarray, superchains: np.ndarray) -> list[str]:
    """Return the warning about superchains that still differ.

    Their excess (:mod:`refhmc.numerics.convergence`) must be above that of ``MAX_RHAT``, and by chance be as large in one of
    10^6 runs at most, for normal means. (With one draw per chain of a log-normal distribution or of an event of probability
    0.01, it was in 2 to 4 of 100,000 simulated runs of 256 and of 1,024 chains.)
    """
    from scipy.special import fdtrc  # importing it takes 0.1 s

    columns = columns_looked_at(draws.shape[2])
    B, of_chains, within, K, M = superchain_variances(draws[:, :, columns], superchains)
    if M < 2:
        return []
    with np.errstate(all="ignore"):  # chains that stand still
        W, F = of_chains + within, M * B / of_chains
        excess = (B - of_chains / M) / W
        by_chance = fdtrc(K - 1, K * (M - 1), F)
    bad = np.flatnonzero((excess > MAX_RHAT**2 - 1) & (by_chance < FALSE_ALARM / len(columns)))
    if not bad.size:
        return []
    worst = bad[np.argmax(excess[bad])]
    rhat, expected = np.sqrt(1 + B[worst] / W[worst]), np.sqrt(1 + of_chains[worst] / (M * W[worst]))
    return [
        f"Chains still depend on their starts: the nested R-hat of {names[columns[worst]]} is {rhat:.3f}, and chains that have "
        f"forgotten their starts would have {expected:.3f}. The {K} superchains of {M} chains differ in {bad.size} of "
        f"{len(columns)} coordinates. Use a longer warm-up (tune=), or look for several modes. {_see('nested-r-hat')}"
    ]


def _mixing(names: list[str], draws: np.ndarray, cure: str, replicas: bool = False) -> list[str]:
    """Return the warnings of R-hat and effective sample size; ``cure`` is an advice beside more draws."""
    chains, columns = min(len(draws), MAX_CHAINS), columns_looked_at(draws.shape[2])
    x = draws[:, :: -(-draws.shape[1] * chains // values_looked_at(len(columns)))]
    if chains < len(x):
        x = x[np.linspace(0, len(x) - 1, chains).astype(int)]
    found, x = [], x[:, :, columns]
    rhat, ess = diagnostics.rhat_and_ess(x)
    if chains < len(draws):
        rhat = np.fmax(rhat, of_columns(draws[:, :, columns], lambda halves: [ratio_of_scales(halves)])[0])
    if chains > 1:
        bad = np.flatnonzero(~(rhat <= MAX_RHAT))
        if bad.size:
            worst = bad[np.argmax(np.nan_to_num(rhat[bad], nan=np.inf))]
            more = " or more rungs." if replicas else f"{cure or ','} or look for several modes."
            found.append(
                f"R-hat is above {MAX_RHAT} for {bad.size} of {len(columns)} coordinates (worst: {names[columns[worst]]}, "
                f"{some_ratio(rhat[worst])}). The chains do not agree yet, so their averages cannot be trusted. Take more "
                f"draws{more} {_see('r-hat')}"
            )
    least = MIN_ESS_PER_CHAIN * min(chains, ENOUGH_CHAINS)
    asked = f"{MIN_ESS_PER_CHAIN} per chain" if chains <= ENOUGH_CHAINS else f"{least} in {chains} chains"
    bad = np.flatnonzero(~(ess >= least))
    if bad.size:
        worst = bad[np.argmin(np.nan_to_num(ess[bad], nan=-np.inf))]
        too_few = ess[worst] > FEW_DRAWS_SHARE * x[:, :, 0].size
        why = "There are few draws" if too_few else "The draws are strongly correlated"
        more = "Take more draws" if too_few else f"Take more draws{cure} or reparametrise"
        found.append(
            f"The effective sample size is below {asked} for {bad.size} of {len(columns)} coordinates "
            f"(worst: {names[columns[worst]]}, {ess[worst]:.0f} in total). {why}, so R-hat and "
            f"quantiles are unreliable. {more}. {_see('effective-sample-size')}"
        )
    return found

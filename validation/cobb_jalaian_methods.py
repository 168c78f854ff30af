"""SGD, SGLD, SGHMC and the symmetric split on a classifier: one run of each, and its hyper-parameters.

Two hyper-parameters of each method, log10 of its step size and log10 of the prior precision of all weights, are tuned by
SciPy's Nelder-Mead for the mean negative log likelihood (NLL) on images held out from all that follows, with the run that is
then made, in a fixed number of evaluations, the same for all. SGD has momentum 0.9 and its last iterate speaks for it; SGLD
has steps that decay as (1 + t/b)^-0.55, b a third of its updates; SGHMC has friction 0.1. Of these last two, the draws at the
end of each pass in the second half of the run speak; of the symmetric split, those in the second half of its transitions. All
start from random weights by PyTorch's rule.

**All have the same cost**: so many passes, in each of which the gradient of every image is evaluated once. (Not counted is one
log density a transition, for the split's decision.) The first quarter of the split's passes are SGD's, with SGD's tuned step;
what is left makes transitions, each of n_steps (2 M - 2) / M passes in M parts. Where the paper's chains of this section begin
is not in the text, nor what they cost. Two parts: by its footnote 7, 53 % of the data were as much as its memory held.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

import refhmc
from refhmc import uncertainty
from refhmc.integrators import SymmetricSplit
from refhmc.metrics import Identity
from validation import common
from validation.comparing import paired
from validation.judging import level, over_trials

SGD, SGLD, SGHMC, SPLIT = "SGD", "SGLD", "SGHMC", "symmetric split"
# Where the tuning begins: log10 of the step for one image, of the prior precision. The step of a sum over n images is that over
# n for SGD and SGLD, over the root of n for the others.
BEGIN = {SGD: (-2.0, 1.0), SGLD: (-1.0, 1.0), SGHMC: (-1.0, 1.0), SPLIT: (-1.0, 1.0)}
BETTER = {"accuracy": 1, "nll": -1, "brier": -1}  # the sign of what is better
WORST = 10.0  # NLL at which a run counts as lost


class Budget(NamedTuple):
    """``passes`` of each method; stochastic gradients are of one of ``batches``; the split has trajectories of ``n_steps`` in
    ``parts``; evaluations of the tuning; predictions kept, at most."""

    passes: int = 400
    batches: int = 8
    n_steps: int = 12
    parts: int = 2
    evaluations: int = 6
    kept: int = 30

    @property
    def before(self) -> int:
        """Passes of SGD before the split's transitions."""
        return self.passes // 4

    @property
    def transitions(self) -> int:
        return int((self.passes - self.before) * self.parts / (self.n_steps * max(2 * self.parts - 2, 1)))


def kernel_of(method: str, step: float, budget: Budget) -> Any:
    if method == SGD:
        return refhmc.SGD(step_size=step, momentum=0.9)
    if method == SGLD:
        return refhmc.SGLD(step_size=step, decay=(max(1.0, budget.passes * budget.batches / 3), 0.55))
    if method == SGHMC:
        return refhmc.SGHMC(step_size=step, friction=0.1)
    return refhmc.HMC(step_size=step, n_steps=budget.n_steps, metric=Identity(), integrator=SymmetricSplit())


class Fit(NamedTuple):
    """Class probabilities (draws, n, classes) of new images; the share of transitions accepted; processor seconds."""

    probability: np.ndarray
    acceptance: float
    seconds: float


def fit(method: str, x: Any, make: Callable, X: np.ndarray, budget: Budget, seed: int, of_sgd: float) -> Fit:
    """One run of the model ``make(prior_precision)``, and what it says of the images X. ``of_sgd``: log10 of SGD's step."""
    begin, model = time.process_time(), make(10.0 ** x[1])
    n, start = model.n_rows, model.initial(np.random.default_rng(seed))
    if method == SPLIT:
        kernel = kernel_of(SGD, 10.0**of_sgd / n, budget)
        start = run(model.split(budget.batches, order="random"), kernel, start, budget.before, 1, seed).draws[0, -1]
    step = 10.0 ** x[0] / (n if method in (SGD, SGLD) else n**0.5)
    split = model.split(budget.parts if method == SPLIT else budget.batches, order="random")
    iterations = budget.transitions if method == SPLIT else budget.passes
    draws = 1 if method == SGD else iterations - iterations // 2
    result = run(split, kernel_of(method, step, budget), start, iterations, draws, seed)
    said = refhmc.predict(model, result, X, thin=max(1, draws // budget.kept)).groups["predictions"]["probability"][0]
    acceptance = float(np.mean(result.sample_stats["is_accepted"]))
    return Fit(said, acceptance, time.process_time() - begin)


def run(model: Any, kernel: Any, start: np.ndarray, iterations: int, draws: int, seed: int) -> Any:
    """So many iterations of a kernel, of which the last ``draws`` are kept."""
    options = {"draws": draws, "tune": iterations - draws, "chains": 1, "initvals": start, "random_seed": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws, and that the kernels are approximate
        return refhmc.sample(model, kernel, **options, raw=True, progressbar=False, preflight=False)


def scores(probability: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy in percent, NLL, Brier score and ECE."""
    return {
        "accuracy": 100 * uncertainty.accuracy(probability, y),
        "nll": min(uncertainty.negative_log_likelihood(probability, y), WORST),
        "brier": uncertainty.brier_score(probability, y),
        "ece": uncertainty.expected_calibration_error(probability, y),
    }


def tuned(method: str, make: Callable, X: np.ndarray, y: np.ndarray, budget: Budget, seed: int, of_sgd: float) -> dict:
    """The best run, and all that were tried."""
    tried: list[tuple] = []

    def loss(x: np.ndarray) -> float:
        try:
            value = scores(fit(method, x, make, X, budget, seed, of_sgd).probability, y)["nll"]
        except (refhmc.errors.SamplingError, refhmc.errors.ModelError, ValueError):
            value = WORST  # a step at which nothing stays finite
        tried.append((*map(float, x), value))
        return value

    x = np.array(BEGIN[method])
    simplex = [x, x + [-0.5, 0.0], x + [0.0, -0.5]]
    options = {"maxfev": budget.evaluations, "initial_simplex": simplex}
    scipy.optimize.minimize(loss, x, method="Nelder-Mead", options=options)
    best = min(tried, key=lambda each: each[2])
    return {"x": best[:2], "nll": best[2], "tried": tried}


# ---------------------------------------------------------------------------------------------------------------- claims


def better(found: dict[str, list[dict]], best: str, names: Iterable[str]) -> list[tuple[str, list[float]]]:
    """That ``best`` has better scores than each other method: the claims, and by how much, trial by trial."""
    return [
        (
            f"{key} better than {other}'s",
            [BETTER[key] * (a[key] - b[key]) for a, b in zip(found[best], runs, strict=True)],
        )
        for key in names
        for other, runs in found.items()
        if other != best
    ]


def learned(runs: list[dict], classes: int, times: float = 1.0) -> bool:
    """Return whether a method is more than ``times`` as accurate as guessing, by two standard errors.

    If it is not better than guessing, it says nothing of the methods' order.
    """
    accuracy = over_trials([run["accuracy"] for run in runs])
    return accuracy.value - 2 * accuracy.error > times * 100 / classes


def judged(compared: list[tuple[str, Any]], found: dict[str, list[dict]], classes: int) -> list[dict]:
    """Claims with their differences by trial, above 0 where the claim holds: each by a paired t over the trials."""
    rows = []
    for claim, differences in compared:
        x = np.asarray(differences, dtype=float)
        x = x[np.isfinite(x)]
        p = paired(x)
        mean = float(x.mean()) if len(x) else np.nan
        sure = p < level(len(compared))
        word = "UNDECIDED" if not sure else "PASS" if mean > 0 else "FAIL"
        lost = [method for method in found if method in claim and not learned(found[method], classes)]
        word = f"UNDECIDED: {lost[0]} did not learn" if lost else word
        rows.append({"claim": claim, "difference": over_trials(x) if len(x) else None, "p": p, "verdict": word})
    return rows


def count(rows: list[dict]) -> str:
    """How many of each verdict."""
    words = ("PASS", "FAIL", "UNDECIDED")
    return ", ".join(f"{sum(row['verdict'].startswith(word) for row in rows)} {word}" for word in words)


def in_words(rows: list[dict], of: str) -> str:
    """The claims as a table, with their rule."""
    lines = [[row["claim"], row["difference"], f"{row['p']:.2g}", row["verdict"]] for row in rows]
    return (
        "Differences in the sense of the claim, with their errors; p by a paired t over the trials, PASS or FAIL below "
        f"{level(len(rows)):.2g} (Sidak, 5 % for all):\n\n"
        + common.markdown([f"claim, of {of}", "difference", "p", "verdict"], lines)
    )

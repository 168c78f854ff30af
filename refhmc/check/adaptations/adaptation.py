"""Warm-up: does it end, and are its numbers those of the published recursions?

The subject is ``run(draws, tune, seed)`` (or with ``rng``; by these names or by position): one chain of ``tune`` iterations of
warm-up and ``draws`` after it. It returns a mapping (or an object with attributes, or a list of mappings, one an iteration),
each entry with one row an iteration, tune + draws of them (or the draws' only):

    step_size          (n,)             the step that the iteration used
    inverse_metric     (n, d) or (n, d, d)      M^-1, the covariance's estimate; or ``metric``: M
    acceptance_rate    (n,)             its acceptance statistic
    q                  (n, d)           the position after it
    final_metric       any shape        once: the metric as it stands when the run ends, where none is recorded an iteration

One of the first two or the last is needed. One of refhmc's results (raw, with ``save_warmup=True``) is one too. What is asked
of them:

**Frozen.** After warm-up the metric does not change (where only the last is told: it is the same, bit for bit, after a tenth of
the draws, the seed being the same), and the step changes, if at all, without memory: a jittered step has no
serial correlation, and a cycle of steps is the same for every seed.

**Dual averaging**, **variances**, **windows**: those of Stan, ``adaptations/steps.py`` and
``adaptations/windows.py``.

That a chain still adapts is the wrong law; the rest concerns efficiency, and is a FAIL only if the subject ``claims`` it or
hands over the function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refhmc.check import own
from refhmc.check.adaptations.frozen import draw_count_row, frozen_row
from refhmc.check.adaptations.record import AdaptationExamination, Constants, answers_row, refhmc_run
from refhmc.check.adaptations.steps import dual_averaging_function_row, dual_averaging_row, final_step_row
from refhmc.check.adaptations.windows import (
    NOT_RESTARTED,
    direction_row,
    variance_function_row,
    variance_row,
    windows_row,
)
from refhmc.check.arguments import require_counts
from refhmc.check.examination import Rows
from refhmc.check.report import FAIL, INEFFICIENT, Report, Row
from refhmc.check.subject.foreign import Foreign

CLAIMS = ("dual_averaging", "windows", "variance")


def adaptation(
    run: Any,
    *,
    draws: int = 300,
    tune: int = 400,
    target: float = 0.8,
    gamma: float = 0.05,
    t0: float = 10.0,
    kappa: float = 0.75,
    dual_averaging: Callable | None = None,
    schedule: Callable | None = None,
    variance: Callable | None = None,
    claims: str = "",
    model: Any = None,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = None,
) -> Report:
    """Whether adaptation stops with warm-up, and whether its numbers are those it says they are.

    run : ``run(draws, tune, seed)`` as above, or None; or one of refhmc's kernels, for ``model``.
    target, gamma, t0, kappa : of the recursion. dual_averaging : ``f(first_step, acceptances, target)`` -> the steps (n,) after
    each acceptance, or (steps, averaged steps). schedule : ``f(tune)`` -> phases (kind, start, stop), kind "slow" where the
    metric is learned. variance : ``f(draws)`` (n, d) -> (d,) or (d, d). claims : of "dual_averaging", "windows", "variance",
    those whose mismatch in the run's record is a FAIL.

    Returns a :class:`~refhmc.check.Report`. Raises TypeError if nothing callable is given, ValueError for unknown claims.
    """
    unknown = set(claims.split()) - set(CLAIMS)
    if unknown:
        raise ValueError(f"claims: {', '.join(CLAIMS)}; got {', '.join(sorted(unknown))}")
    require_counts(draws=draws)
    require_counts(0, tune=tune)
    if own.is_kernel(run):
        run = refhmc_run(model, run)
    functions = {"run": run, "dual_averaging": dual_averaging, "schedule": schedule, "variance": variance}
    foreign = {key: Foreign(f, name or key, like, in_dimensions=False) for key, f in functions.items() if f is not None}
    if not foreign:
        raise TypeError("adaptation: give run, dual_averaging, schedule or variance")
    test = AdaptationExamination(foreign, draws, tune, seed, Constants(target, gamma, t0, kappa), set(claims.split()))
    checks: Rows = [
        ("answers", answers_row),
        ("frozen after warm-up", frozen_row),
        ("draw count", draw_count_row),
        ("dual averaging", dual_averaging_row, INEFFICIENT),
        ("final step is the averaged one", final_step_row, INEFFICIENT),
        ("dual averaging function", dual_averaging_function_row, INEFFICIENT),
        ("windows", windows_row, INEFFICIENT),
        ("variance estimate", variance_row, INEFFICIENT),
        ("variance function", variance_function_row, INEFFICIENT),
        ("metric used as inverse mass", direction_row, INEFFICIENT),
    ]
    test.settings = {"draws": draws, "tune": tune, "target": target}
    return test.report(
        "adaptation",
        checks,
        diagnose=_diagnose,
        seconds_per_call=300.0 if seconds_per_call is None else seconds_per_call,
        false_alarm="'frozen after warm-up' of a jittered step: below 1e-10; the rest is exact",
    )


def _diagnose(test: AdaptationExamination, rows: dict[str, Row]) -> list[str]:
    """What the failures are typical of, in words."""
    failed = {name for name, row in rows.items() if row.status == FAIL}
    said = []
    if "frozen after warm-up" in failed:
        said.append(
            "the update of the step or metric is not switched off at the end of warm-up: the chain is not Markov"
        )
    if "final step is the averaged one" in failed:
        said.append("eps is returned where eps_bar was meant")
    if "dual averaging" in failed or "dual averaging function" in failed:
        said.append("the recursion's counter, its sign, mu = log(10 eps_0) or a constant is another")
    if "variance estimate" in failed and NOT_RESTARTED in rows["variance estimate"].basis:
        said.append("Welford's sums are not reset when a window ends: early draws stay in every later metric")
    if "metric used as inverse mass" in failed:
        said.append("the mass and its inverse are exchanged: right law, slow mixing")
    return said

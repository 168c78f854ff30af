"""``check.adaptation``: whether adaptation ends with warm-up, and its numbers are those of the published recursions.

The subject is ``run(draws, tune, seed)`` (or with ``rng``; by these names or by position): one chain of ``tune`` iterations of
warm-up and ``draws`` after it. It returns a mapping (or an object with attributes, or a list of mappings, one per iteration).
Each entry has one row per iteration, tune + draws of them (or only those of the draws):

    step_size          (n,)             step size of the iteration
    inverse_metric     (n, d) or (n, d, d)      M^-1, the estimate of the covariance; or ``metric``: M
    acceptance_rate    (n,)             acceptance statistic, a probability or a mean of probabilities
    q                  (n, d)           position after the iteration
    final_metric       any shape        once: the metric at the end of the run, if it is not recorded per iteration

One of the first two or the last is needed. A result of refhmc (raw, with ``save_warmup=True``) is accepted too. The rows are:

**Frozen.** After warm-up the metric does not change. (If only the final one is known, it is the same, bit for bit, after
a tenth of the draws with the same seed.) The step only changes without memory: a jittered step has no
serial correlation, and a cycle of steps is the same for every seed.

**Dual averaging**, **variances**, **windows**: those of Stan, see ``adaptations/steps.py`` and
``adaptations/windows.py``.

A chain that still adapts has the wrong distribution. The other rows concern efficiency, and only FAIL if the subject ``claims``
the property or provides the function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refhmc.check import own
from refhmc.check.adaptations.frozen import draw_count_row, frozen_row
from refhmc.check.adaptations.record import AdaptationExamination, Constants, answers_row, refhmc_run
from refhmc.check.adaptations.steps import (
    LAST_STEP,
    acceptance_row,
    dual_averaging_function_row,
    dual_averaging_row,
    final_step_row,
)
from refhmc.check.adaptations.windows import (
    NOT_RESTARTED,
    direction_row,
    variance_function_row,
    variance_row,
    windows_row,
)
from refhmc.check.arguments import require_counts
from refhmc.check.examination import Rows
from refhmc.check.judging import causes
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
    """Check that adaptation stops with warm-up, and that its numbers are those of the published recursions.

    The main row, "frozen after warm-up", checks that the metric is constant after warm-up and that the step size is constant, a
    memoryless jitter or a fixed cycle; otherwise the chain is not Markov. Further rows compare the record with Stan's
    warm-up::

        log eps_m+1   = mu - sqrt(m) / (gamma (m + t0)) sum_{i <= m} (target - a_i),      mu = log(10 eps_0)
        log eps_bar_m = m^-kappa log eps_m+1 + (1 - m^-kappa) log eps_bar_m-1
        M^-1          = n / (n + 5) S + 10^-3 5 / (n + 5) I,   windows of 75, 25, 50, 100, ..., 50 iterations

    The check finds adaptation that continues, a final step that is not the average, sums that are not reset between windows,
    and an exchanged mass and inverse mass. Other adaptation schemes are INCONCLUSIVE there unless they claim to be Stan's. All
    rows are exact, except that a jittered step fails "frozen after warm-up" with probability below 1e-10.

    Parameters
    ----------
    run : callable, refhmc kernel or None
        ``run(draws, tune, seed)`` or ``run(draws, tune, rng)`` runs one chain and returns a mapping, an object or a list of
        mappings with ``step_size`` (n,), ``inverse_metric`` or ``metric`` (n, dim) or (n, dim, dim), and optionally
        ``acceptance_rate`` (n,), ``q`` (n, dim) and ``final_metric``, with n = tune + draws or draws. A kernel of refhmc needs
        `model`.
    draws : int, default 300
        Number of draws after warm-up.
    tune : int, default 400
        Number of warm-up iterations.
    target : float, default 0.8
        Target acceptance rate of dual averaging.
    gamma : float, default 0.05
        Constant of dual averaging.
    t0 : float, default 10.0
        Constant of dual averaging.
    kappa : float, default 0.75
        Constant of dual averaging.
    dual_averaging : callable, optional
        ``f(first_step, acceptances, target)`` returns the steps (n,) after each acceptance, or (steps, averaged steps).
    schedule : callable, optional
        ``f(tune)`` returns phases (kind, start, stop) with kind "slow" for windows in which the metric is adapted.
    variance : callable, optional
        ``f(draws)`` of draws (n, dim) returns the regularised estimate, of shape (dim,) or (dim, dim).
    claims : str, default ""
        Words out of "dual_averaging", "windows" and "variance": a mismatch of the record with these is a FAIL.
    model : refhmc.Model, optional
        Model for a kernel of refhmc.
    seed : int, default 20261121
        Seed of the run.
    like : callable, module or array, optional
        Array type of the arguments: a conversion function, a module with ``asarray``, or an example array. NumPy float64 by
        default.
    name : str, optional
        Name of the subject in the report.
    seconds_per_call : float, optional
        A call that takes longer is a FAIL; 300 s by default.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    TypeError
        If no function is given.
    ValueError
        If `claims`, `draws` or `tune` is invalid.

    References
    ----------
    Hoffman and Gelman (2014), "The No-U-Turn sampler", for dual averaging.

    Examples
    --------
    >>> import numpy as np
    >>> def run(draws, tune, seed):  # halves the step during warm-up
    ...     n = np.arange(tune + draws)
    ...     return {"step_size": 0.1 + 0.9 * 0.5 ** np.minimum(n, tune), "metric": np.ones((tune + draws, 2))}
    >>> refhmc.check.adaptation(run, draws=20, tune=10).row("frozen after warm-up").status
    'PASS'
    """
    unknown = set(claims.split()) - set(CLAIMS)
    if unknown:
        raise ValueError(f"claims must consist of {', '.join(CLAIMS)}; got {', '.join(sorted(unknown))}.")
    require_counts(draws=draws)
    require_counts(0, tune=tune)
    if own.is_kernel(run):
        run = refhmc_run(model, run)
    functions = {"run": run, "dual_averaging": dual_averaging, "schedule": schedule, "variance": variance}
    foreign = {key: Foreign(f, name or key, like, in_dimensions=False) for key, f in functions.items() if f is not None}
    if not foreign:
        raise TypeError("run, dual_averaging, schedule or variance must be given; got none of them.")
    test = AdaptationExamination(foreign, draws, tune, seed, Constants(target, gamma, t0, kappa), set(claims.split()))
    checks: Rows = [
        ("answers", answers_row),
        ("frozen after warm-up", frozen_row),
        ("draw count", draw_count_row),
        ("acceptance statistic", acceptance_row, INEFFICIENT),
        ("dual averaging", dual_averaging_row, INEFFICIENT),
        (FINAL_STEP, final_step_row, INEFFICIENT),
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
        false_alarm="'frozen after warm-up' of a jittered step: below 1e-10; all other rows are exact",
    )


FINAL_STEP = "final step is the averaged one"
OTHER_FINAL_STEP = (
    "the step after warm-up is not the average of its last part: the average is reset, or of another part"
)
RECURSION = "the recursion has another counter, sign, mu = log(10 eps_0) or constant"
TYPICAL = {
    "frozen after warm-up": "the update of the step or metric continues after warm-up: the chain is not Markov",
    FINAL_STEP: "eps is returned instead of eps_bar",
    "acceptance statistic": "the decision is recorded, not its probability: the step adapts to noise",
    "dual averaging": RECURSION,
    "dual averaging function": RECURSION,
    "metric used as inverse mass": "the mass and its inverse are exchanged: right distribution, slow mixing",
}


def _diagnose(test: AdaptationExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the failures are typical of."""
    failed = {name for name, row in rows.items() if row.status == FAIL}
    said = causes(failed - {FINAL_STEP}, TYPICAL)
    if FINAL_STEP in failed:
        said.append(TYPICAL[FINAL_STEP] if LAST_STEP in rows[FINAL_STEP].basis else OTHER_FINAL_STEP)
    if "variance estimate" in failed and NOT_RESTARTED in rows["variance estimate"].basis:
        said.append("Welford's sums are not reset at the end of a window: early draws stay in every later metric")
    return said

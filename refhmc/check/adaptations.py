"""Warm-up: does it end, and are its numbers those of the published recursions?

The subject is ``run(draws, tune, seed)`` (or with ``rng``; by these names or by position): one chain of ``tune`` iterations of
warm-up and ``draws`` after it. It returns a mapping (or an object with attributes, or a list of mappings, one an iteration),
each entry with one row an iteration, tune + draws of them (or the draws' only):

    step_size          (n,)             the step that the iteration used
    inverse_metric     (n, d) or (n, d, d)      M^-1, the covariance's estimate; or ``metric``: M
    acceptance_rate    (n,)             its acceptance statistic
    q                  (n, d)           the position after it

Only the first is needed. One of refhmc's results (raw, with ``save_warmup=True``) is one too. What is asked of them:

**Frozen.** After warm-up the metric does not change, and the step changes, if at all, without memory: a jittered step has no
serial correlation, and a cycle of steps is the same for every seed.

**Dual averaging** (Hoffman and Gelman 2014), for the acceptances a_m from the iteration of a (re)start with the step eps_0 on:

    log eps_m+1 = mu - sqrt(m) / (gamma (m + t0)) sum_{i <= m} (target - a_i),      mu = log(10 eps_0)
    log eps_bar_m = m^-kappa log eps_m+1 + (1 - m^-kappa) log eps_bar_m-1

Restarts are found by themselves: where the recursion stops explaining the steps. After warm-up the step is eps_bar.

**Variances** (Stan): n / (n + 5) S + 10^-3 5 / (n + 5) I for the (co)variance S of a window of n draws.

**Windows** (Stan): 75, then 25, 50, 100, ... (the last one stretched), then 50; below 150 iterations 15 %, 75 % and 10 %.

That a chain still adapts is the wrong law; the rest concerns efficiency, and is a FAIL only if the subject ``claims`` it or
hands over the function itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from refhmc.check.foreign import Foreign, Misconduct, NotApplicable, examine, to_host
from refhmc.check.played import parameters
from refhmc.check.report import FAIL, INEFFICIENT, PASS, WRONG_LAW, Report, Row, inconclusive, judged, not_run

FIELDS = {
    "step_size": ("step_size", "stepsize", "stepsize__", "epsilon", "eps"),
    "inverse_metric": (
        "inverse_metric",
        "inv_metric",
        "inverse_mass_matrix",
        "inv_mass_matrix",
        "variance",
        "covariance",
    ),
    "metric": ("metric", "mass_matrix", "mass"),
    "acceptance_rate": (
        "acceptance_rate",
        "acceptance",
        "accept_prob",
        "accept_stat",
        "accept_stat__",
        "acceptance_prob",
    ),
    "q": ("q", "draws", "position", "positions", "samples"),
}
ROLES = {
    "draws": ("draws", "n_draws", "num_draws", "n", "n_samples", "num_samples", "samples", "n_iter", "iterations"),
    "tune": ("tune", "n_tune", "warmup", "n_warmup", "num_warmup", "burn", "burnin", "burn_in", "n_burn", "n_adapt"),
    "seed": ("seed", "random_seed", "random_state"),
    "rng": ("rng", "generator"),
}
NEEDED_Z = 7.0  # two-sided below 3e-12 for each of the four statistics
LEAST = 8  # iterations of a segment that count as explained
CLAIMS = ("dual_averaging", "windows", "variance")
LENGTHS = (150, 200, 300, 400, 500, 750, 1000, 1500, 2000, 5000)


def adaptation(
    run,
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
    model=None,
    seed: int = 20261121,
    like=None,
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
    if hasattr(run, "statistics") and callable(getattr(run, "transition", None)):
        run = refhmc_run(model, run)
    functions = {"run": run, "dual_averaging": dual_averaging, "schedule": schedule, "variance": variance}
    foreign = {key: Foreign(f, name or key, like) for key, f in functions.items() if f is not None}
    if not foreign:
        raise TypeError("adaptation: give run, dual_averaging, schedule or variance")
    case = _Case(foreign, draws, tune, seed, _Constants(target, gamma, t0, kappa), set(claims.split()))
    checks = [
        ("answers", lambda: _answers(case)),
        ("frozen after warm-up", lambda: _frozen(case)),
        ("draw count", lambda: _draw_count(case)),
        ("dual averaging", lambda: _dual_averaging(case)),
        ("final step is the averaged one", lambda: _final_step(case)),
        ("dual averaging function", lambda: _dual_averaging_function(case)),
        ("windows", lambda: _windows(case)),
        ("variance estimate", lambda: _variance(case)),
        ("variance function", lambda: _variance_function(case)),
        ("metric used as inverse mass", lambda: _direction(case)),
    ]
    return examine(
        "adaptation",
        foreign.get("run", next(iter(foreign.values()))).name,
        checks,
        settings={"draws": draws, "tune": tune, "target": target},
        seed=seed,
        foreign=tuple(foreign.values()),
        notes=lambda: case.notes,
        diagnose=_diagnose,
        seconds_per_call=300.0 if seconds_per_call is None else seconds_per_call,
        false_alarm="'frozen after warm-up' of a jittered step: below 1e-10; the rest is exact",
    )


class _Constants(NamedTuple):
    target: float
    gamma: float
    t0: float
    kappa: float


class _Case:
    """What the rows of one report share."""

    def __init__(self, foreign: dict[str, Foreign], draws: int, tune: int, seed: int, constants: _Constants, claims):
        self.foreign, self.draws, self.tune, self.seed = foreign, int(draws), int(tune), int(seed)
        self.constants, self.claims = constants, claims
        self.record: dict[str, np.ndarray] = {}
        self.notes: list[str] = []
        self.segments: list[tuple[int, int]] | None = None

    def need(self, *names: str) -> list[np.ndarray]:
        if "run" not in self.foreign:
            raise NotApplicable("no run was given")
        if not self.record:
            raise NotApplicable("it did not answer")
        missing = [name for name in names if name not in self.record]
        if missing:
            raise NotApplicable(f"the run records no {', no '.join(missing)}")
        return [self.record[name] for name in names]

    def whole(self, *names: str) -> list[np.ndarray]:
        """Records of the warm-up too."""
        found = self.need(*names)
        if any(len(x) < self.tune + self.draws for x in found):
            raise NotApplicable("the run records nothing of its warm-up")
        return found

    def function(self, name: str) -> Foreign:
        if name not in self.foreign:
            raise NotApplicable(f"no {name}= was given")
        return self.foreign[name]

    def mismatch(self, row: str, claim: str, number: float, tolerance: float, why: str, case: str = "") -> Row:
        """A FAIL of what is claimed; of what is not, a difference is only said."""
        if claim in self.claims:
            return Row(row, FAIL, number, tolerance, why, INEFFICIENT, case)
        return inconclusive(row, f"{why}; not claimed, so not judged", number)


def refhmc_run(model, kernel) -> Callable:
    """One of refhmc's kernels as ``run(draws, tune, seed)``."""
    import refhmc

    def run(draws, tune, seed):
        options: dict[str, Any] = {"chains": 1, "save_warmup": True, "raw": True, "progressbar": False}
        return refhmc.sample(model, kernel, draws=draws, tune=tune, random_seed=seed, **options)

    return run


# ------------------------------------------------------------------------------------------------------------ the record


def _record(case: _Case, draws: int, tune: int, seed: int) -> dict[str, np.ndarray]:
    """The run's entries by the names above, one row an iteration."""
    run = case.foreign["run"]
    result = _called(run, draws, tune, seed)
    if isinstance(result, (list, tuple)) and result and hasattr(result[0], "keys"):  # one mapping an iteration
        result = {key: np.array([to_host(x[key]) for x in result]) for key in result[0]}
    found: dict[str, np.ndarray] = {}
    groups = getattr(result, "groups", None)
    if isinstance(groups, dict):
        return _of_result(groups)
    for field, names in FIELDS.items():
        for name in names:
            value = result.get(name) if hasattr(result, "get") else getattr(result, name, None)
            if value is not None and not callable(value):
                array = run.array(value, None, name, [draws, tune, seed])
                found[field] = array[0] if array.ndim > 1 and len(array) == 1 and draws + tune > 1 else array
                break
    if "step_size" not in found and "inverse_metric" not in found and "metric" not in found:
        kind = type(result).__name__
        raise Misconduct(
            f"run: wanted a mapping with step_size (or inverse_metric), got a {kind}", f"run({draws}, {tune}, {seed})"
        )
    return found


def _called(run: Foreign, draws: int, tune: int, seed: int):
    """``run`` by its parameters' names where it has some that say it, else by position."""
    named = parameters(run.function)
    values = {"draws": draws, "tune": tune, "seed": seed, "rng": np.random.default_rng(seed)}
    roles = {name: next((role for role, words in ROLES.items() if name.lower() in words), None) for name in named}
    if named and all(role or named[name].default is not named[name].empty for name, role in roles.items()):
        return run.raw(**{name: values[role] for name, role in roles.items() if role})
    return run.raw(*(draws, tune, seed)[: len(named) or 3])


def _of_result(groups: dict) -> dict[str, np.ndarray]:
    """A raw result of refhmc's, its first chain."""
    found = {}
    for field, group, name in (
        ("step_size", "sample_stats", "step_size"),
        ("acceptance_rate", "sample_stats", "acceptance_rate"),
        ("q", "unconstrained_posterior", "q"),
    ):
        parts = [groups[key][name][0] for key in (f"warmup_{group}", group) if name in groups.get(key, {})]
        if parts:
            found[field] = np.concatenate([to_host(x) for x in parts])
    if "step_size_nom" in groups.get("sample_stats", {}):
        keys = ("warmup_sample_stats", "sample_stats")
        found["step_size"] = np.concatenate([groups[key]["step_size_nom"][0] for key in keys if key in groups])
    return found


def _answers(case: _Case) -> Row:
    if "run" not in case.foreign:
        return not_run("answers", "no run was given")
    case.record = _record(case, case.draws, case.tune, case.seed)
    case.notes.append(f"the run records {', '.join(case.record)}")
    lengths = {name: len(x) for name, x in case.record.items()}
    if any(not np.isfinite(x).all() for x in case.record.values()):
        which = next(name for name, x in case.record.items() if not np.isfinite(x).all())
        return Row("answers", FAIL, basis=f"{which} is not finite", case=f"run({case.draws}, {case.tune}, {case.seed})")
    allowed = {case.draws + case.tune, case.draws}
    wrong = {name: n for name, n in lengths.items() if n not in allowed and name != "q"}
    if wrong:
        why = f"wanted {case.draws + case.tune} iterations (or the {case.draws} draws), got {wrong}"
        return Row(
            "answers", FAIL, basis=why, severity="misconduct", case=f"run({case.draws}, {case.tune}, {case.seed})"
        )
    return Row("answers", PASS, basis=f"{max(lengths.values())} iterations")


def _after(case: _Case, x: np.ndarray) -> np.ndarray:
    return x[-case.draws :]


# ---------------------------------------------------------------------------------------------------------------- frozen


def _frozen(case: _Case) -> Row:
    case.need()
    text = f"run({case.draws}, {case.tune}, {case.seed})"
    for name in ("inverse_metric", "metric"):
        if name in case.record:
            metric = _after(case, case.record[name])
            changes = np.flatnonzero(np.any((metric[1:] != metric[:-1]).reshape(len(metric) - 1, -1), axis=1))
            if len(changes) and changes.tolist() != [0]:
                why = f"{name} changes {len(changes)} times after warm-up, first at draw {changes[0] + 1}"
                return Row("frozen after warm-up", FAIL, len(changes), 0.0, why, WRONG_LAW, text)
            if len(changes):
                case.notes.append(f"{name}: the first draw still has that of warm-up")
    if "step_size" not in case.record:
        return Row("frozen after warm-up", PASS, 0.0, 0.0, "changes of the metric")
    steps = _after(case, case.record["step_size"])
    changes = np.flatnonzero(steps[1:] != steps[:-1])
    if len(changes) == 0:
        return Row("frozen after warm-up", PASS, 0.0, 0.0, f"changes of the step in {case.draws} draws")
    if changes.tolist() == [0]:
        case.notes.append("the first draw still has warm-up's last step")
        return Row("frozen after warm-up", PASS, 1.0, 1.0, "change of the step, at the first draw")
    return _without_memory(case, steps, len(changes), text)


def _without_memory(case: _Case, steps: np.ndarray, changes: int, text: str) -> Row:
    """A step that varies: by jitter or in a cycle, or by adaptation?"""
    other = _after(case, _record(case, case.draws, case.tune, case.seed + 1)["step_size"])
    if len(other) == len(steps) and np.allclose(steps / steps[0], other / other[0], rtol=1e-9):
        case.notes.append("the step runs through a cycle that does not depend on the chain")
        return Row("frozen after warm-up", PASS, basis="the step varies, in the same way for every seed")
    if len(steps) < 50:
        return inconclusive("frozen after warm-up", "the step varies; with 50 draws or more it could be told why")
    few = len(np.unique(steps)) <= max(3, len(steps) // 50) and changes <= len(steps) // 20
    if few:
        why = f"the step changes {changes} times after warm-up and stands still between"
        return Row("frozen after warm-up", FAIL, changes, 0.0, why, WRONG_LAW, text)
    n = len(steps)
    ranks = scipy.stats.rankdata(steps)
    found = {
        "from draw to draw": abs(np.corrcoef(ranks[1:], ranks[:-1])[0, 1]) * math.sqrt(n - 1),
        "with time": abs(np.corrcoef(ranks, np.arange(n))[0, 1]) * math.sqrt(n - 1),
    }
    spread = np.abs(np.log(steps / np.median(steps)))
    if np.ptp(spread) > 0:
        found["of its spread with time"] = abs(
            np.corrcoef(scipy.stats.rankdata(spread), np.arange(n))[0, 1]
        ) * math.sqrt(n - 1)
    if "acceptance_rate" in case.record and len(case.record["acceptance_rate"]) >= n:
        before = _after(case, case.record["acceptance_rate"])[:-1]
        if np.ptp(before) > 0:
            rank = scipy.stats.rankdata(before)
            found["with the acceptance before"] = abs(np.corrcoef(ranks[1:], rank)[0, 1]) * math.sqrt(n - 1)
    what = max(found, key=lambda key: found[key])
    number = found[what]
    if number > NEEDED_Z:
        why = f"z of the step's correlation {what}: it is adapted still"
        return Row("frozen after warm-up", FAIL, number, NEEDED_Z, why, WRONG_LAW, text)
    case.notes.append("the step varies from draw to draw without memory: a jitter")
    if number > 4.0:
        return inconclusive("frozen after warm-up", f"the step varies, z of its correlation {what}", number)
    return Row(
        "frozen after warm-up",
        PASS,
        number,
        NEEDED_Z,
        f"largest z of the step's correlations ({what}); jitter has none",
    )


def _draw_count(case: _Case) -> Row:
    """One draw an iteration, repeated where the proposal was rejected."""
    (q,) = case.need("q")
    text = f"run({case.draws}, {case.tune}, {case.seed})"
    if len(q) not in (case.draws, case.draws + case.tune):
        why = f"{len(q)} draws recorded where {case.draws} (or {case.draws + case.tune}) were asked"
        return Row("draw count", FAIL, len(q), case.draws, why, WRONG_LAW, text)
    after = _after(case, q)
    repeats = int(np.sum(np.all(after[1:] == after[:-1], axis=1))) if len(after) > 1 else 0
    rejected = None
    if "acceptance_rate" in case.record:
        rejected = float(np.sum(1 - np.clip(_after(case, case.record["acceptance_rate"]), 0, 1)))
    case.notes.append(f"{repeats} of {len(after)} draws repeat the one before")
    if repeats == 0 and rejected is not None and rejected > 40:
        # Metropolis's chain repeats about as many as the acceptances say; a tree sampler's seldom does.
        return inconclusive(
            "draw count", f"no draw is a repeat, though the acceptances say {rejected:.0f} rejections: a tree sampler?"
        )
    return Row("draw count", PASS, len(after), case.draws, f"draws, {repeats} of them repeats", relation=">=")


# -------------------------------------------------------------------------------------------------------- dual averaging


def recursion(first: float, acceptances, c: _Constants) -> tuple[np.ndarray, np.ndarray]:
    """(steps, averaged steps) after each of the acceptances, from a start at ``first``."""
    a = np.asarray(acceptances, dtype=float)
    m = np.arange(1, len(a) + 1)
    log_step = math.log(10 * first) - np.sqrt(m) / (c.gamma * (m + c.t0)) * np.cumsum(c.target - a)
    average, averages = 0.0, []
    for k, x in zip(m, log_step, strict=True):
        average += float(k) ** -c.kappa * (x - average)
        averages.append(average)
    with np.errstate(over="ignore"):
        return np.exp(log_step), np.exp(np.array(averages))


def _segments(case: _Case) -> list[tuple[int, int]]:
    """(start, stop) of the parts of warm-up that one recursion each explains, from its first step on."""
    if case.segments is None:
        steps, a = case.whole("step_size", "acceptance_rate")

        def reach(start: int) -> int:
            """Where the recursion from a start stops explaining the steps."""
            predicted, _ = recursion(steps[start], a[start : case.tune], case.constants)
            good = np.abs(np.log(steps[start + 1 : case.tune] / predicted[: case.tune - start - 1])) <= 1e-6
            return case.tune if good.all() else start + 1 + int(np.argmin(good))

        found, start = [], 0
        while start < case.tune:
            stop = reach(start)
            # A restart from the step that was due anyway shows one iteration later only.
            early = stop < case.tune and stop - 1 > start and reach(stop - 1) > stop + 1
            found.append((start, stop - early))
            start = stop - early
        case.segments = found
    return case.segments


def _dual_averaging(case: _Case) -> Row:
    """Is each step of warm-up what the recursion makes of the acceptances before it?"""
    steps, _ = case.whole("step_size", "acceptance_rate")
    if case.tune < 3 * LEAST:
        return not_run("dual averaging", f"warm-up has fewer than {3 * LEAST} iterations")
    if np.all(steps[: case.tune] == steps[0]):
        return not_run("dual averaging", "the step is not adapted")
    parts = _segments(case)
    explained = sum(b - a for a, b in parts if b - a >= LEAST) / case.tune
    starts = [a for a, b in parts if b - a >= LEAST]
    c = case.constants
    basis = f"share of warm-up explained to 1e-6 with gamma {c.gamma:g}, t0 {c.t0:g}, kappa {c.kappa:g}, target {c.target:g}"
    if explained >= 0.9:
        case.notes.append(f"dual averaging starts at the iterations {starts}")
        return Row("dual averaging", PASS, explained, 0.9, basis, INEFFICIENT, relation=">=")
    text = f"run({case.draws}, {case.tune}, {case.seed})"
    return case.mismatch("dual averaging", "dual_averaging", explained, 0.9, basis, text)


def _final_step(case: _Case) -> Row:
    """The step after warm-up: eps_bar of the last part, not the last eps."""
    steps, a = case.whole("step_size", "acceptance_rate")
    parts = _segments(case)
    row = "final step is the averaged one"
    if np.all(steps[: case.tune] == steps[0]):
        return not_run(row, "the step is not adapted")
    start, stop = parts[-1]
    if stop - start < LEAST or stop != case.tune:
        return not_run(row, "the end of warm-up is not this recursion's")
    raw, averaged = recursion(steps[start], a[start : case.tune], case.constants)
    after = float(np.median(_after(case, steps)))
    gaps = {"averaged": abs(math.log(after / averaged[-1])), "last": abs(math.log(after / raw[-1]))}
    before = recursion(steps[start], a[start : case.tune - 1], case.constants)[1]
    if min(gaps["averaged"], abs(math.log(after / before[-1])) if len(before) else math.inf) <= 1e-6:
        return Row(
            row, PASS, gaps["averaged"], 1e-6, "|log| of its ratio to eps_bar; rounding of the recursion", INEFFICIENT
        )
    is_last = min(gaps["last"], abs(math.log(after / steps[case.tune - 1]))) <= 1e-6
    why = (
        "the last step of warm-up is used, not the average"
        if is_last
        else "it is neither the averaged step nor the last"
    )
    text = f"run({case.draws}, {case.tune}, {case.seed})"
    if is_last or "dual_averaging" in case.claims:
        return Row(row, FAIL, gaps["averaged"], 1e-6, why, INEFFICIENT, text)
    return inconclusive(row, why, gaps["averaged"])


def _dual_averaging_function(case: _Case) -> Row:
    f = case.function("dual_averaging")
    rng = np.random.default_rng(case.seed)
    worst, at, least = 0.0, "", math.inf
    for first in (1e-3, 0.5, 20.0):
        for a in (np.clip(rng.normal(0.75, 0.2, 60), 0, 1), np.zeros(12), np.ones(12)):
            target = case.constants.target
            result = f.raw(first, a, target)
            pair = np.ndim(result) != 1 and len(result) == 2 and np.size(result[0]) == len(a)
            parts = result if pair else [result]
            wanted = recursion(first, a, case.constants)
            for part, want, what in zip(parts, wanted, ("the steps", "the averaged steps"), strict=False):
                got = f.array(part, (len(a),), what, [first, a, target])
                gap = float(np.max(np.abs(np.log(got / want)))) if np.all(got > 0) else math.inf
                if not gap <= worst:
                    worst, at = gap, f"{f.name}({first}, {a.tolist()}, {target})  # {what}"
                least = min(least, gap)
    tolerance = 1e-9 + 64 * f.epsilon * 60 * 60
    basis = "|log| of the ratio to the recursion; 60 iterations' rounding"
    return judged("dual averaging function", worst, tolerance, basis, case=at[:400], severity=INEFFICIENT)


# ------------------------------------------------------------------------------------------------- windows and variances


def stan_windows(tune: int) -> list[tuple[int, int]]:
    """(start, stop) of the windows in which Stan learns a metric, for tune >= 20."""
    first, window, last = 75, 25, 50
    if tune < 150:
        first, last = int(0.15 * tune), int(0.1 * tune)
        window = tune - first - last
    end, windows, start = tune - last, [], first
    while start < end:
        stop = start + window
        # Stan gives a window the rest when the one after the next would not fit.
        stop = end if stop == end or stop + 2 * window > end else stop
        windows.append((start, stop))
        start, window = stop, 2 * window
    return windows


def _allowed_windows(tune: int) -> list[list[tuple[int, int]]]:
    """Stan's, and for 151 to 199 iterations Stan's literal short second window."""
    windows = [stan_windows(tune)]
    if 150 < tune < 200:
        windows.append([(75, 100), (100, tune - 50)])
    return windows


def _windows(case: _Case) -> Row:
    if "schedule" in case.foreign:
        return _schedule_function(case)
    metric = _recorded_metric(case)
    changes = np.flatnonzero(np.any((metric[1:] != metric[:-1]).reshape(len(metric) - 1, -1), axis=1)) + 1
    changes = changes[changes <= case.tune]
    if len(changes) == 0:
        return not_run("windows", "the metric does not change in warm-up")
    wanted = [stop for _, stop in stan_windows(case.tune)]
    for late in (0, -1, 1):  # recorded with the iteration that it was learned after, or the next
        if changes.tolist() == [w + late for w in wanted]:
            return Row(
                "windows", PASS, basis=f"a new metric after {wanted} iterations, as Stan's", severity=INEFFICIENT
            )
    why = f"the metric changes after {changes[:8].tolist()} iterations, Stan's after {wanted}"
    return case.mismatch("windows", "windows", float(len(changes)), float(len(wanted)), why)


def _schedule_function(case: _Case) -> Row:
    f = case.function("schedule")
    for tune in LENGTHS:
        phases = f.raw(tune)
        try:
            slow = [
                (int(x[-2]), int(x[-1])) for x in phases if len(x) == 2 or str(x[0]).lower() in ("slow", "1", "true")
            ]
        except Exception as error:
            raise Misconduct(f"{f.name}: wanted phases (kind, start, stop): {error}", f"{f.name}({tune})") from error
        if slow not in _allowed_windows(tune):
            why = f"for {tune}: {slow[:8]}, Stan's {stan_windows(tune)}"
            return Row("windows", FAIL, basis=why, severity=INEFFICIENT, case=f"{f.name}({tune})")
    return Row("windows", PASS, basis=f"Stan's, for {', '.join(map(str, LENGTHS))} iterations", severity=INEFFICIENT)


def _recorded_metric(case: _Case) -> np.ndarray:
    """M^-1 at each iteration."""
    if "inverse_metric" in case.record:
        return case.whole("inverse_metric")[0]
    (metric,) = case.whole("metric")
    return 1 / metric if metric.ndim == 2 else np.linalg.inv(metric)


def shrunk(draws: np.ndarray) -> np.ndarray:
    """Stan's estimate of the covariance of a window, (d, d)."""
    n, d = draws.shape
    return n / (n + 5) * np.cov(draws, rowvar=False).reshape(d, d) + 1e-3 * 5 / (n + 5) * np.eye(d)


def _close(metric: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, in units of the standard deviations; diagonal metrics to the diagonal."""
    scale = np.sqrt(np.diag(wanted))
    if metric.ndim == 1:
        return float(np.max(np.abs(metric / np.diag(wanted) - 1)))
    return float(np.max(np.abs(metric - wanted) / np.outer(scale, scale)))


def _worst_window(case: _Case, q, metric, changes) -> tuple[float, int]:
    """How far the metrics are from the estimates of some window that ends there, and where the worst is."""
    worst, at = 0.0, 0
    for k, change in enumerate(changes):
        starts = {0, *(a for a, _ in stan_windows(case.tune)), *(int(c) for c in changes[:k])}
        options = [(a + da, change + db) for a in starts for da in (-1, 0, 1) for db in (-1, 0, 1)]
        gaps = [_close(metric[change], shrunk(q[a:b])) for a, b in options if a >= 0 and b - a >= 3]
        if min(gaps, default=math.inf) > worst:
            worst, at = min(gaps, default=math.inf), int(change)
    return worst, at


def _variance(case: _Case) -> Row:
    """Each new metric against the draws of some window that ends with it."""
    (q,) = case.whole("q")
    metric = _recorded_metric(case)
    changes = np.flatnonzero(np.any((metric[1:] != metric[:-1]).reshape(len(metric) - 1, -1), axis=1)) + 1
    changes = changes[changes <= case.tune]
    if len(changes) == 0:
        return not_run("variance estimate", "the metric does not change in warm-up")
    worst, at = _worst_window(case, q, metric, changes)
    basis = f"relative difference to n/(n+5) S + 1e-3 5/(n+5) I, worst at iteration {at}"
    if worst <= 1e-8:
        return Row("variance estimate", PASS, worst, 1e-8, basis + "; rounding of the sums", INEFFICIENT)
    return case.mismatch("variance estimate", "variance", worst, 1e-8, basis)


def _variance_function(case: _Case) -> Row:
    """Stan's numbers, also far from the origin and for two draws."""
    f = case.function("variance")
    rng = np.random.default_rng(case.seed)
    worst, at = 0.0, ""
    for n, offset in ((2, 0.0), (3, 0.0), (25, 0.0), (500, 0.0), (100, 1e6)):
        draws = rng.standard_normal((n, 3)) @ np.array([[1.0, 0.4, 0.0], [0.0, 3.0, 0.1], [0.0, 0.0, 0.05]]) + offset
        got = f.array(f.raw(draws), None, "the estimate", [draws])
        if got.shape not in ((3,), (3, 3)):
            raise Misconduct(
                f"{f.name}: wanted (3,) or (3, 3), got {got.shape}", f"{f.name}(draws of shape {draws.shape})"
            )
        centred = draws - draws.mean(axis=0)
        tolerance = 1e-10 + 64 * f.epsilon * (1 + offset) / 0.05
        gap = _close(got, shrunk(centred)) / tolerance
        if not gap <= worst:
            worst, at = gap, f"{f.name}(draws)  # {n} draws about {offset:g}"
    basis = "in units of 1e-10 + 64 units of rounding of the draws; n/(n+5) S + 1e-3 5/(n+5) I"
    return judged("variance function", worst, 1.0, basis, case=at, severity=INEFFICIENT)


def _direction(case: _Case) -> Row:
    """M^-1 goes with the variances of the draws, not with their inverses."""
    row = "metric used as inverse mass"
    case.need()
    if "q" not in case.record or not {"inverse_metric", "metric"} & set(case.record):
        return not_run(row, "the run records no q, or no metric")
    found = _exchanged(case)
    if found is not None:
        return found
    q = _after(case, case.record["q"])
    name = "inverse_metric" if "inverse_metric" in case.record else "metric"
    last = case.record[name][-1]
    diagonal = np.diag(last) if last.ndim == 2 else np.atleast_1d(last)
    variances = q.var(axis=0)
    if name == "metric":
        diagonal = 1 / diagonal
    if len(variances) != len(diagonal) or np.any(variances <= 0) or np.ptp(np.log(variances)) < math.log(9):
        return not_run(row, "needs coordinates of different scales (a factor of 3 or more) in the run's target")
    slope = float(np.polyfit(np.log(variances), np.log(diagonal), 1)[0])
    basis = "slope of log M^-1 over the log variances of the draws; 1 if used rightly, -1 if exchanged"
    text = f"run({case.draws}, {case.tune}, {case.seed})"
    if slope < -0.4:
        return Row(row, FAIL, slope, 0.0, basis, INEFFICIENT, text, ">")
    if slope > 0.4:
        return Row(row, PASS, slope, 0.4, basis, INEFFICIENT, relation=">")
    return inconclusive(row, basis, slope)


def _exchanged(case: _Case) -> Row | None:
    """FAIL if each new M^-1 is the inverse of what its window's draws give."""
    try:
        (q,) = case.whole("q")
        metric = _recorded_metric(case)
    except NotApplicable:
        return None
    changes = np.flatnonzero(np.any((metric[1:] != metric[:-1]).reshape(len(metric) - 1, -1), axis=1)) + 1
    changes = changes[changes <= case.tune]
    if len(changes) == 0 or len(q) != len(metric):
        return None
    inverse = 1 / metric if metric.ndim == 2 else np.linalg.inv(metric)
    gap, _ = _worst_window(case, q, inverse, changes)
    if not gap <= 1e-8:
        return None
    why = "M^-1 is the inverse of the variances of its window's draws"
    text = f"run({case.draws}, {case.tune}, {case.seed})"
    return Row("metric used as inverse mass", FAIL, basis=why, severity=INEFFICIENT, case=text)


def _diagnose(rows: dict[str, Row]) -> list[str]:
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
    if "metric used as inverse mass" in failed:
        said.append("the mass and its inverse are exchanged: right law, slow mixing")
    return said

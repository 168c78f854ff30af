"""Record of one run of an adaptive chain, and the names of its fields and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check import own
from refhmc.check.examination import Examination
from refhmc.check.judging import failed, passed
from refhmc.check.report import CALL_FAILED, Row
from refhmc.check.subject.answers import field
from refhmc.check.subject.foreign import Foreign, Inconclusive, NotApplicable, SubjectError, to_host
from refhmc.check.subject.shapes import GENERATORS, CallShape, parameters

FIELDS = {
    "step_size": ("step_size", "stepsize", "stepsize__", "epsilon", "eps"),
    "inverse_metric": (
        *("inverse_metric", "inv_metric", "inverse_mass_matrix", "inv_mass_matrix", "variance", "covariance"),
    ),
    "metric": ("metric", "mass_matrix", "mass"),
    "final_metric": ("final_metric", "final_inverse_metric", "final_inverse_mass_matrix", "adapted_metric"),
    "acceptance_rate": (
        *("acceptance_rate", "acceptance", "accept_prob", "accept_stat", "accept_stat__", "acceptance_prob"),
    ),
    "q": ("q", "draws", "position", "positions", "samples"),
}
ONCE = ("q", "final_metric")  # need not have a row per iteration
ROLES = {
    "draws": ("draws", "n_draws", "num_draws", "n", "n_samples", "num_samples", "samples", "n_iter", "iterations"),
    "tune": ("tune", "n_tune", "warmup", "n_warmup", "num_warmup", "burn", "burnin", "burn_in", "n_burn", "n_adapt"),
    "seed": ("seed", "random_seed", "random_state"),
    "rng": tuple(GENERATORS),
}


class Constants(NamedTuple):
    target: float
    gamma: float
    t0: float
    kappa: float


class AdaptationExamination(Examination):
    """State shared by the rows of one report."""

    def __init__(
        self, functions: dict[str, Foreign], draws: int, tune: int, seed: int, constants: Constants, claims: set
    ) -> None:
        first = functions.get("run", next(iter(functions.values())))
        super().__init__(first.name, tuple(functions.values()), int(seed))
        self.functions, self.draws, self.tune = functions, int(draws), int(tune)
        self.constants, self.claims = constants, claims
        self.record: dict[str, np.ndarray] = {}
        self.segments: list[tuple[int, int]] | None = None
        self.call = f"run({self.draws}, {self.tune}, {self.seed})"

    def need(self, *names: str) -> list[np.ndarray]:
        if "run" not in self.functions:
            raise NotApplicable("no run was given")
        if not self.record:
            raise NotApplicable("the run did not answer")
        missing = [name for name in names if name not in self.record]
        if missing:
            raise NotApplicable(f"the run records no {', no '.join(missing)}")
        return [self.record[name] for name in names]

    def whole(self, *names: str) -> list[np.ndarray]:
        """Return records that include warm-up."""
        found = self.need(*names)
        if any(len(x) < self.tune + self.draws for x in found):
            raise NotApplicable("the run does not record its warm-up")
        return found

    def function(self, name: str) -> Foreign:
        if name not in self.functions:
            raise NotApplicable(f"{name} was not given")
        return self.functions[name]

    def mismatch(self, claim: str, number: float, tolerance: float, why: str, relation: str = "<=") -> Row:
        """Return a FAIL if the property is claimed; otherwise the difference is INCONCLUSIVE."""
        if claim in self.claims:
            return failed(why, self.call, number, tolerance, relation=relation)
        raise Inconclusive(f"{why}; not claimed, so not judged", number)


def refhmc_run(model: Any, kernel: Any) -> Callable:
    """Return a kernel of refhmc as ``run(draws, tune, seed)``."""

    def run(draws: int, tune: int, seed: int) -> Any:
        options: dict[str, Any] = {"chains": 1, "save_warmup": True, "raw": True, "progressbar": False}
        return own.sample(model, kernel, draws=draws, tune=tune, random_seed=seed, **options)

    return run


def record(test: AdaptationExamination, draws: int, tune: int, seed: int) -> dict[str, np.ndarray]:
    """Return the run's entries by the names above, one row per iteration."""
    run = test.functions["run"]
    result = _called(run, draws, tune, seed)
    if isinstance(result, (list, tuple)) and result and hasattr(result[0], "keys"):  # one mapping per iteration
        result = {key: np.array([to_host(x[key]) for x in result]) for key in result[0]}
    found: dict[str, np.ndarray] = {}
    groups = getattr(result, "groups", None)
    if isinstance(groups, dict):
        return _of_result(groups) | _metric_at_the_end(result)
    for what, names in FIELDS.items():
        value = field(result, names)
        if value is not None:
            array = run.array(value, None, what, [draws, tune, seed])
            found[what] = array[0] if array.ndim > 1 and len(array) == 1 and draws + tune > 1 else array
    if found.keys().isdisjoint(("step_size", "inverse_metric", "metric", "final_metric")):
        kind = type(result).__name__
        why = f"run must return a mapping with step_size (or inverse_metric); it returned a {kind}"
        raise SubjectError(why, f"run({draws}, {tune}, {seed})")
    return found


def _called(run: Foreign, draws: int, tune: int, seed: int) -> Any:
    """Call ``run`` by its parameters' names if they have a known meaning, else by position."""
    named = parameters(run.function)
    values = {"draws": draws, "tune": tune, "seed": seed, "rng": np.random.default_rng(seed)}
    roles = {name: next((role for role, words in ROLES.items() if name.lower() in words), None) for name in named}
    if named and all(role or named[name].default is not named[name].empty for name, role in roles.items()):
        return CallShape((), {role: name for name, role in roles.items() if role}).call(run, **values)
    return CallShape(("draws", "tune", "seed")[: len(named) or 3]).call(run, **values)


def _of_result(groups: dict) -> dict[str, np.ndarray]:
    """Return the record of a raw result of refhmc, of its first chain."""
    found = {}
    for what, group, name in (
        ("step_size", "sample_stats", "step_size"),
        ("acceptance_rate", "sample_stats", "acceptance_rate"),
        ("q", "unconstrained_posterior", "q"),
    ):
        parts = [groups[key][name][0] for key in (f"warmup_{group}", group) if name in groups.get(key, {})]
        if parts:
            found[what] = np.concatenate([to_host(x) for x in parts])
    if "step_size_nom" in groups.get("sample_stats", {}):
        keys = ("warmup_sample_stats", "sample_stats")
        found["step_size"] = np.concatenate([groups[key]["step_size_nom"][0] for key in keys if key in groups])
    return found


def _metric_at_the_end(result: Any) -> dict[str, np.ndarray]:
    """Return the values of the first chain's metric after its last draw, in a row."""
    metric = getattr(next(iter(getattr(result, "adapted", ())), None), "metric", None)
    values = [getattr(metric, name, None) for name in ("variances", "covariance", "directions", "eigenvalues")]
    rows = [np.ravel(to_host(x)) for x in values if x is not None]
    return {"final_metric": np.concatenate(rows)} if rows else {}


def answers_row(test: AdaptationExamination) -> Row:
    """Run the chain once and read its record."""
    if "run" not in test.functions:
        raise NotApplicable("no run was given")
    test.record = record(test, test.draws, test.tune, test.seed)
    test.notes.append(f"the run records {', '.join(test.record)}")
    odd = next((name for name, x in test.record.items() if not np.isfinite(x).all()), None)
    if odd is not None:
        return failed(f"{odd} is not finite", test.call)
    lengths = {name: np.size(x) if name == "final_metric" else len(x) for name, x in test.record.items()}
    wrong = {
        name: n for name, n in lengths.items() if n not in (test.draws + test.tune, test.draws) and name not in ONCE
    }
    if wrong:
        why = f"{test.draws + test.tune} iterations (or the {test.draws} draws) expected, got {wrong}"
        return failed(why, test.call, severity=CALL_FAILED)
    return passed(f"{max(lengths.values())} iterations")


def after_warm_up(test: AdaptationExamination, x: np.ndarray) -> np.ndarray:
    return x[-test.draws :]


def changes_of(x: np.ndarray) -> np.ndarray:
    """Return the rows that differ from the previous row."""
    return np.flatnonzero(np.any((x[1:] != x[:-1]).reshape(max(len(x) - 1, 0), -1), axis=1)) + 1

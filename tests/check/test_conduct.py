"""Any check on a subject that raises, has another dimension, overflows, or is slow."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refhmc.check as rc
from refhmc.check import examination
from refhmc.check.subject import budget, foreign
from tests.helpers.check_cases import (
    CASES,
    Case,
    H,
    batch_gradient,
    batched_kernel,
    full,
    grad,
    leap,
    logp,
    named,
    step,
    tree,
    walk,
    with_momentum,
)
from tests.helpers.sweeps import swept

PLACES = [(case, name, name == next(iter(case.functions))) for case in CASES for name in case.functions]
SLOW = [["metric", "H", "dH"], ["transition", "make"]]
FIRST_OF_CHECK = {case.check: case for case in reversed(CASES)}
DEAR = ("integrator", "orbit", "transition")  # their checks take the longest


def places(by_default: Callable[[Case], bool]) -> Any:
    """Return each function of each case; by default of the first cases, the others in the sweep."""
    cases = [(case, name) if first and by_default(case) else swept(case, name) for case, name, first in PLACES]
    ids = [f"{case.check}-{'-'.join(case.functions)[:30]}-{name}" for case, name, _ in PLACES]
    return pytest.mark.parametrize(("case", "name"), cases, ids=ids)


# All forms except two, which take a second each.
of_each_function = places(lambda case: [case.check, *case.functions] not in SLOW)
of_each_check = places(lambda case: case is FIRST_OF_CHECK[case.check] and case.check != "transition")


def raising(function, name: str, good: int, calls: list):
    """Return ``function``, which raises after ``good`` calls with real numbers."""

    def planted(*arguments, **keywords):
        if not any(np.iscomplexobj(x) for x in arguments):
            calls.append(name)
        if len(calls) > good:
            raise ValueError(f"planted in {name}")
        return function(*arguments, **keywords)

    return named(planted, name, function)


@pytest.mark.parametrize(
    "case",
    [case if case is FIRST_OF_CHECK[case.check] and case.check not in DEAR else swept((case,)) for case in CASES],
    ids=[f"{case.check}-{'-'.join(case.functions)[:30]}" for case in CASES],
)
def test_no_note_without_exceptions(case):
    report = case.run(case.functions)
    assert report.ok, str(report)
    assert " raised " not in str(report), str(report)


@pytest.mark.parametrize("good", [0, pytest.param(5, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.slow)])
@of_each_function
def test_exception_is_reported_with_type_and_message_without_traceback(case, name, good):
    calls: list[str] = []
    report = case.run({**case.functions, name: raising(case.functions[name], name, good, calls)})
    if len(calls) <= good:
        pytest.skip(f"{name} is called {len(calls)} times only")
    text = str(report)
    assert "raised ValueError" in text, text
    assert f"planted in {name}" in text, text
    assert "finite at none" not in text, text
    assert "the check itself" not in text, text
    if good == 0:
        assert not report.ok, text


def test_function_without_finite_points_does_not_pass():
    functions = next(case.functions for case in CASES if "third" in case.functions)
    calls: list[str] = []
    found = raising(logp, "logp", 5, calls)  # after the search for a centre, before any other place is found
    report = rc.model(found, grad, functions["hess"], functions["third"], trace=functions["trace"], dim=2)
    assert report.row("answers").status == "FAIL", str(report)
    for name in ("deterministic", "gradient", "hessian symmetric", "third derivative symmetric", "trace"):
        assert report.row(name).status == "NOT RUN", str(report)


def of_two(function):
    """Return ``function`` with a matrix of two dimensions in it."""

    def fixed(q, *more, **keywords):
        np.eye(2) @ q
        return function(q, *more, **keywords)

    return named(fixed, function.__name__, function)


@pytest.mark.parametrize(
    ("check", "report"),
    [
        swept("integrator", lambda d: rc.integrator(of_two(step), H, dim=d)),
        swept("integrator", lambda d: rc.integrator(step, of_two(H), dim=d)),
        swept("transition", lambda d: rc.transition(of_two(with_momentum), H, dim=d)),
        swept("transition", lambda d: rc.transition(walk, of_two(logp), dim=d)),
        ("randomness", lambda d: rc.randomness(named(lambda rng, q: of_two(lambda x: x)(q), "kernel", walk), dim=d)),
        ("model", lambda d: rc.model(of_two(logp), grad, dim=d)),
        ("metric", lambda d: rc.metric(lambda q: np.eye(2) + 0 * np.outer(np.eye(2) @ q, q), dim=d)),
    ],
)
def test_wrong_dimension_is_named(check, report):
    text = str(report(3))
    assert "raised ValueError at dim = 3" in text, text
    assert "dim = 2" in text.replace("at dim = 2", ""), text
    assert "is dim wrong" not in str(report(2))


def test_energy_that_raises_keeps_rows_without_energy():
    def broken(q, p):
        raise ValueError("no such place")

    report = rc.integrator(step, broken, dim=2)
    assert report.row("gradient of H").status == "FAIL", str(report)
    assert "H raised ValueError at dim = 2" in report.row("gradient of H").basis
    assert report.row("reversible").status == report.row("symplectic").status == "PASS"
    assert report.row("order").status == "NOT RUN"
    assert "dim was not given" in str(rc.integrator(step, broken))


def test_exceptions_at_some_points_are_counted():
    def walled(q, p):
        if abs(q[0]) > 1.5:
            raise ValueError("beyond the wall")
        return H(q, p)

    report = rc.integrator(step, walled, dim=2)
    told = next(note for note in report.notes if "beyond the wall" in note)
    assert "H raised ValueError at dim = 2" in told
    assert "calls" in told
    assert "H(" in told.split("first", 1)[1]


# ---------------------------------------------------------------------------------------------------------- failed calls

# The function of each check that gets q, and a call of the check with another one.
JUDGED = {
    "integrator": (step, lambda f, **more: rc.integrator(f, H, dim=2, **more)),
    "transition": (walk, lambda f, **more: rc.transition(f, logp, dim=2, n_points=3, seconds=2.0, **more)),
    "orbit": (tree, lambda f, **more: rc.orbit(f, leap, logp, 1, eps=0.3, dim=2, most_runs=600, **more)),
    "sampler": (walk, lambda f, **more: rc.sampler(f, "normal-2", draws=500, seconds=2.0, **more)),
    "randomness": (walk, lambda f, **more: rc.randomness(f, dim=2, **more)),
    "batch": (batched_kernel, lambda f, **more: rc.batch(f, dim=2, **more)),
    "minibatch": (batch_gradient, lambda f, **more: rc.minibatch(f, full, 12, 4, dim=2, **more)),
}


def raises(q):
    raise ValueError("no such luck")


def hangs(q):
    time.sleep(30)


def changes(q):
    q += 1.0


def raises_now_and_then(q, calls=itertools.count()):  # noqa: B008
    if next(calls) % 4 == 3:
        raise ValueError("no such luck")


# What a function does with q, whether that is its answer, and the words of the row.
FAILED_CALLS = {
    "raises": (raises, True, "raised ValueError"),
    "raises now and then": (raises_now_and_then, False, "raised ValueError"),
    "not finite": (lambda q: q * np.nan, True, "finite|infinite|shape"),  # a step returns two arrays
    "another shape": (lambda q: np.zeros(7), True, "has shape"),
    "none": (lambda q: None, True, "a NoneType"),
    "words": (lambda q: "here", True, "a str, not"),
    "hangs": (hangs, True, "did not return within 0.3 s"),
    "changes its argument": (changes, False, "changed one of its arguments"),
}


@pytest.mark.parametrize("how", FAILED_CALLS)
@pytest.mark.parametrize("check", JUDGED)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_failed_calls_are_rows_without_traceback(check, how):
    (right, call), (does, is_answer, words) = JUDGED[check], FAILED_CALLS[how]

    def planted(*arguments, **keywords):
        answer = does(inspect.signature(right).bind(*arguments, **keywords).arguments["q"])
        return answer if is_answer else right(*arguments, **keywords)

    began = time.monotonic()
    report = call(named(planted, right.__name__, right), seconds_per_call=0.3)
    assert not report.ok
    assert re.search(words, " ".join([*(row.basis for row in report.failures), *report.notes])), str(report)
    assert "traceback" not in str(report).lower()
    assert json.loads(report.to_json())
    assert time.monotonic() - began < 20
    if is_answer and how != "not finite":
        passed = {row.name for row in report.rows if row.status == "PASS"}
        assert passed <= {"inputs left alone", "leap reversible"}, str(report)
        assert report.severity == "call failed"


def test_step_of_unknown_dimension_that_hangs_is_a_row():
    report = rc.integrator(lambda q, p, eps, n: hangs(q), seconds_per_call=0.3)
    assert report.row("answers").status == "FAIL"


def test_subject_that_is_not_a_function_is_rejected():
    for check in (rc.randomness, rc.batch):
        with pytest.raises(TypeError):
            check(3)


# ----------------------------------------------------------------------------------------------------------- warnings


def overflowing(function, name: str, good: int, factor: float):
    """Return ``function``, whose numbers are multiplied by ``factor`` twice after some calls, with NumPy's warnings."""
    calls = [0]

    def planted(*arguments, **keywords):
        answer = function(*arguments, **keywords)
        calls[0] += 1
        if calls[0] <= good or callable(answer) or isinstance(answer, dict):
            return answer
        parts = [
            np.asarray(x) * np.float64(factor) * factor for x in (answer if isinstance(answer, tuple) else (answer,))
        ]
        return tuple(parts) if isinstance(answer, tuple) else parts[0]

    return named(planted, name, function)


@pytest.mark.parametrize("factor", [1e300, pytest.param(np.nan, marks=pytest.mark.slow)])
@pytest.mark.parametrize("good", [0, pytest.param(30, marks=pytest.mark.slow)])
@of_each_check
def test_checks_emit_no_warnings(case, name, good, factor):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = case.run({**case.functions, name: overflowing(case.functions[name], name, good, factor)})
    assert "Warning" not in str(report), str(report)


# ------------------------------------------------------------------------------------------------------------ budgets


@pytest.fixture
def clock(monkeypatch):
    """Clock for the kit that only ``clock.passes(seconds)`` advances, with the processor time."""
    now = [1000.0]
    fake = types.SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0], process_time=lambda: now[0])
    monkeypatch.setattr(budget, "_children", budget._Children())
    for name, module in list(sys.modules.items()):
        if name.startswith("refhmc.check.") and hasattr(module, "time"):
            monkeypatch.setattr(module, "time", fake)

    def passes(seconds):
        now[0] += seconds

    return types.SimpleNamespace(now=lambda: now[0], passes=passes)


def slow(function, clock, seconds: float):
    """Return ``function``, each call of which takes some seconds of the clock."""

    def timed(*arguments, **keywords):
        clock.passes(seconds)
        return function(*arguments, **keywords)

    return named(timed, function.__name__, function)


BUDGETED = {
    "integrator": lambda s, t: rc.integrator(s(step), H, dim=2, seconds=t, seconds_per_call=None),
    "integrator-H": lambda s, t: rc.integrator(step, s(H), dim=2, seconds=t, seconds_per_call=None),
    "transition": lambda s, t: rc.transition(s(with_momentum), H, dim=2, seconds=t, seconds_per_call=None),
    "transition-walk": lambda s, t: rc.transition(s(walk), logp, dim=2, seconds=t, seconds_per_call=None),
    "transition-H": lambda s, t: rc.transition(with_momentum, s(H), dim=2, seconds=t, seconds_per_call=None),
    "orbit": lambda s, t: rc.orbit(s(tree), leap, logp, 2, eps=0.3, dim=2, seconds=t, seconds_per_call=None),
    "orbit-leap": lambda s, t: rc.orbit(tree, s(leap), s(logp), 2, eps=0.3, dim=2, seconds=t, seconds_per_call=None),
    "sampler": lambda s, t: rc.sampler(s(walk), "normal-2", seconds=t, seconds_per_call=None),
    "sbc": lambda s, t: rc.sbc(
        CASES[-3].functions["prior"],
        s(CASES[-3].functions["simulate"]),
        s(CASES[-3].functions["fit"]),
        seconds=t,
        seconds_per_call=None,
    ),
}


@pytest.mark.parametrize("each", [swept(0.01), 0.4])
@pytest.mark.parametrize("check", BUDGETED)
def test_budget_is_kept_up_to_one_call(clock, check, each):
    began = clock.now()
    report = BUDGETED[check](lambda f: slow(f, clock, each), 4.0)
    assert clock.now() - began <= 4.0 + 2 * each, str(report)
    left = [row for row in report.rows if "time limit of" in row.basis]
    assert all(row.status in ("INCONCLUSIVE", "NOT RUN") for row in left)
    assert not report.failures, str(report)


@pytest.mark.sweep
def test_unfinished_rows_name_the_time_limit(clock):
    report = rc.integrator(slow(step, clock, 1.0), H, dim=2, seconds=40.0, seconds_per_call=None)
    unfinished = {row.status: row.basis for row in report.rows if "time limit of 40 s" in row.basis}
    assert unfinished, str(report)
    whole = rc.integrator(slow(step, clock, 1.0), H, dim=2, seconds=None, seconds_per_call=None)
    assert "time limit" not in str(whole)
    assert not whole.inconclusive, str(whole)


@pytest.mark.parametrize("seconds", [0, -1.0, np.nan])
def test_invalid_budget_is_rejected(seconds):
    for call in (
        lambda: rc.integrator(step, H, dim=2, seconds=seconds),
        lambda: rc.transition(with_momentum, H, dim=2, seconds=seconds),
        lambda: rc.orbit(tree, leap, logp, 1, eps=0.3, dim=2, seconds=seconds),
    ):
        with pytest.raises(ValueError, match="seconds"):
            call()


def test_sampler_without_any_limit_is_rejected():
    with pytest.raises(ValueError, match="draws"):
        rc.sampler(walk, "normal-2", seconds=None)


def test_call_beyond_the_budget_is_abandoned():
    free = threading.Event()

    def stuck(q, p):
        free.wait(30.0)
        return H(q, p)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(examination, "SECONDS_TO_BEGIN", 0.1)
        patched.setattr(foreign, "SECONDS_OF_GRACE", 0.1)
        report = rc.integrator(step, stuck, dim=2, seconds=0.1)
    free.set()
    assert report.row("answers").status == "INCONCLUSIVE", str(report)
    assert "did not return" not in str(report)

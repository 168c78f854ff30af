"""``Report.explain``: its parts, and the causes that it names for common mistakes and for no other subject."""

from __future__ import annotations

import functools
import importlib
import math
import re

import numpy as np
import pytest

import refhmc.check as rc
from refhmc.check.explanation import BOOK, CAUSES, CHECKS, CONDITIONS, OTHERS
from refhmc.check.mutants import integrators, metrics, transitions
from tests.helpers.places import ROOT

WORDS = {  # of the sentence about each cause
    "swapped": "positions and momenta are exchanged",
    "ignored uniforms": "the uniform is ignored",
    "greedy": "greedy acceptance",
    "missing exp": "the exponential is missing",
    "velocity p": "velocity of a Laplace momentum is p",
    "averaged copies": "copies of the state are averaged",
    "log det": "log det",
}


def quartic(q, p):
    return 0.5 * q @ q + 0.25 * np.sum(q**4) + 0.5 * p @ p


def leapfrog(q, p, eps, n):
    for _ in range(n):
        p = p - 0.5 * eps * (q + q**3)
        q = q + eps * p
        p = p - 0.5 * eps * (q + q**3)
    return q, p


def returns_p_q(q, p, eps, n):
    return leapfrog(q, p, eps, n)[::-1]


def takes_p_q(p, q, eps, n):
    return leapfrog(q, p, eps, n)


def takes_and_returns_p_q(p, q, eps, n):
    return leapfrog(q, p, eps, n)[::-1]


def laplace(velocity):
    """Leapfrog with H = q^2 / 2 + |p|."""

    def step(q, p, eps, n):
        for _ in range(n):
            p = p - 0.5 * eps * q
            q = q + eps * velocity(p)
            p = p - 0.5 * eps * q
        return q, p

    return step


def laplace_energy(q, p):
    return 0.5 * q @ q + np.sum(np.abs(p))


def curved(q, p):
    """H with G = 1 + q^2 and the quartic potential q^4 / 4."""
    G = 1 + q**2
    return np.sum(q**4 / 4 + 0.5 * p**2 / G + 0.5 * np.log(G))


def slopes(q, p):
    G = 1 + q**2
    return q**3 - p**2 * q / G**2 + q / G, p / G


def copies(q, p, eps, omega=10.0):
    """One step of Tao's method from two equal copies, which are returned."""
    x, y = q, p
    c, s = np.cos(2 * omega * eps), np.sin(2 * omega * eps)
    for turn in (True, False):
        if turn:
            a, b = slopes(q, y)
            p, x = p - eps / 2 * a, x + eps / 2 * b
        a, b = slopes(x, p)
        q, y = q + eps / 2 * b, y - eps / 2 * a
        if turn:
            u, v, a, b = q + x, p + y, q - x, p - y
            a, b = c * a + s * b, c * b - s * a
            q, x, p, y = 0.5 * (u + a), 0.5 * (u - a), 0.5 * (v + b), 0.5 * (v - b)
        else:
            a, b = slopes(q, y)
            p, x = p - eps / 2 * a, x + eps / 2 * b
    return q, p, x, y


def averaged(q, p, eps):
    q, p, x, y = copies(q, p, eps)
    return 0.5 * (q + x), 0.5 * (p + y)


def implicit_midpoint(q, p, eps):
    a, b = q, p
    for _ in range(60):
        along_q, along_p = slopes(a, b)
        a, b = q + eps / 2 * along_p, p - eps / 2 * along_q
    return 2 * a - q, 2 * b - p


def ruled(accept, eps=0.6):
    """HMC whose decision is ``accept(u, r)`` with r = -dH."""

    def kernel(draws, q):
        p = draws.normal(2)
        new_q, new_p = transitions.leapfrog(q, p, eps, 3)
        r = transitions.energy(q, p) - transitions.energy(new_q, new_p)
        return new_q if accept(draws.uniform(), r) else q

    return functools.partial(rc.transition, kernel, transitions.energy, dim=2, seconds=None)


def of_step(step, H=quartic, **more):
    return functools.partial(rc.integrator, step, H=H, dim=2, **more)


def planted(module, name, which="wrong"):
    (pair,) = (pair for pair in module.PAIRS if pair.id == name)
    return functools.partial(getattr(pair, which), 1)


def leap(log_det):
    """q' = exp(p) q and p' = -p, which is its own inverse in the sense of ``check.leap``."""
    return functools.partial(rc.leap, lambda q, p: (q * np.exp(p), p, log_det(p)), dim=2, returns=("q", "p", "log_det"))


CURVED = {"H": curved, "eps": 0.05, "tolerance": 0.0}
WRONG = {  # the report's check, and its cause
    "returns (p, q)": (of_step(returns_p_q), "swapped"),
    "takes (p, q)": (of_step(takes_p_q), "swapped"),
    "takes and returns (p, q)": (of_step(takes_and_returns_p_q), "swapped"),
    "velocity p": (of_step(laplace(lambda p: p), laplace_energy), "velocity p"),
    "averaged copies": (of_step(averaged, **CURVED), "averaged copies"),
    "energy without log det": (planted(metrics, "no-volume"), "log det"),
    "force without log det": (planted(integrators, "integrator-log-det"), "log det"),
    "leap without log det": (leap(lambda p: 0.0), "log det"),
    "greedy": (ruled(lambda u, r: r > 0), "greedy"),
    "missing exp": (ruled(lambda u, r: u < r), "missing exp"),
    "always accepts": (ruled(lambda u, r: True, eps=0.45), "ignored uniforms"),
    "threshold": (ruled(lambda u, r: r > math.log(0.5), eps=0.45), "ignored uniforms"),
}
RIGHT = {
    "leapfrog": of_step(leapfrog),
    "velocity sign p": of_step(laplace(np.sign), laplace_energy),
    "implicit midpoint": of_step(implicit_midpoint, H=curved, eps=0.05, tolerance=1e-14),
    "metric": planted(metrics, "no-volume", "right"),
    "force": planted(integrators, "integrator-log-det", "right"),
    "leap": leap(np.sum),
    "Metropolis": ruled(lambda u, r: math.log(u) < r),
}
SLOW = {
    "missing exp",
    "always accepts",
    "threshold",
    "Metropolis",
    "velocity sign p",
    "implicit midpoint",
}  # more than about 5 s


def cases(subjects):
    return [pytest.param(name, marks=[pytest.mark.sweep] if name in SLOW else []) for name in subjects]


@pytest.mark.parametrize("name", cases(WRONG))
def test_the_cause_is_named_and_no_other(name):
    run, cause = WRONG[name]
    report = run()
    text = report.explain()
    assert report.status == "FAIL"
    assert WORDS[cause] in report.diagnosis[0], str(report)
    assert f"Likely cause: {report.diagnosis[0]}." in text
    others = [key for key, words in WORDS.items() if key != cause and words in " ".join(report.diagnosis)]
    assert not others


@pytest.mark.parametrize("name", cases(RIGHT))
def test_no_cause_is_named_for_correct_code(name):
    report = RIGHT[name]()
    assert not report.failures, str(report)
    assert not report.diagnosis
    assert "Likely cause" not in report.explain()


def test_an_explanation_has_five_lines():
    def half_drift(q, p, eps, n):
        for _ in range(n):
            p = p - eps / 2 * q
            q = q + eps / 2 * p
            p = p - eps / 2 * q
        return q, p

    report = rc.integrator(half_drift, lambda q, p: (q @ q + p @ p) / 2, dim=1)
    verdict, wrong, case, cause, read = report.explain().splitlines()
    assert verdict == report.verdict == "FAIL (not the claimed method; the draws would still be right)."
    assert wrong.startswith("Failed condition: order: the error against the true flow of H must fall")
    row = report.row("order")
    assert case.startswith(
        f"Smallest case: {row.case}; expected a value >= {row.tolerance:.3g}, obtained {row.number:.3g}"
    )
    assert cause == "Likely cause: the drift uses eps/2 instead of eps."
    assert read.startswith("Read: docs/book/leapfrog.md#")


def test_a_call_that_fails_is_described_without_blame():
    def changes(q):
        q += 1.0
        return -q

    report = rc.model(lambda q: -0.5 * q @ q, changes, dim=2)
    assert "inputs left alone: the call changed one of its arguments" in report.explain()
    raising = rc.model(lambda q: -0.5 * q @ q, lambda q: 1 / 0, dim=2)
    assert raising.verdict.startswith("FAIL (a call did not work): answers: ")
    assert "ZeroDivisionError" in raising.verdict
    assert "expected an answer that can be judged, obtained" in raising.explain()


def test_an_undecided_report_names_its_open_rows():
    report = rc.integrator(leapfrog, dim=2)
    assert report.explain() == "\n".join(
        [report.verdict, *(f"Undecided: {row.name}: {row.basis}." for row in report.inconclusive if not report.ok)]
    )


def anchors(page):
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / "book" / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("section", sorted({*(section for _, section in CAUSES), *CHECKS.values(), OTHERS}))
def test_sections_of_the_book_exist(section):
    page, _, anchor = section.partition("#")
    assert BOOK == "docs/book/"
    assert anchor in anchors(page)


def test_conditions_and_causes_occur_in_the_checks():
    kit = ROOT / "refhmc" / "check"
    text = "".join(path.read_text(encoding="utf-8") for path in kit.rglob("*.py") if path.name != "explanation.py")
    assert [name for name in CONDITIONS if f'"{name}"' not in text] == []
    joined = re.sub(r'"\s*\n\s*f?"', "", text)
    assert [words for words, _ in CAUSES if words not in joined] == []


@pytest.mark.sweep
@pytest.mark.parametrize("area", ["integrators", "leaps", "metrics", "models", "orbits"])
def test_planted_bugs_of_other_kinds_do_not_get_these_causes(area):
    """None of them is of these kinds, except those about a log determinant."""
    for pair in importlib.import_module(f"refhmc.check.mutants.{area}").PAIRS:
        said = " ".join(pair.wrong(1).diagnosis)
        assert [key for key, words in WORDS.items() if key != "log det" and words in said] == [], pair.id

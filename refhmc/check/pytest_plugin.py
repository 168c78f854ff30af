"""Pytest plugin of the conformance kit: a marker, a fixture, parametrized checks, and one false-alarm rate per session.

    @pytest.mark.refhmc(kind="integrator", H=energy, dim=3)
    def test_my_step():
        return my_step                      # or yield several; or a dict of arguments; or a Report

    def test_my_kernel(refhmc_check):
        refhmc_check.sampler(my_kernel, target="funnel")

    @parametrize_with_checks([case("integrator", my_step, H=energy), case("sampler", my_kernel, target="funnel")],
                             expected_failed_checks={"elapsed time": "half a step, see issue 12"})
    def test_conformance(subject, check):
        check(subject)

**Budget.** ``--refhmc-alpha`` bounds the chance that a session on correct code fails any of its statistical checks. Their
number is not known in advance, so the k-th check gets the share 6 / (pi k)^2; these shares sum to one. The cost is small, since
the log of the required evidence only grows by 2 log k. With pytest-xdist each of W workers has 1/W of the budget, and there is
no summary at the end. A check that is given an ``alpha`` by its test is not part of the budget.

**Ledger.** With ``--refhmc-ledger FILE``, half of alpha is for this session, and half for the accumulated evidence of all
sessions (``ledger.py``). Each session uses fresh seeds; ``--refhmc-seed`` repeats them. The evidence of a test is stored under
its id and the version of its code. The test fails when the product of its e-values reaches the bound. The version is
``--refhmc-version``, or a hash of the source files of the examined functions. A new version starts again with its own budget.

**Strictness.** An INCONCLUSIVE report fails its test too. With ``--refhmc-strict``, so does a single INCONCLUSIVE row.

Every pytest session imports this module if refhmc is installed, so it only imports pytest until a check runs.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from refhmc.check import CHECKS
from refhmc.check.report import Report

DEFAULT_ALPHA = 1e-6
DEFAULT_SEED = 20261121


class Budget:
    """Budget of a session: alpha, the seed of its tests, the ledger, and the number of statistical checks so far.

    With ``strict``, a test fails if any row of its report is INCONCLUSIVE.
    """

    def __init__(
        self,
        alpha: float,
        seed: int,
        ledger: str | None = None,
        version: str | None = None,
        workers: int = 1,
        strict: bool = False,
    ) -> None:
        self.seed, self.version, self.strict, self.spent, self.count = seed, version, strict, 0.0, 0
        self.alpha = (alpha / 2 if ledger else alpha) / workers
        self.lines: list[str] = []
        self.ledger = None
        if ledger:
            from refhmc.check.ledger import Ledger

            self.ledger = Ledger(ledger, alpha / 2)

    def next_alpha(self) -> float:
        """Return the share of alpha for the next statistical check."""
        self.count += 1
        share = self.alpha * 6.0 / (math.pi * self.count) ** 2
        self.spent += share
        return share

    def seed_of(self, test: str) -> int:
        """Return the seed of a test, which only depends on the session's seed and the test's id."""
        digest = hashlib.sha256(f"{self.seed} {test}".encode()).digest()
        return int.from_bytes(digest[:4], "little")


class Case(NamedTuple):
    """A check to run; ``kind`` is its name in :mod:`refhmc.check`."""

    kind: str
    arguments: tuple = ()
    options: dict = {}  # noqa: RUF012  (never changed)

    def __str__(self) -> str:
        return f"{self.kind}-{'-'.join(_name_of(a) for a in self.arguments[:1])}".rstrip("-")


def case(kind: str, *arguments: Any, **options: Any) -> Case:
    """Return the check ``refhmc.check.<kind>(*arguments, **options)`` to be run as a test.

    Parameters
    ----------
    kind : str
        Name of a check, such as "integrator".
    *arguments
        Positional arguments of the check.
    **options
        Keyword arguments of the check.

    Returns
    -------
    Case
        The check and its arguments.

    Raises
    ------
    ValueError
        If there is no check of that name.
    """
    return Case(_kind(kind), arguments, options)


def parametrize_with_checks(cases: Any, *, expected_failed_checks: Any = None) -> Any:
    """Return a decorator that makes one test item per case.

    The test takes ``subject`` and ``check``, and calls ``check(subject)``.

    Parameters
    ----------
    cases : iterable of Case or tuple
        Checks to run.
    expected_failed_checks : dict or callable, optional
        Reasons by row name, for all cases, or a function of the case that returns such a dict. An item whose failing rows are
        all expected is an xfail with those reasons. Any other failing row fails it.

    Returns
    -------
    pytest.MarkDecorator
        The decorator.
    """
    items = []
    for one in cases:
        one = one if isinstance(one, Case) else case(*one)
        expected = expected_failed_checks(one) if callable(expected_failed_checks) else expected_failed_checks
        items.append(pytest.param(one, _Check(dict(expected or {})), id=str(one)))
    return pytest.mark.parametrize(("subject", "check"), items)


class _Check:
    """The argument ``check`` of a test with :func:`parametrize_with_checks`; the plugin adds the session's examiner."""

    def __init__(self, expected: dict, examiner: Examiner | None = None) -> None:
        self.expected = expected
        self.examiner = examiner

    def __call__(self, subject: Case) -> Report:
        """Run the case; xfail, fail, or return its report."""
        examiner = self.examiner or Examiner(Budget(DEFAULT_ALPHA, DEFAULT_SEED), str(subject))
        report = examiner.examine(subject)
        failed = [row.name for row in report.failures]
        if failed and all(name in self.expected for name in failed):
            pytest.xfail("; ".join(f"{name}: {self.expected[name]}" for name in failed))
        report.assert_ok(examiner.budget.strict)
        return report

    def __repr__(self) -> str:
        return "check"


class Examiner:
    """Value of the fixture ``refhmc_check``: every check as a method that runs it and asserts that it passes."""

    def __init__(self, budget: Budget, test: str) -> None:
        self.budget, self.test = budget, test
        self.checks = 0

    def __getattr__(self, kind: str) -> Callable[..., Report]:
        if kind not in CHECKS:
            raise AttributeError(f"refhmc_check has no check {kind!r}. Checks: {', '.join(CHECKS)}.")

        def run(*arguments: Any, **options: Any) -> Report:
            report = self.examine(Case(kind, arguments, options))
            report.assert_ok(self.budget.strict)
            return report

        return run

    def examine(self, wanted: Case) -> Report:
        """Return the report of a case with alpha and seed from the session's budget; fail if the ledger's bound is reached."""
        import refhmc.check

        function = getattr(refhmc.check, _kind(wanted.kind))
        known = inspect.signature(function).parameters
        options = dict(wanted.options)
        self.checks += 1
        key = self.test if self.checks == 1 else f"{self.test} ({self.checks})"
        if "seed" in known:
            options.setdefault("seed", self.budget.seed_of(key))
        statistical = "alpha" in known and "alpha" not in options
        if statistical:
            options["alpha"] = self.budget.next_alpha()
        report = function(*wanted.arguments, **options)
        if statistical and self.budget.ledger is not None:
            self._enter(report, key, wanted)
        return report

    def _enter(self, report: Report, key: str, wanted: Case) -> None:
        log_e = log_e_of(report)
        if log_e is None:
            return
        version = self.budget.version or version_of(wanted)
        assert self.budget.ledger is not None
        entry = self.budget.ledger.add(key, version, report.seed, log_e)
        self.budget.lines.append(
            f"{key}: e = {_power(entry.log_e)} in this session, {_power(entry.log_product)} over all sessions "
            f"(fails at {_power(-math.log(entry.alpha))})"
        )
        if entry.crossed and not report.failures:
            pytest.fail(f"The evidence of all sessions is e = {_power(entry.log_product)}.\n{report}", pytrace=False)


def log_e_of(report: Report) -> float | None:
    """Return the logarithm of a report's e-value for the ledger, or None if it has none.

    If a report only has the largest wealth M, which is not an e-value since its mean under a correct kernel may exceed 1,
    it is converted by (1 - p + p log p) / (p log^2 p), p = 1/M (Shafer, Shen, Vereshchagin and Vovk 2011).
    """
    if isinstance(report.settings.get("log_e"), (int, float)):
        return float(report.settings["log_e"])
    for row in report.rows:
        if "e-value" in row.name and row.number is not None:
            log_m = math.log(max(row.number, 1.0))
            if log_m < 0.02:  # the limit of the formula, 1/2, where it loses digits
                return math.log(0.5)
            p = math.exp(-log_m)
            return math.log(1.0 - p - p * log_m) + log_m - 2.0 * math.log(log_m)
    return None


def version_of(wanted: Case) -> str:
    """Return a hash of the source files of the functions among a case's arguments, or of their names without source."""
    values = [*wanted.arguments, *wanted.options.values()]
    digest = hashlib.sha256(wanted.kind.encode())
    for value in values:
        value = inspect.unwrap(value.func) if isinstance(value, functools.partial) else value
        if callable(value) or hasattr(value, "step"):
            digest.update(_source(value))
    return digest.hexdigest()[:16]


def _source(value: Any) -> bytes:
    kind = value if inspect.isroutine(value) or inspect.isclass(value) else type(value)
    try:
        path = inspect.getsourcefile(inspect.unwrap(kind))
        with open(str(path), "rb") as file:
            return file.read()
    except (TypeError, OSError):
        return _name_of(value).encode()


def _name_of(value: Any) -> str:
    return str(getattr(value, "__name__", None) or getattr(value, "name", None) or type(value).__name__)


def _kind(name: str) -> str:
    if name not in CHECKS:
        raise ValueError(f"kind must be one of {', '.join(CHECKS)}; got {name!r}.")
    return name


def _power(log_value: float) -> str:
    return f"{math.exp(log_value):.3g}" if abs(log_value) < 20 else f"10^{log_value / math.log(10):.1f}"


# -------------------------------------------------------------------------------------------------------- pytest's hooks

_BUDGET = pytest.StashKey[Budget]()


def pytest_addoption(parser: Any) -> None:
    """Add the options of the plugin (hook of pytest)."""
    group = parser.getgroup("refhmc", "refhmc's conformance checks")
    group.addoption(
        "--refhmc-alpha",
        type=_alpha,
        default=DEFAULT_ALPHA,
        metavar="P",
        help="chance that this session fails a statistical check on correct code (default: 1e-6)",
    )
    group.addoption("--refhmc-ledger", metavar="FILE", help="accumulate the evidence of all sessions in this file")
    group.addoption(
        "--refhmc-version", metavar="TEXT", help="version of the tested code (default: a hash of its source)"
    )
    group.addoption("--refhmc-strict", action="store_true", help="fail if any row of a report is INCONCLUSIVE")
    group.addoption(
        "--refhmc-seed", type=int, metavar="N", help="seed of the checks (default: constant, or fresh with a ledger)"
    )


def _alpha(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise ValueError(text)
    return value


def pytest_configure(config: Any) -> None:
    config.addinivalue_line(
        "markers",
        "refhmc(kind, **options): run refhmc.check.<kind> on what the test returns or yields (refhmc's conformance kit)",
    )
    ledger, seed = config.getoption("--refhmc-ledger"), config.getoption("--refhmc-seed")
    worker = getattr(config, "workerinput", {})  # of pytest-xdist
    if seed is None:
        seed = worker.get("refhmc_seed", DEFAULT_SEED if ledger is None else int.from_bytes(os.urandom(4), "little"))
    workers = int(worker.get("workercount", 1))
    version = config.getoption("--refhmc-version")
    strict = config.getoption("--refhmc-strict")
    config.stash[_BUDGET] = Budget(config.getoption("--refhmc-alpha"), seed, ledger, version, workers, strict)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["refhmc_seed"] = node.config.stash[_BUDGET].seed


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    budget = config.stash[_BUDGET]
    if budget.count:
        terminalreporter.section("refhmc", sep="-")
        terminalreporter.line(
            f"{budget.count} statistical checks, seed {budget.seed}: false-alarm rate {budget.spent:.2g} of "
            f"{budget.alpha:.2g}"
        )
        for line in budget.lines:
            terminalreporter.line(line)


@pytest.fixture
def refhmc_check(request: Any) -> Examiner:
    """Return the conformance kit with the session's budget, for calls such as ``refhmc_check.integrator(step, dim=3)``."""
    return Examiner(request.config.stash[_BUDGET], request.node.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> Any:
    """Collect a marked test that is a generator as a plain function, since pytest no longer collects generators."""
    if inspect.isgeneratorfunction(obj) and any(mark.name == "refhmc" for mark in getattr(obj, "pytestmark", [])):

        @functools.wraps(obj)
        def plain(*arguments: Any, **keywords: Any) -> list:
            return list(obj(*arguments, **keywords))

        setattr(collector.obj, name, plain)
        return collector.ihook.pytest_pycollect_makeitem(collector=collector, name=name, obj=plain)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> Any:
    """Give ``check`` the session's budget, and run the check on the result of a marked test."""
    budget = pyfuncitem.config.stash[_BUDGET]
    for name, value in pyfuncitem.funcargs.items():
        if isinstance(value, _Check):
            pyfuncitem.funcargs[name] = _Check(value.expected, Examiner(budget, pyfuncitem.nodeid))
    mark = pyfuncitem.get_closest_marker("refhmc")
    if mark is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    found = pyfuncitem.obj(**arguments)
    examiner = Examiner(budget, pyfuncitem.nodeid)
    reports = [_report(examiner, mark, subject) for subject in (found if isinstance(found, list) else [found])]
    if not reports:
        pytest.fail("A test marked refhmc must return or yield the object to examine.", pytrace=False)
    wrong = [str(report) for report in reports if not report.ok or (budget.strict and report.inconclusive)]
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)
    return True


def _report(examiner: Examiner, mark: Any, subject: Any) -> Any:
    """Return the report on the result of a marked test: a Report, a Case, a dict or tuple of arguments, or the first one."""
    if subject is None:
        pytest.fail("A test marked refhmc must return or yield the object to examine.", pytrace=False)
    if hasattr(subject, "rows") and hasattr(subject, "verdict"):
        return subject
    if isinstance(subject, Case):
        return examiner.examine(subject)
    options = {key: value for key, value in mark.kwargs.items() if key != "kind"}
    kind = mark.args[0] if mark.args else mark.kwargs.get("kind")
    if kind is None:
        pytest.fail('The marker refhmc must name a check, as in pytest.mark.refhmc(kind="integrator").', pytrace=False)
    if isinstance(subject, dict):
        return examiner.examine(Case(_kind(kind), (), {**options, **subject}))
    arguments = tuple(subject) if type(subject) is tuple else (subject,)
    return examiner.examine(Case(_kind(kind), arguments, options))

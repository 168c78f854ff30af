"""Pytest plugin of the conformance kit: marker, fixture, parametrized checks, the session's budget, the ledger."""

from __future__ import annotations

import importlib
import json
import math
import multiprocessing
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import refhmc.check
from refhmc.check.ledger import Ledger, share
from refhmc.check.pytest_plugin import Budget, case, log_e_of, version_of
from refhmc.check.report import FAIL, INEFFICIENT, PASS, Report, Row, inconclusive, not_run

pytest_plugins = ["pytester"]

# An in-process pytest run removes the modules that it imported first, and compiled modules cannot be imported twice.
for module in ("numpy.fft", "scipy.integrate", "scipy.stats", "refhmc.compile.compiled", "refhmc.sampling.sample"):
    importlib.import_module(module)
for found in pkgutil.walk_packages(refhmc.check.__path__, "refhmc.check."):
    importlib.import_module(found.name)

SEEN: list[dict] = []


def pretend_integrator(step, H=None, *, dim=None, seed=0):
    """Check whose report is defined by its subject: ``step`` is the tuple of failing rows."""
    SEEN.append({"seed": seed, "dim": dim})
    failing = step() if callable(step) else step
    rows = [
        Row(name, FAIL if name in failing else PASS, 1.0, 0.5, severity=INEFFICIENT)
        for name in ("order", "elapsed time", "reversible")
    ]
    rows += [inconclusive("solver failure", "it is dimension seven")] if dim == 7 else []
    return Report("integrator", "pretended", {}, seed, tuple(rows))


def pretend_sampler(kernel, target="funnel", alpha=1e-6, seconds=30.0, *, seed=0):
    """Statistical check that finds the e-value that its subject names."""
    SEEN.append({"seed": seed, "alpha": alpha, "e": kernel})
    row = Row("stationarity (e-value)", PASS if kernel < 1 / alpha else FAIL, kernel, 1 / alpha, relation="<")
    return Report("sampler", "pretended", {"log_e": math.log(kernel)}, seed, (row,))


@pytest.fixture
def session(pytester, monkeypatch):
    """Run a test file with the plugin and simulated checks; ``session.seen`` has their arguments."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(refhmc.check, "integrator", pretend_integrator, raising=False)
    monkeypatch.setattr(refhmc.check, "sampler", pretend_sampler, raising=False)

    def run(text: str, *options: str):
        SEEN.clear()
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess(
            "-p", "refhmc.check.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", *options
        )

    return run


def test_a_marked_test_returns_or_yields_what_is_examined(session):
    result = session(
        """
        import pytest

        @pytest.mark.refhmc(kind="integrator", dim=5)
        def test_right():
            return lambda: ()

        @pytest.mark.refhmc("integrator")
        def test_wrong(request):
            return {"step": ("order",), "dim": 2}

        @pytest.mark.refhmc(kind="integrator")
        def test_several():
            yield lambda: ()
            yield ("reversible",), None

        class TestIn:
            @pytest.mark.refhmc(kind="integrator")
            @pytest.mark.parametrize("dim", [1, 2])
            def test_a_class(self, dim):
                yield {"step": (), "dim": dim}

        @pytest.mark.refhmc(kind="integrator")
        def test_nothing():
            pass

        @pytest.mark.refhmc(kind="telepathy")
        def test_unknown():
            return 1

        def test_unmarked():
            pass
        """
    )
    result.assert_outcomes(passed=4, failed=4)
    result.stdout.fnmatch_lines(
        ["*order*FAIL*", "*VERDICT: FAIL (not the claimed method; the draws would still be right)*"]
    )
    result.stdout.fnmatch_lines(["*must return or yield *", "*kind must be one of *telepathy*"])
    assert [found["dim"] for found in SEEN] == [5, 2, None, None, 1, 2]
    assert "Traceback" not in result.stdout.str().partition("test_unknown")[0]


def test_inconclusive_row_fails_a_strict_test(session):
    text = """
        import pytest
        from refhmc.check.pytest_plugin import case, parametrize_with_checks

        @pytest.mark.refhmc(kind="integrator")
        def test_marked():
            return {"step": (), "dim": 7}

        def test_fixture(refhmc_check):
            refhmc_check.integrator((), dim=7)

        @parametrize_with_checks([case("integrator", (), dim=7)])
        def test_items(subject, check):
            check(subject)
    """
    session(text).assert_outcomes(passed=3)
    result = session(text, "--refhmc-strict")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*Without an answer: solver failure*"])


def test_the_fixture_asserts_and_shares_the_budget_among_the_statistical_checks(session):
    text = """
        def test_one(refhmc_check):
            report = refhmc_check.sampler(1.0)
            assert report.ok
            refhmc_check.integrator(())
            refhmc_check.sampler(1.0)

        def test_two(refhmc_check):
            refhmc_check.sampler(1.0, alpha=0.5)
            refhmc_check.sampler(1.0, seed=3)

        def test_three(refhmc_check):
            refhmc_check.sampler(1e9)
    """
    result = session(text, "--refhmc-alpha", "1e-3")
    result.assert_outcomes(passed=2, failed=1)
    given = [found["alpha"] for found in SEEN if "alpha" in found]
    assert given == pytest.approx([1e-3 * share(1), 1e-3 * share(2), 0.5, 1e-3 * share(3), 1e-3 * share(4)])
    assert sum(share(k) for k in range(1, 100_000)) < 1
    seeds = [found["seed"] for found in SEEN]
    assert seeds[4] == 3
    assert len(set(seeds)) == len(seeds)
    result.stdout.fnmatch_lines(["4 statistical checks, seed 20261121: *"])
    session(text, "--refhmc-alpha", "1e-3")
    assert [found["seed"] for found in SEEN] == seeds  # the same in every session, unless told otherwise
    session(text, "--refhmc-seed", "5")
    assert [found["seed"] for found in SEEN] != seeds


def test_each_check_is_an_item_and_expected_failures_are_xfails(session):
    result = session(
        """
        from refhmc.check.pytest_plugin import case, parametrize_with_checks

        @parametrize_with_checks(
            [case("integrator", ()), case("integrator", ("order",)), case("integrator", ("order", "reversible")),
             case("sampler", 1.0)],
            expected_failed_checks={"order": "issue 12"},
        )
        def test_conformance(subject, check):
            check(subject)
        """,
        "-rx",
    )
    result.assert_outcomes(passed=2, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["*order: issue 12*"])
    assert SEEN[-1]["alpha"] == pytest.approx(1e-6 * share(1))  # the session's, not the check's own default


def test_ledger_multiplies_sessions_and_fails_at_its_bound(session, pytester):
    text = """
        def test_mine(refhmc_check):
            refhmc_check.sampler(200.0)
    """
    outcomes = []
    for _ in range(4):
        result = session(text, "--refhmc-alpha", "1e-6", "--refhmc-ledger", "ledger.jsonl", "--refhmc-version", "v1")
        outcomes.append(result.ret == 0)
    # The bound is 1 / (1e-6 / 2 * 6 / pi^2) = 3.3e6; 200^2 = 4e4 and 200^3 = 8e6. No single session is significant.
    assert outcomes == [True, True, False, False]
    result.stdout.fnmatch_lines(["*evidence*10^9.2*"])
    lines = [json.loads(line) for line in (pytester.path / "ledger.jsonl").read_text().splitlines()]
    assert [line["log_product"] for line in lines] == pytest.approx([k * math.log(200) for k in (1, 2, 3, 4)])
    assert len({line["seed"] for line in lines}) == 4  # a new seed in every session
    fresh = session(text, "--refhmc-ledger", "ledger.jsonl", "--refhmc-version", "v2")
    fresh.assert_outcomes(passed=1)  # another version of the code starts anew


def test_a_real_integrator_passes_and_fails_through_the_plug_in(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        import pytest

        def energy(q, p):
            return 0.5 * (q @ q + p @ p)

        def leapfrog(q, p, eps):
            p = p - eps / 2 * q
            q = q + eps * p
            return q, p - eps / 2 * q

        def euler(q, p, eps):
            return q + eps * p, p - eps * q

        @pytest.mark.refhmc(kind="integrator", H=energy, dim=2)
        @pytest.mark.parametrize("step", [leapfrog, euler])
        def test_step(step):
            return step
        """
    )
    result = pytester.runpytest_inprocess("-p", "refhmc.check.pytest_plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*FAILED*euler*"])


def test_plugin_costs_other_sessions_nothing():
    text = (
        "import sys, refhmc.check.pytest_plugin as p\n"
        "heavy = {'numpy', 'scipy', 'numba', 'arviz'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------------------------ the ledger


def test_seed_counts_once_and_truncated_line_is_ignored(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl", 1e-3)
    assert ledger.entries() == []
    first = ledger.add("a", "v", 1, 0.7)
    assert ledger.add("a", "v", 1, 50.0) == first
    assert ledger.add("a", "v", 2, -0.2).log_product == pytest.approx(0.5)
    with open(ledger.path, "ab") as file:
        file.write(b'{"test": "a", "vers')
    assert ledger.add("a", "v", 3, 0.1).log_product == pytest.approx(0.6)
    assert ledger.add("b", "v", 1, 0.0).alpha == pytest.approx(1e-3 * share(2))
    assert ledger.add("a", "w", 1, 0.0).alpha == pytest.approx(1e-3 * share(1))
    assert len(ledger.entries()) == 5
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="log_e"):
            ledger.add("a", "v", 9, wrong)
    assert ledger.add("a", "v", 4, -math.inf).log_product < -600


@pytest.mark.sweep
def test_running_product_of_correct_code_rarely_reaches_its_bound():
    # 80 sessions of bets on a fair coin. Ville: P(ever >= 1/alpha) <= alpha; 4,000 runs at alpha = 0.05 give at most
    # 200 + 4.5 sd = 262 crossings, and more occur by chance with probability 3e-6.
    rng = np.random.default_rng(7)
    gains = rng.choice([-1.0, 1.0], (4000, 80, 20))
    products = np.cumsum(np.log1p(0.2 * gains).sum(axis=2), axis=1)
    crossed = np.sum(products.max(axis=1) >= math.log(20))
    assert 40 < crossed < 262


def test_largest_wealth_is_converted_to_an_e_value():
    # The largest wealth of a fair game is not an e-value; calibrated, its mean is at most 1 (here to 4.5 standard errors).
    rng = np.random.default_rng(8)
    log_wealth = np.cumsum(np.log1p(0.3 * rng.choice([-1.0, 1.0], (4000, 400))), axis=1)
    largest = np.exp(np.maximum(log_wealth.max(axis=1), 0.0))

    def report(m):
        return Report("sampler", "x", {}, 0, (Row("stationarity (e-value)", PASS, float(m), 1e6),))

    e = np.exp([log_e_of(report(m)) for m in largest])
    assert largest.mean() > 2
    assert e.mean() < 1 + 4.5 * e.std() / math.sqrt(len(e))
    assert log_e_of(report(1e9)) > 14
    assert log_e_of(Report("model", "x", {}, 0, (not_run("exact draws", ""),))) is None
    assert log_e_of(Report("sampler", "x", {"log_e": -0.5}, 0, ())) == -0.5


def _add_many(path, test):
    ledger = Ledger(path, 1e-3)
    for seed in range(20):
        ledger.add(test, "v", seed, 0.25)


@pytest.mark.sweep
def test_programs_that_write_at_the_same_time_lose_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    spawn = multiprocessing.get_context("spawn")
    others = [spawn.Process(target=_add_many, args=(path, name)) for name in ("a", "b")]
    for other in others:
        other.start()
    _add_many(path, "c")
    for other in others:
        other.join(60)
    entries = Ledger(path, 1e-3).entries()
    assert len(entries) == 60
    for name in "abc":
        assert [x.log_product for x in entries if x.test == name][-1] == pytest.approx(5.0)
    assert len({x.alpha for x in entries}) == 3


def test_the_version_is_that_of_the_source_examined(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "somebodys.py").write_text("def kernel(rng, q):\n    return q\n")
    import somebodys

    before = version_of(case("sampler", somebodys.kernel, target="funnel"))
    assert version_of(case("sampler", somebodys.kernel, target="banana")) == before
    (tmp_path / "somebodys.py").write_text("def kernel(rng, q):\n    return q + 0\n")
    assert version_of(case("sampler", somebodys.kernel)) != before
    assert Budget(1e-6, 1).seed_of("a") != Budget(1e-6, 1).seed_of("b")
    with pytest.raises(ValueError, match="kind must be one of"):
        case("telepathy")

"""``refhmc selftest``: check refhmc and its conformance kit on the user's machine.

It has three parts. First, refhmc is compared with one in ten of the golden vectors, which were computed independently. Second,
its integrators, models, metrics and kernels are examined with the conformance kit. Third, the kit examines code with planted
bugs, which it must find, and the corrected counterparts, which it must not fail. The first two parts run in their own process.
Planted bugs are tried until the time is over, P01 to P25 first. In total the test takes less than two minutes, and one to two
minutes more after an installation, while refhmc is compiled.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import multiprocessing
import pkgutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from refhmc.check import mutants, own
from refhmc.check.report import Report

SECONDS = 90.0  # after this time no further planted bug is started
PLANNED = tuple(f"P{n:02d}" for n in range(1, 26))  # prefixes of ids that are tried first


class Outcome(NamedTuple):
    """One line of the self-test: what was tested, whether it succeeded, the seconds it took, and the report if it failed."""

    what: str
    ok: bool
    seconds: float
    report: str = ""


def outcomes() -> Iterator[Outcome]:
    """Yield the outcomes of the self-test."""
    begin = time.monotonic()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as beside:
        own = beside.submit(own_outcomes)
        for pair in planted_bugs():
            if time.monotonic() - begin > SECONDS:
                break
            found = functools.partial(found_by, pair=pair)
            yield _timed(f"{pair.id} found: {pair.what}", functools.partial(pair.wrong, 0), found)
            yield _timed(f"{pair.id}, corrected code", functools.partial(pair.right, 0), lambda r: not r.failures)
        yield from own.result()


def own_outcomes() -> list[Outcome]:
    """Return the outcomes for refhmc's own objects."""
    return [_timed(what, make, lambda report: report.ok) for what, make in own_reports()]


def planted_bugs() -> list:
    """Return the pairs of ``mutants/``: the planned ones, their variants, then one of each area in turn."""
    first, areas = [], []
    for area in sorted(module.name for module in pkgutil.iter_modules(mutants.__path__)):
        pairs = importlib.import_module(f"{mutants.__name__}.{area}").PAIRS
        first += [pair for pair in pairs if pair.id[:3] in PLANNED]
        areas.append([pair for pair in pairs if pair.id[:3] not in PLANNED])
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*areas))
    return sorted(first, key=lambda pair: (len(pair.id) > 3, pair.id)) + [pair for pair in in_turn if pair is not None]


def found_by(report: Report, pair: mutants.Pair) -> bool:
    """Return whether the report on a planted bug fails in an expected row."""
    return any(row.name in pair.expected for row in report.failures) and report.severity == pair.severity


def _timed(what: str, make: Callable[[], Report], good: Callable[[Report], bool]) -> Outcome:
    begin = time.monotonic()
    report = make()
    ok = good(report)
    return Outcome(what, ok, time.monotonic() - begin, "" if ok else str(report))


def own_reports() -> Iterator[tuple]:
    """Yield refhmc's own objects as subjects: (name, function that returns the report)."""
    import refhmc.check as rc
    from refhmc.check import adapters
    from refhmc.check.vectors import own_answers

    yield "golden vectors, one in ten", lambda: own_answers.report(every=10)
    I, M = own.integrators, own.metrics  # noqa: E741
    banana, funnel = own.models.Banana(), own.models.Funnel(2)
    euclidean, curved = own.Hamiltonian(funnel, M.Identity()), own.Hamiltonian(banana, M.Fisher())
    softabs = own.Hamiltonian(funnel, M.SoftAbs(alpha=10.0))
    tight = {"tolerance": 1e-12}
    for integrator, H, eps in (
        (I.Leapfrog(), euclidean, 0.05),
        (I.ImplicitMidpoint(**tight), curved, 0.02),
        (I.GeneralizedLeapfrog(**tight), curved, 0.02),
        (I.ImplicitMidpoint(**tight), softabs, 0.05),
    ):
        name = f"{type(integrator).__name__} on {H.model.name}, {type(H.metric).__name__}"
        yield name, lambda i=integrator, H=H, eps=eps, name=name: rc.integrator(i, H=H, eps=eps, name=name)
    for model in (funnel, banana, own.models.EightSchools(), own.models.LinearRegression()):
        yield f"model {model.name}", lambda model=model: rc.model(model)
    for H in (curved, softabs):
        name = f"{type(H.metric).__name__} on {H.model.name}"
        yield f"metric {name}", lambda H=H, name=name: rc.metric(H, name=name)
    kernel = adapters.refhmc_kernel(funnel, own.HMC(step_size=0.1, n_steps=5, metric=M.Identity()))
    yield "HMC", lambda: rc.transition(kernel, euclidean, name="refhmc HMC")


def run() -> int:
    """Print the outcomes line by line and return 0 if all succeeded, otherwise 1; ImportError without Numba."""
    if not own.is_compiled():
        raise own.missing_dependency("numba", "refhmc selftest")
    failed = []
    begin = time.monotonic()
    for outcome in outcomes():
        print(f"{'ok  ' if outcome.ok else 'FAIL'} {outcome.seconds:6.2f} s  {outcome.what}", flush=True)
        failed += [] if outcome.ok else [outcome]
    for outcome in failed:
        print(f"\n{outcome.what}\n{outcome.report}")
    print(f"{'All parts succeeded' if not failed else f'{len(failed)} parts failed'}, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0

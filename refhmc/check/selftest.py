"""``refhmc selftest``: the proof once more, on the machine of whoever asks.

Three parts: refhmc against one in ten of the golden vectors, which were made without it; its integrators, models, metrics and
kernels under its own conformance kit; and the kit itself on code with planted bugs, which it must find, and on their correct
twins, which it must not fail. The first two have a process of their own. Of the planted bugs as many are tried as the time
allows, first those of the plan, P01 to P25: in all less than two minutes. The first time after an installation it takes one
to two minutes more, while refhmc is compiled.
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

from refhmc.check import mutants
from refhmc.check.report import Report

SECONDS = 90.0  # after so many no further planted bug is begun
PLANNED = tuple(f"P{n:02d}" for n in range(1, 26))  # ids begin so; the other bugs came later


class Outcome(NamedTuple):
    """One line of the proof: ``what``, whether it came out as it should, the seconds it took, and the report if it did not."""

    what: str
    ok: bool
    seconds: float
    report: str = ""


def outcomes() -> Iterator[Outcome]:
    """The proof, line by line."""
    begin = time.monotonic()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as beside:
        own = beside.submit(own_outcomes)
        for pair in planted_bugs():
            if time.monotonic() - begin > SECONDS:
                break
            found = functools.partial(found_by, pair=pair)
            yield _timed(f"{pair.id} found: {pair.what}", functools.partial(pair.wrong, 0), found)
            yield _timed(f"{pair.id}'s correct twin", functools.partial(pair.right, 0), lambda r: not r.failures)
        yield from own.result()


def own_outcomes() -> list[Outcome]:
    """refhmc's own parts."""
    return [_timed(what, make, lambda report: report.ok) for what, make in own_reports()]


def planted_bugs() -> list:
    """The pairs of ``mutants/``: the plan's, their variants, then of each area one in turn."""
    first, areas = [], []
    for area in sorted(module.name for module in pkgutil.iter_modules(mutants.__path__)):
        pairs = importlib.import_module(f"{mutants.__name__}.{area}").PAIRS
        first += [pair for pair in pairs if pair.id[:3] in PLANNED]
        areas.append([pair for pair in pairs if pair.id[:3] not in PLANNED])
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*areas))
    return sorted(first, key=lambda pair: (len(pair.id) > 3, pair.id)) + [pair for pair in in_turn if pair is not None]


def found_by(report: Report, pair: mutants.Pair) -> bool:
    """Whether a report of the planted bug says FAIL where it should."""
    return any(row.name in pair.expected for row in report.failures) and report.severity == pair.severity


def _timed(what: str, make: Callable[[], Report], good: Callable[[Report], bool]) -> Outcome:
    begin = time.monotonic()
    report = make()
    ok = good(report)
    return Outcome(what, ok, time.monotonic() - begin, "" if ok else str(report))


def own_reports() -> Iterator[tuple]:
    """refhmc's own parts as subjects: (what, how to make the report)."""
    import refhmc.check as rc
    from refhmc.check import adapters, own
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
    """Print the proof line by line; 0 if all came out as it should, otherwise 1."""
    failed = []
    begin = time.monotonic()
    for outcome in outcomes():
        print(f"{'ok  ' if outcome.ok else 'FAIL'} {outcome.seconds:6.2f} s  {outcome.what}", flush=True)
        failed += [] if outcome.ok else [outcome]
    for outcome in failed:
        print(f"\n{outcome.what}\n{outcome.report}")
    print(
        f"{'everything as it should be' if not failed else f'{len(failed)} not as they should be'}, "
        f"{time.monotonic() - begin:.0f} s"
    )
    return 1 if failed else 0

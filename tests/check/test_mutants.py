"""The conformance kit on code with known faults: every planted bug fails in its row, and no corrected code fails.

The bugs and the corrected codes are in ``refhmc/check/mutants``. A false FAIL would make every report doubtful, so the
corrected codes run with 20 seeds. This is the slow gate; the default run and the sweep have some of the pairs with one seed.
The statistical checks have alpha = 1e-6 per call, so that the probability of any false FAIL here is below 1e-3.
"""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from refhmc.check import mutants
from refhmc.check.transitions import stationarity_tests

AREAS = sorted(module.name for module in pkgutil.iter_modules(mutants.__path__))
PLACED = [(area, pair) for area in AREAS for pair in importlib.import_module(f"refhmc.check.mutants.{area}").PAIRS]
PAIRS = [pair for _, pair in PLACED]
NOT_FOUND = [
    pair for area in AREAS for pair in getattr(importlib.import_module(f"refhmc.check.mutants.{area}"), "NOT_FOUND", ())
]
PLANNED = [f"P{n:02d}" for n in range(1, 26)]
IDS = [f"{area}-{p.id}-{p.what[:40]}" for area, p in PLACED]

# Pairs of an area in the default run, and further ones in the sweep. The others take longer.
DEFAULT = {
    "adaptation": "M25, not restarted, counter, mu, equal windows, ddof, cancellation, walnutpie#27, walnutpie#67, mcx#40, "
    "AdvancedHMC#220, stan#3023, blackjax#217, blackjax#1003, blackjax#116",
    "field": "pymc#800, aeppl#30, numpyro#1834, SGMCMCJax#69",
    "grids": "pymc#2866, binary temperature, half period",
    "couplings": "one uniform, separate",
    "hierarchical": "log-det, momentum",
    "integrators": "P01, integrator-stale",
    "leaps": "blackjax#625, mcmc-demo#18, mcmc-demo#23, LMC sign, walnuts#17, walnutpie 7139781",
    "metrics": "P08, M2, M3, AdvancedHMC#83",
    "minibatches": "P24, P24b, B02, B03, B04, B05, B06, B07, B08, B09, B13, B15, B17, B19, csgmcmc#1, blackjax#540",
    "models": "P13, half, support",
    "orbits": "T14, AdvancedHMC 2ab8aff",
    "random_data": "data: unadjusted",
    "randomness": "M33, P25, P25d, P25e, stop, spreads, thaws, norm, numpyro#479",
    "samplers": "P17-count, P18",
    "stoppings": "first chain, once, added, square, whole, no root, not a number, any, warm-up, last part, limit",
    "temperings": "sign, stale, sweep, random parity, blackjax#914, error",
    "transitions": "P16, cap, dense transposed",
}
SWEEP = {
    "adaptation": "P21, P21b, P21c, M24, unshrunk, gamma",
    "field": "blackjax#653, BAT.jl#532, BAT.jl#564, Pigeons.jl#135, keanu#33, NoLimits.jl#283, numpyro#1293, gam#680, "
    "numpyro#826, aehmc#45",
    "grids": "half period of leapfrog",
    "couplings": "shift, rejection",
    "hierarchical": "log-det-force, order, stale, one-way, later, sign, half, term",
    "integrators": "P02, P05, integrator-digits, integrator-coefficient, integrator-palindrome, integrator-drifts, "
    "Molly.jl#203",
    "leaps": "sphere d, LMC inverse, LMC volume, walnutpie#46, walnutpie#57",
    "metrics": "P09, P10, P10-nan, P11, P12, P12-built, M29, one-sided, solve, absolute, log-det-half",
    "minibatches": "B01, B10, B11, B12, B14, B16, B18",
    "models": "P14, P15, third, buffer, prior",
    "orbits": "P20, M12b, T09, tree backwards, tree start, pymc#1787, walnutpie 052bbe6, blackjax#18, CUQIpy#449, "
    "nuts-rs be2c293, blackjax#53, nuts-rs 1ebe1cb, dense diagonal",
    "random_data": "data: prior only, data: likelihood only, data: jacobian, data: last, data: sweep",
    "randomness": "global, own, reseeds, one short, P25b, P25c, sum",
    "samplers": "P25-momentum, S04",
    "splits": ", ".join(pair.id for area, pair in PLACED if area == "splits"),
    "stoppings": "all draws, first coordinate, mean, direction, still, variance, independent, alone, before the last, repeated",
    "temperings": "one side, no difference of b, one parity, wrong end, rectangles",
    "transitions": "P18, M32, clip, M23, flip, refresh first, refresh both, kept curved, kept floor, DR, mass twice, "
    "AdvancedHMC#280, DR kept ghost on one side, DR kept ghost density, dense diagonal drift, MALT refreshments, "
    "MAMS no Jacobian, kept velocity inverse, kept velocity half a turn",
}
# The likely cause that a report names.
SAID = {
    ("adaptation", "M25"): "instead of eps_bar",
    ("adaptation", "stan#3023"): "not the average of its last part",
    ("hierarchical", "log-det"): "1/2 log det G is missing",
    ("hierarchical", "log-det-force"): "the force lacks the derivative of 1/2 log det",
    ("hierarchical", "momentum"): "exchanged",
    ("hierarchical", "one-way"): "not a palindrome",
    ("integrators", "P01"): "one kick missing or at the wrong end",
    ("integrators", "P02"): "the drift uses eps/2",
    ("integrators", "P05"): "rounded coefficients",
    ("integrators", "P06"): "last iterate is used as if it had converged",
    ("integrators", "integrator-mass"): "the mass matrix instead of its inverse",
    ("integrators", "integrator-sign"): "the sign of the gradient",
    ("integrators", "integrator-twice"): "twice the requested time",
    ("integrators", "integrator-stale"): "from call to call",
    ("integrators", "integrator-trapezoidal"): "the trapezoidal rule",
    ("leaps", "blackjax#625"): "3 times the right one",
    ("leaps", "mcmc-demo#23"): "not normalised",
    ("leaps", "LMC inverse"): "-1 times the right one",
    ("leaps", "walnuts#17"): "reverse search",
    ("metrics", "P08"): "log det G without the factor 1/2",
    ("metrics", "P09"): "at equal eigenvalues",
    ("metrics", "P11"): "the direction first",
    ("metrics", "P12"): "-1/2 v' dG/dq v has factor -1",
    ("metrics", "M3"): "exchanged",
    ("metrics", "M29"): "the previous position",
    ("metrics", "log-det-half"): "0.5 times",
    ("minibatches", "B10"): "each part has a complete prior",
    ("minibatches", "B12"): "the remaining rows are dropped",
    ("minibatches", "B13"): "a batch is in the sum twice",
    ("minibatches", "B18"): "normalisation in the batch",
    ("models", "P13"): "log Jacobian of the transform is missing",
    ("models", "P14"): "clipped at 10",
    ("models", "P15"): "float32",
    ("models", "half"): "half the right value",
    ("models", "prior"): "a normal prior?",
    ("transitions", "DR kept ghost on one side"): "rejected, from both ends",
}


def is_one_of(pairs, area, pair) -> bool:
    return pair.id in pairs.get(area, "").split(", ")


def marks_of(area, pair):
    if is_one_of(DEFAULT, area, pair):
        return []
    return pytest.mark.sweep if is_one_of(SWEEP, area, pair) else pytest.mark.slow


def test_all_the_planned_bugs_are_planted():
    assert {pair.id for pair in PAIRS} >= set(PLANNED)
    assert len({(area, pair.id) for area, pair in PLACED}) == len(PLACED)
    assert SAID.keys() <= {(area, pair.id) for area, pair in PLACED}
    for part in (DEFAULT, SWEEP):
        assert all(set(ids.split(", ")) <= {p.id for a, p in PLACED if a == area} for area, ids in part.items())


@pytest.mark.parametrize(
    ("area", "pair"), [pytest.param(area, pair, marks=marks_of(area, pair)) for area, pair in PLACED], ids=IDS
)
def test_planted_bug_fails_in_its_row_and_corrected_code_does_not_fail(area, pair, monkeypatch):
    if area == "transitions" and (is_one_of(DEFAULT, area, pair) or is_one_of(SWEEP, area, pair)):
        monkeypatch.setattr(stationarity_tests, "LOOKS", (500,))  # their faults show in the exact rows
    wrong, right = pair.wrong(1), pair.right(1)
    assert {row.name for row in wrong.failures} & set(pair.expected), str(wrong)
    assert wrong.severity == pair.severity, str(wrong)
    assert SAID.get((area, pair.id), "") in " ".join(wrong.diagnosis), str(wrong)
    assert not right.failures, str(right)


@pytest.mark.parametrize("pair", NOT_FOUND, ids=[pair.id for pair in NOT_FOUND])
def test_planted_bug_that_no_row_finds_is_still_not_found(pair):
    # If it is found now, move it to PAIRS of its area, and to the bugs that are found in validation/field_bugs.py.
    assert pair.wrong(1).ok
    assert pair.right(1).ok


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_corrected_code_passes_for_all_seeds(pair):
    for seed in range(20):
        report = pair.right(seed)
        assert report.ok, str(report)

"""The first lines of the pages of ``validation/results``, and the rules of the verdicts that they count."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("validation.openings", reason="validation/ is beside the tests in the repository only")

from tests.helpers.places import ROOT
from validation import (
    betancourt_figures,
    betancourt_report,
    cobb_jalaian_methods,
    cobb_jalaian_table4,
    cobb_report,
    judging,
)
from validation.judging import opening
from validation.openings import BEGINNING, module_of, opening_of, pages

VERDICTS = {  # columns with one verdict per row
    "betancourt_figures": ["verdict"],
    "cobb_figures": ["verdict"],
    "cobb_funnel_figures": ["Metropolis", "the program's"],
    "cobb_jalaian_memory": ["verdict"],
    "cobb_jalaian_table3": ["verdict"],
    "cobb_jalaian_table4": ["verdict"],
    "cobb_logistic": ["verdict"],
}


def page_of(name: str) -> str:
    return (ROOT / "validation" / "results" / f"{name}.md").read_text(encoding="utf-8")


def first_line(name: str) -> str:
    return page_of(name).splitlines()[2]


def verdicts_of(name: str) -> list[str]:
    """Return the cells below the page's verdict columns."""
    found, header = [], []
    for line in [*page_of(name).splitlines(), ""]:
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        if not cells:
            header = []
        elif not header:
            header = cells
        elif not line.startswith("|--"):
            found += [cells[k] for k, title in enumerate(header) if title in VERDICTS[name]]
    return [verdict for verdict in found if verdict != "no claim"]


@pytest.mark.parametrize("name", pages())
def test_page_begins_with_the_line_that_its_figures_give(name):
    assert BEGINNING.match(first_line(name))
    assert first_line(name) == opening_of(name)
    assert first_line(name).endswith(".")


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_first_line_counts_the_verdicts_of_the_table(name):
    verdicts, unit = verdicts_of(name), "claims" if "claims" in first_line(name) else "comparisons"
    assert len(verdicts) > 3
    assert first_line(name).startswith(opening(verdicts, unit).removesuffix("."))


@pytest.mark.parametrize("name", [name for name in pages() if re.match(r"brofos_table\d", name)])
def test_first_line_counts_the_comparisons_of_a_table_of_brofos_and_lederman(name):
    counted = re.search(r"^Of (\d+) comparisons (\d+) agree, (\d+) are .*?, (\d+) differ, (\d+)", page_of(name), re.M)
    n, agree, undecided, differ, together = map(int, counted.groups())
    assert n == agree + undecided + differ + together
    words = ["agrees"] * agree + ["undecided"] * undecided + ["differs"] * (differ + together)
    assert first_line(name).startswith(opening(words))


def test_pages_of_other_settings_belong_to_the_same_module():
    assert module_of("brofos_table6_test_rows") == "brofos_tables"
    assert module_of("brofos_figure4") == "brofos_figures2and3"
    assert module_of("brofos_figure4_exception") == "brofos_figure4_exception"
    assert (
        module_of("cobb_jalaian_table4_2000_passes") == module_of("cobb_jalaian_table4_quick") == "cobb_jalaian_table4"
    )


def test_the_line_begins_with_the_worst_verdict():
    assert opening(["agrees", "agrees"]) == "**Reproduced**: 2 of 2 comparisons agree."
    assert (
        opening(["agrees", "not decided (p = 0.1)"]) == "**Undecided**: of 2 comparisons, 1 agrees and 1 is undecided."
    )
    assert opening(["PASS", "FAIL", "FAIL", "UNDECIDED: few"], "claims", "Why.") == (
        "**Differs**: of 4 claims, 1 holds, 2 do not hold and 1 is undecided. Why."
    )
    assert opening(["does not hold"], "claims") == "**Differs**: of 1 claims, 1 does not hold."
    assert opening([], because="No table.") == "**Undecided**: no comparisons were made. No table."
    with pytest.raises(KeyError):
        opening(["perhaps"])


def test_a_chain_with_few_effective_draws_decides_nothing_about_its_distribution():
    """With ESS n the shift found with probability 0.9 at |z| > 3 is 4.28 / sqrt(n) standard deviations."""
    facts = {"z_mean": 0.5, "z_second_moment": -1.0, "ess": 25.0}
    assert betancourt_figures.consistent(facts).startswith("undecided: a shift of v by 0.9")
    assert betancourt_figures.biased(facts).startswith("undecided")
    assert betancourt_figures.consistent({**facts, "ess": 74.0}) == "holds"
    assert betancourt_figures.consistent({**facts, "ess": 73.0}).startswith("undecided")
    assert betancourt_figures.consistent({**facts, "ess": 400.0, "z_mean": 3.1}) == "does not hold"
    assert betancourt_figures.biased({**facts, "ess": 400.0, "z_mean": 3.1}) == "holds"


def test_a_half_period_is_judged_from_the_figures_start_by_twenty_per_cent():
    def near(start, exact):
        return betancourt_figures.near({"half_period_median": start, "half_period_median_exact_draws": exact}, 25)

    assert near(21.0, 60.0)
    assert not near(19.0, 25.0)
    assert not near(None, 25.0)


def test_the_aim_is_reached_by_two_standard_errors_of_several_runs_below_the_cap():
    def aim(ratio, error, n=3, at_cap=False, consistent=True):
        return betancourt_report.aim_of({"ratio": ratio, "ours": ratio, "error": error, "n": n}, at_cap, consistent)

    assert aim(150, 10) == "reached"
    assert aim(60, 10) == "not reached"
    assert aim(110, 10) == "not decided"
    assert aim(170, 5, n=1, at_cap=True) == "not decided, one run at the cap"
    assert aim(170, 5, at_cap=True) == "not decided"
    assert aim(170, 5, consistent=False) == "not decided, v is not consistent with N(0, 9)"


def test_step_size_and_acceptance_have_verdicts_of_their_own():
    found = {"p": 0.5, "told": 0.06, "paper": 0.8, "ratio": 1.0}
    assert betancourt_report.word_of("step_size", found).startswith("agrees")
    assert betancourt_report.word_of("acceptance", found).startswith("not decided")
    assert betancourt_report.word_of("acceptance", {**found, "p": 1e-6}).startswith("differs")
    assert (
        betancourt_report.word_of("ess", {"paper": 800.0, "ratio": 3.5})
        == "not decided (one run, 3.50 times the paper's)"
    )


def test_an_acceptance_that_could_be_wrong_by_more_than_0_05_does_not_agree():
    """Acceptance 0.893 for a printed 0.97, of runs that would show 0.15, and 0.966, of runs that would show 0.013."""
    ours, shared = (
        {"kl_quantiles": {"50%": 0.3}},
        {"kl": 0.27, "p_kl": 0.3, "told_kl": 1.7, "runs_of_ours_below": "1 of 2"},
    )
    for p, told, word in ((0.012, 0.15, "not decided"), (0.34, 0.013, "agrees"), (1e-5, 0.013, "differs")):
        paper = {**shared, "p_acceptance": p, "told_acceptance": told}
        cobb_report.verdict_of(ours, paper, 32)
        assert paper["verdicts"] == {"KL": "agrees", "acceptance": word}


def test_claims_on_uncertainty_need_methods_that_learned():
    """Nine classes: twice the accuracy of guessing is 22.2 %."""
    accuracies = {"SGD": 60.0, "SGLD": 22.0, "SGHMC": 50.0, cobb_jalaian_methods.SPLIT: 40.0}

    def verdicts(split: float) -> list[str]:
        accuracies[cobb_jalaian_methods.SPLIT] = split
        found = {name: [{"accuracy": x + d} for d in (-0.5, 0.0, 0.5)] for name, x in accuracies.items()}
        claims = ["table 4: nll better than SGLD's", "figure 2: less sure than SGHMC", "figure 2: less sure than SGLD"]
        rows = [{"claim": claim, "verdict": "PASS"} for claim in claims]
        return [row["verdict"] for row in cobb_jalaian_table4.of_those_that_learned(rows, found)]

    assert verdicts(40.0) == ["PASS", "PASS", "UNDECIDED: SGLD learned little"]
    assert verdicts(22.5) == ["PASS", *["UNDECIDED: symmetric split learned little"] * 2]


def claims_of(name: str) -> list[tuple[int, list[str]]]:
    """Return number of the figure and verdicts of each claim of a page."""
    claims = json.loads((ROOT / "validation" / "results" / f"{name}.json").read_text(encoding="utf-8"))["claims"]
    if name == "betancourt_figures":
        return [(claim["figure"], [claim["verdict"]]) for claim in claims]
    return [(int(claim[0].rstrip("ab")), claim[3::2]) for claim in claims]


@pytest.mark.parametrize(
    ("chapter", "row", "name", "figures"),
    [
        ("betancourt_2013", "| figures 2 to 8 |", "betancourt_figures", range(2, 9)),
        ("betancourt_2013", "| figures 9 and 10,", "betancourt_figures", range(9, 11)),
        ("cobb_2019", "| 2, 3, 4, the funnel", "cobb_funnel_figures", range(2, 5)),
        ("cobb_2019", "| 5, logistic", "cobb_logistic", range(5, 6)),
        ("cobb_2019", "| 6, logistic", "cobb_logistic", range(6, 7)),
    ],
)
def test_the_chapter_quotes_the_counts_of_the_figures(chapter, row, name, figures):
    claims = [verdicts for figure, verdicts in claims_of(name) if figure in figures]
    page = (ROOT / "docs" / "papers" / f"{chapter}.md").read_text(encoding="utf-8")
    (quoted,) = [line for line in page.splitlines() if line.startswith(row)]
    assert f"{len(claims)} claims" in quoted
    for verdicts in zip(*claims, strict=True):
        assert judging.tally(verdicts, "claims") in quoted

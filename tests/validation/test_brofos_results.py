"""The result files of the tables of Brofos and Lederman: text, summary and rows say the same, and what the rule says."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

pytest.importorskip("validation.judging", reason="validation/ is beside the tests in the repository only")

from tests.helpers.places import ROOT
from tests.helpers.sweeps import every
from validation import brofos_figure4_exception, brofos_table1, brofos_table3, brofos_tables5to7
from validation.brofos_figure1 import INTEGRATORS, STEPS, claims_of, row_of
from validation.brofos_sets import heart_split
from validation.brofos_tables import FIGURES, IN_WORDS, enough, estimate, judge, judge_together, summary
from validation.common import plain
from validation.judging import ALARM, POWER, Estimate, compare, level, number

RESULTS = ROOT / "validation" / "results"
TABLES = sorted(path.stem for path in RESULTS.glob("brofos_table*.json"))
SET_ASIDE = ("ArviZ's cap", "do not give their spread")  # reasons for which p does not decide


def load(name: str) -> tuple[dict, str]:
    data = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return data, (RESULTS / f"{name}.md").read_text(encoding="utf-8")


def judged(data: dict):
    """Each row, figure and comparison."""
    return [(row, figure, row["comparison"][figure]) for row in data["rows"] for figure in FIGURES]


def test_every_table_is_there():
    assert {f"brofos_table{n}" for n in range(1, 8)} <= set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_rows_summary_and_text_agree(name):
    data, text = load(name)
    first = text.split("| step | L | method | trials")[1].split("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in first.splitlines()[2:]]
    assert [line[:3] for line in lines] == [
        [str(row["step_size"]), str(row["n_steps"]), row["method"]] for row in data["rows"]
    ]
    assert f"{len(data['rows'])} of {data['rows_wanted']} rows" in text
    assert data["summary"] == summary(data["rows"])
    assert data["summary"]["compared"] == len(FIGURES) * len(data["rows"])
    counts = [
        int(n) for n in re.search(r"Of (\d+) comparisons (\d+) agree, (\d+) are .*? (\d+) differ, (\d+)", text).groups()
    ]
    assert counts == list(data["summary"].values())
    assert sum(counts[1:]) == counts[0]


@pytest.mark.parametrize("name", TABLES)
def test_the_rule_is_stated(name):
    data, text = load(name)
    assert data["comparisons"] == len(FIGURES) * (data["rows_wanted"] + data["settings_wanted"])
    assert (data["alarm"], data["power"]) == (ALARM, POWER)
    assert f"1 - (1 - {ALARM})^(1/{data['comparisons']})" in text
    assert data["settings"]["reversibility_check"] is False
    assert "without a check of their reversibility" in text


@pytest.mark.parametrize("name", every(4, TABLES))
def test_verdicts_follow_from_the_figures(name):
    """From the JSON's own figures, ours and the paper's; p of sets of rows that differ from trial to trial is left out."""
    data, _ = load(name)
    for row, figure, against in judged(data):
        if not name.endswith("_test_rows"):
            found = compare(estimate(row[figure]), estimate(against["paper"]))
            assert found.p == pytest.approx(against["p"], rel=1e-4, abs=1e-12)
            assert found.told(data["comparisons"]) == pytest.approx(against["told"], rel=1e-4, abs=1e-9)
        word, differs = against["verdict"], against["p"] < level(data["comparisons"])
        if against["set_aside"]:
            assert any(words in against["reason"] for words in SET_ASIDE)
            assert word in ("agrees", "undecided")
            continue
        assert (word == "differs") == differs
        if word == "agrees":
            assert against["told"] <= enough(figure, against["paper"]["value"])


@pytest.mark.parametrize("name", TABLES)
def test_few_trials_have_degrees_of_freedom(name):
    """An error of the acceptance from fewer than four trials is one of 20 batches or more."""
    data, _ = load(name)
    for row in data["rows"]:
        if row["trials"] < 4 and not name.endswith("_test_rows"):
            assert row["acceptance"]["freedom"] >= 19


@pytest.mark.parametrize("name", TABLES)
def test_rows_together(name):
    data, _ = load(name)
    words = {(each["step_size"], each["n_steps"], each["figure"]): each["verdict"] for each in data["together"]}
    for row, figure, against in judged(data):
        together = words.get((row["step_size"], row["n_steps"], figure))
        if together == "differs" and not against["set_aside"]:
            assert against["verdict"].startswith("differs")
        else:
            assert against["verdict"] != "differs together"


@pytest.mark.parametrize("name", TABLES)
def test_every_difference_has_a_sentence_of_its_own(name):
    data, text = load(name)
    lines = [line for line in text.splitlines() if line.startswith("- step")]
    wanted = [(row, figure, against) for row, figure, against in judged(data) if against["verdict"] != "agrees"]
    assert len(lines) == len(wanted)
    for line, (row, figure, against) in zip(lines, wanted, strict=True):
        setting = f"- step {row['step_size']}, {row['n_steps']} steps, {row['method']}, {IN_WORDS[figure]} {against['verdict']}"
        assert line.startswith(setting)
        why = line.split("): ", 1)[1]
        if against["verdict"] != "undecided":
            assert number(row[figure]["value"]) in why or "published program's rule" in why, (
                "a sentence on another figure"
            )


def test_table_3_does_not_agree():
    """Mean ESS is 1.5 to 1.7 times the paper's in all rows."""
    data, _ = load("brofos_table3")
    verdicts = [against["verdict"] for _, figure, against in judged(data) if figure == "mean_ess"]
    assert len(verdicts) == 4
    assert "agrees" not in verdicts


def test_table_7_is_that_of_raetschs_test_rows():
    data, text = load("brofos_table7")
    assert len(data["rows"]) == data["rows_wanted"] == 24
    assert "100 test rows of Raetsch's first split" in text
    acceptance = {(r["step_size"], r["n_steps"], r["method"]): r["acceptance"]["value"] for r in data["rows"]}
    assert acceptance[1.0, 5, "I.M.(b)"] == pytest.approx(0.70, abs=0.01)
    assert acceptance[1.0, 10, "I.M.(b)"] == pytest.approx(0.66, abs=0.01)


def test_no_text_speaks_of_120_rows():
    texts = [*RESULTS.glob("*.md"), *ROOT.glob("validation/**/*.py"), ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    assert not [path.name for path in texts if "120 rows" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("ours", "theirs", "draws", "verdict", "aside"),
    [
        (Estimate(1010.0, 20.0), Estimate(1000.0, 20.0), 10_000, "agrees", False),
        (Estimate(1300.0, 20.0), Estimate(1000.0, 20.0), 10_000, "differs", False),
        (Estimate(1010.0, 200.0), Estimate(1000.0, 20.0), 10_000, "undecided", False),  # 200 tells a factor of two
        (Estimate(39_400.0, math.nan, 1, 0.8), Estimate(40_000.0, 0.0), 8_000, "undecided", True),  # at our cap
        (Estimate(40_000.0, 0.0), Estimate(40_000.0, 0.0), 10_000, "agrees", True),  # at both caps
        (Estimate(40_000.0, 0.0), Estimate(30_000.0, 500.0), 10_000, "differs", False),
    ],
)
def test_judgement_of_an_ess(ours, theirs, draws, verdict, aside):
    found = judge(brofos_table1.table(), "mean_ess", ours, theirs, draws, 36)
    assert (found["verdict"], found["set_aside"]) == (verdict, aside)


def test_few_sets_of_rows_are_undecided():
    ours, theirs = Estimate(0.3, 0.01, 3), Estimate(0.7, 0.0)
    found = judge(brofos_tables5to7.table(5, "test"), "acceptance", ours, theirs, 10_000, 36)
    assert (found["verdict"], found["set_aside"]) == ("undecided", True)
    # Of more sets the spread counts, not the error of the mean: sd 0.2 here.
    ours = Estimate(0.6, 0.2 / math.sqrt(10), 10)
    assert judge(brofos_tables5to7.table(5, "test"), "acceptance", ours, theirs, 10_000, 36)["z"] == pytest.approx(
        -0.1 / 0.2 / math.sqrt(1.1), rel=1e-3
    )


def test_a_factor_common_to_the_rows_is_found():
    """Of Table 3's size, 1.6 in each of four rows: no row differs by itself, together they do, and none agrees."""
    table, rows = brofos_table3.TABLE, []
    for _, _, method in table.rows:
        row = {"step_size": 0.5, "n_steps": 6, "method": method, "draws": 20_000, "trials": 10, "common_data": False}
        rows.append({**row, "comparison": {}})
        figures = {"acceptance": (0.5, 0.5, 0.004), "mean_ess": (350.0, 220.0, 40.0), "min_ess": (130.0, 120.0, 8.0)}
        for figure, (ours, printed, error) in figures.items():
            rows[-1][figure] = Estimate(ours, error)
            theirs = Estimate(printed, error / 5, 100)
            rows[-1]["comparison"][figure] = judge(table, figure, rows[-1][figure], theirs, 20_000, 15)
    assert {row["comparison"]["mean_ess"]["verdict"] for row in rows} == {"undecided"}
    jointly = {each["figure"]: each for each in judge_together(table, rows, 15)}
    assert jointly["mean_ess"]["verdict"] == "differs"
    assert jointly["mean_ess"]["factor"] == pytest.approx(350 / 220)
    assert {row["comparison"]["mean_ess"]["verdict"] for row in rows} == {"differs together"}
    assert {row["comparison"]["acceptance"]["verdict"] for row in rows} == {"agrees"}


def test_raetschs_test_rows_are_a_model_of_their_own():
    X = heart_split("test").data[:14].T
    assert X.shape == (100, 14)
    y = np.sign(X[:, 0])  # the rows are y_i x_i, and x_i begins with 1
    np.testing.assert_allclose((y[:, None] * X)[:, 1:].mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose((y[:, None] * X)[:, 1:].std(axis=0), 1, rtol=1e-13)


@pytest.mark.sweep
@pytest.mark.parametrize("name", INTEGRATORS)
@pytest.mark.parametrize("h", STEPS)
def test_figure_1s_iterates_are_the_formulas(name, h):
    row = row_of(name, h, 300)
    assert row["from_the_formulas"] < 1e-10
    assert row["largest_deviation"] == pytest.approx(row["most_in_theory"], rel=0.02, abs=1e-10)


def test_figure_1_agrees():
    data = json.loads((RESULTS / "brofos_figure1.json").read_text(encoding="utf-8"))
    assert all(data["claims"].values())
    assert claims_of(data["rows"]) == data["claims"]


def points_of(values) -> list[dict]:
    """Points of the script for figure 4's exception, the same figures at both numbers of steps and by all measures."""
    names = ("published", "double", "extrapolated")
    return [
        {"point": k, "n_steps": n, "I.M.(a)": dict.fromkeys(names, im), "G.L.F.(a)": dict.fromkeys(names, glf)}
        for k, (im, glf) in enumerate(values)
        for n in (1, 2)
    ]


def test_figure_4s_exception_is_counted_by_points():
    points = points_of([(1.0, 2.0), (3.0, 1.0), (5.0, 1.0), (None, 4.0)])  # a failed solve is infinite, null in JSON
    for cell in brofos_figure4_exception.gather(points):
        assert (cell["points"], cell["glf_better"], cell["im"], cell["glf"]) == (4, 3, 4.0, 1.5)
    np.testing.assert_allclose(
        brofos_figure4_exception.scores(points, "published"), [-math.log(2), math.log(3), math.log(5), math.nan]
    )


@pytest.mark.parametrize(("later", "better"), [(6, "undecided"), (8, "G.L.F.")])
def test_figure_4s_exception_is_decided_by_the_later_points(later, better):
    """All of them on one side: p is 2 / 2^n."""
    first = brofos_figure4_exception.FIRST
    points = points_of([(1.0, 2.0 + k) for k in range(first)] + [(2.0 + k, 1.0) for k in range(later)])
    for test in brofos_figure4_exception.tests_of(points):
        assert test["p_of_first"] == pytest.approx(2 / 2**first)
        assert test["p"] == pytest.approx(2 / 2**later)
        assert (test["first_points"], test["later_points"], test["better"]) == (first, later, better)


def test_figure_4s_exception_follows_from_its_points():
    data = json.loads((RESULTS / "brofos_figure4_exception.json").read_text(encoding="utf-8"))
    cells, tests = (f(data["points"]) for f in (brofos_figure4_exception.gather, brofos_figure4_exception.tests_of))
    for ours, stored in zip(plain([*cells, *tests]), [*data["cells"], *data["tests"]], strict=True):
        for key, value in ours.items():  # the points are stored to eight digits
            assert stored[key] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value)
    text = (RESULTS / "brofos_figure4_exception.md").read_text(encoding="utf-8")
    assert f"Verdict: {brofos_figure4_exception.verdict_of(cells, tests)}" in text
    assert f"1 - (1 - {ALARM})^(1/2)" in text

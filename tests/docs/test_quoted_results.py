"""The figures on the pages are those of the recorded results."""

from __future__ import annotations

import re

import pytest

from tests.helpers.places import ROOT

RECORDED = re.compile(
    r"^Recorded in \[[^\]]+\]\(\.\./(?P<path>[^)]+)\) by `python -m (?P<module>[\w.]+)`\.\n`(?P<machine>.*)`$",
    re.MULTILINE,
)


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def cells(line):
    return [each.strip() for each in line.strip().strip("|").split("|")]


def quoted_tables():
    """Yield the rows of each table of the benchmarks page, its header first, with what its caption names."""
    page = text("docs/benchmarks.md")
    start = 0
    for recorded in RECORDED.finditer(page):
        rows = [cells(line) for line in page[start : recorded.start()].splitlines() if line.startswith("|")]
        start = recorded.end()
        yield pytest.param(
            [rows[0], *rows[2:]], recorded, id=f"{recorded['path'].rpartition('/')[2]}: {rows[1:][1][0]}"
        )


def recorded_rows(path):
    """Return the rows of tables of a results file, each with the words above it: the last heading and the header."""
    lines, rows, heading, header = text(path).splitlines(), [], "", []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("#") or (line.endswith(":") and line[0] not in "| -"):
            heading = line.strip("# :")
        elif line.startswith("|") and following.startswith("|--"):
            header = cells(line)
        elif line.startswith("|") and not line.startswith("|--"):
            rows.append(([heading, *header], cells(line)))
    return rows


def is_part_of(some, others):
    """Return whether the entries of one list stand in another one in the same order."""
    rest = iter(others)
    return all(each in rest for each in some)


@pytest.mark.parametrize(("table", "recorded"), list(quoted_tables()))
def test_benchmarks_page_quotes_recorded_results(table, recorded):
    """A row is part of one recorded row, or each of its figures is in a recorded row with both of its labels."""
    header, *rows = table
    known = recorded_rows(recorded["path"])
    for row in rows:
        if any(is_part_of(row, found) for _, found in known):
            continue
        for column, value in zip(header[1:], row[1:], strict=True):
            places = [{*above, *found} for above, found in known if value in found]
            assert value == "–" or any({row[0], column} <= place for place in places), (row[0], column, value)
    assert recorded["machine"] == [line for line in text(recorded["path"]).splitlines() if line.strip()][-1]
    assert (ROOT / (recorded["module"].replace(".", "/") + ".py")).is_file()


def test_every_table_of_the_benchmarks_page_names_its_record():
    page = text("docs/benchmarks.md")
    tables = re.findall(r"^\|[-:|]+\|$", page, re.M)
    assert len(tables) == len(list(RECORDED.finditer(page))) > 30


def test_page_on_five_ways_quotes_recorded_results():
    known = [found for _, found in recorded_rows("validation/benchmarks/results/five_ways.md")]
    rows = [cells(line) for line in text("docs/five_ways.md").splitlines() if line.startswith("|")][2:]
    assert rows == known


def test_the_guide_quotes_the_acceptance_rates_of_the_convolutional_network():
    page = text("validation/results/cobb_jalaian_table3.md")
    rates = [re.search(rf"^\| {name} \| (0\.\d+) ±", page, re.M)[1] for name in ("symmetric", "full", "randomised")]
    (row,) = [line for line in text("docs/guide/checks.md").splitlines() if "`cobb_jalaian_table3`" in line]
    assert re.findall(r"0\.\d+", row) == rates


def test_the_paper_page_has_the_verdicts_on_figure_1():
    """Draws to the mode of HMC, of both Riemannian schemes, and of HMC and the implicit scheme with ten steps."""
    page = text("validation/results/cobb_figures.md")
    (row,) = [line for line in page.splitlines() if "geometry brings the chain to the mode" in line]
    assert "does not hold with the settings of appendix D.1" in row
    means = [float(each) for each in re.findall(r"([\d.]+) ±", row)]
    hmc, implicit, explicit, _, hmc_10, implicit_10 = means
    (told,) = [
        line for line in text("docs/papers/cobb_2019.md").splitlines() if line.startswith("| 1, draws to the mode")
    ]
    assert "does **not** hold" in told
    quoted = [f"HMC needs {hmc:.0f}", f"implicit scheme {implicit:.0f}", f"explicit one {explicit:.0f}"]
    for words in (*quoted, f"HMC {hmc_10:.0f}, implicit {implicit_10:.1f}"):
        assert words in told

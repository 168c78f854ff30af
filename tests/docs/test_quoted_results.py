"""Figures that guides quote are those of the result pages."""

from __future__ import annotations

import re

from tests.helpers.places import ROOT


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_guide_quotes_the_acceptance_rates_of_the_convolutional_network():
    page = text("validation/results/cobb_jalaian_table3.md")
    rates = [re.search(rf"^\| {name} \| (0\.\d+) ±", page, re.M)[1] for name in ("symmetric", "randomised", "full")]
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

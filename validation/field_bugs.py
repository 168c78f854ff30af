"""Public bugs of other projects as planted bugs: ``python -m validation.field_bugs`` writes ``docs/bugs_of_the_field.md``.

Each was written again, in the style of its project, with a correct counterpart (``refhmc/check/mutants``). The row that finds
it and the seconds are those of ``validation/results/mutation_score.json``, from ``python -m validation.mutation_score``.
"""

from __future__ import annotations

import importlib
import pathlib
import re
from typing import NamedTuple

from validation.common import markdown
from validation.mutation_score import areas, pairs_of, recorded

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "bugs_of_the_field.md"
OWNERS = {
    "AdvancedHMC": "TuringLang/AdvancedHMC.jl",
    "BAT.jl": "bat/BAT.jl",
    "CUQIpy": "CUQI-DTU/CUQIpy",
    "CalibrateEmulateSample": "CliMA/CalibrateEmulateSample.jl",
    "DiffEqFlux": "SciML/DiffEqFlux.jl",
    "DynamicHMC": "tpapp/DynamicHMC.jl",
    "Molly.jl": "JuliaMolSim/Molly.jl",
    "NoLimits.jl": "manuhuth/NoLimits.jl",
    "Pigeons.jl": "Julia-Tempering/Pigeons.jl",
    "SGMCMCJax": "jeremiecoullon/SGMCMCJax",
    "aehmc": "aesara-devs/aehmc",
    "aeppl": "aesara-devs/aeppl",
    "blackjax": "blackjax-devs/blackjax",
    "caustics": "Ciela-Institute/caustics",
    "csgmcmc": "ruqizhang/csgmcmc",
    "edward": "blei-lab/edward",
    "flowMC": "kazewong/flowMC",
    "gam": "SauersML/gam",
    "gamble": "rmculpepper/gamble",
    "keanu": "improbable-research/keanu",
    "mcmc-demo": "chi-feng/mcmc-demo",
    "mcx": "rlouf/mcx",
    "mici": "matt-graham/mici",
    "numpyro": "pyro-ppl/numpyro",
    "nuts-rs": "pymc-devs/nuts-rs",
    "pymc": "pymc-devs/pymc",
    "ran": "synesenom/ran",
    "stan": "stan-dev/stan",
    "tfp": "tensorflow/probability",
    "walnuts": "bob-carpenter/walnuts",
    "walnutpie": "flatironinstitute/walnutpie",
}


class Bug(NamedTuple):
    """A planted bug by its area and id, and its public references, ``project#number`` or ``project commit``."""

    area: str
    id: str
    references: tuple[str, ...]


# Bugs of which the stationary distribution, the acceptance or the length of trajectories is wrong.
DISTRIBUTION = [
    Bug("leaps", "walnuts#17", ("walnuts#17",)),
    Bug("leaps", "walnutpie 7139781", ("walnutpie 7139781",)),
    Bug("leaps", "walnutpie#46", ("walnutpie#46",)),
    Bug("leaps", "walnutpie#57", ("walnutpie#57",)),
    Bug("leaps", "blackjax#625", ("blackjax#625",)),
    Bug("temperings", "blackjax#914", ("blackjax#914",)),
    Bug("transitions", "AdvancedHMC#280", ("AdvancedHMC#280",)),
    Bug("orbits", "AdvancedHMC 2ab8aff", ("AdvancedHMC 2ab8aff",)),
    Bug("leaps", "mcmc-demo#18", ("mcmc-demo#18",)),
    Bug("leaps", "mcmc-demo#23", ("mcmc-demo#23",)),
    Bug("grids", "pymc#2866", ("pymc#2866",)),
    Bug("orbits", "pymc#1787", ("pymc#1787",)),
    Bug("orbits", "walnutpie 052bbe6", ("walnutpie 052bbe6",)),
    Bug("orbits", "T04", ("walnuts#28",)),
    Bug("orbits", "P20b", ("aehmc#45",)),
    Bug("field", "aehmc#45", ("aehmc#45",)),
    Bug("orbits", "M18", ("stan#2178", "stan#2180")),
    Bug("orbits", "M11a", ("blackjax#30",)),
    Bug("orbits", "M11c", ("blackjax#30",)),
    Bug("orbits", "M12a", ("AdvancedHMC#198", "AdvancedHMC#199")),
    Bug("orbits", "M12b", ("AdvancedHMC#199",)),
    Bug("orbits", "M12c", ("AdvancedHMC#199",)),
    Bug("orbits", "nuts-rs 1ebe1cb", ("nuts-rs 1ebe1cb",)),
    Bug("orbits", "blackjax#18", ("blackjax#18",)),
    Bug("orbits", "nuts-rs be2c293", ("nuts-rs be2c293",)),
    Bug("orbits", "CUQIpy#449", ("CUQIpy#449",)),
    Bug("field", "blackjax#653", ("blackjax#653",)),
    Bug("field", "BAT.jl#532", ("BAT.jl#532", "BAT.jl#542")),
    Bug("field", "BAT.jl#564", ("BAT.jl#564",)),
    Bug("field", "CalibrateEmulateSample#448", ("CalibrateEmulateSample#448",)),
    Bug("transitions", "ULA", ("caustics#388",)),
    Bug("transitions", "P16", ("flowMC#78", "flowMC#90")),
    Bug("transitions", "P18", ("mici dadb2b1",)),
    Bug("field", "Pigeons.jl#135", ("Pigeons.jl#135",)),
    Bug("field", "keanu#33", ("keanu#33",)),
    Bug("samplers", "S03", ("gamble#7",)),
    Bug("metrics", "log-det-half", ("mici 653067f",)),
    Bug("integrators", "P06", ("AdvancedHMC#485",)),
    Bug("integrators", "P02", ("keanu#492",)),
    Bug("integrators", "Molly.jl#203", ("Molly.jl#203",)),
    Bug("field", "pymc#800", ("pymc#798", "pymc#800")),
    Bug("field", "aeppl#30", ("aeppl#30",)),
    Bug("field", "NoLimits.jl#283", ("NoLimits.jl#283",)),
    Bug("field", "gam#680", ("gam#680",)),
    Bug("field", "numpyro#1293", ("numpyro#928", "numpyro#1293")),
    Bug("field", "numpyro#1834", ("numpyro#1834",)),
    Bug("field", "numpyro#826", ("numpyro#826",)),
]
# Bugs of warm-up and of the metric that it learns.
ADAPTATION = [
    Bug("adaptation", "M25", ("DynamicHMC#33",)),
    Bug("adaptation", "mcx#40", ("mcx#40",)),
    Bug("adaptation", "walnutpie#27", ("walnuts#48", "walnutpie#27")),
    Bug("adaptation", "AdvancedHMC#220", ("AdvancedHMC#218", "AdvancedHMC#220")),
    Bug("adaptation", "stan#3023", ("stan#3023", "stan#3346")),
    Bug("adaptation", "blackjax#217", ("blackjax#217",)),
    Bug("adaptation", "blackjax#1003", ("blackjax#1003",)),
    Bug("adaptation", "blackjax#116", ("blackjax#116", "aehmc#54")),
    Bug("adaptation", "walnutpie#67", ("walnutpie#67", "walnutpie#69")),
    Bug("metrics", "M29", ("mici 1f690aa",)),
    Bug("metrics", "AdvancedHMC#83", ("AdvancedHMC#82", "AdvancedHMC#83")),
]
# Bugs in the use of random numbers, and in stochastic gradients.
RANDOMNESS = [
    Bug("orbits", "blackjax#53", ("blackjax#53",)),
    Bug("randomness", "numpyro#479", ("numpyro#479",)),
    Bug("samplers", "ran#1038", ("ran#1038",)),
    Bug("minibatches", "B08", ("edward#722", "DiffEqFlux#695")),
    Bug("minibatches", "B06", ("DiffEqFlux#695",)),
    Bug("minibatches", "csgmcmc#1", ("csgmcmc#1",)),
    Bug("minibatches", "blackjax#540", ("blackjax#540",)),
    Bug("field", "SGMCMCJax#69", ("SGMCMCJax#69",)),
]
# Planted bugs that no row finds.
NOT_FOUND = [
    Bug("adaptation", "keanu#346", ("keanu#346",)),
]
# Reports of which no bug is planted, and why.
NOT_PLANTED = {
    ("blackjax#949",): "`check.adaptation` knows the estimates of Stan only, and none of low rank.",
    ("pymc#1421", "pymc#1763", "tfp#542"): "The report shows a bias and does not name the mistake.",
}
SECTIONS = {
    "Stationary distribution and acceptance": DISTRIBUTION,
    "Warm-up and metric": ADAPTATION,
    "Random numbers and stochastic gradients": RANDOMNESS,
}
HEAD = """# Bugs of the field

Mistakes that users or authors of other projects have reported in public. Each is written again as a planted bug, with a
correct counterpart, to see whether the [conformance kit](guide/check_your_sampler.md) finds it. A row of this page names the
report, the check, and the rows of the check that fail. The seconds are those of the whole check.

The planted bugs are new code. Some show only a part of what was reported, or the same mistake in another kind of sampler.
Two rows name a commit that has the mistake, without a report: AdvancedHMC 2ab8aff and walnutpie 052bbe6. The thread of
blackjax#540 doubts a scale, of which the planted form is an assumption. A project may have corrected a mistake since.
"""


def link(reference: str) -> str:
    """Return a reference as a link, if its repository is known."""
    found = re.fullmatch(r"(?P<name>[\w.-]+?)(?:#(?P<number>\d+)| (?P<commit>[0-9a-f]{7,}))", reference)
    owner = OWNERS.get(found["name"]) if found else None
    if found is None or owner is None:
        return reference
    place = f"issues/{found['number']}" if found["number"] else f"commit/{found['commit']}"
    return f"[{reference}](https://github.com/{owner}/{place})"


def not_found() -> str:
    """Return the sections on bugs that no row finds, and on reports without a planted bug."""
    rows = []
    for bug in NOT_FOUND:
        planted = importlib.import_module(f"refhmc.check.mutants.{bug.area}").NOT_FOUND
        pair = next(pair for pair in planted if pair.id == bug.id)
        report = pair.wrong(0)
        failed = ", ".join(row.name for row in report.failures) or "none"
        rows.append([", ".join(map(link, bug.references)), pair.what, f"`check.{report.check}`", failed])
    table = markdown(["reported as", "what is wrong", "check", "failed rows"], rows)
    others = markdown(["reported as", "why"], [[", ".join(map(link, ids)), why] for ids, why in NOT_PLANTED.items()])
    return (
        f"\n## Not found\n\nThese are planted too, but no row of the check fails.\n\n{table}\n"
        f"\nThese reports have no planted bug.\n\n{others}\n"
    )


def page() -> str:
    """Return the text of the page."""
    measured = recorded()
    planted = {(area, pair.id): pair.what for area in areas() for pair in pairs_of(area)}
    bugs = [bug for section in SECTIONS.values() for bug in section]
    of_bugs = [measured[bug.area, bug.id] for bug in bugs]
    found, runs, wrong = (
        sum(row[key] for row in of_bugs) for key in ("as it should", "runs of the counterpart", "false alarms")
    )
    text = f"{HEAD}\n{found} of {len(bugs)} are found; {wrong} of {runs} runs of correct counterparts fail.\n"
    for title, section in SECTIONS.items():
        rows = []
        for bug in section:
            row = measured[bug.area, bug.id]
            where = ", ".join(map(link, bug.references))
            rows.append(
                [where, planted[bug.area, bug.id], f"`{row['check']}`", row["found by"], f"{row['seconds']:.1f}"]
            )
        if rows:
            text += f"\n## {title}\n\n{markdown(['reported as', 'what is wrong', 'check', 'row', 'seconds'], rows)}\n"
    return text + not_found() + "\nMade by `python -m validation.field_bugs`.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Public bugs of other projects as planted bugs: ``python -m validation.field_bugs`` writes ``docs/bugs_of_the_field.md``.

Each was written again, in the style of its project, with a correct counterpart (``refhmc/check/mutants``). The row that finds
it and the seconds are those of ``validation/results/mutation_score.json``, from ``python -m validation.mutation_score``.
"""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

from validation.common import markdown
from validation.mutation_score import areas, last_rows, pairs_of

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "bugs_of_the_field.md"
OWNERS = {
    "AdvancedHMC": "TuringLang/AdvancedHMC.jl",
    "BAT.jl": "bat/BAT.jl",
    "CUQIpy": "CUQI-DTU/CUQIpy",
    "CalibrateEmulateSample": "CliMA/CalibrateEmulateSample.jl",
    "Pigeons.jl": "Julia-Tempering/Pigeons.jl",
    "aehmc": "aesara-devs/aehmc",
    "aeppl": "aesara-devs/aeppl",
    "blackjax": "blackjax-devs/blackjax",
    "caustics": "Ciela-Institute/caustics",
    "gam": "SauersML/gam",
    "gamble": "rmculpepper/gamble",
    "keanu": "improbable-research/keanu",
    "mcmc-demo": "chi-feng/mcmc-demo",
    "mici": "matt-graham/mici",
    "numpyro": "pyro-ppl/numpyro",
    "nuts-rs": "pymc-devs/nuts-rs",
    "pymc": "pymc-devs/pymc",
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
    Bug("transitions", "AdvancedHMC#280", ("AdvancedHMC#280",)),
    Bug("orbits", "AdvancedHMC 2ab8aff", ("AdvancedHMC 2ab8aff",)),
    Bug("leaps", "mcmc-demo#18", ("mcmc-demo#18",)),
    Bug("leaps", "mcmc-demo#23", ("mcmc-demo#23",)),
    Bug("grids", "pymc#2866", ("pymc#2866",)),
    Bug("orbits", "pymc#1787", ("pymc#1787",)),
    Bug("orbits", "walnutpie 052bbe6", ("walnutpie 052bbe6",)),
    Bug("orbits", "T04", ("walnuts#28",)),
    Bug("orbits", "P20b", ("aehmc#45",)),
    Bug("orbits", "blackjax#18", ("blackjax#18",)),
    Bug("orbits", "nuts-rs be2c293", ("nuts-rs be2c293",)),
    Bug("orbits", "CUQIpy#449", ("CUQIpy#449",)),
    Bug("field", "blackjax#653", ("blackjax#653",)),
    Bug("field", "BAT.jl#532", ("BAT.jl#532", "BAT.jl#542")),
    Bug("field", "BAT.jl#564", ("BAT.jl#564",)),
    Bug("field", "CalibrateEmulateSample#448", ("CalibrateEmulateSample#448",)),
    Bug("transitions", "ULA", ("caustics#388",)),
    Bug("transitions", "P18", ("mici dadb2b1",)),
    Bug("field", "Pigeons.jl#135", ("Pigeons.jl#135",)),
    Bug("field", "keanu#33", ("keanu#33",)),
    Bug("samplers", "S03", ("gamble#7",)),
    Bug("metrics", "log-det-half", ("mici 653067f",)),
    Bug("integrators", "P06", ("AdvancedHMC#485",)),
    Bug("field", "pymc#800", ("pymc#798", "pymc#800")),
    Bug("field", "aeppl#30", ("aeppl#30",)),
    Bug("field", "NoLimits.jl#283", ("NoLimits.jl#283",)),
    Bug("field", "gam#680", ("gam#680",)),
    Bug("field", "numpyro#1293", ("numpyro#928", "numpyro#1293")),
    Bug("field", "numpyro#1834", ("numpyro#1834",)),
]
# Bugs of warm-up and of the metric that it learns.
ADAPTATION = [Bug("adaptation", "M25", ("DynamicHMC#33",))]
# Bugs in the use of random numbers, and in stochastic gradients.
RANDOMNESS = [
    Bug("minibatches", "B08", ("edward#722", "DiffEqFlux#695")),
    Bug("minibatches", "B06", ("DiffEqFlux#695",)),
]
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
Two rows name a commit that has the mistake, without a report: AdvancedHMC 2ab8aff and walnutpie 052bbe6. A project may
have corrected a mistake since.
"""


def link(reference: str) -> str:
    """Return a reference as a link, if its repository is known."""
    found = re.fullmatch(r"(?P<name>[\w.-]+?)(?:#(?P<number>\d+)| (?P<commit>[0-9a-f]{7,}))", reference)
    owner = OWNERS.get(found["name"]) if found else None
    if found is None or owner is None:
        return reference
    place = f"issues/{found['number']}" if found["number"] else f"commit/{found['commit']}"
    return f"[{reference}](https://github.com/{owner}/{place})"


def page() -> str:
    """Return the text of the page."""
    measured = {(area, row["bug"]): row for area, rows in last_rows().items() for row in rows}
    planted = {(area, pair.id): pair.what for area in areas() for pair in pairs_of(area)}
    bugs = [bug for section in SECTIONS.values() for bug in section]
    of_bugs = [measured[bug.area, bug.id] for bug in bugs]
    found, runs, wrong = (
        sum(row[key] for row in of_bugs) for key in ("as it should", "twin's runs", "twin's wrong FAILs")
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
    return text + "\nMade by `python -m validation.field_bugs`.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

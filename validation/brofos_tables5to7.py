"""Tables 5 to 7 of Brofos and Lederman (2021): logistic regression, Fisher metric, four integrators, steps 0.1 and 1.

Every trial starts at the posterior mode, found by Newton's method with the Fisher metric, as the published code does (the
text does not say). It matters: from a random start on (-2, 2) no step of size 1 is ever accepted.

The data are those of the first of Raetsch's splits. Which rows these are is known of table 7, heart disease
(``heart_statlog_fold0.json``): it is made with the 100 of the test set. For tables 5 and 6 there are two runs: on the
library's training rows, and (``--rows test``) on random sets of as many rows as Raetsch's test sets have, one a trial.
"""

from __future__ import annotations

import functools
import json

import numpy as np

import refhmc
from validation.brofos_sets import SIZES, heart_split, mode_of, random_set
from validation.brofos_tables import FEWEST, METHODS, OPTIONS, Table, make, not_explained
from validation.common import RESULTS, command_line
from validation.judging import number

MODELS = {5: refhmc.models.BreastCancer, 6: refhmc.models.Diabetes, 7: functools.partial(heart_split, "test")}
DATA = {5: "breast cancer (Ljubljana)", 6: "diabetes", 7: "heart disease"}
ROWS = [(step, steps, method) for step in (0.1, 1.0) for steps in (5, 10, 50) for method in METHODS]

NOTES = {
    "training": "Which rows the paper's tables 5 and 6 were made with is not known. Sets of the training sets' size are "
    "excluded for table 5, not for table 6 (`brofos_training_sets.md`); table 7 is that of a test set. So beside every "
    "difference above stands the same figure on sets of the test sets' size (`--rows test`).",
    "test": "Every trial has rows of its own, drawn at random, as many as Raetsch's test set has (77 and 300). The paper's "
    "trials all have one such set, fold 0's: z sets its figure beside ours as one more set, with the spread over the sets, sd "
    "sqrt(1 + 1/n). So the rows of this table are one observation, not twenty-four, and tell less than one set of known rows.",
    "fold": "The rows are the 100 of the test set in Raetsch's first split of the heart disease data, found by matching his "
    "standardised files to the 270 rows; columns standardised over the 100. The ESS of chains that hardly move does not grow "
    "in proportion to their length: such a row is compared at 10,000 draws a trial only.",
}


@functools.cache
def mode(which: int):
    """A table's model and its posterior mode."""
    model = MODELS[which]()
    return model, mode_of(model)


def of_test_size(which: int, seed: int, trial: int):
    """The model of a random set of rows, as many as Raetsch's test sets have, and its mode."""
    model = random_set(which, "test", "rank", np.random.default_rng([seed, which, trial]))
    return model, mode_of(model)


def on_test_rows(which: int, row: dict, figure: str) -> str:
    """Whether a difference on the training rows is one of the rows: the same figure on sets of the test size."""
    path = RESULTS / f"brofos_table{which}_test_rows.json"
    others = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    key = ("step_size", "n_steps", "method")
    found = next((other for other in others if [other[k] for k in key] == [row[k] for k in key]), None)
    if found is None:
        return f"ours is {row[figure]}; sets of the test size were not run"
    ours, against = found[figure], found["comparison"][figure]
    both = f"ours is {number(row[figure].value)}, published {number(against['paper']['value'])}"
    if ours["n"] < FEWEST:
        return f"{both}; {ours['n']} sets of the test size are too few to say whether it is the number of rows"
    told = f"{against['told']:.2f}" if figure == "acceptance" else f"{against['told'] / against['paper']['value']:.0%}"
    spread = number(ours["error"] * ours["n"] ** 0.5, ours["value"])
    words = {
        "agrees": "the number of rows accounts for it",
        "undecided": f"so many rows would account for it, though one such set tells {told} only",
    }
    return (
        f"{both}; on {ours['n']} sets of "
        f"{SIZES['test'][which]} rows it is {number(ours['value'])}, sd over the sets {spread}, the published "
        f"{-against['z']:+.1f} standard deviations off: {words.get(against['verdict'], 'so many rows do not account for it')}"
    )


def table(which: int, rows: str = "training") -> Table:
    """Table 7, or table 5 or 6 on the library's training rows or on random sets of the size of the test sets."""
    rows = "fold" if which == 7 else rows
    test = rows == "test"
    data = {"training": "the library's training rows", "test": "as many rows as the test set has"}
    data["fold"] = "the 100 test rows of Raetsch's first split"
    return Table(
        name=f"brofos_table{which}" + ("_test_rows" if test else ""),
        command=f"brofos_tables5to7 --table {which}" + (" --rows test" if test else ""),
        title=f"Table {which} of Brofos and Lederman (2021): logistic regression, {DATA[which]}, {data[rows]}",
        paper=f"brofos_lederman_2021_table{which}",
        metric=refhmc.metrics.Fisher(),
        rows=ROWS,
        problem=functools.partial(of_test_size, which) if test else lambda seed, trial: mode(which),
        same=not test,
        varies=test,
        notes=NOTES[rows],
        reason=functools.partial(on_test_rows, which) if rows == "training" else not_explained,
    )


if __name__ == "__main__":
    tables = {"type": int, "choices": sorted(MODELS), "nargs": "+", "default": sorted(MODELS)}
    data = {
        "choices": ("training", "test"),
        "default": "training",
        "help": "tables 5 and 6: the library's training rows, or sets of the test size",
    }
    chosen = command_line(__doc__, table=tables, rows=data, **OPTIONS)
    for which in chosen.table:
        make(table(which, chosen.rows), chosen)

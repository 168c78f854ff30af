"""Tables 5 to 7 of Brofos and Lederman (2021): logistic regression, Fisher metric, four integrators, steps 0.1 and 1.

Every trial starts at the posterior mode, found by Newton's method with the Fisher metric, as the published code does (the
text does not say). It matters: from a random start on (-2, 2) no step of size 1 is ever accepted.
"""

from __future__ import annotations

import functools

import numpy as np

import refhmc
from validation.brofos_tables import METHODS, OPTIONS, Table, make
from validation.common import command_line

MODELS = {5: "BreastCancer", 6: "Diabetes", 7: "Heart"}
IN_WORDS = {5: "breast cancer (Ljubljana)", 6: "diabetes", 7: "heart disease"}
ROWS = [(step, steps, method) for step in (0.1, 1.0) for steps in (5, 10, 50) for method in METHODS]


@functools.cache
def mode(number: int):
    """The model and its posterior mode."""
    model = getattr(refhmc.models, MODELS[number])()
    H = refhmc.Hamiltonian(model, refhmc.metrics.Fisher())
    q = np.zeros(model.dim)
    for _ in range(50):
        q = q + np.linalg.solve(H.mass(q), model.gradient(q))
    return model, q


def table(number: int) -> Table:
    """Table 5, 6 or 7."""
    return Table(
        name=f"brofos_table{number}",
        title=f"Table {number} of Brofos and Lederman (2021): logistic regression, {IN_WORDS[number]}",
        paper=f"brofos_lederman_2021_table{number}",
        metric=refhmc.metrics.Fisher(),
        rows=ROWS,
        problem=lambda seed, trial: mode(number),
        same=True,
    )


if __name__ == "__main__":
    which = {"type": int, "choices": sorted(MODELS), "nargs": "+", "default": sorted(MODELS)}
    chosen = command_line(__doc__, table=which, **OPTIONS)
    for number in chosen.table:
        make(table(number), chosen)

"""Table 1 of Brofos and Lederman (2021): the banana, Fisher metric, four integrators, step 0.1.

Every trial of every row draws data anew, y_i ~ N(1, 2) for i = 1..100, and starts at the truth
(1/2, 1/sqrt 2), as the paper's does.
"""

from __future__ import annotations

import math

import numpy as np

import refhmc
from validation.brofos_tables import METHODS, OPTIONS, Table, make
from validation.common import command_line

TRUTH = np.array([0.5, math.sqrt(0.5)])
ROWS = [(0.1, steps, method) for steps in (5, 10, 50) for method in METHODS]


def banana(seed: int, trial: int):
    """The posterior of one trial's data, and the truth."""
    y = 1.0 + 2.0 * np.random.default_rng([seed, trial]).standard_normal(100)
    return refhmc.models.Banana(y), TRUTH


NOTES = (
    "No figure differs, in spite of two habits of the published code that are not ours: its midpoint solves start from "
    "z + eps/2 f(z), and it takes a solve for converged whose last changes are below the tolerance with their sign."
)


def table() -> Table:
    """Table 1."""
    return Table(
        name="brofos_table1",
        command="brofos_table1",
        title="Table 1 of Brofos and Lederman (2021): the banana",
        paper="brofos_lederman_2021_table1",
        metric=refhmc.metrics.Fisher(),
        rows=ROWS,
        problem=banana,
        same=False,
        notes=NOTES,
    )


if __name__ == "__main__":
    make(table(), command_line(__doc__, **OPTIONS))

"""Table 2 of Brofos and Lederman (2021): Neal's funnel, 10 + 1, SoftAbs metric (alpha = 1e6), 20 steps.

Every trial starts from an exact draw, as the paper's does.
"""

from __future__ import annotations

import numpy as np

import refhmc
from validation.brofos_tables import OPTIONS, Table, make
from validation.common import command_line

ROWS = [(step, 20, method) for step in (0.1, 0.2, 0.5) for method in ("G.L.F.(a)", "I.M.(a)", "I.M.(b)")]


def funnel(seed: int, trial: int):
    """The funnel and an exact draw from it."""
    model = refhmc.models.Funnel(10)
    return model, model.reference.draw(np.random.default_rng([seed, trial]), 1)[0]


NOTES = (
    "No figure differs, in spite of two habits of the published code that are not ours: its midpoint solves start from "
    "z + eps/2 f(z), and it takes a solve for converged whose last changes are below the tolerance with their sign."
)


def table() -> Table:
    """Table 2."""
    return Table(
        name="brofos_table2",
        command="brofos_table2",
        title="Table 2 of Brofos and Lederman (2021): Neal's funnel",
        paper="brofos_lederman_2021_table2",
        metric=refhmc.metrics.SoftAbs(1e6),
        rows=ROWS,
        problem=funnel,
        same=True,
        notes=NOTES,
    )


if __name__ == "__main__":
    make(table(), command_line(__doc__, **OPTIONS))

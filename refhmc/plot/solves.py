"""What the solves of an implicit integrator took, and where they failed."""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.core.sample_stats import NOT_REVERSIBLE, SOLVER_FAILED
from refhmc.plot.canvas import BLUE, PURPLE, RED, colour, legend, panels
from refhmc.plot.runs import FEW_CHAINS, run_of

FAILURES = ((SOLVER_FAILED, "solver failed", "X", RED), (NOT_REVERSIBLE, "not reversible", "v", PURPLE))


def solver_iterations(result: Any, *, figure: Any = None) -> Any:
    """Iterations of the implicit solves for each step of the transitions: along the draws, and as a histogram.

    ``solver_iterations / n_steps`` (chain, draw): all the solves of a transition, those of the way back and those that
    failed included, over its integrator steps (:mod:`refhmc.core.sample_stats`). Crosses are transitions in which a solve
    did not converge (outcome ``solver_failed``), triangles those in which a step did not return (``not_reversible``): both
    were rejected. Of very many chains the first 16 have points; all are in the histogram, and have their failures marked.

    result : a :class:`refhmc.Result`, ArviZ's object, or a file of it.

    Returns the Figure, which is ``figure`` if one is given. Raises ValueError where the integrator is explicit.
    """
    run = run_of(result)
    iterations, steps = run.statistic("solver_iterations"), run.statistic("n_steps")
    if iterations is None or steps is None:
        raise ValueError("the result has no solver_iterations: its integrator is explicit and solves nothing")
    outcome = run.statistic("outcome")
    a_step = iterations / np.maximum(steps, 1)
    figure, ((along, beside),) = panels(figure, 1, 2, 10, 3.6, gridspec_kw={"width_ratios": [3, 1]}, sharey=True)
    for chain, of_chain in enumerate(a_step[:FEW_CHAINS]):
        along.plot(of_chain, ".", ms=2, color=colour(chain), alpha=0.6)
    for code, words, marker, shade in FAILURES if outcome is not None else ():
        chains, draws = np.nonzero(np.asarray(outcome) == code)
        if len(draws):
            along.plot(draws, a_step[chains, draws], marker, color=shade, ms=6, label=f"{words}: {len(draws)}")
    if a_step.size:
        edges = np.linspace(a_step.min(), max(a_step.max(), a_step.min() + 1), 41)
        beside.hist(a_step.ravel(), bins=edges, orientation="horizontal", color=BLUE, alpha=0.6)
    along.set(xlabel="draw", ylabel="solver iterations a step")
    beside.set(xlabel="transitions")
    legend(along)
    return figure

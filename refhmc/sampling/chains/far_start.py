"""Decide during warm-up whether a chain's start was hopeless, and find a better one.

A chain whose step size is adapted is checked for the symptoms of :mod:`refhmc.adaptation.symptoms` early in warm-up
(:func:`look_after`) and again after the last iteration of warm-up. At the first check, a chain with a symptom runs Pathfinder
from its own start and stream, exactly as ``init="pathfinder"`` does. If the log density at the start found is higher by more
than 1000 + 100 d, the chain restarts there for the rest of warm-up; 100 + 10 d is enough if the log density has risen by 10^6
since the start. A start given by the user is not replaced. Without a better start, a chain with a hopeless symptom ends with a
:class:`refhmc.errors.WarmupError`; any other chain continues.

All of this depends on the chain's own numbers alone. A chain that restarted is checked like a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refhmc.adaptation.from_pairs import inverse_mass_of
from refhmc.adaptation.length import length_windows
from refhmc.adaptation.symptoms import (
    WHAT_TO_DO,
    Symptom,
    are_unresolved,
    far,
    frozen,
    risen,
    running_off,
    typical_step,
    unresolved,
)
from refhmc.adaptation.windows import schedule_array
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q
from refhmc.core.types import JUMPING
from refhmc.errors import _see
from refhmc.metrics.base import AS_STAN, NOTHING
from refhmc.metrics.euclidean import Euclidean
from refhmc.metrics.low_rank import LowRank
from refhmc.sampling.results.review import listed

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.chains.chain import BlockPlan, BlockState, Chain, Plan

EARLIEST, LATEST, SHARE = 100, 250, 4  # the first check: after 1/4 of warm-up, within these bounds
MARGIN, MARGIN_PER_COORDINATE = 1000.0, 100.0  # of the log density
AFTER_A_RISE = 0.1  # a factor of the margin


def look_after(tune: int) -> int:
    """Return the iteration of warm-up after which a chain is first checked; 0 if warm-up is too short for a restart."""
    first = min(tune // SHARE, LATEST)
    return first if first >= EARLIEST else 0


def symptom_of(chain: Chain, control: np.record) -> Symptom | None:
    """Return the most severe symptom of the chain's blocks."""
    with np.errstate(all="ignore"):
        found = [symptom_of_block(block, began_again=control.far_start > 0) for block in chain.blocks]
    found.append(rise_of(chain, control))
    return min((each for each in found if each is not None), key=lambda each: each.severity, default=None)


def rise_of(chain: Chain, control: np.record) -> Symptom | None:
    """Return the symptom of a chain with one block, in its first attempt, whose log density has risen by much."""
    if not chain.alone or control.far_start != 0 or not chain.blocks[0].plan.warmup[0].adapt_step:
        return None
    return risen(float(chain.blocks[0].state[LOG_DENSITY, 0]), float(control.start_level))


def symptom_of_block(block: BlockState, began_again: bool) -> Symptom | None:
    """Return the most severe symptom of a block whose step size is adapted."""
    plan = block.plan
    names, metric = plan.conditional.model.names, block.dynamics.metric
    if not plan.warmup[0].adapt_step:
        return None
    q, g, L = block.state[Q], block.state[GRADIENT], float(block.state[LOG_DENSITY, 0])
    if block.dynamics.pointers[0] == JUMPING:
        return unresolved(L)
    runs = running_off(names, q, g) if began_again else None
    if not isinstance(metric, Euclidean):
        return runs or unresolved(L)
    variances, size = inverse_mass_and_size(block, g)
    found = runs or frozen(names, q, typical_step(variances, block.settings[0].step_size, g)) or unresolved(L)
    if found is not None or getattr(metric, "learns", NOTHING) in (NOTHING, AS_STAN):
        return found
    return far(size, len(q))


def inverse_mass_and_size(block: BlockState, g: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the diagonal of M^-1, (d,), and g' M^-1 g, of a metric that does not depend on the position."""
    metric = block.dynamics.metric
    if metric.is_dense:
        return np.diag(block.mats[0]), float(g @ block.mats[0] @ g)
    if isinstance(metric, LowRank):
        variances, V, spread = inverse_mass_of(block)
        return variances + spread @ V**2, float(variances @ g**2 + spread @ (V @ g) ** 2)
    return block.vecs[0], float(block.vecs[0] @ g**2)


def far_better(
    model: Model, q: np.ndarray, why: str, here: np.ndarray, control: np.record, has_risen: bool = False
) -> tuple[np.ndarray | None, str]:
    """Return the start `q` that Pathfinder found if it is far better than `here`, and a clause about the search.

    `why` is the reason if Pathfinder found none. `has_risen`: the log density has risen by much since the start.
    """
    if why:
        return None, f"; Pathfinder found no other start ({why})"
    there, now = (float(model.core.value_and_gradient(each)[0]) for each in (q, here))
    control.gradients += 2
    margin = (MARGIN + MARGIN_PER_COORDINATE * model.dim) * (AFTER_A_RISE if has_risen else 1.0)
    if there - now > margin and not are_unresolved(np.asarray(there)):
        return q, f"; Pathfinder found a start with the log density {there:.3g}"
    return None, f"; the start that Pathfinder found is not better (log density {there:.3g})"


def shortened(plan: Plan, tune: int) -> Plan:
    """Return the plan of a chain that has ``tune`` iterations of warm-up left."""
    return plan._replace(blocks=tuple(shortened_block(block, tune) for block in plan.blocks))


def shortened_block(block: BlockPlan, tune: int) -> BlockPlan:
    """Return the plan of a block with the windows of ``tune`` iterations."""
    warmup = block.warmup.copy()
    warmup[0].tune = tune
    return block._replace(
        windows=schedule_array(tune, block.dynamics.metric.learns),
        length_windows=length_windows(tune if len(block.length_windows) else 0),
        warmup=warmup,
    )


def warnings_of(controls: list[np.record], tune: int) -> list[str]:
    """Return the warnings about chains that restarted, and about those whose given start was hopeless."""
    values = [int(control.far_start) for control in controls]
    again = [k for k, value in enumerate(values) if value > 0]
    given = [k for k, value in enumerate(values) if value < 0]
    found = []
    if again:
        found.append(
            f"{len(again)} of {len(values)} chains ({listed(again)}) made no progress from the default start and restarted "
            f"after {values[again[0]]} of {tune} iterations of warm-up, where Pathfinder found a far higher log density. Their "
            f"warm-up was shorter, and Pathfinder may have missed another mode. {WHAT_TO_DO.rstrip('.')}, or use "
            f"init='pathfinder' from the beginning. {_see('far-start')}"
        )
    if given:
        found.append(
            f"The start given by initvals is far from the posterior in {len(given)} of {len(values)} chains ({listed(given)}): "
            f"after {-values[given[0]]} of {tune} iterations of warm-up the log density was far below that of a point found by "
            "Pathfinder. The draws may come from a region of negligible probability. "
            f"{WHAT_TO_DO.rstrip('.')}, or use init='pathfinder'. {_see('far-start')}"
        )
    return found

"""``refhmc.check.orbit``: is a tree sampler's law exactly invariant? Asked on single orbits, without sampling.

A transition of NUTS, or of any other sampler that walks along the orbit z_i of a reversible, volume-preserving map and stops at
one of its states, is a Markov matrix K(i -> j) on that orbit. It leaves pi exactly invariant if

    sum_i pi(z_i) K(i -> j) = pi(z_j)        for every j

and K is computed by trying all answers to the random questions the transition asks (``subject/enumeration.py``), from
every state that can reach z_j. Where this fails, the weaker statement that the position's law asks for is looked at too, with
F(q, p) = (q, -p):

    sum_i pi(z_i) (K(z_i -> q_j) + K(F z_i -> q_j)) = 2 pi(z_j)

A row fails only if both do, and ordinary runs confirm the computed K. Orbits: ``orbits/states.py``.

Here: the call and the rows in their order, each a function of the :class:`OrbitExamination`; what becomes of a failing orbit is
in ``orbits/verdicts.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from refhmc.check import own
from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Rows
from refhmc.check.orbits.calls import answers, leap_reversible
from refhmc.check.orbits.ends import depths, directions, stays, sums
from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.invariance import invariance, large_steps, limit, wall
from refhmc.check.orbits.patterns import diagnose, notes
from refhmc.check.orbits.sampled import ALPHA, sampled
from refhmc.check.orbits.shapes import of_refhmc
from refhmc.check.orbits.verdicts import REFUTED
from refhmc.check.report import INEFFICIENT, Report
from refhmc.check.subject.foreign import SECONDS_PER_CALL

ROWS: Rows = (
    ("leap reversible", leap_reversible),
    ("answers", answers),
    ("invariance", invariance),
    ("invariance at large steps", large_steps),
    ("invariance across a wall", wall),
    ("divergence threshold", limit),
    ("invariance, sampled", sampled),
    ("stays on the orbit", stays),
    ("probabilities sum to one", sums),
    ("depth", depths, INEFFICIENT),
    ("reaches both directions", directions),
)


def orbit(
    transition: Any,
    leap: Any = None,
    target: Any = None,
    depth: int = 3,
    *,
    eps: float | Sequence[float] | None = None,
    dim: int | None = None,
    H: Any = None,
    p0: Any = None,
    points: Sequence = (),
    order: Sequence[int] | None = None,
    threshold: float | None = None,
    seconds: float | None = 120.0,
    most_runs: int = 60_000,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Whether ``transition`` leaves the target's law exactly invariant, on enumerated orbits of ``leap``.

    transition : ``transition(draws, q, p) -> q``, the momentum given; or with the arguments in another order, with a NumPy
        generator in the place of draws, without p (it is then the first normals asked for: unit mass), or a kernel of refhmc.
        It answers q, (q, p), an object with ``q`` or ``position``, or the whole number of steps it moved. All its randomness
        must be asked from draws (:class:`refhmc.check.Draws`). If it has parameters named ``eps`` (step_size, ...) or
        ``depth`` (max_depth, ...), they are given; so are ``leap`` and ``target``.
    leap : ``leap(q, p, eps) -> (q, p)``, or ``leap(q, p)`` with its step bound: the map whose orbit it walks.
    target : a log density q -> number, something with ``log_density(q)`` (unit mass), or the energy H(q, p).
    depth : the tree depth the transition was made with; it can go 2^depth - 1 steps.
    eps : the step of ``leap``, where it takes one; several, if the transition takes it too. H : the energy, if ``target`` is
    not enough. p0 : momentum of the first of ``points``, positions (d,) or pairs (q, p) to be tried before random ones.
    order : the answer to each permutation of so many things that the transition asks for. One that draws the order of a
    split's parts for a trajectory keeps the law in each order; ``leap`` is the step in this one.
    threshold : the limit at which the transition calls a trajectory divergent. Given, a rule that is not the same seen from
    all states of a trajectory fails; left out, it is only looked for at 1000 and mentioned.
    seconds : the budget in processor seconds of this process and its children; five times as many by the clock end it too.
    The enumerations may take three quarters of it. None means no limit. most_runs : the budget in transitions run.

    Raises TypeError or ValueError on arguments that cannot be what they should be; nothing else.
    """
    if own.is_kernel(transition):
        eps = transition.step_size if eps is None else eps
        depth = min(depth, getattr(transition, "max_treedepth", depth))
        name = name or type(transition).__name__
        transition, leap, H = of_refhmc(type(transition)(**{**vars(transition), "max_treedepth": depth}), target)
    if target is None and H is None:
        raise TypeError("orbit: target or H must be given")
    if not callable(leap):
        raise TypeError(f"orbit: leap must be callable, got {type(leap).__name__}")
    require_counts(dim=dim, most_runs=most_runs)
    require_times(seconds=seconds)
    if int(depth) != depth or not 1 <= depth <= 12:
        raise ValueError(f"depth must be a whole number from 1 to 12, got {depth!r}")
    if order is not None and sorted(order) != list(range(len(order))):
        raise ValueError(f"order must have each of 0, 1, ... once, got {order!r}")
    part = math.inf if seconds is None else 0.75 * seconds
    test = OrbitExamination(
        transition,
        leap,
        target,
        int(depth),
        eps,
        dim,
        H,
        p0,
        points,
        order,
        threshold,
        part,
        most_runs,
        seed,
        like,
        name,
    )
    test.settings = {
        "depth": test.depth,
        **({} if eps is None else {"eps": eps}),
        **({} if dim is None else {"dim": dim}),
    }
    return test.report(
        "orbit",
        ROWS,
        remarks=notes,
        diagnose=diagnose,
        seconds_per_call=seconds_per_call,
        seconds=seconds,
        false_alarm="enumerated rows: none; confirmed by ordinary runs before they fail (wrongly refuted with chance "
        f"{REFUTED:g}); a sampled row, where there is one: {ALPHA:g}",
    )

"""``check.orbit``: whether a tree sampler leaves its target exactly invariant, checked on single orbits without sampling.

A transition of NUTS, or of any other sampler that moves along the orbit z_i of a reversible, volume-preserving map and stops at
one of its states, is a Markov matrix K(i -> j) on that orbit. It leaves pi exactly invariant if

    sum_i pi(z_i) K(i -> j) = pi(z_j)        for every j

K is computed by trying all answers to the random questions of the transition (``subject/enumeration.py``), from
every state that can reach z_j. If this fails, a weaker condition that suffices for the distribution of the position is checked
too, with F(q, p) = (q, -p):

    sum_i pi(z_i) (K(z_i -> q_j) + K(F z_i -> q_j)) = 2 pi(z_j)

A row only fails if both fail, and ordinary runs confirm the computed K. Orbits: ``orbits/states.py``.

This module has the function and the rows in their order, each a function of the :class:`OrbitExamination`. Failing orbits are
confirmed in ``orbits/verdicts.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from refhmc.check import own
from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Rows
from refhmc.check.orbits.calls import answers, leap_reversible
from refhmc.check.orbits.ends import depths, directions, energy_error, stays, sums
from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.invariance import invariance, large_steps, limit, wall
from refhmc.check.orbits.momenta import change_of_units, kept_momentum
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
    ("kept momentum", kept_momentum),
    ("equivariance", change_of_units, INEFFICIENT),
    ("stays on the orbit", stays),
    ("probabilities sum to one", sums),
    ("depth", depths, INEFFICIENT),
    ("reaches both directions", directions),
    ("energy error", energy_error, INEFFICIENT),
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
    keeps_momentum: bool = False,
    make: Callable | None = None,
    gradient: Callable | None = None,
    dense: bool = False,
    seconds: float | None = 120.0,
    most_runs: int = 60_000,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check that a tree sampler leaves a distribution exactly invariant, on enumerated orbits.

    A transition of NUTS, or of any sampler that stops at a state of the orbit z_i of a map, is a Markov matrix K(i -> j) on
    this orbit. All answers to its random decisions are enumerated, and the main rows compare::

        sum_i pi(z_i) K(i -> j) = pi(z_j)

    on orbits of ordinary states, across energy peaks of tens to thousands of nats (diverging trajectories), next to states of
    density zero, and at the divergence threshold. Further rows check that K stays on the orbit, sums to one, respects the depth
    and reaches both directions. On request, the returned momentum and a change of units are checked too.

    The check finds wrong edge momenta, U-turn checks of unmerged trees, wrong weights, kept proposals of diverging subtrees and
    one-sided trees. It does not examine the map (use :func:`integrator`), nor rules that only matter beyond `depth`. The
    enumeration has rounding error only, and a correct sampler passes. A failure is confirmed by ordinary runs, which wrongly
    contradict the enumeration with probability 1e-10. If an orbit is too large, a sampled row with a false-alarm rate of
    1e-6 replaces the enumeration.

    Parameters
    ----------
    transition : callable or refhmc kernel
        ``transition(draws, q, p)`` on a given momentum returns q, (q, p), an object with q or position, or the number of steps
        it moved along the orbit. An ``energy_error`` of an object or mapping must be H(end) - H(start). All randomness must
        come from `draws`, a :class:`Draws`, or from a NumPy generator as `rng`. Without `p`, the first normal numbers are the
        momentum (unit mass). Parameters named ``eps`` (``step_size``, ...), ``depth`` (``max_depth``, ...), ``leap`` and
        ``target`` receive these values.
    leap : callable, optional
        Map along whose orbit the transition moves: ``leap(q, p, eps) -> (q, p)``, or ``leap(q, p)`` with a fixed step.
        Not needed for kernels of refhmc.
    target : callable or object, optional
        Log density of q, an object with ``log_density`` (unit mass in both cases), the energy H(q, p), or a model of refhmc.
    depth : int, default 3
        Tree depth of the transition, from 1 to 12; it can make 2^depth - 1 steps.
    eps : float or sequence of float, optional
        Step size of `leap`; several if the transition takes it too.
    dim : int, optional
        Dimension of q; by default taken from `points` or `target`, or found by trying.
    H : callable or object, optional
        Energy ``H(q, p)``, if `target` does not define it.
    p0 : array_like, shape (dim,), optional
        Momentum of the first of `points`.
    points : sequence, optional
        Positions of shape (dim,), or pairs (q, p), that are tried before random ones.
    order : sequence of int, optional
        Answer to each permutation of this length that the transition draws. A transition that draws the order of a split's
        parts leaves the distribution invariant in each order; `leap` must use this one.
    threshold : float, optional
        Energy error at which the transition calls a trajectory divergent. If given, a rule that depends on the start of the
        trajectory fails; by default such a rule is only searched at 1000 and reported.
    keeps_momentum : bool, default False
        Whether the next transition starts from the returned momentum. If so, the joint distribution of position and returned
        momentum is checked too, with transitions from both signs of the momentum.
    make : callable, optional
        ``make(log_density, gradient, inverse_mass)`` returns the transition for another density, with the diagonal of the
        inverse mass matrix, shape (dim,). If given, the same trajectory in other units must give the same end.
    gradient : callable, optional
        Gradient of the log density `target`, for `make`.
    dense : bool, default False
        Whether `make` takes an inverse mass matrix, shape (dim, dim), too. If so, dense ones are also tried.
    seconds : float or None, default 120.0
        Budget in processor seconds; the check also ends after five times this wall-clock time. Enumerations take at most three
        quarters of it. None means no limit.
    most_runs : int, default 60000
        Largest number of transitions.
    seed : int, default 20261121
        Seed of the orbits.
    like : callable, module or array, optional
        Array type of the arguments: a conversion function, a module with ``asarray``, or an example array. NumPy float64 by
        default.
    name : str, optional
        Name of the subject in the report.
    seconds_per_call : float or None, default 30.0
        A call that takes longer is a FAIL. None means no limit.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    TypeError
        If neither `target` nor `H` is given, or `leap` or `transition` is not callable.
    ValueError
        If `depth`, `order`, `dim`, `most_runs` or `seconds` is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> def leap(q, p, eps):  # standard normal target
    ...     half = p - eps / 2 * q
    ...     new = q + eps * half
    ...     return new, half - eps / 2 * new
    >>> def transition(draws, q, p, eps):  # a neighbour on either side, by Metropolis's rule
    ...     new = leap(q, p, eps if draws.flip(np.log(0.5)) else -eps)
    ...     error = (new[0] @ new[0] + new[1] @ new[1] - q @ q - p @ p) / 2
    ...     return new[0] if draws.flip(-error) else q
    >>> report = refhmc.check.orbit(transition, leap, lambda q: -0.5 * q @ q, depth=1, eps=0.5, dim=1)
    >>> report.status, report.row("invariance").status
    ('PASS', 'PASS')
    """
    if own.is_kernel(transition):
        eps = transition.step_size if eps is None else eps
        depth = min(depth, getattr(transition, "max_treedepth", depth))
        name = name or type(transition).__name__
        transition, leap, H = of_refhmc(type(transition)(**{**vars(transition), "max_treedepth": depth}), target)
    if target is None and H is None:
        raise TypeError("target or H must be given; got neither.")
    if not callable(leap):
        raise TypeError(f"leap must be callable; got {type(leap).__name__}.")
    require_counts(dim=dim, most_runs=most_runs)
    require_times(seconds=seconds)
    if int(depth) != depth or not 1 <= depth <= 12:
        raise ValueError(f"depth must be an integer from 1 to 12; got {depth!r}.")
    if order is not None and sorted(order) != list(range(len(order))):
        raise ValueError(f"order must contain each of 0, 1, ... once; got {order!r}.")
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
        keeps_momentum,
        make,
        gradient,
        dense,
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
        false_alarm="enumerated rows: none; a failure is confirmed by ordinary runs (wrongly contradicted with probability "
        f"{REFUTED:g}); a sampled row, if there is one: {ALPHA:g}",
    )

"""One transition of a kernel, with its randomness in our hands: is the target its law?

The kernel (``subject/transition.py``) is called many times on the same numbers but one. From that come, without a look
inside, the probability of each of its outcomes (``subject/outcomes.py``: the uniform at which its mind changes) and
the density of its moves (``transitions/balance.py``). The rows are told in

    detailed_balance.py    detailed balance, acceptance, rejection
    refusals.py            noise that is refused with certainty: is its way back, too?
    memory.py              stateless: nothing of the calls before is in the answer, nor how many they were
    momentum.py            a momentum that is kept: its refreshment, its flip and the move's volume
    faults.py              no length, NaN energies, another constant of the log density
    stationarity.py        where detailed balance decides nothing

A kernel that is not reversible need not be wrong. FAIL is said of detailed balance where all noise enters every move, there is
one way back only and it does not match, and the kernel decides; where it never decides, only after a test of stationarity.
Nor is one shown to be right by a statistical test: where detailed balance has no answer, and no quadrature either, the report
is INCONCLUSIVE, and the kernel a matter for check.orbit or check.sampler.

Here: the call and the rows in their order, each a function of the :class:`TransitionExamination`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.check import adapters, own
from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Rows
from refhmc.check.report import Report
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign
from refhmc.check.subject.target import target_density
from refhmc.check.transitions.calls import answers, deterministic
from refhmc.check.transitions.detailed_balance import detailed_balance
from refhmc.check.transitions.examination import TransitionExamination
from refhmc.check.transitions.faults import nan_energy, overflow, shift_invariance, zero_length
from refhmc.check.transitions.memory import stateless
from refhmc.check.transitions.momentum import returned_momentum
from refhmc.check.transitions.patterns import typical

FALSE_ALARM = (
    "deterministic checks: a correct subject passes whatever the seed; 'stationarity', where it is run: at most 1e-6"
)
ROWS: Rows = (
    ("answers", answers),
    ("deterministic given randomness", deterministic),
    ("stateless", stateless),
    ("detailed balance", detailed_balance),
    ("momentum flip", returned_momentum),
    ("zero-length", zero_length),
    ("overflow", overflow),
    ("nan energy", nan_energy),
    ("shift invariance", shift_invariance),
)


def transition(
    kern: Any,
    H: Any = None,
    *,
    dim: int | None = None,
    log_density: Callable | None = None,
    gradient: Callable | None = None,
    make: Callable | None = None,
    points: Any = None,
    n_points: int = 8,
    delta: float = 0.0,
    seconds: float | None = 60.0,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Whether a kernel leaves the law of ``H`` invariant, from single transitions on given randomness.

    kern : ``kern(q, p0=, u=)``, ``kernel(draws, q)``, ``kernel(rng, q)`` or, with a momentum that is kept,
        ``kernel(draws, q, p)`` (see ``subject/transition.py``), or one of refhmc's kernels. q, p0 (d,), u a number in [0, 1).
    H : the energy H(q, p), a refhmc Hamiltonian or model, a target with ``log_density``, or the log density of q.
        For ``kern(q, p0=, u=)`` the momentum has the law exp(-H(q, .)); a standard normal where only a log density is given.
    dim : found from H, or by trying, if left out. points : (n, d) positions to start from.
    make : ``make(log_density, gradient) -> kern``, so that the density can be tampered with; with ``log_density`` and
        ``gradient``, or those of H. delta : the tolerance of the kernel's implicit solver.
    seconds : the budget of the whole check in processor seconds of this process and its children; five times as many by the
        clock end it too. What is not done then is INCONCLUSIVE or NOT RUN. After a third of it, no further point is started.
        None means no limit, and the same work on any machine.

    Returns a :class:`~refhmc.check.Report`. Raises TypeError if ``kern`` is not callable or H describes no law,
    ValueError for counts or seconds that are not positive.
    """
    require_counts(dim=dim, n_points=n_points)
    require_times(seconds=seconds)
    if own.is_kernel(kern):
        model = getattr(H, "model", H)
        in_an_order = hasattr(kern, "n_steps") and adapters.drawn_parts(kern, model) > 0
        name = name or f"refhmc's {type(kern).__name__}"
        kern = (adapters.refhmc_hmc_in_an_order if in_an_order else adapters.refhmc_kernel)(model, kern)
    subject = Foreign(kern, name, like)
    target = target_density(H, log_density, like)
    given = None if points is None else np.atleast_2d(np.asarray(points, dtype=float))
    dim = given.shape[1] if given is not None else target.dim if dim is None else int(dim)
    base = log_density or getattr(H, "log_density", None) or getattr(getattr(H, "model", None), "log_density", None)
    slope = gradient or getattr(H, "gradient", None) or getattr(getattr(H, "model", None), "gradient", None)
    part = math.inf if seconds is None else seconds / 3
    test = TransitionExamination(subject, target, dim, given, n_points, float(delta), part, seed, make, base, slope)
    test.settings = {"dim": test.dim or "?", "n_points": n_points}
    return test.report(
        "transition",
        ROWS,
        diagnose=typical,
        seconds_per_call=seconds_per_call,
        seconds=seconds,
        share=0.7,
        false_alarm=FALSE_ALARM,
    )

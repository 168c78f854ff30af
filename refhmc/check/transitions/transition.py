"""``check.transition``: single transitions of a kernel on given randomness, compared with the target.

The kernel (``subject/transition.py``) is called many times with the same numbers except one. From its answers alone follow
the probability of each of its outcomes (``subject/outcomes.py``: the uniform at which its decision changes) and
the density of its moves (``transitions/balance.py``). The rows are in

    detailed_balance.py    detailed balance, acceptance, rejection
    refusals.py            noise that is rejected with certainty: whether its reverse is too
    memory.py              stateless: neither earlier calls nor their number affect the answer
    momentum.py            a momentum that is kept: its refreshment, its flip and the move's volume
    velocity.py            the same for a unit velocity, with the Jacobian of the move on the sphere
    faults.py              zero length, NaN energies, a shifted log density, a change of units
    stationarity.py        for kernels on which detailed balance decides nothing

A kernel that is not reversible need not be wrong. Detailed balance can only FAIL if all noise affects every move, there is
only one reverse move and it does not match, and the kernel decides. If it never decides, a test of stationarity is needed too.
A statistical test cannot show that a kernel is right either: if neither detailed balance nor quadrature has an answer, the
report is INCONCLUSIVE, and the kernel should be examined by check.orbit or check.sampler.

This module has the function and the rows in their order, each a function of the :class:`TransitionExamination`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.check import adapters, own
from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Rows
from refhmc.check.report import INEFFICIENT, Report
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign
from refhmc.check.subject.target import target_density
from refhmc.check.transitions.calls import answers, deterministic
from refhmc.check.transitions.detailed_balance import detailed_balance
from refhmc.check.transitions.examination import TransitionExamination
from refhmc.check.transitions.faults import change_of_units, nan_energy, overflow, shift_invariance, zero_length
from refhmc.check.transitions.memory import stateless
from refhmc.check.transitions.momentum import returned_momentum
from refhmc.check.transitions.patterns import typical

FALSE_ALARM = (
    "deterministic checks: correct code passes with every seed, unless repeated searches miss its reverse moves at three "
    "points; 'stationarity', if it is run: at most 1e-6"
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
    ("equivariance", change_of_units, INEFFICIENT),
)


def transition(
    kern: Any,
    H: Any = None,
    *,
    dim: int | None = None,
    log_density: Callable | None = None,
    gradient: Callable | None = None,
    make: Callable | None = None,
    dense: bool = False,
    sphere: bool = False,
    points: Any = None,
    n_points: int = 8,
    delta: float = 0.0,
    seconds: float | None = 60.0,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check that single transitions of a kernel leave a distribution invariant, on given randomness.

    The kernel maps q and noise w (normal numbers or a momentum) to q' = F(q, w) with probability P. The main row compares both
    sides of detailed balance in terms of densities::

        pi(q) phi(w) P / |det dF/dw| = pi(q') phi(w') P' / |det dF/dw'|,    F(q', w') = q

    P is found by bisection in the kernel's uniform number, the derivatives by extrapolated differences, and the reverse noise
    w' by root finding. For HMC the acceptance probability must be min(1, exp(H(q, w) - H(q', w'))). Further rows check that
    rejection returns the start, that earlier calls do not matter, zero trajectory length, NaN energies and shifts of the log
    density. A kernel that keeps its momentum is checked for refreshment, volume, acceptance, flip and stationarity. If it has
    several proposals, as in delayed rejection, the outcomes of all stages are enumerated. If it keeps a unit velocity, its
    proposals are accepted with min(1, pi(q') J / pi(q)), J the Jacobian of the move on the sphere, by differences.

    If a trajectory refreshes its momentum on the way (:class:`refhmc.MALT`), many w' lead back. The kernel can return the
    positions between its steps, and both sides are compared for whole paths. If only the direction of the noise matters
    (:class:`refhmc.MAMS` without persistence), q' lies on a surface, and both sides are densities on it.

    Uniforms that decide integers, such as a number of steps (:class:`refhmc.GIST`), are enumerated. If several uniforms decide
    together, as two thresholds do (:class:`refhmc.AutoStep`), balance is examined at given values of them. A move that is not
    in balance there is examined again over all values, where a FAIL needs three moves and fewer are INCONCLUSIVE.

    Parameters
    ----------
    kern : callable or refhmc kernel
        ``kern(q, p0=p, u=u)`` on a given momentum and uniform number, ``kernel(draws, q)`` with :class:`Draws`,
        ``kernel(rng, q)`` with a NumPy generator, or ``kernel(draws, q, p)``, which keeps its momentum and returns (q, p). It
        returns q of shape (dim,), or an object or mapping with q or position, and optionally with ``path``, the positions
        between its n steps, shape (n - 1, dim). Kernels of refhmc need a model as `H`.
    H : callable or object, optional
        Energy ``H(q, p)``, log density of q, a Hamiltonian or model of refhmc, or an object with ``log_density``. For
        ``kern(q, p0=p, u=u)`` the momentum has density exp(-H(q, .)), or is standard normal with a log density.
    dim : int, optional
        Dimension of q; by default taken from `H` or `points`, or found by trying.
    log_density : callable, optional
        Log density of q, if it does not follow from `H`.
    gradient : callable, optional
        Gradient of `log_density`, passed to `make`.
    make : callable, optional
        ``make(log_density, gradient)`` returns the kernel for another density. Rows that modify the density need it. With a
        third parameter, the diagonal of the inverse mass, the same transition in other units must have the same end.
    dense : bool, default False
        Whether `make` takes an inverse mass matrix, shape (dim, dim), too. If so, dense ones are also tried.
    sphere : bool, default False
        Whether the momentum of ``kernel(draws, q, p)`` is a unit vector with a uniform distribution, as that of
        microcanonical samplers. It is the case for :class:`refhmc.MAMS`.
    points : array_like, shape (n, dim), optional
        Positions to start from; by default points in the bulk of the target.
    n_points : int, default 8
        Number of points.
    delta : float, default 0.0
        Tolerance of the kernel's implicit solver.
    seconds : float or None, default 60.0
        Budget in processor seconds; the check also ends after five times this wall-clock time. Unfinished rows are INCONCLUSIVE
        or NOT RUN. None means no limit and the same work on any machine.
    seed : int, default 20261121
        Seed of points and noise.
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
        If `kern` is not callable or `H` does not define a distribution.
    ValueError
        If `dim`, `n_points` or `seconds` is invalid.

    References
    ----------
    Horowitz (1991), "A generalized guided Monte Carlo algorithm", for kernels that keep their momentum.

    Examples
    --------
    >>> import numpy as np
    >>> def hmc(draws, q):  # standard normal target, one leapfrog step
    ...     p = draws.normal(len(q))
    ...     half = p - 0.4 * q
    ...     new = q + 0.8 * half
    ...     end = half - 0.4 * new
    ...     error = (new @ new + end @ end - q @ q - p @ p) / 2
    ...     return new if draws.uniform() < np.exp(-error) else q
    >>> report = refhmc.check.transition(hmc, lambda q, p: (q @ q + p @ p) / 2, dim=2, n_points=4)
    >>> report.status, report.row("detailed balance").status
    ('PASS', 'PASS')
    """
    require_counts(dim=dim, n_points=n_points)
    require_times(seconds=seconds)
    if own.is_kernel(kern):
        model = getattr(H, "model", H)
        in_an_order = hasattr(kern, "n_steps") and adapters.drawn_parts(kern, model) > 0
        name = name or f"refhmc's {type(kern).__name__}"
        sphere = sphere or (getattr(kern, "microcanonical", False) and getattr(kern, "keeps_momentum", False))
        kern = (adapters.refhmc_hmc_in_an_order if in_an_order else adapters.refhmc_kernel)(model, kern)
    subject = Foreign(kern, name, like)
    target = target_density(H, log_density, like)
    given = None if points is None else np.atleast_2d(np.asarray(points, dtype=float))
    dim = given.shape[1] if given is not None else target.dim if dim is None else int(dim)
    base = log_density or getattr(H, "log_density", None) or getattr(getattr(H, "model", None), "log_density", None)
    slope = gradient or getattr(H, "gradient", None) or getattr(getattr(H, "model", None), "gradient", None)
    part = math.inf if seconds is None else seconds / 3
    test = TransitionExamination(
        subject, target, dim, given, n_points, float(delta), part, seed, make, base, slope, dense, sphere
    )
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

"""``check.randomness``: the randomness that a kernel draws, and its use."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.check import adapters, own
from refhmc.check.arguments import require_counts
from refhmc.check.report import CALL_FAILED, FAIL, Report, Row
from refhmc.check.reproducibility import keyed_randomness, recorded_randomness
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, SubjectError
from refhmc.check.subject.target import target_density


def randomness(
    kernel: Any,
    *,
    dim: int | None = None,
    H: Any = None,
    log_density: Callable | None = None,
    points: Any = None,
    n: int = 40,
    init: Callable | None = None,
    read: Callable | None = None,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check which random numbers a kernel draws, and how it uses them.

    Transitions are run on recorded numbers, then one number at a time is changed. The rows verify that the kernel only uses
    the given generator, that it leaves the global ones unchanged, that each call draws fresh numbers, that the noise moves
    the position in all directions (full rank of dq'/dw), that every number matters, and that no number is used twice.

    The check finds own or global generators, fixed noise, one number for several coordinates, and numbers that both decide and
    move. It cannot show that the distribution is right (use :func:`transition` or :func:`sampler`), nor record compiled code
    that reads the bit generator. All rows are exact, except "fresh every call", which needs 20 rejections in a row; a correct
    kernel fails with probability at most 1e-6.

    Parameters
    ----------
    kernel : callable or refhmc kernel
        ``kernel(draws, q) -> q`` with :class:`Draws`, ``kernel(rng, q) -> q`` with a NumPy generator, or
        ``kernel(draws, q, p)``; `q` has shape (dim,). Kernels of refhmc need their model as `H`. Kernels of JAX with keys are
        taken as in :func:`sampler`; their row "key reuse" runs a transition under ``jax_debug_key_reuse``.
    dim : int, optional
        Dimension of q; by default taken from `H` or `points`, or found by trying.
    H : callable or object, optional
        Target as in :func:`transition`, only used to choose starting points.
    log_density : callable, optional
        Log density of q, if it does not follow from `H`.
    points : array_like, shape (k, dim), optional
        Starting points.
    n : int, default 40
        Number of recorded transitions, at least 4.
    init : callable, optional
        ``init(q)`` or ``init(key, q)`` returns the state of a kernel of JAX that has none of its own.
    read : callable, optional
        ``read(state)`` returns the position of such a state; by default it is found.
    seed : int, default 20261121
        Seed of the starting points and random numbers.
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
        The report; its notes list the numbers of each kind per transition.

    Raises
    ------
    TypeError
        If the kernel is not callable.
    ValueError
        If `dim` or `n` is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> def walk(draws, q):  # random walk on the standard normal distribution
    ...     new = q + draws.normal(len(q))
    ...     return new if np.log(draws.uniform()) < (q @ q - new @ new) / 2 else q
    >>> report = refhmc.check.randomness(walk, dim=2)
    >>> report.status, report.row("kinds and counts").basis
    ('PASS', '2 normals, 1 uniform')
    """
    require_counts(dim=dim, n=n)
    if own.is_kernel(kernel):
        kernel = adapters.refhmc_kernel(getattr(H, "model", H), kernel)
    target = None if H is None and log_density is None else target_density(H, log_density, like)
    try:
        test: Any = keyed_randomness.examination(
            kernel, target, dim, points, n, seed, init=init, read=read, like=like, name=name
        )
    except SubjectError as wrong:
        row = Row("answers", FAIL, basis=str(wrong), severity=CALL_FAILED, case=wrong.case)
        return Report("randomness", name or "kernel", {"n": n}, seed, (row,))
    checks = recorded_randomness.ROWS if test is None else keyed_randomness.ROWS
    test = test or recorded_randomness.RandomnessExamination(Foreign(kernel, name, like), target, dim, points, n, seed)
    test.settings = {"dim": test.dim or "?", "n": n}
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        return test.report(
            "randomness",
            checks,
            diagnose=recorded_randomness.diagnose,
            seconds_per_call=seconds_per_call,
            false_alarm="at most 1e-6: 'fresh every call' needs 20 rejections in a row; all other rows are exact",
        )
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)

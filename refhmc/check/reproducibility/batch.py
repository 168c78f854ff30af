"""``check.batch``: whether chains that run together are what they would be alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refhmc.check.arguments import require_counts
from refhmc.check.report import CALL_FAILED, FAIL, Report, Row
from refhmc.check.reproducibility import keyed_batch, numbered_batch
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, SubjectError


def batch(
    step_or_kernel: Any,
    *,
    dim: int | None = None,
    chains: int = 5,
    eps: float = 0.1,
    n: int = 3,
    points: Any = None,
    rounding: float | None = None,
    init: Callable | None = None,
    read: Callable | None = None,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check that chains which run together are what they would be alone.

    For a step or a kernel on arrays of shape (chains, dim), the rows verify::

        alone equals batch        row k of f(Q) = f(Q[k:k+1]), up to rounding
        order of chains           f(Q[order]) = f(Q)[order]
        divergent neighbour       NaN, inf or 1e150 in one row does not change the others
        streams independent       chains from one point move to different points, and share no noise
        decisions independent     no two chains always make equal decisions
        numbers scale             the number of random numbers grows with the number of chains

    For kernels, random numbers are recorded, and each number is assigned to the chains that it moves. The check finds one
    uniform or stream for all chains, sums and early stops over chains, and spreading of NaN. It cannot assign numbers of
    compiled code that reads the bit generator; those rows are NOT RUN. All rows are deterministic, except "decisions
    independent", which fails for correct code with probability at most 1e-9.

    Parameters
    ----------
    step_or_kernel : callable
        ``step(q, p, eps, n) -> (q, p)``, ``kernel(draws, q) -> q`` with :class:`Draws`, or ``kernel(rng, q) -> q`` with a NumPy
        generator; `q` and `p` have shape (chains, dim). Kernels of JAX with keys are taken as in :func:`sampler`. One of a
        single chain is compared with itself under ``jax.vmap``.
    dim : int, optional
        Dimension; by default that of `points`, or found by trying, 3 first.
    chains : int, default 5
        Number of chains, at least 3.
    eps : float, default 0.1
        Step size of a step.
    n : int, default 3
        Number of steps of a step.
    points : array_like, shape (chains, dim), optional
        Positions of the chains.
    rounding : float, optional
        Largest difference between two orders of summation, relative to the largest entry; 256 units of rounding by default.
    init : callable, optional
        ``init(q)`` or ``init(key, q)`` returns the state of a kernel of JAX that has none of its own.
    read : callable, optional
        ``read(state)`` returns the position of such a state; by default it is found.
    seed : int, default 20261121
        Seed of positions and random numbers.
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
        If the subject is not callable.
    ValueError
        If `dim`, `chains` or `n` is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> def walk(draws, q):  # random walk on the standard normal distribution
    ...     new = q + np.reshape(draws.normal(q.size), q.shape)
    ...     u = np.array([draws.uniform() for _ in q])
    ...     accept = np.log(u) < (np.sum(q**2, 1) - np.sum(new**2, 1)) / 2
    ...     return np.where(accept[:, None], new, q)
    >>> refhmc.check.batch(walk, dim=2).status
    'PASS'
    >>> def shared(draws, q):  # one normal number for all chains
    ...     return q + draws.normal(q.shape[1])
    >>> refhmc.check.batch(shared, dim=2).row("streams independent").status
    'FAIL'
    """
    require_counts(dim=dim, chains=chains, n=n)
    chains, checks = max(int(chains), 3), numbered_batch.ROWS
    try:
        test: Any = keyed_batch.examination(
            step_or_kernel, dim, chains, points, rounding, seed, init=init, read=read, like=like, name=name
        )
    except SubjectError as wrong:
        row = Row("answers", FAIL, basis=str(wrong), severity=CALL_FAILED, case=wrong.case)
        return Report("batch", name or "kernel", {"chains": chains}, seed, (row,))
    if test is not None:
        checks = keyed_batch.ROWS
    else:
        subject = Foreign(step_or_kernel, name, like)
        test = numbered_batch.BatchExamination(subject, dim, chains, float(eps), int(n), points, rounding, seed)
    test.settings = {"dim": test.dim or "?", "chains": test.chains}
    return test.report(
        "batch",
        checks,
        diagnose=numbered_batch.diagnose,
        seconds_per_call=seconds_per_call,
        false_alarm=f"'decisions independent': at most {numbered_batch.FALSE_ALARM:g}; all other rows are exact",
    )

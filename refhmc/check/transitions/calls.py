"""The first calls of ``check.transition``: how the kernel wants to be called, the law of its noise, the points.

    pi(q)        from H, a target or a log density; the points are typical of it (``typical_points`` in ``subject/target.py``)
    phi(q, w)    the noise: of a kern(q, p0=, u=) its momentum, exp(-H(q, w)), as w = L z, L L' the mass; else standard normal

Rows: answers, deterministic given randomness.
"""

from __future__ import annotations

import time

import numpy as np

from refhmc.check.report import FAIL, PASS, Row, inconclusive
from refhmc.check.subject.foreign import DIMENSIONS, Inconclusive, SubjectError, call_text, elsewhere
from refhmc.check.subject.target import inverse_mass, typical_points
from refhmc.check.subject.transition import MOMENTUM, TINY, TransitionRunner, find_runner
from refhmc.check.transitions.balance import Setting
from refhmc.check.transitions.case import Case


def answers(case: Case) -> Row:
    """Finds the shape, the dimension and the points; the row is about a finite position of the right shape."""
    case.dim, case.runner = _find(case)
    runner = case.runner
    case.notes.append(f"called as {runner.shape}" + (", with a momentum that is kept" if runner.keeps_momentum else ""))
    case.points = (
        typical_points(case.target.log_pi, case.dim, max(case.n_points, 4), case.rng(1))
        if case.given is None
        else case.given
    )
    case.setting = _setting(case, runner, case.points[0])
    bad, began = "", time.monotonic()
    for k, q in enumerate(case.points):
        z = case.rng(2, k).standard_normal(case.dim)
        script = {"normal": list(case.setting.normals(z)), "uniform": [0.5]}
        got = runner.run(q, script, seed=k, p=z)
        if not np.isfinite(got.q).all():
            bad = call_text(runner.kernel.name, [q])
    case.cost = (time.monotonic() - began) / len(case.points)
    if bad:
        return Row("answers", FAIL, basis="a position that is not finite, from a finite one", case=bad)
    return Row("answers", PASS, basis=f"positions ({case.dim},)")


def _find(case: Case) -> tuple[int, TransitionRunner]:
    """The dimension, and how the kernel is called."""

    def found(dim: int) -> TransitionRunner:
        start = 0.1 + 0.1 * np.arange(dim) if case.given is None or dim != case.dim else case.given[0]
        case.target.log_pi(start)
        return find_runner(case.kernel, start)

    if case.dim is not None:
        try:
            return case.dim, found(case.dim)
        except SubjectError as wrong:
            raise elsewhere(wrong, case.dim, found) from wrong.__cause__
    first: Exception | None = None
    for dim in DIMENSIONS:
        try:
            runner = found(dim)
            for f in (case.kernel, *case.target.foreign):
                f.forget()
            return dim, runner
        except (SubjectError, Inconclusive) as wrong:
            first = first or wrong
    assert first is not None
    raise first


def _setting(case: Case, runner: TransitionRunner, q) -> Setting:
    """The law of the noise, which noise it is, and which way its uniform decides."""
    assert case.dim is not None
    log_pi, energy, dim = case.target.log_pi, case.target.energy, case.dim
    root = np.eye(dim)
    if runner.shape == MOMENTUM and energy is not None:
        mass = np.linalg.inv(inverse_mass(energy, q))
        if np.isfinite(mass).all() and np.linalg.eigvalsh(mass)[0] > 0:
            root = np.linalg.cholesky(mass)

        def log_noise(q, w):
            return -energy(q, w)

    else:

        def log_noise(q, w):
            return log_pi(q) - 0.5 * w @ w

    frees = (
        runner.recorded and runner.shape != MOMENTUM and not any(x.kind == "normal" for x in runner.run(q, p=q).asked)
    )
    return Setting(runner, log_pi, log_noise, root, frees, TINY, case.seed, case.delta)


def deterministic(case: Case) -> Row:
    """Two calls on the same numbers give the same point."""
    runner, setting = case.need()
    for k, q in enumerate(case.points[:3]):
        z = case.rng(3, k).standard_normal(case.dim)
        script = {"normal": list(setting.normals(z)), "uniform": [0.3]}
        first, second = (runner.run(q, script, seed=k, p=z) for _ in range(2))
        if not np.array_equal(first.q, second.q, equal_nan=True):
            case.remembers = "two calls on the same numbers differ"
            numbers = sum(np.size(x.answer) for x in first.asked)
            why = "two calls on the same numbers differ, and it asked for no number: it has randomness of its own"
            if numbers == 0 or runner.shape == MOMENTUM:
                if runner.shape == MOMENTUM:
                    why = "two calls on the same q, p0 and u differ: it has randomness, or a memory, of its own"
                return inconclusive("deterministic given randomness", why)
            why = "two calls on the same numbers differ: it remembers (let it take and return what it keeps: q, p) or draws"
            return inconclusive("deterministic given randomness", why + " elsewhere")
    return Row("deterministic given randomness", PASS)

"""``check.leap``: the map of a Metropolis step that may be undefined, choose a setting, or declare a log Jacobian.

A leap S maps z = (q, p) to z' = (q', p') with a choice k and a declared value l(z), or is undefined at z. With
F(q, p) = (q, -p), the proposal F S(z) is an involution where it is defined, so that the acceptance probability

    min(1, pi(z') exp(l(z)) / pi(z))

leaves pi invariant if the following holds. The rows check it at many points:

    on the sphere              |p'| = 1, if momenta are unit vectors
    choices                    k is one of the choices that the caller names
    reverse defined            S is defined at F z'
    same choice                S chooses the same k at F z'
    reversible                 F S F S z = z
    declared Jacobian          l(z) = log |det dz'/dz|; 0 if the leap declares nothing

Unit vectors have d - 1 dimensions. The determinant is then that of E' dz' E, with columns of E (E' for z') that are an
orthonormal basis of the tangent space at p (p'). It is the ratio of uniform measures on the sphere.

References
----------
Bou-Rabee, Carpenter, Kleppe and Liu (2025), "The within-orbit adaptive leapfrog no-U-turn sampler".
Robnik, De Luca, Silverstein and Seljak (2023), "Microcanonical Hamiltonian Monte Carlo".
Lan, Stathopoulos, Shahbaba and Girolami (2015), "Markov chain Monte Carlo from Lagrangian dynamics".
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Examination, Rows
from refhmc.check.judging import Cases, Measured, causes, failed, passed
from refhmc.check.own import differences
from refhmc.check.report import FAIL, INEFFICIENT, Report, Row
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, Inconclusive, NotApplicable, SubjectError, call_text

PARTS = ("q", "p", "choice", "log_det")
SIZES = (0.5, 1.0, 2.0, 3.0)  # of the positions and momenta at which a leap is tried
JACOBIANS = 12  # number of points at which derivatives are computed


class End(NamedTuple):
    """The answer of a leap: z' = (q', p'), its choice and its declared log Jacobian."""

    z: np.ndarray
    choice: Any = None
    log_det: float = 0.0


@dataclasses.dataclass
class LeapExamination(Examination):
    """One leap under examination: the arguments of the check, and the ends of the leaps from all points."""

    leap: Foreign
    d: int
    returns: tuple[str, ...]
    sphere: bool
    choices: tuple | None
    delta: float
    points: list[np.ndarray]
    seed: int
    moves: list[tuple[np.ndarray, End]] = dataclasses.field(default_factory=list)
    back: list[End | None] = dataclasses.field(default_factory=list)
    ratios: list[float] = dataclasses.field(default_factory=list)  # declared over measured log Jacobian

    def __post_init__(self) -> None:
        super().__init__(self.leap.name, [self.leap], self.seed)

    def __call__(self, z: np.ndarray) -> End | None:
        """Return the leap from z, or None if it is undefined there."""
        q, p = z[: self.d].copy(), z[self.d :].copy()
        answer = self.leap.raw(q, p)
        if answer is None:
            return None
        if not isinstance(answer, (tuple, list)) or len(answer) != len(self.returns):
            parts = ", ".join(self.returns)
            raise SubjectError(
                f"{self.leap.name} must return None or ({parts}); got {type(answer).__name__}", self.case(z)
            )
        found = dict(zip(self.returns, answer, strict=True))
        halves = [self.leap.array(found[x], (self.d,), f"the part {x}", (q, p)) for x in ("q", "p")]
        log_det = float(self.leap.array(found.get("log_det", 0.0), (), "the log Jacobian", (q, p)))
        choice: Any = found.get("choice")
        end = np.concatenate(halves)
        return (
            End(end, choice.item() if hasattr(choice, "item") else choice, log_det) if np.isfinite(end).all() else None
        )

    def flip(self, z: np.ndarray) -> np.ndarray:
        return np.concatenate([z[: self.d], -z[self.d :]])

    def case(self, z: np.ndarray) -> str:
        return call_text(self.leap.name, [z[: self.d], z[self.d :]])

    def pushed(self, z: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Return z + u, with the momentum back on the sphere."""
        z = z + u
        if self.sphere:
            z[self.d :] /= np.linalg.norm(z[self.d :])
        return z

    def tangent(self, z: np.ndarray) -> np.ndarray:
        """Return an orthonormal basis of the directions in which z can move, as columns."""
        if not self.sphere:
            return np.eye(2 * self.d)
        return scipy.linalg.block_diag(np.eye(self.d), scipy.linalg.null_space(z[None, self.d :]))

    def need(self) -> list[tuple[np.ndarray, End]]:
        if not self.moves:
            raise NotApplicable("the leap was defined at none of the points")
        return self.moves


def answers(test: LeapExamination) -> Row:
    """Call the leap from every point, and from the reversed end of every leap."""
    for z in test.points:
        end = test(z)
        if end is not None:
            test.moves.append((z, end))
            test.back.append(test(test.flip(end.z)))
    count = Counter(str(end.choice) for _, end in test.moves)
    chosen = (
        "; choices " * bool(count) + ", ".join(f"{k}: {n}" for k, n in count.items())
        if "choice" in test.returns
        else ""
    )
    test.notes.append(f"defined at {len(test.moves)} of {len(test.points)} points{chosen}")
    if not test.moves:
        raise Inconclusive("the leap was defined at none of the points; pass points")
    z, end = test.moves[0]
    again = test(z)
    if again is None or not np.array_equal(again.z, end.z):
        return failed("two calls at the same point differ", test.case(z))
    return passed(f"({', '.join(test.returns)}), the same one for the same point")


def on_the_sphere(test: LeapExamination) -> Cases:
    """Yield | |p'| - 1 |."""
    if not test.sphere:
        raise NotApplicable("momenta are not unit vectors; pass sphere=True if they are")
    for z, end in test.need():
        gap = abs(float(np.linalg.norm(end.z[test.d :])) - 1)
        yield Measured(gap, 64 * test.d * test.leap.epsilon + 10 * test.delta, test.case(z))
    return f"| |p'| - 1 |, {len(test.moves)} points; rounding"


def choices(test: LeapExamination) -> Row:
    """Check that every choice is one of those named by the caller."""
    if test.choices is None:
        raise NotApplicable("pass choices, all choices that the leap may make")
    for z, end in test.need():
        if end.choice not in test.choices:
            return failed(f"the choice {end.choice!r} is not one of {list(test.choices)}", test.case(z))
    return passed(f"{len(test.moves)} points")


def reverse_defined(test: LeapExamination) -> Row:
    """Check that the leap is defined at the reversed end wherever it is defined."""
    lost = [z for (z, _), back in zip(test.need(), test.back, strict=True) if back is None]
    basis = f"points at which S is defined and S F S is not, of {len(test.moves)}"
    return failed(basis, test.case(lost[0]), len(lost), 0.0) if lost else passed(basis, 0.0, 0.0)


def same_choice(test: LeapExamination) -> Row:
    """Check that the reverse leap makes the same choice."""
    if "choice" not in test.returns:
        raise NotApplicable("the leap makes no choice")
    pairs = zip(test.need(), test.back, strict=True)
    wrong = [(z, end, back) for (z, end), back in pairs if back is not None and back.choice != end.choice]
    basis = f"points at which the choices of S and S F S differ, of {len(test.moves)}"
    if not wrong:
        return passed(basis, 0.0, 0.0)
    z, end, back = wrong[0]
    return failed(basis, f"{test.case(z)}  # {end.choice!r}, and {back.choice!r} back", len(wrong), 0.0)


def reversible(test: LeapExamination) -> Cases:
    """Yield |F S F S z - z| where both leaps are defined."""
    for (z, end), back in zip(test.need(), test.back, strict=True):
        if back is not None:
            scale = 1 + float(max(np.abs(z).max(), np.abs(end.z).max()))
            gap = float(np.abs(test.flip(back.z) - z).max())
            yield Measured(gap, _rounding(test, z, end) * scale, test.case(z))
    return "|F S F S z - z|; rounding times the squared growth of a small change"


def _rounding(test: LeapExamination, z: np.ndarray, end: End) -> float:
    """Return the relative error that rounding and a solver may leave in a leap and its reverse."""
    rng, growth = np.random.default_rng(test.seed), 1.0
    for _ in range(2):
        near = test.pushed(z, 1e-6 * rng.standard_normal(len(z)))
        there = test(near)
        if there is not None and there.choice == end.choice:
            growth = max(growth, float(np.linalg.norm(there.z - end.z) / np.linalg.norm(near - z)))
    return (256 * test.leap.epsilon + 10 * test.delta) * (1 + growth) ** 2


def declared(test: LeapExamination) -> Cases:
    """Yield |l(z) - log |det dz'/dz| |, with differences that stay within the same choice."""
    for z, end in test.need()[:: max(1, len(test.moves) // JACOBIANS)]:
        E, E_end = test.tangent(z), test.tangent(end.z)

        def moved(u: np.ndarray, t: float, z: np.ndarray = z, end: End = end) -> np.ndarray:
            there = test(test.pushed(z, t * u))
            return np.full(len(z), np.nan) if there is None or there.choice != end.choice else there.z

        slopes = [differences.ridders(functools.partial(moved, u), 0.05, 6) for u in E.T]
        J = E_end.T @ np.stack([np.broadcast_to(slope.value, z.shape) for slope in slopes], axis=-1)
        if not np.isfinite(J).all():
            continue
        sizes = np.linalg.svd(J, compute_uv=False)
        error = 20 * len(E) * max(float(np.max(slope.error)) for slope in slopes) / max(float(sizes[-1]), 1e-300)
        if error > 0.05:
            if sizes[-1] > 1e-9 * sizes[0]:
                continue
            sizes = np.maximum(sizes, 1e-300)
            error = 0.05  # singular: the log Jacobian is minus infinity
        log_det = float(np.log(sizes).sum())
        test.ratios.append(end.log_det / log_det if abs(log_det) > 100 * error else math.nan)
        yield Measured(abs(end.log_det - log_det), 1e-7 + error + 100 * test.delta, test.case(z))
    space = "on the tangent space" if test.sphere else "extrapolated differences"
    what = "declared - log |det dz'/dz|" if "log_det" in test.returns else "log |det dz'/dz|"
    return f"|{what}|, {space}, and the error of the differences"


ROWS: Rows = (
    ("answers", answers),
    ("on the sphere", on_the_sphere),
    ("choices", choices, INEFFICIENT),
    ("reverse defined", reverse_defined),
    ("same choice", same_choice),
    ("reversible", reversible),
    ("declared Jacobian", declared),
)
TYPICAL = {
    "reverse defined": "the leap does not check whether it would be defined, with the same choice, from its end",
    "same choice": "forward and reverse search use other settings, or the check of the reverse choice is missing",
    "on the sphere": "the velocity is not normalised",
}


def typical(test: LeapExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the failed rows are typical of."""
    said = causes({name for name, row in rows.items() if row.status == FAIL}, TYPICAL)
    ratios = np.array([x for x in test.ratios if math.isfinite(x)])
    if rows["declared Jacobian"].status == FAIL and len(ratios) > 1:
        ratio = float(np.median(ratios))
        if np.abs(ratios - ratio).max() <= 1e-4 * (1 + abs(ratio)):
            missing = "the log determinant of the leap's Jacobian is missing: it declares 0"
            said.append(missing if ratio == 0 else f"the declared log Jacobian is {ratio:.4g} times the right one")
    return said


def leap(
    leap: Callable,
    *,
    dim: int,
    returns: Sequence[str] = ("q", "p"),
    sphere: bool = False,
    choices: Sequence | None = None,
    points: Sequence | None = None,
    n_points: int = 200,
    delta: float = 0.0,
    seconds: float | None = 60.0,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check the map of a Metropolis step that may be undefined, choose a setting, or declare a log Jacobian.

    The map S of z = (q, p) is a valid proposal if, with F(q, p) = (q, -p), at every z where it is defined::

        F S F S z = z                    with the same choice k
        l(z) = log |det dz'/dz|          l is the declared log Jacobian, 0 by default

    This is what WALNUTS needs of a macro step, and what Lagrangian Monte Carlo and microcanonical samplers need of a step
    that changes the volume. The check finds missing or shortened reverse checks, different settings forward and backward, and
    wrong Jacobians. Energies, which the map may use but does not return, are left to :func:`transition` and :func:`orbit`. All
    rows are deterministic: a correct leap passes with every seed. A fault that shows in a share s of the tested region is
    missed with probability (1 - s)^n at n points; with 200 points this is below 1e-6 if s is 0.07 or more.

    Parameters
    ----------
    leap : callable
        ``leap(q, p)`` returns the parts named in `returns`, or None if it is undefined at (q, p).
    dim : int
        Dimension of q and p.
    returns : sequence of str, default ("q", "p")
        Names of the returned parts in order: "q" and "p", and optionally "choice" (any value that can be compared) and
        "log_det" (log absolute determinant of the derivative of (q', p') with respect to (q, p)).
    sphere : bool, default False
        Whether p is a unit vector. The determinant is then that of the map of the tangent spaces.
    choices : sequence, optional
        All choices that the leap may make.
    points : sequence, optional
        Pairs (q, p) to start from; by default normal random numbers of several sizes.
    n_points : int, default 200
        Number of random points, if `points` is not given.
    delta : float, default 0.0
        Tolerance of the implicit solver of the leap.
    seconds : float or None, default 60.0
        Budget in processor seconds. None means no limit.
    seed : int, default 20261121
        Seed of the points.
    like : callable, module or array, optional
        Array type of the arguments; NumPy float64 by default.
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
        If `leap` is not callable.
    ValueError
        If `returns`, `dim`, `n_points` or `seconds` is invalid.

    References
    ----------
    Bou-Rabee, Carpenter, Kleppe and Liu (2025), "The within-orbit adaptive leapfrog no-U-turn sampler".
    Robnik, De Luca, Silverstein and Seljak (2023), "Microcanonical Hamiltonian Monte Carlo".

    Examples
    --------
    >>> def scaled(q, p):  # doubles q if p > 0, and halves it otherwise
    ...     factor = 2.0 if p[0] > 0 else 0.5
    ...     return factor * q, p, np.log(factor)
    >>> import numpy as np
    >>> report = refhmc.check.leap(scaled, dim=1, returns=("q", "p", "log_det"))
    >>> report.status, report.row("declared Jacobian").status
    ('PASS', 'PASS')
    """
    require_counts(dim=dim, n_points=n_points)
    require_times(seconds=seconds)
    returns = tuple(returns)
    if not {"q", "p"} <= set(returns) <= set(PARTS) or len(set(returns)) < len(returns):
        raise ValueError(f"returns must contain q and p, and may contain choice and log_det; got {returns!r}.")
    rng = np.random.default_rng(seed)
    if points is None:
        states = [SIZES[k % 4] * rng.standard_normal(2 * dim) for k in range(n_points)]
    else:
        states = [np.concatenate([np.asarray(half, dtype=float) for half in z]) for z in points]
    for z in states if sphere else ():
        z[dim:] /= np.linalg.norm(z[dim:])
    chosen = None if choices is None else tuple(choices)
    test = LeapExamination(
        Foreign(leap, name, like), int(dim), returns, bool(sphere), chosen, float(delta), states, seed
    )
    test.settings = {"dim": dim, "returns": ", ".join(returns), **({"sphere": True} if sphere else {})}
    return test.report(
        "leap",
        ROWS,
        diagnose=typical,
        seconds_per_call=seconds_per_call,
        seconds=seconds,
        false_alarm="deterministic checks: correct code passes with every seed",
    )

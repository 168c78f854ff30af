"""A metric's conformance: is G(q) a metric, is dG its derivative, and do momentum, energy and force belong to it?

    dG[i, j, k] = dG_ij/dq_k          p = draw_p(rng, q) ~ N(0, G(q))
    H(q, p) = -L(q) + 1/2 p' G^-1 p + 1/2 log det G + constant

The law of q under exp(-H) is exp(L) only if what H has beside -L integrates over p to the same number at every q. That of the
Gaussian kinetic energy is (2 pi)^(d/2) det(G)^(1/2), so that

    H(q, p) + L(q) - 1/2 p' G^-1 p - 1/2 log det G       is constant                               (row "energy")

whatever H and its force agree on between themselves. Where G is not given it is read off H: G^-1 = d^2 H / dp^2.

All of this is of the law: a failure is WRONG LAW. Without ``support`` or ``logp`` all of R^d counts as the metric's domain.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from refhmc.check import own
from refhmc.check.arguments import require_counts
from refhmc.check.derivatives.claims import Claim, claim_at, directions_at
from refhmc.check.derivatives.examination import warm_up
from refhmc.check.derivatives.patterns import pattern_of_tensor
from refhmc.check.derivatives.points import Frame, candidates, find_frame, short
from refhmc.check.derivatives.slopes import width_along
from refhmc.check.examination import Rows
from refhmc.check.judging import passed
from refhmc.check.metrics.coincidences import SAME, equal_eigenvalues, gap, opposite_eigenvalues
from refhmc.check.metrics.definiteness import positive_definite, symmetric
from refhmc.check.metrics.energies import kinetic, log_det_row, slope_of_energy, solve_row, total_energy
from refhmc.check.metrics.examination import MetricExamination
from refhmc.check.metrics.momenta import RATE, momentum_law
from refhmc.check.report import FAIL, MISCONDUCT, Report, Row
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Inconclusive, NotApplicable, SubjectError


def metric(
    G: Any = None,
    dG: Any = None,
    draw_p: Any = None,
    *,
    dim: int | None = None,
    H: Any = None,
    logp: Any = None,
    dH: Any = None,
    grad_q: Any = None,
    grad_p: Any = None,
    log_det: Any = None,
    solve: Any = None,
    hessian: Any = None,
    index_order: str = "ijk",
    support: Any = None,
    points: Any = None,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Hold a position-dependent (or constant) metric, and what is made of it, against its definition.

    Parameters
    ----------
    G : q (d,) -> (d, d); or a :class:`refhmc.Hamiltonian`, or a pair (refhmc model, refhmc metric), which bring the rest
        along; None to read it off ``H``.
    dG : q -> (d, d, d), in the order of ``index_order``: "ijk" is dG_ij/dq_k, "kij" has the direction first.
    draw_p : (rng, q) -> p (d,), with a ``numpy.random.Generator``.
    H : (q, p) -> the energy. grad_q, grad_p : (q, p) -> dH/dq, dH/dp; dH : (q, p) -> both, as a pair.
    logp : q -> L. log_det : q -> log det G. solve : (q, v) -> G^-1 v. hessian : q -> (d, d), whose equal eigenvalues count
        as degenerate, besides those of G.
    dim, support, points : as for :func:`refhmc.check.model`.

    Returns a :class:`Report`. TypeError for what is not callable, ValueError for an ``index_order`` that is none.
    """
    require_counts(dim=dim)
    if sorted(index_order) != list("ijk"):
        raise ValueError(f"index_order must be a permutation of 'ijk', got {index_order!r}")
    given = {
        "G": G,
        "dG": dG,
        "draw_p": draw_p,
        "H": getattr(H, "energy", H),
        "logp": getattr(logp, "log_density", logp),
        "grad_q": grad_q,
        "grad_p": grad_p,
        "log_det": log_det,
        "solve": solve,
        "hessian": hessian,
    }
    dim, label = _bring_along(given, G, dim)
    if dH is not None:
        given["grad_q"] = (lambda q, p: _half(dH(q, p), 0)) if grad_q is None else grad_q
        given["grad_p"] = (lambda q, p: _half(dH(q, p), 1)) if grad_p is None else grad_p
    if given["G"] is None and given["H"] is None:
        raise TypeError("a metric G or an energy H must be given")
    s = MetricExamination(given, index_order, support, points, seed, like, dim)
    if label:  # one of ours: what it compiles at its first calls is not the subject's time
        warm_up(s.functions, s.dim or 1)
    checks: Rows = [
        ("answers", _answers),
        ("symmetric", symmetric),
        ("positive definite", positive_definite),
        ("derivative", lambda s: _derivative(s, "derivative", s.ordinary[:6])),
        ("derivative at asymmetric points", lambda s: _derivative(s, "derivative at asymmetric points", s.asymmetric)),
        ("derivative at degenerate points", _degenerate),
        ("log det", log_det_row),
        ("inverse product", solve_row),
        ("kinetic energy", kinetic),
        ("energy", total_energy),
        ("velocity", lambda s: slope_of_energy(s, "velocity", "grad_p")),
        ("force", lambda s: slope_of_energy(s, "force", "grad_q")),
        ("momentum law", momentum_law),
    ]
    s.title = name or label or s.title
    return s.report(
        "metric",
        checks,
        diagnose=_diagnose,
        seconds_per_call=seconds_per_call,
        false_alarm=f"deterministic checks: none; the momentum's law, where it cannot be recorded: at most {RATE:g}",
    )


def _bring_along(given: dict[str, Any], G: Any, dim: int | None) -> tuple[int | None, str]:
    """Fill in what a refhmc Hamiltonian, or a model and a metric, has; the dimension and a name for it."""
    if isinstance(G, tuple):
        G = own.Hamiltonian(*G)
    if not (hasattr(G, "mass") and hasattr(G, "energy")):
        return dim, ""
    has = {
        "G": G.mass,
        "H": G.energy,
        "grad_q": G.grad_q,
        "grad_p": G.grad_p,
        "draw_p": lambda rng, q: G.draw_momentum(q, rng),
        "logp": G.model.log_density,
    }
    for key, function in has.items():
        if given[key] is None or key == "G":
            given[key] = function
    if given["hessian"] is None and G.model.has("hessian"):
        given["hessian"] = G.model.hessian
    return G.model.dim, f"{type(G.metric).__name__} on {G.model.name}"


def _half(answer: Any, index: int) -> Any:
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise TypeError("dH must answer with the pair (dH/dq, dH/dp)")
    return answer[index]


def _answers(s: MetricExamination) -> Row:
    points = s.find_dimension(functools.partial(_shapes, s))
    s.known_frame = _find_frame(s, points)
    if s.known_frame is None:
        return s.finite_nowhere("the metric", s.main, points, 2 if s.main == "H" else 1)
    s.look_around(s.offsets((1.0, 1.0, 1.0, 0.03, 2.0)), points, 3)
    s.simple = _simple_places(s)
    complaints: list[SubjectError] = []
    for q in s.test_points(3):
        p = s.momenta(q, 1)[0]
        for name in [k for k in s.functions if k not in s.broken]:
            try:
                if name == "draw_p":
                    s.functions[name].vector((s.dim,), np.random.default_rng(s.seed), q)
                else:
                    s.strictly(name, q, *([p] if name in ("H", "grad_q", "grad_p", "solve") else []))
            except SubjectError as wrong:
                s.broken.add(name)
                complaints.append(wrong)
    if complaints:
        raise complaints[0]
    return passed(f"of the right shapes; {len(s.ordinary) + len(s.asymmetric)} ordinary places")


def _shapes(s: MetricExamination, d: int) -> list[tuple[int, ...]]:
    """Those that the function answers with in ``d`` dimensions."""
    q, function = 0.125 + np.arange(d) / (4.0 * d), s.again(s.main)
    if s.main == "H":
        function.number(q, np.ones(d))
        return []
    answer = np.shape(function.raw(q))
    if answer != (d, d) and (answer, d) != ((), 1):
        raise SubjectError(f"{s.names['G']} answers with the shape {answer} for ({d},), and never with (d, d) for (d,)")
    return [(d, d)]


def _find_frame(s: MetricExamination, points: np.ndarray) -> Frame | None:
    if "logp" in s.functions:
        logp = s.at("logp")
        return find_frame(lambda q: float(np.real(logp(q))), s.dim, s.support, points, s.rng)
    tried = (q for q in candidates(s.dim, s.support, points, s.rng) if s.inside(q))
    found = [q for q in tried if np.isfinite(s.mass(q)).all()][:6]
    if not found:
        return None
    centre = next((q for q in found if np.all(np.diag(s.mass(q)) > 0)), found[0])
    root = np.sqrt(np.abs(np.diag(s.mass(centre))))
    unit = np.outer(root, root) + 1e-300
    widths = [width_along(s.mass, centre, u, unit) for u in np.eye(s.dim)]
    return Frame(short(centre), np.minimum(widths, np.maximum(1.0, 1.0 / (root + 1e-3))))


def _simple_places(s: MetricExamination) -> list[np.ndarray]:
    d = s.dim
    alternating = np.where(np.arange(d) % 2, -1.0, 1.0)
    twins = np.repeat([0.75, -1.25, 0.5], (d + 2) // 3)[:d]
    simple = [np.zeros(d), np.ones(d), -0.75 * np.ones(d), alternating, twins, s.frame.centre]
    simple += [1.5 * u for u in np.eye(d)[:6]] + [-0.5 * u for u in np.eye(d)[:6]]
    return list({q.tobytes(): q for q in simple if s.within(q)}.values())


def _claim(s: MetricExamination, q: np.ndarray, directions: np.ndarray | None = None) -> Claim:
    scales, root = s.frame.scales, np.sqrt(np.abs(np.diag(s.mass(q))))
    u = directions_at(len(q), scales, np.random.default_rng([s.seed, 5])) if directions is None else directions
    unit = np.outer(root, root) + 1e-6 * float(root.max(initial=0.0)) ** 2 + 1e-300
    beside = None
    if any(np.array_equal(q, other) for other in s.opposite):
        beside = q + 0.01 * scales * np.random.default_rng([s.seed, 8]).standard_normal(len(q))
        beside = beside if s.good(beside) else None
    epsilons: dict[str, Any] = {"epsilon": s.unit, "claim_epsilon": s.epsilon("dG")}
    return claim_at(s.mass, s.at("dG"), q, u, scales, unit=unit, beside=beside, **epsilons)


def _derivative(s: MetricExamination, name: str, places: Sequence[np.ndarray], most: int = 30, said: str = "") -> Row:
    s.need("dG")
    return s.claim_row(name, places, "dG", s.main, functools.partial(_claim, s), most, said)


def _degenerate(s: MetricExamination) -> Row:
    """Where eigenvalues are equal or opposite, and on the way there from random directions (``coincidences.py``)."""
    s.need("dG")
    if s.dim == 1:
        raise NotApplicable("one eigenvalue only")
    rng = np.random.default_rng([s.seed, 6])
    equal, s.opposite = equal_eigenvalues(s), opposite_eigenvalues(s)
    if not equal and not s.opposite:
        raise Inconclusive("no place with equal or opposite eigenvalues was found; points= may name one")
    test_points = list(equal[:6])
    for q in equal[:2]:
        z = rng.standard_normal(len(q))
        test_points += [p for p in (q + gap * z for gap in (1e-3, 1e-6, 1e-8, 1e-11)) if s.good(p)]
    said = f"{len(equal)} places with equal eigenvalues, {len(s.opposite)} with opposite ones"
    return _derivative(s, "derivative at degenerate points", [*test_points, *s.opposite], 0, said)


def _diagnose(s: MetricExamination, rows: dict[str, Row]) -> list[str]:
    failed = {name for name, row in rows.items() if row.status == FAIL and row.severity != MISCONDUCT}
    said = []
    for name in ("derivative at asymmetric points", "derivative"):
        if name in failed and name in s.claims:
            text = pattern_of_tensor(s.claims[name])
            said += [f"dG: {text}"] if text else []
            break
    lost = [c for name in s.claims for c in s.claims[name] if not np.isfinite(c.value).all()]
    if lost and all(gap(s, c.q) <= SAME for c in lost):
        said.append("dG is 0/0 where eigenvalues are equal: the divided difference needs its limit there, f'(lambda)")
    only = {"derivative", "derivative at asymmetric points", "derivative at degenerate points"} & failed
    if only == {"derivative at degenerate points"}:
        failing = [c.q for c in s.claims["derivative at degenerate points"] if c.excess().max() > 1]
        if all(any(np.array_equal(q, other) for other in s.opposite) for q in failing):
            said.append("dG is right except where eigenvalues are l and -l: the divided difference must be 0 there")
        else:
            said.append(
                "dG is right but where eigenvalues are equal: the divided difference lacks its limit there, f'(lambda)"
            )
    return list(dict.fromkeys([*said, *s.found]))

"""``check.metric``: whether G(q) is a metric, dG its derivative, and momentum, energy and force belong to it.

    dG[i, j, k] = dG_ij/dq_k          p = draw_p(rng, q) ~ N(0, G(q))
    H(q, p) = -L(q) + 1/2 p' G^-1 p + 1/2 log det G + constant

The distribution of q under exp(-H) is exp(L) only if exp(-H - L) integrates over p to the same number at every q. For the
Gaussian kinetic energy the integral is (2 pi)^(d/2) det(G)^(1/2), so that

    H(q, p) + L(q) - 1/2 p' G^-1 p - 1/2 log det G       is constant                               (row "energy")

even if H and its force are consistent with each other. If G is not given it is computed from H: G^-1 = d^2 H / dp^2.

All rows are about the distribution, and a failure means a wrong one. Without ``support`` or ``logp`` the domain is R^d.
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
from refhmc.check.report import CALL_FAILED, FAIL, Report, Row
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
    """Check a metric G(q), constant or not, and the quantities derived from it.

    The rows of the report verify::

        symmetric, positive definite      G = G' > 0 at ordinary, simple, tiny and far points and on lines
        derivative                        dG[i, j, k] = dG_ij/dq_k, also where eigenvalues are equal or opposite
        log det, inverse product          log det G up to a constant; G^-1 v
        kinetic energy                    H(q, p) - H(q, 0) = 1/2 p' G^-1 p
        energy                            H(q, 0) + L(q) - 1/2 log det G is constant
        velocity, force                   dH/dp = v = G^-1 p;
                                          dH/dq_k = -dL/dq_k + 1/2 tr(G^-1 dG/dq_k) - 1/2 v' dG/dq_k v
        momentum distribution             p ~ N(0, G(q))

    The check finds wrong factors and signs of single terms, exchanged indices, a root or an inverse in the wrong place, missing
    limits of divided differences, and a momentum from an outdated metric. It cannot show that G is a useful metric. Faults in
    regions that no point reaches are not found. All rows are deterministic, except the momentum's distribution if its normal
    numbers cannot be recorded; then correct code fails with probability at most 1e-6.

    Parameters
    ----------
    G : callable, refhmc.Hamiltonian or tuple, optional
        ``G(q)`` returns an array of shape (dim, dim). A Hamiltonian of refhmc, or a pair (model, metric) of refhmc, provides
        the other functions too. If None, G is computed from `H`.
    dG : callable, optional
        ``dG(q)`` returns an array of shape (dim, dim, dim) in the order of `index_order`.
    draw_p : callable, optional
        ``draw_p(rng, q)`` returns a momentum of shape (dim,); `rng` is a :class:`numpy.random.Generator`.
    dim : int, optional
        Dimension of q; found by trying if omitted.
    H : callable or object, optional
        Energy ``H(q, p)``, or an object with a method ``energy``.
    logp : callable or object, optional
        Log density ``L(q)``, or an object with a method ``log_density``.
    dH : callable, optional
        ``dH(q, p)`` returns the pair (dH/dq, dH/dp).
    grad_q : callable, optional
        ``grad_q(q, p)`` returns dH/dq.
    grad_p : callable, optional
        ``grad_p(q, p)`` returns dH/dp.
    log_det : callable, optional
        ``log_det(q)`` returns log det G(q), up to a constant.
    solve : callable, optional
        ``solve(q, v)`` returns G(q)^-1 v.
    hessian : callable, optional
        ``hessian(q)`` of shape (dim, dim). Its equal and opposite eigenvalues define degenerate points, in addition to equal
        ones of G.
    index_order : str, default "ijk"
        Order of the axes of dG: "ijk" means dG_ij/dq_k, "kij" has the direction first.
    support : callable or (low, high), optional
        Domain: ``support(q)`` returns a bool, or bounds as numbers or arrays of shape (dim,). All of R^dim by default.
    points : array_like, shape (n, dim), optional
        Further points of the examination; the first is the start of the search for a centre.
    seed : int, default 20261121
        Seed of the points.
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
        If an argument is not callable, or neither `G` nor `H` is given.
    ValueError
        If `index_order`, `dim` or `points` is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> def G(q):
    ...     return np.diag(1 + q**2)
    >>> def dG(q):  # dG[i, j, k] = dG_ij/dq_k
    ...     T = np.zeros((2, 2, 2))
    ...     T[[0, 1], [0, 1], [0, 1]] = 2 * q
    ...     return T
    >>> report = refhmc.check.metric(G, dG, lambda rng, q: np.sqrt(1 + q**2) * rng.standard_normal(2), dim=2)
    >>> report.status, report.row("derivative").status, report.row("momentum distribution").status
    ('PASS', 'PASS', 'PASS')
    """
    require_counts(dim=dim)
    if sorted(index_order) != list("ijk"):
        raise ValueError(f"index_order must be a permutation of 'ijk'; got {index_order!r}.")
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
        raise TypeError("G or H must be given; got neither.")
    s = MetricExamination(given, index_order, support, points, seed, like, dim)
    if label:  # an object of refhmc: compilation does not count as the subject's time
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
        ("momentum distribution", momentum_law),
    ]
    s.title = name or label or s.title
    return s.report(
        "metric",
        checks,
        diagnose=_diagnose,
        seconds_per_call=seconds_per_call,
        false_alarm=f"deterministic checks: none; momentum distribution if it cannot be recorded: at most {RATE:g}",
    )


def _bring_along(given: dict[str, Any], G: Any, dim: int | None) -> tuple[int | None, str]:
    """Fill in the functions of a Hamiltonian, or a model and a metric, of refhmc; return dimension and name."""
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
        raise TypeError(f"dH must return a pair (dH/dq, dH/dp); got {type(answer).__name__}.")
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
    return passed(f"right shapes; {len(s.ordinary) + len(s.asymmetric)} ordinary points")


def _shapes(s: MetricExamination, d: int) -> list[tuple[int, ...]]:
    """Return the shapes of the answers in ``d`` dimensions."""
    q, function = 0.125 + np.arange(d) / (4.0 * d), s.again(s.main)
    if s.main == "H":
        function.number(q, np.ones(d))
        return []
    answer = np.shape(function.raw(q))
    if answer != (d, d) and (answer, d) != ((), 1):
        raise SubjectError(f"{s.names['G']} returned shape {answer} for ({d},); it must return (d, d) for (d,)")
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
    """Check dG at points with equal or opposite eigenvalues, and on the way there (``coincidences.py``)."""
    s.need("dG")
    if s.dim == 1:
        raise NotApplicable("there is only one eigenvalue")
    rng = np.random.default_rng([s.seed, 6])
    equal, s.opposite = equal_eigenvalues(s), opposite_eigenvalues(s)
    if not equal and not s.opposite:
        raise Inconclusive("no point with equal or opposite eigenvalues was found; pass one in points")
    test_points = list(equal[:6])
    for q in equal[:2]:
        z = rng.standard_normal(len(q))
        test_points += [p for p in (q + gap * z for gap in (1e-3, 1e-6, 1e-8, 1e-11)) if s.good(p)]
    said = f"{len(equal)} points with equal eigenvalues, {len(s.opposite)} with opposite ones"
    return _derivative(s, "derivative at degenerate points", [*test_points, *s.opposite], 0, said)


def _diagnose(s: MetricExamination, rows: dict[str, Row]) -> list[str]:
    failed = {name for name, row in rows.items() if row.status == FAIL and row.severity != CALL_FAILED}
    said = []
    for name in ("derivative at asymmetric points", "derivative"):
        if name in failed and name in s.claims:
            text = pattern_of_tensor(s.claims[name])
            if not text and all(_wrong_between_eigenvectors(s, c) for c in s.claims[name] if c.excess().max() > 1):
                text = (
                    "right for the eigenvalues of G and wrong between its eigenvectors, such as a wrong divided difference "
                    "(f_i - f_j) / (l_i - l_j) of a function of a matrix"
                )
            said += [f"dG: {text}"] if text else []
            break
    lost = [c for name in s.claims for c in s.claims[name] if not np.isfinite(c.value).all()]
    if lost and all(gap(s, c.q) <= SAME for c in lost):
        said.append("dG is 0/0 at equal eigenvalues: the divided difference needs its limit there, f'(lambda)")
    only = {"derivative", "derivative at asymmetric points", "derivative at degenerate points"} & failed
    if only == {"derivative at degenerate points"}:
        failing = [c.q for c in s.claims["derivative at degenerate points"] if c.excess().max() > 1]
        if all(any(np.array_equal(q, other) for other in s.opposite) for q in failing):
            said.append("dG is only wrong at eigenvalues l and -l: the divided difference must be 0 there")
        else:
            said.append(
                "dG is only wrong at equal eigenvalues: the divided difference lacks its limit there, f'(lambda)"
            )
    return list(dict.fromkeys([*said, *s.found]))


def _wrong_between_eigenvectors(s: MetricExamination, claim: Claim) -> bool:
    """Return whether the diagonal of Q' dG Q, the derivatives of the eigenvalues, is right, with G = Q diag(l) Q'."""
    if not np.isfinite(claim.value).all():
        return False
    _, Q = np.linalg.eigh(s.mass(claim.q))
    apart = np.abs(np.einsum("ia,ijk,jb->abk", Q, claim.value - claim.truth, Q))
    allowed = len(Q) * (claim.own + 1e-5 * claim.size).max()
    return bool(np.einsum("aak->ak", apart).max() <= allowed < apart.max())

"""Momentum distribution: whether a momentum is drawn from N(0, G(q)).

If its normal numbers can be recorded no statistics are needed: p = m + A w with A A' = G, m = 0. Every examined draw
directly follows one at another position, so that a metric that was not updated is found. Otherwise exact
tests of N(0, G) are used, with a stated false-alarm rate: with y = L^-1 p, G = L L', sums of squares of y_i and of
(y_i + y_j) / 2^(1/2) are chi^2, and means normal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refhmc.check.judging import Cases, Measured, judged, worst_of
from refhmc.check.metrics.examination import MetricExamination, Usable, usable_test_points
from refhmc.check.report import FAIL, Row
from refhmc.check.subject.draws import Draws, Unscripted, as_generator
from refhmc.check.subject.foreign import SubjectError, text_of

DRAWS = 2000
RATE = 1e-6  # of false alarms, all statistical tests of one report together


def momentum_law(s: MetricExamination) -> Row:
    """Check p ~ N(0, G(q)) from recorded normal numbers if possible, else from draws."""
    s.need("draw_p")
    usable = usable_test_points(s, 5)
    try:
        roots = [_root(s, q, usable[(n + 1) % len(usable)][0]) for n, (q, _, _) in enumerate(usable)]
    except _NotRecorded as why:
        s.notes.append(f"draw_p: {why}; its distribution is tested with {DRAWS} draws per point")
        return _momentum_by_tests(s, usable)
    row = worst_of(_roots_against_masses(usable, roots))
    if row.status == FAIL:
        text = _what_law(
            [G for _, G, _ in usable], [A @ A.T for A, _ in roots], [np.abs(mean).max() for _, mean in roots]
        )
        s.found += [f"momentum: {text}"] if text else []
    return row


def _roots_against_masses(usable: Usable, roots: list[tuple[np.ndarray, np.ndarray]]) -> Cases:
    for (q, G, blur), (A, mean) in zip(usable, roots, strict=True):
        L = np.linalg.cholesky(0.5 * (G + G.T))
        W = np.linalg.solve(L, A)
        number = max(np.abs(W @ W.T - np.eye(len(q))).max(), np.abs(np.linalg.solve(L, mean)).max())
        case = f"draw_p(rng, np.array({text_of(q)}))  # covariance {text_of(A @ A.T)}; G: {text_of(G)}"
        yield Measured(number, 16 * blur, case)
    return "|L^-1 A A' L^-T - 1|, A from recorded normals, G = L L'; rounding x condition"


class _NotRecorded(Exception):
    """The momentum is not a linear function of recorded normal numbers."""


def _root(s: MetricExamination, q: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A and m in p = m + A w, each draw at q directly after one at ``before``."""
    rng = np.random.default_rng([s.seed, 8])

    def drawn(w: np.ndarray) -> tuple[np.ndarray, int]:
        _ask(s, before, rng.standard_normal(64 * len(q)))
        return _ask(s, q, w)

    mean, n = drawn(np.zeros(0))
    if n == 0:
        raise _NotRecorded("normal numbers are not recorded, since it asks for none")
    if n > 4000:
        raise _NotRecorded(f"it draws {n} normal numbers, too many to be recorded")
    mean, _ = drawn(np.zeros(n))
    columns = np.eye(n)
    A = np.stack([drawn(w)[0] - mean for w in columns], axis=1)
    w = rng.standard_normal(n)
    said, count = drawn(w)
    size = np.abs(A) @ np.abs(w) + np.abs(mean)
    if count != n or np.any(np.abs(said - mean - A @ w) > 1e6 * s.epsilon("draw_p") * (size + size.max())):
        raise _NotRecorded("it is not a linear function of its normal numbers")
    return A, mean


def _ask(s: MetricExamination, q: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the momentum at q from the given normals (more are drawn as needed), and the number of normals used."""
    draws = Draws(np.random.default_rng(s.seed), {"normal": normals})
    try:
        p = s.functions["draw_p"].vector((len(q),), as_generator(draws), q)
    except SubjectError as wrong:
        if isinstance(wrong.__cause__, Unscripted):
            raise _NotRecorded(f"it calls {wrong.__cause__}, which is not recorded") from None
        raise
    others = {question.kind for question in draws.asked} - {"normal"}
    if others:
        raise _NotRecorded(f"it draws other random numbers than normals ({', '.join(sorted(others))})")
    return p, draws.count("normal")


def _what_law(masses: list[np.ndarray], covariances: list[np.ndarray], means: list[float]) -> str:
    """Return a sentence on the distribution if it is one of the usual wrong ones."""

    def always(candidate: Callable[[int, np.ndarray], np.ndarray]) -> bool:
        return all(
            np.allclose(C, candidate(n, G), rtol=1e-6, atol=1e-9 * np.abs(C).max())
            for n, (C, G) in enumerate(zip(covariances, masses, strict=True))
        )

    inverse, root = np.linalg.inv, np.linalg.cholesky
    meant = "L^-1 w instead of L^-T w, with G^-1 = L L' or G = L L'"
    known: dict[str, Callable[[int, np.ndarray], np.ndarray]] = {
        "G^-1: the metric and its inverse are exchanged": lambda n, G: inverse(G),
        f"(L'L)^-1: {meant}": lambda n, G: inverse(root(G).T @ root(G)),
        "K^-T K^-1 with the roles of K and K' exchanged, K K' = G^-1": lambda n, G: inverse(
            root(inverse(G)).T @ root(inverse(G))
        ),
        "L'L: the root is transposed": lambda n, G: root(G).T @ root(G),
        "G^2: the metric is used instead of its root": lambda n, G: G @ G,
        "G's diagonal": lambda n, G: np.diag(np.diag(G)),
        "the identity": lambda n, G: np.eye(len(G)),
        "that of the previous position: the metric was not updated": lambda n, G: masses[(n + 1) % len(masses)],
    }
    if always(lambda n, G: G):
        return f"its mean is not zero (up to {max(means):.3g})"
    for text, candidate in known.items():
        if always(candidate):
            return f"its covariance is {text}"
    ratios = [C / G for C, G in zip(covariances, masses, strict=True) if np.all(G != 0)]
    if ratios and max(np.ptp(r) for r in ratios) < 1e-6 * max(np.abs(r).max() for r in ratios):
        return f"its covariance is {np.mean(ratios[0]):.6g} times G"
    if len(covariances) > 1 and all(np.allclose(C, covariances[0], rtol=1e-9) for C in covariances):
        return "its covariance is the same everywhere: the metric is not updated"
    return ""


def _momentum_by_tests(s: MetricExamination, usable: Usable) -> Row:
    """Test N(0, G): whitened, sums of squares along axes and diagonals are chi^2, means are normal."""
    from scipy.stats import chi2, norm

    least, tests, case, label = 1.0, 0, "", ""
    for n, (q, G, _) in enumerate(usable[:3]):
        rng, other = np.random.default_rng([s.seed, 9, n]), usable[(n + 1) % len(usable)][0]
        # The first half of the draws alternates with draws elsewhere; the second half does not.
        p = []
        for i in range(DRAWS):
            if i < DRAWS // 2:
                s.functions["draw_p"].vector((len(q),), rng, other)
            p.append(s.functions["draw_p"].vector((len(q),), rng, q))
        y = np.linalg.solve(np.linalg.cholesky(0.5 * (G + G.T)), np.array(p).T)
        for half in (y[:, : DRAWS // 2], y[:, DRAWS // 2 :]):
            m, d = half.shape[1], len(q)
            values = [2 * norm.sf(abs(np.sqrt(m) * row.mean())) for row in half]
            rows = [*half, *((half[i] + half[j]) / np.sqrt(2) for i in range(d) for j in range(i))]
            for row in rows:
                total = float((row**2).sum())
                values.append(2 * min(chi2.cdf(total, m), chi2.sf(total, m)))
            tests += len(values)
            if min(values) < least:
                least, label = float(min(values)), text_of(q)
    case = f"draw_p(rng, np.array({label}))  # seed {s.seed}"
    basis = f"least of {tests} p-values of exact tests; false-alarm rate at most {RATE:g} in total"
    return judged(least, RATE / tests, basis, case, relation=">=")

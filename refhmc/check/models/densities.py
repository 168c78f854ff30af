"""Identity of the density: derivatives cannot show that a model is consistently another density.

An example is a change of variables q -> x whose Jacobian is missing in both L and its gradient. Further information is needed:

    the density of x         L(q) - log p(x(q)) - log |det dx/dq| is the same at all q, with the Jacobian of the kit
                             (if x has more coordinates than q: 1/2 log det J'J, the volume on the surface)
    a second implementation  L(q) - reference(q) is the same at all q
    normalisation            the integral of exp L is 1, in one or two dimensions
    exact draws              E[h(q) dL/dq_k + dh/dq_k] = 0 for every smooth bounded h (Stein)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from refhmc.check.derivatives.points import place
from refhmc.check.derivatives.slopes import slope_along, width_along
from refhmc.check.judging import judged
from refhmc.check.models.edges import jump_along
from refhmc.check.models.examination import ModelExamination, noise_of_logp
from refhmc.check.report import FAIL, Row
from refhmc.check.subject.budget import Budget
from refhmc.check.subject.foreign import Foreign, Inconclusive, NotApplicable, SubjectError, text_of

STEIN_DRAWS = 8192
STEIN_NOMINAL = 1e-9  # of the normal approximation, so that the true rate is far below the stated one
STEIN_RATE = 1e-6
STEIN_SECONDS = 20.0
JUMPS_LOOKED_FOR = 20  # draws through which a line is searched if the sums are off


def normaliser_row(s: ModelExamination, constrained: tuple[Callable, Callable] | None, normalised: bool) -> Row:
    s.need()
    if constrained is not None:
        return _against_constrained(s, *constrained)
    density = getattr(s.reference, "log_density", None if hasattr(s.reference, "draw") else s.reference)
    if callable(density):
        return _against_density(s, density)
    if normalised:
        return _integral(s)
    raise NotApplicable(
        "derivatives cannot show a missing Jacobian; pass constrained, reference or (dim <= 2) normalised=True"
    )


def _spread(s: ModelExamination, known: Sequence[tuple[np.ndarray, float, float]], basis: str) -> Row:
    """Judge whether a number is the same at all points; ``known`` has points, numbers and their errors."""
    if len(known) < 4:
        raise Inconclusive("the density to compare with, or its Jacobian, is known at fewer than four points")
    gaps, errors = (np.array(x) for x in zip(*((gap, error) for _, gap, error in known), strict=True))
    middle = float(np.median(gaps))
    i, j = int(np.argmax(np.abs(gaps - middle) / errors)), int(np.argmin(np.abs(gaps - middle)))
    case = f"{s.call('logp', known[i][0])} - {s.call('logp', known[j][0])}  # off by {gaps[i] - gaps[j]:.9g}"
    return judged(abs(gaps[i] - middle), errors[i], basis, case)


def _known_test_points(s: ModelExamination) -> list[np.ndarray]:
    rng = np.random.default_rng([s.seed, 8])
    more = [place(s.frame, rng.standard_normal(s.dim) * size, s.good) for size in (0.5, 1.0, 1.0, 2.0, 2.0, 3.0)]
    test_points = [*s.ordinary, *s.asymmetric, *[q for q in more if q is not None]]
    return list({q.tobytes(): q for q in test_points}.values())


def _against_density(s: ModelExamination, density: Callable) -> Row:
    other = Foreign(density, "reference", s.like)
    values = [(q, s.functions["logp"].number(q), other.number(q)) for q in _known_test_points(s)]
    noise = 256 * max(noise_of_logp(s), s.epsilon("logp"), other.epsilon)
    finite = [x for x in values if np.isfinite(x[1:]).all()]
    known = [(q, ours - theirs, noise * (abs(ours) + abs(theirs) + 1.0)) for q, ours, theirs in finite]
    return _spread(s, known, "logp - reference is constant; 256 units of rounding of the terms")


def _against_constrained(s: ModelExamination, density_of_x: Callable, transform: Callable) -> Row:
    """Check that logp(q) - log p(x(q)) - 1/2 log det J'J is constant."""
    density, to_x = Foreign(density_of_x, "density of x", s.like), Foreign(transform, "transform", s.like)
    known, volumes = [], []
    for q in _known_test_points(s):
        x = to_x.vector(None, q).ravel()
        J, off = np.zeros((x.size, q.size)), np.zeros((x.size, q.size))

        def image(q: np.ndarray, n: int = x.size) -> np.ndarray:
            try:
                return to_x.vector(None, q).reshape(n)
            except SubjectError:
                return np.full(n, np.nan)

        unit = np.maximum(np.abs(x), 1e-3)
        for k, u in enumerate(np.eye(q.size)):
            w = width_along(image, q, u, unit)
            slope = slope_along(image, q, u, w, to_x.epsilon * np.maximum(np.abs(x), 1e-300) * 4)
            J[:, k], off[:, k] = slope.value, slope.error
        there = density.number(x if x.shape == np.shape(to_x.vector(None, q)) else to_x.raw(q))
        here = float(s.strictly("logp", q))
        if not (np.isfinite(J).all() and np.isfinite(there) and np.isfinite(off).all()):
            continue
        volume = np.linalg.slogdet(J)[1] if x.size == q.size else 0.5 * np.linalg.slogdet(J.T @ J)[1]
        blur = float((np.abs(np.linalg.pinv(J)) * off.T).sum())
        unit_of_all = max(noise_of_logp(s), s.epsilon("logp"), density.epsilon, to_x.epsilon)
        noise = 256 * unit_of_all * (abs(here) + abs(there) + abs(volume) + 1)
        if np.isfinite(volume) and blur <= 0.01:
            known.append((q, here - there - volume, noise + blur + 1e-9))
            volumes.append(volume)
    row = _spread(s, known, "logp - log p(x) - log|det dx/dq| is constant; error of the Jacobian + rounding")
    if row.status == FAIL:
        centred, gap = (np.array(x) - np.mean(x) for x in (volumes, [gap for _, gap, _ in known]))
        share = float(centred @ gap / max(centred @ centred, 1e-300))
        left = float(np.abs(gap - share * centred).max())
        words = {-1: "is missing", -2: "is subtracted, not added", 1: "is added twice"}
        whole = abs(share - round(share)) < 1e-6 and left < 1e-6 * max(1.0, float(np.abs(gap).max()))
        if centred @ centred > 1e-12 and whole and round(share) in words:
            s.failed.add(f"the log Jacobian of the transform {words[round(share)]} in logp")
    return row


def _integral(s: ModelExamination) -> Row:
    """Compute the integral of exp(logp) by the trapezoidal rule in t, q = centre + scale sinh(t), on three grids."""
    if s.dim > 2:
        raise NotApplicable("quadrature is only available in one or two dimensions")
    centre, scales, logp = s.frame.centre, s.frame.scales, s.at("logp")
    sums = []
    for n in (32, 64, 128) if s.dim == 2 else (128, 256, 512):
        t = np.linspace(-5.0, 5.0, n + 1)
        axes = [c + w * np.sinh(t) for c, w in zip(centre, scales, strict=True)]
        weights = [w * np.cosh(t) * (t[1] - t[0]) for w in scales]
        if s.dim == 1:
            values = np.array([float(logp(np.array([x]))) for x in axes[0]])
            weight = weights[0]
        else:
            values = np.array([[float(logp(np.array([x, y]))) for y in axes[1]] for x in axes[0]])
            weight = np.outer(*weights)
        values = np.where(np.isnan(values), -np.inf, values)
        sums.append(float((np.exp(values) * weight).sum()))
    error = abs(sums[2] - sums[1])
    if not error <= 1e-3 * abs(sums[2]) or abs(sums[2] - sums[1]) > 0.5 * abs(sums[1] - sums[0]) + 1e-9:
        raise Inconclusive(f"quadrature did not converge: {sums[0]:.6g}, {sums[1]:.6g}, {sums[2]:.6g}")
    case = f"# the integral of exp({s.names['logp']}) is {sums[2]:.9g}"
    basis = "|integral of exp(logp) - 1|; 10 x change from grid to grid"
    return judged(abs(sums[2] - 1), 10 * error + 1e-8, basis, case)


def exact_draws_row(s: ModelExamination) -> Row:
    """Test E[h dL/dq_k + dh/dq_k] = 0 at exact draws, for bumps and waves h, by the largest self-normalised sum."""
    draw = getattr(s.reference, "draw", None)
    if draw is None:
        raise NotApplicable("no exact draws are known; pass reference")
    s.need("grad")
    gradient, budget, n = s.at("grad"), Budget(STEIN_SECONDS), STEIN_DRAWS
    q = np.asarray(draw(np.random.default_rng([s.seed, 9]), n), dtype=float)
    if q.shape != (n, s.dim):
        raise Inconclusive(f"the reference drew an array of shape {q.shape} instead of {(n, s.dim)}")
    slopes: list[np.ndarray] = []
    for row in q:
        slopes.append(gradient(row))
        if budget.over():
            break
    g, q = np.array(slopes), q[: len(slopes)]
    if len(g) < 1000:
        raise Inconclusive(f"only {len(g)} gradients in {STEIN_SECONDS:g} s")
    if not np.isfinite(g).all():
        raise Inconclusive("the gradient is not finite at some exact draws")
    middle, spread = np.median(q, axis=0), np.subtract(*np.quantile(q, [0.75, 0.25], axis=0)) / 1.35
    z = (q - middle) / spread
    among = np.flatnonzero(s.smooth)
    if not len(among):
        raise NotApplicable("logp jumps in every coordinate")
    chosen = among if len(among) <= 10 else np.random.default_rng([s.seed, 10]).choice(among, 10, replace=False)
    worst, label, tests, at = 0.0, "", 0, int(chosen[0])
    for k in chosen:
        for text, h, slope in _test_functions(z, int(k)):
            terms = h * g[:, k] * spread[k] + slope
            tests += 1
            size = np.sqrt((terms**2).sum())
            score = abs(terms.sum()) / size if size > 0 else 0.0
            if score > worst:
                worst, label, at = float(score), f"coordinate {k}, h = {text}", int(k)
    from scipy.stats import norm

    limit = float(norm.isf(STEIN_NOMINAL / (2 * tests)))
    if worst > limit:
        _no_jump_along(s, at, q[:JUMPS_LOOKED_FOR], 3.0 * float(spread[at]))
    basis = (
        f"largest of {tests} self-normalised sums over {len(g)} exact draws; false-alarm rate at most {STEIN_RATE:g}"
    )
    return judged(worst, limit, basis, f"# {label}: E[h dL/dq + dh/dq] is not 0; seed {s.seed}")


def _no_jump_along(s: ModelExamination, k: int, draws: np.ndarray, length: float) -> None:
    """Raise Inconclusive if L jumps along coordinate k, since Stein's identity needs a continuous density."""
    for begin in draws:
        found = jump_along(s, begin, length * np.eye(len(begin))[k])
        if found is not None:
            where = f"coordinate {k}, near q = {text_of(np.round(found, 6))}"
            raise Inconclusive(f"logp jumps in {where}; pass such coordinates as discontinuous=")


def _test_functions(z: np.ndarray, k: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield names, values and slopes along z_k of functions with a window exp(-z_k^2/8), which bounds the terms."""
    x = z[:, k]
    window = np.exp(-x * x / 8)
    other = np.tanh(z[:, (k + 1) % z.shape[1]]) if z.shape[1] > 1 else np.ones_like(x)
    yield "window", window, -0.25 * x * window
    yield "z window", x * window, (1 - 0.25 * x * x) * window
    if z.shape[1] > 1:
        yield "tanh(next z) window", other * window, -0.25 * x * window * other
    yield "sin(2z) window", np.sin(2 * x) * window, (2 * np.cos(2 * x) - 0.25 * x * np.sin(2 * x)) * window

"""Relation of wrong derivatives to the right ones: a factor, a shift, an order of indices, a clip, a missing term."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refhmc.check.derivatives.claims import Claim

# index order of the wrong derivative by the permutation of the right one
ORDERS = {
    (2, 0, 1): "[k, i, j] (the direction first)",
    (0, 2, 1): "[i, k, j]",
    (2, 1, 0): "[k, j, i] (the direction first)",
    (1, 2, 0): "[j, k, i]",
}


def factor_between(value: np.ndarray, truth: np.ndarray, bound: np.ndarray) -> float | None:
    """Return c if value = c truth within the bounds everywhere; None if there is none, or c is 1."""
    weight = (truth / bound) ** 2
    if not np.isfinite(value).all() or weight.sum() == 0:
        return None
    c = float((value * truth / bound**2).sum() / weight.sum())
    return c if np.all(np.abs(value - c * truth) <= 4 * (1 + abs(c)) * bound) and abs(c - 1) > 1e-6 else None


def factor_in_words(c: float) -> str:
    simple = {
        -1.0: "minus the right value (that of the potential, -log density)",
        0.5: "half the right value",
        2.0: "twice the right value",
        0.0: "zero",
    }
    near = next((words for x, words in simple.items() if abs(c - x) < 1e-5), None)
    return near or f"{c:.6g} times the right value"


def pattern_of_gradient(found: Sequence[Claim]) -> str:
    """Return a sentence on the relation of the wrong gradient to the right one."""
    found = [c for c in found if c.decided.all() and not c.kinks.any() and len(c.directions) == len(c.q)]
    if not found:
        return ""
    value, truth, bound = (
        np.array(x) for x in zip(*[(c.value, c.truth, c.own + 1e-5 * c.size) for c in found], strict=True)
    )
    q = np.array([c.q for c in found])
    d = q.shape[1]
    c = factor_between(value, truth, bound)
    if c is not None:
        return f"the gradient is {factor_in_words(c)}"
    for shift in range(1, d):
        if np.all(
            np.abs(value - np.roll(truth, shift, axis=1)) <= 4 * np.maximum(bound, np.roll(bound, shift, axis=1))
        ):
            return f"the gradient's coordinates are shifted by {shift}"
    if d > 1 and np.all(np.abs(value - truth[:, ::-1]) <= 4 * np.maximum(bound, bound[:, ::-1])):
        return "the gradient's coordinates are in reverse order"
    wrong = np.flatnonzero((np.abs(value - truth) > bound).any(axis=0))
    if len(wrong) == d > 1:
        words = [_linear_in(q[:, k], (value - truth)[:, k], bound[:, k]) for k in wrong]
        if all(words):
            return f"every coordinate of the gradient is off by {words[0]} (in coordinate 0)"
        return "every coordinate of the gradient is wrong, not by a simple factor"
    texts = []
    for k in wrong[:3]:
        c = factor_between(value[:, k], truth[:, k], bound[:, k])
        off = _linear_in(q[:, k], (value - truth)[:, k], bound[:, k])
        texts.append(
            f"{k}: " + (factor_in_words(c) if c is not None else f"off by {off}" if off else "not by a simple factor")
        )
    return f"{len(wrong)} of {d} coordinates of the gradient wrong; " + "; ".join(texts)


def _linear_in(x: np.ndarray, gap: np.ndarray, bound: np.ndarray) -> str:
    """Return "the constant 1" or "-0.5 q" with a cause if that is the gap; else ""."""
    if len(x) < 3:
        return ""
    mean = float(gap.mean())
    if np.all(np.abs(gap - mean) <= 4 * bound):
        return f"the constant {mean:.6g}: a term is missing, or extra (a Jacobian?)"
    slope = float(x @ gap / (x @ x)) if x @ x > 0 else 0.0
    if np.all(np.abs(gap - slope * x) <= 4 * bound):
        return f"{slope:.6g} q: a quadratic term is missing, or extra (a normal prior?)"
    return ""


def clipped(found: Sequence[Claim]) -> str:
    """Return a sentence if the wrong answers all have one length, or one size, and the right ones are larger."""
    found = [c for c in found if (c.excess() > 1).any()]
    if len(found) < 2:
        return ""
    if len(found[0].q) == len(found[0].directions):
        lengths = np.array([np.linalg.norm(c.value) for c in found])
        right = np.array([np.linalg.norm(c.truth) for c in found])
        if np.ptp(lengths) <= 1e-6 * lengths.max() and np.all(right > lengths):
            return f"the gradient's length is clipped at {lengths.max():.6g}"
    sizes = np.concatenate([np.abs(c.value)[c.excess() > 1] for c in found])
    right = np.concatenate([np.abs(c.truth)[c.excess() > 1] for c in found])
    if np.isfinite(sizes).all() and np.ptp(sizes) <= 1e-6 * sizes.max() and np.all(right > sizes):
        return f"the gradient's coordinates are clipped at {sizes.max():.6g}"
    return ""


def pattern_far_out(found: Sequence[Claim]) -> str:
    """Return a sentence on a gradient that is right near the centre and wrong far out."""
    values = np.concatenate([c.value[c.excess() > 1] for c in found])
    if not np.isfinite(values).all():
        return "the gradient is not finite far out, although logp is: an overflow, or 0 times inf"
    return "the gradient is right near the centre and wrong far out: clipped, or another branch"


def pattern_of_tensor(found: Sequence[Claim]) -> str:
    """Return a sentence on the relation of a wrong derivative of a vector or matrix to the right one."""
    found = [c for c in found if len(c.directions) == len(c.q) and c.decided.all()]
    if not found:
        return ""
    value, truth, bound = (
        np.array(x) for x in zip(*[(c.value, c.truth, c.own + 1e-5 * c.size) for c in found], strict=True)
    )
    lost = np.isfinite(truth) & ~np.isfinite(value)
    if lost.any():
        return f"not finite in {lost.any(axis=0).sum()} of {int(np.prod(lost.shape[1:]))} entries, although its function is"
    c = factor_between(value, truth, bound)
    if c is not None:
        return factor_in_words(c)
    if value.ndim == 4:
        for order, text in ORDERS.items():
            turned = [np.transpose(x, (0, *(a + 1 for a in order))) for x in (truth, bound)]
            if np.all(np.abs(value - turned[0]) <= 4 * np.maximum(turned[1], bound)):
                return f"right except for the order of its indices: it is {text} instead of [i, j, k] = d[i, j]/dq_k"
    wrong = np.abs(value - truth) > bound
    at = np.argwhere(wrong.any(axis=0))
    total = int(np.prod(wrong.shape[1:]))
    if len(at) < total / 2:
        shown = ", ".join(str(tuple(map(int, a))) for a in at[:4])
        return f"{len(at)} of {total} entries wrong: {shown}" + (", ..." if len(at) > 4 else "")
    return ""

"""The complex step: derivatives of a model's own text without truncation or cancellation."""

from __future__ import annotations

import numpy as np

from refhmc.compile.compiled import plain

STEP = 1e-30


SIZES = {"gradient": 1, "hessian": 2, "third_derivative": 3, "fisher": 2, "fisher_derivative": 3}


SERIES = np.array([0.3, -1.2, 2.4, 0.1, 1.9, -0.4, 3.2, -2.2, 0.7, 1.1, -0.9, 0.2])


def assert_close(q, actual, expected, tolerance=1e-9, what="", by_direction=False):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert np.isfinite(actual).all(), f"{what} at {q.tolist()} is not finite: {actual}"
    slices = tuple(range(actual.ndim - 1)) if by_direction and actual.ndim > 1 else None
    scale = np.maximum(np.abs(actual), np.abs(expected)).max(axis=slices)
    error = np.abs(actual - expected).max(axis=slices)
    # The step's truncation, of order STEP^2, is seen where the tensor is zero; rounding is that of the largest entry.
    rounding = STEP + 1e-14 * scale.max(initial=0.0)
    assert np.all(error <= tolerance * scale + rounding), f"{what} at {q.tolist()}: error {error}, scale {scale}"


def call_plain(model, key, q, *M):
    """The text of that function as Python, at a real or complex position."""
    f = plain(getattr(model.functions, "value_and_gradient" if key == "gradient" else key))
    if key == "log_density":
        return f(q, model.core.data)
    out = np.zeros((model.dim,) * (1 if M else SIZES[key]), q.dtype)
    f(q, model.core.data, *M, out)
    return out


def complex_step(model, key, q):
    """d(that function)/dq, the derivative's index last."""
    columns = []
    for k in range(model.dim):
        shifted = q.astype(complex)
        shifted[k] += 1j * STEP
        columns.append(np.imag(call_plain(model, key, shifted)) / STEP)
    return np.stack(columns, axis=-1)

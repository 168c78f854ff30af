"""Activations of a network: functions of one number with their derivatives up to the third.

They are ::

    tanh      f' = 1 - f^2                       f'' = -2 f f'              f''' = (6 f^2 - 2) f'
    relu      f = max(x, 0): f' = 1 for x > 0, 0 for x <= 0; all further derivatives 0
    selu      f = l x for x > 0, l a (e^x - 1) for x <= 0 (Klambauer et al. 2017)

At the kink x = 0 of the last two, the derivatives are those from the left, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable

from refhmc.numerics.batched import Array, namespace

SELU_SCALE = 1.0507009873554804934193349852946  # l and a, for which mean 0 and variance 1 are a fixed point
SELU_ALPHA = 1.6732632423543772848170429916717


def tanh(x: Array, order: int) -> list[Array | None]:
    """Return f, f', ..., to the ``order``-th derivative."""
    f = namespace(x).tanh(x)
    slope = 1 - f * f
    return [f, slope, *([-2 * f * slope, (6 * f * f - 2) * slope] if order > 1 else [])][: order + 1]


def relu(x: Array, order: int) -> list[Array | None]:
    positive = namespace(x).astype(x > 0, x.dtype)
    return [x * positive, positive, None, None][: order + 1]


def selu(x: Array, order: int) -> list[Array | None]:
    xp = namespace(x)
    positive = x > 0
    falling = SELU_SCALE * SELU_ALPHA * xp.exp(xp.where(positive, xp.zeros_like(x), x))
    f = xp.where(positive, SELU_SCALE * x, falling - SELU_SCALE * SELU_ALPHA)
    bend = xp.where(positive, xp.zeros_like(x), falling) if order > 1 else None
    return [f, xp.where(positive, xp.full_like(x, SELU_SCALE), falling), bend, bend][: order + 1]


ACTIVATIONS: dict[str, Callable] = {"tanh": tanh, "relu": relu, "selu": selu}

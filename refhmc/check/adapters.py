"""From the shapes in which others write steps and kernels to the ones the checks call, and from refhmc's own.

A check calls a step as ``step(q, p, eps, n) -> (q, p)`` and a kernel as ``kernel(rng, q) -> q``, ``kernel(draws, q) -> q``
(:class:`refhmc.check.Draws`) or, for one transition on given randomness, ``kernel(q, p0=p, u=u) -> q``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.check import own
from refhmc.check.subject.foreign import to_host


def step_with_state(step: Callable, make: Callable, read: Callable) -> Callable:
    """``step(state, eps) -> state`` as a step: ``make(q, p)`` gives a state, ``read(state)`` its (q, p)."""

    def several(q: Any, p: Any, eps: float, n: int) -> Any:
        state = make(q, p)
        for _ in range(n):
            state = step(state, eps)
        return read(state)

    return several


def one_of_batch(step: Callable) -> Callable:
    """``step(q, p, eps, n)`` for arrays (chains, d) as a step of one chain."""

    def single(q: Any, p: Any, eps: float, n: int) -> tuple[np.ndarray, np.ndarray]:
        new_q, new_p = step(q[None], p[None], eps, n)
        return new_q[0], new_p[0]

    return single


def kernel_with_key(kernel: Callable, make_key: Callable) -> Callable:
    """``kernel(key, q)`` as ``kernel(rng, q)``; ``make_key(seed)`` for a 32-bit whole number, as ``jax.random.key``."""
    return lambda rng, q: kernel(make_key(int(rng.integers(2**32))), q)


def kernel_with_global_seed(kernel: Callable, seed: Callable, get_state: Callable, set_state: Callable) -> Callable:
    """``kernel(q)`` on a global generator as ``kernel(rng, q)``; the generator's state is put back after each call.

    For Torch: ``seed=torch.manual_seed, get_state=torch.get_rng_state, set_state=torch.set_rng_state``.
    """

    def called(rng: np.random.Generator, q: Any) -> Any:
        before = get_state()
        try:
            seed(int(rng.integers(2**32)))
            return kernel(q)
        finally:
            set_state(before)

    return called


def kernel_with_state(kernel: Callable, make: Callable, read: Callable) -> Callable:
    """``kernel(rng, state) -> state`` (or ``(state, info)``) as ``kernel(rng, q)``, by ``make(q)`` and ``read(state)``."""

    def called(rng: np.random.Generator, q: Any) -> Any:
        result = kernel(rng, make(q))
        # A plain pair is (state, info); a NamedTuple is the state itself.
        return read(result[0] if type(result) is tuple else result)

    return called


def on_host(function: Callable) -> Callable:
    """A function written for NumPy, to be used beside a subject whose arrays are others (``like=``)."""
    return lambda *arguments: function(*map(to_host, arguments))


def refhmc_step(H: Any, integrator: Any) -> Callable:
    """One of refhmc's integrators as a step; a solve that fails gives NaN."""

    def several(q: Any, p: Any, eps: float, n: int) -> tuple[np.ndarray, np.ndarray]:
        path = own.integrate(H, integrator, to_host(q), to_host(p), step_size=eps, n_steps=n)
        return path.q[-1], path.p[-1]

    return several


def refhmc_kernel(model: Any, kernel: Any) -> Callable:
    """One of refhmc's kernels as ``kernel(rng, q)``, and as ``kernel(q, p0=p, u=u)``; nothing is adapted."""
    called = _RefhmcKernel(model, kernel)
    with contextlib.suppress(Exception):  # what it compiles at its first call is not the subject's time
        called(np.random.default_rng(0), np.zeros(model.dim))
    return called


def drawn_parts(kernel: Any, model: Any) -> int:
    """How many parts of a split model one of refhmc's kernels puts into an order of its own for each trajectory."""
    count = getattr(getattr(kernel, "integrator", None), "drawn_parts", None)
    return count(model) if count is not None and hasattr(model, "parts") else 0


def uniforms_of(order: Any) -> list[float]:
    """What refhmc's draw of an order is asked for that order to come out (Fisher and Yates, from the last entry down)."""
    left, found = list(range(len(order))), []
    for k in range(len(order) - 1, 0, -1):
        j = left.index(int(order[k]))
        left[j], left[k] = left[k], left[j]
        found.append((j + 0.5) / (k + 1))
    return found


def refhmc_hmc_in_an_order(model: Any, kernel: Any) -> Callable:
    """refhmc's HMC as ``kernel(draws, q)``, the order of the parts one question and each other uniform another."""
    M = drawn_parts(kernel, model)
    jitters = (getattr(kernel, "step_jitter", 0.0) > 0) + ((getattr(kernel, "length_jitter", 0.0) or 0.0) > 0)

    def in_an_order(draws: Any, q: Any) -> np.ndarray:
        normals, order = draws.normal(model.dim), uniforms_of(draws.permutation(M))
        uniforms = [*order, *(draws.uniform() for _ in range(1 + jitters))]
        return own.transition(model, kernel, to_host(q), normals=normals, uniforms=np.array(uniforms)).q

    return in_an_order


class _RefhmcKernel:
    """Each transition makes a chain of its own: nothing is kept between two, and a copy would only be compiled again."""

    def __init__(self, model: Any, kernel: Any) -> None:
        self.model, self.kernel = model, kernel
        self.__name__ = f"refhmc's {type(kernel).__name__}"

    def __call__(self, *arguments: Any, p0: Any = None, u: Any = None) -> np.ndarray:
        q = to_host(arguments[-1])
        if p0 is None:
            return own.transition(self.model, self.kernel, q, rng=arguments[0]).q
        return own.transition(self.model, self.kernel, q, momentum=to_host(p0), uniforms=np.atleast_1d(u)).q

    def __deepcopy__(self, memo: dict) -> _RefhmcKernel:
        return self

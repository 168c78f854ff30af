"""Adapters from other call signatures of steps and kernels to those of the checks.

A check calls a step as ``step(q, p, eps, n) -> (q, p)`` and a kernel as ``kernel(rng, q) -> q``, ``kernel(draws, q) -> q``
(:class:`refhmc.check.Draws`) or, for one transition on given randomness, ``kernel(q, p0=p, u=u) -> q``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.check import own
from refhmc.check.subject.draws import Draws
from refhmc.check.subject.foreign import to_host

__all__ = [
    "kernel_with_global_seed",
    "kernel_with_key",
    "kernel_with_state",
    "on_host",
    "one_of_batch",
    "refhmc_chain",
    "refhmc_kernel",
    "refhmc_step",
    "step_with_state",
]


def step_with_state(step: Callable, make: Callable, read: Callable) -> Callable:
    """Adapt a step on state objects to ``step(q, p, eps, n) -> (q, p)``.

    Parameters
    ----------
    step : callable
        ``step(state, eps) -> state``, one step of size `eps`.
    make : callable
        ``make(q, p) -> state``.
    read : callable
        ``read(state) -> (q, p)``.

    Returns
    -------
    callable
        ``step(q, p, eps, n) -> (q, p)`` for :func:`refhmc.check.integrator`; it takes `n` steps.

    Examples
    --------
    >>> def leapfrog(state, eps):  # H = (q^2 + p^2) / 2
    ...     q, p = state
    ...     p = p - eps / 2 * q
    ...     q = q + eps * p
    ...     return q, p - eps / 2 * q
    >>> step = refhmc.check.adapters.step_with_state(leapfrog, lambda q, p: (q, p), lambda state: state)
    >>> step(1.0, 0.0, 0.1, 1)
    (0.995, -0.09975)
    """

    def several(q: Any, p: Any, eps: float, n: int) -> Any:
        state = make(q, p)
        for _ in range(n):
            state = step(state, eps)
        return read(state)

    return several


def one_of_batch(step: Callable) -> Callable:
    """Adapt a step on a batch of chains to a step of one chain.

    Parameters
    ----------
    step : callable
        ``step(q, p, eps, n) -> (q, p)`` for arrays of shape (chains, dim).

    Returns
    -------
    callable
        ``step(q, p, eps, n) -> (q, p)`` for arrays of shape (dim,).
    """

    def single(q: Any, p: Any, eps: float, n: int) -> tuple[np.ndarray, np.ndarray]:
        new_q, new_p = step(q[None], p[None], eps, n)
        return new_q[0], new_p[0]

    return single


def kernel_with_key(kernel: Callable, make_key: Callable) -> Callable:
    """Adapt a kernel with an explicit random key to ``kernel(rng, q) -> q``.

    Parameters
    ----------
    kernel : callable
        ``kernel(key, q) -> q``.
    make_key : callable
        ``make_key(seed) -> key`` for a 32-bit integer, such as ``jax.random.key``.

    Returns
    -------
    callable
        ``kernel(rng, q) -> q``, which draws the seed of a new key from `rng` in each call.
    """
    return lambda rng, q: kernel(make_key(int(rng.integers(2**32))), q)


def kernel_with_global_seed(kernel: Callable, seed: Callable, get_state: Callable, set_state: Callable) -> Callable:
    """Adapt a kernel that uses a global random generator to ``kernel(rng, q) -> q``.

    The state of the global generator is restored after each call. For PyTorch pass
    ``seed=torch.manual_seed, get_state=torch.get_rng_state, set_state=torch.set_rng_state``.

    Parameters
    ----------
    kernel : callable
        ``kernel(q) -> q``.
    seed : callable
        ``seed(number)`` seeds the global generator with a 32-bit integer.
    get_state : callable
        ``get_state() -> state`` of the global generator.
    set_state : callable
        ``set_state(state)`` restores it.

    Returns
    -------
    callable
        ``kernel(rng, q) -> q``, which seeds the global generator from `rng` in each call.
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
    """Adapt a kernel on state objects to ``kernel(rng, q) -> q``.

    Parameters
    ----------
    kernel : callable
        ``kernel(rng, state) -> state`` or ``kernel(rng, state) -> (state, info)``. A named tuple is taken as a state.
    make : callable
        ``make(q) -> state``.
    read : callable
        ``read(state) -> q``.

    Returns
    -------
    callable
        ``kernel(rng, q) -> q``.
    """

    def called(rng: np.random.Generator, q: Any) -> Any:
        result = kernel(rng, make(q))
        # A plain pair is (state, info); a NamedTuple is the state itself.
        return read(result[0] if type(result) is tuple else result)

    return called


def on_host(function: Callable) -> Callable:
    """Adapt a function written for NumPy to arrays of another library.

    Use it for functions that accompany a subject which is checked with `like`.

    Parameters
    ----------
    function : callable
        Function of NumPy arrays.

    Returns
    -------
    callable
        The same function of arrays on any device; they are copied to NumPy arrays first.
    """
    return lambda *arguments: function(*map(to_host, arguments))


def refhmc_step(H: Any, integrator: Any) -> Callable:
    """Adapt an integrator of refhmc to ``step(q, p, eps, n) -> (q, p)``.

    Parameters
    ----------
    H : refhmc.Hamiltonian
        Hamiltonian of a model and a metric.
    integrator : refhmc integrator
        Integrator from :mod:`refhmc.integrators`.

    Returns
    -------
    callable
        ``step(q, p, eps, n) -> (q, p)``. The result is NaN if an implicit equation could not be solved.
    """

    def several(q: Any, p: Any, eps: float, n: int) -> tuple[np.ndarray, np.ndarray]:
        path = own.integrate(H, integrator, to_host(q), to_host(p), step_size=eps, n_steps=n)
        return path.q[-1], path.p[-1]

    return several


def refhmc_kernel(model: Any, kernel: Any) -> Callable:
    """Adapt a kernel of refhmc to the call signatures of the checks; nothing is adapted during the check.

    Parameters
    ----------
    model : refhmc.Model
        Model that the kernel samples.
    kernel : refhmc kernel
        Kernel from :mod:`refhmc.kernels` with a fixed step size.

    Returns
    -------
    callable
        ``kernel(rng, q) -> q`` and, on given randomness, ``kernel(q, p0=p, u=u) -> q``. For ``GIST``, ``AutoStep``,
        ``MAMS`` and ``MALT``, which draw other numbers, ``kernel(draws, q) -> q`` instead of the latter, where `draws` is a
        :class:`refhmc.check.Draws`. For a kernel that keeps its momentum, ``kernel(draws, q, p) -> (q, p)``, or
        ``kernel(draws, q) -> (q, p)`` if its `persistence` is 0. The momentum of MAMS is replaced by the unit velocity, in
        coordinates in which the metric is the identity.

    Raises
    ------
    TypeError
        If the kernel never rejects, as MCLMC, so that its transitions are not exact.
    """
    with contextlib.suppress(Exception):  # compilation in the first call does not count as the subject's time
        own.transition(model, kernel, np.zeros(model.dim), rng=np.random.default_rng(0))
    if getattr(kernel, "keeps_momentum", False):
        if isinstance(kernel, own.MCLMC):
            raise TypeError(
                "kernel must accept or reject its moves for this check; got MCLMC, which accepts all of them and is not exact. "
                "Use refhmc.check.leap for its step."
            )
        if getattr(kernel, "microcanonical", False):
            return _keeping_velocity(model, kernel)
        kept = _keeping_momentum(model, kernel)
        return _forgetting(model, kernel, kept) if kernel.persistence == 0 else kept
    if isinstance(kernel, own.MALT):
        return _refreshing(model, kernel)
    if getattr(kernel, "microcanonical", False):
        return _turning(model, kernel)
    tuning = next((n for name, n in TUNING_UNIFORMS.items() if isinstance(kernel, getattr(own, name))), 0)
    return _RefhmcSelfTuning(model, kernel, tuning) if tuning else _RefhmcKernel(model, kernel)


def _refreshing(model: Any, kernel: Any) -> Callable:
    """Return one transition of MALT, whose refreshments between steps read normals among the uniforms."""
    n = kernel.n_steps or min(max(round(kernel.settings()["trajectory_length"] / kernel.step_size), 1), 1024)

    shorter = [dataclasses.replace(kernel, n_steps=k, trajectory_length=None) for k in range(1, n)]

    def refreshing(draws: Any, q: Any) -> Any:
        q = to_host(q)
        if isinstance(draws, np.random.Generator):
            return own.transition(model, kernel, q, rng=draws).q
        normals, jitter = draws.normal(model.dim), [draws.uniform()] if kernel.step_jitter > 0 else []
        tape = np.concatenate([jitter, *(draws.normal(model.dim) for _ in range(n - 1)), [draws.uniform()]])
        made = own.transition(model, kernel, q, normals=normals, uniforms=tape).q
        # A shorter trajectory on the same numbers ends after its last step if it is accepted.
        numbers = [np.append(tape[: len(jitter) + k * model.dim], 0.0) for k in range(n - 1)]
        ends = [
            own.transition(model, short, q, normals=normals, uniforms=u).q
            for short, u in zip(shorter, numbers, strict=True)
        ]
        return {"q": made, "path": np.reshape(ends, (n - 1, model.dim))}

    return refreshing


def _turning(model: Any, kernel: Any) -> Callable:
    """Return one transition of MAMS with a new velocity, which has the direction of normals."""
    jitters = (kernel.step_jitter > 0) + (kernel.settings()["length_jitter"] > 0)

    def turning(draws: Any, q: Any) -> np.ndarray:
        if isinstance(draws, np.random.Generator):
            return own.transition(model, kernel, to_host(q), rng=draws).q
        normals, u = draws.normal(model.dim), np.array([draws.uniform() for _ in range(jitters + 1)])
        return own.transition(model, kernel, to_host(q), normals=normals, uniforms=u).q

    return turning


def _keeping_velocity(model: Any, kernel: Any) -> Callable:
    """Return one transition of MAMS that keeps a part of its velocity u, where p = d^(1/2) L u and M = L L'.

    L is the root with which the kernel draws its momenta from normals.
    """
    jitters = (kernel.step_jitter > 0) + (kernel.settings()["length_jitter"] > 0)
    start, u = np.zeros(model.dim), np.full(jitters + 1, 0.5)
    drawn = [own.transition(model, kernel, start, normals=e, uniforms=u).momentum for e in np.eye(model.dim)]
    root = model.dim**0.5 * np.stack(drawn, axis=-1)

    def kept(draws: Any, q: Any, u: Any) -> tuple[np.ndarray, np.ndarray]:
        normals, uniforms = draws.normal(model.dim), np.array([draws.uniform() for _ in range(jitters + 1)])
        made = own.transition(model, kernel, to_host(q), momentum=root @ to_host(u), normals=normals, uniforms=uniforms)
        return made.q, np.linalg.solve(root, made.kept_momentum)

    return kept


def _keeping_momentum(model: Any, kernel: Any) -> Callable:
    """Return one transition of a kernel that keeps its momentum, with as many uniforms as it can need."""
    jitters = (kernel.step_jitter > 0) + (getattr(kernel, "length_jitter", 0.0) > 0)
    shift = getattr(kernel, "slice_shift", 0.0)

    def kept(draws: Any, q: Any, p: Any) -> tuple[np.ndarray, np.ndarray]:
        normals, n = draws.normal(model.dim), jitters + getattr(kernel, "max_stages", 1)
        uniforms = np.array([draws.uniform() for _ in range(n)])
        numbers: dict[str, Any] = {"normals": normals, "uniforms": uniforms}
        if shift > 0:  # the size of the slice variable, once it is shifted, is the number of the decision
            numbers["slice_variable"] = (uniforms[-1] - shift + 1) % 2 - 1
        made = own.transition(model, kernel, to_host(q), momentum=to_host(p), **numbers)
        return made.q, made.kept_momentum

    return kept


def _forgetting(model: Any, kernel: Any, kept: Callable) -> Callable:
    """Return one transition of a kernel that keeps no share of its momentum, without a momentum to start from."""

    def forgetting(draws: Any, q: Any) -> Any:
        if isinstance(draws, np.random.Generator):
            return own.transition(model, kernel, to_host(q), rng=draws).q
        return kept(draws, q, np.zeros(model.dim))

    return forgetting


def refhmc_chain(model: Any, kernel: Any) -> Any:
    """Adapt a kernel of refhmc that keeps its momentum to an object with ``init``, ``step`` and ``read``.

    Parameters
    ----------
    model : refhmc.Model
        Model that the kernel samples.
    kernel : refhmc kernel
        Kernel with a fixed step size, such as ``GHMC`` or ``DRHMC``.

    Returns
    -------
    object
        ``init(rng, q)`` returns a state with a new momentum, ``step(rng, state)`` the state after one transition, and
        ``read(state)`` its position.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> kernel = refhmc.GHMC(step_size=0.5, metric=refhmc.metrics.Identity())
    >>> chain = refhmc.check.adapters.refhmc_chain(refhmc.models.Funnel(1), kernel)
    >>> rng = np.random.default_rng(1)
    >>> state = chain.step(rng, chain.init(rng, np.zeros(2)))
    >>> chain.read(state).shape
    (2,)
    """
    return _RefhmcChain(model, kernel)


class _RefhmcChain:
    """States (q, p, u) of a kernel that keeps its momentum, with the slice variable u or None."""

    def __init__(self, model: Any, kernel: Any) -> None:
        self.model, self.kernel = model, kernel
        self.__qualname__ = repr(kernel)

    def init(self, rng: np.random.Generator, q: Any) -> tuple:
        q = to_host(q)
        p = own.Hamiltonian(self.model, self.kernel.metric).draw_momentum(q, rng)
        return q, p, 2 * rng.random() - 1 if getattr(self.kernel, "slice_shift", 0) > 0 else None

    def step(self, rng: np.random.Generator, state: tuple) -> tuple:
        q, p, u = state
        made = own.transition(self.model, self.kernel, q, momentum=p, rng=rng, slice_variable=u)
        return made.q, made.kept_momentum, made.stats.get("slice_variable")

    def read(self, state: tuple) -> np.ndarray:
        return state[0]


def drawn_parts(kernel: Any, model: Any) -> int:
    """Return the number of parts of a split model that a kernel orders at random in each trajectory.

    Parameters
    ----------
    kernel : refhmc kernel
        Kernel from :mod:`refhmc.kernels`.
    model : refhmc.Model
        Model, possibly split into parts.

    Returns
    -------
    int
        Number of parts, or 0 if the order is fixed.
    """
    count = getattr(getattr(kernel, "integrator", None), "drawn_parts", None)
    return count(model) if count is not None and hasattr(model, "parts") else 0


def uniforms_of(order: Any) -> list[float]:
    """Return uniform numbers for which refhmc draws a given order.

    refhmc shuffles by Fisher and Yates, from the last entry down.

    Parameters
    ----------
    order : array_like of int, shape (M,)
        Permutation of 0, ..., M - 1.

    Returns
    -------
    list of float
        The M - 1 uniform numbers in the order in which they are used.
    """
    left, found = list(range(len(order))), []
    for k in range(len(order) - 1, 0, -1):
        j = left.index(int(order[k]))
        left[j], left[k] = left[k], left[j]
        found.append((j + 0.5) / (k + 1))
    return found


def refhmc_hmc_in_an_order(model: Any, kernel: Any) -> Callable:
    """Adapt HMC of refhmc on a split model to ``kernel(draws, q) -> q``.

    The order of the parts is one random decision (a permutation), so that a check can enumerate the orders.

    Parameters
    ----------
    model : refhmc.Model
        Model that is split into parts.
    kernel : refhmc.HMC
        Kernel with a split integrator that draws an order per trajectory.

    Returns
    -------
    callable
        ``kernel(draws, q) -> q``, where `draws` is a :class:`refhmc.check.Draws`.
    """
    M = drawn_parts(kernel, model)
    jitters = (getattr(kernel, "step_jitter", 0.0) > 0) + ((getattr(kernel, "length_jitter", 0.0) or 0.0) > 0)

    def in_an_order(draws: Any, q: Any) -> np.ndarray:
        normals, order = draws.normal(model.dim), uniforms_of(draws.permutation(M))
        uniforms = [*order, *(draws.uniform() for _ in range(1 + jitters))]
        return own.transition(model, kernel, to_host(q), normals=normals, uniforms=np.array(uniforms)).q

    return in_an_order


TUNING_UNIFORMS = {"GIST": 1, "AutoStep": 2}  # number of uniforms before the one that decides on the proposal


class _RefhmcSelfTuning:
    """GIST or AutoStep of refhmc, with all its random numbers from ``draws``, or from a generator.

    The kernel states the probability a of its proposal. With draws, the decision is a flip of a, and the transition is made
    with a uniform that differs from a by 1e-9, so that a wrong statement shows.
    """

    def __init__(self, model: Any, kernel: Any, tuning: int) -> None:
        self.model, self.kernel, self.tuning = model, kernel, tuning
        self.last: tuple = ((), 0.0)  # the last arguments, and the probability that was stated for them
        self.__name__ = f"refhmc's {type(kernel).__name__}"

    def __call__(self, source: Any, q: Any) -> np.ndarray:
        q = to_host(q)
        if not isinstance(source, Draws):
            return own.transition(self.model, self.kernel, q, rng=source).q
        normals = source.normal(self.model.dim)
        uniforms = np.array([*(source.uniform() for _ in range(self.tuning)), 0.5])
        asked = (q.tobytes(), normals.tobytes(), uniforms.tobytes())
        if asked != self.last[0]:
            made = own.transition(self.model, self.kernel, q, normals=normals, uniforms=uniforms)
            stated = made.probabilities[self.tuning :]
            self.last = (
                asked,
                stated[0] if len(stated) else 0.0,
            )  # none is stated if the energy at the start is not finite
        a = self.last[1]
        accepted = source.flip(math.log(a) if a > 0 else -math.inf)
        uniforms[-1] = a * (1 - 1e-9) if accepted else min(a + 1e-9, 1 - 2.0**-53)
        return own.transition(self.model, self.kernel, q, normals=normals, uniforms=uniforms).q

    def __deepcopy__(self, memo: dict) -> _RefhmcSelfTuning:
        return self


class _RefhmcKernel:
    """Kernel of refhmc in which each transition creates its own chain; copies are not needed since nothing is kept."""

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

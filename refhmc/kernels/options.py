"""Options that the kernels share: step size, target acceptance, metric, integrator."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import numba

from refhmc.compile.numba_internals import Dispatcher
from refhmc.core.arguments import is_number, positive, share, whole_number
from refhmc.core.other_names import our_name
from refhmc.core.registry import AUTO, Registry, options
from refhmc.core.sample_stats import PLACE
from refhmc.integrators import INTEGRATORS
from refhmc.integrators.defaults import resolve
from refhmc.metrics import METRICS

Class = TypeVar("Class", bound=type)


class Kernel(Protocol):
    """Protocol of a kernel of one transition, refhmc's or a user's (``docs/how_to_add.md``).

    A kernel with ``blocks``, a mapping from blocks to such kernels, needs nothing else (:mod:`refhmc.kernels.blocks`).

    ``transition`` is the compiled function of the signature ``types.TRANSITION``. ``settings`` returns entries of the
    record of that name. ``statistics`` has the names of those of :mod:`refhmc.core.sample_stats` that the kernel fills in.
    A ``step_size`` of None is adapted to ``target_accept``. A kernel may have ``exact = False`` and an ``approximation``,
    the reason, which becomes a warning in the result. One with ``keeps_momentum = True`` keeps the momentum of the chain's
    state between transitions (:mod:`refhmc.kernels.ghmc`).
    """

    @property
    def step_size(self) -> float | None: ...
    @property
    def target_accept(self) -> float | None: ...
    @property
    def metric(self) -> Any: ...  # a Metric, or None for the default
    @property
    def integrator(self) -> Any: ...  # an Integrator, or None for the default
    @property
    def transition(self) -> Callable: ...
    @property
    def statistics(self) -> tuple[str, ...]: ...
    def settings(self) -> dict[str, float]: ...


class BlockKernel(Protocol):
    """Protocol of a kernel that moves blocks of coordinates, each with its own kernel."""

    @property
    def blocks(self) -> Mapping: ...


AnyKernel = Kernel | BlockKernel


def with_advice(kind: Class) -> Class:
    """Return a class of kernels whose constructor gives the refhmc name of another library's option."""
    init = vars(kind)["__init__"]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **given: Any) -> None:
        known = options(kind)
        for name in given:
            if name not in known:
                ours = our_name(name)
                near = [ours] if ours in known else difflib.get_close_matches(name, known, 1, 0.8)
                words = f"Use {near[0]}." if near else f"Its options are {', '.join(known)}."
                raise TypeError(f"{kind.__name__}() has no option {name!r}. {words}")
        init(self, *args, **given)

    type.__setattr__(kind, "__init__", __init__)
    return kind


def check_kernel(kernel: Any, what: str) -> None:
    """Raise TypeError unless this is a kernel of one transition, ValueError for an unknown statistic."""
    names = ("step_size", "target_accept", "metric", "integrator", "transition", "statistics", "settings")
    if isinstance(kernel, type) or not all(hasattr(kernel, name) for name in names):
        raise TypeError(
            f"{what} must be refhmc.HMC(...), NUTS(...), DHMC(...) or a kernel of your own; got {kernel!r}. "
            "Give an object, not a class."
        )
    kind, transition, statistics = type(kernel).__name__, kernel.transition, kernel.statistics
    if not (isinstance(transition, Dispatcher) or (numba.config.DISABLE_JIT and callable(transition))):
        raise TypeError(
            f"{what} {kind} must have a transition that Numba compiles; got {transition!r}. Decorate the function with "
            "refhmc.compile.compiled.jit or numba.njit."
        )
    if isinstance(statistics, str) or not isinstance(statistics, Iterable):
        raise TypeError(f"{what} {kind} must have statistics, a tuple of names; got {statistics!r}.")
    for name in statistics:
        if name not in PLACE:
            near = difflib.get_close_matches(str(name), PLACE, 1, 0.6)
            words = f"Did you mean {near[0]!r}?" if near else f"The names are {', '.join(PLACE)}."
            raise ValueError(f"{what} {kind} has an unknown name in statistics, {name!r}. {words}")


def check_options(kernel: Any) -> None:
    """Raise ValueError or TypeError, with the name and the value, for an invalid option."""
    if kernel.step_size is not None:
        positive("step_size", kernel.step_size)
    target = kernel.target_accept
    if target is not None and not (is_number(target) and 0 < target < 1):
        raise ValueError(f"target_accept must lie between 0 and 1; got {target!r}. Values from 0.8 to 0.99 are common.")
    for what, known in (("metric", METRICS), ("integrator", INTEGRATORS)):
        if isinstance(getattr(kernel, what), str):
            object.__setattr__(kernel, what, named(getattr(kernel, what), what, known))
    resolve(kernel.metric, kernel.integrator)


def named(word: str, what: str, known: Registry) -> Any:
    """Return the object with defaults that the command line calls by this word, such as "softabs"; None for "auto".

    Raises ValueError for another word.
    """
    there = {each.replace("_", "-"): each for each in known.made_with()}
    plain = word.lower().replace("_", "-")
    if plain not in (AUTO, *there):
        words = ", ".join([AUTO, *there])
        raise ValueError(f"{what} must be an object of refhmc or one of the names {words}; got {word!r}.")
    return None if plain == AUTO else known[there[plain]]()


def check_length(kernel: Any) -> None:
    """Raise ValueError for an invalid number of steps or trajectory length."""
    if kernel.n_steps is not None and kernel.trajectory_length is not None:
        raise ValueError(
            f"n_steps and trajectory_length must not both be given; got {kernel.n_steps!r} and "
            f"{kernel.trajectory_length!r}. Remove one of them."
        )
    if kernel.n_steps is not None:
        whole_number("n_steps", kernel.n_steps)
    if kernel.trajectory_length is not None:
        positive("trajectory_length", kernel.trajectory_length)


def check_jitter(kernel: Any, *names: str) -> None:
    """Raise ValueError for a relative half-width outside [0, 1)."""
    for name in names:
        share(name, getattr(kernel, name))


def solver_statistics(kernel: Any) -> tuple[str, ...]:
    """Return the names of the statistics that the kernel's metric and integrator add to its own."""
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    names: tuple[str, ...] = ()
    if integrator.implicit:
        names += ("solver_iterations", "solver_residual", "solver_failed")
        if integrator.reversibility_check:
            names += ("reversibility_error",)
    if metric.position_dependent:
        names += ("metric_cond", "n_gradient_evaluations", "n_metric_evaluations", "n_contraction_evaluations")
    return names

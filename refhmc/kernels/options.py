"""What the kernels' options have in common: step size, target acceptance, metric, integrator."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import numba
from numba.core.dispatcher import Dispatcher

from refhmc.core.arguments import is_number, positive, share, whole_number
from refhmc.core.other_names import our_name
from refhmc.core.registry import AUTO, Registry, options
from refhmc.core.sample_stats import PLACE
from refhmc.integrators import INTEGRATORS
from refhmc.integrators.defaults import resolve
from refhmc.metrics import METRICS

Class = TypeVar("Class", bound=type)


class Kernel(Protocol):
    """What refhmc asks of a kernel of one transition, its own or somebody else's (``docs/how_to_add.md``).

    A kernel with ``blocks`` needs nothing but them, block -> such a kernel (:mod:`refhmc.kernels.blocks`).

    ``transition``: the compiled function of the signature ``types.TRANSITION``. ``settings``: entries of the record of that
    name. ``statistics``: names of those of :mod:`refhmc.core.sample_stats` that it fills in. ``step_size`` None: adapted to
    ``target_accept``. It may say ``exact = False`` with an ``approximation``, why, which the result warns of.
    """

    step_size: float | None
    target_accept: float | None
    metric: Any
    integrator: Any

    @property
    def transition(self) -> Any: ...
    @property
    def statistics(self) -> tuple[str, ...]: ...
    def settings(self) -> dict[str, float]: ...


def with_advice(kind: Class) -> Class:
    """A class of kernels whose constructor says what an option of another library is called here."""
    init = vars(kind)["__init__"]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **given: Any) -> None:
        known = options(kind)
        for name in given:
            if name not in known:
                ours = our_name(name)
                near = [ours] if ours in known else difflib.get_close_matches(name, known, 1, 0.8)
                words = f": it is called {near[0]}" if near else f". It has {', '.join(known)}"
                raise TypeError(f"{kind.__name__}() has no option {name!r}{words}")
        init(self, *args, **given)

    type.__setattr__(kind, "__init__", __init__)
    return kind


def check_kernel(kernel: Any, what: str) -> None:
    """Raise TypeError for what is no kernel of one transition, ValueError for a statistic that there is not."""
    names = ("step_size", "target_accept", "metric", "integrator", "transition", "statistics", "settings")
    if isinstance(kernel, type) or not all(hasattr(kernel, name) for name in names):
        raise TypeError(f"{what} must be refhmc.HMC(...), NUTS(...), DHMC(...) or one of your own, got {kernel!r}")
    kind, transition, statistics = type(kernel).__name__, kernel.transition, kernel.statistics
    if not (isinstance(transition, Dispatcher) or (numba.config.DISABLE_JIT and callable(transition))):
        raise TypeError(
            f"{what} {kind} must have a transition that Numba compiles, got {transition!r}: decorate the function with "
            "refhmc.core.compiled.jit, or numba.njit"
        )
    if isinstance(statistics, str) or not isinstance(statistics, Iterable):
        raise TypeError(f"{what} {kind} must have statistics, a tuple of names, got {statistics!r}")
    for name in statistics:
        if name not in PLACE:
            near = difflib.get_close_matches(str(name), PLACE, 1, 0.6)
            words = f"; is it {near[0]!r}?" if near else f". There are {', '.join(PLACE)}"
            raise ValueError(f"{what} {kind} names a statistic that there is not, {name!r}{words}")


def check_options(kernel: Any) -> None:
    """Raise ValueError or TypeError, with the name and the value, for an option that cannot be."""
    if kernel.step_size is not None:
        positive("step_size", kernel.step_size)
    target = kernel.target_accept
    if target is not None and not (is_number(target) and 0 < target < 1):
        raise ValueError(f"target_accept must lie between 0 and 1, got {target!r}")
    for what, known in (("metric", METRICS), ("integrator", INTEGRATORS)):
        if isinstance(getattr(kernel, what), str):
            object.__setattr__(kernel, what, named(getattr(kernel, what), what, known))
    resolve(kernel.metric, kernel.integrator)


def named(word: str, what: str, known: Registry) -> Any:
    """What the command line calls by this word, with its defaults: "softabs", "generalized-leapfrog"; None for "auto".
    Raises ValueError for another word."""
    there = {each.replace("_", "-"): each for each in known.made_alone()}
    plain = word.lower().replace("_", "-")
    if plain not in (AUTO, *there):
        words = ", ".join([AUTO, *there])
        raise ValueError(f"{what} must be an object of refhmc's or one of the words {words}; got {word!r}")
    return None if plain == AUTO else known[there[plain]]()


def check_length(kernel: Any) -> None:
    """Raise ValueError for a number of steps, or a length of the trajectory, that cannot be."""
    if kernel.n_steps is not None and kernel.trajectory_length is not None:
        raise ValueError("give n_steps or trajectory_length, not both")
    if kernel.n_steps is not None:
        whole_number("n_steps", kernel.n_steps)
    if kernel.trajectory_length is not None:
        positive("trajectory_length", kernel.trajectory_length)


def check_jitter(kernel: Any, *names: str) -> None:
    """Raise ValueError for a relative spread outside [0, 1)."""
    for name in names:
        share(name, getattr(kernel, name))


def solver_statistics(kernel: Any) -> tuple[str, ...]:
    """Names of the statistics that the kernel's metric and integrator add to its own."""
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    names: tuple[str, ...] = ()
    if integrator.implicit:
        names += ("solver_iterations", "solver_residual", "solver_failed")
        if integrator.reversibility_check:
            names += ("reversibility_error",)
    if metric.position_dependent:
        names += ("metric_cond", "n_gradient_evaluations", "n_metric_evaluations", "n_contraction_evaluations")
    return names

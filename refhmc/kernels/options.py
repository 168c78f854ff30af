"""What the kernels' options have in common: step size, target acceptance, metric, integrator."""

from __future__ import annotations

import math
from typing import Any, Protocol

from refhmc.core.registry import Registry
from refhmc.integrators import INTEGRATORS
from refhmc.integrators.defaults import AUTO, resolve
from refhmc.metrics import METRICS


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


def check_kernel(kernel: Any, what: str) -> None:
    """Raise TypeError for what is no kernel of one transition."""
    names = ("step_size", "target_accept", "metric", "integrator", "transition", "statistics", "settings")
    if isinstance(kernel, type) or not all(hasattr(kernel, name) for name in names):
        raise TypeError(f"{what} must be refhmc.HMC(...), NUTS(...), DHMC(...) or one of your own, got {kernel!r}")


def check_options(kernel: Any) -> None:
    """Raise ValueError or TypeError, with the name and the value, for an option that cannot be."""
    step_size = kernel.step_size
    if step_size is not None and not (step_size > 0 and math.isfinite(step_size)):
        raise ValueError(f"step_size must be positive and finite, got {step_size!r}")
    target = kernel.target_accept
    if target is not None and not 0 < target < 1:
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
    if kernel.n_steps is not None and (int(kernel.n_steps) != kernel.n_steps or kernel.n_steps < 1):
        raise ValueError(f"n_steps must be a whole number of at least 1, got {kernel.n_steps!r}")
    length = kernel.trajectory_length
    if length is not None and not (length > 0 and math.isfinite(length)):
        raise ValueError(f"trajectory_length must be positive and finite, got {length!r}")


def check_jitter(kernel: Any, *names: str) -> None:
    """Raise ValueError for a relative spread outside [0, 1)."""
    for name in names:
        if not 0 <= getattr(kernel, name) < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {getattr(kernel, name)!r}")


def solver_statistics(kernel: Any) -> tuple[str, ...]:
    """Names of the statistics that the kernel's metric and integrator add to its own."""
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    names: tuple[str, ...] = ()
    if integrator.implicit:
        names += ("solver_iterations", "solver_residual", "solver_failed")
        if integrator.reversibility_check:
            names += ("reversibility_error",)
    if metric.position_dependent:
        names += ("metric_cond", "n_gradient_evaluations", "n_metric_evaluations", "n_trace_evaluations")
    return names

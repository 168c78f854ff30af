"""Compile and cache every kernel, metric, integrator and built-in model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from refhmc.integrators.base import Integrator
    from refhmc.kernels.options import AnyKernel
    from refhmc.models.base import Model


Task = tuple[str, Callable[[], object]]
TUNE = 1000  # as in refhmc.sample: a learned trajectory length has its own functions


def compile_all(tasks: Sequence[Task]) -> Iterator[tuple[int, int, str, float]]:
    """Run the tasks and yield (done, total, title, seconds) after each."""
    for done, (title, task) in enumerate(tasks, 1):
        begin = time.perf_counter()
        task()
        yield done, len(tasks), title, time.perf_counter() - begin


def core(kernel: AnyKernel, model: Model | None = None, tune: int = 0) -> Callable[[], None]:
    """Return the task that compiles what chains of a kernel call, by default on a normal distribution."""
    from refhmc.models import by_name
    from refhmc.sampling.chains.chain import make_plan

    model = by_name()["gaussian"]() if model is None else model
    plan = make_plan(model, kernel, tune)
    return lambda: plan.compile(model.name)


def evaluation(model: Model) -> Callable[[], None]:
    """Return the task that evaluates a model once, which compiles what a model of an ODE calls from Python."""

    def evaluate() -> None:
        q = model.initial if isinstance(model.initial, np.ndarray) else np.zeros(model.dim)
        with contextlib.suppress(Exception):  # of the user's functions at this position; a run reports it
            model.log_density(q)
            model.gradient(q)
            model.constrain(q)

    return evaluate


def hierarchy() -> None:
    """Compile the search for a hierarchy, which belongs to the default metric."""
    from refhmc.adaptation.hierarchy import fit, may_be_found

    may_be_found.compile()
    fit.compile()


def tasks_of(kernel: AnyKernel, model: Model) -> list[Task]:
    """Return what a run of this kernel on this model needs."""
    from refhmc.dynamics.hamiltonian import run_energy
    from refhmc.sampling.chains.chain import make_plan

    plan = make_plan(model, kernel, TUNE)
    tasks: list[Task] = [(f"{type(kernel).__name__} on {model.name}", lambda: plan.compile(model.name))]
    tasks.append((f"one evaluation of {model.name}", evaluation(model)))
    if any(block.dynamics.metric.position_dependent for block in plan.blocks):
        tasks.append(("the check of starts", run_energy.compile))
    if any(block.hierarchical is not None for block in plan.blocks):
        tasks.append(("the search for a hierarchy", hierarchy))
    return tasks


def all_tasks() -> list[Task]:
    """Return every kernel, metric, integrator and built-in model."""
    import refhmc
    from refhmc.models.binding.functions import DERIVATIVES

    def derivatives(model: Model) -> Callable[[], None]:
        def evaluate() -> None:
            q = model.initial if isinstance(model.initial, np.ndarray) else np.zeros(model.dim)
            model.log_density(q)
            model.core.value_and_gradient(q)
            for name, (arguments, axes) in DERIVATIVES.items():
                if model.has(name) and model.dim**axes < 1e8:
                    getattr(model, name)(q, *([np.eye(model.dim)] if arguments == 3 else []))

        return evaluate

    def trajectory() -> None:
        H = refhmc.Hamiltonian(gaussian)
        zero = np.zeros(gaussian.dim)
        refhmc.integrate(H, refhmc.integrators.Leapfrog(), zero, zero, step_size=0.1, n_steps=1)
        refhmc.transition(gaussian, refhmc.NUTS(step_size=0.1), zero, rng=np.random.default_rng(0))

    M = refhmc.metrics
    metrics = [M.Tridiagonal([1.0, 1.0], [0.1]), *(kind() for kind in M.METRICS.values() if kind is not M.Tridiagonal)]
    makers = refhmc.models.by_name()
    gaussian, parts = makers["gaussian"](), makers["banana"]().split(2)
    funnel = makers["funnel"]()  # has levels, which BlockLeapfrog needs
    followers = [kind for kind in refhmc.integrators.INTEGRATORS.values() if getattr(kind, "follows_parts", False)]
    gradients = (refhmc.SGD, refhmc.SGLD, refhmc.SGHMC)
    return [
        ("NUTS, diagonal metric", core(refhmc.NUTS())),
        ("HMC", core(refhmc.HMC())),
        ("HMC, learned length", core(refhmc.HMC(), tune=TUNE)),
        ("HMC, learned length, dense metric", core(refhmc.HMC(metric=M.Dense()), tune=TUNE)),
        ("DHMC", core(refhmc.DHMC())),
        *((kind.__name__, core(kind())) for kind in (refhmc.GHMC, refhmc.DRHMC, refhmc.MALT, refhmc.MCLMC)),
        *((title, core(refhmc.MAMS(), tune=n)) for title, n in (("MAMS", 0), ("MAMS, learned length", TUNE))),
        *((kind.__name__, core(kind())) for kind in (refhmc.GIST, refhmc.AutoStep, refhmc.WALNUTS)),
        ("Gibbs, two blocks", core(refhmc.Gibbs({(0,): refhmc.NUTS(), (1,): refhmc.HMC()}))),
        *((f"metric {type(metric).__name__}", core(refhmc.HMC(metric=metric))) for metric in metrics),
        *(
            (f"integrator {title}", core(refhmc.HMC(metric=M.Fisher(), integrator=each), funnel))
            for title, each in variants()
        ),
        *((f"integrator {kind.__name__}", core(refhmc.HMC(n_steps=1, integrator=kind()), parts)) for kind in followers),
        ("splittings", core(refhmc.HMC(n_steps=1, integrator=refhmc.integrators.BCSS()))),
        (
            "GaussianSplit",
            core(refhmc.HMC(integrator=refhmc.integrators.GaussianSplit([0.0, 0.0], np.eye(2)), metric=M.Identity())),
        ),
        *((kind.__name__, core(kind(step_size=1.0), parts)) for kind in gradients),
        ("the search for a hierarchy", hierarchy),
        ("trajectories and single transitions", trajectory),
        *((f"model {name}", derivatives(make())) for name, make in makers.items()),
    ]


def variants() -> Iterator[tuple[str, Integrator]]:
    """Yield title and object of each integrator for position-dependent metrics, in each variant; compositions are left out."""
    from refhmc.core.registry import required
    from refhmc.integrators import INTEGRATORS

    for kind in INTEGRATORS.values():
        needed = dict.fromkeys(required(kind), 1.0)
        if "base" in needed or getattr(kind, "constant_metric", False):
            continue
        if not hasattr(kind, "variants"):
            yield kind.__name__, kind(**needed)
        else:
            yield from ((f"{kind.__name__}, {variant}", kind(variant=variant)) for variant in kind.variants)

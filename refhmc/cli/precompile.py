"""Compile and cache everything now: the core, both kernels, every metric, integrator and built-in model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np


def compile_everything() -> Iterator[tuple[int, int, str, float]]:
    """Yields (done, total, what, seconds) as it goes."""
    import refhmc
    from refhmc.core.binding import DERIVATIVES
    from refhmc.sampling.chain import make_plan

    def core(kernel: Any) -> Any:
        return lambda: make_plan(gaussian, kernel, 0).compile(gaussian.name)

    def derivatives(model: Any) -> Any:
        def evaluate() -> None:
            q = np.zeros(model.dim) if model.initial is None else model.initial
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

    M, integrators = refhmc.metrics, refhmc.integrators
    riemannian = [
        M.Fisher(),
        M.SoftAbs(),
        M.DiagonalSoftAbs(),
        M.OuterProductSoftAbs(),
        M.DiagonalOuterProductSoftAbs(),
    ]
    implicit = {
        "ImplicitMidpoint, endpoint": integrators.ImplicitMidpoint(),
        "ImplicitMidpoint, midpoint": integrators.ImplicitMidpoint(variant="midpoint"),
        "GeneralizedLeapfrog, cached": integrators.GeneralizedLeapfrog(),
        "GeneralizedLeapfrog, naive": integrators.GeneralizedLeapfrog(variant="naive"),
        "ExplicitTao": integrators.ExplicitTao(1.0),
        "ProjectedTao": integrators.ProjectedTao(1.0),
    }
    makers = refhmc.models.by_name()
    gaussian = makers["gaussian"]()
    tasks = [
        ("NUTS, diagonal metric", core(refhmc.NUTS())),
        ("NUTS, dense metric", core(refhmc.NUTS(metric=refhmc.metrics.Dense()))),
        ("HMC", core(refhmc.HMC())),
        ("DHMC", core(refhmc.DHMC())),
        ("Gibbs, two blocks", core(refhmc.Gibbs({(0,): refhmc.NUTS(), (1,): refhmc.HMC()}))),
        ("metric Tridiagonal", core(refhmc.HMC(metric=M.Tridiagonal([1.0, 1.0], [0.1])))),
        *((f"metric {type(metric).__name__}", core(refhmc.HMC(metric=metric))) for metric in riemannian),
        *(
            (f"integrator {name}", core(refhmc.HMC(metric=M.Fisher(), integrator=each)))
            for name, each in implicit.items()
        ),
        ("trajectories and single transitions", trajectory),
        *((f"model {name}", derivatives(make())) for name, make in makers.items()),
    ]
    for done, (title, task) in enumerate(tasks, 1):
        begin = time.perf_counter()
        task()
        yield done, len(tasks), title, time.perf_counter() - begin

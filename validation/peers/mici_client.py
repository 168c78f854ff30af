"""mici: its leapfrog, implicit leapfrog and implicit midpoint. The second advances twice its step size a step."""

from __future__ import annotations

import functools

import mici
import numpy as np

import refhmc
import refhmc.check as rc
from validation.peers import write_reports

MODEL = refhmc.models.Banana()  # its Fisher metric depends on the position
SOLVER = {"convergence_tol": 1e-13, "max_iters": 200}


def system(riemannian: bool):
    """The banana as mici has it: negative log density, its gradient, the metric and its derivative."""
    density = {"neg_log_dens": lambda q: -MODEL.log_density(q), "grad_neg_log_dens": lambda q: -MODEL.gradient(q)}
    if not riemannian:
        return mici.systems.EuclideanMetricSystem(**density)
    return mici.systems.DenseRiemannianMetricSystem(
        **density,
        metric_func=MODEL.fisher,
        vjp_metric_func=lambda q: lambda M: np.einsum("ij,ijk->k", M, MODEL.fisher_derivative(q)),
    )


def step_of(make):
    """A mici integrator, made for a step size by ``make``, as ``step(q, p, eps)``."""

    def one(q, p, eps):
        direction = 1 if eps > 0 else -1
        state = make(abs(eps)).step(mici.states.ChainState(pos=q, mom=p, dir=direction))
        return state.pos, state.mom

    return one


def main() -> None:
    plain, curved = system(False), system(True)
    options = {"reverse_check_tol": 1e-10, "fixed_point_solver_kwargs": SOLVER}
    euclidean = refhmc.Hamiltonian(MODEL, refhmc.metrics.Identity())
    riemannian = refhmc.Hamiltonian(MODEL, refhmc.metrics.Fisher())
    check = functools.partial(rc.integrator, eps=0.02)
    reports = [
        check(step_of(lambda eps: mici.integrators.LeapfrogIntegrator(plain, eps)), H=euclidean, name="mici leapfrog"),
        check(
            step_of(lambda eps: mici.integrators.ImplicitMidpointIntegrator(curved, eps, **options)),
            H=riemannian,
            tolerance=1e-13,
            name="mici implicit midpoint",
        ),
        check(
            step_of(lambda eps: mici.integrators.ImplicitLeapfrogIntegrator(curved, eps, **options)),
            H=riemannian,
            tolerance=1e-13,
            name="mici implicit leapfrog",
        ),
        check(
            step_of(lambda eps: mici.integrators.ImplicitLeapfrogIntegrator(curved, eps / 2, **options)),
            H=riemannian,
            tolerance=1e-13,
            name="mici implicit leapfrog, its step halved",
        ),
    ]
    write_reports("mici", ("mici",), reports)


if __name__ == "__main__":
    main()

"""mici: integrators as steps; transitions of its samplers as kernels."""

from __future__ import annotations

import mici
import numpy as np

import refhmc.check as rc
from validation.conformance.subjects import Subject

PACKAGES = ("mici",)
SECONDS = 15  # of processor time per subject
SOLVER = {"convergence_tol": 1e-13, "max_iters": 200}
BANANA = rc.targets.banana()


def fisher(q):
    """Return the Fisher metric of the banana."""
    return np.array([[25.25, 50 * q[1]], [50 * q[1], 100 * q[1] ** 2 + 0.25]])


def vjp_fisher(q):
    """Return the vector-Jacobian product of the Fisher metric."""
    return lambda m: np.array([0.0, 50 * (m[0, 1] + m[1, 0]) + 200 * q[1] * m[1, 1]])


def functions(target):
    return {
        "neg_log_dens": lambda q: -float(target.log_density(q)),
        "grad_neg_log_dens": lambda q: -target.gradient(q),
    }


def euclidean(target, **options):
    return mici.systems.EuclideanMetricSystem(**functions(target), **options)


def riemannian():
    options = {"metric_func": fisher, "vjp_metric_func": vjp_fisher}
    return mici.systems.DenseRiemannianMetricSystem(**functions(BANANA), **options)


def softabs():
    def hessian(q):
        r, y = 1 - q[0] - q[1] ** 2, q[1]
        return np.array([[25.25, 50 * y], [50 * y, -50 * r + 100 * y**2 + 0.25]])

    def mtp(q):  # sum_ij m_ij dH_ij / dq_k
        y = q[1]
        return lambda m: np.array([50 * m[1, 1], 50 * (m[0, 1] + m[1, 0]) + 300 * y * m[1, 1]])

    return mici.systems.SoftAbsRiemannianMetricSystem(
        **functions(BANANA), hess_neg_log_dens=hessian, mtp_neg_log_dens=mtp
    )


def step_of(system, make):
    """Adapt an integrator of mici, made for a step size, to ``step(q, p, eps) -> (q, p)``."""

    def one(q, p, eps):
        state = mici.states.ChainState(pos=q, mom=p, dir=1 if eps > 0 else -1)
        state = make(system, abs(eps)).step(state)
        return state.pos, state.mom

    return one


def hamiltonian(system):
    """Return the energy of a system and its derivatives, as arguments of the check."""

    def at(function):
        return lambda q, p: function(mici.states.ChainState(pos=np.array(q), mom=np.array(p), dir=1))

    return {"H": at(system.h), "grad_q": at(system.dh_dpos), "grad_p": at(system.dh_dmom)}


def points_of(system):
    """Return exact draws of the banana with momenta of the system."""
    rng, found = np.random.default_rng(1), []
    for q in BANANA.draw(rng, 12):
        found.append((q, system.sample_momentum(mici.states.ChainState(pos=q, mom=None, dir=1), rng)))
    return found


def integrator(name, make, system, order=2, eps=0.02, tolerance=0, note="", call=None):
    def examine():
        return rc.integrator(
            step_of(system, make),
            **hamiltonian(system),
            points=points_of(system),
            eps=eps,
            claims=f"symplectic reversible order={order}",
            tolerance=tolerance,
            seconds=2 * SECONDS,
            name=name,
        )

    return Subject(name + note, f"mici.integrators.{call or name + '(system, eps)'}", examine, (step_of,))


def simple(name, order=2, *arguments):
    make = getattr(mici.integrators, name)
    return integrator(name, lambda system, eps: make(system, eps, *arguments), euclidean(BANANA), order)


def implicit(name, system, label, factor=1.0):
    options = {"reverse_check_tol": 1e-10, "fixed_point_solver_kwargs": SOLVER}
    half = "" if factor == 1 else f", {factor} of the step"
    return integrator(
        name,
        lambda system, eps: getattr(mici.integrators, name)(system, factor * eps, **options),
        system,
        tolerance=1e-13,
        note=f", {label} metric{half}",
        call=f"{name}(system, {'' if factor == 1 else f'{factor} * '}eps, reverse_check_tol=1e-10, ...)",
    )


def kernel_of(transitions, system):
    """Adapt transitions of mici, in order, to ``kernel(rng, q) -> q``."""

    def kernel(rng, q):
        state = mici.states.ChainState(pos=np.array(q), mom=None, dir=1)
        state.mom = system.sample_momentum(state, rng)
        for transition in transitions:
            state, _ = transition.sample(state, rng)
        return state.pos

    return kernel


class States:
    """Transitions of mici that keep their momentum, as a kernel with a state."""

    def __init__(self, transitions, system):
        self.transitions, self.system = transitions, system

    def init(self, rng, q):
        state = mici.states.ChainState(pos=np.array(q), mom=None, dir=1)
        state.mom = self.system.sample_momentum(state, rng)
        return state

    def step(self, rng, state):
        state = state.copy()
        for transition in self.transitions:
            state, _ = transition.sample(state, rng)
        return state

    def read(self, state):
        return np.array(state.pos)


def kernel(name, make, target, system, integrator, *, adapter=kernel_of, seconds=SECONDS, m=5):
    def examine():
        transitions = make(system, integrator)
        return rc.sampler(adapter(transitions, system), target, seconds=seconds, transitions=m, name=name)

    call = "mici.transitions." + name.partition(",")[0] + "(system, integrator, ...)"
    return Subject(f"{name}, {target.name}", call, examine, (adapter,))


T = mici.transitions
QUARTIC = rc.targets.quartic(2)
METRIC = np.array([[2.0, 0.5], [0.5, 1.0]])


def leapfrog(system, eps):
    return mici.integrators.LeapfrogIntegrator(system, eps)


def metropolis(n):
    return lambda system, step: [
        T.IndependentMomentumTransition(system),
        T.MetropolisStaticIntegrationTransition(system, step, n_step=n),
    ]


def random_length(system, step):
    return [T.IndependentMomentumTransition(system), T.MetropolisRandomIntegrationTransition(system, step, (1, 6))]


def multinomial(system, step):
    return [
        T.IndependentMomentumTransition(system),
        T.MultinomialDynamicIntegrationTransition(system, step, max_tree_depth=4),
    ]


def slices(system, step):
    return [
        T.IndependentMomentumTransition(system),
        T.SliceDynamicIntegrationTransition(system, step, max_tree_depth=4),
    ]


def correlated(system, step):
    return [
        T.CorrelatedMomentumTransition(system, 0.6),
        T.MetropolisStaticIntegrationTransition(system, step, n_step=1),
    ]


INTEGRATORS = [
    simple("LeapfrogIntegrator"),
    simple("BCSSTwoStageIntegrator"),
    simple("BCSSThreeStageIntegrator"),
    simple("BCSSFourStageIntegrator"),
    implicit("ImplicitMidpointIntegrator", riemannian(), "Fisher"),
    implicit("ImplicitLeapfrogIntegrator", riemannian(), "Fisher"),
    implicit("ImplicitLeapfrogIntegrator", riemannian(), "Fisher", 0.5),
    implicit("ImplicitMidpointIntegrator", softabs(), "SoftAbs"),
    implicit("ImplicitLeapfrogIntegrator", softabs(), "SoftAbs", 0.5),
]
PLAIN, DENSE = euclidean(QUARTIC), euclidean(QUARTIC, metric=METRIC)
CURVED = riemannian()
KERNELS = [
    kernel("MetropolisStaticIntegrationTransition", metropolis(3), QUARTIC, PLAIN, leapfrog(PLAIN, 0.8)),
    kernel("MetropolisStaticIntegrationTransition, dense metric", metropolis(3), QUARTIC, DENSE, leapfrog(DENSE, 0.8)),
    kernel("MetropolisRandomIntegrationTransition", random_length, QUARTIC, PLAIN, leapfrog(PLAIN, 0.8)),
    kernel("MultinomialDynamicIntegrationTransition", multinomial, QUARTIC, PLAIN, leapfrog(PLAIN, 0.8)),
    kernel("SliceDynamicIntegrationTransition", slices, QUARTIC, PLAIN, leapfrog(PLAIN, 0.8)),
    kernel("CorrelatedMomentumTransition", correlated, QUARTIC, PLAIN, leapfrog(PLAIN, 0.6), adapter=States),
    kernel(
        "MetropolisStaticIntegrationTransition, implicit leapfrog on the Fisher metric",
        metropolis(1),
        BANANA,
        CURVED,
        mici.integrators.ImplicitLeapfrogIntegrator(CURVED, 0.1),
        seconds=3 * SECONDS,
        m=1,
    ),
    kernel(
        "MetropolisStaticIntegrationTransition, implicit midpoint on the Fisher metric",
        metropolis(1),
        BANANA,
        CURVED,
        mici.integrators.ImplicitMidpointIntegrator(CURVED, 0.2),
        seconds=3 * SECONDS,
        m=1,
    ),
]
SUBJECTS = INTEGRATORS + KERNELS

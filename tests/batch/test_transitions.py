"""Transitions of many chains against the textbook's, one chain at a time, on the numbers of NumPy's own Philox.

A chain's draws are the same in any batch, whatever happens to its neighbours.
"""

from functools import partial

import numpy as np
import pytest

import refhmc
from refhmc import HMC, NUTS
from refhmc.batch.streams import Purpose
from refhmc.core import sample_stats as S
from refhmc.integrators import (
    BCSS,
    BlockLeapfrog,
    ExplicitTao,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Omelyan,
    ProjectedTao,
    RandomizedSplit,
    SymmetricSplit,
    Yoshida,
)
from refhmc.metrics import Dense, Diagonal, Fisher, Identity, SoftAbs
from refhmc.models.model_on_arrays import ModelOnArrays
from refhmc.numerics import batched
from tests.helpers.batches import chains_at, made, normals_of_numpy, numbers_of_numpy
from tests.helpers.hierarchical_cases import funnel_metric
from tests.helpers.sweeps import representatives, swept

ENTROPY, N, T = 7, 40, 6
FUNNEL, BANANA = refhmc.models.Funnel(3), refhmc.models.Banana()
SPLIT = refhmc.models.LogisticRegression(np.random.default_rng(6).normal(size=(30, 3)), np.arange(30) % 2).split(3)
RIEMANNIAN = {"metric": SoftAbs(alpha=2.0)}
FREE = {"reversibility_check": False}  # the textbook's steps do not try the way back


def textbook(model, kernel, q, chain, t):
    """One transition by :mod:`refhmc.kernels` on arrays from q, with the numbers of chain and transition."""
    H = refhmc.array_api.hamiltonian(model, kernel.metric)
    p = H.draw_momentum(q, normals_of_numpy(ENTROPY, chain, t, Purpose.MOMENTUM, len(q)))
    u = numbers_of_numpy(ENTROPY, chain, t, Purpose.KERNEL, 3000)
    integrator = kernel.integrator
    step, copies = integrator.on_arrays(), 2 if integrator.name == "explicit_tao" else 1
    if integrator.name == "randomized-split" and integrator.one_order is None:
        M = len(model.parts)
        step, u = partial(step, order=batched.random_order(range(M), u[: M - 1])), u[M - 1 :]
    if kernel.name == "nuts":
        depth = kernel.max_treedepth
        return refhmc.array_api.nuts(H, step, q, p, u, step_size=kernel.step_size, max_treedepth=depth, copies=copies)
    jitters = {"step_jitter": kernel.step_jitter, "length_jitter": kernel.length_jitter or 0.0}
    n = kernel.n_steps or kernel.trajectory_length / kernel.step_size
    return refhmc.array_api.hmc(H, step, q, p, u, step_size=kernel.step_size, n_steps=n, copies=copies, **jitters)


LEAPFROG = refhmc.integrators.Leapfrog()
CASES = {
    "hmc": (FUNNEL, HMC(step_size=0.3, n_steps=7, metric=Identity(), integrator=LEAPFROG)),
    "hmc, both jitters": (
        FUNNEL,
        HMC(step_size=0.3, n_steps=6, step_jitter=0.5, length_jitter=0.9, metric=Identity(), integrator=LEAPFROG),
    ),
    "hmc, length": (
        FUNNEL,
        HMC(step_size=0.3, trajectory_length=2.0, metric=Diagonal([4.0, 0.5, 1, 2]), integrator=LEAPFROG),
    ),
    "hmc, yoshida": (FUNNEL, HMC(step_size=0.3, n_steps=4, metric=Identity(), integrator=Yoshida(LEAPFROG))),
    "hmc, omelyan": (FUNNEL, HMC(step_size=0.8, n_steps=4, metric=Identity(), integrator=Omelyan("position"))),
    "hmc, generalised": (
        FUNNEL,
        HMC(step_size=0.2, n_steps=4, **RIEMANNIAN, integrator=GeneralizedLeapfrog(**FREE)),
    ),
    "hmc, two copies": (FUNNEL, HMC(step_size=0.2, n_steps=4, **RIEMANNIAN, integrator=ExplicitTao(omega=3.0))),
    "hmc, projected": (FUNNEL, HMC(step_size=0.1, n_steps=3, **RIEMANNIAN, integrator=ProjectedTao(omega=0.5, **FREE))),
    "hmc, symmetric split": (
        SPLIT,
        HMC(step_size=0.3, n_steps=5, length_jitter=0.6, metric=Identity(), integrator=SymmetricSplit()),
    ),
    "hmc, randomised split": (
        SPLIT,
        HMC(
            step_size=0.4,
            n_steps=5,
            step_jitter=0.2,
            length_jitter=0.6,
            metric=Diagonal([1, 2, 0.5]),
            integrator=RandomizedSplit(),
        ),
    ),
    "nuts, randomised split": (SPLIT, NUTS(step_size=0.5, metric=Identity(), integrator=RandomizedSplit())),
    "nuts, one order": (SPLIT, NUTS(step_size=0.5, metric=Identity(), integrator=RandomizedSplit(one_order=(2, 0, 1)))),
    "nuts, symmetric split": (SPLIT, NUTS(step_size=0.5, metric=Identity(), integrator=SymmetricSplit())),
    "nuts": (FUNNEL, NUTS(step_size=0.3, metric=Identity(), integrator=LEAPFROG)),
    "nuts, dense": (
        BANANA,
        NUTS(step_size=0.4, metric=Dense([[1.0, 0.4], [0.4, 2.0]]), integrator=LEAPFROG),
    ),
    "nuts, bcss": (BANANA, NUTS(step_size=0.9, metric=Dense([[1.0, 0.4], [0.4, 2.0]]), integrator=BCSS(stages=3))),
    "nuts, too large": (FUNNEL, NUTS(step_size=1.9, metric=Identity(), integrator=LEAPFROG)),
    "nuts, shallow": (FUNNEL, NUTS(step_size=0.01, max_treedepth=3, metric=Identity(), integrator=LEAPFROG)),
    "nuts, block leapfrog": (FUNNEL, NUTS(step_size=0.4, metric=funnel_metric(3), integrator=BlockLeapfrog())),
    "nuts, midpoint": (BANANA, NUTS(step_size=0.3, metric=Fisher(), integrator=ImplicitMidpoint(**FREE))),
}


def test_the_default_projection_accepts_as_the_compiled_one():
    """300 chains of the banana at exact draws, each with its own random numbers: at most three acceptance probabilities differ.

    A step's end is known to the solver's tolerance, which decides near the edge of solvability: 1 of 300 here. With plain
    iteration instead, 139 differ.
    """
    integrator, rng = ProjectedTao(omega=1.0), np.random.default_rng(3)
    kernel = HMC(step_size=0.1, n_steps=5, metric=SoftAbs(alpha=1.0), integrator=integrator)
    box = rng.uniform([-3, -2.5], [3, 2.5], (200_000, 2))
    weights = np.exp(ModelOnArrays(BANANA).log_density(box))
    q = box[rng.choice(len(box), 300, p=weights / weights.sum())]
    normals, uniforms = rng.normal(size=q.shape), rng.random((300, 20))
    with np.errstate(all="ignore"):
        stats = refhmc.array_api.transitions(BANANA, kernel, q, normals, uniforms).stats
        p = refhmc.array_api.hamiltonian(BANANA, kernel.metric).draw_momentum(q, normals)
    H, accepted = refhmc.Hamiltonian(BANANA, kernel.metric), np.zeros(300)
    for k in range(300):
        path = refhmc.integrate(H, integrator, q[k], p[k], step_size=0.1, n_steps=5)
        if len(path.energy) == 6 and path.converged.all():
            accepted[k] = min(1.0, np.exp(path.energy[0] - path.energy[-1]))
    assert 0.5 < accepted.mean() < 0.8
    assert np.sum(~(np.abs(np.nan_to_num(stats["acceptance_rate"]) - accepted) < 1e-4)) <= 3


SOME = ["hmc, both jitters", "hmc, randomised split", "nuts, too large"]
MORE = ["nuts", "nuts, block leapfrog"]


@pytest.mark.parametrize("name", representatives(CASES, SOME + MORE))
def test_transition_for_transition_the_textbooks(name):
    model, kernel = CASES[name]
    starts = np.random.default_rng(3).normal(size=(N, model.dim))
    draws, stats = made(*chains_at(model, kernel, starts, ENTROPY), T)
    with np.errstate(all="ignore"):
        for k in range(0, N, 3):
            q = starts[k]
            for t in range(T):
                move = textbook(model, kernel, q, k, t)
                scale = 1 + np.abs(move.q).max()
                assert np.abs(draws[k, t] - move.q).max() <= 1e-10 * scale, (name, k, t)
                assert stats["n_steps"][k, t] == move.n_steps
                if kernel.name == "nuts":
                    assert stats["index_in_trajectory"][k, t] == move.index_in_trajectory
                    assert stats["tree_depth"][k, t] == move.tree_depth
                    assert stats["reached_max_treedepth"][k, t] == (move.ended == "full")
                    assert stats["diverging"][k, t] == (
                        move.ended in ("diverged", "no energy") and not stats["solver_failed"][k, t]
                    )
                    assert stats["acceptance_rate"][k, t] == pytest.approx(move.acceptance_rate, abs=1e-8)
                else:
                    assert stats["is_accepted"][k, t] == move.is_accepted
                    rate = move.acceptance_rate
                    assert stats["acceptance_rate"][k, t] == pytest.approx(float(rate), abs=1e-8)
                q = draws[k, t]


@pytest.mark.sweep
def test_the_cases_have_every_end():
    """Divergences, rejections, full trees and failed solves occur in the cases above, or they would not be tested."""
    seen = set()
    for model, kernel in CASES.values():
        starts = np.random.default_rng(3).normal(size=(N, model.dim))
        _, stats = made(*chains_at(model, kernel, starts, ENTROPY), T)
        seen |= {int(x) for x in np.unique(stats["outcome"])}
        seen |= {"full"} if kernel.name == "nuts" and stats["reached_max_treedepth"].any() else set()
    assert seen >= {0, 1, 2, 3, "full"}


@pytest.mark.parametrize("name", representatives(CASES, SOME))
def test_a_chain_is_the_same_alone(name):
    """Bit for bit, with neighbours that diverge, end immediately, or are not numbers."""
    model, kernel = CASES[name]
    starts = np.random.default_rng(4).normal(size=(N, model.dim))
    starts[::4] *= 50
    starts[1] = np.nan
    starts[2, 0] = np.inf
    draws, stats = made(*chains_at(model, kernel, starts, ENTROPY), T)
    for k in (0, 1, 2, 3, 4, 17, N - 1):
        alone, its = made(*chains_at(model, kernel, starts[k : k + 1], ENTROPY, [k]), T)
        assert np.array_equal(alone[0], draws[k], equal_nan=True)
        for key, values in its.items():
            assert np.array_equal(values[0], stats[key][k], equal_nan=True), key


def test_no_number_is_shared():
    """In two transitions of 40 chains no two momenta and no two acceptances are equal."""
    _, kernel = CASES["hmc"]
    chains, transitions = chains_at(FUNNEL, kernel, np.zeros((N, 4)), ENTROPY)
    seen = []
    for _ in range(2):
        transitions.start(slice(None))
        u = chains.uniforms(slice(None), transitions.uniforms_used(slice(None)), 1)
        seen.append(np.column_stack([transitions.point.z[1], u]))
        chains.transition += 1
    numbers = np.concatenate(seen).ravel()
    assert len(np.unique(numbers)) == numbers.size


@pytest.mark.parametrize(
    "base",
    [LEAPFROG, swept(GeneralizedLeapfrog(reversibility_check=False))],
    ids=["explicit", "implicit"],
)
def test_a_composition_ends_at_the_first_part_without_an_energy(base):
    """Far out and at large steps, where many do: outcomes are the compiled core's, and a divergence is no solver failure."""
    rng, metric = np.random.default_rng(11), Fisher() if base.implicit else Identity()
    kernel = HMC(step_size=0.8, n_steps=1, metric=metric, integrator=Yoshida(base))
    q, normals, uniforms = 3 * rng.standard_normal((60, 3)), rng.standard_normal((60, 3)), rng.random((60, 3))
    with np.errstate(all="ignore"):
        together = refhmc.array_api.transitions(refhmc.models.Funnel(2), kernel, q, normals, uniforms).stats
    for k in range(60):
        alone = refhmc.transition(refhmc.models.Funnel(2), kernel, q[k], normals=normals[k], uniforms=uniforms[k]).stats
        for name in {"outcome", "diverging", "solver_failed"} & together.keys():
            assert together[name][k] == alone[name]
    assert np.sum(together["outcome"] == S.NAN) > 0


@pytest.mark.parametrize("name", ["banana", swept("funnel")])
def test_the_statistics_of_a_chain_are_its_own(name):
    """Bit for bit, in a batch of which some chains take the step a third time to see whether it returns."""
    model, metric, integrator = {
        "banana": (BANANA, Fisher(), ImplicitMidpoint()),
        "funnel": (refhmc.models.Funnel(2), SoftAbs(1e6), GeneralizedLeapfrog()),
    }[name]
    kernel = HMC(step_size=0.15, n_steps=2, metric=metric, integrator=integrator)
    rng, n = np.random.default_rng(0), 60
    q, normals = 3 * rng.standard_normal((n, model.dim)), rng.standard_normal((n, model.dim))
    uniforms = rng.random((n, 1))
    with np.errstate(all="ignore"):
        together = refhmc.array_api.transitions(model, kernel, q, normals, uniforms).stats
        for k in range(n):
            row = slice(k, k + 1)
            alone = refhmc.array_api.transitions(model, kernel, q[row], normals[row], uniforms[row]).stats
            for statistic, values in alone.items():
                assert np.array_equal(values, together[statistic][row], equal_nan=True), statistic


def flat(q, data):
    return 0.0 * q[0]


def flat_gradient(q, data):
    return 0.0 * q


def indefinite(q, data):
    G = np.eye(2)
    G[0, 0] = 1.5 - q[0] ** 2
    return G


def its_derivative(q, data):
    T = np.zeros((2, 2, 2))
    T[0, 0, 0] = -2 * q[0]
    return T


@pytest.mark.parametrize(
    "integrator",
    [ImplicitMidpoint(), swept(GeneralizedLeapfrog()), swept(ImplicitMidpoint(reversibility_check=False))],
)
def test_a_metric_that_is_indefinite_is_a_divergence(integrator):
    """In a solve, and at the end of a step: as in the compiled core, this is not a failure of the solver."""
    model = refhmc.Model(2, flat, flat_gradient, fisher=indefinite, fisher_derivative=its_derivative)
    kernel = HMC(step_size=0.6, n_steps=4, metric=Fisher(), integrator=integrator)
    rng = np.random.default_rng(1)
    q, normals, uniforms = rng.uniform(-1, 1, (60, 2)), rng.standard_normal((60, 2)), rng.random((60, 1))
    with np.errstate(all="ignore"):
        together = refhmc.array_api.transitions(ModelOnArrays(model), kernel, q, normals, uniforms).stats
    for k in range(60):
        alone = refhmc.transition(model, kernel, q[k], normals=normals[k], uniforms=uniforms[k]).stats
        for name in ("outcome", "diverging", "solver_failed"):
            assert together[name][k] == alone[name]
    assert np.sum(together["outcome"] == S.DIVERGED) > 20


def test_a_solve_after_one_that_went_on_with_fewer_rows():
    """The momentum's equation fails at positions that are known from before, for which the metric is then tested."""
    rng, kernel = (
        np.random.default_rng(11),
        HMC(step_size=0.8, n_steps=2, metric=Fisher(), integrator=GeneralizedLeapfrog()),
    )
    q, normals, uniforms = 3 * rng.standard_normal((60, 3)), rng.standard_normal((60, 3)), rng.random((60, 3))
    with np.errstate(all="ignore"):
        together = refhmc.array_api.transitions(refhmc.models.Funnel(2), kernel, q, normals, uniforms)
    assert np.sum(together.stats["solver_failed"]) > 0
    assert np.isfinite(together.q).all()

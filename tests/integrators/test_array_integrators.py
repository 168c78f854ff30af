"""Every integrator's array implementation against its compiled counterpart, on every metric and several models.

**The bound.** Both add the same terms in another order. The condition of a step describes how it amplifies the rounding of
its start and of its end, for coordinate i  kappa_i = |z'_i| + sum_j |dz'_i / dz_j| |z_j|  with the derivatives by central
differences of the array implementation, h = 1e-5 (1 + |z|). The two ends may differ by 1e-12 kappa_i. (A step's inner sums
cancel, too, which kappa does not include; therefore 4,500 eps and not a few. Measured: at most 0.03 of the bound, mostly
1e-4 of it.) Both solve to the tolerance 1e-13, from the same starts. That the number of iterations is equal is tested at
the tolerance 1e-4, where rounding does not decide it.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib

import numpy as np
import pytest

import refhmc
from refhmc.core.point import EXTENDED_ROWS
from refhmc.integrators import (
    BCSS,
    BlockLeapfrog,
    ExplicitTao,
    GaussianSplit,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    McLachlan,
    NaiveSplit,
    Omelyan,
    ProjectedTao,
    RandomizedSplit,
    Suzuki,
    SymmetricSplit,
    Yoshida,
)
from refhmc.integrators.base import Implicit
from refhmc.metrics import (
    Dense,
    Diagonal,
    DiagonalOuterProductSoftAbs,
    DiagonalSoftAbs,
    Fisher,
    Hierarchical,
    Identity,
    OuterProductSoftAbs,
    SoftAbs,
    Tridiagonal,
)
from refhmc.numerics import batched
from refhmc.numerics.batched_anderson import accelerated
from tests.helpers.array_texts import condition
from tests.helpers.hierarchical_cases import chain_metric
from tests.helpers.low_rank_metrics import low_rank_metric
from tests.helpers.riemannian_cases import model_of
from tests.helpers.sweeps import one_in

TIGHT = {"tolerance": 1e-13, "max_iterations": 300, "solver": "fixed point", "reversibility_check": False}
INTEGRATORS = {
    "leapfrog": Leapfrog(),
    "bcss-2": BCSS(stages=2),
    "bcss-3": BCSS(stages=3),
    "bcss-4": BCSS(stages=4),
    "mclachlan": McLachlan(),
    "omelyan": Omelyan(),
    "omelyan-position": Omelyan("position"),
    "block-leapfrog": BlockLeapfrog(),
    "naive-split": NaiveSplit(),
    "midpoint-endpoint": ImplicitMidpoint(**TIGHT),
    "midpoint-midpoint": ImplicitMidpoint(variant="midpoint", **TIGHT),
    "generalized-cached": GeneralizedLeapfrog(**TIGHT),
    "generalized-naive": GeneralizedLeapfrog(variant="naive", **TIGHT),
    "explicit-tao": ExplicitTao(omega=2.0),
    "projected-tao": ProjectedTao(omega=0.1, **TIGHT),
    "yoshida-leapfrog": Yoshida(Leapfrog()),
    "yoshida-bcss": Yoshida(BCSS(stages=2)),
    "yoshida-midpoint": Yoshida(ImplicitMidpoint(**TIGHT)),
    "suzuki-tao": Suzuki(ExplicitTao(omega=2.0)),
}
METRICS = {
    "identity": lambda d: Identity(),
    "diagonal": lambda d: Diagonal(np.linspace(0.5, 1.0, d)),
    "dense": lambda d: Dense(0.5 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))),
    "low-rank": low_rank_metric,
    "tridiagonal": lambda d: Tridiagonal(np.full(d, 2.0), np.full(d - 1, -0.7)),
    "hierarchical": chain_metric,
    "fisher": lambda d: Fisher(),
    "softabs": lambda d: SoftAbs(alpha=1.0),
    "diagonal-softabs": lambda d: DiagonalSoftAbs(alpha=1.0),
    "outer": lambda d: OuterProductSoftAbs(alpha=0.1),
    "outer-published": lambda d: OuterProductSoftAbs(alpha=0.01, as_published=True),
    "diagonal-outer": lambda d: DiagonalOuterProductSoftAbs(alpha=0.1),
}
MODELS = ("banana", "funnel-3", "gaussian-3", "logistic")
TAO = ExplicitTao | ProjectedTao
CHAINS, STEPS = 2, 2


def starts(T, model, seed):
    rng = np.random.default_rng(seed)
    q = 0.5 * rng.standard_normal((CHAINS, model.dim))
    return q, T.draw_momentum(q, rng.standard_normal(q.shape))


def time_scale(H, q):
    """The shortest of the chains'; solves converge at a tenth of it, for the projection at a fiftieth."""
    return min(np.abs(np.linalg.eigvals(np.linalg.solve(H.mass(x), H.model.hessian(x)))).max() ** -0.5 for x in q)


def text(T, integrator, q, p, eps, step=None):
    """(q, p) after the steps, (..., 2d), the copies of an extended phase space dropped."""
    step = step or integrator.on_arrays()
    z = (q, p, q, p) if getattr(integrator, "point_rows", 0) == EXTENDED_ROWS else (q, p)
    for _ in range(STEPS):
        z = step(T, *z, eps)
    return batched.join(z[0], z[1])


def limits(T, integrator, q, p, eps):
    """1e-12 kappa"""
    return 1e-12 * condition(lambda z: text(T, integrator, *batched.split(z), eps), batched.join(q, p))


def compiled(H, integrator, q, p, eps):
    path = refhmc.integrate(H, integrator, q, p, step_size=eps, n_steps=STEPS)
    return np.concatenate([path.q[-1], path.p[-1]]), path


def together(integrator, metric):
    if isinstance(integrator, BlockLeapfrog):
        return metric.position_dependent is False or isinstance(metric, Hierarchical)
    return metric.position_dependent is False or not getattr(
        getattr(integrator, "base", integrator), "constant_metric", False
    )


@pytest.mark.parametrize(("metric", "name"), one_in(8, METRICS, MODELS))
def test_the_text_is_the_compiled_step(metric, name):
    model, seed = model_of(name), zlib.crc32(f"{metric} {name}".encode())
    metric = METRICS[metric](model.dim)
    H, T = refhmc.Hamiltonian(model, metric), refhmc.array_api.hamiltonian(model, metric)
    q, p = starts(T, model, seed)
    for integrator in (each for each in INTEGRATORS.values() if together(each, metric)):
        eps = time_scale(H, q) / (50 if isinstance(getattr(integrator, "base", integrator), TAO) else 10)
        ends = text(T, integrator, q, p, eps)
        limit = limits(T, integrator, q, p, eps)
        assert (np.abs(text(T, integrator, q[0], p[0], eps) - ends[0]) <= 0.01 * limit[0]).all()  # alone
        for k in range(CHAINS):
            end, path = compiled(H, integrator, q[k], p[k], eps)
            assert path.converged.all()
            assert (np.abs(end - ends[k]) <= limit[k]).all(), (integrator, np.max(np.abs(end - ends[k]) / limit[k]))


def test_all_integrators_and_metrics_are_here():
    of_one_model = {kind for kind in refhmc.integrators.INTEGRATORS.values() if hasattr(kind, "rows_for")}
    of_one_model -= {BlockLeapfrog}  # whose rows are the metric's levels
    assert of_one_model == {SymmetricSplit, RandomizedSplit, GaussianSplit}  # tests/integrators/test_splits.py
    assert {type(each) for each in INTEGRATORS.values()} == set(refhmc.integrators.INTEGRATORS.values()) - of_one_model
    assert {type(make(2)) for make in METRICS.values()} == set(refhmc.metrics.METRICS.values())


def counted(solve, counts):
    """A solver that notes how often it evaluates its equation."""

    def counting(equation, start, *known):
        counts.append(0)

        def noted(x, *known):
            counts[-1] += 1
            return equation(x, *known)

        return solve(noted, start, *known)

    return counting


IMPLICIT = [name for name, each in INTEGRATORS.items() if isinstance(each, Implicit)]


@pytest.mark.parametrize("solver", ["fixed point", "anderson"])
@pytest.mark.parametrize(("integrator", "name"), one_in(2, IMPLICIT, MODELS))
def test_both_take_the_same_iterations(integrator, name, solver):
    """At the tolerance 1e-4 both stop at the same unfinished solution, so that the rule is the same one.

    The projection's shift is small, so that the tolerance is 1e-8. Its end is not compared: the core keeps the copies of
    the last iterate but one.
    """
    model, integrator = model_of(name), INTEGRATORS[integrator]
    tolerance = 1e-8 if isinstance(integrator, TAO) else 1e-4
    integrator = dataclasses.replace(integrator, tolerance=tolerance, solver=solver)
    H, T = (make(model, SoftAbs(alpha=1.0)) for make in (refhmc.Hamiltonian, refhmc.array_api.hamiltonian))
    q, p = starts(T, model, 5)
    eps = time_scale(H, q) / (50 if isinstance(integrator, TAO) else 10)
    for k in range(CHAINS):
        end, path = compiled(H, integrator, q[k], p[k], eps)
        counts: list[int] = []
        step = functools.partial(integrator.on_arrays(), solve=counted(integrator.fixed_point, counts))
        mine = text(T, integrator, q[k], p[k], eps, step)
        assert sum(counts) == path.iterations.sum()
        assert min(counts) >= 2
        if not isinstance(integrator, TAO):
            assert (np.abs(mine - end) <= limits(T, integrator, q[k], p[k], eps)).all()


def test_an_accelerated_row_does_not_depend_on_its_neighbours():
    """Rows that converge at once, slowly or never, one that overflows and one that is not a number: bit for bit those alone."""
    rng = np.random.default_rng(4)
    rate, c = np.array([[0.01], [0.9], [1.1], [40.0], [np.nan], [0.5], [0.97], [0.0]]), rng.normal(size=(8, 3))
    A = np.linalg.qr(rng.normal(size=(8, 3, 3)))[0]
    options = {"tolerance": 1e-10, "max_iterations": 60, "accelerate": functools.partial(accelerated, memory=4)}

    def solved(rows):
        found = []

        def equation(x, rate, c, A):
            A = np.reshape(A, (*x.shape, 3))
            return c + rate * np.sin(np.sum(A * x[..., None, :], axis=-1)) * np.where(rate > 20, np.exp(x**2), 1.0)

        known = rate[rows], c[rows], A[rows].reshape(-1, 9)
        with np.errstate(all="ignore"):
            x = batched.fixed_point(equation, 0 * c[rows], *known, **options, record=lambda *said: found.extend(said))
            return x, found, np.abs(equation(x, *known) - x).max(axis=-1)

    x, (done, iterations, residual), left = solved(np.arange(8))
    for k in range(8):
        alone, said, _ = solved(np.array([k]))
        assert np.array_equal(alone[0], x[k], equal_nan=True)
        assert [values[0] for values in said] == [done[k], iterations[k], residual[k]]
    assert list(done[[3, 4]]) == [False, False]
    assert done[[0, 1, 5, 6, 7]].all()
    assert (left[done] <= 1e-10).all()
    plain = []
    options["accelerate"] = None
    batched.fixed_point(
        lambda x, rate, c: c + rate * np.sin(x), c[1:2], rate[1:2], c[1:2], record=lambda *said: plain.extend(said)
    )
    assert iterations[1] < plain[1][0]


def test_a_chain_that_fails_waits_and_the_others_go_on():
    """Chains 0 and 2 take small steps; the solve of chain 1 fails, in the core too."""
    model, metric = model_of("funnel-3"), SoftAbs(alpha=1.0)
    H, T = refhmc.Hamiltonian(model, metric), refhmc.array_api.hamiltonian(model, metric)
    q, p = np.array([[0.1, 0.2, 0.3, 0.4], [3.0, 2.0, -1.0, 2.0], [-1.0, 0.5, 0.0, 1.0]]), np.ones((3, 4))
    eps = np.array([0.05, 30.0, 0.1])
    for integrator in (each for each in INTEGRATORS.values() if isinstance(each, Implicit)):
        with np.errstate(all="ignore"):
            ends = text(T, integrator, q, p, eps[:, None])
        assert np.isnan(ends[1]).all()
        assert not compiled(H, integrator, q[1], p[1], eps[1])[1].converged.any()
        for k in (0, 2):
            assert np.abs(ends[k] - text(T, integrator, q[k], p[k], eps[k])).max() <= 1e-14
            assert np.abs(ends[k] - compiled(H, integrator, q[k], p[k], eps[k])[0]).max() <= 1e-12


def test_a_fixed_number_of_iterations():
    """``iterate`` makes the given number: x_n = c (1 - (-1/2)^n) for x = c - x/2 from 0, in every row."""
    c = np.array([[1.5, -3.0], [6.0, 0.3]])
    for n in range(6):
        x = batched.iterate(lambda x: c - 0.5 * x, np.zeros((2, 2)), iterations=n)
        assert np.allclose(x, c * 2 / 3 * (1 - (-0.5) ** n), rtol=1e-15, atol=0)
    solved = batched.fixed_point(lambda x: c - 0.5 * x, np.zeros((2, 2)), tolerance=1e-9)
    assert np.abs(solved - c * 2 / 3).max() < 1e-9
    few = batched.fixed_point(lambda x: c - 0.5 * x, np.zeros((2, 2)), tolerance=1e-9, max_iterations=5)
    assert np.isnan(few).all()


def test_rows_that_converge_leave_the_others_to_go_on_by_themselves():
    """x = c - r x has the rate r of its row: each row's solution, iterations and last change are those of the row alone,
    in any batch, of any leading axes, and a row that is not a number fails by itself."""
    r = np.array([[0.01], [0.9], [0.5], [0.99], [0.2], [0.01], [np.nan], [0.97]])
    c, known = np.arange(16.0).reshape(8, 2) - 5, []
    options = {"tolerance": 1e-8, "max_iterations": 300}

    def solved(r, c, evaluated):
        told = []
        equation = lambda x, r, c: (evaluated.append(x.size), c - r * x)[1]  # noqa: E731
        return batched.fixed_point(equation, 0 * c, r, c, **options, record=lambda *found: told.append(found)), told[0]

    x, told = solved(r, c, known)
    for k in range(8):
        alone, its = solved(r[k : k + 1], c[k : k + 1], [])
        assert np.array_equal(alone[0], x[k], equal_nan=True)
        assert [values[0] for values in its] == [values[k] for values in told]
    assert list(told[0]) == [True, True, True, False, True, True, False, False]
    assert sum(known) < 0.5 * 300 * 16  # rows that are done are not evaluated again
    folded, again = solved(r.reshape(2, 4, 1), c.reshape(2, 4, 2), [])
    assert np.array_equal(folded.reshape(8, 2), x, equal_nan=True)
    assert np.array_equal(again[1].ravel(), told[1])

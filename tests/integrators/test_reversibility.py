"""A step that is used can be reversed: what makes a chain of implicit steps exact, near the limit of the solver.

A step z -> z' is *used* if its solve and the reverse step converge and meet the reversal threshold, 100 tolerances. For
detailed balance it must then be used from z' too. The reverse step is not the inverse: it ends at z'', a tolerance or so
from z, so that the condition is tried at z' as a chain there would, and a step is counted as

    kept       used from z' too
    between    not used from z', but S(z'') exists and is within twice the threshold of z'
    lost       anything else
"""

from __future__ import annotations

import collections
import dataclasses

import numba
import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.integrators import (
    ExplicitTao,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    ProjectedTao,
    Suzuki,
    Yoshida,
)
from refhmc.metrics import Fisher, SoftAbs
from refhmc.models import Banana, Funnel
from tests.helpers.many_starts import from_each
from tests.helpers.models import FEW_CALLS
from tests.helpers.riemannian_cases import MOVED_MODELS, SMOOTH, UNCHECKED, case, model_of
from tests.helpers.sweeps import one_in, representatives, swept

FAMILY_ALPHA = 1e-6  # of the random checks of this file together
LAST_BITS = 4 * np.finfo(float).eps


def with_options(integrator, **options):
    """The integrator, or the base of a composition, with other options."""
    if hasattr(integrator, "base"):
        return type(integrator)(with_options(integrator.base, **options))
    return dataclasses.replace(integrator, **options)


class Step:
    """One step of ``integrator`` from z = (q, p); None if it is not used."""

    def __init__(self, H, integrator):
        self.H, self.integrator = H, integrator

    def __call__(self, z, eps):
        if z is None or not np.isfinite(z).all():
            return None
        path = refhmc.integrate(self.H, self.integrator, *np.split(z, 2), step_size=eps, n_steps=1)
        ends_well = path.converged[0] and np.isfinite(path.energy[-1])
        return np.concatenate([path.q[-1], path.p[-1]]) if ends_well else None


def edge_of(step, z, time: float) -> float:
    """A step size near the largest that is used from ``z``, by bisection of its logarithm."""
    low, high, eps = 1e-3 * time, np.inf, 0.3 * time
    for _ in range(10):
        if step(z, eps) is None:
            high = eps
        else:
            low = eps
        eps = min(2 * low, 50 * time) if high == np.inf else (low * high) ** 0.5
    return low


def count(method: str, metric: str, model: str, seed: int, tolerance: float) -> collections.Counter:
    """Count the fates of four steps of .5 to 1.3 times the edge from one point."""
    H, q, p, time = case(model, metric, seed)
    checked = with_options(UNCHECKED[method], tolerance=tolerance, reversibility_check=True)
    used, loose = Step(H, checked), Step(H, with_options(checked, reversibility_check=False))
    z, found = np.concatenate([q, p]), collections.Counter()
    edge = edge_of(used, z, time)
    for share in np.random.default_rng([seed, 7]).uniform(0.5, 1.3, 4):
        end = used(z, share * edge)
        if end is None:
            found["not used"] += 1
        elif used(end, -share * edge) is not None:
            found["kept"] += 1
        else:
            again = loose(loose(end, -share * edge), share * edge)
            near = again is not None and np.abs(again - end).max() <= 2 * 100 * tolerance
            found["between" if near else "lost"] += 1
    return found


@pytest.mark.parametrize("method", representatives(UNCHECKED, list(UNCHECKED)[::5]))
def test_a_step_that_is_used_is_used_from_its_end(method):
    """Among some 60 used steps per method, at most one is not kept.

    Here all are kept. On a processor that rounds differently, two or more of one method are not kept with probability 1e-3 in
    total, at the rate that the slow test below measured at other points.
    """
    found = collections.Counter()
    for k, metric in enumerate(SMOOTH):
        for j, model in enumerate(MOVED_MODELS):
            found += count(method, metric, model, seed=4 * k + j, tolerance=1e-6)
    assert found["lost"] + found["between"] <= 1
    assert found["kept"] > 30
    assert found["not used"] > 10  # the steps do reach beyond the edge


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [1e-6, 1e-9])
def test_a_step_that_is_used_is_used_from_its_end_at_many_points(tolerance):
    """Measured at both tolerances together: of 20,923 used steps 20,920 are kept, 2 between, 1 lost (of a composition, whose
    parts are checked one by one). With the reverse step as the only condition, some 70 of 8,000 were lost, most of them of
    Anderson's acceleration with no limit on its iterations.
    """
    found = collections.Counter()
    for method in UNCHECKED:
        for metric in SMOOTH:
            for model in MOVED_MODELS:
                for seed in range(100, 112):
                    found += count(method, metric, model, seed, tolerance)
    assert found["kept"] > 6000
    assert found["lost"] <= found["kept"] / 2000
    assert found["between"] <= found["kept"] / 1000


# ----------------------------------------------------------------------------------- ways back that are broken off


def step_and_iterations(H, integrator, z, eps):
    """The end of one step, None if it fails, and the iterations of its solves."""
    path = refhmc.integrate(H, integrator, *np.split(z, 2), step_size=eps, n_steps=1)
    good = path.converged[0] and np.isfinite(path.energy[-1])
    return np.concatenate([path.q[-1], path.p[-1]]) if good else None, int(path.iterations[0])


def close(x, y, tolerance) -> bool:
    """The solver's comparison: to the tolerance, or to the last bits of ``y``."""
    return bool((np.abs(x - y) <= np.maximum(tolerance, LAST_BITS * np.abs(y))).all())


def all_the_way(H, unchecked, z, eps):
    """Whether a step is used if its reverse step is never stopped early, None without a solution; the iterations of both.

    The rule written out, with unchecked steps alone.
    """
    tolerance = unchecked.tolerance
    end, there = step_and_iterations(H, unchecked, z, eps)
    if end is None:
        return None, 0
    start, back = step_and_iterations(H, unchecked, end, -eps)
    if start is None or not close(start, z, 100 * tolerance):
        return False, 0
    if max(there, back) <= 1.25 * min(there, back) + 2 and close(start, z, tolerance):
        return True, there + back
    again, third = step_and_iterations(H, unchecked, start, eps)
    return again is not None and close(again, end, 100 * tolerance), there + back + third


def near_the_edge(metric, model, seed, integrator, n):
    """H, z and ``n`` step sizes: half of them of .3 to 1.5 times the edge, half within 3 % of it."""
    H, q, p, time = case(model, metric, seed)
    z, rng = np.concatenate([q, p]), np.random.default_rng([seed, 11])
    edge = edge_of(Step(H, integrator), z, time)
    return H, z, edge * np.concatenate([rng.uniform(0.3, 1.5, n // 2), rng.uniform(0.97, 1.03, n - n // 2)])


def compare_with_all_the_way(method, metrics, seeds, n, **options) -> collections.Counter:
    """Steps by the verdict of the rule without early stops, and whether they are used; those stopped early."""
    unchecked = with_options(UNCHECKED[method], **options)
    if unchecked.solver == "anderson":
        unchecked = with_options(unchecked, max_iterations=25)  # as the check has it
    checked, found = with_options(unchecked, reversibility_check=True), collections.Counter()
    for metric in metrics:
        for model in MOVED_MODELS:
            for seed in seeds:
                H, z, sizes = near_the_edge(metric, model, seed, checked, n)
                for eps in sizes:
                    good, iterations = all_the_way(H, unchecked, z, eps)
                    end, spent = step_and_iterations(H, checked, z, eps)
                    if good is None:
                        assert end is None
                        continue
                    found[good, end is not None] += 1
                    found["broken off"] += end is not None and spent < iterations
    return found


WAYS_BACK = [{"tolerance": 1e-6}, {"tolerance": 1e-9}, {"tolerance": 1e-6, "max_iterations": 20}]


@pytest.mark.sweep
@pytest.mark.parametrize(("method", "options"), one_in(6, ["midpoint-endpoint", "midpoint-midpoint"], WAYS_BACK))
def test_a_step_is_used_as_if_its_way_back_were_never_broken_off(method, options):
    """The steps that are used are those of the rule followed to the end, and many reverse steps are stopped early.

    One difference is allowed. There was none among 44,365 early stops elsewhere near the edge, a rate below 7e-5 at 95 %. On a
    processor that rounds differently, two or more of some 200 therefore occur with probability 1e-4.
    """
    found = compare_with_all_the_way(method, SMOOTH, range(2), 12, **options)
    assert found[True, False] + found[False, True] <= 1
    assert found[True, True] > 100
    assert found["broken off"] > (20 if "max_iterations" in options else 80)


@pytest.mark.parametrize(
    "method", [swept("midpoint-anderson"), "leapfrog-cached", swept("leapfrog-naive"), swept("tao-2")]
)
def test_other_ways_back_are_followed_to_the_end(method):
    found = compare_with_all_the_way(method, ["fisher", "outer"], range(2), 8, tolerance=1e-6)
    assert found[True, False] + found[False, True] == 0
    assert found[True, True] > 20
    assert found["broken off"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [1e-6, 1e-9])
@pytest.mark.parametrize("method", ["midpoint-endpoint", "midpoint-midpoint"])
def test_many_steps_are_used_as_if_no_way_back_were_broken_off(method, tolerance):
    """Steps that the rule rejects and that an early stop might accept: with the metrics that change fast."""
    found = compare_with_all_the_way(method, SMOOTH, range(200, 208), 24, tolerance=tolerance)
    assert found[True, False] + found[False, True] <= 1
    assert found[True, True] > 1500
    assert found[False, False] > 10
    assert found["broken off"] > 500


def test_a_way_back_is_broken_off_after_a_few_iterations():
    """At the steps of the benchmark's banana, five of six iterations of a reverse step are saved at a tolerance of 1e-12."""
    model, kernel = Banana(), ImplicitMidpoint(tolerance=1e-12)
    H, rng = refhmc.Hamiltonian(model, Fisher()), np.random.default_rng(3)
    there = back = 0
    for q in model.reference.draw(rng, 50):
        z = np.concatenate([q, H.draw_momentum(q, rng)])
        unchecked = dataclasses.replace(kernel, reversibility_check=False)
        there += step_and_iterations(H, unchecked, z, 0.1)[1]
        back += step_and_iterations(H, kernel, z, 0.1)[1]
    assert back - there < there / 4


def test_a_step_whose_way_back_does_not_converge_is_not_used():
    """The point that an audit found: the step converges at a tolerance of 1e-9, its reverse step does not."""
    q = np.array([0.5169301817816552, 0.49136822836672356])
    p = np.array([-4.137497944298492, -4.8967745319004825])
    H = refhmc.Hamiltonian(Banana(), Fisher())
    loose = GeneralizedLeapfrog(tolerance=1e-9, reversibility_check=False)
    there = refhmc.integrate(H, loose, q, p, step_size=0.05, n_steps=1)
    assert there.converged.all()
    assert not refhmc.integrate(H, loose, there.q[-1], there.p[-1], step_size=-0.05, n_steps=1).converged.any()

    default = GeneralizedLeapfrog(tolerance=1e-9)
    assert not refhmc.integrate(H, default, q, p, step_size=0.05, n_steps=1).converged.any()
    kernel = refhmc.HMC(step_size=0.05, n_steps=1, metric=Fisher(), integrator=default)
    got = refhmc.transition(H.model, kernel, q, momentum=p, uniforms=[0.0])
    assert got.outcome == "not_reversible"
    assert got.stats["solver_failed"]
    assert not got.stats["diverging"]
    assert np.array_equal(got.q, q)


@pytest.mark.parametrize(
    ("base", "solver"), one_in(2, [GeneralizedLeapfrog, ImplicitMidpoint], ["fixed point", "anderson"])
)
def test_the_check_refuses_the_steps_that_do_not_return_and_no_other(base, solver):
    """Large steps on the banana, each compared with an unchecked step and its reverse step.

    The check uses -eps, which is equivalent to reversing the momentum.
    """
    refused = kept = 0
    for seed in range(120):
        H, q, p, time = case("banana", "outer", seed)
        z, eps = np.concatenate([q, p]), 1.2 * time
        most = {"max_iterations": 25} if solver == "anderson" else {}
        loose = base(tolerance=1e-8, solver=solver, reversibility_check=False, **most)
        step = Step(H, loose)
        end = step(z, eps)
        if end is None:
            continue
        back = step(end, -eps)
        again = step(back, eps)
        misses = [np.inf if x is None else np.abs(x - y).max() for x, y in ((back, z), (again, end))]
        kernel = refhmc.HMC(step_size=eps, n_steps=1, metric=H.metric, integrator=base(tolerance=1e-8, solver=solver))
        got = refhmc.transition(H.model, kernel, q, momentum=p, uniforms=[0.0])
        if max(misses) <= 1e-6:
            kept += 1
            assert got.outcome in ("accepted", "rejected")
            assert got.stats["reversibility_error"] <= 1e-6
        if misses[0] > 1e-6 or (misses[1] > 1e-6 and misses[0] > 1e-8):
            refused += 1
            assert got.outcome == "not_reversible"
            assert got.stats["solver_failed"]
            assert np.array_equal(got.q, q)
    assert kept >= 10
    assert refused >= (1 if solver == "anderson" else 0)


# ------------------------------------------------------------------------------------ what exact starts become


def worst_z(**options) -> float:
    """On the funnel, where two thirds of the transitions fail: from independent exact draws, the mean change of functions of
    u_i = x_i e^{v/2} ~ N(0, 1) and of v, in standard errors: the largest of five.
    """
    model, n = Funnel(2), 3000
    kernel = refhmc.NUTS(
        step_size=0.3, max_treedepth=3, metric=SoftAbs(alpha=1e6), integrator=ImplicitMidpoint(**options)
    )
    starts = model.reference.draw(np.random.default_rng(5), n)
    ends, _ = from_each(model, kernel, starts, seed=6, n_transitions=40)

    def functions(q):
        u = q[:, 1:] * np.exp(q[:, :1] / 2)
        return np.concatenate([np.tanh(u**2), u**2, np.tanh(q[:, :1] / 3)], axis=1)

    change = functions(ends) - functions(starts)
    return float(np.abs(change.mean(0) / (change.std(0) / n**0.5)).max())


@pytest.mark.sweep
def test_the_default_keeps_the_law_where_most_steps_fail():
    """FAMILY_ALPHA for five tests of a mean that is zero; unchecked steps show what could be seen."""
    assert worst_z() < scipy.stats.norm.isf(FAMILY_ALPHA / 10)
    assert worst_z(reversibility_check=False) > scipy.stats.norm.isf(FAMILY_ALPHA / 10)


# --------------------------------------------------------------------------------------------------- other scales
# (Compiled here, so that the five models below share what is compiled.)


@numba.njit
def scaled_log_density(q, s):
    x = q / s[0]
    return -(x[0] ** 2) / 18 + 0.5 * x[0] - 0.5 * np.exp(x[0]) * x[1] ** 2


@numba.njit
def scaled_gradient(q, s):
    x = q / s[0]
    return np.array([-x[0] / 9 + 0.5 - 0.5 * np.exp(x[0]) * x[1] ** 2, -np.exp(x[0]) * x[1]]) / s[0]


@numba.njit
def scaled_hessian(q, s):
    x = q / s[0]
    e = np.exp(x[0])
    return np.array([[-1 / 9 - 0.5 * e * x[1] ** 2, -e * x[1]], [-e * x[1], -e]]) / s[0] ** 2


@numba.njit
def scaled_third(q, s):
    x = q / s[0]
    e = np.exp(x[0])
    out = np.zeros((2, 2, 2))
    out[0, 0, 0] = -0.5 * e * x[1] ** 2
    out[0, 0, 1] = out[0, 1, 0] = out[1, 0, 0] = -e * x[1]
    out[1, 1, 0] = out[1, 0, 1] = out[0, 1, 1] = -e
    return out / s[0] ** 3


def accepted_share(integrator, scale: float) -> float:
    """Return the acceptance rate of 400 transitions from exact draws of the funnel 1 + 1 in coordinates scaled by ``scale``."""
    model = refhmc.Model(
        *(2, scaled_log_density, scaled_gradient, scaled_hessian, scaled_third),
        data=np.array([scale]),
        initial=[0.0, 0.0],
    )
    metric = SoftAbs(alpha=scale**2)
    kernel = refhmc.HMC(step_size=0.2, n_steps=5, metric=metric, integrator=integrator)
    starts = scale * Funnel(1).reference.draw(np.random.default_rng(1), 400)
    _, stats = from_each(model, kernel, starts, seed=3)
    return stats["is_accepted"].mean()


@pytest.mark.sweep
def test_the_midpoint_rule_holds_at_any_scale():
    """The tolerance is absolute. q and p are conjugate: one of them is never small. Solved for alone, q is; what is then
    solved badly does not return, and is rejected."""
    shares = [accepted_share(ImplicitMidpoint(), scale) for scale in (1.0, 1e-8, 1e8)]
    assert min(shares) > 0.5
    assert max(shares) - min(shares) < 0.05
    assert accepted_share(GeneralizedLeapfrog(), 1.0) > 0.5
    assert accepted_share(GeneralizedLeapfrog(), 1e-6) < 0.1


# ------------------------------------------------------------------------------------------ what is said of it


@pytest.mark.parametrize("make", [GeneralizedLeapfrog, ImplicitMidpoint, lambda **k: ProjectedTao(1.0, **k)])
@pytest.mark.parametrize("compose", [lambda x: x, Yoshida, Suzuki])
def test_unchecked_steps_are_not_called_exact(make, compose):
    assert compose(make()).exact
    assert compose(make()).approximation == ""
    unchecked = compose(make(reversibility_check=False))
    assert not unchecked.exact
    assert "reversibility_check=True" in unchecked.approximation


def test_the_explicit_integrators_say_what_they_are():
    assert Leapfrog().exact
    assert Leapfrog().approximation == ""
    assert not ExplicitTao(1.0).exact
    assert "ProjectedTao" in ExplicitTao(1.0).approximation


@pytest.mark.parametrize("checked", [True, False])
def test_the_result_says_whether_steps_were_taken_back(checked, sample):
    """The solver fails in 32 or more of the 50 transitions with 24 seeds; in none with a probability below 1e-20."""
    integrator = GeneralizedLeapfrog(reversibility_check=checked)
    kernel = refhmc.HMC(step_size=0.3, n_steps=3, metric=Fisher(), integrator=integrator)
    result = sample(model_of("banana"), kernel, draws=50, tune=0, chains=1, random_seed=1)
    assert result.attributes["exact"] is checked
    assert any("chain is approximate" in text for text in result.warnings) is not checked
    assert ("reversibility_error" in result.sample_stats) is checked
    (failure,) = [text for text in result.warnings if "solver failed" in text]
    assert ("are valid" in failure) is checked
    assert ("may be biased" in failure) is not checked
    assert ("GeneralizedLeapfrog needs" in failure) is ("did not reverse" in failure)


def test_only_the_generalised_leapfrog_is_advised_to_scale_its_coordinates(sample):
    """Of ten chains, all steps of one reverse with a probability below 0.15, so that the rate of a false alarm is 1e-8."""
    kernel = refhmc.HMC(step_size=0.25, n_steps=3, metric=Fisher(), integrator=ImplicitMidpoint(solver="anderson"))
    result = sample(model_of("banana"), kernel, draws=50, tune=0, chains=10, random_seed=1)
    (failure,) = [text for text in result.warnings if "solver failed" in text]
    assert "did not reverse" in failure
    assert "GeneralizedLeapfrog" not in failure


# ------------------------------------------------------------------------- failures have the right name, and numbers


@pytest.mark.parametrize(
    "integrator",
    [
        ProjectedTao(1.0),
        ProjectedTao(1.0, solver="fixed point"),
        GeneralizedLeapfrog(),
        ImplicitMidpoint(),
        ImplicitMidpoint(variant="midpoint"),
    ],
    ids=["tao", "tao-plain", "leapfrog", "midpoint", "midpoint-middle"],
)
@pytest.mark.parametrize(
    "make", [lambda **k: refhmc.HMC(n_steps=5, **k), swept(lambda **k: refhmc.NUTS(max_treedepth=3, **k))]
)
def test_an_iterate_that_overflows_is_a_failure_of_the_solver(integrator, make):
    """From one point of the banana with 100 momenta, a step of .2: the target has a finite energy at every position."""
    H, q = refhmc.Hamiltonian(Banana(), Fisher()), np.array([0.4, 0.7])
    kernel, rng = make(step_size=0.2, metric=Fisher(), integrator=integrator), np.random.default_rng(3)
    outcomes = collections.Counter()
    for _ in range(100):
        got = refhmc.transition(H.model, kernel, q, momentum=H.draw_momentum(q, rng), rng=rng)
        outcomes[got.outcome] += 1
        assert np.isfinite(got.stats["energy"])
        assert np.isfinite(got.stats["max_energy_error"])
    assert outcomes["solver_failed"] > 10
    assert set(outcomes) <= {"accepted", "rejected", "solver_failed", "not_reversible"}


def hole(q, data):
    return -0.5 * (q[0] ** 2 + q[1] ** 2) if q[0] < 1 else np.nan


def hole_gradient(q, data):
    return -q


@pytest.mark.parametrize(
    "kernel", [swept(refhmc.HMC(step_size=0.3, n_steps=8)), refhmc.NUTS(step_size=0.3)], ids=["hmc", "nuts"]
)
def test_no_statistic_is_nan_where_the_density_is(kernel, sample):
    """At least 23 % of the 100 transitions leave the support with 24 seeds; none does with a probability below 1e-11."""
    model = refhmc.Model(2, hole, hole_gradient, initial=[0.0, 0.0])
    stats = sample(model, kernel, draws=100, tune=0, chains=1, random_seed=2).sample_stats
    met = stats["outcome"] == refhmc.core.sample_stats.OUTCOMES.index("nan")
    assert met.any()
    assert np.all(stats["max_energy_error"][met] == np.inf)
    for name in ("energy", "energy_error", "max_energy_error", "lp"):
        assert not np.isnan(stats[name]).any()


def normal_pair(q, data):
    return -0.5 * (q[0] ** 2 + q[1] ** 2)


def sinking_fisher(q, data):
    """Indefinite in the first coordinate wherever the second is above 1."""
    return np.array([[1.0 - q[1], 0.0], [0.0, 1.0]])


def sinking_slope(q, data):
    out = np.zeros((2, 2, 2))
    out[0, 0, 1] = -1.0
    return out


@pytest.mark.sweep
def test_a_block_whose_metric_fails_at_its_own_position_stays_there(sample):
    """Gibbs moves the second coordinate to where the first one's metric is indefinite: no energy to begin with."""
    model = refhmc.Model(
        2,
        normal_pair,
        hole_gradient,
        fisher=sinking_fisher,
        fisher_derivative=sinking_slope,
        names=["a", "b"],
        initial=[0.0, 0.0],
    )
    first = refhmc.HMC(step_size=0.3, n_steps=2, metric=Fisher())
    second = refhmc.HMC(step_size=0.7, n_steps=3, metric=refhmc.metrics.Identity())
    kernel = refhmc.Gibbs({"b": second, "a": first})
    result = sample(model, kernel, draws=200, tune=0, chains=1, random_seed=2)
    stats, draws = result.sample_stats, result.draws[0]
    above = draws[:, 1] > 1
    assert above.sum() > 10
    assert np.all(stats["outcome_a"][0][above] == refhmc.core.sample_stats.OUTCOMES.index("diverged"))
    assert np.all(stats["max_energy_error_a"][0][above] == np.inf)
    assert np.all(np.diff(draws[:, 0])[above[1:]] == 0)
    for name in ("max_energy_error_a", "energy_error_a", "acceptance_rate_a"):
        assert not np.isnan(stats[name]).any()


def test_a_trajectory_ends_where_its_metric_is_not_finite():
    """An explicit step on a metric that overflows: no state, where an energy that is infinite is one."""

    def fisher(q, data):
        return np.array([[np.exp(q[0] ** 4)]])

    def slope(q, data):
        return np.array([[[4 * q[0] ** 3 * np.exp(q[0] ** 4)]]])

    model = refhmc.Model(
        1,
        lambda q, data: -0.5 * q[0] ** 2,
        lambda q, data: -q,
        fisher=fisher,
        fisher_derivative=slope,
        initial=[0.0],
        in_python=FEW_CALLS,
    )
    H = refhmc.Hamiltonian(model, Fisher())
    path = refhmc.integrate(H, ExplicitTao(0.0), [0.5], [40.0], step_size=0.5, n_steps=4)
    assert not path.converged.any()
    assert np.isnan(path.q[1:]).all()

"""``check.transition``: bugs that it must find, kernels that it must pass, and reports on failed calls."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import transitions as mutants
from refhmc.check.report import FAIL, INCONCLUSIVE, PASS
from refhmc.check.subject.foreign import Foreign
from refhmc.check.subject.outcomes import outcomes
from refhmc.check.subject.target import inverse_mass, position_log_density
from refhmc.check.subject.transition import TINY, Transition, find_runner
from refhmc.check.transitions import stationarity_tests as stationarity
from refhmc.check.transitions.balance import Setting, pair
from refhmc.check.transitions.detailed_balance import EFFORT
from tests.helpers.sweeps import one_in, swept

PAIRS = {pair.id: pair for pair in mutants.PAIRS}


@pytest.fixture
def few_weighted_moves(monkeypatch):
    """Use few weighted moves for tests of the exact rows; the power of the statistical rows needs all of them."""
    monkeypatch.setattr(stationarity, "LOOKS", (500,))


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["Barker's rule", "uniforms near one accept", "uniform proposals", "float32"])
def test_unusual_correct_kernels_are_in_detailed_balance(name, few_weighted_moves):
    report = mutants.report(mutants.ODD[name], 5)
    assert not report.failures, report
    assert report.row("detailed balance").status == PASS


@pytest.mark.sweep
@pytest.mark.parametrize(
    "seed", [swept(4), swept(23), swept(32), 55]
)  # eight starts near the middle missed a way back at these
def test_no_reverse_move_of_large_noise_is_missed(seed, few_weighted_moves):
    report = PAIRS["M4"].right(seed)
    assert report.row("detailed balance").status == report.row("acceptance").status == PASS, report


ALSO_QUICK = ["floor .02"]
SWEPT = ["noise after acceptance", "clipped in parts", "slow Langevin"]


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name",
    [
        *ALSO_QUICK,
        *map(swept, SWEPT),
        *(pytest.param(x, marks=pytest.mark.slow) for x in mutants.NEARLY if x not in (*ALSO_QUICK, *SWEPT)),
    ],
)
def test_nearly_right_kernel_does_not_pass(name, few_weighted_moves):
    """These kernels must not PASS while detailed balance is INCONCLUSIVE, nor by moves far from their fault."""
    report = mutants.report(mutants.NEARLY[name], 4)
    assert report.status != PASS, report
    assert any(name in report.verdict for name in ("detailed balance", "wrong distribution")), report


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("order", "more"), one_in(9, ["first", "last", "both"], [{}, {"turned": "moves"}, {"alpha": 0.99}])
)
def test_correctly_kept_momentum_passes(order, more, few_weighted_moves):
    report = mutants.report(mutants.refreshed(order, **more), 6, H=mutants.energy)
    assert report.ok, report
    for name in ("acceptance", "momentum refreshment", "volume", "momentum flip", "stationarity"):
        assert report.row(name).status == PASS, report


def test_position_and_kept_momentum_are_tested_by_weighted_moves():
    """A refreshment that is not linear only shows in the distribution: p becomes 1.5 |p| in direction."""

    def kernel(draws, q, p):
        z = draws.normal(2)
        return q + 0.0 * z, 1.5 * np.abs(z)

    report = mutants.report(kernel, 1, H=mutants.energy)
    assert report.row("stationarity").status == FAIL, report
    assert "momentum" in report.row("stationarity").basis


CALLS = [0]


def by_a_global_counter(draws, q):
    CALLS[0] += 1
    return (mutants.hmc if CALLS[0] % 2 else mutants.ODD["Barker's rule"])(draws, q)


def with_a_closure(first, other):
    calls = 0

    def kernel(draws, q):
        nonlocal calls
        calls += 1
        return (first if calls % 2 else other)(draws, q)

    return kernel


RIGHT_TURNS = {
    "an object": mutants.TakesTurns(mutants.hmc, mutants.ODD["Barker's rule"], 2),
    "every third": mutants.TakesTurns(mutants.hmc, mutants.jittered(False), 3),
    "a closure": with_a_closure(mutants.hmc, mutants.ODD["Barker's rule"]),
    "a global": by_a_global_counter,
}
WRONG_TURNS = {
    "temperature": mutants.TakesTurns(mutants.hmc, mutants.ruled(lambda r: math.exp(r / 1.05)), 2),
    "floor, every tenth": mutants.TakesTurns(mutants.hmc, mutants.ruled(lambda r: max(0.1, math.exp(r))), 10),
    "another step": mutants.TakesTurns(mutants.hmc, mutants.jittered(True), 2),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*RIGHT_TURNS, *WRONG_TURNS])
def test_alternating_rules_are_inconclusive(name):
    report = mutants.report({**RIGHT_TURNS, **WRONG_TURNS}[name], 2)
    assert report.row("stateless").status == INCONCLUSIVE, report
    assert report.status == INCONCLUSIVE, report
    assert "stateless" in report.verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(mutants.ODD))
@pytest.mark.parametrize("seed", range(8))
def test_unusual_correct_kernels_do_not_fail_for_any_seed(name, seed):
    report = mutants.report(mutants.ODD[name], seed, seconds=6.0)
    assert not report.failures, report


@pytest.mark.sweep
def test_a_kernel_that_raises_on_very_large_noise_only_is_not_failed_for_it(few_weighted_moves):
    """exp of an energy increase overflows at this seed, on normals of size 7."""
    report = mutants.report(mutants.ODD["Barker's rule"], 31)
    assert report.ok, report
    assert any("OverflowError" in note for note in report.notes)


def test_cap_on_energy_increase_is_distinguished_from_cap_on_change(few_weighted_moves):
    """A proposal that is never accepted gives no move to pair with its reverse, which is accepted."""
    wrong, right = (mutants.report(mutants.with_rule(mutants.capped(both)), 4) for both in (False, True))
    assert "reverse is never taken" in wrong.row("detailed balance").basis, wrong
    assert "P = 0 at" in wrong.row("acceptance").basis, wrong
    assert right.status == PASS, right
    assert "r from -0." in right.row("detailed balance").basis, right


@pytest.mark.sweep
def test_barkers_rule_is_named(few_weighted_moves):
    report = mutants.report(mutants.ODD["Barker's rule"], 1)
    assert "Barker" in report.row("acceptance").basis
    assert not report.failures, report
    assert report.row("detailed balance").status == PASS


@pytest.mark.sweep
@pytest.mark.parametrize(("accept", "words"), [(mutants.other_sign, "sign"), swept(mutants.without_kinetic, "kinetic")])
def test_diagnosis_names_a_wrong_acceptance_rule(accept, words, few_weighted_moves):
    report = rc.transition(mutants.with_rule(accept), mutants.logp, dim=2, n_points=3, seed=1)
    assert any(words in text for text in report.diagnosis), report


@pytest.mark.parametrize(("q", "z"), [((0.8217, 0.8557), (0.768, 1.4657)), ((1.0007, 0.5278), (0.5422, 2.071))])
def test_reverse_move_with_other_decisions_is_found(q, z):
    """Thresholds drawn again for the check: the reverse move needs other bands, next to noises with another exponent."""
    kernel, q, z = mutants.autostep("new band"), np.array(q), np.array(z)
    runner = find_runner(Foreign(kernel, "kernel"), np.zeros(2))
    setting = Setting(runner, mutants.logp, lambda q, w: mutants.logp(q) - 0.5 * w @ w, np.eye(2), False, TINY, 1, 0.0)
    found = setting.outcomes(q, z)
    one_per_end = {x.transition.q.tobytes(): x for x in found if x.moved}
    pairs = [pair(setting, q, z, x, found, np.random.default_rng(3)) for x in one_per_end.values()]
    assert [x.state for x in pairs] == ["match"] * len(pairs), [(x.state, x.mismatch) for x in pairs]


@pytest.mark.parametrize(
    ("q", "z"),
    [
        ((-0.955318801528561, -0.8894468957322919), (0.12821176009912807, -1.2846336160438956)),
        ((0.6743820832462255, -2.050138382417343), (1.5183879652481256, 0.558925457043894)),
        ((0.6743820832462255, -2.050138382417343), (-1.8673685539772766, -0.3154509167084019)),
    ],
)
def test_a_drawn_number_of_steps_is_found_again(q, z):
    """1 + floor(u n) steps, with n = 3 at one end and n = 4 at the other: the same u means another number of steps.

    A single search misses some of these reverse moves, and would report a mismatch of a correct kernel.
    """
    kernel, q, z = mutants.gist("", by_choice=False), np.array(q), np.array(z)
    runner = find_runner(Foreign(kernel, "kernel"), np.zeros(2))
    setting = Setting(runner, mutants.logp, lambda q, w: mutants.logp(q) - 0.5 * w @ w, np.eye(2), False, TINY, 1, 0.0)
    found = setting.outcomes(q, z)
    one_per_end = {x.transition.q.tobytes(): x for x in found if x.moved}
    for x in one_per_end.values():
        assert pair(setting, q, z, x, found, np.random.default_rng(3), EFFORT).state != "mismatch"


@pytest.mark.parametrize("seed", range(3))
def test_two_thresholds_are_enumerated(seed):
    """The probability of each exponent, from the thresholds themselves: the ratios of the steps at both ends."""
    kernel, rng = mutants.autostep("", by_choice=False), np.random.default_rng(seed)
    q, z = 0.8 * rng.standard_normal(2), 1.5 * rng.standard_normal(2)
    runner = find_runner(Foreign(kernel, "kernel"), np.zeros(2))
    setting = Setting(runner, mutants.logp, lambda q, w: mutants.logp(q) - 0.5 * w @ w, np.eye(2), False, TINY, 1, 0.0)
    found: dict[bytes, float] = {}
    for x in setting.outcomes(q, z):
        found[x.transition.q.tobytes()] = found.get(x.transition.q.tobytes(), 0.0) + x.probability

    def move(q, p, k):
        return mutants.leapfrog(q, p, mutants.EPS * 2.0**k, 1)

    def ratio(q, p, k):
        return math.exp(-abs(mutants.energy(q, p) - mutants.energy(*move(q, p, k))))

    ends = {k: move(q, z, k) for k in range(-3, 4)}
    places = [ratio(q, z, j) for j in ends] + [ratio(end, -p, j) for end, p in ends.values() for j in ends]
    edges = sorted({0.0, *places, 1.0})
    wanted: dict[bytes, float] = {q.tobytes(): 0.0}
    for a, low in itertools.pairwise(edges):
        for b, high in itertools.pairwise(edges):
            u, share = [0.5 * (a + low), 0.5 * (b + high)], (low - a) * (high - b)
            to = runner.run(q, {"normal": list(z), "uniform": [*u, TINY]}).q
            k = next((k for k, (end, _) in ends.items() if np.array_equal(end, to)), None)
            P = 0.0 if k is None else math.exp(min(0.0, mutants.energy(q, z) - mutants.energy(*ends[k])))
            wanted[to.tobytes()] = wanted.get(to.tobytes(), 0.0) + share * P
            wanted[q.tobytes()] += share * (1 - P)
    for end in {*found, *wanted}:
        assert abs(found.get(end, 0.0) - wanted.get(end, 0.0)) < 1e-4  # narrow cells may be missed


@pytest.mark.sweep
@pytest.mark.parametrize("bug", ["no check", "short search"])
def test_step_size_between_two_thresholds_without_its_check_does_not_pass(bug, few_weighted_moves):
    report = mutants.report(mutants.autostep(bug, by_choice=False), 1)
    assert report.row("detailed balance").status != PASS, report
    assert report.status != PASS, report


# --------------------------------------------------------------------------------------------------- the author's shapes


@pytest.mark.sweep
def test_momentum_and_uniform_may_be_arguments(few_weighted_moves):
    """The energy has a non-unit mass, and the kernel returns its momentum too."""
    mass = np.array([2.0, 0.5])

    def H(q, p):
        return 0.5 * q @ q + 0.5 * np.sum(p * p / mass)

    def kern(q, p0, u):
        p = p0 - 0.4 * q
        new_q = q + 0.8 * p / mass
        new_p = p - 0.4 * new_q
        return (new_q, new_p) if u < np.exp(min(0.0, H(q, p0) - H(new_q, new_p))) else (q, p0)

    report = rc.transition(kern, H, n_points=3)
    assert report.ok, report
    assert report.row("detailed balance").status == PASS
    assert "p0" in report.row("momentum flip").basis

    def heavy(q, p0, u):  # the energy forgets the mass
        p = p0 - 0.4 * q
        new_q = q + 0.8 * p / mass
        new_p = p - 0.4 * new_q
        return new_q if u < np.exp(min(0.0, 0.5 * (q @ q + p0 @ p0 - new_q @ new_q - new_p @ new_p))) else q

    assert rc.transition(heavy, H, dim=2, n_points=3).row("detailed balance").status == FAIL


@pytest.mark.sweep
def test_generator_draws_and_state_object_are_supported(few_weighted_moves):
    def by_generator(rng, q):
        new = q + rng.normal(0.0, 1.0, size=q.shape)
        return new if rng.exponential() > 0.5 * (new @ new - q @ q) else q

    def by_flip(draws, q):
        new = q + draws.normal(len(q))
        return {"accepted": draws.flip(0.5 * (q @ q - new @ new)), "new": new, "old": q}

    def read(draws, q):
        state = by_flip(draws, q)
        return (state["new"] if state["accepted"] else state["old"]), {"accepted": state["accepted"]}

    for kernel in (by_generator, read):
        report = rc.transition(kernel, lambda q: -0.5 * q @ q, dim=3, n_points=3)
        assert report.row("detailed balance").status == PASS, report


def test_unrecordable_kernel_is_judged_by_its_distribution():
    def kernel(rng, q):
        rng = np.random.Generator(rng.bit_generator)  # as compiled code does
        new = q + rng.standard_normal(2)
        return new if math.log(rng.random()) < 0.5 * (q @ q - new @ new) else q

    report = rc.transition(kernel, lambda q: -0.5 * q @ q, dim=2, seconds=2.0)
    assert not report.failures, report
    assert report.row("detailed balance").status == INCONCLUSIVE
    assert "recorded" in report.row("detailed balance").basis


@pytest.mark.sweep
def test_step_of_almost_zero_length_must_be_accepted(few_weighted_moves):
    def kernel(draws, q, eps=0.5):
        p = draws.normal(2)
        new_p = p - 0.5 * eps * q
        new_q = q + eps * new_p
        new_p = new_p - 0.5 * eps * new_q
        drop = 0.5 * (q @ q + p @ p - new_q @ new_q - new_p @ new_p) - kernel.offset
        return new_q if math.log(draws.uniform()) < drop else q

    for offset, status in ((0.0, PASS), (0.3, FAIL)):
        kernel.offset = offset
        assert rc.transition(kernel, lambda q: -0.5 * q @ q, dim=2, n_points=3).row("zero-length").status == status


# ------------------------------------------------------------------------------------------------------ refhmc's own kernels


def gaussian():
    return refhmc.models.Gaussian(np.zeros(2), [[1.0, 0.5], [0.5, 2.0]])


@pytest.mark.sweep
def test_direction_is_a_decision_although_both_proposals_may_be_rejected(few_weighted_moves):
    """At this seed the flips reject both by themselves, at a point of the forward move and not of the reverse one."""
    report = mutants.report(mutants.ODD["a random direction"], 4, seconds=6.0)
    assert not report.failures, report
    assert report.row("detailed balance").status == PASS


@pytest.mark.sweep  # some 6,000 transitions each; by default the laws of tests/kernels/, and DHMC below
@pytest.mark.parametrize("name", ["identity", "dense", "riemannian", "generalized"])
def test_hmc_kernels_of_refhmc_pass(name):
    if name in ("identity", "dense"):
        metric = refhmc.metrics.Identity()
        if name == "dense":
            metric = refhmc.metrics.Dense(np.array([[1.0, 0.5], [0.5, 2.0]]))
        model, kernel = gaussian(), refhmc.HMC(step_size=0.8, n_steps=2, metric=metric)
    else:
        metric, model = refhmc.metrics.Fisher(), refhmc.models.Banana()
        solver = refhmc.integrators.ImplicitMidpoint if name == "riemannian" else refhmc.integrators.GeneralizedLeapfrog
        kernel = refhmc.HMC(step_size=0.2, n_steps=2, metric=metric, integrator=solver(tolerance=1e-12))
    report = rc.transition(kernel, refhmc.Hamiltonian(model, metric), n_points=3, delta=1e-12)
    assert report.ok, report
    assert report.row("detailed balance").status == PASS


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("kernel", "model"),
    [(refhmc.GIST, gaussian()), (refhmc.GIST, refhmc.models.Funnel(1)), (refhmc.AutoStep, gaussian())],
)
def test_self_tuning_kernels_of_refhmc_are_in_detailed_balance(kernel, model, few_weighted_moves):
    metric, bound = refhmc.metrics.Identity(), {"max_steps": 8} if kernel is refhmc.GIST else {"max_doublings": 3}
    kernel = kernel(step_size=0.6, metric=metric, **bound)
    report = rc.transition(kernel, refhmc.Hamiltonian(model, metric), n_points=3, seconds=240.0)
    assert report.ok, report
    assert report.row("detailed balance").status == PASS


@pytest.mark.sweep
@pytest.mark.parametrize(
    "kernel",
    [
        refhmc.MALT(step_size=0.6, n_steps=3, metric=refhmc.metrics.Dense(np.array([[1.0, 0.5], [0.5, 2.0]]))),
        refhmc.MALT(step_size=0.6, n_steps=2, step_jitter=0.3, metric=refhmc.metrics.Identity()),
        refhmc.MAMS(step_size=0.6, n_steps=3, persistence=0.0, length_jitter=0.4, metric=refhmc.metrics.Identity()),
        refhmc.MAMS(step_size=0.6, n_steps=2, persistence=0.0, metric=refhmc.metrics.Diagonal(np.array([1.0, 3.0]))),
    ],
)
def test_malt_and_mams_of_refhmc_are_in_detailed_balance(kernel, few_weighted_moves):
    report = rc.transition(kernel, gaussian(), n_points=4, seconds=240.0)
    assert report.ok, report
    assert report.row("detailed balance").status == PASS


@pytest.mark.sweep
@pytest.mark.parametrize("persistence", [0.0, swept(0.7)])
def test_delayed_rejection_of_refhmc_passes_with_a_fresh_and_a_kept_momentum(persistence, few_weighted_moves):
    kernel = refhmc.DRHMC(step_size=1.3, persistence=persistence, metric=refhmc.metrics.Identity())
    report = rc.transition(kernel, gaussian(), n_points=4, seconds=240.0)
    assert report.ok, report


@pytest.mark.parametrize(("factor", "status"), [(1.0, PASS), (0.99, FAIL)])
def test_a_small_probability_that_the_kernel_states_is_compared(factor, status, few_weighted_moves):
    """A flip states its logarithm, so that a probability of 1e-200 is known to rounding. A uniform shows 2^-53 only."""

    def kernel(draws, q):
        new = q + 20 * draws.normal(2)
        return new if draws.flip(0.5 * factor * min(q @ q - new @ new, 0.0)) else q

    points = 0.1 * np.random.default_rng(1).normal(size=(4, 2))
    row = rc.transition(kernel, lambda q: -0.5 * q @ q, points=points, n_points=4, seconds=None).row("detailed balance")
    assert row.status == status, row
    if status == PASS:
        assert float(row.basis.split("of probability ")[1].split()[0]) < 1e-50


@pytest.mark.parametrize(
    "options",
    [
        {"metric": refhmc.metrics.Identity()},
        swept({"length_jitter": 0.5, "metric": refhmc.metrics.Dense(np.array([[1.0, 0.5], [0.5, 2.0]]))}),
        swept({"step_jitter": 0.3, "persistence": 0.9, "metric": refhmc.metrics.Diagonal(np.array([1.0, 3.0]))}),
    ],
)
def test_mams_of_refhmc_passes_with_a_velocity_that_is_kept(options, few_weighted_moves):
    report = rc.transition(refhmc.MAMS(step_size=0.9, n_steps=3, **options), gaussian(), n_points=4, seconds=240.0)
    assert report.ok, report
    for name in ("on the sphere", "momentum refreshment", "reversible", "acceptance", "momentum flip", "stationarity"):
        assert report.row(name).status == PASS, report


def test_mclmc_is_not_examined_since_it_never_rejects():
    with pytest.raises(TypeError, match="check.leap"):
        rc.transition(refhmc.MCLMC(step_size=0.6), gaussian())


def turning(angle, late=False):
    """Return a Metropolis step of a kept unit velocity u in the plane, q* = q + u, after u is turned by ``angle(draws)``."""

    def turned(draws, u):
        a = angle(draws)
        return np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]) @ u

    def kernel(draws, q, u):
        u = u if late else turned(draws, u)
        new = q + u
        q, u = (new, u) if math.log(draws.uniform()) < 0.5 * (q @ q - new @ new) else (q, -u)
        return q, turned(draws, u) if late else u

    return kernel


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (turning(lambda draws: draws.normal(2) @ [1.0, 2.0]), "left to stationarity"),
        (turning(lambda draws: draws.normal(2) @ [1.0, 2.0], late=True), "after the move"),
        (turning(lambda draws: draws.normal()), "draws 1 normals in 2 dimensions"),
    ],
)
def test_a_refreshment_that_rotations_do_not_explain_is_inconclusive(kernel, reason, few_weighted_moves):
    """Each of the three kernels is right, but its refreshment is not that of the exact rows."""
    report = rc.transition(kernel, lambda q: -0.5 * q @ q, dim=2, sphere=True, n_points=4, seconds=None)
    assert report.status == INCONCLUSIVE, report
    assert reason in report.row("momentum refreshment").basis, report


def test_a_velocity_drawn_anew_need_not_be_reversed(few_weighted_moves):
    """With a = 0 the sign of the velocity after a rejection has no effect; Barker's rule is right, too."""

    def kernel(draws, q, u):
        z = draws.normal(2)
        new = q + z / np.linalg.norm(z)
        r = 0.5 * (q @ q - new @ new)
        return (new if draws.uniform() < 1 / (1 + math.exp(-r)) else q), z / np.linalg.norm(z)

    report = rc.transition(kernel, lambda q: -0.5 * q @ q, dim=2, sphere=True, n_points=4, seconds=None)
    assert report.ok, report
    assert "fully refreshed" in report.row("momentum flip").basis


def test_refreshments_on_the_way_are_only_decided_with_the_path(few_weighted_moves):
    """Without the path the report names what is missing; a path of another length is not used."""
    kernel = mutants.malt()
    options = {"seconds": None, "n_points": 3, "H": mutants.energy}
    without = mutants.report(lambda draws, q: kernel(draws, q)["q"], 1, **options)
    assert not without.failures, without
    assert without.row("detailed balance").status == INCONCLUSIVE
    assert "as path" in without.row("detailed balance").basis


@pytest.mark.parametrize(("power", "status"), [(1.0, PASS), (0.0, INCONCLUSIVE)])
def test_moves_on_a_curve_need_the_jacobian_of_the_move(power, status, few_weighted_moves):
    """(x, y) -> (x + z, y e^z) has one noise in two dimensions, and the determinant e^z, which dq'/dz alone does not show."""

    def kernel(draws, q):
        z = draws.normal()
        new = np.array([q[0] + z, q[1] * math.exp(z)])
        return new if math.log(draws.uniform()) < 0.5 * (q @ q - new @ new) + power * z else q

    report = rc.transition(kernel, lambda q: -0.5 * q @ q, dim=2, n_points=4, seconds=60.0)
    assert not report.failures, report
    assert report.row("detailed balance").status == status, report


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("model", "step_size"), [swept(refhmc.models.CellGrid, 0.7), (refhmc.models.ClosedPopulation, 0.3)]
)
def test_discontinuous_hmc_of_refhmc_does_not_fail(model, step_size):
    kernel = refhmc.DHMC(step_size=step_size, n_steps=3)
    report = rc.transition(kernel, refhmc.Hamiltonian(model()), n_points=3, seconds=10.0)
    assert not report.failures, report
    assert report.row("stateless").status == PASS
    assert report.status == INCONCLUSIVE  # its decisions are not seen, and statistics alone are no PASS


def test_kernel_whose_copy_cannot_be_called_is_not_called_stateful():
    """``copy.deepcopy`` of a ``numpy.errstate`` returns an object that cannot be entered."""
    kernel = np.errstate(all="ignore")(mutants.gibbs)
    report = mutants.report(kernel, 1, H=mutants.normal_logp, seconds=5.0)
    assert report.row("stateless").status == PASS, report


@pytest.mark.sweep
def test_a_kernel_that_rejects_everything_is_not_called_stationary():
    kernel = refhmc.DHMC(step_size=0.3, n_steps=3)  # far too long for the change point's rates
    report = rc.transition(kernel, refhmc.Hamiltonian(refhmc.models.ChangePoint()), n_points=3, seconds=4.0)
    assert report.row("stationarity").status == "INCONCLUSIVE"
    assert "is everything rejected?" in report.row("stationarity").basis


@pytest.mark.sweep
def test_nuts_of_refhmc_does_not_fail():
    kernel = refhmc.NUTS(step_size=0.5, metric=refhmc.metrics.Identity())
    report = rc.transition(kernel, refhmc.Hamiltonian(gaussian()), n_points=3)
    assert not report.failures, report
    assert report.row("stateless").status == PASS
    assert report.status == INCONCLUSIVE
    assert "see check.sampler" in report.row("stationarity").basis


# -------------------------------------------------------------------------------------------------------------- misbehaviour


def test_invalid_kernel_or_target_is_rejected():
    with pytest.raises(TypeError):
        rc.transition(3, lambda q: 0.0)
    with pytest.raises(TypeError):
        rc.transition(mutants.hmc, 3)


# ------------------------------------------------------------------------------------------------------------------ the parts


def test_bisection_finds_a_probability_to_rounding():
    """A uniform decides among three outcomes, one of them 1e-9 wide, which only its neighbours show on a grid."""

    def play(script):
        u = script.get("uniform", [0.5])[0]
        q = np.array([0.0 if u < 0.2 else 2.0 if u < 0.2 + 1e-9 else 1.0])
        from refhmc.check.subject.draws import Question

        return Transition(q, None, [Question("uniform", None, u)])

    found = outcomes(play, np.zeros(1), lambda k: 0.5, TINY, 1e-13)
    chances = sorted((float(x.transition.q[0]), x.probability) for x in found)
    assert [q for q, _ in chances] == [0.0, 1.0, 2.0]
    np.testing.assert_allclose([p for _, p in chances], [0.2, 0.8 - 1e-9, 1e-9], rtol=1e-7)


def test_position_density_of_an_energy_integrates_out_the_momentum():
    model = refhmc.models.Banana()
    H = refhmc.Hamiltonian(model, refhmc.metrics.Fisher())
    log_pi = position_log_density(H.energy)
    points = np.random.default_rng(1).standard_normal((4, 2))
    found = np.array([log_pi(q) - model.log_density(q) for q in points])
    np.testing.assert_allclose(found, found[0], atol=1e-9)
    np.testing.assert_allclose(inverse_mass(H.energy, points[0]), np.linalg.inv(H.mass(points[0])), rtol=1e-8)


@pytest.mark.sweep
def test_the_report_is_the_same_for_the_same_seed(few_weighted_moves):
    first, second = (mutants.report(mutants.hmc, 8, seconds=100.0).to_json() for _ in range(2))
    assert first == second


# --------------------------------------------------------------------------------------- several proposals, and other units


def test_delayed_rejection_with_a_kept_momentum_is_decided(few_weighted_moves):
    right = PAIRS["DR kept no ghost"].right(1)
    row = right.row("acceptance")
    assert row.status == PASS, right
    assert "over all outcomes" in row.basis
    wrong = PAIRS["DR kept ghost on one side"].wrong(1)
    assert wrong.row("acceptance").status == FAIL, wrong
    assert "rejected, from both ends" in wrong.diagnosis[0]


def test_equivariance_with_a_dense_mass_accepts_any_root_of_it(few_weighted_moves):
    """The momentum may be made with the symmetric root of the mass, or with its Cholesky factor."""

    def make(log_density, gradient, inverse_mass):
        C = np.diag(inverse_mass) if np.ndim(inverse_mass) == 1 else inverse_mass
        values, vectors = np.linalg.eigh(C)
        root = vectors @ np.diag(values**-0.5) @ vectors.T

        def kernel(draws, q):
            p = root @ draws.normal(2)
            half = p + 0.4 * gradient(q)
            new = q + 0.8 * C @ half
            end = half + 0.4 * gradient(new)
            ratio = log_density(new) - log_density(q) + 0.5 * (p @ C @ p - end @ C @ end)
            return new if math.log(draws.uniform()) < ratio else q

        return kernel

    kernel = make(mutants.logp, mutants.grad, np.ones(2))
    report = mutants.report(kernel, 1, make=make, dense=True, **mutants.DENSITY)
    assert report.row("equivariance").status == PASS, report


def test_equivariance_fails_without_calling_the_distribution_wrong(few_weighted_moves):
    wrong, right = PAIRS["mass twice"].wrong(2), PAIRS["mass twice"].right(2)
    assert [row.name for row in wrong.failures] == ["equivariance"]
    assert wrong.severity == "inefficient"
    assert right.row("equivariance").status == PASS
    assert right.row("shift invariance").status == PASS  # make with an inverse mass serves the other rows too

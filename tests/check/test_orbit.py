"""``check.orbit``: tree samplers are judged without sampling; NUTS of refhmc is invariant to rounding."""

import math
import re
import types
from math import log

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.mutants import orbits as cases
from refhmc.check.orbits.shapes import tape_transition
from refhmc.check.orbits.states import PhaseMap, at_the_limit
from refhmc.check.subject.enumeration import Answers, Enumerator, law_of
from refhmc.compile import compiled
from refhmc.core.point import POINT_ROWS, VELOCITY, P, Q
from refhmc.core.records import SETTINGS, one
from refhmc.core.types import N_POINTS, Points
from refhmc.kernels import nuts as module
from tests.helpers import hierarchical_cases
from tests.helpers.core_records import control_row, stats_row, work_of
from tests.helpers.sweeps import swept

BY_ID = {pair.id: pair for pair in cases.PAIRS}
leap = cases.leapfrog(cases.grad_gaussian)

# ------------------------------------------------------------------------------------------------------ the enumerator


def law(kernel, **options):
    enumerator = Enumerator(lambda draws, start: kernel(draws), **options)
    return law_of(enumerator.law(0)), enumerator.runs


def by_log(draws):
    return "low" if math.log(draws.uniform()) < -1.5 else "high"


def by_numpy_log(draws):
    return "low" if np.log(draws.uniform()) < -1.5 else "high"


def by_exponential(draws):
    return "low" if draws.exponential() > 1.5 else "high"


@pytest.mark.parametrize("kernel", [by_log, by_numpy_log, by_exponential])
def test_a_uniform_number_is_split_where_it_is_compared(kernel):
    found, runs = law(kernel)
    assert found["low"] == pytest.approx(math.exp(-1.5), rel=1e-14)
    assert runs <= (120 if kernel is by_log else 2)


def test_one_number_used_twice_is_one_number():
    def twice(draws):
        u = draws.uniform()
        return u < 0.3, u < 0.7, 1 - u < 0.5

    found, _ = law(twice)
    assert found == pytest.approx(
        {(True, True, False): 0.3, (False, True, False): 0.2, (False, True, True): 0.2, (False, False, True): 0.3}
    )


@pytest.mark.parametrize("thorough", [False, True])
def test_numbers_that_are_read_are_split_by_bisection(thorough):
    def kernel(draws):
        k = int(7 * draws.uniform())
        return k if float(draws.uniform()) < 1 / (k + 1) else "none"

    found, _ = law(kernel, thorough=thorough)
    for k in range(7):
        assert found[k] == pytest.approx(1 / 7 / (k + 1), abs=1e-14)


@pytest.mark.parametrize("thorough", [False, True])
def test_direction_shows_although_likely_sequences_stay(thorough):
    """On a barrier all likely ends are the start, whichever direction the step took."""

    def kernel(draws):
        way = 1 if float(draws.uniform()) < 0.5 else -1
        return (0, 0, 0, way)[draws.choice([0.4, 0.3, 0.2, 0.1])]

    found, _ = law(kernel, thorough=thorough)
    assert found == pytest.approx({0: 0.9, 1: 0.05, -1: 0.05}, abs=1e-15)


@pytest.mark.parametrize(("below", "above"), [(0.3, 0.2), (0.2, 0.3)])
def test_a_later_breakpoint_that_moves_up_or_down_shows(below, above):
    def kernel(draws):
        first, second = float(draws.uniform()), float(draws.uniform())
        return second < (below if first < 0.25 else above)

    found, _ = law(kernel)
    p = 0.25 * below + 0.75 * above
    assert found == pytest.approx({True: p, False: 1 - p}, abs=1e-15)


def test_tiny_probabilities_keep_their_digits():
    found, _ = law(lambda draws: draws.uniform() < 1e-15, floor=-50)
    assert found[True] == pytest.approx(1e-15, rel=1e-14)
    assert law_of(Enumerator(lambda a, s: a.flip(-40.0), floor=-50).law(0))[True] == pytest.approx(
        math.exp(-40), rel=1e-14
    )


def test_arrays_of_uniforms_and_permutations():
    found, _ = law(lambda draws: tuple(draws.permutation(3)))
    assert len(found) == 6
    assert sum(found.values()) == pytest.approx(1, abs=1e-15)
    assert isinstance(Answers().uniform() < np.array([0.2, 0.5]), np.ndarray)


# ----------------------------------------------------------------------------------------------- wrong and right kernels


MARKS = {"plain HMC": [], "slice": pytest.mark.sweep}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in cases.ODD])
def test_unusual_correct_kernels_pass(name):
    report = cases.ODD[name](1)
    assert report.ok, str(report)


@pytest.mark.sweep
def test_one_sided_limit_fails_if_threshold_is_given():
    report = BY_ID["M20"].wrong(1)
    assert report.row("divergence threshold").status == "FAIL"
    assert report.row("invariance").status == "PASS"


@pytest.mark.sweep
@pytest.mark.parametrize(("depth", "eps"), [(2, 0.9), (3, 0.5)])
def test_orbits_at_the_limit_of_divergence_are_found_for_any_seed(depth, eps):
    def energy(q, p):
        return 0.5 * float(p @ p) - cases.log_gaussian(q)

    reach, ones = 2**depth - 1, np.ones(2)
    phase_map = PhaseMap(leap, lambda q, p, eps: leap(q, p, -eps), energy, 0 * ones, ones, ones, 2.0**-52)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        orbits = at_the_limit(phase_map, 2 * reach + 2, reach, [eps], 1000.0, rng)
        assert orbits, seed
        for orbit in orbits:
            rises = orbit.around(reach) - orbit.H(0)
            near = rises[np.abs(rises) < 8]  # z_0 and the other likely state, 4 nats above
            assert np.any((rises[:, None] > 1000) & (rises[:, None] - near < 1000))
            assert orbit.around(reach + 2).min() >= orbit.H(0) - 8


@pytest.mark.slow
def test_one_sided_limit_is_only_noted_without_threshold():
    report = cases.ODD["a one-sided limit of 1000"](1)
    assert report.row("divergence threshold").status == "INCONCLUSIVE"
    assert report.ok


@pytest.mark.sweep
def test_failing_orbit_can_be_passed_as_point():
    report = BY_ID["M11a"].wrong(1)
    sampler = cases.MultinomialNUTS(*cases.GAUSSIAN, 0.6, 2, weight_lost_on_reject=True)
    case = report.row("invariance").case
    assert case.startswith("check.orbit(MultinomialNUTS, leap, target, depth=2, eps=0.6, points=[(numpy.array([")
    points = eval(case[case.index("points=") + 7 : case.index(")  #")], {"numpy": np})
    again = rc.orbit(sampler, leap, cases.log_gaussian, depth=2, eps=0.6, points=points, dim=2, most_runs=3000)
    assert again.row("invariance").status == "FAIL"


# ------------------------------------------------------------------------------------------------------- other shapes


def correct():
    return cases.MultinomialNUTS(*cases.GAUSSIAN, 0.9, 1)


def few(transition, **options):
    settings = {"depth": 1, "eps": 0.9, "dim": 2, "most_runs": 600, **options}
    return rc.orbit(transition, leap, cases.log_gaussian, **settings)


@pytest.mark.sweep
def test_depth_and_step_are_passed_if_they_are_parameters():
    def transition(draws, q, p, step_size, max_depth):
        return cases.MultinomialNUTS(*cases.GAUSSIAN, step_size, max_depth)(draws, q, p)

    def too_deep(draws, q, p, step_size, max_depth):
        return cases.MultinomialNUTS(*cases.GAUSSIAN, step_size, max_depth + 1)(draws, q, p)

    assert few(transition, eps=[0.4, 0.9]).ok
    report = few(too_deep, eps=0.3)
    assert report.row("depth").status == "FAIL"
    assert report.severity == "inefficient"


@pytest.mark.sweep
def test_answers_and_arguments_come_in_many_shapes():
    def state(q, p, rng):
        forward = rng.integers(2) == 1
        new = leap(q, p, 0.9 if forward else -0.9)
        change = cases.log_gaussian(new[0]) - 0.5 * new[1] @ new[1] - cases.log_gaussian(q) + 0.5 * p @ p
        return types.SimpleNamespace(position=new[0] if rng.random() < np.exp(change) else q), {"info": 1}

    def offset(draws, q, p):
        forward = draws.flip(math.log(0.5))
        new = leap(q, p, 0.9 if forward else -0.9)
        change = cases.log_gaussian(new[0]) - 0.5 * new[1] @ new[1] - cases.log_gaussian(q) + 0.5 * p @ p
        return (1 if forward else -1) if draws.flip(change) else 0

    def own_momentum(rng, q):
        return correct()(Flips(rng), q, rng.normal(size=2))

    class Flips:
        def __init__(self, rng):
            self.rng = rng

        def flip(self, log_p):
            return np.log(self.rng.random()) < log_p

    for transition in (state, offset, own_momentum):
        report = few(transition)
        assert report.row("invariance").status == "PASS", str(report)
        assert report.ok


def test_random_step_size_is_inconclusive():
    def transition(draws, q, p):
        return leap(q, p, 0.9 * (0.5 + draws.uniform()))[0]

    report = few(transition)
    assert report.row("stays on the orbit").status == "INCONCLUSIVE"
    assert not report.failures


def test_hidden_randomness_is_inconclusive():
    hidden = np.random.default_rng(0)
    report = few(lambda draws, q, p: leap(q, p, 0.9)[0] if hidden.random() < 0.5 else q)
    assert not report.failures
    assert report.row("answers").status == "INCONCLUSIVE"
    assert report.row("invariance").status == "NOT RUN"


def test_other_map_than_leap_is_not_wrong_law():
    report = few(lambda draws, q, p: leap(q, p, 0.31)[0] if draws.flip(-1.0) else q)
    assert report.row("stays on the orbit").status == "FAIL"
    assert report.severity == "call failed"


def test_irreversible_leap_is_inconclusive():
    report = rc.orbit(
        correct(), lambda q, p, eps: (q + eps * p, 0.9 * p - eps * q), cases.log_gaussian, depth=1, eps=0.9, dim=2
    )
    assert report.row("leap reversible").status == "INCONCLUSIVE"
    assert not report.failures


def test_invalid_arguments_are_rejected():
    with pytest.raises(TypeError):
        rc.orbit(correct(), leap)
    with pytest.raises(TypeError):
        rc.orbit(correct(), None, cases.log_gaussian)
    with pytest.raises(ValueError):
        rc.orbit(correct(), leap, cases.log_gaussian, depth=0)


# ------------------------------------------------------------------------------------------------------ refhmc's own NUTS


def text_of_nuts(draws, q, p, step_size, max_depth):
    """Return the array implementation of refhmc's kernel with a leapfrog in NumPy; its randomness comes from ``draws``."""
    q, p = np.array(q), np.array(p)

    def put(z, q, p):
        z[Q], z[P], z[VELOCITY] = q, p, p
        return 0.5 * p @ p - cases.log_gaussian(q)

    def step(dynamics, model, z, eps, work, own, needs_energy):
        return put(z, *leap(z[Q].copy(), z[P].copy(), eps))

    def bernoulli(randomness, probability):
        return draws.flip(math.log(probability) if probability > 0 else -math.inf)

    replaced = {"integrator_step": step, "bernoulli": bernoulli, "uniform": lambda randomness: draws.uniform()}
    text = compiled.plain(module.nuts, **replaced, begin=lambda *arguments: energy)
    points, tree = np.zeros((N_POINTS, POINT_ROWS, len(q))), np.zeros((max_depth + 1, module.INTERVAL_ROWS, len(q)))
    work = work_of(np.ones((2, len(q))), np.zeros((0, len(q), len(q))))
    workspace = (points, tree, np.zeros(len(q)), None, work)
    settings = one(SETTINGS)[0]
    settings.step_size, settings.max_depth = step_size, max_depth
    state = Points(*points).state
    energy = put(state, q, p)
    text((None, None, None, None), None, workspace, None, settings, stats_row(), control_row())
    return state[Q].copy(), state[P].copy()


@pytest.mark.sweep
def test_array_implementation_of_nuts_is_invariant():
    report = rc.orbit(text_of_nuts, leap, cases.log_gaussian, depth=2, eps=0.9, dim=2, threshold=1000.0, most_runs=1500)
    assert report.ok, str(report)
    assert report.row("invariance").number <= 1e-13
    assert report.row("divergence threshold").status == "PASS"


@pytest.mark.slow
def test_array_implementation_of_nuts_is_invariant_at_depth_three():
    report = rc.orbit(text_of_nuts, leap, cases.log_gaussian, depth=3, eps=0.6, dim=2)
    assert report.ok, str(report)


def test_compiled_nuts_is_invariant_on_a_tape_of_uniforms():
    kernel = refhmc.NUTS(step_size=0.8, max_treedepth=1)
    report = rc.orbit(kernel, target=refhmc.models.by_name()["gaussian"](), depth=1, most_runs=1000)
    assert report.ok, str(report)
    assert report.row("invariance").status == "PASS"


@pytest.mark.sweep
@pytest.mark.parametrize("map_", ["leapfrog", "implicit midpoint"])
def test_compiled_nuts_is_invariant_at_depth_two(map_):
    """To 1e-9 within 600 enumerated runs; an orbit of eleven starts takes at most 32 each."""
    if map_ == "leapfrog":
        target, step_size = refhmc.models.Gaussian(np.zeros(3), np.eye(3)), 0.35
        parts = {"metric": refhmc.metrics.Identity()}
    else:
        target, step_size = refhmc.models.by_name()["banana"](), 0.1
        parts = {"metric": refhmc.metrics.Fisher(), "integrator": refhmc.integrators.ImplicitMidpoint(tolerance=1e-12)}
    report = rc.orbit(refhmc.NUTS(step_size=step_size, max_treedepth=2, **parts), target=target, most_runs=1000)
    assert report.ok, str(report)
    invariance = report.row("invariance")
    assert invariance.status == "PASS"
    assert invariance.number <= 1e-9
    assert int(re.search(r"(\d+) runs", invariance.basis)[1]) <= 600
    assert report.row("depth").number == 3
    assert report.row("reaches both directions").status == "PASS"


@pytest.mark.parametrize("metric", [hierarchical_cases.funnel_metric(2), refhmc.metrics.Fisher()])
def test_nuts_that_follows_the_hyperparameters_is_invariant(metric):
    kernel = refhmc.NUTS(step_size=0.7, max_treedepth=2, metric=metric, integrator=refhmc.integrators.BlockLeapfrog())
    report = rc.orbit(kernel, target=refhmc.models.Funnel(2), most_runs=1000)
    assert report.ok, str(report)
    assert report.row("invariance").status == "PASS"
    assert report.row("invariance").number <= 1e-9
    assert report.row("depth").number == 3


def test_the_map_of_a_metric_that_depends_on_the_position_is_its_default():
    """The implicit midpoint rule at its default tolerance of 1e-6 is not reversible to 1e-9."""
    kernel = refhmc.NUTS(step_size=0.1, max_treedepth=2, metric=refhmc.metrics.Fisher())
    report = rc.orbit(kernel, target=refhmc.models.by_name()["banana"](), most_runs=100)
    assert report.row("leap reversible").status == "INCONCLUSIVE", str(report)
    assert not report.failures


# --------------------------------------------------------------------------------------------------- on tapes of uniforms


class OnTape:
    """``flip`` by comparison of numbers that were read beforehand."""

    def __init__(self, draws, n):
        self.tape = iter([float(draws.uniform()) for _ in range(n)])

    def flip(self, log_p):
        return next(self.tape) < math.exp(min(log_p, 0.0))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("depth", "bug", "status"),
    [
        (1, {}, "PASS"),
        (1, {"inverse": True}, "FAIL"),
        swept(2, {}, "PASS"),
        swept(2, {"weight_lost_on_reject": True}, "FAIL"),
    ],
)
def test_kernel_with_an_array_of_uniforms_is_judged(depth, bug, status):
    sampler = cases.MultinomialNUTS(*cases.GAUSSIAN, 0.6, depth, **bug)

    def transition(draws, q, p):
        return sampler(OnTape(draws, 3 * depth), q, p)

    report = rc.orbit(transition, leap, cases.log_gaussian, depth=depth, eps=0.6, dim=2, most_runs=20_000)
    assert report.row("invariance").status == status, str(report)


def own_on_a_tape(tape_of, thresholds_of):
    """Return the report of ``check.orbit`` on refhmc's NUTS at depth 2 with modified decisions."""
    target = refhmc.models.Gaussian(np.zeros(2), np.eye(2))
    kernel = refhmc.NUTS(step_size=0.9, max_treedepth=2, metric=refhmc.metrics.Identity())

    def run(q, p, tape):
        went = refhmc.transition(target, kernel, q, momentum=p, uniforms=tape_of(tape))
        return went.q, thresholds_of(went.probabilities)

    def log_density(q):
        return -0.5 * q @ q

    gaussian = cases.leapfrog(lambda q: -q)
    return rc.orbit(tape_transition(run, 8), gaussian, log_density, depth=2, eps=0.9, dim=2, most_runs=1000)


@pytest.mark.sweep
def test_wrong_decisions_of_a_kernel_on_a_tape_fail():
    """Two thirds are replaced by three quarters; one half, the threshold of a direction, stays."""

    def tape_of(u):
        return np.where((u >= 0.5) & (u < 0.75), 0.5, u)

    report = own_on_a_tape(tape_of, lambda t: np.where((t > 0.5) & (t <= 0.75), 0.75, t))
    assert report.row("invariance").status == "FAIL", str(report)
    assert report.severity == "wrong distribution"


@pytest.mark.sweep
def test_thresholds_are_verified():
    """Both sides of a false threshold lead to one end, which ordinary runs contradict, so that it is INCONCLUSIVE."""
    report = own_on_a_tape(lambda tape: 1 - tape, lambda probabilities: probabilities)
    assert report.row("invariance").status == "INCONCLUSIVE", str(report)
    assert "ordinary runs do not follow" in report.row("invariance").basis
    assert not report.failures


def _logarithm(draws, t):
    return math.log(draws.uniform()) < t


def _logarithm_by_name(draws, t):
    return log(draws.uniform()) < t


@pytest.mark.parametrize("below", [_logarithm, _logarithm_by_name])
def test_logarithm_of_a_uniform_is_compared_without_being_read(below):
    plain = math.log, log
    enumerator = Enumerator(lambda draws, start: below(draws, -1.5), subject=below)
    law = law_of(enumerator.law(0))
    assert law[True] == pytest.approx(math.exp(-1.5), rel=1e-14)
    assert enumerator.runs == 2
    assert not enumerator.read_values
    assert plain == (math.log, log)


@pytest.mark.parametrize("rounded", [int, math.floor])
def test_whole_number_of_a_uniform_is_decided_by_comparisons(rounded):
    enumerator = Enumerator(lambda draws, start: rounded(3 * draws.uniform() - 1))
    law = law_of(enumerator.law(0))
    wanted = {0: 2 / 3, 1: 1 / 3} if rounded is int else {-1: 1 / 3, 0: 1 / 3, 1: 1 / 3}
    assert law == pytest.approx(wanted, rel=1e-14)
    assert not enumerator.read_values


def test_functions_of_math_are_restored_when_the_kernel_raises():
    plain = math.exp

    def raises(draws, start):
        raise RuntimeError("the kernel's own")

    with pytest.raises(RuntimeError):
        Enumerator(raises).run(0, ())
    assert math.exp is plain


@pytest.mark.sweep
def test_iterative_tree_of_depth_three_that_compares_logarithms_is_decided():
    """The number of runs is fixed, so that the machine does not matter."""
    L = cases.IterativeNUTS
    for bug, status in (({"reservoir_off": True}, "FAIL"), ({}, "PASS")):
        tree = L(*cases.QUARTIC, 0.5, 3, **bug)
        leap, target = cases.leapfrog(cases.grad_quartic), cases.log_quartic
        report = rc.orbit(tree, leap, target, depth=3, eps=0.5, dim=2, seconds=None, most_runs=12_000)
        assert report.row("invariance").status == status, str(report)


# ------------------------------------------------------------------------------------------- kept momentum and other units


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1)], ids=["rejections reverse", "moves reverse"])
def test_kept_momentum_may_be_reversed_after_moves_or_after_rejections(signs):
    after_move, after_rejection = signs

    def transition(draws, q, p):
        new = leap_(q, p, 0.7)
        moves = draws.flip(cases.log_quartic(new[0]) - cases.log_quartic(q) + 0.5 * (p @ p - new[1] @ new[1]))
        return (new[0], after_move * new[1]) if moves else (q, after_rejection * p)

    leap_ = cases.leapfrog(cases.grad_quartic)
    report = rc.orbit(transition, leap_, cases.log_quartic, depth=1, eps=0.7, dim=2, keeps_momentum=True)
    assert report.row("kept momentum").status == "PASS", str(report)


@pytest.mark.parametrize("sign", [1, -1])
def test_kept_momentum_that_is_always_or_never_reversed_has_the_known_defect(sign):
    """The distribution after a transition is pi(w) [1 + a(w) - a(F w)], a the probability of a move from w."""

    def transition(draws, q, p):
        new = leap_(q, p, 0.9)
        moves = draws.flip(0.5 * (q @ q + p @ p - new[0] @ new[0] - new[1] @ new[1]))
        return (new[0], sign * new[1]) if moves else (q, sign * p)

    def chance(q, p):
        new_q, new_p = leap_(q, p, 0.9)
        return min(1.0, math.exp(0.5 * float(q @ q + p @ p - new_q @ new_q - new_p @ new_p)))

    leap_ = cases.leapfrog(lambda q: -q)
    q, p = np.array([1.0]), np.array([1.0])
    report = rc.orbit(
        transition, leap_, lambda q: -0.5 * q @ q, depth=1, eps=0.9, points=[(q, p)], keeps_momentum=True, seconds=None
    )
    assert report.row("invariance").status == "PASS", str(report)
    assert report.row("kept momentum").status == "FAIL", str(report)
    known = abs(chance(q, p) - chance(q, -p))
    assert known > 0.05
    assert report.row("kept momentum").number >= known - 1e-9  # that of the worst state near (q, p)


def test_momentum_of_another_state_fails():
    def transition(draws, q, p):
        new = leap_(q, p, 0.5 if draws.flip(math.log(0.5)) else -0.5)
        moves = draws.flip(0.5 * (q @ q + p @ p - new[0] @ new[0] - new[1] @ new[1]))
        return (new[0], p) if moves else (q, p)

    leap_ = cases.leapfrog(lambda q: -q)
    report = rc.orbit(transition, leap_, lambda q: -0.5 * q @ q, depth=1, eps=0.5, dim=1, keeps_momentum=True)
    row = report.row("kept momentum")
    assert row.status == "FAIL"
    assert "neither that of the end state" in row.basis


def test_equivariance_needs_the_function_that_makes_the_transition():
    report = rc.orbit(lambda draws, q, p: q, lambda q, p: (q + p, p), lambda q: -0.5 * q @ q, dim=2, depth=1)
    assert report.row("equivariance").status == "NOT RUN"
    assert report.row("kept momentum").status == "NOT RUN"

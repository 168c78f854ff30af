"""NUTS: exact invariance on enumerated orbits, a recursive implementation, the distribution of its draws, its statistics.

The orbit test. A transition started anywhere on an orbit stays on it, so that its distribution K(i -> j) on the orbit's states
is a finite matrix: all answers to the kernel's random questions are tried, with their probabilities. Invariance is then

    sum_i pi(i) K(i -> j) = pi(j),      pi(i) = exp(-H(i)),

for a state j all of whose predecessors are on the stored piece of the orbit. Weights and probabilities are computed
with 600 digits, so that jumps of a thousand in H are as sharp as small ones, and nothing random is left to chance.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import types
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

import refhmc
from refhmc.compile import compiled
from refhmc.core import sample_stats as S
from refhmc.core.point import POINT_ROWS, VELOCITY, P, Q
from refhmc.core.records import SETTINGS, one
from refhmc.core.types import N_POINTS, as_work
from refhmc.integrators import BlockLeapfrog
from refhmc.kernels import nuts as module
from refhmc.metrics import Diagonal, Fisher, Hierarchical
from refhmc.metrics.base import HIERARCHY
from refhmc.sampling.chains.chain import BlockState, make_plan
from tests.helpers.core_records import control_row, plain_dynamics, plain_model, stats_row, work_of
from tests.helpers.hierarchical_cases import chain_metric, funnel_metric, schools_metric
from tests.helpers.laws import LAWS, assert_law_is_kept, normal_gradient, normal_with_a_wall, normals
from tests.helpers.leapfrog_cases import ANY_CASE, LEAPFROG, METRICS, case, model
from tests.helpers.many_starts import from_each
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import representatives, swept

# ----------------------------------------------------------------------------------------- the text on a stored orbit

digits = mpmath.MPContext()
digits.dps = 600  # exp(-1000) has 435 zeros


@functools.cache
def exact_exp(x: float):
    return digits.exp(digits.mpf(float(x)))


class Orbit(NamedTuple):
    """Energies (m,), momenta and velocities (m, d) of consecutive states."""

    energy: np.ndarray
    p: np.ndarray
    v: np.ndarray


def settings_of_spread(limit: float):
    """``refhmc.core.sample_stats`` as the kernel reads it, with another limit of the energy spread."""
    return types.SimpleNamespace(**{**vars(S), "MAX_ENERGY_SPREAD": limit})


NO_DYNAMICS = (None, None, None, None)


class TextOnOrbit:
    """The code of ``nuts`` as ordinary Python, moving along a stored orbit; ``decide(kind, p)`` answers its questions.

    ``mutation`` replaces functions it calls, or one of its two uses of ``bernoulli``: ``leaf_flip``, ``merge_flip``.
    """

    def __init__(
        self,
        orbit: Orbit,
        max_depth: int,
        spread: float = S.MAX_ENERGY_SPREAD,
        mutation=lambda text: {},
        hierarchical: bool = False,
        step_size: float = 0.1,
    ):
        self.orbit, self.max_depth, self.start, self.step_size = orbit, max_depth, 0, step_size
        common = {
            "integrator_step": self.step,
            "begin": lambda *arguments: self.visit(self.workspace[0][0], self.start),
            "uniform": lambda randomness: 0.25 if self.decide("direction", digits.mpf(0.5)) else 0.75,
            "math": types.SimpleNamespace(exp=exact_exp, isfinite=math.isfinite, inf=math.inf),
            "LARGEST_LOG_WEIGHT": math.inf,  # the clamp is for double precision only
            "S": settings_of_spread(spread),
            **mutation(self),
        }
        leaf = common.pop("leaf_flip", lambda randomness, p: self.decide("leaf", p))
        merge = common.pop("merge_flip", lambda randomness, p: self.decide("merge", p))
        build = common.pop("build_subtree", lambda text: text)
        build = build(compiled.plain(module.build_subtree, **common, bernoulli=leaf))
        self.text = compiled.plain(module.nuts, **common, bernoulli=merge, build_subtree=build)
        d = orbit.p.shape[1]
        tree = np.zeros((max_depth + 1, module.INTERVAL_ROWS, d))
        points = np.zeros((N_POINTS, POINT_ROWS, d))
        work = work_of(np.concatenate([np.ones((2, d)), np.zeros((HIERARCHY.n_vectors, d))]), np.zeros((0, d, d)))
        if hierarchical:
            compiled.plain(as_work)(work).options.hyperparameters = 1
        self.workspace = (points, tree, np.zeros(d), None, work)

    def visit(self, z, i: int) -> float:
        z[Q, 0], z[P], z[VELOCITY] = i, self.orbit.p[i], self.orbit.v[i]
        return self.orbit.energy[i]

    def step(self, dynamics, model, z, eps, work, own, needs_energy):
        return self.visit(z, int(z[Q, 0]) + (1 if eps > 0 else -1))

    def run(self, start: int) -> tuple[int, np.record]:
        """One transition: the state it arrives at, and its statistics."""
        self.start = start
        settings, stats = one(SETTINGS)[0], stats_row()
        settings.step_size, settings.max_depth = self.step_size, self.max_depth
        stats.outcome = self.text(NO_DYNAMICS, None, self.workspace, None, settings, stats, control_row())
        return int(self.workspace[0][0, Q, 0]), stats

    def law(self, start: int) -> dict[int, object]:
        """K(start -> .): every sequence of answers, depth first."""
        law, waiting = {}, [[]]
        while waiting:
            answers = waiting.pop()
            probability, asked = digits.mpf(1), 0

            def decide(kind, p, answers=answers):
                nonlocal probability, asked
                p = min(p, 1)
                if asked == len(answers):
                    answers.append(p > 0)
                    if 0 < p < 1:
                        waiting.append([*answers[:-1], False])
                yes = answers[asked]
                asked += 1
                probability *= p if yes else 1 - p
                return yes

            self.decide = decide
            end, stats = self.run(start)
            assert stats.index_in_trajectory == end - start
            assert stats.energy == self.orbit.energy[end]
            law[end] = law.get(end, 0) + probability
        return law

    def collapsed_law(self, start: int) -> dict[int, object]:
        """The same in 2^max_depth runs: directions are enumerated; among the leaves of a subtree the last one taken is
        its candidate, among the subtrees the last one taken is the draw, which is summed in closed form. (:meth:`law`
        checks that this is the distribution of the code.)
        """
        law, waiting = {}, [[]]
        while waiting:
            answers, subtrees = waiting.pop(), []  # of each subtree: forward?, probabilities of its leaves, and its own

            def decide(kind, p, answers=answers, subtrees=subtrees):
                if kind != "direction":
                    subtrees[-1][1 if kind == "leaf" else 2].append(min(p, 1))
                    return False
                if len(subtrees) == len(answers):
                    answers.append(True)
                    waiting.append([*answers[:-1], False])
                subtrees.append((answers[len(subtrees)], [digits.mpf(1)], []))
                return subtrees[-1][0]

            self.decide = decide
            self.run(start)
            here, first, last = {start: digits.mpf(1)}, start, start
            for forward, leaves, merge in subtrees:
                if not merge:
                    continue  # thrown away
                here = {i: w * (1 - merge[0]) for i, w in here.items()}
                left = merge[0]
                for j in reversed(range(len(leaves))):
                    here[last + 1 + j if forward else first - 1 - j] = left * leaves[j]
                    left *= 1 - leaves[j]
                first, last = (first, last + len(leaves)) if forward else (first - len(leaves), last)
            for i, w in here.items():
                law[i] = law.get(i, 0) + w * digits.mpf(0.5) ** len(subtrees)
        return law


def reach(max_depth: int) -> int:
    """How far a transition can go."""
    return 2**max_depth - 1


def defects(text: TextOnOrbit, collapsed: bool = False) -> tuple[float, float]:
    """|sum_i pi(i) K(i -> j) / pi(j) - 1| for the state j in the middle, and the largest |sum_j K(i -> j) - 1|."""
    energy, n = text.orbit.energy, reach(text.max_depth)
    middle = 2 * n
    assert len(energy) == 4 * n + 1
    flow, rows = digits.mpf(0), 0.0
    for i in range(middle - n, middle + n + 1):
        if not math.isfinite(energy[i]):
            continue  # of probability zero: no chain is ever there
        law = text.collapsed_law(i) if collapsed else text.law(i)
        assert all(math.isfinite(energy[j]) for j, w in law.items() if w > 0)
        rows = max(rows, float(abs(sum(law.values()) - 1)))
        flow += law.get(middle, 0) * exact_exp(energy[middle] - energy[i])
    return float(abs(flow - 1)), rows


# --------------------------------------------------------------------------------------------------------- orbits


def made_up_orbit(kind: str, max_depth: int, seed: int) -> Orbit:
    """Momenta that turn at a random rate, with noise; velocities on a random metric; energies of every sort.

    The energies are multiples of 1/64, so that their differences are exact.
    """
    rng = np.random.default_rng([seed, max_depth])
    m, middle = 4 * reach(max_depth) + 1, 2 * reach(max_depth)
    angle = rng.uniform(0, 2 * np.pi) + np.cumsum(rng.uniform(1.0, 8.0) / reach(max_depth) * rng.uniform(0, 2, m))
    p = np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.choice([0.1, 0.4, 0.8]) * rng.normal(size=(m, 2))
    v = p @ (np.diag(rng.uniform(0.3, 3.0, 2)) + rng.uniform(-0.2, 0.2) * np.ones((2, 2)))
    energy = rng.normal(size=m)
    if kind == "walk":
        energy = np.cumsum(energy)
    elif kind == "nan":
        bad = rng.choice(m, rng.integers(1, 1 + m // 5), replace=False)
        energy[bad] = rng.choice([np.nan, np.inf, -np.inf], len(bad))
    elif kind == "hundreds":
        energy += rng.choice([0.0, 300.0, 600.0], m)
    elif kind == "thousand":
        energy = np.round(energy) + rng.choice([0.0, 500.0, 999.0, 1000.0, 1001.0], m, p=[0.5, 0.1, 0.2, 0.1, 0.1])
    energy = np.round(energy * 64) / 64
    if not math.isfinite(energy[middle]):
        energy[middle] = 0.0
    return Orbit(energy, p, v)


def leapfrog_orbit(name: str, max_depth: int, seed: int, step_size: float) -> Orbit:
    """A piece of a real trajectory of the leapfrog, its energies rounded to multiples of 2^-30."""
    rng = np.random.default_rng([seed, max_depth])
    m = model(name)
    H = refhmc.Hamiltonian(m, Diagonal(rng.uniform(0.5, 2.0, m.dim)))
    q, p = rng.normal(size=m.dim), rng.normal(size=m.dim)
    n = 2 * reach(max_depth)
    ahead = refhmc.integrate(H, LEAPFROG, q, p, step_size=step_size, n_steps=n)
    behind = refhmc.integrate(H, LEAPFROG, q, p, step_size=-step_size, n_steps=n)
    energy = np.concatenate([behind.energy[:0:-1], ahead.energy])
    momenta = np.concatenate([behind.p[:0:-1], ahead.p])
    with np.errstate(all="ignore"):
        return Orbit(np.round(energy * 2.0**30) / 2.0**30, momenta, np.array([H.grad_p(q, x) for x in momenta]))


KINDS = ("normal", "walk", "nan", "hundreds", "thousand")
# The probabilities are exact to more than 150 digits; nothing but round-off in the last of them may be left.
EXACT = 1e-100


@pytest.mark.parametrize("kind", representatives(KINDS, ["normal", "nan"]))
@pytest.mark.parametrize("max_depth", [1, 2])
def test_orbits_are_invariant_all_answers_enumerated(kind, max_depth):
    for seed in range(6):
        text = TextOnOrbit(made_up_orbit(kind, max_depth, seed), max_depth)
        defect, rows = defects(text)
        assert rows <= EXACT
        assert defect <= EXACT
        middle = 2 * reach(max_depth)
        law, collapsed = text.law(middle), text.collapsed_law(middle)
        assert all(abs(law.get(i, 0) - collapsed.get(i, 0)) <= EXACT for i in law.keys() | collapsed.keys())


@pytest.mark.sweep
def test_an_orbit_of_depth_three_all_answers_enumerated():
    text = TextOnOrbit(made_up_orbit("normal", 3, 3), 3)
    assert max(defects(text)) <= EXACT
    for start in (14, 10):
        law, collapsed = text.law(start), text.collapsed_law(start)
        assert all(abs(law.get(i, 0) - collapsed.get(i, 0)) <= EXACT for i in law.keys() | collapsed.keys())


@pytest.mark.parametrize("seeds", [2, swept(6)])
@pytest.mark.parametrize("kind", representatives(KINDS, ["nan"]))
def test_deeper_orbits_are_invariant(kind, seeds):
    for max_depth, n in ((3, 2 * seeds), (4, seeds)):
        for seed in range(n):
            assert max(defects(TextOnOrbit(made_up_orbit(kind, max_depth, seed), max_depth), collapsed=True)) <= EXACT


@pytest.mark.parametrize("step_size", [0.2, swept(0.4), swept(0.8), swept(1.6)])
@pytest.mark.parametrize("kind", representatives(KINDS, ["normal"]))
def test_orbits_on_a_hierarchical_metric_are_invariant(kind, step_size):
    """The step size decides from which size on halves may turn: 8, 4, 2 or 1 states."""
    turned = 0
    for seed in range(6):
        text = TextOnOrbit(made_up_orbit(kind, 4, seed), 4, hierarchical=True, step_size=step_size)
        text.decide = lambda kind, p: p >= 0.5
        turned += not text.run(2 * reach(4))[1].reached_max_treedepth
        assert max(defects(text, collapsed=True)) <= EXACT
    assert turned > 0


@pytest.mark.parametrize("spread", [0.5, swept(2.0), swept(4.0)])
def test_the_spread_rule_is_invariant_at_every_limit(spread):
    """Limits that cut most trajectories short, at every place of the tree."""
    for seed in range(6):
        text = TextOnOrbit(made_up_orbit("normal", 3, 100 + seed), 3, spread)
        assert max(defects(text, collapsed=True)) <= EXACT


@pytest.mark.parametrize(
    ("name", "step_size"),
    [
        ("gaussian", 0.9),
        swept("funnel", 0.8),
        swept("banana", 0.5),
        *map(swept, [("gaussian", 0.3), ("funnel", 0.3), ("banana", 0.15)]),
    ],
)
def test_leapfrog_orbits_are_invariant(name, step_size):
    for seed in range(3):
        assert max(defects(TextOnOrbit(leapfrog_orbit(name, 3, seed, step_size), 3), collapsed=True)) <= EXACT


def in_doubles(text):
    return {"math": math, "LARGEST_LOG_WEIGHT": module.LARGEST_LOG_WEIGHT}


@pytest.mark.sweep
def test_orbits_are_invariant_in_double_precision():
    """The same with the kernel's own arithmetic, clamp included; energies within a few units."""
    for seed in range(20):
        text = TextOnOrbit(made_up_orbit("normal", 2, 200 + seed), 2, mutation=in_doubles)
        defect, rows = defects(text)
        assert rows <= 1e-14
        assert defect <= 1e-12


@pytest.mark.sweep
def test_the_orbits_reach_every_ending():
    """The orbits above end in all possible ways."""
    seen = set()
    for kind in KINDS:
        for seed in range(6):
            text = TextOnOrbit(made_up_orbit(kind, 3, seed), 3)
            rng = np.random.default_rng(seed)
            text.decide = lambda kind, p, rng=rng: rng.random() < p
            for start in range(7, 22):
                if math.isfinite(text.orbit.energy[start]):
                    stats = text.run(start)[1]
                    n, depth = int(stats.n_steps), int(stats.tree_depth)
                    whole = n == 2**depth - 1
                    deepest = bool(stats.reached_max_treedepth)
                    seen.add((int(stats.outcome) if stats.diverging else "turned", whole, deepest))
    assert {("turned", True, True), ("turned", True, False), ("turned", False, False)} <= seen
    assert {(S.NAN, False, False), (S.DIVERGED, False, False)} <= seen


# ------------------------------------------------------------------------------------ wrong kernels, to see them fail


def only_whole(a, b, v_last):
    a, b = module.IntervalRows(*a), module.IntervalRows(*b)
    rho = a.rho + b.rho
    return not (rho @ a.v_first > 0 and rho @ v_last > 0)


def only_the_second(target, source):
    """For ``add_row``: the sum of the first half is forgotten."""
    target[:] = source


def stale_add_leaf(tree, leaf, p, velocity):
    """Intervals of more than two states keep the last state of their first half."""
    last = [module.IntervalRows._fields.index(name) for name in ("p_last", "v_last")]
    before = tree[:, last].copy()
    valid = add_leaf(tree, leaf, p, velocity)
    if leaf & 3 == 3:
        tree[:, last] = before
    return valid


add_leaf, is_turning = compiled.plain(module.add_leaf), compiled.plain(module.is_turning)


def defects_of(mutation, spread: float = S.MAX_ENERGY_SPREAD):
    """Defects of a changed kernel, one orbit after the other."""
    for max_depth, seeds in ((3, range(12)), (4, range(6))):
        for seed in seeds:
            text = TextOnOrbit(made_up_orbit("normal", max_depth, seed), max_depth, spread, mutation)
            yield defects(text, collapsed=True)[0]


def one_sided(text):
    """Stan's rule: an energy too far above the start's ends the trajectory."""

    def step(*arguments):
        H = TextOnOrbit.step(text, *arguments)
        return H if H - text.orbit.energy[text.start] < 2.0 else math.nan

    return {"integrator_step": step}


def keeps_the_invalid(text):
    """A subtree that turns inside ends the trajectory, but its candidate is not thrown away."""
    thrown = False

    def build(original):
        def run(*arguments):
            nonlocal thrown
            thrown = False
            subtree = original(*arguments)
            thrown = subtree.extension == module.Extension.TURNING
            return subtree._replace(extension=module.Extension.VALID) if thrown else subtree

        return run

    return {"build_subtree": build, "is_turning": lambda a, b, v_last: thrown or is_turning(a, b, v_last)}


WRONG = {
    "the edges are not exchanged when the direction changes": lambda text: {"reverse": lambda a: None},
    "a joined interval keeps the last state of its first half": lambda text: {"add_leaf": stale_add_leaf},
    "a joined interval forgets the sum of its first half": lambda text: {"add_row": only_the_second},
    "leaves are drawn with equal weights": lambda text: {
        "leaf_flip": lambda randomness, p: text.decide("leaf", digits.mpf(0.5))
    },
    "the last leaf always wins": lambda text: {"leaf_flip": lambda randomness, p: text.decide("leaf", digits.mpf(1))},
    "the new subtree always wins": lambda text: {
        "merge_flip": lambda randomness, p: text.decide("merge", digits.mpf(1))
    },
    "the candidate of a turning subtree is kept": keeps_the_invalid,
    "the new subtree wins half as often": lambda text: {
        "merge_flip": lambda randomness, p: text.decide("merge", p / 2)
    },
}


@pytest.mark.parametrize(
    "name",
    [
        swept(name) if name == "a joined interval keeps the last state of its first half" else name
        for name in sorted(WRONG)
    ],
)
def test_wrong_kernels_are_caught(name):
    assert any(defect > 1e-3 for defect in defects_of(WRONG[name]))


def test_a_one_sided_divergence_rule_is_caught():
    assert any(defect > 1e-3 for defect in defects_of(one_sided, spread=math.inf))


RIGHT = {
    "without the two extra checks (inefficient only)": lambda text: {"is_turning": only_whole},
    "uniform instead of biased progressive sampling": lambda text: {
        "merge_flip": lambda randomness, p: text.decide("merge", p / (1 + p))
    },
    "never a U-turn": lambda text: {
        "is_turning": lambda a, b, v_last: False,
        "states_are_turning": lambda a, p, velocity: False,
    },
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(RIGHT))
def test_other_right_kernels_pass(name):
    assert max(itertools.islice(defects_of(RIGHT[name]), 14)) <= EXACT


# ----------------------------------------------------------------------------------------------- a recursive twin


class Part(NamedTuple):
    """An interval of the trajectory in building order."""

    rho: np.ndarray
    p_first: np.ndarray
    v_first: np.ndarray
    p_last: np.ndarray
    v_last: np.ndarray
    n: int
    sum_v: np.ndarray


def joins(a: Part, b: Part, extra: bool = True) -> bool:
    def turns(rho, v_first, v_last):
        return not (rho @ v_first > 0 and rho @ v_last > 0)

    if turns(a.rho + b.rho, a.v_first, b.v_last):
        return False
    if not extra:
        return True
    return not turns(a.rho + b.p_first, a.v_first, b.v_first) and not turns(a.p_last + b.rho, a.v_last, b.v_last)


class RecursiveNUTS:
    """NUTS as the textbooks have it, by recursion, on states computed beforehand: state i at row ``n + i``.

    On a hierarchical metric ``followed`` are the hyperparameters, and the criterion is that of the sums over both halves.
    """

    def __init__(self, H, q, p, step_size: float, max_depth: int, uniforms, extra=True, method=LEAPFROG, followed=None):
        n = reach(max_depth)
        ahead = refhmc.integrate(H, method, q, p, step_size=step_size, n_steps=n)
        behind = refhmc.integrate(H, method, q, p, step_size=-step_size, n_steps=n)
        self.n, self.max_depth, self.extra, self.followed = n, max_depth, extra, followed or slice(None)
        self.least = None if followed is None else math.pi / 2 / step_size
        self.q = np.concatenate([behind.q[:0:-1], ahead.q])
        self.p = np.concatenate([behind.p[:0:-1], ahead.p])
        self.energy = np.concatenate([behind.energy[:0:-1], ahead.energy])
        with np.errstate(all="ignore"):
            self.v = np.array([H.grad_p(*z) for z in zip(self.q, self.p, strict=True)])
        self.uniforms, self.used = uniforms, 0
        self.errors, self.outcome = [], None

    def uniform(self) -> float:
        self.used += 1
        return self.uniforms[self.used - 1]

    def part(self, i: int) -> Part:
        p, v = self.p[self.n + i][self.followed], self.v[self.n + i][self.followed]
        return Part(p, p, v, p, v, 1, v)

    def joins(self, a: Part, b: Part) -> bool:
        if self.least is None:
            return joins(a, b, self.extra)
        rho = a.rho + b.rho
        return a.n < self.least or (rho @ a.sum_v > 0 and rho @ b.sum_v > 0)

    def leaf(self, i: int) -> Part | None:
        H, H0 = self.energy[self.n + i], self.energy[self.n]
        self.errors.append(H - H0)
        if not np.isfinite(H):
            self.outcome = "nan"
            return None
        self.new.append(H)
        if max(self.new) - min(self.new) > 1000:
            self.outcome = "diverged"
            return None
        weight = math.exp(min(H0 - H, 700))
        self.weight += weight
        if len(self.new) == 1 or self.uniform() < (weight / self.weight if self.weight > 0 else 0):
            self.candidate = i
        return self.part(i)

    def build(self, depth: int, first: int, sign: int) -> Part | None:
        """The subtree of 2^depth states first, first + sign, ...; None if it is not valid."""
        if depth == 0:
            return self.leaf(first)
        a = self.build(depth - 1, first, sign)
        b = None if a is None else self.build(depth - 1, first + sign * 2 ** (depth - 1), sign)
        if b is None:
            return None
        if not self.joins(a, b):
            self.outcome = "turned"
            return None
        return Part(a.rho + b.rho, a.p_first, a.v_first, b.p_last, b.v_last, a.n + b.n, a.sum_v + b.sum_v)

    def run(self):
        ends, whole = [0, 0], self.part(0)  # whole in order of time
        self.draw, total, self.depth, lowest, highest = 0, 1.0, 0, self.energy[self.n], self.energy[self.n]
        while self.depth < self.max_depth and self.outcome is None:
            sign = 1 if self.uniform() < 0.5 else -1
            self.new, self.weight = [], 0.0
            edge = ends[1] if sign == 1 else ends[0]
            part = self.build(self.depth, edge + sign, sign)
            if part is None:
                break
            if self.uniform() < self.weight / total:
                self.draw = self.candidate
            total += self.weight
            ends[sign == 1] += sign * 2**self.depth
            lowest, highest = min(lowest, *self.new), max(highest, *self.new)
            if sign == -1:  # back in order of time
                part = Part(part.rho, part.p_last, part.v_last, part.p_first, part.v_first, part.n, part.sum_v)
            a, b = (whole, part) if sign == 1 else (part, whole)
            if highest - lowest > 1000:
                self.outcome = "diverged"
            elif not self.joins(a, b):
                self.outcome = "turned"
            whole = Part(a.rho + b.rho, a.p_first, a.v_first, b.p_last, b.v_last, a.n + b.n, a.sum_v + b.sum_v)
            self.depth += 1
        return self

    def worst(self) -> float:
        """The error of largest magnitude; one that is not finite is the last and beats all."""
        return self.errors[-1] if not np.isfinite(self.errors[-1]) else max(self.errors, key=abs)


WHERE = {key: ANY_CASE[key] for key in ("name", "metric", "seed")}


@pytest.mark.sweep
@cases(200)
@given(**WHERE, step=st.floats(0.03, 3.0), max_depth=st.integers(1, 6))
def test_the_iterative_tree_is_the_recursive_one(name, metric, seed, step, max_depth):
    H, q, p, step_size = case(name, metric, seed, step)
    m, uniforms = H.model, np.random.default_rng([seed, 1]).random(2 ** (max_depth + 1) + 2 * max_depth)
    kernel = refhmc.NUTS(step_size=step_size, max_treedepth=max_depth, metric=H.metric)
    got = refhmc.transition(m, kernel, q, momentum=p, uniforms=uniforms)
    want = RecursiveNUTS(H, q, p, step_size, max_depth, uniforms).run()
    stats, H0 = got.stats, want.energy[want.n]

    assert np.array_equal(got.q, want.q[want.n + want.draw])
    assert got.uniforms_used == want.used
    assert stats["index_in_trajectory"] == want.draw
    assert stats["tree_depth"] == want.depth
    assert stats["n_steps"] == len(want.errors) <= reach(max_depth)
    assert stats["diverging"] == (want.outcome in ("nan", "diverged"))
    assert stats["reached_max_treedepth"] == (want.outcome is None)
    assert stats["is_accepted"] == (want.draw != 0)
    assert got.outcome == (want.outcome if stats["diverging"] else "accepted" if stats["is_accepted"] else "rejected")
    scale = 1e-13 * (1 + abs(H0))
    with np.errstate(all="ignore"):
        acceptance = np.minimum(1, np.exp(-np.array(want.errors)))
        acceptance[~np.isfinite(want.errors)] = 0
    assert stats["acceptance_rate"] == pytest.approx(acceptance.mean(), abs=1e-12 + scale)
    assert stats["energy"] == pytest.approx(want.energy[want.n + want.draw], abs=scale, rel=1e-13)
    assert stats["energy_error"] == pytest.approx(stats["energy"] - H0, abs=scale, rel=1e-13)
    assert stats["max_energy_error"] == pytest.approx(want.worst(), abs=scale, rel=1e-12, nan_ok=True)
    assert stats["lp"] == pytest.approx(m.log_density(got.q), abs=scale, rel=1e-13)
    assert stats["step_size"] == step_size
    assert stats["int_time"] == stats["n_steps"] * step_size


def test_the_twin_meets_every_ending():
    """Every ending occurs among the cases of the comparison above."""
    seen = set()
    for seed in range(60):
        H, q, p, step_size = case("funnel", "identity", seed, 0.05 * 1.1**seed)
        run = RecursiveNUTS(H, q, p, step_size, 5, np.random.default_rng(seed).random(99)).run()
        seen.add((run.outcome, len(run.errors) == reach(run.depth)))
    assert {("turned", True), ("turned", False), ("diverged", False), ("diverged", True), (None, True)} <= seen


HIERARCHIES = {
    "funnel": (refhmc.models.Funnel(3), funnel_metric(3), [0]),
    "schools": (refhmc.models.EightSchools(centered=True), schools_metric(), [9]),
    "three levels": (refhmc.models.Gaussian(np.zeros(4), np.eye(4)), chain_metric(4), [0, 1, 2]),
    "no parents": (refhmc.models.Funnel(3), Hierarchical(np.zeros((1, 4))), []),
    "funnel, Fisher": (refhmc.models.Funnel(3), Fisher(), [0]),
}


@pytest.mark.parametrize("name", HIERARCHIES)
def test_on_a_hierarchical_metric_the_criterion_uses_sums_over_the_hyperparameters(name):
    m, metric, parents = HIERARCHIES[name]
    assert np.flatnonzero(metric.hyperparameters(m)).tolist() == parents
    H, kernel = refhmc.Hamiltonian(m, metric), refhmc.NUTS(step_size=0.3, max_treedepth=6, metric=metric)
    kernel = dataclasses.replace(kernel, integrator=BlockLeapfrog())
    otherwise = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        q, uniforms = 0.5 * rng.normal(size=m.dim), rng.random(140)
        p = H.draw_momentum(q, rng)
        got = refhmc.transition(m, kernel, q, momentum=p, uniforms=uniforms)
        arguments = H, q, p, 0.3, 6, uniforms, True, BlockLeapfrog()
        want = RecursiveNUTS(*arguments, parents or None).run()
        np.testing.assert_allclose(got.q, want.q[want.n + want.draw], rtol=1e-11, atol=1e-11)
        assert got.stats["tree_depth"] == want.depth
        assert got.stats["n_steps"] == len(want.errors)
        assert got.uniforms_used == want.used
        otherwise += len(RecursiveNUTS(*arguments).run().errors) != len(want.errors)
    assert (otherwise > 0) == bool(parents)


@cases(20)
@given(**WHERE, step=st.floats(0.05, 0.5))
def test_compiled_code_and_the_plain_text_agree(name, metric, seed, step):
    H, q, p, step_size = case(name, metric, seed, step)
    m, uniforms = H.model, np.random.default_rng([seed, 1]).random(60)
    kernel = refhmc.NUTS(step_size=step_size, max_treedepth=4, metric=H.metric)
    got = refhmc.transition(m, kernel, q, momentum=p, uniforms=uniforms)
    assume(got.stats["max_energy_error"] < 1)  # where the trajectory is not unstable

    block = BlockState(make_plan(m, kernel, 0).blocks[0])
    block.start(q)
    block.state[P] = p
    block.settings.keep_momentum = 1
    dynamics, core = plain_dynamics(block.plan.dynamics), plain_model(m.core.tuple)
    stats, cursor = one(S.STATS), np.zeros(1, np.int64)
    randomness, settings = (None, uniforms, cursor), block.settings[0]
    with np.errstate(all="ignore"):
        outcome = compiled.plain(module.nuts)(
            dynamics, core, block.workspace, randomness, settings, stats[0], control_row()
        )
    assert S.OUTCOMES[outcome] == got.outcome
    assert cursor[0] == got.uniforms_used
    np.testing.assert_allclose(block.state[Q], got.q, rtol=1e-12, atol=1e-12 * np.abs(got.q).max())
    for key, value in S.named(stats.view(float), kernel.statistics).items():
        if key != "outcome":
            assert got.stats[key] == pytest.approx(value, rel=1e-11, abs=1e-11, nan_ok=True), key


# --------------------------------------------------------------------------------------------------- efficiency


@pytest.mark.sweep
@pytest.mark.parametrize("step_size", representatives([0.2, 0.4], [0.4]))
def test_independent_normals_do_not_resonate(step_size):
    """At these steps a doubling spans a whole period of the oscillators, and the U-turn is missed without the two extra
    checks. Without them the draws have the same distribution, at ten times the cost.
    """
    m, n_draws = normals(100), 5
    H = refhmc.Hamiltonian(m)
    kernel = refhmc.NUTS(step_size=step_size)
    with_checks, without = [], []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        q, p, uniforms = rng.normal(size=m.dim), rng.normal(size=m.dim), rng.random(3000)
        with_checks.append(refhmc.transition(m, kernel, q, momentum=p, uniforms=uniforms).stats["n_steps"])
        without.append(len(RecursiveNUTS(H, q, p, step_size, 10, uniforms, extra=False).run().errors))
    assert max(with_checks) <= 31
    assert np.mean(without) > 100


# ------------------------------------------------------------------------------------------------- laws of the draws


@pytest.mark.parametrize("metric", ["diagonal", "dense"])
@pytest.mark.parametrize("name", sorted(LAWS))
def test_a_transition_keeps_the_exact_law(name, metric):
    """Six pairs. False alarm of the whole: 1e-6."""
    kernel = refhmc.NUTS(step_size=LAWS[name][1], metric=METRICS[metric](model(name).dim))
    assert_law_is_kept(name, kernel, 10_000, 1e-6 / 6)


@pytest.mark.parametrize("step_size", [swept(0.4), 0.8])
def test_independent_normals_have_variance_one(step_size):
    """The sum of the squares of 20,000 draws in 100 dimensions is chi-squared, exactly; an error of 0.7 % of
    the variance would show (7 standard errors). False alarm of the two: 1e-6.
    """
    starts = np.random.default_rng(3).normal(size=(20_000, 100))
    ends, stats = from_each(normals(100), refhmc.NUTS(step_size=step_size), starts, seed=4, n_transitions=3)
    law, total = scipy.stats.chi2(ends.size), np.sum(ends**2)
    assert min(law.cdf(total), law.sf(total)) > 1e-6 / 4
    assert np.mean(stats["is_accepted"]) > 0.8  # they did move


# --------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("max_depth", [1, 3, 6])
def test_a_short_trajectory_reaches_the_maximal_depth(max_depth):
    m, kernel = model("gaussian"), refhmc.NUTS(step_size=1e-4, max_treedepth=max_depth)
    got = refhmc.transition(m, kernel, np.ones(3), momentum=np.ones(3), rng=np.random.default_rng(max_depth))
    assert got.stats["reached_max_treedepth"]
    assert got.stats["tree_depth"] == max_depth
    assert got.stats["n_steps"] == reach(max_depth)
    assert not got.stats["diverging"]


@pytest.mark.parametrize("seed", range(10))
def test_the_index_points_at_the_draw(seed):
    m, rng = model("funnel"), np.random.default_rng(seed)
    q, p = rng.normal(size=4), rng.normal(size=4)
    got = refhmc.transition(m, refhmc.NUTS(step_size=0.1), q, momentum=p, rng=rng)
    index = int(got.stats["index_in_trajectory"])
    H = refhmc.Hamiltonian(m)
    path = refhmc.integrate(H, LEAPFROG, q, p, step_size=math.copysign(0.1, index), n_steps=abs(index))
    np.testing.assert_allclose(got.q, path.q[-1], rtol=1e-12, atol=1e-12)
    assert got.stats["energy"] == pytest.approx(H.energy(path.q[-1], path.p[-1]), rel=1e-12, abs=1e-12)
    assert got.stats["lp"] == pytest.approx(m.log_density(got.q), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("drop", "outcome"), [(1500.0, "diverged"), (np.nan, "nan"), (np.inf, "nan"), (-np.inf, "nan")]
)
def test_a_wall_is_a_divergence_and_never_crossed(drop, outcome):
    m = refhmc.Model(1, normal_with_a_wall, normal_gradient, data=drop, name="wall")
    kernel, rng = refhmc.NUTS(step_size=0.3, max_treedepth=6), np.random.default_rng(5)
    met = 0
    for _ in range(100):
        q = np.minimum(rng.normal(size=1), 0.9)
        got = refhmc.transition(m, kernel, q, rng=rng)
        assert got.q[0] <= 1
        if got.stats["diverging"]:
            met += 1
            assert got.outcome == outcome
            assert not abs(got.stats["max_energy_error"]) <= 1000
        else:
            assert got.outcome in ("accepted", "rejected")
    assert met > 10


def test_a_wall_below_the_limit_is_no_divergence():
    m = refhmc.Model(1, normal_with_a_wall, normal_gradient, data=900.0, name="low wall")
    rng = np.random.default_rng(6)
    for _ in range(50):
        got = refhmc.transition(m, refhmc.NUTS(step_size=0.3), np.minimum(rng.normal(size=1), 0.9), rng=rng)
        assert got.q[0] <= 1
        assert not got.stats["diverging"]


def test_a_learned_hierarchy_turns_as_a_given_one():
    model = refhmc.models.Funnel(10)
    options = {"random_seed": 3, "chains": 1, "raw": True, "progressbar": False, "preflight": False}
    learned = refhmc.sample(model, refhmc.NUTS(metric=Hierarchical()), draws=1, tune=400, **options)
    (adapted,) = learned.adapted
    assert isinstance(adapted.metric, Hierarchical)
    given = refhmc.NUTS(metric=adapted.metric, step_size=adapted.step_size)
    start = learned.draws[0, -1]
    one = refhmc.sample(model, given, draws=30, tune=0, initvals=start, **options)
    kernel = refhmc.NUTS(metric=Hierarchical())
    two = refhmc.sample(model, kernel, draws=30, tune=0, initvals=start, warmup=learned, **options)
    assert one.sample_stats["n_steps"].tolist() == two.sample_stats["n_steps"].tolist()
    assert one.sample_stats["n_steps"].mean() > 15
    np.testing.assert_allclose(one.draws, two.draws, rtol=1e-9, atol=1e-9)

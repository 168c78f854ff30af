"""Splittings of several stages: their coefficients are found again, and a step is what the docstring defines."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
from mpmath import mp, mpf
from numpy.testing import assert_allclose

import refhmc
from refhmc.check.protocol.oracle import Oracle
from refhmc.cli.main import build_parser
from refhmc.cli.parts import make_kernel
from refhmc.compile import compiled
from refhmc.core.point import GRADIENT, LOG_DENSITY, POINT_ROWS, P, Q
from refhmc.dynamics.assemble import make_dynamics
from refhmc.integrators import BCSS, Leapfrog, McLachlan, Omelyan, Yoshida
from refhmc.integrators.splitting import kicks_and_drifts, palindrome, splitting
from refhmc.metrics import Dense, Identity, Tridiagonal
from tests.helpers.core_records import plain_model
from tests.helpers.laws import LAWS, assert_law_is_kept, normal_gradient, normal_with_a_wall
from tests.helpers.leapfrog_cases import METRICS, case, model
from tests.helpers.sweeps import representatives

METHODS = {
    "bcss-2": BCSS(stages=2),
    "bcss-3": BCSS(stages=3),
    "bcss-4": BCSS(stages=4),
    "mclachlan": McLachlan(),
    "omelyan": Omelyan(),
    "omelyan-position": Omelyan("position"),
}

# ------------------------------------------------------------------------------------------- series of error terms


def product(x, y):
    """The product of two series in words of A and B, up to five letters."""
    z: dict[str, float] = {}
    for (a, s), (b, t) in itertools.product(x.items(), y.items()):
        if len(a + b) <= 5:
            z[a + b] = z.get(a + b, 0.0) + s * t
    return z


def bracket(word):
    """[X, [Y, ... [A, B]]] for the word XY...AB."""
    x = {word[-1]: 1.0}
    for letter in word[-2::-1]:
        there, back = product({letter: 1.0}, x), product(x, {letter: -1.0})
        x = {w: there.get(w, 0.0) + back.get(w, 0.0) for w in {*there, *back}}
    return x


def logarithm(sizes, first):
    """log(e^{c_1 X} e^{c_2 Y} e^{c_3 X} ...), X = ``first``, as coefficients of words."""
    series = {"": 1.0}
    for letter, c in zip(itertools.cycle((first, "AB"["BA".index(first)])), sizes):
        series = product(series, {letter * n: c**n / math.factorial(n) for n in range(6)})
    rest, power, found = {w: c for w, c in series.items() if w}, {"": 1.0}, {}
    for n in range(1, 6):
        power = product(power, rest)
        for w, c in power.items():
            found[w] = found.get(w, 0.0) - (-1) ** n * c / n
    return found


def third_order(sizes, first="B"):
    """Coefficients of [A, [A, B]] and [B, [B, A]], those of the words AAB and BBA."""
    found = logarithm(sizes, first)
    return np.array([found["AAB"], found["BBA"]])


# B is the kick by the gradient, so that [B, [B, [A, B]]] = 0; two of the six brackets of five letters vanish, the last two.
FIVE = [bracket(word) for word in ("AAAAB", "AABAB", "BAAAB", "BBAAB", "ABBAB", "BBBAB")]
WORDS = ["".join(letters) for letters in itertools.product("AB", repeat=5)]


def fifth_order(sizes, first):
    """Coefficients of the four brackets of five letters that do not vanish."""
    found = logarithm(sizes, first)
    matrix = np.array([[each.get(word, 0.0) for each in FIVE] for word in WORDS])
    return np.linalg.lstsq(matrix, np.array([found.get(word, 0.0) for word in WORDS]), rcond=None)[0][:4]


@pytest.mark.parametrize("name", METHODS)
def test_coefficients_are_palindromes_with_sums_one(name):
    method = METHODS[name]
    c = method.coefficients
    assert c == c[::-1]
    assert len(c) == 2 * method.cost + 1
    assert_allclose([sum(c[::2]), sum(c[1::2])], 1, rtol=0, atol=1e-15)
    log = logarithm(c, "B")
    even = [v for word, v in log.items() if len(word) in (2, 4)]
    assert np.abs(even).max() < 1e-15  # as of every palindrome
    third = np.abs(third_order(c)).max()
    assert third < 1e-15 if method.order == 4 else third > 1e-4


def test_mclachlan_has_the_least_norm_of_the_third_order():
    terms = [third_order(palindrome(b)) for b in (0.1, 0.2)]
    assert_allclose(terms, [[-(1 - 6 * b) / 24, (1 - 6 * b + 6 * b * b) / 12] for b in (0.1, 0.2)], atol=1e-15)
    found = scipy.optimize.minimize_scalar(
        lambda b: np.sum(third_order(palindrome(b)) ** 2), bounds=(0.1, 0.3), method="bounded", options={"xatol": 1e-10}
    )
    assert abs(found.x - McLachlan().coefficients[0]) < 1e-8


@pytest.mark.parametrize("variant", ["velocity", "position"])
def test_omelyan_has_the_least_norm_of_the_fifth_order(variant):
    """Among the methods of order 4 with five stages: the two remaining parameters are at a minimum, to five digits."""
    c, first = (Omelyan().coefficients, "B") if variant == "velocity" else (Omelyan("position").coefficients[1:-1], "A")

    def norm(x):
        solved = scipy.optimize.fsolve(lambda y: third_order(palindrome(*x, *y), first), c[2:4], xtol=1e-13)
        return np.sum(fifth_order(palindrome(*x, *solved), first) ** 2)

    h, least = 1e-5, norm(c[:2])
    assert least**0.5 < {"velocity": 2.7e-5, "position": 5.2e-5}[variant]
    slope, hessian = np.zeros(2), np.zeros((2, 2))
    for i in range(2):
        up, down = (norm(np.array(c[:2]) + sign * h * np.eye(2)[i]) for sign in (1, -1))
        slope[i], hessian[i, i] = (up - down) / (2 * h), (up + down - 2 * least) / h**2
    corners = [norm(np.array(c[:2]) + h * np.array(signs)) for signs in ((1, 1), (-1, -1), (1, -1), (-1, 1))]
    hessian[0, 1] = hessian[1, 0] = (corners[0] + corners[1] - corners[2] - corners[3]) / (4 * h**2)
    assert np.linalg.eigvalsh(hessian)[0] > 0
    assert np.abs(np.linalg.solve(hessian, slope)).max() < 1e-5


# --------------------------------------------------------------------------------------- the oscillator, and rho


def oscillator(c, h):
    """Entries A, B, C of the matrix (A, B; C, A) of one step for q and p of a standard normal."""
    A, B, C, D = np.ones_like(h), 0 * h, 0 * h, np.ones_like(h)
    for k, size in enumerate(c):
        if k % 2:
            A, B = A + size * h * C, B + size * h * D
        else:
            C, D = C - size * h * A, D - size * h * B
    assert_allclose(A, D, atol=1e-12)
    return A, B, C


def rho(c, h):
    A, B, C = oscillator(c, h)
    return (B + C) ** 2 / (2 * (1 - A * A))


def largest_rho(c, s, hidden=0.0):
    """The maximum over 0 < h < s, except near ``hidden``, where A = -1 and numerator and denominator vanish."""
    h = np.linspace(0, s, 2001)[1:]
    return rho(c, h[np.abs(h - hidden) > 0.01]).max()


def with_double_root(a, b, guess):
    """Four stages: b_2 and h with a step of h that is -1. Otherwise steps near h are unstable."""

    def entries(x):
        return oscillator(palindrome(b, a, x[0]), np.array(x[1]))[1:]

    return scipy.optimize.fsolve(entries, guess, xtol=1e-13)


@pytest.mark.parametrize("name", METHODS)
def test_energy_error_of_an_oscillator_is_that_of_the_docstring(name):
    """The trajectories from the unit vectors are a matrix; the mean error is half its squared norm minus one."""
    method, n = METHODS[name], 7
    H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    for h in (0.3, 1.1, 1.9):
        ends = [refhmc.integrate(H, method, *z, step_size=h, n_steps=n) for z in (([1.0], [0.0]), ([0.0], [1.0]))]
        matrix = np.array([[path.q[-1, 0], path.p[-1, 0]] for path in ends]).T
        A = oscillator(method.coefficients, np.array(h))[0]
        want = np.sin(n * np.arccos(A)) ** 2 * rho(method.coefficients, np.array(h))
        assert 0.5 * np.sum(matrix**2) - 1 == pytest.approx(want, rel=1e-9, abs=1e-14)


def test_bcss_with_two_stages_minimises_the_largest_rho():
    found = scipy.optimize.minimize_scalar(
        lambda b: largest_rho(palindrome(b), 2), bounds=(0.2, 0.22), method="bounded", options={"xatol": 1e-9}
    )
    assert round(found.x, 5) == BCSS(2).coefficients[0] == 0.21178
    assert largest_rho(BCSS(2).coefficients, 2) < 1.001 * found.fun < 4.0e-4


def test_bcss_with_three_stages_minimises_the_largest_rho():
    """Among those for which a step of some h near pi is -1, 6ab - 2a - b + 1/2 = 0; others are unstable there."""

    def b_of(a):
        return (2 * a - 0.5) / (6 * a - 1)

    found = scipy.optimize.minimize_scalar(
        lambda a: largest_rho(palindrome(b_of(a), a), 3),
        bounds=(0.29, 0.302),
        method="bounded",
        options={"xatol": 1e-10},
    )
    b, a = BCSS(3).coefficients[:2]
    assert abs(b - b_of(a)) < 1e-13
    assert abs(found.x - a) < 1e-7
    assert largest_rho(BCSS(3).coefficients, 3) == pytest.approx(found.fun, rel=1e-5)


def test_bcss_with_four_stages_is_near_the_least_rho():
    """The published coefficients have the double root, and exceed the least maximum of that family by 17 %."""
    b, a, b_2 = BCSS(4).coefficients[:3]
    root = with_double_root(a, b, (0.2685, 3.04))
    assert_allclose(root, [b_2, 3.043], rtol=0, atol=5e-5)
    assert abs(root[0] - b_2) < 1e-10

    def log_largest(x):
        b_2, h = with_double_root(*x, (0.2685, 3.04))
        return math.log(largest_rho(palindrome(x[1], x[0], b_2), 4, h))

    found = scipy.optimize.minimize(log_largest, (a, b), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9})
    excess = largest_rho(BCSS(4).coefficients, 4, root[1]) / math.exp(found.fun)
    assert 1.16 < excess < 1.18
    assert np.abs(found.x - (a, b)).max() < 2e-4


@pytest.mark.parametrize(
    ("name", "limit"),
    [("bcss-2", 2.634), ("bcss-3", 4.662), ("bcss-4", 5.354), ("mclachlan", 2.553), ("omelyan", 3.142)],
)
def test_stability_limits(name, limit):
    """|A| < 1 below the limit, except at the double root of the method, and |A| > 1 above."""
    below, above = np.linspace(0.01, limit - 0.001, 2000), limit + 0.001
    assert (np.abs(oscillator(METHODS[name].coefficients, below)[0]) <= 1 + 1e-9).all()
    assert abs(oscillator(METHODS[name].coefficients, np.array(above))[0]) > 1


# -------------------------------------------------------------------------------------------------- the step


def funnel_by_mpmath(c, q, p, eps):
    """One step on the funnel with two coordinates and the identity, in 40 digits: q, p and H - H0."""
    with mp.workdps(40):
        z, momentum = [mpf(x) for x in q], [mpf(x) for x in p]

        def gradient():
            v, *x = z
            squares = mp.e**v * sum(t * t for t in x)
            return [-v / 9 + 1 - squares / 2, *(-(mp.e**v) * t for t in x)]

        def energy():
            v, *x = z
            return v * v / 18 - v + mp.e**v * sum(t * t for t in x) / 2 + sum(t * t for t in momentum) / 2

        H0 = energy()
        for k, size in enumerate(c):
            if k % 2:
                z = [a + mpf(size) * mpf(eps) * b for a, b in zip(z, momentum, strict=True)]
            else:
                momentum = [a + mpf(size) * mpf(eps) * b for a, b in zip(momentum, gradient(), strict=True)]
        return [float(x) for x in z], [float(x) for x in momentum], float(energy() - H0)


@pytest.mark.parametrize("name", METHODS)
def test_a_step_is_the_composition_in_multiprecision(name):
    q, p, method = [0.3, -0.4, 0.7], [0.5, 0.2, -0.9], METHODS[name]
    path = refhmc.integrate(refhmc.Hamiltonian(refhmc.models.Funnel(2)), method, q, p, step_size=0.6, n_steps=1)
    z, momentum, error = funnel_by_mpmath(method.coefficients, q, p, 0.6)
    assert_allclose(path.q[-1], z, rtol=0, atol=1e-14)
    assert_allclose(path.p[-1], momentum, rtol=0, atol=1e-14)
    assert abs(error) > 1e-8
    assert path.energy[1] - path.energy[0] == pytest.approx(error, abs=1e-14)
    assert path.evaluations == 1 + method.cost


def plain_end(H, method, q, p, eps):
    """(q', p') by the compiled step's own code as Python, also of complex numbers."""
    dynamics = make_dynamics(H.model, H.metric, method)
    model = plain_model(H.model.core.tuple)
    metric = (0, *map(compiled.plain, dynamics.pointers[3][1:]))
    z = np.zeros((POINT_ROWS, len(q)), np.result_type(q, p))
    z[Q], z[P] = q, p
    z[LOG_DENSITY, 0] = model[1](z[Q], model[0], z[GRADIENT])
    compiled.plain(splitting)(model, metric, z, eps, dynamics.work(), None)
    return np.concatenate([z[Q], z[P]])


@pytest.mark.parametrize("metric", representatives(sorted(METRICS), ["dense"]))
@pytest.mark.parametrize("name", METHODS)
def test_symplectic_and_reversible(name, metric):
    """The Jacobian by complex steps keeps the symplectic form, and -p returns to the start."""
    method = METHODS[name]
    H, q, p, eps = case("funnel", metric, 3, 0.5)
    d, columns = len(q), []
    for k in range(2 * d):
        start = np.concatenate([q, p]).astype(complex)
        start[k] += 1e-30j
        columns.append(plain_end(H, method, start[:d], start[d:], eps).imag / 1e-30)
    J, zero, one = np.array(columns).T, np.zeros((d, d)), np.eye(d)
    omega = np.block([[zero, one], [-one, zero]])
    size = np.linalg.norm(J, 2)
    assert np.abs(J - np.eye(2 * d)).max() > 0.1
    assert np.abs(J.T @ omega @ J - omega).max() <= 1e-14 * size**2
    there = refhmc.integrate(H, method, q, p, step_size=eps, n_steps=8)
    back = refhmc.integrate(H, method, there.q[-1], -there.p[-1], step_size=eps, n_steps=8)
    assert_allclose([back.q[-1], -back.p[-1]], [q, p], rtol=0, atol=1e-10)
    assert_allclose(plain_end(H, method, q, p, eps), [*there.q[1], *there.p[1]], rtol=0, atol=1e-13 * size)


@pytest.mark.parametrize("name", METHODS)
def test_order_by_halving_the_step(name):
    """Energy errors at the end of a fixed time, in steps where rounding does not matter."""
    method = METHODS[name]
    H, q, p, time = case("banana", "dense", 2)
    n = 10
    ends = [refhmc.integrate(H, method, q, p, step_size=2 * time / k, n_steps=k) for k in (n, 2 * n, 4 * n)]
    z = [np.concatenate([path.q[-1], path.p[-1]]) for path in ends]
    ratio = np.linalg.norm(z[0] - z[1]) / np.linalg.norm(z[1] - z[2])
    assert np.linalg.norm(z[1] - z[2]) > 1e-10
    assert math.log2(ratio) == pytest.approx(method.order, abs=0.3)


def test_one_stage_is_the_leapfrog_and_halves_are_two_of_it():
    H, q, p, eps = case("eight_schools", "dense", 1, 0.4)
    T = refhmc.array_api.hamiltonian(H.model, H.metric)
    for c, n in (((0.5, 1.0, 0.5), 1), ((0.25, 0.5, 0.5, 0.5, 0.25), 2)):
        path = refhmc.integrate(H, Leapfrog(), q, p, step_size=eps / n, n_steps=n)
        assert_allclose(kicks_and_drifts(c)(T, q, p, eps), [path.q[-1], path.p[-1]], rtol=1e-12, atol=1e-13)


def test_composition_of_a_splitting_has_order_four():
    H, q, p, time = case("banana", "diagonal", 2)
    method = Yoshida(BCSS(stages=2))
    assert (method.order, method.cost) == (4, 6)
    ends = [refhmc.integrate(H, method, q, p, step_size=time / k, n_steps=k).q[-1] for k in (5, 10, 20)]
    ratio = np.linalg.norm(ends[0] - ends[1]) / np.linalg.norm(ends[1] - ends[2])
    assert math.log2(ratio) == pytest.approx(4, abs=0.4)


def test_a_stage_without_a_density_ends_the_step():
    """In both implementations: the middle stage of McLachlan's lies outside the support, its end inside."""

    def log_density(q, data):
        return -0.5 * q[0] * q[0] if abs(q[0]) < 1 else -np.inf

    model = refhmc.Model(1, log_density, normal_gradient, name="a truncated normal")
    H, T = refhmc.Hamiltonian(model), refhmc.array_api.hamiltonian(model, Identity())
    q, p, eps = np.array([0.9]), np.array([1.2]), 1.6
    first = q + 0.5 * eps * (p - McLachlan().coefficients[0] * eps * q)
    assert first[0] > 1
    path = refhmc.integrate(H, McLachlan(), q, p, step_size=eps, n_steps=1)
    assert not np.isfinite(path.energy[1])
    assert np.isnan(McLachlan().on_arrays()(T, q, p, eps)[1]).all()
    moved = refhmc.transition(
        model, refhmc.HMC(step_size=eps, n_steps=3, integrator=McLachlan()), q, momentum=p, uniforms=[0.0]
    )
    assert moved.outcome == "nan"
    assert np.array_equal(moved.q, q)


# ----------------------------------------------------------------------------------------------- with the kernels


@pytest.mark.parametrize("name", sorted(LAWS))
@pytest.mark.parametrize("make", [refhmc.HMC, refhmc.NUTS])
def test_a_transition_keeps_the_exact_distribution(make, name):
    """Six pairs at steps where many proposals are rejected. False alarm of the whole: 1e-6."""
    options = {"n_steps": 3, "step_jitter": 0.2} if make is refhmc.HMC else {}
    method, metric = {
        "gaussian": (BCSS(stages=3), "dense"),
        "funnel": (McLachlan(), "diagonal"),
        "banana": (Omelyan(), "low-rank"),
    }[name]
    eps = LAWS[name][1] * method.cost
    kernel = make(step_size=eps, integrator=method, metric=METRICS[metric](model(name).dim), **options)
    assert_law_is_kept(name, kernel, 5_000, 1e-6 / 6)


def test_never_crosses_a_wall():
    """The density falls by e^2000 beyond 1, where no stage of a step may end up as a draw."""
    wall = refhmc.Model(1, normal_with_a_wall, normal_gradient, data=2000.0, name="a normal with a wall")
    kernel = refhmc.NUTS(step_size=0.9, integrator="bcss", metric=Identity())
    result = refhmc.sample(
        wall, kernel, draws=200, tune=0, chains=2, random_seed=1, initvals=[0.0], raw=True, progressbar=False
    )
    assert result.draws.max() <= 1
    assert result.sample_stats["diverging"].any()


@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
@pytest.mark.parametrize(
    ("kernel", "tune"),
    [
        (refhmc.NUTS(integrator="bcss"), 150),
        (refhmc.HMC(n_steps=3, integrator=Omelyan("position"), metric=Dense()), 100),
        (refhmc.NUTS(step_size=0.5, integrator=McLachlan(), metric=Tridiagonal(np.ones(3), np.full(2, 0.2))), 0),
    ],
)
def test_adapts_resumes_and_counts_gradients(kernel, tune, tmp_path):
    """A run that is extended is the longer run; gradients are counted per stage."""
    target, options = model("gaussian"), {"tune": tune, "chains": 2, "random_seed": 3, "raw": True}
    whole = refhmc.sample(target, kernel, draws=80, progressbar=False, **options)
    refhmc.sample(target, kernel, draws=30, checkpoint=tmp_path / "run", progressbar=False, **options)
    resumed = refhmc.resume(tmp_path / "run", model=target, draws=80, raw=True, progressbar=False)
    assert np.array_equal(resumed.draws, whole.draws)
    if tune:
        rate = whole.sample_stats["acceptance_rate"].mean()
        assert 0.5 < rate < 1
    else:
        steps = int(whole.sample_stats["n_steps"].sum())
        counted = whole.attributes["n_gradient_evaluations"]
        assert kernel.integrator.cost * steps <= counted <= kernel.integrator.cost * steps + 20


def test_names_and_errors():
    assert refhmc.NUTS(integrator="bcss").integrator == BCSS(stages=2)
    assert refhmc.HMC(integrator="McLachlan").integrator == McLachlan()
    assert refhmc.HMC(integrator="omelyan").integrator == Omelyan("velocity")
    for stages in (1, 5, "3"):
        with pytest.raises(ValueError, match=f"stages must be 2, 3 or 4; got {stages!r}"):
            BCSS(stages=stages)
    with pytest.raises(ValueError, match="variant must be 'velocity' or 'position'; got 'drift'"):
        Omelyan("drift")
    with pytest.raises(ValueError, match="metric must be constant for BCSS; got Fisher"):
        refhmc.NUTS(integrator=BCSS(), metric="fisher")
    with pytest.raises(TypeError, match="base must be an integrator of order 2; got Omelyan"):
        Yoshida(Omelyan())


@pytest.mark.parametrize(
    ("of_oracle", "of_command", "method"),
    [
        ("bcss(4)", "bcss:stages=4", BCSS(stages=4)),
        ("mclachlan", "mclachlan", McLachlan()),
        ({"name": "omelyan", "variant": "velocity"}, "omelyan", Omelyan()),
        ("omelyan(position)", "omelyan:variant=position", Omelyan("position")),
    ],
)
def test_names_of_the_oracle_and_the_command_line(of_oracle, of_command, method):
    q, p, funnel = [0.3, -0.2, 0.5], [1.0, 0.4, -0.3], refhmc.models.Funnel(2)
    asked = {
        "op": "step",
        "target": "funnel",
        "args": {"n": 2},
        "q": q,
        "p": p,
        "eps": 0.3,
        "n": 2,
        "method": of_oracle,
    }
    path = refhmc.integrate(refhmc.Hamiltonian(funnel), method, q, p, step_size=0.3, n_steps=2)
    found = Oracle().answer(asked)
    assert [float(x) for x in found["q"]] == list(path.q[-1])
    assert 0 < float(found["tol"]) < 1e-12
    given = build_parser().parse_args(["sample", "funnel", "--kernel", "nuts", "--integrator", of_command])
    assert make_kernel(given, funnel).integrator == method

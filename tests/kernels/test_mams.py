"""MAMS and MCLMC: turns, the log Jacobian, chains against the definition, all implementations, exact distributions, warm-up."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from hypothesis import given

import refhmc
from refhmc.compile.compiled import plain
from refhmc.core.point import GRADIENT, LOG_DENSITY, VELOCITY, P, Q
from refhmc.core.types import Work
from refhmc.dynamics.assemble import make_microcanonical_dynamics
from refhmc.integrators import BCSS, McLachlan, Omelyan, microcanonical
from refhmc.metrics import Dense, Diagonal, Identity
from refhmc.sampling.chains.chain import Chain, make_plan
from tests.helpers.kept_momenta import assert_arrays_are_compiled
from tests.helpers.laws import LAWS, normals
from tests.helpers.leapfrog_cases import ANY_CASE, METRICS, case, correlated, model
from tests.helpers.many_starts import from_each
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import representatives
from validation.benchmarks.mclmc import after_step, predicted

SPLITTINGS = {"bcss": BCSS(), "mclachlan": McLachlan(), "omelyan": Omelyan()}


def root_of(metric, d):
    """S with S S' = M^-1."""
    inverse_mass = metric.inverse_mass(d)
    return np.linalg.cholesky(inverse_mass if inverse_mass.ndim == 2 else np.diag(inverse_mass))


def step_by_definition(m, S, x, u, eps, coefficients):
    """One step in whitened coordinates with a unit velocity and the paper's step size, and the sum of dK."""
    d, K = len(x), 0.0

    def turn(h):
        nonlocal u, K
        g = S.T @ m.gradient(S @ x)
        size = np.linalg.norm(g)
        e, delta = g / size, h * size / (d - 1)
        below = np.cosh(delta) + e @ u * np.sinh(delta)
        u = (u + e * (np.sinh(delta) + e @ u * (np.cosh(delta) - 1))) / below
        K += (d - 1) * np.log(below)

    turn(coefficients[0] * eps)
    for a, b in zip(coefficients[1::2], coefficients[2::2], strict=True):
        x = x + a * eps * u
        turn(b * eps)
    return x, u, K


def on_ellipsoid(H, q, p):
    return p * np.sqrt(q.shape[-1] / np.sum(p * H.inverse_product(q, p), axis=-1, keepdims=True))


# ------------------------------------------------------------------------------------------------- turns and steps


@pytest.mark.parametrize("cosine", [-1.0, -0.999999, -0.3, 0.0, 0.8, 1.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-3, 0.5, 3.0, 11.0, -0.7, -9.0])
def test_turn_is_the_formula_in_many_digits(delta, cosine):
    """In two dimensions, against the hyperbolic functions with 60 digits; both implementations."""
    d, m = 2, normals(2)
    H = refhmc.array_api.hamiltonian(m, Identity())
    q = np.array([[-0.6, 0.8]])  # the gradient is (0.6, -0.8)
    e, across = -q[0], np.array([0.8, 0.6])
    u = cosine * e + np.sqrt(1 - cosine**2) * across
    h = delta * (d - 1) / d**0.5
    with mpmath.workdps(60):
        D, c = mpmath.mpf(h) * mpmath.sqrt(d) / (d - 1) * mpmath.mpf(np.linalg.norm(e)), mpmath.mpf(float(e @ u))
        below = mpmath.cosh(D) + c * mpmath.sinh(D)
        ends = [(a + b * (mpmath.sinh(D) + c * (mpmath.cosh(D) - 1))) / below for a, b in zip(u, e, strict=True)]
        change = (d - 1) * mpmath.log(below)
    p, found = microcanonical.turned(H, q, d**0.5 * u[None], np.array([[h]]))
    near = 1e-13 * np.exp(2 * abs(delta)) if cosine * delta < 0 else 1e-13  # rounding of c near -1 grows
    assert np.abs(p[0] / d**0.5 - np.array(ends, float)).max() < near
    assert abs(found[0] - float(change)) < near
    z, work = np.zeros((5, d)), make_microcanonical_dynamics(m, Identity(), None).work()
    z[Q], z[P], z[GRADIENT], z[VELOCITY] = q, d**0.5 * u, e, d**0.5 * u
    pointers = make_microcanonical_dynamics(m, Identity(), None).pointers[3]
    metric = (pointers[0], *map(plain, pointers[1:]))
    compiled, size = plain(microcanonical.turn)(metric, z, h, np.zeros(d), work)
    assert np.abs(z[P] - p[0]).max() < 1e-14 * np.exp(2 * abs(delta))
    assert abs(compiled - found[0]) < near
    assert size == pytest.approx(abs(delta))


@pytest.mark.parametrize("delta", [13.0, 800.0, 1e6, 1e200])
def test_huge_turns_are_finite_and_have_no_energy(delta):
    """Nothing overflows. The velocity turns into the gradient, and the step counts as a divergence."""
    H, q = refhmc.array_api.hamiltonian(normals(2), Identity()), np.array([[-0.6, 0.8]])
    p, change = microcanonical.turned(H, q, np.array([[1.0, 1.0]]), np.array([[delta / 2**0.5]]))
    np.testing.assert_allclose(p, -(2**0.5) * q, rtol=1e-5)
    assert np.isnan(change).all()
    kernel = refhmc.MAMS(step_size=10 * delta, n_steps=2, metric=Identity())
    made = refhmc.transition(normals(2), kernel, q[0], normals=[1.0, 2.0], uniforms=[0.0])
    assert (made.outcome, made.stats["diverging"]) == ("nan", True)
    assert np.array_equal(made.q, q[0])


def test_velocity_is_straight_where_there_is_no_gradient():
    m = refhmc.models.Gaussian([0.0, 0.0], np.eye(2))
    H = refhmc.array_api.hamiltonian(m, Identity())
    p, change = microcanonical.turned(H, np.zeros((1, 2)), np.ones((1, 2)), np.array([[0.3]]))
    assert np.array_equal(p, np.ones((1, 2)))
    assert change[0] == 0


@pytest.mark.parametrize("splitting", sorted(SPLITTINGS))
@pytest.mark.parametrize("metric", representatives(METRICS, ["dense"]))
@pytest.mark.parametrize("name", ["funnel", "banana"])
def test_declared_jacobian_is_that_of_the_step(name, metric, splitting):
    """Complex steps are not possible through compiled models: central differences in tangent coordinates."""
    m, G, eps = model(name), METRICS[metric](model(name).dim), 0.3 * LAWS[name][1]
    d, S, coefficients = m.dim, root_of(G, m.dim), SPLITTINGS[splitting].coefficients
    H, rng = refhmc.array_api.hamiltonian(m, G), np.random.default_rng(3)
    step = refhmc.array_api.drifts_and_turns(coefficients)
    q, u = 0.5 * rng.normal(size=d), rng.normal(size=d)
    u /= np.linalg.norm(u)

    def moved(x, u):
        q1, p1, change = step(H, (S @ x)[None], d**0.5 * np.linalg.solve(S.T, u)[None], eps)
        return np.linalg.solve(S, q1[0]), S.T @ p1[0] / d**0.5, change[0]

    x = np.linalg.solve(S, q)
    end, w, change = moved(x, u)
    np.testing.assert_allclose(end, step_by_definition(m, S, x, u, d**0.5 * eps, coefficients)[0], atol=1e-11)
    assert change == pytest.approx(step_by_definition(m, S, x, u, d**0.5 * eps, coefficients)[2], abs=1e-10)
    before, after = scipy.linalg.null_space(u[None]), scipy.linalg.null_space(w[None])
    h, columns = 1e-5, []
    for direction in np.vstack([np.eye(2 * d - 1)[:d], np.eye(2 * d - 1)[d:]]):
        ends = []
        for sign in (1, -1):
            v = u + sign * h * before @ direction[d:]
            x1, u1, _ = moved(x + sign * h * direction[:d], v / np.linalg.norm(v))
            ends.append(np.concatenate([x1, after.T @ u1]))
        columns.append((ends[0] - ends[1]) / (2 * h))
    sign, log_det = np.linalg.slogdet(np.array(columns).T)
    assert log_det == pytest.approx(-change, abs=1e-6 * (1 + abs(change)))
    assert sign != 0


def compiled_step(m, G, q, p, eps, integrator=None):
    """One step of the compiled implementation from (q, p), and H at its end with K = 0 at the start."""
    dynamics = make_microcanonical_dynamics(m, G, integrator)
    dynamics.compile(m.name)
    metric, work, z = dynamics.pointers[3], dynamics.work(), np.zeros((5, m.dim))
    z[Q], z[P] = q, p
    z[LOG_DENSITY, 0], z[GRADIENT] = m.core.value_and_gradient(np.array(q))
    functions = [plain(each) for each in metric[1:]]
    plain(microcanonical.refresh)(dynamics.model, (metric[0], *functions), z, np.zeros(m.dim), False, work)
    model_ = (dynamics.model[0], lambda q, data, out: value_into(m, q, out), *dynamics.model[2:])
    H = plain(microcanonical.step)(model_, (metric[0], *functions), z, eps, work, dynamics.own())
    return z[Q].copy(), z[P].copy(), H, Work(*work).status.kinetic


def value_into(m, q, out):
    out[:] = m.gradient(q)
    return m.log_density(q)


@pytest.mark.parametrize("splitting", sorted(SPLITTINGS))
@pytest.mark.parametrize("metric", sorted(METRICS))
def test_both_steps_agree(metric, splitting):
    m, rng = model("funnel"), np.random.default_rng(5)
    G, step = METRICS[metric](m.dim), refhmc.array_api.drifts_and_turns(SPLITTINGS[splitting].coefficients)
    H = refhmc.array_api.hamiltonian(m, G)
    q = rng.normal(size=(5, m.dim))
    p = on_ellipsoid(H, q, H.draw_momentum(q, rng.normal(size=q.shape)))
    ends, momenta, changes = step(H, q, p, -0.3)
    for k in range(len(q)):
        end, momentum, energy, kinetic = compiled_step(m, G, q[k], p[k], -0.3, SPLITTINGS[splitting])
        np.testing.assert_allclose(end, ends[k], rtol=0, atol=1e-11)
        np.testing.assert_allclose(momentum, momenta[k], rtol=0, atol=1e-11)
        assert kinetic == pytest.approx(changes[k], abs=1e-11)
        assert energy == pytest.approx(kinetic - m.log_density(end), abs=1e-11)


@cases(25)
@given(**ANY_CASE)
def test_step_back_returns_and_undoes_the_change(name, metric, seed, step, n_steps):
    H, q, p, eps = case(name, metric, seed, step)
    T = refhmc.array_api.hamiltonian(H.model, H.metric)
    move = refhmc.array_api.drifts_and_turns(BCSS().coefficients)
    q, p = q[None], on_ellipsoid(T, q[None], p[None])
    z, K = (q, p), 0.0
    for _ in range(n_steps):
        *z, change = move(T, *z, eps)
        K += change[0]
    z, K_back = (z[0], -z[1]), 0.0
    for _ in range(n_steps):
        *z, change = move(T, *z, eps)
        K_back += change[0]
    if np.isfinite(K) and np.isfinite(K_back) and np.abs(z[0]).max() < 1e6 and abs(K) < 20:
        size = 1 + max(np.abs(q).max(), np.abs(z[0]).max(), np.abs(p).max())
        assert np.abs(z[0] - q).max() < 1e-5 * size**2
        assert np.abs(z[1] + p).max() < 1e-5 * size**2
        assert abs(K + K_back) < 1e-5 * (1 + abs(K)) * size


# ------------------------------------------------------------------------------------------------- transitions


@pytest.mark.parametrize("persistence", [0.0, 0.6])
@pytest.mark.parametrize("metric", ["diagonal", "dense"])
def test_chain_follows_the_definition(metric, persistence):
    """The paper's unit velocities and step sizes, with the same random numbers in the documented order."""
    m, eps, n, d = model("gaussian"), 0.7, 3, 3
    G = METRICS[metric](3)
    S, coefficients = root_of(G, d), BCSS().coefficients
    kernel = refhmc.MAMS(step_size=eps, n_steps=n, persistence=persistence, length_jitter=0.5, metric=G)
    chain = Chain(m, make_plan(m, kernel, 0), np.random.default_rng(3))
    chain.start(np.zeros(3))
    draws, stats = np.zeros((60, 3)), np.zeros((60, chain.plan.n_stats))  # a kept velocity keeps rounding, which grows
    chain.run(draws, stats)
    rng, x, u, accepted = np.random.default_rng(3), np.zeros(3), None, 0
    for draw in draws:
        z = rng.standard_normal(3)
        noise = S.T @ (z / np.sqrt(np.diag(S @ S.T)) if metric == "diagonal" else np.linalg.solve(S.T, z))
        noise /= np.linalg.norm(noise)
        u = noise if u is None else persistence * u + np.sqrt(1 - persistence**2) * noise
        u /= np.linalg.norm(u)
        y, w, K = x, u, 0.0
        for _ in range(max(round(n * (1 + 0.5 * (2 * rng.random() - 1))), 1)):
            y, w, change = step_by_definition(m, S, y, w, d**0.5 * eps, coefficients)
            K += change
        accepts = rng.random() < np.exp(m.log_density(S @ y) - m.log_density(S @ x) - K)
        x, u, accepted = (y, w, accepted + 1) if accepts else (x, -u, accepted)
        np.testing.assert_allclose(draw, S @ x, rtol=0, atol=1e-7)
    assert 30 < accepted < 60


@pytest.mark.parametrize("persistence", [0.0, 0.7])
@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("eps", [0.3, 2.5])
def test_all_implementations_agree(metric, persistence, eps):
    """Compiled, many chains on arrays, and one transition on arrays; with steps that work and steps that do not."""
    m, G, rng = model("funnel"), METRICS[metric](4), np.random.default_rng(11)
    q, xi, uniforms = rng.normal(size=(8, 4)), rng.normal(size=(8, 4)), rng.random((8, 3))
    options = {"step_size": eps, "persistence": persistence, "step_jitter": 0.2, "length_jitter": 0.5}
    kernel = refhmc.MAMS(n_steps=3, metric=G, **options)
    H = refhmc.array_api.hamiltonian(m, G)
    p = on_ellipsoid(H, q, H.draw_momentum(q, rng.normal(size=q.shape))) if persistence else None
    step = refhmc.array_api.drifts_and_turns(BCSS().coefficients)
    with np.errstate(all="ignore"):
        one = refhmc.array_api.mams(H, step, q, p, xi, uniforms, n_steps=3, **options)
        many = refhmc.array_api.transitions(m, kernel, q, xi, uniforms, momentum=p)
    np.testing.assert_allclose(one.q, many.q, rtol=0, atol=1e-9)
    assert np.array_equal(one.is_accepted, many.stats["is_accepted"])
    if persistence:
        assert_arrays_are_compiled(m, kernel, q, p, xi, uniforms)
        np.testing.assert_allclose(one.p, many.momentum, rtol=0, atol=1e-9)
        return
    for k in range(len(q)):
        made = refhmc.transition(m, kernel, q[k], normals=xi[k], uniforms=uniforms[k])
        np.testing.assert_allclose(made.q, one.q[k], rtol=0, atol=1e-9)
        assert made.stats["acceptance_rate"] == pytest.approx(one.acceptance_rate[k], abs=1e-9)
        assert made.stats["n_steps"] == one.n_steps[k]


def test_transition_is_equivariant_under_the_metric():
    """A sampler on N(0, C) with the metric C makes S times the draws of one on N(0, I)."""
    C = correlated([1.0, 0.1, 30.0], 0.8)
    S, rng = np.linalg.cholesky(C), np.random.default_rng(1)
    wide, narrow = refhmc.models.Gaussian(np.zeros(3), C), normals(3)
    for _ in range(20):
        x, z, uniforms = rng.normal(size=3), rng.normal(size=3), rng.random(2)
        ends = [
            refhmc.transition(
                m,
                refhmc.MAMS(step_size=0.9, n_steps=3, length_jitter=0.5, metric=G),
                q,
                normals=z,
                uniforms=uniforms,
            ).q
            for m, G, q in ((wide, Dense(C), S @ x), (narrow, Identity(), x))
        ]
        np.testing.assert_allclose(ends[0], S @ ends[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("persistence", [0.0, 0.8])
@pytest.mark.parametrize("metric", representatives(METRICS, ["dense"]))
@pytest.mark.parametrize("name", sorted(LAWS))
def test_three_transitions_keep_the_exact_distribution(name, metric, persistence):
    """Kolmogorov-Smirnov, 20,000 starts. False alarm of all cases: 1e-6."""
    draw, back = LAWS[name][0]()
    z = np.random.default_rng(1).normal(size=(20_000, model(name).dim))
    kernel = refhmc.MAMS(
        step_size=1.2 * LAWS[name][1], n_steps=2, persistence=persistence, metric=METRICS[metric](model(name).dim)
    )
    ends, stats = from_each(model(name), kernel, draw(z), seed=2, n_transitions=3)
    assert 0.3 < np.mean(stats["is_accepted"]) < 0.999
    for column in back(ends).T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-6 / (2 * len(METRICS) * len(LAWS) * z.shape[1])


BUGS = ("correct", "no Jacobian", "twice the Jacobian", "no flip")


@pytest.mark.parametrize("bug", BUGS)
def test_distribution_on_normals_finds_planted_bugs(bug):
    """40,000 starts, N(0, I) in three dimensions, six transitions of one step. False alarm 1e-6."""
    rng, d = np.random.default_rng(4), 3
    H = refhmc.array_api.hamiltonian(normals(d), Identity())
    right = refhmc.array_api.drifts_and_turns(McLachlan().coefficients)
    factor = {"no Jacobian": 0.0, "twice the Jacobian": 2.0}.get(bug, 1.0)

    def step(H, q, p, eps):
        q, p, change = right(H, q, p, eps)
        return q, p, factor * change

    q = rng.normal(size=(40_000, d))
    p = on_ellipsoid(H, q, rng.normal(size=q.shape))
    for _ in range(6):
        noise, uniforms = rng.normal(size=q.shape), rng.random((len(q), 1))
        moves = refhmc.array_api.mams(H, step, q, p, noise, uniforms, step_size=1.9, n_steps=1, persistence=0.95)
        flips = np.broadcast_to((bug == "no flip") & ~moves.is_accepted[:, None], q.shape)
        q, p = moves.q, np.where(flips, -moves.p, moves.p)
    radial = np.sum(q * p, axis=1) / np.linalg.norm(q, axis=1) / d**0.5  # uniform on (-1, 1): Archimedes
    least = min(
        scipy.stats.kstest(np.sum(q * q, axis=1), "chi2", args=(d,)).pvalue,
        scipy.stats.kstest(q.ravel()[::d], "norm").pvalue,
        scipy.stats.kstest(radial, "uniform", args=(-1, 2)).pvalue,
    )
    assert (least < 1e-6 / 3) == (bug != "correct"), least


# ------------------------------------------------------------------------------------------------- warm-up and runs


def assert_recovers(m, result):
    """Means and variances within 6 standard errors from the ESS: false alarm below 1e-7."""
    x = (result.draws - m.reference.mean) / np.sqrt(m.reference.variance)
    for moment, mean in ((x, 0.0), (x * x, 1.0)):
        error = moment.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(moment))
        assert (np.abs(moment.mean(axis=(0, 1)) - mean) < 6 * error).all()


@pytest.mark.parametrize(("options", "backend"), [
    ({}, "numba"),
    ({"persistence": 0.7, "integrator": "mclachlan"}, "numba"),
    ({"metric": Dense(), "trajectory_length": 2.0, "length_jitter": 0.3}, "numba"),
    ({"persistence": 0.5}, "arrays"),
])  # fmt: skip
def test_run_with_warm_up_recovers_the_target(options, backend):
    m = model("gaussian")
    run = {"draws": 3000, "tune": 500, "random_seed": 2, "raw": True, "progressbar": False, "backend": backend}
    result = refhmc.sample(m, refhmc.MAMS(**options), **run)
    assert_recovers(m, result)
    assert 0.8 < result.sample_stats["acceptance_rate"].mean() < 0.98
    if not options:
        nominal = np.array([each.length / each.step_size for each in result.adapted])
        longest = np.maximum(np.round(1.5 * nominal), 1)
        assert (result.sample_stats["n_steps"].max(axis=1) <= longest).all()


def test_name_selects_the_kernel_with_its_defaults():
    m = model("gaussian")
    run = {"draws": 20, "tune": 100, "random_seed": 3, "raw": True, "progressbar": False}
    assert np.array_equal(refhmc.sample(m, "mams", **run).draws, refhmc.sample(m, refhmc.MAMS(), **run).draws)


@pytest.mark.parametrize("kernel", [refhmc.MAMS(), refhmc.MCLMC()])
def test_gibbs_blocks_move(kernel):
    run = {"draws": 200, "tune": 100, "random_seed": 1, "raw": True, "progressbar": False}
    result = refhmc.sample(refhmc.models.Funnel(3), refhmc.Gibbs({"v": refhmc.NUTS(), "x": kernel}), **run)
    assert (np.ptp(result.draws, axis=1) > 0).all()


@pytest.mark.parametrize("kind", [refhmc.MAMS, refhmc.MCLMC])
def test_invalid_choices_are_rejected(kind):
    one = refhmc.models.Gaussian([0.0], [[1.0]])
    with pytest.raises(ValueError, match=r"^model must have at least two coordinates .* got 1"):
        refhmc.sample(one, kind(), progressbar=False)
    for metric in ("softabs", "hierarchical"):
        with pytest.raises(ValueError, match=r"^metric of M.* must be constant"):
            kind(metric=metric)
    with pytest.raises(ValueError, match=r"^integrator of M.* must be BCSS"):
        kind(integrator="leapfrog")
    with pytest.raises(ValueError, match="persistence"):
        kind(persistence=1.0)


# ------------------------------------------------------------------------------------------------- MCLMC


@pytest.mark.parametrize("persistence", [None, 0.4])
def test_mclmc_follows_its_array_implementation(persistence):
    m, G, n, eps = model("gaussian"), Diagonal([0.8, 0.3, 2.0]), 4, 0.6
    kernel = refhmc.MCLMC(step_size=eps, n_steps=n, persistence=persistence, metric=G)
    chain = Chain(m, make_plan(m, kernel, 0), np.random.default_rng(3))
    chain.start(np.zeros(3))
    draws, stats = np.zeros((50, 3)), np.zeros((50, chain.plan.n_stats))
    chain.run(draws, stats)
    errors = refhmc.core.sample_stats.named(stats, kernel.statistics)["energy_error"]
    H, step = refhmc.array_api.hamiltonian(m, G), refhmc.array_api.drifts_and_turns(BCSS().coefficients)
    rng, q, p = np.random.default_rng(3), np.zeros((1, 3)), None
    for draw, error in zip(draws, errors, strict=True):
        z = rng.standard_normal((1, n, 3))
        q, p, total = refhmc.array_api.mclmc(H, step, q, p, z, step_size=eps, persistence=persistence)
        np.testing.assert_allclose(draw, q[0], rtol=0, atol=1e-8)
        assert error == pytest.approx(total[0], abs=1e-8)


@pytest.mark.parametrize("persistence", [None, 0.4])
@pytest.mark.parametrize("metric", sorted(METRICS))
@pytest.mark.parametrize("eps", [0.3, 2.5])
def test_mclmc_of_many_chains_agrees(metric, persistence, eps):
    """Compiled, many chains on arrays, and the steps on arrays; with steps that work and steps without an energy."""
    m, G, rng, n = model("funnel"), METRICS[metric](4), np.random.default_rng(11), 3
    H, q, xi = refhmc.array_api.hamiltonian(m, G), rng.normal(size=(8, 4)), rng.normal(size=(8, n, 4))
    p = on_ellipsoid(H, q, H.draw_momentum(q, rng.normal(size=q.shape)))
    kernel = refhmc.MCLMC(step_size=eps, n_steps=n, persistence=persistence, metric=G)
    step, tape = refhmc.array_api.drifts_and_turns(BCSS().coefficients), xi[:, 1:].reshape(8, -1)
    with np.errstate(all="ignore"):
        ends, momenta, errors = refhmc.array_api.mclmc(H, step, q, p, xi, step_size=eps, persistence=persistence)
        many = refhmc.array_api.transitions(m, kernel, q, xi[:, 0], tape, momentum=p)
    np.testing.assert_allclose(many.q, ends, rtol=0, atol=1e-9)
    np.testing.assert_allclose(many.momentum, momenta, rtol=0, atol=1e-9)
    for k in range(8):
        made = refhmc.transition(m, kernel, q[k], momentum=p[k], normals=xi[k, 0], uniforms=tape[k])
        whole = not made.stats["diverging"]
        assert made.uniforms_used == many.uniforms_used[k]
        assert np.isfinite(momenta[k]).all() == whole
        np.testing.assert_allclose(made.q, ends[k], rtol=0, atol=1e-9)
        assert made.stats["energy_error"] == pytest.approx(errors[k], abs=1e-9)
        if whole:
            np.testing.assert_allclose(made.kept_momentum, momenta[k], rtol=0, atol=1e-9)
        for name, value in many.stats.items():
            assert made.stats[name] == pytest.approx(value[k], abs=1e-9), name
    assert np.any(many.stats["diverging"]) == (eps == 2.5)


def test_mclmc_on_arrays_adapts_to_the_same_step_size():
    """Both warm-ups target the same statistic: within 15 %, where four chains alone differ by a tenth."""
    run = {"draws": 500, "tune": 1000, "random_seed": 2, "raw": True, "progressbar": False}
    sizes = [
        refhmc.sample(normals(50), refhmc.MCLMC(metric=Identity(), n_steps=2), backend=backend, **run).sample_stats[
            "step_size"
        ]
        for backend in ("numba", "arrays")
    ]
    assert abs(np.log(sizes[0].mean() / sizes[1].mean())) < 0.15


def test_mclmc_reports_that_it_is_approximate():
    m = model("gaussian")
    run = {"draws": 500, "tune": 300, "random_seed": 2, "raw": True, "progressbar": False}
    result = refhmc.sample(m, refhmc.MCLMC(), **run)
    assert not refhmc.MCLMC.exact
    assert not result.attributes["exact"]
    assert any("MCLMC accepts every step" in text for text in result.warnings)


@pytest.mark.parametrize("splitting", ["bcss", "mclachlan"])
@pytest.mark.parametrize("eps", [1.0, 2.0])
def test_mclmc_has_the_predicted_bias_in_high_dimension(eps, splitting):
    """d = 400: mean of q^2 within 6 standard errors and 1/d of the prediction. False alarm below 1e-7."""
    d, coefficients = 400, SPLITTINGS[splitting].coefficients
    kernel = refhmc.MCLMC(step_size=eps, metric=Identity(), integrator=splitting)
    run = {"draws": 2000, "tune": 0, "random_seed": 2, "raw": True, "progressbar": False}
    starts = np.random.default_rng(1).normal(size=(4, d))
    result = refhmc.sample(normals(d), kernel, initvals=starts, **run)
    square = np.mean(result.draws[:, 200:] ** 2, axis=-1)
    error = square.std() / np.sqrt(refhmc.diagnostics.ess(square[..., None]).item())
    bias = predicted(coefficients, eps)
    assert after_step(coefficients, eps, 1 + bias)[0] == pytest.approx(1 + bias, abs=1e-10)
    assert abs(square.mean() - 1 - bias) < 6 * error + 1 / d
    if eps == 2:
        assert bias < -0.02


def test_mclmc_adapts_the_step_to_the_energy_variance():
    """Four chains whose step sizes differ by a tenth, and the variance of the energy error by its sixth power."""
    d, v = 100, 2e-3
    run = {"draws": 1000, "tune": 1000, "random_seed": 2, "raw": True, "progressbar": False}
    kernel = refhmc.MCLMC(energy_variance=v, metric=Identity(), integrator="mclachlan")
    error = refhmc.sample(normals(d), kernel, **run).sample_stats["energy_error"]
    assert 0.45 < np.mean(np.exp(-(error**2) / (v * d))) < 0.7
    assert 0.5 * v < np.mean(error**2) / d < 2 * v

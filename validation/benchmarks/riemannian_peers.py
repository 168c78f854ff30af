"""The peers of ``validation.benchmarks.riemannian``, the problems in plain NumPy, and the process that measures a library.

The problems, with their derivatives and metrics in NumPy, serve mici and the steps written out here, :func:`midpoint` and
:func:`generalised_leapfrog`, which every library's step must agree with before anything is timed.

BlackJAX 1.7 ``blackjax.rmhmc``: by default ``integrators.implicit_midpoint`` with ``solve_fixed_point_iteration``: the map
is applied once, then again until the largest component of the change of (q, p) is <= ``convergence_tol`` = 1e-6, or
>= ``divergence_tol`` = 1e10, or not finite, 100 more times at most (``max_iters``); what has not converged is used as it
is, without notice. The unknown is the midpoint, from which an explicit half step follows. These defaults are measured.
"BlackJAX" has the metric as a function, its derivatives automatic but for the SoftAbs map's, which are NaN between equal
eigenvalues; "BlackJAX by hand" a ``Metric`` object whose energy has all of its derivatives written by hand.

mici 0.4: ``ImplicitMidpointIntegrator`` is an implicit half step and the explicit half step adjoint to it;
``ImplicitLeapfrogIntegrator`` the generalised leapfrog, a step of which advances by twice its ``step_size``. Both use
``solve_fixed_point_direct`` (by default tolerance 1e-9, here 1e-6; largest component of the change; 100 iterations at
most, then an error that ends the trajectory) and check that each explicit half step can be reversed, to 20 tolerances.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from validation.benchmarks import problems

TOLERANCE, MAX_ITERATIONS = 1e-6, 100
ALPHA = 1e6  # of SoftAbs
N_X = 10  # of the funnel
A, YBAR, B = 25.0, 1.0, 0.25  # the banana: n / sigma_y^2, the mean of the data, 1 / sigma_theta^2
STUCK = 100  # equal draws in a row: an error and no figure
CALIBRATION_SECONDS = 0.2
RESULT_MARK = "RESULT "


class Problem(NamedTuple):
    title: str
    dim: int
    metric: str
    step_size: float
    n_steps: int


PROBLEMS = {
    "banana": Problem("banana", 2, "Fisher", 0.1, 10),
    "funnel": Problem(f"funnel 1 + {N_X}", 1 + N_X, f"SoftAbs({ALPHA:g})", 0.2, 20),
    "logistic": Problem(problems.TITLES["logistic"], problems.DIMENSIONS["logistic"], "Fisher", 0.1, 10),
}

# ---------------------------------------------------------------------------------------------------- in plain NumPy


class Target(NamedTuple):
    """Functions of the position. ``metric`` gives (G, trace), trace(V)_k = sum_ij V_ij dG_ij/dq_k for symmetric V."""

    log_density: Callable
    gradient: Callable
    metric: Callable


def banana() -> Target:
    def log_density(q):
        r = YBAR - q[0] - q[1] * q[1]
        return -0.5 * (A * r * r + B * (q[0] * q[0] + q[1] * q[1]))

    def gradient(q):
        r = YBAR - q[0] - q[1] * q[1]
        return np.array([A * r - B * q[0], (2 * A * r - B) * q[1]])

    def metric(q):
        t = q[1]
        return (
            np.array([[A + B, 2 * A * t], [2 * A * t, 4 * A * t * t + B]]),
            lambda V: np.array([0.0, 4 * A * V[0, 1] + 8 * A * t * V[1, 1]]),
        )

    return Target(log_density, gradient, metric)


def softabs(x):
    """x coth(alpha x)"""
    t = np.maximum(ALPHA * np.abs(x), 1e-8)
    return t / (ALPHA * np.tanh(t))


def softabs_slope(x):
    """coth(alpha x) - alpha x / sinh(alpha x)^2"""
    t = ALPHA * np.abs(x)
    safe = np.maximum(t, 1e-4)
    e = np.exp(-2 * safe)
    slope = (1 + e) / (1 - e) - 4 * safe * e / (1 - e) ** 2
    return np.where(t < 1e-4, 2 / 3 * ALPHA * x, np.sign(x) * slope)


def divided_differences(x, f):
    """(f_i - f_j) / (x_i - x_j), the derivative between (nearly) equal x's; f = softabs(x)"""
    difference = x[:, None] - x
    size = np.abs(x)
    near = np.abs(difference) <= 1e-8 * (size[:, None] + size)
    difference[near] = 1.0
    return np.where(near, softabs_slope(x)[:, None], (f[:, None] - f) / difference)


def funnel() -> Target:
    def log_density(q):
        v, x = q[0], q[1:]
        return -v * v / 18 + 0.5 * N_X * v - 0.5 * math.exp(v) * (x @ x)

    def gradient(q):
        v, x = q[0], q[1:]
        e = math.exp(v)
        out = -e * q
        out[0] = -v / 9 + 0.5 * N_X - 0.5 * e * (x @ x)
        return out

    def metric(q):
        x, e = q[1:], math.exp(q[0])
        H = np.zeros((1 + N_X, 1 + N_X))
        H.flat[:: N_X + 2] = e
        H[0, 0] = 1 / 9 + 0.5 * e * (x @ x)
        H[0, 1:] = H[1:, 0] = e * x
        values, Q = np.linalg.eigh(H)
        f = softabs(values)

        def hessian_contraction(V):
            J = divided_differences(values, f)
            M = Q @ (J * (Q.T @ V @ Q)) @ Q.T
            out = np.empty_like(q)
            out[0] = e * (0.5 * (x @ x) * M[0, 0] + 2 * (x @ M[0, 1:]) + np.trace(M) - M[0, 0])
            out[1:] = e * (M[0, 0] * x + 2 * M[0, 1:])
            return out

        return (Q * f) @ Q.T, hessian_contraction

    return Target(log_density, gradient, metric)


def logistic() -> Target:
    X, y = problems.breast_cancer()
    Z = np.ascontiguousarray((2 * y - 1)[:, None] * X)
    identity = np.eye(Z.shape[1])

    def log_density(q):
        return -np.logaddexp(0.0, -(Z @ q)).sum() - 0.5 * (q @ q)

    def gradient(q):
        return (1 / (1 + np.exp(Z @ q))) @ Z - q

    def metric(q):
        s = 1 / (1 + np.exp(-(Z @ q)))
        v = s * (1 - s)
        slope = v * (1 - 2 * s)
        return (Z.T * v) @ Z + identity, lambda V: (slope * np.einsum("ij,ij->i", Z @ V, Z)) @ Z

    return Target(log_density, gradient, metric)


TARGETS = {"banana": banana, "funnel": funnel, "logistic": logistic}


def hamiltonian(target: Target, q, p) -> float:
    G = target.metric(q)[0]
    return -target.log_density(q) + 0.5 * np.linalg.slogdet(G)[1] + 0.5 * p @ np.linalg.solve(G, p)


def hamiltonian_gradient(target: Target, q, p):
    """(dH/dq, dH/dp)"""
    G, hessian_contraction = target.metric(q)
    inverse = np.linalg.inv(G)
    v = inverse @ p
    return 0.5 * hessian_contraction(inverse - np.outer(v, v)) - target.gradient(q), v


def fixed_point(f, x):
    """The solution of x = f(x) to rounding, by iteration."""
    for _ in range(2000):
        new = f(x)
        if np.abs(new - x).max() <= 1e-13 * (1 + np.abs(x).max()):
            return new
        x = new
    raise ArithmeticError("the fixed-point iteration does not converge")


def midpoint(target: Target, q, p, eps: float):
    """One step of the implicit midpoint."""
    d, start = len(q), np.concatenate([q, p])

    def velocity(z):
        dq, dp = hamiltonian_gradient(target, z[:d], z[d:])
        return np.concatenate([dp, -dq])

    middle = fixed_point(lambda z: start + 0.5 * eps * velocity(z), start)
    return np.split(2 * middle - start, 2)


def generalised_leapfrog(target: Target, q, p, eps: float):
    """One step of the generalised leapfrog."""
    p = fixed_point(lambda x: p - 0.5 * eps * hamiltonian_gradient(target, q, x)[0], p)
    v = hamiltonian_gradient(target, q, p)[1]
    q = fixed_point(lambda x: q + 0.5 * eps * (v + hamiltonian_gradient(target, x, p)[1]), q)
    return q, p - 0.5 * eps * hamiltonian_gradient(target, q, p)[0]


REFERENCES = {"midpoint": midpoint, "leapfrog": generalised_leapfrog}


def check_gradient(target: Target, q, p) -> None:
    """The gradient of the Hamiltonian against central differences of its value."""
    z, d = np.concatenate([q, p]), len(q)
    found = np.concatenate(hamiltonian_gradient(target, q, p))
    for i in range(2 * d):
        h = 1e-5 * np.eye(2 * d)[i]
        plus, minus = (hamiltonian(target, (z + s * h)[:d], (z + s * h)[d:]) for s in (1, -1))
        np.testing.assert_allclose(found[i], (plus - minus) / 2e-5, rtol=1e-5, atol=1e-4)


def starts(problem: str, n: int, seed: int = 20) -> np.ndarray:
    """(n, d) positions to start from: exact draws; the logistic regression's from the normal law at its mode."""
    rng, d = np.random.default_rng(seed), PROBLEMS[problem].dim
    if problem == "funnel":
        v = 3 * rng.standard_normal((n, 1))
        return np.hstack([v, np.exp(-v / 2) * rng.standard_normal((n, N_X))])
    if problem == "banana":
        V = 1 / A + 1 / B
        c = YBAR - B * V / 2
        t = np.linspace(-4, 4, 80001)  # theta_2 has the density const exp(-(t^2 - c)^2 / (2 V))
        weights = np.exp(-((t * t - c) ** 2) / (2 * V))
        t = rng.choice(t, n, p=weights / weights.sum())
        return np.column_stack([A / (A + B) * (YBAR - t * t) + rng.standard_normal(n) / math.sqrt(A + B), t])
    target, q = TARGETS[problem](), np.zeros(d)
    for _ in range(100):
        q = q + 0.5 * np.linalg.solve(target.metric(q)[0], target.gradient(q))
    factor = np.linalg.cholesky(np.linalg.inv(target.metric(q)[0]))
    return q + rng.standard_normal((n, d)) @ factor.T


def draw_momentum(target: Target, q, rng) -> np.ndarray:
    return np.linalg.cholesky(target.metric(q)[0]) @ rng.standard_normal(len(q))


# --------------------------------------------------------------------------------------------------------- the peers


class Peer(NamedTuple):
    """One library on one problem, compiled.

    ``step(q, p)`` makes one step. ``prepare(draws)`` gives ``run(q, seed)``, whose result ``read`` turns into (positions,
    acceptance rates, steps); only ``run`` is timed. ``count(q, draws)``: :class:`Count`.
    """

    integrator: str
    step: Callable
    prepare: Callable
    read: Callable
    count: Callable


class Count(NamedTuple):
    """Evaluations of the fixed-point map, solves, and solves that did not converge, over a number of steps."""

    evaluations: int
    solves: int
    failures: int
    steps: int


def softabs_jax(jax, jnp):
    """SoftAbs in jax.numpy: (f, f') of eigenvalues, the divided differences, and the map H -> G with its derivative."""

    def function(x):
        t = ALPHA * jnp.abs(x)
        near = t < 1e-4
        safe = jnp.where(near, 1.0, t)
        e = jnp.exp(-2 * safe)
        coth = (1 + e) / (1 - e)
        slope = jnp.sign(x) * (coth - 4 * safe * e / (1 - e) ** 2)
        return jnp.where(near, (1 + t * t / 3) / ALPHA, safe * coth / ALPHA), jnp.where(near, 2 / 3 * ALPHA * x, slope)

    def divided(x, f, slope):
        # between nearly equal eigenvalues the slope at either is as good as that between them
        difference = x[:, None] - x
        near = jnp.abs(difference) <= 1e-8 * (jnp.abs(x[:, None]) + jnp.abs(x))
        return jnp.where(near, slope[:, None], (f[:, None] - f) / jnp.where(near, 1.0, difference))

    def eigh(H):
        Q, x = jax.lax.linalg.eigh(H, symmetrize_input=False)
        return x, Q

    @jax.custom_jvp
    def softabs_map(H):
        x, Q = eigh(H)
        return (Q * function(x)[0]) @ Q.T

    @softabs_map.defjvp
    def softabs_rule(primals, tangents):
        x, Q = eigh(primals[0])
        f, slope = function(x)
        J = divided(x, f, slope)
        return (Q * f) @ Q.T, Q @ (J * (Q.T @ tangents[0] @ Q)) @ Q.T

    return function, divided, eigh, softabs_map


def blackjax_functions(problem: str):
    """(log density, metric) in jax.numpy."""
    import jax
    import jax.numpy as jnp

    if problem == "banana":

        def log_density(q):
            r = YBAR - q[0] - q[1] * q[1]
            return -0.5 * (A * r * r + B * (q[0] * q[0] + q[1] * q[1]))

        def metric(q):
            t = q[1]
            return jnp.array([[A + B, 2 * A * t], [2 * A * t, 4 * A * t * t + B]])

        return log_density, metric
    if problem == "funnel":
        *_, softabs_map = softabs_jax(jax, jnp)

        def log_density(q):
            v, x = q[0], q[1:]
            return -v * v / 18 + 0.5 * N_X * v - 0.5 * jnp.exp(v) * (x @ x)

        return log_density, lambda q: softabs_map(funnel_curvature(jnp, q))
    log_density = problems.log_density_jax("logistic")
    Z, columns, identity = signed_rows(jnp)

    def metric(q):
        s = jax.nn.sigmoid(q @ columns)
        return (columns * (s * (1 - s))) @ columns.T + identity

    return log_density, metric


def signed_rows(jnp):
    """The rows (2 y_i - 1) x_i, the same transposed in memory (XLA's products are faster with it), and the identity."""
    X, y = problems.breast_cancer()
    Z = (2 * y - 1)[:, None] * X
    return jnp.asarray(Z), jnp.asarray(np.ascontiguousarray(Z.T)), jnp.eye(Z.shape[1])


def funnel_curvature(jnp, q):
    """Minus the Hessian of the funnel."""
    x, e = q[1:], jnp.exp(q[0])
    corner = jnp.reshape(1 / 9 + 0.5 * e * (x @ x), (1, 1))
    return jnp.block([[corner, (e * x)[None, :]], [(e * x)[:, None], e * jnp.eye(N_X)]])


def metric_by_hand(problem: str):
    """A ``blackjax`` Metric whose kinetic energy has its derivatives written by hand, as refhmc's models have.

    Beyond what BlackJAX's documentation asks of its users: one factorisation serves energy, velocity and trace.
    """
    import jax
    import jax.numpy as jnp
    from blackjax.mcmc.metrics import Metric

    if problem == "banana":

        def energy_and_gradient(q, p):
            t = q[1]
            g11, g12, g22 = A + B, 2 * A * t, 4 * A * t * t + B
            w = 1 / (B * (A + B + 4 * A * t * t))  # 1 / det G
            v0, v1 = w * (g22 * p[0] - g12 * p[1]), w * (g11 * p[1] - g12 * p[0])
            slope = 0.5 * (4 * A * (-w * g12 - v0 * v1) + 8 * A * t * (w * g11 - v1 * v1))
            energy = 0.5 * (p[0] * v0 + p[1] * v1) - 0.5 * jnp.log(w)
            return energy, jnp.stack([jnp.zeros_like(slope), slope]), jnp.stack([v0, v1])

        metric = blackjax_functions(problem)[1]

        def root_times(q, z):
            return jnp.linalg.cholesky(metric(q)) @ z

    elif problem == "funnel":
        function, divided, eigh, _ = softabs_jax(jax, jnp)

        def energy_and_gradient(q, p):
            values, Q = eigh(funnel_curvature(jnp, q))
            f, slope = function(values)
            u = p @ Q
            s = u / f
            M = Q @ (divided(values, f, slope) * (jnp.diag(1 / f) - jnp.outer(s, s))) @ Q.T
            x, e = q[1:], jnp.exp(q[0])
            to_v = e * (0.5 * (x @ x) * M[0, 0] + 2 * (x @ M[0, 1:]) + jnp.trace(M) - M[0, 0])
            to_x = e * (M[0, 0] * x + 2 * M[0, 1:])
            gradient = 0.5 * jnp.concatenate([to_v[None], to_x])
            return 0.5 * (u @ s) + 0.5 * jnp.log(f).sum(), gradient, Q @ s

        def root_times(q, z):
            values, Q = eigh(funnel_curvature(jnp, q))
            return Q @ (jnp.sqrt(function(values)[0]) * z)

    else:
        Z, columns, identity = signed_rows(jnp)

        def root(q):
            s = jax.nn.sigmoid(q @ columns)
            v = s * (1 - s)
            G = (columns * v) @ Z + identity
            return v * (1 - 2 * s), jax.lax.linalg.cholesky(G, symmetrize_input=False)

        def energy_and_gradient(q, p):
            slope, L = root(q)
            R = jax.lax.linalg.triangular_solve(L, identity, left_side=True, lower=True)  # G^-1 = R' R
            u = R @ p
            v = u @ R
            M = R.T @ R - jnp.outer(v, v)
            gradient = 0.5 * ((slope * jnp.sum((M @ columns) * columns, axis=0)) @ Z)
            return 0.5 * (u @ u) + jnp.log(jnp.diag(L)).sum(), gradient, v

        def root_times(q, z):
            return root(q)[1] @ z

    @jax.custom_jvp
    def energy(q, p):
        return energy_and_gradient(q, p)[0]

    @energy.defjvp
    def energy_rule(primals, tangents):
        value, to_q, to_p = energy_and_gradient(*primals)
        return value, to_q @ tangents[0] + to_p @ tangents[1]

    def sample_momentum(key, position):
        return root_times(position, jax.random.normal(key, position.shape))

    return Metric(sample_momentum, lambda momentum, position=None: energy(position, momentum), None, None)


def log_density_by_hand(problem: str):
    """The log density, that of the logistic regression with a gradient that needs no logarithms."""
    import jax
    import jax.numpy as jnp

    plain = blackjax_functions(problem)[0]
    if problem != "logistic":
        return plain
    Z, columns, _ = signed_rows(jnp)
    log_density = jax.custom_jvp(plain)

    @log_density.defjvp
    def rule(primals, tangents):
        (q,), (t,) = primals, tangents
        return plain(q), (jax.nn.sigmoid(-(q @ columns)) @ Z - q) @ t

    return log_density


def prepare_blackjax(problem: str, by_hand: bool = False) -> Peer:
    """blackjax.rmhmc; all draws of a chain as one compiled program."""
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.mcmc import integrators, metrics

    setting = PROBLEMS[problem]
    log_density, metric = blackjax_functions(problem)
    if by_hand:
        log_density, metric = log_density_by_hand(problem), metric_by_hand(problem)
    kinetic_energy = metrics.default_metric(metric).kinetic_energy
    one_step = integrators.implicit_midpoint(log_density, kinetic_energy)
    one_step = jax.jit(functools.partial(one_step, step_size=setting.step_size))

    def step(q, p):
        state = integrators.new_integrator_state(log_density, jnp.asarray(q), jnp.asarray(p))
        state = one_step(state)
        return np.asarray(state.position), np.asarray(state.momentum)

    def program(draws: int, **options):
        sampler = blackjax.rmhmc(log_density, setting.step_size, metric, setting.n_steps, **options)

        def chain(q, key):
            def draw(state, key):
                state, info = sampler.step(key, state)
                return state, (state.position, info.acceptance_rate)

            return jax.lax.scan(draw, sampler.init(q), jax.random.split(key, draws))[1]

        return jax.jit(chain).lower(jnp.zeros(setting.dim), jax.random.key(0)).compile()

    def prepare(draws: int):
        compiled = program(draws)

        def run(q, seed: int):
            return jax.block_until_ready(compiled(jnp.asarray(q), jax.random.key(seed)))

        return run

    def read(result):
        positions, acceptance = map(np.asarray, result)
        assert positions.dtype == np.float64
        return positions, acceptance, len(positions) * setting.n_steps

    found: list[tuple[int, bool]] = []

    @functools.cache
    def counting(draws: int):
        def solver(func, x0, **options):
            x, aux, info = integrators.solve_fixed_point_iteration(func, x0, **options)
            jax.debug.callback(lambda n, success: found.append((int(n), bool(success))), info.iters, info.success)
            return x, aux, info

        return program(draws, integrator=functools.partial(integrators.implicit_midpoint, solver=solver))

    def count(q, draws: int) -> Count:
        found.clear()
        jax.block_until_ready(counting(draws)(jnp.asarray(q), jax.random.key(1)))
        jax.effects_barrier()
        solves = len(found)
        return Count(sum(n + 1 for n, _ in found), solves, sum(not s for _, s in found), draws * setting.n_steps)

    return Peer("midpoint", step, prepare, read, count)


def prepare_mici(problem: str, integrator: str = "midpoint") -> Peer:
    """mici's static Metropolis HMC; metric and derivatives by hand in NumPy."""
    import mici

    setting, target = PROBLEMS[problem], TARGETS[problem]()
    counts = np.zeros(3, dtype=int)

    last: list = [b"", None]

    def metric(q):
        # mici asks for the metric before its derivative and would have it computed twice
        if last[0] != q.tobytes():
            last[:] = q.tobytes(), target.metric(q)
        return last[1]

    system = mici.systems.DenseRiemannianMetricSystem(
        neg_log_dens=lambda q: -target.log_density(q),
        grad_neg_log_dens=lambda q: -target.gradient(q),
        metric_func=lambda q: metric(q)[0],
        vjp_metric_func=lambda q: metric(q)[::-1],
    )

    def counting(func, x0, **options):
        def counted(x):
            counts[0] += 1
            return func(x)

        counts[1] += 1
        try:
            return mici.solvers.solve_fixed_point_direct(counted, x0, **options)
        except mici.errors.ConvergenceError:
            counts[2] += 1
            raise

    def make(solver=mici.solvers.solve_fixed_point_direct):
        options = {
            "reverse_check_tol": 20 * TOLERANCE,
            "fixed_point_solver": solver,
            "fixed_point_solver_kwargs": {"convergence_tol": TOLERANCE, "max_iters": MAX_ITERATIONS},
        }
        if integrator == "midpoint":
            return mici.integrators.ImplicitMidpointIntegrator(system, setting.step_size, **options)
        return mici.integrators.ImplicitLeapfrogIntegrator(system, setting.step_size / 2, **options)

    def step(q, p):
        state = make().step(mici.states.ChainState(pos=q.copy(), mom=p.copy(), dir=1))
        return state.pos, state.mom

    def sample(q, draws: int, seed: int, integrator):
        sampler = mici.samplers.StaticMetropolisHMC(system, integrator, np.random.default_rng(seed), setting.n_steps)
        return sampler.sample_chains(
            0, draws, [q], trace_funcs=[lambda state: {"pos": state.pos}], display_progress=False
        )

    def prepare(draws: int):
        return lambda q, seed: sample(q, draws, seed, make())

    def read(result):
        statistics = result.statistics
        # a step that fails ends the trajectory; it is counted as the work of one step
        steps = np.minimum(statistics["n_step"][0] + 1, setting.n_steps).sum()
        return np.asarray(result.traces["pos"][0]), statistics["accept_stat"][0], int(steps)

    def count(q, draws: int) -> Count:
        counts[:] = 0
        steps = read(sample(q, draws, 1, make(counting)))[2]
        return Count(*map(int, counts), steps)

    return Peer(integrator, step, prepare, read, count)


# ------------------------------------------------------------------------------------------------------ measurements


def examine(positions, acceptance) -> str:
    """What is wrong with a chain, or nothing."""
    if not (np.isfinite(positions).all() and np.isfinite(acceptance).all()):
        return "draws or acceptance rates that are not finite"
    moved = np.any(positions[1:] != positions[:-1], axis=1)
    edges = np.flatnonzero(np.concatenate([[True], moved, [True]]))
    if np.diff(edges).max() >= STUCK:
        return f"stuck for {np.diff(edges).max()} draws"
    return "" if moved.any() else "never moved"


def check_steps(problem: str, peer: Peer, n: int = 10) -> dict[str, float]:
    """The largest distance of ``n`` single steps to the step written out here; AssertionError when too large.

    Where the iteration here finds no solution (the generalised leapfrog on the banana), there is nothing to compare with.
    """
    target, rng = TARGETS[problem](), np.random.default_rng(7)
    largest, compared = 0.0, 0
    for q in starts(problem, n, seed=8):
        p = draw_momentum(target, q, rng)
        check_gradient(target, q, p)
        try:
            wanted = REFERENCES[peer.integrator](target, q, p, PROBLEMS[problem].step_size)
        except ArithmeticError:
            continue
        compared += 1
        distance = max(np.abs(a - b).max() for a, b in zip(peer.step(q, p), wanted, strict=True))
        assert distance <= 10 * TOLERANCE, f"a step is {distance:.1e} from the implicit {peer.integrator}"
        assert np.abs(wanted[0] - q).max() > 1000 * TOLERANCE, "a step that does not move"
        largest = max(largest, distance)
    assert compared >= n // 2, f"only {compared} of {n} steps have a solution to compare with"
    return {"distance": largest, "compared_steps": compared}


def calibrate(problem: str, peer: Peer, seconds: float) -> int:
    """The number of draws that takes about ``seconds``."""
    draws, q = 4, starts(problem, 1)[0]
    while True:
        run = peer.prepare(draws)
        run(q, 0)
        begin = time.perf_counter()
        run(q, 0)
        spent = time.perf_counter() - begin
        if spent >= CALIBRATION_SECONDS:
            return max(4, math.ceil(draws * seconds / spent))
        draws = math.ceil(draws * min(20.0, 1.5 * CALIBRATION_SECONDS / spent))


class Measured(NamedTuple):
    """A library ready to be timed: the distance of its steps, its draws a repeat, and its counts."""

    peer: Peer
    run: Callable
    told: dict[str, object]


def make_ready(problem: str, peer: Peer, seconds: float) -> Measured:
    told: dict[str, object] = dict(check_steps(problem, peer))
    told["draws"] = draws = calibrate(problem, peer, seconds)
    run = peer.prepare(draws)
    run(starts(problem, 1)[0], 0)
    return Measured(peer, run, told)


def count_all(problem: str, peer: Peer, repeats: int, draws: int) -> dict[str, float]:
    """Evaluations of the fixed-point map for each step and the share of solves that fail, over all the starts."""
    counts = [peer.count(q, draws) for q in starts(problem, repeats)]
    evaluations, solves, failures, steps = map(sum, zip(*counts, strict=True))
    return {"evaluations_per_step": evaluations / steps, "failed_solves": failures / solves}


def time_once(problem: str, ready: Measured, k: int) -> dict[str, object]:
    """Repeat k: from the k-th start, with seed k."""
    q = starts(problem, k + 1)[k]
    begin, begin_processor = time.perf_counter(), time.process_time()
    result = ready.run(q, k)
    seconds, processor = time.perf_counter() - begin, time.process_time() - begin_processor
    positions, acceptance, steps = ready.peer.read(result)
    return {
        "seconds": seconds,
        "processor_share": processor / seconds,
        "steps": steps,
        "steps_per_second": steps / seconds,
        "acceptance": float(np.mean(acceptance)),
        "error": examine(positions, acceptance),
    }


def serve(problem: str, prepare: Callable) -> None:
    """Answer the commands on standard input: ``{"ready": seconds}``, ``{"count": [repeats, draws]}``, ``{"repeat": k}``."""
    ready = None
    for line in sys.stdin:
        (command, value), *_ = json.loads(line).items()
        try:
            if command == "ready":
                ready = make_ready(problem, prepare(), value)
                answer = ready.told
            elif command == "count":
                answer = count_all(problem, ready.peer, *value)
            else:
                answer = time_once(problem, ready, value)
        except Exception as failure:  # told to the benchmark, which goes on with the others
            answer = {"error": f"{type(failure).__name__}: {(str(failure).strip().splitlines() or [''])[0]}"[:200]}
        print(RESULT_MARK + json.dumps(answer), flush=True)

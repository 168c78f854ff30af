"""The integrators that follow the parts of a split model, and the Gaussian split: geometry, order, work, distributions."""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

import refhmc
from refhmc.core import sample_stats as S
from refhmc.core.types import Work
from refhmc.integrators import GaussianSplit, Leapfrog, NaiveSplit, RandomizedSplit, SymmetricSplit, Yoshida
from refhmc.metrics import Dense, Diagonal, Identity
from refhmc.sampling.chains.chain import Chain, make_plan
from tests.helpers.many_starts import from_each
from tests.helpers.random_cases import cases

D = 3
STEPS = {
    "naive": lambda M: NaiveSplit(),
    "symmetric": lambda M: SymmetricSplit(),
    "randomized": lambda M: RandomizedSplit(),
    "gaussian": lambda M: GaussianSplit([0.3, -0.2, 0.1], [[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.4]]),
    "in one order": lambda M: RandomizedSplit(one_order=tuple(np.roll(range(M), 1)[::-1])),
}
METRICS = {
    "identity": Identity(),
    "diagonal": Diagonal([0.5, 1.0, 3.0]),
    "dense": Dense([[1.0, 0.3, 0.0], [0.3, 0.7, -0.2], [0.0, -0.2, 2.0]]),
}


def quartic(q, data):
    """-(a . q - b)^4 / 4 - c |q|^2 / 2: parts whose gradients do not commute."""
    a, b, c = data[:3], data[3], data[4]
    return -0.25 * (a[0] * q[0] + a[1] * q[1] + a[2] * q[2] - b) ** 4 - 0.5 * c * (q[0] ** 2 + q[1] ** 2 + q[2] ** 2)


def quartic_gradient(q, data):
    a, b, c = data[:3], data[3], data[4]
    return -((a[0] * q[0] + a[1] * q[1] + a[2] * q[2] - b) ** 3) * a - c * q


@functools.cache
def numbers(M: int) -> np.ndarray:
    rng = np.random.default_rng(M)
    return np.column_stack([rng.normal(size=(M, D)) * 0.8 / M**0.25, rng.normal(size=M), rng.uniform(0, 2 / M, M)])


@functools.cache
def split(M: int):
    return refhmc.models.SplitModel([refhmc.Model(D, quartic, quartic_gradient, data=x) for x in numbers(M)])


def on_complex_numbers(M: int, metric):
    """The same Hamiltonian for the array implementations, at positions that may be complex: its parts are written here."""
    parts = [SimpleNamespace(gradient=lambda q, x=x: quartic_gradient(q, x)) for x in numbers(M)]
    W = np.asarray(metric.inverse_mass(D))
    return SimpleNamespace(
        model=SimpleNamespace(parts=parts, gradient=lambda q: sum(part.gradient(q) for part in parts)),
        inverse_mass=lambda q: W,
        inverse_product=lambda q, p: W * p if W.ndim == 1 else W @ p,
    )


def jacobian(text, H, z, eps: float) -> np.ndarray:
    """Return the Jacobian of one step, by complex steps: exact to round-off."""
    columns = []
    for k in range(2 * D):
        x = z.astype(complex)
        x[k] += 1e-30j
        columns.append(np.concatenate(text(H, x[:D], x[D:], eps)).imag / 1e-30)
    return np.array(columns).T


ANY = {
    "name": st.sampled_from(sorted(STEPS)),
    "metric": st.sampled_from(sorted(METRICS)),
    "M": st.sampled_from([1, 2, 3, 7]),
    "eps": st.floats(0.01, 0.3),
    "seed": st.integers(0, 2**32 - 1),
}


def start(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=D) * 0.7, rng.normal(size=D)


@cases(80)
@given(**ANY)
def test_the_compiled_step_is_that_of_the_text(name, metric, M, eps, seed):
    """The step is also symplectic, and the step of size -eps undoes it."""
    q, p = start(seed)
    integrator, H = STEPS[name](M), refhmc.Hamiltonian(split(M), METRICS[metric])
    text, complex_H = integrator.on_arrays(), on_complex_numbers(M, METRICS[metric])
    J = jacobian(text, complex_H, np.concatenate([q, p]), eps)
    size = max(1.0, np.linalg.norm(J, 2))
    assume(size < 1e3)
    zero, one = np.zeros((D, D)), np.eye(D)
    omega = np.block([[zero, one], [-one, zero]])
    assert np.abs(J.T @ omega @ J - omega).max() <= 1e-13 * size**2
    path = refhmc.integrate(H, integrator, q, p, step_size=eps, n_steps=2)
    z = text(complex_H, *text(complex_H, q, p, eps), eps)
    scale = 1e-12 * size**2 * max(1.0, np.abs(path.q).max(), np.abs(path.p).max())
    np.testing.assert_allclose(z, [path.q[-1], path.p[-1]], rtol=0, atol=scale)
    back = refhmc.integrate(H, integrator, path.q[-1], path.p[-1], step_size=-eps, n_steps=2)
    np.testing.assert_allclose([back.q[-1], back.p[-1]], [q, p], rtol=0, atol=scale)
    assert path.energy[-1] == pytest.approx(H.energy(path.q[-1], path.p[-1]), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("M", [2, 3, 7])
def test_which_are_reversible(M):
    """Naive and symmetric split return when the momentum is turned; a random order does so in the reversed order alone."""
    q, p = start(M)
    H = refhmc.Hamiltonian(split(M))

    def end(integrator, q, p):
        path = refhmc.integrate(H, integrator, q, p, step_size=0.1, n_steps=4)
        return path.q[-1], path.p[-1]

    order = tuple(np.random.default_rng(M).permutation(M))
    for integrator in (NaiveSplit(), SymmetricSplit(), STEPS["gaussian"](M)):
        assert integrator.reversible
        there = end(integrator, q, p)
        np.testing.assert_allclose(end(integrator, there[0], -there[1])[0], q, rtol=0, atol=1e-13)
    there = end(RandomizedSplit(one_order=order), q, p)
    reverse, same = (end(RandomizedSplit(one_order=x), there[0], -there[1]) for x in (order[::-1], order))
    np.testing.assert_allclose(reverse, [q, -p], rtol=0, atol=1e-13)
    assert np.abs(same[0] - q).max() > 1e-5
    assert not RandomizedSplit().reversible


@pytest.mark.parametrize("M", [1, 2, 5])
@pytest.mark.parametrize("name", ["naive", "symmetric", "randomized", "gaussian"])
def test_order_at_a_fixed_number_of_parts(name, M):
    """Errors after a time 1 in n and 2 n steps, against 20,000 leapfrogs of 5e-5."""
    integrator, (q, p) = STEPS[name](M), start(100 + M)
    H = refhmc.Hamiltonian(split(M))
    truth = refhmc.integrate(H, Leapfrog(), q, p, step_size=1 / 20000, n_steps=20000)
    errors = []
    for n in (200, 400):
        path = refhmc.integrate(H, integrator, q, p, step_size=1 / n, n_steps=n)
        errors.append(np.linalg.norm([path.q[-1] - truth.q[-1], path.p[-1] - truth.p[-1]]))
    expected = 2 if M == 1 else integrator.order
    assert errors[1] > 1e-7  # far above that of the reference, 1e-9
    assert math.log2(errors[0] / errors[1]) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("M", [2, 5])
def test_composed_symmetric_splits_are_of_order_four(M):
    """Errors after a time 1 in 40 and 80 steps, against 20,000 leapfrogs."""
    q, p = start(100 + M)
    H = refhmc.Hamiltonian(split(M))
    truth = refhmc.integrate(H, Leapfrog(), q, p, step_size=1 / 20000, n_steps=20000)
    paths = [refhmc.integrate(H, Yoshida(SymmetricSplit()), q, p, step_size=1 / n, n_steps=n) for n in (40, 80)]
    errors = [np.linalg.norm([path.q[-1] - truth.q[-1], path.p[-1] - truth.p[-1]]) for path in paths]
    assert errors[1] > 5e-8
    assert math.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.2)


@pytest.mark.sweep
@pytest.mark.parametrize("integrator", [SymmetricSplit(), RandomizedSplit()], ids=["symmetric", "randomized"])
def test_fused_splits_draw_as_by_pointer(integrator):
    kernel = refhmc.HMC(step_size=0.05, n_steps=5, integrator=integrator, metric=Identity())
    run = {"draws": 50, "tune": 0, "chains": 1, "random_seed": 3, "progressbar": False, "raw": True}
    plain, fused = (
        refhmc.sample(split(5), kernel, backend=refhmc.Numba(fuse=fuse), **run).posterior["q"] for fuse in (False, True)
    )
    np.testing.assert_allclose(fused, plain, rtol=1e-12, atol=1e-12)


def test_one_part_is_the_leapfrog_and_so_is_the_naive_split():
    q, p = start(5)
    for M, integrator in ((1, SymmetricSplit()), (1, RandomizedSplit()), (1, NaiveSplit()), (7, NaiveSplit())):
        H = refhmc.Hamiltonian(split(M), METRICS["dense"])
        want = refhmc.integrate(H, Leapfrog(), q, p, step_size=0.1, n_steps=20)
        got = refhmc.integrate(H, integrator, q, p, step_size=0.1, n_steps=20)
        np.testing.assert_allclose(got.q, want.q, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(got.energy, want.energy, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("M", [1, 2, 3, 7])
def test_no_part_is_evaluated_twice_at_one_position(M):
    """2 M - 2 gradients of parts per step, and one for the first kick; the randomised split 2 M. Evaluations are counted."""
    calls: list[tuple] = []

    def part(m: int):
        x = numbers(M)[m]

        def gradient(q, data):
            calls.append((m, q.tobytes()))
            return quartic_gradient(q, x)

        return refhmc.Model(D, lambda q, data: quartic(q, x), gradient, in_python="it counts its calls")

    model = refhmc.models.SplitModel([part(m) for m in range(M)])
    H, (q, p) = refhmc.Hamiltonian(model), start(1)
    wanted = {"symmetric": 1 + 10 * (2 * M - 2 or 1), "randomized": 10 * 2 * M if M > 1 else 11}
    for name, count in wanted.items():
        counts = []
        for n in (0, 10):
            calls.clear()
            path = refhmc.integrate(H, STEPS[name](M), q, p, step_size=0.05, n_steps=n)
            counts.append(len(calls))
        assert counts[1] - counts[0] == path.gradient_evaluations == count


@pytest.mark.parametrize("integrator", [SymmetricSplit(), RandomizedSplit()], ids=["symmetric", "randomized"])
def test_static_hmc_asks_for_no_energy_on_the_way(integrator):
    """Only the end is weighed: M densities a trajectory, less the one whose part was evaluated last there."""
    densities: list[int] = []

    def part(x):
        def density(q, data):
            densities.append(1)
            return quartic(q, x)

        def both(q, data, out):
            out[:] = quartic_gradient(q, x)
            return quartic(q, x)

        def gradient(q, data):
            return quartic_gradient(q, x)

        return refhmc.Model(D, density, gradient, value_and_gradient=both, in_python="it counts its calls")

    M, n = 4, 5
    model = refhmc.models.SplitModel([part(x) for x in numbers(M)])
    kernel = refhmc.HMC(step_size=0.05, n_steps=12, integrator=integrator, metric=Identity())
    from_each(model, kernel, np.zeros((1, D)), seed=1)
    densities.clear()
    from_each(model, kernel, np.zeros((1, D)), seed=1, n_transitions=n)
    assert len(densities) == n * (M - 1)


def test_the_energy_is_whole_again_after_a_trajectory_that_breaks_off():
    """The search for a step size, which comes next where a window of warm-up ends, makes single steps with the same work."""
    model = refhmc.models.SplitModel([refhmc.Model(D, quartic, quartic_gradient, data=1e3 * x) for x in numbers(3)])
    kernel = refhmc.HMC(step_size=1e3, n_steps=20, integrator=SymmetricSplit(), metric=Identity())
    plan = make_plan(model, kernel, 0)
    chain = Chain(model, plan, np.random.default_rng(1))
    chain.start(np.ones(D))
    draws, stats = np.zeros((1, D)), np.zeros((1, plan.n_stats))
    chain.run(draws, stats)
    assert 0 < S.named(stats, kernel.statistics)["n_steps"][0] < 20, "the trajectory is to break off"
    assert not Work(*chain.blocks[0].work).status.energy_spared


def linear_model(M: int):
    """y ~ N(X w + b, 1/4), w and b ~ N(0, 1/2): split, and its posterior's mean and the root of its covariance."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(11, 2)), rng.normal(size=11)
    model = refhmc.models.MLP([2, 1], X, y, output_precision=4.0, prior_precision=2.0)
    A = np.column_stack([X, np.ones(11)])
    precision = 4.0 * A.T @ A + 2.0 * np.eye(3)
    return model.split(M), np.linalg.solve(precision, 4.0 * A.T @ y), np.linalg.cholesky(np.linalg.inv(precision))


KERNELS = {
    "hmc": lambda integrator: refhmc.HMC(
        step_size=0.12, n_steps=3, step_jitter=0.3, integrator=integrator, metric=Identity()
    ),
    "nuts": lambda integrator: refhmc.NUTS(step_size=0.12, max_treedepth=3, integrator=integrator, metric=Identity()),
}


LAWS_BY_DEFAULT = {("nuts", "randomized", 2), ("hmc", "gaussian", 2)}


@pytest.mark.parametrize(
    ("kernel", "name", "M"),
    [
        pytest.param(kernel, name, M, marks=[] if (kernel, name, M) in LAWS_BY_DEFAULT else pytest.mark.sweep)
        for kernel in sorted(KERNELS)
        for name in ("naive", "symmetric", "randomized", "gaussian")
        for M in (2, 5, 10)
    ],
)
def test_exact_draws_stay_exact(kernel, name, M):
    """One transition from 1,000 exact draws: of each coordinate of the whitened ends the mean, the sum of squares and the
    empirical distribution; a false alarm in one case is 1e-6. A mean that is off by .2 standard deviations, or a scale that is
    15 % too large or 14 % too small, is seen in four of five runs."""
    model, mean, root = linear_model(M)
    z = np.random.default_rng(M).normal(size=(1000, 3))
    ends, stats = from_each(model, KERNELS[kernel](STEPS[name](M)), mean + z @ root.T, seed=M)
    rates = stats["acceptance_rate"]
    assert 0.3 < rates.mean() < 0.999, "steps that are always accepted show no fault of the acceptance"
    for column in np.linalg.solve(root, (ends - mean).T):
        n, squares = len(column), np.sum(column**2)
        assert 2 * scipy.stats.norm.sf(abs(column.mean()) * math.sqrt(n)) > 1e-6 / 9
        assert 2 * min(scipy.stats.chi2.cdf(squares, n), scipy.stats.chi2.sf(squares, n)) > 1e-6 / 9
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-6 / 9


@pytest.mark.sweep
@pytest.mark.parametrize("depth", [1, 2])
def test_nuts_in_one_order_is_exact_and_static_hmc_is_not(depth):
    """Exactly, on enumerated orbits: the leaves backward in time are those of the inverse map. Static HMC's proposal in one
    order is not symmetric, as its integrator reports.
    """
    one_order = RandomizedSplit(one_order=(2, 0, 1))
    kernel = refhmc.NUTS(step_size=0.35, max_treedepth=depth, integrator=one_order, metric=Identity())
    report = refhmc.check.orbit(kernel, target=split(3), depth=depth, most_runs=1000 if depth == 1 else 60_000)
    rows = {row.name: row.status for row in report.rows}
    assert rows["invariance"] == "PASS", report
    assert report.ok
    assert not one_order.exact
    assert "one order" in one_order.approximation
    assert RandomizedSplit().exact


@pytest.mark.parametrize("backend", ["numba", "arrays"])
def test_one_order_is_marked_as_exact_with_nuts_and_not_with_hmc(backend):
    one_order = {"integrator": RandomizedSplit(one_order=(2, 0, 1)), "metric": Identity(), "step_size": 0.1}
    run = {"draws": 3, "tune": 0, "chains": 2, "random_seed": 1, "progressbar": False, "raw": True, "backend": backend}
    nuts, hmc = refhmc.NUTS(max_treedepth=2, **one_order), refhmc.HMC(n_steps=2, **one_order)
    for kernel, exact in ((nuts, True), (hmc, False)):
        result = refhmc.sample(split(3), kernel, **run)
        assert result.attributes["exact"] is exact
        assert any("approximate" in each for each in result.warnings) is not exact
    if backend == "numba":
        names = split(3).names
        assert refhmc.sample(split(3), refhmc.Gibbs({tuple(names): nuts}), **run).attributes["exact"]


def test_the_order_of_a_trajectory_is_drawn_as_written_down():
    """Fisher and Yates on recorded uniforms, after the normals; all orders are equally likely."""
    M, (q, p) = 4, start(2)
    model = split(M)
    kernel = refhmc.HMC(step_size=0.05, n_steps=3, integrator=RandomizedSplit(), metric=Identity())
    seen = set()
    for a in range(4):
        for b in range(3):
            for c in range(2):
                order = list(range(M))
                for k, j in ((3, a), (2, b), (1, c)):
                    order[j], order[k] = order[k], order[j]
                uniforms = [(a + 0.5) / 4, (b + 0.5) / 3, (c + 0.5) / 2, 0.0]
                move = refhmc.transition(model, kernel, q, momentum=p, uniforms=uniforms)
                H = refhmc.Hamiltonian(model, Identity())
                integrator = RandomizedSplit(one_order=tuple(order))
                path = refhmc.integrate(H, integrator, q, p, step_size=0.05, n_steps=3)
                assert np.array_equal(move.q, path.q[-1])
                seen.add(tuple(order))
    assert len(seen) == math.factorial(M)


@pytest.mark.parametrize("integrator", [SymmetricSplit(), RandomizedSplit()], ids=["symmetric", "randomized"])
@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_a_restored_chain_goes_on_as_the_unbroken_one(kernel, integrator):
    """The stored gradient of the last part is not saved, and does not change the draws."""
    model = split(5)
    plan = make_plan(model, KERNELS[kernel](integrator), 0)

    def chain():
        return Chain(model, plan, np.random.default_rng(7))

    unbroken, other = chain(), chain()
    unbroken.start(np.full(D, 0.2))
    draws, stats = (np.zeros((2, 6, n)) for n in (D, plan.n_stats))
    unbroken.run(draws[0], stats[0])
    other.restore(unbroken.to_bytes())
    unbroken.run(draws[0], stats[0])
    other.run(draws[1], stats[1])
    assert np.array_equal(draws[0], draws[1])
    named = [S.named(each, KERNELS[kernel](integrator).statistics) for each in stats]
    for name, values in named[0].items():
        assert np.array_equal(values, named[1][name], equal_nan=True), name


def test_what_cannot_be_followed_is_refused():
    gaussian = refhmc.models.Gaussian([0.0], [[1.0]])
    with pytest.raises(TypeError, match=r"SymmetricSplit.*split\("):
        refhmc.integrate(refhmc.Hamiltonian(gaussian), SymmetricSplit(), [0.0], [1.0], step_size=0.1, n_steps=1)
    with pytest.raises(ValueError, match=r"one_order.*\(0, 1\)"):
        refhmc.integrate(
            refhmc.Hamiltonian(split(3)), RandomizedSplit(one_order=(0, 1)), *start(0), step_size=0.1, n_steps=1
        )
    learns = Diagonal(learn_from="draws and gradients")
    with pytest.raises(refhmc.errors.MetricError, match="SymmetricSplit.*Diagonal"):
        refhmc.sample(split(3), refhmc.HMC(n_steps=2, integrator=SymmetricSplit(), metric=learns), draws=1, tune=1)
    with pytest.raises(ValueError, match="metric must be constant.*SymmetricSplit.*SoftAbs"):
        refhmc.HMC(integrator=SymmetricSplit(), metric=refhmc.metrics.SoftAbs(1e6))

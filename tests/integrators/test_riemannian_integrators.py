"""The implicit integrators and the projected Tao: symplectic, reversible, of their order, at the right speed, on every metric.

**Units.** Errors are in units of 1/sqrt(G_ii) for q_i and sqrt(G_ii) for p_i at the start, which leave Omega as it is.

**Tolerances.** A solve stops when an iteration changes the unknown by at most delta. Where it contracts by kappa each time
the solution is then within delta kappa / (1 - kappa); 10 delta is allowed for, kappa = .9. Every one of the steps of a
trajectory errs by that, and the rest of the trajectory multiplies it by at most s = max(1, |J|), J the Jacobian of the
whole: n steps and n back return to 20 n delta s, and to the rounding of 1e-14 |z| n s. The Jacobian by Ridders'
extrapolation knows its own error e: J' Omega J - Omega may be 4 d s e, plus 100 n delta s, the jumps of a solve that
takes an iteration more over the widths of the differences. Measured: e 1e-13, defect of J 1e-12, reversal 1e-13.
"""

from __future__ import annotations

import itertools
import math
import zlib

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import refhmc
from refhmc.core.point import COPY_P, COPY_Q, EXTENDED_ROWS, P, Q
from refhmc.diagnostics import jacobian, reversibility_violation, volume_violation
from refhmc.dynamics.assemble import make_dynamics
from refhmc.dynamics.trajectory import run_trajectory
from refhmc.integrators import (
    ExplicitTao,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    ProjectedTao,
    Suzuki,
    Yoshida,
)
from refhmc.metrics import Dense, Fisher, Identity, SoftAbs
from tests.helpers.random_cases import cases
from tests.helpers.riemannian_cases import (
    MOVED_MODELS,
    SMOOTH,
    TIGHT,
    UNCHECKED,
    case,
    checked,
    end,
    model_of,
    omega,
    scaled,
    true_flow,
)
from tests.helpers.sweeps import one_in

LEAPFROG = Leapfrog()
ANY_CASE = {
    "name": st.sampled_from(MOVED_MODELS),
    "metric": st.sampled_from(sorted(SMOOTH)),
    "seed": st.integers(0, 2**32 - 1),
    "step": st.floats(0.02, 0.2),  # of the fastest local time scale at the start
    "n_steps": st.integers(1, 3),
}


def step_of(integrator, step: float, time: float) -> float:
    """The projection needs the binding's angle omega eps below pi/2 in every part, since it divides by the cosine."""
    strongest = getattr(integrator, "omega", 0.0) if not isinstance(integrator, Yoshida | Suzuki) else 10.0
    return min(step * time, 1.0 / max(strongest, 1e-9))


def taken_back(H, method, path, eps: float) -> bool:
    """Return whether each step of a path, reversed by hand, ends within 100 tolerances of its start."""
    for k in range(len(path.q) - 1):
        back = refhmc.integrate(H, method, path.q[k + 1], path.p[k + 1], step_size=-eps, n_steps=1)
        miss = max(np.abs(back.q[-1] - path.q[k]).max(), np.abs(back.p[-1] - path.p[k]).max())
        if not (back.converged.all() and miss <= 100 * method.tolerance):
            return False
    return True


KEPT, REFUSED, UNSOLVED, ONE_WAY, NOT_MEASURED = "kept", "refused", "unsolved", "cannot be taken back", "no Jacobian"
EXAMINED = (KEPT, REFUSED)


def examine(method, name: str, metric: str, seed: int, step: float, n_steps: int) -> str:
    """J' Omega J = Omega, det J = 1; and n steps, the momentum's reversal, n steps and the reversal are the identity.

    The map is examined where it is defined: each step is solved, and returns when it is reversed by hand. The checked
    method must reject a step that does not return, and a step that it accepts must be the same to the last bit. It may
    reject more (``REFUSED``): it requires the step to be found again from the end of the reverse step, and gives Anderson's
    acceleration fewer iterations. Returns ``KEPT`` or ``REFUSED``, or why the case was not examined; ``NOT_MEASURED`` if
    the Jacobian's own error is above 1e-6 or its norm above 1,000.
    """
    H, q, p, time = case(name, metric, seed)
    eps, d = step_of(method, step, time), len(q)
    path = refhmc.integrate(H, method, q, p, step_size=eps, n_steps=n_steps)
    found = refhmc.integrate(H, checked(method), q, p, step_size=eps, n_steps=n_steps)
    used = found.converged.all()
    if not path.converged.all():
        assert not used
        return UNSOLVED
    composed = isinstance(method, Yoshida | Suzuki)  # whose parts are taken back one by one
    if not (used if composed else taken_back(H, method, path, eps)):
        assert not used
        return ONE_WAY
    if used:
        assert np.array_equal(found.q, path.q)
        assert np.array_equal(found.p, path.p)
    there = np.concatenate([path.q[-1], path.p[-1]])
    J, error = jacobian(H, method, q, p, step_size=eps, n_steps=n_steps)
    if not np.isfinite(J).all():  # a neighbour's solve fails
        return NOT_MEASURED
    J, units = scaled(H, q, J)
    size, delta = max(1.0, np.linalg.norm(J, 2)), TIGHT / units.min()
    if not (error < 1e-6 and size < 1e3):
        return NOT_MEASURED
    parts = len(getattr(method, "parts", [1]))
    tolerance = 4 * d * size * error + 100 * n_steps * parts * delta * size
    assert np.abs(J.T @ omega(d) @ J - omega(d)).max() <= tolerance
    assert abs(np.linalg.det(J) - 1) <= d * tolerance * size
    back = end(H, method, there[:d], -there[d:], eps, n_steps)
    again = end(H, method, there[:d], there[d:], -eps, n_steps)
    rounding = 1e-14 * np.abs(np.concatenate([q, p]) / units).max()
    for z, sign in ((back, -1), (again, 1)):
        z[d:] *= sign
        reversal = np.abs((z - np.concatenate([q, p])) / units).max()
        assert reversal <= (20 * delta + rounding) * n_steps * parts * size
    if tolerance > 1e-6:  # which would show little
        return NOT_MEASURED
    return KEPT if used else REFUSED


@pytest.mark.parametrize(("integrator", "metric"), one_in(16, UNCHECKED, sorted(SMOOTH)))
def test_symplectic_and_reversible(integrator, metric):
    """Two cases for every integrator, metric and model, 624 in all.

    If the map is not defined at the step that was drawn, it is examined at half of it, and so on. Among 3,744 steps drawn
    as here 83 were not solved, 4 had no Jacobian, and 10 could not be reversed, all of them on the banana.
    """
    outcomes = []
    for name in MOVED_MODELS:
        rng = np.random.default_rng(zlib.crc32(f"{integrator} {metric} {name}".encode()))
        for _ in range(2):
            seed, step, n_steps = rng.integers(2**32), rng.uniform(0.02, 0.2), rng.integers(1, 4)
            found = []
            while not found or found[-1] not in EXAMINED:
                assert len(found) < 6, found
                found.append(examine(UNCHECKED[integrator], name, metric, seed, step / 2 ** len(found), n_steps))
            outcomes += found
    assert outcomes.count(ONE_WAY) <= 2
    assert outcomes.count(REFUSED) <= 2


@pytest.mark.sweep
def test_symplectic_and_reversible_at_any_step():
    """As above, anywhere: at most 1 + 2 % of the steps cannot be reversed (0.3 % were measured), 4 of 5 can be examined."""
    found = []

    @cases(20)
    @given(integrator=st.sampled_from(list(UNCHECKED)), **ANY_CASE)
    def check(integrator, name, metric, seed, step, n_steps):
        found.append(examine(UNCHECKED[integrator], name, metric, seed, step, n_steps))
        event(found[-1])

    check()
    assert found.count(ONE_WAY) <= 1 + 0.02 * len(found)
    assert found.count(KEPT) + found.count(REFUSED) >= 0.8 * len(found)


@pytest.mark.parametrize(("integrator", "metric"), one_in(4, UNCHECKED, sorted(SMOOTH)))
def test_order_against_the_true_flow(integrator, metric):
    """Errors of n and 2n steps over 0.3 local time scales, against the flow of H solved to 3e-14."""
    method = UNCHECKED[integrator]
    for name in ("banana", "funnel-3"):
        H, q, p, time = case(name, metric, 1)
        want, (_, units) = true_flow(H, q, p, 0.3 * time), scaled(H, q, np.eye(2 * len(q)))
        steps = (32, 64) if method.order == 2 else (8, 16)
        errors = [np.linalg.norm((end(H, method, q, p, 0.3 * time / n, n) - want) / units) for n in steps]
        if not errors[1] < 3e-11:  # well above the reference's own error
            assert abs(math.log2(errors[0] / errors[1]) - method.order) <= (0.3 if method.order == 2 else 0.2)
        else:
            assert method.order == 4


# ------------------------------------------------------------------------------------------------ elapsed time


def whitened(H, q, p):
    """(L'(q - mu), L^-1 p) with L L' the precision: H = |.|^2/2 + |.|^2/2 for the metric equal to the precision."""
    L = np.linalg.cholesky(H.mass(q))
    return np.concatenate([L.T @ (q - H.model.reference.mean), np.linalg.solve(L, p)])


@pytest.mark.parametrize("eps", [0.05, 0.5, 1.5])
def test_the_oscillator_turns_by_the_angle_of_the_method(eps):
    """Metric = precision. Implicit midpoint: 2 arctan(eps/2) a step. Generalised leapfrog: cos = 1 - eps^2/2, as leapfrog."""
    model, rng = model_of("gaussian-3"), np.random.default_rng(1)
    H = refhmc.Hamiltonian(model, Fisher())
    q = rng.standard_normal(3)
    p, n = H.draw_momentum(q, rng), 7
    before = whitened(H, q, p)
    for variant in ("endpoint", "midpoint"):
        method = ImplicitMidpoint(variant=variant, tolerance=1e-13, max_iterations=500)
        z = end(H, method, q, p, eps, n)
        angle = n * 2 * math.atan(eps / 2)
        turned = math.cos(angle) * before + math.sin(angle) * np.concatenate([before[3:], -before[:3]])
        np.testing.assert_allclose(whitened(H, z[:3], z[3:]), turned, atol=1e-10)
    start = np.concatenate([q, p])
    there = end(H, UNCHECKED["leapfrog-cached"], q, p, eps, 1)
    back = end(H, UNCHECKED["leapfrog-cached"], q, p, -eps, 1)
    mean = np.concatenate([model.reference.mean, np.zeros(3)])
    # z(eps) + z(-eps) = 2 cos(angle) z of a rotation, whatever its axes.
    np.testing.assert_allclose(there + back - 2 * mean, 2 * (1 - eps**2 / 2) * (start - mean), atol=1e-11)


def no_density(q, data):
    return 0.0


def no_gradient(q, data, out):
    out[:] = 0.0


def test_free_motion_takes_the_time_it_should():
    free = refhmc.Model(3, no_density, no_gradient, name="free")
    q, p = np.array([1.0, -2.0, 0.5]), np.array([0.3, 1.0, -2.0])
    H = refhmc.Hamiltonian(free, Dense(np.eye(3) + 0.3))
    for method in (*UNCHECKED.values(), ExplicitTao(omega=5.0)):
        path = refhmc.integrate(H, method, q, p, step_size=0.1, n_steps=10)
        np.testing.assert_allclose(path.q, q + 0.1 * np.arange(11)[:, None] * H.grad_p(q, p), atol=1e-11)
        np.testing.assert_allclose(path.p, np.tile(p, (11, 1)), atol=1e-11)


# ------------------------------------------------------------------------------------------------ what is conserved


@pytest.mark.parametrize("variant", ["endpoint", "midpoint"])
@pytest.mark.parametrize("eps", [0.1, 1.0, 1.9, 4.0])
def test_implicit_midpoint_conserves_quadratic_energies(eps, variant):
    """On a Gaussian no proposal is rejected, at any step solved: the plain iteration contracts for eps < 2,
    Anderson's solves larger steps too.
    """
    model, rng = model_of("gaussian-3"), np.random.default_rng(2)
    solver = "fixed point" if eps < 1.5 else "anderson"
    method = ImplicitMidpoint(variant=variant, tolerance=1e-12, max_iterations=1000, solver=solver)
    for metric in (Fisher(), SoftAbs(1e6), Dense(np.linalg.inv(-model.hessian(np.zeros(3))))):
        H = refhmc.Hamiltonian(model, metric)
        q = rng.standard_normal(3)
        path = refhmc.integrate(H, method, q, H.draw_momentum(q, rng), step_size=eps, n_steps=10)
        assert path.converged.all()
        np.testing.assert_allclose(path.energy, path.energy[0], atol=1e-9)
        kernel = refhmc.HMC(step_size=eps, n_steps=5, metric=metric, integrator=method)
        for _ in range(5):
            got = refhmc.transition(model, kernel, q, normals=rng.standard_normal(3), uniforms=[1 - 1e-9])
            assert got.outcome == "accepted"
            assert got.stats["acceptance_rate"] == pytest.approx(1.0, abs=1e-9)
            q = got.q


@pytest.mark.parametrize("metric", ["fisher", "softabs", "outer"])
@pytest.mark.parametrize("integrator", ["leapfrog-cached", "leapfrog-naive", "yoshida-leapfrog", "midpoint-endpoint"])
def test_angular_momentum_is_conserved(integrator, metric):
    """The funnel and these metrics do not change when the x's are rotated: x_i p_j - x_j p_i are invariants q'Ap."""
    H, q, p, time = case("funnel-3", metric, 3)
    path = refhmc.integrate(H, UNCHECKED[integrator], q, p, step_size=0.2 * time, n_steps=10)
    angular = np.cross(path.q[:, 1:], path.p[:, 1:])
    size = np.abs(path.q[:, 1:]).max() * np.abs(path.p[:, 1:]).max()
    tolerance = 1e-13 * size + 10 * 20 * TIGHT * (np.abs(path.q).max() + np.abs(path.p).max())
    np.testing.assert_allclose(angular, np.tile(angular[0], (11, 1)), atol=tolerance)
    assert np.abs(path.q[-1] - q).max() > 0.1 * time * np.abs(H.grad_p(q, p)).max()


@pytest.mark.parametrize(
    "metric", [Identity(), Dense([[1.0, 0.3, 0, 0], [0.3, 2.0, 0, 0], [0, 0, 1, 0.5], [0, 0, 0.5, 1]])]
)
def test_on_a_constant_metric_the_generalised_leapfrog_is_the_leapfrog(metric):
    H, rng = refhmc.Hamiltonian(model_of("funnel-3"), metric), np.random.default_rng(4)
    q, p = 0.3 * rng.standard_normal((2, 4))
    want = end(H, LEAPFROG, q, p, 0.1, 10)
    for method in ("leapfrog-cached", "leapfrog-naive", "leapfrog-anderson"):
        np.testing.assert_allclose(end(H, UNCHECKED[method], q, p, 0.1, 10), want, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------ ways to solve it


@cases(25)
@given(**ANY_CASE)
def test_ways_to_solve_the_same_equation_agree(name, metric, seed, step, n_steps):
    """Naive and cached to rounding; the two variants of the midpoint rule, and Anderson's, to the solver's tolerance."""
    H, q, p, time = case(name, metric, seed)
    groups = (("leapfrog-cached", "leapfrog-naive", "leapfrog-anderson"),
              ("midpoint-endpoint", "midpoint-midpoint", "midpoint-anderson"))  # fmt: skip
    for group in groups:
        ends = [end(H, UNCHECKED[method], q, p, step * time, n_steps) for method in group]
        assume(np.isfinite(ends).all())
        J, _ = jacobian(H, UNCHECKED[group[0]], q, p, step_size=step * time, n_steps=n_steps, increment=1e-5)
        J, units = scaled(H, q, J)
        rounding = 1e-14 * np.abs(np.concatenate([q, p]) / units).max()
        tolerance = (40 * TIGHT / units.min() + rounding) * n_steps * max(1.0, np.linalg.norm(J, 2))
        for other in ends[1:]:
            assert np.abs((other - ends[0]) / units).max() <= tolerance


def test_naive_and_cached_are_the_same_numbers():
    """With as many iterations, whatever the tolerance: at a coarse one the two would differ if they stopped apart."""
    for metric in sorted(SMOOTH):
        for seed in range(3):
            H, q, p, time = case("funnel-3", metric, seed)
            ends, counts = [], []
            for variant in ("cached", "naive"):
                method = GeneralizedLeapfrog(variant=variant, tolerance=1e-4)
                path = refhmc.integrate(H, method, q, p, step_size=0.2 * time, n_steps=5)
                ends.append(np.concatenate([path.q[-1], path.p[-1]]))
                counts.append(path.iterations.tolist())
            assert counts[0] == counts[1]
            np.testing.assert_allclose(ends[0], ends[1], rtol=1e-12, atol=1e-12)


def test_the_tolerance_sets_the_error():
    """The end differs from the tightly solved one by a few tolerances, and the error falls with them."""
    for method in (
        ImplicitMidpoint,
        GeneralizedLeapfrog,
        lambda tolerance: ProjectedTao(omega=2.0, tolerance=tolerance),
    ):
        H, q, p, time = case("funnel-3", "softabs", 2)
        want = end(H, method(tolerance=1e-14), q, p, 0.15 * time, 5)
        for tolerance in (1e-4, 1e-6, 1e-8, 1e-10):
            error = np.abs(end(H, method(tolerance=tolerance), q, p, 0.15 * time, 5) - want).max()
            assert error <= 100 * tolerance


def test_anderson_converges_where_the_plain_iteration_does():
    H = refhmc.Hamiltonian(model_of("funnel-3"), SoftAbs(alpha=1.0))
    q, p = [1.03675258, 0.48926265, 0.19677087, -0.77601275], [1.1456396, 0.99073168, -0.8090074, 0.60111358]
    for tolerance in (1e-8, 1e-10, 1e-12, 1e-13):
        plain, fast = (
            refhmc.integrate(H, GeneralizedLeapfrog(tolerance=tolerance, solver=s), q, p, step_size=0.05, n_steps=8)
            for s in ("fixed point", "anderson")
        )
        assert plain.converged.all()
        assert fast.converged.all()
        assert fast.iterations.sum() <= plain.iterations.sum()


@pytest.mark.parametrize("seed", range(4))
def test_anderson_goes_back_where_it_has_extrapolated_too_far(seed):
    """In the funnel's neck an extrapolated position has no finite Hessian; the plain iterate before it has."""
    model, rng = refhmc.models.Funnel(50), np.random.default_rng(seed)
    H = refhmc.Hamiltonian(model, SoftAbs(alpha=1e6))
    q = model.reference.draw(rng, 1)[0]
    method = GeneralizedLeapfrog(solver="anderson")
    path = refhmc.integrate(H, method, q, H.draw_momentum(q, rng), step_size=0.2, n_steps=20)
    assert path.converged.all()


# --------------------------------------------------------------------------------------------- failures are typed

FAILING = {
    "midpoint-endpoint": ImplicitMidpoint(max_iterations=2, tolerance=TIGHT),
    "midpoint-midpoint": ImplicitMidpoint(max_iterations=2, variant="midpoint", tolerance=TIGHT),
    "leapfrog-cached": GeneralizedLeapfrog(max_iterations=2, tolerance=TIGHT),
    "leapfrog-naive": GeneralizedLeapfrog(max_iterations=2, variant="naive", tolerance=TIGHT),
    "anderson": ImplicitMidpoint(max_iterations=2, solver="anderson", tolerance=TIGHT),
    "tao": ProjectedTao(omega=2.0, max_iterations=2, tolerance=TIGHT),
    "yoshida": Yoshida(ImplicitMidpoint(max_iterations=2, tolerance=TIGHT)),
}


@pytest.mark.parametrize("method", FAILING)
def test_a_solve_that_does_not_converge_is_never_used(method):
    integrator = FAILING[method]
    H, q, p, time = case("funnel-3", "softabs", 1)
    path = refhmc.integrate(H, integrator, q, p, step_size=0.3 * time, n_steps=4)
    assert not path.converged.any()
    assert np.isnan(path.q[1:]).all()
    assert np.isnan(path.p[1:]).all()
    assert path.iterations[0] == 2
    assert math.isnan(reversibility_violation(H, integrator, q, p, step_size=0.3 * time, n_steps=4))
    assert math.isnan(volume_violation(H, integrator, q, p, step_size=0.3 * time, n_steps=4, increment=1e-5))
    for kernel, uniforms in (
        (refhmc.HMC(step_size=0.3 * time, n_steps=4, metric=H.metric, integrator=integrator), [0.0]),
        (refhmc.NUTS(step_size=0.3 * time, metric=H.metric, integrator=integrator), [0.0] * 50),
    ):
        got = refhmc.transition(H.model, kernel, q, momentum=p, uniforms=uniforms)
        assert got.outcome == "solver_failed"
        assert got.stats["solver_failed"]
        assert not got.stats["is_accepted"]
        assert not got.stats["diverging"]
        assert got.stats["acceptance_rate"] == 0
        assert np.array_equal(got.q, q)


# ---------------------------------------------------------------------------- the explicit integrator, for contrast


def extended_end(H, method, z0: np.ndarray, eps: float, n_steps: int) -> np.ndarray:
    """(q, p, x, y) after the steps on the doubled space, (4d,), from any point of it."""
    dynamics = make_dynamics(H.model, H.metric, method)
    dynamics.compile(H.model.name)
    d = H.model.dim
    z = np.zeros((EXTENDED_ROWS, d))
    rows = [Q, P, COPY_Q, COPY_P]
    z[rows] = z0.reshape(4, d)
    states, history = np.zeros((n_steps + 1, 2, d)), np.zeros((n_steps + 1, 3))
    run_trajectory(dynamics.pointers, dynamics.model, z, eps, dynamics.work(), dynamics.own(), states, history)
    return z[rows].ravel()


# |det J - 1| and the reversal error that were measured, to within a factor of 2.
EXPLICIT_TAO = {"fisher": (2.8e-4, 6.3e-5), "softabs": (1.5e-2, 5.7e-3)}


@pytest.mark.parametrize("metric", EXPLICIT_TAO)
def test_explicit_tao_is_symplectic_and_reversible_on_the_doubled_space_only(metric):
    """There: to the errors of the differences, 1e-8, and of rounding. From the diagonal, the copies dropped at the end: not."""
    method, n_steps, d = ExplicitTao(omega=10.0), 10, 2
    H, q, p, time = case("banana", metric, 1)
    eps = 0.05 * time
    _, units = scaled(H, q, np.eye(4))
    twice = np.concatenate([units, units])
    start = np.concatenate([q, p, q, p]) + 0.01 * twice * np.random.default_rng(5).standard_normal(8)
    columns = []
    for k in range(8):  # central differences, extrapolated twice
        table = []
        for width in (4e-3, 2e-3, 1e-3):
            step = width * twice[k] * np.eye(8)[k]
            ahead, behind = (extended_end(H, method, start + s * step, eps, n_steps) for s in (1, -1))
            table.append((ahead - behind) / (2 * width) / twice)
        first, second = ((4 * b - a) / 3 for a, b in itertools.pairwise(table))
        columns.append((16 * second - first) / 15)
    J = np.stack(columns, axis=1)
    two = np.kron(np.eye(2), omega(d))
    assert np.abs(J.T @ two @ J - two).max() <= 1e-8 * np.linalg.norm(J, 2) ** 2
    there = extended_end(H, method, start, eps, n_steps)
    back = extended_end(H, method, there, -eps, n_steps)
    assert np.abs((back - start) / twice).max() <= 1e-12 * np.linalg.norm(J, 2)

    volume = volume_violation(H, method, q, p, step_size=eps, n_steps=n_steps)
    reversal = reversibility_violation(H, method, q, p, step_size=eps, n_steps=n_steps)
    projected = ProjectedTao(omega=10.0, tolerance=TIGHT, solver="anderson")
    exact_volume = volume_violation(H, projected, q, p, step_size=eps, n_steps=n_steps)
    exact_reversal = reversibility_violation(H, projected, q, p, step_size=eps, n_steps=n_steps)
    for got, measured in zip((volume, reversal), EXPLICIT_TAO[metric], strict=True):
        assert measured / 2 < got < 2 * measured
    assert exact_volume < 1e-10
    assert exact_reversal < 1e-10
    assert not method.exact
    assert projected.exact


@pytest.mark.parametrize("metric", sorted(EXPLICIT_TAO))
def test_explicit_tao_is_of_order_two(metric):
    H, q, p, time = case("banana", metric, 1)
    want = true_flow(H, q, p, 0.3 * time)
    errors = [np.linalg.norm(end(H, ExplicitTao(omega=10.0), q, p, 0.3 * time / n, n) - want) for n in (64, 128)]
    assert abs(math.log2(errors[0] / errors[1]) - 2) < 0.2

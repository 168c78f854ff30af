"""``integrate``, ``Hamiltonian`` and ``transition`` from Python: invalid arguments, and independence of inputs and results."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.errors import ShapeError

MODEL = refhmc.models.Funnel(2)
H = refhmc.Hamiltonian(MODEL, refhmc.metrics.Diagonal([1.0, 2.0, 0.5]))
LEAPFROG = refhmc.integrators.Leapfrog()
q, p = np.array([0.3, -1.0, 0.7]), np.array([1.0, 0.2, -0.4])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"step_size": 0.0}, ValueError, "step_size.*0.0"),
        ({"step_size": float("nan")}, ValueError, "step_size.*nan"),
        ({"n_steps": -1}, ValueError, "n_steps.*-1"),
        ({"n_steps": 1.5}, ValueError, "n_steps.*1.5"),
        ({"q": [0.0]}, ShapeError, r"position.*\(3,\).*\(1,\)"),
        ({"p": [0.0, 1.0]}, ShapeError, r"momentum.*\(3,\).*\(2,\)"),
    ],
)
def test_what_integrate_refuses(arguments, error, words):
    with pytest.raises(error, match=words):
        refhmc.integrate(H, LEAPFROG, **{"q": q, "p": p, "step_size": 0.1, "n_steps": 3, **arguments})


def test_a_trajectory_of_no_steps_is_its_start():
    t = refhmc.integrate(H, LEAPFROG, q, p, step_size=0.1, n_steps=0)
    assert np.array_equal(t.q, [q])
    assert np.array_equal(t.p, [p])
    assert t.energy[0] == pytest.approx(H.energy(q, p), rel=1e-14)
    assert t.evaluations == 1


def test_inputs_are_left_alone_and_the_result_is_ones_own():
    q_before, p_before = q.copy(), p.copy()
    t = refhmc.integrate(H, LEAPFROG, q, p, step_size=0.1, n_steps=5)
    assert np.array_equal(q, q_before)
    assert np.array_equal(p, p_before)
    assert t.q.shape == t.p.shape == (6, 3)
    assert t.converged.all()
    assert t.iterations.sum() == 0


def test_the_mass_matrix_and_its_inverse_agree():
    for metric in (
        refhmc.metrics.Identity(),
        refhmc.metrics.Diagonal([1.0, 2.0, 0.5]),
        refhmc.metrics.Dense(np.eye(3) + 0.4),
    ):
        h = refhmc.Hamiltonian(MODEL, metric)
        np.testing.assert_allclose(h.mass(q) @ h.grad_p(q, p), p, rtol=1e-12)
        np.testing.assert_allclose(h.grad_q(q, p), -MODEL.gradient(q))
    with pytest.raises(TypeError, match="metric.*ndarray"):
        refhmc.Hamiltonian(MODEL, np.eye(3))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"kernel": refhmc.NUTS()}, ValueError, "step_size"),
        ({"rng": None}, ValueError, "rng.*uniforms.*momentum"),
        ({"uniforms": []}, ValueError, "uniforms must not be empty"),
        ({"momentum": [1.0]}, ShapeError, r"momentum.*\(3,\).*\(1,\)"),
        ({"normals": [1.0]}, ShapeError, r"normals.*\(3,\).*\(1,\)"),
        ({"q": [1.0]}, ShapeError, "position"),
        ({"uniforms": [0.5], "momentum": [3.0, 1.0, 1.0]}, IndexError, "uniforms"),
    ],
)
def test_what_transition_refuses(arguments, error, words):
    given = {"model": MODEL, "kernel": refhmc.NUTS(step_size=0.1), "q": q, "rng": np.random.default_rng(1), **arguments}
    with pytest.raises(error, match=words):
        refhmc.transition(**given)


def test_a_transition_on_a_generator_can_be_replayed_from_its_numbers():
    for kernel in (refhmc.NUTS(step_size=0.2), refhmc.HMC(step_size=0.2, n_steps=5, step_jitter=0.2)):
        drawn = refhmc.transition(MODEL, kernel, q, rng=np.random.default_rng(7))
        same = np.random.default_rng(7)
        normals, uniforms = same.standard_normal(3), same.random(2000)
        replayed = refhmc.transition(MODEL, kernel, q, normals=normals, uniforms=uniforms)
        assert np.array_equal(drawn.q, replayed.q)
        assert drawn.stats == replayed.stats
        assert drawn.outcome == replayed.outcome
        assert 0 < replayed.uniforms_used < 2000

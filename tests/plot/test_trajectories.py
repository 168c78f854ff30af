"""Plots of a trajectory, read back from the axes."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.integrators import GeneralizedLeapfrog, Leapfrog
from refhmc.metrics import Diagonal, Fisher
from refhmc.plot.canvas import LEVELS

NORMAL = refhmc.models.Gaussian(np.zeros(1), np.eye(1))


def steps_by_hand(q, p, eps, n):
    """The leapfrog for H = q^2/2 + p^2/2."""
    states = [(q, p)]
    for _ in range(n):
        p -= 0.5 * eps * q
        q += eps * p
        p -= 0.5 * eps * q
        states.append((q, p))
    return np.array(states)


def test_states_and_energies_of_an_oscillator():
    H = refhmc.Hamiltonian(NORMAL)
    t = refhmc.integrate(H, Leapfrog(), [1.0], [0.5], step_size=0.3, n_steps=8)
    mine = steps_by_hand(1.0, 0.5, 0.3, 8)
    ax = refhmc.plot.trajectory(t, H=H)
    lines = {line.get_label(): line.get_xydata() for line in ax.get_lines()}
    np.testing.assert_allclose(lines["steps"], mine, atol=1e-14)
    np.testing.assert_allclose(lines["start"], mine[:1])
    np.testing.assert_allclose(lines["end"], mine[-1:])
    assert (ax.get_xlabel()[:2], ax.get_ylabel()[:2]) == ("q0", "p0")
    energy = 0.5 * (mine**2).sum(axis=1)
    (line, zero) = refhmc.plot.energy(t).get_lines()
    np.testing.assert_allclose(line.get_ydata(), energy - energy[0], atol=1e-14)
    assert zero.get_ydata() == [0, 0]


def test_contours_of_the_energy_are_circles():
    H = refhmc.Hamiltonian(NORMAL)
    t = refhmc.integrate(H, Leapfrog(), [2.5], [0.0], step_size=0.1, n_steps=70)
    ax = refhmc.plot.trajectory(t, H=H)
    (contours,) = ax.collections
    radius = np.linalg.norm(contours.get_paths()[0].vertices, axis=1)
    np.testing.assert_allclose(radius, np.sqrt(2 * LEVELS[0]), rtol=0.03)


def test_any_two_coordinates():
    model = refhmc.models.Funnel(3)
    H = refhmc.Hamiltonian(model, Diagonal(np.ones(model.dim)))
    q, p = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1.0, -1.0, 0.5, 0.0])
    t = refhmc.integrate(H, Leapfrog(), q, p, step_size=0.1, n_steps=5)
    given = refhmc.plot.trajectory(t).figure.subplots()
    ax = refhmc.plot.trajectory(t, "q3", "p1", H=H, ax=given)
    assert ax is given
    np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), np.stack([t.q[:, 3], t.p[:, 1]], axis=1))
    assert not ax.collections  # H in this plane depends on what is not shown
    assert ax.get_xlabel() == "q3  (x[2])"
    for wrong in ("q4", "x0", "p", "q-1"):
        with pytest.raises(ValueError, match="q0 to q3"):
            refhmc.plot.trajectory(t, wrong)


def test_a_trajectory_that_ends_early():
    model = refhmc.models.Funnel(2)
    H = refhmc.Hamiltonian(model, Fisher())
    hard = GeneralizedLeapfrog(max_iterations=2, tolerance=1e-12)
    t = refhmc.integrate(H, hard, np.zeros(3), np.ones(3), step_size=0.5, n_steps=4)
    assert not t.converged.any()
    ax = refhmc.plot.trajectory(t, H=H)
    labels = [line.get_label() for line in ax.get_lines()]
    assert "no state after step 0" in labels
    assert "end" not in labels
    ax = refhmc.plot.energy(t)
    assert [line.get_xdata()[0] for line in ax.get_lines() if "no energy" in line.get_label()] == [1]


def test_no_steps():
    H = refhmc.Hamiltonian(NORMAL)
    t = refhmc.integrate(H, Leapfrog(), [1.0], [0.5], step_size=0.3, n_steps=0)
    refhmc.plot.trajectory(t, H=H).figure._repr_png_()
    assert refhmc.plot.energy(t).get_lines()[0].get_ydata().tolist() == [0]

"""Violations, energy errors and shadow Hamiltonians compared with closed forms and with the measures themselves."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.diagnostics import reversibility_violation, volume_violation
from refhmc.errors import ShapeError
from refhmc.integrators import ImplicitMidpoint, Leapfrog, Yoshida
from refhmc.metrics import Dense, Fisher, Identity

BANANA = refhmc.models.Banana()
LOOSE_TO_TIGHT = (1e-2, 1e-5, 1e-9)


def test_violations_are_the_measures():
    H = refhmc.Hamiltonian(BANANA, Fisher())
    q, p = np.array([[0.3, 0.6], [0.5, 0.1]]), np.array([[2.0, 1.0], [-1.0, 2.0]])
    how = {"step_size": 0.03, "n_steps": 3}
    ax = refhmc.plot.violations(H, ImplicitMidpoint(), q, p, tolerances=LOOSE_TO_TIGHT, increment=1e-5, **how)
    lines = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    back, volume = np.zeros((2, 3, 2))
    for i, tolerance in enumerate(LOOSE_TO_TIGHT):
        unchecked = ImplicitMidpoint(tolerance=tolerance, reversibility_check=False)
        for k in range(2):
            back[i, k] = reversibility_violation(H, unchecked, q[k], p[k], **how)
            volume[i, k] = volume_violation(H, unchecked, q[k], p[k], increment=1e-5, **how)
    np.testing.assert_array_equal(lines["reversibility"], back.mean(axis=1))  # of two the median is the mean
    np.testing.assert_array_equal(lines["volume"], volume.mean(axis=1))
    assert np.all(np.diff(lines["reversibility"]) < 0)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_violations_without_a_solution_are_counted():
    H = refhmc.Hamiltonian(BANANA, Fisher())
    short = ImplicitMidpoint(max_iterations=2)
    ax = refhmc.plot.violations(H, short, [0.3, 0.6], [2.0, 1.0], step_size=0.1, n_steps=2, tolerances=(1e-10,))
    assert ax.get_lines()[0].get_label() == "reversibility (1 of 1 not solved)"
    assert ax.figure._repr_png_()


def test_violations_rejects_explicit_integrators_and_wrong_shapes():
    H = refhmc.Hamiltonian(BANANA)
    with pytest.raises(ValueError, match="integrator .*Leapfrog"):
        refhmc.plot.violations(H, Leapfrog(), np.zeros(2), np.ones(2), step_size=0.1, n_steps=2)
    with pytest.raises(ShapeError, match="q and p"):
        refhmc.plot.violations(H, ImplicitMidpoint(), np.zeros(2), np.ones(3), step_size=0.1, n_steps=2)


def test_the_energy_error_has_the_slope_of_the_order():
    H = refhmc.Hamiltonian(refhmc.models.Funnel(1))
    for integrator, order in ((Leapfrog(), 2), (Yoshida(Leapfrog()), 4)):
        ax = refhmc.plot.energy_error(H, integrator, [1.0, 0.3], [0.5, 1.0], time=2.0, step_sizes=(0.02, 0.04, 0.08))
        sizes, errors = ax.get_lines()[0].get_data()
        slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
        assert abs(slope - order) < 0.1
        assert ax.get_lines()[1].get_label() == f"slope {order}"


def test_the_energy_error_of_an_oscillator():
    """H - eps^2 q^2 / 8 is conserved for H = (p^2 + q^2) / 2, so |H - H0| is at most eps^2 / 8 |q^2 - q0^2|."""
    H = refhmc.Hamiltonian(refhmc.models.Gaussian(np.zeros(1), np.eye(1)))
    ax = refhmc.plot.energy_error(H, Leapfrog(), [1.0], [0.0], time=3.2, step_sizes=(0.1, 0.2), label="mine")
    for eps, error in zip(*ax.get_lines()[0].get_data(), strict=True):
        t = refhmc.integrate(H, Leapfrog(), [1.0], [0.0], step_size=eps, n_steps=round(3.2 / eps))
        assert error == pytest.approx(eps**2 / 8 * np.max(np.abs(t.q[:, 0] ** 2 - 1)), rel=1e-9)


def test_step_with_infinite_energy_is_marked():
    H = refhmc.Hamiltonian(refhmc.models.Funnel(1))
    ax = refhmc.plot.energy_error(H, Leapfrog(), [1.0, 0.3], [0.5, 1.0], time=400.0, step_sizes=(0.1, 40.0))
    crosses = [line.get_xdata() for line in ax.get_lines() if line.get_marker() == "X"]
    assert crosses[0].tolist() == [40.0]


def test_shadow_energy_of_a_gaussian_is_conserved_exactly():
    S, M = np.array([[2.0, 0.6], [0.6, 1.0]]), np.array([[1.0, 0.3], [0.3, 0.5]])
    H = refhmc.Hamiltonian(refhmc.models.Gaussian(np.ones(2), S), Dense(M))
    ax = refhmc.plot.shadow_energy(H, [1.0, 0.3], [0.5, -1.0], step_size=0.6, n_steps=40)
    error, shadow, _ = ax.get_lines()
    assert "exact" in shadow.get_label()
    assert np.ptp(error.get_ydata()) > 0.01
    assert np.ptp(shadow.get_ydata()) < 1e-13


def test_shadow_energy_of_other_models_is_conserved_to_order_four():
    H = refhmc.Hamiltonian(refhmc.models.Funnel(1), Identity())
    left = []
    for eps in (0.1, 0.05):
        ax = refhmc.plot.shadow_energy(H, [1.0, 0.3], [0.5, 1.0], step_size=eps, n_steps=round(4 / eps))
        assert "order 4" in ax.get_lines()[1].get_label()
        left.append(np.ptp(ax.get_lines()[1].get_ydata()))
    assert 14 < left[0] / left[1] < 18  # 2^4


def test_shadow_energy_rejects_position_dependent_metrics():
    with pytest.raises(ValueError, match="constant mass matrix.*Fisher"):
        refhmc.plot.shadow_energy(
            refhmc.Hamiltonian(BANANA, Fisher()), [0.0, 0.0], [1.0, 1.0], step_size=0.1, n_steps=2
        )

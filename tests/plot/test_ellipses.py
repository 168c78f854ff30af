"""Ellipses compared with the metric of a density for which it is known."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.errors import ShapeError
from refhmc.metrics import Dense, Fisher, Identity


def boundary(patch):
    """Return points (n, 2) of a drawn ellipse."""
    t = np.linspace(0, 2 * np.pi, 50)
    half, angle = np.array([patch.width, patch.height]) / 2, np.radians(patch.angle)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return patch.get_center() + (np.stack([np.cos(t), np.sin(t)], axis=1) * half) @ turn.T


def test_a_constant_metric():
    S = np.array([[2.0, 0.6, 0.1], [0.6, 1.0, 0.2], [0.1, 0.2, 0.5]])
    model = refhmc.models.Gaussian(np.zeros(3), S)
    H = refhmc.Hamiltonian(model, Dense(S))  # G = S^-1
    path = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [np.nan, 0.0, 0.0], [0.5, 0.5, 0.5]])
    ax = refhmc.plot.metric_ellipses(H, path, coordinates=(0, 2), scale=0.5)
    assert len(ax.patches) == 3
    A = np.linalg.inv(S[np.ix_([0, 2], [0, 2])])
    for patch, centre in zip(ax.patches, path[[0, 1, 3]][:, [0, 2]], strict=True):
        u = boundary(patch) - centre
        np.testing.assert_allclose(np.einsum("ni,ij,nj->n", u, A, u), 0.25, rtol=1e-10)
    assert len(refhmc.plot.metric_ellipses(H, path[:2], every=2).patches) == 1


def test_the_fisher_metric_of_the_funnel_along_a_trajectory():
    """For one x, the Fisher metric is diagonal: the ellipses are parallel to the axes, and narrow as exp(-v/2)."""
    model = refhmc.models.Funnel(1)
    H = refhmc.Hamiltonian(model, Fisher())
    q = np.array([[0.0, 0.0], [3.0, 0.1]])
    ax = refhmc.plot.metric_ellipses(H, q, scale=1.0)
    for patch, at in zip(ax.patches, q, strict=True):
        u = boundary(patch) - at
        np.testing.assert_allclose(np.einsum("ni,ij,nj->n", u, model.fisher(at), u), 1.0, rtol=1e-10)
    t = refhmc.integrate(H, refhmc.integrators.ImplicitMidpoint(), q[0], [1.0, 0.5], step_size=0.1, n_steps=3)
    assert len(refhmc.plot.metric_ellipses(H, t).patches) == 4


def test_invalid_arguments_are_rejected():
    one = refhmc.Hamiltonian(refhmc.models.Gaussian(np.zeros(1), np.eye(1)), Identity())
    with pytest.raises(ValueError, match="at least two coordinates"):
        refhmc.plot.metric_ellipses(one, [[0.0]])
    two = refhmc.Hamiltonian(refhmc.models.Gaussian(np.zeros(2), np.eye(2)), Identity())
    with pytest.raises(ShapeError, match=r"path .*\(n, 2\)"):
        refhmc.plot.metric_ellipses(two, np.zeros((3, 4)))

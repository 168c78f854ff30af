"""Posterior moments of hierarchical regressions by another method than sampling.

Given the scales, theta is normal, and its moments and the marginal likelihood are in closed form. The remaining integral over
the logarithms of the scales is a sum over an equidistant grid. For these densities, whose tails are exponential and which are
analytic in a strip, the error of this trapezoidal rule decreases exponentially with the number of points.
"""

from __future__ import annotations

import numpy as np


def given_scales(A, y, w, D, noise):
    """Return log p(y | scales) up to a constant, and the mean (N, K) and covariance (N, K, K) of z.

    The coefficients of A are w z with weights w (N, K), and z ~ N(0, D^-1) with a diagonal D (K,).
    """
    f = noise[:, None] ** -2
    P, b = np.diag(D) + (f * w)[..., None] * (A.T @ A) * w[:, None, :], f * w * (A.T @ y)
    covariance = np.linalg.inv(P)
    mean = (covariance @ b[..., None])[..., 0]
    log_marginal = 0.5 * (np.sum(mean * b, axis=1) - f[:, 0] * (y @ y) - np.linalg.slogdet(P)[1])
    return log_marginal - len(y) * np.log(noise), mean, covariance


def moments(log_weights, mean, variance, scales):
    """Return means and variances of (theta, scales), averaged over the grid."""
    w = np.exp(log_weights - log_weights.max())
    w /= w.sum()
    x, squares = np.hstack([mean, scales]), np.hstack([mean**2 + variance, scales**2])
    return w @ x, w @ squares - (w @ x) ** 2


def grid(*axes):
    """Return all points of the product of the axes, (N, number of axes)."""
    return np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)


def varying_intercepts(y, group, X, log_scales):
    """Return means and variances of alpha, mu, beta, sigma_alpha and sigma_y from a grid (N, 2) of the log scales."""
    J, p = int(group.max()) + 1, X.shape[1]
    A = np.column_stack([np.eye(J)[group], np.ones(len(y)), X])
    tau, sigma = np.exp(log_scales).T
    w = np.column_stack([tau[:, None] + np.zeros(J), np.ones((len(tau), 1 + p))])
    log_marginal, mean, C = given_scales(A, y, w, np.repeat([1.0, 0.01], [J, 1 + p]), sigma)
    to_alpha = w[..., None] * np.eye(J + 1 + p)  # alpha_j = mu + tau z_j
    to_alpha[:, :J, J] = 1.0
    variance = np.einsum("nij,njk,nik->ni", to_alpha, C, to_alpha, optimize=True)
    log_prior = np.sum(log_scales - np.exp(2 * log_scales) / 2, axis=1)
    mean = (to_alpha @ mean[..., None])[..., 0]
    return moments(log_marginal + log_prior, mean, variance, np.stack([tau, sigma], axis=1))


def horseshoe(X, y, global_scale, log_scales):
    """Return means and variances of beta and of the log scales from a grid (N, d + 2) of log lambda, log tau and log sigma."""
    d = X.shape[1]
    w = np.exp(log_scales[:, :d] + log_scales[:, d, None])
    log_marginal, mean, C = given_scales(X, y, w, np.ones(d), np.exp(log_scales[:, -1]))
    h = log_scales - np.append(np.zeros(d), [np.log(global_scale), 0.0])
    log_weights = log_marginal - np.sum(np.log(np.cosh(h)), axis=1)
    return moments(log_weights, w * mean, w**2 * C.diagonal(axis1=1, axis2=2), log_scales)

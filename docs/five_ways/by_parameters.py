import numpy as np

import refhmc
from refhmc.parameters import Positive, Real

y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
parameters = refhmc.Parameters(eta=Real(shape=8), mu=Real(), tau=Positive())
ETA, MU, TAU = parameters.at


def log_density(values, data):
    eta, mu, tau = values
    y, sigma = data
    r = (y - mu - tau * eta) / sigma
    return -0.5 * np.sum(r * r) - 0.5 * np.sum(eta * eta) - mu * mu / 50 - np.log1p(tau * tau / 25)


def gradient(values, data):
    eta, mu, tau = values
    y, sigma = data
    r = (y - mu - tau * eta) / sigma**2
    return tau * r - eta, np.sum(r) - mu / 25, np.sum(r * eta) - 2 * tau / (25 + tau * tau)


def hessian(values, data, out):
    eta, mu, tau = values
    y, sigma = data
    out[MU, MU], out[TAU, TAU] = -1 / 25, (2 * tau**2 - 50) / (25 + tau**2) ** 2
    for j in range(8):
        w = 1 / sigma[j] ** 2
        out[j, j] = -tau * tau * w - 1
        out[j, MU] = out[MU, j] = -tau * w
        out[j, TAU] = out[TAU, j] = w * (y[j] - mu - 2 * tau * eta[j])
        out[MU, MU] -= w
        out[MU, TAU] -= w * eta[j]
        out[TAU, TAU] -= w * eta[j] ** 2
    out[TAU, MU] = out[MU, TAU]


def hessian_contraction(values, data, M, out):
    eta, mu, tau = values
    out[TAU] = M[TAU, TAU] * 4 * tau * (75 - tau**2) / (25 + tau**2) ** 3
    for j in range(8):
        w, M_eta_tau = 1 / data[1][j] ** 2, M[j, TAU] + M[TAU, j]
        out[j] = -w * (2 * tau * M_eta_tau + M[MU, TAU] + M[TAU, MU] + 2 * eta[j] * M[TAU, TAU])
        out[MU] -= w * M_eta_tau
        out[TAU] -= w * (2 * tau * M[j, j] + M[j, MU] + M[MU, j] + 2 * eta[j] * M_eta_tau)


model = parameters.model(
    log_density, gradient, hessian=hessian, hessian_contraction=hessian_contraction, data=(y, sigma)
)
